// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor that a rank holds part of: which they are in the whole one, and where.
//
// An op that looks a row up by number (a table, a label) is given numbers of the whole tensor; its
// kernel sees the local rows. Both directions follow from the type and the rank.
#ifndef GW_OPS_ROWS_H
#define GW_OPS_ROWS_H

#include <string.h>

#include "ir/opdef.h" /* gw_kargs, gw_runs */

/* The global indices along dimension `dim` of value v that the kernel's rank holds. */
static inline gw_runs gw_rows_of(const gw_kargs *k, gw_vid v, int dim) {
    return gw_type_runs(gw_type_of(k->g, v), dim, &k->g->mesh, k->rank);
}

/* The local index of a global one, or -1 where another rank (or none) holds it. */
static inline int64_t gw_rows_local(const gw_runs *r, int64_t global) {
    int64_t before = 0;
    for (int i = 0; i < r->n; i++) {
        int64_t at = global - r->first[i];
        if (at >= 0 && at < r->count[i]) return before + at;
        before += r->count[i];
    }
    return -1;
}

/* The type of one sample: t, which is not flat, without its first dimension. Walking what a rank
 * holds of it (gw_held_begin) gives the index of each element within the sample. */
static inline gw_type gw_rows_sample(const gw_type *t) {
    gw_type s = *t;
    if (t->ndim == 0) return s;
    s.ndim--;
    memmove(s.dims, t->dims + 1, sizeof s.dims - sizeof s.dims[0]);
    memset(&s.dims[s.ndim], 0, sizeof s.dims[0]);
    return s;
}

#endif

// SPDX-License-Identifier: Apache-2.0
// What two pieces of one tensor have in common, against the definition of a row-major index.
#include <string.h>

#include "base/rng.h" /* gw_rng_u64 */
#include "ckpt/box.h"
#include "harness.h"

enum { MOST = 6 * 5 * 7 };

static int64_t below(gw_rng_key key, uint64_t *at, int64_t n) {
    return (int64_t)(gw_rng_u64(key, (*at)++) % (uint64_t)n);
}

static gw_piece random_piece(gw_rng_key key, uint64_t *at, int ndim, const int64_t *dims) {
    gw_box b = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) {
        b.start[i] = below(key, at, dims[i]);
        b.size[i] = 1 + below(key, at, dims[i] - b.start[i]);
        if (below(key, at, 3) == 0) b.start[i] = 0, b.size[i] = dims[i];
    }
    gw_piece p = gw_piece_of_box(&b);
    if (below(key, at, 2) == 0) return p;
    p.first = below(key, at, p.count);
    p.count = 1 + below(key, at, p.count - p.first);
    return p;
}

/* Where each element of the tensor stands in the piece, or -1. */
static void positions(const gw_piece *p, const int64_t *dims, int64_t elems, int64_t *out) {
    for (int64_t e = 0; e < elems; e++) {
        int64_t rest = e, index[GW_MAX_DIMS], in = 0;
        bool inside = true;
        for (int i = p->box.ndim; i-- > 0;) {
            index[i] = rest % dims[i] - p->box.start[i];
            rest /= dims[i];
            inside = inside && index[i] >= 0 && index[i] < p->box.size[i];
        }
        for (int i = 0; inside && i < p->box.ndim; i++) in = in * p->box.size[i] + index[i];
        inside = inside && in >= p->first && in < p->first + p->count;
        out[e] = inside ? in - p->first : -1;
    }
}

TEST(common_parts_are_those_of_the_definition) {
    gw_rng_key key = gw_rng_key_named(3, "pieces");
    uint64_t at = 0;
    int met = 0;
    for (int round = 0; round < 20000; round++) {
        int ndim = (int)below(key, &at, 4);
        int64_t dims[GW_MAX_DIMS] = {1 + below(key, &at, 6), 1 + below(key, &at, 5),
                                     1 + below(key, &at, 7)};
        int64_t elems = 1, pa[MOST], pb[MOST], partner[MOST];
        for (int i = 0; i < ndim; i++) elems *= dims[i];
        gw_piece a = random_piece(key, &at, ndim, dims), b = random_piece(key, &at, ndim, dims);
        positions(&a, dims, elems, pa);
        positions(&b, dims, elems, pb);
        memset(partner, 0xff, sizeof partner);
        for (int64_t e = 0; e < elems; e++)
            if (pa[e] >= 0 && pb[e] >= 0) partner[pa[e]] = pb[e];
        gw_common c;
        int64_t in_a, in_b, n, last = -1;
        gw_common_begin(&c, &a, &b);
        while (gw_common_next(&c, &in_a, &in_b, &n)) {
            CHECK(n > 0 && in_a > last); /* in order, nothing twice */
            for (int64_t i = 0; i < n; i++) {
                CHECK_EQ(partner[in_a + i], in_b + i);
                partner[in_a + i] = -1;
            }
            last = in_a + n - 1;
            met++;
        }
        for (int64_t i = 0; i < a.count; i++) CHECK_EQ(partner[i], -1);
    }
    CHECK(met > 10000);
}

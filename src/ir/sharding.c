// SPDX-License-Identifier: Apache-2.0
// What shard rules are written with: small changes of placements.
//
// A dimension's sub-axes are an ordered list, major first. Cutting appends, so that what is cut
// last is the most minor and converts by a contiguous gather or scatter; taking sub-axes away keeps
// the order of the rest. A dimension with an outer cut (zigzag around a ring) keeps it as long as
// any of its sub-axes remain.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ir/opdef.h"
#include "ir/shard.h" /* GW_SHARD_CHUNK */

gw_status gw_shard_default(gw_sharding *s, gw_diags *dg) { return s->by_signature(s, dg); }

void gw_dim_uncut(gw_dim *d, uint32_t axes) {
    int n = 0, outer = 0;
    for (int i = 0; i < d->naxes; i++) {
        if (axes >> d->axes[i] & 1u) continue;
        outer += i < d->outer;
        d->axes[n++] = d->axes[i];
    }
    bool twice = d->outer > 0;
    d->naxes = (uint8_t)n;
    d->outer = (uint8_t)outer;
    if (n == 0 || (twice && outer == 0)) d->shard = GW_SHARD_CHUNK, d->turn = 0;
}

void gw_dim_cut(gw_dim *d, uint32_t axes, const gw_mesh *m) {
    for (int a = 0; a < m->naxes; a++) {
        if (!(axes >> a & 1u)) continue;
        GW_ASSERT(d->naxes < GW_MAX_DIM_AXES);
        d->axes[d->naxes++] = (uint8_t)a;
    }
}

void gw_sharding_place(gw_sharding *s, gw_vid v, const gw_type *t) {
    if (s->b->status != GW_OK) return;
    gw_type *mine = &s->b->g->values.items[v].type;
    mine->psum = t->psum;
    mine->pmax = t->pmax;
    for (int i = 0; i < mine->ndim; i++) {
        int j = gw_type_find(t, mine->dims[i].name);
        if (j >= 0) gw_dim_set_cut(&mine->dims[i], &t->dims[j]);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Placements compared: how the parts of two cuts lie to each other, and what a rank copies.
//
// A conversion moves sub-axes into or out of the end of a dimension's list, so one of the two cuts
// is always a prefix of the other. What that means for memory depends on sizes and kinds:
//
//   s{a b}, even          part (a, b) is the b-th of equal pieces of part a: rows
//   s{a b:zigzag}, even   the same of its first half; the second half is dealt out from the other
//                         end, since part i of n holds chunks i and 2n-1-i: halves
//   s{a/b:zigzag}         b cuts what a holds, as the list of elements it is: rows
//   s{a b}, uneven        ceil-divided by the product: parts do not nest, except in the whole
//   s{a/b:zigzag} in s    part of a chunk of a zigzag: it is in there, but not as rows
//
// Rows and halves are gathered and scattered where they lie; anything that is merely held can be
// copied by the rank that has both (slice, place). The group's order is that of coordinates in mesh
// order, so sub-axes listed otherwise do not give rows either.
//
// What must hold (tests/ops/test_collectives.c): the runs of gw_parts cover the finer local tensor
// exactly once, and both ends of a run are one global element.
#include "ops/conversion.h"

#include <string.h>

#include "base/compiler.h" /* GW_MIN */
#include "base/panic.h"    /* GW_ASSERT */
#include "ir/shard.h"      /* GW_SHARD_CHUNK */

gw_dim gw_dim_first_axes(const gw_dim *d, int n) {
    gw_dim r = *d;
    memset(r.axes, 0, sizeof r.axes);
    memcpy(r.axes, d->axes, (size_t)n);
    r.naxes = (uint8_t)n;
    r.outer = (uint8_t)GW_MIN((int)d->outer, n);
    if (n == 0) r.shard = GW_SHARD_CHUNK, r.turn = 0;
    return r;
}

static int64_t parts_of(const gw_dim *d, int n, const gw_mesh *m) {
    int64_t parts = 1;
    for (int i = 0; i < n; i++) parts *= m->axes[d->axes[i]].size;
    return parts;
}

static bool is_even(const gw_dim *d, const gw_mesh *m) {
    int64_t n = parts_of(d, d->naxes, m);
    if (d->naxes && d->shard == GW_SHARD_ZIGZAG) n *= 2;
    return d->size % n == 0;
}

static int64_t turn_of(const gw_dim *d, const gw_mesh *m) {
    return d->turn % parts_of(d, gw_dim_outer(d), m);
}

static bool can_nest(const gw_dim *d) {
    return d->shard == GW_SHARD_CHUNK || d->shard == GW_SHARD_ZIGZAG;
}

bool gw_dim_same_part(const gw_dim *a, const gw_dim *b, const gw_mesh *m) {
    if (a->size != b->size || a->naxes != b->naxes) return false;
    if (memcmp(a->axes, b->axes, a->naxes) != 0) return false;
    if (a->naxes == 0) return true;
    if (a->shard != b->shard) return false;
    int64_t ta = turn_of(a, m), tb = turn_of(b, m);
    if (gw_dim_outer(a) == gw_dim_outer(b)) return ta == tb;
    return a->shard == GW_SHARD_CHUNK && ta == 0 && tb == 0 && is_even(a, m);
}

/* The sub-axes from n on are in mesh order. */
static bool in_mesh_order(const gw_dim *d, int n) {
    for (int i = n + 1; i < d->naxes; i++)
        if (d->axes[i - 1] > d->axes[i]) return false;
    return true;
}

/* Within the whole: anything is held. */
static gw_nesting nest_in_whole(const gw_dim *f, const gw_mesh *m) {
    if (!can_nest(f) || !is_even(f, m) || turn_of(f, m) != 0 || !in_mesh_order(f, 0))
        return GW_NEST_HELD;
    if (f->shard == GW_SHARD_CHUNK) return GW_NEST_ROWS;
    return gw_dim_outer(f) == f->naxes ? GW_NEST_HALVES : GW_NEST_HELD;
}

/* Both have the outer cut; the rest of f's sub-axes cuts its parts in chunks. */
static gw_nesting nest_in_outer(const gw_dim *f, const gw_dim *c, const gw_mesh *m) {
    if (gw_dim_outer(c) != gw_dim_outer(f) || turn_of(c, m) != turn_of(f, m)) return GW_NEST_NONE;
    if (is_even(f, m)) return in_mesh_order(f, c->naxes) ? GW_NEST_ROWS : GW_NEST_HELD;
    return c->naxes == gw_dim_outer(f) ? GW_NEST_HELD : GW_NEST_NONE;
}

/* c has some of the sub-axes of f's outer cut. */
static gw_nesting nest_within_outer(const gw_dim *f, const gw_dim *c, const gw_mesh *m) {
    if (!is_even(f, m) || turn_of(f, m) != 0 || turn_of(c, m) != 0) return GW_NEST_NONE;
    if (f->shard == GW_SHARD_CHUNK) return in_mesh_order(f, c->naxes) ? GW_NEST_ROWS : GW_NEST_HELD;
    if (gw_dim_outer(c) != c->naxes) return GW_NEST_NONE;
    bool plain = gw_dim_outer(f) == f->naxes && in_mesh_order(f, c->naxes);
    return plain ? GW_NEST_HALVES : GW_NEST_HELD;
}

gw_nesting gw_dim_nesting(const gw_dim *f, const gw_dim *c, const gw_mesh *m) {
    if (f->size != c->size || c->naxes > f->naxes || memcmp(f->axes, c->axes, c->naxes) != 0)
        return GW_NEST_NONE;
    if (gw_dim_same_part(f, c, m)) return GW_NEST_HELD;
    if (c->naxes == 0) return nest_in_whole(f, m);
    if (c->naxes == f->naxes || !can_nest(f) || f->shard != c->shard) return GW_NEST_NONE;
    bool chunks = f->shard == GW_SHARD_CHUNK && turn_of(f, m) == 0 && turn_of(c, m) == 0;
    if (c->naxes < gw_dim_outer(f) || (chunks && is_even(f, m))) return nest_within_outer(f, c, m);
    return nest_in_outer(f, c, m);
}

/* ---- what one rank has of both ---- */

/* Runs of dimension i that are consecutive in both local tensors. */
static void cut_dim(gw_parts *p, int i, const gw_type *fine, const gw_type *coarse,
                    const gw_mesh *m, int64_t rank) {
    gw_runs f = gw_type_runs(fine, i, m, rank), c = gw_type_runs(coarse, i, m, rank);
    int64_t at = 0;
    p->cuts[i].n = 0;
    for (int a = 0; a < f.n; a++) {
        int64_t done = 0;
        while (done < f.count[a]) {
            int64_t global = f.first[a] + done, base = 0, count = 0, local = 0;
            for (int b = 0; b < c.n; b++) {
                if (global >= c.first[b] && global < c.first[b] + c.count[b]) {
                    local = base + global - c.first[b];
                    count = GW_MIN(f.count[a] - done, c.first[b] + c.count[b] - global);
                }
                base += c.count[b];
            }
            GW_ASSERT(count > 0 && p->cuts[i].n < 4); /* the cuts nest */
            int n = p->cuts[i].n++;
            p->cuts[i].fine[n] = at + done;
            p->cuts[i].coarse[n] = local;
            p->cuts[i].count[n] = count;
            done += count;
        }
        at += f.count[a];
    }
}

void gw_parts_begin(gw_parts *p, const gw_type *fine, const gw_type *coarse, const gw_mesh *m,
                    int64_t rank) {
    memset(p, 0, sizeof *p);
    p->inner = p->rows = 1;
    p->cuts[0].n = 1; /* of a scalar */
    p->cuts[0].count[0] = p->fine[0] = p->coarse[0] = 1;
    for (int i = 0; i < fine->ndim; i++) {
        p->fine[i] = gw_type_local_dim(fine, i, m, rank);
        p->coarse[i] = gw_type_local_dim(coarse, i, m, rank);
        cut_dim(p, i, fine, coarse, m, rank);
        if (p->cuts[i].n != 1 || p->fine[i] != p->coarse[i]) p->last = i;
    }
    for (int i = 0; i < fine->ndim; i++) {
        if (i < p->last) p->rows *= p->fine[i];
        if (i > p->last) p->inner *= p->fine[i];
    }
    if (p->inner == 0) p->rows = 0;
}

/* Local index in the coarser tensor of index `at` of dimension i of the finer. */
static int64_t coarse_index(const gw_parts *p, int i, int64_t at) {
    int k = 0;
    while (at >= p->cuts[i].fine[k] + p->cuts[i].count[k]) k++;
    return p->cuts[i].coarse[k] + at - p->cuts[i].fine[k];
}

bool gw_parts_next(gw_parts *p, int64_t *fine, int64_t *coarse, int64_t *count) {
    int d = p->last;
    if (p->piece >= p->cuts[d].n) {
        p->piece = 0;
        p->row++;
    }
    if (p->row >= p->rows || p->cuts[d].n == 0) return false;
    int64_t above = 0, stride = 1, rest = p->row;
    for (int i = d; i-- > 0;) {
        above += coarse_index(p, i, rest % p->fine[i]) * stride;
        rest /= p->fine[i];
        stride *= p->coarse[i];
    }
    *fine = (p->row * p->fine[d] + p->cuts[d].fine[p->piece]) * p->inner;
    *coarse = (above * p->coarse[d] + p->cuts[d].coarse[p->piece]) * p->inner;
    *count = p->cuts[d].count[p->piece++] * p->inner;
    return true;
}

bool gw_rank_keeps(const gw_mesh *m, uint32_t axes, int64_t rank) {
    for (int a = 0; a < m->naxes; a++)
        if ((axes >> a & 1u) && gw_mesh_coord(m, rank, a) != 0) return false;
    return true;
}

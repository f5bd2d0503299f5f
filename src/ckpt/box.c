// SPDX-License-Identifier: Apache-2.0
// Boxes: the parts of a tensor that ranks hold and files store.
//
// A loader that intersects boxes does not care how many ranks wrote a checkpoint or read it: each
// target takes from every chunk what the two have in common. Arrays are dense and row-major within
// their own box, so the common part is walked row by row. A row is as long as memory allows: where
// the common part fills both boxes in their last dimensions, these are one row. Of a piece that is
// a stretch of its box, the rows are cut to the stretch.
#include "ckpt/box.h"

#include <string.h>

gw_box gw_box_whole(int ndim, const int64_t *dims) {
    gw_box b = {.ndim = ndim};
    for (int i = 0; i < ndim; i++) b.size[i] = dims[i];
    return b;
}

int64_t gw_box_elems(const gw_box *b) {
    int64_t n = 1;
    for (int i = 0; i < b->ndim; i++) n *= b->size[i];
    return n;
}

bool gw_box_equal(const gw_box *a, const gw_box *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->start[i] != b->start[i] || a->size[i] != b->size[i]) return false;
    return true;
}

bool gw_box_meet(const gw_box *a, const gw_box *b, gw_box *out) {
    *out = (gw_box){.ndim = a->ndim};
    for (int i = 0; i < a->ndim; i++) {
        int64_t first = GW_MAX(a->start[i], b->start[i]);
        int64_t end = GW_MIN(a->start[i] + a->size[i], b->start[i] + b->size[i]);
        if (end <= first) return false;
        out->start[i] = first;
        out->size[i] = end - first;
    }
    return true;
}

gw_piece gw_piece_of_box(const gw_box *b) {
    return (gw_piece){.box = *b, .count = gw_box_elems(b)};
}

/* Elements before index `at` in a dense array of box b. */
static int64_t position(const gw_box *b, const int64_t *at) {
    int64_t p = 0;
    for (int i = 0; i < b->ndim; i++) p = p * b->size[i] + (at[i] - b->start[i]);
    return p;
}

void gw_common_begin(gw_common *c, const gw_piece *a, const gw_piece *b) {
    memset(c, 0, sizeof *c);
    c->a = *a;
    c->b = *b;
    c->more = gw_box_meet(&a->box, &b->box, &c->part) && a->count > 0 && b->count > 0;
    c->run = 1;
    int i = c->part.ndim;
    for (bool full = true; c->more && full && i > 0;) {
        i--;
        c->run *= c->part.size[i];
        full = c->part.size[i] == a->box.size[i] && c->part.size[i] == b->box.size[i];
    }
    c->rows = i;
    memcpy(c->at, c->part.start, sizeof c->at);
}

/* The next row: counts up in the dimensions above it. */
static bool advance(gw_common *c) {
    for (int i = c->rows; i-- > 0;) {
        if (++c->at[i] < c->part.start[i] + c->part.size[i]) return true;
        c->at[i] = c->part.start[i];
    }
    return false;
}

bool gw_common_next(gw_common *c, int64_t *in_a, int64_t *in_b, int64_t *count) {
    while (c->more) {
        int64_t pa = position(&c->a.box, c->at), pb = position(&c->b.box, c->at);
        int64_t lo = GW_MAX(c->a.first - pa, c->b.first - pb), hi = c->run;
        lo = GW_MAX(lo, 0);
        hi = GW_MIN(hi, GW_MIN(c->a.first + c->a.count - pa, c->b.first + c->b.count - pb));
        c->more = advance(c);
        if (lo >= hi) continue;
        *in_a = pa + lo - c->a.first;
        *in_b = pb + lo - c->b.first;
        *count = hi - lo;
        return true;
    }
    return false;
}

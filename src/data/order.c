// SPDX-License-Identifier: Apache-2.0
// The order of blocks and rows.
//
// Two bijections (base/rng.h), keyed by the epoch: one over blocks, one over the rows of each
// window. To find a position, the rows of an epoch's blocks in their order are summed once; a
// binary search among the sums then finds the window, and another the block. Sums of two epochs are
// kept, since a batch may end one and begin the next.
//
// Windows are of places in the shuffled order, not of neighbouring blocks: what is shuffled
// together comes from all over the set.
#include "data/order.h" /* this module's contract */

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/compiler.h" /* GW_MIN */

typedef struct epoch {
    int64_t number; /* -1: none */
    gw_rng_key key;
    int64_t *ends; /* [blocks] running sum of rows in the epoch's order */
} epoch;

struct gw_order {
    int64_t blocks, window, rows;
    int64_t *rows_of; /* [blocks] */
    uint64_t seed;
    bool shuffle;
    epoch epochs[2];
};

gw_order *gw_order_new(const int64_t *rows, int64_t blocks, uint64_t seed, int64_t window,
                       bool shuffle) {
    gw_order *o = gw_mem_zalloc(sizeof *o);
    *o = (gw_order){.blocks = blocks, .window = window, .seed = seed, .shuffle = shuffle};
    o->rows_of = gw_mem_alloc((size_t)(blocks + 1) * sizeof *o->rows_of);
    for (int64_t b = 0; b < blocks; b++) o->rows += o->rows_of[b] = rows[b];
    for (int i = 0; i < 2; i++) {
        o->epochs[i].number = -1;
        o->epochs[i].ends = gw_mem_alloc((size_t)(blocks + 1) * sizeof(int64_t));
    }
    return o;
}

void gw_order_free(gw_order *o) {
    if (!o) return;
    for (int i = 0; i < 2; i++) gw_mem_free(o->epochs[i].ends);
    gw_mem_free(o->rows_of);
    gw_mem_free(o);
}

int64_t gw_order_rows(const gw_order *o) { return o->rows; }

int64_t gw_order_windows(const gw_order *o) { return (o->blocks + o->window - 1) / o->window; }

static int64_t block_at(const gw_order *o, const epoch *e, int64_t place) {
    if (!o->shuffle) return place;
    return (int64_t)gw_rng_permute(e->key, (uint64_t)o->blocks, (uint64_t)place);
}

static epoch *epoch_of(gw_order *o, int64_t number) {
    epoch *e = &o->epochs[number & 1];
    if (e->number == number) return e;
    e->number = number;
    e->key = gw_rng_key_fold(gw_rng_key_named(o->seed, "data.blocks"), (uint64_t)number);
    int64_t sum = 0;
    for (int64_t p = 0; p < o->blocks; p++) e->ends[p] = sum += o->rows_of[block_at(o, e, p)];
    return e;
}

/* The number of places in [lo, hi) whose sum is <= at. */
static int64_t ends_upto(const epoch *e, int64_t lo, int64_t hi, int64_t at) {
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (e->ends[mid] <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int64_t begin_of(const epoch *e, int64_t place) {
    return place > 0 ? e->ends[place - 1] : 0;
}

gw_order_place gw_order_at(gw_order *o, int64_t n) {
    const epoch *e = epoch_of(o, n / o->rows);
    int64_t j = n % o->rows, place = ends_upto(e, 0, o->blocks, j);
    int64_t window = place / o->window, first = window * o->window;
    int64_t last = GW_MIN(first + o->window, o->blocks);
    int64_t begin = begin_of(e, first), rows = e->ends[last - 1] - begin;
    gw_order_place out = {.epoch = e->number, .window = window};
    out.done = (double)(j - begin) / (double)rows;
    if (o->shuffle) {
        gw_rng_key key = gw_rng_key_fold(e->key, (uint64_t)window);
        j = begin + (int64_t)gw_rng_permute(key, (uint64_t)rows, (uint64_t)(j - begin));
        place = ends_upto(e, first, last, j);
    }
    out.block = block_at(o, e, place);
    out.row = j - begin_of(e, place);
    return out;
}

int64_t gw_order_blocks(gw_order *o, int64_t number, int64_t window, int64_t *blocks) {
    int64_t windows = gw_order_windows(o), n = 0;
    if (window >= windows) {
        number += window / windows;
        window %= windows;
    }
    const epoch *e = epoch_of(o, number);
    int64_t first = window * o->window, last = GW_MIN(first + o->window, o->blocks);
    for (int64_t p = first; p < last; p++) blocks[n++] = block_at(o, e, p);
    return n;
}

/* Of a uniform shuffle of n: the mean displacement is (n - 1/n) / 3, and two neighbours stand
 * within d of each other with probability (2 n d - d (d + 1)) / (n (n - 1)). */
gw_order_score gw_order_judge(const int64_t *order, int64_t n, int64_t near) {
    double moved = 0, apart = 0, size = (double)n, d = (double)near;
    for (int64_t i = 0; i < n; i++) moved += (double)llabs(order[i] - i);
    for (int64_t i = 1; i < n; i++) apart += llabs(order[i] - order[i - 1]) > near;
    double close = (2 * size * d - d * (d + 1)) / (size * (size - 1));
    return (gw_order_score){.displacement = moved / size / ((size - 1 / size) / 3),
                            .mixing = apart / (size - 1) / (1 - close)};
}

// SPDX-License-Identifier: Apache-2.0
// Order: where the rows of an epoch stand, as a pure function of (seed, epoch, position).
//
// A set is a list of blocks, each of some rows. In every epoch the blocks stand in the order that a
// keyed bijection gives; `window` neighbours of that order are a window, and within a window
// another bijection orders the rows. So a reader needs the blocks of one window at a time, and each
// block once an epoch, while rows meet those of a whole window and windows those of the whole set.
// With one window the shuffle is a uniform one over all rows.
//
// State is the position: nothing is kept, any position can be asked for at any time.
#ifndef GW_DATA_ORDER_H
#define GW_DATA_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h" /* gw_rng_key */

typedef struct gw_order gw_order;

/* rows[b] >= 0 of block b are copied; at least one block has rows. `window` >= 1 blocks. Memory:
 * 24 bytes a block. */
gw_order *gw_order_new(const int64_t *rows, int64_t blocks, uint64_t seed, int64_t window,
                       bool shuffle);
void gw_order_free(gw_order *o);

int64_t gw_order_rows(const gw_order *o); /* of an epoch */
int64_t gw_order_windows(const gw_order *o);

typedef struct gw_order_place {
    int64_t block, row; /* row within the block */
    int64_t epoch, window;
    double done; /* which part of the window's rows come before it: 0 up to below 1 */
} gw_order_place;

/* Position n >= 0, epochs one after another. O(log blocks); a new epoch costs O(blocks) once, two
 * are kept. One thread at a time. */
gw_order_place gw_order_at(gw_order *o, int64_t n);
/* The blocks of a window in the order in which they are wanted, blocks[0 .. return). Window
 * `windows` of an epoch is window 0 of the next. `blocks` has room for `window` numbers. */
int64_t gw_order_blocks(gw_order *o, int64_t epoch, int64_t window, int64_t *blocks);

/* How well a sequence of positions is shuffled: order[i] is where the i-th row stands in the set.
 * `displacement`: mean |i - order[i]| as a share of that of a uniform shuffle (1 is uniform, 0 not
 * shuffled). `mixing`: of neighbours, the share that stand further apart than `near` rows, relative
 * to a uniform shuffle. */
typedef struct gw_order_score {
    double displacement, mixing;
} gw_order_score;
gw_order_score gw_order_judge(const int64_t *order, int64_t n, int64_t near);

#endif

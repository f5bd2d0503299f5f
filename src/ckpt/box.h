// SPDX-License-Identifier: Apache-2.0
// Boxes: the parts of a tensor that ranks hold and files store, and what two of them have in
// common.
#ifndef GW_CKPT_BOX_H
#define GW_CKPT_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/graph.h" /* GW_MAX_DIMS */

/* A range of indices in each dimension: start, and size >= 0. */
typedef struct gw_box {
    int ndim;
    int64_t start[GW_MAX_DIMS], size[GW_MAX_DIMS];
} gw_box;

/* Elements [first, first + count) of the dense, row-major array of `box`: a box, or a stretch of
 * one (what ZeRO leaves a rank). */
typedef struct gw_piece {
    gw_box box;
    int64_t first, count;
} gw_piece;

/* The whole of a tensor. */
gw_box gw_box_whole(int ndim, const int64_t *dims);
int64_t gw_box_elems(const gw_box *b); /* 1 of a scalar */
bool gw_box_equal(const gw_box *a, const gw_box *b);
/* False when they do not meet. Both have the same ndim. */
bool gw_box_meet(const gw_box *a, const gw_box *b, gw_box *out);
/* All of a box. */
gw_piece gw_piece_of_box(const gw_box *b);

/* The elements that two pieces of one tensor have in common, as stretches that are consecutive in
 * both, in increasing order of both: *in_a and *in_b count from the pieces' first elements. */
typedef struct gw_common {
    gw_piece a, b;
    gw_box part;
    int64_t at[GW_MAX_DIMS], run;
    int rows; /* dimensions that are counted up */
    bool more;
} gw_common;
void gw_common_begin(gw_common *c, const gw_piece *a, const gw_piece *b);
bool gw_common_next(gw_common *c, int64_t *in_a, int64_t *in_b, int64_t *count);

#endif

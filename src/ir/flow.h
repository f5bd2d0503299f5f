// SPDX-License-Identifier: Apache-2.0
// Which pieces a program's loop has, and what of it lives in several micro-batches at once.
//
// In a program without stages one micro-batch follows another, and every value of the loop has one
// place. In a stage's program (gw_graph.actions is not empty) a micro-batch's forward runs long
// before its backward, and others run between. A value that is made by one piece (ir/action.h) and
// read by another is *carried*: it has as many places, one behind the other, as there are
// micro-batches between the two at once. Values with the same pieces form a class; the list of
// actions says how many places a class needs and which of them a micro-batch takes: the lowest that
// is free when its first piece runs, free again when the last has run.
//
// Inputs of the loop are written when the first action of a micro-batch needs one, and stay until
// the last piece that reads them. All of this follows from graph and actions, so the planner, the
// executor and the verifier ask here and agree.
#ifndef GW_IR_FLOW_H
#define GW_IR_FLOW_H

#include "base/arena.h" /* gw_arena */
#include "ir/graph.h"   /* gw_graph */

typedef struct gw_range {
    int16_t stage;
    uint8_t part;      /* gw_part */
    gw_oid first, end; /* ops [first, end) of the loop */
} gw_range;

enum { GW_MAX_RANGES = 256 };

typedef struct gw_flow {
    int nranges;
    gw_range *ranges;  /* in program order; one (ALL) without stages; none without a loop */
    int32_t *range_of; /* [ops]: -1 outside the loop */
    int nclasses;      /* classes 1 .. nclasses; 0: not carried */
    int32_t *class_of; /* [values]: of the root's; every value of a chain of ties has its root's */
    int32_t *places;   /* [nclasses + 1]: of the class's pool; places[0] == 1 */
    gw_vid *block_of;  /* [values]: the root in whose places the value's are: itself mostly, another
                          stage's where those share theirs. Offsets are equal */
    int32_t micro_batches;
    int32_t *place; /* [class * micro_batches + micro]: which of them; class 0: always 0 */
    int32_t *first; /* [class]: range whose run takes the place; -1: the micro-batch's first action
                       that has any (inputs) */
} gw_flow;

/* Everything is in `a`. A program whose actions do not fit it (a piece that runs twice for a
 * micro-batch, or never, or before what it reads) is a bug of ours: actions come from a schedule
 * that was checked. */
void gw_flow_of(gw_flow *f, const gw_graph *g, gw_arena *a);
/* The same for a graph that is still to be verified; ids in it lead somewhere, ties end. False: one
 * line of why into why[0..n). */
bool gw_flow_try(gw_flow *f, const gw_graph *g, gw_arena *a, char *why, int n);
/* The range of a piece, or -1 where the program has none. */
int gw_flow_range(const gw_flow *f, int stage, gw_part part);
/* Bytes from one place of a value to the next, as all ranks of the program have it (rank 0's local
 * bytes, a multiple of 64); places x this is what its block takes in the arena. */
int64_t gw_flow_stride(const gw_graph *g, gw_vid v);
int64_t gw_flow_bytes(const gw_flow *f, const gw_graph *g, gw_vid v);
/* Which ranges does an action run? At most two; returns how many. */
int gw_flow_ranges_of(const gw_flow *f, gw_action a, int ranges[2]);

#endif

// SPDX-License-Identifier: Apache-2.0
// The operands of the experts ops by number, and which experts a rank holds.
#ifndef GW_OPS_EXPERTS_H
#define GW_OPS_EXPERTS_H

#include "ir/opdef.h" /* gw_graph, gw_op, gw_mesh */

/* Inputs of experts, experts_ep; of their gradients, whose outputs are dx, dgates, dgate, dup,
 * ddown. */
enum { GW_EX_X, GW_EX_IDS, GW_EX_GATES, GW_EX_GATE, GW_EX_UP, GW_EX_DOWN };
enum {
    GW_EXG_DY,
    GW_EXG_X,
    GW_EXG_IDS,
    GW_EXG_GATES,
    GW_EXG_GATE,
    GW_EXG_UP,
    GW_EXG_DOWN,
    GW_EXG_ACC /* of dgate; then of dup, ddown */
};

/* Experts [first, first + count) of `weights` [e ..] stand on `rank`. */
typedef struct gw_experts_held {
    int64_t first, count;
} gw_experts_held;
gw_experts_held gw_experts_held_of(const gw_type *weights, const gw_mesh *m, int64_t rank);

#endif

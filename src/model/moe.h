// SPDX-License-Identifier: Apache-2.0
// A feed-forward layer of experts, built from ops: router, choice, experts, balance.
#ifndef GW_MODEL_MOE_H
#define GW_MODEL_MOE_H

#include "ir/opdef.h"    /* gw_builder, gw_vid */
#include "model/model.h" /* gw_moe */

/* Values that the layer works with. Weights have the compute dtype, dims as named; the router runs
 * in float32. GW_NONE where the model or the mode has none. */
typedef struct gw_moe_in {
    gw_vid x;      /* [b s d], normed */
    gw_vid tokens; /* i32[b s]; negative: padding, which goes to no expert and counts nowhere */
    gw_vid router; /* [n d] */
    gw_vid bias;   /* state f32[n]: of the choice */
    gw_vid gate, up, down; /* [e f d], [e f d], [e d f] */
    gw_vid seed;   /* f32[] at step rate: what auxiliary losses' gradients are multiplied by:
                      loss scale / units, where units are the step's sequences (or its global
                      micro-batches) */
    gw_vid micro;  /* i64[] at mb rate: the micro-batch's number; with records only */
    bool training; /* losses, loads and the bias's update are built */
} gw_moe_in;

/* What comes out besides y: named results are left in the graph, layer number in their names:
 * "moe.load.L" f32[n] (tokens by expert, of the step), "moe.aux.L" and "moe.z.L" f32[] (sums of the
 * unweighted losses), "moe.dropped.L" f32[] where there is a capacity. In training the states and
 * the input that gw_moe.records and .replay ask for. */
gw_vid gw_moe_build(gw_builder *b, const gw_moe *m, const gw_moe_in *in, int layer);

#endif

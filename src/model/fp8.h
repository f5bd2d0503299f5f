// SPDX-License-Identifier: Apache-2.0
// Linear layers in eight-bit floats: a rewrite of a forward graph.
#ifndef GW_MODEL_FP8_H
#define GW_MODEL_FP8_H

#include <stdbool.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "ir/graph.h"  /* gw_graph */

typedef struct gw_fp8_opts {
    bool pow2; /* scales are powers of two (UE8M0) */
} gw_fp8_opts;

/* Replaces, in a forward graph, the products of linear layers by fp8_quant of both operands and
 * fp8_matmul; before differentiation, so that backward is in eight bits too. Linear layers are the
 * matmuls whose second operand is a parameter of a layer ("layers.N. ..."); routers are left, as
 * are all other ops: embedding, head, norms, attention, activations. *layers, if not NULL, is set
 * to how many were replaced. On an error g is as it was. */
GW_WARN_UNUSED gw_status gw_fp8_rewrite(gw_graph *g, const gw_fp8_opts *o, int *layers,
                                        gw_diags *dg);

#endif

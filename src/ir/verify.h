// SPDX-License-Identifier: Apache-2.0
// The verifier: what must hold of every graph, after every pass. A failure is a bug of ours, or bad
// text.
#ifndef GW_IR_VERIFY_H
#define GW_IR_VERIFY_H

#include "ir/opdef.h" /* gw_graph, gw_diags */

/* Checks: ids in range; each value defined once and before its uses; operand counts; attributes;
 * the op's own verify hook (infer agrees with the types that stand); no two dims of one value with
 * one name; one size for a dim name within an op's signature; placements: axis used at most once in
 * a value; step ops do not read micro-batch values except accumulations (the output of an mb op
 * tied to a step value), unless the loop runs once; ties: same bytes, the old value has no later
 * reader, at most one successor; states: start is a leaf, the end's root is the start; order: step,
 * mb, step; memory: offsets do not overlap for values alive at once (when placed). GW_ERR_FORMAT
 * with the op's line. */
GW_WARN_UNUSED gw_status gw_graph_verify(const gw_graph *g, gw_diags *dg);
/* Of a placed graph: each rank's part of every op, put together, is the op. By signatures alone;
 * partial sums that pass for whole ones, whole ones for partial, operands cut differently, cut
 * heads (verify-placement, with op, scope, dimension and sub-axes). */
GW_WARN_UNUSED gw_status gw_graph_verify_placement(const gw_graph *g, gw_diags *dg);

#endif

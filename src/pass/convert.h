// SPDX-License-Identifier: Apache-2.0
// From one placement to another: chains of conversion ops, and what they send.
#ifndef GW_PASS_CONVERT_H
#define GW_PASS_CONVERT_H

#include <stdint.h>

#include "ir/graph.h" /* gw_graph, gw_type, gw_vid, gw_stream */
#include "ir/opdef.h" /* gw_builder */

/* v brought to the placement of `to`, whose dimensions it has (matched by name; its dtype and the
 * order of its dimensions are ignored): cuts with outer parts and turns, psum, pmax, the flat cut.
 * Appends ops in the builder's phase, rate and scope, each on the stream of its group; returns v
 * itself where nothing has to be done. Outputs have role temp; what is made of weights or optimizer
 * states has cause communication, other values keep their input's. Equal arguments give equal
 * chains. What no chain of ops can do (to make a partial maximum, to add up integers) is
 * GW_ERR_CONFIG in b->status, with a diagnostic. */
gw_vid gw_convert(gw_builder *b, gw_vid v, const gw_type *to);

/* The stream of a group: dp (also dp with dp_replicate or with cp: gradients), tp, cp, pp; ep where
 * a group takes sub-axes of several of these otherwise; compute where it takes none. */
gw_stream gw_stream_of_axes(const gw_mesh *m, uint32_t axes);

#endif

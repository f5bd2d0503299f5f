// SPDX-License-Identifier: Apache-2.0
// The text form of a graph: one op a line, prints and parses, nothing lost.
//
// clang-format off
//   program mb 4 values 120
//   mesh dp.0=2 tp.0=2
//   arena device 123456
//   let %0 : f32[v512 d64] param weights step "embed"
//   let %7 : i32[b4 s512] input data mb "tokens"
//   %9 = embed %7, %0 : f32[b4 s512 d64] F mb "embed" on compute @4096   # 0.5 MB
//   %12, %13 = attention %9, %10, %11 {causal=true window=0} : f32[...], f32[...] F mb "layer 0/attn" on compute
//   %20 = adamw %0, ... : f32[v512 d64]=%0 ...            (=%0: tied)
//   state %0 %20
// clang-format on
//
// Optional pieces have a fixed order and are left out at their defaults: stream, `after %v`,
// `recompute`, flags, `stage n`, offsets of the outputs, `work %n TYPE @offset`. src/ir/README.md
// holds the grammar. What follows `#` is derived and ignored by the parser.
#ifndef GW_IR_TEXT_H
#define GW_IR_TEXT_H

#include "base/str.h" /* gw_str */
#include "ir/opdef.h" /* gw_graph, gw_optable */

/* Appends the text of a graph. `derived`: with the figures behind `#`. */
void gw_graph_print(const gw_graph *g, gw_str *out, bool derived);
/* Appends one op's line (no newline), for errors and reports. */
void gw_op_print(const gw_graph *g, gw_oid o, gw_str *out);
void gw_type_print(const gw_type *t, const gw_mesh *m, gw_str *out);
/* Parses into an uninitialised graph. Ids are those of the text, so print(parse(x)) == x and the
 * parsed graph equals the printed one. Errors give line and column; any bytes are safe to feed. */
GW_WARN_UNUSED gw_status gw_graph_parse(gw_graph *g, const gw_optable *table, const char *text,
                                        int64_t n, const char *file, gw_diags *dg);

#endif

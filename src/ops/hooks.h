// SPDX-License-Identifier: Apache-2.0
// What the hooks of many ops share: checks with one style of message, plain types, costs, vjp
// steps.
//
// The checks write one GW_ERR_CONFIG diagnostic that names the op, the dimension and both operands
// as they stand, for instance
//   matmul: dimension d is 768 in input 0, f32[b4 s512 d768], but 512 in input 1, f32[v1000 d512]
#ifndef GW_OPS_HOOKS_H
#define GW_OPS_HOOKS_H

#include "ir/opdef.h" /* gw_infer, gw_vjp, gw_cost, gw_signature */

/* gw_opdef.ties of an op that takes over no input (accumulators are tied by nacc). */
#define GW_NO_TIES                                                                                 \
    { -1, -1, -1, -1, -1, -1 }

/* ---- types ---- */
/* The names and sizes of `t`, no placement, another dtype. */
gw_type gw_type_plain(const gw_type *t, gw_dtype dtype);
/* f64 for f64, else f32: what statistics (rstd, lse, losses) are kept in beside values of `t`. */
gw_dtype gw_dtype_stat(gw_dtype t);
/* "f32[b4 s8 d16]" into buf (>= 128 bytes). Returns buf. */
char *gw_type_text(const gw_type *t, char *buf);

/* ---- infer ---- */
bool gw_infer_has(const gw_infer *f, int i);
/* Type of input i, which is there. */
const gw_type *gw_infer_in(const gw_infer *f, int i);
gw_status gw_infer_want_float(gw_infer *f, int i);
gw_status gw_infer_want_int(gw_infer *f, int i); /* i32 or i64 */
/* At least `least` and at most `most` dimensions. */
gw_status gw_infer_want_ndim(gw_infer *f, int i, int least, int most);
/* Dimension di of input i and dimension dj of input j have one name and one size. */
gw_status gw_infer_want_dim(gw_infer *f, int i, int di, int j, int dj);
/* Inputs i and j agree in all dimensions, or in the first n of each. */
gw_status gw_infer_want_same_dims(gw_infer *f, int i, int j);
gw_status gw_infer_want_leading(gw_infer *f, int i, int j, int n);
gw_status gw_infer_want_same_dtype(gw_infer *f, int i, int j);
/* A scalar f32 or f64. */
gw_status gw_infer_want_scalar(gw_infer *f, int i);
/* The accumulator at input i, if it is there, has exactly the type `out`. */
gw_status gw_infer_want_acc(gw_infer *f, int i, const gw_type *out);
/* Attribute i as a float dtype; -1 stands for `dflt`. */
gw_status gw_infer_dtype_attr(gw_infer *f, int i, gw_dtype dflt, gw_dtype *out);
/* A loss op: one scalar, into which input `acc` may be added; and its gradient: that of input 0,
 * then the loss. */
gw_status gw_infer_loss(gw_infer *f, int acc);
gw_status gw_infer_loss_grad(gw_infer *f, int acc);

/* ---- sign ---- */
/* Appends a factor that stands in no operand yet. */
gw_factor *gw_sign_add(gw_signature *s, const char *name, int64_t size, gw_factor_kind kind);

/* ---- cost: of rank 0, whose parts are never the smaller ones ---- */
int64_t gw_cost_elems(const gw_graph *g, gw_vid v); /* 0 for GW_NONE */
int64_t gw_cost_bytes(const gw_graph *g, gw_vid v);
/* Local length of dimension i of v. */
int64_t gw_cost_dim(const gw_graph *g, gw_vid v, int i);
/* Sets the bytes from all operands, and both flops. */
void gw_cost_set(const gw_graph *g, const gw_op *o, double flops, gw_cost *c);

/* ---- vjp ---- */
/* Appends an op in `phase` and puts the builder's phase back. */
gw_vid gw_vjp_build(gw_vjp *v, gw_phase phase, const char *name, const gw_vid *in, int nin,
                    const gw_attr *attrs, gw_vid *more);
/* The dtype a gradient of input i has: v->grad_dtype for a parameter, else that of the input. */
gw_dtype gw_vjp_dtype(const gw_vjp *v, int i);
/* GW_PHASE_W if input i is a parameter, else GW_PHASE_B. */
gw_phase gw_vjp_phase(const gw_vjp *v, int i);
/* Of a loss op whose inputs are what it judges, another, and the seed: `grad` of these, with the
 * same attributes, makes the gradient of input 0 and the loss, which takes the place of the op's.
 */
void gw_vjp_loss(gw_vjp *v, const char *grad);

#endif

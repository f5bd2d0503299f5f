// SPDX-License-Identifier: Apache-2.0
// What the files of attention share: attention.c and attention_grad.c (the ops), attention_part.c
// (one block of a ring), attention_shard.c (their shard rules), attention_view.c (the facts below).
//
// Operands stand alike in all four ops: q, k, v at first.., with first = 1 in gradients, after do;
// then o and lse in gradients; then docs and kdocs; then accumulators.
#ifndef GW_OPS_ATTENTION_H
#define GW_OPS_ATTENTION_H

#include "ir/opdef.h"  /* gw_infer, gw_signature, gw_cost, gw_sharding, gw_kargs */
#include "ops/cases.h" /* gw_case */

enum { GW_ATTENTION_CAUSAL, GW_ATTENTION_WINDOW, GW_ATTENTION_SCALE, GW_ATTENTION_NATTRS };
extern const gw_attr_def gw_attention_attrs[GW_ATTENTION_NATTRS];

static inline int gw_attention_first(bool grad) { return grad ? 1 : 0; }
static inline int gw_attention_docs(bool grad) { return grad ? 6 : 3; } /* kdocs follow */

/* ---- infer, sign, verify ---- */
/* q, k, v, docs, kdocs and, in gradients, do, o and lse. */
gw_status gw_attention_infer(gw_infer *f, bool grad);
/* [b s h u] like q, but for the last dimension, which is v's. */
gw_type gw_attention_out(const gw_infer *f, bool grad, gw_dtype dtype);
/* [b s h] of the dtype of statistics. */
gw_type gw_attention_lse(const gw_infer *f, bool grad);
/* b and heads pass, s and head sizes are whole; kv heads are cut with the heads they serve. */
void gw_attention_sign(const gw_graph *g, const gw_op *o, bool grad, gw_signature *s);
/* The default, and placements: nothing is partial but the gradients of k and v where k and v are
 * whole and q is cut; heads are whole and find their kv heads; documents are cut as what they
 * belong to. `part`: s of k and v may be cut. Errors: GW_ERR_FORMAT, verify-placement. */
gw_status gw_attention_verify(const gw_graph *g, const gw_op *o, bool grad, bool part,
                              gw_diags *dg);
/* Does every rank that holds heads of q hold the kv heads that they read? */
bool gw_attention_covers(const gw_type *q, const gw_type *k, const gw_mesh *m);
/* Sub-axes on which a gradient of k or v, cut as k, is a partial sum. */
uint32_t gw_attention_partial(const gw_type *q, const gw_type *k);

/* ---- work ---- */
/* Pairs (query, key) of one head that `rank` computes, by causality and window. */
double gw_attention_pairs(const gw_graph *g, const gw_op *o, bool grad, int64_t rank);
/* `over_k` products over the size of q's heads and `over_u` over that of v's, a pair and head. */
void gw_attention_cost(const gw_graph *g, const gw_op *o, bool grad, int over_k, int over_u,
                       gw_cost *c);

/* ---- reference kernels ---- */
/* What they know: local sizes, the mask, and where q, k and v are. */
typedef struct gw_attention_view {
    const gw_tensor *q, *k, *v, *docs, *kdocs; /* docs, kdocs: NULL if absent */
    int64_t batch, queries, keys, heads, groups, size, usize;
    int64_t per, first_head, first_group; /* local head h is head first_head + h of the whole, and
                                             reads kv head (first_head + h) / per */
    gw_runs at_q, at_k;                   /* indices along s */
    int64_t window;
    bool causal;
    double scale;
} gw_attention_view;

gw_attention_view gw_attention_view_of(const gw_kargs *k, bool grad);
/* Local query i and local key j of row b. */
bool gw_attention_sees(const gw_attention_view *w, int64_t b, int64_t i, int64_t j);
/* First elements: of q at (b, i, h); of o and do there; of k at (b, j, kv head of h), and v; of lse
 * at (b, i, h). */
int64_t gw_attention_at_q(const gw_attention_view *w, int64_t b, int64_t i, int64_t h);
int64_t gw_attention_at_o(const gw_attention_view *w, int64_t b, int64_t i, int64_t h);
int64_t gw_attention_at_k(const gw_attention_view *w, int64_t b, int64_t j, int64_t h);
int64_t gw_attention_at_v(const gw_attention_view *w, int64_t b, int64_t j, int64_t h);
int64_t gw_attention_at_lse(const gw_attention_view *w, int64_t b, int64_t i, int64_t h);
double gw_attention_score(const gw_attention_view *w, int64_t b, int64_t i, int64_t j, int64_t h);
/* log of the sum of exp over the visible keys; -HUGE_VAL where there is none. */
double gw_attention_lse_of(const gw_attention_view *w, int64_t b, int64_t i, int64_t h);

/* Sums over keys or queries are formed for so many components of a head at a time, on the stack. */
#define GW_ATTENTION_TILE 256
/* sum[0..n) += a * t[at .. at+n) */
void gw_attention_add_row(double *sum, double a, const gw_tensor *t, int64_t at, int64_t n);
/* t[at .. at+n) = factor * sum + the accumulator at input `acc`, if there is one (acc < 0: none) */
void gw_attention_set_row(const gw_kargs *k, const gw_tensor *t, int64_t at, int acc, double factor,
                          const double *sum, int64_t n);
/* dq, dk, dv into outputs 0 to 2; acc: the input of dq's accumulator, those of dk and dv follow; or
 * -1. */
void gw_attention_grad_reference(const gw_kargs *k, int acc);

/* ---- cases ---- */
/* One shape and mask, for all four ops. */
typedef struct gw_attention_setting {
    const char *name, *q, *k, *v, *o, *docs;
    gw_attr attrs[GW_ATTENTION_NATTRS];
} gw_attention_setting;
/* Setting i for cases of dtype t, NULL past the end. */
const gw_attention_setting *gw_attention_setting_at(int i, gw_dtype t);
/* in[0..4) = q, k, v, docs or none; out = o, lse. */
void gw_attention_case(gw_case *c, const gw_attention_setting *t, gw_vid in[4], gw_vid out[2]);

/* ---- shard rules ---- */
gw_status gw_attention_shard(gw_sharding *s, gw_diags *dg);
gw_status gw_attention_grad_shard(gw_sharding *s, gw_diags *dg);

#endif

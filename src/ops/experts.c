// SPDX-License-Identifier: Apache-2.0
// experts: each token through the feed-forward nets it was routed to; and the gradient.
//
//   x[b s d], ids i32[b s t], gates[b s t], gate[e f d], up[e f d], down[e d f] -> y[b s d]
//   y_i = sum over k with ids_ik = e >= 0 of gates_ik * down_e (silu(gate_e x_i) * (up_e x_i))
// Mixtral's and DeepSeek's layer (SwiGLU inside); a choice of -1 is no choice (padding, dropped),
// and a token without one gets zeros.
//
// Backward recomputes the hidden activations from x, so that nothing of size tokens * t * f lives
// from forward to backward. With g = gate x, u = up x, s = sigmoid(g), h = g s u, p = down^T dy and
// w = gates_ik, for each choice:
//   dgates_ik = p . h             dg = w p u s (1 + g (1 - s))     du = w p g s
//   dx_i += gate^T dg + up^T du   dgate += dg x^T  dup += du x^T   ddown += dy (w h)^T
// An expert that nobody chose contributes nothing: its weight gradients are exact zeros (or the
// accumulator's), whatever was in memory. Kernels sort choices by expert, and by token within an
// expert, and multiply groups of rows; sums over tokens run in that order.
//
// Work: 6 d f a choice forward, 16 d f backward (products of one direction are 2 d f each: three
// forward, and backward two again, and six more). It depends on the data; the figure is of t
// choices a token, and of the mean load where a rank holds a part of the experts.
//
// Placement. By the signature f contracts (y is a partial sum over tensor-parallel ranks), b and s
// pass, and where only e were cut y would be a partial sum too. With expert parallelism (axes.ep)
// the rule emits experts_ep and experts_ep_grad instead: the same functions where e is cut on
// sub-axes that cut the tokens as well, so that rows travel to the rank that holds their expert and
// back. These ops are collectives with compute inside; run/exec_experts.c runs them. `buffer` is
// the room for arriving rows in mean loads; what exceeds it goes in further rounds.
#include "ops/experts.h"

#include <math.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_experts */
#include "ops/ref.h"    /* gw_ref_get */

gw_experts_held gw_experts_held_of(const gw_type *weights, const gw_mesh *m, int64_t rank) {
    gw_runs r = gw_type_runs(weights, 0, m, rank);
    return r.n ? (gw_experts_held){r.first[0], r.count[0]} : (gw_experts_held){0, 0};
}

/* ---- inference ---- */

/* x, ids, gates at input i..i+2, weights after them. */
static gw_status infer_inputs(gw_infer *f, int i) {
    GW_TRY(gw_infer_want_float(f, i));
    GW_TRY(gw_infer_want_ndim(f, i, 3, 3));
    GW_TRY(gw_infer_want_int(f, i + 1));
    GW_TRY(gw_infer_want_ndim(f, i + 1, 3, 3));
    GW_TRY(gw_infer_want_leading(f, i + 1, i, 2));
    GW_TRY(gw_infer_want_float(f, i + 2));
    GW_TRY(gw_infer_want_same_dims(f, i + 2, i + 1));
    for (int k = 3; k < 6; k++) {
        GW_TRY(gw_infer_want_same_dtype(f, i + k, i));
        GW_TRY(gw_infer_want_ndim(f, i + k, 3, 3));
    }
    GW_TRY(gw_infer_want_dim(f, i + 3, 2, i, 2));
    GW_TRY(gw_infer_want_same_dims(f, i + 4, i + 3));
    GW_TRY(gw_infer_want_dim(f, i + 5, 0, i + 3, 0));
    GW_TRY(gw_infer_want_dim(f, i + 5, 1, i + 3, 2));
    return gw_infer_want_dim(f, i + 5, 2, i + 3, 1);
}

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_inputs(f, 0));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_inputs(f, 1));
    GW_TRY(gw_infer_want_same_dtype(f, 0, 1));
    GW_TRY(gw_infer_want_same_dims(f, 0, 1));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(gw_infer_in(f, 1), (gw_dtype)gw_infer_in(f, 1)->dtype);
    f->out[1] = gw_type_plain(gw_infer_in(f, 3), (gw_dtype)gw_infer_in(f, 3)->dtype);
    for (int k = 0; k < 3; k++) {
        f->out[2 + k] = gw_type_plain(gw_infer_in(f, GW_EXG_GATE + k), dtype);
        GW_TRY(gw_infer_want_acc(f, GW_EXG_ACC + k, &f->out[2 + k]));
    }
    return GW_OK;
}

/* ---- cost ---- */

/* Products of size choices * d * f, counted 2 each; the mean load where e is cut and the tokens are
 * not. */
static void cost_of(const gw_graph *g, const gw_op *o, int x, bool own_tokens, double products,
                    gw_cost *c) {
    const gw_type *w = gw_type_of(g, gw_op_in(g, o, x + GW_EX_GATE));
    double choices = (double)gw_cost_elems(g, gw_op_in(g, o, x + GW_EX_IDS));
    double d = (double)gw_cost_dim(g, gw_op_in(g, o, x), 2);
    double f = (double)gw_type_local_dim(w, 1, &g->mesh, 0);
    double share = (double)gw_type_local_dim(w, 0, &g->mesh, 0) / (double)w->dims[0].size;
    gw_cost_set(g, o, 2 * products * choices * d * f * (own_tokens ? share : 1), c);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 0, true, 3, c); }
static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, 1, true, 8, c);
}
static void ep_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, 0, false, 3, c);
}
static void ep_grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, 1, false, 8, c);
}

/* ---- shard rules ---- */

static uint32_t cut_of(const gw_type *t, const char *dim) {
    int i = gw_type_find(t, dim);
    return i < 0 ? 0 : gw_dim_axes(&t->dims[i]);
}

/* The placement of the tokens: that of x, whole values, s uncut on what f is cut on, and cut on
 * those of tp that cut the experts. */
static gw_status tokens_of(gw_sharding *s, gw_vid x, gw_vid gate, gw_type *out, gw_diags *dg) {
    const gw_graph *g = s->b->g;
    const gw_type *w = gw_type_of(g, gate);
    *out = *gw_type_of(g, x);
    out->psum = out->pmax = 0;
    for (int i = 0; i < 2; i++) gw_dim_uncut(&out->dims[i], gw_dim_axes(&w->dims[1]));
    gw_dim_uncut(&out->dims[2], UINT32_MAX);
    uint32_t cut = gw_dim_axes(&out->dims[0]) | gw_dim_axes(&out->dims[1]);
    uint32_t missing = s->axes->ep & ~cut;
    if (s->axes->sequence_parallel && (missing & ~s->axes->tp) == 0) {
        gw_dim_cut(&out->dims[1], missing, &g->mesh);
        return GW_OK;
    }
    if (missing == 0) return GW_OK;
    return GW_FAIL(dg, GW_ERR_CONFIG, "moe-ep-axes",
                   "experts are cut over ranks that hold the same tokens: expert parallelism folds "
                   "over dp and cp, and over tp only with sequence_parallel");
}

/* Converts value v, which has the leading dims b and s, to the tokens' placement. */
static gw_vid to_tokens(gw_sharding *s, gw_vid v, const gw_type *tokens) {
    gw_type t = *gw_type_of(s->b->g, v);
    t.psum = t.pmax = 0;
    for (int i = 0; i < t.ndim; i++) {
        int64_t size = t.dims[i].size;
        if (i < 2) t.dims[i] = tokens->dims[i];
        if (i >= 2) gw_dim_uncut(&t.dims[i], UINT32_MAX);
        t.dims[i].size = size;
    }
    return gw_sharding_convert(s, v, &t);
}

/* The three matrices of experts: e on axes.ep exactly, f in all of them as in the first that has it
 * cut, d whole. */
static void to_experts(gw_sharding *s, const gw_vid *from, gw_vid *to) {
    gw_dim f = {0};
    for (int k = 0; k < 3; k++) {
        const gw_type *t = gw_type_of(s->b->g, from[k]);
        if (f.naxes == 0) f = t->dims[gw_type_find(t, "f")];
    }
    for (int k = 0; k < 3; k++) {
        gw_type t = *gw_type_of(s->b->g, from[k]);
        t.psum = t.pmax = 0;
        if (gw_dim_axes(&t.dims[0]) != s->axes->ep) {
            gw_dim_uncut(&t.dims[0], UINT32_MAX);
            gw_dim_cut(&t.dims[0], s->axes->ep, &s->b->g->mesh);
        }
        gw_dim_uncut(&t.dims[gw_type_find(&t, "d")], UINT32_MAX);
        gw_dim_set_cut(&t.dims[gw_type_find(&t, "f")], &f);
        to[k] = gw_sharding_convert(s, from[k], &t);
    }
}

/* The op that stands for this one where experts are cut. */
static gw_vid emit(gw_sharding *s, const char *name, const gw_vid *in, gw_vid *more) {
    const gw_optable *t = s->b->g->table;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(t, name, a);
    double buffer = s->axes->moe_buffer;
    gw_attrs_set(t, name, a, "buffer", (gw_attr){.f = buffer > 0 ? buffer : 2});
    if (s->nout > 1) a[0] = s->attrs[0];
    return gw_build(s->b, name, in, s->nin, a, more);
}

static gw_status shard(gw_sharding *s, gw_diags *dg) {
    if (s->axes->ep == 0) return s->by_signature(s, dg);
    gw_vid in[GW_MAX_IN];
    gw_type tokens;
    to_experts(s, s->in + GW_EX_GATE, in + GW_EX_GATE);
    GW_TRY(s->b->status);
    GW_TRY(tokens_of(s, s->in[GW_EX_X], in[GW_EX_GATE], &tokens, dg));
    for (int k = 0; k < GW_EX_GATE; k++) in[k] = to_tokens(s, s->in[k], &tokens);
    GW_TRY(s->b->status);
    tokens.psum = cut_of(gw_type_of(s->b->g, in[GW_EX_GATE]), "f");
    s->out[0] = emit(s, "experts_ep", in, NULL);
    gw_sharding_place(s, s->out[0], &tokens);
    return s->b->status;
}

static gw_status grad_shard(gw_sharding *s, gw_diags *dg) {
    if (s->axes->ep == 0) return s->by_signature(s, dg);
    gw_vid in[GW_MAX_IN];
    gw_type tokens;
    for (int k = 0; k < s->nin; k++) in[k] = s->in[k];
    to_experts(s, s->in + GW_EXG_GATE, in + GW_EXG_GATE);
    GW_TRY(s->b->status);
    GW_TRY(tokens_of(s, s->in[GW_EXG_X], in[GW_EXG_GATE], &tokens, dg));
    for (int k = 0; k < GW_EXG_GATE; k++) in[k] = to_tokens(s, s->in[k], &tokens);
    GW_TRY(s->b->status);
    uint32_t cut = gw_dim_axes(&tokens.dims[0]) | gw_dim_axes(&tokens.dims[1]);
    tokens.psum = cut_of(gw_type_of(s->b->g, in[GW_EXG_GATE]), "f");
    s->out[0] = emit(s, "experts_ep_grad", in, s->out + 1);
    for (int k = 0; k < 2; k++) gw_sharding_place(s, s->out[k], &tokens);
    for (int k = 0; k < 3 && s->b->status == GW_OK; k++) {
        gw_type w = *gw_type_of(s->b->g, in[GW_EXG_GATE + k]);
        w.psum = cut & ~s->axes->ep;
        gw_sharding_place(s, s->out[2 + k], &w);
    }
    return s->b->status;
}

/* ---- placements of experts_ep ---- */

static gw_status wrong(gw_diags *dg, const gw_graph *g, const gw_op *o, const char *what) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "%s of %s: %s", gw_op_def(g, o)->name,
                   gw_graph_str(g, o->scope), what);
}

/* v is cut as x along samples and sequence, and nowhere else. */
static bool as_tokens(const gw_type *v, const gw_type *x) {
    for (int i = 0; i < v->ndim; i++)
        if (i < 2 ? !gw_dim_same_cut(&v->dims[i], &x->dims[i]) : v->dims[i].naxes != 0)
            return false;
    return !v->flat && v->pmax == 0;
}

static gw_status verify_ep_from(const gw_graph *g, const gw_op *o, int at, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, at)), *w[3];
    for (int k = 0; k < 3; k++) w[k] = gw_type_of(g, gw_op_in(g, o, at + GW_EX_GATE + k));
    uint32_t tokens = gw_dim_axes(&x->dims[0]) | gw_dim_axes(&x->dims[1]);
    uint32_t e = gw_dim_axes(&w[0]->dims[0]), f = cut_of(w[0], "f");
    for (int k = 0; k < at + GW_EX_GATE; k++)
        if (!as_tokens(gw_type_of(g, gw_op_in(g, o, k)), x))
            return wrong(dg, g, o, "the operands of a token are cut differently");
    for (int k = 0; k < at + 6; k++)
        if (gw_type_of(g, gw_op_in(g, o, k))->psum)
            return wrong(dg, g, o, "a partial sum is used as if whole");
    for (int k = 0; k < 3; k++)
        if (gw_dim_axes(&w[k]->dims[0]) != e || cut_of(w[k], "f") != f || cut_of(w[k], "d"))
            return wrong(dg, g, o, "the matrices of an expert are cut differently");
    if (e & ~tokens) return wrong(dg, g, o, "experts are cut over ranks that hold the same tokens");
    if (f & tokens) return wrong(dg, g, o, "parts of an expert are applied to different tokens");
    for (int k = 0; k < (int)o->nout; k++) {
        const gw_type *y = gw_type_of(g, gw_op_out(g, o, k));
        bool of_tokens = k < 2;
        if (y->psum != (of_tokens ? f : tokens & ~e))
            return wrong(dg, g, o, "a result is not the partial sum that it has to be");
        if (of_tokens ? !as_tokens(y, x) : gw_dim_axes(&y->dims[0]) != e || cut_of(y, "f") != f)
            return wrong(dg, g, o, "a result is cut unlike what it belongs to");
    }
    return GW_OK;
}

static gw_status verify_ep(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return verify_ep_from(g, o, 0, dg);
}
static gw_status verify_ep_grad(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return verify_ep_from(g, o, GW_EXG_X, dg);
}

/* ---- gradient ---- */

static void vjp(gw_vjp *v) {
    bool any = false;
    for (int i = 0; i < v->nin; i++) any |= v->want[i];
    if (!any || v->dout[0] == GW_NONE) return;
    gw_vid in[7] = {v->dout[0]}, out[5];
    for (int i = 0; i < 6; i++) in[1 + i] = v->in[i];
    gw_attr a[1] = {{.i = gw_vjp_dtype(v, GW_EX_GATE)}};
    out[0] = gw_vjp_build(v, GW_PHASE_BW, "experts_grad", in, 7, a, out + 1);
    static const int to[5] = {GW_EX_X, GW_EX_GATES, GW_EX_GATE, GW_EX_UP, GW_EX_DOWN};
    for (int i = 0; i < 5; i++)
        if (v->want[to[i]]) v->din[to[i]] = out[i];
}

/* ---- reference: one choice after another ---- */

static double silu(double z) { return z / (1 + exp(-z)); }

/* Row j of matrix e of w[e r c], times row i of x. */
static double row_dot(const gw_tensor *w, int64_t e, int64_t j, const gw_tensor *x, int64_t i) {
    int64_t c = w->dims[2];
    return gw_ref_dot(w, (e * w->dims[1] + j) * c, 1, x, i * c, 1, c);
}

/* Adds choice (i, e, w) to y[d]. */
static void add_choice(const gw_kargs *k, int64_t i, int64_t e, double w, double *y) {
    const gw_tensor *down = &k->in[GW_EX_DOWN];
    int64_t d = down->dims[1], f = down->dims[2];
    for (int64_t j = 0; j < f; j++) {
        double h = silu(row_dot(&k->in[GW_EX_GATE], e, j, &k->in[GW_EX_X], i)) *
                   row_dot(&k->in[GW_EX_UP], e, j, &k->in[GW_EX_X], i);
        for (int64_t c = 0; c < d; c++) y[c] += w * h * gw_ref_get(down, (e * d + c) * f + j);
    }
}

static void reference(const gw_kargs *k) {
    const gw_tensor *ids = &k->in[GW_EX_IDS];
    int64_t d = k->in[GW_EX_X].dims[2], t = ids->dims[2];
    gw_experts_held held = gw_experts_held_of(gw_type_of(k->g, gw_op_in(k->g, k->op, GW_EX_GATE)),
                                              &k->g->mesh, k->rank);
    double *y = gw_mem_alloc(sizeof *y * (size_t)(d + 1));
    for (int64_t i = 0; i * t < ids->elems; i++) {
        memset(y, 0, sizeof *y * (size_t)d);
        for (int64_t j = 0; j < t; j++) {
            int64_t e = gw_ref_int(ids, i * t + j);
            if (e < held.first || e >= held.first + held.count) continue;
            add_choice(k, i, e - held.first, gw_ref_get(&k->in[GW_EX_GATES], i * t + j), y);
        }
        for (int64_t c = 0; c < d; c++) gw_ref_set(&k->out[0], i * d + c, y[c]);
    }
    gw_mem_free(y);
}

/* Sums of one expert's gradients and of all dx, in float64. */
typedef struct sums {
    double *dx, *dgate, *dup, *ddown;
    int64_t d, f;
} sums;

/* Adds choice (i, e, w); returns the gradient of w. */
static double grad_choice(const gw_kargs *k, int64_t i, int64_t e, double w, sums *s) {
    const gw_tensor *x = &k->in[GW_EXG_X], *dy = &k->in[GW_EXG_DY], *gate = &k->in[GW_EXG_GATE];
    const gw_tensor *up = &k->in[GW_EXG_UP], *down = &k->in[GW_EXG_DOWN];
    double dw = 0;
    for (int64_t j = 0; j < s->f; j++) {
        double g = row_dot(gate, e, j, x, i), u = row_dot(up, e, j, x, i);
        double sg = 1 / (1 + exp(-g)), h = g * sg * u;
        double p = gw_ref_dot(down, e * s->d * s->f + j, s->f, dy, i * s->d, 1, s->d);
        double dg = w * p * u * sg * (1 + g * (1 - sg)), du = w * p * g * sg;
        dw += p * h;
        for (int64_t c = 0; c < s->d; c++) {
            int64_t row = (e * s->f + j) * s->d + c;
            double xc = gw_ref_get(x, i * s->d + c);
            s->dx[i * s->d + c] += dg * gw_ref_get(gate, row) + du * gw_ref_get(up, row);
            s->dgate[j * s->d + c] += dg * xc;
            s->dup[j * s->d + c] += du * xc;
            s->ddown[c * s->f + j] += w * h * gw_ref_get(dy, i * s->d + c);
        }
    }
    return dw;
}

static void write_expert(const gw_kargs *k, int64_t e, const sums *s) {
    const double *from[3] = {s->dgate, s->dup, s->ddown};
    int64_t n = s->d * s->f;
    for (int m = 0; m < 3; m++)
        for (int64_t i = 0; i < n; i++)
            gw_ref_set(&k->out[2 + m], e * n + i,
                       gw_ref_acc(k, GW_EXG_ACC + m, e * n + i) + from[m][i]);
}

static void grad_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[GW_EXG_X], *ids = &k->in[GW_EXG_IDS];
    int64_t t = ids->dims[2], n = k->in[GW_EXG_GATE].dims[1] * x->dims[2];
    gw_experts_held held = gw_experts_held_of(gw_type_of(k->g, gw_op_in(k->g, k->op, GW_EXG_GATE)),
                                              &k->g->mesh, k->rank);
    double *mem = gw_mem_zalloc(sizeof *mem * (size_t)(3 * n + x->elems + 1));
    sums s = {.dgate = mem, .dup = mem + n, .ddown = mem + 2 * n, .dx = mem + 3 * n};
    s.d = x->dims[2];
    s.f = k->in[GW_EXG_GATE].dims[1];
    for (int64_t i = 0; i < ids->elems; i++) gw_ref_set(&k->out[1], i, 0);
    for (int64_t e = 0; e < held.count; e++) {
        memset(mem, 0, sizeof *mem * (size_t)(3 * n));
        for (int64_t i = 0; i < ids->elems; i++)
            if (gw_ref_int(ids, i) == held.first + e)
                gw_ref_set(&k->out[1], i,
                           grad_choice(k, i / t, e, gw_ref_get(&k->in[GW_EXG_GATES], i), &s));
        write_expert(k, e, &s);
    }
    for (int64_t i = 0; i < x->elems; i++) gw_ref_set(&k->out[0], i, s.dx[i]);
    gw_mem_free(mem);
}

/* ---- cases ---- */

typedef struct shape {
    const char *name, *x, *ids, *gate, *down;
    int64_t experts; /* that ids name: below e, so that some stay empty */
} shape;

static const shape shapes[] = {
    {"plain", "b2 s5 d4", "b2 s5 t2", "e3 f5 d4", "e3 d4 f5", 3},
    {"empty experts", "b1 s7 d5", "b1 s7 t2", "e6 f3 d5", "e6 d5 f3", 2},
    {"one choice", "b3 s3 d8", "b3 s3 t1", "e4 f6 d8", "e4 d8 f6", 4},
    {"nobody", "b1 s3 d4", "b1 s3 t2", "e2 f3 d4", "e2 d4 f3", 0},
    {"larger", "b2 s19 d12", "b2 s19 t3", "e5 f35 d12", "e5 d12 f35", 5},
};

static gw_vid gates_leaf(gw_case *c, const char *dims) {
    if (gw_dtype_stat(c->dtype) == c->dtype)
        return gw_case_value(c, dims, false, GW_FILL_UNIFORM, 0.1, 0.9);
    return gw_case_fixed(c, GW_F32, dims, GW_FILL_UNIFORM, 0.1, 0.9);
}

static void build_inputs(gw_case *c, const shape *s, gw_vid in[6]) {
    in[GW_EX_X] = gw_case_value(c, s->x, false, GW_FILL_NORMAL, 1, 0);
    in[GW_EX_IDS] = gw_case_fixed(c, GW_I32, s->ids, GW_FILL_INTS, -1, (double)s->experts);
    in[GW_EX_GATES] = gates_leaf(c, s->ids);
    in[GW_EX_GATE] = gw_case_value(c, s->gate, true, GW_FILL_NORMAL, 0.5, 0);
    in[GW_EX_UP] = gw_case_value(c, s->gate, true, GW_FILL_NORMAL, 0.5, 0);
    in[GW_EX_DOWN] = gw_case_value(c, s->down, true, GW_FILL_NORMAL, 0.5, 0);
}

static void forward_cases(gw_cases *cs, const char *op) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid in[6];
        build_inputs(c, &shapes[i], in);
        gw_build(&c->b, op, in, 6, NULL, NULL);
        if (shapes[i].experts == 0 || strcmp(op, "experts") != 0) c->differentiate = false;
    }
}

static void gradient_cases(gw_cases *cs, const char *op) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        const shape *s = &shapes[i];
        gw_vid in[10], x[6];
        build_inputs(c, s, x);
        in[0] = gw_case_value(c, s->x, false, GW_FILL_NORMAL, 1, 0);
        memcpy(in + 1, x, sizeof x);
        const char *dims[3] = {s->gate, s->gate, s->down};
        for (int k = 0; k < 3; k++)
            in[7 + k] = i % 2 ? gw_case_fixed(c, GW_F32, dims[k], GW_FILL_NORMAL, 1, 0) : GW_NONE;
        gw_attr a[GW_MAX_ATTRS];
        gw_attrs_default(c->g.table, op, a);
        a[0].i = i == 2 ? (int64_t)cs->dtype : GW_F32;
        gw_build(&c->b, op, in, 10, a, NULL);
    }
}

static void cases(gw_cases *cs) { forward_cases(cs, "experts"); }
static void grad_cases(gw_cases *cs) { gradient_cases(cs, "experts_grad"); }
static void ep_cases(gw_cases *cs) { forward_cases(cs, "experts_ep"); }
static void ep_grad_cases(gw_cases *cs) { gradient_cases(cs, "experts_ep_grad"); }

/* ---- descriptors ---- */

static const gw_attr_def grad_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of weight gradients */
    {"buffer", GW_ATTR_FLOAT, 0, 2},     /* experts_ep_grad: room for rows, in mean loads */
};
static const gw_attr_def ep_attrs[] = {
    {"buffer", GW_ATTR_FLOAT, 0, 2}, /* room for arriving rows, in mean loads */
};

const gw_opdef gw_opdef_experts = {
    .name = "experts",
    .doc = "tokens through the feed-forward nets they are routed to, weighted by their gates",
    .signature = "bs!d,bs!t,bs!t,ef!d,ef!d,e!df->bs!d",
    .traits = 0,
    .linear_in = 0,
    .nin = 6,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3f,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = shard,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

const gw_opdef gw_opdef_experts_grad = {
    .name = "experts_grad",
    .doc = "gradients of experts: of tokens, gates and weights; adds into accumulators",
    .signature = "bs!d,bs!d,bs!t,bs!t,ef!d,ef!d,e!df,ef!d?,ef!d?,e!df?->"
                 "bs!d,bs!t,ef!d,ef!d,e!df",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 10,
    .nout = 5,
    .noptional = 3,
    .nacc = 3,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = grad_shard,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

const gw_opdef gw_opdef_experts_ep = {
    .name = "experts_ep",
    .doc = "experts whose weights and tokens are cut over the same ranks: rows travel to the "
           "experts and back",
    .signature = "bs!d,bs!t,bs!t,ef!d,ef!d,e!df->bs!d",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 6,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = ep_attrs,
    .infer = infer,
    .verify = verify_ep,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = ep_cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = ep_cases,
};

const gw_opdef gw_opdef_experts_ep_grad = {
    .name = "experts_ep_grad",
    .doc = "gradients of experts_ep: rows and their gradients travel, hidden activations are made "
           "again",
    .signature = "bs!d,bs!d,bs!t,bs!t,ef!d,ef!d,e!df,ef!d?,ef!d?,e!df?->"
                 "bs!d,bs!t,ef!d,ef!d,e!df",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 10,
    .nout = 5,
    .noptional = 3,
    .nacc = 3,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = verify_ep_grad,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = ep_grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = ep_grad_cases,
};

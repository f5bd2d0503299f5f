// SPDX-License-Identifier: Apache-2.0
// attention: scaled dot-product attention with grouped heads, causal, windowed and by document; and
// its gradient.
//
// Vaswani et al. 2017; grouped key-value heads: Ainslie et al. 2023; sliding window: Mistral 7B,
// 2023. Query head i reads kv head i / (h/g). Query position i sees key position j iff
//   docs[i] == docs[j]   and   j <= i (causal)   and   (window == 0 or i - j < window)
// with i, j indices along s. Every query sees at least itself, so no row is empty. With t = scale *
// q_i . k_j over the visible j (scale 0 stands for 1/sqrt(k)):
//   lse_i = log sum_j exp(t_ij)      p_ij = exp(t_ij - lse_i)      o_i = sum_j p_ij v_j
// lse (float32; float64 beside float64 values) is all that backward needs of the softmax: p is made
// again from q, k and lse, so memory stays linear in s (Dao et al., FlashAttention, 2022). With
// delta_i = do_i . o_i:
//   dv_j = sum_i p_ij do_i     ds_ij = p_ij (do_i . v_j - delta_i)     dq_i = scale sum_j ds_ij k_j
//   dk_j = scale sum_i ds_ij q_i
// where the sums of dk and dv run over all query heads of the group. Gradient flows through o
// alone; lse is for backward, not for losses.
//
// Numerics: all of it in float64 here with one rounding an output; kernels keep t, p and the sums
// in float32.
//
// Work counts pairs that are seen under causal and window, taking one document a row: V pairs a
// head, with w = window or s, and min(w, s) for w where it is longer:
//   causal: V = w(w+1)/2 + (s-w) w      not causal: V = s^2 - (s-w)(s-w+1)/2
// forward 2 products, 4 k V flops a query head; backward 5 products, 10 k V. flops_full has V =
// s^2. Exponentials and sums of the softmax are left out.
//
// Sharding passes on b and on heads (kv heads are cut where query heads are). s and k must be
// whole; a sharded s is lowered to a ring or turned into sharded heads before it comes here.
#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_attention */
#include "ops/ref.h"    /* gw_ref_get */

enum { CAUSAL, WINDOW, SCALE };
static const gw_attr_def attrs[] = {
    {"causal", GW_ATTR_BOOL, 1, 0},
    {"window", GW_ATTR_INT, 0, 0},  /* tokens a query sees, itself included; 0 = no limit */
    {"scale", GW_ATTR_FLOAT, 0, 0}, /* 0 = 1/sqrt(k) */
};

/* ---- infer and sign, for both: q, k, v stand at inputs q0, q0+1, q0+2 ---- */

static gw_status infer_qkv(gw_infer *f, int q0, int docs) {
    char tq[128], tk[128];
    for (int i = q0; i < q0 + 3; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
        GW_TRY(gw_infer_want_same_dtype(f, i, q0));
        GW_TRY(gw_infer_want_leading(f, i, q0, 2));
        GW_TRY(gw_infer_want_dim(f, i, 3, q0, 3));
    }
    GW_TRY(gw_infer_want_same_dims(f, q0 + 2, q0 + 1));
    const gw_type *q = gw_infer_in(f, q0), *k = gw_infer_in(f, q0 + 1);
    int64_t heads = q->dims[2].size, groups = k->dims[2].size;
    if (heads < 1 || groups < 1 || heads % groups)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "%s: the heads of q, %s, must be a multiple of the heads of k, %s",
                       f->def->name, gw_type_text(q, tq), gw_type_text(k, tk));
    if (f->attrs[WINDOW].i < 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "%s: window is %lld, not 0 or more",
                       f->def->name, (long long)f->attrs[WINDOW].i);
    if (!gw_infer_has(f, docs)) return GW_OK;
    GW_TRY(gw_infer_want_int(f, docs));
    GW_TRY(gw_infer_want_ndim(f, docs, 2, 2));
    return gw_infer_want_leading(f, docs, q0, 2);
}

/* Named factors as usual, but s and k are whole, and kv heads are groups of query heads: they are
 * cut where those are, and contract nothing. q is at input q, k after it. */
static void sign_heads(const gw_graph *g, const gw_op *o, int q, gw_signature *s) {
    const gw_type *tq = gw_type_of(g, gw_op_in(g, o, q)),
                  *tk = gw_type_of(g, gw_op_in(g, o, q + 1));
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++) {
        gw_factor *f = &s->factors[i];
        if (f->in_dim[q] == 1 || f->in_dim[q] == 3) f->kind = GW_FACTOR_WHOLE;
        if (f->in_dim[q + 1] != 2 || f->in_dim[q] == 2) continue;
        f->kind = GW_FACTOR_PASS;
        memcpy(f->with, tq->dims[2].name, sizeof f->with);
    }
    GW_ASSERT(s->nfactors == 4 + (strcmp(tq->dims[2].name, tk->dims[2].name) != 0));
}

/* ---- cost ---- */

static double visible_pairs(int64_t s, bool causal, int64_t window) {
    double n = (double)s, w = window == 0 || window > s ? n : (double)window;
    return causal ? w * (w + 1) / 2 + (n - w) * w : n * n - (n - w) * (n - w + 1) / 2;
}

static void cost_of(const gw_graph *g, const gw_op *o, gw_vid q, int products, gw_cost *c) {
    int64_t s = gw_cost_dim(g, q, 1);
    double heads = (double)gw_cost_dim(g, q, 0) * (double)gw_cost_dim(g, q, 2);
    double a_pair = 2.0 * products * heads * (double)gw_cost_dim(g, q, 3);
    double seen = visible_pairs(s, gw_op_attr(g, o, CAUSAL).i != 0, gw_op_attr(g, o, WINDOW).i);
    gw_cost_set(g, o, a_pair * seen, c);
    c->flops_full = a_pair * (double)s * (double)s;
}

/* ---- the rows of a reference kernel ---- */

/* What both reference kernels know: sizes, mask, and where q, k and v are. */
typedef struct view {
    const gw_tensor *q, *k, *v, *docs; /* docs NULL if absent */
    int64_t batch, s, heads, groups, size, window;
    bool causal;
    double scale;
} view;

static view view_of(const gw_kargs *k, int q0, int docs) {
    view w = {.q = &k->in[q0], .k = &k->in[q0 + 1], .v = &k->in[q0 + 2]};
    w.docs = gw_ref_has(k, docs) ? &k->in[docs] : NULL;
    w.batch = w.q->dims[0];
    w.s = w.q->dims[1];
    w.heads = w.q->dims[2];
    w.groups = w.k->dims[2];
    w.size = w.q->dims[3];
    w.causal = gw_ref_attr(k, CAUSAL).i != 0;
    w.window = gw_ref_attr(k, WINDOW).i;
    w.scale = gw_ref_attr(k, SCALE).f;
    if (w.scale == 0) w.scale = 1 / sqrt((double)w.size);
    return w;
}

static bool sees(const view *w, int64_t b, int64_t i, int64_t j) {
    if (w->causal && j > i) return false;
    if (w->window && i - j >= w->window) return false;
    return !w->docs || gw_ref_int(w->docs, b * w->s + i) == gw_ref_int(w->docs, b * w->s + j);
}

/* First element of q, o, do at (b, i, h); of k, v at (b, j, head of the group of h); of lse at (b,
 * i, h). */
static int64_t at_q(const view *w, int64_t b, int64_t i, int64_t h) {
    return ((b * w->s + i) * w->heads + h) * w->size;
}
static int64_t at_k(const view *w, int64_t b, int64_t j, int64_t h) {
    int64_t g = h / (w->heads / w->groups);
    return ((b * w->s + j) * w->groups + g) * w->size;
}
static int64_t at_lse(const view *w, int64_t b, int64_t i, int64_t h) {
    return (b * w->s + i) * w->heads + h;
}

static double score(const view *w, int64_t b, int64_t i, int64_t j, int64_t h) {
    return w->scale * gw_ref_dot(w->q, at_q(w, b, i, h), 1, w->k, at_k(w, b, j, h), 1, w->size);
}

/* Sums over keys or queries are formed for TILE components of a head at a time, on the stack. */
#define TILE 256

/* sum[0..n) += a * t[at .. at+n) */
static void add_row(double *sum, double a, const gw_tensor *t, int64_t at, int64_t n) {
    for (int64_t c = 0; c < n; c++) sum[c] += a * gw_ref_get(t, at + c);
}

static void set_row(const gw_tensor *t, int64_t at, double factor, const double *sum, int64_t n) {
    for (int64_t c = 0; c < n; c++) gw_ref_set(t, at + c, factor * sum[c]);
}

/* ---- attention ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_qkv(f, 0, 3));
    const gw_type *q = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(q, (gw_dtype)q->dtype);
    f->out[1] = gw_type_scalar(gw_dtype_stat((gw_dtype)q->dtype));
    for (int d = 0; d < 3; d++) gw_type_add(&f->out[1], q->dims[d].name, q->dims[d].size);
    return GW_OK;
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) { sign_heads(g, o, 0, s); }

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, gw_op_in(g, o, 0), 2, c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1] && !v->want[2]) return;
    gw_vid docs = v->nin > 3 ? v->in[3] : GW_NONE;
    gw_vid in[7] = {v->dout[0], v->in[0], v->in[1], v->in[2], v->out[0], v->out[1], docs}, more[2];
    gw_attr a[3] = {v->attrs[CAUSAL], v->attrs[WINDOW], v->attrs[SCALE]};
    gw_vid dq = gw_vjp_build(v, GW_PHASE_B, "attention_grad", in, 7, a, more);
    if (v->want[0]) v->din[0] = dq;
    if (v->want[1]) v->din[1] = more[0];
    if (v->want[2]) v->din[2] = more[1];
}

/* log of the sum of exp over the visible keys, the largest score taken out. */
static double log_sum_exp(const view *w, int64_t b, int64_t i, int64_t h) {
    double most = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < w->s; j++)
        if (sees(w, b, i, j)) most = fmax(most, score(w, b, i, j, h));
    for (int64_t j = 0; j < w->s; j++)
        if (sees(w, b, i, j)) sum += exp(score(w, b, i, j, h) - most);
    return most + log(sum);
}

static void attend(const gw_kargs *k, const view *w, int64_t b, int64_t i, int64_t h) {
    double lse = log_sum_exp(w, b, i, h);
    for (int64_t c = 0; c < w->size; c += TILE) {
        int64_t n = GW_MIN((int64_t)TILE, w->size - c);
        double sum[TILE] = {0};
        for (int64_t j = 0; j < w->s; j++)
            if (sees(w, b, i, j))
                add_row(sum, exp(score(w, b, i, j, h) - lse), w->v, at_k(w, b, j, h) + c, n);
        set_row(&k->out[0], at_q(w, b, i, h) + c, 1, sum, n);
    }
    gw_ref_set(&k->out[1], at_lse(w, b, i, h), lse);
}

static void reference(const gw_kargs *k) {
    view w = view_of(k, 0, 3);
    for (int64_t b = 0; b < w.batch; b++)
        for (int64_t i = 0; i < w.s; i++)
            for (int64_t h = 0; h < w.heads; h++) attend(k, &w, b, i, h);
}

/* One shape and mask, for both ops: q, k, v[, docs] through attention. */
typedef struct setting {
    const char *name, *q, *kv, *docs;
    gw_attr attrs[3];
} setting;

static const setting settings[] = {
    {"causal", "b1 s5 h2 k3", "b1 s5 g2 k3", NULL, {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"grouped heads", "b1 s4 h4 k2", "b1 s4 g2 k2", NULL, {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"documents", "b2 s6 h2 k2", "b2 s6 g1 k2", "b2 s6", {{.i = 1}, {.i = 0}, {.f = 0.9}}},
    {"window", "b1 s7 h2 k2", "b1 s7 g2 k2", NULL, {{.i = 1}, {.i = 3}, {.f = 0}}},
    {"window, documents", "b1 s9 h2 k2", "b1 s9 g1 k2", "b1 s9", {{.i = 1}, {.i = 2}, {.f = 0}}},
    {"not causal", "b1 s4 h2 k3", "b1 s4 g1 k3", NULL, {{.i = 0}, {.i = 0}, {.f = 0}}},
    {"not causal, window, documents",
     "b1 s6 h1 k2",
     "b1 s6 g1 k2",
     "b1 s6",
     {{.i = 0}, {.i = 3}, {.f = 0}}},
    {"one token", "b2 s1 h2 k2", "b2 s1 g1 k2", NULL, {{.i = 1}, {.i = 0}, {.f = 0}}},
};

/* Sizes that leave remainders in blocks and vectors; too many elements for differences. */
static const setting wide = {
    "wide", "b1 s67 h4 k40", "b1 s67 g2 k40", "b1 s67", {{.i = 1}, {.i = 48}, {.f = 0}}};

/* in[0..4) = q, k, v, docs or none; out = o, lse. */
static void build_attention(gw_case *c, const setting *t, gw_vid in[4], gw_vid out[2]) {
    in[0] = gw_case_value(c, t->q, false, GW_FILL_NORMAL, 1, 0);
    in[1] = gw_case_value(c, t->kv, false, GW_FILL_NORMAL, 1, 0);
    in[2] = gw_case_value(c, t->kv, false, GW_FILL_NORMAL, 1, 0);
    in[3] = t->docs ? gw_case_fixed(c, GW_I32, t->docs, GW_FILL_SEGMENTS, 0, 3) : GW_NONE;
    out[0] = gw_build(&c->b, "attention", in, 4, t->attrs, &out[1]);
}

static void cases(gw_cases *cs) {
    gw_vid in[4], out[2];
    for (size_t i = 0; i < GW_COUNT(settings); i++)
        build_attention(gw_case_begin(cs, settings[i].name), &settings[i], in, out);
    if (cs->dtype != GW_F64) build_attention(gw_case_begin(cs, wide.name), &wide, in, out);
}

const gw_opdef gw_opdef_attention = {
    .name = "attention",
    .doc = "attention with grouped heads; causal, windowed, by document",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 4,
    .nout = 2,
    .noptional = 1,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0xf,
    .reads_out = 0x3,
    .nattrs = 3,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- attention_grad: do, q, k, v, o, lse, docs? -> dq, dk, dv ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_qkv(f, 1, 6));
    GW_TRY(gw_infer_want_same_dims(f, 0, 1));
    GW_TRY(gw_infer_want_same_dims(f, 4, 1));
    GW_TRY(gw_infer_want_ndim(f, 5, 3, 3));
    GW_TRY(gw_infer_want_leading(f, 5, 1, 3));
    for (int i = 0; i < 3; i++) {
        const gw_type *t = gw_infer_in(f, 1 + i);
        f->out[i] = gw_type_plain(t, (gw_dtype)t->dtype);
    }
    return GW_OK;
}

static void grad_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    sign_heads(g, o, 1, s);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, gw_op_in(g, o, 1), 5, c);
}

/* p_ij and ds_ij of query head h. */
static double grad_pair(const gw_kargs *k, const view *w, int64_t b, int64_t i, int64_t j,
                        int64_t h, double *ds) {
    const gw_tensor *dout = &k->in[0], *o = &k->in[4], *lse = &k->in[5];
    double p = exp(score(w, b, i, j, h) - gw_ref_get(lse, at_lse(w, b, i, h)));
    int64_t q = at_q(w, b, i, h);
    double delta = gw_ref_dot(dout, q, 1, o, q, 1, w->size);
    *ds = p * (gw_ref_dot(dout, q, 1, w->v, at_k(w, b, j, h), 1, w->size) - delta);
    return p;
}

static void grad_query(const gw_kargs *k, const view *w, int64_t b, int64_t i, int64_t h) {
    for (int64_t c = 0; c < w->size; c += TILE) {
        int64_t n = GW_MIN((int64_t)TILE, w->size - c);
        double dq[TILE] = {0}, ds;
        for (int64_t j = 0; j < w->s; j++) {
            if (!sees(w, b, i, j)) continue;
            grad_pair(k, w, b, i, j, h, &ds);
            add_row(dq, ds, w->k, at_k(w, b, j, h) + c, n);
        }
        set_row(&k->out[0], at_q(w, b, i, h) + c, w->scale, dq, n);
    }
}

static void grad_key(const gw_kargs *k, const view *w, int64_t b, int64_t j, int64_t g) {
    int64_t per = w->heads / w->groups, row = at_k(w, b, j, g * per);
    for (int64_t c = 0; c < w->size; c += TILE) {
        int64_t n = GW_MIN((int64_t)TILE, w->size - c);
        double dk[TILE] = {0}, dv[TILE] = {0}, ds;
        for (int64_t h = g * per; h < (g + 1) * per; h++)
            for (int64_t i = 0; i < w->s; i++) {
                if (!sees(w, b, i, j)) continue;
                double p = grad_pair(k, w, b, i, j, h, &ds);
                add_row(dk, ds, w->q, at_q(w, b, i, h) + c, n);
                add_row(dv, p, &k->in[0], at_q(w, b, i, h) + c, n);
            }
        set_row(&k->out[1], row + c, w->scale, dk, n);
        set_row(&k->out[2], row + c, 1, dv, n);
    }
}

static void grad_reference(const gw_kargs *k) {
    view w = view_of(k, 1, 6);
    for (int64_t b = 0; b < w.batch; b++)
        for (int64_t i = 0; i < w.s; i++) {
            for (int64_t h = 0; h < w.heads; h++) grad_query(k, &w, b, i, h);
            for (int64_t g = 0; g < w.groups; g++) grad_key(k, &w, b, i, g);
        }
}

static void grad_case(gw_cases *cs, const setting *t) {
    gw_case *c = gw_case_begin(cs, t->name);
    gw_vid in[4], out[2];
    gw_vid dout = gw_case_value(c, t->q, false, GW_FILL_NORMAL, 1, 0);
    build_attention(c, t, in, out);
    gw_build(&c->b, "attention_grad", (gw_vid[]){dout, in[0], in[1], in[2], out[0], out[1], in[3]},
             7, t->attrs, NULL);
}

static void grad_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(settings); i++) grad_case(cs, &settings[i]);
    if (cs->dtype != GW_F64) grad_case(cs, &wide);
}

const gw_opdef gw_opdef_attention_grad = {
    .name = "attention_grad",
    .doc = "gradient of attention: of q, k and v, from the saved log-sum-exp",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 7,
    .nout = 3,
    .noptional = 1,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = grad_sign,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

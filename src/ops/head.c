// SPDX-License-Identifier: Apache-2.0
// head: the language-model head and cross-entropy as one op; and the op that also makes its
// gradient.
//
//   loss = sum over rows with label >= 0 of  lse_r - z_r,label    z_r = x_r . w^T    lse_r = log
//   sum_c exp(z_rc)
// A negative label (-100 by custom) masks the row: no loss, no gradient. The sum is not divided:
// the divisor is data (all valid labels of the step), and with a loss scale it sits in `seed`, a
// scalar input. head gives the plain sum; head_grad gives the same sum and the gradient of seed *
// sum:
//   e_rc = seed * (exp(z_rc - lse_r) - [c = label_r])     dx = e . w     dw = e^T . x  (+ acc)
// Because the seed is known when forward runs, training needs no separate head: the vjp of `head`
// is head_grad, whose loss replaces the output of head (which is then dead). head alone serves
// validation.
//
// The logits, rows x v, are the largest tensor a step would have; they never exist as a value.
// Kernels go through tiles of them; here each logit is made again wherever it is needed.
//
// Numerics: the logits and the sums over v and d are float64 here, float32 in kernels; the largest
// logit is taken out of the exponentials. loss is float32 (float64 beside float64 values). dw has
// the dtype of weight gradients; it rounds once per ROWS rows here.
//
// Work: 2 r v d for the loss; 6 r v d with the gradient (logits, dx, dw; each once). Exponentials
// are left out, and masked rows are counted. d must be whole, and v too in these two ops; sharded
// rows make loss and dw partial sums. Where w's rows, the vocabulary, are cut over ranks, no rank
// knows a row's lse alone: the shard rule then puts the pieces of ops/head_parts.c in the place of
// these ops.
#include "ops/head.h"

#include <math.h>

#include "base/panic.h" /* gw_panic */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_head */
#include "ops/ref.h"    /* gw_ref_get */
#include "ops/rows.h"   /* gw_rows_of */

static const gw_attr_def grad_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dw */
};

/* ---- both ---- */

gw_status gw_head_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_ndim(f, 1, 2, 2));
    int rows = gw_infer_in(f, 0)->ndim - 1;
    GW_TRY(gw_infer_want_dim(f, 1, 1, 0, rows));
    GW_TRY(gw_infer_want_int(f, 2));
    GW_TRY(gw_infer_want_ndim(f, 2, rows, rows));
    return gw_infer_want_leading(f, 2, 0, rows);
}

/* x, w, labels, seed at inputs 0..3. */
static gw_status infer_inputs(gw_infer *f) {
    GW_TRY(gw_head_infer(f));
    return gw_infer_want_scalar(f, 3);
}

gw_type gw_head_stat(const gw_infer *f, int in) {
    gw_dtype stat = gw_dtype_stat((gw_dtype)gw_infer_in(f, 0)->dtype);
    return in < 0 ? gw_type_scalar(stat) : gw_type_plain(gw_infer_in(f, in), stat);
}

static void cost_of(const gw_graph *g, const gw_op *o, int products, gw_cost *c) {
    double x = (double)gw_cost_elems(g, gw_op_in(g, o, 0));
    gw_cost_set(g, o, 2.0 * products * x * (double)gw_cost_dim(g, gw_op_in(g, o, 1), 0), c);
}

double gw_head_logit(const gw_kargs *k, int64_t r, int64_t c) {
    int64_t d = gw_ref_last(&k->in[0]);
    return gw_ref_dot(&k->in[0], r * d, 1, &k->in[1], c * d, 1, d);
}

int64_t gw_head_label(const gw_kargs *k, int64_t r) {
    int64_t label = gw_ref_int(&k->in[2], r);
    int64_t vocabulary = gw_type_of(k->g, gw_op_in(k->g, k->op, 1))->dims[0].size;
    if (label >= vocabulary)
        gw_panic("%s: label %lld in row %lld is past the vocabulary of %lld",
                 gw_op_def(k->g, k->op)->name, (long long)label, (long long)r,
                 (long long)vocabulary);
    return label;
}

/* lse of a row in one pass: the sum is rescaled whenever a larger logit turns up. */
static double row_lse(const gw_kargs *k, int64_t r) {
    double most = -HUGE_VAL, sum = 0;
    for (int64_t c = 0; c < k->in[1].dims[0]; c++) {
        double z = gw_head_logit(k, r, c);
        if (z > most) {
            sum *= exp(most - z);
            most = z;
        }
        sum += exp(z - most);
    }
    return most + log(sum);
}

/* Leaves shared by the cases; in[4] and further are accumulators. */
static void build_inputs(gw_case *c, const char *xd, const char *wd, const char *ld, int64_t v,
                         gw_vid in[4]) {
    in[0] = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    in[1] = gw_case_value(c, wd, true, GW_FILL_NORMAL, 1, 0);
    in[2] = gw_case_fixed(c, GW_I32, ld, GW_FILL_LABELS, 0, (double)v);
    in[3] = gw_case_fixed(c, gw_dtype_stat(c->dtype), "", GW_FILL_CONST, 0.25, 0);
}

/* ---- head: x, w, labels, seed, acc? -> loss ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    f->out[0] = gw_head_stat(f, -1);
    return gw_infer_want_acc(f, 4, &f->out[0]);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 1, c); }

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1]) return;
    gw_vid in[4] = {v->in[0], v->in[1], v->in[2], v->in[3]}, more[2];
    gw_attr a = {.i = gw_vjp_dtype(v, 1)};
    gw_vid dx = gw_vjp_build(v, GW_PHASE_BW, "head_grad", in, 4, &a, more);
    if (v->want[0]) v->din[0] = dx;
    if (v->want[1]) v->din[1] = more[0];
    v->replace[0] = more[1];
}

/* Sum over valid rows of what each loses. */
static double loss_of(const gw_kargs *k) {
    double loss = 0;
    for (int64_t r = 0; r < gw_ref_rows(&k->in[0]); r++) {
        int64_t label = gw_head_label(k, r);
        if (label >= 0) loss += row_lse(k, r) - gw_head_logit(k, r, label);
    }
    return loss;
}

static void reference(const gw_kargs *k) {
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 4, 0) + loss_of(k));
}

static void cases(gw_cases *cs) {
    gw_vid in[4];
    gw_case *c = gw_case_begin(cs, "plain");
    build_inputs(c, "b2 s3 d4", "v7 d4", "b2 s3", 7, in);
    gw_build(&c->b, "head", in, 4, NULL, NULL);
    c = gw_case_begin(cs, "accumulates");
    build_inputs(c, "s9 d5", "v11 d5", "s9", 11, in);
    gw_vid acc = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build1(&c->b, "head", in[0], in[1], in[2], in[3], acc);
    c->differentiate = false;
}

const gw_opdef gw_opdef_head = {
    .name = "head",
    .doc = "language-model head: sum of negative log likelihoods of the valid labels",
    .signature = "*!d,!v!d,*,,?->",
    .traits = GW_OP_LOSS,
    .linear_in = 0,
    .nin = 5,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0xf,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_head_shard,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- head_grad: x, w, labels, seed, accw?, accl? -> dx, dw, loss ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    const gw_type *x = gw_infer_in(f, 0);
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[1] = gw_type_plain(gw_infer_in(f, 1), dtype);
    f->out[2] = gw_head_stat(f, -1);
    GW_TRY(gw_infer_want_acc(f, 4, &f->out[1]));
    return gw_infer_want_acc(f, 5, &f->out[2]);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 3, c); }

#define ROWS 2048 /* rows whose lse is held at a time */
#define TILE 512  /* components of d that are summed at a time */

/* What one launch of a gradient knows. */
typedef struct gradient {
    const gw_kargs *k;
    double seed;
    int acc;
    gw_runs rows; /* of w */
    int64_t d, vocabulary;
} gradient;

/* Error of logit (r, c) times seed, 0 in a masked row. */
static double error_of(const gradient *t, int64_t r, int64_t c, double lse) {
    int64_t label = gw_head_label(t->k, r);
    if (label < 0) return 0;
    return t->seed * (exp(gw_head_logit(t->k, r, c) - lse) - (c == gw_rows_local(&t->rows, label)));
}

static void grad_row(const gradient *t, int64_t r, double lse) {
    const gw_kargs *k = t->k;
    for (int64_t j = 0; j < t->d; j += TILE) {
        int64_t n = GW_MIN((int64_t)TILE, t->d - j);
        double sum[TILE] = {0};
        for (int64_t c = 0; c < t->vocabulary; c++) {
            double e = error_of(t, r, c, lse);
            for (int64_t i = 0; e != 0 && i < n; i++)
                sum[i] += e * gw_ref_get(&k->in[1], c * t->d + j + i);
        }
        for (int64_t i = 0; i < n; i++) gw_ref_set(&k->out[0], r * t->d + j + i, sum[i]);
    }
}

/* Adds rows first .. first+count to row c of dw. */
static void grad_weight(const gradient *t, int64_t c, int64_t first, int64_t count,
                        const double *lse) {
    const gw_kargs *k = t->k;
    for (int64_t j = 0; j < t->d; j += TILE) {
        int64_t n = GW_MIN((int64_t)TILE, t->d - j), at = c * t->d + j;
        double sum[TILE];
        for (int64_t i = 0; i < n; i++)
            sum[i] = first ? gw_ref_get(&k->out[1], at + i) : gw_ref_acc(k, t->acc, at + i);
        for (int64_t r = 0; r < count; r++) {
            double e = error_of(t, first + r, c, lse[r]);
            for (int64_t i = 0; e != 0 && i < n; i++)
                sum[i] += e * gw_ref_get(&k->in[0], (first + r) * t->d + j + i);
        }
        for (int64_t i = 0; i < n; i++) gw_ref_set(&k->out[1], at + i, sum[i]);
    }
}

void gw_head_gradient(const gw_kargs *k, int seed, int acc,
                      double (*row_stat)(const gw_kargs *k, int64_t r)) {
    gradient t = {.k = k,
                  .seed = gw_ref_get(&k->in[seed], 0),
                  .acc = acc,
                  .rows = gw_rows_of(k, gw_op_in(k->g, k->op, 1), 0),
                  .d = gw_ref_last(&k->in[0]),
                  .vocabulary = k->in[1].dims[0]};
    double lse[ROWS];
    int64_t rows = k->in[2].elems;
    for (int64_t first = 0; first == 0 || first < rows; first += ROWS) {
        int64_t count = GW_MIN((int64_t)ROWS, rows - first);
        for (int64_t r = 0; r < count; r++) {
            lse[r] = gw_head_label(k, first + r) < 0 ? 0 : row_stat(k, first + r);
            grad_row(&t, first + r, lse[r]);
        }
        for (int64_t c = 0; c < t.vocabulary; c++) grad_weight(&t, c, first, count, lse);
    }
}

static void grad_reference(const gw_kargs *k) {
    double loss = loss_of(k);
    gw_head_gradient(k, 3, 4, row_lse);
    gw_ref_set(&k->out[2], 0, gw_ref_acc(k, 5, 0) + loss);
}

static void grad_case(gw_cases *cs, const char *name, const char *xd, const char *wd,
                      const char *ld, int64_t v, bool acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[6] = {0, 0, 0, 0, GW_NONE, GW_NONE};
    build_inputs(c, xd, wd, ld, v, in);
    if (acc) {
        in[4] = gw_case_fixed(c, GW_F32, wd, GW_FILL_NORMAL, 1, 0);
        in[5] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    }
    gw_build(&c->b, "head_grad", in, 6, NULL, NULL);
}

static void grad_cases(gw_cases *cs) {
    grad_case(cs, "plain", "b2 s3 d4", "v7 d4", "b2 s3", 7, false);
    grad_case(cs, "accumulates", "b1 s9 d5", "v11 d5", "b1 s9", 11, true);
    grad_case(cs, "wide", "s37 d48", "v131 d48", "s37", 131, true);
}

const gw_opdef gw_opdef_head_grad = {
    .name = "head_grad",
    .doc = "loss of head and the gradient of seed times it, logits by tiles",
    .signature = "*!d,!v!d,*,,!v!d?,?->*!d,!v!d,",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 6,
    .nout = 3,
    .noptional = 2,
    .nacc = 2,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_head_shard,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

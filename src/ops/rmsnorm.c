// SPDX-License-Identifier: Apache-2.0
// rmsnorm: y = x * rstd * g, rstd = 1 / sqrt(mean(x^2) + eps), over the last dimension; and its
// gradient.
//
// Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; the norm of Llama, Qwen and
// Mistral, and, with d = the head size, the q and k norms of Qwen 3. Where the Hugging Face code
// rounds x * rstd to bf16 before it multiplies by g, this rounds once, at y.
//
// Backward, with a = dy * g and n = x * rstd:
//   dx = rstd * (a - n * mean(a * n))        dg = sum over rows of dy * n  (+ acc)
// It reads x, g and rstd. Both come from one pass over dy and x, so they are one op, phase BW; dg
// has the dtype of weight gradients. rstd is kept in float32 (float64 beside float64 values).
//
// The mean needs a row's whole d. Leading dims pass a sharding; dg, which lacks them, is then a
// partial sum. Work by convention: 4 flops an element forward, 10 backward; the bytes are what it
// costs.
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_rmsnorm */
#include "ops/ref.h"   /* gw_ref_get */

static const gw_attr_def attrs[] = {
    {"eps", GW_ATTR_FLOAT, 0, 1e-6},
};
static const gw_attr_def grad_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dg */
};

/* ---- forward ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 1, 1));
    const gw_type *x = gw_infer_in(f, 0);
    GW_TRY(gw_infer_want_dim(f, 1, 0, 0, x->ndim - 1));
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[1] = gw_type_plain(x, gw_dtype_stat((gw_dtype)x->dtype));
    f->out[1].ndim--;
    f->out[1].dims[f->out[1].ndim] = (gw_dim){0};
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1]) return;
    gw_vid in[4] = {v->dout[0], v->in[0], v->in[1], v->out[1]}, dg;
    gw_attr a = {.i = gw_vjp_dtype(v, 1)};
    gw_vid dx = gw_vjp_build(v, GW_PHASE_BW, "rmsnorm_grad", in, 4, &a, &dg);
    if (v->want[0]) v->din[0] = dx;
    if (v->want[1]) v->din[1] = dg;
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *g = &k->in[1];
    double eps = gw_ref_attr(k, 0).f;
    int64_t d = gw_ref_last(x);
    for (int64_t r = 0; r < gw_ref_rows(x); r++) {
        double rstd = 1 / sqrt(gw_ref_dot(x, r * d, 1, x, r * d, 1, d) / (double)d + eps);
        for (int64_t j = 0; j < d; j++)
            gw_ref_set(&k->out[0], r * d + j, gw_ref_get(x, r * d + j) * rstd * gw_ref_get(g, j));
        gw_ref_set(&k->out[1], r, rstd);
    }
}

static void cases(gw_cases *cs) {
    static const char *const dims[][3] = {
        {"plain", "b2 s3 d5", "d5"}, {"heads", "b1 s2 h3 k4", "k4"}, {"wide", "s2 d37", "d37"}};
    for (int i = 0; i < 3; i++) {
        gw_case *c = gw_case_begin(cs, dims[i][0]);
        gw_vid x = gw_case_value(c, dims[i][1], false, GW_FILL_NORMAL, 1.5, 0);
        gw_vid g = gw_case_value(c, dims[i][2], true, GW_FILL_UNIFORM, 0.5, 1.5);
        gw_build(&c->b, "rmsnorm", (gw_vid[]){x, g}, 2, (gw_attr[]){{.f = 1e-5}}, NULL);
    }
}

const gw_opdef gw_opdef_rmsnorm = {
    .name = "rmsnorm",
    .doc = "root-mean-square norm over the last dimension, with a gain",
    .signature = "*!d,!d->*!d,*",
    .traits = 0,
    .linear_in = 0,
    .nin = 2,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
    .reads_out = 0x2,
    .nattrs = 1,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- gradient: dy, x, g, rstd, acc? -> dx, dg ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_same_dims(f, 0, 1));
    const gw_type *x = gw_infer_in(f, 1);
    GW_TRY(gw_infer_want_ndim(f, 2, 1, 1));
    GW_TRY(gw_infer_want_dim(f, 2, 0, 1, x->ndim - 1));
    GW_TRY(gw_infer_want_ndim(f, 3, x->ndim - 1, x->ndim - 1));
    GW_TRY(gw_infer_want_leading(f, 3, 1, x->ndim - 1));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[1] = gw_type_plain(gw_infer_in(f, 2), dtype);
    return gw_infer_want_acc(f, 4, &f->out[1]);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 10 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

/* mean over a row of dy * g * x * rstd. */
static double row_mean(const gw_kargs *k, int64_t r, int64_t d, double rstd) {
    double sum = 0;
    for (int64_t j = 0; j < d; j++)
        sum += gw_ref_get(&k->in[0], r * d + j) * gw_ref_get(&k->in[2], j) *
               gw_ref_get(&k->in[1], r * d + j) * rstd;
    return sum / (double)d;
}

static void grad_reference(const gw_kargs *k) {
    const gw_tensor *dy = &k->in[0], *x = &k->in[1], *g = &k->in[2], *rstd = &k->in[3];
    int64_t d = gw_ref_last(x), rows = gw_ref_rows(x);
    for (int64_t j = 0; j < d; j++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += gw_ref_get(dy, r * d + j) * gw_ref_get(x, r * d + j) * gw_ref_get(rstd, r);
        gw_ref_set(&k->out[1], j, gw_ref_acc(k, 4, j) + sum);
    }
    for (int64_t r = 0; r < rows; r++) {
        double s = gw_ref_get(rstd, r), mean = row_mean(k, r, d, s);
        for (int64_t j = 0; j < d; j++) {
            double a = gw_ref_get(dy, r * d + j) * gw_ref_get(g, j);
            gw_ref_set(&k->out[0], r * d + j, s * (a - gw_ref_get(x, r * d + j) * s * mean));
        }
    }
}

static void grad_case(gw_cases *cs, const char *name, const char *xd, const char *rows,
                      const char *gd, bool acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid dy = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid x = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1.5, 0);
    gw_vid g = gw_case_value(c, gd, true, GW_FILL_UNIFORM, 0.5, 1.5);
    gw_vid rstd = gw_case_fixed(c, gw_dtype_stat(cs->dtype), rows, GW_FILL_UNIFORM, 0.5, 0.9);
    gw_vid a = acc ? gw_case_fixed(c, GW_F32, gd, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build1(&c->b, "rmsnorm_grad", dy, x, g, rstd, a);
}

static void grad_cases(gw_cases *cs) {
    grad_case(cs, "plain", "b2 s3 d5", "b2 s3", "d5", false);
    grad_case(cs, "accumulates", "s5 d37", "s5", "d37", true);
    grad_case(cs, "heads", "b1 s2 h3 k4", "b1 s2 h3", "k4", true);
}

const gw_opdef gw_opdef_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .doc = "gradient of rmsnorm: of x, and of the gain into an accumulator",
    .signature = "*!d,*!d,!d,*,!d?->*!d,!d",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 5,
    .nout = 2,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

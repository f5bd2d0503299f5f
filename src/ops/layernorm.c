// SPDX-License-Identifier: Apache-2.0
// layernorm: y = (x - mean) * rstd * g + b over the last dimension; and its gradient.
//
// Ba, Kiros and Hinton, "Layer Normalization", 2016; the norm of GPT-2. The variance is the biased
// one (divided by d), from the centred values: no difference of large squares. rstd = 1 / sqrt(var
// + eps).
//
// Backward, with a = dy * g and n = (x - mean) * rstd:
//   dx = rstd * (a - mean(a) - n * mean(a * n))
//   dg = sum over rows of dy * n        db = sum over rows of dy
// It reads x, g, mean and rstd (the statistics in float32, float64 beside float64 values), and is
// one op, phase BW. dg and db have the dtype of weight gradients and add into accumulators where
// given.
//
// A row's d must be whole. Leading dims pass a sharding; dg and db are then partial sums.
// Work by convention: 7 flops an element forward, 13 backward.
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_layernorm */
#include "ops/ref.h"   /* gw_ref_get */

static const gw_attr_def attrs[] = {
    {"eps", GW_ATTR_FLOAT, 0, 1e-5},
};
static const gw_attr_def grad_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dg and db */
};

/* ---- forward ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    const gw_type *x = gw_infer_in(f, 0);
    for (int i = 1; i <= 2; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 1, 1));
        GW_TRY(gw_infer_want_dim(f, i, 0, 0, x->ndim - 1));
    }
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    gw_type stat = gw_type_scalar(gw_dtype_stat((gw_dtype)x->dtype));
    for (int i = 0; i + 1 < x->ndim; i++) gw_type_add(&stat, x->dims[i].name, x->dims[i].size);
    f->out[1] = f->out[2] = stat;
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 7 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1] && !v->want[2]) return;
    gw_vid in[5] = {v->dout[0], v->in[0], v->in[1], v->out[1], v->out[2]}, more[2];
    gw_attr a = {.i = gw_vjp_dtype(v, 1)};
    gw_vid dx = gw_vjp_build(v, GW_PHASE_BW, "layernorm_grad", in, 5, &a, more);
    if (v->want[0]) v->din[0] = dx;
    if (v->want[1]) v->din[1] = more[0];
    if (v->want[2]) v->din[2] = more[1];
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *g = &k->in[1], *b = &k->in[2];
    double eps = gw_ref_attr(k, 0).f;
    int64_t d = gw_ref_last(x);
    for (int64_t r = 0; r < gw_ref_rows(x); r++) {
        double mean = 0, var = 0;
        for (int64_t j = 0; j < d; j++) mean += gw_ref_get(x, r * d + j) / (double)d;
        for (int64_t j = 0; j < d; j++) {
            double c = gw_ref_get(x, r * d + j) - mean;
            var += c * c / (double)d;
        }
        double rstd = 1 / sqrt(var + eps);
        for (int64_t j = 0; j < d; j++)
            gw_ref_set(&k->out[0], r * d + j,
                       (gw_ref_get(x, r * d + j) - mean) * rstd * gw_ref_get(g, j) +
                           gw_ref_get(b, j));
        gw_ref_set(&k->out[1], r, mean);
        gw_ref_set(&k->out[2], r, rstd);
    }
}

static void cases(gw_cases *cs) {
    static const char *const dims[][3] = {{"plain", "b2 s3 d5", "d5"}, {"wide", "s2 d37", "d37"}};
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, dims[i][0]);
        gw_vid x = gw_case_value(c, dims[i][1], false, GW_FILL_UNIFORM, -1, 3);
        gw_vid g = gw_case_value(c, dims[i][2], true, GW_FILL_UNIFORM, 0.5, 1.5);
        gw_vid b = gw_case_value(c, dims[i][2], true, GW_FILL_NORMAL, 1, 0);
        gw_build1(&c->b, "layernorm", x, g, b);
    }
}

const gw_opdef gw_opdef_layernorm = {
    .name = "layernorm",
    .doc = "layer norm over the last dimension, with gain and bias",
    .signature = "*!d,!d,!d->*!d,*,*",
    .traits = 0,
    .linear_in = 0,
    .nin = 3,
    .nout = 3,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
    .reads_out = 0x6,
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

/* ---- gradient: dy, x, g, mean, rstd, accg?, accb? -> dx, dg, db ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_same_dims(f, 0, 1));
    const gw_type *x = gw_infer_in(f, 1);
    GW_TRY(gw_infer_want_ndim(f, 2, 1, 1));
    GW_TRY(gw_infer_want_dim(f, 2, 0, 1, x->ndim - 1));
    for (int i = 3; i <= 4; i++) {
        GW_TRY(gw_infer_want_ndim(f, i, x->ndim - 1, x->ndim - 1));
        GW_TRY(gw_infer_want_leading(f, i, 1, x->ndim - 1));
    }
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[1] = f->out[2] = gw_type_plain(gw_infer_in(f, 2), dtype);
    GW_TRY(gw_infer_want_acc(f, 5, &f->out[1]));
    return gw_infer_want_acc(f, 6, &f->out[2]);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 13 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

/* The normalised value of element (r, j). */
static double normal(const gw_kargs *k, int64_t r, int64_t d, int64_t j) {
    return (gw_ref_get(&k->in[1], r * d + j) - gw_ref_get(&k->in[3], r)) * gw_ref_get(&k->in[4], r);
}

static void grad_reference(const gw_kargs *k) {
    const gw_tensor *dy = &k->in[0], *g = &k->in[2];
    int64_t d = gw_ref_last(dy), rows = gw_ref_rows(dy);
    for (int64_t j = 0; j < d; j++) {
        double dg = 0, db = 0;
        for (int64_t r = 0; r < rows; r++) {
            dg += gw_ref_get(dy, r * d + j) * normal(k, r, d, j);
            db += gw_ref_get(dy, r * d + j);
        }
        gw_ref_set(&k->out[1], j, gw_ref_acc(k, 5, j) + dg);
        gw_ref_set(&k->out[2], j, gw_ref_acc(k, 6, j) + db);
    }
    for (int64_t r = 0; r < rows; r++) {
        double a_mean = 0, an_mean = 0;
        for (int64_t j = 0; j < d; j++) {
            double a = gw_ref_get(dy, r * d + j) * gw_ref_get(g, j);
            a_mean += a / (double)d;
            an_mean += a * normal(k, r, d, j) / (double)d;
        }
        for (int64_t j = 0; j < d; j++) {
            double a = gw_ref_get(dy, r * d + j) * gw_ref_get(g, j);
            double dx = gw_ref_get(&k->in[4], r) * (a - a_mean - normal(k, r, d, j) * an_mean);
            gw_ref_set(&k->out[0], r * d + j, dx);
        }
    }
}

static void grad_case(gw_cases *cs, const char *name, const char *xd, const char *rows,
                      const char *gd, bool acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype stat = gw_dtype_stat(cs->dtype);
    gw_vid dy = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid x = gw_case_value(c, xd, false, GW_FILL_UNIFORM, -1, 3);
    gw_vid g = gw_case_value(c, gd, true, GW_FILL_UNIFORM, 0.5, 1.5);
    gw_vid mean = gw_case_fixed(c, stat, rows, GW_FILL_UNIFORM, 0.8, 1.2);
    gw_vid rstd = gw_case_fixed(c, stat, rows, GW_FILL_UNIFORM, 0.7, 1.1);
    gw_vid ag = acc ? gw_case_fixed(c, GW_F32, gd, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_vid ab = acc ? gw_case_fixed(c, GW_F32, gd, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build1(&c->b, "layernorm_grad", dy, x, g, mean, rstd, ag, ab);
}

static void grad_cases(gw_cases *cs) {
    grad_case(cs, "plain", "b2 s3 d5", "b2 s3", "d5", false);
    grad_case(cs, "accumulates", "s5 d37", "s5", "d37", true);
}

const gw_opdef gw_opdef_layernorm_grad = {
    .name = "layernorm_grad",
    .doc = "gradient of layernorm: of x, and of gain and bias into accumulators",
    .signature = "*!d,*!d,!d,*,*,!d?,!d?->*!d,!d,!d",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 7,
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
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

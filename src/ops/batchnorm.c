// SPDX-License-Identifier: Apache-2.0
// batchnorm: y = (x - mean) / sqrt(var + eps) * gain + bias, where mean and var are those of each
// channel over a group of samples; its statistics; and its gradient.
//
// Ioffe and Szegedy, "Batch normalization", 2015; torch.nn.BatchNorm2d. x is [b .. c], one channel
// last. A row is everything of x before c; the samples b are cut into `groups` runs of equal length
// and each has its own statistics, [group c] (or [c] of a single one):
//   groups = 1  all samples of the micro-batch, whoever holds them: SyncBatchNorm
//   groups = n  as if n workers each looked at its own b/n samples alone: what data parallelism
//               gives when nothing is synchronised; here a function of the batch, the same on one
//               worker
//
// Nothing here knows a worker. The forward pass is three ops, and so is the backward one, because
// what stands between them is a sum over samples:
//   bn_mean         mean[group c] = sum of x / n              n: rows of a group, on all ranks
//   bn_var          var[group c]  = sum of (x - mean)^2 / n   (the biased variance)
//   batchnorm       y
//   batchnorm_sums  s1[group c] = sum of dy, s2[group c] = sum of dy * xhat
//                   with xhat = (x - mean) / sqrt(var + eps)
//   batchnorm_dx    dx = gain / sqrt(var + eps) * (dy - s1 / n - xhat * s2 / n)
//   sum_groups      dgain[c] = sum over groups of s2, dbias = that of s1   (+ acc)
// With one group and b sharded the sums come out partial, and whoever reads them first asks for the
// whole: that all-reduce of c numbers is all of SyncBatchNorm. n is the global count, a constant,
// so the partial sums are already divided. The variance is a second pass over x, around the mean:
// no cancellation, and no merging of pairs. With n groups cut as b is, they are cut together with b
// (`with` in its factor) and nothing is partial.
//
// mean and var are not differentiated by themselves: with `batch` the gradient of batchnorm goes
// through them (they must be those of x), without it they are constants (running statistics, in
// evaluation and in training with frozen norms).
//
// Statistics are float32 beside narrow values and float64 beside float64. Work by convention:
// 1 flop an element for mean, 3 for var, 4 for batchnorm, 5 for each half of backward.
#include "ops/batchnorm.h"

#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_batchnorm */
#include "ops/ref.h"    /* gw_ref_get */

static const gw_attr_def mean_attrs[] = {
    {"groups", GW_ATTR_INT, 1, 0}, /* of samples, each with its own statistics */
};
enum { EPS, BATCH };
static const gw_attr_def attrs[] = {
    {"eps", GW_ATTR_FLOAT, 0, 1e-5},
    {"batch", GW_ATTR_BOOL, 1, 0}, /* mean and var are those of x; false: constants */
};
static const gw_attr_def sums_attrs[] = {
    {"eps", GW_ATTR_FLOAT, 0, 1e-5},
};
static const gw_attr_def groups_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of the sum */
};

/* ---- shapes ---- */

gw_bn_shape gw_bn_shape_of(const gw_kargs *k, int x, const gw_tensor *stat, int64_t global_groups) {
    const gw_tensor *t = &k->in[x];
    const gw_type *whole = gw_type_of(k->g, gw_op_in(k->g, k->op, x));
    int64_t c = t->dims[t->ndim - 1], groups = stat->ndim == 2 ? stat->dims[0] : 1;
    int64_t all = 1;
    for (int i = 0; i + 1 < whole->ndim; i++) all *= whole->dims[i].size;
    int64_t rows = c ? t->elems / c : 0;
    GW_ASSERT(groups > 0 && rows % groups == 0);
    return (gw_bn_shape){groups, rows / groups, c, (double)(all / global_groups)};
}

int64_t gw_bn_groups(const gw_graph *g, gw_vid stat) {
    const gw_type *t = gw_type_of(g, stat);
    return t->ndim == 2 ? t->dims[0].size : 1;
}

double gw_bn_rstd(double var, double eps) { return 1 / sqrt(var + eps); }

/* Groups of the whole op: the size of the first dim of the statistic at input or output. */
static gw_bn_shape shape_by_input(const gw_kargs *k, int x, int stat) {
    return gw_bn_shape_of(k, x, &k->in[stat], gw_bn_groups(k->g, gw_op_in(k->g, k->op, stat)));
}

static gw_status want_image(gw_infer *f, int i) {
    GW_TRY(gw_infer_want_float(f, i));
    return gw_infer_want_ndim(f, i, 2, GW_MAX_DIMS);
}

/* The samples of input x can be cut into `groups`. */
static gw_status want_groups(gw_infer *f, int x, int64_t groups) {
    const gw_type *t = gw_infer_in(f, x);
    if (groups >= 1 && t->dims[0].size % groups == 0) return GW_OK;
    char a[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                   "%s: the samples of input %d, %s, cannot be cut into %lld equal groups",
                   f->def->name, x, gw_type_text(t, a), (long long)groups);
}

/* Input i is a statistic [group c], or [c] of a single group, of the images at input x. */
static gw_status want_stat(gw_infer *f, int i, int x) {
    GW_TRY(gw_infer_want_float(f, i));
    GW_TRY(gw_infer_want_ndim(f, i, 1, 2));
    GW_TRY(gw_infer_want_dim(f, i, gw_infer_in(f, i)->ndim - 1, x, gw_infer_in(f, x)->ndim - 1));
    return want_groups(f, x, gw_bn_groups(f->g, f->in[i]));
}

/* Input i is a vector over the channels of input x. */
static gw_status want_channels(gw_infer *f, int i, int x) {
    GW_TRY(gw_infer_want_float(f, i));
    GW_TRY(gw_infer_want_ndim(f, i, 1, 1));
    return gw_infer_want_dim(f, i, 0, x, gw_infer_in(f, x)->ndim - 1);
}

static gw_type stat_type(const gw_type *x, int64_t groups) {
    gw_type t = gw_type_scalar(gw_dtype_stat((gw_dtype)x->dtype));
    const gw_dim *c = &x->dims[x->ndim - 1];
    gw_type_add(&t, "group", groups);
    gw_type_add(&t, c->name, c->size);
    return t;
}

/* Named factors as usual. The groups are groups of the samples of input x: cut where those are; a
 * single one is whole, and holds what all samples sum up to. */
static void sign_of(const gw_graph *g, const gw_op *o, int x, gw_signature *s) {
    const gw_dim *b = &gw_type_of(g, gw_op_in(g, o, x))->dims[0];
    gw_sign_default(g, o, s);
    gw_factor *samples = NULL, *groups = NULL;
    for (int i = 0; i < s->nfactors; i++) {
        if (strcmp(s->factors[i].name, b->name) == 0) samples = &s->factors[i];
        if (strcmp(s->factors[i].name, "group") == 0) groups = &s->factors[i];
    }
    if (!samples || !groups || samples == groups) return;
    if (groups->size == 1) {
        groups->kind = GW_FACTOR_WHOLE;
        return;
    }
    groups->kind = samples->kind = GW_FACTOR_PASS;
    memcpy(groups->with, b->name, sizeof groups->with);
}

static void sign_first(const gw_graph *g, const gw_op *o, gw_signature *s) { sign_of(g, o, 0, s); }
static void sign_second(const gw_graph *g, const gw_op *o, gw_signature *s) { sign_of(g, o, 1, s); }

static void cost_of(const gw_graph *g, const gw_op *o, double flops, gw_cost *c) {
    gw_cost_set(g, o, flops * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

/* Images and the number of groups their samples are cut into. */
static const struct shape {
    const char *name, *x, *stat, *c;
    int64_t groups;
} shapes[] = {
    {"one group", "b3 y2 x3 c5", "group1 c5", "c5", 1},
    {"two groups", "b4 y2 x1 c19", "group2 c19", "c19", 2},
    {"no image", "b6 c3", "group3 c3", "c3", 3},
    {"many rows", "b2 y9 x7 c33", "group1 c33", "c33", 1},
    {"one, flat", "b3 y2 x2 c4", "c4", "c4", 1},
};

/* Their sums, always with groups. */
static const char *const sums_of[GW_COUNT(shapes)] = {"group1 c5", "group2 c19", "group3 c3",
                                                      "group1 c33", "group1 c4"};

/* ---- bn_mean: x -> mean ---- */

static gw_status mean_infer(gw_infer *f) {
    GW_TRY(want_image(f, 0));
    GW_TRY(want_groups(f, 0, f->attrs[0].i));
    f->out[0] = stat_type(gw_infer_in(f, 0), f->attrs[0].i);
    return GW_OK;
}

static void mean_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 1, c); }

static void mean_reference(const gw_kargs *k) {
    gw_bn_shape s = gw_bn_shape_of(k, 0, &k->out[0], gw_ref_attr(k, 0).i);
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t c = 0; c < s.c; c++) {
            double sum = 0;
            for (int64_t r = 0; r < s.rows; r++)
                sum += gw_ref_get(&k->in[0], (g * s.rows + r) * s.c + c);
            gw_ref_set(&k->out[0], g * s.c + c, sum / s.count);
        }
}

static void mean_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_UNIFORM, -1, 3);
        gw_build(&c->b, "bn_mean", &x, 1, (gw_attr[]){{.i = shapes[i].groups}}, NULL);
    }
}

const gw_opdef gw_opdef_bn_mean = {
    .name = "bn_mean",
    .doc = "mean of each channel over each group of samples",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = mean_attrs,
    .infer = mean_infer,
    .verify = gw_verify_default,
    .sign = sign_first,
    .shard = gw_shard_default,
    .cost = mean_cost,
    .vjp = gw_vjp_none,
    .reference = mean_reference,
    .cases = mean_cases,
};

/* ---- bn_var: x, mean -> var ---- */

static gw_status var_infer(gw_infer *f) {
    GW_TRY(want_image(f, 0));
    GW_TRY(want_stat(f, 1, 0));
    f->out[0] = stat_type(gw_infer_in(f, 0), gw_bn_groups(f->g, f->in[1]));
    return GW_OK;
}

static void var_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 3, c); }

static void var_reference(const gw_kargs *k) {
    gw_bn_shape s = shape_by_input(k, 0, 1);
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t c = 0; c < s.c; c++) {
            double sum = 0, mean = gw_ref_get(&k->in[1], g * s.c + c);
            for (int64_t r = 0; r < s.rows; r++) {
                double d = gw_ref_get(&k->in[0], (g * s.rows + r) * s.c + c) - mean;
                sum += d * d;
            }
            gw_ref_set(&k->out[0], g * s.c + c, sum / s.count);
        }
}

static void var_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_UNIFORM, -1, 3);
        gw_vid m =
            gw_case_fixed(c, gw_dtype_stat(cs->dtype), shapes[i].stat, GW_FILL_UNIFORM, 0, 2);
        gw_build1(&c->b, "bn_var", x, m);
    }
}

const gw_opdef gw_opdef_bn_var = {
    .name = "bn_var",
    .doc = "mean square of each channel's distance from its mean, over each group of samples",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = var_infer,
    .verify = gw_verify_default,
    .sign = sign_first,
    .shard = gw_shard_default,
    .cost = var_cost,
    .vjp = gw_vjp_none,
    .reference = var_reference,
    .cases = var_cases,
};

/* ---- batchnorm: x, mean, var, gain, bias -> y ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(want_image(f, 0));
    GW_TRY(want_stat(f, 1, 0));
    GW_TRY(want_stat(f, 2, 0));
    GW_TRY(gw_infer_want_same_dims(f, 2, 1));
    GW_TRY(want_channels(f, 3, 0));
    GW_TRY(want_channels(f, 4, 0));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 4, c); }

static void vjp(gw_vjp *v) {
    bool batch = v->attrs[BATCH].i != 0, wants_sums = v->want[3] || v->want[4];
    gw_vid s1 = GW_NONE, s2 = GW_NONE;
    if (wants_sums || (v->want[0] && batch)) {
        gw_vid in[4] = {v->dout[0], v->in[0], v->in[1], v->in[2]};
        s1 = gw_vjp_build(v, GW_PHASE_B, "batchnorm_sums", in, 4, &v->attrs[EPS], &s2);
    }
    /* Before dx, which wants the sums whole: gradients of parameters stay partial. */
    for (int i = 3; i < 5; i++) {
        if (!v->want[i]) continue;
        gw_attr a = {.i = gw_vjp_dtype(v, i)};
        v->din[i] =
            gw_vjp_build(v, gw_vjp_phase(v, i), "sum_groups", i == 3 ? &s2 : &s1, 1, &a, NULL);
    }
    if (v->want[0]) {
        gw_vid in[7] = {v->dout[0], v->in[0], v->in[1], v->in[2], v->in[3], GW_NONE, GW_NONE};
        if (batch) {
            in[5] = s1;
            in[6] = s2;
        }
        v->din[0] = gw_vjp_build(v, GW_PHASE_B, "batchnorm_dx", in, 7, &v->attrs[EPS], NULL);
    }
}

static void reference(const gw_kargs *k) {
    gw_bn_shape s = shape_by_input(k, 0, 1);
    double eps = gw_ref_attr(k, EPS).f;
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t c = 0; c < s.c; c++) {
            double mean = gw_ref_get(&k->in[1], g * s.c + c);
            double scale =
                gw_bn_rstd(gw_ref_get(&k->in[2], g * s.c + c), eps) * gw_ref_get(&k->in[3], c);
            for (int64_t r = 0; r < s.rows; r++) {
                int64_t at = (g * s.rows + r) * s.c + c;
                gw_ref_set(&k->out[0], at,
                           (gw_ref_get(&k->in[0], at) - mean) * scale + gw_ref_get(&k->in[4], c));
            }
        }
}

/* batch: through the statistics of x. Otherwise statistics that are leaves. */
static void build_case(gw_cases *cs, size_t i, bool batch) {
    char name[40];
    snprintf(name, sizeof name, "%s%s", shapes[i].name, batch ? "" : ", constants");
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype stat = gw_dtype_stat(cs->dtype);
    gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_UNIFORM, -1, 3), m, v;
    gw_vid gain = gw_case_value(c, shapes[i].c, true, GW_FILL_UNIFORM, 0.5, 1.5);
    gw_vid bias = gw_case_value(c, shapes[i].c, true, GW_FILL_NORMAL, 1, 0);
    if (batch) {
        m = gw_build(&c->b, "bn_mean", &x, 1, (gw_attr[]){{.i = shapes[i].groups}}, NULL);
        v = gw_build1(&c->b, "bn_var", x, m);
    } else {
        m = gw_case_fixed(c, stat, shapes[i].stat, GW_FILL_NORMAL, 1, 0);
        v = gw_case_fixed(c, stat, shapes[i].stat, GW_FILL_UNIFORM, 0.5, 2);
    }
    gw_build(&c->b, "batchnorm", (gw_vid[]){x, m, v, gain, bias}, 5,
             (gw_attr[]){{.f = 1e-3}, {.i = batch}}, NULL);
}

static void cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        build_case(cs, i, true);
        build_case(cs, i, false);
    }
}

const gw_opdef gw_opdef_batchnorm = {
    .name = "batchnorm",
    .doc = "norm of each channel by the statistics of a group of samples, with gain and bias",
    .signature = "",
    .traits = GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 5,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0xf,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = sign_first,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- batchnorm_sums: dy, x, mean, var -> s1, s2 ---- */

static gw_status sums_infer(gw_infer *f) {
    GW_TRY(want_image(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    GW_TRY(want_stat(f, 2, 1));
    GW_TRY(want_stat(f, 3, 1));
    GW_TRY(gw_infer_want_same_dims(f, 3, 2));
    f->out[0] = f->out[1] = stat_type(gw_infer_in(f, 1), gw_bn_groups(f->g, f->in[2]));
    return GW_OK;
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 5, c); }

static void sums_reference(const gw_kargs *k) {
    gw_bn_shape s = shape_by_input(k, 1, 2);
    double eps = gw_ref_attr(k, EPS).f;
    for (int64_t j = 0; j < s.groups * s.c; j++) {
        double s1 = 0, s2 = 0, mean = gw_ref_get(&k->in[2], j);
        for (int64_t r = 0; r < s.rows; r++) {
            int64_t at = (j / s.c * s.rows + r) * s.c + j % s.c;
            double dy = gw_ref_get(&k->in[0], at);
            s1 += dy;
            s2 += dy * (gw_ref_get(&k->in[1], at) - mean);
        }
        gw_ref_set(&k->out[0], j, s1);
        gw_ref_set(&k->out[1], j, s2 * gw_bn_rstd(gw_ref_get(&k->in[3], j), eps));
    }
}

/* dy, x, mean, var as leaves. */
static gw_case *begin_grad(gw_cases *cs, size_t i, const char *note, gw_vid in[4]) {
    char name[40];
    snprintf(name, sizeof name, "%s%s", shapes[i].name, note);
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype stat = gw_dtype_stat(cs->dtype);
    in[0] = gw_case_value(c, shapes[i].x, false, GW_FILL_NORMAL, 1, 0);
    in[1] = gw_case_value(c, shapes[i].x, false, GW_FILL_UNIFORM, -1, 3);
    in[2] = gw_case_fixed(c, stat, shapes[i].stat, GW_FILL_UNIFORM, 0, 2);
    in[3] = gw_case_fixed(c, stat, shapes[i].stat, GW_FILL_UNIFORM, 0.5, 2);
    return c;
}

static void sums_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_vid in[4];
        gw_case *c = begin_grad(cs, i, "", in);
        gw_build(&c->b, "batchnorm_sums", in, 4, (gw_attr[]){{.f = 1e-3}}, NULL);
    }
}

const gw_opdef gw_opdef_batchnorm_sums = {
    .name = "batchnorm_sums",
    .doc = "sums over each group that the gradient of batchnorm needs",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 4,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = sums_attrs,
    .infer = sums_infer,
    .verify = gw_verify_default,
    .sign = sign_second,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = sums_reference,
    .cases = sums_cases,
};

/* ---- batchnorm_dx: dy, x, mean, var, gain, s1?, s2? -> dx ---- */

static gw_status dx_infer(gw_infer *f) {
    GW_TRY(want_image(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    GW_TRY(want_stat(f, 2, 1));
    GW_TRY(want_stat(f, 3, 1));
    GW_TRY(gw_infer_want_same_dims(f, 3, 2));
    GW_TRY(want_channels(f, 4, 1));
    for (int i = 5; i < 7; i++) {
        if (gw_infer_has(f, i) != gw_infer_has(f, 5))
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-input",
                           "batchnorm_dx: inputs 5 and 6 come together or not at all");
        if (!gw_infer_has(f, i)) continue;
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 2, 2));
        GW_TRY(want_stat(f, i, 1));
        if (gw_bn_groups(f->g, f->in[i]) != gw_bn_groups(f->g, f->in[2]))
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                           "batchnorm_dx: the sums and the statistics have other groups");
    }
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void dx_reference(const gw_kargs *k) {
    gw_bn_shape s = shape_by_input(k, 1, 2);
    double eps = gw_ref_attr(k, EPS).f;
    for (int64_t j = 0; j < s.groups * s.c; j++) {
        double mean = gw_ref_get(&k->in[2], j), rstd = gw_bn_rstd(gw_ref_get(&k->in[3], j), eps);
        double s1 = gw_ref_acc(k, 5, j) / s.count, s2 = gw_ref_acc(k, 6, j) / s.count;
        double scale = rstd * gw_ref_get(&k->in[4], j % s.c);
        for (int64_t r = 0; r < s.rows; r++) {
            int64_t at = (j / s.c * s.rows + r) * s.c + j % s.c;
            double xhat = (gw_ref_get(&k->in[1], at) - mean) * rstd;
            gw_ref_set(&k->out[0], at, scale * (gw_ref_get(&k->in[0], at) - s1 - xhat * s2));
        }
    }
}

static void dx_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++)
        for (int batch = 0; batch < 2; batch++) {
            gw_vid in[7] = {0, 0, 0, 0, 0, GW_NONE, GW_NONE};
            gw_case *c = begin_grad(cs, i, batch ? "" : ", constants", in);
            in[4] = gw_case_value(c, shapes[i].c, true, GW_FILL_UNIFORM, 0.5, 1.5);
            for (int j = 5; j < 7 && batch; j++)
                in[j] =
                    gw_case_fixed(c, gw_dtype_stat(cs->dtype), sums_of[i], GW_FILL_NORMAL, 5, 0);
            gw_build(&c->b, "batchnorm_dx", in, 7, (gw_attr[]){{.f = 1e-3}}, NULL);
        }
}

const gw_opdef gw_opdef_batchnorm_dx = {
    .name = "batchnorm_dx",
    .doc = "gradient of batchnorm's x; without the sums, as if its statistics were constants",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_INPLACE | GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 7,
    .nout = 1,
    .noptional = 2,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = sums_attrs,
    .infer = dx_infer,
    .verify = gw_verify_default,
    .sign = sign_second,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = dx_reference,
    .cases = dx_cases,
};

/* ---- sum_groups: s[group c], acc? -> y[c] ---- */

static gw_status groups_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 2, 2));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    const gw_dim *c = &gw_infer_in(f, 0)->dims[1];
    f->out[0] = gw_type_scalar(dtype);
    gw_type_add(&f->out[0], c->name, c->size);
    return gw_infer_want_acc(f, 1, &f->out[0]);
}

static void groups_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { cost_of(g, o, 1, c); }

static void groups_reference(const gw_kargs *k) {
    int64_t groups = k->in[0].dims[0], n = k->in[0].dims[1];
    for (int64_t c = 0; c < n; c++) {
        double sum = 0;
        for (int64_t g = 0; g < groups; g++) sum += gw_ref_get(&k->in[0], g * n + c);
        gw_ref_set(&k->out[0], c, gw_ref_acc(k, 1, c) + sum);
    }
}

static void groups_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid s = gw_case_value(c, sums_of[i], false, GW_FILL_NORMAL, 1, 0);
        gw_vid acc = i % 2 ? gw_case_fixed(c, GW_F32, shapes[i].c, GW_FILL_NORMAL, 1, 0) : GW_NONE;
        gw_build(&c->b, "sum_groups", (gw_vid[]){s, acc}, 2, (gw_attr[]){{.i = GW_F32}}, NULL);
    }
}

const gw_opdef gw_opdef_sum_groups = {
    .name = "sum_groups",
    .doc = "sum over groups of samples, into an accumulator",
    .signature = "gc,c?->c",
    .traits = GW_OP_NODIFF | GW_OP_LINEAR,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = groups_attrs,
    .infer = groups_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = groups_cost,
    .vjp = gw_vjp_none,
    .reference = groups_reference,
    .cases = groups_cases,
};

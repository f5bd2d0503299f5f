// SPDX-License-Identifier: Apache-2.0
// maxpool: the largest value under a window, per channel; avgpool: the mean of a whole image, per
// channel; and their gradients.
//
//   maxpool  y[b, p, q, c] = max over i, j < size of x[b, p s - pad + i, q s - pad + j, c]
// over the part of the window inside the image (torch.nn.MaxPool2d). Of equal values the first in
// reading order is meant, and a NaN is larger than anything. Its gradient gives dy to that position
// and finds it again from x: an index would cost as much memory as y.
//   avgpool  y[b, c] = mean over the image (torch.nn.AdaptiveAvgPool2d(1), flattened)
// Its gradient spreads dy evenly; the size of the image is an attribute there.
//
// b and c pass a sharding; the image is whole. One flop for each value looked at.
#include <math.h>
#include <string.h>

#include "ops/cases.h"  /* gw_case_begin */
#include "ops/conv2d.h" /* gw_conv_out */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_maxpool */
#include "ops/ref.h"    /* gw_ref_get */

enum { SIZE, STRIDE, PAD };
static const gw_attr_def max_attrs[] = {
    {"size", GW_ATTR_INT, 3, 0}, /* of the window */
    {"stride", GW_ATTR_INT, 2, 0},
    {"pad", GW_ATTR_INT, 1, 0}, /* at most half a window */
};
enum { HEIGHT, WIDTH };
static const gw_attr_def avg_grad_attrs[] = {
    {"height", GW_ATTR_INT, 1, 0},
    {"width", GW_ATTR_INT, 1, 0},
};

static void add_factor(gw_signature *s, const char *name, const gw_graph *g, gw_vid v, int d,
                       gw_factor_kind kind, int in0, int in1, int out) {
    gw_factor *f = gw_sign_add(s, name, gw_type_of(g, v)->dims[d].size, kind);
    f->in_dim[0] = (int8_t)in0;
    f->in_dim[1] = (int8_t)in1;
    f->out_dim[0] = (int8_t)out;
}

/* ---- maxpool: x -> y ---- */

static gw_status pooled_type(gw_infer *f, const gw_type *x, gw_type *y) {
    int64_t size = f->attrs[SIZE].i, stride = f->attrs[STRIDE].i, pad = f->attrs[PAD].i, n[2];
    if (size < 1 || size > 1 << 20 || stride < 1 || stride > 1 << 20 || pad < 0 || pad > size / 2)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr",
                       "%s: size %lld and stride %lld must be at least 1, pad %lld at most half "
                       "of size",
                       f->def->name, (long long)size, (long long)stride, (long long)pad);
    for (int i = 0; i < 2; i++) {
        int64_t side = x->dims[1 + i].size;
        n[i] = side < 0 || side > INT64_C(1) << 40 ? 0 : gw_conv_out(side, size, stride, pad);
        if (n[i] < 1)
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                           "%s: a window of %lld does not fit into a side of %lld with pad %lld",
                           f->def->name, (long long)size, (long long)side, (long long)pad);
    }
    *y = gw_type_plain(x, (gw_dtype)x->dtype);
    y->dims[1].size = n[0];
    y->dims[2].size = n[1];
    return GW_OK;
}

static gw_status max_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    return pooled_type(f, gw_infer_in(f, 0), &f->out[0]);
}

static void max_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_vid x = gw_op_in(g, o, 0), y = gw_op_out(g, o, 0);
    memset(s, 0, sizeof *s);
    add_factor(s, "b", g, x, 0, GW_FACTOR_PASS, 0, -1, 0);
    add_factor(s, "c", g, x, 3, GW_FACTOR_PASS, 3, -1, 3);
    add_factor(s, "y", g, x, 1, GW_FACTOR_WHOLE, 1, -1, -1);
    add_factor(s, "x", g, x, 2, GW_FACTOR_WHOLE, 2, -1, -1);
    add_factor(s, "p", g, y, 1, GW_FACTOR_WHOLE, -1, -1, 1);
    add_factor(s, "q", g, y, 2, GW_FACTOR_WHOLE, -1, -1, 2);
}

static void window_cost(const gw_graph *g, const gw_op *o, gw_vid y, gw_cost *c) {
    double size = (double)gw_op_attr(g, o, SIZE).i;
    gw_cost_set(g, o, size * size * (double)gw_cost_elems(g, y), c);
}

static void max_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    window_cost(g, o, gw_op_out(g, o, 0), c);
}

static void max_vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[2] = {v->dout[0], v->in[0]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "maxpool_grad", in, 2, v->attrs, NULL);
}

/* Index in x of the largest value under the window of output (b, p, q), channel c. */
static int64_t largest(const gw_kargs *k, const gw_tensor *x, int64_t b, int64_t p, int64_t q,
                       int64_t c) {
    int64_t size = gw_ref_attr(k, SIZE).i, pad = gw_ref_attr(k, PAD).i, best = -1;
    int64_t y0 = p * gw_ref_attr(k, STRIDE).i - pad, x0 = q * gw_ref_attr(k, STRIDE).i - pad;
    double most = -HUGE_VAL;
    for (int64_t i = GW_MAX(y0, 0); i < GW_MIN(y0 + size, x->dims[1]); i++)
        for (int64_t j = GW_MAX(x0, 0); j < GW_MIN(x0 + size, x->dims[2]); j++) {
            int64_t at = ((b * x->dims[1] + i) * x->dims[2] + j) * x->dims[3] + c;
            double v = gw_ref_get(x, at);
            if (best >= 0 && !(v > most) && !isnan(v)) continue;
            most = v;
            best = at;
        }
    return best;
}

static void max_reference(const gw_kargs *k) {
    const gw_tensor *y = &k->out[0];
    int64_t n = 0;
    for (int64_t b = 0; b < y->dims[0]; b++)
        for (int64_t p = 0; p < y->dims[1]; p++)
            for (int64_t q = 0; q < y->dims[2]; q++)
                for (int64_t c = 0; c < y->dims[3]; c++)
                    gw_ref_set(y, n++, gw_ref_get(&k->in[0], largest(k, &k->in[0], b, p, q, c)));
}

static const struct shape {
    const char *name, *x, *y;
    int64_t size, stride, pad;
} shapes[] = {
    {"3, stride 2", "b2 y5 x6 c3", "b2 y3 x3 c3", 3, 2, 1},
    {"2, stride 2", "b1 y4 x4 c19", "b1 y2 x2 c19", 2, 2, 0},
    {"overlapping", "b1 y4 x3 c5", "b1 y4 x3 c5", 3, 1, 1},
    {"one pixel", "b2 y1 x1 c67", "b2 y1 x1 c67", 3, 2, 1},
};

static void max_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_NORMAL, 1, 0);
        gw_attr a[3] = {{.i = shapes[i].size}, {.i = shapes[i].stride}, {.i = shapes[i].pad}};
        gw_build(&c->b, "maxpool", &x, 1, a, NULL);
    }
}

const gw_opdef gw_opdef_maxpool = {
    .name = "maxpool",
    .doc = "largest value under a window, per channel",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x1,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = max_attrs,
    .infer = max_infer,
    .verify = gw_verify_default,
    .sign = max_sign,
    .shard = gw_shard_default,
    .cost = max_cost,
    .vjp = max_vjp,
    .reference = max_reference,
    .cases = max_cases,
};

/* ---- maxpool_grad: dy, x -> dx ---- */

static gw_status max_grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_ndim(f, 1, 4, 4));
    const gw_type *dy = gw_infer_in(f, 0), *x = gw_infer_in(f, 1);
    gw_type y;
    GW_TRY(pooled_type(f, x, &y));
    char a[128], b[128];
    if (!gw_type_same_dims(dy, &y))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "maxpool_grad: dy, %s, is not what pooling makes of x, %s",
                       gw_type_text(dy, a), gw_type_text(x, b));
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    return GW_OK;
}

static void max_grad_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_vid dy = gw_op_in(g, o, 0), x = gw_op_in(g, o, 1);
    memset(s, 0, sizeof *s);
    add_factor(s, "b", g, x, 0, GW_FACTOR_PASS, 0, 0, 0);
    add_factor(s, "c", g, x, 3, GW_FACTOR_PASS, 3, 3, 3);
    add_factor(s, "y", g, x, 1, GW_FACTOR_WHOLE, -1, 1, 1);
    add_factor(s, "x", g, x, 2, GW_FACTOR_WHOLE, -1, 2, 2);
    add_factor(s, "p", g, dy, 1, GW_FACTOR_WHOLE, 1, -1, -1);
    add_factor(s, "q", g, dy, 2, GW_FACTOR_WHOLE, 2, -1, -1);
}

static void max_grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    window_cost(g, o, gw_op_in(g, o, 0), c);
}

/* The gradient of one value of x: the sum of dy over the windows in which it is the largest. It is
 * gathered, so that each element is rounded once. */
static double given_to(const gw_kargs *k, int64_t b, int64_t i, int64_t j, int64_t c) {
    const gw_tensor *dy = &k->in[0], *x = &k->in[1];
    int64_t size = gw_ref_attr(k, SIZE).i, stride = gw_ref_attr(k, STRIDE).i;
    int64_t pad = gw_ref_attr(k, PAD).i;
    int64_t me = ((b * x->dims[1] + i) * x->dims[2] + j) * x->dims[3] + c;
    int64_t p0 = GW_MAX(0, (i + pad - size + stride) / stride);
    int64_t q0 = GW_MAX(0, (j + pad - size + stride) / stride);
    double sum = 0;
    for (int64_t p = p0; p < dy->dims[1] && p * stride - pad <= i; p++)
        for (int64_t q = q0; q < dy->dims[2] && q * stride - pad <= j; q++)
            if (largest(k, x, b, p, q, c) == me)
                sum += gw_ref_get(dy, ((b * dy->dims[1] + p) * dy->dims[2] + q) * dy->dims[3] + c);
    return sum;
}

static void max_grad_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[1];
    int64_t n = 0;
    for (int64_t b = 0; b < x->dims[0]; b++)
        for (int64_t i = 0; i < x->dims[1]; i++)
            for (int64_t j = 0; j < x->dims[2]; j++)
                for (int64_t c = 0; c < x->dims[3]; c++)
                    gw_ref_set(&k->out[0], n++, given_to(k, b, i, j, c));
}

static void max_grad_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid dy = gw_case_value(c, shapes[i].y, false, GW_FILL_NORMAL, 1, 0);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_NORMAL, 1, 0);
        gw_attr a[3] = {{.i = shapes[i].size}, {.i = shapes[i].stride}, {.i = shapes[i].pad}};
        gw_build(&c->b, "maxpool_grad", (gw_vid[]){dy, x}, 2, a, NULL);
    }
    /* Of equal values (here most are) the first is meant. */
    gw_case *c = gw_case_begin(cs, "equal values");
    gw_vid dy = gw_case_value(c, "b1 y3 x3 c9", false, GW_FILL_NORMAL, 1, 0);
    gw_vid x = gw_case_value(c, "b1 y5 x6 c9", false, GW_FILL_INTS, 0, 3);
    gw_build(&c->b, "maxpool_grad", (gw_vid[]){dy, x}, 2, (gw_attr[]){{.i = 3}, {.i = 2}, {.i = 1}},
             NULL);
}

const gw_opdef gw_opdef_maxpool_grad = {
    .name = "maxpool_grad",
    .doc = "gradient of maxpool: to the first of the largest values of each window",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = max_attrs,
    .infer = max_grad_infer,
    .verify = gw_verify_default,
    .sign = max_grad_sign,
    .shard = gw_shard_default,
    .cost = max_grad_cost,
    .vjp = gw_vjp_none,
    .reference = max_grad_reference,
    .cases = max_grad_cases,
};

/* ---- avgpool: x[b y x c] -> y[b c] ---- */

static gw_status avg_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    const gw_type *x = gw_infer_in(f, 0);
    char t[128];
    if (strcmp(x->dims[1].name, "y") != 0 || strcmp(x->dims[2].name, "x") != 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dim-name",
                       "avgpool: input 0, %s, must be an image with dimensions y and x",
                       gw_type_text(x, t));
    f->out[0] = gw_type_scalar((gw_dtype)x->dtype);
    gw_type_add(&f->out[0], x->dims[0].name, x->dims[0].size);
    gw_type_add(&f->out[0], x->dims[3].name, x->dims[3].size);
    return GW_OK;
}

static void avg_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double in = (double)gw_cost_elems(g, gw_op_in(g, o, 0));
    gw_cost_set(g, o, GW_MAX(in, (double)gw_cost_elems(g, gw_op_out(g, o, 0))), c);
}

static void avg_vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    const gw_type *x = gw_type_of(v->g, v->in[0]);
    gw_attr a[2] = {{.i = x->dims[1].size}, {.i = x->dims[2].size}};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "avgpool_grad", &v->dout[0], 1, a, NULL);
}

static void avg_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0];
    int64_t pixels = x->dims[1] * x->dims[2], n = x->dims[3];
    for (int64_t b = 0; b < x->dims[0]; b++)
        for (int64_t c = 0; c < n; c++) {
            double sum = 0;
            for (int64_t p = 0; p < pixels; p++) sum += gw_ref_get(x, (b * pixels + p) * n + c);
            gw_ref_set(&k->out[0], b * n + c, sum / (double)pixels);
        }
}

static const struct avg_shape {
    const char *name, *x, *y;
    int64_t h, w;
} avg_shapes[] = {{"image", "b3 y3 x4 c5", "b3 c5", 3, 4},
                  {"one pixel", "b2 y1 x1 c37", "b2 c37", 1, 1}};

static void avg_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(avg_shapes); i++) {
        gw_case *c = gw_case_begin(cs, avg_shapes[i].name);
        gw_build1(&c->b, "avgpool",
                  gw_case_value(c, avg_shapes[i].x, false, GW_FILL_UNIFORM, -1, 3));
    }
}

/* The image is summed over, and whole: the mean is not linear bookkeeping that could be partial. */
static void avg_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++)
        if (strcmp(s->factors[i].name, "y") == 0 || strcmp(s->factors[i].name, "x") == 0)
            s->factors[i].kind = GW_FACTOR_WHOLE;
}

const gw_opdef gw_opdef_avgpool = {
    .name = "avgpool",
    .doc = "mean over the image, per channel",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = avg_infer,
    .verify = gw_verify_default,
    .sign = avg_sign,
    .shard = gw_shard_default,
    .cost = avg_cost,
    .vjp = avg_vjp,
    .reference = avg_reference,
    .cases = avg_cases,
};

/* ---- avgpool_grad: dy[b c] -> dx[b y x c] ---- */

static gw_status avg_grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 2, 2));
    const gw_type *dy = gw_infer_in(f, 0);
    int64_t h = f->attrs[HEIGHT].i, w = f->attrs[WIDTH].i;
    if (h < 1 || w < 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr",
                       "avgpool_grad: height %lld and width %lld must be at least 1", (long long)h,
                       (long long)w);
    f->out[0] = gw_type_scalar((gw_dtype)dy->dtype);
    gw_type_add(&f->out[0], dy->dims[0].name, dy->dims[0].size);
    gw_type_add(&f->out[0], "y", h);
    gw_type_add(&f->out[0], "x", w);
    gw_type_add(&f->out[0], dy->dims[1].name, dy->dims[1].size);
    return GW_OK;
}

static void avg_grad_reference(const gw_kargs *k) {
    const gw_tensor *dx = &k->out[0];
    int64_t pixels = dx->dims[1] * dx->dims[2], n = dx->dims[3];
    for (int64_t i = 0; i < dx->elems; i++) {
        int64_t b = i / (pixels * n), c = i % n;
        gw_ref_set(dx, i, gw_ref_get(&k->in[0], b * n + c) / (double)pixels);
    }
}

static void avg_grad_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(avg_shapes); i++) {
        gw_case *c = gw_case_begin(cs, avg_shapes[i].name);
        gw_vid dy = gw_case_value(c, avg_shapes[i].y, false, GW_FILL_NORMAL, 1, 0);
        gw_build(&c->b, "avgpool_grad", &dy, 1,
                 (gw_attr[]){{.i = avg_shapes[i].h}, {.i = avg_shapes[i].w}}, NULL);
    }
}

const gw_opdef gw_opdef_avgpool_grad = {
    .name = "avgpool_grad",
    .doc = "gradient of avgpool: spread evenly over the image",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = avg_grad_attrs,
    .infer = avg_grad_infer,
    .verify = gw_verify_default,
    .sign = avg_sign,
    .shard = gw_shard_default,
    .cost = avg_cost,
    .vjp = gw_vjp_none,
    .reference = avg_grad_reference,
    .cases = avg_grad_cases,
};

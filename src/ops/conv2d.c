// SPDX-License-Identifier: Apache-2.0
// conv2d: a layer of filters over an image, without bias; and its two gradients.
//
//   y[b, p, q, o] = sum over i, j, c of  x[b, p s - pad + i, q s - pad + j, c] * w[o, c, i, j]
// where x reads as zero outside the image: what deep learning calls a convolution (LeCun et al.,
// "Gradient-based learning applied to document recognition", 1998; torch.nn.Conv2d). Images are
// [b y x c], channels last: a pixel's channels are one row, so the norm after a convolution, the
// pooling and the loss all run along memory, and matrix units read them as they lie. Filters are [o
// c i j], as torchvision stores them.
//
// The dims that change their meaning keep their names: y has the dims b, y, x, c of x, with the
// sizes of the result, so that the next layer binds to them. Hence the factors of the signature are
// written out: `o` is the last dim of y and the first of w.
//
// Backward reads x and w:
//   conv2d_dx  dx[b, p s - pad + i, q s - pad + j, c] += dy[b, p, q, o] * w[o, c, i, j]
//   conv2d_dw  dw[o, c, i, j] = sum over b, p, q of dy[b, p, q, o] * x[b, p s - pad + i, .., c]
// The size of dx does not follow from that of dy when the stride is above 1, so it is an attribute.
// dw has the dtype of weight gradients and adds into an accumulator.
//
// A sharded b passes; in dw it makes a partial sum. Sharded input channels make y partial, sharded
// output channels pass. y and x are whole: a window reads across any cut.
//
// Numerics: sums of products in at least float32, one rounding. Work: 2 b p q o c i j, windows over
// the edge counted whole.
#include "ops/conv2d.h"

#include <string.h>

#include "base/panic.h" /* gw_panic */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_sign_add, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_conv2d */
#include "ops/ref.h"    /* gw_ref_get */

enum { STRIDE, PAD, HEIGHT, WIDTH, DTYPE };
static const gw_attr_def attrs[] = {
    {"stride", GW_ATTR_INT, 1, 0}, {"pad", GW_ATTR_INT, 0, 0}, /* zeros around the image */
};
static const gw_attr_def dx_attrs[] = {
    {"stride", GW_ATTR_INT, 1, 0},
    {"pad", GW_ATTR_INT, 0, 0},
    {"height", GW_ATTR_INT, 0, 0}, /* of the image */
    {"width", GW_ATTR_INT, 0, 0},
};
static const gw_attr_def dw_attrs[] = {
    {"stride", GW_ATTR_INT, 1, 0}, {"pad", GW_ATTR_INT, 0, 0},
    {"height", GW_ATTR_INT, 1, 0},                                      /* of a filter */
    {"width", GW_ATTR_INT, 1, 0},  {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dw */
};

/* ---- all three ---- */

gw_conv_args gw_conv_args_of(const gw_kargs *k) {
    const char *name = gw_op_def(k->g, k->op)->name;
    gw_conv_args a = {0};
    if (strcmp(name, "conv2d") == 0)
        a = (gw_conv_args){.x = &k->in[0], .w = &k->in[1], .y = &k->out[0]};
    else if (strcmp(name, "conv2d_dx") == 0)
        a = (gw_conv_args){.y = &k->in[0], .w = &k->in[1], .x = &k->out[0]};
    else if (strcmp(name, "conv2d_dw") == 0)
        a = (gw_conv_args){.y = &k->in[0], .x = &k->in[1], .w = &k->out[0]};
    else
        gw_panic("%s is no convolution", name);
    a.s = (gw_conv){.b = a.x->dims[0],
                    .h = a.x->dims[1],
                    .w = a.x->dims[2],
                    .c = a.x->dims[3],
                    .oh = a.y->dims[1],
                    .ow = a.y->dims[2],
                    .o = a.y->dims[3],
                    .kh = a.w->dims[2],
                    .kw = a.w->dims[3],
                    .stride = gw_op_attr(k->g, k->op, STRIDE).i,
                    .pad = gw_op_attr(k->g, k->op, PAD).i};
    return a;
}

static gw_status want_window(gw_infer *f) {
    int64_t stride = f->attrs[STRIDE].i, pad = f->attrs[PAD].i;
    if (stride >= 1 && stride < 1 << 20 && pad >= 0 && pad < 1 << 20) return GW_OK;
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr",
                   "%s: stride %lld must be at least 1, and pad %lld at least 0", f->def->name,
                   (long long)stride, (long long)pad);
}

static bool named(const gw_dim *d, const char *name) { return strcmp(d->name, name) == 0; }

/* Input i is a filter [o c i j] over the last dim of images at input j. */
static gw_status want_filter(gw_infer *f, int i) {
    GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
    const gw_type *w = gw_infer_in(f, i);
    if (named(&w->dims[0], "o") && named(&w->dims[2], "i") && named(&w->dims[3], "j")) return GW_OK;
    char t[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dim-name",
                   "%s: input %d, %s, must have the dimensions o, channels, i, j", f->def->name, i,
                   gw_type_text(w, t));
}

/* Images of h x w under filters of kh x kw give oh x ow; where not, says so. */
static gw_status want_sizes(gw_infer *f, const int64_t hw[2], const int64_t khw[2],
                            const int64_t out[2]) {
    for (int i = 0; i < 2; i++) {
        int64_t n = hw[i] < 0 || khw[i] < 1 || hw[i] > INT64_C(1) << 40
                        ? 0
                        : gw_conv_out(hw[i], khw[i], f->attrs[STRIDE].i, f->attrs[PAD].i);
        if (n < 1)
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                           "%s: a filter of %lld does not fit into a side of %lld with pad %lld",
                           f->def->name, (long long)khw[i], (long long)hw[i],
                           (long long)f->attrs[PAD].i);
        if (out && n != out[i])
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                           "%s: a side of %lld gives %lld, and the gradient has %lld", f->def->name,
                           (long long)hw[i], (long long)n, (long long)out[i]);
    }
    return GW_OK;
}

static void image_type(gw_type *out, const gw_type *like, gw_dtype dtype, int64_t h, int64_t w,
                       int64_t channels) {
    *out = gw_type_scalar(dtype);
    gw_type_add(out, like->dims[0].name, like->dims[0].size);
    gw_type_add(out, like->dims[1].name, h);
    gw_type_add(out, like->dims[2].name, w);
    gw_type_add(out, like->dims[3].name, channels);
}

/* One factor of the signature in up to three operands; a dim of -1 is none. Inputs 0 and 1, output
 * 0. */
static void factor(gw_signature *s, const char *name, int64_t size, gw_factor_kind kind, int in0,
                   int in1, int out) {
    gw_factor *f = gw_sign_add(s, name, size, kind);
    f->in_dim[0] = (int8_t)in0;
    f->in_dim[1] = (int8_t)in1;
    f->out_dim[0] = (int8_t)out;
}

static int64_t size_of(const gw_graph *g, gw_vid v, int d) {
    return gw_type_of(g, v)->dims[d].size;
}

static void cost_of(const gw_graph *g, const gw_op *o, gw_vid w, gw_vid y, gw_cost *c) {
    double per =
        (double)gw_cost_dim(g, w, 1) * (double)gw_cost_dim(g, w, 2) * (double)gw_cost_dim(g, w, 3);
    gw_cost_set(g, o, 2 * per * (double)gw_cost_elems(g, y), c);
}

/* Index of pixel (b, p, q) of an image tensor, of its first channel; -1 outside. */
static int64_t pixel(const gw_tensor *t, int64_t b, int64_t p, int64_t q) {
    if (p < 0 || q < 0 || p >= t->dims[1] || q >= t->dims[2]) return -1;
    return ((b * t->dims[1] + p) * t->dims[2] + q) * t->dims[3];
}

/* ---- conv2d: x, w -> y ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(want_filter(f, 1));
    GW_TRY(gw_infer_want_dim(f, 1, 1, 0, 3));
    GW_TRY(want_window(f));
    const gw_type *x = gw_infer_in(f, 0), *w = gw_infer_in(f, 1);
    int64_t hw[2] = {x->dims[1].size, x->dims[2].size}, khw[2] = {w->dims[2].size, w->dims[3].size};
    GW_TRY(want_sizes(f, hw, khw, NULL));
    int64_t s = f->attrs[STRIDE].i, p = f->attrs[PAD].i;
    image_type(&f->out[0], x, (gw_dtype)x->dtype, gw_conv_out(hw[0], khw[0], s, p),
               gw_conv_out(hw[1], khw[1], s, p), w->dims[0].size);
    return GW_OK;
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_vid x = gw_op_in(g, o, 0), w = gw_op_in(g, o, 1), y = gw_op_out(g, o, 0);
    memset(s, 0, sizeof *s);
    factor(s, "b", size_of(g, x, 0), GW_FACTOR_PASS, 0, -1, 0);
    factor(s, "o", size_of(g, w, 0), GW_FACTOR_PASS, -1, 0, 3);
    factor(s, "c", size_of(g, x, 3), GW_FACTOR_CONTRACT, 3, 1, -1);
    factor(s, "y", size_of(g, x, 1), GW_FACTOR_WHOLE, 1, -1, -1);
    factor(s, "x", size_of(g, x, 2), GW_FACTOR_WHOLE, 2, -1, -1);
    factor(s, "i", size_of(g, w, 2), GW_FACTOR_WHOLE, -1, 2, -1);
    factor(s, "j", size_of(g, w, 3), GW_FACTOR_WHOLE, -1, 3, -1);
    factor(s, "p", size_of(g, y, 1), GW_FACTOR_WHOLE, -1, -1, 1);
    factor(s, "q", size_of(g, y, 2), GW_FACTOR_WHOLE, -1, -1, 2);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, gw_op_in(g, o, 1), gw_op_out(g, o, 0), c);
}

static void vjp(gw_vjp *v) {
    const gw_type *x = gw_type_of(v->g, v->in[0]), *w = gw_type_of(v->g, v->in[1]);
    gw_attr s = v->attrs[STRIDE], p = v->attrs[PAD];
    if (v->want[0]) {
        gw_attr a[4] = {s, p, {.i = x->dims[1].size}, {.i = x->dims[2].size}};
        gw_vid in[2] = {v->dout[0], v->in[1]};
        v->din[0] = gw_vjp_build(v, GW_PHASE_B, "conv2d_dx", in, 2, a, NULL);
    }
    if (v->want[1]) {
        gw_attr a[5] = {
            s, p, {.i = w->dims[2].size}, {.i = w->dims[3].size}, {.i = gw_vjp_dtype(v, 1)}};
        gw_vid in[2] = {v->dout[0], v->in[0]};
        v->din[1] = gw_vjp_build(v, GW_PHASE_W, "conv2d_dw", in, 2, a, NULL);
    }
}

static double filtered(const gw_conv_args *a, int64_t b, int64_t p, int64_t q, int64_t o) {
    const gw_conv *s = &a->s;
    int64_t taps = s->kh * s->kw;
    double sum = 0;
    for (int64_t i = 0; i < s->kh; i++)
        for (int64_t j = 0; j < s->kw; j++) {
            int64_t at = pixel(a->x, b, p * s->stride - s->pad + i, q * s->stride - s->pad + j);
            if (at < 0) continue;
            sum += gw_ref_dot(a->x, at, 1, a->w, o * s->c * taps + i * s->kw + j, taps, s->c);
        }
    return sum;
}

static void reference(const gw_kargs *k) {
    gw_conv_args a = gw_conv_args_of(k);
    int64_t n = 0;
    for (int64_t b = 0; b < a.s.b; b++)
        for (int64_t p = 0; p < a.s.oh; p++)
            for (int64_t q = 0; q < a.s.ow; q++)
                for (int64_t o = 0; o < a.s.o; o++) gw_ref_set(a.y, n++, filtered(&a, b, p, q, o));
}

/* Image dims, filter dims, output image dims; stride, pad; height and width of image and filter. */
static const struct shape {
    const char *name, *x, *w, *y;
    int64_t stride, pad, h, wd, kh, kw;
} shapes[] = {
    {"3 x 3", "b2 y4 x5 c3", "o4 c3 i3 j3", "b2 y4 x5 c4", 1, 1, 4, 5, 3, 3},
    {"1 x 1", "b1 y3 x3 c5", "o7 c5 i1 j1", "b1 y3 x3 c7", 1, 0, 3, 3, 1, 1},
    {"1 x 1, stride 2", "b2 y4 x5 c3", "o2 c3 i1 j1", "b2 y2 x3 c2", 2, 0, 4, 5, 1, 1},
    {"3 x 3, stride 2", "b2 y5 x4 c2", "o3 c2 i3 j3", "b2 y3 x2 c3", 2, 1, 5, 4, 3, 3},
    {"7 x 7, stride 2", "b1 y7 x9 c3", "o2 c3 i7 j7", "b1 y4 x5 c2", 2, 3, 7, 9, 7, 7},
    {"a window of edges", "b1 y1 x1 c17", "o19 c17 i3 j3", "b1 y1 x1 c19", 1, 1, 1, 1, 3, 3},
};

static void cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_NORMAL, 1, 0);
        gw_vid w = gw_case_value(c, shapes[i].w, true, GW_FILL_NORMAL, 0.5, 0);
        gw_attr a[2] = {{.i = shapes[i].stride}, {.i = shapes[i].pad}};
        gw_build(&c->b, "conv2d", (gw_vid[]){x, w}, 2, a, NULL);
    }
}

const gw_opdef gw_opdef_conv2d = {
    .name = "conv2d",
    .doc = "filters over channels-last images, zero padding, no bias",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
    .reads_out = 0,
    .nattrs = 2,
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

/* ---- conv2d_dx: dy, w -> dx ---- */

static gw_status dx_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(want_filter(f, 1));
    GW_TRY(want_window(f));
    const gw_type *dy = gw_infer_in(f, 0), *w = gw_infer_in(f, 1);
    char a[128], b[128];
    if (dy->dims[3].size != w->dims[0].size)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "conv2d_dx: the channels of dy, %s, are not the filters of w, %s",
                       gw_type_text(dy, a), gw_type_text(w, b));
    int64_t hw[2] = {f->attrs[HEIGHT].i, f->attrs[WIDTH].i};
    int64_t khw[2] = {w->dims[2].size, w->dims[3].size};
    int64_t out[2] = {dy->dims[1].size, dy->dims[2].size};
    GW_TRY(want_sizes(f, hw, khw, out));
    image_type(&f->out[0], dy, (gw_dtype)dy->dtype, hw[0], hw[1], w->dims[1].size);
    return GW_OK;
}

static void dx_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_vid dy = gw_op_in(g, o, 0), w = gw_op_in(g, o, 1), dx = gw_op_out(g, o, 0);
    memset(s, 0, sizeof *s);
    factor(s, "b", size_of(g, dy, 0), GW_FACTOR_PASS, 0, -1, 0);
    factor(s, "o", size_of(g, w, 0), GW_FACTOR_CONTRACT, 3, 0, -1);
    factor(s, "c", size_of(g, w, 1), GW_FACTOR_PASS, -1, 1, 3);
    factor(s, "p", size_of(g, dy, 1), GW_FACTOR_WHOLE, 1, -1, -1);
    factor(s, "q", size_of(g, dy, 2), GW_FACTOR_WHOLE, 2, -1, -1);
    factor(s, "i", size_of(g, w, 2), GW_FACTOR_WHOLE, -1, 2, -1);
    factor(s, "j", size_of(g, w, 3), GW_FACTOR_WHOLE, -1, 3, -1);
    factor(s, "y", size_of(g, dx, 1), GW_FACTOR_WHOLE, -1, -1, 1);
    factor(s, "x", size_of(g, dx, 2), GW_FACTOR_WHOLE, -1, -1, 2);
}

static void dx_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, gw_op_in(g, o, 1), gw_op_in(g, o, 0), c);
}

/* The output row (or column) whose window has its tap i on position n; -1 if there is none. */
static int64_t seen_by(int64_t n, int64_t i, const gw_conv *s, int64_t outputs) {
    int64_t at = n + s->pad - i;
    return at < 0 || at % s->stride || at / s->stride >= outputs ? -1 : at / s->stride;
}

static double scattered(const gw_conv_args *a, int64_t b, int64_t n, int64_t m, int64_t c) {
    const gw_conv *s = &a->s;
    int64_t taps = s->kh * s->kw;
    double sum = 0;
    for (int64_t i = 0; i < s->kh; i++)
        for (int64_t j = 0; j < s->kw; j++) {
            int64_t p = seen_by(n, i, s, s->oh), q = seen_by(m, j, s, s->ow);
            if (p < 0 || q < 0) continue;
            sum += gw_ref_dot(a->y, pixel(a->y, b, p, q), 1, a->w, c * taps + i * s->kw + j,
                              s->c * taps, s->o);
        }
    return sum;
}

static void dx_reference(const gw_kargs *k) {
    gw_conv_args a = gw_conv_args_of(k);
    int64_t at = 0;
    for (int64_t b = 0; b < a.s.b; b++)
        for (int64_t n = 0; n < a.s.h; n++)
            for (int64_t m = 0; m < a.s.w; m++)
                for (int64_t c = 0; c < a.s.c; c++)
                    gw_ref_set(a.x, at++, scattered(&a, b, n, m, c));
}

static void dx_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid dy = gw_case_value(c, shapes[i].y, false, GW_FILL_NORMAL, 1, 0);
        gw_vid w = gw_case_value(c, shapes[i].w, true, GW_FILL_NORMAL, 0.5, 0);
        gw_attr a[4] = {
            {.i = shapes[i].stride}, {.i = shapes[i].pad}, {.i = shapes[i].h}, {.i = shapes[i].wd}};
        gw_build(&c->b, "conv2d_dx", (gw_vid[]){dy, w}, 2, a, NULL);
    }
}

const gw_opdef gw_opdef_conv2d_dx = {
    .name = "conv2d_dx",
    .doc = "gradient of conv2d's images",
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
    .nattrs = 4,
    .attrs = dx_attrs,
    .infer = dx_infer,
    .verify = gw_verify_default,
    .sign = dx_sign,
    .shard = gw_shard_default,
    .cost = dx_cost,
    .vjp = gw_vjp_none,
    .reference = dx_reference,
    .cases = dx_cases,
};

/* ---- conv2d_dw: dy, x, acc? -> dw ---- */

static gw_status dw_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_ndim(f, 1, 4, 4));
    GW_TRY(gw_infer_want_dim(f, 1, 0, 0, 0));
    GW_TRY(want_window(f));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, DTYPE, GW_F32, &dtype));
    const gw_type *dy = gw_infer_in(f, 0), *x = gw_infer_in(f, 1);
    int64_t hw[2] = {x->dims[1].size, x->dims[2].size};
    int64_t khw[2] = {f->attrs[HEIGHT].i, f->attrs[WIDTH].i};
    int64_t out[2] = {dy->dims[1].size, dy->dims[2].size};
    GW_TRY(want_sizes(f, hw, khw, out));
    f->out[0] = gw_type_scalar(dtype);
    gw_type_add(&f->out[0], "o", dy->dims[3].size);
    gw_type_add(&f->out[0], x->dims[3].name, x->dims[3].size);
    gw_type_add(&f->out[0], "i", khw[0]);
    gw_type_add(&f->out[0], "j", khw[1]);
    return gw_infer_want_acc(f, 2, &f->out[0]);
}

static void dw_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_vid dy = gw_op_in(g, o, 0), x = gw_op_in(g, o, 1), dw = gw_op_out(g, o, 0);
    memset(s, 0, sizeof *s);
    factor(s, "b", size_of(g, x, 0), GW_FACTOR_CONTRACT, 0, 0, -1);
    factor(s, "o", size_of(g, dw, 0), GW_FACTOR_PASS, 3, -1, 0);
    factor(s, "c", size_of(g, dw, 1), GW_FACTOR_PASS, -1, 3, 1);
    factor(s, "p", size_of(g, dy, 1), GW_FACTOR_WHOLE, 1, -1, -1);
    factor(s, "q", size_of(g, dy, 2), GW_FACTOR_WHOLE, 2, -1, -1);
    factor(s, "y", size_of(g, x, 1), GW_FACTOR_WHOLE, -1, 1, -1);
    factor(s, "x", size_of(g, x, 2), GW_FACTOR_WHOLE, -1, 2, -1);
    factor(s, "i", size_of(g, dw, 2), GW_FACTOR_WHOLE, -1, -1, 2);
    factor(s, "j", size_of(g, dw, 3), GW_FACTOR_WHOLE, -1, -1, 3);
    if (gw_op_in(g, o, 2) == GW_NONE) return;
    for (int i = 0; i < s->nfactors; i++) s->factors[i].in_dim[2] = s->factors[i].out_dim[0];
}

static void dw_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    cost_of(g, o, gw_op_out(g, o, 0), gw_op_in(g, o, 0), c);
}

static double correlated(const gw_conv_args *a, int64_t o, int64_t c, int64_t i, int64_t j) {
    const gw_conv *s = &a->s;
    double sum = 0;
    for (int64_t b = 0; b < s->b; b++)
        for (int64_t p = 0; p < s->oh; p++)
            for (int64_t q = 0; q < s->ow; q++) {
                int64_t at = pixel(a->x, b, p * s->stride - s->pad + i, q * s->stride - s->pad + j);
                if (at < 0) continue;
                sum += gw_ref_get(a->y, pixel(a->y, b, p, q) + o) * gw_ref_get(a->x, at + c);
            }
    return sum;
}

static void dw_reference(const gw_kargs *k) {
    gw_conv_args a = gw_conv_args_of(k);
    int64_t at = 0;
    for (int64_t o = 0; o < a.s.o; o++)
        for (int64_t c = 0; c < a.s.c; c++)
            for (int64_t i = 0; i < a.s.kh; i++)
                for (int64_t j = 0; j < a.s.kw; j++, at++)
                    gw_ref_set(a.w, at, gw_ref_acc(k, 2, at) + correlated(&a, o, c, i, j));
}

static void dw_cases(gw_cases *cs) {
    for (size_t i = 0; i < GW_COUNT(shapes); i++) {
        gw_case *c = gw_case_begin(cs, shapes[i].name);
        gw_vid dy = gw_case_value(c, shapes[i].y, false, GW_FILL_NORMAL, 1, 0);
        gw_vid x = gw_case_value(c, shapes[i].x, false, GW_FILL_NORMAL, 1, 0);
        gw_vid acc = i % 2 ? gw_case_fixed(c, GW_F32, shapes[i].w, GW_FILL_NORMAL, 1, 0) : GW_NONE;
        gw_attr a[5] = {{.i = shapes[i].stride},
                        {.i = shapes[i].pad},
                        {.i = shapes[i].kh},
                        {.i = shapes[i].kw},
                        {.i = GW_F32}};
        gw_build(&c->b, "conv2d_dw", (gw_vid[]){dy, x, acc}, 3, a, NULL);
    }
}

const gw_opdef gw_opdef_conv2d_dw = {
    .name = "conv2d_dw",
    .doc = "gradient of conv2d's filters, into an accumulator",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 3,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 5,
    .attrs = dw_attrs,
    .infer = dw_infer,
    .verify = gw_verify_default,
    .sign = dw_sign,
    .shard = gw_shard_default,
    .cost = dw_cost,
    .vjp = gw_vjp_none,
    .reference = dw_reference,
    .cases = dw_cases,
};

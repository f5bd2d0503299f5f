// SPDX-License-Identifier: Apache-2.0
// rope: rotary position embedding, and the table of cosines and sines it reads.
//
// Su et al., "RoFormer", 2021. Component pair i of a head of size k turns by the angle p * f_i at
// position p, with f_i = theta^(-2i/k). The pairs are (i, i + k/2), the convention of Hugging Face
// weights; files that store the interleaved order are permuted when they are read.
//   y[i]       = x[i] cos - x[i + k/2] sin
//   y[i + k/2] = x[i + k/2] cos + x[i] sin
// `skip` leading components of a head are left as they are, and k counts the rest (the heads of
// multi-head latent attention, DeepSeek-V2).
// The transpose of a rotation is its inverse: backward is rope of dy with `inverse` flipped, and
// reads the table only.
//
// Positions are data, because packed documents restart them and a cache continues them. The table
// is made once a micro-batch and shared by all layers and by q and k; it is cheap enough to
// recompute rather than to save or send.
//
// Scaling of the frequencies:
//   linear (1)  f_i / factor: position interpolation, Chen et al. 2023.
//   llama3 (2)  by the turns n = original * f_i / (2 pi) that a pair makes in the original context:
//               above `high` f_i stays, below `low` it becomes f_i / factor, and between them, with
//               t = (n - low) / (high - low), it is (1 - t) f_i / factor + t f_i. Llama 3.1.
//   yarn (3)    by the pair's number: with d(n) = k ln(original / (2 pi n)) / (2 ln theta), the
//               pair that makes n turns in the original context, f_i stays up to
//               first = floor(d(high)), becomes f_i / factor from last = ceil(d(low)) on, and
//               between them, with t = (i - first) / (last - first), it is t f_i / factor + (1 - t)
//               f_i. Peng et al., "YaRN", 2023; low and high are its beta_slow and beta_fast.
//               Cosine and sine are multiplied by `gain`, its attention factor.
//
// Numerics: the field computes frequency and angle in float32, and models are trained on those
// angles: at position 100,000 they differ from exact ones in the third decimal. So a table of any
// dtype but f64 takes f_i and p * f_i rounded to float32, then exact cosine and sine. A table of
// f64 (attribute `dtype`) is exact throughout. rope itself rounds once, at y, which may take the
// bytes of x.
//
// Sharding passes on b, s and heads; k and r must be whole. Positions are data, so a table is cut
// along s as they are, whatever the cut. A rotation is linear in x: a partial sum turns into one of
// y, as long as the table is whole. Work by convention: 3 flops an element of x; the table 1.
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_rope */
#include "ops/ref.h"   /* gw_ref_get */

/* ---- rope_table: pos -> cos, sin ---- */

enum { HEAD, THETA, SCALING, FACTOR, LOW, HIGH, ORIGINAL, DTYPE, GAIN };
static const gw_attr_def table_attrs[] = {
    {"head", GW_ATTR_INT, 0, 0},          /* head size k, even */
    {"theta", GW_ATTR_FLOAT, 0, 10000},   /* base of the frequencies */
    {"scaling", GW_ATTR_INT, 0, 0},       /* 0 none, 1 linear, 2 llama3, 3 yarn */
    {"factor", GW_ATTR_FLOAT, 0, 1},      /* how much longer the context became */
    {"low", GW_ATTR_FLOAT, 0, 1},         /* llama3: low_freq_factor; yarn: beta_slow */
    {"high", GW_ATTR_FLOAT, 0, 4},        /* llama3: high_freq_factor; yarn: beta_fast */
    {"original", GW_ATTR_FLOAT, 0, 8192}, /* context length before scaling, tokens */
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},  /* of cos and sin */
    {"gain", GW_ATTR_FLOAT, 0, 1},        /* what cos and sin are multiplied by */
};

static gw_status bad_table(gw_infer *f, const char *what, double value) {
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "rope_table: %s, not %g", what, value);
}

static gw_status table_infer(gw_infer *f) {
    const gw_attr *a = f->attrs;
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 0, GW_MAX_DIMS - 1));
    if (a[HEAD].i < 2 || a[HEAD].i % 2)
        return bad_table(f, "the head size must be even and at least 2", (double)a[HEAD].i);
    if (!(a[THETA].f > 0)) return bad_table(f, "theta must be positive", a[THETA].f);
    if (a[SCALING].i < 0 || a[SCALING].i > 3)
        return bad_table(f, "scaling must be 0, 1, 2 or 3", (double)a[SCALING].i);
    if (a[SCALING].i && !(a[FACTOR].f > 0))
        return bad_table(f, "the scaling factor must be positive", a[FACTOR].f);
    if (a[SCALING].i >= 2 && !(a[LOW].f > 0)) return bad_table(f, "low must be positive", a[LOW].f);
    if (a[SCALING].i >= 2 && !(a[HIGH].f > a[LOW].f))
        return bad_table(f, "high must be above low", a[HIGH].f);
    if (a[SCALING].i >= 2 && !(a[ORIGINAL].f > 0))
        return bad_table(f, "the original context must be positive", a[ORIGINAL].f);
    if (a[SCALING].i == 3 && a[THETA].f == 1) return bad_table(f, "theta must not be 1", 1);
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, DTYPE, GW_F32, &dtype));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), dtype);
    gw_type_add(&f->out[0], "r", a[HEAD].i / 2);
    f->out[1] = f->out[0];
    return GW_OK;
}

/* The pair that makes `turns` turns in the original context, as a real number. */
static double pair_of(const gw_kargs *k, double turns) {
    double ratio = gw_ref_attr(k, ORIGINAL).f / (2 * 3.14159265358979323846 * turns);
    return (double)gw_ref_attr(k, HEAD).i * log(ratio) / (2 * log(gw_ref_attr(k, THETA).f));
}

static double yarn(const gw_kargs *k, int64_t i, double f) {
    double first = fmax(floor(pair_of(k, gw_ref_attr(k, HIGH).f)), 0);
    double last = fmin(ceil(pair_of(k, gw_ref_attr(k, LOW).f)), (double)gw_ref_attr(k, HEAD).i - 1);
    if (first == last) last += 0.001;
    double t = fmin(fmax(((double)i - first) / (last - first), 0), 1);
    return t * f / gw_ref_attr(k, FACTOR).f + (1 - t) * f;
}

/* Frequency of pair i, scaled, in radians a token. */
static double frequency(const gw_kargs *k, int64_t i) {
    double head = (double)gw_ref_attr(k, HEAD).i, factor = gw_ref_attr(k, FACTOR).f;
    double f = pow(gw_ref_attr(k, THETA).f, -2 * (double)i / head);
    int64_t scaling = gw_ref_attr(k, SCALING).i;
    if (scaling == 0) return f;
    if (scaling == 1) return f / factor;
    if (scaling == 3) return yarn(k, i, f);
    double low = gw_ref_attr(k, LOW).f, high = gw_ref_attr(k, HIGH).f;
    double turns = gw_ref_attr(k, ORIGINAL).f * f / (2 * 3.14159265358979323846);
    if (turns > high) return f;
    if (turns < low) return f / factor;
    double t = (turns - low) / (high - low);
    return (1 - t) * f / factor + t * f;
}

static void table_reference(const gw_kargs *k) {
    const gw_tensor *pos = &k->in[0], *cosine = &k->out[0], *sine = &k->out[1];
    int64_t r = gw_ref_last(cosine);
    double gain = gw_ref_attr(k, GAIN).f;
    for (int64_t i = 0; i < r; i++) {
        double f = frequency(k, i);
        for (int64_t t = 0; t < pos->elems; t++) {
            int64_t p = gw_ref_int(pos, t);
            double angle = (double)p * f;
            if (cosine->dtype != GW_F64) angle = (double)((float)p * (float)f);
            gw_ref_set(cosine, t * r + i, gain * cos(angle));
            gw_ref_set(sine, t * r + i, gain * sin(angle));
        }
    }
}

static gw_vid build_table(gw_case *c, gw_vid pos, int64_t head, int scaling) {
    gw_attr a[] = {[HEAD] = {.i = head},
                   [THETA] = {.f = 100},
                   [SCALING] = {.i = scaling},
                   [FACTOR] = {.f = 8},
                   [LOW] = {.f = 1},
                   [HIGH] = {.f = 4},
                   [ORIGINAL] = {.f = 64},
                   [DTYPE] = {.i = gw_dtype_stat(c->dtype)},
                   [GAIN] = {.f = scaling == 3 ? 1.25 : 1}};
    return gw_build(&c->b, "rope_table", &pos, 1, a, NULL);
}

static void table_cases(gw_cases *cs) {
    static const char *const names[] = {"plain", "linear", "llama3", "yarn"};
    for (int i = 0; i < 4; i++) {
        gw_case *c = gw_case_begin(cs, names[i]);
        gw_vid pos = gw_case_fixed(c, GW_I32, "b2 s9", GW_FILL_INTS, 0, 200);
        build_table(c, pos, 16, i);
    }
}

const gw_opdef gw_opdef_rope_table = {
    .name = "rope_table",
    .doc = "cosines and sines of the rotary angles of given positions",
    .signature = "",
    .traits = GW_OP_CHEAP | GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 9,
    .attrs = table_attrs,
    .infer = table_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = table_reference,
    .cases = table_cases,
};

/* ---- rope ---- */

enum { INVERSE, SKIP };
static const gw_attr_def attrs[] = {
    {"inverse", GW_ATTR_BOOL, 0, 0}, /* turn back: the gradient */
    {"skip", GW_ATTR_INT, 0, 0},     /* leading components of a head that do not turn */
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    for (int i = 1; i <= 2; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 3, 3));
        GW_TRY(gw_infer_want_leading(f, i, 0, 2));
    }
    GW_TRY(gw_infer_want_same_dims(f, 1, 2));
    const gw_type *x = gw_infer_in(f, 0), *table = gw_infer_in(f, 1);
    char a[128], b[128];
    int64_t skip = f->attrs[SKIP].i;
    if (skip < 0 || table->dims[2].size * 2 != x->dims[3].size - skip)
        return GW_FAIL(
            f->dg, GW_ERR_CONFIG, "op-shape",
            "rope: the table, %s, must be half as long in %.8s as x, %s, in %.8s less the "
            "%lld that do not turn",
            gw_type_text(table, a), table->dims[2].name, gw_type_text(x, b), x->dims[3].name,
            (long long)skip);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 3 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[3] = {v->dout[0], v->in[1], v->in[2]};
    gw_attr a[] = {[INVERSE] = {.i = !v->attrs[INVERSE].i}, [SKIP] = v->attrs[SKIP]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "rope", in, 3, a, NULL);
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    int64_t heads = x->dims[2], size = x->dims[3], skip = gw_ref_attr(k, SKIP).i;
    int64_t half = (size - skip) / 2;
    double sign = gw_ref_attr(k, INVERSE).i ? -1 : 1;
    for (int64_t row = 0; row < gw_ref_rows(x); row++) {
        for (int64_t i = 0; i < skip; i++)
            gw_ref_set(y, row * size + i, gw_ref_get(x, row * size + i));
        for (int64_t i = 0; i < half; i++) {
            int64_t t = row / heads * half + i, at = row * size + skip + i;
            double c = gw_ref_get(&k->in[1], t), s = sign * gw_ref_get(&k->in[2], t);
            double a = gw_ref_get(x, at), b = gw_ref_get(x, at + half);
            gw_ref_set(y, at, a * c - b * s);
            gw_ref_set(y, at + half, b * c + a * s);
        }
    }
}

static void build_case(gw_cases *cs, const char *name, const char *xd, const char *pd, int64_t head,
                       bool inverse, int64_t skip) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid pos = gw_case_fixed(c, GW_I32, pd, GW_FILL_INTS, 0, 50), sine;
    gw_attr a[] = {[HEAD] = {.i = head},
                   [THETA] = {.f = 100},
                   [DTYPE] = {.i = gw_dtype_stat(cs->dtype)},
                   [GAIN] = {.f = 1.5}};
    gw_vid cosine = gw_build(&c->b, "rope_table", &pos, 1, a, &sine);
    gw_build(&c->b, "rope", (gw_vid[]){x, cosine, sine}, 3,
             (gw_attr[]){{.i = inverse}, {.i = skip}}, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "plain", "b2 s3 h2 k4", "b2 s3", 4, false, 0);
    build_case(cs, "inverse", "b1 s3 g1 k6", "b1 s3", 6, true, 0);
    build_case(cs, "wide", "b1 s2 h1 k34", "b1 s2", 34, false, 0);
    build_case(cs, "part of a head", "b2 s3 h3 k9", "b2 s3", 4, false, 5);
    build_case(cs, "part of a head, inverse", "b1 s2 h2 k40", "b1 s2", 34, true, 6);
}

const gw_opdef gw_opdef_rope = {
    .name = "rope",
    .doc = "rotary position embedding of pairs (i, i + k/2)",
    .signature = "bsh!k,bs!r,bs!r->bsh!k",
    .traits = GW_OP_INPLACE,
    .linear_in = 1u << 0,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x6,
    .reads_out = 0,
    .nattrs = 2,
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

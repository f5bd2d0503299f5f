// SPDX-License-Identifier: Apache-2.0
// fp8_quant, fp8_dequant: tensors as eight-bit floats with a scale for every block.
//
// The recipe is that of DeepSeek-V3 (arXiv 2412.19437, section 3.3). An activation has a scale for
// every 128 elements along the dimension that its product contracts (1 x 128), a weight one for
// every 128 x 128 elements, along the contracted and along the output dimension. Both are E4M3, in
// forward and backward, and scales come from the very numbers they scale:
//
//   amax   = largest finite |x| of the block
//   scale  = amax / 448, in float32; 1 for a block of zeros; no less than 2^-126
//            pow2: the next power of two that is not less (UE8M0, as on Blackwell)
//   value  = x / scale in float32, rounded to nearest even, saturating (base/fp8.h)
//   back   = value * scale in float32, rounded to the dtype asked for
//
// What is not finite becomes NaN, so an overflow stays visible behind a saturating format. A value
// is off by at most 2^-4 of itself where it is normal, and by 2^-10 scales, amax * 2^-18.8 (twice
// that with pow2), below: a block of 128 spans 15 powers of two before anything is lost whole.
//
//   along   name of the dimension whose 128s share a scale; "" is the last
//   across  a second one, for 128 x 128; "" is none
//   format  f8e4m3 or f8e5m2
//
// Blocks lie within one dimension: they do not run on from head to head or from sample to sample,
// where DeepSeek's, over flattened rows, do; sizes that are multiples of 128 give the same blocks.
// So a cut of heads, samples or experts cuts no block, and a cut of a blocked dimension does not
// where parts are multiples of 128. Otherwise the shard rule makes the dimension whole first.
//
// Backward is straight through: the gradient of x is that of the value times its scale, dy as it
// comes. Backward of fp8_dequant likewise. Bytes: 1 an element and 4 a block: + 3.125 % for 1 x
// 128, + 0.0244 % for 128 x 128.
#include "ops/fp8.h"

#include <math.h>
#include <string.h>

#include "base/fp8.h"   /* gw_f8e4m3_from_f32 */
#include "base/panic.h" /* GW_ASSERT */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_type_plain */
#include "ops/ops.h"    /* gw_opdef_fp8_quant */
#include "ops/ref.h"    /* gw_ref_get */

/* ---- one block, one element ---- */

float gw_fp8_max(gw_dtype format) { return format == GW_F8E4M3 ? GW_F8E4M3_MAX : GW_F8E5M2_MAX; }

float gw_fp8_decode(gw_dtype format, uint8_t bits) {
    return format == GW_F8E4M3 ? gw_f8e4m3_to_f32((gw_f8e4m3){bits})
                               : gw_f8e5m2_to_f32((gw_f8e5m2){bits});
}

uint8_t gw_fp8_encode(gw_dtype format, float x) {
    return format == GW_F8E4M3 ? gw_f8e4m3_from_f32(x).bits : gw_f8e5m2_from_f32(x).bits;
}

float gw_fp8_scale(float amax, gw_dtype format, bool pow2) {
    if (amax == 0.0f) return 1.0f;
    float s = amax / gw_fp8_max(format);
    if (s < 0x1p-126f) s = 0x1p-126f;
    if (!pow2) return s;
    uint32_t u = (gw_f32_bits(s) + 0x7fffffu) & 0x7f800000u;
    return gw_f32_from_bits(u > 0x7f000000u ? 0x7f000000u : u);
}

uint8_t gw_fp8_quant(float x, float scale, gw_dtype format) {
    return gw_fp8_encode(format, isfinite(x) ? x / scale : NAN);
}

bool gw_fp8_steps(const gw_type *values, const gw_type *scales, int64_t step[GW_MAX_DIMS]) {
    if (values->ndim != scales->ndim || !gw_dtype_is_fp8((gw_dtype)values->dtype) ||
        scales->dtype != GW_F32)
        return false;
    for (int i = 0; i < values->ndim; i++) {
        const gw_dim *v = &values->dims[i], *s = &scales->dims[i];
        if (strncmp(v->name, s->name, sizeof v->name) != 0) return false;
        step[i] = s->size == v->size ? 1 : GW_FP8_BLOCK;
        if (step[i] > 1 && s->size != gw_fp8_blocks(v->size)) return false;
    }
    return true;
}

/* Index of the scale of element e: local sizes of values and scales, steps of the whole. */
static int64_t scale_index(const gw_tensor *v, const gw_tensor *s, const int64_t *step, int64_t e) {
    int64_t at = 0, stride = 1;
    for (int i = v->ndim; i-- > 0;) {
        at += e % v->dims[i] / step[i] * stride;
        stride *= s->dims[i];
        e /= v->dims[i];
    }
    return at;
}

/* ---- fp8_quant ---- */

enum { ALONG, ACROSS, FORMAT, POW2 };
static const gw_attr_def quant_attrs[] = {
    {"along", GW_ATTR_STR, 0, 0},
    {"across", GW_ATTR_STR, 0, 0},
    {"format", GW_ATTR_DTYPE, GW_F8E4M3, 0},
    {"pow2", GW_ATTR_BOOL, 0, 0},
};

/* The dimension of t that attribute text names; -1 for "" and for a name that t lacks. */
static int named_dim(const gw_graph *g, const gw_type *t, gw_attr a) {
    const char *name = gw_graph_str(g, a.s);
    return name[0] ? gw_type_find(t, name) : -1;
}

static gw_status quant_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    const gw_type *x = gw_infer_in(f, 0);
    char text[128];
    if (f->attrs[FORMAT].i != GW_F8E4M3 && f->attrs[FORMAT].i != GW_F8E5M2)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype",
                       "fp8_quant: attribute format must be f8e4m3 or f8e5m2");
    f->out[0] = gw_type_plain(x, (gw_dtype)f->attrs[FORMAT].i);
    f->out[1] = gw_type_plain(x, GW_F32);
    for (int k = ALONG; k <= ACROSS; k++) {
        const char *name = gw_graph_str(f->g, f->attrs[k].s);
        int i = named_dim(f->g, x, f->attrs[k]);
        if (!name[0] && k == ALONG) i = x->ndim - 1;
        if (name[0] && i < 0)
            return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "fp8_quant: %s is %s, but x is %s",
                           quant_attrs[k].name, name, gw_type_text(x, text));
        if (i >= 0) f->out[1].dims[i].size = gw_fp8_blocks(x->dims[i].size);
    }
    return GW_OK;
}

/* ---- its placement ---- */

/* Values stand before their scales everywhere, so a factor has the size that it has in them. */
void gw_fp8_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++) s->factors[i].block = GW_FP8_BLOCK;
}

bool gw_fp8_blocks_are_whole(const gw_type *x, int i, const gw_mesh *m) {
    if (!x->dims[i].naxes) return true;
    gw_type s = *x;
    int64_t size = x->dims[i].size;
    s.dims[i].size = gw_fp8_blocks(size);
    for (int64_t r = 0; r < gw_mesh_ranks(m); r++) {
        gw_runs a = gw_type_runs(x, i, m, r), b = gw_type_runs(&s, i, m, r);
        for (int k = 0; k < 2; k++) {
            int64_t na = k < a.n ? a.count[k] : 0, nb = k < b.n ? b.count[k] : 0;
            if (nb != gw_fp8_blocks(na)) return false;
            if (na && (a.first[k] % GW_FP8_BLOCK || b.first[k] != a.first[k] / GW_FP8_BLOCK))
                return false;
            if (na % GW_FP8_BLOCK && a.first[k] + na != size) return false;
        }
    }
    return true;
}

static gw_status quant_shard(gw_sharding *s, gw_diags *dg) {
    const gw_graph *g = s->b->g;
    gw_type t = *gw_type_of(g, s->in[0]);
    const gw_type *scales = gw_type_of(s->src, gw_op_out(s->src, s->op, 1));
    bool whole = true;
    for (int i = 0; i < t.ndim; i++) {
        if (scales->dims[i].size == t.dims[i].size || gw_fp8_blocks_are_whole(&t, i, &g->mesh))
            continue;
        gw_dim_uncut(&t.dims[i], gw_dim_axes(&t.dims[i]));
        whole = false;
    }
    if (!whole) s->in[0] = gw_sharding_convert(s, s->in[0], &t);
    GW_TRY(s->b->status);
    return s->by_signature(s, dg);
}

static void quant_vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_dtype to = gw_vjp_dtype(v, 0), from = (gw_dtype)gw_type_of(v->g, v->dout[0])->dtype;
    gw_attr a = {.i = to};
    v->din[0] =
        from == to ? v->dout[0] : gw_vjp_build(v, gw_vjp_phase(v, 0), "cast", v->dout, 1, &a, NULL);
}

static void quant_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *v = &k->out[0], *s = &k->out[1];
    int64_t step[GW_MAX_DIMS];
    bool ok = gw_fp8_steps(gw_type_of(k->g, gw_op_out(k->g, k->op, 0)),
                           gw_type_of(k->g, gw_op_out(k->g, k->op, 1)), step);
    GW_ASSERT(ok);
    float *scales = s->data;
    uint8_t *values = v->data;
    for (int64_t i = 0; i < s->elems; i++) scales[i] = 0;
    for (int64_t e = 0; e < x->elems; e++) {
        float a = fabsf((float)gw_ref_get(x, e));
        int64_t at = scale_index(x, s, step, e);
        if (isfinite(a) && a > scales[at]) scales[at] = a;
    }
    for (int64_t i = 0; i < s->elems; i++)
        scales[i] = gw_fp8_scale(scales[i], v->dtype, gw_ref_attr(k, POW2).i != 0);
    for (int64_t e = 0; e < x->elems; e++)
        values[e] =
            gw_fp8_quant((float)gw_ref_get(x, e), scales[scale_index(x, s, step, e)], v->dtype);
}

static gw_vid quantised(gw_case *c, gw_vid x, const char *along, const char *across,
                        gw_dtype format, bool pow2, gw_vid *scales) {
    gw_attr a[4] = {{.s = gw_graph_intern(&c->g, along)},
                    {.s = gw_graph_intern(&c->g, across)},
                    {.i = format},
                    {.i = pow2}};
    return gw_build(&c->b, "fp8_quant", &x, 1, a, scales);
}

static void quant_case(gw_cases *cs, const char *name, const char *dims, const char *along,
                       const char *across, gw_dtype format, bool pow2) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid scales, x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    (void)quantised(c, x, along, across, format, pow2, &scales);
    c->differentiate = false; /* a staircase: differences say nothing about it */
}

static void quant_cases(gw_cases *cs) {
    quant_case(cs, "rows of 128", "b2 s3 d261", "d", "", GW_F8E4M3, false);
    quant_case(cs, "powers of two", "b2 s3 d130", "d", "", GW_F8E4M3, true);
    quant_case(cs, "E5M2", "s3 d200", "", "", GW_F8E5M2, false);
    quant_case(cs, "tokens", "b2 s150 d5", "s", "", GW_F8E4M3, true);
    quant_case(cs, "tokens of heads", "b1 s130 h2 k3", "s", "", GW_F8E4M3, false);
    quant_case(cs, "weight", "f130 d140", "d", "f", GW_F8E4M3, false);
    quant_case(cs, "weight into heads", "h2 k5 d140", "d", "k", GW_F8E4M3, true);
    quant_case(cs, "weight out of heads", "d131 h2 k6", "k", "d", GW_F8E4M3, false);
    gw_case *c = gw_case_begin(cs, "zeros");
    gw_vid scales, x = gw_case_value(c, "s2 d129", false, GW_FILL_CONST, 0, 0);
    (void)quantised(c, x, "d", "", GW_F8E4M3, false, &scales);
    c->differentiate = false;
}

static void elementwise_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

const gw_opdef gw_opdef_fp8_quant = {
    .name = "fp8_quant",
    .doc = "eight-bit floats with a float32 scale for every block of 128, or of 128 x 128",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 1,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 4,
    .attrs = quant_attrs,
    .infer = quant_infer,
    .verify = gw_verify_default,
    .sign = gw_fp8_sign,
    .shard = quant_shard,
    .cost = elementwise_cost,
    .vjp = quant_vjp,
    .reference = quant_reference,
    .cases = quant_cases,
};

/* ---- fp8_dequant ---- */

static const gw_attr_def dequant_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},
};

static gw_status dequant_infer(gw_infer *f) {
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    int64_t step[GW_MAX_DIMS];
    char v[128], s[128];
    if (!gw_fp8_steps(gw_infer_in(f, 0), gw_infer_in(f, 1), step))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "fp8_dequant: %s and %s are not values and scales of one tensor",
                       gw_type_text(gw_infer_in(f, 0), v), gw_type_text(gw_infer_in(f, 1), s));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), dtype);
    return GW_OK;
}

static void dequant_vjp(gw_vjp *v) {
    if (v->want[0]) v->din[0] = v->dout[0];
}

static void dequant_reference(const gw_kargs *k) {
    const gw_tensor *v = &k->in[0], *s = &k->in[1];
    int64_t step[GW_MAX_DIMS];
    bool ok = gw_fp8_steps(gw_type_of(k->g, gw_op_in(k->g, k->op, 0)),
                           gw_type_of(k->g, gw_op_in(k->g, k->op, 1)), step);
    GW_ASSERT(ok);
    for (int64_t e = 0; e < v->elems; e++) {
        float x = gw_fp8_decode(v->dtype, ((const uint8_t *)v->data)[e]);
        float y = x * ((const float *)s->data)[scale_index(v, s, step, e)];
        gw_ref_set(&k->out[0], e, (double)y);
    }
}

static void dequant_case(gw_cases *cs, const char *name, const char *dims, const char *along,
                         const char *across, gw_dtype to) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[2], x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    in[0] = quantised(c, x, along, across, GW_F8E4M3, false, &in[1]);
    gw_build(&c->b, "fp8_dequant", in, 2, (gw_attr[]){{.i = to}}, NULL);
    c->differentiate = false;
}

static void dequant_cases(gw_cases *cs) {
    dequant_case(cs, "rows of 128", "b2 s3 d261", "d", "", GW_F32);
    dequant_case(cs, "tokens, to bf16", "b2 s150 d5", "s", "", GW_BF16);
    dequant_case(cs, "weight, to f16", "f130 d140", "d", "f", GW_F16);
    dequant_case(cs, "weight out of heads", "d131 h2 k6", "k", "d", GW_F32);
}

const gw_opdef gw_opdef_fp8_dequant = {
    .name = "fp8_dequant",
    .doc = "values times the scales of their blocks, in float32, then rounded",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = dequant_attrs,
    .infer = dequant_infer,
    .verify = gw_verify_default,
    .sign = gw_fp8_sign,
    .shard = gw_shard_default,
    .cost = elementwise_cost,
    .vjp = dequant_vjp,
    .reference = dequant_reference,
    .cases = dequant_cases,
};

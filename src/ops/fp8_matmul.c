// SPDX-License-Identifier: Apache-2.0
// fp8_matmul, fp8_matmul_dw: products of blockwise scaled eight-bit floats, summed in float32.
//
// x (values xv, scales xs) and w (wv, ws) are contracted over the dims that their values share by
// name, as in matmul. The scales say which blocks there are (ops/fp8.h): 128 along the innermost
// contracted dimension in both; along the innermost other dimension 1 (an activation) or 128 (a
// weight). With q running over the blocks of the contracted elements, in order,
//
//   part = sum over block q of xv * wv        every product is exact; the sum is rounded once, to
//                                             float32
//   y    = y + (xs * ws) * part               float32, each operation rounded
//
// then the bias in float32 (fp8_matmul) or the accumulator (fp8_matmul_dw), then the rounding to
// `dtype`. That is DeepSeek-V3's product (arXiv 2412.19437, section 3.3.2) with promotion every 128
// elements and an exact sum in between, where Hopper's tensor cores keep about 14 bits.
//
// Backward is as DeepSeek-V3 does it, and made of ops, so that a program shows it:
//   dx = fp8_matmul of dy, quantised 1 x 128 along its own contracted dimension, and w, whose 128 x
//        128 blocks serve both ways as they are
//   dw = fp8_matmul_dw of dy and x, both 1 x 128 along tokens. x is what forward kept, eight bits:
//        dequantised, and quantised again the other way. dy is quantised a second time.
//   db = bias_grad of dy itself
// Scales of backward are powers of two, or not, as the attribute `pow2` says; x and w bring theirs.
// Products of one x, or of one dy, share what is made of it here.
//
// A contracted dim that is cut makes y a partial sum, as in matmul; cuts never go through a block,
// for fp8_quant sees to it. The order of the float32 sum over blocks then follows the cut.
#include <math.h>
#include <string.h>

#include "base/panic.h"   /* GW_ASSERT */
#include "ops/cases.h"    /* gw_case_begin */
#include "ops/contract.h" /* gw_contract_find */
#include "ops/fp8.h"      /* gw_fp8_steps, gw_fp8_product */
#include "ops/hooks.h"    /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"      /* gw_opdef_fp8_matmul */
#include "ops/ref.h"      /* gw_ref_set */

enum { XV, XS, WV, WS, EXTRA };

static const gw_attr_def attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of the result */
    {"pow2", GW_ATTR_BOOL, 0, 0},        /* scales made in backward are powers of two */
};

/* ---- shapes ---- */

gw_fp8_side gw_fp8_side_of(const gw_contract *c, bool second) {
    bool leading = second ? c->b_leading : c->a_leading;
    int nfree = second ? c->nb_free : c->na_free, first = second ? c->b_free : c->a_free;
    return (gw_fp8_side){(leading ? 0 : nfree) + c->shared - 1, first + nfree - 1};
}

/* The contraction of the values of inputs 0 and 2. */
static bool find(const gw_graph *g, const gw_vid *in, gw_contract *c, char why[400]) {
    return gw_contract_find(gw_type_of(g, in[XV]), gw_type_of(g, in[WV]), c, why);
}

static gw_status check_side(gw_infer *f, const gw_contract *c, bool second) {
    int at = second ? WV : XV;
    const gw_type *v = gw_infer_in(f, at), *s = gw_infer_in(f, at + 1);
    gw_fp8_side side = gw_fp8_side_of(c, second);
    int64_t step[GW_MAX_DIMS];
    char tv[128], ts[128];
    bool ok = gw_fp8_steps(v, s, step) &&
              s->dims[side.along].size == gw_fp8_blocks(v->dims[side.along].size);
    for (int i = 0; ok && i < v->ndim; i++)
        if (i != side.along && i != side.across) ok = step[i] == 1;
    if (ok) return GW_OK;
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                   "%s: %s and %s are not values and scales in blocks of 128 along %.8s",
                   f->def->name, gw_type_text(v, tv), gw_type_text(s, ts),
                   v->dims[side.along].name);
}

static gw_status infer_product(gw_infer *f, gw_contract *c) {
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    char why[400], tx[128], tw[128];
    const gw_type *x = gw_infer_in(f, XV), *w = gw_infer_in(f, WV);
    if (!find(f->g, f->in, c, why))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape", "%s: %s", f->def->name, why);
    if (c->na_free == 0 || c->nb_free == 0 || c->na_free + c->nb_free > GW_MAX_DIMS)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                       "%s: %s and %s must each have a dimension of their own, and at most %d "
                       "together",
                       f->def->name, gw_type_text(x, tx), gw_type_text(w, tw), GW_MAX_DIMS);
    GW_TRY(check_side(f, c, false));
    GW_TRY(check_side(f, c, true));
    gw_type y = gw_type_scalar(dtype);
    for (int i = 0; i < c->na_free; i++)
        gw_type_add(&y, x->dims[c->a_free + i].name, x->dims[c->a_free + i].size);
    for (int i = 0; i < c->nb_free; i++)
        gw_type_add(&y, w->dims[c->b_free + i].name, w->dims[c->b_free + i].size);
    f->out[0] = y;
    return GW_OK;
}

static gw_status infer(gw_infer *f) {
    gw_contract c;
    GW_TRY(infer_product(f, &c));
    if (!gw_infer_has(f, EXTRA)) return GW_OK;
    GW_TRY(gw_infer_want_float(f, EXTRA));
    GW_TRY(gw_infer_want_ndim(f, EXTRA, c.nb_free, c.nb_free));
    for (int i = 0; i < c.nb_free; i++) GW_TRY(gw_infer_want_dim(f, EXTRA, i, WV, c.b_free + i));
    return GW_OK;
}

static gw_status dw_infer(gw_infer *f) {
    gw_contract c;
    GW_TRY(infer_product(f, &c));
    return gw_infer_want_acc(f, EXTRA, &f->out[0]);
}

static gw_fp8_operand operand_of(const gw_kargs *k, const gw_contract *c, bool second) {
    int at = second ? WV : XV;
    const gw_tensor *v = &k->in[at], *s = &k->in[at + 1];
    int nfree = second ? c->nb_free : c->na_free, first = second ? c->b_free : c->a_free;
    gw_fp8_side side = gw_fp8_side_of(c, second);
    int64_t step[GW_MAX_DIMS];
    bool ok = gw_fp8_steps(gw_type_of(k->g, gw_op_in(k->g, k->op, at)),
                           gw_type_of(k->g, gw_op_in(k->g, k->op, at + 1)), step);
    GW_ASSERT(ok);
    gw_fp8_operand o = {.values = v->data,
                        .scales = s->data,
                        .format = v->dtype,
                        .leading = second ? c->b_leading : c->a_leading,
                        .free = 1,
                        .rows = 1,
                        .run = v->dims[side.across],
                        .step = step[side.across]};
    for (int i = first; i < first + nfree; i++) {
        o.free *= v->dims[i];
        o.rows *= s->dims[i];
    }
    return o;
}

gw_fp8_product gw_fp8_product_of(const gw_kargs *k) {
    gw_contract c;
    char why[400];
    gw_vid in[4];
    for (int i = 0; i < 4; i++) in[i] = gw_op_in(k->g, k->op, i);
    if (!find(k->g, in, &c, why)) gw_panic("a product passed inference, but %s", why);
    gw_fp8_product p = {.outer = 1};
    p.a = operand_of(k, &c, false);
    p.b = operand_of(k, &c, true);
    p.m = p.a.free;
    p.n = p.b.free;
    int along = gw_fp8_side_of(&c, false).along;
    p.inner = k->in[XV].dims[along];
    for (int i = along - c.shared + 1; i < along; i++) p.outer *= k->in[XV].dims[i];
    p.k = p.outer * p.inner;
    p.blocks = p.outer * gw_fp8_blocks(p.inner);
    return p;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_contract k;
    char why[400];
    gw_vid in[4];
    for (int i = 0; i < 4; i++) in[i] = gw_op_in(g, o, i);
    bool ok = find(g, in, &k, why);
    GW_ASSERT(ok);
    double contracted = 1;
    for (int i = 0; i < k.shared; i++)
        contracted *= (double)gw_cost_dim(g, in[XV], (k.a_leading ? 0 : k.na_free) + i);
    gw_cost_set(g, o, 2 * (double)gw_cost_elems(g, gw_op_out(g, o, 0)) * contracted, c);
}

/* ---- the meaning ---- */

static float value_at(const gw_fp8_operand *o, int64_t k, int64_t i, int64_t at) {
    return gw_fp8_decode(o->format, o->values[o->leading ? at * o->free + i : i * k + at]);
}

static float element(const gw_fp8_product *p, int64_t i, int64_t j) {
    float y = 0;
    for (int64_t q = 0; q < p->blocks; q++) {
        int64_t first, count;
        gw_fp8_block_of(p, q, &first, &count);
        double part = 0; /* exact for E4M3: 128 products of 8 bits span 43 */
        for (int64_t at = first; at < first + count; at++)
            part += (double)value_at(&p->a, p->k, i, at) * (double)value_at(&p->b, p->k, j, at);
        float scale =
            gw_fp8_scale_at(&p->a, p->blocks, i, q) * gw_fp8_scale_at(&p->b, p->blocks, j, q);
        y += scale * (float)part;
    }
    return y;
}

static void reference(const gw_kargs *k) {
    gw_fp8_product p = gw_fp8_product_of(k);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++)
            gw_ref_set(&k->out[0], i * p.n + j,
                       (double)(element(&p, i, j) + (float)gw_ref_acc(k, EXTRA, j)));
}

static void dw_reference(const gw_kargs *k) {
    gw_fp8_product p = gw_fp8_product_of(k);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) {
            int64_t e = i * p.n + j;
            gw_ref_set(&k->out[0], e, gw_ref_acc(k, EXTRA, e) + (double)element(&p, i, j));
        }
}

/* ---- backward ---- */

typedef struct pair {
    gw_vid v, s;
} pair;

/* An op that stands already, lately, with this name, input, text attribute 0 and phase W. */
static const gw_op *lately(const gw_graph *g, const char *name, gw_vid in, const char *along) {
    int64_t least = g->ops.count > 64 ? g->ops.count - 64 : 0;
    for (int64_t i = g->ops.count; i-- > least;) {
        const gw_op *o = &g->ops.items[i];
        if (o->phase != GW_PHASE_W || !gw_op_is(g, o, name) || gw_op_in(g, o, 0) != in) continue;
        if (!along || strcmp(gw_graph_str(g, gw_op_attr(g, o, 0).s), along) == 0) return o;
    }
    return NULL;
}

static pair quantise(gw_vjp *v, gw_phase phase, gw_vid x, const char *along) {
    const gw_op *made = phase == GW_PHASE_W ? lately(v->g, "fp8_quant", x, along) : NULL;
    if (made) return (pair){gw_op_out(v->g, made, 0), gw_op_out(v->g, made, 1)};
    gw_attr a[GW_MAX_ATTRS];
    const gw_optable *t = v->g->table;
    gw_attrs_default(t, "fp8_quant", a);
    gw_attrs_set(t, "fp8_quant", a, "along", (gw_attr){.s = gw_graph_intern(v->b->g, along)});
    gw_attrs_set(t, "fp8_quant", a, "format", (gw_attr){.i = gw_type_of(v->g, v->in[XV])->dtype});
    gw_attrs_set(t, "fp8_quant", a, "pow2", v->attrs[1]);
    pair p = {GW_NONE, GW_NONE};
    p.v = gw_vjp_build(v, phase, "fp8_quant", &x, 1, a, &p.s);
    return p;
}

/* What forward kept of x, as numbers again: exact in bf16 where scales are powers of two. */
static gw_vid numbers_of_x(gw_vjp *v) {
    const gw_op *made = lately(v->g, "fp8_dequant", v->in[XV], NULL);
    if (made) return gw_op_out(v->g, made, 0);
    bool narrow = v->attrs[1].i && gw_type_of(v->g, v->dout[0])->dtype == GW_BF16;
    gw_attr a = {.i = narrow ? GW_BF16 : GW_F32};
    return gw_vjp_build(v, GW_PHASE_W, "fp8_dequant", v->in, 2, &a, NULL);
}

static const char *name_of(const gw_type *t, int dim, char buf[sizeof t->dims->name + 1]) {
    memcpy(buf, t->dims[dim].name, sizeof t->dims->name);
    buf[sizeof t->dims->name] = 0;
    return buf;
}

static gw_vid product(gw_vjp *v, gw_phase phase, const char *op, pair a, pair b, gw_dtype dtype) {
    gw_vid in[4] = {a.v, a.s, b.v, b.s};
    gw_attr at[2] = {{.i = dtype}, v->attrs[1]};
    return gw_vjp_build(v, phase, op, in, 4, at, NULL);
}

static void vjp(gw_vjp *v) {
    gw_vid dy = v->dout[0];
    gw_contract c;
    char why[400], name[sizeof(gw_dim) + 1];
    bool ok = find(v->g, v->in, &c, why);
    GW_ASSERT(ok);
    if (v->want[XV]) {
        const gw_type w = *gw_type_of(v->g, v->in[WV]);
        gw_dtype to = (gw_dtype)gw_type_of(v->g, dy)->dtype;
        pair d = quantise(v, GW_PHASE_B, dy, name_of(&w, gw_fp8_side_of(&c, true).across, name));
        pair mine = {v->in[WV], v->in[WS]};
        v->din[XV] = c.a_leading ? product(v, GW_PHASE_B, "fp8_matmul", mine, d, to)
                                 : product(v, GW_PHASE_B, "fp8_matmul", d, mine, to);
    }
    if (v->want[WV]) {
        const gw_type x = *gw_type_of(v->g, v->in[XV]);
        const char *tokens = name_of(&x, gw_fp8_side_of(&c, false).across, name);
        pair d = quantise(v, GW_PHASE_W, dy, tokens);
        pair mine = quantise(v, GW_PHASE_W, numbers_of_x(v), tokens);
        v->din[WV] = c.b_leading ? product(v, GW_PHASE_W, "fp8_matmul_dw", mine, d, v->grad_dtype)
                                 : product(v, GW_PHASE_W, "fp8_matmul_dw", d, mine, v->grad_dtype);
    }
    if (v->nin > EXTRA && v->in[EXTRA] != GW_NONE && v->want[EXTRA]) {
        gw_attr a[2] = {{.i = c.nb_free}, {.i = gw_vjp_dtype(v, EXTRA)}};
        v->din[EXTRA] = gw_vjp_build(v, GW_PHASE_W, "bias_grad", &dy, 1, a, NULL);
    }
}

/* ---- cases ---- */

static pair operand(gw_case *c, const char *dims, const char *along, const char *across,
                    gw_dtype format, bool pow2) {
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_attr a[4] = {{.s = gw_graph_intern(&c->g, along)},
                    {.s = gw_graph_intern(&c->g, across)},
                    {.i = format},
                    {.i = pow2}};
    pair p = {GW_NONE, GW_NONE};
    p.v = gw_build(&c->b, "fp8_quant", &x, 1, a, &p.s);
    return p;
}

typedef struct product_case {
    const char *name, *x, *w, *along, *x_across, *w_across, *extra;
    gw_dtype format, dtype;
    bool pow2;
} product_case;

static void build_case(gw_cases *cs, const product_case *p) {
    gw_case *c = gw_case_begin(cs, p->name);
    pair x = operand(c, p->x, p->along, p->x_across, p->format, p->pow2);
    pair w = operand(c, p->w, p->along, p->w_across, p->format, false);
    bool dw = strcmp(cs->def->name, "fp8_matmul_dw") == 0;
    gw_vid extra = GW_NONE;
    if (p->extra)
        extra = dw ? gw_case_fixed(c, p->dtype, p->extra, GW_FILL_NORMAL, 1, 0)
                   : gw_case_value(c, p->extra, true, GW_FILL_NORMAL, 1, 0);
    gw_vid in[5] = {x.v, x.s, w.v, w.s, extra};
    gw_build(&c->b, cs->def->name, in, 5, (gw_attr[]){{.i = p->dtype}, {.i = p->pow2}}, NULL);
    c->differentiate = false; /* straight through a staircase is not its derivative */
}

static void cases(gw_cases *cs) {
    static const product_case all[] = {
        {"plain", "b2 s3 d261", "f5 d261", "d", "", "f", NULL, GW_F8E4M3, GW_F32, false},
        {"bias, powers of two", "s3 d130", "f131 d130", "d", "", "f", "f131", GW_F8E4M3, GW_F32,
         true},
        {"into heads, to bf16", "b1 s2 d140", "h2 k3 d140", "d", "", "k", "h2 k3", GW_F8E4M3,
         GW_BF16, false},
        {"out of heads", "b1 s3 h3 k5", "d7 h3 k5", "k", "", "d", NULL, GW_F8E4M3, GW_F32, false},
        {"leading in w", "s3 f150", "f150 d130", "f", "", "d", NULL, GW_F8E4M3, GW_F32, false},
        {"leading in both, blocks in x", "f150 d130", "f150 s4", "f", "d", "", NULL, GW_F8E4M3,
         GW_F32, true},
        {"E5M2, one row", "s1 d200", "f3 d200", "d", "", "f", NULL, GW_F8E5M2, GW_F16, false},
        {"1 x 128 in both", "s5 d140", "f9 d140", "d", "", "", NULL, GW_F8E4M3, GW_F32, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) build_case(cs, &all[i]);
}

static void dw_cases(gw_cases *cs) {
    static const product_case all[] = {
        {"plain", "b2 s150 f4", "b2 s150 d3", "s", "", "", NULL, GW_F8E4M3, GW_F32, false},
        {"accumulates", "b2 s130 f4", "b2 s130 d3", "s", "", "", "f4 d3", GW_F8E4M3, GW_F32, true},
        {"heads, into bf16", "b1 s7 h2 k3", "b1 s7 d5", "s", "", "", "h2 k3 d5", GW_F8E4M3, GW_BF16,
         false},
        {"trailing rows", "f2 s140", "d3 s140", "s", "", "", NULL, GW_F8E4M3, GW_F32, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) build_case(cs, &all[i]);
}

const gw_opdef gw_opdef_fp8_matmul = {
    .name = "fp8_matmul",
    .doc = "linear layer of blockwise scaled eight-bit floats, float32 sums by blocks of 128",
    .signature = "",
    .traits = 0,
    .linear_in = 0,
    .joins_in = 1u << EXTRA,
    .nin = 5,
    .nout = 1,
    .noptional = 1,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0xf,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_fp8_sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

const gw_opdef gw_opdef_fp8_matmul_dw = {
    .name = "fp8_matmul_dw",
    .doc = "weight gradient of fp8_matmul: blocks along tokens, adds into an accumulator",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 5,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = dw_infer,
    .verify = gw_verify_default,
    .sign = gw_fp8_sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = dw_reference,
    .cases = dw_cases,
};

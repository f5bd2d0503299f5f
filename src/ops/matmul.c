// SPDX-License-Identifier: Apache-2.0
// matmul: y = x . w (+ bias), the linear layer.
//
// The dims that x and w share by name are summed over (ops/contract.h): x[b s d] . w[h k d] -> y[b
// s h k] is a projection into heads, x[b s h k] . w[d h k] -> y[b s d] the one out of them. Weights
// are stored with their output dims first, as in PyTorch, so both operands are read along the
// contracted dims. bias has the free dims of w and is added to every row.
//
// Numerics: products of bf16 or f16 values are summed in at least float32; the bias joins before
// the one rounding to the dtype of y (attribute `dtype`; by default that of x).
//
// Backward: dx = dy . w contracts the free dims of w; dw contracts the free dims of x (op
// matmul_dw, apart from dx so that a schedule may delay it); db sums dy over the rows (bias_grad).
// It reads x and w, not y. Operands are put in the order that gives each gradient the layout of
// what it is the gradient of.
//
// Work: 2 m n k, every multiply-add counting two; the bias is left out of the count. A contracted
// dim that is sharded turns y into a partial sum. The bias then enters as a partial value too, so
// that the sum has it once: kept on the first rank, zero on the others.
#include "ops/cases.h"    /* gw_case_begin */
#include "ops/contract.h" /* gw_contract_find, gw_contract_local */
#include "ops/hooks.h"    /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"      /* gw_opdef_matmul */
#include "ops/ref.h"      /* gw_ref_get */

#include "base/panic.h" /* GW_ASSERT */

static const gw_attr_def attrs[] = {
    {"dtype", GW_ATTR_DTYPE, -1, 0}, /* of y; -1: that of x */
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 0, 1));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, (gw_dtype)gw_infer_in(f, 0)->dtype, &dtype));
    gw_contract c;
    GW_TRY(gw_contract_infer(f, dtype, &c, &f->out[0]));
    char tx[128], tw[128];
    if (c.na_free == 0 || c.nb_free == 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                       "matmul: x, %s, and w, %s, must each have a dimension of their own",
                       gw_type_text(gw_infer_in(f, 0), tx), gw_type_text(gw_infer_in(f, 1), tw));
    if (!gw_infer_has(f, 2)) return GW_OK;
    GW_TRY(gw_infer_want_float(f, 2));
    GW_TRY(gw_infer_want_ndim(f, 2, c.nb_free, c.nb_free));
    for (int i = 0; i < c.nb_free; i++) GW_TRY(gw_infer_want_dim(f, 2, i, 1, c.b_free + i));
    return GW_OK;
}

/* Sub-axes on which the product is a partial sum, as a contracted dim is cut on them. */
static uint32_t contracted_axes(const gw_type *x, const gw_type *w) {
    uint32_t axes = 0;
    for (int i = 0; i < x->ndim; i++)
        if (gw_type_find(w, x->dims[i].name) >= 0) axes |= gw_dim_axes(&x->dims[i]);
    return axes;
}

/* The op is linear in x, in w, and in x w and the bias together: a bias is partial where the
 * product is, and x and w are whole beside one. */
static gw_status verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    gw_vid bias = o->nin > 2 ? gw_op_in(g, o, 2) : GW_NONE;
    if (bias == GW_NONE) return GW_OK;
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *w = gw_type_of(g, gw_op_in(g, o, 1));
    const gw_type *b = gw_type_of(g, bias);
    if (x->psum || w->psum || (contracted_axes(x, w) & ~b->psum))
        return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement",
                       "matmul of %s: a bias that is whole is added to each part of a sum",
                       gw_graph_str(g, o->scope));
    if (b->psum & ~contracted_axes(x, w))
        return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement",
                       "matmul of %s: a bias that is a partial sum is added to a whole product",
                       gw_graph_str(g, o->scope));
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_contract k;
    char why[400];
    gw_vid x = gw_op_in(g, o, 0), w = gw_op_in(g, o, 1);
    GW_ASSERT(gw_contract_find(gw_type_of(g, x), gw_type_of(g, w), &k, why));
    double contracted = 1;
    for (int i = 0; i < k.shared; i++)
        contracted *= (double)gw_cost_dim(g, x, (k.a_leading ? 0 : k.na_free) + i);
    gw_cost_set(g, o, 2 * (double)gw_cost_elems(g, gw_op_out(g, o, 0)) * contracted, c);
}

static void vjp(gw_vjp *v) {
    gw_vid x = v->in[0], w = v->in[1], dy = v->dout[0];
    gw_contract c;
    char why[400];
    GW_ASSERT(gw_contract_find(gw_type_of(v->g, x), gw_type_of(v->g, w), &c, why));
    if (v->want[0]) {
        gw_attr a = {.i = gw_vjp_dtype(v, 0)};
        gw_vid in[2] = {c.a_leading ? w : dy, c.a_leading ? dy : w};
        v->din[0] = gw_vjp_build(v, GW_PHASE_B, "matmul", in, 2, &a, NULL);
    }
    if (v->want[1]) {
        gw_attr a = {.i = gw_vjp_dtype(v, 1)};
        gw_vid in[2] = {c.b_leading ? x : dy, c.b_leading ? dy : x};
        v->din[1] = gw_vjp_build(v, GW_PHASE_W, "matmul_dw", in, 2, &a, NULL);
    }
    if (v->nin > 2 && v->in[2] != GW_NONE && v->want[2]) {
        gw_attr a[2] = {{.i = c.nb_free}, {.i = gw_vjp_dtype(v, 2)}};
        v->din[2] = gw_vjp_build(v, GW_PHASE_W, "bias_grad", &dy, 1, a, NULL);
    }
}

/* The cut that a dim of x and of w has to have: that of w, or where w has it whole that of x, less
 * `taken`, the sub-axes that cut w elsewhere. */
static void align(gw_dim *x, gw_dim *w, uint32_t taken) {
    int64_t size = x->size;
    gw_dim_uncut(x, w->naxes ? 0 : taken);
    if (w->naxes)
        *x = *w;
    else
        *w = *x;
    x->size = w->size = size;
}

/* x and w cut alike along what they contract, which is returned; none of it elsewhere in x. */
static uint32_t align_contracted(gw_type *x, gw_type *w) {
    uint32_t axes = 0, taken = gw_type_cut_axes(w);
    for (int j = 0; j < w->ndim; j++) {
        int i = gw_type_find(x, w->dims[j].name);
        if (i >= 0) align(&x->dims[i], &w->dims[j], taken);
        if (i >= 0) axes |= gw_dim_axes(&w->dims[j]);
    }
    for (int i = 0; i < x->ndim; i++)
        if (gw_type_find(w, x->dims[i].name) < 0) gw_dim_uncut(&x->dims[i], gw_type_cut_axes(w));
    return axes;
}

/* y as the free dims of x and of w are cut. */
static void place_product(gw_sharding *s, const gw_type *x, const gw_type *w, uint32_t psum) {
    gw_type t = gw_type_scalar(GW_F32);
    for (int i = 0; i < x->ndim; i++)
        if (gw_type_find(w, x->dims[i].name) < 0) t.dims[t.ndim++] = x->dims[i];
    for (int i = 0; i < w->ndim; i++)
        if (gw_type_find(x, w->dims[i].name) < 0) t.dims[t.ndim++] = w->dims[i];
    t.psum = psum;
    gw_sharding_place(s, s->out[0], &t);
}

/* x and w without partial sums, which a product with a bias does not pass on. */
static void reduce_inputs(gw_sharding *s) {
    for (int i = 0; i < 2; i++) {
        gw_type t = *gw_type_of(s->b->g, s->in[i]);
        t.psum = t.pmax = 0;
        s->in[i] = gw_sharding_convert(s, s->in[i], &t);
    }
}

/* A bias is added once: not to each of the partial products, nor to a product of partial sums. (In
 * forward the signature reduces those, to the cut it likes best.) */
static gw_status shard(gw_sharding *s, gw_diags *dg) {
    if (s->nin < 3 || s->in[2] == GW_NONE) return s->by_signature(s, dg);
    gw_type t[3];
    for (int i = 0; i < 3; i++) {
        t[i] = *gw_type_of(s->b->g, s->in[i]);
        t[i].psum = t[i].pmax = 0;
    }
    uint32_t contracted = align_contracted(&t[0], &t[1]);
    if (!contracted) {
        if (s->b->phase != GW_PHASE_F) reduce_inputs(s);
        return s->by_signature(s, dg);
    }
    for (int i = 0; i < t[2].ndim; i++)
        t[2].dims[i] = t[1].dims[gw_type_find(&t[1], t[2].dims[i].name)];
    t[2].psum = contracted;
    gw_vid in[3];
    for (int i = 0; i < 3; i++) in[i] = gw_sharding_convert(s, s->in[i], &t[i]);
    s->out[0] = gw_build(s->b, "matmul", in, 3, s->attrs, NULL);
    place_product(s, &t[0], &t[1], contracted);
    return s->b->status;
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0], *w = &k->in[1], *y = &k->out[0];
    gw_contract_sizes s = gw_contract_local(k);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = gw_ref_dot(x, i * s.a_m, s.a_k, w, j * s.b_n, s.b_k, s.k);
            gw_ref_set(y, i * s.n + j, sum + gw_ref_acc(k, 2, j));
        }
}

static void build_case(gw_cases *cs, const char *name, const char *xd, const char *wd,
                       const char *bias) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid w = gw_case_value(c, wd, true, GW_FILL_NORMAL, 1, 0);
    gw_vid b = bias ? gw_case_value(c, bias, true, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build1(&c->b, "matmul", x, w, b);
}

static void cases(gw_cases *cs) {
    build_case(cs, "plain", "b2 s3 d5", "f4 d5", NULL);
    build_case(cs, "into heads, bias", "b2 s2 d3", "h2 k2 d3", "h2 k2");
    build_case(cs, "out of heads", "b1 s3 h2 k3", "d4 h2 k3", NULL);
    build_case(cs, "leading in w", "s3 d4", "d4 f3", NULL);
    build_case(cs, "leading in x", "d4 s3", "f2 d4", "f2");
    build_case(cs, "leading in both", "d3 s2", "d3 f4", NULL);
    build_case(cs, "one row of many columns", "s1 d33", "f1 d33", "f1");
    if (cs->dtype != GW_BF16 && cs->dtype != GW_F16) return;
    gw_case *c = gw_case_begin(cs, "float32 result");
    gw_vid x = gw_case_value(c, "b3 d8", false, GW_FILL_NORMAL, 1, 0);
    gw_vid w = gw_case_value(c, "f5 d8", true, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "matmul", (gw_vid[]){x, w}, 2, (gw_attr[]){{.i = GW_F32}}, NULL);
}

const gw_opdef gw_opdef_matmul = {
    .name = "matmul",
    .doc =
        "linear layer: contracts the dimensions that x and w share by name, adds an optional bias",
    .signature = "",
    .traits = 0,
    .linear_in = 0x7,
    .nin = 3,
    .nout = 1,
    .noptional = 1,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = attrs,
    .infer = infer,
    .verify = verify,
    .sign = gw_sign_default,
    .shard = shard,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

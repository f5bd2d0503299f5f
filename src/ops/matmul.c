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
// dim that is sharded turns y into a partial sum. The bias then enters as a partial value too,
// non-zero on one rank only.
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
    .linear_in = 0,
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
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

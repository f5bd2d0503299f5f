// SPDX-License-Identifier: Apache-2.0
// matmul_dw: the weight gradient of a linear layer, dw = dy^T . x (+ acc).
//
// dy[b s n..] and x[b s k..] are contracted over the dims they share, which are the rows (b, s):
// dw[n.. k..] has the layout of the weight. It is an op of its own, phase W, so that it can run
// later than the input gradient, and it has its own dtype: weight gradients are summed in float32
// by default, however narrow dy and x are.
//
// The accumulator. With `acc` present, dw = acc + dy^T . x in place: this is how micro-batches add
// up without a second buffer. The sum of one micro-batch is complete before it meets acc.
//
// Work: 2 m n k. A sharded row dim (data parallelism, sequence parallelism) leaves dw a partial
// sum: that is where gradient all-reduces come from.
#include "ops/cases.h"    /* gw_case_begin */
#include "ops/contract.h" /* gw_contract_infer */
#include "ops/hooks.h"    /* gw_infer_want_* */
#include "ops/ops.h"      /* gw_opdef_matmul_dw */
#include "ops/ref.h"      /* gw_ref_dot */

#include "base/panic.h" /* GW_ASSERT */

static const gw_attr_def attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dw */
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 0, 1));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    gw_contract c;
    GW_TRY(gw_contract_infer(f, dtype, &c, &f->out[0]));
    return gw_infer_want_acc(f, 2, &f->out[0]);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_contract k;
    char why[400];
    gw_vid dy = gw_op_in(g, o, 0), x = gw_op_in(g, o, 1);
    GW_ASSERT(gw_contract_find(gw_type_of(g, dy), gw_type_of(g, x), &k, why));
    double rows = 1;
    for (int i = 0; i < k.shared; i++)
        rows *= (double)gw_cost_dim(g, dy, (k.a_leading ? 0 : k.na_free) + i);
    gw_cost_set(g, o, 2 * (double)gw_cost_elems(g, gw_op_out(g, o, 0)) * rows, c);
}

static void reference(const gw_kargs *k) {
    const gw_tensor *dy = &k->in[0], *x = &k->in[1];
    gw_contract_sizes s = gw_contract_local(k);
    for (int64_t i = 0; i < s.m; i++)
        for (int64_t j = 0; j < s.n; j++) {
            double sum = gw_ref_dot(dy, i * s.a_m, s.a_k, x, j * s.b_n, s.b_k, s.k);
            int64_t e = i * s.n + j;
            gw_ref_set(&k->out[0], e, gw_ref_acc(k, 2, e) + sum);
        }
}

static void build_case(gw_cases *cs, const char *name, const char *dyd, const char *xd,
                       const char *acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid dy = gw_case_value(c, dyd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid x = gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid a = acc ? gw_case_fixed(c, GW_F32, acc, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build1(&c->b, "matmul_dw", dy, x, a);
}

static void cases(gw_cases *cs) {
    build_case(cs, "plain", "b2 s5 f4", "b2 s5 d3", NULL);
    build_case(cs, "accumulates", "b2 s5 f4", "b2 s5 d3", "f4 d3");
    build_case(cs, "heads", "b1 s4 h2 k3", "b1 s4 d5", "h2 k3 d5");
    build_case(cs, "trailing rows", "f2 s6", "d3 s6", NULL);
    build_case(cs, "one row", "s1 f3", "s1 d2", "f3 d2");
}

const gw_opdef gw_opdef_matmul_dw = {
    .name = "matmul_dw",
    .doc = "weight gradient of matmul: contracts the shared (row) dimensions, adds into an "
           "accumulator",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0x3,
    .nin = 3,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

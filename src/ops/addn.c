// SPDX-License-Identifier: Apache-2.0
// addn: y = a + b + ..., any number of equal types, added in the order they stand.
//
// Where a value is used several times its gradient is the sum of that many parts; one op that reads
// each part once moves (n + 1) / (3 n - 3) of the bytes that a chain of additions moves. The sum is
// rounded once, at y, so in bf16 it is also more exact than a chain. It may run in place on an
// operand that dies here. Partial sums travel through, as in add. The gradient of every operand is
// dy itself.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_addn */
#include "ops/ref.h"   /* gw_ref_get */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    for (int i = 1; i < f->nin; i++) {
        GW_TRY(gw_infer_want_same_dtype(f, 0, i));
        GW_TRY(gw_infer_want_same_dims(f, 0, i));
    }
    const gw_type *a = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(a, (gw_dtype)a->dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)(o->nin - 1) * (double)gw_cost_elems(g, gw_op_out(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    for (int i = 0; i < v->nin; i++)
        if (v->want[i]) v->din[i] = v->dout[0];
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double sum = gw_ref_get(&k->in[0], i);
        for (int j = 1; j < k->nin; j++) sum += gw_ref_get(&k->in[j], i);
        gw_ref_set(&k->out[0], i, sum);
    }
}

static void build_case(gw_cases *cs, const char *name, const char *dims, int n) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[5];
    for (int i = 0; i < n; i++) in[i] = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "addn", in, n, NULL, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "one", "d7", 1);
    build_case(cs, "three", "b2 s3 d17", 3);
    build_case(cs, "five", "s3 h2 k5", 5);
}

const gw_opdef gw_opdef_addn = {
    .name = "addn",
    .doc = "elementwise sum of any number of tensors of one type, in order",
    .signature = "*->*",
    .traits = GW_OP_LINEAR | GW_OP_FLAT | GW_OP_INPLACE | GW_OP_VARIADIC,
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
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

// SPDX-License-Identifier: Apache-2.0
// add: y = a + b, the residual connection.
//
// Equal dtypes and dims, no broadcast: what a model adds is always whole activations. It may run in
// place on an operand that dies here. The gradient of both operands is dy itself, so backward
// appends nothing and reads nothing. Partial sums travel through: the sum of two partial sums is
// the partial sum of the sums, which is how several gradients of one activation are added before
// they are reduced once.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_add */
#include "ops/ref.h"   /* gw_ref_get */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 0, 1));
    GW_TRY(gw_infer_want_same_dims(f, 0, 1));
    const gw_type *a = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(a, (gw_dtype)a->dtype);
    return GW_OK;
}

static void vjp(gw_vjp *v) {
    for (int i = 0; i < 2; i++)
        if (v->want[i]) v->din[i] = v->dout[0];
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i, gw_ref_get(&k->in[0], i) + gw_ref_get(&k->in[1], i));
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_vid a = gw_case_value(c, "b2 s3 d7", false, GW_FILL_NORMAL, 1, 0);
    gw_vid b = gw_case_value(c, "b2 s3 d7", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "add", a, b);
    c = gw_case_begin(cs, "with itself");
    a = gw_case_value(c, "d17", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "add", a, a);
}

const gw_opdef gw_opdef_add = {
    .name = "add",
    .doc = "elementwise sum of two tensors of one type",
    .signature = "*,*->*",
    .traits = GW_OP_LINEAR | GW_OP_FLAT | GW_OP_INPLACE,
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
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

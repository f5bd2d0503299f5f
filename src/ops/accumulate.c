// SPDX-License-Identifier: Apache-2.0
// accumulate: adds a finished value of one micro-batch into its sum over the step.
//
//   accumulate x, acc?  -> y = acc + x        acc is float and y takes over its bytes
//
// Weight gradients add into their accumulators by themselves (their last input). Where a gradient
// has to change its placement before it is added (it is reduced over ranks in each micro-batch, its
// accumulator being a part), that addition is an op of its own. Without acc it copies. Addition in
// float32, or float64 beside it. Linear and elementwise: every placement passes through.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_accumulate */
#include "ops/ref.h"   /* gw_ref_get */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    const gw_type *x = gw_infer_in(f, 0);
    gw_dtype t = (gw_dtype)x->dtype;
    if (gw_infer_has(f, 1)) {
        GW_TRY(gw_infer_want_float(f, 1));
        GW_TRY(gw_infer_want_same_dims(f, 1, 0));
        t = (gw_dtype)gw_infer_in(f, 1)->dtype;
    }
    f->out[0] = gw_type_plain(x, t);
    return GW_OK;
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i,
                   gw_ref_get(&k->in[0], i) + (k->in[1].data ? gw_ref_get(&k->in[1], i) : 0));
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "into a sum");
    gw_vid x = gw_case_value(c, "h3 d37", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "accumulate", x, gw_case_value(c, "h3 d37", false, GW_FILL_NORMAL, 1, 0));
    c = gw_case_begin(cs, "a first one");
    gw_build1(&c->b, "accumulate", gw_case_value(c, "d19", false, GW_FILL_NORMAL, 1, 0));
    c = gw_case_begin(cs, "into float32");
    x = gw_case_value(c, "d1031", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(
        &c->b, "accumulate", x,
        gw_case_fixed(c, cs->dtype == GW_F64 ? GW_F64 : GW_F32, "d1031", GW_FILL_NORMAL, 1, 0));
}

const gw_opdef gw_opdef_accumulate = {
    .name = "accumulate",
    .doc = "adds a micro-batch's finished value into its sum over the step",
    .signature = "*,*?->*",
    .traits = GW_OP_NODIFF | GW_OP_LINEAR | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
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
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

// SPDX-License-Identifier: Apache-2.0
// relu: y = max(x, 0); and its gradient dx = dy where y > 0, else 0.
//
// Nair and Hinton, "Rectified linear units improve restricted Boltzmann machines", 2010. At 0 the
// slope is 0, as in torch. NaN passes through. Backward reads y, so that relu may work in place of
// what made x. Elementwise; one flop an element by convention.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_relu */
#include "ops/ref.h"   /* gw_ref_get */

/* All inputs and outputs have the type of input 0. */
static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    for (int i = 1; i < f->nin; i++) {
        GW_TRY(gw_infer_want_same_dtype(f, i, 0));
        GW_TRY(gw_infer_want_same_dims(f, i, 0));
    }
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[2] = {v->dout[0], v->out[0]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "relu_grad", in, 2, NULL, NULL);
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double x = gw_ref_get(&k->in[0], i);
        gw_ref_set(&k->out[0], i, x <= 0 ? 0 : x);
    }
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_build1(&c->b, "relu", gw_case_value(c, "b2 y3 x3 c5", false, GW_FILL_NORMAL, 1, 0));
}

const gw_opdef gw_opdef_relu = {
    .name = "relu",
    .doc = "rectified linear unit",
    .signature = "*->*",
    .traits = GW_OP_INPLACE,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0x1,
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

/* ---- gradient: dy, y -> dx ---- */

static void grad_reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double dy = gw_ref_get(&k->in[0], i), y = gw_ref_get(&k->in[1], i);
        gw_ref_set(&k->out[0], i, y <= 0 ? 0 : dy);
    }
}

static void grad_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_vid dy = gw_case_value(c, "b2 y3 x3 c5", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "relu_grad", dy, gw_case_value(c, "b2 y3 x3 c5", false, GW_FILL_NORMAL, 1, 0));
}

const gw_opdef gw_opdef_relu_grad = {
    .name = "relu_grad",
    .doc = "gradient of relu",
    .signature = "*,*->*",
    .traits = GW_OP_INPLACE | GW_OP_NODIFF,
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
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

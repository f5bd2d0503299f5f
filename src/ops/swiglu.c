// SPDX-License-Identifier: Apache-2.0
// swiglu: y = silu(gate) * up with silu(z) = z * sigmoid(z); and its gradient.
//
// Shazeer, "GLU Variants Improve Transformer", 2020: the gated feed-forward of Llama and its kin.
// With s = sigmoid(gate):
//   dgate = dy * up * s * (1 + gate * (1 - s))        dup = dy * gate * s
// Backward reads gate and up and gives both at once, phase B. Elementwise in any dims; one rounding
// per output; the first output may take the bytes of an input. One flop an element by convention.
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_swiglu */
#include "ops/ref.h"   /* gw_ref_get */

static double sigmoid(double z) { return 1 / (1 + exp(-z)); }

/* All inputs and outputs have the type of input 0. */
static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    for (int i = 1; i < f->nin; i++) {
        GW_TRY(gw_infer_want_same_dtype(f, i, 0));
        GW_TRY(gw_infer_want_same_dims(f, i, 0));
    }
    const gw_type *t = gw_infer_in(f, 0);
    for (int i = 0; i < *f->nout; i++) f->out[i] = gw_type_plain(t, (gw_dtype)t->dtype);
    return GW_OK;
}

/* ---- forward ---- */

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1]) return;
    gw_vid in[3] = {v->dout[0], v->in[0], v->in[1]}, dup;
    gw_vid dgate = gw_vjp_build(v, GW_PHASE_B, "swiglu_grad", in, 3, NULL, &dup);
    if (v->want[0]) v->din[0] = dgate;
    if (v->want[1]) v->din[1] = dup;
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double z = gw_ref_get(&k->in[0], i);
        gw_ref_set(&k->out[0], i, z * sigmoid(z) * gw_ref_get(&k->in[1], i));
    }
}

static void cases(gw_cases *cs) {
    static const char *const dims[][2] = {{"plain", "b2 s3 f5"}, {"odd length", "f67"}};
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, dims[i][0]);
        gw_vid gate = gw_case_value(c, dims[i][1], false, GW_FILL_NORMAL, 2, 0);
        gw_vid up = gw_case_value(c, dims[i][1], false, GW_FILL_NORMAL, 1, 0);
        gw_build1(&c->b, "swiglu", gate, up);
    }
}

const gw_opdef gw_opdef_swiglu = {
    .name = "swiglu",
    .doc = "silu(gate) * up, elementwise",
    .signature = "*,*->*",
    .traits = GW_OP_INPLACE,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
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

/* ---- gradient: dy, gate, up -> dgate, dup ---- */

static void grad_reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double dy = gw_ref_get(&k->in[0], i), z = gw_ref_get(&k->in[1], i);
        double up = gw_ref_get(&k->in[2], i), s = sigmoid(z);
        gw_ref_set(&k->out[0], i, dy * up * s * (1 + z * (1 - s)));
        gw_ref_set(&k->out[1], i, dy * z * s);
    }
}

static void grad_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_vid dy = gw_case_value(c, "b2 f33", false, GW_FILL_NORMAL, 1, 0);
    gw_vid gate = gw_case_value(c, "b2 f33", false, GW_FILL_NORMAL, 3, 0);
    gw_vid up = gw_case_value(c, "b2 f33", false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "swiglu_grad", dy, gate, up);
}

const gw_opdef gw_opdef_swiglu_grad = {
    .name = "swiglu_grad",
    .doc = "gradient of swiglu: of gate and of up",
    .signature = "*,*,*->*,*",
    .traits = GW_OP_INPLACE | GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 3,
    .nout = 2,
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

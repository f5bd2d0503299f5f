// SPDX-License-Identifier: Apache-2.0
// gelu: y = x * Phi(x), exactly or by the tanh formula; and its gradient.
//
// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016. `tanh` true is what GPT-2 trained with
// ("gelu_new"):
//   y = x/2 (1 + tanh u),  u = c (x + 0.044715 x^3),  c = sqrt(2/pi)
//   dy/dx = (1 + tanh u)/2 + x/2 (1 - tanh^2 u) c (1 + 3 * 0.044715 x^2)
// false is the exact form:
//   y = x/2 (1 + erf(x / sqrt 2)),  dy/dx = (1 + erf(x / sqrt 2))/2 + x exp(-x^2/2) / sqrt(2 pi)
// Backward reads x. Elementwise; one rounding; the output may take the bytes of an input. One flop
// an element by convention.
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_gelu */
#include "ops/ref.h"   /* gw_ref_get */

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;
static const double inv_sqrt_2pi = 0.39894228040143267794;

static const gw_attr_def attrs[] = {
    {"tanh", GW_ATTR_BOOL, 1, 0}, /* the tanh formula; false: exact */
};

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

/* ---- forward ---- */

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[2] = {v->dout[0], v->in[0]};
    gw_attr a = v->attrs[0];
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "gelu_grad", in, 2, &a, NULL);
}

static void reference(const gw_kargs *k) {
    bool by_tanh = gw_ref_attr(k, 0).i != 0;
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double x = gw_ref_get(&k->in[0], i);
        double phi =
            by_tanh ? tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x)) : erf(x * sqrt_half);
        gw_ref_set(&k->out[0], i, 0.5 * x * (1 + phi));
    }
}

static void cases(gw_cases *cs) {
    for (int by_tanh = 0; by_tanh < 2; by_tanh++) {
        gw_case *c = gw_case_begin(cs, by_tanh ? "tanh" : "exact");
        gw_vid x = gw_case_value(c, "b2 f35", false, GW_FILL_NORMAL, 2, 0);
        gw_build(&c->b, "gelu", &x, 1, (gw_attr[]){{.i = by_tanh}}, NULL);
    }
}

const gw_opdef gw_opdef_gelu = {
    .name = "gelu",
    .doc = "Gaussian error linear unit, tanh formula or exact",
    .signature = "*->*",
    .traits = GW_OP_INPLACE,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x1,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- gradient: dy, x -> dx ---- */

static double slope_tanh(double x) {
    double t = tanh(sqrt_2_over_pi * (x + 0.044715 * x * x * x));
    double du = sqrt_2_over_pi * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

static double slope_exact(double x) {
    return 0.5 * (1 + erf(x * sqrt_half)) + x * exp(-0.5 * x * x) * inv_sqrt_2pi;
}

static void grad_reference(const gw_kargs *k) {
    bool by_tanh = gw_ref_attr(k, 0).i != 0;
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double dy = gw_ref_get(&k->in[0], i), x = gw_ref_get(&k->in[1], i);
        gw_ref_set(&k->out[0], i, dy * (by_tanh ? slope_tanh(x) : slope_exact(x)));
    }
}

static void grad_cases(gw_cases *cs) {
    for (int by_tanh = 0; by_tanh < 2; by_tanh++) {
        gw_case *c = gw_case_begin(cs, by_tanh ? "tanh" : "exact");
        gw_vid dy = gw_case_value(c, "b2 f35", false, GW_FILL_NORMAL, 1, 0);
        gw_vid x = gw_case_value(c, "b2 f35", false, GW_FILL_NORMAL, 2, 0);
        gw_build(&c->b, "gelu_grad", (gw_vid[]){dy, x}, 2, (gw_attr[]){{.i = by_tanh}}, NULL);
    }
}

const gw_opdef gw_opdef_gelu_grad = {
    .name = "gelu_grad",
    .doc = "gradient of gelu",
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
    .nattrs = 1,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

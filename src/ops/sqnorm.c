// SPDX-License-Identifier: Apache-2.0
// The global gradient norm: sqnorm (one tensor's sum of squares) and clip (what to do with their
// total).
//
// sqnorm   x -> s[]        s = sum of x^2
//   Products and sums are float64: in float32 a sum of 10^9 equal terms stops growing, and a square
//   overflows at 1.8e19. The result is float32 (float64 beside float64 values). Every dimension of
//   x is contracted, so on a sharded x the result is a partial sum and the norm over ranks is one
//   reduction.
// clip     sumsq[], inv_scale[] -> norm[], factor[], ok[]
//   inv_scale takes off what the gradients were multiplied by (the loss scale).
//     norm   = sqrt(sumsq) * inv_scale
//     factor = inv_scale * (max > 0 ? min(1, max / (norm + 1e-6)) : 1)
//     ok     = 1 if norm is finite, else 0; factor is then 0
//   This is torch.nn.utils.clip_grad_norm_ with its 1e-6, split in two: the optimizer multiplies
//   each gradient element by factor as it reads it, so clipping costs no pass over memory. One
//   element that is infinite or NaN makes the norm so, and ok = 0 makes every optimizer leave its
//   state alone: one test for all tensors.
//
// Both belong to the step's frame and have no gradient. Two flops an element for sqnorm.
#include <math.h>

#include "base/compiler.h" /* GW_MIN */
#include "ops/cases.h"     /* gw_case_begin */
#include "ops/hooks.h"     /* gw_infer_want_* */
#include "ops/ops.h"       /* gw_opdef_sqnorm, gw_opdef_clip */
#include "ops/ref.h"       /* gw_ref_get */

/* ---- sqnorm ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    f->out[0] = gw_type_scalar(gw_dtype_stat((gw_dtype)gw_infer_in(f, 0)->dtype));
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 2 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void reference(const gw_kargs *k) {
    gw_ref_set(&k->out[0], 0, gw_ref_dot(&k->in[0], 0, 1, &k->in[0], 0, 1, k->in[0].elems));
}

static void cases(gw_cases *cs) {
    static const char *const dims[] = {"d1", "v37 d19", "h3 k5 d7", "b0 d4"};
    for (size_t i = 0; i < GW_COUNT(dims); i++) {
        gw_case *c = gw_case_begin(cs, dims[i]);
        gw_build1(&c->b, "sqnorm", gw_case_value(c, dims[i], false, GW_FILL_NORMAL, 2, 0));
    }
}

const gw_opdef gw_opdef_sqnorm = {
    .name = "sqnorm",
    .doc = "sum of squares of a tensor, in float64 inside",
    .signature = "*->",
    .traits = GW_OP_NODIFF | GW_OP_FLAT,
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
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

/* ---- clip ---- */

static const gw_attr_def clip_attrs[] = {
    {"max", GW_ATTR_FLOAT, 0, 0},
};

static gw_status clip_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_scalar(f, 0));
    GW_TRY(gw_infer_want_scalar(f, 1));
    for (int i = 0; i < 3; i++) f->out[i] = gw_type_scalar((gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void clip_reference(const gw_kargs *k) {
    double sumsq = gw_ref_get(&k->in[0], 0), inv_scale = gw_ref_get(&k->in[1], 0);
    double max = gw_ref_attr(k, 0).f, norm = sqrt(sumsq) * inv_scale;
    bool ok = isfinite(norm);
    double shrink = max > 0 ? GW_MIN(1, max / (norm + 1e-6)) : 1;
    gw_ref_set(&k->out[0], 0, norm);
    gw_ref_set(&k->out[1], 0, ok ? inv_scale * shrink : 0);
    gw_ref_set(&k->out[2], 0, ok ? 1 : 0);
}

static void clip_case(gw_cases *cs, const char *name, double sumsq, double inv, double max) {
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype t = gw_dtype_stat(cs->dtype);
    gw_vid in[2] = {gw_case_fixed(c, t, "", GW_FILL_CONST, sumsq, 0),
                    gw_case_fixed(c, t, "", GW_FILL_CONST, inv, 0)};
    gw_build(&c->b, "clip", in, 2, (gw_attr[]){{.f = max}}, NULL);
}

static void clip_cases(gw_cases *cs) {
    clip_case(cs, "above the limit", 9, 1, 1);
    clip_case(cs, "below the limit", 0.25, 1, 1);
    clip_case(cs, "no limit", 9, 0.125, 0);
    clip_case(cs, "scaled", 1e10, 1.0 / 65536, 1);
    clip_case(cs, "not finite", (double)INFINITY, 1, 1);
}

const gw_opdef gw_opdef_clip = {
    .name = "clip",
    .doc = "from a sum of squares: the norm, the factor that clips, and whether it is finite",
    .signature = ",->,,",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 2,
    .nout = 3,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = clip_attrs,
    .infer = clip_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = clip_reference,
    .cases = clip_cases,
};

// SPDX-License-Identifier: Apache-2.0
// redo: was a step that did not wait for the norm the right one?
//
// With a deferred norm every parameter is stepped with inv_scale, as if nothing were clipped, and
// the norm's verdict comes afterwards (clip: factor and ok).
//
//   factor, inv_scale, ok -> redo, ok2
//     not ok                 redo = 1, ok2 = 0   the copies come back, nothing follows
//     factor == inv_scale    redo = 0, ok2 = 0   nothing was clipped: the step stands
//     otherwise              redo = 1, ok2 = 1   the copies come back and are stepped with factor
//
// Equality is of bits, so whatever stands equals what the exact order gives. Frame op: no gradient.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_redo */
#include "ops/ref.h"   /* gw_ref_get */

static gw_status infer(gw_infer *f) {
    for (int i = 0; i < 3; i++) GW_TRY(gw_infer_want_scalar(f, i));
    for (int i = 0; i < 2; i++) f->out[i] = gw_type_scalar((gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void reference(const gw_kargs *k) {
    bool ok = gw_ref_get(&k->in[2], 0) != 0;
    bool same = gw_ref_get(&k->in[0], 0) == gw_ref_get(&k->in[1], 0);
    gw_ref_set(&k->out[0], 0, !ok || !same);
    gw_ref_set(&k->out[1], 0, ok && !same);
}

static void build_case(gw_cases *cs, const char *name, double factor, double inv, double ok) {
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype t = gw_dtype_stat(cs->dtype);
    gw_build1(&c->b, "redo", gw_case_fixed(c, t, "", GW_FILL_CONST, factor, 0),
              gw_case_fixed(c, t, "", GW_FILL_CONST, inv, 0),
              gw_case_fixed(c, t, "", GW_FILL_CONST, ok, 0));
}

static void cases(gw_cases *cs) {
    build_case(cs, "it stands", 0.125, 0.125, 1);
    build_case(cs, "clipped", 0.0625, 0.125, 1);
    build_case(cs, "not finite", 0, 0.125, 0);
}

const gw_opdef gw_opdef_redo = {
    .name = "redo",
    .doc = "whether a step taken before the norm was known is undone, and whether one follows",
    .signature = ",,->,",
    .traits = GW_OP_NODIFF,
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
    .reference = reference,
    .cases = cases,
};

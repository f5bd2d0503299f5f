// SPDX-License-Identifier: Apache-2.0
// carry and commit: state that the micro-batch loop advances, in a step that may be refused.
//
// A step whose gradient norm is not finite leaves every byte of state as it was. Optimizer ops see
// to it themselves: they run after the norm and read `ok`. Running statistics are advanced before
// the norm is known, once a micro-batch, so the loop works on a copy:
//   before the loop   w = carry(state)              the same bytes elsewhere, of any dtype
//   in the loop       w' = running_stat(w, ..)      in w's bytes
//   after the loop    state' = commit(state, w', ok)   w' if ok is not 0, else state, in its bytes
// Every dim passes, and every dtype; nothing is computed.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_carry */
#include "ops/ref.h"   /* gw_ref_get */

static size_t bytes_of(const gw_tensor *t) {
    return (size_t)(t->elems * gw_dtype_bits(t->dtype) / 8);
}

/* ---- carry: x -> y ---- */

static gw_status infer(gw_infer *f) {
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    return GW_OK;
}

static void nothing(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    if (bytes_of(&k->out[0])) memmove(k->out[0].data, k->in[0].data, bytes_of(&k->out[0]));
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "floats");
    gw_build1(&c->b, "carry", gw_case_value(c, "group2 c19", false, GW_FILL_NORMAL, 1, 0));
    c = gw_case_begin(cs, "a counter");
    gw_build1(&c->b, "carry", gw_case_fixed(c, GW_I64, "", GW_FILL_CONST, 7, 0));
}

const gw_opdef gw_opdef_carry = {
    .name = "carry",
    .doc = "a copy of state for the micro-batch loop to advance",
    .signature = "*->*",
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
    .cost = nothing,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

/* ---- commit: old, new, ok -> old' ---- */

static gw_status commit_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    GW_TRY(gw_infer_want_scalar(f, 2));
    return infer(f);
}

static void commit_reference(const gw_kargs *k) {
    int from = gw_ref_get(&k->in[2], 0) != 0;
    bool there = k->out[0].data == k->in[from].data;
    if (!there && bytes_of(&k->out[0]))
        memmove(k->out[0].data, k->in[from].data, bytes_of(&k->out[0]));
}

static void commit_cases(gw_cases *cs) {
    for (int ok = 0; ok < 2; ok++) {
        gw_case *c = gw_case_begin(cs, ok ? "taken" : "refused");
        gw_vid a = gw_case_value(c, "c19", false, GW_FILL_NORMAL, 1, 0);
        gw_vid b = gw_case_value(c, "c19", false, GW_FILL_NORMAL, 1, 0);
        gw_build1(&c->b, "commit", a, b, gw_case_fixed(c, GW_F32, "", GW_FILL_CONST, ok, 0));
    }
}

const gw_opdef gw_opdef_commit = {
    .name = "commit",
    .doc = "takes over what the loop made of a piece of state, if the step is accepted",
    .signature = "*,*,->*",
    .traits = GW_OP_NODIFF | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = commit_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = nothing,
    .vjp = gw_vjp_none,
    .reference = commit_reference,
    .cases = commit_cases,
};

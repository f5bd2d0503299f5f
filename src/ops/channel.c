// SPDX-License-Identifier: Apache-2.0
// send and recv: a value leaves for another stage of a pipeline, and comes from one.
//
//   send  x ->      {to tag places}     to: the coordinate of the receiver on the mesh's pp axes
//   recv    -> y    {from tag places}   the same value: type and cuts are those of its sender
//
// A pair belongs together by its two ranks and its tag, which no other pair of them has, one way.
// Both sides have the same value under the same placement, so a rank sends what it holds to the
// rank of the other stage that stands where it stands on all other axes. The program on either side
// is another one; that a send has a receive is the business of the pass that cuts a model
// (pass/split.c) and of the schedule's checker.
//
// As functions they are the identity across programs, so neither has a reference of its own: the
// executor hands them to comm/channel.h. A send does not wait for its receiver: it copies into a
// box of `places` messages, which is its workspace and lives as long as the program, since the
// receiver takes a message when it comes to it.
//
// They are inserted after differentiation, work no FLOPs, and are tested where two ranks are
// (tests/run, tests/train).
#include "base/panic.h" /* gw_panic */
#include "ops/cases.h"  /* gw_cases_none */
#include "ops/hooks.h"  /* gw_type_plain */
#include "ops/ops.h"    /* gw_opdef_send */

static const gw_attr_def send_attrs[] = {
    {"to", GW_ATTR_INT, 0, 0}, {"tag", GW_ATTR_INT, 0, 0}, {"places", GW_ATTR_INT, 1, 0}};
static const gw_attr_def recv_attrs[] = {
    {"from", GW_ATTR_INT, 0, 0}, {"tag", GW_ATTR_INT, 0, 0}, {"places", GW_ATTR_INT, 1, 0}};

static gw_status check(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    const gw_opdef *def = gw_op_def(g, o);
    for (int i = 0; i < def->nattrs; i++) {
        int64_t x = gw_op_attr(g, o, i).i;
        if (x < (i == 2) || x > INT32_MAX)
            return GW_FAIL(dg, GW_ERR_FORMAT, "op-attribute", "%s: %s is %lld", def->name,
                           def->attrs[i].name, (long long)x);
    }
    return GW_OK;
}

/* A receive has no input to take its type from: whoever inserts it gives it one. */
static gw_status infer(gw_infer *f) {
    if (*f->nout > 0)
        return GW_FAIL(f->dg, GW_ERR_UNSUPPORTED, "op-attribute",
                       "%s is made with its type, not by inference", f->def->name);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    gw_panic("%s is run by src/comm, not by a kernel", gw_op_def(k->g, k->op)->name);
}

const gw_opdef gw_opdef_send = {
    .name = "send",
    .doc = "a value leaves for another stage of a pipeline",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 1,
    .nout = 0,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = send_attrs,
    .infer = infer,
    .verify = check,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = gw_cases_none,
};

const gw_opdef gw_opdef_recv = {
    .name = "recv",
    .doc = "a value comes from another stage of a pipeline",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 0,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = recv_attrs,
    .infer = infer,
    .verify = check,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = gw_cases_none,
};

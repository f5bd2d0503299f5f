// SPDX-License-Identifier: Apache-2.0
// record: what each micro-batch of a step made of a value, kept until the host has read it.
//
//   records[m b s x], value[b s x], slot i64[] -> records'      records'[slot] = value, in place
//
// Values of the micro-batch loop share their bytes with others that are not alive at the same time,
// and the next micro-batch overwrites them. A state that the loop advances (ops/carry.c) outlives
// the step, so a program that shall tell what it decided (which experts it chose, for another run
// to choose the same) files that in a state with one slot a micro-batch. The slot is data, so that
// micro-batches may come in any order.
//
// The records lie as an input of the model does, samples and tokens on the ranks that have them;
// the value is brought there first. Bits are copied; no gradient. A slot that is not there is left
// alone, as nothing can be refused here.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_record */
#include "ops/ref.h"   /* gw_ref_int */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    GW_TRY(gw_infer_want_ndim(f, 1, 3, 3));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    GW_TRY(gw_infer_want_int(f, 2));
    GW_TRY(gw_infer_want_ndim(f, 2, 0, 0));
    for (int i = 0; i < 3; i++) GW_TRY(gw_infer_want_dim(f, 1, i, 0, i + 1));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

/* The value comes to where the records are. */
static gw_status shard(gw_sharding *s, gw_diags *dg) {
    (void)dg;
    const gw_type t = *gw_type_of(s->b->g, s->in[0]);
    gw_vid in[3] = {s->in[0], gw_sharding_convert(s, s->in[1], &t), s->in[2]};
    s->out[0] = gw_build(s->b, "record", in, 3, s->attrs, NULL);
    gw_sharding_place(s, s->out[0], &t);
    return s->b->status;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    size_t all = (size_t)(k->out[0].elems * gw_dtype_bits(k->out[0].dtype) / 8);
    size_t one = (size_t)(k->in[1].elems * gw_dtype_bits(k->in[1].dtype) / 8);
    int64_t slot = gw_ref_int(&k->in[2], 0);
    char *to = k->out[0].data;
    if (all && k->in[0].data != k->out[0].data) memmove(to, k->in[0].data, all);
    if (one && slot >= 0 && slot < k->out[0].dims[0])
        memcpy(to + (size_t)slot * one, k->in[1].data, one);
}

static void cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "numbers" : "choices");
        gw_vid in[3];
        gw_dtype t = i ? gw_dtype_stat(cs->dtype) : GW_I32;
        in[0] = gw_case_fixed(c, t, "m3 b2 s4 t2", i ? GW_FILL_NORMAL : GW_FILL_INTS, 0, 5);
        in[1] = gw_case_fixed(c, t, "b2 s4 t2", i ? GW_FILL_NORMAL : GW_FILL_INTS, 0, 5);
        in[2] = gw_case_fixed(c, GW_I64, "", GW_FILL_CONST, 1 + i, 0);
        gw_build(&c->b, "record", in, 3, NULL, NULL);
    }
}

const gw_opdef gw_opdef_record = {
    .name = "record",
    .doc = "files a micro-batch's value in a state that the host reads, in place",
    .signature = "mbsx,bsx,->mbsx",
    .traits = GW_OP_NODIFF,
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
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = shard,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

// SPDX-License-Identifier: Apache-2.0
// pick: y[b d] = x[b at[b] d], one row of each sequence.
//
// Prefill needs logits at the last real token of each prompt only; picking that row first keeps the
// product with the vocabulary at b rows instead of b*s. An index outside the sequence picks zeros,
// so a padding sequence of the batch may carry -1. Bits are copied, never rounded. It is used in
// generation and has no gradient. s must be whole on a rank; b and d pass a sharding through.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_pick */
#include "ops/ref.h"   /* gw_ref_get */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 3, 3));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 1, 1));
    GW_TRY(gw_infer_want_dim(f, 1, 0, 0, 0));
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_scalar((gw_dtype)x->dtype);
    gw_type_add(&f->out[0], x->dims[0].name, x->dims[0].size);
    gw_type_add(&f->out[0], x->dims[2].name, x->dims[2].size);
    return GW_OK;
}

/* The rows picked, not all of x. */
static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double rows = (double)gw_cost_bytes(g, gw_op_out(g, o, 0));
    *c = (gw_cost){.bytes_read = rows + (double)gw_cost_bytes(g, gw_op_in(g, o, 1)),
                   .bytes_written = rows};
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0];
    int64_t s = x->dims[1], d = x->dims[2];
    for (int64_t b = 0; b < x->dims[0]; b++) {
        int64_t at = gw_ref_int(&k->in[1], b);
        bool there = at >= 0 && at < s;
        for (int64_t j = 0; j < d; j++)
            gw_ref_set(&k->out[0], b * d + j, there ? gw_ref_get(x, (b * s + at) * d + j) : 0);
    }
}

static void build_case(gw_cases *cs, const char *name, double lo, double hi) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, "b5 s7 d9", false, GW_FILL_NORMAL, 1, 0);
    gw_vid at = gw_case_fixed(c, GW_I32, "b5", GW_FILL_INTS, lo, hi);
    gw_build1(&c->b, "pick", x, at);
}

static void cases(gw_cases *cs) {
    build_case(cs, "inside", 0, 7);
    build_case(cs, "some outside", -5, 12);
}

const gw_opdef gw_opdef_pick = {
    .name = "pick",
    .doc = "one row of each sequence, by index",
    .signature = "b!sd,b->bd",
    .traits = GW_OP_NODIFF,
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
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

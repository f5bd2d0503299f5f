// SPDX-License-Identifier: Apache-2.0
// zeros: a tensor of zeros with the dims of x.
//
// The step's frame begins each accumulator (a weight gradient, the loss sum) with it, at rate
// `step`; the micro-batch loop then adds in place. Only the type of x is looked at, its bytes are
// not read, so the op costs the bytes it writes. It has no gradient.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_dtype_attr */
#include "ops/ops.h"   /* gw_opdef_zeros */
#include "ops/ref.h"   /* gw_ref_set */

static const gw_attr_def attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},
};

static gw_status infer(gw_infer *f) {
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    *c = (gw_cost){.bytes_written = (double)gw_cost_bytes(g, gw_op_out(g, o, 0))};
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) gw_ref_set(&k->out[0], i, 0);
}

static void build_case(gw_cases *cs, const char *name, const char *dims, gw_dtype dtype) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "zeros", &x, 1, (gw_attr[]){{.i = dtype}}, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "f32", "b2 d17", GW_F32);
    build_case(cs, "bf16", "d33", GW_BF16);
    build_case(cs, "scalar f64", "", GW_F64);
}

const gw_opdef gw_opdef_zeros = {
    .name = "zeros",
    .doc = "zeros with the dims of another tensor, whose bytes are not read",
    .signature = "*->*",
    .traits = GW_OP_NODIFF | GW_OP_CHEAP | GW_OP_FLAT | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 1,
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
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

// SPDX-License-Identifier: Apache-2.0
// cast: y = x in another float dtype, rounded to nearest even.
//
// Its uses are the compute copy of float32 master weights and the borders of float32 islands in a
// bf16 graph. The gradient is dy cast back: to the gradient dtype for a parameter, to the dtype of
// x otherwise, and dy itself where that is its dtype already. Backward reads nothing. Narrowing a
// partial sum would round before the reduction, so the shard pass lets P through widening casts
// only. One flop an element by convention; the bytes are what it costs.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_cast */
#include "ops/ref.h"   /* gw_ref_get */

static const gw_attr_def attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), dtype);
    return GW_OK;
}

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_dtype to = gw_vjp_dtype(v, 0), from = (gw_dtype)gw_type_of(v->g, v->dout[0])->dtype;
    gw_attr a = {.i = to};
    v->din[0] =
        from == to ? v->dout[0] : gw_vjp_build(v, gw_vjp_phase(v, 0), "cast", v->dout, 1, &a, NULL);
    /* A parameter's gradient is added up over micro-batches, which a cast cannot do itself. */
    if (from != to && gw_vjp_phase(v, 0) == GW_PHASE_W)
        v->din[0] = gw_vjp_build(v, GW_PHASE_W, "accumulate", &v->din[0], 1, NULL, NULL);
}

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i, gw_ref_get(&k->in[0], i));
}

static void build_case(gw_cases *cs, const char *name, gw_dtype to, bool differentiate) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, "b3 d19", false, GW_FILL_NORMAL, 3, 0);
    gw_build(&c->b, "cast", &x, 1, (gw_attr[]){{.i = to}}, NULL);
    c->differentiate = differentiate;
}

/* A narrowing cast is a staircase: differences of float64 say nothing about it. */
static void cases(gw_cases *cs) {
    build_case(cs, "to itself", cs->dtype, true);
    build_case(cs, "to f64", GW_F64, true);
    build_case(cs, "to f32", GW_F32, cs->dtype != GW_F64);
    build_case(cs, "to bf16", GW_BF16, false);
    build_case(cs, "to f16", GW_F16, false);
}

const gw_opdef gw_opdef_cast = {
    .name = "cast",
    .doc = "another float dtype, rounded to nearest even",
    .signature = "*->*",
    .traits = GW_OP_LINEAR | GW_OP_FLAT,
    .linear_in = 0x1,
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
    .cost = gw_cost_default,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

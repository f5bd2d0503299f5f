// SPDX-License-Identifier: Apache-2.0
// balance: the auxiliary loss that keeps the load of experts even; and balance_step, which does it
// without a loss.
//
//   sums P[* n], load[* n], seed f32[], acc? f32[] -> loss f32[]
//   T = sum of load / top          tokens of a row (a sequence, or a global micro-batch)
//   loss of a row = n * sum_e (load_e / (T top)) * (P_e / T)
// with P the sum over tokens of the routers' probs (loads.c). Switch Transformer (Fedus et al.
// 2021, equation 4) for top 1; DeepSeek-V3's sequence loss (equations 17 to 20) for each sequence.
// A load that is exactly even gives 1, everything to one expert that was chosen for certain gives n
// (top 1). Hugging Face's Mixtral does not divide by top and gives top times as much.
//
// The load has no gradient; that of P is n * load_e / (T^2 top). As in head.c the gradient is that
// of seed * weight * loss and the seed is known in advance, so the vjp is one op that also gives
// the loss; the sum that is reported is neither weighted nor divided. A row without tokens has loss
// 0.
//
//   balance_step  bias[n], load[n] -> bias + rate * sign(mean load - load), in place
// Wang et al. 2024, algorithm 1; DeepSeek-V3, section 2.1.2: an expert with more than the mean load
// of the step becomes less likely to be chosen, one with less more likely. A load that equals the
// mean is left alone.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_balance */
#include "ops/ref.h"   /* gw_ref_get */

enum { TOP, WEIGHT };
static const gw_attr_def attrs[] = {
    {"top", GW_ATTR_INT, 1, 0},
    {"weight", GW_ATTR_FLOAT, 0, 1},
};

static gw_status infer_inputs(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    return gw_infer_want_scalar(f, 2);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static double row(const gw_kargs *k, int64_t r, const gw_tensor *dp) {
    int64_t n = gw_ref_last(&k->in[0]);
    double top = (double)gw_ref_attr(k, TOP).i, tokens = 0, dot = 0;
    double seed = gw_ref_get(&k->in[2], 0) * gw_ref_attr(k, WEIGHT).f;
    for (int64_t e = 0; e < n; e++) {
        double load = gw_ref_get(&k->in[1], r * n + e);
        tokens += load / top;
        dot += load * gw_ref_get(&k->in[0], r * n + e);
    }
    double factor = tokens > 0 ? (double)n / (tokens * tokens * top) : 0;
    for (int64_t e = 0; dp && e < n; e++)
        gw_ref_set(dp, r * n + e, seed * factor * gw_ref_get(&k->in[1], r * n + e));
    return factor * dot;
}

static void build_inputs(gw_case *c, const char *dims, gw_vid in[4]) {
    in[0] = gw_case_value(c, dims, false, GW_FILL_UNIFORM, 0, 3);
    in[1] = gw_case_fixed(c, GW_F32, dims, GW_FILL_INTS, 0, 6);
    in[2] = gw_case_fixed(c, gw_dtype_stat(c->dtype), "", GW_FILL_CONST, 0.25, 0);
    in[3] = GW_NONE;
}

static const gw_attr case_attrs[2] = {{.i = 2}, {.f = 0.5}};

/* ---- balance ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    return gw_infer_loss(f, 3);
}

static void vjp(gw_vjp *v) { gw_vjp_loss(v, "balance_grad"); }

static void reference(const gw_kargs *k) {
    double loss = 0;
    for (int64_t r = 0; r < gw_ref_rows(&k->in[0]); r++) loss += row(k, r, NULL);
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 3, 0) + loss);
}

static void cases(gw_cases *cs) {
    gw_vid in[4];
    gw_case *c = gw_case_begin(cs, "by sequence");
    build_inputs(c, "b3 n5", in);
    gw_build(&c->b, "balance", in, 4, (gw_attr[]){{.i = 2}, {.f = 1}}, NULL);
    c = gw_case_begin(cs, "of all, accumulates");
    build_inputs(c, "n7", in);
    in[3] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build(&c->b, "balance", in, 4, case_attrs, NULL);
    c->differentiate = false;
}

const gw_opdef gw_opdef_balance = {
    .name = "balance",
    .doc = "auxiliary loss of an uneven load: experts * sum of share chosen * mean probability",
    .signature = "*!n,*!n,,?->",
    .traits = GW_OP_LOSS,
    .linear_in = 0,
    .nin = 4,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0x7,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- balance_grad: P, load, seed, acc? -> dP, loss ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    return gw_infer_loss_grad(f, 3);
}

static void grad_reference(const gw_kargs *k) {
    double loss = 0;
    for (int64_t r = 0; r < gw_ref_rows(&k->in[0]); r++) loss += row(k, r, &k->out[0]);
    gw_ref_set(&k->out[1], 0, gw_ref_acc(k, 3, 0) + loss);
}

static void grad_cases(gw_cases *cs) {
    gw_vid in[4];
    gw_case *c = gw_case_begin(cs, "accumulates");
    build_inputs(c, "b3 n5", in);
    in[3] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build(&c->b, "balance_grad", in, 4, case_attrs, NULL);
}

const gw_opdef gw_opdef_balance_grad = {
    .name = "balance_grad",
    .doc = "loss of balance and the gradient of seed * weight times it",
    .signature = "*!n,*!n,,?->*!n,",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 4,
    .nout = 2,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

/* ---- balance_step ---- */

static const gw_attr_def step_attrs[] = {
    {"rate", GW_ATTR_FLOAT, 0, 0.001},
};

static gw_status step_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, 1));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void step_reference(const gw_kargs *k) {
    double mean = 0, rate = gw_ref_attr(k, 0).f;
    int64_t n = k->in[1].elems;
    for (int64_t e = 0; e < n; e++) mean += gw_ref_get(&k->in[1], e) / (double)n;
    for (int64_t e = 0; e < n; e++) {
        double off = mean - gw_ref_get(&k->in[1], e);
        if (off * off < 1e-12 * mean * mean) off = 0; /* the mean itself is rounded */
        gw_ref_set(&k->out[0], e, gw_ref_get(&k->in[0], e) + rate * ((off > 0) - (off < 0)));
    }
}

static void step_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_vid in[2] = {gw_case_fixed(c, GW_F32, "n9", GW_FILL_NORMAL, 0.1, 0)};
    in[1] = gw_case_fixed(c, GW_F32, "n9", GW_FILL_INTS, 0, 20);
    gw_build(&c->b, "balance_step", in, 2, (gw_attr[]){{.f = 0.001}}, NULL);
}

const gw_opdef gw_opdef_balance_step = {
    .name = "balance_step",
    .doc = "moves the bias of the choice against the load",
    .signature = "!n,!n->!n",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = step_attrs,
    .infer = step_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = step_reference,
    .cases = step_cases,
};

// SPDX-License-Identifier: Apache-2.0
// z_sum and z_loss: the router's logits are kept small.
//
//   z_sum   logits[b s n], tokens[b s] -> z[b] or z[]     sum over tokens of (log sum_j e^x_j)^2
//   z_loss  z[*], load[* n], seed f32[], acc? f32[] -> f32[]
//           sum over rows of z / T, with T = sum of load / top tokens in the row
// ST-MoE (Zoph et al. 2022, equation 5). As with balance the sum over tokens is a linear op of its
// own, so that a cut of s or b makes partial sums of it, and the division sees whole ones; padding
// is in none. z_loss is seeded like balance: its gradient is that of seed * weight * loss, and a
// row without tokens has loss 0.
//
//   d z / d x_j = 2 lse softmax_j
#include <math.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_z_sum */
#include "ops/ref.h"   /* gw_ref_get */

enum { SAMPLES };
static const gw_attr_def sum_attrs[] = {
    {"samples", GW_ATTR_BOOL, 0, 0}, /* summed over b too */
};

static double row_lse(const gw_tensor *x, int64_t r, int64_t n) {
    double most = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < n; j++) most = fmax(most, gw_ref_get(x, r * n + j));
    for (int64_t j = 0; j < n; j++) sum += exp(gw_ref_get(x, r * n + j) - most);
    return most + log(sum);
}

/* Row r belongs to element r / s of z, or to its only one. */
static int64_t row_of(const gw_tensor *tokens, const gw_tensor *z, int64_t r) {
    int64_t s = tokens->elems / tokens->dims[0];
    return z->ndim ? r / s : 0;
}

static gw_status infer_rows(gw_infer *f, int x, int tokens) {
    GW_TRY(gw_infer_want_float(f, x));
    GW_TRY(gw_infer_want_ndim(f, x, 3, 3));
    GW_TRY(gw_infer_want_int(f, tokens));
    GW_TRY(gw_infer_want_ndim(f, tokens, 2, 2));
    return gw_infer_want_leading(f, tokens, x, 2);
}

static gw_status sum_infer(gw_infer *f) {
    GW_TRY(infer_rows(f, 0, 1));
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_scalar(gw_dtype_stat((gw_dtype)x->dtype));
    if (!f->attrs[SAMPLES].i) gw_type_add(&f->out[0], x->dims[0].name, x->dims[0].size);
    return GW_OK;
}

static void sum_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void sum_vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[3] = {v->dout[0], v->in[0], v->in[1]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "z_sum_grad", in, 3, NULL, NULL);
}

static void sum_reference(const gw_kargs *k) {
    int64_t n = gw_ref_last(&k->in[0]), rows = k->in[1].elems;
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) {
            if (row_of(&k->in[1], &k->out[0], r) != i || gw_ref_int(&k->in[1], r) < 0) continue;
            double lse = row_lse(&k->in[0], r, n);
            sum += lse * lse;
        }
        gw_ref_set(&k->out[0], i, sum);
    }
}

static void sum_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "of all" : "by sequence");
        gw_vid in[2] = {gw_case_value(c, "b2 s5 n3", false, GW_FILL_NORMAL, 1, 0)};
        in[1] = gw_case_fixed(c, GW_I32, "b2 s5", GW_FILL_INTS, -2, 4);
        gw_build(&c->b, "z_sum", in, 2, (gw_attr[]){{.i = i}}, NULL);
    }
}

const gw_opdef gw_opdef_z_sum = {
    .name = "z_sum",
    .doc = "sum over tokens of the squared log-sum-exp of router logits",
    .signature = "bs!n,bs->*",
    .traits = 0,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x3,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = sum_attrs,
    .infer = sum_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = sum_cost,
    .vjp = sum_vjp,
    .reference = sum_reference,
    .cases = sum_cases,
};

/* ---- z_sum_grad: dz, logits, tokens -> dlogits ---- */

static gw_status sum_grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 0, 1));
    GW_TRY(infer_rows(f, 1, 2));
    f->out[0] = gw_type_plain(gw_infer_in(f, 1), (gw_dtype)gw_infer_in(f, 1)->dtype);
    return GW_OK;
}

static void sum_grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 1)), c);
}

static void sum_grad_reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[1];
    int64_t n = gw_ref_last(x);
    for (int64_t r = 0; r < k->in[2].elems; r++) {
        bool token = gw_ref_int(&k->in[2], r) >= 0;
        double lse = token ? row_lse(x, r, n) : 0;
        double dz = gw_ref_get(&k->in[0], row_of(&k->in[2], &k->in[0], r));
        for (int64_t j = 0; j < n; j++)
            gw_ref_set(&k->out[0], r * n + j,
                       token ? dz * 2 * lse * exp(gw_ref_get(x, r * n + j) - lse) : 0);
    }
}

static void sum_grad_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "of all" : "by sequence");
        gw_dtype t = gw_dtype_stat(cs->dtype);
        gw_vid in[3] = {gw_case_fixed(c, t, i ? "" : "b2", GW_FILL_NORMAL, 1, 0)};
        in[1] = gw_case_value(c, "b2 s5 n3", false, GW_FILL_NORMAL, 1, 0);
        in[2] = gw_case_fixed(c, GW_I32, "b2 s5", GW_FILL_INTS, -2, 4);
        gw_build(&c->b, "z_sum_grad", in, 3, NULL, NULL);
    }
}

const gw_opdef gw_opdef_z_sum_grad = {
    .name = "z_sum_grad",
    .doc = "gradient of z_sum",
    .signature = "*,bs!n,bs->bs!n",
    .traits = GW_OP_NODIFF,
    .linear_in = 0x1,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = sum_grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = sum_grad_cost,
    .vjp = gw_vjp_none,
    .reference = sum_grad_reference,
    .cases = sum_grad_cases,
};

/* ---- z_loss ---- */

enum { TOP, WEIGHT };
static const gw_attr_def attrs[] = {
    {"top", GW_ATTR_INT, 1, 0},
    {"weight", GW_ATTR_FLOAT, 0, 1},
};

static gw_status infer_inputs(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_float(f, 1));
    int rows = gw_infer_in(f, 0)->ndim;
    GW_TRY(gw_infer_want_ndim(f, 1, rows + 1, rows + 1));
    GW_TRY(gw_infer_want_leading(f, 0, 1, rows));
    return gw_infer_want_scalar(f, 2);
}

/* Loss over all rows; fills dz if it is not NULL. */
static double loss_of(const gw_kargs *k, const gw_tensor *dz) {
    double top = (double)gw_ref_attr(k, TOP).i, loss = 0;
    double seed = gw_ref_get(&k->in[2], 0) * gw_ref_attr(k, WEIGHT).f;
    int64_t n = gw_ref_last(&k->in[1]);
    for (int64_t r = 0; r < k->in[0].elems; r++) {
        double tokens = 0;
        for (int64_t e = 0; e < n; e++) tokens += gw_ref_get(&k->in[1], r * n + e) / top;
        double each = tokens > 0 ? 1 / tokens : 0;
        loss += each * gw_ref_get(&k->in[0], r);
        if (dz) gw_ref_set(dz, r, seed * each);
    }
    return loss;
}

static void build_inputs(gw_case *c, const char *z, const char *load, gw_vid in[4]) {
    in[0] = gw_case_value(c, z, false, GW_FILL_UNIFORM, 0, 3);
    in[1] = gw_case_fixed(c, GW_F32, load, GW_FILL_INTS, 0, 6);
    in[2] = gw_case_fixed(c, gw_dtype_stat(c->dtype), "", GW_FILL_CONST, 0.25, 0);
    in[3] = GW_NONE;
}

static const gw_attr case_attrs[2] = {{.i = 2}, {.f = 0.5}};

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    return gw_infer_loss(f, 3);
}

static void vjp(gw_vjp *v) { gw_vjp_loss(v, "z_loss_grad"); }

static void reference(const gw_kargs *k) {
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 3, 0) + loss_of(k, NULL));
}

static void cases(gw_cases *cs) {
    gw_vid in[4];
    gw_case *c = gw_case_begin(cs, "by sequence");
    build_inputs(c, "b3", "b3 n5", in);
    gw_build(&c->b, "z_loss", in, 4, (gw_attr[]){{.i = 2}, {.f = 1}}, NULL);
    c = gw_case_begin(cs, "of all, accumulates");
    build_inputs(c, "", "n7", in);
    in[3] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build(&c->b, "z_loss", in, 4, case_attrs, NULL);
    c->differentiate = false;
}

const gw_opdef gw_opdef_z_loss = {
    .name = "z_loss",
    .doc = "mean over tokens of what z_sum adds up, summed over sequences",
    .signature = "*,*!n,,?->",
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
    .cost = gw_cost_default,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- z_loss_grad: z, load, seed, acc? -> dz, loss ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    return gw_infer_loss_grad(f, 3);
}

static void grad_reference(const gw_kargs *k) {
    double loss = loss_of(k, &k->out[0]);
    gw_ref_set(&k->out[1], 0, gw_ref_acc(k, 3, 0) + loss);
}

static void grad_cases(gw_cases *cs) {
    gw_vid in[4];
    gw_case *c = gw_case_begin(cs, "accumulates");
    build_inputs(c, "b3", "b3 n5", in);
    in[3] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build(&c->b, "z_loss_grad", in, 4, case_attrs, NULL);
}

const gw_opdef gw_opdef_z_loss_grad = {
    .name = "z_loss_grad",
    .doc = "loss of z_loss and the gradient of seed * weight times it",
    .signature = "*,*!n,,?->*,",
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
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

// SPDX-License-Identifier: Apache-2.0
// xent: softmax cross-entropy of logits that exist as a value; and the op that also makes its
// gradient.
//
//   loss = sum over rows with label >= 0 of  log sum_c exp(z_rc) - z_r,label
// torch.nn.CrossEntropyLoss with reduction "sum". A negative label masks its row. As in head.c the
// divisor is data and sits in `seed`, known before forward runs, so the vjp is one op that gives
// the loss again, in place of this one, and the gradient of seed * loss:
//   dz_rc = seed * (softmax(z_r)_c - [c = label_r])
// head.c is for vocabularies, whose logits must not exist; this is for a classifier's thousand
// classes, whose last layer is an ordinary one with a bias.
//
// Numerics: the largest logit is taken out of the exponentials; sums in at least float32; the loss
// is float32 (float64 beside float64). Classes are whole; sharded rows make the loss a partial sum.
// Work by convention: 5 flops a logit.
#include <math.h>

#include "base/panic.h" /* gw_panic */
#include "ops/cases.h"  /* gw_case_begin */
#include "ops/hooks.h"  /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"    /* gw_opdef_xent */
#include "ops/ref.h"    /* gw_ref_get */

static gw_status infer_inputs(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    int rows = gw_infer_in(f, 0)->ndim - 1;
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, rows, rows));
    GW_TRY(gw_infer_want_leading(f, 1, 0, rows));
    return gw_infer_want_scalar(f, 2);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 5 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static int64_t label_of(const gw_kargs *k, int64_t r) {
    int64_t label = gw_ref_int(&k->in[1], r), n = gw_ref_last(&k->in[0]);
    if (label >= n)
        gw_panic("%s: label %lld in row %lld is past the %lld classes",
                 gw_op_def(k->g, k->op)->name, (long long)label, (long long)r, (long long)n);
    return label;
}

static double row_lse(const gw_kargs *k, int64_t r) {
    int64_t n = gw_ref_last(&k->in[0]);
    double most = -HUGE_VAL, sum = 0;
    for (int64_t c = 0; c < n; c++) most = fmax(most, gw_ref_get(&k->in[0], r * n + c));
    for (int64_t c = 0; c < n; c++) sum += exp(gw_ref_get(&k->in[0], r * n + c) - most);
    return most + log(sum);
}

/* Loss of row r; fills dz if it is not NULL. */
static double row(const gw_kargs *k, int64_t r, const gw_tensor *dz) {
    int64_t n = gw_ref_last(&k->in[0]), label = label_of(k, r);
    double lse = label < 0 ? 0 : row_lse(k, r), seed = gw_ref_get(&k->in[2], 0), loss = 0;
    if (label >= 0) loss = lse - gw_ref_get(&k->in[0], r * n + label);
    for (int64_t c = 0; dz && c < n; c++) {
        double e = label < 0 ? 0 : exp(gw_ref_get(&k->in[0], r * n + c) - lse) - (c == label);
        gw_ref_set(dz, r * n + c, label < 0 ? 0 : seed * e);
    }
    return loss;
}

static void build_inputs(gw_case *c, const char *zd, const char *ld, int64_t v, gw_vid in[3]) {
    in[0] = gw_case_value(c, zd, false, GW_FILL_NORMAL, 2, 0);
    in[1] = gw_case_fixed(c, GW_I32, ld, GW_FILL_LABELS, 0, (double)v);
    in[2] = gw_case_fixed(c, gw_dtype_stat(c->dtype), "", GW_FILL_CONST, 0.25, 0);
}

/* ---- xent: z, labels, seed, acc? -> loss ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(infer_inputs(f));
    return gw_infer_loss(f, 3);
}

static void vjp(gw_vjp *v) { gw_vjp_loss(v, "xent_grad"); }

static void reference(const gw_kargs *k) {
    double loss = 0;
    for (int64_t r = 0; r < gw_ref_rows(&k->in[0]); r++) loss += row(k, r, NULL);
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 3, 0) + loss);
}

static void cases(gw_cases *cs) {
    gw_vid in[3];
    gw_case *c = gw_case_begin(cs, "plain");
    build_inputs(c, "b5 v7", "b5", 7, in);
    gw_build(&c->b, "xent", in, 3, NULL, NULL);
    c = gw_case_begin(cs, "accumulates");
    build_inputs(c, "b9 v37", "b9", 37, in);
    gw_build1(&c->b, "xent", in[0], in[1], in[2],
              gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0));
    c->differentiate = false;
}

const gw_opdef gw_opdef_xent = {
    .name = "xent",
    .doc = "softmax cross-entropy: sum over the valid labels",
    .signature = "*!v,*,,?->",
    .traits = GW_OP_LOSS,
    .linear_in = 0,
    .nin = 4,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0x7,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- xent_grad: z, labels, seed, acc? -> dz, loss ---- */

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
    gw_vid in[4] = {0, 0, 0, GW_NONE};
    gw_case *c = gw_case_begin(cs, "plain");
    build_inputs(c, "b5 v7", "b5", 7, in);
    gw_build(&c->b, "xent_grad", in, 4, NULL, NULL);
    c = gw_case_begin(cs, "accumulates");
    build_inputs(c, "b9 s2 v37", "b9 s2", 37, in);
    in[3] = gw_case_fixed(c, gw_dtype_stat(cs->dtype), "", GW_FILL_CONST, 3.5, 0);
    gw_build(&c->b, "xent_grad", in, 4, NULL, NULL);
}

const gw_opdef gw_opdef_xent_grad = {
    .name = "xent_grad",
    .doc = "loss of xent and the gradient of seed times it",
    .signature = "*!v,*,,?->*!v,",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 4,
    .nout = 2,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

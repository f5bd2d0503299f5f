// SPDX-License-Identifier: Apache-2.0
// attention_part: attention over one block of the keys, merged into what earlier blocks gave; and
// its gradient. A ring of ranks that pass blocks of k and v on computes attention by one of these
// for each block.
//
// Every rank keeps its queries. Of the keys it sees one block at a time, in any order (Liu et al.,
// Ring Attention, 2023). With lse' and o' of the visible keys of this block alone, as in
// attention.c, the outputs are the attention over the blocks so far:
//   lse_out = log(exp(lse) + exp(lse'))
//   o_out   = exp(lse - lse_out) o + exp(lse' - lse_out) o'
// o and lse are what the blocks before gave, or absent: nothing yet. A row that has seen no key has
// lse minus infinity and o zero, and a block that a row does not see leaves the row as it is. o is
// float32 (float64 beside float64 values), since it is rounded once a block, and the outputs take
// over its bytes and those of lse.
//
// attention_part_grad is attention_grad with the lse and the o of all blocks, but over this block
// of the keys: dq is what the block adds to the queries' gradient, dk and dv are what these queries
// add to the block's. Each is added to its accumulator in float32: dq stays, dk and dv travel on
// with their block.
//
// Which block it is says the type of k: the turn of the outer cut of s (ir/graph.h). Work as in
// attention.c and attention_grad.c, of the pairs that are seen between these queries and this
// block, which may be none.
#include <math.h>
#include <stdio.h>

#include "ops/attention.h"
#include "ops/hooks.h" /* gw_dtype_stat, GW_NO_TIES */
#include "ops/ops.h"   /* gw_opdef_attention_part */
#include "ops/ref.h"   /* gw_ref_acc */

enum { ACC_O = 5, ACC_LSE = 6, ACC_DQ = 8 };

static gw_dtype stat_of(const gw_infer *f, int i) {
    return gw_dtype_stat((gw_dtype)gw_infer_in(f, i)->dtype);
}

/* ---- attention_part ---- */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_attention_infer(f, false));
    f->out[0] = gw_attention_out(f, false, stat_of(f, 0));
    f->out[1] = gw_attention_lse(f, false);
    GW_TRY(gw_infer_want_acc(f, ACC_O, &f->out[0]));
    GW_TRY(gw_infer_want_acc(f, ACC_LSE, &f->out[1]));
    if (gw_infer_has(f, ACC_O) == gw_infer_has(f, ACC_LSE)) return GW_OK;
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                   "attention_part: one of the running output and its log-sum-exp is missing");
}

static gw_status verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return gw_attention_verify(g, o, false, true, dg);
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_attention_sign(g, o, false, s);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_attention_cost(g, o, false, 1, 1, c);
}

/* log(exp(a) + exp(b)) */
static double log_add(double a, double b) {
    double most = fmax(a, b);
    return most == -HUGE_VAL ? most : most + log(exp(a - most) + exp(b - most));
}

static void merge(const gw_kargs *k, const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    int64_t at = gw_attention_at_lse(w, b, i, h), row = gw_attention_at_o(w, b, i, h);
    double old = gw_ref_has(k, ACC_LSE) ? gw_ref_get(&k->in[ACC_LSE], at) : -HUGE_VAL;
    double lse = log_add(old, gw_attention_lse_of(w, b, i, h));
    double keep = old == -HUGE_VAL ? 0 : exp(old - lse);
    for (int64_t c = 0; c < w->usize; c += GW_ATTENTION_TILE) {
        int64_t n = GW_MIN((int64_t)GW_ATTENTION_TILE, w->usize - c);
        double sum[GW_ATTENTION_TILE] = {0};
        for (int64_t x = 0; keep > 0 && x < n; x++)
            sum[x] = keep * gw_ref_acc(k, ACC_O, row + c + x);
        for (int64_t j = 0; j < w->keys; j++)
            if (gw_attention_sees(w, b, i, j))
                gw_attention_add_row(sum, exp(gw_attention_score(w, b, i, j, h) - lse), w->v,
                                     gw_attention_at_v(w, b, j, h) + c, n);
        gw_attention_set_row(k, &k->out[0], row + c, -1, 1, sum, n);
    }
    gw_ref_set(&k->out[1], at, lse);
}

static void reference(const gw_kargs *k) {
    gw_attention_view w = gw_attention_view_of(k, false);
    for (int64_t b = 0; b < w.batch; b++)
        for (int64_t i = 0; i < w.queries; i++)
            for (int64_t h = 0; h < w.heads; h++) merge(k, &w, b, i, h);
}

/* The first block, and a second one after it with keys of its own. */
static void build_case(gw_cases *cs, const gw_attention_setting *t, bool second) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", t->name, second ? ", merged" : "");
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[7] = {GW_NONE, GW_NONE, GW_NONE, GW_NONE, GW_NONE, GW_NONE, GW_NONE}, o, lse;
    in[0] = gw_case_value(c, t->q, false, GW_FILL_NORMAL, 1, 0);
    if (t->docs) in[3] = gw_case_fixed(c, GW_I32, t->docs, GW_FILL_SEGMENTS, 0, 3);
    for (int block = 0; block <= second; block++) {
        in[1] = gw_case_value(c, t->k, false, GW_FILL_NORMAL, 1, 0);
        in[2] = gw_case_value(c, t->v, false, GW_FILL_NORMAL, 1, 0);
        if (t->docs && block) in[4] = gw_case_fixed(c, GW_I32, t->docs, GW_FILL_SEGMENTS, 1, 2);
        o = gw_build(&c->b, "attention_part", in, 7, t->attrs, &lse);
        in[ACC_O] = o;
        in[ACC_LSE] = lse;
    }
}

static void cases(gw_cases *cs) {
    const gw_attention_setting *t;
    for (int i = 0; (t = gw_attention_setting_at(i, cs->dtype)) != NULL; i++)
        for (int second = 0; second < 2; second++) build_case(cs, t, second);
}

const gw_opdef gw_opdef_attention_part = {
    .name = "attention_part",
    .doc = "attention over one block of the keys, merged into that over the blocks before",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 7,
    .nout = 2,
    .noptional = 4,
    .nacc = 0,
    .ties = {ACC_O, ACC_LSE, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = GW_ATTENTION_NATTRS,
    .attrs = gw_attention_attrs,
    .infer = infer,
    .verify = verify,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

/* ---- attention_part_grad ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(gw_attention_infer(f, true));
    for (int i = 0; i < 3; i++) {
        f->out[i] = gw_type_plain(gw_infer_in(f, 1 + i), stat_of(f, 1));
        GW_TRY(gw_infer_want_acc(f, ACC_DQ + i, &f->out[i]));
    }
    return GW_OK;
}

static gw_status grad_verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return gw_attention_verify(g, o, true, true, dg);
}

static void grad_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_attention_sign(g, o, true, s);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_attention_cost(g, o, true, 3, 2, c);
}

static void grad_reference(const gw_kargs *k) { gw_attention_grad_reference(k, ACC_DQ); }

/* The gradient over a block of the whole, which attention itself saw; `added`: to accumulators. */
static void grad_case(gw_cases *cs, const gw_attention_setting *t, bool added) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", t->name, added ? ", added" : "");
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[4], out[2], acc[3] = {GW_NONE, GW_NONE, GW_NONE};
    gw_attention_case(c, t, in, out);
    gw_vid dout = gw_case_value(c, t->o, false, GW_FILL_NORMAL, 1, 0);
    const char *const dims[] = {t->q, t->k, t->v};
    for (int i = 0; added && i < 3; i++)
        acc[i] = gw_case_fixed(c, gw_dtype_stat(c->dtype), dims[i], GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "attention_part_grad",
             (gw_vid[]){dout, in[0], in[1], in[2], out[0], out[1], in[3], GW_NONE, acc[0], acc[1],
                        acc[2]},
             11, t->attrs, NULL);
}

static void grad_cases(gw_cases *cs) {
    const gw_attention_setting *t;
    for (int i = 0; (t = gw_attention_setting_at(i, cs->dtype)) != NULL; i++)
        for (int added = 0; added < 2; added++) grad_case(cs, t, added);
}

const gw_opdef gw_opdef_attention_part_grad = {
    .name = "attention_part_grad",
    .doc = "gradient of attention over one block of the keys, added to that over other blocks",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 11,
    .nout = 3,
    .noptional = 5,
    .nacc = 3,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = GW_ATTENTION_NATTRS,
    .attrs = gw_attention_attrs,
    .infer = grad_infer,
    .verify = grad_verify,
    .sign = grad_sign,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

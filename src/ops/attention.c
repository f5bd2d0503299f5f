// SPDX-License-Identifier: Apache-2.0
// attention: scaled dot-product attention with grouped heads, causal, windowed and by document.
//
// Vaswani et al. 2017; grouped key-value heads: Ainslie et al. 2023; sliding window: Mistral 7B,
// 2023. Query head i reads kv head i / (h/g). Query position i sees key position j iff
//   docs[i] == kdocs[j]   and   j <= i (causal)   and   (window == 0 or i - j < window)
// with i, j indices along s; kdocs, the documents of the keys, are docs where they are absent.
// Every query sees at least itself, so no row is empty. With t = scale * q_i . k_j over the visible
// j (scale 0 stands for 1/sqrt(k)):
//   lse_i = log sum_j exp(t_ij)      p_ij = exp(t_ij - lse_i)      o_i = sum_j p_ij v_j
// lse (float32; float64 beside float64 values) is all that backward needs of the softmax
// (attention_grad.c). Gradient flows through o alone; lse is for backward, not for losses. The
// heads of v, and so of o, may have another size than those of q and k: their last dimension then
// has a name of its own (DeepSeek's latent attention; the letter here is u).
//
// Numerics: all of it in float64 here with one rounding an output; kernels keep t, p and the sums
// in float32.
//
// A rank may hold some queries, in any runs of s, and some heads. It needs every key that they see:
// s of k and v is whole, and the kv heads are those of its query heads or more. i and j are indices
// of the whole sequence (ops/attention.h), so neither zigzags nor chunks change what is seen. Docs
// are cut as q, kdocs as k. Where keys stay cut, they come by turns (attention_part.c); which of
// the two, and the conversions around it, is the shard rule's choice (attention_shard.c).
//
// Work counts pairs that are seen under causality and window, taking one document a row: V a head,
// forward 2 products, 2 (k + u) V flops; flops_full has all pairs. Exponentials and sums of the
// softmax are left out.
#include <math.h>

#include "ops/attention.h"
#include "ops/hooks.h" /* gw_vjp_build, GW_NO_TIES */
#include "ops/ops.h"   /* gw_opdef_attention */
#include "ops/ref.h"   /* gw_ref_set */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_attention_infer(f, false));
    f->out[0] = gw_attention_out(f, false, (gw_dtype)gw_infer_in(f, 0)->dtype);
    f->out[1] = gw_attention_lse(f, false);
    return GW_OK;
}

static gw_status verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return gw_attention_verify(g, o, false, false, dg);
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_attention_sign(g, o, false, s);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_attention_cost(g, o, false, 1, 1, c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1] && !v->want[2]) return;
    gw_vid docs = v->nin > 3 ? v->in[3] : GW_NONE, kdocs = v->nin > 4 ? v->in[4] : GW_NONE;
    gw_vid in[] = {v->dout[0], v->in[0], v->in[1], v->in[2], v->out[0], v->out[1], docs, kdocs};
    gw_vid more[2];
    gw_vid dq = gw_vjp_build(v, GW_PHASE_B, "attention_grad", in, 8, v->attrs, more);
    if (v->want[0]) v->din[0] = dq;
    if (v->want[1]) v->din[1] = more[0];
    if (v->want[2]) v->din[2] = more[1];
}

static void attend(const gw_kargs *k, const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    double lse = gw_attention_lse_of(w, b, i, h);
    for (int64_t c = 0; c < w->usize; c += GW_ATTENTION_TILE) {
        int64_t n = GW_MIN((int64_t)GW_ATTENTION_TILE, w->usize - c);
        double sum[GW_ATTENTION_TILE] = {0};
        for (int64_t j = 0; j < w->keys; j++)
            if (gw_attention_sees(w, b, i, j))
                gw_attention_add_row(sum, exp(gw_attention_score(w, b, i, j, h) - lse), w->v,
                                     gw_attention_at_v(w, b, j, h) + c, n);
        gw_attention_set_row(k, &k->out[0], gw_attention_at_o(w, b, i, h) + c, -1, 1, sum, n);
    }
    gw_ref_set(&k->out[1], gw_attention_at_lse(w, b, i, h), lse);
}

static void reference(const gw_kargs *k) {
    gw_attention_view w = gw_attention_view_of(k, false);
    for (int64_t b = 0; b < w.batch; b++)
        for (int64_t i = 0; i < w.queries; i++)
            for (int64_t h = 0; h < w.heads; h++) attend(k, &w, b, i, h);
}

static void cases(gw_cases *cs) {
    gw_vid in[4], out[2];
    const gw_attention_setting *t;
    for (int i = 0; (t = gw_attention_setting_at(i, cs->dtype)) != NULL; i++)
        gw_attention_case(gw_case_begin(cs, t->name), t, in, out);
}

const gw_opdef gw_opdef_attention = {
    .name = "attention",
    .doc = "attention with grouped heads; causal, windowed, by document",
    .signature = "",
    .traits = GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 5,
    .nout = 2,
    .noptional = 2,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x1f,
    .reads_out = 0x3,
    .nattrs = GW_ATTENTION_NATTRS,
    .attrs = gw_attention_attrs,
    .infer = infer,
    .verify = verify,
    .sign = sign,
    .shard = gw_attention_shard,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

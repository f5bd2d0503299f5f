// SPDX-License-Identifier: Apache-2.0
// attention_grad: gradients of q, k and v, from the saved log-sum-exp.
//
// p is made again from q, k and lse, so memory stays linear in s (Dao et al., FlashAttention,
// 2022). In the letters of attention.c, with delta_i = do_i . o_i:
//   dv_j = sum_i p_ij do_i     ds_ij = p_ij (do_i . v_j - delta_i)     dq_i = scale sum_j ds_ij k_j
//   dk_j = scale sum_i ds_ij q_i
// where the sums of dk and dv run over all query heads of the group: those that the rank holds, so
// that where q is cut and k is not, dk and dv are partial sums. A kv head or a key that no query of
// the rank reads has gradients of zero. All in float64 here, with one rounding an output.
//
// Work: five products, three over the size of q's heads and two over that of v's: with V as in
// attention.c 2 (3k + 2u) V flops a query head.
#include <math.h>

#include "ops/attention.h"
#include "ops/hooks.h" /* gw_type_plain, GW_NO_TIES */
#include "ops/ops.h"   /* gw_opdef_attention_grad */
#include "ops/ref.h"   /* gw_ref_dot */

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_attention_infer(f, true));
    for (int i = 0; i < 3; i++) {
        const gw_type *t = gw_infer_in(f, 1 + i);
        f->out[i] = gw_type_plain(t, (gw_dtype)t->dtype);
    }
    return GW_OK;
}

static gw_status verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    return gw_attention_verify(g, o, true, false, dg);
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_attention_sign(g, o, true, s);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_attention_cost(g, o, true, 3, 2, c);
}

/* p_ij and ds_ij of query head h. */
static double pair(const gw_kargs *k, const gw_attention_view *w, int64_t b, int64_t i, int64_t j,
                   int64_t h, double *ds) {
    const gw_tensor *dout = &k->in[0], *o = &k->in[4], *lse = &k->in[5];
    double p =
        exp(gw_attention_score(w, b, i, j, h) - gw_ref_get(lse, gw_attention_at_lse(w, b, i, h)));
    int64_t at = gw_attention_at_o(w, b, i, h);
    double delta = gw_ref_dot(dout, at, 1, o, at, 1, w->usize);
    *ds = p * (gw_ref_dot(dout, at, 1, w->v, gw_attention_at_v(w, b, j, h), 1, w->usize) - delta);
    return p;
}

static void of_query(const gw_kargs *k, const gw_attention_view *w, int acc, int64_t b, int64_t i,
                     int64_t h) {
    for (int64_t c = 0; c < w->size; c += GW_ATTENTION_TILE) {
        int64_t n = GW_MIN((int64_t)GW_ATTENTION_TILE, w->size - c);
        double dq[GW_ATTENTION_TILE] = {0}, ds;
        for (int64_t j = 0; j < w->keys; j++) {
            if (!gw_attention_sees(w, b, i, j)) continue;
            pair(k, w, b, i, j, h, &ds);
            gw_attention_add_row(dq, ds, w->k, gw_attention_at_k(w, b, j, h) + c, n);
        }
        gw_attention_set_row(k, &k->out[0], gw_attention_at_q(w, b, i, h) + c, acc, w->scale, dq,
                             n);
    }
}

/* Output 1 + which (0: dk, 1: dv) of local kv head g. */
static void of_key(const gw_kargs *k, const gw_attention_view *w, int acc, int which, int64_t b,
                   int64_t j, int64_t g) {
    int64_t size = which ? w->usize : w->size, row = ((b * w->keys + j) * w->groups + g) * size;
    int64_t h0 = GW_MAX(0, (w->first_group + g) * w->per - w->first_head);
    int64_t h1 = GW_MIN(w->heads, (w->first_group + g + 1) * w->per - w->first_head);
    for (int64_t c = 0; c < size; c += GW_ATTENTION_TILE) {
        int64_t n = GW_MIN((int64_t)GW_ATTENTION_TILE, size - c);
        double sum[GW_ATTENTION_TILE] = {0}, ds;
        for (int64_t h = h0; h < h1; h++)
            for (int64_t i = 0; i < w->queries; i++) {
                if (!gw_attention_sees(w, b, i, j)) continue;
                double p = pair(k, w, b, i, j, h, &ds);
                if (which)
                    gw_attention_add_row(sum, p, &k->in[0], gw_attention_at_o(w, b, i, h) + c, n);
                else
                    gw_attention_add_row(sum, ds, w->q, gw_attention_at_q(w, b, i, h) + c, n);
            }
        gw_attention_set_row(k, &k->out[1 + which], row + c, acc < 0 ? acc : acc + 1 + which,
                             which ? 1 : w->scale, sum, n);
    }
}

void gw_attention_grad_reference(const gw_kargs *k, int acc) {
    gw_attention_view w = gw_attention_view_of(k, true);
    for (int64_t b = 0; b < w.batch; b++) {
        for (int64_t i = 0; i < w.queries; i++)
            for (int64_t h = 0; h < w.heads; h++) of_query(k, &w, acc, b, i, h);
        for (int64_t j = 0; j < w.keys; j++)
            for (int64_t g = 0; g < w.groups; g++)
                for (int which = 0; which < 2; which++) of_key(k, &w, acc, which, b, j, g);
    }
}

static void reference(const gw_kargs *k) { gw_attention_grad_reference(k, -1); }

static void cases(gw_cases *cs) {
    const gw_attention_setting *t;
    for (int i = 0; (t = gw_attention_setting_at(i, cs->dtype)) != NULL; i++) {
        gw_case *c = gw_case_begin(cs, t->name);
        gw_vid in[4], out[2];
        gw_attention_case(c, t, in, out);
        gw_vid dout = gw_case_value(c, t->o, false, GW_FILL_NORMAL, 1, 0);
        gw_build(&c->b, "attention_grad",
                 (gw_vid[]){dout, in[0], in[1], in[2], out[0], out[1], in[3]}, 7, t->attrs, NULL);
    }
}

const gw_opdef gw_opdef_attention_grad = {
    .name = "attention_grad",
    .doc = "gradient of attention: of q, k and v, from the saved log-sum-exp",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 8,
    .nout = 3,
    .noptional = 2,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = GW_ATTENTION_NATTRS,
    .attrs = gw_attention_attrs,
    .infer = infer,
    .verify = verify,
    .sign = sign,
    .shard = gw_attention_grad_shard,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

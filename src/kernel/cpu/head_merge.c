// SPDX-License-Identifier: Apache-2.0
// head_merge and head_loss: what is added up between the passes of a head whose vocabulary is cut.
//
// A few numbers a row, so the loops are plain. Exponentials and logarithms are float64: they are
// one a row and part beside a row of logits. A part with nothing in it (sum 0, maximum -infinity)
// is passed over. Losses are summed in row order, on one thread.
#include <math.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_int, GW_VEC_KERNEL */

static bool floats(const gw_graph *g, const gw_op *o, int first) {
    for (int i = first; i < o->nin; i++)
        if (gw_vec_given(g, o, i) && gw_vec_in_type(g, o, i) != GW_F32) return false;
    return true;
}

static bool merge_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats(g, o, 0);
}

static void merge_row(const gw_kargs *k, int64_t r) {
    int64_t rows = k->in[0].elems, parts = k->in[1].dims[0];
    const float *max = k->in[0].data, *stat = k->in[1].data;
    float *sums = k->out[0].data;
    double total = 0, own = 0;
    for (int64_t p = 0; p < parts; p++) {
        const float *s = stat + (p * rows + r) * 3;
        if (s[1] != 0.0f) total += (double)s[1] * exp((double)s[0] - (double)max[r]);
        own += (double)s[2];
    }
    sums[2 * r] = (float)total;
    sums[2 * r + 1] = (float)own;
}

static gw_status merge_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t rows = k->in[0].elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (k->in[1].elems > 4096)
    for (int64_t r = 0; r < rows; r++) merge_row(k, r);
    return GW_OK;
}

static bool loss_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats(g, o, 1);
}

static gw_status loss_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const float *max = k->in[1].data, *sums = k->in[2].data;
    bool adds = k->nin > 3 && k->in[3].data;
    double loss = adds ? (double)*(const float *)k->in[3].data : 0;
    for (int64_t r = 0; r < k->in[0].elems; r++)
        if (gw_vec_int(&k->in[0], r) >= 0)
            loss += (double)max[r] + log((double)sums[2 * r]) - (double)sums[2 * r + 1];
    *(float *)k->out[0].data = (float)loss;
    return GW_OK;
}

GW_VEC_KERNEL(head_merge, "head_merge", "statistics of parts of a vocabulary, added up",
              merge_supports, gw_vec_no_workspace, merge_launch);
GW_VEC_KERNEL(head_loss, "head_loss", "losses summed in float64, in row order", loss_supports,
              gw_vec_no_workspace, loss_launch);

// SPDX-License-Identifier: Apache-2.0
// One validation: the loss of the held-out set, or of the beginning of it.
//
// A forward program of one micro-batch runs once for each, with the parameters of training and in
// its temporaries. A micro-batch holds train.micro_batch rows on each data-parallel rank, as in
// training; rows past the end of the set are padding that nothing counts. What ranks of the same
// rows see is counted once.
#include <math.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "comm/comm.h"     /* gw_comm_sum_f64 */
#include "train/ranks.h"   /* gw_ranks_counts */
#include "train/session.h" /* this module's contract */

/* A row past the end of the set: padding that nothing counts. */
static void blank_row(const gw_session_valid *v, int64_t row, int64_t s) {
    for (int64_t i = row * s; i < (row + 1) * s; i++) {
        v->tokens[i] = -1;
        v->labels[i] = GW_LABEL_MASKED;
        v->positions[i] = (int32_t)(i - row * s);
        v->docs[i] = 0;
    }
    v->ids[row] = 0;
}

/* This rank's rows of a batch: the same cut as in training. */
static gw_status fill_batch(const gw_session *s, int64_t batch, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t b = s->rf->train.micro_batch, n = s->rf->train.seq_len;
    int64_t first = batch * s->rf->layout.dp * b + v->slices.first;
    for (int64_t row = 0; row < b; row++) {
        int64_t number = first + row;
        if (number >= v->samples) {
            blank_row(v, row, n);
            continue;
        }
        gw_sample one = {.tokens = v->tokens + row * n,
                         .labels = v->labels + row * n,
                         .positions = v->positions + row * n,
                         .docs = v->docs + row * n};
        GW_TRY(gw_tokens_sample(v->data, number, &one, dg));
        v->ids[row] = one.id;
    }
    return GW_OK;
}

/* Ranks that read the same rows count them once. */
static void count_labels(const gw_session *s, gw_session_valid_result *r) {
    const gw_session_valid *v = &s->valid;
    const gw_mesh *mesh = &gw_exec_graph(v->x)->mesh;
    uint32_t samples = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "dp_replicate");
    if (!gw_ranks_counts(mesh, samples, gw_exec_rank(v->x))) return;
    int64_t n = s->rf->train.micro_batch * s->rf->train.seq_len;
    for (int64_t i = 0; i < n; i++) {
        if (v->labels[i] == GW_LABEL_MASKED) continue;
        r->labels++;
        if (v->token_bytes) r->bytes += v->token_bytes[v->labels[i]];
    }
}

/* Counts are below 2^53: sums of doubles are exact. The loss of a batch may be reduced already. */
static gw_status sum_over_ranks(const gw_session *s, double *nats, gw_session_valid_result *r,
                                gw_diags *dg) {
    double sums[2] = {(double)r->labels, (double)r->bytes};
    if (!s->comm) return GW_OK;
    GW_TRY(gw_comm_sum_f64(s->comm, sums, 2, "validation", dg));
    r->labels = (int64_t)sums[0];
    r->bytes = (int64_t)sums[1];
    return gw_ranks_sum_results(s->comm, &s->valid.results, &s->valid.loss, 1, nats, "validation",
                                dg);
}

static gw_status write_valid(void *user, gw_exec *x, int64_t micro, gw_diags *dg) {
    const gw_session_valid *v = &((const gw_session *)user)->valid;
    gw_micro_batch m = {v->tokens, v->labels, v->positions, v->docs, v->ids, 0};
    (void)micro;
    (void)dg;
    gw_slices_write(&v->slices, x, &m);
    return GW_OK;
}

gw_status gw_session_validate(gw_session *s, gw_session_valid_result *r, gw_diags *dg) {
    const gw_session_valid *v = &s->valid;
    int64_t begun = gw_clock_ns();
    double nats = 0;
    *r =
        (gw_session_valid_result){.loss = (double)NAN, .bpb = (double)NAN, .accuracy = (double)NAN};
    if (!v->x) return GW_OK;
    if (gw_session_has_images(s)) return gw_session_judge_images(s, r, dg);
    /* Losses are sums; what else a program reads does not matter here. */
    gw_step_inputs_write(v->x, &(gw_step_inputs){.seed = 1, .inv_scale = 1, .step = 1});
    GW_TRY(gw_exec_run(v->x, GW_SEG_PRE, dg));
    for (int64_t k = 0; k < v->batches; k++) {
        gw_exec_loop loop = {.feed = write_valid, .user = s};
        GW_TRY(fill_batch(s, k, dg));
        GW_TRY(gw_exec_run_all(v->x, 1, &loop, dg));
        float loss = 0; /* absent in the stages before the last */
        (void)gw_exec_read(v->x, "loss", &loss, sizeof loss);
        nats += (double)loss;
        count_labels(s, r);
    }
    GW_TRY(sum_over_ranks(s, &nats, r, dg));
    if (r->labels > 0) r->loss = nats / (double)r->labels;
    if (r->bytes > 0) r->bpb = nats / 0.69314718055994530942 / (double)r->bytes;
    r->seconds = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

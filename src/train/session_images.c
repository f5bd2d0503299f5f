// SPDX-License-Identifier: Apache-2.0
// Sessions that train nets for images: their data, their validation, what their batch norms see.
//
// A step's samples are a range of global sample numbers, cut as the loader of tokens cuts them:
// micro-batch k of b rows a rank on dp ranks holds numbers [k b dp, (k + 1) b dp) of the step, and
// rank r the b from (k dp + r) b. So any number of ranks and of micro-batches sees the same images
// in the same steps. Every image has a label, so the loss divisor is the global batch.
//
// Validation runs the net with its running statistics and yields logits. Loss and accuracy are
// taken here, in double, a row at a time: what is judged is some numbers an image, and no op is
// needed to count right answers.
#include <math.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/log.h"      /* gw_log_info */
#include "data/tokens.h"   /* GW_LABEL_MASKED */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

bool gw_session_has_images(const gw_session *s) { return gw_runfile_has_images(s->rf); }

/* ---- opening ---- */

static gw_status hash_into(const gw_runfile *rf, const char *key, char hex[33], gw_diags *dg) {
    gw_hash128 h;
    GW_TRY(gw_feed_hash(rf, key, &h, dg));
    gw_hash128_hex(hex, h);
    return GW_OK;
}

gw_status gw_session_open_images(gw_session *s, gw_diags *dg) {
    const gw_runfile *rf = s->rf;
    const gw_model *m = &s->setup.model;
    int64_t b = rf->train.micro_batch;
    GW_TRY(gw_feed_open(&s->feed, rf, "data.train", m, NULL, b, dg));
    GW_TRY(hash_into(rf, "data.train", s->data_hash, dg));
    if (!rf->data.valid) return GW_OK;
    GW_TRY(gw_feed_open(&s->valid.feed, rf, "data.valid", m, &s->feed.view.scale, b, dg));
    return hash_into(rf, "data.valid", s->valid_hash, dg);
}

void gw_session_plan_validation(gw_session *s) {
    gw_session_valid *v = &s->valid;
    int64_t rows = s->rf->train.micro_batch * s->rf->layout.dp;
    v->samples = v->feed.count;
    v->batches = (v->samples + rows - 1) / rows;
    if (s->rf->train.valid_batches > 0) v->batches = GW_MIN(v->batches, s->rf->train.valid_batches);
}

/* ---- a step ---- */

const gw_step_batch *gw_session_next_images(gw_session *s) {
    int64_t images = s->rf->train.global_batch;
    s->image_step = (gw_step_batch){.first_sample = s->next_sample,
                                    .next_sample = s->next_sample + images,
                                    .step_labels = images,
                                    .step_tokens = images,
                                    .count = s->rf->train.accumulate};
    return &s->image_step;
}

gw_status gw_session_write_images(gw_session *s, gw_exec *x, const gw_step_batch *b, int64_t k,
                                  gw_diags *dg) {
    int64_t part = k * s->rf->layout.dp + gw_ranks_me(s->comm);
    GW_TRY(gw_feed_read(&s->feed, b->first_sample + part * s->feed.rows, dg));
    gw_feed_write(&s->feed, x);
    return GW_OK;
}

/* ---- validation ---- */

typedef struct tally {
    double nats, right, labels;
} tally;

static void judge_row(const float *z, int64_t classes, int32_t label, tally *t) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 1; c < classes; c++)
        if (z[c] > z[best]) best = c;
    for (int64_t c = 0; c < classes; c++) sum += exp((double)z[c] - (double)z[best]);
    t->nats += (double)z[best] + log(sum) - (double)z[label];
    t->right += best == label;
    t->labels += 1;
}

static void judge(const gw_session *s, tally *t) {
    const gw_feed *f = &s->valid.feed;
    gw_tensor z = gw_exec_tensor(s->valid.x, gw_exec_find(s->valid.x, "logits"));
    for (int64_t r = 0; r < f->rows; r++)
        if (f->labels[r] != GW_LABEL_MASKED)
            judge_row((const float *)z.data + r * f->classes, f->classes, f->labels[r], t);
}

gw_status gw_session_judge_images(gw_session *s, gw_session_valid_result *r, gw_diags *dg) {
    gw_session_valid *v = &s->valid;
    int64_t begun = gw_clock_ns(), dp = s->rf->layout.dp, me = gw_ranks_me(s->comm);
    tally t = {0};
    GW_TRY(gw_exec_run(v->x, GW_SEG_PRE, dg));
    for (int64_t k = 0; k < v->batches; k++) {
        GW_TRY(gw_feed_read(&v->feed, (k * dp + me) * v->feed.rows, dg));
        gw_feed_write(&v->feed, v->x);
        GW_TRY(gw_exec_run(v->x, GW_SEG_LOOP, dg));
        judge(s, &t);
    }
    double sums[3] = {t.nats, t.right, t.labels};
    if (s->comm) GW_TRY(gw_comm_sum_f64(s->comm, sums, 3, "validation", dg));
    r->labels = (int64_t)sums[2];
    if (r->labels > 0) {
        r->loss = sums[0] / sums[2];
        r->accuracy = sums[1] / sums[2];
    }
    r->seconds = (double)(gw_clock_ns() - begun) * 1e-9;
    return GW_OK;
}

/* ---- what a batch norm sees ---- */

void gw_session_announce_norms(const gw_session *s) {
    const gw_rf_train *t = &s->rf->train;
    long long dp = (long long)s->rf->layout.dp, b = (long long)t->micro_batch;
    bool local = s->rf->model.batchnorm == GW_RF_BATCHNORM_LOCAL && dp > 1;
    if (gw_ranks_me(s->comm) > 0) return;
    if (local)
        gw_log_info("batch norms are local: each rank's statistics are of its own %lld images; "
                    "another number of ranks trains another function (model.batchnorm: sync takes "
                    "them over all %lld)",
                    b, b * dp);
    else if (dp > 1)
        gw_log_info("batch norms are synchronised: statistics are of all %lld images of a "
                    "micro-batch",
                    b * dp);
    if (t->accumulate > 1)
        gw_log_info("batch norms see one micro-batch at a time: %lld of them a step are not one "
                    "batch of %lld",
                    (long long)t->accumulate, (long long)t->global_batch);
}

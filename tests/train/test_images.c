// SPDX-License-Identifier: Apache-2.0
// Nets for images through run files: several ranks with synchronised norms train the function of
// one, checkpoints carry running statistics, and what a net has not is refused by key.
//
// The images are stripes of ten widths with noise over them, written by the test as IDX files.
// Ranks are threads here; the same code runs in processes.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"          /* gw_file_write_atomic */
#include "base/log.h"         /* gw_log_set_level */
#include "base/rng.h"         /* gw_rng_u32 */
#include "base/str.h"         /* gw_str */
#include "file/safetensors.h" /* gw_st_open */
#include "harness.h"
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* gw_session */
#include "train/weights.h" /* gw_weights_export_net */
#include "tiny.h"          /* tiny_ranks */

enum { SIDE = 12, BATCH = 12, STEPS = 4 };

/* ---- data ---- */

static void begin(gw_str *s, int ndim, int64_t n) {
    const int64_t dims[3] = {n, SIDE, SIDE};
    const char head[4] = {0, 0, 8, (char)ndim};
    gw_str_add_n(s, head, 4);
    for (int i = 0; i < ndim; i++) {
        const char d[4] = {0, 0, (char)(dims[i] >> 8), (char)(dims[i] & 0xff)};
        gw_str_add_n(s, d, 4);
    }
}

static void put(const char *prefix, const char *end, const gw_str *s) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, end);
    CHECK_OK(gw_file_write_atomic(test_tmp_path(name), gw_str_c(s), (int64_t)s->len, NULL), NULL);
}

static void write_set(const char *prefix, int64_t n) {
    gw_str images = {0}, labels = {0};
    gw_rng_key key = gw_rng_key_named(5, prefix);
    begin(&images, 3, n);
    begin(&labels, 1, n);
    for (int64_t i = 0; i < n; i++) {
        int label = (int)(i * 7 % 10);
        gw_str_add_char(&labels, (char)label);
        for (int p = 0; p < SIDE * SIDE; p++) {
            int stripe = p % SIDE * (label + 2) / SIDE % 2;
            uint32_t noise = gw_rng_u32(key, (uint64_t)(i * SIDE * SIDE + p)) % 60;
            gw_str_add_char(&images, (char)(stripe * 150 + (int)noise));
        }
    }
    put(prefix, "-images-idx3-ubyte", &images);
    put(prefix, "-labels-idx1-ubyte", &labels);
    gw_str_release(&images);
    gw_str_release(&labels);
}

static void write_data(void) {
    gw_log_set_level(GW_LOG_QUIET);
    write_set("train", 40);
    write_set("valid", 17);
}

/* ---- runs ---- */

typedef struct run {
    int ranks, accumulate, steps;
    const char *sets[8];                /* further ones, NULL-ended */
    const char *resume, *save, *export; /* directories, or NULL */
    double loss[STEPS], norm[STEPS], valid, accuracy;
    gw_hash128 first, last;
    int64_t judged, counter;
} run;

static gw_status runfile_of(const run *r, gw_runfile *rf, gw_diags *dg) {
    gw_str text = {0};
    int n = 0;
    gw_str_printf(&text,
                  "model: {family: resnet18, width: 8, image: 16, channels: 1, classes: 10}\n"
                  "data: {train: %s, valid: %s}\n"
                  "train: {steps: 8, micro_batch: %d, accumulate: %d, threads: 1}\n"
                  "optimizer: {name: sgd, lr: 0.002, warmup_steps: 0, schedule: constant}\n",
                  test_tmp_path("train"), test_tmp_path("valid"), BATCH / r->ranks / r->accumulate,
                  r->accumulate);
    while (r->sets[n]) n++;
    gw_status st =
        gw_runfile_parse(rf, "net.yaml", gw_str_c(&text), (int64_t)text.len, r->sets, n, dg);
    gw_str_release(&text);
    return st == GW_OK ? gw_runfile_set_ranks(rf, r->ranks, dg) : st;
}

static gw_status steps(run *r, gw_session *s, bool writes, gw_diags *dg) {
    for (int i = 0; i < r->steps; i++) {
        gw_session_step_result t;
        GW_TRY(gw_session_step(s, &t, dg));
        CHECK_EQ(t.labels, BATCH);
        if (!writes) continue;
        r->loss[i] = t.loss;
        r->norm[i] = t.norm;
    }
    return GW_OK;
}

static gw_status trained(run *r, gw_runfile *rf, gw_comm *c, gw_diags *dg) {
    bool writes = gw_ranks_me(c) == 0;
    gw_session s;
    GW_TRY(gw_session_open(&s, rf, r->resume, c, dg));
    gw_hash128 first = gw_session_hash(&s);
    GW_TRY(steps(r, &s, writes, dg));
    gw_session_valid_result v;
    GW_TRY(gw_session_validate(&s, &v, dg));
    CHECK_EQ(gw_session_planned_bytes(&s), gw_session_arena_bytes(&s));
    if (r->save) GW_TRY(gw_session_save(&s, r->save, dg));
    gw_hash128 last = gw_session_hash(&s);
    if (writes) {
        r->first = first;
        r->last = last;
        r->valid = v.loss;
        r->accuracy = v.accuracy;
        r->judged = v.labels;
        CHECK(gw_exec_read(s.x, "bn1.num_batches_tracked", &r->counter, sizeof r->counter));
    }
    gw_session_close(&s);
    return GW_OK;
}

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_runfile rf;
    gw_status st = runfile_of(r, &rf, dg);
    if (st == GW_OK) st = trained(r, &rf, c, dg);
    gw_runfile_release(&rf);
    return st;
}

static void go(run *r) { tiny_ranks(r->ranks, one_rank, r); }

static run base(int ranks, const char *norms) {
    run r = {.ranks = ranks, .accumulate = 1, .steps = STEPS};
    r.sets[0] = norms;
    return r;
}

#define SYNC  "model.batchnorm=sync"
#define LOCAL "model.batchnorm=local"
#define OWN   "model.broadcast_buffers=false"

static void same_function(const run *a, const run *b) {
    CHECK(tiny_equal(a->first, b->first));
    for (int i = 0; i < b->steps; i++) {
        test_note("step %d: loss %.9g and %.9g, norm %.9g and %.9g", i, a->loss[i], b->loss[i],
                  a->norm[i], b->norm[i]);
        CHECK_NEAR(a->loss[i], b->loss[i], 1e-5 * fabs(b->loss[i]));
        CHECK_NEAR(a->norm[i], b->norm[i], 1e-4 * fabs(b->norm[i]));
    }
    CHECK_NEAR(a->valid, b->valid, 1e-4 * fabs(b->valid));
    CHECK_EQ(a->judged, 17);
    CHECK_EQ(b->judged, 17);
}

TEST_WITHIN(synchronised_ranks_are_the_function_of_one, 120) {
    write_data();
    for (int accumulate = 1; accumulate <= 2; accumulate++) {
        run one = base(1, SYNC);
        one.accumulate = accumulate;
        go(&one);
        CHECK_EQ(one.counter, STEPS * accumulate); /* of micro-batches, as PyTorch counts */
        for (int ranks = 2; ranks <= 3; ranks++) {
            run many = base(ranks, SYNC);
            many.accumulate = accumulate;
            many.sets[1] = ranks == 3 ? "layout.zero=3" : "layout.zero=1";
            go(&many);
            same_function(&many, &one);
        }
    }
}

/* With norms of its own samples each rank computes something else, by far more than rounding. */
TEST_WITHIN(local_norms_are_another_function, 120) {
    write_data();
    run one = base(1, SYNC), two = base(2, LOCAL);
    go(&one);
    go(&two);
    double apart = fabs(two.loss[0] - one.loss[0]) / one.loss[0];
    CHECK_MSG(apart > 1e-3, "loss %.6g and %.6g", two.loss[0], one.loss[0]);
}

/* ---- checkpoints ---- */

static void resumes_bitwise(const char *norms, const char *more, int ranks) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path(more ? more : norms));
    run whole = base(ranks, norms);
    whole.sets[1] = more;
    go(&whole);
    run half = whole;
    half.steps = 2;
    half.save = dir;
    go(&half);
    half.save = NULL;
    half.resume = dir;
    go(&half);
    CHECK_EQ(half.counter, 4);
    CHECK(tiny_equal(half.last, whole.last));
}

TEST_WITHIN(resuming_is_bitwise_statistics_included, 120) {
    write_data();
    resumes_bitwise(SYNC, NULL, 1);
    resumes_bitwise(SYNC, "layout.zero=2", 2);
    resumes_bitwise(LOCAL, NULL, 2);
    resumes_bitwise(LOCAL, OWN, 2); /* statistics of each rank */
}

TEST_WITHIN(synchronised_runs_resume_on_any_number_of_ranks, 120) {
    write_data();
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("sync"));
    run two = base(2, SYNC);
    two.save = dir;
    two.steps = 2;
    go(&two);
    run one = base(1, SYNC), three = base(3, SYNC);
    one.resume = three.resume = dir;
    one.steps = three.steps = 2;
    go(&one);
    go(&three);
    CHECK(tiny_equal(one.first, two.last) && tiny_equal(three.first, two.last));
    CHECK_NEAR(three.loss[1], one.loss[1], 1e-5 * one.loss[1]);
    CHECK_NEAR(three.valid, one.valid, 1e-4 * one.valid);
}

/* Ranks that kept statistics of their own are another number now: all begin from rank 0's. */
TEST_WITHIN(statistics_of_each_rank_begin_again_from_the_first, 120) {
    write_data();
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("own"));
    run two = base(2, LOCAL);
    two.sets[1] = OWN;
    two.save = dir;
    two.steps = 2;
    go(&two);
    run three = two, shared = base(2, LOCAL);
    three.ranks = 3;
    three.save = NULL;
    three.resume = dir;
    three.steps = 0;
    go(&three);
    shared.steps = 2; /* rank 0's statistics for all: DDP's default */
    go(&shared);
    CHECK_NEAR(three.valid, shared.valid, 1e-6 * shared.valid);
    CHECK_EQ(three.counter, 2);
}

TEST_WITHIN(another_net_is_not_resumed, 60) {
    write_data();
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("net"));
    run r = base(1, SYNC);
    r.steps = 1;
    r.save = dir;
    go(&r);
    static const char *const others[][2] = {{"model.width=4", "width=4"},
                                            {"model.family=resnet34", "blocks=3,4,6,3"},
                                            {LOCAL, "model.batchnorm is"}};
    for (size_t i = 0; i < GW_COUNT(others); i++) {
        gw_diags dg;
        gw_diags_init(&dg);
        run other = base(1, SYNC);
        other.resume = dir;
        other.sets[1] = others[i][0];
        CHECK_EQ(one_rank(NULL, &other, &dg), GW_ERR_CONFIG);
        bool said = false;
        for (const gw_diag *g = dg.first; g; g = g->next)
            said = said || strstr(g->message, others[i][1]);
        CHECK_MSG(said, "%s", dg.first->message);
        gw_diags_release(&dg);
    }
}

/* ---- export ---- */

TEST_WITHIN(an_export_has_torchvisions_names_and_statistics, 60) {
    write_data();
    char dir[512], out[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("run"));
    snprintf(out, sizeof out, "%s", test_tmp_path("out"));
    run r = base(1, SYNC);
    r.steps = 2;
    r.save = dir;
    go(&r);
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_st_set *set = NULL;
    gw_diags_init(&dg);
    CHECK_OK(runfile_of(&r, &rf, &dg), &dg);
    CHECK_OK(gw_session_open_params(&s, &rf, dir, false, &dg), &dg);
    CHECK_OK(gw_weights_export_net(s.x, &s.setup.model, s.setup.params, s.setup.nparams, out,
                                   GW_F32, GW_WEIGHTS_SHARD_BYTES, &dg),
             &dg);
    CHECK_OK(gw_st_open(out, &set, &dg), &dg);
    const gw_st_tensor *w = gw_st_find(set, "layer2.0.downsample.0.weight");
    const gw_st_tensor *v = gw_st_find(set, "layer4.1.bn2.running_var");
    const gw_st_tensor *n = gw_st_find(set, "bn1.num_batches_tracked");
    CHECK(w && w->ndim == 4 && w->dims[0] == 16 && w->dims[1] == 8 && w->dims[3] == 1);
    CHECK(v && v->ndim == 1 && v->dims[0] == 64 && v->dtype == GW_ST_F32);
    CHECK(n && n->ndim == 0 && n->dtype == GW_ST_I64);
    int64_t counter = 0;
    memcpy(&counter, n->data, sizeof counter);
    CHECK_EQ(counter, 2);
    CHECK(gw_st_find(set, "fc.bias") && !gw_st_find(set, "layer1.0.downsample.0.weight"));
    gw_st_free(set);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* ---- refusals ---- */

static void refused(const char *set, const char *words) {
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_diags_init(&dg);
    run r = base(1, SYNC);
    r.sets[1] = set;
    gw_status st = runfile_of(&r, &rf, &dg);
    if (st == GW_OK) {
        st = gw_session_open(&s, &rf, NULL, NULL, &dg);
        if (st == GW_OK) gw_session_close(&s);
    }
    CHECK_MSG(st != GW_OK, "%s is taken", set);
    bool said = false;
    for (const gw_diag *g = dg.first; g; g = g->next) said = said || strstr(g->message, words);
    CHECK_MSG(said, "%s: %s", set, dg.first->message);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(what_a_net_has_not_is_refused) {
    write_data();
    refused("train.seq_len=8", "train.seq_len has no effect");
    refused("data.tokenizer=bytes", "data.tokenizer has no effect");
    refused("model.layers=2", "model.layers has no effect");
    refused(OWN, "model.broadcast_buffers has no effect"); /* synchronised norms have one set */
    refused("optimizer.name=muon", "muon is for the hidden matrices");
    refused("recompute.policy=selective", "selective is attention");
    refused("model.classes=9", "labels up to 9");
    refused("data.train=/nowhere/set", "/nowhere/set-images-idx3-ubyte");
}

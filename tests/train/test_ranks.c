// SPDX-License-Identifier: Apache-2.0
// Several ranks train the function of one: same losses, same state, same data, whatever is sharded;
// checkpoints do not know by how many ranks they were written; what goes wrong on one ends all.
//
// Ranks are threads here; the same code runs in processes (tests/dist).
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"     /* gw_path_exists */
#include "base/log.h"    /* gw_log_set_level */
#include "base/str.h"    /* gw_str */
#include "comm/launch.h" /* gw_launch_threads */
#include "file/json.h"   /* gw_json_read_file */
#include "harness.h"
#include "ir/text.h" /* gw_graph_print */
#include "tiny.h"
#include "train/loop.h"
#include "train/ranks.h"
#include "train/session.h"

enum { STEPS = 4, BATCH = 12 };

/* What a run is, and what came of it (rank 0 writes). */
typedef struct run {
    int ranks, zero, replicas, accumulate;
    bool gpt2;
    const char *sets[8]; /* further ones, NULL-ended */
    int steps;
    const char *resume, *save; /* run directories, or NULL */
    double loss[STEPS], norm[STEPS], valid;
    gw_hash128 first, last; /* state before the first step and after the last */
    int64_t labels;
} run;

static void tiny(gw_runfile *rf, bool gpt2, const char *const *sets) {
    tiny_runfile(rf, gpt2, sets);
}

static void runfile_of(const run *r, gw_runfile *rf, gw_diags *dg) {
    char text[8][64];
    const char *sets[20] = {0};
    int n = 0;
    snprintf(text[0], 64, "train.micro_batch=%d", BATCH / r->ranks / r->accumulate);
    snprintf(text[1], 64, "train.accumulate=%d", r->accumulate);
    snprintf(text[2], 64, "train.global_batch=%d", BATCH);
    snprintf(text[3], 64, "layout.zero=%d", r->zero);
    snprintf(text[4], 64, "layout.dp_replicate=%d", r->replicas);
    for (int i = 0; i < (r->replicas > 1 ? 5 : 4); i++) sets[n++] = text[i];
    sets[n++] = "train.valid_batches=0";
    for (int i = 0; r->sets[i]; i++) sets[n++] = r->sets[i];
    tiny(rf, r->gpt2, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, r->ranks, dg), dg);
}

static void same_bytes(const gw_session *s) {
    gw_coll_traffic planned[GW_COLL_KIND_COUNT];
    gw_session_planned_traffic(s, planned);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        CHECK_EQ(s->sent[k].payload, planned[k].payload * s->steps_run);
        CHECK_EQ(s->sent[k].moved, planned[k].moved * s->steps_run);
    }
}

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    bool writes = gw_ranks_me(c) == 0;
    gw_runfile rf;
    gw_session s;
    runfile_of(r, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, r->resume, c, dg));
    gw_hash128 first = gw_session_hash(&s);
    for (int i = 0; i < r->steps; i++) {
        gw_session_step_result t;
        GW_TRY(gw_session_step(&s, &t, dg));
        CHECK(t.comm_exposed_s <= t.comm_s && t.comm_wait_s <= t.comm_s);
        if (!writes) continue;
        r->loss[i] = t.loss;
        r->norm[i] = t.norm;
    }
    gw_session_valid_result v;
    GW_TRY(gw_session_validate(&s, &v, dg));
    if (c) same_bytes(&s);
    CHECK_EQ(gw_session_planned_bytes(&s), gw_session_arena_bytes(&s));
    if (r->save) GW_TRY(gw_session_save(&s, r->save, dg));
    gw_hash128 last = gw_session_hash(&s);
    if (writes) {
        r->first = first;
        r->last = last;
        r->valid = v.loss;
        r->labels = v.labels;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void go(run *r) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    tiny_ranks(r->ranks, one_rank, r);
}

/* Sums are taken in another order: 1e-5, relative, is what float32 leaves. */
static void same_function(const run *a, const run *b, double tolerance) {
    test_note("%d ranks, zero %d, %d replicas, accumulate %d", a->ranks, a->zero, a->replicas,
              a->accumulate);
    CHECK(tiny_equal(a->first, b->first)); /* initial weights do not know the layout */
    for (int i = 0; i < b->steps; i++) {
        test_note("step %d: loss %.9g and %.9g, norm %.9g and %.9g", i, a->loss[i], b->loss[i],
                  a->norm[i], b->norm[i]);
        CHECK_NEAR(a->loss[i], b->loss[i], tolerance * fabs(b->loss[i]));
        CHECK_NEAR(a->norm[i], b->norm[i], 10 * tolerance * fabs(b->norm[i]));
    }
    CHECK_EQ(a->labels, b->labels);
    CHECK_NEAR(a->valid, b->valid, tolerance * fabs(b->valid));
}

static void layouts(bool gpt2, int accumulate, const char *set, double tolerance) {
    run one = {.ranks = 1, .replicas = 1, .accumulate = accumulate, .gpt2 = gpt2, .steps = STEPS};
    one.sets[0] = set;
    go(&one);
    for (int ranks = 2; ranks <= 3; ranks++)
        for (int zero = 0; zero <= 3; zero++) {
            run many = one;
            many.ranks = ranks;
            many.zero = zero;
            go(&many);
            same_function(&many, &one, tolerance);
        }
}

TEST_WITHIN(every_stage_is_the_function_of_one_rank, 240) { layouts(false, 1, NULL, 1e-5); }
TEST_WITHIN(every_stage_accumulates_alike, 240) { layouts(false, 2, NULL, 1e-5); }
TEST_WITHIN(every_stage_is_the_same_under_dropout, 240) { layouts(true, 1, NULL, 1e-5); }
/* bf16 has 8 bits: a gradient that is summed in another order moves weights by as much. */
TEST_WITHIN(every_stage_is_the_same_in_bf16, 240) {
    layouts(false, 2, "precision.compute=bf16", 4e-3);
}

TEST_WITHIN(replicas_of_shards_are_the_function_of_one_rank, 120) {
    run one = {.ranks = 1, .replicas = 1, .accumulate = 1, .steps = STEPS};
    go(&one);
    for (int zero = 1; zero <= 3; zero++) {
        run many = one;
        many.ranks = 4;
        many.zero = zero;
        many.replicas = 2;
        go(&many);
        same_function(&many, &one, 1e-5);
    }
}

/* ---- checkpoints ---- */

TEST_WITHIN(a_checkpoint_does_not_know_by_how_many_ranks_it_was_written, 240) {
    char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("ckpt"));
    run base = {.ranks = 2, .zero = 3, .replicas = 1, .accumulate = 1, .steps = 2};
    base.save = dir;
    go(&base);
    static const int ranks[] = {1, 3, 2, 4}, zero[] = {0, 1, 2, 3};
    run next[GW_COUNT(ranks)];
    for (size_t i = 0; i < GW_COUNT(ranks); i++) {
        next[i] = base;
        next[i].ranks = ranks[i];
        next[i].zero = zero[i];
        next[i].save = NULL;
        next[i].resume = dir;
        go(&next[i]);
        CHECK(tiny_equal(next[i].first, base.last)); /* every bit of state is there */
        CHECK_NEAR(next[i].loss[1], next[0].loss[1], 1e-5 * next[0].loss[1]);
    }
}

TEST_WITHIN(resuming_on_as_many_ranks_is_bitwise, 120) {
    for (int zero = 0; zero <= 3; zero++) {
        char name[32], dir[512];
        snprintf(name, sizeof name, "bits%d", zero);
        snprintf(dir, sizeof dir, "%s", test_tmp_path(name));
        run whole = {.ranks = 3, .zero = zero, .replicas = 1, .accumulate = 2, .steps = 4};
        go(&whole);
        run half = whole;
        half.steps = 2;
        half.save = dir;
        go(&half);
        half.save = NULL;
        half.resume = dir;
        go(&half);
        CHECK(tiny_equal(half.last, whole.last));
    }
}

/* ---- stopping, failing ---- */

static gw_status stop_one(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    runfile_of(r, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    GW_TRY(gw_session_step(&s, &t, dg));
    CHECK(!t.stopped);
    s.wants_stop = gw_comm_rank(c) == 2;
    GW_TRY(gw_session_step(&s, &t, dg));
    CHECK(t.stopped);
    CHECK_EQ(s.step, 1);
    s.wants_stop = false;
    GW_TRY(gw_session_step(&s, &t, dg)); /* nothing was lost by it but the batch prepared */
    CHECK(!t.stopped);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

TEST(one_rank_that_is_asked_to_stop_stops_all) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    run r = {.ranks = 3, .replicas = 1, .accumulate = 1};
    CHECK_OK(gw_launch_threads(3, 20, stop_one, &r, &dg), &dg);
    gw_diags_release(&dg);
}

static gw_status other_file(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    run mine = *r;
    gw_runfile rf;
    gw_session s;
    if (gw_comm_rank(c) == 1) mine.sets[0] = "optimizer.lr=0.004";
    runfile_of(&mine, &rf, dg);
    gw_status st = gw_session_open(&s, &rf, NULL, c, dg);
    CHECK_EQ(st, GW_ERR_CONFIG);
    gw_runfile_release(&rf);
    return st;
}

TEST(ranks_with_other_run_files_are_refused_by_the_line) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    run r = {.ranks = 3, .replicas = 1, .accumulate = 1};
    CHECK_EQ(gw_launch_threads(3, 20, other_file, &r, &dg), GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, 1);
    CHECK_MSG(strstr(dg.first->message, "rank 1 has another run file"), "%s", dg.first->message);
    CHECK_MSG(strstr(dg.first->detail, "lr: 0.005") && strstr(dg.first->detail, "lr: 0.004"), "%s",
              dg.first->detail);
    gw_diags_release(&dg);
}

/* A weight of one rank is not finite: all stop at that step, and the rank is named. */
static gw_status bad_weight(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    runfile_of(r, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    gw_tensor w = gw_exec_tensor(s.x, gw_exec_find(s.x, "layers.1.mlp.up.weight"));
    if (gw_comm_rank(c) == 1) ((float *)w.data)[3] = NAN;
    gw_status st = gw_session_step(&s, &t, dg);
    CHECK_EQ(st, GW_ERR_NUMERIC);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

TEST(the_rank_of_a_bad_number_is_named) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    run r = {.ranks = 3, .replicas = 1, .accumulate = 2};
    CHECK_EQ(gw_launch_threads(3, 20, bad_weight, &r, &dg), GW_ERR_NUMERIC);
    CHECK_EQ(dg.nerrors, 1);
    CHECK_MSG(strstr(dg.first->detail, "matmul in \"layer 1/mlp/up\"") &&
                  strstr(dg.first->detail, "on rank 1"),
              "%s", dg.first->detail);
    gw_diags_release(&dg);
}

/* ---- a whole run ---- */

static gw_status whole_run(gw_comm *c, void *user, gw_diags *dg) {
    const char *dir = user;
    gw_runfile rf;
    const char *const sets[] = {"layout.zero=1", NULL};
    tiny(&rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(&rf, 2, dg), dg);
    gw_train_opts o = {.out_dir = dir, .comm = c};
    json_t *summary = NULL;
    gw_status st = gw_train_run(&rf, &o, &summary, dg);
    CHECK((summary != NULL) == (st == GW_OK && gw_comm_rank(c) == 0));
    json_decref(summary);
    gw_runfile_release(&rf);
    return st;
}

static const char *in(const char *dir, const char *name) {
    static char path[8][600];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

TEST(a_run_of_ranks_leaves_one_directory) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    static char dir[512];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("run"));
    CHECK_OK(gw_launch_threads(2, 20, whole_run, dir, &dg), &dg);
    CHECK(gw_path_exists(in(dir, "checkpoints/step-00000008/manifest.json")));
    CHECK(!gw_path_exists(in(dir, "trace.json")) && !gw_path_exists(in(dir, ".lock")));
    json_t *j = NULL;
    for (int r = 0; r < 2; r++) {
        char name[32];
        snprintf(name, sizeof name, "trace-rank-%d.json", r);
        CHECK_OK(gw_json_read_file(in(dir, name), 0, &j, &dg), &dg);
        int collectives = 0;
        size_t i;
        const json_t *e,
            *events = json_is_array(j) ? j : (const json_t *)json_object_get(j, "traceEvents");
        json_array_foreach(events, i, e) {
            const char *cat = json_string_value(json_object_get(e, "cat"));
            collectives += cat && strcmp(cat, "collective") == 0;
            CHECK_EQ(json_integer_value(json_object_get(e, "pid")), r);
        }
        CHECK(collectives > 0);
        json_decref(j);
    }
    CHECK_OK(gw_json_read_file(in(dir, "summary.json"), 0, &j, &dg), &dg);
    CHECK(json_is_true(json_object_get(j, "wire_as_planned")));
    CHECK_EQ(json_array_size(json_object_get(j, "by_rank")), 2);
    CHECK_EQ(json_integer_value(json_object_get(j, "ranks")), 2);
    json_decref(j);
    gw_str text = {0};
    CHECK_OK(gw_file_read(in(dir, "metrics.jsonl"), 0, &text, &dg), &dg);
    CHECK(strstr(gw_str_c(&text), "\"comm_s\": ") &&
          strstr(gw_str_c(&text), "\"comm_exposed_s\": "));
    gw_str_release(&text);
    /* A second run into it is refused, once. */
    CHECK_EQ(gw_launch_threads(2, 20, whole_run, dir, &dg), GW_ERR_USAGE);
    CHECK_EQ(dg.nerrors, 1);
    gw_diags_release(&dg);
}

// SPDX-License-Identifier: Apache-2.0
// A model cut into stages is the function of one rank: under every schedule, tied and not, beside
// every other cut; what one cut saves another goes on from, and the same cut to the bit.
//
// One rank takes the same micro-batches in the same order, so what may differ is the order of a few
// sums (the norm, gradients of micro-batches): 1e-5, relative, is what float32 leaves of a loss.
// Ranks are threads.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"     /* gw_file_write_atomic */
#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "tiny.h"
#include "train/loop.h"     /* gw_train_run */
#include "train/metrics.h"  /* gw_metrics_read */
#include "train/pipeline.h" /* gw_pipeline_measure */
#include "train/ranks.h"
#include "train/session.h"

enum { STEPS = 3, MICRO = 4, BATCH = 8, MOST_SETS = 8 };

typedef struct run {
    const char *name;
    int ranks, dp;
    const char *sets[MOST_SETS]; /* of the layout, NULL-ended */
    const char *const *model;    /* of the model, NULL-ended, or NULL */
    bool gpt2;
    int steps;
    const char *resume, *save; /* run directories, or NULL */
    double loss[STEPS], norm[STEPS], valid, bubble;
    int64_t labels, valid_labels, tokens;
    gw_hash128 first, last; /* state before the first step and after the last */
} run;

#define PP(n)       "layout.pp=" #n
#define SCHEDULE(x) "layout.schedule=" x

static const run schedules[] = {
    {.name = "gpipe", .ranks = 2, .dp = 1, .sets = {PP(2), SCHEDULE("gpipe")}},
    {.name = "1f1b on 2", .ranks = 2, .dp = 1, .sets = {PP(2)}},
    {.name = "1f1b on 4", .ranks = 4, .dp = 1, .sets = {PP(4)}},
    {.name = "interleaved", .ranks = 2, .dp = 1, .sets = {PP(2), "layout.virtual_stages=2"}},
    {.name = "zb-h1", .ranks = 2, .dp = 1, .sets = {PP(2), SCHEDULE("zb-h1")}},
    {.name = "zb-h1 on 4", .ranks = 4, .dp = 1, .sets = {PP(4), SCHEDULE("zb-h1")}},
    {.name = "zb-2p", .ranks = 2, .dp = 1, .sets = {PP(2), SCHEDULE("zb-2p")}},
    {.name = "zbv", .ranks = 2, .dp = 1, .sets = {PP(2), SCHEDULE("zbv")}},
    {.name = "dualpipev", .ranks = 2, .dp = 1, .sets = {PP(2), SCHEDULE("dualpipev")}},
};

static const run layouts[] = {
    {.name = "pp 2, the last stage without layers",
     .ranks = 2,
     .dp = 1,
     .sets = {PP(2), "layout.stages=[4, 0]"}},
    {.name = "pp 2, dp 2", .ranks = 4, .dp = 2, .sets = {PP(2)}},
    {.name = "pp 2, tp 2", .ranks = 4, .dp = 1, .sets = {PP(2), "layout.tp=2"}},
    {.name = "pp 2, cp 2", .ranks = 4, .dp = 1, .sets = {PP(2), "layout.cp=2"}},
    {.name = "pp 2, dp 2, zero 1", .ranks = 4, .dp = 2, .sets = {PP(2), "layout.zero=1"}},
    {.name = "pp 2, dp 2, zero 3, zb-h1",
     .ranks = 4,
     .dp = 2,
     .sets = {PP(2), "layout.zero=3", SCHEDULE("zb-h1")}},
    {.name = "pp 2, dp 2, tp 2, interleaved, one place a channel",
     .ranks = 8,
     .dp = 2,
     .sets = {PP(2), "layout.tp=2", "layout.virtual_stages=2", "layout.message_places=1"}},
    {.name = "pp 2, the norm known later",
     .ranks = 2,
     .dp = 1,
     .sets = {PP(2), "optimizer.norm=deferred"}},
};

static const char *const untied[] = {"model.tie_embeddings=false", NULL};
static const char *const experts[] = {"model.family=mixtral", "model.moe.experts=4",
                                      "model.moe.top=2", "model.moe.ffn=24", NULL};

static void runfile_of(const run *r, gw_runfile *rf, gw_diags *dg) {
    char micro[40], accumulate[40];
    const char *sets[2 * MOST_SETS + 8] = {"train.seq_len=23", "model.hidden=36",
                                           "model.heads=3",    "model.ffn=35",
                                           "model.layers=4",   "train.valid_batches=0"};
    int n = 6;
    snprintf(accumulate, sizeof accumulate, "train.accumulate=%d", MICRO);
    snprintf(micro, sizeof micro, "train.micro_batch=%d", BATCH / (MICRO * r->dp));
    sets[n++] = accumulate;
    sets[n++] = micro;
    for (int i = 0; r->model && r->model[i]; i++) sets[n++] = r->model[i];
    for (int i = 0; i < MOST_SETS && r->sets[i]; i++) sets[n++] = r->sets[i];
    tiny_runfile(rf, r->gpt2, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, r->ranks, dg), dg);
    CHECK_EQ(rf->layout.dp, r->dp);
}

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t = {0};
    gw_session_valid_result v;
    runfile_of(r, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, r->resume, c, dg));
    bool writes = gw_ranks_me(c) == 0;
    gw_hash128 first = gw_session_hash(&s);
    for (int i = 0; i < r->steps; i++) {
        GW_TRY(gw_session_step(&s, &t, dg));
        if (!writes) continue;
        r->loss[i] = t.loss;
        r->norm[i] = t.norm;
    }
    GW_TRY(gw_session_validate(&s, &v, dg));
    if (r->save) GW_TRY(gw_session_save(&s, r->save, dg));
    gw_hash128 last = gw_session_hash(&s);
    if (writes) {
        r->first = first;
        r->last = last;
        r->valid = v.loss;
        r->valid_labels = v.labels;
        r->labels = t.labels;
        r->tokens = s.tokens;
        r->bubble = t.bubble;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void go(run *r) {
    gw_log_set_level(GW_LOG_QUIET);
    test_note("%s", r->name);
    tiny_data();
    tiny_ranks(r->ranks, one_rank, r);
}

static void same_function(const run *a, const run *b) {
    CHECK_MSG(tiny_equal(a->first, b->first), "%s", a->name); /* weights do not know the layout */
    for (int i = 0; i < b->steps; i++) {
        test_note("%s, step %d: loss %.9g and %.9g, norm %.9g and %.9g", a->name, i, a->loss[i],
                  b->loss[i], a->norm[i], b->norm[i]);
        CHECK_NEAR(a->loss[i], b->loss[i], 1e-5 * fabs(b->loss[i]));
        CHECK_NEAR(a->norm[i], b->norm[i], 1e-4 * fabs(b->norm[i]));
    }
    CHECK_EQ(a->labels, b->labels);
    CHECK_EQ(a->tokens, b->tokens);
    CHECK_EQ(a->valid_labels, b->valid_labels);
    CHECK_NEAR(a->valid, b->valid, 1e-5 * fabs(b->valid));
}

static run one_rank_run(const char *const *model, bool gpt2) {
    return (run){
        .name = "one rank", .ranks = 1, .dp = 1, .model = model, .gpt2 = gpt2, .steps = STEPS};
}

static void all_like_one(const run *all, size_t n, const char *const *model, bool gpt2) {
    run one = one_rank_run(model, gpt2);
    go(&one);
    for (size_t i = 0; i < n; i++) {
        run many = all[i];
        many.model = model;
        many.gpt2 = gpt2;
        many.steps = STEPS;
        go(&many);
        same_function(&many, &one);
        CHECK(many.bubble > 0 && many.bubble < 1);
    }
}

TEST_WITHIN(every_schedule_trains_the_function_of_one_rank, 240) {
    all_like_one(schedules, GW_COUNT(schedules), NULL, false);
}

TEST_WITHIN(untied_weights_stay_on_their_stages, 240) {
    all_like_one(schedules, GW_COUNT(schedules), untied, false);
}

TEST_WITHIN(stages_stand_beside_every_other_cut, 240) {
    all_like_one(layouts, GW_COUNT(layouts), NULL, false);
}

TEST_WITHIN(dropout_does_not_know_the_stages, 240) {
    all_like_one(schedules, GW_COUNT(schedules), NULL, true);
}

/* Costs of a forward program alone would balance other stages than those of the step it measures.
 */
TEST_WITHIN(validation_has_the_stages_of_the_step, 240) {
    static const char *const three[] = {"model.layers=3", "model.hidden=35", "model.heads=5",
                                        "model.ffn=37", NULL};
    static const char *const five[] = {"model.layers=5", "model.hidden=35", "model.heads=5",
                                       "model.ffn=37", NULL};
    all_like_one(layouts + 1, 3, three, true);
    all_like_one(layouts + 1, 3, five, true);
}

TEST_WITHIN(experts_train_in_stages, 240) {
    const run some[] = {schedules[1], schedules[4]};
    all_like_one(some, 2, experts, false);
}

/* The load is balanced over the micro-batches of all replicas, so the reference has two as well. */
TEST_WITHIN(experts_over_ranks_train_in_stages, 240) {
    static const char *const apart[] = {
        "model.family=mixtral", "model.moe.experts=4",        "model.moe.top=2",
        "model.moe.ffn=24",     "model.tie_embeddings=false", NULL};
    const char *const *const models[] = {experts, apart};
    for (size_t i = 0; i < GW_COUNT(models); i++) {
        run flat = {.name = "ep 2", .ranks = 2, .dp = 2, .sets = {"layout.ep=2"}};
        run many = {.name = "pp 2, ep 2", .ranks = 4, .dp = 2, .sets = {PP(2), "layout.ep=2"}};
        flat.model = many.model = models[i];
        flat.steps = many.steps = STEPS;
        go(&flat);
        go(&many);
        same_function(&many, &flat);
    }
}

/* ---- checkpoints ---- */

TEST_WITHIN(any_cut_goes_on_from_any_other, 240) {
    const run all[] = {schedules[1],
                       schedules[2],
                       schedules[3],
                       schedules[7],
                       layouts[1],
                       layouts[4],
                       one_rank_run(NULL, false)};
    enum { N = sizeof all / sizeof *all };
    char dirs[N][300];
    run saved[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "cut-%d", i);
        snprintf(dirs[i], sizeof dirs[i], "%s", test_tmp_path(name));
        saved[i] = all[i];
        saved[i].steps = 1;
        saved[i].save = dirs[i];
        go(&saved[i]);
    }
    for (int i = 0; i < N; i++)
        for (int k = i % 2; k < N; k += 2) {
            run next = all[k];
            next.steps = 0;
            next.resume = dirs[i];
            go(&next);
            CHECK_MSG(tiny_equal(next.first, saved[i].last), "%s from %s", next.name,
                      saved[i].name);
        }
}

TEST_WITHIN(resuming_is_bitwise, 240) {
    const run some[] = {schedules[2], schedules[4], layouts[4]};
    for (size_t i = 0; i < GW_COUNT(some); i++) {
        char dir[300], name[16];
        snprintf(name, sizeof name, "on-%d", (int)i);
        snprintf(dir, sizeof dir, "%s", test_tmp_path(name));
        run whole = some[i], first = some[i], second = some[i];
        whole.steps = 3;
        first.steps = 2;
        first.save = dir;
        second.steps = 1;
        second.resume = dir;
        go(&whole);
        go(&first);
        go(&second);
        CHECK_MSG(tiny_equal(second.last, whole.last), "%s", whole.name);
        CHECK(second.loss[0] == whole.loss[2]);
    }
}

/* A stage each on two ranks, then one rank, then two replicas: the losses of one rank throughout.
 */
TEST_WITHIN(a_run_moves_from_stages_to_replicas, 240) {
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", test_tmp_path("stages"));
    snprintf(b, sizeof b, "%s", test_tmp_path("alone"));
    run one = one_rank_run(NULL, false);
    go(&one);
    run pp = schedules[1], alone = one_rank_run(NULL, false);
    run dp = {.name = "dp 2", .ranks = 2, .dp = 2};
    pp.steps = alone.steps = dp.steps = 1;
    pp.save = alone.resume = a;
    alone.save = dp.resume = b;
    go(&pp);
    go(&alone);
    go(&dp);
    CHECK_NEAR(pp.loss[0], one.loss[0], 1e-5 * one.loss[0]);
    CHECK_NEAR(alone.loss[0], one.loss[1], 1e-5 * one.loss[1]);
    CHECK_NEAR(dp.loss[0], one.loss[2], 1e-5 * one.loss[2]);
    CHECK_EQ(dp.tokens, one.tokens);
}

/* ---- a schedule in a file, and what is reported ---- */

static const char by_hand[] = "schedule by-hand\nranks 2\nstages 0 1\nmicro-batches 4\n"
                              "rank 0: F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3\n"
                              "rank 1: F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3\n";

static void write_schedule(char path[300]) {
    gw_diags dg;
    gw_diags_init(&dg);
    snprintf(path, 300, "%s", test_tmp_path("by-hand.txt"));
    CHECK_OK(gw_file_write_atomic(path, by_hand, (int64_t)strlen(by_hand), &dg), &dg);
    gw_diags_release(&dg);
}

TEST_WITHIN(a_schedule_in_a_file_is_obeyed, 120) {
    char path[300], set[340];
    write_schedule(path);
    snprintf(set, sizeof set, "layout.schedule=file:%s", path);
    const run file = {.name = "by hand", .ranks = 2, .dp = 1, .sets = {PP(2), set}};
    all_like_one(&file, 1, NULL, false);
}

/* All of it at once, each with its place. */
TEST(a_schedule_in_a_file_that_does_not_fit_is_refused_whole) {
    char path[300], set[340];
    write_schedule(path);
    snprintf(set, sizeof set, "layout.schedule=file:%s", path);
    const char *sets[] = {set, "layout.pp=3", "layout.virtual_stages=2", "train.accumulate=5",
                          "layout.stages=[1, 1]"};
    static const char *const says[] = {"for 2 ranks", "for 1 stages a rank", "for 4 micro-batches"};
    static const char text[] = "model: {family: llama, layers: 2, hidden: 16, heads: 2}\n";
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK(gw_runfile_parse(&rf, "run.yaml", text, (int64_t)sizeof text - 1, sets, 5, &dg) ==
          GW_ERR_CONFIG);
    for (size_t i = 0; i < GW_COUNT(says); i++) {
        const gw_diag *g = dg.first;
        while (g && !strstr(g->message, says[i])) g = g->next;
        CHECK_MSG(g != NULL, "nothing says '%s'", says[i]);
        CHECK(g->hint && strstr(g->hint, "write "));
    }
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

static gw_status whole_run(gw_comm *c, void *user, gw_diags *dg) {
    const run *r = user;
    gw_runfile rf;
    json_t *summary = NULL;
    runfile_of(r, &rf, dg);
    gw_train_opts o = {.out_dir = r->save, .until = STEPS, .comm = c};
    gw_status st = gw_train_run(&rf, &o, &summary, dg);
    json_decref(summary);
    gw_runfile_release(&rf);
    return st;
}

static double number(const json_t *o, const char *section, const char *key) {
    return json_number_value(json_object_get(json_object_get(o, section), key));
}

/* What a run leaves of its pipeline. How near measured and planned idle time are is a matter of the
 * machine's load: test_pipeline_pace.c (long) and bench/pipeline_bubble. Stages that take 20 ms by
 * decree idle for a part of the step, whatever else runs. */
TEST_WITHIN(a_run_leaves_its_bubble_planned_and_measured, 120) {
    char dir[300];
    snprintf(dir, sizeof dir, "%s", test_tmp_path("paced"));
    run r = schedules[1];
    r.save = dir;
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(setenv("GW_PACE", "0.02,0.02,0.02", 1) == 0);
    tiny_ranks(r.ranks, whole_run, &r);
    unsetenv("GW_PACE");
    json_error_t e;
    char path[340];
    snprintf(path, sizeof path, "%s/summary.json", dir);
    json_t *o = json_load_file(path, 0, &e), *p = json_object_get(o, "pipeline");
    CHECK_MSG(p != NULL, "%s: %s", path, e.text);
    double plan = number(p, "planned", "bubble_step"), is = number(p, "measured", "bubble_step");
    test_note("bubble/step planned %.4f, measured %.4f", plan, is);
    CHECK(plan > 0.05 && plan < 0.95 && is > 0.05 && is < 0.95);
    const json_t *rank0 = json_array_get(json_object_get(p, "by_rank"), 0);
    CHECK_EQ(json_integer_value(json_object_get(rank0, "activations_held")), 2);
    CHECK_EQ(json_integer_value(json_object_get(rank0, "arena_bytes")),
             json_integer_value(json_object_get(rank0, "planned_arena_bytes")));
    CHECK(json_is_true(json_object_get(o, "wire_as_planned")));
    json_decref(o);

    gw_arena mem = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_timeline t;
    snprintf(path, sizeof path, "%s/" GW_TIMELINE_FILE, dir);
    CHECK_OK(gw_timeline_read(&t, path, &mem, &dg), &dg);
    gw_timeline_figures f;
    gw_timeline_measure(&t, &mem, &f);
    CHECK_EQ(f.stages, 2);
    CHECK_EQ(f.micro_batches, MICRO);
    CHECK(f.bubble_step > 0 && f.bubble_step < 1 && f.step > 0.02 * 2 * MICRO);
    gw_history h;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    CHECK_OK(gw_metrics_read(path, &mem, &h, &dg), &dg);
    CHECK_EQ(h.nsteps, STEPS);
    CHECK(h.steps[STEPS - 1].stages && h.steps[STEPS - 1].bubble > 0.05);
    gw_diags_release(&dg);
    gw_arena_release(&mem);
}

/* ---- what goes wrong ---- */

/* A weight of layer 3, which the last of two ranks has. */
static gw_status bad_weight(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    runfile_of(user, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    gw_vid v = gw_exec_find(s.x, "layers.3.mlp.up.weight");
    CHECK_EQ(v == GW_NONE, gw_comm_rank(c) == 0); /* a rank holds its own stage alone */
    if (v != GW_NONE) ((float *)gw_exec_ptr(s.x, v))[3] = NAN;
    gw_hash128 before = gw_session_hash(&s);
    gw_status st = gw_session_step(&s, &t, dg);
    CHECK_EQ(st, GW_ERR_NUMERIC);
    gw_hash128 after = gw_session_hash(&s);
    CHECK(tiny_equal(before, after)); /* state is that of the step before */
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

TEST(a_bad_number_is_named_by_stage_and_micro_batch) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    run r = schedules[4];
    CHECK_EQ(gw_launch_threads(2, 20, bad_weight, &r, &dg), GW_ERR_NUMERIC);
    CHECK_EQ(dg.nerrors, 1);
    CHECK_MSG(strstr(dg.first->detail, "matmul in \"layer 3/mlp/up\"") &&
                  strstr(dg.first->detail, "micro-batch 0 of stage 1, on rank 1"),
              "%s", dg.first->detail);
    gw_diags_release(&dg);
}

/* Ranks 0 and 1 have one stage's program, 2 and 3 another's, but for a line of rank 3. */
static gw_status tell_program(gw_comm *c, void *user, gw_diags *dg) {
    static const char *const programs[] = {"a\nb\n", "a\nb\n", "a\nc\nd\n", "a\nc\ne\n"};
    (void)user;
    int me = gw_comm_rank(c);
    GW_TRY(gw_ranks_same_text_of(c, me, "program", programs[me], dg));
    GW_TRY(gw_ranks_same_text_of(c, me / 3, "program", programs[me / 2 * 2], dg) == GW_ERR_CONFIG
               ? GW_OK
               : GW_ERR_FORMAT);
    return gw_ranks_same_text_of(c, me / 2, "program", programs[me], dg);
}

TEST(programs_are_compared_within_a_stage) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_EQ(gw_launch_threads(4, 20, tell_program, NULL, &dg), GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, 2);
    CHECK_STR(dg.first->message,
              "rank 2 has another program than rank 0 (1 of 3 ranks differ from it)");
    CHECK_STR(dg.last->message,
              "rank 3 has another program than rank 2 (1 of 2 ranks differ from it)");
    CHECK(strstr(dg.last->detail, "line 3") && strstr(dg.last->detail, "rank 2: d") &&
          strstr(dg.last->detail, "rank 3: e"));
    gw_diags_release(&dg);
}

/* ---- the step loop ---- */

static gw_status ten_steps(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    int64_t grown;
    runfile_of(user, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    GW_TRY(tiny_ten_steps(&s, &grown, dg));
    CHECK_EQ(grown, 0);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

TEST_WITHIN(a_step_in_stages_allocates_nothing_of_ours, 120) {
    run r = schedules[4];
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    tiny_ranks(2, ten_steps, &r);
}

// SPDX-License-Identifier: Apache-2.0
// Training cut in every way is the function of one rank: initial state, losses, norms, validation;
// and what one layout saves another goes on from, every bit of it.
//
// Heads, feed-forward columns, vocabulary and tokens of a sequence divide by nothing here. Ranks
// are threads.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h" /* gw_log_set_level */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"
#include "train/session.h"

enum { STEPS = 3, BATCH = 4, MOST_SETS = 8 };

typedef struct run {
    const char *name;
    int ranks, dp;
    const char *sets[MOST_SETS]; /* of the layout, NULL-ended */
    bool gpt2;
    int steps;
    const char *resume, *save; /* run directories, or NULL */
    double loss[STEPS], norm[STEPS], valid;
    int64_t labels, valid_labels, tokens;
    gw_hash128 first, last; /* state before the first step and after the last */
} run;

static const run layouts[] = {
    {.name = "tp 2", .ranks = 2, .dp = 1, .sets = {"layout.tp=2"}},
    {.name = "tp 2 without sequence parallelism",
     .ranks = 2,
     .dp = 1,
     .sets = {"layout.tp=2", "layout.sequence_parallel=false"}},
    {.name = "tp 3, zero 2", .ranks = 6, .dp = 2, .sets = {"layout.tp=3", "layout.zero=2"}},
    {.name = "cp 2", .ranks = 2, .dp = 1, .sets = {"layout.cp=2"}},
    {.name = "cp 3 by gathering, zero 3",
     .ranks = 3,
     .dp = 1,
     .sets = {"layout.cp=3", "layout.cp_mode=allgather", "layout.zero=3"}},
    {.name = "cp 3 by exchange",
     .ranks = 3,
     .dp = 1,
     .sets = {"layout.cp=3", "layout.cp_mode=ulysses"}},
    {.name = "dp 2, cp 2, tp 2, zero 1",
     .ranks = 8,
     .dp = 2,
     .sets = {"layout.cp=2", "layout.tp=2", "layout.zero=1"}},
};

static void runfile_of(const run *r, gw_runfile *rf, gw_diags *dg) {
    char micro[40];
    const char *sets[MOST_SETS + 8] = {"train.seq_len=23",   "model.hidden=36",
                                       "model.heads=3",      "model.ffn=35",
                                       "train.accumulate=1", "train.valid_batches=0"};
    int n = 6;
    snprintf(micro, sizeof micro, "train.micro_batch=%d", BATCH / r->dp);
    sets[n++] = micro;
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

/* Sums are taken in another order: 1e-5, relative, is what float32 leaves. */
static void same_function(const run *a, const run *b) {
    CHECK(tiny_equal(a->first, b->first)); /* initial weights do not know the layout */
    for (int i = 0; i < b->steps; i++) {
        test_note("step %d: loss %.9g and %.9g, norm %.9g and %.9g", i, a->loss[i], b->loss[i],
                  a->norm[i], b->norm[i]);
        CHECK_NEAR(a->loss[i], b->loss[i], 1e-5 * fabs(b->loss[i]));
        CHECK_NEAR(a->norm[i], b->norm[i], 1e-4 * fabs(b->norm[i]));
    }
    CHECK_EQ(a->labels, b->labels); /* padding and copies count nowhere */
    CHECK_EQ(a->tokens, b->tokens);
    CHECK_EQ(a->valid_labels, b->valid_labels);
    CHECK_NEAR(a->valid, b->valid, 1e-5 * fabs(b->valid));
}

static run one_rank_run(bool gpt2) {
    return (run){.name = "one rank", .ranks = 1, .dp = 1, .gpt2 = gpt2, .steps = STEPS};
}

TEST_WITHIN(every_layout_trains_the_function_of_one_rank, 240) {
    run one = one_rank_run(false);
    go(&one);
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        run many = layouts[i];
        many.steps = STEPS;
        go(&many);
        same_function(&many, &one);
    }
}

TEST_WITHIN(dropout_does_not_know_the_layout, 240) {
    run one = one_rank_run(true);
    go(&one);
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        run many = layouts[i];
        many.gpt2 = true;
        many.steps = STEPS;
        go(&many);
        same_function(&many, &one);
    }
}

/* What is loaded is what was saved, whatever the two layouts; and the run goes on as it would. */
TEST_WITHIN(any_layout_goes_on_from_any_other, 240) {
    char dirs[GW_COUNT(layouts) + 1][300];
    run saved[GW_COUNT(layouts) + 1];
    for (size_t i = 0; i <= GW_COUNT(layouts); i++) {
        char name[16];
        snprintf(name, sizeof name, "cut-%d", (int)i);
        snprintf(dirs[i], sizeof dirs[i], "%s", test_tmp_path(name));
        saved[i] = i < GW_COUNT(layouts) ? layouts[i] : one_rank_run(false);
        saved[i].steps = 1;
        saved[i].save = dirs[i];
        go(&saved[i]);
    }
    for (size_t i = 0; i <= GW_COUNT(layouts); i++)
        for (size_t k = i % 2; k <= GW_COUNT(layouts); k += 2) {
            run next = k < GW_COUNT(layouts) ? layouts[k] : one_rank_run(false);
            next.steps = 0;
            next.resume = dirs[i];
            go(&next);
            CHECK_MSG(tiny_equal(next.first, saved[i].last), "%s from %s", next.name,
                      saved[i].name);
        }
}

// SPDX-License-Identifier: Apache-2.0
// A run that goes on with more or fewer ranks keeps its global batch, and takes each sample once.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h" /* gw_log_set_level */
#include "harness.h"
#include "tiny.h"
#include "train/elastic.h"
#include "train/ranks.h"
#include "train/session.h"

static const char shape[] = "model: {family: llama, layers: 2, hidden: 16, heads: 2, ffn: 32}\n";

/* ---- what is loaded ---- */

typedef struct loads {
    const char *train, *layout, *set; /* sections as YAML; one --set, or NULL */
    int ranks;
    gw_elastic_batch was;
    int64_t micro, accumulate, global; /* what it must be; 0: refused */
    const char *says;                  /* of the note or the error; NULL: no note */
} loads;

/* By hand: global = micro x accumulate x dp. */
static const loads cases[] = {
    /* As it stands. */
    {"{micro_batch: 2}", "{}", NULL, 4, {8, 2, 4}, 2, 1, 8, NULL},
    /* Fewer and more ranks, accumulation given or not. */
    {"{micro_batch: 2}", "{}", NULL, 2, {8, 2, 4}, 2, 2, 8, "train.accumulate is 2 with 2 data"},
    {"{micro_batch: 2, accumulate: 1}",
     "{}",
     NULL,
     1,
     {8, 2, 4},
     2,
     4,
     8,
     "keeps its global batch"},
    {"{micro_batch: 1, accumulate: 4}", "{}", NULL, 8, {8, 1, 2}, 1, 1, 8, "is 1 with 8"},
    /* A run file as the run directory has it: everything given, and dp free. */
    {"{micro_batch: 2, accumulate: 1, global_batch: 8}",
     "{dp: 4}",
     "layout.dp=auto",
     2,
     {8, 2, 4},
     2,
     2,
     8,
     "is 2 with 2"},
    /* Only dp takes part in it. */
    {"{micro_batch: 2, accumulate: 2}", "{tp: 2}", NULL, 4, {16, 2, 4}, 2, 4, 16, "with 2 data"},
    /* The micro-batch of the run stays where none is given. */
    {"{}", "{}", NULL, 2, {16, 4, 4}, 4, 2, 16, "is 2 with 2"},
    /* Another micro-batch is taken at its word. */
    {"{micro_batch: 1, accumulate: 1}", "{}", NULL, 4, {8, 2, 4}, 1, 2, 8, "is 2 with 4"},
    /* Nothing makes it up: the nearest that do, as ranks too. */
    {"{micro_batch: 2}", "{}", NULL, 3, {8, 2, 4}, 0, 0, 0, "2 or 4 data-parallel ranks do"},
    {"{micro_batch: 2}", "{tp: 2}", NULL, 6, {8, 2, 4}, 0, 0, 0, "--ranks 4 or 8"},
    {"{micro_batch: 2}",
     "{}",
     NULL,
     16,
     {8, 2, 4},
     0,
     0,
     0,
     "4 data-parallel ranks do (--ranks 4)"},
    {"{micro_batch: 3}", "{}", NULL, 2, {8, 2, 4}, 0, 0, 0, "set train.global_batch anew"},
    /* What the layout asks besides counts for the nearest: two replicas halve nothing odd. */
    {"{micro_batch: 1}", "{zero: 1, dp_replicate: 2}", NULL, 8, {12, 1, 4}, 0, 0, 0, "6 or 12"},
    /* Set anew: the new one holds, and accumulation follows it. */
    {"{micro_batch: 2}", "{}", "train.global_batch=16", 4, {8, 2, 4}, 2, 2, 16, NULL},
    {"{micro_batch: 2, accumulate: 1}",
     "{}",
     "train.global_batch=12",
     3,
     {8, 2, 4},
     2,
     2,
     12,
     "for the new global batch of 12"},
    /* Another accumulation and nothing else: whether that is meant is asked on resuming. */
    {"{micro_batch: 2, accumulate: 3}", "{}", NULL, 4, {8, 2, 4}, 2, 3, 24, NULL},
    /* No checkpoint: the run file alone. */
    {"{micro_batch: 2, accumulate: 3}", "{}", NULL, 2, {0, 0, 0}, 2, 3, 12, NULL},
    /* Other faults are those of the run file. */
    {"{micro_batch: 2, nonsense: 3}", "{}", NULL, 2, {8, 2, 4}, 0, 0, 0, "nonsense"},
    {"{micro_batch: 2}", "{dp: 4}", NULL, 2, {8, 2, 4}, 0, 0, 0, "layout.dp is 4, and there are 2"},
};

static const char *text_of(gw_arena *a, const char *train, const char *layout) {
    return gw_arena_printf(a, "%strain: %s\nlayout: %s\n", shape, train, layout);
}

static gw_elastic_source source_of(const char *text, const char *const *sets, int nsets) {
    return (gw_elastic_source){.name = "run.yaml",
                               .text = text,
                               .len = (int64_t)strlen(text),
                               .sets = sets,
                               .nsets = nsets};
}

/* All that is said of the first error. */
static const char *said(const gw_diags *dg, gw_arena *a) {
    if (!dg->first) return "";
    return gw_arena_printf(a, "%s %s", dg->first->message, dg->first->hint ? dg->first->hint : "");
}

TEST(accumulation_is_what_the_global_batch_leaves) {
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        const loads *c = &cases[i];
        gw_arena mem = {0};
        gw_runfile rf;
        gw_diags dg;
        gw_diags_init(&dg);
        const char *note = NULL;
        gw_elastic_source src =
            source_of(text_of(&mem, c->train, c->layout), &c->set, c->set != NULL);
        gw_status st = gw_elastic_load(&src, c->ranks, c->was, &rf, &note, &dg);
        test_note("case %d: %s, %d ranks: %s %s", (int)i, c->train, c->ranks, said(&dg, &mem),
                  note ? note : "");
        if (c->global == 0) {
            CHECK_EQ(st, GW_ERR_CONFIG);
            CHECK(strstr(said(&dg, &mem), c->says));
        } else {
            CHECK_OK(st, &dg);
            CHECK_EQ(rf.train.micro_batch, c->micro);
            CHECK_EQ(rf.train.accumulate, c->accumulate);
            CHECK_EQ(rf.train.global_batch, c->global);
            CHECK(c->says ? note && strstr(note, c->says) : !note);
        }
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_arena_release(&mem);
    }
}

TEST(fewer_ranks_are_those_that_keep_the_batch) {
    static const struct {
        const char *train, *layout;
        int ranks, fewer;
        gw_elastic_batch was;
    } some[] = {
        {"{micro_batch: 1}", "{}", 8, 4, {8, 1, 8}},      /* 7, 6 and 5 do not divide 8 */
        {"{micro_batch: 1}", "{}", 8, 6, {24, 1, 8}},     /* 24 = 6 x 4 */
        {"{micro_batch: 2}", "{dp: 4}", 4, 2, {8, 2, 4}}, /* a given dp gives way */
        {"{micro_batch: 2}", "{tp: 2}", 8, 4, {8, 2, 4}}, /* three pairs do not make up 4 */
        {"{micro_batch: 1}", "{tp: 4}", 4, 0, {8, 1, 1}}, /* tp takes them all */
        {"{micro_batch: 1}", "{pp: 2, schedule: 1f1b}", 4, 2, {8, 1, 2}},
        {"{micro_batch: 1}", "{zero: 1, dp_replicate: 2}", 6, 4, {12, 1, 6}},
        {"{micro_batch: 1}", "{}", 1, 0, {8, 1, 1}},
        {"{micro_batch: 2, accumulate: 3}", "{}", 4, 3, {0, 0, 0}}, /* 24 of the run file itself */
    };
    for (size_t i = 0; i < GW_COUNT(some); i++) {
        gw_arena mem = {0};
        gw_elastic_source src = source_of(text_of(&mem, some[i].train, some[i].layout), NULL, 0);
        test_note("%s %s, %d ranks", some[i].train, some[i].layout, some[i].ranks);
        CHECK_EQ(gw_elastic_fewer(&src, some[i].ranks, some[i].was), some[i].fewer);
        gw_arena_release(&mem);
    }
}

/* ---- a run of changing ranks ---- */

enum { SPANS = 4, EACH = 2, GLOBAL = 8 };

typedef struct span {
    int ranks, from; /* steps done before */
    const char *text, *dir;
    bool resume;
    double *loss;
    int64_t next_sample, tokens;
} span;

static gw_status take_span(gw_comm *c, void *user, gw_diags *dg) {
    span *p = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    const char *note = NULL;
    gw_elastic_source src = source_of(p->text, NULL, 0);
    gw_elastic_batch was = {0};
    int64_t step = -1;
    if (p->resume) was = gw_elastic_look(p->dir, &step);
    if (p->resume) CHECK_EQ(step, p->from);
    CHECK_OK(gw_elastic_load(&src, p->ranks, was, &rf, &note, dg), dg);
    CHECK_EQ(rf.train.global_batch, GLOBAL);
    GW_TRY(gw_session_open(&s, &rf, p->resume ? p->dir : NULL, c, dg));
    CHECK_EQ(s.step, p->from);
    for (int i = 0; i < EACH; i++) {
        GW_TRY(gw_session_step(&s, &t, dg));
        if (gw_ranks_me(c) == 0) p->loss[p->from + i] = t.loss;
    }
    GW_TRY(gw_session_save(&s, p->dir, dg));
    if (gw_ranks_me(c) == 0) {
        p->next_sample = s.next_sample;
        p->tokens = s.tokens;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

/* Ranks before and after: 4, 2, 1 and 8 of them, and 4 all along. */
TEST_WITHIN(a_run_of_changing_ranks_is_the_run_that_never_changed, 120) {
    static const int changing[SPANS] = {4, 2, 1, 8}, same[SPANS] = {4, 4, 4, 4};
    double loss[2][SPANS * EACH] = {{0}};
    span p[2];
    gw_arena mem = {0};
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    const char *text = gw_arena_printf(&mem,
                                       "%sdata: {train: %s, tokenizer: bytes}\n"
                                       "train: {steps: 8, seq_len: 24, micro_batch: 1, accumulate: "
                                       "2, threads: 1}\noptimizer: {lr: 0.005}\n",
                                       shape, test_tmp_path("train"));
    for (int k = 0; k < 2; k++) {
        const char *dir = gw_arena_strdup(&mem, test_tmp_path(k ? "same" : "changing"));
        for (int i = 0; i < SPANS; i++) {
            p[k] = (span){.ranks = (k ? same : changing)[i],
                          .from = i * EACH,
                          .text = text,
                          .dir = dir,
                          .resume = i > 0,
                          .loss = loss[k]};
            tiny_ranks(p[k].ranks, take_span, &p[k]);
        }
    }
    CHECK_EQ(p[0].next_sample, SPANS * EACH * GLOBAL);
    CHECK_EQ(p[0].next_sample, p[1].next_sample);
    CHECK_EQ(p[0].tokens, p[1].tokens);
    /* Sums in another order: 1e-5, relative, is what float32 leaves; another sample moves a loss of
     * this run by a hundredth. */
    for (int i = 0; i < SPANS * EACH; i++) {
        test_note("step %d: %.9g and %.9g", i + 1, loss[0][i], loss[1][i]);
        CHECK_NEAR(loss[0][i], loss[1][i], 1e-5 * loss[1][i]);
    }
    gw_arena_release(&mem);
}

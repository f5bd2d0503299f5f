// SPDX-License-Identifier: Apache-2.0
// Steps of a pipeline that wait for nobody (optimizer.norm deferred) are those that wait, to the
// bit: losses, norms and state, whether nothing clips, everything, or now this step and now that.
// What is not finite is found as ever, and leaves state as it was. And they do not wait: the first
// rank is through with a step while the last still works on it. Ranks are threads.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"  /* gw_clock_ns */
#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "run/exec_channel.h" /* gw_exec_sends_traffic */
#include "tiny.h"
#include "train/ranks.h" /* gw_ranks_me */
#include "train/session.h"

enum { STEPS = 9, MOST_SETS = 12 };

typedef struct run {
    const char *name;
    int ranks;
    const char *sets[MOST_SETS]; /* NULL-ended */
    double clip;
    bool ahead;
    double loss[STEPS + 1], norm[STEPS + 1]; /* by step, from 1 */
    int late;                                /* calls that came back without results */
    int64_t tokens, sent, planned;
    gw_hash128 state;
    int64_t done_ns[8][STEPS + 1]; /* when a rank was through with a step */
} run;

static const run runs[] = {
    {.name = "zb-h1, untied",
     .ranks = 2,
     .sets = {"layout.pp=2", "layout.schedule=zb-h1", "model.tie_embeddings=false"}},
    {.name = "1f1b on 4, tied", .ranks = 4, .sets = {"layout.pp=4"}},
    {.name = "zbv, beside replicas with sharded states",
     .ranks = 4,
     .sets = {"layout.pp=2", "layout.schedule=zbv", "layout.zero=1"}},
    {.name = "interleaved, tensor parallel, muon",
     .ranks = 4,
     .sets = {"layout.pp=2", "layout.tp=2", "layout.virtual_stages=2", "optimizer.name=muon"}},
    {.name = "experts",
     .ranks = 2,
     .sets = {"layout.pp=2", "model.family=mixtral", "model.moe.experts=4", "model.moe.top=2",
              "model.moe.ffn=24"}},
};

static void runfile_of(const run *r, gw_runfile *rf, gw_diags *dg) {
    char clip[48];
    const char *sets[MOST_SETS + 10] = {"train.seq_len=16",
                                        "model.layers=4",
                                        "train.accumulate=4",
                                        "train.micro_batch=1",
                                        "train.steps=100",
                                        "optimizer.norm=deferred",
                                        clip};
    int n = 7;
    snprintf(clip, sizeof clip, "optimizer.clip_norm=%.9g", r->clip);
    for (int i = 0; r->sets[i]; i++) sets[n++] = r->sets[i];
    tiny_runfile(rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, r->ranks, dg), dg);
}

static void note(run *r, const gw_session_step_result *t, bool writes) {
    if (!t->known || !writes) return;
    CHECK(t->step >= 1 && t->step <= STEPS);
    r->loss[t->step] = t->loss;
    r->norm[t->step] = t->norm;
}

static gw_status take_steps(gw_session *s, run *r, gw_diags *dg) {
    gw_session_step_result t;
    int me = gw_ranks_me(s->comm);
    while (s->step < STEPS) {
        GW_TRY(gw_session_step(s, &t, dg));
        CHECK(!t.stopped && !t.skipped);
        r->done_ns[me][s->step] = gw_clock_ns();
        note(r, &t, me == 0);
        if (me == 0) r->late += !t.known;
        if (s->step < STEPS) continue;
        GW_TRY(gw_session_settle(s, &t, dg));
        note(r, &t, me == 0);
    }
    return GW_OK;
}

static gw_status one_rank(gw_comm *c, void *user, gw_diags *dg) {
    run *r = user;
    gw_runfile rf;
    gw_session s;
    runfile_of(r, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    if (r->ahead) GW_TRY(gw_session_go_ahead(&s, dg));
    GW_TRY(take_steps(&s, r, dg));
    CHECK_EQ(gw_session_planned_bytes(&s), gw_session_arena_bytes(&s));
    gw_hash128 state = gw_session_hash(&s);
    if (gw_ranks_me(c) == 0) {
        r->state = state;
        r->tokens = s.tokens;
        r->sent = s.sent_on.payload;
        r->planned = s.steps_run * gw_exec_sends_traffic(gw_exec_graph(s.x), 0).payload;
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static run go(const run *like, double clip, bool ahead) {
    run r = *like;
    r.clip = clip;
    r.ahead = ahead;
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    tiny_ranks(r.ranks, one_rank, &r);
    return r;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A bound that some of the steps keep and some do not. */
static double middle_norm(const run *r) {
    double norms[STEPS];
    memcpy(norms, r->norm + 1, sizeof norms);
    qsort(norms, STEPS, sizeof *norms, compare);
    return norms[STEPS / 2];
}

static void same(const run *like, double clip) {
    run whole = go(like, clip, false), ahead = go(like, clip, true);
    test_note("%s, clip %g: %d of %d came late", like->name, clip, ahead.late, STEPS);
    for (int i = 1; i <= STEPS; i++) {
        CHECK_MSG(whole.loss[i] == ahead.loss[i] && whole.norm[i] == ahead.norm[i],
                  "step %d: loss %.17g and %.17g, norm %.17g and %.17g", i, whole.loss[i],
                  ahead.loss[i], whole.norm[i], ahead.norm[i]);
        CHECK(isfinite(whole.loss[i]) && whole.norm[i] > 0);
    }
    CHECK_MSG(tiny_equal(whole.state, ahead.state), "states differ");
    CHECK_EQ(whole.tokens, ahead.tokens);
    CHECK_EQ(whole.late, 0);
    CHECK_EQ(whole.sent, whole.planned);
    if (clip != 0) return;
    CHECK_EQ(ahead.late,
             1); /* the third; from then on each call has the results of the one before */
    CHECK_EQ(ahead.sent, ahead.planned);
}

TEST_WITHIN(a_step_ahead_is_the_step_that_waits, 240) {
    for (size_t i = 0; i < GW_COUNT(runs); i++) {
        run free_of_clipping = go(&runs[i], 0, false);
        same(&runs[i], 0);
        same(&runs[i], middle_norm(&free_of_clipping));
        same(&runs[i], 1e-3);
    }
}

/* A weight of the last rank becomes infinite behind the back of steps that were all right. */
static gw_status spoil(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    runfile_of(user, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    GW_TRY(gw_session_go_ahead(&s, dg));
    for (int i = 0; i < 5; i++) GW_TRY(gw_session_step(&s, &t, dg));
    GW_TRY(gw_session_settle(&s, &t, dg));
    gw_vid v = gw_exec_find(s.x, "layers.3.mlp.up.weight");
    if (v != GW_NONE) ((float *)gw_exec_ptr(s.x, v))[3] = INFINITY;
    gw_hash128 before = gw_session_hash(&s);
    GW_TRY(gw_session_step(&s, &t, dg)); /* nobody knows yet */
    CHECK(!t.known && s.step == 6);
    gw_status st = gw_session_step(&s, &t, dg);
    CHECK(tiny_equal(before, gw_session_hash(&s)));
    CHECK_EQ(s.step, 5);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return st;
}

TEST(a_bad_number_is_found_a_step_later) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    run r = runs[0];
    CHECK_EQ(gw_launch_threads(2, 20, spoil, &r, &dg), GW_ERR_NUMERIC);
    CHECK_EQ(dg.nerrors, 1);
    CHECK_MSG(strstr(dg.first->message, "step 6 is not finite") &&
                  strstr(dg.first->detail, "micro-batch 0 of stage 1, on rank 1"),
              "%s\n%s", dg.first->message, dg.first->detail);
    gw_diags_release(&dg);
}

/* Weight gradients of the last stage are nobody's business: while rank 1 sleeps in them, rank 0 is
 * through. A busy machine may spoil a step, not all of them. */
TEST_WITHIN(nobody_waits_for_the_last_rank, 120) {
    CHECK(setenv("GW_PACE", "0,0,0;0,0,0.05", 1) == 0);
    run r = go(&runs[0], 0, true);
    CHECK(unsetenv("GW_PACE") == 0);
    double most = 0;
    for (int i = 4; i < STEPS; i++)
        most = fmax(most, 1e-9 * (double)(r.done_ns[1][i] - r.done_ns[0][i]));
    test_note("rank 0 is through %.0f ms before rank 1", 1e3 * most);
    CHECK_MSG(most > 0.04, "%.3f s", most);
}

static gw_status steady(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    int64_t grown;
    runfile_of(user, &rf, dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    GW_TRY(gw_session_go_ahead(&s, dg));
    GW_TRY(tiny_ten_steps(&s, &grown, dg));
    CHECK_EQ(grown, 0);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

TEST_WITHIN(a_step_ahead_allocates_nothing_of_ours, 120) {
    run r = runs[0];
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    tiny_ranks(2, steady, &r);
}

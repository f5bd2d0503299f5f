// SPDX-License-Identifier: Apache-2.0
// What idles is what the clock says: stages are told how long F, I and W last, the ranks of a real
// run sleep that long, and the idle time by computing time, the longest span of a rank and the step
// that their actions' clocks show are those that src/sched derives from the same lists and times,
// within 5 %.
//
// Beside sleeping, a run has messages that wake a rank up (a tenth of a millisecond each), and
// those that follow one another from the first stage to the last and back add up. So the pace is
// such that the derived idle time of a rank is some tens of milliseconds for each rank. Other
// programs only make a step later, so a case has passed when one of its steps agrees. A machine
// that is busy enough lets none agree: so that belongs to the long tests (and to
// bench/pipeline_bubble). The short ones check what no load can spoil: no step is over before the
// derived one, whatever its ranks do side by side, and the actions are those of the list.
//
// Ranks are threads.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"  /* gw_file_write_atomic */
#include "base/log.h" /* gw_log_set_level */
#include "harness.h"
#include "plan/timeline.h" /* gw_timeline_measure */
#include "sched/sched.h"   /* gw_sched_time */
#include "tiny.h"
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* gw_session_step */

enum { MOST_RANKS = 4, MOST_STEPS = 20, SHORT_STEPS = 2 };
#define BOUND         0.05
#define IDLE_S_A_RANK 0.03 /* derived, for each rank of the pipeline */
#define LEAST_S       0.01 /* of a stage's F; the work of the tiny model takes less */

typedef struct job {
    const char *schedule;
    int virtual, ranks, micro;
    const double *alike; /* F, I, W of each stage, in units of the pace; NULL: 1 */
    char path[300];
    gw_schedule made;
    gw_sched_costs costs;
    gw_sched_times want;
    gw_optimes_action *acts[MOST_RANKS]; /* of the latest step */
    bool exact; /* a step must agree; otherwise none may be shorter than derived */
    bool agrees, shorter;
    int steps;
    gw_arena mem;
} job;

/* ------------------------------------------------------------------ derived */

/* Relative times of the stages, so scaled that the derived idle time is what it shall be. */
static void set_pace(job *j) {
    int n = j->made.stages;
    double *x = gw_arena_new(&j->mem, double, 3 * n), idle = 0;
    gw_str pace = {0};
    for (int i = 0; i < 3 * n; i++) x[i] = j->alike ? j->alike[i % n] : 1;
    j->costs = (gw_sched_costs){.forward = x, .input = x + n, .weight = x + 2 * n, .barrier = true};
    gw_sched_time(&j->made, &j->costs, 2, &j->mem, &j->want);
    for (int r = 0; r < j->ranks; r++) idle += (j->want.step - j->want.busy[r]) / j->ranks;
    double unit = fmax(IDLE_S_A_RANK * j->ranks / idle, LEAST_S);
    for (int i = 0; i < 3 * n; i++) x[i] *= unit;
    gw_sched_time(&j->made, &j->costs, 2, &j->mem, &j->want);
    for (int i = 0; i < n; i++)
        gw_str_printf(&pace, "%s%.9f,%.9f,%.9f", i ? ";" : "", x[i], x[n + i], x[2 * n + i]);
    CHECK(setenv("GW_PACE", gw_str_c(&pace), 1) == 0);
    gw_str_release(&pace);
}

static void make(job *j) {
    gw_str text = {0};
    gw_diags dg;
    gw_sched_request r = {
        .ranks = j->ranks, .virtual_stages = j->virtual, .micro_batches = j->micro};
    gw_diags_init(&dg);
    CHECK_OK(gw_schedule_make(j->schedule, &r, &j->mem, &j->made, &dg), &dg);
    gw_schedule_print(&j->made, &text);
    snprintf(j->path, sizeof j->path, "%s", test_tmp_path("schedule.txt"));
    CHECK_OK(gw_file_write_atomic(j->path, gw_str_c(&text), (int64_t)text.len, &dg), &dg);
    gw_str_release(&text);
    gw_diags_release(&dg);
    for (int i = 0; i < j->ranks; i++)
        j->acts[i] = gw_arena_new(&j->mem, gw_optimes_action, j->made.lists[i].n);
    set_pace(j);
}

/* ------------------------------------------------------------------ measured */

static void take_actions(job *j, const gw_session *s) {
    int me = gw_ranks_me(s->comm);
    int64_t n = j->made.lists[me].n, kept = 0;
    gw_optimes_action a;
    CHECK_EQ(gw_exec_graph(s->x)->actions.count, n); /* it obeys the list that was made */
    for (int64_t i = 0; gw_optimes_action_at(s->times, i, &a); i++) kept++;
    for (int64_t i = 0; i < n; i++) {
        CHECK(gw_optimes_action_at(s->times, kept - n + i, &j->acts[me][i]));
        gw_action is = gw_exec_graph(s->x)->actions.items[i], due = j->made.lists[me].items[i];
        CHECK(is.act == due.act && is.stage == due.stage && is.micro == due.micro);
    }
}

static bool near(const char *what, double is, double want) {
    test_note("    %s: derived %.4f, measured %.4f, %+.1f %%", what, want, is,
              100 * (is / want - 1));
    return fabs(is - want) <= BOUND * want;
}

/* One step of all ranks against the clock; rank 0 does it. */
static bool compare(job *j, double reported) {
    gw_arena mem = {0};
    gw_timeline t;
    gw_timeline_figures f;
    gw_timeline_begin(&t, j->schedule, j->ranks, "s", &mem);
    for (int r = 0; r < j->ranks; r++)
        for (int64_t i = 0; i < j->made.lists[r].n; i++) {
            const gw_optimes_action *a = &j->acts[r][i];
            gw_timeline_add(&t, r, j->made.lists[r].items[i], 1e-9 * (double)a->start_ns,
                            1e-9 * (double)(a->start_ns + a->ns));
        }
    gw_timeline_measure(&t, &mem, &f);
    bool ok = near("idle / computing time", f.bubble_compute, j->want.bubble_compute);
    ok &= near("bubble/step, as reported", reported, j->want.bubble_step);
    ok &= near("longest span, s", f.longest_span, j->want.longest_span);
    ok &= near("step, s", f.step, j->want.step);
    /* Sleeps last at least as long as they are told; clocks are read around them. */
    j->shorter |= f.step < 0.999 * j->want.step || f.longest_span < 0.999 * j->want.longest_span;
    gw_arena_release(&mem);
    return ok;
}

static gw_status rank_of(gw_comm *c, void *user, gw_diags *dg) {
    static const char *const model[] = {"model.layers=8", "model.tie_embeddings=false",
                                        "train.seq_len=16", "train.micro_batch=1",
                                        "train.valid_batches=0"};
    job *j = user;
    gw_runfile rf;
    gw_session s;
    gw_session_step_result t;
    char sets[4][360];
    const char *all[16] = {0};
    int n = 0;
    for (; n < (int)GW_COUNT(model); n++) all[n] = model[n];
    snprintf(sets[0], sizeof sets[0], "layout.pp=%d", j->ranks);
    snprintf(sets[1], sizeof sets[1], "layout.virtual_stages=%d", j->virtual);
    snprintf(sets[2], sizeof sets[2], "layout.schedule=file:%s", j->path);
    snprintf(sets[3], sizeof sets[3], "train.accumulate=%d", j->micro);
    for (int i = 0; i < 4; i++) all[n++] = sets[i];
    tiny_runfile(&rf, false, all);
    CHECK_OK(gw_runfile_set_ranks(&rf, j->ranks, dg), dg);
    GW_TRY(gw_session_open(&s, &rf, NULL, c, dg));
    for (int64_t done = 0; !done && j->steps < MOST_STEPS;) {
        GW_TRY(gw_session_step(&s, &t, dg));
        take_actions(j, &s);
        GW_TRY(gw_comm_barrier(c, "a step", dg));
        if (gw_comm_rank(c) == 0) {
            j->steps++;
            j->agrees = compare(j, t.bubble);
            done = j->exact ? j->agrees : j->steps == SHORT_STEPS;
        }
        GW_TRY(gw_comm_max_i64(c, &done, 1, "does it agree?", dg));
    }
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void check(const char *schedule, int virtual, int ranks, int micro, const double *alike,
                  bool exact) {
    job *j = calloc(1, sizeof *j);
    *j = (job){.schedule = schedule,
               .virtual = virtual,
               .ranks = ranks,
               .micro = micro,
               .alike = alike,
               .exact = exact};
    make(j);
    test_note("%s, %d ranks, %d micro-batches, F of stage 0 lasts %.1f ms", schedule, ranks, micro,
              1e3 * j->costs.forward[0]);
    tiny_ranks(ranks, rank_of, j);
    CHECK_MSG(!j->shorter, "%s, %d ranks, %d micro-batches: a step is over before the derived one",
              schedule, ranks, micro);
    CHECK_MSG(j->agrees || !exact, "%s, %d ranks, %d micro-batches: no step of %d agrees", schedule,
              ranks, micro, j->steps);
    unsetenv("GW_PACE");
    gw_arena_release(&j->mem);
    free(j);
}

typedef struct kind {
    const char *name;
    int virtual;
} kind;
static const kind kinds[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1},
                             {"zb-2p", 1}, {"zbv", 2},  {"dualpipev", 2}};

static void check_all(int ranks, int micro, bool exact) {
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        check(kinds[i].name, kinds[i].virtual, ranks, micro, NULL, exact);
}

static void begin(void) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
}

TEST_WITHIN(two_ranks_never_beat_the_clock, 240) {
    begin();
    check_all(2, 3, false);
}

TEST_WITHIN(four_ranks_never_beat_the_clock, 240) {
    begin();
    check_all(4, 4, false);
}

/* A stage that takes longer holds up those that wait for it, and nobody else. */
static void check_slow(bool exact) {
    static const double slow[] = {1, 2, 1, 1};
    begin();
    check("1f1b", 1, 4, 6, slow, exact);
    check("zb-h1", 1, 4, 6, slow, exact);
}

TEST_WITHIN(a_slow_stage_never_beats_the_clock, 240) { check_slow(false); }

TEST_LONG(a_slow_stage_delays_what_depends_on_it) { check_slow(true); }

TEST_LONG(idle_time_is_as_derived) {
    static const int shapes[][2] = {{2, 3}, {4, 4}, {2, 4}, {2, 8}, {3, 6}, {4, 8}, {4, 12}};
    begin();
    for (size_t i = 0; i < GW_COUNT(shapes); i++) check_all(shapes[i][0], shapes[i][1], true);
}

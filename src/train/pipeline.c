// SPDX-License-Identifier: Apache-2.0
// What the ranks of a pipeline were planned to do, and did.
//
// Each rank has added up how long its actions took (train/optimes.h). Here the sums of all ranks
// make the mean time of a stage's forward and backward, and the clock of src/sched says what the
// schedule makes of these: the bubble that had to be. Beside it stands the one that was. Both are
// given in both conventions: idle time as a share of the step, and as a share of the computing.
//
// Replicas of a rank (over dp, cp, tp) do the same; their times are averaged. Of the latest step
// rank 0 gets every rank's actions for a timeline, from the first of the replicas.
#include "train/pipeline.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/panic.h"   /* GW_ASSERT */
#include "base/str.h"     /* gw_fmt_seconds */
#include "base/term.h"    /* gw_table */
#include "comm/channel.h" /* gw_channel_seconds */
#include "train/ranks.h"  /* gw_ranks_add_f64 */

/* ---- planned ---- */

static void clock_of(gw_pipeline *p, const gw_sched_costs *c, gw_arena *a, bool seconds) {
    gw_sched_times t;
    gw_sched_time(p->schedule, c, p->places, a, &t);
    p->planned_step_s = seconds ? t.step : 0;
    p->planned_bubble_step = t.bubble_step;
    p->planned_bubble_compute = t.bubble_compute;
    for (int r = 0; r < p->schedule->ranks; r++) p->ranks[r].held = t.micro_held[r];
}

static double mean(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

static double formula_of(const gw_pipeline *p, const gw_sched_costs *c) {
    const gw_schedule *s = p->schedule;
    const gw_sched_kind *k = gw_sched_kind_find(s->name);
    if (!k || k->halves) return (double)NAN; /* theirs are of the longest span */
    gw_sched_request r = {.ranks = s->ranks,
                          .virtual_stages = s->stages / s->ranks,
                          .micro_batches = s->micro_batches};
    return gw_sched_formula(s->name, &r, mean(c->forward, s->stages), mean(c->input, s->stages),
                            mean(c->weight, s->stages));
}

bool gw_pipeline_plan(gw_pipeline *p, const gw_session *s, gw_arena *a) {
    *p = (gw_pipeline){.schedule = s->setup.schedule, .stages = s->report.stages};
    if (!p->schedule) return false;
    int n = p->schedule->stages, places = (int)s->rf->layout.message_places;
    GW_ASSERT(p->stages && s->report.nstages == n);
    p->places = places;
    p->barrier = s->rf->optimizer.norm == GW_RF_NORM_EXACT;
    p->ranks = gw_arena_new(a, gw_pipeline_rank, p->schedule->ranks);
    for (int r = 0; r < p->schedule->ranks; r++)
        p->ranks[r].busy_s = p->ranks[r].wait_s = p->ranks[r].send_s = p->ranks[r].window_s =
            (double)NAN;
    for (int i = 0; i < n; i++) {
        p->ranks[p->schedule->rank_of[i]].stages++;
        p->ranks[p->schedule->rank_of[i]].layers += p->stages[i].layers;
    }
    p->step_s = p->bubble_step = p->bubble_compute = (double)NAN;
    gw_sched_costs c = gw_setup_costs(p->stages, n, 1, a);
    c.barrier = p->barrier;
    clock_of(p, &c, a, false);
    p->formula = formula_of(p, &c);
    return true;
}

/* ---- measured ---- */

/* Seconds of one action of each stage, mean over ranks and steps; 0 where it was never done. */
static gw_status mean_acts(const gw_session *s, int n, double *out[GW_ACT_COUNT], gw_arena *a,
                           gw_diags *dg) {
    int64_t all = (int64_t)n * GW_ACT_COUNT;
    double *ns = gw_arena_new(a, double, 2 * all), *runs = ns + all;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < GW_ACT_COUNT; k++) {
            gw_optimes_total t = gw_optimes_act(s->times, i, (gw_act)k);
            ns[k * n + i] = (double)t.ns;
            runs[k * n + i] = (double)t.runs;
        }
    GW_TRY(gw_ranks_add_f64(s->comm, ns, 2 * all, "times of stages", dg));
    for (int64_t i = 0; i < all; i++) ns[i] = runs[i] > 0 ? ns[i] / runs[i] * 1e-9 : 0;
    for (int k = 0; k < GW_ACT_COUNT; k++) out[k] = ns + (int64_t)k * n;
    return GW_OK;
}

/* A stage's backward in halves where it was done so, else whole, as input's. */
static void take_stages(gw_pipeline *p, double *const acts[GW_ACT_COUNT]) {
    p->forward = acts[GW_ACT_F];
    p->input = acts[GW_ACT_I];
    p->weight = acts[GW_ACT_W];
    for (int i = 0; i < p->schedule->stages; i++) {
        if (acts[GW_ACT_W][i] > 0 || acts[GW_ACT_I][i] > 0) continue;
        p->input[i] = acts[GW_ACT_B][i];
    }
}

/* Sums of the ranks, which are gathered already. */
static void take_ranks(gw_pipeline *p, const gw_session *s) {
    int size = gw_ranks_count(s->comm), each = size / p->schedule->ranks;
    double busy = 0, window = 0;
    for (int r = 0; r < p->schedule->ranks; r++) {
        gw_pipeline_rank *k = &p->ranks[r];
        gw_optimes_span sum = {0};
        for (int i = r * each; i < (r + 1) * each; i++) {
            const gw_optimes_span *x = &s->ranks[i].acted;
            sum.steps += x->steps;
            sum.busy_ns += x->busy_ns;
            sum.wait_ns += x->wait_ns;
            sum.send_ns += x->send_ns;
            sum.window_ns += x->window_ns;
        }
        k->planned_arena_bytes = s->ranks[r * each].planned_arena_bytes;
        k->arena_bytes = s->ranks[r * each].arena_bytes;
        p->steps = s->ranks[0].acted.steps;
        if (sum.steps == 0) continue;
        double per = 1e-9 / (double)sum.steps;
        k->busy_s = (double)sum.busy_ns * per;
        k->wait_s = (double)sum.wait_ns * per;
        k->send_s = (double)sum.send_ns * per;
        k->window_s = (double)sum.window_ns * per;
        busy += k->busy_s / p->schedule->ranks;
        window += k->window_s / p->schedule->ranks;
    }
    p->measured = busy > 0;
    if (!p->measured) return;
    p->step_s = window;
    p->bubble_step = 1 - busy / window;
    p->bubble_compute = window / busy - 1;
}

/* What the last action took where nothing was left to wait for. */
static double least_step(const gw_session *s) {
    double least = (double)INFINITY;
    for (int r = 0; r < gw_ranks_count(s->comm); r++) {
        const gw_optimes_span *x = &s->ranks[r].acted;
        if (x->steps > 0) least = fmin(least, (double)x->step_ns * 1e-9 / (double)x->steps);
    }
    return isfinite(least) ? least : 0;
}

/* An action as ranks tell it. */
typedef struct told {
    gw_action action;
    int64_t begin_ns, end_ns;
} told;

static void pack_latest(const gw_session *s, gw_str *out) {
    const gw_graph *g = gw_exec_graph(s->x);
    bool shared = s->comm && gw_comm_machine(s->comm)->shared;
    gw_optimes_action e;
    int last = -1;
    for (int64_t i = 0; gw_optimes_action_at(s->times, i, &e); i++) last = e.step;
    for (int64_t i = 0; gw_optimes_action_at(s->times, i, &e); i++) {
        if (e.step != last) continue;
        int64_t base = shared ? 0 : gw_exec_epoch_ns(s->x); /* clocks of two hosts differ */
        told t = {.action = g->actions.items[e.action],
                  .begin_ns = e.start_ns - base,
                  .end_ns = e.start_ns - base + e.ns};
        gw_str_add_n(out, (const char *)&t, sizeof t);
    }
}

static gw_status gather_timeline(gw_pipeline *p, const gw_session *s, gw_arena *a, gw_diags *dg) {
    gw_str mine = {0};
    pack_latest(s, &mine);
    int size = gw_ranks_count(s->comm), each = size / p->schedule->ranks, me = gw_ranks_me(s->comm);
    gw_status st = GW_OK;
    int64_t base = -1;
    gw_timeline_begin(&p->timeline, p->schedule->name, p->schedule->ranks, "s", a);
    for (int r = 0; st == GW_OK && r < p->schedule->ranks; r++) {
        char *bytes = NULL;
        int64_t n = 0;
        st = gw_ranks_hear(s->comm, gw_str_c(&mine), me == r * each ? (int64_t)mine.len : 0,
                           me == 0 ? r * each : -1, &bytes, &n, "times of actions", dg);
        for (int64_t at = 0; st == GW_OK && at + (int64_t)sizeof(told) <= n;
             at += (int64_t)sizeof(told)) {
            told t;
            memcpy(&t, bytes + at, sizeof t);
            if (base < 0) base = t.begin_ns;
            gw_timeline_add(&p->timeline, r, t.action, (double)(t.begin_ns - base) * 1e-9,
                            (double)(t.end_ns - base) * 1e-9);
        }
        gw_mem_free(bytes);
    }
    gw_str_release(&mine);
    return st;
}

gw_status gw_pipeline_measure(gw_pipeline *p, const gw_session *s, gw_arena *a, gw_diags *dg) {
    double *acts[GW_ACT_COUNT];
    int n = p->schedule->stages;
    GW_ASSERT(s->comm && s->ranks);
    GW_TRY(mean_acts(s, n, acts, a, dg));
    take_stages(p, acts);
    take_ranks(p, s);
    if (p->measured) {
        double *send = gw_arena_new(a, double, n);
        for (int i = 0; i < n; i++)
            send[i] = gw_channel_seconds(&s->setup.facts.comm, p->stages[i].sent_forward);
        gw_sched_costs c = {.forward = p->forward,
                            .input = p->input,
                            .weight = p->weight,
                            .send = send,
                            .reduce = acts[GW_ACT_REDUCE],
                            .step = least_step(s),
                            .barrier = p->barrier};
        clock_of(p, &c, a, true);
        p->formula = formula_of(p, &c);
    }
    return gather_timeline(p, s, a, dg);
}

/* ---- pace ---- */

/* "a,b,c" up to ';' or the end; where it ended, or NULL. */
static const char *parse_three(const char *text, double out[3]) {
    for (int i = 0; i < 3; i++) {
        char *end = NULL;
        out[i] = strtod(text, &end);
        if (end == text || !(out[i] >= 0) || !(out[i] < 3600)) return NULL;
        if (i < 2 && *end != ',') return NULL;
        text = end + (i < 2);
    }
    return text;
}

gw_status gw_pipeline_pace(int stages, const double *out[3], gw_arena *a, gw_diags *dg) {
    const char *text = getenv("GW_PACE"), *at = text;
    double three[3] = {0}, *x = gw_arena_new(a, double, 3 * (int64_t)stages + 1);
    if (!text || !*text || stages == 0) return GW_OK;
    for (int i = 0; i < stages && at; i++) {
        if (i == 0 || *at == ';') at = parse_three(at + (i > 0), three);
        for (int k = 0; k < 3; k++) x[k * stages + i] = three[k];
    }
    if (!at || *at) {
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "usage", (gw_where){0},
                                 "GW_PACE is '%.80s', which is no pace of %d stages", text, stages);
        gw_diag_hint(dg, g,
                     "seconds of forward, input and weight gradients, stages apart by ';': "
                     "0.02,0.02,0.02;0.04,0.04,0.04");
        return GW_ERR_USAGE;
    }
    for (int k = 0; k < 3; k++) out[k] = x + (int64_t)k * stages;
    return GW_OK;
}

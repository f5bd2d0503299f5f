// SPDX-License-Identifier: Apache-2.0
// When each op ran.
//
// The executor remembers each op's latest start and duration. After every segment these are taken
// over: added to the op's total, and written into a ring that keeps the last few steps in full. A
// step has one row of events: what the host waited for, its ops before the loop, those of the loop
// once per micro-batch, those after it. Of a step with very many micro-batches the first few are
// kept, since a timeline of one looks like that of the next. All memory is reserved when the run
// begins.
//
// A pipeline's rank has a list of actions besides. Their times are kept and added up likewise; what
// an action is (of which stage, computing or waiting) says the list. The first step touches memory
// for the first time and is left out of the sums once there is a second.
#include "train/optimes.h"

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/panic.h" /* GW_ASSERT */
#include "ir/opdef.h"   /* gw_cost */
#include "pass/pass.h"  /* gw_graph_loop */

typedef struct span {
    int64_t start_ns, ns;
} span;

struct gw_optimes {
    const gw_exec *x;
    gw_oid loop_first, loop_end, nops;
    int64_t micro;           /* kept of a step */
    int64_t micro_batches;   /* of a step */
    int64_t row;             /* events of a step */
    gw_optimes_total *total; /* [nops] */
    double *flops;           /* [nops] */
    span *ring;              /* [GW_OPTIMES_STEPS][row]; the first of a row is the host's */
    span host;               /* of the step that begins */
    int64_t steps;

    int nstages; /* of actions; 0 without a pipeline */
    int64_t nactions, acted;
    gw_optimes_total *act; /* [nstages * GW_ACT_COUNT] */
    gw_optimes_span latest, all;
    span *actions; /* [GW_OPTIMES_STEPS][nactions] */
};

static void reserve_actions(gw_optimes *t, const gw_graph *g) {
    t->nactions = g->actions.count;
    for (int64_t i = 0; i < t->nactions; i++)
        t->nstages = GW_MAX(t->nstages, g->actions.items[i].stage + 1);
    t->act = gw_mem_zalloc(sizeof *t->act * (size_t)(t->nstages * GW_ACT_COUNT + 1));
    t->actions = gw_mem_zalloc(sizeof *t->actions * (size_t)(t->nactions * GW_OPTIMES_STEPS + 1));
}

gw_optimes *gw_optimes_new(const gw_exec *x, int64_t micro_batches) {
    gw_optimes *t = gw_mem_zalloc(sizeof *t);
    const gw_graph *g = gw_exec_graph(x);
    t->x = x;
    t->nops = (gw_oid)g->ops.count;
    gw_graph_loop(g, &t->loop_first, &t->loop_end);
    t->micro_batches = micro_batches;
    t->micro = GW_MIN(micro_batches, (int64_t)GW_OPTIMES_MICRO);
    int64_t loop = (int64_t)t->loop_end - t->loop_first;
    t->row = 1 + (int64_t)t->nops - loop + loop * t->micro;
    t->total = gw_mem_zalloc(sizeof *t->total * ((size_t)t->nops + 1));
    t->flops = gw_mem_zalloc(sizeof *t->flops * ((size_t)t->nops + 1));
    t->ring = gw_mem_zalloc(sizeof *t->ring * (size_t)(t->row * GW_OPTIMES_STEPS + 1));
    reserve_actions(t, g);
    for (gw_oid i = 0; i < t->nops; i++) {
        gw_cost c = {0};
        gw_op_def(g, &g->ops.items[i])->cost(g, &g->ops.items[i], &c);
        t->flops[i] = c.flops;
    }
    return t;
}

void gw_optimes_free(gw_optimes *t) {
    if (!t) return;
    gw_mem_free(t->total);
    gw_mem_free(t->flops);
    gw_mem_free(t->ring);
    gw_mem_free(t->act);
    gw_mem_free(t->actions);
    gw_mem_free(t);
}

void gw_optimes_host(gw_optimes *t, int64_t begin_ns, int64_t end_ns) {
    t->host = (span){begin_ns, end_ns - begin_ns};
}

/* Which of the kept micro-batches it is; -1: it is not kept. */
static int64_t slot_of(const gw_optimes *t, int64_t micro) {
    if (micro + 1 == t->micro_batches) return t->micro - 1;
    return micro + 1 < t->micro ? micro : -1;
}

/* Does an op of the loop run with the others of its range? One at step rate runs in the last
 * micro-batch, or, of a pipeline, where the step's own (micro < 0) run. */
static bool sits_out(const gw_optimes *t, int64_t micro, gw_oid i) {
    bool step = gw_exec_graph(t->x)->ops.items[i].rate == GW_RATE_STEP;
    if (t->nactions > 0) return step != (micro < 0);
    return step && micro + 1 < t->micro_batches;
}

static span *row_of(const gw_optimes *t) {
    return t->ring + (t->steps + GW_OPTIMES_STEPS - 1) % GW_OPTIMES_STEPS * t->row;
}

/* Op i has run; `at`: where its event stands in the row, below 0: nowhere. */
static void take(gw_optimes *t, gw_oid i, int64_t at) {
    span s = {gw_exec_op_start_ns(t->x, i), gw_exec_op_ns(t->x, i)};
    t->total[i].ns += s.ns;
    t->total[i].runs++;
    s.start_ns += gw_exec_epoch_ns(t->x);
    if (at >= 0) row_of(t)[1 + at] = s;
}

void gw_optimes_take(gw_optimes *t, gw_segment seg) {
    GW_ASSERT(seg != GW_SEG_LOOP);
    int64_t loop = (int64_t)t->loop_end - t->loop_first;
    if (seg == GW_SEG_PRE) {
        t->steps++;
        *row_of(t) = t->host;
        for (int64_t i = 1; i < t->row; i++) row_of(t)[i] = (span){0, 0};
        for (gw_oid i = 0; i < t->loop_first; i++) take(t, i, (int64_t)i);
        return;
    }
    for (gw_oid i = t->loop_end; i < t->nops; i++)
        take(t, i, (int64_t)t->loop_first + t->micro * loop + (int64_t)(i - t->loop_end));
}

void gw_optimes_ran(gw_optimes *t, int64_t micro, gw_oid first, gw_oid end) {
    int64_t loop = (int64_t)t->loop_end - t->loop_first;
    int64_t slot = slot_of(t, micro < 0 ? t->micro_batches - 1 : micro);
    for (gw_oid i = first; i < end; i++)
        if (!sits_out(t, micro, i))
            take(t, i,
                 slot < 0 ? -1
                          : (int64_t)t->loop_first + slot * loop + (int64_t)(i - t->loop_first));
}

static bool computes(gw_action a) {
    return a.act == GW_ACT_F || a.act == GW_ACT_B || a.act == GW_ACT_I || a.act == GW_ACT_W;
}

static void add_span(gw_optimes_span *to, const gw_optimes_span *s) {
    to->steps += s->steps;
    to->window_ns += s->window_ns;
    to->busy_ns += s->busy_ns;
    to->wait_ns += s->wait_ns;
    to->send_ns += s->send_ns;
    to->step_ns += s->step_ns;
}

void gw_optimes_acted(gw_optimes *t) {
    const gw_action *list = gw_exec_graph(t->x)->actions.items;
    span *row = t->actions + t->acted % GW_OPTIMES_STEPS * t->nactions;
    int64_t first = INT64_MAX, last = 0;
    gw_optimes_span s = {.steps = 1};
    if (t->nactions == 0) return;
    if (t->acted == 1) { /* the first step leaves the sums */
        for (int64_t i = 0; i < (int64_t)t->nstages * GW_ACT_COUNT; i++)
            t->act[i] = (gw_optimes_total){0, 0};
        t->all = (gw_optimes_span){0};
    }
    for (int64_t i = 0; i < t->nactions; i++) {
        int64_t begin, end;
        gw_exec_action_ns(t->x, i, &begin, &end);
        gw_action a = list[i];
        if (a.act == GW_ACT_STEP) end = gw_clock_ns() - gw_exec_epoch_ns(t->x);
        bool waits = a.act == GW_ACT_RECV_F || a.act == GW_ACT_RECV_B;
        bool sends = a.act == GW_ACT_SEND_F || a.act == GW_ACT_SEND_B;
        row[i] = (span){begin + gw_exec_epoch_ns(t->x), end - begin};
        first = GW_MIN(first, begin);
        last = GW_MAX(last, end);
        s.busy_ns += computes(a) ? end - begin : 0;
        s.wait_ns += waits ? end - begin : 0;
        s.send_ns += sends ? end - begin : 0;
        s.step_ns += a.act == GW_ACT_STEP ? end - begin : 0;
        if (a.stage < 0) continue;
        gw_optimes_total *sum = &t->act[a.stage * GW_ACT_COUNT + a.act];
        sum->ns += end - begin;
        sum->runs++;
    }
    s.window_ns = last - first;
    t->latest = s;
    add_span(&t->all, &s);
    t->acted++;
}

gw_optimes_total gw_optimes_act(const gw_optimes *t, int stage, gw_act act) {
    if (stage >= t->nstages) return (gw_optimes_total){0, 0};
    return t->act[stage * GW_ACT_COUNT + (int)act];
}

gw_optimes_span gw_optimes_latest(const gw_optimes *t) { return t->latest; }

gw_optimes_span gw_optimes_all(const gw_optimes *t) { return t->all; }

bool gw_optimes_action_at(const gw_optimes *t, int64_t i, gw_optimes_action *out) {
    int64_t kept = GW_MIN(t->acted, (int64_t)GW_OPTIMES_STEPS);
    if (t->nactions == 0 || i >= kept * t->nactions) return false;
    int64_t step = i / t->nactions, at = i % t->nactions;
    span s = t->actions[(t->acted - kept + step) % GW_OPTIMES_STEPS * t->nactions + at];
    *out = (gw_optimes_action){at, (int)step, s.start_ns, s.ns};
    return true;
}

gw_optimes_total gw_optimes_of(const gw_optimes *t, gw_oid o) { return t->total[o]; }

static gw_oid op_at(const gw_optimes *t, int64_t at) {
    if (at-- == 0) return GW_NONE;
    int64_t loop = (int64_t)t->loop_end - t->loop_first;
    if (at < (int64_t)t->loop_first) return (gw_oid)at;
    int64_t in = at - (int64_t)t->loop_first;
    if (in < loop * t->micro) return t->loop_first + (gw_oid)(in % loop);
    return t->loop_end + (gw_oid)(in - loop * t->micro);
}

bool gw_optimes_event_at(const gw_optimes *t, int64_t i, gw_optimes_event *out) {
    int64_t kept = GW_MIN(t->steps, (int64_t)GW_OPTIMES_STEPS);
    if (t->row == 0 || i >= kept * t->row) return false;
    int64_t step = i / t->row, at = i % t->row;
    int64_t slot = (t->steps - kept + step) % GW_OPTIMES_STEPS;
    span s = t->ring[slot * t->row + at];
    *out = (gw_optimes_event){op_at(t, at), (int)step, s.start_ns, s.ns};
    return true;
}

double gw_optimes_flops(const gw_optimes *t) {
    double sum = 0;
    for (gw_oid i = 0; i < t->nops; i++) sum += t->flops[i] * (double)t->total[i].runs;
    return sum;
}

int64_t gw_optimes_steps(const gw_optimes *t) { return t->steps; }

// SPDX-License-Identifier: Apache-2.0
// When each op ran.
//
// The executor remembers each op's latest start and duration. After every segment these are taken
// over: added to the op's total, and written into a ring that keeps the last few steps in full. A
// step has one row of events: what the host waited for, its ops before the loop, those of the loop
// once per micro-batch, those after it. Of a step with very many micro-batches the first few are
// kept, since a timeline of one looks like that of the next. All memory is reserved when the run
// begins.
#include "train/optimes.h"

#include "base/arena.h" /* gw_mem_zalloc */
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
};

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

/* A step-rate op of the loop runs in the last micro-batch only. */
static bool sat_out(const gw_optimes *t, gw_segment seg, int64_t micro, gw_oid i) {
    return seg == GW_SEG_LOOP && micro + 1 < t->micro_batches &&
           gw_exec_graph(t->x)->ops.items[i].rate == GW_RATE_STEP;
}

void gw_optimes_take(gw_optimes *t, gw_segment seg, int64_t micro) {
    if (seg == GW_SEG_PRE) t->steps++;
    gw_oid first = 0, end = t->loop_first;
    int64_t at = 0, loop = (int64_t)t->loop_end - t->loop_first;
    if (seg == GW_SEG_LOOP) {
        first = t->loop_first;
        end = t->loop_end;
        at = (int64_t)t->loop_first + slot_of(t, micro) * loop;
    } else if (seg == GW_SEG_POST) {
        first = t->loop_end;
        end = t->nops;
        at = (int64_t)t->loop_first + t->micro * loop;
    }
    bool kept = seg != GW_SEG_LOOP || slot_of(t, micro) >= 0;
    span *row = t->ring + (t->steps + GW_OPTIMES_STEPS - 1) % GW_OPTIMES_STEPS * t->row;
    if (seg == GW_SEG_PRE) *row = t->host;
    row++;
    int64_t epoch = gw_exec_epoch_ns(t->x);
    for (gw_oid i = first; i < end; i++) {
        span s = {gw_exec_op_start_ns(t->x, i), gw_exec_op_ns(t->x, i)};
        t->total[i].ns += s.ns;
        t->total[i].runs += !sat_out(t, seg, micro, i);
        s.start_ns += epoch;
        if (kept) row[at + (int64_t)(i - first)] = s;
    }
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

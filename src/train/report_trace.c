// SPDX-License-Identifier: Apache-2.0
// trace.json: the last few steps on a timeline, for Perfetto and chrome://tracing.
//
// One file a rank (trace-rank-K.json where there are several); the viewer opens them together. A
// process is the rank; its tracks are the compute stream, each stream that communicates, and the
// host, which shows the wait for data and peers before a step. An event carries the op's scope,
// FLOPs and bytes by its descriptor, so that a selection shows rates; of a collective, its
// algorithm and the bytes this rank sends. Times are those of the host's clock from the beginning
// of rank 0's first step, so the tracks of ranks of one host can be laid over one another; between
// hosts, whose clocks differ, each begins at its own.
//
// Of a pipeline each rank's file has one more track, its actions, and trace.json has the actions of
// the latest step of all stages, a process for each rank of the pipeline.
#include "file/trace.h"  /* gw_trace */
#include "train/ranks.h" /* gw_ranks_me */
#include "train/report.h"

#include <stdio.h> /* snprintf */

enum { HOST_TRACK = GW_STREAM_COUNT, ACTION_TRACK };

typedef struct tracer {
    gw_trace *t;
    const gw_session *s;
    const gw_graph *g;
    int rank;
    int64_t base_ns;
} tracer;

static gw_trace_event event_of(const tracer *r, const gw_optimes_event *e) {
    return (gw_trace_event){.pid = r->rank,
                            .ts_us = (double)(e->start_ns - r->base_ns) * 1e-3,
                            .dur_us = (double)e->ns * 1e-3,
                            .bytes = -1,
                            .flops = -1};
}

static gw_status add_host(const tracer *r, const gw_optimes_event *e, gw_diags *dg) {
    gw_trace_event event = event_of(r, e);
    event.name = "wait for data and peers";
    event.cat = "host";
    event.tid = HOST_TRACK;
    return gw_trace_add(r->t, &event, dg);
}

/* A bucket is drawn where it ran, as one event. */
static gw_status add_bucket(const tracer *r, const gw_optimes_event *e, const gw_bucket *b,
                            gw_diags *dg) {
    gw_trace_event event = event_of(r, e);
    char note[256];
    if (b->launch != e->op) return GW_OK;
    snprintf(note, sizeof note, "%s, %s", b->coll.scope, b->coll.algorithm);
    int64_t at = gw_exec_group_rank(&r->g->mesh, b->coll.axes, r->rank);
    event.name = gw_coll_kind_name(b->coll.kind);
    event.cat = "collective";
    event.tid = r->g->ops.items[e->op].stream;
    event.bytes = gw_coll_traffic_of(&b->coll, at).moved;
    event.note = note;
    return gw_trace_add(r->t, &event, dg);
}

static gw_status add_event(const tracer *r, const gw_optimes_event *e, gw_diags *dg) {
    if (e->op == GW_NONE) return add_host(r, e, dg);
    const gw_buckets *all = gw_exec_buckets(r->s->x);
    if (e->ns == 0 && r->g->ops.items[e->op].rate == GW_RATE_STEP) return GW_OK; /* sat out */
    if (all->of[e->op] >= 0) return add_bucket(r, e, &all->items[all->of[e->op]], dg);
    const gw_op *o = &r->g->ops.items[e->op];
    gw_cost c = {0};
    gw_op_def(r->g, o)->cost(r->g, o, &c);
    gw_trace_event event = event_of(r, e);
    event.name = gw_op_def(r->g, o)->name;
    event.cat = gw_phase_name((gw_phase)o->phase);
    event.tid = o->stream;
    event.bytes = (int64_t)(c.bytes_read + c.bytes_written);
    event.flops = (int64_t)c.flops;
    event.note = gw_graph_str(r->g, o->scope);
    return gw_trace_add(r->t, &event, dg);
}

/* ---- a pipeline's actions ---- */

static const char *action_kind(gw_action a) {
    switch ((gw_act)a.act) {
    case GW_ACT_F:
    case GW_ACT_B:
    case GW_ACT_I:
    case GW_ACT_W: return "compute";
    case GW_ACT_SEND_F:
    case GW_ACT_SEND_B: return "send";
    case GW_ACT_RECV_F:
    case GW_ACT_RECV_B: return "receive";
    case GW_ACT_REDUCE: return "reduce";
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return "optimizer";
}

static gw_status add_action(gw_trace *t, int pid, gw_action a, double ts_us, double dur_us,
                            gw_diags *dg) {
    char name[GW_ACTION_TEXT];
    gw_trace_event event = {.name = gw_action_print(a, name),
                            .cat = action_kind(a),
                            .pid = pid,
                            .tid = ACTION_TRACK,
                            .ts_us = ts_us,
                            .dur_us = dur_us,
                            .bytes = -1,
                            .flops = -1};
    return gw_trace_add(t, &event, dg);
}

static gw_status add_actions(const tracer *r, gw_diags *dg) {
    gw_optimes_action e;
    if (r->g->actions.count == 0) return GW_OK;
    GW_TRY(gw_trace_stream(r->t, r->rank, ACTION_TRACK, "actions", dg));
    for (int64_t i = 0; gw_optimes_action_at(r->s->times, i, &e); i++)
        GW_TRY(add_action(r->t, r->rank, r->g->actions.items[e.action],
                          (double)(e.start_ns - r->base_ns) * 1e-3, (double)e.ns * 1e-3, dg));
    return GW_OK;
}

static gw_status add_pipeline(gw_trace *t, const gw_pipeline *p, gw_diags *dg) {
    for (int r = 0; r < p->schedule->ranks; r++) {
        char name[40];
        snprintf(name, sizeof name, "pipeline rank %d", r);
        GW_TRY(gw_trace_process(t, r, name, dg));
        GW_TRY(gw_trace_stream(t, r, ACTION_TRACK, "actions", dg));
    }
    for (int64_t i = 0; i < p->timeline.n; i++) {
        const gw_timeline_box *b = &p->timeline.boxes[i];
        GW_TRY(add_action(t, b->rank, b->action, b->start * 1e6, (b->end - b->start) * 1e6, dg));
    }
    return GW_OK;
}

gw_status gw_report_trace_pipeline(const gw_pipeline *p, const char *path, gw_diags *dg) {
    gw_trace *t = NULL;
    GW_TRY(gw_trace_open(path, &t, dg));
    gw_status st = add_pipeline(t, p, dg);
    if (st == GW_OK) return gw_trace_close(t, dg);
    gw_trace_abandon(t);
    return st;
}

static gw_status name_tracks(const tracer *r, gw_diags *dg) {
    bool used[GW_STREAM_COUNT] = {[GW_STREAM_COMPUTE] = true};
    char name[32];
    snprintf(name, sizeof name, "rank %d", r->rank);
    GW_TRY(gw_trace_process(r->t, r->rank, name, dg));
    for (int64_t i = 0; i < r->g->ops.count; i++) used[r->g->ops.items[i].stream] = true;
    for (int k = 0; k < GW_STREAM_COUNT; k++)
        if (used[k]) GW_TRY(gw_trace_stream(r->t, r->rank, k, gw_stream_name((gw_stream)k), dg));
    return gw_trace_stream(r->t, r->rank, HOST_TRACK, "host", dg);
}

static gw_status add_all(const tracer *r, gw_diags *dg) {
    gw_optimes_event e;
    GW_TRY(name_tracks(r, dg));
    for (int64_t i = 0; gw_optimes_event_at(r->s->times, i, &e); i++) GW_TRY(add_event(r, &e, dg));
    return add_actions(r, dg);
}

/* Where time begins: all ranks call it. */
static gw_status find_base(const gw_session *s, int64_t *base, gw_diags *dg) {
    gw_optimes_event e;
    *base = gw_optimes_event_at(s->times, 0, &e) ? e.start_ns : 0;
    if (!s->comm) return GW_OK;
    int64_t first = *base;
    GW_TRY(gw_comm_broadcast(s->comm, &first, sizeof first, "the trace", dg));
    if (gw_comm_machine(s->comm)->shared) *base = first;
    return GW_OK;
}

gw_status gw_report_trace(const gw_session *s, const char *path, gw_diags *dg) {
    tracer r = {.s = s, .g = gw_exec_graph(s->x), .rank = gw_ranks_me(s->comm)};
    GW_TRY(find_base(s, &r.base_ns, dg));
    GW_TRY(gw_trace_open(path, &r.t, dg));
    gw_status st = add_all(&r, dg);
    if (st == GW_OK) return gw_trace_close(r.t, dg);
    gw_trace_abandon(r.t);
    return st;
}

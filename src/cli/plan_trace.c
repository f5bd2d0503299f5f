// SPDX-License-Identifier: Apache-2.0
// The simulated step for Perfetto, of the form of a run's trace.json (train/report_trace.c): a
// process for each rank of the pipeline; its tracks are the streams, the host (the wait for data)
// and the actions. An event carries its op's scope, FLOPs and bytes.
//
// Slices of one track must not overlap: viewers draw one over the other, or nest them. A stream's
// may, where a gather that runs in pieces beside its product has pieces left when the next
// collective begins, and where messages of two channels are under way. So a stream has as many
// tracks as are needed, "tp", "tp, beside 1" and so on, and a slice goes to the first that is free.
#include <stdio.h>

#include "cli/plan_sim.h" /* gw_cli_trace */
#include "file/trace.h"   /* gw_trace */

enum { HOST_TRACK = GW_STREAM_COUNT, ACTION_TRACK, TRACKS, LANES = 16 };

/* When the lanes of one rank's tracks are free. */
typedef struct lanes {
    double free_s[TRACKS][LANES];
    int used[TRACKS]; /* lanes */
} lanes;

/* The first free lane for a slice of a track; the last one where all are taken. Sums of durations
 * differ by their rounding. */
static int lane_of(lanes *l, int track, double start, double end) {
    static const double rounding = 1e-9;
    double *free_s = l->free_s[track];
    int at = 0;
    while (at + 1 < LANES && at < l->used[track] && free_s[at] > start + rounding) at++;
    l->used[track] = GW_MAX(l->used[track], at + 1);
    free_s[at] = GW_MAX(free_s[at], end);
    return at;
}

static int tid_of(int track, int lane) { return track + lane * TRACKS; }

static gw_status name_lanes(gw_trace *t, int rank, int track, int n, gw_diags *dg) {
    const char *of = track == HOST_TRACK     ? "host"
                     : track == ACTION_TRACK ? "actions"
                                             : gw_stream_name((gw_stream)track);
    for (int i = 0; i < n; i++) {
        char name[48];
        snprintf(name, sizeof name, i ? "%s, beside %d" : "%s", of, i);
        GW_TRY(gw_trace_stream(t, rank, tid_of(track, i), name, dg));
    }
    return GW_OK;
}

static gw_status name_tracks(const gw_simplan *p, const lanes *all, gw_trace *t, gw_diags *dg) {
    for (int r = 0; r < p->n; r++) {
        char name[48];
        snprintf(name, sizeof name, p->n > 1 ? "pipeline rank %d" : "rank %d", r);
        GW_TRY(gw_trace_process(t, r, name, dg));
        for (int k = 0; k < TRACKS; k++) GW_TRY(name_lanes(t, r, k, all[r].used[k], dg));
    }
    return GW_OK;
}

static gw_status add_event(const gw_simplan *p, gw_trace *t, lanes *l, const gw_sim_event *e,
                           gw_diags *dg) {
    int track = e->op == GW_NONE ? HOST_TRACK : e->stream;
    gw_trace_event event = {.name = "wait for data and peers",
                            .cat = "host",
                            .pid = e->rank,
                            .tid = tid_of(track, lane_of(l, track, e->start, e->end)),
                            .ts_us = e->start * 1e6,
                            .dur_us = (e->end - e->start) * 1e6,
                            .bytes = -1,
                            .flops = -1};
    if (e->op == GW_NONE) return gw_trace_add(t, &event, dg);
    const gw_graph *g = p->programs[e->rank];
    const gw_op *o = &g->ops.items[e->op];
    gw_cost c = {0};
    gw_op_def(g, o)->cost(g, o, &c);
    event.name = gw_op_def(g, o)->name;
    event.cat = e->stream == GW_STREAM_COMPUTE ? gw_phase_name((gw_phase)o->phase) : "collective";
    event.bytes = (int64_t)(c.bytes_read + c.bytes_written);
    if (e->stream == GW_STREAM_COMPUTE) event.flops = (int64_t)c.flops;
    event.note = gw_graph_str(g, o->scope);
    return gw_trace_add(t, &event, dg);
}

static const char *action_kind(gw_action a) {
    if (gw_timeline_computes(a)) return "compute";
    if (a.act == GW_ACT_SEND_F || a.act == GW_ACT_SEND_B) return "send";
    if (a.act == GW_ACT_RECV_F || a.act == GW_ACT_RECV_B) return "receive";
    return a.act == GW_ACT_REDUCE ? "reduce" : "optimizer";
}

static gw_status add_actions(const gw_simplan *p, gw_trace *t, lanes *all, gw_diags *dg) {
    for (int64_t i = 0; i < p->timeline.n; i++) {
        const gw_timeline_box *b = &p->timeline.boxes[i];
        int lane = lane_of(&all[b->rank], ACTION_TRACK, b->start, b->end);
        char name[GW_ACTION_TEXT];
        gw_trace_event e = {.name = gw_action_print(b->action, name),
                            .cat = action_kind(b->action),
                            .pid = b->rank,
                            .tid = tid_of(ACTION_TRACK, lane),
                            .ts_us = b->start * 1e6,
                            .dur_us = (b->end - b->start) * 1e6,
                            .bytes = -1,
                            .flops = -1};
        GW_TRY(gw_trace_add(t, &e, dg));
    }
    return GW_OK;
}

gw_status gw_cli_trace(const gw_simplan *p, const char *path, FILE *standard, gw_diags *dg) {
    gw_trace *t = NULL;
    gw_status st = GW_OK;
    GW_TRY(gw_trace_open_output(path, standard, &t, dg));
    lanes *all = gw_mem_zalloc(sizeof *all * (size_t)GW_MAX(p->n, 1));
    for (int r = 0; r < p->n; r++) /* these are there without a slice too */
        all[r].used[GW_STREAM_COMPUTE] = all[r].used[HOST_TRACK] = all[r].used[ACTION_TRACK] = 1;
    for (int64_t i = 0; st == GW_OK && i < p->sim.ntrace; i++)
        st = add_event(p, t, &all[p->sim.trace[i].rank], &p->sim.trace[i], dg);
    if (st == GW_OK) st = add_actions(p, t, all, dg);
    if (st == GW_OK) st = name_tracks(p, all, t, dg);
    gw_mem_free(all);
    if (st == GW_OK) return gw_trace_close(t, dg);
    gw_trace_abandon(t);
    return st;
}

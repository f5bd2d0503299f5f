// SPDX-License-Identifier: Apache-2.0
// The simulated step for Perfetto, of the form of a run's trace.json (train/report_trace.c): a
// process for each rank of the pipeline; its tracks are the streams, the host (the wait for data)
// and the actions. An event carries its op's scope, FLOPs and bytes.
#include <stdio.h>

#include "cli/plan_sim.h" /* gw_cli_trace */
#include "file/trace.h"   /* gw_trace */

enum { HOST_TRACK = GW_STREAM_COUNT, ACTION_TRACK };

static gw_status name_tracks(const gw_simplan *p, gw_trace *t, gw_diags *dg) {
    for (int r = 0; r < p->n; r++) {
        char name[48];
        bool used[GW_STREAM_COUNT] = {[GW_STREAM_COMPUTE] = true};
        snprintf(name, sizeof name, p->n > 1 ? "pipeline rank %d" : "rank %d", r);
        GW_TRY(gw_trace_process(t, r, name, dg));
        for (int64_t i = 0; i < p->sim.ntrace; i++)
            if (p->sim.trace[i].rank == r) used[p->sim.trace[i].stream] = true;
        for (int k = 0; k < GW_STREAM_COUNT; k++)
            if (used[k]) GW_TRY(gw_trace_stream(t, r, k, gw_stream_name((gw_stream)k), dg));
        GW_TRY(gw_trace_stream(t, r, HOST_TRACK, "host", dg));
        GW_TRY(gw_trace_stream(t, r, ACTION_TRACK, "actions", dg));
    }
    return GW_OK;
}

static gw_status add_event(const gw_simplan *p, gw_trace *t, const gw_sim_event *e, gw_diags *dg) {
    gw_trace_event event = {.name = "wait for data and peers",
                            .cat = "host",
                            .pid = e->rank,
                            .tid = HOST_TRACK,
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
    event.tid = e->stream;
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

static gw_status add_actions(const gw_simplan *p, gw_trace *t, gw_diags *dg) {
    for (int64_t i = 0; i < p->timeline.n; i++) {
        const gw_timeline_box *b = &p->timeline.boxes[i];
        char name[GW_ACTION_TEXT];
        gw_trace_event e = {.name = gw_action_print(b->action, name),
                            .cat = action_kind(b->action),
                            .pid = b->rank,
                            .tid = ACTION_TRACK,
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
    GW_TRY(gw_trace_open_output(path, standard, &t, dg));
    gw_status st = name_tracks(p, t, dg);
    for (int64_t i = 0; st == GW_OK && i < p->sim.ntrace; i++)
        st = add_event(p, t, &p->sim.trace[i], dg);
    if (st == GW_OK) st = add_actions(p, t, dg);
    if (st == GW_OK) return gw_trace_close(t, dg);
    gw_trace_abandon(t);
    return st;
}

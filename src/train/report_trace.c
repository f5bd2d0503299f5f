// SPDX-License-Identifier: Apache-2.0
// trace.json: the last few steps on a timeline, for Perfetto and chrome://tracing.
//
// One process is the rank, one track each stream; an event carries the op's scope, FLOPs and bytes
// by its descriptor, so that a selection in the viewer shows rates. Steps are laid end to end with
// their own durations: what stands between them (metrics, saving) is not part of the program.
#include "file/trace.h" /* gw_trace */
#include "train/report.h"

static gw_status add_event(gw_trace *t, const gw_graph *g, const gw_optimes_event *e,
                           int64_t base_ns, gw_diags *dg) {
    const gw_op *o = &g->ops.items[e->op];
    gw_cost c = {0};
    gw_op_def(g, o)->cost(g, o, &c);
    gw_trace_event event = {.name = gw_op_def(g, o)->name,
                            .cat = gw_phase_name((gw_phase)o->phase),
                            .pid = 0,
                            .tid = o->stream,
                            .ts_us = (double)(base_ns + e->start_ns) * 1e-3,
                            .dur_us = (double)e->ns * 1e-3,
                            .bytes = (int64_t)(c.bytes_read + c.bytes_written),
                            .flops = (int64_t)c.flops,
                            .note = gw_graph_str(g, o->scope)};
    return gw_trace_add(t, &event, dg);
}

static gw_status add_all(gw_trace *t, const gw_session *s, gw_diags *dg) {
    const gw_graph *g = gw_exec_graph(s->x);
    GW_TRY(gw_trace_process(t, 0, "rank 0", dg));
    GW_TRY(gw_trace_stream(t, 0, GW_STREAM_COMPUTE, gw_stream_name(GW_STREAM_COMPUTE), dg));
    gw_optimes_event e;
    int64_t base = 0, end = 0;
    int step = 0;
    for (int64_t i = 0; gw_optimes_event_at(s->times, i, &e); i++) {
        if (e.step != step) {
            base = end;
            step = e.step;
        }
        end = GW_MAX(end, base + e.start_ns + e.ns);
        GW_TRY(add_event(t, g, &e, base, dg));
    }
    return GW_OK;
}

gw_status gw_report_trace(const gw_session *s, const char *path, gw_diags *dg) {
    gw_trace *t = NULL;
    GW_TRY(gw_trace_open(path, &t, dg));
    gw_status st = add_all(t, s, dg);
    if (st == GW_OK) return gw_trace_close(t, dg);
    gw_trace_abandon(t);
    return st;
}

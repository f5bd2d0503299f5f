// SPDX-License-Identifier: Apache-2.0
// A pipeline as JSON: "pipeline" of `plan --json` and plan.json (keys: docs/plan.md).
//
// The document around it is one rank's plan, the largest's; "ranks" here has the figures by which
// the others differ, in the order of the pipeline.
#include <math.h>
#include <string.h>

#include "base/panic.h" /* gw_panic */
#include "plan/pipeplan.h"

static void put(json_t *o, const char *key, json_t *v) {
    if (!v || json_object_set_new(o, key, v) != 0) gw_panic("plan.json: '%s' cannot be set", key);
}
static void put_int(json_t *o, const char *key, int64_t x) { put(o, key, json_integer(x)); }
static void put_real(json_t *o, const char *key, double x) {
    put(o, key, isfinite(x) ? json_real(x) : json_null());
}
static void push(json_t *a, json_t *v) {
    if (json_array_append_new(a, v) != 0) gw_panic("plan.json: a list cannot grow");
}

static json_t *causes_json(const int64_t *bytes) {
    json_t *o = json_object();
    for (int c = 0; c < GW_CAUSE_COUNT; c++) put_int(o, gw_cause_name((gw_cause)c), bytes[c]);
    return o;
}

static json_t *stages_of(const gw_pipeplan *p, int rank) {
    json_t *a = json_array();
    for (int s = 0; s < p->stages; s++)
        if (p->stage[s].rank == rank) push(a, json_integer(s));
    return a;
}

static json_t *rank_json(const gw_pipeplan *p, int r) {
    const gw_ledger *l = &p->ranks[r];
    json_t *o = json_object();
    int64_t sent = 0;
    for (int i = 0; i < l->nwire; i++)
        if (strcmp(l->wire[i].axis, "pp") == 0) sent += l->wire[i].payload_bytes;
    put_int(o, "rank", r);
    put(o, "stages", stages_of(p, r));
    put_int(o, "params", l->rank_params);
    put_int(o, "total_bytes", l->total_bytes);
    put_int(o, "arena_bytes", l->arena_bytes);
    put(o, "by_cause", causes_json(l->by_cause));
    put_int(o, "persistent_bytes", l->persistent_bytes);
    put_int(o, "carried_bytes", l->carried_bytes);
    put_int(o, "places", l->most_places);
    put_int(o, "box_bytes", l->box_bytes);
    put_int(o, "micro_batches_held", p->times.micro_held[r]);
    put_int(o, "sent_bytes", sent);
    put_int(o, "wire_payload_bytes", l->wire_bytes);
    put_int(o, "wire_moved_bytes", l->wire_moved_bytes);
    put_real(o, "flops", l->flops.hardware);
    put_real(o, "work", p->work[r]);
    put_real(o, "idle", 1 - p->times.busy[r] / p->times.step);
    return o;
}

static json_t *stage_json(const gw_pipeplan_stage *s) {
    json_t *o = json_object();
    put_int(o, "rank", s->rank);
    put_int(o, "first_layer", s->first_layer);
    put_int(o, "layers", s->layers);
    put_real(o, "forward", s->forward);
    put_real(o, "input", s->input);
    put_real(o, "weight", s->weight);
    put_int(o, "sent_forward_bytes", s->sent_forward);
    put_int(o, "sent_backward_bytes", s->sent_backward);
    return o;
}

static json_t *three(double here, double alike, double formula) {
    json_t *o = json_object();
    put_real(o, "derived", here);
    put_real(o, "stages_alike", alike);
    put_real(o, "formula", formula);
    return o;
}

static json_t *bubble_json(const gw_pipeplan *p) {
    const gw_sched_times *t = &p->times, *a = &p->alike;
    double step = p->formula_of_span ? (double)NAN : p->formula;
    double span = p->formula_of_span ? p->formula : (double)NAN;
    json_t *o = json_object();
    put(o, "bubble_compute", three(t->bubble_compute, a->bubble_compute, step));
    put(o, "bubble_step", three(t->bubble_step, a->bubble_step, step / (1 + step)));
    put(o, "idle_step", three(t->idle_step, a->idle_step, (double)NAN));
    put(o, "idle_longest_span", three(t->idle_longest, a->idle_longest, span / (1 + span)));
    put_real(o, "step", t->step);
    put_real(o, "longest_span", t->longest_span);
    put(o, "unit", json_string(p->in_seconds ? "s" : "an average rank's work on a micro-batch"));
    put_real(o, "exact_norm", gw_pipeplan_period(p, false));
    put_real(o, "deferred_norm", gw_pipeplan_period(p, true));
    put_int(o, "messages", t->messages);
    put_real(o, "simulated_step_s", p->simulated_step > 0 ? p->simulated_step : (double)NAN);
    put_real(o, "simulated_bubble_step", p->simulated_step > 0 ? p->simulated_bubble : (double)NAN);
    return o;
}

json_t *gw_pipeplan_json(const gw_pipeplan *p) {
    json_t *o = json_object(), *ranks = json_array(), *stages = json_array();
    put(o, "schedule", json_string(p->name));
    put_int(o, "virtual_stages", p->virtual_stages);
    put_int(o, "micro_batches", p->micro_batches);
    put_int(o, "largest", p->largest);
    put(o, "norm", json_string(p->deferred_norm ? "deferred" : "exact"));
    put(o, "idle", bubble_json(p));
    put_real(o, "uneven", p->uneven);
    put_int(o, "sent_bytes", p->sent_bytes);
    for (int r = 0; r < p->n; r++) push(ranks, rank_json(p, r));
    for (int s = 0; s < p->stages; s++) push(stages, stage_json(&p->stage[s]));
    put(o, "ranks", ranks);
    put(o, "stages", stages);
    return o;
}

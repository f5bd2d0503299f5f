// SPDX-License-Identifier: Apache-2.0
// The simulated step as keys of the plan's JSON: docs/plan.md lists them.
#include <math.h>

#include "plan/simplan.h"

static json_t *mfu_json(const gw_simplan *p) {
    json_t *j = json_object();
    for (int i = 0; i < p->nmfu; i++)
        (void)json_object_set_new(j, p->mfu[i].name,
                                  p->peak > 0 ? json_real(p->mfu[i].mfu) : json_null());
    return j;
}

static json_t *tflops_json(const gw_simplan *p) {
    json_t *j = json_object();
    for (int i = 0; i < p->nmfu; i++)
        (void)json_object_set_new(
            j, p->mfu[i].name,
            json_real(p->sim.step_s > 0 ? p->mfu[i].flops / p->sim.step_s * 1e-12 : 0));
    return j;
}

static json_t *parts_json(const gw_simplan *p) {
    json_t *j = json_array();
    for (int i = 0; i < p->nparts; i++) {
        const gw_simplan_part *x = &p->part[i];
        (void)json_array_append_new(j, json_pack("{s:s, s:f, s:f, s:s, s:s}", "part", x->name,
                                                 "seconds", x->seconds, "percent", x->percent,
                                                 "cause", x->cause, "remedy", x->remedy));
    }
    return j;
}

static json_t *number(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static json_t *axes_json(const gw_simplan *p) {
    json_t *j = json_array();
    for (int i = 0; i < p->naxes; i++) {
        const gw_simplan_axis *x = &p->axis[i];
        bool known = x->figures->tier >= 0 || x->figures->seconds > 0;
        (void)json_array_append_new(
            j, json_pack("{s:s, s:I, s:s, s:I, s:o, s:o, s:o, s:s}", "axis", x->name, "size",
                         (json_int_t)x->size, "moves", x->moves, "bytes",
                         (json_int_t)x->figures->bytes, "link",
                         known ? json_string(x->link) : json_null(), "seconds",
                         known ? json_real(x->figures->seconds) : json_null(), "exposed_s",
                         known ? json_real(x->figures->exposed) : json_null(), "why", x->why));
    }
    return j;
}

static json_t *ops_json(const gw_simplan *p) {
    json_t *j = json_array();
    for (int i = 0; i < p->nops; i++) {
        const gw_simplan_op *x = &p->op[i];
        (void)json_array_append_new(j, json_pack("{s:s, s:f, s:f, s:f, s:f}", "op", x->name, "runs",
                                                 x->count, "seconds", x->seconds, "flops", x->flops,
                                                 "bytes", x->bytes));
    }
    return j;
}

static json_t *by_axis_json(const gw_simplan *p) {
    json_t *j = json_object();
    for (int i = 0; i < p->naxes; i++)
        (void)json_object_set_new(j, p->axis[i].name,
                                  json_integer((json_int_t)p->axis[i].figures->bytes));
    return j;
}

static json_t *goodput_json(const gw_simplan *p) {
    const gw_sim_goodput *g = &p->goodput;
    if (!p->fails) return json_null();
    return json_pack("{s:o, s:f, s:o, s:f, s:f, s:f, s:f, s:b, s:f}", "between_failures_s",
                     number(g->between_failures_s), "checkpoint_write_s", g->write_s,
                     "best_interval_s", number(g->best_interval_s), "interval_s", g->interval_s,
                     "goodput", g->goodput, "lost_to_checkpoints", g->lost_to_checkpoints,
                     "lost_to_rework", g->lost_to_rework, "restart_assumed", p->restart_assumed,
                     "lost_to_restarts", g->lost_to_restarts);
}

/* Seconds of this host's collectives, and how they would be chosen, are not the stated machine's:
 * in their place stands what the simulation found. */
static void replace_times(const gw_simplan *p, json_t *wire) {
    double sum = 0;
    size_t i;
    json_t *row;
    for (int k = 0; k < p->naxes; k++) sum += p->axis[k].figures->seconds;
    json_object_set_new(wire, "seconds", json_real(sum));
    json_array_foreach(json_object_get(wire, "collectives"), i, row) {
        (void)json_object_del(row, "seconds");
        (void)json_object_del(row, "candidates");
        (void)json_object_del(row, "algorithm");
    }
}

static json_t *wire_of(json_t *j) {
    json_t *wire = json_object_get(j, "wire");
    if (json_is_object(wire)) return wire;
    wire = json_object();
    json_object_set_new(j, "wire", wire);
    return wire;
}

static json_t *dollars_json(const gw_simplan *p) {
    if (p->machine->dollars_per_hour <= 0) return json_null();
    return json_pack("{s:f, s:f, s:f}", "per_chip_hour", p->machine->dollars_per_hour, "per_step",
                     p->dollars_per_step, "per_billion_tokens", p->dollars_per_billion_tokens);
}

void gw_simplan_json_axes(const gw_simplan *p, json_t *j) {
    json_object_set_new(wire_of(j), "by_axis", by_axis_json(p));
    json_object_set_new(j, "axes", axes_json(p));
}

void gw_simplan_json(const gw_simplan *p, json_t *j) {
    gw_simplan_json_axes(p, j);
    replace_times(p, wire_of(j));
    json_object_set_new(j, "hardware", json_string(p->machine->name));
    json_object_set_new(j, "world", json_integer((json_int_t)p->ranks));
    json_object_set_new(j, "layout", json_string(p->layout));
    json_object_set_new(j, "step_time_s", json_real(p->sim.step_s));
    json_object_set_new(j, "faults",
                        p->faults_text ? json_pack("{s:s, s:f}", "asked", p->faults_text,
                                                   "step_time_without_s", p->unharmed_s)
                                       : json_null());
    json_object_set_new(j, "tokens_per_s_chip", json_real(p->tokens_per_s_chip));
    json_object_set_new(j, "mfu", mfu_json(p));
    json_object_set_new(j, "tflops_per_chip", tflops_json(p));
    json_object_set_new(j, "peak_flops", p->peak > 0 ? json_real(p->peak) : json_null());
    json_object_set_new(j, "peak_dtype",
                        p->peak > 0 ? json_string(gw_dtype_name(p->peak_of)) : json_null());
    json_object_set_new(j, "bubble", json_real(p->sim.bubble));
    json_object_set_new(j, "parts", parts_json(p));
    json_object_set_new(j, "ops", ops_json(p));
    json_object_set_new(j, "fits", p->memory_bytes > 0 ? json_boolean(p->fits) : json_null());
    json_object_set_new(j, "memory_bytes",
                        p->memory_bytes > 0 ? json_integer((json_int_t)p->memory_bytes)
                                            : json_null());
    json_object_set_new(j, "dollars", dollars_json(p));
    json_object_set_new(j, "checkpoint_bytes", json_real(p->checkpoint_bytes));
    json_object_set_new(j, "goodput", goodput_json(p));
}

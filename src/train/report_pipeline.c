// SPDX-License-Identifier: Apache-2.0
// A pipeline's figures as JSON and as a table.
//
// The bubble has two conventions in use, and both are printed by name: idle time / step, and idle
// time / computing. Of the two planned ones the first column is what the schedule makes of the
// stage times as they were measured, so that a difference is what the schedule does not know of:
// messages, waking up, cores that are shared.
#include <math.h>

#include "base/str.h"  /* gw_fmt_seconds */
#include "base/term.h" /* gw_table */
#include "train/pipeline.h"

/* ---- JSON ---- */

static void set_real(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, isfinite(x) ? json_real(x) : json_null());
}

static void set_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer((json_int_t)x));
}

static json_t *stage_json(const gw_pipeline *p, int i) {
    const gw_stage_report *r = &p->stages[i];
    json_t *o = json_object();
    set_int(o, "stage", i);
    set_int(o, "rank", p->schedule->rank_of[i]);
    set_int(o, "first_layer", r->first_layer);
    set_int(o, "layers", r->layers);
    set_real(o, "forward_flops", r->forward);
    set_real(o, "input_flops", r->input);
    set_real(o, "weight_flops", r->weight);
    set_int(o, "sent_forward_bytes", r->sent_forward);
    set_int(o, "sent_backward_bytes", r->sent_backward);
    if (!p->measured) return o;
    set_real(o, "forward_s", p->forward[i]);
    set_real(o, "input_s", p->input[i]);
    set_real(o, "weight_s", p->weight[i]);
    return o;
}

static json_t *rank_json(const gw_pipeline *p, int r) {
    const gw_pipeline_rank *k = &p->ranks[r];
    json_t *o = json_object();
    set_int(o, "rank", r);
    set_int(o, "stages", k->stages);
    set_int(o, "layers", k->layers);
    set_int(o, "activations_held", k->held);
    if (!p->measured) return o;
    set_int(o, "planned_arena_bytes", k->planned_arena_bytes);
    set_int(o, "arena_bytes", k->arena_bytes);
    set_real(o, "compute_s", k->busy_s);
    set_real(o, "wait_s", k->wait_s);
    set_real(o, "send_s", k->send_s);
    set_real(o, "idle", 1 - k->busy_s / k->window_s);
    return o;
}

json_t *gw_pipeline_json(const gw_pipeline *p) {
    json_t *o = json_object(), *stages = json_array(), *ranks = json_array();
    json_t *planned = json_object(), *measured = json_object();
    json_object_set_new(o, "schedule", json_string(p->schedule->name));
    set_int(o, "ranks", p->schedule->ranks);
    set_int(o, "stages", p->schedule->stages);
    set_int(o, "micro_batches", p->schedule->micro_batches);
    if (p->measured) set_real(planned, "step_s", p->planned_step_s);
    set_real(planned, "bubble_step", p->planned_bubble_step);
    set_real(planned, "bubble_compute", p->planned_bubble_compute);
    set_real(planned, "formula_bubble_compute", p->formula);
    json_object_set_new(o, "planned", planned);
    if (p->measured) {
        set_int(measured, "steps", p->steps);
        set_real(measured, "step_s", p->step_s);
        set_real(measured, "bubble_step", p->bubble_step);
        set_real(measured, "bubble_compute", p->bubble_compute);
        json_object_set_new(o, "measured", measured);
    } else {
        json_decref(measured);
    }
    for (int r = 0; r < p->schedule->ranks; r++) json_array_append_new(ranks, rank_json(p, r));
    for (int i = 0; i < p->schedule->stages; i++) json_array_append_new(stages, stage_json(p, i));
    json_object_set_new(o, "by_rank", ranks);
    json_object_set_new(o, "by_stage", stages);
    return o;
}

/* ---- the table ---- */

static const char *seconds(gw_arena *a, double x) {
    char buf[32];
    return isfinite(x) ? gw_arena_strdup(a, gw_fmt_seconds(buf, x)) : "-";
}

static const char *stages_of(const gw_pipeline *p, int rank, gw_arena *a) {
    gw_str t = {0};
    for (int i = 0; i < p->schedule->stages; i++)
        if (p->schedule->rank_of[i] == rank) gw_str_printf(&t, "%s%d", t.len ? " " : "", i);
    const char *text = gw_arena_strdup(a, gw_str_c(&t));
    gw_str_release(&t);
    return text;
}

static void add_row(gw_table *t, const gw_pipeline *p, int r, gw_arena *a) {
    const gw_pipeline_rank *k = &p->ranks[r];
    char plan[32], is[32];
    gw_table_row(
        t, gw_arena_printf(a, "%d", r), stages_of(p, r, a), gw_arena_printf(a, "%d", k->layers),
        gw_arena_strdup(a, gw_fmt_bytes(plan, k->planned_arena_bytes)),
        gw_arena_strdup(a, gw_fmt_bytes(is, k->arena_bytes)),
        gw_arena_printf(a, "%lld", (long long)k->held), seconds(a, k->busy_s),
        seconds(a, k->wait_s),
        isfinite(k->window_s) ? gw_arena_printf(a, "%.1f %%", 100 * (1 - k->busy_s / k->window_s))
                              : "-");
}

void gw_pipeline_print(const gw_pipeline *p, FILE *out) {
    gw_arena a = {0};
    gw_table *t = gw_table_new("rlrrrrrrr");
    fprintf(out, "\npipeline %s: %d ranks, %d stages, %d micro-batches a step\n", p->schedule->name,
            p->schedule->ranks, p->schedule->stages, (int)p->schedule->micro_batches);
    gw_table_row(t, "rank", "stages", "layers", "arena planned", "measured", "held", "computing",
                 "waiting", "idle");
    for (int r = 0; r < p->schedule->ranks; r++) add_row(t, p, r, &a);
    gw_table_print(t, out, "");
    gw_table_free(t);
    if (p->measured)
        fprintf(out,
                "bubble/step %.4f planned, %.4f measured; bubble/compute %.4f planned, %.4f "
                "measured (planned for stage times as measured, over %lld step%s)\n",
                p->planned_bubble_step, p->bubble_step, p->planned_bubble_compute,
                p->bubble_compute, (long long)p->steps, p->steps == 1 ? "" : "s");
    if (isfinite(p->formula))
        fprintf(out,
                "by the formula for stages that are alike: bubble/step %.4f, bubble/compute "
                "%.4f\n",
                p->formula / (1 + p->formula), p->formula);
    gw_arena_release(&a);
}

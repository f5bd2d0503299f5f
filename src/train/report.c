// SPDX-License-Identifier: Apache-2.0
// Planned against measured: the figures, as JSON and as a table.
//
// Planned figures come from the compiled program (arena bytes, FLOPs of its ops), measured ones
// from the run (what the executor reserved and bound, the process's Pss, what was launched, how
// long it took). What collectives sent is counted by the transport and must equal, to the byte and
// on every rank, what the program and the formulas of the algorithms say. Times are medians of the
// steps this process took, without the first where there are more, since that one touches memory
// for the first time.
#include "train/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"       /* gw_path_join */
#include "base/str.h"      /* gw_fmt_bytes */
#include "base/term.h"     /* gw_table */
#include "run/exec_comm.h" /* gw_exec_rows_traffic */
#include "run/memory.h"    /* gw_memory_pss */
#include "train/ranks.h"   /* gw_ranks_count */

/* ---- words ---- */

const char *gw_report_model_name(const gw_session *s) {
    if (gw_session_has_images(s)) return gw_runfile_word(s->rf, "model.family");
    return gw_family_name(s->setup.model.family);
}

const char *gw_report_step_text(const gw_runfile *rf, char out[80]) {
    const gw_rf_model *m = &rf->model;
    if (gw_runfile_has_images(rf))
        snprintf(out, 80, "%lld images of %lld x %lld x %lld", (long long)rf->train.global_batch,
                 (long long)m->image, (long long)m->image, (long long)m->channels);
    else
        snprintf(out, 80, "%lld sequences of %lld tokens", (long long)rf->train.global_batch,
                 (long long)rf->train.seq_len);
    return out;
}

/* ---- figures ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *x, int64_t n) {
    if (n == 0) return (double)NAN;
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Means: a shard that is waited for once in a hundred steps has no median. */
static void take_data_parts(gw_report_facts *f, const gw_history *h, int64_t first) {
    double n = 0, sums[4] = {0};
    for (int64_t i = first; i < h->nsteps; i++) {
        const gw_metrics_step *s = &h->steps[i];
        if (!s->data_parts) continue;
        sums[0] += s->data_source_s;
        sums[1] += s->data_decompress_s;
        sums[2] += s->data_decode_s;
        sums[3] += s->data_queue_s;
        n++;
    }
    f->data_source_s = n > 0 ? sums[0] / n : (double)NAN;
    f->data_decompress_s = n > 0 ? sums[1] / n : (double)NAN;
    f->data_decode_s = n > 0 ? sums[2] / n : (double)NAN;
    f->data_queue_s = n > 0 ? sums[3] / n : (double)NAN;
}

static void take_times(gw_report_facts *f, const gw_history *h, int64_t after, gw_arena *a) {
    int64_t first = 0, n = 0;
    while (first < h->nsteps && h->steps[first].step <= after) first++;
    if (h->nsteps - first > 2) first++;
    double *step = gw_arena_new(a, double, h->nsteps + 1);
    double *rate = gw_arena_new(a, double, h->nsteps + 1);
    double *wait = gw_arena_new(a, double, h->nsteps + 1);
    for (int64_t i = first; i < h->nsteps; i++) {
        if (!isfinite(h->steps[i].step_s) || !isfinite(h->steps[i].tokens_per_s)) continue;
        step[n] = h->steps[i].step_s;
        rate[n] = h->steps[i].tokens_per_s;
        wait[n++] = h->steps[i].data_wait_s;
    }
    f->step_s = median(step, n);
    f->tokens_per_s = median(rate, n);
    f->data_wait_s = median(wait, n);
    take_data_parts(f, h, first);
}

static const char *last_part(const char *path, gw_arena *a) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    return gw_arena_strndup(a, path + from, n - from);
}

static void take_plan(gw_report_facts *f, const gw_session *s) {
    gw_ledger l;
    gw_report_ledger(s, &l);
    f->planned_arena_bytes = gw_session_planned_bytes(s);
    f->measured_arena_bytes = gw_session_arena_bytes(s);
    f->lower_bound_bytes = l.lower_bound_bytes;
    f->persistent_bytes = l.persistent_bytes;
    f->program_bytes = s->program_bytes;
    f->data_bytes = l.fixed.data_bytes;
    f->planned_process_bytes = f->program_bytes + l.total_bytes;
    f->measured_process_bytes = gw_memory_pss();
    f->model_flops = l.flops.model;
    f->planned_flops = l.flops.hardware;
    gw_ledger_release(&l);
}

const char *gw_report_wire_name(int k) {
    return k == GW_REPORT_ROWS ? "expert-rows" : gw_coll_kind_name((gw_coll_kind)k);
}

/* A step's figures; `less` is not counted. */
static gw_report_wire wire_of(gw_coll_traffic planned, gw_coll_traffic sent, gw_coll_traffic less,
                              int64_t steps) {
    gw_report_wire w = {.planned = planned};
    w.counted.payload = (sent.payload - less.payload) / steps;
    w.counted.moved = (sent.moved - less.moved) / steps;
    return w;
}

/* Of what types tell every byte must be the planned one; rows of experts follow the load. */
static void compare_ranks(gw_report_facts *f, const gw_session *s) {
    f->sent_as_planned = s->ranks != NULL;
    for (int r = 0; s->ranks && r < f->ranks; r++) {
        const gw_session_rank *x = &s->ranks[r];
        f->planned_rows += x->planned_rows[0];
        f->sent_rows += x->sent_rows[0];
        f->planned_on += x->planned_on;
        f->sent_on += x->sent_on;
        if (x->sent_on != x->planned_on) f->sent_as_planned = false;
        for (int k = 0; k < 2; k++)
            if (x->sent[k] - x->sent_rows[k] != x->planned[k] - x->planned_rows[k])
                f->sent_as_planned = false;
    }
}

static void take_wire(gw_report_facts *f, const gw_session *s) {
    gw_coll_traffic planned[GW_COLL_KIND_COUNT];
    int64_t steps = GW_MAX(INT64_C(1), s->steps_run);
    f->ranks = gw_ranks_count(s->comm);
    f->comm_s = f->comm_wait_s = (double)NAN;
    if (!s->comm) return;
    f->rank = s->ranks;
    gw_session_planned_traffic(s, planned);
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++)
        f->wire[k] = wire_of(planned[k], s->sent[k], (gw_coll_traffic){0, 0}, steps);
    gw_coll_traffic even = gw_exec_rows_traffic(gw_exec_graph(s->x), &s->setup.facts.comm);
    gw_report_wire *all = &f->wire[GW_COLL_ALL_TO_ALL];
    *all = wire_of(planned[GW_COLL_ALL_TO_ALL], s->sent[GW_COLL_ALL_TO_ALL], s->sent_rows, steps);
    all->planned.payload -= even.payload;
    all->planned.moved -= even.moved;
    f->wire[GW_REPORT_ROWS] = wire_of(even, s->sent_rows, (gw_coll_traffic){0, 0}, steps);
    if (s->steps_run > 0) {
        f->comm_s = (double)s->comm_ns * 1e-9 / (double)steps;
        f->comm_wait_s = (double)s->comm_wait_ns * 1e-9 / (double)steps;
    }
    compare_ranks(f, s);
}

static void take_copies(gw_report_facts *f, const gw_session *s) {
    const gw_copier *c = gw_exec_copier(s->x);
    if (!c) return;
    f->planned_copies = gw_copy_traffic(gw_exec_graph(s->x), gw_exec_rank(s->x));
    f->measured_copies = gw_copier_moved(c);
    for (int m = 0; m < GW_MEM_COUNT; m++) {
        f->measured_copies.fetched[m] /= GW_MAX(INT64_C(1), s->steps_run);
        f->measured_copies.stored[m] /= GW_MAX(INT64_C(1), s->steps_run);
    }
}

gw_report_facts gw_report_facts_of(const gw_session *s, const gw_history *h, const char *run_dir,
                                   gw_arena *a) {
    gw_report_facts f = {.name = last_part(run_dir, a),
                         .status = s->step >= s->rf->train.steps ? "complete" : "interrupted",
                         .steps = s->step,
                         .planned_steps = s->rf->train.steps,
                         .tokens = s->tokens,
                         .parameters = gw_model_count(&s->setup.model),
                         .valid_loss = (double)NAN,
                         .valid_bpb = (double)NAN,
                         .valid_accuracy = (double)NAN,
                         .images = gw_session_has_images(s),
                         .loss = (double)NAN};
    take_plan(&f, s);
    take_wire(&f, s);
    take_copies(&f, s);
    double per_token = gw_model_flops_per_token(&s->setup.model, s->rf->train.seq_len, false);
    int64_t ran = s->times ? gw_optimes_steps(s->times) : 0;
    f.measured_flops = ran > 0 ? gw_optimes_flops(s->times) / (double)ran : (double)NAN;
    f.peak_flops = gw_report_peak_flops(&s->setup.machine, s->setup.train.compute, &s->cores,
                                        f.ranks, a, &f.peak_source);
    f.least_step_s = f.planned_flops * f.ranks / f.peak_flops; /* all do as much as rank 0 */
    take_times(&f, h, s->resumed, a);
    f.mfu = per_token * f.tokens_per_s / f.peak_flops;
    if (h->nsteps > 0) f.loss = h->steps[h->nsteps - 1].loss;
    if (h->nvalid > 0) {
        f.valid_loss = h->valid[h->nvalid - 1].loss;
        f.valid_bpb = h->valid[h->nvalid - 1].bpb;
        f.valid_accuracy = h->valid[h->nvalid - 1].accuracy;
    }
    return f;
}

/* ---- JSON ---- */

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static void set_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer((json_int_t)x));
}

static void set_real(json_t *o, const char *key, double x) { json_object_set_new(o, key, real(x)); }

static json_t *wire_json(const gw_report_facts *f, bool counted) {
    json_t *o = json_object();
    for (int k = 0; k < GW_REPORT_WIRES; k++) {
        const gw_report_wire *w = &f->wire[k];
        const gw_coll_traffic *t = counted ? &w->counted : &w->planned;
        if (w->planned.moved == 0 && w->counted.moved == 0) continue;
        json_t *one = json_object();
        set_int(one, "payload_bytes", t->payload);
        set_int(one, "moved_bytes", t->moved);
        json_object_set_new(o, gw_report_wire_name(k), one);
    }
    return o;
}

static json_t *rank_json(const gw_session_rank *r, int number) {
    json_t *o = json_object();
    set_int(o, "rank", number);
    set_int(o, "planned_arena_bytes", r->planned_arena_bytes);
    set_int(o, "arena_bytes", r->arena_bytes);
    set_int(o, "process_bytes", r->process_bytes);
    set_int(o, "planned_payload_bytes", r->planned[0]);
    set_int(o, "planned_moved_bytes", r->planned[1]);
    set_int(o, "payload_bytes", r->sent[0]);
    set_int(o, "moved_bytes", r->sent[1]);
    if (r->planned_rows[0] != 0) {
        set_int(o, "planned_expert_rows_bytes", r->planned_rows[0]);
        set_int(o, "expert_rows_bytes", r->sent_rows[0]);
    }
    if (r->planned_on != 0 || r->sent_on != 0) {
        set_int(o, "planned_stage_messages_bytes", r->planned_on);
        set_int(o, "stage_messages_bytes", r->sent_on);
    }
    set_real(o, "comm_s", (double)r->comm_ns * 1e-9);
    set_real(o, "comm_wait_s", (double)r->comm_wait_ns * 1e-9);
    return o;
}

/* wire: of a step, rank 0. ranks: of all steps of this process. */
static void set_ranks(json_t *o, const gw_report_facts *f, json_t *planned, json_t *measured) {
    json_t *list = json_array();
    set_int(o, "ranks", f->ranks);
    json_object_set_new(planned, "wire", wire_json(f, false));
    json_object_set_new(measured, "wire", wire_json(f, true));
    set_real(measured, "comm_s", f->comm_s);
    set_real(measured, "comm_exposed_s", f->comm_s);
    set_real(measured, "comm_wait_s", f->comm_wait_s);
    json_object_set_new(o, "wire_as_planned", json_boolean(f->sent_as_planned));
    if (f->planned_rows > 0) {
        json_t *rows = json_object();
        set_int(rows, "planned_at_even_load_bytes", f->planned_rows);
        set_int(rows, "sent_bytes", f->sent_rows);
        json_object_set_new(o, "expert_rows", rows);
    }
    for (int r = 0; f->rank && r < f->ranks; r++)
        json_array_append_new(list, rank_json(&f->rank[r], r));
    json_object_set_new(o, "by_rank", list);
}

static void set_copies(json_t *o, const gw_copy_bytes *c) {
    for (int m = GW_MEM_DEVICE + 1; m < GW_MEM_COUNT; m++) {
        if (c->fetched[m] == 0 && c->stored[m] == 0) continue;
        json_t *kind = json_object();
        set_int(kind, "fetched_bytes", c->fetched[m]);
        set_int(kind, "stored_bytes", c->stored[m]);
        json_object_set_new(o, gw_mem_name((gw_mem)m), kind);
    }
}

json_t *gw_report_summary_json(const gw_report_facts *f) {
    json_t *o = json_object(), *planned = json_object(), *measured = json_object();
    json_object_set_new(o, "name", json_string(f->name));
    json_object_set_new(o, "status", json_string(f->status));
    set_int(o, "steps", f->steps);
    set_int(o, f->images ? "images" : "tokens", f->tokens);
    set_int(o, "parameters", f->parameters);
    set_real(o, "loss", f->loss);
    set_real(o, "valid_loss", f->valid_loss);
    if (f->images)
        set_real(o, "valid_accuracy", f->valid_accuracy);
    else
        set_real(o, "valid_bpb", f->valid_bpb);
    set_int(planned, "arena_bytes", f->planned_arena_bytes);
    set_int(planned, "arena_lower_bound_bytes", f->lower_bound_bytes);
    set_int(planned, "process_bytes", f->planned_process_bytes);
    set_real(planned, "flops", f->planned_flops);
    set_real(planned, "model_flops", f->model_flops);
    set_real(planned, "least_step_s", f->least_step_s);
    set_int(measured, "arena_bytes", f->measured_arena_bytes);
    set_int(measured, "process_bytes", f->measured_process_bytes);
    set_int(measured, "program_bytes_before_arena", f->program_bytes);
    set_real(measured, "flops", f->measured_flops);
    set_real(measured, "step_s", f->step_s);
    set_real(measured, f->images ? "images_per_s" : "tokens_per_s", f->tokens_per_s);
    set_real(measured, "data_wait_s", f->data_wait_s);
    if (!f->images) {
        set_real(measured, "data_source_s", f->data_source_s);
        set_real(measured, "data_decompress_s", f->data_decompress_s);
        set_real(measured, "data_decode_s", f->data_decode_s);
        set_real(measured, "data_queue_s", f->data_queue_s);
    }
    set_real(measured, "mfu", f->mfu);
    set_real(measured, "seconds", f->seconds);
    set_copies(planned, &f->planned_copies);
    set_copies(measured, &f->measured_copies);
    if (f->ranks > 1) set_ranks(o, f, planned, measured);
    if (f->pipeline) json_object_set_new(o, "pipeline", gw_pipeline_json(f->pipeline));
    json_object_set_new(o, "planned", planned);
    json_object_set_new(o, "measured", measured);
    set_real(o, "peak_flops", f->peak_flops);
    json_object_set_new(o, "peak_source", json_string(f->peak_source));
    return o;
}

/* ---- the closing table ---- */

static const char *flops_text(gw_arena *a, double x) {
    char buf[32];
    return isfinite(x) ? gw_arena_printf(a, "%sFLOP", gw_fmt_si(buf, x)) : "-";
}

static const char *time_text(gw_arena *a, const char *before, double x) {
    char buf[32];
    return isfinite(x) ? gw_arena_printf(a, "%s%s", before, gw_fmt_seconds(buf, x)) : "-";
}

static const char *bytes_text(gw_arena *a, int64_t n, bool exact) {
    char buf[32], count[40];
    if (exact) return gw_arena_printf(a, "%s (%s)", gw_fmt_bytes(buf, n), gw_fmt_count(count, n));
    return gw_arena_strdup(a, gw_fmt_bytes(buf, n));
}

static const char *off_text(gw_arena *a, double planned, double measured) {
    if (!isfinite(measured) || !(planned > 0)) return "";
    double off = (measured / planned - 1) * 100;
    return measured == planned ? "equal" : gw_arena_printf(a, "%+.1f %%", off);
}

static void add_copy_rows(gw_table *t, const gw_report_facts *f, gw_arena *a) {
    for (int m = GW_MEM_DEVICE + 1; m < GW_MEM_COUNT; m++)
        for (int out = 0; out <= 1; out++) {
            const gw_copy_bytes *p = &f->planned_copies, *c = &f->measured_copies;
            int64_t plan = out ? p->stored[m] : p->fetched[m];
            int64_t done = out ? c->stored[m] : c->fetched[m];
            if (plan == 0 && done == 0) continue;
            gw_table_row(t,
                         gw_arena_printf(a, out ? "stored to %s" : "fetched from %s",
                                         gw_mem_name((gw_mem)m)),
                         bytes_text(a, plan, true), bytes_text(a, done, true),
                         off_text(a, (double)plan, (double)done));
        }
}

static void add_wire_rows(gw_table *t, const gw_report_facts *f, gw_arena *a) {
    for (int k = 0; k < GW_REPORT_WIRES; k++) {
        const gw_report_wire *w = &f->wire[k];
        if (w->planned.moved == 0 && w->counted.moved == 0) continue;
        const char *name = gw_report_wire_name(k);
        if (k == GW_REPORT_ROWS) name = "expert-rows at even load";
        gw_table_row(t, gw_arena_printf(a, "%s, payload", name),
                     bytes_text(a, w->planned.payload, true),
                     bytes_text(a, w->counted.payload, true),
                     off_text(a, (double)w->planned.payload, (double)w->counted.payload));
        gw_table_row(t, gw_arena_printf(a, "%s, moved", name),
                     bytes_text(a, w->planned.moved, true), bytes_text(a, w->counted.moved, true),
                     off_text(a, (double)w->planned.moved, (double)w->counted.moved));
    }
    if (isfinite(f->comm_s))
        gw_table_row(t, "in collectives", "",
                     gw_arena_printf(a, "%s, %s of it waiting", time_text(a, "", f->comm_s),
                                     time_text(a, "", f->comm_wait_s)),
                     "");
}

/* The figures above are rank 0's; this is about all of them. */
static void print_ranks(const gw_report_facts *f, FILE *out) {
    int64_t most = 0, least = INT64_MAX;
    char lo[32], hi[32];
    if (!f->rank) return;
    for (int r = 0; r < f->ranks; r++) {
        most = GW_MAX(most, f->rank[r].process_bytes);
        least = GW_MIN(least, f->rank[r].process_bytes);
    }
    fprintf(out, "figures of rank 0; process memory of the %d ranks is %s to %s\n", f->ranks,
            gw_fmt_bytes(lo, least), gw_fmt_bytes(hi, most));
    bool rows = f->planned_rows > 0;
    fprintf(out, "bytes sent%s, payload and moved: %s\n", rows ? " but for rows of experts" : "",
            f->sent_as_planned ? "equal to the plan on every rank"
                               : "NOT those of the plan on every rank (summary.json: by_rank)");
    if (f->pipeline)
        fprintf(out, "messages between stages, of all ranks and steps: %s planned, %s sent\n",
                gw_fmt_bytes(lo, f->planned_on), gw_fmt_bytes(hi, f->sent_on));
    if (rows)
        fprintf(out,
                "rows of experts, payload of all ranks and steps: %s planned at even load, %s sent "
                "with the load there was\n",
                gw_fmt_bytes(lo, f->planned_rows), gw_fmt_bytes(hi, f->sent_rows));
}

void gw_report_table(const gw_report_facts *f, FILE *out) {
    gw_arena a = {0};
    gw_table *t = gw_table_new("lrrr");
    gw_table_row(t, "", "planned", "measured", "");
    gw_table_row(t, "arena", bytes_text(&a, f->planned_arena_bytes, true),
                 bytes_text(&a, f->measured_arena_bytes, true),
                 off_text(&a, (double)f->planned_arena_bytes, (double)f->measured_arena_bytes));
    gw_table_row(t, "process memory", bytes_text(&a, f->planned_process_bytes, false),
                 bytes_text(&a, f->measured_process_bytes, false),
                 off_text(&a, (double)f->planned_process_bytes, (double)f->measured_process_bytes));
    gw_table_row(t, "work of a step", flops_text(&a, f->planned_flops),
                 flops_text(&a, f->measured_flops),
                 off_text(&a, f->planned_flops, f->measured_flops));
    gw_table_row(t, "time of a step", time_text(&a, "at least ", f->least_step_s),
                 time_text(&a, "", f->step_s), "");
    add_copy_rows(t, f, &a);
    if (f->ranks > 1) add_wire_rows(t, f, &a);
    gw_table_print(t, out, "");
    gw_table_free(t);
    if (f->ranks > 1) print_ranks(f, out);
    if (isfinite(f->mfu)) {
        char rate[32], peak[32];
        fprintf(out, "%s%s/s; MFU %.1f %% of %sFLOP/s = %s\n", gw_fmt_si(rate, f->tokens_per_s),
                f->images ? "images" : "tokens", f->mfu * 100, gw_fmt_si(peak, f->peak_flops),
                f->peak_source);
    }
    if (f->pipeline) gw_pipeline_print(f->pipeline, out);
    gw_arena_release(&a);
}

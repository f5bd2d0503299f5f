// SPDX-License-Identifier: Apache-2.0
// A run beside its plan.
//
// The plan is made anew from the run's config.yaml, by the compiler that `train` uses; measured
// figures are those of summary.json (what the executor reserved, what the transport counted),
// metrics.jsonl (each step) and the trace (what each op took in the last steps). Bytes must be
// equal. Times differ, and the difference is taken apart: step = ops + what is between them; ops by
// name, those with the largest excess first; what the median step waited for data and for other
// ranks; what the first steps took longer; how much steps vary, which is how a machine looks that
// others use at the same time.
//
// Of an op the trace holds the last three steps, and of many micro-batches the first few: its time
// in a step is the mean of what is held, times how often the program runs it.
#include "cli/plan_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/io.h"        /* gw_path_join */
#include "base/log.h"       /* gw_log_info */
#include "base/str.h"       /* gw_fmt_seconds */
#include "base/term.h"      /* gw_table */
#include "cli/plan_sim.h"   /* gw_cli_simulate */
#include "file/json.h"      /* gw_json_read_file */
#include "plan/calibrate.h" /* gw_machine_share */
#include "train/metrics.h"  /* gw_history */

#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))
#define TEXT(...)  gw_arena_printf(r->cli->arena, __VA_ARGS__)

enum { ROWS = 32, OPS = 128, SHOWN_OPS = 8, NOTES = 16 };

typedef enum unit { BYTES, TIME, RATE, SHARE } unit;

/* NaN: there is no such figure. */
typedef struct row {
    const char *name;
    unit unit;
    double planned, measured;
} row;

typedef struct op_row {
    const char *name;
    double planned_s, measured_s; /* of a step */
} op_row;

typedef struct reading {
    gw_cli *cli;
    const char *dir;
    gw_target t;
    gw_planned p;
    gw_machine_spec m;
    bool stated;
    gw_simplan sim;
    json_t *summary, *trace;
    gw_history h;
    row rows[ROWS];
    int nrows;
    op_row ops[OPS];
    int nops;
    const char *notes[NOTES];
    int nnotes;
    double step_s; /* measured, median */
} reading;

bool gw_cli_is_run(const char *dir) {
    gw_arena a = {0};
    bool is = gw_path_is_dir(dir) && gw_path_exists(gw_path_join(&a, dir, "config.yaml")) &&
              gw_path_exists(gw_path_join(&a, dir, "summary.json"));
    gw_arena_release(&a);
    return is;
}

/* ---- figures ---- */

static double number(const json_t *o, const char *section, const char *key) {
    const json_t *v = json_object_get(section ? json_object_get(o, section) : o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static void add_row(reading *r, const char *name, unit u, double planned, double measured) {
    if (r->nrows < ROWS && (isfinite(planned) || isfinite(measured)))
        r->rows[r->nrows++] = (row){name, u, planned, measured};
}

static void note(reading *r, const char *text) {
    if (r->nnotes < NOTES) r->notes[r->nnotes++] = text;
}

/* "all-reduce (dp, tp)": each kind that rank 0 sends. Rows of experts follow the data. */
static void add_wire(reading *r) {
    const gw_ledger *l = &r->p.ranks[0];
    const json_t *counted = json_object_get(json_object_get(r->summary, "measured"), "wire");
    for (int k = 0; k < GW_COLL_KIND_COUNT; k++) {
        const char *kind = gw_coll_kind_name((gw_coll_kind)k);
        int64_t planned = 0;
        gw_str axes = {0};
        for (int i = 0; i < l->nwire; i++) {
            const gw_ledger_wire *w = &l->wire[i];
            if (!gw_str_eq(w->collective, kind) || w->at_even_load) continue;
            planned += w->payload_bytes;
            if (!axes.data || !strstr(gw_str_c(&axes), w->axis))
                gw_str_printf(&axes, "%s%s", axes.len ? ", " : "", w->axis);
        }
        double sent = number(json_object_get(counted, kind), NULL, "payload_bytes");
        if (planned > 0 || sent > 0)
            add_row(r, TEXT("sent by %s (%s)", kind, axes.len ? gw_str_c(&axes) : "not planned"),
                    BYTES, (double)planned, isfinite(sent) ? sent : 0);
        gw_str_release(&axes);
    }
}

/* Of all ranks and steps; where it is not 0. */
static void add_messages(reading *r) {
    const json_t *ranks = json_object_get(r->summary, "by_rank");
    double planned = 0, sent = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *one = json_array_get(ranks, i);
        double a = number(one, NULL, "planned_stage_messages_bytes");
        double b = number(one, NULL, "stage_messages_bytes");
        planned += isfinite(a) ? a : 0;
        sent += isfinite(b) ? b : 0;
    }
    if (planned > 0 || sent > 0)
        add_row(r, "messages between stages (pp), all ranks and steps", BYTES, planned, sent);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The q-quantile of a field of the steps that count: those after the first, where there are more.
 */
static double quantile(const reading *r, size_t field, double q) {
    int64_t first = r->h.nsteps > 2 ? 1 : 0, n = 0;
    double *x = gw_arena_new(r->cli->arena, double, r->h.nsteps + 1);
    for (int64_t i = first; i < r->h.nsteps; i++) {
        double v;
        memcpy(&v, (const char *)&r->h.steps[i] + field, sizeof v);
        if (isfinite(v)) x[n++] = v;
    }
    if (n == 0) return (double)NAN;
    qsort(x, (size_t)n, sizeof *x, ascending);
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;
    return i + 1 < n ? x[i] + (at - (double)i) * (x[i + 1] - x[i]) : x[i];
}
#define MEDIAN(field) quantile(r, offsetof(gw_metrics_step, field), 0.5)

static void add_times(reading *r) {
    double plan = r->stated ? r->sim.sim.step_s : (double)NAN;
    double peak = number(r->summary, NULL, "peak_flops");
    const gw_ledger *l = &r->p.ranks[r->p.largest];
    double tokens = r->stated ? r->sim.tokens_per_s : (double)NAN;
    double mfu = MEDIAN(mfu);
    r->step_s = MEDIAN(step_s);
    add_row(r, "time of a step", TIME, plan, r->step_s);
    add_row(r, gw_runfile_has_images(&r->t.rf) ? "images a second" : "tokens a second", RATE,
            tokens, MEDIAN(tokens_per_s));
    /* The same FLOPs of the same peak: what differs is the time. */
    add_row(r, "MFU, causal", SHARE,
            peak > 0 && isfinite(plan) ? mfu * r->step_s / plan : (double)NAN, mfu);
    if (l->pipeline)
        add_row(r, "bubble", SHARE, r->stated ? r->sim.sim.bubble : (double)NAN, MEDIAN(bubble));
    add_row(r, "waiting for data", TIME, r->stated ? r->sim.sim.stall_s : (double)NAN,
            MEDIAN(data_wait_s));
    double comm = 0;
    for (int i = 0; r->stated && i < GW_STREAM_COUNT; i++)
        if (i != GW_STREAM_COPY && i != GW_STREAM_PP) comm += r->sim.sim.axis[i].seconds;
    if (gw_runfile_ranks(&r->t.rf) > 1)
        add_row(r, "in collectives", TIME, r->stated ? comm : (double)NAN, MEDIAN(comm_s));
}

static void add_all(reading *r) {
    const json_t *ranks = json_object_get(r->summary, "by_rank");
    if (json_array_size(ranks) == 0 || r->p.n == 1)
        add_row(r, "arena", BYTES, (double)r->p.ranks[0].arena_bytes,
                number(r->summary, "measured", "arena_bytes"));
    for (size_t i = 0; r->p.n > 1 && i < json_array_size(ranks); i++) {
        size_t stage = i * (size_t)r->p.n / json_array_size(ranks);
        add_row(r, TEXT("arena of rank %zu", i), BYTES, (double)r->p.ranks[stage].arena_bytes,
                number(json_array_get(ranks, i), NULL, "arena_bytes"));
    }
    add_wire(r);
    add_messages(r);
    add_times(r);
}

/* ---- ops ---- */

typedef struct seen {
    const char *name;
    double us, runs;
} seen;

/* Each name of the trace's ops: how long in all, how often. Returns how many steps it holds. */
static int read_trace(const reading *r, seen *out, int *n) {
    const json_t *events = json_object_get(r->trace, "traceEvents");
    int steps = 0;
    *n = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        const char *ph = json_string_value(json_object_get(e, "ph"));
        const char *name = json_string_value(json_object_get(e, "name"));
        const char *cat = json_string_value(json_object_get(e, "cat"));
        if (!ph || !name || !cat || strcmp(ph, "X") != 0) continue;
        if (strcmp(cat, "host") == 0) steps++;
        /* Phases are ops; collectives have a row of their own, and a pipeline's actions are ops
         * once more. */
        if (strlen(cat) > 2) continue;
        int k = 0;
        while (k < *n && strcmp(out[k].name, name) != 0) k++;
        if (k == OPS) continue;
        if (k == *n) out[(*n)++] = (seen){name, 0, 0};
        out[k].us += number(e, NULL, "dur");
        out[k].runs++;
    }
    return steps;
}

static int by_excess(const void *a, const void *b) {
    const op_row *x = a, *y = b;
    double dx = fabs(x->measured_s - x->planned_s), dy = fabs(y->measured_s - y->planned_s);
    return (dx < dy) - (dx > dy);
}

static void compare_ops(reading *r) {
    seen *all = gw_arena_new(r->cli->arena, seen, OPS);
    int n = 0, steps = r->trace ? read_trace(r, all, &n) : 0;
    if (steps == 0 || !r->stated || r->p.n > 1) return;
    for (int k = 0; k < n; k++) {
        op_row x = {all[k].name, 0, all[k].us * 1e-6 / steps};
        for (int i = 0; i < r->sim.nops; i++)
            if (gw_str_eq(r->sim.op[i].name, all[k].name)) {
                x.planned_s = r->sim.op[i].seconds;
                x.measured_s = all[k].us * 1e-6 / all[k].runs * r->sim.op[i].count;
            }
        if (x.planned_s > 0 || x.measured_s > 0) r->ops[r->nops++] = x;
    }
    qsort(r->ops, (size_t)r->nops, sizeof *r->ops, by_excess);
}

/* ---- what explains the difference ---- */

static void note_ops(reading *r) {
    double planned = 0, measured = 0;
    for (int i = 0; i < r->nops; i++)
        planned += r->ops[i].planned_s, measured += r->ops[i].measured_s;
    if (r->nops == 0) return;
    note(r, TEXT("ops took %s of the last steps, planned %s (%+.1f %%): the table below",
                 SECONDS(measured), SECONDS(planned), 100 * (measured / planned - 1)));
    const char *name = r->ops[0].name;
    double more = r->ops[0].measured_s - r->ops[0].planned_s;
    if (fabs(more) > 0.02 * r->step_s)
        note(r, TEXT("most of it is %s, %s %s than planned", name, SECONDS(fabs(more)),
                     more > 0 ? "longer" : "shorter"));
}

static void note_waits(reading *r) {
    double data = MEDIAN(data_wait_s), comm = MEDIAN(comm_wait_s), pp = MEDIAN(pp_wait_s);
    if (isfinite(data) && data > 0.01 * r->step_s)
        note(r, TEXT("a step waits %s for its batch (%.1f %%): data.prefetch_steps, or faster "
                     "storage",
                     SECONDS(data), 100 * data / r->step_s));
    if (isfinite(comm) && comm > 0.01 * r->step_s)
        note(r, TEXT("a step waits %s in collectives for slower ranks (%.1f %%)", SECONDS(comm),
                     100 * comm / r->step_s));
    if (isfinite(pp) && pp > 0.01 * r->step_s)
        note(r, TEXT("rank 0 waits %s a step for messages of other stages (%.1f %%)", SECONDS(pp),
                     100 * pp / r->step_s));
}

/* Threads, as the run had them, and the cores that this process sees. */
static void note_machine(reading *r) {
    double load[3], low = quantile(r, offsetof(gw_metrics_step, step_s), 0.1);
    double high = quantile(r, offsetof(gw_metrics_step, step_s), 0.9);
    if (r->h.nsteps > 2 && isfinite(r->h.steps[0].step_s) &&
        r->h.steps[0].step_s > 1.05 * r->step_s)
        note(r, TEXT("the first step took %s, %.1f of the median: memory is touched for the first "
                     "time; it is left out",
                     SECONDS(r->h.steps[0].step_s), r->h.steps[0].step_s / r->step_s));
    if (isfinite(high) && high > 1.1 * low)
        note(r, TEXT("steps vary: nine of ten took %s or more, one of ten %s or more (+%.0f %%): "
                     "others used the cores, or the clock fell",
                     SECONDS(low), SECONDS(high), 100 * (high / low - 1)));
    int cores = r->m.timings ? r->m.timings->cores : 0;
    if (cores > 0 && getloadavg(load, 1) == 1 && load[0] > 0.5 + cores)
        note(r, TEXT("the load average of this host is %.1f now, on %d cores: figures taken "
                     "meanwhile are of a busy machine",
                     load[0], cores));
    if (!r->stated)
        note(r, "no time is planned: `gradwright calibrate` measures this machine, --hardware "
                "names another");
    if (r->m.timings) note(r, TEXT("planned by %s, of %s", r->m.timings->path, r->m.timings->date));
}

/* ---- showing it ---- */

static const char *value_text(const reading *r, unit u, double x) {
    char buf[32], count[40];
    if (!isfinite(x)) return "-";
    switch (u) {
    case BYTES:
        return TEXT("%s (%s)", gw_fmt_bytes(buf, (int64_t)x), gw_fmt_count(count, (int64_t)x));
    case TIME: return TEXT("%s", SECONDS(x));
    case RATE: return TEXT("%s", gw_fmt_si(buf, x));
    case SHARE: return TEXT("%.1f %%", 100 * x);
    }
    return "-";
}

static bool equal(double a, double b) { return !(a < b) && !(a > b); }

static const char *difference_text(const reading *r, const row *x) {
    if (!isfinite(x->planned) || !isfinite(x->measured)) return "";
    if (x->unit == BYTES && equal(x->planned, x->measured)) return "equal";
    if (x->unit == SHARE) return TEXT("%+.1f points", 100 * (x->measured - x->planned));
    if (!(x->planned > 0)) return "";
    return TEXT("%+.1f %%", 100 * (x->measured / x->planned - 1));
}

static void print_ops(const reading *r, FILE *out) {
    if (r->nops == 0) return;
    gw_table *t = gw_table_new("lrrr");
    gw_table_row(t, "op", "planned", "measured", "difference");
    for (int i = 0; i < r->nops && i < SHOWN_OPS; i++) {
        const op_row *x = &r->ops[i];
        double more = x->measured_s - x->planned_s;
        gw_table_row(t, x->name, SECONDS(x->planned_s), SECONDS(x->measured_s),
                     TEXT("%s%s (%+.1f %% of the step)", more < 0 ? "-" : "+", SECONDS(fabs(more)),
                          100 * more / r->step_s));
    }
    fprintf(out, "\nops, most different first\n");
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

static void print_text(const reading *r) {
    FILE *out = r->cli->out;
    gw_table *t = gw_table_new("lrrr");
    gw_table_row(t, "", "planned", "measured", "difference");
    for (int i = 0; i < r->nrows; i++) {
        const row *x = &r->rows[i];
        gw_table_row(t, x->name, value_text(r, x->unit, x->planned),
                     value_text(r, x->unit, x->measured), difference_text(r, x));
    }
    fprintf(out, "%s: %lld steps, %lld rank%s; median step of those after the first\n", r->dir,
            (long long)r->h.nsteps, (long long)gw_runfile_ranks(&r->t.rf),
            gw_runfile_ranks(&r->t.rf) == 1 ? "" : "s");
    if (r->stated) fprintf(out, "times planned on %s\n", r->m.name);
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    if (r->nnotes) fprintf(out, "\nwhat explains the difference\n");
    for (int i = 0; i < r->nnotes; i++) fprintf(out, "  %s\n", r->notes[i]);
    print_ops(r, out);
}

static json_t *real(double x) { return isfinite(x) ? json_real(x) : json_null(); }

static void print_json(const reading *r) {
    static const char *const units[] = {"bytes", "seconds", "per second", "share"};
    json_t *rows = json_array(), *ops = json_array(), *notes = json_array();
    for (int i = 0; i < r->nrows; i++) {
        const row *x = &r->rows[i];
        double off = x->planned > 0 ? x->measured / x->planned - 1 : (double)NAN;
        json_array_append_new(rows,
                              json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", x->name, "unit",
                                        units[x->unit], "planned", real(x->planned), "measured",
                                        real(x->measured), "difference", real(off)));
    }
    for (int i = 0; i < r->nops; i++)
        json_array_append_new(ops,
                              json_pack("{s:s, s:f, s:f}", "op", r->ops[i].name, "planned_s",
                                        r->ops[i].planned_s, "measured_s", r->ops[i].measured_s));
    for (int i = 0; i < r->nnotes; i++) json_array_append_new(notes, json_string(r->notes[i]));
    json_t *all = json_pack("{s:s, s:o, s:o, s:o, s:o}", "run", r->dir, "hardware",
                            r->stated ? json_string(r->m.name) : json_null(), "rows", rows, "ops",
                            ops, "explains", notes);
    json_dumpf(all, r->cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', r->cli->out);
    json_decref(all);
}

/* ---- the machine ---- */

gw_status gw_cli_machine_here(gw_cli *cli, const gw_target *t, gw_machine_spec *m, bool *stated) {
    const char *path = t->rf.layout.calibration ? t->rf.layout.calibration : GW_CALIBRATION_FILE;
    gw_timings whose;
    gw_diags unsaid;
    char why[160];
    *stated = false;
    if (!gw_path_exists(path)) return GW_OK;
    gw_diags_init(&unsaid); /* a file of collectives alone is no fault */
    gw_status st = gw_timings_read(path, cli->arena, &whose, &unsaid);
    gw_diags_release(&unsaid);
    if (st != GW_OK) return GW_OK;
    if (!gw_timings_fit_here(&whose, why)) {
        gw_log_info("%s is not used to plan times: %s", path, why);
        return GW_OK;
    }
    if (gw_runfile_ranks(&t->rf) > whose.cores) return GW_OK;
    *stated = true;
    return gw_machine_measured(path, true, cli->arena, m, cli->diags);
}

/* ---- reading it ---- */

static gw_status read_files(reading *r) {
    gw_arena *a = r->cli->arena;
    const char *trace = gw_path_join(a, r->dir, "trace-rank-0.json");
    if (!gw_path_exists(trace)) trace = gw_path_join(a, r->dir, "trace.json");
    GW_TRY(
        gw_json_read_file(gw_path_join(a, r->dir, "summary.json"), 0, &r->summary, r->cli->diags));
    GW_TRY(gw_metrics_read(gw_path_join(a, r->dir, "metrics.jsonl"), a, &r->h, r->cli->diags));
    if (!gw_path_exists(trace)) return GW_OK;
    return gw_json_read_file(trace, 0, &r->trace, r->cli->diags);
}

static gw_status compare(reading *r) {
    GW_TRY(read_files(r));
    GW_TRY(gw_cli_machine(r->cli, &r->m, &r->stated));
    if (!r->stated) GW_TRY(gw_cli_machine_here(r->cli, &r->t, &r->m, &r->stated));
    gw_machine_share(&r->m, gw_runfile_ranks(&r->t.rf));
    GW_TRY(gw_planned_init(&r->p, &r->t.setup, r->stated ? &r->m : NULL, r->cli->diags));
    gw_status st = r->stated ? gw_cli_simulate(r->cli, &r->t, &r->p, &r->m, false, &r->sim) : GW_OK;
    if (st == GW_OK) {
        add_all(r);
        compare_ops(r);
        note_ops(r);
        note_waits(r);
        note_machine(r);
        if (gw_cli_flag(r->cli, "json"))
            print_json(r);
        else
            print_text(r);
    }
    gw_simplan_release(&r->sim);
    gw_planned_release(&r->p);
    return st;
}

gw_status gw_cli_plan_run(gw_cli *cli, const char *dir) {
    reading *r = gw_mem_zalloc(sizeof *r);
    r->cli = cli;
    r->dir = dir;
    gw_status st = gw_target_init(&r->t, cli, gw_path_join(cli->arena, dir, "config.yaml"));
    if (st == GW_OK) {
        st = compare(r);
        gw_target_release(&r->t);
    }
    json_decref(r->summary);
    json_decref(r->trace);
    gw_mem_free(r);
    return st;
}

// SPDX-License-Identifier: Apache-2.0
// `gradwright schedule`: what the ranks of a pipeline do, without a model.
//
// A schedule is a list of actions for each rank. Here one of the built-in kinds is made for so many
// ranks, stages and micro-batches, or a file with one is read, and then it is printed as text (the
// form that a file has), drawn, or measured by the clock that `plan` and the searching schedules
// use: every figure is derived from the lists. Beside it stands the known formula where the kind
// has one; the schedules made by hand are equal to it.
//
// Costs are of one stage and one micro-batch in any unit of time, all stages alike.
#include <inttypes.h> /* PRId64 */
#include <jansson.h>  /* json_t */
#include <math.h>     /* isnan */
#include <string.h>

#include "base/io.h"       /* gw_path_exists */
#include "base/output.h"   /* gw_output_write */
#include "base/str.h"      /* gw_str, gw_parse_f64 */
#include "base/term.h"     /* gw_table, gw_term_width */
#include "cli/command.h"   /* gw_command */
#include "plan/timeline.h" /* gw_timeline */
#include "sched/sched.h"   /* gw_schedule_make, gw_sched_time */

static const gw_option options[] = {
    {"ranks", 'n', "P", "ranks of the pipeline", GW_OPT_INT, NULL},
    {"virtual", 0, "V", "stages a rank; what the schedule is made for", GW_OPT_INT, NULL},
    {"micro-batches", 'm', "M", "micro-batches of a step", GW_OPT_INT, NULL},
    {"costs", 0, "F,I,W,SEND", "times of a stage's halves and of a message; 1,1,1,0", GW_OPT_STRING,
     NULL},
    {"memory", 0, "X", "for searches: micro-batches a rank holds; 0: as named", GW_OPT_DOUBLE,
     NULL},
    {"places", 0, "N", "messages under way between two stages, each way; 2", GW_OPT_INT, NULL},
    {"text", 't', NULL, "print the schedule itself, to be edited and loaded", GW_OPT_FLAG, NULL},
    {"timeline", 0, NULL, "draw it", GW_OPT_FLAG, NULL},
    {"svg", 0, "FILE", "draw it as a picture", GW_OPT_STRING, NULL},
    GW_OPTION_JSON,
};

enum { PLACES = 2 }; /* as layout.message_places */

/* A schedule with what it costs and what it comes to. */
typedef struct figures {
    gw_schedule s;
    const gw_sched_kind *kind; /* NULL: from a file */
    gw_sched_request request;
    double cost[4]; /* forward, input, weight, message; of each stage */
    int places;
    gw_sched_times times;
    double formula; /* idle time / computing time, or NAN */
    gw_arena *a;
} figures;

// ------------------------------------------------------------------ making it

static gw_status read_costs(gw_cli *cli, double cost[4]) {
    const char *text = gw_cli_string(cli, "costs", "1,1,1,0"), *p = text;
    int n = 0;
    cost[3] = 0;
    for (; n < 4; n++) {
        size_t len = strcspn(p, ",");
        const char *word = gw_arena_strndup(cli->arena, p, len);
        if (!gw_parse_f64(word, &cost[n]) || cost[n] < 0 || cost[n] > 1e9) break;
        p += len;
        if (!*p) break;
        p++;
    }
    bool whole = n >= 2 && !*p;
    if (whole && cost[0] + cost[1] + cost[2] > 0) return GW_OK;
    if (whole)
        return gw_cli_usage_error(cli, "--costs is '%s': forward, input or weight must take time",
                                  text);
    return gw_cli_usage_error(cli,
                              "--costs is '%s'; write forward,input,weight or "
                              "forward,input,weight,message, numbers of at least 0: 1,1,1,0.1",
                              text);
}

static bool is_file(const char *name) {
    return gw_str_starts(name, "file:") || strchr(name, '/') ||
           (!gw_sched_kind_find(name) && gw_path_exists(name));
}

static gw_status read_file(gw_cli *cli, figures *f, const char *name) {
    static const char *const made[] = {"ranks", "virtual", "micro-batches", "memory"};
    for (size_t i = 0; i < GW_COUNT(made); i++)
        if (gw_cli_given(cli, made[i]))
            return gw_cli_usage_error(
                cli, "--%s is for a schedule that is made; %s says all itself", made[i], name);
    GW_TRY(
        gw_schedule_read(name + (gw_str_starts(name, "file:") ? 5 : 0), f->a, &f->s, cli->diags));
    f->request = (gw_sched_request){.ranks = f->s.ranks,
                                    .virtual_stages = f->s.stages / f->s.ranks,
                                    .micro_batches = f->s.micro_batches};
    return GW_OK;
}

static gw_sched_costs costs_of(const figures *f, int stages) {
    double *each[4];
    for (int k = 0; k < 4; k++) {
        each[k] = gw_arena_new(f->a, double, stages);
        for (int s = 0; s < stages; s++) each[k][s] = f->cost[k];
    }
    return (gw_sched_costs){
        .forward = each[0], .input = each[1], .weight = each[2], .send = each[3]};
}

static gw_status count(gw_cli *cli, const char *name, int64_t most, int64_t *out) {
    *out = gw_cli_int(cli, name, 0);
    if (*out >= 0 && *out <= most && (*out > 0 || !gw_cli_given(cli, name))) return GW_OK;
    return gw_cli_usage_error(cli, "--%s takes a number from 1 to %" PRId64, name, most);
}

static gw_status make(gw_cli *cli, figures *f, const char *name) {
    int64_t ranks, v, m;
    GW_TRY(count(cli, "ranks", GW_SCHED_MAX_RANKS, &ranks));
    GW_TRY(count(cli, "virtual", GW_SCHED_MAX_STAGES, &v));
    GW_TRY(count(cli, "micro-batches", GW_SCHED_MAX_MICRO, &m));
    double memory = gw_cli_double(cli, "memory", 0);
    f->kind = gw_sched_kind_find(name);
    if (f->kind && (ranks == 0 || m == 0))
        return gw_cli_usage_error(cli,
                                  "%s is made for a number of ranks and of micro-batches: "
                                  "--ranks 4 --micro-batches 8",
                                  name);
    if (gw_cli_given(cli, "memory") && !(memory >= 0))
        return gw_cli_usage_error(cli, "--memory takes a number from 1, or 0: what the schedule "
                                       "is named for");
    if (f->kind && gw_cli_given(cli, "memory") && !f->kind->searches)
        return gw_cli_usage_error(cli, "%s is one fixed order: --memory is for those that search",
                                  name);
    f->request = (gw_sched_request){.ranks = (int)ranks,
                                    .virtual_stages = (int)v,
                                    .micro_batches = (int32_t)m,
                                    .memory = memory,
                                    .places = f->places};
    if (f->kind) f->request = gw_sched_filled(f->kind, &f->request);
    int64_t stages = (int64_t)f->request.ranks * f->request.virtual_stages;
    gw_sched_costs c = costs_of(f, (int)GW_MIN(stages, (int64_t)GW_SCHED_MAX_STAGES));
    f->request.costs = &c;
    gw_status st = gw_schedule_make(name, &f->request, f->a, &f->s, cli->diags);
    f->request.costs = NULL;
    return st;
}

static gw_status find_figures(gw_cli *cli, figures *f, const char *name) {
    *f = (figures){.a = cli->arena, .formula = (double)NAN};
    GW_TRY(read_costs(cli, f->cost));
    int64_t places = PLACES;
    if (gw_cli_given(cli, "places")) GW_TRY(count(cli, "places", GW_SCHED_MAX_MICRO, &places));
    f->places = (int)places;
    GW_TRY(is_file(name) ? read_file(cli, f, name) : make(cli, f, name));
    gw_sched_costs c = costs_of(f, f->s.stages);
    gw_sched_time(&f->s, &c, f->places, f->a, &f->times);
    if (f->kind && f->cost[3] <= 0)
        f->formula =
            gw_sched_formula(f->kind->name, &f->request, f->cost[0], f->cost[1], f->cost[2]);
    return GW_OK;
}

/* Formulas of schedules in halves are of the rank with the longest span, those of the others of the
 * step: of schedules that begin and end on rank 0 both are the same. */
static bool of_span(const figures *f) { return f->kind && f->kind->halves; }

static const char *stages_of(const figures *f, int rank) {
    gw_str s = {0};
    for (int i = 0; i < f->s.stages; i++)
        if (f->s.rank_of[i] == rank) gw_str_printf(&s, "%s%d", s.len ? " " : "", i);
    const char *text = gw_arena_strdup(f->a, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

// ------------------------------------------------------------------ for people

#define TEXT(...) gw_arena_printf(f->a, __VA_ARGS__)

static const char *percent(const figures *f, double x) {
    return isnan(x) ? "" : TEXT("%.1f %%", 100 * x + (x < 0 && x > -5e-4 ? -100 * x : 0));
}

static void print_bubbles(const figures *f, FILE *out) {
    const gw_sched_times *t = &f->times;
    double of_step = of_span(f) ? (double)NAN : f->formula;
    double span = of_span(f) ? f->formula : (double)NAN;
    gw_table *table = gw_table_new("lrrl");
    gw_table_row(table, "", "derived", "formula", "");
    gw_table_row(table, "bubble/compute", percent(f, t->bubble_compute), percent(f, of_step),
                 "idle time over computing time");
    gw_table_row(table, "bubble/step", percent(f, t->bubble_step),
                 percent(f, of_step / (1 + of_step)), "idle time over the step");
    gw_table_row(table, "idle of the step", percent(f, t->idle_step), "",
                 "of the rank that computes least");
    gw_table_row(table, "idle of the longest span", percent(f, t->idle_longest),
                 percent(f, span / (1 + span)),
                 "of the rank with the longest, first action to last");
    gw_table_row(table, "step", TEXT("%.6g", t->step), "", "");
    gw_table_row(table, "longest span", TEXT("%.6g", t->longest_span), "", "");
    gw_table_row(table, "messages", TEXT("%" PRId64, t->messages), "",
                 TEXT("%" PRId64 " by the rank that sends most", t->most_messages));
    gw_table_print(table, out, "");
    gw_table_free(table);
}

static void print_ranks(const figures *f, FILE *out) {
    gw_table *table = gw_table_new("rlrrrrr");
    gw_table_row(table, "rank", "stages", "actions", "computes", "idle", "micro-batches held",
                 "activations held");
    for (int r = 0; r < f->s.ranks; r++)
        gw_table_row(table, TEXT("%d", r), stages_of(f, r), TEXT("%" PRId64, f->s.lists[r].n),
                     TEXT("%.6g", f->times.busy[r]),
                     percent(f, 1 - f->times.busy[r] / f->times.step),
                     TEXT("%" PRId64, f->times.micro_held[r]), TEXT("%.6g", f->times.held[r]));
    gw_table_print(table, out, "");
    gw_table_free(table);
    fprintf(out,
            GW_SCHED_HELD "\nactivations in those of one micro-batch of one stage, of which half "
                          "stays from I to W\n");
}

static void print_figures(const figures *f, FILE *out) {
    const gw_schedule *s = &f->s;
    fprintf(out, "%s: %d rank%s, %d stage%s, %d micro-batch%s%s%s\n", s->name, s->ranks,
            s->ranks == 1 ? "" : "s", s->stages, s->stages == 1 ? "" : "s", s->micro_batches,
            s->micro_batches == 1 ? "" : "es", f->kind ? "; " : "", f->kind ? f->kind->doc : "");
    fprintf(out,
            "of a stage and a micro-batch: forward %g, backward to inputs %g, to weights %g; a "
            "message %g\n\n",
            f->cost[0], f->cost[1], f->cost[2], f->cost[3]);
    print_bubbles(f, out);
    fputc('\n', out);
    print_ranks(f, out);
}

static void print_kinds(FILE *out, gw_arena *a) {
    gw_table *table = gw_table_new("lrll");
    gw_table_row(table, "schedule", "stages a rank", "backward", "");
    for (int i = 0; gw_sched_kind_at(i); i++) {
        const gw_sched_kind *k = gw_sched_kind_at(i);
        gw_table_row(table, k->name, gw_arena_printf(a, "%d", k->made_for),
                     k->halves ? "in halves" : "whole", k->doc);
    }
    gw_table_print(table, out, "");
    gw_table_free(table);
    fprintf(out, "\ngradwright schedule NAME --ranks 4 --micro-batches 8 says what one comes to\n");
}

// ------------------------------------------------------------------ for machines

static json_t *real(double x) { return isnan(x) ? json_null() : json_real(x); }

static json_t *both(double derived, double formula) {
    return json_pack("{s:o, s:o}", "derived", real(derived), "formula", real(formula));
}

static json_t *ranks_json(const figures *f) {
    json_t *all = json_array();
    for (int r = 0; r < f->s.ranks; r++) {
        json_t *stages = json_array();
        for (int s = 0; s < f->s.stages; s++)
            if (f->s.rank_of[s] == r) json_array_append_new(stages, json_integer(s));
        json_array_append_new(
            all,
            json_pack("{s:i, s:o, s:I, s:f, s:f, s:I, s:f}", "rank", r, "stages", stages, "actions",
                      (json_int_t)f->s.lists[r].n, "busy", f->times.busy[r], "idle",
                      1 - f->times.busy[r] / f->times.step, "micro_batches_held",
                      (json_int_t)f->times.micro_held[r], "activations_held", f->times.held[r]));
    }
    return all;
}

static void print_json(const figures *f, FILE *out) {
    const gw_sched_times *t = &f->times;
    double of_step = of_span(f) ? (double)NAN : f->formula;
    double span = of_span(f) ? f->formula : (double)NAN;
    json_t *j = json_pack("{s:s, s:i, s:i, s:i, s:{s:f, s:f, s:f, s:f}}", "schedule", f->s.name,
                          "ranks", f->s.ranks, "stages", f->s.stages, "micro_batches",
                          (int)f->s.micro_batches, "costs", "forward", f->cost[0], "input",
                          f->cost[1], "weight", f->cost[2], "message", f->cost[3]);
    json_object_set_new(j, "bubble_compute", both(t->bubble_compute, of_step));
    json_object_set_new(j, "bubble_step", both(t->bubble_step, of_step / (1 + of_step)));
    json_object_set_new(j, "idle_longest_span", both(t->idle_longest, span / (1 + span)));
    json_object_set_new(j, "idle_step", json_real(t->idle_step));
    json_object_set_new(j, "step", json_real(t->step));
    json_object_set_new(j, "longest_span", json_real(t->longest_span));
    json_object_set_new(j, "messages", json_integer(t->messages));
    json_object_set_new(j, "most_messages_of_a_rank", json_integer(t->most_messages));
    json_object_set_new(j, "by_rank", ranks_json(f));
    json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    json_decref(j);
}

// ------------------------------------------------------------------ the command

static gw_status draw(gw_cli *cli, const figures *f) {
    gw_timeline t;
    gw_timeline_of_schedule(&t, &f->s, &f->times, "", cli->arena);
    const char *path = gw_cli_string(cli, "svg", NULL);
    if (!path) {
        int width = gw_term_is_tty(cli->out) ? gw_term_width(cli->out) : 100;
        gw_timeline_print(&t, width, cli->colour, cli->out);
        return GW_OK;
    }
    gw_str svg = {0};
    gw_timeline_svg(&t, &svg);
    gw_status st = gw_output_write(path, cli->out, svg.data, (int64_t)svg.len, cli->diags);
    if (st == GW_OK && !cli->quiet && !gw_output_is_standard(path)) fprintf(cli->out, "%s\n", path);
    gw_str_release(&svg);
    return st;
}

static gw_status run(gw_cli *cli) {
    bool text = gw_cli_flag(cli, "text"), timeline = gw_cli_flag(cli, "timeline");
    bool json = gw_cli_flag(cli, "json"), svg = gw_cli_given(cli, "svg");
    if (text + timeline + json + svg > 1)
        return gw_cli_usage_error(cli, "--text, --timeline, --svg and --json exclude each other");
    if (cli->nargs == 0) {
        print_kinds(cli->out, cli->arena);
        return GW_OK;
    }
    figures *f = gw_arena_new(cli->arena, figures, 1);
    GW_TRY(find_figures(cli, f, cli->args[0]));
    if (timeline || svg) return draw(cli, f);
    if (json) {
        print_json(f, cli->out);
    } else if (text) {
        gw_str out = {0};
        gw_schedule_print(&f->s, &out);
        fwrite(gw_str_c(&out), 1, out.len, cli->out);
        gw_str_release(&out);
    } else {
        print_figures(f, cli->out);
    }
    return GW_OK;
}

const gw_command gw_cmd_schedule = {
    .name = "schedule",
    .summary = "what the ranks of a pipeline do: as text, drawn, in figures",
    .usage = {"NAME --ranks P --micro-batches M [--virtual V]",
              "FILE [--text|--timeline|--svg FILE|--json]"},
    .description =
        "Makes a schedule of a pipeline, or reads one from a file, checks it and derives\n"
        "its bubble and what ranks hold from it. Without a name: which there are.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 0,
    .max_args = 1,
    .completes = GW_COMPLETE_WORDS,
    .words = "gpipe 1f1b interleaved zb-h1 zb-2p zbv dualpipev",
    .example = "gradwright schedule 1f1b --ranks 4 --micro-batches 8 --timeline",
    .run = run,
};

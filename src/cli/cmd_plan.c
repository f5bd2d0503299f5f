// SPDX-License-Identifier: Apache-2.0
// `gradwright plan`: what a training step takes, before anything is allocated.
//
// Compiles the run's step exactly as `train` does and prints the ledger of the program, then the
// verdict: does it fit into the memory this process may use, and if not, what is the smallest
// change that would make it fit. `--why` explains a layout instead, degree by degree (plan_why.c);
// of a layout that is in use the page has the explanation too. Of a pipeline each rank's program is
// compiled, and the verdict is about the largest. `--timeline` and `--svg` draw what its ranks do
// when, from the schedule's clock or, of a run's directory, from what the run measured.
#include <stdio.h>

#include "base/io.h"        /* gw_path_is_dir, gw_path_join */
#include "base/str.h"       /* gw_fmt_bytes */
#include "base/term.h"      /* gw_table */
#include "cli/command.h"    /* gw_command */
#include "cli/plan_fit.h"   /* gw_fit */
#include "cli/placements.h" /* gw_cli_print_placements */
#include "cli/plan_why.h"   /* gw_cli_print_why */
#include "cli/planarg.h"    /* gw_target */
#include "run/memory.h"     /* gw_memory_available */

static const gw_option options[] = {
    {"ranks", 'n', "N", "plan for N ranks: layout.dp auto becomes N", GW_OPT_INT, NULL},
    GW_OPTION_SET,
    {"memory", 'm', "BYTES", "judge by this much memory, not by this machine's", GW_OPT_BYTES,
     NULL},
    {"why", 'w', "LAYOUT", "what a layout costs, by degree: tp, cp (repeatable)", GW_OPT_LIST,
     "tp cp"},
    {"hardware", 0, "SPEC", "of --why and pipelines: h100, flops=312e12,link=300GB/s",
     GW_OPT_STRING, NULL},
    {"timeline", 0, NULL, "draw what the ranks of a pipeline do", GW_OPT_FLAG, NULL},
    {"svg", 0, "FILE", "the same as a picture", GW_OPT_STRING, NULL},
    {"all", 'a', NULL, "print every table in full", GW_OPT_FLAG, NULL},
    GW_OPTION_JSON,
};

#define BYTES(x) gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x) gw_fmt_count((char[40]){0}, (x))

static const gw_fit_try *answer(const gw_fit *f) {
    return f->ntries && f->tries[f->ntries - 1].fits ? &f->tries[f->ntries - 1] : NULL;
}

/* "a=1 b=2" -> "--set a=1 --set b=2" */
static void print_sets(const char *change, FILE *out) {
    fputs("--set ", out);
    for (; *change; change++)
        if (*change == ' ')
            fputs(" --set ", out);
        else
            fputc(*change, out);
}

static void print_tries(const gw_fit *f, FILE *out) {
    gw_table *t = gw_table_new("lrl");
    gw_table_row(t, "change", "total", "");
    for (int i = 0; i < f->ntries; i++) {
        const gw_fit_try *x = &f->tries[i];
        if (x->at_least) continue;
        char short_by[64];
        snprintf(short_by, sizeof short_by, "short by %s",
                 BYTES(x->total_bytes - f->available_bytes));
        gw_table_row(t, x->change, BYTES(x->total_bytes), x->fits ? "fits" : short_by);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

static void print_hopeless(const gw_fit *f, const gw_ledger *l, FILE *out) {
    int64_t least = INT64_MAX;
    bool compiled = false;
    for (int i = 0; i < f->ntries; i++) {
        if (f->tries[i].at_least)
            least = GW_MIN(least, f->tries[i].total_bytes);
        else
            compiled = true;
    }
    if (compiled) print_tries(f, out);
    fprintf(out, "  no recomputation, micro-batch, length or precision makes it fit");
    if (!compiled && least < INT64_MAX)
        fprintf(out,
                ":\n  parameters, optimizer states and the step's batch alone take at least %s",
                BYTES(least));
    if (f->available_bytes > 0 && l->static_bytes > f->available_bytes)
        fprintf(out,
                "\n  static bytes / this memory = %s / %s: %s such memories, before activations",
                BYTES(l->static_bytes), BYTES(f->available_bytes),
                COUNT((l->static_bytes + f->available_bytes - 1) / f->available_bytes));
    fputc('\n', out);
}

static void print_verdict(const gw_fit *f, const gw_ledger *l, const char *limit, FILE *out) {
    fprintf(out, "\nverdict\n");
    if (f->short_bytes == 0) {
        fprintf(out, "  fits: %s of %s (%s), %s to spare\n", BYTES(l->total_bytes),
                BYTES(f->available_bytes), limit, BYTES(f->available_bytes - l->total_bytes));
        return;
    }
    fprintf(out, "  does not fit: %s against %s (%s), short by %s = %s B\n", BYTES(l->total_bytes),
            BYTES(f->available_bytes), limit, BYTES(f->short_bytes), COUNT(f->short_bytes));
    const gw_fit_try *a = answer(f);
    if (!a) {
        print_hopeless(f, l, out);
        return;
    }
    print_tries(f, out);
    fprintf(out, "  the smallest change that fits, %s:\n  ", BYTES(a->total_bytes));
    print_sets(a->change, out);
    fputc('\n', out);
}

static json_t *try_json(const gw_fit_try *x) {
    return json_pack("{s:s, s:I, s:b, s:b}", "set", x->change, "total_bytes",
                     (json_int_t)x->total_bytes, "at_least", x->at_least, "fits", x->fits);
}

static json_t *verdict_json(const gw_fit *f, const char *limit) {
    json_t *tried = json_array();
    for (int i = 0; i < f->ntries; i++) (void)json_array_append_new(tried, try_json(&f->tries[i]));
    const gw_fit_try *a = answer(f);
    return json_pack("{s:b, s:I, s:s, s:I, s:o, s:o}", "fits", f->short_bytes == 0,
                     "available_bytes", (json_int_t)f->available_bytes, "limit", limit,
                     "short_bytes", (json_int_t)f->short_bytes, "change",
                     a ? try_json(a) : json_null(), "tried", tried);
}

static void print_json(const gw_target *t, const gw_ledger *l, const gw_fit *f, const char *limit,
                       json_t *why, FILE *out) {
    json_t *j = gw_plan_json(l);
    gw_str described = {0};
    gw_target_describe(t, &described);
    json_object_set_new(j, "name", json_string(t->name));
    json_object_set_new(j, "assumed", t->assumed ? json_string(gw_str_c(&described)) : json_null());
    json_object_set_new(j, "verdict", verdict_json(f, limit));
    json_object_set_new(j, "placement", gw_cli_placements_json(&t->rf, &t->setup.model));
    if (why) json_object_set(j, "why", why);
    json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    gw_str_release(&described);
    json_decref(j);
}

/* What the layout in use costs, and what another degree of it would. */
static gw_status print_layout(gw_cli *cli, const gw_target *t) {
    if (t->rf.layout.tp > 1) {
        fprintf(cli->out, "\ntensor parallelism\n");
        gw_cli_print_placements(&t->rf, &t->setup.model, "  ", cli->out);
        GW_TRY(gw_cli_print_why(cli, t, "tp"));
    }
    return t->rf.layout.cp > 1 ? gw_cli_print_why(cli, t, "cp") : GW_OK;
}

static gw_status print_text(gw_cli *cli, const gw_target *t, const gw_ledger *l, const gw_fit *f,
                            const char *limit) {
    FILE *out = cli->out;
    gw_str described = {0};
    gw_target_describe(t, &described);
    gw_plan_print(l, t->name, gw_cli_flag(cli, "all"), cli->verbose, out);
    gw_status st = print_layout(cli, t);
    print_verdict(f, l, limit, out);
    if (t->assumed)
        fprintf(out,
                "\nassumed, since no run file says otherwise (--set changes any of it):\n  %s\n",
                gw_str_c(&described));
    gw_str_release(&described);
    return st;
}

static gw_status read_hardware(gw_cli *cli, gw_hardware *hw, const gw_hardware **stated) {
    *stated = NULL;
    if (!gw_cli_given(cli, "hardware")) return GW_OK;
    *stated = hw;
    return gw_hardware_parse(gw_cli_string(cli, "hardware", ""), hw, cli->diags);
}

static gw_status plan(gw_cli *cli, const gw_target *t) {
    gw_planned p;
    gw_hardware machine;
    const gw_hardware *hw;
    gw_runfile_note_idle(&t->rf);
    GW_TRY(read_hardware(cli, &machine, &hw));
    GW_TRY(gw_planned_init(&p, &t->setup, hw, cli->diags));
    const gw_ledger *l = &p.ranks[p.largest];
    char limit[160] = "given by --memory";
    int64_t memory = gw_cli_given(cli, "memory") ? gw_cli_int(cli, "memory", 0)
                                                 : gw_memory_available(limit, (int)sizeof limit);
    gw_fit f;
    gw_status st = gw_fit_find(&f, &t->setup, l, memory, cli->diags);
    json_t *why = NULL;
    bool json = gw_cli_flag(cli, "json");
    const char *const *topics;
    int ntopics = gw_cli_list(cli, "why", &topics);
    for (int i = 0; st == GW_OK && json && i < ntopics; i++)
        st = gw_cli_why_json(cli, t, topics[i], &why);
    if (st == GW_OK && json) print_json(t, l, &f, limit, why, cli->out);
    if (st == GW_OK && !json) st = print_text(cli, t, l, &f, limit);
    json_decref(why);
    gw_planned_release(&p);
    return st;
}

/* A stated machine that nothing of the output is about is a mistake. */
static gw_status check_hardware(gw_cli *cli, const gw_target *t) {
    const gw_rf_layout *l = &t->rf.layout;
    bool page = !gw_cli_flag(cli, "json") && (l->tp > 1 || l->cp > 1);
    if (!gw_cli_given(cli, "hardware") || gw_cli_given(cli, "why") || page || l->pp > 1)
        return GW_OK;
    return gw_cli_usage_error(cli, "--hardware is the machine of an explanation or a pipeline, and "
                                   "there is none: give --why tp or --why cp with it");
}

static gw_status explain_or_plan(gw_cli *cli, const gw_target *t) {
    const char *const *topics;
    int n = gw_cli_list(cli, "why", &topics);
    GW_TRY(check_hardware(cli, t));
    if (n == 0 || gw_cli_flag(cli, "json")) return plan(cli, t);
    for (int i = 0; i < n; i++) GW_TRY(gw_cli_print_why(cli, t, topics[i]));
    return GW_OK;
}

/* ---- drawing a pipeline ---- */

static bool draws(const gw_cli *cli) {
    return gw_cli_flag(cli, "timeline") || gw_cli_given(cli, "svg");
}

static gw_status draw(gw_cli *cli, const gw_timeline *t) {
    const char *path = gw_cli_string(cli, "svg", NULL);
    if (gw_cli_flag(cli, "timeline"))
        gw_timeline_print(t, gw_term_is_tty(cli->out) ? gw_term_width(cli->out) : 100, cli->colour,
                          cli->out);
    if (!path) return GW_OK;
    gw_str svg = {0};
    gw_timeline_svg(t, &svg);
    gw_status st = gw_file_write_atomic(path, svg.data, (int64_t)svg.len, cli->diags);
    if (st == GW_OK && !cli->quiet) fprintf(cli->out, "%s\n", path);
    gw_str_release(&svg);
    return st;
}

static gw_status draw_run(gw_cli *cli, const char *file) {
    gw_timeline t;
    GW_TRY(gw_timeline_read(&t, file, cli->arena, cli->diags));
    return draw(cli, &t);
}

static gw_status draw_plan(gw_cli *cli, const gw_target *t) {
    gw_planned p;
    gw_hardware machine;
    const gw_hardware *hw;
    gw_timeline line;
    if (!t->setup.schedule)
        return gw_cli_usage_error(cli,
                                  "--timeline and --svg draw a pipeline, and %s has none: "
                                  "layout.pp is 1",
                                  t->name);
    GW_TRY(read_hardware(cli, &machine, &hw));
    GW_TRY(gw_planned_init(&p, &t->setup, hw, cli->diags));
    gw_pipeplan_timeline(&p.pipeline, &line, cli->arena);
    gw_planned_release(&p);
    return draw(cli, &line);
}

static gw_status run(gw_cli *cli) {
    gw_target t;
    const char *spec = cli->args[0];
    if (draws(cli) && (gw_cli_flag(cli, "json") || gw_cli_given(cli, "why")))
        return gw_cli_usage_error(cli, "--timeline and --svg draw; --json and --why do not");
    if (draws(cli) && gw_path_is_dir(spec)) {
        const char *file = gw_path_join(cli->arena, spec, GW_TIMELINE_FILE);
        if (gw_path_exists(file)) return draw_run(cli, file);
    }
    GW_TRY(gw_target_init(&t, cli, spec));
    gw_status st = draws(cli) ? draw_plan(cli, &t) : explain_or_plan(cli, &t);
    gw_target_release(&t);
    return st;
}

const gw_command gw_cmd_plan = {
    .name = "plan",
    .summary = "what a training step takes: bytes by cause, FLOPs, kernels",
    .usage = {"RUN.yaml [--set KEY=VALUE]... [--json]",
              "PRESET|MODEL_DIR|FILE.gguf [--set KEY=VALUE]... [--json]",
              "RUN.yaml|RUN_DIR --timeline"},
    .description = "Compiles the step as `train` does, says what it takes and whether it fits; if\n"
                   "not, the smallest change that would. Defaults are printed. JSON: docs/plan.md.",
    .options = options,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright plan llama3-8b --set recompute.policy=full --memory 80GB",
    .run = run,
};

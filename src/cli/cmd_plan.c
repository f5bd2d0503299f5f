// SPDX-License-Identifier: Apache-2.0
// `gradwright plan`: what a training step takes, before anything is allocated.
//
// Compiles the run's step exactly as `train` does and prints the ledger of the program, then the
// verdict: does it fit into the memory this process may use, and if not, what is the smallest
// change that would make it fit. `--why` explains a layout instead, degree by degree (plan_why.c);
// of a layout that is in use the page has the explanation too. Of a pipeline each rank's program is
// compiled, and the verdict is about the largest. `--timeline` and `--svg` draw what its ranks do
// when, from the schedule's clock or, of a run's directory, from what the run measured.
//
// `--hardware` names the machine that the page is about: the step is simulated there (plan_sim.c),
// and what this host would take is left out. The line, the machine and the run file are read before
// anything is compiled, and all that is wrong with them is said together. What was found out goes
// to every output as one gw_plan_view.
#include <stdio.h>

#include "base/io.h"             /* gw_path_is_dir, gw_path_join */
#include "base/output.h"         /* gw_output_write */
#include "base/str.h"            /* gw_fmt_bytes */
#include "base/term.h"           /* gw_table */
#include "cli/command.h"         /* gw_command */
#include "cli/plan_checkpoint.h" /* gw_cli_plan_checkpoint */
#include "cli/plan_data.h"       /* gw_cli_plan_data */
#include "cli/plan_fit.h"        /* gw_fit */
#include "cli/plan_html.h"       /* gw_cli_plan_html */
#include "cli/placements.h"      /* gw_cli_print_placements */
#include "cli/plan_run.h"        /* gw_cli_plan_run, gw_cli_machine_here */
#include "cli/plan_search.h"     /* gw_cli_search */
#include "cli/plan_sim.h"        /* gw_cli_simulate */
#include "cli/plan_view.h"       /* gw_plan_view */
#include "cli/plan_why.h"        /* gw_cli_print_why */
#include "cli/planarg.h"         /* gw_target */
#include "cli/runarg.h"          /* gw_cli_print_sets */
#include "plan/calibrate.h"      /* gw_machine_share */
#include "run/memory.h"          /* gw_memory_available */

static const gw_option options[] = {
    {"world", 0, "N", "plan for N chips: layout.dp is what other axes leave", GW_OPT_INT, NULL},
    GW_OPTION_SET,
    {"memory", 'm', "BYTES", "judge by this much memory, not by this machine's", GW_OPT_BYTES,
     NULL},
    {"why", 'w', "LAYOUT", "what a layout costs, by degree: tp, cp (repeatable)", GW_OPT_LIST,
     "tp cp"},
    {"hardware", 0, "SPEC", "simulate the step there: h100, FILE, h100,link=3e11", GW_OPT_STRING,
     NULL},
    GW_OPTION_HTML,
    GW_OPTION_JSON,
    /* named only, from here on */
    GW_OPTION_SEARCH,
    GW_OPTION_FAULTS,
    {"ranks", 'n', "N", "plan for N ranks: layout.dp auto becomes N", GW_OPT_INT, NULL},
    {"timeline", 0, NULL, "draw what the ranks of a pipeline do", GW_OPT_FLAG, NULL},
    {"svg", 0, "FILE", "the same as a picture", GW_OPT_STRING, NULL},
    {"trace", 0, "FILE", "the simulated step for Perfetto, with --hardware", GW_OPT_STRING, NULL},
    {"all", 'a', NULL, "print every table in full", GW_OPT_FLAG, NULL},
};

enum { DETAILED = 7 };

#define BYTES(x) gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x) gw_fmt_count((char[40]){0}, (x))

static const gw_fit_try *answer(const gw_fit *f) {
    return f->ntries && f->tries[f->ntries - 1].fits ? &f->tries[f->ntries - 1] : NULL;
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
    if (f->available_bytes == 0) {
        fprintf(out, "  takes %s; the machine's memory is not stated (--memory judges by it)\n",
                BYTES(l->total_bytes));
        return;
    }
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
    gw_cli_print_sets(a->change, out);
    fputc('\n', out);
}

static json_t *try_json(const gw_fit_try *x) {
    return json_pack("{s:s, s:I, s:b, s:b}", "set", x->change, "total_bytes",
                     (json_int_t)x->total_bytes, "at_least", x->at_least, "fits", x->fits);
}

static json_t *verdict_json(const gw_fit *f, const char *limit) {
    bool judged = f->available_bytes > 0;
    json_t *tried = json_array();
    for (int i = 0; i < f->ntries; i++) (void)json_array_append_new(tried, try_json(&f->tries[i]));
    const gw_fit_try *a = answer(f);
    return json_pack("{s:o, s:o, s:s, s:I, s:o, s:o}", "fits",
                     judged ? json_boolean(f->short_bytes == 0) : json_null(), "available_bytes",
                     judged ? json_integer((json_int_t)f->available_bytes) : json_null(), "limit",
                     limit, "short_bytes", (json_int_t)f->short_bytes, "change",
                     a ? try_json(a) : json_null(), "tried", tried);
}

/* What --json prints; a new reference. */
static json_t *plan_object(const gw_plan_view *v, json_t *why) {
    const gw_target *t = v->t;
    json_t *j = gw_plan_json(v->l);
    if (v->sim)
        gw_simplan_json(v->sim, j);
    else if (v->axes)
        gw_simplan_json_axes(v->axes, j);
    if (v->sim) gw_cli_add_roofline(v->sim, j);
    gw_str described = {0};
    gw_target_describe(t, &described);
    gw_arena mem = {0};
    gw_ckpt_size z = gw_cli_plan_checkpoint(v->p, &mem);
    gw_arena_release(&mem);
    json_object_set_new(j, "checkpoint", gw_cli_plan_checkpoint_json(&z));
    gw_dataplan data;
    bool reads = gw_cli_plan_data(v, z.bytes, &data);
    json_object_set_new(j, "data", reads ? gw_dataplan_json(&data) : json_null());
    json_object_set_new(j, "name", json_string(t->name));
    json_object_set_new(j, "assumed", t->assumed ? json_string(gw_str_c(&described)) : json_null());
    json_object_set_new(j, "verdict", verdict_json(v->fit, v->limit));
    json_object_set_new(j, "placement", gw_cli_placements_json(&t->rf, &t->setup.model));
    if (why) json_object_set(j, "why", why);
    gw_str_release(&described);
    return j;
}

static void print_json(const gw_plan_view *v, json_t *why, FILE *out) {
    json_t *j = plan_object(v, why);
    json_dumpf(j, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', out);
    json_decref(j);
}

/* What the layout in use costs, and what another degree of it would. On a stated machine the step
 * says the first, and --why the second. */
static gw_status print_layout(gw_cli *cli, const gw_plan_view *v) {
    const gw_target *t = v->t;
    bool explains = !v->sim;
    if (t->rf.layout.tp > 1) {
        fprintf(cli->out, "\ntensor parallelism\n");
        gw_cli_print_placements(&t->rf, &t->setup.model, "  ", cli->out);
        if (explains) GW_TRY(gw_cli_print_why(cli, t, "tp"));
    }
    return explains && t->rf.layout.cp > 1 ? gw_cli_print_why(cli, t, "cp") : GW_OK;
}

/* Chips that nobody counted are those that the layout needs. */
static void print_world(gw_cli *cli, const gw_plan_view *v) {
    bool told = gw_cli_given(cli, "world") || gw_cli_given(cli, "ranks");
    if (!v->sim || told || v->l->ranks == 1) return;
    fprintf(cli->out,
            "  --world N says how many chips there are; without it as many as the layout takes\n");
}

static gw_status print_text(gw_cli *cli, const gw_plan_view *v) {
    FILE *out = cli->out;
    gw_str described = {0};
    gw_target_describe(v->t, &described);
    gw_ledger l = *v->l; /* a copy that only says whose page it is */
    l.elsewhere = v->sim != NULL && !v->m->timings;
    gw_plan_print(&l, v->t->name, gw_cli_flag(cli, "all"), cli->verbose, out);
    gw_status st = print_layout(cli, v);
    if (v->sim)
        gw_simplan_print(v->sim, out);
    else if (v->axes)
        gw_simplan_print_axes(v->axes, out);
    gw_ckpt_size z = gw_cli_plan_checkpoint(v->p, cli->arena);
    gw_cli_plan_checkpoint_print(&z, out);
    gw_dataplan data;
    if (gw_cli_plan_data(v, z.bytes, &data)) gw_dataplan_print(&data, out);
    print_verdict(v->fit, v->l, v->limit, out);
    print_world(cli, v);
    if (v->t->assumed)
        fprintf(out,
                "\nassumed, since no run file says otherwise (--set changes any of it):\n  %s\n",
                gw_str_c(&described));
    gw_str_release(&described);
    return st;
}

/* What a plan has to fit into: --memory, the chip's (0: not stated), or what this process may use.
 */
static int64_t memory_of(gw_cli *cli, const gw_machine_spec *m, char limit[160]) {
    snprintf(limit, 160, "given by --memory");
    if (gw_cli_given(cli, "memory")) return gw_cli_int(cli, "memory", 0);
    if (!m || m->timings) return gw_memory_available(limit, 160);
    snprintf(limit, 160, m->memory_bytes > 0 ? "the memory of %s" : "not stated",
             *m->name ? m->name : "the machine stated");
    return (int64_t)m->memory_bytes;
}

static gw_status why_json(gw_cli *cli, const gw_target *t, json_t **why) {
    const char *const *topics;
    int n = gw_cli_list(cli, "why", &topics);
    for (int i = 0; i < n; i++) GW_TRY(gw_cli_why_json(cli, t, topics[i], why));
    return GW_OK;
}

/* ---- outputs ---- */

static bool draws(const gw_cli *cli) {
    return gw_cli_flag(cli, "timeline") || gw_cli_given(cli, "svg");
}

/* Does an output want to know when each op ran? */
static bool wants_trace(const gw_cli *cli) {
    return draws(cli) || gw_cli_given(cli, "trace") || gw_cli_given(cli, "html");
}

static gw_status show(gw_cli *cli, const gw_plan_view *v) {
    if (!gw_cli_flag(cli, "json")) return gw_cli_given(cli, "html") ? GW_OK : print_text(cli, v);
    json_t *why = NULL;
    gw_status st = why_json(cli, v->t, &why);
    if (st == GW_OK) print_json(v, why, cli->out);
    json_decref(why);
    return st;
}

/* Files beside the page or the drawing, each if it is asked for. */
static gw_status write_files(gw_cli *cli, const gw_plan_view *v) {
    const char *trace = gw_cli_string(cli, "trace", NULL);
    if (trace) GW_TRY(gw_cli_trace(v->sim, trace, cli->out, cli->diags));
    if (!gw_cli_given(cli, "html")) return GW_OK;
    json_t *j = plan_object(v, NULL);
    gw_status st = gw_cli_plan_html(cli, v, j, NULL);
    json_decref(j);
    return st;
}

/* ---- drawing a pipeline ---- */

static gw_status draw(gw_cli *cli, const gw_timeline *t) {
    const char *path = gw_cli_string(cli, "svg", NULL);
    if (gw_cli_flag(cli, "timeline"))
        gw_timeline_print(t, gw_term_is_tty(cli->out) ? gw_term_width(cli->out) : 100, cli->colour,
                          cli->out);
    if (!path) return GW_OK;
    gw_str svg = {0};
    gw_timeline_svg(t, &svg);
    gw_status st = gw_output_write(path, cli->out, svg.data, (int64_t)svg.len, cli->diags);
    if (st == GW_OK && !cli->quiet && !gw_output_is_standard(path)) fprintf(cli->out, "%s\n", path);
    gw_str_release(&svg);
    return st;
}

static gw_status draw_run(gw_cli *cli, const char *file) {
    gw_timeline t;
    GW_TRY(gw_timeline_read(&t, file, cli->arena, cli->diags));
    return draw(cli, &t);
}

static gw_status no_timeline(gw_cli *cli, const char *dir) {
    gw_diag *g = gw_diag_add(cli->diags, GW_ERROR, GW_ERR_IO, "timeline", (gw_where){0},
                             "the run in '%s' left no %s: only runs with layout.pp above 1 do", dir,
                             GW_TIMELINE_FILE);
    gw_diag_hint(cli->diags, g,
                 "its trace.json opens in Perfetto; plan %s/config.yaml --timeline --hardware "
                 "MACHINE draws a simulated step",
                 dir);
    return GW_ERR_IO;
}

/* On a stated machine the simulated step, otherwise the schedule's clock. */
static gw_status draw_plan(gw_cli *cli, const gw_plan_view *v) {
    gw_timeline line;
    if (v->sim) return draw(cli, &v->sim->timeline);
    gw_pipeplan_timeline(&v->p->pipeline, &line, cli->arena);
    return draw(cli, &line);
}

/* ---- a plan ---- */

static gw_status judge(gw_cli *cli, gw_plan_view *v) {
    char *limit = gw_arena_new(cli->arena, char, 160);
    gw_fit *f = gw_arena_new(cli->arena, gw_fit, 1);
    int64_t memory = memory_of(cli, v->m, limit);
    v->fit = f;
    v->limit = limit;
    bool judged = memory > 0 || gw_cli_given(cli, "memory") || !v->m;
    return judged ? gw_fit_find(f, &v->t->setup, v->l, memory, cli->diags) : GW_OK;
}

/* The step on the stated machine; without one, for what moves over the axes, on none. */
static gw_status simulate(gw_cli *cli, gw_plan_view *v, gw_simplan *sim) {
    const gw_machine_spec *none = gw_arena_new(cli->arena, gw_machine_spec, 1);
    if (!v->m && v->l->ranks == 1) return GW_OK;
    GW_TRY(gw_cli_simulate(cli, v->t, v->p, v->m ? v->m : none, wants_trace(cli), sim));
    v->axes = sim;
    v->sim = v->m ? sim : NULL;
    return GW_OK;
}

/* `m` NULL: none is stated. */
static gw_status plan(gw_cli *cli, const gw_target *t, const gw_machine_spec *m) {
    gw_planned p;
    gw_simplan sim = {0};
    gw_runfile_note_idle(&t->rf);
    GW_TRY(gw_planned_init(&p, &t->setup, m, cli->diags));
    gw_plan_view v = {.t = t, .p = &p, .l = &p.ranks[p.largest], .m = m};
    gw_status st = simulate(cli, &v, &sim);
    if (st == GW_OK && v.sim) p.pipeline.simulated_step = sim.sim.step_s;
    if (st == GW_OK && v.sim) p.pipeline.simulated_bubble = sim.sim.bubble;
    if (st == GW_OK && (!draws(cli) || gw_cli_given(cli, "html"))) st = judge(cli, &v);
    if (st == GW_OK) st = draws(cli) ? draw_plan(cli, &v) : show(cli, &v);
    if (st == GW_OK) st = write_files(cli, &v);
    gw_simplan_release(&sim);
    gw_planned_release(&p);
    return st;
}

static gw_status explain_or_plan(gw_cli *cli, const gw_target *t, const gw_machine_spec *m) {
    const char *const *topics;
    int n = gw_cli_list(cli, "why", &topics);
    if (n == 0 || gw_cli_flag(cli, "json")) return plan(cli, t, m);
    for (int i = 0; i < n; i++) GW_TRY(gw_cli_print_why(cli, t, topics[i]));
    return GW_OK;
}

/* ---- the line ---- */

/* What options ask of each other. */
static gw_status check_options(gw_cli *cli) {
    gw_status st = gw_cli_check_search(cli);
    const char *html = gw_cli_string(cli, "html", "");
    if (gw_cli_given(cli, "html") && !*html)
        st = gw_cli_usage_error(cli, "--html takes the name of a file, or - for standard output");
    if (gw_cli_flag(cli, "json") && gw_output_is_standard(html))
        st = gw_cli_usage_error(cli, "--json and --html - both write to standard output");
    if (gw_cli_given(cli, "html") && gw_cli_given(cli, "why") && !gw_cli_flag(cli, "json"))
        st = gw_cli_usage_error(cli, "--why explains on the terminal; --html has no page of it");
    if (draws(cli) && (gw_cli_flag(cli, "json") || gw_cli_given(cli, "why")))
        st = gw_cli_usage_error(cli, "--timeline and --svg draw; --json and --why do not");
    if (gw_cli_given(cli, "world") && gw_cli_given(cli, "ranks"))
        st = gw_cli_usage_error(cli, "--world and --ranks both say how many ranks there are");
    if (gw_cli_given(cli, "memory") && gw_cli_int(cli, "memory", 0) < 1)
        st = gw_cli_usage_error(cli, "--memory takes a size above 0, such as 80GB");
    if (gw_cli_given(cli, "hardware")) return st;
    if (gw_cli_given(cli, "trace") || gw_cli_given(cli, "faults"))
        st = gw_cli_usage_error(cli, "--trace and --faults are of a simulated step: give the "
                                     "machine with --hardware");
    return st;
}

/* Can the machine run the step at all? Only explanations do without a peak. */
static gw_status check_machine(gw_cli *cli, const gw_target *t, const gw_machine_spec *m) {
    int64_t ranks = gw_runfile_ranks(&t->rf), reach = gw_machine_reach(m);
    gw_status st = GW_OK;
    if (gw_machine_flops(m, GW_BF16) <= 0 && gw_machine_flops(m, GW_F32) <= 0)
        st = gw_cli_usage_error(cli,
                                "--hardware '%s' states no peak, and a step takes products: "
                                "add flops=312e12",
                                m->asked);
    if (ranks > 1 && m->ntiers == 0)
        st = gw_cli_usage_error(cli,
                                "--hardware '%s' states no link, and there are %lld ranks: add "
                                "link=300GB/s",
                                m->asked, (long long)ranks);
    else if (reach > 0 && ranks > reach)
        st = gw_cli_usage_error(cli,
                                "--hardware '%s' states links among %lld ranks, and there are "
                                "%lld: add beyond=25GB/s",
                                m->asked, (long long)reach, (long long)ranks);
    return st;
}

/* All that is wrong with the line, the machine and the run is said at once. */
static gw_status read_line(gw_cli *cli, const char *spec, gw_target *t, gw_machine_spec *m,
                           bool *stated) {
    gw_status line = check_options(cli), machine = gw_cli_machine(cli, m, stated);
    gw_status target = gw_target_init(t, cli, spec);
    if (target != GW_OK) return target;
    bool explains = gw_cli_given(cli, "why") && !gw_cli_flag(cli, "json");
    if (machine == GW_OK && *stated && !explains) machine = check_machine(cli, t, m);
    if (line == GW_OK) line = machine;
    if (line != GW_OK) gw_target_release(t);
    return line;
}

static gw_status check_drawn(gw_cli *cli, const gw_target *t, bool stated) {
    if (!draws(cli) || t->setup.schedule || stated) return GW_OK;
    return gw_cli_usage_error(cli,
                              "--timeline and --svg draw a pipeline or a machine's step, and %s "
                              "has neither: layout.pp is 1 and there is no --hardware",
                              t->name);
}

static gw_status run(gw_cli *cli) {
    gw_target t;
    gw_machine_spec m = {0};
    bool stated = false;
    const char *spec = gw_cli_html_spec(cli, cli->args[0]);
    if (draws(cli) && gw_path_is_dir(spec)) {
        const char *file = gw_path_join(cli->arena, spec, GW_TIMELINE_FILE);
        if (gw_path_exists(file)) {
            GW_TRY(check_options(cli));
            return draw_run(cli, file);
        }
        if (gw_path_exists(gw_path_join(cli->arena, spec, "metrics.jsonl")))
            return no_timeline(cli, spec);
    }
    if (gw_cli_is_run(spec) && (gw_cli_searches(cli) || gw_cli_given(cli, "faults")))
        return gw_cli_usage_error(cli,
                                  "'%s' is a run that is over: --search and --faults are of a "
                                  "plan; give them with its config.yaml",
                                  spec);
    if (!gw_cli_is_run(spec) && gw_path_exists(gw_path_join(cli->arena, spec, "metrics.jsonl")))
        return gw_cli_usage_error(cli,
                                  "'%s' is a run without summary.json: it still goes on, or was "
                                  "ended from outside; its config.yaml can be planned",
                                  spec);
    if (gw_cli_is_run(spec) && !draws(cli) && !gw_cli_given(cli, "html"))
        return gw_cli_plan_run(cli, spec);
    GW_TRY(read_line(cli, spec, &t, &m, &stated));
    gw_status st = check_drawn(cli, &t, stated);
    if (st == GW_OK && !stated) st = gw_cli_machine_here(cli, &t, &m, &stated);
    gw_machine_share(&m, gw_runfile_ranks(&t.rf));
    if (st == GW_OK && gw_cli_searches(cli))
        st = gw_cli_search(cli, &t, stated ? &m : NULL);
    else if (st == GW_OK)
        st = explain_or_plan(cli, &t, stated ? &m : NULL);
    gw_target_release(&t);
    return st;
}

const gw_command gw_cmd_plan = {
    .name = "plan",
    .summary = "what a training step takes: bytes, FLOPs, time on a machine",
    .usage = {"RUN.yaml|PRESET|MODEL_DIR|FILE.gguf [--set KEY=VALUE] [--json]",
              "RUN.yaml|PRESET --hardware MACHINE [--world N] [--search]",
              "RUN_DIR [--json] | RUN.yaml|RUN_DIR --timeline"},
    .description = "Compiles the step as `train` does: what it takes, whether it fits, what would.",
    .options = options,
    .named = GW_COUNT(options) - DETAILED,
    .noptions = GW_COUNT(options),
    .min_args = 1,
    .max_args = 1,
    .completes = GW_COMPLETE_FILE,
    .example = "gradwright plan llama3-8b --set recompute.policy=full --memory 80GB",
    .run = run,
};

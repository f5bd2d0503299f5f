// SPDX-License-Identifier: Apache-2.0
// From what `plan` has found out to its page.
//
// The page is made of the object that --json prints. Of a run's directory its config.yaml is
// planned as any run file is, and the run's summary.json becomes the object's "run"; the steps come
// from metrics.jsonl, the measured actions of a pipeline from timeline.json. A file that is missing
// leaves its part of the page out; one that is damaged is an error.
#include "cli/plan_html.h"

#include <math.h>
#include <string.h>

#include "base/io.h"       /* gw_path_join, gw_path_exists */
#include "base/output.h"   /* gw_output_write */
#include "file/json.h"     /* gw_json_read_file */
#include "plan/pipeplan.h" /* gw_pipeplan_timeline */
#include "plan/roofline.h" /* gw_roofline */
#include "train/metrics.h" /* gw_metrics_read */

static bool is_run(gw_cli *cli, const char *dir) {
    return gw_path_is_dir(dir) && gw_path_exists(gw_path_join(cli->arena, dir, "config.yaml")) &&
           gw_path_exists(gw_path_join(cli->arena, dir, "plan.json"));
}

const char *gw_cli_html_spec(gw_cli *cli, const char *spec) {
    bool run = gw_cli_given(cli, "html") && is_run(cli, spec);
    return run ? gw_path_join(cli->arena, spec, "config.yaml") : spec;
}

void gw_cli_add_roofline(const gw_simplan *sim, json_t *plan) {
    gw_roofline r;
    gw_roofline_init(&r, sim);
    (void)json_object_set_new(plan, "roofline", gw_roofline_json(&r));
    gw_roofline_release(&r);
}

/* As it would be typed. */
static const char *command_of(gw_cli *cli) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_=./,:+@%";
    gw_str line = {0};
    gw_str_add(&line, "gradwright");
    for (int i = 1; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        bool quotes = !*word || strspn(word, plain) != strlen(word);
        gw_str_printf(&line, quotes ? " '%s'" : " %s", word);
    }
    const char *text = gw_arena_strdup(cli->arena, gw_str_c(&line));
    gw_str_release(&line);
    return text;
}

/* ---- a run ---- */

static gw_status read_steps(gw_cli *cli, gw_html_run *run) {
    gw_history h;
    const char *path = gw_path_join(cli->arena, run->dir, "metrics.jsonl");
    GW_TRY(gw_metrics_read(path, cli->arena, &h, cli->diags));
    double *step = gw_arena_new(cli->arena, double, h.nsteps + 1);
    double *seconds = gw_arena_new(cli->arena, double, h.nsteps + 1);
    for (int64_t i = 0; i < h.nsteps; i++) {
        step[i] = (double)h.steps[i].step;
        seconds[i] = h.steps[i].step_s;
    }
    run->step = step;
    run->seconds = seconds;
    run->n = h.nsteps;
    return GW_OK;
}

/* Adds the run's summary to the plan's object. */
static gw_status read_run(gw_cli *cli, gw_html_run *run, gw_timeline *t, json_t *plan) {
    const char *summary = gw_path_join(cli->arena, run->dir, "summary.json");
    const char *timeline = gw_path_join(cli->arena, run->dir, GW_TIMELINE_FILE);
    json_t *j = NULL;
    if (gw_path_exists(summary)) {
        GW_TRY(gw_json_read_file(summary, 0, &j, cli->diags));
        (void)json_object_set_new(plan, "run", j);
    }
    GW_TRY(read_steps(cli, run));
    if (!gw_path_exists(timeline)) return GW_OK;
    GW_TRY(gw_timeline_read(t, timeline, cli->arena, cli->diags));
    run->timeline = t;
    return GW_OK;
}

/* ---- the page ---- */

static gw_status write_page(gw_cli *cli, const gw_html_input *in) {
    const char *path = gw_cli_string(cli, "html", NULL);
    gw_str page = {0};
    gw_html_page(in, &page);
    gw_status st = gw_output_write(path, cli->out, gw_str_c(&page), (int64_t)page.len, cli->diags);
    if (st == GW_OK && !cli->quiet && !gw_output_is_standard(path) && !gw_cli_flag(cli, "json"))
        fprintf(cli->out, "%s\n", path);
    gw_str_release(&page);
    return st;
}

gw_status gw_cli_plan_html(gw_cli *cli, const gw_plan_view *v, const json_t *plan,
                           const gw_html_search *search) {
    if (!gw_cli_given(cli, "html")) return GW_OK;
    gw_str layout = {0};
    gw_timeline line = {0}, measured = {0};
    gw_html_run run = {.dir = cli->args[0]};
    bool ran = is_run(cli, cli->args[0]);
    json_t *j = json_copy((json_t *)(uintptr_t)plan); /* shallow: "run" is added to the copy */
    gw_target_describe(v->t, &layout);
    gw_html_input in = {.plan = j,
                        .name = ran ? run.dir : v->t->name,
                        .layout = gw_str_c(&layout),
                        .command = command_of(cli),
                        .sim = v->sim,
                        .search = search,
                        .run = ran ? &run : NULL};
    if (v->sim) {
        in.timeline = &v->sim->timeline;
    } else if (v->p->n > 1) {
        gw_pipeplan_timeline(&v->p->pipeline, &line, cli->arena);
        in.timeline = &line;
    }
    gw_status st = ran ? read_run(cli, &run, &measured, j) : GW_OK;
    if (st == GW_OK) st = write_page(cli, &in);
    json_decref(j);
    gw_str_release(&layout);
    return st;
}

/* ---- a search ---- */

static int read_points(gw_cli *cli, const gw_search *s, gw_html_point *points) {
    int n = 0, most = (int)s->candidates.count;
    int64_t *front = gw_arena_new(cli->arena, int64_t, most + 1);
    bool *is_front = gw_arena_new(cli->arena, bool, most + 1);
    for (int k = gw_search_frontier(s, most, front); k-- > 0;) is_front[front[k]] = true;
    for (int64_t i = 0; i < s->candidates.count; i++) {
        const gw_search_candidate *c = &s->candidates.items[i];
        const gw_search_outcome *o = c->outcome < 0 ? NULL : &s->outcomes.items[c->outcome];
        if (!o || o->verdict != GW_SEARCH_RUNS || !(o->step_s > 0)) continue;
        gw_str label = {0};
        gw_search_describe(&c->layout, &label);
        points[n++] = (gw_html_point){.bytes = (double)o->total_bytes,
                                      .seconds = o->step_s,
                                      .dollars = o->dollars_per_billion_tokens,
                                      .label = gw_arena_strdup(cli->arena, gw_str_c(&label)),
                                      .best = i == s->best,
                                      .fits = gw_search_fits(&s->in, o),
                                      .frontier = is_front[i] && gw_search_fits(&s->in, o)};
        gw_str_release(&label);
    }
    return n;
}

gw_status gw_cli_html_search(gw_cli *cli, const char *name, const gw_search *s, const char *found) {
    if (!gw_cli_given(cli, "html")) return GW_OK;
    gw_html_point *points = gw_arena_new(cli->arena, gw_html_point, s->candidates.count + 1);
    gw_html_search page = {.points = points,
                           .n = read_points(cli, s, points),
                           .objective = gw_search_objective_name(s->in.objective),
                           .images = s->in.facts.images,
                           .memory_bytes = (double)s->in.facts.memory_bytes,
                           .found = found};
    page.summary = gw_arena_printf(
        cli->arena, "%s layouts, of which %d were compiled and simulated; each of these is a dot.",
        gw_fmt_count((char[40]){0}, s->counts.enumerated), page.n);
    json_t *none = json_object();
    gw_status st = write_page(
        cli,
        &(gw_html_input){.plan = none, .name = name, .command = command_of(cli), .search = &page});
    json_decref(none);
    return st;
}

// SPDX-License-Identifier: Apache-2.0
// `plan --search`: options, the question put to src/plan/search.h, and the answer as a run file.
//
// The run as it stands gives model, sequence, precision and global batch; what --set gives of the
// levers is held, the rest of them is turned. With a machine the step is simulated on --world chips
// of it; without one only the memory of this machine is known, and what is compared is work.
//
// The smallest fleet is found by asking for fewer and fewer chips whether any layout fits: doubling
// until one does, then halving the gap in whole nodes. A number of chips that does not do is
// remembered with its reason. Where the run states no global batch, each chip has a sequence in it.
#include "cli/plan_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/str.h"      /* gw_fmt_bytes */
#include "base/output.h"   /* gw_output_is_standard */
#include "base/term.h"     /* gw_progress */
#include "cli/plan_html.h" /* gw_cli_html_search */
#include "cli/runarg.h"    /* gw_cli_print_sets */
#include "run/memory.h"    /* gw_memory_available */

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))

static const double default_budget_s = 60;

bool gw_cli_searches(const gw_cli *cli) { return gw_cli_flag(cli, "search"); }

gw_status gw_cli_check_search(gw_cli *cli) {
    static const char *const ours[] = {"objective", "budget"};
    static const char *const others[] = {"why", "faults", "timeline", "svg", "trace"};
    gw_status st = GW_OK;
    bool searches = gw_cli_searches(cli);
    for (size_t i = 0; i < GW_COUNT(ours); i++)
        if (!searches && gw_cli_given(cli, ours[i]))
            st = gw_cli_usage_error(cli, "--%s is of --search", ours[i]);
    for (size_t i = 0; i < GW_COUNT(others); i++)
        if (searches && (gw_cli_given(cli, others[i])))
            st = gw_cli_usage_error(cli,
                                    "--%s is of one layout: --search prints the run file to plan "
                                    "with it",
                                    others[i]);
    if (searches && gw_cli_given(cli, "html") && !gw_cli_given(cli, "hardware"))
        st = gw_cli_usage_error(cli, "--html draws a search by time: give the machine with "
                                     "--hardware");
    return st;
}

/* ---- the question ---- */

typedef struct question {
    gw_cli *cli;
    const gw_target *target;
    gw_search_site site;
    gw_search_input in;
    bool fleet;
    int64_t node; /* chips of the nearest tier */
    gw_progress shown;
    bool shows;
} question;

static int64_t memory_of(const gw_cli *cli, const gw_machine_spec *m) {
    char limit[160];
    if (gw_cli_given(cli, "memory")) return gw_cli_int(cli, "memory", 0);
    if (m) return (int64_t)m->memory_bytes;
    return gw_memory_available(limit, sizeof limit);
}

static void show(void *user, const gw_search_counts *c, double best) {
    question *q = user;
    if (!q->shows) return;
    gw_progress_show(&q->shown, false, "searched %s layouts, %s evaluated, best so far %.4g",
                     COUNT(c->enumerated), COUNT(c->evaluated), best);
}

/* The world and its halves, down to one chip. */
static void add_worlds(gw_search_space *s) {
    while (s->nworlds < GW_SEARCH_WORLDS && s->worlds[s->nworlds - 1] % 2 == 0) {
        s->worlds[s->nworlds] = s->worlds[s->nworlds - 1] / 2;
        s->nworlds++;
    }
}

static gw_status read_objective(question *q, const gw_machine_spec *m) {
    const char *text = gw_cli_string(q->cli, "objective", "time");
    q->fleet = gw_str_eq(text, "fleet");
    if (gw_str_eq(text, "cost")) q->in.objective = GW_SEARCH_COST;
    if (gw_str_eq(text, "memory")) q->in.objective = GW_SEARCH_MEMORY;
    if (q->fleet && !m)
        return gw_cli_usage_error(q->cli, "--objective fleet asks how many chips hold the model: "
                                          "name the machine with --hardware");
    if (q->in.objective == GW_SEARCH_COST && (!m || m->dollars_per_hour <= 0))
        return gw_cli_usage_error(q->cli, "--objective cost needs a price: %s",
                                  m ? "the hardware file states none"
                                    : "name a machine with --hardware");
    return GW_OK;
}

static gw_status ask(question *q, gw_cli *cli, const gw_target *t, const gw_machine_spec *m) {
    memset(q, 0, sizeof *q);
    q->cli = cli;
    q->target = t;
    double budget = gw_cli_double(cli, "budget", default_budget_s);
    if (!(budget > 0 && budget <= 1e6))
        return gw_cli_usage_error(cli, "--budget takes seconds, above 0 and up to 1000000");
    GW_TRY(read_objective(q, m));
    gw_search_site_init(&q->site, t, m, memory_of(cli, m));
    gw_status st = gw_search_site_space(&q->site, &q->in.space, cli->diags);
    if (st != GW_OK) {
        gw_search_site_release(&q->site);
        return st;
    }
    if (q->in.objective == GW_SEARCH_COST) add_worlds(&q->in.space);
    gw_search_site_facts(&q->site, &q->in.facts);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    q->in.machine = m;
    q->in.budget_s = budget;
    q->in.workers = (int)GW_MIN(GW_MAX(cores, 1), 8);
    q->in.explains = true;
    q->in.host = (gw_search_host){
        .user = &q->site, .probe = gw_search_site_probe, .evaluate = gw_search_site_evaluate};
    q->in.progress = show;
    q->in.progress_user = q;
    q->node = m && m->ntiers > 1 ? GW_MAX(m->tiers[0].ranks, INT64_C(1)) : 1;
    q->shows = gw_term_is_tty(stderr) && !cli->quiet;
    gw_progress_init(&q->shown, stderr, 10);
    return GW_OK;
}

/* ---- the smallest fleet ---- */

enum { FLEETS = 40, TRIES = 24, MOST_CHIPS = 1 << 17 };

typedef struct fleet {
    int64_t chips;
    bool holds, proved; /* proved: of those that do not, every layout was looked at */
    int64_t layouts, evaluated, short_bytes;
} fleet;

typedef struct fleets {
    fleet tried[FLEETS];
    int n;
    bool batch_is_given;
} fleets;

/* Bytes that the least evaluated layout is short by; 0: none was evaluated. */
static int64_t least_short(const gw_search *s) {
    int64_t least = 0;
    for (int64_t i = 0; i < s->outcomes.count; i++) {
        const gw_search_outcome *o = &s->outcomes.items[i];
        int64_t by = o->total_bytes - s->in.facts.memory_bytes;
        if (o->verdict == GW_SEARCH_RUNS && by > 0 && (least == 0 || by < least)) least = by;
    }
    return least;
}

static void set_world(question *q, const fleets *f, int64_t chips) {
    gw_search_space *s = &q->in.space;
    if (!f->batch_is_given) s->global_batch = chips;
    s->worlds[0] = chips;
    s->nworlds = 1;
}

/* Does any layout of so many chips fit? */
static bool holds(question *q, fleets *f, int64_t chips, double budget_s) {
    if (f->n == FLEETS) return false;
    gw_search s;
    set_world(q, f, chips);
    gw_search_input in = q->in;
    in.objective = GW_SEARCH_TIME;
    in.budget_s = budget_s;
    in.first_fit = true;
    in.most_evaluations = TRIES;
    in.explains = false;
    gw_search_run(&s, &in);
    f->tried[f->n++] = (fleet){.chips = chips,
                               .holds = s.best >= 0,
                               .proved = s.exact,
                               .layouts = s.counts.enumerated,
                               .evaluated = s.counts.evaluated,
                               .short_bytes = least_short(&s)};
    bool found = s.best >= 0;
    gw_search_release(&s);
    return found;
}

/* Chips between lo, which do not hold it, and hi, which do: whole nodes, or below one, any power of
 * two. */
static int64_t between(const question *q, int64_t lo, int64_t hi) {
    if (hi <= q->node) return 0;
    int64_t a = GW_MAX(lo, q->node) / q->node, b = hi / q->node, mid = (a + b) / 2;
    return mid > a && mid < b ? mid * q->node : 0;
}

static int64_t smallest_fleet(question *q, fleets *f) {
    int64_t lo = 0, hi = 1, begin = gw_clock_ns();
    double half = q->in.budget_s / 2;
    for (; hi <= MOST_CHIPS; lo = hi, hi *= 2) {
        double left = half - (double)(gw_clock_ns() - begin) / 1e9;
        if (holds(q, f, hi, fmax(left / 2, 1))) break;
        if (left <= 0) return 0;
    }
    for (int64_t mid; hi <= MOST_CHIPS && (mid = between(q, lo, hi)) > 0;) {
        double left = half - (double)(gw_clock_ns() - begin) / 1e9;
        if (left <= 0) break;
        if (holds(q, f, mid, fmax(left / 2, 1)))
            hi = mid;
        else
            lo = mid;
    }
    return hi <= MOST_CHIPS ? hi : 0;
}

static void fleet_text(const fleet *x, char out[160]) {
    if (x->holds)
        snprintf(out, 160, "holds it");
    else if (x->evaluated == 0 && x->proved)
        snprintf(out, 160, "states alone exceed the memory in all %s layouts", COUNT(x->layouts));
    else if (x->evaluated == 0)
        snprintf(out, 160, "no layout was evaluated in time");
    else
        snprintf(out, 160, "%s: the least of %lld evaluated is short by %s",
                 x->proved ? "none of all fits" : "none found", (long long)x->evaluated,
                 BYTES(x->short_bytes));
}

static void print_fleets(const question *q, const fleets *f, int64_t chips, FILE *out) {
    fprintf(out, "\nthe smallest fleet that holds it\n");
    gw_table *t = gw_table_new("rl");
    gw_table_row(t, "chips", "");
    for (int i = 0; i < f->n; i++) {
        char text[160];
        fleet_text(&f->tried[i], text);
        gw_table_row(t, COUNT(f->tried[i].chips), text);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    if (!chips)
        fprintf(out, "  none was found up to %s chips or in time\n",
                COUNT(f->n ? f->tried[f->n - 1].chips : 0));
    else
        fprintf(out, "  %s x %s%s\n", COUNT(chips), q->in.machine->name,
                f->batch_is_given ? "" : ", a sequence of the global batch each: none is given");
}

static json_t *fleets_json(const fleets *f, int64_t chips) {
    json_t *tried = json_array();
    for (int i = 0; i < f->n; i++) {
        char text[160];
        fleet_text(&f->tried[i], text);
        (void)json_array_append_new(
            tried, json_pack("{s:I, s:b, s:b, s:I, s:s}", "chips", (json_int_t)f->tried[i].chips,
                             "holds", f->tried[i].holds, "proved", f->tried[i].proved,
                             "short_bytes", (json_int_t)f->tried[i].short_bytes, "why", text));
    }
    return json_pack("{s:o, s:o}", "chips", chips ? json_integer((json_int_t)chips) : json_null(),
                     "tried", tried);
}

/* ---- the answer ---- */

static void print_run(const question *q, const gw_search *s, FILE *out) {
    const gw_search_layout *l = &s->candidates.items[s->best].layout;
    gw_str part = {0}, words = {0};
    gw_search_site_yaml(&q->site, l, true, &part);
    fprintf(out, "\nas a run file\n");
    for (const char *line = gw_str_c(&part); *line;) {
        size_t n = strcspn(line, "\n");
        fprintf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (q->target->assumed) {
        gw_search_site_words(&q->site, l, &words);
        fprintf(out, "as words\n  ");
        gw_cli_print_sets(gw_str_c(&words), out);
        fputc('\n', out);
    }
    gw_str_release(&part);
    gw_str_release(&words);
}

static void print_text(const question *q, const gw_search *s, const fleets *f, int64_t chips) {
    FILE *out = q->cli->out;
    const gw_machine_spec *m = q->in.machine;
    if (m)
        fprintf(out, "search: %s on %s x %s\n", q->target->name, COUNT(q->in.space.worlds[0]),
                m->name[0] ? m->name : m->asked);
    else
        fprintf(out, "search: %s on this machine, %lld rank%s, %s\n", q->target->name,
                (long long)q->in.space.worlds[0], q->in.space.worlds[0] == 1 ? "" : "s",
                BYTES(q->in.facts.memory_bytes));
    if (f->n) print_fleets(q, f, chips, out);
    if (!s) return;
    gw_search_print(s, out);
    if (s->best >= 0) print_run(q, s, out);
}

static void print_json(const question *q, const gw_search *s, const fleets *f, int64_t chips) {
    const gw_machine_spec *m = q->in.machine;
    json_t *j = json_pack("{s:s, s:s?, s:I}", "name", q->target->name, "hardware",
                          m ? m->name : NULL, "world", (json_int_t)q->in.space.worlds[0]);
    if (s) json_object_set_new(j, "search", gw_search_json(s));
    if (f->n) json_object_set_new(j, "fleet", fleets_json(f, chips));
    if (s && s->best >= 0) {
        const gw_search_layout *l = &s->candidates.items[s->best].layout;
        gw_str whole = {0}, words = {0};
        gw_search_site_yaml(&q->site, l, false, &whole);
        gw_search_site_words(&q->site, l, &words);
        json_object_set_new(j, "run_file", json_string(gw_str_c(&whole)));
        json_object_set_new(j, "set", json_string(gw_str_c(&words)));
        gw_str_release(&whole);
        gw_str_release(&words);
    }
    json_dumpf(j, q->cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', q->cli->out);
    json_decref(j);
}

/* The page of --html. */
static gw_status write_page(const question *q, const gw_search *s) {
    gw_str part = {0};
    if (s->best >= 0)
        gw_search_site_yaml(&q->site, &s->candidates.items[s->best].layout, true, &part);
    const char *found = s->best >= 0 ? gw_str_c(&part) : NULL;
    gw_status st = gw_cli_html_search(q->cli, q->target->name, s, found);
    gw_str_release(&part);
    return st;
}

static gw_status answer(question *q) {
    fleets f = {.batch_is_given = gw_runfile_is_set(&q->target->rf, "train.global_batch")};
    int64_t chips = 0, begin = gw_clock_ns();
    bool asks = q->fleet;
    if (asks) {
        chips = smallest_fleet(q, &f);
        if (chips) set_world(q, &f, chips);
        q->in.budget_s =
            fmax(q->in.budget_s - (double)(gw_clock_ns() - begin) / 1e9, q->in.budget_s / 4);
    }
    gw_search s;
    bool searches = !asks || chips;
    if (searches) gw_search_run(&s, &q->in);
    if (q->shows) gw_progress_end(&q->shown);
    if (gw_cli_flag(q->cli, "json"))
        print_json(q, searches ? &s : NULL, &f, chips);
    else if (!gw_output_is_standard(gw_cli_string(q->cli, "html", "")))
        print_text(q, searches ? &s : NULL, &f, chips);
    gw_status st = searches ? write_page(q, &s) : GW_OK;
    if (searches) gw_search_release(&s);
    return st;
}

gw_status gw_cli_search(gw_cli *cli, const gw_target *t, const gw_machine_spec *m) {
    question *q = gw_arena_new(cli->arena, question, 1);
    gw_status st = ask(q, cli, t, m);
    if (st != GW_OK) return st;
    st = answer(q);
    gw_search_site_release(&q->site);
    return st;
}

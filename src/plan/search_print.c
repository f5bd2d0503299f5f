// SPDX-License-Identifier: Apache-2.0
// What a search found, for people and as JSON: the best, what of the space was seen and what was
// not, the frontier of time against memory, why each change of the best loses, and what
// recomputation and micro-batch do to it.
#include <math.h>
#include <string.h>

#include "base/str.h"    /* gw_fmt_bytes */
#include "base/term.h"   /* gw_table */
#include "plan/search.h" /* gw_search_print */

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define COUNT(x)   gw_fmt_count((char[40]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))

enum { FRONTIER = 12, ROWS = 16 };

static const gw_search_outcome *outcome_of(const gw_search *s, int64_t at) {
    return &s->outcomes.items[s->candidates.items[at].outcome];
}

/* A score in its unit. */
static void score_text(const gw_search *s, double score, char out[48]) {
    char b[32];
    switch (s->in.objective) {
    case GW_SEARCH_TIME:
        if (s->in.machine)
            snprintf(out, 48, "%s", gw_fmt_seconds(b, score));
        else
            snprintf(out, 48, "%sFLOP", gw_fmt_si(b, score));
        return;
    case GW_SEARCH_COST: snprintf(out, 48, "%.4g chip-seconds", score); return;
    case GW_SEARCH_MEMORY: snprintf(out, 48, "%s", gw_fmt_bytes(b, (int64_t)score)); return;
    }
}

/* ---- what was seen ---- */

static void print_ranges(const gw_search *s, FILE *out) {
    const gw_search_space *sp = &s->in.space;
    fputs("  levers:", out);
    for (int x = 0; x < GW_SEARCH_LEVERS; x++) {
        int32_t v[GW_SEARCH_VALUES];
        char a[24], b[24];
        int n = gw_search_values(sp, (gw_search_lever)x, sp->worlds[0], v);
        if (n == 0) continue;
        const char *first = gw_search_value_name((gw_search_lever)x, v[0], a);
        fprintf(out, "%s %s %s", x ? "," : "", gw_search_lever_name((gw_search_lever)x), first);
        if (x == GW_SEARCH_SCHEDULE && n > 1)
            fprintf(out, " and %d others", n - 1);
        else if (n > 1)
            fprintf(out, " to %s", gw_search_value_name((gw_search_lever)x, v[n - 1], b));
    }
    fputc('\n', out);
}

/* What was left where time was up: what is certain of it, and what is expected. */
static void print_unseen(const gw_search *s, double best, FILE *out) {
    const gw_search_counts *c = &s->counts;
    char text[48];
    if (s->best >= 0) {
        score_text(s, s->floor_score, text);
        fprintf(out, "  nothing unseen can be below %s, %.0f %% less than the best", text,
                (1 - s->floor_score / best) * 100);
        score_text(s, s->floor_read, text);
        if (c->unread && isfinite(s->floor_read) && s->floor_read > s->floor_score)
            fprintf(out, "; of the %s whose block was read nothing below %s, %.0f %% less",
                    COUNT(c->unseen - c->unread), text, (1 - s->floor_read / best) * 100);
        fputc('\n', out);
    }
    if (c->promising == 0) {
        if (c->unread < c->unseen && (s->in.machine || s->in.objective == GW_SEARCH_MEMORY))
            fprintf(out, "  by their guesses %s\n",
                    s->best < 0 ? "none of them fits" : "none of them fits and is better");
    } else {
        gw_str d = {0};
        gw_search_describe(&s->candidates.items[s->promising].layout, &d);
        score_text(s, s->expected, text);
        fprintf(out, "  by their guesses %s of them %s, the first at about %s: %s\n",
                COUNT(c->promising), s->best < 0 ? "may fit" : "may fit and be better", text,
                gw_str_c(&d));
        gw_str_release(&d);
    }
    fprintf(out,
            "  a larger --budget looks at more of them, a lever that --set holds leaves fewer\n");
}

static void print_counts(const gw_search *s, FILE *out) {
    const gw_search_counts *c = &s->counts;
    gw_table *t = gw_table_new("lrl");
    gw_table_row(t, "layouts", "number", "");
    gw_table_row(t, "enumerated", COUNT(c->enumerated), "keeping the global batch");
    gw_table_row(t, "pruned by memory", COUNT(c->by_memory), "what a rank must hold exceeds it");
    gw_table_row(t, "pruned by time", COUNT(c->by_time), "a bound is no better than the best");
    gw_table_row(t, "refused", COUNT(c->refused), "by a rule of the run file or the compiler");
    if (c->broke) gw_table_row(t, "broke", COUNT(c->broke), "the compiler stopped over them");
    gw_table_row(t, "evaluated", COUNT(c->evaluated), "compiled and simulated as plan does");
    char why[96] = "time was up";
    if (c->unread)
        snprintf(why, sizeof why, "time was up; of %s not even the block was read",
                 COUNT(c->unread));
    gw_table_row(t, "unseen", COUNT(c->unseen), why);
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    fprintf(out, "  %s, of these %s for %s blocks; %.3g evaluations a second\n",
            SECONDS(c->seconds), SECONDS(c->probing_s), COUNT(c->probes),
            (double)c->evaluated / fmax(c->seconds - c->probing_s, 1e-9));
    double best = s->best < 0 ? 0
                              : gw_search_score(&s->in, &s->candidates.items[s->best].layout,
                                                outcome_of(s, s->best));
    if (c->unseen) print_unseen(s, best, out);
    if (s->best < 0) return;
    if (s->exact) fprintf(out, "  the best of them all: what was not evaluated cannot be better\n");
    fprintf(out,
            "  the first that fits was evaluation %lld, %.1f %% above the best, which was %lld\n",
            (long long)c->first_at, (c->first_score / best - 1) * 100, (long long)c->best_at);
}

/* ---- tables ---- */

static void row_of(const gw_search *s, gw_table *t, const char *what, const gw_search_outcome *o) {
    char step[48], mfu[16];
    if (s->in.machine)
        snprintf(step, sizeof step, "%s", SECONDS(o->step_s));
    else
        snprintf(step, sizeof step, "%sFLOP", gw_fmt_si((char[32]){0}, o->effort));
    snprintf(mfu, sizeof mfu, "%.1f %%", o->mfu * 100);
    gw_table_row(t, what, step, o->mfu > 0 ? mfu : "", BYTES(o->total_bytes),
                 gw_search_fits(&s->in, o) ? "" : "does not fit");
}

static void print_frontier(const gw_search *s, FILE *out) {
    int64_t at[FRONTIER];
    int n = gw_search_frontier(s, FRONTIER, at);
    if (n == 0) return;
    fprintf(out, "\ntime against memory: of what was evaluated, what no other beats in both\n");
    gw_table *t = gw_table_new("lrrrl");
    gw_table_row(t, "layout", s->in.machine ? "step" : "work", s->in.machine ? "MFU" : "", "a rank",
                 "");
    for (int i = 0; i < n; i++) {
        gw_str d = {0};
        gw_search_describe(&s->candidates.items[at[i]].layout, &d);
        row_of(s, t, gw_str_c(&d), outcome_of(s, at[i]));
        gw_str_release(&d);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

static void print_near(const gw_search *s, FILE *out) {
    gw_search_near near[GW_SEARCH_NEAR];
    int n = gw_search_neighbours(s, near);
    if (n == 0) return;
    fprintf(out, "\none change of the best, and why it loses\n");
    gw_table *t = gw_table_new("lrrl");
    gw_table_row(t, "change", s->in.machine ? "step" : "work", "a rank", "");
    for (int i = 0; i < n; i++) {
        gw_search_explain(s, &near[i]);
        const gw_search_candidate *c =
            near[i].candidate < 0 ? NULL : &s->candidates.items[near[i].candidate];
        const gw_search_outcome *o = c && c->outcome >= 0 ? outcome_of(s, near[i].candidate) : NULL;
        bool runs = o && o->verdict == GW_SEARCH_RUNS;
        char step[48] = "", bytes[32] = "";
        if (runs && s->in.machine) snprintf(step, sizeof step, "%s", SECONDS(o->step_s));
        if (runs && !s->in.machine)
            snprintf(step, sizeof step, "%sFLOP", gw_fmt_si((char[32]){0}, o->effort));
        if (runs) (void)gw_fmt_bytes(bytes, o->total_bytes);
        gw_table_row(t, near[i].change, step, bytes, near[i].why);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
}

/* ---- recompute x micro-batch ---- */

static void cell(const gw_search *s, const gw_search_layout *l, char out[64]) {
    int64_t at = gw_search_find(s, l);
    if (at < 0) {
        bool large = s->in.facts.memory_bytes > 0 &&
                     gw_search_bound_bytes(&s->in.facts, l) > s->in.facts.memory_bytes;
        snprintf(out, 64, "%s", large ? "states too large" : "-");
        return;
    }
    const gw_search_candidate *c = &s->candidates.items[at];
    if (c->outcome < 0 && s->in.facts.memory_bytes > 0 &&
        c->bound_bytes > s->in.facts.memory_bytes) {
        snprintf(out, 64, "short by >= %s", BYTES(c->bound_bytes - s->in.facts.memory_bytes));
        return;
    }
    if (c->outcome < 0) {
        snprintf(out, 64, s->in.machine ? ">= %s" : "unseen", SECONDS(c->bound_s));
        return;
    }
    const gw_search_outcome *o = outcome_of(s, at);
    if (o->verdict != GW_SEARCH_RUNS)
        snprintf(out, 64, "refused");
    else if (!gw_search_fits(&s->in, o))
        snprintf(out, 64, "short by %s", BYTES(o->total_bytes - s->in.facts.memory_bytes));
    else if (s->in.machine)
        snprintf(out, 64, "%s, %s", SECONDS(o->step_s), BYTES(o->total_bytes));
    else
        snprintf(out, 64, "%sFLOP, %s", gw_fmt_si((char[32]){0}, o->effort), BYTES(o->total_bytes));
}

/* Micro-batches of the table: those that leave the batch whole, with the rest of the best. */
static int rows_of(const gw_search *s, gw_search_layout rows[ROWS]) {
    const gw_search_layout *best = &s->candidates.items[s->best].layout;
    int32_t v[GW_SEARCH_VALUES];
    int n = gw_search_values(&s->in.space, GW_SEARCH_MICRO, best->world, v), count = 0;
    for (int i = 0; i < n && count < ROWS; i++) {
        rows[count] = *best;
        rows[count].at[GW_SEARCH_MICRO] = v[i];
        if (gw_search_complete(&s->in.space, &rows[count])) count++;
    }
    return count;
}

static void print_levers(const gw_search *s, FILE *out) {
    gw_search_layout rows[ROWS];
    int n = rows_of(s, rows);
    const gw_search_layout *best = &s->candidates.items[s->best].layout;
    fprintf(out, "\nrecomputation and micro-batch of the best layout\n");
    gw_table *t = gw_table_new("llllll");
    gw_table_row(t, "micro-batch", "accumulate", "none", "selective", "full", "budget");
    for (int i = 0; i < n; i++) {
        char text[GW_SEARCH_POLICIES][64], micro[16], accumulate[16];
        for (int p = 0; p < GW_SEARCH_POLICIES; p++) {
            gw_search_layout l = rows[i];
            l.at[GW_SEARCH_RECOMPUTE] = p;
            cell(s, &l, text[p]);
        }
        snprintf(micro, sizeof micro, "%d", rows[i].at[GW_SEARCH_MICRO]);
        snprintf(accumulate, sizeof accumulate, "%d", rows[i].accumulate);
        gw_table_row(t, micro, accumulate, text[0], text[1], text[2], text[3]);
    }
    gw_table_print(t, out, "  ");
    gw_table_free(t);
    char word[24];
    fprintf(out, "  the cheapest that fits: recompute %s, micro-batch %d x %d\n",
            gw_search_value_name(GW_SEARCH_RECOMPUTE, best->at[GW_SEARCH_RECOMPUTE], word),
            best->at[GW_SEARCH_MICRO], best->accumulate);
}

/* ---- the best ---- */

static void print_best(const gw_search *s, FILE *out) {
    const gw_search_layout *l = &s->candidates.items[s->best].layout;
    const gw_search_outcome *o = outcome_of(s, s->best);
    const char *items = s->in.facts.images ? "images" : "tokens";
    gw_str d = {0};
    gw_search_describe(l, &d);
    fprintf(out, "\nbest\n  %s\n  ", gw_str_c(&d));
    gw_str_release(&d);
    if (s->in.machine) fprintf(out, "step %s, ", SECONDS(o->step_s));
    if (o->mfu > 0) fprintf(out, "MFU %.1f %% (causal), ", o->mfu * 100);
    if (o->tokens_per_s_chip > 0)
        fprintf(out, "%s %s a second and chip, ", COUNT((int64_t)(o->tokens_per_s_chip + 0.5)),
                items);
    fprintf(out, "%s a rank", BYTES(o->total_bytes));
    if (s->in.facts.memory_bytes > 0) fprintf(out, " of %s", BYTES(s->in.facts.memory_bytes));
    if (o->dollars_per_billion_tokens > 0)
        fprintf(out, ", $%.0f a billion %s", o->dollars_per_billion_tokens, items);
    fputc('\n', out);
    if (!gw_search_fits(&s->in, o))
        fprintf(out, "  does not fit: short by %s\n",
                BYTES(o->total_bytes - s->in.facts.memory_bytes));
}

/* The least that was evaluated, where nothing fits. */
static void print_none(const gw_search *s, FILE *out) {
    int64_t least = -1;
    for (int64_t i = 0; i < s->candidates.count; i++) {
        int32_t x = s->candidates.items[i].outcome;
        if (x < 0 || s->outcomes.items[x].verdict != GW_SEARCH_RUNS) continue;
        if (least < 0 || s->outcomes.items[x].total_bytes < outcome_of(s, least)->total_bytes)
            least = i;
    }
    fprintf(out, "\nno layout that was evaluated fits into %s\n", BYTES(s->in.facts.memory_bytes));
    if (least < 0) return;
    gw_str d = {0};
    gw_search_describe(&s->candidates.items[least].layout, &d);
    fprintf(out, "  the least, short by %s: %s\n",
            BYTES(outcome_of(s, least)->total_bytes - s->in.facts.memory_bytes), gw_str_c(&d));
    gw_str_release(&d);
}

void gw_search_print(const gw_search *s, FILE *out) {
    fprintf(out, "  objective: %s; global batch %s sequences\n",
            gw_search_objective_name(s->in.objective), COUNT(s->in.space.global_batch));
    print_ranges(s, out);
    print_counts(s, out);
    if (s->best < 0) {
        print_none(s, out);
        return;
    }
    print_best(s, out);
    print_frontier(s, out);
    print_near(s, out);
    print_levers(s, out);
}

/* ---- JSON ---- */

static json_t *layout_json(const gw_search_layout *l) {
    json_t *j =
        json_pack("{s:i, s:i, s:i}", "world", l->world, "dp", l->dp, "accumulate", l->accumulate);
    static const char *const keys[GW_SEARCH_LEVERS] = {
        "tp", "cp",   "pp",          "schedule",  "virtual_stages",
        "ep", "zero", "micro_batch", "recompute", "offload"};
    for (int x = 0; x < GW_SEARCH_LEVERS; x++) {
        bool word = x == GW_SEARCH_SCHEDULE || x == GW_SEARCH_RECOMPUTE || x == GW_SEARCH_OFFLOAD;
        char buf[24];
        json_object_set_new(
            j, keys[x],
            word ? json_string(gw_search_value_name((gw_search_lever)x, l->at[x], buf))
                 : json_integer(l->at[x]));
    }
    return j;
}

static json_t *candidate_json(const gw_search *s, int64_t at) {
    const gw_search_candidate *c = &s->candidates.items[at];
    json_t *j = layout_json(&c->layout);
    json_object_set_new(j, "bound_s", json_real(c->bound_s));
    json_object_set_new(j, "bound_bytes", json_integer((json_int_t)c->bound_bytes));
    if (c->outcome < 0) return j;
    const gw_search_outcome *o = outcome_of(s, at);
    if (o->verdict != GW_SEARCH_RUNS) {
        json_object_set_new(j, "refused", json_string(o->why));
        return j;
    }
    json_object_set_new(j, "total_bytes", json_integer((json_int_t)o->total_bytes));
    json_object_set_new(j, "fits", json_boolean(gw_search_fits(&s->in, o)));
    if (s->in.machine) json_object_set_new(j, "step_time_s", json_real(o->step_s));
    json_object_set_new(j, "effort", json_real(o->effort));
    if (o->mfu > 0) json_object_set_new(j, "mfu", json_real(o->mfu));
    if (o->dollars_per_billion_tokens > 0)
        json_object_set_new(j, "dollars_per_billion_tokens",
                            json_real(o->dollars_per_billion_tokens));
    return j;
}

static json_t *near_json(const gw_search *s) {
    gw_search_near near[GW_SEARCH_NEAR];
    int n = gw_search_neighbours(s, near);
    json_t *all = json_array();
    for (int i = 0; i < n; i++) {
        gw_search_explain(s, &near[i]);
        json_t *j = near[i].candidate < 0 ? layout_json(&near[i].layout)
                                          : candidate_json(s, near[i].candidate);
        json_object_set_new(j, "change", json_string(near[i].change));
        json_object_set_new(j, "why", json_string(near[i].why));
        (void)json_array_append_new(all, j);
    }
    return all;
}

static json_t *counts_json(const gw_search *s) {
    const gw_search_counts *c = &s->counts;
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "enumerated", (json_int_t)c->enumerated,
        "pruned_by_memory", (json_int_t)c->by_memory, "pruned_by_time", (json_int_t)c->by_time,
        "refused", (json_int_t)c->refused, "broke", (json_int_t)c->broke, "evaluated",
        (json_int_t)c->evaluated, "unseen", (json_int_t)c->unseen, "blocks", (json_int_t)c->probes);
    json_object_set_new(j, "unread", json_integer((json_int_t)c->unread));
    json_object_set_new(j, "promising", json_integer((json_int_t)c->promising));
    json_object_set_new(j, "seconds", json_real(c->seconds));
    json_object_set_new(j, "first_that_fits", json_integer((json_int_t)c->first_at));
    json_object_set_new(j, "best_found_at", json_integer((json_int_t)c->best_at));
    return j;
}

json_t *gw_search_json(const gw_search *s) {
    json_t *j = json_pack(
        "{s:s, s:I, s:I, s:b, s:o}", "objective", gw_search_objective_name(s->in.objective),
        "global_batch", (json_int_t)s->in.space.global_batch, "memory_bytes",
        (json_int_t)s->in.facts.memory_bytes, "exact", s->exact, "counts", counts_json(s));
    json_object_set_new(j, "floor",
                        isfinite(s->floor_score) ? json_real(s->floor_score) : json_null());
    json_object_set_new(j, "floor_read",
                        isfinite(s->floor_read) ? json_real(s->floor_read) : json_null());
    json_t *first = s->promising < 0 ? json_null() : candidate_json(s, s->promising);
    if (s->promising >= 0) json_object_set_new(first, "expected", json_real(s->expected));
    json_object_set_new(j, "promising", first);
    json_object_set_new(j, "best", s->best < 0 ? json_null() : candidate_json(s, s->best));
    int64_t at[FRONTIER * 4];
    int n = gw_search_frontier(s, FRONTIER * 4, at);
    json_t *frontier = json_array();
    for (int i = 0; i < n; i++) (void)json_array_append_new(frontier, candidate_json(s, at[i]));
    json_object_set_new(j, "frontier", frontier);
    json_object_set_new(j, "near_misses", near_json(s));
    json_t *levers = json_array();
    gw_search_layout rows[ROWS];
    for (int i = 0, k = s->best < 0 ? 0 : rows_of(s, rows); i < k; i++)
        for (int p = 0; p < GW_SEARCH_POLICIES; p++) {
            gw_search_layout l = rows[i];
            l.at[GW_SEARCH_RECOMPUTE] = p;
            int64_t x = gw_search_find(s, &l);
            if (x >= 0) (void)json_array_append_new(levers, candidate_json(s, x));
        }
    json_object_set_new(j, "recompute_by_micro_batch", levers);
    return j;
}

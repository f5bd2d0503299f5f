// SPDX-License-Identifier: Apache-2.0
// Why the best is the best: what each single change of it would do, and what no other beats.
//
// A neighbour turns one lever and lets those that hang on it follow: with another pp the stages a
// rank stay what the schedule takes, with another micro-batch there are as many more or fewer of
// them. It loses for one of four reasons, and they are told apart: a rule refuses it; it does not
// fit, by so many bytes; its step is longer, and the parts that are longer say where; or it was not
// compiled, since a bound shows that it cannot be better.
#include <math.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/str.h"    /* gw_fmt_bytes */
#include "plan/search.h" /* gw_search_near */
#include "sched/sched.h" /* gw_sched_kind_at */

#define BYTES(x)   gw_fmt_bytes((char[32]){0}, (x))
#define SECONDS(x) gw_fmt_seconds((char[32]){0}, (x))

/* Levers that hang on the one that was turned. */
static void follow(gw_search_layout *l, gw_search_lever turned) {
    int32_t *at = l->at;
    const gw_sched_kind *k = gw_sched_kind_at(at[GW_SEARCH_SCHEDULE]);
    if (at[GW_SEARCH_PP] == 1) {
        at[GW_SEARCH_SCHEDULE] = gw_search_schedule("1f1b");
        at[GW_SEARCH_VIRTUAL] = 1;
    } else if (turned == GW_SEARCH_SCHEDULE) {
        bool several = gw_str_eq(k->name, "interleaved");
        if (!several) at[GW_SEARCH_VIRTUAL] = GW_MAX(1, k->made_for);
        if (several && at[GW_SEARCH_VIRTUAL] < 2) at[GW_SEARCH_VIRTUAL] = 2;
    } else if (turned == GW_SEARCH_VIRTUAL) {
        at[GW_SEARCH_SCHEDULE] =
            gw_search_schedule(at[GW_SEARCH_VIRTUAL] > 1 ? "interleaved" : "1f1b");
    }
    if (turned == GW_SEARCH_ZERO && at[GW_SEARCH_ZERO] < 3 &&
        at[GW_SEARCH_OFFLOAD] == GW_SEARCH_ALL)
        at[GW_SEARCH_OFFLOAD] = GW_SEARCH_STATES;
    if (at[GW_SEARCH_OFFLOAD] == GW_SEARCH_ALL) at[GW_SEARCH_ZERO] = 3;
}

/* Why a layout stands in no list. */
static void not_listed(const gw_search *s, gw_search_near *n) {
    const gw_search_space *sp = &s->in.space;
    const int32_t *at = n->layout.at;
    int64_t cuts = (int64_t)at[GW_SEARCH_TP] * at[GW_SEARCH_CP] * at[GW_SEARCH_PP];
    int64_t bytes = gw_search_bound_bytes(&s->in.facts, &n->layout),
            room = s->in.facts.memory_bytes;
    if (n->layout.world % cuts) {
        snprintf(n->why, sizeof n->why, "%lld ranks do not divide %d", (long long)cuts,
                 n->layout.world);
    } else if (sp->global_batch % ((int64_t)n->layout.dp * at[GW_SEARCH_MICRO])) {
        snprintf(n->why, sizeof n->why, "the batch of %lld does not divide by %d x dp %d",
                 (long long)sp->global_batch, at[GW_SEARCH_MICRO], n->layout.dp);
    } else if (room > 0 && bytes > room) {
        snprintf(n->why, sizeof n->why, "does not fit: states alone are short by %s",
                 BYTES(bytes - room));
    } else {
        gw_arena mem = {0};
        const char *why = "it is the same as another";
        gw_sched_request near, q = {.ranks = at[GW_SEARCH_PP],
                                    .virtual_stages = at[GW_SEARCH_VIRTUAL],
                                    .micro_batches = n->layout.accumulate};
        (void)gw_sched_admits(gw_sched_kind_at(at[GW_SEARCH_SCHEDULE]), &q, &mem, &why, &near);
        snprintf(n->why, sizeof n->why, "refused: %.200s", why);
        gw_arena_release(&mem);
    }
}

static void add(const gw_search *s, gw_search_near *out, int *count, gw_search_lever x,
                int32_t value) {
    const gw_search_layout *best = &s->candidates.items[s->best].layout;
    char a[24], b[24];
    if (*count == GW_SEARCH_NEAR || value == best->at[x]) return;
    gw_search_near *n = &out[*count];
    *n = (gw_search_near){.layout = *best};
    n->layout.at[x] = value;
    follow(&n->layout, x);
    /* Over one rank ZeRO only stands for what is offloaded. */
    if (x == GW_SEARCH_OFFLOAD && value != GW_SEARCH_ALL && !s->in.space.is_fixed[GW_SEARCH_ZERO] &&
        best->dp * best->at[GW_SEARCH_CP] == 1)
        n->layout.at[GW_SEARCH_ZERO] = 0;
    snprintf(n->change, sizeof n->change, "%s %s -> %s", gw_search_lever_name(x),
             gw_search_value_name(x, best->at[x], a), gw_search_value_name(x, value, b));
    (void)gw_search_complete(&s->in.space, &n->layout);
    n->candidate = gw_search_find(s, &n->layout);
    if (n->candidate == s->best) return;
    if (n->candidate < 0) not_listed(s, n);
    (*count)++;
}

/* All values of words, the next ones of degrees. */
static bool takes_all(gw_search_lever x) {
    return x == GW_SEARCH_SCHEDULE || x == GW_SEARCH_RECOMPUTE || x == GW_SEARCH_OFFLOAD ||
           x == GW_SEARCH_ZERO;
}

int gw_search_neighbours(const gw_search *s, gw_search_near out[GW_SEARCH_NEAR]) {
    int count = 0;
    if (s->best < 0) return 0;
    const gw_search_layout *best = &s->candidates.items[s->best].layout;
    for (int x = 0; x < GW_SEARCH_LEVERS; x++) {
        gw_search_lever lever = (gw_search_lever)x;
        bool piped = best->at[GW_SEARCH_PP] > 1;
        if ((lever == GW_SEARCH_SCHEDULE || lever == GW_SEARCH_VIRTUAL) && !piped) continue;
        if (lever == GW_SEARCH_ZERO && (int64_t)best->dp * best->at[GW_SEARCH_CP] == 1) continue;
        int32_t values[GW_SEARCH_VALUES];
        int n = gw_search_values(&s->in.space, lever, best->world, values), at = 0;
        while (at + 1 < n && values[at] < best->at[x]) at++;
        for (int i = 0; i < n; i++)
            if (takes_all(lever) || i == at - 1 || i == at + 1)
                add(s, out, &count, lever, values[i]);
    }
    return count;
}

/* ---- why ---- */

static double part_of(const gw_search_outcome *o, const char *name) {
    for (int i = 0; i < o->nparts; i++)
        if (strcmp(o->part[i].name, name) == 0) return o->part[i].seconds;
    return 0;
}

typedef struct gap {
    const char *name;
    double seconds;
} gap;

static int compare_gaps(const void *a, const void *b) {
    double x = fabs(((const gap *)a)->seconds), y = fabs(((const gap *)b)->seconds);
    return (x < y) - (x > y);
}

/* "+0.21 s: exposed tp +0.15 s, bubble +0.08 s, products -0.02 s": the parts that differ most. */
static void compare_parts(const gw_search_outcome *best, const gw_search_outcome *o, char *out,
                          size_t room) {
    gap gaps[2 * GW_SEARCH_PART_ROOM];
    int n = 0;
    for (int i = 0; i < o->nparts; i++)
        gaps[n++] = (gap){o->part[i].name, o->part[i].seconds - part_of(best, o->part[i].name)};
    for (int i = 0; i < best->nparts; i++)
        if (part_of(o, best->part[i].name) <= 0)
            gaps[n++] = (gap){best->part[i].name, -best->part[i].seconds};
    if (n > 0) qsort(gaps, (size_t)n, sizeof *gaps, compare_gaps);
    double all = o->step_s - best->step_s;
    gw_str s = {0};
    if (fabs(all) < 1e-9 * best->step_s) {
        snprintf(out, room, "as long");
        return;
    }
    gw_str_printf(&s, "%s by %s", all >= 0 ? "longer" : "shorter", SECONDS(fabs(all)));
    for (int i = 0; i < n && i < 3; i++) {
        if (fabs(gaps[i].seconds) < 0.02 * fabs(gaps[0].seconds)) break;
        gw_str_printf(&s, "%s %s %c%s", i ? "," : ":", gaps[i].name,
                      gaps[i].seconds < 0 ? '-' : '+', SECONDS(fabs(gaps[i].seconds)));
    }
    snprintf(out, room, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

/* Bytes are what the objective compares, then time. */
static void compare_bytes(const gw_search_outcome *best, const gw_search_outcome *o, char *out,
                          size_t room) {
    int64_t more = o->total_bytes - best->total_bytes;
    if (more == 0 && o->step_s > best->step_s)
        snprintf(out, room, "as large, and longer by %s", SECONDS(o->step_s - best->step_s));
    else if (more == 0)
        snprintf(out, room, "as large");
    else
        snprintf(out, room, "%s by %s a rank", more > 0 ? "larger" : "smaller",
                 BYTES(more > 0 ? more : -more));
}

static void explain_outcome(const gw_search *s, const gw_search_outcome *o, gw_search_near *n) {
    const gw_search_outcome *best = &s->outcomes.items[s->candidates.items[s->best].outcome];
    int64_t room = s->in.facts.memory_bytes;
    if (o->verdict != GW_SEARCH_RUNS) {
        snprintf(n->why, sizeof n->why, "refused: %.220s", o->why);
    } else if (s->in.objective == GW_SEARCH_MEMORY) {
        compare_bytes(best, o, n->why, sizeof n->why);
    } else if (!gw_search_fits(&s->in, o)) {
        snprintf(n->why, sizeof n->why, "does not fit: short by %s", BYTES(o->total_bytes - room));
    } else if (s->in.machine) {
        compare_parts(best, o, n->why, sizeof n->why);
    } else {
        double more = o->effort / best->effort - 1;
        snprintf(n->why, sizeof n->why, "%.1f %% %s work", fabs(more) * 100,
                 more < 0 ? "less" : "more");
    }
}

void gw_search_explain(const gw_search *s, gw_search_near *n) {
    if (n->candidate < 0) return;
    const gw_search_candidate *c = &s->candidates.items[n->candidate];
    const gw_search_candidate *b = &s->candidates.items[s->best];
    const gw_search_outcome *best = &s->outcomes.items[b->outcome];
    if (c->outcome >= 0) {
        explain_outcome(s, &s->outcomes.items[c->outcome], n);
        return;
    }
    if (s->in.objective == GW_SEARCH_MEMORY && c->bound_bytes >= best->total_bytes)
        snprintf(n->why, sizeof n->why, "larger: no less than %s, by its bound",
                 BYTES(c->bound_bytes));
    else if (s->in.facts.memory_bytes > 0 && c->bound_bytes > s->in.facts.memory_bytes)
        snprintf(n->why, sizeof n->why, "does not fit: short by at least %s",
                 BYTES(c->bound_bytes - s->in.facts.memory_bytes));
    else if (s->in.objective != GW_SEARCH_MEMORY && s->in.machine && c->bound_s >= best->step_s)
        snprintf(n->why, sizeof n->why, "longer: no less than %s, by its bound",
                 SECONDS(c->bound_s));
    else if (!c->known)
        snprintf(n->why, sizeof n->why, "not looked at: time was up");
    else if (s->in.machine)
        snprintf(n->why, sizeof n->why, "not compiled; about %s and %s", SECONDS(c->guess_s),
                 BYTES(c->guess_bytes));
    else
        snprintf(n->why, sizeof n->why, "not compiled; about %s", BYTES(c->guess_bytes));
}

/* ---- the frontier ---- */

typedef struct point {
    int64_t at;
    double seconds;
    int64_t bytes;
} point;

static int compare_points(const void *a, const void *b) {
    const point *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

int gw_search_frontier(const gw_search *s, int room, int64_t *out) {
    GW_VEC(point) all = {0};
    for (int64_t i = 0; i < s->candidates.count; i++) {
        const gw_search_candidate *c = &s->candidates.items[i];
        if (c->outcome < 0 || s->outcomes.items[c->outcome].verdict != GW_SEARCH_RUNS) continue;
        const gw_search_outcome *o = &s->outcomes.items[c->outcome];
        point p = {i, s->in.machine ? o->step_s : o->effort, o->total_bytes};
        gw_vec_push(&all, p);
    }
    if (all.count > 0) qsort(all.items, (size_t)all.count, sizeof(point), compare_points);
    int n = 0;
    int64_t least = INT64_MAX;
    for (int64_t i = 0; i < all.count && n < room; i++) {
        if (all.items[i].bytes >= least) continue;
        least = all.items[i].bytes;
        out[n++] = all.items[i].at;
    }
    gw_vec_release(&all);
    return n;
}

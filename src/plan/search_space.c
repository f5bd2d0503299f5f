// SPDX-License-Identifier: Apache-2.0
// The space that a search walks: levers, their values, and every point once.
//
// Degrees are divisors of the world: tp x cp x pp, and dp takes what is left. Micro-batches divide
// the samples that a data-parallel rank has in a step, so the global batch is the same everywhere.
// Virtual stages go with the schedules that take several. Degrees are every divisor; micro-batches
// 1 to 4 and powers of two.
//
// Points that differ in nothing a program shows are one point: ZeRO over one rank, a schedule
// without a pipeline. Whether a point is a layout at all is not asked here: the run file's own
// rules say so when its turn comes.
#include "plan/search.h"

#include <string.h>

#include "base/str.h"    /* gw_str_printf */
#include "sched/sched.h" /* gw_sched_kind_at */

static const struct {
    const char *name, *key;
} levers[GW_SEARCH_LEVERS] = {
    [GW_SEARCH_TP] = {"tp", "layout.tp"},
    [GW_SEARCH_CP] = {"cp", "layout.cp"},
    [GW_SEARCH_PP] = {"pp", "layout.pp"},
    [GW_SEARCH_SCHEDULE] = {"schedule", "layout.schedule"},
    [GW_SEARCH_VIRTUAL] = {"virtual stages", "layout.virtual_stages"},
    [GW_SEARCH_EP] = {"ep", "layout.ep"},
    [GW_SEARCH_ZERO] = {"zero", "layout.zero"},
    [GW_SEARCH_MICRO] = {"micro-batch", "train.micro_batch"},
    [GW_SEARCH_RECOMPUTE] = {"recompute", "recompute.policy"},
    [GW_SEARCH_OFFLOAD] = {"offload", "offload.optimizer"},
};

const char *gw_search_lever_name(gw_search_lever l) { return levers[l].name; }

const char *gw_search_lever_key(gw_search_lever l) { return levers[l].key; }

const char *gw_search_objective_name(gw_search_objective o) {
    switch (o) {
    case GW_SEARCH_TIME: return "time";
    case GW_SEARCH_COST: return "cost";
    case GW_SEARCH_MEMORY: return "memory";
    }
    return "";
}

const char *gw_search_value_name(gw_search_lever l, int32_t value, char buf[24]) {
    static const char *const policies[] = {"none", "selective", "full", "budget"};
    static const char *const offloads[] = {"nothing", "moments", "moments, master", "all states"};
    if (l == GW_SEARCH_RECOMPUTE) return policies[value];
    if (l == GW_SEARCH_OFFLOAD) return offloads[value];
    if (l == GW_SEARCH_SCHEDULE) return gw_sched_kind_at(value)->name;
    snprintf(buf, 24, "%d", value);
    return buf;
}

void gw_search_describe(const gw_search_layout *l, gw_str *out) {
    const int32_t *at = l->at;
    char word[24];
    size_t begin = out->len;
    static const gw_search_lever degrees[] = {GW_SEARCH_TP, GW_SEARCH_CP, GW_SEARCH_EP};
    for (size_t i = 0; i < GW_COUNT(degrees); i++)
        if (at[degrees[i]] > 1)
            gw_str_printf(out, "%s %d, ", levers[degrees[i]].name, at[degrees[i]]);
    if (at[GW_SEARCH_PP] > 1) {
        gw_str_printf(out, "pp %d (%s", at[GW_SEARCH_PP],
                      gw_search_value_name(GW_SEARCH_SCHEDULE, at[GW_SEARCH_SCHEDULE], word));
        if (at[GW_SEARCH_VIRTUAL] > 1)
            gw_str_printf(out, ", %d stages a rank", at[GW_SEARCH_VIRTUAL]);
        gw_str_add(out, "), ");
    }
    if (l->dp > 1 || out->len == begin) gw_str_printf(out, "dp %d, ", l->dp);
    if (at[GW_SEARCH_ZERO] > 0) gw_str_printf(out, "zero %d, ", at[GW_SEARCH_ZERO]);
    gw_str_printf(out, "micro-batch %d x %d", at[GW_SEARCH_MICRO], l->accumulate);
    static const gw_search_lever words[] = {GW_SEARCH_RECOMPUTE, GW_SEARCH_OFFLOAD};
    for (size_t i = 0; i < GW_COUNT(words); i++)
        if (at[words[i]] > 0)
            gw_str_printf(out, ", %s %s", levers[words[i]].name,
                          gw_search_value_name(words[i], at[words[i]], word));
}

/* ---- values ---- */

static int divisors(int64_t of, int64_t most, int32_t out[GW_SEARCH_VALUES]) {
    int n = 0;
    most = GW_MIN(most, of);
    for (int64_t d = 1; d <= most && n < GW_SEARCH_VALUES; d++)
        if (of % d == 0) out[n++] = (int32_t)d;
    return n;
}

static int up_to(int64_t most, int32_t from, int32_t out[GW_SEARCH_VALUES]) {
    int n = 0;
    for (int32_t i = from; i <= most && n < GW_SEARCH_VALUES; i++) out[n++] = i;
    return n;
}

/* Micro-batches: powers of two and what is left of the batch, if it is small. */
static int micro_batches(const gw_search_space *s, int32_t out[GW_SEARCH_VALUES]) {
    int32_t all[GW_SEARCH_VALUES];
    int n = 0, m = divisors(s->global_batch, s->most[GW_SEARCH_MICRO], all);
    for (int i = 0; i < m; i++)
        if (all[i] <= 4 || (all[i] & (all[i] - 1)) == 0) out[n++] = all[i];
    return n;
}

static int schedules(int32_t out[GW_SEARCH_VALUES]) {
    int n = 0;
    while (n < GW_SEARCH_VALUES && gw_sched_kind_at(n)) {
        out[n] = n;
        n++;
    }
    return n;
}

static int experts(const gw_search_space *s, int64_t world, int32_t out[GW_SEARCH_VALUES]) {
    int32_t all[GW_SEARCH_VALUES];
    int n = 0, m = divisors(world, s->most[GW_SEARCH_EP], all);
    for (int i = 0; i < m; i++)
        if (s->experts > 0 ? s->experts % all[i] == 0 : all[i] == 1) out[n++] = all[i];
    return n;
}

static int offloads(const gw_search_space *s, int32_t out[GW_SEARCH_VALUES]) {
    int n = 0;
    out[n++] = GW_SEARCH_DEVICE;
    if (!s->may_offload) return n;
    if (s->has_states) out[n++] = GW_SEARCH_MOMENTS;
    if (s->has_master) out[n++] = GW_SEARCH_STATES;
    out[n++] = GW_SEARCH_ALL;
    return n;
}

int gw_search_values(const gw_search_space *s, gw_search_lever l, int64_t world,
                     int32_t out[GW_SEARCH_VALUES]) {
    if (s->is_fixed[l]) {
        out[0] = s->fixed[l];
        return 1;
    }
    switch (l) {
    case GW_SEARCH_TP:
    case GW_SEARCH_CP:
    case GW_SEARCH_PP: return divisors(world, s->most[l], out);
    case GW_SEARCH_SCHEDULE: return schedules(out);
    case GW_SEARCH_VIRTUAL: return up_to(GW_MAX(s->most[l], INT64_C(1)), 1, out);
    case GW_SEARCH_EP: return experts(s, world, out);
    case GW_SEARCH_ZERO: return up_to(3, 0, out);
    case GW_SEARCH_MICRO: return micro_batches(s, out);
    case GW_SEARCH_RECOMPUTE: return up_to(GW_SEARCH_POLICIES - 1, 0, out);
    case GW_SEARCH_OFFLOAD: return offloads(s, out);
    case GW_SEARCH_LEVERS: break;
    }
    return 0;
}

/* ---- points ---- */

int32_t gw_search_schedule(const char *name) {
    for (int i = 0; gw_sched_kind_at(i); i++)
        if (gw_str_eq(gw_sched_kind_at(i)->name, name)) return i;
    return -1;
}

static int32_t plain_schedule(void) { return gw_search_schedule("1f1b"); }

/* The one that stands for its equals. */
static bool is_first_of_equals(const gw_search_space *s, const gw_search_layout *l) {
    const int32_t *at = l->at;
    bool alone = l->dp * at[GW_SEARCH_CP] == 1, all = at[GW_SEARCH_OFFLOAD] == GW_SEARCH_ALL;
    if (at[GW_SEARCH_PP] == 1 &&
        ((at[GW_SEARCH_SCHEDULE] != plain_schedule() && !s->is_fixed[GW_SEARCH_SCHEDULE]) ||
         (at[GW_SEARCH_VIRTUAL] != 1 && !s->is_fixed[GW_SEARCH_VIRTUAL])))
        return false;
    if (all && at[GW_SEARCH_ZERO] != 3) return false;
    if (alone && !all && at[GW_SEARCH_ZERO] != 0 && !s->is_fixed[GW_SEARCH_ZERO]) return false;
    return true;
}

/* How many stages a rank the kind takes: as many as it is made for, or, of those made for loops,
 * any number. The rules are asked of the rest. */
static bool takes_stages(const gw_search_space *s, const gw_search_layout *l) {
    const gw_sched_kind *k = gw_sched_kind_at(l->at[GW_SEARCH_SCHEDULE]);
    int v = l->at[GW_SEARCH_VIRTUAL];
    if (l->at[GW_SEARCH_PP] == 1 || s->is_fixed[GW_SEARCH_VIRTUAL]) return true;
    gw_arena mem = {0};
    const char *why = NULL;
    gw_sched_request near,
        r = {.ranks = l->at[GW_SEARCH_PP], .virtual_stages = v, .micro_batches = l->accumulate};
    bool ok = gw_sched_admits(k, &r, &mem, &why, &near);
    gw_arena_release(&mem);
    return ok;
}

bool gw_search_complete(const gw_search_space *s, gw_search_layout *l) {
    int64_t cuts = (int64_t)l->at[GW_SEARCH_TP] * l->at[GW_SEARCH_CP] * l->at[GW_SEARCH_PP];
    if (l->world % cuts != 0) return false;
    l->dp = (int32_t)(l->world / cuts);
    int64_t samples = (int64_t)l->dp * l->at[GW_SEARCH_MICRO];
    if (s->global_batch % samples != 0) return false;
    l->accumulate = (int32_t)(s->global_batch / samples);
    if ((s->dp && l->dp != s->dp) || (s->accumulate && l->accumulate != s->accumulate))
        return false;
    return is_first_of_equals(s, l);
}

typedef struct walk {
    const gw_search_space *s;
    bool (*visit)(void *, const gw_search_layout *);
    void *user;
    int64_t world;
    int32_t value[GW_SEARCH_LEVERS][GW_SEARCH_VALUES];
    int n[GW_SEARCH_LEVERS];
} walk;

/* The order in which levers are chosen: what settles dp and the micro-batches comes first, so that
 * a branch without points is left at its root. */
static const gw_search_lever order[GW_SEARCH_LEVERS] = {
    GW_SEARCH_TP,      GW_SEARCH_CP, GW_SEARCH_PP,   GW_SEARCH_MICRO,     GW_SEARCH_SCHEDULE,
    GW_SEARCH_VIRTUAL, GW_SEARCH_EP, GW_SEARCH_ZERO, GW_SEARCH_RECOMPUTE, GW_SEARCH_OFFLOAD};

static bool descend(walk *w, gw_search_layout *l, int depth) {
    if (depth == GW_SEARCH_LEVERS) return !gw_search_complete(w->s, l) || w->visit(w->user, l);
    gw_search_lever x = order[depth];
    for (int i = 0; i < w->n[x]; i++) {
        l->at[x] = w->value[x][i];
        if (x == GW_SEARCH_CP && w->world % ((int64_t)l->at[GW_SEARCH_TP] * l->at[x]) != 0)
            continue;
        if (x == GW_SEARCH_MICRO) {
            l->at[GW_SEARCH_SCHEDULE] = plain_schedule();
            l->at[GW_SEARCH_VIRTUAL] = 1;
            l->at[GW_SEARCH_ZERO] = l->at[GW_SEARCH_OFFLOAD] = 0;
            (void)gw_search_complete(w->s, l);
            if (w->world %
                    ((int64_t)l->at[GW_SEARCH_TP] * l->at[GW_SEARCH_CP] * l->at[GW_SEARCH_PP]) ||
                w->s->global_batch % ((int64_t)l->dp * l->at[x]))
                continue;
        }
        if (x == GW_SEARCH_VIRTUAL && !takes_stages(w->s, l)) continue;
        if (!descend(w, l, depth + 1)) return false;
    }
    return true;
}

void gw_search_enumerate(const gw_search_space *s, bool (*visit)(void *, const gw_search_layout *),
                         void *user) {
    walk w = {.s = s, .visit = visit, .user = user};
    for (int i = 0; i < s->nworlds; i++) {
        gw_search_layout l = {.world = (int32_t)s->worlds[i]};
        w.world = s->worlds[i];
        for (int x = 0; x < GW_SEARCH_LEVERS; x++)
            w.n[x] = gw_search_values(s, (gw_search_lever)x, w.world, w.value[x]);
        if (!descend(&w, &l, 0)) return;
    }
}

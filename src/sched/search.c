// SPDX-License-Identifier: Apache-2.0
// The optimiser of zero-bubble schedules.
//
// Finding the best order is a job-shop problem, so this is a heuristic, after that of Qi, Wan,
// Huang and Lin 2023 (arXiv 2401.10241, section 3.1): play the pipeline forward in time, let each
// rank take what it prefers of what is ready, repeat for all settings of a few preferences, and
// keep the best (play.c is one of these plays). Or F and I keep the order of one made by hand, and
// only the weight gradients are placed like that.
//
// Caps and lags are per rank, from shapes that are known to matter: none; those of ZB-H1 and ZB-H2;
// and those that follow from the costs. A rank forwards as many ahead as fit into the time until
// its first gradient comes back, and falls behind with as many weight gradients as fit into the
// time by which the last gradient of rank 0 is later than its own. The best setting is then
// improved, by one more or one less from some rank on.
//
// All of that is done for a ladder of memory limits up to the one that was asked for, and a limit
// between two rungs is rounded down: so the orders considered with more memory contain those
// considered with less, and more memory is never worse. The settings tried on a rung depend on the
// size of the problem alone: at most WORK actions are played for the whole ladder.
//
// A play knows nothing of where messages are received, and how many a channel holds. So the best
// orders of each pair of cap and lag are played again by the clock (clock.c), which does, and the
// best of those is kept: for few places other orders are good than for many.
#include "sched/search.h"

#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "sched/play.h" /* gw_zb_play_out */

enum { NONE = GW_ZB_NONE, MAX_RUNGS = 24, SLOTS = GW_ZB_SLOTS };
static const int64_t WORK = 20 * 1000 * 1000;

/* Of what is ready, what goes first: act + 4 * chunk. W: one of those beyond the lag. */
enum {
    F0 = GW_ACT_F,
    I0 = GW_ACT_I,
    W = GW_ACT_W,
    F1 = 4 + GW_ACT_F,
    I1 = 4 + GW_ACT_I,
    NO = GW_ZB_NO
};
static const uint8_t one_stage[][SLOTS] = {
    {F0, I0, W, NO, NO}, {I0, W, F0, NO, NO}, {W, I0, F0, NO, NO}};
static const uint8_t two_stages[][SLOTS] = {
    {F1, F0, I1, I0, W}, {I1, F1, F0, I0, W}, {F1, I1, F0, I0, W}, {F1, F0, I0, I1, W},
    {F1, I1, I0, W, F0}, {I1, F1, I0, W, F0}, {I1, I0, W, F1, F0}};
/* ---- which settings ---- */

static int32_t whole_number(double x) { return x < (double)NONE ? (int32_t)x : NONE; }

enum { CAPS = 4, LAGS = 5, PATIENCES = 3 };

typedef struct shapes {
    int32_t *cap[CAPS], *lag[LAGS]; /* [ranks] each */
} shapes;

/* The time from the end of F on rank r to the arrival of its gradient, and the time by which rank
 * 0's last gradient is behind that of rank r, if nobody waits; of the ranks' first stages. */
static void shapes_of(const gw_zb_problem *p, gw_arena *a, shapes *s) {
    int n = p->ranks;
    for (int i = 0; i < CAPS; i++) s->cap[i] = gw_arena_new(a, int32_t, n);
    for (int i = 0; i < LAGS; i++) s->lag[i] = gw_arena_new(a, int32_t, n);
    double below = 0, above = 0;
    for (int st = n * p->chunks - 1; st >= 0; st--) {
        if (st < n) {
            double f = p->forward[st];
            int costs = p->chunks == 1 ? 0 : 3;
            s->cap[costs][st] = f > 0 ? whole_number(1 + ceil(below / f - 1e-9)) : NONE;
            s->cap[1][st] = NONE;
            s->cap[2][st] = 2 * p->chunks * (n - 1 - st) + 1 + (p->chunks - 1) * (st + 1);
            s->cap[3 - costs][st] = p->chunks * n - st;
        }
        below += p->forward[st] + p->input[st];
        if (st > 0 && gw_zb_rank(p, st - 1) != gw_zb_rank(p, st))
            below += p->send[st] + p->send[st - 1];
    }
    for (int r = 0; r < n; r++) {
        double w = p->weight[r];
        s->lag[0][r] = w > 0 ? whole_number(ceil(above / w - 1e-9)) : NONE;
        s->lag[1][r] = NONE;
        s->lag[2][r] = 2 * r;
        s->lag[3][r] = r;
        s->lag[4][r] = 0;
        above += p->forward[r] + p->input[r] + p->send[r];
        if (r + 1 < n) above += p->send[r + 1];
    }
}

/* More than this no order needs, in units of micro-batches: all under way, all gradients waiting.
 */
static double most_places(const gw_zb_problem *p) {
    double most = 0;
    for (int r = 0; r < p->ranks; r++) {
        double unit = gw_zb_unit(p, r), made = 0;
        for (int c = 0; c < p->chunks; c++) made += p->made[gw_zb_stage(p, r, c)];
        if (unit > 0) most = fmax(most, made / unit);
    }
    return p->micro_batches * (1 + most);
}

/* Limits in units of micro-batches, ascending: quarters of the number of ranks, eighths from there
 * to twice that, then wider; of few ranks halves. Very large problems have three rungs. */
static int ladder_of(const gw_zb_problem *p, double rungs[MAX_RUNGS]) {
    static const double wider[] = {2.5, 3, 4, 6, 8};
    int n = 0;
    rungs[n++] = 1;
    double unit = fmax(0.5, p->ranks / 8.0), most = most_places(p);
    bool large = 6 * (int64_t)p->ranks * p->chunks * p->micro_batches > WORK / 4;
    for (int i = 1; i * unit <= 2 * p->ranks && rungs[n - 1] < most; i++) {
        bool wanted = large ? i % 8 == 0 : i % 2 == 0 || i * unit >= p->ranks || unit < 1;
        if (i * unit > 1 && wanted) rungs[n++] = i * unit;
    }
    for (size_t i = 0; i < GW_COUNT(wider) && rungs[n - 1] < most && !large; i++)
        rungs[n++] = wider[i] * p->ranks;
    return n;
}

static bool better(const gw_zb_score *a, const gw_zb_score *b) {
    double near = 1e-9 * b->first;
    if (a->first < b->first - near) return true;
    return a->first <= b->first + near && a->second < b->second * (1 - 1e-9);
}

enum { GIVEN = 2, FAMILIES = CAPS * LAGS + GIVEN };

typedef struct search {
    const gw_zb_problem *p;
    gw_zb_play k;
    shapes s;
    bool *whole;                /* [stages], of this rung */
    int64_t left;               /* actions that may be played on this rung */
    int most_clocks;            /* orders that it plays, of a rung */
    gw_zb_order pool[FAMILIES]; /* the best of each family of this rung, by gw_zb_play */
    gw_zb_score pooled[FAMILIES];
    bool has[FAMILIES];
    gw_zb_score top; /* of the best so far */
    bool any;
    double bound; /* first cannot be less */
    gw_zb_order given[GIVEN];
    int ngiven;
    gw_zb_order *best;
} search;

static void copy_order(const gw_zb_problem *p, gw_zb_order *to, const gw_zb_order *from) {
    for (int r = 0; r < p->ranks; r++) memcpy(to->codes[r], from->codes[r], (size_t)from->n);
    memcpy(to->whole, from->whole, (size_t)(p->ranks * p->chunks) * sizeof *to->whole);
}

static void keep(search *x, const gw_zb_order *o, gw_zb_score score) {
    copy_order(x->p, x->best, o);
    x->top = score;
    x->any = true;
}

static gw_zb_score score_of(const gw_zb_problem *p, const gw_zb_order *o) {
    gw_arena tmp = {0};
    gw_zb_score s = gw_zb_order_clock(p, o, &tmp);
    gw_arena_release(&tmp);
    return s;
}

static void pool(search *x, int family) {
    if (x->has[family] && !better(&x->k.score, &x->pooled[family])) return;
    copy_order(x->p, &x->pool[family], &x->k.order);
    x->pooled[family] = x->k.score;
    x->has[family] = true;
}

/* What the rung's best come to. */
static void clock_pool(search *x) {
    for (int n = 0; n < x->most_clocks; n++) {
        int best = -1;
        for (int f = 0; f < FAMILIES; f++)
            if (x->has[f] && (best < 0 || better(&x->pooled[f], &x->pooled[best]))) best = f;
        if (best < 0) return;
        x->has[best] = false;
        gw_zb_score s = score_of(x->p, &x->pool[best]);
        if (s.memory > x->p->memory * (1 + 1e-9)) continue; /* messages that come early */
        if (!x->any || better(&s, &x->top)) keep(x, &x->pool[best], s);
    }
}

/* Plays one setting; if it is the best of its rung so far, into *rung. */
static bool attempt(search *x, const gw_zb_settings *set, gw_zb_score *rung, bool *any) {
    x->k.played = 0;
    x->k.give_up = *any ? rung->first * 1.05 : HUGE_VAL;
    bool done = gw_zb_play_out(&x->k, set);
    x->left -= x->k.played;
    if (!done || x->k.score.memory > set->memory * (1 + 1e-9)) return false;
    pool(x, set->family);
    if (*any && !better(&x->k.score, rung)) return false;
    *rung = x->k.score;
    return *any = true;
}

static bool at_bound(const search *x) { return x->any && x->top.first <= x->bound * (1 + 1e-9); }

/* All combinations, the likelier ones first; which was best. */
static gw_zb_settings try_all(search *x, double memory, gw_zb_score *rung, bool *any) {
    static const double patience[PATIENCES] = {0.5, 0, 1};
    bool two = x->p->chunks == 2;
    int npriorities = two ? (int)GW_COUNT(two_stages) : (int)GW_COUNT(one_stage);
    int ways = npriorities + x->ngiven;
    gw_zb_settings top = {0};
    for (int i = 0; i < CAPS * LAGS * PATIENCES * ways; i++) {
        int way = i % ways, cap = i / ways % CAPS, lag = i / ways / CAPS % LAGS;
        gw_zb_settings set = {.memory = memory,
                              .cap = x->s.cap[cap],
                              .lag = x->s.lag[lag],
                              .patience = patience[i / ways / CAPS / LAGS],
                              .whole = x->whole,
                              .family = cap * LAGS + lag};
        if (way >= npriorities) {
            set.follow = &x->given[way - npriorities];
            set.family = CAPS * LAGS + way - npriorities;
        } else
            set.priority = two ? two_stages[way] : one_stage[way];
        if (set.follow && cap > 0) continue; /* it has no use for caps */
        if (*any && (x->left <= 0 || rung->first <= x->bound * (1 + 1e-9))) break;
        if (attempt(x, &set, rung, any)) top = set;
    }
    return top;
}

/* One more or one less of caps or lags, of one rank or of all from it on, while that helps. */
static void improve(search *x, gw_zb_settings set, gw_zb_score *rung, bool *any, gw_arena *a) {
    int n = x->p->ranks;
    int32_t *own[2] = {gw_arena_dup(a, set.cap, n * (int64_t)sizeof(int32_t)),
                       gw_arena_dup(a, set.lag, n * (int64_t)sizeof(int32_t))};
    int32_t *was = gw_arena_new(a, int32_t, n);
    set.cap = own[0];
    set.lag = own[1];
    for (bool helped = true; helped;) {
        helped = false;
        for (int i = 0; i < 8 * n; i++) {
            int lags = i % 2, more = i / 2 % 2 ? -1 : 1, from = i / 8;
            int end = i / 4 % 2 ? from + 1 : n;
            if (set.follow && !lags) continue;
            if (x->left <= 0 || rung->first <= x->bound * (1 + 1e-9)) return;
            memcpy(was, own[lags], (size_t)n * sizeof *was);
            for (int r = from; r < end; r++) own[lags][r] = GW_MAX(was[r] + more, 1 - lags);
            if (attempt(x, &set, rung, any))
                helped = true;
            else
                memcpy(own[lags], was, (size_t)n * sizeof *was);
        }
    }
}

/* A rank's computing, and one of its reductions at least. */
static double lower_bound(const gw_zb_problem *p) {
    double bound = 0;
    for (int r = 0; r < p->ranks; r++) {
        double reduce = HUGE_VAL;
        for (int c = 0; c < p->chunks; c++) reduce = fmin(reduce, p->reduce[gw_zb_stage(p, r, c)]);
        bound = fmax(bound, gw_zb_work(p, r) + reduce);
    }
    return bound;
}

static void keep_given(search *x) {
    for (int i = 0; i < x->ngiven; i++) {
        gw_zb_score s = score_of(x->p, &x->given[i]);
        if (s.memory <= x->p->memory * (1 + 1e-9) && (!x->any || better(&s, &x->top)))
            keep(x, &x->given[i], s);
    }
}

/* Which backwards are whole: those that must be; or all, which leaves room for micro-batches.
 * False: the same. */
static bool wholes_of(const gw_zb_problem *p, double memory, bool all, bool *whole) {
    int more = 0;
    gw_zb_wholes(p, memory, whole);
    for (int s = 0; s < p->ranks * p->chunks && all; s++) {
        more += !whole[s];
        whole[s] = true;
    }
    return !all || more > 0;
}

static void search_rung(search *x, double memory, gw_arena *scratch) {
    gw_zb_score rung = {0};
    bool any = false;
    memset(x->has, 0, sizeof x->has);
    if (x->p->chunks == 1) {
        gw_zb_problem here = *x->p;
        here.memory = memory;
        x->ngiven = GIVEN;
        for (int lag = 1; lag <= GIVEN; lag++)
            x->given[lag - 1] = gw_zb_order_by_hand(&here, lag, scratch);
    }
    keep_given(x);
    int64_t left = x->left;
    int variants = x->p->apart ? 2 : 1;
    gw_zb_settings top = {0};
    for (int v = 0; v < variants; v++) {
        bool *whole = gw_arena_new(scratch, bool, x->p->ranks * x->p->chunks);
        if (!wholes_of(x->p, memory, v > 0, whole)) continue;
        gw_zb_score before = rung;
        bool had = any;
        x->whole = whole;
        x->left = left / variants;
        gw_zb_settings best = try_all(x, memory, &rung, &any);
        if (any && (!had || better(&rung, &before))) top = best;
    }
    x->left = left / variants;
    if (any) improve(x, top, &rung, &any, scratch);
    clock_pool(x);
}

/* Input gradients that leave more behind than they free: one after another, backward whole. */
static void one_after_another(search *x) {
    const gw_zb_problem *p = x->p;
    x->k.give_up = HUGE_VAL;
    for (int s = 0; s < p->ranks * p->chunks; s++) x->whole[s] = p->apart;
    gw_zb_settings least = {.memory = 1,
                            .cap = x->s.cap[1],
                            .lag = x->s.lag[4],
                            .whole = x->whole,
                            .priority = p->chunks == 2 ? two_stages[0] : one_stage[0]};
    GW_ASSERT(gw_zb_play_out(&x->k, &least));
    keep(x, &x->k.order, x->k.score);
}

static void new_search(search *x, int nrungs, gw_arena *scratch) {
    const gw_zb_problem *p = x->p;
    gw_zb_play_new(&x->k, p, scratch);
    shapes_of(p, scratch, &x->s);
    x->whole = gw_arena_new(scratch, bool, p->ranks * p->chunks);
    x->bound = lower_bound(p);
    for (int f = 0; f < FAMILIES; f++) x->pool[f] = gw_zb_order_new(p, scratch);
    int64_t costs = 10 * 3 * (int64_t)p->ranks * p->chunks * p->micro_batches; /* of one clock */
    x->most_clocks = (int)GW_MAX(1, GW_MIN(FAMILIES, WORK / 4 / nrungs / costs));
}

void gw_zb_search(const gw_zb_problem *p, const gw_zb_order *given, int n, gw_arena *a,
                  gw_zb_order *best) {
    double rungs[MAX_RUNGS];
    int nrungs = ladder_of(p, rungs);
    gw_arena scratch = {0};
    GW_ASSERT(n <= GIVEN);
    search *x = gw_arena_new(&scratch, search, 1);
    *x = (search){.p = p, .best = best, .ngiven = n};
    for (int i = 0; i < n; i++) x->given[i] = given[i];
    *best = gw_zb_order_new(p, a);
    new_search(x, nrungs, &scratch);
    for (int i = 0; i < nrungs && !at_bound(x); i++) {
        if (i > 0 && rungs[i] > p->memory * (1 + 1e-9)) break;
        x->left = WORK / nrungs;
        search_rung(x, rungs[i], &scratch);
    }
    if (!x->any) one_after_another(x);
    gw_arena_release(&scratch);
}

// SPDX-License-Identifier: Apache-2.0
// The optimiser of zero-bubble schedules.
//
// Finding the best order is a job-shop problem, so this is a heuristic, after that of Qi, Wan,
// Huang and Lin 2023 (arXiv 2401.10241, section 3.1): play the pipeline forward in time, let each
// rank take what it prefers of what is ready, repeat for all settings of a few preferences, and
// keep the best. When a rank is free it takes the first of these that it can:
//
//   in the order of its priorities: an input gradient that has arrived; a weight gradient, if more
//   than `lag` of them wait; a forward pass, if its input is there, the memory suffices and no
//   more than `cap` micro-batches are on their way beyond this stage;
//   otherwise a weight gradient, to fill the gap or to free memory, unless what comes next is known
//   to arrive before `patience` of its time is over;
//   otherwise it sleeps until something arrives.
//
// Or F and I keep the order of one made by hand, and only the weight gradients are placed like
// that.
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
// In a V a rank has two stages, and a forward pass of the first leaves room for one of the second:
// without it ranks could fill up with micro-batches that have no way back.
#include "sched/search.h"

#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */

enum { NONE = 1 << 30, MAX_RUNGS = 24, SLOTS = 5 };
static const int64_t WORK = 20 * 1000 * 1000;

/* Of what is ready, what goes first: act + 4 * chunk. W: one of those beyond the lag. */
enum { F0 = GW_ACT_F, I0 = GW_ACT_I, W = GW_ACT_W, F1 = 4 + GW_ACT_F, I1 = 4 + GW_ACT_I, NO = 255 };
static const uint8_t one_stage[][SLOTS] = {
    {F0, I0, W, NO, NO}, {I0, W, F0, NO, NO}, {W, I0, F0, NO, NO}};
static const uint8_t two_stages[][SLOTS] = {
    {F1, F0, I1, I0, W}, {I1, F1, F0, I0, W}, {F1, I1, F0, I0, W}, {F1, F0, I0, I1, W},
    {F1, I1, I0, W, F0}, {I1, F1, I0, W, F0}, {I1, I0, W, F1, F0}};

typedef struct settings {
    double memory;
    const int32_t *cap, *lag;  /* [ranks] */
    const uint8_t *priority;   /* [SLOTS] */
    const gw_zb_order *follow; /* F and I in the order of this one instead; NULL: not */
    double patience;
} settings;

/* One play. */
typedef struct play {
    const gw_zb_problem *p;
    const settings *set;
    int leaves;     /* of the tournament: a power of two >= ranks */
    double *ready;  /* [2 * stages * micro_batches]: when the input of F, then of I, is there */
    int32_t *count; /* [stages][3]: F, I, W done */
    uint8_t *late;  /* [ranks][chunks * micro_batches]: chunks whose W wait, oldest first */
    int64_t *late_first, *late_n;
    double *idle_from, *start, *reduced, *held, *limit;
    double *rest;   /* [ranks]: time of what is left to do */
    double give_up; /* once score.first cannot be less than this */
    int64_t played; /* actions */
    double *wake;   /* [leaves]: when a rank looks again */
    int *winner;    /* [2 * leaves]: of the tournament for the earliest */
    double least;   /* that score.first can still be */
    double soon;    /* times this close are the same */
    gw_zb_order order;
    int64_t *n;     /* [ranks]: length of the order so far */
    int64_t *ahead; /* [ranks]: where the followed order is */
    gw_zb_score score;
} play;

static int stage_of(const gw_zb_problem *p, int rank, int chunk) {
    return chunk ? 2 * p->ranks - 1 - rank : rank;
}

static int rank_of(const gw_zb_problem *p, int stage) {
    return stage < p->ranks ? stage : 2 * p->ranks - 1 - stage;
}

static double *ready_at(const play *k, int which, int stage, int32_t micro) {
    int64_t stages = (int64_t)k->p->ranks * k->p->chunks;
    return &k->ready[(which * stages + stage) * k->p->micro_batches + micro];
}

/* ---- who is next ---- */

static void set_wake(play *k, int rank, double t) {
    k->wake[rank] = t;
    for (int i = (k->leaves + rank) / 2; i >= 1; i /= 2) {
        int left = k->winner[2 * i], right = k->winner[2 * i + 1];
        k->winner[i] = k->wake[right] < k->wake[left] ? right : left;
    }
}

static void arrives(play *k, int which, int stage, int32_t micro, double t) {
    *ready_at(k, which, stage, micro) = t;
    int r = rank_of(k->p, stage);
    if (t >= k->idle_from[r] && t < k->wake[r]) set_wake(k, r, t);
}

/* ---- acting ---- */

static void begin(play *k, int r, int act, int chunk, double t) {
    const gw_zb_problem *p = k->p;
    int stage = stage_of(p, r, chunk), last = p->ranks * p->chunks - 1;
    int32_t *count = &k->count[3 * stage];
    double end = t;
    if (k->n[r] == 0) k->start[r] = t;
    k->least = fmax(k->least, t + k->rest[r] - (p->barrier ? 0 : k->start[r]));
    k->order.codes[r][k->n[r]++] = (uint8_t)(act + 4 * chunk);
    /* Awake when done; what it makes arrives elsewhere after that, so set this first. */
    if (act == GW_ACT_F) {
        int32_t micro = count[0]++;
        end += p->forward[stage];
        set_wake(k, r, k->idle_from[r] = end);
        k->held[r] += p->held[stage];
        if (stage == last)
            arrives(k, 1, stage, micro, end);
        else
            arrives(k, 0, stage + 1, micro,
                    end + (rank_of(p, stage + 1) == r ? 0 : p->send[stage]));
    } else if (act == GW_ACT_I) {
        int32_t micro = count[1]++;
        end += p->input[stage];
        set_wake(k, r, k->idle_from[r] = end);
        k->held[r] += p->held_weight[stage] - p->held[stage];
        int64_t room = (int64_t)p->chunks * p->micro_batches;
        k->late[r * room + k->late_first[r] + k->late_n[r]++] = (uint8_t)chunk;
        if (stage > 0)
            arrives(k, 1, stage - 1, micro,
                    end + (rank_of(p, stage - 1) == r ? 0 : p->send[stage]));
    } else {
        end += p->weight[stage];
        set_wake(k, r, k->idle_from[r] = end);
        k->held[r] -= p->held_weight[stage];
        k->late_first[r]++;
        k->late_n[r]--;
        if (++count[2] == p->micro_batches)
            k->reduced[r] = fmax(end, k->reduced[r]) + p->reduce[stage];
    }
    k->rest[r] -= end - t;
    double whole = k->limit[r] / k->set->memory;
    if (whole > 0) k->score.memory = fmax(k->score.memory, k->held[r] / whole);
}

static void begin_late(play *k, int r, double t) {
    int64_t room = (int64_t)k->p->chunks * k->p->micro_batches;
    begin(k, r, GW_ACT_W, k->late[r * room + k->late_first[r]], t);
}

/* When the next F of a chunk could begin, memory apart; HUGE_VAL: not known, none, or capped. */
static double next_forward(const play *k, int r, int chunk) {
    int stage = stage_of(k->p, r, chunk);
    const int32_t *count = &k->count[3 * stage];
    if (count[0] >= k->p->micro_batches) return HUGE_VAL;
    if (chunk == 0 && count[0] - count[1] >= k->set->cap[r]) return HUGE_VAL;
    return *ready_at(k, 0, stage, count[0]);
}

static double next_input(const play *k, int r, int chunk) {
    int stage = stage_of(k->p, r, chunk);
    const int32_t *count = &k->count[3 * stage];
    return count[1] < count[0] ? *ready_at(k, 1, stage, count[1]) : HUGE_VAL;
}

static bool has_room(const play *k, int r, int chunk) {
    double more = k->p->held[stage_of(k->p, r, chunk)];
    if (chunk == 0 && k->p->chunks == 2) more += k->p->held[stage_of(k->p, r, 1)];
    return k->held[r] + more <= k->limit[r] * (1 + 1e-9);
}

/* Nothing else can be done now: the oldest weight gradient, unless `next` comes too soon. */
static void fill(play *k, int r, double t, double next, bool full) {
    if (k->late_n[r] > 0) {
        int64_t room = (int64_t)k->p->chunks * k->p->micro_batches;
        int stage = stage_of(k->p, r, k->late[r * room + k->late_first[r]]);
        if (full || next >= t + k->set->patience * k->p->weight[stage] - k->soon) {
            begin_late(k, r, t);
            return;
        }
    }
    set_wake(k, r, next);
}

/* A free rank decides, or sleeps: by priorities. */
static void decide(play *k, int r, double t) {
    double next = HUGE_VAL;
    bool full = false;
    for (int i = 0; i < SLOTS && k->set->priority[i] != NO; i++) {
        int act = k->set->priority[i] & 3, chunk = k->set->priority[i] >> 2;
        if (act == GW_ACT_W) {
            if (k->late_n[r] <= k->set->lag[r]) continue;
            begin_late(k, r, t);
            return;
        }
        double at = act == GW_ACT_F ? next_forward(k, r, chunk) : next_input(k, r, chunk);
        bool room = act == GW_ACT_I || has_room(k, r, chunk);
        if (at > t + k->soon) {
            if (room) next = fmin(next, at);
            continue;
        }
        if (room) {
            begin(k, r, act, chunk, fmax(t, at));
            return;
        }
        full = true;
    }
    fill(k, r, t, next, full);
}

/* The same, but F and I stand fixed, and only the weight gradients are free. */
static void decide_following(play *k, int r, double t) {
    const uint8_t *codes = k->set->follow->codes[r];
    int64_t i = k->ahead[r];
    while (i < k->order.n && (codes[i] & 3) == GW_ACT_W) i++;
    k->ahead[r] = i;
    if (i == k->order.n) {
        fill(k, r, t, HUGE_VAL, true);
        return;
    }
    int act = codes[i] & 3, chunk = codes[i] >> 2, stage = stage_of(k->p, r, chunk);
    bool forward = act == GW_ACT_F;
    const int32_t *count = &k->count[3 * stage];
    double at = *ready_at(k, !forward, stage, count[forward ? 0 : 1]);
    bool full = forward && k->held[r] + k->p->held[stage] > k->limit[r] * (1 + 1e-9);
    if (at > t + k->soon || full)
        fill(k, r, t, full ? HUGE_VAL : at, full);
    else if (forward && k->late_n[r] > k->set->lag[r])
        begin_late(k, r, t);
    else {
        k->ahead[r]++;
        begin(k, r, act, chunk, fmax(t, at));
    }
}

/* ---- a whole play ---- */

static void new_play(play *k, const gw_zb_problem *p, gw_arena *a) {
    int n = p->ranks, stages = n * p->chunks;
    int64_t m = p->micro_batches;
    *k = (play){.p = p, .leaves = 1};
    while (k->leaves < n) k->leaves *= 2;
    k->ready = gw_arena_new(a, double, 2 * stages * m);
    k->count = gw_arena_new(a, int32_t, 3 * stages);
    k->late = gw_arena_new(a, uint8_t, stages * m);
    k->late_first = gw_arena_new(a, int64_t, n);
    k->late_n = gw_arena_new(a, int64_t, n);
    k->idle_from = gw_arena_new(a, double, n);
    k->start = gw_arena_new(a, double, n);
    k->reduced = gw_arena_new(a, double, n);
    k->held = gw_arena_new(a, double, n);
    k->limit = gw_arena_new(a, double, n);
    k->rest = gw_arena_new(a, double, n);
    k->wake = gw_arena_new(a, double, k->leaves);
    k->winner = gw_arena_new(a, int, 2 * k->leaves);
    k->n = gw_arena_new(a, int64_t, n);
    k->ahead = gw_arena_new(a, int64_t, n);
    k->order = gw_zb_order_new(p, a);
    double sum = 0;
    for (int s = 0; s < stages; s++) sum += p->forward[s] + p->input[s] + p->weight[s];
    k->soon = 1e-9 * sum / stages;
}

static double work_of(const gw_zb_problem *p, int rank) {
    double sum = 0;
    for (int c = 0; c < p->chunks; c++) {
        int s = stage_of(p, rank, c);
        sum += p->forward[s] + p->input[s] + p->weight[s];
    }
    return sum * p->micro_batches;
}

static void reset(play *k, const settings *set) {
    const gw_zb_problem *p = k->p;
    size_t n = (size_t)p->ranks;
    int stages = p->ranks * p->chunks;
    int64_t pairs = (int64_t)stages * p->micro_batches;
    k->set = set;
    k->score = (gw_zb_score){0};
    k->least = 0;
    for (int64_t i = 0; i < 2 * pairs; i++) k->ready[i] = i < p->micro_batches ? 0 : HUGE_VAL;
    memset(k->count, 0, 3 * (size_t)stages * sizeof *k->count);
    memset(k->late_first, 0, n * sizeof *k->late_first);
    memset(k->late_n, 0, n * sizeof *k->late_n);
    memset(k->idle_from, 0, n * sizeof *k->idle_from);
    memset(k->reduced, 0, n * sizeof *k->reduced);
    memset(k->held, 0, n * sizeof *k->held);
    memset(k->n, 0, n * sizeof *k->n);
    memset(k->ahead, 0, n * sizeof *k->ahead);
    for (int r = 0; r < p->ranks; r++) {
        k->rest[r] = work_of(p, r);
        k->limit[r] = set->memory * p->held[stage_of(p, r, 0)];
        if (p->chunks == 2) k->limit[r] += set->memory * p->held[stage_of(p, r, 1)];
    }
    for (int i = 0; i < k->leaves; i++) {
        k->wake[i] = i == 0 ? 0 : HUGE_VAL; /* others wake when something arrives */
        k->winner[k->leaves + i] = i;
    }
    for (int i = k->leaves - 1; i >= 1; i--)
        k->winner[i] = k->winner[2 * i]; /* all but the first sleep: any order of the others */
}

/* False: it came to a halt, or is no better than give_up. */
static bool play_out(play *k, const settings *set) {
    const gw_zb_problem *p = k->p;
    reset(k, set);
    for (;;) {
        int r = k->winner[1];
        double t = k->wake[r];
        if (t == HUGE_VAL || k->least > k->give_up) break;
        if (set->follow)
            decide_following(k, r, t);
        else
            decide(k, r, t);
    }
    for (int r = 0; r < p->ranks; r++) k->played += k->n[r];
    double span = 0, step = 0;
    for (int r = 0; r < p->ranks; r++) {
        if (k->n[r] != k->order.n) return false;
        double end = fmax(k->idle_from[r], k->reduced[r]);
        span = fmax(span, end - k->start[r]);
        step = fmax(step, end);
    }
    k->score.first = p->barrier ? step : span;
    k->score.second = p->barrier ? span : step;
    return true;
}

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
        if (st > 0 && rank_of(p, st - 1) != rank_of(p, st)) below += p->send[st] + p->send[st - 1];
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

/* Limits in units of micro-batches, ascending: quarters of the number of ranks, eighths from there
 * to twice that, then wider; of few ranks halves. Very large problems have three rungs. */
static int ladder_of(const gw_zb_problem *p, double rungs[MAX_RUNGS]) {
    static const double wider[] = {2.5, 3, 4, 6, 8};
    int n = 0;
    rungs[n++] = 1;
    double unit = fmax(0.5, p->ranks / 8.0), most = p->micro_batches;
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

typedef struct search {
    const gw_zb_problem *p;
    play k;
    shapes s;
    int64_t left;    /* actions that may be played on this rung */
    gw_zb_score top; /* of the best so far */
    bool any;
    double bound; /* first cannot be less */
    const gw_zb_order *given;
    int ngiven;
    gw_zb_order *best;
} search;

static void keep(search *x, const gw_zb_order *o, gw_zb_score score) {
    for (int r = 0; r < x->p->ranks; r++) memcpy(x->best->codes[r], o->codes[r], (size_t)o->n);
    x->top = score;
    x->any = true;
}

/* Plays one setting; if it is the best of its rung so far, into *rung. */
static bool attempt(search *x, const settings *set, gw_zb_score *rung, bool *any) {
    x->k.played = 0;
    x->k.give_up = *any ? rung->first * (1 + 1e-9) : HUGE_VAL;
    bool done = play_out(&x->k, set);
    x->left -= x->k.played;
    if (!done || x->k.score.memory > set->memory * (1 + 1e-9)) return false;
    if (!x->any || better(&x->k.score, &x->top)) keep(x, &x->k.order, x->k.score);
    if (*any && !better(&x->k.score, rung)) return false;
    *rung = x->k.score;
    return *any = true;
}

static bool at_bound(const search *x) { return x->any && x->top.first <= x->bound * (1 + 1e-9); }

/* All combinations, the likelier ones first; which was best. */
static settings try_all(search *x, double memory, gw_zb_score *rung, bool *any) {
    static const double patience[PATIENCES] = {0.5, 0, 1};
    bool two = x->p->chunks == 2;
    int npriorities = two ? (int)GW_COUNT(two_stages) : (int)GW_COUNT(one_stage);
    int ways = npriorities + x->ngiven;
    settings top = {0};
    for (int i = 0; i < CAPS * LAGS * PATIENCES * ways; i++) {
        int way = i % ways, cap = i / ways % CAPS, lag = i / ways / CAPS % LAGS;
        settings set = {.memory = memory,
                        .cap = x->s.cap[cap],
                        .lag = x->s.lag[lag],
                        .patience = patience[i / ways / CAPS / LAGS]};
        if (way >= npriorities)
            set.follow = &x->given[way - npriorities];
        else
            set.priority = two ? two_stages[way] : one_stage[way];
        if (set.follow && cap > 0) continue; /* it has no use for caps */
        if (*any && (x->left <= 0 || at_bound(x))) break;
        if (attempt(x, &set, rung, any)) top = set;
    }
    return top;
}

/* One more or one less of caps or lags, of one rank or of all from it on, while that helps. */
static void improve(search *x, settings set, gw_zb_score *rung, bool *any, gw_arena *a) {
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
            if (x->left <= 0 || at_bound(x)) return;
            memcpy(was, own[lags], (size_t)n * sizeof *was);
            for (int r = from; r < end; r++) own[lags][r] = GW_MAX(was[r] + more, 1 - lags);
            if (attempt(x, &set, rung, any))
                helped = true;
            else
                memcpy(own[lags], was, (size_t)n * sizeof *was);
        }
    }
}

void gw_zb_search(const gw_zb_problem *p, const gw_zb_order *given, int n, gw_arena *a,
                  gw_zb_order *best) {
    double rungs[MAX_RUNGS];
    int nrungs = ladder_of(p, rungs);
    gw_arena scratch = {0};
    search x = {.p = p, .best = best, .given = given, .ngiven = n};
    *best = gw_zb_order_new(p, a);
    new_play(&x.k, p, &scratch);
    shapes_of(p, &scratch, &x.s);
    for (int r = 0; r < p->ranks; r++) {
        double reduce = HUGE_VAL;
        for (int c = 0; c < p->chunks; c++) reduce = fmin(reduce, p->reduce[stage_of(p, r, c)]);
        x.bound = fmax(x.bound, work_of(p, r) + reduce);
    }
    for (int i = 0; i < n; i++) {
        gw_zb_score s = gw_zb_order_score(p, &given[i], &scratch);
        if (s.memory <= p->memory * (1 + 1e-9) && (!x.any || better(&s, &x.top)))
            keep(&x, &given[i], s);
    }
    for (int i = 0; i < nrungs && !at_bound(&x); i++) {
        if (i > 0 && rungs[i] > p->memory * (1 + 1e-9)) break;
        gw_zb_score rung = {0};
        bool any = false;
        x.left = WORK / nrungs;
        settings top = try_all(&x, rungs[i], &rung, &any);
        if (any) improve(&x, top, &rung, &any, &scratch);
    }
    if (!x.any) { /* input gradients that leave more behind than they free: one after another */
        x.k.give_up = HUGE_VAL;
        settings least = {.memory = 1,
                          .cap = x.s.cap[1],
                          .lag = x.s.lag[4],
                          .priority = p->chunks == 2 ? two_stages[0] : one_stage[0]};
        GW_ASSERT(play_out(&x.k, &least));
        keep(&x, &x.k.order, x.k.score);
    }
    gw_arena_release(&scratch);
}

// SPDX-License-Identifier: Apache-2.0
// One play of a pipeline with a backward in halves.
//
// Time goes on from event to event: the rank that is free first, or has something arrive first, is
// next (a tournament tells which). When a rank is free it takes the first of these that it can:
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
// In a V a rank has two stages, and a forward pass of the first leaves room for one of the second:
// without it ranks could fill up with micro-batches that have no way back.
//
// Memory is what is there at once, or, where it is known what input gradients leave (apart), that
// of places (gw_sched_places): what a play has needed so far it keeps, as a program does. Stages
// whose gradients cannot wait have a whole backward, and so has the first one where its lag is 0;
// one place of what an input gradient leaves is set aside in all others. Messages wait for nothing
// here but their time: the clock (clock.c) knows more.
#include "sched/play.h"

#include <math.h>
#include <string.h>

static double *ready_at(const gw_zb_play *k, int which, int stage, int32_t micro) {
    int64_t stages = (int64_t)k->p->ranks * k->p->chunks;
    return &k->ready[(which * stages + stage) * k->p->micro_batches + micro];
}

/* ---- who is next ---- */

static void set_wake(gw_zb_play *k, int rank, double t) {
    k->wake[rank] = t;
    for (int i = (k->leaves + rank) / 2; i >= 1; i /= 2) {
        int left = k->winner[2 * i], right = k->winner[2 * i + 1];
        k->winner[i] = k->wake[right] < k->wake[left] ? right : left;
    }
}

static void arrives(gw_zb_play *k, int which, int stage, int32_t micro, double t) {
    *ready_at(k, which, stage, micro) = t;
    int r = gw_zb_rank(k->p, stage);
    if (t >= k->idle_from[r] && t < k->wake[r]) set_wake(k, r, t);
}

/* ---- acting ---- */

/* A whole backward is I with the time of both. */
static double time_of(const gw_zb_play *k, int act, int stage) {
    const gw_zb_problem *p = k->p;
    bool whole = k->order.whole[stage];
    if (act == GW_ACT_F) return p->forward[stage];
    if (act == GW_ACT_W) return whole ? 0 : p->weight[stage];
    return p->input[stage] + (whole ? p->weight[stage] : 0);
}

/* What the places of a stage take. */
static double taken(const gw_zb_problem *p, const gw_sched_places *x, int stage) {
    return (p->apart ? gw_sched_placed : gw_sched_there)(x, p->held[stage], p->held_weight[stage],
                                                         p->made[stage]);
}

static double held_by(const gw_zb_play *k, int r) {
    double sum = 0;
    for (int c = 0; c < k->p->chunks; c++) {
        int s = gw_zb_stage(k->p, r, c);
        sum += taken(k->p, &k->places[s], s);
    }
    return sum;
}

/* A whole backward: its W is over with its I. */
static void end_weight(gw_zb_play *k, int r, int stage, int chunk, double end) {
    k->order.codes[r][k->n[r]++] = (uint8_t)(GW_ACT_W + 4 * chunk);
    if (++k->count[3 * stage + 2] == k->p->micro_batches)
        k->reduced[r] = fmax(end, k->reduced[r]) + k->p->reduce[stage];
}

static void begin(gw_zb_play *k, int r, int act, int chunk, double t) {
    const gw_zb_problem *p = k->p;
    int stage = gw_zb_stage(p, r, chunk), last = p->ranks * p->chunks - 1;
    int32_t *count = &k->count[3 * stage];
    bool whole = k->order.whole[stage];
    double end = t + time_of(k, act, stage);
    if (k->n[r] == 0) k->start[r] = t;
    k->least = fmax(k->least, t + k->rest[r] - (p->barrier ? 0 : k->start[r]));
    k->order.codes[r][k->n[r]++] = (uint8_t)(act + 4 * chunk);
    /* Awake when done; what it makes arrives elsewhere after that, so set this first. */
    set_wake(k, r, k->idle_from[r] = end);
    gw_sched_place(&k->places[stage], whole && act == GW_ACT_I ? GW_ACT_B : (gw_act)act);
    if (act == GW_ACT_F) {
        int32_t micro = count[0]++;
        if (stage == last)
            arrives(k, 1, stage, micro, end);
        else
            arrives(k, 0, stage + 1, micro,
                    end + (gw_zb_rank(p, stage + 1) == r ? 0 : p->send[stage]));
    } else if (act == GW_ACT_I) {
        int32_t micro = count[1]++;
        int64_t room = (int64_t)p->chunks * p->micro_batches;
        if (!whole)
            k->late[r * room + k->late_first[r] + k->late_n[r]++] = (uint8_t)chunk;
        else
            end_weight(k, r, stage, chunk, end);
        if (stage > 0)
            arrives(k, 1, stage - 1, micro,
                    end + (gw_zb_rank(p, stage - 1) == r ? 0 : p->send[stage]));
    } else {
        k->late_first[r]++;
        k->late_n[r]--;
        if (++count[2] == p->micro_batches)
            k->reduced[r] = fmax(end, k->reduced[r]) + p->reduce[stage];
    }
    k->rest[r] -= end - t;
    double unit = k->limit[r] / k->set->memory;
    if (unit > 0) k->score.memory = fmax(k->score.memory, held_by(k, r) / unit);
}

static void begin_late(gw_zb_play *k, int r, double t) {
    int64_t room = (int64_t)k->p->chunks * k->p->micro_batches;
    begin(k, r, GW_ACT_W, k->late[r * room + k->late_first[r]], t);
}

/* When the next F of a chunk could begin, memory apart; HUGE_VAL: not known, none, or capped. */
static double next_forward(const gw_zb_play *k, int r, int chunk) {
    int stage = gw_zb_stage(k->p, r, chunk);
    const int32_t *count = &k->count[3 * stage];
    if (count[0] >= k->p->micro_batches) return HUGE_VAL;
    if (chunk == 0 && count[0] - count[1] >= k->set->cap[r]) return HUGE_VAL;
    return *ready_at(k, 0, stage, count[0]);
}

static double next_input(const gw_zb_play *k, int r, int chunk) {
    int stage = gw_zb_stage(k->p, r, chunk);
    const int32_t *count = &k->count[3 * stage];
    return count[1] < count[0] ? *ready_at(k, 1, stage, count[1]) : HUGE_VAL;
}

/* Has the rank places for F or I of these chunks? */
static bool has_places(const gw_zb_play *k, int r, int act, bool first, bool second) {
    const gw_zb_problem *p = k->p;
    if (!p->apart && act == GW_ACT_I) return true; /* W frees what it leaves */
    double sum = 0;
    for (int c = 0; c < p->chunks; c++) {
        int s = gw_zb_stage(p, r, c);
        gw_sched_places x = k->places[s];
        bool more = c ? second : first;
        if (more && act == GW_ACT_F) {
            gw_sched_take(&x, 0);
            if (x.halves) gw_sched_take(&x, 1);
        }
        if (more && act == GW_ACT_I && x.halves && p->apart) gw_sched_take(&x, 2);
        sum += taken(p, &x, s);
    }
    return sum <= k->limit[r] * (1 + 1e-9);
}

/* F of a V's first stage leaves places for one of the second. */
static bool has_room(const gw_zb_play *k, int r, int act, int chunk) {
    return has_places(k, r, act, chunk == 0, chunk == 1 || act == GW_ACT_F);
}

/* Nothing else can be done now: the oldest weight gradient, unless `next` comes too soon. */
static void fill(gw_zb_play *k, int r, double t, double next, bool full) {
    if (k->late_n[r] > 0) {
        int64_t room = (int64_t)k->p->chunks * k->p->micro_batches;
        int stage = gw_zb_stage(k->p, r, k->late[r * room + k->late_first[r]]);
        if (full || next >= t + k->set->patience * k->p->weight[stage] - k->soon) {
            begin_late(k, r, t);
            return;
        }
    }
    set_wake(k, r, next);
}

/* A free rank decides, or sleeps: by priorities. */
static void decide(gw_zb_play *k, int r, double t) {
    double next = HUGE_VAL;
    bool full = false;
    for (int i = 0; i < GW_ZB_SLOTS && k->set->priority[i] != GW_ZB_NO; i++) {
        int act = k->set->priority[i] & 3, chunk = k->set->priority[i] >> 2;
        if (act == GW_ACT_W) {
            if (k->late_n[r] <= k->set->lag[r]) continue;
            begin_late(k, r, t);
            return;
        }
        double at = act == GW_ACT_F ? next_forward(k, r, chunk) : next_input(k, r, chunk);
        if (at == HUGE_VAL) continue;
        bool room = has_room(k, r, act, chunk);
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
static void decide_following(gw_zb_play *k, int r, double t) {
    const uint8_t *codes = k->set->follow->codes[r];
    int64_t i = k->ahead[r];
    while (i < k->order.n && (codes[i] & 3) == GW_ACT_W) i++;
    k->ahead[r] = i;
    if (i == k->order.n) {
        fill(k, r, t, HUGE_VAL, true);
        return;
    }
    int act = codes[i] & 3, chunk = codes[i] >> 2, stage = gw_zb_stage(k->p, r, chunk);
    bool forward = act == GW_ACT_F;
    const int32_t *count = &k->count[3 * stage];
    double at = *ready_at(k, !forward, stage, count[forward ? 0 : 1]);
    bool full = !has_places(k, r, act, chunk == 0, chunk == 1);
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

void gw_zb_play_new(gw_zb_play *k, const gw_zb_problem *p, gw_arena *a) {
    int n = p->ranks, stages = n * p->chunks;
    int64_t m = p->micro_batches;
    *k = (gw_zb_play){.p = p, .leaves = 1};
    while (k->leaves < n) k->leaves *= 2;
    k->ready = gw_arena_new(a, double, 2 * stages * m);
    k->count = gw_arena_new(a, int32_t, 3 * stages);
    k->late = gw_arena_new(a, uint8_t, stages * m);
    k->late_first = gw_arena_new(a, int64_t, n);
    k->late_n = gw_arena_new(a, int64_t, n);
    k->idle_from = gw_arena_new(a, double, n);
    k->start = gw_arena_new(a, double, n);
    k->reduced = gw_arena_new(a, double, n);
    k->places = gw_arena_new(a, gw_sched_places, stages);
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

double gw_zb_work(const gw_zb_problem *p, int rank) {
    double sum = 0;
    for (int c = 0; c < p->chunks; c++) {
        int s = gw_zb_stage(p, rank, c);
        sum += p->forward[s] + p->input[s] + p->weight[s];
    }
    return sum * p->micro_batches;
}

static void reset(gw_zb_play *k, const gw_zb_settings *set) {
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
    memset(k->n, 0, n * sizeof *k->n);
    memset(k->ahead, 0, n * sizeof *k->ahead);
    for (int r = 0; r < p->ranks; r++) {
        k->rest[r] = gw_zb_work(p, r);
        k->limit[r] = set->memory * gw_zb_unit(p, r);
    }
    for (int s = 0; s < stages; s++) {
        bool first = s == 0 && p->apart && set->lag[0] == 0;
        bool halves = !set->whole[s] && !first;
        k->order.whole[s] = !halves;
        k->places[s] = (gw_sched_places){.halves = halves, .most[2] = halves};
    }
    for (int i = 0; i < k->leaves; i++) {
        k->wake[i] = i == 0 ? 0 : HUGE_VAL; /* others wake when something arrives */
        k->winner[k->leaves + i] = i;
    }
    for (int i = k->leaves - 1; i >= 1; i--)
        k->winner[i] = k->winner[2 * i]; /* all but the first sleep: any order of the others */
}

/* False: it came to a halt, or is no better than give_up. */
bool gw_zb_play_out(gw_zb_play *k, const gw_zb_settings *set) {
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

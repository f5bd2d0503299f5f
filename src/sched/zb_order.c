// SPDX-License-Identifier: Apache-2.0
// Orders of computing actions with a backward in halves: made by hand, replayed, written out.
//
// An order says for each rank which of F, I and W comes when; which micro-batch is meant follows by
// counting, as every stage takes them in their order. That is small and quick to replay, which a
// search does often, and it becomes a schedule (sched.h) when one has been chosen.
//
// The replay is the clock (clock.c) without messages: a rank does one thing after another, F and I
// wait for the stage before or behind and the time between. It gives what is being made small
// (gw_zb_score) and the most a rank holds; tests/sched compares the two.
//
// The hand-made orders are those of Qi, Wan, Huang and Lin 2023 (arXiv 2401.10241), section 2 and
// figures 2 and 3. They differ in one number, the lag. With lag 1 (ZB-H1) a rank has as many
// micro-batches on their way as with 1F1B; its weight gradients wait for the time after its last
// input gradient, where 1F1B has its bubble, and (p - 1)(F + I - W) of it stays. With lag 2 (ZB-H2)
// it forwards twice as many ahead, so that nothing is left empty before the first gradient comes
// back either: (p - 1)(F + I - 2W) stays, none if all take equally long, with twice the memory.
// With fewer micro-batches than the lag asks for, the same order holds without those that there are
// not: leaving out micro-batches takes no action's precondition away.
//
// Those papers count micro-batches. Bytes are another matter: a gradient of weights that waits
// keeps the products' inputs and the gradients of their outputs, together about as much as all that
// backward reads, and each kind of these has places of its own in a program. So where a request
// says what they take (costs.made), a rank lags as far as its memory has places for, and where not
// even one gradient can wait without taking the room of a micro-batch under way, its backward stays
// whole. So it does on the first stage if nothing of it waits: nobody waits for its input gradient.
#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "sched/search.h"

static double *filled(const double *given, const double *otherwise, double factor, int n,
                      gw_arena *a) {
    double *out = gw_arena_new(a, double, n);
    for (int i = 0; i < n; i++)
        out[i] = given ? given[i] : otherwise ? factor * otherwise[i] : factor;
    return out;
}

void gw_zb_problem_of(const gw_sched_request *r, double memory, gw_arena *a, gw_zb_problem *out) {
    static const gw_sched_costs none = {0};
    const gw_sched_costs *c = r->costs ? r->costs : &none;
    int n = r->ranks * r->virtual_stages;
    GW_ASSERT(r->virtual_stages >= 1 && r->virtual_stages <= GW_ZB_MAX_CHUNKS);
    *out = (gw_zb_problem){.ranks = r->ranks,
                           .chunks = r->virtual_stages,
                           .micro_batches = r->micro_batches,
                           .apart = c->made != NULL,
                           .barrier = c->barrier,
                           .step = c->step,
                           .places = r->places,
                           .memory = r->memory > 0 ? r->memory : memory};
    out->forward = filled(c->forward, NULL, 1, n, a);
    out->input = filled(c->input, NULL, 1, n, a);
    out->weight = filled(c->weight, NULL, 1, n, a);
    out->send = filled(c->send, NULL, 0, n, a);
    out->reduce = filled(c->reduce, NULL, 0, n, a);
    out->held = filled(c->held, NULL, 1, n, a);
    out->held_weight = filled(c->held_weight, out->held, 0.5, n, a);
    out->made = filled(c->made, NULL, 0, n, a);
    out->message = filled(c->message, NULL, 0, n, a);
    for (int s = 0; s < n && !c->made; s++) /* what F has not left, I has made */
        out->made[s] = fmax(0, out->held_weight[s] - out->held[s]);
}

gw_zb_order gw_zb_order_new(const gw_zb_problem *p, gw_arena *a) {
    gw_zb_order o = {.n = 3 * (int64_t)p->chunks * p->micro_batches};
    o.codes = gw_arena_new(a, uint8_t *, p->ranks);
    o.whole = gw_arena_new(a, bool, p->ranks * p->chunks);
    for (int r = 0; r < p->ranks; r++) o.codes[r] = gw_arena_new(a, uint8_t, o.n);
    return o;
}

/* ---- memory ---- */

double gw_zb_unit(const gw_zb_problem *p, int rank) {
    double sum = 0;
    for (int c = 0; c < p->chunks; c++) sum += p->held[gw_zb_stage(p, rank, c)];
    return sum;
}

void gw_zb_wholes(const gw_zb_problem *p, double memory, bool *whole) {
    for (int r = 0; r < p->ranks; r++) {
        /* Under way at once where nothing is to stand still: as with 1F1B; in a V at least half. */
        double need = p->chunks == 1 ? p->ranks - r : ceil(memory / 2), made = 0;
        for (int c = 0; c < p->chunks; c++) made += p->made[gw_zb_stage(p, r, c)];
        need = fmax(1, fmin(need, p->micro_batches));
        bool w =
            p->apart && need * gw_zb_unit(p, r) + made > memory * gw_zb_unit(p, r) * (1 + 1e-9);
        for (int c = 0; c < p->chunks; c++) whole[gw_zb_stage(p, r, c)] = w;
    }
}

/* ---- by hand ---- */

/* By how many weight gradients rank r may be behind, of the `lag` that are wanted, with `under_way`
 * micro-batches on their way. */
static int64_t lag_within(const gw_zb_problem *p, int r, int64_t under_way, int64_t lag) {
    if (!p->apart) return lag;
    int64_t m = p->micro_batches;
    for (; lag > 0; lag--) {
        gw_sched_places x = {.halves = true};
        x.most[0] = (int32_t)GW_MIN(under_way, m);
        x.most[1] = (int32_t)GW_MIN(under_way + lag, m);
        x.most[2] = (int32_t)GW_MIN(lag + 1, m);
        if (gw_sched_placed(&x, p->held[r], p->held_weight[r], p->made[r]) <=
            p->memory * p->held[r] * (1 + 1e-9))
            break;
    }
    return lag;
}

gw_zb_order gw_zb_order_by_hand(const gw_zb_problem *p, int lag, gw_arena *a) {
    GW_ASSERT(p->chunks == 1);
    gw_zb_order o = gw_zb_order_new(p, a);
    gw_zb_wholes(p, p->memory, o.whole);
    int64_t m = p->micro_batches;
    for (int r = 0; r < p->ranks; r++) {
        int64_t ahead = (int64_t)lag * (p->ranks - 1 - r), n = 0;
        int64_t behind = o.whole[r] ? 0 : lag_within(p, r, ahead + 1, (int64_t)lag * r);
        if (r == 0 && behind == 0 && p->apart) o.whole[0] = true;
        for (int64_t k = 0; k < ahead && k < m; k++) o.codes[r][n++] = GW_ACT_F;
        for (int64_t k = 0; k < m; k++) {
            if (ahead + k < m) o.codes[r][n++] = GW_ACT_F;
            o.codes[r][n++] = GW_ACT_I;
            if (k >= behind) o.codes[r][n++] = GW_ACT_W;
        }
        while (n < o.n) o.codes[r][n++] = GW_ACT_W;
    }
    return o;
}

/* ---- replay ---- */

typedef struct replay {
    const gw_zb_problem *p;
    double *done;   /* [2 * stages * micro_batches]: when F, then I, is through; -1: not yet */
    int32_t *count; /* [3 * stages]: F, I, W done */
    int64_t *at;    /* [ranks] */
    double *now, *start, *reduced;
    gw_sched_places *places; /* [stages] */
    const bool *whole;
    gw_zb_score score;
} replay;

static double *done_at(const replay *k, int act, int stage, int32_t micro) {
    int64_t stages = (int64_t)k->p->ranks * k->p->chunks;
    return &k->done[(act * stages + stage) * k->p->micro_batches + micro];
}

/* When what an action needs is there; -1: not known yet. */
static double ready(const replay *k, int r, int act, int stage, int32_t micro) {
    int last = k->p->ranks * k->p->chunks - 1;
    if (act == GW_ACT_W || (act == GW_ACT_F && stage == 0)) return 0;
    if (act == GW_ACT_I && stage == last) return *done_at(k, 0, stage, micro);
    int from = act == GW_ACT_F ? stage - 1 : stage + 1;
    double t = *done_at(k, act == GW_ACT_I, from, micro);
    return t < 0 || gw_zb_rank(k->p, from) == r ? t : t + k->p->send[from];
}

/* A whole backward is I with the time of both. */
double gw_zb_time(const gw_zb_problem *p, const bool *whole, int act, int stage) {
    if (act == GW_ACT_F) return p->forward[stage];
    double w = p->weight[stage];
    if (act == GW_ACT_W) return whole[stage] ? 0 : w;
    return p->input[stage] + (whole[stage] ? w : 0);
}

double gw_zb_held(const gw_zb_problem *p, const gw_sched_places *places, int rank) {
    double sum = 0;
    for (int c = 0; c < p->chunks; c++) {
        int s = gw_zb_stage(p, rank, c);
        sum += (p->apart ? gw_sched_placed : gw_sched_there)(&places[s], p->held[s],
                                                             p->held_weight[s], p->made[s]);
    }
    return sum;
}

/* The next action of a rank; false: it must wait for one that has not been replayed. */
static bool replay_one(replay *k, int r, uint8_t code) {
    const gw_zb_problem *p = k->p;
    int act = code & 3, stage = gw_zb_stage(p, r, code >> 2);
    int32_t *count = &k->count[3 * stage];
    int done = act == GW_ACT_F ? 0 : act == GW_ACT_I ? 1 : 2;
    int32_t micro = count[done];
    double t = ready(k, r, act, stage, micro);
    if (t < 0) return false;
    if (k->at[r] == 0) k->start[r] = fmax(k->now[r], t);
    k->now[r] = fmax(k->now[r], t) + gw_zb_time(p, k->whole, act, stage);
    if (done < 2) *done_at(k, done, stage, micro) = k->now[r];
    if (!k->whole[stage] || act != GW_ACT_W)
        gw_sched_place(&k->places[stage],
                       k->whole[stage] && act == GW_ACT_I ? GW_ACT_B : (gw_act)act);
    double unit = gw_zb_unit(p, r);
    if (unit > 0) k->score.memory = fmax(k->score.memory, gw_zb_held(p, k->places, r) / unit);
    count[done]++;
    if (done == 2 && count[2] == p->micro_batches)
        k->reduced[r] = fmax(k->now[r], k->reduced[r]) + p->reduce[stage];
    return true;
}

gw_zb_score gw_zb_order_score(const gw_zb_problem *p, const gw_zb_order *o, gw_arena *a) {
    int stages = p->ranks * p->chunks;
    int64_t pairs = (int64_t)stages * p->micro_batches;
    replay k = {.p = p};
    k.done = gw_arena_new(a, double, 2 * pairs);
    for (int64_t i = 0; i < 2 * pairs; i++) k.done[i] = -1;
    k.count = gw_arena_new(a, int32_t, 3 * stages);
    k.at = gw_arena_new(a, int64_t, p->ranks);
    k.now = gw_arena_new(a, double, p->ranks);
    k.start = gw_arena_new(a, double, p->ranks);
    k.reduced = gw_arena_new(a, double, p->ranks);
    k.places = gw_arena_new(a, gw_sched_places, stages);
    k.whole = o->whole;
    for (int s = 0; s < stages; s++) k.places[s].halves = !o->whole[s];
    /* Each rank as far as it comes, down the pipeline and up again, until nothing moves. */
    for (bool moved = true, down = true; moved; down = !down) {
        moved = false;
        for (int i = 0; i < p->ranks; i++) {
            int r = down ? i : p->ranks - 1 - i;
            while (k.at[r] < o->n && replay_one(&k, r, o->codes[r][k.at[r]])) {
                k.at[r]++;
                moved = true;
            }
        }
    }
    double span = 0, step = 0;
    for (int r = 0; r < p->ranks; r++) {
        GW_ASSERT(k.at[r] == o->n);
        double end = fmax(k.now[r], k.reduced[r]);
        span = fmax(span, end - k.start[r]);
        step = fmax(step, end);
    }
    k.score.first = p->barrier ? step : span;
    k.score.second = p->barrier ? span : step;
    return k.score;
}

gw_zb_score gw_zb_order_clock(const gw_zb_problem *p, const gw_zb_order *o, gw_arena *a) {
    gw_zb_score score = gw_zb_order_score(p, o, a);
    gw_sched_costs c = {.forward = p->forward,
                        .input = p->input,
                        .weight = p->weight,
                        .send = p->send,
                        .reduce = p->reduce,
                        .held = p->held,
                        .held_weight = p->held_weight,
                        .made = p->made,
                        .message = p->message,
                        .step = p->step,
                        .barrier = p->barrier};
    gw_schedule s;
    gw_sched_times t;
    gw_zb_order_emit(p, o, "", a, &s);
    gw_schedule_complete(&s, a);
    gw_sched_time(&s, &c, p->places > 0 ? p->places : p->micro_batches, a, &t);
    double span = 0;
    for (int r = 0; r < p->ranks; r++) {
        double end = 0, start = HUGE_VAL;
        for (int64_t i = 0; i < s.lists[r].n; i++) {
            gw_act act = (gw_act)s.lists[r].items[i].act;
            if (act == GW_ACT_STEP) continue;
            end = fmax(end, t.spans[r][i].end);
            if (act == GW_ACT_F) start = fmin(start, t.spans[r][i].start);
        }
        span = fmax(span, end - start);
        double unit = gw_zb_unit(p, r), most = p->apart ? t.placed[r] : t.held[r];
        if (unit > 0) score.memory = fmax(score.memory, most / unit);
    }
    double step = t.step - p->step;
    score.first = p->barrier ? step : span;
    score.second = p->barrier ? span : step;
    return score;
}

/* ---- out ---- */

void gw_zb_order_emit(const gw_zb_problem *p, const gw_zb_order *o, const char *name, gw_arena *a,
                      gw_schedule *out) {
    gw_sched_builder b;
    gw_sched_begin(&b, a, out, name, p->ranks, p->chunks, p->chunks == 2, p->micro_batches);
    int32_t *count = gw_arena_new(a, int32_t, 4 * p->ranks * p->chunks);
    for (int r = 0; r < p->ranks; r++)
        for (int64_t i = 0; i < o->n; i++) {
            gw_act act = (gw_act)(o->codes[r][i] & 3);
            int stage = gw_zb_stage(p, r, o->codes[r][i] >> 2);
            if (o->whole[stage] && act == GW_ACT_W) continue;
            int32_t micro = count[4 * stage + (int)act]++;
            gw_sched_add(&b, r, o->whole[stage] && act == GW_ACT_I ? GW_ACT_B : act, stage, micro);
        }
}

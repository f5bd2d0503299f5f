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
                           .barrier = c->barrier,
                           .memory = r->memory > 0 ? r->memory : memory};
    out->forward = filled(c->forward, NULL, 1, n, a);
    out->input = filled(c->input, NULL, 1, n, a);
    out->weight = filled(c->weight, NULL, 1, n, a);
    out->send = filled(c->send, NULL, 0, n, a);
    out->reduce = filled(c->reduce, NULL, 0, n, a);
    out->held = filled(c->held, NULL, 1, n, a);
    out->held_weight = filled(c->held_weight, out->held, 0.5, n, a);
}

gw_zb_order gw_zb_order_new(const gw_zb_problem *p, gw_arena *a) {
    gw_zb_order o = {.n = 3 * (int64_t)p->chunks * p->micro_batches};
    o.codes = gw_arena_new(a, uint8_t *, p->ranks);
    for (int r = 0; r < p->ranks; r++) o.codes[r] = gw_arena_new(a, uint8_t, o.n);
    return o;
}

static int stage_of(const gw_zb_problem *p, int rank, int chunk) {
    return chunk ? 2 * p->ranks - 1 - rank : rank;
}

static int rank_of(const gw_zb_problem *p, int stage) {
    return stage < p->ranks ? stage : 2 * p->ranks - 1 - stage;
}

/* ---- by hand ---- */

gw_zb_order gw_zb_order_by_hand(const gw_zb_problem *p, int lag, gw_arena *a) {
    GW_ASSERT(p->chunks == 1);
    gw_zb_order o = gw_zb_order_new(p, a);
    int64_t m = p->micro_batches, most = (int64_t)lag * (p->ranks - 1);
    for (int r = 0; r < p->ranks; r++) {
        int64_t ahead = (int64_t)lag * (p->ranks - 1 - r), n = 0;
        for (int64_t k = 0; k < ahead && k < m; k++) o.codes[r][n++] = GW_ACT_F;
        for (int64_t k = 0; k < m; k++) {
            if (ahead + k < m) o.codes[r][n++] = GW_ACT_F;
            o.codes[r][n++] = GW_ACT_I;
            if (ahead + k >= most) o.codes[r][n++] = GW_ACT_W;
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
    double *now, *start, *reduced, *held;
    int *stack, nstack;
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
    return t < 0 || rank_of(k->p, from) == r ? t : t + k->p->send[from];
}

/* The next action of a rank; false: it must wait for one that has not been replayed. */
static bool replay_one(replay *k, int r, uint8_t code) {
    const gw_zb_problem *p = k->p;
    int act = code & 3, stage = stage_of(p, r, code >> 2);
    int32_t *count = &k->count[3 * stage];
    int done = act == GW_ACT_F ? 0 : act == GW_ACT_I ? 1 : 2;
    int32_t micro = count[done];
    double t = ready(k, r, act, stage, micro);
    if (t < 0) return false;
    if (k->at[r] == 0) k->start[r] = fmax(k->now[r], t);
    k->now[r] = fmax(k->now[r], t) + (done == 0   ? p->forward[stage]
                                      : done == 1 ? p->input[stage]
                                                  : p->weight[stage]);
    if (done < 2) *done_at(k, done, stage, micro) = k->now[r];
    k->held[r] += done == 0   ? p->held[stage]
                  : done == 1 ? p->held_weight[stage] - p->held[stage]
                              : -p->held_weight[stage];
    double whole = p->held[stage_of(p, r, 0)];
    if (p->chunks == 2) whole += p->held[stage_of(p, r, 1)];
    if (whole > 0) k->score.memory = fmax(k->score.memory, k->held[r] / whole);
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
    k.held = gw_arena_new(a, double, p->ranks);
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

/* ---- out ---- */

void gw_zb_order_emit(const gw_zb_problem *p, const gw_zb_order *o, const char *name, gw_arena *a,
                      gw_schedule *out) {
    gw_sched_builder b;
    gw_sched_begin(&b, a, out, name, p->ranks, p->chunks, p->chunks == 2, p->micro_batches);
    int32_t *count = gw_arena_new(a, int32_t, 4 * p->ranks * p->chunks);
    for (int r = 0; r < p->ranks; r++)
        for (int64_t i = 0; i < o->n; i++) {
            gw_act act = (gw_act)(o->codes[r][i] & 3);
            int stage = stage_of(p, r, o->codes[r][i] >> 2);
            gw_sched_add(&b, r, act, stage, count[4 * stage + (int)act]++);
        }
}

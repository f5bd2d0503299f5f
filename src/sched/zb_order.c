// SPDX-License-Identifier: Apache-2.0
// Orders of computing actions with a backward in halves: made by hand, judged, written out.
//
// An order says for each rank which of F, I and W comes when; which micro-batch is meant follows by
// counting, as every stage takes them in their order. That is small. It becomes a schedule
// (sched.h) when the clock (clock.c) is to say what it comes to (gw_zb_score), and when it has been
// chosen.
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

#include "base/panic.h" /* GW_ASSERT */
#include "sched/impl.h" /* gw_sched_places, gw_sched_builder */
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

/* ---- by the clock ---- */

gw_zb_score gw_zb_order_clock(const gw_zb_problem *p, const gw_zb_order *o, gw_arena *a) {
    gw_zb_score score = {0};
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

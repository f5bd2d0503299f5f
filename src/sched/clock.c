// SPDX-License-Identifier: Apache-2.0
// When everything in a schedule happens, if nothing is late.
//
// The lists alone decide. A rank does one action after another: a computing action takes its
// stage's time; a send takes none, but waits for a free place in its channel; a receive waits for
// the message, which arrives `send` after it left; a reduction runs beside what follows on its rank
// (one after another, as they share a network); the step waits for the rank's reductions, and with
// a barrier for all ranks. What a computing action needs was received, or made on the same rank,
// earlier in its list: the checker has seen to that, so no dependency is looked up here.
//
// There is no queue of events. Times are the largest of what an action waits for, so the order in
// which ranks are visited does not matter: each runs until a channel stops it, and is visited again
// when its peer has moved that channel. The work is linear in the number of actions, and a channel
// needs memory for its places only: message k takes the place of message k - places, and the two
// rings below hold when the last ones arrive and when their places became free.
//
// The bubble has several names, and all are derived. Of the step, as a share of it (bubble/step) or
// of the computing (bubble/compute); or of the longest span, from a rank's first computing action
// to its last, which is what a rank loses in a run of many steps if no barrier lines the ranks up
// at the end of each. The known formulas at the end of the file are idle time by computing time of
// the rank with the longest span; for schedules that start and end on rank 0, that is
// bubble/compute.
//
// Left to others: what a computing action costs (plan/), and whether the lists are right (check.c).
#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "base/str.h"   /* gw_str_eq */
#include "sched/impl.h" /* gw_sched_place */

typedef struct channel {
    double *arrives, *freed; /* [ring] */
    int64_t sent, taken;
} channel;

typedef struct runner {
    const gw_schedule *s;
    const gw_sched_costs *c;
    gw_sched_times *out;
    int64_t ring;
    channel *channels; /* [2 * stages]: what stage s sends forward, and back */
    int64_t *at;       /* [ranks]: next action */
    double *now, *reduced;
    double *first, *last; /* of computing */
    int *waiting;         /* ranks to visit */
    bool *listed;
    int nwaiting;
} runner;

static double of(const double *per_stage, int stage, double otherwise) {
    return per_stage ? per_stage[stage] : otherwise;
}

static void visit(runner *k, int rank) {
    if (k->listed[rank]) return;
    k->listed[rank] = true;
    k->waiting[k->nwaiting++] = rank;
}

static double duration(const gw_sched_costs *c, gw_action a) {
    switch ((gw_act)a.act) {
    case GW_ACT_F: return c->forward[a.stage];
    case GW_ACT_I: return c->input[a.stage];
    case GW_ACT_W: return c->weight[a.stage];
    case GW_ACT_B: return c->input[a.stage] + c->weight[a.stage];
    case GW_ACT_SEND_F:
    case GW_ACT_RECV_F:
    case GW_ACT_SEND_B:
    case GW_ACT_RECV_B:
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return 0;
}

static void compute(runner *k, int r, gw_action a, gw_sched_span *span) {
    if (k->first[r] < 0) k->first[r] = k->now[r];
    double d = duration(k->c, a);
    span->start = k->now[r];
    span->end = k->now[r] = k->now[r] + d;
    k->last[r] = span->end;
    k->out->busy[r] += d;
}

/* False: no free place yet. */
static bool send(runner *k, int r, gw_action a, gw_sched_span *span) {
    bool forward = a.act == GW_ACT_SEND_F;
    channel *ch = &k->channels[2 * a.stage + !forward];
    if (ch->sent - ch->taken >= k->ring) return false;
    int64_t slot = ch->sent % k->ring;
    span->start = k->now[r];
    if (ch->sent >= k->ring) k->now[r] = fmax(k->now[r], ch->freed[slot]);
    span->end = k->now[r];
    ch->arrives[slot] = k->now[r] + of(k->c->send, a.stage, 0);
    ch->sent++;
    k->out->messages++;
    visit(k, k->s->rank_of[forward ? a.stage + 1 : a.stage - 1]);
    return true;
}

/* False: the message has not been sent yet. */
static bool receive(runner *k, int r, gw_action a, gw_sched_span *span) {
    bool forward = a.act == GW_ACT_RECV_F;
    int from = forward ? a.stage - 1 : a.stage + 1;
    channel *ch = &k->channels[2 * from + !forward];
    if (ch->taken >= ch->sent) return false;
    int64_t slot = ch->taken % k->ring;
    span->start = k->now[r];
    span->end = k->now[r] = fmax(k->now[r], ch->arrives[slot]);
    ch->freed[slot] = k->now[r];
    ch->taken++;
    visit(k, k->s->rank_of[from]);
    return true;
}

static bool act(runner *k, int r, gw_action a, gw_sched_span *span) {
    switch ((gw_act)a.act) {
    case GW_ACT_F:
    case GW_ACT_B:
    case GW_ACT_I:
    case GW_ACT_W: compute(k, r, a, span); return true;
    case GW_ACT_SEND_F:
    case GW_ACT_SEND_B: return send(k, r, a, span);
    case GW_ACT_RECV_F:
    case GW_ACT_RECV_B: return receive(k, r, a, span);
    case GW_ACT_REDUCE:
        span->start = fmax(k->now[r], k->reduced[r]);
        span->end = k->reduced[r] = span->start + of(k->c->reduce, a.stage, 0);
        return true;
    case GW_ACT_STEP: return true; /* when all ranks are through: steps() */
    case GW_ACT_COUNT: break;
    }
    gw_panic("no action %d", a.act);
}

static void run(runner *k) {
    const gw_schedule *s = k->s;
    for (int r = s->ranks - 1; r >= 0; r--) visit(k, r);
    while (k->nwaiting) {
        int r = k->waiting[--k->nwaiting];
        k->listed[r] = false;
        const gw_actions *l = &s->lists[r];
        while (k->at[r] < l->n && act(k, r, l->items[k->at[r]], &k->out->spans[r][k->at[r]]))
            k->at[r]++;
    }
    for (int r = 0; r < s->ranks; r++) GW_ASSERT(k->at[r] == s->lists[r].n);
}

/* The optimizer's steps, and the end of each rank. */
static void steps(runner *k) {
    const gw_schedule *s = k->s;
    double all = 0;
    for (int r = 0; r < s->ranks; r++) all = fmax(all, fmax(k->now[r], k->reduced[r]));
    k->out->step = all;
    for (int r = 0; r < s->ranks; r++) {
        const gw_actions *l = &s->lists[r];
        if (l->n == 0 || l->items[l->n - 1].act != GW_ACT_STEP) continue;
        gw_sched_span *span = &k->out->spans[r][l->n - 1];
        span->start = k->c->barrier ? all : fmax(k->now[r], k->reduced[r]);
        span->end = span->start + k->c->step;
        k->out->step = fmax(k->out->step, span->end);
    }
}

/* Places: a stage with a backward in halves has three kinds, one with a whole backward one. */
static void place(const gw_schedule *s, const gw_sched_costs *c, int r, gw_sched_times *out,
                  gw_arena *a) {
    gw_sched_places *p = gw_arena_new(a, gw_sched_places, s->stages);
    for (int64_t i = 0; i < s->lists[r].n; i++) {
        gw_action x = s->lists[r].items[i];
        if (x.act == GW_ACT_I) p[x.stage].halves = true;
    }
    for (int64_t i = 0; i < s->lists[r].n; i++) {
        gw_action x = s->lists[r].items[i];
        if (x.stage >= 0) gw_sched_place(&p[x.stage], (gw_act)x.act);
    }
    for (int st = 0; st < s->stages; st++) {
        double whole = of(c->held, st, 1), kept = of(c->held_weight, st, whole / 2);
        out->placed[r] +=
            gw_sched_placed(&p[st], whole, kept, of(c->made, st, fmax(0, kept - whole))) +
            gw_sched_early(&p[st]) * of(c->message, st, 0);
    }
}

/* What a rank holds follows from the order of its list alone. */
static void hold(const gw_schedule *s, const gw_sched_costs *c, int r, gw_sched_times *out) {
    double held = 0;
    int64_t pairs = 0, messages = 0;
    for (int64_t i = 0; i < s->lists[r].n; i++) {
        gw_action a = s->lists[r].items[i];
        double whole = a.stage >= 0 ? of(c->held, a.stage, 1) : 0;
        double kept = a.stage >= 0 ? of(c->held_weight, a.stage, whole / 2) : 0;
        if (a.act == GW_ACT_F) held += whole;
        if (a.act == GW_ACT_B) held -= whole;
        if (a.act == GW_ACT_I) held -= whole - kept;
        if (a.act == GW_ACT_W) held -= kept;
        pairs += (a.act == GW_ACT_F) - (a.act == GW_ACT_B) - (a.act == GW_ACT_W);
        messages += a.act == GW_ACT_SEND_F || a.act == GW_ACT_SEND_B;
        out->held[r] = fmax(out->held[r], held);
        if (pairs > out->micro_held[r]) out->micro_held[r] = pairs;
    }
    if (messages > out->most_messages) out->most_messages = messages;
}

static void summarise(runner *k) {
    gw_sched_times *o = k->out;
    double sum = 0;
    for (int r = 0; r < k->s->ranks; r++) {
        double span = k->last[r] - fmax(k->first[r], 0);
        sum += o->busy[r];
        if (o->step > 0) o->idle_step = fmax(o->idle_step, 1 - o->busy[r] / o->step);
        if (span <= o->longest_span) continue;
        o->longest_span = span;
        o->idle_longest = 1 - o->busy[r] / span;
    }
    double mean = sum / k->s->ranks;
    if (o->step > 0) o->bubble_step = 1 - mean / o->step;
    if (mean > 0) o->bubble_compute = o->step / mean - 1;
}

void gw_sched_time(const gw_schedule *s, const gw_sched_costs *c, int places, gw_arena *a,
                   gw_sched_times *out) {
    int n = s->ranks;
    memset(out, 0, sizeof *out);
    out->spans = gw_arena_new(a, gw_sched_span *, n);
    out->busy = gw_arena_new(a, double, n);
    out->held = gw_arena_new(a, double, n);
    out->placed = gw_arena_new(a, double, n);
    out->micro_held = gw_arena_new(a, int64_t, n);
    runner k = {.s = s, .c = c, .out = out};
    k.ring = places < s->micro_batches ? places : s->micro_batches;
    GW_ASSERT(k.ring >= 1);
    k.channels = gw_arena_new(a, channel, 2 * s->stages);
    double *rings = gw_arena_new(a, double, 4 * s->stages * k.ring);
    for (int i = 0; i < 2 * s->stages; i++) {
        k.channels[i].arrives = rings + (2 * i) * k.ring;
        k.channels[i].freed = rings + (2 * i + 1) * k.ring;
    }
    k.at = gw_arena_new(a, int64_t, n);
    k.now = gw_arena_new(a, double, n);
    k.reduced = gw_arena_new(a, double, n);
    k.first = gw_arena_new(a, double, n);
    k.last = gw_arena_new(a, double, n);
    k.waiting = gw_arena_new(a, int, n);
    k.listed = gw_arena_new(a, bool, n);
    for (int r = 0; r < n; r++) {
        k.first[r] = -1;
        out->spans[r] = gw_arena_new(a, gw_sched_span, s->lists[r].n);
    }
    run(&k);
    steps(&k);
    for (int r = 0; r < n; r++) {
        hold(s, c, r, out);
        place(s, c, r, out, a);
    }
    summarise(&k);
}

/* ---- formulas ----
 *
 * GPipe, 1F1B, interleaved: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2. zb-h1: Qi et al.
 * 2023 (arXiv 2401.10241), table 2, from 2p micro-batches on; where W is longer than F, the (p - 1)
 * I for which rank 0 waits before its first gradient remain. zb-2p and zbv have none for costs in
 * general; where F = I = W both leave no bubble. DualPipeV's published one, (p - 1)(F + 2I - W) of
 * p ranks with two stages each, counts pairs of a forward and a backward that begin together on all
 * ranks; lists do not wait for that and leave less, so it is a bound and not given here. */

double gw_sched_formula(const char *name, const gw_sched_request *r, double forward, double input,
                        double weight) {
    double hops = r->ranks - 1, m = r->micro_batches, whole = forward + input + weight;
    double none = nan(""), v = r->virtual_stages ? r->virtual_stages : 1;
    bool alike = fabs(forward - input) <= 1e-12 * whole && fabs(input - weight) <= 1e-12 * whole;
    bool fills = m >= 2 * r->ranks;
    if (gw_str_eq(name, "gpipe") || gw_str_eq(name, "1f1b")) return hops / m;
    if (gw_str_eq(name, "interleaved"))
        return r->micro_batches % r->ranks == 0 ? hops / (v * m) : none;
    if (gw_str_eq(name, "zb-h1"))
        return fills ? hops * (input + fmax(forward - weight, 0)) / (m * whole) : none;
    if (gw_str_eq(name, "zb-2p") || gw_str_eq(name, "zbv")) return alike && fills ? 0 : none;
    return none;
}

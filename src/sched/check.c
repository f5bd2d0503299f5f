// SPDX-License-Identifier: Apache-2.0
// Proves that a schedule can run, or says why it cannot.
//
// Most of it is bookkeeping: one table holds where each action of each stage and micro-batch
// stands, and every rule asks the table. A rule that fails is a problem with a rank, an action and
// its place; all rules run, so that one reading shows all problems.
//
// Deadlock is the rule that looks hard: ranks run at any speed and messages take any time, so there
// are exponentially many ways in which a step may go. One of them decides. A rank does its actions
// in order and chooses nothing: it waits for the next message of one channel, or for room in one
// channel, and no rank can take away what another waits for, since a channel has one sender and one
// receiver. So two things that can happen now do not hinder each other, and if one of two ways of
// running gets stuck after some actions, the other gets through none beyond these: what has been
// done when nothing more can be is the same in all (Kahn, "The semantics of a simple language for
// parallel programming", 1974; room in a channel is a message going the other way). A greedy run
// that finishes is therefore a proof that every run does, whatever the delays, and one that gets
// stuck shows the circle of ranks in which all get stuck. By the same argument room for one more
// message never hurts.
//
// Within a rank, what an action needs must stand before it in the list; across ranks a receive
// waits for its send, and the order of receive and use is within a rank again. So a run that
// finishes respects all that depends on what.
//
// Cost: linear in the actions, table included; the smallest number of places that would do, which
// is looked for only after a deadlock, takes a logarithm of runs. What is left to others: how long
// it takes (clock.c).
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "sched/impl.h"

enum { MOST_PROBLEMS = 20, MICRO_ACTS = GW_ACT_RECV_B + 1, FEW_PAIRS = 1 << 16 };
_Static_assert(GW_ACT_REDUCE == (int)MICRO_ACTS, "acts with a micro-batch come first");

typedef struct checker {
    const gw_schedule *s;
    const gw_sched_source *src;
    gw_diags *dg;
    gw_arena a;
    int64_t problems;
    gw_diag *latest;
    int32_t *at;     /* [stages * micro_batches * MICRO_ACTS]: place in the list; -1: none */
    int64_t *reduce; /* [stages] */
    bool unreadable; /* lists hold what is no action of this schedule */
    bool mismatched; /* messages are not sent and received once each */
} checker;

static int32_t *at_of(const checker *c, gw_act act, int stage, int32_t micro) {
    return &c->at[((int64_t)stage * c->s->micro_batches + micro) * MICRO_ACTS + act];
}

/* ---- reporting ---- */

static bool same(gw_action x, gw_action y) {
    return x.act == y.act && x.stage == y.stage && x.micro == y.micro;
}

/* Where the text has what stands at an index of a list (-1: nothing), else where the list begins.
 */
static gw_where where(const checker *c, int rank, int64_t index) {
    const gw_sched_source *src = c->src;
    if (!src) return (gw_where){0};
    gw_where w = rank >= 0 ? src->ranks[rank] : (gw_where){0};
    w.file = src->file;
    if (index < 0) return w;
    const gw_action *items = c->s->lists[rank].items;
    int64_t nth = 0;
    for (int64_t i = 0; i < index; i++) nth += same(items[i], items[index]);
    for (int64_t i = 0; i < src->n; i++) {
        const gw_sched_token *t = &src->tokens[i];
        if (t->rank != rank || !same(t->action, items[index]) || nth-- > 0) continue;
        return (gw_where){.file = src->file, .line = t->line, .column = t->column};
    }
    return w;
}

/* A problem of the action at an index of a rank's list, of the whole list (index -1), or of the
 * schedule (rank -1). NULL beyond the most that are told. */
static gw_diag *problem(checker *c, int rank, int64_t index, const char *fmt, ...) GW_PRINTF(4, 5);
static gw_diag *problem(checker *c, int rank, int64_t index, const char *fmt, ...) {
    if (c->problems++ >= MOST_PROBLEMS || !c->dg) return NULL;
    char text[GW_ACTION_TEXT];
    va_list ap;
    va_start(ap, fmt);
    const char *what = gw_arena_vprintf(&c->a, fmt, ap);
    va_end(ap);
    gw_where w = where(c, rank, index);
    if (rank < 0)
        c->latest = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "schedule-invalid", w, "%s", what);
    else if (index < 0)
        c->latest = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "schedule-invalid", w,
                                "rank %d: %s", rank, what);
    else
        c->latest = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "schedule-invalid", w,
                                "rank %d, action %lld (%s): %s", rank, (long long)index + 1,
                                gw_action_print(c->s->lists[rank].items[index], text), what);
    return c->latest;
}

/* "action 7 (F0.3)" of a rank, in the checker's arena. */
static const char *named(checker *c, int rank, int64_t index) {
    char text[GW_ACTION_TEXT];
    return gw_arena_printf(&c->a, "action %lld (%s)", (long long)index + 1,
                           gw_action_print(c->s->lists[rank].items[index], text));
}

/* ---- the frame and the table ---- */

static bool frame_holds(checker *c) {
    const gw_schedule *s = c->s;
    if (s->ranks < 1 || s->ranks > GW_SCHED_MAX_RANKS)
        problem(c, -1, -1, "%d ranks: a schedule has 1 to %d", s->ranks, GW_SCHED_MAX_RANKS);
    if (s->stages < 1 || s->stages > GW_SCHED_MAX_STAGES)
        problem(c, -1, -1, "%d stages: a schedule has 1 to %d", s->stages, GW_SCHED_MAX_STAGES);
    if (s->micro_batches < 1 || s->micro_batches > GW_SCHED_MAX_MICRO)
        problem(c, -1, -1, "%d micro-batches: a schedule has 1 to %d", s->micro_batches,
                GW_SCHED_MAX_MICRO);
    if (c->problems) return false;
    int64_t pairs = (int64_t)s->stages * s->micro_batches, actions = 0;
    for (int r = 0; r < s->ranks; r++) actions += s->lists[r].n;
    if (pairs > GW_SCHED_MAX_PAIRS)
        problem(c, -1, -1, "%d stages x %d micro-batches: a schedule has at most %d pairs",
                s->stages, s->micro_batches, GW_SCHED_MAX_PAIRS);
    else if (pairs > FEW_PAIRS && actions < 2 * pairs)
        problem(c, -1, -1, "%lld actions: %d stages with %d micro-batches need at least %lld",
                (long long)actions, s->stages, s->micro_batches, (long long)(2 * pairs));
    bool *holds = gw_arena_new(&c->a, bool, s->ranks);
    for (int i = 0; i < s->stages; i++) {
        if (s->rank_of[i] < 0 || s->rank_of[i] >= s->ranks)
            problem(c, -1, -1, "stage %d is on rank %d, and there are %d ranks", i, s->rank_of[i],
                    s->ranks);
        else
            holds[s->rank_of[i]] = true;
    }
    for (int r = 0; r < s->ranks && !c->problems; r++)
        if (!holds[r]) problem(c, -1, -1, "rank %d holds no stage", r);
    return c->problems == 0;
}

/* Is it an action of this schedule, on the right rank? */
static bool readable(checker *c, int rank, int64_t index) {
    const gw_schedule *s = c->s;
    gw_action x = s->lists[rank].items[index];
    if (x.act >= GW_ACT_COUNT) {
        problem(c, rank, index, "no action has this code");
        return false;
    }
    if (x.act == GW_ACT_STEP) return true;
    if (x.stage < 0 || x.stage >= s->stages) {
        problem(c, rank, index, "there are %d stages, from 0", s->stages);
        return false;
    }
    if (x.act != GW_ACT_REDUCE && (x.micro < 0 || x.micro >= s->micro_batches)) {
        problem(c, rank, index, "there are %d micro-batches, from 0", s->micro_batches);
        return false;
    }
    if (s->rank_of[x.stage] == rank) return true;
    problem(c, rank, index, "stage %d is on rank %d", x.stage, s->rank_of[x.stage]);
    return false;
}

static void enter(checker *c, int rank, int64_t index) {
    gw_action x = c->s->lists[rank].items[index];
    int64_t before;
    if (x.act == GW_ACT_STEP) {
        if (index + 1 < c->s->lists[rank].n)
            problem(c, rank, index, "the step is a rank's last action, and once");
        return;
    }
    if (x.act == GW_ACT_REDUCE) {
        before = c->reduce[x.stage];
        if (before < 0) c->reduce[x.stage] = index;
    } else {
        int32_t *at = at_of(c, (gw_act)x.act, x.stage, x.micro);
        before = *at;
        if (before < 0) *at = (int32_t)index;
        if (before >= 0 && x.act >= GW_ACT_SEND_F) c->mismatched = true;
    }
    if (before >= 0)
        problem(c, rank, index, "it stands in the list before, as action %lld",
                (long long)before + 1);
}

static void fill(checker *c) {
    const gw_schedule *s = c->s;
    int64_t n = (int64_t)s->stages * s->micro_batches * MICRO_ACTS;
    c->at = gw_arena_new(&c->a, int32_t, n);
    memset(c->at, -1, (size_t)n * sizeof *c->at);
    c->reduce = gw_arena_new(&c->a, int64_t, s->stages);
    memset(c->reduce, -1, (size_t)s->stages * sizeof *c->reduce);
    for (int rank = 0; rank < s->ranks; rank++) {
        const gw_actions *l = &s->lists[rank];
        for (int64_t i = 0; i < l->n; i++) {
            if (readable(c, rank, i))
                enter(c, rank, i);
            else
                c->unreadable = true;
        }
        if (l->n == 0 || l->items[l->n - 1].act != GW_ACT_STEP)
            problem(c, rank, -1, "it does not end with the step (S)");
    }
}

/* ---- what must be there, and before what ---- */

/* What makes the gradient of a stage's input: B, or I; -1: neither. */
static int32_t input_gradient(const checker *c, int stage, int32_t micro) {
    int32_t whole = *at_of(c, GW_ACT_B, stage, micro);
    return whole >= 0 ? whole : *at_of(c, GW_ACT_I, stage, micro);
}

static void check_computing(checker *c, int stage, int32_t micro) {
    int rank = c->s->rank_of[stage];
    bool b = *at_of(c, GW_ACT_B, stage, micro) >= 0, i = *at_of(c, GW_ACT_I, stage, micro) >= 0;
    bool w = *at_of(c, GW_ACT_W, stage, micro) >= 0;
    if (*at_of(c, GW_ACT_F, stage, micro) < 0)
        problem(c, rank, -1, "F%d.%d is missing", stage, micro);
    if (b && (i || w))
        problem(c, rank, i ? *at_of(c, GW_ACT_I, stage, micro) : *at_of(c, GW_ACT_W, stage, micro),
                "this backward is whole too, as %s",
                named(c, rank, *at_of(c, GW_ACT_B, stage, micro)));
    else if (!b && !i && !w)
        problem(c, rank, -1, "the backward B%d.%d is missing", stage, micro);
    else if (!b && !(i && w))
        problem(c, rank, *at_of(c, i ? GW_ACT_I : GW_ACT_W, stage, micro),
                "the other half of this backward, %s%d.%d, is missing", i ? "W" : "I", stage,
                micro);
}

/* One message, which must be there exactly where it crosses ranks. */
static void check_message(checker *c, gw_act act, int stage, int32_t micro) {
    gw_action x = {.act = (uint8_t)act, .stage = (int16_t)stage, .micro = micro};
    bool wanted = gw_sched_channel(c->s, x) >= 0;
    int32_t at = *at_of(c, act, stage, micro);
    if (wanted == (at >= 0)) return;
    int rank = c->s->rank_of[stage];
    bool on = act == GW_ACT_SEND_F || act == GW_ACT_RECV_B;
    int other = stage + (on ? 1 : -1);
    c->mismatched = true;
    if (wanted)
        problem(c, rank, -1, "%s%d.%d is missing: stage %d is on rank %d", gw_act_name(act), stage,
                micro, other, c->s->rank_of[other]);
    else if (other < 0 || other >= c->s->stages)
        problem(c, rank, at, "stage %d is the %s", stage, on ? "last" : "first");
    else
        problem(c, rank, at, "stage %d is on this rank too: nothing travels", other);
}

/* On one rank: what stands at `x` needs what stands at `y`. */
static void needs(checker *c, int rank, int32_t x, int32_t y) {
    if (x >= 0 && y >= 0 && x < y)
        problem(c, rank, x, "it needs what comes later in the list, %s", named(c, rank, y));
}

static void check_order(checker *c, int stage, int32_t micro) {
    const gw_schedule *s = c->s;
    int rank = s->rank_of[stage];
    int32_t f = *at_of(c, GW_ACT_F, stage, micro), back = input_gradient(c, stage, micro);
    needs(c, rank, back, f);
    needs(c, rank, *at_of(c, GW_ACT_W, stage, micro), *at_of(c, GW_ACT_I, stage, micro));
    needs(c, rank, f, *at_of(c, GW_ACT_RECV_F, stage, micro));
    needs(c, rank, *at_of(c, GW_ACT_SEND_F, stage, micro), f);
    needs(c, rank, back, *at_of(c, GW_ACT_RECV_B, stage, micro));
    needs(c, rank, *at_of(c, GW_ACT_SEND_B, stage, micro), back);
    if (stage == 0 || gw_sched_crosses(s, stage - 1)) return;
    needs(c, rank, f, *at_of(c, GW_ACT_F, stage - 1, micro));
    needs(c, rank, input_gradient(c, stage - 1, micro), back);
}

static void check_reduce(checker *c, int stage) {
    int rank = c->s->rank_of[stage];
    int32_t last = -1;
    for (int32_t m = 0; m < c->s->micro_batches; m++) {
        last = GW_MAX(last, *at_of(c, GW_ACT_B, stage, m));
        last = GW_MAX(last, *at_of(c, GW_ACT_W, stage, m));
    }
    if (c->reduce[stage] < 0)
        problem(c, rank, -1, "R%d is missing", stage);
    else if (c->reduce[stage] < last)
        problem(c, rank, c->reduce[stage], "gradients of the stage come later in the list, %s",
                named(c, rank, last));
}

static void check_pairs(checker *c) {
    static const gw_act messages[] = {GW_ACT_SEND_F, GW_ACT_RECV_F, GW_ACT_SEND_B, GW_ACT_RECV_B};
    for (int stage = 0; stage < c->s->stages; stage++) {
        for (int32_t m = 0; m < c->s->micro_batches; m++) {
            check_computing(c, stage, m);
            for (size_t i = 0; i < GW_COUNT(messages); i++) check_message(c, messages[i], stage, m);
            check_order(c, stage, m);
        }
        check_reduce(c, stage);
    }
}

/* ---- channels: one order on both sides ---- */

typedef struct message_at {
    int32_t micro, index;
} message_at;

/* Messages are matched: each channel has m of them on both sides. */
static void check_channels(checker *c) {
    const gw_schedule *s = c->s;
    int64_t m = s->micro_batches;
    message_at *sent = gw_arena_new(&c->a, message_at, 2 * s->stages * m);
    int64_t *nsent = gw_arena_new(&c->a, int64_t, 2 * s->stages);
    int64_t *nreceived = gw_arena_new(&c->a, int64_t, 2 * s->stages);
    bool *told = gw_arena_new(&c->a, bool, 2 * s->stages);
    for (int pass = 0; pass < 2; pass++) {
        for (int rank = 0; rank < s->ranks; rank++) {
            for (int64_t i = 0; i < s->lists[rank].n; i++) {
                gw_action x = s->lists[rank].items[i];
                bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
                int id = x.stage < 0 ? -1 : gw_sched_channel(s, x);
                if (id < 0 || sends != (pass == 0)) continue;
                if (sends) {
                    sent[id * m + nsent[id]++] = (message_at){x.micro, (int32_t)i};
                    continue;
                }
                int64_t nth = nreceived[id]++;
                const message_at *other = &sent[id * m + nth];
                if (other->micro == x.micro || told[id]) continue;
                told[id] = true;
                c->mismatched = true;
                problem(c, rank, i,
                        "messages arrive in the order of sending, and message %lld is of "
                        "micro-batch %d: rank %d, %s",
                        (long long)nth + 1, other->micro, gw_sched_sender(s, id),
                        named(c, gw_sched_sender(s, id), other->index));
            }
        }
    }
}

/* ---- running ---- */

typedef struct network {
    int64_t *at;        /* [ranks] */
    int *waits;         /* [ranks]: for this channel; -1: done */
    int64_t *under_way; /* [2 * stages]: sent and not received */
    int *ready;
} network;

/* Goes on until the rank must wait. Ranks that can go on because of it are added to `ready`. */
static void advance(const checker *c, network *n, int rank, int places, int *nready) {
    const gw_actions *l = &c->s->lists[rank];
    for (n->waits[rank] = -1; n->at[rank] < l->n; n->at[rank]++) {
        gw_action x = l->items[n->at[rank]];
        int id = x.stage < 0 ? -1 : gw_sched_channel(c->s, x);
        if (id < 0) continue;
        bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
        if (n->under_way[id] == (sends ? places : 0)) {
            n->waits[rank] = id;
            return;
        }
        n->under_way[id] += sends ? 1 : -1;
        int other = sends ? gw_sched_receiver(c->s, id) : gw_sched_sender(c->s, id);
        if (n->waits[other] != id) continue;
        n->waits[other] = -1;
        n->ready[(*nready)++] = other;
    }
}

/* A greedy run of all ranks. Does it finish? */
static bool finishes(const checker *c, network *n, int places) {
    const gw_schedule *s = c->s;
    int nready = 0;
    memset(n->at, 0, (size_t)s->ranks * sizeof *n->at);
    memset(n->under_way, 0, (size_t)(2 * s->stages) * sizeof *n->under_way);
    for (int rank = s->ranks; rank-- > 0;) {
        n->waits[rank] = -1;
        n->ready[nready++] = rank;
    }
    while (nready > 0) {
        int rank = n->ready[--nready];
        advance(c, n, rank, places, &nready);
    }
    for (int rank = 0; rank < s->ranks; rank++)
        if (n->at[rank] < s->lists[rank].n) return false;
    return true;
}

static int awaited(const checker *c, const network *n, int rank) {
    gw_action x = c->s->lists[rank].items[n->at[rank]];
    bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
    return sends ? gw_sched_receiver(c->s, n->waits[rank]) : gw_sched_sender(c->s, n->waits[rank]);
}

/* Each rank of the circle, with what it waits for. All messages are matched, so a rank that is
 * waited for is not done: it waits too. */
static void tell_circle(checker *c, const network *n, int places) {
    const gw_schedule *s = c->s;
    gw_str lines = {0};
    bool *seen = gw_arena_new(&c->a, bool, s->ranks);
    int rank = 0, ranks = 0;
    while (n->waits[rank] < 0) rank++;
    for (; !seen[rank]; rank = awaited(c, n, rank)) seen[rank] = true;
    int first = rank;
    do {
        gw_action x = s->lists[rank].items[n->at[rank]];
        bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
        int other = awaited(c, n, rank);
        gw_str_printf(&lines, "%srank %d, %s: waits for rank %d to %s", ranks++ ? "\n" : "", rank,
                      named(c, rank, n->at[rank]), other, sends ? "receive" : "send");
        if (sends)
            gw_str_printf(&lines, " (%d message%s under way)", places, places == 1 ? "" : "s");
        gw_str_printf(&lines, ", which waits at %s", named(c, other, n->at[other]));
        rank = other;
    } while (rank != first);
    gw_diag *g = problem(c, first, n->at[first], "deadlock: %d ranks wait in a circle", ranks);
    if (g) gw_diag_detail(c->dg, g, "%s", gw_str_c(&lines));
    gw_str_release(&lines);
}

/* With some number of places, all there can be, does it finish? Then the smallest. */
static void tell_places(checker *c, network *n, int places) {
    int low = places, high = c->s->micro_batches; /* low: too few */
    if (high <= low || !finishes(c, n, high)) {
        gw_diag_hint(c->dg, c->latest, "no number of places in a channel helps: change the order");
        return;
    }
    while (high - low > 1) {
        int mid = low + (high - low) / 2;
        if (finishes(c, n, mid))
            high = mid;
        else
            low = mid;
    }
    gw_diag_hint(c->dg, c->latest,
                 "it finishes with %d places in a channel, or with receives at earlier places",
                 high);
}

static void check_deadlock(checker *c, int places) {
    const gw_schedule *s = c->s;
    network n = {.at = gw_arena_new(&c->a, int64_t, s->ranks),
                 .waits = gw_arena_new(&c->a, int, s->ranks),
                 .under_way = gw_arena_new(&c->a, int64_t, 2 * s->stages),
                 .ready = gw_arena_new(&c->a, int, s->ranks)};
    if (finishes(c, &n, places)) return;
    int64_t told = c->problems;
    tell_circle(c, &n, places);
    if (c->dg && told < MOST_PROBLEMS) tell_places(c, &n, places);
}

gw_status gw_schedule_check_at(const gw_schedule *s, const gw_sched_checks *checks,
                               const gw_sched_source *src, gw_diags *dg) {
    GW_ASSERT(checks->places >= 1);
    checker c = {.s = s, .src = src, .dg = dg};
    if (frame_holds(&c)) {
        fill(&c);
        check_pairs(&c);
        if (!c.mismatched && !c.unreadable) check_channels(&c);
        if (!c.mismatched && !c.unreadable) check_deadlock(&c, checks->places);
    }
    if (c.problems > MOST_PROBLEMS && dg)
        gw_diag_detail(dg, c.latest, "and %lld more", (long long)(c.problems - MOST_PROBLEMS));
    gw_arena_release(&c.a);
    return c.problems ? GW_ERR_CONFIG : GW_OK;
}

gw_status gw_schedule_check(const gw_schedule *s, const gw_sched_checks *checks, gw_diags *dg) {
    return gw_schedule_check_at(s, checks, NULL, dg);
}

// SPDX-License-Identifier: Apache-2.0
// The checker against brute force. A schedule is right if, however long messages take and whichever
// rank goes first, nothing gets stuck, nothing is used before it is there, and everything is done.
// The brute force below tries every order of events of a small schedule and holds each to that; it
// shares no code with the checker and knows none of its theorems.
#include <stdio.h>
#include <string.h>

#include "base/rng.h" /* gw_rng_u64 */
#include "harness.h"
#include "sched/sched.h"

/* ---- brute force ----
 *
 * A state is the place of each rank in its list, and of each channel how many of the messages in it
 * have arrived; what is in a channel follows from what its two ranks have done. */

enum { RANKS = 3, STAGES = 6, MICRO = 4, LIST = 63, SLOTS = 1 << 18, MOST_STATES = 1 << 17 };

typedef struct pipe {
    int32_t in[LIST]; /* micro-batches, sent and not received */
    int n;
} pipe_;

typedef struct world { /* all that has happened, from the lists up to the places in them */
    bool f[STAGES][MICRO], b[STAGES][MICRO], i[STAGES][MICRO], w[STAGES][MICRO];
    bool sent[2][STAGES][MICRO], received[2][STAGES][MICRO];
    bool reduced[STAGES], stepped[RANKS];
} world;

typedef struct brute {
    const gw_schedule *s;
    int places;
    uint64_t *slots; /* states + 1, by hash */
    uint64_t *todo;
    int nslots, ntodo;
    int64_t used;
} brute;

static int place_of(uint64_t state, int rank) { return (int)(state >> (6 * rank)) & 63; }
/* Channels: [0] on, [1] back, by the stage that sends. */
static int arrival_shift(bool back, int stage) { return 18 + 3 * (2 * stage + back); }
static int arrived(uint64_t state, bool back, int stage) {
    return (int)(state >> arrival_shift(back, stage)) & 7;
}

static bool apart(const gw_schedule *s, int x, int y) {
    return x >= 0 && y >= 0 && x < s->stages && y < s->stages && s->rank_of[x] != s->rank_of[y];
}

/* Does one action on what one rank has done. False: it breaks a rule. */
static bool act(const gw_schedule *s, world *w, int rank, gw_action x, bool last) {
    int st = x.stage, m = x.micro;
    if (x.act == GW_ACT_STEP) {
        for (int k = 0; k < s->stages; k++)
            if (s->rank_of[k] == rank && !w->reduced[k]) return false;
        bool first = !w->stepped[rank];
        w->stepped[rank] = true;
        return first && last;
    }
    if (st < 0 || st >= s->stages || s->rank_of[st] != rank) return false;
    if (x.act == GW_ACT_REDUCE) {
        for (int k = 0; k < s->micro_batches; k++)
            if (!w->b[st][k] && !w->w[st][k]) return false;
        bool first = !w->reduced[st];
        w->reduced[st] = true;
        return first;
    }
    if (m < 0 || m >= s->micro_batches) return false;
    bool ok = false, *done = NULL;
    bool back_in = st + 1 == s->stages    ? true
                   : apart(s, st, st + 1) ? w->received[1][st][m]
                                          : w->b[st + 1][m] || w->i[st + 1][m];
    switch ((gw_act)x.act) {
    case GW_ACT_F:
        done = &w->f[st][m];
        ok = st == 0 || (apart(s, st, st - 1) ? w->received[0][st][m] : w->f[st - 1][m]);
        break;
    case GW_ACT_B:
        done = &w->b[st][m];
        ok = w->f[st][m] && back_in && !w->i[st][m] && !w->w[st][m];
        break;
    case GW_ACT_I:
        done = &w->i[st][m];
        ok = w->f[st][m] && back_in && !w->b[st][m];
        break;
    case GW_ACT_W:
        done = &w->w[st][m];
        ok = w->i[st][m] && !w->b[st][m];
        break;
    case GW_ACT_SEND_F:
        done = &w->sent[0][st][m];
        ok = apart(s, st, st + 1) && w->f[st][m];
        break;
    case GW_ACT_SEND_B:
        done = &w->sent[1][st][m];
        ok = apart(s, st, st - 1) && (w->b[st][m] || w->i[st][m]);
        break;
    case GW_ACT_RECV_F:
        done = &w->received[0][st][m];
        ok = apart(s, st, st - 1);
        break;
    case GW_ACT_RECV_B:
        done = &w->received[1][st][m];
        ok = apart(s, st, st + 1);
        break;
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    if (!ok || *done) return false;
    *done = true;
    return true;
}

/* What is in a channel, from the places of its ranks; -1: received in another order than sent. */
static int contents(const gw_schedule *s, uint64_t state, bool back, int stage, int32_t *head) {
    int to = stage + (back ? -1 : 1);
    if (!apart(s, stage, to)) return 0;
    int32_t in[LIST];
    int n = 0, taken = 0;
    const gw_actions *l = &s->lists[s->rank_of[stage]];
    for (int k = 0; k < place_of(state, s->rank_of[stage]); k++)
        if (l->items[k].act == (back ? GW_ACT_SEND_B : GW_ACT_SEND_F) && l->items[k].stage == stage)
            in[n++] = l->items[k].micro;
    l = &s->lists[s->rank_of[to]];
    for (int k = 0; k < place_of(state, s->rank_of[to]); k++) {
        if (l->items[k].act != (back ? GW_ACT_RECV_B : GW_ACT_RECV_F) || l->items[k].stage != to)
            continue;
        if (taken == n || in[taken] != l->items[k].micro) return -1;
        taken++;
    }
    if (taken < n) *head = in[taken];
    return n - taken;
}

static void visit(brute *b, uint64_t state) {
    uint64_t h = (state * 0x9e3779b97f4a7c15u) >> 46;
    for (; b->slots[h]; h = (h + 1) % SLOTS)
        if (b->slots[h] == state + 1) return;
    CHECK(b->ntodo < MOST_STATES && b->used < MOST_STATES);
    b->slots[h] = state + 1;
    b->used++;
    b->todo[b->ntodo++] = state;
}

/* The rank's next action as an event. *legal false: it can happen, and breaks a rule. */
static bool can_act(const brute *b, uint64_t state, int rank, uint64_t *next, bool *legal) {
    const gw_schedule *s = b->s;
    int at = place_of(state, rank);
    if (at == s->lists[rank].n) return false;
    gw_action x = s->lists[rank].items[at];
    bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
    bool receives = x.act == GW_ACT_RECV_F || x.act == GW_ACT_RECV_B;
    bool back = x.act == GW_ACT_SEND_B || x.act == GW_ACT_RECV_B;
    int from = sends ? x.stage : x.stage + (back ? 1 : -1);
    int to = from + (back ? -1 : 1);
    int32_t head = -1;
    *next = state + ((uint64_t)1 << (6 * rank));
    *legal = true;
    if ((sends || receives) && apart(s, from, to)) {
        int under_way = contents(s, state, back, from, &head);
        if (sends && under_way >= b->places) return false;
        if (receives && arrived(state, back, from) == 0) return false;
        if (receives) {
            *legal = head == x.micro;
            *next -= (uint64_t)1 << arrival_shift(back, from);
        }
    }
    world w = {0};
    for (int k = 0; k < at; k++) act(s, &w, rank, s->lists[rank].items[k], false);
    if (!act(s, &w, rank, x, at + 1 == s->lists[rank].n)) *legal = false;
    return true;
}

/* At the end of all lists, with nothing more that can happen: is everything done? */
static bool all_done(const gw_schedule *s, uint64_t state) {
    world w = {0};
    int32_t head;
    for (int r = 0; r < s->ranks; r++) {
        if (place_of(state, r) < s->lists[r].n) return false;
        for (int k = 0; k < s->lists[r].n; k++) act(s, &w, r, s->lists[r].items[k], true);
        if (!w.stepped[r]) return false;
    }
    for (int st = 0; st < s->stages; st++) {
        for (int m = 0; m < s->micro_batches; m++)
            if (!w.f[st][m] || !(w.b[st][m] || (w.i[st][m] && w.w[st][m]))) return false;
        if (!w.reduced[st]) return false;
        for (int back = 0; back < 2; back++)
            if (contents(s, state, back, st, &head) != 0) return false;
        /* a gradient or an activation that nobody asked for is no loss, but is not a schedule */
        for (int m = 0; m < s->micro_batches; m++)
            if (w.sent[0][st][m] != apart(s, st, st + 1) ||
                w.sent[1][st][m] != apart(s, st, st - 1))
                return false;
    }
    return true;
}

static bool right(const gw_schedule *s, int places, uint64_t *slots, uint64_t *todo,
                  int64_t *states) {
    brute b = {.s = s, .places = places, .slots = slots, .todo = todo};
    memset(slots, 0, SLOTS * sizeof *slots);
    bool good = true;
    visit(&b, 0);
    while (good && b.ntodo > 0) {
        uint64_t state = b.todo[--b.ntodo], next;
        bool any = false, legal;
        for (int r = 0; r < s->ranks && good; r++) {
            if (!can_act(&b, state, r, &next, &legal)) continue;
            any = true;
            if (legal)
                visit(&b, next);
            else
                good = false;
        }
        for (int st = 0; st < s->stages && good; st++) {
            for (int back = 0; back < 2; back++) {
                int32_t head;
                if (arrived(state, back, st) >= contents(s, state, back, st, &head)) continue;
                any = true;
                visit(&b, state + ((uint64_t)1 << arrival_shift(back, st)));
            }
        }
        if (!any && !all_done(s, state)) good = false;
    }
    *states += b.used;
    return good;
}

/* ---- random schedules ---- */

typedef struct dice {
    gw_rng_key key;
    uint64_t next;
} dice;

static int roll(dice *d, int n) { return (int)(gw_rng_u64(d->key, d->next++) % (uint64_t)n); }

/* Ranks, stages and micro-batches, few enough that all orders of events can be tried. */
static void random_frame(dice *d, gw_arena *a, gw_sched_builder *b, gw_schedule *s) {
    int ranks = roll(d, 8) ? 2 + roll(d, RANKS - 1) : 1, v = ranks < 3 ? 1 + roll(d, 2) : 1;
    int most = ranks * v >= 3 ? 2 : ranks == 2 && v == 1 ? MICRO : 3;
    gw_sched_begin(b, a, s, "random", ranks, v, roll(d, 2), 1 + roll(d, most));
    if (roll(d, 4)) return;
    int16_t *rank_of = gw_arena_new(a, int16_t, s->stages);
    for (int i = 0; i < s->stages; i++) rank_of[i] = s->rank_of[i];
    for (int i = s->stages - 1; i > 0; i--) { /* any way of dealing stages, a rank holds one */
        int j = roll(d, i + 1);
        int16_t t = rank_of[i];
        rank_of[i] = rank_of[j];
        rank_of[j] = t;
    }
    s->rank_of = rank_of;
}

static void shuffle_into(dice *d, gw_action *all, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = roll(d, i + 1);
        gw_action t = all[i];
        all[i] = all[j];
        all[j] = t;
    }
}

/* All actions of the frame; with or without messages. */
static int all_actions(dice *d, const gw_schedule *s, bool messages, gw_action *all) {
    int n = 0;
    for (int st = 0; st < s->stages; st++) {
        for (int32_t m = 0; m < s->micro_batches; m++) {
            bool halves = roll(d, 2);
            static const uint8_t acts[] = {GW_ACT_F,      GW_ACT_B,      GW_ACT_I,
                                           GW_ACT_W,      GW_ACT_SEND_F, GW_ACT_RECV_F,
                                           GW_ACT_SEND_B, GW_ACT_RECV_B};
            for (size_t k = 0; k < GW_COUNT(acts); k++) {
                if (k == 1 && halves) continue;
                if ((k == 2 || k == 3) && !halves) continue;
                if (k >= 4 && !messages) continue;
                if (k == 4 || k == 7) {
                    if (!apart(s, st, st + 1)) continue;
                } else if (k >= 4 && !apart(s, st, st - 1)) {
                    continue;
                }
                all[n++] = (gw_action){.act = acts[k], .stage = (int16_t)st, .micro = m};
            }
        }
        if (messages) all[n++] = (gw_action){GW_ACT_REDUCE, (int16_t)st, -1};
    }
    return n;
}

static bool is_receive(gw_action x) { return x.act == GW_ACT_RECV_F || x.act == GW_ACT_RECV_B; }

/* Lists in an order in which everything once happened: actions are drawn until none is left, each
 * when it may be. With messages, channels hold what they must, so fewer places may not do, least of
 * all where receives are drawn when nothing else can be. */
static void random_lists(dice *d, gw_sched_builder *b, bool messages) {
    const gw_schedule *s = b->s;
    gw_action all[LIST * RANKS];
    int n = all_actions(d, s, messages, all);
    world w = {0};
    pipe_ pipes[2][STAGES] = {0};
    bool late = roll(d, 2);
    while (n > 0) {
        shuffle_into(d, all, n);
        for (int i = 0, at = 0; late && i < n; i++) { /* receives behind the others */
            if (is_receive(all[i])) continue;
            gw_action t = all[at];
            all[at++] = all[i];
            all[i] = t;
        }
        int took = -1;
        for (int i = 0; i < n && took < 0; i++) {
            gw_action x = all[i];
            int rank = s->rank_of[x.stage];
            bool back = x.act == GW_ACT_SEND_B || x.act == GW_ACT_RECV_B;
            int from = x.act == GW_ACT_RECV_F   ? x.stage - 1
                       : x.act == GW_ACT_RECV_B ? x.stage + 1
                                                : x.stage;
            pipe_ *p = &pipes[back][from];
            bool receives = is_receive(x);
            if (receives && (p->n == 0 || p->in[0] != x.micro)) continue;
            world after = w;
            if (!messages) { /* what other ranks have made is there */
                for (int st = 0; st < s->stages; st++)
                    for (int m = 0; m < s->micro_batches; m++) {
                        if (st > 0) after.received[0][st][m] = w.f[st - 1][m];
                        if (st + 1 < s->stages)
                            after.received[1][st][m] = w.b[st + 1][m] || w.i[st + 1][m];
                    }
            }
            if (!act(s, &after, rank, x, false)) continue;
            w = after;
            if (receives) memmove(p->in, p->in + 1, (size_t)--p->n * sizeof *p->in);
            if (x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B) p->in[p->n++] = x.micro;
            gw_sched_add(b, rank, (gw_act)x.act, x.stage, x.micro);
            took = i;
        }
        CHECK(took >= 0);
        all[took] = all[--n];
    }
    for (int r = 0; messages && r < s->ranks; r++) gw_sched_add(b, r, GW_ACT_STEP, -1, -1);
}

/* ---- faults ---- */

static void cut(gw_actions *l, int64_t at) {
    memmove(l->items + at, l->items + at + 1, (size_t)(--l->n - at) * sizeof *l->items);
}
static void put(gw_actions *l, int64_t at, gw_action x) {
    memmove(l->items + at + 1, l->items + at, (size_t)(l->n++ - at) * sizeof *l->items);
    l->items[at] = x;
}

/* Of one list two receives change places, or a message moves, if it has them. */
static void disturb_messages(dice *d, gw_actions *l, bool exchange) {
    int64_t found[LIST];
    int n = 0;
    for (int64_t i = 0; i < l->n; i++) {
        bool sends = l->items[i].act == GW_ACT_SEND_F || l->items[i].act == GW_ACT_SEND_B;
        if (is_receive(l->items[i]) || (sends && !exchange)) found[n++] = i;
    }
    if (n < 2) return;
    int64_t i = found[roll(d, n)], j = found[roll(d, n)];
    gw_action t = l->items[i];
    if (exchange) {
        l->items[i] = l->items[j];
        l->items[j] = t;
        return;
    }
    int64_t to = i - 4 + roll(d, 9);
    cut(l, i);
    put(l, GW_MAX(0, GW_MIN(to, l->n)), t);
}

/* One change of the lists, which have room for it; some leave the schedule right. */
static void damage(dice *d, const gw_schedule *s, gw_actions *lists) {
    gw_actions *l = &lists[roll(d, s->ranks)], *other = &lists[roll(d, s->ranks)];
    if (l->n < 2 || l->n > LIST - 4 || other->n > LIST - 4) return;
    int64_t i = roll(d, (int)l->n), j = roll(d, (int)l->n);
    gw_action x = l->items[i];
    switch (roll(d, 15)) {
    case 0: /* swap neighbours */
        if (i == 0) return;
        l->items[i] = l->items[i - 1];
        l->items[i - 1] = x;
        return;
    case 1: /* swap any two */
        l->items[i] = l->items[j];
        l->items[j] = x;
        return;
    case 2: cut(l, i); return;
    case 3: put(l, j, x); return;
    case 4: /* move */
    case 5:
        cut(l, i);
        put(l, GW_MIN(j, l->n), x);
        return;
    case 6: /* to another rank */
        cut(l, i);
        put(other, roll(d, (int)other->n + 1), x);
        return;
    case 7:
        if (x.micro >= 0) l->items[i].micro = roll(d, s->micro_batches + (roll(d, 8) == 0));
        return;
    case 8:
        if (x.stage >= 0) l->items[i].stage = (int16_t)roll(d, s->stages);
        return;
    case 9: /* anything more */
        put(l, j,
            (gw_action){(uint8_t)roll(d, GW_ACT_COUNT), (int16_t)roll(d, s->stages),
                        roll(d, s->micro_batches)});
        return;
    case 10: disturb_messages(d, l, true); return;
    default: disturb_messages(d, l, false);
    }
}

/* Copies with room for damage. */
static gw_actions *roomy(const gw_schedule *s, gw_arena *a) {
    gw_actions *lists = gw_arena_new(a, gw_actions, s->ranks);
    for (int r = 0; r < s->ranks; r++) {
        CHECK(s->lists[r].n <= LIST - 4);
        lists[r] = (gw_actions){gw_arena_new(a, gw_action, LIST + 1), s->lists[r].n};
        if (s->lists[r].n)
            memcpy(lists[r].items, s->lists[r].items,
                   (size_t)s->lists[r].n * sizeof *lists[r].items);
    }
    return lists;
}

static void agree(uint64_t seed, int cases) {
    dice d = {.key = gw_rng_key_named(seed, "schedules")};
    uint64_t *slots = gw_mem_alloc(SLOTS * sizeof *slots);
    uint64_t *todo = gw_mem_alloc(MOST_STATES * sizeof *todo);
    int valid = 0, invalid = 0, stuck = 0;
    int64_t states = 0;
    for (int k = 0; k < cases; k++) {
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_sched_builder b;
        gw_schedule s;
        random_frame(&d, &a, &b, &s);
        bool messages = roll(&d, 3) != 0;
        random_lists(&d, &b, messages);
        gw_schedule_complete(&s, &a);
        gw_actions *lists = roomy(&s, &a);
        s.lists = lists;
        for (int n = roll(&d, 5) ? roll(&d, 3) : 0; n > 0; n--) damage(&d, &s, lists);
        int places = 1 + roll(&d, 3);
        bool brute_says = right(&s, places, slots, todo, &states);
        bool check_says = gw_schedule_check(&s, &(gw_sched_checks){.places = places}, &dg) == GW_OK;
        if (brute_says != check_says) {
            gw_str text = {0};
            gw_schedule_print(&s, &text);
            test_note("%d places\n%s", places, gw_str_c(&text));
            test_fail(__FILE__, __LINE__, "case %d: brute force says %s, the checker: %s", k,
                      brute_says ? "right" : "wrong",
                      check_says ? "right" : gw_diags_first_error(&dg));
        }
        CHECK_EQ(dg.nerrors == 0, check_says);
        CHECK(dg.nerrors <= 20);
        valid += check_says;
        invalid += !check_says;
        stuck += !check_says && strstr(gw_diags_first_error(&dg), "deadlock") != NULL;
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
    gw_mem_free(slots);
    gw_mem_free(todo);
    test_note("%d right, %d wrong (%d only stuck), %lld states", valid, invalid, stuck,
              (long long)states);
    CHECK(valid > cases / 5 && invalid > cases / 5 && stuck > cases / 50);
}

TEST(verdicts_are_those_of_brute_force) { agree(1, 4000); }
TEST_LONG(verdicts_are_those_of_brute_force_long) { agree(2, 200000); }

/* ---- what is left out ---- */

/* Computing actions in any order that can run are completed to lists that run with one place. */
TEST(completed_lists_run_with_one_place) {
    dice d = {.key = gw_rng_key_named(3, "completion")};
    int early = 0;
    for (int k = 0; k < 3000; k++) {
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_sched_builder b;
        gw_schedule s;
        gw_sched_begin(&b, &a, &s, "random", 1 + roll(&d, 3), 1, roll(&d, 2), 1);
        int ranks = 1 + roll(&d, 3), v = 1 + roll(&d, STAGES / ranks);
        gw_sched_begin(&b, &a, &s, "random", ranks, v, roll(&d, 2), 1 + roll(&d, MICRO));
        random_lists(&d, &b, false);
        gw_schedule_complete(&s, &a);
        CHECK_OK(gw_schedule_check(&s, &(gw_sched_checks){.places = 1}, &dg), &dg);
        for (int r = 0; r < ranks; r++) { /* receives that are not right before their use */
            for (int64_t i = 0; i + 1 < s.lists[r].n; i++) {
                gw_action x = s.lists[r].items[i], y = s.lists[r].items[i + 1];
                early += x.act == GW_ACT_RECV_F && !(y.act == GW_ACT_F && y.micro == x.micro);
            }
        }
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
    CHECK(early > 0);
}

/* Rank 0 runs all forwards first and rank 1 turns at once: with receives right before their use,
 * rank 1 could not send its second gradient before rank 0 has sent its last activation, and the
 * other way round. */
TEST(receives_move_where_senders_would_be_stuck) {
    static const char head[] = "schedule x ranks 2 stages 0 1 micro-batches 4\n";
    static const char late[] = "rank 0: F0.0 sF0.0 F0.1 sF0.1 F0.2 sF0.2 F0.3 sF0.3"
                               "        rB0.0 B0.0 rB0.1 B0.1 rB0.2 B0.2 rB0.3 B0.3\n"
                               "rank 1: rF1.0 F1.0 B1.0 sB1.0 rF1.1 F1.1 B1.1 sB1.1"
                               "        rF1.2 F1.2 B1.2 sB1.2 rF1.3 F1.3 B1.3 sB1.3\n";
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    gw_str t = {0};
    gw_str_printf(&t, "%s%s", head, late);
    CHECK_FAILS(gw_schedule_parse(t.data, (int64_t)t.len, "x", &a, &s, &dg), &dg,
                "deadlock: 2 ranks wait in a circle");
    CHECK(strstr(dg.first->detail, "action 8 (sF0.3): waits for rank 1 to receive (1 message under "
                                   "way), which waits at action 8 (sB1.1)"));
    CHECK(strstr(dg.first->detail, "action 8 (sB1.1): waits for rank 0 to receive"));
    CHECK(strstr(dg.first->hint, "finishes with 2 places"));
    gw_str_clear(&t);
    for (const char *c = late, *end; *c; c = end) { /* without messages */
        end = c + strcspn(c, " \n");
        if (*c != 's' && strncmp(c, "rF", 2) != 0 && strncmp(c, "rB", 2) != 0)
            gw_str_add_n(&t, c, (size_t)(end - c));
        size_t blanks = strspn(end, " \n");
        gw_str_add_n(&t, end, blanks);
        end += blanks;
    }
    gw_str whole = {0};
    gw_str_printf(&whole, "%s%s", head, gw_str_c(&t));
    gw_diags_clear(&dg);
    CHECK_OK(gw_schedule_parse(whole.data, (int64_t)whole.len, "x", &a, &s, &dg), &dg);
    gw_str_release(&whole);
    gw_str_release(&t);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* ---- rules, one by one ---- */

TEST(each_rule_is_told) {
    static const struct {
        const char *lists, *says;
    } cases[] = {
        {"rank 0: F0.0 sF0.0 rB0.0 B0.0 R0 S rank 1: rF1.0 F1.0 B1.0 sB1.0 R1 S", NULL},
        {"rank 0: F0.0 sF0.0 rB0.0 B0.0 R0 S rank 1: rF1.0 F1.0 I1.0 sB1.0 W1.0 R1 S", NULL},
        {"rank 0: sF0.0 F0.0 B0.0 rank 1: F1.0 B1.0", "it needs what comes later in the list"},
        {"rank 0: F0.0 B0.0 rB0.0 rank 1: F1.0 B1.0", "action 5 (rB0.0)"},
        {"rank 0: F0.0 B0.0 rank 1: B1.0 F1.0", "action 5 (F1.0)"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 W1.0 I1.0", "needs what comes later"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 I1.0", "other half of this backward, W1.0"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 W1.0", "other half of this backward, I1.0"},
        {"rank 0: F0.0 B0.0 W0.0 rank 1: F1.0 B1.0", "this backward is whole too"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0", "the backward B1.0 is missing"},
        {"rank 0: B0.0 rank 1: F1.0 B1.0", "F0.0 is missing"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 F1.0 B1.0", "stands in the list before, as action 2"},
        {"rank 0: F0.0 B0.0 B1.0 rank 1: F1.0 B1.0", "stage 1 is on rank 1"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 B1.0 sF1.0", "stage 1 is the last"},
        {"rank 0: rF0.0 F0.0 B0.0 rank 1: F1.0 B1.0", "stage 0 is the first"},
        {"rank 0: F0.0 B0.0 rank 1: F1.0 B1.0 rF1.0 rF1.0", "stands in the list before"},
        {"rank 0: F0.0 B0.0 rank 1: F1.1 B1.0", "there are 1 micro-batches"},
        {"rank 0: F0.0 R0 B0.0 rank 1: F1.0 B1.0", "gradients of the stage come later"},
        {"rank 0: F0.0 B0.0 R1 rank 1: F1.0 B1.0", "R0 is missing"},
        {"rank 0: F0.0 B0.0 R0 R0 rank 1: F1.0 B1.0", "stands in the list before, as action"},
        {"rank 0: F0.0 S B0.0 rank 1: F1.0 B1.0", "the step is a rank's last action"},
        {"rank 0: F0.0 S B0.0 rank 1: F1.0 B1.0", "does not end with the step"},
        {"rank 0: F0.0 rB0.0 B0.0 sF0.0 rank 1: F1.0 B1.0",
         "waits for rank 1 to send, which waits at action 1 (rF1.0)"},
        {"rank 0: F0.0 rB0.0 B0.0 sF0.0 rank 1: F1.0 B1.0", "change the order"},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_arena a = {0};
        gw_diags dg;
        gw_diags_init(&dg);
        gw_schedule s;
        gw_str t = {0};
        gw_str_printf(&t, "schedule x ranks 2 stages 0 1 micro-batches 1 %s", cases[i].lists);
        gw_status st = gw_schedule_parse(t.data, (int64_t)t.len, "x", &a, &s, &dg);
        if (cases[i].says)
            CHECK_FAILS(st, &dg, cases[i].says);
        else
            CHECK_OK(st, &dg);
        gw_str_release(&t);
        gw_diags_release(&dg);
        gw_arena_release(&a);
    }
}

/* A schedule that is nowhere right tells twenty problems and how many more there are. */
TEST(problems_are_counted_to_the_end) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_sched_builder b;
    gw_schedule s;
    gw_sched_begin(&b, &a, &s, "empty", 4, 2, false, 10);
    CHECK_FAILS(gw_schedule_check(&s, &(gw_sched_checks){.places = 1}, &dg), &dg,
                "F0.0 is missing");
    CHECK_EQ(dg.nerrors, 20);
    /* F and B of 80 pairs, 28 messages of 10 micro-batches, 8 R, 4 S */
    CHECK_STR(dg.last->detail, "and 432 more");
    CHECK_FAILS(gw_schedule_check(&s, &(gw_sched_checks){.places = 1}, NULL), &dg, "");
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

// SPDX-License-Identifier: Apache-2.0
// Adds what a schedule's lists leave out: messages, reductions, steps.
//
// Sends, R and S have obvious places: right behind what makes a message, behind a stage's last
// backward, at the end. Receives do not. Right before the action that needs the message is best for
// time, but two things may ask for an earlier place:
//
//   order     messages of a channel arrive in the order of sending, so whoever needs the second
//             first must receive both (what is received stays until it is used);
//   places    a channel holds few messages; a rank that sends more of them waits for its receiver,
//             which may be waiting, by way of others, for something this rank does later.
//
// So the lists are run here, greedily, with one place a channel, and receives are put where the run
// needs them. When no rank can go on, the waiting ranks are followed from one to the next until a
// circle closes. If one in it waits to send, the rank it sends to takes that message now, in front
// of the action at which it waits, and the run goes on (as in Parks, "Bounded scheduling of process
// networks", 1995, where the channel would grow). Where the receiver waits to receive, as is
// preferred, this costs no time: what it waits for comes after this message anyway. If all in the
// circle wait to receive, no place of receives can help: the order of computing is at fault.
//
// The run is one execution with one place a channel that finishes. A network of such ranks either
// finishes in every execution or in none (check.c says why), and more places never hurt, so the
// completed lists cannot deadlock.
//
// Cost: each action is looked at a constant number of times; each early receive follows at most as
// many ranks as there are.
#include <string.h>

#include "sched/impl.h"

enum { SENT = 1, GOT = 4, MADE = 16 }; /* flags of a pair; shifted by 1 for what goes back */

typedef struct channel {
    int32_t *order; /* micro-batches, as they are sent */
    int64_t n, sent, received;
} channel;

typedef struct rank_state {
    gw_actions in;   /* with sends, R and S */
    gw_actions out;  /* with receives; room for all */
    int64_t at;      /* next of `in` */
    int waits;       /* for this channel; -1: runs, or done */
    bool waits_send; /* for room in it, not for a message */
    bool places[2];  /* receives of what goes on, back: placed here */
    int seen;        /* number of the walk that came by */
} rank_state;

typedef struct completer {
    const gw_schedule *s;
    gw_arena a; /* for the run only */
    rank_state *ranks;
    channel *channels;
    uint8_t *flags; /* [stages * micro_batches] */
    int *ready, nready;
    int walk;
} completer;

static bool has_act(const gw_actions *l, gw_act act) {
    for (int64_t i = 0; i < l->n; i++)
        if (l->items[i].act == act) return true;
    return false;
}

/* Of a pair that exists, on the rank of its stage. */
static bool is_own(const gw_schedule *s, int rank, gw_action x) {
    return x.act < GW_ACT_COUNT && gw_act_has_micro((gw_act)x.act) && x.stage >= 0 &&
           x.stage < s->stages && x.micro >= 0 && x.micro < s->micro_batches &&
           s->rank_of[x.stage] == rank;
}

static uint8_t *flags_of(const completer *c, int stage, int32_t micro) {
    return &c->flags[(int64_t)stage * c->s->micro_batches + micro];
}

static void append(gw_actions *l, gw_act act, int stage, int32_t micro) {
    l->items[l->n++] = (gw_action){.act = (uint8_t)act, .stage = (int16_t)stage, .micro = micro};
}

/* ---- sends, reductions, the step ---- */

/* The last backward of each stage: last[stage] = its index in the list, where there is one. */
static void last_backward(const gw_schedule *s, int rank, int64_t *last) {
    const gw_actions *l = &s->lists[rank];
    for (int64_t i = 0; i < l->n; i++) {
        gw_action x = l->items[i];
        if (is_own(s, rank, x) && (x.act == GW_ACT_B || x.act == GW_ACT_W)) last[x.stage] = i;
    }
}

static void add_sends(completer *c, int rank, const int64_t *last) {
    const gw_schedule *s = c->s;
    const gw_actions *l = &s->lists[rank];
    bool on = !has_act(l, GW_ACT_SEND_F), back = !has_act(l, GW_ACT_SEND_B);
    bool reduce = !has_act(l, GW_ACT_REDUCE), step = !has_act(l, GW_ACT_STEP);
    gw_actions *out = &c->ranks[rank].in;
    out->items = gw_arena_new(&c->a, gw_action, 2 * l->n + s->stages + 1);
    for (int64_t i = 0; i < l->n; i++) {
        gw_action x = l->items[i];
        out->items[out->n++] = x;
        if (!is_own(s, rank, x)) continue;
        gw_action send = {.act = x.act == GW_ACT_F ? GW_ACT_SEND_F : GW_ACT_SEND_B,
                          .stage = x.stage,
                          .micro = x.micro};
        bool made = x.act == GW_ACT_F ? on : back && (x.act == GW_ACT_B || x.act == GW_ACT_I);
        uint8_t *flags = flags_of(c, x.stage, x.micro),
                flag = (uint8_t)(MADE << (x.act != GW_ACT_F));
        if (made && !(*flags & flag) && gw_sched_channel(s, send) >= 0) out->items[out->n++] = send;
        if (made) *flags |= flag; /* an action that stands there twice sends once */
        if (reduce && last[x.stage] == i) append(out, GW_ACT_REDUCE, x.stage, -1);
    }
    if (step) append(out, GW_ACT_STEP, -1, -1);
}

/* What each channel carries, in the order of its sender. */
static void find_orders(completer *c) {
    const gw_schedule *s = c->s;
    for (int pass = 0; pass < 2; pass++) {
        for (int rank = 0; rank < s->ranks; rank++) {
            const gw_actions *l = &c->ranks[rank].in;
            for (int64_t i = 0; i < l->n; i++) {
                gw_action x = l->items[i];
                if (!is_own(s, rank, x) || (x.act != GW_ACT_SEND_F && x.act != GW_ACT_SEND_B))
                    continue;
                int id = gw_sched_channel(s, x);
                if (id < 0) continue;
                if (pass == 1) {
                    c->channels[id].order[c->channels[id].n] = x.micro;
                    *flags_of(c, id / 2, x.micro) |= (uint8_t)(SENT << id % 2);
                }
                c->channels[id].n++;
            }
        }
        if (pass == 1) break;
        for (int id = 0; id < 2 * s->stages; id++) {
            c->channels[id].order = gw_arena_new(&c->a, int32_t, c->channels[id].n);
            c->channels[id].n = 0;
        }
    }
}

/* ---- running ---- */

/* The flag GOT of what a channel's message with this micro-batch brings: it is kept at the pair
 * that receives. */
static bool got(const completer *c, int id, int32_t micro) {
    int stage = id / 2 + (id % 2 ? -1 : 1);
    return *flags_of(c, stage, micro) & (GOT << id % 2);
}
static void set_got(completer *c, int id, int32_t micro) {
    int stage = id / 2 + (id % 2 ? -1 : 1);
    *flags_of(c, stage, micro) |= (uint8_t)(GOT << id % 2);
}
static bool is_sent(const completer *c, int id, int32_t micro) {
    return *flags_of(c, id / 2, micro) & (SENT << id % 2);
}

static void wake(completer *c, int rank, int id) {
    if (c->ranks[rank].waits != id) return;
    c->ranks[rank].waits = -1;
    c->ready[c->nready++] = rank;
}

/* The receiver takes a channel's next message. */
static int32_t take(completer *c, int id) {
    channel *ch = &c->channels[id];
    int32_t micro = ch->order[ch->received++];
    set_got(c, id, micro);
    wake(c, gw_sched_sender(c->s, id), id);
    return micro;
}

static void receive_here(completer *c, int id) {
    bool back = id % 2;
    int stage = id / 2 + (back ? -1 : 1);
    int32_t micro = take(c, id);
    append(&c->ranks[gw_sched_receiver(c->s, id)].out, back ? GW_ACT_RECV_B : GW_ACT_RECV_F, stage,
           micro);
}

static bool waits_for(rank_state *r, int id, bool to_send) {
    r->waits = id;
    r->waits_send = to_send;
    return false;
}

/* The channel whose message a computing action needs and that is placed here; -1: none. */
static int needs(const completer *c, int rank, gw_action x) {
    bool back = x.act == GW_ACT_B || x.act == GW_ACT_I;
    if ((x.act != GW_ACT_F && !back) || !c->ranks[rank].places[back]) return -1;
    gw_action receive = {.act = back ? GW_ACT_RECV_B : GW_ACT_RECV_F, .stage = x.stage};
    int id = gw_sched_channel(c->s, receive);
    return id >= 0 && !got(c, id, x.micro) ? id : -1;
}

/* Makes what x needs be there. False: it waits. `force`: whatever the sender has done. */
static bool receive_for(completer *c, int rank, gw_action x, bool force) {
    int id = needs(c, rank, x);
    if (id < 0) return true;
    channel *ch = &c->channels[id];
    while (!got(c, id, x.micro)) {
        if (!is_sent(c, id, x.micro)) {
            append(&c->ranks[rank].out, id % 2 ? GW_ACT_RECV_B : GW_ACT_RECV_F, x.stage, x.micro);
            set_got(c, id, x.micro);
        } else if (force ? ch->received < ch->n : ch->received < ch->sent) {
            receive_here(c, id);
        } else {
            return waits_for(&c->ranks[rank], id, false);
        }
    }
    return true;
}

/* Does the message of x, which the list has itself. False: it waits. */
static bool message(completer *c, int rank, gw_action x) {
    int id = gw_sched_channel(c->s, x);
    if (id < 0) return true;
    channel *ch = &c->channels[id];
    bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
    if (sends && ch->sent > ch->received) return waits_for(&c->ranks[rank], id, true);
    if (!sends && ch->sent == ch->received) return waits_for(&c->ranks[rank], id, false);
    if (!sends) {
        take(c, id);
        return true;
    }
    ch->sent++;
    wake(c, gw_sched_receiver(c->s, id), id);
    return true;
}

static void advance(completer *c, int rank) {
    rank_state *r = &c->ranks[rank];
    while (r->at < r->in.n) {
        gw_action x = r->in.items[r->at];
        if (is_own(c->s, rank, x) && (!receive_for(c, rank, x, false) || !message(c, rank, x)))
            return;
        r->out.items[r->out.n++] = x;
        r->at++;
    }
}

/* From a rank that waits, the circle of ranks that it leads to; in it, the channel whose message is
 * taken early. -1: there is no circle, or none in it waits to send what is placed here. */
static int early(completer *c, int rank) {
    int found = -1;
    c->walk++;
    while (c->ranks[rank].waits >= 0 && c->ranks[rank].seen != c->walk) {
        rank_state *r = &c->ranks[rank];
        r->seen = c->walk;
        rank = r->waits_send ? gw_sched_receiver(c->s, r->waits) : gw_sched_sender(c->s, r->waits);
    }
    if (c->ranks[rank].waits < 0) return -1;
    for (int first = rank, again = 0; rank != first || !again; again = 1) {
        const rank_state *r = &c->ranks[rank];
        int id = r->waits;
        rank = r->waits_send ? gw_sched_receiver(c->s, id) : gw_sched_sender(c->s, id);
        if (!r->waits_send || !c->ranks[rank].places[id % 2]) continue;
        if (found < 0 || !c->ranks[rank].waits_send) found = id;
    }
    return found;
}

static void run(completer *c) {
    int start = 0;
    for (int rank = c->s->ranks; rank-- > 0;) c->ready[c->nready++] = rank;
    while (start < c->s->ranks) {
        while (c->nready > 0) advance(c, c->ready[--c->nready]);
        int id = c->ranks[start].waits < 0 ? -1 : early(c, start);
        if (id >= 0)
            receive_here(c, id);
        else
            start++; /* done, or stuck for good unless another circle opens */
        if (id >= 0) start = 0;
    }
}

/* A list that cannot run: its receives right before what needs them. */
static void finish(completer *c, int rank) {
    rank_state *r = &c->ranks[rank];
    for (; r->at < r->in.n; r->at++) {
        gw_action x = r->in.items[r->at];
        if (is_own(c->s, rank, x)) receive_for(c, rank, x, true);
        r->out.items[r->out.n++] = x;
    }
}

void gw_schedule_complete(gw_schedule *s, gw_arena *a) {
    completer c = {.s = s};
    c.ranks = gw_arena_new(&c.a, rank_state, s->ranks);
    c.channels = gw_arena_new(&c.a, channel, 2 * s->stages);
    c.flags = gw_arena_new(&c.a, uint8_t, (int64_t)s->stages * s->micro_batches);
    c.ready = gw_arena_new(&c.a, int, s->ranks);
    int64_t *last = gw_arena_new(&c.a, int64_t, s->stages);
    memset(last, -1, (size_t)s->stages * sizeof *last);
    for (int rank = 0; rank < s->ranks; rank++) {
        rank_state *r = &c.ranks[rank];
        r->waits = -1;
        r->places[0] = !has_act(&s->lists[rank], GW_ACT_RECV_F);
        r->places[1] = !has_act(&s->lists[rank], GW_ACT_RECV_B);
        last_backward(s, rank, last);
        add_sends(&c, rank, last);
    }
    find_orders(&c);
    int64_t *sent_to = gw_arena_new(&c.a, int64_t, s->ranks);
    for (int id = 0; id < 2 * s->stages; id++)
        if (c.channels[id].n) sent_to[gw_sched_receiver(s, id)] += c.channels[id].n;
    for (int rank = 0; rank < s->ranks; rank++) {
        rank_state *r = &c.ranks[rank];
        /* Each message once, and before an action at most one that nobody sends. */
        r->out.items = gw_arena_new(&c.a, gw_action, 2 * r->in.n + sent_to[rank]);
    }
    run(&c);
    gw_actions *lists = gw_arena_new(a, gw_actions, s->ranks);
    for (int rank = 0; rank < s->ranks; rank++) {
        finish(&c, rank);
        const gw_actions *out = &c.ranks[rank].out;
        lists[rank].items = gw_arena_dup(a, out->items, out->n * (int64_t)sizeof *out->items);
        lists[rank].n = out->n;
    }
    s->lists = lists;
    gw_arena_release(&c.a);
}

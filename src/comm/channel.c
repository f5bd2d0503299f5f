// SPDX-License-Identifier: Apache-2.0
// Channels: what is the same for every transport.
//
// Opening. Each rank lists its channels; all lists go to all ranks; every rank runs the same check
// over the union, so all come to the same verdict without another word, and the lower of the two
// ranks that do not fit says it. The check sorts by (sender, receiver, tag): what fits is a pair of
// neighbours, a sending side and a receiving one, of equal size and places. What a transport needs
// to know of the other side (where its box lies) travels in the same lists.
//
// Messages. A mark like that of a collective goes with each: its number in the channel and a line
// for people, "send activations of stage 1, rank 2 to 3, micro-batch 3". All but the scope is
// written when the channel is opened. The transport does the rest (shm_channel.c, mpi/channel.c).
#include "comm/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/comm_impl.h"

enum { WHAT = 40 };

/* What a rank tells the others of one of its channels. */
typedef struct entry {
    int32_t peer, tag, places, sends; /* sends -1: no channel */
    int64_t bytes;
    int64_t where[3];
    char what[WHAT];
} entry;

typedef struct line {
    char text[104];
    int length;
} line;

struct gw_channels {
    gw_comm *c;
    gw_transport_channels *set;
    int n;
    gw_channel_end *ends; /* [n] */
    line *lines;          /* [n] "send X, rank 0 to 1" */
};

static int64_t stride_of(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t gw_channel_box_bytes(int64_t bytes, int places) { return stride_of(bytes) * places; }

double gw_channel_seconds(const gw_coll_machine *m, int64_t bytes) {
    double b = (double)bytes;
    return m->latency_s + (m->shared ? 2.0 * b / m->copy_bytes_per_s : b / m->bytes_per_s);
}

/* ------------------------------------------------------------------------------ the check */

/* One side of a channel, and whose. */
typedef struct side {
    int from, to, rank;
    const entry *e;
} side;

static int by_channel(const void *a, const void *b) {
    const side *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->e->tag != y->e->tag) return x->e->tag < y->e->tag ? -1 : 1;
    return y->e->sends - x->e->sends; /* the sender's first */
}

static bool same_channel(const side *x, const side *y) {
    return x->from == y->from && x->to == y->to && x->e->tag == y->e->tag;
}

/* What is wrong with one side by itself; NULL: nothing. */
static const char *wrong_alone(const side *x, int size) {
    if (x->e->peer < 0 || x->e->peer >= size) return "with a rank that there is not";
    if (x->e->peer == x->rank) return "with itself";
    if (x->e->tag < 0) return "with a negative tag";
    if (x->e->bytes < 0 || x->e->places < 1) return "of an impossible size";
    return NULL;
}

static const char *verb(const side *x) { return x->e->sends ? "sends" : "receives"; }

/* The fault of sides[i], sorted: its text, and whether there is one; *pair: it has its other side.
 */
static bool find_fault(const side *s, int64_t i, int64_t n, char text[512], bool *pair) {
    const side *x = &s[i], *y = i + 1 < n && same_channel(x, &s[i + 1]) ? &s[i + 1] : NULL;
    const side *z = i + 2 < n && same_channel(x, &s[i + 2]) ? &s[i + 2] : NULL;
    const char *way = x->e->sends ? "to" : "from";
    int other = x->e->peer;
    *pair = false;
    if (!y) {
        snprintf(text, 512,
                 "rank %d opens the channel '%s' %s rank %d, tag %d, of which rank %d does not "
                 "open its side",
                 x->rank, x->e->what, way, other, x->e->tag, other);
    } else if (x->e->sends == y->e->sends) {
        snprintf(text, 512, "rank %d opens two channels %s rank %d with tag %d: '%s' and '%s'",
                 x->rank, way, other, x->e->tag, x->e->what, y->e->what);
    } else if (z) {
        snprintf(text, 512, "rank %d opens two channels from rank %d with tag %d: '%s' and '%s'",
                 y->rank, y->e->peer, y->e->tag, y->e->what, z->e->what);
    } else if (x->e->bytes != y->e->bytes || x->e->places != y->e->places) {
        snprintf(text, 512,
                 "the sides of channel '%s', tag %d, differ: rank %d %s messages of %lld bytes in "
                 "%d places, rank %d %s messages of %lld bytes in %d places",
                 x->e->what, x->e->tag, x->rank, verb(x), (long long)x->e->bytes, x->e->places,
                 y->rank, verb(y), (long long)y->e->bytes, y->e->places);
    } else {
        *pair = true;
        return false;
    }
    return true;
}

/* The first fault of all: its text, and the rank that says it; -1: none. */
static int find_first(const side *s, int64_t n, int size, char text[512]) {
    for (int64_t i = 0; i < n; i++) {
        const char *wrong = wrong_alone(&s[i], size);
        if (!wrong) continue;
        snprintf(text, 512, "rank %d opens the channel '%s' %s rank %d, tag %d, %s", s[i].rank,
                 s[i].e->what, s[i].e->sends ? "to" : "from", s[i].e->peer, s[i].e->tag, wrong);
        return s[i].rank;
    }
    bool pair;
    for (int64_t i = 0; i < n; i += pair ? 2 : 1)
        if (find_fault(s, i, n, text, &pair)) return GW_MIN(s[i].rank, s[i].e->peer);
    return -1;
}

/* All ranks' lists, `most` entries each. */
static gw_status check(gw_channels *ch, const entry *all, int most, gw_diags *dg) {
    int size = gw_comm_size(ch->c), first = -1;
    side *sides = gw_mem_zalloc((size_t)size * (size_t)most * sizeof *sides);
    int64_t n = 0;
    char text[512] = "";
    for (int r = 0; r < size; r++)
        for (int i = 0; i < most; i++) {
            const entry *e = &all[(int64_t)r * most + i];
            if (e->sends < 0) continue;
            sides[n++] = (side){e->sends ? r : e->peer, e->sends ? e->peer : r, r, e};
        }
    qsort(sides, (size_t)n, sizeof *sides, by_channel);
    first = find_first(sides, n, size, text);
    gw_mem_free(sides);
    if (first < 0) return GW_OK;
    /* Nobody leaves, and tells the others that it does, before all know whose line it is. */
    (void)!gw_comm_barrier(ch->c, "channels", NULL);
    if (first != gw_comm_rank(ch->c)) return GW_ERR_PEER;
    return GW_FAIL(dg, GW_ERR_PEER, "peer-mismatch", "%s", text);
}

/* ------------------------------------------------------------------------------ opening */

static void describe(gw_channels *ch, const gw_channel_spec *specs) {
    int me = gw_comm_rank(ch->c);
    for (int i = 0; i < ch->n; i++) {
        const gw_channel_spec *p = &specs[i];
        gw_channel_end *e = &ch->ends[i];
        int from = p->sends ? me : p->peer, to = p->sends ? p->peer : me;
        uint64_t key[4] = {ch->c->channels_opened, (uint64_t)from, (uint64_t)to, (uint64_t)p->tag};
        *e = (gw_channel_end){.key = gw_hash64(key, sizeof key, 0),
                              .peer = p->peer,
                              .sends = p->sends,
                              .tag = p->tag,
                              .places = p->places,
                              .bytes = p->bytes,
                              .stride = stride_of(p->bytes),
                              .box = p->box};
        line *l = &ch->lines[i];
        snprintf(l->text, sizeof l->text, "%s %.*s, rank %d to %d", p->sends ? "send" : "receive",
                 WHAT - 1, p->what ? p->what : "?", from, to);
        l->length = (int)strlen(l->text);
    }
}

static void fill(const gw_channels *ch, const gw_channel_spec *specs, entry *mine, int most) {
    memset(mine, 0, (size_t)most * sizeof *mine);
    for (int i = 0; i < most; i++) {
        entry *e = &mine[i];
        e->sends = -1;
        if (i >= ch->n) continue;
        const gw_channel_spec *p = &specs[i];
        *e = (entry){.peer = p->peer, .tag = p->tag, .places = p->places, .sends = p->sends};
        e->bytes = p->bytes;
        memcpy(e->where, ch->ends[i].mine, sizeof e->where);
        snprintf(e->what, sizeof e->what, "%s", p->what ? p->what : "?");
    }
}

/* Hands each of this rank's channels what its other side told. Every one is found: they fit. */
static void introduce(gw_channels *ch, const entry *all, int most) {
    int me = gw_comm_rank(ch->c);
    for (int i = 0; i < ch->n; i++) {
        gw_channel_end *e = &ch->ends[i];
        const entry *theirs = &all[(int64_t)e->peer * most];
        int k = 0;
        while (k < most && (theirs[k].peer != me || theirs[k].tag != e->tag ||
                            theirs[k].sends != (e->sends ? 0 : 1)))
            k++;
        GW_ASSERT(k < most);
        memcpy(e->theirs, theirs[k].where, sizeof e->theirs);
    }
}

static gw_status meet(gw_channels *ch, const gw_channel_spec *specs, int most, gw_diags *dg) {
    size_t list = (size_t)most * sizeof(entry);
    entry *all = gw_mem_alloc(list * ((size_t)gw_comm_size(ch->c) + 1));
    entry *mine = all + (int64_t)gw_comm_size(ch->c) * most;
    fill(ch, specs, mine, most);
    gw_status st = gw_comm_all_gather(ch->c, mine, (int64_t)list, all, "channels", dg);
    if (st == GW_OK) {
        st = check(ch, all, most, dg);
        /* Nobody leaves before all have come to the verdict: one of them is to say it. */
        gw_status met = gw_comm_barrier(ch->c, "channels are compared", st == GW_OK ? dg : NULL);
        if (st == GW_OK) st = met;
    }
    if (st == GW_OK) introduce(ch, all, most);
    gw_mem_free(all);
    return st;
}

/* A set without channels needs nothing of the transport: it is the same on all ranks. */
static gw_status connect(gw_channels *ch, const gw_channel_spec *specs, gw_diags *dg) {
    int64_t most[2] = {ch->n, 0};
    for (int i = 0; i < ch->n; i++) most[1] = GW_MAX(most[1], specs[i].tag);
    GW_TRY(gw_comm_max_i64(ch->c, most, 2, "channels", dg));
    if (most[0] == 0) return GW_OK;
    const gw_transport_ops *ops = ch->c->t->ops;
    gw_coll_mark mark = {.seq = ++ch->c->groups[0].seq, .signature = 1, .text = "open channels"};
    GW_TRY(ops->begin(ch->c->t, &ch->c->groups[0].g, &mark, dg));
    GW_TRY(ops->channels_open(ch->c->t, ch->ends, ch->n, &ch->set, dg));
    ops->end(ch->c->t, &ch->c->groups[0].g);
    GW_TRY(meet(ch, specs, (int)most[0], dg));
    ops->channels_bind(ch->c->t, ch->set, (int32_t)most[1]);
    return GW_OK;
}

gw_status gw_channels_open(gw_channels **out, gw_comm *c, const gw_channel_spec *specs, int n,
                           gw_diags *dg) {
    gw_channels *ch = gw_mem_zalloc(sizeof *ch);
    *ch = (gw_channels){.c = c, .n = n};
    ch->ends = gw_mem_zalloc((size_t)n * sizeof *ch->ends + 1);
    ch->lines = gw_mem_zalloc((size_t)n * sizeof *ch->lines + 1);
    *out = NULL;
    c->channels_opened++;
    describe(ch, specs);
    gw_status st = connect(ch, specs, dg);
    if (st == GW_OK)
        *out = ch;
    else
        gw_channels_close(ch);
    return st;
}

void gw_channels_close(gw_channels *ch) {
    if (!ch) return;
    if (ch->set) ch->c->t->ops->channels_close(ch->c->t, ch->set);
    gw_mem_free(ch->ends);
    gw_mem_free(ch->lines);
    gw_mem_free(ch);
}

/* ------------------------------------------------------------------------------ messages */

static void make_mark(const gw_channels *ch, int i, uint64_t seq, const char *scope,
                      gw_coll_mark *m) {
    const line *l = &ch->lines[i];
    m->seq = seq;
    m->signature = ch->ends[i].key;
    memcpy(m->text, l->text, sizeof m->text);
    size_t at = (size_t)l->length, n = scope ? strlen(scope) : 0, room = sizeof m->text - 1;
    if (n == 0 || at + 3 > room) return;
    memcpy(m->text + at, ", ", 2);
    if (n > room - at - 2) n = room - at - 2;
    memcpy(m->text + at + 2, scope, n);
    m->text[at + 2 + n] = 0;
}

static void count_time(gw_comm *c, int64_t start, int64_t waited) {
    c->messages.ns += gw_clock_ns() - start;
    c->messages.wait_ns += c->t->ops->waited_ns(c->t) - waited;
}

gw_status gw_channel_send(gw_channels *ch, int i, const void *src, const char *scope,
                          gw_diags *dg) {
    gw_comm *c = ch->c;
    GW_ASSERT(i >= 0 && i < ch->n && ch->ends[i].sends);
    int64_t start = gw_clock_ns(), waited = c->t->ops->waited_ns(c->t);
    gw_coll_mark m;
    make_mark(ch, i, ch->ends[i].count + 1, scope, &m);
    GW_TRY(c->t->ops->channel_send(c->t, ch->set, i, src, &m, dg));
    c->messages.calls++;
    c->messages.payload += ch->ends[i].bytes;
    c->messages.moved += ch->ends[i].bytes;
    count_time(c, start, waited);
    return GW_OK;
}

gw_status gw_channel_recv(gw_channels *ch, int i, void *dst, const char *scope, gw_diags *dg) {
    gw_comm *c = ch->c;
    GW_ASSERT(i >= 0 && i < ch->n && !ch->ends[i].sends);
    int64_t start = gw_clock_ns(), waited = c->t->ops->waited_ns(c->t);
    gw_coll_mark m;
    make_mark(ch, i, ch->ends[i].count + 1, scope, &m);
    GW_TRY(c->t->ops->channel_recv(c->t, ch->set, i, dst, &m, dg));
    count_time(c, start, waited);
    return GW_OK;
}

bool gw_channel_ready(gw_channels *ch, int i) {
    GW_ASSERT(i >= 0 && i < ch->n && !ch->ends[i].sends);
    return ch->c->t->ops->channel_ready(ch->c->t, ch->set, i);
}

gw_status gw_channels_drain(gw_channels *ch, gw_diags *dg) {
    gw_comm *c = ch->c;
    int64_t start = gw_clock_ns(), waited = c->t->ops->waited_ns(c->t);
    for (int i = 0; i < ch->n; i++) {
        if (!ch->ends[i].sends || ch->ends[i].count == 0) continue;
        gw_coll_mark m;
        make_mark(ch, i, ch->ends[i].count, "which is to be taken", &m);
        GW_TRY(c->t->ops->channel_drain(c->t, ch->set, i, &m, dg));
    }
    count_time(c, start, waited);
    return GW_OK;
}

gw_comm_counts gw_channels_counted(const gw_comm *c) { return c->messages; }

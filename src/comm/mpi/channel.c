// SPDX-License-Identifier: Apache-2.0
// Channels over MPI: the places of the sender's box are what MPI sends from.
//
// A send copies into the next place, starts a synchronous send of it (MPI_Issend) and goes on. Such
// a send is done only when its receiver has begun to receive, so a place is free when its message
// was taken, as on shared memory: MPI's own buffers let nobody run further ahead than the places.
// Messages have a communicator of their own, and each set of channels a stretch of tags, so they
// meet neither collectives nor each other.
//
// A receive is a plain one, into its destination, and MPI moves a large message only when both
// sides have met. Better is one that is posted before: then the message comes while its receiver
// computes. It needs memory, and there is some: where two ranks have channels of one size both
// ways, as neighbours in a pipeline have, each lends the last place of its box to the other's
// messages. A message that lies there was taken, so its sender makes do with one place less, and is
// as far ahead as before. Both sides pair their channels by the same rule, in the order of tags.
// With one place there is nothing to lend.
//
// MPI moves a large message only while both sides call it. A sender that computes calls it through
// gw_comm_alive, before each op: at most every 100 us, and only while a send is under way.
//
// A wait asks and is asked like that of a collective (control.c). Asked after a message, a rank
// answers with the count of its side of the channel.

#include <string.h> /* memcpy */

#include "base/arena.h"         /* gw_mem_zalloc */
#include "base/clock.h"         /* gw_clock_ns */
#include "comm/mpi/transport.h" /* gw_mpi_transport, gw_mpi_pause */

enum { PROGRESS_NS = 100 * 1000, SERVE_NS = 100 * 1000 * 1000 };

typedef struct channel {
    gw_channel_end *end;
    int tag, pieces;          /* of a message: MPI counts in int */
    gw_mpi_request *requests; /* [places * pieces], of a receiver [pieces] */
    int places;               /* that a sender uses: all, or all but the one it lends */
    char *ahead;              /* receiver: where the next message is received; NULL: at its end */
    bool paired, posted;
    uint64_t freed; /* sender: messages that have been taken */
} channel;

typedef struct gw_mpi_channels {
    struct gw_mpi_channels *next;
    int64_t looked_ns;
    int n;
    channel items[];
} gw_mpi_channels;

static gw_mpi_transport *of(gw_transport *t) { return (gw_mpi_transport *)(void *)t; }
static gw_mpi_channels *set_of(gw_transport_channels *s) { return (gw_mpi_channels *)(void *)s; }

/* Bytes of the piece of a message that begins at `at`. */
static int piece_of(int64_t bytes, int64_t at) {
    int64_t left = bytes - at;
    return (int)(left < GW_MPI_MAX_BYTES ? left : GW_MPI_MAX_BYTES);
}

// ------------------------------------------------------------------ opening

gw_status gw_mpi_channels_open(gw_transport *base, gw_channel_end *ends, int n,
                               gw_transport_channels **out, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    (void)dg;
    gw_mpi_channels *set = gw_mem_zalloc(sizeof *set + (size_t)n * sizeof *set->items);
    set->n = n;
    set->next = t->channels;
    for (int i = 0; i < n; i++) set->items[i].end = &ends[i];
    t->channels = set;
    *out = (gw_transport_channels *)(void *)set;
    return GW_OK;
}

/* The sender to this rank's other side whose last place takes what c receives, or NULL. Of those of
 * one size the first of each way belong together, the second, and so on. */
static channel *lender_of(gw_mpi_channels *set, const channel *c) {
    channel *best = NULL;
    for (int i = 0; i < set->n; i++) {
        channel *s = &set->items[i];
        const gw_channel_end *e = s->end;
        if (!e->sends || s->paired || e->peer != c->end->peer || e->places < 2 || !e->box) continue;
        if (e->stride == c->end->stride && (!best || e->tag < best->end->tag)) best = s;
    }
    return best;
}

/* The receiver with the lowest tag that has not been looked at. */
static channel *next_receiver(gw_mpi_channels *set) {
    channel *best = NULL;
    for (int i = 0; i < set->n; i++) {
        const gw_channel_end *e = set->items[i].end;
        if (e->sends || e->places < 2 || e->bytes == 0 || set->items[i].paired) continue;
        if (!best || e->tag < best->end->tag) best = &set->items[i];
    }
    return best;
}

static void post_ahead(gw_mpi_transport *t, channel *c) {
    const gw_channel_end *e = c->end;
    for (int k = 0; k < c->pieces && !t->failed; k++) {
        int64_t at = (int64_t)k * GW_MPI_MAX_BYTES;
        gw_mpi_ok(t,
                  t->api->irecv(GW_MPI_MESSAGES, c->ahead + at, piece_of(e->bytes, at), e->peer,
                                c->tag, &c->requests[k]),
                  "a receive");
    }
    c->posted = !t->failed;
}

/* Receivers with a lender take one message ahead. `paired` of a receiver: it was looked at. */
static void pair_up(gw_mpi_transport *t, gw_mpi_channels *set) {
    for (channel *c; (c = next_receiver(set)) != NULL;) {
        channel *s = lender_of(set, c);
        c->paired = true;
        if (!s) continue;
        s->paired = true;
        s->places--;
        c->ahead = s->end->box + (int64_t)s->places * s->end->stride;
        post_ahead(t, c);
    }
}

void gw_mpi_channels_bind(gw_transport *base, gw_transport_channels *opaque, int32_t max_tag) {
    gw_mpi_transport *t = of(base);
    gw_mpi_channels *set = set_of(opaque);
    if (max_tag >= t->max_tag - t->next_tag) t->next_tag = 0; /* the first are long closed */
    for (int i = 0; i < set->n; i++) {
        channel *c = &set->items[i];
        const gw_channel_end *e = c->end;
        c->tag = t->next_tag + (int)(e->tag % ((int64_t)t->max_tag - t->next_tag + 1));
        int64_t pieces = (e->bytes + GW_MPI_MAX_BYTES - 1) / GW_MPI_MAX_BYTES;
        c->pieces = pieces ? (int)pieces : 1;
        int64_t requests = (int64_t)c->pieces * (e->sends ? e->places : 1);
        c->requests = gw_mem_zalloc((size_t)requests * sizeof *c->requests);
        c->places = e->places;
    }
    pair_up(t, set);
    if (max_tag < t->max_tag - t->next_tag) t->next_tag += max_tag + 1;
}

/* What MPI still sends from the boxes is given as long as any wait. */
static void settle(gw_mpi_transport *t, gw_mpi_channels *set) {
    for (int i = 0; i < set->n && !t->failed; i++) {
        channel *c = &set->items[i];
        gw_mpi_waiting w = {0};
        int64_t live = c->requests && c->end->sends ? (int64_t)c->pieces * c->end->places : 0;
        for (int64_t k = 0; k < live && !t->failed; k++) {
            bool done = false;
            while (gw_mpi_ok(t, t->api->test(&c->requests[k], &done, NULL), "a send") && !done)
                if (!gw_mpi_pause(t, &w, c->end->peer, c->end->bytes)) break;
        }
        gw_mpi_pause_end(t);
    }
}

void gw_mpi_channels_close(gw_transport *base, gw_transport_channels *opaque) {
    gw_mpi_transport *t = of(base);
    gw_mpi_channels *set = set_of(opaque), **at = &t->channels;
    settle(t, set);
    for (int i = 0; i < set->n && !t->failed; i++)
        for (int k = 0; k < set->items[i].pieces && set->items[i].posted; k++)
            gw_mpi_ok(t, t->api->cancel(&set->items[i].requests[k]), "withdrawing a receive");
    while (*at && *at != set) at = &(*at)->next;
    if (*at) *at = set->next;
    for (int i = 0; i < set->n; i++) gw_mem_free(set->items[i].requests);
    gw_mem_free(set);
}

// ------------------------------------------------------------------ what is asked

bool gw_mpi_channels_find(const gw_mpi_transport *t, uint64_t key, uint64_t seq,
                          gw_mpi_reached *reached) {
    for (const gw_mpi_channels *s = t->channels; s; s = s->next)
        for (int i = 0; i < s->n; i++) {
            const gw_channel_end *e = s->items[i].end;
            if (e->key != key) continue;
            *reached = e->count >= seq ? GW_MPI_THERE : GW_MPI_NOT_YET;
            return true;
        }
    return false;
}

void gw_mpi_channels_tell(gw_mpi_transport *t, const gw_mpi_note *n) {
    uint64_t round = ++t->tells;
    for (const gw_mpi_channels *s = t->channels; s; s = s->next)
        for (int i = 0; i < s->n && !t->failed; i++) {
            gw_mpi_peer *p = &t->peers[s->items[i].end->peer];
            if (p->told == round) continue;
            p->told = round;
            gw_mpi_control_send(t, s->items[i].end->peer, n);
        }
}

// ------------------------------------------------------------------ messages

static gw_status begin(gw_mpi_transport *t, const gw_coll_mark *m, uint64_t key, gw_diags *dg) {
    int64_t now = gw_clock_ns();
    if (t->failed) return gw_mpi_say_failed(t, dg);
    gw_flight_begin(&t->messages, m, key, now);
    t->latest = (gw_flight_mark){.seq = m->seq, .signature = m->signature, .group = key};
    memcpy(t->latest.text, m->text, sizeof m->text);
    t->in_message = true;
    t->begun++;
    if (now - t->serviced_ns > SERVE_NS) gw_mpi_control_serve(t);
    return t->failed ? gw_mpi_say_failed(t, dg) : GW_OK;
}

static gw_status end(gw_mpi_transport *t, int64_t waited_since, gw_diags *dg) {
    gw_mpi_pause_end(t);
    int64_t now = gw_clock_ns();
    if (waited_since) t->waited_ns += now - waited_since;
    t->alive_ns = now;
    t->in_message = false;
    if (t->failed) return gw_mpi_say_failed(t, dg);
    gw_flight_end(&t->messages, now);
    return GW_OK;
}

/* Are all pieces of the message in a place done? */
static bool place_done(gw_mpi_transport *t, channel *c, uint64_t place) {
    for (int k = 0; k < c->pieces; k++) {
        gw_mpi_request *r = &c->requests[place * (uint64_t)c->pieces + (uint64_t)k];
        bool done = false;
        if (!gw_mpi_ok(t, t->api->test(r, &done, NULL), "a send") || !done) return false;
    }
    return true;
}

/* Counts the places that have become free, in order. */
static void reap(gw_mpi_transport *t, channel *c) {
    while (c->freed < c->end->count && place_done(t, c, c->freed % (uint64_t)c->places)) c->freed++;
}

static void progress(gw_mpi_transport *t, channel *c) {
    if (c->requests && c->end->sends) reap(t, c);
    if (c->posted) (void)place_done(t, c, 0);
}

void gw_mpi_channels_progress(gw_mpi_transport *t) {
    int64_t now = gw_clock_ns();
    for (gw_mpi_channels *s = t->channels; s && !t->failed; s = s->next) {
        if (now - s->looked_ns < PROGRESS_NS) continue;
        s->looked_ns = now;
        for (int i = 0; i < s->n && !t->failed; i++) progress(t, &s->items[i]);
    }
}

/* Waits until no more than `under_way` messages have not been taken; when the wait began, or 0. */
static int64_t wait_for_places(gw_mpi_transport *t, channel *c, uint64_t under_way) {
    gw_mpi_waiting w = {0};
    reap(t, c);
    if (c->end->count - c->freed <= under_way) return 0;
    int64_t start = gw_clock_ns();
    while (!t->failed && c->end->count - c->freed > under_way) {
        if (!gw_mpi_pause(t, &w, c->end->peer, c->end->bytes)) break;
        reap(t, c);
    }
    return start;
}

gw_status gw_mpi_channel_send(gw_transport *base, gw_transport_channels *opaque, int i,
                              const void *src, const gw_coll_mark *m, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    channel *c = &set_of(opaque)->items[i];
    gw_channel_end *e = c->end;
    GW_TRY(begin(t, m, e->key, dg));
    int64_t waited = wait_for_places(t, c, (uint64_t)c->places - 1);
    uint64_t place = e->count % (uint64_t)c->places;
    char *to = e->bytes ? e->box + (int64_t)place * e->stride : NULL;
    if (e->bytes && !t->failed) memcpy(to, src, (size_t)e->bytes);
    for (int k = 0; k < c->pieces && !t->failed; k++) {
        int64_t at = (int64_t)k * GW_MPI_MAX_BYTES;
        gw_mpi_ok(t,
                  t->api->issend(GW_MPI_MESSAGES, to ? to + at : NULL, piece_of(e->bytes, at),
                                 e->peer, c->tag,
                                 &c->requests[place * (uint64_t)c->pieces + (uint64_t)k]),
                  "a send");
    }
    if (!t->failed) e->count++;
    return end(t, waited, dg);
}

gw_status gw_mpi_channel_recv(gw_transport *base, gw_transport_channels *opaque, int i, void *dst,
                              const gw_coll_mark *m, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    channel *c = &set_of(opaque)->items[i];
    gw_channel_end *e = c->end;
    GW_TRY(begin(t, m, e->key, dg));
    int64_t start = gw_clock_ns();
    for (int k = 0; k < c->pieces && !t->failed && !c->posted; k++) {
        int64_t at = (int64_t)k * GW_MPI_MAX_BYTES;
        gw_mpi_ok(t,
                  t->api->irecv(GW_MPI_MESSAGES, e->bytes ? (char *)dst + at : NULL,
                                piece_of(e->bytes, at), e->peer, c->tag, &c->requests[k]),
                  "a receive");
    }
    gw_mpi_waiting w = {0};
    for (int k = 0; k < c->pieces && !t->failed; k++) {
        bool done = false;
        while (gw_mpi_ok(t, t->api->test(&c->requests[k], &done, NULL), "a receive") && !done)
            if (!gw_mpi_pause(t, &w, e->peer, e->bytes)) break;
    }
    if (!t->failed) e->count++;
    if (c->posted && !t->failed) {
        memcpy(dst, c->ahead, (size_t)e->bytes);
        post_ahead(t, c);
    }
    return end(t, start, dg);
}

gw_status gw_mpi_channel_drain(gw_transport *base, gw_transport_channels *opaque, int i,
                               const gw_coll_mark *m, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    channel *c = &set_of(opaque)->items[i];
    reap(t, c);
    if (!t->failed && c->freed == c->end->count) return GW_OK;
    GW_TRY(begin(t, m, c->end->key, dg));
    return end(t, wait_for_places(t, c, 0), dg);
}

bool gw_mpi_channel_ready(gw_transport *base, gw_transport_channels *opaque, int i) {
    gw_mpi_transport *t = of(base);
    channel *c = &set_of(opaque)->items[i];
    bool found = false;
    int tag = c->tag;
    if (t->failed) return true; /* it would return at once */
    if (c->posted) return place_done(t, c, 0) || t->failed;
    return gw_mpi_ok(t, t->api->probe(GW_MPI_MESSAGES, c->end->peer, &found, &tag), "probing") &&
           found;
}

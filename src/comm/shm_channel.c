// SPDX-License-Identifier: Apache-2.0
// Channels over shared memory: a box that the sender fills and the receiver empties.
//
// The box is memory of the sender's arena that the receiver has mapped. Beside it a channel has two
// counters, each on a cache line of its own and written by one side: how much has been posted, and
// how many messages have been taken. They lie in a region of their own, which each set of channels
// shares, so that a box whose messages were all taken is ordinary memory again.
//
//   send      until posted - taken < places: sleep; copy a piece; count it as posted; ring
//   receive   until a piece is posted: sleep; copy it; after the last count the message as taken;
//             ring
//
// A large message is posted in pieces, so that a receiver who already waits copies behind the
// sender and has the last byte a piece later, not a message later. The counts are sequentially
// consistent stores, which order the bytes before them and make the doorbell work (shm_wait.c);
// reading them acquires. Messages carry no header: both sides were compared when the channel was
// opened, and their order is the order of the counters.
//
// Waiting, and what ends it, is that of collectives. A dead sender's messages can still be taken.
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/shm_impl.h"

#define PIECE_BYTES ((int64_t)512 << 10)

typedef struct counters {
    alignas(64) _Atomic uint64_t posted; /* pieces, by the sender */
    alignas(64) _Atomic uint64_t taken;  /* messages, by the receiver */
} counters;

typedef struct shm_channel {
    gw_channel_end *end;
    counters *c;
    char *box;
    uint64_t pieces; /* of a message */
} shm_channel;

typedef struct shm_channels {
    counters *own; /* of what this rank sends */
    int64_t own_bytes;
    int fd, handle, n;
    shm_channel items[];
} shm_channels;

static gw_shm *shm_of(gw_transport *t) { return (gw_shm *)(void *)t; }
static shm_channels *set_of(gw_transport_channels *s) { return (shm_channels *)(void *)s; }

/* ------------------------------------------------------------------------------ opening */

static gw_status reserve_counters(gw_shm *s, shm_channels *set, int sends, gw_diags *dg) {
    set->own_bytes = sends * (int64_t)sizeof(counters);
    if (sends == 0) return GW_OK;
    set->fd = memfd_create("gradwright-channels", MFD_CLOEXEC);
    void *p = MAP_FAILED;
    if (set->fd >= 0 && ftruncate(set->fd, set->own_bytes) == 0)
        p = mmap(NULL, (size_t)set->own_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, set->fd, 0);
    if (p == MAP_FAILED)
        return gw_shm_fail(s, dg, "shm-share", "rank %d cannot reserve counters of %d channels: %s",
                           s->rank, sends, strerror(errno));
    set->own = p;
    return GW_OK;
}

/* What the receiver needs to find the box and the counters. */
static void tell_places(gw_shm *s, shm_channels *set) {
    int sends = 0;
    for (int i = 0; i < set->n; i++) {
        gw_channel_end *e = set->items[i].end;
        if (!e->sends) continue;
        int64_t bytes = e->stride * e->places;
        int region = bytes > 0 ? gw_shm_region_of(s, e->box, bytes) : -1;
        GW_ASSERT(bytes <= 0 || region >= 0); /* boxes lie in shared regions */
        e->mine[0] = region;
        e->mine[1] = region < 0 ? 0 : e->box - s->regions[region].base;
        e->mine[2] = sends++;
    }
}

gw_status gw_shm_channels_open(gw_transport *t, gw_channel_end *ends, int n,
                               gw_transport_channels **out, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    shm_channels *set = gw_mem_zalloc(sizeof *set + (size_t)n * sizeof *set->items);
    int sends = 0;
    *set = (shm_channels){.fd = -1, .handle = -1, .n = n};
    for (int i = 0; i < n; i++) {
        int64_t pieces = (ends[i].bytes + PIECE_BYTES - 1) / PIECE_BYTES;
        set->items[i] = (shm_channel){.end = &ends[i], .pieces = pieces ? (uint64_t)pieces : 1};
        sends += ends[i].sends;
    }
    gw_status st = reserve_counters(s, set, sends, dg);
    if (st == GW_OK) st = gw_shm_share(t, set->own, set->own_bytes, set->fd, &set->handle, dg);
    *out = (gw_transport_channels *)(void *)set;
    if (st != GW_OK) {
        gw_shm_channels_close(t, *out);
        *out = NULL;
        return st;
    }
    tell_places(s, set);
    return GW_OK;
}

void gw_shm_channels_bind(gw_transport *t, gw_transport_channels *opaque, int32_t max_tag) {
    gw_shm *s = shm_of(t);
    shm_channels *set = set_of(opaque);
    (void)max_tag;
    for (int i = 0; i < set->n; i++) {
        shm_channel *c = &set->items[i];
        const gw_channel_end *e = c->end;
        const int64_t *where = e->sends ? e->mine : e->theirs;
        int owner = e->sends ? s->rank : e->peer;
        int64_t at = where[2] * (int64_t)sizeof(counters), bytes = e->stride * e->places;
        char *p = gw_shm_place(s, set->handle, owner, at, (int64_t)sizeof(counters));
        c->c = (counters *)(void *)p;
        if (bytes) c->box = gw_shm_place(s, (int)where[0], owner, where[1], bytes);
        GW_ASSERT(c->c && (bytes == 0 || c->box));
    }
}

void gw_shm_channels_close(gw_transport *t, gw_transport_channels *opaque) {
    shm_channels *set = set_of(opaque);
    gw_shm_unshare(t, set->handle);
    if (set->own) munmap(set->own, (size_t)set->own_bytes);
    if (set->fd >= 0) close(set->fd);
    gw_mem_free(set);
}

/* ------------------------------------------------------------------------------ messages */

static gw_status begin(gw_shm *s, const gw_coll_mark *m, uint64_t key, gw_diags *dg) {
    if (s->failed || atomic_load_explicit(&s->seg->stopped, memory_order_relaxed))
        return gw_shm_stopped(s, dg);
    int64_t now = gw_clock_ns();
    s->group = key;
    s->check = m->signature;
    s->seq = m->seq;
    s->message = true;
    memcpy(s->text, m->text, sizeof s->text);
    gw_flight_begin(&s->mine->messages, m, key, now);
    atomic_store_explicit(&s->mine->alive_ns, now, memory_order_relaxed);
    return GW_OK;
}

static void end(gw_shm *s) {
    int64_t now = gw_clock_ns();
    gw_flight_end(&s->mine->messages, now);
    gw_shm_end_call(s, now);
}

static uint64_t look(const _Atomic uint64_t *count) {
    return atomic_load_explicit(count, memory_order_acquire);
}

/* Waits until a counter of the peer's has reached `least`. */
static gw_status reach(gw_shm *s, const _Atomic uint64_t *count, uint64_t least, int peer,
                       gw_diags *dg) {
    if (look(count) >= least) return GW_OK;
    gw_shm_waiting w = {.g = NULL};
    gw_status st = GW_OK;
    while (st == GW_OK && look(count) < least) st = gw_shm_wait(s, &w, peer, dg);
    gw_shm_wait_end(s, &w);
    return st;
}

static char *place_of(const shm_channel *c) {
    return c->box + (int64_t)(c->end->count % (uint64_t)c->end->places) * c->end->stride;
}

static int64_t piece_of(const gw_channel_end *e, int64_t at) {
    return e->bytes - at < PIECE_BYTES ? e->bytes - at : PIECE_BYTES;
}

gw_status gw_shm_channel_send(gw_transport *t, gw_transport_channels *opaque, int i,
                              const void *src, const gw_coll_mark *m, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    shm_channel *c = &set_of(opaque)->items[i];
    gw_channel_end *e = c->end;
    uint64_t places = (uint64_t)e->places;
    GW_TRY(begin(s, m, e->key, dg));
    s->full = true;
    if (e->count >= places) GW_TRY(reach(s, &c->c->taken, e->count - places + 1, e->peer, dg));
    s->full = false;
    for (uint64_t k = 0; k < c->pieces; k++) {
        int64_t at = (int64_t)k * PIECE_BYTES, n = piece_of(e, at);
        if (n > 0) memcpy(place_of(c) + at, (const char *)src + at, (size_t)n);
        atomic_store(&c->c->posted, e->count * c->pieces + k + 1);
        gw_shm_ring(&s->w->ranks[e->peer]);
    }
    e->count++;
    end(s);
    return GW_OK;
}

gw_status gw_shm_channel_recv(gw_transport *t, gw_transport_channels *opaque, int i, void *dst,
                              const gw_coll_mark *m, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    shm_channel *c = &set_of(opaque)->items[i];
    gw_channel_end *e = c->end;
    GW_TRY(begin(s, m, e->key, dg));
    for (uint64_t k = 0; k < c->pieces; k++) {
        int64_t at = (int64_t)k * PIECE_BYTES, n = piece_of(e, at);
        GW_TRY(reach(s, &c->c->posted, e->count * c->pieces + k + 1, e->peer, dg));
        if (n > 0) memcpy((char *)dst + at, place_of(c) + at, (size_t)n);
    }
    atomic_store(&c->c->taken, ++e->count);
    gw_shm_ring(&s->w->ranks[e->peer]);
    end(s);
    return GW_OK;
}

gw_status gw_shm_channel_drain(gw_transport *t, gw_transport_channels *opaque, int i,
                               const gw_coll_mark *m, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    const shm_channel *c = &set_of(opaque)->items[i];
    if (look(&c->c->taken) >= c->end->count) return GW_OK;
    GW_TRY(begin(s, m, c->end->key, dg));
    GW_TRY(reach(s, &c->c->taken, c->end->count, c->end->peer, dg));
    end(s);
    return GW_OK;
}

bool gw_shm_channel_ready(gw_transport *t, gw_transport_channels *opaque, int i) {
    (void)t;
    const shm_channel *c = &set_of(opaque)->items[i];
    return look(&c->c->posted) >= (c->end->count + 1) * c->pieces;
}

// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport: messages, synchronisation, and the signs by which ranks see each
// other.
//
// Between two ranks lies, in each direction, a pair block (shm_impl.h).
//
// Messages. The sender posts a descriptor of where the bytes lie; the receiver copies them and
// counts them as taken. Bytes in a shared region are read where they lie, in one copy, and the
// sender waits until they are taken. Anything else, and anything short, is copied into the sender's
// slots first, in pieces, and the sender may go on at once: the slot is free again when its piece
// has been taken. One call makes progress in both directions until both are done, so a ring of
// calls that all send and receive never blocks, whatever the size.
//
// Synchronisation. Each rank counts the signals that it has given each other one, and those it has
// taken. In a group of up to 8 everyone signals everyone; larger groups signal at distances that
// double (dissemination: Hensgen, Finkel, Manber 1988), which takes log2 n rounds. A rank can be
// one sync ahead of another, never two, so what a signal says of its collective is kept for two.
//
// Every signal and every message carries a hash of the collective it belongs to (kind, sizes,
// group, number), and the receiver compares it with its own: ranks that call different things find
// out at first contact, before a byte of the wrong size is read. Waits end as shm_wait.c says.
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/shm_impl.h"

static gw_shm *shm_of(gw_transport *t) { return (gw_shm *)(void *)t; }

/* ------------------------------------------------------------------------------ messages */

/* One direction of an exchange. */
typedef struct side {
    bool active, done;
    int rank; /* of the world */
    gw_shm_pair *pair;
    char *bytes;
    uint64_t n, moved;
    bool any;      /* at least one descriptor has passed: a message may be empty */
    int region;    /* sender: handle, or GW_SHM_OUTBOX */
    uint64_t last; /* sender: count of the last descriptor posted */
} side;

static side open_side(gw_shm *s, const gw_group *g, int who, const void *bytes, int64_t n,
                      bool sends) {
    side d = {.active = who >= 0, .done = who < 0};
    if (who < 0) return d;
    d.rank = g->ranks[who];
    d.pair = sends ? gw_shm_pair_at(s, s->rank, d.rank) : gw_shm_pair_at(s, d.rank, s->rank);
    memcpy(&d.bytes, &bytes, sizeof bytes);
    d.n = (uint64_t)n;
    d.region = sends && n > GW_SHM_EAGER_BYTES ? gw_shm_region_of(s, bytes, n) : GW_SHM_OUTBOX;
    return d;
}

/* A slot whose last piece has been taken, or -1. */
static int free_slot(gw_shm *s) {
    int i = (int)(s->next_slot % GW_SHM_SLOTS);
    if (s->slots[i].to >= 0) {
        const gw_shm_pair *p = gw_shm_pair_at(s, s->rank, s->slots[i].to);
        if (atomic_load_explicit(&p->taken, memory_order_acquire) < s->slots[i].count) return -1;
    }
    s->next_slot++;
    return i;
}

static void post(gw_shm *s, side *d, const gw_shm_desc *desc) {
    uint64_t count = atomic_load_explicit(&d->pair->posted, memory_order_relaxed);
    d->pair->desc[count % GW_SHM_DESCS] = *desc;
    atomic_store(&d->pair->posted, count + 1);
    gw_shm_ring(&s->w->ranks[d->rank]);
    d->last = count + 1;
    d->moved += desc->bytes;
    d->any = true;
}

/* Posts the next piece, if there is room. */
static bool send_some(gw_shm *s, side *d) {
    uint64_t taken = atomic_load_explicit(&d->pair->taken, memory_order_acquire);
    if (d->any && d->moved == d->n) { /* all posted: in a region it must be taken as well */
        d->done = d->region < 0 || taken >= d->last;
        return d->done;
    }
    uint64_t posted = atomic_load_explicit(&d->pair->posted, memory_order_relaxed);
    if (posted - taken >= GW_SHM_DESCS) return false;
    gw_shm_desc desc = {.total = d->n, .check = s->check, .number = s->number, .region = d->region};
    if (d->region >= 0) {
        desc.bytes = d->n;
        desc.offset = (uint64_t)(d->bytes - s->regions[d->region].base);
        post(s, d, &desc);
        return true;
    }
    int slot = free_slot(s);
    if (slot < 0) return false;
    desc.bytes = d->n - d->moved < GW_SHM_SLOT_BYTES ? d->n - d->moved : GW_SHM_SLOT_BYTES;
    desc.offset = (uint64_t)(s->rank * GW_SHM_SLOTS + slot) * GW_SHM_SLOT_BYTES;
    if (desc.bytes) memcpy(s->w->slots + desc.offset, d->bytes + d->moved, desc.bytes);
    post(s, d, &desc);
    s->slots[slot].to = d->rank;
    s->slots[slot].count = d->last;
    d->done = d->moved == d->n;
    return true;
}

/* Takes the next piece, if there is one. */
static gw_status receive_some(gw_shm *s, side *d, bool *progress, gw_diags *dg) {
    uint64_t taken = atomic_load_explicit(&d->pair->taken, memory_order_relaxed);
    if (atomic_load_explicit(&d->pair->posted, memory_order_acquire) == taken) return GW_OK;
    gw_shm_desc desc = d->pair->desc[taken % GW_SHM_DESCS];
    GW_TRY(gw_shm_compare(s, d->rank, desc.check, desc.number, dg));
    if (desc.total != d->n || desc.bytes > d->n - d->moved)
        return gw_shm_fail(
            s, dg, "peer-mismatch", "rank %d sends %llu bytes where rank %d receives %llu, in %s",
            d->rank, (unsigned long long)desc.total, s->rank, (unsigned long long)d->n, s->text);
    const char *from = desc.region < 0 ? s->w->slots + desc.offset
                                       : s->regions[desc.region].peers[d->rank] + desc.offset;
    if (desc.bytes) memcpy(d->bytes + d->moved, from, desc.bytes);
    atomic_store(&d->pair->taken, taken + 1);
    gw_shm_ring(&s->w->ranks[d->rank]);
    d->moved += desc.bytes;
    d->done = d->moved == d->n;
    *progress = true;
    return GW_OK;
}

static gw_status run_sides(gw_shm *s, const gw_group *g, side *out, side *in, gw_diags *dg) {
    gw_shm_waiting w = {.g = g};
    gw_status st = GW_OK;
    while (st == GW_OK && !(out->done && in->done)) {
        bool progress = false;
        if (!out->done) progress = send_some(s, out);
        if (!in->done) st = receive_some(s, in, &progress, dg);
        if (st == GW_OK && !progress) st = gw_shm_wait(s, &w, in->done ? out->rank : in->rank, dg);
    }
    gw_shm_wait_end(s, &w);
    return st;
}

gw_status gw_shm_exchange(gw_transport *t, const gw_group *g, int to, const void *send,
                          int64_t nsend, int from, void *recv, int64_t nrecv, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    if (s->failed) return gw_shm_stopped(s, dg);
    if (to == g->me || from == g->me) {
        GW_ASSERT(to == from && nsend == nrecv);
        if (nsend && send != recv) memmove(recv, send, (size_t)nsend);
        return GW_OK;
    }
    side out = open_side(s, g, to, send, nsend, true);
    side in = open_side(s, g, from, recv, nrecv, false);
    return run_sides(s, g, &out, &in, dg);
}

/* ------------------------------------------------------------------------------ synchronisation */

static void signal_rank(gw_shm *s, int to) {
    gw_shm_pair *p = gw_shm_pair_at(s, s->rank, to);
    uint64_t count = atomic_load_explicit(&p->signals, memory_order_relaxed);
    p->check[count & 1] = s->check;
    p->number[count & 1] = s->number;
    atomic_store(&p->signals, count + 1);
    gw_shm_ring(&s->w->ranks[to]);
}

static bool has_signalled(const gw_shm *s, int from) {
    return atomic_load_explicit(&gw_shm_pair_at(s, from, s->rank)->signals, memory_order_acquire) >
           s->heard[from];
}

static gw_status hear(gw_shm *s, gw_shm_waiting *w, int from, gw_diags *dg) {
    while (!has_signalled(s, from)) GW_TRY(gw_shm_wait(s, w, from, dg));
    const gw_shm_pair *p = gw_shm_pair_at(s, from, s->rank);
    uint64_t i = s->heard[from] & 1;
    GW_TRY(gw_shm_compare(s, from, p->check[i], p->number[i], dg));
    s->heard[from]++;
    return GW_OK;
}

static gw_status sync_flat(gw_shm *s, gw_shm_waiting *w, gw_diags *dg) {
    const gw_group *g = w->g;
    for (int i = 1; i < g->size; i++) signal_rank(s, g->ranks[(g->me + i) % g->size]);
    for (int i = 1; i < g->size; i++) {
        int from = (g->me + g->size - i) % g->size;
        GW_TRY(hear(s, w, g->ranks[from], dg));
        w->heard |= 1u << from;
    }
    return GW_OK;
}

static gw_status sync_rounds(gw_shm *s, gw_shm_waiting *w, gw_diags *dg) {
    const gw_group *g = w->g;
    for (int d = 1; d < g->size; d *= 2) {
        signal_rank(s, g->ranks[(g->me + d) % g->size]);
        GW_TRY(hear(s, w, g->ranks[(g->me + g->size - d) % g->size], dg));
    }
    return GW_OK;
}

static gw_status shm_sync(gw_transport *t, const gw_group *g, gw_diags *dg) {
    gw_shm *s = shm_of(t);
    if (s->failed) return gw_shm_stopped(s, dg);
    gw_shm_waiting w = {.g = g, .sync = true};
    gw_status st = g->size <= GW_SHM_FLAT_SYNC ? sync_flat(s, &w, dg) : sync_rounds(s, &w, dg);
    gw_shm_wait_end(s, &w);
    return st;
}

/* ------------------------------------------------------------------------------ marks and life */

static gw_status shm_begin(gw_transport *t, const gw_group *g, const gw_coll_mark *m,
                           gw_diags *dg) {
    gw_shm *s = shm_of(t);
    if (s->failed || atomic_load_explicit(&s->seg->stopped, memory_order_relaxed))
        return gw_shm_stopped(s, dg);
    int64_t now = gw_clock_ns();
    s->group = gw_hash64(g->ranks, (size_t)g->size * sizeof *g->ranks, 0);
    uint64_t parts[3] = {m->signature, m->seq, s->group};
    s->check = gw_hash64(parts, sizeof parts, 0);
    s->seq = m->seq;
    memcpy(s->text, m->text, sizeof s->text);
    gw_coll_mark own = *m;
    own.signature = s->check;
    gw_flight_begin(&s->mine->flight, &own, s->group, now);
    s->number = gw_flight_count(&s->mine->flight);
    atomic_store_explicit(&s->mine->alive_ns, now, memory_order_relaxed);
    return GW_OK;
}

void gw_shm_end_call(gw_shm *s, int64_t now) {
    atomic_store_explicit(&s->mine->alive_ns, now, memory_order_relaxed);
    if (s->last_alive_ns) s->last_alive_ns = now;
    s->check = 0;
    s->text[0] = 0;
    s->message = s->full = false;
}

static void shm_end(gw_transport *t, const gw_group *g) {
    (void)g;
    gw_shm *s = shm_of(t);
    int64_t now = gw_clock_ns();
    gw_flight_end(&s->mine->flight, now);
    gw_shm_end_call(s, now);
}

static void shm_alive(gw_transport *t, uint64_t op) {
    gw_shm *s = shm_of(t);
    int64_t now = gw_clock_ns();
    int64_t gap = s->last_alive_ns ? now - s->last_alive_ns : 0;
    if (gap > s->longest_gap_ns) {
        s->longest_gap_ns = gap;
        atomic_store_explicit(&s->mine->longest_gap_ns, gap, memory_order_relaxed);
    }
    s->last_alive_ns = now;
    atomic_store_explicit(&s->mine->alive_ns, now, memory_order_relaxed);
    atomic_store_explicit(&s->mine->alive_op, op, memory_order_relaxed);
}

static void shm_busy(gw_transport *t, const char *what, double limit_s) {
    gw_shm *s = shm_of(t);
    int64_t now = gw_clock_ns();
    if (what) gw_words_store(s->mine->busy, GW_SHM_TEXT_WORDS, what);
    atomic_store(&s->mine->alive_ns, now);
    atomic_store(&s->mine->busy_until_ns, what ? now + (int64_t)(limit_s * 1e9) : 0);
    s->last_alive_ns = 0; /* the pause is no measure of ops */
}

static void shm_doing(gw_transport *t, const char *what) {
    gw_words_store(shm_of(t)->mine->doing, GW_SHM_DOING_WORDS, what);
}

static void shm_abort(gw_transport *t, const char *why) {
    gw_shm *s = shm_of(t);
    s->failed = true;
    gw_shm_give_up(s->w, s->rank, why && *why ? why : "it failed");
}

static int64_t shm_waited(const gw_transport *t) {
    return ((const gw_shm *)(const void *)t)->waited_ns;
}

static void shm_print_flight(const gw_transport *t, FILE *out) {
    const gw_shm *s = (const gw_shm *)(const void *)t;
    int64_t now = gw_clock_ns();
    for (int i = 0; i < s->ranks; i++) {
        char doing[96];
        gw_flight_print(&s->w->ranks[i].flight, &s->w->ranks[i].messages, i, now, out);
        if (gw_shm_world_doing(s->w, i, doing)[0]) fprintf(out, "  rank %d is in %s\n", i, doing);
    }
}

/* ------------------------------------------------------------------------------ joining */

static void shm_close(gw_transport *t) {
    gw_shm *s = shm_of(t);
    for (int i = 0; i < GW_SHM_REGIONS; i++)
        if (s->regions[i].used) gw_shm_unshare(t, i);
    int32_t running = GW_SHM_RUNNING;
    atomic_compare_exchange_strong(&s->mine->state, &running, GW_SHM_LEFT);
    for (int i = 0; i < s->ranks; i++) gw_shm_ring(&s->w->ranks[i]);
    if (!s->seg->threads) gw_shm_world_free(s->w);
    gw_mem_free(s->heard);
    gw_mem_free(s);
}

static const gw_transport_ops shm_ops = {
    .name = "shm",
    .exchange = gw_shm_exchange,
    .peer = gw_shm_peer,
    .sync = shm_sync,
    .begin = shm_begin,
    .end = shm_end,
    .share = gw_shm_share,
    .unshare = gw_shm_unshare,
    .busy = shm_busy,
    .alive = shm_alive,
    .doing = shm_doing,
    .abort = shm_abort,
    .channels_open = gw_shm_channels_open,
    .channels_bind = gw_shm_channels_bind,
    .channels_close = gw_shm_channels_close,
    .channel_send = gw_shm_channel_send,
    .channel_recv = gw_shm_channel_recv,
    .channel_drain = gw_shm_channel_drain,
    .channel_ready = gw_shm_channel_ready,
    .waited_ns = shm_waited,
    .print_flight = shm_print_flight,
    .close = shm_close,
};

gw_requests *gw_shm_take_requests(gw_transport *t) {
    if (t->ops != &shm_ops) return NULL;
    gw_shm *s = shm_of(t);
    s->w->requests_taken = true;
    return s->w->requests;
}

gw_transport *gw_shm_join(gw_shm_world *w, int rank) {
    gw_shm *s = gw_mem_zalloc(sizeof *s);
    s->t = (gw_transport){.ops = &shm_ops, .rank = rank, .size = w->seg->ranks, .one_sided = true};
    s->w = w;
    s->seg = w->seg;
    s->mine = &w->ranks[rank];
    s->rank = rank;
    s->ranks = w->seg->ranks;
    s->heard = gw_mem_zalloc((size_t)s->ranks * sizeof *s->heard);
    for (int i = 0; i < GW_SHM_SLOTS; i++) s->slots[i].to = -1;
    atomic_store(&s->mine->alive_ns, gw_clock_ns());
    return &s->t;
}

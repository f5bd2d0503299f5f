// SPDX-License-Identifier: Apache-2.0
// The MPI transport: exchanges between ranks on several hosts, every wait of which ends.
//
// An exchange is an MPI_Irecv and an MPI_Isend, in pieces below MPI's limit of 2^31 bytes, and a
// loop that tests both. MPI itself would wait for ever; this loop asks the rank it waits for
// whether it is there (control.c) and gives up when no sign of life has come within the timeout.
//
// Ranks that call different collectives must not take each other's bytes. The tag of a message is
// therefore a hash of the collective: group, number in the group, signature. Where the calls agree
// the tags do, at no cost; where they differ, no message fits, both ranks wait, and after a fifth
// of a second their questions find out how they differ. Between two ranks messages with one tag
// keep their order, so pieces and rounds need no numbers.
//
// A wait spins a little only where ranks have cores of their own; it then yields, then sleeps for
// ever longer, but shortly enough to keep a large transfer moving, since MPI moves bytes only in
// our calls.
//
// Messages of channels (channel.c) have a communicator of their own, and wait by the same means.
//
// After the first failure every call fails with the same words. `abort` tells the others; `close`
// after a failure leaves MPI open, because finalizing would wait for ranks that do not come. What
// ends the processes then is the launcher, or the exit hook that gw_mpi_join sets.
#include "comm/mpi/transport.h" /* gw_mpi_transport */

#include <sched.h>  /* sched_yield */
#include <stdio.h>  /* snprintf */
#include <string.h> /* memcpy */
#include <time.h>   /* nanosleep */

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/log.h"   /* gw_log_warn */

enum {
    SPIN_TESTS = 2000,
    SERVE_EVERY_NS = 100 * 1000 * 1000,
    FIRST_ASK_NS = 200 * 1000 * 1000,
    YIELD_NS = 200 * 1000,
    SPIN_NS = 20 * 1000 * 1000,
    STAGGER_NS = 400 * 1000 * 1000,
    LAST_ASK_NS = 200 * 1000 * 1000,
    SLOW_BYTES = 256 << 10, /* transfers from here on are not left alone for long */
};

static gw_mpi_transport *of(gw_transport *t) { return (gw_mpi_transport *)(void *)t; }
static const gw_mpi_transport *of_const(const gw_transport *t) {
    return (const gw_mpi_transport *)(const void *)t;
}

gw_status gw_mpi_say_failed(const gw_mpi_transport *t, gw_diags *dg) {
    gw_severity severity = t->silent ? GW_NOTE : GW_ERROR;
    if (t->silent && gw_log_get_level() < GW_LOG_DEBUG) return GW_ERR_PEER;
    gw_diag *d = gw_diag_add(dg, severity, GW_ERR_PEER, t->fail_id, (gw_where){0}, "%s", t->why);
    if (t->late) gw_diag_hint(dg, d, "if the rank only works for long, raise the timeout");
    return GW_ERR_PEER;
}

// ------------------------------------------------------------------ waiting

typedef struct transfer {
    gw_mpi_request request[2]; /* the receive, the send */
    int rank[2];               /* with whom; -1: absent */
    int want, got;             /* bytes to receive */
    int largest;
} transfer;

/* Both done? */
static bool test_both(gw_mpi_transport *t, transfer *x, bool *done) {
    bool received = true, sent = true;
    if (x->rank[0] >= 0) {
        if (!gw_mpi_ok(t, t->api->test(&x->request[0], &received, &x->got), "a receive"))
            return false;
        if (received) {
            if (x->got != x->want)
                gw_mpi_failed(t, "peer-mismatch", "rank %d sent %d bytes, %d were expected",
                              x->rank[0], x->got, x->want);
            x->rank[0] = -1;
        }
    }
    if (x->rank[1] >= 0) {
        if (!gw_mpi_ok(t, t->api->test(&x->request[1], &sent, NULL), "a send")) return false;
        if (sent) x->rank[1] = -1;
    }
    *done = received && sent;
    return !t->failed;
}

static int64_t ask_interval(const gw_mpi_transport *t) {
    int64_t ns = t->timeout_ns / 8;
    return ns < 20 * 1000 * 1000 ? 20 * 1000 * 1000 : ns > 1000000000 ? 1000000000 : ns;
}

/* How long the asked rank may be silent: the timeout, and longer where its ops, as far as it has
 * told, or this rank's own take long. */
static int64_t patience_ns(const gw_mpi_transport *t) {
    int64_t gap = t->peers[t->watch.asked].gap_ns;
    return t->timeout_ns + 4 * (gap > t->longest_gap_ns ? gap : t->longest_gap_ns);
}

const char *gw_mpi_doing_of(int rank, const char *doing, char buf[144]) {
    buf[0] = 0;
    if (doing[0]) snprintf(buf, 144, "; rank %d was last in %s", rank, doing);
    return buf;
}

/* Nobody gave a sign of life in time: says who. */
static void say_late(gw_mpi_transport *t) {
    const gw_mpi_watch *w = &t->watch;
    const char *text = t->latest.text[0] ? t->latest.text : "the start";
    double s = 1e-9 * (double)patience_ns(t);
    t->late = true;
    const gw_mpi_peer *p = &t->peers[w->asked];
    char via[64] = "", their_doing[144], my_doing[144];
    gw_mpi_doing_of(w->asked, p->doing, their_doing);
    gw_mpi_doing_of(t->base.rank, t->doing, my_doing);
    if (w->asked != w->peer) snprintf(via, sizeof via, " (rank %d waits for it)", w->peer);
    if (!w->answered)
        gw_mpi_failed(t, "peer-late",
                      "rank %d gives no sign of life for %.3g s%s: it is missing in '%s'%s%s",
                      w->asked, s, via, text, their_doing, my_doing);
    else if (w->answer.waits_for >= 0)
        gw_mpi_failed(t, "peer-late",
                      "rank %d stands still for %.3g s%s in '%s', waiting for rank %d, while this "
                      "rank waits in '%s'%s%s",
                      w->asked, s, via, p->what, w->answer.waits_for, text, their_doing, my_doing);
    else
        gw_mpi_failed(t, "peer-late",
                      "rank %d stands still for %.3g s%s after '%s': it is missing in '%s'%s%s",
                      w->asked, s, via, p->what, text, their_doing, my_doing);
}

static void watch_begin(gw_mpi_transport *t, int peer, int64_t now) {
    gw_mpi_watch *w = &t->watch;
    uint32_t ticket = w->ticket;
    *w = (gw_mpi_watch){.on = true, .peer = peer, .asked = peer, .ticket = ticket};
    int64_t first = ask_interval(t) < FIRST_ASK_NS ? ask_interval(t) : FIRST_ASK_NS;
    w->life_ns = now;
    w->ask_ns = now + first + t->base.rank % 16 * 5000000; /* of two that differ one asks first */
}

/* One look around, at a time `now` of a wait for `peer`. */
static void watch(gw_mpi_transport *t, int peer, int64_t now) {
    gw_mpi_watch *w = &t->watch;
    if (!w->on || w->peer != peer) watch_begin(t, peer, now);
    if (now - t->serviced_ns > 1000000) gw_mpi_control_serve(t);
    if (t->failed) return;
    if (w->verdict_ns && w->life_ns + patience_ns(t) > now) w->verdict_ns = 0;
    if (w->verdict_ns && now >= w->verdict_ns) {
        gw_mpi_control_serve(t); /* somebody may have spoken */
        if (!t->failed) say_late(t);
    }
    if (t->failed) return;
    if (now < w->ask_ns || w->verdict_ns) return;
    int64_t busy = t->peers[w->asked].busy_until_ns, end = w->life_ns + patience_ns(t);
    if (now > end && now > busy && !w->verdict_ns) {
        /* Everybody's patience ends at the same time: the first to speak silences the rest. Who
         * waits for the culprit itself knows most of it. */
        w->verdict_ns = now + LAST_ASK_NS + STAGGER_NS / t->base.size * t->base.rank +
                        (w->asked == w->peer ? 0 : STAGGER_NS);
        gw_mpi_control_ask(t); /* once more along the chain: who is silent now is the one */
    }
    if (w->verdict_ns) return;
    w->ask_ns = now + ask_interval(t);
    gw_mpi_control_ask(t);
}

static void rest(const gw_mpi_transport *t, int64_t elapsed, int64_t largest) {
    if (elapsed < (t->spin ? SPIN_NS : YIELD_NS)) {
        sched_yield();
        return;
    }
    int64_t most = largest >= SLOW_BYTES ? 50000 : 1000000, ns = elapsed / 16;
    nanosleep(&(struct timespec){.tv_nsec = ns < most ? ns : most}, NULL);
}

bool gw_mpi_pause(gw_mpi_transport *t, gw_mpi_waiting *w, int peer, int64_t bytes) {
    if (w->looks++ < (t->spin ? SPIN_TESTS : 4)) return true;
    int64_t now = gw_clock_ns();
    if (!w->start_ns) w->start_ns = now;
    watch(t, peer, now);
    if (!t->failed) rest(t, now - w->start_ns, bytes);
    return !t->failed;
}

void gw_mpi_pause_end(gw_mpi_transport *t) { t->watch.on = false; }

static void wait_both(gw_mpi_transport *t, transfer *x) {
    gw_mpi_waiting w = {0};
    bool done = false;
    while (test_both(t, x, &done) && !done)
        if (!gw_mpi_pause(t, &w, x->rank[0] >= 0 ? x->rank[0] : x->rank[1], x->largest)) break;
    gw_mpi_pause_end(t);
}

// ------------------------------------------------------------------ exchange, sync

static int piece(int64_t total, int64_t done) {
    int64_t left = total - done;
    return (int)(left < 0 ? 0 : left < GW_MPI_MAX_BYTES ? left : GW_MPI_MAX_BYTES);
}

/* One piece each way; a side with rank -1 is absent. */
static void exchange_piece(gw_mpi_transport *t, int to, const void *send, int nsend, int from,
                           void *recv, int nrecv) {
    transfer x = {.rank = {-1, -1}, .want = nrecv, .largest = nsend > nrecv ? nsend : nrecv};
    if (from >= 0) {
        if (!gw_mpi_ok(t, t->api->irecv(GW_MPI_DATA, recv, nrecv, from, t->tag, &x.request[0]),
                       "a receive"))
            return;
        x.rank[0] = from;
    }
    if (to >= 0) {
        if (!gw_mpi_ok(t, t->api->isend(GW_MPI_DATA, send, nsend, to, t->tag, &x.request[1]),
                       "a send"))
            return;
        x.rank[1] = to;
    }
    wait_both(t, &x);
}

static gw_status exchange(gw_transport *base, const gw_group *g, int to, const void *send,
                          int64_t nsend, int from, void *recv, int64_t nrecv, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    if (t->failed) return gw_mpi_say_failed(t, dg);
    int64_t start = gw_clock_ns(), most = to < 0 ? nrecv : from < 0 ? nsend : 0;
    if (to == g->me && from == g->me) {
        if (nsend) memmove(recv, send, (size_t)nsend);
        return GW_OK;
    }
    if (to >= 0 && from >= 0) most = nsend > nrecv ? nsend : nrecv;
    int64_t at = 0;
    do { /* both ranks of a pair count the pieces of their message alike */
        bool sends = to >= 0 && (at == 0 || at < nsend),
             receives = from >= 0 && (at == 0 || at < nrecv);
        exchange_piece(t, sends ? g->ranks[to] : -1, sends ? (const char *)send + at : NULL,
                       piece(nsend, at), receives ? g->ranks[from] : -1,
                       receives ? (char *)recv + at : NULL, piece(nrecv, at));
        at += GW_MPI_MAX_BYTES;
    } while (at < most && !t->failed);
    t->alive_ns = gw_clock_ns();
    t->waited_ns += t->alive_ns - start;
    return t->failed ? gw_mpi_say_failed(t, dg) : GW_OK;
}

/* The dissemination barrier: log2(n) rounds of empty messages (Hensgen, Finkel, Manber, 1988). */
static gw_status sync_group(gw_transport *base, const gw_group *g, gw_diags *dg) {
    for (int d = 1; d < g->size; d *= 2)
        GW_TRY(exchange(base, g, (g->me + d) % g->size, NULL, 0, (g->me - d + g->size) % g->size,
                        NULL, 0, dg));
    return of(base)->failed ? gw_mpi_say_failed(of(base), dg) : GW_OK;
}

// ------------------------------------------------------------------ marks

static gw_status begin(gw_transport *base, const gw_group *g, const gw_coll_mark *m, gw_diags *dg) {
    gw_mpi_transport *t = of(base);
    int64_t now = gw_clock_ns();
    uint64_t group = gw_hash64(g->ranks, (size_t)g->size * sizeof *g->ranks, 0);
    uint64_t key[3] = {group, m->seq, m->signature};
    gw_flight_begin(&t->flight, m, group, now);
    t->latest = (gw_flight_mark){.seq = m->seq, .signature = m->signature, .group = group};
    memcpy(t->latest.text, m->text, sizeof m->text);
    t->tag = 1 + (int)(gw_hash64(key, sizeof key, 1) % (uint64_t)t->max_tag);
    t->begun++;
    if (now - t->serviced_ns > SERVE_EVERY_NS) gw_mpi_control_serve(t);
    return t->failed ? gw_mpi_say_failed(t, dg) : GW_OK;
}

static void end(gw_transport *base, const gw_group *g) {
    (void)g;
    gw_mpi_transport *t = of(base);
    t->tag = 0;
    gw_flight_end(&t->flight, gw_clock_ns());
}

// ------------------------------------------------------------------ the rest of the table

static void *peer(gw_transport *t, const gw_group *g, int who, const void *mine) {
    (void)t, (void)g, (void)who, (void)mine;
    return NULL;
}

static gw_status share(gw_transport *t, void *at, int64_t bytes, int fd, int *handle,
                       gw_diags *dg) {
    (void)t, (void)at, (void)bytes, (void)fd, (void)dg;
    *handle = -1;
    return GW_OK;
}

static void unshare_region(gw_transport *t, int handle) { (void)t, (void)handle; }

static void busy(gw_transport *base, const char *what, double limit_s) {
    gw_mpi_transport *t = of(base);
    bool on = what && limit_s > 0, far = on && limit_s * 1e9 > (double)t->timeout_ns;
    t->busy_until_ns = on ? gw_clock_ns() + (int64_t)(1e9 * limit_s) : 0;
    snprintf(t->busy_with, sizeof t->busy_with, "%s", on ? what : "");
    t->begun++; /* to begin or to end something is a sign of life */
    if ((far || t->busy_sent) && !t->failed) {
        gw_mpi_note n = {.kind = GW_MPI_BUSY, .busy_s = on ? limit_s : 0};
        snprintf(n.text, sizeof n.text, "%s", t->busy_with);
        gw_mpi_control_send_all(t, &n, 1000000000);
    }
    t->busy_sent = far;
    t->alive_ns = 0; /* what follows is no op */
    gw_mpi_control_serve(t);
}

static void alive(gw_transport *base, uint64_t op) {
    gw_mpi_transport *t = of(base);
    (void)op; /* which one does not matter: that there was one is the sign of life */
    t->op++;
    int64_t now = gw_clock_ns(), gap = t->alive_ns ? now - t->alive_ns : 0;
    t->alive_ns = now;
    if (gap > t->longest_gap_ns) t->longest_gap_ns = gap;
    if (t->channels) gw_mpi_channels_progress(t);
    if (!t->doing_told) gw_mpi_control_tell(t);
    if (now - t->serviced_ns > SERVE_EVERY_NS) gw_mpi_control_serve(t);
}

static void doing(gw_transport *base, const char *what) {
    gw_mpi_transport *t = of(base);
    size_t n = strnlen(what, sizeof t->doing - 1);
    memcpy(t->doing, what, n);
    t->doing[n] = 0;
    t->doing_told = false;
    gw_mpi_control_tell(t);
}

static void abort_all(gw_transport *base, const char *why) {
    gw_mpi_transport *t = of(base);
    if (!why || !*why) t->silent = true; /* who has a reason needs time to say it */
    gw_mpi_failed(t, "peer-stopped", "%s", why && *why ? why : "it failed");
}

static int64_t waited_ns(const gw_transport *t) { return of_const(t)->waited_ns; }

static void print_flight(const gw_transport *base, FILE *out) {
    const gw_mpi_transport *t = of_const(base);
    gw_flight_print(&t->flight, &t->messages, t->base.rank, gw_clock_ns(), out);
    if (t->doing[0]) fprintf(out, "  rank %d is in %s\n", t->base.rank, t->doing);
    for (int r = 0; r < t->base.size; r++)
        if (t->peers[r].what[0] || t->peers[r].doing[0])
            fprintf(out, "rank %d, when it was last heard: %s%s%s\n", r, t->peers[r].what,
                    t->peers[r].what[0] && t->peers[r].doing[0] ? ", in " : "", t->peers[r].doing);
}

static void close_transport(gw_transport *base) {
    gw_mpi_transport *t = of(base);
    gw_diags dg;
    gw_diags_init(&dg);
    gw_group world = {.size = t->base.size, .me = t->base.rank, .ranks = t->all};
    /* A number that no group of the run counts to. */
    gw_coll_mark m = {.seq = UINT64_MAX, .signature = 1, .text = "the end of the run"};
    gw_status s = t->failed ? GW_ERR_PEER : begin(base, &world, &m, &dg);
    if (s == GW_OK) s = sync_group(base, &world, &dg);
    if (s == GW_OK) {
        gw_mpi_control_close(t);
        if (gw_mpi_ok(t, t->api->finalize(), "finalizing")) {
            gw_mem_free(t->all);
            gw_mem_free(t->peers);
            gw_mem_free(t);
        }
    } else if (*gw_diags_first_error(&dg)) {
        gw_log_warn("%s", gw_diags_first_error(&dg));
    }
    gw_diags_release(&dg);
}

static const gw_transport_ops ops = {
    .name = "mpi",
    .exchange = exchange,
    .peer = peer,
    .sync = sync_group,
    .begin = begin,
    .end = end,
    .share = share,
    .unshare = unshare_region,
    .busy = busy,
    .alive = alive,
    .doing = doing,
    .abort = abort_all,
    .channels_open = gw_mpi_channels_open,
    .channels_bind = gw_mpi_channels_bind,
    .channels_close = gw_mpi_channels_close,
    .channel_send = gw_mpi_channel_send,
    .channel_recv = gw_mpi_channel_recv,
    .channel_drain = gw_mpi_channel_drain,
    .channel_ready = gw_mpi_channel_ready,
    .waited_ns = waited_ns,
    .print_flight = print_flight,
    .close = close_transport,
};

bool gw_mpi_transport_silent(const gw_transport *t) { return of_const(t)->silent; }

gw_transport *gw_mpi_transport_new(const gw_mpi_api *api, const gw_mpi_world *w, double timeout_s,
                                   bool spin) {
    gw_mpi_transport *t = gw_mem_zalloc(sizeof *t);
    t->base = (gw_transport){.ops = &ops, .rank = w->rank, .size = w->size, .one_sided = false};
    t->api = api;
    t->timeout_ns = (int64_t)(1e9 * timeout_s);
    t->spin = spin;
    t->max_tag = w->max_tag;
    t->all = gw_mem_alloc((size_t)w->size * sizeof *t->all);
    t->peers = gw_mem_zalloc((size_t)w->size * sizeof *t->peers);
    for (int i = 0; i < w->size; i++) t->all[i] = i;
    gw_mpi_control_open(t);
    return &t->base;
}

// SPDX-License-Identifier: Apache-2.0
// Rows to where they are needed, in numbers that the data decides.
//
// The collectives of a program have sizes that its types tell. Rows of experts do not: how many go
// from rank i to rank j is known when the tokens have been routed. So counts travel first
// (gw_comm_exchange_counts), after which every rank holds the whole matrix of them, knows what will
// come from whom, and no message has to say its length. The matrix is part of the mark that
// transports compare, so a rank that computed another one is named instead of waited for.
//
// Pairwise: in step s rank r sends to r+s and receives from r-s, whole contiguous runs from where
// they lie to where they shall be.
//
// Two levels (groups over H hosts with P ranks each): for host distance k = 0 .. H-1, ranks of a
// host first exchange among themselves the rows for host h+k, each collecting those for the rank
// that stands there as it stands here; then one message crosses. Between hosts every rank has one
// partner a step instead of P, with messages P times as large; each row moves once more inside the
// host. (DeepSpeed-MoE, Rajbhandari et al. 2022, section 5.3; Tutel, Hwang et al. 2023.)
//
// Copies are made in the order of group ranks, so results depend on no arrival.
#include "comm/exchange.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */
#include "comm/comm_impl.h"

/* One run of an exchange. */
typedef struct job {
    gw_comm *c;
    const gw_group *g;
    const gw_exchange *x;
    const gw_exchange_part *p;
    int64_t *sent;
    char *out, *in; /* two levels: what is passed on, what has crossed */
    gw_diags *dg;
} job;

static int64_t rows_of(const gw_exchange *x, int64_t from, int64_t to) {
    return x->rows[from * x->size + to];
}

static gw_status swap(const job *j, int64_t to, const void *send, int64_t nsend, int64_t from,
                      void *recv, int64_t nrecv) {
    if (nsend == 0) to = -1;
    if (nrecv == 0) from = -1;
    if (to < 0 && from < 0) return GW_OK;
    *j->sent += nsend;
    return j->c->t->ops->exchange(j->c->t, j->g, (int)to, send, nsend, (int)from, recv, nrecv,
                                  j->dg);
}

static void keep_own(const job *j) {
    const gw_exchange *x = j->x;
    int64_t me = j->g->me, n = j->p->row_bytes;
    if (rows_of(x, me, me) == 0) return;
    memcpy(j->p->recv + x->recv_at[me] * n, j->p->send + x->send_at[me] * n,
           (size_t)(rows_of(x, me, me) * n));
}

static gw_status pairwise(const job *j) {
    const gw_exchange *x = j->x;
    int64_t me = j->g->me, size = x->size, n = j->p->row_bytes;
    keep_own(j);
    for (int64_t s = 1; s < size; s++) {
        int64_t to = (me + s) % size, from = (me - s + size) % size;
        GW_TRY(swap(j, to, j->p->send + x->send_at[to] * n, rows_of(x, me, to) * n, from,
                    j->p->recv + x->recv_at[from] * n, rows_of(x, from, me) * n));
    }
    return GW_OK;
}

/* ---- two levels ---- */

/* Ranks of host h are [h * per, (h + 1) * per); this one is `at` of `host`. */
typedef struct hosts {
    int64_t per, count, host, at;
} hosts;

static hosts hosts_of(const gw_exchange *x, int64_t per_host, int64_t rank) {
    return (hosts){per_host, x->size / per_host, rank / per_host, rank % per_host};
}

/* Collects in j->out, in the order of the own host's ranks, what they send to `target`; in turn
 * hands each its rows for the ranks of target's host. */
static gw_status collect(const job *j, const hosts *h, int64_t target) {
    const gw_exchange *x = j->x;
    int64_t n = j->p->row_bytes, first = h->host * h->per, me = j->g->me;
    int64_t there = target - h->at, own = 0;
    for (int64_t i = first; i < me; i++) own += rows_of(x, i, target);
    if (rows_of(x, me, target) > 0)
        memcpy(j->out + own * n, j->p->send + x->send_at[target] * n,
               (size_t)(rows_of(x, me, target) * n));
    for (int64_t s = 1; s < h->per; s++) {
        int64_t to = (h->at + s) % h->per, from = (h->at - s + h->per) % h->per, place = 0;
        for (int64_t i = first; i < first + from; i++) place += rows_of(x, i, target);
        GW_TRY(swap(j, first + to, j->p->send + x->send_at[there + to] * n,
                    rows_of(x, me, there + to) * n, first + from, j->out + place * n,
                    rows_of(x, first + from, target) * n));
    }
    return GW_OK;
}

/* Rows from host `from` stand in `in`, in the order of its ranks: to their places. */
static void spread(const job *j, const hosts *h, int64_t from, const char *in) {
    const gw_exchange *x = j->x;
    int64_t n = j->p->row_bytes;
    for (int64_t i = from * h->per; i < (from + 1) * h->per; i++) {
        int64_t bytes = rows_of(x, i, j->g->me) * n;
        if (bytes) memcpy(j->p->recv + x->recv_at[i] * n, in, (size_t)bytes);
        in += bytes;
    }
}

static int64_t between(const gw_exchange *x, const hosts *h, int64_t host, int64_t to) {
    int64_t rows = 0;
    for (int64_t i = host * h->per; i < (host + 1) * h->per; i++) rows += rows_of(x, i, to);
    return rows;
}

static gw_status two_levels(const job *j, int64_t per_host) {
    const gw_exchange *x = j->x;
    hosts h = hosts_of(x, per_host, j->g->me);
    for (int64_t k = 0; k < h.count; k++) {
        int64_t to = (h.host + k) % h.count, from = (h.host - k + h.count) % h.count;
        int64_t target = to * h.per + h.at, source = from * h.per + h.at, n = j->p->row_bytes;
        GW_TRY(collect(j, &h, target));
        if (k > 0)
            GW_TRY(swap(j, target, j->out, between(x, &h, h.host, target) * n, source, j->in,
                        between(x, &h, from, j->g->me) * n));
        spread(j, &h, from, k > 0 ? j->in : j->out);
    }
    return GW_OK;
}

static bool in_two_levels(int64_t size, int64_t per_host) {
    return per_host > 1 && per_host < size && size % per_host == 0;
}

int64_t gw_exchange_scratch_bytes(int64_t size, int64_t per_host, int64_t rows, int64_t row_bytes) {
    return in_two_levels(size, per_host) ? 2 * ((rows * row_bytes + 63) / 64 * 64) : 0;
}

gw_coll_traffic gw_exchange_traffic(const gw_exchange *x, int64_t per_host, int64_t rank) {
    gw_coll_traffic t = {0, 0};
    int64_t bytes = 0;
    for (int i = 0; i < x->nparts; i++) bytes += x->parts[i].row_bytes;
    for (int64_t j = 0; j < x->size; j++) t.payload += j == rank ? 0 : rows_of(x, rank, j) * bytes;
    t.moved = t.payload;
    if (!in_two_levels(x->size, per_host)) return t;
    hosts h = hosts_of(x, per_host, rank);
    t.moved = 0;
    for (int64_t j = 0; j < x->size; j++) { /* to the rank of the own host that stands as j does */
        t.moved += j % per_host == h.at ? 0 : rows_of(x, rank, j) * bytes;
        if (j % per_host == h.at && j / per_host != h.host)
            t.moved += between(x, &h, h.host, j) * bytes;
    }
    return t;
}

/* ---- marks ---- */

static gw_status begin(gw_comm *c, gw_comm_group *g, const char *what, int64_t amount,
                       uint64_t signature, const char *scope, gw_diags *dg) {
    gw_coll_mark m = {.seq = ++g->seq, .signature = signature};
    snprintf(m.text, sizeof m.text, "%s %lld of %.48s over %d ranks", what, (long long)amount,
             scope && scope[0] ? scope : "?", g->g.size);
    return c->t->ops->begin(c->t, &g->g, &m, dg);
}

static uint64_t signature_of(const gw_exchange *x) {
    uint64_t h = gw_hash64(x->rows, (size_t)(x->size * x->size) * sizeof *x->rows, x->axes);
    for (int i = 0; i < x->nparts; i++)
        h = gw_hash64(&x->parts[i].row_bytes, sizeof x->parts[i].row_bytes, h);
    return h;
}

typedef struct clock_at {
    int64_t start, waited;
} clock_at;

static clock_at clock_now(const gw_comm *c) {
    return (clock_at){gw_clock_ns(), c->t->ops->waited_ns(c->t)};
}

static void count(gw_comm *c, clock_at at, int64_t payload, int64_t moved) {
    gw_comm_counts *to[] = {&c->counts[GW_COLL_ALL_TO_ALL], &c->exchanged};
    int64_t ns = gw_clock_ns() - at.start, wait_ns = c->t->ops->waited_ns(c->t) - at.waited;
    for (size_t i = 0; i < GW_COUNT(to); i++) {
        to[i]->calls++;
        to[i]->payload += payload;
        to[i]->moved += moved;
        to[i]->ns += ns;
        to[i]->wait_ns += wait_ns;
    }
}

gw_comm_counts gw_comm_exchanged(const gw_comm *c) { return c->exchanged; }

gw_status gw_comm_exchange(gw_comm *c, const gw_exchange *x, void *scratch, gw_diags *dg) {
    gw_comm_group *g = gw_comm_group_of(c, x->axes, x->size);
    GW_ASSERT(g->g.size == x->size);
    int64_t sent = 0, total = 0, per_host = g->per_host;
    clock_at at = clock_now(c);
    for (int64_t i = 0; i < x->size * x->size; i++) total += x->rows[i];
    if (x->size > 1) GW_TRY(begin(c, g, "exchange of rows", total, signature_of(x), x->scope, dg));
    bool two = in_two_levels(x->size, per_host);
    for (int i = 0; i < x->nparts; i++) {
        job j = {.c = c, .g = &g->g, .x = x, .p = &x->parts[i], .sent = &sent, .dg = dg};
        int64_t most = 0, me = g->g.me; /* of what passes through here at once */
        if (two) {
            hosts h = hosts_of(x, per_host, me);
            for (int64_t k = 0; k < x->size; k += per_host) {
                most = GW_MAX(most, between(x, &h, h.host, k + h.at));
                most = GW_MAX(most, between(x, &h, k / per_host, me));
            }
            j.out = scratch;
            j.in = j.out + (most * j.p->row_bytes + 63) / 64 * 64;
        }
        GW_TRY(two ? two_levels(&j, per_host) : pairwise(&j));
    }
    if (x->size > 1) c->t->ops->end(c->t, &g->g);
    count(c, at, gw_exchange_traffic(x, per_host, g->g.me).payload, sent);
    return GW_OK;
}

gw_status gw_comm_exchange_counts(gw_comm *c, uint32_t axes, int64_t size, const int64_t *mine,
                                  int64_t n, int64_t *all, const char *scope, gw_diags *dg) {
    gw_comm_group *g = gw_comm_group_of(c, axes, size);
    GW_ASSERT(g->g.size == size);
    clock_at at = clock_now(c);
    int64_t bytes = n * (int64_t)sizeof *mine, me = g->g.me;
    memcpy(all + me * n, mine, (size_t)bytes);
    if (size == 1) return GW_OK;
    GW_TRY(begin(c, g, "exchange of counts", n, gw_hash64(&n, sizeof n, axes), scope, dg));
    for (int64_t s = 1; s < size; s++) {
        int64_t to = (me + s) % size, from = (me - s + size) % size;
        GW_TRY(c->t->ops->exchange(c->t, &g->g, (int)to, mine, bytes, (int)from, all + from * n,
                                   bytes, dg));
    }
    c->t->ops->end(c->t, &g->g);
    count(c, at, (size - 1) * bytes, (size - 1) * bytes);
    return GW_OK;
}

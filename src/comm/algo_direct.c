// SPDX-License-Identifier: Apache-2.0
// direct: collectives of ranks that see each other's memory.
//
// Where the arenas of the ranks are mapped into one another, data need not be sent: each rank works
// on its own range of the elements in everybody's memory, in one pass.
//
//   all-reduce      read the range from all n, sum in rank order, write it to all n
//   reduce-scatter  read the own share from all n, sum in rank order, write it here
//   all-gather      read the own share here, write it to all n
//   broadcast       all but the root read the root's
//   all-to-all      read the own cut of every other
//
// Two synchronisations frame the pass: `ready` (all inputs are final, all outputs may be
// overwritten) and `done`. There is no phase between reducing and gathering, since nobody but the
// owner of a range touches it, in any rank's memory; so an all-reduce in place is safe too. Per
// rank it reads and writes N bytes from and to memory, as much as one copy of N, which is the least
// there can be (the shared-address designs of Jain et al., "Framework for Scalable Intra-Node
// Collective Operations using Shared Memory", SC 2018, section IV, need an intermediate copy or a
// third synchronisation). The sum is taken in rank order whoever owns an element, so all-reduce and
// reduce-scatter of any bucketing give the same bits.
//
// Cost: 2 syncs + (bytes read + bytes written) at the rate of copies, sums hidden behind them.
// Moved (what others read of this rank plus what it writes into theirs), S the own share and N all:
// reduce-scatter N - S, all-gather (n-1) S, all-reduce (N - R) + (n-1) R for its range R (whole
// sequence in n, cut at multiples of 64 elements so that ranks do not share cache lines), broadcast
// (n-1) N for the root, all-to-all N - S.
//
// The same places must be meant: a buffer lies at one offset in the shared regions of all ranks.
// Buffers in no shared region travel by exchange, in the same order of sums, with the same bytes
// counted (algo_direct_exchange.c).
#include "comm/algo.h"
#include "comm/algo_direct.h"

/* The data of one rank from which on results do not stay in caches: stores go past them. */
#define STREAM_BYTES ((int64_t)2 << 20)

gw_seq_range gw_direct_range(const gw_coll *c, int64_t i) {
    if (c->kind == GW_COLL_REDUCE_SCATTER || c->kind == GW_COLL_ALL_GATHER)
        return (gw_seq_range){{c, c->size, i, i + 1}, 0, gw_share_elems(c, c->size, i)};
    int64_t total = gw_coll_elems(c), n = c->size;
    int64_t lo = (total / n * i + total % n * i / n) & ~(int64_t)63;
    int64_t hi = (total / n * (i + 1) + total % n * (i + 1) / n) & ~(int64_t)63;
    if (i == n - 1) hi = total;
    return (gw_seq_range){{c, 1, 0, 1}, lo, hi - lo};
}

static char *peer(const gw_algorithm_call *k, int who, const void *mine) {
    if (who == k->group.me) return (char *)(uintptr_t)mine;
    return k->t->ops->peer(k->t, &k->group, who, mine);
}

/* Do all buffers that others must reach lie in shared regions? The same answer on every rank. */
static bool reachable(const gw_algorithm_call *k) {
    const gw_coll *c = k->coll;
    if (!k->t->one_sided) return false;
    int other = (k->group.me + 1) % k->group.size;
    for (int p = 0; p < c->nparts; p++) {
        if (c->parts[p].elems == 0) continue;
        bool src = c->kind == GW_COLL_ALL_GATHER || peer(k, other, c->parts[p].src);
        bool dst = (c->kind != GW_COLL_ALL_GATHER && c->kind != GW_COLL_ALL_REDUCE) ||
                   peer(k, other, c->parts[p].dst);
        if (!src || !dst) return false;
    }
    return true;
}

/* ---- one contiguous piece ---- */

static void reduce_piece(const gw_algorithm_call *k, const gw_piece *p, bool stream) {
    const gw_coll *c = k->coll;
    const gw_coll_part *part = &c->parts[p->part];
    char *src[GW_DIRECT_RANKS], *dst[GW_DIRECT_RANKS];
    int n = k->group.size;
    for (int i = 0; i < n; i++) src[i] = peer(k, i, part->src);
    if (c->kind == GW_COLL_REDUCE_SCATTER) {
        char *own = part->dst;
        gw_sum_many(&own, 1, p->within, src, n, p->first, c->dtype, p->count, c->max, stream);
        return;
    }
    /* Own memory first, then the neighbours', so that ranks do not all write to one. */
    for (int i = 0; i < n; i++) dst[i] = peer(k, (k->group.me + i) % n, part->dst);
    gw_sum_many(dst, n, p->first, src, n, p->first, c->dtype, p->count, c->max, stream);
}

static void gather_piece(const gw_algorithm_call *k, const gw_piece *p, bool stream) {
    const gw_coll *c = k->coll;
    char *dst[GW_DIRECT_RANKS];
    int n = k->group.size;
    int64_t size = gw_dtype_size(c->dtype);
    for (int i = 0; i < n; i++) dst[i] = peer(k, (k->group.me + i) % n, c->parts[p->part].dst);
    gw_sum_fan(dst, n, p->first * size, gw_piece_src(c, p), p->count * size, stream);
}

static void broadcast_piece(const gw_algorithm_call *k, const gw_piece *p, bool stream) {
    const gw_coll *c = k->coll;
    int64_t size = gw_dtype_size(c->dtype);
    const char *root = peer(k, 0, c->parts[p->part].src);
    gw_sum_copy(gw_piece_dst(c, p), root + p->first * size, p->count * size, stream);
}

/* Of an all-to-all the pieces are those of the own share, wanted from every rank. */
static void exchange_piece(const gw_algorithm_call *k, const gw_piece *p, bool stream) {
    const gw_coll *c = k->coll;
    const gw_coll_part *part = &c->parts[p->part];
    int n = k->group.size;
    int64_t size = gw_dtype_size(c->dtype);
    int64_t length = gw_cut_flat(part->elems, n, k->group.me).length;
    for (int i = 0; i < n; i++) {
        int from = (k->group.me + i) % n;
        char *dst = (char *)part->dst + (from * length + p->within) * size;
        gw_sum_copy(dst, peer(k, from, part->src) + p->first * size, p->count * size, stream);
    }
}

/* ---- a range, by threads ---- */

static gw_seq_range work_of(const gw_algorithm_call *k) {
    const gw_coll *c = k->coll;
    int me = k->group.me;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALL_GATHER: return gw_direct_range(c, me);
    case GW_COLL_BROADCAST: return (gw_seq_range){{c, 1, 0, 1}, 0, gw_coll_elems(c)};
    case GW_COLL_ALL_TO_ALL:
        return (gw_seq_range){{c, c->size, me, me + 1}, 0, gw_share_elems(c, c->size, me)};
    case GW_COLL_SHIFT:
    case GW_COLL_KIND_COUNT: break;
    }
    return (gw_seq_range){{c, 1, 0, 1}, 0, 0};
}

static void run_span(const gw_algorithm_call *k, const gw_seq_range *r, int64_t from,
                     int64_t count) {
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, &r->s, from, count); gw_walk_next(&w, &p);) {
        /* In place a line has just been read when it is written: it costs nothing more to keep. */
        bool in_place = gw_piece_src(k->coll, &p) == gw_piece_dst(k->coll, &p);
        bool stream =
            gw_coll_bytes(k->coll) >= STREAM_BYTES && (!gw_coll_adds(k->coll) || !in_place);
        switch (k->coll->kind) {
        case GW_COLL_ALL_REDUCE:
        case GW_COLL_REDUCE_SCATTER: reduce_piece(k, &p, stream); break;
        case GW_COLL_ALL_GATHER: gather_piece(k, &p, stream); break;
        case GW_COLL_BROADCAST: broadcast_piece(k, &p, stream); break;
        case GW_COLL_ALL_TO_ALL: exchange_piece(k, &p, stream); break;
        case GW_COLL_SHIFT:
        case GW_COLL_KIND_COUNT: break;
        }
    }
}

static void run_range(const gw_algorithm_call *k, const gw_seq_range *r) {
    int64_t threads = GW_MAX(k->threads, 1), each = (r->count / threads + 63) & ~(int64_t)63;
    if (threads == 1 || r->count < threads * 4096) {
        run_span(k, r, r->from, r->count);
        return;
    }
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)threads) schedule(static, 1)
#endif
    for (int64_t i = 0; i < threads; i++) {
        int64_t lo = GW_MIN(i * each, r->count);
        int64_t hi = i == threads - 1 ? r->count : GW_MIN(lo + each, r->count);
        run_span(k, r, r->from + lo, hi - lo);
    }
}

/* ---- the descriptor ---- */

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t size = gw_dtype_size(c->dtype), n = c->size, total = gw_coll_elems(c);
    if (n == 1) return 0;
    int64_t own = gw_direct_range(c, rank).count;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE: return (total - own + (n - 1) * own) * size;
    case GW_COLL_REDUCE_SCATTER: return (total - own) * size;
    case GW_COLL_ALL_GATHER: return (n - 1) * own * size;
    case GW_COLL_BROADCAST: return rank == 0 ? (n - 1) * total * size : 0;
    case GW_COLL_ALL_TO_ALL: return (total - gw_share_elems(c, n, rank)) * size;
    case GW_COLL_SHIFT:
    case GW_COLL_KIND_COUNT: break;
    }
    return 0;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    if (!reachable(k)) return gw_direct_exchange(k, sent, dg);
    gw_seq_range r = work_of(k);
    GW_TRY(k->t->ops->sync(k->t, &k->group, dg));
    run_range(k, &r);
    GW_TRY(k->t->ops->sync(k->t, &k->group, dg));
    *sent += moved(c, k->group.me); /* every byte of it is read or written in the pass */
    return GW_OK;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    if (!gw_algo_can(c, false, why)) return false;
    if (!gw_wire_lossless(c))
        *why = "it reads the data where it lies: nothing to make smaller";
    else if (!m->shared && c->size > 1)
        *why = "the ranks do not see each other's memory";
    else if (c->size > GW_DIRECT_RANKS)
        *why = "more ranks than it has room for";
    return !*why;
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)c, (void)m;
    return 0;
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double n = (double)c->size, bytes = (double)gw_coll_bytes(c);
    double reads = bytes, writes = bytes;
    if (c->kind == GW_COLL_REDUCE_SCATTER) writes = bytes / n;
    if (c->kind == GW_COLL_ALL_GATHER) reads = bytes / n;
    double rate = m->copy_bytes_per_s * (double)GW_MAX(m->threads, 1);
    return (c->size > 1 ? 2.0 * m->latency_s : 0.0) + (reads + writes) / 2.0 / rate;
}

const gw_algorithm gw_algo_direct = {
    .name = "direct",
    .doc = "each rank reads and writes its range in every rank's memory, in one pass",
    .kinds = GW_KIND(ALL_REDUCE) | GW_KIND(REDUCE_SCATTER) | GW_KIND(ALL_GATHER) |
             GW_KIND(BROADCAST) | GW_KIND(ALL_TO_ALL),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

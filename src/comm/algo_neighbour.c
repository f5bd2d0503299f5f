// SPDX-License-Identifier: Apache-2.0
// neighbour: a shift, each rank's data to the next rank of the ring.
//
// Ring attention moves its keys and values one rank further between two blocks of work (Liu,
// Zaharia and Abbeel, "Ring Attention with Blockwise Transformers for Near-Infinite Context",
// 2023). There is nothing to choose about the route: every byte of a rank goes to one other rank,
// once.
//
// Where the ranks see each other's memory, each reads its left neighbour's buffer where it lies,
// between two synchronisations: `ready` (all inputs are final) and `done` (all have been read).
// Elsewhere it sends to the right and receives from the left at the same time, tensor by tensor,
// without a copy in between. Either way the same bytes are counted.
//
// Cost: 2 syncs and a copy, or one message a tensor. Moved: N v.
#include "comm/algo.h"

/* Of a rank's data; from here on it does not stay in caches, and stores go past them. */
#define STREAM_BYTES ((int64_t)2 << 20)
/* A thread's share of a copy, at least. */
#define TASK_BYTES ((int64_t)64 << 10)

static int left_of(const gw_algorithm_call *k) {
    return (k->group.me + k->group.size - 1) % k->group.size;
}

static const char *theirs(const gw_algorithm_call *k, int p) {
    return k->t->ops->peer(k->t, &k->group, left_of(k), k->coll->parts[p].src);
}

/* Do all inputs lie in shared regions? The same answer on every rank. */
static bool reachable(const gw_algorithm_call *k) {
    if (!k->t->one_sided) return false;
    for (int p = 0; p < k->coll->nparts; p++)
        if (k->coll->parts[p].elems > 0 && !theirs(k, p)) return false;
    return true;
}

static void copy_part(const gw_algorithm_call *k, int p) {
    const gw_coll_part *part = &k->coll->parts[p];
    int64_t bytes = part->elems * gw_dtype_size(k->coll->dtype);
    bool stream = gw_coll_bytes(k->coll) >= STREAM_BYTES;
    int64_t threads = GW_MAX(k->threads, 1);
    if (bytes == 0) return;
    const char *src = theirs(k, p);
    char *dst = part->dst;
    int64_t each = GW_MAX(gw_align64(bytes / threads + 1), TASK_BYTES);
#if defined(_OPENMP)
#pragma omp parallel for num_threads((int)threads) schedule(static, 1) if (bytes > each)
#endif
    for (int64_t at = 0; at < bytes; at += each)
        gw_sum_copy(dst + at, src + at, GW_MIN(each, bytes - at), stream);
}

static gw_status by_messages(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    int right = (k->group.me + 1) % k->group.size;
    for (int p = 0; p < k->coll->nparts; p++) {
        const gw_coll_part *part = &k->coll->parts[p];
        int64_t bytes = part->elems * gw_dtype_size(k->coll->dtype);
        GW_TRY(gw_swap(k, right, part->src, bytes, left_of(k), part->dst, bytes, sent, dg));
    }
    return GW_OK;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    if (k->coll->size == 1) {
        gw_coll_alone(k->coll);
        return GW_OK;
    }
    if (!reachable(k)) return by_messages(k, sent, dg);
    GW_TRY(k->t->ops->sync(k->t, &k->group, dg));
    for (int p = 0; p < k->coll->nparts; p++) copy_part(k, p);
    GW_TRY(k->t->ops->sync(k->t, &k->group, dg));
    *sent += gw_coll_bytes(k->coll);
    return GW_OK;
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    (void)rank;
    return c->size > 1 ? gw_coll_bytes(c) : 0;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    return gw_algo_can(c, false, why);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)c, (void)m;
    return 0;
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double bytes = (double)gw_coll_bytes(c);
    if (c->size == 1) return 0.0;
    if (!m->shared) return gw_algo_seconds(m, (double)c->nparts, bytes, 0.0);
    return 2.0 * m->latency_s + bytes / (m->copy_bytes_per_s * (double)GW_MAX(m->threads, 1));
}

const gw_algorithm gw_algo_neighbour = {
    .name = "neighbour",
    .doc = "each rank's data to the next rank of the ring, once (Liu 2023)",
    .kinds = GW_KIND(SHIFT),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
// central: group rank 0 is a server for all others, the baseline that decentralised algorithms are
// measured against.
//
// As a parameter server does (Li et al., "Scaling distributed machine learning with the parameter
// server", OSDI 2014), one place receives everybody's data, sums it in rank order and sends the
// result out. Its link carries (n-1) N bytes each way, so time grows with the number of ranks where
// a ring's does not; with few ranks and small data its two steps are hard to beat.
//
// Cost: 2 (n-1) messages a chunk at the server, 2 (n-1) N beta, (n-1) N gamma.
// Moved, N elements of v bytes (values travel as the data's dtype, or bf16 when the wire says so;
// sums are formed in float32 at the server): all-reduce N v, server (n-1) N v; reduce-scatter N v,
// server (N - S_0) v; all-gather S_rank v, server (n-1) N v; broadcast 0, server (n-1) N v.
#include "comm/algo.h"

typedef struct central {
    const gw_algorithm_call *k;
    gw_dtype wire, sum;
    int64_t size; /* bytes of a value on the wire */
    char *acc, *out, *in;
    int64_t *sent;
    gw_diags *dg;
} central;

static int64_t buffer_bytes(void) { return GW_CHUNK_ELEMS * 8; }

static gw_status send_to(const central *x, int to, const void *bytes, int64_t elems) {
    return gw_swap(x->k, to, bytes, elems * x->size, -1, NULL, 0, x->sent, x->dg);
}

static gw_status receive(const central *x, int from, void *bytes, int64_t elems) {
    return gw_swap(x->k, -1, NULL, 0, from, bytes, elems * x->size, x->sent, x->dg);
}

/* Elements of a sequence, chunk by chunk, to the server and summed there; x->acc holds the sum. */
static gw_status collect(const central *x, const gw_seq *s, int64_t from, int64_t count) {
    const gw_coll *c = x->k->coll;
    if (x->k->group.me > 0) {
        gw_seq_load(s, from, count, x->out, x->wire);
        return send_to(x, 0, x->out, count);
    }
    gw_seq_load(s, from, count, x->acc, x->sum);
    for (int i = 1; i < x->k->group.size; i++) {
        GW_TRY(receive(x, i, x->in, count));
        gw_sum_add(x->acc, x->in, x->wire, count, c->max);
    }
    return GW_OK;
}

/* x->out at the server goes to all, and to dst everywhere. */
static gw_status spread(const central *x, const gw_seq *s, int64_t from, int64_t count) {
    if (x->k->group.me > 0)
        GW_TRY(receive(x, 0, x->out, count));
    else
        for (int i = 1; i < x->k->group.size; i++) GW_TRY(send_to(x, i, x->out, count));
    gw_seq_store(s, from, count, x->out, x->wire);
    return GW_OK;
}

static gw_status all_reduce(const central *x) {
    gw_seq whole = {x->k->coll, 1, 0, 1};
    int64_t total = gw_seq_elems(&whole);
    for (int64_t i = 0; i < gw_chunks(total); i++) {
        int64_t from = i * GW_CHUNK_ELEMS, count = gw_chunk_elems(total, i);
        GW_TRY(collect(x, &whole, from, count));
        if (x->k->group.me == 0) gw_sum_convert(x->out, x->wire, x->acc, x->sum, count);
        GW_TRY(spread(x, &whole, from, count));
    }
    return GW_OK;
}

static gw_status broadcast(const central *x) {
    gw_seq whole = {x->k->coll, 1, 0, 1};
    int64_t total = gw_seq_elems(&whole);
    for (int64_t i = 0; i < gw_chunks(total); i++) {
        int64_t from = i * GW_CHUNK_ELEMS, count = gw_chunk_elems(total, i);
        if (x->k->group.me == 0) gw_seq_load(&whole, from, count, x->out, x->wire);
        GW_TRY(spread(x, &whole, from, count));
    }
    return GW_OK;
}

/* Each share is summed at the server and sent to its owner. */
static gw_status reduce_scatter(const central *x) {
    const gw_coll *c = x->k->coll;
    int me = x->k->group.me;
    for (int j = 0; j < x->k->group.size; j++) {
        gw_seq share = {c, c->size, j, j + 1};
        int64_t total = gw_seq_elems(&share);
        for (int64_t i = 0; i < gw_chunks(total); i++) {
            int64_t from = i * GW_CHUNK_ELEMS, count = gw_chunk_elems(total, i);
            GW_TRY(collect(x, &share, from, count));
            if (me == 0 && j == 0) gw_seq_store(&share, from, count, x->acc, x->sum);
            if (j == 0) continue;
            gw_sum_convert(x->out, x->wire, x->acc, x->sum, me == 0 ? count : 0);
            if (me == 0) GW_TRY(send_to(x, j, x->out, count));
            if (me != j) continue;
            GW_TRY(receive(x, 0, x->in, count));
            gw_seq_store(&share, from, count, x->in, x->wire);
        }
    }
    return GW_OK;
}

static gw_status all_gather(const central *x) {
    const gw_coll *c = x->k->coll;
    int me = x->k->group.me;
    for (int j = 0; j < x->k->group.size; j++) {
        gw_seq share = {c, c->size, j, j + 1};
        int64_t total = gw_seq_elems(&share);
        for (int64_t i = 0; i < gw_chunks(total); i++) {
            int64_t from = i * GW_CHUNK_ELEMS, count = gw_chunk_elems(total, i);
            if (me == j) gw_seq_load(&share, from, count, x->out, x->wire);
            if (me == j && j > 0) GW_TRY(send_to(x, 0, x->out, count));
            if (me == 0 && j > 0) GW_TRY(receive(x, j, x->out, count));
            GW_TRY(spread(x, &share, from, count));
        }
    }
    return GW_OK;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    int64_t bytes = buffer_bytes();
    gw_dtype wire = gw_value_dtype(c);
    central x = {k,
                 wire,
                 gw_sum_dtype(c->dtype),
                 gw_dtype_size(wire),
                 k->scratch,
                 k->scratch + bytes,
                 k->scratch + 2 * bytes,
                 sent,
                 dg};
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE: return all_reduce(&x);
    case GW_COLL_REDUCE_SCATTER: return reduce_scatter(&x);
    case GW_COLL_ALL_GATHER: return all_gather(&x);
    case GW_COLL_BROADCAST: return broadcast(&x);
    case GW_COLL_ALL_TO_ALL:
    case GW_COLL_SHIFT:
    case GW_COLL_KIND_COUNT: break;
    }
    return GW_OK;
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t n = c->size, total = gw_coll_elems(c), v = gw_dtype_size(gw_value_dtype(c));
    if (n == 1) return 0;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE: return (rank == 0 ? n - 1 : 1) * total * v;
    case GW_COLL_REDUCE_SCATTER: return (rank == 0 ? total - gw_share_elems(c, n, 0) : total) * v;
    case GW_COLL_ALL_GATHER: return (rank == 0 ? (n - 1) * total : gw_share_elems(c, n, rank)) * v;
    case GW_COLL_BROADCAST: return rank == 0 ? (n - 1) * total * v : 0;
    case GW_COLL_ALL_TO_ALL:
    case GW_COLL_SHIFT:
    case GW_COLL_KIND_COUNT: break;
    }
    return 0;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    return gw_algo_can(c, false, why);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return c->size == 1 ? 0 : 3 * buffer_bytes();
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double others = (double)(c->size - 1), bytes = (double)gw_coll_bytes(c);
    double chunks = (double)gw_chunks(gw_coll_elems(c));
    double ways = c->kind == GW_COLL_BROADCAST ? 1.0 : 2.0;
    double added = gw_coll_adds(c) ? others * bytes : 0.0;
    return gw_algo_seconds(m, ways * others * chunks, ways * others * bytes, added);
}

const gw_algorithm gw_algo_central = {
    .name = "central",
    .doc = "rank 0 receives, sums and sends everything: a parameter server (Li 2014), the baseline",
    .kinds =
        GW_KIND(ALL_REDUCE) | GW_KIND(REDUCE_SCATTER) | GW_KIND(ALL_GATHER) | GW_KIND(BROADCAST),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
// ring: every rank sends to its right neighbour only.
//
// Share i of the data sets out from rank i+1 and comes home to rank i after n-1 hops, each adding
// its own (reduce-scatter); finished shares go round once more (all-gather); an all-reduce is both.
// Each link carries (n-1)/n of the data per round, which is the bandwidth optimum (Patarasuk and
// Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). A broadcast
// is a chain, pipelined in chunks. Shares travel in chunks of GW_CHUNK_ELEMS, so scratch stays
// small and a chunk that has just been received is added from cache.
//
// Order of sums of share i: x[i+1] + x[i+2] + ... + x[i]. Partial sums travel as float32 (float64
// for float64 data), or rounded to bf16 at each hop when the wire is BF16; finished values in the
// data's dtype, or bf16.
//
// Cost: all-reduce 2(n-1) messages a chunk, 2 (n-1)/n N beta, (n-1)/n N gamma; half of it for the
// two others; broadcast (n-2 + chunks) messages, N beta.
// Moved, with S_i the elements of share i and N of all, w bytes of a partial sum and v of a value:
// reduce-scatter (N - S_rank) w, all-gather (N - S_rank+1) v, all-reduce the sum of both, broadcast
// N v for all but the last rank.
#include "comm/algo.h"

/* Three buffers of a chunk: what is added to, what is sent, what arrives. */
typedef struct ring {
    const gw_algorithm_call *k;
    char *a, *out, *in;
    int n, me;
    int64_t *sent;
    gw_diags *dg;
} ring;

static int64_t buffer_bytes(const gw_coll *c) {
    int64_t elems = c->kind == GW_COLL_BROADCAST ? gw_coll_elems(c) : gw_share_elems(c, c->size, 0);
    int64_t width =
        gw_coll_adds(c) ? gw_dtype_size(gw_sum_dtype(c->dtype)) : gw_dtype_size(c->dtype);
    return gw_align64(GW_MIN(elems, GW_CHUNK_ELEMS) * width);
}

static gw_seq share(const ring *r, int i) { return (gw_seq){r->k->coll, r->n, i, i + 1}; }

static int64_t share_chunk(const ring *r, int i, int64_t chunk) {
    return gw_chunk_elems(gw_share_elems(r->k->coll, r->n, i), chunk);
}

static int around(const ring *r, int i) { return ((i % r->n) + r->n) % r->n; }

static gw_status hop(const ring *r, const void *out, int64_t nout, void *in, int64_t nin) {
    return gw_swap(r->k, around(r, r->me + 1), out, nout, around(r, r->me - 1), in, nin, r->sent,
                   r->dg);
}

static void flip(char **a, char **b) {
    char *t = *a;
    *a = *b;
    *b = t;
}

/* Leaves the sum of the own share's chunk in r->a. */
static gw_status reduce_chunk(ring *r, int64_t chunk) {
    const gw_coll *c = r->k->coll;
    gw_dtype sum = gw_sum_dtype(c->dtype), wire = gw_partial_dtype(c);
    int64_t size = gw_dtype_size(wire), from = chunk * GW_CHUNK_ELEMS;
    gw_seq first = share(r, around(r, r->me - 1));
    gw_seq_load(&first, from, share_chunk(r, (int)first.lo, chunk), r->a, sum);
    for (int s = 0; s < r->n - 1; s++) {
        int64_t nout = share_chunk(r, around(r, r->me - 1 - s), chunk);
        gw_seq next = share(r, around(r, r->me - 2 - s));
        int64_t nin = share_chunk(r, (int)next.lo, chunk);
        const char *out = r->a;
        if (wire != sum) {
            gw_sum_convert(r->out, wire, r->a, sum, nout);
            out = r->out;
        }
        GW_TRY(hop(r, out, nout * size, r->in, nin * size));
        if (wire != sum)
            gw_sum_convert(r->a, sum, r->in, wire, nin);
        else
            flip(&r->a, &r->in);
        gw_seq_add(&next, from, nin, r->a);
    }
    return GW_OK;
}

/* Sends the own share's chunk, finished and on the wire in r->out, round the ring. */
static gw_status gather_chunk(ring *r, int64_t chunk) {
    gw_dtype wire = gw_value_dtype(r->k->coll);
    int64_t size = gw_dtype_size(wire), from = chunk * GW_CHUNK_ELEMS;
    gw_seq own = share(r, r->me);
    gw_seq_store(&own, from, share_chunk(r, r->me, chunk), r->out, wire);
    for (int s = 0; s < r->n - 1; s++) {
        gw_seq next = share(r, around(r, r->me - 1 - s));
        int64_t nout = share_chunk(r, around(r, r->me - s), chunk);
        int64_t nin = share_chunk(r, (int)next.lo, chunk);
        GW_TRY(hop(r, r->out, nout * size, r->in, nin * size));
        gw_seq_store(&next, from, nin, r->in, wire);
        flip(&r->out, &r->in);
    }
    return GW_OK;
}

static gw_status one_chunk(ring *r, int64_t chunk) {
    const gw_coll *c = r->k->coll;
    gw_seq own = share(r, r->me);
    int64_t from = chunk * GW_CHUNK_ELEMS, count = share_chunk(r, r->me, chunk);
    gw_dtype sum = gw_sum_dtype(c->dtype);
    if (gw_coll_adds(c)) GW_TRY(reduce_chunk(r, chunk));
    if (c->kind == GW_COLL_REDUCE_SCATTER) {
        gw_seq_store(&own, from, count, r->a, sum);
        return GW_OK;
    }
    if (gw_coll_adds(c))
        gw_sum_convert(r->out, gw_value_dtype(c), r->a, sum, count);
    else
        gw_seq_load(&own, from, count, r->out, gw_value_dtype(c));
    return gather_chunk(r, chunk);
}

/* A chain from rank 0: receives chunk i while it passes on chunk i-1. */
static gw_status broadcast(ring *r) {
    const gw_coll *c = r->k->coll;
    gw_seq whole = {c, 1, 0, 1};
    int64_t total = gw_seq_elems(&whole), size = gw_dtype_size(c->dtype), chunks = gw_chunks(total);
    int to = r->me < r->n - 1 ? r->me + 1 : -1, from = r->me > 0 ? r->me - 1 : -1;
    for (int64_t i = 0; i <= chunks; i++) {
        int64_t nin = gw_chunk_elems(total, i), nout = i > 0 ? gw_chunk_elems(total, i - 1) : 0;
        if (from < 0) gw_seq_load(&whole, i * GW_CHUNK_ELEMS, nin, r->in, c->dtype);
        GW_TRY(gw_swap(r->k, to, r->out, nout * size, from, r->in, nin * size, r->sent, r->dg));
        gw_seq_store(&whole, i * GW_CHUNK_ELEMS, nin, r->in, c->dtype);
        flip(&r->out, &r->in);
    }
    return GW_OK;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    int64_t bytes = buffer_bytes(c);
    ring r = {
        k,    k->scratch, k->scratch + bytes, k->scratch + 2 * bytes, k->group.size, k->group.me,
        sent, dg};
    if (c->kind == GW_COLL_BROADCAST) return broadcast(&r);
    int64_t chunks =
        gw_chunks(gw_share_elems(c, c->size, 0)); /* no share is longer than the first */
    for (int64_t i = 0; i < chunks; i++) GW_TRY(one_chunk(&r, i));
    return GW_OK;
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t n = c->size, total = gw_coll_elems(c), sum = 0;
    int64_t w = gw_dtype_size(gw_partial_dtype(c)), v = gw_dtype_size(gw_value_dtype(c));
    if (n == 1) return 0;
    if (c->kind == GW_COLL_BROADCAST) return rank < n - 1 ? total * v : 0;
    if (gw_coll_adds(c)) sum += (total - gw_share_elems(c, n, rank)) * w;
    if (c->kind != GW_COLL_REDUCE_SCATTER)
        sum += (total - gw_share_elems(c, n, (rank + 1) % n)) * v;
    return sum;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    return gw_algo_can(c, false, why);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return c->size == 1 ? 0 : 3 * buffer_bytes(c);
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double n = (double)c->size, bytes = (double)moved(c, 0);
    if (c->kind == GW_COLL_BROADCAST)
        return gw_algo_seconds(m, n - 2.0 + (double)gw_chunks(gw_coll_elems(c)), bytes, 0.0);
    double chunks = (double)gw_chunks(gw_share_elems(c, c->size, 0));
    double rounds = c->kind == GW_COLL_ALL_REDUCE ? 2.0 : 1.0;
    double added = gw_coll_adds(c) ? (double)gw_coll_bytes(c) * (n - 1.0) / n : 0.0;
    return gw_algo_seconds(m, rounds * (n - 1.0) * chunks, bytes, added);
}

const gw_algorithm gw_algo_ring = {
    .name = "ring",
    .doc = "shares go round the ranks, n-1 hops to be summed and n-1 to be spread (Patarasuk 2009)",
    .kinds =
        GW_KIND(ALL_REDUCE) | GW_KIND(REDUCE_SCATTER) | GW_KIND(ALL_GATHER) | GW_KIND(BROADCAST),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

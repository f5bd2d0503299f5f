// SPDX-License-Identifier: Apache-2.0
// quantised: gathers of weights and reduce-scatters of gradients in 16, 8 or 4 bits.
//
// After ZeRO++ (Wang et al., "ZeRO++: Extremely efficient collective communication for giant model
// training", 2023). A ring would quantise a partial sum at each of n-1 hops and pile the errors up;
// so values are quantised once, travel to where they are needed in one hop, and are summed in
// float32:
//
//   all-gather (qwZ)       each encodes its share and sends it to all; everyone, the owner
//                          included, keeps what decoding gives, so that all ranks hold the same
//                          bits
//   reduce-scatter (qgZ)   each encodes what every other shall have: an all-to-all; the owner
//                          decodes and adds. Where coll->per_host cuts the group, in two levels:
//                          first on the host, summed in float32 and encoded again, then between
//                          hosts, which divides the bytes between hosts by per_host (section 3.3)
//   all-reduce             a reduce-scatter and an all-gather
//
// Tensors go one after another, so that a block never holds values of two: a norm's gains near 1
// would take all precision from gradients near 0.001 beside them.
//
// Formats, and the bound of one hop, are in comm/wire.h. An element of a sum over n ranks has gone
// through n-1 single hops (one level; the own term is exact), or L-1 and H-1 (two), plus one for a
// gather. Order of sums of rank r: r, r-1, r-2, ...; in two levels so on the host, then by hosts
// likewise.
//
// Cost: n-1 messages a chunk each way, bytes * beta, encoding and decoding at the rate of sums.
// Moved, w(S) the wire bytes of a share (scales included): all-gather (n-1) w(S_own);
// reduce-scatter the sum of w(S_j) over j != own. Two levels move as much, but of it only
// w(S_(g,l)) for the H-1 other hosts g leaves the host of rank (h, l); one level sends L times
// that.
#include "comm/algo.h"
#include "comm/wire.h" /* gw_wire_encode */

#define MAX_HOSTS 1024

typedef struct quant {
    const gw_algorithm_call *k;
    int64_t chunk; /* elements of a share handled at once; whole blocks */
    float *sums;   /* [hosts, chunk] */
    float *values; /* [chunk] */
    char *out, *in;
    int64_t *sent;
    gw_diags *dg;
} quant;

static bool two_levels(const gw_coll *c) {
    return c->per_host > 0 && c->per_host < c->size && c->size % c->per_host == 0 &&
           c->size / c->per_host <= MAX_HOSTS && gw_coll_adds(c);
}

static int64_t hosts(const gw_coll *c) { return two_levels(c) ? c->size / c->per_host : 1; }

/* Whole blocks, so that a share has the same bytes in chunks as in one. */
static int64_t chunk_of(const gw_coll *c) {
    int64_t most = GW_MAX(GW_CHUNK_ELEMS / hosts(c) / GW_WIRE_BLOCK, 1);
    int64_t need = (gw_share_elems(c, c->size, 0) + GW_WIRE_BLOCK - 1) / GW_WIRE_BLOCK;
    return GW_MAX(GW_MIN(most, need), 1) * GW_WIRE_BLOCK;
}

static int64_t wire_bytes(const gw_coll *c, int64_t n) { return gw_wire_bytes(c->wire, GW_F32, n); }

static int64_t count_at(const quant *x, int64_t share, int64_t at) {
    int64_t left = gw_share_elems(x->k->coll, x->k->coll->size, share) - at;
    return left < 0 ? 0 : GW_MIN(left, x->chunk);
}

static gw_seq share_of(const quant *x, int64_t i) {
    return (gw_seq){x->k->coll, x->k->coll->size, i, i + 1};
}

/* Encodes this rank's values of a share; returns the bytes. */
static int64_t encode_share(const quant *x, int64_t share, int64_t at, char *out) {
    gw_seq s = share_of(x, share);
    int64_t count = count_at(x, share, at);
    gw_seq_load(&s, at, count, x->values, GW_F32);
    gw_wire_encode(x->k->coll->wire, out, x->values, count);
    return wire_bytes(x->k->coll, count);
}

/* sums += what `in` encodes; returns its bytes. */
static int64_t add_encoded(const quant *x, float *sums, const char *in, int64_t count) {
    gw_wire_decode(x->k->coll->wire, x->values, in, count);
    gw_sum_add(sums, x->values, GW_F32, count, false);
    return wire_bytes(x->k->coll, count);
}

/* ---- reduce ---- */

static gw_status reduce_flat(const quant *x, int64_t at) {
    int n = x->k->group.size, me = x->k->group.me;
    gw_seq own = share_of(x, me);
    int64_t count = count_at(x, me, at), bytes = wire_bytes(x->k->coll, count);
    gw_seq_load(&own, at, count, x->sums, GW_F32);
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        int64_t nout = encode_share(x, to, at, x->out);
        GW_TRY(gw_swap(x->k, to, x->out, nout, from, x->in, bytes, x->sent, x->dg));
        add_encoded(x, x->sums, x->in, count);
    }
    return GW_OK;
}

/* On the host: row g of sums becomes the host's sum of the share of this place on host g. */
static gw_status reduce_local(const quant *x, gw_group local, int64_t at) {
    const gw_coll *c = x->k->coll;
    int n = local.size, me = local.me;
    int64_t hs = hosts(c), nin = 0;
    gw_algorithm_call sub = {x->k->t, local, c, NULL, x->k->threads};
    for (int64_t g = 0; g < hs; g++) {
        gw_seq s = share_of(x, g * n + me);
        int64_t count = count_at(x, g * n + me, at);
        gw_seq_load(&s, at, count, x->sums + g * x->chunk, GW_F32);
        nin += wire_bytes(c, count);
    }
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        int64_t nout = 0, read = 0;
        for (int64_t g = 0; g < hs; g++) nout += encode_share(x, g * n + to, at, x->out + nout);
        GW_TRY(gw_swap(&sub, to, x->out, nout, from, x->in, nin, x->sent, x->dg));
        for (int64_t g = 0; g < hs; g++)
            read +=
                add_encoded(x, x->sums + g * x->chunk, x->in + read, count_at(x, g * n + me, at));
    }
    return GW_OK;
}

/* Between hosts: the row of this host becomes the sum of all. */
static gw_status reduce_remote(const quant *x, gw_group remote, int64_t at) {
    const gw_coll *c = x->k->coll;
    int n = remote.size, me = remote.me;
    int64_t count = count_at(x, x->k->group.me, at), per = c->per_host;
    gw_algorithm_call sub = {x->k->t, remote, c, NULL, x->k->threads};
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        int64_t theirs = count_at(x, to * per + x->k->group.me % per, at);
        gw_wire_encode(c->wire, x->out, x->sums + to * x->chunk, theirs);
        GW_TRY(gw_swap(&sub, to, x->out, wire_bytes(c, theirs), from, x->in, wire_bytes(c, count),
                       x->sent, x->dg));
        add_encoded(x, x->sums + me * x->chunk, x->in, count);
    }
    return GW_OK;
}

/* The sum of the own share's chunk. */
static gw_status reduce(const quant *x, int64_t at, const float **sum) {
    const gw_coll *c = x->k->coll;
    *sum = x->sums;
    if (!two_levels(c)) return reduce_flat(x, at);
    int per = (int)c->per_host, h = x->k->group.me / per, l = x->k->group.me % per;
    int across[MAX_HOSTS];
    for (int g = 0; g < (int)hosts(c); g++) across[g] = x->k->group.ranks[g * per + l];
    gw_group local = {per, l, x->k->group.ranks + h * per}, remote = {(int)hosts(c), h, across};
    GW_TRY(reduce_local(x, local, at));
    *sum = x->sums + h * x->chunk;
    return reduce_remote(x, remote, at);
}

/* ---- gather ---- */

/* The own share's chunk, encoded in x->out, to all. */
static gw_status gather(const quant *x, int64_t at) {
    const gw_coll *c = x->k->coll;
    int n = x->k->group.size, me = x->k->group.me;
    gw_seq own = share_of(x, me);
    int64_t count = count_at(x, me, at), bytes = wire_bytes(c, count);
    gw_wire_decode(c->wire, x->values, x->out, count);
    gw_seq_store(&own, at, count, x->values, GW_F32);
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        gw_seq theirs = share_of(x, from);
        int64_t nin = count_at(x, from, at);
        GW_TRY(gw_swap(x->k, to, x->out, bytes, from, x->in, wire_bytes(c, nin), x->sent, x->dg));
        gw_wire_decode(c->wire, x->values, x->in, nin);
        gw_seq_store(&theirs, at, nin, x->values, GW_F32);
    }
    return GW_OK;
}

static gw_status one_chunk(const quant *x, int64_t at) {
    const gw_coll *c = x->k->coll;
    int me = x->k->group.me;
    gw_seq own = share_of(x, me);
    int64_t count = count_at(x, me, at);
    if (c->kind == GW_COLL_ALL_GATHER) {
        encode_share(x, me, at, x->out);
        return gather(x, at);
    }
    const float *sum;
    GW_TRY(reduce(x, at, &sum));
    if (c->kind == GW_COLL_REDUCE_SCATTER) {
        gw_seq_store(&own, at, count, sum, GW_F32);
        return GW_OK;
    }
    gw_wire_encode(c->wire, x->out, sum, count);
    return gather(x, at);
}

/* ---- the descriptor ---- */

static int64_t sums_bytes(const gw_coll *c) { return hosts(c) * chunk_of(c) * 4; }
static int64_t message_bytes(const gw_coll *c) {
    return gw_align64(hosts(c) * wire_bytes(c, chunk_of(c)));
}

/* Part i alone. */
static gw_coll part_of(const gw_coll *c, int i) {
    gw_coll one = *c;
    one.nparts = 1;
    one.parts = &c->parts[i];
    return one;
}

static gw_status run_part(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    char *values = k->scratch + sums_bytes(c), *out = values + chunk_of(c) * 4;
    quant x = {.k = k,
               .chunk = chunk_of(c),
               .sums = (float *)(void *)k->scratch,
               .values = (float *)(void *)values,
               .out = out,
               .in = out + message_bytes(c),
               .sent = sent,
               .dg = dg};
    int64_t longest = gw_share_elems(c, c->size, 0);
    for (int64_t at = 0; at < longest; at += x.chunk) GW_TRY(one_chunk(&x, at));
    return GW_OK;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    for (int i = 0; i < c->nparts; i++) {
        gw_coll one = part_of(c, i);
        gw_algorithm_call call = {k->t, k->group, &one, k->scratch, k->threads};
        GW_TRY(run_part(&call, sent, dg));
    }
    return GW_OK;
}

static int64_t moved_part(const gw_coll *c, int64_t rank) {
    int64_t n = c->size, sum = 0;
    /* In two levels too each share but the own is sent once: on the host or between hosts. */
    if (gw_coll_adds(c))
        for (int64_t j = 0; j < n; j++)
            if (j != rank) sum += wire_bytes(c, gw_share_elems(c, n, j));
    if (c->kind != GW_COLL_REDUCE_SCATTER)
        sum += (n - 1) * wire_bytes(c, gw_share_elems(c, n, rank));
    return sum;
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t sum = 0;
    for (int i = 0; i < c->nparts && c->size > 1; i++) {
        gw_coll one = part_of(c, i);
        sum += moved_part(&one, rank);
    }
    return sum;
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    if (!gw_algo_can(c, true, why)) return false;
    if (c->wire == GW_WIRE_SAME || c->wire == GW_WIRE_F32)
        *why = "the wire keeps the data as it is";
    else if (c->max)
        *why = "a maximum is not quantised";
    return !*why;
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    int64_t most = 0;
    for (int i = 0; i < c->nparts && c->size > 1; i++) {
        gw_coll one = part_of(c, i);
        int64_t need = sums_bytes(&one) + chunk_of(&one) * 4 + 2 * message_bytes(&one);
        most = GW_MAX(most, need);
    }
    return most;
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double ways = c->kind == GW_COLL_ALL_REDUCE ? 2.0 : 1.0;
    double chunks = 0;
    for (int i = 0; i < c->nparts; i++) {
        gw_coll one = part_of(c, i);
        chunks +=
            (double)((gw_share_elems(&one, c->size, 0) + chunk_of(&one) - 1) / chunk_of(&one));
    }
    double coded = ways * 2.0 * 4.0 * (double)gw_coll_elems(c);
    return gw_algo_seconds(m, ways * (double)(c->size - 1) * chunks, (double)moved(c, 0), coded);
}

const gw_algorithm gw_algo_quantised = {
    .name = "quantised",
    .doc = "values encoded once, sent in one hop, summed in float32: qwZ and qgZ (ZeRO++ 2023)",
    .kinds = GW_KIND(ALL_REDUCE) | GW_KIND(REDUCE_SCATTER) | GW_KIND(ALL_GATHER),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
// halving_doubling: log2(n) steps of pairs at distance n/2, n/4, ..., 1 and back.
//
// Reduce-scatter by recursive halving: a rank sends its partner the half of the shares that the
// partner's side keeps, adds what it gets, and goes on with half the data. All-gather by recursive
// doubling is the same backwards. An all-reduce is both (Rabenseifner, "Optimization of collective
// reduction operations", 2004): the ring's bytes with 2 log2(n) messages instead of 2(n-1), which
// wins for middling sizes. When n is no power of two, an all-reduce folds first: of the first 2r
// ranks (r = n - p, p the power of two below) each even one gives all it has to its right
// neighbour, sits out, and gets the result; the other two kinds are left to the ring then.
//
// The data is held packed by shares of a cut in p, in float32 (float64) while it is summed: scratch
// of the whole. Cost: 2 log2(p) messages, 2 (p-1)/p N beta, (p-1)/p N gamma, and with a fold 2
// messages and 2 N beta more.
// Moved: step of distance d sends d shares of w bytes an element (partial sums) or v (values). So a
// rank's moved is the sum over steps of the elements of those shares; a fold adds N v to both of a
// pair.
#include "comm/algo.h"

typedef struct hd {
    const gw_algorithm_call *k;
    int64_t p, v; /* ranks that take part, and which of them this is */
    gw_dtype sum, partial, value;
    char *acc, *values, *out, *in;
    int64_t *sent;
    gw_diags *dg;
} hd;

static int64_t power_below(int64_t n) {
    int64_t p = 1;
    while (p * 2 <= n) p *= 2;
    return p;
}

/* Group rank of participant v, and back (-1: sits out). */
static int64_t rank_of(int64_t n, int64_t v) {
    int64_t r = n - power_below(n);
    return v < r ? 2 * v + 1 : v + r;
}

static int64_t participant(int64_t n, int64_t rank) {
    int64_t r = n - power_below(n);
    if (rank >= 2 * r) return rank - r;
    return rank % 2 ? rank / 2 : -1;
}

static gw_seq whole_of(const hd *x) { return (gw_seq){x->k->coll, x->p, 0, x->p}; }

/* Elements before share s. */
static int64_t before(const hd *x, int64_t s) { return gw_shares_elems(x->k->coll, x->p, 0, s); }

/* Partial sums of shares [slo, shi) go to `to`; those of [klo, khi) come from there and are added.
 */
static gw_status halve(const hd *x, int to, int64_t slo, int64_t shi, int64_t klo, int64_t khi) {
    int64_t s0 = before(x, slo), ns = before(x, shi) - s0, k0 = before(x, klo);
    int64_t nk = before(x, khi) - k0, width = gw_dtype_size(x->sum);
    int64_t size = gw_dtype_size(x->partial), chunks = gw_chunks(GW_MAX(ns, nk));
    for (int64_t i = 0; i < chunks; i++) {
        int64_t at = i * GW_CHUNK_ELEMS, nout = gw_chunk_elems(ns, i), nin = gw_chunk_elems(nk, i);
        const char *out = x->acc + (s0 + at) * width;
        if (x->partial != x->sum) {
            gw_sum_convert(x->out, x->partial, out, x->sum, nout);
            out = x->out;
        }
        GW_TRY(gw_swap(x->k, to, out, nout * size, to, x->in, nin * size, x->sent, x->dg));
        gw_sum_add(x->acc + (k0 + at) * width, x->in, x->partial, nin, x->k->coll->max);
    }
    return GW_OK;
}

static gw_status reduce(const hd *x) {
    int64_t lo = 0, hi = x->p;
    for (int64_t d = x->p / 2; d > 0; d /= 2) {
        int to = (int)rank_of(x->k->group.size, x->v ^ d);
        int64_t mid = lo + d;
        if (x->v & d) {
            GW_TRY(halve(x, to, lo, mid, mid, hi));
            lo = mid;
        } else {
            GW_TRY(halve(x, to, mid, hi, lo, mid));
            hi = mid;
        }
    }
    return GW_OK;
}

static gw_status gather(const hd *x) {
    int64_t size = gw_dtype_size(x->value);
    for (int64_t d = 1; d < x->p; d *= 2) {
        int to = (int)rank_of(x->k->group.size, x->v ^ d);
        int64_t mine = x->v & ~(d - 1), theirs = mine ^ d;
        int64_t m0 = before(x, mine), t0 = before(x, theirs);
        GW_TRY(gw_swap(x->k, to, x->values + m0 * size, (before(x, mine + d) - m0) * size, to,
                       x->values + t0 * size, (before(x, theirs + d) - t0) * size, x->sent, x->dg));
    }
    return GW_OK;
}

/* The fold of an even rank: gives all, and gets the result. */
static gw_status sit_out(const hd *x) {
    gw_seq whole = whole_of(x);
    int64_t total = gw_seq_elems(&whole), size = gw_dtype_size(x->value);
    int to = x->k->group.me + 1;
    for (int64_t i = 0; i < gw_chunks(total); i++) {
        int64_t count = gw_chunk_elems(total, i);
        gw_seq_load(&whole, i * GW_CHUNK_ELEMS, count, x->out, x->value);
        GW_TRY(gw_swap(x->k, to, x->out, count * size, -1, NULL, 0, x->sent, x->dg));
    }
    for (int64_t i = 0; i < gw_chunks(total); i++) {
        int64_t count = gw_chunk_elems(total, i);
        GW_TRY(gw_swap(x->k, -1, NULL, 0, to, x->in, count * size, x->sent, x->dg));
        gw_seq_store(&whole, i * GW_CHUNK_ELEMS, count, x->in, x->value);
    }
    return GW_OK;
}

static gw_status fold_in(const hd *x) {
    int64_t total = before(x, x->p), size = gw_dtype_size(x->value), width = gw_dtype_size(x->sum);
    for (int64_t i = 0; i < gw_chunks(total); i++) {
        int64_t count = gw_chunk_elems(total, i);
        GW_TRY(gw_swap(x->k, -1, NULL, 0, x->k->group.me - 1, x->in, count * size, x->sent, x->dg));
        gw_sum_add(x->acc + i * GW_CHUNK_ELEMS * width, x->in, x->value, count, x->k->coll->max);
    }
    return GW_OK;
}

static gw_status fold_out(const hd *x) {
    int64_t total = before(x, x->p), size = gw_dtype_size(x->value);
    for (int64_t i = 0; i < gw_chunks(total); i++)
        GW_TRY(gw_swap(x->k, x->k->group.me - 1, x->values + i * GW_CHUNK_ELEMS * size,
                       gw_chunk_elems(total, i) * size, -1, NULL, 0, x->sent, x->dg));
    return GW_OK;
}

static gw_status all_reduce(const hd *x) {
    gw_seq whole = whole_of(x);
    int64_t total = gw_seq_elems(&whole), own = before(x, x->v), end = before(x, x->v + 1);
    bool folds = x->v < x->k->group.size - x->p;
    gw_seq_load(&whole, 0, total, x->acc, x->sum);
    if (folds) GW_TRY(fold_in(x));
    GW_TRY(reduce(x));
    gw_sum_convert(x->values + own * gw_dtype_size(x->value), x->value,
                   x->acc + own * gw_dtype_size(x->sum), x->sum, end - own);
    GW_TRY(gather(x));
    if (folds) GW_TRY(fold_out(x));
    gw_seq_store(&whole, 0, total, x->values, x->value);
    return GW_OK;
}

static gw_status scatter_or_gather(const hd *x) {
    gw_seq whole = whole_of(x), own = {x->k->coll, x->p, x->v, x->v + 1};
    int64_t total = gw_seq_elems(&whole), first = before(x, x->v), count = gw_seq_elems(&own);
    if (x->k->coll->kind == GW_COLL_REDUCE_SCATTER) {
        gw_seq_load(&whole, 0, total, x->acc, x->sum);
        GW_TRY(reduce(x));
        gw_seq_store(&own, 0, count, x->acc + first * gw_dtype_size(x->sum), x->sum);
        return GW_OK;
    }
    gw_seq_load(&own, 0, count, x->values + first * gw_dtype_size(x->value), x->value);
    GW_TRY(gather(x));
    gw_seq_store(&whole, 0, total, x->values, x->value);
    return GW_OK;
}

/* ---- scratch: sums, values (the same bytes where they have one dtype), two chunks ---- */

static int64_t acc_bytes(const gw_coll *c) {
    if (!gw_coll_adds(c)) return 0;
    return gw_align64(gw_coll_elems(c) * gw_dtype_size(gw_sum_dtype(c->dtype)));
}

static int64_t value_bytes(const gw_coll *c) {
    if (gw_coll_adds(c) && gw_value_dtype(c) == gw_sum_dtype(c->dtype)) return 0;
    return gw_align64(gw_coll_elems(c) * gw_dtype_size(gw_value_dtype(c)));
}

static int64_t chunk_bytes(const gw_coll *c) {
    return gw_align64(GW_MIN(gw_coll_elems(c), GW_CHUNK_ELEMS) * 8);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return c->size == 1 ? 0 : acc_bytes(c) + value_bytes(c) + 2 * chunk_bytes(c);
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    if (c->size == 1) {
        gw_coll_alone(c);
        return GW_OK;
    }
    char *values = k->scratch + (value_bytes(c) ? acc_bytes(c) : 0);
    char *out = k->scratch + acc_bytes(c) + value_bytes(c);
    hd x = {.k = k,
            .p = power_below(c->size),
            .v = participant(c->size, k->group.me),
            .sum = gw_sum_dtype(c->dtype),
            .partial = gw_partial_dtype(c),
            .value = gw_value_dtype(c),
            .acc = k->scratch,
            .values = values,
            .out = out,
            .in = out + chunk_bytes(c),
            .sent = sent,
            .dg = dg};
    if (x.v < 0) return sit_out(&x);
    return c->kind == GW_COLL_ALL_REDUCE ? all_reduce(&x) : scatter_or_gather(&x);
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    int64_t p = power_below(c->size), v = participant(c->size, rank), sum = 0;
    int64_t psize = gw_dtype_size(gw_partial_dtype(c)), vsize = gw_dtype_size(gw_value_dtype(c));
    if (c->size == 1) return 0;
    if (v < 0) return gw_coll_elems(c) * vsize;
    for (int64_t d = p / 2; d > 0; d /= 2) {
        int64_t theirs = (v ^ d) & ~(d - 1), mine = v & ~(d - 1);
        if (gw_coll_adds(c)) sum += gw_shares_elems(c, p, theirs, theirs + d) * psize;
        if (c->kind != GW_COLL_REDUCE_SCATTER) sum += gw_shares_elems(c, p, mine, mine + d) * vsize;
    }
    return sum + (v < c->size - p ? gw_coll_elems(c) * vsize : 0);
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    if (!gw_algo_can(c, false, why)) return false;
    if (c->kind != GW_COLL_ALL_REDUCE && power_below(c->size) != c->size)
        *why = "the number of ranks is no power of two";
    return !*why;
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double ways = c->kind == GW_COLL_ALL_REDUCE ? 2.0 : 1.0, bytes = (double)gw_coll_bytes(c);
    int64_t p = power_below(c->size);
    double steps = ways * (double)gw_log2_ceil(p), sent = (double)moved(c, c->size - 1);
    double chunks = (double)gw_chunks(gw_coll_elems(c) / 2);
    double added = gw_coll_adds(c) ? bytes : 0.0;
    if (p != c->size) sent += 2.0 * bytes, steps += 2.0, added += bytes;
    /* Packing into scratch and out of it is a copy each. */
    double packing = 2.0 * bytes / (m->copy_bytes_per_s * (double)GW_MAX(m->threads, 1));
    return gw_algo_seconds(m, GW_MAX(steps, chunks), sent, added) + packing;
}

const gw_algorithm gw_algo_halving_doubling = {
    .name = "halving_doubling",
    .doc = "pairs at distance n/2 .. 1 and back, any n for all-reduce (Rabenseifner 2004)",
    .kinds = GW_KIND(ALL_REDUCE) | GW_KIND(REDUCE_SCATTER) | GW_KIND(ALL_GATHER),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

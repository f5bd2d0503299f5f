// SPDX-License-Identifier: Apache-2.0
// pairwise: an all-to-all in n-1 rounds of pairs.
//
// In round s rank r sends what r+s shall have and receives from r-s. Every link is used once a
// round and each byte travels once, which is optimal for large messages (Thakur, Rabenseifner and
// Gropp, "Optimization of collective communication operations in MPICH", 2005, section 3.4). Chunks
// of several tensors are packed into one message; a single tensor is sent from where it lies.
//
// Cost: (n-1) messages a chunk, (n-1)/n N beta. Moved: (N - S) v, S the own share.
#include "comm/algo.h"

static int64_t buffer_bytes(const gw_coll *c) {
    int64_t elems = GW_MIN(gw_share_elems(c, c->size, 0), GW_CHUNK_ELEMS);
    return gw_align64(elems * gw_dtype_size(c->dtype));
}

/* Elements [at, at + count) of the own share, as received from `from`, to their places. */
static void unpack(const gw_coll *c, int me, int from, int64_t at, int64_t count, const char *in) {
    gw_seq own = {c, c->size, me, me + 1};
    int64_t size = gw_dtype_size(c->dtype);
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, &own, at, count); gw_walk_next(&w, &p);) {
        int64_t length = gw_cut_flat(c->parts[p.part].elems, c->size, me).length;
        char *dst = (char *)c->parts[p.part].dst + (from * length + p.within) * size;
        gw_sum_copy(dst, in, p.count * size, false);
        in += p.count * size;
    }
}

static void keep_own(const gw_algorithm_call *k) {
    const gw_coll *c = k->coll;
    int me = k->group.me;
    gw_seq own = {c, c->size, me, me + 1};
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, &own, 0, INT64_MAX); gw_walk_next(&w, &p);) {
        int64_t length = gw_cut_flat(c->parts[p.part].elems, c->size, me).length;
        int64_t size = gw_dtype_size(c->dtype);
        char *dst = (char *)c->parts[p.part].dst + (me * length + p.within) * size;
        gw_sum_copy(dst, gw_piece_src(c, &p), p.count * size, false);
    }
}

/* One tensor: whole cuts, without copies. */
static gw_status one_part(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll_part *p = &k->coll->parts[0];
    int n = k->group.size, me = k->group.me;
    int64_t size = gw_dtype_size(k->coll->dtype), length = gw_cut_flat(p->elems, n, me).length;
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        gw_cut out = gw_cut_flat(p->elems, n, to);
        GW_TRY(gw_swap(k, to, (const char *)p->src + out.first * size, out.length * size, from,
                       (char *)p->dst + from * length * size, length * size, sent, dg));
    }
    return GW_OK;
}

static gw_status many_parts(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    int n = k->group.size, me = k->group.me;
    int64_t size = gw_dtype_size(c->dtype), chunks = gw_chunks(gw_share_elems(c, n, 0));
    int64_t mine = gw_share_elems(c, n, me);
    char *out = k->scratch, *in = k->scratch + buffer_bytes(c);
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        gw_seq theirs = {c, n, to, to + 1};
        for (int64_t i = 0; i < chunks; i++) {
            int64_t nout = gw_chunk_elems(gw_seq_elems(&theirs), i), nin = gw_chunk_elems(mine, i);
            gw_seq_load(&theirs, i * GW_CHUNK_ELEMS, nout, out, c->dtype);
            GW_TRY(gw_swap(k, to, out, nout * size, from, in, nin * size, sent, dg));
            unpack(c, me, from, i * GW_CHUNK_ELEMS, nin, in);
        }
    }
    return GW_OK;
}

static gw_status run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    keep_own(k);
    return k->coll->nparts == 1 ? one_part(k, sent, dg) : many_parts(k, sent, dg);
}

static int64_t moved(const gw_coll *c, int64_t rank) {
    return (gw_coll_elems(c) - gw_share_elems(c, c->size, rank)) * gw_dtype_size(c->dtype);
}

static bool supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    return gw_algo_can(c, false, why);
}

static int64_t scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return c->size == 1 || c->nparts == 1 ? 0 : 2 * buffer_bytes(c);
}

static double seconds(const gw_coll *c, const gw_coll_machine *m) {
    double chunks = c->nparts == 1 ? 1.0 : (double)gw_chunks(gw_share_elems(c, c->size, 0));
    return gw_algo_seconds(m, (double)(c->size - 1) * chunks, (double)moved(c, 0), 0.0);
}

const gw_algorithm gw_algo_pairwise = {
    .name = "pairwise",
    .doc = "all-to-all in n-1 rounds, each with another partner (Thakur 2005)",
    .kinds = GW_KIND(ALL_TO_ALL),
    .supports = supports,
    .moved = moved,
    .scratch = scratch,
    .seconds = seconds,
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
// direct, for buffers that lie in no shared region: the same by messages.
//
// Every rank sends each other rank its part of that rank's range; the owner adds them in rank
// order, exactly as it does in shared memory, and (all-reduce, all-gather) sends the result to
// each. Step s pairs rank r with r+s and r-s, so that all links are busy. A chunk of every rank's
// part stands on the stack at once, since a fixed order of sums has to wait for the last of them;
// chunks are short, and so are the buffers of host-side callers, who are the ones that come here.
//
// Bytes: those of algo_direct.c, since a part is sent exactly where there it would be read, and a
// result where it would be written.
#include "comm/algo.h"
#include "comm/algo_direct.h"

#define STACK_BYTES 65536

typedef struct part_of {
    const gw_algorithm_call *k;
    int64_t elems; /* of a chunk */
    int64_t size;  /* bytes of an element */
    int64_t *sent;
    gw_diags *dg;
} part_of;

static int64_t chunk_count(const gw_seq_range *r, int64_t at, int64_t elems) {
    return at >= r->count ? 0 : GW_MIN(elems, r->count - at);
}

/* Elements of the longest range. */
static int64_t longest(const gw_coll *c) {
    int64_t top = 0;
    for (int64_t i = 0; i < c->size; i++) top = GW_MAX(top, gw_direct_range(c, i).count);
    return top;
}

static void add_in_order(const part_of *x, const gw_seq_range *r, int64_t at, int64_t count,
                         const char *slots) {
    const gw_coll *c = x->k->coll;
    _Alignas(64) double acc[STACK_BYTES / 8];
    gw_dtype sum = gw_sum_dtype(c->dtype);
    int64_t stride = x->elems * x->size;
    for (int i = 0; i < x->k->group.size; i++) {
        const char *in = slots + i * stride;
        if (i == 0)
            gw_sum_convert(acc, sum, in, c->dtype, count);
        else
            gw_sum_add(acc, in, c->dtype, count, c->max);
    }
    gw_seq_store(&r->s, r->from + at, count, acc, sum);
}

static gw_status reduce_chunk(const part_of *x, int64_t at) {
    _Alignas(64) char slots[STACK_BYTES], out[STACK_BYTES];
    const gw_algorithm_call *k = x->k;
    const gw_coll *c = k->coll;
    int n = k->group.size, me = k->group.me;
    gw_seq_range own = gw_direct_range(c, me);
    int64_t count = chunk_count(&own, at, x->elems), stride = x->elems * x->size;
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        gw_seq_range theirs = gw_direct_range(c, to);
        int64_t out_count = chunk_count(&theirs, at, x->elems);
        gw_seq_load(&theirs.s, theirs.from + at, out_count, out, c->dtype);
        GW_TRY(gw_swap(k, to, out, out_count * x->size, from, slots + from * stride,
                       count * x->size, x->sent, x->dg));
    }
    gw_seq_load(&own.s, own.from + at, count, slots + me * stride, c->dtype);
    add_in_order(x, &own, at, count, slots);
    return GW_OK;
}

/* Sends the own chunk of values, which stands in `mine`, and receives those of all others. */
static gw_status spread_chunk(const part_of *x, int64_t at) {
    _Alignas(64) char mine[STACK_BYTES], in[STACK_BYTES];
    const gw_algorithm_call *k = x->k;
    const gw_coll *c = k->coll;
    int n = k->group.size, me = k->group.me;
    gw_seq_range own = gw_direct_range(c, me);
    int64_t count = chunk_count(&own, at, x->elems);
    gw_walk w;
    gw_piece p;
    char *out = mine;
    for (gw_walk_begin(&w, &own.s, own.from + at, count); gw_walk_next(&w, &p);) {
        bool gather = c->kind == GW_COLL_ALL_GATHER; /* an all-reduce has its sums in dst already */
        const char *values = gather ? gw_piece_src(c, &p) : gw_piece_dst(c, &p);
        gw_sum_copy(out, values, p.count * x->size, false);
        out += p.count * x->size;
    }
    if (c->kind == GW_COLL_ALL_GATHER) gw_seq_store(&own.s, own.from + at, count, mine, c->dtype);
    for (int s = 1; s < n; s++) {
        int to = (me + s) % n, from = (me - s + n) % n;
        gw_seq_range theirs = gw_direct_range(c, from);
        int64_t in_count = chunk_count(&theirs, at, x->elems);
        GW_TRY(gw_swap(k, to, mine, count * x->size, from, in, in_count * x->size, x->sent, x->dg));
        gw_seq_store(&theirs.s, theirs.from + at, in_count, in, c->dtype);
    }
    return GW_OK;
}

static gw_status broadcast(const part_of *x) {
    _Alignas(64) char buffer[STACK_BYTES];
    const gw_algorithm_call *k = x->k;
    gw_seq whole = {k->coll, 1, 0, 1};
    int64_t total = gw_seq_elems(&whole), step = STACK_BYTES / x->size;
    for (int64_t at = 0; at < total; at += step) {
        int64_t count = GW_MIN(step, total - at), bytes = count * x->size;
        if (k->group.me == 0) gw_seq_load(&whole, at, count, buffer, k->coll->dtype);
        for (int i = 1; i < k->group.size; i++) {
            if (k->group.me == 0)
                GW_TRY(gw_swap(k, i, buffer, bytes, -1, NULL, 0, x->sent, x->dg));
            else if (k->group.me == i)
                GW_TRY(gw_swap(k, -1, NULL, 0, 0, buffer, bytes, x->sent, x->dg));
        }
        gw_seq_store(&whole, at, count, buffer, k->coll->dtype);
    }
    return GW_OK;
}

/* Cuts go from where they lie to where they shall be. */
static gw_status all_to_all(const part_of *x) {
    const gw_algorithm_call *k = x->k;
    int n = k->group.size, me = k->group.me;
    for (int p = 0; p < k->coll->nparts; p++) {
        const gw_coll_part *part = &k->coll->parts[p];
        int64_t own = gw_cut_flat(part->elems, n, me).length * x->size;
        for (int s = 0; s < n; s++) {
            int to = (me + s) % n, from = (me - s + n) % n;
            gw_cut cut = gw_cut_flat(part->elems, n, to);
            const char *src = (const char *)part->src + cut.first * x->size;
            char *dst = (char *)part->dst + from * own;
            if (s == 0)
                gw_sum_copy(dst, src, own, false);
            else
                GW_TRY(gw_swap(k, to, src, cut.length * x->size, from, dst, own, x->sent, x->dg));
        }
    }
    return GW_OK;
}

gw_status gw_direct_exchange(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    const gw_coll *c = k->coll;
    int64_t size = gw_dtype_size(c->dtype);
    part_of x = {k, STACK_BYTES / 8 / c->size, size, sent, dg};
    if (c->kind == GW_COLL_ALL_TO_ALL) return all_to_all(&x);
    if (c->kind == GW_COLL_BROADCAST) return broadcast(&x);
    int64_t top = longest(c);
    if (gw_coll_adds(c))
        for (int64_t at = 0; at < top; at += x.elems) GW_TRY(reduce_chunk(&x, at));
    if (c->kind != GW_COLL_REDUCE_SCATTER)
        for (int64_t at = 0; at < top; at += x.elems) GW_TRY(spread_chunk(&x, at));
    return GW_OK;
}

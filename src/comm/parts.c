// SPDX-License-Identifier: Apache-2.0
// Walking the parts of a fused collective (parts.h).
//
// A bucket of gradients is one collective over some hundred tensors. Each keeps its own flat cut,
// so that a shard of a tensor is the same wherever the tensor travels; what an algorithm sends as
// one message is the concatenation of the pieces. A walk yields those pieces in order: shares from
// lo to hi, and within a share the parts as they are listed. Finding the place of an element costs
// a pass over the parts before it, which is nothing beside the messages (chunks of 256 KiB).
//
// A reversed part is cut evenly and its cuts are dealt out from the last to the first: lengths do
// not change, places do (the second halves of a sequence cut in zigzag).
//
// Whole buffers are addressed by the element's index in the tensor; buffers that hold a rank's own
// share only (src of an all-gather, dst of a reduce-scatter) by its index in the share.
#include "comm/parts.h"

#include <string.h>

#include "comm/sum.h" /* gw_sum_convert, gw_sum_add, gw_sum_copy */

gw_cut gw_cut_flat(int64_t elems, int64_t n, int64_t i) {
    int64_t each = elems / n, longer = elems % n;
    return (gw_cut){i * each + GW_MIN(i, longer), each + (i < longer)};
}

gw_cut gw_part_cut(const gw_coll *c, int p, int64_t n, int64_t i) {
    bool back = c->parts[p].reversed && n == c->size;
    return gw_cut_flat(c->parts[p].elems, n, back ? n - 1 - i : i);
}

int64_t gw_dtype_size(gw_dtype t) { return gw_dtype_bits(t) / 8; }

int64_t gw_shares_elems(const gw_coll *c, int64_t n, int64_t lo, int64_t hi) {
    int64_t sum = 0;
    for (int p = 0; p < c->nparts; p++) {
        int64_t end = hi < n ? gw_cut_flat(c->parts[p].elems, n, hi).first : c->parts[p].elems;
        int64_t begin = lo < n ? gw_cut_flat(c->parts[p].elems, n, lo).first : c->parts[p].elems;
        sum += end - begin;
    }
    return sum;
}

int64_t gw_share_elems(const gw_coll *c, int64_t n, int64_t i) {
    return gw_shares_elems(c, n, i, i + 1);
}

int64_t gw_seq_elems(const gw_seq *s) { return gw_shares_elems(s->c, s->n, s->lo, s->hi); }

void gw_walk_begin(gw_walk *w, const gw_seq *s, int64_t from, int64_t count) {
    *w = (gw_walk){.s = *s, .share = s->lo, .skip = from, .left = count};
}

bool gw_walk_next(gw_walk *w, gw_piece *out) {
    for (; w->share < w->s.hi && w->left > 0; w->share++, w->part = 0) {
        for (; w->part < w->s.c->nparts; w->part++) {
            gw_cut cut = gw_part_cut(w->s.c, w->part, w->s.n, w->share);
            if (w->skip >= cut.length) {
                w->skip -= cut.length;
                continue;
            }
            int64_t count = GW_MIN(cut.length - w->skip, w->left);
            *out = (gw_piece){w->part, cut.first + w->skip, w->skip, count};
            w->left -= count;
            w->skip += count; /* the next call goes on behind it */
            return true;
        }
    }
    return false;
}

char *gw_piece_src(const gw_coll *c, const gw_piece *p) {
    int64_t i = c->kind == GW_COLL_ALL_GATHER ? p->within : p->first;
    /* The type of src is const; whoever writes through this takes gw_piece_dst. */
    uintptr_t base = (uintptr_t)c->parts[p->part].src;
    return (char *)(base + (uintptr_t)(i * gw_dtype_size(c->dtype)));
}

char *gw_piece_dst(const gw_coll *c, const gw_piece *p) {
    int64_t i = c->kind == GW_COLL_REDUCE_SCATTER ? p->within : p->first;
    return (char *)c->parts[p->part].dst + i * gw_dtype_size(c->dtype);
}

void gw_seq_load(const gw_seq *s, int64_t from, int64_t count, void *out, gw_dtype to) {
    char *at = out;
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, s, from, count); gw_walk_next(&w, &p);) {
        gw_sum_convert(at, to, gw_piece_src(s->c, &p), s->c->dtype, p.count);
        at += p.count * gw_dtype_size(to);
    }
}

void gw_seq_fetch(const gw_seq *s, int64_t from, int64_t count, void *out, gw_dtype to) {
    char *at = out;
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, s, from, count); gw_walk_next(&w, &p);) {
        gw_sum_convert(at, to, gw_piece_dst(s->c, &p), s->c->dtype, p.count);
        at += p.count * gw_dtype_size(to);
    }
}

void gw_seq_add(const gw_seq *s, int64_t from, int64_t count, void *acc) {
    char *at = acc;
    int64_t size = gw_dtype_size(gw_sum_dtype(s->c->dtype));
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, s, from, count); gw_walk_next(&w, &p);) {
        gw_sum_add(at, gw_piece_src(s->c, &p), s->c->dtype, p.count, s->c->max);
        at += p.count * size;
    }
}

void gw_seq_store(const gw_seq *s, int64_t from, int64_t count, const void *in, gw_dtype t) {
    const char *at = in;
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, s, from, count); gw_walk_next(&w, &p);) {
        gw_sum_convert(gw_piece_dst(s->c, &p), s->c->dtype, at, t, p.count);
        at += p.count * gw_dtype_size(t);
    }
}

void gw_seq_keep(const gw_seq *s, int64_t from, int64_t count) {
    gw_walk w;
    gw_piece p;
    for (gw_walk_begin(&w, s, from, count); gw_walk_next(&w, &p);) {
        char *src = gw_piece_src(s->c, &p), *dst = gw_piece_dst(s->c, &p);
        if (src != dst) gw_sum_copy(dst, src, p.count * gw_dtype_size(s->c->dtype), false);
    }
}

void gw_coll_alone(const gw_coll *c) {
    gw_seq whole = {c, 1, 0, 1};
    gw_seq_keep(&whole, 0, gw_seq_elems(&whole));
}

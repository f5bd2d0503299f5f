// SPDX-License-Identifier: Apache-2.0
// How attention and its gradient are laid over ranks: heads over tensor-parallel ranks, and the
// sequence over context-parallel ones, in any of four ways.
//
// Heads first. Query heads are cut on the sub-axes of tp, kv heads on as many of the same sub-axes,
// major first, as leave each rank the kv heads of its query heads; on the others k and v are whole
// and their gradients partial sums (what grouped heads fewer than ranks cost). s is whole on tp.
//
// On the sub-axes of cp queries are cut along s, and k and v reach them
//   ulysses  by turning the cut of s into a cut of heads: an all-to-all of q, k, v before and of o
//            after (Jacobs et al., DeepSpeed Ulysses, 2023). Where kv heads do not go around, k and
//            v are gathered along s on those sub-axes instead;
//   gather   whole: an all-gather of k and v; their gradients are partial sums until they return
//            (Llama 3's context parallelism);
//   ring     block by block: attention_part of the block at hand, while the next one is on its way
//            from the neighbour. The step is unrolled, and a block's `shift` stands before the work
//            it can hide behind. Backward sends k and v around again, and with each block the
//            float32 sums of its gradients, which are home after a full round (Liu et al., Ring
//            Attention, 2023);
//   hybrid   ring over some sub-axes and ulysses over the rest at once (Fang and Zhao, USP, 2024).
// Causality makes late blocks cheap for early queries; zigzag parts even that out, and which pairs
// a block has is known to the op from the types, so nothing here speaks of masks.
//
// Outputs go back to the placement of their inputs along s; but lse stays as backward needs it, and
// gradients of k and v stay partial on tp, where q, k and v add up before one reduction.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "ops/attention.h"
#include "ops/conversion.h" /* gw_dim_first_axes */
#include "ops/hooks.h"      /* gw_type_plain */

/* The placements of one attention. */
typedef struct layout {
    gw_type q_home, k_home; /* what outputs go back to */
    gw_type q, k;           /* where the work is */
    gw_type k_grad;         /* k, and partial where it must be */
    int64_t steps;          /* of the ring; 1: none */
} layout;

/* ---- placements ---- */

static void clear(gw_type *t) {
    t->psum = t->pmax = 0;
    gw_dim_uncut(&t->dims[3], UINT32_MAX);
}

/* Cuts heads further over `axes`. Where the parts are uneven a second cut must stay inside the
 * parts of the first. */
static void cut_heads(gw_dim *d, uint32_t axes, const gw_mesh *m) {
    if (!axes) return;
    int64_t parts = gw_mesh_size(m, gw_dim_axes(d) | axes);
    if (d->naxes && !d->outer && d->size % parts) d->outer = d->naxes;
    gw_dim_cut(d, axes, m);
}

/* kv heads cut on as many of the sub-axes of q's heads as can be; as they are, if that is no fewer.
 */
static void cut_groups(const gw_type *q, gw_type *k, const gw_mesh *m) {
    const gw_dim *h = &q->dims[2];
    gw_dim *g = &k->dims[2];
    gw_type now = *k;
    gw_dim_uncut(&now.dims[2], ~gw_dim_axes(h));
    for (int n = h->naxes; n >= 0; n--) {
        if (n <= now.dims[2].naxes && gw_attention_covers(q, &now, m)) {
            *g = now.dims[2];
            return;
        }
        gw_dim first = gw_dim_first_axes(h, n);
        gw_dim_set_cut(g, &first);
        if (gw_attention_covers(q, k, m)) return;
    }
    gw_panic("kv heads that are whole serve all heads");
}

/* From q and k as they come, of which only the cuts count. */
static gw_status lay_out(layout *l, const gw_sharding *s, const gw_type *q, const gw_type *k,
                         gw_diags *dg) {
    const gw_mesh *m = &s->b->g->mesh;
    const gw_axes *a = s->axes;
    *l = (layout){.q_home = *q, .k_home = *k, .steps = 1};
    clear(&l->q_home);
    clear(&l->k_home);
    gw_dim_uncut(&l->q_home.dims[1], a->tp & ~a->cp);
    cut_heads(&l->q_home.dims[2], a->tp & ~a->cp & ~gw_type_cut_axes(&l->q_home), m);
    l->q = l->q_home;
    uint32_t along = gw_dim_axes(&l->q.dims[1]), ring = a->ring & along;
    gw_dim_uncut(&l->q.dims[1], a->ulysses);
    cut_heads(&l->q.dims[2], a->ulysses & along, m);

    int64_t g = l->k_home.dims[2].size;
    l->k = l->k_home;
    l->k.dims[0] = l->q.dims[0];
    l->k.dims[1] = l->q.dims[1];
    gw_dim_uncut(&l->k.dims[1], ~ring);
    cut_groups(&l->q, &l->k, m);
    GW_ASSERT(l->k.dims[2].size == g);
    l->k_grad = l->k;
    l->k_grad.psum = gw_attention_partial(&l->q, &l->k);

    l->k_home = l->k;
    l->k_home.dims[1] = l->q_home.dims[1];
    gw_dim_uncut(&l->k_home.dims[2], along);
    l->k_home.psum = l->k_grad.psum & ~along;
    if (!ring) return GW_OK;
    const gw_dim *d = &l->k.dims[1];
    l->steps = gw_mesh_size(m, ring);
    if (gw_dim_axes(d) == ring && d->outer == d->naxes) return GW_OK;
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement",
                   "attention: the ring is not the outer cut of %.8s", d->name);
}

/* v cut as t, matched by name. */
static gw_vid convert(gw_sharding *s, gw_vid v, const gw_type *t) {
    if (v == GW_NONE || s->b->status != GW_OK) return v;
    gw_type to = *gw_type_of(s->b->g, v);
    to.psum = t->psum;
    to.pmax = t->pmax;
    for (int i = 0; i < to.ndim; i++) {
        int j = gw_type_find(t, to.dims[i].name);
        if (j >= 0) to.dims[i] = t->dims[j];
        if (j < 0) gw_dim_uncut(&to.dims[i], UINT32_MAX);
    }
    return gw_sharding_convert(s, v, &to);
}

/* Back to t, in the very terms of t: a cut in two of which one is left is a cut in one. */
static gw_vid home(gw_sharding *s, gw_vid v, const gw_type *t) {
    gw_vid r = convert(s, v, t);
    gw_sharding_place(s, r, t);
    return r;
}

/* In the dtype of `like`. */
static gw_vid cast(gw_sharding *s, gw_vid v, gw_vid like) {
    if (s->b->status != GW_OK) return v;
    gw_type t = *gw_type_of(s->b->g, v);
    uint8_t to = gw_type_of(s->b->g, like)->dtype;
    if (t.dtype == to) return v;
    gw_vid r = gw_build(s->b, "cast", &v, 1, (gw_attr[]){{.i = to}}, NULL);
    gw_sharding_place(s, r, &t);
    return r;
}

/* ---- the ring ---- */

/* k, v and the keys' documents: a block, wherever it is. */
typedef struct block {
    gw_vid k, v, docs; /* docs GW_NONE: none */
} block;

/* To the neighbour: v as it is, its part of s one further around. */
static gw_vid shift(gw_sharding *s, gw_vid v, int64_t steps) {
    if (v == GW_NONE || s->b->status != GW_OK) return v;
    gw_graph *g = s->b->g;
    gw_type t = *gw_type_of(g, v);
    gw_dim *d = &t.dims[1];
    d->turn = (uint8_t)((d->turn + 1) % steps);
    gw_vid r = gw_build1(s->b, "shift", v);
    gw_sharding_place(s, r, &t);
    if (s->b->status == GW_OK) g->ops.items[g->values.items[r].def].stream = GW_STREAM_CP;
    return r;
}

static block shift_block(gw_sharding *s, block b, int64_t steps) {
    return (block){shift(s, b.k, steps), shift(s, b.v, steps), shift(s, b.docs, steps)};
}

static void ring(gw_sharding *s, const layout *l, gw_vid q, gw_vid docs, block b, gw_vid out[2]) {
    out[0] = out[1] = GW_NONE;
    for (int64_t j = 0; j < l->steps; j++) {
        block next = j + 1 < l->steps ? shift_block(s, b, l->steps) : b;
        gw_vid in[] = {q, b.k, b.v, docs, b.docs, out[0], out[1]};
        out[0] = gw_build(s->b, "attention_part", in, 7, s->attrs, &out[1]);
        gw_sharding_place(s, out[0], &l->q);
        gw_sharding_place(s, out[1], &l->q);
        b = next;
    }
    out[0] = cast(s, out[0], q);
}

/* in: do, q, k, v, o, lse, docs, kdocs, where the work is. */
static void ring_grad(gw_sharding *s, const layout *l, const gw_vid in[8], gw_vid out[3]) {
    block b = {in[2], in[3], in[7]};
    gw_vid more[2] = {GW_NONE, GW_NONE}, dq = GW_NONE;
    gw_type partial = l->k_grad;
    for (int64_t j = 0; j < l->steps; j++) {
        block next = j + 1 < l->steps ? shift_block(s, b, l->steps) : b;
        gw_vid all[] = {in[0], in[1], b.k, b.v, in[4], in[5], in[6], b.docs, dq, more[0], more[1]};
        partial.dims[1].turn = (uint8_t)j;
        dq = gw_build(s->b, "attention_part_grad", all, 11, s->attrs, more);
        gw_sharding_place(s, dq, &l->q);
        for (int i = 0; i < 2; i++) {
            gw_sharding_place(s, more[i], &partial);
            more[i] = shift(s, more[i], l->steps);
        }
        b = next;
    }
    out[0] = cast(s, dq, in[1]);
    out[1] = cast(s, more[0], in[2]);
    out[2] = cast(s, more[1], in[3]);
}

/* ---- the rules ---- */

/* Nothing to do with heads or sequences. */
static bool plain(const gw_sharding *s) { return !(s->axes->tp | s->axes->cp); }

/* docs[0] of the queries, docs[1] of the keys; the latter are left out where they are the same. */
static void place_docs(gw_sharding *s, const layout *l, gw_vid docs[2]) {
    gw_vid of_keys = docs[1] == GW_NONE ? docs[0] : docs[1];
    docs[0] = convert(s, docs[0], &l->q);
    docs[1] = convert(s, of_keys, &l->k);
    if (docs[1] == docs[0] && l->steps == 1) docs[1] = GW_NONE;
}

gw_status gw_attention_shard(gw_sharding *s, gw_diags *dg) {
    if (plain(s)) return s->by_signature(s, dg);
    gw_type tq = *gw_type_of(s->b->g, s->in[0]), tk = *gw_type_of(s->b->g, s->in[1]);
    layout l;
    GW_TRY(lay_out(&l, s, &tq, &tk, dg));
    gw_vid q = convert(s, s->in[0], &l.q), docs[2] = {s->in[3], s->in[4]}, out[2];
    block b = {.k = convert(s, s->in[1], &l.k), .v = convert(s, s->in[2], &l.k)};
    place_docs(s, &l, docs);
    b.docs = docs[1];
    if (l.steps > 1) {
        ring(s, &l, q, docs[0], b, out);
    } else {
        out[0] = gw_build(s->b, "attention", (gw_vid[]){q, b.k, b.v, docs[0], b.docs}, 5, s->attrs,
                          &out[1]);
        for (int i = 0; i < 2; i++) gw_sharding_place(s, out[i], &l.q);
    }
    s->out[0] = home(s, out[0], &l.q_home);
    s->out[1] = out[1];
    return s->b->status;
}

gw_status gw_attention_grad_shard(gw_sharding *s, gw_diags *dg) {
    if (plain(s)) return s->by_signature(s, dg);
    gw_type tq = *gw_type_of(s->b->g, s->in[1]), tk = *gw_type_of(s->b->g, s->in[2]);
    layout l;
    GW_TRY(lay_out(&l, s, &tq, &tk, dg));
    gw_vid docs[2] = {s->in[6], s->in[7]}, in[8], out[3];
    for (int i = 0; i < 6; i++) in[i] = convert(s, s->in[i], i == 2 || i == 3 ? &l.k : &l.q);
    place_docs(s, &l, docs);
    in[6] = docs[0];
    in[7] = docs[1];
    if (l.steps > 1) {
        ring_grad(s, &l, in, out);
    } else {
        out[0] = gw_build(s->b, "attention_grad", in, 8, s->attrs, &out[1]);
        gw_sharding_place(s, out[0], &l.q);
        for (int i = 1; i < 3; i++) gw_sharding_place(s, out[i], &l.k_grad);
    }
    s->out[0] = home(s, out[0], &l.q_home);
    for (int i = 1; i < 3; i++) s->out[i] = home(s, out[i], &l.k_home);
    return s->b->status;
}

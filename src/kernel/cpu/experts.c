// SPDX-License-Identifier: Apache-2.0
// experts on one rank: choices sorted by expert, tiles of rows through each.
//
// A counting sort puts the choices (token, k) of each expert together, tokens in order. Each
// expert's rows are gathered a tile at a time (kernel/cpu/expert_tile.h), multiplied, and what
// comes out is rounded to the dtype of x, as it is where rows travel between ranks, and added to
// the token's sum. Experts are gone through in order, so a token's sum runs over its experts by
// number, in float32, whatever the threads: rows of a tile are shared out, and a row's sum is one
// thread's. Nothing is added for an expert without rows: its weight gradients are the accumulator
// or exact zeros, written before anything else.
//
// f64 is left to the reference.
#include <string.h>

#include "kernel/cpu/expert_tile.h" /* gw_expert_forward */
#include "kernel/cpu/vec_more.h"    /* gw_vec_floats */
#include "ops/experts.h"            /* GW_EX_X, gw_experts_held_of */

/* ---- workspace ---- */

typedef struct plan {
    gw_expert_shape shape;
    int64_t tokens, top, experts; /* of this rank */
    bool own_sum;                 /* sums in workspace, since x is below float32 */
    int64_t order_bytes, first_bytes, sum_bytes, tile_bytes;
} plan;

static int64_t align64(int64_t n) { return (n + 63) / 64 * 64; }

/* x is input number `x`; the others follow it. */
static plan plan_of(const gw_kargs *k, int x, gw_dtype gradient, bool backward) {
    const gw_tensor *t = &k->in[x + GW_EX_X], *ids = &k->in[x + GW_EX_IDS];
    const gw_tensor *w = &k->in[x + GW_EX_GATE];
    plan p = {.top = ids->dims[2], .experts = w->dims[0], .own_sum = t->dtype != GW_F32};
    p.tokens = t->dims[0] * t->dims[1];
    p.shape = gw_expert_shape_of(t->dims[2], w->dims[1], p.tokens, w->dtype, gradient, backward,
                                 k->threads);
    p.order_bytes = align64(p.tokens * p.top * 4);
    p.first_bytes = align64((p.experts + 2) * 8);
    p.sum_bytes = p.own_sum ? align64(p.tokens * p.shape.d * 4) : 0;
    p.tile_bytes = gw_expert_tile_bytes(&p.shape);
    return p;
}

static int64_t bytes_of(const plan *p) {
    return p->order_bytes + p->first_bytes + p->sum_bytes + p->tile_bytes;
}

typedef struct run {
    plan p;
    const gw_kargs *k;
    int x; /* number of input x */
    int64_t first_expert;
    int32_t *order; /* choices by expert */
    int64_t *first; /* [experts + 1]: where an expert's choices begin */
    float *sum;     /* [tokens d] */
    gw_expert_tile tile;
    gw_expert stack;
} run;

static run open_run(const gw_kargs *k, int x, gw_dtype gradient, bool backward) {
    run r = {.p = plan_of(k, x, gradient, backward), .k = k, .x = x};
    char *at = k->work;
    const gw_type *w = gw_type_of(k->g, gw_op_in(k->g, k->op, x + GW_EX_GATE));
    r.first_expert = gw_experts_held_of(w, &k->g->mesh, k->rank).first;
    r.order = (int32_t *)(void *)at;
    r.first = (int64_t *)(void *)(at += r.p.order_bytes);
    r.sum = (float *)(void *)(at += r.p.first_bytes);
    gw_expert_tile_bind(&r.tile, &r.p.shape, at + r.p.sum_bytes);
    if (!r.p.own_sum) r.sum = k->out[0].data;
    memset(r.sum, 0, (size_t)(r.p.tokens * r.p.shape.d) * sizeof *r.sum);
    r.stack = (gw_expert){.gate = k->in[x + GW_EX_GATE].data,
                          .up = k->in[x + GW_EX_UP].data,
                          .down = k->in[x + GW_EX_DOWN].data};
    return r;
}

/* Counting sort of the choices that fall on this rank's experts. */
static void sort_choices(run *r) {
    const gw_tensor *ids = &r->k->in[r->x + GW_EX_IDS];
    int64_t n = r->p.experts, lo = r->first_expert;
    memset(r->first, 0, (size_t)(n + 2) * sizeof *r->first);
    for (int64_t i = 0; i < ids->elems; i++) {
        int64_t e = gw_vec_int(ids, i) - lo;
        if (e >= 0 && e < n) r->first[e + 2]++;
    }
    for (int64_t e = 2; e <= n + 1; e++) r->first[e] += r->first[e - 1];
    for (int64_t i = 0; i < ids->elems; i++) {
        int64_t e = gw_vec_int(ids, i) - lo;
        if (e >= 0 && e < n) r->order[r->first[e + 1]++] = (int32_t)i;
    }
}

/* Sums to the output, where they are not in it already. */
static void store_sums(const run *r) {
    int64_t d = r->p.shape.d;
    if (!r->p.own_sum) return;
#pragma omp parallel for num_threads(r->k->threads) schedule(static)
    for (int64_t i = 0; i < r->p.tokens; i++)
        gw_vec_store(r->k->out[0].data, r->k->out[0].dtype, i * d, r->sum + i * d, d);
}

static void gather(const run *r, const gw_tensor *from, float *to, const int32_t *order,
                   int64_t m) {
    gw_expert_rows rows = {from->data, from->dtype, r->p.shape.d, r->k->threads};
    gw_expert_gather(&rows, to, order, r->p.top, m);
}

/* Adds the tile's results to their tokens. */
static void add_rows(const run *r, const int32_t *order, int64_t m, const float *gates) {
    gw_expert_add(r->sum, r->tile.y, r->k->out[0].dtype, r->p.shape.d, order, r->p.top, m, gates,
                  r->k->threads);
}

/* ---- forward ---- */

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state;
    run r = open_run(k, 0, GW_F32, false);
    sort_choices(&r);
    for (int64_t e = 0; e < r.p.experts; e++) {
        gw_expert w = gw_expert_at(&r.p.shape, &r.stack, e);
        for (int64_t at = r.first[e]; at < r.first[e + 1]; at += r.p.shape.rows) {
            int64_t m = GW_MIN(r.p.shape.rows, r.first[e + 1] - at);
            gather(&r, &k->in[GW_EX_X], r.tile.x, r.order + at, m);
            GW_TRY(gw_expert_forward(&r.p.shape, &r.tile, &w, m, dg));
            add_rows(&r, r.order + at, m, k->in[GW_EX_GATES].data);
        }
    }
    store_sums(&r);
    return GW_OK;
}

/* ---- backward ---- */

/* Weight gradients begin as the accumulator, or as zeros. */
static void seed_gradients(const gw_kargs *k) {
    for (int i = 0; i < 3; i++) {
        const gw_tensor *to = &k->out[2 + i];
        size_t bytes = (size_t)(to->elems * gw_vec_size(to->dtype));
        const void *acc = GW_EXG_ACC + i < k->nin ? k->in[GW_EXG_ACC + i].data : NULL;
        if (!acc)
            memset(to->data, 0, bytes);
        else if (acc != to->data)
            memcpy(to->data, acc, bytes);
    }
}

static gw_status grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state;
    run r = open_run(k, GW_EXG_X, k->out[2].dtype, true);
    const float *gates = k->in[GW_EXG_GATES].data;
    float *dgates = k->out[1].data;
    r.stack.dgate = k->out[2].data;
    r.stack.dup = k->out[3].data;
    r.stack.ddown = k->out[4].data;
    seed_gradients(k);
    memset(dgates, 0, (size_t)k->out[1].elems * sizeof *dgates);
    sort_choices(&r);
    for (int64_t e = 0; e < r.p.experts; e++) {
        gw_expert w = gw_expert_at(&r.p.shape, &r.stack, e);
        for (int64_t at = r.first[e]; at < r.first[e + 1]; at += r.p.shape.rows) {
            int64_t m = GW_MIN(r.p.shape.rows, r.first[e + 1] - at);
            const int32_t *order = r.order + at;
            gather(&r, &k->in[GW_EXG_X], r.tile.x, order, m);
            gather(&r, &k->in[GW_EXG_DY], r.tile.dy, order, m);
            for (int64_t i = 0; i < m; i++) r.tile.gate[i] = gates[order[i]];
            GW_TRY(gw_expert_backward(&r.p.shape, &r.tile, &w, m, dg));
            for (int64_t i = 0; i < m; i++) dgates[order[i]] = r.tile.dgate[i];
            add_rows(&r, order, m, NULL);
        }
    }
    store_sums(&r);
    return GW_OK;
}

/* ---- hooks ---- */

static bool supports_from(const gw_graph *g, const gw_op *o, int x) {
    uint32_t floats = (1u << (x + GW_EX_X)) | (7u << (x + GW_EX_GATE));
    return gw_vec_floats(g, o, floats) && gw_vec_in_type(g, o, x + GW_EX_GATES) == GW_F32;
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return supports_from(g, o, 0);
}

static bool grad_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return supports_from(g, o, GW_EXG_X);
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    plan p = plan_of(&s.k, 0, GW_F32, false);
    return bytes_of(&p);
}

static int64_t grad_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    plan p = plan_of(&s.k, GW_EXG_X, gw_vec_out_type(g, o, 2), true);
    return bytes_of(&p);
}

GW_VEC_KERNEL(experts, "experts", "rows grouped by expert, oneDNN sgemm on tiles", supports,
              workspace, launch);
GW_VEC_KERNEL(experts_grad, "experts_grad",
              "rows grouped by expert, hidden activations made again a tile at a time",
              grad_supports, grad_workspace, grad_launch);

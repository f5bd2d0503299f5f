// SPDX-License-Identifier: Apache-2.0
// Attention, forward and backward, in blocks: the scores of a whole sequence never exist.
//
// Forward (Dao et al., FlashAttention, arXiv:2205.14135, with the online softmax of Milakov and
// Gimelshein, arXiv:1805.02867): a task is up to 256 queries of one head. It walks the keys in
// blocks, keeps for each query the largest score so far, the sum of powers and the unfinished
// output, and rescales the latter two when the largest changes. It writes o and lse = max +
// log(sum). Backward recomputes the powers from lse; with D = rowsum(do * o), ds = p * (dp - D),
// and dv, dk, dq are three more products.
//
// Who sees whom is two numbers a query, computed first: the first visible key (start of its
// document, or of its window) and the one behind the last (itself when causal, else the end of its
// document). Blocks that no query of a panel sees are skipped, blocks that all see whole are not
// masked: a causal sequence costs half, a packed one the sum of its documents. Where document ids
// of a row are not nondecreasing, the bounds come from causality and window alone and ids are
// compared key by key.
//
// Order of sums: that of key blocks at fixed places, within one task. Backward takes a kv head as
// one task, so dk and dv gather over queries and query heads in one order. Results do not depend on
// threads.
//
// Memory: forward a constant per thread, backward 4 s k floats per thread (k, v, dk, dv of one kv
// head).
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/compiler.h"        /* GW_MIN, GW_MAX */
#include "kernel/cpu/attention.h" /* gw_attn, gw_attn_core */
#include "kernel/kernel.h"        /* gw_kernel */

typedef struct attention {
    gw_attn a;
    const gw_attn_core *core;
    float *work; /* per thread `stride` floats */
    int64_t stride;
    int threads;
} attention;

/* attention: q k v docs. attention_grad: do q k v o lse docs. */
static int first_of(bool grad) { return grad ? 1 : 0; }
static int docs_of(bool grad) { return grad ? 6 : 3; }

static bool supports(const gw_graph *g, const gw_op *o, bool grad) {
    gw_dtype t = (gw_dtype)gw_type_of(g, gw_op_in(g, o, first_of(grad)))->dtype;
    if (t != GW_F32 && t != GW_BF16 && t != GW_F16) return false;
    int floats = grad ? 5 : 3;
    for (int i = 0; i < floats; i++)
        if (gw_type_of(g, gw_op_in(g, o, i))->dtype != t) return false;
    if (gw_type_of(g, gw_op_out(g, o, 0))->dtype != t) return false;
    gw_vid docs = o->nin > docs_of(grad) ? gw_op_in(g, o, docs_of(grad)) : GW_NONE;
    if (docs != GW_NONE && gw_type_of(g, docs)->dtype != GW_I32) return false;
    return gw_type_of(g, gw_op_in(g, o, first_of(grad)))->dims[1].size < INT32_MAX;
}

static int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes in front of the threads' parts: lo, hi, exact. */
static int64_t head_bytes(int64_t b, int64_t s) { return 2 * round64(b * s * 4) + round64(b); }

static int64_t thread_floats(int64_t s, int64_t k, bool grad) {
    int64_t n = grad ? gw_attn_backward_floats(s, k) : gw_attn_forward_floats(k);
    return (n + 15) / 16 * 16 + 16; /* a line between threads */
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m, bool grad) {
    const gw_type *q = gw_type_of(g, gw_op_in(g, o, first_of(grad)));
    int64_t b = gw_type_local_dim(q, 0, &g->mesh, 0), s = gw_type_local_dim(q, 1, &g->mesh, 0);
    int64_t k = gw_type_local_dim(q, 3, &g->mesh, 0);
    return head_bytes(b, s) + m->threads * thread_floats(s, k, grad) * 4;
}

static void bind(const gw_kargs *k, gw_attn *a, bool grad) {
    const gw_tensor *q = &k->in[first_of(grad)];
    const gw_tensor *docs = k->nin > docs_of(grad) ? &k->in[docs_of(grad)] : NULL;
    *a = (gw_attn){.b = q->dims[0],
                   .s = q->dims[1],
                   .h = q->dims[2],
                   .k = q->dims[3],
                   .g = q[1].dims[2],
                   .dtype = q->dtype,
                   .q = q->data,
                   .key = q[1].data,
                   .v = q[2].data,
                   .docs = docs ? docs->data : NULL};
    a->causal = gw_op_attr(k->g, k->op, 0).i != 0;
    a->window = gw_op_attr(k->g, k->op, 1).i;
    double scale = gw_op_attr(k->g, k->op, 2).f;
    a->scale = scale != 0.0 ? (float)scale : (float)(1.0 / sqrt((double)a->k));
    if (!grad) {
        a->o = k->out[0].data;
        a->lse = k->out[1].data;
        return;
    }
    a->out_grad = k->in[0].data;
    a->o_in = k->in[4].data;
    a->lse = k->in[5].data;
    a->dq = k->out[0].data;
    a->dk = k->out[1].data;
    a->dv = k->out[2].data;
}

static gw_status prepare(const gw_kargs *k, gw_arena *arena, void **state, bool grad) {
    attention *t = gw_arena_new(arena, attention, 1);
    gw_attn *a = &t->a;
    bind(k, a, grad);
    t->core = gw_attn_core_get();
    t->threads = k->threads;
    char *p = k->work;
    a->lo = (int32_t *)(void *)p;
    a->hi = (int32_t *)(void *)(p + round64(a->b * a->s * 4));
    a->exact = (uint8_t *)(p + 2 * round64(a->b * a->s * 4));
    t->work = (float *)(void *)(p + head_bytes(a->b, a->s));
    t->stride = thread_floats(a->s, a->k, grad);
    *state = t;
    return GW_OK;
}

/* The visible range of each query of row b. */
static void find_bounds(const gw_attn *a, int64_t b) {
    const int32_t *doc = a->docs ? a->docs + b * a->s : NULL;
    int32_t *lo = a->lo + b * a->s, *hi = a->hi + b * a->s;
    bool sorted = true;
    for (int64_t i = 1; doc && i < a->s; i++) sorted &= doc[i] >= doc[i - 1];
    a->exact[b] = sorted;
    int64_t start = 0, end = a->s;
    for (int64_t i = 0; i < a->s; i++) {
        if (doc && sorted && i > 0 && doc[i] != doc[i - 1]) start = i;
        lo[i] = (int32_t)(a->window > 0 ? GW_MAX(start, i - a->window + 1) : start);
    }
    for (int64_t i = a->s - 1; i >= 0; i--) {
        if (doc && sorted && i + 1 < a->s && doc[i] != doc[i + 1]) end = i + 1;
        hi[i] = (int32_t)(a->causal ? i + 1 : end);
    }
}

/* Smaller tasks where there are few, so that all threads have some. The results are the same. */
static int64_t chunk_of(const attention *t) {
    int64_t chunk = GW_ATTN_CHUNK;
    while (chunk > 64 && t->a.b * t->a.h * ((t->a.s + chunk - 1) / chunk) < 4 * t->threads)
        chunk /= 2;
    return chunk;
}

static gw_status forward_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)k, (void)dg;
    attention *t = state;
    const gw_attn *a = &t->a;
    for (int64_t b = 0; b < a->b; b++) find_bounds(a, b);
    int64_t chunk = chunk_of(t), chunks = (a->s + chunk - 1) / chunk, heads = a->b * a->h;
#pragma omp parallel num_threads(t->threads)
    {
        float *work = t->work + omp_get_thread_num() * t->stride;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < heads * chunks; i++) {
            /* The last queries of a causal sequence have the most keys: long tasks first. */
            int64_t q0 = (chunks - 1 - i / heads) * chunk, head = i % heads;
            t->core->forward(a, head / a->h, head % a->h, q0, GW_MIN(q0 + chunk, a->s), work);
        }
    }
    return GW_OK;
}

static gw_status backward_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)k, (void)dg;
    attention *t = state;
    const gw_attn *a = &t->a;
    for (int64_t b = 0; b < a->b; b++) find_bounds(a, b);
#pragma omp parallel num_threads(t->threads)
    {
        float *work = t->work + omp_get_thread_num() * t->stride;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < a->b * a->g; i++) t->core->backward(a, i / a->g, i % a->g, work);
    }
    return GW_OK;
}

static void release(void *state) { (void)state; }

#define HOOKS(name, grad)                                                                          \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        (void)m;                                                                                   \
        return supports(g, o, grad);                                                               \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        return workspace(g, o, m, grad);                                                           \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        (void)dg;                                                                                  \
        return prepare(k, a, state, grad);                                                         \
    }
HOOKS(forward, false)
HOOKS(backward, true)

const gw_kernel gw_kernel_cpu_attention = {
    .name = "cpu-attention",
    .op = "attention",
    .note = "blockwise online softmax in float32, queries in vector lanes",
    .supports = forward_supports,
    .workspace = forward_workspace,
    .prepare = forward_prepare,
    .launch = forward_launch,
    .release = release,
};

const gw_kernel gw_kernel_cpu_attention_grad = {
    .name = "cpu-attention-grad",
    .op = "attention_grad",
    .note = "blockwise backward from lse in float32, one kv head a task",
    .supports = backward_supports,
    .workspace = backward_workspace,
    .prepare = backward_prepare,
    .launch = backward_launch,
    .release = release,
};

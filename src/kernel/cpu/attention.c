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
// Over one block of keys of many (attention_part) the walk starts from what earlier blocks left: o
// and lse count as one key of that score and value. Its gradients are added to float32 sums.
//
// Who sees whom is two numbers a query, computed first: the first visible key (of its document, or
// of its window) and the one behind the last (itself when causal, else the end of its document).
// They count this rank's keys, but come from indices of the whole sequence: a rank's queries and
// its keys are each one or two ascending runs of these, so what a query sees of its keys is one
// interval still. Blocks that no query of a panel sees are skipped, blocks that all see whole are
// not masked: a causal sequence costs half, a packed one the sum of its documents, and a part of
// keys that come later nothing. Where document ids of a row of keys are not nondecreasing, the
// bounds come from causality and window alone and ids are compared key by key.
//
// Order of sums: that of key blocks at fixed places, within one task. Backward takes a kv head as
// one task, so dk and dv gather over queries and query heads in one order. Results do not depend on
// threads.
//
// Memory: forward a constant per thread, backward 2 s (k + u) floats per thread (k, v, dk, dv of
// one kv head, with s keys).
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/compiler.h"        /* GW_MIN, GW_MAX */
#include "kernel/cpu/attention.h" /* gw_attn, gw_attn_core */
#include "kernel/kernel.h"        /* gw_kernel */
#include "ops/attention.h"        /* gw_attention_view, where operands stand */

/* The four ops. */
typedef enum attn_kind { FORWARD, BACKWARD, PART, PART_BACKWARD } attn_kind;

typedef struct attention {
    gw_attn a;
    attn_kind kind;
    const gw_attn_core *core;
    gw_runs at_q, at_k; /* indices along s */
    bool causal;
    int64_t window;
    const void *old[3]; /* accumulators that are not in the outputs' bytes, or NULL */
    float *work;        /* per thread `stride` floats */
    int64_t stride;
    int threads;
} attention;

static bool is_grad(attn_kind kind) { return kind == BACKWARD || kind == PART_BACKWARD; }
static bool is_part(attn_kind kind) { return kind == PART || kind == PART_BACKWARD; }

/* The accumulator of output i, or -1. */
static int acc_of(attn_kind kind, int i) {
    if (!is_part(kind)) return -1;
    return kind == PART ? 5 + i : 8 + i;
}

static bool supports(const gw_graph *g, const gw_op *o, attn_kind kind) {
    bool grad = is_grad(kind);
    int q0 = gw_attention_first(grad), docs = gw_attention_docs(grad);
    gw_dtype t = (gw_dtype)gw_type_of(g, gw_op_in(g, o, q0))->dtype;
    if (t != GW_F32 && t != GW_BF16 && t != GW_F16) return false;
    int floats = grad ? 5 : 3;
    for (int i = 0; i < floats; i++)
        if (gw_type_of(g, gw_op_in(g, o, i))->dtype != t) return false;
    gw_dtype results = is_part(kind) ? GW_F32 : t;
    if (gw_type_of(g, gw_op_out(g, o, 0))->dtype != results) return false;
    for (int i = docs; i < docs + 2; i++)
        if (gw_op_in(g, o, i) != GW_NONE && gw_type_of(g, gw_op_in(g, o, i))->dtype != GW_I32)
            return false;
    return gw_type_of(g, gw_op_in(g, o, q0))->dims[1].size < INT32_MAX;
}

static int64_t round64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes in front of the threads' parts: lo, hi, exact. */
static int64_t head_bytes(int64_t b, int64_t s) { return 2 * round64(b * s * 4) + round64(b); }

static int64_t thread_floats(int64_t sk, int64_t k, int64_t u, bool grad) {
    int64_t n = grad ? gw_attn_backward_floats(sk, k, u) : gw_attn_forward_floats(k, u);
    return (n + 15) / 16 * 16 + 16; /* a line between threads */
}

/* The longest part of dimension i that a rank holds: the first, wherever it has travelled. */
static int64_t longest(const gw_graph *g, gw_vid v, int i) {
    gw_type t = *gw_type_of(g, v);
    t.dims[i].turn = 0;
    return gw_type_local_dim(&t, i, &g->mesh, 0);
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m, attn_kind kind) {
    int q0 = gw_attention_first(is_grad(kind));
    gw_vid q = gw_op_in(g, o, q0), k = gw_op_in(g, o, q0 + 1), v = gw_op_in(g, o, q0 + 2);
    return head_bytes(longest(g, q, 0), longest(g, q, 1)) +
           m->threads * 4 *
               thread_floats(longest(g, k, 1), longest(g, k, 3), longest(g, v, 3), is_grad(kind));
}

/* Operands, results, and what is added to, where `k` has them. */
static void bind_data(const gw_kargs *k, attention *t) {
    attn_kind kind = t->kind;
    gw_attn *a = &t->a;
    int q0 = gw_attention_first(is_grad(kind)), docs = gw_attention_docs(is_grad(kind));
    a->q = k->in[q0].data;
    a->key = k->in[q0 + 1].data;
    a->v = k->in[q0 + 2].data;
    a->docs = docs < k->nin ? k->in[docs].data : NULL;
    a->kdocs = docs + 1 < k->nin && k->in[docs + 1].data ? k->in[docs + 1].data : a->docs;
    memset(t->old, 0, sizeof t->old);
    for (int i = 0; i < k->nout; i++) {
        int acc = acc_of(kind, i);
        bool has = acc >= 0 && acc < k->nin && k->in[acc].data;
        if (has && k->in[acc].data != k->out[i].data) t->old[i] = k->in[acc].data;
        if (is_grad(kind)) a->add[i] = has;
        if (!is_grad(kind)) a->merge = has;
    }
    a->results = k->out[0].dtype;
    if (!is_grad(kind)) {
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

static void bind(const gw_kargs *k, attention *t, attn_kind kind) {
    gw_attention_view w = gw_attention_view_of(k, is_grad(kind));
    t->a = (gw_attn){.b = w.batch,
                     .sq = w.queries,
                     .sk = w.keys,
                     .h = w.heads,
                     .g = w.groups,
                     .k = w.size,
                     .u = w.usize,
                     .per = w.per,
                     .h0 = w.first_head,
                     .g0 = w.first_group,
                     .dtype = w.q->dtype,
                     .scale = (float)w.scale};
    t->kind = kind;
    t->at_q = w.at_q;
    t->at_k = w.at_k;
    t->causal = w.causal;
    t->window = w.window;
    bind_data(k, t);
}

static gw_status prepare(const gw_kargs *k, gw_arena *arena, void **state, attn_kind kind) {
    attention *t = gw_arena_new(arena, attention, 1);
    bind(k, t, kind);
    gw_attn *a = &t->a;
    t->core = gw_attn_core_get();
    t->threads = k->threads;
    char *p = k->work;
    a->lo = (int32_t *)(void *)p;
    a->hi = (int32_t *)(void *)(p + round64(a->b * a->sq * 4));
    a->exact = (uint8_t *)(p + 2 * round64(a->b * a->sq * 4));
    t->work = (float *)(void *)(p + head_bytes(a->b, a->sq));
    t->stride = thread_floats(a->sk, a->k, a->u, is_grad(kind));
    *state = t;
    return GW_OK;
}

/* ---- who sees whom ---- */

/* How many of a rank's indices are below x. */
static int64_t below(const gw_runs *r, int64_t x) {
    int64_t n = 0;
    for (int i = 0; i < r->n; i++) n += GW_MIN(GW_MAX(x - r->first[i], 0), r->count[i]);
    return n;
}

/* The first of n nondecreasing ids that is not below `id` (after: that is above it). */
static int64_t search(const int32_t *ids, int64_t n, int32_t id, bool after) {
    int64_t lo = 0, hi = n;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (ids[mid] < id || (after && ids[mid] == id))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The visible range of each query of row b. */
static void find_bounds(const attention *t, int64_t b) {
    const gw_attn *a = &t->a;
    const int32_t *doc = a->docs ? a->docs + b * a->sq : NULL;
    const int32_t *kdoc = a->kdocs ? a->kdocs + b * a->sk : NULL;
    int32_t *lo = a->lo + b * a->sq, *hi = a->hi + b * a->sq;
    bool sorted = true;
    for (int64_t j = 1; doc && j < a->sk; j++) sorted &= kdoc[j] >= kdoc[j - 1];
    a->exact[b] = sorted;
    int64_t start = 0, end = a->sk;
    for (int64_t i = 0; i < a->sq; i++) {
        int64_t at = gw_runs_global(&t->at_q, i);
        if (doc && sorted && (i == 0 || doc[i] != doc[i - 1])) {
            start = search(kdoc, a->sk, doc[i], false);
            end = search(kdoc, a->sk, doc[i], true);
        }
        int64_t first = start, last = end;
        if (t->window > 0) first = GW_MAX(first, below(&t->at_k, at - t->window + 1));
        if (t->causal) last = GW_MIN(last, below(&t->at_k, at + 1));
        lo[i] = (int32_t)(first < last ? first : a->sk);
        hi[i] = (int32_t)(first < last ? last : 0);
    }
}

/* ---- launch ---- */

/* Accumulators that lie elsewhere. */
static void take_over(const attention *t, const gw_kargs *k) {
    for (int i = 0; i < k->nout; i++)
        if (t->old[i]) memcpy(k->out[i].data, t->old[i], (size_t)k->out[i].elems * sizeof(float));
}

/* Smaller tasks where there are few, so that all threads have some. The results are the same. */
static int64_t chunk_of(const attention *t) {
    int64_t chunk = GW_ATTN_CHUNK;
    while (chunk > 64 && t->a.b * t->a.h * ((t->a.sq + chunk - 1) / chunk) < 4 * t->threads)
        chunk /= 2;
    return chunk;
}

static gw_status forward_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)dg;
    attention *t = state;
    const gw_attn *a = &t->a;
    bind_data(k, t);
    take_over(t, k);
    for (int64_t b = 0; b < a->b; b++) find_bounds(t, b);
    int64_t chunk = chunk_of(t), chunks = (a->sq + chunk - 1) / chunk, heads = a->b * a->h;
#pragma omp parallel num_threads(t->threads)
    {
        float *work = t->work + omp_get_thread_num() * t->stride;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < heads * chunks; i++) {
            /* The last queries of a causal sequence have the most keys: long tasks first. */
            int64_t q0 = (chunks - 1 - i / heads) * chunk, head = i % heads;
            t->core->forward(a, head / a->h, head % a->h, q0, GW_MIN(q0 + chunk, a->sq), work);
        }
    }
    return GW_OK;
}

static gw_status backward_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)dg;
    attention *t = state;
    const gw_attn *a = &t->a;
    bind_data(k, t);
    take_over(t, k);
    for (int64_t b = 0; b < a->b; b++) find_bounds(t, b);
#pragma omp parallel num_threads(t->threads)
    {
        float *work = t->work + omp_get_thread_num() * t->stride;
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < a->b * a->g; i++) t->core->backward(a, i / a->g, i % a->g, work);
    }
    return GW_OK;
}

static void release(void *state) { (void)state; }

#define HOOKS(name, kind)                                                                          \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        (void)m;                                                                                   \
        return supports(g, o, kind);                                                               \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        return workspace(g, o, m, kind);                                                           \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        (void)dg;                                                                                  \
        return prepare(k, a, state, kind);                                                         \
    }
HOOKS(forward, FORWARD)
HOOKS(backward, BACKWARD)
HOOKS(part, PART)
HOOKS(part_backward, PART_BACKWARD)

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

const gw_kernel gw_kernel_cpu_attention_part = {
    .name = "cpu-attention-part",
    .op = "attention_part",
    .note = "as cpu-attention, from the running output of earlier blocks",
    .supports = part_supports,
    .workspace = part_workspace,
    .prepare = part_prepare,
    .launch = forward_launch,
    .release = release,
};

const gw_kernel gw_kernel_cpu_attention_part_grad = {
    .name = "cpu-attention-part-grad",
    .op = "attention_part_grad",
    .note = "as cpu-attention-grad, into float32 sums",
    .supports = part_backward_supports,
    .workspace = part_backward_workspace,
    .prepare = part_backward_prepare,
    .launch = backward_launch,
    .release = release,
};

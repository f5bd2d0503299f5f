// SPDX-License-Identifier: Apache-2.0
// Matrix products: the linear layers forward, their input gradients, and their weight gradients.
//
// matmul and matmul_dw are one computation: two operands contract the dimensions they share by
// name, and the result has the free dimensions of the first, then of the second. Each operand keeps
// its contracted dimensions together, either first or last (ops/contract.h), so it is a matrix that
// lies as [free, contracted] or [contracted, free], and strides say which: nothing is copied or
// transposed by us. What differs is the third operand: a bias over the second's free dimensions
// (matmul), or an accumulator that the result is added to in place (matmul_dw).
//
// Two kernels each. `onednn-*` hands the whole product to a oneDNN primitive made in prepare. It
// takes float32 anywhere and bf16 where the processor multiplies bf16 (AVX512-BF16, AMX); elsewhere
// the library has no bf16, or one that is slower than float32. `onednn-*-f32tiles` takes what is
// left (bf16 on other processors, f16, mixed operands): tiles of at most TILE x TILE elements are
// converted to float32 in planned workspace and multiplied there. Converting costs 2 TILE^2
// elements for 2 TILE^3 flops, so about 5 % at 1024, and the workspace does not grow with the
// shapes. float32 operands among mixed ones are used where they lie.
//
// Sums are float32 throughout, also across tiles: a bf16 result is rounded once. f64 is left to the
// reference.
#include <string.h>

#include "base/compiler.h"   /* GW_MIN */
#include "kernel/cpu/dnnl.h" /* gw_dnnl_product, gw_dnnl_sgemm */
#include "kernel/cpu/vec.h"  /* gw_vec_load, gw_vec_store */
#include "kernel/kernel.h"   /* gw_kernel */
#include "ops/contract.h"    /* gw_contract_local */

#define TILE 1024

/* c[m n] = a[m k] b[k n], + bias[n], + c where `add`. */
typedef struct product {
    int64_t m, n, k;
    gw_tensor a, b, c,
        extra; /* extra: bias or accumulator, data NULL if absent (and in a question) */
    bool a_k_first, b_k_first; /* stored [k m], [k n] */
    bool bias, acc;
} product;

/* Reads the product off bound tensors. */
static product product_of(const gw_kargs *k, bool dw) {
    gw_contract_sizes s = gw_contract_local(k);
    bool extra = k->nin > 2 && gw_op_in(k->g, k->op, 2) != GW_NONE;
    product p = {.m = s.m,
                 .n = s.n,
                 .k = s.k,
                 .a = k->in[0],
                 .b = k->in[1],
                 .c = k->out[0],
                 .a_k_first = s.a_k != 1,
                 .b_k_first = s.b_k != 1,
                 .bias = extra && !dw,
                 .acc = extra && dw};
    if (extra) p.extra = k->in[2];
    return p;
}

/* Its tensors lie where `k` has them now. */
static void move(product *p, const gw_kargs *k) {
    p->a.data = k->in[0].data;
    p->b.data = k->in[1].data;
    p->c.data = k->out[0].data;
    if (p->bias || p->acc) p->extra.data = k->in[2].data;
}

static void *no_data(void *user, gw_vid v) {
    (void)user, (void)v;
    return NULL;
}

static product question_of_rank(const gw_graph *g, const gw_op *o, bool dw, int64_t rank) {
    gw_tensor in[GW_MAX_IN], out[GW_MAX_OUT];
    gw_kargs k = {0};
    gw_kargs_bind(&k, g, o, in, out, no_data, NULL, rank);
    return product_of(&k, dw);
}

/* The same from a graph alone, with the shapes of rank 0 (which holds the longest shards). */
static product question_of(const gw_graph *g, const gw_op *o, bool dw) {
    return question_of_rank(g, o, dw, 0);
}

static gw_dnnl_spec spec_of(const product *p, int threads) {
    gw_dnnl_spec s = {.bias = p->bias ? p->extra.data : NULL,
                      .bias_dtype = p->extra.dtype,
                      .has_bias = p->bias,
                      .add = p->acc,
                      .threads = threads};
    s.a = (gw_dnnl_mat){
        p->a.data, p->a.dtype, p->m, p->k, p->a_k_first ? 1 : p->k, p->a_k_first ? p->m : 1};
    s.b = (gw_dnnl_mat){
        p->b.data, p->b.dtype, p->k, p->n, p->b_k_first ? p->n : 1, p->b_k_first ? 1 : p->k};
    s.c = (gw_dnnl_mat){p->c.data, p->c.dtype, p->m, p->n, p->n, 1};
    return s;
}

static bool is_small_float(gw_dtype t) { return t == GW_F32 || t == GW_BF16 || t == GW_F16; }

static bool empty(const product *p) { return p->m == 0 || p->n == 0 || p->k == 0; }

/* Nothing is summed: the result is the accumulator, the bias, or zero. All-zero bits are zero in
 * every dtype. */
static void fill_empty(const product *p) {
    int64_t size = gw_dtype_bits(p->c.dtype) / 8;
    if (!p->acc) memset(p->c.data, 0, (size_t)(p->c.elems * size));
    if (!p->bias) return;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            float x;
            gw_vec_load(&x, p->extra.data, p->extra.dtype, j, 1);
            gw_vec_store(p->c.data, p->c.dtype, i * p->n + j, &x, 1);
        }
}

/* An accumulator is the result's own bytes; where a caller gives others they are brought over
 * first. */
static void seed_accumulator(const product *p) {
    if (p->acc && p->extra.data != p->c.data)
        memcpy(p->c.data, p->extra.data, (size_t)(p->c.elems * (gw_dtype_bits(p->c.dtype) / 8)));
}

/* ---- the whole product by oneDNN ---- */

typedef struct direct {
    product p;
    gw_dnnl_product product;
    bool empty;
} direct;

static bool direct_supports(const gw_graph *g, const gw_op *o, const gw_machine *m, bool dw) {
    product p = question_of(g, o, dw);
    if (p.a.dtype != p.b.dtype) return false;
    if (p.a.dtype == GW_F32) {
        if (p.c.dtype != GW_F32 || (p.bias && p.extra.dtype != GW_F32)) return false;
    } else if (p.a.dtype == GW_BF16) {
        if (m->isa < GW_ISA_AVX512_BF16) return false;
        if (p.c.dtype != GW_F32 && p.c.dtype != GW_BF16) return false;
        if (p.bias && p.extra.dtype != GW_F32 && p.extra.dtype != GW_BF16) return false;
    } else {
        return false;
    }
    if (m->count_only || empty(&p)) return true;
    gw_dnnl_spec s = spec_of(&p, m->threads);
    return gw_dnnl_product_scratch(&s) >= 0;
}

/* On a machine we are not on, what oneDNN's kernels ask for at most: from AVX-512 on a packed copy
 * of the second operand, and a float32 result where it is rounded. Below, sgemm's kernels ask for
 * nothing. */
static int64_t direct_scratch_formula(const product *p, gw_isa isa) {
    if (isa < GW_ISA_AVX512) return 0;
    int64_t c = p->c.dtype == GW_F32 ? 0 : p->m * p->n * 4;
    return c + p->k * ((p->n + 63) / 64 * 64) * (gw_dtype_bits(p->b.dtype) / 8);
}

/* Every rank has the same lengths. */
static bool is_even(const gw_graph *g, const gw_op *o) {
    for (int i = 0; i < 2; i++) {
        const gw_type *t = gw_type_of(g, gw_op_in(g, o, i));
        for (int d = 0; d < t->ndim; d++)
            if (!gw_type_even(t, d, &g->mesh)) return false;
    }
    return true;
}

/* The most that any rank's shape asks for: shorter parts may get another kernel of the library. */
static int64_t direct_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m, bool dw) {
    product p = question_of(g, o, dw);
    if (empty(&p)) return 0;
    if (m->count_only) return direct_scratch_formula(&p, m->isa);
    gw_dnnl_spec s = spec_of(&p, m->threads);
    int64_t bytes = GW_MAX(gw_dnnl_product_scratch(&s), 0);
    for (int64_t r = 1; !is_even(g, o) && r < gw_mesh_ranks(&g->mesh); r++) {
        product q = question_of_rank(g, o, dw, r);
        if (empty(&q) || (q.m == p.m && q.n == p.n && q.k == p.k)) continue;
        s = spec_of(&q, m->threads);
        bytes = GW_MAX(bytes, gw_dnnl_product_scratch(&s));
        p = q;
    }
    return bytes;
}

static gw_status direct_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg,
                                bool dw) {
    direct *d = gw_arena_new(a, direct, 1);
    *state = d;
    d->p = product_of(k, dw);
    d->empty = empty(&d->p);
    if (d->empty) return GW_OK;
    gw_dnnl_spec s = spec_of(&d->p, k->threads);
    return gw_dnnl_product_make(&d->product, &s, k->work, dg);
}

static gw_status direct_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    direct *d = state;
    product *p = &d->p;
    move(p, k);
    seed_accumulator(p);
    if (d->empty) {
        fill_empty(p);
        return GW_OK;
    }
    GW_TRY(gw_dnnl_product_move(&d->product, p->a.data, p->b.data, p->c.data,
                                p->bias ? p->extra.data : NULL, dg));
    return gw_dnnl_product_run(&d->product, dg);
}

static void direct_release(void *state) {
    if (state) gw_dnnl_product_release(&((direct *)state)->product);
}

/* ---- tiles in float32 ---- */

typedef struct tiled {
    product p;
    float *a, *b, *c; /* TILE x TILE each, in the workspace */
    int threads;
} tiled;

static bool tiled_supports(const gw_graph *g, const gw_op *o, bool dw) {
    product p = question_of(g, o, dw);
    return is_small_float(p.a.dtype) && is_small_float(p.b.dtype) && is_small_float(p.c.dtype) &&
           (!p.bias || is_small_float(p.extra.dtype));
}

static int64_t tile_floats(int64_t rows, int64_t cols) {
    return (GW_MIN(rows, TILE) * GW_MIN(cols, TILE) + 15) / 16 * 16;
}

static int64_t tiled_workspace(const gw_graph *g, const gw_op *o, bool dw) {
    product p = question_of(g, o, dw);
    return 4 * (tile_floats(p.m, p.k) + tile_floats(p.k, p.n) + tile_floats(p.m, p.n));
}

/* A matrix of floats ready for sgemm. */
typedef struct fmat {
    const float *data;
    int64_t ld;
} fmat;

/* Rows r0.. x columns c0.. of a row-major matrix with `ld` columns, as floats: in place, or through
 * `buf`. */
static fmat take_tile(const gw_tensor *t, int64_t ld, int64_t r0, int64_t rows, int64_t c0,
                      int64_t cols, float *buf, int threads) {
    if (t->dtype == GW_F32) return (fmat){(const float *)t->data + r0 * ld + c0, ld};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        gw_vec_load(buf + i * cols, t->data, t->dtype, (r0 + i) * ld + c0, cols);
    return (fmat){buf, cols};
}

/* Fills a tile of c before its first product: with the accumulator, the bias, or nothing. Returns
 * beta. */
static float begin_tile(const tiled *s, int64_t i0, int64_t m, int64_t j0, int64_t n, float *c,
                        int64_t ldc) {
    const product *p = &s->p;
    if (!p->acc && !p->bias) return 0.0f;
    if (p->acc && p->c.dtype == GW_F32) return 1.0f;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < m; i++) {
        if (p->bias)
            gw_vec_load(c + i * ldc, p->extra.data, p->extra.dtype, j0, n);
        else
            gw_vec_load(c + i * ldc, p->c.data, p->c.dtype, (i0 + i) * p->n + j0, n);
    }
    return 1.0f;
}

static void end_tile(const tiled *s, int64_t i0, int64_t m, int64_t j0, int64_t n) {
    const product *p = &s->p;
    if (p->c.dtype == GW_F32) return;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < m; i++)
        gw_vec_store(p->c.data, p->c.dtype, (i0 + i) * p->n + j0, s->c + i * n, n);
}

static gw_status one_tile(const tiled *s, int64_t i0, int64_t m, int64_t j0, int64_t n,
                          gw_diags *dg) {
    const product *p = &s->p;
    bool in_place = p->c.dtype == GW_F32;
    float *c = in_place ? (float *)p->c.data + i0 * p->n + j0 : s->c;
    int64_t ldc = in_place ? p->n : n;
    float beta = begin_tile(s, i0, m, j0, n, c, ldc);
    for (int64_t k0 = 0; k0 < p->k; k0 += TILE) {
        int64_t k = GW_MIN(TILE, p->k - k0);
        fmat a = p->a_k_first ? take_tile(&p->a, p->m, k0, k, i0, m, s->a, s->threads)
                              : take_tile(&p->a, p->k, i0, m, k0, k, s->a, s->threads);
        fmat b = p->b_k_first ? take_tile(&p->b, p->n, k0, k, j0, n, s->b, s->threads)
                              : take_tile(&p->b, p->k, j0, n, k0, k, s->b, s->threads);
        GW_TRY(gw_dnnl_sgemm(p->a_k_first, !p->b_k_first, m, n, k, a.data, a.ld, b.data, b.ld, beta,
                             c, ldc, s->threads, dg));
        beta = 1.0f;
    }
    end_tile(s, i0, m, j0, n);
    return GW_OK;
}

static gw_status tiled_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg,
                               bool dw) {
    tiled *s = gw_arena_new(a, tiled, 1);
    *state = s;
    (void)dg;
    s->p = product_of(k, dw);
    s->threads = k->threads;
    s->a = k->work;
    s->b = s->a + tile_floats(s->p.m, s->p.k);
    s->c = s->b + tile_floats(s->p.k, s->p.n);
    return GW_OK;
}

static gw_status tiled_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    tiled *s = state;
    const product *p = &s->p;
    move(&s->p, k);
    seed_accumulator(p);
    if (empty(p)) {
        fill_empty(p);
        return GW_OK;
    }
    for (int64_t i = 0; i < p->m; i += TILE)
        for (int64_t j = 0; j < p->n; j += TILE)
            GW_TRY(one_tile(s, i, GW_MIN(TILE, p->m - i), j, GW_MIN(TILE, p->n - j), dg));
    return GW_OK;
}

static void tiled_release(void *state) { (void)state; }

/* ---- the four kernels ---- */

#define DIRECT_HOOKS(name, dw)                                                                     \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        return direct_supports(g, o, m, dw);                                                       \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        return direct_workspace(g, o, m, dw);                                                      \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        return direct_prepare(k, a, state, dg, dw);                                                \
    }
DIRECT_HOOKS(matmul, false)
DIRECT_HOOKS(matmul_dw, true)

#define TILED_HOOKS(name, dw)                                                                      \
    static bool name##_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {          \
        (void)m;                                                                                   \
        return tiled_supports(g, o, dw);                                                           \
    }                                                                                              \
    static int64_t name##_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {      \
        (void)m;                                                                                   \
        return tiled_workspace(g, o, dw);                                                          \
    }                                                                                              \
    static gw_status name##_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {  \
        return tiled_prepare(k, a, state, dg, dw);                                                 \
    }
TILED_HOOKS(tiled_matmul, false)
TILED_HOOKS(tiled_matmul_dw, true)

const gw_kernel gw_kernel_onednn_matmul = {
    .name = "onednn-matmul",
    .op = "matmul",
    .note = "oneDNN matmul on strided operands, bias fused",
    .supports = matmul_supports,
    .workspace = matmul_workspace,
    .prepare = matmul_prepare,
    .launch = direct_launch,
    .release = direct_release,
};

const gw_kernel gw_kernel_onednn_matmul_f32tiles = {
    .name = "onednn-matmul-f32tiles",
    .op = "matmul",
    .note = "tiles converted to float32 in workspace, oneDNN sgemm",
    .supports = tiled_matmul_supports,
    .workspace = tiled_matmul_workspace,
    .prepare = tiled_matmul_prepare,
    .launch = tiled_launch,
    .release = tiled_release,
};

const gw_kernel gw_kernel_onednn_matmul_dw = {
    .name = "onednn-matmul-dw",
    .op = "matmul_dw",
    .note = "oneDNN matmul, added into the accumulator in place (sum post-op)",
    .supports = matmul_dw_supports,
    .workspace = matmul_dw_workspace,
    .prepare = matmul_dw_prepare,
    .launch = direct_launch,
    .release = direct_release,
};

const gw_kernel gw_kernel_onednn_matmul_dw_f32tiles = {
    .name = "onednn-matmul-dw-f32tiles",
    .op = "matmul_dw",
    .note = "tiles converted to float32 in workspace, oneDNN sgemm into the accumulator",
    .supports = tiled_matmul_dw_supports,
    .workspace = tiled_matmul_dw_workspace,
    .prepare = tiled_matmul_dw_prepare,
    .launch = tiled_launch,
    .release = tiled_release,
};

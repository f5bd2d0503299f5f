// SPDX-License-Identifier: Apache-2.0
// fp8_matmul and fp8_matmul_dw on CPUs: emulated, by float32 products of 128 contracted elements.
//
// No CPU that this runs on multiplies eight-bit floats, so a tile of the result is made as the op
// is defined: for each block of contracted elements both operands are turned into float32, without
// their scales, in workspace; sgemm multiplies them; and the product, times the two scales of each
// element, is added to the tile in float32. Bias or accumulator come last.
//
// The steps are the reference's but one: sgemm sums the up to 128 products of a block in float32,
// in an order of its own, where the reference rounds their exact sum once. Hence the bound, with u
// = 2^-24 and blocks of c elements: |y - reference| <= sum over blocks of 2 c u |scale| sum |x||w|
// (+ as much of the float32 sum over blocks as that moves, + a rounding step of y's dtype). Whole
// numbers are exact, and there the two agree bit for bit.
//
// A tile is TILE x TILE; with one block of both operands, their product and the sum that is 3/4
// MiB, which stays in a core's cache. Converting costs 2 TILE c elements for 2 TILE^2 c FLOPs.
#include <string.h>

#include "base/compiler.h"       /* GW_MIN, GW_CLONES */
#include "kernel/cpu/dnnl.h"     /* gw_dnnl_sgemm */
#include "kernel/cpu/fp8.h"      /* gw_fp8_load */
#include "kernel/cpu/vec_more.h" /* gw_vec_shape_of, gw_vec_load */
#include "ops/fp8.h"             /* gw_fp8_product_of */

GW_NO_CONTRACT

enum { TILE = 256, EXTRA = 4 };

typedef struct emulation {
    gw_fp8_product p;
    gw_tensor c, extra; /* extra: bias or accumulator; data NULL if absent */
    bool dw;
    float *a, *b, *part, *sum, *sa, *sb; /* in the workspace */
    int threads;
} emulation;

static int64_t floats(int64_t n) { return (n + 15) / 16 * 16; }

typedef struct room {
    int64_t a, b, c, sa, sb; /* floats */
} room;

static room room_for(const gw_fp8_product *p) {
    int64_t m = GW_MIN(p->m, TILE), n = GW_MIN(p->n, TILE), k = GW_MIN(p->inner, GW_FP8_BLOCK);
    return (room){floats(m * k), floats(n * k), floats(m * n), floats(m), floats(n)};
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    gw_fp8_product p = gw_fp8_product_of(&s.k);
    room r = room_for(&p);
    return 4 * (r.a + r.b + 2 * r.c + r.sa + r.sb);
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_is_float(gw_vec_out_type(g, o, 0)) &&
           (!gw_vec_given(g, o, EXTRA) || gw_vec_is_float(gw_vec_in_type(g, o, EXTRA)));
}

/* The operands, where `k` has them. */
static void bind(emulation *e, const gw_kargs *k) {
    e->p = gw_fp8_product_of(k);
    e->c = k->out[0];
    if (k->nin > EXTRA) e->extra = k->in[EXTRA];
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)dg;
    emulation *e = gw_arena_new(a, emulation, 1);
    *state = e;
    bind(e, k);
    e->dw = gw_op_is(k->g, k->op, "fp8_matmul_dw");
    e->threads = k->threads;
    room r = room_for(&e->p);
    e->a = k->work;
    e->b = e->a + r.a;
    e->part = e->b + r.b;
    e->sum = e->part + r.c;
    e->sa = e->sum + r.c;
    e->sb = e->sa + r.sa;
    return GW_OK;
}

/* Rows i0.. of `o`, elements first.. of k, as float: [rows count], or [count rows] where leading.
 */
static void load(const gw_fp8_operand *o, int64_t k, int64_t i0, int64_t rows, int64_t first,
                 int64_t count, float *dst, int threads) {
    int64_t lines = o->leading ? count : rows, width = o->leading ? rows : count;
    int64_t stride = o->leading ? o->free : k, at = o->leading ? i0 : first;
    int64_t from = o->leading ? first : i0;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * count > GW_VEC_TASK)
    for (int64_t i = 0; i < lines; i++)
        gw_fp8_load(dst + i * width, o->values + (from + i) * stride + at, o->format, width);
}

static void scales(const gw_fp8_operand *o, int64_t blocks, int64_t q, int64_t i0, int64_t rows,
                   float *dst) {
    for (int64_t i = 0; i < rows; i++) dst[i] = gw_fp8_scale_at(o, blocks, i0 + i, q);
}

GW_CLONES static void add_line(float *GW_RESTRICT sum, const float *GW_RESTRICT part,
                               const float *GW_RESTRICT sb, float sa, int64_t n) {
    for (int64_t j = 0; j < n; j++) sum[j] += sa * sb[j] * part[j];
}

static gw_status add_block(const emulation *e, int64_t q, int64_t i0, int64_t m, int64_t j0,
                           int64_t n, gw_diags *dg) {
    const gw_fp8_product *p = &e->p;
    int64_t first, count;
    gw_fp8_block_of(p, q, &first, &count);
    load(&p->a, p->k, i0, m, first, count, e->a, e->threads);
    load(&p->b, p->k, j0, n, first, count, e->b, e->threads);
    scales(&p->a, p->blocks, q, i0, m, e->sa);
    scales(&p->b, p->blocks, q, j0, n, e->sb);
    GW_TRY(gw_dnnl_sgemm(p->a.leading, !p->b.leading, m, n, count, e->a, p->a.leading ? m : count,
                         e->b, p->b.leading ? n : count, 0.0f, e->part, n, e->threads, dg));
#pragma omp parallel for num_threads(e->threads) schedule(static) if (m * n > GW_VEC_TASK)
    for (int64_t i = 0; i < m; i++) add_line(e->sum + i * n, e->part + i * n, e->sb, e->sa[i], n);
    return GW_OK;
}

/* Rows of the finished tile, with bias or accumulator, into the result. */
static void finish(const emulation *e, int64_t i0, int64_t m, int64_t j0, int64_t n) {
    float extra[TILE];
    for (int64_t i = 0; i < m; i++) {
        int64_t at = (i0 + i) * e->p.n + j0;
        float *line = e->sum + i * n;
        if (e->extra.data) {
            gw_vec_load(extra, e->extra.data, e->extra.dtype, e->dw ? at : j0, n);
            for (int64_t j = 0; j < n; j++) line[j] += extra[j];
        }
        gw_vec_store(e->c.data, e->c.dtype, at, line, n);
    }
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    emulation *e = state;
    const gw_fp8_product *p = &e->p;
    bind(e, k);
    for (int64_t i = 0; i < p->m; i += TILE)
        for (int64_t j = 0; j < p->n; j += TILE) {
            int64_t m = GW_MIN(TILE, p->m - i), n = GW_MIN(TILE, p->n - j);
            memset(e->sum, 0, (size_t)(m * n) * sizeof(float));
            for (int64_t q = 0; q < p->blocks; q++) GW_TRY(add_block(e, q, i, m, j, n, dg));
            finish(e, i, m, j, n);
        }
    return GW_OK;
}

static void release(void *state) { (void)state; }

const gw_kernel gw_kernel_cpu_fp8_matmul = {
    .name = "cpu-fp8-matmul",
    .op = "fp8_matmul",
    .note = "emulated: blocks of 128 as float32 in workspace, oneDNN sgemm, scaled float32 sums",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .launch = launch,
    .release = release,
};

const gw_kernel gw_kernel_cpu_fp8_matmul_dw = {
    .name = "cpu-fp8-matmul-dw",
    .op = "fp8_matmul_dw",
    .note = "emulated: as cpu-fp8-matmul, added into the accumulator",
    .supports = supports,
    .workspace = workspace,
    .prepare = prepare,
    .launch = launch,
    .release = release,
};

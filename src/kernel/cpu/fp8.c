// SPDX-License-Identifier: Apache-2.0
// fp8_quant and fp8_dequant on CPUs: vector loops, equal to the reference bit for bit.
//
// Two shapes of blocks exist, by where the dimension lies whose 128s share a scale. With the last
// dimension blocked a block is one run of 128 bytes (activations), or 128 such runs a stride apart
// (weights, whose other blocked dimension stands before). With another dimension alone (tokens), a
// block is a column: 128 rows are taken together, COLUMNS columns at a time, and each column has
// its own maximum and its own scale, side by side in vector registers.
//
// Everything here is order-free: a maximum, a division, a rounding of one element; so threads and
// vector width change nothing. No CPU multiplies these formats; what they cost here says nothing
// about a machine that does.
#include "kernel/cpu/fp8.h"

#include <math.h>
#include <string.h>

#include "base/fp8.h"            /* gw_f8e4m3_from_f32 */
#include "base/panic.h"          /* GW_ASSERT */
#include "kernel/cpu/vec_more.h" /* gw_vec_load, GW_VEC_KERNEL */
#include "ops/fp8.h"             /* gw_fp8_steps, gw_fp8_scale */

GW_VECTORIZE

enum { B = GW_FP8_BLOCK, COLUMNS = 64 };

/* ---- runs ---- */

GW_CLONES static void load_e4m3(float *GW_RESTRICT dst, const uint8_t *GW_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_f8e4m3_to_f32((gw_f8e4m3){src[i]});
}

GW_CLONES static void load_e5m2(float *GW_RESTRICT dst, const uint8_t *GW_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = gw_f8e5m2_to_f32((gw_f8e5m2){src[i]});
}

void gw_fp8_load(float *dst, const uint8_t *src, gw_dtype format, int64_t n) {
    if (format == GW_F8E4M3)
        load_e4m3(dst, src, n);
    else
        load_e5m2(dst, src, n);
}

/* |x| as ordered bits, 0 where x is not finite. */
static GW_ALWAYS_INLINE uint32_t magnitude(float x) {
    uint32_t u = gw_f32_bits(x) & 0x7fffffffu;
    return u < 0x7f800000u ? u : 0;
}

/* x where it is finite, else NaN. */
static GW_ALWAYS_INLINE float finite_or_nan(float x) {
    uint32_t u = gw_f32_bits(x);
    return gw_f32_from_bits((u & 0x7fffffffu) < 0x7f800000u ? u : 0x7fc00000u);
}

GW_CLONES static uint32_t run_max(const float *GW_RESTRICT x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) most = GW_MAX(most, magnitude(x[i]));
    return most;
}

GW_CLONES static void store_e4m3(uint8_t *GW_RESTRICT y, const float *GW_RESTRICT x,
                                 const float *GW_RESTRICT scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gw_f8e4m3_from_f32(finite_or_nan(x[i]) / scale[i]).bits;
}

GW_CLONES static void store_e5m2(uint8_t *GW_RESTRICT y, const float *GW_RESTRICT x,
                                 const float *GW_RESTRICT scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = gw_f8e5m2_from_f32(finite_or_nan(x[i]) / scale[i]).bits;
}

/* y[0..n) = x / scale[0..n), rounded. */
static void store(uint8_t *y, const float *x, const float *scale, gw_dtype format, int64_t n) {
    if (format == GW_F8E4M3)
        store_e4m3(y, x, scale, n);
    else
        store_e5m2(y, x, scale, n);
}

GW_CLONES static void column_max(uint32_t *GW_RESTRICT most, const float *GW_RESTRICT x,
                                 int64_t n) {
    for (int64_t i = 0; i < n; i++) most[i] = GW_MAX(most[i], magnitude(x[i]));
}

GW_CLONES static void times(float *GW_RESTRICT x, const float *GW_RESTRICT scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] *= scale[i];
}

/* ---- shapes ---- */

/* A tensor as [before, row, between, last] with blocks of `rows` (1 or 128) along row and of 128
 * along last; or, columns, as [before, row, last] with blocks of 128 along row alone. */
typedef struct shape {
    bool columns;
    int64_t before, row, between, last, rows;
} shape;

static int64_t product_of(const gw_tensor *t, int from, int to) {
    int64_t n = 1;
    for (int i = from; i < to; i++) n *= t->dims[i];
    return n;
}

/* False where no loop here is made for it. */
static bool shape_of(const gw_type *values, const gw_type *scales, const gw_tensor *v, shape *s) {
    int64_t step[GW_MAX_DIMS];
    int last = v->ndim - 1, other = -1, n = 0;
    if (!gw_fp8_steps(values, scales, step)) return false;
    for (int i = 0; i < last; i++)
        if (step[i] > 1) other = i, n++;
    if (n > 1 || last < 0) return false;
    if (other < 0 && step[last] == 1) { /* blocks of one: a column each */
        *s = (shape){.columns = true, .before = 1, .row = 1, .between = 1, .last = v->elems};
        return true;
    }
    bool run = step[last] > 1;
    int at = other < 0 ? 0 : other;
    *s = (shape){.columns = !run, .before = product_of(v, 0, at), .rows = other < 0 ? 1 : B};
    if (at == last) { /* one dimension */
        s->row = s->between = 1;
        s->last = v->dims[last];
    } else if (run) {
        s->row = v->dims[at];
        s->between = product_of(v, at + 1, last);
        s->last = v->dims[last];
    } else {
        s->row = v->dims[at];
        s->between = 1;
        s->last = product_of(v, at + 1, v->ndim);
    }
    return true;
}

/* One block of scales: scale index, first element, run length, runs and the stride between them. */
typedef struct block {
    int64_t scale, first, n, runs, stride;
} block;

static int64_t blocks_along(int64_t n, int64_t step) { return (n + step - 1) / step; }

static int64_t count_blocks(const shape *s) {
    int64_t across = s->columns ? blocks_along(s->last, COLUMNS) : gw_fp8_blocks(s->last);
    return s->before * blocks_along(s->row, s->columns ? B : s->rows) * s->between * across;
}

/* Block i of count_blocks; of columns, a strip of up to COLUMNS of them. */
static block block_at(const shape *s, int64_t i) {
    int64_t width = s->columns ? COLUMNS : B, height = s->columns ? B : s->rows;
    int64_t nl = blocks_along(s->last, width), nr = blocks_along(s->row, height);
    int64_t l = i % nl, m = i / nl % s->between, r = i / nl / s->between % nr,
            p = i / nl / s->between / nr;
    block b = {.n = GW_MIN(width, s->last - l * width),
               .runs = GW_MIN(height, s->row - r * height),
               .stride = s->between * s->last};
    b.first = ((p * s->row + r * height) * s->between + m) * s->last + l * width;
    b.scale = ((p * nr + r) * s->between + m) * (s->columns ? s->last : nl) +
              (s->columns ? l * width : l);
    return b;
}

/* Blocks that a thread takes at once: some 16 K elements. */
static int64_t grain(const shape *s) {
    int64_t each = s->columns ? B * COLUMNS : s->rows * B;
    return GW_MAX(1, GW_VEC_TASK / each);
}

/* ---- fp8_quant ---- */

static void quant_run_block(const gw_kargs *k, const block *b, bool pow2) {
    const gw_tensor *x = &k->in[0];
    gw_dtype format = k->out[0].dtype;
    float buf[B], scale[B];
    uint32_t most = 0;
    for (int64_t r = 0; r < b->runs; r++) {
        gw_vec_load(buf, x->data, x->dtype, b->first + r * b->stride, b->n);
        most = GW_MAX(most, run_max(buf, b->n));
    }
    float s = gw_fp8_scale(gw_f32_from_bits(most), format, pow2);
    ((float *)k->out[1].data)[b->scale] = s;
    for (int64_t i = 0; i < b->n; i++) scale[i] = s;
    for (int64_t r = 0; r < b->runs; r++) {
        int64_t at = b->first + r * b->stride;
        gw_vec_load(buf, x->data, x->dtype, at, b->n);
        store((uint8_t *)k->out[0].data + at, buf, scale, format, b->n);
    }
}

static void quant_columns(const gw_kargs *k, const block *b, bool pow2) {
    const gw_tensor *x = &k->in[0];
    gw_dtype format = k->out[0].dtype;
    float buf[COLUMNS], *scale = (float *)k->out[1].data + b->scale;
    uint32_t most[COLUMNS] = {0};
    for (int64_t r = 0; r < b->runs; r++) {
        gw_vec_load(buf, x->data, x->dtype, b->first + r * b->stride, b->n);
        column_max(most, buf, b->n);
    }
    for (int64_t i = 0; i < b->n; i++)
        scale[i] = gw_fp8_scale(gw_f32_from_bits(most[i]), format, pow2);
    for (int64_t r = 0; r < b->runs; r++) {
        int64_t at = b->first + r * b->stride;
        gw_vec_load(buf, x->data, x->dtype, at, b->n);
        store((uint8_t *)k->out[0].data + at, buf, scale, format, b->n);
    }
}

static bool shape_of_kargs(const gw_kargs *k, gw_vid values, gw_vid scales, const gw_tensor *v,
                           shape *s) {
    return shape_of(gw_type_of(k->g, values), gw_type_of(k->g, scales), v, s);
}

static gw_status quant_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    shape s;
    bool ok =
        shape_of_kargs(k, gw_op_out(k->g, k->op, 0), gw_op_out(k->g, k->op, 1), &k->out[0], &s);
    GW_ASSERT(ok);
    bool pow2 = gw_op_attr_named(k->g, k->op, "pow2").i != 0;
    if (k->in[0].elems == 0) return GW_OK;
    int64_t n = count_blocks(&s), each = grain(&s);
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > each)
    for (int64_t i = 0; i < n; i += each)
        for (int64_t j = i; j < GW_MIN(n, i + each); j++) {
            block b = block_at(&s, j);
            if (s.columns)
                quant_columns(k, &b, pow2);
            else
                quant_run_block(k, &b, pow2);
        }
    return GW_OK;
}

static bool quant_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape v;
    shape s;
    gw_vec_shape_of(&v, g, o);
    return gw_vec_is_float(gw_vec_in_type(g, o, 0)) &&
           shape_of_kargs(&v.k, gw_op_out(g, o, 0), gw_op_out(g, o, 1), &v.out[0], &s);
}

/* ---- fp8_dequant ---- */

static void dequant_block(const gw_kargs *k, const block *b, bool columns) {
    const gw_tensor *y = &k->out[0];
    const float *from = (const float *)k->in[1].data + b->scale;
    float buf[B], scale[B];
    for (int64_t i = 0; i < b->n; i++) scale[i] = columns ? from[i] : from[0];
    for (int64_t r = 0; r < b->runs; r++) {
        int64_t at = b->first + r * b->stride;
        gw_fp8_load(buf, (const uint8_t *)k->in[0].data + at, k->in[0].dtype, b->n);
        times(buf, scale, b->n);
        gw_vec_store(y->data, y->dtype, at, buf, b->n);
    }
}

static gw_status dequant_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    shape s;
    bool ok = shape_of_kargs(k, gw_op_in(k->g, k->op, 0), gw_op_in(k->g, k->op, 1), &k->in[0], &s);
    GW_ASSERT(ok);
    if (k->in[0].elems == 0) return GW_OK;
    int64_t n = count_blocks(&s), each = grain(&s);
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > each)
    for (int64_t i = 0; i < n; i += each)
        for (int64_t j = i; j < GW_MIN(n, i + each); j++) {
            block b = block_at(&s, j);
            dequant_block(k, &b, s.columns);
        }
    return GW_OK;
}

static bool dequant_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape v;
    shape s;
    gw_vec_shape_of(&v, g, o);
    return gw_vec_is_float(gw_vec_out_type(g, o, 0)) &&
           shape_of_kargs(&v.k, gw_op_in(g, o, 0), gw_op_in(g, o, 1), &v.in[0], &s);
}

GW_VEC_KERNEL(fp8_quant, "fp8_quant", "emulated: vector loops over float32", quant_supports,
              gw_vec_no_workspace, quant_launch);
GW_VEC_KERNEL(fp8_dequant, "fp8_dequant", "emulated: vector loops over float32", dequant_supports,
              gw_vec_no_workspace, dequant_launch);

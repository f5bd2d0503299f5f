// SPDX-License-Identifier: Apache-2.0
// The small ops whose cost is their bytes: add, addn, cast, zeros, pick, cache_put, bias_grad,
// sqnorm.
//
// Each is a loop over fixed tasks of GW_VEC_TASK elements, shared out statically. add and addn may
// run in place: all reads of a block come before its writes. addn sums in float32 in the order of
// its inputs and rounds once. sqnorm squares and adds in float64, in four chains of vectors a task,
// and adds the tasks' sums in order: float32 squares would overflow at 1.8e19 and lose small
// gradients below 1e-23. bias_grad sums rows by fixed blocks (vec_more.h).
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH, gw_vec_sum_parts */

/* Copies n bytes shared out over threads. */
static void copy_bytes(void *dst, const void *src, int64_t n, int threads) {
    int64_t step = 4 * GW_VEC_TASK;
#pragma omp parallel for num_threads(threads) schedule(static) if (n > step)
    for (int64_t i = 0; i < n; i += step)
        memcpy((char *)dst + i, (const char *)src + i, (size_t)GW_MIN(step, n - i));
}

/* ---- add, addn ---- */

typedef void add_fn(void *y, const void *a, const void *b, int64_t i0, int64_t i1);
typedef void sum_fn(float *sum, const void *a, int64_t first, int64_t n);

static GW_ALWAYS_INLINE void add_any(void *y, const void *a, const void *b, int64_t i0, int64_t i1,
                                     gw_dtype t) {
#pragma omp simd
    for (int64_t i = i0; i < i1; i++)
        gw_vec_put(y, t, i, gw_vec_get(a, t, i) + gw_vec_get(b, t, i));
}

static GW_ALWAYS_INLINE void sum_any(float *GW_RESTRICT sum, const void *GW_RESTRICT a,
                                     int64_t first, int64_t n, gw_dtype t) {
    for (int64_t i = 0; i < n; i++) sum[i] += gw_vec_get(a, t, first + i);
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void add_##suffix(void *y, const void *a, const void *b, int64_t i0,          \
                                       int64_t i1) {                                               \
        add_any(y, a, b, i0, i1, T);                                                               \
    }                                                                                              \
    GW_CLONES static void sum_##suffix(float *sum, const void *a, int64_t first, int64_t n) {      \
        sum_any(sum, a, first, n, T);                                                              \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(add_fn, add)
GW_VEC_TABLE(sum_fn, sum)

static bool floats_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, UINT32_MAX);
}

static gw_status add_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *y = &k->out[0];
    const void *a = k->in[0].data, *b = k->in[1].data;
    int64_t n = y->elems;
    add_fn *fn = add_of[y->dtype];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_TASK) fn(y->data, a, b, i, GW_MIN(n, i + GW_VEC_TASK));
    return GW_OK;
}

static gw_status addn_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *y = &k->out[0];
    int64_t n = y->elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_BLOCK) {
        float sum[GW_VEC_BLOCK];
        int64_t m = GW_MIN(GW_VEC_BLOCK, n - i);
        gw_vec_load(sum, k->in[0].data, y->dtype, i, m);
        for (int j = 1; j < k->nin; j++) sum_of[y->dtype](sum, k->in[j].data, i, m);
        gw_vec_store(y->data, y->dtype, i, sum, m);
    }
    return GW_OK;
}

/* ---- cast, zeros ---- */

static bool cast_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x1);
}

static void cast_task(const gw_tensor *y, const gw_tensor *x, int64_t i, int64_t n) {
    if (x->dtype == GW_F32) {
        gw_vec_store(y->data, y->dtype, i, (const float *)x->data + i, n);
    } else if (y->dtype == GW_F32) {
        gw_vec_load((float *)y->data + i, x->data, x->dtype, i, n);
    } else {
        float buf[GW_VEC_BLOCK];
        for (int64_t j = 0; j < n; j += GW_VEC_BLOCK) {
            int64_t m = GW_MIN(GW_VEC_BLOCK, n - j);
            gw_vec_load(buf, x->data, x->dtype, i + j, m);
            gw_vec_store(y->data, y->dtype, i + j, buf, m);
        }
    }
}

static gw_status cast_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    int64_t n = y->elems;
    if (x->dtype == y->dtype) {
        copy_bytes(y->data, x->data, n * gw_vec_size(x->dtype), k->threads);
        return GW_OK;
    }
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_TASK) cast_task(y, x, i, GW_MIN(GW_VEC_TASK, n - i));
    return GW_OK;
}

static bool any_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return true;
}

/* All-zero bits are zero in every dtype. */
static gw_status zeros_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t n = k->out[0].elems * (gw_dtype_bits(k->out[0].dtype) / 8), step = 4 * GW_VEC_TASK;
    char *y = k->out[0].data;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > step)
    for (int64_t i = 0; i < n; i += step) memset(y + i, 0, (size_t)GW_MIN(step, n - i));
    return GW_OK;
}

/* ---- pick, cache_put ---- */

static gw_status pick_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0];
    int64_t s = x->dims[1], bytes = x->dims[2] * (gw_dtype_bits(x->dtype) / 8);
    char *y = k->out[0].data;
    for (int64_t b = 0; b < x->dims[0]; b++) {
        int64_t at = gw_vec_int(&k->in[1], b);
        if (at >= 0 && at < s)
            memcpy(y + b * bytes, (const char *)x->data + (b * s + at) * bytes, (size_t)bytes);
        else
            memset(y + b * bytes, 0, (size_t)bytes);
    }
    return GW_OK;
}

static bool put_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_in_type(g, o, 0) == gw_vec_in_type(g, o, 1);
}

/* A sequence is one task, so that of two rows for one position the later stands. */
static void put_sequence(const gw_kargs *k, int64_t b) {
    const gw_tensor *cache = &k->out[0], *x = &k->in[1];
    int64_t t = cache->dims[1], s = x->dims[1];
    int64_t bytes = x->dims[2] * x->dims[3] * (gw_dtype_bits(x->dtype) / 8);
    for (int64_t i = 0; i < s; i++) {
        int64_t pos = gw_vec_int(&k->in[2], b * s + i);
        if (pos < 0 || pos >= t) continue;
        memcpy((char *)cache->data + (b * t + pos) * bytes,
               (const char *)x->data + (b * s + i) * bytes, (size_t)bytes);
    }
}

static gw_status put_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t n = k->in[1].dims[0];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (k->in[1].elems > GW_VEC_TASK)
    for (int64_t b = 0; b < n; b++) put_sequence(k, b);
    return GW_OK;
}

/* ---- bias_grad ---- */

static bool bias_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x3);
}

static int64_t bias_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    int64_t n = s.out[0].elems;
    return n ? gw_vec_blocks_of(s.in[0].elems / n).count * n * (int64_t)sizeof(float) : 0;
}

static gw_status bias_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *dy = &k->in[0], *db = &k->out[0];
    int64_t n = db->elems, rows = n ? dy->elems / n : 0;
    gw_vec_blocks blocks = gw_vec_blocks_of(rows);
    float *parts = k->work;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (dy->elems > GW_VEC_TASK)
    for (int64_t p = 0; p < blocks.count; p++) {
        memset(parts + p * n, 0, (size_t)n * sizeof *parts);
        for (int64_t r = p * blocks.length; r < GW_MIN(rows, (p + 1) * blocks.length); r++)
            sum_of[dy->dtype](parts + p * n, dy->data, r * n, n);
    }
    const gw_tensor *acc = k->nin > 1 && k->in[1].data ? &k->in[1] : NULL;
    gw_vec_sum_parts(db, acc, parts, blocks.count, n, n, k->threads);
    return GW_OK;
}

/* ---- sqnorm ---- */

#define SQNORM_PARTS 1024

typedef double square_fn(const void *x, int64_t i0, int64_t n);

static GW_ALWAYS_INLINE double square_any(const void *x, int64_t i0, int64_t n, gw_dtype t) {
    double a = 0, b = 0, c = 0, e = 0;
    int64_t q = n / 4, i1 = i0 + q, i2 = i1 + q, i3 = i2 + q;
#pragma omp simd reduction(+ : a, b, c, e)
    for (int64_t i = 0; i < q; i++) {
        double u = (double)gw_vec_get(x, t, i0 + i), v = (double)gw_vec_get(x, t, i1 + i);
        double w = (double)gw_vec_get(x, t, i2 + i), z = (double)gw_vec_get(x, t, i3 + i);
        a += u * u;
        b += v * v;
        c += w * w;
        e += z * z;
    }
    for (int64_t i = 4 * q; i < n; i++) {
        double u = (double)gw_vec_get(x, t, i0 + i);
        a += u * u;
    }
    return (a + b) + (c + e);
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static double square_##suffix(const void *x, int64_t i0, int64_t n) {                \
        return square_any(x, i0, n, T);                                                            \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(square_fn, square)

static int64_t sqnorm_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return SQNORM_PARTS * (int64_t)sizeof(double);
}

static double square_part(const gw_tensor *x, int64_t i0, int64_t i1) {
    double sum = 0;
    for (int64_t i = i0; i < i1; i += GW_VEC_BLOCK)
        sum += square_of[x->dtype](x->data, i, GW_MIN(GW_VEC_BLOCK, i1 - i));
    return sum;
}

static gw_status sqnorm_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0];
    int64_t n = x->elems, each = (n + SQNORM_PARTS - 1) / SQNORM_PARTS;
    int64_t length = GW_MAX(4, (each + GW_VEC_BLOCK - 1) / GW_VEC_BLOCK) * GW_VEC_BLOCK;
    int64_t parts = (n + length - 1) / length;
    double *part = k->work, sum = 0;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t p = 0; p < parts; p++)
        part[p] = square_part(x, p * length, GW_MIN(n, (p + 1) * length));
    for (int64_t p = 0; p < parts; p++) sum += part[p];
    *(float *)k->out[0].data = (float)sum;
    return GW_OK;
}

static bool sqnorm_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x1) && gw_vec_out_type(g, o, 0) == GW_F32;
}

/* ---- accumulate ---- */

static gw_status accumulate_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0], *y = &k->out[0];
    int64_t n = y->elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_BLOCK) {
        float sum[GW_VEC_BLOCK];
        int64_t m = GW_MIN(GW_VEC_BLOCK, n - i);
        gw_vec_load(sum, x->data, x->dtype, i, m);
        if (k->in[1].data) sum_of[y->dtype](sum, k->in[1].data, i, m);
        gw_vec_store(y->data, y->dtype, i, sum, m);
    }
    return GW_OK;
}

static bool accumulate_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, gw_op_in(g, o, 1) == GW_NONE ? 0x1 : 0x3);
}

GW_VEC_KERNEL(accumulate, "accumulate", "vector loops", accumulate_supports, gw_vec_no_workspace,
              accumulate_launch);
GW_VEC_KERNEL(add, "add", "vector loops", floats_supports, gw_vec_no_workspace, add_launch);
GW_VEC_KERNEL(addn, "addn", "vector loops, one pass over all inputs", floats_supports,
              gw_vec_no_workspace, addn_launch);
GW_VEC_KERNEL(cast, "cast", "vector loops", cast_supports, gw_vec_no_workspace, cast_launch);
GW_VEC_KERNEL(zeros, "zeros", "memset", any_supports, gw_vec_no_workspace, zeros_launch);
GW_VEC_KERNEL(pick, "pick", "copies of rows", any_supports, gw_vec_no_workspace, pick_launch);
GW_VEC_KERNEL(cache_put, "cache_put", "copies of rows", put_supports, gw_vec_no_workspace,
              put_launch);
GW_VEC_KERNEL(bias_grad, "bias_grad", "vector loops, sums by fixed blocks of rows", bias_supports,
              bias_workspace, bias_launch);
GW_VEC_KERNEL(sqnorm, "sqnorm", "float64 sums by fixed blocks", sqnorm_supports, sqnorm_workspace,
              sqnorm_launch);

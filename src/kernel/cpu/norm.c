// SPDX-License-Identifier: Apache-2.0
// rmsnorm and layernorm, forward and backward, at the speed of memory.
//
// A row is d elements. It is read from memory once and then again from the cache: first for its
// statistics, then to write the result. Sums run in float32 in 32 lanes, several independent
// vectors, so each lane adds d / 32 numbers, and the rest is a tree: for d = 8192 the error is far
// below a rounding to float32 of one product.
//
// Backward gives dx, a row at a time, and the gradients of gain (and bias), a sum over all rows,
// from the same pass. Those sums go to partial rows of fixed blocks in workspace (vec_more.h), so
// no bit depends on threads.
//
// Gains and biases are converted to float32 once a launch, into workspace. x, y, dy and dx have one
// dtype, the statistics are float32; other mixtures and f64 are left to the reference.
#include <math.h>
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH, gw_vec_sum_parts */

/* Elements of rows that one task takes. */
#define TASK_ELEMS 8192

/* s = the sum over j < n of TERM(j), in LANES sums that become four or more vectors. A macro,
 * because the terms differ in what they read. */
#define LANES 32
#define SUM(s, n, TERM)                                                                            \
    do {                                                                                           \
        float lane_[LANES] = {0};                                                                  \
        int64_t i_ = 0;                                                                            \
        for (; i_ + LANES <= (n); i_ += LANES)                                                     \
            for (int64_t l_ = 0; l_ < LANES; l_++) lane_[l_] += TERM(i_ + l_);                     \
        for (int64_t l_ = 0; i_ + l_ < (n); l_++) lane_[l_] += TERM(i_ + l_);                      \
        for (int64_t w_ = LANES / 2; w_ > 0; w_ /= 2)                                              \
            for (int64_t l_ = 0; l_ < w_; l_++) lane_[l_] += lane_[l_ + w_];                       \
        (s) = lane_[0];                                                                            \
    } while (0)

/* One launch. d: row length; g, b: gain and bias as float. */
typedef struct norm {
    gw_dtype t;
    int64_t rows, d;
    const void *x, *dy;
    void *y;
    const float *g, *b;
    float *mean, *rstd;
    double eps;
    float *parts; /* block p: sums of dg at p * 2d, of db at p * 2d + d */
} norm;

typedef void row_fn(const norm *n, int64_t r0, int64_t r1);
typedef void grad_fn(const norm *n, int64_t r0, int64_t r1, float *dg, float *db);

/* ---- forward ---- */

static GW_ALWAYS_INLINE void rms_rows(const norm *n, int64_t r0, int64_t r1, gw_dtype t) {
    const float *g = n->g;
    int64_t d = n->d;
    for (int64_t r = r0; r < r1; r++) {
        const void *x = gw_vec_at(n->x, t, r * d);
        void *y = gw_vec_out(n->y, t, r * d);
        float sum;
#define SQUARE(i) (gw_vec_get(x, t, i) * gw_vec_get(x, t, i))
        SUM(sum, d, SQUARE);
#undef SQUARE
        float rstd = (float)(1 / sqrt((double)sum / (double)d + n->eps));
        n->rstd[r] = rstd;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) gw_vec_put(y, t, j, gw_vec_get(x, t, j) * rstd * g[j]);
    }
}

static GW_ALWAYS_INLINE void layer_rows(const norm *n, int64_t r0, int64_t r1, gw_dtype t) {
    const float *g = n->g, *b = n->b;
    int64_t d = n->d;
    for (int64_t r = r0; r < r1; r++) {
        const void *x = gw_vec_at(n->x, t, r * d);
        void *y = gw_vec_out(n->y, t, r * d);
        float sum, var;
#define VALUE(i) gw_vec_get(x, t, i)
        SUM(sum, d, VALUE);
#undef VALUE
        float mean = (float)((double)sum / (double)d);
#define CENTRED(i) ((gw_vec_get(x, t, i) - mean) * (gw_vec_get(x, t, i) - mean))
        SUM(var, d, CENTRED);
#undef CENTRED
        float rstd = (float)(1 / sqrt((double)var / (double)d + n->eps));
        n->mean[r] = mean;
        n->rstd[r] = rstd;
#pragma omp simd
        for (int64_t j = 0; j < d; j++)
            gw_vec_put(y, t, j, (gw_vec_get(x, t, j) - mean) * rstd * g[j] + b[j]);
    }
}

/* ---- backward: y is dx ---- */

static GW_ALWAYS_INLINE void rms_grad_rows(const norm *n, int64_t r0, int64_t r1, float *dg,
                                           gw_dtype t) {
    const float *g = n->g;
    int64_t d = n->d;
    for (int64_t r = r0; r < r1; r++) {
        const void *x = gw_vec_at(n->x, t, r * d), *dy = gw_vec_at(n->dy, t, r * d);
        void *dx = gw_vec_out(n->y, t, r * d);
        float sum, rstd = n->rstd[r];
#define PRODUCT(i) (gw_vec_get(dy, t, i) * g[i] * gw_vec_get(x, t, i))
        SUM(sum, d, PRODUCT);
#undef PRODUCT
        float mean = sum * rstd / (float)d;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) {
            float u = gw_vec_get(dy, t, j), v = gw_vec_get(x, t, j) * rstd;
            dg[j] += u * v;
            gw_vec_put(dx, t, j, rstd * (u * g[j] - v * mean));
        }
    }
}

static GW_ALWAYS_INLINE void layer_grad_rows(const norm *n, int64_t r0, int64_t r1, float *dg,
                                             float *db, gw_dtype t) {
    const float *g = n->g;
    int64_t d = n->d;
    for (int64_t r = r0; r < r1; r++) {
        const void *x = gw_vec_at(n->x, t, r * d), *dy = gw_vec_at(n->dy, t, r * d);
        void *dx = gw_vec_out(n->y, t, r * d);
        float a, an, m = n->mean[r], rstd = n->rstd[r];
#define A(i)  (gw_vec_get(dy, t, i) * g[i])
#define AN(i) (gw_vec_get(dy, t, i) * g[i] * (gw_vec_get(x, t, i) - m))
        SUM(a, d, A);
        SUM(an, d, AN);
#undef A
#undef AN
        float a_mean = a / (float)d, an_mean = an * rstd / (float)d;
#pragma omp simd
        for (int64_t j = 0; j < d; j++) {
            float u = gw_vec_get(dy, t, j), v = (gw_vec_get(x, t, j) - m) * rstd;
            dg[j] += u * v;
            db[j] += u;
            gw_vec_put(dx, t, j, rstd * (u * g[j] - a_mean - v * an_mean));
        }
    }
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void rms_##suffix(const norm *n, int64_t r0, int64_t r1) {                    \
        rms_rows(n, r0, r1, T);                                                                    \
    }                                                                                              \
    GW_CLONES static void layer_##suffix(const norm *n, int64_t r0, int64_t r1) {                  \
        layer_rows(n, r0, r1, T);                                                                  \
    }                                                                                              \
    GW_CLONES static void rms_grad_##suffix(const norm *n, int64_t r0, int64_t r1, float *dg,      \
                                            float *db) {                                           \
        (void)db;                                                                                  \
        rms_grad_rows(n, r0, r1, dg, T);                                                           \
    }                                                                                              \
    GW_CLONES static void layer_grad_##suffix(const norm *n, int64_t r0, int64_t r1, float *dg,    \
                                              float *db) {                                         \
        layer_grad_rows(n, r0, r1, dg, db, T);                                                     \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(row_fn, rms)
GW_VEC_TABLE(row_fn, layer)
GW_VEC_TABLE(grad_fn, rms_grad)
GW_VEC_TABLE(grad_fn, layer_grad)

static void run_rows(const norm *n, row_fn *fn, int threads) {
    int64_t step = GW_MAX(1, TASK_ELEMS / GW_MAX(1, n->d));
#pragma omp parallel for num_threads(threads) schedule(static) if (n->rows > step)
    for (int64_t r = 0; r < n->rows; r += step) fn(n, r, GW_MIN(n->rows, r + step));
}

static void run_grad(const norm *n, grad_fn *fn, int threads) {
    gw_vec_blocks blocks = gw_vec_blocks_of(n->rows);
#pragma omp parallel for num_threads(threads) schedule(static) if (n->rows * n->d > TASK_ELEMS)
    for (int64_t p = 0; p < blocks.count; p++) {
        float *dg = n->parts + p * 2 * n->d, *db = dg + n->d;
        memset(dg, 0, (size_t)(2 * n->d) * sizeof *dg);
        fn(n, p * blocks.length, GW_MIN(n->rows, (p + 1) * blocks.length), dg, db);
    }
}

/* ---- hooks ---- */

/* x at input `x` and output 0 (and dy, backward) have one storage float; statistics are float32. */
static bool one_type(const gw_graph *g, const gw_op *o, int x, int first_stat, int nstats,
                     bool outputs) {
    gw_dtype t = gw_vec_in_type(g, o, x);
    if (!gw_vec_is_float(t) || gw_vec_out_type(g, o, 0) != t) return false;
    if (gw_vec_in_type(g, o, 0) != t) return false;
    for (int i = first_stat; i < first_stat + nstats; i++)
        if ((outputs ? gw_vec_out_type(g, o, i) : gw_vec_in_type(g, o, i)) != GW_F32) return false;
    return true;
}

static bool rms_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_is_float(gw_vec_in_type(g, o, 1)) && one_type(g, o, 0, 1, 1, true);
}

static bool layer_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x6) && one_type(g, o, 0, 1, 2, true);
}

static bool rms_grad_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x4) && one_type(g, o, 1, 3, 1, false);
}

static bool layer_grad_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x4) && one_type(g, o, 1, 3, 2, false);
}

static int64_t forward_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    return 2 * gw_vec_last(&s.in[0]) * (int64_t)sizeof(float);
}

static int64_t grad_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    int64_t parts = gw_vec_blocks_of(gw_vec_rows(&s.in[1])).count;
    return (2 * parts + 1) * gw_vec_last(&s.in[1]) * (int64_t)sizeof(float);
}

/* Gain or bias i as floats, in place or at `work`. */
static const float *vector(const gw_kargs *k, int i, float *work) {
    const gw_tensor *t = &k->in[i];
    if (t->dtype == GW_F32) return t->data;
    gw_vec_load(work, t->data, t->dtype, 0, t->elems);
    return work;
}

static norm forward_of(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0];
    return (norm){.t = x->dtype,
                  .rows = gw_vec_rows(x),
                  .d = gw_vec_last(x),
                  .x = x->data,
                  .y = k->out[0].data,
                  .g = vector(k, 1, k->work),
                  .eps = gw_op_attr_named(k->g, k->op, "eps").f};
}

static gw_status rms_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    norm n = forward_of(k);
    n.rstd = k->out[1].data;
    run_rows(&n, rms_of[n.t], k->threads);
    return GW_OK;
}

static gw_status layer_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    norm n = forward_of(k);
    n.b = vector(k, 2, (float *)k->work + n.d);
    n.mean = k->out[1].data;
    n.rstd = k->out[2].data;
    run_rows(&n, layer_of[n.t], k->threads);
    return GW_OK;
}

static norm backward_of(const gw_kargs *k) {
    const gw_tensor *x = &k->in[1];
    int64_t d = gw_vec_last(x);
    return (norm){.t = x->dtype,
                  .rows = gw_vec_rows(x),
                  .d = d,
                  .x = x->data,
                  .dy = k->in[0].data,
                  .y = k->out[0].data,
                  .g = vector(k, 2, k->work),
                  .parts = (float *)k->work + d};
}

/* Output `out` from the partial sums at `offset` of each block, added to the accumulator at input
 * `acc`. */
static void finish(const gw_kargs *k, const norm *n, int out, int acc, int64_t offset) {
    const gw_tensor *a = acc < k->nin && k->in[acc].data ? &k->in[acc] : NULL;
    gw_vec_sum_parts(&k->out[out], a, n->parts + offset, gw_vec_blocks_of(n->rows).count, 2 * n->d,
                     n->d, k->threads);
}

static gw_status rms_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    norm n = backward_of(k);
    n.rstd = k->in[3].data;
    run_grad(&n, rms_grad_of[n.t], k->threads);
    finish(k, &n, 1, 4, 0);
    return GW_OK;
}

static gw_status layer_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    norm n = backward_of(k);
    n.mean = k->in[3].data;
    n.rstd = k->in[4].data;
    run_grad(&n, layer_grad_of[n.t], k->threads);
    finish(k, &n, 1, 5, 0);
    finish(k, &n, 2, 6, n.d);
    return GW_OK;
}

GW_VEC_KERNEL(rmsnorm, "rmsnorm", "vector loops, a row read once from memory", rms_supports,
              forward_workspace, rms_launch);
GW_VEC_KERNEL(rmsnorm_grad, "rmsnorm_grad", "dx and dg in one pass, dg by fixed blocks of rows",
              rms_grad_supports, grad_workspace, rms_grad_launch);
GW_VEC_KERNEL(layernorm, "layernorm", "vector loops, a row read once from memory", layer_supports,
              forward_workspace, layer_launch);
GW_VEC_KERNEL(layernorm_grad, "layernorm_grad",
              "dx, dg and db in one pass, sums by fixed blocks of rows", layer_grad_supports,
              grad_workspace, layer_grad_launch);

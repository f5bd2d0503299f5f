// SPDX-License-Identifier: Apache-2.0
// Pooling, relu and a classifier's loss: the memory-bound rest of a convolutional net.
//
// Images lie channels last, so a pooling window is a handful of rows of c channels and everything
// runs along them, LANES channels at a time. The gradient of maxpool scatters: one thread goes
// through the windows of an image in order and adds into float32 rows (in workspace, where dx is
// narrower), so the order of sums is fixed. avgpool sums an image's rows in float32. xent takes a
// row of logits at a time: largest, exponentials, sum; rows' losses are added in float64 in order.
//
// f64 is left to the reference.
#include <math.h>
#include <string.h>

#include "base/panic.h"          /* gw_panic */
#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH */

#define LANES 64 /* channels at a time: their values and positions stay in registers and cache */

/* One pooling launch over images h x w x c -> oh x ow x c. */
typedef struct pool {
    gw_dtype t;
    int64_t b, h, w, c, oh, ow, size, stride, pad;
    const void *x, *dy;
    void *y;    /* forward: y, of t */
    float *sum; /* backward: dx as float32 */
} pool;

static pool pool_of(const gw_kargs *k, const gw_tensor *x, const gw_tensor *y) {
    return (pool){.t = x->dtype,
                  .b = x->dims[0],
                  .h = x->dims[1],
                  .w = x->dims[2],
                  .c = x->dims[3],
                  .oh = y->dims[1],
                  .ow = y->dims[2],
                  .size = gw_op_attr_named(k->g, k->op, "size").i,
                  .stride = gw_op_attr_named(k->g, k->op, "stride").i,
                  .pad = gw_op_attr_named(k->g, k->op, "pad").i,
                  .x = x->data};
}

/* The part of output (p, q)'s window that lies in the image. */
typedef struct window {
    int64_t i0, i1, j0, j1;
} window;
static inline window window_of(const pool *l, int64_t p, int64_t q) {
    int64_t i = p * l->stride - l->pad, j = q * l->stride - l->pad;
    return (window){GW_MAX(i, 0), GW_MIN(i + l->size, l->h), GW_MAX(j, 0),
                    GW_MIN(j + l->size, l->w)};
}

typedef void image_fn(const pool *l, int64_t b, int64_t p);

/* The largest of n <= LANES channels from `first` on, and the pixel (i * w + j) it was first seen
 * at. */
static GW_ALWAYS_INLINE void largest(const pool *l, int64_t b, window v, int64_t first, int64_t n,
                                     float *most, int32_t *at, gw_dtype t) {
    for (int64_t k = 0; k < n; k++) {
        most[k] = -HUGE_VALF;
        at[k] = (int32_t)(v.i0 * l->w + v.j0);
    }
    for (int64_t i = v.i0; i < v.i1; i++)
        for (int64_t j = v.j0; j < v.j1; j++) {
            const void *row = gw_vec_at(l->x, t, ((b * l->h + i) * l->w + j) * l->c + first);
            int32_t pixel = (int32_t)(i * l->w + j);
            for (int64_t k = 0; k < n; k++) {
                float x = gw_vec_get(row, t, k);
                int take = (x > most[k]) | (x != x);
                most[k] = take ? x : most[k];
                at[k] = take ? pixel : at[k];
            }
        }
}

/* Row p of the output of image b. */
static GW_ALWAYS_INLINE void max_row(const pool *l, int64_t b, int64_t p, gw_dtype t) {
    float most[LANES];
    int32_t at[LANES];
    for (int64_t q = 0; q < l->ow; q++) {
        window v = window_of(l, p, q);
        void *out = gw_vec_out(l->y, t, ((b * l->oh + p) * l->ow + q) * l->c);
        for (int64_t c = 0; c < l->c; c += LANES) {
            int64_t n = GW_MIN(LANES, l->c - c);
            largest(l, b, v, c, n, most, at, t);
            for (int64_t k = 0; k < n; k++) gw_vec_put(out, t, c + k, most[k]);
        }
    }
}

/* Image b, all of it; p is not used. */
static GW_ALWAYS_INLINE void max_grad_image(const pool *l, int64_t b, gw_dtype t) {
    float most[LANES];
    int32_t at[LANES];
    float *dx = l->sum + b * l->h * l->w * l->c;
    memset(dx, 0, (size_t)(l->h * l->w * l->c) * sizeof *dx);
    for (int64_t p = 0; p < l->oh; p++)
        for (int64_t q = 0; q < l->ow; q++) {
            window v = window_of(l, p, q);
            const void *dy = gw_vec_at(l->dy, t, ((b * l->oh + p) * l->ow + q) * l->c);
            for (int64_t c = 0; c < l->c; c += LANES) {
                int64_t n = GW_MIN(LANES, l->c - c);
                largest(l, b, v, c, n, most, at, t);
                for (int64_t k = 0; k < n; k++)
                    dx[at[k] * l->c + c + k] += gw_vec_get(dy, t, c + k);
            }
        }
}

/* Sum over pixels of c channels, divided by their number. */
static GW_ALWAYS_INLINE void avg_image(const pool *l, int64_t b, gw_dtype t) {
    float sum[LANES];
    int64_t pixels = l->h * l->w;
    for (int64_t c = 0; c < l->c; c += LANES) {
        int64_t n = GW_MIN(LANES, l->c - c);
        memset(sum, 0, sizeof sum);
        for (int64_t p = 0; p < pixels; p++) {
            const void *row = gw_vec_at(l->x, t, (b * pixels + p) * l->c + c);
            for (int64_t k = 0; k < n; k++) sum[k] += gw_vec_get(row, t, k);
        }
        for (int64_t k = 0; k < n; k++)
            gw_vec_put(l->y, t, b * l->c + c + k, sum[k] / (float)pixels);
    }
}

static GW_ALWAYS_INLINE void avg_grad_image(const pool *l, int64_t b, gw_dtype t) {
    int64_t pixels = l->h * l->w;
    float inv = 1 / (float)pixels;
    for (int64_t p = 0; p < pixels; p++) {
        void *out = gw_vec_out(l->y, t, (b * pixels + p) * l->c);
        const void *dy = gw_vec_at(l->dy, t, b * l->c);
        for (int64_t k = 0; k < l->c; k++) gw_vec_put(out, t, k, gw_vec_get(dy, t, k) * inv);
    }
}

typedef void flat_fn(void *out, const void *a, const void *b, int64_t i0, int64_t i1);

static GW_ALWAYS_INLINE void relu_any(void *y, const void *x, int64_t i0, int64_t i1, gw_dtype t) {
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(x, t, i);
        gw_vec_put(y, t, i, v <= 0 ? 0 : v);
    }
}

static GW_ALWAYS_INLINE void relu_grad_any(void *dx, const void *dy, const void *y, int64_t i0,
                                           int64_t i1, gw_dtype t) {
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(y, t, i), d = gw_vec_get(dy, t, i);
        gw_vec_put(dx, t, i, v <= 0 ? 0 : d);
    }
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void max_##suffix(const pool *l, int64_t b, int64_t p) {                      \
        max_row(l, b, p, T);                                                                       \
    }                                                                                              \
    GW_CLONES static void max_grad_##suffix(const pool *l, int64_t b, int64_t p) {                 \
        (void)p;                                                                                   \
        max_grad_image(l, b, T);                                                                   \
    }                                                                                              \
    GW_CLONES static void avg_##suffix(const pool *l, int64_t b, int64_t p) {                      \
        (void)p;                                                                                   \
        avg_image(l, b, T);                                                                        \
    }                                                                                              \
    GW_CLONES static void avg_grad_##suffix(const pool *l, int64_t b, int64_t p) {                 \
        (void)p;                                                                                   \
        avg_grad_image(l, b, T);                                                                   \
    }                                                                                              \
    GW_CLONES static void relu_##suffix(void *y, const void *x, const void *none, int64_t i0,      \
                                        int64_t i1) {                                              \
        (void)none;                                                                                \
        relu_any(y, x, i0, i1, T);                                                                 \
    }                                                                                              \
    GW_CLONES static void relu_grad_##suffix(void *dx, const void *dy, const void *y, int64_t i0,  \
                                             int64_t i1) {                                         \
        relu_grad_any(dx, dy, y, i0, i1, T);                                                       \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(image_fn, max)
GW_VEC_TABLE(image_fn, max_grad)
GW_VEC_TABLE(image_fn, avg)
GW_VEC_TABLE(image_fn, avg_grad)
GW_VEC_TABLE(flat_fn, relu)
GW_VEC_TABLE(flat_fn, relu_grad)

static bool same_float(const gw_graph *g, const gw_op *o, int inputs) {
    gw_dtype t = gw_vec_out_type(g, o, 0);
    for (int i = 0; i < inputs; i++)
        if (gw_vec_in_type(g, o, i) != t) return false;
    return gw_vec_is_float(t);
}

static bool one_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return same_float(g, o, 1);
}

static bool two_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return same_float(g, o, 2);
}

/* A pixel's number is 32 bits. */
static bool max_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    const gw_tensor *x = &s.in[o->nin - 1];
    return (o->nin == 1 ? one_supports(g, o, m) : two_supports(g, o, m)) &&
           x->dims[1] * x->dims[2] < INT32_MAX;
}

static void run_images(const pool *l, image_fn *fn, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (l->b > 1)
    for (int64_t b = 0; b < l->b; b++) fn(l, b, 0);
}

static gw_status max_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    pool l = pool_of(k, &k->in[0], &k->out[0]);
    l.y = k->out[0].data;
    image_fn *fn = max_of[l.t];
    int64_t rows = l.b * l.oh;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (k->out[0].elems > GW_VEC_TASK)
    for (int64_t r = 0; r < rows; r++) fn(&l, r / l.oh, r % l.oh);
    return GW_OK;
}

static int64_t max_grad_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    return s.out[0].dtype == GW_F32 ? 0 : s.out[0].elems * (int64_t)sizeof(float);
}

static gw_status max_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *dx = &k->out[0];
    pool l = pool_of(k, &k->in[1], &k->in[0]);
    bool narrow = dx->dtype != GW_F32;
    l.dy = k->in[0].data;
    l.sum = narrow ? k->work : dx->data;
    run_images(&l, max_grad_of[l.t], k->threads);
    int64_t n = narrow ? dx->elems : 0;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_TASK)
        gw_vec_store(dx->data, dx->dtype, i, l.sum + i, GW_MIN(GW_VEC_TASK, n - i));
    return GW_OK;
}

static gw_status avg_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0];
    pool l = {.t = x->dtype, .b = x->dims[0], .h = x->dims[1], .w = x->dims[2], .c = x->dims[3]};
    l.x = x->data;
    l.y = k->out[0].data;
    run_images(&l, avg_of[l.t], k->threads);
    return GW_OK;
}

static gw_status avg_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->out[0];
    pool l = {.t = x->dtype, .b = x->dims[0], .h = x->dims[1], .w = x->dims[2], .c = x->dims[3]};
    l.dy = k->in[0].data;
    l.y = x->data;
    run_images(&l, avg_grad_of[l.t], k->threads);
    return GW_OK;
}

static void run_flat(const gw_kargs *k, flat_fn *fn) {
    int64_t n = k->out[0].elems;
    const void *a = k->in[0].data, *b = k->nin > 1 ? k->in[1].data : NULL;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_TASK)
        fn(k->out[0].data, a, b, i, GW_MIN(n, i + GW_VEC_TASK));
}

static gw_status relu_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run_flat(k, relu_of[k->out[0].dtype]);
    return GW_OK;
}

static gw_status relu_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run_flat(k, relu_grad_of[k->out[0].dtype]);
    return GW_OK;
}

/* ---- xent ---- */

static bool xent_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_dtype t = gw_vec_in_type(g, o, 0);
    bool grad = o->nout == 2;
    return gw_vec_is_float(t) && gw_vec_in_type(g, o, 2) == GW_F32 &&
           gw_vec_out_type(g, o, grad) == GW_F32 && (!grad || gw_vec_out_type(g, o, 0) == t);
}

static int64_t xent_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    return gw_vec_rows(&s.in[0]) * (int64_t)sizeof(double) + s.in[0].elems * (int64_t)sizeof(float);
}

/* z[0..n) becomes exp(z - most); returns their sum. */
GW_CLONES static float exponentials(float *GW_RESTRICT z, int64_t n, float most) {
    float lane[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int64_t l = 0; l < 16; l++) {
            z[i + l] = gw_vec_exp(z[i + l] - most);
            lane[l] += z[i + l];
        }
    float sum = 0;
    for (; i < n; i++) {
        z[i] = gw_vec_exp(z[i] - most);
        sum += z[i];
    }
    for (int l = 0; l < 16; l++) sum += lane[l];
    return sum;
}

static double xent_row(const gw_kargs *k, int64_t r, float *z, const gw_tensor *dz) {
    const gw_tensor *in = &k->in[0];
    int64_t n = gw_vec_last(in), label = gw_vec_int(&k->in[1], r);
    if (label >= n)
        gw_panic("%s: label %lld in row %lld is past the %lld classes",
                 gw_op_def(k->g, k->op)->name, (long long)label, (long long)r, (long long)n);
    if (label < 0) {
        if (dz)
            memset(gw_vec_out(dz->data, dz->dtype, r * n), 0, (size_t)(n * gw_vec_size(dz->dtype)));
        return 0;
    }
    gw_vec_load(z, in->data, in->dtype, r * n, n);
    float most = z[0], hit = z[label];
    for (int64_t c = 1; c < n; c++) most = z[c] > most || z[c] != z[c] ? z[c] : most;
    float sum = exponentials(z, n, most);
    double loss = (double)most + log((double)sum) - (double)hit;
    if (!dz) return loss;
    float seed = *(const float *)k->in[2].data, scale = seed / sum;
    for (int64_t c = 0; c < n; c++) z[c] *= scale;
    z[label] -= seed;
    gw_vec_store(dz->data, dz->dtype, r * n, z, n);
    return loss;
}

static gw_status xent_run(const gw_kargs *k, const gw_tensor *dz, const gw_tensor *loss) {
    int64_t rows = gw_vec_rows(&k->in[0]), n = gw_vec_last(&k->in[0]);
    double *losses = k->work, sum = 0;
    float *z = (float *)(void *)(losses + rows);
#pragma omp parallel for num_threads(k->threads) schedule(static) if (rows * n > GW_VEC_TASK)
    for (int64_t r = 0; r < rows; r++) losses[r] = xent_row(k, r, z + r * n, dz);
    for (int64_t r = 0; r < rows; r++) sum += losses[r];
    if (k->nin > 3 && k->in[3].data) sum += (double)*(const float *)k->in[3].data;
    *(float *)loss->data = (float)sum;
    return GW_OK;
}

static gw_status xent_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    return xent_run(k, NULL, &k->out[0]);
}

static gw_status xent_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    return xent_run(k, &k->out[0], &k->out[1]);
}

GW_VEC_KERNEL(maxpool, "maxpool", "a row of channels at a time", max_supports, gw_vec_no_workspace,
              max_launch);
GW_VEC_KERNEL(maxpool_grad, "maxpool_grad", "scattered into float32, an image a thread",
              max_supports, max_grad_workspace, max_grad_launch);
GW_VEC_KERNEL(avgpool, "avgpool", "sums along channels", one_supports, gw_vec_no_workspace,
              avg_launch);
GW_VEC_KERNEL(avgpool_grad, "avgpool_grad", "a row of channels at a time", one_supports,
              gw_vec_no_workspace, avg_grad_launch);
GW_VEC_KERNEL(relu, "relu", "vector loop", one_supports, gw_vec_no_workspace, relu_launch);
GW_VEC_KERNEL(relu_grad, "relu_grad", "vector loop", two_supports, gw_vec_no_workspace,
              relu_grad_launch);
GW_VEC_KERNEL(xent, "xent", "a row of logits at a time", xent_supports, xent_workspace,
              xent_launch);
GW_VEC_KERNEL(xent_grad, "xent_grad", "a row of logits at a time", xent_supports, xent_workspace,
              xent_grad_launch);

// SPDX-License-Identifier: Apache-2.0
// attention_cache: one or a few new queries against a long cache, the inner loop of generating
// text.
//
// The cost is reading the cache once. A task is one query position and one stretch of cache rows,
// all heads: rows of all kv heads lie together, so blocks of ROWS rows are read as they lie in
// memory. Of a block, one kv head after the other is taken; the h/g query heads that share it are
// served together, so it is converted (if stored narrower) once for all. A head's running maximum,
// sum and output (online softmax) wait in workspace between blocks; the dot products of four rows
// run in four chains of vectors.
//
// With few tasks (a decode step of a short batch) the rows a query sees are split into at most
// MAX_SPLITS equal stretches; each leaves (o, maximum, sum) in workspace and a second pass combines
// them in order. The number of splits follows from shapes, the stretches from positions, so bits do
// not depend on threads.
#include <math.h>
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_load, GW_VEC_KERNEL */

#define ROWS       32
#define MAX_WIDTH  256
#define MAX_SPLITS 16
#define TASKS      64 /* enough to share out; more are not worth the second pass */

typedef float v8 __attribute__((vector_size(32)));

typedef struct problem {
    int64_t b, s, h, g, t, width, splits; /* width of a query and a key */
    int64_t v_width;
    int64_t window;
    gw_dtype cache;
    const void *kc, *vc;
    const gw_tensor *pos;
    float *q;     /* [b s h width], scaled */
    float *parts; /* [b s h splits][v_width + 2]: o, maximum, sum */
} problem;

static problem problem_of(const gw_kargs *k) {
    const gw_tensor *q = &k->in[0], *kc = &k->in[1];
    problem p = {.b = q->dims[0],
                 .s = q->dims[1],
                 .h = q->dims[2],
                 .width = q->dims[3],
                 .v_width = k->in[2].dims[3],
                 .t = kc->dims[1],
                 .g = kc->dims[2],
                 .cache = kc->dtype,
                 .kc = kc->data,
                 .vc = k->in[2].data,
                 .pos = &k->in[3],
                 .q = k->work,
                 .window = gw_op_attr_named(k->g, k->op, "window").i};
    int64_t tasks = GW_MAX(1, p.b * p.s);
    p.splits = GW_MIN(GW_MAX(1, TASKS / tasks), MAX_SPLITS);
    p.splits = GW_MIN(p.splits, GW_MAX(1, (p.t + ROWS - 1) / ROWS));
    if (p.q) p.parts = p.q + q->elems;
    return p;
}

/* ---- one block of rows for one query head ---- */

static GW_ALWAYS_INLINE float sum8(const v8 *x) {
    v8 v = *x;
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

static GW_ALWAYS_INLINE void multiply_add(v8 *sum, const float *a, const float *b) {
    v8 x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    *sum += x * y;
}

/* Scores of rows r .. r+3; rows past the end repeat the last one. */
static GW_ALWAYS_INLINE void four_scores(float *s, const float *q, const float *k, int64_t stride,
                                         int64_t r, int64_t n, int64_t width) {
    const float *k0 = k + r * stride, *k1 = k + GW_MIN(r + 1, n - 1) * stride;
    const float *k2 = k + GW_MIN(r + 2, n - 1) * stride, *k3 = k + GW_MIN(r + 3, n - 1) * stride;
    v8 a = {0}, b = {0}, c = {0}, e = {0};
    int64_t i = 0;
    for (; i + 8 <= width; i += 8) {
        multiply_add(&a, q + i, k0 + i);
        multiply_add(&b, q + i, k1 + i);
        multiply_add(&c, q + i, k2 + i);
        multiply_add(&e, q + i, k3 + i);
    }
    s[0] = sum8(&a), s[1] = sum8(&b), s[2] = sum8(&c), s[3] = sum8(&e);
    for (; i < width; i++) {
        s[0] += q[i] * k0[i];
        s[1] += q[i] * k1[i];
        s[2] += q[i] * k2[i];
        s[3] += q[i] * k3[i];
    }
}

/* Folds n rows (at most ROWS), whose scores are w, into part = o[width], maximum, sum. */
static GW_ALWAYS_INLINE void fold_values(float *GW_RESTRICT part, float *GW_RESTRICT w,
                                         const float *GW_RESTRICT v, int64_t stride, int64_t n,
                                         int64_t width) {
    float top = part[width];
    for (int64_t r = 0; r < n; r++) top = w[r] > top ? w[r] : top;
    float shrink = gw_vec_exp(part[width] - top), sum = 0;
    for (int64_t r = 0; r < ROWS; r++) w[r] = r < n ? gw_vec_exp(w[r] - top) : 0.0f;
    for (int64_t r = 0; r < ROWS; r++) sum += w[r];
    for (int64_t i = 0; i < width; i++) part[i] *= shrink;
    int64_t r = 0;
    for (; r + 4 <= n; r += 4) {
        const float *v0 = v + r * stride, *v1 = v0 + stride, *v2 = v1 + stride, *v3 = v2 + stride;
        for (int64_t i = 0; i < width; i++)
            part[i] += (w[r] * v0[i] + w[r + 1] * v1[i]) + (w[r + 2] * v2[i] + w[r + 3] * v3[i]);
    }
    for (; r < n; r++)
        for (int64_t i = 0; i < width; i++) part[i] += w[r] * v[r * stride + i];
    part[width] = top;
    part[width + 1] = part[width + 1] * shrink + sum;
}

/* The same from keys and values, whose rows lie `stride` and `v_stride` apart. */
GW_CLONES static void fold(float *GW_RESTRICT part, const float *GW_RESTRICT q,
                           const float *GW_RESTRICT k, const float *GW_RESTRICT v, int64_t stride,
                           int64_t v_stride, int64_t n, int64_t width, int64_t v_width) {
    float w[ROWS];
    for (int64_t r = 0; r < n; r += 4) four_scores(w + r, q, k, stride, r, n, width);
    fold_values(part, w, v, v_stride, n, v_width);
}

/* ---- one task ---- */

typedef void widen_fn(float *y, const void *x, int64_t at, int64_t stride, int64_t n,
                      int64_t width);

static GW_ALWAYS_INLINE void widen_any(float *GW_RESTRICT y, const void *GW_RESTRICT x, int64_t at,
                                       int64_t stride, int64_t n, int64_t width, gw_dtype t) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < width; i++)
            y[r * width + i] = gw_vec_get(x, t, at + r * stride + i);
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void widen_##suffix(float *y, const void *x, int64_t at, int64_t stride,      \
                                         int64_t n, int64_t width) {                               \
        widen_any(y, x, at, stride, n, width, T);                                                  \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(widen_fn, widen)

/* Rows [first, first + n) of a cache from head vector `head` on, as floats: in place, or through
 * buf with stride width. */
static const float *take_rows(const problem *p, const void *cache, int64_t width, int64_t head,
                              int64_t first, int64_t n, float *buf) {
    int64_t stride = p->g * width, at = head * width + first * stride;
    if (p->cache == GW_F32) return (const float *)cache + at;
    widen_of[p->cache](buf, cache, at, stride, n, width);
    return buf;
}

/* Stretch `split` of the rows that the query at `row` sees. */
static void stretch(const problem *p, int64_t row, int64_t split, int64_t *first, int64_t *end) {
    int64_t pos = gw_vec_int(p->pos, row);
    int64_t hi = GW_MIN(pos, p->t - 1) + 1, lo = 0;
    if (p->window > 0 && pos >= p->window) lo = pos - p->window + 1;
    int64_t each = hi > lo ? (hi - lo + p->splits - 1) / p->splits : 0;
    each = (each + ROWS - 1) / ROWS * ROWS;
    *first = GW_MIN(hi, lo + split * each);
    *end = GW_MIN(hi, *first + each);
}

static float *part_of(const problem *p, int64_t row, int64_t head, int64_t split) {
    return p->parts + ((row * p->h + head) * p->splits + split) * (p->v_width + 2);
}

/* Asks for the part of the block at head vector `at` that is as long as one kv head's rows and
 * comes g-th in memory. One kv head of many is a stride too long for the processor's own
 * prefetching, the block as a whole is one run. */
static void prefetch(const problem *p, const void *cache, int64_t width, int64_t at, int64_t end,
                     int64_t g) {
    int64_t part = ROWS * width, first = at * width + g * part, size = gw_vec_size(p->cache);
    int64_t last = GW_MIN(end * width, first + part);
    for (int64_t i = first; i < last; i += 64 / size) GW_PREFETCH(gw_vec_at(cache, p->cache, i));
}

/* Rows [r, r + n) of kv head g, for the query heads that share it. */
static void run_block(const problem *p, int64_t row, int64_t split, int64_t r, int64_t n, int64_t g,
                      float *kbuf, float *vbuf) {
    int64_t group = p->h / p->g, base = row / p->s * p->t * p->g + g;
    int64_t apart = p->cache == GW_F32 ? p->g : 1;
    const float *k = take_rows(p, p->kc, p->width, base, r, n, kbuf);
    const float *v = take_rows(p, p->vc, p->v_width, base, r, n, vbuf);
    for (int64_t head = g * group; head < (g + 1) * group; head++)
        fold(part_of(p, row, head, split), p->q + (row * p->h + head) * p->width, k, v,
             apart * p->width, apart * p->v_width, n, p->width, p->v_width);
}

static void run_task(const problem *p, int64_t row, int64_t split) {
    float kbuf[ROWS * MAX_WIDTH], vbuf[ROWS * MAX_WIDTH];
    int64_t first, end, base = row / p->s * p->t * p->g;
    stretch(p, row, split, &first, &end);
    for (int64_t head = 0; head < p->h; head++) {
        float *part = part_of(p, row, head, split);
        memset(part, 0, (size_t)(p->v_width + 2) * sizeof *part);
        part[p->v_width] = -INFINITY;
    }
    for (int64_t r = first; r < end; r += ROWS)
        for (int64_t g = 0; g < p->g; g++) {
            int64_t next = base + (r + ROWS) * p->g, stop = base + end * p->g;
            prefetch(p, p->kc, p->width, next, stop, g);
            prefetch(p, p->vc, p->v_width, next, stop, g);
            run_block(p, row, split, r, GW_MIN(ROWS, end - r), g, kbuf, vbuf);
        }
}

/* Combines the stretches of one head, and rounds. A stretch without rows has sum 0. */
static void combine(const problem *p, const gw_tensor *o, int64_t row, int64_t head) {
    float y[MAX_WIDTH] = {0}, top = -INFINITY, sum = 0;
    int64_t width = p->v_width;
    for (int64_t i = 0; i < p->splits; i++) {
        float m = part_of(p, row, head, i)[width];
        top = m > top ? m : top;
    }
    for (int64_t i = 0; i < p->splits; i++) {
        const float *part = part_of(p, row, head, i);
        if (part[width + 1] == 0.0f) continue;
        float w = gw_vec_exp(part[width] - top);
        sum += w * part[width + 1];
        for (int64_t j = 0; j < width; j++) y[j] += w * part[j];
    }
    if (sum != 0.0f)
        for (int64_t j = 0; j < width; j++) y[j] /= sum;
    gw_vec_store(o->data, o->dtype, (row * p->h + head) * width, y, width);
}

/* ---- hooks ---- */

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x7) && gw_vec_in_type(g, o, 1) == gw_vec_in_type(g, o, 2) &&
           gw_type_of(g, gw_op_in(g, o, 0))->dims[3].size <= MAX_WIDTH &&
           gw_type_of(g, gw_op_in(g, o, 2))->dims[3].size <= MAX_WIDTH;
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    problem p = problem_of(&s.k);
    return (s.in[0].elems + p.b * p.s * p.h * p.splits * (p.v_width + 2)) * (int64_t)sizeof(float);
}

static void scale_query(const problem *p, const gw_tensor *q, float scale, int64_t i) {
    float *to = p->q + i * p->width;
    gw_vec_load(to, q->data, q->dtype, i * p->width, p->width);
    for (int64_t j = 0; j < p->width; j++) to[j] *= scale;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    problem p = problem_of(k);
    double scale = gw_op_attr_named(k->g, k->op, "scale").f;
    if (scale == 0) scale = 1 / sqrt((double)p.width);
    int64_t rows = p.b * p.s, heads = rows * p.h, tasks = rows * p.splits;
#pragma omp parallel num_threads(k->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < heads; i++) scale_query(&p, &k->in[0], (float)scale, i);
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < tasks; i++) run_task(&p, i / p.splits, i % p.splits);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < heads; i++) combine(&p, &k->out[0], i / p.h, i % p.h);
    }
    return GW_OK;
}

GW_VEC_KERNEL(attention_cache, "attention_cache",
              "cache read once for all heads that share it, long rows split by position", supports,
              workspace, launch);

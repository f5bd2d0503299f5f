// SPDX-License-Identifier: Apache-2.0
// Batch norm at the speed of memory: statistics, the norm, and both halves of its gradient.
//
// x is rows of c channels, channels last; everything runs along a row. Sums over rows go, in
// float32, to partial rows of fixed blocks in workspace, and those are added in float64 in order
// (as in norm.c), so no bit depends on threads; a block holds at most SPAN rows before it is folded
// into a wider sum. The elementwise halves are one multiply-add or two an element: what depends on
// the channel alone is brought to coefficients first, in float64, once a launch:
//   y  = (x - mean) * a + bias              a = gain * rstd
//   dx = a * dy + (x - mean) * p + q        p = -a * rstd * s2 / n,  q = -a * s1 / n
// dx may take the bytes of dy or of x.
//
// Images have one storage float, statistics are float32; f64 is left to the reference.
#include <math.h>
#include <string.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH, gw_vec_blocks_of */
#include "ops/batchnorm.h"       /* gw_bn_shape_of, gw_bn_rstd */

#define SPAN 64 /* rows summed in float32 before they join the block's sum */

/* rows [r0, r1) of a group into sum[0..c) and, for two, sum[c..2c). */
typedef void sum_fn(const void *x, const void *dy, const float *mean, int64_t c, int64_t r0,
                    int64_t r1, float *sum);

static GW_ALWAYS_INLINE void mean_rows(const void *x, int64_t c, int64_t r0, int64_t r1, float *sum,
                                       gw_dtype t) {
    for (int64_t r = r0; r < r1; r++) {
        const void *row = gw_vec_at(x, t, r * c);
        for (int64_t j = 0; j < c; j++) sum[j] += gw_vec_get(row, t, j);
    }
}

static GW_ALWAYS_INLINE void var_rows(const void *x, const float *mean, int64_t c, int64_t r0,
                                      int64_t r1, float *sum, gw_dtype t) {
    for (int64_t r = r0; r < r1; r++) {
        const void *row = gw_vec_at(x, t, r * c);
        for (int64_t j = 0; j < c; j++) {
            float d = gw_vec_get(row, t, j) - mean[j];
            sum[j] += d * d;
        }
    }
}

static GW_ALWAYS_INLINE void both_rows(const void *x, const void *dy, const float *mean, int64_t c,
                                       int64_t r0, int64_t r1, float *s1, float *s2, gw_dtype t) {
    for (int64_t r = r0; r < r1; r++) {
        const void *row = gw_vec_at(x, t, r * c), *grad = gw_vec_at(dy, t, r * c);
        for (int64_t j = 0; j < c; j++) {
            float d = gw_vec_get(grad, t, j);
            s1[j] += d;
            s2[j] += d * (gw_vec_get(row, t, j) - mean[j]);
        }
    }
}

/* y[r] = in[r] * a + (x[r] - mean) * p + q; without p: y = (x - mean) * a + q. */
typedef struct coefs {
    const float *mean, *a, *p, *q;
} coefs;
typedef void row_fn(void *y, const void *x, const void *dy, coefs k, int64_t c, int64_t r0,
                    int64_t r1);

static GW_ALWAYS_INLINE void norm_rows(void *y, const void *x, coefs k, int64_t c, int64_t r0,
                                       int64_t r1, gw_dtype t) {
    for (int64_t r = r0; r < r1; r++) {
        const void *in = gw_vec_at(x, t, r * c);
        void *out = gw_vec_out(y, t, r * c);
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            gw_vec_put(out, t, j, (gw_vec_get(in, t, j) - k.mean[j]) * k.a[j] + k.q[j]);
    }
}

static GW_ALWAYS_INLINE void dx_rows(void *y, const void *x, const void *dy, coefs k, int64_t c,
                                     int64_t r0, int64_t r1, gw_dtype t) {
    for (int64_t r = r0; r < r1; r++) {
        const void *in = gw_vec_at(x, t, r * c), *grad = gw_vec_at(dy, t, r * c);
        void *out = gw_vec_out(y, t, r * c);
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            gw_vec_put(out, t, j,
                       gw_vec_get(grad, t, j) * k.a[j] +
                           (gw_vec_get(in, t, j) - k.mean[j]) * k.p[j] + k.q[j]);
    }
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void mean_##suffix(const void *GW_RESTRICT x, const void *dy,                 \
                                        const float *mean, int64_t c, int64_t r0, int64_t r1,      \
                                        float *GW_RESTRICT sum) {                                  \
        (void)dy, (void)mean;                                                                      \
        mean_rows(x, c, r0, r1, sum, T);                                                           \
    }                                                                                              \
    GW_CLONES static void var_##suffix(const void *GW_RESTRICT x, const void *dy,                  \
                                       const float *GW_RESTRICT mean, int64_t c, int64_t r0,       \
                                       int64_t r1, float *GW_RESTRICT sum) {                       \
        (void)dy;                                                                                  \
        var_rows(x, mean, c, r0, r1, sum, T);                                                      \
    }                                                                                              \
    GW_CLONES static void both_##suffix(const void *GW_RESTRICT x, const void *GW_RESTRICT dy,     \
                                        const float *GW_RESTRICT mean, int64_t c, int64_t r0,      \
                                        int64_t r1, float *GW_RESTRICT sum) {                      \
        float *GW_RESTRICT s2 = sum + c;                                                           \
        both_rows(x, dy, mean, c, r0, r1, sum, s2, T);                                             \
    }                                                                                              \
    GW_CLONES static void norm_##suffix(void *y, const void *x, const void *dy, coefs k,           \
                                        int64_t c, int64_t r0, int64_t r1) {                       \
        (void)dy;                                                                                  \
        norm_rows(y, x, k, c, r0, r1, T);                                                          \
    }                                                                                              \
    GW_CLONES static void dx_##suffix(void *y, const void *x, const void *dy, coefs k, int64_t c,  \
                                      int64_t r0, int64_t r1) {                                    \
        dx_rows(y, x, dy, k, c, r0, r1, T);                                                        \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(sum_fn, mean)
GW_VEC_TABLE(sum_fn, var)
GW_VEC_TABLE(sum_fn, both)
GW_VEC_TABLE(row_fn, norm)
GW_VEC_TABLE(row_fn, dx)

/* ---- sums over rows ---- */

/* One launch: sums of `width` = c or 2c numbers over the rows of each group. Workspace: for each
 * block a sum of its own and one of the span at hand. */
typedef struct summing {
    gw_bn_shape s;
    gw_dtype t;
    const void *x, *dy;
    const float *mean;
    sum_fn *fn;
    int64_t width;
    float *parts;
} summing;

static void sum_block(const summing *u, int64_t g, int64_t p, gw_vec_blocks blocks) {
    float *total = u->parts + p * 2 * u->width, *span = total + u->width;
    int64_t first = p * blocks.length, end = GW_MIN(u->s.rows, first + blocks.length);
    memset(total, 0, (size_t)u->width * sizeof *total);
    for (int64_t r = first; r < end; r += SPAN) {
        memset(span, 0, (size_t)u->width * sizeof *span);
        u->fn(gw_vec_at(u->x, u->t, g * u->s.rows * u->s.c),
              u->dy ? gw_vec_at(u->dy, u->t, g * u->s.rows * u->s.c) : NULL,
              u->mean ? u->mean + g * u->s.c : NULL, u->s.c, r, GW_MIN(end, r + SPAN), span);
        for (int64_t j = 0; j < u->width; j++) total[j] += span[j];
    }
}

/* Sums of group g in float64, times factor[j] (or `all`, without), into out. */
static void finish_group(const summing *u, int64_t blocks, int64_t first, float *out, double all,
                         const float *factor) {
    for (int64_t j = 0; j < u->s.c; j++) {
        double sum = 0;
        for (int64_t p = 0; p < blocks; p++) sum += (double)u->parts[p * 2 * u->width + first + j];
        out[j] = (float)(factor ? sum * (double)factor[j] : sum * all);
    }
}

static void sum_group(const summing *u, int64_t g, gw_vec_blocks blocks, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (u->s.rows * u->s.c > GW_VEC_TASK)
    for (int64_t p = 0; p < blocks.count; p++) sum_block(u, g, p, blocks);
}

static int64_t parts_bytes(int64_t rows, int64_t width) {
    return gw_vec_blocks_of(rows).count * 2 * width * (int64_t)sizeof(float);
}

/* ---- hooks of the sums ---- */

static bool floats_f32(const gw_graph *g, const gw_op *o, int images, int first_stat, int stats) {
    gw_dtype t = gw_vec_in_type(g, o, 0);
    if (!gw_vec_is_float(t)) return false;
    for (int i = 0; i < images; i++)
        if (gw_vec_in_type(g, o, i) != t) return false;
    for (int i = first_stat; i < first_stat + stats; i++)
        if (gw_vec_in_type(g, o, i) != GW_F32) return false;
    return true;
}

static bool mean_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats_f32(g, o, 1, 1, 0) && gw_vec_out_type(g, o, 0) == GW_F32;
}

static bool var_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats_f32(g, o, 1, 1, 1) && gw_vec_out_type(g, o, 0) == GW_F32;
}

static bool sums_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats_f32(g, o, 2, 2, 2) && gw_vec_out_type(g, o, 0) == GW_F32 &&
           gw_vec_out_type(g, o, 1) == GW_F32;
}

static int64_t sums_workspace_of(const gw_graph *g, const gw_op *o, int64_t sums) {
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    const gw_tensor *x = &s.in[0];
    int64_t groups = GW_MAX(1, s.out[0].dims[0]), c = gw_vec_last(x);
    return parts_bytes(gw_vec_rows(x) / groups, sums * c) +
           sums * c * (int64_t)sizeof(float); /* factors of the second sum */
}

static int64_t one_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return sums_workspace_of(g, o, 1);
}

static int64_t two_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return sums_workspace_of(g, o, 2);
}

static int64_t global_groups(const gw_kargs *k, bool output, int i) {
    return gw_bn_groups(k->g, output ? gw_op_out(k->g, k->op, i) : gw_op_in(k->g, k->op, i));
}

static gw_status mean_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_bn_shape s = gw_bn_shape_of(k, 0, &k->out[0], global_groups(k, true, 0));
    summing u = {.s = s, .t = k->in[0].dtype, .x = k->in[0].data, .width = s.c, .parts = k->work};
    u.fn = mean_of[u.t];
    gw_vec_blocks blocks = gw_vec_blocks_of(s.rows);
    for (int64_t g = 0; g < s.groups; g++) {
        sum_group(&u, g, blocks, k->threads);
        finish_group(&u, blocks.count, 0, (float *)k->out[0].data + g * s.c, 1 / s.count, NULL);
    }
    return GW_OK;
}

static gw_status var_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_bn_shape s = gw_bn_shape_of(k, 0, &k->in[1], global_groups(k, false, 1));
    summing u = {.s = s,
                 .t = k->in[0].dtype,
                 .x = k->in[0].data,
                 .mean = k->in[1].data,
                 .width = s.c,
                 .parts = k->work};
    u.fn = var_of[u.t];
    gw_vec_blocks blocks = gw_vec_blocks_of(s.rows);
    for (int64_t g = 0; g < s.groups; g++) {
        sum_group(&u, g, blocks, k->threads);
        finish_group(&u, blocks.count, 0, (float *)k->out[0].data + g * s.c, 1 / s.count, NULL);
    }
    return GW_OK;
}

static gw_status sums_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_bn_shape s = gw_bn_shape_of(k, 1, &k->in[2], global_groups(k, false, 2));
    double eps = gw_op_attr_named(k->g, k->op, "eps").f;
    summing u = {.s = s,
                 .t = k->in[1].dtype,
                 .x = k->in[1].data,
                 .dy = k->in[0].data,
                 .mean = k->in[2].data,
                 .width = 2 * s.c};
    float *rstd = k->work;
    u.parts = rstd + 2 * s.c;
    u.fn = both_of[u.t];
    gw_vec_blocks blocks = gw_vec_blocks_of(s.rows);
    for (int64_t g = 0; g < s.groups; g++) {
        const float *var = (const float *)k->in[3].data + g * s.c;
        for (int64_t j = 0; j < s.c; j++) rstd[j] = (float)gw_bn_rstd((double)var[j], eps);
        sum_group(&u, g, blocks, k->threads);
        finish_group(&u, blocks.count, 0, (float *)k->out[0].data + g * s.c, 1, NULL);
        finish_group(&u, blocks.count, s.c, (float *)k->out[1].data + g * s.c, 0, rstd);
    }
    return GW_OK;
}

/* ---- hooks of the elementwise halves ---- */

static bool norm_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return floats_f32(g, o, 1, 1, 2) && gw_vec_floats(g, o, 0x18);
}

static bool dx_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    bool batch = gw_vec_given(g, o, 5);
    return floats_f32(g, o, 2, 2, 2) && gw_vec_floats(g, o, 0x10) &&
           (!batch || (gw_vec_in_type(g, o, 5) == GW_F32 && gw_vec_in_type(g, o, 6) == GW_F32));
}

/* Coefficients of all groups: mean, a, p, q, of c numbers each; gain and bias before them. */
static int64_t coefs_bytes(const gw_graph *g, const gw_op *o, int stat) {
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    int64_t groups = s.in[stat].ndim == 2 ? GW_MAX(1, s.in[stat].dims[0]) : 1;
    return (4 * groups + 2) * gw_vec_last(&s.in[0]) * (int64_t)sizeof(float);
}

static int64_t norm_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return coefs_bytes(g, o, 1);
}

static int64_t dx_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return coefs_bytes(g, o, 2);
}

static void run_rows(const gw_kargs *k, row_fn *fn, gw_bn_shape s, const void *x, const void *dy,
                     const float *table) {
    int64_t rows = s.groups * s.rows, step = GW_MAX(1, GW_VEC_TASK / GW_MAX(1, s.c));
    int64_t a_group = (s.rows + step - 1) / GW_MAX(1, step), tasks = a_group * s.groups;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (rows > step)
    for (int64_t i = 0; i < tasks; i++) {
        int64_t g = i / a_group, r0 = g * s.rows + i % a_group * step;
        const float *c = table + g * 4 * s.c;
        coefs co = {c, c + s.c, c + 2 * s.c, c + 3 * s.c};
        fn(k->out[0].data, x, dy, co, s.c, r0, GW_MIN((g + 1) * s.rows, r0 + step));
    }
}

static gw_status norm_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_bn_shape s = gw_bn_shape_of(k, 0, &k->in[1], global_groups(k, false, 1));
    double eps = gw_op_attr_named(k->g, k->op, "eps").f;
    float *gain = k->work, *bias = gain + s.c, *table = bias + s.c;
    gw_vec_load(gain, k->in[3].data, k->in[3].dtype, 0, s.c);
    gw_vec_load(bias, k->in[4].data, k->in[4].dtype, 0, s.c);
    const float *mean = k->in[1].data, *var = k->in[2].data;
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t j = 0; j < s.c; j++) {
            float *c = table + g * 4 * s.c + j;
            c[0] = mean[g * s.c + j];
            c[s.c] = (float)(gw_bn_rstd((double)var[g * s.c + j], eps) * (double)gain[j]);
            c[2 * s.c] = 0;
            c[3 * s.c] = bias[j];
        }
    run_rows(k, norm_of[k->in[0].dtype], s, k->in[0].data, NULL, table);
    return GW_OK;
}

static gw_status dx_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    gw_bn_shape s = gw_bn_shape_of(k, 1, &k->in[2], global_groups(k, false, 2));
    double eps = gw_op_attr_named(k->g, k->op, "eps").f;
    float *gain = k->work, *table = gain + 2 * s.c;
    gw_vec_load(gain, k->in[4].data, k->in[4].dtype, 0, s.c);
    const float *mean = k->in[2].data, *var = k->in[3].data;
    bool batch = k->nin > 6 && k->in[5].data != NULL;
    const float *s1 = batch ? k->in[5].data : NULL, *s2 = batch ? k->in[6].data : NULL;
    for (int64_t g = 0; g < s.groups; g++)
        for (int64_t j = 0; j < s.c; j++) {
            float *c = table + g * 4 * s.c + j;
            int64_t at = g * s.c + j;
            double rstd = gw_bn_rstd((double)var[at], eps), a = rstd * (double)gain[j];
            c[0] = mean[at];
            c[s.c] = (float)a;
            c[2 * s.c] = batch ? (float)(-a * rstd * (double)s2[at] / s.count) : 0;
            c[3 * s.c] = batch ? (float)(-a * (double)s1[at] / s.count) : 0;
        }
    run_rows(k, dx_of[k->in[1].dtype], s, k->in[1].data, k->in[0].data, table);
    return GW_OK;
}

/* ---- small ones ---- */

static bool groups_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, UINT32_MAX);
}

static gw_status groups_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *s = &k->in[0], *y = &k->out[0];
    bool acc = k->nin > 1 && k->in[1].data;
    for (int64_t i = 0; i < y->elems; i += GW_VEC_BLOCK) {
        float sum[GW_VEC_BLOCK] = {0}, part[GW_VEC_BLOCK];
        int64_t m = GW_MIN(GW_VEC_BLOCK, y->elems - i);
        if (acc) gw_vec_load(sum, k->in[1].data, k->in[1].dtype, i, m);
        for (int64_t g = 0; g < s->dims[0]; g++) {
            gw_vec_load(part, s->data, s->dtype, g * y->elems + i, m);
            for (int64_t j = 0; j < m; j++) sum[j] += part[j];
        }
        gw_vec_store(y->data, y->dtype, i, sum, m);
    }
    return GW_OK;
}

static bool running_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_in_type(g, o, 0) == GW_F32 && gw_vec_in_type(g, o, 1) == GW_F32;
}

static gw_status running_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    double m = gw_op_attr_named(k->g, k->op, "momentum").f;
    double scale = m * gw_op_attr_named(k->g, k->op, "scale").f;
    const float *r = k->in[0].data, *batch = k->in[1].data;
    float *out = k->out[0].data;
    for (int64_t i = 0; i < k->out[0].elems; i++)
        out[i] = (float)((1 - m) * (double)r[i] + scale * (double)batch[i]);
    return GW_OK;
}

GW_VEC_KERNEL(bn_mean, "bn_mean", "sums by fixed blocks of rows", mean_supports, one_workspace,
              mean_launch);
GW_VEC_KERNEL(bn_var, "bn_var", "sums around the mean by fixed blocks of rows", var_supports,
              one_workspace, var_launch);
GW_VEC_KERNEL(batchnorm, "batchnorm", "one multiply-add an element", norm_supports, norm_workspace,
              norm_launch);
GW_VEC_KERNEL(batchnorm_sums, "batchnorm_sums", "both sums in one pass, by fixed blocks of rows",
              sums_supports, two_workspace, sums_launch);
GW_VEC_KERNEL(batchnorm_dx, "batchnorm_dx", "two multiply-adds an element", dx_supports,
              dx_workspace, dx_launch);
GW_VEC_KERNEL(sum_groups, "sum_groups", "vector loop", groups_supports, gw_vec_no_workspace,
              groups_launch);
GW_VEC_KERNEL(running_stat, "running_stat", "plain loop over channels", running_supports,
              gw_vec_no_workspace, running_launch);

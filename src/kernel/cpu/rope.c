// SPDX-License-Identifier: Apache-2.0
// rope_table and rope: angles once a micro-batch, rotations at the speed of memory.
//
// The table's frequencies depend on attributes only and are made in prepare, by the formulas of
// ops/rope.c. The angle is the float32 product position * frequency, as models are trained with; it
// can reach 10^6 radians, so cosine and sine are reduced in float64 (quarter turns, pi/2 in two
// parts) and evaluated there by Taylor polynomials on |r| <= pi/4, whose truncation is below 1e-9:
// exact after the rounding to float32.
//
// rope converts a row's cosines and sines to float32 if they are stored narrower, then turns all
// heads of the row. A pair is read before either half is written, so y may take the bytes of x.
#include <math.h>

#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH */

/* ---- rope_table ---- */

typedef struct table_state {
    int64_t r;
    float *frequency; /* [r], radians a token */
    float gain;
} table_state;

/* Cosine and sine of position * frequency. */
GW_CLONES static void turn(float *GW_RESTRICT c, float *GW_RESTRICT s,
                           const float *GW_RESTRICT frequency, float position, int64_t r) {
    for (int64_t i = 0; i < r; i++) {
        float product = position * frequency[i];
        double angle = (double)product;
        double shifted = angle * 0.63661977236758134308 + 6755399441055744.0; /* 1.5 * 2^52 */
        double n = shifted - 6755399441055744.0;
        double x = angle - n * 1.5707963267341256, z;
        x = x - n * 6.0771005065061922e-11;
        z = x * x;
        double sine =
            x * (1 + z * (-1.0 / 6 +
                          z * (1.0 / 120 +
                               z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800))))));
        double cosine =
            1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 +
                                                 z * (1.0 / 40320 + z * (-1.0 / 3628800 +
                                                                         z * (1.0 / 479001600))))));
        /* Quarter q: cos, sin = (c, s), (-s, c), (-c, -s), (s, -c). m = n mod 4 from -2 to 2. */
        double m = n - 4 * ((n * 0.25 + 6755399441055744.0) - 6755399441055744.0);
        double odd = m * m == 1 ? 1 : 0;
        double a = odd != 0 ? sine : cosine, b = odd != 0 ? cosine : sine;
        double cs = m == 0 || m == -1 ? a : -a;
        double sn = m == 0 || m == 1 ? b : -b;
        c[i] = (float)cs;
        s[i] = (float)sn;
    }
}

/* The pair that makes `turns` turns in the original context, as a real number. */
static double pair_of(const gw_kargs *k, double turns) {
    double ratio =
        gw_op_attr_named(k->g, k->op, "original").f / (2 * 3.14159265358979323846 * turns);
    double head = (double)gw_op_attr_named(k->g, k->op, "head").i;
    return head * log(ratio) / (2 * log(gw_op_attr_named(k->g, k->op, "theta").f));
}

static double yarn(const gw_kargs *k, int64_t i, double f, double factor) {
    double first = floor(pair_of(k, gw_op_attr_named(k->g, k->op, "high").f));
    double last = ceil(pair_of(k, gw_op_attr_named(k->g, k->op, "low").f));
    first = fmax(first, 0);
    last = fmin(last, (double)gw_op_attr_named(k->g, k->op, "head").i - 1);
    if (first == last) last += 0.001;
    double t = fmin(fmax(((double)i - first) / (last - first), 0), 1);
    return t * f / factor + (1 - t) * f;
}

static double frequency_of(const gw_kargs *k, int64_t i) {
    double head = (double)gw_op_attr_named(k->g, k->op, "head").i;
    double f = pow(gw_op_attr_named(k->g, k->op, "theta").f, -2 * (double)i / head);
    double factor = gw_op_attr_named(k->g, k->op, "factor").f;
    int64_t scaling = gw_op_attr_named(k->g, k->op, "scaling").i;
    if (scaling == 0) return f;
    if (scaling == 1) return f / factor;
    if (scaling == 3) return yarn(k, i, f, factor);
    double low = gw_op_attr_named(k->g, k->op, "low").f;
    double high = gw_op_attr_named(k->g, k->op, "high").f;
    double turns = gw_op_attr_named(k->g, k->op, "original").f * f / (2 * 3.14159265358979323846);
    if (turns > high) return f;
    if (turns < low) return f / factor;
    double t = (turns - low) / (high - low);
    return (1 - t) * f / factor + t * f;
}

/* One row of cosines and one of sines stand on the stack. */
static bool table_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0) && gw_op_attr_named(g, o, "head").i / 2 <= GW_VEC_BLOCK;
}

static gw_status table_prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)dg;
    table_state *t = gw_arena_new(a, table_state, 1);
    t->r = gw_vec_last(&k->out[0]);
    t->gain = (float)gw_op_attr_named(k->g, k->op, "gain").f;
    t->frequency = gw_arena_new(a, float, t->r);
    for (int64_t i = 0; i < t->r; i++) t->frequency[i] = (float)frequency_of(k, i);
    *state = t;
    return GW_OK;
}

static gw_status table_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)dg;
    const table_state *s = state;
    int64_t n = k->in[0].elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n * s->r > 4096)
    for (int64_t i = 0; i < n; i++) {
        float c[GW_VEC_BLOCK], z[GW_VEC_BLOCK];
        turn(c, z, s->frequency, (float)gw_vec_int(&k->in[0], i), s->r);
        for (int64_t j = 0; s->gain != 1 && j < s->r; j++) {
            c[j] *= s->gain;
            z[j] *= s->gain;
        }
        gw_vec_store(k->out[0].data, k->out[0].dtype, i * s->r, c, s->r);
        gw_vec_store(k->out[1].data, k->out[1].dtype, i * s->r, z, s->r);
    }
    return GW_OK;
}

const gw_kernel gw_kernel_cpu_rope_table = {
    .name = "cpu-rope_table",
    .op = "rope_table",
    .note = "vectorised cosine and sine in float64, frequencies made beforehand",
    .supports = table_supports,
    .workspace = gw_vec_no_workspace,
    .prepare = table_prepare,
    .launch = table_launch,
    .release = gw_vec_no_release,
};

/* ---- rope ---- */

/* Turns the last 2 * half elements of `heads` vectors of skip + 2 * half. sign: 1, or -1 for the
 * inverse. */
typedef void rope_fn(void *y, const void *x, const float *c, const float *s, float sign,
                     int64_t heads, int64_t half, int64_t skip);

static GW_ALWAYS_INLINE void rope_any(void *y, const void *x, const float *c, const float *s,
                                      float sign, int64_t heads, int64_t half, int64_t skip,
                                      gw_dtype t) {
    for (int64_t h = 0; h < heads; h++) {
        int64_t at = h * (skip + 2 * half) + skip, to = at + half;
        for (int64_t i = at - skip; i < at && x != y; i++) gw_vec_put(y, t, i, gw_vec_get(x, t, i));
#pragma omp simd
        for (int64_t i = 0; i < half; i++) {
            float a = gw_vec_get(x, t, at + i), b = gw_vec_get(x, t, to + i), sn = sign * s[i];
            gw_vec_put(y, t, at + i, a * c[i] - b * sn);
            gw_vec_put(y, t, to + i, b * c[i] + a * sn);
        }
    }
}

#define MAKE(suffix, T)                                                                            \
    GW_CLONES static void rope_##suffix(void *y, const void *x, const float *c, const float *s,    \
                                        float sign, int64_t heads, int64_t half, int64_t skip) {   \
        rope_any(y, x, c, s, sign, heads, half, skip, T);                                          \
    }
GW_VEC_EACH(MAKE)
#undef MAKE
GW_VEC_TABLE(rope_fn, rope)

static bool rope_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    const gw_type *table = gw_type_of(g, gw_op_in(g, o, 1));
    return gw_vec_floats(g, o, 0x7) && table->dims[2].size <= GW_VEC_BLOCK;
}

/* Row r of the table as floats, in place or in buf. */
static const float *table_row(const gw_tensor *t, int64_t r, int64_t half, float *buf) {
    if (t->dtype == GW_F32) return (const float *)t->data + r * half;
    gw_vec_load(buf, t->data, t->dtype, r * half, half);
    return buf;
}

static void rope_row(const gw_kargs *k, rope_fn *fn, float sign, int64_t skip, int64_t r) {
    const gw_tensor *x = &k->in[0];
    float c[GW_VEC_BLOCK], s[GW_VEC_BLOCK];
    int64_t heads = x->dims[2], half = (x->dims[3] - skip) / 2, at = r * heads * x->dims[3];
    fn(gw_vec_out(k->out[0].data, x->dtype, at), gw_vec_at(x->data, x->dtype, at),
       table_row(&k->in[1], r, half, c), table_row(&k->in[2], r, half, s), sign, heads, half, skip);
}

static gw_status rope_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *x = &k->in[0];
    float sign = gw_op_attr_named(k->g, k->op, "inverse").i ? -1.0f : 1.0f;
    int64_t skip = gw_op_attr_named(k->g, k->op, "skip").i;
    rope_fn *fn = rope_of[x->dtype];
    int64_t rows = x->dims[0] * x->dims[1];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (x->elems > GW_VEC_TASK)
    for (int64_t r = 0; r < rows; r++) rope_row(k, fn, sign, skip, r);
    return GW_OK;
}

GW_VEC_KERNEL(rope, "rope", "vector loops, all heads of a position at once", rope_supports,
              gw_vec_no_workspace, rope_launch);

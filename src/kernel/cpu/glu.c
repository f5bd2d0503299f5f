// SPDX-License-Identifier: Apache-2.0
// swiglu and gelu, forward and backward: the elementwise functions of a feed-forward layer.
//
// All reduce to one exponential and one division an element, which vectorise, so the loops wait for
// memory. Nothing cancels in the tails, where a product with a small factor must still be small to
// the last bits:
//   - silu uses s = 1 / (1 + e^-z) for either sign;
//   - gelu by tanh uses (1 + tanh u) / 2 = sigmoid(2u), and its slope s + 2 x s (1 - s) u';
//   - exact gelu uses the normal integral Phi(-a) = e^(-a^2/2) t P(t), t = 1 / (1 + 0.24 a), a >=
//   0, with P of degree 9
//     interpolated at Chebyshev nodes on 0 <= a <= 14 (relative error 4e-9 in exact arithmetic);
//     its slope shares the exponential.
// Element i of all inputs is read before element i of an output is written, so outputs may take an
// input's bytes.
#include "kernel/cpu/vec_more.h" /* gw_vec_get, GW_VEC_EACH */

/* Elements [i0, i1) of up to three inputs and two outputs. */
typedef void glu_fn(void *const *y, const void *const *x, int64_t i0, int64_t i1);

/* ---- swiglu ---- */

static GW_ALWAYS_INLINE void swiglu_any(void *const *out, const void *const *in, int64_t i0,
                                        int64_t i1, gw_dtype t) {
    const void *gate = in[0], *up = in[1];
    void *y = out[0];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float z = gw_vec_get(gate, t, i);
        gw_vec_put(y, t, i, z * gw_vec_sigmoid(z) * gw_vec_get(up, t, i));
    }
}

static GW_ALWAYS_INLINE void swiglu_grad_any(void *const *out, const void *const *in, int64_t i0,
                                             int64_t i1, gw_dtype t) {
    const void *dy = in[0], *gate = in[1], *up = in[2];
    void *dgate = out[0], *dup = out[1];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float d = gw_vec_get(dy, t, i), z = gw_vec_get(gate, t, i), u = gw_vec_get(up, t, i);
        float s = gw_vec_sigmoid(z);
        gw_vec_put(dgate, t, i, d * u * (s * (1.0f + z * (1.0f - s))));
        gw_vec_put(dup, t, i, d * (z * s));
    }
}

/* ---- gelu by tanh ---- */

#define TWO_C 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define CUBE  0.044715f

static GW_ALWAYS_INLINE void gelu_tanh_any(void *const *out, const void *const *in, int64_t i0,
                                           int64_t i1, gw_dtype t) {
    const void *x = in[0];
    void *y = out[0];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(x, t, i);
        gw_vec_put(y, t, i, v * gw_vec_sigmoid(TWO_C * v * (1.0f + CUBE * v * v)));
    }
}

static GW_ALWAYS_INLINE void gelu_tanh_grad_any(void *const *out, const void *const *in, int64_t i0,
                                                int64_t i1, gw_dtype t) {
    const void *dy = in[0], *x = in[1];
    void *dx = out[0];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(x, t, i);
        float s = gw_vec_sigmoid(TWO_C * v * (1.0f + CUBE * v * v));
        float slope = s + v * s * (1.0f - s) * TWO_C * (1.0f + 3.0f * CUBE * v * v);
        gw_vec_put(dx, t, i, gw_vec_get(dy, t, i) * slope);
    }
}

/* ---- exact gelu ---- */

/* Phi(x) and the density of the normal distribution at x. */
static GW_ALWAYS_INLINE float normal_cdf(float x, float *density) {
    float a = x < 0.0f ? -x : x;
    float e = gw_vec_exp(-0.5f * a * a);
    float t = 1.0f / (1.0f + 0.24f * a);
    float p = 0.02559860347f;
    p = p * t - 0.1250756754f;
    p = p * t + 0.20662138054f;
    p = p * t - 0.14594757943f;
    p = p * t + 0.14297962772f;
    p = p * t + 0.02726053406f;
    p = p * t + 0.08809751828f;
    p = p * t + 0.08885675302f;
    p = p * t + 0.09586732188f;
    p = p * t + 0.09574151729f;
    float tail = e * t * p;
    *density = e * 0.3989422804014327f;
    return x < 0.0f ? tail : 1.0f - tail;
}

static GW_ALWAYS_INLINE void gelu_exact_any(void *const *out, const void *const *in, int64_t i0,
                                            int64_t i1, gw_dtype t) {
    const void *x = in[0];
    void *y = out[0];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(x, t, i), density;
        gw_vec_put(y, t, i, v * normal_cdf(v, &density));
    }
}

static GW_ALWAYS_INLINE void gelu_exact_grad_any(void *const *out, const void *const *in,
                                                 int64_t i0, int64_t i1, gw_dtype t) {
    const void *dy = in[0], *x = in[1];
    void *dx = out[0];
#pragma omp simd
    for (int64_t i = i0; i < i1; i++) {
        float v = gw_vec_get(x, t, i), density;
        float cdf = normal_cdf(v, &density);
        gw_vec_put(dx, t, i, gw_vec_get(dy, t, i) * (cdf + v * density));
    }
}

#define MAKE_ONE(name, suffix, T)                                                                  \
    GW_CLONES static void name##_##suffix(void *const *y, const void *const *x, int64_t i0,        \
                                          int64_t i1) {                                            \
        name##_any(y, x, i0, i1, T);                                                               \
    }
#define MAKE(suffix, T)                                                                            \
    MAKE_ONE(swiglu, suffix, T)                                                                    \
    MAKE_ONE(swiglu_grad, suffix, T)                                                               \
    MAKE_ONE(gelu_tanh, suffix, T)                                                                 \
    MAKE_ONE(gelu_tanh_grad, suffix, T)                                                            \
    MAKE_ONE(gelu_exact, suffix, T)                                                                \
    MAKE_ONE(gelu_exact_grad, suffix, T)
GW_VEC_EACH(MAKE)
#undef MAKE
#undef MAKE_ONE
GW_VEC_TABLE(glu_fn, swiglu)
GW_VEC_TABLE(glu_fn, swiglu_grad)
GW_VEC_TABLE(glu_fn, gelu_tanh)
GW_VEC_TABLE(glu_fn, gelu_tanh_grad)
GW_VEC_TABLE(glu_fn, gelu_exact)
GW_VEC_TABLE(glu_fn, gelu_exact_grad)

/* ---- hooks ---- */

static void run(const gw_kargs *k, glu_fn *const fns[3]) {
    const void *x[3] = {0};
    void *y[2] = {0};
    for (int i = 0; i < k->nin; i++) x[i] = k->in[i].data;
    for (int i = 0; i < k->nout; i++) y[i] = k->out[i].data;
    int64_t n = k->out[0].elems;
    glu_fn *fn = fns[k->out[0].dtype];
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > GW_VEC_TASK)
    for (int64_t i = 0; i < n; i += GW_VEC_TASK) fn(y, x, i, GW_MIN(n, i + GW_VEC_TASK));
}

/* The ops want one type for all operands already. */
static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x7);
}

static gw_status swiglu_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run(k, swiglu_of);
    return GW_OK;
}

static gw_status swiglu_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run(k, swiglu_grad_of);
    return GW_OK;
}

static gw_status gelu_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run(k, gw_op_attr_named(k->g, k->op, "tanh").i ? gelu_tanh_of : gelu_exact_of);
    return GW_OK;
}

static gw_status gelu_grad_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    run(k, gw_op_attr_named(k->g, k->op, "tanh").i ? gelu_tanh_grad_of : gelu_exact_grad_of);
    return GW_OK;
}

GW_VEC_KERNEL(swiglu, "swiglu", "vector loops", supports, gw_vec_no_workspace, swiglu_launch);
GW_VEC_KERNEL(swiglu_grad, "swiglu_grad", "vector loops, both gradients in one pass", supports,
              gw_vec_no_workspace, swiglu_grad_launch);
GW_VEC_KERNEL(gelu, "gelu", "vector loops, by tanh or exact", supports, gw_vec_no_workspace,
              gelu_launch);
GW_VEC_KERNEL(gelu_grad, "gelu_grad", "vector loops, by tanh or exact", supports,
              gw_vec_no_workspace, gelu_grad_launch);

// SPDX-License-Identifier: Apache-2.0
// adamw, sgd, sgdm: one pass over parameter, gradient and states.
//
// Elements go through a block at a time: what is stored in bf16 or f16 is converted into a block on
// the stack, what is float32 is used where it lies, the step runs as one vector loop over float32,
// and results are rounded back. So one loop serves every mixture of dtypes, and each byte crosses
// memory once in each direction.
//
// The arithmetic is the reference's, operation for operation in float32, and this file forbids
// contraction: the result has the reference's bits, on every processor and with any number of
// threads. Random words of stochastic rounding come from the same stream at the same index. What
// follows from scalars alone is computed in float64 and rounded once; the scalars are data and are
// read at each launch.
#include "base/compiler.h" /* GW_NO_CONTRACT */
GW_NO_CONTRACT

#include <math.h>

#include "base/num.h"            /* gw_f32_bits */
#include "kernel/cpu/vec_more.h" /* gw_vec_random_held, GW_VEC_BLOCK */

/* A tensor's block as floats: where it lies, or a buffer to be stored. */
static float *take(const gw_tensor *t, int64_t i, int64_t n, float *buf) {
    if (t->dtype == GW_F32) return (float *)t->data + i;
    gw_vec_load(buf, t->data, t->dtype, i, n);
    return buf;
}

static void give(const gw_tensor *t, int64_t i, int64_t n, const float *x) {
    if (t->dtype != GW_F32) gw_vec_store(t->data, t->dtype, i, x, n);
}

/* Scalars behind the states: factor, ok, lr, step. */
typedef struct scalars {
    double factor, lr;
    bool ok;
    int64_t step;
} scalars;

static scalars read_scalars(const gw_kargs *k, int nstates) {
    const gw_tensor *t = k->in + 2 + nstates;
    scalars s = {.factor = (double)*(const float *)t[0].data,
                 .ok = *(const float *)t[1].data != 0.0f,
                 .lr = (double)*(const float *)t[2].data};
    if (k->nin > 5 + nstates) s.step = gw_vec_int(&t[3], 0);
    return s;
}

static bool supports(const gw_graph *g, const gw_op *o, int nstates) {
    for (int i = 2 + nstates; i < 5 + nstates; i++)
        if (gw_vec_in_type(g, o, i) != GW_F32) return false;
    return gw_vec_floats(g, o, (1u << (2 + nstates)) - 1);
}

/* ---- adamw ---- */

typedef struct adamw {
    float factor, keep, weight1, beta2, weight2, step_size, root2, eps;
    bool stochastic;
    gw_rng_key key; /* of this step's rounding */
    gw_held held;   /* where elements stand in the whole tensor */
} adamw;

GW_CLONES static void adamw_block(float *GW_RESTRICT p, const float *GW_RESTRICT grad,
                                  float *GW_RESTRICT m, float *GW_RESTRICT v, int64_t n,
                                  const adamw *GW_RESTRICT a) {
    float factor = a->factor, keep = a->keep, weight1 = a->weight1, beta2 = a->beta2;
    float weight2 = a->weight2, step_size = a->step_size, root2 = a->root2, eps = a->eps;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float m1 = m[i] + weight1 * (g - m[i]);
        float v1 = beta2 * v[i] + weight2 * g * g;
        float denominator = sqrtf(v1) / root2 + eps;
        p[i] = p[i] * keep - step_size * m1 / denominator;
        m[i] = m1;
        v[i] = v1;
    }
}

GW_CLONES static void round_stochastic(uint16_t *GW_RESTRICT y, const float *GW_RESTRICT x,
                                       const uint32_t *GW_RESTRICT words, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = gw_f32_bits(x[i]), up = (u + (words[i] & 0xffffu)) >> 16;
        uint32_t nearest = gw_vec_narrow(x[i]);
        y[i] = (uint16_t)((u & 0x7f800000u) == 0x7f800000u ? nearest : up);
    }
}

static void adamw_task(const gw_kargs *k, const adamw *a, int64_t i, int64_t n) {
    float bp[GW_VEC_BLOCK], bg[GW_VEC_BLOCK], bm[GW_VEC_BLOCK], bv[GW_VEC_BLOCK];
    uint32_t words[GW_VEC_BLOCK + 4];
    float *p = take(&k->out[0], i, n, bp), *m = take(&k->out[1], i, n, bm);
    float *v = take(&k->out[2], i, n, bv);
    adamw_block(p, take(&k->in[1], i, n, bg), m, v, n, a);
    if (a->stochastic) {
        gw_vec_random_held(words, a->key, &a->held, i, n);
        round_stochastic((uint16_t *)k->out[0].data + i, p, words, n);
    } else {
        give(&k->out[0], i, n, p);
    }
    give(&k->out[1], i, n, m);
    give(&k->out[2], i, n, v);
}

static adamw adamw_of(const gw_kargs *k, scalars s) {
    double beta1 = gw_op_attr_named(k->g, k->op, "beta1").f;
    double beta2 = gw_op_attr_named(k->g, k->op, "beta2").f;
    adamw a = {.factor = (float)s.factor,
               .keep = (float)(1 - s.lr * gw_op_attr_named(k->g, k->op, "decay").f),
               .weight1 = (float)(1 - beta1),
               .beta2 = (float)beta2,
               .weight2 = (float)(1 - beta2),
               .step_size = (float)(s.lr / (1 - pow(beta1, (double)s.step))),
               .root2 = (float)sqrt(1 - pow(beta2, (double)s.step)),
               .eps = (float)gw_op_attr_named(k->g, k->op, "eps").f,
               .stochastic = gw_op_attr_named(k->g, k->op, "stochastic").i != 0};
    if (!a.stochastic) return a;
    uint64_t seed = (uint64_t)gw_op_attr_named(k->g, k->op, "seed").i;
    const char *name = gw_graph_str(k->g, gw_op_attr_named(k->g, k->op, "key").s);
    a.key = gw_rng_key_fold(gw_rng_key_named(seed, name), (uint64_t)s.step);
    gw_held_begin(&a.held, gw_type_of(k->g, gw_op_out(k->g, k->op, 0)), &k->g->mesh, k->rank);
    return a;
}

static bool adamw_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return supports(g, o, 2);
}

static gw_status adamw_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    scalars s = read_scalars(k, 2);
    if (!s.ok) return GW_OK;
    adamw a = adamw_of(k, s);
    int64_t n = k->out[0].elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > 4 * GW_VEC_BLOCK)
    for (int64_t i = 0; i < n; i += GW_VEC_BLOCK) adamw_task(k, &a, i, GW_MIN(GW_VEC_BLOCK, n - i));
    return GW_OK;
}

/* ---- sgd, sgdm ---- */

typedef struct sgd {
    float factor, lr, decay, momentum;
    bool first, nesterov;
} sgd;

GW_CLONES static void sgd_block(float *GW_RESTRICT p, const float *GW_RESTRICT grad, int64_t n,
                                const sgd *GW_RESTRICT s) {
    float factor = s->factor, lr = s->lr, decay = s->decay;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float d = g + decay * p[i];
        p[i] = p[i] - lr * d;
    }
}

/* What stands in m is not looked at in a first step, not even multiplied by zero. */
GW_CLONES static void sgdm_block(float *GW_RESTRICT p, const float *GW_RESTRICT grad,
                                 float *GW_RESTRICT m, int64_t n, const sgd *GW_RESTRICT s) {
    float factor = s->factor, lr = s->lr, decay = s->decay, momentum = s->momentum;
    bool first = s->first, nesterov = s->nesterov;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float d = g + decay * p[i];
        float later = momentum * m[i] + d;
        float m1 = first ? d : later;
        float ahead = d + momentum * m1;
        p[i] = p[i] - lr * (nesterov ? ahead : m1);
        m[i] = m1;
    }
}

static void sgd_task(const gw_kargs *k, const sgd *s, int64_t i, int64_t n) {
    float bp[GW_VEC_BLOCK], bg[GW_VEC_BLOCK], bm[GW_VEC_BLOCK];
    float *p = take(&k->out[0], i, n, bp);
    const float *g = take(&k->in[1], i, n, bg);
    if (k->nout == 1) {
        sgd_block(p, g, n, s);
    } else {
        float *m = take(&k->out[1], i, n, bm);
        sgdm_block(p, g, m, n, s);
        give(&k->out[1], i, n, m);
    }
    give(&k->out[0], i, n, p);
}

static void sgd_run(const gw_kargs *k, const sgd *s) {
    int64_t n = k->out[0].elems;
#pragma omp parallel for num_threads(k->threads) schedule(static) if (n > 4 * GW_VEC_BLOCK)
    for (int64_t i = 0; i < n; i += GW_VEC_BLOCK) sgd_task(k, s, i, GW_MIN(GW_VEC_BLOCK, n - i));
}

static bool sgd_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return supports(g, o, 0);
}

static bool sgdm_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return supports(g, o, 1);
}

static gw_status sgd_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    scalars s = read_scalars(k, 0);
    sgd d = {.factor = (float)s.factor,
             .lr = (float)s.lr,
             .decay = (float)gw_op_attr_named(k->g, k->op, "decay").f};
    if (s.ok) sgd_run(k, &d);
    return GW_OK;
}

static gw_status sgdm_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    scalars s = read_scalars(k, 1);
    sgd d = {.factor = (float)s.factor,
             .lr = (float)s.lr,
             .decay = (float)gw_op_attr_named(k->g, k->op, "decay").f,
             .momentum = (float)gw_op_attr_named(k->g, k->op, "momentum").f,
             .first = s.step <= 1,
             .nesterov = gw_op_attr_named(k->g, k->op, "nesterov").i != 0};
    if (s.ok) sgd_run(k, &d);
    return GW_OK;
}

GW_VEC_KERNEL(adamw, "adamw", "one pass, bits of the reference, stochastic rounding in lanes",
              adamw_supports, gw_vec_no_workspace, adamw_launch);
GW_VEC_KERNEL(sgd, "sgd", "one pass, bits of the reference", sgd_supports, gw_vec_no_workspace,
              sgd_launch);
GW_VEC_KERNEL(sgdm, "sgdm", "one pass, bits of the reference", sgdm_supports, gw_vec_no_workspace,
              sgdm_launch);

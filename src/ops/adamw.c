// SPDX-License-Identifier: Apache-2.0
// adamw: one step of AdamW on one tensor, in place.
//
// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, as torch.optim.AdamW steps:
//   g = g * factor                                   (loss scale and clipping, see sqnorm.c)
//   p = p * (1 - lr * decay)
//   m = m + (1 - beta1) * (g - m)
//   v = beta2 * v + (1 - beta2) * g * g
//   p = p - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
// step counts from 1. Whatever follows from scalars alone is computed in float64 and rounded once;
// elements in float32, one rounding an operation, or in float64 where p is float64. Gradient and
// moments may have dtypes of their own; the new moments are rounded to theirs when stored, but p is
// stepped with them as computed.
//
// With stochastic = true p is bf16 and has no float32 master: a step far below half a unit in the
// last place would vanish under rounding to nearest, so p is rounded up or down with probabilities
// that make the mean exact (Zamirai et al., "Revisiting bfloat16 training", 2020). The 16 random
// bits of element i of the whole tensor are the low bits of gw_rng_u32(fold(named(seed, key),
// step), i), `key` being the parameter's name: the same step of the same tensor rounds alike on
// every layout, and after a resume.
//
// ok == 0 leaves all bytes as they are. Elementwise: every sharding passes through. About 15 flops
// an element; the bytes are what it costs.
#include <math.h>

#include "base/rng.h"  /* gw_rng_key_named, gw_rng_u32 */
#include "ops/hooks.h" /* gw_cost_set */
#include "ops/ops.h"   /* gw_opdef_adamw */
#include "ops/optim.h" /* gw_optim_infer, gw_optim_read */
#include "ops/ref.h"   /* gw_ref_get */

enum { BETA1, BETA2, EPS, DECAY, STOCHASTIC, SEED, KEY };
static const gw_attr_def attrs[] = {
    {"beta1", GW_ATTR_FLOAT, 0, 0.9},   {"beta2", GW_ATTR_FLOAT, 0, 0.999},
    {"eps", GW_ATTR_FLOAT, 0, 1e-8},    {"decay", GW_ATTR_FLOAT, 0, 0.01},
    {"stochastic", GW_ATTR_BOOL, 0, 0}, {"seed", GW_ATTR_INT, 0, 0},
    {"key", GW_ATTR_STR, 0, 0},
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_optim_infer(f, 2, true));
    if (f->attrs[STOCHASTIC].i && gw_infer_in(f, 0)->dtype != GW_BF16)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "adamw: stochastic rounding is for bf16 parameters, this one is %s",
                       gw_dtype_name((gw_dtype)gw_infer_in(f, 0)->dtype));
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 15 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

/* What follows from scalars, for all elements. */
typedef struct factors {
    double factor, keep, weight1, beta2, weight2, step_size, root2, eps;
} factors;

static factors factors_of(const gw_kargs *k, gw_optim_scalars s) {
    double beta1 = gw_ref_attr(k, BETA1).f, beta2 = gw_ref_attr(k, BETA2).f;
    return (factors){.factor = s.factor,
                     .keep = 1 - s.lr * gw_ref_attr(k, DECAY).f,
                     .weight1 = 1 - beta1,
                     .beta2 = beta2,
                     .weight2 = 1 - beta2,
                     .step_size = s.lr / (1 - pow(beta1, (double)s.step)),
                     .root2 = sqrt(1 - pow(beta2, (double)s.step)),
                     .eps = gw_ref_attr(k, EPS).f};
}

/* The step of one element, in `real` arithmetic: x = {p, g, m, v} becomes {p', g', m', v'}. */
#define DEFINE_STEP(name, real, root)                                                              \
    static void name(const factors *f, double x[4]) {                                              \
        real p = (real)x[0], g = (real)x[1] * (real)f->factor, m = (real)x[2], v = (real)x[3];     \
        p = p * (real)f->keep;                                                                     \
        m = m + (real)f->weight1 * (g - m);                                                        \
        v = (real)f->beta2 * v + (real)f->weight2 * g * g;                                         \
        real denominator = root(v) / (real)f->root2 + (real)f->eps;                                \
        p = p - (real)f->step_size * m / denominator;                                              \
        x[0] = (double)p;                                                                          \
        x[1] = (double)g;                                                                          \
        x[2] = (double)m;                                                                          \
        x[3] = (double)v;                                                                          \
    }
DEFINE_STEP(step_f32, float, sqrtf)
DEFINE_STEP(step_f64, double, sqrt)

static void reference(const gw_kargs *k) {
    gw_optim_scalars s = gw_optim_read(k, 2);
    if (!s.ok) return;
    factors f = factors_of(k, s);
    bool stochastic = gw_ref_attr(k, STOCHASTIC).i != 0;
    gw_rng_key key = gw_rng_key_named((uint64_t)gw_ref_attr(k, SEED).i,
                                      gw_graph_str(k->g, gw_ref_attr(k, KEY).s));
    key = gw_rng_key_fold(key, (uint64_t)s.step);
    const gw_tensor *p = &k->out[0];
    gw_held w;
    int64_t global = 0, local, end = 0;
    gw_held_begin(&w, gw_type_of(k->g, gw_op_out(k->g, k->op, 0)), &k->g->mesh, k->rank);
    for (int64_t i = 0; i < p->elems; i++, global++) {
        double x[4];
        if (i == end && gw_held_next(&w, &global, &local, &end)) end += local;
        for (int j = 0; j < 4; j++) x[j] = gw_ref_get(&k->in[j], i);
        if (p->dtype == GW_F64)
            step_f64(&f, x);
        else
            step_f32(&f, x);
        if (stochastic)
            ((gw_bf16 *)p->data)[i] =
                gw_bf16_from_f32_stochastic((float)x[0], gw_rng_u32(key, (uint64_t)global));
        else
            gw_ref_set(p, i, x[0]);
        gw_ref_set(&k->out[1], i, x[2]);
        gw_ref_set(&k->out[2], i, x[3]);
    }
}

static void build_case(gw_cases *cs, gw_optim_case o, double decay, bool stochastic) {
    gw_vid in[9];
    int nin = 0;
    o.op = "adamw";
    o.nstates = 2;
    o.with_step = true;
    gw_case *c = gw_optim_case_begin(cs, &o, in, &nin);
    gw_attr a[7] = {{.f = 0.9},   {.f = 0.95},       {.f = 1e-8},
                    {.f = decay}, {.i = stochastic}, {.i = 7}};
    a[KEY].s = gw_graph_intern(&c->g, "blocks.0.q");
    gw_build(&c->b, o.op, in, nin, a, NULL);
}

static void cases(gw_cases *cs) {
    build_case(
        cs,
        (gw_optim_case){
            .name = "first step", .dims = "f5 d7", .ok = 1, .factor = 1, .lr = 1e-2, .step = 1},
        0.1, false);
    build_case(cs,
               (gw_optim_case){.name = "later, clipped",
                               .dims = "h3 k5 d17",
                               .ok = 1,
                               .float_states = true,
                               .factor = 0.25,
                               .lr = 3e-3,
                               .step = 1000},
               0, false);
    build_case(cs,
               (gw_optim_case){.name = "not ok", .dims = "d33", .factor = 0, .lr = 1e-2, .step = 3},
               0.1, false);
    if (cs->dtype == GW_BF16)
        build_case(cs,
                   (gw_optim_case){.name = "stochastic",
                                   .dims = "d1031",
                                   .ok = 1,
                                   .factor = 1,
                                   .lr = 1e-4,
                                   .step = 12},
                   0.1, true);
}

const gw_opdef gw_opdef_adamw = {
    .name = "adamw",
    .doc =
        "a step of AdamW in place, as torch.optim.AdamW; optionally rounding bf16 stochastically",
    .signature = "*,*,*,*,,,,->*,*,*",
    .traits = GW_OP_NODIFF | GW_OP_OPTIMIZER | GW_OP_RANDOM | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 8,
    .nout = 3,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, 2, 3, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 7,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

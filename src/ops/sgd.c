// SPDX-License-Identifier: Apache-2.0
// sgd and sgdm: gradient descent without and with momentum, in place, as torch.optim.SGD steps.
//
//   d = g * factor + decay * p                       decay is added to the gradient, not decoupled
//   sgd    p = p - lr * d
//   sgdm   m = d at step 1, momentum * m + d later   no dampening
//          p = p - lr * (nesterov ? d + momentum * m : m)
// At step 1 what stands in m is not looked at, so the state needs no particular start. Elements are
// computed in float32, one rounding an operation, or in float64 where p is float64; m may have a
// dtype of its own, and p is stepped with it as computed. Plain SGD shows constant factors in a
// gradient that Adam would hide, which makes it the optimizer of layout comparisons.
//
// ok == 0 leaves all bytes as they are. Elementwise: every sharding passes through. 4 and 7 flops
// an element.
#include "ops/hooks.h" /* gw_cost_set */
#include "ops/ops.h"   /* gw_opdef_sgd, gw_opdef_sgdm */
#include "ops/optim.h" /* gw_optim_infer, gw_optim_read */
#include "ops/ref.h"   /* gw_ref_get */

/* Scalars for all elements. Plain SGD has no momentum. */
typedef struct factors {
    double factor, lr, decay, momentum;
    bool first, nesterov;
} factors;

/* The step of one element, in `real` arithmetic: x = {p, g, m} becomes {p', d, m'}. */
#define DEFINE_STEP(name, real)                                                                    \
    static void name(const factors *f, double x[3]) {                                              \
        real p = (real)x[0], g = (real)x[1] * (real)f->factor, m = (real)x[2];                     \
        real d = g + (real)f->decay * p;                                                           \
        m = f->first ? d : (real)f->momentum * m + d;                                              \
        real update = f->nesterov ? d + (real)f->momentum * m : m;                                 \
        x[0] = (double)(p - (real)f->lr * update);                                                 \
        x[1] = (double)d;                                                                          \
        x[2] = (double)m;                                                                          \
    }
DEFINE_STEP(step_f32, float)
DEFINE_STEP(step_f64, double)

/* Without momentum every step is a first one. */
static void run(const gw_kargs *k, const factors *f, bool has_m) {
    const gw_tensor *p = &k->out[0];
    for (int64_t i = 0; i < p->elems; i++) {
        double x[3] = {gw_ref_get(&k->in[0], i), gw_ref_get(&k->in[1], i), 0};
        if (has_m && !f->first) x[2] = gw_ref_get(&k->in[2], i);
        if (p->dtype == GW_F64)
            step_f64(f, x);
        else
            step_f32(f, x);
        gw_ref_set(p, i, x[0]);
        if (has_m) gw_ref_set(&k->out[1], i, x[2]);
    }
}

/* ---- sgd ---- */

static const gw_attr_def attrs[] = {
    {"decay", GW_ATTR_FLOAT, 0, 0},
};

static gw_status infer(gw_infer *f) { return gw_optim_infer(f, 0, false); }

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void reference(const gw_kargs *k) {
    gw_optim_scalars s = gw_optim_read(k, 0);
    if (!s.ok) return;
    factors f = {.factor = s.factor, .lr = s.lr, .decay = gw_ref_attr(k, 0).f, .first = true};
    run(k, &f, false);
}

static void build_case(gw_cases *cs, const char *name, double ok, double decay) {
    gw_optim_case o = {.name = name, .dims = "f5 d7", .ok = ok, .factor = 0.5, .lr = 0.1};
    gw_vid in[9];
    int nin = 0;
    gw_case *c = gw_optim_case_begin(cs, &o, in, &nin);
    gw_build(&c->b, "sgd", in, nin, (gw_attr[]){{.f = decay}}, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "plain", 1, 0);
    build_case(cs, "decay", 1, 0.1);
    build_case(cs, "not ok", 0, 0.1);
}

const gw_opdef gw_opdef_sgd = {
    .name = "sgd",
    .doc = "a step of gradient descent in place, as torch.optim.SGD",
    .signature = "*,*,,,->*",
    .traits = GW_OP_NODIFF | GW_OP_OPTIMIZER | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 5,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
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

/* ---- sgdm ---- */

enum { MOMENTUM, NESTEROV, DECAY };
static const gw_attr_def m_attrs[] = {
    {"momentum", GW_ATTR_FLOAT, 0, 0.9},
    {"nesterov", GW_ATTR_BOOL, 0, 0},
    {"decay", GW_ATTR_FLOAT, 0, 0},
};

static gw_status m_infer(gw_infer *f) { return gw_optim_infer(f, 1, true); }

static void m_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 7 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void m_reference(const gw_kargs *k) {
    gw_optim_scalars s = gw_optim_read(k, 1);
    if (!s.ok) return;
    factors f = {.factor = s.factor,
                 .lr = s.lr,
                 .decay = gw_ref_attr(k, DECAY).f,
                 .momentum = gw_ref_attr(k, MOMENTUM).f,
                 .first = s.step <= 1,
                 .nesterov = gw_ref_attr(k, NESTEROV).i != 0};
    run(k, &f, true);
}

static void m_case(gw_cases *cs, const char *name, double ok, int64_t step, bool nesterov) {
    gw_optim_case o = {.name = name,
                       .dims = "h3 k5 d7",
                       .nstates = 1,
                       .with_step = true,
                       .float_states = nesterov,
                       .ok = ok,
                       .factor = 0.5,
                       .lr = 0.1,
                       .step = step};
    gw_vid in[9];
    int nin = 0;
    gw_case *c = gw_optim_case_begin(cs, &o, in, &nin);
    gw_attr a[3] = {{.f = 0.9}, {.i = nesterov}, {.f = 0.01}};
    gw_build(&c->b, "sgdm", in, nin, a, NULL);
}

static void m_cases(gw_cases *cs) {
    m_case(cs, "first step", 1, 1, false);
    m_case(cs, "later", 1, 2, false);
    m_case(cs, "nesterov", 1, 5, true);
    m_case(cs, "not ok", 0, 5, true);
}

const gw_opdef gw_opdef_sgdm = {
    .name = "sgdm",
    .doc = "a step of gradient descent with momentum in place, as torch.optim.SGD",
    .signature = "*,*,*,,,,->*,*",
    .traits = GW_OP_NODIFF | GW_OP_OPTIMIZER | GW_OP_FLAT,
    .linear_in = 0,
    .nin = 7,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, 2, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = m_attrs,
    .infer = m_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = m_cost,
    .vjp = gw_vjp_none,
    .reference = m_reference,
    .cases = m_cases,
};

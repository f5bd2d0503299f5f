// SPDX-License-Identifier: Apache-2.0
// What lasts from batch to batch beside the parameters: running statistics and a counter.
//
//   first_group   y[c] = s[0, c] of s[group c]
//   running_stat  r' = (1 - momentum) * r + momentum * scale * batch
//   tick          n' = n + 1
// as torch.nn.BatchNorm2d keeps running_mean, running_var (scale n / (n - 1): the unbiased
// variance) and num_batches_tracked. Every micro-batch counts.
//
// r is [c], fed by the first group's statistics, or [group c] when each group of samples keeps its
// own. The former is what DistributedDataParallel's broadcast_buffers comes to: before each forward
// rank 0's buffers overwrite all others, so after any number of steps every rank holds what the
// first rank's samples made of them. The latter is the same without the broadcast.
//
// first_group knows no rank either: where groups are cut, a part that does not begin with the first
// gives zeros, so the result is a partial sum, and who reads it asks for the whole.
//
// running_stat and tick work in place, on state that the step carries (pass/step.c says how a step
// that is refused leaves it as it was). Arithmetic in float64, rounded once. Elementwise.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_running_stat */
#include "ops/ref.h"   /* gw_ref_get */

enum { MOMENTUM, SCALE };
static const gw_attr_def attrs[] = {
    {"momentum", GW_ATTR_FLOAT, 0, 0.1},
    {"scale", GW_ATTR_FLOAT, 0, 1},
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_same_dims(f, 1, 0));
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 3 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void reference(const gw_kargs *k) {
    double m = gw_ref_attr(k, MOMENTUM).f, scale = gw_ref_attr(k, SCALE).f;
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i,
                   (1 - m) * gw_ref_get(&k->in[0], i) + m * scale * gw_ref_get(&k->in[1], i));
}

static void cases(gw_cases *cs) {
    static const char *const dims[] = {"c37", "group3 c4"};
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "each" : "one");
        gw_dtype t = gw_dtype_stat(cs->dtype);
        gw_vid r = gw_case_fixed(c, t, dims[i], GW_FILL_NORMAL, 1, 0);
        gw_vid x = gw_case_fixed(c, t, dims[i], GW_FILL_NORMAL, 1, 0);
        gw_build(&c->b, "running_stat", (gw_vid[]){r, x}, 2, (gw_attr[]){{.f = 0.1}, {.f = 1.25}},
                 NULL);
    }
}

const gw_opdef gw_opdef_running_stat = {
    .name = "running_stat",
    .doc = "exponential average of a batch statistic, in place",
    .signature = "*,*->*",
    .traits = GW_OP_NODIFF | GW_OP_BATCH_DEPENDENT,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
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

/* ---- first_group: s[group c] -> y[c] ---- */

static gw_status first_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 2, 2));
    const gw_type *s = gw_infer_in(f, 0);
    f->out[0] = gw_type_scalar((gw_dtype)s->dtype);
    gw_type_add(&f->out[0], s->dims[1].name, s->dims[1].size);
    return GW_OK;
}

static void first_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void first_reference(const gw_kargs *k) {
    const gw_tensor *s = &k->in[0];
    bool here = s->first == 0 && s->elems > 0;
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i, here ? gw_ref_get(s, i) : 0);
}

static void first_cases(gw_cases *cs) {
    static const char *const dims[] = {"group1 c37", "group3 c5"};
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "of three" : "alone");
        gw_build1(&c->b, "first_group", gw_case_value(c, dims[i], false, GW_FILL_NORMAL, 1, 0));
    }
}

const gw_opdef gw_opdef_first_group = {
    .name = "first_group",
    .doc = "the statistics of the first group of samples",
    .signature = "gc->c",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = first_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = first_cost,
    .vjp = gw_vjp_none,
    .reference = first_reference,
    .cases = first_cases,
};

/* ---- tick: n -> n' ---- */

static gw_status tick_infer(gw_infer *f) {
    const gw_type *n = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(n, (gw_dtype)n->dtype);
    GW_TRY(gw_infer_want_int(f, 0));
    if (n->dtype == GW_I64) return GW_OK;
    char t[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype", "tick: input 0, %s, must be i64",
                   gw_type_text(n, t));
}

static void tick_reference(const gw_kargs *k) {
    const int64_t *n = k->in[0].data;
    int64_t *to = k->out[0].data;
    for (int64_t i = 0; i < k->out[0].elems; i++) to[i] = n[i] + 1;
}

static void tick_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "one");
    gw_build1(&c->b, "tick", gw_case_fixed(c, GW_I64, "", GW_FILL_CONST, 41, 0));
}

const gw_opdef gw_opdef_tick = {
    .name = "tick",
    .doc = "adds one to a counter, in place",
    .signature = "*->*",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, -1, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = tick_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = tick_reference,
    .cases = tick_cases,
};

// SPDX-License-Identifier: Apache-2.0
// dropout: y = x / (1 - p) where the mask keeps an element, 0 elsewhere; x[b ..], sample[b],
// batch[].
//
// Srivastava et al., 2014, in the inverted form that leaves the expectation as it is. The mask is
// stored nowhere. Element j of sample i is kept if
//   gw_rng_uniform(fold(fold(named(seed, key), batch), sample[i]), j) >= p
// with `key` the op's own name, `batch` the batch counter, `sample` the global number of the sample
// in the data and j the index within the sample. So it depends on no rank, no micro-batch size and
// no order of samples: every layout drops the same elements, and a recomputed forward pass, or
// backward, draws the same mask again. uniform is below 1, so p = 1 drops all, and p = 0 keeps all
// bits of x.
//
// The gradient is dropout of dy with the same key, sample and batch; it reads nothing but those. A
// sharding passes through, whatever is cut: j counts through the whole sample, and a rank knows of
// each of its elements where it stands there. Two flops an element by convention; drawing (10
// rounds of Philox for 4 elements) is what it costs in a cache.
#include "base/rng.h"  /* gw_rng_key_named, gw_rng_uniform */
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_dropout */
#include "ops/ref.h"   /* gw_ref_get */
#include "ops/rows.h"  /* gw_rows_sample */

enum { P, KEY, SEED };
static const gw_attr_def attrs[] = {
    {"p", GW_ATTR_FLOAT, 0, 0.1},
    {"key", GW_ATTR_STR, 0, 0},
    {"seed", GW_ATTR_INT, 0, 0},
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 1, 1));
    GW_TRY(gw_infer_want_dim(f, 1, 0, 0, 0));
    GW_TRY(gw_infer_want_int(f, 2));
    GW_TRY(gw_infer_want_ndim(f, 2, 0, 0));
    if (!(f->attrs[P].f >= 0 && f->attrs[P].f <= 1))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "dropout: p is %g, not between 0 and 1", f->attrs[P].f);
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 2 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[3] = {v->dout[0], v->in[1], v->in[2]};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "dropout", in, 3, v->attrs, NULL);
}

static void reference(const gw_kargs *k) {
    const gw_tensor *x = &k->in[0];
    double p = gw_ref_attr(k, P).f, scale = 1 / (1 - p);
    gw_rng_key op = gw_rng_key_named((uint64_t)gw_ref_attr(k, SEED).i,
                                     gw_graph_str(k->g, gw_ref_attr(k, KEY).s));
    op = gw_rng_key_fold(op, (uint64_t)gw_ref_int(&k->in[2], 0));
    gw_type sample = gw_rows_sample(gw_type_of(k->g, gw_op_in(k->g, k->op, 0)));
    int64_t inner = gw_ref_inner(x, 1), global, local, count;
    for (int64_t i = 0; i < x->dims[0]; i++) {
        gw_rng_key key = gw_rng_key_fold(op, (uint64_t)gw_ref_int(&k->in[1], i));
        gw_held w;
        gw_held_begin(&w, &sample, &k->g->mesh, k->rank);
        while (gw_held_next(&w, &global, &local, &count))
            for (int64_t j = 0; j < count; j++) {
                bool keep = (double)gw_rng_uniform(key, (uint64_t)(global + j)) >= p;
                int64_t at = i * inner + local + j;
                gw_ref_set(&k->out[0], at, keep ? gw_ref_get(x, at) * scale : 0);
            }
    }
}

static void build_case(gw_cases *cs, const char *name, const char *dims, double p) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_vid sample = gw_case_fixed(c, GW_I64, "b3", GW_FILL_INTS, 0, 1e6);
    gw_vid batch = gw_case_fixed(c, GW_I64, "", GW_FILL_CONST, 17, 0);
    gw_attr a[3] = {{.f = p}, {0}, {.i = 42}};
    a[KEY].s = gw_graph_intern(&c->g, "layer 0/mlp/dropout");
    gw_build(&c->b, "dropout", (gw_vid[]){x, sample, batch}, 3, a, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "a tenth", "b3 s5 d7", 0.1);
    build_case(cs, "half", "b3 h2 k33", 0.5);
    build_case(cs, "none", "b3 d5", 0);
    build_case(cs, "all", "b3 d5", 1);
}

const gw_opdef gw_opdef_dropout = {
    .name = "dropout",
    .doc = "drops elements by a mask that is a function of key, batch, sample and index",
    .signature = "",
    .traits = GW_OP_RANDOM | GW_OP_INPLACE,
    .linear_in = 0x1,
    .nin = 3,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x6,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

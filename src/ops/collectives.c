// SPDX-License-Identifier: Apache-2.0
// Conversions of placements: all_reduce, reduce_scatter, all_gather, and slice.
//
//   all_reduce      P -> R       every rank gets the sum of all ranks' partial sums
//   reduce_scatter  P -> S       every rank gets its part of that sum
//   all_gather      S -> R       every rank gets all parts
//   slice           R -> S       every rank keeps its part of what all have; no traffic
//
// As functions of logical tensors all four are the identity: only the placement differs between
// input and output, and the two types say everything: the axes that leave the psum mask or the flat
// set are the group, so no attribute repeats them. The shard pass inserts these ops and sets the
// output's placement; inference gives the bare dims. One rank alone, the group is empty and the
// reference kernel copies.
//
//   wire       what travels, a gw_wire of comm/comm.h: 0 is the dtype itself
//   bucket     neighbours with one number > 0 run as one collective
//   algorithm  "" leaves it open
//
// In place. An output may be tied to the input although their bytes differ (GW_OP_VIEW): a
// reduce_scatter that leaves its part where it lies inside the whole, a slice that is a view of it,
// an all_gather whose input is such a view. That is how optimizer state is sharded around weights
// that stay whole (ZeRO-1) without a byte of copies.
//
// A sum of bf16 is made in float32 and rounded once. None has a gradient: conversions are inserted
// after differentiation. They cost no FLOPs here; what they cost on the wire is comm/'s business.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_type_plain */
#include "ops/ops.h"   /* gw_opdef_all_reduce */
#include "ops/ref.h"   /* gw_ref_get */

static const gw_attr_def attrs[] = {
    {"wire", GW_ATTR_INT, 0, 0},
    {"bucket", GW_ATTR_INT, 0, 0},
    {"algorithm", GW_ATTR_STR, 0, 0},
};

static gw_status infer(gw_infer *f) {
    const gw_type *t = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(t, (gw_dtype)t->dtype);
    return GW_OK;
}

/* ---- placements ---- */

static gw_status wrong(gw_diags *dg, const gw_graph *g, const gw_op *o, const char *what) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "%s: %s", gw_op_def(g, o)->name, what);
}

/* Cut alike along dimensions. */
static bool same_cuts(const gw_type *a, const gw_type *b) {
    for (int i = 0; i < a->ndim; i++) {
        const gw_dim *x = &a->dims[i], *y = &b->dims[i];
        if (x->naxes != y->naxes || memcmp(x->axes, y->axes, x->naxes) != 0) return false;
    }
    return true;
}

static gw_status verify_all_reduce(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *y = gw_type_of(g, gw_op_out(g, o, 0));
    if (x->flat != y->flat || x->flat_axes != y->flat_axes || !same_cuts(x, y))
        return wrong(dg, g, o, "input and output are cut differently");
    if ((y->psum & ~x->psum) || (y->pmax & ~x->pmax))
        return wrong(dg, g, o, "the output is partial where the input is not");
    return GW_OK;
}

static gw_status verify_reduce_scatter(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *y = gw_type_of(g, gw_op_out(g, o, 0));
    if (x->flat || !same_cuts(x, y)) return wrong(dg, g, o, "the input is cut already");
    if (y->psum != (x->psum & ~y->flat_axes) || (y->flat_axes & ~x->psum))
        return wrong(dg, g, o, "the output is not cut over axes on which the input is partial");
    return GW_OK;
}

static gw_status verify_all_gather(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *y = gw_type_of(g, gw_op_out(g, o, 0));
    if (y->flat || x->psum != y->psum || !same_cuts(x, y))
        return wrong(dg, g, o, "the output is not the whole of the input");
    return GW_OK;
}

static gw_status verify_slice(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *y = gw_type_of(g, gw_op_out(g, o, 0));
    if (x->flat || x->psum != y->psum || !same_cuts(x, y))
        return wrong(dg, g, o, "the output is not a part of a whole input");
    return GW_OK;
}

/* ---- the rest is shared ---- */

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    if (k->out[0].data == k->in[0].data) return;
    int64_t shift =
        k->in[0].elems > k->out[0].elems
            ? gw_type_flat_first(gw_type_of(k->g, gw_op_out(k->g, k->op, 0)), &k->g->mesh, k->rank)
            : 0; /* a slice */
    for (int64_t i = 0; i < k->out[0].elems; i++)
        gw_ref_set(&k->out[0], i, gw_ref_get(&k->in[0], i + shift));
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "alone");
    gw_build1(&c->b, cs->def->name, gw_case_value(c, "h3 d17", false, GW_FILL_NORMAL, 1, 0));
}

#define CONVERSION(id, text, extra_traits, nattributes, attributes)                                \
    const gw_opdef gw_opdef_##id = {                                                               \
        .name = #id,                                                                               \
        .doc = text,                                                                               \
        .signature = "*->*",                                                                       \
        .traits = GW_OP_NODIFF | (extra_traits),                                                   \
        .linear_in = 0,                                                                            \
        .nin = 1,                                                                                  \
        .nout = 1,                                                                                 \
        .noptional = 0,                                                                            \
        .nacc = 0,                                                                                 \
        .ties = GW_NO_TIES,                                                                        \
        .reads_in = 0,                                                                             \
        .reads_out = 0,                                                                            \
        .nattrs = nattributes,                                                                     \
        .attrs = attributes,                                                                       \
        .infer = infer,                                                                            \
        .verify = verify_##id,                                                                     \
        .sign = gw_sign_default,                                                                   \
        .shard = gw_shard_default,                                                                 \
        .cost = cost,                                                                              \
        .vjp = gw_vjp_none,                                                                        \
        .reference = reference,                                                                    \
        .cases = cases,                                                                            \
    }

CONVERSION(all_reduce, "partial sums become their sum on every rank", GW_OP_COLLECTIVE, 3, attrs);
CONVERSION(reduce_scatter, "partial sums become each rank's part of their sum",
           GW_OP_COLLECTIVE | GW_OP_VIEW, 3, attrs);
CONVERSION(all_gather, "the parts of all ranks become the whole on every rank",
           GW_OP_COLLECTIVE | GW_OP_VIEW, 3, attrs);
CONVERSION(slice, "each rank keeps its part of a whole; no traffic", GW_OP_VIEW, 0, NULL);

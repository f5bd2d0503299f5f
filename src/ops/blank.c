// SPDX-License-Identifier: Apache-2.0
// blank: zeros of one dimension, for an accumulator that no other value has the shape of.
//
//   -> y[size]  {size, dim: its name, dtype}
// `zeros` takes its shape from a value; a named result that is a vector (the load of experts) is
// summed over micro-batches and has none to take it from.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_dtype_attr */
#include "ops/ops.h"   /* gw_opdef_blank */
#include "ops/ref.h"   /* gw_ref_set */

enum { SIZE, DIM, DTYPE };
static const gw_attr_def attrs[] = {
    {"size", GW_ATTR_INT, 1, 0},
    {"dim", GW_ATTR_STR, 0, 0},
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},
};

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

static gw_status infer(gw_infer *f) {
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, DTYPE, GW_F32, &dtype));
    const char *dim = gw_graph_str(f->g, f->attrs[DIM].s);
    size_t n = strlen(dim);
    if (n < 1 || n > 7 || strspn(dim, letters) != n || f->attrs[SIZE].i < 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "blank: %lld of '%.20s' is no dimension", (long long)f->attrs[SIZE].i, dim);
    f->out[0] = gw_type_scalar(dtype);
    gw_type_add(&f->out[0], dim, f->attrs[SIZE].i);
    return GW_OK;
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void reference(const gw_kargs *k) {
    for (int64_t i = 0; i < k->out[0].elems; i++) gw_ref_set(&k->out[0], i, 0);
}

static void cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "plain");
    gw_attr a[3] = {[SIZE] = {.i = 5}, [DTYPE] = {.i = GW_F32}};
    a[DIM].s = gw_graph_intern(&c->g, "n");
    gw_build(&c->b, "blank", NULL, 0, a, NULL);
}

const gw_opdef gw_opdef_blank = {
    .name = "blank",
    .doc = "zeros of one dimension",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_CHEAP | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 0,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
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

// SPDX-License-Identifier: Apache-2.0
// bias_grad: db = sum of dy over all but its last `keep` dims (+ acc), the gradient of a bias.
//
// dy[b s h k] with keep = 2 gives db[h k]. Like every weight gradient it is phase W, in float32 by
// default, and adds into an accumulator when one is given. One addition an element of dy. The rows
// that are summed over, when sharded, leave db a partial sum.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_bias_grad */
#include "ops/ref.h"   /* gw_ref_get */

enum { KEEP, DTYPE };
static const gw_attr_def attrs[] = {
    {"keep", GW_ATTR_INT, 1, 0},         /* trailing dims kept */
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of db */
};

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    const gw_type *t = gw_infer_in(f, 0);
    int64_t keep = f->attrs[KEEP].i;
    char text[128];
    if (keep < 0 || keep > t->ndim)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "bias_grad: keep is %lld, but dy is %s",
                       (long long)keep, gw_type_text(t, text));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, DTYPE, GW_F32, &dtype));
    f->out[0] = gw_type_scalar(dtype);
    for (int i = t->ndim - (int)keep; i < t->ndim; i++)
        gw_type_add(&f->out[0], t->dims[i].name, t->dims[i].size);
    return gw_infer_want_acc(f, 1, &f->out[0]);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void reference(const gw_kargs *k) {
    const gw_tensor *dy = &k->in[0], *db = &k->out[0];
    int64_t n = db->elems, rows = n ? dy->elems / n : 0;
    for (int64_t j = 0; j < n; j++) {
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += gw_ref_get(dy, r * n + j);
        gw_ref_set(db, j, gw_ref_acc(k, 1, j) + sum);
    }
}

static void build_case(gw_cases *cs, const char *name, const char *dyd, int keep, const char *acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid dy = gw_case_value(c, dyd, false, GW_FILL_NORMAL, 1, 0);
    gw_vid a = acc ? gw_case_fixed(c, GW_F32, acc, GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build(&c->b, "bias_grad", (gw_vid[]){dy, a}, 2, (gw_attr[]){{.i = keep}, {.i = GW_F32}},
             NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "one dim", "b3 s5 d7", 1, NULL);
    build_case(cs, "heads, accumulates", "b2 s3 h2 k4", 2, "h2 k4");
    build_case(cs, "one row", "s1 d5", 1, "d5");
}

const gw_opdef gw_opdef_bias_grad = {
    .name = "bias_grad",
    .doc = "gradient of a bias: sums over the leading dimensions, adds into an accumulator",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0x1,
    .nin = 2,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
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

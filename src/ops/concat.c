// SPDX-License-Identifier: Apache-2.0
// concat: heads in two parts become heads in one; and split, its gradient.
//
//   concat  a[b s h k], b[b s h k'] or b[b s c1 k'] -> y[b s h k+k']   y's head is a's, then b's
//   split   y[b s h n] -> a[b s h first], b[b s h n-first] or b[b s c1 n-first]
//
// In multi-head latent attention (DeepSeek-V2, section 2.1.3) a key is a part of each head's own
// without rotation and a part with rotation that all heads share. The shared part is one head,
// dimension `c` of size 1: concat repeats it for every head, so its gradient, which split makes, is
// the sum over heads. Bits are copied; the sum is made in float64 here, in float32 by kernels, and
// rounded once.
//
// A sharding passes on b, s and h. Where h is cut, the shared part is whole on every rank and its
// gradient a partial sum: split's b is. Both are linear, so a partial sum of all inputs travels
// through; no flops but the additions of a shared gradient.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_sign_add */
#include "ops/ops.h"   /* gw_opdef_concat */
#include "ops/ref.h"   /* gw_ref_get */

static bool is_shared(const gw_type *part) { return strcmp(part->dims[2].name, "c") == 0; }

/* ---- concat ---- */

static gw_status infer(gw_infer *f) {
    for (int i = 0; i < 2; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
    }
    GW_TRY(gw_infer_want_same_dtype(f, 0, 1));
    GW_TRY(gw_infer_want_leading(f, 1, 0, 2));
    const gw_type *a = gw_infer_in(f, 0), *b = gw_infer_in(f, 1);
    char ta[128], tb[128];
    if (is_shared(b) && b->dims[2].size != 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "concat: the part that heads share, %s, must be one head",
                       gw_type_text(b, tb));
    if (!is_shared(b)) GW_TRY(gw_infer_want_dim(f, 1, 2, 0, 2));
    if (is_shared(a))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "concat: only the second part may be shared, not the first, %s",
                       gw_type_text(a, ta));
    f->out[0] = gw_type_plain(a, (gw_dtype)a->dtype);
    f->out[0].dims[3].size += b->dims[3].size;
    return GW_OK;
}

/* A factor of dimension `dim` of each operand (-1: not in it), named after operand 0's. */
static gw_factor *factor(gw_signature *s, const char *name, int64_t size, gw_factor_kind kind,
                         int whole, int a, int b, bool split) {
    gw_factor *f = gw_sign_add(s, name, size, kind);
    int8_t *y = split ? f->in_dim : f->out_dim, *parts = split ? f->out_dim : f->in_dim;
    y[0] = (int8_t)whole;
    parts[0] = (int8_t)a;
    parts[1] = (int8_t)b;
    return f;
}

/* Of both: y is the whole, a and b the parts. The lengths of a head share no factor. */
static void sign_of(const gw_type *y, const gw_type *a, const gw_type *b, bool split,
                    gw_signature *s) {
    memset(s, 0, sizeof *s);
    bool shared = is_shared(b);
    for (int d = 0; d < 3; d++)
        factor(s, y->dims[d].name, y->dims[d].size, GW_FACTOR_PASS, d, d, d == 2 && shared ? -1 : d,
               split);
    if (shared) factor(s, b->dims[2].name, 1, GW_FACTOR_WHOLE, -1, -1, 2, split);
    factor(s, y->dims[3].name, y->dims[3].size, GW_FACTOR_WHOLE, 3, -1, -1, split);
    factor(s, "ka", a->dims[3].size, GW_FACTOR_WHOLE, -1, 3, -1, split);
    factor(s, "kb", b->dims[3].size, GW_FACTOR_WHOLE, -1, -1, 3, split);
}

static void sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    sign_of(gw_type_of(g, gw_op_out(g, o, 0)), gw_type_of(g, gw_op_in(g, o, 0)),
            gw_type_of(g, gw_op_in(g, o, 1)), false, s);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) { gw_cost_set(g, o, 0, c); }

static void vjp(gw_vjp *v) {
    if (!v->want[0] && !v->want[1]) return;
    const gw_type *a = gw_type_of(v->g, v->in[0]), *b = gw_type_of(v->g, v->in[1]);
    gw_attr at[2] = {{.i = a->dims[3].size}, {.i = is_shared(b)}};
    gw_vid more[1] = {GW_NONE};
    gw_vid da = gw_vjp_build(v, GW_PHASE_B, "split", &v->dout[0], 1, at, more);
    if (v->want[0]) v->din[0] = da;
    if (v->want[1]) v->din[1] = more[0];
}

static void reference(const gw_kargs *k) {
    const gw_tensor *a = &k->in[0], *b = &k->in[1], *y = &k->out[0];
    int64_t na = a->dims[3], nb = b->dims[3], heads = a->dims[2];
    bool shared = is_shared(gw_type_of(k->g, gw_op_in(k->g, k->op, 1)));
    for (int64_t row = 0; row < gw_ref_rows(a); row++) {
        int64_t from = shared ? row / heads : row;
        for (int64_t i = 0; i < na; i++)
            gw_ref_set(y, row * (na + nb) + i, gw_ref_get(a, row * na + i));
        for (int64_t i = 0; i < nb; i++)
            gw_ref_set(y, row * (na + nb) + na + i, gw_ref_get(b, from * nb + i));
    }
}

static void build_case(gw_cases *cs, const char *name, const char *a, const char *b) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, a, false, GW_FILL_NORMAL, 1, 0);
    gw_vid y = gw_case_value(c, b, false, GW_FILL_NORMAL, 1, 0);
    gw_build1(&c->b, "concat", x, y);
}

static void cases(gw_cases *cs) {
    build_case(cs, "shared", "b2 s3 h4 k5", "b2 s3 c1 k4");
    build_case(cs, "own", "b2 s3 h2 k6", "b2 s3 h2 k3");
    build_case(cs, "one head", "b1 s5 h1 k1", "b1 s5 c1 k2");
}

const gw_opdef gw_opdef_concat = {
    .name = "concat",
    .doc = "heads of two parts; the second may be one that all heads share",
    .signature = "",
    .traits = GW_OP_LINEAR,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = vjp,
    .reference = reference,
    .cases = cases,
};

/* ---- split ---- */

enum { FIRST, SHARED };
static const gw_attr_def split_attrs[] = {
    {"first", GW_ATTR_INT, 1, 0},   /* components of the first part */
    {"shared", GW_ATTR_BOOL, 0, 0}, /* the second part is the sum over heads */
};

static gw_status split_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 4, 4));
    const gw_type *y = gw_infer_in(f, 0);
    int64_t first = f->attrs[FIRST].i;
    char t[128];
    if (first < 1 || first >= y->dims[3].size)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr",
                       "split: the first %lld components of %s leave an empty part",
                       (long long)first, gw_type_text(y, t));
    f->out[0] = gw_type_plain(y, (gw_dtype)y->dtype);
    f->out[0].dims[3].size = first;
    f->out[1] = gw_type_scalar((gw_dtype)y->dtype);
    for (int d = 0; d < 2; d++) gw_type_add(&f->out[1], y->dims[d].name, y->dims[d].size);
    if (f->attrs[SHARED].i)
        gw_type_add(&f->out[1], "c", 1);
    else
        gw_type_add(&f->out[1], y->dims[2].name, y->dims[2].size);
    gw_type_add(&f->out[1], y->dims[3].name, y->dims[3].size - first);
    return GW_OK;
}

static void split_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    sign_of(gw_type_of(g, gw_op_in(g, o, 0)), gw_type_of(g, gw_op_out(g, o, 0)),
            gw_type_of(g, gw_op_out(g, o, 1)), true, s);
}

static void split_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double rows = (double)gw_cost_elems(g, gw_op_in(g, o, 0)) /
                  (double)gw_type_of(g, gw_op_in(g, o, 0))->dims[3].size;
    double width = (double)gw_type_of(g, gw_op_out(g, o, 1))->dims[3].size;
    gw_cost_set(g, o, gw_op_attr(g, o, SHARED).i ? rows * width : 0, c);
}

static void split_reference(const gw_kargs *k) {
    const gw_tensor *y = &k->in[0], *a = &k->out[0], *b = &k->out[1];
    int64_t n = y->dims[3], na = gw_ref_attr(k, FIRST).i, nb = n - na;
    bool shared = gw_ref_attr(k, SHARED).i != 0;
    int64_t heads = y->dims[2], sums = shared ? heads : 1; /* no head at all sums to 0 */
    for (int64_t row = 0; row < gw_ref_rows(y); row++)
        for (int64_t i = 0; i < na; i++) gw_ref_set(a, row * na + i, gw_ref_get(y, row * n + i));
    for (int64_t row = 0; row < y->dims[0] * y->dims[1] * (shared ? 1 : heads); row++)
        for (int64_t i = 0; i < nb; i++) {
            double sum = 0;
            for (int64_t h = 0; h < sums; h++) sum += gw_ref_get(y, (row * sums + h) * n + na + i);
            gw_ref_set(b, row * nb + i, sum);
        }
}

static void split_case(gw_cases *cs, const char *name, const char *dims, int64_t first,
                       bool shared) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid y = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "split", &y, 1, (gw_attr[]){{.i = first}, {.i = shared}}, NULL);
}

static void split_cases(gw_cases *cs) {
    split_case(cs, "shared", "b2 s3 h4 k9", 5, true);
    split_case(cs, "own", "b2 s3 h2 k9", 6, false);
    split_case(cs, "many heads", "b1 s2 h19 k40", 7, true);
}

const gw_opdef gw_opdef_split = {
    .name = "split",
    .doc = "gradient of concat: the two parts of heads, the second perhaps summed over them",
    .signature = "",
    .traits = GW_OP_LINEAR | GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 1,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = split_attrs,
    .infer = split_infer,
    .verify = gw_verify_default,
    .sign = split_sign,
    .shard = gw_shard_default,
    .cost = split_cost,
    .vjp = gw_vjp_none,
    .reference = split_reference,
    .cases = split_cases,
};

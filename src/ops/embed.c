// SPDX-License-Identifier: Apache-2.0
// embed: y[* d] = w[ids, :], a table lookup; embed_grad: its weight gradient.
//
// ids holds row numbers of the whole w[v d]. An id whose row is not here gives a row of zeros and
// takes no gradient: so a rank that holds part of the rows, and padding (-1), need no second rule.
//
// Backward is a scatter: dw[r] = sum of dy over the positions whose id is r (+ acc). It is
// deterministic: each row's sum runs over positions in order, in float64, whatever the number of
// threads, and rounds once. `rows` and `dim` give the size and the name of the table's first
// dimension, which dy does not know.
//
// Work: embed moves bytes, no flops: it reads one row of w a position. embed_grad adds one element
// of dy each. A sharded v makes y a partial sum (every position is found on one rank); sharded
// positions make dw one. No input of embed_grad has v: where the gradient's home is cut along it,
// the rule takes that cut, and ids and dy whole on its sub-axes, so that each rank makes its rows
// and no others.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_embed */
#include "ops/ref.h"   /* gw_ref_get */
#include "ops/rows.h"  /* gw_rows_of, gw_rows_local */

enum { ROWS, DTYPE, DIM };
static const gw_attr_def grad_attrs[] = {
    {"rows", GW_ATTR_INT, 1, 0},         /* size of the table's first dimension */
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dw */
    {"dim", GW_ATTR_STR, 0, 0},          /* name of that dimension; "" = v */
};

/* ---- embed ---- */

static gw_status embed_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 0, GW_MAX_DIMS - 1));
    GW_TRY(gw_infer_want_float(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 2, 2));
    const gw_type *ids = gw_infer_in(f, 0), *w = gw_infer_in(f, 1);
    f->out[0] = gw_type_plain(ids, (gw_dtype)w->dtype);
    gw_type_add(&f->out[0], w->dims[1].name, w->dims[1].size);
    return GW_OK;
}

static void embed_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double y = (double)gw_cost_bytes(g, gw_op_out(g, o, 0));
    *c = (gw_cost){.bytes_read = (double)gw_cost_bytes(g, gw_op_in(g, o, 0)) + y,
                   .bytes_written = y};
}

static void embed_vjp(gw_vjp *v) {
    if (!v->want[1]) return;
    gw_dim rows = gw_type_of(v->g, v->in[1])->dims[0];
    gw_attr a[3] = {[ROWS] = {.i = rows.size},
                    [DTYPE] = {.i = gw_vjp_dtype(v, 1)},
                    [DIM] = {.s = gw_graph_intern(v->b->g, rows.name)}};
    gw_vid in[2] = {v->in[0], v->dout[0]};
    v->din[1] = gw_vjp_build(v, GW_PHASE_W, "embed_grad", in, 2, a, NULL);
}

static void embed_reference(const gw_kargs *k) {
    const gw_tensor *ids = &k->in[0], *w = &k->in[1], *y = &k->out[0];
    int64_t d = w->dims[1];
    gw_runs rows = gw_rows_of(k, gw_op_in(k->g, k->op, 1), 0);
    for (int64_t t = 0; t < ids->elems; t++) {
        int64_t row = gw_rows_local(&rows, gw_ref_int(ids, t));
        for (int64_t j = 0; j < d; j++)
            gw_ref_set(y, t * d + j, row >= 0 ? gw_ref_get(w, row * d + j) : 0);
    }
}

/* Input i of a rule, whole on `axes` and no partial sum. */
static gw_vid whole_on(gw_sharding *s, int i, uint32_t axes) {
    gw_type t = *gw_type_of(s->b->g, s->in[i]);
    for (int k = 0; k < t.ndim; k++) gw_dim_uncut(&t.dims[k], axes);
    t.psum = t.pmax = 0;
    return gw_sharding_convert(s, s->in[i], &t);
}

/* Ids that are cut where the table is would be looked up in the wrong part of it. */
static gw_status embed_shard(gw_sharding *s, gw_diags *dg) {
    uint32_t axes = gw_dim_axes(&gw_type_of(s->b->g, s->in[1])->dims[0]);
    if (axes & gw_type_cut_axes(gw_type_of(s->b->g, s->in[0]))) s->in[0] = whole_on(s, 0, axes);
    return s->by_signature(s, dg);
}

static void embed_cases(gw_cases *cs) {
    gw_case *c = gw_case_begin(cs, "repeated ids");
    gw_vid ids = gw_case_fixed(c, GW_I32, "b2 s5", GW_FILL_INTS, 0, 4);
    gw_build1(&c->b, "embed", ids, gw_case_value(c, "v6 d3", true, GW_FILL_NORMAL, 1, 0));
    c = gw_case_begin(cs, "ids outside");
    ids = gw_case_fixed(c, GW_I32, "b2 s6", GW_FILL_INTS, -2, 7);
    gw_build1(&c->b, "embed", ids, gw_case_value(c, "p4 d5", true, GW_FILL_NORMAL, 1, 0));
}

const gw_opdef gw_opdef_embed = {
    .name = "embed",
    .doc = "table lookup; ids outside the table give zeros",
    .signature = "*,vd->*d",
    .traits = 0,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x1,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = embed_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = embed_shard,
    .cost = embed_cost,
    .vjp = embed_vjp,
    .reference = embed_reference,
    .cases = embed_cases,
};

/* ---- embed_grad ---- */

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_float(f, 1));
    const gw_type *ids = gw_infer_in(f, 0), *dy = gw_infer_in(f, 1);
    GW_TRY(gw_infer_want_ndim(f, 1, ids->ndim + 1, ids->ndim + 1));
    GW_TRY(gw_infer_want_leading(f, 0, 1, ids->ndim));
    if (f->attrs[ROWS].i < 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "embed_grad: rows is %lld",
                       (long long)f->attrs[ROWS].i);
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, DTYPE, GW_F32, &dtype));
    const char *dim = gw_graph_str(f->g, f->attrs[DIM].s);
    if (strspn(dim, letters) != strlen(dim) || strlen(dim) >= sizeof dy->dims[0].name)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr",
                       "embed_grad: dim is '%.20s', which is not 1 to 7 letters", dim);
    f->out[0] = gw_type_scalar(dtype);
    gw_type_add(&f->out[0], dim[0] ? dim : "v", f->attrs[ROWS].i);
    gw_type_add(&f->out[0], dy->dims[ids->ndim].name, dy->dims[ids->ndim].size);
    return gw_infer_want_acc(f, 2, &f->out[0]);
}

/* Into an accumulator only the rows that occur are touched, at most one a position. */
static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_vid dy = gw_op_in(g, o, 1), acc = gw_op_in(g, o, 2), dw = gw_op_out(g, o, 0);
    double whole = (double)gw_cost_bytes(g, dw), dy_elems = (double)gw_cost_elems(g, dy);
    double touched = dy_elems * gw_dtype_bits((gw_dtype)gw_type_of(g, dw)->dtype) / 8;
    touched = GW_MIN(touched, whole);
    *c = (gw_cost){.flops = dy_elems, .flops_full = dy_elems};
    c->bytes_read = (double)(gw_cost_bytes(g, gw_op_in(g, o, 0)) + gw_cost_bytes(g, dy)) +
                    (acc != GW_NONE ? touched : 0);
    c->bytes_written = acc != GW_NONE ? touched : whole;
}

static gw_status grad_shard(gw_sharding *s, gw_diags *dg) {
    const gw_type *want = s->want ? s->want[0] : NULL;
    uint32_t axes = want ? gw_dim_axes(&want->dims[0]) : 0;
    if (!axes) return s->by_signature(s, dg);
    gw_vid in[3] = {whole_on(s, 0, axes), whole_on(s, 1, axes), s->nin > 2 ? s->in[2] : GW_NONE};
    const gw_type dy = *gw_type_of(s->b->g, in[1]);
    gw_type rows = dy; /* ids are cut as dy is */
    rows.ndim--;
    in[0] = gw_sharding_convert(s, in[0], &rows);
    s->out[0] = gw_build(s->b, "embed_grad", in, 3, s->attrs, NULL);
    gw_type t = *want;
    t.dims[1] = dy.dims[dy.ndim - 1];
    t.psum = gw_type_cut_axes(&rows);
    t.pmax = 0;
    gw_sharding_place(s, s->out[0], &t);
    return s->b->status;
}

/* First position with this id at or after t, or the number of positions. */
static int64_t next_of(const gw_tensor *ids, int64_t row, int64_t t) {
    while (t < ids->elems && gw_ref_int(ids, t) != row) t++;
    return t;
}

static void grad_reference(const gw_kargs *k) {
    const gw_tensor *ids = &k->in[0], *dy = &k->in[1], *dw = &k->out[0];
    int64_t d = dw->dims[1];
    gw_runs rows = gw_rows_of(k, gw_op_out(k->g, k->op, 0), 0);
    for (int64_t r = 0; r < dw->dims[0]; r++) {
        int64_t row = gw_runs_global(&rows, r), first = next_of(ids, row, 0);
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int64_t t = first; t < ids->elems; t = next_of(ids, row, t + 1))
                sum += gw_ref_get(dy, t * d + j);
            gw_ref_set(dw, r * d + j, gw_ref_acc(k, 2, r * d + j) + sum);
        }
    }
}

static void grad_case(gw_cases *cs, const char *name, bool acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid ids = gw_case_fixed(c, GW_I32, "b2 s9", GW_FILL_INTS, -2, 7);
    gw_vid dy = gw_case_value(c, "b2 s9 d3", false, GW_FILL_NORMAL, 1, 0);
    gw_vid a = acc ? gw_case_fixed(c, GW_F32, "v6 d3", GW_FILL_NORMAL, 1, 0) : GW_NONE;
    gw_build(&c->b, "embed_grad", (gw_vid[]){ids, dy, a}, 3,
             (gw_attr[]){[ROWS] = {.i = 6}, [DTYPE] = {.i = GW_F32}, [DIM] = {.s = 0}}, NULL);
}

static void grad_cases(gw_cases *cs) {
    grad_case(cs, "plain", false);
    grad_case(cs, "accumulates", true);
}

const gw_opdef gw_opdef_embed_grad = {
    .name = "embed_grad",
    .doc = "weight gradient of embed: a deterministic scatter of rows, adds into an accumulator",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0x2,
    .nin = 3,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = grad_shard,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

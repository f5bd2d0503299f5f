// SPDX-License-Identifier: Apache-2.0
// loads, token_sum, token_spread: what balance losses average, as plain sums over tokens.
//
//   loads         ids i32[b s t], acc? -> f32[b n] or f32[n]     choices of each expert
//   token_sum     x[b s n], tokens[b s] -> [b n] or [n]          sum of the rows that are tokens
//   token_spread  dy[b n] or [n], tokens[b s] -> [b s n]         the gradient: dy in each such row
//
// A balance loss is a ratio of such sums, taken of each sequence or, with `samples`, of the whole
// global micro-batch. The sums stand apart from the ratio because they are linear: where s or b is
// cut over ranks they come out as partial sums, are added, and the loss sees whole ones. A loss of
// means over parts of the batch would be another loss in every layout. Padding (a negative token,
// an id of -1) is in no sum.
//
// Counts are exact in float32 up to 2^24. Sums in float64, rounded once, in at least float32.
#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_vjp_build */
#include "ops/ops.h"   /* gw_opdef_loads */
#include "ops/ref.h"   /* gw_ref_get */

/* ---- loads ---- */

enum { EXPERTS, LOAD_SAMPLES };
static const gw_attr_def load_attrs[] = {
    {"experts", GW_ATTR_INT, 1, 0}, {"samples", GW_ATTR_BOOL, 0, 0}, /* summed over b too */
};

static gw_status loads_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 3, 3));
    if (f->attrs[EXPERTS].i < 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute", "loads: experts is %lld",
                       (long long)f->attrs[EXPERTS].i);
    const gw_dim *b = &gw_infer_in(f, 0)->dims[0];
    f->out[0] = gw_type_scalar(GW_F32);
    if (!f->attrs[LOAD_SAMPLES].i) gw_type_add(&f->out[0], b->name, b->size);
    gw_type_add(&f->out[0], "n", f->attrs[EXPERTS].i);
    return gw_infer_want_acc(f, 1, &f->out[0]);
}

static void loads_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void loads_reference(const gw_kargs *k) {
    float *to = k->out[0].data;
    int64_t n = gw_ref_last(&k->out[0]), inner = gw_ref_inner(&k->in[0], 1);
    bool samples = gw_ref_attr(k, LOAD_SAMPLES).i != 0;
    for (int64_t i = 0; i < k->out[0].elems; i++) to[i] = (float)gw_ref_acc(k, 1, i);
    for (int64_t i = 0; i < k->in[0].elems; i++) {
        int64_t e = gw_ref_int(&k->in[0], i);
        if (e >= 0 && e < n) to[samples ? e : i / inner * n + e] += 1;
    }
}

static void loads_cases(gw_cases *cs) {
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"by sequence", "of all", "accumulates"};
        gw_case *c = gw_case_begin(cs, names[i]);
        gw_vid in[2] = {gw_case_fixed(c, GW_I32, "b3 s7 t2", GW_FILL_INTS, -1, 5), GW_NONE};
        if (i == 2) in[1] = gw_case_fixed(c, GW_F32, "n5", GW_FILL_INTS, 0, 9);
        gw_build(&c->b, "loads", in, 2, (gw_attr[]){{.i = 5}, {.i = i > 0}}, NULL);
    }
}

const gw_opdef gw_opdef_loads = {
    .name = "loads",
    .doc = "how many tokens chose each expert",
    .signature = "bs!t,*?->*",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 2,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 2,
    .attrs = load_attrs,
    .infer = loads_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = loads_cost,
    .vjp = gw_vjp_none,
    .reference = loads_reference,
    .cases = loads_cases,
};

/* ---- token_sum ---- */

enum { SAMPLES };
static const gw_attr_def sum_attrs[] = {
    {"samples", GW_ATTR_BOOL, 0, 0},
};

static gw_status sum_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 3, 3));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 2, 2));
    GW_TRY(gw_infer_want_leading(f, 1, 0, 2));
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_scalar(gw_dtype_stat((gw_dtype)x->dtype));
    if (!f->attrs[SAMPLES].i) gw_type_add(&f->out[0], x->dims[0].name, x->dims[0].size);
    gw_type_add(&f->out[0], x->dims[2].name, x->dims[2].size);
    return GW_OK;
}

static void sum_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void sum_vjp(gw_vjp *v) {
    if (!v->want[0]) return;
    gw_vid in[2] = {v->dout[0], v->in[1]};
    gw_attr a = {.i = gw_type_of(v->g, v->in[0])->dtype};
    v->din[0] = gw_vjp_build(v, GW_PHASE_B, "token_spread", in, 2, &a, NULL);
}

static void sum_reference(const gw_kargs *k) {
    int64_t n = gw_ref_last(&k->in[0]), rows = k->in[1].elems;
    int64_t b = k->in[1].dims[0], s = b ? rows / b : 0;
    bool samples = gw_ref_attr(k, SAMPLES).i != 0;
    for (int64_t i = 0; i < k->out[0].elems; i++) {
        int64_t first = samples ? 0 : i / n * s, count = samples ? rows : s;
        double sum = 0;
        for (int64_t r = first; r < first + count; r++)
            if (gw_ref_int(&k->in[1], r) >= 0) sum += gw_ref_get(&k->in[0], r * n + i % n);
        gw_ref_set(&k->out[0], i, sum);
    }
}

static void sum_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "of all" : "by sequence");
        gw_vid in[2] = {gw_case_value(c, "b2 s5 n3", false, GW_FILL_NORMAL, 1, 0)};
        in[1] = gw_case_fixed(c, GW_I32, "b2 s5", GW_FILL_INTS, -2, 4);
        gw_build(&c->b, "token_sum", in, 2, (gw_attr[]){{.i = i}}, NULL);
    }
}

const gw_opdef gw_opdef_token_sum = {
    .name = "token_sum",
    .doc = "sum over the tokens that are no padding",
    .signature = "bsn,bs->*",
    .traits = 0,
    .linear_in = 0x1,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0x2,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = sum_attrs,
    .infer = sum_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = sum_cost,
    .vjp = sum_vjp,
    .reference = sum_reference,
    .cases = sum_cases,
};

/* ---- token_spread ---- */

static const gw_attr_def spread_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0},
};

static gw_status spread_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, 2));
    GW_TRY(gw_infer_want_int(f, 1));
    GW_TRY(gw_infer_want_ndim(f, 1, 2, 2));
    const gw_type *dy = gw_infer_in(f, 0);
    if (dy->ndim == 2) GW_TRY(gw_infer_want_dim(f, 0, 0, 1, 0));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    f->out[0] = gw_type_plain(gw_infer_in(f, 1), dtype);
    gw_type_add(&f->out[0], dy->dims[dy->ndim - 1].name, dy->dims[dy->ndim - 1].size);
    return GW_OK;
}

static void spread_reference(const gw_kargs *k) {
    int64_t n = gw_ref_last(&k->in[0]), rows = k->in[1].elems;
    int64_t b = k->in[1].dims[0], s = b ? rows / b : 0;
    for (int64_t r = 0; r < rows; r++) {
        bool token = gw_ref_int(&k->in[1], r) >= 0;
        int64_t from = k->in[0].ndim == 2 ? r / s * n : 0;
        for (int64_t j = 0; j < n; j++)
            gw_ref_set(&k->out[0], r * n + j, token ? gw_ref_get(&k->in[0], from + j) : 0);
    }
}

static void spread_cases(gw_cases *cs) {
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "of all" : "by sequence");
        gw_vid in[2] = {gw_case_value(c, i ? "n3" : "b2 n3", false, GW_FILL_NORMAL, 1, 0)};
        in[1] = gw_case_fixed(c, GW_I32, "b2 s5", GW_FILL_INTS, -2, 4);
        gw_build(&c->b, "token_spread", in, 2, (gw_attr[]){{.i = cs->dtype}}, NULL);
    }
}

const gw_opdef gw_opdef_token_spread = {
    .name = "token_spread",
    .doc = "gradient of token_sum: its own in every row that is a token",
    .signature = "*,bs->bsn",
    .traits = GW_OP_NODIFF,
    .linear_in = 0x1,
    .nin = 2,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = spread_attrs,
    .infer = spread_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = gw_cost_default,
    .vjp = gw_vjp_none,
    .reference = spread_reference,
    .cases = spread_cases,
};

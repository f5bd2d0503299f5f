// SPDX-License-Identifier: Apache-2.0
// The head where the vocabulary is cut over ranks: each holds some rows of w, none sees a whole
// row of logits (vocabulary-parallel cross-entropy; Shoeybi et al., "Megatron-LM", 2019, section
// 3). head and head_grad become, with A the sub-axes that cut v,
//
//   head_stats      x, w, labels        -> max[*] P(max) A, parts[part{A} * stat3]
//   all_reduce      max over A
//   head_merge      max, parts          -> sums[* sum2] P(sum) A
//   all_reduce      sums over A
//   head_loss       labels, max, sums, acc?            -> loss
//   head_part_grad  x, w, labels, max, sums, seed, acc? -> dx P(sum) A, dw
//
// head_stats goes once through the tiles of logits and leaves of each row three numbers: the part's
// largest logit m, the sum of exp(z - m), and the label's logit where the label's row of w is here,
// else 0. Dimension `part` counts the parts that v is in; its cut is that of v, so each rank holds
// its own part and no placement is bent. Relative to the maximum M of all parts the sums add up:
// head_merge gives sum exp(m - M) * that sum, and the label's logit, which one part knows. A row
// without a label (negative) is zeros. An empty part has m = -infinity and sum 0, and adds nothing.
//
// The loss, sum of M + log(sum) - z_label over valid rows, is computed from statistics that are
// whole on A, so every rank of A has it whole: it is counted once without being reduced. That is
// why it is an op of its own. The partial sum over rows that are cut stays what it is in `head`.
//
// x and labels must be whole on A: rows that sequence parallelism cuts there are gathered first.
// What is left of logits after head_stats is nothing, so head_part_grad makes them again: 2 r v d
// for the statistics and 6 r v d for the gradient, a third more than the fused op of one rank,
// against a collective for each tile. On the wire: 12 bytes a row, beside x and dx.
#include <math.h>
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/head.h"  /* gw_head_infer, gw_head_gradient */
#include "ops/hooks.h" /* gw_infer_want_* */
#include "ops/ops.h"   /* gw_opdef_head_stats */
#include "ops/ref.h"   /* gw_ref_get */
#include "ops/rows.h"  /* gw_rows_of, gw_rows_local */

static const gw_attr_def stats_attrs[] = {
    {"parts", GW_ATTR_INT, 1, 0}, /* that v is cut into, ceil-divided */
};
static const gw_attr_def grad_attrs[] = {
    {"dtype", GW_ATTR_DTYPE, GW_F32, 0}, /* of dw */
};

/* The stats and sums of a row. */
enum { MOST, SUM, OWN, STATS };
enum { TOTAL, LABEL, SUMS };

/* dims of t with a further one before or behind them. */
static gw_type around(const gw_type *t, const char *before, int64_t n, const char *behind,
                      int64_t m) {
    gw_type r = gw_type_scalar((gw_dtype)t->dtype);
    if (n > 0) gw_type_add(&r, before, n);
    for (int i = 0; i < t->ndim; i++) gw_type_add(&r, t->dims[i].name, t->dims[i].size);
    gw_type_add(&r, behind, m);
    return r;
}

static void products_cost(const gw_graph *g, const gw_op *o, int products, gw_cost *c) {
    double x = (double)gw_cost_elems(g, gw_op_in(g, o, 0));
    gw_cost_set(g, o, 2.0 * products * x * (double)gw_cost_dim(g, gw_op_in(g, o, 1), 0), c);
}

/* ---- head_stats: x, w, labels -> max, parts ---- */

static gw_status stats_infer(gw_infer *f) {
    GW_TRY(gw_head_infer(f));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS - 1));
    int64_t parts = f->attrs[0].i;
    if (parts < 1)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "head_stats: parts is %lld",
                       (long long)parts);
    f->out[0] = gw_head_stat(f, 2);
    f->out[1] = around(&f->out[0], "part", parts, "stat", STATS);
    return GW_OK;
}

static void stats_sign(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++)
        if (strncmp(s->factors[i].name, "part", sizeof s->factors[i].name) == 0)
            memcpy(s->factors[i].with, gw_type_of(g, gw_op_in(g, o, 1))->dims[0].name,
                   sizeof s->factors[i].with);
}

static gw_status misplaced(gw_diags *dg, const char *what) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "head_stats: %s", what);
}

/* Are the first n dims of `a` from `from` on cut as those of b? */
static bool same_cuts(const gw_type *a, int from, const gw_type *b, int n) {
    for (int i = 0; i < n; i++)
        if (!gw_dim_same_cut(&a->dims[from + i], &b->dims[i])) return false;
    return true;
}

/* A factor signature has no word for a partial maximum. */
static gw_status stats_verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *w = gw_type_of(g, gw_op_in(g, o, 1));
    const gw_type *labels = gw_type_of(g, gw_op_in(g, o, 2));
    const gw_type *max = gw_type_of(g, gw_op_out(g, o, 0)),
                  *part = gw_type_of(g, gw_op_out(g, o, 1));
    int rows = labels->ndim;
    uint32_t axes = gw_dim_axes(&w->dims[0]);
    if (x->psum || w->psum || x->pmax || w->pmax || labels->psum)
        return misplaced(dg, "a partial value is used as if whole");
    if (gw_dim_axes(&x->dims[rows]) || gw_dim_axes(&w->dims[1]))
        return misplaced(dg, "d must be whole on a rank and is cut");
    if (gw_type_cut_axes(x) & axes)
        return misplaced(dg, "rows are cut on the sub-axes that cut the vocabulary");
    if (!same_cuts(labels, 0, x, rows) || !same_cuts(max, 0, x, rows) ||
        !same_cuts(part, 1, x, rows))
        return misplaced(dg, "rows are cut in one operand and not in another");
    if (max->pmax != axes || max->psum || part->psum || part->pmax)
        return misplaced(dg, "the maximum is not partial where the vocabulary is cut");
    if (gw_dim_axes(&part->dims[0]) != axes)
        return misplaced(dg, "parts are not cut as the vocabulary is");
    return GW_OK;
}

static void stats_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { products_cost(g, o, 1, c); }

/* Rows of w, of those here, that are in local part p of n. */
static void part_range(const gw_kargs *k, int64_t p, int64_t n, int64_t *first, int64_t *end) {
    int64_t v = k->in[1].dims[0], each = (v + n - 1) / n;
    *first = GW_MIN(v, p * each);
    *end = GW_MIN(v, *first + each);
}

/* The three numbers of row r, over rows first..end of w. */
static void row_stats(const gw_kargs *k, int64_t r, int64_t own, int64_t first, int64_t end,
                      double stat[STATS]) {
    stat[MOST] = -HUGE_VAL;
    stat[SUM] = 0;
    stat[OWN] = own >= first && own < end ? gw_head_logit(k, r, own) : 0;
    for (int64_t c = first; c < end; c++) {
        double z = gw_head_logit(k, r, c);
        if (z > stat[MOST]) {
            stat[SUM] *= exp(stat[MOST] - z);
            stat[MOST] = z;
        }
        stat[SUM] += exp(z - stat[MOST]);
    }
}

static void stats_reference(const gw_kargs *k) {
    int64_t rows = k->in[2].elems, n = k->out[1].dims[0];
    gw_runs held = gw_rows_of(k, gw_op_in(k->g, k->op, 1), 0);
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = gw_head_label(k, r), own = gw_rows_local(&held, label);
        double most = label < 0 ? 0 : -HUGE_VAL;
        for (int64_t p = 0; p < n; p++) {
            double stat[STATS] = {0};
            int64_t first, end;
            part_range(k, p, n, &first, &end);
            if (label >= 0) row_stats(k, r, own, first, end, stat);
            most = GW_MAX(most, stat[MOST]);
            for (int i = 0; i < STATS; i++)
                gw_ref_set(&k->out[1], (p * rows + r) * STATS + i, stat[i]);
        }
        gw_ref_set(&k->out[0], r, most);
    }
}

static void stats_case(gw_cases *cs, const char *name, const char *xd, const char *wd,
                       const char *ld, int64_t v, int64_t parts) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[3] = {gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, wd, true, GW_FILL_NORMAL, 1, 0),
                    gw_case_fixed(c, GW_I32, ld, GW_FILL_LABELS, 0, (double)v)};
    gw_build(&c->b, "head_stats", in, 3, (gw_attr[]){{.i = parts}}, NULL);
}

static void stats_cases(gw_cases *cs) {
    stats_case(cs, "one part", "b2 s3 d4", "v7 d4", "b2 s3", 7, 1);
    stats_case(cs, "wide", "s37 d48", "v131 d48", "s37", 131, 1);
    stats_case(cs, "one part empty", "b2 s5 d4", "v9 d4", "b2 s5", 9, 4);
}

const gw_opdef gw_opdef_head_stats = {
    .name = "head_stats",
    .doc = "of each row of logits, by parts of the vocabulary: maximum, sum of exp, label's logit",
    .signature = "*!d,v!d,*->*,*",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0,
    .nin = 3,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = stats_attrs,
    .infer = stats_infer,
    .verify = stats_verify,
    .sign = stats_sign,
    .shard = gw_shard_default,
    .cost = stats_cost,
    .vjp = gw_vjp_none,
    .reference = stats_reference,
    .cases = stats_cases,
};

/* ---- head_merge: max, parts -> sums ---- */

static gw_status merge_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_float(f, 0));
    GW_TRY(gw_infer_want_same_dtype(f, 1, 0));
    const gw_type *max = gw_infer_in(f, 0), *parts = gw_infer_in(f, 1);
    GW_TRY(gw_infer_want_ndim(f, 1, max->ndim + 2, max->ndim + 2));
    for (int i = 0; i < max->ndim; i++) GW_TRY(gw_infer_want_dim(f, 1, i + 1, 0, i));
    if (parts->dims[max->ndim + 1].size != STATS)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "head_merge: a row of a part has %d numbers, not %lld", STATS,
                       (long long)parts->dims[max->ndim + 1].size);
    gw_type plain = gw_type_plain(max, (gw_dtype)max->dtype);
    f->out[0] = around(&plain, "", 0, "sum", SUMS);
    return GW_OK;
}

static void merge_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, (double)gw_cost_elems(g, gw_op_in(g, o, 1)), c);
}

static void merge_reference(const gw_kargs *k) {
    int64_t rows = k->in[0].elems, n = k->in[1].dims[0];
    for (int64_t r = 0; r < rows; r++) {
        double sums[SUMS] = {0};
        for (int64_t p = 0; p < n; p++) {
            int64_t at = (p * rows + r) * STATS;
            double sum = gw_ref_get(&k->in[1], at + SUM);
            if (sum != 0)
                sums[TOTAL] +=
                    sum * exp(gw_ref_get(&k->in[1], at + MOST) - gw_ref_get(&k->in[0], r));
            sums[LABEL] += gw_ref_get(&k->in[1], at + OWN);
        }
        for (int i = 0; i < SUMS; i++) gw_ref_set(&k->out[0], r * SUMS + i, sums[i]);
    }
}

static void merge_cases(gw_cases *cs) {
    static const char *const dims[][3] = {{"one part", "b2 s3", "part1 b2 s3 stat3"},
                                          {"parts", "s17", "part4 s17 stat3"}};
    gw_dtype t = gw_dtype_stat(cs->dtype);
    for (size_t i = 0; i < GW_COUNT(dims); i++) {
        gw_case *c = gw_case_begin(cs, dims[i][0]);
        gw_build1(&c->b, "head_merge", gw_case_fixed(c, t, dims[i][1], GW_FILL_UNIFORM, 1, 2),
                  gw_case_fixed(c, t, dims[i][2], GW_FILL_UNIFORM, 0, 1));
    }
}

const gw_opdef gw_opdef_head_merge = {
    .name = "head_merge",
    .doc = "statistics of the parts of a vocabulary, relative to the maximum of all, added up",
    .signature = "",
    .traits = GW_OP_NODIFF,
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
    .infer = merge_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = merge_cost,
    .vjp = gw_vjp_none,
    .reference = merge_reference,
    .cases = merge_cases,
};

/* ---- head_loss: labels, max, sums, acc? -> loss ---- */

/* Input `max` and the one after it are a maximum and the sums of each label. */
static gw_status want_sums(gw_infer *f, int labels, int max) {
    int rows = gw_infer_in(f, labels)->ndim;
    for (int i = max; i < max + 2; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, rows + i - max, rows + i - max));
        GW_TRY(gw_infer_want_leading(f, i, labels, rows));
    }
    if (gw_infer_in(f, max + 1)->dims[rows].size != SUMS)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape", "%s: a row has %d sums, not %lld",
                       f->def->name, SUMS, (long long)gw_infer_in(f, max + 1)->dims[rows].size);
    return GW_OK;
}

static gw_status loss_infer(gw_infer *f) {
    GW_TRY(gw_infer_want_int(f, 0));
    GW_TRY(want_sums(f, 0, 1));
    f->out[0] = gw_type_scalar((gw_dtype)gw_infer_in(f, 1)->dtype);
    return gw_infer_want_acc(f, 3, &f->out[0]);
}

static void loss_cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    gw_cost_set(g, o, 4 * (double)gw_cost_elems(g, gw_op_in(g, o, 0)), c);
}

static void loss_reference(const gw_kargs *k) {
    double loss = 0;
    for (int64_t r = 0; r < k->in[0].elems; r++)
        if (gw_ref_int(&k->in[0], r) >= 0)
            loss += gw_ref_get(&k->in[1], r) + log(gw_ref_get(&k->in[2], r * SUMS + TOTAL)) -
                    gw_ref_get(&k->in[2], r * SUMS + LABEL);
    gw_ref_set(&k->out[0], 0, gw_ref_acc(k, 3, 0) + loss);
}

static void loss_cases(gw_cases *cs) {
    gw_dtype t = gw_dtype_stat(cs->dtype);
    for (int i = 0; i < 2; i++) {
        gw_case *c = gw_case_begin(cs, i ? "accumulates" : "plain");
        gw_vid in[4] = {gw_case_fixed(c, GW_I32, "b3 s7", GW_FILL_LABELS, 0, 50),
                        gw_case_fixed(c, t, "b3 s7", GW_FILL_UNIFORM, 1, 3),
                        gw_case_fixed(c, t, "b3 s7 sum2", GW_FILL_UNIFORM, 1, 2),
                        i ? gw_case_fixed(c, t, "", GW_FILL_CONST, 3.5, 0) : GW_NONE};
        gw_build(&c->b, "head_loss", in, 4, NULL, NULL);
    }
}

const gw_opdef gw_opdef_head_loss = {
    .name = "head_loss",
    .doc = "sum of negative log likelihoods from the statistics of whole rows of logits",
    .signature = "",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 4,
    .nout = 1,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 0,
    .attrs = NULL,
    .infer = loss_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = loss_cost,
    .vjp = gw_vjp_none,
    .reference = loss_reference,
    .cases = loss_cases,
};

/* ---- head_part_grad: x, w, labels, max, sums, seed, acc? -> dx, dw ---- */

static gw_status grad_infer(gw_infer *f) {
    GW_TRY(gw_head_infer(f));
    GW_TRY(gw_infer_want_ndim(f, 0, 1, GW_MAX_DIMS - 1));
    GW_TRY(want_sums(f, 2, 3));
    GW_TRY(gw_infer_want_scalar(f, 5));
    gw_dtype dtype;
    GW_TRY(gw_infer_dtype_attr(f, 0, GW_F32, &dtype));
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[1] = gw_type_plain(gw_infer_in(f, 1), dtype);
    return gw_infer_want_acc(f, 6, &f->out[1]);
}

static void grad_cost(const gw_graph *g, const gw_op *o, gw_cost *c) { products_cost(g, o, 3, c); }

static double stored_lse(const gw_kargs *k, int64_t r) {
    return gw_ref_get(&k->in[3], r) + log(gw_ref_get(&k->in[4], r * SUMS + TOTAL));
}

static void grad_reference(const gw_kargs *k) { gw_head_gradient(k, 5, 6, stored_lse); }

static void grad_case(gw_cases *cs, const char *name, const char *xd, const char *wd,
                      const char *ld, const char *sd, int64_t v, bool acc) {
    gw_case *c = gw_case_begin(cs, name);
    gw_dtype t = gw_dtype_stat(cs->dtype);
    gw_vid in[7] = {gw_case_value(c, xd, false, GW_FILL_NORMAL, 1, 0),
                    gw_case_value(c, wd, true, GW_FILL_NORMAL, 1, 0),
                    gw_case_fixed(c, GW_I32, ld, GW_FILL_LABELS, 0, (double)v),
                    gw_case_fixed(c, t, ld, GW_FILL_UNIFORM, 20, 25),
                    gw_case_fixed(c, t, sd, GW_FILL_UNIFORM, 1, 2),
                    gw_case_fixed(c, t, "", GW_FILL_CONST, 0.25, 0),
                    acc ? gw_case_fixed(c, GW_F32, wd, GW_FILL_NORMAL, 1, 0) : GW_NONE};
    gw_build(&c->b, "head_part_grad", in, 7, NULL, NULL);
}

static void grad_cases(gw_cases *cs) {
    grad_case(cs, "plain", "b2 s3 d4", "v7 d4", "b2 s3", "b2 s3 sum2", 7, false);
    grad_case(cs, "accumulates", "b1 s9 d5", "v11 d5", "b1 s9", "b1 s9 sum2", 11, true);
    grad_case(cs, "wide", "s37 d48", "v131 d48", "s37", "s37 sum2", 131, true);
}

const gw_opdef gw_opdef_head_part_grad = {
    .name = "head_part_grad",
    .doc = "gradient of head through some rows of w, from the statistics of whole rows of logits",
    .signature = "*!d,v!d,*,*,*s,,v!d?->*!d,v!d",
    .traits = GW_OP_NODIFF,
    .linear_in = 0,
    .nin = 7,
    .nout = 2,
    .noptional = 1,
    .nacc = 1,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = grad_attrs,
    .infer = grad_infer,
    .verify = gw_verify_default,
    .sign = gw_sign_default,
    .shard = gw_shard_default,
    .cost = grad_cost,
    .vjp = gw_vjp_none,
    .reference = grad_reference,
    .cases = grad_cases,
};

/* ---- the rule ---- */

static const gw_type *type_of(const gw_sharding *s, gw_vid v) { return gw_type_of(s->b->g, v); }

static gw_vid whole_sum(gw_sharding *s, gw_vid v, const gw_type *like) {
    gw_type t = *type_of(s, v);
    for (int i = 0; i < t.ndim; i++) {
        int j = like ? gw_type_find(like, t.dims[i].name) : -1;
        if (j < 0) continue;
        int64_t size = t.dims[i].size;
        t.dims[i] = like->dims[j];
        t.dims[i].size = size;
    }
    t.psum = t.pmax = 0;
    return gw_sharding_convert(s, v, &t);
}

/* The placement of x's rows: as they are, whole on `axes`, d whole. */
static gw_type rows_of(const gw_sharding *s, gw_vid x, uint32_t axes) {
    gw_type t = *type_of(s, x);
    t.psum = t.pmax = 0;
    for (int i = 0; i < t.ndim; i++)
        gw_dim_uncut(&t.dims[i], i + 1 < t.ndim ? axes : gw_dim_axes(&t.dims[i]));
    return t;
}

/* Statistics of whole rows of logits: max and sums, whole on the sub-axes that cut v. */
static void emit_stats(gw_sharding *s, const gw_vid in[3], const gw_type *rows, gw_vid *max,
                       gw_vid *sums) {
    const gw_type w = *type_of(s, in[1]);
    uint32_t axes = gw_dim_axes(&w.dims[0]);
    gw_attr parts = {.i = gw_mesh_size(&s->b->g->mesh, axes)};
    gw_vid part;
    *max = gw_build(s->b, "head_stats", in, 3, &parts, &part);
    gw_type t = *rows;
    t.pmax = axes;
    gw_sharding_place(s, *max, &t);
    t.pmax = 0;
    t.dims[t.ndim - 1] = w.dims[0]; /* d is whole and no dimension of a statistic */
    memcpy(t.dims[t.ndim - 1].name, "part\0\0\0", sizeof t.dims[0].name);
    gw_sharding_place(s, part, &t);
    *max = whole_sum(s, *max, NULL);
    *sums = gw_build1(s->b, "head_merge", *max, part);
    t = *rows;
    t.psum = axes;
    gw_sharding_place(s, *sums, &t);
    *sums = whole_sum(s, *sums, NULL);
}

static gw_vid acc_of(const gw_sharding *s, int i) { return i < s->nin ? s->in[i] : GW_NONE; }

gw_status gw_head_shard(gw_sharding *s, gw_diags *dg) {
    uint32_t axes = gw_dim_axes(&type_of(s, s->in[1])->dims[0]);
    if (!axes) return s->by_signature(s, dg);
    bool grad = s->nout > 1;
    gw_type w = *type_of(s, s->in[1]);
    w.psum = w.pmax = 0;
    gw_dim_uncut(&w.dims[1], gw_dim_axes(&w.dims[1]));
    const gw_type rows = rows_of(s, s->in[0], axes);
    gw_vid in[3] = {gw_sharding_convert(s, s->in[0], &rows), gw_sharding_convert(s, s->in[1], &w),
                    whole_sum(s, s->in[2], &rows)};
    gw_vid max, sums;
    emit_stats(s, in, &rows, &max, &sums);
    gw_type partial = gw_type_scalar(GW_F32);
    partial.psum = gw_type_cut_axes(&rows);
    gw_vid loss = gw_build1(s->b, "head_loss", in[2], max, sums, acc_of(s, grad ? 5 : 4));
    gw_sharding_place(s, loss, &partial);
    s->out[grad ? 2 : 0] = loss;
    if (!grad) return s->b->status;
    gw_vid gin[7] = {in[0], in[1], in[2], max, sums, whole_sum(s, s->in[3], NULL), acc_of(s, 4)};
    s->out[0] = gw_build(s->b, "head_part_grad", gin, 7, s->attrs, &s->out[1]);
    gw_type dx = rows;
    dx.psum = axes;
    gw_sharding_place(s, s->out[0], &dx);
    w.psum = partial.psum;
    gw_sharding_place(s, s->out[1], &w);
    return s->b->status;
}

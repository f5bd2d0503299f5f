// SPDX-License-Identifier: Apache-2.0
// take and weave: rows of a sequence by pieces, so that a collective of one piece can run beside
// the product of another.
//
//   take   x[.. s ..] -> y[.. s/parts ..]   piece `part` of each of `groups` equal runs of rows
//   weave  y_0, y_1, ... -> x[.. s ..]      its inverse: piece j of each run is y_j's
//
// Both go by rows as a rank holds them. With L rows, groups G and parts N, y's row (g, i) is x's
// row g L/G + j L/(G N) + i. Two cases are used by the pass that cuts products (pass/chunk.c):
//
//   groups = 1   the j-th N-th of this rank's rows
//   groups = T   where x is, or is to become, the parts of T ranks one behind another: the j-th
//                N-th of each of them, so that gathering and then taking is the same as taking and
//                then gathering
//
// Types. Only the size of `s` changes; the cut of every dimension and partial sums stay. A piece's
// rows bear the numbers of a shorter sequence, not their own, so only ops that treat all rows alike
// (products, sums) may stand between the two. All ranks hold equally many rows, and a multiple of
// groups times parts: the verifier checks it, as the sizes alone do not say it.
//
// Bits are copied. They are made after differentiation and have no gradient.
#include <string.h>

#include "ops/cases.h" /* gw_case_begin */
#include "ops/hooks.h" /* gw_infer_want_*, gw_sign_add */
#include "ops/ops.h"   /* gw_opdef_take, gw_opdef_weave */
#include "ops/ref.h"   /* gw_ref_get */

enum { PART, PARTS, TAKE_GROUPS };
static const gw_attr_def take_attrs[] = {
    {"part", GW_ATTR_INT, 0, 0},   /* 0 <= part < parts */
    {"parts", GW_ATTR_INT, 1, 0},  /* pieces that each run of rows is cut into */
    {"groups", GW_ATTR_INT, 1, 0}, /* runs of rows */
};

enum { WEAVE_GROUPS };
static const gw_attr_def weave_attrs[] = {
    {"groups", GW_ATTR_INT, 1, 0}, /* runs of rows in each piece, and in the result */
};

/* ---- infer ---- */

/* Input 0 has rows, a multiple of `groups`, and of `parts` besides where it is the whole. */
static gw_status want_rows(gw_infer *f, int64_t groups, int64_t parts, bool whole) {
    GW_TRY(gw_infer_want_float(f, 0));
    const gw_type *x = gw_infer_in(f, 0);
    int s = gw_type_find(x, "s");
    char t[128];
    if (s < 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank", "%s: input 0, %s, has no dimension s",
                       f->def->name, gw_type_text(x, t));
    int64_t cuts = 0, rows = 0;
    bool sane = groups >= 1 && parts >= 1 && !__builtin_mul_overflow(groups, parts, &cuts) &&
                !__builtin_mul_overflow(x->dims[s].size, parts, &rows);
    if (!sane)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "%s: %lld groups of %lld parts of %s",
                       f->def->name, (long long)groups, (long long)parts, gw_type_text(x, t));
    if (!whole) cuts = groups;
    if (x->dims[s].size % cuts != 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "%s: dimension s of %s is not a multiple of %lld", f->def->name,
                       gw_type_text(x, t), (long long)cuts);
    return GW_OK;
}

static gw_status take_infer(gw_infer *f) {
    int64_t part = f->attrs[PART].i, parts = f->attrs[PARTS].i;
    GW_TRY(want_rows(f, f->attrs[TAKE_GROUPS].i, parts, true));
    if (part < 0 || part >= parts)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "take: part %lld of %lld", (long long)part,
                       (long long)parts);
    const gw_type *x = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(x, (gw_dtype)x->dtype);
    f->out[0].dims[gw_type_find(x, "s")].size /= parts;
    return GW_OK;
}

static gw_status weave_infer(gw_infer *f) {
    GW_TRY(want_rows(f, f->attrs[WEAVE_GROUPS].i, f->nin, false));
    for (int i = 1; i < f->nin; i++) {
        GW_TRY(gw_infer_want_same_dtype(f, 0, i));
        GW_TRY(gw_infer_want_same_dims(f, 0, i));
    }
    const gw_type *y = gw_infer_in(f, 0);
    f->out[0] = gw_type_plain(y, (gw_dtype)y->dtype);
    f->out[0].dims[gw_type_find(y, "s")].size *= f->nin;
    return GW_OK;
}

/* ---- placements ---- */

static gw_status wrong(const gw_graph *g, const gw_op *o, const char *why, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "%s of %s: %s", gw_op_def(g, o)->name,
                   gw_graph_str(g, o->scope), why);
}

/* `piece` is placed as `whole` is, with 1 / parts of its rows on every rank. */
static gw_status fits(const gw_graph *g, const gw_op *o, const gw_type *whole, const gw_type *piece,
                      int64_t parts, int64_t groups, gw_diags *dg) {
    if (whole->flat || piece->flat) return wrong(g, o, "a flat value has no rows", dg);
    if (whole->psum != piece->psum || whole->pmax != piece->pmax)
        return wrong(g, o, "one is a partial sum where the other is not", dg);
    for (int i = 0; i < whole->ndim; i++)
        if (!gw_dim_same_cut(&whole->dims[i], &piece->dims[i]))
            return wrong(g, o, "one is cut in another way than the other", dg);
    int s = gw_type_find(whole, "s");
    bool even = gw_type_even(whole, s, &g->mesh) && gw_type_even(piece, s, &g->mesh);
    if (!even) return wrong(g, o, "ranks hold unequal numbers of rows", dg);
    int64_t rows = gw_type_local_dim(whole, s, &g->mesh, 0);
    if (rows % (parts * groups) != 0)
        return wrong(g, o, "a rank's rows are not a multiple of groups times parts", dg);
    return GW_OK;
}

static gw_status take_verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    return fits(g, o, gw_type_of(g, gw_op_in(g, o, 0)), gw_type_of(g, gw_op_out(g, o, 0)),
                gw_op_attr(g, o, PARTS).i, gw_op_attr(g, o, TAKE_GROUPS).i, dg);
}

static gw_status weave_verify(const gw_graph *g, const gw_op *o, gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    for (int i = 0; i < (int)o->nin; i++)
        GW_TRY(fits(g, o, gw_type_of(g, gw_op_out(g, o, 0)), gw_type_of(g, gw_op_in(g, o, i)),
                    o->nin, gw_op_attr(g, o, WEAVE_GROUPS).i, dg));
    return GW_OK;
}

/* s must be whole for a rule that goes by signatures: it does not know how pieces are dealt out. */
static void sign(const gw_graph *g, const gw_op *o, gw_signature *sig) {
    const gw_type *x = gw_type_of(g, gw_op_in(g, o, 0)), *y = gw_type_of(g, gw_op_out(g, o, 0));
    memset(sig, 0, sizeof *sig);
    for (int d = 0; d < x->ndim; d++) {
        bool rows = strcmp(x->dims[d].name, "s") == 0;
        gw_factor *f = gw_sign_add(sig, x->dims[d].name, x->dims[d].size,
                                   rows ? GW_FACTOR_WHOLE : GW_FACTOR_PASS);
        for (int i = 0; i < (int)o->nin && i < GW_MAX_IN; i++) f->in_dim[i] = (int8_t)d;
        if (rows) f = gw_sign_add(sig, "s'", y->dims[d].size, GW_FACTOR_WHOLE);
        f->out_dim[0] = (int8_t)d;
    }
}

/* What is copied, not all of x. */
static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    double bytes = (double)gw_cost_bytes(g, gw_op_out(g, o, 0));
    *c = (gw_cost){.bytes_read = bytes, .bytes_written = bytes};
}

/* ---- reference ---- */

/* Copies piece `part` of `parts` out of the whole, or into it. */
static void copy_piece(const gw_tensor *whole, const gw_tensor *piece, int64_t part, int64_t parts,
                       int64_t groups, int s, bool out) {
    int64_t rows = piece->dims[s], inner = gw_ref_inner(piece, s + 1);
    if (piece->elems == 0) return;
    int64_t run = rows / groups, outer = piece->elems / (rows * inner);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = (r / run * parts + part) * run + r % run;
            for (int64_t i = 0; i < inner; i++) {
                int64_t p = (o * rows + r) * inner + i, w = (o * rows * parts + at) * inner + i;
                if (out)
                    gw_ref_set(piece, p, gw_ref_get(whole, w));
                else
                    gw_ref_set(whole, w, gw_ref_get(piece, p));
            }
        }
}

static int rows_dim(const gw_kargs *k) {
    return gw_type_find(gw_type_of(k->g, gw_op_in(k->g, k->op, 0)), "s");
}

static void take_reference(const gw_kargs *k) {
    copy_piece(&k->in[0], &k->out[0], gw_ref_attr(k, PART).i, gw_ref_attr(k, PARTS).i,
               gw_ref_attr(k, TAKE_GROUPS).i, rows_dim(k), true);
}

static void weave_reference(const gw_kargs *k) {
    for (int j = 0; j < k->nin; j++)
        copy_piece(&k->out[0], &k->in[j], j, k->nin, gw_ref_attr(k, WEAVE_GROUPS).i, rows_dim(k),
                   false);
}

/* ---- cases ---- */

static void take_case(gw_cases *cs, const char *name, const char *dims, int64_t part, int64_t parts,
                      int64_t groups) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid x = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "take", &x, 1, (gw_attr[]){{.i = part}, {.i = parts}, {.i = groups}}, NULL);
}

static void take_cases(gw_cases *cs) {
    take_case(cs, "of this rank's rows", "b2 s12 d5", 1, 3, 1);
    take_case(cs, "of each of three runs", "b2 s12 d7", 1, 2, 3);
    take_case(cs, "the last, heads", "b1 s20 h3 k11", 4, 5, 2);
    take_case(cs, "all of it", "s6 d3", 0, 1, 2);
    take_case(cs, "long rows", "s4 d40000", 1, 2, 1);
}

static void weave_case(gw_cases *cs, const char *name, const char *dims, int n, int64_t groups) {
    gw_case *c = gw_case_begin(cs, name);
    gw_vid in[16];
    for (int i = 0; i < n; i++) in[i] = gw_case_value(c, dims, false, GW_FILL_NORMAL, 1, 0);
    gw_build(&c->b, "weave", in, n, &(gw_attr){.i = groups}, NULL);
}

static void weave_cases(gw_cases *cs) {
    weave_case(cs, "one behind another", "b2 s4 d5", 3, 1);
    weave_case(cs, "three runs of two pieces", "b2 s6 d7", 2, 3);
    weave_case(cs, "fourteen pieces", "b1 s2 h3 k5", 14, 2);
    weave_case(cs, "one piece", "s6 d3", 1, 3);
    weave_case(cs, "long rows", "s2 d40000", 2, 1);
}

const gw_opdef gw_opdef_take = {
    .name = "take",
    .doc = "one piece of each run of a rank's rows of s",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT,
    .linear_in = 0x1,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 3,
    .attrs = take_attrs,
    .infer = take_infer,
    .verify = take_verify,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = take_reference,
    .cases = take_cases,
};

const gw_opdef gw_opdef_weave = {
    .name = "weave",
    .doc = "rows of s put together from pieces: the inverse of take",
    .signature = "",
    .traits = GW_OP_NODIFF | GW_OP_OWN_PLACEMENT | GW_OP_VARIADIC,
    .linear_in = 0,
    .nin = 1,
    .nout = 1,
    .noptional = 0,
    .nacc = 0,
    .ties = GW_NO_TIES,
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 1,
    .attrs = weave_attrs,
    .infer = weave_infer,
    .verify = weave_verify,
    .sign = sign,
    .shard = gw_shard_default,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = weave_reference,
    .cases = weave_cases,
};

// SPDX-License-Identifier: Apache-2.0
// Small steps that the hooks of many ops take (ops/hooks.h holds the contracts).
//
// An infer hook is a list of "input i must ..." lines; each is one call here, so that all ops
// complain in one voice. Nothing here knows any particular op.
#include "ops/hooks.h"

#include <stdio.h>
#include <string.h>

/* ---- types ---- */

gw_type gw_type_plain(const gw_type *t, gw_dtype dtype) {
    gw_type r = gw_type_scalar(dtype);
    for (int i = 0; i < t->ndim; i++) gw_type_add(&r, t->dims[i].name, t->dims[i].size);
    return r;
}

gw_dtype gw_dtype_stat(gw_dtype t) { return t == GW_F64 ? GW_F64 : GW_F32; }

char *gw_type_text(const gw_type *t, char *buf) {
    int n = snprintf(buf, 128, "%s[", gw_dtype_name((gw_dtype)t->dtype));
    for (int i = 0; i < t->ndim && n < 120; i++)
        n += snprintf(buf + n, (size_t)(128 - n), "%s%.8s%lld", i ? " " : "", t->dims[i].name,
                      (long long)t->dims[i].size);
    if (n < 127) snprintf(buf + n, (size_t)(128 - n), "]");
    return buf;
}

/* ---- infer ---- */

bool gw_infer_has(const gw_infer *f, int i) { return i < f->nin && f->in[i] != GW_NONE; }

const gw_type *gw_infer_in(const gw_infer *f, int i) { return gw_type_of(f->g, f->in[i]); }

static gw_dtype dtype_of(const gw_infer *f, int i) { return (gw_dtype)gw_infer_in(f, i)->dtype; }

gw_status gw_infer_want_float(gw_infer *f, int i) {
    if (gw_dtype_is_float(dtype_of(f, i))) return GW_OK;
    char a[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype", "%s: input %d, %s, must be of a float dtype",
                   f->def->name, i, gw_type_text(gw_infer_in(f, i), a));
}

gw_status gw_infer_want_int(gw_infer *f, int i) {
    if (dtype_of(f, i) == GW_I32 || dtype_of(f, i) == GW_I64) return GW_OK;
    char a[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype", "%s: input %d, %s, must be i32 or i64",
                   f->def->name, i, gw_type_text(gw_infer_in(f, i), a));
}

gw_status gw_infer_want_ndim(gw_infer *f, int i, int least, int most) {
    const gw_type *t = gw_infer_in(f, i);
    if (t->ndim >= least && t->ndim <= most) return GW_OK;
    char a[128];
    if (least == most)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                       "%s: input %d, %s, must have %d dimensions, not %d", f->def->name, i,
                       gw_type_text(t, a), least, t->ndim);
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                   "%s: input %d, %s, must have %d to %d dimensions, not %d", f->def->name, i,
                   gw_type_text(t, a), least, most, t->ndim);
}

gw_status gw_infer_want_dim(gw_infer *f, int i, int di, int j, int dj) {
    const gw_type *ti = gw_infer_in(f, i), *tj = gw_infer_in(f, j);
    const gw_dim *a = &ti->dims[di], *b = &tj->dims[dj];
    char ta[128], tb[128];
    if (strncmp(a->name, b->name, sizeof a->name) != 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dim-name",
                       "%s: dimension %.8s of input %d, %s, stands where input %d, %s, has %.8s",
                       f->def->name, a->name, i, gw_type_text(ti, ta), j, gw_type_text(tj, tb),
                       b->name);
    if (a->size != b->size)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "%s: dimension %.8s is %lld in input %d, %s, but %lld in input %d, %s",
                       f->def->name, a->name, (long long)a->size, i, gw_type_text(ti, ta),
                       (long long)b->size, j, gw_type_text(tj, tb));
    return GW_OK;
}

gw_status gw_infer_want_leading(gw_infer *f, int i, int j, int n) {
    for (int k = 0; k < n; k++) GW_TRY(gw_infer_want_dim(f, i, k, j, k));
    return GW_OK;
}

gw_status gw_infer_want_same_dims(gw_infer *f, int i, int j) {
    const gw_type *a = gw_infer_in(f, i), *b = gw_infer_in(f, j);
    char ta[128], tb[128];
    if (a->ndim != b->ndim)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank",
                       "%s: input %d, %s, and input %d, %s, must have the same dimensions",
                       f->def->name, i, gw_type_text(a, ta), j, gw_type_text(b, tb));
    return gw_infer_want_leading(f, i, j, a->ndim);
}

gw_status gw_infer_want_same_dtype(gw_infer *f, int i, int j) {
    if (dtype_of(f, i) == dtype_of(f, j)) return GW_OK;
    char a[128], b[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype",
                   "%s: input %d, %s, and input %d, %s, must have one dtype", f->def->name, i,
                   gw_type_text(gw_infer_in(f, i), a), j, gw_type_text(gw_infer_in(f, j), b));
}

gw_status gw_infer_want_scalar(gw_infer *f, int i) {
    const gw_type *t = gw_infer_in(f, i);
    if (t->ndim == 0 && (t->dtype == GW_F32 || t->dtype == GW_F64)) return GW_OK;
    char a[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-rank", "%s: input %d, %s, must be a scalar f32 or f64",
                   f->def->name, i, gw_type_text(t, a));
}

gw_status gw_infer_want_acc(gw_infer *f, int i, const gw_type *out) {
    if (!gw_infer_has(f, i)) return GW_OK;
    const gw_type *t = gw_infer_in(f, i);
    if (t->dtype == out->dtype && gw_type_same_dims(t, out)) return GW_OK;
    char a[128], b[128];
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                   "%s: the accumulator, input %d, %s, must have the type of the result, %s",
                   f->def->name, i, gw_type_text(t, a), gw_type_text(out, b));
}

gw_status gw_infer_dtype_attr(gw_infer *f, int i, gw_dtype dflt, gw_dtype *out) {
    int64_t d = f->attrs[i].i;
    *out = d < 0 ? dflt : (gw_dtype)d;
    if (d < GW_DTYPE_COUNT && gw_dtype_is_float(*out)) return GW_OK;
    return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-dtype", "%s: attribute %s must be a float dtype",
                   f->def->name, f->def->attrs[i].name);
}

static gw_type loss_type(const gw_infer *f) {
    return gw_type_scalar(gw_dtype_stat((gw_dtype)gw_infer_in(f, 0)->dtype));
}

gw_status gw_infer_loss(gw_infer *f, int acc) {
    f->out[0] = loss_type(f);
    return gw_infer_want_acc(f, acc, &f->out[0]);
}

gw_status gw_infer_loss_grad(gw_infer *f, int acc) {
    f->out[0] = gw_type_plain(gw_infer_in(f, 0), (gw_dtype)gw_infer_in(f, 0)->dtype);
    f->out[1] = loss_type(f);
    return gw_infer_want_acc(f, acc, &f->out[1]);
}

/* ---- sign ---- */

gw_factor *gw_sign_add(gw_signature *s, const char *name, int64_t size, gw_factor_kind kind) {
    gw_factor *f = &s->factors[s->nfactors++];
    memset(f, 0, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->size = size;
    f->kind = kind;
    memset(f->in_dim, -1, sizeof f->in_dim);
    memset(f->out_dim, -1, sizeof f->out_dim);
    return f;
}

/* ---- cost ---- */

int64_t gw_cost_elems(const gw_graph *g, gw_vid v) {
    return v == GW_NONE ? 0 : gw_type_local_elems(gw_type_of(g, v), &g->mesh, 0);
}

int64_t gw_cost_bytes(const gw_graph *g, gw_vid v) {
    return v == GW_NONE ? 0 : gw_type_local_bytes(gw_type_of(g, v), &g->mesh, 0);
}

int64_t gw_cost_dim(const gw_graph *g, gw_vid v, int i) {
    return gw_type_local_dim(gw_type_of(g, v), i, &g->mesh, 0);
}

void gw_cost_set(const gw_graph *g, const gw_op *o, double flops, gw_cost *c) {
    *c = (gw_cost){.flops = flops, .flops_full = flops};
    for (int i = 0; i < o->nin; i++) c->bytes_read += (double)gw_cost_bytes(g, gw_op_in(g, o, i));
    for (int i = 0; i < o->nout; i++)
        c->bytes_written += (double)gw_cost_bytes(g, gw_op_out(g, o, i));
}

/* ---- vjp ---- */

gw_vid gw_vjp_build(gw_vjp *v, gw_phase phase, const char *name, const gw_vid *in, int nin,
                    const gw_attr *attrs, gw_vid *more) {
    gw_phase before = v->b->phase;
    v->b->phase = phase;
    gw_vid r = gw_build(v->b, name, in, nin, attrs, more);
    v->b->phase = before;
    return r;
}

static bool is_param(const gw_vjp *v, int i) {
    return v->g->values.items[v->in[i]].role == GW_ROLE_PARAM;
}

gw_dtype gw_vjp_dtype(const gw_vjp *v, int i) {
    return is_param(v, i) ? v->grad_dtype : (gw_dtype)gw_type_of(v->g, v->in[i])->dtype;
}

gw_phase gw_vjp_phase(const gw_vjp *v, int i) { return is_param(v, i) ? GW_PHASE_W : GW_PHASE_B; }

void gw_vjp_loss(gw_vjp *v, const char *grad) {
    if (!v->want[0]) return;
    gw_vid in[3] = {v->in[0], v->in[1], v->in[2]}, more[1];
    v->din[0] = gw_vjp_build(v, GW_PHASE_BW, grad, in, 3, v->attrs, more);
    v->replace[0] = more[0];
}

// SPDX-License-Identifier: Apache-2.0
// What the ops of attention have in common: which operands fit together, what a rank's parts are of
// the whole, and the work in them.
//
// A rank may hold some of the queries, some of the heads, and some of the keys. Three facts place
// its parts in the whole, and all come from the types: the runs of indices along s of its queries
// and of its keys (gw_type_runs), and the first of its heads and of its kv heads. The mask is a
// statement about indices of the whole; local ones never enter it.
//
// Work counts pairs of a query and a key seen under causality and window, taking one document a
// row. Between a run of m queries from a and a run of n keys from c, the pairs with j <= i - x are
// the sum over i of clamp(i - x - c + 1, 0, n), a difference of two values of
//   F(y) = sum of clamp(z, 0, n) over z <= y = 0, y(y+1)/2, n(n+1)/2 + (y-n) n
// (y below 0; up to n; above n). Causality keeps those with x = 0, a window w drops those with x =
// w. The ranks of a cut count every pair once: their sum is the count of the whole.
#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ops/attention.h"
#include "ops/hooks.h" /* gw_infer_want_*, gw_cost_set */
#include "ops/ref.h"   /* gw_ref_get */

const gw_attr_def gw_attention_attrs[GW_ATTENTION_NATTRS] = {
    {"causal", GW_ATTR_BOOL, 1, 0},
    {"window", GW_ATTR_INT, 0, 0},  /* tokens a query sees, itself included; 0 = no limit */
    {"scale", GW_ATTR_FLOAT, 0, 0}, /* 0 = 1/sqrt(k) */
};

/* ---- infer ---- */

static gw_status infer_qkv(gw_infer *f, int q0) {
    char tq[128], tk[128];
    for (int i = q0; i < q0 + 3; i++) {
        GW_TRY(gw_infer_want_float(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
        GW_TRY(gw_infer_want_same_dtype(f, i, q0));
        GW_TRY(gw_infer_want_leading(f, i, q0, 2));
    }
    const gw_type *q = gw_infer_in(f, q0), *k = gw_infer_in(f, q0 + 1), *v = gw_infer_in(f, q0 + 2);
    GW_TRY(gw_infer_want_dim(f, q0 + 1, 3, q0, 3));
    GW_TRY(gw_infer_want_dim(f, q0 + 2, 2, q0 + 1, 2));
    if (strcmp(v->dims[3].name, k->dims[3].name) == 0)
        GW_TRY(gw_infer_want_dim(f, q0 + 2, 3, q0 + 1, 3));
    int64_t heads = q->dims[2].size, groups = k->dims[2].size;
    if (heads < 1 || groups < 1 || heads % groups)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "%s: the heads of q, %s, must be a multiple of the heads of k, %s",
                       f->def->name, gw_type_text(q, tq), gw_type_text(k, tk));
    if (f->attrs[GW_ATTENTION_WINDOW].i < 0)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attr", "%s: window is %lld, not 0 or more",
                       f->def->name, (long long)f->attrs[GW_ATTENTION_WINDOW].i);
    return GW_OK;
}

static gw_status infer_docs(gw_infer *f, int docs, int q0) {
    for (int i = docs; i < docs + 2; i++) {
        if (!gw_infer_has(f, i)) continue;
        GW_TRY(gw_infer_want_int(f, i));
        GW_TRY(gw_infer_want_ndim(f, i, 2, 2));
        GW_TRY(gw_infer_want_leading(f, i, q0, 2));
    }
    if (!gw_infer_has(f, docs) && gw_infer_has(f, docs + 1))
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-shape",
                       "%s: documents of the keys, but none of the queries", f->def->name);
    return GW_OK;
}

static gw_status want_like_out(gw_infer *f, int i, int q0) {
    GW_TRY(gw_infer_want_float(f, i));
    GW_TRY(gw_infer_want_ndim(f, i, 4, 4));
    GW_TRY(gw_infer_want_leading(f, i, q0, 3));
    return gw_infer_want_dim(f, i, 3, q0 + 2, 3);
}

gw_status gw_attention_infer(gw_infer *f, bool grad) {
    int q0 = gw_attention_first(grad);
    GW_TRY(infer_qkv(f, q0));
    GW_TRY(infer_docs(f, gw_attention_docs(grad), q0));
    if (!grad) return GW_OK;
    GW_TRY(want_like_out(f, 0, q0));
    GW_TRY(want_like_out(f, 4, q0));
    GW_TRY(gw_infer_want_float(f, 5));
    GW_TRY(gw_infer_want_ndim(f, 5, 3, 3));
    return gw_infer_want_leading(f, 5, q0, 3);
}

gw_type gw_attention_lse(const gw_infer *f, bool grad) {
    const gw_type *q = gw_infer_in(f, gw_attention_first(grad));
    gw_type t = gw_type_scalar(gw_dtype_stat((gw_dtype)q->dtype));
    for (int d = 0; d < 3; d++) gw_type_add(&t, q->dims[d].name, q->dims[d].size);
    return t;
}

gw_type gw_attention_out(const gw_infer *f, bool grad, gw_dtype dtype) {
    const gw_type *v = gw_infer_in(f, gw_attention_first(grad) + 2);
    gw_type t = gw_attention_lse(f, grad);
    t.dtype = (uint8_t)dtype;
    gw_type_add(&t, v->dims[3].name, v->dims[3].size);
    return t;
}

/* ---- sign ---- */

void gw_attention_sign(const gw_graph *g, const gw_op *o, bool grad, gw_signature *s) {
    int q = gw_attention_first(grad);
    const gw_type *tq = gw_type_of(g, gw_op_in(g, o, q));
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++) {
        gw_factor *f = &s->factors[i];
        if (f->in_dim[q] == 1 || f->in_dim[q] == 3 || f->in_dim[q + 2] == 3)
            f->kind = GW_FACTOR_WHOLE;
        if (f->in_dim[q + 1] != 2 || f->in_dim[q] == 2) continue;
        f->kind = GW_FACTOR_PASS; /* kv heads are groups of query heads, and contract nothing */
        memcpy(f->with, tq->dims[2].name, sizeof f->with);
    }
}

/* ---- verify ---- */

static int64_t axis_stride(const gw_mesh *m, int axis) {
    int64_t n = 1;
    for (int a = axis + 1; a < m->naxes; a++) n *= m->axes[a].size;
    return n;
}

/* Rank number `i` of those that lie at 0 on every sub-axis outside `axes`. */
static int64_t rank_at(const gw_mesh *m, uint32_t axes, int64_t i) {
    int64_t rank = 0;
    for (int a = m->naxes; a-- > 0;) {
        if (!(axes >> a & 1u)) continue;
        rank += i % m->axes[a].size * axis_stride(m, a);
        i /= m->axes[a].size;
    }
    return rank;
}

bool gw_attention_covers(const gw_type *q, const gw_type *k, const gw_mesh *m) {
    uint32_t axes = gw_dim_axes(&q->dims[2]) | gw_dim_axes(&k->dims[2]);
    int64_t per = q->dims[2].size / k->dims[2].size, ranks = gw_mesh_size(m, axes);
    for (int64_t i = 0; i < ranks; i++) {
        int64_t rank = rank_at(m, axes, i);
        gw_runs h = gw_type_runs(q, 2, m, rank), g = gw_type_runs(k, 2, m, rank);
        if (h.n == 0) continue;
        if (h.n > 1 || g.n != 1 || h.first[0] / per < g.first[0] ||
            (h.first[0] + h.count[0] - 1) / per >= g.first[0] + g.count[0])
            return false;
    }
    return true;
}

uint32_t gw_attention_partial(const gw_type *q, const gw_type *k) {
    return gw_type_cut_axes(q) & ~gw_type_cut_axes(k);
}

static gw_status wrong(gw_diags *dg, const gw_graph *g, const gw_op *o, const char *what) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "verify-placement", "%s: %s", gw_op_def(g, o)->name, what);
}

/* The first n dimensions of v are cut as those of t; v may be absent. */
static bool cut_as(const gw_graph *g, gw_vid v, const gw_type *t, int n) {
    if (v == GW_NONE) return true;
    const gw_type *x = gw_type_of(g, v);
    for (int i = 0; i < n; i++)
        if (!gw_dim_same_cut(&x->dims[i], &t->dims[i])) return false;
    return !x->flat;
}

static gw_status verify_inputs(const gw_graph *g, const gw_op *o, bool grad, bool part,
                               gw_diags *dg) {
    int q0 = gw_attention_first(grad), docs = gw_attention_docs(grad);
    const gw_type *q = gw_type_of(g, gw_op_in(g, o, q0)),
                  *k = gw_type_of(g, gw_op_in(g, o, q0 + 1));
    for (int i = 0; i < docs + 2; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        const gw_type *t = gw_type_of(g, v);
        if (t->psum || t->pmax) return wrong(dg, g, o, "an input is partial");
        if (t->flat) return wrong(dg, g, o, "an input is flat");
        if (t->ndim == 4 && t->dims[3].naxes) return wrong(dg, g, o, "a head is cut");
    }
    gw_vid kdocs = gw_op_in(g, o, gw_op_in(g, o, docs + 1) == GW_NONE ? docs : docs + 1);
    if (!cut_as(g, gw_op_in(g, o, q0 + 1), q, 1) || !cut_as(g, gw_op_in(g, o, q0 + 2), k, 3))
        return wrong(dg, g, o, "q, k and v are cut differently");
    if (!cut_as(g, gw_op_in(g, o, docs), q, 2) || !cut_as(g, kdocs, k, 2))
        return wrong(dg, g, o, "documents are not cut as the tokens they belong to");
    if (grad && (!cut_as(g, gw_op_in(g, o, 0), q, 3) || !cut_as(g, gw_op_in(g, o, 4), q, 3) ||
                 !cut_as(g, gw_op_in(g, o, 5), q, 3)))
        return wrong(dg, g, o, "the output or its gradient is not cut as q");
    if (!part && k->dims[1].naxes)
        return wrong(dg, g, o, "keys of other ranks would be left out: s of k and v is cut");
    if (!gw_attention_covers(q, k, &g->mesh))
        return wrong(dg, g, o, "a rank holds query heads without their kv heads");
    return GW_OK;
}

gw_status gw_attention_verify(const gw_graph *g, const gw_op *o, bool grad, bool part,
                              gw_diags *dg) {
    GW_TRY(gw_verify_default(g, o, dg));
    GW_TRY(verify_inputs(g, o, grad, part, dg));
    int q0 = gw_attention_first(grad);
    const gw_type *q = gw_type_of(g, gw_op_in(g, o, q0)),
                  *k = gw_type_of(g, gw_op_in(g, o, q0 + 1));
    for (int i = 0; i < o->nout; i++) {
        const gw_type *t = gw_type_of(g, gw_op_out(g, o, i));
        bool of_k = grad && i > 0;
        if (!cut_as(g, gw_op_out(g, o, i), of_k ? k : q, 3))
            return wrong(dg, g, o, "an output is not cut as what it belongs to");
        if (t->pmax || t->psum != (of_k ? gw_attention_partial(q, k) : 0))
            return wrong(dg, g, o,
                         of_k ? "gradients of k and v are partial sums where q is cut and they are "
                                "not, and nowhere else"
                              : "an output that is whole is called partial");
    }
    return GW_OK;
}

/* ---- work ---- */

/* F of the essay. */
static double clamped_sum(double y, double n) {
    if (y <= 0) return 0;
    return y <= n ? y * (y + 1) / 2 : n * (n + 1) / 2 + (y - n) * n;
}

/* Pairs with j <= i - x, i in [a, a + m), j in [c, c + n). */
static double at_or_before(double a, double m, double c, double n, double x) {
    return clamped_sum(a + m - x - c, n) - clamped_sum(a - x - c, n);
}

double gw_attention_pairs(const gw_graph *g, const gw_op *o, bool grad, int64_t rank) {
    int q0 = gw_attention_first(grad);
    gw_runs q = gw_type_runs(gw_type_of(g, gw_op_in(g, o, q0)), 1, &g->mesh, rank);
    gw_runs k = gw_type_runs(gw_type_of(g, gw_op_in(g, o, q0 + 1)), 1, &g->mesh, rank);
    bool causal = gw_op_attr(g, o, GW_ATTENTION_CAUSAL).i != 0;
    double window = (double)gw_op_attr(g, o, GW_ATTENTION_WINDOW).i, sum = 0;
    for (int i = 0; i < q.n; i++)
        for (int j = 0; j < k.n; j++) {
            double a = (double)q.first[i], m = (double)q.count[i];
            double c = (double)k.first[j], n = (double)k.count[j];
            sum += causal ? at_or_before(a, m, c, n, 0) : m * n;
            if (window > 0) sum -= at_or_before(a, m, c, n, window);
        }
    return sum;
}

void gw_attention_cost(const gw_graph *g, const gw_op *o, bool grad, int over_k, int over_u,
                       gw_cost *c) {
    int q0 = gw_attention_first(grad);
    gw_vid q = gw_op_in(g, o, q0), k = gw_op_in(g, o, q0 + 1), v = gw_op_in(g, o, q0 + 2);
    double heads = (double)gw_cost_dim(g, q, 0) * (double)gw_cost_dim(g, q, 2);
    double a_pair = 2.0 * heads *
                    (over_k * (double)gw_cost_dim(g, k, 3) + over_u * (double)gw_cost_dim(g, v, 3));
    gw_cost_set(g, o, a_pair * gw_attention_pairs(g, o, grad, 0), c);
    c->flops_full = a_pair * (double)gw_cost_dim(g, q, 1) * (double)gw_cost_dim(g, k, 1);
}

/* ---- reference kernels ---- */

/* First index of dimension i of input `in` that this rank holds. */
static int64_t first_held(const gw_kargs *k, int in, int i) {
    gw_runs r = gw_type_runs(gw_type_of(k->g, gw_op_in(k->g, k->op, in)), i, &k->g->mesh, k->rank);
    return r.n ? r.first[0] : 0;
}

gw_attention_view gw_attention_view_of(const gw_kargs *k, bool grad) {
    int q0 = gw_attention_first(grad), docs = gw_attention_docs(grad);
    const gw_type *q = gw_type_of(k->g, gw_op_in(k->g, k->op, q0));
    const gw_type *key = gw_type_of(k->g, gw_op_in(k->g, k->op, q0 + 1));
    gw_attention_view w = {.q = &k->in[q0], .k = &k->in[q0 + 1], .v = &k->in[q0 + 2]};
    w.docs = gw_ref_has(k, docs) ? &k->in[docs] : NULL;
    w.kdocs = gw_ref_has(k, docs + 1) ? &k->in[docs + 1] : w.docs;
    w.batch = w.q->dims[0];
    w.queries = w.q->dims[1];
    w.heads = w.q->dims[2];
    w.size = w.q->dims[3];
    w.keys = w.k->dims[1];
    w.groups = w.k->dims[2];
    w.usize = w.v->dims[3];
    w.per = q->dims[2].size / key->dims[2].size;
    w.first_head = first_held(k, q0, 2);
    w.first_group = first_held(k, q0 + 1, 2);
    w.at_q = gw_type_runs(q, 1, &k->g->mesh, k->rank);
    w.at_k = gw_type_runs(key, 1, &k->g->mesh, k->rank);
    w.causal = gw_ref_attr(k, GW_ATTENTION_CAUSAL).i != 0;
    w.window = gw_ref_attr(k, GW_ATTENTION_WINDOW).i;
    w.scale = gw_ref_attr(k, GW_ATTENTION_SCALE).f;
    if (w.scale == 0) w.scale = 1 / sqrt((double)w.size);
    return w;
}

bool gw_attention_sees(const gw_attention_view *w, int64_t b, int64_t i, int64_t j) {
    int64_t from = gw_runs_global(&w->at_q, i), to = gw_runs_global(&w->at_k, j);
    if (w->causal && to > from) return false;
    if (w->window && from - to >= w->window) return false;
    return !w->docs ||
           gw_ref_int(w->docs, b * w->queries + i) == gw_ref_int(w->kdocs, b * w->keys + j);
}

int64_t gw_attention_at_lse(const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    return (b * w->queries + i) * w->heads + h;
}
int64_t gw_attention_at_q(const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    return gw_attention_at_lse(w, b, i, h) * w->size;
}
int64_t gw_attention_at_o(const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    return gw_attention_at_lse(w, b, i, h) * w->usize;
}

static int64_t row_of_k(const gw_attention_view *w, int64_t b, int64_t j, int64_t h) {
    int64_t g = (w->first_head + h) / w->per - w->first_group;
    GW_ASSERT(g >= 0 && g < w->groups);
    return (b * w->keys + j) * w->groups + g;
}
int64_t gw_attention_at_k(const gw_attention_view *w, int64_t b, int64_t j, int64_t h) {
    return row_of_k(w, b, j, h) * w->size;
}
int64_t gw_attention_at_v(const gw_attention_view *w, int64_t b, int64_t j, int64_t h) {
    return row_of_k(w, b, j, h) * w->usize;
}

double gw_attention_score(const gw_attention_view *w, int64_t b, int64_t i, int64_t j, int64_t h) {
    return w->scale * gw_ref_dot(w->q, gw_attention_at_q(w, b, i, h), 1, w->k,
                                 gw_attention_at_k(w, b, j, h), 1, w->size);
}

/* The largest score taken out. */
double gw_attention_lse_of(const gw_attention_view *w, int64_t b, int64_t i, int64_t h) {
    double most = -HUGE_VAL, sum = 0;
    bool any = false;
    for (int64_t j = 0; j < w->keys; j++) {
        if (!gw_attention_sees(w, b, i, j)) continue;
        most = fmax(most, gw_attention_score(w, b, i, j, h));
        any = true;
    }
    if (!any) return -HUGE_VAL;
    for (int64_t j = 0; j < w->keys; j++)
        if (gw_attention_sees(w, b, i, j)) sum += exp(gw_attention_score(w, b, i, j, h) - most);
    return most + log(sum);
}

void gw_attention_add_row(double *sum, double a, const gw_tensor *t, int64_t at, int64_t n) {
    for (int64_t c = 0; c < n; c++) sum[c] += a * gw_ref_get(t, at + c);
}

void gw_attention_set_row(const gw_kargs *k, const gw_tensor *t, int64_t at, int acc, double factor,
                          const double *sum, int64_t n) {
    for (int64_t c = 0; c < n; c++) {
        double old = acc < 0 ? 0 : gw_ref_acc(k, acc, at + c);
        gw_ref_set(t, at + c, old + factor * sum[c]);
    }
}

/* ---- cases ---- */

static const gw_attention_setting settings[] = {
    {"causal",
     "b1 s5 h2 k3",
     "b1 s5 g2 k3",
     "b1 s5 g2 k3",
     "b1 s5 h2 k3",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"grouped heads",
     "b1 s4 h4 k2",
     "b1 s4 g2 k2",
     "b1 s4 g2 k2",
     "b1 s4 h4 k2",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"documents",
     "b2 s6 h2 k2",
     "b2 s6 g1 k2",
     "b2 s6 g1 k2",
     "b2 s6 h2 k2",
     "b2 s6",
     {{.i = 1}, {.i = 0}, {.f = 0.9}}},
    {"window",
     "b1 s7 h2 k2",
     "b1 s7 g2 k2",
     "b1 s7 g2 k2",
     "b1 s7 h2 k2",
     NULL,
     {{.i = 1}, {.i = 3}, {.f = 0}}},
    {"window, documents",
     "b1 s9 h2 k2",
     "b1 s9 g1 k2",
     "b1 s9 g1 k2",
     "b1 s9 h2 k2",
     "b1 s9",
     {{.i = 1}, {.i = 2}, {.f = 0}}},
    {"not causal",
     "b1 s4 h2 k3",
     "b1 s4 g1 k3",
     "b1 s4 g1 k3",
     "b1 s4 h2 k3",
     NULL,
     {{.i = 0}, {.i = 0}, {.f = 0}}},
    {"not causal, window, documents",
     "b1 s6 h1 k2",
     "b1 s6 g1 k2",
     "b1 s6 g1 k2",
     "b1 s6 h1 k2",
     "b1 s6",
     {{.i = 0}, {.i = 3}, {.f = 0}}},
    {"one token",
     "b2 s1 h2 k2",
     "b2 s1 g1 k2",
     "b2 s1 g1 k2",
     "b2 s1 h2 k2",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"values longer",
     "b1 s4 h2 k2",
     "b1 s4 g1 k2",
     "b1 s4 g1 u3",
     "b1 s4 h2 u3",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"values shorter",
     "b1 s4 h2 k3",
     "b1 s4 g2 k3",
     "b1 s4 g2 u2",
     "b1 s4 h2 u2",
     "b1 s4",
     {{.i = 1}, {.i = 3}, {.f = 0}}},
    /* Sizes that leave remainders in blocks and vectors; too many elements for differences. */
    {"wide",
     "b1 s67 h4 k40",
     "b1 s67 g2 k40",
     "b1 s67 g2 k40",
     "b1 s67 h4 k40",
     "b1 s67",
     {{.i = 1}, {.i = 48}, {.f = 0}}},
    {"wide, values shorter",
     "b1 s51 h2 k72",
     "b1 s51 g2 k72",
     "b1 s51 g2 u37",
     "b1 s51 h2 u37",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
    {"wide, values longer",
     "b1 s51 h2 k19",
     "b1 s51 g1 k19",
     "b1 s51 g1 u66",
     "b1 s51 h2 u66",
     NULL,
     {{.i = 1}, {.i = 0}, {.f = 0}}},
};

const gw_attention_setting *gw_attention_setting_at(int i, gw_dtype t) {
    const int n = (int)GW_COUNT(settings), few = n - 3;
    return i >= 0 && i < (t == GW_F64 ? few : n) ? &settings[i] : NULL;
}

void gw_attention_case(gw_case *c, const gw_attention_setting *t, gw_vid in[4], gw_vid out[2]) {
    in[0] = gw_case_value(c, t->q, false, GW_FILL_NORMAL, 1, 0);
    in[1] = gw_case_value(c, t->k, false, GW_FILL_NORMAL, 1, 0);
    in[2] = gw_case_value(c, t->v, false, GW_FILL_NORMAL, 1, 0);
    in[3] = t->docs ? gw_case_fixed(c, GW_I32, t->docs, GW_FILL_SEGMENTS, 0, 3) : GW_NONE;
    out[0] = gw_build(&c->b, "attention", in, 4, t->attrs, &out[1]);
}

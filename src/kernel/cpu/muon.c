// SPDX-License-Identifier: Apache-2.0
// muon: Newton and Schulz's iteration as matrix products of oneDNN.
//
// The update of ops/muon.c for a matrix X [rows cols]. With r = min(rows, cols), a round is
//     A = X X' (r = rows) or X' X (r = cols)
//     P = a I + b A + c A A
//     X = P X or X P
// which is the same polynomial on either side, so a tall matrix needs no transpose, and the
// identity takes the place of a third pass over X. Three products a round, float32, 4 r^2 max(rows,
// cols) + 2 r^3 flops. The Frobenius norm is summed in float64 by fixed blocks.
//
// Of a matrix in parts (ops/muon_parts.c) the steps are three kernels, with the same arithmetic on
// the same blocks: what they make has the bits that the one kernel makes of the whole.
//
// Workspace: two matrices like X, two of r x r, and the norm's partial sums. Elementwise parts have
// the same bits with any number of threads; how sgemm cuts its sums is oneDNN's choice.
#include <math.h>
#include <string.h>

#include "kernel/cpu/dnnl.h"     /* gw_dnnl_sgemm */
#include "kernel/cpu/vec_more.h" /* gw_vec_load, GW_VEC_KERNEL */

#define NORM_PARTS 256

typedef struct muon {
    int64_t rows, cols, small, n;
    double *parts; /* [NORM_PARTS] */
    float *x, *next, *gram, *poly;
    float factor, momentum, weight;
    bool nesterov;
    int threads;
} muon;

static int64_t padded(int64_t floats) { return (floats + 15) / 16 * 16; }

/* Sizes of a matrix with `rows` dims of rows, and where each part of workspace begins. */
static muon layout(const gw_tensor *p, int64_t rows, void *work) {
    muon m = {.n = p->elems, .cols = 1, .parts = work};
    for (int64_t i = rows; i < p->ndim; i++) m.cols *= p->dims[i];
    m.rows = m.cols ? m.n / m.cols : 0;
    m.small = GW_MIN(m.rows, m.cols);
    if (!work) return m;
    m.x = (float *)(m.parts + NORM_PARTS);
    m.next = m.x + padded(m.n);
    m.gram = m.next + padded(m.n);
    m.poly = m.gram + padded(m.small * m.small);
    return m;
}

static int64_t rows_of(const gw_graph *g, const gw_op *o) {
    return gw_op_attr_named(g, o, "rows").i;
}

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    for (int i = 3; i < 6; i++)
        if (gw_vec_in_type(g, o, i) != GW_F32) return false;
    return gw_vec_floats(g, o, 0x7) && !gw_type_of(g, gw_op_in(g, o, 0))->flat;
}

static int64_t workspace(const gw_graph *g, const gw_op *o, const gw_machine *mach) {
    (void)mach;
    gw_vec_shape s;
    gw_vec_shape_of(&s, g, o);
    muon m = layout(&s.out[0], rows_of(g, o), NULL);
    return NORM_PARTS * (int64_t)sizeof(double) +
           (2 * padded(m.n) + 2 * padded(m.small * m.small)) * (int64_t)sizeof(float);
}

/* ---- elementwise parts ---- */

GW_CLONES static void momentum_block(float *GW_RESTRICT u, float *GW_RESTRICT mom,
                                     const float *GW_RESTRICT grad, int64_t n,
                                     const muon *GW_RESTRICT s) {
    float factor = s->factor, momentum = s->momentum, weight = s->weight;
    bool nesterov = s->nesterov;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * factor;
        float m = mom[i] + weight * (g - mom[i]);
        float ahead = g + momentum * (m - g);
        mom[i] = m;
        u[i] = nesterov ? ahead : m;
    }
}

/* The new momentum, stored, and the direction u in s->x. */
static void gather(const gw_kargs *k, const muon *s) {
    const gw_tensor *mom = &k->out[1], *g = &k->in[1];
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < s->n; i += GW_VEC_BLOCK) {
        float bm[GW_VEC_BLOCK], bg[GW_VEC_BLOCK];
        int64_t n = GW_MIN(GW_VEC_BLOCK, s->n - i);
        gw_vec_load(bm, mom->data, mom->dtype, i, n);
        gw_vec_load(bg, g->data, g->dtype, i, n);
        momentum_block(s->x + i, bm, bg, n, s);
        gw_vec_store(mom->data, mom->dtype, i, bm, n);
    }
}

static double square_sum(const float *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

/* X divided by its Frobenius norm. */
static void normalize(const muon *s) {
    int64_t length = (s->n + NORM_PARTS - 1) / NORM_PARTS;
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t p = 0; p < NORM_PARTS; p++) {
        int64_t first = GW_MIN(s->n, p * length), end = GW_MIN(s->n, first + length);
        s->parts[p] = square_sum(s->x + first, end - first);
    }
    double sum = 0;
    for (int p = 0; p < NORM_PARTS; p++) sum += s->parts[p];
    double norm = GW_MAX(sqrt(sum), 1e-7);
#pragma omp parallel for num_threads(s->threads) schedule(static)
    for (int64_t i = 0; i < s->n; i++) s->x[i] = (float)((double)s->x[i] / norm);
}

/* poly = 3.4445 I - 4.7750 gram + 2.0315 poly, poly being gram squared. */
static void polynomial(const muon *s) {
    int64_t r = s->small;
#pragma omp parallel for num_threads(s->threads) schedule(static) if (r > 64)
    for (int64_t i = 0; i < r; i++) {
        float *poly = s->poly + i * r;
        const float *gram = s->gram + i * r;
        for (int64_t j = 0; j < r; j++) poly[j] = 2.0315f * poly[j] - 4.7750f * gram[j];
        poly[i] += 3.4445f;
    }
}

/* ---- the iteration ---- */

static gw_status iterate(muon *s, gw_diags *dg) {
    int64_t r = s->small, c = s->cols;
    bool wide = s->rows <= s->cols;
    GW_TRY(
        wide ? gw_dnnl_sgemm(false, true, r, r, c, s->x, c, s->x, c, 0, s->gram, r, s->threads, dg)
             : gw_dnnl_sgemm(true, false, r, r, s->rows, s->x, c, s->x, c, 0, s->gram, r,
                             s->threads, dg));
    GW_TRY(gw_dnnl_sgemm(false, false, r, r, r, s->gram, r, s->gram, r, 0, s->poly, r, s->threads,
                         dg));
    polynomial(s);
    GW_TRY(wide ? gw_dnnl_sgemm(false, false, r, c, r, s->poly, r, s->x, c, 0, s->next, c,
                                s->threads, dg)
                : gw_dnnl_sgemm(false, false, s->rows, c, c, s->x, c, s->poly, c, 0, s->next, c,
                                s->threads, dg));
    float *swap = s->x;
    s->x = s->next;
    s->next = swap;
    return GW_OK;
}

GW_CLONES static void step_block(float *GW_RESTRICT p, const float *GW_RESTRICT x, float keep,
                                 float step, int64_t n) {
    for (int64_t i = 0; i < n; i++) p[i] = p[i] * keep - step * x[i];
}

/* p = p * keep - step * x; the matrix is rows x cols as a whole. */
static void update(const gw_kargs *k, const float *x, int64_t rows, int64_t cols, double lr) {
    const gw_tensor *p = &k->out[0];
    float keep = (float)(1 - lr * gw_op_attr_named(k->g, k->op, "decay").f);
    float step = (float)(lr * 0.2 * sqrt((double)GW_MAX(rows, cols)));
#pragma omp parallel for num_threads(k->threads) schedule(static)
    for (int64_t i = 0; i < p->elems; i += GW_VEC_BLOCK) {
        float b[GW_VEC_BLOCK];
        int64_t n = GW_MIN(GW_VEC_BLOCK, p->elems - i);
        gw_vec_load(b, p->data, p->dtype, i, n);
        step_block(b, x + i, keep, step, n);
        gw_vec_store(p->data, p->dtype, i, b, n);
    }
}

/* X from u, both s->x. */
static gw_status orthogonalize(const gw_kargs *k, muon *s, gw_diags *dg) {
    normalize(s);
    int64_t rounds = gw_op_attr_named(k->g, k->op, "ns_steps").i;
    for (int64_t i = 0; i < rounds; i++) GW_TRY(iterate(s, dg));
    return GW_OK;
}

static void set_momentum(muon *s, const gw_kargs *k, float factor, bool nesterov) {
    double momentum = gw_op_attr_named(k->g, k->op, "momentum").f;
    s->factor = factor;
    s->momentum = (float)momentum;
    s->weight = (float)(1 - momentum);
    s->nesterov = nesterov;
    s->threads = k->threads;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state;
    bool ok = *(const float *)k->in[4].data != 0.0f;
    if (!ok || k->out[0].elems == 0) return GW_OK;
    muon s = layout(&k->out[0], rows_of(k->g, k->op), k->work);
    bool nesterov = gw_op_attr_named(k->g, k->op, "nesterov").i != 0;
    set_momentum(&s, k, *(const float *)k->in[3].data, nesterov);
    gather(k, &s);
    GW_TRY(orthogonalize(k, &s, dg));
    update(k, s.x, s.rows, s.cols, (double)*(const float *)k->in[5].data);
    return GW_OK;
}

/* ---- in three steps ---- */

static bool momentum_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_floats(g, o, 0x3) && gw_vec_in_type(g, o, 2) == GW_F32;
}

static gw_status momentum_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    const gw_tensor *g = &k->in[0], *mom = &k->in[1];
    muon s = {.n = k->out[0].elems, .x = k->out[0].data};
    bool nesterov = gw_op_attr_named(k->g, k->op, "nesterov").i != 0;
    set_momentum(&s, k, *(const float *)k->in[2].data, nesterov);
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t i = 0; i < s.n; i += GW_VEC_BLOCK) {
        float bm[GW_VEC_BLOCK], bg[GW_VEC_BLOCK];
        int64_t n = GW_MIN(GW_VEC_BLOCK, s.n - i);
        gw_vec_load(bm, mom->data, mom->dtype, i, n);
        gw_vec_load(bg, g->data, g->dtype, i, n);
        momentum_block(s.x + i, bm, bg, n, &s);
    }
    return GW_OK;
}

static bool direction_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_vec_in_type(g, o, 0) == GW_F32 && !gw_type_of(g, gw_op_in(g, o, 0))->flat;
}

static gw_status direction_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state;
    size_t bytes = (size_t)k->out[0].elems * sizeof(float);
    if (bytes == 0) return GW_OK;
    muon s = layout(&k->out[0], rows_of(k->g, k->op), k->work);
    s.threads = k->threads;
    memcpy(s.x, k->in[0].data, bytes);
    GW_TRY(orthogonalize(k, &s, dg));
    memcpy(k->out[0].data, s.x, bytes);
    return GW_OK;
}

static bool apply_supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    for (int i = 3; i < 7; i++)
        if (gw_vec_in_type(g, o, i) != GW_F32) return false;
    return gw_vec_floats(g, o, 0x7);
}

static gw_status apply_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    if (*(const float *)k->in[4].data == 0.0f) return GW_OK;
    const gw_type *p = gw_type_of(k->g, gw_op_in(k->g, k->op, 0));
    int64_t rows = 1, cols = 1;
    for (int i = 0; i < p->ndim; i++)
        *(i < rows_of(k->g, k->op) ? &rows : &cols) *= p->dims[i].size;
    muon s = {0};
    set_momentum(&s, k, *(const float *)k->in[3].data, false);
    const gw_tensor *mom = &k->out[1], *g = &k->in[1];
#pragma omp parallel for num_threads(s.threads) schedule(static)
    for (int64_t i = 0; i < mom->elems; i += GW_VEC_BLOCK) {
        float bm[GW_VEC_BLOCK], bg[GW_VEC_BLOCK], u[GW_VEC_BLOCK];
        int64_t n = GW_MIN(GW_VEC_BLOCK, mom->elems - i);
        gw_vec_load(bm, mom->data, mom->dtype, i, n);
        gw_vec_load(bg, g->data, g->dtype, i, n);
        momentum_block(u, bm, bg, n, &s);
        gw_vec_store(mom->data, mom->dtype, i, bm, n);
    }
    update(k, k->in[6].data, rows, cols, (double)*(const float *)k->in[5].data);
    return GW_OK;
}

GW_VEC_KERNEL(muon, "muon", "Newton-Schulz by oneDNN sgemm in planned workspace", supports,
              workspace, launch);
GW_VEC_KERNEL(muon_momentum, "muon_momentum", "one pass over a part", momentum_supports,
              gw_vec_no_workspace, momentum_launch);
GW_VEC_KERNEL(muon_direction, "muon_direction",
              "Newton-Schulz by oneDNN sgemm in planned workspace", direction_supports, workspace,
              direction_launch);
GW_VEC_KERNEL(muon_apply, "muon_apply", "one pass over a part", apply_supports, gw_vec_no_workspace,
              apply_launch);

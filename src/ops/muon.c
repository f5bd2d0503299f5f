// SPDX-License-Identifier: Apache-2.0
// muon: one step of Muon on one matrix, in place.
//
// Jordan, "Muon: an optimizer for hidden layers in neural networks", 2024, as torch.optim.Muon
// steps with adjust_lr_fn = "match_rms_adamw" (Liu et al., "Muon is scalable for LLM training",
// 2025, section 2.2):
//   g = g * factor
//   m = m + (1 - momentum) * (g - m)
//   u = nesterov ? g + momentum * (m - g) : m
//   X = u / max(|u|, 1e-7), Frobenius norm; transposed if it has more rows than columns
//   ns_steps times:  A = X X',  X = a X + (b A + c A A) X     a, b, c = 3.4445, -4.7750, 2.0315
//   p = p * (1 - lr * decay) - lr * 0.2 * sqrt(max(rows, cols)) * X
// The quintic drives all singular values of X towards 1 (between about 0.7 and 1.2 after five
// rounds), so the step has the same size in every direction of the matrix; the factor makes its
// root mean square that of a step of AdamW, whose learning rate and decay can then be reused.
//
// A weight keeps its named dims; the first `rows` of them are the rows of the matrix, the rest its
// columns (weights are stored [out.., in..]; heads h, k are both rows). Where torch iterates in
// bfloat16, the products here are rounded to float32 (float64 where p is float64): at least as near
// to the exact iteration.
//
// The matrix must be whole on a rank. Where ranks hold parts of it, the shard rule puts the three
// steps of ops/muon_parts.c in the place of this op: only the iteration sees the whole matrix. ok
// == 0 leaves all bytes as they are. Work: 2 r r c + 2 r r r + 2 r r c flops a round, r the smaller
// side.
#include "ops/muon.h"

#include <math.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_MIN, GW_MAX */
#include "ops/hooks.h"     /* gw_cost_set */
#include "ops/ops.h"       /* gw_opdef_muon */
#include "ops/optim.h"     /* gw_optim_infer, gw_optim_read */
#include "ops/ref.h"       /* gw_ref_get */

static const gw_attr_def attrs[] = {
    {"rows", GW_ATTR_INT, 1, 0},      {"momentum", GW_ATTR_FLOAT, 0, 0.95},
    {"nesterov", GW_ATTR_BOOL, 1, 0}, {"ns_steps", GW_ATTR_INT, 5, 0},
    {"decay", GW_ATTR_FLOAT, 0, 0.1},
};

gw_status gw_muon_matrix(gw_infer *f, int64_t rows) {
    GW_TRY(gw_infer_want_ndim(f, 0, 2, GW_MAX_DIMS));
    if (rows < 1 || rows >= gw_infer_in(f, 0)->ndim)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "%s: rows is %lld, but a matrix needs 1 to %d of the dims as rows",
                       f->def->name, (long long)rows, gw_infer_in(f, 0)->ndim - 1);
    return GW_OK;
}

gw_status gw_muon_steps(gw_infer *f, int64_t steps) {
    if (steps < 0 || steps >= 100)
        return GW_FAIL(f->dg, GW_ERR_CONFIG, "op-attribute",
                       "%s: ns_steps is %lld, not between 0 and 99", f->def->name,
                       (long long)steps);
    return GW_OK;
}

static gw_status infer(gw_infer *f) {
    GW_TRY(gw_optim_infer(f, 1, false));
    GW_TRY(gw_muon_matrix(f, f->attrs[GW_MUON_ROWS].i));
    return gw_muon_steps(f, f->attrs[GW_MUON_NS_STEPS].i);
}

void gw_muon_sign_whole(const gw_graph *g, const gw_op *o, gw_signature *s) {
    gw_sign_default(g, o, s);
    for (int i = 0; i < s->nfactors; i++) s->factors[i].kind = GW_FACTOR_WHOLE;
}

void gw_muon_sizes(const gw_graph *g, gw_vid v, int64_t rows, int64_t *r, int64_t *c) {
    const gw_type *t = gw_type_of(g, v);
    *r = *c = 1;
    for (int i = 0; i < t->ndim; i++) *(i < rows ? r : c) *= t->dims[i].size;
}

double gw_muon_flops(int64_t r, int64_t c, int64_t steps) {
    double small = (double)GW_MIN(r, c), large = (double)GW_MAX(r, c);
    return (double)steps * (4 * small * small * large + 2 * small * small * small);
}

static void cost(const gw_graph *g, const gw_op *o, gw_cost *c) {
    int64_t rows, cols;
    gw_muon_sizes(g, gw_op_in(g, o, 0), gw_op_attr(g, o, GW_MUON_ROWS).i, &rows, &cols);
    gw_cost_set(g, o,
                10 * (double)rows * (double)cols +
                    gw_muon_flops(rows, cols, gw_op_attr(g, o, GW_MUON_NS_STEPS).i),
                c);
}

/* A dense matrix with strides, so that a transposed one is another view of the same numbers. */
typedef struct matrix {
    double *x;
    int64_t rows, cols, row_stride, col_stride;
} matrix;

static double *at(const matrix *m, int64_t i, int64_t j) {
    return &m->x[i * m->row_stride + j * m->col_stride];
}

static matrix matrix_new(gw_arena *a, int64_t rows, int64_t cols) {
    return (matrix){gw_arena_new(a, double, rows *cols), rows, cols, cols, 1};
}

static matrix transposed(matrix m) {
    return (matrix){m.x, m.cols, m.rows, m.col_stride, m.row_stride};
}

static double narrow(bool f64, double x) { return f64 ? x : (double)(float)x; }

/* out = alpha * add + beta * x y, rounded once an element. `add` may be NULL. */
static void product(bool f64, matrix out, double alpha, const matrix *add, double beta, matrix x,
                    matrix y) {
    for (int64_t i = 0; i < out.rows; i++)
        for (int64_t j = 0; j < out.cols; j++) {
            double sum = 0;
            for (int64_t l = 0; l < x.cols; l++) sum += *at(&x, i, l) * *at(&y, l, j);
            sum = beta * sum + (add ? alpha * *at(add, i, j) : 0);
            *at(&out, i, j) = narrow(f64, sum);
        }
}

/* Newton and Schulz's iteration on x in place; x has no more rows than columns. */
static void iterate(bool f64, matrix x, int64_t rounds, gw_arena *a) {
    double sum = 0;
    for (int64_t i = 0; i < x.rows * x.cols; i++) sum += x.x[i] * x.x[i];
    double norm = GW_MAX(sqrt(sum), 1e-7);
    for (int64_t i = 0; i < x.rows * x.cols; i++) x.x[i] = narrow(f64, x.x[i] / norm);
    matrix gram = matrix_new(a, x.rows, x.rows), poly = matrix_new(a, x.rows, x.rows);
    matrix next = matrix_new(a, x.rows, x.cols);
    for (int64_t r = 0; r < rounds; r++) {
        product(f64, gram, 0, NULL, 1, x, transposed(x));
        product(f64, poly, -4.7750, &gram, 2.0315, gram, gram);
        product(f64, next, 3.4445, &x, 1, poly, x);
        for (int64_t i = 0; i < x.rows; i++)
            for (int64_t j = 0; j < x.cols; j++) *at(&x, i, j) = *at(&next, i, j);
    }
}

void gw_muon_orthogonalize(bool f64, double *u, int64_t rows, int64_t cols, int64_t steps,
                           gw_arena *a) {
    matrix x = {u, rows, cols, cols, 1};
    iterate(f64, rows > cols ? transposed(x) : x, steps, a);
}

double gw_muon_ahead(bool f64, double g, double *m, double momentum, bool nesterov) {
    double now = narrow(f64, *m + (1 - momentum) * (g - *m));
    *m = now;
    return narrow(f64, nesterov ? g + momentum * (now - g) : now);
}

double gw_muon_stepped(bool f64, double p, double x, double lr, double decay, int64_t rows,
                       int64_t cols) {
    double step = lr * 0.2 * sqrt((double)GW_MAX(rows, cols));
    return narrow(f64, p * (1 - lr * decay)) - step * x;
}

static void reference(const gw_kargs *k) {
    gw_optim_scalars s = gw_optim_read(k, 1);
    const gw_tensor *p = &k->out[0];
    if (!s.ok || p->elems == 0) return;
    bool f64 = p->dtype == GW_F64, nesterov = gw_ref_attr(k, GW_MUON_NESTEROV).i != 0;
    double momentum = gw_ref_attr(k, GW_MUON_MOMENTUM).f, decay = gw_ref_attr(k, GW_MUON_DECAY).f;
    int64_t cols = gw_ref_inner(p, (int)gw_ref_attr(k, GW_MUON_ROWS).i), rows = p->elems / cols;
    gw_arena a = {0};
    double *u = gw_arena_new(&a, double, p->elems);
    for (int64_t i = 0; i < p->elems; i++) {
        double m = gw_ref_get(&k->in[2], i);
        u[i] = gw_muon_ahead(f64, narrow(f64, gw_ref_get(&k->in[1], i) * s.factor), &m, momentum,
                             nesterov);
        gw_ref_set(&k->out[1], i, m);
    }
    gw_muon_orthogonalize(f64, u, rows, cols, gw_ref_attr(k, GW_MUON_NS_STEPS).i, &a);
    for (int64_t i = 0; i < p->elems; i++)
        gw_ref_set(p, i,
                   gw_muon_stepped(f64, gw_ref_get(&k->in[0], i), u[i], s.lr, decay, rows, cols));
    gw_arena_release(&a);
}

static void build_case(gw_cases *cs, const char *name, const char *dims, int64_t rows, double ok,
                       bool nesterov) {
    gw_optim_case o = {.name = name,
                       .dims = dims,
                       .nstates = 1,
                       .float_states = true,
                       .ok = ok,
                       .factor = 0.5,
                       .lr = 0.02};
    gw_vid in[9];
    int nin = 0;
    gw_case *c = gw_optim_case_begin(cs, &o, in, &nin);
    gw_attr a[5] = {{.i = rows}, {.f = 0.95}, {.i = nesterov}, {.i = 5}, {.f = 0.1}};
    gw_build(&c->b, "muon", in, nin, a, NULL);
}

static void cases(gw_cases *cs) {
    build_case(cs, "wide", "f5 d9", 1, 1, true);
    build_case(cs, "tall heads", "h4 k3 d7", 2, 1, true);
    build_case(cs, "square, plain momentum", "f8 d8", 1, 1, false);
    build_case(cs, "not ok", "f3 d4", 1, 0, true);
}

const gw_opdef gw_opdef_muon = {
    .name = "muon",
    .doc = "a step of Muon in place, as torch.optim.Muon with match_rms_adamw",
    .signature = "*,*,*,,,->*,*",
    .traits = GW_OP_NODIFF | GW_OP_OPTIMIZER,
    .linear_in = 0,
    .nin = 6,
    .nout = 2,
    .noptional = 0,
    .nacc = 0,
    .ties = {0, 2, -1, -1, -1, -1},
    .reads_in = 0,
    .reads_out = 0,
    .nattrs = 5,
    .attrs = attrs,
    .infer = infer,
    .verify = gw_verify_default,
    .sign = gw_muon_sign_whole,
    .shard = gw_muon_shard,
    .cost = cost,
    .vjp = gw_vjp_none,
    .reference = reference,
    .cases = cases,
};

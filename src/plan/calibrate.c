// SPDX-License-Identifier: Apache-2.0
// The time of an op from times that were measured at other shapes.
//
// Of the times that were measured of the same op, with the same dtypes and as many ranks side by
// side, the nearest are taken: distance is measured in logarithms of extents, so that twice as many
// rows are as far as half of them. Each stands for a rate, seconds per unit of work (FLOPs of a
// product, bytes of the rest), and through the logarithms of these rates a plane is laid, weighted
// by 1 / distance squared (Cleveland's local regression, 1979). At a measured shape the answer is
// what was measured, between two it follows the line between them, and it never leaves the range of
// the rates that it is made of: outside of what was measured nothing is extrapolated. What work is
// not in proportion to (a launch, a team of threads) is in the rates of small shapes, which are
// near small shapes.
//
// Kernels of one op can be a hundred times apart. Where several were measured with these dtypes,
// the one that the op would run on (gw_kernel_choose, as the executor asks) answers, by its own
// shapes.
//
// Where these dtypes were never measured, the op's others answer. The same holds of ranks: with as
// many side by side as were never measured, the nearest number answers, in proportion to the share
// of the machine that a rank has.
//
// The extents say what a kernel's loops see. An op that passes memory by has its bytes, its row
// length, and the arena of its program: data that was made long ago has left the caches of a
// program that is larger than they are.
#include "plan/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h> /* qsort */
#include <string.h>

#include "base/str.h"          /* gw_str_starts */
#include "kernel/kernel.h"     /* gw_kernel_choose */
#include "ops/hooks.h"         /* gw_cost_elems */
#include "ops/muon.h"          /* gw_muon_sizes */
#include "plan/machine_impl.h" /* gw_machine_product_of */
#include "run/exec_comm.h"     /* gw_op_is_collective */

/* ---- shapes ---- */

static void add_type(char *types, const gw_graph *g, gw_vid v, char before) {
    size_t n = strlen(types);
    const char *name = v == GW_NONE ? "-" : gw_dtype_name((gw_dtype)gw_type_of(g, v)->dtype);
    if (n + strlen(name) + 2 > GW_TIMING_TYPES) return;
    snprintf(types + n, GW_TIMING_TYPES - n, "%.*s%s", before ? 1 : 0, &before, name);
}

/* `least`: work that takes as long as beginning and ending does, so that a very small op does not
 * take nothing. */
static void set(gw_timing_shape *s, double a, double b, double c, double d, double work,
                double least) {
    double x[GW_TIMING_DIMS] = {a, b, c, d};
    for (int i = 0; i < GW_TIMING_DIMS; i++) s->x[i] = fmax(x[i], 1);
    s->work = work + least;
}
static const double least_flops = 1e5, least_bytes = 16384;

static void product_shape(const gw_graph *g, const gw_op *o, int64_t rank, double flops,
                          gw_timing_shape *s) {
    gw_machine_product p = gw_machine_product_of(g, o, rank);
    set(s, p.rows, p.cols, p.k, 1, flops, least_flops);
}

/* The first input of `ndim` dimensions, the first of which is called `first` ("": whatever). */
static const gw_type *input_of(const gw_graph *g, const gw_op *o, int ndim, const char *first) {
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(g, o, k);
        if (v == GW_NONE) continue;
        const gw_type *t = gw_type_of(g, v);
        if (t->ndim == ndim && (!*first || strcmp(t->dims[0].name, first) == 0)) return t;
    }
    return NULL;
}

static double last_dim(const gw_graph *g, gw_vid v, int64_t rank) {
    const gw_type *t = v == GW_NONE ? NULL : gw_type_of(g, v);
    return t && t->ndim > 0 ? (double)gw_type_local_dim(t, t->ndim - 1, &g->mesh, rank) : 1;
}

static void attention_shape(const gw_graph *g, const gw_op *o, int64_t rank, const gw_cost *c,
                            gw_timing_shape *s) {
    const gw_type *q = input_of(g, o, 4, "");
    double d[4] = {1, 1, 1, 1};
    for (int i = 0; q && i < 4; i++) d[i] = (double)gw_type_local_dim(q, i, &g->mesh, rank);
    double heads = d[0] * d[2];
    set(s, heads, d[1], d[3], c->flops / fmax(heads, 1), c->flops, least_flops);
}

static void experts_shape(const gw_graph *g, const gw_op *o, int64_t rank, const gw_cost *c,
                          gw_timing_shape *s) {
    const gw_type *w = input_of(g, o, 3, "e");
    double d[3] = {1, 1, 1};
    for (int i = 0; w && i < 3; i++) d[i] = (double)gw_type_local_dim(w, i, &g->mesh, rank);
    set(s, d[0], d[1], d[2], c->flops, c->flops, least_flops);
}

/* Images are [b y x c], filters [o c i j]: pixels of the result, channels out and in, a filter's.
 */
static void conv_shape(const gw_graph *g, const gw_op *o, int64_t rank, double flops,
                       gw_timing_shape *s) {
    bool filters = gw_op_is(g, o, "conv2d_dw"), result = gw_op_is(g, o, "conv2d");
    const gw_type *y = gw_type_of(g, result ? gw_op_out(g, o, 0) : gw_op_in(g, o, 0));
    const gw_type *w = gw_type_of(g, filters ? gw_op_out(g, o, 0) : gw_op_in(g, o, 1));
    double pixels = 1, d[4] = {1, 1, 1, 1};
    for (int i = 0; i + 1 < y->ndim; i++) pixels *= (double)gw_type_local_dim(y, i, &g->mesh, rank);
    for (int i = 0; i < GW_MIN(w->ndim, 4); i++)
        d[i] = (double)gw_type_local_dim(w, i, &g->mesh, rank);
    set(s, pixels, d[0], d[1], d[2] * d[3], flops, least_flops);
}

/* Newton and Schulz's products are of a whole matrix. */
static bool is_iteration(const char *op) {
    return strcmp(op, "muon") == 0 || strcmp(op, "muon_direction") == 0;
}

static void iteration_shape(const gw_graph *g, const gw_op *o, double flops, gw_timing_shape *s) {
    int64_t r, c;
    gw_muon_sizes(g, gw_op_in(g, o, 0), gw_op_attr_named(g, o, "rows").i, &r, &c);
    set(s, (double)r, (double)c, 1, 1, flops, least_flops);
}

void gw_timing_shape_of(const gw_graph *g, const gw_op *o, int64_t rank, gw_timing_shape *s) {
    const char *name = gw_op_def(g, o)->name;
    gw_cost c = {0};
    gw_op_def(g, o)->cost(g, o, &c);
    double bytes = c.bytes_read + c.bytes_written;
    memset(s, 0, sizeof *s);
    for (int k = 0; k < (int)o->nin; k++) add_type(s->types, g, gw_op_in(g, o, k), k ? ',' : 0);
    for (int k = 0; k < (int)o->nout; k++) add_type(s->types, g, gw_op_out(g, o, k), k ? ',' : '>');
    gw_vid in = o->nin ? gw_op_in(g, o, 0) : GW_NONE, out = o->nout ? gw_op_out(g, o, 0) : GW_NONE;
    bool heads =
        gw_str_starts(name, "head") && c.flops > 0 && o->nin > 1 && gw_op_in(g, o, 1) != GW_NONE;
    if (gw_str_starts(name, "matmul") || gw_str_starts(name, "fp8_matmul") || heads)
        product_shape(g, o, rank, c.flops, s);
    else if (gw_str_starts(name, "attention"))
        attention_shape(g, o, rank, &c, s);
    else if (gw_str_starts(name, "experts"))
        experts_shape(g, o, rank, &c, s);
    else if (gw_str_starts(name, "conv2d"))
        conv_shape(g, o, rank, c.flops, s);
    else if (is_iteration(name))
        iteration_shape(g, o, c.flops, s);
    else
        set(s, bytes, last_dim(g, in == GW_NONE ? out : in, rank),
            out == GW_NONE ? 1 : (double)gw_cost_elems(g, out),
            (double)g->arena_bytes[GW_MEM_DEVICE], bytes, least_bytes);
}

/* ---- order ---- */

/* One op, as many ranks, the same types, the same kernel. */
static int by_key(const void *a, const void *b) {
    const gw_timing *x = a, *y = b;
    int c = strcmp(x->op, y->op);
    if (c == 0) c = (x->ranks > y->ranks) - (x->ranks < y->ranks);
    if (c == 0) c = strcmp(x->shape.types, y->shape.types);
    if (c == 0) c = strcmp(x->kernel, y->kernel);
    for (int i = 0; c == 0 && i < GW_TIMING_DIMS; i++)
        c = (x->shape.x[i] > y->shape.x[i]) - (x->shape.x[i] < y->shape.x[i]);
    return c;
}

void gw_timings_sort(gw_timings *r) {
    if (r->n > 1) qsort(r->timings, (size_t)r->n, sizeof *r->timings, by_key);
}

/* [*first, *end): what was measured of this op. */
static void find_op(const gw_timings *r, const char *op, int *first, int *end) {
    int lo = 0, hi = r->n;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (strcmp(r->timings[mid].op, op) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *first = lo;
    while (lo < r->n && strcmp(r->timings[lo].op, op) == 0) lo++;
    *end = lo;
}

/* ---- distance ---- */

enum { NEAREST = 12, TERMS = 1 + GW_TIMING_DIMS };

/* What a row or an arena that is e times as long is worth; how flat a plane is made where few
 * points say how it slopes. Chosen by leaving shapes out and asking for them. */
static const double row_weight = 0.5, arena_weight = 0.15, flatness = 0.3;

static bool is_passing(const char *op) {
    static const char *const products[] = {"matmul",    "fp8_matmul", "head",
                                           "attention", "experts",    "conv2d"};
    if (is_iteration(op)) return false;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        if (gw_str_starts(op, products[i])) return false;
    return true;
}

static void weights_of(const char *op, double weight[GW_TIMING_DIMS]) {
    for (int i = 0; i < GW_TIMING_DIMS; i++) weight[i] = 1;
    if (is_passing(op)) weight[1] = weight[2] = row_weight, weight[3] = arena_weight;
}

/* Squared. */
static double distance(const char *op, const gw_timing_shape *a, const gw_timing_shape *b) {
    double weight[GW_TIMING_DIMS], sum = 0;
    weights_of(op, weight);
    for (int i = 0; i < GW_TIMING_DIMS; i++) {
        double d = log(a->x[i] / b->x[i]);
        sum += weight[i] * d * d;
    }
    return sum;
}

/* The number of ranks side by side that was measured of it and is nearest to `ranks`. */
static int nearest_side(const gw_timings *r, int first, int end, int ranks) {
    int best = 0;
    double least = HUGE_VAL;
    for (int i = first; i < end; i++) {
        double d = fabs(log((double)r->timings[i].ranks / ranks));
        if (d < least) least = d, best = r->timings[i].ranks;
    }
    return best;
}

typedef struct near {
    double d2, log_rate;
    const gw_timing_shape *shape;
} near;

static int take_nearest(near best[NEAREST], int n, near x) {
    int at = n < NEAREST ? n++ : NEAREST;
    while (at > 0 && best[at - 1].d2 > x.d2) {
        if (at < NEAREST) best[at] = best[at - 1];
        at--;
    }
    if (at < NEAREST) best[at] = x;
    return n;
}

/* Solves a x = b by elimination; a is symmetric and positive. Returns x[0]. */
static double solve_first(double a[TERMS][TERMS], double b[TERMS]) {
    for (int k = TERMS - 1; k > 0; k--)
        for (int i = 0; i < k; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = 0; j < TERMS; j++) a[i][j] -= f * a[k][j];
            b[i] -= f * b[k];
        }
    return b[0] / a[0][0];
}

/* The plane through the logarithms of the nearest rates, at s. */
static double log_rate_at(const char *op, const gw_timing_shape *s, const near *best, int n) {
    double a[TERMS][TERMS] = {{0}}, b[TERMS] = {0}, least = HUGE_VAL, most = -HUGE_VAL;
    double weight[GW_TIMING_DIMS];
    weights_of(op, weight);
    for (int i = 1; i < TERMS; i++) a[i][i] = flatness;
    for (int k = 0; k < n; k++) {
        double z[TERMS] = {1}, w = (best[0].d2 + 1e-4) / (best[k].d2 + 1e-4);
        for (int i = 0; i < GW_TIMING_DIMS; i++)
            z[i + 1] = sqrt(weight[i]) * log(best[k].shape->x[i] / s->x[i]);
        for (int i = 0; i < TERMS; i++) {
            for (int j = 0; j < TERMS; j++) a[i][j] += w * z[i] * z[j];
            b[i] += w * z[i] * best[k].log_rate;
        }
        least = fmin(least, best[k].log_rate);
        most = fmax(most, best[k].log_rate);
    }
    return fmax(least, fmin(most, solve_first(a, b)));
}

/* gw_timings_shape_seconds, by the times of `kernel` alone where it has any (NULL: of all). */
static double kernel_seconds(const gw_timings *r, const char *op, const char *kernel,
                             const gw_timing_shape *s, int ranks) {
    int first, end, n = 0;
    near best[NEAREST];
    find_op(r, op, &first, &end);
    if (first == end) return -1;
    int side = nearest_side(r, first, end, ranks);
    bool known = false, own = false; /* these dtypes; this kernel with them */
    for (int i = first; i < end; i++) {
        const gw_timing *x = &r->timings[i];
        if (x->ranks != side || strcmp(x->shape.types, s->types) != 0) continue;
        known = true;
        own |= kernel && strcmp(x->kernel, kernel) == 0;
    }
    for (int i = first; i < end; i++) {
        const gw_timing *x = &r->timings[i];
        if (x->ranks != side || (known && strcmp(x->shape.types, s->types) != 0)) continue;
        if (own && strcmp(x->kernel, kernel) != 0) continue;
        near one = {distance(op, s, &x->shape), log(x->seconds / x->shape.work), &x->shape};
        n = take_nearest(best, n, one);
    }
    double share = side == ranks ? 1 : (double)ranks / side;
    return exp(log_rate_at(op, s, best, n)) * s->work * share;
}

double gw_timings_shape_seconds(const gw_timings *r, const char *op, const gw_timing_shape *s,
                                int ranks) {
    return kernel_seconds(r, op, NULL, s, ranks);
}

/* ---- ops ---- */

double gw_timings_peak(const gw_timings *r, gw_dtype t) {
    double best = 0;
    char begin[24];
    snprintf(begin, sizeof begin, "%s,", gw_dtype_name(t));
    for (int i = 0; i < r->n; i++) {
        const gw_timing *x = &r->timings[i];
        if (x->ranks != 1 || !gw_str_starts(x->op, "matmul") ||
            !gw_str_starts(x->shape.types, begin))
            continue;
        best = fmax(best, x->shape.work / x->seconds);
    }
    return best;
}

static const gw_timing_side *side_of(const gw_timings *r, int ranks) {
    const gw_timing_side *best = NULL;
    double least = HUGE_VAL;
    for (int i = 0; i < r->nsides; i++) {
        double d = fabs(log((double)r->sides[i].ranks / ranks));
        if (d < least) least = d, best = &r->sides[i];
    }
    return best;
}

double gw_timings_step_seconds(const gw_timings *r, int ranks) {
    const gw_timing_side *s = side_of(r, ranks);
    return s ? s->step_s : 0;
}

/* The machine that was measured, as kernels are chosen for it. */
static gw_machine machine_of(const gw_timings *r, const gw_timing_side *side) {
    gw_machine m = {.threads = side ? side->threads : 1, .count_only = true};
    for (int i = GW_ISA_PLAIN; i <= GW_ISA_AMX; i++)
        if (strcmp(gw_isa_name((gw_isa)i), r->isa) == 0) m.isa = (gw_isa)i;
    return m;
}

/* The kernel that o would run on, where several were measured of such an op; NULL: nothing to
 * choose. A choice looks at the shape, so equal dtypes can have several. */
static const char *kernel_of(const gw_timings *r, const gw_graph *g, const gw_op *o,
                             const gw_timing_shape *s, const gw_timing_side *side) {
    int first, end;
    const char *one = NULL;
    if (gw_op_is_collective(g, o)) return NULL;
    find_op(r, gw_op_def(g, o)->name, &first, &end);
    for (int i = first; i < end; i++) {
        const gw_timing *x = &r->timings[i];
        if ((side && x->ranks != side->ranks) || strcmp(x->shape.types, s->types) != 0) continue;
        if (one && strcmp(one, x->kernel) != 0) {
            gw_machine m = machine_of(r, side);
            return gw_kernel_choose(g, o, &m)->name;
        }
        one = x->kernel;
    }
    return NULL;
}

/* Nothing of the kind was measured. */
static double estimate(const gw_timings *r, const gw_graph *g, const gw_op *o, int ranks) {
    gw_cost c = {0};
    gw_op_def(g, o)->cost(g, o, &c);
    double bytes = c.bytes_read + c.bytes_written;
    double peak = gw_timings_peak(r, GW_F32) / ranks, rate = r->memory_bytes_per_s / ranks;
    double work = peak > 0 ? c.flops / peak : 0, move = rate > 0 ? bytes / rate : 0;
    return fmax(work, move);
}

double gw_timings_op_seconds(const gw_timings *r, const gw_graph *g, const gw_op *o, int64_t rank,
                             int ranks) {
    const char *name = gw_op_def(g, o)->name;
    const gw_timing_side *side = side_of(r, ranks);
    gw_timing_shape s;
    gw_timing_shape_of(g, o, rank, &s);
    double t = kernel_seconds(r, name, kernel_of(r, g, o, &s, side), &s, ranks);
    size_t n = strlen(name);
    if (t < 0 && n > 3 && strcmp(name + n - 3, "_ep") == 0) { /* rows travel apart */
        char plain[64];
        snprintf(plain, sizeof plain, "%.*s", (int)(n - 3), name);
        t = gw_timings_shape_seconds(r, plain, &s, ranks);
    }
    if (t < 0 && is_iteration(name)) t = gw_timings_shape_seconds(r, "muon", &s, ranks);
    if (t < 0) t = estimate(r, g, o, ranks);
    return t + (side ? side->op_s : 0);
}

/* ---- communication ---- */

void gw_timing_coll_shape(const gw_coll *c, gw_timing_shape *s) {
    double bytes = (double)gw_coll_bytes(c);
    memset(s, 0, sizeof *s);
    snprintf(s->types, sizeof s->types, "%s %s", gw_dtype_name(c->dtype),
             c->algorithm ? c->algorithm : "by rule");
    set(s, bytes, 1, 1, 1, bytes, least_bytes);
}

double gw_timings_coll_seconds(const gw_timings *r, const gw_coll *c, int ranks) {
    gw_timing_shape s;
    if (c->size < 2) return 0;
    gw_timing_coll_shape(c, &s);
    double t = c->wire == GW_WIRE_SAME
                   ? gw_timings_shape_seconds(r, gw_coll_kind_name(c->kind), &s, ranks)
                   : -1;
    if (t >= 0) return t;
    gw_coll_machine m = gw_coll_machine_local(1);
    gw_calibration_apply(&r->comm, &m);
    return gw_coll_seconds(c, &m);
}

double gw_timings_send_seconds(const gw_timings *r, int64_t bytes, int ranks) {
    gw_timing_shape s = {.types = "message"};
    set(&s, (double)bytes, 1, 1, 1, (double)bytes, least_bytes);
    double t = gw_timings_shape_seconds(r, "send", &s, ranks);
    if (t >= 0) return t;
    return r->comm.latency_s + (double)bytes / r->comm.bytes_per_s;
}

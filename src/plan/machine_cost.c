// SPDX-License-Identifier: Apache-2.0
// What an op takes on a machine.
//
// Products. A chip has `units` that each work on one tile of the result at a time. A tile takes
// 2 tile_m tile_n (k + k_ramp) FLOPs at its unit's share of the peak: k_ramp is the filling and
// emptying of its pipeline, which is why short k is slow. Tiles at the edge cost as much as whole
// ones (tile quantisation), and a last wave that fills few units as much as a full one (wave
// quantisation). Libraries choose among tiles: here the full one in both directions, a half and a
// quarter, which read their operands more often and reach a little less; and k may be split among
// units that would have none, whose parts are then added through memory. The least of these is what
// a product takes, but not less than its bytes through memory.
//
// What engines run as one product is one here: q, k, v and gate, up read one input; the input
// gradients that they add are one product with a longer k (the additions vanish); their weight
// gradients have one input in common. Each op takes its share, by FLOPs, of the one.
//
// Attention is the fused kind that keeps scores on the chip: its own part of the peak forward and
// backward, longer by the edges of a causal mask and by the softmax of each pair. The head's
// logits, which our own engine never forms, do pass through memory on an accelerator: so many bytes
// each. Experts are grouped products, a kernel an expert, with a pass to bring rows together and
// one to put them back; where the layer multiplies in eight bits so do they, and their operands
// are quantised by passes of their own.
//
// Everything else is bytes over bandwidth: one pass for a norm, an activation, a rotation, a
// residual addition (each is fused with the casts, biases and scales beside it); dropout is a part
// of the residual addition behind it. Of eight-bit products the operands of forward are written in
// eight bits by what makes them, instead of in sixteen; a gradient takes a pass to be made so; and
// nobody needs the sixteen bits back. Each kernel adds launch_s, which is what small ones take.
//
// Ranks are not equally fast, and a synchronous step waits for the slowest of them: with a spread
// of their speeds around the mean, by the expected largest of so many draws.
#include <math.h>
#include <string.h>

#include "base/compiler.h"  /* GW_COUNT */
#include "base/str.h"       /* gw_str_starts */
#include "ops/hooks.h"      /* gw_cost_elems, gw_cost_dim */
#include "plan/calibrate.h" /* gw_timings_op_seconds */
#include "plan/machine_impl.h"
#include "run/exec_copy.h" /* gw_op_is_copy */

static bool any_of(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0) return true;
    return false;
}

/* Passes through memory. */
static double pass_seconds(const gw_machine_spec *m, double bytes) {
    return m->memory_bytes_per_s > 0 ? bytes / (m->memory_bytes_per_s * m->model->memory_efficiency)
                                     : 0;
}

/* ---- products ---- */

typedef struct tile {
    double rows, cols, reaches; /* of what the full tile reaches */
} tile;

/* Seconds of a product in tiles of one kind with k in `split` parts, without memory. */
static double tiled_seconds(const gw_machine_spec *m, double unit_flops, const tile *t, double rows,
                            double cols, double k, double batch, double split) {
    double units = m->units > 0 ? m->units : 1;
    double tiles = batch * ceil(rows / t->rows) * ceil(cols / t->cols) * split;
    double each =
        2 * t->rows * t->cols * (k / split + m->model->k_ramp) / (unit_flops * t->reaches);
    double s = ceil(tiles / units) * each;
    /* Parts are written and read in float32. */
    return split > 1 ? s + pass_seconds(m, batch * rows * cols * 8 * split) : s;
}

double gw_machine_product_seconds(const gw_machine_spec *m, gw_dtype t, double rows, double cols,
                                  double k, double batch) {
    double peak = gw_machine_flops(m, t);
    if (peak <= 0 || rows <= 0 || cols <= 0 || k <= 0 || batch <= 0) return 0;
    if (!m->model) return 2 * rows * cols * k * batch / peak;
    const gw_chip_model *p = m->model;
    bool eight = (t == GW_F8E4M3 || t == GW_F8E5M2) && m->peak[t] > 0;
    double units = m->units > 0 ? m->units : 1, best = HUGE_VAL;
    double unit = peak * (eight ? p->f8_efficiency : p->product_efficiency) / units;
    const tile tiles[] = {{p->tile_m, p->tile_n, 1},
                          {p->tile_n, p->tile_m, 1},
                          {p->tile_m, p->tile_n / 2, 0.94},
                          {p->tile_n / 2, p->tile_m, 0.94},
                          {p->tile_m / 2, p->tile_n / 2, 0.85}};
    for (size_t i = 0; i < GW_COUNT(tiles); i++)
        for (double split = 1; split <= 8 && split <= fmax(1, k / 1024); split *= 2)
            best = fmin(best, tiled_seconds(m, unit, &tiles[i], rows, cols, k, batch, split));
    return best;
}

typedef gw_machine_product product;

/* Local elements of the dimensions of `a` that `b` has too, or has not. */
static double extent(const gw_graph *g, gw_vid a, gw_vid b, bool shared, int64_t rank) {
    const gw_type *x = gw_type_of(g, a), *y = gw_type_of(g, b);
    double n = 1;
    for (int i = 0; i < x->ndim; i++)
        if ((gw_type_find(y, x->dims[i].name) >= 0) == shared)
            n *= (double)gw_type_local_dim(x, i, &g->mesh, rank);
    return n;
}

/* Eight-bit products take values and scales by turns. */
static int second_operand(const char *name) { return gw_str_starts(name, "fp8") ? 2 : 1; }

gw_machine_product gw_machine_product_of(const gw_graph *g, const gw_op *o, int64_t rank) {
    gw_vid a = gw_op_in(g, o, 0), b = gw_op_in(g, o, second_operand(gw_op_def(g, o)->name));
    return (product){.rows = extent(g, a, b, false, rank),
                     .cols = extent(g, b, a, false, rank),
                     .k = extent(g, a, b, true, rank),
                     .t = (gw_dtype)gw_type_of(g, a)->dtype};
}

static bool is_product(const gw_graph *g, const gw_op *o) {
    static const char *const names[] = {"matmul", "matmul_dw", "fp8_matmul", "fp8_matmul_dw"};
    return any_of(gw_op_def(g, o)->name, names, GW_COUNT(names));
}

/* How far apart ops of one layer that belong together stand. */
enum { NEAR = 40 };

/* The addition near o that takes its result together with other products', or NULL. */
static const gw_op *summed_by(const gw_graph *g, const gw_op *o) {
    gw_vid out = gw_op_out(g, o, 0);
    const gw_op *first = g->ops.items, *end = first + g->ops.count;
    for (const gw_op *x = o + 1; x < end && x <= o + NEAR; x++) {
        const char *name = gw_op_def(g, x)->name;
        if (strcmp(name, "add") != 0 && strcmp(name, "addn") != 0) continue;
        for (int k = 0; k < (int)x->nin; k++)
            if (gw_op_in(g, x, k) == out) return x;
    }
    return NULL;
}

/* Is input k of x made by a product? */
static bool sums_product(const gw_graph *g, const gw_op *x, int k) {
    gw_vid v = gw_op_in(g, x, k);
    gw_oid def = v == GW_NONE ? GW_NONE : g->values.items[v].def;
    return def != GW_NONE && is_product(g, &g->ops.items[def]);
}

/* Widens p by the products that run as one with o. */
static void join(const gw_graph *g, const gw_op *o, int64_t rank, product *p) {
    const gw_op *first = g->ops.items, *end = first + g->ops.count;
    const gw_op *from = o - first > NEAR ? o - NEAR : first, *to = end - o > NEAR ? o + NEAR : end;
    int second = second_operand(gw_op_def(g, o)->name);
    gw_vid a = gw_op_in(g, o, 0), b = gw_op_in(g, o, second);
    bool weights = strstr(gw_op_def(g, o)->name, "_dw") != NULL;
    for (const gw_op *x = from; x < to; x++) {
        if (x == o || x->code != o->code || x->phase != o->phase || x->rate != o->rate) continue;
        bool left = gw_op_in(g, x, 0) == a;
        if (!left && !(weights && gw_op_in(g, x, second) == b)) continue;
        product q = gw_machine_product_of(g, x, rank);
        if (q.k < p->k || q.k > p->k) continue;
        if (left)
            p->cols += q.cols;
        else
            p->rows += q.rows;
    }
    const gw_op *sum = weights ? NULL : summed_by(g, o);
    for (int k = 0; sum && k < (int)sum->nin; k++) {
        if (!sums_product(g, sum, k) || gw_op_in(g, sum, k) == gw_op_out(g, o, 0)) continue;
        product q =
            gw_machine_product_of(g, &g->ops.items[g->values.items[gw_op_in(g, sum, k)].def], rank);
        if (q.rows <= p->rows && q.rows >= p->rows && q.cols <= p->cols && q.cols >= p->cols)
            p->k += q.k;
    }
}

static double product_op(const gw_machine_spec *m, const gw_graph *g, const gw_op *o, int64_t rank,
                         double bytes) {
    product own = gw_machine_product_of(g, o, rank), all = own;
    join(g, o, rank, &all);
    double work = all.rows * all.cols * all.k;
    if (work <= 0) return 0;
    double share = own.rows * own.cols * own.k / work;
    double s = gw_machine_product_seconds(m, all.t, all.rows, all.cols, all.k, 1) * share;
    return fmax(s, pass_seconds(m, bytes)) + m->model->launch_s * share;
}

/* ---- other products ---- */

static double attention_op(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                           const gw_cost *c) {
    const gw_chip_model *p = m->model;
    bool back = strstr(gw_op_def(g, o)->name, "grad") != NULL;
    double keys = 0, head = 0;
    for (int k = 0; k < (int)o->nin && keys <= 0; k++) { /* the first of two operands of heads */
        const gw_type *t = gw_op_in(g, o, k) == GW_NONE ? NULL : gw_type_of(g, gw_op_in(g, o, k));
        if (!t || t->ndim != 4) continue;
        keys = (double)gw_type_local_dim(t, 1, &g->mesh, 0);
        head = (double)gw_type_local_dim(t, 3, &g->mesh, 0);
    }
    double peak =
        gw_machine_flops(m, GW_BF16) * (back ? p->attention_backward : p->attention_forward);
    double longer = keys > 0 && head > 0
                        ? (1 + p->attention_ramp / keys) * (1 + p->attention_softmax / head)
                        : 1;
    double s = peak > 0 ? c->flops * longer / peak : 0;
    return fmax(s, pass_seconds(m, c->bytes_read + c->bytes_written)) + p->launch_s;
}

/* The vocabulary's product: with its gradients, or a part of it. What is computed a second time, to
 * do without the logits, is not counted: they are kept. */
static double head_op(const gw_machine_spec *m, const gw_graph *g, const gw_op *o, const gw_cost *c,
                      int64_t rank) {
    const char *name = gw_op_def(g, o)->name;
    product p = gw_machine_product_of(g, o, rank);
    double one = 2 * p.rows * p.cols * p.k, products = one > 0 ? c->flops / one : 0;
    if (strcmp(name, "head_part_grad") == 0) products -= 1;
    bool whole = strcmp(name, "head_grad") == 0;
    double logits = p.rows * p.cols * m->model->logit_bytes * (whole ? 1 : 0.5);
    double bytes = pass_seconds(m, c->bytes_read + c->bytes_written);
    if (products <= 0) return bytes;
    double each = gw_machine_product_seconds(m, p.t, p.rows, p.cols, p.k, 1) + m->model->launch_s;
    return fmax(products * each + pass_seconds(m, logits), bytes);
}

/* Does the layer of o multiply in eight bits? The rewrite that makes it so leaves experts alone,
 * where engines quantise them as they do the rest. */
static bool among_eight_bits(const gw_graph *g, const gw_op *o) {
    enum { LAYER = 256 };
    const gw_op *first = g->ops.items, *end = first + g->ops.count;
    const gw_op *from = o - first > LAYER ? o - LAYER : first;
    const gw_op *to = end - o > LAYER ? o + LAYER : end;
    for (const gw_op *x = from; x < to; x++)
        if (gw_str_starts(gw_op_def(g, x)->name, "fp8_matmul")) return true;
    return false;
}

static double experts_op(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                         const gw_cost *c, int64_t rank) {
    const gw_type *w = NULL;
    for (int k = 0; k < (int)o->nin && !w; k++) {
        const gw_type *t = gw_op_in(g, o, k) == GW_NONE ? NULL : gw_type_of(g, gw_op_in(g, o, k));
        if (t && t->ndim == 3 && strcmp(t->dims[0].name, "e") == 0) w = t;
    }
    if (!w) return pass_seconds(m, c->bytes_read + c->bytes_written);
    double e = (double)gw_type_local_dim(w, 0, &g->mesh, rank);
    double f = (double)gw_type_local_dim(w, 1, &g->mesh, rank);
    double d = (double)gw_type_local_dim(w, 2, &g->mesh, rank);
    bool back = strstr(gw_op_def(g, o)->name, "grad") != NULL;
    /* Up, gate, down; the program computes two of them a second time instead of keeping them. */
    double products = back ? 6 : 3, rows = c->flops / (2 * (back ? 8 : 3) * f * d);
    double bytes = (double)gw_dtype_bits((gw_dtype)w->dtype) / 8;
    bool eight = among_eight_bits(g, o);
    gw_dtype t = eight ? GW_F8E4M3 : (gw_dtype)w->dtype;
    double s = products * gw_machine_product_seconds(m, t, rows / e, f, d, e);
    /* One kernel a product and expert (gate and up are one), and one an operand to be quantised. */
    double kernels = e * ((back ? 4 : 2) + (eight ? 2 : 0));
    /* A token that came is read once, written for each of its experts here, and back again. */
    double moved = 2 + 2 * gw_machine_rows_part(g, o);
    double passes = rows * (moved * d + (back ? 5 : 3) * f) * bytes;
    if (eight) passes += rows * (back ? d + 2 * f : d + f) * m->model->quantise_bytes;
    s = fmax(s, pass_seconds(m, c->bytes_read + c->bytes_written));
    return s + pass_seconds(m, passes) + kernels * m->model->launch_s;
}

/* ---- the rest ---- */

/* Views, marks and what is a part of a neighbour. */
static bool is_free(const gw_graph *g, const gw_op *o) {
    static const char *const names[] = {"blank", "carry", "commit", "redo",  "record",
                                        "tick",  "slice", "place",  "split", "keep_one"};
    const char *name = gw_op_def(g, o)->name;
    if (any_of(name, names, GW_COUNT(names))) return true;
    if (strcmp(name, "fp8_dequant") == 0) return true;
    if (strcmp(name, "fp8_quant") == 0 && o->phase == GW_PHASE_F) return true;
    if (strcmp(name, "dropout") == 0 && o->phase == GW_PHASE_F) return summed_by(g, o) != NULL;
    if (strcmp(name, "add") != 0 && strcmp(name, "addn") != 0) return false;
    for (int k = 0; k < (int)o->nin; k++)
        if (!sums_product(g, o, k)) return false;
    return o->phase != GW_PHASE_F;
}

/* Keys alone, or a stated part of the roofline: nothing else is known. */
static double roofline(const gw_machine_spec *m, gw_dtype t, const gw_cost *c) {
    double peak = gw_machine_flops(m, t), bytes = c->bytes_read + c->bytes_written;
    double work = peak > 0 ? c->flops / peak : 0;
    double move = m->memory_bytes_per_s > 0 ? bytes / m->memory_bytes_per_s : 0;
    if (m->mfu > 0) move /= m->mfu;
    return fmax(work, move);
}

static double alone(const gw_machine_spec *m, const gw_graph *g, const gw_op *o, int64_t rank) {
    const char *name = gw_op_def(g, o)->name;
    gw_cost c = {0};
    if (m->timings)
        return gw_timings_op_seconds(m->timings, g, o, rank, (int)gw_mesh_ranks(&g->mesh));
    gw_op_def(g, o)->cost(g, o, &c);
    double bytes = c.bytes_read + c.bytes_written;
    if (gw_op_is_copy(g, o)) return m->host_bytes_per_s > 0 ? bytes / 2 / m->host_bytes_per_s : 0;
    gw_vid in = o->nin ? gw_op_in(g, o, 0) : GW_NONE;
    gw_dtype t = in == GW_NONE ? GW_F32 : (gw_dtype)gw_type_of(g, in)->dtype;
    if (!m->model || m->mfu > 0)
        return roofline(m, gw_str_starts(name, "fp8_matmul") ? t : GW_BF16, &c);
    if (is_free(g, o)) return 0;
    if (is_product(g, o)) return product_op(m, g, o, rank, bytes);
    if (gw_str_starts(name, "attention")) return attention_op(m, g, o, &c);
    if (gw_str_starts(name, "experts")) return experts_op(m, g, o, &c, rank);
    if (gw_str_starts(name, "head")) {
        bool products =
            c.flops > 0 && strcmp(name, "head_merge") != 0 && strcmp(name, "head_loss") != 0;
        if (products) return head_op(m, g, o, &c, rank);
    }
    if (gw_str_starts(name, "conv2d")) {
        double peak = gw_machine_flops(m, t) * m->model->product_efficiency;
        return fmax(peak > 0 ? c.flops / peak : 0, pass_seconds(m, bytes)) + m->model->launch_s;
    }
    return pass_seconds(m, bytes) + m->model->launch_s;
}

double gw_machine_largest(double n) {
    if (n < 2) return 0;
    double l = sqrt(2 * log(n));
    return fmax(0, l - (log(log(n)) + log(4 * M_PI)) / (2 * l));
}

double gw_machine_op_seconds(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                             int64_t rank) {
    double s = alone(m, g, o, rank);
    if (!m->model || m->timings || m->mfu > 0 || gw_op_is_copy(g, o)) return s;
    return s * (1 + m->model->spread * gw_machine_largest((double)gw_mesh_ranks(&g->mesh)));
}

double gw_machine_ready(const gw_machine_spec *m, gw_coll_kind kind, gw_stream stream) {
    bool pieces = kind == GW_COLL_ALL_GATHER || kind == GW_COLL_REDUCE_SCATTER;
    return m->model && pieces && stream == GW_STREAM_TP ? 1 - m->model->tp_beside : 1;
}

double gw_machine_overlap(const gw_machine_spec *m) { return m->model ? m->model->overlap : 1; }

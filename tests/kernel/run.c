// SPDX-License-Identifier: Apache-2.0
// One op, once by its reference and once by a kernel.
//
// Tolerances. The reference reads inputs exactly, sums in float64 and rounds once. A kernel may sum
// in float32 and rounds once, so the two differ by a rounding step of the output's dtype (2^-8 for
// bf16, 2^-11 for f16: a step up may meet a step down, hence twice that), and by what a float32 sum
// of n terms loses, about sqrt(n) 2^-24 of the terms' size. Terms cancel, so errors are measured
// against |value| + rms of the tensor.
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "ops/ops.h" /* gw_ops_table */
#include "ops/ref.h" /* gw_ref_get */

int64_t value_bytes(const gw_graph *g, gw_vid v) {
    const gw_type *t = gw_type_of(g, v);
    return gw_type_elems(t) * gw_dtype_bits((gw_dtype)t->dtype) / 8;
}

static void *fresh(int64_t bytes) {
    void *p = aligned_alloc(64, (size_t)((bytes + 127) / 64 * 64));
    CHECK(p);
    memset(p, 0xff, (size_t)bytes); /* NaN in every float dtype */
    return p;
}

void values_init(values *v, const gw_case *c) {
    v->c = c;
    v->data = calloc((size_t)c->g.values.count, sizeof *v->data);
    for (int i = 0; i < c->nleaves; i++) {
        gw_vid id = c->leaves[i].v;
        v->data[id] = fresh(value_bytes(&c->g, id));
        gw_case_fill_leaf(c, i, v->data[id]);
    }
}

void values_release(values *v) {
    for (int64_t i = 0; i < v->c->g.values.count; i++) free(v->data[i]);
    free(v->data);
}

static void *data_of(void *user, gw_vid v) { return ((void **)user)[v]; }

/* Which input's bytes output i takes over, or GW_NONE. */
static gw_vid takes_over(const gw_graph *g, const gw_op *o, int i, run_mode mode) {
    gw_vid out = gw_op_out(g, o, i), tie = g->values.items[out].tie;
    if (tie != GW_NONE || mode == RUN_APART || i > 0) return tie;
    for (int j = 0; j < o->nin; j++) {
        gw_vid in = gw_op_in(g, o, j);
        if (in == GW_NONE) continue;
        if (gw_type_of(g, in)->dtype == gw_type_of(g, out)->dtype &&
            value_bytes(g, in) == value_bytes(g, out))
            return in;
    }
    return GW_NONE;
}

/* A map of pointers for one run: outputs fresh, taken-over inputs moved into them. */
static void **own_map(const values *v, const gw_op *o, run_mode mode, void *out[]) {
    const gw_graph *g = &v->c->g;
    size_t bytes = (size_t)g->values.count * sizeof(void *);
    void **map = malloc(bytes);
    memcpy(map, v->data, bytes);
    for (int i = 0; i < o->nout; i++) {
        gw_vid id = gw_op_out(g, o, i), from = takes_over(g, o, i, mode);
        out[i] = fresh(value_bytes(g, id));
        map[id] = out[i];
        if (from == GW_NONE) continue;
        memcpy(out[i], v->data[from], (size_t)value_bytes(g, id));
        map[from] = out[i];
    }
    return map;
}

static void refill(const values *v, const gw_op *o, run_mode mode, void *out[]) {
    const gw_graph *g = &v->c->g;
    for (int i = 0; i < o->nout; i++) {
        gw_vid from = takes_over(g, o, i, mode);
        size_t bytes = (size_t)value_bytes(g, gw_op_out(g, o, i));
        if (from == GW_NONE)
            memset(out[i], 0xff, bytes);
        else
            memcpy(out[i], v->data[from], bytes);
    }
}

static uint64_t sum_of(const void *p, int64_t n) {
    uint64_t h = 1469598103934665603u;
    for (int64_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

static uint64_t sum_inputs(const values *v, const gw_op *o) {
    uint64_t h = 0;
    for (int i = 0; i < o->nin; i++) {
        gw_vid in = gw_op_in(&v->c->g, o, i);
        if (in != GW_NONE) h = h * 31 + sum_of(v->data[in], value_bytes(&v->c->g, in));
    }
    return h;
}

#define GUARD 256

static void run_in(const values *v, const gw_op *o, const gw_kernel *k, int threads, run_mode mode,
                   void *out[]) {
    const gw_graph *g = &v->c->g;
    gw_machine m = gw_machine_this(threads);
    gw_tensor in[32], outs[GW_MAX_OUT];
    void **map = own_map(v, o, mode, out);
    gw_kargs a = {.threads = threads, .work_bytes = k->workspace(g, o, &m)};
    CHECK(a.work_bytes >= 0 && o->nin <= 32);
    gw_kargs_bind(&a, g, o, in, outs, data_of, map, 0);
    uint8_t *work = fresh(a.work_bytes + GUARD);
    memset(work + a.work_bytes, 0x5a, GUARD);
    a.work = work;
    gw_arena arena = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    void *state = NULL;
    CHECK_OK(k->prepare(&a, &arena, &state, &dg), &dg);
    uint64_t before = sum_inputs(v, o), first[GW_MAX_OUT];
    int64_t allocations = gw_mem_count();
    CHECK_OK(k->launch(state, &a, &dg), &dg);
    for (int i = 0; i < o->nout; i++) first[i] = sum_of(out[i], value_bytes(g, gw_op_out(g, o, i)));
    refill(v, o, mode, out);
    CHECK_OK(k->launch(state, &a, &dg), &dg);
    if (k != &gw_kernel_reference) CHECK_EQ(gw_mem_count(), allocations);
    for (int i = 0; i < o->nout; i++)
        CHECK_MSG(first[i] == sum_of(out[i], value_bytes(g, gw_op_out(g, o, i))),
                  "%s of %s differs between launches", v->c->name, k->name);
    CHECK_MSG(before == sum_inputs(v, o), "%s of %s writes an input", v->c->name, k->name);
    for (int i = 0; i < GUARD; i++)
        CHECK_MSG(work[a.work_bytes + i] == 0x5a, "%s of %s writes %d bytes behind its workspace",
                  v->c->name, k->name, i + 1);
    k->release(state);
    gw_arena_release(&arena);
    gw_diags_release(&dg);
    free(work);
    free(map);
}

/* A map of pointers with every operand of `o` in fresh memory; out[] as own_map. */
static void **moved_map(const values *v, const gw_op *o, void *out[]) {
    const gw_graph *g = &v->c->g;
    void **map = own_map(v, o, RUN_APART, out);
    for (int i = 0; i < o->nin; i++) {
        gw_vid in = gw_op_in(g, o, i);
        if (in == GW_NONE || map[in] != v->data[in]) continue; /* taken over, or twice an input */
        map[in] = fresh(value_bytes(g, in));
        memcpy(map[in], v->data[in], (size_t)value_bytes(g, in));
    }
    return map;
}

static void free_moved(const values *v, const gw_op *o, void **map, void *out[]) {
    const gw_graph *g = &v->c->g;
    for (int i = 0; i < o->nin; i++) {
        gw_vid in = gw_op_in(g, o, i);
        bool ours = in != GW_NONE && map[in] != v->data[in];
        for (int j = 0; j < o->nout; j++) ours = ours && map[in] != out[j];
        if (ours) free(map[in]);
        if (ours) map[in] = v->data[in];
    }
    for (int i = 0; i < o->nout; i++) free(out[i]);
    free(map);
}

/* What a launch left, as one number, and NaN over all that it touched. */
static uint64_t take_sums(const values *v, const gw_op *o, void **map, void *out[]) {
    const gw_graph *g = &v->c->g;
    uint64_t h = 0;
    for (int i = 0; i < o->nout; i++)
        h = h * 31 + sum_of(out[i], value_bytes(g, gw_op_out(g, o, i)));
    for (int i = 0; i < o->nin; i++) {
        gw_vid in = gw_op_in(g, o, i);
        if (in != GW_NONE) memset(map[in], 0xff, (size_t)value_bytes(g, in));
    }
    for (int i = 0; i < o->nout; i++)
        memset(out[i], 0xff, (size_t)value_bytes(g, gw_op_out(g, o, i)));
    return h;
}

void check_moved(const values *v, gw_oid id, const gw_kernel *k, int threads) {
    const gw_graph *g = &v->c->g;
    const gw_op *o = &g->ops.items[id];
    gw_machine m = gw_machine_this(threads);
    gw_tensor in[32], outs[GW_MAX_OUT];
    void *out[2][GW_MAX_OUT], **map[2];
    uint64_t sum[2];
    for (int i = 0; i < 2; i++) map[i] = moved_map(v, o, out[i]);
    gw_kargs a = {.threads = threads, .work_bytes = k->workspace(g, o, &m)};
    gw_kargs_bind(&a, g, o, in, outs, data_of, map[0], 0);
    a.work = fresh(a.work_bytes);
    gw_arena arena = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    void *state = NULL;
    CHECK_OK(k->prepare(&a, &arena, &state, &dg), &dg);
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < o->nin; j++)
            in[j].data = gw_op_in(g, o, j) == GW_NONE ? NULL : map[i][gw_op_in(g, o, j)];
        for (int j = 0; j < o->nout; j++) outs[j].data = out[i][j];
        int64_t allocations = gw_mem_count();
        CHECK_OK(k->launch(state, &a, &dg), &dg);
        if (k != &gw_kernel_reference) CHECK_EQ(gw_mem_count(), allocations);
        if (i == 1) check_outputs(v, id, k, out[1]);
        sum[i] = take_sums(v, o, map[i], out[i]);
    }
    CHECK_MSG(sum[0] == sum[1], "%s of %s differs where its tensors lie elsewhere", v->c->name,
              k->name);
    k->release(state);
    gw_arena_release(&arena);
    gw_diags_release(&dg);
    free(a.work);
    for (int i = 0; i < 2; i++) free_moved(v, o, map[i], out[i]);
}

void run_kernel(const values *v, gw_oid o, const gw_kernel *k, int threads, run_mode mode,
                void *out[]) {
    run_in(v, &v->c->g.ops.items[o], k, threads, mode, out);
}

void outputs_free(const values *v, gw_oid o, void *out[]) {
    for (int i = 0; i < v->c->g.ops.items[o].nout; i++) free(out[i]);
}

void values_reference(values *v, gw_oid o) {
    const gw_op *op = &v->c->g.ops.items[o];
    void *out[GW_MAX_OUT];
    run_in(v, op, &gw_kernel_reference, 1, RUN_APART, out);
    for (int i = 0; i < op->nout; i++) v->data[gw_op_out(&v->c->g, op, i)] = out[i];
}

static double tolerance(gw_dtype t) {
    return (t == GW_BF16 ? 0x1p-7 : t == GW_F16 ? 0x1p-10 : 0) + 2e-5;
}

/* Products of bf16 values may round an operand of their own making (p, ds, e) to bf16 before a sum:
 * an element may be off by so much of the largest term in it, however small their sum is. */
static double inner_tolerance(gw_dtype inputs) { return inputs == GW_BF16 ? 0x1p-8 : 0; }

void check_outputs(const values *v, gw_oid o, const gw_kernel *k, void *const out[]) {
    const gw_graph *g = &v->c->g;
    const gw_op *op = &g->ops.items[o];
    for (int i = 0; i < op->nout; i++) {
        gw_vid id = gw_op_out(g, op, i);
        const gw_type *t = gw_type_of(g, id);
        gw_dtype dtype = (gw_dtype)t->dtype;
        int64_t n = gw_type_elems(t);
        if (!gw_dtype_is_float(dtype)) {
            CHECK(memcmp(out[i], v->data[id], (size_t)value_bytes(g, id)) == 0);
            continue;
        }
        gw_tensor got = {.data = out[i], .dtype = dtype, .elems = n};
        gw_tensor want = {.data = v->data[id], .dtype = dtype, .elems = n};
        double squares = 0, most = 0, tol = tolerance(dtype), inner = inner_tolerance(v->c->dtype);
        for (int64_t e = 0; e < n; e++) {
            squares += pow(gw_ref_get(&want, e), 2);
            most = fmax(most, fabs(gw_ref_get(&want, e)));
        }
        double rms = n ? sqrt(squares / (double)n) : 0;
        for (int64_t e = 0; e < n; e++) {
            double x = gw_ref_get(&got, e), y = gw_ref_get(&want, e);
            bool same = x == y || (isnan(x) && isnan(y));
            double bound = tol * (fabs(y) + rms) + inner * most;
            CHECK_MSG(same || fabs(x - y) <= bound,
                      "%s, %s in %s, output %d element %lld of %lld: %.9g, reference %.9g", k->name,
                      v->c->name, gw_dtype_name(v->c->dtype), i, (long long)e, (long long)n, x, y);
        }
    }
}

void check_kernel(values *v, gw_oid o, const gw_kernel *k, int threads) {
    const gw_op *op = &v->c->g.ops.items[o];
    void *out[GW_MAX_OUT];
    run_kernel(v, o, k, threads, RUN_APART, out);
    check_outputs(v, o, k, out);
    outputs_free(v, o, out);
    if (!(gw_op_def(&v->c->g, op)->traits & GW_OP_INPLACE)) return;
    run_kernel(v, o, k, threads, RUN_IN_PLACE, out);
    check_outputs(v, o, k, out);
    outputs_free(v, o, out);
}

void own_cases(gw_cases *cs, const char *op, gw_dtype dtype, gw_diags *dg) {
    *cs = (gw_cases){.dtype = dtype, .table = gw_ops_table(), .dg = dg, .def = op_named(op)};
}

const gw_opdef *op_named(const char *name) {
    const gw_optable *t = gw_ops_table();
    int i = gw_optable_find(t, name);
    CHECK_MSG(i >= 0, "no op %s", name);
    return t->ops[i];
}

const gw_kernel *kernel_named(const char *name) {
    for (int i = 0; gw_kernel_at(i); i++)
        if (strcmp(gw_kernel_at(i)->name, name) == 0) return gw_kernel_at(i);
    test_fail(__FILE__, __LINE__, "no kernel %s", name);
}

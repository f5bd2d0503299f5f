// SPDX-License-Identifier: Apache-2.0
// Conversions of placements without traffic: slice, keep_one, place.
//
// All three are copies of runs that are consecutive in both local tensors (ops/conversion.h says
// which), so they move bytes and know no dtype. A run is as long as the dimensions behind the
// innermost cut one times its local length: a cut of `s` copies a row of heads at a time, and a cut
// of the first dimension one block. What lies outside the runs is zeroed by place; keep_one copies
// all or clears all, and does nothing on the rank that keeps when both are the same bytes.
//
// A flat slice is one run, or nothing to do where it is a view of its part in the whole.
//
// One thread: there is one read and one write a byte, and a thread already comes near what a core
// gets from memory.
#include <string.h>

#include "kernel/kernel.h"  /* gw_kernel */
#include "ops/conversion.h" /* gw_parts, gw_rank_keeps */

static const gw_type *type_in(const gw_kargs *k) {
    return gw_type_of(k->g, gw_op_in(k->g, k->op, 0));
}

static const gw_type *type_out(const gw_kargs *k) {
    return gw_type_of(k->g, gw_op_out(k->g, k->op, 0));
}

static int64_t size_of(const gw_tensor *t) { return gw_dtype_bits(t->dtype) / 8; }

static gw_status slice_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t size = size_of(&k->out[0]), fine, coarse, count;
    const char *src = k->in[0].data;
    char *dst = k->out[0].data;
    if (type_out(k)->flat) {
        if (!type_in(k)->flat) src += gw_type_flat_first(type_out(k), &k->g->mesh, k->rank) * size;
        if (dst != src && k->out[0].elems > 0) memcpy(dst, src, (size_t)(k->out[0].elems * size));
        return GW_OK;
    }
    gw_parts p;
    gw_parts_begin(&p, type_out(k), type_in(k), &k->g->mesh, k->rank);
    while (gw_parts_next(&p, &fine, &coarse, &count))
        memcpy(dst + fine * size, src + coarse * size, (size_t)(count * size));
    return GW_OK;
}

static gw_status place_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    int64_t size = size_of(&k->out[0]), fine, coarse, count;
    const char *src = k->in[0].data;
    char *dst = k->out[0].data;
    gw_parts p;
    if (k->out[0].elems > 0) memset(dst, 0, (size_t)(k->out[0].elems * size));
    gw_parts_begin(&p, type_in(k), type_out(k), &k->g->mesh, k->rank);
    while (gw_parts_next(&p, &fine, &coarse, &count))
        memcpy(dst + coarse * size, src + fine * size, (size_t)(count * size));
    return GW_OK;
}

static gw_status keep_one_launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state, (void)dg;
    size_t bytes = (size_t)(k->out[0].elems * size_of(&k->out[0]));
    uint32_t axes = type_out(k)->psum & ~type_in(k)->psum;
    if (bytes == 0) return GW_OK;
    if (!gw_rank_keeps(&k->g->mesh, axes, k->rank))
        memset(k->out[0].data, 0, bytes);
    else if (k->out[0].data != k->in[0].data)
        memcpy(k->out[0].data, k->in[0].data, bytes);
    return GW_OK;
}

static bool along_dims(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return !gw_type_of(g, gw_op_in(g, o, 0))->flat && !gw_type_of(g, gw_op_out(g, o, 0))->flat;
}

static bool anything(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return true;
}

static int64_t no_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return 0;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)k, (void)a, (void)dg;
    *state = NULL;
    return GW_OK;
}

static void release(void *state) { (void)state; }

#define COPY_KERNEL(id, kernel_name, op_name, what, can, run)                                      \
    const gw_kernel gw_kernel_cpu_##id = {.name = kernel_name,                                     \
                                          .op = op_name,                                           \
                                          .note = what,                                            \
                                          .supports = can,                                         \
                                          .workspace = no_workspace,                               \
                                          .prepare = prepare,                                      \
                                          .launch = run,                                           \
                                          .release = release}

COPY_KERNEL(slice, "cpu-slice", "slice", "copies of runs, or nothing for a view", anything,
            slice_launch);
COPY_KERNEL(place, "cpu-place", "place", "zeros and copies of runs", along_dims, place_launch);
COPY_KERNEL(keep_one, "cpu-keep-one", "keep_one", "a copy, zeros, or nothing", anything,
            keep_one_launch);

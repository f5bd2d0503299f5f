// SPDX-License-Identifier: Apache-2.0
// The tests' interpreter (eval.h). Separate memory for every value makes a forward graph safe to
// run again and again, which finite differences need; ties are honoured by copying.
#include "eval.h"

#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "ops/ref.h"    /* gw_ref_get, gw_ref_set */

void eval_init(eval *e, const gw_graph *g) { *e = (eval){.g = g}; }

void eval_release(eval *e) { gw_arena_release(&e->arena); }

static int64_t bytes_of(const gw_graph *g, gw_vid v) {
    const gw_type *t = gw_type_of(g, v);
    return gw_type_elems(t) * gw_dtype_bits((gw_dtype)t->dtype) / 8;
}

void *eval_data(eval *e, gw_vid v) {
    if ((int64_t)v >= e->capacity) {
        int64_t n = e->g->values.count * 2;
        void **more = gw_arena_new(&e->arena, void *, n);
        if (e->capacity) memcpy(more, e->data, (size_t)e->capacity * sizeof *more);
        e->data = more;
        e->capacity = n;
    }
    if (!e->data[v]) e->data[v] = gw_arena_alloc_aligned(&e->arena, bytes_of(e->g, v) + 1, 64);
    return e->data[v];
}

gw_tensor eval_tensor(eval *e, gw_vid v) {
    if (v == GW_NONE) return (gw_tensor){0};
    const gw_type *t = gw_type_of(e->g, v);
    gw_tensor r = {.data = eval_data(e, v),
                   .dtype = (gw_dtype)t->dtype,
                   .ndim = t->ndim,
                   .elems = gw_type_elems(t)};
    for (int i = 0; i < t->ndim; i++) r.dims[i] = t->dims[i].size;
    return r;
}

double eval_get(eval *e, gw_vid v, int64_t i) {
    gw_tensor t = eval_tensor(e, v);
    return gw_dtype_is_float(t.dtype) ? gw_ref_get(&t, i) : (double)gw_ref_int(&t, i);
}

void eval_set(eval *e, gw_vid v, int64_t i, double x) {
    gw_tensor t = eval_tensor(e, v);
    if (t.dtype == GW_I32)
        ((int32_t *)t.data)[i] = (int32_t)x;
    else if (t.dtype == GW_I64)
        ((int64_t *)t.data)[i] = (int64_t)x;
    else
        gw_ref_set(&t, i, x);
}

void eval_fill(eval *e, gw_vid v, const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) eval_set(e, v, i, x[i]);
}

void eval_leaves(eval *e, const gw_case *c) {
    for (int i = 0; i < c->nleaves; i++) gw_case_fill_leaf(c, i, eval_data(e, c->leaves[i].v));
}

static void launch(eval *e, const gw_op *o, bool in_place) {
    gw_tensor in[64], out[GW_MAX_OUT];
    GW_ASSERT(o->nin <= 64);
    for (int i = 0; i < o->nin; i++) in[i] = eval_tensor(e, gw_op_in(e->g, o, i));
    for (int i = 0; i < o->nout; i++) {
        gw_vid v = gw_op_out(e->g, o, i), tie = e->g->values.items[v].tie;
        out[i] = eval_tensor(e, v);
        if (tie == GW_NONE) continue;
        if (in_place)
            out[i].data = eval_data(e, tie);
        else
            memcpy(out[i].data, eval_data(e, tie), (size_t)bytes_of(e->g, v));
    }
    gw_kargs k = {
        .g = e->g, .op = o, .nin = o->nin, .nout = o->nout, .in = in, .out = out, .threads = 1};
    gw_op_def(e->g, o)->reference(&k);
}

void eval_run(eval *e, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) launch(e, &e->g->ops.items[i], false);
}

void eval_in_place(eval *e, gw_oid op) { launch(e, &e->g->ops.items[op], true); }

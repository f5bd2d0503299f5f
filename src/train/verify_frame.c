// SPDX-License-Identifier: Apache-2.0
// The end of a step alone: gradients in, norm out.
//
// If every gradient is 1, the norm is the square root of the number of parameters, in every layout.
// A part that is counted twice because it lies on two ranks, a shard that one rank alone sees, a
// tied weight taken for two: each gives another number. To ask the layout's own program, the ops
// from which the norm follows are cut out of it, just before the values that are the finished
// gradients; these become inputs with the placement they have, are written, and the rest is placed
// and run as any program is. Of a pipeline each rank has the gradients of its stages, and its sum
// of squares is sent on: these messages are part of the end. A tied weight's is the gradient that
// was exchanged.
#include <math.h>
#include <string.h>

#include "ops/ops.h"           /* gw_ops_table */
#include "train/ranks.h"       /* gw_ranks_me */
#include "train/verify_side.h" /* this module's contract */
#include "train/weights.h"     /* gw_floats_to */

static bool is_gradient(const gw_graph *g, gw_vid v) {
    return strncmp(gw_graph_str(g, g->values.items[v].name), "grad:", 5) == 0;
}

static gw_vid named(const gw_graph *g, const char *name) {
    for (int64_t v = 0; v < g->values.count; v++)
        if (g->values.items[v].def != GW_NONE &&
            strcmp(gw_graph_str(g, g->values.items[v].name), name) == 0)
            return (gw_vid)v;
    return GW_NONE;
}

/* What is made of gradients: only that is sent to other stages for the norm. */
static void mark_made(const gw_graph *g, bool *made) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        bool any = false;
        for (int k = 0; k < (int)o->nin; k++) {
            gw_vid v = gw_op_in(g, o, k);
            any = any || (v != GW_NONE && (made[v] || is_gradient(g, v)));
        }
        for (int k = 0; any && k < (int)o->nout; k++) made[gw_op_out(g, o, k)] = true;
    }
}

/* Ops that the norm needs, gradients given; that of other ranks too. */
static void mark(const gw_graph *g, const bool *made, bool *needed, bool *keep) {
    needed[named(g, "norm")] = true;
    for (int64_t i = g->ops.count; i-- > 0;) {
        const gw_op *o = &g->ops.items[i];
        keep[i] = gw_op_is(g, o, "send") && made[gw_op_in(g, o, 0)];
        for (int k = 0; k < (int)o->nout; k++) {
            gw_vid v = gw_op_out(g, o, k);
            if (needed[v] && !is_gradient(g, v)) keep[i] = true;
        }
        for (int k = 0; keep[i] && k < (int)o->nin; k++)
            if (gw_op_in(g, o, k) != GW_NONE) needed[gw_op_in(g, o, k)] = true;
    }
}

static void cut(gw_graph *dst, const gw_graph *src, gw_arena *a) {
    bool *needed = gw_arena_new(a, bool, src->values.count + 1);
    bool *made = gw_arena_new(a, bool, src->values.count + 1);
    bool *keep = gw_arena_new(a, bool, src->ops.count + 1);
    gw_vid *map = gw_arena_new(a, gw_vid, src->values.count + 1);
    mark_made(src, made);
    mark(src, made, needed, keep);
    gw_graph_init(dst, src->table);
    dst->mesh = src->mesh;
    dst->micro_batches = 1;
    for (int64_t v = 0; v < src->values.count; v++) {
        const gw_value *x = &src->values.items[v];
        if (!needed[v]) continue;
        if (is_gradient(src, (gw_vid)v))
            map[v] = gw_graph_leaf(dst, GW_ROLE_INPUT, GW_CAUSE_GRADIENTS, GW_RATE_STEP, x->type,
                                   gw_graph_str(src, x->name));
        else if (x->def == GW_NONE)
            map[v] = gw_graph_copy_leaf(dst, src, (gw_vid)v);
    }
    for (int64_t i = 0; i < src->ops.count; i++)
        if (keep[i]) (void)gw_graph_copy_op(dst, src, (gw_oid)i, map);
}

/* The end of the layout's program, placed. */
static gw_status compile(const gw_setup *s, gw_graph *out, gw_diags *dg) {
    gw_graph whole, end, placed;
    gw_compile_report report = {0};
    gw_arena mem = {0};
    GW_TRY(gw_setup_program(s, true, "bucket", &whole, NULL, dg));
    cut(&end, &whole, &mem);
    gw_arena_release(&mem);
    gw_graph_release(&whole);
    gw_status st = gw_pass_place(&placed, &end, &s->train, &report, dg);
    gw_graph_release(&end);
    GW_TRY(st);
    st = gw_pass_check(out, &placed, &s->train, &report, dg);
    gw_graph_release(&placed);
    return st;
}

static void fill(gw_exec *x, float value) {
    const gw_graph *g = gw_exec_graph(x);
    for (int64_t v = 0; v < g->values.count; v++) {
        if (g->values.items[v].def != GW_NONE || !is_gradient(g, (gw_vid)v)) continue;
        gw_tensor t = gw_exec_tensor(x, (gw_vid)v);
        for (int64_t i = 0; i < t.elems; i++)
            gw_floats_to(t.dtype, &value, 1, (char *)t.data + i * gw_dtype_bits(t.dtype) / 8);
    }
}

/* The one that is furthest from `want`. */
static gw_status worst_of_all(gw_comm *comm, double want, double *norm, gw_diags *dg) {
    int64_t n = gw_ranks_count(comm);
    if (!comm) return GW_OK;
    double *all = gw_mem_zalloc(sizeof *all * (size_t)n);
    gw_status st = gw_comm_all_gather(comm, norm, sizeof *norm, all, "norms", dg);
    for (int64_t r = 0; r < n; r++)
        if (!(fabs(all[r] - want) <= fabs(*norm - want))) *norm = all[r];
    gw_mem_free(all);
    return st;
}

gw_status gw_verify_ones(const gw_setup *s, gw_comm *comm, float value, double *norm,
                         int64_t *params, gw_diags *dg) {
    gw_graph g;
    gw_exec *x = NULL;
    float one = 1, result = 0;
    gw_status st = compile(s, &g, dg);
    GW_TRY(gw_exec_agree(comm, st, NULL, "compiling the end of the step", dg));
    if (comm) gw_comm_set_mesh(comm, &g.mesh);
    gw_exec_opts o = {.machine = s->machine, .comm = comm, .rank = gw_ranks_me(comm)};
    o.offload_dir = s->rf->offload.dir;
    st = gw_exec_new(&x, &g, &o, dg);
    gw_graph_release(&g);
    GW_TRY(gw_exec_agree(comm, st, NULL, "opening the end of the step", dg));
    fill(x, value);
    *params = 0;
    for (int i = 0; i < s->nparams; i++) *params += gw_type_elems(&s->params[i].type);
    (void)gw_exec_write(x, "inv_scale", &one, sizeof one);
    st = gw_exec_run(x, GW_SEG_PRE, dg);
    (void)gw_exec_read(x, "norm", &result, sizeof result);
    *norm = (double)result;
    gw_exec_free(x);
    GW_TRY(st);
    return worst_of_all(comm, (double)value * sqrt((double)*params), norm, dg);
}

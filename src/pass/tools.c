// SPDX-License-Identifier: Apache-2.0
// What several passes need: pruning dead ops, the bounds of the micro-batch loop, lives of values.
//
// A life is an interval of op indices, for the root of a chain of ties (the owner of the bytes).
// Eight rules stretch it beyond definition and last use: parameters and states live always, and so
// do boxes of channels, which another rank reads when it likes; what a pipeline carries from piece
// to piece has all its places through the whole loop (ir/flow.h); a named result lives to the end
// of the step, where the host reads it; what the host writes lives from the start of the step (or
// of the loop, for a micro-batch's inputs); a step-rate value that the loop touches lives to the
// end of the loop, because the next iteration touches it again; what a bucket of collectives
// touches lives from its first op to its last, because they run as one; and what a copy between
// memory kinds reads lives to gw_graph_copy_end, because it runs beside the ops that follow.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

int gw_scope_layer(const char *scope) {
    if (strncmp(scope, "layer ", 6) != 0) return 0;
    int n = 6;
    while (scope[n] >= '0' && scope[n] <= '9') n++;
    return n > 6 && (scope[n] == 0 || scope[n] == '/') ? n : 0;
}

static void mark_live(const gw_graph *g, bool *keep) {
    bool *used = gw_mem_zalloc((size_t)g->values.count + 1);
    for (int64_t i = 0; i < g->states.count; i++) used[g->states.items[i].end] = true;
    for (int64_t i = g->ops.count; i-- > 0;) {
        const gw_op *o = &g->ops.items[i];
        for (int k = 0; k < (int)o->nout; k++) {
            gw_vid v = gw_op_out(g, o, k);
            if (used[v] || g->values.items[v].name != 0) keep[i] = true;
        }
        for (int k = 0; keep[i] && k < (int)o->nin; k++)
            if (gw_op_in(g, o, k) != GW_NONE) used[gw_op_in(g, o, k)] = true;
    }
    gw_mem_free(used);
}

void gw_graph_prune(gw_graph *dst, const gw_graph *src, const bool *keep, gw_vid *map) {
    bool *own_keep = NULL;
    gw_vid *own_map = NULL;
    if (!keep) {
        own_keep = gw_mem_zalloc((size_t)src->ops.count + 1);
        mark_live(src, own_keep);
        keep = own_keep;
    }
    if (!map) map = own_map = gw_mem_alloc(sizeof(gw_vid) * ((size_t)src->values.count + 1));
    for (int64_t i = 0; i < src->values.count; i++) map[i] = GW_NONE;
    gw_graph_begin(dst, src);
    for (int64_t i = 0; i < src->values.count; i++)
        if (src->values.items[i].def == GW_NONE) map[i] = gw_graph_copy_leaf(dst, src, (gw_vid)i);
    for (int64_t i = 0; i < src->ops.count; i++)
        if (keep[i]) (void)gw_graph_copy_op(dst, src, (gw_oid)i, map);
    for (int64_t i = 0; i < src->states.count; i++) {
        const gw_state *s = &src->states.items[i];
        gw_graph_add_state(dst, map[s->start], map[s->end]);
    }
    gw_mem_free(own_keep);
    gw_mem_free(own_map);
}

void gw_op_set_accumulator(gw_graph *g, gw_oid o, int out, gw_vid acc) {
    const gw_op *op = &g->ops.items[o];
    int in = gw_op_accumulator(g, op, out);
    GW_ASSERT(in >= 0);
    g->edges.items[op->in + (uint32_t)in] = acc;
    gw_value *v = &g->values.items[gw_op_out(g, op, out)];
    v->tie = acc;
    v->cause = g->values.items[acc].cause;
    v->mem = g->values.items[acc].mem;
}

static void extend(gw_lives *l, gw_vid root, int32_t at) {
    if (at < l->first[root]) l->first[root] = at;
    if (at > l->last[root]) l->last[root] = at;
}

static void extend_op(gw_lives *l, const gw_graph *g, gw_oid i, int32_t at) {
    const gw_op *o = &g->ops.items[i];
    for (int k = 0; k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE) extend(l, gw_value_root(g, gw_op_in(g, o, k)), at);
    for (int k = 0; k < (int)o->nout; k++) extend(l, gw_value_root(g, gw_op_out(g, o, k)), at);
    if (o->work != GW_NONE) extend(l, o->work, at);
}

static void extend_by_rules(gw_lives *l, const gw_graph *g, gw_vid v, int32_t loop_first,
                            int32_t loop_last) {
    const gw_value *x = &g->values.items[v];
    gw_vid root = gw_value_root(g, v);
    int32_t n = (int32_t)g->ops.count;
    if (l->persistent[root]) {
        extend(l, root, 0);
        extend(l, root, n);
        return;
    }
    if (x->def == GW_NONE && x->role == GW_ROLE_WORK) {
        extend(l, root, 0);
        extend(l, root, n);
    }
    if (l->flow.class_of[v]) {
        extend(l, root, loop_first);
        extend(l, root, loop_last);
    }
    if (x->def == GW_NONE && x->role == GW_ROLE_INPUT)
        extend(l, root, x->rate == GW_RATE_MB ? GW_MIN(loop_first, n) : 0);
    if (x->name != 0 && x->def != GW_NONE && x->role != GW_ROLE_GRAD) extend(l, root, n);
    gw_oid def = g->values.items[root].def;
    bool last_only = def != GW_NONE && (int32_t)def > loop_first; /* a step op inside the loop */
    bool step_root = g->values.items[root].rate == GW_RATE_STEP && !last_only;
    if (step_root && g->micro_batches != 1 && l->last[root] >= loop_first &&
        l->first[root] <= loop_last && l->last[root] < loop_last)
        l->last[root] = loop_last;
}

static void find_peak(gw_lives *l, const gw_graph *g) {
    int64_t n = g->ops.count + 2;
    int64_t *delta = gw_mem_zalloc(sizeof(int64_t) * (size_t)n);
    int64_t base = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        if (l->bytes[v] == 0 || g->values.items[v].mem != GW_MEM_DEVICE) continue;
        if (l->persistent[v]) {
            base += l->bytes[v];
            continue;
        }
        delta[l->first[v]] += l->bytes[v];
        delta[l->last[v] + 1] -= l->bytes[v];
    }
    int64_t live = base;
    l->peak_bytes = base;
    l->peak_op = 0;
    for (int64_t i = 0; i < n; i++) {
        live += delta[i];
        if (live > l->peak_bytes) {
            l->peak_bytes = live;
            l->peak_op = (gw_oid)GW_MIN(i, g->ops.count - 1);
        }
    }
    gw_mem_free(delta);
}

void gw_lives_of(gw_lives *l, const gw_graph *g, gw_arena *a) {
    int64_t nv = g->values.count;
    memset(l, 0, sizeof *l);
    gw_flow_of(&l->flow, g, a);
    l->bytes = gw_arena_new(a, int64_t, nv);
    l->first = gw_arena_new(a, int32_t, nv);
    l->last = gw_arena_new(a, int32_t, nv);
    l->persistent = gw_arena_new(a, bool, nv);
    for (int64_t v = 0; v < nv; v++) {
        l->first[v] = INT32_MAX;
        l->last[v] = -1;
        const gw_value *x = &g->values.items[v];
        l->persistent[v] =
            x->def == GW_NONE && (x->role == GW_ROLE_PARAM || x->role == GW_ROLE_STATE);
    }
    for (int64_t i = 0; i < g->ops.count; i++) {
        int64_t first = i, last = i;
        if (gw_op_def(g, &g->ops.items[i])->traits & GW_OP_COLLECTIVE)
            gw_graph_bucket(g, (gw_oid)i, &first, &last);
        extend_op(l, g, (gw_oid)i, (int32_t)i);
        if (g->ops.items[i].stream == GW_STREAM_COPY)
            extend(l, gw_value_root(g, gw_op_in(g, &g->ops.items[i], 0)),
                   (int32_t)gw_graph_copy_end(g, (gw_oid)i));
        if (first == last) continue;
        extend_op(l, g, (gw_oid)i, (int32_t)first);
        extend_op(l, g, (gw_oid)i, (int32_t)last);
    }
    gw_oid lf, le;
    gw_graph_loop(g, &lf, &le);
    for (int64_t v = 0; v < nv; v++) extend_by_rules(l, g, (gw_vid)v, (int32_t)lf, (int32_t)le - 1);
    for (int64_t v = 0; v < nv; v++)
        if (l->flow.block_of[v] == (gw_vid)v && gw_value_root(g, (gw_vid)v) == (gw_vid)v &&
            l->last[v] >= 0)
            l->bytes[v] = gw_flow_bytes(&l->flow, g, (gw_vid)v);
    find_peak(l, g);
}

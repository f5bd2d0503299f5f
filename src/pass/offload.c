// SPDX-License-Identifier: Apache-2.0
// Fetches ahead of use: while an op works on one tensor, the next is on its way from host or disk.
//
// The shard pass puts a fetch right before the op that reads it, where nothing could overlap. Here
// the fetches of one reader (a bucket of gathers counts as one) move before the reader that
// precedes it in the same part of the step (before the loop, in one piece of it, after it). With
// the optimizer's ops that is double buffering:
//
//   fetch 0, fetch 1, op 0, store 0, fetch 2, op 1, store 1, fetch 3, op 2, ...
//
// On the device stand the tensor that is worked on, the one that arrives, and the one that leaves;
// what leaves gives its bytes up where the next run of copies begins (gw_graph_copy_end). A fetch
// never moves later, nor before its source is made. Nothing else changes its place.
#include "pass/pass.h"

typedef struct hoister {
    const gw_graph *src;
    gw_oid loop_first, loop_end;
    gw_oid *target;   /* [ops]: of a fetch, the op it moves before; GW_NONE: stays */
    gw_oid *first_at; /* [ops]: fetches that move before it, a list through next */
    gw_oid *next;     /* [ops] */
    bool *done;       /* [ops] */
} hoister;

static bool is_fetch(const gw_graph *g, gw_oid i) {
    const gw_op *o = &g->ops.items[i];
    return o->stream == GW_STREAM_COPY && g->values.items[gw_op_out(g, o, 0)].mem == GW_MEM_DEVICE;
}

static int64_t part_of_step(const hoister *h, gw_oid i) {
    const gw_op *o = &h->src->ops.items[i];
    if (i < h->loop_first || i >= h->loop_end) return i < h->loop_first ? -2 : -1;
    return (int64_t)o->stage * GW_PART_COUNT + o->part; /* a piece of the loop */
}

/* The first op that reads what each fetch makes; of a bucket, its first op. */
static void find_readers(const hoister *h, gw_oid *reader) {
    const gw_graph *g = h->src;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        int64_t first = i, last = i;
        gw_graph_bucket(g, i, &first, &last);
        for (int k = 0; k < (int)o->nin; k++) {
            gw_vid v = gw_op_in(g, o, k);
            gw_oid d = v == GW_NONE ? GW_NONE : g->values.items[v].def;
            if (d == GW_NONE || !is_fetch(g, d) || reader[d] != GW_NONE) continue;
            reader[d] = (gw_oid)first > d ? (gw_oid)first : i;
        }
    }
}

static void find_targets(hoister *h, gw_arena *mem) {
    const gw_graph *g = h->src;
    gw_oid n = (gw_oid)g->ops.count;
    gw_oid *reader = gw_arena_new(mem, gw_oid, n + 1), *before = gw_arena_new(mem, gw_oid, n + 1);
    bool *reads = gw_arena_new(mem, bool, n + 1);
    for (gw_oid i = 0; i < n; i++) reader[i] = h->target[i] = h->first_at[i] = GW_NONE;
    find_readers(h, reader);
    for (gw_oid i = 0; i < n; i++)
        if (reader[i] != GW_NONE) reads[reader[i]] = true;
    gw_oid latest = GW_NONE;
    for (gw_oid i = 0; i < n; i++) {
        before[i] = latest;
        if (reads[i]) latest = i;
    }
    for (gw_oid i = n; i-- > 0;) { /* backwards, so that lists come out in program order */
        gw_oid to = reader[i] == GW_NONE ? GW_NONE : before[reader[i]];
        if (to == GW_NONE || to > i || part_of_step(h, to) != part_of_step(h, i)) continue;
        gw_oid made = g->values.items[gw_op_in(g, &g->ops.items[i], 0)].def;
        if (made != GW_NONE && made >= to) continue;
        h->target[i] = to;
        h->next[i] = h->first_at[to];
        h->first_at[to] = i;
    }
}

static void emit_all(hoister *h, gw_graph *dst, gw_vid *map) {
    const gw_graph *g = h->src;
    for (int64_t v = 0; v < g->values.count; v++)
        map[v] = g->values.items[v].def == GW_NONE && g->values.items[v].role != GW_ROLE_WORK
                     ? gw_graph_copy_leaf(dst, g, (gw_vid)v)
                     : GW_NONE;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        for (gw_oid f = h->first_at[i]; f != GW_NONE; f = h->next[f]) {
            (void)gw_graph_copy_op(dst, g, f, map);
            h->done[f] = true;
        }
        if (!h->done[i]) (void)gw_graph_copy_op(dst, g, i, map);
    }
    for (int64_t i = 0; i < g->states.count; i++)
        gw_graph_add_state(dst, map[g->states.items[i].start], map[g->states.items[i].end]);
}

gw_status gw_pass_offload(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                          gw_compile_report *report, gw_diags *dg) {
    (void)report;
    (void)dg;
    const gw_layout_opts *l = &opts->layout;
    if (!l->optimizer_mem && !l->master_mem && !l->parameter_mem) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_arena mem = {0};
    hoister h = {.src = src};
    int64_t n = src->ops.count + 1;
    gw_graph_begin(dst, src);
    gw_graph_loop(src, &h.loop_first, &h.loop_end);
    h.target = gw_arena_new(&mem, gw_oid, n);
    h.first_at = gw_arena_new(&mem, gw_oid, n);
    h.next = gw_arena_new(&mem, gw_oid, n);
    h.done = gw_arena_new(&mem, bool, n);
    find_targets(&h, &mem);
    emit_all(&h, dst, gw_arena_new(&mem, gw_vid, src->values.count));
    gw_arena_release(&mem);
    return GW_OK;
}

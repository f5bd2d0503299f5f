// SPDX-License-Identifier: Apache-2.0
// Lives to offsets: every value gets its bytes in one arena per memory kind.
//
// Three steps. First, ops that may work in place take over the bytes of an input that dies with
// them (a tie, so that everything later sees it). Second, each op's workspace becomes a value that
// lives during the op only. Third, packing: parameters and states stand at the bottom in the order
// of their declaration, the same in every program of a model; the rest is laid out by lives, each
// value at the lowest offset where no value alive at the same time stands. The order in which
// values are laid decides how tight it gets, so a few orders are tried (by size, by size times
// life, by start) and the best is kept. Finding the optimum is NP-hard (dynamic storage
// allocation); the report gives the distance to the lower bound, the largest sum of live bytes.
//
// What a pipeline carries from one piece of a stage to another (ir/flow.h) is one block with a
// place for each micro-batch under way; stages of one rank share the blocks of what is alike in
// them.
//
// Host and disk have arenas of their own, packed in the same way. Places on disk are whole pages,
// so that a file opened without the page cache can be read and written at them.
//
// On one stream program order is the happens-before order, so lives are intervals of op indices;
// gw_lives_of stretches those of values that another stream touches.
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

/* ---- in place ---- */

static bool may_take(const gw_graph *g, const gw_lives *l, gw_oid o, gw_vid in, gw_vid out) {
    const gw_value *x = &g->values.items[in], *y = &g->values.items[out];
    gw_vid root = gw_value_root(g, in);
    if (l->flow.class_of[root] != 0) return false; /* other micro-batches wait in its places */
    if (l->persistent[root] || l->last[root] != (int32_t)o) return false;
    if (x->rate != y->rate || x->mem != y->mem || y->tie != GW_NONE) return false;
    if (g->values.items[root].rate != y->rate) return false;
    if (x->def == GW_NONE && x->role != GW_ROLE_INPUT) return false;
    return gw_type_local_bytes(&x->type, &g->mesh, 0) == gw_type_local_bytes(&y->type, &g->mesh, 0);
}

static void tie_in_place(gw_graph *g, gw_arena *mem) {
    gw_lives l;
    gw_lives_of(&l, g, mem);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_INPLACE)) continue;
        gw_vid out = gw_op_out(g, o, 0);
        gw_vid out_root = out;
        for (int k = 0; k < (int)o->nin; k++) {
            gw_vid in = gw_op_in(g, o, k);
            if (in == GW_NONE || !may_take(g, &l, i, in, out)) continue;
            gw_vid root = gw_value_root(g, in);
            g->values.items[out].tie = in;
            if (l.last[out_root] > l.last[root]) l.last[root] = l.last[out_root];
            break;
        }
    }
}

/* ---- workspace ---- */

static void add_workspaces(gw_graph *g, const gw_compile_opts *opts) {
    if (!opts->workspace) return;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        int64_t bytes = opts->workspace(g, &g->ops.items[i], opts->workspace_user);
        GW_ASSERT(bytes >= 0);
        if (bytes == 0) continue;
        gw_type t = gw_type_scalar(GW_U8);
        gw_type_add(&t, "n", bytes);
        bool wire = gw_op_def(g, &g->ops.items[i])->traits & GW_OP_COLLECTIVE;
        bool box = gw_op_is(g, &g->ops.items[i], "send"); /* others read it when they like */
        gw_vid v = gw_graph_leaf(g, GW_ROLE_WORK,
                                 wire || box ? GW_CAUSE_COMMUNICATION : GW_CAUSE_WORKSPACE,
                                 box ? GW_RATE_STEP : (gw_rate)g->ops.items[i].rate, t, "");
        if (!box) g->values.items[v].def = i;
        g->ops.items[i].work = v;
    }
}

/* ---- packing ---- */

typedef struct block {
    gw_vid v;
    int64_t bytes, offset;
    int32_t first, last;
    double key;
} block;

static int by_key_down(const void *a, const void *b) {
    const block *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->v < y->v ? -1 : x->v > y->v;
}

/* Placed blocks in the order of their offsets: a list through `next`, so that the lowest gap is
 * found walking up and a new block is linked in where the walk ended. */
enum { END = -1 };

/* Gives block i the lowest offset >= base where nothing alive at the same time stands, and links it
 * in. */
static void put_lowest(block *blocks, int32_t *next, int32_t *head, int32_t i, int64_t base) {
    block *b = &blocks[i];
    int64_t at = base;
    int32_t *link = head; /* where the list goes on with offsets above `at` */
    for (int32_t j = *head; j != END; j = next[j]) {
        const block *o = &blocks[j];
        if (o->offset >= at + b->bytes) break;
        if (o->first <= b->last && o->last >= b->first && o->offset + o->bytes > at)
            at = o->offset + o->bytes;
    }
    while (*link != END && blocks[*link].offset <= at) link = &next[*link];
    b->offset = at;
    next[i] = *link;
    *link = i;
}

static int64_t pack(block *blocks, int64_t n, int64_t base) {
    gw_arena mem = {0};
    int32_t *next = gw_arena_new(&mem, int32_t, n + 1), head = END;
    qsort(blocks, (size_t)n, sizeof *blocks, by_key_down);
    int64_t top = base;
    for (int64_t i = 0; i < n; i++) {
        put_lowest(blocks, next, &head, (int32_t)i, base);
        top = GW_MAX(top, blocks[i].offset + blocks[i].bytes);
    }
    gw_arena_release(&mem);
    return top;
}

/* The orders that are tried. */
static double key_of(const block *b, int order) {
    double size = (double)b->bytes, life = (double)(b->last - b->first + 1);
    switch (order) {
    case 0: return size;
    case 1: return size * life;
    case 2: return life;
    case 3: return -(double)b->first;
    default: return size * size * life;
    }
}
enum { ORDERS = 5 };

/* Bytes that a value takes in its arena. */
enum { ALIGN = 64, DISK_ALIGN = 4096 };
static int64_t room_of(const gw_graph *g, const gw_lives *l, gw_vid v) {
    int64_t align = g->values.items[v].mem == GW_MEM_DISK ? DISK_ALIGN : ALIGN;
    return (gw_flow_bytes(&l->flow, g, v) + align - 1) / align * align;
}

static int64_t place_persistent(gw_graph *g, const gw_lives *l, gw_mem mem, bool params) {
    int64_t at = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        gw_value *x = &g->values.items[v];
        if (!l->persistent[v] || x->mem != mem || (x->role == GW_ROLE_PARAM && !params)) continue;
        x->offset = at;
        at += room_of(g, l, (gw_vid)v);
    }
    return at;
}

static int64_t place_rest(gw_graph *g, const gw_lives *l, gw_mem mem, int64_t base, int64_t lower,
                          gw_arena *a) {
    block *blocks = gw_arena_new(a, block, g->values.count);
    int64_t n = 0;
    for (int64_t v = 0; v < g->values.count; v++)
        if (l->bytes[v] > 0 && !l->persistent[v] && g->values.items[v].mem == mem)
            blocks[n++] =
                (block){(gw_vid)v, room_of(g, l, (gw_vid)v), 0, l->first[v], l->last[v], 0};
    int64_t best = INT64_MAX;
    for (int order = 0; order < ORDERS; order++) {
        for (int64_t i = 0; i < n; i++) blocks[i].key = key_of(&blocks[i], order);
        int64_t top = pack(blocks, n, base);
        if (top >= best) continue;
        best = top;
        for (int64_t i = 0; i < n; i++) g->values.items[blocks[i].v].offset = blocks[i].offset;
        if (best <= lower) break;
    }
    return n ? best : base;
}

/* Ties, and other stages' values in the same places. */
static void spread_to_ties(gw_graph *g, const gw_lives *l) {
    for (int64_t v = 0; v < g->values.count; v++) {
        gw_vid owner = l->flow.block_of[gw_value_root(g, (gw_vid)v)];
        g->values.items[v].offset = g->values.items[owner].offset;
    }
}

gw_status gw_pass_place(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)dg;
    gw_graph_dup(dst, src);
    gw_arena mem = {0};
    tie_in_place(dst, &mem);
    add_workspaces(dst, opts);
    gw_lives l;
    gw_lives_of(&l, dst, &mem);
    if (!opts->train) /* another program owns the parameters */
        for (int64_t v = 0; v < dst->values.count; v++)
            if (dst->values.items[v].role == GW_ROLE_PARAM && l.persistent[v]) {
                if (dst->values.items[v].mem == GW_MEM_DEVICE) l.peak_bytes -= l.bytes[v];
                l.bytes[v] = 0;
            }
    gw_place_report r = {0};
    r.lower_bound_bytes = l.peak_bytes;
    r.peak_op = l.peak_op;
    for (int m = 0; m < GW_MEM_COUNT; m++) {
        int64_t base = place_persistent(dst, &l, (gw_mem)m, opts->train);
        if (m == GW_MEM_DEVICE) r.persistent_bytes = base;
        int64_t lower = m == GW_MEM_DEVICE ? r.lower_bound_bytes : 0;
        r.arena_bytes[m] = place_rest(dst, &l, (gw_mem)m, base, lower, &mem);
    }
    if (gw_compile_keeps(opts)) r.kept_bytes = r.persistent_bytes;
    r.arena_bytes[GW_MEM_DEVICE] += r.kept_bytes;
    r.lower_bound_bytes += r.kept_bytes;
    spread_to_ties(dst, &l);
    memcpy(dst->arena_bytes, r.arena_bytes, sizeof dst->arena_bytes);
    report->place = r;
    gw_arena_release(&mem);
    return GW_OK;
}

// SPDX-License-Identifier: Apache-2.0
// Do values that are alive at once share bytes?
//
// A chain of ties is one piece of memory, its root's; its life is an interval of op numbers, ends
// included, because an op must not write a result over an input it still reads (unless tied):
//   - parameters, states and whatever a state names live through the whole program;
//   - an input is written before the step (rate step) or before each iteration (rate mb), and
//     lives from there to its last reader;
//   - a result lives from its op to its last reader; a named one, which the executor reads, to the
//     end of the step or of the iteration (a gradient's name is for people, and keeps nothing);
//   - step-rate memory that the micro-batch loop touches must last through the whole loop, if that
//     runs more than once: what one iteration reads, the next reads again. Accumulators are the
//     case where the loop writes too;
//   - micro-batch-rate memory lives within one iteration;
//   - workspace lives during its op; one that no op defines (the box of a channel, which another
//     rank reads when it likes) lives always;
//   - what a pipeline carries from piece to piece has all its places through the whole loop, and
//     where stages share them the first value stands for all;
//   - a bucket is one collective: what its ops touch lives from its first op to its last;
//   - copies run beside the other ops: what one reads lives to gw_graph_copy_end.
//
// The sweep goes through intervals by their beginnings and keeps the live ones in order of offset.
// While no two overlap, a new one can only collide with its neighbours in that order, so two
// look-ups decide. The order is a bit set over the ranks of a sort by offset, with summary levels
// of 64-bit words: insert, erase, next and previous each take a few word operations.
#include "ir/verify_memory.h"

#include <stdlib.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_MIN, GW_MAX */
#include "base/str.h"      /* gw_str */
#include "ir/flow.h"       /* gw_flow_of */
#include "ir/text.h"       /* gw_op_print */

/* ---- an ordered set of small numbers ---- */

#define LEVELS 6

typedef struct order {
    uint64_t *words[LEVELS];
} order;

static void order_init(order *s, gw_arena *a, int64_t n) {
    for (int l = 0; l < LEVELS; l++) {
        n = n / 64 + 1;
        s->words[l] = gw_arena_new(a, uint64_t, n);
    }
}

static void order_add(order *s, int64_t i) {
    for (int l = 0; l < LEVELS; l++, i /= 64) s->words[l][i / 64] |= UINT64_C(1) << (i % 64);
}

static void order_remove(order *s, int64_t i) {
    for (int l = 0; l < LEVELS; l++, i /= 64) {
        s->words[l][i / 64] &= ~(UINT64_C(1) << (i % 64));
        if (s->words[l][i / 64]) return;
    }
}

/* The member after i, or -1. */
static int64_t order_next(const order *s, int64_t i) {
    for (int l = 0; l < LEVELS; l++, i /= 64) {
        uint64_t above = i % 64 == 63 ? 0 : s->words[l][i / 64] & (~UINT64_C(0) << (i % 64 + 1));
        if (!above) continue;
        i = i / 64 * 64 + __builtin_ctzll(above);
        while (l-- > 0) i = i * 64 + __builtin_ctzll(s->words[l][i]);
        return i;
    }
    return -1;
}

/* The member before i, or -1. */
static int64_t order_previous(const order *s, int64_t i) {
    for (int l = 0; l < LEVELS; l++, i /= 64) {
        uint64_t below = s->words[l][i / 64] & ((UINT64_C(1) << (i % 64)) - 1);
        if (!below) continue;
        i = i / 64 * 64 + 63 - __builtin_clzll(below);
        while (l-- > 0) i = i * 64 + 63 - __builtin_clzll(s->words[l][i]);
        return i;
    }
    return -1;
}

/* ---- lifetimes ---- */

typedef struct piece {
    int64_t start, end; /* op numbers, ends included */
    int64_t offset, bytes;
    int64_t rank; /* in the order by offset */
    gw_vid root;
    bool in_loop;
} piece;

typedef struct lives {
    const gw_graph *g;
    gw_flow flow;
    int64_t nops, loop_first, loop_last; /* loop_first > loop_last: no loop */
    gw_vid *root;                        /* by value */
    piece *pieces;                       /* by root value */
} lives;

static void find_loop(lives *l) {
    gw_oid first = 0, end = 0;
    gw_graph_loop(l->g, &first, &end);
    l->loop_first = first;
    l->loop_last = (int64_t)end - 1;
    if (first == end) l->loop_last = -1;
}

static void touch(lives *l, gw_vid v, int64_t o) {
    piece *p = &l->pieces[l->root[v]];
    p->start = GW_MIN(p->start, o);
    p->end = GW_MAX(p->end, o);
    p->in_loop |= o >= l->loop_first && o <= l->loop_last;
}

static void live_always(lives *l, gw_vid v) {
    l->pieces[l->root[v]].start = -1;
    l->pieces[l->root[v]].end = l->nops;
}

static void begin_leaf(lives *l, gw_vid v) {
    const gw_value *x = &l->g->values.items[v];
    if (x->role != GW_ROLE_INPUT) {
        live_always(l, v);
        return;
    }
    bool each_iteration = x->rate == GW_RATE_MB && l->loop_first <= l->loop_last;
    int64_t start = each_iteration ? l->loop_first : -1;
    l->pieces[v].start = start;
    l->pieces[v].end = start;
}

static void begin_values(lives *l) {
    const gw_graph *g = l->g;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        bool known = x->tie == GW_NONE || x->tie < v; /* ids mostly follow program order */
        if (!known)
            l->root[v] = gw_value_root(g, (gw_vid)v);
        else
            l->root[v] = x->tie == GW_NONE ? (gw_vid)v : l->root[x->tie];
        l->pieces[v] = (piece){.start = l->nops, .end = -1, .offset = x->offset, .root = (gw_vid)v};
        int32_t c = l->flow.class_of[v];
        if (x->tie == GW_NONE && l->flow.block_of[v] == (gw_vid)v)
            l->pieces[v].bytes = c ? gw_flow_bytes(&l->flow, g, (gw_vid)v)
                                   : gw_type_local_bytes(&x->type, &g->mesh, 0);
        if (x->def == GW_NONE) begin_leaf(l, (gw_vid)v);
        if (c && x->tie == GW_NONE) {
            l->pieces[v].start = l->loop_first;
            l->pieces[v].end = l->loop_last;
        }
    }
}

static void touch_op(lives *l, const gw_op *o, int64_t at) {
    for (int k = 0; k < o->nin; k++)
        if (gw_op_in(l->g, o, k) != GW_NONE) touch(l, gw_op_in(l->g, o, k), at);
    for (int k = 0; k < o->nout; k++) touch(l, gw_op_out(l->g, o, k), at);
    if (o->work != GW_NONE) touch(l, o->work, at);
}

static void touch_all(lives *l) {
    for (int64_t i = 0; i < l->nops; i++) {
        const gw_op *o = &l->g->ops.items[i];
        touch_op(l, o, i);
        if (o->stream == GW_STREAM_COPY)
            touch(l, gw_op_in(l->g, o, 0), gw_graph_copy_end(l->g, (gw_oid)i));
        int64_t first = i, last = i;
        gw_graph_bucket(l->g, (gw_oid)i, &first, &last);
        if (first == last) continue;
        touch_op(l, o, first);
        touch_op(l, o, last);
    }
}

/* Memory of a step op inside the loop, which runs in the last iteration alone. */
static bool born_in_loop(const lives *l, gw_vid root) {
    gw_oid def = l->g->values.items[root].def;
    return def != GW_NONE && def > l->loop_first && def <= l->loop_last;
}

static void extend(lives *l) {
    const gw_graph *g = l->g;
    for (int64_t i = 0; i < g->states.count; i++) live_always(l, g->states.items[i].start);
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        bool step = g->values.items[l->root[v]].rate == GW_RATE_STEP;
        piece *p = &l->pieces[l->root[v]];
        bool repeats = l->g->micro_batches != 1;
        bool result = x->name && x->def != GW_NONE && x->role != GW_ROLE_GRAD;
        if (result) p->end = GW_MAX(p->end, step ? l->nops : l->loop_last);
        bool last_only = born_in_loop(l, l->root[v]); /* no iteration reads it again */
        if (step && p->in_loop && repeats && !last_only) {
            p->end = GW_MAX(p->end, l->loop_last);
            p->start = GW_MIN(p->start, l->loop_first);
        }
    }
}

/* ---- the sweep ---- */

static int by_offset(const void *a, const void *b) {
    const piece *x = *(piece *const *)a, *y = *(piece *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

static int by_start(const void *a, const void *b) {
    const piece *x = *(piece *const *)a, *y = *(piece *const *)b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

static int by_end(const void *a, const void *b) {
    const piece *x = *(piece *const *)a, *y = *(piece *const *)b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->root < y->root ? -1 : x->root > y->root;
}

static void describe(const gw_graph *g, const piece *p, gw_str *out) {
    const gw_value *v = &g->values.items[p->root];
    gw_str_printf(out, "%%%u", p->root);
    if (v->name) gw_str_printf(out, " \"%s\"", gw_graph_str(g, v->name));
    gw_str_printf(out, " [%lld, %lld) during ops %lld to %lld", (long long)p->offset,
                  (long long)(p->offset + p->bytes), (long long)p->start, (long long)p->end);
}

static gw_status overlap(const gw_graph *g, const piece *a, const piece *b, gw_diags *dg) {
    gw_str x = {0}, y = {0};
    describe(g, a, &x);
    describe(g, b, &y);
    gw_diag *d =
        gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "program-overlap", (gw_where){0},
                    "values alive at once overlap in the %s arena: %s and %s",
                    gw_mem_name((gw_mem)g->values.items[a->root].mem), gw_str_c(&x), gw_str_c(&y));
    gw_str_clear(&x);
    if (g->values.items[b->root].def != GW_NONE) gw_op_print(g, g->values.items[b->root].def, &x);
    if (d && x.len) gw_diag_detail(dg, d, "%s", gw_str_c(&x));
    gw_str_release(&x);
    gw_str_release(&y);
    return GW_ERR_FORMAT;
}

static bool collide(const piece *a, const piece *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Sweeps n pieces of one arena. */
static gw_status sweep(const gw_graph *g, piece **all, int64_t n, gw_arena *a, gw_diags *dg) {
    piece **starts = gw_arena_dup(a, all, n * (int64_t)sizeof *all);
    piece **ends = gw_arena_dup(a, all, n * (int64_t)sizeof *all);
    qsort(all, (size_t)n, sizeof(piece *), by_offset);
    qsort(starts, (size_t)n, sizeof(piece *), by_start);
    qsort(ends, (size_t)n, sizeof(piece *), by_end);
    for (int64_t i = 0; i < n; i++) all[i]->rank = i;
    order live;
    order_init(&live, a, n);
    int64_t gone = 0;
    for (int64_t i = 0; i < n; i++) {
        piece *p = starts[i];
        while (gone < n && ends[gone]->end < p->start) order_remove(&live, ends[gone++]->rank);
        int64_t below = order_previous(&live, p->rank), above = order_next(&live, p->rank);
        if (below >= 0 && collide(all[below], p)) return overlap(g, all[below], p, dg);
        if (above >= 0 && collide(all[above], p)) return overlap(g, all[above], p, dg);
        order_add(&live, p->rank);
    }
    return GW_OK;
}

/* Every placed value inside its arena, at its root's offset. */
static gw_status check_offsets(const lives *l, gw_diags *dg) {
    const gw_graph *g = l->g;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->offset != g->values.items[l->root[v]].offset)
            return GW_FAIL(dg, GW_ERR_FORMAT, "program-tie-offset",
                           "value %%%lld is tied to %%%u but placed elsewhere", (long long)v,
                           l->root[v]);
        gw_vid block = l->flow.block_of[v];
        if (x->offset != g->values.items[block].offset)
            return GW_FAIL(dg, GW_ERR_FORMAT, "program-tie-offset",
                           "value %%%lld shares the places of %%%u but is placed elsewhere",
                           (long long)v, block);
        int64_t bytes = l->pieces[l->root[v]].bytes, arena = g->arena_bytes[x->mem];
        if (x->offset >= 0 && (bytes > arena || x->offset > arena - bytes))
            return GW_FAIL(dg, GW_ERR_FORMAT, "program-outside-arena",
                           "value %%%lld at %lld with %lld bytes ends outside the %s arena of %lld",
                           (long long)v, (long long)x->offset, (long long)bytes,
                           gw_mem_name((gw_mem)x->mem), (long long)arena);
    }
    return GW_OK;
}

static gw_status sweep_arenas(lives *l, gw_arena *a, gw_diags *dg) {
    const gw_graph *g = l->g;
    piece **of_mem = gw_arena_new(a, piece *, g->values.count);
    for (int mem = 0; mem < GW_MEM_COUNT; mem++) {
        int64_t n = 0;
        for (int64_t v = 0; v < g->values.count; v++) {
            piece *p = &l->pieces[v];
            bool placed = l->root[v] == v && p->offset >= 0 && p->bytes > 0 && p->end >= p->start;
            if (placed && g->values.items[v].mem == mem) of_mem[n++] = p;
        }
        if (n) GW_TRY(sweep(g, of_mem, n, a, dg));
    }
    return GW_OK;
}

gw_status gw_verify_memory(const gw_graph *g, gw_diags *dg) {
    bool placed = false;
    for (int64_t v = 0; v < g->values.count; v++) placed |= g->values.items[v].offset >= 0;
    if (!placed) return GW_OK;
    gw_arena a = {0};
    lives l = {.g = g, .nops = g->ops.count};
    l.root = gw_arena_new(&a, gw_vid, g->values.count);
    l.pieces = gw_arena_new(&a, piece, g->values.count);
    find_loop(&l);
    gw_flow_of(&l.flow, g, &a);
    begin_values(&l);
    touch_all(&l);
    extend(&l);
    gw_status s = check_offsets(&l, dg);
    if (s == GW_OK) s = sweep_arenas(&l, &a, dg);
    gw_arena_release(&a);
    return s;
}

// SPDX-License-Identifier: Apache-2.0
// The pieces of a loop, and the places of what lives from one piece to another.
//
// Pieces are found by walking the loop. For every piece of memory of the loop (the root of a chain
// of ties) the set of pieces that touch it is collected as bits; what one piece alone touches is
// not carried. Equal sets are one class: all its values are made and dropped at the same moments,
// so they share their places' numbers. Playing the actions once gives each micro-batch its place:
// the lowest that is free. So the number of places is the largest number of micro-batches under way
// between a class's first and last piece, which for 1F1B's activations is min(m, p - i).
//
// A rank with several stages would take too much so: a value of stage 0 has its most micro-batches
// under way while those behind it have not, or have no longer. So values of different stages are
// set side by side if they are alike: touched by the same kinds of pieces, of one length, in one
// memory. The first of a stage stands beside the first of another, the second beside the second;
// whatever a stage has more of stands alone. Those that unite the same stages in the same way are a
// pool, and a place is free in the whole pool or taken. What two stages touch (what one hands the
// next on the same rank) stays by itself, and so does what is written or read from outside by its
// name: inputs, results.
//
// Cost: values x 4 words and two sorts of what is carried, and the actions times the classes of
// their pieces.
#include "ir/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "ir/opdef.h"   /* gw_op */

enum { WORDS = GW_MAX_RANGES / 64 };

typedef struct set {
    uint64_t w[WORDS];
} set;

/* Classes that share their places: what touches any of them. */
typedef struct pool {
    set ranges;
    uint8_t first; /* the part that makes them; ALL: inputs */
    bool apart;    /* of values that share with none */
    int32_t places;
} pool;

typedef struct class {
    set ranges;
    int32_t first; /* -1: inputs */
    int32_t count; /* ranges in it */
    int32_t pool;
} class;

/* A carried value of one stage, as others may be like it. */
typedef struct item {
    uint32_t parts; /* that touch it: a bit each */
    uint8_t first;  /* as in a pool */
    uint8_t mem;
    int64_t stride;
    int64_t number; /* among the alike of its stage */
    int32_t stage;
    gw_vid v;
} item;

typedef struct maker {
    const gw_graph *g;
    gw_arena *a;
    gw_flow *f;
    gw_oid loop_first, loop_end;
    set *sets; /* [values], of roots */
    GW_VEC(class) classes;
    GW_VEC(pool) pools;
    bool *ran; /* [ranges][micro-batches] */
    char *why;
    int n;
} maker;

static bool fail(maker *k, const char *fmt, ...) GW_PRINTF(2, 3);
static bool fail(maker *k, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (k->why) vsnprintf(k->why, (size_t)k->n, fmt, ap);
    va_end(ap);
    return false;
}

static void add(set *s, int i) { s->w[i / 64] |= UINT64_C(1) << (i % 64); }
static bool has(const set *s, int i) { return s->w[i / 64] >> (i % 64) & 1; }

static int count_of(const set *s) {
    int n = 0;
    for (int i = 0; i < WORDS; i++) n += __builtin_popcountll(s->w[i]);
    return n;
}

/* ---- pieces ---- */

static bool find_ranges(maker *k) {
    const gw_graph *g = k->g;
    gw_flow *f = k->f;
    bool staged = g->actions.count > 0;
    f->ranges = gw_arena_new(k->a, gw_range, GW_MAX_RANGES + 1);
    f->range_of = gw_arena_new(k->a, int32_t, g->ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        f->range_of[i] = -1;
        bool in_loop = i >= k->loop_first && i < k->loop_end;
        if (o->part != GW_PART_ALL && (!in_loop || !staged))
            return fail(k, "op %u belongs to a piece of a stage, and there is none", i);
        if (!in_loop) continue;
        if (staged && (o->part == GW_PART_ALL || o->stage > INT16_MAX))
            return fail(k, "op %u of the loop belongs to no piece of a stage", i);
        gw_range *last = f->nranges ? &f->ranges[f->nranges - 1] : NULL;
        if (!last || last->stage != o->stage || last->part != o->part) {
            if (staged && gw_flow_range(f, o->stage, (gw_part)o->part) >= 0)
                return fail(k, "the ops of stage %d, part %s, do not stand together", o->stage,
                            gw_part_name((gw_part)o->part));
            if (staged || f->nranges == 0) {
                if (f->nranges == GW_MAX_RANGES) return fail(k, "too many pieces of stages");
                last = &f->ranges[f->nranges++];
                *last = (gw_range){staged ? (int16_t)o->stage : (int16_t)0, o->part, i, i + 1};
            }
        }
        last->end = i + 1;
        f->range_of[i] = f->nranges - 1;
    }
    return true;
}

/* ---- classes ---- */

static void touch(maker *k, gw_vid v, gw_oid o) {
    if (v == GW_NONE || k->f->range_of[o] < 0) return;
    add(&k->sets[gw_value_root(k->g, v)], k->f->range_of[o]);
}

static void find_touched(maker *k) {
    const gw_graph *g = k->g;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int j = 0; j < (int)o->nin; j++) touch(k, gw_op_in(g, o, j), i);
        for (int j = 0; j < (int)o->nout; j++) touch(k, gw_op_out(g, o, j), i);
    }
}

/* The part whose run makes a value; ALL: an input. */
static uint8_t first_part(const maker *k, gw_vid root) {
    const gw_value *x = &k->g->values.items[root];
    int32_t r = x->def == GW_NONE ? -1 : k->f->range_of[x->def];
    return r < 0 ? GW_PART_ALL : k->f->ranges[r].part;
}

static int32_t first_range(const maker *k, gw_vid root) {
    const gw_value *x = &k->g->values.items[root];
    return x->def == GW_NONE ? -1 : k->f->range_of[x->def];
}

static int32_t pool_like(maker *k, const set *s, uint8_t first, bool apart) {
    for (int64_t i = k->pools.count; i-- > 0;) {
        const pool *x = &k->pools.items[i];
        if (x->first == first && x->apart == apart && memcmp(&x->ranges, s, sizeof *s) == 0)
            return (int32_t)i;
    }
    gw_vec_push(&k->pools, ((pool){*s, first, apart, 0}));
    return (int32_t)k->pools.count - 1;
}

/* Puts v into the class of its pieces and pool. */
static void classify(maker *k, gw_vid v, int32_t in) {
    const set *s = &k->sets[v];
    int32_t first = first_range(k, v);
    int64_t c = k->classes.count;
    for (; c > 0; c--) {
        const class *x = &k->classes.items[c - 1];
        if (x->pool == in && x->first == first && memcmp(&x->ranges, s, sizeof *s) == 0) break;
    }
    if (c == 0) {
        gw_vec_push(&k->classes, ((class){*s, first, count_of(s), in}));
        c = k->classes.count;
    }
    k->f->class_of[v] = (int32_t)c;
}

/* False: it has a block of its own, since several stages touch it, or the executor's user does. */
static bool item_of(const maker *k, gw_vid v, item *out) {
    const gw_value *x = &k->g->values.items[v];
    if (x->def == GW_NONE || (x->name != 0 && x->role != GW_ROLE_GRAD)) return false;
    *out = (item){.first = first_part(k, v),
                  .mem = x->mem,
                  .stride = gw_flow_stride(k->g, v),
                  .stage = -1,
                  .v = v};
    for (int r = 0; r < k->f->nranges; r++) {
        const gw_range *p = &k->f->ranges[r];
        if (!has(&k->sets[v], r)) continue;
        if (out->stage >= 0 && out->stage != p->stage) return false;
        out->stage = p->stage;
        out->parts |= UINT32_C(1) << p->part;
    }
    return true;
}

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_kind(const item *x, const item *y) {
    int c = compare(x->parts, y->parts);
    if (!c) c = compare(x->first, y->first);
    if (!c) c = compare(x->mem, y->mem);
    return c ? c : compare(x->stride, y->stride);
}

static int by_stage(const void *a, const void *b) {
    const item *x = a, *y = b;
    int c = by_kind(x, y);
    if (!c) c = compare(x->stage, y->stage);
    return c ? c : compare(x->v, y->v);
}

static int by_number(const void *a, const void *b) {
    const item *x = a, *y = b;
    int c = by_kind(x, y);
    if (!c) c = compare(x->number, y->number);
    return c ? c : compare(x->stage, y->stage);
}

/* Items of one number, one a stage, share a block: the first one's. */
static void share(maker *k, const item *items, int64_t n) {
    set all = {0};
    for (int64_t i = 0; i < n; i++)
        for (int w = 0; w < WORDS; w++) all.w[w] |= k->sets[items[i].v].w[w];
    int32_t in = pool_like(k, &all, items->first, false);
    for (int64_t i = 0; i < n; i++) {
        classify(k, items[i].v, in);
        k->f->block_of[items[i].v] = items[0].v;
    }
}

static void share_all(maker *k, item *items, int64_t n) {
    qsort(items, (size_t)n, sizeof *items, by_stage);
    for (int64_t i = 1; i < n; i++) {
        bool same = by_kind(&items[i], &items[i - 1]) == 0 && items[i].stage == items[i - 1].stage;
        items[i].number = same ? items[i - 1].number + 1 : 0;
    }
    qsort(items, (size_t)n, sizeof *items, by_number);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n; end++)
            if (by_kind(&items[end], &items[i]) != 0 || items[end].number != items[i].number) break;
        share(k, items + i, end - i);
    }
}

static bool is_carried(const maker *k, gw_vid v) {
    const gw_value *x = &k->g->values.items[v];
    if (x->tie != GW_NONE || x->rate != GW_RATE_MB || x->role == GW_ROLE_WORK) return false;
    int n = count_of(&k->sets[v]);
    return n > 1 || (x->def == GW_NONE && x->role == GW_ROLE_INPUT && n > 0);
}

static void find_classes(maker *k) {
    const gw_graph *g = k->g;
    gw_vid n = (gw_vid)g->values.count;
    k->f->class_of = gw_arena_new(k->a, int32_t, n + 1);
    k->f->block_of = gw_arena_new(k->a, gw_vid, n + 1);
    k->sets = gw_arena_new(k->a, set, n + 1);
    for (gw_vid v = 0; v < n; v++) k->f->block_of[v] = v;
    if (g->actions.count > 0) {
        find_touched(k);
        item *items = gw_arena_new(k->a, item, n + 1);
        int64_t count = 0;
        for (gw_vid v = 0; v < n; v++) {
            if (!is_carried(k, v)) continue;
            if (item_of(k, v, &items[count]))
                count++;
            else
                classify(k, v, pool_like(k, &k->sets[v], first_part(k, v), true));
        }
        share_all(k, items, count);
    }
    for (gw_vid v = 0; v < n; v++) {
        gw_vid root = gw_value_root(g, v);
        k->f->class_of[v] = k->f->class_of[root];
        k->f->block_of[v] = k->f->block_of[root];
    }
}

/* ---- places ---- */

typedef struct table {
    int32_t *left;   /* [class * m + micro]: ranges still to run */
    int64_t words;   /* of a pool's set: all its classes may have every micro-batch under way */
    uint64_t **used; /* [pool]: places that are taken */
} table;

static int32_t take(table *t, pool *in, uint64_t *used) {
    for (int64_t w = 0; w < t->words; w++) {
        if (used[w] == ~UINT64_C(0)) continue;
        int bit = __builtin_ctzll(~used[w]);
        used[w] |= UINT64_C(1) << bit;
        in->places = GW_MAX(in->places, (int32_t)(w * 64 + bit + 1));
        return (int32_t)(w * 64 + bit);
    }
    gw_panic("more micro-batches are under way than there are");
}

static bool run_range(maker *k, table *t, int r, gw_action a, bool begins) {
    gw_flow *f = k->f;
    int64_t m = f->micro_batches;
    char text[GW_ACTION_TEXT];
    for (int32_t c = 1; c <= f->nclasses; c++) {
        const class *x = &k->classes.items[c - 1];
        if (!has(&x->ranges, r)) continue;
        int64_t at = c * m + a.micro;
        uint64_t *used = t->used[x->pool];
        if (!begins) {
            if (--t->left[at] == 0)
                used[f->place[at] / 64] &= ~(UINT64_C(1) << (f->place[at] % 64));
            continue;
        }
        if (f->place[at] >= 0) continue;
        if (x->first >= 0 && x->first != r)
            return fail(k, "%s runs before what it reads is made", gw_action_print(a, text));
        f->place[at] = take(t, &k->pools.items[x->pool], used);
    }
    return true;
}

static bool play_action(maker *k, table *t, gw_action a) {
    int ranges[2];
    char text[GW_ACTION_TEXT];
    int n = gw_flow_ranges_of(k->f, a, ranges);
    if (!gw_act_has_micro((gw_act)a.act)) return true;
    if (a.micro < 0 || a.micro >= k->f->micro_batches)
        return fail(k, "%s is of no micro-batch of the step", gw_action_print(a, text));
    for (int i = 0; i < n; i++) {
        bool *ran = &k->ran[(int64_t)ranges[i] * k->f->micro_batches + a.micro];
        if (*ran) return fail(k, "%s runs a piece again", gw_action_print(a, text));
        *ran = true;
        if (!run_range(k, t, ranges[i], a, true)) return false;
    }
    for (int i = 0; i < n; i++) (void)run_range(k, t, ranges[i], a, false);
    return true;
}

static bool play(maker *k) {
    gw_flow *f = k->f;
    const gw_graph *g = k->g;
    f->nclasses = (int)k->classes.count;
    int64_t m = f->micro_batches, all = (f->nclasses + 1) * m;
    f->places = gw_arena_new(k->a, int32_t, f->nclasses + 1);
    f->place = gw_arena_new(k->a, int32_t, all + 1);
    f->first = gw_arena_new(k->a, int32_t, f->nclasses + 1);
    f->places[0] = 1;
    if (g->actions.count == 0) return true;
    table t = {.left = gw_arena_new(k->a, int32_t, all + 1),
               .words = f->nranges * m / 64 + 1,
               .used = gw_arena_new(k->a, uint64_t *, k->pools.count + 1)};
    for (int64_t i = 0; i < k->pools.count; i++) t.used[i] = gw_arena_new(k->a, uint64_t, t.words);
    k->ran = gw_arena_new(k->a, bool, f->nranges *m + 1);
    for (int32_t c = 1; c <= f->nclasses; c++) {
        f->first[c] = k->classes.items[c - 1].first;
        for (int64_t i = 0; i < m; i++) {
            f->place[c * m + i] = -1;
            t.left[c * m + i] = k->classes.items[c - 1].count;
        }
    }
    for (int64_t i = 0; i < g->actions.count; i++)
        if (!play_action(k, &t, g->actions.items[i])) return false;
    for (int32_t c = 1; c <= f->nclasses; c++)
        f->places[c] = k->pools.items[k->classes.items[c - 1].pool].places;
    for (int64_t i = 0; i < f->nranges * m; i++)
        if (!k->ran[i])
            return fail(k, "stage %d, part %s, never runs for micro-batch %lld",
                        f->ranges[i / m].stage, gw_part_name((gw_part)f->ranges[i / m].part),
                        (long long)(i % m));
    return true;
}

/* ---- the whole ---- */

enum { MOST_MICRO = 1 << 20 };

bool gw_flow_try(gw_flow *f, const gw_graph *g, gw_arena *a, char *why, int n) {
    memset(f, 0, sizeof *f);
    f->micro_batches = GW_MAX(1, g->micro_batches);
    maker k = {.g = g, .a = a, .f = f, .why = why, .n = n};
    gw_graph_loop(g, &k.loop_first, &k.loop_end);
    bool ok = g->actions.count == 0 || f->micro_batches <= MOST_MICRO ||
              fail(&k, "too many micro-batches");
    if (g->actions.count == 0) f->micro_batches = 1; /* all have one place */
    ok = ok && find_ranges(&k);
    if (ok) find_classes(&k);
    ok = ok && play(&k);
    gw_vec_release(&k.classes);
    gw_vec_release(&k.pools);
    return ok;
}

void gw_flow_of(gw_flow *f, const gw_graph *g, gw_arena *a) {
    char why[160] = "";
    if (!gw_flow_try(f, g, a, why, (int)sizeof why))
        gw_panic("the actions do not fit the program: %s", why);
}

int gw_flow_range(const gw_flow *f, int stage, gw_part part) {
    for (int i = 0; i < f->nranges; i++)
        if (f->ranges[i].stage == stage && f->ranges[i].part == part) return i;
    return -1;
}

int gw_flow_ranges_of(const gw_flow *f, gw_action a, int ranges[2]) {
    static const uint8_t parts[GW_ACT_COUNT][2] = {
        [GW_ACT_F] = {GW_PART_F, 0},
        [GW_ACT_B] = {GW_PART_I, GW_PART_W},
        [GW_ACT_I] = {GW_PART_I, 0},
        [GW_ACT_W] = {GW_PART_W, 0},
        [GW_ACT_SEND_F] = {GW_PART_SEND_F, 0},
        [GW_ACT_RECV_F] = {GW_PART_RECV_F, 0},
        [GW_ACT_SEND_B] = {GW_PART_SEND_B, 0},
        [GW_ACT_RECV_B] = {GW_PART_RECV_B, 0},
        [GW_ACT_REDUCE] = {GW_PART_I, GW_PART_W},
    };
    int n = 0;
    if (a.act >= GW_ACT_COUNT) return 0;
    for (int i = 0; i < 2; i++) {
        if (parts[a.act][i] == GW_PART_ALL) continue;
        int r = gw_flow_range(f, a.stage, (gw_part)parts[a.act][i]);
        if (r >= 0) ranges[n++] = r;
    }
    return n;
}

int64_t gw_flow_stride(const gw_graph *g, gw_vid v) {
    return (gw_type_local_bytes(gw_type_of(g, v), &g->mesh, 0) + 63) / 64 * 64;
}

int64_t gw_flow_bytes(const gw_flow *f, const gw_graph *g, gw_vid v) {
    return f->places[f->class_of[v]] * gw_flow_stride(g, v);
}

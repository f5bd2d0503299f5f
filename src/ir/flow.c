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
// Cost: values x 4 words, and the actions times the classes of their pieces.
#include "ir/flow.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "ir/opdef.h"   /* gw_op */

enum { WORDS = GW_MAX_RANGES / 64 };

typedef struct set {
    uint64_t w[WORDS];
} set;

typedef struct class {
    set ranges;
    int32_t first; /* -1: inputs */
    int32_t count; /* ranges in it */
} class;

typedef struct maker {
    const gw_graph *g;
    gw_arena *a;
    gw_flow *f;
    gw_oid loop_first, loop_end;
    set *sets; /* [values], of roots */
    GW_VEC(class) classes;
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

static int32_t class_like(maker *k, const set *s, int32_t first) {
    for (int64_t c = k->classes.count; c-- > 0;) {
        const class *x = &k->classes.items[c];
        if (x->first == first && memcmp(&x->ranges, s, sizeof *s) == 0) return (int32_t)c + 1;
    }
    class x = {*s, first, count_of(s)};
    gw_vec_push(&k->classes, x);
    return (int32_t)k->classes.count;
}

static int32_t first_range(const maker *k, gw_vid root) {
    const gw_value *x = &k->g->values.items[root];
    return x->def == GW_NONE ? -1 : k->f->range_of[x->def];
}

static void find_classes(maker *k) {
    const gw_graph *g = k->g;
    k->f->class_of = gw_arena_new(k->a, int32_t, g->values.count + 1);
    k->sets = gw_arena_new(k->a, set, g->values.count + 1);
    if (g->actions.count == 0) return;
    find_touched(k);
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->tie != GW_NONE || x->rate != GW_RATE_MB || x->role == GW_ROLE_WORK) continue;
        int n = count_of(&k->sets[v]);
        bool input = x->def == GW_NONE && x->role == GW_ROLE_INPUT;
        if (n > 1 || (input && n > 0))
            k->f->class_of[v] = class_like(k, &k->sets[v], first_range(k, (gw_vid)v));
    }
    for (int64_t v = 0; v < g->values.count; v++)
        k->f->class_of[v] = k->f->class_of[gw_value_root(g, (gw_vid)v)];
}

/* ---- places ---- */

typedef struct table {
    int32_t *left;   /* [class * m + micro]: ranges still to run */
    uint64_t **used; /* [class]: places that are taken */
} table;

static int32_t take(table *t, const maker *k, int32_t c) {
    int64_t words = k->f->micro_batches / 64 + 1;
    for (int64_t w = 0; w < words; w++) {
        if (t->used[c][w] == ~UINT64_C(0)) continue;
        int bit = __builtin_ctzll(~t->used[c][w]);
        t->used[c][w] |= UINT64_C(1) << bit;
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
        if (!begins) {
            if (--t->left[at] == 0)
                t->used[c][f->place[at] / 64] &= ~(UINT64_C(1) << (f->place[at] % 64));
            continue;
        }
        if (f->place[at] >= 0) continue;
        if (x->first >= 0 && x->first != r)
            return fail(k, "%s runs before what it reads is made", gw_action_print(a, text));
        f->place[at] = take(t, k, c);
        f->places[c] = GW_MAX(f->places[c], f->place[at] + 1);
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
               .used = gw_arena_new(k->a, uint64_t *, f->nclasses + 1)};
    k->ran = gw_arena_new(k->a, bool, f->nranges *m + 1);
    for (int32_t c = 1; c <= f->nclasses; c++) {
        f->first[c] = k->classes.items[c - 1].first;
        t.used[c] = gw_arena_new(k->a, uint64_t, m / 64 + 1);
        for (int64_t i = 0; i < m; i++) {
            f->place[c * m + i] = -1;
            t.left[c * m + i] = k->classes.items[c - 1].count;
        }
    }
    for (int64_t i = 0; i < g->actions.count; i++)
        if (!play_action(k, &t, g->actions.items[i])) return false;
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

// SPDX-License-Identifier: Apache-2.0
// Fuses collectives into buckets and hoists gathers. It changes order and attributes, nothing else.
//
// Three things, in one walk that emits the ops anew:
//
//   mend    Recomputed ops read what forward had gathered. Backward reads no whole weight of
//           forward: such a use gets backward's own gather, placed here if it comes later or not at
//           all.
//   gather  The all-gathers of sharded weights in the loop are grouped by unit, a layer or what
//           stands outside layers, for forward and for backward: one bucket, placed before the
//           first op of the unit, or `layout.prefetch` units earlier. A unit of backward never
//           stands before the end of forward. What is fetched from host or disk to be gathered
//           goes with it; a weight that lies there whole is fetched by units in the same way.
//   reduce  Reductions of gradients wait in the order in which they become ready, with the ops that
//           only pass their results on (an accumulation, a second collective). A kind of them (one
//           op, group, dtype and wire) is emitted, as one bucket, when it holds layout.bucket_bytes
//           (the first one of the step: first_bucket_bytes, so that it starts early), when an op
//           needs one of the results, and at the end of the loop. A tensor is never split.
//
// The conversions of activations stay where they are and alone: what an op of the loop reads next
// does not wait for others, and others do not wait for it. They are known by their readers, and by
// being cut along a dimension.
//
// Secondary parts (slices of what forward gathered) that no op of backward turns out to need are
// left out.
//
// Order among collectives is the same on every rank because every rank compiles the same program.
// A bucket runs as one where its last op stands; lives and the verifier know that
// (gw_graph_bucket). Its algorithm is asked of layout.algorithm, once for all its ops.
#include <string.h>

#include "base/panic.h"     /* GW_ASSERT */
#include "ops/conversion.h" /* gw_conversion_of */
#include "pass/pass.h"

typedef struct bucketer {
    const gw_graph *src;
    gw_graph *dst;
    const gw_layout_opts *o;
    gw_vid *map;            /* [src values] */
    gw_vid *again;          /* [src values]: of a weight's gather in forward, backward's */
    bool *held;             /* [src ops]: waits */
    bool *prompt;           /* [src ops]: a collective that is emitted where it stands */
    gw_oid *back;           /* [src values]: backward's gather of it, GW_NONE if there is none */
    gw_vid *part;           /* [src values]: its secondary part, GW_NONE if there is none */
    bool *with;             /* [src ops]: a fetch that goes with the gather of what it fetches */
    bool *unread;           /* [src ops]: a secondary part that nothing needs */
    int32_t *unit;          /* [src ops]: of weight gathers, -1 of others */
    int32_t backward_unit;  /* the first of backward */
    GW_VEC(gw_oid) waiting; /* ops that wait, in order */
    GW_VEC(gw_oid) units;   /* weight gathers in order of their units */
    int64_t next_gather;    /* in `units`: the first not emitted */
    int64_t bytes;          /* of the waiting collectives of the kind that fills */
    bool first;             /* no bucket of gradients was emitted yet */
    int64_t next_id;
    gw_oid loop_first, loop_end;
} bucketer;

static bool is_collective(const gw_graph *g, gw_oid i) {
    return gw_op_def(g, &g->ops.items[i])->traits & GW_OP_COLLECTIVE;
}

static bool is_named(const gw_graph *g, gw_oid i, const char *name) {
    return gw_op_is(g, &g->ops.items[i], name);
}

static bool is_backward(const gw_op *o) {
    return o->phase == GW_PHASE_B || o->phase == GW_PHASE_W || o->phase == GW_PHASE_BW;
}

static gw_oid op_of(const gw_graph *g, gw_vid v) {
    return v == GW_NONE ? GW_NONE : g->values.items[v].def;
}

/* A gather of a flat value: of weights, or of what an optimizer made. */
static bool is_flat_gather(const gw_graph *g, gw_oid i) {
    return is_named(g, i, "all_gather") && gw_type_of(g, gw_op_in(g, &g->ops.items[i], 0))->flat;
}

/* A copy that forward leaves of its part of something it gathered. */
static bool is_part(const gw_graph *g, gw_oid i) {
    const gw_op *o = &g->ops.items[i];
    if (!is_named(g, i, "slice") || g->values.items[gw_op_out(g, o, 0)].tie != GW_NONE)
        return false;
    gw_oid d = op_of(g, gw_op_in(g, o, 0));
    return o->rate == GW_RATE_MB && gw_type_of(g, gw_op_out(g, o, 0))->flat && d != GW_NONE &&
           is_flat_gather(g, d);
}

/* What is gathered or fetched in the end: through fetches and secondary parts. */
static gw_vid source_of(const gw_graph *g, gw_oid i) {
    gw_vid v = gw_op_in(g, &g->ops.items[i], 0);
    for (gw_oid d = op_of(g, v); d != GW_NONE; d = op_of(g, v)) {
        if (is_part(g, d))
            d = op_of(g, gw_op_in(g, &g->ops.items[d], 0));
        else if (!is_named(g, d, "fetch"))
            break;
        v = gw_op_in(g, &g->ops.items[d], 0);
    }
    return v;
}

/* A gather of sharded weights at their use, or a fetch of whole ones: in the loop, of something
 * made before it. */
static bool is_weight_gather(const bucketer *b, gw_oid i) {
    const gw_graph *g = b->src;
    if (g->ops.items[i].rate != GW_RATE_MB || b->with[i]) return false;
    if (!is_flat_gather(g, i) && !is_named(g, i, "fetch")) return false;
    return g->values.items[source_of(g, i)].rate == GW_RATE_STEP;
}

/* ---- units ---- */

/* Length of the part of a scope that names its unit: the layer, or the first word. */
static size_t unit_length(const char *scope) {
    int n = gw_scope_layer(scope);
    return n > 0 ? (size_t)n : strcspn(scope, "/");
}

/* Fetches whose only business is to be gathered. */
static void find_fetches(bucketer *b) {
    const gw_graph *g = b->src;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        if (!is_flat_gather(g, i)) continue;
        gw_oid d = op_of(g, gw_op_in(g, &g->ops.items[i], 0));
        if (d != GW_NONE && is_named(g, d, "fetch")) b->with[d] = true;
    }
}

/* Pieces of a pipeline's loop run apart: nothing waits, or is gathered, across their borders. */
static int64_t piece_of(const gw_graph *g, gw_oid i) {
    return (int64_t)g->ops.items[i].stage * GW_PART_COUNT + g->ops.items[i].part;
}

static void find_units(bucketer *b) {
    const gw_graph *g = b->src;
    const char *scope = NULL;
    gw_oid last = 0;
    bool backward = false;
    int32_t unit = -1;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        b->unit[i] = -1;
        if (!is_weight_gather(b, i)) continue;
        const gw_op *o = &g->ops.items[i];
        const char *s = gw_graph_str(g, o->scope);
        size_t n = unit_length(s);
        if (!scope || backward != is_backward(o) || piece_of(g, last) != piece_of(g, i) ||
            n != unit_length(scope) || strncmp(s, scope, n) != 0)
            unit++;
        scope = s;
        last = i;
        backward = is_backward(o);
        b->unit[i] = unit;
        gw_vec_push(&b->units, i);
        gw_vid source = source_of(g, i);
        if (backward && b->back[source] == GW_NONE) b->back[source] = i;
        if (backward) b->backward_unit = GW_MIN(b->backward_unit, unit);
    }
}

/* Secondary parts, and which of them backward needs: those it gathers, and those of weights that
 * only recomputed ops read. */
static void find_parts(bucketer *b) {
    const gw_graph *g = b->src;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (is_part(g, i)) {
            b->part[source_of(g, op_of(g, gw_op_in(g, o, 0)))] = gw_op_out(g, o, 0);
            b->unread[i] = true;
        }
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int k = 0; is_backward(o) && k < (int)o->nin; k++) {
            gw_oid d = op_of(g, gw_op_in(g, o, k));
            if (d == GW_NONE) continue;
            b->unread[d] = false;
            if (!is_weight_gather(b, d) || is_backward(&g->ops.items[d])) continue;
            gw_vid source = source_of(g, d);
            if (b->part[source] != GW_NONE && b->back[source] == GW_NONE)
                b->unread[op_of(g, b->part[source])] = false;
        }
    }
}

/* ---- emitting ---- */

static void set_attr(gw_graph *g, gw_oid o, const char *name, gw_attr value) {
    const gw_op *op = &g->ops.items[o];
    const gw_opdef *def = gw_op_def(g, op);
    for (int k = 0; k < def->nattrs; k++)
        if (strcmp(def->attrs[k].name, name) == 0) g->attrs.items[op->attr + (uint32_t)k] = value;
}

static gw_oid emit(bucketer *b, gw_oid i) { return gw_graph_copy_op(b->dst, b->src, i, b->map); }

static void name_algorithm(bucketer *b, const gw_oid *ops, int n) {
    if (!b->o->algorithm) return;
    const char *name = b->o->algorithm(b->dst, ops, n, b->o->algorithm_user);
    gw_attr a = {0};
    a.s = gw_graph_intern(b->dst, name ? name : "");
    for (int k = 0; k < n; k++) set_attr(b->dst, ops[k], "algorithm", a);
}

/* Emits ops as one bucket; they are collectives of one kind. */
static void emit_bucket(bucketer *b, const gw_oid *ops, int n) {
    gw_oid *made = gw_mem_alloc(sizeof(gw_oid) * ((size_t)n + 1));
    gw_attr id = {.i = n > 1 ? ++b->next_id : 0};
    for (int k = 0; k < n; k++) {
        made[k] = emit(b, ops[k]);
        set_attr(b->dst, made[k], "bucket", id);
    }
    name_algorithm(b, made, n);
    gw_mem_free(made);
}

/* What a collective does; its types have been verified. */
static gw_conversion conversion_of(const gw_graph *g, gw_oid i) {
    gw_conversion c;
    gw_status st = gw_conversion_of(g, &g->ops.items[i], &c, NULL);
    GW_ASSERT(st == GW_OK);
    return c;
}

/* May run as one: the same conversion, over the same group, of the same dtype. */
static bool same_kind(const gw_graph *g, gw_oid i, gw_oid j) {
    const gw_op *a = &g->ops.items[i], *b = &g->ops.items[j];
    if (i == j) return true;
    if (a->code != b->code || a->rate != b->rate) return false;
    gw_conversion x = conversion_of(g, i), y = conversion_of(g, j);
    bool cuts = x.from >= 0 || x.to >= 0 || y.from >= 0 || y.to >= 0;
    return !cuts && x.axes == y.axes && x.max == y.max && x.flat == y.flat &&
           gw_type_of(g, gw_op_in(g, a, 0))->dtype == gw_type_of(g, gw_op_in(g, b, 0))->dtype &&
           gw_op_attr_named(g, a, "wire").i == gw_op_attr_named(g, b, "wire").i;
}

/* ---- gathers of weights ---- */

/* Emits the gathers ops[0..n) of one unit: what they fetch, then themselves. */
static void emit_unit(bucketer *b, const gw_oid *ops, int n) {
    const gw_graph *g = b->src;
    gw_oid *gathers = gw_mem_alloc(sizeof(gw_oid) * ((size_t)n + 1));
    int m = 0;
    for (int k = 0; k < n; k++) {
        gw_oid d = op_of(g, gw_op_in(g, &g->ops.items[ops[k]], 0));
        if (d != GW_NONE && b->with[d]) (void)emit(b, d);
        if (is_collective(g, ops[k]))
            gathers[m++] = ops[k];
        else
            (void)emit(b, ops[k]);
    }
    for (int from = 0, to = 0; from < m; from = to) { /* parts over other axes are another bucket */
        while (to < m && same_kind(g, gathers[from], gathers[to])) to++;
        emit_bucket(b, gathers + from, to - from);
    }
    gw_mem_free(gathers);
}

/* The last unit up to `to` whose gathers belong to the piece of op i. */
static int32_t within_piece(const bucketer *b, gw_oid i, int32_t to) {
    int32_t last = b->unit[i];
    for (int64_t k = b->next_gather; k < b->units.count; k++) {
        gw_oid u = b->units.items[k];
        if (b->unit[u] > to || piece_of(b->src, u) != piece_of(b->src, i)) break;
        last = GW_MAX(last, b->unit[u]);
    }
    return GW_MIN(last, to);
}

/* Emits the gathers of all units up to `unit`. */
static void gather_to(bucketer *b, int32_t unit) {
    while (b->next_gather < b->units.count && b->unit[b->units.items[b->next_gather]] <= unit) {
        int64_t from = b->next_gather, to = from;
        int32_t u = b->unit[b->units.items[from]];
        while (to < b->units.count && b->unit[b->units.items[to]] == u) to++;
        emit_unit(b, b->units.items + from, (int)(to - from));
        b->next_gather = to;
    }
}

/* ---- collectives that wait ---- */

static int64_t bytes_of(const gw_graph *g, gw_oid i) {
    const gw_op *o = &g->ops.items[i];
    gw_vid whole = is_named(g, i, "all_gather") ? gw_op_out(g, o, 0) : gw_op_in(g, o, 0);
    return gw_type_local_bytes(gw_type_of(g, whole), &g->mesh, 0);
}

static bool reads_held(const bucketer *b, gw_oid i) {
    const gw_op *o = &b->src->ops.items[i];
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(b->src, o, k);
        gw_oid d = v == GW_NONE ? GW_NONE : b->src->values.items[v].def;
        if (d != GW_NONE && b->held[d]) return true;
    }
    return false;
}

static void hold(bucketer *b, gw_oid i) {
    b->held[i] = true;
    gw_vec_push(&b->waiting, i);
}

/* Emits the waiting collectives of the kind of the first, then what of the rest can go. */
static void emit_first_kind(bucketer *b) {
    gw_oid *ops = gw_mem_alloc(sizeof(gw_oid) * ((size_t)b->waiting.count + 1));
    int n = 0;
    int64_t left = 0;
    gw_oid kind = b->waiting.items[0];
    if (!is_collective(b->src, kind)) {
        (void)emit(b, kind);
        b->held[kind] = false;
        memmove(b->waiting.items, b->waiting.items + 1,
                sizeof(gw_oid) * (size_t)(b->waiting.count - 1));
        b->waiting.count--;
        gw_mem_free(ops);
        return;
    }
    for (int64_t k = 0; k < b->waiting.count; k++) {
        gw_oid i = b->waiting.items[k];
        if (is_collective(b->src, i) && same_kind(b->src, kind, i) && !reads_held(b, i))
            ops[n++] = i;
        else
            b->waiting.items[left++] = i;
    }
    b->waiting.count = left;
    emit_bucket(b, ops, n);
    for (int k = 0; k < n; k++) b->held[ops[k]] = false;
    gw_mem_free(ops);
}

static void flush(bucketer *b) {
    while (b->waiting.count > 0) emit_first_kind(b);
    b->bytes = 0;
}

/* Passes a collective's result on without looking at it. */
static bool may_wait(const bucketer *b, gw_oid i) {
    if (is_collective(b->src, i)) return !b->prompt[i];
    return is_named(b->src, i, "accumulate");
}

/* Collectives of the loop whose results an op of the loop works with, or that cut a dimension.
 * Readers stand behind what they read, so they are looked at first. */
static void find_prompt(bucketer *b) {
    const gw_graph *g = b->src;
    for (gw_oid i = (gw_oid)g->ops.count; i-- > 0;) {
        const gw_op *o = &g->ops.items[i];
        if (is_collective(g, i)) {
            gw_conversion c = conversion_of(g, i);
            b->prompt[i] |= c.from >= 0 || c.to >= 0;
        }
        if (o->rate != GW_RATE_MB || may_wait(b, i)) continue;
        for (int k = 0; k < (int)o->nin; k++) {
            gw_oid d = op_of(g, gw_op_in(g, o, k));
            if (d != GW_NONE && is_collective(g, d) && g->ops.items[d].rate == GW_RATE_MB)
                b->prompt[d] = true;
        }
    }
}

static void take_collective(bucketer *b, gw_oid i) {
    const gw_op *o = &b->src->ops.items[i];
    bool scalar = gw_type_of(b->src, gw_op_in(b->src, o, 0))->ndim == 0;
    int64_t cap = b->o->bucket_bytes;
    if (cap <= 0 || scalar || b->prompt[i]) {
        if (reads_held(b, i)) flush(b);
        emit_bucket(b, &i, 1);
        return;
    }
    bool gradient = is_backward(o);
    if (gradient && b->first) cap = GW_MIN(cap, GW_MAX(b->o->first_bucket_bytes, 1));
    if (!reads_held(b, i)) b->bytes += bytes_of(b->src, i);
    hold(b, i);
    if (b->bytes < cap) return;
    flush(b);
    if (gradient) b->first = false;
}

/* ---- backward reads its own gathers ---- */

/* In dst, what is gathered (or fetched) again where gather d of forward is needed once more. */
static gw_vid again_from(bucketer *b, gw_oid d, gw_oid reader) {
    const gw_graph *g = b->src;
    gw_vid part = b->part[source_of(g, d)], in = gw_op_in(g, &g->ops.items[d], 0);
    if (part != GW_NONE) return b->map[part];
    gw_oid fetch = op_of(g, in);
    if (fetch == GW_NONE || !b->with[fetch]) return b->map[in];
    gw_vid kept = b->map[in];
    gw_oid made = emit(b, fetch);
    b->dst->ops.items[made].phase = GW_PHASE_B;
    b->dst->ops.items[made].part = g->ops.items[reader].part;
    gw_vid again = b->map[in];
    b->map[in] = kept;
    return again;
}

/* Sees to it that what backward op `reader` reads as v, if forward gathered it, is gathered again.
 */
static void mend_input(bucketer *b, gw_oid reader, gw_vid v) {
    const gw_graph *g = b->src;
    gw_oid d = v == GW_NONE ? GW_NONE : g->values.items[v].def;
    if (d == GW_NONE || !is_weight_gather(b, d) || is_backward(&g->ops.items[d])) return;
    if (b->again[v] != GW_NONE) return;
    gw_oid later = b->back[source_of(g, d)];
    if (later != GW_NONE && piece_of(g, later) == piece_of(g, reader)) {
        gather_to(b, b->unit[later]);
        b->again[v] = b->map[gw_op_out(g, &g->ops.items[later], 0)];
        return;
    }
    gw_vid kept = b->map[v], in = gw_op_in(g, &g->ops.items[d], 0), from = b->map[in];
    b->map[in] = again_from(b, d, reader);
    gw_oid made = emit(b, d);
    b->map[in] = from;
    b->dst->ops.items[made].phase = GW_PHASE_B;
    b->dst->ops.items[made].part = g->ops.items[reader].part;
    const char *scope = gw_graph_str(g, g->ops.items[reader].scope);
    b->dst->ops.items[made].scope = gw_graph_intern(b->dst, scope);
    if (is_collective(g, d)) name_algorithm(b, &made, 1);
    b->again[v] = b->map[v];
    b->map[v] = kept;
}

/* Emits backward op i with the gathers of forward replaced by those of backward. */
static void emit_backward(bucketer *b, gw_oid i) {
    const gw_op *o = &b->src->ops.items[i];
    gw_vid *kept = gw_mem_alloc(sizeof(gw_vid) * ((size_t)o->nin + 1));
    for (int k = 0; k < (int)o->nin; k++) mend_input(b, i, gw_op_in(b->src, o, k));
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(b->src, o, k);
        if (v == GW_NONE) continue;
        kept[k] = b->map[v];
        if (b->again[v] != GW_NONE) b->map[v] = b->again[v];
    }
    (void)emit(b, i);
    for (int k = (int)o->nin; k-- > 0;)
        if (gw_op_in(b->src, o, k) != GW_NONE) b->map[gw_op_in(b->src, o, k)] = kept[k];
    gw_mem_free(kept);
}

static void take_op(bucketer *b, gw_oid i) {
    const gw_op *o = &b->src->ops.items[i];
    if (b->with[i] || b->unread[i]) return;
    if (b->unit[i] >= 0) {
        int32_t to = b->unit[i] + b->o->prefetch;
        if (b->unit[i] < b->backward_unit) to = GW_MIN(to, b->backward_unit - 1);
        gather_to(b, within_piece(b, i, to));
        return;
    }
    if (is_collective(b->src, i)) {
        take_collective(b, i);
        return;
    }
    if (reads_held(b, i)) {
        if (may_wait(b, i)) {
            hold(b, i);
            return;
        }
        flush(b);
    }
    if (is_backward(o) && !b->o->keep_gathered)
        emit_backward(b, i);
    else
        (void)emit(b, i);
}

static void walk(bucketer *b) {
    const gw_graph *g = b->src;
    for (int64_t v = 0; v < g->values.count; v++) {
        b->again[v] = b->map[v] = GW_NONE;
        if (g->values.items[v].def == GW_NONE) b->map[v] = gw_graph_copy_leaf(b->dst, g, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        if (i > 0 && piece_of(g, i) != piece_of(g, i - 1)) flush(b);
        if (i == b->loop_first || i == b->loop_end) flush(b);
        take_op(b, i);
    }
    flush(b);
    for (int64_t i = 0; i < g->states.count; i++)
        gw_graph_add_state(b->dst, b->map[g->states.items[i].start],
                           b->map[g->states.items[i].end]);
}

gw_status gw_pass_bucket(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                         gw_compile_report *report, gw_diags *dg) {
    (void)report;
    (void)dg;
    if (src->mesh.naxes == 0 && opts->layout.parameter_mem == GW_MEM_DEVICE) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_arena mem = {0};
    bucketer b = {
        .src = src, .dst = dst, .o = &opts->layout, .first = true, .backward_unit = INT32_MAX};
    gw_graph_begin(dst, src);
    gw_graph_loop(src, &b.loop_first, &b.loop_end);
    b.map = gw_arena_new(&mem, gw_vid, src->values.count);
    b.again = gw_arena_new(&mem, gw_vid, src->values.count);
    b.held = gw_arena_new(&mem, bool, src->ops.count + 1);
    b.unit = gw_arena_new(&mem, int32_t, src->ops.count + 1);
    b.back = gw_arena_new(&mem, gw_oid, src->values.count);
    b.part = gw_arena_new(&mem, gw_vid, src->values.count);
    b.with = gw_arena_new(&mem, bool, src->ops.count + 1);
    b.unread = gw_arena_new(&mem, bool, src->ops.count + 1);
    b.prompt = gw_arena_new(&mem, bool, src->ops.count + 1);
    for (int64_t v = 0; v < src->values.count; v++) b.back[v] = b.part[v] = GW_NONE;
    find_fetches(&b);
    find_units(&b);
    find_parts(&b);
    find_prompt(&b);
    walk(&b);
    gw_vec_release(&b.waiting);
    gw_vec_release(&b.units);
    gw_arena_release(&mem);
    return GW_OK;
}

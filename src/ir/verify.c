// SPDX-License-Identifier: Apache-2.0
// The verifier: what must hold of every graph, after every pass and of every parsed text.
//
// Checks go from the shallow to the deep, and each relies on those before it: first that every id
// leads somewhere and every enum is one (so that nothing later can read outside an array), then
// that each value is declared once, then order and rates, ties, the ops' own rules, states, and
// last the memory (ir/verify_memory.c). The first fault is reported and ends the work, since what
// follows from a broken graph says little. The message names the op or value, the detail is its
// line of text.
//
// Rates: an mb op that takes over step-rate bytes carries them around the loop. That is an
// accumulation, so only an op whose descriptor ties that output may do it, and nothing else in the
// loop may read the value it takes over: in the second iteration its bytes hold a partial sum. With
// one micro-batch the loop runs once, and what it leaves is as good as a step-rate value.
//
// What it leaves to others: whether all ranks' programs match (the check pass), and how well memory
// is packed (the place pass). Cost: O(n log n) in values and edges.
#include "ir/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"       /* gw_arena */
#include "base/str.h"         /* gw_str */
#include "ir/flow.h"          /* gw_flow_try */
#include "ir/shard.h"         /* GW_SHARD_KIND_COUNT */
#include "ir/text.h"          /* gw_op_print, gw_type_print */
#include "ir/verify_memory.h" /* gw_verify_memory */

typedef struct checker {
    const gw_graph *g;
    gw_diags *dg;
    gw_arena arena;
    uint8_t *declared; /* by value: 1 once an op or a leaf declares it */
    gw_oid *last_read; /* by value: the last op that reads it, GW_NONE if none */
    gw_vid *successor; /* by value: what takes over its bytes, GW_NONE if nothing does */
    gw_oid loop_first; /* GW_NONE: no loop */
} checker;

/* ---- saying what is wrong ---- */

static gw_status bad_op(const checker *c, gw_oid o, const char *fmt, ...) GW_PRINTF(3, 4);
static gw_status bad_op(const checker *c, gw_oid o, const char *fmt, ...) {
    if (!c->dg) return GW_ERR_FORMAT;
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gw_str line = {0};
    gw_op_print(c->g, o, &line);
    gw_diag *d = gw_diag_add(c->dg, GW_ERROR, GW_ERR_FORMAT, "program-invalid", (gw_where){0},
                             "op %u: %s", o, text);
    gw_diag_detail(c->dg, d, "%s", gw_str_c(&line));
    gw_str_release(&line);
    return GW_ERR_FORMAT;
}

static gw_status bad_value(const checker *c, int64_t v, const char *fmt, ...) GW_PRINTF(3, 4);
static gw_status bad_value(const checker *c, int64_t v, const char *fmt, ...) {
    if (!c->dg) return GW_ERR_FORMAT;
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const gw_value *x = &c->g->values.items[v];
    gw_str line = {0};
    gw_type_print(&x->type, &c->g->mesh, &line);
    if ((int64_t)x->def < c->g->ops.count) {
        gw_str_add(&line, " of ");
        gw_op_print(c->g, x->def, &line);
    }
    gw_diag *d = gw_diag_add(c->dg, GW_ERROR, GW_ERR_FORMAT, "program-invalid", (gw_where){0},
                             "value %%%lld: %s", (long long)v, text);
    gw_diag_detail(c->dg, d, "%s", gw_str_c(&line));
    gw_str_release(&line);
    return GW_ERR_FORMAT;
}

static gw_status bad_graph(const checker *c, const char *what) {
    return GW_FAIL(c->dg, GW_ERR_FORMAT, "program-invalid", "program: %s", what);
}

/* ---- mesh and strings ---- */

static bool is_prime(int32_t n) {
    for (int32_t p = 2; (int64_t)p * p <= n; p++)
        if (n % p == 0) return false;
    return n >= 2;
}

static gw_status check_mesh(const checker *c) {
    const gw_mesh *m = &c->g->mesh;
    int64_t ranks = 1;
    if (m->naxes < 0 || m->naxes > GW_MAX_AXES) return bad_graph(c, "too many sub-axes");
    for (int i = 0; i < m->naxes; i++) {
        const gw_axis *a = &m->axes[i];
        if (!memchr(a->name, 0, sizeof a->name) || !a->name[0])
            return bad_graph(c, "a sub-axis has no proper name");
        if (gw_mesh_find(m, a->name) != i) return bad_graph(c, "two sub-axes have one name");
        if (!is_prime(a->size)) return bad_graph(c, "the size of a sub-axis is not a prime");
        if (__builtin_mul_overflow(ranks, (int64_t)a->size, &ranks) || ranks > INT64_C(1) << 40)
            return bad_graph(c, "the mesh has too many ranks");
    }
    return GW_OK;
}

static gw_status check_pools(const checker *c) {
    const gw_graph *g = c->g;
    if (g->values.count >= (int64_t)GW_NONE || g->ops.count >= (int64_t)GW_NONE)
        return bad_graph(c, "more values or ops than ids");
    if (g->strings.count < 1 || g->chars.count < 1 || g->chars.items[g->chars.count - 1] != 0)
        return bad_graph(c, "the string pool is broken");
    for (int64_t i = 0; i < g->strings.count; i++)
        if (g->strings.items[i] >= g->chars.count) return bad_graph(c, "the string pool is broken");
    if (g->micro_batches < 0) return bad_graph(c, "fewer than 0 micro-batches");
    for (int i = 0; i < GW_MEM_COUNT; i++)
        if (g->arena_bytes[i] < 0) return bad_graph(c, "an arena of fewer than 0 bytes");
    return GW_OK;
}

/* ---- values ---- */

static bool name_is_letters(const gw_dim *d) {
    size_t n = 0;
    while (n < sizeof d->name && d->name[n]) {
        char ch = d->name[n++];
        if (!((ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z'))) return false;
    }
    return n > 0 && n < sizeof d->name;
}

static gw_status check_dim(const checker *c, int64_t v, const gw_dim *d, uint32_t *used) {
    if (!name_is_letters(d)) return bad_value(c, v, "a dimension's name is not letters");
    if (d->size < 0) return bad_value(c, v, "dimension %s has a negative size", d->name);
    if (d->shard >= GW_SHARD_KIND_COUNT)
        return bad_value(c, v, "dimension %s has no kind of shard", d->name);
    if (d->naxes > GW_MAX_DIM_AXES)
        return bad_value(c, v, "dimension %s has too many sub-axes", d->name);
    if (d->naxes && (d->shard == GW_SHARD_RAGGED || d->shard == GW_SHARD_LAYER))
        return bad_value(c, v, "dimension %s is cut in a way that a type does not hold", d->name);
    if (d->outer > d->naxes || (d->turn && !d->outer))
        return bad_value(c, v, "dimension %s has no outer cut", d->name);
    for (int i = 0; i < d->naxes; i++) {
        if (d->axes[i] >= c->g->mesh.naxes)
            return bad_value(c, v, "dimension %s is sharded on an axis outside the mesh", d->name);
        uint32_t bit = 1u << d->axes[i];
        if (*used & bit)
            return bad_value(c, v, "axis %s is used twice", c->g->mesh.axes[d->axes[i]].name);
        *used |= bit;
    }
    return GW_OK;
}

static gw_status check_masks(const checker *c, int64_t v, const gw_type *t, uint32_t used) {
    const uint32_t masks[] = {t->psum, t->pmax, t->flat_axes};
    int n = c->g->mesh.naxes;
    uint32_t mesh = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    for (size_t i = 0; i < GW_COUNT(masks); i++) {
        if (masks[i] & ~mesh) return bad_value(c, v, "a placement names an axis outside the mesh");
        uint32_t twice = masks[i] & used;
        if (twice)
            return bad_value(c, v, "axis %s is used twice",
                             c->g->mesh.axes[__builtin_ctz(twice)].name);
        used |= masks[i];
    }
    if (t->flat > 1 || (!t->flat && t->flat_axes))
        return bad_value(c, v, "flat is neither 0 nor 1");
    return GW_OK;
}

static gw_status check_type(const checker *c, int64_t v, const gw_type *t) {
    if (t->dtype >= GW_DTYPE_COUNT) return bad_value(c, v, "no element type");
    if (t->ndim > GW_MAX_DIMS) return bad_value(c, v, "more than %d dimensions", GW_MAX_DIMS);
    uint32_t used = 0;
    int64_t bits = gw_dtype_bits((gw_dtype)t->dtype);
    for (int i = 0; i < t->ndim; i++) {
        GW_TRY(check_dim(c, v, &t->dims[i], &used));
        for (int k = 0; k < i; k++)
            if (strcmp(t->dims[k].name, t->dims[i].name) == 0)
                return bad_value(c, v, "two dimensions are named %s", t->dims[i].name);
        if (t->dims[i].size && __builtin_mul_overflow(bits, t->dims[i].size, &bits))
            return bad_value(c, v, "its size overflows");
    }
    return check_masks(c, v, t, used);
}

static gw_status check_value(const checker *c, int64_t i) {
    const gw_graph *g = c->g;
    const gw_value *v = &g->values.items[i];
    GW_TRY(check_type(c, i, &v->type));
    if (v->role >= GW_ROLE_COUNT || v->cause >= GW_CAUSE_COUNT || v->mem >= GW_MEM_COUNT ||
        v->rate > GW_RATE_MB)
        return bad_value(c, i, "role, cause, memory or rate is none");
    if ((int64_t)v->name >= g->strings.count) return bad_value(c, i, "its name is no string");
    if (v->offset < -1) return bad_value(c, i, "a negative offset");
    if (v->def == GW_NONE) {
        if (v->out) return bad_value(c, i, "no op defines it, yet it is output %d", v->out);
        if (v->tie != GW_NONE) return bad_value(c, i, "no op defines it, yet it is tied");
        return GW_OK;
    }
    if ((int64_t)v->def >= g->ops.count)
        return bad_value(c, i, "defined by an op that is not there");
    if (v->tie != GW_NONE && (int64_t)v->tie >= g->values.count)
        return bad_value(c, i, "tied to a value that is not there");
    return GW_OK;
}

/* ---- ops: ids and counts ---- */

static bool edges_exist(const gw_graph *g, uint32_t first, int n) {
    return (int64_t)first + n <= g->edges.count;
}

static gw_status check_op_fields(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    if (o->code >= g->table->count) return bad_op(c, id, "no such op code");
    if (!edges_exist(g, o->in, o->nin) || !edges_exist(g, o->out, o->nout) ||
        !edges_exist(g, o->after, o->nafter))
        return bad_op(c, id, "its operands lie outside the graph");
    if ((int64_t)o->attr + gw_op_def(g, o)->nattrs > g->attrs.count)
        return bad_op(c, id, "its attributes lie outside the graph");
    if (o->phase >= GW_PHASE_COUNT || o->rate > GW_RATE_MB || o->stream >= GW_STREAM_COUNT)
        return bad_op(c, id, "phase, rate or stream is none");
    if (o->flags & ~GW_OP_RECOMPUTED) return bad_op(c, id, "an unknown flag");
    if (o->stage < 0) return bad_op(c, id, "a negative stage");
    if (o->part >= GW_PART_COUNT) return bad_op(c, id, "no such part of a stage");
    if ((int64_t)o->scope >= g->strings.count) return bad_op(c, id, "its scope is no string");
    return GW_OK;
}

static gw_status check_counts(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    const gw_opdef *def = gw_op_def(g, o);
    bool variadic = (def->traits & GW_OP_VARIADIC) != 0;
    if (variadic ? o->nin < def->nin : o->nin != def->nin)
        return bad_op(c, id, "%d inputs, where %s takes %s%d", o->nin, def->name,
                      variadic ? "at least " : "", def->nin);
    if (o->nout > GW_MAX_OUT) return bad_op(c, id, "more than %d outputs", GW_MAX_OUT);
    for (int i = 0; i < o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        bool optional = !variadic && i >= def->nin - def->noptional;
        if (v == GW_NONE && !optional) return bad_op(c, id, "input %d is missing", i);
        if (v != GW_NONE && (int64_t)v >= g->values.count)
            return bad_op(c, id, "input %d is a value that is not there", i);
    }
    return GW_OK;
}

static gw_status check_attrs(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    const gw_opdef *def = gw_op_def(g, o);
    for (int i = 0; i < def->nattrs; i++) {
        const gw_attr_def *d = &def->attrs[i];
        gw_attr a = gw_op_attr(g, o, i);
        bool bad = false;
        switch (d->kind) {
        case GW_ATTR_BOOL: bad = a.i != 0 && a.i != 1; break;
        case GW_ATTR_DTYPE: bad = (a.i < 0 || a.i >= GW_DTYPE_COUNT) && a.i != d->def_i; break;
        case GW_ATTR_STR: bad = (int64_t)a.s >= g->strings.count; break;
        case GW_ATTR_INT:
        case GW_ATTR_FLOAT: break;
        }
        if (bad) return bad_op(c, id, "attribute %s has no such value", d->name);
    }
    return GW_OK;
}

static gw_status check_outputs(checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    for (int i = 0; i < o->nout; i++) {
        gw_vid v = gw_op_out(g, o, i);
        if ((int64_t)v >= g->values.count)
            return bad_op(c, id, "output %d is a value that is not there", i);
        const gw_value *x = &g->values.items[v];
        if (x->def != id || x->out != i)
            return bad_op(c, id, "output %d, %%%u, is defined elsewhere", i, v);
        c->declared[v] = 1;
    }
    if (o->work == GW_NONE) return GW_OK;
    if ((int64_t)o->work >= g->values.count)
        return bad_op(c, id, "its workspace is a value that is not there");
    const gw_value *w = &g->values.items[o->work];
    if (c->declared[o->work] && w->def == id) return bad_op(c, id, "its workspace is an output");
    if (w->def != id && w->def != GW_NONE) return bad_op(c, id, "its workspace is another op's");
    if (w->tie != GW_NONE) return bad_op(c, id, "its workspace is tied");
    if (w->type.dtype != GW_U8) return bad_op(c, id, "its workspace is not bytes");
    c->declared[o->work] = 1;
    return GW_OK;
}

static gw_status check_structure(checker *c) {
    const gw_graph *g = c->g;
    for (int64_t v = 0; v < g->values.count; v++) GW_TRY(check_value(c, v));
    for (int64_t i = 0; i < g->ops.count; i++) {
        gw_oid o = (gw_oid)i;
        GW_TRY(check_op_fields(c, o));
        GW_TRY(check_counts(c, o));
        GW_TRY(check_attrs(c, o));
        GW_TRY(check_outputs(c, o));
    }
    for (int64_t v = 0; v < g->values.count; v++)
        if (!c->declared[v] && g->values.items[v].def != GW_NONE)
            return bad_value(c, v, "its op does not define it");
    return GW_OK;
}

/* ---- order and rates ---- */

static gw_status check_uses(checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    for (int i = 0; i < o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        gw_oid def = g->values.items[v].def;
        if (def != GW_NONE && def >= id)
            return bad_op(c, id, "reads %%%u before its definition", v);
        if (def != GW_NONE && g->ops.items[def].work == v)
            return bad_op(c, id, "reads %%%u, a workspace", v);
        c->last_read[v] = id;
    }
    for (int i = 0; o->rate == GW_RATE_MB && i < o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        gw_oid def = v == GW_NONE ? GW_NONE : g->values.items[v].def;
        if (def != GW_NONE && g->ops.items[def].rate == GW_RATE_STEP && def > c->loop_first)
            return bad_op(c, id, "reads %%%u, which is made in the last iteration only", v);
    }
    for (int i = 0; i < o->nafter; i++)
        if (g->edges.items[o->after + (uint32_t)i] >= id)
            return bad_op(c, id, "waits for op %u, which is not before it",
                          g->edges.items[o->after + (uint32_t)i]);
    for (int i = 0; i < o->nout; i++)
        if (g->values.items[gw_op_out(g, o, i)].rate != o->rate)
            return bad_op(c, id, "output %d has another rate than its op", i);
    return GW_OK;
}

/* The loop is what stands between the first and the last mb op; step ops in it run in the last
 * iteration. */
static gw_status check_order(checker *c) {
    const gw_graph *g = c->g;
    c->loop_first = GW_NONE;
    for (int64_t i = g->ops.count; i-- > 0;)
        if (g->ops.items[i].rate == GW_RATE_MB) c->loop_first = (gw_oid)i;
    for (int64_t i = 0; i < g->ops.count; i++) GW_TRY(check_uses(c, (gw_oid)i));
    return GW_OK;
}

/* ---- ties ---- */

static gw_status check_demanded_tie(const checker *c, gw_oid id, int i) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    const gw_opdef *def = gw_op_def(g, o);
    gw_vid tie = g->values.items[gw_op_out(g, o, i)].tie;
    int in = def->ties[i] >= 0 ? def->ties[i] : gw_op_accumulator(g, o, i);
    gw_vid wanted = in >= 0 && in < o->nin ? gw_op_in(g, o, in) : GW_NONE;
    if (wanted != GW_NONE && tie != wanted)
        return bad_op(c, id, "output %d must be tied to input %d", i, in);
    if (tie == GW_NONE || wanted != GW_NONE) return GW_OK;
    if (g->values.items[gw_value_root(g, tie)].rate != o->rate)
        return bad_op(c, id, "output %d takes over bytes of another rate without accumulating", i);
    return GW_OK;
}

static bool reads(const gw_graph *g, const gw_op *o, gw_vid v) {
    for (int i = 0; i < o->nin; i++)
        if (gw_op_in(g, o, i) == v) return true;
    return false;
}

static gw_status check_tie(checker *c, gw_oid id, int i) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    gw_vid v = gw_op_out(g, o, i), old = g->values.items[v].tie;
    if (old == GW_NONE) return GW_OK;
    if (!reads(g, o, old)) return bad_op(c, id, "output %d is tied to %%%u, no input", i, old);
    const gw_value *x = &g->values.items[v], *y = &g->values.items[old];
    bool view = i == 0 && (gw_op_def(g, o)->traits & GW_OP_VIEW) && old == gw_op_in(g, o, 0) &&
                x->type.dtype == y->type.dtype;
    if (x->mem != y->mem || (!view && gw_type_local_bytes(&x->type, &g->mesh, 0) !=
                                          gw_type_local_bytes(&y->type, &g->mesh, 0)))
        return bad_op(c, id, "output %d is tied to %%%u, which has other bytes", i, old);
    gw_vid root = gw_value_root(g, old);
    if (view && gw_type_local_bytes(&x->type, &g->mesh, 0) >
                    gw_type_local_bytes(gw_type_of(g, root), &g->mesh, 0))
        return bad_op(c, id, "output %d is tied to %%%u, whose bytes are too few", i, root);
    if (c->successor[old] != GW_NONE)
        return bad_op(c, id, "%%%u is taken over twice, also by %%%u", old, c->successor[old]);
    c->successor[old] = v;
    if (c->last_read[old] != id)
        return bad_op(c, c->last_read[old], "reads %%%u, whose bytes op %u has taken over", old,
                      id);
    return GW_OK;
}

/* Within the loop, only the op that takes over a step-rate value may read it. */
static gw_status check_carried(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    for (int i = 0; o->rate == GW_RATE_MB && i < o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE || g->values.items[v].rate != GW_RATE_STEP) continue;
        gw_vid next = c->successor[v];
        if (next == GW_NONE) continue;
        gw_oid by = g->values.items[next].def;
        if (by != id && g->ops.items[by].rate == GW_RATE_MB)
            return bad_op(c, id, "reads %%%u in the loop, which op %u carries around it", v, by);
    }
    return GW_OK;
}

static gw_status check_step_reads(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    if (g->micro_batches == 1) return GW_OK; /* the loop runs once: its values are the step's */
    for (int i = 0; o->rate == GW_RATE_STEP && i < o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE || g->values.items[v].rate == GW_RATE_STEP) continue;
        if (g->values.items[gw_value_root(g, v)].rate != GW_RATE_STEP)
            return bad_op(c, id, "a step op reads the micro-batch value %%%u", v);
    }
    return GW_OK;
}

/* Ties point to inputs, which are defined before: chains of ties end, and roots can be asked for.
 */
static gw_status check_ties(checker *c) {
    const gw_graph *g = c->g;
    for (int64_t id = 0; id < g->ops.count; id++)
        for (int i = 0; i < g->ops.items[id].nout; i++) GW_TRY(check_tie(c, (gw_oid)id, i));
    for (int64_t id = 0; id < g->ops.count; id++) {
        for (int i = 0; i < g->ops.items[id].nout; i++)
            GW_TRY(check_demanded_tie(c, (gw_oid)id, i));
        GW_TRY(check_carried(c, (gw_oid)id));
        GW_TRY(check_step_reads(c, (gw_oid)id));
    }
    return GW_OK;
}

/* ---- the ops' own rules ---- */

static gw_status check_factor(const checker *c, gw_oid id, const gw_factor *f) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    for (int i = 0; i < o->nin + o->nout; i++) {
        bool in = i < o->nin;
        if (in && (i >= GW_MAX_IN || gw_op_in(g, o, i) == GW_NONE)) continue;
        gw_vid v = in ? gw_op_in(g, o, i) : gw_op_out(g, o, i - o->nin);
        int k = in ? f->in_dim[i] : f->out_dim[i - o->nin];
        const gw_type *t = gw_type_of(g, v);
        if (k >= t->ndim)
            return bad_op(c, id, "its signature names a dimension of %%%u that is not there", v);
        int64_t blocks = f->block ? (f->size + f->block - 1) / f->block : f->size;
        if (k >= 0 && t->dims[k].size != f->size && t->dims[k].size != blocks)
            return bad_op(c, id, "%.8s is %lld in %%%u and %lld elsewhere", f->name,
                          (long long)t->dims[k].size, v, (long long)f->size);
    }
    return GW_OK;
}

static gw_status check_rules(const checker *c, gw_oid id) {
    const gw_graph *g = c->g;
    const gw_op *o = &g->ops.items[id];
    const gw_opdef *def = gw_op_def(g, o);
    if (def->verify(g, o, c->dg) != GW_OK) {
        gw_str line = {0};
        gw_op_print(g, id, &line);
        gw_diag_frame(c->dg, "verifying op %u: %s", id, gw_str_c(&line));
        gw_str_release(&line);
        return GW_ERR_FORMAT;
    }
    gw_signature s;
    def->sign(g, o, &s);
    for (int f = 0; f < s.nfactors; f++) GW_TRY(check_factor(c, id, &s.factors[f]));
    return GW_OK;
}

/* ---- states ---- */

static gw_status check_states(checker *c) {
    const gw_graph *g = c->g;
    uint8_t *seen = gw_arena_new(&c->arena, uint8_t, g->values.count + 1);
    for (int64_t i = 0; i < g->states.count; i++) {
        gw_state s = g->states.items[i];
        if ((int64_t)s.start >= g->values.count || (int64_t)s.end >= g->values.count)
            return bad_graph(c, "a state names a value that is not there");
        if (g->values.items[s.start].def != GW_NONE)
            return bad_value(c, s.start, "a state starts with it, but an op defines it");
        if (seen[s.start]++) return bad_value(c, s.start, "it is a state twice");
        if (gw_value_root(g, s.end) != s.start)
            return bad_value(c, s.end, "a state ends with it, but it has not the bytes of %%%u",
                             s.start);
        if (c->successor[s.end] != GW_NONE)
            return bad_value(c, s.end, "a state ends with it, but %%%u takes over its bytes",
                             c->successor[s.end]);
    }
    return GW_OK;
}

/* ---- stages ---- */

static gw_status check_stages(checker *c) {
    gw_flow flow;
    char why[160] = "";
    if (gw_flow_try(&flow, c->g, &c->arena, why, (int)sizeof why)) return GW_OK;
    return bad_graph(c, why);
}

/* ---- the whole ---- */

static gw_status check_all(checker *c) {
    const gw_graph *g = c->g;
    GW_TRY(check_mesh(c));
    GW_TRY(check_pools(c));
    GW_TRY(check_structure(c));
    GW_TRY(check_order(c));
    GW_TRY(check_ties(c));
    for (int64_t i = 0; i < g->ops.count; i++) GW_TRY(check_rules(c, (gw_oid)i));
    GW_TRY(check_states(c));
    GW_TRY(check_stages(c));
    return gw_verify_memory(g, c->dg);
}

gw_status gw_graph_verify(const gw_graph *g, gw_diags *dg) {
    checker c = {.g = g, .dg = dg};
    int64_t n = g->values.count + 1;
    c.declared = gw_arena_new(&c.arena, uint8_t, n);
    c.last_read = gw_arena_new(&c.arena, gw_oid, n);
    c.successor = gw_arena_new(&c.arena, gw_vid, n);
    memset(c.last_read, 0xff, (size_t)n * sizeof *c.last_read);
    memset(c.successor, 0xff, (size_t)n * sizeof *c.successor);
    gw_status s = check_all(&c);
    gw_arena_release(&c.arena);
    return s;
}

// SPDX-License-Identifier: Apache-2.0
// The graph's storage: append-only arrays with 32-bit ids, a string pool, and the arithmetic of
// types.
//
// Everything here is bookkeeping that cannot fail on the world: ids out of range are bugs and
// panic. What must hold of a finished graph is the verifier's business (ir/verify.c); what an op's
// shapes are is its descriptor's (ir/opdef.h). Two graphs are equal when their arrays are, strings
// compared by content, so that the order in which strings were interned does not matter.
//
// Sizes are local: gw_type_local_* applies the placement for one rank. On a mesh without axes local
// and global are the same. A dimension sharded on several sub-axes is cut once, by their product,
// with the part number formed major axis first; nested cutting would give other borders for sizes
// that do not divide. Where it has an outer cut it is cut twice: the outer parts are lists of
// elements, zigzags perhaps, and the rest of its sub-axes cut these in chunks. gw_held_* goes
// through what all cuts leave to a rank, flat parts included.
#include "ir/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */
#include "ir/opdef.h"   /* gw_opdef */
#include "ir/shard.h"   /* gw_shard_length */

/* ---- names of enums ---- */

#define X(id, text) text,
static const char *const role_names[] = {GW_ROLES(X)};
static const char *const cause_names[] = {GW_CAUSES(X)};
static const char *const mem_names[] = {GW_MEMS(X)};
static const char *const phase_names[] = {GW_PHASES(X)};
static const char *const stream_names[] = {GW_STREAMS(X)};
#undef X

static const char *name_of(const char *const *names, unsigned count, unsigned i) {
    GW_ASSERT(i < count);
    return names[i];
}

const char *gw_role_name(gw_role r) { return name_of(role_names, GW_ROLE_COUNT, r); }
const char *gw_cause_name(gw_cause c) { return name_of(cause_names, GW_CAUSE_COUNT, c); }
const char *gw_mem_name(gw_mem m) { return name_of(mem_names, GW_MEM_COUNT, m); }
const char *gw_phase_name(gw_phase p) { return name_of(phase_names, GW_PHASE_COUNT, p); }
const char *gw_stream_name(gw_stream s) { return name_of(stream_names, GW_STREAM_COUNT, s); }

/* ---- life ---- */

void gw_graph_init(gw_graph *g, const struct gw_optable *table) {
    memset(g, 0, sizeof *g);
    g->table = table;
    g->micro_batches = 1;
    gw_sid empty = gw_graph_intern(g, "");
    GW_ASSERT(empty == 0);
}

void gw_graph_release(gw_graph *g) {
    gw_vec_release(&g->values);
    gw_vec_release(&g->ops);
    gw_vec_release(&g->edges);
    gw_vec_release(&g->attrs);
    gw_vec_release(&g->states);
    gw_vec_release(&g->actions);
    gw_vec_release(&g->chars);
    gw_vec_release(&g->strings);
    gw_imap_release(&g->string_ids);
}

#define COPY_VEC(dst, src, field)                                                                  \
    do {                                                                                           \
        for (int64_t i_ = 0; i_ < (src)->field.count; i_++)                                        \
            gw_vec_push(&(dst)->field, (src)->field.items[i_]);                                    \
    } while (0)

void gw_graph_begin(gw_graph *dst, const gw_graph *src) {
    gw_graph_init(dst, src->table);
    dst->mesh = src->mesh;
    dst->micro_batches = src->micro_batches;
    COPY_VEC(dst, src, actions);
}

void gw_graph_dup(gw_graph *dst, const gw_graph *src) {
    memset(dst, 0, sizeof *dst);
    dst->table = src->table;
    dst->mesh = src->mesh;
    dst->micro_batches = src->micro_batches;
    memcpy(dst->arena_bytes, src->arena_bytes, sizeof dst->arena_bytes);
    for (int64_t i = 0; i < src->strings.count; i++)
        (void)gw_graph_intern(dst, gw_graph_str(src, (gw_sid)i));
    COPY_VEC(dst, src, values);
    COPY_VEC(dst, src, ops);
    COPY_VEC(dst, src, edges);
    COPY_VEC(dst, src, attrs);
    COPY_VEC(dst, src, states);
    COPY_VEC(dst, src, actions);
}

/* ---- strings ---- */

gw_sid gw_graph_intern(gw_graph *g, const char *text) {
    size_t n = strlen(text);
    uint64_t key = gw_hash64(text, n, 0);
    uint32_t id = 0;
    while (gw_imap_find(&g->string_ids, key, &id)) {
        if (strcmp(gw_graph_str(g, id), text) == 0) return id;
        key++; /* another string with this hash: look at the next key */
    }
    id = (uint32_t)g->strings.count;
    uint32_t first = (uint32_t)g->chars.count;
    for (size_t i = 0; i <= n; i++) gw_vec_push(&g->chars, text[i]);
    gw_vec_push(&g->strings, first);
    gw_imap_put(&g->string_ids, key, id);
    return id;
}

const char *gw_graph_str(const gw_graph *g, gw_sid id) {
    GW_ASSERT((int64_t)id < g->strings.count);
    return g->chars.items + g->strings.items[id];
}

/* ---- types ---- */

gw_type gw_type_scalar(gw_dtype t) {
    gw_type r = {0};
    r.dtype = (uint8_t)t;
    return r;
}

void gw_type_add(gw_type *t, const char *name, int64_t size) {
    if (t->ndim >= GW_MAX_DIMS) gw_panic("a value has more than %d dimensions", GW_MAX_DIMS);
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof t->dims[0].name) gw_panic("dimension name '%s'", name);
    gw_dim *d = &t->dims[t->ndim++];
    memset(d, 0, sizeof *d);
    memcpy(d->name, name, n);
    d->size = size;
}

gw_type gw_type_make(gw_dtype t, const char *dims) {
    gw_type r = gw_type_scalar(t);
    const char *p = dims;
    while (*p) {
        char name[8] = {0};
        int n = 0;
        while (*p == ' ') p++;
        while ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')) {
            if (n == 7) gw_panic("dimension text '%s'", dims);
            name[n++] = *p++;
        }
        char *end = NULL;
        long long size = strtoll(p, &end, 10);
        if (n == 0 || end == p || size < 0) gw_panic("dimension text '%s'", dims);
        gw_type_add(&r, name, size);
        p = end;
        while (*p == ' ') p++;
    }
    return r;
}

int gw_type_find(const gw_type *t, const char *name) {
    for (int i = 0; i < t->ndim; i++)
        if (strncmp(t->dims[i].name, name, sizeof t->dims[i].name) == 0) return i;
    return -1;
}

bool gw_type_same_dims(const gw_type *a, const gw_type *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++) {
        if (memcmp(a->dims[i].name, b->dims[i].name, sizeof a->dims[i].name) != 0) return false;
        if (a->dims[i].size != b->dims[i].size) return false;
    }
    return true;
}

int64_t gw_type_elems(const gw_type *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, t->dims[i].size, &n)) gw_panic("a value's size overflows");
    return n;
}

/* The part that `rank` holds of something cut over the sub-axes listed, first the most major. */
static void part_of(const gw_mesh *m, const uint8_t *axes, int naxes, int64_t rank, gw_shard *s) {
    s->parts = 1;
    s->part = 0;
    for (int a = 0; a < naxes; a++) {
        int32_t size = m->axes[axes[a]].size;
        s->parts *= size;
        s->part = s->part * size + gw_mesh_coord(m, rank, axes[a]);
    }
}

int gw_dim_outer(const gw_dim *d) { return d->outer ? d->outer : d->naxes; }

/* The outer cut of a dimension, for one rank; a turned part stands `turn` ranks further. */
static gw_shard outer_of(const gw_dim *d, const gw_mesh *m, int64_t rank) {
    gw_shard s = {.kind = (gw_shard_kind)d->shard, .size = d->size};
    part_of(m, d->axes, gw_dim_outer(d), rank, &s);
    s.part = (s.part + s.parts - d->turn % s.parts) % s.parts;
    return s;
}

/* The chunk of an outer part of `length` elements; all of it if there is no second cut. */
static gw_shard inner_of(const gw_dim *d, const gw_mesh *m, int64_t rank, int64_t length) {
    gw_shard s = {.kind = GW_SHARD_CHUNK, .size = length};
    int outer = gw_dim_outer(d);
    part_of(m, d->axes + outer, d->naxes - outer, rank, &s);
    return s;
}

int64_t gw_type_local_dim(const gw_type *t, int i, const gw_mesh *m, int64_t rank) {
    const gw_dim *d = &t->dims[i];
    if (d->naxes == 0) return d->size;
    gw_shard s = outer_of(d, m, rank);
    gw_shard in = inner_of(d, m, rank, gw_shard_length(&s));
    return gw_shard_length(&in);
}

bool gw_type_even(const gw_type *t, int i, const gw_mesh *m) {
    const gw_dim *d = &t->dims[i];
    int64_t n = gw_mesh_size(m, gw_dim_axes(d));
    if (d->naxes && d->shard == GW_SHARD_ZIGZAG) n *= 2;
    return n == 0 || d->size % n == 0;
}

uint32_t gw_dim_axes(const gw_dim *d) {
    uint32_t mask = 0;
    for (int a = 0; a < d->naxes; a++) mask |= 1u << d->axes[a];
    return mask;
}

uint32_t gw_type_cut_axes(const gw_type *t) {
    uint32_t mask = 0;
    for (int i = 0; i < t->ndim; i++) mask |= gw_dim_axes(&t->dims[i]);
    return mask;
}

uint32_t gw_type_part_axes(const gw_type *t) {
    return gw_type_cut_axes(t) | (t->flat ? t->flat_axes : 0);
}

bool gw_dim_same_cut(const gw_dim *a, const gw_dim *b) {
    return a->naxes == b->naxes && a->shard == b->shard && gw_dim_outer(a) == gw_dim_outer(b) &&
           a->turn == b->turn && memcmp(a->axes, b->axes, a->naxes) == 0;
}

bool gw_type_same_cuts(const gw_type *a, const gw_type *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (!gw_dim_same_cut(&a->dims[i], &b->dims[i])) return false;
    return true;
}

void gw_dim_set_cut(gw_dim *d, const gw_dim *cut) {
    gw_dim was = *d;
    *d = *cut;
    memcpy(d->name, was.name, sizeof d->name);
    d->size = was.size;
}

gw_runs gw_type_runs(const gw_type *t, int i, const gw_mesh *m, int64_t rank) {
    const gw_dim *d = &t->dims[i];
    gw_runs c = {1, {0, 0}, {d->size, 0}};
    if (d->naxes == 0) return c;
    gw_shard s = outer_of(d, m, rank);
    gw_shard in = inner_of(d, m, rank, gw_shard_length(&s));
    int64_t lo = 0, hi = gw_shard_length(&in), at = 0;
    c.n = 0;
    if (hi == 0) return c;
    lo = gw_shard_global(&in, 0);
    hi += lo;
    for (int64_t r = 0, runs = gw_shard_runs(&s); r < runs; r++) {
        int64_t first, count;
        gw_shard_run(&s, r, &first, &count);
        int64_t from = GW_MAX(lo, at), to = GW_MIN(hi, at + count);
        if (from < to) {
            GW_ASSERT(c.n < 2);
            c.first[c.n] = first + from - at;
            c.count[c.n++] = to - from;
        }
        at += count;
    }
    return c;
}

int64_t gw_runs_global(const gw_runs *c, int64_t at) {
    return at < c->count[0] || c->n < 2 ? c->first[0] + at : c->first[1] + at - c->count[0];
}

/* Elements of the local tensor as the dimensions' cuts leave it. */
static int64_t dims_elems(const gw_type *t, const gw_mesh *m, int64_t rank) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        if (__builtin_mul_overflow(n, gw_type_local_dim(t, i, m, rank), &n))
            gw_panic("a value's size overflows");
    return n;
}

static gw_shard flat_part(const gw_type *t, const gw_mesh *m, int64_t rank) {
    uint8_t axes[GW_MAX_AXES];
    int n = 0;
    for (int a = 0; a < m->naxes; a++)
        if (t->flat_axes >> a & 1u) axes[n++] = (uint8_t)a;
    gw_shard s = {.kind = GW_SHARD_FLAT, .size = dims_elems(t, m, rank)};
    part_of(m, axes, n, rank, &s);
    return s;
}

int64_t gw_type_flat_first(const gw_type *t, const gw_mesh *m, int64_t rank) {
    if (!t->flat) return 0;
    gw_shard s = flat_part(t, m, rank);
    return gw_shard_length(&s) > 0 ? gw_shard_global(&s, 0) : 0;
}

int64_t gw_type_local_elems(const gw_type *t, const gw_mesh *m, int64_t rank) {
    if (!t->flat) return dims_elems(t, m, rank);
    gw_shard s = flat_part(t, m, rank);
    return gw_shard_length(&s);
}

void gw_held_begin(gw_held *w, const gw_type *t, const gw_mesh *m, int64_t rank) {
    memset(w, 0, sizeof *w);
    w->ndim = t->ndim;
    w->inner = 1;
    int64_t stride = 1, local = 1;
    for (int i = t->ndim; i-- > 0;) {
        w->cuts[i] = gw_type_runs(t, i, m, rank);
        w->length[i] = gw_type_local_dim(t, i, m, rank);
        w->stride[i] = stride;
        stride *= t->dims[i].size;
        local *= w->length[i];
        if (w->last == 0 && t->dims[i].naxes) w->last = i;
    }
    for (int i = w->last + 1; i < t->ndim; i++) w->inner *= t->dims[i].size;
    w->lo = w->at = gw_type_flat_first(t, m, rank);
    w->hi = t->flat ? w->lo + gw_type_local_elems(t, m, rank) : local;
}

bool gw_held_next(gw_held *w, int64_t *global, int64_t *local, int64_t *count) {
    if (w->at >= w->hi) return false;
    int64_t row = w->at / w->inner, in = w->at % w->inner, g = in, left = w->hi - w->at;
    if (w->ndim == 0) {
        g = 0;
    } else {
        const gw_runs *c = &w->cuts[w->last];
        int64_t at = row % w->length[w->last], above = row / w->length[w->last];
        int64_t end = at < c->count[0] ? c->count[0] : c->count[0] + c->count[1];
        g += gw_runs_global(c, at) * w->stride[w->last];
        left = GW_MIN(left, (end - at) * w->inner - in);
        for (int i = w->last; i-- > 0;) {
            g += gw_runs_global(&w->cuts[i], above % w->length[i]) * w->stride[i];
            above /= w->length[i];
        }
    }
    *global = g;
    *local = w->at - w->lo;
    *count = left;
    w->at += left;
    return true;
}

int64_t gw_type_local_bytes(const gw_type *t, const gw_mesh *m, int64_t rank) {
    int64_t bits = 0;
    if (__builtin_mul_overflow(gw_type_local_elems(t, m, rank),
                               (int64_t)gw_dtype_bits((gw_dtype)t->dtype), &bits))
        gw_panic("a value's size overflows");
    return (bits + 7) / 8;
}

/* ---- values and ops ---- */

static gw_vid new_value(gw_graph *g, gw_value v) {
    GW_ASSERT(g->values.count < (int64_t)GW_NONE);
    gw_vec_push(&g->values, v);
    return (gw_vid)(g->values.count - 1);
}

gw_vid gw_graph_leaf(gw_graph *g, gw_role role, gw_cause cause, gw_rate rate, gw_type type,
                     const char *name) {
    gw_value v = {.type = type,
                  .role = (uint8_t)role,
                  .cause = (uint8_t)cause,
                  .mem = GW_MEM_DEVICE,
                  .rate = (uint8_t)rate,
                  .def = GW_NONE,
                  .tie = GW_NONE,
                  .name = gw_graph_intern(g, name),
                  .offset = -1};
    return new_value(g, v);
}

static uint32_t push_edges(gw_graph *g, const uint32_t *ids, int n) {
    uint32_t first = (uint32_t)g->edges.count;
    for (int i = 0; i < n; i++) gw_vec_push(&g->edges, ids[i]);
    return first;
}

static void push_attrs(gw_graph *g, gw_op *op, const gw_opdef *def, const gw_attr *attrs) {
    op->attr = (uint32_t)g->attrs.count;
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr a = {0};
        if (attrs)
            a = attrs[i];
        else if (def->attrs[i].kind == GW_ATTR_FLOAT)
            a.f = def->attrs[i].def_f;
        else
            a.i = def->attrs[i].def_i;
        gw_vec_push(&g->attrs, a);
    }
}

gw_oid gw_graph_op(gw_graph *g, uint16_t code, const gw_vid *in, int nin, const gw_attr *attrs,
                   const gw_type *out_types, int nout, gw_phase phase, gw_rate rate, gw_sid scope) {
    GW_ASSERT(code < g->table->count && nout <= GW_MAX_OUT);
    const gw_opdef *def = g->table->ops[code];
    gw_oid id = (gw_oid)g->ops.count;
    gw_op op = {.code = code,
                .phase = (uint8_t)phase,
                .rate = (uint8_t)rate,
                .stream = GW_STREAM_COMPUTE,
                .nin = (uint16_t)nin,
                .nout = (uint16_t)nout,
                .scope = scope,
                .work = GW_NONE};
    op.in = push_edges(g, in, nin);
    gw_vid outs[GW_MAX_OUT];
    for (int i = 0; i < nout; i++) {
        gw_value v = {.type = out_types[i],
                      .role = GW_ROLE_TEMP,
                      .cause = GW_CAUSE_ACTIVATIONS,
                      .rate = (uint8_t)rate,
                      .out = (uint16_t)i,
                      .def = id,
                      .tie = GW_NONE,
                      .offset = -1};
        if (def->ties[i] >= 0) v.tie = in[def->ties[i]];
        int acc = nout - i <= def->nacc ? nin - (nout - i) : -1;
        if (acc >= 0 && in[acc] != GW_NONE) v.tie = in[acc];
        if (v.tie != GW_NONE) {
            const gw_value *old = &g->values.items[v.tie];
            v.role = old->role == GW_ROLE_PARAM || old->role == GW_ROLE_STATE ? old->role : v.role;
            v.cause = old->cause;
            v.mem = old->mem;
        }
        outs[i] = new_value(g, v);
    }
    op.out = push_edges(g, outs, nout);
    op.after = (uint32_t)g->edges.count;
    push_attrs(g, &op, def, attrs);
    gw_vec_push(&g->ops, op);
    return id;
}

gw_vid gw_graph_copy_leaf(gw_graph *dst, const gw_graph *src, gw_vid v) {
    gw_value c = src->values.items[v];
    GW_ASSERT(c.def == GW_NONE);
    c.name = gw_graph_intern(dst, gw_graph_str(src, c.name));
    return new_value(dst, c);
}

static void copy_attrs(gw_graph *dst, gw_op *op, const gw_graph *src, const gw_op *from) {
    const gw_opdef *def = gw_op_def(src, from);
    op->attr = (uint32_t)dst->attrs.count;
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr a = gw_op_attr(src, from, i);
        if (def->attrs[i].kind == GW_ATTR_STR) {
            gw_sid s = gw_graph_intern(dst, gw_graph_str(src, a.s));
            a = (gw_attr){0};
            a.s = s;
        }
        gw_vec_push(&dst->attrs, a);
    }
}

/* A fresh value in dst like v of src, defined by op `id`. */
static gw_vid copy_value(gw_graph *dst, const gw_graph *src, gw_vid v, gw_oid id,
                         const gw_vid *map) {
    gw_value c = src->values.items[v];
    c.def = id;
    c.name = gw_graph_intern(dst, gw_graph_str(src, c.name));
    if (c.tie != GW_NONE) c.tie = map[c.tie];
    return new_value(dst, c);
}

gw_oid gw_graph_copy_op(gw_graph *dst, const gw_graph *src, gw_oid o, gw_vid *map) {
    const gw_op *from = &src->ops.items[o];
    gw_oid id = (gw_oid)dst->ops.count;
    gw_op op = *from;
    op.scope = gw_graph_intern(dst, gw_graph_str(src, from->scope));
    op.in = (uint32_t)dst->edges.count;
    for (int i = 0; i < from->nin; i++) {
        gw_vid v = gw_op_in(src, from, i);
        gw_vid m = v == GW_NONE ? GW_NONE : map[v];
        GW_ASSERT(v == GW_NONE || m != GW_NONE || gw_op_accumulates(src, from, i));
        gw_vec_push(&dst->edges, m);
    }
    gw_vid outs[GW_MAX_OUT];
    for (int i = 0; i < from->nout; i++) {
        gw_vid v = gw_op_out(src, from, i);
        outs[i] = copy_value(dst, src, v, id, map);
        map[v] = outs[i];
    }
    op.out = push_edges(dst, outs, from->nout);
    if (from->work != GW_NONE) op.work = copy_value(dst, src, from->work, id, map);
    op.after = (uint32_t)dst->edges.count;
    op.nafter = 0; /* op numbers change: the pass that orders streams sets these anew */
    copy_attrs(dst, &op, src, from);
    gw_vec_push(&dst->ops, op);
    return id;
}

void gw_graph_add_state(gw_graph *g, gw_vid start, gw_vid end) {
    gw_state s = {start, end};
    gw_vec_push(&g->states, s);
}

gw_vid gw_value_root(const gw_graph *g, gw_vid v) {
    while (g->values.items[v].tie != GW_NONE) v = g->values.items[v].tie;
    return v;
}

static int64_t bucket_of(const gw_graph *g, const gw_op *o) {
    const gw_opdef *def = gw_op_def(g, o);
    if (!(def->traits & GW_OP_COLLECTIVE)) return 0;
    for (int i = 0; i < def->nattrs; i++)
        if (strcmp(def->attrs[i].name, "bucket") == 0) return gw_op_attr(g, o, i).i;
    return 0;
}

void gw_graph_bucket(const gw_graph *g, gw_oid o, int64_t *first, int64_t *last) {
    *first = *last = o;
    const gw_op *op = &g->ops.items[o];
    int64_t id = bucket_of(g, op);
    if (id == 0) return;
    while (*first > 0 && g->ops.items[*first - 1].code == op->code &&
           bucket_of(g, &g->ops.items[*first - 1]) == id)
        --*first;
    while (*last + 1 < g->ops.count && g->ops.items[*last + 1].code == op->code &&
           bucket_of(g, &g->ops.items[*last + 1]) == id)
        ++*last;
}

int64_t gw_graph_copy_end(const gw_graph *g, gw_oid o) {
    int64_t i = o, n = g->ops.count;
    while (i < n && g->ops.items[i].stream == GW_STREAM_COPY &&
           g->ops.items[i].rate == g->ops.items[o].rate)
        i++;
    while (i < n && g->ops.items[i].stream != GW_STREAM_COPY &&
           g->ops.items[i].rate == g->ops.items[o].rate)
        i++;
    return i < n && g->ops.items[i].rate != g->ops.items[o].rate ? i - 1 : i;
}

int64_t gw_value_view_bytes(const gw_graph *g, gw_vid v, int64_t rank) {
    const gw_type *t = gw_type_of(g, v);
    if (!t->flat || gw_type_of(g, gw_value_root(g, v))->flat) return 0;
    return gw_type_flat_first(t, &g->mesh, rank) * gw_dtype_bits((gw_dtype)t->dtype) / 8;
}

void gw_graph_loop(const gw_graph *g, gw_oid *first, gw_oid *end) {
    gw_oid n = (gw_oid)g->ops.count;
    *first = *end = n;
    for (gw_oid i = 0; i < n; i++) {
        const gw_op *o = &g->ops.items[i];
        if (o->rate == GW_RATE_MB && *first == n) *first = i;
        if (o->rate == GW_RATE_MB || (o->part && *first < n)) *end = i + 1;
    }
}

gw_vid gw_graph_find(const gw_graph *g, gw_role role, const char *name) {
    for (int64_t i = 0; i < g->values.count; i++) {
        const gw_value *v = &g->values.items[i];
        if (v->role == role && v->def == GW_NONE && strcmp(gw_graph_str(g, v->name), name) == 0)
            return (gw_vid)i;
    }
    return GW_NONE;
}

/* ---- comparing ---- */

static bool same_type(const gw_type *a, const gw_type *b) {
    if (a->dtype != b->dtype || a->flat != b->flat || a->flat_axes != b->flat_axes) return false;
    if (a->psum != b->psum || a->pmax != b->pmax || !gw_type_same_dims(a, b)) return false;
    for (int i = 0; i < a->ndim; i++) {
        const gw_dim *x = &a->dims[i], *y = &b->dims[i];
        if (!gw_dim_same_cut(x, y)) return false;
    }
    return true;
}

static bool same_value(const gw_graph *a, const gw_graph *b, int64_t i) {
    const gw_value *x = &a->values.items[i], *y = &b->values.items[i];
    return same_type(&x->type, &y->type) && x->role == y->role && x->cause == y->cause &&
           x->mem == y->mem && x->rate == y->rate && x->out == y->out && x->def == y->def &&
           x->tie == y->tie && x->offset == y->offset &&
           strcmp(gw_graph_str(a, x->name), gw_graph_str(b, y->name)) == 0;
}

static bool same_attrs(const gw_graph *a, const gw_op *x, const gw_graph *b, const gw_op *y) {
    const gw_opdef *def = gw_op_def(a, x);
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr p = gw_op_attr(a, x, i), q = gw_op_attr(b, y, i);
        if (def->attrs[i].kind == GW_ATTR_STR) {
            if (strcmp(gw_graph_str(a, p.s), gw_graph_str(b, q.s)) != 0) return false;
        } else if (def->attrs[i].kind == GW_ATTR_FLOAT) {
            if (memcmp(&p.f, &q.f, sizeof p.f) != 0) return false;
        } else if (p.i != q.i) {
            return false;
        }
    }
    return true;
}

static bool same_edges(const gw_graph *a, uint32_t x, const gw_graph *b, uint32_t y, int n) {
    return n == 0 ||
           memcmp(a->edges.items + x, b->edges.items + y, sizeof(uint32_t) * (size_t)n) == 0;
}

static bool same_op(const gw_graph *a, const gw_graph *b, int64_t i) {
    const gw_op *x = &a->ops.items[i], *y = &b->ops.items[i];
    return x->code == y->code && x->phase == y->phase && x->rate == y->rate &&
           x->stream == y->stream && x->flags == y->flags && x->nin == y->nin &&
           x->nout == y->nout && x->nafter == y->nafter && x->work == y->work &&
           x->stage == y->stage && x->part == y->part && same_edges(a, x->in, b, y->in, x->nin) &&
           same_edges(a, x->out, b, y->out, x->nout) &&
           same_edges(a, x->after, b, y->after, x->nafter) &&
           strcmp(gw_graph_str(a, x->scope), gw_graph_str(b, y->scope)) == 0 &&
           same_attrs(a, x, b, y);
}

static bool same_mesh(const gw_mesh *a, const gw_mesh *b) {
    if (a->naxes != b->naxes) return false;
    for (int i = 0; i < a->naxes; i++)
        if (a->axes[i].size != b->axes[i].size || strcmp(a->axes[i].name, b->axes[i].name) != 0)
            return false;
    return true;
}

static bool same_action(gw_action a, gw_action b) {
    return a.act == b.act && a.stage == b.stage && a.micro == b.micro;
}

bool gw_graph_equal(const gw_graph *a, const gw_graph *b, char *why, int n) {
#define DIFFERENT(...)                                                                             \
    do {                                                                                           \
        snprintf(why, (size_t)n, __VA_ARGS__);                                                     \
        return false;                                                                              \
    } while (0)
    if (!same_mesh(&a->mesh, &b->mesh)) DIFFERENT("the meshes differ");
    if (a->micro_batches != b->micro_batches) DIFFERENT("micro-batch counts differ");
    if (memcmp(a->arena_bytes, b->arena_bytes, sizeof a->arena_bytes) != 0)
        DIFFERENT("arena sizes differ");
    if (a->values.count != b->values.count) DIFFERENT("value counts differ");
    if (a->ops.count != b->ops.count) DIFFERENT("op counts differ");
    if (a->states.count != b->states.count) DIFFERENT("state counts differ");
    if (a->actions.count != b->actions.count) DIFFERENT("action counts differ");
    for (int64_t i = 0; i < a->actions.count; i++)
        if (!same_action(a->actions.items[i], b->actions.items[i]))
            DIFFERENT("action %lld differs", (long long)i);
    for (int64_t i = 0; i < a->values.count; i++)
        if (!same_value(a, b, i)) DIFFERENT("value %%%lld differs", (long long)i);
    for (int64_t i = 0; i < a->ops.count; i++)
        if (!same_op(a, b, i))
            DIFFERENT("op %lld (%s) differs", (long long)i, gw_op_def(a, &a->ops.items[i])->name);
    for (int64_t i = 0; i < a->states.count; i++)
        if (a->states.items[i].start != b->states.items[i].start ||
            a->states.items[i].end != b->states.items[i].end)
            DIFFERENT("state %lld differs", (long long)i);
#undef DIFFERENT
    return true;
}

/* Hashes content in a form that does not depend on interning order or padding. */
static void hash_text(gw_hasher *h, const char *s) { gw_hasher_add(h, s, strlen(s) + 1); }

static void hash_i64(gw_hasher *h, int64_t x) { gw_hasher_add(h, &x, sizeof x); }

static void hash_value(gw_hasher *h, const gw_graph *g, const gw_value *v) {
    const gw_type *t = &v->type;
    hash_i64(h, t->dtype | t->ndim << 8 | t->flat << 16);
    hash_i64(h, (int64_t)t->flat_axes);
    hash_i64(h, (int64_t)t->psum | (int64_t)t->pmax << 32);
    for (int i = 0; i < t->ndim; i++) {
        gw_hasher_add(h, t->dims[i].name, sizeof t->dims[i].name);
        hash_i64(h, t->dims[i].size);
        hash_i64(h, t->dims[i].naxes | t->dims[i].shard << 8 | gw_dim_outer(&t->dims[i]) << 16 |
                        (int64_t)t->dims[i].turn << 24);
        gw_hasher_add(h, t->dims[i].axes, t->dims[i].naxes);
    }
    hash_i64(h, v->role | v->cause << 8 | v->mem << 16 | v->rate << 24);
    hash_i64(h, v->out);
    hash_i64(h, v->def);
    hash_i64(h, v->tie);
    hash_i64(h, v->offset);
    hash_text(h, gw_graph_str(g, v->name));
}

static void hash_op(gw_hasher *h, const gw_graph *g, const gw_op *o) {
    const gw_opdef *def = gw_op_def(g, o);
    hash_text(h, def->name);
    hash_i64(h, o->phase | o->rate << 8 | o->stream << 16 | o->flags << 24);
    hash_i64(h, o->nin | (int64_t)o->nout << 16 | (int64_t)o->nafter << 32);
    for (int i = 0; i < o->nin; i++) hash_i64(h, gw_op_in(g, o, i));
    for (int i = 0; i < o->nout; i++) hash_i64(h, gw_op_out(g, o, i));
    for (int i = 0; i < o->nafter; i++) hash_i64(h, g->edges.items[o->after + (uint32_t)i]);
    hash_i64(h, o->work);
    hash_i64(h, o->stage | (int64_t)o->part << 32);
    hash_text(h, gw_graph_str(g, o->scope));
    for (int i = 0; i < def->nattrs; i++) {
        gw_attr a = gw_op_attr(g, o, i);
        if (def->attrs[i].kind == GW_ATTR_STR)
            hash_text(h, gw_graph_str(g, a.s));
        else
            hash_i64(h, a.i);
    }
}

gw_hash128 gw_graph_hash(const gw_graph *g) {
    gw_hasher *h = gw_hasher_new();
    hash_i64(h, g->micro_batches);
    for (int i = 0; i < g->mesh.naxes; i++) {
        hash_text(h, g->mesh.axes[i].name);
        hash_i64(h, g->mesh.axes[i].size);
    }
    for (int64_t i = 0; i < g->values.count; i++) hash_value(h, g, &g->values.items[i]);
    for (int64_t i = 0; i < g->ops.count; i++) hash_op(h, g, &g->ops.items[i]);
    for (int64_t i = 0; i < g->states.count; i++) {
        hash_i64(h, g->states.items[i].start);
        hash_i64(h, g->states.items[i].end);
    }
    for (int64_t i = 0; i < g->actions.count; i++) {
        gw_action a = g->actions.items[i];
        hash_i64(h, a.act | (int64_t)(uint16_t)a.stage << 8 | (int64_t)a.micro << 32);
    }
    for (int i = 0; i < GW_MEM_COUNT; i++) hash_i64(h, g->arena_bytes[i]);
    gw_hash128 r = gw_hasher_get(h);
    gw_hasher_free(h);
    return r;
}

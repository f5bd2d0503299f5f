// SPDX-License-Identifier: Apache-2.0
// Cuts products and the gathers or scatters of tokens beside them into pieces, so that one piece
// travels while another is computed. Does nothing unless layout.tp_chunks is above 1.
//
// Under sequence parallelism two patterns stand around each product. Each becomes N = tp_chunks
// pieces of the sequence; T is the number of tensor-parallel ranks:
//
//   gather   X = all_gather x; y = matmul X, w (one or several of them: q, k and v, gate and up)
//            x_j = take x; g_j = all_gather x_j; y_j = matmul g_j, w;  y = weave y_0 ... {groups=T}
//            The gather of piece j+1 stands before the products of piece j.
//   scatter  p = matmul a, w; r = reduce_scatter p (p may be a sum of such products: of the
//            gradients that q, k and v send back)
//            a_j = take a {groups=T}; p_j = matmul a_j, w; r_j = reduce_scatter p_j; r = weave r_0
//            ... The scatter of piece j stands right behind its product, on the stream of tp.
//
// Rows of a product do not depend on each other and sums are taken in the same order, so results
// are those of the whole. What is sent is cut, not changed: the pieces' bytes add up to the
// whole's, in N times as many messages. No dependency is added beyond what each op reads.
//
// Who else reads a gathered X (a weight gradient, which contracts the sequence and stays whole;
// experts) reads a weave of the g_j: a copy on the rank, nothing is sent twice.
//
// Products of one gather run piece by piece together, at the place of the first; what their other
// inputs need (weights gathered at their use) is made before it. The products of one scatter run at
// the place of the scatter. A value whose bytes another takes over is not read later than it was:
// there the pattern stays whole.
//
// Memory: the pieces of a result live until they are woven, so at most the largest value that is
// woven comes on top, and two pieces of x.
//
// What must hold of sizes: N divides what a rank has of a sequence (of each of its two runs, in
// zigzags). Otherwise the pass refuses, naming the numbers that would do.
#include <stdio.h>
#include <string.h>

#include "base/panic.h"     /* GW_ASSERT */
#include "ops/conversion.h" /* gw_conversion_of */
#include "pass/pass.h"

enum { MOST_DEEP = 12, MOST_TERMS = 16, MOST_PIECES = 64 };

typedef struct unit {
    gw_oid collective;
    bool gathers;
    bool woven;           /* gathers: something reads the whole one */
    int64_t groups;       /* ranks */
    int64_t first, count; /* gathers: of `products` */
    uint32_t next;        /* another unit made at the same place, GW_NONE at the end */
} unit;

typedef struct taken {
    gw_vid from, to;
} taken;

typedef struct chunker {
    const gw_graph *src;
    gw_graph *dst;
    gw_diags *dg;
    int64_t pieces;
    uint32_t tp;
    gw_vid *map;       /* [src values] */
    uint32_t *read_at; /* [src values + 1]: first of its readers in `readers` */
    gw_oid *readers;   /* in program order */
    bool *tied;        /* [src values]: another value takes over its bytes */
    bool *claimed;     /* [src ops]: made by a unit, not where it stands */
    bool *early;       /* [src ops]: made already, for a unit */
    uint32_t *unit_at; /* [src ops]: the first unit made before it */
    GW_VEC(unit) units;
    GW_VEC(gw_oid) products;
    GW_VEC(taken) takes; /* of the piece that is being made */
} chunker;

static const gw_value *value_of(const chunker *c, gw_vid v) { return &c->src->values.items[v]; }

static int rows_of(const gw_type *t) { return gw_type_find(t, "s"); }

static int64_t readers_of(const chunker *c, gw_vid v) { return c->read_at[v + 1] - c->read_at[v]; }

/* ---- what is there ---- */

/* May its readers come later? */
static bool lasts(const chunker *c, gw_vid v) { return !c->tied[v]; }

/* And its definition come at another place? */
static bool is_free(const chunker *c, gw_vid v) {
    return lasts(c, v) && value_of(c, v)->tie == GW_NONE;
}

/* Only read by others of the loop: no result of its own, not a part of bytes that persist. */
static bool is_inner(const chunker *c, gw_vid v) {
    const gw_value *x = value_of(c, v);
    return is_free(c, v) && x->name == 0 && x->def != GW_NONE && x->rate == GW_RATE_MB;
}

/* A product each row of which is of one row of its input 0. */
static bool is_row_product(const chunker *c, gw_oid i) {
    const gw_graph *g = c->src;
    const gw_op *o = &g->ops.items[i];
    if (!gw_op_is(g, o, "matmul") || o->rate != GW_RATE_MB || c->claimed[i]) return false;
    const gw_type *y = gw_type_of(g, gw_op_out(g, o, 0));
    bool rows = rows_of(gw_type_of(g, gw_op_in(g, o, 0))) >= 0 && rows_of(y) >= 0;
    return rows && rows_of(gw_type_of(g, gw_op_in(g, o, 1))) < 0 &&
           value_of(c, gw_op_out(g, o, 0))->tie == GW_NONE;
}

/* Is op i a collective called `name` that brings or takes a cut of tokens over tp, as rows? */
static bool moves_tokens(const chunker *c, gw_oid i, const char *name, int64_t *groups) {
    const gw_graph *g = c->src;
    const gw_op *o = &g->ops.items[i];
    gw_conversion conv;
    if (!gw_op_is(g, o, name) || o->rate != GW_RATE_MB) return false;
    gw_status st = gw_conversion_of(g, o, &conv, NULL);
    GW_ASSERT(st == GW_OK);
    int dim = GW_MAX(conv.from, conv.to);
    if (dim < 0 || conv.flat || conv.nesting != GW_NEST_ROWS) return false;
    if (strcmp(gw_type_of(g, gw_op_in(g, o, 0))->dims[dim].name, "s") != 0) return false;
    *groups = gw_mesh_size(&g->mesh, conv.axes);
    return conv.axes != 0 && !(conv.axes & ~c->tp);
}

/* Can v be had before op `at`? Perhaps by making what makes it earlier. */
static bool can_precede(const chunker *c, gw_vid v, gw_oid at, int deep) {
    if (v == GW_NONE) return true;
    gw_oid d = value_of(c, v)->def;
    if (d == GW_NONE || d < at) return true;
    const gw_op *o = &c->src->ops.items[d];
    if (deep >= MOST_DEEP || c->claimed[d]) return false;
    for (int k = 0; k < (int)o->nout; k++)
        if (!is_free(c, gw_op_out(c->src, o, k))) return false;
    for (int k = 0; k < (int)o->nin; k++)
        if (!can_precede(c, gw_op_in(c->src, o, k), at, deep + 1)) return false;
    return true;
}

static void add_unit(chunker *c, unit u, gw_oid at) {
    u.next = c->unit_at[at];
    c->unit_at[at] = (uint32_t)c->units.count;
    c->claimed[u.collective] = true;
    gw_vec_push(&c->units, u);
}

static void look_at_gather(chunker *c, gw_oid i) {
    const gw_op *o = &c->src->ops.items[i];
    unit u = {.collective = i, .gathers = true, .first = c->products.count};
    if (!moves_tokens(c, i, "all_gather", &u.groups)) return;
    gw_vid x = gw_op_out(c->src, o, 0);
    if (!is_inner(c, x) || !lasts(c, gw_op_in(c->src, o, 0)) || readers_of(c, x) == 0) return;
    gw_oid at = c->readers[c->read_at[x]];
    for (uint32_t k = c->read_at[x]; k < c->read_at[x + 1]; k++) {
        gw_oid r = c->readers[k];
        const gw_op *p = &c->src->ops.items[r];
        bool product = is_row_product(c, r) && gw_op_in(c->src, p, 0) == x;
        for (int n = 1; product && n < (int)p->nin; n++)
            product = can_precede(c, gw_op_in(c->src, p, n), at, 0);
        if (product)
            gw_vec_push(&c->products, r);
        else
            u.woven = true;
    }
    u.count = c->products.count - u.first;
    if (u.count == 0) return;
    for (int64_t k = 0; k < u.count; k++) c->claimed[c->products.items[u.first + k]] = true;
    add_unit(c, u, at);
}

static bool is_sum(const chunker *c, gw_oid d) {
    const gw_op *o = &c->src->ops.items[d];
    bool sum = gw_op_is(c->src, o, "add") || gw_op_is(c->src, o, "addn");
    return sum && o->nin <= MOST_TERMS && !c->claimed[d];
}

/* Products that v, which only `reader` reads, is the sum of; -1: it has to stay as it is. */
static int products_in(const chunker *c, gw_vid v, int deep) {
    if (!lasts(c, v)) return -1;
    gw_oid d = value_of(c, v)->def;
    if (!is_inner(c, v) || readers_of(c, v) != 1 || deep >= MOST_DEEP) return 0;
    const gw_op *o = &c->src->ops.items[d];
    if (is_row_product(c, d)) return lasts(c, gw_op_in(c->src, o, 0)) ? 1 : 0;
    int n = 0;
    for (int k = 0; is_sum(c, d) && k < (int)o->nin; k++) {
        int m = products_in(c, gw_op_in(c->src, o, k), deep + 1);
        if (m < 0) return -1;
        n += m;
    }
    return n;
}

static void claim_sum(chunker *c, gw_vid v, int deep) {
    if (products_in(c, v, deep) <= 0) return;
    gw_oid d = value_of(c, v)->def;
    const gw_op *o = &c->src->ops.items[d];
    if (is_sum(c, d))
        for (int k = 0; k < (int)o->nin; k++) claim_sum(c, gw_op_in(c->src, o, k), deep + 1);
    c->claimed[d] = true;
}

static void look_at_scatter(chunker *c, gw_oid i) {
    const gw_op *o = &c->src->ops.items[i];
    unit u = {.collective = i};
    if (!moves_tokens(c, i, "reduce_scatter", &u.groups)) return;
    gw_vid p = gw_op_in(c->src, o, 0);
    if (value_of(c, gw_op_out(c->src, o, 0))->tie != GW_NONE) return;
    if (products_in(c, p, 0) <= 0) return;
    claim_sum(c, p, 0);
    add_unit(c, u, i);
}

static void find_readers(chunker *c, gw_arena *mem) {
    const gw_graph *g = c->src;
    int64_t n = g->values.count;
    c->read_at = gw_arena_new(mem, uint32_t, n + 2);
    c->readers = gw_arena_new(mem, gw_oid, g->edges.count + 1);
    for (int64_t i = 0; i < g->ops.count; i++)
        for (int k = 0; k < (int)g->ops.items[i].nin; k++) {
            gw_vid v = gw_op_in(g, &g->ops.items[i], k);
            if (v != GW_NONE) c->read_at[v + 2]++;
        }
    for (int64_t v = 0; v < n; v++) c->read_at[v + 2] += c->read_at[v + 1];
    for (int64_t i = 0; i < g->ops.count; i++)
        for (int k = 0; k < (int)g->ops.items[i].nin; k++) {
            gw_vid v = gw_op_in(g, &g->ops.items[i], k);
            if (v != GW_NONE) c->readers[c->read_at[v + 1]++] = (gw_oid)i;
        }
    for (int64_t v = 0; v < n; v++)
        if (g->values.items[v].tie != GW_NONE) c->tied[g->values.items[v].tie] = true;
}

/* ---- sizes ---- */

static gw_status refuse_size(const chunker *c, int64_t size, int64_t parts) {
    gw_diag *d = gw_diag_add(
        c->dg, GW_ERROR, GW_ERR_CONFIG, "chunk-size", (gw_where){0},
        "layout.tp_chunks %lld does not divide the %lld tokens of a part: sequences of "
        "%lld tokens are cut into %lld parts",
        (long long)c->pieces, (long long)(size / parts), (long long)size, (long long)parts);
    char can[160] = "1";
    for (int64_t n = 2; n <= MOST_PIECES; n++) {
        size_t at = strlen(can);
        if (size / parts % n == 0 && at < sizeof can - 8)
            snprintf(can + at, sizeof can - at, ", %lld", (long long)n);
    }
    int64_t step = c->pieces * parts;
    gw_diag_hint(c->dg, d, "possible: %s; or set train.seq_len to a multiple of %lld, such as %lld",
                 can, (long long)step, (long long)((size + step - 1) / step * step));
    return GW_ERR_CONFIG;
}

/* The finer of a unit's two types has rows for all pieces on every rank. */
static gw_status check_size(const chunker *c, const unit *u) {
    const gw_op *o = &c->src->ops.items[u->collective];
    const gw_type *t =
        gw_type_of(c->src, u->gathers ? gw_op_in(c->src, o, 0) : gw_op_out(c->src, o, 0));
    const gw_dim *d = &t->dims[rows_of(t)];
    int64_t parts = gw_mesh_size(&c->src->mesh, gw_dim_axes(d));
    gw_type piece = *t, two = *t;
    two.dims[rows_of(t)].size = parts; /* one a rank: uneven where a rank has two runs */
    if (!gw_type_even(&two, rows_of(t), &c->src->mesh)) parts *= 2;
    piece.dims[rows_of(t)].size /= c->pieces;
    bool fits = d->size % c->pieces == 0 && gw_type_even(&piece, rows_of(t), &c->src->mesh);
    return fits ? GW_OK : refuse_size(c, d->size, parts);
}

/* ---- making ops ---- */

static gw_type piece_of(const chunker *c, gw_vid v) {
    gw_type t = *gw_type_of(c->src, v);
    t.dims[rows_of(&t)].size /= c->pieces;
    return t;
}

/* Like op `i` of src, on other inputs, with this result. */
static gw_vid make_like(chunker *c, gw_oid i, const gw_vid *in, const gw_type *t) {
    const gw_graph *g = c->src;
    const gw_op *o = &g->ops.items[i];
    const gw_opdef *def = gw_op_def(g, o);
    gw_attr a[GW_MAX_ATTRS] = {{0}};
    for (int k = 0; k < def->nattrs; k++) {
        a[k] = gw_op_attr(g, o, k);
        if (def->attrs[k].kind == GW_ATTR_STR)
            a[k].s = gw_graph_intern(c->dst, gw_graph_str(g, a[k].s));
    }
    gw_sid scope = gw_graph_intern(c->dst, gw_graph_str(g, o->scope));
    gw_oid n = gw_graph_op(c->dst, o->code, in, o->nin, a, t, 1, (gw_phase)o->phase,
                           (gw_rate)o->rate, scope);
    gw_op *made = &c->dst->ops.items[n];
    made->stream = o->stream;
    made->flags = o->flags;
    made->stage = o->stage;
    gw_vid v = gw_op_out(c->dst, made, 0);
    c->dst->values.items[v].cause = value_of(c, gw_op_out(g, o, 0))->cause;
    return v;
}

/* A copy of rows in the phase and scope of op `i`; `name` with these attributes. */
static gw_vid make_copy(chunker *c, const char *name, gw_oid i, const gw_vid *in, int nin,
                        const gw_attr *a, const gw_type *t) {
    const gw_op *o = &c->src->ops.items[i];
    int code = gw_optable_find(c->dst->table, name);
    GW_ASSERT(code >= 0);
    gw_sid scope = gw_graph_intern(c->dst, gw_graph_str(c->src, o->scope));
    gw_oid n = gw_graph_op(c->dst, (uint16_t)code, in, nin, a, t, 1, (gw_phase)o->phase,
                           (gw_rate)o->rate, scope);
    c->dst->ops.items[n].stage = o->stage;
    return gw_op_out(c->dst, &c->dst->ops.items[n], 0);
}

/* Piece j of v, for op i. Asked for again for the same piece, it is not made again. */
static gw_vid take(chunker *c, gw_vid v, int64_t j, int64_t groups, gw_oid i) {
    for (int64_t k = 0; k < c->takes.count; k++)
        if (c->takes.items[k].from == v) return c->takes.items[k].to;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(c->dst->table, "take", a);
    gw_attrs_set(c->dst->table, "take", a, "part", (gw_attr){.i = j});
    gw_attrs_set(c->dst->table, "take", a, "parts", (gw_attr){.i = c->pieces});
    gw_attrs_set(c->dst->table, "take", a, "groups", (gw_attr){.i = groups});
    gw_type t = piece_of(c, v);
    gw_vid y = make_copy(c, "take", i, &c->map[v], 1, a, &t);
    c->dst->values.items[y].cause = value_of(c, v)->cause;
    gw_vec_push(&c->takes, ((taken){.from = v, .to = y}));
    return y;
}

/* The pieces as what op i of src made, with its name and the rest. */
static void weave(chunker *c, gw_oid i, const gw_vid *pieces, int64_t groups) {
    gw_vid v = gw_op_out(c->src, &c->src->ops.items[i], 0);
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(c->dst->table, "weave", a);
    gw_attrs_set(c->dst->table, "weave", a, "groups", (gw_attr){.i = groups});
    const gw_value *old = value_of(c, v);
    c->map[v] = make_copy(c, "weave", i, pieces, (int)c->pieces, a, &old->type);
    gw_value *x = &c->dst->values.items[c->map[v]];
    x->role = old->role;
    x->cause = old->cause;
    if (old->name) x->name = gw_graph_intern(c->dst, gw_graph_str(c->src, old->name));
}

/* ---- units ---- */

/* Makes what makes v, where that stands at or behind `at`. */
static void precede(chunker *c, gw_vid v, gw_oid at) {
    if (v == GW_NONE) return;
    gw_oid d = value_of(c, v)->def;
    if (d == GW_NONE || d < at || c->early[d]) return;
    const gw_op *o = &c->src->ops.items[d];
    for (int k = 0; k < (int)o->nin; k++) precede(c, gw_op_in(c->src, o, k), at);
    (void)gw_graph_copy_op(c->dst, c->src, d, c->map);
    c->early[d] = true;
}

static gw_vid gather_piece(chunker *c, const unit *u, int64_t j) {
    const gw_op *o = &c->src->ops.items[u->collective];
    c->takes.count = 0;
    gw_vid x = take(c, gw_op_in(c->src, o, 0), j, 1, u->collective);
    gw_type t = piece_of(c, gw_op_out(c->src, o, 0));
    return make_like(c, u->collective, &x, &t);
}

/* Product i with its input 0 replaced by a piece. */
static gw_vid product_piece(chunker *c, gw_oid i, gw_vid piece) {
    const gw_op *o = &c->src->ops.items[i];
    gw_vid in[GW_MAX_IN];
    GW_ASSERT(o->nin <= GW_MAX_IN);
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(c->src, o, k);
        in[k] = k == 0 ? piece : v == GW_NONE ? GW_NONE : c->map[v];
    }
    gw_type t = piece_of(c, gw_op_out(c->src, o, 0));
    return make_like(c, i, in, &t);
}

static void make_gather(chunker *c, const unit *u, gw_oid at, gw_arena *mem) {
    const gw_oid *products = c->products.items + u->first;
    gw_vid *g = gw_arena_new(mem, gw_vid, c->pieces);
    gw_vid *y = gw_arena_new(mem, gw_vid, c->pieces * u->count);
    for (int64_t k = 0; k < u->count; k++) {
        const gw_op *o = &c->src->ops.items[products[k]];
        for (int n = 1; n < (int)o->nin; n++) precede(c, gw_op_in(c->src, o, n), at);
    }
    g[0] = gather_piece(c, u, 0);
    for (int64_t j = 0; j < c->pieces; j++) {
        if (j + 1 < c->pieces) g[j + 1] = gather_piece(c, u, j + 1);
        for (int64_t k = 0; k < u->count; k++)
            y[k * c->pieces + j] = product_piece(c, products[k], g[j]);
    }
    for (int64_t k = 0; k < u->count; k++) weave(c, products[k], y + k * c->pieces, u->groups);
    if (u->woven) weave(c, u->collective, g, u->groups);
}

/* Piece j of v, a sum of products in part. */
static gw_vid sum_piece(chunker *c, const unit *u, gw_vid v, int64_t j) {
    gw_oid d = value_of(c, v)->def;
    bool ours = d != GW_NONE && c->claimed[d] && readers_of(c, v) == 1 && c->map[v] == GW_NONE;
    if (!ours) return take(c, v, j, u->groups, u->collective);
    const gw_op *o = &c->src->ops.items[d];
    if (gw_op_is(c->src, o, "matmul"))
        return product_piece(c, d, take(c, gw_op_in(c->src, o, 0), j, u->groups, d));
    gw_vid in[MOST_TERMS];
    for (int k = 0; k < (int)o->nin; k++) in[k] = sum_piece(c, u, gw_op_in(c->src, o, k), j);
    gw_type t = piece_of(c, v);
    return make_like(c, d, in, &t);
}

static void make_scatter(chunker *c, const unit *u, gw_arena *mem) {
    const gw_op *o = &c->src->ops.items[u->collective];
    gw_vid *r = gw_arena_new(mem, gw_vid, c->pieces);
    gw_type t = piece_of(c, gw_op_out(c->src, o, 0));
    for (int64_t j = 0; j < c->pieces; j++) {
        c->takes.count = 0;
        gw_vid p = sum_piece(c, u, gw_op_in(c->src, o, 0), j);
        r[j] = make_like(c, u->collective, &p, &t);
    }
    weave(c, u->collective, r, 1);
}

/* ---- the pass ---- */

static gw_status find_units(chunker *c) {
    const gw_graph *g = c->src;
    bool narrow = false;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        look_at_gather(c, i);
        narrow |= gw_op_is(g, &g->ops.items[i], "fp8_matmul");
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) look_at_scatter(c, i);
    if (c->units.count == 0 || narrow) {
        gw_diag *d = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "chunk-none", (gw_where){0},
                                 "layout.tp_chunks %lld: %s", (long long)c->pieces,
                                 narrow ? "products in eight bits are not cut into pieces"
                                        : "no product stands beside a gather or scatter of tokens");
        gw_diag_hint(c->dg, d, "set layout.tp_chunks to 1%s",
                     narrow ? ", or leave precision.products as compute has it" : "");
        return GW_ERR_CONFIG;
    }
    for (int64_t k = 0; k < c->units.count; k++) GW_TRY(check_size(c, &c->units.items[k]));
    return GW_OK;
}

static void rewrite(chunker *c, gw_arena *mem) {
    const gw_graph *g = c->src;
    for (int64_t v = 0; v < g->values.count; v++) {
        c->map[v] = GW_NONE;
        if (g->values.items[v].def == GW_NONE) c->map[v] = gw_graph_copy_leaf(c->dst, g, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        for (uint32_t k = c->unit_at[i]; k != GW_NONE; k = c->units.items[k].next) {
            const unit *u = &c->units.items[k];
            if (u->gathers)
                make_gather(c, u, i, mem);
            else
                make_scatter(c, u, mem);
        }
        if (!c->claimed[i] && !c->early[i]) (void)gw_graph_copy_op(c->dst, g, i, c->map);
    }
    for (int64_t i = 0; i < g->states.count; i++) {
        const gw_state *s = &g->states.items[i];
        gw_graph_add_state(c->dst, c->map[s->start], c->map[s->end]);
    }
}

gw_status gw_pass_chunk(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)report;
    uint32_t tp = gw_mesh_group(&src->mesh, "tp");
    if (opts->layout.tp_chunks <= 1 || !opts->layout.sequence_parallel || !tp) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_arena mem = {0};
    chunker c = {.src = src, .dst = dst, .dg = dg, .tp = tp};
    c.pieces = opts->layout.tp_chunks;
    c.map = gw_arena_new(&mem, gw_vid, src->values.count + 1);
    c.tied = gw_arena_new(&mem, bool, src->values.count + 1);
    c.claimed = gw_arena_new(&mem, bool, src->ops.count + 1);
    c.early = gw_arena_new(&mem, bool, src->ops.count + 1);
    c.unit_at = gw_arena_new(&mem, uint32_t, src->ops.count + 1);
    for (int64_t i = 0; i < src->ops.count; i++) c.unit_at[i] = GW_NONE;
    find_readers(&c, &mem);
    gw_status st = find_units(&c);
    if (st == GW_OK) {
        gw_graph_begin(dst, src);
        rewrite(&c, &mem);
    }
    gw_vec_release(&c.units);
    gw_vec_release(&c.products);
    gw_vec_release(&c.takes);
    gw_arena_release(&mem);
    return st;
}

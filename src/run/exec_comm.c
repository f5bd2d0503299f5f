// SPDX-License-Identifier: Apache-2.0
// From collective ops to collectives.
//
// An op of trait GW_OP_COLLECTIVE has one input and one output, and their types say everything
// (ops/conversion.h): the sub-axes that come or go are the group; the elements are those of this
// rank. Neighbours that carry the same bucket number (gw_graph_bucket) are one fused collective,
// launched where the last of them stands. Values that a bucket reads or writes live from its first
// op to its last, which is the passes' matter.
//
// Along a dimension a rank's part is one run of memory in each row of the dimensions before it, so
// a gather or a scatter is a collective of as many tensors as there are rows, each cut in equal
// parts: nothing is packed. In a zigzag a row is two, and of the second the parts stand from the
// other end. An all-to-all exchanges blocks, and its rows are the opposite: what goes to one rank,
// or what comes from one, lies in pieces. One side is always together, so one copy through planned
// workspace is enough:
//
//   a loses, b gains, a before b   [o A m n B i] -> [o n A m B i], exchanged to [o nA m B i]
//   b before a                     [o n B m A i] exchanged, -> [o B m n A i]
//
// and none where the rows are one.
//
// The same function serves place (workspace is a value of the program), the plan (what is counted
// without running) and the executor (what runs), so that the three cannot disagree. The plan and
// the layout are those of rank 0, whose parts are the largest.
#include "run/exec_comm.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h"       /* gw_panic, GW_ASSERT */
#include "ops/conversion.h"   /* gw_conversion_of */
#include "run/exec_channel.h" /* gw_op_is_channel, gw_exec_box_bytes */
#include "run/exec_experts.h" /* gw_experts_ep_workspace */

bool gw_op_is_collective(const gw_graph *g, const gw_op *o) {
    return (gw_op_def(g, o)->traits & GW_OP_COLLECTIVE) != 0;
}

/* ---- one op ---- */

static gw_coll_kind kind_of(const gw_graph *g, const gw_op *o) {
    static const struct {
        const char *op;
        gw_coll_kind kind;
    } kinds[] = {{"all_reduce", GW_COLL_ALL_REDUCE},
                 {"reduce_scatter", GW_COLL_REDUCE_SCATTER},
                 {"all_gather", GW_COLL_ALL_GATHER},
                 {"all_to_all", GW_COLL_ALL_TO_ALL},
                 {"shift", GW_COLL_SHIFT}};
    const char *name = gw_op_def(g, o)->name;
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        if (strcmp(kinds[i].op, name) == 0) return kinds[i].kind;
    gw_panic("%s is a collective that no transport runs", name);
}

static gw_conversion conversion_of(const gw_graph *g, const gw_op *o) {
    gw_conversion c;
    if (gw_conversion_of(g, o, &c, NULL) != GW_OK)
        gw_panic("%s of %s is no conversion that can be run", gw_op_def(g, o)->name,
                 gw_graph_str(g, o->scope));
    return c;
}

/* A collective in the making. */
typedef struct making {
    const gw_graph *g;
    int64_t rank;
    gw_coll_kind kind;
    gw_coll_part *parts;
    gw_coll_place *places;
    gw_coll_pack pack;
    int n, op;
} making;

static void add_part(making *k, int64_t elems, int64_t src, int64_t dst, bool reversed) {
    if (k->parts) {
        k->parts[k->n] = (gw_coll_part){.elems = elems, .reversed = reversed};
        k->places[k->n] = (gw_coll_place){k->op, src, dst};
    }
    k->n++;
}

/* Local elements of the dimensions [lo, hi). */
static int64_t span(const making *k, const gw_type *t, int lo, int hi) {
    int64_t n = 1;
    for (int i = lo; i < hi; i++) n *= gw_type_local_dim(t, i, &k->g->mesh, k->rank);
    return n;
}

/* A gather or a scatter along dimension d, row by row. */
static void add_rows(making *k, const gw_type *in, const gw_type *out, int d, bool halves) {
    int64_t outer = span(k, in, 0, d), src = span(k, in, d, in->ndim);
    int64_t dst = span(k, out, d, out->ndim), whole = GW_MAX(src, dst);
    for (int64_t r = 0; r < outer && whole > 0; r++) {
        add_part(k, halves ? whole / 2 : whole, r * src, r * dst, false);
        if (halves) add_part(k, whole / 2, r * src + src / 2, r * dst + dst / 2, true);
    }
}

/* An exchange: dimension `from` loses what `to` gains. */
static void add_blocks(making *k, const gw_type *in, const gw_type *out, const gw_conversion *c) {
    bool forth = c->from < c->to; /* what is sent lies in pieces; otherwise what is received */
    int lo = GW_MIN(c->from, c->to), hi = GW_MAX(c->from, c->to);
    const gw_type *t = forth ? in : out;
    int64_t outer = span(k, in, 0, lo), each = span(k, in, lo, in->ndim);
    int64_t n = gw_mesh_size(&k->g->mesh, c->axes);
    k->pack = (gw_coll_pack){.outer = outer,
                             .n = n,
                             .rows = span(k, t, lo, hi),
                             .block = span(k, t, hi, t->ndim) / n,
                             .before = forth};
    if (k->pack.rows <= 1 || each == 0 || n == 1) k->pack.n = 0;
    for (int64_t o = 0; o < outer && each > 0; o++) add_part(k, each, o * each, o * each, false);
    GW_ASSERT(span(k, out, lo, out->ndim) == each);
}

static void add_op(making *k, const gw_op *o, const gw_conversion *c) {
    const gw_type *in = gw_type_of(k->g, gw_op_in(k->g, o, 0));
    const gw_type *out = gw_type_of(k->g, gw_op_out(k->g, o, 0));
    int d = c->from >= 0 ? c->from : c->to;
    if (k->kind == GW_COLL_ALL_TO_ALL && d >= 0)
        add_blocks(k, in, out, c);
    else if (k->kind != GW_COLL_SHIFT && !c->flat && d >= 0)
        add_rows(k, in, out, d, c->nesting == GW_NEST_HALVES);
    else
        add_part(
            k, gw_type_local_elems(k->kind == GW_COLL_ALL_GATHER ? out : in, &k->g->mesh, k->rank),
            0, 0, false);
}

/* The parts of ops[0..n), which must be of one kind, group and dtype. */
static void add_ops(making *k, const gw_coll *coll, const gw_oid *ops, int n) {
    for (k->op = 0, k->n = 0; k->op < n; k->op++) {
        const gw_op *o = &k->g->ops.items[ops[k->op]];
        gw_conversion c = conversion_of(k->g, o);
        if (c.axes != coll->axes || c.max != coll->max ||
            gw_type_of(k->g, gw_op_in(k->g, o, 0))->dtype != coll->dtype)
            gw_panic("a bucket of %s holds values of different groups or dtypes (%s)",
                     gw_op_def(k->g, o)->name, gw_graph_str(k->g, o->scope));
        add_op(k, o, &c);
        if (n > 1 && k->pack.n)
            gw_panic("a bucket of %s cannot be copied through workspace (%s)",
                     gw_op_def(k->g, o)->name, gw_graph_str(k->g, o->scope));
    }
}

static gw_coll read_coll(making *k, const gw_oid *ops, int n, gw_arena *a) {
    const gw_graph *g = k->g;
    const gw_op *o = &g->ops.items[ops[0]];
    const char *algorithm = gw_graph_str(g, gw_op_attr_named(g, o, "algorithm").s);
    gw_conversion first = conversion_of(g, o);
    gw_coll c = {.kind = kind_of(g, o),
                 .dtype = (gw_dtype)gw_type_of(g, gw_op_in(g, o, 0))->dtype,
                 .wire = (gw_wire)gw_op_attr_named(g, o, "wire").i,
                 .max = first.max,
                 .axes = first.axes,
                 .size = gw_mesh_size(&g->mesh, first.axes),
                 .scope = gw_graph_str(g, o->scope),
                 .algorithm = *algorithm ? algorithm : NULL};
    k->kind = c.kind;
    add_ops(k, &c, ops, n); /* counts them */
    k->parts = gw_arena_new(a, gw_coll_part, k->n + 1);
    k->places = gw_arena_new(a, gw_coll_place, k->n + 1);
    add_ops(k, &c, ops, n);
    c.nparts = k->n;
    c.parts = k->parts;
    return c;
}

gw_coll gw_exec_coll(const gw_graph *g, const gw_oid *ops, int n, int64_t rank, gw_arena *a) {
    making k = {.g = g, .rank = rank};
    return read_coll(&k, ops, n, a);
}

/* ---- groups ---- */

int64_t gw_exec_group_rank(const gw_mesh *mesh, uint32_t axes, int64_t rank) {
    int64_t at = 0;
    for (int i = 0; i < mesh->naxes; i++)
        if (axes >> i & 1u) at = at * mesh->axes[i].size + gw_mesh_coord(mesh, rank, i);
    return at;
}

/* Ranks of a host are neighbours: rank 0's group has as many members there as its numbers below
 * per_host. */
static int64_t members_below(const gw_mesh *mesh, uint32_t axes, int64_t limit) {
    int64_t size = gw_mesh_size(mesh, axes), count = 0;
    for (int64_t k = 0; k < size; k++) {
        int64_t rank = 0, stride = 1, rest = k;
        for (int i = mesh->naxes - 1; i >= 0; i--) {
            if (axes >> i & 1u) {
                rank += rest % mesh->axes[i].size * stride;
                rest /= mesh->axes[i].size;
            }
            stride *= mesh->axes[i].size;
        }
        count += rank < limit;
    }
    return count;
}

gw_coll_machine gw_exec_group_machine(const gw_coll_machine *m, const gw_mesh *mesh,
                                      uint32_t axes) {
    gw_coll_machine r = *m;
    int64_t size = gw_mesh_size(mesh, axes);
    int64_t host = m->per_host > 0 ? m->per_host : gw_mesh_ranks(mesh);
    r.per_host = host >= gw_mesh_ranks(mesh) ? size : members_below(mesh, axes, host);
    r.shared = m->shared && r.per_host == size;
    return r;
}

/* ---- buckets ---- */

static const char *scope_text(const gw_coll *c, int nops, gw_arena *a) {
    if (nops == 1) return gw_arena_strdup(a, c->scope);
    return gw_arena_printf(a, "%s and %d more", c->scope, nops - 1);
}

static void settle_algorithm(gw_coll *c, const gw_mesh *mesh, const gw_coll_machine *m,
                             gw_arena *a) {
    gw_coll_machine group = gw_exec_group_machine(m, mesh, c->axes);
    c->per_host = group.per_host < c->size ? group.per_host : 0;
    c->algorithm =
        c->algorithm ? gw_arena_strdup(a, c->algorithm) : gw_coll_choose(c, &group, NULL, 0, NULL);
    if (!c->algorithm)
        gw_panic("no algorithm does the %s of %s, %s over wire %s on %lld ranks",
                 gw_coll_kind_name(c->kind), c->scope, gw_dtype_name(c->dtype),
                 gw_wire_name(c->wire), (long long)c->size);
}

static void read_bucket(gw_bucket *k, const gw_graph *g, gw_oid first, int n, int64_t rank,
                        const gw_coll_machine *m, gw_arena *a) {
    making made = {.g = g, .rank = rank};
    k->nops = n;
    k->ops = gw_arena_new(a, gw_oid, n);
    for (int i = 0; i < n; i++) k->ops[i] = first + (gw_oid)i;
    k->launch = k->ops[n - 1];
    k->coll = read_coll(&made, k->ops, n, a);
    k->parts = made.parts;
    k->places = made.places;
    k->pack = made.pack;
    k->coll.scope = scope_text(&k->coll, n, a);
    settle_algorithm(&k->coll, &g->mesh, m, a);
}

void gw_buckets_of(gw_buckets *b, const gw_graph *g, int64_t rank, const gw_coll_machine *m,
                   gw_arena *a) {
    int64_t count = 0;
    b->n = 0;
    b->of = gw_arena_new(a, int32_t, g->ops.count + 1);
    for (int64_t i = 0; i < g->ops.count; i++) {
        b->of[i] = -1;
        count += gw_op_is_collective(g, &g->ops.items[i]);
    }
    b->items = gw_arena_new(a, gw_bucket, count + 1);
    for (int64_t i = 0; i < g->ops.count; i++) {
        int64_t first = 0, last = 0;
        if (!gw_op_is_collective(g, &g->ops.items[i])) continue;
        gw_graph_bucket(g, (gw_oid)i, &first, &last);
        for (int64_t k = first; k <= last; k++) b->of[k] = b->n;
        read_bucket(&b->items[b->n++], g, (gw_oid)first, (int)(last - first + 1), rank, m, a);
        i = last;
    }
}

gw_coll_traffic gw_exec_rows_traffic(const gw_graph *g, const gw_coll_machine *m) {
    gw_coll_traffic sum = {0, 0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!gw_op_is_experts_ep(g, o)) continue;
        gw_coll_traffic t = gw_experts_ep_even(g, o, m).sent;
        int64_t times = o->rate == GW_RATE_MB ? GW_MAX(1, g->micro_batches) : 1;
        sum.payload += t.payload * times;
        sum.moved += t.moved * times;
    }
    return sum;
}

void gw_exec_traffic(const gw_graph *g, int64_t rank, const gw_coll_machine *m,
                     gw_coll_traffic out[GW_COLL_KIND_COUNT]) {
    gw_arena mem = {0};
    gw_buckets b;
    memset(out, 0, sizeof *out * GW_COLL_KIND_COUNT);
    gw_buckets_of(&b, g, rank, m, &mem);
    for (int i = 0; i < b.n; i++) {
        const gw_bucket *k = &b.items[i];
        int64_t at = gw_exec_group_rank(&g->mesh, k->coll.axes, rank);
        gw_coll_traffic t = gw_coll_traffic_of(&k->coll, at);
        bool often = g->ops.items[k->launch].rate == GW_RATE_MB;
        int64_t times = often ? GW_MAX(1, g->micro_batches) : 1;
        out[k->coll.kind].payload += t.payload * times;
        out[k->coll.kind].moved += t.moved * times;
    }
    gw_coll_traffic rows = gw_exec_rows_traffic(g, m);
    out[GW_COLL_ALL_TO_ALL].payload += rows.payload;
    out[GW_COLL_ALL_TO_ALL].moved += rows.moved;
    gw_arena_release(&mem);
}

/* ---- workspace, running ---- */

/* The copies' share of it, which comes first. */
static int64_t pack_bytes(const gw_bucket *b) {
    const gw_coll_pack *p = &b->pack;
    int64_t size = gw_dtype_bits(b->coll.dtype) / 8;
    return (p->outer * p->n * p->rows * p->block * size + 63) / 64 * 64;
}

int64_t gw_bucket_work_bytes(const gw_bucket *b, const gw_mesh *mesh, const gw_coll_machine *m) {
    gw_coll_machine group = gw_exec_group_machine(m, mesh, b->coll.axes);
    return pack_bytes(b) + gw_coll_scratch_bytes(&b->coll, &group);
}

void gw_bucket_bind(gw_bucket *b, const gw_graph *g, void *(*ptr)(void *user, gw_vid v), void *user,
                    void *work) {
    int64_t size = gw_dtype_bits(b->coll.dtype) / 8;
    for (int p = 0; p < b->coll.nparts; p++) {
        const gw_coll_place *at = &b->places[p];
        const gw_op *o = &g->ops.items[b->ops[at->op]];
        char *src = ptr(user, gw_op_in(g, o, 0)), *dst = ptr(user, gw_op_out(g, o, 0));
        bool packed = b->pack.n > 0;
        if (packed) b->pack_src = b->pack.before ? src : work;
        if (packed) b->pack_dst = b->pack.before ? work : dst;
        b->parts[p].src = (packed && b->pack.before ? (char *)work : src) + at->src * size;
        b->parts[p].dst = (packed && !b->pack.before ? (char *)work : dst) + at->dst * size;
    }
}

/* [outer][rows][n][block] to [outer][n][rows][block], or back. */
static void copy_blocks(const gw_bucket *b, int threads) {
    const gw_coll_pack *p = &b->pack;
    int64_t bytes = p->block * (gw_dtype_bits(b->coll.dtype) / 8), all = p->outer * p->n;
    const char *src = b->pack_src;
    char *dst = b->pack_dst;
    bool before = p->before;
#if defined(_OPENMP)
#pragma omp parallel for num_threads(threads) schedule(static) if (all * p->rows * bytes > 1 << 18)
#else
    (void)threads;
#endif
    for (int64_t i = 0; i < all; i++)
        for (int64_t r = 0; r < p->rows; r++) {
            int64_t rows = ((i / p->n * p->rows + r) * p->n + i % p->n) * bytes;
            int64_t blocks = (i * p->rows + r) * bytes;
            memcpy(dst + (before ? blocks : rows), src + (before ? rows : blocks), (size_t)bytes);
        }
}

gw_status gw_bucket_run(gw_comm *c, const gw_bucket *b, void *work, int threads, gw_diags *dg) {
    bool packs = b->pack.n > 0;
    char *scratch = (char *)work + pack_bytes(b);
    if (packs && b->pack.before) copy_blocks(b, threads);
    GW_TRY(gw_coll_run(c, &b->coll, scratch, threads, dg));
    if (packs && !b->pack.before) copy_blocks(b, threads);
    return GW_OK;
}

int64_t gw_exec_scratch(const gw_graph *g, const gw_op *o, const gw_exec_facts *f) {
    int64_t first = 0, last = 0, at = o - g->ops.items;
    gw_graph_bucket(g, (gw_oid)at, &first, &last);
    if (at != last) return 0; /* a later one launches */
    gw_arena mem = {0};
    gw_bucket b = {0};
    read_bucket(&b, g, (gw_oid)first, (int)(last - first + 1), 0, &f->comm, &mem);
    int64_t bytes = gw_bucket_work_bytes(&b, &g->mesh, &f->comm);
    gw_arena_release(&mem);
    return bytes;
}

int64_t gw_exec_workspace(const gw_graph *g, const gw_op *o, const void *facts) {
    const gw_exec_facts *f = facts;
    if (gw_op_is_collective(g, o)) return gw_exec_scratch(g, o, f);
    if (gw_op_is_channel(g, o)) return gw_exec_box_bytes(g, o);
    if (gw_op_is_experts_ep(g, o)) return gw_experts_ep_workspace(g, o, &f->comm);
    return gw_kernel_choose(g, o, &f->machine)->workspace(g, o, &f->machine);
}

/* ---- one error ---- */

gw_status gw_exec_agree(gw_comm *c, gw_status st, int64_t *also, const char *what, gw_diags *dg) {
    if (!c || st == GW_ERR_PEER) return st; /* the others know already */
    int64_t size = gw_comm_size(c), mine = gw_comm_rank(c);
    int64_t x[2] = {st == GW_OK ? 0 : (size - mine) << 8 | (int64_t)st, also ? *also : 0};
    GW_TRY(gw_comm_max_i64(c, x, 2, what, dg));
    if (also) *also = x[1];
    if (x[0] == 0) return GW_OK;
    /* Nobody leaves, and tells the others that it does, before all have the answer. */
    (void)!gw_comm_barrier(c, what, NULL);
    if (size - (x[0] >> 8) != mine && dg) gw_diags_clear(dg);
    return (gw_status)(x[0] & 0xff);
}

/* ---- a name for what src/comm does ---- */

static bool supports(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)m;
    return gw_op_is_collective(g, o) || gw_op_is_channel(g, o);
}

static int64_t no_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g;
    (void)o;
    (void)m;
    return 0;
}

static gw_status prepare(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)k;
    (void)a;
    (void)dg;
    *state = NULL;
    return GW_OK;
}

static gw_status launch(void *state, const gw_kargs *k, gw_diags *dg) {
    (void)state;
    (void)dg;
    gw_panic("%s is run by src/comm, not by a kernel", gw_op_def(k->g, k->op)->name);
}

static void release(void *state) { (void)state; }

const gw_kernel gw_kernel_comm = {.name = "comm",
                                  .op = "",
                                  .note = "a collective or a message: src/comm runs it",
                                  .supports = supports,
                                  .workspace = no_workspace,
                                  .prepare = prepare,
                                  .launch = launch,
                                  .release = release};

// SPDX-License-Identifier: Apache-2.0
// From collective ops to collectives.
//
// An op of trait GW_OP_COLLECTIVE has one input and one output, and their types say everything: the
// axes on which a partial sum ends, or on which a flat value begins or ends, are the group; the
// elements are those of this rank. Neighbours that carry the same bucket number (gw_graph_bucket)
// are one fused collective with a part for each, launched where the last of them stands. Values
// that a bucket reads or writes live from its first op to its last, which is the passes' matter.
//
// The same function serves place (scratch is a value of the program), the plan (what is counted
// without running) and the executor (what runs), so that the three cannot disagree. The plan and
// the layout are those of rank 0, whose parts are the largest.
#include "run/exec_comm.h"

#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */

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
                 {"all_gather", GW_COLL_ALL_GATHER}};
    const char *name = gw_op_def(g, o)->name;
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        if (strcmp(kinds[i].op, name) == 0) return kinds[i].kind;
    gw_panic("%s is a collective that no transport runs", name);
}

static uint32_t axes_of(gw_coll_kind kind, const gw_type *in, const gw_type *out) {
    if (kind == GW_COLL_ALL_REDUCE) return (in->psum & ~out->psum) | (in->pmax & ~out->pmax);
    if (kind == GW_COLL_REDUCE_SCATTER) return out->flat_axes & ~in->flat_axes;
    return in->flat_axes & ~out->flat_axes;
}

/* Elements of the whole as the group sees it. */
static int64_t elems_of(gw_coll_kind kind, const gw_type *in, const gw_type *out,
                        const gw_mesh *mesh, int64_t rank) {
    return gw_type_local_elems(kind == GW_COLL_ALL_GATHER ? out : in, mesh, rank);
}

gw_coll gw_exec_coll(const gw_graph *g, const gw_oid *ops, int n, int64_t rank,
                     gw_coll_part *parts) {
    const gw_op *o = &g->ops.items[ops[0]];
    const gw_type *in = gw_type_of(g, gw_op_in(g, o, 0)), *out = gw_type_of(g, gw_op_out(g, o, 0));
    const char *algorithm = gw_graph_str(g, gw_op_attr_named(g, o, "algorithm").s);
    gw_coll c = {.kind = kind_of(g, o),
                 .dtype = (gw_dtype)in->dtype,
                 .wire = (gw_wire)gw_op_attr_named(g, o, "wire").i,
                 .nparts = n,
                 .parts = parts,
                 .scope = gw_graph_str(g, o->scope),
                 .algorithm = *algorithm ? algorithm : NULL};
    c.axes = axes_of(c.kind, in, out);
    c.size = gw_mesh_size(&g->mesh, c.axes);
    c.max = c.kind == GW_COLL_ALL_REDUCE && (in->pmax & ~out->pmax) != 0;
    for (int i = 0; i < n; i++) {
        const gw_op *p = &g->ops.items[ops[i]];
        in = gw_type_of(g, gw_op_in(g, p, 0));
        out = gw_type_of(g, gw_op_out(g, p, 0));
        if (axes_of(c.kind, in, out) != c.axes || (gw_dtype)in->dtype != c.dtype)
            gw_panic("a bucket of %s holds values of different groups or dtypes (%s)",
                     gw_op_def(g, p)->name, gw_graph_str(g, p->scope));
        parts[i] = (gw_coll_part){.elems = elems_of(c.kind, in, out, &g->mesh, rank)};
    }
    return c;
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

static const char *scope_text(const gw_coll *c, gw_arena *a) {
    if (c->nparts == 1) return gw_arena_strdup(a, c->scope);
    return gw_arena_printf(a, "%s and %d more", c->scope, c->nparts - 1);
}

static void settle_algorithm(gw_coll *c, const gw_mesh *mesh, const gw_coll_machine *m,
                             gw_arena *a) {
    gw_coll_machine group = gw_exec_group_machine(m, mesh, c->axes);
    c->per_host = group.per_host < c->size ? group.per_host : 0;
    c->algorithm =
        c->algorithm ? gw_arena_strdup(a, c->algorithm) : gw_coll_choose(c, &group, NULL, 0, NULL);
}

static void add_bucket(gw_buckets *b, const gw_graph *g, gw_oid first, int n, int64_t rank,
                       const gw_coll_machine *m, gw_arena *a) {
    gw_bucket *k = &b->items[b->n];
    k->parts = gw_arena_new(a, gw_coll_part, n);
    k->ops = gw_arena_new(a, gw_oid, n);
    for (int i = 0; i < n; i++) {
        k->ops[i] = first + (gw_oid)i;
        b->of[k->ops[i]] = b->n;
    }
    k->launch = k->ops[n - 1];
    k->coll = gw_exec_coll(g, k->ops, n, rank, k->parts);
    k->coll.scope = scope_text(&k->coll, a);
    settle_algorithm(&k->coll, &g->mesh, m, a);
    b->n++;
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
        add_bucket(b, g, (gw_oid)first, (int)(last - first + 1), rank, m, a);
        i = last;
    }
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
    gw_arena_release(&mem);
}

/* ---- workspace ---- */

int64_t gw_exec_scratch(const gw_graph *g, const gw_op *o, const gw_exec_facts *f) {
    int64_t first = 0, last = 0, at = o - g->ops.items;
    gw_graph_bucket(g, (gw_oid)at, &first, &last);
    if (at != last) return 0; /* a later one launches */
    int n = (int)(last - first + 1);
    gw_oid *ops = gw_mem_alloc(sizeof *ops * (size_t)n);
    gw_coll_part *parts = gw_mem_alloc(sizeof *parts * (size_t)n);
    for (int i = 0; i < n; i++) ops[i] = (gw_oid)first + (gw_oid)i;
    gw_coll c = gw_exec_coll(g, ops, n, 0, parts);
    gw_coll_machine group = gw_exec_group_machine(&f->comm, &g->mesh, c.axes);
    if (!c.algorithm) c.algorithm = gw_coll_choose(&c, &group, NULL, 0, NULL);
    int64_t bytes = gw_coll_scratch_bytes(&c, &group);
    gw_mem_free(parts);
    gw_mem_free(ops);
    return bytes;
}

int64_t gw_exec_workspace(const gw_graph *g, const gw_op *o, const void *facts) {
    const gw_exec_facts *f = facts;
    if (gw_op_is_collective(g, o)) return gw_exec_scratch(g, o, f);
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
    return gw_op_is_collective(g, o);
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
                                  .note = "a collective: src/comm runs it",
                                  .supports = supports,
                                  .workspace = no_workspace,
                                  .prepare = prepare,
                                  .launch = launch,
                                  .release = release};

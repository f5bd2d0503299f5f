// SPDX-License-Identifier: Apache-2.0
// Groups, and running a collective on a transport.
//
// A gw_comm is a transport, the mesh that gives its ranks coordinates, and counters. A group is
// named by a mask of sub-axes: the ranks that have this rank's coordinates on all others. Its
// members are worked out once and kept with the number of collectives it has run; the mask of the
// whole mesh, and the calls of comm_host.c, share the group of all ranks, so they share one
// numbering.
//
// gw_coll_run is the same for every algorithm and transport:
//
//   find the algorithm       its name stands in the plan, or it is chosen by predicted time
//   make the mark            number, hash of what must agree among the ranks, a line for people
//   begin, run, end          the transport compares marks at the first contact
//   count                    calls, bytes in theory, bytes that the algorithm says it sent, time
//
// Nothing is allocated on the way: groups have their place from gw_comm_set_mesh on, and the line
// for people is kept by what it says, since writing it costs as much as a small collective.
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT, gw_panic */
#include "comm/comm_impl.h"
#include "comm/comm_new.h"
#include "comm/parts.h" /* gw_coll_alone */

/* ------------------------------------------------------------------------------ making */

gw_comm *gw_comm_new(gw_transport *t, gw_coll_machine m) {
    gw_comm *c = gw_mem_zalloc(sizeof *c);
    c->t = t;
    c->machine = m;
    c->members = gw_mem_zalloc((size_t)GW_COMM_GROUPS * (size_t)t->size * sizeof *c->members);
    c->host = gw_mem_zalloc((size_t)t->size * GW_COMM_HOST_VALUES * 8);
    gw_comm_set_mesh(c, NULL);
    return c;
}

void gw_comm_free(gw_comm *c) {
    if (!c) return;
    c->t->ops->close(c->t);
    gw_mem_free(c->members);
    gw_mem_free(c->host);
    gw_mem_free(c);
}

gw_transport *gw_comm_transport(gw_comm *c) { return c->t; }
int gw_comm_rank(const gw_comm *c) { return c->t->rank; }
int gw_comm_size(const gw_comm *c) { return c->t->size; }
const gw_coll_machine *gw_comm_machine(const gw_comm *c) { return &c->machine; }

/* ------------------------------------------------------------------------------ groups */

/* What of the machine depends on the group: how many of its ranks share a host. */
static void look_at_hosts(const gw_comm *c, gw_comm_group *g) {
    int64_t per_host = c->machine.per_host > 0 ? c->machine.per_host : 1;
    int64_t here = 0;
    for (int i = 0; i < g->g.size; i++)
        here += g->g.ranks[i] / per_host == g->g.ranks[0] / per_host;
    g->per_host = here;
    g->shared = c->machine.shared && here == g->g.size;
}

static gw_comm_group *add_group(gw_comm *c, uint32_t axes) {
    if (c->ngroups == GW_COMM_GROUPS) gw_panic("more than %d groups of ranks", GW_COMM_GROUPS);
    gw_comm_group *g = &c->groups[c->ngroups];
    int *members = c->members + (int64_t)c->ngroups++ * c->t->size;
    *g = (gw_comm_group){.axes = axes};
    for (int r = 0; r < c->t->size; r++) {
        bool in = true;
        for (int a = 0; in && a < c->mesh.naxes; a++)
            in = (axes >> a & 1u) ||
                 gw_mesh_coord(&c->mesh, r, a) == gw_mesh_coord(&c->mesh, c->t->rank, a);
        if (!in) continue;
        if (r == c->t->rank) g->g.me = g->g.size;
        members[g->g.size++] = r;
    }
    g->g.ranks = members;
    look_at_hosts(c, g);
    return g;
}

void gw_comm_set_mesh(gw_comm *c, const gw_mesh *m) {
    uint64_t seq = c->ngroups ? c->groups[0].seq : 0;
    c->mesh = (gw_mesh){0};
    c->ngroups = 0;
    if (m) {
        GW_ASSERT(gw_mesh_ranks(m) == c->t->size);
        c->mesh = *m;
        c->all_axes = m->naxes == 32 ? UINT32_MAX : (1u << m->naxes) - 1u;
    } else {
        c->all_axes = UINT32_MAX;
    }
    add_group(c, c->all_axes)->seq = seq;
}

/* Without a mesh a group is everyone, or this rank alone. */
gw_comm_group *gw_comm_group_of(gw_comm *c, uint32_t axes, int64_t size) {
    if (c->mesh.naxes > 0) axes &= c->all_axes;
    if (axes == c->all_axes || (c->mesh.naxes == 0 && size == c->t->size)) return &c->groups[0];
    for (int i = 1; i < c->ngroups; i++)
        if (c->groups[i].axes == axes) return &c->groups[i];
    return add_group(c, axes);
}

/* ------------------------------------------------------------------------------ marks */

/* "dp.0 dp.1", or "all ranks". */
static const char *axes_text(const gw_comm *c, const gw_comm_group *g, char buf[64]) {
    int at = 0;
    if (g == &c->groups[0] && c->mesh.naxes != 1) return "all ranks";
    buf[0] = 0;
    for (int a = 0; a < c->mesh.naxes && at < 48; a++)
        if (g->axes >> a & 1u)
            at += snprintf(buf + at, 64 - (size_t)at, at ? " %s" : "%s", c->mesh.axes[a].name);
    return buf;
}

/* The scope is cut to what the rest leaves. */
static void write_text(const gw_comm *c, const gw_comm_group *g, const gw_coll *k,
                       const gw_algorithm *a, char text[104]) {
    char axes[64], head[48], wire[24] = "", tail[80];
    snprintf(head, sizeof head, "%s%s %s %lld", gw_coll_kind_name(k->kind), k->max ? " (max)" : "",
             gw_dtype_name(k->dtype), (long long)gw_coll_elems(k));
    if (k->wire != GW_WIRE_SAME) snprintf(wire, sizeof wire, ", wire %s", gw_wire_name(k->wire));
    int ntail =
        snprintf(tail, sizeof tail, "%s, %s, over %s", wire, a->name, axes_text(c, g, axes));
    const char *scope = k->scope && k->scope[0] ? k->scope : "?";
    int room = 103 - (int)strlen(head) - 4 - GW_MIN(ntail, 79);
    int n = (int)strlen(scope);
    bool cut = n > room;
    if (cut) n = room > 3 ? room - 3 : 0;
    int len = snprintf(text, 104, "%s of %.*s%s%s", head, n, scope, cut ? "..." : "", tail);
    GW_ASSERT(len > 0);
}

/* What must be the same on all ranks of the group. */
static uint64_t signature_of(const gw_coll *k, const gw_algorithm *a) {
    int64_t facts[7] = {k->kind, k->dtype, k->wire, k->max, k->axes, k->size, k->nparts};
    uint64_t h = gw_hash64(facts, sizeof facts, 0);
    h = gw_hash64(a->name, strlen(a->name), h);
    for (int i = 0; i < k->nparts; i++)
        h = gw_hash64(&k->parts[i].elems, sizeof k->parts[i].elems, h + k->parts[i].reversed);
    return h;
}

static void make_mark(gw_comm *c, gw_comm_group *g, const gw_coll *k, const gw_algorithm *a,
                      gw_coll_mark *m) {
    m->seq = ++g->seq;
    m->signature = signature_of(k, a);
    const char *scope = k->scope ? k->scope : "";
    uint64_t key = gw_hash64(scope, strlen(scope), m->signature);
    gw_comm_text *t = &c->texts[key % GW_COMM_TEXTS];
    if (t->key != key) {
        write_text(c, g, k, a, t->text);
        t->key = key;
    }
    memcpy(m->text, t->text, sizeof m->text);
}

/* ------------------------------------------------------------------------------ running */

static gw_coll_machine machine_of(const gw_comm *c, const gw_comm_group *g, int threads) {
    gw_coll_machine m = c->machine;
    m.shared = g->shared;
    m.per_host = g->per_host;
    if (threads > 0) m.threads = threads;
    return m;
}

gw_status gw_coll_run_with(gw_comm *c, const gw_coll *k, const gw_algorithm *a, void *scratch,
                           int threads, gw_diags *dg) {
    gw_comm_group *g = gw_comm_group_of(c, k->axes, k->size);
    GW_ASSERT(k->size == g->g.size);
    int64_t start = gw_clock_ns(), waited = c->t->ops->waited_ns(c->t), sent = 0;
    gw_coll_mark mark;
    make_mark(c, g, k, a, &mark);
    GW_TRY(c->t->ops->begin(c->t, &g->g, &mark, dg));
    gw_algorithm_call call = {
        .t = c->t, .group = g->g, .coll = k, .scratch = scratch, .threads = threads};
    GW_TRY(a->run(&call, &sent, dg));
    c->t->ops->end(c->t, &g->g);
    gw_comm_counts *n = &c->counts[k->kind];
    n->calls++;
    n->moved += sent;
    n->ns += gw_clock_ns() - start;
    n->wait_ns += c->t->ops->waited_ns(c->t) - waited;
    return GW_OK;
}

static gw_status find_algorithm(const gw_coll *k, const gw_coll_machine *m,
                                const gw_algorithm **out, gw_diags *dg) {
    const char *name = k->algorithm, *why = NULL;
    if (!name || !name[0]) name = gw_coll_choose(k, m, NULL, 0, NULL);
    const gw_algorithm *a = gw_algorithm_find(name);
    *out = a;
    if (!name)
        return GW_FAIL(dg, GW_ERR_CONFIG, "coll-algorithm",
                       "no algorithm does the %s of %s, %s over wire %s",
                       gw_coll_kind_name(k->kind), k->scope ? k->scope : "?",
                       gw_dtype_name(k->dtype), gw_wire_name(k->wire));
    if (!a)
        return GW_FAIL(dg, GW_ERR_CONFIG, "coll-algorithm", "there is no collective algorithm '%s'",
                       name);
    if (!(a->kinds >> k->kind & 1u)) why = "it is for other collectives";
    if (why || !a->supports(k, m, &why))
        return GW_FAIL(dg, GW_ERR_CONFIG, "coll-algorithm", "%s of %s cannot use '%s': %s",
                       gw_coll_kind_name(k->kind), k->scope ? k->scope : "?", name, why);
    return GW_OK;
}

gw_status gw_coll_run(gw_comm *c, const gw_coll *k, void *scratch, int threads, gw_diags *dg) {
    gw_comm_group *g = gw_comm_group_of(c, k->axes, k->size);
    if (g->g.size == 1) {
        gw_coll_alone(k);
        c->counts[k->kind].calls++;
        return GW_OK;
    }
    gw_coll_machine m = machine_of(c, g, threads);
    const gw_algorithm *a = NULL;
    GW_TRY(find_algorithm(k, &m, &a, dg));
    GW_TRY(gw_coll_run_with(c, k, a, scratch, threads, dg));
    gw_coll named = *k;
    named.algorithm = a->name;
    c->counts[k->kind].payload += gw_coll_traffic_of(&named, g->g.me).payload;
    return GW_OK;
}

gw_comm_counts gw_comm_counted(const gw_comm *c, gw_coll_kind k) { return c->counts[k]; }
void gw_comm_counts_reset(gw_comm *c) {
    memset(c->counts, 0, sizeof c->counts);
    c->exchanged = c->messages = (gw_comm_counts){0};
}

/* ------------------------------------------------------------------------------ passed on */

void gw_comm_unshare(gw_comm *c, int handle) {
    if (c->t->one_sided) c->t->ops->unshare(c->t, handle);
}
void gw_comm_busy(gw_comm *c, const char *what, double limit_s) {
    c->t->ops->busy(c->t, what, limit_s);
}
void gw_comm_alive(gw_comm *c, uint64_t op) { c->t->ops->alive(c->t, op); }
void gw_comm_doing(gw_comm *c, const char *what) { c->t->ops->doing(c->t, what ? what : ""); }
void gw_comm_abort(gw_comm *c, const char *why) { c->t->ops->abort(c->t, why); }
void gw_comm_print_flight(const gw_comm *c, FILE *out) { c->t->ops->print_flight(c->t, out); }

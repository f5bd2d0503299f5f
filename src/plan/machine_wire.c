// SPDX-License-Identifier: Apache-2.0
// What collectives and messages take on the links of a machine.
//
// Ranks stand on the tiers one after another, rank 0 first, as launchers number them: the mesh's
// most minor axes are neighbours. For a group, held[t] is how many of its ranks stand in one group
// of tier t. A rank brings its own bandwidth on each tier, so a collective whose group has g ranks
// in a node may use g times one rank's share of the links that leave it, and no more: the other
// ranks of the node run the same collective of their own groups at the same time. That is the
// contention of groups of the same axes; collectives of other axes are the simulator's.
//
// All-reduce, reduce-scatter, all-gather: a ring through all ranks, node after node, that many
// channels run in parallel, moves (n-1)/n of the data past each point, twice for an all-reduce, at
// the narrowest tier's rate; it takes as many hops as steps. For the latter two that is all there
// is across nodes of several chips. In two levels an all-reduce reduces within, across and gathers
// within, one after the other. A double tree halves the hops to a logarithm, at a little less
// bandwidth. Where switches reduce, a rank sends all of its data once and receives it once.
// Messages come in three protocols, as NCCL has them: the plain one at full bandwidth, one of
// 128-byte lines and one of 8-byte words with flags, quicker and narrower. The least of all of
// these is what a collective takes: which it is follows from size alone. Sources: NCCL's tuning.cc
// and its documentation of bus bandwidth.
//
// All-to-all: to each tier what goes to the ranks that only it reaches; the slowest tier decides.
// Between two ranks of a tier whose links are pairwise no more passes than their pair has.
#include <math.h>
#include <string.h>

#include "base/compiler.h"  /* GW_COUNT */
#include "plan/calibrate.h" /* gw_timings_coll_seconds */
#include "plan/machine_impl.h"

typedef gw_machine_group group;

/* How many ranks of the group of rank 0 have a number below `ranks`; 0: all of them. */
static double held_below(const gw_mesh *mesh, uint32_t axes, int64_t ranks) {
    double held = 1;
    int64_t stride = 1;
    for (int i = mesh->naxes - 1; i >= 0; i--) { /* most minor first */
        int64_t size = mesh->axes[i].size;
        if (axes >> i & 1u) {
            int64_t fit = ranks == 0 ? size : ranks / stride;
            held *= (double)(fit < 1 ? 1 : fit < size ? fit : size);
        }
        stride *= size;
    }
    return held;
}

static double tier_rate(const gw_machine_spec *m, int t, double peers) {
    const gw_tier *x = &m->tiers[t];
    double rate = x->bytes_per_s;
    if (x->pair_bytes_per_s > 0) rate = fmin(rate, x->pair_bytes_per_s * peers);
    if (x->oversubscription > 1) rate /= x->oversubscription;
    if (!m->model) return rate;
    return rate * (t == 0 ? m->model->near_efficiency : m->model->far_efficiency);
}

static double tier_hop(const gw_machine_spec *m, int t) {
    if (m->tiers[t].latency_s > 0 || !m->model) return m->tiers[t].latency_s;
    return t == 0 ? m->model->near_hop_s : m->model->far_hop_s;
}

bool gw_machine_group_of(const gw_machine_spec *m, const gw_mesh *mesh, uint32_t axes, int64_t size,
                         gw_machine_group *g) {
    *g = (group){.n = (double)size, .base = m->model ? m->model->collective_s : 0};
    double before = 1;
    for (int t = 0; t < m->ntiers; t++) {
        bool last = t + 1 == m->ntiers;
        double held = last ? g->n : fmin(g->n, held_below(mesh, axes, m->tiers[t].ranks));
        g->held[t] = fmax(held, before);
        g->rate[t] = tier_rate(m, t, fmax(1, g->held[t] / before - 1));
        g->hop[t] = tier_hop(m, t);
        if (g->rate[t] <= 0) return false;
        before = g->held[t];
        g->tiers = t + 1;
        if (before >= g->n) break;
    }
    if (g->tiers == 0) return false;
    g->gather_levels = !m->model || m->model->gather_levels > 0;
    g->in_network = m->tiers[0].in_network && g->held[0] > 2 && m->model;
    if (g->in_network) g->in_network_rate = g->rate[0] * m->model->in_network_efficiency;
    return true;
}

static double below(const group *g, int t) { return t ? g->held[t - 1] : 1; }
/* Does the group use links of tier t at all? */
static bool crosses(const group *g, int t) { return g->held[t] > below(g, t); }

/* ---- algorithms ---- */

/* NCCL's protocols: hops against the plain one's, and what is left of the bandwidth. */
static const struct protocol {
    double hop, rate;
} protocols[] = {{1, 1}, {0.56, 0.92}, {0.18, 0.5}};

/* The rate of the narrowest tier for a ring with as many channels as a node has ranks of it. */
static double narrowest(const group *g) {
    double rate = HUGE_VAL;
    for (int t = 0; t < g->tiers; t++)
        if (crosses(g, t)) rate = fmin(rate, g->rate[t] * below(g, t));
    return rate;
}

/* One time around all ranks, `passes` times (n-1)/n of the bytes. */
static double ring(const group *g, double bytes, double passes, const struct protocol *p) {
    double hops = 0;
    for (int t = 0; t < g->tiers; t++)
        if (crosses(g, t)) {
            double links = g->n / below(g, t) - g->n / g->held[t];
            hops += g->hop[t] * (t + 1 == g->tiers ? fmax(0, g->n / below(g, t) - 1) : links);
        }
    return g->base +
           passes * (hops * p->hop + (g->n - 1) / g->n * bytes / (narrowest(g) * p->rate));
}

/* Up and down a double binary tree of nodes, chains within them; all-reduce. */
static double tree(const group *g, double bytes, const struct protocol *p) {
    double hops = 0;
    for (int t = 0; t < g->tiers; t++) {
        double links = g->held[t] / below(g, t);
        if (crosses(g, t)) hops += g->hop[t] * (t == 0 ? links - 1 : ceil(log2(links)));
    }
    enum { BOTH_WAYS = 2 };
    return g->base + BOTH_WAYS * (hops * p->hop + bytes / (narrowest(g) * p->rate * 0.92));
}

/* Within, across, within: each level has what the levels inside it have left. */
static double levels(const group *g, double bytes, double passes, const struct protocol *p) {
    double s = g->base;
    for (int t = 0; t < g->tiers; t++) {
        if (!crosses(g, t)) continue;
        double n = g->held[t] / below(g, t), part = bytes / below(g, t);
        s += passes * ((n - 1) * g->hop[t] * p->hop + (n - 1) / n * part / (g->rate[t] * p->rate));
    }
    return s;
}

/* Switches add up and spread; across nodes a tree of them. */
static double in_network(const group *g, double bytes) {
    enum { HOPS = 7 }; /* setting a multicast up: 25 us on NVLink, by NCCL's table */
    double n = g->held[0];
    double s = g->base + HOPS * g->hop[0] + bytes * (1 + 1 / n) / g->in_network_rate;
    group outer = *g;
    for (int t = 0; t < outer.tiers; t++) outer.held[t] /= n;
    outer.n /= n;
    outer.base = 0;
    if (outer.n <= 1) return s;
    double across = HUGE_VAL;
    for (int t = 1; t < outer.tiers; t++)
        if (crosses(&outer, t)) across = fmin(across, outer.rate[t] * below(&outer, t));
    double hops = outer.tiers > 1 ? outer.hop[1] * ceil(log2(outer.n)) : 0;
    return s + 2 * (hops + (outer.n - 1) / outer.n * bytes / n / across);
}

static double reduce_or_gather(const group *g, double bytes, bool all_reduce) {
    double s = HUGE_VAL, passes = all_reduce ? 2 : 1;
    for (size_t i = 0; i < GW_COUNT(protocols); i++) {
        s = fmin(s, ring(g, bytes, passes, &protocols[i]));
        if (all_reduce || g->gather_levels) s = fmin(s, levels(g, bytes, passes, &protocols[i]));
        if (all_reduce) s = fmin(s, tree(g, bytes, &protocols[i]));
    }
    return all_reduce && g->in_network ? fmin(s, in_network(g, bytes)) : s;
}

static double all_to_all(const group *g, double bytes) {
    double longest = 0, messages = 0;
    for (int t = 0; t < g->tiers; t++) {
        double others = g->held[t] - below(g, t);
        if (others <= 0) continue;
        longest = fmax(longest, others / g->n * bytes / g->rate[t]);
        messages += others * g->hop[t] * 0.05; /* they are under way together */
    }
    return g->base + g->hop[g->tiers - 1] + messages + longest;
}

static double one_way(const group *g, double bytes, double hops) {
    int t = g->tiers - 1;
    double s = HUGE_VAL;
    for (size_t i = 0; i < GW_COUNT(protocols); i++)
        s = fmin(s, g->base + hops * g->hop[t] * protocols[i].hop +
                        bytes / (g->rate[t] * protocols[i].rate));
    return s;
}

/* What travels instead of a value of the collective's dtype. */
static double wire_part(const gw_coll *c) {
    double bits = (double)gw_dtype_bits(c->dtype);
    switch (c->wire) {
    case GW_WIRE_F32: return 32 / bits;
    case GW_WIRE_BF16: return 16 / bits;
    case GW_WIRE_INT8: return 8.25 / bits; /* with the scales of blocks */
    case GW_WIRE_INT4: return 4.25 / bits;
    case GW_WIRE_SAME:
    case GW_WIRE_COUNT: break;
    }
    return 1;
}

double gw_machine_coll_seconds(const gw_machine_spec *m, const gw_coll *c, const gw_mesh *mesh) {
    group g;
    double bytes = (double)gw_coll_bytes(c) * wire_part(c);
    if (m->timings) return gw_timings_coll_seconds(m->timings, c, (int)gw_mesh_ranks(mesh));
    if (c->size < 2 || !gw_machine_group_of(m, mesh, c->axes, c->size, &g)) return 0;
    switch (c->kind) {
    case GW_COLL_ALL_REDUCE: return reduce_or_gather(&g, bytes, true);
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALL_GATHER: return reduce_or_gather(&g, bytes, false);
    case GW_COLL_BROADCAST: return one_way(&g, bytes, ceil(log2(g.n)));
    case GW_COLL_ALL_TO_ALL: return all_to_all(&g, bytes);
    case GW_COLL_SHIFT: return one_way(&g, bytes, 1);
    case GW_COLL_KIND_COUNT: break;
    }
    return 0;
}

int gw_machine_tier(const gw_machine_spec *m, const gw_mesh *mesh, uint32_t axes) {
    double n = (double)gw_mesh_size(mesh, axes);
    int t = 0;
    while (t + 1 < m->ntiers && held_below(mesh, axes, m->tiers[t].ranks) < n) t++;
    return t;
}

double gw_machine_send_seconds(const gw_machine_spec *m, const gw_mesh *mesh, int64_t bytes) {
    uint32_t pp = gw_mesh_group(mesh, "pp");
    group g;
    if (m->timings && pp)
        return gw_timings_send_seconds(m->timings, bytes, (int)gw_mesh_ranks(mesh));
    if (!pp || !gw_machine_group_of(m, mesh, pp, gw_mesh_size(mesh, pp), &g)) return 0;
    return one_way(&g, (double)bytes, 1);
}

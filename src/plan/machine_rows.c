// SPDX-License-Identifier: Apache-2.0
// What it takes on a machine's links to bring tokens to experts of other ranks, or back.
//
// A token goes to `top` experts, and several of them may stand on one rank or in one node. Engines
// send it there once (DeepEP and HybridEP do; so does DeepSeek-V3's own trainer, section 3.2.2 of
// its report): over the links between nodes once for each node that has one of its experts, and
// within a node once for each rank. How many that are follows from how a token chooses. The load
// is even, so each expert is as likely as another; where a router first chooses among groups of
// experts, only the chosen groups' experts are. With E experts open to a token of which a node has
// b, none of its k choices is in the node with probability
//
//   (E - b)(E - b - 1) .. (E - b - k + 1) / (E (E - 1) .. (E - k + 1))
//
// and the expected number of nodes is their number times one minus this. With groups E and b
// depend on how many of the node's groups were chosen, which is hypergeometric.
//
// Ranks of a group stand one after another (machine_wire.c), and so do the experts they hold, so a
// tier's blocks hold experts that follow each other, as a router's groups do. Parts of a message
// are under way on all tiers at once: the tier that has most to carry decides.
#include <math.h>
#include <string.h>

#include "ops/experts.h" /* GW_EX_IDS */
#include "plan/machine_impl.h"

typedef struct choice {
    double experts, top, groups, limit;
} choice;

/* k of n without one of b: the product over the k draws. */
static double none_of(double n, double b, double k) {
    double p = 1;
    for (double i = 0; i < k && p > 0; i++) p *= fmax(0, n - b - i) / (n - i);
    return p;
}

/* j of the q groups that a block has are among the `limit` of `all` that are chosen. */
static double chosen(double all, double limit, double q, double j) {
    double log_p = lgamma(q + 1) - lgamma(j + 1) - lgamma(q - j + 1);
    double rest = all - q, others = limit - j;
    if (others < 0 || others > rest || j > q) return 0;
    log_p += lgamma(rest + 1) - lgamma(others + 1) - lgamma(rest - others + 1);
    return exp(log_p - lgamma(all + 1) + lgamma(limit + 1) + lgamma(all - limit + 1));
}

/* How many of n blocks of experts does a token's choice touch? */
static double touched(const choice *c, double n) {
    double size = c->experts / c->groups, open = c->limit * size, block = c->experts / n;
    if (n <= 1) return 1;
    if (block <= size) /* within one group */
        return n * c->limit / c->groups * (1 - none_of(open, block, c->top));
    double q = floor(block / size + 0.5), none = 0;
    for (double j = 0; j <= q; j++)
        none += chosen(c->groups, c->limit, q, j) * none_of(open, j * size, c->top);
    return n * (1 - none);
}

/* How the ids of op o were chosen; without a router in sight freely. */
static choice choice_of(const gw_graph *g, gw_vid ids, double experts) {
    enum { BACK = 4 }; /* capacity and conversions stand between */
    double top = (double)gw_type_of(g, ids)->dims[2].size;
    choice c = {.experts = experts, .top = top, .groups = 1, .limit = 1};
    for (int i = 0; i < BACK && ids != GW_NONE; i++) {
        gw_oid def = g->values.items[ids].def;
        if (def == GW_NONE) break;
        const gw_op *o = &g->ops.items[def];
        if (gw_op_is(g, o, "route")) {
            c.groups = fmax(1, (double)gw_op_attr_named(g, o, "groups").i);
            c.limit = fmin(c.groups, fmax(1, (double)gw_op_attr_named(g, o, "group_limit").i));
            break;
        }
        ids = gw_op_in(g, o, 0);
    }
    return c;
}

static bool is_backward(const gw_graph *g, const gw_op *o) {
    return strstr(gw_op_def(g, o)->name, "grad") != NULL;
}

/* Input `k` (GW_EX_..) of experts or their gradient, which reads its result's gradient first. */
static gw_vid input(const gw_graph *g, const gw_op *o, int k) {
    return gw_op_in(g, o, k + is_backward(g, o));
}

/* The same as a part of the rows that the experts see. */
double gw_machine_rows_part(const gw_graph *g, const gw_op *o) {
    const gw_type *w = gw_type_of(g, input(g, o, GW_EX_GATE));
    double experts = (double)w->dims[0].size, here = (double)gw_type_local_dim(w, 0, &g->mesh, 0);
    choice c = choice_of(g, input(g, o, GW_EX_IDS), experts);
    return here > 0 && c.top > 0 ? touched(&c, experts / here) / c.top : 1;
}

/* On a machine that was measured: what the program sends, which brings x again in backward. */
static double measured(const gw_machine_spec *m, const gw_graph *g, const gw_op *o, uint32_t axes,
                       int64_t size) {
    const gw_type *ids = gw_type_of(g, input(g, o, GW_EX_IDS));
    const gw_type *rows = gw_type_of(g, input(g, o, GW_EX_X));
    gw_coll_part part = {.elems = gw_type_local_bytes(rows, &g->mesh, 0) * ids->dims[2].size};
    gw_coll c = {.kind = GW_COLL_ALL_TO_ALL,
                 .dtype = GW_U8,
                 .axes = axes,
                 .size = size,
                 .nparts = 1,
                 .parts = &part,
                 .algorithm = "pairwise"};
    return gw_machine_coll_seconds(m, &c, &g->mesh) * (is_backward(g, o) ? 1.5 : 1);
}

double gw_machine_rows_seconds(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                               uint32_t axes, int64_t size) {
    gw_vid ids = input(g, o, GW_EX_IDS), rows = input(g, o, GW_EX_X);
    gw_machine_group t;
    if (size < 2) return 0;
    if (m->timings) return measured(m, g, o, axes, size);
    if (!gw_machine_group_of(m, &g->mesh, axes, size, &t)) return 0;
    const gw_type *weights = gw_type_of(g, input(g, o, GW_EX_GATE));
    choice c = choice_of(g, ids, (double)weights->dims[0].size);
    double bytes = (double)gw_type_local_bytes(gw_type_of(g, rows), &g->mesh, 0);
    double longest = 0, hops = 0, below = 1;
    for (int i = 0; i < t.tiers; i++) {
        if (t.held[i] > below) {
            double sent = touched(&c, t.n / below) * (1 - below / t.held[i]);
            longest = fmax(longest, bytes * sent / t.rate[i]);
            hops += t.hop[i];
        }
        below = t.held[i];
    }
    return t.base + hops + longest;
}

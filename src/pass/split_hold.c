// SPDX-License-Identifier: Apache-2.0
// What a rank of a pipeline holds of the whole model's step.
//
// From the loop ops of its stages everything follows. Before the loop it needs what these read
// (casts of weights, zeroed accumulators), and so it has the parameters at the end of that chain.
// After the loop an op is its own if all that it reads is here: the update of a parameter it has,
// the commit of a state its stages advanced. What has no inputs elsewhere (the clip factor, from
// the norm) every rank makes for itself. What reads nothing but state (a copy kept while the norm
// is not known) is nobody's by itself: it is where its readers are.
//
// Two things need what other ranks have. The norm is one sum over the squares of all gradients: a
// rank adds those it has, and the sums are exchanged. And a parameter that stages of several ranks
// use (a tied embedding) has a part of its gradient on each: the accumulator's chain simply lacks
// the links that are made elsewhere, and the parts are exchanged after the reductions over
// replicas, in the form in which the optimizer reads them. Each holder then makes the same update,
// and the first is the owner: its square counts.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/split.h"

static bool in_loop(const gw_splitter *k, gw_oid i) {
    return i >= k->loop_first && i < k->loop_end;
}

gw_vid gw_split_accumulated(const gw_splitter *k, const gw_held_ops *h, gw_vid v) {
    const gw_graph *g = k->src;
    while (v != GW_NONE) {
        const gw_value *x = &g->values.items[v];
        if (x->def == GW_NONE || !in_loop(k, x->def) || h->op[x->def]) return v;
        const gw_op *o = &g->ops.items[x->def];
        int in = gw_op_accumulator(g, o, x->out);
        if (in < 0) return v; /* not an accumulator: it is elsewhere */
        v = gw_op_in(g, o, in);
    }
    return GW_NONE;
}

static bool is_here(const gw_splitter *k, const gw_held_ops *h, gw_vid v) {
    const gw_graph *g = k->src;
    if (v == GW_NONE) return true;
    const gw_value *x = &g->values.items[v];
    if (x->def == GW_NONE) return x->role != GW_ROLE_PARAM || h->value[v];
    if (!in_loop(k, x->def)) return h->op[x->def];
    v = gw_split_accumulated(k, h, v);
    return v != GW_NONE && g->values.items[v].def != GW_NONE &&
           in_loop(k, g->values.items[v].def) && h->op[g->values.items[v].def];
}

int gw_split_stage_here(const gw_splitter *k, const gw_held_ops *h, gw_oid i) {
    const gw_graph *g = k->src;
    while (k->stage[i] < 0) {
        gw_vid v = gw_split_accumulated(k, h, gw_op_in(g, &g->ops.items[i], 0));
        GW_ASSERT(v != GW_NONE && g->values.items[v].def != GW_NONE);
        GW_ASSERT(in_loop(k, g->values.items[v].def));
        i = g->values.items[v].def;
    }
    return k->stage[i];
}

/* ---- before and in the loop ---- */

static void use(gw_held_ops *h, gw_vid v) {
    if (v != GW_NONE) h->value[v] = true;
}

/* v is read here: if a copied op makes it, what that reads is needed too. (Their chains are short:
 * a fetch, a gather; tables of positions.) */
static void demand(const gw_splitter *k, gw_held_ops *h, gw_vid v) {
    const gw_graph *g = k->src;
    if (v == GW_NONE || h->value[v]) return;
    h->value[v] = true;
    gw_oid d = g->values.items[v].def;
    if (d == GW_NONE || !in_loop(k, d) || k->stage[d] != GW_STAGE_COPIED) return;
    for (int j = 0; j < (int)g->ops.items[d].nin; j++)
        demand(k, h, gw_op_in(g, &g->ops.items[d], j));
}

static void hold_loop(const gw_splitter *k, int rank, gw_held_ops *h) {
    const gw_graph *g = k->src;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++)
        h->op[i] = k->stage[i] >= 0 && k->s->rank_of[k->stage[i]] == rank;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!h->op[i]) continue;
        for (int j = 0; j < (int)o->nin; j++) {
            gw_vid v = gw_op_in(g, o, j);
            if (v != GW_NONE && gw_op_accumulates(g, o, j)) v = gw_split_accumulated(k, h, v);
            demand(k, h, v);
        }
        for (int j = 0; j < (int)o->nout; j++) use(h, gw_op_out(g, o, j));
    }
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        const gw_op *o = &g->ops.items[i];
        if (k->stage[i] != GW_STAGE_NONE) continue;
        h->op[i] = true;
        for (int j = 0; j < (int)o->nin; j++)
            h->op[i] &= gw_op_accumulates(g, o, j) || is_here(k, h, gw_op_in(g, o, j));
        for (int j = 0; h->op[i] && j < (int)o->nin; j++)
            if (gw_op_accumulates(g, o, j)) demand(k, h, gw_op_in(g, o, j));
        for (int j = 0; h->op[i] && j < (int)o->nout; j++) use(h, gw_op_out(g, o, j));
    }
}

static void hold_before(const gw_splitter *k, gw_held_ops *h) {
    const gw_graph *g = k->src;
    for (gw_oid i = k->loop_first; i-- > 0;) {
        const gw_op *o = &g->ops.items[i];
        for (int j = 0; j < (int)o->nout; j++) h->op[i] |= h->value[gw_op_out(g, o, j)];
        if (!h->op[i]) continue;
        for (int j = 0; j < (int)o->nin; j++) use(h, gw_op_in(g, o, j));
        for (int j = 0; j < (int)o->nout; j++) use(h, gw_op_out(g, o, j));
    }
}

/* ---- after it ---- */

int gw_split_tied(const gw_splitter *k, gw_vid v) {
    for (int64_t t = 0; t < k->tied.count; t++)
        if (k->tied.items[t].gradient == v) return (int)t;
    return -1;
}

/* The square of a tied gradient counts where its owner is. */
static bool counts_elsewhere(const gw_splitter *k, const gw_op *o, int rank) {
    if (!gw_op_is(k->src, o, "sqnorm")) return false;
    int t = gw_split_tied(k, gw_op_in(k->src, o, 0));
    return t >= 0 && k->tied.items[t].holders[0] != rank;
}

static bool keeps(const gw_splitter *k, const gw_held_ops *h, int rank, gw_oid i) {
    const gw_op *o = &k->src->ops.items[i];
    if (counts_elsewhere(k, o, rank)) return false;
    bool all = true, any = false;
    for (int j = 0; j < (int)o->nin; j++) {
        bool here = is_here(k, h, gw_op_in(k->src, o, j));
        all &= here;
        any |= here;
    }
    return i == k->norm ? any : all;
}

/* Of what could be here after the loop, what a result, a state or an update needs. */
static void drop_unread(const gw_splitter *k, gw_held_ops *h) {
    const gw_graph *g = k->src;
    bool *read = gw_arena_new(k->mem, bool, g->values.count + 1);
    for (int64_t i = 0; i < g->states.count; i++) read[g->states.items[i].end] = true;
    for (int64_t v = 0; v < g->values.count; v++) read[v] |= g->values.items[v].name != 0;
    for (gw_oid i = (gw_oid)g->ops.count; i-- > k->loop_end;) {
        const gw_op *o = &g->ops.items[i];
        bool wanted = o->nout == 0 || (gw_op_def(g, o)->traits & GW_OP_OPTIMIZER);
        for (int j = 0; j < (int)o->nout; j++) wanted |= read[gw_op_out(g, o, j)];
        h->op[i] &= wanted;
        for (int j = 0; h->op[i] && j < (int)o->nin; j++)
            if (gw_op_in(g, o, j) != GW_NONE) read[gw_op_in(g, o, j)] = true;
    }
}

void gw_split_hold(const gw_splitter *k, int rank, gw_held_ops *h) {
    const gw_graph *g = k->src;
    memset(h->op, 0, (size_t)g->ops.count * sizeof *h->op);
    memset(h->value, 0, (size_t)g->values.count * sizeof *h->value);
    hold_loop(k, rank, h);
    hold_before(k, h);
    for (gw_oid i = k->loop_end; i < (gw_oid)g->ops.count; i++) h->op[i] = keeps(k, h, rank, i);
    drop_unread(k, h);
    for (gw_oid i = k->loop_end; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!h->op[i]) continue;
        for (int j = 0; j < (int)o->nin; j++) {
            gw_vid v = gw_op_in(g, o, j);
            if (v != GW_NONE && g->values.items[v].def == GW_NONE) use(h, v);
        }
        for (int j = 0; j < (int)o->nout; j++) use(h, gw_op_out(g, o, j));
    }
}

/* ---- what is exchanged ---- */

/* The parameter at the beginning of v: through parts, fetches and casts. */
static gw_vid leaf_of(const gw_graph *g, gw_vid v) {
    while (v != GW_NONE && g->values.items[v].def != GW_NONE) {
        const gw_op *o = &g->ops.items[g->values.items[v].def];
        v = o->nin > 0 ? gw_op_in(g, o, 0) : GW_NONE;
    }
    return v;
}

/* Behind the loop: what v is a slice of, if it is one. The norm reads that, and comes first. */
static gw_vid unsliced(const gw_splitter *k, gw_vid v) {
    const gw_graph *g = k->src;
    while (v != GW_NONE && g->values.items[v].def != GW_NONE &&
           g->values.items[v].def >= k->loop_end &&
           gw_op_is(g, &g->ops.items[g->values.items[v].def], "slice"))
        v = gw_op_in(g, &g->ops.items[g->values.items[v].def], 0);
    return v;
}

/* What the optimizer reads as the gradient of each parameter, by leaf. */
static void find_gradients(const gw_splitter *k, gw_vid *gradient) {
    const gw_graph *g = k->src;
    for (int64_t v = 0; v < g->values.count; v++) gradient[v] = GW_NONE;
    for (gw_oid i = k->loop_end; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(gw_op_def(g, o)->traits & GW_OP_OPTIMIZER) || o->nin < 2) continue;
        gw_vid p = leaf_of(g, gw_op_in(g, o, 0));
        if (p != GW_NONE && g->values.items[p].role == GW_ROLE_PARAM && gradient[p] == GW_NONE)
            gradient[p] = unsliced(k, gw_op_in(g, o, 1));
    }
}

static gw_status add_tied(gw_splitter *k, gw_vid param, gw_vid gradient, const bool *holds,
                          int32_t *tag, gw_diags *dg) {
    gw_tied t = {.param = param, .gradient = gradient, .tag = *tag};
    t.holders = gw_arena_new(k->mem, int, k->s->ranks);
    for (int r = 0; r < k->s->ranks; r++)
        if (holds[r]) t.holders[t.nholders++] = r;
    *tag += t.nholders * t.nholders;
    if (gradient == GW_NONE)
        return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "split-tied",
                       "'%s' is used by stages of several ranks, and its gradient is in parts "
                       "that are stepped apart",
                       gw_graph_str(k->src, k->src->values.items[param].name));
    gw_vec_push(&k->tied, t);
    return GW_OK;
}

/* Through conversions. */
static bool is_square(const gw_graph *g, gw_vid v) {
    while (v != GW_NONE && g->values.items[v].def != GW_NONE) {
        const gw_op *o = &g->ops.items[g->values.items[v].def];
        if (gw_op_is(g, o, "sqnorm")) return true;
        v = o->nin == 1 ? gw_op_in(g, o, 0) : GW_NONE;
    }
    return false;
}

static void find_norm(gw_splitter *k) {
    const gw_graph *g = k->src;
    k->norm = GW_NONE;
    for (gw_oid i = k->loop_end; i < (gw_oid)g->ops.count && k->norm == GW_NONE; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int j = 0; gw_op_is(g, o, "addn") && j < (int)o->nin && k->norm == GW_NONE; j++)
            if (is_square(g, gw_op_in(g, o, j))) k->norm = i;
    }
}

/* A parameter that nobody steps is a fault of this pass that would show as a model that learns
 * less. */
static void check_updates(const gw_splitter *k, gw_held_ops *h) {
    const gw_graph *g = k->src;
    bool *kept = gw_arena_new(k->mem, bool, g->ops.count + 1);
    for (int r = 0; r < k->s->ranks; r++) {
        gw_split_hold(k, r, h);
        for (int64_t i = k->loop_end; i < g->ops.count; i++) kept[i] |= h->op[i];
    }
    for (int64_t i = k->loop_end; i < g->ops.count; i++)
        if (!kept[i] && (gw_op_def(g, &g->ops.items[i])->traits & GW_OP_OPTIMIZER))
            gw_panic("no rank of the pipeline runs %s", gw_op_def(g, &g->ops.items[i])->name);
}

gw_status gw_split_exchanges(gw_splitter *k, gw_diags *dg) {
    const gw_graph *g = k->src;
    int ranks = k->s->ranks;
    int32_t tag = (int32_t)k->messages.count;
    gw_held_ops h = {gw_arena_new(k->mem, bool, g->ops.count + 1),
                     gw_arena_new(k->mem, bool, g->values.count + 1)};
    bool *holds = gw_arena_new(k->mem, bool, (g->values.count + 1) * ranks);
    gw_vid *gradient = gw_arena_new(k->mem, gw_vid, g->values.count + 1);
    find_norm(k);
    for (int r = 0; r < ranks; r++) {
        gw_split_hold(k, r, &h);
        for (int64_t v = 0; v < g->values.count; v++)
            holds[v * ranks + r] = g->values.items[v].def == GW_NONE &&
                                   g->values.items[v].role == GW_ROLE_PARAM && h.value[v];
    }
    find_gradients(k, gradient);
    for (int64_t v = 0; v < g->values.count; v++) {
        int n = 0;
        for (int r = 0; r < ranks; r++) n += holds[v * ranks + r];
        if (n > 1 && k->opts->train)
            GW_TRY(add_tied(k, (gw_vid)v, gradient[v], holds + v * ranks, &tag, dg));
    }
    k->norm_tag = tag;
    check_updates(k, &h);
    return GW_OK;
}

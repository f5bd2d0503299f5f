// SPDX-License-Identifier: Apache-2.0
// Which stage an op belongs to.
//
// Layers are what a pipeline is cut at. An op inside a layer (its scope says so, and a backward op
// has the scope of the forward op it comes from) goes where its layer goes. What stands before the
// layers (embeddings) is the first stage's, what reads a layer's output outside of any (the last
// norm, the head, the loss) the last stage's. Ops of the loop that hang on inputs alone (tables of
// positions, masks), or that only bring weights (a gather, a fetch), are nobody's: every stage
// makes its own, which costs less than a message.
//
// Balance: the largest stage sets the pace, so it is made as small as cuts between layers allow; of
// those cuts, the one whose squares add up to least. A layer's cost is that of its ops forward and
// backward, as time of a machine that does FLOPS_PER_BYTE operations while it moves a byte;
// embedding, head and loss count with their stage.
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */
#include "pass/split.h"

#define FLOPS_PER_BYTE 10.0

/* Where in the model an op of the loop stands: a layer, or one of these. */
enum { BEFORE = -1, AFTER = -2, FREE = -3, WEIGHTS = -4 };

static int layer_of(const gw_graph *g, const gw_op *o) {
    const char *scope = gw_graph_str(g, o->scope);
    return gw_scope_layer(scope) > 0 ? (int)strtol(scope + 6, NULL, 10) : BEFORE;
}

static bool in_loop(const gw_splitter *k, gw_oid i) {
    return i >= k->loop_first && i < k->loop_end;
}

/* ---- where an op stands ---- */

typedef struct places {
    const gw_splitter *k;
    int *at;         /* [ops] */
    gw_imap forward; /* hash of a scope -> 1 + where its forward ops stand (BEFORE, AFTER) */
} places;

/* FREE: of inputs alone. WEIGHTS: it only brings what stands before the loop (a gather, a fetch).
 * 0: neither. */
static int hangs_on_no_stage(const places *p, const gw_op *o) {
    const gw_graph *g = p->k->src;
    int kind = FREE;
    for (int i = 0; i < (int)o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        if (v == GW_NONE) continue;
        const gw_value *x = &g->values.items[v];
        bool in = x->def != GW_NONE && in_loop(p->k, x->def);
        if (gw_op_accumulates(g, o, i) || (in && p->at[x->def] > FREE)) return 0;
        if (in ? p->at[x->def] == WEIGHTS : x->role != GW_ROLE_INPUT) kind = WEIGHTS;
    }
    return kind == WEIGHTS && o->stream == GW_STREAM_COMPUTE ? 0 : kind;
}

static bool has_name(const gw_graph *g, const gw_op *o) {
    for (int i = 0; i < (int)o->nout; i++)
        if (g->values.items[gw_op_out(g, o, i)].name) return true;
    return false;
}

/* Outside layers: after them if it reads anything of a layer or of what follows. */
static int outside(const places *p, const gw_op *o) {
    const gw_graph *g = p->k->src;
    for (int i = 0; i < (int)o->nin; i++) {
        gw_vid v = gw_op_in(g, o, i);
        gw_oid d = v == GW_NONE ? GW_NONE : g->values.items[v].def;
        if (d == GW_NONE || !in_loop(p->k, d) || gw_op_accumulates(g, o, i)) continue;
        if (p->at[d] >= 0 || p->at[d] == AFTER) return AFTER;
    }
    return BEFORE;
}

static bool is_forward(const gw_op *o) { return o->phase == GW_PHASE_F; }

static void find_place(places *p, gw_oid i) {
    const gw_graph *g = p->k->src;
    const gw_op *o = &g->ops.items[i];
    const char *scope = gw_graph_str(g, o->scope);
    uint64_t key = gw_hash64(scope, strlen(scope), 0);
    uint32_t known = 0;
    int layer = layer_of(g, o), none = hangs_on_no_stage(p, o);
    if (layer >= 0)
        p->at[i] = layer;
    else if (none && !has_name(g, o))
        p->at[i] = none;
    else if (!is_forward(o) && gw_imap_find(&p->forward, key, &known))
        p->at[i] = known == 1 ? BEFORE : AFTER;
    else
        p->at[i] = outside(p, o);
    if (is_forward(o) && (p->at[i] == BEFORE || p->at[i] == AFTER))
        gw_imap_put(&p->forward, key, p->at[i] == BEFORE ? 1 : 2);
}

/* ---- costs ---- */

static double seconds_of(const gw_graph *g, const gw_op *o) {
    gw_cost c = {0};
    gw_op_def(g, o)->cost(g, o, &c);
    return GW_MAX(c.flops, (c.bytes_read + c.bytes_written) * FLOPS_PER_BYTE);
}

/* ---- balance ---- */

typedef struct sum {
    double most, squares;
} sum;

static bool better(sum a, sum b) {
    return a.most != b.most ? a.most < b.most : a.squares < b.squares;
}

/* Dynamic programming over (stages so far, layers so far). */
void gw_split_balance(const double *cost, int n, double before, double after, int parts, int *first,
                      gw_arena *a) {
    int64_t width = n + 1;
    sum *best = gw_arena_new(a, sum, (int64_t)(parts + 1) * width);
    int *from = gw_arena_new(a, int, (int64_t)(parts + 1) * width);
    double *upto = gw_arena_new(a, double, width + 1);
    for (int i = 0; i < n; i++) upto[i + 1] = upto[i] + cost[i];
    for (int64_t i = 0; i < (int64_t)(parts + 1) * width; i++) best[i] = (sum){1e300, 1e300};
    best[0] = (sum){0, 0};
    for (int p = 1; p <= parts; p++)
        for (int to = 0; to <= n; to++)
            for (int at = 0; at <= to; at++) {
                bool end = p == 1 || p == parts;
                sum s = best[(int64_t)(p - 1) * width + at];
                if (s.most >= 1e300 || (at == to && !end)) continue;
                double c = upto[to] - upto[at] + (p == 1 ? before : 0) + (p == parts ? after : 0);
                s = (sum){GW_MAX(s.most, c), s.squares + c * c};
                if (!better(s, best[p * width + to])) continue;
                best[p * width + to] = s;
                from[p * width + to] = at;
            }
    first[parts] = n;
    for (int p = parts; p > 0; p--) first[p - 1] = from[p * width + first[p]];
}

static gw_status too_few(const gw_splitter *k, gw_diags *dg) {
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "split-layers", (gw_where){0},
                             "%d layers do not make %d stages: all but the first and the last "
                             "need one",
                             k->layers, k->s->stages);
    gw_diag_hint(dg, d, "write layout.pp and layout.virtual_stages whose product is at most %d",
                 k->layers + 2);
    return GW_ERR_CONFIG;
}

static gw_status take_list(gw_splitter *k, gw_diags *dg) {
    int at = 0;
    for (int s = 0; s < k->s->stages; s++) {
        k->first_layer[s] = at;
        at += k->opts->layout.stage_layers[s];
    }
    k->first_layer[k->s->stages] = at;
    if (at == k->layers) return GW_OK;
    return GW_FAIL(dg, GW_ERR_CONFIG, "split-layers",
                   "layout.stages lists %d layers, and the model has %d", at, k->layers);
}

static gw_status cut_layers(gw_splitter *k, const places *p, gw_diags *dg) {
    const gw_graph *g = k->src;
    double *cost = gw_arena_new(k->mem, double, k->layers + 1), before = 0, after = 0;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        double s = seconds_of(g, &g->ops.items[i]);
        if (p->at[i] >= 0) cost[p->at[i]] += s;
        if (p->at[i] == BEFORE) before += s;
        if (p->at[i] == AFTER) after += s;
    }
    k->first_layer = gw_arena_new(k->mem, int, k->s->stages + 1);
    if (k->opts->layout.stage_layers) return take_list(k, dg);
    if (k->layers < k->s->stages - 2) return too_few(k, dg);
    gw_split_balance(cost, k->layers, before, after, k->s->stages, k->first_layer, k->mem);
    return GW_OK;
}

/* ---- gradients of several stages ---- */

/* Do links of v's chain of accumulators stand in stages on several ranks, or does such a chain lead
 * here? */
static bool is_of_several(const gw_splitter *k, gw_vid v) {
    const gw_graph *g = k->src;
    int first = -1;
    while (v != GW_NONE) {
        const gw_value *x = &g->values.items[v];
        if (x->def == GW_NONE || !in_loop(k, x->def)) return false;
        int stage = k->stage[x->def];
        if (stage == GW_STAGE_NONE && g->ops.items[x->def].rate == GW_RATE_MB) return true;
        if (stage >= 0 && first >= 0 && k->s->rank_of[stage] != k->s->rank_of[first]) return true;
        if (stage >= 0) first = stage;
        int in = gw_op_accumulator(g, &g->ops.items[x->def], x->out);
        v = in < 0 ? GW_NONE : gw_op_in(g, &g->ops.items[x->def], in);
    }
    return false;
}

/* What only passes such a gradient on (its reduction in each micro-batch, its part that is cut as
 * the parameter, the sum over these) is wherever a part of it is. */
static void free_followers(gw_splitter *k) {
    const gw_graph *g = k->src;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        const gw_op *o = &g->ops.items[i];
        bool passes = (gw_op_def(g, o)->traits & GW_OP_COLLECTIVE) ||
                      gw_op_is(g, o, "accumulate") || gw_op_is(g, o, "slice");
        if (k->stage[i] >= 0 && !is_forward(o) && passes && is_of_several(k, gw_op_in(g, o, 0)))
            k->stage[i] = GW_STAGE_NONE;
    }
}

/* ---- the whole ---- */

static int stage_of_layer(const gw_splitter *k, int layer) {
    int s = 0;
    while (s + 1 < k->s->stages && k->first_layer[s + 1] <= layer) s++;
    return s;
}

static void give_stages(gw_splitter *k, const places *p) {
    const gw_graph *g = k->src;
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        k->stage[i] = GW_STAGE_NONE;
        if (!in_loop(k, i) || o->rate == GW_RATE_STEP) continue;
        k->part[i] = is_forward(o) ? GW_PART_F : GW_PART_I;
        switch (p->at[i]) {
        case FREE:
        case WEIGHTS: k->stage[i] = GW_STAGE_COPIED; continue;
        case BEFORE: k->stage[i] = 0; break;
        case AFTER: k->stage[i] = k->s->stages - 1; break;
        default: k->stage[i] = stage_of_layer(k, p->at[i]);
        }
        int c = is_forward(o) ? 0 : o->phase == GW_PHASE_W ? 2 : 1;
        k->cost[c][k->stage[i]] += seconds_of(g, o);
    }
}

gw_status gw_split_assign(gw_splitter *k, gw_diags *dg) {
    const gw_graph *g = k->src;
    places p = {.k = k, .at = gw_arena_new(k->mem, int, g->ops.count + 1)};
    k->stage = gw_arena_new(k->mem, int32_t, g->ops.count + 1);
    k->part = gw_arena_new(k->mem, uint8_t, g->ops.count + 1);
    for (int c = 0; c < 3; c++) k->cost[c] = gw_arena_new(k->mem, double, k->s->stages + 1);
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        find_place(&p, i);
        k->layers = GW_MAX(k->layers, p.at[i] + 1);
    }
    gw_status st = cut_layers(k, &p, dg);
    if (st == GW_OK) give_stages(k, &p);
    if (st == GW_OK) free_followers(k);
    gw_imap_release(&p.forward);
    return st;
}

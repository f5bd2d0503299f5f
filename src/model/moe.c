// SPDX-License-Identifier: Apache-2.0
// A layer of experts from ops.
//
//   logits = router x, in float32          route: choices, gates, scores of all
//   cap                                    training with a capacity: what finds no room is dropped
//   experts                                the chosen nets, weighted by their gates
//
// and, in training, what keeps the load even. Each unit (a sequence, or with
// GW_MOE_BALANCE_BATCH a global micro-batch) has a loss of means over its tokens, made from sums
// over tokens that are ops of their own (ops/loads.c), so that no cut of s or b changes it:
//
//   moe.load.L     tokens that chose each expert in the step, before any is dropped
//   moe.aux.L      balance loss, summed over units          weight balance_weight
//   moe.z.L        mean squared log-sum-exp of logits        weight z_weight
//   moe.dropped.L  choices dropped
//
// The losses seed themselves: their gradients are those of in->seed * weight * loss, beside the
// head's, and what is reported is the plain sum. With GW_MOE_BALANCE_BIAS the bias of the choice,
// a state, moves once a step against the step's load, after the loop of micro-batches
// (pass/step.c), so that forward and backward of that step read it as it was.
//
// For two runs to be compared the second must choose as the first did: a near-tie that falls the
// other way is another function. So a training program may file its logits and choices (records),
// and may take the choices from outside (replay); everything behind the choice, drops and loads
// included, goes by those. Scores, and the gradients through them, stay its own.
//
// Capacity drops in training only: a decoded token must not depend on what else is in the batch.
#include "model/moe.h"

#include "ops/hooks.h" /* gw_dtype_stat */

typedef struct layer {
    gw_builder *b;
    const gw_moe *m;
    const gw_moe_in *in;
    int number;
    gw_vid logits, gates, ids, probs, load; /* load: by unit */
} layer;

static void name(const layer *l, gw_vid v, const char *what) {
    char text[40];
    if (l->b->status != GW_OK) return;
    snprintf(text, sizeof text, "moe.%s.%d", what, l->number);
    l->b->g->values.items[v].name = gw_graph_intern(l->b->g, text);
}

static void set(const layer *l, const char *op, gw_attr *a, const char *attr, gw_attr value) {
    gw_attrs_set(l->b->g->table, op, a, attr, value);
}

/* ---- records of a run, and choices of another ---- */

/* A leaf [m b s x] or [b s x], like v but for what x is. */
static gw_vid leaf_like(const layer *l, gw_role role, gw_vid v, gw_dtype dtype, const char *last,
                        int64_t size, const char *what) {
    gw_graph *g = l->b->g;
    if (l->b->status != GW_OK) return GW_NONE;
    const gw_type of = *gw_type_of(g, v);
    gw_type t = gw_type_scalar(dtype);
    char text[40];
    bool state = role == GW_ROLE_STATE;
    if (state) gw_type_add(&t, "m", l->m->records);
    for (int i = 0; i < 2; i++) gw_type_add(&t, of.dims[i].name, of.dims[i].size);
    gw_type_add(&t, last, size);
    snprintf(text, sizeof text, "moe.%s.%d", what, l->number);
    return gw_graph_leaf(g, role, state ? GW_CAUSE_ACTIVATIONS : GW_CAUSE_DATA,
                         state ? GW_RATE_STEP : GW_RATE_MB, t, text);
}

/* v [b s x], of each micro-batch. */
static void record(const layer *l, gw_vid v, const char *what) {
    if (l->b->status != GW_OK) return;
    const gw_type t = *gw_type_of(l->b->g, v);
    gw_vid start =
        leaf_like(l, GW_ROLE_STATE, v, (gw_dtype)t.dtype, t.dims[2].name, t.dims[2].size, what);
    gw_vid end = gw_build1(l->b, "record", start, v, l->in->micro);
    if (l->b->status == GW_OK) gw_graph_add_state(l->b->g, start, end);
}

/* ---- the router ---- */

/* In float32 at least, so that near ties are decided as in a float32 model. */
static gw_vid wide(const layer *l, gw_vid v) {
    if (l->b->status != GW_OK) return v;
    gw_dtype is = (gw_dtype)gw_type_of(l->b->g, v)->dtype;
    if (gw_dtype_stat(is) == is) return v;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(l->b->g->table, "cast", a);
    set(l, "cast", a, "dtype", (gw_attr){.i = gw_dtype_stat(is)});
    return gw_build(l->b, "cast", &v, 1, a, NULL);
}

static void build_router(layer *l) {
    gw_graph *g = l->b->g;
    gw_attr a[GW_MAX_ATTRS];
    gw_vid in[4] = {wide(l, l->in->x), wide(l, l->in->router)}, more[2] = {0};
    bool training = l->in->training;
    l->logits = gw_build(l->b, "matmul", in, 2, NULL, NULL);
    gw_attrs_default(g->table, "route", a);
    set(l, "route", a, "top", (gw_attr){.i = l->m->top});
    set(l, "route", a, "sigmoid", (gw_attr){.i = l->m->score == GW_MOE_SIGMOID});
    set(l, "route", a, "normalize", (gw_attr){.i = l->m->normalize});
    set(l, "route", a, "scale", (gw_attr){.f = l->m->scale != 0 ? l->m->scale : 1});
    set(l, "route", a, "groups", (gw_attr){.i = l->m->groups > 0 ? l->m->groups : 1});
    set(l, "route", a, "group_limit",
        (gw_attr){.i = l->m->group_limit > 0 ? l->m->group_limit : 1});
    /* DeepSeek-V3, whose scores are sigmoids, sums a group's best two; V2 takes the best. */
    set(l, "route", a, "group_max", (gw_attr){.i = l->m->score == GW_MOE_SOFTMAX});
    in[0] = l->logits;
    in[1] = l->in->tokens;
    in[2] = l->in->bias;
    in[3] = training && l->m->replay
                ? leaf_like(l, GW_ROLE_INPUT, l->logits, GW_I32, "t", l->m->top, "choices")
                : GW_NONE;
    l->gates = gw_build(l->b, "route", in, in[3] == GW_NONE ? 3 : 4, a, more);
    l->ids = more[0];
    l->probs = more[1];
    if (!training || l->m->records == 0) return;
    record(l, l->logits, "logits");
    if (!l->m->replay) record(l, l->ids, "ids");
}

/* Gates also decide who is dropped, where it goes by them. */
static gw_vid order_of_drops(const layer *l) {
    bool by_gate = l->m->drop_by_score;
    if (by_gate && l->m->replay)
        return leaf_like(l, GW_ROLE_INPUT, l->logits, GW_F32, "t", l->m->top, "order");
    if (by_gate && l->m->records > 0) record(l, l->gates, "gates");
    return l->gates;
}

static gw_vid build_cap(const layer *l) {
    gw_attr a[GW_MAX_ATTRS];
    gw_vid order = order_of_drops(l);
    gw_attrs_default(l->b->g->table, "cap", a);
    set(l, "cap", a, "experts", (gw_attr){.i = l->m->experts});
    set(l, "cap", a, "capacity", (gw_attr){.f = l->m->capacity});
    set(l, "cap", a, "by_score", (gw_attr){.i = l->m->drop_by_score});
    gw_vid kept = gw_build(l->b, "cap", (gw_vid[]){l->ids, order}, 2, a, NULL);
    name(l, gw_build1(l->b, "drops", l->ids, kept), "dropped");
    return kept;
}

static gw_vid loads(const layer *l, bool samples) {
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(l->b->g->table, "loads", a);
    set(l, "loads", a, "experts", (gw_attr){.i = l->m->experts});
    set(l, "loads", a, "samples", (gw_attr){.i = samples});
    return gw_build(l->b, "loads", &l->ids, 1, a, NULL);
}

/* Sum over the tokens of each unit. */
static gw_vid sum(const layer *l, const char *op, gw_vid x, bool samples) {
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(l->b->g->table, op, a);
    set(l, op, a, "samples", (gw_attr){.i = samples});
    return gw_build(l->b, op, (gw_vid[]){x, l->in->tokens}, 2, a, NULL);
}

static gw_vid loss(const layer *l, const char *op, gw_vid x, double weight) {
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(l->b->g->table, op, a);
    set(l, op, a, "top", (gw_attr){.i = l->m->top});
    set(l, op, a, "weight", (gw_attr){.f = weight});
    return gw_build(l->b, op, (gw_vid[]){x, l->load, l->in->seed}, 3, a, NULL);
}

static void build_losses(layer *l) {
    const gw_moe *m = l->m;
    bool samples = m->balance == GW_MOE_BALANCE_BATCH;
    bool aux = samples || m->balance == GW_MOE_BALANCE_SEQUENCE ||
               (m->balance == GW_MOE_BALANCE_BIAS && m->balance_weight > 0);
    if (!aux && m->z_weight == 0) return;
    l->load = loads(l, samples);
    if (aux)
        name(l, loss(l, "balance", sum(l, "token_sum", l->probs, samples), m->balance_weight),
             "aux");
    if (m->z_weight != 0)
        name(l, loss(l, "z_loss", sum(l, "z_sum", l->logits, samples), m->z_weight), "z");
}

/* At step rate: the step's load moves the bias. */
static void build_step(const layer *l, gw_vid load) {
    gw_builder *b = l->b;
    gw_phase phase = b->phase;
    gw_rate rate = b->rate;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(b->g->table, "balance_step", a);
    set(l, "balance_step", a, "rate", (gw_attr){.f = l->m->bias_rate});
    b->phase = GW_PHASE_O;
    b->rate = GW_RATE_STEP;
    gw_vid to = gw_build(b, "balance_step", (gw_vid[]){l->in->bias, load}, 2, a, NULL);
    b->phase = phase;
    b->rate = rate;
    if (b->status == GW_OK) gw_graph_add_state(b->g, l->in->bias, to);
}

gw_vid gw_moe_build(gw_builder *b, const gw_moe *m, const gw_moe_in *in, int number) {
    layer l = {.b = b, .m = m, .in = in, .number = number};
    gw_builder_enter(b, "moe");
    build_router(&l);
    gw_vid ids = in->training && m->capacity > 0 ? build_cap(&l) : l.ids;
    gw_vid y = gw_build1(b, "experts", in->x, ids, l.gates, in->gate, in->up, in->down);
    if (in->training) {
        gw_vid load = loads(&l, true);
        name(&l, load, "load");
        build_losses(&l);
        if (m->balance == GW_MOE_BALANCE_BIAS) build_step(&l, load);
    }
    gw_builder_leave(b);
    return y;
}

// SPDX-License-Identifier: Apache-2.0
// What a candidate takes at least, and about: bytes and seconds, without compiling it.
//
// Bounds are for leaving candidates out, so each must hold whatever the compiler does.
//
// Bytes: the fullest rank holds no less than the mean rank. The mean rank holds its share of the
// optimizer's states all the time and, in the last of several micro-batches, of weights and of
// gradient accumulators besides. After the forward of a micro-batch it holds what its layers keep
// of it: without recomputation all that the block kept, with it what passes from layer to layer.
//
// Seconds: the slowest rank of a pipeline computes no less than the mean rank, which computes the
// layers of all micro-batches over pp. Before its first action rank r waits for r forwards, and,
// where backward is whole, after its last for r backwards, of stages that are cut evenly. What one
// stream carries takes no less than the sum of it.
//
// What is computed comes from a block: a program of few layers with the same degrees, read with the
// simulator's own costs, so that shapes count and not only FLOPs.
//
// Guesses only say who is compiled first. They add what bounds leave out: what is outside layers,
// waits for tp, cp and ep as the block had them, the schedule's bubble by its formula,
// recomputation, what of data parallelism is not hidden, and activations of the micro-batches under
// way. A wrong guess costs time and never the answer.
#include <math.h>
#include <string.h>

#include "base/hash.h"   /* gw_hash64 */
#include "plan/search.h" /* gw_search_bound */
#include "sched/sched.h" /* gw_sched_formula */

/* A bound gives this much way to rounding. */
static const double slack = 1 - 1e-6;

/* ---- bytes ---- */

typedef struct shares {
    double parameters; /* of a mean rank of the stage, not sharded by zero */
    double sharded;    /* the same, sharded over the ranks that have other samples or tokens */
} shares;

static shares shares_of(const gw_search_facts *f, const gw_search_layout *l) {
    const int32_t *at = l->at;
    double tp = at[GW_SEARCH_TP], pp = at[GW_SEARCH_PP], world = l->world;
    double whole = f->dense_params / (tp * pp);
    double few = f->expert_params / (pp * fmin((double)at[GW_SEARCH_EP] * tp, world / pp));
    return (shares){.parameters = whole + few,
                    .sharded = (f->dense_params + f->expert_params) / world};
}

/* States, weights and gradients of a parameter on a rank, as zero shards them and offload leaves.
 */
static double state_bytes(const gw_search_facts *f, const gw_search_layout *l, shares s,
                          bool all_of_it) {
    int zero = l->at[GW_SEARCH_ZERO], offload = l->at[GW_SEARCH_OFFLOAD];
    bool copy = f->master > 0; /* weights are a copy of the master */
    double moments = offload >= GW_SEARCH_MOMENTS ? 0 : f->moments;
    double master = offload >= GW_SEARCH_STATES ? 0 : f->master;
    double weights = offload == GW_SEARCH_ALL && zero == 3 ? 0 : f->weight;
    double sum = moments * (zero >= 1 ? s.sharded : s.parameters);
    sum += master * (zero >= 1 ? s.sharded : s.parameters);
    if (!copy || (all_of_it && zero < 3)) sum += weights * (zero >= 3 ? s.sharded : s.parameters);
    if (all_of_it) sum += f->gradient * (zero >= 2 ? s.sharded : s.parameters);
    return sum;
}

int64_t gw_search_bound_bytes(const gw_search_facts *f, const gw_search_layout *l) {
    return (int64_t)(state_bytes(f, l, shares_of(f, l), l->accumulate > 1) * slack);
}

/* Micro-batches under way, times the stages of a rank that each stands in, over those stages. */
static double under_way(const gw_search_layout *l) {
    const char *name = gw_sched_kind_at(l->at[GW_SEARCH_SCHEDULE])->name;
    double p = l->at[GW_SEARCH_PP], v = l->at[GW_SEARCH_VIRTUAL], m = l->accumulate;
    if (p == 1) return 1;
    if (strcmp(name, "gpipe") == 0) return m;
    if (strcmp(name, "zb-2p") == 0) return fmin(m, 2 * p);
    if (strcmp(name, "interleaved") == 0) return fmin(m, ((v - 1) * p + 2 * (p - 1) + 1) / v);
    if (strcmp(name, "dualpipev") == 0) return fmin(m, p + 1);
    return fmin(m, p);
}

/* Layers of the fullest rank, work outside the layers counted as layers of the last stage. */
static double layers_of_rank(const gw_search_space *s, const gw_search_layout *l, double outside) {
    int64_t n = (int64_t)l->at[GW_SEARCH_PP] * l->at[GW_SEARCH_VIRTUAL], most = s->layers;
    double all = (double)s->layers;
    if (n == 1) return all + outside;
    for (most = (s->layers + n - 1) / n; most < s->layers; most++)
        if ((double)((n - 1) * most) + fmax(0, floor((double)most - outside)) >= all) break;
    return l->at[GW_SEARCH_VIRTUAL] * fmax((double)most, 0);
}

static double kept_of_layer(const gw_search_input *in, const gw_search_block *b,
                            const gw_search_layout *l) {
    const int32_t *at = l->at;
    double tokens = (double)in->space.seq * at[GW_SEARCH_MICRO] / at[GW_SEARCH_CP];
    double full = tokens * in->facts.hidden_bytes / at[GW_SEARCH_TP];
    switch ((gw_search_policy)at[GW_SEARCH_RECOMPUTE]) {
    case GW_SEARCH_NONE: return b->layer_bytes;
    case GW_SEARCH_SELECTIVE: return fmax(full, b->layer_bytes - full);
    case GW_SEARCH_FULL:
    case GW_SEARCH_FILL:
    case GW_SEARCH_POLICIES: break;
    }
    return fmin(full, b->layer_bytes);
}

/* Of one micro-batch, what the layers of a mean rank keep at least. */
static double least_kept(const gw_search_input *in, const gw_search_block *b,
                         const gw_search_layout *l) {
    gw_search_layout other = *l;
    if (l->at[GW_SEARCH_RECOMPUTE] != GW_SEARCH_NONE)
        other.at[GW_SEARCH_RECOMPUTE] = GW_SEARCH_FULL;
    return kept_of_layer(in, b, &other) * (double)in->space.layers / l->at[GW_SEARCH_PP];
}

static double guess_bytes(const gw_search_input *in, const gw_search_block *b,
                          const gw_search_layout *l) {
    const gw_search_facts *f = &in->facts;
    shares s = shares_of(f, l);
    double pp = l->at[GW_SEARCH_PP], layers = layers_of_rank(&in->space, l, 0);
    double uneven = fmax(1, layers * pp / (double)in->space.layers);
    double outside = f->outside_params / l->at[GW_SEARCH_TP] / 2; /* embedding or head */
    s.parameters = s.parameters * uneven + (pp > 1 ? outside * (1 - 1 / pp) : 0);
    s.sharded = s.sharded * uneven;
    double sum = state_bytes(f, l, s, true);
    if (l->at[GW_SEARCH_ZERO] == 3)
        sum += 2 * f->weight * (f->dense_params + f->expert_params) /
               (l->at[GW_SEARCH_TP] * (double)in->space.layers);
    double kept = kept_of_layer(in, b, l) * under_way(l) * layers;
    double one = l->at[GW_SEARCH_RECOMPUTE] == GW_SEARCH_FULL ? b->layer_bytes : 0;
    return sum + kept + one + b->outside_bytes;
}

/* ---- seconds ---- */

static gw_mesh mesh_of(const gw_search_layout *l) {
    gw_mesh m = {0};
    (void)gw_mesh_add(&m, "pp", l->at[GW_SEARCH_PP]);
    (void)gw_mesh_add(&m, "dp", l->dp);
    (void)gw_mesh_add(&m, "cp", l->at[GW_SEARCH_CP]);
    (void)gw_mesh_add(&m, "tp", l->at[GW_SEARCH_TP]);
    return m;
}

/* One collective of so many bytes over the ranks that have other samples or tokens. */
static double coll_seconds(const gw_machine_spec *m, const gw_mesh *mesh, gw_coll_kind kind,
                           double bytes) {
    uint32_t axes = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "cp");
    int64_t n = gw_mesh_size(mesh, axes);
    gw_coll_part part = {.elems = (int64_t)(bytes / 4) + 1};
    gw_coll c = {
        .kind = kind, .dtype = GW_F32, .axes = axes, .size = n, .nparts = 1, .parts = &part};
    return n > 1 ? gw_machine_coll_seconds(m, &c, mesh) : 0;
}

typedef gw_search_wires wires;

static void fill_wires(const gw_search_input *in, const gw_search_layout *l, wires *w) {
    gw_mesh mesh = mesh_of(l);
    bool shards = l->at[GW_SEARCH_ZERO] > 0, cuts = l->at[GW_SEARCH_EP] > 1;
    gw_coll_kind kind = shards ? GW_COLL_REDUCE_SCATTER : GW_COLL_ALL_REDUCE;
    double tp = l->at[GW_SEARCH_TP], pp = l->at[GW_SEARCH_PP];
    double dense = in->facts.dense_params / (tp * pp);
    double experts = shares_of(&in->facts, l).parameters - dense;
    double params = dense + experts * (cuts ? 0.5 : 1); /* few ranks share an expert */
    double bytes = (double)in->space.seq * l->at[GW_SEARCH_MICRO] * in->facts.hidden_bytes /
                   (l->at[GW_SEARCH_CP] * tp);
    w->dense = coll_seconds(in->machine, &mesh, kind, dense * in->facts.gradient);
    w->reduce = coll_seconds(in->machine, &mesh, kind, params * in->facts.gradient);
    w->gather =
        shards ? coll_seconds(in->machine, &mesh, GW_COLL_ALL_GATHER, params * in->facts.weight)
               : 0;
    w->send = pp > 1 ? gw_machine_send_seconds(in->machine, &mesh, (int64_t)bytes) : 0;
}

/* Of layouts in a row most differ in nothing that these hang on. */
static void update_wires(const gw_search_input *in, const gw_search_layout *l, wires *w) {
    gw_search_layout of = *l;
    static const gw_search_lever free_of[] = {GW_SEARCH_SCHEDULE, GW_SEARCH_VIRTUAL,
                                              GW_SEARCH_RECOMPUTE, GW_SEARCH_OFFLOAD};
    for (size_t i = 0; i < GW_COUNT(free_of); i++) of.at[free_of[i]] = 0;
    if (memcmp(&of, &w->of, sizeof of) == 0) return;
    w->of = of;
    fill_wires(in, l, w);
}

static bool splits_backward(const gw_search_layout *l) {
    return gw_sched_kind_at(l->at[GW_SEARCH_SCHEDULE])->halves;
}

/* Layers of a stage that is neither the first nor the last. Stages are cut as evenly as they can
 * be: of equal layers two such stages differ by one at most, and the outer ones have no more. */
static double least_layers(const gw_search_space *s, const gw_search_layout *l) {
    double n = (double)l->at[GW_SEARCH_PP] * l->at[GW_SEARCH_VIRTUAL];
    return s->experts > 0 ? 1 : fmax(1, ceil((double)s->layers / n) - 1);
}

static double bound_seconds(const gw_search_input *in, const gw_search_block *b,
                            const gw_search_layout *l, const wires *w) {
    double pp = l->at[GW_SEARCH_PP], m = l->accumulate;
    double fill = least_layers(&in->space, l) * b->layer_certain_s * (pp - 1) * (pp - 2) / (2 * pp);
    double most = m * b->certain_s / pp + (splits_backward(l) ? b->forward : 1) * fmax(fill, 0);
    for (int i = 0; i < GW_STREAM_COUNT; i++) most = fmax(most, m * b->wire_s[i] / pp);
    /* a scatter is half of what an all-reduce sends */
    double times = l->at[GW_SEARCH_ZERO] >= 2 ? m : 1;
    return fmax(most, 0.5 * times * w->dense) * slack;
}

/* The part of the extra forward that the policy computes. */
static double repeated(const gw_search_input *in, const gw_search_block *b,
                       const gw_search_layout *l, double layers_s) {
    double forward = layers_s * fmin(1, b->forward * 1.05);
    gw_search_layout other = *l;
    switch ((gw_search_policy)l->at[GW_SEARCH_RECOMPUTE]) {
    case GW_SEARCH_NONE: return 0;
    case GW_SEARCH_SELECTIVE: return b->attention_s / 3.5;
    case GW_SEARCH_FULL: return forward;
    case GW_SEARCH_FILL: break;
    case GW_SEARCH_POLICIES: return 0;
    }
    other.at[GW_SEARCH_RECOMPUTE] = GW_SEARCH_NONE;
    double without = guess_bytes(in, b, &other);
    other.at[GW_SEARCH_RECOMPUTE] = GW_SEARCH_FULL;
    double with = guess_bytes(in, b, &other), room = (double)in->facts.memory_bytes;
    if (room <= 0 || without <= with) return forward;
    double part = fmin(1, fmax(0.01, (without - 0.95 * room) / (without - with)));
    return forward * part * part; /* the cheapest come first */
}

static double bubble_of(const gw_search_layout *l) {
    const gw_sched_kind *k = gw_sched_kind_at(l->at[GW_SEARCH_SCHEDULE]);
    double pp = l->at[GW_SEARCH_PP], m = l->accumulate;
    if (pp == 1) return 0;
    gw_sched_request r = {.ranks = (int)pp,
                          .virtual_stages = l->at[GW_SEARCH_VIRTUAL],
                          .micro_batches = l->accumulate};
    double x = gw_sched_formula(k->name, &r, 1, 1, 1);
    return isnan(x) ? (pp - 1) / m / 6 : x;
}

/* Of the step's gathers and reductions, what compute waits for. */
static double exposed_dp(const gw_search_layout *l, const wires *w, double work) {
    double m = l->accumulate, forward = work / 3, backward = work * 2 / 3;
    /* a stage whose turn is short has less to hide behind */
    double least = l->at[GW_SEARCH_PP] > 1 ? 0.5 : 0.05;
    switch (l->at[GW_SEARCH_ZERO]) {
    case 0:
    case 1:
        return fmax(0.05 * w->reduce, w->reduce - backward) +
               fmax(0.1 * w->gather, w->gather - forward);
    case 2: return m * fmax(least * w->reduce, w->reduce - backward) + w->gather;
    default: break;
    }
    return m * (fmax(least * w->gather, w->gather - forward) +
                fmax(least * (w->gather + w->reduce), w->gather + w->reduce - backward));
}

static double copied_seconds(const gw_search_input *in, const gw_search_layout *l, shares s) {
    const gw_search_facts *f = &in->facts;
    int offload = l->at[GW_SEARCH_OFFLOAD];
    double host = in->machine->host_bytes_per_s,
           own = l->at[GW_SEARCH_ZERO] ? s.sharded : s.parameters;
    double bytes = 0;
    if (host <= 0) return 0;
    if (offload >= GW_SEARCH_MOMENTS) bytes += 2 * f->moments * own;
    if (offload >= GW_SEARCH_STATES) bytes += 2 * f->master * own;
    if (offload == GW_SEARCH_ALL) bytes += (2.0 * l->accumulate + 1) * f->weight * s.sharded;
    return bytes / host;
}

static double guess_seconds(const gw_search_input *in, const gw_search_block *b,
                            const gw_search_layout *l, const wires *w) {
    const gw_search_space *s = &in->space;
    double pp = l->at[GW_SEARCH_PP], m = l->accumulate;
    double all = b->products_s + b->memory_s + b->overlap_s + b->exposed_s;
    double inside = fmax(all - b->outside_s, 1e-12), layer = inside / (double)s->layers;
    double work = layers_of_rank(s, l, b->outside_s / layer) * layer;
    if (pp == 1) work = all;
    double extra = repeated(in, b, l, inside) / inside;
    work *= 1 + extra * (1 - b->outside_s / all);
    shares sh = shares_of(&in->facts, l);
    double v = l->at[GW_SEARCH_VIRTUAL], messages = w->send * v * (2 * pp + 0.3 * m);
    double optimizer = b->optimizer_s / pp / (l->at[GW_SEARCH_ZERO] ? l->dp : 1);
    return m * work * (1 + bubble_of(l)) + exposed_dp(l, w, work) + messages + optimizer +
           copied_seconds(in, l, sh);
}

void gw_search_bound(const gw_search_input *in, const gw_search_block *b, wires *w,
                     gw_search_candidate *c) {
    c->bound_bytes = gw_search_bound_bytes(&in->facts, &c->layout);
    c->guess_bytes = c->bound_bytes;
    c->bound_s = in->facts.peak_s / c->layout.world * slack;
    c->guess_s = c->bound_s;
    c->known = b && !b->refused;
    if (!c->known) return;
    c->bound_bytes += (int64_t)(least_kept(in, b, &c->layout) * 0.999);
    c->guess_bytes = (int64_t)fmax(guess_bytes(in, b, &c->layout), (double)c->bound_bytes);
    if (!in->machine) return;
    update_wires(in, &c->layout, w);
    c->bound_s = fmax(c->bound_s, bound_seconds(in, b, &c->layout, w));
    c->guess_s = fmax(c->bound_s, guess_seconds(in, b, &c->layout, w));
}

int32_t gw_search_block_dp(const gw_search_layout *l) {
    int32_t ep = l->at[GW_SEARCH_EP];
    return l->dp % ep == 0 ? ep : l->dp;
}

uint64_t gw_search_block_key(const gw_search_layout *l) {
    const int32_t key[5] = {l->at[GW_SEARCH_TP], l->at[GW_SEARCH_CP], l->at[GW_SEARCH_EP],
                            l->at[GW_SEARCH_MICRO], gw_search_block_dp(l)};
    return gw_hash64(key, sizeof key, 0);
}

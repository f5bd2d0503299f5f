// SPDX-License-Identifier: Apache-2.0
// Placements: every value gets one, and where a use needs another than the definition has, a
// conversion is inserted. Nothing before this pass knows that there are ranks.
//
// Leaves begin it. Samples (dimension b) are cut over all data-parallel sub-axes. A parameter's
// home is whole on every rank, or, as layout.zero says, the flattened tensor in balanced parts over
// the sub-axes of group `dp` (what is in group `dp_replicate` holds copies):
//
//   zero   weights                 gradients        optimizer state   comes out as
//   0      R                       R                R                 all-reduce of gradients
//   1      R                       in place, whole  flat              reduce-scatter, all-gather
//   2      R                       flat             flat              the same; whole ones die
//                                                                     early
//   3      flat, gathered at use   flat             flat              all-gathers in forward,
//                                                                     again in backward
//
// Then each op in order: its inputs are converted to what it can work on, and its outputs follow
// from its factor signature: a factor that is cut passes to the outputs that have it and makes a
// partial sum, P, of those that lack it. P travels through linear ops; anything else asks for the
// conversion first. A gradient is converted where it is finished, so that reduction can overlap
// what is left of backward; with several micro-batches that is a step-rate op inside the loop,
// which runs in the last iteration. With layout.reduce_each it is converted in every micro-batch,
// before it is added.
//
// Weights below float32 with a float32 master: for zero 1 and 2 the flat master is cast and
// gathered before the loop, once a step. Equal dtypes: the whole weights are the home, the
// optimizer works on a view of its part, and the parts are gathered in place after it. For zero 3
// an all-gather is shared within forward and within backward, never across (unless
// layout.keep_gathered): backward reads the flat source and gathers again, so that nothing whole
// survives from one to the other.
//
// With layout.secondary (hpZ of ZeRO++, Wang et al. 2023) forward leaves a second part of what it
// gathered, cut over the most minor sub-axes of `dp` alone, in the gathered dtype. Backward gathers
// that one, so that nothing crosses the outer sub-axes there; the price is 1/secondary of the
// weights for as long as backward needs them.
//
// A home has a memory kind as it has a placement, and the conversion is a copy on the stream
// `copy`. What lies on host or disk is fetched for the op that reads it, and a state that an op
// advanced is stored back; weights cast for the whole step are spilled after the cast and fetched
// at each use. Nothing on the device outlives its reader. Only ops of stream `copy` touch bytes of
// other memory.
//
// Left to the bucket pass: fusing, hoisting, algorithms; to the offload pass: fetching ahead.
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef enum zero_kind { ZERO_PLAIN, ZERO_PARTIAL, ZERO_HOME } zero_kind;
enum { FORWARD, BACKWARD };

typedef struct sharder {
    const gw_graph *src;
    gw_graph *dst;
    const gw_compile_opts *opts;
    gw_builder b;
    uint32_t all, shard, replicate; /* sub-axes: of samples; of what is sharded; the rest */
    uint32_t inner;                 /* the part of `shard` that a secondary part is cut over */
    gw_vid *map;                    /* [src values]: in dst, converted if it was finished */
    gw_vid *leaf;                   /* [src values]: in dst, of leaves */
    gw_vid *whole[2];               /* [src values]: gathered, for forward and for backward */
    gw_vid *second;                 /* [src values]: this rank's secondary part */
    bool *finished;                 /* [src values]: converted where they are made */
    bool *updated;                  /* [src values]: leaves that an optimizer op steps */
    bool *ends;                     /* [src values]: what a state ends with */
    bool *optimizer_state;          /* [src values] */
    bool *gradient;                 /* [src values]: what an optimizer op reads as one */
    uint8_t *zero;                  /* [src values]: zero_kind of accumulators */
} sharder;

/* ---- what the ops tell beforehand ---- */

static void look_at_op(sharder *s, const gw_op *o) {
    const gw_graph *g = s->src;
    bool optimizer = gw_op_def(g, o)->traits & GW_OP_OPTIMIZER;
    if (optimizer) s->finished[gw_op_in(g, o, 1)] = s->gradient[gw_op_in(g, o, 1)] = true;
    if (optimizer) s->updated[gw_op_in(g, o, 0)] = true;
    if (gw_op_is(g, o, "sqnorm")) s->finished[gw_op_in(g, o, 0)] = true;
    for (int k = 2; optimizer && k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE) s->optimizer_state[gw_op_in(g, o, k)] = true;
    for (int k = 0; k < (int)o->nout; k++) {
        int acc = gw_op_accumulator(g, o, k);
        gw_vid v = acc < 0 ? GW_NONE : gw_op_in(g, o, acc);
        if (v != GW_NONE) s->zero[v] = gw_op_is(g, o, "accumulate") ? ZERO_HOME : ZERO_PARTIAL;
        gw_vid out = gw_op_out(g, o, k);
        if (g->values.items[out].name != 0 && g->values.items[out].role != GW_ROLE_GRAD)
            s->finished[out] = true;
    }
}

/* ---- placements of leaves ---- */

static void cut_samples(sharder *s, gw_type *t) {
    int i = gw_type_find(t, "b");
    if (i < 0) i = gw_type_find(t, "group"); /* of samples: as they are, unless it is one for all */
    if (i < 0 || (t->dims[i].size == 1 && strcmp(t->dims[i].name, "group") == 0)) return;
    gw_dim *d = &t->dims[i];
    const uint32_t order[] = {s->replicate, s->shard};
    for (size_t k = 0; k < GW_COUNT(order); k++)
        for (int a = 0; a < s->src->mesh.naxes; a++)
            if (order[k] >> a & 1u) {
                GW_ASSERT(d->naxes < GW_MAX_DIM_AXES);
                d->axes[d->naxes++] = (uint8_t)a;
            }
}

static void make_flat(const sharder *s, gw_type *t) {
    if (!s->shard) return;
    t->flat = 1;
    t->flat_axes = s->shard;
}

static bool flat_params(const sharder *s) {
    const gw_compile_opts *o = s->opts;
    return o->layout.zero >= 3 || (o->layout.zero >= 1 && o->master != o->compute);
}

/* Where a leaf's home lies. */
static gw_mem mem_of(const sharder *s, gw_vid v) {
    const gw_compile_opts *o = s->opts;
    const gw_value *x = &s->src->values.items[v];
    if (x->role == GW_ROLE_STATE && s->optimizer_state[v]) return o->layout.optimizer_mem;
    if (x->role != GW_ROLE_PARAM) return GW_MEM_DEVICE;
    return o->master != o->compute ? o->layout.master_mem : o->layout.parameter_mem;
}

static void place_leaf(sharder *s, gw_vid v) {
    gw_vid n = gw_graph_copy_leaf(s->dst, s->src, v);
    gw_value *x = &s->dst->values.items[n];
    if (x->role == GW_ROLE_INPUT) cut_samples(s, &x->type);
    if (x->role == GW_ROLE_PARAM && flat_params(s)) make_flat(s, &x->type);
    if (x->role == GW_ROLE_STATE) {
        if (s->optimizer_state[v] && s->opts->layout.zero >= 1)
            make_flat(s, &x->type);
        else
            cut_samples(s, &x->type);
    }
    x->mem = (uint8_t)mem_of(s, v);
    s->map[v] = s->leaf[v] = n;
}

/* ---- conversions ---- */

static void set_type(sharder *s, gw_vid v, const gw_type *t) { s->dst->values.items[v].type = *t; }

static gw_vid conversion(sharder *s, const char *op, gw_vid x, const gw_type *to, int wire,
                         bool in_place) {
    gw_graph *g = s->dst;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(g->table, op, a);
    if (strcmp(op, "slice") != 0) gw_attrs_set(g->table, op, a, "wire", (gw_attr){.i = wire});
    gw_vid y = gw_build(&s->b, op, &x, 1, a, NULL);
    if (s->b.status != GW_OK) return y;
    set_type(s, y, to);
    gw_op *made = &g->ops.items[g->values.items[y].def];
    if (gw_op_def(g, made)->traits & GW_OP_COLLECTIVE) made->stream = GW_STREAM_DP;
    gw_value *out = &g->values.items[y];
    const gw_value *in = &g->values.items[x];
    out->cause = in->cause;
    if (in_place) {
        out->tie = x;
        out->role = in->role;
        out->mem = in->mem;
    }
    return y;
}

/* A partial sum to `flat` (or whole) with `psum` left. Only gradients travel on a narrow wire. */
static gw_vid reduce(sharder *s, gw_vid x, bool flat, uint32_t psum, int wire, bool in_place) {
    gw_type t = *gw_type_of(s->dst, x);
    if (flat && !t.flat && s->shard) {
        t.psum &= ~s->shard;
        make_flat(s, &t);
        x = conversion(s, "reduce_scatter", x, &t, wire, in_place);
    }
    if (t.psum == psum) return x;
    t.psum = psum;
    return conversion(s, "all_reduce", x, &t, wire, true);
}

static gw_vid gather(sharder *s, gw_vid x, bool in_place) {
    gw_type t = *gw_type_of(s->dst, x);
    t.flat = 0;
    t.flat_axes = 0;
    return conversion(s, "all_gather", x, &t, s->opts->layout.weight_wire, in_place);
}

static void set_frame(sharder *s, const gw_op *o, gw_phase phase, gw_rate rate) {
    s->b.phase = phase;
    s->b.rate = rate;
    snprintf(s->b.scope, sizeof s->b.scope, "%s", gw_graph_str(s->src, o->scope));
}

/* A copy between memory kinds: `fetch` or `spill` of x into fresh bytes, `store` into those of
 * home. */
static gw_vid copy(sharder *s, const char *op, gw_vid x, gw_vid home, gw_mem mem) {
    gw_graph *g = s->dst;
    const gw_vid in[2] = {x, home};
    const gw_type t = *gw_type_of(g, x);
    gw_vid y = gw_build(&s->b, op, in, home == GW_NONE ? 1 : 2, NULL, NULL);
    if (s->b.status != GW_OK) return y;
    set_type(s, y, &t);
    gw_value *out = &g->values.items[y];
    g->ops.items[out->def].stream = GW_STREAM_COPY;
    out->mem = (uint8_t)mem;
    if (home == GW_NONE) out->cause = GW_CAUSE_STAGING;
    return y;
}

static bool is_away(const sharder *s, gw_vid v) {
    return s->dst->values.items[v].mem != GW_MEM_DEVICE;
}

static gw_vid on_device(sharder *s, gw_vid x) {
    return is_away(s, x) ? copy(s, "fetch", x, GW_NONE, GW_MEM_DEVICE) : x;
}

/* Leaves this rank's secondary part of y, the whole of v that forward gathered. The bucket pass
 * drops one that nothing reads. */
static void keep_second(sharder *s, gw_vid v, gw_vid y) {
    gw_type t = *gw_type_of(s->dst, y);
    t.flat = 1;
    t.flat_axes = s->inner;
    s->second[v] = conversion(s, "slice", y, &t, 0, false);
    s->dst->values.items[s->second[v]].role = GW_ROLE_TEMP;
    s->dst->values.items[s->second[v]].cause = GW_CAUSE_WEIGHTS;
}

/* The whole of v, which is flat or not on the device, for op o of the loop. */
static gw_vid whole_for(sharder *s, gw_vid v, const gw_op *o) {
    int when = o->phase == GW_PHASE_F || s->opts->layout.keep_gathered ? FORWARD : BACKWARD;
    if (s->whole[when][v] != GW_NONE) return s->whole[when][v];
    bool forward = o->phase == GW_PHASE_F;
    set_frame(s, o, forward ? GW_PHASE_F : GW_PHASE_B, (gw_rate)o->rate);
    bool second = !forward && s->second[v] != GW_NONE;
    gw_vid y = second ? s->second[v] : on_device(s, s->map[v]);
    if (s->b.status == GW_OK && gw_type_of(s->dst, y)->flat) {
        y = gather(s, y, false);
        s->dst->values.items[y].role = GW_ROLE_TEMP;
        s->dst->values.items[y].cause = GW_CAUSE_COMMUNICATION;
        if (forward && s->inner && s->opts->train) keep_second(s, v, y);
    }
    return s->whole[when][v] = y;
}

/* ---- one op ---- */

static gw_status refuse(const sharder *s, const gw_op *o, const char *what, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "shard-unsupported", "%s of %s: %s",
                   gw_op_def(s->src, o)->name, gw_graph_str(s->src, o->scope), what);
}

static bool is_accumulator(const gw_graph *g, const gw_op *o, int in) {
    for (int k = 0; k < (int)o->nout; k++)
        if (gw_op_accumulator(g, o, k) == in) return true;
    return false;
}

/* The weights that an optimizer steps (or a copy of them, to undo it), or a gradient that is whole:
 * a view of this rank's part is enough. */
static bool wants_part(const sharder *s, const gw_op *o, int k) {
    if (s->opts->layout.zero < 1 || !s->shard) return false;
    if (gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER) return k < 2;
    return gw_op_is(s->src, o, "carry") && s->updated[gw_op_in(s->src, o, 0)];
}

/* Input k of op o, in a placement that the op takes. */
static gw_vid take_input(sharder *s, const gw_op *o, int k) {
    gw_vid v = gw_op_in(s->src, o, k), x = s->map[v];
    const gw_opdef *def = gw_op_def(s->src, o);
    gw_type t = *gw_type_of(s->dst, x);
    if (gw_op_is(s->src, o, "zeros")) return x; /* looks at the type alone */
    if (!(def->traits & GW_OP_FLAT) && t.flat) return whole_for(s, v, o);
    if (o->rate == GW_RATE_MB && is_away(s, x)) return whole_for(s, v, o);
    bool linear = (def->traits & GW_OP_LINEAR) || is_accumulator(s->src, o, k);
    set_frame(s, o, (gw_phase)o->phase, (gw_rate)o->rate);
    if (is_away(s, x)) return on_device(s, x);
    if (!linear && t.psum) return s->map[v] = reduce(s, x, false, 0, 0, false);
    if (wants_part(s, o, k) && !t.flat) {
        make_flat(s, &t);
        return s->map[v] = conversion(s, "slice", x, &t, 0, true);
    }
    if (gw_op_is(s->src, o, "accumulate") && k == 0) {
        const gw_type *acc = gw_type_of(s->dst, s->map[gw_op_in(s->src, o, 1)]);
        if (t.psum != acc->psum || t.flat != acc->flat) {
            s->dst->values.items[x].cause = GW_CAUSE_COMMUNICATION;
            return reduce(s, x, acc->flat, acc->psum, s->opts->layout.gradient_wire, false);
        }
    }
    return x;
}

/* The sub-axes on which factor f is cut in the op's inputs, as a list; false when two disagree. */
static bool cut_of(const gw_graph *g, const gw_op *o, const gw_factor *f, gw_dim *cut) {
    memset(cut, 0, sizeof *cut);
    bool seen = false;
    for (int k = 0; k < (int)o->nin && k < GW_MAX_IN; k++) {
        gw_vid v = gw_op_in(g, o, k);
        if (v == GW_NONE || f->in_dim[k] < 0 || is_accumulator(g, o, k)) continue;
        const gw_dim *d = &gw_type_of(g, v)->dims[f->in_dim[k]];
        if (seen && (d->naxes != cut->naxes || memcmp(d->axes, cut->axes, d->naxes) != 0))
            return false;
        *cut = *d;
        seen = true;
    }
    return true;
}

static void cut_dim(gw_dim *d, const gw_dim *cut) {
    d->naxes = cut->naxes;
    d->shard = cut->shard;
    memcpy(d->axes, cut->axes, sizeof d->axes);
}

/* The dimension of output k that is cut together with factor f, which is not in it: of a factor
 * that groups f (statistics of groups of samples), or that f groups; NULL if there is none. */
static gw_dim *partner_of(gw_type *t, const gw_signature *sig, const gw_factor *f, int k) {
    for (int i = 0; i < sig->nfactors; i++) {
        const gw_factor *p = &sig->factors[i];
        bool together = (p->with[0] && strncmp(p->with, f->name, sizeof p->with) == 0) ||
                        (f->with[0] && strncmp(f->with, p->name, sizeof p->name) == 0);
        if (together && p->out_dim[k] >= 0) return &t->dims[p->out_dim[k]];
    }
    return NULL;
}

static void apply_factor(gw_graph *g, const gw_op *o, const gw_signature *sig, const gw_factor *f,
                         const gw_dim *cut) {
    uint32_t mask = 0;
    for (int a = 0; a < cut->naxes; a++) mask |= 1u << cut->axes[a];
    for (int k = 0; k < (int)o->nout; k++) {
        gw_type *t = &g->values.items[gw_op_out(g, o, k)].type;
        gw_dim *d = f->out_dim[k] >= 0 ? &t->dims[f->out_dim[k]] : partner_of(t, sig, f, k);
        if (d)
            cut_dim(d, cut);
        else
            t->psum |= mask;
    }
}

/* Flat parts through an op that is indifferent to shape: outputs of the same size are flat too, a
 * scalar is a sum over what is cut. */
static gw_status apply_flat(sharder *s, const gw_op *o, const gw_op *from, gw_diags *dg) {
    gw_graph *g = s->dst;
    uint32_t axes = 0;
    for (int k = 0; k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE) axes |= gw_type_of(g, gw_op_in(g, o, k))->flat_axes;
    if (!axes) return GW_OK;
    for (int k = 0; k < (int)o->nin; k++) {
        const gw_type *t = gw_op_in(g, o, k) == GW_NONE ? NULL : gw_type_of(g, gw_op_in(g, o, k));
        if (t && t->ndim > 0 && t->flat_axes != axes && !gw_op_is(s->src, from, "zeros"))
            return refuse(s, from, "some operands are flat parts and some are not", dg);
    }
    for (int k = 0; k < (int)o->nout; k++) {
        gw_type *t = &g->values.items[gw_op_out(g, o, k)].type;
        if (t->ndim > 0) {
            t->flat = 1;
            t->flat_axes = axes;
        } else {
            t->psum |= axes;
        }
    }
    return GW_OK;
}

static gw_status apply_partial(sharder *s, const gw_op *o, const gw_op *from, gw_diags *dg) {
    gw_graph *g = s->dst;
    if (!(gw_op_def(g, o)->traits & GW_OP_LINEAR)) return GW_OK;
    uint32_t first = gw_type_of(g, gw_op_in(g, o, 0))->psum;
    for (int k = 0; k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE && !is_accumulator(g, o, k) &&
            gw_type_of(g, gw_op_in(g, o, k))->psum != first)
            return refuse(s, from, "a partial sum meets a value that is none", dg);
    for (int k = 0; k < (int)o->nout; k++) g->values.items[gw_op_out(g, o, k)].type.psum |= first;
    return GW_OK;
}

/* Placements of the outputs of op id of dst, whose inputs have theirs. */
static gw_status place_outputs(sharder *s, gw_oid id, const gw_op *from, gw_diags *dg) {
    gw_graph *g = s->dst;
    const gw_op o = g->ops.items[id];
    GW_TRY(apply_flat(s, &o, from, dg));
    GW_TRY(apply_partial(s, &o, from, dg));
    gw_signature sig;
    gw_op_def(g, &o)->sign(g, &o, &sig);
    for (int i = 0; i < sig.nfactors; i++) {
        const gw_factor *f = &sig.factors[i];
        gw_dim cut;
        if (!cut_of(g, &o, f, &cut)) return refuse(s, from, "its operands are cut differently", dg);
        if (cut.naxes && f->kind == GW_FACTOR_WHOLE)
            return refuse(s, from, "a dimension that must be whole is cut", dg);
        if (cut.naxes) apply_factor(g, &o, &sig, f, &cut);
    }
    for (int k = 0; k < (int)o.nout; k++) { /* an accumulator has its output's placement */
        int acc = gw_op_accumulator(g, &o, k);
        if (acc < 0 || gw_op_in(g, &o, acc) == GW_NONE) continue;
        const gw_type *a = gw_type_of(g, gw_op_in(g, &o, acc)),
                      *y = gw_type_of(g, gw_op_out(g, &o, k));
        if (a->psum != y->psum || a->flat_axes != y->flat_axes)
            return refuse(s, from, "its accumulator has another placement", dg);
    }
    return GW_OK;
}

/* An accumulator's zeros: as its readers need them. Zero is a partial sum of zero. */
static void place_zeros(sharder *s, gw_vid src, gw_vid v) {
    gw_type *t = &s->dst->values.items[v].type;
    t->flat = 0;
    t->flat_axes = 0;
    t->psum = 0;
    if (s->zero[src] == ZERO_PARTIAL) t->psum = s->all;
    if (s->zero[src] == ZERO_HOME && s->opts->layout.zero >= 2) {
        make_flat(s, t);
        t->psum = s->replicate;
    }
}

/* Moves a result's name to its converted value. */
static void move_name(gw_graph *g, gw_vid from, gw_vid to) {
    if (from == to) return;
    g->values.items[to].name = g->values.items[from].name;
    g->values.items[from].name = 0;
}

/* Converts output v of op o, now finished, to its home. */
static void finish(sharder *s, const gw_op *o, gw_vid v) {
    gw_vid x = s->map[v];
    gw_type t = *gw_type_of(s->dst, x);
    if (!t.psum) return;
    bool last_only = o->rate == GW_RATE_MB && s->src->micro_batches > 1 &&
                     s->dst->values.items[gw_value_root(s->dst, x)].rate == GW_RATE_STEP;
    set_frame(s, o, (gw_phase)o->phase, last_only ? GW_RATE_STEP : (gw_rate)o->rate);
    int zero = s->opts->layout.zero;
    bool gradient = s->gradient[v];
    bool flat = gradient && zero >= 1;
    bool passing = gradient && zero >= 2 && !t.flat && s->shard && !last_only;
    for (gw_vid u = x; passing && u != GW_NONE; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_COMMUNICATION;
    gw_vid y = reduce(s, x, flat, 0, gradient ? s->opts->layout.gradient_wire : 0, zero == 1);
    for (gw_vid u = y; gradient && u != GW_NONE && u != x; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_GRADIENTS;
    move_name(s->dst, x, y);
    s->map[v] = y;
}

/* Weights cast for the whole step are gathered at once, unless parameters are sharded. */
static void gather_cast(sharder *s, const gw_op *o) {
    gw_vid v = gw_op_out(s->src, o, 0);
    if (!gw_op_is(s->src, o, "cast") || o->rate != GW_RATE_STEP || s->opts->layout.zero >= 3)
        return;
    if (!gw_type_of(s->dst, s->map[v])->flat) return;
    set_frame(s, o, (gw_phase)o->phase, GW_RATE_STEP);
    gw_vid y = gather(s, s->map[v], false);
    s->dst->values.items[s->map[v]].cause = GW_CAUSE_COMMUNICATION;
    s->dst->values.items[y].cause = GW_CAUSE_WEIGHTS;
    s->map[v] = y;
}

/* Weights cast for the whole step wait elsewhere, if parameters do. */
static void spill_cast(sharder *s, const gw_op *o) {
    gw_mem mem = s->opts->layout.parameter_mem;
    if (!gw_op_is(s->src, o, "cast") || o->rate != GW_RATE_STEP || mem == GW_MEM_DEVICE) return;
    gw_vid v = gw_op_out(s->src, o, 0), y = s->map[v];
    set_frame(s, o, (gw_phase)o->phase, GW_RATE_STEP);
    s->map[v] = copy(s, "spill", y, GW_NONE, mem);
    if (s->b.status != GW_OK) return;
    s->dst->values.items[s->map[v]].cause = GW_CAUSE_WEIGHTS;
    s->dst->values.items[y].cause = GW_CAUSE_STAGING;
}

/* What an optimizer op made of states that lie elsewhere goes back there. */
static void store_states(sharder *s, const gw_op *o) {
    if (!(gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER)) return;
    for (int k = 0; k < (int)o->nout && s->b.status == GW_OK; k++) {
        gw_vid v = gw_op_out(s->src, o, k), home = s->leaf[gw_value_root(s->src, v)];
        if (!is_away(s, home)) continue;
        set_frame(s, o, GW_PHASE_O, GW_RATE_STEP);
        gw_mem mem = (gw_mem)s->dst->values.items[home].mem;
        s->map[v] = copy(s, "store", s->map[v], home, mem);
    }
}

/* Updated parts of weights whose home is whole, once they are final. */
static void gather_update(sharder *s, const gw_op *o) {
    if (!(gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER)) return;
    gw_vid v = gw_op_out(s->src, o, 0), y = s->map[v];
    if (!s->ends[v]) return;
    if (!gw_type_of(s->dst, y)->flat || gw_type_of(s->dst, gw_value_root(s->dst, y))->flat) return;
    set_frame(s, o, GW_PHASE_O, GW_RATE_STEP);
    s->map[v] = gather(s, y, true);
}

static gw_status place_op(sharder *s, gw_oid i, gw_diags *dg) {
    const gw_op *o = &s->src->ops.items[i];
    gw_vid *now = gw_mem_alloc(sizeof(gw_vid) * 2 * ((size_t)o->nin + 1)), *kept = now + o->nin;
    for (int k = 0; k < (int)o->nin; k++)
        now[k] = gw_op_in(s->src, o, k) == GW_NONE ? GW_NONE : take_input(s, o, k);
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(s->src, o, k);
        if (v == GW_NONE) continue;
        kept[k] = s->map[v];
        s->map[v] = now[k];
    }
    gw_status st = s->b.status;
    gw_oid id = st == GW_OK ? gw_graph_copy_op(s->dst, s->src, i, s->map) : 0;
    for (int k = (int)o->nin; k-- > 0;) /* backwards: an input may stand twice */
        if (gw_op_in(s->src, o, k) != GW_NONE) s->map[gw_op_in(s->src, o, k)] = kept[k];
    gw_mem_free(now);
    GW_TRY(st);
    GW_TRY(place_outputs(s, id, o, dg));
    if (gw_op_is(s->src, o, "zeros"))
        place_zeros(s, gw_op_out(s->src, o, 0), gw_op_out(s->dst, &s->dst->ops.items[id], 0));
    for (int k = 0; k < (int)o->nout; k++)
        if (s->finished[gw_op_out(s->src, o, k)]) finish(s, o, gw_op_out(s->src, o, k));
    gather_cast(s, o);
    spill_cast(s, o);
    gather_update(s, o);
    store_states(s, o);
    return s->b.status;
}

/* ---- the pass ---- */

static gw_status check_mesh(sharder *s, gw_diags *dg) {
    const gw_mesh *m = &s->src->mesh;
    for (int a = 0; a < m->naxes; a++)
        if (!(s->all >> a & 1u))
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "shard-axis",
                           "the mesh has the sub-axis %s; this build lays a step over dp and "
                           "dp_replicate",
                           m->axes[a].name);
    int64_t n = gw_mesh_ranks(m);
    for (int64_t v = 0; v < s->src->values.count; v++) {
        const gw_value *x = &s->src->values.items[v];
        int i = x->def == GW_NONE && x->role == GW_ROLE_INPUT ? gw_type_find(&x->type, "b") : -1;
        if (i >= 0 && x->type.dims[i].size % n != 0)
            return GW_FAIL(dg, GW_ERR_CONFIG, "shard-batch",
                           "a micro-batch of %lld samples does not divide over %lld ranks",
                           (long long)x->type.dims[i].size, (long long)n);
    }
    return GW_OK;
}

/* The most minor sub-axes of `dp` whose product is layout.secondary. */
static gw_status find_inner(sharder *s, gw_diags *dg) {
    int64_t want = s->opts->layout.secondary, n = 1;
    if (want == 0 || !s->opts->train) return GW_OK;
    gw_diag *d = NULL;
    if (s->opts->layout.zero < 3 || s->opts->layout.keep_gathered) {
        d = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "shard-secondary", (gw_where){0},
                        "a secondary shard is what backward gathers from, and here it gathers "
                        "nothing");
        gw_diag_hint(dg, d, "set layout.zero to 3 and layout.reshard_after_forward to auto");
        return GW_ERR_CONFIG;
    }
    char can[160] = "";
    uint32_t minor = 0;
    bool found = false;
    for (int a = s->src->mesh.naxes; a-- > 0;) {
        if (!(s->shard >> a & 1u)) continue;
        minor |= 1u << a;
        n *= s->src->mesh.axes[a].size;
        if (n == want) s->inner = minor;
        found |= n == want;
        size_t at = strlen(can);
        snprintf(can + at, sizeof can - at, "%s%lld", at ? ", " : "", (long long)n);
    }
    if (s->inner == s->shard) s->inner = 0; /* the part that is there already */
    if (found) return GW_OK;
    d = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "shard-secondary", (gw_where){0},
                    "no secondary shard over %lld ranks: parameters are sharded over %lld",
                    (long long)want, (long long)gw_mesh_size(&s->src->mesh, s->shard));
    gw_diag_hint(dg, d, "possible: %s", *can ? can : "none on one rank");
    return GW_ERR_CONFIG;
}

static gw_status wrong_offload(gw_diags *dg, const char *what, const char *fix) {
    gw_diag *d =
        gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "shard-offload", (gw_where){0}, "%s", what);
    gw_diag_hint(dg, d, "%s", fix);
    return GW_ERR_CONFIG;
}

static gw_status check_offload(const sharder *s, gw_diags *dg) {
    const gw_compile_opts *o = s->opts;
    const gw_layout_opts *l = &o->layout;
    if (l->parameter_mem != GW_MEM_DEVICE && l->zero < 3)
        return wrong_offload(dg, "offload.parameters: weights that stay whole are on the device",
                             "set layout.zero to 3, or offload.parameters to device");
    if (l->master_mem != GW_MEM_DEVICE && o->master == o->compute)
        return wrong_offload(dg, "offload.master: there is no master copy beside the weights",
                             "use offload.parameters, or a precision with a float32 master");
    if (!o->train) return GW_OK;
    if (l->optimizer_mem != GW_MEM_DEVICE && o->optim.kind == GW_OPTIM_SGD &&
        o->optim.momentum == 0)
        return wrong_offload(dg, "offload.optimizer: sgd without momentum has no state",
                             "set offload.optimizer to device");
    bool any = l->optimizer_mem || l->master_mem || l->parameter_mem;
    if (any && o->optim.deferred_norm)
        return wrong_offload(dg,
                             "optimizer.norm deferred keeps copies of all states on the device, "
                             "which offload would take away",
                             "set optimizer.norm to exact");
    return GW_OK;
}

static gw_status shard(sharder *s, gw_diags *dg) {
    GW_TRY(check_mesh(s, dg));
    GW_TRY(find_inner(s, dg));
    GW_TRY(check_offload(s, dg));
    for (int64_t i = 0; i < s->src->states.count; i++) s->ends[s->src->states.items[i].end] = true;
    for (int64_t i = 0; i < s->src->ops.count; i++) look_at_op(s, &s->src->ops.items[i]);
    for (int64_t v = 0; v < s->src->values.count; v++) {
        s->map[v] = s->second[v] = s->whole[FORWARD][v] = s->whole[BACKWARD][v] = GW_NONE;
        if (s->src->values.items[v].def == GW_NONE) place_leaf(s, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)s->src->ops.count; i++) GW_TRY(place_op(s, i, dg));
    for (int64_t i = 0; i < s->src->states.count; i++) {
        const gw_state *t = &s->src->states.items[i];
        gw_graph_add_state(s->dst, s->leaf[t->start], s->map[t->end]);
    }
    return s->b.status;
}

gw_status gw_pass_shard(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)report;
    const gw_layout_opts *l = &opts->layout;
    bool offload = l->optimizer_mem || l->master_mem || l->parameter_mem;
    if (src->mesh.naxes == 0 && !offload && !(l->secondary && opts->train)) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    gw_arena mem = {0};
    sharder s = {.src = src, .dst = dst, .opts = opts};
    gw_graph_init(dst, src->table);
    dst->mesh = src->mesh;
    dst->micro_batches = src->micro_batches;
    gw_builder_init(&s.b, dst, dg);
    s.shard = gw_mesh_group(&src->mesh, "dp");
    s.replicate = gw_mesh_group(&src->mesh, "dp_replicate");
    s.all = s.shard | s.replicate;
    int64_t n = src->values.count;
    s.map = gw_arena_new(&mem, gw_vid, n);
    s.leaf = gw_arena_new(&mem, gw_vid, n);
    s.whole[FORWARD] = gw_arena_new(&mem, gw_vid, n);
    s.whole[BACKWARD] = gw_arena_new(&mem, gw_vid, n);
    s.second = gw_arena_new(&mem, gw_vid, n);
    s.finished = gw_arena_new(&mem, bool, n);
    s.updated = gw_arena_new(&mem, bool, n);
    s.ends = gw_arena_new(&mem, bool, n);
    s.optimizer_state = gw_arena_new(&mem, bool, n);
    s.gradient = gw_arena_new(&mem, bool, n);
    s.zero = gw_arena_new(&mem, uint8_t, n);
    gw_status st = shard(&s, dg);
    gw_arena_release(&mem);
    if (st != GW_OK) gw_graph_release(dst);
    return st;
}

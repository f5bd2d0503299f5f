// SPDX-License-Identifier: Apache-2.0
// Placements: every value gets one, and where a use needs another than the definition has, a
// conversion is inserted. Nothing before this pass knows that there are ranks.
//
// Leaves begin it. Samples (dimension b) are cut over the data-parallel sub-axes, tokens (s) over
// cp, one dimension of each parameter over tp and experts over ep (shard_axes.c). What these cuts
// leave of a parameter is its home on every rank, or, as layout.zero says, that part flattened and
// cut again in balanced parts over the sub-axes of `dp` and `cp` that do not cut it already (what
// is in group `dp_replicate` holds copies):
//
//   zero   weights                 gradients        optimizer state   comes out as
//   0      R                       R                R                 all-reduce of gradients
//   1      R                       in place, whole  flat              reduce-scatter, all-gather
//   2      R                       flat             flat              the same; whole ones die
//                                                                     early
//   3      flat, gathered at use   flat             flat              all-gathers in forward,
//                                                                     again in backward
//
// Then each op in order, by its own shard rule or by its signature (shard_rule.c): inputs are
// converted to what it can work on, outputs get their placements. A gradient is converted to the
// cuts of its home where it is finished, so that reduction can overlap
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

#include "base/panic.h"   /* GW_ASSERT */
#include "pass/convert.h" /* gw_stream_of_axes */
#include "pass/shard.h"

/* ---- what the ops tell beforehand ---- */

static void look_at_op(gw_sharder *s, const gw_op *o) {
    const gw_graph *g = s->src;
    bool optimizer = gw_op_def(g, o)->traits & GW_OP_OPTIMIZER;
    if (optimizer) s->finished[gw_op_in(g, o, 1)] = s->gradient[gw_op_in(g, o, 1)] = true;
    if (optimizer) s->updated[gw_op_in(g, o, 0)] = true;
    if (gw_op_is(g, o, "sqnorm")) s->finished[gw_op_in(g, o, 0)] = true;
    for (int k = 2; optimizer && k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE)
            s->state_of[gw_op_in(g, o, k)] = gw_value_root(g, gw_op_in(g, o, 0));
    bool cast = gw_op_is(g, o, "cast") && s->weight[gw_op_in(g, o, 0)];
    if (cast) s->weight[gw_op_out(g, o, 0)] = true;
    for (int k = 0; k < (int)o->nout; k++) {
        int acc = gw_op_accumulator(g, o, k);
        gw_vid v = acc < 0 ? GW_NONE : gw_op_in(g, o, acc);
        if (v != GW_NONE)
            s->zero[v] = gw_op_is(g, o, "accumulate") ? GW_ZERO_HOME : GW_ZERO_PARTIAL;
        gw_vid out = gw_op_out(g, o, k);
        if (g->values.items[out].name != 0 && g->values.items[out].role != GW_ROLE_GRAD)
            s->finished[out] = true;
    }
}

/* Gradients, from the optimizer back to where they are made, are cut as their parameters are. */
static void find_homes(gw_sharder *s) {
    const gw_graph *g = s->src;
    for (int64_t i = g->ops.count; i-- > 0;) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_def(g, o)->traits & GW_OP_OPTIMIZER)
            s->home[gw_op_in(g, o, 1)] = gw_value_root(g, gw_op_in(g, o, 0));
        for (int k = 0; k < (int)o->nout; k++) {
            gw_vid home = s->home[gw_op_out(g, o, k)];
            if (home == GW_NONE) continue;
            bool linear = gw_op_def(g, o)->traits & GW_OP_LINEAR;
            for (int j = 0; j < (int)o->nin; j++) {
                gw_vid v = gw_op_in(g, o, j);
                bool follows = linear || gw_op_is(g, o, "accumulate") || gw_op_is(g, o, "carry") ||
                               gw_op_accumulator(g, o, k) == j;
                if (v != GW_NONE && follows && s->home[v] == GW_NONE &&
                    gw_type_same_dims(gw_type_of(g, v), gw_type_of(g, home)))
                    s->home[v] = home;
            }
        }
    }
}

/* ---- placements of leaves ---- */

/* Flat over what is sharded, less the sub-axes that cut dimensions already (experts). */
static void make_flat(const gw_sharder *s, gw_type *t) {
    uint32_t axes = s->shard & ~gw_type_cut_axes(t);
    t->flat = axes != 0;
    t->flat_axes = axes;
}

static const gw_param_info *info_of(const gw_sharder *s, gw_vid v) {
    const char *name = gw_graph_str(s->src, s->src->values.items[v].name);
    for (int i = 0; i < s->opts->nparams; i++)
        if (strcmp(s->opts->params[i].name, name) == 0) return &s->opts->params[i];
    return NULL;
}

/* The cuts of dimensions that parameter v has, whatever is flat. */
static gw_type cut_like_param(const gw_sharder *s, gw_vid param, const gw_type *t) {
    gw_type r = *t;
    gw_shard_cut_param(s, &r, info_of(s, param));
    return r;
}

static bool flat_params(const gw_sharder *s) {
    const gw_compile_opts *o = s->opts;
    return o->layout.zero >= 3 || (o->layout.zero >= 1 && o->master != o->compute);
}

/* Where a leaf's home lies. */
static gw_mem mem_of(const gw_sharder *s, gw_vid v) {
    const gw_compile_opts *o = s->opts;
    const gw_value *x = &s->src->values.items[v];
    if (x->role == GW_ROLE_STATE && s->state_of[v] != GW_NONE) return o->layout.optimizer_mem;
    if (x->role != GW_ROLE_PARAM) return GW_MEM_DEVICE;
    return o->master != o->compute ? o->layout.master_mem : o->layout.parameter_mem;
}

static void place_leaf(gw_sharder *s, gw_vid v) {
    gw_vid n = gw_graph_copy_leaf(s->dst, s->src, v);
    gw_value *x = &s->dst->values.items[n];
    gw_vid param = x->role == GW_ROLE_PARAM ? v : s->state_of[v];
    if (x->role == GW_ROLE_INPUT) gw_shard_cut_input(s, &x->type);
    if (param != GW_NONE && x->type.ndim > 0) {
        x->type = cut_like_param(s, param, &x->type);
        bool flat = x->role == GW_ROLE_PARAM ? flat_params(s) : s->opts->layout.zero >= 1;
        if (flat) make_flat(s, &x->type);
    } else if (x->role == GW_ROLE_STATE) {
        gw_shard_cut_input(s, &x->type);
    }
    x->mem = (uint8_t)mem_of(s, v);
    s->map[v] = s->leaf[v] = n;
}

/* ---- conversions ---- */

static void set_type(gw_sharder *s, gw_vid v, const gw_type *t) {
    s->dst->values.items[v].type = *t;
}

static gw_vid conversion(gw_sharder *s, const char *op, gw_vid x, const gw_type *to, int wire,
                         bool in_place) {
    gw_graph *g = s->dst;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(g->table, op, a);
    if (strcmp(op, "slice") != 0) gw_attrs_set(g->table, op, a, "wire", (gw_attr){.i = wire});
    gw_vid y = gw_build(&s->b, op, &x, 1, a, NULL);
    if (s->b.status != GW_OK) return y;
    set_type(s, y, to);
    gw_op *made = &g->ops.items[g->values.items[y].def];
    const gw_type *from = gw_type_of(g, x);
    uint32_t axes = (from->psum ^ to->psum) | (from->flat_axes ^ to->flat_axes);
    if (gw_op_def(g, made)->traits & GW_OP_COLLECTIVE)
        made->stream = (uint8_t)gw_stream_of_axes(&g->mesh, axes);
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

/* A partial sum to its home: `flat` (or as the dimensions are cut) with `psum` left. Only gradients
 * travel on a narrow wire. */
static gw_vid reduce(gw_sharder *s, gw_vid x, bool flat, uint32_t psum, int wire, bool in_place) {
    gw_type t = *gw_type_of(s->dst, x);
    if (flat && !t.flat) {
        make_flat(s, &t);
        uint32_t scattered = t.flat_axes & t.psum;
        if (t.flat && scattered == t.flat_axes) {
            t.psum &= ~scattered;
            x = conversion(s, "reduce_scatter", x, &t, wire, in_place);
        } else if (t.flat) { /* whole on some of them */
            gw_type r = *gw_type_of(s->dst, x);
            r.psum = psum;
            if (r.psum != t.psum) x = conversion(s, "all_reduce", x, &r, wire, true);
            t.psum = psum;
            x = conversion(s, "slice", x, &t, 0, in_place);
        }
        t = *gw_type_of(s->dst, x);
    }
    if (t.psum == (t.psum & psum)) return x;
    t.psum &= psum;
    return conversion(s, "all_reduce", x, &t, wire, true);
}

static gw_vid gather(gw_sharder *s, gw_vid x, bool in_place) {
    gw_type t = *gw_type_of(s->dst, x);
    t.flat = 0;
    t.flat_axes = 0;
    return conversion(s, "all_gather", x, &t, s->opts->layout.weight_wire, in_place);
}

static void set_frame(gw_sharder *s, const gw_op *o, gw_phase phase, gw_rate rate) {
    s->b.phase = phase;
    s->b.rate = rate;
    snprintf(s->b.scope, sizeof s->b.scope, "%s", gw_graph_str(s->src, o->scope));
}

/* A copy between memory kinds: `fetch` or `spill` of x into fresh bytes, `store` into those of
 * home. */
static gw_vid copy(gw_sharder *s, const char *op, gw_vid x, gw_vid home, gw_mem mem) {
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

static bool is_away(const gw_sharder *s, gw_vid v) {
    return s->dst->values.items[v].mem != GW_MEM_DEVICE;
}

static gw_vid on_device(gw_sharder *s, gw_vid x) {
    return is_away(s, x) ? copy(s, "fetch", x, GW_NONE, GW_MEM_DEVICE) : x;
}

/* Leaves this rank's secondary part of y, the whole of v that forward gathered. The bucket pass
 * drops one that nothing reads. */
static void keep_second(gw_sharder *s, gw_vid v, gw_vid y) {
    gw_type t = *gw_type_of(s->dst, y);
    t.flat = 1;
    t.flat_axes = s->inner;
    s->second[v] = conversion(s, "slice", y, &t, 0, false);
    s->dst->values.items[s->second[v]].role = GW_ROLE_TEMP;
    s->dst->values.items[s->second[v]].cause = GW_CAUSE_WEIGHTS;
}

/* The whole of v, which is flat or not on the device, for op o of the loop. */
static gw_vid whole_for(gw_sharder *s, gw_vid v, const gw_op *o) {
    int when = o->phase == GW_PHASE_F || s->opts->layout.keep_gathered ? GW_SHARD_FORWARD
                                                                       : GW_SHARD_BACKWARD;
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

/* Gradient x of source value v with the cuts of its home's dimensions: an op that must have them
 * whole (a norm's gain cut by layout.shard) makes it so. */
static gw_vid cut_home(gw_sharder *s, gw_vid v, gw_vid x) {
    gw_type t = *gw_type_of(s->dst, x);
    if (s->home[v] == GW_NONE || t.flat) return x;
    gw_type home = cut_like_param(s, s->home[v], gw_type_of(s->src, v));
    if (gw_type_same_cuts(&t, &home)) return x;
    home.psum = t.psum & ~gw_type_cut_axes(&home);
    return gw_convert(&s->b, x, &home);
}

/* The weights that an optimizer steps (or a copy of them, to undo it), or a gradient that is whole:
 * a view of this rank's part is enough. */
static bool wants_part(const gw_sharder *s, const gw_op *o, int k) {
    if (s->opts->layout.zero < 1 || !s->shard) return false;
    if (gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER) return k < 2;
    return gw_op_is(s->src, o, "carry") && s->updated[gw_op_in(s->src, o, 0)];
}

/* Input k of op o, in a placement that the op takes. */
static gw_vid take_input(gw_sharder *s, const gw_op *o, int k) {
    gw_vid v = gw_op_in(s->src, o, k), x = s->map[v];
    const gw_opdef *def = gw_op_def(s->src, o);
    const gw_type t = *gw_type_of(s->dst, x);
    if (gw_op_is(s->src, o, "zeros")) return x; /* looks at the type alone */
    if (!(def->traits & GW_OP_FLAT) && t.flat) return whole_for(s, v, o);
    if (o->rate == GW_RATE_MB && is_away(s, x)) return whole_for(s, v, o);
    set_frame(s, o, (gw_phase)o->phase, (gw_rate)o->rate);
    if (is_away(s, x)) return on_device(s, x);
    if (wants_part(s, o, k) && !t.flat) {
        gw_type part = t;
        make_flat(s, &part);
        /* A view, unless the whole is of another rate: a gradient that no rank shares. */
        bool view = s->dst->values.items[gw_value_root(s->dst, x)].rate == o->rate;
        if (part.flat) return s->map[v] = conversion(s, "slice", x, &part, 0, view);
    }
    if (gw_op_is(s->src, o, "accumulate") && k == 0 && gw_op_in(s->src, o, 1) != GW_NONE) {
        x = cut_home(s, v, x);
        if (s->b.status != GW_OK) return x;
        const gw_type now = *gw_type_of(s->dst, x),
                      *acc = gw_type_of(s->dst, s->map[gw_op_in(s->src, o, 1)]);
        if ((now.psum & ~acc->psum) || now.flat != acc->flat) {
            s->dst->values.items[x].cause = GW_CAUSE_COMMUNICATION;
            return reduce(s, x, acc->flat, acc->psum, s->opts->layout.gradient_wire, false);
        }
    }
    return x;
}

/* An accumulator of a gradient whose home is fixed beforehand. Zero is a partial sum of zero. */
static void place_home(gw_sharder *s, gw_vid src, gw_vid v) {
    gw_type *t = &s->dst->values.items[v].type;
    gw_vid home = s->home[src];
    if (home != GW_NONE) *t = cut_like_param(s, home, t);
    if (s->opts->layout.zero >= 2 && home != GW_NONE) {
        make_flat(s, t);
        t->psum = s->replicate;
    }
}

/* Zeros: those that gradients reach in their homes are placed at once, others by the first op that
 * adds into them. */
static void note_zeros(gw_sharder *s, gw_vid src, gw_vid v) {
    gw_type *t = &s->dst->values.items[v].type;
    for (int i = 0; i < t->ndim; i++) gw_dim_uncut(&t->dims[i], UINT32_MAX);
    t->flat = 0;
    t->flat_axes = 0;
    t->psum = 0;
    bool home = s->zero[src] == GW_ZERO_HOME;
    if (home) place_home(s, src, v);
    while (s->settled.count <= (int64_t)v) gw_vec_push(&s->settled, true);
    s->settled.items[v] = home || s->zero[src] == GW_ZERO_PLAIN;
}

/* Accumulators of the ops made since `first` get the placements of what is added into them. */
static gw_status settle_accumulators(gw_sharder *s, gw_oid first, gw_diags *dg) {
    gw_graph *g = s->dst;
    for (gw_oid i = first; i < (gw_oid)g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int k = 0; k < (int)o->nout; k++) {
            int in = gw_op_accumulator(g, o, k);
            gw_vid acc = in < 0 ? GW_NONE : gw_op_in(g, o, in);
            if (acc == GW_NONE) continue;
            gw_type *a = &g->values.items[acc].type;
            const gw_type *y = gw_type_of(g, gw_op_out(g, o, k));
            if ((int64_t)acc < s->settled.count && !s->settled.items[acc]) {
                *a = *y;
                s->settled.items[acc] = true;
            }
            if (a->psum != y->psum || a->flat_axes != y->flat_axes || !gw_type_same_cuts(a, y))
                return gw_shard_refuse(s, "its accumulator has another placement", dg);
        }
    }
    return GW_OK;
}

/* Moves a result's name to its converted value. */
static void move_name(gw_graph *g, gw_vid from, gw_vid to) {
    if (from == to) return;
    g->values.items[to].name = g->values.items[from].name;
    g->values.items[from].name = 0;
}

/* Is gradient x of v cut where its home is not? (Of one that is cut less, an optimizer op takes its
 * part.) */
static bool is_cut_more(const gw_sharder *s, gw_vid v, gw_vid x) {
    const gw_type *t = gw_type_of(s->dst, x);
    if (s->home[v] == GW_NONE || t->flat) return false;
    gw_type home = cut_like_param(s, s->home[v], gw_type_of(s->src, v));
    for (int i = 0; i < t->ndim; i++)
        if (gw_dim_axes(&t->dims[i]) & ~gw_dim_axes(&home.dims[i])) return true;
    return false;
}

/* Converts output v of op o, now finished, to its home. */
static void finish(gw_sharder *s, const gw_op *o, gw_vid v) {
    gw_vid x = s->map[v];
    if (!gw_type_of(s->dst, x)->psum && !is_cut_more(s, v, x)) return;
    bool last_only = o->rate == GW_RATE_MB && s->src->micro_batches > 1 &&
                     s->dst->values.items[gw_value_root(s->dst, x)].rate == GW_RATE_STEP;
    set_frame(s, o, (gw_phase)o->phase, last_only ? GW_RATE_STEP : (gw_rate)o->rate);
    int zero = s->opts->layout.zero;
    bool gradient = s->gradient[v];
    gw_vid made = x;
    x = s->map[v] = cut_home(s, v, x);
    if (s->b.status != GW_OK) return;
    const gw_type t = *gw_type_of(s->dst, x);
    if (!t.psum) {
        move_name(s->dst, made, x);
        return;
    }
    gw_type home = t;
    make_flat(s, &home);
    bool flat = gradient && zero >= 1 && home.flat;
    bool passing = gradient && zero >= 2 && !t.flat && home.flat && !last_only;
    for (gw_vid u = x; passing && u != GW_NONE; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_COMMUNICATION;
    gw_vid y = reduce(s, x, flat, 0, gradient ? s->opts->layout.gradient_wire : 0, zero == 1);
    for (gw_vid u = y; gradient && u != GW_NONE && u != x; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_GRADIENTS;
    move_name(s->dst, made, y);
    s->map[v] = y;
}

/* Weights cast for the whole step are gathered at once, unless parameters are sharded. */
static void gather_cast(gw_sharder *s, const gw_op *o) {
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
static void spill_cast(gw_sharder *s, const gw_op *o) {
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
static void store_states(gw_sharder *s, const gw_op *o) {
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
static void gather_update(gw_sharder *s, const gw_op *o) {
    if (!(gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER)) return;
    gw_vid v = gw_op_out(s->src, o, 0), y = s->map[v];
    if (!s->ends[v]) return;
    if (!gw_type_of(s->dst, y)->flat || gw_type_of(s->dst, gw_value_root(s->dst, y))->flat) return;
    set_frame(s, o, GW_PHASE_O, GW_RATE_STEP);
    s->map[v] = gather(s, y, true);
}

/* What the placed graph says of results beside their types comes from the graph before. */
static void inherit(gw_sharder *s, gw_vid from, gw_vid to) {
    const gw_value *x = &s->src->values.items[from];
    gw_value *y = &s->dst->values.items[to];
    y->role = x->role;
    if (y->tie == GW_NONE) y->cause = x->cause;
    if (x->name) y->name = gw_graph_intern(s->dst, gw_graph_str(s->src, x->name));
}

/* Calls the op's rule on its inputs; its outputs are in op.out. */
static gw_status apply_rule(gw_sharder *s, const gw_op *o, gw_arena *mem, gw_diags *dg) {
    const gw_opdef *def = gw_op_def(s->src, o);
    gw_attr *attrs = gw_arena_new(mem, gw_attr, def->nattrs + 1);
    const gw_type **want = gw_arena_new(mem, const gw_type *, o->nout + 1);
    gw_type *homes = gw_arena_new(mem, gw_type, o->nout + 1);
    for (int k = 0; k < def->nattrs; k++) {
        attrs[k] = gw_op_attr(s->src, o, k);
        if (def->attrs[k].kind == GW_ATTR_STR)
            attrs[k].s = gw_graph_intern(s->dst, gw_graph_str(s->src, attrs[k].s));
    }
    for (int k = 0; k < (int)o->nout; k++) {
        gw_vid v = gw_op_out(s->src, o, k);
        if (s->home[v] == GW_NONE || o->rate == GW_RATE_STEP) continue;
        homes[k] = cut_like_param(s, s->home[v], gw_type_of(s->src, v));
        int acc = gw_op_accumulator(s->src, o, k); /* what was added before decides */
        gw_vid a = acc < 0 || gw_op_in(s->src, o, acc) == GW_NONE ? GW_NONE : s->op.in[acc];
        bool open = a == GW_NONE || ((int64_t)a < s->settled.count && !s->settled.items[a]);
        if (!open && !gw_type_of(s->dst, a)->flat) homes[k] = *gw_type_of(s->dst, a);
        want[k] = &homes[k];
    }
    s->op = (gw_sharding){.b = &s->b,
                          .src = s->src,
                          .op = o,
                          .nin = o->nin,
                          .nout = o->nout,
                          .in = s->op.in,
                          .out = gw_arena_new(mem, gw_vid, o->nout + 1),
                          .attrs = attrs,
                          .axes = &s->axes,
                          .want = want,
                          .by_signature = gw_shard_by_signature,
                          .convert = gw_shard_convert};
    set_frame(s, o, (gw_phase)o->phase, (gw_rate)o->rate);
    GW_TRY(def->shard(&s->op, dg));
    return s->b.status;
}

static gw_status place_op(gw_sharder *s, gw_oid i, gw_arena *mem, gw_diags *dg) {
    const gw_op *o = &s->src->ops.items[i];
    gw_vid *now = gw_arena_new(mem, gw_vid, o->nin + 1);
    for (int k = 0; k < (int)o->nin; k++)
        now[k] = gw_op_in(s->src, o, k) == GW_NONE ? GW_NONE : take_input(s, o, k);
    GW_TRY(s->b.status);
    gw_oid first = (gw_oid)s->dst->ops.count;
    s->op.in = now;
    s->op.op = o;
    GW_TRY(apply_rule(s, o, mem, dg));
    for (int k = 0; k < (int)o->nout; k++) {
        gw_vid v = gw_op_out(s->src, o, k);
        s->map[v] = s->op.out[k];
        inherit(s, v, s->map[v]);
    }
    if (gw_op_is(s->src, o, "zeros") || gw_op_is(s->src, o, "blank"))
        note_zeros(s, gw_op_out(s->src, o, 0), s->map[gw_op_out(s->src, o, 0)]);
    GW_TRY(settle_accumulators(s, first, dg));
    for (int k = 0; k < (int)o->nout; k++)
        if (s->finished[gw_op_out(s->src, o, k)]) finish(s, o, gw_op_out(s->src, o, k));
    gather_cast(s, o);
    spill_cast(s, o);
    gather_update(s, o);
    store_states(s, o);
    return s->b.status;
}

/* ---- the pass ---- */

/* The most minor sub-axes of `dp` whose product is layout.secondary. */
static gw_status find_inner(gw_sharder *s, gw_diags *dg) {
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

static gw_status check_offload(const gw_sharder *s, gw_diags *dg) {
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

static gw_status shard(gw_sharder *s, gw_arena *mem, gw_diags *dg) {
    GW_TRY(gw_shard_find_axes(s, dg));
    GW_TRY(find_inner(s, dg));
    GW_TRY(check_offload(s, dg));
    for (int64_t i = 0; i < s->src->states.count; i++) s->ends[s->src->states.items[i].end] = true;
    for (int64_t v = 0; v < s->src->values.count; v++) {
        s->state_of[v] = s->home[v] = GW_NONE;
        s->weight[v] = s->src->values.items[v].role == GW_ROLE_PARAM;
    }
    for (int64_t i = 0; i < s->src->ops.count; i++) look_at_op(s, &s->src->ops.items[i]);
    find_homes(s);
    for (int64_t v = 0; v < s->src->values.count; v++) {
        s->map[v] = s->second[v] = s->whole[GW_SHARD_FORWARD][v] = s->whole[GW_SHARD_BACKWARD][v] =
            GW_NONE;
        if (s->src->values.items[v].def == GW_NONE) place_leaf(s, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)s->src->ops.count; i++) GW_TRY(place_op(s, i, mem, dg));
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
    gw_sharder s = {.src = src, .dst = dst, .opts = opts};
    gw_graph_begin(dst, src);
    gw_builder_init(&s.b, dst, dg);
    int64_t n = src->values.count;
    s.map = gw_arena_new(&mem, gw_vid, n);
    s.leaf = gw_arena_new(&mem, gw_vid, n);
    s.whole[GW_SHARD_FORWARD] = gw_arena_new(&mem, gw_vid, n);
    s.whole[GW_SHARD_BACKWARD] = gw_arena_new(&mem, gw_vid, n);
    s.second = gw_arena_new(&mem, gw_vid, n);
    s.finished = gw_arena_new(&mem, bool, n);
    s.updated = gw_arena_new(&mem, bool, n);
    s.ends = gw_arena_new(&mem, bool, n);
    s.weight = gw_arena_new(&mem, bool, n);
    s.state_of = gw_arena_new(&mem, gw_vid, n);
    s.home = gw_arena_new(&mem, gw_vid, n);
    s.gradient = gw_arena_new(&mem, bool, n);
    s.zero = gw_arena_new(&mem, uint8_t, n);
    gw_status st = shard(&s, &mem, dg);
    gw_imap_release(&s.index);
    gw_vec_release(&s.settled);
    gw_vec_release(&s.converted);
    gw_arena_release(&mem);
    if (st != GW_OK) gw_graph_release(dst);
    return st;
}

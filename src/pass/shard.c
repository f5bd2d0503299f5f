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
//   early 3      flat, gathered at use   flat             flat              all-gathers in forward,
//   again
//                                                                     in backward
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
// Left to the bucket pass: fusing, hoisting, algorithms.
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
    gw_vid *map;                    /* [src values]: in dst, converted if it was finished */
    gw_vid *whole[2];               /* [src values]: gathered, for forward and for backward */
    bool *finished;                 /* [src values]: converted where they are made */
    bool *optimizer_state;          /* [src values] */
    uint8_t *zero;                  /* [src values]: zero_kind of accumulators */
} sharder;

/* ---- what the ops tell beforehand ---- */

static bool is_named(const gw_graph *g, const gw_op *o, const char *name) {
    return strcmp(gw_op_def(g, o)->name, name) == 0;
}

static void look_at_op(sharder *s, const gw_op *o) {
    const gw_graph *g = s->src;
    bool optimizer = gw_op_def(g, o)->traits & GW_OP_OPTIMIZER;
    if (optimizer) s->finished[gw_op_in(g, o, 1)] = true;
    if (is_named(g, o, "sqnorm")) s->finished[gw_op_in(g, o, 0)] = true;
    for (int k = 2; optimizer && k < (int)o->nin; k++)
        if (gw_op_in(g, o, k) != GW_NONE) s->optimizer_state[gw_op_in(g, o, k)] = true;
    for (int k = 0; k < (int)o->nout; k++) {
        int acc = gw_op_accumulator(g, o, k);
        gw_vid v = acc < 0 ? GW_NONE : gw_op_in(g, o, acc);
        if (v != GW_NONE) s->zero[v] = is_named(g, o, "accumulate") ? ZERO_HOME : ZERO_PARTIAL;
        gw_vid out = gw_op_out(g, o, k);
        if (g->values.items[out].name != 0 && g->values.items[out].role != GW_ROLE_GRAD)
            s->finished[out] = true;
    }
}

/* ---- placements of leaves ---- */

static void cut_samples(sharder *s, gw_type *t) {
    int i = gw_type_find(t, "b");
    if (i < 0) return;
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
    s->map[v] = n;
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

/* A partial sum to `flat` (or whole) with `psum` left. */
static gw_vid reduce(sharder *s, gw_vid x, bool flat, uint32_t psum, bool in_place) {
    int wire = s->opts->layout.gradient_wire;
    gw_type t = *gw_type_of(s->dst, x);
    if (t.ndim == 0) wire = 0; /* scalars of the frame travel as they are */
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

/* The whole of flat value v for op o of the loop. */
static gw_vid whole_for(sharder *s, gw_vid v, const gw_op *o) {
    int when = o->phase == GW_PHASE_F || s->opts->layout.keep_gathered ? FORWARD : BACKWARD;
    if (s->whole[when][v] != GW_NONE) return s->whole[when][v];
    set_frame(s, o, o->phase == GW_PHASE_F ? GW_PHASE_F : GW_PHASE_B, (gw_rate)o->rate);
    gw_vid y = gather(s, s->map[v], false);
    s->dst->values.items[y].role = GW_ROLE_TEMP;
    s->dst->values.items[y].cause = GW_CAUSE_COMMUNICATION;
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

/* Input k of op o, in a placement that the op takes. */
static gw_vid take_input(sharder *s, const gw_op *o, int k) {
    gw_vid v = gw_op_in(s->src, o, k), x = s->map[v];
    const gw_opdef *def = gw_op_def(s->src, o);
    gw_type t = *gw_type_of(s->dst, x);
    if (!(def->traits & GW_OP_FLAT) && t.flat) return whole_for(s, v, o);
    bool linear = (def->traits & GW_OP_LINEAR) || is_accumulator(s->src, o, k);
    set_frame(s, o, (gw_phase)o->phase, (gw_rate)o->rate);
    if (!linear && t.psum) return s->map[v] = reduce(s, x, false, 0, false);
    bool part = (def->traits & GW_OP_OPTIMIZER) && k < 2 && s->opts->layout.zero >= 1 && s->shard;
    if (part &&
        !t.flat) { /* the weights, or a gradient that is whole: a view of this rank's part */
        make_flat(s, &t);
        return conversion(s, "slice", x, &t, 0, true);
    }
    if (is_named(s->src, o, "accumulate") && k == 0) {
        const gw_type *acc = gw_type_of(s->dst, s->map[gw_op_in(s->src, o, 1)]);
        if (t.psum != acc->psum || t.flat != acc->flat) {
            s->dst->values.items[x].cause = GW_CAUSE_COMMUNICATION;
            return reduce(s, x, acc->flat, acc->psum, false);
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

static void apply_factor(gw_graph *g, const gw_op *o, const gw_factor *f, const gw_dim *cut) {
    uint32_t mask = 0;
    for (int a = 0; a < cut->naxes; a++) mask |= 1u << cut->axes[a];
    for (int k = 0; k < (int)o->nout; k++) {
        gw_type *t = &g->values.items[gw_op_out(g, o, k)].type;
        if (f->out_dim[k] < 0) {
            t->psum |= mask;
            continue;
        }
        gw_dim *d = &t->dims[f->out_dim[k]];
        d->naxes = cut->naxes;
        d->shard = cut->shard;
        memcpy(d->axes, cut->axes, sizeof d->axes);
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
        if (t && t->ndim > 0 && t->flat_axes != axes && !is_named(s->src, from, "zeros"))
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
        if (gw_op_in(g, o, k) != GW_NONE && gw_type_of(g, gw_op_in(g, o, k))->psum != first)
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
        if (cut.naxes) apply_factor(g, &o, f, &cut);
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
    bool gradient = s->src->values.items[v].name == 0;
    bool flat = gradient && zero >= 1;
    bool passing = gradient && zero >= 2 && !t.flat && s->shard && !last_only;
    for (gw_vid u = x; passing && u != GW_NONE; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_COMMUNICATION;
    gw_vid y = reduce(s, x, flat, 0, zero == 1);
    for (gw_vid u = y; gradient && u != GW_NONE && u != x; u = s->dst->values.items[u].tie)
        s->dst->values.items[u].cause = GW_CAUSE_GRADIENTS;
    move_name(s->dst, x, y);
    s->map[v] = y;
}

/* Weights cast for the whole step are gathered at once, unless parameters are sharded. */
static void gather_cast(sharder *s, const gw_op *o) {
    gw_vid v = gw_op_out(s->src, o, 0);
    if (!is_named(s->src, o, "cast") || o->rate != GW_RATE_STEP || s->opts->layout.zero >= 3)
        return;
    if (!gw_type_of(s->dst, s->map[v])->flat) return;
    set_frame(s, o, (gw_phase)o->phase, GW_RATE_STEP);
    gw_vid y = gather(s, s->map[v], false);
    s->dst->values.items[s->map[v]].cause = GW_CAUSE_COMMUNICATION;
    s->dst->values.items[y].cause = GW_CAUSE_WEIGHTS;
    s->map[v] = y;
}

/* Updated parts of weights whose home is whole. */
static void gather_update(sharder *s, const gw_op *o) {
    if (!(gw_op_def(s->src, o)->traits & GW_OP_OPTIMIZER)) return;
    gw_vid v = gw_op_out(s->src, o, 0), y = s->map[v];
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
    if (is_named(s->src, o, "zeros"))
        place_zeros(s, gw_op_out(s->src, o, 0), gw_op_out(s->dst, &s->dst->ops.items[id], 0));
    for (int k = 0; k < (int)o->nout; k++)
        if (s->finished[gw_op_out(s->src, o, k)]) finish(s, o, gw_op_out(s->src, o, k));
    gather_cast(s, o);
    gather_update(s, o);
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

static gw_status shard(sharder *s, gw_diags *dg) {
    GW_TRY(check_mesh(s, dg));
    for (int64_t i = 0; i < s->src->ops.count; i++) look_at_op(s, &s->src->ops.items[i]);
    for (int64_t v = 0; v < s->src->values.count; v++) {
        s->map[v] = s->whole[FORWARD][v] = s->whole[BACKWARD][v] = GW_NONE;
        if (s->src->values.items[v].def == GW_NONE) place_leaf(s, (gw_vid)v);
    }
    for (gw_oid i = 0; i < (gw_oid)s->src->ops.count; i++) GW_TRY(place_op(s, i, dg));
    for (int64_t i = 0; i < s->src->states.count; i++) {
        const gw_state *t = &s->src->states.items[i];
        gw_graph_add_state(s->dst, s->map[t->start], s->map[t->end]);
    }
    return s->b.status;
}

gw_status gw_pass_shard(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    (void)report;
    if (src->mesh.naxes == 0) {
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
    s.whole[FORWARD] = gw_arena_new(&mem, gw_vid, n);
    s.whole[BACKWARD] = gw_arena_new(&mem, gw_vid, n);
    s.finished = gw_arena_new(&mem, bool, n);
    s.optimizer_state = gw_arena_new(&mem, bool, n);
    s.zero = gw_arena_new(&mem, uint8_t, n);
    gw_status st = shard(&s, dg);
    gw_arena_release(&mem);
    if (st != GW_OK) gw_graph_release(dst);
    return st;
}

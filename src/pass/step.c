// SPDX-License-Identifier: Apache-2.0
// The step's frame: what stands around the micro-batch loop so that a graph of gradients becomes a
// training step.
//
//   before the loop   master weights cast to the compute dtype (when they differ); accumulators
//                     zeroed (when the step has more than one micro-batch)
//   in the loop       the forward and backward ops, each weight gradient adding into its
//                     accumulator
//   after the loop    what the model does once a step; sum of squares of every gradient, their sum,
//                     norm and clip factor, then one optimizer op a parameter, tied to the bytes it
//                     updates
//
// Where gradients are reduced over ranks in each micro-batch (layout.reduce_each), a parameter's
// gradient is finished within the micro-batch and an `accumulate` op adds it to the accumulator,
// whose placement may then be a part; the shard pass puts the reduction between the two.
//
// With one micro-batch nothing is zeroed and the first gradient of a parameter is written, not
// added: the same numbers with less traffic. Further gradients of that parameter (a tied embedding)
// add onto the first.
//
// Neither the learning rate nor the step number nor the loss scale is a constant of the program:
// `lr`, `step` and `inv_scale` are inputs at step rate. Optimizer ops read `ok`; a step whose norm
// is not finite leaves every byte of state as it was, in every precision. State that the loop
// itself advances (running statistics of a batch norm) is worked on in a copy (carry) and taken
// over after the norm (commit).
//
// The norm binds: no parameter may be stepped before every gradient is there and, on several ranks,
// summed. With optim.deferred_norm each optimizer op steps at once as if nothing were clipped,
// while copies of the parameter and its states are kept. When the norm is known, `redo` compares
// the factor with the one used: equal, and all is done; another one, and the copies come back and a
// second op steps with it; not finite, and the copies come back. So the result is that of the exact
// order bit for bit, and the price is the copies, alive from the first step to the verdict.
//
// In a pipeline the ranks come to the end of a step at different times, and a verdict within the
// step would make all wait for the last. There the frame is that of the exact norm, and the verdict
// comes a step later (gw_compile_keeps).
//
// Bytes a parameter (weights + gradients + optimizer) follow from dtypes alone: fp32 4+4+(m4+v4);
// bf16 weights and gradients with a float32 master 2+2+(4+4+4); bf16 weights with float32 gradients
// 2+4+12; pure bf16 2+2+(2+2).
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef struct param_state {
    gw_vid leaf;  /* in dst: what the optimizer updates */
    gw_vid acc;   /* accumulator, then the latest gradient; GW_NONE before the first */
    gw_vid sum;   /* reduce_each: the accumulator */
    int left;     /* reduce_each: gradients still to come in a micro-batch */
    gw_type type; /* of the leaf */
    const gw_param_info *info;
    const char *name;
} param_state;

typedef struct frame {
    const gw_graph *src;
    gw_graph *dst;
    const gw_compile_opts *opts;
    gw_builder b;
    gw_vid *map; /* [src values] */
    param_state *params;
    int nparams;
    gw_smap by_name; /* parameter name -> index */
    gw_vid lr, step, inv_scale, muon_lr;
    gw_vid *held; /* [src states]: leaves of states that the loop advances */
    bool each;    /* gradients are finished, and reduced, in each micro-batch */
} frame;

static gw_attr attr_dtype(gw_dtype t) { return (gw_attr){.i = t}; }

static const gw_param_info *find_info(const gw_compile_opts *o, const char *name) {
    for (int i = 0; i < o->nparams; i++)
        if (strcmp(o->params[i].name, name) == 0) return &o->params[i];
    gw_panic("the step pass was given no facts of parameter '%s'", name);
}

static void set_role(gw_graph *g, gw_vid v, gw_role role, gw_cause cause) {
    g->values.items[v].role = (uint8_t)role;
    g->values.items[v].cause = (uint8_t)cause;
}

/* Leaves of dst: parameters in their master dtype, the other leaves as they are. */
static void make_leaves(frame *f) {
    const gw_compile_opts *o = f->opts;
    bool has_master = o->master != o->compute;
    for (int64_t v = 0; v < f->src->values.count; v++) {
        const gw_value *x = &f->src->values.items[v];
        f->map[v] = GW_NONE;
        if (x->def != GW_NONE) continue;
        if (x->role != GW_ROLE_PARAM) {
            f->map[v] = gw_graph_copy_leaf(f->dst, f->src, (gw_vid)v);
            continue;
        }
        param_state *p = &f->params[f->nparams];
        p->name = gw_graph_str(f->src, x->name);
        p->info = o->train ? find_info(o, p->name) : NULL;
        p->type = x->type;
        p->type.dtype = (uint8_t)o->master;
        p->acc = GW_NONE;
        p->leaf =
            gw_graph_leaf(f->dst, GW_ROLE_PARAM, has_master ? GW_CAUSE_OPTIMIZER : GW_CAUSE_WEIGHTS,
                          GW_RATE_STEP, p->type, p->name);
        gw_smap_put_c(&f->by_name, p->name, (uint32_t)f->nparams++);
        f->map[v] = p->leaf;
    }
}

static gw_vid scalar_input(frame *f, gw_dtype t, const char *name) {
    return gw_graph_leaf(f->dst, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_STEP, gw_type_scalar(t),
                         name);
}

/* Casts of weights, by source value. */
static void cast_weights(frame *f) {
    if (f->opts->master == f->opts->compute) return;
    gw_builder_enter(&f->b, "weights");
    gw_attr to = attr_dtype(f->opts->compute);
    for (int64_t v = 0; v < f->src->values.count; v++) {
        const gw_value *x = &f->src->values.items[v];
        if (x->def != GW_NONE || x->role != GW_ROLE_PARAM) continue;
        gw_vid in[1] = {f->map[v]};
        gw_vid w = gw_build(&f->b, "cast", in, 1, &to, NULL);
        set_role(f->dst, w, GW_ROLE_TEMP, GW_CAUSE_WEIGHTS);
        f->map[v] = w;
    }
    gw_builder_leave(&f->b);
}

static void zero_accumulators(frame *f) {
    gw_builder_enter(&f->b, "gradients");
    gw_attr to = attr_dtype(f->opts->gradients);
    for (int i = 0; i < f->nparams; i++) {
        gw_vid in[1] = {f->params[i].leaf};
        gw_vid zero = gw_build(&f->b, "zeros", in, 1, &to, NULL);
        set_role(f->dst, zero, GW_ROLE_TEMP, GW_CAUSE_GRADIENTS);
        *(f->each ? &f->params[i].sum : &f->params[i].acc) = zero;
    }
    gw_builder_leave(&f->b);
}

/* An accumulator for a named result that an accumulating op of the loop defines: a scalar (the
 * loss), or a vector (the load of experts). */
static gw_vid zero_result(frame *f, gw_vid like) {
    const gw_type *t = gw_type_of(f->src, like);
    gw_attr a[GW_MAX_ATTRS] = {attr_dtype((gw_dtype)t->dtype)};
    gw_vid in[1] = {f->lr}, z;
    if (t->ndim == 0) {
        z = gw_build(&f->b, "zeros", in, 1, a, NULL);
    } else {
        gw_attr dim = {0};
        dim.s = gw_graph_intern(f->dst, t->dims[0].name);
        gw_attrs_set(f->dst->table, "blank", a, "dtype", attr_dtype((gw_dtype)t->dtype));
        gw_attrs_set(f->dst->table, "blank", a, "size", (gw_attr){.i = t->dims[0].size});
        gw_attrs_set(f->dst->table, "blank", a, "dim", dim);
        z = gw_build(&f->b, "blank", NULL, 0, a, NULL);
    }
    set_role(f->dst, z, GW_ROLE_TEMP, GW_CAUSE_ACTIVATIONS);
    return z;
}

/* Wires output k of the op just copied into its accumulator. */
static gw_status chain_gradient(frame *f, gw_oid o, int k, gw_vid dv, const char *name,
                                gw_diags *dg) {
    uint32_t i = 0;
    if (!gw_smap_find_c(&f->by_name, name, &i))
        gw_panic("a gradient of '%s', which is no parameter", name);
    param_state *p = &f->params[i];
    if (p->acc != GW_NONE) {
        if (gw_op_accumulator(f->dst, &f->dst->ops.items[o], k) < 0)
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "no-accumulate",
                           "%s cannot add into the accumulator of '%s'",
                           gw_op_def(f->dst, &f->dst->ops.items[o])->name, name);
        gw_op_set_accumulator(f->dst, o, k, p->acc);
    }
    set_role(f->dst, dv, GW_ROLE_TEMP, GW_CAUSE_GRADIENTS);
    f->dst->values.items[dv].name = 0;
    p->acc = dv;
    return GW_OK;
}

/* reduce_each: the last gradient of a parameter in a micro-batch goes into its accumulator. */
static void finish_gradient(frame *f, gw_oid o, const char *name) {
    uint32_t i = 0;
    (void)gw_smap_find_c(&f->by_name, name, &i);
    param_state *p = &f->params[i];
    if (!f->each || --p->left > 0) return;
    gw_builder b = f->b;
    gw_op op = f->dst->ops.items[o];
    b.phase = (gw_phase)op.phase;
    b.rate = GW_RATE_MB;
    snprintf(b.scope, sizeof b.scope, "%s", gw_graph_str(f->dst, op.scope));
    p->acc = gw_build1(&b, "accumulate", p->acc, p->sum);
    f->b.status = b.status;
}

static void count_gradients(frame *f) {
    const gw_graph *s = f->src;
    for (int64_t v = 0; v < s->values.count; v++) {
        uint32_t i = 0;
        if (s->values.items[v].role != GW_ROLE_GRAD) continue;
        if (gw_smap_find_c(&f->by_name, gw_graph_str(s, s->values.items[v].name), &i))
            f->params[i].left++;
    }
}

static gw_status copy_loop(frame *f, gw_diags *dg) {
    const gw_graph *s = f->src;
    count_gradients(f);
    for (gw_oid i = 0; i < (gw_oid)s->ops.count; i++) {
        if (s->ops.items[i].rate == GW_RATE_STEP) continue;
        gw_oid o = gw_graph_copy_op(f->dst, s, i, f->map);
        for (int k = 0; k < (int)s->ops.items[i].nout; k++) {
            gw_vid sv = gw_op_out(s, &s->ops.items[i], k);
            if (s->values.items[sv].role != GW_ROLE_GRAD) continue;
            const char *name = gw_graph_str(s, s->values.items[sv].name);
            GW_TRY(chain_gradient(f, o, k, f->map[sv], name, dg));
            finish_gradient(f, o, name);
        }
    }
    return GW_OK;
}

/* Named results of the loop (losses, loads) are sums over micro-batches: their accumulators stand
 * before it. */
static gw_status prepare_sums(frame *f, gw_vid *sum_of, gw_diags *dg) {
    const gw_graph *s = f->src;
    for (int64_t v = 0; v < s->values.count; v++) {
        const gw_value *x = &s->values.items[v];
        sum_of[v] = GW_NONE;
        if (x->def == GW_NONE || x->name == 0 || x->role == GW_ROLE_GRAD) continue;
        if (gw_op_accumulator(s, &s->ops.items[x->def], x->out) < 0)
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "no-accumulate",
                           "the named result '%s' cannot be summed over micro-batches",
                           gw_graph_str(s, x->name));
        if (x->type.ndim > 1) gw_panic("a named result of a training step is a matrix");
        sum_of[v] = zero_result(f, (gw_vid)v);
    }
    return GW_OK;
}

static void wire_sums(frame *f, const gw_vid *sum_of) {
    for (int64_t v = 0; v < f->src->values.count; v++) {
        if (sum_of[v] == GW_NONE) continue;
        const gw_value *d = &f->dst->values.items[f->map[v]];
        gw_op_set_accumulator(f->dst, d->def, d->out, sum_of[v]);
    }
}

/* ---- after the loop ---- */

static gw_vid sum_squares(frame *f) {
    gw_builder_enter(&f->b, "norm");
    gw_vid *squares = gw_mem_alloc(sizeof(gw_vid) * ((size_t)f->nparams + 1));
    for (int i = 0; i < f->nparams; i++) squares[i] = gw_build1(&f->b, "sqnorm", f->params[i].acc);
    gw_vid sum = gw_build(&f->b, "addn", squares, f->nparams, NULL, NULL);
    gw_mem_free(squares);
    gw_builder_leave(&f->b);
    return sum;
}

static void clip(frame *f, gw_vid sum, gw_vid *factor, gw_vid *ok) {
    gw_builder_enter(&f->b, "norm");
    gw_attr max = {.f = f->opts->optim.clip_norm};
    gw_vid in[2] = {sum, f->inv_scale}, more[2] = {0};
    gw_vid norm = gw_build(&f->b, "clip", in, 2, &max, more);
    *factor = more[0];
    *ok = more[1];
    f->dst->values.items[norm].name = gw_graph_intern(f->dst, "norm");
    f->dst->values.items[more[1]].name = gw_graph_intern(f->dst, "ok");
    gw_builder_leave(&f->b);
}

/* ---- one parameter's update ---- */

enum { UPDATE_VALUES = 3 };

/* A parameter and its states: the leaves, copies of them, and what they have become. */
typedef struct update {
    const param_state *p;
    gw_vid start[UPDATE_VALUES], copy[UPDATE_VALUES], now[UPDATE_VALUES];
    int n;
} update;

static void add_state_leaf(frame *f, update *u, const char *suffix) {
    char name[256];
    snprintf(name, sizeof name, "%s.%s", u->p->name, suffix);
    gw_type type = u->p->type;
    type.dtype = (uint8_t)f->opts->moments;
    u->start[u->n] = u->now[u->n] =
        gw_graph_leaf(f->dst, GW_ROLE_STATE, GW_CAUSE_OPTIMIZER, GW_RATE_STEP, type, name);
    u->n++;
}

static bool takes_muon(const frame *f, const param_state *p) {
    return f->opts->optim.kind == GW_OPTIM_MUON && p->info->hidden;
}

static void begin_update(frame *f, update *u, const param_state *p) {
    *u = (update){.p = p, .start = {p->leaf}, .now = {p->leaf}, .n = 1};
    bool sgd = f->opts->optim.kind == GW_OPTIM_SGD;
    if (!sgd || f->opts->optim.momentum != 0) add_state_leaf(f, u, "m");
    if (!sgd && !takes_muon(f, p)) add_state_leaf(f, u, "v");
}

/* Appends optimizer op `name`: p, g, states, then the scalars. */
static void apply_update(frame *f, update *u, const char *name, const gw_attr *attrs,
                         const gw_vid *scalars, int nscalars) {
    gw_vid in[GW_MAX_IN] = {u->now[0], u->p->acc}, more[UPDATE_VALUES] = {0};
    int n = 2;
    for (int k = 1; k < u->n; k++) in[n++] = u->now[k];
    for (int k = 0; k < nscalars; k++) in[n++] = scalars[k];
    u->now[0] = gw_build(&f->b, name, in, n, attrs, more);
    for (int k = 1; k < u->n; k++) u->now[k] = more[k - 1];
}

static void emit_adamw(frame *f, update *u, gw_vid factor, gw_vid ok) {
    const gw_optim_opts *c = &f->opts->optim;
    gw_graph *g = f->dst;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(g->table, "adamw", a);
    gw_attrs_set(g->table, "adamw", a, "beta1", (gw_attr){.f = c->beta1});
    gw_attrs_set(g->table, "adamw", a, "beta2", (gw_attr){.f = c->beta2});
    gw_attrs_set(g->table, "adamw", a, "eps", (gw_attr){.f = c->eps});
    gw_attrs_set(g->table, "adamw", a, "decay", (gw_attr){.f = u->p->info->decay ? c->decay : 0});
    if (f->opts->stochastic && u->p->type.dtype == GW_BF16) {
        gw_attrs_set(g->table, "adamw", a, "stochastic", (gw_attr){.i = 1});
        gw_attrs_set(g->table, "adamw", a, "seed", (gw_attr){.i = (int64_t)f->opts->seed});
        gw_attr key = {0};
        key.s = gw_graph_intern(g, u->p->name);
        gw_attrs_set(g->table, "adamw", a, "key", key);
    }
    apply_update(f, u, "adamw", a, (gw_vid[]){factor, ok, f->lr, f->step}, 4);
}

static void emit_sgd(frame *f, update *u, gw_vid factor, gw_vid ok) {
    const gw_optim_opts *c = &f->opts->optim;
    gw_graph *g = f->dst;
    gw_attr a[GW_MAX_ATTRS], decay = {.f = u->p->info->decay ? c->decay : 0};
    if (c->momentum == 0) {
        gw_attrs_default(g->table, "sgd", a);
        gw_attrs_set(g->table, "sgd", a, "decay", decay);
        apply_update(f, u, "sgd", a, (gw_vid[]){factor, ok, f->lr}, 3);
        return;
    }
    gw_attrs_default(g->table, "sgdm", a);
    gw_attrs_set(g->table, "sgdm", a, "momentum", (gw_attr){.f = c->momentum});
    gw_attrs_set(g->table, "sgdm", a, "nesterov", (gw_attr){.i = c->nesterov});
    gw_attrs_set(g->table, "sgdm", a, "decay", decay);
    apply_update(f, u, "sgdm", a, (gw_vid[]){factor, ok, f->lr, f->step}, 4);
}

static void emit_muon(frame *f, update *u, gw_vid factor, gw_vid ok) {
    const gw_optim_opts *c = &f->opts->optim;
    gw_graph *g = f->dst;
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(g->table, "muon", a);
    gw_attrs_set(g->table, "muon", a, "rows", (gw_attr){.i = u->p->info->rows});
    gw_attrs_set(g->table, "muon", a, "momentum", (gw_attr){.f = c->muon_momentum});
    gw_attrs_set(g->table, "muon", a, "nesterov", (gw_attr){.i = 1});
    gw_attrs_set(g->table, "muon", a, "ns_steps", (gw_attr){.i = c->muon_ns_steps});
    gw_attrs_set(g->table, "muon", a, "decay", (gw_attr){.f = u->p->info->decay ? c->decay : 0});
    apply_update(f, u, "muon", a, (gw_vid[]){factor, ok, f->muon_lr}, 3);
}

static void emit_update(frame *f, update *u, gw_vid factor, gw_vid ok) {
    switch (f->opts->optim.kind) {
    case GW_OPTIM_ADAMW: emit_adamw(f, u, factor, ok); break;
    case GW_OPTIM_SGD: emit_sgd(f, u, factor, ok); break;
    case GW_OPTIM_MUON:
        if (takes_muon(f, u->p))
            emit_muon(f, u, factor, ok);
        else
            emit_adamw(f, u, factor, ok);
        break;
    }
}

static void end_update(frame *f, const update *u) {
    for (int k = 0; k < u->n && f->b.status == GW_OK; k++)
        gw_graph_add_state(f->dst, u->start[k], u->now[k]);
}

/* Deferred norm, first half: a step as if nothing were clipped, which waits for no other tensor.
 * inv_scale is never 0, so it serves as `ok` too. */
static void step_ahead(frame *f, update *u) {
    for (int k = 0; k < u->n && f->b.status == GW_OK; k++) {
        u->copy[k] = gw_build1(&f->b, "carry", u->start[k]);
        set_role(f->dst, u->copy[k], GW_ROLE_TEMP, GW_CAUSE_STAGING);
    }
    emit_update(f, u, f->inv_scale, f->inv_scale);
}

/* Second half: the copies come back where that step was wrong, and a right one follows if there is
 * any. */
static void step_again(frame *f, update *u, gw_vid factor, gw_vid redo, gw_vid ok) {
    for (int k = 0; k < u->n && f->b.status == GW_OK; k++)
        u->now[k] = gw_build1(&f->b, "commit", u->now[k], u->copy[k], redo);
    emit_update(f, u, factor, ok);
}

static void name_gradients(frame *f) {
    for (int i = 0; i < f->nparams; i++) {
        char name[256];
        snprintf(name, sizeof name, "grad:%s", f->params[i].name);
        f->dst->values.items[f->params[i].acc].name = gw_graph_intern(f->dst, name);
    }
}

/* State that the loop advances (running statistics): it works on a copy, which is taken over after
 * the norm, if the step is accepted. */
static void carry_states(frame *f, gw_arena *mem) {
    const gw_graph *s = f->src;
    f->held = gw_arena_new(mem, gw_vid, s->states.count + 1);
    gw_builder_enter(&f->b, "state");
    for (int64_t i = 0; i < s->states.count; i++) {
        gw_vid start = s->states.items[i].start;
        f->held[i] = f->map[start];
        f->map[start] = gw_build1(&f->b, "carry", f->held[i]);
        set_role(f->dst, f->map[start], GW_ROLE_TEMP, GW_CAUSE_WEIGHTS);
    }
    gw_builder_leave(&f->b);
}

/* What the model does once a step (a bias moves against the load) follows the loop: forward and
 * backward, what is recomputed included, read its state as it was. */
static void copy_step_ops(frame *f) {
    const gw_graph *s = f->src;
    for (gw_oid i = 0; i < (gw_oid)s->ops.count; i++)
        if (s->ops.items[i].rate == GW_RATE_STEP) (void)gw_graph_copy_op(f->dst, s, i, f->map);
}

static void commit_states(frame *f, gw_vid ok) {
    const gw_graph *s = f->src;
    gw_builder_enter(&f->b, "state");
    for (int64_t i = 0; i < s->states.count; i++) {
        gw_vid end = f->map[s->states.items[i].end];
        gw_vid out = gw_build1(&f->b, "commit", f->held[i], end, ok);
        if (f->b.status == GW_OK) gw_graph_add_state(f->dst, f->held[i], out);
    }
    gw_builder_leave(&f->b);
}

static void emit_exact(frame *f, update *u, gw_vid *ok) {
    gw_vid factor = GW_NONE;
    clip(f, sum_squares(f), &factor, ok);
    gw_builder_enter(&f->b, "optimizer");
    for (int i = 0; i < f->nparams; i++) emit_update(f, &u[i], factor, *ok);
    gw_builder_leave(&f->b);
}

static void emit_deferred(frame *f, update *u, gw_vid *ok) {
    gw_vid factor = GW_NONE, again[1] = {0};
    gw_vid sum = sum_squares(f);
    gw_builder_enter(&f->b, "optimizer");
    for (int i = 0; i < f->nparams; i++) step_ahead(f, &u[i]);
    gw_builder_leave(&f->b);
    clip(f, sum, &factor, ok);
    gw_builder_enter(&f->b, "optimizer");
    gw_vid in[3] = {factor, f->inv_scale, *ok};
    gw_vid redo = gw_build(&f->b, "redo", in, 3, NULL, again);
    for (int i = 0; i < f->nparams; i++) step_again(f, &u[i], factor, redo, again[0]);
    gw_builder_leave(&f->b);
}

static void emit_optimizer(frame *f, gw_arena *mem) {
    gw_vid ok = GW_NONE;
    update *u = gw_arena_new(mem, update, f->nparams + 1);
    if (f->opts->keep_gradients) name_gradients(f);
    if (f->opts->optim.kind == GW_OPTIM_MUON) f->muon_lr = scalar_input(f, GW_F32, "muon_lr");
    for (int i = 0; i < f->nparams; i++) begin_update(f, &u[i], &f->params[i]);
    if (f->opts->optim.deferred_norm && !gw_compile_keeps(f->opts))
        emit_deferred(f, u, &ok);
    else
        emit_exact(f, u, &ok);
    for (int i = 0; i < f->nparams; i++) end_update(f, &u[i]);
    commit_states(f, ok);
}

/* Forward only: weights are cast once a run of the loop, nothing is updated. */
static gw_status build_forward_frame(frame *f) {
    make_leaves(f);
    cast_weights(f);
    for (gw_oid i = 0; i < (gw_oid)f->src->ops.count; i++)
        (void)gw_graph_copy_op(f->dst, f->src, i, f->map);
    for (int64_t i = 0; i < f->src->states.count; i++)
        gw_graph_add_state(f->dst, f->map[f->src->states.items[i].start],
                           f->map[f->src->states.items[i].end]);
    return f->b.status;
}

static gw_status build_frame(frame *f, gw_arena *mem, gw_diags *dg) {
    f->b.phase = GW_PHASE_O;
    f->b.rate = GW_RATE_STEP;
    if (!f->opts->train) return build_forward_frame(f);
    make_leaves(f);
    f->lr = scalar_input(f, GW_F32, "lr");
    f->step = scalar_input(f, GW_I64, "step");
    f->inv_scale = scalar_input(f, GW_F32, "inv_scale");
    cast_weights(f);
    carry_states(f, mem);
    gw_vid *sum_of = gw_arena_new(mem, gw_vid, f->src->values.count);
    bool many = f->opts->micro_batches > 1;
    f->each = many && f->opts->layout.reduce_each && f->src->mesh.naxes > 0;
    if (many) {
        zero_accumulators(f);
        GW_TRY(prepare_sums(f, sum_of, dg));
    }
    GW_TRY(copy_loop(f, dg));
    if (many) wire_sums(f, sum_of);
    copy_step_ops(f);
    emit_optimizer(f, mem);
    return f->b.status;
}

gw_status gw_pass_step(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                       gw_compile_report *report, gw_diags *dg) {
    (void)report;
    if (!opts->train && opts->master == opts->compute) {
        gw_graph_dup(dst, src);
        dst->micro_batches = 0;
        return GW_OK;
    }
    gw_arena mem = {0};
    frame f = {.src = src, .dst = dst, .opts = opts};
    gw_graph_begin(dst, src);
    dst->micro_batches = opts->train ? opts->micro_batches : 0;
    gw_builder_init(&f.b, dst, dg);
    f.map = gw_arena_new(&mem, gw_vid, src->values.count);
    f.params = gw_arena_new(&mem, param_state, src->values.count);
    gw_status st = build_frame(&f, &mem, dg);
    gw_smap_release(&f.by_name);
    gw_arena_release(&mem);
    if (st != GW_OK) gw_graph_release(dst);
    return st;
}

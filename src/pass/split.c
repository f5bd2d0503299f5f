// SPDX-License-Identifier: Apache-2.0
// Cuts a model into the stages of a pipeline: the program of one rank of mesh group `pp`.
//
// The graph of the whole model's step comes in, laid over all other axes; what goes out has the ops
// of one rank's stages, with what stands around the loop as far as they need it (split_hold.c).
// Where a value is made in one stage and read in another it is sent from stage to stage, so every
// message joins neighbours: `send` in the sender's piece sF or sB, `recv` in the receiver's rF or
// rB. Every rank runs this pass on the same graph and numbers the messages of all ranks alike, so
// a pair has one tag without a word between them.
//
// Where the value is whole on tensor-parallel ranks, each sends its slice of it and they gather it
// after the receive: every byte crosses once.
//
// After the loop: sums of squares go to the first rank, which adds them in order and sends the sum
// back, so that all ranks clip by one number; parts of a tied weight's gradient go from each holder
// to each other one and are added in one order. Messages, not collectives: the ranks of pp have
// different programs, with other buffers at other places.
//
// Ops that hang on no stage are copied to where they are read (split_stages.c): cheap ones (tables,
// masks) to each piece, so that they hold no memory between forward and backward.
//
// The actions of the schedule come along; pieces stand in the order in which they run last, which
// is an order in which what is made stands before what reads it. Pass `schedule` moves weight
// gradients to pieces of their own.
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/split.h"

/* One piece of this rank. */
typedef struct piece {
    int stage;
    gw_part part;
    int64_t last; /* number of the action that runs it last */
} piece;

typedef struct emitter {
    gw_splitter *k;
    gw_graph *dst;
    int me;
    gw_held_ops held;
    gw_vid *map;        /* [src values]: in dst */
    int32_t *copied_at; /* [src ops]: of copied ones, the piece (or stage) of the latest copy */
    gw_imap received;   /* (v, stage) -> in dst */
    const piece *now;
    bool *exchanged; /* [tied] */
    gw_vid norm;     /* in src: the sum of squares, through its reductions over replicas */
    bool norm_done;
} emitter;

static uint64_t key_of(gw_vid v, int stage) { return (uint64_t)v << 32 | (uint32_t)stage; }

static bool in_loop(const gw_splitter *k, gw_oid i) {
    return i >= k->loop_first && i < k->loop_end;
}

static int rank_of(const gw_splitter *k, int stage) { return k->s->rank_of[stage]; }

/* ---- messages ---- */

/* The stage in which v is made; -1: it is no value of a stage. */
static int stage_of(const gw_splitter *k, gw_vid v) {
    gw_oid d = v == GW_NONE ? GW_NONE : k->src->values.items[v].def;
    return d == GW_NONE || !in_loop(k, d) || k->stage[d] < 0 ? -1 : k->stage[d];
}

static void add_message(gw_splitter *k, gw_vid v, int from, int to) {
    uint32_t i = 0;
    if (rank_of(k, from) == rank_of(k, to) || gw_imap_find(&k->sent, key_of(v, to), &i)) return;
    gw_imap_put(&k->sent, key_of(v, to), (uint32_t)k->messages.count);
    gw_message m = {v, from, to, (int32_t)k->messages.count};
    gw_vec_push(&k->messages, m);
}

static void find_messages(gw_splitter *k) {
    const gw_graph *g = k->src;
    for (gw_oid i = k->loop_first; i < k->loop_end; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int j = 0; k->stage[i] >= 0 && j < (int)o->nin; j++) {
            gw_vid v = gw_op_in(g, o, j);
            int a = stage_of(k, v), b = k->stage[i];
            if (a < 0 || a == b || gw_op_accumulates(g, o, j)) continue;
            if (a < b && k->part[g->values.items[v].def] != GW_PART_F)
                gw_panic("stage %d reads what stage %d makes in its backward (%s)", b, a,
                         gw_graph_str(g, o->scope));
            for (int s = a; s != b; s += a < b ? 1 : -1)
                add_message(k, v, s, a < b ? s + 1 : s - 1);
        }
    }
}

/* ---- values, as a stage sees them ---- */

static gw_vid at(const emitter *e, gw_vid v, int stage) {
    int a = stage_of(e->k, v);
    uint32_t got = 0;
    for (int s = stage; s != a; s += a > s ? 1 : -1) {
        if (gw_imap_find(&e->received, key_of(v, s), &got)) return got;
        int next = a > s ? s + 1 : s - 1;
        if (rank_of(e->k, next) != rank_of(e->k, s))
            gw_panic("%%%u of stage %d does not reach stage %d", v, a, stage);
    }
    return e->map[v];
}

static void place_op(emitter *e, gw_oid made) {
    gw_op *o = &e->dst->ops.items[made];
    if (!e->now) return;
    o->stage = e->now->stage;
    o->part = (uint8_t)e->now->part;
}

static int32_t copy_key(const emitter *e, const gw_op *o) {
    bool cheap = gw_op_def(e->k->src, o)->traits & GW_OP_CHEAP;
    return 1 + e->now->stage * GW_PART_COUNT + (cheap ? (int)e->now->part : 0);
}

static gw_oid copy(emitter *e, gw_oid i);

/* A copied op's value, in the piece that is being written. */
static gw_vid copied(emitter *e, gw_vid v) {
    gw_oid d = e->k->src->values.items[v].def;
    int32_t key = copy_key(e, &e->k->src->ops.items[d]);
    if (e->copied_at[d] != key) {
        e->copied_at[d] = key;
        (void)copy(e, d);
    }
    return e->map[v];
}

/* What input j of op i is in dst. */
static gw_vid input_of(emitter *e, gw_oid i, int j) {
    const gw_splitter *k = e->k;
    const gw_op *o = &k->src->ops.items[i];
    gw_vid v = gw_op_in(k->src, o, j);
    if (v == GW_NONE) return GW_NONE;
    if (gw_op_accumulates(k->src, o, j)) {
        v = gw_split_accumulated(k, &e->held, v);
        return v == GW_NONE ? GW_NONE : e->map[v];
    }
    gw_oid d = k->src->values.items[v].def;
    if (d == GW_NONE || !in_loop(k, d)) return e->map[v];
    if (k->stage[d] == GW_STAGE_COPIED) return copied(e, v);
    if (in_loop(k, i) && k->stage[i] >= 0) return at(e, v, k->stage[i]);
    v = gw_split_accumulated(k, &e->held, v);
    return v == GW_NONE ? GW_NONE : e->map[v];
}

/* Copies op i with its inputs as they are here. */
static gw_oid copy(emitter *e, gw_oid i) {
    const gw_graph *g = e->k->src;
    const gw_op *o = &g->ops.items[i];
    gw_vid *now = gw_arena_new(e->k->mem, gw_vid, 2 * o->nin + 1), *kept = now + o->nin;
    for (int j = 0; j < (int)o->nin; j++) now[j] = input_of(e, i, j);
    for (int j = 0; j < (int)o->nin; j++) {
        gw_vid v = gw_op_in(g, o, j);
        if (v == GW_NONE) continue;
        kept[j] = e->map[v];
        e->map[v] = now[j];
    }
    gw_oid made = gw_graph_copy_op(e->dst, g, i, e->map);
    for (int j = (int)o->nin; j-- > 0;)
        if (gw_op_in(g, o, j) != GW_NONE) e->map[gw_op_in(g, o, j)] = kept[j];
    place_op(e, made);
    return made;
}

/* ---- sends and receives ---- */

static gw_oid make_op(emitter *e, const char *name, const gw_vid *in, int nin, const gw_attr *attrs,
                      const gw_type *out, gw_phase phase, gw_rate rate, const char *scope) {
    int code = gw_optable_find(e->dst->table, name);
    GW_ASSERT(code >= 0);
    gw_oid o = gw_graph_op(e->dst, (uint16_t)code, in, nin, attrs, out, out ? 1 : 0, phase, rate,
                           gw_graph_intern(e->dst, scope));
    place_op(e, o);
    return o;
}

typedef struct wire {
    int peer;
    int32_t tag;
    int places;
    gw_phase phase;
    gw_rate rate;
    const char *scope;
} wire;

static void send(emitter *e, gw_vid x, const wire *w) {
    gw_attr a[3] = {{.i = w->peer}, {.i = w->tag}, {.i = w->places}};
    gw_oid o = make_op(e, "send", &x, 1, a, NULL, w->phase, w->rate, w->scope);
    e->dst->ops.items[o].stream = GW_STREAM_PP;
}

static gw_vid receive(emitter *e, const gw_type *t, gw_cause cause, const wire *w) {
    gw_attr a[3] = {{.i = w->peer}, {.i = w->tag}, {.i = w->places}};
    gw_oid o = make_op(e, "recv", NULL, 0, a, t, w->phase, w->rate, w->scope);
    e->dst->ops.items[o].stream = GW_STREAM_PP;
    gw_vid v = gw_op_out(e->dst, &e->dst->ops.items[o], 0);
    e->dst->values.items[v].cause = (uint8_t)cause;
    return v;
}

/* The type that travels: of what is whole on tensor-parallel ranks, a slice. */
static bool slice_of(const gw_splitter *k, const gw_type *whole, gw_type *slice) {
    const gw_mesh *m = &k->src->mesh;
    uint32_t tp = gw_mesh_group(m, "tp");
    *slice = *whole;
    if (!tp || whole->flat || ((gw_type_cut_axes(whole) | whole->psum | whole->pmax) & tp))
        return false;
    for (int d = whole->ndim; d-- > 0;) {
        if (whole->dims[d].size % gw_mesh_size(m, tp) || whole->dims[d].naxes) continue;
        gw_dim_cut(&slice->dims[d], tp, m);
        if (gw_type_even(slice, d, m)) return true;
        *slice = *whole;
    }
    return false;
}

static int places_of(const gw_splitter *k) { return GW_MAX(1, k->opts->layout.message_places); }

static wire wire_of(const emitter *e, const gw_message *m, bool sends, char scope[64]) {
    const gw_splitter *k = e->k;
    bool forward = m->from < m->to;
    snprintf(scope, 64, "stage %d/%s", sends ? m->from : m->to,
             forward ? (sends ? "to next" : "from before") : (sends ? "to before" : "from next"));
    return (wire){.peer = rank_of(k, sends ? m->to : m->from),
                  .tag = m->tag,
                  .places = places_of(k),
                  .phase = forward ? GW_PHASE_F : GW_PHASE_B,
                  .rate = GW_RATE_MB,
                  .scope = scope};
}

static void emit_send(emitter *e, const gw_message *m) {
    char scope[64];
    wire w = wire_of(e, m, true, scope);
    gw_vid x = at(e, m->v, m->from);
    gw_type whole = *gw_type_of(e->dst, x), slice;
    gw_attr none[GW_MAX_ATTRS];
    gw_attrs_default(e->dst->table, "slice", none);
    if (slice_of(e->k, &whole, &slice)) {
        gw_oid o = make_op(e, "slice", &x, 1, none, &slice, w.phase, w.rate, scope);
        x = gw_op_out(e->dst, &e->dst->ops.items[o], 0);
    }
    send(e, x, &w);
}

static void emit_receive(emitter *e, const gw_message *m) {
    char scope[64];
    wire w = wire_of(e, m, false, scope);
    gw_type whole = *gw_type_of(e->k->src, m->v), slice;
    bool cut = slice_of(e->k, &whole, &slice);
    gw_vid x = receive(e, cut ? &slice : &whole, GW_CAUSE_ACTIVATIONS, &w);
    gw_attr none[GW_MAX_ATTRS];
    gw_attrs_default(e->dst->table, "all_gather", none);
    if (cut) {
        gw_oid o = make_op(e, "all_gather", &x, 1, none, &whole, w.phase, w.rate, scope);
        e->dst->ops.items[o].stream = GW_STREAM_TP;
        x = gw_op_out(e->dst, &e->dst->ops.items[o], 0);
    }
    gw_imap_put(&e->received, key_of(m->v, m->to), x);
}

/* ---- pieces ---- */

static void emit_piece(emitter *e, const piece *p) {
    gw_splitter *k = e->k;
    e->now = p;
    bool forward = p->part == GW_PART_SEND_F || p->part == GW_PART_RECV_F;
    bool sends = p->part == GW_PART_SEND_F || p->part == GW_PART_SEND_B;
    bool computes = p->part == GW_PART_F || p->part == GW_PART_I;
    for (int64_t i = 0; !computes && i < k->messages.count; i++) {
        const gw_message *m = &k->messages.items[i];
        if ((m->from < m->to) != forward || (sends ? m->from : m->to) != p->stage) continue;
        if (sends)
            emit_send(e, m);
        else
            emit_receive(e, m);
    }
    for (gw_oid i = k->loop_first; computes && i < k->loop_end; i++) {
        if (k->stage[i] == GW_STAGE_NONE ? p->part == GW_PART_I && e->held.op[i] &&
                                               gw_split_stage_here(k, &e->held, i) == p->stage
                                         : k->stage[i] == p->stage && k->part[i] == p->part)
            (void)copy(e, i);
    }
    e->now = NULL;
}

static gw_part part_of_act(gw_act a) {
    switch (a) {
    case GW_ACT_F: return GW_PART_F;
    case GW_ACT_B:
    case GW_ACT_I: return GW_PART_I;
    case GW_ACT_SEND_F: return GW_PART_SEND_F;
    case GW_ACT_RECV_F: return GW_PART_RECV_F;
    case GW_ACT_SEND_B: return GW_PART_SEND_B;
    case GW_ACT_RECV_B: return GW_PART_RECV_B;
    case GW_ACT_W:
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return GW_PART_ALL;
}

/* A forward program runs its stages once, one after another. */
static void forward_actions(emitter *e) {
    const gw_schedule *s = e->k->s;
    for (int i = 0; i < s->stages; i++) {
        if (s->rank_of[i] != e->me) continue;
        gw_action a = {GW_ACT_RECV_F, (int16_t)i, 0};
        if (i > 0 && s->rank_of[i - 1] != e->me) gw_vec_push(&e->dst->actions, a);
        a.act = GW_ACT_F;
        gw_vec_push(&e->dst->actions, a);
        a.act = GW_ACT_SEND_F;
        if (i + 1 < s->stages && s->rank_of[i + 1] != e->me) gw_vec_push(&e->dst->actions, a);
    }
}

static void take_actions(emitter *e) {
    const gw_actions *l = &e->k->s->lists[e->me];
    if (!e->k->opts->train) {
        forward_actions(e);
        return;
    }
    for (int64_t i = 0; i < l->n; i++) gw_vec_push(&e->dst->actions, l->items[i]);
}

/* The pieces of this rank, in the order in which they run last. */
static piece *order_pieces(emitter *e, int *n) {
    const gw_graph *g = e->dst;
    piece *p = gw_arena_new(e->k->mem, piece, e->k->s->stages * GW_PART_COUNT + 1);
    for (int64_t i = g->actions.count; i-- > 0;) { /* the last run of each comes first */
        gw_action a = g->actions.items[i];
        gw_part part = part_of_act((gw_act)a.act);
        bool known = part == GW_PART_ALL;
        for (int j = 0; j < *n && !known; j++) known = p[j].stage == a.stage && p[j].part == part;
        if (!known) p[(*n)++] = (piece){a.stage, part, i};
    }
    for (int i = 0, j = *n - 1; i < j; i++, j--) {
        piece x = p[i];
        p[i] = p[j];
        p[j] = x;
    }
    return p;
}

/* ---- around the loop ---- */

static void emit_leaves(emitter *e) {
    const gw_graph *g = e->k->src;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        e->map[v] = GW_NONE;
        if (x->def == GW_NONE && (x->role == GW_ROLE_INPUT || e->held.value[v]))
            e->map[v] = gw_graph_copy_leaf(e->dst, g, (gw_vid)v);
    }
}

static gw_vid add_all(emitter *e, const gw_vid *terms, int n, const gw_type *t, const char *scope) {
    gw_oid o = make_op(e, "addn", terms, n, NULL, t, GW_PHASE_O, GW_RATE_STEP, scope);
    return gw_op_out(e->dst, &e->dst->ops.items[o], 0);
}

static wire step_wire(int peer, int32_t tag, const char *scope) {
    return (wire){peer, tag, 1, GW_PHASE_O, GW_RATE_STEP, scope};
}

/* The holders of a tied weight send each other their part of its gradient. */
static void exchange_tied(emitter *e, int index) {
    const gw_tied *t = &e->k->tied.items[index];
    gw_vid v = gw_split_accumulated(e->k, &e->held, t->gradient), mine = e->map[v];
    GW_ASSERT(mine != GW_NONE); /* a holder has a part of it */
    gw_type type = *gw_type_of(e->dst, mine);
    char scope[200];
    snprintf(scope, sizeof scope, "gradients/%s",
             gw_graph_str(e->k->src, e->k->src->values.items[t->param].name));
    gw_vid *terms = gw_arena_new(e->k->mem, gw_vid, t->nholders);
    int at_me = 0;
    while (t->holders[at_me] != e->me) at_me++;
    for (int j = 0; j < t->nholders; j++) {
        wire w = step_wire(t->holders[j], t->tag + at_me * t->nholders + j, scope);
        if (j != at_me) send(e, mine, &w);
    }
    for (int j = 0; j < t->nholders; j++) {
        wire w = step_wire(t->holders[j], t->tag + j * t->nholders + at_me, scope);
        terms[j] = j == at_me ? mine : receive(e, &type, GW_CAUSE_GRADIENTS, &w);
    }
    gw_vid sum = add_all(e, terms, t->nholders, &type, scope);
    const gw_value *whole = &e->k->src->values.items[t->gradient];
    e->dst->values.items[mine].name = 0; /* a result has its name when it is whole, everywhere */
    e->dst->values.items[sum].cause = GW_CAUSE_GRADIENTS;
    if (whole->name)
        e->dst->values.items[sum].name =
            gw_graph_intern(e->dst, gw_graph_str(e->k->src, whole->name));
    e->map[v] = e->map[t->gradient] = sum;
    e->exchanged[index] = true;
}

/* To the first rank and back. */
static void exchange_norm(emitter *e) {
    const gw_splitter *k = e->k;
    gw_vid mine = e->map[e->norm];
    gw_type type = *gw_type_of(e->dst, mine);
    int ranks = k->s->ranks;
    gw_vid *terms = gw_arena_new(k->mem, gw_vid, ranks);
    e->norm_done = true;
    if (e->me > 0) {
        wire up = step_wire(0, k->norm_tag + 2 * e->me, "norm");
        wire down = step_wire(0, k->norm_tag + 2 * e->me + 1, "norm");
        send(e, mine, &up);
        e->map[e->norm] = receive(e, &type, GW_CAUSE_ACTIVATIONS, &down);
        return;
    }
    terms[0] = mine;
    for (int r = 1; r < ranks; r++) {
        wire up = step_wire(r, k->norm_tag + 2 * r, "norm");
        terms[r] = receive(e, &type, GW_CAUSE_ACTIVATIONS, &up);
    }
    gw_vid sum = add_all(e, terms, ranks, &type, "norm");
    for (int r = 1; r < ranks; r++) {
        wire down = step_wire(r, k->norm_tag + 2 * r + 1, "norm");
        send(e, sum, &down);
    }
    e->map[e->norm] = sum;
}

/* The part of the norm's sum that is here. */
static void emit_norm(emitter *e) {
    const gw_graph *g = e->k->src;
    const gw_op *o = &g->ops.items[e->k->norm];
    gw_vid *terms = gw_arena_new(e->k->mem, gw_vid, o->nin);
    int n = 0;
    for (int j = 0; j < (int)o->nin; j++) {
        gw_oid d = g->values.items[gw_op_in(g, o, j)].def;
        if (e->held.op[d]) terms[n++] = e->map[gw_op_in(g, o, j)];
    }
    GW_ASSERT(n > 0);
    gw_oid made = gw_graph_op(e->dst, o->code, terms, n, NULL, gw_type_of(g, gw_op_out(g, o, 0)), 1,
                              (gw_phase)o->phase, (gw_rate)o->rate,
                              gw_graph_intern(e->dst, gw_graph_str(g, o->scope)));
    e->norm = gw_op_out(g, o, 0);
    e->map[e->norm] = gw_op_out(e->dst, &e->dst->ops.items[made], 0);
}

static bool holds_tied(const emitter *e, int index) {
    const gw_tied *t = &e->k->tied.items[index];
    bool mine = false;
    for (int j = 0; j < t->nholders; j++) mine |= t->holders[j] == e->me;
    return mine;
}

static void emit_after(emitter *e, gw_oid i) {
    const gw_graph *g = e->k->src;
    const gw_op *o = &g->ops.items[i];
    bool converts = gw_op_def(g, o)->traits & GW_OP_COLLECTIVE;
    if (i == e->k->norm) { /* every rank exchanges first gradients, then the norm */
        for (int t = 0; t < (int)e->k->tied.count; t++)
            if (holds_tied(e, t) && !e->exchanged[t]) exchange_tied(e, t);
        emit_norm(e);
        return;
    }
    for (int j = 0; j < (int)o->nin; j++) {
        gw_vid v = gw_op_in(g, o, j);
        int t = v == GW_NONE ? -1 : gw_split_tied(e->k, v);
        if (t >= 0 && !e->exchanged[t]) exchange_tied(e, t);
        if (v != GW_NONE && v == e->norm && !converts && !e->norm_done) exchange_norm(e);
    }
    (void)copy(e, i);
    if (converts && gw_op_in(g, o, 0) == e->norm && e->norm != GW_NONE)
        e->norm = gw_op_out(g, o, 0);
}

static void emit_states(emitter *e) {
    const gw_graph *g = e->k->src;
    for (int64_t i = 0; i < g->states.count; i++) {
        const gw_state *s = &g->states.items[i];
        gw_vid start = e->map[s->start], end = e->map[s->end];
        if (start != GW_NONE && end != GW_NONE) gw_graph_add_state(e->dst, start, end);
    }
}

static void emit(emitter *e) {
    gw_splitter *k = e->k;
    const gw_graph *g = k->src;
    int n = 0;
    emit_leaves(e);
    for (gw_oid i = 0; i < k->loop_first; i++)
        if (e->held.op[i]) (void)copy(e, i);
    take_actions(e);
    const piece *p = order_pieces(e, &n);
    for (int i = 0; i < n; i++) emit_piece(e, &p[i]);
    for (gw_oid i = k->loop_end; i < (gw_oid)g->ops.count; i++)
        if (e->held.op[i]) emit_after(e, i);
    emit_states(e);
}

/* ---- the whole ---- */

static void report_stages(const gw_splitter *k, gw_compile_report *report) {
    if (!k->opts->report_mem) return;
    const gw_graph *g = k->src;
    report->nstages = k->s->stages;
    report->stages = gw_arena_new(k->opts->report_mem, gw_stage_report, k->s->stages);
    for (int s = 0; s < k->s->stages; s++) {
        gw_stage_report *r = &report->stages[s];
        r->layers = k->first_layer[s + 1] - k->first_layer[s];
        r->first_layer = r->layers ? k->first_layer[s] : -1;
        r->forward = k->cost[0][s];
        r->input = k->cost[1][s];
        r->weight = k->cost[2][s];
    }
    for (int64_t i = 0; i < k->messages.count; i++) {
        const gw_message *m = &k->messages.items[i];
        gw_type t;
        (void)slice_of(k, gw_type_of(g, m->v), &t);
        int64_t bytes = gw_type_local_bytes(&t, &g->mesh, 0);
        if (m->to > m->from)
            report->stages[m->from].sent_forward += bytes;
        else
            report->stages[m->from].sent_backward += bytes;
    }
}

static gw_status split(gw_splitter *k, gw_graph *dst, gw_compile_report *report, gw_diags *dg) {
    const gw_graph *g = k->src;
    gw_graph_loop(g, &k->loop_first, &k->loop_end);
    GW_TRY(gw_split_assign(k, dg));
    find_messages(k);
    GW_TRY(gw_split_exchanges(k, dg));
    report_stages(k, report);
    emitter e = {.k = k, .dst = dst, .me = k->opts->layout.stage_rank, .norm = GW_NONE};
    e.held = (gw_held_ops){gw_arena_new(k->mem, bool, g->ops.count + 1),
                           gw_arena_new(k->mem, bool, g->values.count + 1)};
    e.map = gw_arena_new(k->mem, gw_vid, g->values.count + 1);
    e.copied_at = gw_arena_new(k->mem, int32_t, g->ops.count + 1);
    e.exchanged = gw_arena_new(k->mem, bool, k->tied.count + 1);
    gw_split_hold(k, e.me, &e.held);
    gw_graph_begin(dst, g);
    emit(&e);
    gw_imap_release(&e.received);
    return GW_OK;
}

gw_status gw_pass_split(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                        gw_compile_report *report, gw_diags *dg) {
    const gw_schedule *s = opts->layout.schedule;
    if (!s) {
        gw_graph_dup(dst, src);
        return GW_OK;
    }
    GW_ASSERT(opts->layout.stage_rank >= 0 && opts->layout.stage_rank < s->ranks);
    gw_arena mem = {0};
    gw_splitter k = {.src = src, .opts = opts, .s = s, .mem = &mem};
    gw_status st = split(&k, dst, report, dg);
    gw_vec_release(&k.messages);
    gw_vec_release(&k.tied);
    gw_imap_release(&k.sent);
    gw_arena_release(&mem);
    return st;
}

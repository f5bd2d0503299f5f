// SPDX-License-Identifier: Apache-2.0
// A pipeline's rank at work: its actions, one after another.
//
// An action runs one or two pieces of the loop for one micro-batch. What lives from piece to piece
// has several places (ir/flow.h), and a micro-batch has one of them: before a piece runs, the
// pointers of its ops' operands that are carried are set to the places of the micro-batch. Which
// pointers these are is found once; setting them is a few stores an operand. Buckets and copies
// with a carried end are bound again.
//
// Inputs of the loop are asked of the host (feed) when the first action that reads them is about to
// run. On a rank with several stages that may be at two times for one micro-batch, tokens for the
// first stage, labels for the last: a place is a micro-batch's only from the first piece that needs
// it on. So each call of feed has some inputs to write, and those that are not its turn have no
// address in it.
//
// R runs the step-rate ops in the pieces of a stage's backward, which sit out otherwise. S runs
// nothing: the optimizer stands behind the loop. A send does not wait for its receiver, a receive
// waits for its message, and what a rank is at is told to those who may wait for it.
//
// With `poison` the place of a class is overwritten with NaN when the last piece that touches it
// has run. What R or the optimizer reads of a step of one micro-batch stays.
//
// An action can be made to last (gw_exec_opts.stage_seconds): the rank sleeps after its ops, in
// short stretches with a sign of life between them, until the time is over. What is measured of a
// schedule then is the schedule's, not the machine's.
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/panic.h"    /* gw_panic, GW_ASSERT */
#include "run/exec_impl.h" /* struct gw_exec */

/* A pointer that goes from place to place. */
typedef struct slot {
    void **at;
    char *base; /* place 0 */
    int64_t stride;
    int32_t class;
} slot;

/* What moves with a piece. */
typedef struct piece {
    slot *slots;
    int32_t *buckets;
    gw_oid *copies;
    int32_t *classes; /* each once */
    int64_t nslots;
    int nbuckets, ncopies, nclasses;
} piece;

typedef struct gw_stages {
    piece *pieces;             /* [ranges] */
    int nstages;               /* highest stage of the actions + 1 */
    int64_t *pace;             /* [3][nstages]: nanoseconds of F, I, W */
    bool *written;             /* [class * micro-batches + micro]: inputs that were fed */
    bool *turn;                /* [classes]: whose turn it is in the feed under way */
    int32_t *pieces_of, *left; /* [class], [class * micro-batches + micro]: pieces that touch it,
                                  and those still to run; for poison */
    bool *stays;               /* [values]: of roots; for poison */
    int64_t *begin, *end;      /* [actions] */
} gw_stages;

/* ---- making it ---- */

static void note_class(piece *p, int32_t c) {
    for (int i = 0; i < p->nclasses; i++)
        if (p->classes[i] == c) return;
    p->classes[p->nclasses++] = c;
}

/* Adds a slot, or only counts it while there is no room. */
static bool add_slot(gw_exec *x, piece *p, gw_vid v, gw_tensor *t) {
    int32_t c = v == GW_NONE ? 0 : x->flow.class_of[v];
    if (c == 0) return false;
    if (p->slots) {
        p->slots[p->nslots] = (slot){.at = &t->data,
                                     .base = gw_exec_ptr(x, v),
                                     .stride = gw_flow_stride(&x->g, gw_value_root(&x->g, v)),
                                     .class = c};
        note_class(p, c);
    }
    p->nslots++;
    return true;
}

static void add_op(gw_exec *x, piece *p, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    gw_bound_op *b = &x->ops[i];
    bool moves = false;
    for (int k = 0; k < (int)o->nin; k++) moves |= add_slot(x, p, gw_op_in(&x->g, o, k), &b->in[k]);
    for (int k = 0; k < (int)o->nout; k++)
        moves |= add_slot(x, p, gw_op_out(&x->g, o, k), &b->out[k]);
    if (!moves || !p->slots) return;
    if (gw_op_is_copy(&x->g, o)) p->copies[p->ncopies++] = i;
    int32_t k = x->buckets.of[i];
    if (k < 0 || (p->nbuckets > 0 && p->buckets[p->nbuckets - 1] == k)) return;
    p->buckets[p->nbuckets++] = k;
}

static void check_op(const gw_exec *x, const gw_range *r, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    int32_t b = x->buckets.of[i];
    if (o->rate == GW_RATE_STEP && r->part != GW_PART_I && r->part != GW_PART_W)
        gw_panic("%s of %s is at step rate in part %s of stage %d, which no action runs",
                 gw_op_def(&x->g, o)->name, gw_graph_str(&x->g, o->scope),
                 gw_part_name((gw_part)r->part), r->stage);
    if (b >= 0 && (x->buckets.items[b].ops[0] < r->first || x->buckets.items[b].launch >= r->end))
        gw_panic("a bucket of %s goes beyond its piece of stage %d", gw_graph_str(&x->g, o->scope),
                 r->stage);
}

static void make_piece(gw_exec *x, piece *p, const gw_range *r) {
    int64_t n = (int64_t)r->end - r->first;
    for (gw_oid i = r->first; i < r->end; i++) {
        check_op(x, r, i);
        add_op(x, p, i);
    }
    p->slots = gw_arena_new(&x->mem, slot, p->nslots + 1);
    p->buckets = gw_arena_new(&x->mem, int32_t, n + 1);
    p->copies = gw_arena_new(&x->mem, gw_oid, n + 1);
    p->classes = gw_arena_new(&x->mem, int32_t, x->flow.nclasses + 1);
    p->nslots = 0;
    for (gw_oid i = r->first; i < r->end; i++) add_op(x, p, i);
}

/* What is read beside the pieces of its micro-batch: at step rate, or behind the loop. */
static void find_stays(gw_exec *x, gw_stages *s) {
    s->stays = gw_arena_new(&x->mem, bool, x->g.values.count + 1);
    for (gw_oid i = 0; i < (gw_oid)x->g.ops.count; i++) {
        const gw_op *o = &x->g.ops.items[i];
        if (x->flow.range_of[i] >= 0 && o->rate == GW_RATE_MB) continue;
        for (int k = 0; k < (int)o->nin; k++)
            if (gw_op_in(&x->g, o, k) != GW_NONE)
                s->stays[gw_value_root(&x->g, gw_op_in(&x->g, o, k))] = true;
    }
}

static void set_pace(gw_exec *x, gw_stages *s, const gw_exec_opts *o) {
    s->pace = gw_arena_new(&x->mem, int64_t, 3 * s->nstages + 1);
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < s->nstages && o->stage_seconds[k]; i++)
            s->pace[k * s->nstages + i] = (int64_t)(o->stage_seconds[k][i] * 1e9);
}

void gw_stages_init(gw_exec *x, const gw_exec_opts *o) {
    gw_stages *s = gw_arena_new(&x->mem, gw_stages, 1);
    int64_t n = x->g.actions.count, all = (x->flow.nclasses + 1) * (int64_t)x->flow.micro_batches;
    x->stages = s;
    s->pieces = gw_arena_new(&x->mem, piece, x->flow.nranges + 1);
    s->pieces_of = gw_arena_new(&x->mem, int32_t, x->flow.nclasses + 1);
    s->left = gw_arena_new(&x->mem, int32_t, all);
    s->written = gw_arena_new(&x->mem, bool, all);
    s->turn = gw_arena_new(&x->mem, bool, x->flow.nclasses + 1);
    s->begin = gw_arena_new(&x->mem, int64_t, n);
    s->end = gw_arena_new(&x->mem, int64_t, n);
    for (int64_t i = 0; i < n; i++)
        s->nstages = GW_MAX(s->nstages, x->g.actions.items[i].stage + 1);
    for (int r = 0; r < x->flow.nranges; r++) {
        piece *p = &s->pieces[r];
        make_piece(x, p, &x->flow.ranges[r]);
        for (int i = 0; i < p->nclasses; i++) s->pieces_of[p->classes[i]]++;
    }
    find_stays(x, s);
    set_pace(x, s, o);
}

/* ---- places ---- */

static int64_t at_of(const gw_exec *x, int32_t class) {
    return class * (int64_t)x->flow.micro_batches + x->now;
}

/* The piece works in the places of micro-batch x->now. */
static void bind_piece(gw_exec *x, const piece *p) {
    for (int64_t i = 0; i < p->nslots; i++) {
        const slot *s = &p->slots[i];
        *s->at = s->base ? s->base + s->stride * x->flow.place[at_of(x, s->class)] : NULL;
    }
    for (int i = 0; i < p->nbuckets; i++) {
        gw_bucket *b = &x->buckets.items[p->buckets[i]];
        gw_bucket_bind(b, &x->g, gw_exec_bind_ptr, x, x->ops[b->launch].args.work);
    }
    for (int i = 0; i < p->ncopies; i++) gw_exec_bind_copy(x, p->copies[i]);
}

static void poison_class(gw_exec *x, int32_t class) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *t = &x->g.values.items[v];
        if (x->flow.class_of[v] != class || t->tie != GW_NONE || t->mem != GW_MEM_DEVICE) continue;
        if (x->stages->stays[v]) continue;
        void *p = gw_exec_ptr(x, (gw_vid)v);
        if (p) memset(p, 0xff, (size_t)gw_exec_local_bytes(x, (gw_vid)v));
    }
}

/* Piece p has run for x->now. */
static void leave_piece(gw_exec *x, const piece *p) {
    for (int i = 0; x->poison && i < p->nclasses; i++)
        if (--x->stages->left[at_of(x, p->classes[i])] == 0) poison_class(x, p->classes[i]);
}

/* ---- inputs ---- */

static gw_status feed(gw_exec *x, const piece *p, int64_t micro, const gw_exec_loop *l,
                      gw_diags *dg) {
    gw_stages *s = x->stages;
    bool any = false;
    if (!l || !l->feed) return GW_OK;
    memset(s->turn, 0, (size_t)(x->flow.nclasses + 1) * sizeof *s->turn);
    for (int i = 0; i < p->nclasses; i++) {
        int32_t c = p->classes[i];
        if (x->flow.first[c] >= 0 || s->written[at_of(x, c)]) continue;
        any = s->turn[c] = s->written[at_of(x, c)] = true;
    }
    if (!any) return GW_OK;
    x->fed = s->turn;
    gw_status st = l->feed(l->user, x, micro, dg);
    x->fed = NULL;
    x->failed |= st != GW_OK;
    return st;
}

/* ---- actions ---- */

static void say(gw_exec *x, gw_action a, int64_t i) {
    static const char *const texts[GW_ACT_COUNT] = {
        [GW_ACT_F] = "forward",
        [GW_ACT_B] = "backward",
        [GW_ACT_I] = "input gradients",
        [GW_ACT_W] = "weight gradients",
        [GW_ACT_SEND_F] = "send of activations",
        [GW_ACT_RECV_F] = "receive of activations",
        [GW_ACT_SEND_B] = "send of gradients",
        [GW_ACT_RECV_B] = "receive of gradients",
        [GW_ACT_REDUCE] = "reduction of gradients",
        [GW_ACT_STEP] = "step",
    };
    char text[GW_ACTION_TEXT];
    long long number = (long long)i + 1, count = (long long)x->g.actions.count;
    if (!x->comm) return;
    (void)gw_action_print(a, text);
    if (gw_act_has_micro((gw_act)a.act))
        gw_exec_say(x, "%s of micro-batch %d of stage %d (%s, action %lld of %lld)", texts[a.act],
                    a.micro, a.stage, text, number, count);
    else if (a.stage >= 0)
        gw_exec_say(x, "%s of stage %d (%s, action %lld of %lld)", texts[a.act], a.stage, text,
                    number, count);
    else
        gw_exec_say(x, "%s (action %lld of %lld)", texts[a.act], number, count);
}

/* How long an action of the kind is made to last. */
static int64_t pace_of(const gw_stages *s, gw_action a) {
    if (a.stage < 0) return 0;
    const int64_t *f = s->pace + a.stage, *i = f + s->nstages, *w = i + s->nstages;
    switch ((gw_act)a.act) {
    case GW_ACT_F: return *f;
    case GW_ACT_B: return *i + *w;
    case GW_ACT_I: return *i;
    case GW_ACT_W: return *w;
    case GW_ACT_SEND_F:
    case GW_ACT_RECV_F:
    case GW_ACT_SEND_B:
    case GW_ACT_RECV_B:
    case GW_ACT_REDUCE:
    case GW_ACT_STEP:
    case GW_ACT_COUNT: break;
    }
    return 0;
}

/* A sleeper wakes late by a tenth of a millisecond, so the last part is spent awake. Others that
 * are ready may have the core. */
static void sleep_until(gw_exec *x, int64_t until) {
    enum { STRETCH = 20 * 1000 * 1000, AWAKE = 200 * 1000 };
    for (int64_t left = until - gw_clock_ns(); left > 0; left = until - gw_clock_ns()) {
        struct timespec t = {0, (long)GW_MIN(left - AWAKE, STRETCH)};
        if (left > AWAKE)
            nanosleep(&t, NULL);
        else
            sched_yield();
        if (x->comm) gw_comm_alive(x->comm, ++x->alive);
    }
}

/* The ops of one piece at the rate of the action. */
static gw_status run_piece(gw_exec *x, int r, gw_rate rate, gw_watch *w, int64_t micro,
                           gw_diags *dg) {
    const gw_range *g = &x->flow.ranges[r];
    for (gw_oid i = g->first; i < g->end; i++)
        if (x->g.ops.items[i].rate == rate) GW_TRY(gw_exec_step_op(x, i, w, micro, dg));
    return gw_copier_drain(x->copier, dg);
}

/* One run of the list. */
typedef struct walk {
    gw_exec *x;
    int64_t first; /* added to micro-batches */
    const gw_exec_loop *l;
    gw_watch *w;
} walk;

static gw_status run_micro(const walk *k, const int *ranges, int n, gw_action a, int64_t *begin,
                           gw_diags *dg) {
    gw_exec *x = k->x;
    int64_t micro = k->first + a.micro;
    for (int i = 0; i < n; i++) GW_TRY(feed(x, &x->stages->pieces[ranges[i]], micro, k->l, dg));
    *begin = gw_clock_ns();
    for (int i = 0; i < n; i++) {
        const gw_range *g = &x->flow.ranges[ranges[i]];
        bind_piece(x, &x->stages->pieces[ranges[i]]);
        GW_TRY(run_piece(x, ranges[i], GW_RATE_MB, k->w, micro, dg));
        if (k->l && k->l->ran) k->l->ran(k->l->user, x, micro, g->first, g->end);
    }
    for (int i = 0; i < n; i++) leave_piece(x, &x->stages->pieces[ranges[i]]);
    return GW_OK;
}

static gw_status run_step_rate(const walk *k, const int *ranges, int n, gw_diags *dg) {
    for (int i = 0; i < n; i++) {
        const gw_range *g = &k->x->flow.ranges[ranges[i]];
        GW_TRY(run_piece(k->x, ranges[i], GW_RATE_STEP, k->w, -1, dg));
        if (k->l && k->l->ran) k->l->ran(k->l->user, k->x, -1, g->first, g->end);
    }
    return GW_OK;
}

static gw_status run_action(const walk *k, int64_t i, gw_diags *dg) {
    gw_exec *x = k->x;
    gw_stages *s = x->stages;
    gw_action a = x->g.actions.items[i];
    int ranges[2], n = gw_flow_ranges_of(&x->flow, a, ranges);
    int64_t begin = gw_clock_ns();
    char text[GW_ACTION_TEXT];
    say(x, a, i);
    bool per_micro = gw_act_has_micro((gw_act)a.act);
    x->now = per_micro ? a.micro : -1;
    gw_status st =
        per_micro ? run_micro(k, ranges, n, a, &begin, dg) : run_step_rate(k, ranges, n, dg);
    x->now = -1;
    if (st == GW_OK) sleep_until(x, begin + pace_of(s, a));
    s->begin[i] = begin - x->epoch_ns;
    s->end[i] = gw_clock_ns() - x->epoch_ns;
    if (st != GW_OK)
        gw_diag_frame(dg, "rank %lld is in %s, action %lld of %lld", (long long)x->rank,
                      gw_action_print(a, text), (long long)i + 1, (long long)x->g.actions.count);
    return st;
}

gw_status gw_stages_run(gw_exec *x, int64_t first, const gw_exec_loop *l, gw_watch *w,
                        gw_diags *dg) {
    gw_stages *s = x->stages;
    int64_t m = x->flow.micro_batches;
    walk k = {x, first, l, w};
    for (int32_t c = 0; c <= x->flow.nclasses; c++)
        for (int64_t i = 0; i < m; i++) {
            s->left[c * m + i] = s->pieces_of[c];
            s->written[c * m + i] = false;
        }
    for (int64_t i = 0; i < x->g.actions.count; i++) GW_TRY(run_action(&k, i, dg));
    return GW_OK;
}

void gw_exec_action_ns(const gw_exec *x, int64_t i, int64_t *begin, int64_t *end) {
    GW_ASSERT(x->stages && i >= 0 && i < x->g.actions.count);
    *begin = x->stages->begin[i];
    *end = x->stages->end[i];
}

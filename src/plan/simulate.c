// SPDX-License-Identifier: Apache-2.0
// Plays the items of all ranks of a pipeline against each other (simulate_read.c makes them).
//
// A rank has one place in its list and a clock for each stream. A stretch of compute begins when
// the one before has ended and what it waits for is there. A collective begins when compute has
// come to its place and its stream is free; beside it compute runs slower by the machine's overlap
// factor, or, where collectives run on the compute's own threads (GW_SIM_BLOCKS), not at all. A
// send leaves when its channel has a place; messages of one channel travel one after another; a
// receive waits. An optimizer behind a norm of all gradients waits because the norm's messages and
// collectives are in the program.
//
// There is no queue of events. All times are largest values of what was waited for, plus durations,
// so the order in which ranks are visited does not matter: each runs until a channel stops it and
// is visited again when its peer has moved that channel, as in sched/clock.c. For the same reason a
// duration that shrinks never makes anything later: more bandwidth never slows a step.
//
// Each rank's step is the sum of what its compute stream did: classes of compute, what it took
// longer beside collectives, waits by stream, and waits for others. A wait for a message is the
// stage's link as long as the message was under way, and otherwise the bubble; so is what a rank
// waits at the end for the slowest. Results are means over the ranks, and their sum is the step.
//
// Jitter varies each stretch by the root of its ops' squares, and takes the slowest of the ranks
// that the next collective joins; the largest of n draws is drawn for n up to 64 and moved by the
// expected growth beyond.
#include "plan/simulate.h"

#include <math.h>
#include <string.h>

#include "base/panic.h"        /* GW_ASSERT, gw_panic */
#include "base/rng.h"          /* gw_rng_normal */
#include "plan/calibrate.h"    /* gw_timings_step_seconds */
#include "plan/machine_impl.h" /* gw_machine_largest */
#include "plan/simulate_impl.h"
#include "run/exec_experts.h" /* gw_experts_ep_even */

enum { DRAWS = 64 };

typedef struct runner {
    gw_sim_program p;
    int64_t turn;
    int32_t item; /* in the turn's list; -1: the turn begins */
    double now, streams[GW_STREAM_COUNT];
    double busy;          /* when the last collective that compute runs beside ends */
    double *done, *start; /* [asyncs] */
    uint8_t *behind;      /* [asyncs]: the stream that it waited for before it began */
    double part[GW_SIM_CLASSES], exposed[GW_STREAM_COUNT], overlap, waited, stalled, end;
    gw_sim_axis axis[GW_STREAM_COUNT];
    double began, half, late;  /* of the turn; when its asyncs end */
    double box_began, box_end; /* of an action of several turns */
    GW_VEC(gw_sim_event) trace;
    int rank;
} runner;

typedef struct sim {
    runner *ranks;
    int n;
    gw_sim_channels channels;
    const gw_machine_spec *m;
    const gw_sim_faults *f;
    double overlap;
    int *waiting, nwaiting;
    bool *listed;
    gw_timeline *timeline;
    gw_arena *a;
    int64_t events;
    gw_rng_key key;
} sim;

static void visit(sim *k, int rank) {
    if (k->listed[rank]) return;
    k->listed[rank] = true;
    k->waiting[k->nwaiting++] = rank;
}

static void note(sim *k, runner *r, gw_stream stream, gw_oid op, double start, double end) {
    if (!k->timeline) return;
    gw_sim_event e = {r->rank, (uint8_t)stream, op, start, end};
    gw_vec_push(&r->trace, e);
}

/* Compute stands still until t, for the sake of a stream. */
static void expose(runner *r, gw_stream stream, double t) {
    if (t <= r->now) return;
    r->exposed[stream] += t - r->now;
    r->now = t;
}

/* Compute waits for an async: for what that waited for, then for the async itself. */
static void expose_async(runner *r, int32_t id) {
    if (r->start[id] < r->done[id]) expose(r, (gw_stream)r->behind[id], r->start[id]);
    expose(r, (gw_stream)r->p.async_stream[id], r->done[id]);
}

/* ---- stretches of compute ---- */

static double draw_largest(gw_rng_key key, int32_t n) {
    double most = -(double)INFINITY;
    for (int i = 0; i < n && i < DRAWS; i++) most = fmax(most, gw_rng_normal(key, (uint64_t)i));
    return n > DRAWS ? most + gw_machine_largest(n) - gw_machine_largest(DRAWS) : most;
}

/* How much longer the stretch lasts than it should. */
static double factor_of(const sim *k, const runner *r, const gw_sim_item *x) {
    double f = 1;
    if (k->f->straggler > 0 && k->f->straggler_rank == r->rank) f = k->f->straggler;
    if (k->f->jitter <= 0 || x->seconds <= 0) return f;
    uint64_t at = (uint64_t)r->turn << 32 | (uint32_t)r->item;
    gw_rng_key key = gw_rng_key_fold(gw_rng_key_fold(k->key, (uint64_t)r->rank), at);
    double z = draw_largest(key, x->peers) * k->f->jitter * sqrt(x->squares) / x->seconds;
    return f * fmax(0, 1 + z);
}

/* Each op of a stretch, for traces. */
static void note_ops(sim *k, runner *r, const gw_sim_item *x, const gw_sim_list *l,
                     double stretch) {
    double t = r->now;
    if (!k->timeline || x->seconds <= 0) return;
    for (gw_oid i = x->first; i < x->end; i++) {
        const gw_op *o = &r->p.g->ops.items[i];
        if (o->rate == GW_RATE_STEP ? !l->steps : !l->micro) continue;
        if (!gw_sim_computes(&r->p, i)) continue;
        double d = r->p.op_seconds[i] / x->seconds * stretch;
        note(k, r, GW_STREAM_COMPUTE, i, t, t + d);
        t += d;
    }
}

static void play_run(sim *k, runner *r, const gw_sim_item *x, const gw_sim_list *l) {
    double f = factor_of(k, r, x), d = x->seconds * f, stretch = d;
    if (k->overlap < GW_SIM_BLOCKS && r->busy > r->now) {
        double beside = fmin(d * k->overlap, r->busy - r->now);
        stretch = beside + (d - beside / k->overlap);
    }
    note_ops(k, r, x, l, stretch);
    for (int c = 0; c < GW_SIM_CLASSES; c++) r->part[c] += x->part[c] * f;
    r->overlap += stretch - d;
    r->now += stretch;
}

/* ---- communication ---- */

static void count(runner *r, const gw_sim_item *x) {
    gw_sim_axis *axis = &r->axis[x->stream];
    if (x->aside) return;
    axis->bytes += x->kind == GW_SIM_RECV ? 0 : x->bytes;
    axis->seconds += x->kind == GW_SIM_RECV ? 0 : x->seconds;
    if (x->kind == GW_SIM_BLOCK)
        axis->count[GW_COLL_ALL_TO_ALL]++;
    else if (x->kind == GW_SIM_SEND || x->stream == GW_STREAM_COPY)
        axis->messages++;
}

static void play_async(sim *k, runner *r, const gw_sim_item *x) {
    double start = fmax(r->now, r->streams[x->stream]);
    r->behind[x->id] = x->stream;
    for (int32_t i = 0; i < x->nwaits; i++) {
        int32_t w = r->p.waits.items[x->first_wait + i];
        if (r->done[w] <= start) continue;
        start = r->done[w];
        r->behind[x->id] = r->p.async_stream[w];
    }
    r->start[x->id] = start;
    double end = start + x->seconds;
    r->streams[x->stream] = r->done[x->id] = start + x->seconds * x->ready;
    r->late = fmax(r->late, end);
    note(k, r, (gw_stream)x->stream, x->first, start, end);
    if (x->stream == GW_STREAM_COPY) return;
    if (k->overlap < GW_SIM_BLOCKS)
        r->busy = fmax(r->busy, end);
    else
        expose_async(r, x->id);
}

static void play_block(sim *k, runner *r, const gw_sim_item *x) {
    double start = fmax(r->now, r->streams[x->stream]);
    r->streams[x->stream] = start + x->seconds;
    note(k, r, (gw_stream)x->stream, x->first, start, start + x->seconds);
    expose(r, (gw_stream)x->stream, start + x->seconds);
}

/* False: no free place yet. */
static bool play_send(sim *k, runner *r, const gw_sim_item *x) {
    gw_sim_channel *ch = &k->channels.items.items[x->id];
    if (ch->sent - ch->taken >= ch->places) return false;
    int64_t slot = ch->sent % ch->places;
    if (ch->sent >= ch->places && ch->freed[slot] > r->now) {
        r->waited += ch->freed[slot] - r->now;
        r->now = ch->freed[slot];
    }
    double start = fmax(r->now, ch->free);
    ch->arrives[slot] = ch->free = start + x->seconds;
    ch->took[slot] = x->seconds;
    ch->sent++;
    note(k, r, GW_STREAM_PP, x->first, start, start + x->seconds);
    visit(k, ch->to);
    return true;
}

/* False: the message has not been sent yet. */
static bool play_recv(sim *k, runner *r, const gw_sim_item *x) {
    gw_sim_channel *ch = &k->channels.items.items[x->id];
    if (ch->taken >= ch->sent) return false;
    int64_t slot = ch->taken % ch->places;
    double wait = fmax(0, ch->arrives[slot] - r->now), link = fmin(wait, ch->took[slot]);
    r->exposed[GW_STREAM_PP] += link;
    r->waited += wait - link;
    r->now = fmax(r->now, ch->arrives[slot]);
    ch->freed[slot] = r->now;
    ch->taken++;
    visit(k, ch->from);
    return true;
}

static bool play(sim *k, runner *r, const gw_sim_item *x, const gw_sim_list *l) {
    bool waits = x->kind != GW_SIM_ASYNC;
    for (int32_t i = 0; waits && i < x->nwaits; i++) {
        expose_async(r, r->p.waits.items[x->first_wait + i]);
    }
    switch ((gw_sim_kind)x->kind) {
    case GW_SIM_RUN: play_run(k, r, x, l); break;
    case GW_SIM_ASYNC: play_async(k, r, x); break;
    case GW_SIM_BLOCK: play_block(k, r, x); break;
    case GW_SIM_SEND:
        if (!play_send(k, r, x)) return false;
        break;
    case GW_SIM_RECV:
        if (!play_recv(k, r, x)) return false;
        break;
    }
    if (x->kind != GW_SIM_RUN) count(r, x);
    k->events++;
    return true;
}

/* ---- turns ---- */

/* Boxes of a timeline: a pipeline's actions, some of two turns; otherwise F and B of each
 * micro-batch. */
static void box(sim *k, runner *r, const gw_sim_turn *t) {
    const gw_graph *g = r->p.g;
    gw_action f = {GW_ACT_F, 0, t->micro}, b = {GW_ACT_B, 0, t->micro};
    if (!k->timeline) return;
    if (g->actions.count == 0 && t->micro >= 0) {
        gw_timeline_add(k->timeline, r->rank, f, r->began, r->half);
        gw_timeline_add(k->timeline, r->rank, b, r->half, r->now);
    }
    if (t->action < 0) return;
    gw_action a = g->actions.items[t->action];
    const gw_sim_turn *next = t + 1; /* what follows the loop stands behind every action */
    bool same = r->turn > 0 && t[-1].action == t->action;
    if (!same) r->box_began = r->began;
    r->box_end = a.act == GW_ACT_REDUCE ? fmax(r->now, r->late) : r->now;
    if (next->action != t->action && a.act != GW_ACT_STEP)
        gw_timeline_add(k->timeline, r->rank, a, r->box_began, r->box_end);
}

static void begin_turn(runner *r, const gw_sim_turn *t) {
    r->item = t->list < 0 ? 0 : r->p.lists.items[t->list].first;
    r->began = r->half = r->now;
    r->late = r->now;
}

/* False: a channel stops it. */
static bool play_turn(sim *k, runner *r) {
    const gw_sim_turn *t = &r->p.turns.items[r->turn];
    if (r->item < 0) begin_turn(r, t);
    if (t->list >= 0) {
        const gw_sim_list *l = &r->p.lists.items[t->list];
        for (; r->item < l->end; r->item++) {
            if (r->item == l->half) r->half = r->now;
            if (!play(k, r, &r->p.items.items[r->item], l)) return false;
        }
        if (l->half == l->end) r->half = r->now;
    }
    box(k, r, t);
    r->turn++;
    r->item = -1;
    return true;
}

/* The rank is through when its streams are. */
static void finish(sim *k, runner *r) {
    int last = GW_STREAM_COMPUTE;
    gw_action s = {GW_ACT_STEP, -1, -1};
    double began = r->began; /* of what follows the loop */
    for (int i = 0; i < GW_STREAM_COUNT; i++)
        if (r->streams[i] > r->streams[last]) last = i;
    if (last != GW_STREAM_COMPUTE) expose(r, (gw_stream)last, r->streams[last]);
    r->end = r->now;
    if (k->timeline && r->p.g->micro_batches > 0)
        gw_timeline_add(k->timeline, r->rank, s, began, r->end);
}

static void run(sim *k) {
    for (int r = k->n - 1; r >= 0; r--) visit(k, r);
    while (k->nwaiting) {
        runner *r = &k->ranks[k->waiting[--k->nwaiting]];
        k->listed[r->rank] = false;
        if (r->turn == r->p.turns.count) continue;
        while (r->turn < r->p.turns.count && play_turn(k, r)) continue;
        if (r->turn == r->p.turns.count) finish(k, r);
    }
    for (int r = 0; r < k->n; r++)
        if (k->ranks[r].turn < k->ranks[r].p.turns.count)
            gw_panic("rank %d of a simulated pipeline waits for a message that nobody sends", r);
}

/* ---- results ---- */

static void sum_axes(const sim *k, gw_sim_result *out) {
    for (int i = 0; i < GW_STREAM_COUNT; i++) {
        gw_sim_axis *axis = &out->axis[i];
        axis->tier = -1;
        for (int r = 0; r < k->n; r++) {
            const gw_sim_axis *x = &k->ranks[r].axis[i];
            axis->seconds += x->seconds / k->n;
            axis->exposed += k->ranks[r].exposed[i] / k->n;
            axis->axes |= x->axes;
            if (x->bytes < axis->bytes) continue;
            axis->bytes = x->bytes;
            axis->messages = x->messages;
            memcpy(axis->count, x->count, sizeof axis->count);
        }
        if (axis->axes && k->m->ntiers > 0)
            axis->tier = gw_machine_tier(k->m, &k->ranks[0].p.g->mesh, axis->axes);
        out->exposed_s += axis->exposed;
    }
}

static void add_trace(const sim *k, gw_sim_result *out) {
    int64_t n = 0;
    for (int r = 0; r < k->n; r++) n += k->ranks[r].trace.count;
    out->trace = gw_arena_new(k->a, gw_sim_event, n + 1);
    for (int r = 0; r < k->n; r++) {
        const runner *x = &k->ranks[r];
        if (x->trace.count > 0)
            memcpy(out->trace + out->ntrace, x->trace.items,
                   (size_t)x->trace.count * sizeof *out->trace);
        out->ntrace += x->trace.count;
    }
}

static void summarise(sim *k, gw_sim_result *o) {
    o->ranks = k->n;
    o->rank_step_s = gw_arena_new(k->a, double, k->n);
    o->op_seconds = gw_arena_new(k->a, const double *, k->n);
    for (int r = 0; r < k->n; r++) {
        o->op_seconds[r] = k->ranks[r].p.op_seconds;
        o->rank_step_s[r] = k->ranks[r].end;
        o->step_s = fmax(o->step_s, k->ranks[r].end);
    }
    for (int r = 0; r < k->n; r++) {
        const runner *x = &k->ranks[r];
        o->products_s += x->part[GW_SIM_PRODUCTS] / k->n;
        o->attention_s += x->part[GW_SIM_ATTENTION] / k->n;
        o->memory_s += x->part[GW_SIM_MEMORY] / k->n;
        o->optimizer_s += x->part[GW_SIM_OPTIMIZER] / k->n;
        o->overlap_s += x->overlap / k->n;
        o->stall_s += x->stalled / k->n;
        o->bubble_s += (x->waited + o->step_s - x->end) / k->n;
    }
    sum_axes(k, o);
    o->compute_s = o->products_s + o->attention_s + o->memory_s + o->optimizer_s + o->overlap_s;
    o->bubble = o->step_s > 0 ? o->bubble_s / o->step_s : 0;
    o->events = k->events;
    if (k->timeline) add_trace(k, o);
}

/* ---- making it ---- */

/* Which sub-axes each stream's groups use, and how often each kind is called. */
static void read_axes(runner *r) {
    const gw_graph *g = r->p.g;
    gw_arena mem = {0};
    gw_buckets b;
    gw_coll_machine local = gw_coll_machine_local(1);
    gw_buckets_of(&b, g, r->p.rank, &local, &mem);
    int64_t m = g->micro_batches > 0 ? g->micro_batches : 1;
    for (int i = 0; i < b.n; i++) {
        const gw_op *o = &g->ops.items[b.items[i].launch];
        r->axis[o->stream].axes |= b.items[i].coll.axes;
        r->axis[o->stream].count[b.items[i].coll.kind] += o->rate == GW_RATE_MB ? m : 1;
    }
    bool rows = false; /* of experts: then their group is what the axis is */
    for (int64_t i = 0; i < r->p.items.count; i++) rows |= r->p.items.items[i].kind == GW_SIM_BLOCK;
    if (rows) r->axis[GW_STREAM_EP].axes = 0;
    for (int64_t i = 0; i < r->p.items.count; i++)
        if (r->p.items.items[i].kind == GW_SIM_BLOCK)
            r->axis[GW_STREAM_EP].axes |=
                gw_experts_ep_even(g, &g->ops.items[r->p.items.items[i].first], &local).axes;
    if (gw_mesh_size(&g->mesh, gw_mesh_group(&g->mesh, "pp")) > 1)
        r->axis[GW_STREAM_PP].axes |= gw_mesh_group(&g->mesh, "pp");
    gw_arena_release(&mem);
}

/* The tier that dp crosses, slower. */
static gw_machine_spec slowed(const gw_machine_spec *m, const gw_sim_faults *f,
                              const gw_mesh *mesh) {
    gw_machine_spec s = *m;
    uint32_t dp = gw_mesh_group(mesh, "dp") | gw_mesh_group(mesh, "dp_replicate");
    if (f->slow_link > 0 && gw_mesh_size(mesh, dp) > 1) {
        int t = gw_machine_tier(m, mesh, dp);
        s.tiers[t].bytes_per_s *= f->slow_link;
    }
    return s;
}

static void begin(sim *k, const gw_graph *const *programs) {
    k->ranks = gw_arena_new(k->a, runner, k->n);
    k->waiting = gw_arena_new(k->a, int, k->n);
    k->listed = gw_arena_new(k->a, bool, k->n);
    for (int i = 0; i < k->n; i++) {
        runner *r = &k->ranks[i];
        gw_sim_read(&r->p, programs[i], i, k->m, k->f, &k->channels, k->a);
        r->rank = i;
        r->item = -1;
        r->done = gw_arena_new(k->a, double, r->p.nasync + 1);
        r->start = gw_arena_new(k->a, double, r->p.nasync + 1);
        r->behind = gw_arena_new(k->a, uint8_t, r->p.nasync + 1);
        read_axes(r);
        r->stalled = k->f->data_stall_s;
        if (k->m->timings) /* what a step was measured to take beside its ops */
            r->stalled +=
                gw_timings_step_seconds(k->m->timings, (int)gw_mesh_ranks(&programs[i]->mesh));
        r->now = r->stalled;
        if (r->now > 0) note(k, r, GW_STREAM_COMPUTE, GW_NONE, 0, r->now);
    }
    for (int64_t i = 0; i < k->channels.items.count; i++) {
        gw_sim_channel *ch = &k->channels.items.items[i];
        ch->arrives = gw_arena_new(k->a, double, ch->places);
        ch->freed = gw_arena_new(k->a, double, ch->places);
        ch->took = gw_arena_new(k->a, double, ch->places);
    }
}

void gw_simulate(const gw_graph *const *programs, int n, const gw_machine_spec *m,
                 const gw_sim_faults *faults, gw_arena *a, gw_sim_result *out,
                 gw_timeline *timeline) {
    static const gw_sim_faults none = {0};
    const gw_sim_faults *f = faults ? faults : &none;
    GW_ASSERT(n > 0);
    gw_machine_spec machine = slowed(m, f, &programs[0]->mesh);
    sim k = {.n = n, .m = &machine, .f = f, .timeline = timeline, .a = a};
    k.overlap = gw_machine_overlap(&machine);
    k.key = gw_rng_key_named(f->seed, "jitter");
    memset(out, 0, sizeof *out);
    begin(&k, programs);
    run(&k);
    summarise(&k, out);
    for (int i = 0; i < n; i++) {
        gw_vec_release(&k.ranks[i].trace);
        gw_sim_program_release(&k.ranks[i].p);
    }
    gw_sim_channels_release(&k.channels);
}

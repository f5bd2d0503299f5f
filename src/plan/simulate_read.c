// SPDX-License-Identifier: Apache-2.0
// From a program to what the simulator plays: lists of items, each with its time.
//
// A program has many ops and few places where something can wait. Compute ops between two such
// places are one item: their times are summed by class (products, attention, what passes through
// memory, optimizer), so that a step of thousands of ranks has some hundred thousand items. What
// ends an item is a collective, a message or a copy that begins there, or an op that reads what one
// of these brings.
//
// A collective stands where its bucket is launched. It may begin there and no earlier, whatever it
// reads: before that place its buffers hold something else. So the order of the program says how
// far ahead gathers run, as it does when it is executed. Its readers wait for it; nobody else does.
//
// Lists are the segments that an executor runs: what precedes the loop; the loop at micro-batch
// rate; the loop in its last run, with the ops at step rate; what follows. Of a pipeline each piece
// of the loop has a list at micro-batch rate and one at step rate, and turns follow its actions.
//
// What only passes the result of a gradient's reduction on, its addition to an accumulator or a
// cast, runs on the stream of the collective: no op behind it has to wait.
//
// Experts across ranks are a collective, compute and a collective in one op; the load is even
// unless the faults say that one rank is hot. They block, as the op does.
#include <math.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "base/str.h"   /* gw_str_starts */
#include "plan/simulate_impl.h"
#include "run/exec_channel.h" /* gw_op_is_channel, gw_exec_message_bytes */
#include "run/exec_copy.h"    /* gw_op_is_copy */
#include "run/exec_experts.h" /* gw_experts_ep_even */

typedef struct reader {
    gw_sim_program *p;
    const gw_graph *g;
    const gw_machine_spec *m;
    const gw_sim_faults *f;
    gw_sim_channels *c;
    gw_buckets buckets;
    double *bucket_seconds; /* [buckets] */
    int32_t *waited;        /* [asyncs]: list that waits for it already */
    bool open;              /* the last item is a RUN that may grow */
    int64_t coordinate;
    gw_arena *a;
} reader;

bool gw_sim_computes(const gw_sim_program *p, gw_oid i) {
    return p->async_of[i] < 0 && !gw_op_is_channel(p->g, &p->g->ops.items[i]);
}

/* ---- classes ---- */

gw_sim_class gw_sim_class_of(const gw_graph *g, const gw_op *o) {
    static const char *const products[] = {"matmul", "fp8_matmul", "conv2d", "head", "experts"};
    const char *name = gw_op_def(g, o)->name;
    if (o->phase == GW_PHASE_O) return GW_SIM_OPTIMIZER;
    if (gw_str_starts(name, "attention")) return GW_SIM_ATTENTION;
    for (size_t i = 0; i < GW_COUNT(products); i++)
        if (gw_str_starts(name, products[i])) return GW_SIM_PRODUCTS;
    return GW_SIM_MEMORY;
}

/* ---- channels ---- */

static uint64_t key_of(int64_t from, int64_t to, int64_t tag) {
    return (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)tag;
}

static int32_t channel_of(gw_sim_channels *c, int64_t from, int64_t to, int64_t tag,
                          int64_t places) {
    uint32_t at;
    uint64_t key = key_of(from, to, tag);
    if (gw_imap_find(&c->index, key, &at)) return (int32_t)at;
    gw_sim_channel ch = {
        .from = (int32_t)from, .to = (int32_t)to, .tag = (int32_t)tag, .places = (int32_t)places};
    at = (uint32_t)c->items.count;
    gw_vec_push(&c->items, ch);
    gw_imap_put(&c->index, key, at);
    return (int32_t)at;
}

/* ---- items ---- */

static gw_sim_item *last_item(reader *r) { return &r->p->items.items[r->p->items.count - 1]; }

static gw_sim_item *new_item(reader *r, gw_sim_kind kind, gw_stream stream, gw_oid op) {
    gw_sim_item x = {.kind = (uint8_t)kind,
                     .stream = (uint8_t)stream,
                     .first_wait = (int32_t)r->p->waits.count,
                     .id = -1,
                     .peers = 1,
                     .first = op,
                     .end = op + 1};
    gw_vec_push(&r->p->items, x);
    r->open = kind == GW_SIM_RUN;
    return last_item(r);
}

/* Asyncs that op i reads and that nothing before it in this list has waited for. */
static int find_waits(const reader *r, gw_oid i, int32_t *out, int room) {
    const gw_op *o = &r->g->ops.items[i];
    int32_t list = (int32_t)r->p->lists.count;
    int n = 0;
    for (int k = 0; k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(r->g, o, k);
        if (v == GW_NONE) continue;
        gw_oid def = r->g->values.items[v].def;
        int32_t async = def == GW_NONE ? -1 : r->p->async_of[def];
        if (async < 0 || r->waited[async] == list || n == room) continue;
        bool known = false;
        for (int j = 0; j < n; j++) known |= out[j] == async;
        if (!known) out[n++] = async;
    }
    return n;
}

static void add_waits(reader *r, gw_sim_item *x, const int32_t *waits, int n, bool compute) {
    x->nwaits += n;
    for (int i = 0; i < n; i++) {
        gw_vec_push(&r->p->waits, waits[i]);
        if (compute) r->waited[waits[i]] = (int32_t)r->p->lists.count;
    }
}

enum { WAITS = 64 };

static gw_coll rows_of(const gw_experts_even *e, gw_coll_part *part) {
    return (gw_coll){.kind = GW_COLL_ALL_TO_ALL,
                     .dtype = GW_U8,
                     .axes = e->axes,
                     .size = e->size,
                     .nparts = 1,
                     .parts = part,
                     .algorithm = "pairwise"};
}

/* Rows there or back, and their counts. Backward brings dy there and dx back: x is kept. */
static void add_rows(reader *r, gw_oid i, const gw_experts_even *e, double hot) {
    gw_coll_part counts = {.elems = e->bytes[0]};
    gw_coll c = rows_of(e, &counts);
    double s = gw_machine_coll_seconds(r->m, &c, &r->g->mesh) / 2 +
               gw_machine_rows_seconds(r->m, r->g, &r->g->ops.items[i], e->axes, e->size);
    gw_sim_item *x = new_item(r, GW_SIM_BLOCK, GW_STREAM_EP, i);
    x->seconds = s * hot;
    x->bytes = e->sent.payload / 2;
    x->peers = (int32_t)e->size;
}

static gw_sim_item *run_item(reader *r, gw_oid i) {
    if (!r->open) return new_item(r, GW_SIM_RUN, GW_STREAM_COMPUTE, i);
    gw_sim_item *x = last_item(r);
    x->end = i + 1;
    return x;
}

static void add_compute(reader *r, gw_oid i) {
    const gw_op *o = &r->g->ops.items[i];
    int32_t waits[WAITS];
    int n = find_waits(r, i, waits, WAITS);
    bool apart = gw_op_is_experts_ep(r->g, o);
    double hot = apart && r->f->hot_expert > 1 ? r->f->hot_expert : 1;
    gw_experts_even e = {0};
    if (apart) {
        gw_coll_machine local = gw_coll_machine_local(1);
        e = gw_experts_ep_even(r->g, o, &local);
    }
    if (n > 0 || apart) r->open = false;
    if (n > 0 || apart) add_waits(r, run_item(r, i), waits, n, true);
    if (e.size > 1) add_rows(r, i, &e, hot);
    gw_sim_item *x = run_item(r, i);
    double d = r->p->op_seconds[i] * hot;
    x->seconds += d;
    x->part[gw_sim_class_of(r->g, o)] += d;
    x->squares += d * d;
    if (e.size > 1) add_rows(r, i, &e, hot);
}

static void add_async(reader *r, gw_oid i) {
    int32_t b = r->buckets.of[i], waits[WAITS];
    const gw_op *o = &r->g->ops.items[i];
    if (b >= 0 && r->buckets.items[b].launch != i) return;
    int n = 0;
    if (b >= 0)
        for (int k = 0; k < r->buckets.items[b].nops; k++)
            n += find_waits(r, r->buckets.items[b].ops[k], waits + n, WAITS - n);
    else
        n = find_waits(r, i, waits, WAITS);
    int32_t id = r->p->async_of[i];
    gw_sim_item *x = new_item(r, GW_SIM_ASYNC, (gw_stream)r->p->async_stream[id], i);
    x->id = id;
    x->aside = b < 0 && !gw_op_is_copy(r->g, o);
    x->ready = 1;
    if (b >= 0) {
        const gw_coll *c = &r->buckets.items[b].coll;
        x->ready = gw_machine_ready(r->m, c->kind, (gw_stream)x->stream);
        x->seconds = r->bucket_seconds[b];
        x->peers = (int32_t)c->size;
        x->bytes =
            gw_coll_traffic_of(c, gw_exec_group_rank(&r->g->mesh, c->axes, r->p->rank)).payload;
    } else {
        x->seconds = r->p->op_seconds[i];
        x->bytes =
            gw_type_local_bytes(gw_type_of(r->g, gw_op_out(r->g, o, 0)), &r->g->mesh, r->p->rank);
    }
    add_waits(r, x, waits, n, false);
}

static void add_message(reader *r, gw_oid i) {
    const gw_graph *g = r->g;
    const gw_op *o = &g->ops.items[i];
    bool sends = gw_op_is(g, o, "send");
    int32_t waits[WAITS];
    int n = find_waits(r, i, waits, WAITS);
    int64_t peer = gw_op_attr_named(g, o, sends ? "to" : "from").i;
    int64_t tag = gw_op_attr_named(g, o, "tag").i, places = gw_op_attr_named(g, o, "places").i;
    gw_sim_item *x = new_item(r, sends ? GW_SIM_SEND : GW_SIM_RECV, GW_STREAM_PP, i);
    x->id = sends ? channel_of(r->c, r->coordinate, peer, tag, places)
                  : channel_of(r->c, peer, r->coordinate, tag, places);
    x->bytes = gw_exec_message_bytes(g, o, r->p->rank);
    x->seconds = gw_machine_send_seconds(r->m, &g->mesh, x->bytes);
    add_waits(r, x, waits, n, false);
}

static void add_op(reader *r, gw_oid i) {
    const gw_op *o = &r->g->ops.items[i];
    if (gw_op_is_channel(r->g, o))
        add_message(r, i);
    else if (r->p->async_of[i] >= 0)
        add_async(r, i);
    else
        add_compute(r, i);
}

/* How many ranks have to be done with a RUN: those of the next collective. */
static void find_peers(reader *r, const gw_sim_list *l) {
    int32_t peers = 1;
    for (int32_t i = l->end; i-- > l->first;) {
        gw_sim_item *x = &r->p->items.items[i];
        if (x->kind == GW_SIM_RUN)
            x->peers = peers;
        else if (x->kind == GW_SIM_ASYNC || x->kind == GW_SIM_BLOCK)
            peers = x->peers;
    }
}

static int32_t add_list(reader *r, gw_oid first, gw_oid end, bool steps, bool micro) {
    gw_sim_list l = {
        .first = (int32_t)r->p->items.count, .steps = steps, .micro = micro, .half = -1};
    r->open = false;
    for (gw_oid i = first; i < end; i++) {
        const gw_op *o = &r->g->ops.items[i];
        if (o->rate == GW_RATE_STEP ? !steps : !micro) continue;
        bool back = o->phase == GW_PHASE_B || o->phase == GW_PHASE_W;
        if (back && l.half < 0) {
            r->open = false;
            l.half = (int32_t)r->p->items.count;
        }
        add_op(r, i);
    }
    r->open = false;
    l.end = (int32_t)r->p->items.count;
    if (l.half < 0) l.half = l.end;
    find_peers(r, &l);
    gw_vec_push(&r->p->lists, l);
    return (int32_t)r->p->lists.count - 1;
}

static void add_turn(reader *r, int32_t list, int64_t action, int64_t micro) {
    gw_sim_turn t = {.list = list, .action = (int32_t)action, .micro = (int32_t)micro};
    gw_vec_push(&r->p->turns, t);
}

/* ---- turns ---- */

static void add_loop(reader *r, gw_oid first, gw_oid end) {
    int64_t m = r->g->micro_batches > 0 ? r->g->micro_batches : 1;
    int32_t most = m > 1 ? add_list(r, first, end, false, true) : -1;
    int32_t last = add_list(r, first, end, true, true);
    for (int64_t i = 0; i < m; i++) add_turn(r, i + 1 < m ? most : last, -1, i);
}

static void add_actions(reader *r) {
    gw_flow flow;
    gw_flow_of(&flow, r->g, r->a);
    int32_t *lists = gw_arena_new(r->a, int32_t, 2 * flow.nranges + 1);
    for (int i = 0; i < flow.nranges; i++) {
        const gw_range *x = &flow.ranges[i];
        lists[2 * i] = add_list(r, x->first, x->end, false, true);
        lists[2 * i + 1] = add_list(r, x->first, x->end, true, false);
    }
    for (int64_t i = 0; i < r->g->actions.count; i++) {
        int ranges[2];
        gw_action a = r->g->actions.items[i];
        bool micro = gw_act_has_micro((gw_act)a.act);
        int n = gw_flow_ranges_of(&flow, a, ranges);
        for (int k = 0; k < n; k++) add_turn(r, lists[2 * ranges[k] + !micro], i, a.micro);
        if (n == 0) add_turn(r, -1, i, a.micro);
    }
}

/* ---- a program ---- */

static int64_t rank_of(const gw_mesh *m, int64_t at) {
    uint32_t pp = gw_mesh_group(m, "pp");
    int64_t rank = 0, stride = 1;
    for (int i = m->naxes - 1; i >= 0; i--) { /* most minor first */
        int64_t size = m->axes[i].size;
        if (pp >> i & 1u) {
            rank += stride * (at % size);
            at /= size;
        }
        stride *= size;
    }
    return rank;
}

static void time_ops(reader *r) {
    int64_t n = r->g->ops.count;
    r->p->op_seconds = gw_arena_new(r->a, double, n + 1);
    for (int64_t i = 0; i < n; i++) {
        const gw_op *o = &r->g->ops.items[i];
        if (gw_op_is_collective(r->g, o) || gw_op_is_channel(r->g, o)) continue;
        r->p->op_seconds[i] = gw_machine_op_seconds(r->m, r->g, o, r->p->rank);
    }
}

/* Does op o only pass on what the stream dp brought? */
static bool passes_on(const reader *r, const gw_op *o) {
    static const char *const names[] = {"accumulate", "add", "cast"};
    const char *name = gw_op_def(r->g, o)->name;
    bool known = false, brought = false;
    if (gw_machine_overlap(r->m) >= GW_SIM_BLOCKS) return false; /* one stream does it all */
    for (size_t i = 0; i < GW_COUNT(names); i++) known |= strcmp(name, names[i]) == 0;
    for (int k = 0; known && k < (int)o->nin; k++) {
        gw_vid v = gw_op_in(r->g, o, k);
        gw_oid def = v == GW_NONE ? GW_NONE : r->g->values.items[v].def;
        if (def == GW_NONE || r->p->async_of[def] < 0) continue;
        brought |= r->p->async_stream[r->p->async_of[def]] == GW_STREAM_DP;
    }
    return brought;
}

/* Collectives and copies are what others wait for. */
static void find_asyncs(reader *r) {
    int64_t n = r->g->ops.count;
    gw_coll_machine local = gw_coll_machine_local(1);
    gw_buckets_of(&r->buckets, r->g, r->p->rank, &local, r->a);
    r->bucket_seconds = gw_arena_new(r->a, double, r->buckets.n + 1);
    for (int b = 0; b < r->buckets.n; b++)
        r->bucket_seconds[b] =
            gw_machine_coll_seconds(r->m, &r->buckets.items[b].coll, &r->g->mesh);
    r->p->async_of = gw_arena_new(r->a, int32_t, n + 1);
    r->p->async_stream = gw_arena_new(r->a, uint8_t, n + 1);
    int32_t next = r->buckets.n;
    for (int64_t i = 0; i < n; i++) {
        const gw_op *o = &r->g->ops.items[i];
        r->p->async_of[i] = r->buckets.of[i];
        bool aside = r->p->async_of[i] < 0 && passes_on(r, o);
        if (aside || gw_op_is_copy(r->g, o)) r->p->async_of[i] = next++;
        if (r->p->async_of[i] < 0) continue;
        r->p->async_stream[r->p->async_of[i]] = aside ? (uint8_t)GW_STREAM_DP : o->stream;
    }
    r->p->nasync = next;
    r->waited = gw_arena_new(r->a, int32_t, next + 1);
    for (int32_t i = 0; i < next; i++) r->waited[i] = -1;
}

void gw_sim_read(gw_sim_program *p, const gw_graph *g, int coordinate, const gw_machine_spec *m,
                 const gw_sim_faults *f, gw_sim_channels *c, gw_arena *a) {
    reader r = {.p = p, .g = g, .m = m, .f = f, .c = c, .coordinate = coordinate, .a = a};
    gw_oid first, end;
    memset(p, 0, sizeof *p);
    p->g = g;
    p->rank = rank_of(&g->mesh, coordinate);
    time_ops(&r);
    find_asyncs(&r);
    gw_graph_loop(g, &first, &end);
    int32_t before = add_list(&r, 0, first, true, true);
    add_turn(&r, before, -1, -1);
    if (g->actions.count > 0)
        add_actions(&r);
    else if (first < end)
        add_loop(&r, first, end);
    int32_t after = add_list(&r, end, (gw_oid)g->ops.count, true, true);
    add_turn(&r, after, -1, -1);
}

void gw_sim_program_release(gw_sim_program *p) {
    gw_vec_release(&p->items);
    gw_vec_release(&p->waits);
    gw_vec_release(&p->lists);
    gw_vec_release(&p->turns);
}

void gw_sim_channels_release(gw_sim_channels *c) {
    gw_vec_release(&c->items);
    gw_imap_release(&c->index);
}

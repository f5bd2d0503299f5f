// SPDX-License-Identifier: Apache-2.0
// Do the programs of a pipeline's ranks fit together?
//
// The schedule's checker (sched/check.c) proves the lists of actions. Here the same is proved of
// what runs in the end: the sends and receives of all final programs, as the actions and the frame
// of a step order them, tag by tag.
//
// First the ends are matched: every send has one receive on the rank it names, with its tag, of as
// many bytes, as often in a step, with as many places; and the other way around. Then the step is
// played. A rank goes on until a receive finds nothing in its channel or a send finds no free
// place; a rank that can go on is taken up again when the other end moves. Nothing in a program
// chooses between channels, so what a rank does does not depend on when: if this one play ends,
// every play ends, whatever is late; if it stands still, every play does. A channel with anything
// left in it is a fault of its own: the next step would read it.
//
// Collectives are not played: their groups lie within the ranks of one pp coordinate, which all run
// the same program and so have the same order.
//
// Cost: linear in the sends and receives of a step.
#include <stdlib.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef struct end {
    bool there;
    gw_oid op;
    int64_t bytes, runs, places;
} end;

typedef struct channel {
    int from, to;
    int64_t tag;
    end send, recv;
    int64_t under_way;
} channel;

typedef struct event {
    int32_t channel;
    bool sends;
    int32_t action; /* number in the rank's list, or -1: after the loop */
} event;

typedef struct player {
    const gw_graph *const *g;
    int n;
    gw_diags *dg;
    gw_arena mem;
    GW_VEC(channel) channels;
    gw_imap index; /* (from, to, tag) -> channel */
    event **events;
    int64_t *count, *at; /* [n] */
    int32_t **of_op;     /* [n][ops]: channel, -1 */
} player;

static bool talks(const gw_graph *g, const gw_op *o, bool *sends) {
    *sends = gw_op_is(g, o, "send");
    return *sends || gw_op_is(g, o, "recv");
}

/* ---- both ends ---- */

static int32_t channel_of(player *p, int from, int to, int64_t tag) {
    uint64_t key = ((uint64_t)from << 48) ^ ((uint64_t)to << 32) ^ (uint64_t)tag;
    uint32_t i = 0;
    if (gw_imap_find(&p->index, key, &i)) return (int32_t)i;
    channel c = {.from = from, .to = to, .tag = tag};
    gw_imap_put(&p->index, key, (uint32_t)p->channels.count);
    gw_vec_push(&p->channels, c);
    return (int32_t)p->channels.count - 1;
}

static gw_status take_end(player *p, int rank, gw_oid i, bool sends) {
    const gw_graph *g = p->g[rank];
    const gw_op *o = &g->ops.items[i];
    int64_t peer = gw_op_attr_named(g, o, sends ? "to" : "from").i;
    int64_t tag = gw_op_attr_named(g, o, "tag").i;
    if (peer < 0 || peer >= p->n || peer == rank)
        return GW_FAIL(p->dg, GW_ERR_FORMAT, "check-pipeline",
                       "rank %d: a %s names rank %lld of %d", rank, sends ? "send" : "recv",
                       (long long)peer, p->n);
    int32_t c = sends ? channel_of(p, rank, (int)peer, tag) : channel_of(p, (int)peer, rank, tag);
    end *e = sends ? &p->channels.items[c].send : &p->channels.items[c].recv;
    gw_vid v = sends ? gw_op_in(g, o, 0) : gw_op_out(g, o, 0);
    if (e->there)
        return GW_FAIL(p->dg, GW_ERR_FORMAT, "check-pipeline",
                       "rank %d: two %ss of tag %lld with rank %lld", rank, sends ? "send" : "recv",
                       (long long)tag, (long long)peer);
    *e = (end){true, i, gw_type_local_bytes(gw_type_of(g, v), &g->mesh, 0),
               o->rate == GW_RATE_MB ? GW_MAX(1, g->micro_batches) : 1,
               gw_op_attr_named(g, o, "places").i};
    p->of_op[rank][i] = c;
    return GW_OK;
}

static gw_status compare_ends(const player *p, const channel *c) {
    const end *a = &c->send, *b = &c->recv;
    const gw_graph *g = p->g[a->there ? c->from : c->to];
    const char *scope = gw_graph_str(g, g->ops.items[a->there ? a->op : b->op].scope);
    if (!a->there || !b->there)
        return GW_FAIL(p->dg, GW_ERR_FORMAT, "check-pipeline",
                       "rank %d %s rank %d with tag %lld (\"%s\"), which does not %s",
                       a->there ? c->from : c->to, a->there ? "sends to" : "receives from",
                       a->there ? c->to : c->from, (long long)c->tag, scope,
                       a->there ? "receive" : "send");
    if (a->bytes == b->bytes && a->runs == b->runs && a->places == b->places) return GW_OK;
    return GW_FAIL(p->dg, GW_ERR_FORMAT, "check-pipeline",
                   "rank %d sends %lld messages of %lld bytes in %lld places with tag %lld "
                   "(\"%s\"), where rank %d receives %lld of %lld in %lld",
                   c->from, (long long)a->runs, (long long)a->bytes, (long long)a->places,
                   (long long)c->tag, scope, c->to, (long long)b->runs, (long long)b->bytes,
                   (long long)b->places);
}

static gw_status match(player *p) {
    for (int r = 0; r < p->n; r++) {
        const gw_graph *g = p->g[r];
        p->of_op[r] = gw_arena_new(&p->mem, int32_t, g->ops.count + 1);
        for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
            bool sends = false;
            p->of_op[r][i] = -1;
            if (talks(g, &g->ops.items[i], &sends)) GW_TRY(take_end(p, r, i, sends));
        }
    }
    for (int64_t i = 0; i < p->channels.count; i++) GW_TRY(compare_ends(p, &p->channels.items[i]));
    return GW_OK;
}

/* ---- a rank's step ---- */

static void add_range(const player *p, int r, gw_oid first, gw_oid stop, int32_t action, bool steps,
                      event *out, int64_t *n) {
    const gw_graph *g = p->g[r];
    for (gw_oid i = first; i < stop; i++) {
        bool sends = false;
        if (p->of_op[r][i] < 0 || (g->ops.items[i].rate == GW_RATE_STEP) != steps) continue;
        (void)talks(g, &g->ops.items[i], &sends);
        if (out) out[*n] = (event){p->of_op[r][i], sends, action};
        ++*n;
    }
}

static void list_events(player *p, int r, const gw_flow *f, event *out, int64_t *n) {
    const gw_graph *g = p->g[r];
    gw_oid first = 0, stop = 0;
    gw_graph_loop(g, &first, &stop);
    *n = 0;
    for (int64_t a = 0; a < g->actions.count; a++) {
        int ranges[2];
        int count = gw_flow_ranges_of(f, g->actions.items[a], ranges);
        bool steps = !gw_act_has_micro((gw_act)g->actions.items[a].act);
        for (int k = 0; k < count; k++)
            add_range(p, r, f->ranges[ranges[k]].first, f->ranges[ranges[k]].end, (int32_t)a, steps,
                      out, n);
    }
    add_range(p, r, stop, (gw_oid)g->ops.count, -1, true, out, n);
}

/* ---- the play ---- */

static bool move(player *p, int r) {
    if (p->at[r] == p->count[r]) return false;
    const event *e = &p->events[r][p->at[r]];
    channel *c = &p->channels.items[e->channel];
    if (e->sends ? c->under_way == c->send.places : c->under_way == 0) return false;
    c->under_way += e->sends ? 1 : -1;
    p->at[r]++;
    return true;
}

static void run(player *p) {
    int *waiting = gw_arena_new(&p->mem, int, p->n + 1), count = 0;
    bool *queued = gw_arena_new(&p->mem, bool, p->n);
    for (int r = p->n; r-- > 0;) {
        waiting[count++] = r;
        queued[r] = true;
    }
    while (count > 0) {
        int r = waiting[--count];
        queued[r] = false;
        while (p->at[r] < p->count[r]) {
            const channel *c = &p->channels.items[p->events[r][p->at[r]].channel];
            if (!move(p, r)) break;
            int other = c->from == r ? c->to : c->from;
            if (!queued[other]) {
                waiting[count++] = other;
                queued[other] = true;
            }
        }
    }
}

/* What a rank that stands still waits for. */
static void say_waiting(const player *p, int r, gw_diag *d) {
    const event *e = &p->events[r][p->at[r]];
    const channel *c = &p->channels.items[e->channel];
    const gw_graph *g = p->g[r];
    char text[GW_ACTION_TEXT] = "after the loop";
    if (e->action >= 0) (void)gw_action_print(g->actions.items[e->action], text);
    gw_diag_detail(p->dg, d, "rank %d, %s: waits for rank %d to %s", r, text,
                   e->sends ? c->to : c->from, e->sends ? "receive" : "send");
}

static gw_status stands_still(const player *p) {
    gw_diag *d = NULL;
    int shown = 0;
    for (int r = 0; r < p->n; r++) {
        if (p->at[r] == p->count[r]) continue;
        if (!d)
            d = gw_diag_add(p->dg, GW_ERROR, GW_ERR_FORMAT, "check-pipeline", (gw_where){0},
                            "the programs of the pipeline's ranks wait for one another");
        if (d && shown++ < 8) say_waiting(p, r, d);
    }
    for (int64_t i = 0; shown == 0 && i < p->channels.count; i++) {
        const channel *c = &p->channels.items[i];
        if (c->under_way > 0)
            return GW_FAIL(p->dg, GW_ERR_FORMAT, "check-pipeline",
                           "%lld messages of rank %d to rank %d with tag %lld are left over",
                           (long long)c->under_way, c->from, c->to, (long long)c->tag);
    }
    return shown ? GW_ERR_FORMAT : GW_OK;
}

static gw_status play(player *p) {
    p->events = gw_arena_new(&p->mem, event *, p->n + 1);
    p->count = gw_arena_new(&p->mem, int64_t, p->n + 1);
    p->at = gw_arena_new(&p->mem, int64_t, p->n + 1);
    for (int r = 0; r < p->n; r++) {
        gw_arena mem = {0};
        gw_flow f;
        gw_flow_of(&f, p->g[r], &mem);
        list_events(p, r, &f, NULL, &p->count[r]);
        p->events[r] = gw_arena_new(&p->mem, event, p->count[r] + 1);
        list_events(p, r, &f, p->events[r], &p->count[r]);
        gw_arena_release(&mem);
    }
    run(p);
    return stands_still(p);
}

gw_status gw_check_pipeline(const gw_graph *const *programs, int n, gw_diags *dg) {
    player p = {.g = programs, .n = n, .dg = dg};
    p.of_op = gw_arena_new(&p.mem, int32_t *, n + 1);
    gw_status st = match(&p);
    if (st == GW_OK) st = play(&p);
    gw_vec_release(&p.channels);
    gw_imap_release(&p.index);
    gw_arena_release(&p.mem);
    return st;
}

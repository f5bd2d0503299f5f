// SPDX-License-Identifier: Apache-2.0
// From send and recv ops to channels.
//
// The programs of two stages are different ones, so a message is found by its two ranks and its tag
// (ops/channel.c). On all axes but pp both ranks stand alike, and both hold the value under the
// same placement, so what one sends is what the other holds: with tensor parallelism each sends its
// slice. A sender's box is the op's workspace, planned with the arena and alive as long as the
// program; a receiver copies out of it where it lies.
//
// Messages of one channel arrive in the order in which they were sent. A loop sends one for each
// micro-batch, in the order of the sender's actions, and the schedule's checker has seen to it that
// the receiver's actions have the same order.
#include "run/exec_channel.h"

#include <string.h>

#include "base/panic.h" /* gw_panic */
#include "ir/opdef.h"   /* gw_op_is, gw_op_attr_named */

bool gw_op_is_channel(const gw_graph *g, const gw_op *o) {
    return gw_op_is(g, o, "send") || gw_op_is(g, o, "recv");
}

static bool sends(const gw_graph *g, const gw_op *o) { return gw_op_is(g, o, "send"); }

static const gw_type *message_of(const gw_graph *g, const gw_op *o) {
    return gw_type_of(g, sends(g, o) ? gw_op_in(g, o, 0) : gw_op_out(g, o, 0));
}

int64_t gw_exec_peer(const gw_graph *g, const gw_op *o, int64_t rank) {
    const gw_mesh *m = &g->mesh;
    uint32_t pp = gw_mesh_group(m, "pp");
    int64_t at = gw_op_attr_named(g, o, sends(g, o) ? "to" : "from").i, peer = 0, stride = 1;
    if (at >= gw_mesh_size(m, pp))
        gw_panic("%s of %s goes to place %lld of a pipeline of %lld ranks", gw_op_def(g, o)->name,
                 gw_graph_str(g, o->scope), (long long)at, (long long)gw_mesh_size(m, pp));
    for (int i = m->naxes - 1; i >= 0; i--) { /* most minor first */
        int64_t size = m->axes[i].size;
        bool along = pp >> i & 1u;
        peer += stride * (along ? at % size : gw_mesh_coord(m, rank, i));
        if (along) at /= size;
        stride *= size;
    }
    return peer;
}

int64_t gw_exec_message_bytes(const gw_graph *g, const gw_op *o, int64_t rank) {
    return gw_type_local_bytes(message_of(g, o), &g->mesh, rank);
}

static int places_of(const gw_graph *g, const gw_op *o) {
    return (int)gw_op_attr_named(g, o, "places").i;
}

int64_t gw_exec_box_bytes(const gw_graph *g, const gw_op *o) {
    if (!sends(g, o)) return 0;
    return gw_channel_box_bytes(gw_exec_message_bytes(g, o, 0), places_of(g, o));
}

gw_coll_traffic gw_exec_sends_traffic(const gw_graph *g, int64_t rank) {
    gw_coll_traffic t = {0, 0};
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!sends(g, o)) continue;
        int64_t times = o->rate == GW_RATE_MB ? GW_MAX(1, g->micro_batches) : 1;
        t.payload += times * gw_exec_message_bytes(g, o, rank);
    }
    t.moved = t.payload;
    return t;
}

static const char *name_of(const gw_graph *g, const gw_op *o) {
    const char *scope = gw_graph_str(g, o->scope);
    return *scope ? scope : gw_op_def(g, o)->name;
}

static void add_port(gw_ports *p, gw_channel_spec *s, const gw_graph *g, gw_oid i, int64_t rank,
                     void *(*ptr)(void *user, gw_vid v), void *user) {
    const gw_op *o = &g->ops.items[i];
    *s = (gw_channel_spec){.tag = (int32_t)gw_op_attr_named(g, o, "tag").i,
                           .peer = (int)gw_exec_peer(g, o, rank),
                           .sends = sends(g, o),
                           .bytes = gw_exec_message_bytes(g, o, rank),
                           .places = places_of(g, o),
                           .what = name_of(g, o)};
    if (s->peer == rank) gw_panic("%s sends to its own rank", s->what);
    if (s->sends && s->bytes > 0) {
        if (o->work == GW_NONE) gw_panic("%s has no box: the program is not placed", s->what);
        s->box = ptr(user, o->work);
    }
    p->of[i] = p->n++;
}

gw_status gw_ports_open(gw_ports *p, const gw_graph *g, int64_t rank, gw_comm *c,
                        void *(*ptr)(void *user, gw_vid v), void *user, gw_arena *a, gw_diags *dg) {
    *p = (gw_ports){.of = gw_arena_new(a, int32_t, g->ops.count + 1)};
    gw_channel_spec *specs = gw_arena_new(a, gw_channel_spec, g->ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)g->ops.count; i++) {
        p->of[i] = -1;
        if (!gw_op_is_channel(g, &g->ops.items[i])) continue;
        if (!c)
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "exec-ranks",
                           "the program is that of some stages of a pipeline, and this process is "
                           "alone");
        add_port(p, &specs[p->n], g, i, rank, ptr, user);
    }
    if (!c || gw_mesh_group(&g->mesh, "pp") == 0) return GW_OK;
    return gw_channels_open(&p->open, c, specs, p->n, dg);
}

void gw_ports_close(gw_ports *p, bool wait) {
    if (p->open && wait) (void)!gw_channels_drain(p->open, NULL);
    if (p->open) gw_channels_close(p->open);
    p->open = NULL;
}

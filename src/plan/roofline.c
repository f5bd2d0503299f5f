// SPDX-License-Identifier: Apache-2.0
// The roofline of a step (Williams, Waterman, Patterson 2009): FLOPs a byte against FLOP/s, for
// each kind of op, beside what the chip could do.
//
// Ops are grouped by what they are, in which phase, in which place of a layer: the q projections of
// eighty layers are one point. A point's intensity and rate follow from sums over all its runs in a
// step; so its seconds are its weight, and all points, copies and the rest sum to the time of the
// step's compute ops. FLOPs and bytes come from the op's descriptor, as everywhere; seconds from
// the machine's cost model, as in the simulator.
//
// Of a pipeline the ranks' programs are read one after another and divided by their number, so that
// a point is of a mean rank, as the parts of a simulated step are.
//
// What takes no time on the machine (views, ops that engines fuse into a neighbour) is no point,
// and what computes nothing (casts, gathers) has no intensity: its seconds are said apart.
#include "plan/roofline.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"         /* gw_smap, GW_VEC */
#include "pass/pass.h"        /* gw_scope_layer */
#include "run/exec_channel.h" /* gw_op_is_channel */
#include "run/exec_comm.h"    /* gw_op_is_collective */
#include "run/exec_copy.h"    /* gw_op_is_copy */

enum { POINTS = 64 };

typedef struct kinds {
    GW_VEC(gw_roof_point) items;
    gw_smap index; /* key text -> item */
    gw_arena *mem;
} kinds;

static gw_roof_point *point_of(kinds *k, const gw_graph *g, const gw_op *o) {
    const char *op = gw_op_def(g, o)->name, *scope = gw_graph_str(g, o->scope);
    int layer = gw_scope_layer(scope);
    gw_vid in = o->nin ? gw_op_in(g, o, 0) : GW_NONE;
    gw_dtype t = in == GW_NONE ? GW_F32 : (gw_dtype)gw_type_of(g, in)->dtype;
    char key[256];
    scope += layer + (scope[layer] == '/');
    int n = snprintf(key, sizeof key, "%d|%d|%d|%s|%.180s", o->phase, (int)t, layer > 0, op, scope);
    size_t len = (size_t)GW_MIN(n, (int)sizeof key - 1);
    uint32_t at;
    if (!gw_smap_find(&k->index, key, len, &at)) {
        gw_roof_point p = {.op = op,
                           .scope = gw_arena_strdup(k->mem, scope),
                           .phase = (gw_phase)o->phase,
                           .of = gw_sim_class_of(g, o),
                           .dtype = t};
        at = (uint32_t)k->items.count;
        gw_smap_put(&k->index, gw_arena_strndup(k->mem, key, len), len, at);
        gw_vec_push(&k->items, p);
    }
    return &k->items.items[at];
}

/* `seconds` of each op as the simulator has them. */
static void add_program(kinds *k, const gw_graph *g, const double *seconds, double share) {
    double micro = g->micro_batches > 0 ? (double)g->micro_batches : 1;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_is_collective(g, o) || gw_op_is_channel(g, o) || gw_op_is_copy(g, o)) continue;
        double s = seconds[i];
        double runs = (o->rate == GW_RATE_STEP ? 1 : micro) * share;
        if (s <= 0) continue;
        gw_cost c = {0};
        gw_op_def(g, o)->cost(g, o, &c);
        gw_roof_point *p = point_of(k, g, o);
        p->runs += runs;
        p->flops += runs * c.flops;
        p->bytes += runs * (c.bytes_read + c.bytes_written);
        p->seconds += runs * s;
    }
}

static int slowest_first(const void *a, const void *b) {
    const gw_roof_point *x = a, *y = b;
    if (x->seconds > y->seconds) return -1;
    if (x->seconds < y->seconds) return 1;
    int c = strcmp(x->op, y->op);
    if (c == 0) c = (int)x->phase - (int)y->phase;
    return c ? c : strcmp(x->scope, y->scope);
}

void gw_roofline_init(gw_roofline *r, const gw_simplan *p) {
    *r = (gw_roofline){.memory_bytes_per_s = p->machine->memory_bytes_per_s};
    kinds k = {.mem = &r->mem};
    for (int i = 0; i < p->n; i++)
        add_program(&k, p->programs[i], p->sim.op_seconds[i], 1.0 / p->n);
    memcpy(r->peak, p->machine->peak, sizeof r->peak);
    r->points = gw_arena_new(&r->mem, gw_roof_point, POINTS);
    if (k.items.count > 0)
        qsort(k.items.items, (size_t)k.items.count, sizeof *k.items.items, slowest_first);
    for (int64_t i = 0; i < k.items.count; i++) {
        const gw_roof_point *x = &k.items.items[i];
        r->seconds += x->seconds;
        if (x->flops <= 0 || x->bytes <= 0)
            r->copies_s += x->seconds;
        else if (r->n < POINTS)
            r->points[r->n++] = *x;
        else
            r->rest_s += x->seconds;
    }
    gw_vec_release(&k.items);
    gw_smap_release(&k.index);
}

void gw_roofline_release(gw_roofline *r) {
    gw_arena_release(&r->mem);
    memset(r, 0, sizeof *r);
}

static const char *class_name(gw_sim_class c) {
    static const char *const names[GW_SIM_CLASSES] = {"products", "attention", "memory",
                                                      "optimizer"};
    return names[c];
}

static json_t *point_json(const gw_roofline *r, const gw_roof_point *p) {
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "op", p->op,
                     "scope", p->scope, "phase", gw_phase_name(p->phase), "class",
                     class_name(p->of), "dtype", gw_dtype_name(p->dtype), "runs", p->runs, "flops",
                     p->flops, "bytes", p->bytes, "seconds", p->seconds, "intensity",
                     p->flops / p->bytes, "flops_per_s", p->flops / p->seconds, "share",
                     p->seconds / r->seconds);
}

json_t *gw_roofline_json(const gw_roofline *r) {
    json_t *peaks = json_object(), *points = json_array();
    for (int t = 0; t < GW_DTYPE_COUNT; t++)
        if (r->peak[t] > 0)
            (void)json_object_set_new(peaks, gw_dtype_name((gw_dtype)t), json_real(r->peak[t]));
    for (int i = 0; i < r->n; i++)
        (void)json_array_append_new(points, point_json(r, &r->points[i]));
    return json_pack("{s:f, s:o, s:f, s:f, s:f, s:o}", "memory_bytes_per_s", r->memory_bytes_per_s,
                     "peak_flops", peaks, "seconds", r->seconds, "copies_s", r->copies_s, "rest_s",
                     r->rest_s, "points", points);
}

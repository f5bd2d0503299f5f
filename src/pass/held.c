// SPDX-License-Identifier: Apache-2.0
// What a micro-batch holds in a stage, read from the stage's program.
//
// A schedule that lets weight gradients wait pays for it in memory, and how much is no guess: pass
// `schedule` has put the ops of F, I and W into pieces of their own, so every value that one piece
// makes and another reads is known, with its bytes. Of a stage with a backward in halves there are
// three kinds, and each has places of its own (ir/flow.h):
//
//   from F to I    what only the gradient of the input needs: statistics, activations' arguments
//   from F to W    what the gradients of weights need: the inputs of products
//   from I to W    the gradients of products' outputs, and what recomputation made anew
//
// With a whole backward there is the sum of the first two from F to B. Values that do not reach
// backward (what is sent on at once) are not counted, nor those of one piece. A value that stages
// of one rank share is the last reader's.
#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef struct reach {
    bool from_f;     /* made by F, or before it */
    int32_t stage;   /* of the last piece that touches it */
    bool in_i, in_w; /* touched by I, by W */
} reach;

static void touch(const gw_graph *g, const gw_flow *f, reach *at, gw_vid v, gw_oid op) {
    if (v == GW_NONE || f->range_of[op] < 0) return;
    const gw_range *r = &f->ranges[f->range_of[op]];
    reach *x = &at[gw_value_root(g, v)];
    bool w = r->part == GW_PART_W;
    bool i = r->part == GW_PART_I || r->part == GW_PART_SEND_B || r->part == GW_PART_RECV_B;
    x->from_f |= !w && !i;
    x->in_i |= i;
    x->in_w |= w;
    if (w || i) x->stage = r->stage;
}

void gw_stage_held_of(const gw_graph *g, gw_stage_held *held, int stages) {
    gw_arena mem = {0};
    gw_flow f;
    gw_oid first, end;
    gw_flow_of(&f, g, &mem);
    gw_graph_loop(g, &first, &end);
    reach *at = gw_arena_new(&mem, reach, g->values.count + 1);
    for (gw_oid i = first; i < end; i++) {
        const gw_op *o = &g->ops.items[i];
        for (int j = 0; j < (int)o->nin; j++) touch(g, &f, at, gw_op_in(g, o, j), i);
        for (int j = 0; j < (int)o->nout; j++) touch(g, &f, at, gw_op_out(g, o, j), i);
    }
    for (int64_t v = 0; v < g->values.count; v++) {
        const reach *x = &at[v];
        if (f.class_of[v] == 0 || gw_value_root(g, (gw_vid)v) != (gw_vid)v) continue;
        if (!x->in_i && !x->in_w) continue;
        GW_ASSERT(x->stage >= 0 && x->stage < stages);
        gw_stage_held *h = &held[x->stage];
        int64_t bytes = gw_flow_stride(g, (gw_vid)v);
        if (x->in_w)
            *(x->from_f ? &h->to_weight : &h->made) += bytes;
        else if (x->from_f)
            h->to_input += bytes;
    }
    gw_arena_release(&mem);
}

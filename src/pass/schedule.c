// SPDX-License-Identifier: Apache-2.0
// Gives weight gradients pieces of their own, where the schedule runs them apart.
//
// Pass `split` leaves a stage's whole backward in one piece. In a schedule with backward in halves
// (actions I and W), an op belongs to W if it is of phase W and nothing that stays needs its
// results: readers are looked at first, so what only passes a weight gradient on (a conversion, an
// accumulation) goes with it. The rest is what the stage before waits for. What W reads of the rest
// is carried to it (ir/flow.h), which is the memory that zero bubble costs.
//
// Pieces are ordered anew by their last runs. Programs without stages have one order of
// micro-batches, one after another, which is what their loop means.
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "pass/pass.h"

typedef struct mover {
    const gw_graph *g;
    gw_oid loop_first, loop_end;
    bool *moves; /* [ops]: to W */
    bool *stays; /* [values]: an op that is not of W reads it */
} mover;

/* Has this rank an action W of the stage? */
static bool in_halves(const gw_graph *g, int stage) {
    for (int64_t i = 0; i < g->actions.count; i++)
        if (g->actions.items[i].act == GW_ACT_W && g->actions.items[i].stage == stage) return true;
    return false;
}

static bool may_move(const mover *m, gw_oid i) {
    const gw_op *o = &m->g->ops.items[i];
    if (o->part != GW_PART_I || o->phase != GW_PHASE_W) return false;
    for (int k = 0; k < (int)o->nout; k++)
        if (m->stays[gw_op_out(m->g, o, k)]) return false;
    return true;
}

static bool find_moves(mover *m) {
    const gw_graph *g = m->g;
    int stage = -1;
    bool halves = false, any = false;
    for (gw_oid i = m->loop_end; i-- > m->loop_first;) {
        const gw_op *o = &g->ops.items[i];
        if (o->stage != stage) {
            stage = o->stage;
            halves = in_halves(g, stage);
        }
        m->moves[i] = halves && may_move(m, i);
        any |= m->moves[i];
        for (int k = 0; k < (int)o->nin && !m->moves[i]; k++)
            if (gw_op_in(g, o, k) != GW_NONE) m->stays[gw_op_in(g, o, k)] = true;
    }
    return any;
}

/* ---- order ---- */

typedef struct piece {
    int32_t stage;
    uint8_t part;
    int64_t last;
} piece;

/* Number of the last action that runs a piece. */
static int64_t last_run(const gw_graph *g, int32_t stage, uint8_t part) {
    for (int64_t i = g->actions.count; i-- > 0;) {
        gw_action a = g->actions.items[i];
        if (a.stage != stage) continue;
        bool runs = false;
        switch ((gw_part)part) {
        case GW_PART_RECV_F: runs = a.act == GW_ACT_RECV_F; break;
        case GW_PART_F: runs = a.act == GW_ACT_F; break;
        case GW_PART_SEND_F: runs = a.act == GW_ACT_SEND_F; break;
        case GW_PART_RECV_B: runs = a.act == GW_ACT_RECV_B; break;
        case GW_PART_I: runs = a.act == GW_ACT_I || a.act == GW_ACT_B; break;
        case GW_PART_SEND_B: runs = a.act == GW_ACT_SEND_B; break;
        case GW_PART_W: runs = a.act == GW_ACT_W || a.act == GW_ACT_B; break;
        case GW_PART_ALL:
        case GW_PART_COUNT: break;
        }
        if (runs) return i;
    }
    return -1;
}

static uint8_t part_of(const mover *m, gw_oid i) {
    return m->moves[i] ? (uint8_t)GW_PART_W : m->g->ops.items[i].part;
}

static int find_pieces(const mover *m, piece *p) {
    int n = 0;
    for (gw_oid i = m->loop_first; i < m->loop_end; i++) {
        int32_t stage = m->g->ops.items[i].stage;
        uint8_t part = part_of(m, i);
        int j = 0;
        while (j < n && (p[j].stage != stage || p[j].part != part)) j++;
        if (j < n) continue;
        GW_ASSERT(n < GW_MAX_RANGES);
        piece x = {stage, part, last_run(m->g, stage, part)};
        for (j = n++; j > 0 && (p[j - 1].last > x.last ||
                                (p[j - 1].last == x.last && p[j - 1].part > x.part));
             j--)
            p[j] = p[j - 1];
        p[j] = x;
    }
    return n;
}

static void emit(const mover *m, gw_graph *dst, gw_vid *map) {
    const gw_graph *g = m->g;
    piece p[GW_MAX_RANGES];
    int n = find_pieces(m, p);
    for (int64_t v = 0; v < g->values.count; v++)
        map[v] =
            g->values.items[v].def == GW_NONE ? gw_graph_copy_leaf(dst, g, (gw_vid)v) : GW_NONE;
    for (gw_oid i = 0; i < m->loop_first; i++) (void)gw_graph_copy_op(dst, g, i, map);
    for (int k = 0; k < n; k++)
        for (gw_oid i = m->loop_first; i < m->loop_end; i++) {
            if (g->ops.items[i].stage != p[k].stage || part_of(m, i) != p[k].part) continue;
            gw_oid made = gw_graph_copy_op(dst, g, i, map);
            dst->ops.items[made].part = p[k].part;
        }
    for (gw_oid i = m->loop_end; i < (gw_oid)g->ops.count; i++)
        (void)gw_graph_copy_op(dst, g, i, map);
    for (int64_t i = 0; i < g->states.count; i++)
        gw_graph_add_state(dst, map[g->states.items[i].start], map[g->states.items[i].end]);
}

gw_status gw_pass_schedule(gw_graph *dst, const gw_graph *src, const gw_compile_opts *opts,
                           gw_compile_report *report, gw_diags *dg) {
    (void)opts;
    (void)report;
    (void)dg;
    gw_arena mem = {0};
    mover m = {.g = src};
    gw_graph_loop(src, &m.loop_first, &m.loop_end);
    m.moves = gw_arena_new(&mem, bool, src->ops.count + 1);
    m.stays = gw_arena_new(&mem, bool, src->values.count + 1);
    if (src->actions.count == 0 || !find_moves(&m)) {
        gw_graph_dup(dst, src);
    } else {
        gw_graph_begin(dst, src);
        emit(&m, dst, gw_arena_new(&mem, gw_vid, src->values.count));
    }
    gw_arena_release(&mem);
    return GW_OK;
}

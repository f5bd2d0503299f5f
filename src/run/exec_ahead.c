// SPDX-License-Identifier: Apache-2.0
// A pipeline's step that does not wait for the norm.
//
// The last thing of a step, the sum of squares over all ranks, ties every rank to the one that is
// done last, and most steps do not need it: the norm is finite and clips nothing, so the factor
// that follows from it is the one that was known before. A step ahead takes that factor, keeps a
// copy of parameters and states, and gives its part of the sum to the caller, who carries the parts
// together while the next step runs (train/session_step.c). When all are there, the sum, norm and
// factor are worked out by the very ops of the program, on other operands: what they say is to the
// bit what a step that waits says. A step that was wrong is undone from the copy, and taken again
// with everybody waiting. (Qi, Wan, Huang, Lin: Zero Bubble Pipeline Parallelism, section 4, where
// the copy is spared and the step is taken back by arithmetic, which is not to the bit.)
//
// So this needs no program of its own. After the loop the messages of the norm are the only scalars
// that go between stages: a send of one gives the part, a receive brings zero, and clip reads zero,
// of which it makes the factor that clips nothing. The copy is one stretch of memory, as parameters
// and states lie side by side at the bottom of the arena; its place is at the top.
#include <string.h>

#include "base/panic.h"    /* GW_ASSERT, gw_panic */
#include "run/exec_impl.h" /* struct gw_exec */

enum { MADE = 4 }; /* results of an op of the norm, and one more operand, at most */

/* The scalar that a message of the norm carries, or GW_NONE. */
static gw_vid norm_message(const gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    if (i < x->loop_end || !gw_op_is_channel(&x->g, o)) return GW_NONE;
    gw_vid v = gw_op_is(&x->g, o, "send") ? gw_op_in(&x->g, o, 0) : gw_op_out(&x->g, o, 0);
    return x->g.values.items[v].type.ndim == 0 ? v : GW_NONE;
}

static double get(const gw_tensor *t) {
    return t->dtype == GW_F64 ? *(const double *)t->data : (double)*(const float *)t->data;
}

static void put(const gw_tensor *t, double x) {
    if (t->dtype == GW_F64)
        *(double *)t->data = x;
    else
        *(float *)t->data = (float)x;
}

bool gw_ahead_skips(gw_exec *x, gw_oid i) {
    gw_bound_op *b = &x->ops[i];
    if (i < x->loop_end) return false;
    if (gw_op_is(&x->g, &x->g.ops.items[i], "clip")) put(&b->in[0], 0);
    if (norm_message(x, i) == GW_NONE) return false;
    if (b->what == GW_BOUND_SEND)
        x->own_sum = get(&b->in[0]); /* the first rank's has had nothing but zeros added */
    else
        put(&b->out[0], 0);
    return true;
}

int64_t gw_exec_unsent_bytes(const gw_exec *x) {
    int64_t bytes = 0;
    for (gw_oid i = x->loop_end; i < (gw_oid)x->g.ops.count; i++)
        if (norm_message(x, i) != GW_NONE && x->ops[i].what == GW_BOUND_SEND)
            bytes += gw_exec_message_bytes(&x->g, &x->g.ops.items[i], x->rank);
    return bytes;
}

static char *copy_of(const gw_exec *x) {
    GW_ASSERT(x->kept > 0 && x->base);
    return x->base + x->g.arena_bytes[GW_MEM_DEVICE] - x->kept;
}

gw_status gw_exec_run_ahead(gw_exec *x, double *sum, gw_diags *dg) {
    memcpy(copy_of(x), x->base, (size_t)x->persistent);
    x->ahead = true;
    gw_status st = gw_exec_run(x, GW_SEG_POST, dg);
    x->ahead = false;
    *sum = x->own_sum;
    return st;
}

void gw_exec_restore(gw_exec *x) {
    gw_exec_unguard(x);
    memcpy(x->base, copy_of(x), (size_t)x->persistent);
}

/* ---- the verdict ---- */

void gw_ahead_init(gw_exec *x) {
    int64_t pp = gw_mesh_size(&x->g.mesh, gw_mesh_group(&x->g.mesh, "pp")), n = pp + MADE;
    x->kept = x->persistent;
    x->bound_bytes += x->kept;
    x->cells = gw_arena_new(&x->mem, double, n);
    x->scalars = gw_arena_new(&x->mem, gw_tensor, n);
}

/* Runs op i on scalars of the caller's. */
static gw_status replay(gw_exec *x, gw_oid i, const double *in, int nin, double *out, int nout,
                        gw_diags *dg) {
    const gw_bound_op *b = &x->ops[i];
    gw_kargs a = b->args;
    gw_tensor *t = x->scalars;
    if (a.nin != nin || a.nout != nout) gw_panic("the norm of a pipeline has other operands");
    for (int k = 0; k < nin + nout; k++) {
        t[k] = k < nin ? b->in[k] : b->out[k - nin];
        t[k].data = &x->cells[k];
        if (k < nin) put(&t[k], in[k]);
    }
    a.in = t;
    a.out = t + nin;
    GW_TRY(b->kernel->launch(b->state, &a, dg));
    for (int k = 0; k < nout; k++) out[k] = get(&t[nin + k]);
    return GW_OK;
}

gw_status gw_exec_judge(gw_exec *x, const double *sums, int n, double inv_scale,
                        gw_exec_verdict *out, gw_diags *dg) {
    gw_oid clip = x->loop_end;
    while (clip < (gw_oid)x->g.ops.count && !gw_op_is(&x->g, &x->g.ops.items[clip], "clip")) clip++;
    GW_ASSERT(clip < (gw_oid)x->g.ops.count);
    double sum = sums[0], made[3] = {0}, operands[2];
    if (n > 1) {
        gw_oid add = x->g.values.items[gw_op_in(&x->g, &x->g.ops.items[clip], 0)].def;
        GW_TRY(replay(x, add, sums, n, &sum, 1, dg));
    }
    operands[0] = sum;
    operands[1] = inv_scale;
    GW_TRY(replay(x, clip, operands, 2, made, 3, dg));
    *out = (gw_exec_verdict){.norm = made[0], .right = made[2] != 0 && made[1] == inv_scale};
    return GW_OK;
}

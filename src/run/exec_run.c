// SPDX-License-Identifier: Apache-2.0
// Running a bound program: a loop over ops that calls `launch`. Our own code allocates nothing
// here.
//
// A step is three segments: ops before the loop, the loop once for each micro-batch, ops after it.
// The loop of a pipeline's stages is not one segment but a list of actions (exec_stages.c); the ops
// before and after it, and each op of it, run as they do here.
//
// Copies between memory kinds go to a thread of their own (run/exec_copy.c). The ops that need what
// it brings wait for it, and every segment and action ends with nothing under way.
//
// With `poison` every value is overwritten with NaN when its life ends, so that a read after the
// end of a life turns into a NaN in the loss instead of a plausible number.
//
// A checked run is the same with a look at every float that an op reads or makes. With several
// ranks it goes on behind the first bad one, since the others wait in its collectives and messages.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/fp8.h"      /* gw_f8e4m3_to_f32 */
#include "base/num.h"      /* gw_bf16 */
#include "base/panic.h"    /* gw_panic */
#include "run/exec_impl.h" /* struct gw_exec */

void gw_exec_say(gw_exec *x, const char *fmt, ...) {
    char text[96];
    va_list ap;
    if (!x->comm) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gw_comm_doing(x->comm, text);
}

/* ---- one op ---- */

static void poison_ended(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    for (int k = 0; k < (int)o->nin + (int)o->nout; k++) {
        gw_vid v = k < (int)o->nin ? gw_op_in(&x->g, o, k) : gw_op_out(&x->g, o, k - (int)o->nin);
        if (v == GW_NONE) continue;
        gw_vid root = gw_value_root(&x->g, v);
        const gw_value *r = &x->g.values.items[root];
        if (x->lives.persistent[root] || x->lives.last[root] != (int32_t)i) continue;
        if (r->mem != GW_MEM_DEVICE) continue;
        if (x->flow.class_of[root]) continue; /* ends with the last piece that touches it */
        /* A step-rate input of the loop is written once and read in every iteration. */
        if (r->rate == GW_RATE_STEP && i >= x->loop_first && i < x->loop_end) continue;
        void *p = gw_exec_ptr(x, root);
        if (p) memset(p, 0xff, (size_t)gw_exec_local_bytes(x, root));
    }
}

/* Which message of a channel it is, for people. */
static const char *message_text(const gw_exec *x, char buf[48]) {
    snprintf(buf, 48, "micro-batch %lld", (long long)x->now);
    return x->now < 0 ? "the step" : buf;
}

static gw_status launch(gw_exec *x, gw_oid i, gw_diags *dg) {
    gw_bound_op *b = &x->ops[i];
    char buf[48];
    GW_TRY(gw_copier_before(x->copier, i, dg));
    if (x->ahead && gw_ahead_skips(x, i)) return GW_OK;
    switch (b->what) {
    case GW_BOUND_NOTHING: return GW_OK;
    case GW_BOUND_COPY: gw_copier_issue(x->copier, i); return GW_OK;
    case GW_BOUND_COLLECTIVE:
        return gw_bucket_run(x->comm, &x->buckets.items[x->buckets.of[i]], b->args.work, x->threads,
                             dg);
    case GW_BOUND_SEND:
        return gw_channel_send(x->ports.open, x->ports.of[i], b->args.in[0].data,
                               message_text(x, buf), dg);
    case GW_BOUND_RECV:
        return gw_channel_recv(x->ports.open, x->ports.of[i], b->args.out[0].data,
                               message_text(x, buf), dg);
    case GW_BOUND_KERNEL: break;
    }
    return b->kernel->launch(b->state, &b->args, dg);
}

void gw_exec_guard(gw_exec *x, void (*fn)(void *user), void *user) {
    x->guard = fn;
    x->guard_user = user;
}

void gw_exec_unguard(gw_exec *x) {
    void (*fn)(void *user) = x->guard;
    x->guard = NULL;
    if (fn) fn(x->guard_user);
}

static gw_status run_op(gw_exec *x, gw_oid i, gw_diags *dg) {
    gw_bound_op *b = &x->ops[i];
    if (x->changes[i]) gw_exec_unguard(x);
    if (x->comm) gw_comm_alive(x->comm, ++x->alive);
    int64_t t0 = gw_clock_ns();
    gw_status st = launch(x, i, dg);
    b->ns = gw_clock_ns() - t0;
    b->start_ns = t0 - x->epoch_ns;
    x->failed |= st != GW_OK;
    if (st != GW_OK)
        gw_diag_frame(dg, "running %s (kernel %s) of %s",
                      gw_op_def(&x->g, &x->g.ops.items[i])->name, b->kernel->name,
                      gw_graph_str(&x->g, x->g.ops.items[i].scope));
    else if (x->poison)
        poison_ended(x, i);
    return st;
}

/* ---- with a look at it ---- */

static bool finite_tensor(const gw_tensor *t) {
    if (!t->data) return true;
    for (int64_t i = 0; i < t->elems; i++) {
        float f = 0;
        switch (t->dtype) {
        case GW_F32: f = ((const float *)t->data)[i]; break;
        case GW_BF16: f = gw_bf16_to_f32(((const gw_bf16 *)t->data)[i]); break;
        case GW_F16: f = gw_fp16_to_f32(((const gw_fp16 *)t->data)[i]); break;
        case GW_F64: f = isfinite(((const double *)t->data)[i]) ? 0 : NAN; break;
        case GW_F8E4M3: f = gw_f8e4m3_to_f32(((const gw_f8e4m3 *)t->data)[i]); break;
        case GW_F8E5M2: f = gw_f8e5m2_to_f32(((const gw_f8e5m2 *)t->data)[i]); break;
        case GW_I32:
        case GW_I64:
        case GW_U8:
        case GW_DTYPE_COUNT: return true;
        }
        if (!isfinite(f)) return false;
    }
    return true;
}

/* Runs op i with a look at what it reads and makes. `zeros` reads a shape, not numbers. */
static gw_status run_op_checked(gw_exec *x, gw_oid i, bool *ok, gw_diags *dg) {
    const gw_kargs *a = &x->ops[i].args;
    bool reads = !gw_op_is(&x->g, &x->g.ops.items[i], "zeros");
    *ok = true;
    for (int k = 0; k < a->nin && *ok && reads; k++) *ok = finite_tensor(&a->in[k]);
    if (!*ok && !x->comm) return GW_OK;
    bool poison = x->poison;
    x->poison = false;
    gw_status st = run_op(x, i, dg);
    if (st == GW_OK) st = gw_copier_drain(x->copier, dg);
    x->poison = poison;
    GW_TRY(st);
    bool later = x->ops[i].what == GW_BOUND_NOTHING; /* its outputs come with its bucket */
    for (int k = 0; k < a->nout && *ok && !later; k++) *ok = finite_tensor(&a->out[k]);
    return GW_OK;
}

gw_status gw_exec_step_op(gw_exec *x, gw_oid i, gw_watch *w, int64_t micro, gw_diags *dg) {
    if (!w) return run_op(x, i, dg);
    if (w->bad != GW_NONE && !x->comm) return GW_OK; /* the first is found */
    bool ok = true;
    GW_TRY(run_op_checked(x, i, &ok, dg));
    if (!ok && w->bad == GW_NONE) *w = (gw_watch){i, micro};
    return GW_OK;
}

/* ---- segments ---- */

static void segment_bounds(const gw_exec *x, gw_segment seg, gw_oid *first, gw_oid *end) {
    switch (seg) {
    case GW_SEG_PRE:
        *first = 0;
        *end = x->loop_first;
        break;
    case GW_SEG_LOOP:
        *first = x->loop_first;
        *end = x->loop_end;
        break;
    case GW_SEG_POST:
        *first = x->loop_end;
        *end = (gw_oid)x->g.ops.count;
        break;
    }
}

/* What is done before a segment; is this run of the loop the last of its step? */
static bool begin_segment(gw_exec *x, gw_segment seg) {
    bool trains = x->g.micro_batches > 0;
    switch (seg) {
    case GW_SEG_PRE:
        x->epoch_ns = gw_clock_ns();
        x->micro = 0;
        if (trains) gw_exec_say(x, "the start of the step");
        return true;
    case GW_SEG_POST:
        if (trains) gw_exec_say(x, "the optimizer");
        return true;
    case GW_SEG_LOOP: break;
    }
    if (!x->stages) gw_exec_say(x, "micro-batch %lld", (long long)x->micro);
    return ++x->micro == x->g.micro_batches || x->g.micro_batches == 0;
}

/* A step-rate op of the loop runs in the last micro-batch only. */
static bool sits_out(gw_exec *x, gw_segment seg, gw_oid i, bool last) {
    if (seg != GW_SEG_LOOP || last || x->g.ops.items[i].rate == GW_RATE_MB) return false;
    x->ops[i].ns = 0;
    x->ops[i].start_ns = gw_clock_ns() - x->epoch_ns;
    return true;
}

/* A pipeline's list has several micro-batches, and only one set of inputs can be written before. */
static gw_status run_list(gw_exec *x, gw_watch *w, gw_diags *dg) {
    if (x->g.micro_batches > 1)
        gw_panic("the micro-batches of a pipeline run together: gw_exec_run_all");
    return gw_stages_run(x, 0, NULL, w, dg);
}

static gw_status run_segment(gw_exec *x, gw_segment seg, bool last, gw_watch *w, gw_diags *dg) {
    gw_oid first = 0, end = 0;
    segment_bounds(x, seg, &first, &end);
    if (seg == GW_SEG_PRE) GW_TRY(gw_copier_begin(x->copier, dg));
    if (seg == GW_SEG_LOOP && x->stages) return run_list(x, w, dg);
    int64_t micro = seg == GW_SEG_LOOP ? x->micro - 1 : -1;
    for (gw_oid i = first; i < end; i++)
        if (!sits_out(x, seg, i, last)) GW_TRY(gw_exec_step_op(x, i, w, micro, dg));
    GW_TRY(gw_copier_drain(x->copier, dg));
    if (seg == GW_SEG_POST) gw_exec_say(x, "%s", "");
    return GW_OK;
}

gw_status gw_exec_run(gw_exec *x, gw_segment seg, gw_diags *dg) {
    bool last = begin_segment(x, seg);
    return run_segment(x, seg, last, NULL, dg);
}

gw_status gw_exec_run_loop(gw_exec *x, bool last, gw_diags *dg) {
    (void)begin_segment(x, GW_SEG_LOOP);
    return run_segment(x, GW_SEG_LOOP, last, NULL, dg);
}

gw_status gw_exec_run_checked(gw_exec *x, gw_segment seg, gw_oid *bad, gw_diags *dg) {
    gw_watch w = {GW_NONE, -1};
    bool last = begin_segment(x, seg);
    gw_status st = run_segment(x, seg, last, &w, dg);
    *bad = w.bad;
    return st;
}

/* ---- all micro-batches ---- */

static gw_status run_loops(gw_exec *x, int64_t count, const gw_exec_loop *l, gw_watch *w,
                           gw_diags *dg) {
    for (int64_t m = 0; m < count && (!w || w->bad == GW_NONE || x->comm); m++) {
        if (l && l->feed) GW_TRY(l->feed(l->user, x, m, dg));
        (void)begin_segment(x, GW_SEG_LOOP);
        GW_TRY(run_segment(x, GW_SEG_LOOP, m == count - 1, w, dg));
        if (l && l->ran) l->ran(l->user, x, m, x->loop_first, x->loop_end);
    }
    return GW_OK;
}

static gw_status run_all(gw_exec *x, int64_t count, const gw_exec_loop *l, gw_watch *w,
                         gw_diags *dg) {
    if (!x->stages) return run_loops(x, count, l, w, dg);
    int64_t m = x->g.micro_batches;
    if (m > 0 && count != m)
        gw_panic("%lld micro-batches of a pipeline whose step has %lld", (long long)count,
                 (long long)m);
    for (int64_t i = 0; i < (m ? 1 : count); i++) GW_TRY(gw_stages_run(x, i, l, w, dg));
    return GW_OK;
}

gw_status gw_exec_run_all(gw_exec *x, int64_t count, const gw_exec_loop *l, gw_diags *dg) {
    GW_TRY(run_all(x, count, l, NULL, dg));
    if (x->g.micro_batches == 0) gw_exec_say(x, "%s", ""); /* no optimizer follows that ends it */
    return GW_OK;
}

gw_status gw_exec_run_all_checked(gw_exec *x, int64_t count, const gw_exec_loop *l, gw_oid *bad,
                                  int64_t *micro, gw_diags *dg) {
    gw_watch w = {GW_NONE, -1};
    gw_status st = run_all(x, count, l, &w, dg);
    *bad = w.bad;
    *micro = w.micro;
    return st;
}

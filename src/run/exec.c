// SPDX-License-Identifier: Apache-2.0
// Running a placed program: bind once, then walk the ops.
//
// Everything that can be decided before the first step is: each op's kernel is chosen, its tensors
// are bound to fixed addresses in the arena, its library objects are made, and its scratch is a
// value of the program. What remains in the step is a loop over ops that calls `launch`. Our own
// code allocates nothing there.
//
// Two executors can share memory: a validation program takes the parameters of the training program
// by name and works in the bytes of its temporaries, which are free between steps.
//
// With `poison` every value is overwritten with NaN when its life ends, so that a read after the
// end of a life turns into a NaN in the loss instead of a plausible number.
#include "run/exec.h"

#include <math.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/map.h"   /* gw_smap */
#include "base/num.h"   /* gw_bf16 */
#include "base/panic.h" /* gw_panic, GW_ASSERT */
#include "pass/pass.h"  /* gw_lives, gw_graph_loop */
#include "run/memory.h" /* gw_region */

typedef struct bound_op {
    const gw_kernel *kernel;
    void *state;
    gw_kargs args;
    int64_t ns, start_ns;
} bound_op;

struct gw_exec {
    gw_graph g;
    gw_arena mem;
    gw_region own;
    gw_region weights;   /* parameters of a forward program that owns them */
    char *base;          /* the arena in use */
    int64_t bound_bytes; /* one past the last byte any value was bound to */
    int64_t persistent;  /* bytes of parameters and states at the bottom */
    void **param;        /* [values]: foreign bytes of parameters, or NULL */
    bound_op *ops;
    gw_oid loop_first, loop_end;
    gw_smap names;
    bool poison;
    gw_lives lives;
    int64_t epoch_ns; /* start of the latest PRE */
};

int64_t gw_exec_workspace(const gw_graph *g, const gw_op *o, const void *machine) {
    const gw_machine *m = machine;
    return gw_kernel_choose(g, o, m)->workspace(g, o, m);
}

const gw_graph *gw_exec_graph(const gw_exec *x) { return &x->g; }

void *gw_exec_ptr(const gw_exec *x, gw_vid v) {
    gw_vid root = gw_value_root(&x->g, v);
    if (x->param[root]) return x->param[root];
    int64_t offset = x->g.values.items[root].offset;
    return offset < 0 ? NULL : x->base + offset;
}

static void *bind_ptr(void *user, gw_vid v) { return gw_exec_ptr(user, v); }

gw_vid gw_exec_find(const gw_exec *x, const char *name) {
    uint32_t v = GW_NONE;
    return gw_smap_find_c(&x->names, name, &v) ? v : GW_NONE;
}

gw_tensor gw_exec_tensor(const gw_exec *x, gw_vid v) {
    const gw_type *t = gw_type_of(&x->g, v);
    gw_tensor r = {.data = gw_exec_ptr(x, v), .dtype = (gw_dtype)t->dtype, .ndim = t->ndim};
    r.elems = gw_type_local_elems(t, &x->g.mesh, 0);
    for (int i = 0; i < t->ndim; i++) r.dims[i] = gw_type_local_dim(t, i, &x->g.mesh, 0);
    return r;
}

static void *named_bytes(const gw_exec *x, const char *name, int64_t n) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return NULL;
    void *p = gw_exec_ptr(x, v);
    if (p && gw_type_local_bytes(gw_type_of(&x->g, v), &x->g.mesh, 0) != n)
        gw_panic("'%s' has %lld bytes, not %lld", name,
                 (long long)gw_type_local_bytes(gw_type_of(&x->g, v), &x->g.mesh, 0), (long long)n);
    return p;
}

bool gw_exec_write(gw_exec *x, const char *name, const void *bytes, int64_t n) {
    void *p = named_bytes(x, name, n);
    if (p) memcpy(p, bytes, (size_t)n);
    return p != NULL;
}

bool gw_exec_read(const gw_exec *x, const char *name, void *bytes, int64_t n) {
    const void *p = named_bytes(x, name, n);
    if (p) memcpy(bytes, p, (size_t)n);
    return p != NULL;
}

/* ---- making one ---- */

static gw_status bind_params(gw_exec *x, const gw_exec *from, gw_diags *dg) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        if (!from || p->def != GW_NONE || p->role != GW_ROLE_PARAM) continue;
        const char *name = gw_graph_str(&x->g, p->name);
        gw_vid src = gw_exec_find(from, name);
        if (src == GW_NONE)
            return GW_FAIL(dg, GW_ERR_CONFIG, "exec-param",
                           "the other program has no parameter '%s'", name);
        const gw_type *a = &p->type, *b = gw_type_of(&from->g, src);
        if (a->dtype != b->dtype || !gw_type_same_dims(a, b))
            gw_panic("parameter '%s' has another type in the other program", name);
        x->param[v] = gw_exec_ptr(from, src);
    }
    return GW_OK;
}

/* Parameters that the program does not place and no other executor holds: one region, one after
 * another. */
static gw_status reserve_params(gw_exec *x, gw_diags *dg) {
    for (int pass = 0; pass < 2; pass++) {
        int64_t at = 0;
        for (int64_t v = 0; v < x->g.values.count; v++) {
            const gw_value *p = &x->g.values.items[v];
            if (p->def != GW_NONE || p->role != GW_ROLE_PARAM || p->offset >= 0) continue;
            if (pass == 1) x->param[v] = (char *)x->weights.data + at;
            at += (gw_type_local_bytes(&p->type, &x->g.mesh, 0) + 63) / 64 * 64;
        }
        if (pass == 0 && at > 0) GW_TRY(gw_region_reserve(&x->weights, at, "the weights", dg));
    }
    return GW_OK;
}

static void index_names(gw_exec *x) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        if (p->name == 0 || p->role == GW_ROLE_GRAD) continue;
        if (!gw_smap_put_c(&x->names, gw_graph_str(&x->g, p->name), (uint32_t)v))
            gw_panic("two values of the program are called '%s'", gw_graph_str(&x->g, p->name));
    }
}

static void measure_bounds(gw_exec *x) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        if (p->offset < 0 || x->param[gw_value_root(&x->g, (gw_vid)v)]) continue;
        int64_t end = p->offset + gw_type_local_bytes(&p->type, &x->g.mesh, 0);
        end = (end + 63) / 64 * 64;
        x->bound_bytes = GW_MAX(x->bound_bytes, end);
        bool keeps = p->def == GW_NONE && (p->role == GW_ROLE_PARAM || p->role == GW_ROLE_STATE);
        if (keeps) x->persistent = GW_MAX(x->persistent, end);
    }
}

static gw_status reserve(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    int64_t need = x->g.arena_bytes[GW_MEM_DEVICE];
    if (o->overlay && o->overlay_bytes >= need) {
        x->base = o->overlay;
        return GW_OK;
    }
    GW_TRY(gw_region_reserve(&x->own, need, "the arena", dg));
    x->base = x->own.data;
    return GW_OK;
}

static gw_status prepare_ops(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    x->ops = gw_arena_new(&x->mem, bound_op, x->g.ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)x->g.ops.count; i++) {
        const gw_op *op = &x->g.ops.items[i];
        bound_op *b = &x->ops[i];
        gw_tensor *in = gw_arena_new(&x->mem, gw_tensor, op->nin + 1);
        gw_tensor *out = gw_arena_new(&x->mem, gw_tensor, op->nout + 1);
        gw_kargs_bind(&b->args, &x->g, op, in, out, bind_ptr, x, 0);
        b->args.threads = o->machine.threads;
        if (op->work != GW_NONE) {
            b->args.work = gw_exec_ptr(x, op->work);
            b->args.work_bytes = gw_type_local_bytes(gw_type_of(&x->g, op->work), &x->g.mesh, 0);
        }
        const gw_kernel *k = gw_kernel_choose(&x->g, op, &o->machine);
        if (k->workspace(&x->g, op, &o->machine) > b->args.work_bytes)
            gw_panic(
                "%s of %s has less workspace than its kernel %s needs: the program was placed for "
                "another machine",
                gw_op_def(&x->g, op)->name, gw_graph_str(&x->g, op->scope), k->name);
        gw_status st = k->prepare(&b->args, &x->mem, &b->state, dg);
        if (st != GW_OK) {
            gw_diag_frame(dg, "preparing %s (kernel %s) of %s", gw_op_def(&x->g, op)->name, k->name,
                          gw_graph_str(&x->g, op->scope));
            return st;
        }
        b->kernel = k;
    }
    return GW_OK;
}

gw_status gw_exec_new(gw_exec **out, const gw_graph *program, const gw_exec_opts *opts,
                      gw_diags *dg) {
    gw_exec *x = gw_mem_zalloc(sizeof *x);
    x->own.fd = x->weights.fd = -1;
    gw_graph_dup(&x->g, program);
    gw_graph_loop(&x->g, &x->loop_first, &x->loop_end);
    x->param = gw_arena_new(&x->mem, void *, x->g.values.count + 1);
    index_names(x);
#ifdef GW_DEBUG
    x->poison = true;
#else
    x->poison = opts->poison;
#endif
    if (x->poison) gw_lives_of(&x->lives, &x->g, &x->mem);
    gw_status st = opts->own_params ? reserve_params(x, dg) : bind_params(x, opts->params_from, dg);
    if (st == GW_OK) measure_bounds(x);
    if (st == GW_OK) st = reserve(x, opts, dg);
    if (st == GW_OK) st = prepare_ops(x, opts, dg);
    if (st != GW_OK) {
        gw_exec_free(x);
        return st;
    }
    *out = x;
    return GW_OK;
}

void gw_exec_free(gw_exec *x) {
    if (!x) return;
    for (int64_t i = 0; x->ops && i < x->g.ops.count; i++)
        if (x->ops[i].kernel) x->ops[i].kernel->release(x->ops[i].state);
    gw_region_release(&x->own);
    gw_region_release(&x->weights);
    gw_smap_release(&x->names);
    gw_graph_release(&x->g);
    gw_arena_release(&x->mem);
    gw_mem_free(x);
}

/* ---- running ---- */

static void poison_ended(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    for (int k = 0; k < (int)o->nin + (int)o->nout; k++) {
        gw_vid v = k < (int)o->nin ? gw_op_in(&x->g, o, k) : gw_op_out(&x->g, o, k - (int)o->nin);
        if (v == GW_NONE) continue;
        gw_vid root = gw_value_root(&x->g, v);
        const gw_value *r = &x->g.values.items[root];
        if (x->lives.persistent[root] || x->lives.last[root] != (int32_t)i) continue;
        /* A step-rate input of the loop is written once and read in every iteration. */
        if (r->rate == GW_RATE_STEP && i >= x->loop_first && i < x->loop_end) continue;
        void *p = gw_exec_ptr(x, root);
        if (p) memset(p, 0xff, (size_t)gw_type_local_bytes(&r->type, &x->g.mesh, 0));
    }
}

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

static gw_status run_op(gw_exec *x, gw_oid i, gw_diags *dg) {
    bound_op *b = &x->ops[i];
    int64_t t0 = gw_clock_ns();
    gw_status st = b->kernel->launch(b->state, &b->args, dg);
    b->ns = gw_clock_ns() - t0;
    b->start_ns = t0 - x->epoch_ns;
    if (st != GW_OK)
        gw_diag_frame(dg, "running %s (kernel %s) of %s",
                      gw_op_def(&x->g, &x->g.ops.items[i])->name, b->kernel->name,
                      gw_graph_str(&x->g, x->g.ops.items[i].scope));
    else if (x->poison)
        poison_ended(x, i);
    return st;
}

gw_status gw_exec_run(gw_exec *x, gw_segment seg, gw_diags *dg) {
    gw_oid first = 0, end = 0;
    segment_bounds(x, seg, &first, &end);
    if (seg == GW_SEG_PRE) x->epoch_ns = gw_clock_ns();
    for (gw_oid i = first; i < end; i++) GW_TRY(run_op(x, i, dg));
    return GW_OK;
}

static bool finite_tensor(const gw_tensor *t) {
    if (!t->data) return true;
    for (int64_t i = 0; i < t->elems; i++) {
        float f = 0;
        switch (t->dtype) {
        case GW_F32: f = ((const float *)t->data)[i]; break;
        case GW_BF16: f = gw_bf16_to_f32(((const gw_bf16 *)t->data)[i]); break;
        case GW_F16: f = gw_fp16_to_f32(((const gw_fp16 *)t->data)[i]); break;
        case GW_F64: f = isfinite(((const double *)t->data)[i]) ? 0 : NAN; break;
        case GW_I32:
        case GW_I64:
        case GW_U8:
        case GW_DTYPE_COUNT: return true;
        }
        if (!isfinite(f)) return false;
    }
    return true;
}

gw_status gw_exec_run_checked(gw_exec *x, gw_segment seg, gw_oid *bad, gw_diags *dg) {
    gw_oid first = 0, end = 0;
    segment_bounds(x, seg, &first, &end);
    *bad = GW_NONE;
    for (gw_oid i = first; i < end; i++) {
        const gw_kargs *a = &x->ops[i].args;
        bool was_finite = true;
        for (int k = 0; k < a->nin && was_finite; k++) was_finite = finite_tensor(&a->in[k]);
        if (!was_finite) {
            *bad = i;
            return GW_OK;
        }
        bool poison = x->poison;
        x->poison = false;
        gw_status st = run_op(x, i, dg);
        x->poison = poison;
        GW_TRY(st);
        for (int k = 0; k < a->nout; k++)
            if (!finite_tensor(&a->out[k])) {
                *bad = i;
                return GW_OK;
            }
    }
    return GW_OK;
}

/* ---- reading it ---- */

int64_t gw_exec_arena_bytes(const gw_exec *x) { return x->own.data ? x->bound_bytes : 0; }

void *gw_exec_arena(const gw_exec *x, int64_t *bytes) {
    *bytes = x->g.arena_bytes[GW_MEM_DEVICE];
    return x->base;
}

void *gw_exec_temporaries(const gw_exec *x, int64_t *bytes) {
    *bytes = x->g.arena_bytes[GW_MEM_DEVICE] - x->persistent;
    return x->base + x->persistent;
}

int64_t gw_exec_op_ns(const gw_exec *x, gw_oid o) { return x->ops[o].ns; }
int64_t gw_exec_op_start_ns(const gw_exec *x, gw_oid o) { return x->ops[o].start_ns; }
const gw_kernel *gw_exec_kernel(const gw_exec *x, gw_oid o) { return x->ops[o].kernel; }

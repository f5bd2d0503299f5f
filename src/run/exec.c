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
// Views. `slice`, a reduce-scatter and an all-gather may work in place: a flat value whose chain of
// ties begins at a whole one is this rank's part of it, so its address is the whole's plus the
// offset of the part, and a gather's whole is the address of the root itself. A slice that is such
// a view runs nothing.
//
// Collectives of one bucket are handed to src/comm together, where the last of them stands. The
// calls block: on a CPU the arithmetic of a collective is done by the rank's compute threads.
//
// Copies between memory kinds go to a thread of their own (run/exec_copy.c). The ops that need what
// it brings wait for it, and every segment ends with nothing under way.
//
// With `poison` every value is overwritten with NaN when its life ends, so that a read after the
// end of a life turns into a NaN in the loss instead of a plausible number.
#include "run/exec.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"       /* gw_clock_ns */
#include "base/fp8.h"         /* gw_f8e4m3_to_f32 */
#include "base/map.h"         /* gw_smap */
#include "base/num.h"         /* gw_bf16 */
#include "base/panic.h"       /* gw_panic, GW_ASSERT */
#include "pass/pass.h"        /* gw_lives, gw_graph_loop */
#include "run/exec_experts.h" /* gw_op_is_experts_ep */
#include "run/memory.h"       /* gw_region */

/* What an op is to the loop over ops. */
typedef enum op_kind {
    OP_KERNEL,
    OP_COLLECTIVE, /* launches its bucket */
    OP_COPY,       /* is handed to the copy thread */
    OP_NOTHING,    /* a collective whose bucket a later op launches; a slice that is a view */
} op_kind;

typedef struct bound_op {
    op_kind what;
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
    gw_comm *comm;
    int64_t rank;
    int threads;
    gw_buckets buckets;
    gw_copier *copier;        /* NULL: nothing lies on host or disk */
    int share, share_weights; /* handles of what the peers can read; -1: none */
    int64_t micro;            /* runs of the loop since PRE */
    uint64_t alive;           /* ops begun */
    gw_smap names;
    bool poison;
    gw_lives lives;
    int64_t epoch_ns; /* start of the latest PRE */
};

const gw_graph *gw_exec_graph(const gw_exec *x) { return &x->g; }

int64_t gw_exec_rank(const gw_exec *x) { return x->rank; }

void *gw_exec_ptr(const gw_exec *x, gw_vid v) {
    gw_vid root = gw_value_root(&x->g, v);
    int64_t offset = x->g.values.items[root].offset;
    gw_mem mem = (gw_mem)x->g.values.items[root].mem;
    char *arena = mem == GW_MEM_DEVICE ? x->base : gw_copier_base(x->copier, mem);
    char *base = x->param[root] ? x->param[root] : offset < 0 || !arena ? NULL : arena + offset;
    return base ? base + gw_value_view_bytes(&x->g, v, x->rank) : NULL;
}

static int64_t bytes_of(const gw_exec *x, gw_vid v) {
    return gw_type_local_bytes(gw_type_of(&x->g, v), &x->g.mesh, x->rank);
}

static void *bind_ptr(void *user, gw_vid v) { return gw_exec_ptr(user, v); }

gw_vid gw_exec_find(const gw_exec *x, const char *name) {
    uint32_t v = GW_NONE;
    return gw_smap_find_c(&x->names, name, &v) ? v : GW_NONE;
}

gw_tensor gw_exec_tensor(const gw_exec *x, gw_vid v) {
    return gw_tensor_of(&x->g, v, gw_exec_ptr(x, v), x->rank);
}

static void *named_bytes(const gw_exec *x, const char *name, int64_t n) {
    gw_vid v = gw_exec_find(x, name);
    if (v == GW_NONE) return NULL;
    void *p = gw_exec_ptr(x, v);
    if (p && bytes_of(x, v) != n)
        gw_panic("'%s' has %lld bytes, not %lld", name, (long long)bytes_of(x, v), (long long)n);
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
        bool same = a->dtype == b->dtype && a->flat == b->flat && a->flat_axes == b->flat_axes &&
                    gw_type_same_dims(a, b) && gw_type_same_cuts(a, b);
        if (!same) gw_panic("parameter '%s' has another type in the other program", name);
        x->param[v] = gw_exec_ptr(from, src);
    }
    return GW_OK;
}

static bool advances(const gw_graph *g, gw_vid v) {
    for (int64_t i = 0; i < g->states.count; i++)
        if (g->states.items[i].start == v) return true;
    return false;
}

/* State that another program carries and this one only reads (running statistics, in validation):
 * its bytes, where that program has state of the name. */
static void bind_states(gw_exec *x, const gw_exec *from) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        if (p->def != GW_NONE || p->role != GW_ROLE_STATE || advances(&x->g, (gw_vid)v)) continue;
        const char *name = gw_graph_str(&x->g, p->name);
        gw_vid src = gw_exec_find(from, name);
        if (src == GW_NONE || from->g.values.items[src].role != GW_ROLE_STATE) continue;
        const gw_type *a = &p->type, *b = gw_type_of(&from->g, src);
        if (a->dtype != b->dtype || !gw_type_same_dims(a, b))
            gw_panic("state '%s' has another type in the other program", name);
        x->param[v] = gw_exec_ptr(from, src);
    }
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

/* By rank 0's sizes, which are the largest: offsets and arena are the same on every rank. */
static void measure_bounds(gw_exec *x) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        gw_vid root = gw_value_root(&x->g, (gw_vid)v);
        if (p->offset < 0 || x->param[root] || p->mem != GW_MEM_DEVICE) continue;
        if (p->type.flat && !x->g.values.items[root].type.flat) continue; /* inside the whole */
        int64_t end = p->offset + gw_type_local_bytes(&p->type, &x->g.mesh, 0);
        end = (end + 63) / 64 * 64;
        x->bound_bytes = GW_MAX(x->bound_bytes, end);
        bool keeps = p->def == GW_NONE && (p->role == GW_ROLE_PARAM || p->role == GW_ROLE_STATE);
        if (keeps) x->persistent = GW_MAX(x->persistent, end);
    }
}

/* Nothing is reserved anywhere before every rank has found room for all ranks of its host. */
static gw_status look_for_room(const gw_exec *x, int64_t need, gw_diags *dg) {
    if (!x->comm) return GW_OK;
    int64_t here = gw_comm_machine(x->comm)->per_host;
    if (here <= 0) here = gw_comm_size(x->comm);
    gw_status st = gw_memory_check(need, (int)here, "the arenas", dg);
    return gw_exec_agree(x->comm, st, NULL, "looking for room", dg);
}

static gw_status share(gw_exec *x, const gw_region *r, int *handle, gw_diags *dg) {
    if (!x->comm || !r->data) return GW_OK;
    return gw_comm_share(x->comm, r->data, r->bytes, r->fd, handle, dg);
}

static gw_status reserve(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    int64_t need = x->g.arena_bytes[GW_MEM_DEVICE];
    if (o->overlay && o->overlay_bytes >= need) {
        x->base = o->overlay;
        return GW_OK;
    }
    GW_TRY(look_for_room(x, need, dg));
    gw_status st = gw_region_reserve(&x->own, need, "the arena", dg);
    GW_TRY(gw_exec_agree(x->comm, st, NULL, "reserving the arena", dg));
    x->base = x->own.data;
    return GW_OK;
}

/* Memory of other kinds, and the thread that fills and empties it. */
static gw_status make_copier(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    int64_t here = x->comm ? gw_comm_machine(x->comm)->per_host : 1;
    if (here <= 0) here = gw_comm_size(x->comm);
    gw_status st = gw_copier_new(&x->copier, &x->g, x->rank, o->offload_dir, (int)here, dg);
    return gw_exec_agree(x->comm, st, NULL, "reserving memory for offloaded values", dg);
}

/* ---- binding ops ---- */

static void bind_copy(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    gw_vid in = gw_op_in(&x->g, o, 0), out = gw_op_out(&x->g, o, 0);
    bool to_device = x->g.values.items[out].mem == GW_MEM_DEVICE;
    x->ops[i].what = OP_COPY;
    gw_copier_bind(x->copier, i, gw_exec_ptr(x, to_device ? out : in),
                   gw_exec_ptr(x, to_device ? in : out), bytes_of(x, in));
}

static void bind_bucket(gw_exec *x, gw_oid i) {
    gw_bucket *k = &x->buckets.items[x->buckets.of[i]];
    if (k->launch != i) {
        x->ops[i].what = OP_NOTHING;
        return;
    }
    x->ops[i].what = OP_COLLECTIVE;
    gw_bucket_bind(k, &x->g, bind_ptr, x, x->ops[i].args.work);
}

/* The executor's loop treats it; a kernel is left out. */
static bool is_special(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    if (gw_op_is_collective(&x->g, o)) {
        bind_bucket(x, i);
        return true;
    }
    if (gw_op_is_copy(&x->g, o)) {
        bind_copy(x, i);
        return true;
    }
    if (!gw_op_is(&x->g, o, "slice")) return false;
    gw_vid in = gw_value_root(&x->g, gw_op_in(&x->g, o, 0));
    if (gw_value_root(&x->g, gw_op_out(&x->g, o, 0)) != in) return false;
    x->ops[i].what = OP_NOTHING;
    return true;
}

static gw_status check_workspace(const gw_exec *x, const gw_exec_opts *o, gw_oid i,
                                 const gw_kernel *k) {
    const gw_op *op = &x->g.ops.items[i];
    int64_t need = k->workspace(&x->g, op, &o->machine);
    if (x->ops[i].what == OP_COLLECTIVE)
        need = gw_bucket_work_bytes(&x->buckets.items[x->buckets.of[i]], &x->g.mesh,
                                    gw_comm_machine(x->comm));
    if (need <= x->ops[i].args.work_bytes) return GW_OK;
    gw_panic("%s of %s has less workspace than its kernel %s needs: the program was placed for "
             "another machine",
             gw_op_def(&x->g, op)->name, gw_graph_str(&x->g, op->scope), k->name);
}

static gw_status prepare_ops(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    x->ops = gw_arena_new(&x->mem, bound_op, x->g.ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)x->g.ops.count; i++) {
        const gw_op *op = &x->g.ops.items[i];
        bound_op *b = &x->ops[i];
        gw_tensor *in = gw_arena_new(&x->mem, gw_tensor, op->nin + 1);
        gw_tensor *out = gw_arena_new(&x->mem, gw_tensor, op->nout + 1);
        gw_kargs_bind(&b->args, &x->g, op, in, out, bind_ptr, x, x->rank);
        b->args.threads = o->machine.threads;
        if (op->work != GW_NONE) {
            b->args.work = gw_exec_ptr(x, op->work);
            b->args.work_bytes = bytes_of(x, op->work);
        }
        const gw_kernel *k = &gw_kernel_comm;
        if (!is_special(x, i)) k = gw_kernel_choose(&x->g, op, &o->machine);
        if (b->what == OP_COPY) k = &gw_kernel_copy;
        bool exchanged = gw_op_is_experts_ep(&x->g, op);
        if (exchanged) k = gw_experts_ep_kernel(&o->machine);
        GW_TRY(check_workspace(x, o, i, k));
        gw_status st = k->prepare(&b->args, &x->mem, &b->state, dg);
        if (st != GW_OK) {
            gw_diag_frame(dg, "preparing %s (kernel %s) of %s", gw_op_def(&x->g, op)->name, k->name,
                          gw_graph_str(&x->g, op->scope));
            return st;
        }
        if (exchanged) gw_experts_ep_join(b->state, x->comm);
        b->kernel = k;
    }
    return GW_OK;
}

/* A program of several ranks needs its peers: without them it can be planned, not run. */
static gw_status find_buckets(gw_exec *x, gw_diags *dg) {
    gw_coll_machine alone = gw_coll_machine_local(x->threads);
    const gw_coll_machine *m = x->comm ? gw_comm_machine(x->comm) : &alone;
    gw_buckets_of(&x->buckets, &x->g, x->rank, m, &x->mem);
    if (x->buckets.n == 0 || x->comm) return GW_OK;
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "exec-ranks",
                   "the program is one of %lld ranks, and this process is alone",
                   (long long)gw_mesh_ranks(&x->g.mesh));
}

gw_status gw_exec_new(gw_exec **out, const gw_graph *program, const gw_exec_opts *opts,
                      gw_diags *dg) {
    gw_exec *x = gw_mem_zalloc(sizeof *x);
    x->own.fd = x->weights.fd = -1;
    x->share = x->share_weights = -1;
    x->comm = opts->comm;
    x->rank = opts->rank;
    x->threads = opts->machine.threads;
    gw_graph_dup(&x->g, program);
    GW_ASSERT(!x->comm || gw_mesh_ranks(&x->g.mesh) == 1 ||
              gw_mesh_ranks(&x->g.mesh) == gw_comm_size(x->comm));
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
    if (st == GW_OK && opts->params_from) bind_states(x, opts->params_from);
    if (st == GW_OK) measure_bounds(x);
    if (st == GW_OK) st = reserve(x, opts, dg);
    if (st == GW_OK) st = make_copier(x, opts, dg);
    if (st == GW_OK) st = share(x, &x->weights, &x->share_weights, dg);
    if (st == GW_OK) st = share(x, &x->own, &x->share, dg);
    if (st == GW_OK) st = find_buckets(x, dg);
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
    if (x->share >= 0) gw_comm_unshare(x->comm, x->share);
    if (x->share_weights >= 0) gw_comm_unshare(x->comm, x->share_weights);
    gw_copier_free(x->copier);
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
        if (r->mem != GW_MEM_DEVICE) continue;
        /* A step-rate input of the loop is written once and read in every iteration. */
        if (r->rate == GW_RATE_STEP && i >= x->loop_first && i < x->loop_end) continue;
        void *p = gw_exec_ptr(x, root);
        if (p) memset(p, 0xff, (size_t)bytes_of(x, root));
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

static gw_status launch(gw_exec *x, gw_oid i, gw_diags *dg) {
    bound_op *b = &x->ops[i];
    GW_TRY(gw_copier_before(x->copier, i, dg));
    switch (b->what) {
    case OP_NOTHING: return GW_OK;
    case OP_COPY: gw_copier_issue(x->copier, i); return GW_OK;
    case OP_COLLECTIVE:
        return gw_bucket_run(x->comm, &x->buckets.items[x->buckets.of[i]], b->args.work, x->threads,
                             dg);
    case OP_KERNEL: break;
    }
    return b->kernel->launch(b->state, &b->args, dg);
}

static gw_status run_op(gw_exec *x, gw_oid i, gw_diags *dg) {
    bound_op *b = &x->ops[i];
    if (x->comm) gw_comm_alive(x->comm, ++x->alive);
    int64_t t0 = gw_clock_ns();
    gw_status st = launch(x, i, dg);
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

/* What is done before a segment; is this run of the loop the last of its step? */
static bool begin_segment(gw_exec *x, gw_segment seg) {
    if (seg == GW_SEG_PRE) {
        x->epoch_ns = gw_clock_ns();
        x->micro = 0;
    }
    if (seg != GW_SEG_LOOP) return true;
    return ++x->micro == x->g.micro_batches || x->g.micro_batches == 0;
}

/* A step-rate op of the loop runs in the last micro-batch only. */
static bool sits_out(gw_exec *x, gw_segment seg, gw_oid i, bool last) {
    if (seg != GW_SEG_LOOP || last || x->g.ops.items[i].rate == GW_RATE_MB) return false;
    x->ops[i].ns = 0;
    x->ops[i].start_ns = gw_clock_ns() - x->epoch_ns;
    return true;
}

static gw_status run_segment(gw_exec *x, gw_segment seg, bool last, gw_diags *dg) {
    gw_oid first = 0, end = 0;
    segment_bounds(x, seg, &first, &end);
    if (seg == GW_SEG_PRE) GW_TRY(gw_copier_begin(x->copier, dg));
    for (gw_oid i = first; i < end; i++)
        if (!sits_out(x, seg, i, last)) GW_TRY(run_op(x, i, dg));
    return gw_copier_drain(x->copier, dg);
}

gw_status gw_exec_run(gw_exec *x, gw_segment seg, gw_diags *dg) {
    bool last = begin_segment(x, seg);
    return run_segment(x, seg, last, dg);
}

gw_status gw_exec_run_loop(gw_exec *x, bool last, gw_diags *dg) {
    (void)begin_segment(x, GW_SEG_LOOP);
    return run_segment(x, GW_SEG_LOOP, last, dg);
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
    bool later = x->ops[i].what == OP_NOTHING; /* its outputs come with its bucket */
    for (int k = 0; k < a->nout && *ok && !later; k++) *ok = finite_tensor(&a->out[k]);
    return GW_OK;
}

gw_status gw_exec_run_checked(gw_exec *x, gw_segment seg, gw_oid *bad, gw_diags *dg) {
    gw_oid first = 0, end = 0;
    segment_bounds(x, seg, &first, &end);
    bool last = begin_segment(x, seg);
    if (seg == GW_SEG_PRE) GW_TRY(gw_copier_begin(x->copier, dg));
    *bad = GW_NONE;
    for (gw_oid i = first; i < end && (*bad == GW_NONE || x->comm); i++) {
        bool ok = true;
        if (sits_out(x, seg, i, last)) continue;
        GW_TRY(run_op_checked(x, i, &ok, dg));
        if (!ok && *bad == GW_NONE) *bad = i;
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

const gw_buckets *gw_exec_buckets(const gw_exec *x) { return &x->buckets; }
int64_t gw_exec_epoch_ns(const gw_exec *x) { return x->epoch_ns; }
const gw_copier *gw_exec_copier(const gw_exec *x) { return x->copier; }

int64_t gw_exec_op_ns(const gw_exec *x, gw_oid o) {
    int64_t start = 0, ns = x->ops[o].ns;
    if (x->ops[o].what == OP_COPY) gw_copier_times(x->copier, o, &start, &ns);
    return ns;
}

int64_t gw_exec_op_start_ns(const gw_exec *x, gw_oid o) {
    int64_t start = 0, ns = 0;
    if (x->ops[o].what != OP_COPY) return x->ops[o].start_ns;
    gw_copier_times(x->copier, o, &start, &ns);
    return start - x->epoch_ns;
}

const gw_kernel *gw_exec_kernel(const gw_exec *x, gw_oid o) { return x->ops[o].kernel; }
const void *gw_exec_op_state(const gw_exec *x, gw_oid o) { return x->ops[o].state; }

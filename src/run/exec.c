// SPDX-License-Identifier: Apache-2.0
// Making an executor: bind once, so that a step only walks the ops (exec_run.c, exec_stages.c).
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
// What a pipeline's stage carries from one piece of its loop to another has several places
// (ir/flow.h). It is bound to the first of them here, and moved from action to action.
//
// Ranks of a pipeline have programs, and arenas, of their own: each may or may not fit into memory
// that it borrows. So whatever all ranks do together here, they do whether they need it or not.
#include <string.h>

#include "base/panic.h"       /* gw_panic, GW_ASSERT */
#include "run/exec_experts.h" /* gw_op_is_experts_ep */
#include "run/exec_impl.h"    /* struct gw_exec */

const gw_graph *gw_exec_graph(const gw_exec *x) { return &x->g; }

int64_t gw_exec_rank(const gw_exec *x) { return x->rank; }

/* Does no piece read it? Then its bytes serve others before the last feed of a step. */
static bool is_idle_input(const gw_exec *x, gw_vid root) {
    const gw_value *v = &x->g.values.items[root];
    return v->def == GW_NONE && v->role == GW_ROLE_INPUT && v->rate == GW_RATE_MB &&
           x->flow.class_of[root] == 0;
}

/* Bytes from the first place of a carried value to that of the micro-batch under way; -1: it has
 * none to write into. */
static int64_t place_bytes(const gw_exec *x, gw_vid root) {
    const gw_flow *f = &x->flow;
    int32_t c = f->class_of[root];
    if (x->fed && is_idle_input(x, root)) return -1;
    if (c == 0 || x->now < 0) return 0;
    if (x->fed && f->first[c] < 0 && !x->fed[c]) return -1;
    return f->place[c * (int64_t)f->micro_batches + x->now] * gw_flow_stride(&x->g, root);
}

void *gw_exec_ptr(const gw_exec *x, gw_vid v) {
    gw_vid root = gw_value_root(&x->g, v);
    int64_t offset = x->g.values.items[root].offset, place = place_bytes(x, root);
    gw_mem mem = (gw_mem)x->g.values.items[root].mem;
    char *arena = mem == GW_MEM_DEVICE ? x->base : gw_copier_base(x->copier, mem);
    char *base = x->param[root] ? x->param[root] : offset < 0 || !arena ? NULL : arena + offset;
    return base && place >= 0 ? base + place + gw_value_view_bytes(&x->g, v, x->rank) : NULL;
}

int64_t gw_exec_local_bytes(const gw_exec *x, gw_vid v) {
    return gw_type_local_bytes(gw_type_of(&x->g, v), &x->g.mesh, x->rank);
}

void *gw_exec_bind_ptr(void *user, gw_vid v) { return gw_exec_ptr(user, v); }

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
    if (p && gw_exec_local_bytes(x, v) != n)
        gw_panic("'%s' has %lld bytes, not %lld", name, (long long)gw_exec_local_bytes(x, v),
                 (long long)n);
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

/* The ops of a bucket stand before the one that does it. */
static void find_changes(gw_exec *x) {
    bool *state = gw_arena_new(&x->mem, bool, x->g.values.count + 1);
    x->changes = gw_arena_new(&x->mem, bool, x->g.ops.count + 1);
    for (int64_t i = 0; i < x->g.states.count; i++)
        state[gw_value_root(&x->g, x->g.states.items[i].start)] = true;
    for (gw_oid i = 0; i < (gw_oid)x->g.ops.count; i++) {
        const gw_op *o = &x->g.ops.items[i];
        for (int k = 0; k < (int)o->nout; k++)
            x->changes[i] |= state[gw_value_root(&x->g, gw_op_out(&x->g, o, k))];
    }
}

/* By rank 0's sizes, which are the largest: offsets and arena are the same on every rank. */
static void measure_bounds(gw_exec *x) {
    for (int64_t v = 0; v < x->g.values.count; v++) {
        const gw_value *p = &x->g.values.items[v];
        gw_vid root = gw_value_root(&x->g, (gw_vid)v);
        if (p->offset < 0 || x->param[root] || p->mem != GW_MEM_DEVICE) continue;
        if (p->type.flat && !x->g.values.items[root].type.flat) continue; /* inside the whole */
        int64_t bytes = gw_type_local_bytes(&p->type, &x->g.mesh, 0);
        if (x->flow.class_of[root]) bytes = gw_flow_bytes(&x->flow, &x->g, root);
        int64_t end = (p->offset + bytes + 63) / 64 * 64;
        x->bound_bytes = GW_MAX(x->bound_bytes, end);
        bool keeps = p->def == GW_NONE && (p->role == GW_ROLE_PARAM || p->role == GW_ROLE_STATE);
        if (keeps) x->persistent = GW_MAX(x->persistent, end);
    }
}

/* What all ranks of this host need together. */
static gw_status need_of_host(const gw_exec *x, int64_t here, int64_t *need, gw_diags *dg) {
    int64_t size = gw_comm_size(x->comm), first = gw_comm_rank(x->comm) / here * here, sum = 0;
    int64_t *all = gw_mem_zalloc(sizeof *all * (size_t)size);
    gw_status st = gw_comm_all_gather(x->comm, need, sizeof *need, all, "looking for room", dg);
    for (int64_t r = first; r < GW_MIN(first + here, size); r++) sum += all[r];
    gw_mem_free(all);
    *need = sum;
    return st;
}

/* Nothing is reserved anywhere before every rank has found room for all ranks of its host. */
static gw_status look_for_room(const gw_exec *x, int64_t need, gw_diags *dg) {
    if (!x->comm) return GW_OK;
    int64_t here = gw_comm_machine(x->comm)->per_host;
    if (here <= 0) here = gw_comm_size(x->comm);
    if (x->pipelined) {
        GW_TRY(need_of_host(x, here, &need, dg));
        here = 1;
    }
    gw_status st = gw_memory_check(need, (int)here, "the arenas", dg);
    return gw_exec_agree(x->comm, st, NULL, "looking for room", dg);
}

static gw_status share(gw_exec *x, const gw_region *r, int *handle, gw_diags *dg) {
    if (!x->comm || (!r->data && !x->pipelined)) return GW_OK;
    return gw_comm_share(x->comm, r->data, r->data ? r->bytes : 0, r->data ? r->fd : -1, handle,
                         dg);
}

static gw_status reserve(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    int64_t need = x->g.arena_bytes[GW_MEM_DEVICE];
    bool borrowed = o->overlay && o->overlay_bytes >= need;
    x->base = borrowed ? o->overlay : NULL;
    if (borrowed && !x->pipelined) return GW_OK;
    GW_TRY(look_for_room(x, borrowed ? 0 : need, dg));
    gw_status st = borrowed ? GW_OK : gw_region_reserve(&x->own, need, "the arena", dg);
    GW_TRY(gw_exec_agree(x->comm, st, NULL, "reserving the arena", dg));
    if (!borrowed) x->base = x->own.data;
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

void gw_exec_bind_copy(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    gw_vid in = gw_op_in(&x->g, o, 0), out = gw_op_out(&x->g, o, 0);
    bool to_device = x->g.values.items[out].mem == GW_MEM_DEVICE;
    gw_copier_bind(x->copier, i, gw_exec_ptr(x, to_device ? out : in),
                   gw_exec_ptr(x, to_device ? in : out), gw_exec_local_bytes(x, in));
}

static void bind_bucket(gw_exec *x, gw_oid i) {
    gw_bucket *k = &x->buckets.items[x->buckets.of[i]];
    if (k->launch != i) {
        x->ops[i].what = GW_BOUND_NOTHING;
        return;
    }
    x->ops[i].what = GW_BOUND_COLLECTIVE;
    gw_bucket_bind(k, &x->g, gw_exec_bind_ptr, x, x->ops[i].args.work);
}

/* The executor's loop treats it; a kernel is left out. */
static bool is_special(gw_exec *x, gw_oid i) {
    const gw_op *o = &x->g.ops.items[i];
    if (gw_op_is_collective(&x->g, o)) {
        bind_bucket(x, i);
        return true;
    }
    if (gw_op_is_copy(&x->g, o)) {
        x->ops[i].what = GW_BOUND_COPY;
        gw_exec_bind_copy(x, i);
        return true;
    }
    if (gw_op_is_channel(&x->g, o)) {
        x->ops[i].what = gw_op_is(&x->g, o, "send") ? GW_BOUND_SEND : GW_BOUND_RECV;
        return true;
    }
    if (!gw_op_is(&x->g, o, "slice")) return false;
    gw_vid in = gw_value_root(&x->g, gw_op_in(&x->g, o, 0));
    if (gw_value_root(&x->g, gw_op_out(&x->g, o, 0)) != in) return false;
    x->ops[i].what = GW_BOUND_NOTHING;
    return true;
}

static gw_status check_workspace(const gw_exec *x, const gw_exec_opts *o, gw_oid i,
                                 const gw_kernel *k) {
    const gw_op *op = &x->g.ops.items[i];
    int64_t need = k->workspace(&x->g, op, &o->machine);
    if (x->ops[i].what == GW_BOUND_COLLECTIVE)
        need = gw_bucket_work_bytes(&x->buckets.items[x->buckets.of[i]], &x->g.mesh,
                                    gw_comm_machine(x->comm));
    if (x->ops[i].what == GW_BOUND_SEND) need = gw_exec_box_bytes(&x->g, op);
    if (need <= x->ops[i].args.work_bytes) return GW_OK;
    gw_panic("%s of %s has less workspace than its kernel %s needs: the program was placed for "
             "another machine",
             gw_op_def(&x->g, op)->name, gw_graph_str(&x->g, op->scope), k->name);
}

static gw_status prepare_ops(gw_exec *x, const gw_exec_opts *o, gw_diags *dg) {
    x->ops = gw_arena_new(&x->mem, gw_bound_op, x->g.ops.count + 1);
    for (gw_oid i = 0; i < (gw_oid)x->g.ops.count; i++) {
        const gw_op *op = &x->g.ops.items[i];
        gw_bound_op *b = &x->ops[i];
        b->in = gw_arena_new(&x->mem, gw_tensor, op->nin + 1);
        b->out = gw_arena_new(&x->mem, gw_tensor, op->nout + 1);
        gw_kargs_bind(&b->args, &x->g, op, b->in, b->out, gw_exec_bind_ptr, x, x->rank);
        b->args.threads = o->machine.threads;
        if (op->work != GW_NONE) {
            b->args.work = gw_exec_ptr(x, op->work);
            b->args.work_bytes = gw_exec_local_bytes(x, op->work);
        }
        const gw_kernel *k = &gw_kernel_comm;
        if (!is_special(x, i)) k = gw_kernel_choose(&x->g, op, &o->machine);
        if (b->what == GW_BOUND_COPY) k = &gw_kernel_copy;
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
    x->pipelined = x->comm && gw_mesh_group(&x->g.mesh, "pp") != 0;
    x->now = -1;
    gw_flow_of(&x->flow, &x->g, &x->mem);
    gw_graph_loop(&x->g, &x->loop_first, &x->loop_end);
    x->param = gw_arena_new(&x->mem, void *, x->g.values.count + 1);
    index_names(x);
    find_changes(x);
#ifdef GW_DEBUG
    x->poison = true;
#else
    x->poison = opts->poison;
#endif
    if (x->poison) gw_lives_of(&x->lives, &x->g, &x->mem);
    gw_status st = opts->own_params ? reserve_params(x, dg) : bind_params(x, opts->params_from, dg);
    if (st == GW_OK && opts->params_from) bind_states(x, opts->params_from);
    if (st == GW_OK) measure_bounds(x);
    if (st == GW_OK && opts->keeps) gw_ahead_init(x);
    if (st == GW_OK) st = reserve(x, opts, dg);
    if (st == GW_OK) st = make_copier(x, opts, dg);
    if (st == GW_OK) st = share(x, &x->weights, &x->share_weights, dg);
    if (st == GW_OK) st = share(x, &x->own, &x->share, dg);
    if (st == GW_OK) st = find_buckets(x, dg);
    if (st == GW_OK)
        st = gw_ports_open(&x->ports, &x->g, x->rank, x->comm, gw_exec_bind_ptr, x, &x->mem, dg);
    if (st == GW_OK) st = prepare_ops(x, opts, dg);
    if (st != GW_OK) {
        gw_exec_free(x);
        return st;
    }
    if (x->g.actions.count > 0) gw_stages_init(x, opts);
    *out = x;
    return GW_OK;
}

void gw_exec_free(gw_exec *x) {
    if (!x) return;
    for (int64_t i = 0; x->ops && i < x->g.ops.count; i++)
        if (x->ops[i].kernel) x->ops[i].kernel->release(x->ops[i].state);
    gw_ports_close(&x->ports, !x->failed);
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
const gw_ports *gw_exec_ports(const gw_exec *x) { return &x->ports; }
const gw_copier *gw_exec_copier(const gw_exec *x) { return x->copier; }

int64_t gw_exec_op_ns(const gw_exec *x, gw_oid o) {
    int64_t start = 0, ns = x->ops[o].ns;
    if (x->ops[o].what == GW_BOUND_COPY) gw_copier_times(x->copier, o, &start, &ns);
    return ns;
}

int64_t gw_exec_op_start_ns(const gw_exec *x, gw_oid o) {
    int64_t start = 0, ns = 0;
    if (x->ops[o].what != GW_BOUND_COPY) return x->ops[o].start_ns;
    gw_copier_times(x->copier, o, &start, &ns);
    return start - x->epoch_ns;
}

const gw_kernel *gw_exec_kernel(const gw_exec *x, gw_oid o) { return x->ops[o].kernel; }
const void *gw_exec_op_state(const gw_exec *x, gw_oid o) { return x->ops[o].state; }

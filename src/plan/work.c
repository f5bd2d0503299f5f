// SPDX-License-Identifier: Apache-2.0
// Work: FLOPs by two measures, the kernels that do it, and the bytes that collectives move.
//
// Model FLOPs are what the mathematics needs, by the usual formula: 6 for each parameter that takes
// part in a matrix product and each token, and attention, over the keys that a causal mask (and a
// window) shows, or over all of them: two conventions that published figures mix, so both are given
// by name. Hardware FLOPs are what the program does: the sum of its ops' own costs, those of the
// loop times the micro-batches, recomputation and elementwise work included. Their ratio is what
// recomputation costs.
//
// Both are one rank's share: of R ranks each computes 1/R of a step's samples, tokens or products;
// what tensor-parallel ranks all compute (norms, copied kv heads) is in the second figure alone.
//
// Kernels are asked as the executor asks (gw_kernel_choose), so what is printed is what will run.
// Collectives are read as the executor reads them (run/exec_comm.h), buckets fused, and their bytes
// follow from the formulas of their algorithms, the same that a run's count must equal. Rows of
// experts go by counts that the data decides; their row says what an even load sends.
// What a rank of a pipeline sends to other stages stands in rows of their own, over "pp": its
// program's sends, those of the loop times the micro-batches. Its collectives, ops and FLOPs are
// those of its stages.
// Documents packed in a row attend less than the mask shows; the counts take one document a row.
#include <string.h>

#include "plan/ledger.h"
#include "plan/memo.h"        /* gw_memo_choose */
#include "run/exec_channel.h" /* gw_op_is_channel, gw_exec_message_bytes */
#include "run/exec_comm.h"    /* gw_buckets */
#include "run/exec_experts.h" /* gw_experts_ep_even */

static void read_model_flops(gw_ledger *l) {
    const gw_model *m = &l->model;
    double tokens = (double)l->tokens_per_step / (double)l->ranks;
    l->flops.model = gw_model_flops_per_token(m, l->seq, false) * tokens;
    l->flops.model_full_attention = gw_model_flops_per_token(m, l->seq, true) * tokens;
    double lhs = (double)m->layers * (double)(m->heads * m->head_dim) * (double)l->seq;
    l->flops.n6 = 6.0 * (double)l->active_params * tokens;
    l->flops.n6_causal = l->flops.n6 + 6.0 * lhs * tokens;
    l->flops.n6_full = l->flops.n6 + 12.0 * lhs * tokens;
}

static void add_kernel(gw_ledger *l, const gw_graph *g, const gw_op *o, gw_memo *memo,
                       double flops) {
    gw_choice c = gw_memo_choose(memo, g, o);
    const char *op = gw_op_def(g, o)->name;
    int at = 0;
    while (at < l->nkernels &&
           (l->kernels[at].kernel != c.kernel || strcmp(l->kernels[at].op, op) != 0))
        at++;
    gw_ledger_kernel *k = &l->kernels[at];
    if (at == l->nkernels) {
        l->nkernels++;
        *k = (gw_ledger_kernel){.op = op, .kernel = c.kernel};
    }
    k->count++;
    k->flops += flops;
    k->workspace_bytes = GW_MAX(k->workspace_bytes, c.workspace_bytes);
}

/* ---- the wire ---- */

/* The groups of sub-axes in a mask: "dp", "dp_replicate x dp". */
static const char *axes_text(gw_arena *mem, const gw_mesh *m, uint32_t axes) {
    gw_str text = {0};
    const char *before = "";
    size_t n = 0;
    for (int i = 0; i < m->naxes; i++) {
        const char *name = m->axes[i].name;
        if (!(axes >> i & 1u)) continue;
        bool same = text.len > 0 && strcspn(name, ".") == n && strncmp(name, before, n) == 0;
        if (same) continue;
        n = strcspn(name, ".");
        before = name;
        gw_str_printf(&text, "%s%.*s", text.len ? " x " : "", (int)n, name);
    }
    char *copy = gw_arena_strdup(mem, gw_str_c(&text));
    gw_str_release(&text);
    return copy;
}

/* Groups of one name and another number of ranks are not the same: a ring and Ulysses, both cp. */
static gw_ledger_wire *wire_row(gw_ledger *l, const gw_coll *c, const char *axis) {
    for (int i = 0; i < l->nwire; i++) {
        gw_ledger_wire *w = &l->wire[i];
        if (strcmp(w->collective, gw_coll_kind_name(c->kind)) == 0 && strcmp(w->axis, axis) == 0 &&
            w->ranks == c->size && strcmp(w->wire, gw_wire_name(c->wire)) == 0 &&
            strcmp(w->algorithm, c->algorithm) == 0)
            return w;
    }
    gw_ledger_wire *w = &l->wire[l->nwire++];
    *w = (gw_ledger_wire){.collective = gw_coll_kind_name(c->kind),
                          .axis = axis,
                          .wire = gw_wire_name(c->wire),
                          .algorithm = gw_arena_strdup(&l->mem, c->algorithm),
                          .ranks = c->size,
                          .largest_bytes = -1};
    return w;
}

static void add_collective(gw_ledger *l, const gw_graph *g, const gw_bucket *b,
                           const gw_coll_machine *m) {
    const gw_coll *c = &b->coll;
    int64_t times = g->ops.items[b->launch].rate == GW_RATE_MB ? l->micro_batches : 1;
    gw_coll_machine group = gw_exec_group_machine(m, &g->mesh, c->axes);
    gw_coll_traffic t = gw_coll_traffic_of(c, 0);
    gw_ledger_wire *w = wire_row(l, c, axes_text(&l->mem, &g->mesh, c->axes));
    w->count += times;
    w->payload_bytes += t.payload * times;
    w->moved_bytes += t.moved * times;
    w->seconds += gw_coll_seconds(c, &group) * (double)times;
    if (gw_coll_bytes(c) <= w->largest_bytes) return;
    gw_coll open = *c;
    open.algorithm = NULL;
    w->largest_bytes = gw_coll_bytes(c);
    (void)gw_coll_choose(&open, &group, w->candidates, GW_LEDGER_CANDIDATES, &w->ncandidates);
    w->ncandidates = GW_MIN(w->ncandidates, (int)GW_LEDGER_CANDIDATES);
}

/* Rows of experts, which go by counts: what they are at even load. Arrays travel one after another,
 * pairwise. */
static void add_rows(gw_ledger *l, const gw_graph *g, const gw_op *o, const gw_coll_machine *m) {
    int64_t times = o->rate == GW_RATE_MB ? l->micro_batches : 1;
    gw_experts_even e = gw_experts_ep_even(g, o, m);
    if (e.size < 2) return;
    gw_coll_machine group = gw_exec_group_machine(m, &g->mesh, e.axes);
    gw_coll_part part = {0};
    gw_coll c = {.kind = GW_COLL_ALL_TO_ALL,
                 .dtype = GW_U8,
                 .axes = e.axes,
                 .size = e.size,
                 .per_host = group.per_host < e.size ? group.per_host : 0,
                 .nparts = 1,
                 .parts = &part,
                 .algorithm = "exchange"};
    gw_ledger_wire *w = wire_row(l, &c, axes_text(&l->mem, &g->mesh, e.axes));
    w->at_even_load = true;
    w->count += e.exchanges * times;
    w->payload_bytes += e.sent.payload * times;
    w->moved_bytes += e.sent.moved * times;
    c.algorithm = "pairwise";
    for (int i = 0; i < e.narrays; i++) {
        part.elems = e.bytes[i];
        w->seconds += gw_coll_seconds(&c, &group) * (double)times;
        w->largest_bytes = GW_MAX(w->largest_bytes, part.elems);
    }
}

/* A message to another stage: what is sent is what travels, on any machine. */
static void add_send(gw_ledger *l, const gw_graph *g, const gw_op *o, const gw_coll_machine *m) {
    int64_t times = o->rate == GW_RATE_MB ? l->micro_batches : 1;
    const char *name = o->part == GW_PART_SEND_F   ? GW_WIRE_SEND_FORWARD
                       : o->part == GW_PART_SEND_B ? GW_WIRE_SEND_BACK
                                                   : GW_WIRE_SEND_ONCE;
    int at = 0;
    while (at < l->nwire && strcmp(l->wire[at].collective, name) != 0) at++;
    gw_ledger_wire *w = &l->wire[at];
    if (at == l->nwire) {
        l->nwire++;
        *w = (gw_ledger_wire){
            .collective = name, .axis = "pp", .wire = "same", .algorithm = "channel", .ranks = 2};
    }
    int64_t bytes = gw_exec_message_bytes(g, o, 0);
    w->count += times;
    w->payload_bytes += bytes * times;
    w->moved_bytes += bytes * times;
    w->seconds += gw_channel_seconds(m, bytes) * (double)times;
    w->largest_bytes = GW_MAX(w->largest_bytes, bytes);
}

static void read_wire(gw_ledger *l, const gw_ledger_input *in) {
    gw_arena mem = {0};
    gw_buckets b;
    gw_coll_machine local = gw_coll_machine_local(in->machine->threads);
    const gw_coll_machine *m = in->comm ? in->comm : &local;
    gw_buckets_of(&b, in->program, 0, m, &mem);
    const gw_graph *g = in->program;
    int64_t exchanges = 0;
    for (int64_t i = 0; i < g->ops.count; i++)
        exchanges += gw_op_is_experts_ep(g, &g->ops.items[i]);
    enum { SENDS = 3 }; /* rows of them */
    l->wire = gw_arena_new(&l->mem, gw_ledger_wire, b.n + exchanges + SENDS);
    for (int i = 0; i < b.n; i++) add_collective(l, g, &b.items[i], m);
    for (int64_t i = 0; i < g->ops.count; i++)
        if (gw_op_is_experts_ep(g, &g->ops.items[i])) add_rows(l, g, &g->ops.items[i], m);
    for (int64_t i = 0; i < g->ops.count; i++)
        if (gw_op_is(g, &g->ops.items[i], "send")) add_send(l, g, &g->ops.items[i], m);
    for (int i = 0; i < l->nwire; i++) {
        l->wire_bytes += l->wire[i].payload_bytes;
        l->wire_moved_bytes += l->wire[i].moved_bytes;
        l->wire_seconds += l->wire[i].seconds;
    }
    gw_arena_release(&mem);
}

static bool is_experts(const gw_graph *g, const gw_op *o) {
    return gw_op_is_experts_ep(g, o) || gw_op_is(g, o, "experts") || gw_op_is(g, o, "experts_grad");
}

void gw_ledger_read_work(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    read_model_flops(l);
    gw_memo memo;
    gw_memo_init(&memo, in->machine);
    if (in->comm) memo.comm = *in->comm;
    int most = g->table->count; /* the reference kernel serves each op */
    while (gw_kernel_at(most - g->table->count)) most++;
    l->kernels = gw_arena_new(&l->mem, gw_ledger_kernel, most);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        int64_t times = o->rate == GW_RATE_MB ? l->micro_batches : 1;
        gw_cost c = {0};
        gw_op_def(g, o)->cost(g, o, &c);
        double flops = c.flops * (double)times;
        l->flops.hardware += flops;
        l->flops.hardware_full_attention += c.flops_full * (double)times;
        l->flops.by_phase[o->phase] += flops;
        if (is_experts(g, o)) l->flops.experts_by_phase[o->phase] += flops;
        if (o->flags & GW_OP_RECOMPUTED) l->flops.recompute += flops;
        if (!gw_op_is_collective(g, o) && !gw_op_is_channel(g, o))
            add_kernel(l, g, o, &memo, flops);
    }
    gw_memo_release(&memo);
    read_wire(l, in);
}

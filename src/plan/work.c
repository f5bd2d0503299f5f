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
// Kernels are asked as the executor asks (gw_kernel_choose), so what is printed is what will run.
// Documents packed in a row attend less than the mask shows; the counts take one document a row.
#include <string.h>

#include "plan/ledger.h"
#include "plan/memo.h" /* gw_memo_choose */

static void read_model_flops(gw_ledger *l) {
    const gw_model *m = &l->model;
    double tokens = (double)l->tokens_per_step;
    l->flops.model = gw_model_flops_per_token(m, l->seq, false) * tokens;
    l->flops.model_full_attention = gw_model_flops_per_token(m, l->seq, true) * tokens;
    double lhs = (double)m->layers * (double)(m->heads * m->head_dim) * (double)l->seq;
    l->flops.n6 = 6.0 * (double)l->params * tokens;
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

static void add_collective(gw_ledger *l, const gw_graph *g, const gw_op *o, int64_t times) {
    const char *name = gw_op_def(g, o)->name, *axis = gw_stream_name((gw_stream)o->stream);
    int at = 0;
    while (at < l->nwire &&
           (strcmp(l->wire[at].collective, name) != 0 || strcmp(l->wire[at].axis, axis) != 0))
        at++;
    if (at == l->nwire) l->wire[l->nwire++] = (gw_ledger_wire){.collective = name, .axis = axis};
    int64_t bytes = 0;
    for (int k = 0; k < (int)o->nout; k++)
        bytes += gw_type_local_bytes(gw_type_of(g, gw_op_out(g, o, k)), &g->mesh, 0);
    l->wire[at].count += times;
    l->wire[at].payload_bytes += bytes * times;
    l->wire_bytes += bytes * times;
}

void gw_ledger_read_work(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    read_model_flops(l);
    gw_memo memo;
    gw_memo_init(&memo, in->machine);
    int most = g->table->count; /* the reference kernel serves each op */
    while (gw_kernel_at(most - g->table->count)) most++;
    l->kernels = gw_arena_new(&l->mem, gw_ledger_kernel, most);
    l->wire = gw_arena_new(&l->mem, gw_ledger_wire, g->table->count * GW_STREAM_COUNT);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        int64_t times = o->rate == GW_RATE_MB ? l->micro_batches : 1;
        gw_cost c = {0};
        gw_op_def(g, o)->cost(g, o, &c);
        double flops = c.flops * (double)times;
        l->flops.hardware += flops;
        l->flops.hardware_full_attention += c.flops_full * (double)times;
        l->flops.by_phase[o->phase] += flops;
        if (o->flags & GW_OP_RECOMPUTED) l->flops.recompute += flops;
        add_kernel(l, g, o, &memo, flops);
        if (gw_op_def(g, o)->traits & GW_OP_COLLECTIVE) add_collective(l, g, o, times);
    }
    gw_memo_release(&memo);
}

// SPDX-License-Identifier: Apache-2.0
// The ledger's frame: sizes, totals, and the sums that must agree.
//
// Each figure has one source, the program. Sizes come from its inputs, bytes from its lives and
// offsets (live.c), bytes a parameter from the values that belong to one (params.c), work from the
// ops' own costs (work.c). So the plan cannot say anything else than what runs: the arena here is
// the number the executor reserves.
//
// Bytes of a cause are exact; offsets are rounded up to 64 bytes by place. Fragmentation is what
// remains: the arena minus the bytes alive at its fullest instant, alignment included. So the
// causes sum to the total in integers, always, and a test holds every configuration to it.
//
// A rank of a pipeline has a program with the parameters of its own stages, and of several
// micro-batches what is carried from forward to backward. Its ledger is of that program; sizes of a
// micro-batch that it does not show come from the first rank's. What concerns all ranks stands in
// pipeplan.c.
//
// Host and disk have arenas of their own; they are given beside the total, which is of the device,
// with the bytes that a step copies from and to each.
//
// Validation works in the step's temporaries, which are free between steps. Only when its program
// needs more than those is there memory beside the arena, and then all of it (the executor reserves
// an arena of its own); its bytes enter the causes as they stand at that program's own peak.
#include "plan/ledger.h"

#include <string.h>

#include "base/panic.h" /* GW_ASSERT */

static void read_sizes(gw_ledger *l, const gw_ledger_input *in) {
    const gw_graph *g = in->program;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->def != GW_NONE) continue;
        if (x->role == GW_ROLE_PARAM) l->rank_params += gw_type_elems(&x->type);
        if (x->role != GW_ROLE_INPUT || x->rate != GW_RATE_MB) continue;
        bool images = strcmp(gw_graph_str(g, x->name), "images") == 0;
        if (!images && strcmp(gw_graph_str(g, x->name), "tokens") != 0) continue;
        GW_ASSERT(x->type.ndim == (images ? 4 : 2));
        l->micro_batch = gw_type_local_dim(&x->type, 0, &g->mesh, 0);
        l->seq = images ? 1 : x->type.dims[1].size;
        l->tokens_per_step = x->type.dims[0].size * l->seq;
        l->dp = x->type.dims[0].size / GW_MAX(1, l->micro_batch);
    }
    l->micro_batches = GW_MAX(1, g->micro_batches);
    l->ranks = gw_mesh_ranks(&g->mesh);
    l->pp = gw_mesh_size(&g->mesh, gw_mesh_group(&g->mesh, "pp"));
    l->tokens_per_step *= l->micro_batches;
    if (in->first) {
        l->micro_batch = in->first->micro_batch;
        l->seq = in->first->seq;
        l->dp = in->first->dp;
        l->tokens_per_step = in->first->tokens_per_step;
    }
    l->dp = GW_MAX(1, l->dp);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        bool depends = gw_op_def(g, o)->traits & GW_OP_BATCH_DEPENDENT;
        l->batch_ops += depends && o->phase == GW_PHASE_F;
    }
    l->nops = g->ops.count;
    l->nvalues = g->values.count;
}

/* Bytes of a program's arrays: what the executor holds beside the arena. */
static int64_t metadata_bytes(const gw_graph *g) {
    return g->values.count * (int64_t)sizeof(gw_value) + g->ops.count * (int64_t)sizeof(gw_op) +
           g->edges.count * (int64_t)sizeof(uint32_t) + g->attrs.count * (int64_t)sizeof(gw_attr) +
           g->states.count * (int64_t)sizeof(gw_state) + g->chars.count +
           g->strings.count * (int64_t)sizeof(uint32_t);
}

static void sum_up(gw_ledger *l) {
    l->by_cause[GW_CAUSE_DATA] += l->fixed.data_bytes;
    l->by_cause[GW_CAUSE_STAGING] += l->fixed.staging_bytes;
    l->by_cause[GW_CAUSE_RUNTIME] += l->fixed.runtime_bytes;
    l->total_bytes = l->arena_bytes + l->valid_extra_bytes + l->fixed.data_bytes +
                     l->fixed.staging_bytes + l->fixed.runtime_bytes;
    int64_t sum = 0;
    for (int c = 0; c < GW_CAUSE_COUNT; c++) {
        GW_ASSERT(l->by_cause[c] >= 0);
        sum += l->by_cause[c];
    }
    GW_ASSERT(sum == l->total_bytes);
}

void gw_ledger_init(gw_ledger *l, const gw_ledger_input *in) {
    memset(l, 0, sizeof *l);
    GW_ASSERT(in->program->arena_bytes[GW_MEM_DEVICE] ==
              in->report->place.arena_bytes[GW_MEM_DEVICE]);
    l->model = *in->model;
    read_sizes(l, in);
    int64_t idle = gw_model_count(in->model) - gw_model_count_active(in->model);
    l->params = l->pp > 1 ? gw_model_count(in->model) : l->rank_params;
    l->active_params = l->params - idle;
    l->matrix_params = l->active_params - gw_model_count_embedding(in->model);
    l->recomputed_ops = in->report->recomputed_ops;
    l->fixed = in->fixed;
    l->fixed.runtime_bytes += metadata_bytes(in->program);
    if (in->valid) l->fixed.runtime_bytes += metadata_bytes(in->valid);
    for (int m = 0; m < GW_MEM_COUNT; m++)
        if (m != GW_MEM_DEVICE) l->other_bytes[m] = in->program->arena_bytes[m];
    l->copies = gw_copy_traffic(in->program, 0);
    gw_ledger_read_live(l, in);
    gw_ledger_read_params(l, in);
    gw_ledger_read_work(l, in);
    sum_up(l);
}

void gw_ledger_release(gw_ledger *l) {
    gw_arena_release(&l->mem);
    memset(l, 0, sizeof *l);
}

double gw_ledger_over_percent(const gw_ledger *l) {
    if (l->lower_bound_bytes == 0) return 0;
    return 100.0 * (double)(l->arena_bytes - l->lower_bound_bytes) / (double)l->lower_bound_bytes;
}

int64_t gw_ledger_live_total(const gw_ledger *l, int64_t op) {
    int64_t sum = 0;
    for (int c = 0; c < GW_CAUSE_COUNT; c++) sum += l->live[op * GW_CAUSE_COUNT + c];
    return sum;
}

int gw_ledger_sample(const gw_ledger *l, int n, int64_t *ops) {
    int count = 0;
    for (int k = 0; k < n; k++) {
        int64_t first = l->nops * k / n, end = l->nops * (k + 1) / n;
        if (first == end) continue;
        int64_t best = first;
        for (int64_t i = first; i < end; i++)
            if (gw_ledger_live_total(l, i) > gw_ledger_live_total(l, best)) best = i;
        bool peak_here = first <= (int64_t)l->peak_op && (int64_t)l->peak_op < end;
        if (peak_here) best = l->peak_op; /* by padded bytes, which may differ by a few lines */
        ops[count++] = best;
    }
    return count;
}

// SPDX-License-Identifier: Apache-2.0
// A block, read off the program that would run.
//
// An explanation that is computed beside the compiler drifts from it. So the explanations of the
// plan compile: a model of the same dimensions with just enough layers that one of them is an inner
// one, laid over cp x tp ranks, through the passes up to recomputation. In it the collectives of
// one block are those of every block; their bytes are the plan's own, op by op; what a matrix
// product is on a rank follows from the types of its operands; and what is kept for backward is
// what forward ops of the block make and backward ops read. Nothing here knows the shape of a
// block, so experts, latents and exceptions of layout.shard come out as they are.
//
// Collectives at step rate (gradients of weights, once a step) are not a layer's: they are left
// out.
#include "plan/block.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"    /* gw_arena */
#include "ops/ops.h"       /* gw_ops_table */
#include "run/exec_comm.h" /* gw_buckets_of */

typedef struct reader {
    gw_block *b;
    const gw_block_input *in;
    const gw_machine_spec *hw;
    gw_graph g;
    gw_arena mem;
    int64_t layer;
} reader;

/* ---- the program ---- */

static int64_t padded(int64_t s, int64_t parts) { return (s + parts - 1) / parts * parts; }

static gw_compile_opts options(reader *r, const gw_model *m) {
    const gw_block_layout *l = &r->b->layout;
    gw_compile_opts o = *r->in->opts;
    gw_param *params;
    int n;
    gw_model_params(m, &r->mem, &params, &n);
    gw_param_info *infos = gw_arena_new(&r->mem, gw_param_info, n + 1);
    for (int i = 0; i < n; i++) {
        infos[i] = (gw_param_info){.name = params[i].name,
                                   .decay = params[i].decay,
                                   .hidden = params[i].hidden,
                                   .rows = params[i].rows};
        snprintf(infos[i].cut, sizeof infos[i].cut, "%s",
                 gw_placement_of(&params[i], r->in->rules, r->in->nrules));
    }
    o.train = true;
    o.micro_batches = 1;
    o.params = infos;
    o.nparams = n;
    o.layout = (gw_layout_opts){.sequence_parallel = l->sequence_parallel && l->tp > 1,
                                .cp_mode = l->cp_mode,
                                .cp_ulysses = l->cp_ulysses,
                                .moe_buffer = r->in->opts->layout.moe_buffer};
    o.optim.deferred_norm = false;
    if (o.recompute.kind == GW_RECOMPUTE_BUDGET) o.recompute.kind = GW_RECOMPUTE_NONE;
    return o;
}

static gw_status compile(reader *r, gw_diags *dg) {
    const gw_block_layout *l = &r->b->layout;
    gw_model m = *r->in->model;
    int64_t first = m.moe.experts > 0 ? GW_MIN(m.moe.dense_layers, m.layers - 1) : 0;
    m.layers = GW_MIN(m.layers, first + 3);
    r->layer = GW_MIN(first + 1, m.layers - 1);
    int64_t even = (l->cp > 1 ? 2 * l->cp : 1) * (l->sequence_parallel ? l->tp : 1);
    int64_t seq = padded(r->in->seq, even);
    m.max_positions = GW_MAX(m.max_positions, seq);
    r->b->tokens = r->in->micro_batch * seq / l->cp;
    gw_build_opts build = {.mode = GW_BUILD_LOSS,
                           .batch = r->in->micro_batch,
                           .seq = seq,
                           .compute = r->in->opts->compute,
                           .training = true,
                           .packed = true};
    gw_compile_opts o = options(r, &m);
    gw_graph_init(&r->g, gw_ops_table());
    (void)gw_mesh_add(&r->g.mesh, "cp", (int32_t)l->cp);
    (void)gw_mesh_add(&r->g.mesh, "tp", (int32_t)l->tp);
    GW_TRY(gw_model_build(&r->g, &m, &build, dg));
    return gw_compile(&r->g, &o, "recompute", NULL, dg);
}

/* ---- reading ---- */

static bool inside(const reader *r, const gw_op *o) {
    char prefix[32];
    int n = snprintf(prefix, sizeof prefix, "layer %lld", (long long)r->layer);
    const char *scope = gw_graph_str(&r->g, o->scope);
    return o->rate == GW_RATE_MB && gw_scope_layer(scope) == n &&
           strncmp(scope, prefix, (size_t)n) == 0;
}

static bool forward(const gw_op *o) {
    return o->phase == GW_PHASE_F && !(o->flags & GW_OP_RECOMPUTED);
}

/* A weight's gradient, or a weight. */
static bool of_weight(const gw_graph *g, gw_vid v) {
    const gw_value *x = &g->values.items[v];
    return x->cause == GW_CAUSE_GRADIENTS || x->cause == GW_CAUSE_WEIGHTS;
}

static void read_wire(reader *r) {
    gw_buckets buckets;
    gw_buckets_of(&buckets, &r->g, 0, r->in->comm, &r->mem);
    uint32_t tp = gw_mesh_group(&r->g.mesh, "tp");
    for (int i = 0; i < buckets.n; i++) {
        const gw_coll *c = &buckets.items[i].coll;
        const gw_op *o = &r->g.ops.items[buckets.items[i].launch];
        if (!inside(r, o) || of_weight(&r->g, gw_op_in(&r->g, o, 0))) continue;
        int way = forward(o) ? GW_BLOCK_FORWARD : GW_BLOCK_BACKWARD;
        gw_coll_machine m = gw_exec_group_machine(r->in->comm, &r->g.mesh, c->axes);
        gw_block_wire *w = c->axes & ~tp ? &r->b->cp[way][c->kind] : &r->b->tp[way][c->kind];
        w->count++;
        w->payload_bytes += gw_coll_traffic_of(c, 0).payload;
        w->seconds += gw_coll_seconds(c, &m);
    }
}

/* Local elements of the dimensions of `a` that `b` has too, or has not. */
static int64_t extent(const reader *r, gw_vid a, gw_vid b, bool shared) {
    const gw_type *x = gw_type_of(&r->g, a), *y = gw_type_of(&r->g, b);
    int64_t n = 1;
    for (int i = 0; i < x->ndim; i++)
        if ((gw_type_find(y, x->dims[i].name) >= 0) == shared)
            n *= gw_type_local_dim(x, i, &r->g.mesh, 0);
    return n;
}

static void add_product(reader *r, const gw_op *o, const gw_cost *c) {
    const char *scope = gw_graph_str(&r->g, o->scope), *name = gw_op_def(&r->g, o)->name;
    bool experts = strncmp(name, "expert", 6) == 0;
    if ((strcmp(name, "matmul") != 0 && !experts) || r->b->nproducts == GW_BLOCK_PRODUCTS) return;
    gw_block_product *p = &r->b->products[r->b->nproducts++];
    int n = gw_scope_layer(scope);
    snprintf(p->name, sizeof p->name, "%s%s", scope[n] ? scope + n + 1 : scope,
             experts ? "/experts" : "");
    p->flops = c->flops;
    p->bytes = c->bytes_read + c->bytes_written;
    if (experts) return;
    gw_vid a = gw_op_in(&r->g, o, 0), w = gw_op_in(&r->g, o, 1);
    p->m = extent(r, a, w, false);
    p->k = extent(r, a, w, true);
    p->n = extent(r, w, a, false);
    const gw_type *y = gw_type_of(&r->g, gw_op_out(&r->g, o, 0));
    int g = gw_type_find(y, "g");
    if (g >= 0) r->b->kv_made = GW_MAX(r->b->kv_made, gw_type_local_dim(y, g, &r->g.mesh, 0));
}

static void read_heads(reader *r, const gw_op *o) {
    for (int i = 0; i < 2; i++) {
        const gw_type *t = gw_type_of(&r->g, gw_op_in(&r->g, o, i));
        int64_t n = gw_type_local_dim(t, 2, &r->g.mesh, 0);
        if (i == 0) r->b->heads = n;
        if (i == 1) r->b->kv_heads = n;
    }
}

static void read_work(reader *r) {
    for (int64_t i = 0; i < r->g.ops.count; i++) {
        const gw_op *o = &r->g.ops.items[i];
        if (!inside(r, o) || gw_op_is_collective(&r->g, o)) continue;
        gw_cost c = {0};
        gw_op_def(&r->g, o)->cost(&r->g, o, &c);
        int way = forward(o) ? GW_BLOCK_FORWARD : GW_BLOCK_BACKWARD;
        double s = r->hw ? gw_machine_op_seconds(r->hw, &r->g, o, 0) : 0;
        bool attention = strncmp(gw_op_def(&r->g, o)->name, "attention", 9) == 0;
        r->b->flops[way] += c.flops;
        r->b->seconds[way] += s;
        if (attention) r->b->attention_flops[way] += c.flops, r->b->attention_seconds[way] += s;
        if (attention && way == GW_BLOCK_FORWARD) read_heads(r, o);
        if (way == GW_BLOCK_FORWARD) add_product(r, o, &c);
    }
}

static void read_saved(reader *r) {
    const gw_graph *g = &r->g;
    bool *seen = gw_arena_new(&r->mem, bool, g->values.count);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (forward(o) || o->rate != GW_RATE_MB) continue;
        for (int k = 0; k < o->nin; k++) {
            gw_vid v = gw_op_in(g, o, k);
            if (v == GW_NONE) continue;
            v = gw_value_root(g, v);
            const gw_value *x = &g->values.items[v];
            if (seen[v] || x->def == GW_NONE) continue;
            const gw_op *made = &g->ops.items[x->def];
            if (!forward(made) || !inside(r, made)) continue;
            seen[v] = true;
            r->b->saved_bytes += gw_type_local_bytes(&x->type, &g->mesh, 0);
        }
    }
}

gw_status gw_block_read(gw_block *b, const gw_block_input *in, const gw_block_layout *l,
                        const gw_machine_spec *hw, gw_diags *dg) {
    *b = (gw_block){.layout = *l};
    reader r = {.b = b, .in = in, .hw = hw};
    gw_status st = compile(&r, dg);
    if (st == GW_OK) {
        read_wire(&r);
        read_work(&r);
        read_saved(&r);
    }
    gw_graph_release(&r.g);
    gw_arena_release(&r.mem);
    return st;
}

static void add_wire(gw_block_wire *sum, const gw_block_wire *w) {
    sum->count += w->count;
    sum->payload_bytes += w->payload_bytes;
    sum->seconds += w->seconds;
}

gw_block_wire gw_block_over_tp(const gw_block *b) {
    gw_block_wire sum = {0};
    for (int k = 0; k < 2 * GW_COLL_KIND_COUNT; k++)
        add_wire(&sum, &b->tp[k / GW_COLL_KIND_COUNT][k % GW_COLL_KIND_COUNT]);
    return sum;
}

gw_block_wire gw_block_over_cp(const gw_block *b) {
    gw_block_wire sum = {0};
    for (int k = 0; k < 2 * GW_COLL_KIND_COUNT; k++)
        add_wire(&sum, &b->cp[k / GW_COLL_KIND_COUNT][k % GW_COLL_KIND_COUNT]);
    return sum;
}

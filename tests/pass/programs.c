// SPDX-License-Identifier: Apache-2.0
// See programs.h.
#include "programs.h"

#include <string.h>

#include "../harness.h"
#include "ops/ops.h"  /* gw_ops_table */
#include "run/exec.h" /* gw_exec_workspace */

gw_model tiny_model(gw_family f, int layers) {
    gw_model m = gw_model_defaults(f);
    m.layers = layers;
    m.heads = 6;
    m.kv_heads = f == GW_FAMILY_GPT2 ? 6 : 2;
    m.head_dim = f == GW_FAMILY_QWEN3 ? 10 : 8;
    m.hidden = 48;
    m.ffn = f == GW_FAMILY_GPT2 ? 4 * m.hidden : 112;
    m.vocab = 101;
    m.max_positions = 64;
    m.moe.ffn = m.moe.experts > 0 ? 24 : 0;
    m.moe.dense_layers = GW_MIN(m.moe.dense_layers, layers - 1);
    if (f == GW_FAMILY_DEEPSEEK) {
        m.mla = (gw_mla){.q_rank = 20, .kv_rank = 12, .nope = 6, .rope = 4, .v = 7};
        m.head_dim = 10;
        m.kv_heads = m.heads;
        m.moe.groups = 4;
        m.moe.group_limit = 2;
    }
    if (f == GW_FAMILY_GPT2) m.dropout = 0.1;
    if (f == GW_FAMILY_MISTRAL) m.window = 7;
    for (int l = 0; l < layers; l++) m.windowed[l] = m.window > 0;
    return m;
}

void program_init(program *p, const gw_model *m, int64_t batch, int64_t seq) {
    memset(p, 0, sizeof *p);
    gw_diags_init(&p->dg);
    p->model = *m;
    gw_model_params(m, &p->mem, &p->params, &p->nparams);
    gw_param_info *infos = gw_arena_new(&p->mem, gw_param_info, p->nparams);
    for (int i = 0; i < p->nparams; i++)
        infos[i] = (gw_param_info){.name = p->params[i].name,
                                   .decay = p->params[i].decay,
                                   .hidden = p->params[i].hidden,
                                   .rows = p->params[i].rows};
    p->facts.comm = gw_coll_machine_local(2);
    p->machine = (gw_machine){.isa = GW_ISA_AVX2, .threads = 2, .count_only = true};
    p->opts = (gw_compile_opts){.train = true,
                                .micro_batches = 1,
                                .compute = GW_F32,
                                .gradients = GW_F32,
                                .master = GW_F32,
                                .moments = GW_F32,
                                .params = infos,
                                .nparams = p->nparams,
                                .workspace = gw_exec_workspace,
                                .workspace_user = &p->facts};
    p->opts.optim = (gw_optim_opts){.kind = GW_OPTIM_ADAMW,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8,
                                    .decay = 0.1,
                                    .momentum = 0.9,
                                    .muon_momentum = 0.95,
                                    .muon_lr_ratio = 1,
                                    .muon_ns_steps = 5,
                                    .clip_norm = 1};
    p->build = (gw_build_opts){.mode = GW_BUILD_LOSS,
                               .batch = batch,
                               .seq = seq,
                               .compute = GW_F32,
                               .training = true,
                               .packed = true};
}

void program_init_preset(program *p, const char *preset, int64_t batch, int64_t seq) {
    gw_model *m = gw_mem_zalloc(sizeof *m);
    CHECK_MSG(gw_model_preset(preset, m), "no preset %s", preset);
    program_init(p, m, batch, seq);
    gw_mem_free(m);
}

void program_release(program *p) {
    gw_arena_release(&p->mem);
    gw_diags_release(&p->dg);
}

gw_status program_try(program *p, const char *last, gw_graph *g, gw_compile_report *report) {
    p->build.compute = p->opts.compute;
    gw_graph_init(g, gw_ops_table());
    gw_status st = gw_model_build(g, &p->model, &p->build, &p->dg);
    g->mesh = p->mesh;
    if (st == GW_OK) st = gw_compile(g, &p->opts, last, report, &p->dg);
    if (st != GW_OK) gw_graph_release(g);
    return st;
}

void program_make(program *p, const char *last, gw_graph *g, gw_compile_report *report) {
    CHECK_OK(program_try(p, last, g, report), &p->dg);
}

/* ---- reading graphs ---- */

int64_t local_bytes(const gw_graph *g, gw_vid v) {
    return gw_type_local_bytes(gw_type_of(g, v), &g->mesh, 0);
}

state_bytes count_state_bytes(const gw_graph *g) {
    state_bytes b = {0};
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->tie != GW_NONE) continue;
        int64_t n = local_bytes(g, (gw_vid)v);
        if (x->cause == GW_CAUSE_WEIGHTS) b.weights += n;
        if (x->cause == GW_CAUSE_GRADIENTS) b.gradients += n;
        if (x->cause == GW_CAUSE_OPTIMIZER) b.optimizer += n;
    }
    return b;
}

const char *op_name(const gw_graph *g, const gw_op *o) { return gw_op_def(g, o)->name; }

bool is_op(const gw_graph *g, const gw_op *o, const char *name) {
    return strcmp(op_name(g, o), name) == 0;
}

const char *value_name(const gw_graph *g, gw_vid v) {
    return gw_graph_str(g, g->values.items[v].name);
}

int count_ops(const gw_graph *g, const char *name, gw_phase phase) {
    int n = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        n += is_op(g, o, name) && (phase == GW_PHASE_COUNT || o->phase == phase);
    }
    return n;
}

int count_recomputed(const gw_graph *g, const char *name) {
    int n = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        n += (o->flags & GW_OP_RECOMPUTED) && (!name || is_op(g, o, name));
    }
    return n;
}

double recomputed_flops(const gw_graph *g) {
    double sum = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (!(o->flags & GW_OP_RECOMPUTED)) continue;
        gw_cost c;
        gw_op_def(g, o)->cost(g, o, &c);
        sum += c.flops;
    }
    return sum;
}

int64_t saved_bytes(const gw_graph *g, const char *scope) {
    bool *saved = gw_mem_zalloc((size_t)g->values.count);
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        bool backward = o->phase == GW_PHASE_B || o->phase == GW_PHASE_W || o->phase == GW_PHASE_BW;
        for (int k = 0; backward && k < (int)o->nin; k++)
            if (gw_op_in(g, o, k) != GW_NONE) saved[gw_op_in(g, o, k)] = true;
    }
    int64_t sum = 0;
    size_t n = strlen(scope);
    for (int64_t v = 0; v < g->values.count; v++) {
        gw_oid d = g->values.items[v].def;
        if (!saved[v] || d == GW_NONE || g->ops.items[d].phase != GW_PHASE_F) continue;
        const char *s = gw_graph_str(g, g->ops.items[d].scope);
        if (strncmp(s, scope, n) != 0 || (n && s[n] != '/' && s[n] != 0)) continue;
        sum += local_bytes(g, (gw_vid)v);
    }
    gw_mem_free(saved);
    return sum;
}

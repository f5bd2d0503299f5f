// SPDX-License-Identifier: Apache-2.0
// The step's frame in bytes and ops. Bytes a parameter are those of the literature: mixed precision
// with Adam holds 2 + 2 + 12 (ZeRO, Rajbhandari et al. 2020, section 3.1), float32 16, and so on.
#include <string.h>

#include "../harness.h"
#include "programs.h"

typedef struct precision {
    gw_dtype compute, gradients, master, moments;
    int weights, grads, optimizer; /* bytes a parameter */
} precision;

static const precision precisions[] = {
    {GW_F32, GW_F32, GW_F32, GW_F32, 4, 4, 8},    {GW_BF16, GW_BF16, GW_F32, GW_F32, 2, 2, 12},
    {GW_BF16, GW_F32, GW_F32, GW_F32, 2, 4, 12},  {GW_BF16, GW_BF16, GW_BF16, GW_BF16, 2, 2, 4},
    {GW_BF16, GW_BF16, GW_F32, GW_BF16, 2, 2, 8}, {GW_F16, GW_F32, GW_F32, GW_F32, 2, 4, 12},
};

static void apply_precision(program *p, const precision *x) {
    p->opts.compute = x->compute;
    p->opts.gradients = x->gradients;
    p->opts.master = x->master;
    p->opts.moments = x->moments;
}

TEST(bytes_a_parameter_follow_from_dtypes) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (size_t i = 0; i < GW_COUNT(precisions); i++)
            for (int k = 1; k <= 3; k += 2) {
                gw_model m = tiny_model((gw_family)f, 2);
                m.tie = i % 2;
                program p;
                program_init(&p, &m, 2, 12);
                apply_precision(&p, &precisions[i]);
                p.opts.micro_batches = k;
                gw_graph g;
                program_make(&p, "step", &g, NULL);
                int64_t n = gw_model_count(&m);
                state_bytes b = count_state_bytes(&g);
                int64_t biases = 8 * gw_model_count_biases(&m); /* of a step, and of the next */
                CHECK_EQ(b.weights, n * precisions[i].weights + biases);
                CHECK_EQ(b.gradients, n * precisions[i].grads);
                CHECK_EQ(b.optimizer, n * precisions[i].optimizer);
                gw_graph_release(&g);
                program_release(&p);
            }
}

/* Parameters that Muon takes: the matrices of blocks. */
static int64_t hidden_params(const program *p) {
    int64_t n = 0;
    for (int i = 0; i < p->nparams; i++)
        if (p->params[i].hidden) n += gw_type_elems(&p->params[i].type);
    return n;
}

TEST(optimizers_keep_the_states_they_need) {
    for (int kind = 0; kind < 4; kind++) { /* adamw, sgd, sgd with momentum, muon */
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
        program p;
        program_init(&p, &m, 2, 12);
        p.opts.optim.kind = kind == 0 ? GW_OPTIM_ADAMW : kind == 3 ? GW_OPTIM_MUON : GW_OPTIM_SGD;
        p.opts.optim.momentum = kind == 1 ? 0 : 0.9;
        gw_graph g;
        program_make(&p, "step", &g, NULL);
        int64_t n = gw_model_count(&m), hidden = hidden_params(&p);
        const int64_t want[] = {8 * n, 0, 4 * n, 8 * n - 4 * hidden};
        CHECK(hidden > 0 && hidden < n);
        CHECK_EQ(count_state_bytes(&g).optimizer, want[kind]);
        gw_graph_release(&g);
        program_release(&p);
    }
}

static gw_vid gradient_of(const gw_graph *g, const char *param) {
    for (int64_t i = 0; i < g->ops.count; i++) {
        const gw_op *o = &g->ops.items[i];
        if (gw_op_def(g, o)->traits & GW_OP_OPTIMIZER && o->nin > 4 &&
            strcmp(value_name(g, gw_op_in(g, o, 0)), param) == 0)
            return gw_op_in(g, o, 1);
    }
    test_fail(__FILE__, __LINE__, "nothing updates %s", param);
}

/* Length of the chain of ties from v to its root: how many ops add into these bytes, and the root's
 * op. */
static int chain(const gw_graph *g, gw_vid v, const char **root_op) {
    int n = 0;
    for (; g->values.items[v].tie != GW_NONE; v = g->values.items[v].tie) n++;
    gw_oid d = g->values.items[v].def;
    *root_op = d == GW_NONE ? "leaf" : op_name(g, &g->ops.items[d]);
    return n;
}

TEST(one_micro_batch_writes_gradients_and_zeroes_nothing) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    m.tie = true;
    program p;
    program_init(&p, &m, 2, 12);
    gw_graph g;
    program_make(&p, "step", &g, NULL);
    CHECK_EQ(count_ops(&g, "zeros", GW_PHASE_COUNT), 0);
    for (int i = 0; i < p.nparams; i++) {
        const char *root;
        bool tied = strcmp(p.params[i].name, "embed.weight") == 0;
        int n = chain(&g, gradient_of(&g, p.params[i].name), &root);
        CHECK_MSG(n == tied, "%s: chain of %d", p.params[i].name,
                  n); /* the second adds onto the first */
        if (tied) CHECK_STR(root, "head_grad");
    }
    gw_graph_release(&g);
    program_release(&p);
}

TEST(several_micro_batches_chain_through_one_zeroed_accumulator) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        gw_model m = tiny_model((gw_family)f, 2);
        m.tie = true;
        program p;
        program_init(&p, &m, 2, 12);
        p.opts.micro_batches = 4;
        gw_graph g;
        program_make(&p, "step", &g, NULL);
        CHECK_EQ(g.micro_batches, 4);
        int routers = 0; /* what a step adds up of each: its load */
        for (int l = 0; l < 2; l++) routers += gw_model_has_experts(&m, l);
        CHECK_EQ(count_ops(&g, "zeros", GW_PHASE_O), p.nparams + 1 + routers); /* and the loss */
        for (int i = 0; i < p.nparams; i++) {
            const char *root;
            bool tied = strcmp(p.params[i].name, "embed.weight") == 0;
            CHECK_EQ(chain(&g, gradient_of(&g, p.params[i].name), &root), 1 + tied);
            CHECK_STR(root, "zeros");
        }
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* Gains and biases do not decay; matrices and tables do. */
TEST(decay_groups) {
    gw_model m = tiny_model(GW_FAMILY_GPT2, 1);
    program p;
    program_init(&p, &m, 1, 8);
    gw_graph g;
    program_make(&p, "step", &g, NULL);
    int decayed = 0, kept = 0;
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (!is_op(&g, o, "adamw")) continue;
        const char *name = value_name(&g, gw_op_in(&g, o, 0));
        bool flat = strstr(name, "norm") || strstr(name, "bias");
        double decay = gw_op_attr_named(&g, o, "decay").f;
        CHECK_MSG(decay == (flat ? 0 : 0.1), "%s decays by %g", name, decay);
        *(flat ? &kept : &decayed) += 1;
    }
    CHECK_EQ(decayed, 2 + 6);                /* two tables; q k v o up down */
    CHECK_EQ(kept, 2 + 2 * 2 + 6);           /* three norms of gain and bias; six biases */
    CHECK_EQ(g.states.count, 3 * p.nparams); /* parameter, m, v */
    gw_graph_release(&g);
    program_release(&p);
}

/* What changes from step to step comes in as data. */
TEST(schedule_scale_and_step_are_inputs) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
    program p;
    program_init(&p, &m, 1, 8);
    p.opts.optim.kind = GW_OPTIM_MUON;
    gw_graph g;
    program_make(&p, "step", &g, NULL);
    static const char *const names[] = {"lr", "step", "inv_scale", "seed", "muon_lr"};
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        gw_vid v = gw_graph_find(&g, GW_ROLE_INPUT, names[i]);
        CHECK_MSG(v != GW_NONE, "no input %s", names[i]);
        CHECK_EQ(g.values.items[v].rate, GW_RATE_STEP);
    }
    gw_graph_release(&g);
    program_release(&p);
}

/* Random bits of stochastic rounding are keyed by the parameter's name, so that no layout changes
 * them. */
TEST(stochastic_rounding_is_keyed_by_name) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
    program p;
    program_init(&p, &m, 1, 8);
    apply_precision(&p, &precisions[3]);
    p.opts.stochastic = true;
    p.opts.seed = 77;
    gw_graph g;
    program_make(&p, "step", &g, NULL);
    for (int64_t i = 0; i < g.ops.count; i++) {
        const gw_op *o = &g.ops.items[i];
        if (!is_op(&g, o, "adamw")) continue;
        CHECK_EQ(gw_op_attr_named(&g, o, "stochastic").i, 1);
        CHECK_EQ(gw_op_attr_named(&g, o, "seed").i, 77);
        CHECK_STR(gw_graph_str(&g, gw_op_attr_named(&g, o, "key").s),
                  value_name(&g, gw_op_in(&g, o, 0)));
    }
    gw_graph_release(&g);
    program_release(&p);
}

/* A deferred norm: every state is copied before its first op, restored or not by one commit, and
 * stepped by two ops; no first op waits for the norm. */
TEST(a_deferred_norm_steps_before_it_is_known) {
    for (int kind = 0; kind < 4; kind++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
        program p;
        program_init(&p, &m, 2, 12);
        p.opts.optim.kind = kind == 0 ? GW_OPTIM_ADAMW : kind == 3 ? GW_OPTIM_MUON : GW_OPTIM_SGD;
        p.opts.optim.momentum = kind == 1 ? 0 : 0.9;
        p.opts.optim.deferred_norm = true;
        p.opts.verify = true;
        gw_graph g;
        gw_compile_report r;
        program_make(&p, NULL, &g, &r);
        int64_t n = gw_model_count(&m), hidden = hidden_params(&p), copied = 0;
        int steps = 0, early = 0;
        bool known = false;
        for (int64_t i = 0; i < g.ops.count; i++) {
            const gw_op *o = &g.ops.items[i];
            known |= is_op(&g, o, "clip");
            if (is_op(&g, o, "carry")) {
                copied += local_bytes(&g, gw_op_out(&g, o, 0));
                CHECK_EQ(g.values.items[gw_op_out(&g, o, 0)].cause, GW_CAUSE_STAGING);
            }
            if (!(gw_op_def(&g, o)->traits & GW_OP_OPTIMIZER)) continue;
            steps++;
            early += !known;
        }
        const int64_t want[] = {12 * n, 4 * n, 8 * n, 12 * n - 4 * hidden};
        CHECK_EQ(copied, want[kind]);
        CHECK_EQ(early, p.nparams);
        CHECK_EQ(steps, 2 * p.nparams);
        CHECK_EQ(count_ops(&g, "commit", GW_PHASE_COUNT), g.states.count);
        CHECK_EQ(count_ops(&g, "redo", GW_PHASE_COUNT), 1);
        CHECK(r.place.lower_bound_bytes >= r.place.persistent_bytes + copied);
        gw_graph_release(&g);
        program_release(&p);
    }
}

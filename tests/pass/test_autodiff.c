// SPDX-License-Identifier: Apache-2.0
// What backward must contain, whatever the model: a gradient for every parameter, with its name and
// shape; input and weight gradients in ops of their own; nothing that no result needs.
#include <string.h>

#include "../harness.h"
#include "ir/verify.h" /* gw_graph_verify */
#include "ops/ops.h"   /* gw_ops_table */
#include "programs.h"

/* Gradients that bear the name of parameter i. */
static int contributions(const gw_graph *g, const gw_param *p, gw_dtype dtype) {
    int n = 0;
    for (int64_t v = 0; v < g->values.count; v++) {
        const gw_value *x = &g->values.items[v];
        if (x->role != GW_ROLE_GRAD || strcmp(value_name(g, (gw_vid)v), p->name) != 0) continue;
        CHECK_MSG(gw_type_same_dims(&x->type, &p->type), "gradient of %s has another shape",
                  p->name);
        CHECK_EQ(x->type.dtype, dtype);
        CHECK_EQ(x->cause, GW_CAUSE_GRADIENTS);
        n++;
    }
    return n;
}

static void every_parameter(gw_family f, bool tie, gw_dtype compute, gw_dtype gradients) {
    gw_model m = tiny_model(f, 2);
    m.tie = tie;
    program p;
    program_init(&p, &m, 2, 12);
    p.opts.compute = compute;
    p.opts.gradients = gradients;
    gw_graph g;
    program_make(&p, "autodiff", &g, NULL);
    for (int i = 0; i < p.nparams; i++) {
        bool shared =
            tie && strcmp(p.params[i].name, "embed.weight") == 0; /* the lookup and the head */
        int n = contributions(&g, &p.params[i], gradients);
        CHECK_MSG(n == 1 + shared, "%s has %d gradients", p.params[i].name, n);
    }
    gw_graph_release(&g);
    program_release(&p);
}

TEST(every_parameter_has_its_gradients) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++)
        for (int tie = 0; tie < 2; tie++) {
            every_parameter((gw_family)f, tie, GW_F32, GW_F32);
            every_parameter((gw_family)f, tie, GW_BF16, GW_F32);
            every_parameter((gw_family)f, tie, GW_BF16, GW_BF16);
        }
}

/* One weight-gradient op and one input-gradient op for each product, in phases a schedule can tell
 * apart. */
TEST(input_and_weight_gradients_are_separate_ops) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        if (f == GW_FAMILY_DEEPSEEK) continue; /* whose layers differ */
        gw_model m = tiny_model((gw_family)f, 3);
        program p;
        program_init(&p, &m, 2, 12);
        gw_graph g;
        program_make(&p, "autodiff", &g, NULL);
        /* q k v o, and up down, gate up down, or the router (experts is one op) */
        int products = f == GW_FAMILY_GPT2 ? 6 : m.moe.experts > 0 ? 5 : 7;
        CHECK_EQ(count_ops(&g, "matmul", GW_PHASE_F), products * 3);
        CHECK_EQ(count_ops(&g, "matmul_dw", GW_PHASE_W), products * 3);
        CHECK_EQ(count_ops(&g, "matmul_dw", GW_PHASE_COUNT), products * 3);
        CHECK_EQ(count_ops(&g, "matmul", GW_PHASE_B), products * 3);
        CHECK_EQ(count_ops(&g, "attention_grad", GW_PHASE_B), 3);
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* The head's gradient takes over the loss: the forward head dies and full logits never exist. */
TEST(the_head_runs_once) {
    gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
    program p;
    program_init(&p, &m, 2, 12);
    gw_graph g;
    program_make(&p, "autodiff", &g, NULL);
    CHECK_EQ(count_ops(&g, "head", GW_PHASE_COUNT), 0);
    CHECK_EQ(count_ops(&g, "head_grad", GW_PHASE_BW), 1);
    int named = 0;
    for (int64_t v = 0; v < g.values.count; v++) {
        named += strcmp(value_name(&g, (gw_vid)v), "loss") == 0;
        const gw_type *t = gw_type_of(&g, (gw_vid)v);
        CHECK(gw_type_find(t, "v") < 0 || gw_type_find(t, "s") < 0); /* logits */
    }
    CHECK_EQ(named, 1);
    gw_graph_release(&g);
    program_release(&p);
}

TEST(no_op_is_dead) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        gw_model m = tiny_model((gw_family)f, 2);
        program p;
        program_init(&p, &m, 2, 12);
        gw_graph g, pruned;
        program_make(&p, "step", &g, NULL);
        gw_graph_prune(&pruned, &g, NULL, NULL);
        CHECK_EQ(pruned.ops.count, g.ops.count);
        gw_graph_release(&pruned);
        gw_graph_release(&g);
        program_release(&p);
    }
}

static void build_with_orphan(program *p, gw_graph *g, bool through_ids) {
    gw_graph_init(g, gw_ops_table());
    p->build.compute = p->opts.compute;
    CHECK_OK(gw_model_build(g, &p->model, &p->build, &p->dg), &p->dg);
    gw_vid v = gw_graph_leaf(g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP,
                             gw_type_make(GW_F32, "d48"), "orphan.weight");
    if (!through_ids) return;
    gw_builder b; /* used, but by nothing that reaches the loss */
    gw_builder_init(&b, g, &p->dg);
    b.rate = GW_RATE_MB;
    (void)gw_build1(&b, "add", v, v);
    CHECK_OK(b.status, &p->dg);
}

TEST(a_parameter_without_influence_is_refused) {
    for (int used = 0; used < 2; used++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 1);
        program p;
        program_init(&p, &m, 1, 8);
        gw_graph g, out;
        build_with_orphan(&p, &g, used);
        CHECK_FAILS(gw_pass_autodiff(&out, &g, &p.opts, NULL, &p.dg), &p.dg, "orphan.weight");
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* A pass leaves its source as it was, and forward programs pass through autodiff unchanged. */
TEST(passes_do_not_touch_their_source) {
    gw_model m = tiny_model(GW_FAMILY_QWEN3, 2);
    program p;
    program_init(&p, &m, 2, 12);
    gw_graph g, out;
    char why[256] = "";
    program_make(&p, "build", &g, NULL);
    gw_hash128 before = gw_graph_hash(&g);
    CHECK_OK(gw_pass_autodiff(&out, &g, &p.opts, NULL, &p.dg), &p.dg);
    gw_hash128 after = gw_graph_hash(&g);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(!gw_graph_equal(&g, &out, why, sizeof why));
    gw_graph_release(&out);
    p.opts.train = false;
    CHECK_OK(gw_pass_autodiff(&out, &g, &p.opts, NULL, &p.dg), &p.dg);
    CHECK_MSG(gw_graph_equal(&g, &out, why, sizeof why), "%s", why);
    gw_graph_release(&out);
    gw_graph_release(&g);
    program_release(&p);
}

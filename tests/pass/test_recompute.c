// SPDX-License-Identifier: Apache-2.0
// Which values each recompute policy keeps, by formulas in the model's dimensions.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../harness.h"
#include "programs.h"

enum { BATCH = 2, SEQ = 12, LAYERS = 4 };

static void make(program *p, gw_family f, gw_recompute_opts policy, const char *last, gw_graph *g,
                 gw_compile_report *r) {
    gw_model m = tiny_model(f, LAYERS);
    program_init(p, &m, BATCH, SEQ);
    p->opts.recompute = policy;
    program_make(p, last, g, r);
}

static const gw_recompute_opts none = {.kind = GW_RECOMPUTE_NONE};
static const gw_recompute_opts selective = {.kind = GW_RECOMPUTE_SELECTIVE};
static const gw_recompute_opts full = {.kind = GW_RECOMPUTE_FULL};

/* Floats a llama layer keeps per token: both norms' outputs and rstd, rotated q and k, v,
 * attention's output and log-sum-exp, gate, up, their product, and the two residual sums (the
 * second is the next layer's input). */
static int64_t llama_floats_kept(const gw_model *m) {
    int64_t hk = m->heads * m->head_dim, gk = m->kv_heads * m->head_dim;
    return 2 * (m->hidden + 1) + hk + 2 * gk + (hk + m->heads) + 3 * m->ffn + 2 * m->hidden;
}

TEST(saved_bytes_of_a_llama_layer) {
    for (int policy = 0; policy < 3; policy++) {
        program p;
        gw_graph g;
        make(&p, GW_FAMILY_LLAMA,
             policy == 0   ? none
             : policy == 1 ? selective
                           : full,
             "recompute", &g, NULL);
        const gw_model *m = &p.model;
        int64_t attention = m->heads * m->head_dim + m->heads;
        int64_t floats =
            policy == 2 ? m->hidden : llama_floats_kept(m) - (policy == 1 ? attention : 0);
        for (int l = 0; l < LAYERS; l++) {
            char scope[32];
            snprintf(scope, sizeof scope, "layer %d", l);
            CHECK_EQ(saved_bytes(&g, scope), BATCH * SEQ * 4 * floats);
        }
        gw_graph_release(&g);
        program_release(&p);
    }
}

TEST(full_keeps_exactly_the_inputs_of_layers) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        program p;
        gw_graph g;
        make(&p, (gw_family)f, full, "recompute", &g, NULL);
        for (int l = 0; l < LAYERS; l++) {
            char scope[32];
            snprintf(scope, sizeof scope, "layer %d", l);
            CHECK_EQ(saved_bytes(&g, scope), BATCH * SEQ * p.model.hidden * 4);
        }
        CHECK_EQ(saved_bytes(&g, "embed"), BATCH * SEQ * p.model.hidden * 4);
        gw_graph_release(&g);
        program_release(&p);
    }
}

TEST(selective_clones_exactly_the_attentions) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        program p;
        gw_graph g;
        gw_compile_report r;
        make(&p, (gw_family)f, selective, NULL, &g, &r);
        CHECK_EQ(count_recomputed(&g, "attention"), LAYERS);
        CHECK_EQ(count_recomputed(&g, NULL), LAYERS);
        CHECK_EQ(r.recomputed_ops, LAYERS);
        CHECK_EQ(count_ops(&g, "attention", GW_PHASE_F), LAYERS);
        CHECK_EQ(count_ops(&g, "attention", GW_PHASE_B), LAYERS);
        gw_graph_release(&g);
        program_release(&p);
    }
}

/* Forward runs as it did, and a clone is the op it repeats: same scope, attributes, types, later.
 */
TEST(clones_repeat_forward_ops) {
    for (int f = 0; f < GW_FAMILY_COUNT; f++) {
        program p, q;
        gw_graph plain, g;
        gw_compile_report r;
        make(&q, (gw_family)f, none, "recompute", &plain, NULL);
        make(&p, (gw_family)f, full, "recompute", &g, &r);
        CHECK_EQ(g.ops.count, plain.ops.count + r.recomputed_ops);
        CHECK_NEAR(recomputed_flops(&g), r.recomputed_flops, 0);
        for (int64_t i = 0; i < g.ops.count; i++) {
            const gw_op *o = &g.ops.items[i];
            if (!(o->flags & GW_OP_RECOMPUTED)) continue;
            CHECK_EQ(o->phase, GW_PHASE_B);
            int twins = 0;
            for (int64_t j = 0; j < i; j++) {
                const gw_op *t = &g.ops.items[j];
                bool same = t->phase == GW_PHASE_F && t->code == o->code && t->nin == o->nin &&
                            strcmp(gw_graph_str(&g, t->scope), gw_graph_str(&g, o->scope)) == 0;
                for (int k = 0; same && k < gw_op_def(&g, o)->nattrs; k++)
                    same = memcmp(&g.attrs.items[t->attr + (uint32_t)k],
                                  &g.attrs.items[o->attr + (uint32_t)k], sizeof(gw_attr)) == 0;
                twins += same;
            }
            CHECK_MSG(twins >= 1, "%s of %s repeats nothing", op_name(&g, o),
                      gw_graph_str(&g, o->scope));
        }
        gw_graph_release(&plain);
        gw_graph_release(&g);
        program_release(&p);
        program_release(&q);
    }
}

/* The whole forward of a layer but its last product and sum is repeated, once. */
TEST(full_repeats_a_layer_once) {
    program p;
    gw_graph g;
    make(&p, GW_FAMILY_LLAMA, full, "recompute", &g, NULL);
    CHECK_EQ(count_recomputed(&g, "attention"), LAYERS);
    CHECK_EQ(count_recomputed(&g, "swiglu"), LAYERS);
    CHECK_EQ(count_recomputed(&g, "rmsnorm"), 2 * LAYERS);
    CHECK_EQ(count_recomputed(&g, "rope"), 2 * LAYERS);
    CHECK_EQ(count_recomputed(&g, "matmul"), 6 * LAYERS); /* q k v o gate up */
    CHECK_EQ(count_recomputed(&g, "add"), LAYERS);
    gw_graph_release(&g);
    program_release(&p);
}

TEST(named_ops_are_checked) {
    static const struct {
        const char *op, *says;
    } bad[] = {{"rmsnrm", "no op is called 'rmsnrm'"},
               {"embed", "'embed' does not occur inside a layer"},
               {"head_grad", "'head_grad' does not occur inside a layer"},
               {"gelu", "'gelu' does not occur inside a layer"}};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        gw_model m = tiny_model(GW_FAMILY_LLAMA, 2);
        program p;
        program_init(&p, &m, BATCH, SEQ);
        const char *ops[2] = {"swiglu", bad[i].op};
        p.opts.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_OPS, .ops = ops, .nops = 2};
        gw_graph g;
        CHECK_FAILS(program_try(&p, NULL, &g, NULL), &p.dg, bad[i].says);
        program_release(&p);
    }
}

TEST(named_ops_alone_are_repeated) {
    static const char *const ops[] = {"swiglu", "rope"};
    program p;
    gw_graph g;
    make(&p, GW_FAMILY_QWEN2, (gw_recompute_opts){.kind = GW_RECOMPUTE_OPS, .ops = ops, .nops = 2},
         NULL, &g, NULL);
    CHECK_EQ(count_recomputed(&g, "swiglu"), LAYERS);
    CHECK_EQ(count_recomputed(&g, "rope"), 2 * LAYERS);
    CHECK_EQ(count_recomputed(&g, NULL), 3 * LAYERS);
    gw_graph_release(&g);
    program_release(&p);
}

/* Dropping more never costs more memory than the budget, and a smaller budget never repeats less.
 */
TEST(a_budget_is_met_at_a_price_that_only_grows) {
    program p;
    gw_graph g;
    gw_compile_report top, low, r;
    gw_model m = tiny_model(GW_FAMILY_LLAMA, LAYERS);
    program_init(&p, &m, 8, 64);
    program_make(&p, NULL, &g, &top);
    gw_graph_release(&g);
    p.opts.recompute = full;
    program_make(&p, NULL, &g, &low);
    gw_graph_release(&g);
    int64_t most = top.place.arena_bytes[GW_MEM_DEVICE],
            least = low.place.arena_bytes[GW_MEM_DEVICE];
    CHECK(least < most);
    double flops = -1;
    for (int i = 0; i <= 16; i++) {
        int64_t budget = most - (most - least) * i / 16;
        p.opts.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_BUDGET, .budget_bytes = budget};
        program_make(&p, NULL, &g, &r);
        int64_t bytes = r.place.arena_bytes[GW_MEM_DEVICE];
        test_note("budget %lld: %lld bytes, %d of %d candidates, %.3g FLOPs again",
                  (long long)budget, (long long)bytes, r.recompute_chosen, r.recompute_candidates,
                  r.recomputed_flops);
        CHECK_MSG(bytes <= budget, "%lld > %lld", (long long)bytes, (long long)budget);
        CHECK_MSG(r.recomputed_flops >= flops, "%g < %g", r.recomputed_flops, flops);
        CHECK(i > 0 || r.recomputed_flops == 0);
        CHECK(r.recomputed_flops <= low.recomputed_flops);
        flops = r.recomputed_flops;
        gw_graph_release(&g);
    }
    CHECK(flops > 0);
    program_release(&p);
}

TEST(a_budget_that_cannot_be_met_names_one_that_can) {
    program p;
    gw_graph g;
    gw_compile_report low, r;
    make(&p, GW_FAMILY_LLAMA, full, NULL, &g, &low);
    gw_graph_release(&g);
    p.opts.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_BUDGET, .budget_bytes = 1000};
    CHECK_FAILS(program_try(&p, NULL, &g, NULL), &p.dg, "raise recompute.budget to ");
    const char *number = strstr(p.dg.last->hint, "budget to ") + strlen("budget to ");
    int64_t named = strtoll(number, NULL, 10);
    CHECK(named > 1000 && named <= low.place.arena_bytes[GW_MEM_DEVICE]);
    p.opts.recompute.budget_bytes = named;
    gw_diags_release(&p.dg);
    gw_diags_init(&p.dg);
    program_make(&p, NULL, &g, &r);
    CHECK(r.place.arena_bytes[GW_MEM_DEVICE] <= named);
    gw_graph_release(&g);
    program_release(&p);
}

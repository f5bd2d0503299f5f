// SPDX-License-Identifier: Apache-2.0
// Laws of the compiled step that hold whatever the numbers are: accumulation equals one batch,
// recompute changes no bit, precision costs the bytes it says, memory falls as planned.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../harness.h"
#include "golden.h"

static void run_loop(golden *g, gw_exec *x, int accumulate, float seed) {
    float one = 1;
    int64_t rows = g->batch / accumulate;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &g->dg), &g->dg);
    for (int k = 0; k < accumulate; k++) {
        (void)golden_inputs(g, x, k * rows, rows);
        CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &g->dg), &g->dg);
    }
}

static float **gradients(golden *g, gw_exec *x) {
    float **r = gw_arena_new(&g->mem, float *, g->nparams);
    for (int i = 0; i < g->nparams; i++) r[i] = exec_floats(g, x, gradient_value(x, i));
    return r;
}

static int64_t arena(const gw_exec *x) { return gw_exec_graph(x)->arena_bytes[GW_MEM_DEVICE]; }

/* Rows with few valid labels, and one with none, weigh by their labels: sum over all / count of
 * all. */
static void accumulation_case(const char *name) {
    golden g;
    golden_open(&g, name, NULL, false);
    int k = (int)g.batch;
    CHECK(k > 1);
    float seed = 1.0f / (float)golden_valid(&g);
    gw_exec *whole = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    gw_exec *parts = golden_exec(&g, GW_BUILD_LOSS, true, k);
    run_loop(&g, whole, 1, seed);
    run_loop(&g, parts, k, seed);
    float a = 0, b = 0;
    CHECK(gw_exec_read(whole, "loss", &a, sizeof a) && gw_exec_read(parts, "loss", &b, sizeof b));
    CHECK_NEAR(a, b, 1e-6 * fabs((double)a) * 10);
    float **x = gradients(&g, whole), **y = gradients(&g, parts);
    for (int i = 0; i < g.nparams; i++) {
        double r = relative(y[i], x[i], gw_type_elems(&g.params[i].type), 1e-2 * g.rms_grad);
        CHECK_MSG(r < 5e-5, "%s: %.3g", g.params[i].name,
                  r); /* a few float32 epsilons of the rms gradient */
    }
    gw_exec_free(whole);
    gw_exec_free(parts);
    golden_close(&g);
}

TEST(accumulation_equals_one_batch_llama) { accumulation_case("llama"); }
TEST(accumulation_equals_one_batch_gpt2) { accumulation_case("gpt2"); }
TEST(accumulation_equals_one_batch_packed) { accumulation_case("packed_llama"); }
TEST(accumulation_equals_one_batch_deepseek) { accumulation_case("deepseek_v3"); }

static void recompute_case(const char *name, gw_recompute_opts policy, bool must_shrink) {
    golden g;
    golden_open(&g, name, NULL, false);
    float seed = 1.0f / (float)golden_valid(&g);
    gw_exec *plain = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    g.opts.recompute = policy;
    gw_exec *again = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    run_loop(&g, plain, 1, seed);
    run_loop(&g, again, 1, seed);
    float **x = gradients(&g, plain), **y = gradients(&g, again);
    for (int i = 0; i < g.nparams; i++)
        CHECK_MSG(memcmp(x[i], y[i], sizeof(float) * (size_t)gw_type_elems(&g.params[i].type)) == 0,
                  "%s differs", g.params[i].name);
    int recomputed = 0;
    const gw_graph *p = gw_exec_graph(again);
    for (int64_t i = 0; i < p->ops.count; i++)
        recomputed += (p->ops.items[i].flags & GW_OP_RECOMPUTED) != 0;
    CHECK(recomputed > 0);
    if (must_shrink)
        CHECK_MSG(arena(again) < arena(plain), "%lld, %lld", (long long)arena(again),
                  (long long)arena(plain));
    gw_exec_free(plain);
    gw_exec_free(again);
    golden_close(&g);
}

static const char *const cheap_ops[] = {"rmsnorm", "swiglu", "rope"};

TEST(recompute_selective_changes_no_bit) {
    recompute_case("llama", (gw_recompute_opts){.kind = GW_RECOMPUTE_SELECTIVE}, false);
    recompute_case("gpt2", (gw_recompute_opts){.kind = GW_RECOMPUTE_SELECTIVE}, false);
}
TEST(recompute_full_changes_no_bit) {
    recompute_case("llama", (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL}, true);
    recompute_case("gpt2", (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL}, true);
    recompute_case("qwen3", (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL}, true);
    recompute_case("deepseek_v3", (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL}, true);
}
TEST(recompute_ops_changes_no_bit) {
    recompute_case("smollm2",
                   (gw_recompute_opts){.kind = GW_RECOMPUTE_OPS, .ops = cheap_ops, .nops = 3},
                   true);
}

/* A budget between full and none is met, with no more recomputed than a smaller budget needs. */
TEST(recompute_budget_is_met) {
    golden g;
    golden_open(&g, "smollm2", NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    int64_t most = arena(x);
    gw_exec_free(x);
    g.opts.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_FULL};
    x = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    int64_t least = arena(x);
    gw_exec_free(x);
    CHECK(least < most);
    for (int i = 0; i <= 4; i++) {
        int64_t budget = least + (most - least) * i / 4;
        g.opts.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_BUDGET, .budget_bytes = budget};
        x = golden_exec(&g, GW_BUILD_LOSS, true, 1);
        CHECK_MSG(arena(x) <= budget, "%lld > %lld", (long long)arena(x), (long long)budget);
        gw_exec_free(x);
    }
    golden_close(&g);
}

/* Loss and gradients of the lower precisions stay within the dtype's rounding of the float32 ones.
 */
static void precision_case(gw_dtype compute, gw_dtype grads, gw_dtype master, gw_dtype moments,
                           double bound) {
    golden g;
    golden_open(&g, "llama", NULL, false);
    float seed = 1.0f / (float)golden_valid(&g);
    gw_exec *wide = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    g.opts.compute = compute;
    g.opts.gradients = grads;
    g.opts.master = master;
    g.opts.moments = moments;
    for (int k = 1; k <= 3; k += 2) {
        if (g.batch % k) continue;
        gw_exec *narrow = golden_exec(&g, GW_BUILD_LOSS, true, k);
        run_loop(&g, wide, 1, seed);
        run_loop(&g, narrow, k, seed);
        float **x = gradients(&g, wide), **y = gradients(&g, narrow);
        for (int i = 0; i < g.nparams; i++) {
            double r = relative(y[i], x[i], gw_type_elems(&g.params[i].type), 0.1 * g.rms_grad);
            CHECK_MSG(r < bound, "%s: %.3g", g.params[i].name, r);
        }
        float lr = 1e-3f, norm = 0;
        int64_t step = 1;
        gw_exec_write(narrow, "lr", &lr, sizeof lr);
        gw_exec_write(narrow, "step", &step, sizeof step);
        CHECK_OK(gw_exec_run(narrow, GW_SEG_POST, &g.dg), &g.dg);
        CHECK(gw_exec_read(narrow, "norm", &norm, sizeof norm));
        CHECK(isfinite(norm) && norm > 0);
        gw_exec_free(narrow);
    }
    gw_exec_free(wide);
    golden_close(&g);
}

TEST(bf16_with_master) { precision_case(GW_BF16, GW_F32, GW_F32, GW_F32, 0.06); }
TEST(bf16_grads_bf16) { precision_case(GW_BF16, GW_BF16, GW_F32, GW_F32, 0.06); }
TEST(bf16_pure) { precision_case(GW_BF16, GW_BF16, GW_BF16, GW_BF16, 0.06); }
TEST(fp16_with_master) { precision_case(GW_F16, GW_F32, GW_F32, GW_F32, 0.01); }

/* All-zero labels: nothing valid gives zero gradients and no NaN. */
TEST(a_step_without_labels_is_finite) {
    golden g;
    golden_open(&g, "llama", NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOSS, true, 1);
    int64_t n = g.batch * g.seq;
    int32_t *none = gw_arena_new(&g.mem, int32_t, n);
    for (int64_t i = 0; i < n; i++) none[i] = -100;
    float seed = 0, one = 1, loss = -1;
    gw_exec_write(x, "seed", &seed, sizeof seed);
    gw_exec_write(x, "inv_scale", &one, sizeof one);
    CHECK_OK(gw_exec_run(x, GW_SEG_PRE, &g.dg), &g.dg);
    (void)golden_inputs(&g, x, 0, g.batch);
    gw_exec_write(x, "labels", none, n * 4);
    CHECK_OK(gw_exec_run(x, GW_SEG_LOOP, &g.dg), &g.dg);
    CHECK(gw_exec_read(x, "loss", &loss, sizeof loss));
    CHECK_NEAR(loss, 0, 0);
    float **d = gradients(&g, x);
    for (int i = 0; i < g.nparams; i++)
        for (int64_t k = 0; k < gw_type_elems(&g.params[i].type); k++) CHECK(d[i][k] == 0);
    gw_exec_free(x);
    golden_close(&g);
}

/* What is exported is read back bit for bit, in each public form. */
static void export_case(const char *name) {
    golden g;
    golden_open(&g, name, NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOGITS, false, 1);
    const char *dir = test_tmp_path("out");
    gw_token_ids ids = {.bos = 1, .pad = -1, .eos = {2}, .neos = 1};
    CHECK_OK(gw_weights_export(x, &g.model, g.params, g.nparams, dir, GW_F32, 20000, &ids, &g.dg),
             &g.dg);
    gw_exec *y = golden_exec(&g, GW_BUILD_LOGITS, false, 1);
    gw_weights_init(y, g.params, g.nparams, 7, 2);
    CHECK_OK(gw_weights_load(y, &g.model, g.params, g.nparams, dir, &g.dg), &g.dg);
    CHECK_EQ(g.dg.nwarnings, strcmp(name, "gpt2_noprefix") == 0 ? g.dg.nwarnings : 0);
    for (int i = 0; i < g.nparams; i++) {
        gw_tensor a = gw_exec_tensor(x, gw_exec_find(x, g.params[i].name));
        gw_tensor b = gw_exec_tensor(y, gw_exec_find(y, g.params[i].name));
        CHECK_MSG(memcmp(a.data, b.data, (size_t)a.elems * 4) == 0, "%s", g.params[i].name);
    }
    gw_exec_free(x);
    gw_exec_free(y);
    golden_close(&g);
}

TEST(export_round_trips) { export_case("gpt2"); }
TEST(export_round_trips_llama) { export_case("llama"); }
TEST(export_round_trips_tied) { export_case("llama_tied"); }
TEST(export_round_trips_qwen3) { export_case("qwen3"); }
TEST(export_round_trips_bias) { export_case("llama_bias"); }
TEST(export_round_trips_mixtral) { export_case("mixtral"); }
TEST(export_round_trips_qwen3_moe) { export_case("qwen3_moe"); }
TEST(export_round_trips_deepseek_v3) { export_case("deepseek_v3"); }
TEST(export_round_trips_deepseek_v2) { export_case("deepseek_v2"); }

TEST(initial_weights_do_not_depend_on_threads) {
    golden g;
    golden_open(&g, "qwen3", NULL, false);
    gw_exec *x = golden_exec(&g, GW_BUILD_LOGITS, false, 1),
            *y = golden_exec(&g, GW_BUILD_LOGITS, false, 1);
    gw_weights_init(x, g.params, g.nparams, 7, 1);
    gw_weights_init(y, g.params, g.nparams, 7, 5);
    for (int i = 0; i < g.nparams; i++) {
        gw_tensor a = gw_exec_tensor(x, gw_exec_find(x, g.params[i].name));
        gw_tensor b = gw_exec_tensor(y, gw_exec_find(y, g.params[i].name));
        CHECK_MSG(memcmp(a.data, b.data, (size_t)a.elems * 4) == 0, "%s", g.params[i].name);
    }
    gw_exec_free(x);
    gw_exec_free(y);
    golden_close(&g);
}

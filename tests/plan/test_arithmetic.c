// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the field, against programs: each figure is a closed form by hand and is read
// from what compiles. GB = 1e9 bytes.
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "planned.h"

/* Parameters by hand. */
static int64_t formula(const gw_model *m) {
    int64_t d = m->hidden, q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
    if (m->family == GW_FAMILY_GPT2)
        return m->vocab * d + m->max_positions * d + m->layers * (12 * d * d + 13 * d) + 2 * d;
    const gw_moe *e = &m->moe;
    int64_t expert = 3 * d * e->ffn, dense = 3 * d * m->ffn;
    int64_t experts = e->experts * (expert + d) + e->shared * expert;
    if (m->family == GW_FAMILY_DEEPSEEK) { /* DeepSeek-V2's report, equations 37 to 47 */
        const gw_mla *a = &m->mla;
        int64_t h = m->heads, r = a->kv_rank;
        int64_t of_q = a->q_rank ? d * a->q_rank + a->q_rank + a->q_rank * q : d * q;
        int64_t attention = of_q + d * (r + a->rope) + r + r * h * (a->nope + a->v) + h * a->v * d;
        return 2 * m->vocab * d + m->layers * (attention + 2 * d) + e->dense_layers * dense +
               (m->layers - e->dense_layers) * experts + d;
    }
    int64_t layer = 2 * d * q + 2 * d * kv + (e->experts ? experts : dense) + 2 * d;
    if (m->family == GW_FAMILY_QWEN2) layer += q + 2 * kv;
    if (m->family == GW_FAMILY_QWEN3 || m->family == GW_FAMILY_QWEN3_MOE) layer += 2 * m->head_dim;
    return m->vocab * d * (m->tie ? 1 : 2) + m->layers * layer + d;
}

TEST(presets_have_the_published_numbers_of_parameters) {
    static const struct {
        const char *name;
        int64_t params; /* of the released weights */
    } published[] = {
        {"gpt2", 124439808},
        {"gpt2-medium", 354823168},
        {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},
        {"smollm2-135m", 134515008},
        {"smollm2-360m", 361821120},
        {"smollm2-1.7b", 1711376384},
        {"llama2-7b", 6738415616},
        {"llama2-70b", 68976648192},
        {"llama3-8b", 8030261248},
        {"llama3-70b", 70553706496},
        {"llama3.1-8b", 8030261248},
        {"llama3.1-70b", 70553706496},
        {"llama3-405b", 405853388800},
        {"mistral-7b", 7241732096},
        {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-1.5b", 1543714304},
        {"qwen2.5-3b", 3085938688},
        {"qwen2.5-7b", 7615616512},
        {"qwen2.5-14b", 14770033664},
        {"qwen2.5-32b", 32763876352},
        {"qwen2.5-72b", 72706203648},
        {"qwen3-0.6b", 596049920},
        {"qwen3-1.7b", 1720574976},
        {"qwen3-4b", 4022468096},
        {"qwen3-8b", 8190735360},
        {"qwen3-14b", 14768307200},
        {"qwen3-32b", 32762123264},
        {"mixtral-8x7b", 46702792704},
        {"mixtral-8x22b", 140630071296},
        {"qwen3-30b-a3b", 30532122624},
        {"qwen3-235b-a22b", 235093634560},
        {"deepseek-v2-lite", 15706484224},
        {"deepseek-v2", 235741434880},
        {"deepseek-v3", 671026419200}, /* biases of routers' choice included */
    };
    int n = 0;
    for (; gw_model_preset_name(n); n++) {
        gw_model m;
        bool found = false;
        CHECK(gw_model_preset(gw_model_preset_name(n), &m));
        test_note("%s", gw_model_preset_name(n));
        CHECK_EQ(gw_model_count(&m), formula(&m));
        for (size_t i = 0; i < GW_COUNT(published); i++) {
            if (strcmp(published[i].name, gw_model_preset_name(n)) != 0) continue;
            CHECK_EQ(gw_model_count(&m) + gw_model_count_biases(&m), published[i].params);
            found = true;
        }
        CHECK_MSG(found, "preset %s has no published figure in this test", gw_model_preset_name(n));
    }
    CHECK_EQ(n, GW_COUNT(published));
}

/* Bytes a parameter of a small model and of the same with other layers, kv heads and vocabulary. */
static void check_bytes(const char *rest, const char *text, int total) {
    static const char *const models[] = {
        "family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 4, ffn: 128, vocab: 320",
        "family: llama, layers: 5, hidden: 64, heads: 4, kv_heads: 1, ffn: 192, vocab: 1000"};
    for (size_t i = 0; i < GW_COUNT(models); i++) {
        planned p;
        PLAN(&p, "model: {%s}\ntrain: {seq_len: 32, accumulate: %d}\n%s", models[i], (int)i * 2 + 1,
             rest);
        const gw_ledger *l = &p.ledger;
        CHECK_EQ(l->params, formula(&p.setup.model));
        CHECK_EQ(l->nkinds, 1);
        CHECK_STR(l->kinds[0].text, text);
        CHECK_EQ(l->kinds[0].total, total);
        CHECK_EQ(l->static_bytes, total * l->params);
        planned_release(&p);
    }
}

TEST(K1_K2_bytes_a_parameter_follow_from_dtypes) {
    check_bytes("precision: {compute: fp32}\n", "4 + 4 + 4 + 4 = 16", 16);
    check_bytes("precision: {compute: bf16, gradients: compute}\n", "2 + 2 + 12 = 16", 16);
    check_bytes("precision: {compute: bf16, gradients: float32}\n", "2 + 4 + 12 = 18", 18);
    check_bytes("precision: {compute: bf16}\n", "2 + 4 + 12 = 18", 18);
    check_bytes("precision: {compute: fp16}\n", "2 + 4 + 12 = 18", 18);
    check_bytes("precision: {compute: bf16, gradients: compute, master: none, moments: compute}\n",
                "2 + 2 + 2 + 2 = 8", 8);
    check_bytes("precision: {compute: bf16, gradients: compute, moments: compute}\n",
                "2 + 2 + 8 = 12", 12);
}

TEST(K4_sgd_with_momentum_takes_12) {
    check_bytes("optimizer: {name: sgd}\n", "4 + 4 + 4 = 12", 12);
    check_bytes("optimizer: {name: sgd, momentum: 0}\n", "4 + 4 = 8", 8);
    CHECK_EQ(12 * INT64_C(250000000), 3000000000); /* the "3" of a 1 GB model */
}

TEST(muon_keeps_one_moment_of_matrices_and_two_of_the_rest) {
    planned p;
    PLAN(&p,
         "model: {family: llama, layers: 3, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: "
         "320}\ntrain: {seq_len: 32}\noptimizer: {name: muon}\n");
    const gw_ledger *l = &p.ledger;
    int64_t hidden = 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128);
    CHECK_EQ(l->nkinds, 2);
    CHECK_EQ(l->static_bytes, 12 * hidden + 16 * (l->params - hidden));
    planned_release(&p);
}

/* Static bytes of a preset's compiled step. Lengths are short: nothing here hangs on them. */
static int64_t static_bytes(const char *preset, const char *precision, int64_t *weights) {
    planned p;
    PLAN(&p, "model: {preset: %s}\ntrain: {seq_len: 64}\nprecision: {%s}\n", preset, precision);
    int64_t bytes = p.ledger.static_bytes;
    *weights = p.ledger.static_weights;
    planned_release(&p);
    return bytes;
}

TEST_WITHIN(K3_K6_K7_static_bytes_of_published_models, 120) {
    int64_t weights;
    const char *mixed = "compute: bf16, gradients: compute";
    CHECK_EQ(static_bytes("llama2-7b", mixed, &weights), INT64_C(107814649856));   /* 107.81 GB */
    CHECK_EQ(static_bytes("llama3-70b", mixed, &weights), INT64_C(1128859303936)); /* 1,128.86 GB */
    CHECK_EQ(weights, INT64_C(141107412992));                                      /* 141.11 GB */
    CHECK_EQ((INT64_C(1128859303936) + 80000000000 - 1) / 80000000000, 15);
    CHECK_EQ(static_bytes("gpt2", "compute: fp32", &weights), 16 * INT64_C(124439808));
    CHECK_EQ(weights, 4 * INT64_C(124439808)); /* K1: 4.0 × weights */
}

/* FLOPs of products inside blocks: forward 2, backward 4 for each parameter and token. */
static void check_recompute_third(int layers, int kv_heads, int vocab) {
    planned none, full;
    char text[512];
    snprintf(text, sizeof text,
             "model: {family: llama, layers: %d, hidden: 64, heads: 4, kv_heads: "
             "%d, ffn: 192, vocab: %d}\ntrain: {seq_len: 32, micro_batch: 2}\n",
             layers, kv_heads, vocab);
    PLAN(&none, "%s", text);
    PLAN(&full, "%srecompute: {policy: full}\n", text);
    double tokens = 64,
           block = layers * (2.0 * 64 * 64 + 2.0 * 64 * 16 * kv_heads + 3.0 * 64 * 192);
    double before = planned_flops(&none, "matmul") + planned_flops(&none, "matmul_dw");
    double after = planned_flops(&full, "matmul") + planned_flops(&full, "matmul_dw");
    CHECK_NEAR(before, 6 * block * tokens, 0.5);
    /* The last product of a block, the down projection, makes the block's output, which is kept. */
    double last = 2.0 * layers * 64 * 192 * tokens;
    CHECK_NEAR((after + last) / before, 4.0 / 3.0, 1e-12);
    CHECK_NEAR(planned_flops(&full, "head_grad"), planned_flops(&none, "head_grad"), 0.5);
    planned_release(&none);
    planned_release(&full);
}

TEST(K22_full_recomputation_costs_a_third_of_the_blocks) {
    check_recompute_third(4, 4, 320);
    check_recompute_third(7, 2, 111);
}

TEST(matrix_work_of_the_program_is_six_flops_a_parameter_and_token) {
    for (int tie = 0; tie < 2; tie++) {
        planned p;
        PLAN(
            &p,
            "model: {family: llama, layers: 3, hidden: 64, heads: 4, kv_heads: 2, ffn: 192, vocab: "
            "320, tie_embeddings: %s}\ntrain: {seq_len: 48, micro_batch: 2, accumulate: 3}\n",
            tie ? "true" : "false");
        const gw_ledger *l = &p.ledger;
        double products = 3 * (2.0 * 64 * 64 + 2.0 * 64 * 32 + 3.0 * 64 * 192) + 320.0 * 64;
        double tokens = 48 * 2 * 3, gains = 7.0 * 64;
        double work = planned_flops(&p, "matmul") + planned_flops(&p, "matmul_dw") +
                      planned_flops(&p, "head_grad");
        CHECK_NEAR(work, 6 * products * tokens, 0.01 * work); /* the head's softmax comes on top */
        CHECK(work >= 6 * products * tokens);
        /* model FLOPs: the formula's N has the gains too; attention 6 L h (s + 1) and 12 L h s */
        double causal = 6.0 * 3 * 64 * 49, all = 12.0 * 3 * 64 * 48;
        CHECK_NEAR(l->flops.model, (6 * (products + gains) + causal) * tokens, 0.5);
        CHECK_NEAR(l->flops.model_full_attention, (6 * (products + gains) + all) * tokens, 0.5);
        /* flash attention: 2 products forward and 5 backward, on the keys that are seen */
        double pairs = 48.0 * 49 / 2;
        double attention = planned_flops(&p, "attention") + planned_flops(&p, "attention_grad");
        CHECK_NEAR(attention, (4 + 10) * 16 * pairs * 4 * 2 * 3 * 3, 0.5);
        planned_release(&p);
    }
}

TEST(K34_three_conventions_of_405b) {
    /* 157.7 tokens/s a GPU at 8,192: 384 / 400 / 416 TF */
    gw_model m;
    CHECK(gw_model_preset("llama3-405b", &m));
    double n = (double)gw_model_count(&m), lhs = 126.0 * 16384 * 8192, rate = 157.7e-12;
    CHECK_NEAR(6 * n * rate, 384, 0.384);
    CHECK_NEAR((6 * n + 6 * lhs) * rate, 400, 0.4);
    CHECK_NEAR((6 * n + 12 * lhs) * rate, 416, 0.416);
    planned p; /* the same three forms come out of a ledger, here of two layers */
    PLAN(&p, "model: {preset: llama3-405b, layers: 2}\ntrain: {seq_len: 8192}\n");
    double tokens = 8192, n2 = (double)p.ledger.params, lhs2 = 2.0 * 16384 * 8192;
    CHECK_NEAR(p.ledger.flops.n6 / (6 * n2 * tokens), 1, 1e-12);
    CHECK_NEAR(p.ledger.flops.n6_causal / ((6 * n2 + 6 * lhs2) * tokens), 1, 1e-12);
    CHECK_NEAR(p.ledger.flops.n6_full / ((6 * n2 + 12 * lhs2) * tokens), 1, 1e-12);
    planned_release(&p);
}

// SPDX-License-Identifier: Apache-2.0
// Laws of the ledger that hold for every configuration.
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "planned.h"

static const char *const families[] = {
    "family: gpt2, layers: 3, hidden: 64, heads: 4, vocab: 257, dropout: 0.1",
    "family: llama, layers: 3, hidden: 64, heads: 4, kv_heads: 2, ffn: 96, vocab: 257",
    "family: qwen2, layers: 2, hidden: 64, heads: 4, kv_heads: 1, ffn: 160, vocab: 131",
    ("family: qwen3, layers: 2, hidden: 48, heads: 4, kv_heads: 2, head_dim: 16, ffn: 96, "
     "vocab: 99, tie_embeddings: true"),
    ("family: mistral, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 96, vocab: 257, "
     "sliding_window: 16"),
};
static const char *const precisions[] = {
    "compute: fp32",
    "compute: bf16",
    "compute: bf16, gradients: compute",
    "compute: bf16, gradients: compute, master: none, moments: compute",
    "compute: fp16",
};
static const char *const recomputes[] = {"none", "selective", "full"};

static int64_t sum_of(const int64_t *by_cause) {
    int64_t sum = 0;
    for (int c = 0; c < GW_CAUSE_COUNT; c++) sum += by_cause[c];
    return sum;
}

static void check_waterfall(const planned *p) {
    const gw_ledger *l = &p->ledger;
    int64_t most = 0;
    for (int64_t i = 0; i < l->nops; i++) {
        int64_t live = sum_of(&l->live[i * GW_CAUSE_COUNT]);
        for (int c = 0; c < GW_CAUSE_COUNT; c++) CHECK(l->live[i * GW_CAUSE_COUNT + c] >= 0);
        most = GW_MAX(most, live);
    }
    /* exact bytes at the peak are the lower bound less what alignment to 64 adds */
    int64_t padding = 64 * l->nvalues;
    CHECK_EQ(l->live[(int64_t)l->peak_op * GW_CAUSE_COUNT + GW_CAUSE_FRAGMENTATION], 0);
    CHECK(most <= l->lower_bound_bytes);
    CHECK(gw_ledger_live_total(l, l->peak_op) <= most);
    CHECK(gw_ledger_live_total(l, l->peak_op) >= l->lower_bound_bytes - padding);
    CHECK(l->lower_bound_bytes <= l->arena_bytes);
}

static void check_items(const planned *p) {
    const gw_ledger *l = &p->ledger;
    int64_t kinds = 0, layers = 0, params = 0;
    for (int i = 0; i < l->nactivations; i++) kinds += l->activations[i].bytes;
    for (int i = 0; i < l->nlayers; i++) layers += l->layers[i].bytes;
    for (int i = 0; i < l->nkinds; i++) params += l->kinds[i].params;
    CHECK_EQ(kinds, l->by_cause[GW_CAUSE_ACTIVATIONS]);
    CHECK_EQ(layers, l->by_cause[GW_CAUSE_ACTIVATIONS]);
    CHECK_EQ(params, l->params);
    CHECK_EQ(params, gw_model_count(&p->setup.model));
    double phases = 0, kernels = 0;
    for (int i = 0; i < GW_PHASE_COUNT; i++) phases += l->flops.by_phase[i];
    for (int i = 0; i < l->nkernels; i++) kernels += l->kernels[i].flops;
    CHECK_NEAR(phases, l->flops.hardware, 1e-9 * l->flops.hardware);
    CHECK_NEAR(kernels, l->flops.hardware, 1e-9 * l->flops.hardware);
}

TEST(causes_sum_to_the_total_in_every_configuration) {
    for (size_t f = 0; f < GW_COUNT(families); f++)
        for (size_t q = 0; q < GW_COUNT(precisions); q++)
            for (size_t r = 0; r < GW_COUNT(recomputes); r++)
                for (int k = 1; k <= 3; k += 2) {
                    planned p;
                    test_note("%s | %s | %s | %d", families[f], precisions[q], recomputes[r], k);
                    gw_ledger_fixed fixed = {1001, 202, 33};
                    planned_init(
                        &p, k == 3, fixed,
                        "model: {%s}\ntrain: {seq_len: 40, micro_batch: 2, accumulate: %d}\n"
                        "precision: {%s}\nrecompute: {policy: %s}\n",
                        families[f], k, precisions[q], recomputes[r]);
                    const gw_ledger *l = &p.ledger;
                    CHECK_EQ(sum_of(l->by_cause), l->total_bytes);
                    CHECK_EQ(l->arena_bytes, p.step.arena_bytes[GW_MEM_DEVICE]);
                    CHECK_EQ(l->total_bytes, l->arena_bytes + l->valid_extra_bytes + 1001 + 202 +
                                                 l->fixed.runtime_bytes);
                    CHECK_EQ(l->by_cause[GW_CAUSE_STAGING], 202);
                    CHECK(l->by_cause[GW_CAUSE_RUNTIME] > 33);
                    CHECK_EQ(l->by_cause[GW_CAUSE_COMMUNICATION], 0);
                    CHECK_EQ(l->wire_bytes, 0);
                    CHECK_EQ(l->tokens_per_step, 40 * 2 * k);
                    check_waterfall(&p);
                    if (l->valid_extra_bytes == 0) check_items(&p);
                    planned_release(&p);
                }
}

TEST(optimizer_states_and_weights_are_what_the_dtypes_say) {
    /* with several micro-batches accumulators live through the loop, where the peak is: the whole
     * static sum is there
     */
    planned p;
    PLAN(&p,
         "model: {%s}\ntrain: {seq_len: 64, micro_batch: 4, accumulate: 4}\n"
         "precision: {compute: bf16}\n",
         families[1]);
    const gw_ledger *l = &p.ledger;
    CHECK_EQ(l->by_cause[GW_CAUSE_WEIGHTS], 2 * l->params);
    CHECK_EQ(l->by_cause[GW_CAUSE_GRADIENTS], 4 * l->params);
    CHECK_EQ(l->by_cause[GW_CAUSE_OPTIMIZER], 12 * l->params);
    CHECK_EQ(l->static_bytes, 18 * l->params);
    CHECK_EQ(l->persistent_bytes, 12 * l->params); /* all sizes are multiples of 16 elements */
    planned_release(&p);
}

static const char *const kept =
    "model: {family: llama, layers: 4, hidden: 64, heads: 4, ffn: 192, vocab: 64}\n"
    "train: {seq_len: 256, micro_batch: 4}\nprecision: {compute: bf16}\n";

TEST(recomputation_trades_memory_for_work_in_order) {
    int64_t bytes[3], activations[3];
    double hardware[3], recompute[3];
    for (int r = 0; r < 3; r++) {
        planned p;
        PLAN(&p, "%srecompute: {policy: %s}\n", kept, recomputes[r]);
        bytes[r] = p.ledger.arena_bytes;
        activations[r] = p.ledger.by_cause[GW_CAUSE_ACTIVATIONS];
        hardware[r] = p.ledger.flops.hardware;
        recompute[r] = p.ledger.flops.recompute;
        CHECK_EQ(p.ledger.recomputed_ops > 0, r > 0);
        planned_release(&p);
    }
    for (int r = 1; r < 3; r++) {
        CHECK(bytes[r] < bytes[r - 1]);
        CHECK(activations[r] < activations[r - 1]);
        CHECK(recompute[r] > recompute[r - 1]);
        CHECK_NEAR(hardware[r] - recompute[r], hardware[0], 1e-9 * hardware[0]);
    }
    int64_t budget = (bytes[0] + bytes[2]) / 2;
    planned p;
    PLAN(&p, "%srecompute: {policy: budget, budget: %lld}\n", kept, (long long)budget);
    CHECK(p.ledger.arena_bytes <= budget);
    CHECK(p.ledger.flops.recompute < recompute[2]);
    planned_release(&p);
}

TEST(work_doubles_with_micro_batches_and_memory_does_not) {
    planned one, two;
    PLAN(&one, "model: {%s}\ntrain: {seq_len: 64, micro_batch: 2, accumulate: 2}\n", families[1]);
    PLAN(&two, "model: {%s}\ntrain: {seq_len: 64, micro_batch: 2, accumulate: 4}\n", families[1]);
    CHECK_EQ(one.ledger.arena_bytes, two.ledger.arena_bytes);
    CHECK_NEAR(planned_flops(&two, "matmul"), 2 * planned_flops(&one, "matmul"), 0.5);
    CHECK_NEAR(planned_flops(&two, "adamw"), planned_flops(&one, "adamw"), 0.5);
    CHECK_NEAR(two.ledger.flops.model, 2 * one.ledger.flops.model, 0.5);
    planned_release(&one);
    planned_release(&two);
}

TEST(validation_that_does_not_fit_the_temporaries_is_counted) {
    /* sgd without momentum on one micro-batch with everything recomputed leaves few temporaries;
     * whatever comes out, the two figures must agree with what the executor does: reserve all or
     * nothing */
    for (size_t f = 0; f < GW_COUNT(families); f++) {
        planned p;
        planned_init(&p, true, (gw_ledger_fixed){0},
                     "model: {%s}\ntrain: {seq_len: 16, micro_batch: 1}\n"
                     "optimizer: {name: sgd, momentum: 0}\nrecompute: {policy: full}\n",
                     families[f]);
        const gw_ledger *l = &p.ledger;
        bool inside = l->valid_arena_bytes <= l->arena_bytes - l->persistent_bytes;
        CHECK_EQ(l->valid_arena_bytes, p.valid.arena_bytes[GW_MEM_DEVICE]);
        CHECK(l->valid_arena_bytes > 0);
        CHECK_EQ(l->valid_extra_bytes, inside ? 0 : l->valid_arena_bytes);
        CHECK_EQ(sum_of(l->by_cause), l->total_bytes);
        planned_release(&p);
    }
}

TEST(a_sample_of_the_waterfall_holds_the_peak) {
    planned p;
    PLAN(&p, "model: {%s}\ntrain: {seq_len: 64}\n", families[0]);
    int64_t ops[300];
    for (int n = 1; n <= 300; n += 23) {
        int count = gw_ledger_sample(&p.ledger, n, ops);
        bool peak = false;
        CHECK(count > 0 && count <= n);
        for (int i = 0; i < count; i++) {
            CHECK(ops[i] >= 0 && ops[i] < p.ledger.nops && (i == 0 || ops[i] > ops[i - 1]));
            peak = peak || ops[i] == (int64_t)p.ledger.peak_op;
        }
        CHECK(peak);
    }
    planned_release(&p);
}

TEST_WITHIN(arena_is_within_five_percent_of_its_lower_bound, 120) {
    static const char *const presets[] = {"gpt2",         "gpt2-medium",  "smollm2-135m",
                                          "smollm2-360m", "qwen2.5-0.5b", "qwen3-0.6b",
                                          "llama3-8b",    "mistral-7b"};
    static const char *const runs[] = {
        "precision: {compute: fp32}\n",
        "precision: {compute: bf16}\nrecompute: {policy: selective}\n",
        "precision: {compute: bf16, gradients: compute}\nrecompute: {policy: full}\n"};
    for (size_t i = 0; i < GW_COUNT(presets); i++)
        for (size_t r = 0; r < GW_COUNT(runs); r++) {
            planned p;
            PLAN(&p, "model: {preset: %s}\ntrain: {seq_len: 1024, accumulate: %d}\n%s", presets[i],
                 r == 1 ? 4 : 1, runs[r]);
            double over = gw_ledger_over_percent(&p.ledger);
            test_note("%s, run %zu: %.3f %%", presets[i], r, over);
            CHECK(over >= 0 && over <= 5);
            planned_release(&p);
        }
}

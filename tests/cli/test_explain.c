// SPDX-License-Identifier: Apache-2.0
// `gradwright explain` held to figures that are known from elsewhere: published papers, data
// sheets, and sums done by hand. Closed forms are evaluated through src/plan; that programs agree
// with them is asked of the command, with other layer counts, kv heads and vocabularies too.
#include <string.h> /* strtok_r */

#include "base/str.h"     /* gw_str */
#include "command.h"      /* command_run */
#include "harness.h"      /* TEST, CHECK */
#include "plan/explain.h" /* gw_explain */

typedef struct row {
    const char *id, *topic, *model, *inputs, *key;
    double expected, within; /* relative; 0: equal */
} row;

static const row known[] = {
    {"K1", "memory", NULL, "", "fp32", 16, 0},
    {"K1", "memory", NULL, "", "times32", 4, 0},
    {"K2", "memory", NULL, "", "mixed16", 16, 0},
    {"K2", "memory", NULL, "", "mixed18", 18, 0},
    {"K2", "memory", NULL, "", "fsdp2", 16, 0},
    {"K3", "memory", NULL, "N=7e9", "state", 112e9, 0},
    {"K3", "memory", "llama2-7b", "", "state", 16 * 6738415616.0, 0},
    {"K4", "memory", NULL, "N=250M", "state", 4e9, 0},
    {"K4", "memory", NULL, "N=250M", "sgd", 3e9, 0},
    {"K5", "lora", NULL, "N=7e9", "frozen", 14e9, 0},
    {"K5", "lora", NULL, "N=7e9", "payload4", 3.5e9, 0},
    {"K5", "lora", "llama2-7b", "", "frozen", 13.48e9, 0.005},
    {"K5", "lora", "llama2-7b", "", "nf4", 3.87e9, 0.005},
    {"K6", "memory", NULL, "", "frozen", 141107412992.0, 0},
    {"K7", "memory", NULL, "", "state", 1128859303936.0, 0},
    {"K7", "memory", NULL, "", "gpus", 15, 0},
    {"K7", "memory", NULL, "", "gpus_nodes", 16, 0},
    {"K7", "memory", NULL, "", "nodes", 2, 0},
    {"K8", "lora", NULL, "", "adapter", 207093760, 0},
    {"K8", "lora", NULL, "", "adapter_state", 16 * 207093760.0, 0},
    {"K8", "lora", NULL, "", "total", 144.42e9, 1e-4},
    {"K8", "lora", NULL, "", "left", 15.58e9, 1e-3},
    {"K8", "lora", NULL, "r=64", "adapter_state", 13.25e9, 1e-3},
    {"K9", "lora", NULL, "", "payload4", 70553706496.0 / 2, 0},
    {"K9", "lora", NULL, "", "linear4", 35.31e9, 1e-3},
    {"K9", "lora", NULL, "", "rest", 4.21e9, 3e-3},
    {"K9", "lora", NULL, "", "nf4", 39.52e9, 2e-4},
    {"K9", "lora", NULL, "", "nf4_single", 42.71e9, 2e-4},
    {"K9", "lora", NULL, "", "saved_bits", 0.373, 1e-3},
    {"K9", "lora", NULL, "", "saved", 3.19e9, 1e-3},
    {"K10", "lora", NULL, "", "dora", 6717440, 0},
    {"K10", "lora", NULL, "", "dora_share", 0.032, 0.02},
    {"K11", "zero", NULL, "n=8", "z1", 5.5 * 70553706496.0, 0},
    {"K11", "zero", NULL, "n=16", "z1", 335.13e9, 2e-5},
    {"K11", "zero", NULL, "n=32", "z1", 308.67e9, 2e-5},
    {"K11", "zero", NULL, "n=64", "z1", 295.44e9, 2e-5},
    {"K11", "zero", NULL, "n=8", "z2", 264.58e9, 2e-5},
    {"K11", "zero", NULL, "n=16", "z2", 202.84e9, 2e-5},
    {"K11", "zero", NULL, "n=32", "z2", 171.97e9, 3e-5},
    {"K11", "zero", NULL, "n=64", "z2", 156.54e9, 3e-5},
    {"K11", "zero", NULL, "n=8", "z3", 2 * 70553706496.0, 0},
    {"K11", "zero", NULL, "n=16", "z3", 70553706496.0, 0},
    {"K11", "zero", NULL, "n=32", "z3", 70553706496.0 / 2, 0},
    {"K11", "zero", NULL, "n=64", "z3", 70553706496.0 / 4, 0},
    {"K11", "zero", NULL, "n=8 N=70e9", "z1", 385e9, 0},
    {"K11", "zero", NULL, "n=64 N=70e9", "z2", 155.3e9, 1e-3},
    {"K12", "zero", NULL, "n=8", "wire0", 246.94e9, 2e-5},
    {"K12", "zero", NULL, "n=8", "wire3", 370.41e9, 2e-5},
    {"K12", "zero", NULL, "n=64", "wire0", 277.81e9, 2e-5},
    {"K12", "zero", NULL, "n=64", "wire3", 416.71e9, 2e-5},
    {"K12", "zero", NULL, "n=64", "ratio3", 1.5, 1e-12},
    {"K13", "ring", NULL, "n=8", "sent", 28.11e9, 2e-4},
    {"K13", "ring", NULL, "n=64", "sent", 31.62e9, 2e-4},
    {"K13", "ring", NULL, "n=1024", "sent", 32.09e9, 2e-4},
    {"K13", "ring", NULL, "n=8", "sent32", 56.21e9, 2e-4},
    {"K14", "ring", NULL, "", "hides", 7912, 1e-9},
    {"K14", "ring", NULL, "n=1024", "backward", 0.665, 0.01},
    {"K14", "ring", NULL, "n=1024", "seconds", 0.642, 0.01},
    {"K15", "collectives", NULL, "n=2", "factor", 1, 0},
    {"K15", "collectives", NULL, "n=4", "factor", 1.5, 0},
    {"K15", "collectives", NULL, "n=8", "factor", 1.75, 0},
    {"K15", "collectives", NULL, "n=1024", "factor", 1.998, 1e-4},
    {"K16", "collectives", NULL, "", "flat", 614, 0},
    {"K16", "collectives", NULL, "", "whole", 162, 0},
    {"K16", "collectives", NULL, "", "largest", 1.05e9, 0.01},
    {"K17", "collectives", NULL, "n=8", "tree_to", 11.5e6, 0.01},
    {"K17", "collectives", NULL, "n=64", "tree_to", 164e6, 0.01},
    {"K17", "collectives", NULL, "n=1024", "tree_to", 2.9e9, 0.01},
    {"K18", "tp", NULL, "", "token", 9.175e6, 0.01},
    {"K18", "tp", NULL, "", "micro", 75.2e9, 0.01},
    {"K18", "tp", NULL, "", "link_share", 0.152, 0.01},
    {"K18", "tp", NULL, "", "link_both", 0.076, 0.01},
    {"K18", "tp", NULL, "", "link_switch", 0.087, 0.01},
    {"K18", "tp", NULL, "", "nic_share", 1.37, 0.01},
    {"K18", "tp", NULL, "", "nic_twice", 2.94, 0.01},
    {"K19", "tp", NULL, "t=64", "inner", 448, 0},
    {"K19", "tp", NULL, "t=8", "columns", 3584, 0},
    {"K19", "tp", NULL, "t=16", "kv_copies", 2, 0},
    {"K19", "tp", NULL, "t=8", "kv_copies", 1, 0},
    {"K20", "pipeline", NULL, "m=16", "bubble", 0.938, 1e-3},
    {"K20", "pipeline", NULL, "m=32", "bubble", 0.469, 1e-3},
    {"K20", "pipeline", NULL, "m=64", "bubble", 0.234, 3e-3},
    {"K20", "pipeline", NULL, "m=128", "bubble", 0.117, 3e-3},
    {"K20", "pipeline", NULL, "m=16", "bubble_step", 0.484, 1e-3},
    {"K20", "pipeline", NULL, "m=32", "bubble_step", 0.319, 1e-3},
    {"K20", "pipeline", NULL, "m=64", "bubble_step", 0.190, 2e-3},
    {"K20", "pipeline", NULL, "m=128", "bubble_step", 0.105, 2e-3},
    {"K20", "pipeline", NULL, "m=16 v=8", "bubble", 0.117, 3e-3},
    {"K20", "pipeline", NULL, "m=128 v=8", "bubble", 0.015, 0.03},
    {"K20", "pipeline", NULL, "m=128 v=8", "bubble_step", 0.014, 0.04},
    {"K21", "pipeline", NULL, "m=128", "held_first", 16, 0},
    {"K21", "pipeline", NULL, "m=128", "held_last", 1, 0},
    {"K21", "pipeline", NULL, "m=128", "held_gpipe", 128, 0},
    {"K21", "pipeline", NULL, "m=128", "layers_held", 126, 0},
    {"K22", "recompute", NULL, "", "third", 1.333, 0.005},
    {"K23", "recompute", NULL, "", "full_saves", 57, 0.01},
    {"K23", "recompute", NULL, "", "full_saves_flash", 17, 0.01},
    {"K23", "recompute", NULL, "", "selective", 0.70, 0.01},
    {"K23", "recompute", NULL, "", "selective_flops", 0.027, 0.01},
    {"K24", "cp", NULL, "", "gpt_block", 34.0 * 131072 * 16384, 0},
    {"K24", "cp", NULL, "", "gpt_rank", 4.56e9, 1e-3},
    {"K24", "cp", NULL, "", "factor", 31.75, 0},
    {"K24", "cp", NULL, "", "llama_block", 68.2e9, 1e-3},
    {"K24", "cp", "llama3.1-70b", "", "gpt_block", 36.5e9, 1e-3},
    {"K25", "cp", NULL, "", "hop", 33.55e6, 1e-3},
    {"K25", "cp", NULL, "", "hops", 503.3e6, 1e-3},
    {"K25", "cp", NULL, "", "hides", 1237, 0.01},
    {"K25", "cp", NULL, "", "rank", 8192, 0},
    {"K26", "cp", NULL, "", "square", 0.667, 0.01},
    {"K26", "cp", NULL, "", "square_full", 1.33, 0.01},
    {"K27", "moe", NULL, "", "dispatch", 234.9e6, 0.02},
    {"K27", "moe", NULL, "", "dispatch_scales", 242.2e6, 0.02},
    {"K27", "moe", NULL, "", "combine", 469.8e6, 0.02},
    {"K27", "moe", NULL, "", "forward", 704.6e6, 0.02},
    {"K27", "moe", NULL, "", "ib_dispatch", 117.4e6, 0.02},
    {"K27", "moe", NULL, "", "ib_combine", 234.9e6, 0.02},
    {"K27", "moe", NULL, "", "ib_token", 1.72e-6, 0.02},
    {"K27", "moe", NULL, "", "compute_token", 1.75e-6, 0.02},
    {"K27", "moe", NULL, "", "ratio", 0.98, 0.02},
    {"K28", "moe", NULL, "", "hot_times", 8.86, 1e-3},
    {"K28", "moe", NULL, "", "cold_times", 0.111, 5e-3},
    {"K28", "moe", NULL, "", "rank_times", 2.30, 2e-3},
    {"K28", "moe", NULL, "CF=1", "dropped", 0.798, 1e-3},
    {"K28", "moe", NULL, "CF=1.25", "dropped", 0.773, 1e-3},
    {"K28", "moe", NULL, "CF=2", "dropped", 0.697, 1e-3},
    {"K29", "fleet", NULL, "", "gpus", 16384, 0},
    {"K29", "fleet", NULL, "", "state", 6.494e12, 0.005},
    {"K29", "fleet", NULL, "", "state_gpus", 81.2, 0.005},
    {"K29", "fleet", NULL, "", "weights_gpu", 6.34e9, 0.005},
    {"K29", "fleet", NULL, "", "z1", 12.98e9, 0.005},
    {"K29", "fleet", NULL, "", "z1_32", 19.32e9, 0.005},
    {"K29", "fleet", NULL, "", "m", 16, 0},
    {"K29", "fleet", NULL, "", "bubble", 0.938, 0.005},
    {"K29", "fleet", NULL, "", "bubble_v", 0.117, 0.005},
    {"K29", "fleet", NULL, "", "tp_step", 236.8e9, 0.005},
    {"K29", "fleet", NULL, "", "dp_step", 18.9e9, 0.005},
    {"K29", "fleet", NULL, "", "pp_micro", 33.6e6, 0.005},
    {"K29", "fleet", NULL, "", "work", 3.80e25, 0.005},
    {"K29", "fleet", NULL, "", "days", 70.6, 0.005},
    {"K30a", "precision", NULL, "", "fp16_least", 5.9604644775390625e-8, 0},
    {"K30a", "precision", NULL, "", "fp16_lost", 2.98023223876953125e-8, 0},
    {"K30a", "precision", NULL, "", "fp16_coarse", 6.103515625e-5, 0},
    {"K30a", "precision", NULL, "", "fp16_most", 65504, 0},
    {"K30a", "precision", NULL, "x=65519", "fp16_of_x", 65504, 0},
    {"K30b", "precision", NULL, "", "vanishes_above", 0.0078125, 0},
    {"K30b", "precision", NULL, "", "half_ulp", 3.0517578125e-5, 0},
    {"K30b", "precision", NULL, "w=0.0077", "up", 1, 0},
    {"K30b", "precision", NULL, "", "up", 0, 0},
    {"K30b", "precision", NULL, "", "down", 1, 0},
    {"K30b", "precision", NULL, "", "share", 0.696, 1e-3},
    {"K30b", "precision", NULL, "", "digits", 2.4, 0.005},
    {"K31", "precision", NULL, "", "fp8_rows", 0.03125, 0},
    {"K31", "precision", NULL, "", "fp8_tiles", 0.000244, 1e-3},
    {"K31", "precision", NULL, "", "mx_scale", 0.03125, 0},
    {"K32", "memory", NULL, "N=100e9", "nodes_exact", 2.5, 0},
    {"K32", "memory", NULL, "N=100e9", "nodes", 3, 0},
    {"K32", "memory", NULL, "N=100e9", "nodes_usable", 4, 0},
    {"K33", "zero", NULL, "", "hides", 7912, 0.01},
    {"K33", "zero", NULL, "", "hides32", 10549, 0.01},
    {"K33", "zero", NULL, "p=16 m=16 v=8", "bubble", 0.117, 0.01},
    {"K34", "mfu", NULL, "", "flops", 384e12, 0.001},
    {"K34", "mfu", NULL, "", "flops_causal", 400e12, 0.001},
    {"K34", "mfu", NULL, "", "flops_full", 416e12, 0.001},
    {"K35", "checkpoint", NULL, "", "state14", 14 * 405853388800.0, 0},
    {"K35", "checkpoint", NULL, "", "rank14", 346.8e6, 2e-4},
    {"K35", "checkpoint", NULL, "", "few14", 11.1e9, 2e-3},
    {"K35", "checkpoint", NULL, "", "state12", 12 * 405853388800.0, 0},
    {"K35", "checkpoint", NULL, "", "rank12", 297.3e6, 2e-4},
    {"K36", "checkpoint", NULL, "", "every", 1156, 0.01},
    {"K37", "tokenizing", NULL, "", "core_days", 694.4, 1e-4},
    {"K37", "tokenizing", NULL, "", "core_days_fast", 0.69, 0.01},
    {"K38", "tokenizing", NULL, "", "u16", 30e12, 0},
    {"K38", "tokenizing", NULL, "", "u32", 60e12, 0},
    {"K38", "tokenizing", NULL, "", "train_days", 102.1, 1e-3},
    {"K38", "tokenizing", NULL, "", "hundred", 1.736e6, 1e-3},
    {"K38", "loader", NULL, "", "run2", 3.4e6, 0},
    {"K39", "tokenizing", NULL, "", "rate", 12.4e6, 0.01},
    {"K39", "tokenizing", NULL, "", "rate_text", 49.6e6, 0.01},
    {"K39", "tokenizing", NULL, "", "cores", 50, 0},
    {"K39", "tokenizing", NULL, "", "rate_raw", 2.48e9, 0.01},
    {"K40", "loader", NULL, "", "node", 392736, 0},
    {"K41", "object-store", NULL, "", "in_flight", 78.1, 0.01},
    {"K41", "object-store", NULL, "rate=1.25e9 size=1e6", "in_flight", 62.5, 1e-12},
    {"K41", "object-store", NULL, "", "one_small", 2e6, 1e-12},
    {"K41", "object-store", NULL, "", "half", 4.4e6, 0.01},
    {"K42", "storage", NULL, "", "object_month", 23000, 1e-12},
    {"K42", "storage", NULL, "", "file_month", 145000, 1e-12},
    {"K42", "storage", NULL, "", "file_fast_month", 600000, 1e-12},
    {"K42", "storage", NULL, "", "files", 1.83e9, 2e-3},
    {"K42", "storage", NULL, "", "files_64", 468750, 0},
    {"K42", "storage", NULL, "", "files_1g", 30000, 0},
    {"K43", "fleet", NULL, "", "busy", 12.5, 0},
    {"K43", "fleet", NULL, "", "p99", 21, 0},
    {"K43", "fleet", NULL, "", "p999", 24, 0},
    {"K43", "fleet", NULL, "", "held", 37.5, 0},
    {"K43", "fleet", NULL, "", "held99", 51, 0},
    {"K43", "fleet", NULL, "", "apart", 300, 0},
    {"K44", "fleet", NULL, "", "serve_gpus", 800, 0},
    {"K44", "fleet", NULL, "", "serve_bytes", 14e12, 0},
    {"K44", "fleet", NULL, "", "serve_least", 200, 0},
    {"K44", "lora", NULL, "", "small", 32768000, 0},
    {"K44", "lora", NULL, "", "small_all", 3.3e9, 0.01},
    {"K44", "lora", NULL, "", "large", 414187520, 0},
    {"K44", "lora", NULL, "", "large_all", 41.4e9, 1e-3},
    {"K45", "lora", "llama3-8b", "adapters=300", "large", 83.9e6, 0.01},
    {"K45", "lora", "llama3-8b", "adapters=300", "large_all", 25.2e9, 0.01},
    {"K45", "lora", "llama3-8b", "", "frozen", 16.1e9, 0.01},
    {"K45", "lora", "llama3-8b", "", "read", 4.79e-3, 0.01},
    {"K45", "lora", "llama3-8b", "", "read_more", 0.80e-3, 0.01},
    {"K45", "lora", "llama3-8b", "", "slower", 0.17, 0.02},
    {"K46", "object-store", NULL, "", "node_rate", 39.2e6, 0.01},
    {"K46", "object-store", NULL, "", "node_bits", 0.31e9, 0.02},
    {"K46", "object-store", NULL, "", "from_origin", 3.13 * 3600, 0.01},
    {"K46", "object-store", NULL, "", "fan_out", 113, 0.01},
    {"K46", "object-store", NULL, "nic=3.125e9", "fan_out", 45, 0.01},
    {"K47", "memory", NULL, "", "dpo", 18 * 70553706496.0, 0},
    {"K47", "memory", NULL, "", "dpo_flops", 8, 0},
    {"K48", "fleet", NULL, "", "release", 1.47, 3e-3},
    {"K49", "memory", "llama3-8b", "", "large_batch", 8.0 * 34 * 8192 * 4096 * 32, 0},
    {"K49", "memory", "llama3-8b", "", "accumulated", 34.0 * 8192 * 4096 * 32, 0},
    {"K50", "zero", NULL, "", "zeropp", 0.75, 0},
    {"K50", "zero", NULL, "", "zeropp8", 1, 0},
    {"K51", "zero", NULL, "n=64", "offload_pcie", 4.41e9, 1e-3},
    {"K51", "zero", NULL, "n=64", "offload_disk", 26.46e9, 1e-3},
};

/* Figures without programs. */
static void open_topic(gw_explain *e, const char *topic, const char *model, const char *inputs,
                       gw_diags *dg) {
    char words[200], *save;
    const gw_explain_topic *t = gw_explain_topic_find(topic);
    CHECK_MSG(t, "%s", topic);
    CHECK_OK(gw_explain_init(e, t, model, (gw_explain_compiler){0}, dg), dg);
    snprintf(words, sizeof words, "%s", inputs);
    for (char *w = strtok_r(words, " ", &save); w; w = strtok_r(NULL, " ", &save))
        CHECK_OK(gw_explain_set(e, w, dg), dg);
    CHECK_OK(gw_explain_run(e, dg), dg);
}

static gw_explain explained;

static double figure_of(const char *topic, const char *model, const char *inputs, const char *key) {
    gw_diags dg;
    gw_diags_init(&dg);
    open_topic(&explained, topic, model, inputs, &dg);
    const gw_explain_result *r = gw_explain_result_find(&explained, key);
    CHECK_MSG(r, "%s has no %s", topic, key);
    double x = r->value;
    gw_explain_release(&explained);
    gw_diags_release(&dg);
    return x;
}

TEST(every_known_figure_comes_out) {
    int bad = 0;
    for (size_t i = 0; i < GW_COUNT(known); i++) {
        const row *k = &known[i];
        double x = figure_of(k->topic, k->model, k->inputs, k->key);
        if (fabs(x - k->expected) <= k->within * fabs(k->expected)) continue;
        test_note("%s: explain %s %s: %s = %.17g, not %.17g", k->id, k->topic, k->inputs, k->key, x,
                  k->expected);
        bad++;
    }
    CHECK_EQ(bad, 0);
}

/* 65,520 is the first that rounds to infinity. */
TEST(fp16_overflows_where_it_must) {
    CHECK(isinf(figure_of("precision", NULL, "x=65520", "fp16_of_x")));
}

/* No line without a value, and no name that formulas do not know. */
TEST(every_line_of_every_topic_is_a_number) {
    const gw_explain_topic *t;
    gw_diags dg;
    gw_diags_init(&dg);
    for (int i = 0; (t = gw_explain_topic_at(i)) != NULL; i++) {
        open_topic(&explained, t->name, NULL, "", &dg);
        for (int k = 0; k < explained.nresults; k++)
            CHECK_MSG(isfinite(explained.results[k].value), "%s %s", t->name,
                      explained.results[k].line->key);
        gw_explain_release(&explained);
    }
    CHECK(gw_explain_topic_at(18) != NULL);
    gw_diags_release(&dg);
}

/* ---- the command ---- */

/* At least `least` figures are read from programs, and all agree. */
static void agrees(const char *words, int least) {
    json_t *j = command_json("explain %s --json", words), *line;
    size_t i;
    int read = 0;
    json_array_foreach(json_object_get(j, "lines"), i, line) {
        json_t *a = json_object_get(line, "agrees");
        if (!a || json_is_null(a)) continue;
        CHECK_MSG(json_is_true(a), "%s", json_string_value(json_object_get(line, "key")));
        read++;
    }
    CHECK_MSG(read >= least, "%s: %d figures from programs, not %d", words, read, least);
    json_decref(j);
}

TEST_WITHIN(programs_have_the_same_states, 120) {
    agrees("memory --model llama3-8b L=5 kv=4 V=50000", 8);
    agrees("zero --model llama3-8b L=3 kv=2 V=4096 n=4 p=4 m=8", 7);
    agrees("lora --model llama3-8b L=4 V=1000", 1);
}

TEST_WITHIN(programs_send_the_same, 120) {
    agrees("ring --model llama3-8b L=3 kv=4 V=8192 n=4", 2);
    agrees("tp L=7 kv=4 V=16384 t=4", 4);
    agrees("tp t=16 L=3", 4);
    agrees("sp L=6 kv=16 V=8192 t=4", 2);
    agrees("cp --model llama3-8b kv=4 L=5 V=512 C=4 s=8192", 3);
    agrees("moe R=4 T=1024", 1);
}

TEST_WITHIN(programs_take_the_same_time, 120) {
    agrees("pipeline p=8 m=24 L=16", 5);
    agrees("pipeline p=4 m=12 v=3", 5);
    agrees("recompute L=6 kv=4 V=512", 1);
    agrees("mfu --model llama3-8b L=5 kv=4 V=1000 s=2048", 3);
}

TEST(wrong_words_are_refused_with_the_known_ones) {
    gw_str out = {0};
    CHECK_EQ(command_run_both(&out, "explain zero nodes=3 n=-1 n=1.5"), 2);
    CHECK(command_says(&out, "nodes=3") && command_says(&out, "explain-input") &&
          command_says(&out, "Nlookup"));
    CHECK(command_says(&out, "'-1'") && command_says(&out, "whole number"));
    CHECK_EQ(command_run_both(&out, "explain zer"), 2);
    CHECK(command_says(&out, "did you mean zero?"));
    CHECK_EQ(command_run_both(&out, "explain zero --model nothing"), 2);
    CHECK(command_says(&out, "llama3-8b"));
    CHECK_EQ(command_run_both(&out, "explain loader --model llama3-8b"), 2);
    CHECK_EQ(command_run_both(&out, "explain tp kv=3"), 2);
    gw_str_release(&out);
}

TEST(without_a_topic_all_are_listed_and_messages_are_explained) {
    const gw_explain_topic *t;
    gw_str out = {0};
    CHECK_EQ(command_run(&out, "explain"), 0);
    for (int i = 0; (t = gw_explain_topic_at(i)) != NULL; i++) CHECK(command_says(&out, t->name));
    CHECK_EQ(command_run_both(&out, "explain memory-short"), 0);
    CHECK(command_says(&out, "means") && command_says(&out, "what to do") &&
          command_says(&out, "gradwright plan"));
    CHECK_EQ(command_run_both(&out, "explain memory-short n=3"), 2);
    gw_str_release(&out);
}

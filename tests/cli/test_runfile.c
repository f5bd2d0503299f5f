// SPDX-License-Identifier: Apache-2.0
// The run file: every key is accepted and survives printing; every fault is refused where it
// stands.
#include <stdlib.h> /* free */
#include <string.h> /* strstr */

#include "base/str.h"          /* gw_str */
#include "harness.h"           /* TEST, CHECK */
#include "model/model.h"       /* gw_model_preset_name */
#include "train/runfile.h"     /* gw_runfile */
#include "train/runfile_key.h" /* gw_rf_keys */

/* Run files in which, between them, every key has an effect. */
static const char *const contexts[] = {
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\ndata: {valid: v}\n",
    "model: {family: gpt2, layers: 2, hidden: 64, heads: 4}\noptimizer: {name: sgd}\n",
    "model: {family: mistral, layers: 2, hidden: 64, heads: 4}\noptimizer: {name: muon}\n",
    "model: {family: qwen3, layers: 2, hidden: 64, heads: 4}\noptimizer: {schedule: wsd}\n",
    "model: {path: some/dir}\nprecision: {compute: fp16}\n",
    "model: {preset: smollm2-135m}\nprecision: {compute: bf16, master: none}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4, rope_scaling: {type: llama3}}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
    "recompute: {policy: ops, ops: [matmul]}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
    "recompute: {policy: budget, budget: 1GB}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\noptimizer: {schedule: constant}\n"
    "checkpoint: {async: false}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\nlayout: {zero: 3}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\noffload: {optimizer: disk}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
    "optimizer: {name: sgd, momentum: 0}\n",
    "model: {family: resnet18, classes: 3}\ndata: {valid: v}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 8}\nlayout: {tp: 2, cp: 4}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 8}\n"
    "layout: {tp: 2, cp: 4, cp_mode: hybrid, cp_ulysses: 2}\n",
    "model: {family: gpt2, layers: 2, hidden: 64, heads: 8}\n"
    "layout: {cp: 4, cp_mode: hybrid, cp_ulysses: 2}\n",
    "model: {path: some/dir}\nlayout: {ep: 4}\n",
    "model: {family: mixtral, layers: 2, hidden: 64, heads: 4, moe: {balance: bias, capacity: "
    "2}}\n",
    "model: {family: deepseek, layers: 4, hidden: 64, heads: 4, moe: {groups: 4, experts: 16}}\n",
    "model: {family: qwen3_moe, layers: 2, hidden: 64, heads: 4, moe: {balance: none}}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 8, rope_scaling: {type: yarn}}\n",
    "model: {family: llama, layers: 6, hidden: 64, heads: 4}\nlayout: {pp: 2}\n",
    "model: {family: llama, layers: 6, hidden: 64, heads: 4}\nlayout: {pp: 2, schedule: zb-2p}\n",
    "model: {family: llama, layers: 2, hidden: 64, heads: 4}\n"
    "data: {train: [a, {path: b, weight: 2}], cache: c}\n",
    "train: {steps: 100}\n",
};

static gw_status parse(gw_runfile *rf, const char *text, const char *set, gw_diags *dg) {
    const char *sets[1] = {set};
    return gw_runfile_parse(rf, "run.yaml", text, (int64_t)strlen(text), sets, set ? 1 : 0, dg);
}

/* A legal value that is not the default, as YAML. */
static void some_value(const gw_rf_key *k, gw_str *out) {
    switch (k->type) {
    case GW_RF_T_BOOL: gw_str_add(out, gw_str_eq(k->fallback, "true") ? "false" : "true"); return;
    case GW_RF_T_INT:
        gw_str_printf(out, "%d", (int)GW_MIN(k->check.hi, GW_MAX(k->check.lo, 4.0)));
        return;
    case GW_RF_T_REAL:
        gw_str_printf(out, "%g", k->check.hi >= 5 ? 2.5 + k->check.lo : k->check.hi * 0.625);
        return;
    case GW_RF_T_TEXT:
        gw_str_add(out, gw_str_eq(k->path, "model.preset")      ? "gpt2"
                        : gw_str_eq(k->path, "layout.schedule") ? "zb-h1"
                                                                : "some/path-1.x");
        return;
    case GW_RF_T_ENUM: {
        const gw_rf_name *n = k->check.names;
        while (n[1].name && n[1].value > n->value) n++;
        gw_str_add(out, n->name);
        return;
    }
    case GW_RF_T_BYTES: gw_str_add(out, "3MiB"); return;
    case GW_RF_T_COUNTS: gw_str_add(out, "[0, 6]"); return;
    case GW_RF_T_LIST: gw_str_add(out, "[rmsnorm, attention]"); return;
    case GW_RF_T_PAIR: gw_str_add(out, "[0.25, 0.5]"); return;
    case GW_RF_T_MIXTURE:
        gw_str_add(out,
                   "[{path: data/web, weight: 0.7}, {path: data/code, weight: 0.3, epochs: 2}]");
        return;
    case GW_RF_T_STAGES:
        gw_str_add(out, "[{tokens: 2000, weights: [0.5, 0.5]}, {weights: [0, 1]}]");
        return;
    case GW_RF_T_MAP: gw_str_add(out, "{\"*norm*\": none, \"*.mlp.*\": none}"); return;
    }
}

static void check_round_trip(const gw_runfile *rf, const char *path) {
    gw_str yaml = {0}, again = {0}, json = {0}, json_again = {0}, bare = {0};
    gw_runfile_yaml(rf, true, &yaml);
    gw_runfile_yaml(rf, false, &bare);
    gw_runfile_json(rf, &json);
    for (int with_comments = 0; with_comments < 2; with_comments++) {
        gw_diags dg;
        gw_diags_init(&dg);
        gw_runfile back;
        const char *text = gw_str_c(with_comments ? &yaml : &bare);
        CHECK_OK(parse(&back, text, NULL, &dg), &dg);
        CHECK(gw_runfile_is_set(&back, path));
        gw_str_clear(&again);
        gw_str_clear(&json_again);
        gw_runfile_yaml(&back, true, &again);
        gw_runfile_json(&back, &json_again);
        CHECK_STR(gw_str_c(&again), gw_str_c(&yaml));
        CHECK_STR(gw_str_c(&json_again), gw_str_c(&json));
        gw_runfile_release(&back);
        gw_diags_release(&dg);
    }
    gw_str_release(&yaml);
    gw_str_release(&again);
    gw_str_release(&json);
    gw_str_release(&json_again);
    gw_str_release(&bare);
}

/* Tries the key in one context, by --set. True when accepted, and then it must be printed and read
 * back. */
static bool accepted_in(const gw_rf_key *k, const char *value, const char *context) {
    gw_diags dg;
    gw_runfile rf;
    gw_str text = {0}, set = {0};
    gw_diags_init(&dg);
    gw_str_printf(&set, "%s=%s", k->path, value);
    gw_str_add(&text, context);
    if (gw_str_eq(context, contexts[GW_COUNT(contexts) - 1])) gw_str_add(&text, "model: {}\n");
    bool ok = parse(&rf, gw_str_c(&text), gw_str_c(&set), &dg) == GW_OK;
    if (ok) check_round_trip(&rf, k->path);
    if (ok) CHECK(gw_str_starts(gw_runfile_where(&rf, k->path).file, "--set "));
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
    gw_str_release(&text);
    gw_str_release(&set);
    return ok;
}

TEST(every_key_is_accepted_printed_and_read_back) {
    for (int i = 0; i < gw_rf_nkeys; i++) {
        gw_str value = {0};
        some_value(&gw_rf_keys[i], &value);
        int accepted = 0;
        for (size_t c = 0; c < GW_COUNT(contexts); c++)
            accepted += accepted_in(&gw_rf_keys[i], gw_str_c(&value), contexts[c]);
        CHECK_MSG(accepted > 0, "%s=%s is accepted nowhere", gw_rf_keys[i].path, gw_str_c(&value));
        gw_str_release(&value);
    }
}

/* A key with a condition is refused by name where the condition does not hold. */
TEST(no_key_is_silently_without_effect) {
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const gw_rf_key *k = &gw_rf_keys[i];
        gw_str value = {0}, set = {0};
        some_value(k, &value);
        gw_str_printf(&set, "%s=%s", k->path, gw_str_c(&value));
        int refused = 0;
        for (size_t c = 0; c < GW_COUNT(contexts); c++) {
            gw_diags dg;
            gw_runfile rf;
            gw_diags_init(&dg);
            gw_status s = parse(&rf, contexts[c], gw_str_c(&set), &dg);
            for (const gw_diag *g = dg.first; g; g = g->next)
                if (gw_str_eq(g->id, "config-no-effect") && gw_str_starts(g->message, k->path)) {
                    CHECK(s == GW_ERR_CONFIG);
                    CHECK(strstr(g->message, k->only) != NULL);
                    refused++;
                }
            gw_runfile_release(&rf);
            gw_diags_release(&dg);
        }
        CHECK_MSG((refused > 0) == (*k->only != 0), "%s: refused in %d contexts, condition '%s'",
                  k->path, refused, k->only);
        gw_str_release(&value);
        gw_str_release(&set);
    }
}

TEST(names_of_other_trainers_lead_to_keys) {
    const char *name, *key;
    int n = 0;
    for (; gw_runfile_alias(n, &name, &key); n++) {
        CHECK_MSG(!*key || gw_rf_key_find(key) >= 0, "%s leads to %s, which is no key", name, key);
        gw_str text = {0};
        gw_diags dg;
        gw_runfile rf;
        gw_diags_init(&dg);
        /* In a section that has no such key, where users of flat configurations put it. */
        gw_str_printf(&text, "model: {preset: gpt2}\ncheckpoint:\n  %s: 1\n", name);
        CHECK_FAILS(parse(&rf, gw_str_c(&text), NULL, &dg), &dg,
                    *key ? key : "a degree of 1 may be left out");
        CHECK_STR(dg.first->id, "config-unknown-key");
        CHECK_EQ(dg.first->where.line, 3);
        CHECK_EQ(dg.first->where.column, 3);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&text);
    }
    CHECK_MSG(n >= 60, "%d names", n);
}

// ------------------------------------------------------------------ faults and their places

typedef struct fault {
    const char *text, *id;
    int line, column;
    const char *says;
} fault;

#define LLAMA "model:\n  family: llama\n  layers: 2\n  hidden: 64\n  heads: 4\n" /* 5 lines */

static const fault faults[] = {
    {LLAMA "  num_hidden_layers: 4\n", "config-unknown-key", 6, 3, "model.layers"},
    {LLAMA "train:\n  stpes: 4\n", "config-unknown-key", 7, 3, "train.steps"},
    {LLAMA "train:\n  lr: 1e-3\n", "config-unknown-key", 7, 3, "optimizer.lr"},
    {LLAMA "gradient_accumulation_steps: 4\n", "config-unknown-key", 6, 1, "train.accumulate"},
    {LLAMA "training:\n  steps: 4\n", "config-unknown-key", 6, 1, "'train'"},
    {LLAMA "model.layers: 4\n", "config-unknown-key", 6, 1, "model.layers"},
    {LLAMA "train:\n  steps:   ten\n", "config-type", 7, 12, "an integer"},
    {LLAMA "train:\n  steps: 10.5\n", "config-type", 7, 10, "an integer"},
    {LLAMA "train:\n  steps: 1e3\n", "config-type", 7, 10, "1000"},
    {LLAMA "train:\n  steps: '10'\n", "config-type", 7, 10, "without quotes"},
    {LLAMA "train:\n  steps: 1_000\n", "config-type", 7, 10, "separators"},
    {LLAMA "train:\n  steps: [1]\n", "config-type", 7, 10, "a list"},
    {LLAMA "train:\n  steps:\n", "config-type", 7, 3, "nothing"},
    {LLAMA "train:\n  steps: 0\n", "config-range", 7, 10, "at least 1"},
    {LLAMA "train:\n  steps: -3\n", "config-range", 7, 10, "at least 1"},
    {LLAMA "train:\n  steps: 99999999999999999999\n", "config-range", 7, 10, "at least 1"},
    {LLAMA "data:\n  pack: yes\n", "config-type", 7, 9, "true and false"},
    {LLAMA "data:\n  pack: on\n", "config-type", 7, 9, "true and false"},
    {LLAMA "data:\n  train: 12\n", "config-type", 7, 10, "quote"},
    {LLAMA "data:\n  train: ''\n", "config-value", 7, 10, "empty"},
    {LLAMA "optimizer:\n  lr: fast\n", "config-type", 7, 7, "a number"},
    {LLAMA "optimizer:\n  lr: .nan\n", "config-range", 7, 7, "optimizer.lr"},
    {LLAMA "optimizer:\n  lr: .inf\n", "config-range", 7, 7, "optimizer.lr"},
    {LLAMA "optimizer:\n  lr: 1e999\n", "config-range", 7, 7, "optimizer.lr"},
    {LLAMA "optimizer:\n  betas: [0.9, 1.5]\n", "config-range", 7, 16, "optimizer.betas"},
    {LLAMA "optimizer:\n  betas: 0.9\n", "config-type", 7, 10, "two numbers"},
    {LLAMA "optimizer:\n  betas: [0.9]\n", "config-type", 7, 10, "two numbers"},
    {LLAMA "optimizer:\n  name: adam\n", "config-value", 7, 9, "adamw"},
    {LLAMA "optimizer:\n  momentum: 0.9\n", "config-no-effect", 7, 13, "optimizer.name is sgd"},
    {LLAMA "recompute:\n  budget: 1GB\n", "config-no-effect", 7, 11, "recompute.policy is budget"},
    {LLAMA "recompute:\n  policy: budget\n", "config-missing", 7, 11, "recompute.budget"},
    {LLAMA "recompute:\n  policy: ops\n", "config-missing", 7, 11, "recompute.ops"},
    {LLAMA "layout:\n  dp: 8\n  zero: 1\n  dp_replicate: 3\n", "config-layout", 9, 17,
     "does not divide"},
    {LLAMA "layout:\n  dp_replicate: 2\n", "config-no-effect", 7, 17, "layout.zero is 1"},
    {LLAMA "layout:\n  bucket: 1MB\n  first_bucket: 2MB\n", "config-layout", 8, 17, "larger"},
    {LLAMA "precision: {compute: fp16}\nlayout:\n  zero: 3\n  weight_wire: bf16\n", "config-layout",
     9, 16, "weights in fp16"},
    {LLAMA "precision: {compute: fp16, gradients: compute}\nlayout:\n  zero: 2\n"
           "  gradient_wire: bf16\n",
     "config-layout", 9, 18, "gradients in fp16"},
    {LLAMA "layout:\n  gradient_wire: int4\n", "config-layout", 7, 18, "scattered"},
    {LLAMA "layout:\n  zero: 1\noptimizer: {name: muon}\n", "config-layout", 7, 9, "whole"},
    {LLAMA "layout:\n  zero_stage: 2\n", "config-unknown-key", 7, 3, "layout.zero"},
    {LLAMA "train: {global_batch: 8, micro_batch: 2, accumulate: 3}\n", "config-conflict", 6, 23,
     "= 6"},
    {LLAMA "train:\n  seq_len: 4096\nmodel: {}\n", "config-duplicate", 8, 1, "line 1"},
    {LLAMA "  layers: 3\n", "config-duplicate", 6, 3, "line 3"},
    {LLAMA "  max_positions: 128\ntrain: {seq_len: 256}\n", "config-value", 7, 18, "128"},
    {LLAMA "  kv_heads: 3\n", "config-value", 6, 13, "kv_heads 3"},
    {LLAMA "  path: x\n", "config-conflict", 6, 9, "more than one"},
    {"model:\n  family: llama\n  layers: 2\n  hidden: 66\n  heads: 4\n", "config-value", 5, 10,
     "does not divide"},
    {"model:\n  family: llama\n  layers: 2\n  hidden: 64\n", "config-missing", 2, 11,
     "model.heads"},
    {"model:\n  preset: gpt9\n", "config-value", 2, 11, "gpt2"},
    {"model:\n  path: d\n  layers: 3\n", "config-no-effect", 3, 11, "model.path is absent"},
    {"train:\n  steps: 3\n", "config-missing", 0, 0, "which model"},
    {"model: gpt2\n", "config-type", 1, 1, "preset: gpt2"},
    {"model: llama\n", "config-type", 1, 1, "family: llama"},
    {"model: family llama\n", "config-type", 1, 1, "model: {family: llama}"},
    {LLAMA "train: steps 5\n", "config-type", 6, 1, "train: {steps: 5}"},
    {LLAMA "optimizer:\n  type: adamw\n", "config-unknown-key", 7, 3, "optimizer.name"},
    {LLAMA "  name: tiny\n", "config-unknown-key", 6, 3, "model.preset"},
    {LLAMA "  hidden_act: silu\n", "config-unknown-key", 6, 3, "the family fixes"},
    {LLAMA "train:\n  type: x\n", "config-unknown-key", 7, 3, "its keys: steps"},
    {LLAMA "layout:\n  ep: 2\n", "config-layout", 7, 7, "has no experts"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    top: 9\n",
     "config-value", 7, 10, "more than model.moe.experts 8"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    "
     "num_local_experts: 4\n",
     "config-unknown-key", 7, 5, "model.moe.experts"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    balance: aux\n",
     "config-value", 7, 14, "none, sequence, batch, bias"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    bias_rate: "
     "0.01\n",
     "config-no-effect", 7, 16, "balance is bias"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    drop: score\n",
     "config-no-effect", 7, 11, "capacity is above 0"},
    {"model:\n  family: mixtral\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    shared: 2\n",
     "config-no-effect", 7, 13, "family is deepseek"},
    {"model:\n  family: deepseek\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    groups: 3\n",
     "config-value", 7, 13, "does not divide"},
    {"model:\n  family: deepseek\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    group_limit: "
     "2\n",
     "config-value", 7, 18, "more than model.moe.groups"},
    {"model:\n  family: deepseek\n  layers: 2\n  hidden: 64\n  heads: 4\n  moe:\n    dense_layers: "
     "3\n",
     "config-value", 7, 19, "more than model.layers 2"},
    {LLAMA "layout:\n  tensor_model_parallel_size: 2\n", "config-unknown-key", 7, 3, "layout.tp"},
    {LLAMA "layout:\n  pp_size: 2\n", "config-unknown-key", 7, 3, "layout.pp"},
    {LLAMA "layout:\n  num_layers_per_virtual_pipeline_stage: 2\n", "config-unknown-key", 7, 3,
     "layout.virtual_stages"},
    {LLAMA "layout:\n  pipeline_parallel_schedule: 1F1B\n", "config-unknown-key", 7, 3,
     "layout.schedule"},
    {LLAMA "layout:\n  num_microbatches: 8\n", "config-unknown-key", 7, 3, "train.accumulate"},
    {LLAMA "layout:\n  virtual_stages: 2\n", "config-no-effect", 7, 19, "layout.pp is above 1"},
    {LLAMA "layout: {pp: 2, schedule_memory: 2}\n", "config-no-effect", 6, 34, "such as zb-2p"},
    {LLAMA "layout: {pp: 2, schedule: 1f2b}\n", "config-value", 6, 27, "did you mean 1f1b?"},
    {LLAMA "layout: {pp: 8}\n", "config-layout", 6, 14, "layout.pp: 4"},
    {LLAMA "layout: {pp: 2, virtual_stages: 2, schedule: 1f1b}\n", "config-layout", 6, 33,
     "layout.virtual_stages: 1"},
    {LLAMA "train: {accumulate: 5}\nlayout: {pp: 2, virtual_stages: 2}\n", "config-layout", 6, 21,
     "train.accumulate: 4"},
    {LLAMA "layout: {pp: 2, stages: [1, 2]}\n", "config-layout", 6, 25, "adds up to 3 layers"},
    {LLAMA "layout: {pp: 2, stages: [1, 1, 0]}\n", "config-layout", 6, 25, "lists 3 stages"},
    {LLAMA "layout: {pp: 3, stages: [1, 0, 1]}\n", "config-layout", 6, 25, "no layer"},
    {LLAMA "layout: {pp: 2, stages: [1, x]}\n", "config-type", 6, 29, "list of integers"},
    {LLAMA "layout: {pp: 2, schedule: 'file:nowhere.txt'}\n", "file-open", 6, 27, "nowhere.txt"},
    {"model: {family: resnet18}\nlayout: {pp: 2}\n", "config-layout", 2, 14, "net for images"},
    {LLAMA "layout:\n  sequence_parallel: true\n", "config-no-effect", 7, 22, "layout.tp is"},
    {LLAMA "layout:\n  cp_ulysses: 2\n", "config-no-effect", 7, 15, "layout.cp_mode is hybrid"},
    {LLAMA "layout: {tp: 2, shard: {'*.q.weight': k}}\n", "config-layout", 6, 24, "cuts a head"},
    {LLAMA "layout: {tp: 2, shard: {'q.weight': h}}\n", "config-layout", 6, 24, "no parameter"},
    {LLAMA "layout: {tp: 2, shard: {'*.q.weight': f}}\n", "config-layout", 6, 24, "h k d"},
    {LLAMA "lr_scheduler: cosine\n", "config-unknown-key", 6, 1, "optimizer.schedule"},
    {LLAMA "bf16: true\n", "config-unknown-key", 6, 1, "precision.compute"},
    {LLAMA "train:\n  steps: 2000000000000\n", "config-range", 7, 10, "at most 1000000000000"},
    {LLAMA "recompute:\n  policy: budget\n  budget: 0\n", "config-range", 8, 11, "at least 1 B"},
    {LLAMA "precision:\n  gradients: compute\n", "config-no-effect", 7, 14, "precision.compute"},
    {LLAMA "precision:\n  moments: compute\n", "config-no-effect", 7, 12, "precision.compute"},
    {"train: {steps: 1}\nmodel:\n  preset: gpt2\n  hidden: 770\n", "config-value", 4, 11, "divide"},
    {"- model\n", "config-type", 1, 1, "map of sections"},
    {"model: {family: llama\ntrain: 3\n", "config-syntax", 2, 6, "YAML"},
    {"model:\n\tfamily: llama\n", "config-syntax", 2, 1, "spaces"},
    {"model: !!map {}\n", "config-syntax", 1, 14, "tags"},
    {"model: {preset: gpt2}\n---\na: 1\n", "config-syntax", 2, 1, "second document"},
    {"a: &a [*a]\n", "config-syntax", 1, 8, "inside its own anchor"},
    {"a: *b\n", "config-syntax", 1, 4, "no anchor"},
    {"a: &x {b: 1}\nc: {<<: *x}\n", "config-syntax", 2, 5, "merge"},
    {"model: {preset: \"gpt2\xff\"}\n", "config-syntax", 1, 22, "UTF-8"},
};

TEST(each_fault_is_refused_where_it_stands) {
    for (size_t i = 0; i < GW_COUNT(faults); i++) {
        const fault *f = &faults[i];
        gw_diags dg;
        gw_runfile rf;
        gw_diags_init(&dg);
        gw_status s = parse(&rf, f->text, NULL, &dg);
        test_note("case %d: %s", (int)i, f->text);
        CHECK_MSG(s == GW_ERR_CONFIG, "status %d", (int)s);
        CHECK_EQ(gw_status_exit_code(s), 2);
        const gw_diag *g = dg.first;
        while (g && g->severity != GW_ERROR) g = g->next;
        CHECK(g != NULL);
        test_note("%d:%d %s / %s", g->where.line, g->where.column, g->message,
                  g->hint ? g->hint : "");
        CHECK_STR(g->id, f->id);
        CHECK_STR(g->where.file, "run.yaml");
        CHECK_EQ(g->where.line, f->line);
        CHECK_EQ(g->where.column, f->column);
        CHECK_MSG(strstr(g->message, f->says) || (g->detail && strstr(g->detail, f->says)) ||
                      (g->hint && strstr(g->hint, f->says)),
                  "does not say '%s'", f->says);
        CHECK_MSG(dg.nerrors == 1, "%d errors for one fault", dg.nerrors);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
    }
}

TEST(five_faults_are_five_errors) {
    const char *text = "model:\n  family: llama\n  layers: two\n  hidden: 64\n  heads: 4\n"
                       "train:\n  steps: 0\n  max_steps: 9\n"
                       "optimizer:\n  nesterov: true\n"
                       "precision:\n  compute: int4\n";
    static const int lines[] = {3, 7, 8, 12, 10};
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK(parse(&rf, text, NULL, &dg) == GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, 5);
    int i = 0;
    for (const gw_diag *g = dg.first; g; g = g->next, i++) CHECK_EQ(g->where.line, lines[i]);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(faults_of_overrides_name_the_override) {
    static const char *const sets[] = {"train.steps=x",
                                       "train.step=1",
                                       "nonsense",
                                       "=1",
                                       "train=",
                                       "data=null",
                                       "optimizer.momentum=0.5",
                                       "layout={dp_replicate: 2}"};
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK(gw_runfile_parse(&rf, "run.yaml", contexts[0], (int64_t)strlen(contexts[0]), sets,
                           (int)GW_COUNT(sets), &dg) == GW_ERR_CONFIG);
    CHECK_EQ(dg.nerrors, GW_COUNT(sets));
    size_t i = 0;
    for (const gw_diag *g = dg.first; g; g = g->next, i++) {
        CHECK(gw_str_starts(g->where.file, "--set "));
        CHECK_STR(g->where.file + strlen("--set "), sets[i]);
        CHECK_EQ(g->where.line, 0);
    }
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ values

typedef struct batch_case {
    const char *train;
    int64_t micro, accumulate, global; /* 0: refused */
} batch_case;

TEST(global_batch_and_accumulate_say_the_same) {
    static const batch_case cases[] = {
        {"{}", 1, 1, 1},
        {"{micro_batch: 4}", 4, 1, 4},
        {"{micro_batch: 4, accumulate: 3}", 4, 3, 12},
        {"{micro_batch: 4, global_batch: 12}", 4, 3, 12},
        {"{accumulate: 3, global_batch: 12}", 4, 3, 12},
        {"{global_batch: 12}", 1, 12, 12},
        {"{micro_batch: 4, accumulate: 3, global_batch: 12}", 4, 3, 12},
        {"{micro_batch: 4, accumulate: 2, global_batch: 12}", 0, 0, 0},
        {"{micro_batch: 5, global_batch: 12}", 0, 0, 0},
        {"{accumulate: 5, global_batch: 12}", 0, 0, 0},
        {"{micro_batch: 16, global_batch: 12}", 0, 0, 0},
        {"{micro_batch: 1000000000, accumulate: 1000000000}", 0, 0, 0},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_diags dg;
        gw_runfile rf;
        gw_str text = {0};
        gw_diags_init(&dg);
        gw_str_printf(&text, "model: {preset: gpt2}\ntrain: %s\n", cases[i].train);
        gw_status s = parse(&rf, gw_str_c(&text), NULL, &dg);
        test_note("%s", cases[i].train);
        if (cases[i].micro == 0) {
            CHECK(s == GW_ERR_CONFIG);
            CHECK_EQ(dg.first->where.line, 2);
        } else {
            CHECK_OK(s, &dg);
            CHECK_EQ(rf.train.micro_batch, cases[i].micro);
            CHECK_EQ(rf.train.accumulate, cases[i].accumulate);
            CHECK_EQ(rf.train.global_batch, cases[i].global);
        }
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&text);
    }
}

/* What a refused batch may be instead is said in numbers that work. */
TEST(a_batch_that_cannot_be_says_which_can) {
    static const struct {
        const char *train, *hint;
    } cases[] = {
        {"{micro_batch: 4, accumulate: 2, global_batch: 12}",
         "train.global_batch: 8, or train.accumulate: 3"},
        {"{micro_batch: 4, accumulate: 2, global_batch: 13}", "train.global_batch: 8; no accum"},
        {"{micro_batch: 5, global_batch: 12}", "train.global_batch: 10 or 15"},
        {"{accumulate: 5, global_batch: 12}", "train.global_batch: 10 or 15"},
        {"{micro_batch: 16, global_batch: 12}", "train.global_batch: 16"},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_diags dg;
        gw_runfile rf;
        gw_str text = {0};
        gw_diags_init(&dg);
        gw_str_printf(&text, "model: {preset: gpt2}\ntrain: %s\n", cases[i].train);
        CHECK(parse(&rf, gw_str_c(&text), NULL, &dg) == GW_ERR_CONFIG);
        CHECK_MSG(dg.first && strstr(dg.first->hint, cases[i].hint), "%s", dg.first->hint);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&text);
    }
}

/* Core schema of YAML 1.2.2, section 10.3.2. */
/* The ranks are known before the batch is judged. */
TEST(a_batch_is_judged_for_the_ranks_there_are) {
    static const char text[] = LLAMA "train: {global_batch: 8, micro_batch: 2, accumulate: 2}\n";
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_runfile_parse_for(&rf, "r", text, sizeof text - 1, NULL, 0, 2, &dg), &dg);
    CHECK_EQ(rf.layout.dp, 2);
    gw_runfile_release(&rf);
    CHECK_FAILS(gw_runfile_parse_for(&rf, "r", text, sizeof text - 1, NULL, 0, 3, &dg), &dg,
                "dp 3 = 12");
    CHECK_EQ(dg.nerrors, 1);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* "auto" is what a key is that is not given: it may stand anywhere. */
TEST(auto_is_never_without_effect) {
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(parse(&rf, LLAMA "layout: {prefetch: auto, reshard_after_forward: auto}\n", NULL, &dg),
             &dg);
    gw_runfile_release(&rf);
    CHECK_FAILS(parse(&rf, LLAMA, "layout.prefetch=2", &dg), &dg, "layout.zero is 3");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

/* A run file for many ranks runs on one, and what does nothing there is named. */
TEST(layout_keys_that_one_rank_ignores_are_named) {
    static const char text[] =
        LLAMA "layout: {zero: 1, gradient_wire: int8, dp_replicate: 1, timeout: 9, reduce: auto}\n";
    for (int ranks = 1; ranks <= 2; ranks++) {
        gw_runfile rf;
        gw_diags dg;
        gw_str keys = {0};
        gw_diags_init(&dg);
        CHECK_OK(gw_runfile_parse_for(&rf, "r", text, sizeof text - 1, NULL, 0, ranks, &dg), &dg);
        gw_runfile_idle_keys(&rf, &keys);
        CHECK_STR(gw_str_c(&keys), ranks == 1 ? "layout.zero, layout.gradient_wire" : "");
        gw_str_release(&keys);
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
    }
}

TEST(scalars_are_those_of_yaml_1_2) {
    static const struct {
        const char *text;
        gw_yaml_type type;
    } cases[] = {
        {"null", GW_YAML_NULL},   {"~", GW_YAML_NULL},    {"true", GW_YAML_BOOL},
        {"False", GW_YAML_BOOL},  {"yes", GW_YAML_TEXT},  {"no", GW_YAML_TEXT},
        {"on", GW_YAML_TEXT},     {"off", GW_YAML_TEXT},  {"y", GW_YAML_TEXT},
        {"0", GW_YAML_INT},       {"-19", GW_YAML_INT},   {"0o7", GW_YAML_INT},
        {"0x3A", GW_YAML_INT},    {"010", GW_YAML_INT},   {"1_000", GW_YAML_TEXT},
        {"0b1", GW_YAML_TEXT},    {"1:30", GW_YAML_TEXT}, {"0.", GW_YAML_REAL},
        {"-0.0", GW_YAML_REAL},   {".5", GW_YAML_REAL},   {"+12e03", GW_YAML_REAL},
        {"-2E+05", GW_YAML_REAL}, {".inf", GW_YAML_REAL}, {"-.Inf", GW_YAML_REAL},
        {".NAN", GW_YAML_REAL},   {"1e-4", GW_YAML_REAL}, {"e5", GW_YAML_TEXT},
        {".", GW_YAML_TEXT},      {"1e", GW_YAML_TEXT},   {"inf", GW_YAML_TEXT},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        gw_yaml_node n = {.kind = GW_YAML_SCALAR, .text = cases[i].text};
        CHECK_MSG(gw_yaml_scalar_type(&n) == cases[i].type, "'%s' is %d", cases[i].text,
                  (int)gw_yaml_scalar_type(&n));
    }
    int64_t v = 0;
    CHECK(gw_yaml_int("010", &v) && v == 10);
    CHECK(gw_yaml_int("0o10", &v) && v == 8);
    CHECK(gw_yaml_int("0x10", &v) && v == 16);
    CHECK(gw_yaml_int("-9223372036854775808", &v) && v == INT64_MIN);
    CHECK(!gw_yaml_int("9223372036854775808", &v));
}

TEST(values_reach_their_fields) {
    const char *text = "model: &m {family: qwen3, layers: 2, hidden: 64, heads: 4, vocab: 0x100}\n"
                       "data: {train: \"a: b # c\", pack: false}\n"
                       "train: {steps: &s 012, log_every: *s}\n"
                       "optimizer: {lr: 1e-4, betas: [0, 0.5]}\n"
                       "precision: {compute: bfloat16}\n"
                       "recompute: {policy: budget, budget: 1.5GiB}\n";
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK_OK(parse(&rf, text, "data.valid=x: y # z", &dg), &dg);
    CHECK(rf.model.source == GW_RF_FAMILY && rf.model.family == GW_RF_QWEN3);
    CHECK_EQ(rf.model.vocab, 256);
    CHECK_EQ(rf.model.kv_heads, 4);
    CHECK_EQ(rf.model.head_dim, 16);
    CHECK_STR(rf.data.train.items[0].path, "a: b # c");
    CHECK_STR(rf.data.valid, "x: y # z");
    CHECK(!rf.data.pack);
    CHECK_EQ(rf.train.steps, 12);
    CHECK_EQ(rf.train.log_every, 12);
    CHECK(rf.optimizer.lr == 1e-4);
    CHECK(rf.optimizer.betas.a == 0.0 && rf.optimizer.betas.b == 0.5);
    CHECK(rf.precision.compute == GW_RF_BF16);
    CHECK_STR(gw_runfile_word(&rf, "precision.compute"), "bf16");
    CHECK_EQ(rf.recompute.budget, INT64_C(3) << 29);
    gw_where w = gw_runfile_where(&rf, "train.steps");
    CHECK_EQ(w.line, 3);
    CHECK_STR(gw_runfile_where(&rf, "data.valid").file, "--set data.valid=x: y # z");
    w = gw_runfile_where(&rf, "train.seed"); /* not given: its section's place */
    CHECK_EQ(w.line, 3);
    CHECK_EQ(w.column, 1);
    CHECK(!gw_runfile_is_set(&rf, "train.seed"));
    CHECK(gw_runfile_require(&rf, "data.train", "train", &dg) == GW_OK);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(vocabulary_follows_the_tokenizer) {
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK_OK(parse(&rf, contexts[0], NULL, &dg), &dg);
    CHECK_OK(gw_runfile_resolve(&rf, 5000, &dg), &dg);
    CHECK_EQ(rf.model.vocab, 5000);
    gw_runfile_release(&rf);
    CHECK_OK(parse(&rf, contexts[0], "model.vocab=4999", &dg), &dg);
    CHECK_FAILS(gw_runfile_resolve(&rf, 5000, &dg), &dg, "5000");
    CHECK_STR(dg.last->where.file, "--set model.vocab=4999");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(every_preset_is_a_run_file) {
    const char *name;
    for (int i = 0; (name = gw_model_preset_name(i)) != NULL; i++) {
        gw_diags dg;
        gw_runfile rf;
        gw_model m;
        gw_str text = {0};
        gw_diags_init(&dg);
        gw_str_printf(&text, "model: {preset: %s}\n", name);
        CHECK_OK(parse(&rf, gw_str_c(&text), NULL, &dg), &dg);
        CHECK(gw_model_preset(name, &m));
        CHECK_EQ((int)rf.model.family, (int)m.family);
        CHECK_EQ(rf.model.hidden, m.hidden);
        CHECK_EQ(rf.model.head_dim, m.head_dim);
        CHECK_EQ(rf.model.kv_heads, m.kv_heads);
        CHECK_EQ(rf.model.vocab, m.vocab);
        CHECK(rf.model.rope_theta == m.rope_theta);
        check_round_trip(&rf, "model.preset");
        gw_runfile_release(&rf);
        gw_diags_release(&dg);
        gw_str_release(&text);
    }
}

/* The preset's own rope scaling counts when asking whether its factor has an effect. */
TEST(a_presets_parts_can_be_overridden) {
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    CHECK_OK(parse(&rf, "model: {preset: llama3.1-8b, rope_scaling: {factor: 16}, layers: 2}\n",
                   NULL, &dg),
             &dg);
    CHECK(rf.model.rope_scaling.type == GW_RF_ROPE_LLAMA3);
    CHECK(rf.model.rope_scaling.factor == 16.0 && rf.model.rope_scaling.high_freq_factor == 4.0);
    CHECK_EQ(rf.model.layers, 2);
    CHECK_EQ(rf.model.kv_heads, 8);
    check_round_trip(&rf, "model.rope_scaling.factor");
    gw_runfile_release(&rf);
    CHECK_OK(parse(&rf, "model: {preset: llama3.1-8b, hidden: 256, heads: 4}\n", NULL, &dg), &dg);
    CHECK_EQ(rf.model.head_dim, 64);
    CHECK_EQ(rf.model.kv_heads, 4);
    check_round_trip(&rf, "model.preset");
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ hostile input

static void must_not_crash(const char *text, int64_t len) {
    gw_diags dg;
    gw_runfile rf;
    gw_diags_init(&dg);
    gw_status s = gw_runfile_parse(&rf, "x", text, len, NULL, 0, &dg);
    CHECK((s == GW_OK) == (dg.nerrors == 0));
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(any_bytes_are_a_run_file_or_an_error) {
    static const char seed_text[] =
        "model: &m {family: llama, layers: 2, hidden: 64, heads: 4, rope_scaling: {type: linear}}\n"
        "data: {train: \"a\\u0041\", pack: true}\nx: *m\noptimizer:\n  betas: [0.9, 0.95]\n"
        "  lr: 1e-3 # c\nrecompute:\n  policy: ops\n  ops:\n  - a\n  - |\n    b\n";
    char text[sizeof seed_text];
    for (size_t n = 0; n < sizeof seed_text; n++) must_not_crash(seed_text, (int64_t)n);
    static const char alphabet[] = "{}[]:,&*!|>'\"#%@`-? \n\t\\0a1.\x80\xff";
    uint64_t r = 1;
    for (int i = 0; i < 3000; i++) {
        memcpy(text, seed_text, sizeof text);
        for (int k = 0; k < 3; k++) {
            r = r * 6364136223846793005u + 1442695040888963407u;
            text[(r >> 33) % (sizeof text - 1)] = alphabet[(r >> 20) % (sizeof alphabet - 1)];
        }
        must_not_crash(text, (int64_t)sizeof text - 1);
    }
}

TEST(size_depth_and_count_are_bounded) {
    gw_str s = {0};
    for (int i = 0; i < 100000; i++) gw_str_add(&s, "[");
    must_not_crash(gw_str_c(&s), (int64_t)s.len);
    gw_str_clear(&s);
    gw_str_add(&s, "a:\n");
    for (int i = 0; i < 50000; i++) gw_str_printf(&s, "  k%d: 1\n", i);
    must_not_crash(gw_str_c(&s), (int64_t)s.len);
    gw_str_clear(&s);
    /* "A billion laughs": each line names the one before it ten times. */
    gw_str_add(&s, "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for (int i = 1; i < 30; i++) {
        gw_str_printf(&s, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++) gw_str_printf(&s, "%s*a%d", k ? ", " : "", i - 1);
        gw_str_add(&s, "]\n");
    }
    must_not_crash(gw_str_c(&s), (int64_t)s.len);
    gw_str_clear(&s);
    while (s.len <= GW_YAML_MAX_BYTES) gw_str_add(&s, "# a comment that goes on\n");
    must_not_crash(gw_str_c(&s), (int64_t)s.len);
    gw_str_release(&s);
}

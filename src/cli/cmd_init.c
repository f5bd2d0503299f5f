// SPDX-License-Identifier: Apache-2.0
// `gradwright init`: a commented run file that works as it stands.
//
// It is small enough to train in about a minute on two cores, on the text that `make data`
// prepares. What it says is what a newcomer is likely to change; every other key has its default,
// and `gradwright config` shows them all. Sections are the same for each family, but for the model.
#include <stdio.h> /* fprintf */

#include "base/str.h"    /* gw_str_eq */
#include "cli/command.h" /* gw_command */

typedef struct family {
    const char *name, *model;
} family;

static const family families[] = {
    {"llama", "  family: llama\n"
              "  layers: 4\n"
              "  hidden: 128\n"
              "  heads: 4\n"
              "  kv_heads: 2                # fewer than heads: grouped-query attention\n"
              "  ffn: 384\n"
              "  tie_embeddings: true\n"},
    {"gpt2", "  family: gpt2\n"
             "  layers: 4\n"
             "  hidden: 128\n"
             "  heads: 4\n"
             "  max_positions: 128         # rows of the position table\n"
             "  dropout: 0.0\n"},
    {"qwen2", "  family: qwen2                # biases on q, k and v\n"
              "  layers: 4\n"
              "  hidden: 128\n"
              "  heads: 4\n"
              "  kv_heads: 2\n"
              "  ffn: 384\n"
              "  tie_embeddings: true\n"},
    {"qwen3", "  family: qwen3                # norms on q and k, heads of any width\n"
              "  layers: 4\n"
              "  hidden: 128\n"
              "  heads: 4\n"
              "  kv_heads: 2\n"
              "  head_dim: 64\n"
              "  ffn: 384\n"
              "  tie_embeddings: true\n"},
    {"mistral", "  family: mistral\n"
                "  layers: 4\n"
                "  hidden: 128\n"
                "  heads: 4\n"
                "  kv_heads: 2\n"
                "  ffn: 384\n"
                "  sliding_window: 64         # tokens each position attends to\n"},
    {"mixtral",
     "  family: mixtral\n"
     "  layers: 4\n"
     "  hidden: 128\n"
     "  heads: 4\n"
     "  kv_heads: 2\n"
     "  ffn: 256                   # width of one expert; every layer has experts\n"
     "  moe:\n"
     "    experts: 8               # of a layer; layout.ep cuts them over ranks\n"
     "    top: 2                   # that a token goes to\n"
     "    balance: batch           # or none, sequence, bias: what keeps their load even\n"
     "    balance_weight: 0.01     # of the auxiliary loss\n"
     "    z_weight: 0.001          # keeps router logits small\n"},
    {"qwen3_moe",
     "  family: qwen3_moe            # norms on q and k, many narrow experts\n"
     "  layers: 4\n"
     "  hidden: 128\n"
     "  heads: 4\n"
     "  kv_heads: 2\n"
     "  head_dim: 64\n"
     "  moe:\n"
     "    experts: 16              # of a layer; layout.ep cuts them over ranks\n"
     "    top: 4                   # that a token goes to\n"
     "    ffn: 96                  # width of one expert\n"
     "    balance: batch           # or none, sequence, bias: what keeps their load even\n"
     "    balance_weight: 0.01     # of the auxiliary loss\n"},
    {"deepseek",
     "  family: deepseek\n"
     "  layers: 4\n"
     "  hidden: 128\n"
     "  heads: 4\n"
     "  ffn: 384                   # of layers without experts\n"
     "  mla:                       # attention by way of latents\n"
     "    q_rank: 64               # width of that of queries; 0: none\n"
     "    kv_rank: 32              # width of that of keys and values\n"
     "    nope: 32                 # of a head of queries and keys, without rotation\n"
     "    rope: 16                 # and with\n"
     "    v: 32                    # of a head of values\n"
     "  moe:\n"
     "    experts: 16              # of a layer; layout.ep cuts them over ranks\n"
     "    top: 4                   # that a token goes to\n"
     "    ffn: 96                  # width of one expert\n"
     "    shared: 1                # that every token goes to\n"
     "    dense_layers: 1          # first layers without experts\n"
     "    groups: 4                # experts stand in so many groups\n"
     "    group_limit: 2           # a token goes to experts of so many, the best\n"
     "    score: sigmoid           # or softmax\n"
     "    balance: bias            # or none, sequence, batch: what keeps their load even\n"
     "    bias_rate: 0.001         # what a step adds to an expert's bias, or takes\n"},
};

static const char *const head =
    "# A gradwright run file, made by `gradwright init`.\n"
    "#\n"
    "#   make data                             prepares build/data, once\n"
    "#   gradwright plan RUN.yaml              what a step takes, before anything runs\n"
    "#   gradwright train RUN.yaml --out DIR   trains; --resume goes on\n"
    "#   gradwright config RUN.yaml            every key, with its meaning\n"
    "#\n"
    "# Any key can be overridden: gradwright train RUN.yaml --set train.steps=50\n"
    "\n"
    "model:                         # or preset: smollm2-135m, or path: DIR_OR_GGUF\n";

static const char *const tail = "\n"
                                "data:\n"
                                "  train: build/data/train      # build/data/train.bin and .idx\n"
                                "  valid: build/data/valid\n"
                                "  tokenizer: build/data/tokenizer.json\n"
                                "\n"
                                "train:\n"
                                "  steps: 200\n"
                                "  seq_len: 128                 # tokens\n"
                                "  micro_batch: 8               # sequences in one forward pass\n"
                                "  accumulate: 1                # micro-batches in one step\n"
                                "  seed: 1\n"
                                "  valid_every: 100             # steps\n"
                                "  valid_batches: 20            # micro-batches of a validation\n"
                                "\n"
                                "optimizer:\n"
                                "  name: adamw                  # or sgd, muon\n"
                                "  lr: 2e-3\n"
                                "  weight_decay: 0.1\n"
                                "  clip_norm: 1.0\n"
                                "  schedule: cosine             # or constant, linear, wsd\n"
                                "  warmup_steps: 20\n"
                                "\n"
                                "precision:\n"
                                "  compute: fp32                # or bf16, fp16\n"
                                "\n"
                                "recompute:\n"
                                "  policy: none                 # or selective, full, ops, budget\n"
                                "\n"
                                "checkpoint:\n"
                                "  every: 100                   # steps\n"
                                "  keep_last: 2\n";

static gw_status run(gw_cli *cli) {
    const char *name = cli->nargs ? cli->args[0] : "llama";
    for (size_t i = 0; i < GW_COUNT(families); i++) {
        if (!gw_str_eq(families[i].name, name)) continue;
        fprintf(cli->out, "%s%s%s", head, families[i].model, tail);
        return GW_OK;
    }
    return gw_cli_usage_error(cli,
                              "there is no family '%s': llama, gpt2, qwen2, qwen3, mistral, "
                              "mixtral, qwen3_moe or deepseek",
                              name);
}

const gw_command gw_cmd_init = {
    .name = "init",
    .summary = "print a commented run file that works",
    .usage = {"[FAMILY]"},
    .description = "FAMILY is llama (the default), gpt2, qwen2, qwen3 or mistral, or with experts\n"
                   "mixtral, qwen3_moe or deepseek. The run file trains a small model in about a\n"
                   "minute on the text that `make data` prepares.",
    .options = NULL,
    .noptions = 0,
    .min_args = 0,
    .max_args = 1,
    .completes = GW_COMPLETE_WORDS,
    .words = "llama gpt2 qwen2 qwen3 mistral mixtral qwen3_moe deepseek",
    .example = "gradwright init llama > run.yaml",
    .run = run,
};

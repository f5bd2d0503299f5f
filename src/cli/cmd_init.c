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
    return gw_cli_usage_error(cli, "there is no family '%s': llama, gpt2, qwen2, qwen3 or mistral",
                              name);
}

const gw_command gw_cmd_init = {
    .name = "init",
    .summary = "print a commented run file that works",
    .usage = {"[FAMILY]"},
    .description = "FAMILY is llama (the default), gpt2, qwen2, qwen3 or mistral. The run file\n"
                   "trains a small model in about a minute on the text that `make data` prepares.",
    .options = NULL,
    .noptions = 0,
    .min_args = 0,
    .max_args = 1,
    .completes = GW_COMPLETE_WORDS,
    .words = "llama gpt2 qwen2 qwen3 mistral",
    .example = "gradwright init llama > run.yaml",
    .run = run,
};

// SPDX-License-Identifier: Apache-2.0
// Configurations in the shape of the public ones, by their own keys and structure with other
// values (tests/train/convert, which lists where each shape comes from): every key is decided,
// what comes out loads, and says what the input says.
#include <string.h>

#include "base/io.h" /* gw_file_read */
#include "conversion.h"
#include "harness.h"
#include "train/runfile_key.h" /* gw_rf_keys */

typedef struct example {
    const char *format, *file, *model;
    int64_t world;
    const char *sets;    /* KEY=VALUE, with blanks between them */
    const char *says;    /* keys of the run file that come out so, with ';' between them */
    const char *refused; /* all the keys of the input that are, by their last names */
} example;

static const example examples[] = {
    {"torchtitan", "llama3_8b.toml", NULL, 64, "",
     "layout.dp: 32; layout.tp: 2; layout.zero: 3; layout.dp_replicate: 2; train.micro_batch: 2; "
     "train.global_batch: 64; train.seq_len: 4096; precision.compute: bf16; optimizer.lr: 0.00025; "
     "optimizer.schedule: linear; optimizer.min_lr_ratio: 0; recompute.ops: [rmsnorm, swiglu]",
     "hf_assets_path dataset"},
    {"torchtitan", "llama3_405b_2025.toml", NULL, 128, "",
     "model.preset: llama3-405b; layout.dp: 16; layout.tp: 8; train.micro_batch: 2; "
     "precision.products: fp8; recompute.policy: full; optimizer.warmup_steps: 500",
     "tokenizer_path dataset enable_fsdp_float8_all_gather enable_async_tensor_parallel"},
    {"torchtitan", "llama3_70b_2024.toml", NULL, 64, "",
     "layout.dp: 8; layout.tp: 4; layout.pp: 2; layout.schedule: 1f1b; layout.zero: 3; "
     "layout.reshard_after_forward: \"false\"; train.micro_batch: 1; train.accumulate: 8; "
     "train.global_batch: 64; checkpoint.every: 300; optimizer.warmup_steps: 150",
     "tokenizer_path dataset"},
    {"torchtitan", "llama_7b_first.toml", NULL, 8, "",
     "model.preset: llama2-7b; layout.dp: 8; layout.tp: 1; recompute.policy: full; train.steps: "
     "500",
     "tokenizer_path dataset"},
    {"torchtitan", "deepseek_v3_671b.toml", NULL, 256, "",
     "model.preset: deepseek-v3; layout.dp: 32; layout.pp: 8; layout.virtual_stages: 2; "
     "layout.schedule: interleaved; layout.ep: 32; train.micro_batch: 1; train.accumulate: 128; "
     "train.global_batch: 4096; train.seed: 42; optimizer.schedule: wsd; optimizer.decay_steps: "
     "10000; optimizer.min_lr_ratio: 0.1; layout.timeout: 200; checkpoint.keep_last: 3",
     "hf_assets_path dataset initial_load_in_hf initial_load_path"},
    {"megatron", "gpt3_175b.script", NULL, 0, "",
     "model.family: gpt2; model.layers: 96; model.ffn: 49152; model.vocab: 50257; model.dropout: "
     "0.1; layout.dp: 4; layout.tp: 8; layout.pp: 16; layout.zero: 0; train.accumulate: 384; "
     "train.global_batch: 1536; precision.compute: fp16; optimizer.betas: [0.9, 0.95]; "
     "optimizer.warmup_steps: 400; optimizer.min_lr_ratio: 0.1; layout.sequence_parallel: false",
     "rampup-batch-size data-path split eval-interval eval-iters"},
    {"megatron", "llama3_8b_fp8.script", NULL, 0, "",
     "model.family: llama; model.kv_heads: 8; model.vocab: 128256; model.rope_theta: 500000; "
     "layout.dp: 8; layout.tp: 2; layout.zero: 1; layout.sequence_parallel: true; "
     "precision.gradients: compute; precision.products: fp8; train.steps: 10000; "
     "optimizer.warmup_steps: 100; train.accumulate: 32; layout.timeout: 3600",
     "apply-layernorm-1p decoupled-lr decoupled-min-lr exit-duration-in-mins fp8-param-gather "
     "mock-data split eval-iters eval-interval"},
    {"megatron", "mixtral_8x7b.script", NULL, 0, "",
     "model.family: mixtral; model.moe.experts: 8; model.moe.balance: batch; "
     "model.moe.balance_weight: 0.01; layout.dp: 4; layout.pp: 4; layout.ep: 4; layout.stages: "
     "[8, 8, 8, 8]; train.accumulate: 32; optimizer.schedule: linear; model.vocab: 32000",
     "tokenizer-model mock-data split eval-iters"},
    {"megatron", "llama2_sizes.script", NULL, 8, "model.vocab=32000",
     "model.layers: 80; model.hidden: 8192; model.kv_heads: 8; layout.tp: 8; layout.dp: 1; "
     "layout.zero: 1; layout.sequence_parallel: true; recompute.policy: full; optimizer.betas: "
     "[0.9, 0.95]; train.accumulate: 32",
     "tokenizer-model split mock-data data-path"},
    {"megatron", "deepseek_fsdp.script", NULL, 128, "",
     "model.family: deepseek; model.moe.dense_layers: 3; model.moe.shared: 1; model.mla.kv_rank: "
     "512; layout.zero: 3; layout.ep: 8; precision.gradients: compute; train.steps: 10000; "
     "train.accumulate: 4; data.train: /no/such/data",
     "recompute-granularity recompute-modules tokenizer-model split lr-warmup-init eval-iters "
     "eval-interval"},
    {"megatron", "gpt_config.yaml", NULL, 8, "model.vocab=50257",
     "model.family: llama; model.layers: 24; model.ffn: 2688; layout.tp: 2; layout.dp: 4; "
     "train.steps: 10000; train.accumulate: 16; optimizer.eps: 1e-8; precision.compute: bf16",
     "layernorm_zero_centered_gamma rampup_batch_size rotary_percent eval_iters eval_interval "
     "split reset_attention_mask"},
    {"megatron", "deepseek_v3_recipe.yaml", NULL, 1024, "model.vocab=129280",
     "model.family: deepseek; layout.pp: 8; layout.virtual_stages: 4; layout.tp: 2; layout.dp: "
     "64; layout.ep: 64; precision.products: fp8; precision.moments: compute; train.accumulate: "
     "64; optimizer.min_lr_ratio: 0.1",
     "tokenizer_model mtp_num_layers mtp_loss_scaling_factor mock_data "
     "moe_router_force_load_balancing recompute_granularity recompute_modules "
     "exit_duration_in_mins no_save_optim lr_warmup_init fp8_param_gather eval_iters eval_interval "
     "load"},
    {"megatron", "qwen3_235b_recipe.yaml", NULL, 256, "model.vocab=151936",
     "model.family: qwen3_moe; layout.virtual_stages: 4; layout.stages: [2, 3, 3, 3, 3, 3, 3, 3, "
     "3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2]; recompute.ops: "
     "[rmsnorm]; layout.ep: 32; layout.timeout: 13200",
     "tokenizer_model mock_data lr_warmup_init eval_iters eval_interval finetune load"},
    {"megatron", "mixtral_zoo.yaml", NULL, 64,
     "layout.tp=1 layout.pp=4 layout.ep=8 layout.virtual_stages=4 layout.cp=1 train.micro_batch=1 "
     "train.global_batch=256 train.seq_len=4096",
     "layout.dp: 16; layout.virtual_stages: 4; train.steps: 5000; optimizer.warmup_steps: 50; "
     "train.accumulate: 16",
     "exit-duration-in-mins tokenizer-model data-path split eval-iters eval-interval finetune "
     "load"},
    {"deepspeed", "zero2_auto.json", "gpt2", 8,
     "precision.compute=bf16 train.micro_batch=2 train.accumulate=4 optimizer.lr=1e-5 "
     "train.steps=100 optimizer.warmup_steps=10 optimizer.betas=[0.9,0.999] optimizer.eps=1e-8 "
     "optimizer.weight_decay=0 optimizer.clip_norm=1 layout.bucket=25MiB",
     "layout.zero: 2; offload.optimizer: host; offload.master: host; train.global_batch: 64; "
     "optimizer.schedule: linear; optimizer.min_lr_ratio: 0",
     ""},
    {"deepspeed", "zero3_offload.json", "llama2-70b", 32, "",
     "layout.zero: 3; offload.optimizer: host; offload.parameters: host; layout.bucket: "
     "2000000000; layout.gradient_wire: bf16; train.global_batch: 256; train.accumulate: 8; "
     "train.steps: 50000; optimizer.warmup_steps: 1000",
     "stage3_prefetch_bucket_size stage3_param_persistence_threshold"},
    {"deepspeed", "infinity_nvme.json", "llama2-7b", 4, "",
     "offload.optimizer: disk; offload.master: disk; offload.parameters: disk; offload.dir: "
     "/local; precision.compute: fp16; precision.loss_scale: 1024; optimizer.schedule: "
     "constant",
     "stage3_param_persitance_threshold stage3_prefetch_bucket_size hysteresis"},
    {"deepspeed", "zero1_experts.json", "mixtral-8x7b", 8, "",
     "layout.zero: 1; layout.ep: 4; optimizer.schedule: cosine; optimizer.min_lr_ratio: 0.001; "
     "optimizer.clip_norm: 0; train.global_batch: 16",
     ""},
    {"deepspeed", "autotp.json", "llama2-7b", 8, "",
     "layout.tp: 4; layout.dp: 2; layout.zero: 2; train.global_batch: 16; optimizer.betas: [0.9, "
     "0.999]",
     ""},
    {"deepspeed", "onebit_lamb.json", "gpt2", 8, "",
     "train.accumulate: 8; optimizer.lr: 0.011; precision.compute: fp16",
     "type bias_correction max_coeff min_coeff freeze_step comm_backend_name mode block "
     "different_layout_per_head enabled fast train_micro_batch_size_per_gpu"},
    {"accelerate", "fsdp1.yaml", "llama3-8b", 0, "train.micro_batch=2",
     "layout.dp: 16; layout.zero: 2; precision.compute: bf16; recompute.policy: none", ""},
    {"accelerate", "fsdp2_nd.yaml", "llama3-8b", 0, "train.micro_batch=1",
     "layout.dp: 4; layout.tp: 2; layout.cp: 2; layout.cp_mode: allgather; layout.zero: 3; "
     "layout.dp_replicate: 2; recompute.policy: full",
     ""},
    {"accelerate", "fsdp2_cp.yaml", "llama3-8b", 0, "train.micro_batch=1",
     "layout.dp: 1; layout.cp: 8; layout.zero: 3", ""}, /* sharded over cp */
    {"accelerate", "deepspeed_plugin.yaml", "gpt2", 0, "train.micro_batch=1",
     "layout.zero: 3; offload.parameters: host; train.accumulate: 4; train.global_batch: 16; "
     "precision.compute: fp16",
     ""},
    {"accelerate", "megatron_plugin.yaml", "llama3-8b", 0, "train.micro_batch=1",
     "layout.dp: 4; layout.pp: 2; layout.tp: 2; layout.zero: 1; layout.sequence_parallel: true; "
     "recompute.policy: selective; train.accumulate: 4",
     ""},
    {"accelerate", "fp8_multi_gpu.yaml", "gpt2", 0, "train.micro_batch=1",
     "layout.zero: 0; precision.products: fp8; precision.compute: bf16", ""},
    {"accelerate", "mpi_cpu.yaml", "gpt2", 0, "train.micro_batch=1",
     "layout.dp: 16; layout.zero: 0; precision.compute: fp32", "ipex"},
};

/* The next part of a text up to `by`, without the blanks around it; NULL at the end. */
static const char *next_part(gw_arena *a, const char **p, char by) {
    *p += strspn(*p, " ");
    if (!**p) return NULL;
    const char *end = strchr(*p, by);
    size_t n = end ? (size_t)(end - *p) : strlen(*p);
    const char *part = gw_arena_strndup(a, *p, n);
    *p += n + (end != NULL);
    return part;
}

static void check_says(const example *e, const gw_runfile *rf, gw_arena *a) {
    gw_str s = {0};
    for (const char *p = e->says, *part; (part = next_part(a, &p, ';'));) {
        const char *colon = strstr(part, ": ");
        CHECK(colon != NULL);
        int at = gw_rf_key_find(gw_arena_strndup(a, part, (size_t)(colon - part)));
        CHECK_MSG(at >= 0, "%s", part);
        gw_str_clear(&s);
        gw_rf_value_yaml(rf, &gw_rf_keys[at], &s);
        CHECK_MSG(strcmp(gw_str_c(&s), colon + 2) == 0, "%s: %s is %s", e->file, part,
                  gw_str_c(&s));
    }
    gw_str_release(&s);
}

static const char *last_name(const char *name) {
    const char *dot = strrchr(name, '.');
    name = dot ? dot + 1 : name;
    return strncmp(name, "--", 2) == 0 ? name + 2 : name;
}

/* Those that are refused are those that are named, no more and no less. */
static void check_refused(const example *e, const gw_conversion *v, gw_arena *a) {
    bool seen[32] = {0};
    for (int i = 0; i < v->nkeys; i++) {
        const gw_cv_key *k = &v->keys[i];
        if (k->fate != GW_CV_REFUSED || k->line == 0) continue;
        int at = 0, found = -1;
        for (const char *p = e->refused, *part; (part = next_part(a, &p, ' ')); at++)
            if (strcmp(part, last_name(k->name)) == 0) found = at;
        CHECK_MSG(found >= 0, "%s: %s is refused: %s", e->file, k->name, k->why);
        seen[found] = true;
    }
    int at = 0;
    for (const char *p = e->refused, *part; (part = next_part(a, &p, ' ')); at++)
        CHECK_MSG(seen[at], "%s: %s is not refused", e->file, part);
}

static void check_example(const example *e) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_str text = {0};
    char path[128];
    const char *sets[32];
    int nsets = 0;
    conversion c;
    test_note("%s", e->file);
    snprintf(path, sizeof path, "train/convert/%s", e->file);
    CHECK_OK(gw_file_read(test_source_path(path), 0, &text, &dg), &dg);
    for (const char *p = e->sets, *part; (part = next_part(&a, &p, ' '));) sets[nsets++] = part;
    conversion_make(&c, &(gw_cv_request){e->format, e->file, gw_str_c(&text), (int64_t)text.len,
                                         e->model, e->world, sets, nsets});
    conversion_load(&c, e->world);
    check_refused(e, &c.v, &a);
    check_says(e, &c.rf, &a);
    conversion_release(&c);
    gw_str_release(&text);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

static void check_format(const char *format) {
    int n = 0;
    for (size_t i = 0; i < GW_COUNT(examples); i++) {
        if (strcmp(examples[i].format, format) != 0) continue;
        check_example(&examples[i]);
        n++;
    }
    CHECK(n >= 5);
}

TEST_WITHIN(convert_public_torchtitan, 120) { check_format("torchtitan"); }
TEST_WITHIN(convert_public_megatron, 120) { check_format("megatron"); }
TEST_WITHIN(convert_public_deepspeed, 120) { check_format("deepspeed"); }
TEST_WITHIN(convert_public_accelerate, 120) { check_format("accelerate"); }

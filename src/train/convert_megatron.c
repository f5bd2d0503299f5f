// SPDX-License-Identifier: Apache-2.0
// Megatron-LM: the arguments of its scripts, and its configurations in YAML.
//
// Scripts are read by convert_shell.c, YAML by convert_read.c; the model, which forty of the flags
// spell out, is settled in convert_megatron_model.c.
//
// A step there is global_batch = micro_batch x accumulate x dp, with dp = ranks / (tp x pp x cp).
// Ranks are those of --world, otherwise of the launcher's flags in the script.
//
// Source: megatron/training/arguments.py and the scripts in Megatron's examples.
#include <ctype.h>  /* tolower */
#include <math.h>   /* llround */
#include <string.h> /* strstr */

#include "base/io.h" /* gw_path_exists */
#include "train/convert_megatron_rules.h"

// ------------------------------------------------------------------ reading

/* Sections of YAML configurations whose names say nothing of their keys. */
static const char *const sections[] = {"ARGS.", "MODEL_ARGS.", "language_model.", "model_parallel.",
                                       "training."};

static const char *canonical(gw_cv *c, const char *name) {
    if (gw_str_starts(name, "ENV_VARS.")) return gw_arena_printf(c->a, "environment%s", name + 8);
    if (gw_str_starts(name, "DEPENDENCIES.")) return gw_arena_printf(c->a, "built%s", name + 12);
    for (size_t i = 0; i < GW_COUNT(sections); i++)
        if (gw_str_starts(name, sections[i])) name += strlen(sections[i]);
    char *out = gw_arena_strdup(c->a, gw_str_starts(name, "--") ? name + 2 : name);
    for (char *p = out; *p; p++) *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    return out;
}

/* YAML that a launcher fills in: "${TP}". */
static void open_variables(gw_cv *c, gw_cv_key *k) {
    const char *at = strchr(k->text, '$');
    if (!at || !(at[1] == '{' || isalpha((unsigned char)at[1]) || at[1] == '_')) return;
    size_t n = at[1] == '{' ? strcspn(at, "}") + 1 : 1;
    while (at[1] != '{' && (isalnum((unsigned char)at[n]) || at[n] == '_')) n++;
    k->open = gw_arena_printf(c->a, "depends on %.*s, which the file does not set",
                              (int)GW_MIN(n, strlen(at)), at);
}

static gw_status read(gw_cv *c) {
    const char *name = c->request->name;
    bool yaml = gw_str_ends(name, ".yaml") || gw_str_ends(name, ".yml");
    GW_TRY(yaml ? gw_cv_read_yaml(c) : gw_cv_read_shell(c));
    for (int64_t i = 0; i < c->keys.count; i++) {
        c->keys.items[i]->canon = canonical(c, c->keys.items[i]->name);
        if (yaml) open_variables(c, c->keys.items[i]);
    }
    return GW_OK;
}

static const gw_cv_rename renames[] = {
    {"persistent-save-interval", "save-interval"},
    {"layernorm-epsilon", "norm-epsilon"},
    {"num-moe-experts", "num-experts"},
    {"encoder-tensor-model-parallel-size", "tensor-model-parallel-size"},
    {"nproc-per-node*", "nproc-per-node"},
    {"use-custom-fsdp", "use-megatron-fsdp"},
    {"checkpoint-num-layers", "recompute-num-layers"},
    {NULL, NULL},
};

static const gw_cv_rename says[] = {
    {"num-layers", "model.layers"},
    {"hidden-size", "model.hidden"},
    {"ffn-hidden-size", "model.ffn"},
    {"num-attention-heads", "model.heads"},
    {"num-query-groups", "model.kv_heads"},
    {"kv-channels", "model.head_dim"},
    {"max-position-embeddings", "model.max_positions"},
    {"rotary-base", "model.rope_theta"},
    {"init-method-std", "model.init_std"},
    {"hidden-dropout", "model.dropout"},
    {"vocab-size", "model.vocab"},
    {"padded-vocab-size", "model.vocab"},
    {"num-experts", "model.moe.experts"},
    {"moe-router-topk", "model.moe.top"},
    {"moe-ffn-hidden-size", "model.moe.ffn"},
    {"moe-layer-freq", "model.moe.dense_layers"},
    {"moe-router-load-balancing-type", "model.moe.balance"},
    {"moe-aux-loss-coeff", "model.moe.balance_weight"},
    {"moe-expert-capacity-factor", "model.moe.capacity"},
    {"tokenizer-model", "data.tokenizer"},
    {"data-path", "data.train"},
    {"train-data-path", "data.train"},
    {"data-args-path", "data.train"},
    {"mock-data", "data.train"},
    {"valid-data-path", "data.valid"},
    {"split", "data.valid"},
    {"load", "model.path"},
    {"finetune", "model.path"},
    {"pretrained-checkpoint", "model.path"},
    {"eval-interval", "train.valid_every"},
    {"eval-iters", "train.valid_batches"},
    {"micro-batch-size", "train.micro_batch"},
    {"global-batch-size", "train.global_batch"},
    {"rampup-batch-size", "train.global_batch"},
    {"train-iters", "train.steps"},
    {"train-samples", "train.steps"},
    {"lr", "optimizer.lr"},
    {"min-lr", "optimizer.min_lr_ratio"},
    {"lr-decay-style", "optimizer.schedule"},
    {"lr-warmup-fraction", "optimizer.warmup_steps"},
    {"lr-warmup-iters", "optimizer.warmup_steps"},
    {"lr-warmup-samples", "optimizer.warmup_steps"},
    {"lr-wsd-decay-iters", "optimizer.decay_steps"},
    {"lr-wsd-decay-samples", "optimizer.decay_steps"},
    {"optimizer", "optimizer.name"},
    {"adam-beta1", "optimizer.betas"},
    {"adam-beta2", "optimizer.betas"},
    {"bf16", "precision.compute"},
    {"fp16", "precision.compute"},
    {"fp8-format", "precision.products"},
    {"loss-scale", "precision.loss_scale"},
    {"tensor-model-parallel-size", "layout.tp"},
    {"pipeline-model-parallel-size", "layout.pp"},
    {"context-parallel-size", "layout.cp"},
    {"expert-model-parallel-size", "layout.ep"},
    {"sequence-parallel", "layout.sequence_parallel"},
    {"cp-comm-type", "layout.cp_mode"},
    {"num-layers-per-virtual-pipeline-stage", "layout.virtual_stages"},
    {"num-virtual-stages-per-pipeline-rank", "layout.virtual_stages"},
    {"virtual-pipeline-model-parallel-size", "layout.virtual_stages"},
    {"pipeline-model-parallel-layout", "layout.stages"},
    {"decoder-first-pipeline-num-layers", "layout.stages"},
    {"decoder-last-pipeline-num-layers", "layout.stages"},
    {"use-distributed-optimizer", "layout.zero"},
    {"use-torch-fsdp2", "layout.zero"},
    {"data-parallel-sharding-strategy", "layout.zero"},
    {"num-distributed-optimizer-instances", "layout.dp_replicate"},
    {"ddp-bucket-size", "layout.bucket"},
    {"distributed-timeout-minutes", "layout.timeout"},
    {"recompute-activations", "recompute.policy"},
    {"recompute-granularity", "recompute.policy"},
    {"recompute-method", "recompute.policy"},
    {"recompute-num-layers", "recompute.policy"},
    {"recompute-modules", "recompute.policy"},
    {"optimizer-cpu-offload", "offload.optimizer"},
    {"offload-optimizer-states", "offload.optimizer"},
    {"most-recent-k", "checkpoint.keep_last"},
    {NULL, NULL},
};

// ------------------------------------------------------------------ layout and batch

static void settle_tensor(gw_cv *c, int64_t tp) {
    bool sp = gw_cv_bool(c, "sequence-parallel", false);
    if (tp > 1)
        gw_cv_map(c, "sequence-parallel", "layout.sequence_parallel", "%s", sp ? "true" : "false");
    if (tp > 1) gw_cv_put(c, "layout.sequence_parallel", "megatron's default", "false");
    gw_cv_imply(c, "sequence-parallel", "no tensor parallelism: tp is 1");
    int64_t etp = gw_cv_int(c, "expert-tensor-parallel-size", 1);
    if (etp == 1 || tp == 1)
        gw_cv_imply(c, "expert-tensor-parallel-size", "experts are whole: layout.ep spreads them");
    gw_cv_refuse(c, "expert-tensor-parallel-size",
                 "--set layout.ep=N: experts are spread over tp as well",
                 "experts are not cut inside");
}

static void settle_context(gw_cv *c, int64_t cp) {
    static const char *const names[][2] = {{"p2p", "ring"},
                                           {"a2a", "ulysses"},
                                           {"allgather", "allgather"},
                                           {"all_gather", "allgather"},
                                           {"a2a+p2p", "hybrid"}};
    gw_cv_key *type = gw_cv_get(c, "cp-comm-type"),
              *parts = gw_cv_get(c, "hierarchical-context-parallel-sizes");
    if (cp <= 1) {
        gw_cv_imply_list(c, "cp-comm-type hierarchical-context-parallel-sizes",
                         "no context parallelism: cp is 1");
        return;
    }
    for (size_t i = 0; type && i < GW_COUNT(names); i++)
        if (gw_str_eq(type->text, names[i][0]))
            gw_cv_map(c, "cp-comm-type", "layout.cp_mode", "%s", names[i][1]);
    gw_cv_refuse(c, "cp-comm-type", "--set layout.cp_mode=ring",
                 "one way for all layers: p2p, a2a, allgather or a2a+p2p");
    bool hybrid = gw_str_eq(gw_cv_ours(c, "layout.cp_mode"), "hybrid");
    int64_t inner;
    if (parts && hybrid && parts->nitems == 2 && gw_parse_i64(parts->items[0], &inner))
        gw_cv_map(c, parts->canon, "layout.cp_ulysses", "%lld", (long long)inner);
    gw_cv_refuse(c, "hierarchical-context-parallel-sizes",
                 "--set layout.cp_mode=hybrid --set layout.cp_ulysses=N",
                 "two levels, with cp-comm-type a2a+p2p");
}

/* Ranks in all: --world, or what the script's launcher is given. */
static int64_t settle_ranks(gw_cv *c, int64_t per_replica) {
    int64_t world = c->request->world;
    if (world)
        gw_cv_imply_list(c, "nproc-per-node nnodes", "--world says how many ranks there are");
    int64_t each = gw_cv_int(c, "nproc-per-node", 0), nodes = gw_cv_int(c, "nnodes", 1);
    int64_t all = each > 0 && nodes > 0 ? gw_cv_times(each, nodes) : 0;
    if (all && all % per_replica) {
        gw_cv_refuse(c, "nproc-per-node", "--world N", "%lld ranks do not hold tp x pp x cp = %lld",
                     (long long)all, (long long)per_replica);
        gw_cv_refuse(c, "nnodes", "--world N", "%lld ranks do not hold tp x pp x cp = %lld",
                     (long long)all, (long long)per_replica);
        all = 0;
    }
    gw_cv_imply_list(c, "nproc-per-node nnodes", "layout.dp follows from the ranks");
    return world ? world : all;
}

static void settle_sharding(gw_cv *c, int64_t dp) {
    static const char *const names[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const char *strategy = gw_cv_text(c, "data-parallel-sharding-strategy", "no_shard");
    bool fsdp2 = gw_cv_bool(c, "use-torch-fsdp2", false),
         fsdp = gw_cv_bool(c, "use-megatron-fsdp", false);
    bool dist = gw_cv_bool(c, "use-distributed-optimizer", false);
    int zero = fsdp2 ? 3 : dist ? 1 : 0;
    for (int i = 0; fsdp && i < 4; i++)
        if (gw_str_eq(strategy, names[i])) zero = i;
    if (fsdp2) gw_cv_map(c, "use-torch-fsdp2", "layout.zero", "3");
    if (fsdp && !fsdp2) gw_cv_map(c, "data-parallel-sharding-strategy", "layout.zero", "%d", zero);
    if (!fsdp && !fsdp2 && dist) gw_cv_map(c, "use-distributed-optimizer", "layout.zero", "1");
    gw_cv_put(c, "layout.zero", "megatron's default: nothing is sharded", "0");
    gw_cv_imply_list(c,
                     "use-torch-fsdp2 use-megatron-fsdp use-distributed-optimizer "
                     "data-parallel-sharding-strategy",
                     "layout.zero says what is sharded");
    if (gw_cv_bool(c, "torch-fsdp2-no-reshard-after-forward", false) && zero == 3)
        gw_cv_map(c, "torch-fsdp2-no-reshard-after-forward", "layout.reshard_after_forward",
                  "false");
    gw_cv_imply(c, "torch-fsdp2-no-reshard-after-forward", "off, or not FSDP");
    int64_t copies = gw_cv_int(c, "num-distributed-optimizer-instances", 1);
    if (copies > 1 && zero && dp)
        gw_cv_map(c, "num-distributed-optimizer-instances", "layout.dp_replicate", "%lld",
                  (long long)copies);
    if (copies <= 1 || !zero) gw_cv_imply(c, "num-distributed-optimizer-instances", "one copy");
    gw_cv_refuse(c, "num-distributed-optimizer-instances", "--world N",
                 "the number of data-parallel ranks is not known");
    int64_t elems = gw_cv_int(c, "ddp-bucket-size", 0);
    gw_cv_map(c, "ddp-bucket-size", "layout.bucket", "%lld", (long long)elems * 4);
    gw_cv_remark(c, "ddp-bucket-size", "elements of four bytes: gradients are float32");
}

/* Returns the global batch, or 0. */
static int64_t settle_batch(gw_cv *c, int64_t dp) {
    bool m = gw_cv_known(c, "micro-batch-size"), g = gw_cv_known(c, "global-batch-size");
    int64_t micro = gw_cv_int(c, "micro-batch-size", 0),
            global = gw_cv_int(c, "global-batch-size", 0);
    gw_cv_batch b = {.micro = {micro, m ? "micro-batch-size" : NULL, NULL},
                     .global = {global, g ? "global-batch-size" : NULL, NULL},
                     .dp = {dp, NULL, "ranks / (pp x tp x cp)"}};
    if (!g) b.accumulate = (gw_cv_portion){1, NULL, "megatron's default: one micro-batch a step"};
    gw_cv_settle_batch(c, b);
    micro = gw_cv_ours_int(c, "train.micro_batch", micro);
    return gw_cv_ours_int(c, "train.global_batch", gw_cv_times(micro, dp));
}

// ------------------------------------------------------------------ length, rates, optimizer

/* A number of samples as steps of `global`; 0 where either is not known. */
static int64_t steps_of(gw_cv *c, const char *canon, int64_t global) {
    int64_t samples = gw_cv_int(c, canon, 0);
    return global > 0 ? samples / global : 0;
}

/* steps from `iters`, or from `samples`, onto a key here. */
static int64_t either(gw_cv *c, const char *iters, const char *samples, int64_t global,
                      const char *ours) {
    int64_t n = gw_cv_int(c, iters, 0), of = steps_of(c, samples, global);
    if (n > 0) {
        gw_cv_map(c, iters, ours, "%lld", (long long)n);
    } else if (of > 0) {
        int64_t all = gw_cv_int(c, samples, 0);
        gw_cv_map(c, samples, ours, "%lld", (long long)of);
        gw_cv_remark(c, samples, "%lld samples / batch %lld", (long long)all, (long long)global);
    }
    gw_cv_imply(c, iters, "0");
    if (gw_cv_get(c, samples) && gw_cv_int(c, samples, 0) == 0) gw_cv_imply(c, samples, "0");
    gw_cv_refuse(c, samples, "--world N, or steps by --set",
                 n > 0 ? "steps are given beside it"
                       : "less than a step, or the batch is not known");
    return n > 0 ? n : of;
}

static void settle_rates(gw_cv *c, int64_t global) {
    double lr = gw_cv_real(c, "lr", 0);
    int64_t steps = either(c, "train-iters", "train-samples", global, "train.steps");
    gw_cv_map_real(c, "lr", "optimizer.lr");
    gw_cv_min_lr(c, "min-lr", gw_cv_real(c, "min-lr", 0), lr);
    gw_cv_put(c, "optimizer.min_lr_ratio", "megatron's default", "0");
    const char *style = gw_cv_text(c, "lr-decay-style", "linear");
    bool wsd = gw_str_eq(style, "WSD") || gw_str_eq(style, "wsd");
    if (wsd || gw_str_eq(style, "constant") || gw_str_eq(style, "linear") ||
        gw_str_eq(style, "cosine"))
        gw_cv_map(c, "lr-decay-style", "optimizer.schedule", "%s", wsd ? "wsd" : style);
    gw_cv_refuse(c, "lr-decay-style", "--set optimizer.schedule=cosine",
                 "constant, linear, cosine and WSD are built");
    gw_cv_put(c, "optimizer.schedule", "megatron's default", "linear");
    int64_t decay = gw_cv_int(c, "lr-decay-iters", 0);
    if (!decay) decay = steps_of(c, "lr-decay-samples", global);
    int64_t end = decay ? decay : steps;
    static const char *const until[] = {"lr-decay-iters", "lr-decay-samples"};
    for (size_t i = 0; i < 2; i++) {
        if (end == steps) gw_cv_imply(c, until[i], "rates fall until train.steps");
        gw_cv_refuse(c, until[i],
                     "rates fall until train.steps, or by wsd in the last optimizer.decay_steps",
                     "the fall ends at step %lld, the run at %lld", (long long)end,
                     (long long)steps);
    }
    double part = gw_cv_real(c, "lr-warmup-fraction", -1);
    if (part > 1)
        gw_cv_conflict(c, "lr-warmup-fraction", "%g is no share: it is at most 1", part);
    else if (part >= 0 && end > 0) {
        gw_cv_map(c, "lr-warmup-fraction", "optimizer.warmup_steps", "%lld",
                  (long long)llround(part * (double)end));
        gw_cv_remark(c, "lr-warmup-fraction", "%g x %lld steps of decay", part, (long long)end);
    }
    gw_cv_refuse(c, "lr-warmup-fraction", "--set optimizer.warmup_steps=N",
                 "the number of steps is not known");
    if (part >= 0)
        gw_cv_imply_list(c, "lr-warmup-iters lr-warmup-samples", "lr-warmup-fraction says it");
    either(c, "lr-warmup-iters", "lr-warmup-samples", global, "optimizer.warmup_steps");
    gw_cv_put(c, "optimizer.warmup_steps", "megatron's default", "0");
    if (wsd)
        either(c, "lr-wsd-decay-iters", "lr-wsd-decay-samples", global, "optimizer.decay_steps");
    gw_cv_imply_list(c, "lr-wsd-decay-iters lr-wsd-decay-samples", "the style is not WSD");
    const char *fall = gw_cv_text(c, "lr-wsd-decay-style", "exponential");
    if (!wsd || gw_str_eq(fall, "cosine"))
        gw_cv_imply(c, "lr-wsd-decay-style",
                    wsd ? "the fall of wsd is a cosine" : "the style is not WSD");
    gw_cv_refuse(c, "lr-wsd-decay-style", "--lr-wsd-decay-style cosine",
                 "the fall of wsd is a cosine here");
    if (wsd && !gw_cv_known(c, "lr-wsd-decay-style"))
        gw_cv_refuse_default(c, "lr-wsd-decay-style", "exponential", NULL,
                             "the fall of wsd is a cosine here");
}

static void settle_optimizer(gw_cv *c) {
    const char *name = gw_cv_text(c, "optimizer", "adam");
    const char *ours = gw_str_eq(name, "adam")  ? "adamw"
                       : gw_str_eq(name, "sgd") ? "sgd"
                       : strstr(name, "muon")   ? "muon"
                                                : NULL;
    if (ours) gw_cv_map(c, "optimizer", "optimizer.name", "%s", ours);
    gw_cv_refuse(c, "optimizer", NULL, "adam, sgd and muon are built");
    double b1 = gw_cv_real(c, "adam-beta1", 0.9), b2 = gw_cv_real(c, "adam-beta2", 0.999);
    gw_cv_map(c, "adam-beta1", "optimizer.betas", "[%.10g, %.10g]", b1, b2);
    gw_cv_map(c, "adam-beta2", "optimizer.betas", "[%.10g, %.10g]", b1, b2);
    gw_cv_put(c, "optimizer.betas", "megatron's default", "[0.9, 0.999]");
    static const char *const away[] = {"optimizer-cpu-offload", "offload-optimizer-states"};
    for (size_t i = 0; i < GW_COUNT(away); i++) {
        if (gw_cv_bool(c, away[i], false)) {
            gw_cv_map(c, away[i], "offload.optimizer", "host");
            gw_cv_map(c, away[i], "offload.master", "host");
        }
        gw_cv_imply(c, away[i], "off");
    }
}

static void settle_precision(gw_cv *c) {
    bool bf16 = gw_cv_bool(c, "bf16", false), fp16 = gw_cv_bool(c, "fp16", false);
    if (bf16 && fp16) {
        gw_cv_conflict(c, "fp16", "bf16 is given beside it");
        return;
    }
    if (bf16) gw_cv_map(c, "bf16", "precision.compute", "bf16");
    if (fp16) gw_cv_map(c, "fp16", "precision.compute", "fp16");
    gw_cv_put(c, "precision.compute", "megatron's default", "fp32");
    gw_cv_imply_list(c, "bf16 fp16", "off");
    if (gw_cv_bool(c, "grad-reduce-in-bf16", false)) { /* the buffer that is reduced adds them up */
        if (bf16 && !gw_cv_known(c, "main-grads-dtype"))
            gw_cv_map(c, "grad-reduce-in-bf16", "precision.gradients", "compute");
        else
            gw_cv_map(c, "grad-reduce-in-bf16", "layout.gradient_wire", "bf16");
    }
    gw_cv_imply(c, "grad-reduce-in-bf16", "off");
    if (fp16) {
        gw_cv_map_real(c, "loss-scale", "precision.loss_scale");
        gw_cv_map_int(c, "loss-scale-window", "precision.loss_scale_window");
        gw_cv_map_real(c, "initial-loss-scale", "precision.loss_scale_init");
        if (!gw_cv_ours(c, "precision.loss_scale"))
            gw_cv_put(c, "precision.loss_scale_init", "megatron's default", "4294967296");
        if (!gw_cv_ours(c, "precision.loss_scale"))
            gw_cv_put(c, "precision.loss_scale_window", "megatron's default", "1000");
    }
    if (fp16) {
        bool one = gw_cv_int(c, "hysteresis", 2) == 1,
             low = gw_cv_real(c, "min-loss-scale", 1) <= 1;
        if (one) gw_cv_imply(c, "hysteresis", "the scale halves at the first overflow");
        gw_cv_refuse(c, "hysteresis", NULL, "the scale halves at the first overflow");
        if (low) gw_cv_imply(c, "min-loss-scale", "the scale may fall to 1");
        gw_cv_refuse(c, "min-loss-scale", NULL, "the scale may fall to 1");
    }
    gw_cv_imply_list(c, "loss-scale loss-scale-window initial-loss-scale hysteresis min-loss-scale",
                     "a scale is only for fp16");
    gw_cv_map(c, "fp8-format", "precision.products", "fp8");
    gw_cv_remark(c, "fp8-format",
                 "scales are by blocks: 1 x 128 of activations, 128 x 128 of weights");
    static const char *const kept[][2] = {{"main-grads-dtype", "precision.gradients"},
                                          {"exp-avg-dtype", "precision.moments"},
                                          {"exp-avg-sq-dtype", "precision.moments"}};
    for (size_t i = 0; i < GW_COUNT(kept); i++) {
        const char *dtype = gw_cv_text(c, kept[i][0], "fp32");
        bool same = gw_str_eq(dtype, bf16 ? "bf16" : "fp16");
        if (gw_str_eq(dtype, "fp32") || same)
            gw_cv_map(c, kept[i][0], kept[i][1], "%s", same ? "compute" : "float32");
        gw_cv_refuse(c, kept[i][0], NULL, "it is float32, or precision.compute");
    }
}

// ------------------------------------------------------------------ memory, files

static void settle_recompute(gw_cv *c) {
    const char *kg = "recompute-granularity";
    bool old = gw_cv_bool(c, "recompute-activations", false),
         older = gw_cv_bool(c, "checkpoint-activations", false);
    const char *how = gw_cv_text(c, kg, old ? "selective" : older ? "full" : "none");
    const char *method = gw_cv_text(c, "recompute-method", "uniform");
    int64_t n = gw_cv_int(c, "recompute-num-layers", 1);
    gw_cv_key *modules = gw_cv_get(c, "recompute-modules");
    bool moe = gw_cv_bool(c, "moe-layer-recompute", false);
    bool block = gw_str_eq(method, "block");
    if (gw_str_eq(how, "full") && block) {
        static const char *const keys[] = {"recompute-granularity", "recompute-method",
                                           "recompute-num-layers"};
        for (size_t i = 0; i < 3; i++)
            gw_cv_refuse(c, keys[i], BUDGET,
                         "some layers of a stage and not others: recomputation is the same in all "
                         "layers here");
    } else if (modules && !gw_str_eq(modules->text, "core_attn") &&
               !gw_str_eq(modules->text, "[core_attn]")) {
        bool norms = strstr(modules->text, "layernorm"), act = strstr(modules->text, "moe_act");
        bool other = strstr(modules->text, "mlp") || strstr(modules->text, "mla_up_proj") ||
                     strstr(modules->text, "shared_experts") ||
                     strstr(modules->text, "core_attn") || gw_str_ends(modules->text, "moe");
        const char *ops = other ? NULL : gw_cv_cheap_ops(c, norms, act);
        bool can = ops != NULL;
        if (can) gw_cv_map(c, "recompute-modules", "recompute.ops", "%s", ops);
        if (can && act && !strstr(ops, "glu"))
            gw_cv_remark(c, "recompute-modules", "activations of experts are a part of their op");
        if (can) gw_cv_map(c, kg, "recompute.policy", "ops");
        gw_cv_refuse(c, "recompute-modules", "--set recompute.ops=[...], or " BUDGET,
                     "these modules are no list of ops here");
        gw_cv_refuse(c, kg, BUDGET, "its modules are refused");
    } else if (gw_str_eq(how, "full") || gw_str_eq(how, "selective")) {
        gw_cv_map(c, kg, "recompute.policy", "%s", how);
        if (old) gw_cv_map(c, "recompute-activations", "recompute.policy", "%s", how);
        if (older) gw_cv_map(c, "checkpoint-activations", "recompute.policy", "%s", how);
    }
    if (moe) gw_cv_refuse(c, "moe-layer-recompute", BUDGET, "experts alone are not computed again");
    gw_cv_imply(c, "moe-layer-recompute", "off");
    gw_cv_imply(c, "recompute-modules", "selective is attention");
    if (n == 1 || gw_str_eq(how, "none") || gw_str_eq(how, "selective"))
        gw_cv_imply(c, "recompute-num-layers", "each layer by itself");
    gw_cv_refuse(c, "recompute-num-layers", NULL,
                 "each layer is computed again by itself, from its own input");
    gw_cv_imply(c, "recompute-method", "all layers are alike");
    gw_cv_imply_list(c, "recompute-granularity recompute-activations checkpoint-activations",
                     "off");
}

/* One prefix, or a weight and a prefix. */
static const char *single_prefix(gw_cv *c, const char *canon) {
    gw_cv_key *k = gw_cv_get(c, canon);
    double weight;
    if (!k) return NULL;
    if (k->type == GW_CV_TEXT) return gw_cv_text(c, canon, NULL);
    if (k->nitems == 1) return k->items[0];
    return k->nitems == 2 && gw_parse_f64(k->items[0], &weight) ? k->items[1] : NULL;
}

static void settle_data(gw_cv *c) {
    static const char *const keys[][2] = {{"data-path", "data.train"},
                                          {"train-data-path", "data.train"},
                                          {"valid-data-path", "data.valid"}};
    for (size_t i = 0; i < 3; i++) {
        const char *prefix = single_prefix(c, keys[i][0]);
        if (prefix) gw_cv_map(c, keys[i][0], keys[i][1], "%s", gw_cv_quote(c, prefix));
        gw_cv_refuse(c, keys[i][0], PREFIX1, "one prefix of token files is read, not a mixture");
    }
    gw_cv_refuse(c, "split", "--set data.valid=PREFIX",
                 "held-out data are files of their own; data.train is read whole");
    bool valid = gw_cv_ours(c, "data.valid") != NULL,
         full = gw_cv_bool(c, "full-validation", false);
    int64_t every = gw_cv_int(c, "eval-interval", 1000), iters = gw_cv_int(c, "eval-iters", 100);
    int64_t per_iter = gw_cv_ours_int(c, "train.accumulate", 0); /* on each of dp ranks, as ours */
    if (valid) gw_cv_map(c, "eval-interval", "train.valid_every", "%lld", (long long)every);
    if (valid && full) gw_cv_map(c, "full-validation", "train.valid_batches", "0");
    gw_cv_imply(c, "full-validation", "off, or nothing is held out");
    if (full || iters == 0)
        gw_cv_imply(c, "eval-iters", full ? "all of the held-out data" : "no validation");
    if (valid && per_iter > 0) {
        gw_cv_map(c, "eval-iters", "train.valid_batches", "%lld",
                  (long long)gw_cv_times(iters, per_iter));
        gw_cv_remark(c, "eval-iters", "%lld x accumulate %lld micro-batches of each of dp ranks",
                     (long long)iters, (long long)per_iter);
    }
    gw_cv_refuse(c, "eval-iters", "--set data.valid=PREFIX",
                 "validation needs held-out data, and its batch");
    gw_cv_refuse(c, "eval-interval", "--set data.valid=PREFIX", "validation needs held-out data");
    bool apart = gw_cv_bool(c, "reset-attention-mask", false);
    static const char *const together = "documents in a row see each other there, and do not here";
    static const char *const alone = "--set data.pack=false: a document a row";
    if (!apart && gw_cv_known(c, "reset-attention-mask"))
        gw_cv_refuse(c, "reset-attention-mask", alone, "%s", together);
    else if (!apart)
        gw_cv_refuse_default(c, "reset-attention-mask", "false", alone, "%s", together);
    gw_cv_imply_list(c, "reset-attention-mask reset-position-ids",
                     "documents in a row never see each other, and positions restart (data.pack)");
    bool mask = gw_cv_bool(c, "eod-mask-loss", false);
    gw_cv_map(c, "eod-mask-loss", "data.mask_first_label", "%s", mask ? "true" : "false");
    gw_cv_put(c, "data.mask_first_label", "megatron's default", "false");
}

static void settle_files(gw_cv *c) {
    const char *save = gw_cv_get(c, "save") ? gw_cv_get(c, "save")->text : NULL,
               *load = gw_cv_get(c, "load") ? gw_cv_get(c, "load")->text : NULL;
    bool tune = gw_cv_bool(c, "finetune", false);
    gw_cv_imply(c, "save", "--out names the run's folder");
    if (save && gw_str_eq(save, load) && !tune)
        gw_cv_imply(c, "load", "the folder it saves to: --resume goes on from there");
    gw_cv_refuse(c, "load", "--model DIR of a Hugging Face model starts from its weights",
                 "checkpoints of Megatron are not read");
    if (tune)
        gw_cv_refuse(c, "finetune", "--model DIR of a Hugging Face model",
                     "checkpoints of Megatron are not read");
    gw_cv_imply_list(c, "finetune no-load-optim no-load-rng",
                     "--resume loads all of a checkpoint, --model the weights alone");
    int64_t last = gw_cv_int(c, "most-recent-k", -1);
    gw_cv_map(c, "most-recent-k", "checkpoint.keep_last", "%lld",
              (long long)GW_MAX(last, (int64_t)0));
    gw_cv_put(c, "checkpoint.keep_last", "megatron's default: all are kept", "0");
    int64_t minutes = gw_cv_int(c, "distributed-timeout-minutes", 10);
    gw_cv_map(c, "distributed-timeout-minutes", "layout.timeout", "%lld", (long long)minutes * 60);
}

static void settle(gw_cv *c) {
    gw_cv_megatron_model(c);
    int64_t tp = gw_cv_degree(c, "tensor-model-parallel-size", "layout.tp");
    int64_t pp = gw_cv_degree(c, "pipeline-model-parallel-size", "layout.pp");
    int64_t cp = gw_cv_degree(c, "context-parallel-size", "layout.cp");
    gw_cv_degree(c, "expert-model-parallel-size", "layout.ep");
    if (c->errors) return;
    settle_tensor(c, tp);
    settle_context(c, cp);
    gw_cv_megatron_pipeline(c, pp);
    int64_t ranks = settle_ranks(c, gw_cv_times(tp, gw_cv_times(pp, cp))),
            dp = gw_cv_dp_of(c, ranks, "nproc-per-node");
    settle_sharding(c, dp);
    settle_rates(c, settle_batch(c, dp));
    settle_optimizer(c);
    settle_precision(c);
    settle_recompute(c);
    settle_data(c);
    settle_files(c);
}

const gw_cv_format gw_cv_megatron = {
    .name = "megatron",
    .doc = "Megatron-LM's arguments: a shell script, a list of --flags, or YAML (.yaml, .yml)",
    .rules = rules,
    .nrules = (int)GW_COUNT(rules),
    .renames = renames,
    .says = says,
    .words = true,
    .read = read,
    .settle = settle,
};

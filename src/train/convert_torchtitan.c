// SPDX-License-Identifier: Apache-2.0
// torchtitan: job configurations in TOML, of all its versions.
//
// Sections have moved over time (training.tensor_parallel_degree became parallelism's), so older
// spellings are renamed first. A batch there is local_batch_size sequences for each data-parallel
// rank, global_batch_size / (local x dp) times; with a pipeline the local batch is cut into
// micro-batches of pipeline_parallel_microbatch_size. Here micro_batch and accumulate say the same
// without a pipeline in between. dp is data_parallel_replicate_degree x data_parallel_shard_degree,
// where -1 stands for what the ranks leave: it needs --world.
//
// Sources: torchtitan's job_config.py and the train_configs of its models.
#include <math.h>   /* llround */
#include <stdlib.h> /* strtod */
#include <string.h> /* strstr */

#include "base/io.h" /* gw_path_exists */
#include "train/convert_torchtitan_rules.h"

// ------------------------------------------------------------------ the model

typedef struct flavour {
    const char *name, *flavour, *preset;
} flavour;

/* Sizes that are published shapes. */
static const flavour flavours[] = {
    {"llama2", "7B", "llama2-7b"},
    {"llama2", "70B", "llama2-70b"},
    {"llama3", "8B", "llama3-8b"},
    {"llama3", "70B", "llama3-70b"},
    {"llama3", "405B", "llama3-405b"},
    {"qwen3", "0.6B", "qwen3-0.6b"},
    {"qwen3", "1.7B", "qwen3-1.7b"},
    {"qwen3", "4B", "qwen3-4b"},
    {"qwen3", "8B", "qwen3-8b"},
    {"qwen3", "14B", "qwen3-14b"},
    {"qwen3", "32B", "qwen3-32b"},
    {"qwen3", "30B-A3B", "qwen3-30b-a3b"},
    {"qwen3", "30BA3B", "qwen3-30b-a3b"},
    {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
    {"qwen3", "235BA22B", "qwen3-235b-a22b"},
    {"deepseek_v3", "16B", "deepseek-v2-lite"},
    {"deepseek_v3", "236B", "deepseek-v2"},
    {"deepseek_v3", "671B", "deepseek-v3"},
};

/* torchtitan's small Llama for trials. */
static void debug_llama(gw_cv *c) {
    static const struct {
        const char *ours, *text;
    } dims[] = {{"model.layers", "6"},         {"model.hidden", "256"}, {"model.heads", "16"},
                {"model.kv_heads", "16"},      {"model.ffn", "768"},    {"model.vocab", "2048"},
                {"model.rope_theta", "500000"}};
    gw_cv_map(c, "model.flavor", "model.family", "llama");
    for (size_t i = 0; i < GW_COUNT(dims); i++)
        gw_cv_put(c, dims[i].ours, "torchtitan's debugmodel", "%s", dims[i].text);
}

/* A flavour less what says how attention is computed: "8B_flex". */
static const char *plain_flavour(gw_cv *c, const char *size) {
    static const char *const ends[] = {"_flex_attn", "_flex", "_varlen_attn", "_varlen"};
    for (size_t i = 0; i < GW_COUNT(ends); i++)
        if (gw_str_ends(size, ends[i]))
            return gw_arena_strndup(c->a, size, strlen(size) - strlen(ends[i]));
    return size;
}

static void settle_model(gw_cv *c) {
    const char *name = gw_cv_text(c, "model.name", "llama3");
    const char *size = plain_flavour(c, gw_cv_text(c, "model.flavor", "debugmodel"));
    if (gw_str_eq(name, "llama")) name = "llama2"; /* as the first versions had it */
    if (c->model_given) return;
    if (gw_str_eq(name, "llama3") && gw_str_eq(size, "debugmodel")) {
        debug_llama(c);
        gw_cv_imply(c, "model.name", "the family of model.flavor");
        return;
    }
    for (size_t i = 0; i < GW_COUNT(flavours); i++) {
        if (!gw_str_eq(flavours[i].name, name) || !gw_str_eq(flavours[i].flavour, size)) continue;
        gw_cv_imply(c, "model.name", "the family of model.flavor");
        gw_cv_map(c, "model.flavor", "model.preset", "%s", flavours[i].preset);
        return;
    }
    gw_cv_refuse(c, "model.flavor",
                 "name a model that is built here: --model PRESET or --model DIR",
                 "no shape of %s %s is known here", name, size);
    gw_cv_refuse(c, "model.name", NULL, "no shape of %s %s is known here", name, size);
}

static void settle_tokenizer(gw_cv *c) {
    const char *path = gw_cv_text(c, "model.hf_assets_path", NULL);
    if (path && gw_path_exists(path))
        gw_cv_map(c, "model.hf_assets_path", "data.tokenizer", "%s", gw_cv_quote(c, path));
    gw_cv_refuse(c, "model.hf_assets_path", "--set data.tokenizer=PATH",
                 "there is no such tokenizer on this machine");
    gw_cv_refuse(c, "model.vocab_size", "--set model.vocab=N", "the model's shape has its own");
}

// ------------------------------------------------------------------ layout and batch

static const struct {
    const char *theirs, *ours;
    bool looped;
} schedules[] = {
    {"1F1B", "1f1b", false},
    {"GPipe", "gpipe", false},
    {"Interleaved1F1B", "interleaved", true},
    {"ZBVZeroBubble", "zbv", true},
    {"DualPipeV", "dualpipev", true},
};

/* Stages as a list of numbers of layers, or NULL: "layers.4" begins one with layer 4. */
static const char *stages_by_points(gw_cv *c, const gw_cv_key *k, int64_t layers) {
    gw_str s = {0};
    int64_t at = 0;
    const char *text = NULL;
    for (int i = 0; i <= k->nitems; i++) {
        int64_t cut = layers;
        const char *item = i < k->nitems ? k->items[i] : NULL;
        if (item && (!gw_str_starts(item, "layers.") || !gw_parse_i64(item + 7, &cut))) break;
        if (cut < at || cut > layers) break;
        gw_str_printf(&s, "%s%lld", i ? ", " : "", (long long)(cut - at));
        at = cut;
        if (i == k->nitems) text = gw_arena_printf(c->a, "[%s]", gw_str_c(&s));
    }
    gw_str_release(&s);
    return text;
}

/* The same of lists of modules, one for each stage: all layers in their order. */
static const char *stages_by_names(gw_cv *c, const gw_cv_key *k, int64_t layers) {
    gw_str s = {0};
    int64_t next = 0;
    bool order = true;
    for (int i = 0; i < k->nitems; i++) {
        int64_t from = next;
        for (const char *p = k->items[i]; (p = strstr(p, "layers.")); p++)
            order &= strtoll(p + 7, NULL, 10) == next++;
        gw_str_printf(&s, "%s%lld", i ? ", " : "", (long long)(next - from));
    }
    const char *text = order && next == layers ? gw_arena_printf(c->a, "[%s]", gw_str_c(&s)) : NULL;
    gw_str_release(&s);
    return text;
}

static void settle_cuts(gw_cv *c, int64_t pp) {
    static const char *const keys[] = {PAR "pipeline_parallel_split_points",
                                       PAR "module_fqns_per_model_part"};
    int64_t layers = gw_cv_layers(c);
    for (int i = 0; i < 2; i++) {
        const gw_cv_key *k = gw_cv_get(c, keys[i]);
        if (!k || k->nitems == 0) {
            gw_cv_imply(c, keys[i], "stages are balanced by cost");
            continue;
        }
        int stages = k->nitems + (i == 0);
        const char *text = layers == 0 ? NULL
                           : i == 0    ? stages_by_points(c, k, layers)
                                       : stages_by_names(c, k, layers);
        if (text && stages % pp == 0) {
            gw_cv_map(c, keys[i], "layout.stages", "%s", text);
            if (stages > pp)
                gw_cv_map(c, keys[i], "layout.virtual_stages", "%lld", (long long)(stages / pp));
        }
        gw_cv_refuse(c, keys[i], "--set layout.stages=[3,4,4,3]",
                     "it does not cut the layers into stages for %lld ranks", (long long)pp);
    }
}

static void settle_stages(gw_cv *c, int64_t pp, bool looped) {
    int64_t layers = gw_cv_layers(c), n = 0;
    settle_cuts(c, pp);
    int64_t each = gw_cv_int(c, "parallelism.pipeline_parallel_layers_per_stage", 0);
    if (each > 0 && layers) { /* embedding and head count as a layer each, as by default there */
        n = (layers + 2 + each - 1) / each;
        if (n % pp == 0)
            gw_cv_map(c, "parallelism.pipeline_parallel_layers_per_stage", "layout.virtual_stages",
                      "%lld", (long long)(n / pp));
    }
    gw_cv_refuse(c, "parallelism.pipeline_parallel_layers_per_stage",
                 "--set layout.virtual_stages=N",
                 "%lld layers in stages of %lld give no equal number to each of %lld ranks",
                 (long long)layers, (long long)each, (long long)pp);
    if (looped)
        gw_cv_put(c, "layout.virtual_stages", "torchtitan's default for schedules in loops", "2");
}

static void settle_pipeline(gw_cv *c, int64_t pp) {
    const char *name = gw_cv_text(c, "parallelism.pipeline_parallel_schedule", "1F1B");
    bool looped = false;
    if (pp <= 1) {
        static const char *const idle[] = {"schedule", "split_points", "layers_per_stage"};
        gw_cv_imply(c, PAR "module_fqns_per_model_part", "no pipeline: the degree is 1");
        for (size_t i = 0; i < GW_COUNT(idle); i++)
            gw_cv_imply(c, gw_arena_printf(c->a, "parallelism.pipeline_parallel_%s", idle[i]),
                        "no pipeline: the degree is 1");
        return;
    }
    for (size_t i = 0; i < GW_COUNT(schedules); i++) {
        if (gw_str_distance(name, schedules[i].theirs) != 0) continue;
        looped = schedules[i].looped;
        gw_cv_map(c, "parallelism.pipeline_parallel_schedule", "layout.schedule", "%s",
                  schedules[i].ours);
    }
    gw_cv_refuse(c, "parallelism.pipeline_parallel_schedule",
                 "--set layout.schedule=zb-h1 (or interleaved, zbv, dualpipev, 1f1b, gpipe)",
                 "there is no such schedule here");
    settle_stages(c, pp, looped);
}

static void settle_tensor(gw_cv *c, int64_t tp, int64_t cp) {
    const char *async = "parallelism.enable_async_tensor_parallel";
    int64_t tokens = gw_cv_ours_int(c, "train.seq_len", 2048) / GW_MAX(cp, 1);
    bool fp8 = gw_str_eq(gw_cv_ours(c, "precision.products"), "fp8");
    if (!gw_cv_bool(c, async, false) || tp <= 1) {
        gw_cv_imply(c, async, tp <= 1 ? "no tensor parallelism: the degree is 1" : "off");
    } else if (fp8) {
        gw_cv_refuse(c, async, "--set precision.products=compute --set layout.tp_chunks=N",
                     "products in eight bits are not cut into pieces");
    } else if (tp <= 64 && tokens % (tp * tp) == 0) {
        gw_cv_map(c, async, "layout.tp_chunks", "%lld", (long long)tp);
        gw_cv_remark(c, async, "gathers and products in as many pieces as ranks, as there");
    }
    gw_cv_refuse(c, async, "--set layout.tp_chunks=N",
                 "%lld tokens of a rank are not cut evenly in %lld pieces", (long long)tokens,
                 (long long)tp);
    const char *etp = "parallelism.expert_tensor_parallel_degree";
    const char *sp = PAR "enable_sequence_parallel";
    bool on = gw_cv_bool(c, sp, true);
    if (tp > 1) gw_cv_map(c, sp, "layout.sequence_parallel", "%s", on ? "true" : "false");
    gw_cv_imply(c, sp, "no tensor parallelism: the degree is 1");
    int64_t e = gw_cv_int(c, etp, 1);
    if (e == 1) gw_cv_imply(c, etp, "experts are whole: layout.ep spreads them");
    gw_cv_refuse(c, etp, "--set layout.ep=N: experts are spread over tp as well",
                 "experts are not cut inside");
}

/* What is sharded, over what, and the batch. */
static void settle_data_parallel(gw_cv *c, int64_t pp) {
    const char *rep = "parallelism.data_parallel_replicate_degree";
    const char *sh = "parallelism.data_parallel_shard_degree";
    const char *re = "parallelism.fsdp_reshard_after_forward";
    int64_t replicate = gw_cv_int(c, rep, 1), shard = gw_cv_int(c, sh, -1);
    int64_t all = gw_cv_dp_of(c, c->request->world, NULL);
    if (replicate < 1 || shard == 0 || shard < -1) {
        gw_cv_conflict(c, replicate < 1 ? rep : sh,
                       "a degree is at least 1, or -1 for what is left");
        return;
    }
    if (shard < 0 && all && all % replicate) {
        gw_cv_conflict(c, rep, "%lld data-parallel ranks are not %lld replicas of one size",
                       (long long)all, (long long)replicate);
        return;
    }
    if (shard > 0 && all && gw_cv_times(replicate, shard) != all) {
        gw_cv_conflict(
            c, sh, "%lld replicas x %lld shards are not the %lld data-parallel ranks of --world",
            (long long)replicate, (long long)shard, (long long)all);
        return;
    }
    int64_t parts = shard > 0 ? shard : all ? all / replicate : 0;
    int64_t dp = parts ? gw_cv_times(replicate, parts) : 0;
    bool ddp = shard == 1 && gw_cv_ours_int(c, "layout.cp", 1) == 1; /* cp shards as well */
    if (gw_cv_get(c, sh))
        gw_cv_map(c, sh, "layout.zero", "%d", ddp ? 0 : 3);
    else
        gw_cv_put(c, "layout.zero", "torchtitan's default: FSDP over the ranks that are left", "3");
    if (shard < 0) gw_cv_remark(c, sh, dp ? "what --world leaves" : "over the ranks that are left");
    if (shard == 1 && !ddp) gw_cv_remark(c, sh, "over the ranks of context parallelism");
    if (ddp)
        gw_cv_imply(c, rep, "copies: layout.zero 0 is DDP");
    else if (replicate > 1 && dp)
        gw_cv_map(c, rep, "layout.dp_replicate", "%lld", (long long)replicate);
    else if (replicate > 1)
        gw_cv_refuse(c, rep, "--world N", "the number of data-parallel ranks is not known");
    gw_cv_imply(c, rep, "one replica");
    const char *policy = gw_cv_text(c, re, "default");
    if (!ddp && gw_str_eq(policy, "never"))
        gw_cv_map(c, re, "layout.reshard_after_forward", "false");
    else if (!ddp && pp > 1 && gw_str_eq(policy, "default") && gw_cv_get(c, re)) {
        gw_cv_map(c, re, "layout.reshard_after_forward", "false");
        gw_cv_remark(c, re, "default with a pipeline: parameters stay gathered");
    } else if (!ddp && (gw_str_eq(policy, "default") || gw_str_eq(policy, "always")))
        gw_cv_map(c, re, "layout.reshard_after_forward", "true");
    else if (ddp)
        gw_cv_imply(c, re, "parameters are not sharded");
    if (gw_cv_get(c, re)) gw_cv_conflict(c, re, "it is always, never or default");
    if (!ddp && pp > 1)
        gw_cv_put(c, "layout.reshard_after_forward", "torchtitan's default with a pipeline",
                  "false");

    const char *local_key = "training.local_batch_size", *global_key = "training.global_batch_size";
    const char *mb_key = "parallelism.pipeline_parallel_microbatch_size";
    const char *acc_key = "training.gradient_accumulation_steps";
    int64_t local = gw_cv_int(c, local_key, 8), global = gw_cv_int(c, global_key, -1);
    int64_t mb = gw_cv_int(c, mb_key, 1), acc = gw_cv_int(c, acc_key, 1), cuts = 1;
    gw_cv_batch b = {
        .dp = {dp, NULL, shard > 0 ? "replicas x shards" : "--world / (pp x tp x cp)"}};
    if (local < 1) {
        gw_cv_conflict(c, local_key, "%lld is no size", (long long)local);
        return;
    }
    if (pp > 1) {
        if (mb < 1 || local % mb) {
            gw_cv_conflict(
                c, local_key,
                "a local batch of %lld is no multiple of the pipeline's micro-batch of %lld",
                (long long)local, (long long)mb);
            return;
        }
        cuts = local / mb;
        b.micro = (gw_cv_portion){mb, gw_cv_get(c, mb_key) ? mb_key : NULL,
                                  "torchtitan's default for pipelines"};
    } else {
        gw_cv_imply(c, mb_key, "no pipeline: the degree is 1");
        b.micro = (gw_cv_portion){local, gw_cv_get(c, local_key) ? local_key : NULL,
                                  "torchtitan's default"};
    }
    if (global > 0) {
        b.global = (gw_cv_portion){global, global_key, NULL};
        if (dp && global % gw_cv_times(local, dp)) {
            gw_cv_conflict(c, global_key,
                           "a global batch of %lld is no multiple of local batch %lld x dp %lld",
                           (long long)global, (long long)local, (long long)dp);
            return;
        }
    } else {
        gw_cv_imply(c, global_key, "micro-batch x accumulate x dp");
        b.accumulate = (gw_cv_portion){gw_cv_times(cuts, acc),
                                       pp > 1 && gw_cv_get(c, local_key) ? local_key
                                       : gw_cv_get(c, acc_key)           ? acc_key
                                                                         : NULL,
                                       "one pass a step"};
    }
    gw_cv_settle_batch(c, b);
    if (pp > 1)
        gw_cv_remark(c, local_key, "%lld / micro-batch %lld", (long long)local, (long long)mb);
    gw_cv_imply(c, local_key,
                "local batch / the pipeline's micro-batch, times the passes of a step, is "
                "train.accumulate");
    gw_cv_imply(c, acc_key, "in train.accumulate");
}

static void settle_context(gw_cv *c, int64_t cp) {
    const char *k = "parallelism.context_parallel_rotate_method";
    const char *how = gw_cv_text(c, k, "allgather");
    if (cp <= 1)
        gw_cv_imply(c, k, "no context parallelism: the degree is 1");
    else if (gw_str_eq(how, "allgather") || gw_str_eq(how, "alltoall"))
        gw_cv_map(c, k, "layout.cp_mode", "%s", gw_str_eq(how, "alltoall") ? "ring" : "allgather");
    if (gw_cv_get(c, k)) gw_cv_conflict(c, k, "it is allgather or alltoall");
    if (cp > 1) gw_cv_put(c, "layout.cp_mode", "torchtitan's default", "allgather");
}

// ------------------------------------------------------------------ the rest

static void settle_optimizer(gw_cv *c) {
    const char *name = gw_cv_text(c, "optimizer.name", "AdamW");
    double decay = gw_cv_ours(c, "optimizer.weight_decay")
                       ? strtod(gw_cv_ours(c, "optimizer.weight_decay"), NULL)
                       : 0.1;
    bool muon = gw_str_distance(name, "Muon") == 0;
    if (gw_str_eq(name, "AdamW") || (gw_str_eq(name, "Adam") && !(decay > 0)))
        gw_cv_map(c, "optimizer.name", "optimizer.name", "adamw");
    if (muon) {
        gw_cv_map(c, "optimizer.name", "optimizer.name", "muon");
        gw_cv_map_real(c, "optimizer.mu", "optimizer.muon_momentum");
        const char *lr = gw_cv_ours(c, "optimizer.lr");
        gw_cv_put(c, "optimizer.muon_lr", "one rate for all", "%s", lr ? lr : "8e-4");
    }
    gw_cv_imply(c, "optimizer.mu", "of Muon, which is not the optimizer");
    bool ahead = gw_cv_bool(c, "optimizer.nesterov", false);
    if (!muon || ahead)
        gw_cv_imply(c, "optimizer.nesterov",
                    muon ? "Muon here looks ahead" : "of Muon, which is not the optimizer");
    gw_cv_refuse(c, "optimizer.nesterov", NULL, "Muon here looks ahead");
    gw_cv_refuse(c, "optimizer.name",
                 gw_str_eq(name, "Adam") ? "--set optimizer.weight_decay=0 makes the two the same"
                                         : "adamw, sgd and muon are built",
                 gw_str_eq(name, "Adam") ? "its decay is added to the gradient; adamw's is not"
                                         : "there is no %s here",
                 name);
    double b1 = gw_cv_real(c, "optimizer.beta1", 0.9), b2 = gw_cv_real(c, "optimizer.beta2", 0.95);
    gw_cv_map(c, "optimizer.beta1", "optimizer.betas", "[%.10g, %.10g]", b1, b2);
    gw_cv_map(c, "optimizer.beta2", "optimizer.betas", "[%.10g, %.10g]", b1, b2);
}

static void settle_schedule(gw_cv *c) {
    const char *kr = "lr_scheduler.decay_ratio", *kt = "lr_scheduler.decay_type";
    const char *type = gw_cv_text(c, kt, "linear");
    int64_t steps = gw_cv_ours_int(c, "train.steps", 10000),
            warm = gw_cv_ours_int(c, "optimizer.warmup_steps", 200);
    gw_cv_put(c, "optimizer.warmup_steps", "torchtitan's default", "%lld",
              (long long)GW_MIN((int64_t)200, steps));
    if (warm > steps) {
        gw_cv_conflict(c, "lr_scheduler.warmup_steps",
                       "%lld steps of warm-up are more than the %lld of the run", (long long)warm,
                       (long long)steps);
        return;
    }
    double ratio = gw_cv_real(c, kr, 0);
    if (gw_cv_get(c, kr) && !(ratio >= 0 && ratio <= 1)) {
        gw_cv_conflict(c, kr, "%g is no share of the run: it is from 0 to 1", ratio);
        return;
    }
    int64_t fall = gw_cv_get(c, kr) ? llround(ratio * (double)steps) : steps;
    bool whole = !gw_cv_get(c, kr) || warm + fall >= steps; /* no stable part */
    gw_cv_refuse(c, "lr_scheduler.total_steps", "rates fall until train.steps",
                 "schedules end with the run here");
    if (whole && (gw_str_eq(type, "linear") || gw_str_eq(type, "cosine"))) {
        gw_cv_map(c, kt, "optimizer.schedule", "%s", type);
        gw_cv_put(c, "optimizer.schedule", "torchtitan's default", "%s", type);
        gw_cv_imply(c, kr, "with the warm-up it fills the run: there is no stable part");
    } else if (!whole && gw_str_eq(type, "cosine")) {
        gw_cv_map(c, kt, "optimizer.schedule", "wsd");
        gw_cv_remark(c, kt, "the fall of wsd is a cosine");
        gw_cv_map(c, kr, "optimizer.decay_steps", "%lld", (long long)fall);
    } else {
        gw_cv_refuse(c, kt, "wsd falls as a cosine; linear and cosine fall over the whole run",
                     "no such fall at the end of a run here");
        gw_cv_put(c, "optimizer.schedule",
                  whole ? "the nearest to what was asked" : "warm-up, stable, decay", "%s",
                  whole ? "cosine" : "wsd");
        if (!whole) gw_cv_map(c, kr, "optimizer.decay_steps", "%lld", (long long)fall);
    }
}

static void settle_precision(gw_cv *c) {
    const char *param = gw_cv_text(c, "training.mixed_precision_param", "bfloat16");
    if (gw_str_eq(param, "bfloat16") || gw_str_eq(param, "float32"))
        gw_cv_map(c, "training.mixed_precision_param", "precision.compute", "%s",
                  gw_str_eq(param, "float32") ? "fp32" : "bf16");
    if (gw_cv_get(c, "training.mixed_precision_param"))
        gw_cv_conflict(c, "training.mixed_precision_param", "it is bfloat16 or float32");
    gw_cv_put(c, "precision.compute", "torchtitan's default", "bf16");
    const char *reduce = gw_cv_text(c, "training.mixed_precision_reduce", "float32");
    if (gw_str_eq(reduce, "bfloat16"))
        gw_cv_map(c, "training.mixed_precision_reduce", "layout.gradient_wire", "bf16");
    if (gw_str_eq(reduce, "float32"))
        gw_cv_imply(c, "training.mixed_precision_reduce", "gradients are float32");
    if (gw_cv_get(c, "training.mixed_precision_reduce"))
        gw_cv_conflict(c, "training.mixed_precision_reduce", "it is float32 or bfloat16");
    const char *dtype = gw_cv_text(c, "training.dtype", "float32");
    if (gw_str_eq(dtype, "float32")) gw_cv_imply(c, "training.dtype", "the master copy is float32");
    if (gw_str_eq(dtype, "bfloat16")) gw_cv_map(c, "training.dtype", "precision.master", "none");
    if (gw_cv_get(c, "training.dtype"))
        gw_cv_conflict(c, "training.dtype", "it is float32 or bfloat16");
    if (gw_cv_bool(c, "training.enable_cpu_offload", false)) {
        gw_cv_map(c, "training.enable_cpu_offload", "offload.optimizer", "host");
        gw_cv_map(c, "training.enable_cpu_offload", "offload.master", "host");
        if (gw_cv_ours_int(c, "layout.zero", 0) == 3)
            gw_cv_map(c, "training.enable_cpu_offload", "offload.parameters", "host");
    }
    gw_cv_imply(c, "training.enable_cpu_offload", "off");
}

static bool lists(const gw_cv_key *k, const char *word) {
    if (!k) return false;
    for (int i = 0; i < k->nitems; i++)
        if (strstr(k->items[i], word)) return true;
    return k->nitems == 0 && k->text && strstr(k->text, word);
}

/* Names of modules that are left out: those that stay as they are here are no loss. */
static bool only_left_out_here(const gw_cv_key *k) {
    static const char *const here[] = {
        "output", "router.gate", "router", "auto_filter_small_kn", "lm_head", ""};
    for (int i = 0; i < GW_MAX(k->nitems, k->type == GW_CV_LIST ? 0 : 1); i++) {
        const char *name = k->nitems ? k->items[i] : k->text;
        bool known = false;
        for (size_t j = 0; j < GW_COUNT(here); j++) known |= gw_str_eq(here[j], name);
        if (!known) return false;
    }
    return true;
}

static void settle_float8(gw_cv *c) {
    gw_cv_key *conv = gw_cv_get(c, "model.converters");
    bool old = gw_cv_bool(c, "float8.enable_float8_linear", false),
         on = old || lists(conv, "float8");
    if (lists(conv, "float8")) {
        gw_cv_map(c, "model.converters", "precision.products", "fp8");
        gw_cv_remark(c, "model.converters",
                     "scales are by blocks here: 1 x 128 of activations, 128 x 128 of weights");
    } else if (conv && conv->nitems == 0 && (conv->type == GW_CV_LIST || !*conv->text)) {
        gw_cv_imply(c, "model.converters", "none");
    }
    gw_cv_refuse(c, "model.converters", NULL, "no such rewrite of the model here");
    if (old) gw_cv_map(c, "float8.enable_float8_linear", "precision.products", "fp8");
    gw_cv_imply(c, "float8.enable_float8_linear", "off");
    const char *gather = "float8.enable_fsdp_float8_all_gather";
    if (!gw_cv_bool(c, gather, false) || !on) gw_cv_imply(c, gather, on ? "off" : "float8 is off");
    gw_cv_refuse(c, gather, "--set layout.weight_wire=int8",
                 "gathers of weights carry their own dtype, bf16 or int8");
    const char *recipe = "float8.recipe_name";
    if (!on) gw_cv_imply(c, recipe, "float8 is off");
    gw_cv_refuse(c, recipe, "scales are by blocks: docs/fp8.md",
                 "scales by tensor or by row are not built");
    gw_cv_key *filter = gw_cv_get(c, "float8.filter_fqns"), *moe = gw_cv_get(c, "float8.moe_fqns");
    if (filter && (!on || only_left_out_here(filter)))
        gw_cv_imply(c, filter->canon,
                    on ? "head and routers stay in precision.compute" : "float8 is off");
    gw_cv_refuse(c, "float8.filter_fqns", NULL,
                 "all linear layers of blocks are eight-bit, or none");
    if (moe && (!on || (moe->nitems == 0 && (moe->type == GW_CV_LIST || !*moe->text))))
        gw_cv_imply(c, moe->canon, "experts stay in precision.compute");
    gw_cv_refuse(c, "float8.moe_fqns", NULL, "experts stay in precision.compute");
}

static void settle_recompute(gw_cv *c) {
    const char *km = "activation_checkpoint.mode",
               *ko = "activation_checkpoint.selective_ac_option";
    const char *mode = gw_cv_text(c, km, "selective");
    const char *cheap = gw_cv_cheap_ops(c, true, true);
    gw_cv_key *k = gw_cv_get(c, ko);
    const char *option = k && k->type == GW_CV_INT ? k->text : gw_cv_text(c, ko, "op");
    if (gw_str_eq(mode, "none") || gw_str_eq(mode, "full"))
        gw_cv_map(c, km, "recompute.policy", "%s", mode);
    if (!gw_str_eq(mode, "selective")) {
        gw_cv_imply(c, ko, "the mode is %s", mode);
    } else if (gw_str_eq(option, "1")) {
        gw_cv_map(c, km, "recompute.policy", "full");
        gw_cv_imply(c, ko, "every layer: full");
    } else if (gw_str_eq(option, "op")) {
        const char *why =
            "attention is kept, what is cheap is computed again; there also every second product";
        gw_cv_map(c, km, "recompute.policy", "ops");
        gw_cv_map(c, km, "recompute.ops", "%s", cheap);
        gw_cv_remark(c, km, "%s", why);
        gw_cv_imply(c, ko, "by op: recompute.ops");
    } else {
        gw_cv_refuse(c, ko, "--set recompute.policy=budget --set recompute.budget=BYTES, or full",
                     "every %s-th layer: recomputation is the same in all layers here", option);
        gw_cv_refuse(c, km, NULL, "selective by layers is not built");
    }
    if (!gw_cv_ours(c, "recompute.policy") && !gw_cv_get(c, km) && gw_str_eq(mode, "selective") &&
        gw_str_eq(option, "op")) {
        gw_cv_put(c, "recompute.policy", "torchtitan's default: selective", "ops");
        gw_cv_put(c, "recompute.ops", "torchtitan's default: selective", "%s", cheap);
    }
    gw_cv_refuse(c, km, "--set recompute.policy=budget --set recompute.budget=BYTES",
                 "recomputation is none, selective, full, ops or budget");
}

static void settle_checkpoint(gw_cv *c) {
    bool on = gw_cv_bool(c, "checkpoint.enable", false);
    int64_t every = gw_cv_int(c, "checkpoint.interval", 500);
    if (on) gw_cv_map(c, "checkpoint.interval", "checkpoint.every", "%lld", (long long)every);
    if (!on) gw_cv_map(c, "checkpoint.enable", "checkpoint.every", "0");
    if (!on) gw_cv_remark(c, "checkpoint.enable", "0: only at the end");
    gw_cv_imply(c, "checkpoint.interval", "checkpoints are off");
    gw_cv_imply(c, "checkpoint.enable", "checkpoint.every says how often");
    gw_cv_put(c, "checkpoint.every", "torchtitan's default", on ? "500" : "0");
}

static void settle_validation(gw_cv *c) {
    bool on = gw_cv_bool(c, "validation.enable", false), data = gw_cv_ours(c, "data.valid") != NULL;
    int64_t freq = gw_cv_int(c, "validation.freq", 10),
            steps = gw_cv_int(c, "validation.steps", -1);
    int64_t seq = gw_cv_int(c, "validation.seq_len", 0);
    if (!on) {
        gw_cv_imply_all(c, "validation.*", "validation is off");
        return;
    }
    if (!data)
        gw_cv_refuse(c, "validation.enable", "--set data.valid=PREFIX",
                     "it needs held-out data, a token file here");
    gw_cv_imply(c, "validation.enable", "data.valid is given");
    if (data) gw_cv_map(c, "validation.freq", "train.valid_every", "%lld", (long long)freq);
    if (data && steps < 0) gw_cv_map(c, "validation.steps", "train.valid_batches", "0");
    gw_cv_refuse(c, "validation.steps",
                 "--set train.valid_batches=N, in micro-batches of a data-parallel rank",
                 "its batches are of another size");
    gw_cv_refuse(c, "validation.freq", "--set data.valid=PREFIX --set train.valid_every=N",
                 "validation needs data.valid");
    if (seq == gw_cv_ours_int(c, "train.seq_len", 2048))
        gw_cv_imply(c, "validation.seq_len", "the same as in training");
    gw_cv_refuse(c, "validation.seq_len", NULL, "validation has sequences as long as training's");
}

static void settle(gw_cv *c) {
    settle_model(c);
    settle_tokenizer(c);
    int64_t pp = gw_cv_degree(c, "parallelism.pipeline_parallel_degree", "layout.pp");
    int64_t tp = gw_cv_degree(c, "parallelism.tensor_parallel_degree", "layout.tp");
    int64_t cp = gw_cv_degree(c, "parallelism.context_parallel_degree", "layout.cp");
    gw_cv_degree(c, "parallelism.expert_parallel_degree", "layout.ep");
    settle_float8(c);
    settle_pipeline(c, pp);
    settle_tensor(c, tp, cp);
    settle_context(c, cp);
    settle_data_parallel(c, pp);
    settle_optimizer(c);
    settle_schedule(c);
    settle_precision(c);
    settle_recompute(c);
    settle_checkpoint(c);
    settle_validation(c);
}

const gw_cv_format gw_cv_torchtitan = {
    .name = "torchtitan",
    .doc = "job configuration (TOML)",
    .rules = rules,
    .nrules = (int)GW_COUNT(rules),
    .renames = renames,
    .says = says,
    .read = gw_cv_read_toml,
    .settle = settle,
};

// SPDX-License-Identifier: Apache-2.0
// Configurations of other trainers as run files: every key decided, arithmetic right, what is
// written loads. The configurations are written for these tests, in the shape of the public ones.
#include <string.h>

#include "conversion.h"
#include "harness.h"
#include "train/convert_impl.h" /* the tables */

static void convert_at(conversion *r, const char *format, const char *name, const char *text,
                       const char *model, int64_t world, const char *set) {
    conversion_make(r, &(gw_cv_request){.format = format,
                                        .name = name,
                                        .text = text,
                                        .len = (int64_t)strlen(text),
                                        .model = model,
                                        .world = world,
                                        .sets = &set,
                                        .nsets = set ? 1 : 0});
}

/* Converted and loaded. */
static void convert(conversion *r, const char *format, const char *text, const char *model,
                    int64_t world) {
    convert_at(r, format, "file", text, model, world, NULL);
    conversion_load(r, world);
}

static const gw_cv_key *key(const conversion *r, const char *name) {
    const gw_cv_key *k = conversion_key(r, name);
    CHECK_MSG(k, "no key %s in the list", name);
    return k;
}

static void check_mapped(const conversion *r, const char *name, int line, const char *ours,
                         const char *wrote) {
    const gw_cv_key *k = key(r, name);
    CHECK_MSG(k->fate == GW_CV_MAPPED, "%s is %s: %s", name, gw_cv_fate_name(k->fate),
              k->why ? k->why : "");
    CHECK_EQ(k->line, line);
    CHECK_STR(k->ours, ours);
    CHECK_STR(k->wrote, wrote);
}

static void check_fate(const conversion *r, const char *name, gw_cv_fate fate, const char *why) {
    const gw_cv_key *k = key(r, name);
    CHECK_MSG(k->fate == fate, "%s is %s: %s", name, gw_cv_fate_name(k->fate),
              k->why ? k->why : "");
    CHECK_MSG(strstr(k->why, why) != NULL, "%s: '%s' does not say '%s'", name, k->why, why);
}

static void check_batch(const gw_runfile *rf, int64_t micro, int64_t accumulate, int64_t dp,
                        int64_t global) {
    CHECK_EQ(rf->train.micro_batch, micro);
    CHECK_EQ(rf->train.accumulate, accumulate);
    CHECK_EQ(rf->layout.dp, dp);
    CHECK_EQ(rf->train.global_batch, global);
    CHECK_EQ(micro * accumulate * dp, global);
}

typedef struct mistake {
    const char *format, *text, *model;
    int64_t world;
    int line; /* of the first message; 0: it is about the whole */
    const char *says;
} mistake;

static void check_mistakes(const mistake *m, size_t n) {
    for (size_t i = 0; i < n; i++) {
        conversion r;
        test_note("%s", m[i].text);
        convert_at(&r, m[i].format, "file", m[i].text, m[i].model, m[i].world, NULL);
        CHECK_FAILS(r.st, &r.dg, m[i].says);
        CHECK_EQ(r.dg.first->where.line, m[i].line);
        conversion_release(&r);
    }
}

/* ---- the tables ---- */

static const gw_cv_format *const formats[] = {&gw_cv_torchtitan, &gw_cv_megatron, &gw_cv_deepspeed,
                                              &gw_cv_accelerate};

TEST(convert_tables_are_sound) {
    for (size_t f = 0; f < GW_COUNT(formats); f++)
        for (int i = 0; i < formats[f]->nrules; i++) {
            const gw_cv_rule *r = &formats[f]->rules[i];
            if (r->does == GW_CV_TO)
                CHECK_MSG(gw_rf_key_find(r->ours) >= 0, "%s: %s", r->key, r->ours);
            if (r->does == GW_CV_IS) CHECK_MSG(r->text && *r->text, "%s", r->key);
            if (r->does == GW_CV_NO) CHECK_MSG(r->why && *r->why, "%s", r->key);
            if (r->does != GW_CV_NO && r->does != GW_CV_IS)
                CHECK_MSG(!strchr(r->key, '*'), "%s", r->key);
        }
}

/* {"a": {"b": VALUE}}, which is YAML as well; a.b = VALUE; --a VALUE. */
static void document(gw_str *s, const char *format, const char *name, const char *value) {
    gw_str_clear(s);
    bool toml = strcmp(format, "torchtitan") == 0;
    if (strcmp(format, "megatron") == 0 || toml) {
        gw_str_printf(s, toml ? "%s = %s\n" : "--%s %s\n", name, value);
        return;
    }
    int depth = 1;
    gw_str_add(s, "{\"");
    for (const char *p = name; *p; p++) {
        if (*p == '.') {
            gw_str_add(s, "\": {\"");
            depth++;
        } else {
            gw_str_add_char(s, *p);
        }
    }
    gw_str_printf(s, "\": %s", value);
    while (depth-- > 0) gw_str_add_char(s, '}');
}

/* Is the key, alone with some value, decided by somebody and not by the last net? */
static bool decided(const char *format, const char *name) {
    static const char *const values[] = {"1", "2", "true", "\"none\"", "\"x\"", "[0.9, 0.95]"};
    bool yes = false;
    gw_str doc = {0};
    for (size_t i = 0; i < GW_COUNT(values) && !yes; i++) {
        conversion r;
        document(&doc, format, name, values[i]);
        convert_at(&r, format, "file", gw_str_c(&doc), "gpt2", 8, NULL);
        for (int j = 0; j < r.v.nkeys; j++)
            yes |= r.v.keys[j].line > 0 && r.v.keys[j].fate != GW_CV_OPEN &&
                   !(r.v.keys[j].why && strstr(r.v.keys[j].why, "nothing here reads it"));
        conversion_release(&r);
    }
    gw_str_release(&doc);
    return yes;
}

TEST_WITHIN(convert_decides_every_key_it_knows, 240) {
    for (size_t f = 0; f < GW_COUNT(formats); f++)
        for (int i = 0; i < formats[f]->nrules; i++) {
            if (formats[f]->rules[i].does != GW_CV_DO) continue;
            for (const char *p = formats[f]->rules[i].key; *p; p += strspn(p, " ")) {
                char name[96];
                size_t n = strcspn(p, " ");
                CHECK(n < sizeof name);
                memcpy(name, p, n);
                name[n] = 0;
                p += n;
                CHECK_MSG(decided(formats[f]->name, name), "%s: %s falls to the last net",
                          formats[f]->name, name);
            }
        }
}

/* Names as the trainers' own sources and documentation have them. */
TEST(convert_knows_the_public_keys) {
    static const struct {
        const char *format, *prefix, *names;
    } lists[] = {
        {"torchtitan", "job.",
         "config_file dump_folder description use_for_integration_test print_args"},
        {"torchtitan", "profiling.",
         "enable_profiling save_traces_folder profile_freq enable_memory_snapshot "
         "save_memory_snapshot_folder"},
        {"torchtitan", "metrics.",
         "log_freq enable_tensorboard disable_color_printing save_tb_folder save_for_all_ranks "
         "enable_wandb"},
        {"torchtitan", "model.", "name flavor hf_assets_path converters print_after_conversion"},
        {"torchtitan", "optimizer.",
         "name lr beta1 beta2 eps weight_decay implementation early_step_in_backward"},
        {"torchtitan", "lr_scheduler.", "warmup_steps decay_ratio decay_type min_lr_factor"},
        {"torchtitan", "training.",
         "dataset dataset_path local_batch_size global_batch_size seq_len max_norm steps "
         "enable_cpu_offload dtype mixed_precision_param mixed_precision_reduce gc_freq gc_debug "
         "seed deterministic"},
        {"torchtitan", "parallelism.",
         "data_parallel_replicate_degree enable_compiled_autograd data_parallel_shard_degree "
         "fsdp_reshard_after_forward tensor_parallel_degree disable_loss_parallel "
         "enable_async_tensor_parallel pipeline_parallel_degree pipeline_parallel_split_points "
         "module_fqns_per_model_part pipeline_parallel_layers_per_stage pipeline_parallel_schedule "
         "pipeline_parallel_schedule_csv pipeline_parallel_microbatch_size context_parallel_degree "
         "context_parallel_rotate_method expert_parallel_degree expert_tensor_parallel_degree "
         "pipeline_parallel_first_stage_less_layers pipeline_parallel_last_stage_less_layers"},
        {"torchtitan", "checkpoint.",
         "enable folder initial_load_path initial_load_model_only interval last_save_model_only "
         "export_dtype create_seed_checkpoint async_mode keep_latest_k load_step "
         "exclude_from_loading enable_first_step_checkpoint last_save_in_hf initial_load_in_hf"},
        {"torchtitan", "activation_checkpoint.",
         "mode selective_ac_option per_op_sac_force_recompute_mm_shapes_by_fqns early_stop "
         "memory_budget"},
        {"torchtitan", "float8.",
         "enable_fsdp_float8_all_gather precompute_float8_dynamic_scale_for_fsdp "
         "force_recompute_fp8_weight_in_bwd recipe_name filter_fqns emulate moe_fqns"},
        {"torchtitan", "",
         "comm.init_timeout_seconds comm.train_timeout_seconds comm.trace_buf_size "
         "comm.save_traces_folder memory_estimation.enabled memory_estimation.disable_fake_mode "
         "mx.recipe_name mx.filter_fqns mx.mxfp8_dim1_cast_kernel_choice fault_tolerance.enable "
         "fault_tolerance.process_group fault_tolerance.replica_id fault_tolerance.group_size "
         "fault_tolerance.semi_sync_method experimental.custom_import "
         "experimental.custom_args_module validation.enable validation.dataset "
         "validation.dataset_path validation.local_batch_size validation.seq_len validation.freq "
         "validation.steps compile.enable compile.components"},
        {"megatron", "",
         "num-layers hidden-size ffn-hidden-size num-attention-heads attention-backend kv-channels "
         "group-query-attention num-query-groups softmax-type window-size max-position-embeddings "
         "position-embedding-type rotary-base rotary-percent rotary-interleaved "
         "rotary-seq-len-interpolation-factor use-rope-scaling rope-scaling-factor no-rope-freq "
         "make-vocab-size-divisible-by normalization norm-epsilon apply-layernorm-1p openai-gelu "
         "squared-relu swiglu untie-embeddings-and-output-weights multi-latent-attention "
         "mtp-num-layers qk-layernorm qk-l2-norm"},
        {"megatron", "",
         "attention-dropout hidden-dropout weight-decay start-weight-decay end-weight-decay "
         "weight-decay-incr-style clip-grad adam-beta1 adam-beta2 adam-eps sgd-momentum "
         "muon-momentum muon-scale-mode muon-num-ns-steps muon-tp-mode micro-batch-size batch-size "
         "global-batch-size rampup-batch-size recompute-activations recompute-granularity "
         "recompute-method recompute-num-layers recompute-modules distribute-saved-activations "
         "cpu-offloading-num-layers train-iters train-samples log-interval exit-interval "
         "exit-duration-in-mins tensorboard-dir optimizer optimizer-cpu-offload "
         "optimizer-offload-fraction sequence-parallel manual-gc deterministic-mode "
         "calculate-per-token-loss"},
        {"megatron", "",
         "seed init-method-std init-method-xavier-uniform lr lr-decay-style lr-wsd-decay-style "
         "lr-decay-iters lr-decay-samples lr-wsd-decay-iters lr-wsd-decay-samples "
         "lr-warmup-fraction lr-warmup-iters lr-warmup-samples lr-warmup-init min-lr decoupled-lr "
         "decoupled-min-lr save save-interval no-save-optim no-save-rng load no-load-optim "
         "no-load-rng finetune ckpt-format async-save fp16 bf16 grad-reduce-in-bf16 loss-scale "
         "initial-loss-scale min-loss-scale loss-scale-window hysteresis fp32-residual-connection "
         "attention-softmax-in-fp32 accumulate-allreduce-grads-in-fp32 fp8-format fp8-margin "
         "fp8-amax-history-len fp8-amax-compute-algo fp8-param-gather"},
        {"megatron", "",
         "tensor-model-parallel-size pipeline-model-parallel-size "
         "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers "
         "pipeline-model-parallel-layout num-layers-per-virtual-pipeline-stage "
         "num-virtual-stages-per-pipeline-rank microbatch-group-size-per-virtual-pipeline-stage "
         "no-overlap-p2p-communication distributed-backend distributed-timeout-minutes "
         "overlap-grad-reduce ddp-num-buckets ddp-bucket-size overlap-param-gather "
         "use-distributed-optimizer use-megatron-fsdp data-parallel-sharding-strategy "
         "num-distributed-optimizer-instances use-torch-fsdp2 context-parallel-size cp-comm-type "
         "hierarchical-context-parallel-sizes nccl-communicator-config-path"},
        {"megatron", "",
         "eval-iters eval-interval skip-train vocab-size padded-vocab-size vocab-file merge-file "
         "tokenizer-type tokenizer-model data-path split train-data-path valid-data-path "
         "test-data-path data-cache-path mock-data seq-length num-workers reset-position-ids "
         "reset-attention-mask eod-mask-loss expert-model-parallel-size "
         "expert-tensor-parallel-size num-experts moe-layer-freq moe-ffn-hidden-size "
         "moe-shared-expert-intermediate-size moe-grouped-gemm moe-router-load-balancing-type "
         "moe-router-dtype moe-router-score-function moe-router-topk moe-router-pre-softmax "
         "moe-router-num-groups moe-router-group-topk moe-router-topk-scaling-factor "
         "moe-router-enable-expert-bias moe-router-bias-update-rate moe-aux-loss-coeff "
         "moe-z-loss-coeff moe-token-dispatcher-type moe-expert-capacity-factor "
         "moe-token-drop-policy q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim "
         "v-head-dim rotary-scaling-factor mscale mscale-all-dim use-precision-aware-optimizer "
         "main-grads-dtype main-params-dtype exp-avg-dtype exp-avg-sq-dtype inference-max-requests "
         "retro-add-retriever dino-head-hidden-size mamba-state-dim rl-use-sequence-packing"},
        {"deepspeed", "",
         "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps "
         "optimizer.type optimizer.params.lr optimizer.params.betas optimizer.params.eps "
         "optimizer.params.weight_decay scheduler.type scheduler.params.warmup_min_lr "
         "scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps communication_data_type "
         "prescale_gradients gradient_predivide_factor sparse_gradients fp16.enabled "
         "fp16.auto_cast fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window "
         "fp16.hysteresis fp16.consecutive_hysteresis fp16.min_loss_scale bf16.enabled "
         "torch_autocast.enabled torch_autocast.dtype gradient_clipping steps_per_print "
         "wall_clock_breakdown dump_state memory_breakdown zero_allow_untested_optimizer "
         "zero_force_ds_cpu_optimizer"},
        {"deepspeed", "zero_optimization.",
         "stage allgather_partitions allgather_bucket_size overlap_comm reduce_scatter "
         "reduce_bucket_size contiguous_gradients offload_param.device offload_param.nvme_path "
         "offload_param.pin_memory offload_param.buffer_count offload_param.buffer_size "
         "offload_param.max_in_cpu offload_optimizer.device offload_optimizer.nvme_path "
         "offload_optimizer.pin_memory offload_optimizer.ratio offload_optimizer.buffer_count "
         "offload_optimizer.fast_init stage3_max_live_parameters stage3_max_reuse_distance "
         "stage3_prefetch_bucket_size stage3_param_persistence_threshold "
         "stage3_model_persistence_threshold sub_group_size elastic_checkpoint "
         "stage3_gather_16bit_weights_on_model_save stage3_module_granularity_threshold "
         "ignore_unused_parameters round_robin_gradients zero_hpz_partition_size "
         "zero_quantized_weights zero_quantized_nontrainable_weights zero_quantized_gradients "
         "zeropp_loco_param mics_shard_size mics_hierarchical_params_gather "
         "memory_efficient_linear pipeline_loading_checkpoint override_module_apply "
         "log_trace_cache_warnings enable_sanity_checks leaf_module zenflow legacy_stage1 "
         "load_from_fp32_weights use_multi_rank_bucket_allreduce cpu_offload cpu_offload_param"},
        {"deepspeed", "",
         "activation_checkpointing.partition_activations "
         "activation_checkpointing.cpu_checkpointing "
         "activation_checkpointing.contiguous_memory_optimization "
         "activation_checkpointing.number_checkpoints "
         "activation_checkpointing.synchronize_checkpoint_boundary "
         "activation_checkpointing.profile pipeline.stages pipeline.partition pipeline.seed_layers "
         "pipeline.activation_checkpoint_interval aio.block_size aio.queue_depth "
         "flops_profiler.enabled flops_profiler.profile_step tensorboard.enabled wandb.enabled "
         "comms_logger.enabled elasticity.enabled autotuning.enabled curriculum_learning.enabled "
         "data_efficiency.enabled sparse_attention.mode compression_training.weight_quantization "
         "data_types.grad_accum_dtype checkpoint.tag_validation amp.enabled"},
        {"accelerate", "",
         "compute_environment distributed_type mixed_precision use_cpu debug num_processes "
         "machine_rank num_machines gpu_ids main_process_ip main_process_port rdzv_backend "
         "same_network main_training_function enable_cpu_affinity downcast_bf16 tpu_name tpu_zone "
         "tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env "
         "dynamo_config.dynamo_backend tp_config.tp_size mpirun_config.mpirun_hostfile "
         "ipex_config.ipex ec2_instance_type fp8_config.backend fp8_config.fp8_format "
         "fp8_config.amax_history_len fp8_config.override_linear_precision"},
        {"accelerate", "fsdp_config.fsdp_",
         "sharding_strategy offload_params auto_wrap_policy transformer_layer_cls_to_wrap "
         "min_num_params backward_prefetch forward_prefetch use_orig_params state_dict_type "
         "cpu_ram_efficient_loading sync_module_states activation_checkpointing "
         "reshard_after_forward version"},
        {"accelerate", "deepspeed_config.",
         "zero_stage gradient_accumulation_steps gradient_clipping offload_optimizer_device "
         "offload_param_device offload_optimizer_nvme_path offload_param_nvme_path zero3_init_flag "
         "zero3_save_16bit_model deepspeed_config_file deepspeed_multinode_launcher "
         "deepspeed_moe_layer_cls_names"},
        {"accelerate", "megatron_lm_config.megatron_lm_",
         "tp_degree pp_degree num_micro_batches sequence_parallelism recompute_activations "
         "use_distributed_optimizer gradient_clipping"},
        {"accelerate", "parallelism_config.parallelism_config_",
         "dp_replicate_size dp_shard_size tp_size cp_size sp_size cp_comm_strategy"},
        /* that came with later versions, or went */
        {"megatron", "",
         "most-recent-k original-max-position-embeddings offload-optimizer-states "
         "outer-dp-sharding-strategy megatron-fsdp-version decoupled-weight-decay "
         "no-weight-decay-cond-type muon-coefficient-type use-mup mup-base-hidden-size "
         "cp-partition-mode moe-paged-stash moe-expert-rank-capacity-factor cuda-graph-modules "
         "experimental-attention-variant csa-window-size enable-hyper-connections qk-clip fim-data "
         "fim-rate sequence-packing-scheduler use-varlen-dataset save-tokenizer-assets "
         "ckpt-fully-parallel-load-process-group log-max-attention-logit tokenizer-library"},
        {"torchtitan", "",
         "profiler.freq optimizer.mu debug.detect_anomaly debug.batch_invariant "
         "liger_kernel.enable_fused_linear_cross_entropy parallelism.enable_sequence_parallel "
         "parallelism.enable_fsdp_symm_mem parallelism.full_dtensor "
         "parallelism.context_parallel_load_balancer parallelism.expert_parallel_comm_backend "
         "quantize.linear.mx.recipe_name"},
        {"deepspeed", "expert_parallel.", "enabled autoep_size preset_model load_balance_coeff"},
    };
    for (size_t i = 0; i < GW_COUNT(lists); i++)
        for (const char *p = lists[i].names; *p; p += strspn(p, " ")) {
            char name[160];
            size_t n = strcspn(p, " ");
            snprintf(name, sizeof name, "%s%.*s", lists[i].prefix, (int)n, p);
            p += n;
            CHECK_MSG(gw_convert_knows(lists[i].format, name), "%s: %s is not known",
                      lists[i].format, name);
        }
    CHECK(!gw_convert_knows("deepspeed", "zero_optimisation.stage"));
    CHECK(!gw_convert_knows("megatron", "num-layer"));
}

/* ---- torchtitan ---- */

static const char tt_8b[] =
    "# one node\n"
    "[job]\ndescription = \"a run\"\n"
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
    "[optimizer]\nname = \"AdamW\"\nlr = 3e-4\n"
    "[lr_scheduler]\nwarmup_steps = 200\n"
    "[training]\nlocal_batch_size = 2\nglobal_batch_size = 64\nseq_len = 8_192\nsteps = 1000\n"
    "[parallelism]\ndata_parallel_shard_degree = -1 # the rest\n"
    "[activation_checkpoint]\nmode = 'full'\n";

TEST_WITHIN(convert_torchtitan_fsdp, 120) {
    conversion r;
    convert(&r, "torchtitan", tt_8b, NULL, 8);
    check_mapped(&r, "model.flavor", 6, "model.preset", "llama3-8b");
    check_mapped(&r, "optimizer.lr", 9, "optimizer.lr", "0.0003");
    check_mapped(&r, "training.seq_len", 15, "train.seq_len", "8192");
    check_batch(&r.rf, 2, 4, 8, 64); /* 64 / (2 x 8) */
    CHECK_EQ(r.rf.layout.zero, 3);
    CHECK_EQ(r.rf.recompute.policy, GW_RF_RECOMPUTE_FULL);
    CHECK_EQ(r.rf.precision.compute, GW_RF_BF16);    /* their default */
    CHECK_EQ(r.rf.optimizer.schedule, GW_RF_LINEAR); /* their default */
    CHECK_NEAR(r.rf.optimizer.min_lr_ratio, 0, 0);   /* their default */
    CHECK(strstr(r.v.batch, "64 sequences a step = micro-batch 2 x accumulate 4 x dp 8"));
    conversion_release(&r);
}

TEST_WITHIN(convert_torchtitan_pipeline_and_replicas, 120) {
    static const char text[] =
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n"
        "[training]\nbatch_size = 8\nsteps = 100\nseq_len = 2048\n"
        "[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = 0.2\ndecay_type = "
        "\"cosine\"\nmin_lr_factor = 0.1\n"
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 2\n"
        "pipeline_parallel_degree = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"\n"
        "pipeline_parallel_microbatch_size = 2\ncontext_parallel_degree = 2\n"
        "[checkpoint]\nenable_checkpoint = false\ninterval = 500\n";
    conversion r;
    convert(&r, "torchtitan", text, NULL, 16);
    check_batch(&r.rf, 2, 4, 4, 32); /* 8 / 2 micro-batches of 2 on each of 2 x 2 ranks */
    CHECK_EQ(r.rf.layout.dp_replicate, 2);
    CHECK_EQ(r.rf.layout.virtual_stages, 2);
    CHECK_STR(r.rf.layout.schedule, "interleaved");
    CHECK_EQ(r.rf.layout.cp_mode, GW_RF_CP_ALLGATHER);
    CHECK_EQ(r.rf.optimizer.schedule, GW_RF_WSD);
    CHECK_EQ(r.rf.optimizer.decay_steps, 20);
    check_mapped(&r, "training.batch_size", 5, "train.accumulate", "4");
    check_mapped(&r, "checkpoint.enable_checkpoint", 21, "checkpoint.every", "0");
    check_fate(&r, "checkpoint.interval", GW_CV_IMPLIED, "checkpoints are off");
    conversion_release(&r);
}

TEST(convert_torchtitan_unknown_and_debug_model) {
    static const char text[] =
        "[model]\nflavor = \"debugmodel\"\nflavour = \"x\"\n[training]\nstesp = 10\nsteps = "
        "10\nseq_len = 64\n"
        "[lr_scheduler]\nwarmup_steps = 2\n[experimental]\nwarp = 9\n[activation_checkpoint]\nmode "
        "= \"selective\"\nselective_ac_option = \"2\"\n";
    conversion r;
    convert(&r, "torchtitan", text, NULL, 1);
    check_fate(&r, "training.stesp", GW_CV_REFUSED, "no key of torchtitan");
    CHECK_EQ(key(&r, "training.stesp")->line, 5);
    CHECK(strstr(key(&r, "training.stesp")->instead, "training.steps"));
    check_fate(&r, "experimental.warp", GW_CV_REFUSED, "no key of torchtitan");
    check_fate(&r, "activation_checkpoint.selective_ac_option", GW_CV_REFUSED, "2-th layer");
    CHECK(strstr(r.v.yaml, "# refused: training.stesp, line 5:"));
    CHECK_EQ(r.rf.model.layers, 6);
    CHECK_EQ(r.rf.train.micro_batch, 8); /* their default */
    conversion_release(&r);
}

TEST(convert_torchtitan_errors) {
    static const mistake cases[] = {
        {"torchtitan", "[model]\nflavor = \"8B\"\n[training]\nsteps = \"many\"\n", NULL, 8, 4,
         "whole number"},
        {"torchtitan",
         "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 3\nglobal_batch_size = 64\n",
         NULL, 8, 5, "no multiple"},
        {"torchtitan", "[model]\nflavor = \"8B\"\n[parallelism]\ntensor_parallel_degree = 3\n",
         NULL, 8, 0, "no multiple of pp 1 x tp 3"},
        {"torchtitan", "[model]\nflavor = \"9000B\"\n", NULL, 8, 0, "does not say which model"},
        {"torchtitan",
         "[model]\nflavor = \"8B\"\n[training]\nbatch_size = 1\nlocal_batch_size = 2\n", NULL, 1, 5,
         "line 4 says it"},
        {"torchtitan",
         "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 0\nglobal_batch_size = 8\n",
         NULL, 8, 4, "no size"},
        {"torchtitan", "[model]\nflavor = \"8B\"\n[lr_scheduler]\ndecay_ratio = 1e300\n", NULL, 8,
         4, "no share"},
        {"torchtitan",
         "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 9223372036854775807\n", NULL, 8,
         4, "whole number"},
        {"torchtitan", "[training]\nsteps = 10\nwhen = 2024-01-01\n", "gpt2", 1, 3,
         "decimal number"},
        {"torchtitan", "[training]\nsteps = 10\nsteps = 11\n", "gpt2", 1, 3, "given twice"},
    };
    check_mistakes(cases, GW_COUNT(cases));
}

/* ---- Megatron-LM ---- */

static const char mg_llama[] =
    "#!/bin/bash\n"
    "GPUS=8\nNODES=4\nWORLD=$(($GPUS*$NODES))\nSEQ=${SEQ:-2048}\nCKPT=$1\n"
    "MODEL_ARGS=(\n"
    "  --num-layers 16   # blocks\n"
    "  --hidden-size 1024\n"
    "  --ffn-hidden-size 4096\n"
    "  --num-attention-heads 16\n"
    "  --group-query-attention\n"
    "  --num-query-groups 4\n"
    "  --seq-length $SEQ\n"
    "  --max-position-embeddings 4096\n"
    "  --position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear\n"
    "  --untie-embeddings-and-output-weights\n"
    "  --attention-dropout 0.0 --hidden-dropout 0.0\n"
    ")\n"
    "TRAIN=\"--micro-batch-size 1 \\\n"
    "  --global-batch-size 64 \\\n"
    "  --train-samples 64000 --lr-warmup-samples 640 \\\n"
    "  --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine \\\n"
    "  --adam-beta2 0.95 --bf16\"\n"
    "if [ -n \"$FP8\" ]; then\n"
    "  TRAIN=\"$TRAIN --fp8-format hybrid\"\n"
    "  EXTRA=(--recompute-activations)\n"
    "fi\n"
    "torchrun --nproc_per_node $GPUS --nnodes $NODES pretrain_gpt.py \\\n"
    "  ${MODEL_ARGS[@]} \\\n"
    "  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \\\n"
    "  --sequence-parallel --use-distributed-optimizer \\\n"
    "  --num-layers-per-virtual-pipeline-stage 4 \\\n"
    "  --vocab-size 32000 --save $CKPT --load $CKPT --seed $RANDOM_SEED ${EXTRA[@]} \\\n"
    "  --micro-batch-size 1 --global-batch-size 64 --train-samples 64000 --lr-warmup-samples 640 "
    "\\\n"
    "  --lr 3.0e-4 --min-lr 3.0e-5 --lr-decay-style cosine --adam-beta2 0.95 --bf16\n";

TEST_WITHIN(convert_megatron_script, 120) {
    conversion r;
    convert(&r, "megatron", mg_llama, NULL, 0);
    check_mapped(&r, "--num-layers", 8, "model.layers", "16");
    check_mapped(&r, "--seq-length", 14, "train.seq_len", "2048");
    check_mapped(&r, "--train-samples", 35, "train.steps", "1000");
    check_mapped(&r, "--lr-warmup-samples", 35, "optimizer.warmup_steps", "10");
    check_mapped(&r, "--min-lr", 36, "optimizer.min_lr_ratio", "0.1");
    check_batch(&r.rf, 1, 8, 8, 64); /* 32 ranks / (2 x 2) = 8; 64 / 8 */
    CHECK_EQ(r.rf.layout.virtual_stages, 2);
    CHECK_STR(r.rf.layout.schedule, "interleaved");
    CHECK_EQ(r.rf.layout.zero, 1);
    CHECK_EQ(r.rf.model.kv_heads, 4);
    CHECK_NEAR(r.rf.optimizer.betas.b, 0.95, 0);
    CHECK_NEAR(r.rf.optimizer.weight_decay, 0.01, 0); /* their default */
    check_fate(&r, "--recompute-activations", GW_CV_REFUSED, "under a condition");
    check_fate(&r, "--seed", GW_CV_REFUSED, "depends on $RANDOM_SEED");
    check_fate(&r, "--load", GW_CV_IMPLIED, "--resume");
    check_fate(&r, "--hidden-dropout", GW_CV_IMPLIED, "off");
    conversion_release(&r);
}

/* Flags in strings, as older scripts have them, keep their own lines. */
TEST_WITHIN(convert_megatron_strings, 120) {
    static const char text[] =
        "A=\"--num-layers 4 \\\n --hidden-size 128 \\\n --num-attention-heads 4\n "
        "--max-position-embeddings 256 --seq-length 128\"\n"
        "B='--micro-batch-size 4'\n# --bf16\npython pretrain_gpt.py $A $B --global-batch-size=16 "
        "--fp16 --train-iters 50 \\\n"
        "  --vocab-file v.json --merge-file m.txt --hidden-dropout 0 --lr 1e-3 > log 2>&1\n";
    conversion r;
    convert(&r, "megatron", text, NULL, 2);
    check_mapped(&r, "--hidden-size", 2, "model.hidden", "128");
    check_mapped(&r, "--max-position-embeddings", 4, "model.max_positions", "256");
    check_mapped(&r, "--global-batch-size", 7, "train.global_batch", "16");
    check_batch(&r.rf, 4, 2, 2, 16);
    CHECK_EQ(r.rf.model.family, GW_RF_GPT2);
    CHECK_EQ(r.rf.model.vocab, 50257);
    CHECK_EQ(r.rf.precision.compute, GW_RF_FP16);
    CHECK_NEAR(r.rf.precision.loss_scale_init, 4294967296.0, 0); /* their default */
    conversion_release(&r);
}

TEST_WITHIN(convert_megatron_yaml_experts, 120) {
    static const char text[] =
        "ENV_VARS:\n  NCCL_DEBUG: '1'\nMODEL_ARGS:\n  num_layers: 4\n  hidden_size: 256\n  "
        "ffn_hidden_size: 512\n  num_attention_heads: 4\n"
        "  normalization: RMSNorm\n  norm_epsilon: 1e-6\n  swiglu: true\n  disable_bias_linear: "
        "true\n  untie_embeddings_and_output_weights: true\n"
        "  position_embedding_type: rope\n  multi_latent_attention: true\n  q_lora_rank: 64\n  "
        "kv_lora_rank: 32\n  qk_head_dim: 32\n"
        "  qk_pos_emb_head_dim: 16\n  v_head_dim: 32\n  qk_layernorm: true\n  num_experts: 16\n  "
        "moe_layer_freq: ([0]*1+[1]*3)\n  moe_ffn_hidden_size: 128\n"
        "  moe_shared_expert_intermediate_size: 256\n  moe_router_topk: 4\n  "
        "moe_router_score_function: sigmoid\n  moe_router_enable_expert_bias: true\n"
        "  moe_router_num_groups: 4\n  moe_router_group_topk: 2\n  moe_router_topk_scaling_factor: "
        "2.5\n  moe_aux_loss_coeff: 1e-4\n  moe_router_load_balancing_type: seq_aux_loss\n"
        "  expert_model_parallel_size: 4\n  micro_batch_size: 1\n  global_batch_size: 16\n  "
        "seq_length: 128\n  max_position_embeddings: 4096\n  train_iters: 100\n"
        "  vocab_size: 1000\n  attention_dropout: 0.0\n  hidden_dropout: 0.0\n  bf16: true\n  "
        "load: null\n  mtp_num_layers: 1\n  lr: 1e-3\n";
    conversion r;
    convert_at(&r, "megatron", "model.yaml", text, NULL, 8, NULL);
    conversion_load(&r, 8);
    CHECK_EQ(r.rf.model.family, GW_RF_DEEPSEEK);
    check_batch(&r.rf, 1, 2, 8, 16);
    CHECK_EQ(r.rf.model.moe.dense_layers, 1);
    CHECK_EQ(r.rf.model.moe.shared, 2); /* 256 / 128 */
    CHECK_EQ(r.rf.model.moe.balance, GW_RF_BALANCE_BIAS);
    CHECK_EQ(r.rf.model.moe.groups, 4);
    CHECK_EQ(r.rf.model.mla.q_rank, 64);
    CHECK_EQ(r.rf.layout.ep, 4);
    check_fate(&r, "MODEL_ARGS.mtp_num_layers", GW_CV_REFUSED, "not built");
    check_fate(&r, "MODEL_ARGS.load", GW_CV_IMPLIED, "null");
    check_fate(&r, "ENV_VARS.NCCL_DEBUG", GW_CV_IMPLIED, "process");
    conversion_release(&r);
}

TEST(convert_megatron_errors) {
#define SMALL                                                                                      \
    "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64 "                    \
    "--max-position-embeddings 64\n--vocab-size 100 --lr 1e-3 --train-iters 10\n"
    static const mistake cases[] = {
        {"megatron", SMALL "--micro-batch-size 3\n--global-batch-size 16\n", NULL, 4, 4,
         "no multiple of micro-batch x dp: 3 x 4"},
        {"megatron", SMALL "--micro-batch-size two\n", NULL, 4, 3, "whole number"},
        {"megatron", SMALL "--bf16\n--fp16\n", NULL, 4, 4, "bf16 is given beside it"},
        {"megatron", "--num-layers 4 --hidden-size 128 --num-attention-heads 4 --seq-length 64\n",
         NULL, 1, 0, "vocabulary is not known"},
        {"megatron", "echo nothing here\n", NULL, 1, 0, "no --flags"},
        {"megatron", SMALL "--swiglu maybe\n", NULL, 1, 3, "true or false"},
    };
    check_mistakes(cases, GW_COUNT(cases));
    conversion r; /* the launcher's ranks do not hold the layout: said, not guessed */
    convert(&r, "megatron",
            "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 "
            "--pipeline-model-parallel-size 4 --num-layers 4 --hidden-size 128 "
            "--num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --vocab-size 100 "
            "--micro-batch-size 1 --global-batch-size 8",
            NULL, 0);
    CHECK_OK(r.st, &r.dg);
    check_fate(&r, "--nproc_per_node", GW_CV_REFUSED, "do not hold");
    conversion_release(&r);
}

/* ---- DeepSpeed ---- */

TEST_WITHIN(convert_deepspeed_zero3_offload, 120) {
    static const char text[] =
        "{\n  \"train_batch_size\": 64,\n  \"train_micro_batch_size_per_gpu\": 2,\n  "
        "\"gradient_clipping\": 1.0,\n"
        "  \"bf16\": {\"enabled\": true},\n  \"zero_optimization\": {\n    \"stage\": 3,\n    "
        "\"overlap_comm\": true,\n    \"reduce_bucket_size\": 5e8,\n"
        "    \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/local\"},\n    "
        "\"offload_param\": {\"device\": \"cpu\"},\n"
        "    \"zero_quantized_weights\": true,\n    \"stage3_prefetch_bucket_size\": 5e8\n  },\n"
        "  \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-5, \"betas\": [0.9, "
        "0.98]}},\n"
        "  \"scheduler\": {\"type\": \"WarmupDecayLR\",\n    \"params\": {\"warmup_num_steps\": "
        "10, \"total_num_steps\": 200, \"warmup_type\": \"linear\"}}\n}\n";
    conversion r;
    convert(&r, "deepspeed", text, "gpt2", 8);
    check_batch(&r.rf, 2, 4, 8, 64); /* 64 / (2 x 8) */
    check_mapped(&r, "zero_optimization.stage", 7, "layout.zero", "3");
    check_mapped(&r, "zero_optimization.reduce_bucket_size", 9, "layout.bucket", "2000000000");
    check_mapped(&r, "zero_optimization.offload_optimizer.device", 10,
                 "offload.optimizer, offload.master", "disk, disk");
    check_mapped(&r, "zero_optimization.offload_param.device", 11, "offload.parameters", "host");
    check_fate(&r, "zero_optimization.stage3_prefetch_bucket_size", GW_CV_REFUSED, "layers");
    CHECK_STR(r.rf.offload.dir, "/local");
    CHECK_EQ(r.rf.train.steps, 200);
    CHECK_EQ(r.rf.layout.weight_wire, GW_WIRE_INT8);
    CHECK_NEAR(r.rf.optimizer.betas.b, 0.98, 0);
    CHECK_NEAR(r.rf.optimizer.weight_decay, 0, 0); /* their default */
    conversion_release(&r);
}

/* Two of the three batch keys give the third, in each way. */
TEST_WITHIN(convert_deepspeed_batch, 240) {
    static const struct {
        const char *text;
        int64_t world, micro, accumulate, dp, global;
    } cases[] = {
        {"{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 2, "
         "\"gradient_accumulation_steps\": 4}",
         0, 2, 4, 4, 32},
        {"{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2}", 4, 4, 2, 4, 32},
        {"{\"train_micro_batch_size_per_gpu\": 3, \"gradient_accumulation_steps\": 5}", 2, 3, 5, 2,
         30},
        {"{\"train_batch_size\": 12}", 3, 4, 1, 3, 12},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        conversion r;
        convert(&r, "deepspeed", cases[i].text, "gpt2", cases[i].world);
        check_batch(&r.rf, cases[i].micro, cases[i].accumulate, cases[i].dp, cases[i].global);
        conversion_release(&r);
    }
}

TEST_WITHIN(convert_deepspeed_fp16_auto_and_unknown, 120) {
    static const char text[] =
        "{\"train_micro_batch_size_per_gpu\": \"auto\", \"train_batch_size\": \"auto\", "
        "\"gradient_accumulation_steps\": 2,\n"
        "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 12, \"hysteresis\": "
        "2},\n\"zero_optimization\": {\"stage\": 2, \"offload_param\": {}},\n\"turbo\": {\"on\": "
        "true}}";
    conversion r;
    convert_at(&r, "deepspeed", "f", text, "gpt2", 2, "train.micro_batch=4");
    conversion_load(&r, 2);
    check_batch(&r.rf, 4, 2, 2, 16);
    check_fate(&r, "train_batch_size", GW_CV_IMPLIED, "gives it");
    check_fate(&r, "train_micro_batch_size_per_gpu", GW_CV_IMPLIED, "--set train.micro_batch=4");
    check_fate(&r, "turbo.on", GW_CV_REFUSED, "no key of deepspeed");
    CHECK_EQ(key(&r, "turbo.on")->line, 4);
    check_fate(&r, "fp16.hysteresis", GW_CV_REFUSED, "first overflow");
    CHECK_NEAR(r.rf.precision.loss_scale_init, 4096, 0);
    conversion_release(&r);
}

TEST(convert_deepspeed_errors) {
    static const mistake cases[] = {
        {"deepspeed",
         "{\"train_batch_size\": 33,\n\"train_micro_batch_size_per_gpu\": 2, "
         "\"gradient_accumulation_steps\": 4}",
         "gpt2", 0, 1, "no multiple"},
        {"deepspeed",
         "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 2, "
         "\"gradient_accumulation_steps\": 4}",
         "gpt2", 8, 1, "is 64"},
        {"deepspeed", "{\"train_batch_size\": 32,\n\"zero_optimization\": {\"stage\": 7}}", "gpt2",
         1, 2, "no stage"},
        {"deepspeed", "{\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}", "gpt2", 1,
         1, "beside it"},
        {"deepspeed", "{\"train_batch_size\": true}", "gpt2", 1, 1, "whole number"},
        {"deepspeed", "{\"train_batch_size\": }", "gpt2", 1, 1, "not valid JSON"},
        {"deepspeed", "{\"train_batch_size\": 8}", NULL, 1, 0, "does not say which model"},
        {"deepspeed",
         "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
         "1e-4}},\n\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": "
         "1e-3, \"warmup_type\": \"linear\"}}}",
         "gpt2", 1, 2, "optimizer.lr"},
    };
    check_mistakes(cases, GW_COUNT(cases));
}

/* ---- accelerate ---- */

TEST_WITHIN(convert_accelerate_fsdp, 120) {
    static const char text[] =
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\ndowncast_bf16: "
        "'no'\nfsdp_config:\n  fsdp_activation_checkpointing: true\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_offload_params: true\n  "
        "fsdp_sharding_strategy: FULL_SHARD\n  fsdp_warp: 1\n"
        "mixed_precision: bf16\nnum_processes: 8\nparallelism_config:\n  "
        "parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
        "  parallelism_config_tp_size: 2\ntpu_env: []\nuse_cpu: false\n";
    conversion r;
    convert_at(&r, "accelerate", "f", text, "gpt2", 0, "train.micro_batch=4");
    conversion_load(&r, 0);
    check_batch(&r.rf, 4, 1, 4, 16);
    check_mapped(&r, "num_processes", 11, "layout.dp", "4");
    check_mapped(&r, "fsdp_config.fsdp_sharding_strategy", 8, "layout.zero", "3");
    check_fate(&r, "fsdp_config.fsdp_warp", GW_CV_REFUSED, "no key of accelerate");
    CHECK_EQ(r.rf.layout.dp_replicate, 2);
    CHECK_EQ(r.rf.layout.tp, 2);
    CHECK_EQ(r.rf.offload.parameters, GW_MEM_HOST);
    CHECK_EQ(r.rf.recompute.policy, GW_RF_RECOMPUTE_FULL);
    conversion_release(&r);
}

TEST_WITHIN(convert_accelerate_deepspeed, 120) {
    static const char text[] =
        "distributed_type: DEEPSPEED\ndeepspeed_config:\n  gradient_accumulation_steps: 4\n  "
        "gradient_clipping: 0.5\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
        "  zero3_init_flag: false\n  zero_stage: 2\nfsdp_config: {}\nmixed_precision: "
        "fp16\nnum_processes: 2\nsame_network: true\n";
    conversion r;
    convert(&r, "accelerate", text, "gpt2", 0);
    check_batch(&r.rf, 1, 4, 2, 8);
    CHECK_EQ(r.rf.layout.zero, 2);
    CHECK_EQ(r.rf.offload.optimizer, GW_MEM_HOST);
    CHECK_NEAR(r.rf.optimizer.clip_norm, 0.5, 0);
    CHECK_EQ(r.rf.precision.compute, GW_RF_FP16);
    check_fate(&r, "(batch size)", GW_CV_REFUSED, "does not say it");
    check_fate(&r, "fsdp_config", GW_CV_IMPLIED, "nothing stands in it");
    conversion_release(&r);
}

TEST_WITHIN(convert_accelerate_megatron, 120) {
    static const char text[] =
        "distributed_type: MEGATRON_LM\nfsdp_config:\n  fsdp_offload_params: "
        "true\nmegatron_lm_config:\n  megatron_lm_gradient_clipping: 1.0\n  "
        "megatron_lm_num_micro_batches: 4\n  megatron_lm_pp_degree: 2\n"
        "  megatron_lm_recompute_activations: true\n  megatron_lm_sequence_parallelism: true\n  "
        "megatron_lm_tp_degree: 2\n  megatron_lm_use_distributed_optimizer: true\nmixed_precision: "
        "bf16\nnum_processes: 8\n";
    conversion r;
    convert_at(&r, "accelerate", "f", text, "gpt2", 0, "train.micro_batch=2");
    conversion_load(&r, 0);
    check_batch(&r.rf, 2, 4, 2, 16);
    CHECK_EQ(r.rf.layout.pp, 2);
    CHECK_EQ(r.rf.layout.zero, 1);
    CHECK(r.rf.layout.sequence_parallel);
    CHECK_EQ(r.rf.recompute.policy, GW_RF_RECOMPUTE_SELECTIVE);
    check_fate(&r, "fsdp_config.fsdp_offload_params", GW_CV_IMPLIED, "not FSDP");
    conversion_release(&r);
}

TEST(convert_accelerate_errors) {
    static const mistake cases[] = {
        {"accelerate", "distributed_type: FSDP\nnum_processes: many\n", "gpt2", 0, 2,
         "whole number"},
        {"accelerate", "distributed_type: MULTI_GPU\nmixed_precision: int3\nnum_processes: 2\n",
         "gpt2", 0, 2, "fp16, bf16 or fp8"},
        {"accelerate",
         "distributed_type: FSDP\nnum_processes: 6\nparallelism_config:\n  "
         "parallelism_config_tp_size: 4\n",
         "gpt2", 0, 2, "no multiple"},
        {"accelerate", "- a\n- b\n", "gpt2", 0, 0, "a map is expected"},
    };
    check_mistakes(cases, GW_COUNT(cases));
}

/* What no reader would take in is not written: eps beside SGD becomes implied, with the reason. */
TEST(convert_drops_what_is_not_read) {
    conversion r;
    convert(&r, "deepspeed",
            "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"eps\": 1e-8}}, "
            "\"train_batch_size\": 2}",
            "gpt2", 1);
    check_fate(&r, "optimizer.params.eps", GW_CV_IMPLIED, "optimizer.name is adamw");
    conversion_release(&r);
}

/* Names cannot write lines of the run file. */
TEST(convert_quotes_what_it_repeats) {
    conversion r;
    convert(&r, "deepspeed",
            "{\"a\\nlayout:\\n  zero\": 3, \"train_batch_size\": 2, \"zero_optimization\": "
            "{\"stage\": 0, \"offload_optimizer\": {\"nvme_path\": \"x\"}}}",
            "gpt2", 1);
    CHECK_EQ(r.rf.layout.zero, 0);
    conversion_release(&r);
}

/* An evaluation there takes so many global batches; here batches are of a data-parallel rank. */
TEST(convert_megatron_validates_on_as_many_samples) {
    conversion r;
    convert_at(&r, "megatron", "file",
               "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
               "--seq-length 64 --max-position-embeddings 64 --vocab-size 300 --lr 1e-3 "
               "--train-iters 5 --micro-batch-size 2 --global-batch-size 32 --eval-iters 10\n",
               NULL, 4, "data.valid=x");
    CHECK_OK(r.st, &r.dg);
    check_mapped(&r, "--eval-iters", 1, "train.valid_batches", "40"); /* x 2 x 4 = 10 x 32 */
    conversion_release(&r);
}

// SPDX-License-Identifier: Apache-2.0
// DeepSpeed: its JSON.
//
// The file says how a step is run and nothing of the model, the data or the length: --model names
// the model, --set the rest. train_batch_size = train_micro_batch_size_per_gpu x
// gradient_accumulation_steps x data-parallel ranks; two of the first three are enough there, and a
// world of ranks multiplies in. "auto" is what the Hugging Face Trainer fills in, so such keys are
// refused with the request to say the value. Buckets are counted in elements there and in bytes
// here; gradients are float32 here, four bytes each.
//
// Source: DeepSpeed's documentation of its JSON, and deepspeed/runtime/zero/config.py.
#include <math.h> /* ldexp */

#include "train/convert_impl.h" /* gw_cv */

#define NOT_BUILT "it is not built"
#define FASTER    "how a transfer is made: the same values"
#define LOGS      "metrics.jsonl and tb/ hold every figure of a step"
#define ELSEWHERE "no service is reported to"
#define STEPS     "--set recompute.policy=full, or selective, or budget"

// clang-format off
static const gw_cv_rule rules[] = {
    DO("train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps sequence_parallel_size "
       "tensor_parallel.autotp_size tensor_parallel.tp.tp_size pipeline.stages"),
    DO("optimizer.type optimizer.params.lr optimizer.params.betas optimizer.params.momentum "
       "optimizer.params.weight_decay optimizer.params.adam_w_mode optimizer.params.muon_lr optimizer.params.adam_lr"),
    DO("scheduler.type scheduler.params.warmup_max_lr scheduler.params.warmup_min_ratio scheduler.params.cos_min_ratio "
       "scheduler.params.warmup_type scheduler.params.warmup_num_steps"),
    DO("fp16.auto_cast fp16.hysteresis fp16.consecutive_hysteresis fp16.min_loss_scale fp16.fp16_master_weights_and_grads"),
    DO("fp16.enabled bf16.enabled fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window bf16.bf16_master_weights_and_grads "
       "bf16.bf16_optimizer_states communication_data_type data_types.grad_accum_dtype torch_autocast.enabled torch_autocast.dtype"),
    DO("zero_optimization zero_optimization.stage zero_optimization.offload_optimizer.device zero_optimization.offload_param.device "
       "zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_param.nvme_path zero_optimization.cpu_offload "
       "zero_optimization.cpu_offload_param zero_optimization.reduce_bucket_size zero_optimization.zero_hpz_partition_size "
       "zero_optimization.zero_quantized_weights zero_optimization.zero_quantized_gradients zero_optimization.mics_shard_size"),

    TO("gradient_clipping", "optimizer.clip_norm", "0"),
    TO("steps_per_print", "train.log_every", NULL),
    TO("seed", "train.seed", NULL),
    TO("optimizer.params.eps", "optimizer.eps", NULL),
    TO("optimizer.params.nesterov", "optimizer.nesterov", NULL),
    TO("optimizer.params.ns_steps", "optimizer.muon_ns_steps", NULL),
    TO("scheduler.params.total_num_steps", "train.steps", NULL),

    NO("optimizer.params.bias_correction", "true", "moments are corrected", NULL),
    NO("optimizer.params.amsgrad optimizer.params.max_grad_norm optimizer.params.dampening", "false|0", NOT_BUILT, "--set optimizer.clip_norm=X clips the gradient"),
    IS("optimizer.params.torch_adam optimizer.params.fused optimizer.params.foreach optimizer.params.set_grad_none optimizer.legacy_fusion", "a choice of kernel: the same values"),
    NO("optimizer.params.ns_method", "standard|gram", NOT_BUILT, NULL),
    NO("optimizer.params.per_head_muon", "false", "whole matrices are made orthogonal", NULL),
    NO("optimizer.params.*", NULL, "of an optimizer that is not built", "adamw, sgd and muon are"),
    NO("scheduler.params.warmup_min_lr", "0|auto", "warm-up begins at 0", NULL),
    NO("scheduler.params.last_batch_iteration", "-1", "--resume goes on where the run stopped", NULL),
    NO("scheduler.params.*", NULL, "of a schedule that is not built", "constant, linear, cosine and wsd are"),

    IS("fp16.opt_level bf16.immediate_grad_update bf16.check_grad_overflow check_grad_overflow", "a step that is not finite is never taken"),
    NO("amp.enabled", "false", "an older way of mixed precision", "--set precision.compute=bf16"),
    NO("amp.*", NULL, "an older way of mixed precision", "--set precision.compute=bf16"),
    NO("torch_autocast.lower_precision_safe_modules", NULL, "all weights of a model are of one kind", NULL),
    NO("gradient_allreduce_op", "mean", "gradients are means", NULL),
    NO("prescale_gradients", "false", "the divisor is in the seed of backward", NULL),
    NO("gradient_predivide_factor", "1", "the divisor is in the seed of backward", NULL),
    NO("sparse_gradients", "false", "gradients are dense", NULL),
    NO("managed_gradient_accumulation", "true", "train.accumulate micro-batches make a step", NULL),
    NO("fp32_allreduce", "false|true", "gradients are float32", NULL),
    IS("disable_allgather", "layout.zero says what is gathered"),

    IS("zero_optimization.allgather_partitions zero_optimization.overlap_comm zero_optimization.reduce_scatter zero_optimization.contiguous_gradients "
       "zero_optimization.round_robin_gradients zero_optimization.use_multi_rank_bucket_allreduce zero_optimization.stage3_use_all_reduce_for_fetch_params "
       "zero_optimization.stage3_allgather_sequential zero_optimization.mics_hierarchical_params_gather zero_optimization.parameter_alignment", FASTER),
    IS("zero_optimization.allgather_bucket_size", "gathers are by layer"),
    IS("zero_optimization.sub_group_size zero_optimization.memory_efficient_linear zero_optimization.stage3_module_granularity_threshold "
       "zero_optimization.stage3_partition_stream_chunk_size zero_optimization.contiguous_memory_optimization zero_optimization.cpu_offload_use_pin_memory", "memory is planned"),
    IS("zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance", "a parameter lives as long as its ops: planned"),
    NO("zero_optimization.stage3_prefetch_bucket_size", NULL, "fetching ahead is counted in layers", "--set layout.prefetch=N"),
    NO("zero_optimization.stage3_param_persistence_threshold zero_optimization.stage3_model_persistence_threshold", "0", "every parameter is sharded", NULL),
    IS("zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.stage3_gather_fp16_weights_on_model_save", "`gradwright export` writes the whole model"),
    IS("zero_optimization.load_from_fp32_weights zero_optimization.elastic_checkpoint zero_optimization.pipeline_loading_checkpoint zero_optimization.legacy_stage1", "checkpoints have one format, free of the layout"),
    IS("zero_optimization.ignore_unused_parameters zero_optimization.override_module_apply zero_optimization.log_trace_cache_warnings "
       "zero_optimization.enable_sanity_checks zero_optimization.compute_grad_norm zero_optimization.leaf_module*", "how another program looks at its modules"),
    NO("zero_optimization.zero_quantized_nontrainable_weights", "false", "no weight is frozen", NULL),
    NO("zero_optimization.zeropp_loco_param* zero_optimization.zenflow* zero_optimization.save_muon_momentum_buffer_in_memory", "false", NOT_BUILT, NULL),
    IS("zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_optimizer.buffer_count zero_optimization.offload_optimizer.buffer_size "
       "zero_optimization.offload_optimizer.pipeline zero_optimization.offload_optimizer.pipeline_read zero_optimization.offload_optimizer.pipeline_write "
       "zero_optimization.offload_optimizer.fast_init zero_optimization.offload_param.pin_memory zero_optimization.offload_param.buffer_count "
       "zero_optimization.offload_param.buffer_size zero_optimization.offload_param.max_in_cpu "
       "zero_optimization.offload_optimizer.cpuadam_cores_perc", FASTER),
    NO("zero_optimization.offload_optimizer.ratio", "1", "states are offloaded whole", NULL),
    NO("zero_optimization.offload_optimizer.super_offload", "false", NOT_BUILT, NULL),
    IS("zero_allow_untested_optimizer zero_force_ds_cpu_optimizer", "every optimizer works with every layout.zero"),

    NO("activation_checkpointing.partition_activations", "false", "with sequence parallelism saved activations are cut over tp", STEPS),
    NO("activation_checkpointing.cpu_checkpointing", "false", "activations stay where they are computed", STEPS),
    NO("activation_checkpointing.number_checkpoints", NULL, "whether activations are computed again is not said here", STEPS),
    IS("activation_checkpointing.contiguous_memory_optimization activation_checkpointing.synchronize_checkpoint_boundary activation_checkpointing.profile", "memory is planned; what is computed again is recompute.policy"),
    NO("pipeline.partition", "parameters|best|type:*", "stages are balanced by cost", "--set layout.stages=[3,4,4,3]"),
    NO("pipeline.partition_method", "parameters|best", "stages are balanced by cost", "--set layout.stages=[3,4,4,3]"),
    NO("pipeline.seed_layers", "false", "initial weights are functions of names", NULL),
    IS("pipeline.activation_checkpoint_interval", "recompute.policy says what is computed again"),
    IS("pipeline.pipe_partitioned pipeline.grad_partitioned", FASTER),
    NO("tensor_parallel.*", NULL, "layout.tp cuts every model by its own rules", "--set layout.shard={...} for exceptions"),
    NO("progressive_layer_drop* curriculum_learning* data_efficiency* eigenvalue* quantize_training* compression_training* weight_quantization* "
       "sparse_attention* hybrid_engine* autotuning* elasticity* aio_off* nebula* data_sampling*", "false", NOT_BUILT, NULL),
    IS("aio.* wall_clock_breakdown dump_state memory_breakdown flops_profiler.* comms_logger.* prescale_logging timers.*", LOGS),
    IS("tensorboard.enabled tensorboard.output_path tensorboard.job_name csv_monitor.* monitor_config.*", LOGS),
    NO("wandb.enabled comet.enabled", "false", ELSEWHERE, "metrics.jsonl and tb/ hold the same figures"),
    IS("wandb.* comet.*", ELSEWHERE),
    NO("dataloader_drop_last", "true|false", "batches are whole", NULL),
    IS("communication_backend torch_distributed.* graph_harvesting disable_dataloader use_node_local_storage use_data_before_expert_parallel_", "the launcher's affair"),
    IS("checkpoint.tag_validation checkpoint.load_universal checkpoint.use_node_local_storage checkpoint.parallel_write* checkpoint.writer*", "checkpoints have one format, free of the layout"),
    IS("compile.* use_mup", "every step is compiled before it runs"),
    DO("expert_parallel.enabled expert_parallel.autoep_size"),
    IS("expert_parallel.preset_model", "which modules hold experts is known of each family"),
    NO("expert_parallel.load_balance_coeff", "0", "model.moe.balance_weight says it", "--set model.moe.balance_weight=X"),
    NO("moe.* expert_parallel.*", NULL, "experts are spread by layout.ep", "--set layout.ep=N"),
};
// clang-format on

static const gw_cv_rename renames[] = {
    {"gradient_accumulation_step", "gradient_accumulation_steps"},
    {"bfloat16.enabled", "bf16.enabled"},
    {"bfloat16.*", "bf16."},
    {"zero_optimization.prefetch_bucket_size", "zero_optimization.stage3_prefetch_bucket_size"},
    {"zero_optimization.param_persistence_threshold",
     "zero_optimization.stage3_param_persistence_threshold"},
    {"zero_optimization.max_live_parameters", "zero_optimization.stage3_max_live_parameters"},
    {"zero_optimization.max_reuse_distance", "zero_optimization.stage3_max_reuse_distance"},
    {"zero_optimization.model_persistence_threshold",
     "zero_optimization.stage3_model_persistence_threshold"},
    {"zero_optimization.module_granularity_threshold",
     "zero_optimization.stage3_module_granularity_threshold"},
    {"zero_optimization.gather_16bit_weights_on_model_save",
     "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {NULL, NULL},
};

static const gw_cv_rename says[] = {
    {"train_batch_size", "train.global_batch"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"fp16.enabled", "precision.compute"},
    {"bf16.enabled", "precision.compute"},
    {"torch_autocast.enabled", "precision.compute"},
    {"optimizer.type", "optimizer.name"},
    {"optimizer.params.lr", "optimizer.lr"},
    {"optimizer.params.betas", "optimizer.betas"},
    {"optimizer.params.weight_decay", "optimizer.weight_decay"},
    {"optimizer.params.momentum", "optimizer.momentum"},
    {"scheduler.type", "optimizer.schedule"},
    {"scheduler.params.warmup_num_steps", "optimizer.warmup_steps"},
    {"scheduler.params.warmup_max_lr", "optimizer.lr"},
    {"scheduler.params.cos_min_ratio", "optimizer.min_lr_ratio"},
    {"zero_optimization.stage", "layout.zero"},
    {"zero_optimization.reduce_bucket_size", "layout.bucket"},
    {"zero_optimization.stage3_prefetch_bucket_size", "layout.prefetch"},
    {"zero_optimization.offload_optimizer.device", "offload.optimizer"},
    {"zero_optimization.offload_param.device", "offload.parameters"},
    {"zero_optimization.offload_optimizer.nvme_path", "offload.dir"},
    {"zero_optimization.offload_param.nvme_path", "offload.dir"},
    {"zero_optimization.mics_shard_size", "layout.dp_replicate"},
    {"activation_checkpointing.number_checkpoints", "recompute.policy"},
    {"activation_checkpointing.partition_activations", "recompute.policy"},
    {"activation_checkpointing.cpu_checkpointing", "recompute.policy"},
    {"communication_data_type", "layout.gradient_wire"},
    {"pipeline.stages", "layout.pp"},
    {"pipeline.partition_method", "layout.stages"},
    {"expert_parallel.autoep_size", "layout.ep"},
    {NULL, NULL},
};

/* gw_cv_key names of what stands in `zero_optimization`. */
#define ZERO(leaf) "zero_optimization." leaf

// ------------------------------------------------------------------ precision, optimizer

/* Care of the loss scale, which only fp16 has. */
static void settle_scale(gw_cv *c, bool fp16) {
    static const char *const keys =
        "fp16.auto_cast fp16.hysteresis fp16.consecutive_hysteresis fp16.min_loss_scale "
        "fp16.fp16_master_weights_and_grads";
    if (!fp16) {
        gw_cv_imply_list(c, keys, "fp16 is off");
        return;
    }
    gw_cv_imply(c, "fp16.auto_cast", "inputs are token ids");
    if (gw_cv_int(c, "fp16.hysteresis", 1) == 1)
        gw_cv_imply(c, "fp16.hysteresis", "the scale halves at the first overflow");
    gw_cv_refuse(c, "fp16.hysteresis", NULL, "the scale halves at the first overflow");
    gw_cv_imply(c, "fp16.consecutive_hysteresis", "the scale halves at the first overflow");
    double least = gw_cv_real(c, "fp16.min_loss_scale", 1);
    if (!(least > 1)) gw_cv_imply(c, "fp16.min_loss_scale", "the scale may fall to 1");
    gw_cv_refuse(c, "fp16.min_loss_scale", NULL, "the scale may fall to 1");
    gw_cv_flag(c, "fp16.fp16_master_weights_and_grads", false, "a master copy is float32 in fp16");
}

static void settle_precision(gw_cv *c) {
    bool fp16 = gw_cv_bool(c, "fp16.enabled", false), bf16 = gw_cv_bool(c, "bf16.enabled", false);
    bool open = !gw_cv_get(c, "fp16.enabled") != !gw_cv_known(c, "fp16.enabled") ||
                !gw_cv_get(c, "bf16.enabled") != !gw_cv_known(c, "bf16.enabled"); /* "auto" */
    bool cast = gw_cv_bool(c, "torch_autocast.enabled", false);
    const char *dtype = gw_cv_text(c, "torch_autocast.dtype", "bfloat16");
    if (fp16 && bf16) {
        gw_cv_conflict(c, "fp16.enabled", "bf16.enabled is true beside it");
        return;
    }
    const char *compute = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    if (open && !fp16 && !bf16) /* one is off, the other is not known */
        gw_cv_imply_list(c, "fp16.enabled bf16.enabled", "off");
    gw_cv_map(c, "fp16.enabled", "precision.compute", "%s", compute);
    gw_cv_map(c, "bf16.enabled", "precision.compute", "%s", compute);
    if (cast && !fp16 && !bf16 && !gw_cv_ours(c, "precision.compute"))
        gw_cv_map(c, "torch_autocast.dtype", "precision.compute", "%s",
                  gw_str_eq(dtype, "float16") ? "fp16" : "bf16");
    gw_cv_imply(c, "torch_autocast.enabled", "precision.compute says it");
    gw_cv_imply(c, "torch_autocast.dtype", "torch_autocast is off, or says nothing new");
    if (!open) gw_cv_put(c, "precision.compute", "deepspeed's default", "fp32");
    settle_scale(c, gw_str_eq(gw_cv_ours(c, "precision.compute"), "fp16"));
    double scale = gw_cv_real(c, "fp16.loss_scale", 0);
    if (fp16 && scale > 0) gw_cv_map(c, "fp16.loss_scale", "precision.loss_scale", "%.17g", scale);
    gw_cv_imply(c, "fp16.loss_scale", fp16 ? "0: the scale is dynamic" : "fp16 is off");
    int64_t power = gw_cv_int(c, "fp16.initial_scale_power", 16);
    if (power < 0 || power > 32)
        gw_cv_conflict(c, "fp16.initial_scale_power", "a scale of 2 to the %lld is out of range",
                       (long long)power);
    else if (fp16)
        gw_cv_map(c, "fp16.initial_scale_power", "precision.loss_scale_init", "%.17g",
                  ldexp(1, (int)power));
    gw_cv_imply(c, "fp16.initial_scale_power", "fp16 is off");
    gw_cv_map_int(c, "fp16.loss_scale_window", "precision.loss_scale_window");
    if (fp16) gw_cv_put(c, "precision.loss_scale_window", "deepspeed's default", "1000");
    bool master = gw_cv_bool(c, "bf16.bf16_master_weights_and_grads", false);
    if (master && bf16) {
        gw_cv_map(c, "bf16.bf16_master_weights_and_grads", "precision.master", "none");
        gw_cv_map(c, "bf16.bf16_master_weights_and_grads", "precision.gradients", "compute");
    }
    gw_cv_imply(c, "bf16.bf16_master_weights_and_grads", "off");
    if (bf16 && gw_cv_bool(c, "bf16.bf16_optimizer_states", false))
        gw_cv_map(c, "bf16.bf16_optimizer_states", "precision.moments", "compute");
    gw_cv_imply(c, "bf16.bf16_optimizer_states", "off");
    const char *keep = gw_cv_text(c, "data_types.grad_accum_dtype", "fp32");
    bool same = gw_str_eq(keep, bf16 ? "bf16" : "fp16");
    if (same || gw_str_eq(keep, "fp32"))
        gw_cv_map(c, "data_types.grad_accum_dtype", "precision.gradients", "%s",
                  same ? "compute" : "float32");
    gw_cv_refuse(c, "data_types.grad_accum_dtype", NULL, "it is float32, or precision.compute");
    const char *wire = gw_cv_text(c, "communication_data_type", "fp32");
    if (gw_str_eq(wire, "bf16") || gw_str_eq(wire, "bfp16") || gw_str_eq(wire, "bfloat16"))
        gw_cv_map(c, "communication_data_type", "layout.gradient_wire", "bf16");
    if (gw_str_eq(wire, "fp32") || gw_str_eq(wire, "float32"))
        gw_cv_imply(c, "communication_data_type", "gradients are float32");
    gw_cv_refuse(c, "communication_data_type", "--set layout.gradient_wire=bf16",
                 "gradients travel as they are, in bf16, int8 or int4");
}

static void settle_optimizer(gw_cv *c) {
    const char *type = gw_cv_text(c, "optimizer.type", "AdamW");
    bool given = gw_cv_known(c, "optimizer.type"), muon = gw_str_distance(type, "Muon") == 0;
    bool sgd = gw_str_distance(type, "SGD") == 0, adam = gw_str_distance(type, "Adam") == 0;
    bool adamw = gw_str_distance(type, "AdamW") == 0;
    double decay = gw_cv_real(c, "optimizer.params.weight_decay", 0);
    bool coupled = !gw_cv_bool(c, "optimizer.params.adam_w_mode", true) && decay > 0;
    if ((adam && !coupled) || adamw || sgd || muon)
        gw_cv_map(c, "optimizer.type", "optimizer.name", "%s",
                  sgd    ? "sgd"
                  : muon ? "muon"
                         : "adamw");
    gw_cv_refuse(c, "optimizer.type", "adamw, sgd and muon are built", "there is no %s here", type);
    if (coupled)
        gw_cv_refuse(c, "optimizer.params.adam_w_mode", NULL,
                     "adamw's decay is not added to the gradient");
    gw_cv_imply(c, "optimizer.params.adam_w_mode", "adamw's decay is apart from the gradient");
    gw_cv_map_real(c, "optimizer.params.lr", "optimizer.lr");
    gw_cv_map_real(c, "optimizer.params.weight_decay", "optimizer.weight_decay");
    if (given && !gw_cv_is_auto(c, "optimizer.params.weight_decay"))
        gw_cv_put(c, "optimizer.weight_decay", "deepspeed's default", "0");
    gw_cv_key *betas = gw_cv_get(c, "optimizer.params.betas");
    double b1, b2;
    if (betas && betas->nitems == 2 && gw_parse_f64(betas->items[0], &b1) &&
        gw_parse_f64(betas->items[1], &b2))
        gw_cv_map(c, "optimizer.params.betas", "optimizer.betas", "[%.10g, %.10g]", b1, b2);
    else if (betas && gw_str_eq(betas->text, "auto"))
        gw_cv_text(c, "optimizer.params.betas", NULL); /* refused, or --set says it */
    if (gw_cv_get(c, "optimizer.params.betas"))
        gw_cv_conflict(c, "optimizer.params.betas", "it is a list of two numbers");
    if (given && !sgd && !gw_cv_is_auto(c, "optimizer.params.betas"))
        gw_cv_put(c, "optimizer.betas", "deepspeed's default", "[0.9, 0.999]");
    double momentum = gw_cv_real(c, "optimizer.params.momentum", muon ? 0.95 : 0);
    gw_cv_map(c, "optimizer.params.momentum",
              muon ? "optimizer.muon_momentum" : "optimizer.momentum", "%.10g", momentum);
    if (sgd) gw_cv_put(c, "optimizer.momentum", "deepspeed's default", "0");
    double rate = gw_cv_real(c, "optimizer.params.muon_lr", 0),
           rest = gw_cv_real(c, "optimizer.params.adam_lr", 0);
    if (muon) gw_cv_map(c, "optimizer.params.muon_lr", "optimizer.muon_lr", "%.10g", rate);
    if (muon && !gw_cv_known(c, "optimizer.params.lr"))
        gw_cv_map(c, "optimizer.params.adam_lr", "optimizer.lr", "%.10g", rest);
    if (muon && gw_cv_ours(c, "optimizer.lr"))
        gw_cv_put(c, "optimizer.muon_lr", "deepspeed's default: lr", "%s",
                  gw_cv_ours(c, "optimizer.lr"));
}

static void settle_schedule(gw_cv *c) {
    const char *type = gw_cv_text(c, "scheduler.type", "none");
    bool fixed = gw_str_eq(type, "WarmupLR"), line = gw_str_eq(type, "WarmupDecayLR"),
         cosine = gw_str_eq(type, "WarmupCosineLR");
    if (fixed || line || cosine)
        gw_cv_map(c, "scheduler.type", "optimizer.schedule", "%s",
                  fixed  ? "constant"
                  : line ? "linear"
                         : "cosine");
    gw_cv_refuse(c, "scheduler.type", "constant, linear, cosine and wsd are built",
                 "there is no %s here", type);
    gw_cv_put(c, "optimizer.schedule", "deepspeed has no schedule unless one is given", "constant");
    gw_cv_map_int(c, "scheduler.params.warmup_num_steps", "optimizer.warmup_steps");
    if (fixed || line || cosine)
        gw_cv_put(c, "optimizer.warmup_steps", "deepspeed's default", "1000");
    else
        gw_cv_put(c, "optimizer.warmup_steps", "no schedule is given", "0");
    const char *shape = gw_cv_text(c, "scheduler.params.warmup_type", "log");
    if (gw_str_eq(shape, "linear"))
        gw_cv_imply(c, "scheduler.params.warmup_type", "warm-up is linear");
    gw_cv_refuse(c, "scheduler.params.warmup_type", NULL, "warm-up is linear");
    if ((fixed || line) && !gw_cv_known(c, "scheduler.params.warmup_type"))
        gw_cv_refuse_default(c, "scheduler.params.warmup_type", "log", NULL,
                             "warm-up is linear here");
    gw_cv_map_real(c, "scheduler.params.warmup_max_lr", "optimizer.lr");
    if (line) gw_cv_put(c, "optimizer.min_lr_ratio", "WarmupDecayLR falls to 0", "0");
    double ratio = gw_cv_real(c, "scheduler.params.cos_min_ratio", 1e-4);
    gw_cv_map(c, "scheduler.params.cos_min_ratio", "optimizer.min_lr_ratio", "%.10g", ratio);
    if (cosine) gw_cv_put(c, "optimizer.min_lr_ratio", "deepspeed's default", "0.0001");
    if (!(gw_cv_real(c, "scheduler.params.warmup_min_ratio", 0) > 0))
        gw_cv_imply(c, "scheduler.params.warmup_min_ratio", "warm-up begins at 0");
    gw_cv_refuse(c, "scheduler.params.warmup_min_ratio", NULL, "warm-up begins at 0");
}

// ------------------------------------------------------------------ layout

static int64_t settle_zero(gw_cv *c) {
    gw_cv_key *flag = gw_cv_get(c, "zero_optimization"); /* an older form: true is stage 1 */
    int64_t zero =
        gw_cv_int(c, ZERO("stage"), flag && gw_cv_bool(c, "zero_optimization", false) ? 1 : 0);
    if (zero < 0 || zero > 3) {
        gw_cv_conflict(c, ZERO("stage"), "%lld is no stage: 0, 1, 2 and 3 are", (long long)zero);
        return 0;
    }
    gw_cv_map(c, ZERO("stage"), "layout.zero", "%lld", (long long)zero);
    gw_cv_map(c, "zero_optimization", "layout.zero", "%lld", (long long)zero);
    gw_cv_put(c, "layout.zero", "deepspeed's default", "0");
    if (gw_cv_bool(c, ZERO("cpu_offload"), false)) {
        gw_cv_map(c, ZERO("cpu_offload"), "offload.optimizer", "host");
        if (!gw_str_eq(gw_cv_ours(c, "precision.compute"), "fp32"))
            gw_cv_map(c, ZERO("cpu_offload"), "offload.master", "host");
    }
    gw_cv_imply(c, ZERO("cpu_offload"), "off");
    if (gw_cv_bool(c, ZERO("cpu_offload_param"), false) && zero == 3)
        gw_cv_map(c, ZERO("cpu_offload_param"), "offload.parameters", "host");
    gw_cv_imply(c, ZERO("cpu_offload_param"), "off, or parameters are not sharded");
    gw_cv_offload(c, ZERO("offload_optimizer.device"), ZERO("offload_optimizer.nvme_path"), true,
                  zero, ZERO("stage 3"));
    gw_cv_offload(c, ZERO("offload_param.device"), ZERO("offload_param.nvme_path"), false, zero,
                  ZERO("stage 3"));
    int64_t elems = gw_cv_int(c, ZERO("reduce_bucket_size"), 0);
    if (elems >= 0 && elems <= (int64_t)1e11) {
        bool half = gw_str_eq(gw_cv_ours(c, "precision.gradients"), "compute");
        gw_cv_map(c, ZERO("reduce_bucket_size"), "layout.bucket", "%lld",
                  (long long)(elems * (half ? 2 : 4)));
        gw_cv_remark(c, ZERO("reduce_bucket_size"), "%lld elements of %d bytes", (long long)elems,
                     half ? 2 : 4);
    }
    if (gw_cv_get(c, ZERO("reduce_bucket_size")))
        gw_cv_conflict(c, ZERO("reduce_bucket_size"), "%lld is no size", (long long)elems);
    int64_t hpz = gw_cv_int(c, ZERO("zero_hpz_partition_size"), 1);
    if (hpz > 1)
        gw_cv_map(c, ZERO("zero_hpz_partition_size"), "layout.secondary_shard", "%lld",
                  (long long)hpz);
    gw_cv_imply(c, ZERO("zero_hpz_partition_size"), "no secondary shard");
    if (gw_cv_bool(c, ZERO("zero_quantized_weights"), false))
        gw_cv_map(c, ZERO("zero_quantized_weights"), "layout.weight_wire", "int8");
    gw_cv_imply(c, ZERO("zero_quantized_weights"), "off");
    if (gw_cv_bool(c, ZERO("zero_quantized_gradients"), false))
        gw_cv_map(c, ZERO("zero_quantized_gradients"), "layout.gradient_wire", "int4");
    gw_cv_imply(c, ZERO("zero_quantized_gradients"), "off");
    return zero;
}

static void settle_replicas(gw_cv *c, int64_t zero, int64_t dp) {
    int64_t shards = gw_cv_int(c, ZERO("mics_shard_size"), -1);
    if (shards > 0 && zero > 0 && dp > 0 && dp % shards == 0)
        gw_cv_map(c, ZERO("mics_shard_size"), "layout.dp_replicate", "%lld",
                  (long long)(dp / shards));
    if (shards <= 0) gw_cv_imply(c, ZERO("mics_shard_size"), "over all data-parallel ranks");
    if (dp > 0 && shards > 0 && dp % shards)
        gw_cv_conflict(c, ZERO("mics_shard_size"), "%lld data-parallel ranks are no multiple of it",
                       (long long)dp);
    gw_cv_refuse(c, ZERO("mics_shard_size"), "--world N",
                 "the number of data-parallel ranks is not known");
}

static void settle_layout(gw_cv *c) {
    int64_t tp =
        gw_cv_int(c, "tensor_parallel.autotp_size", gw_cv_int(c, "tensor_parallel.tp.tp_size", 1));
    int64_t cp = gw_cv_int(c, "sequence_parallel_size", 1);
    gw_cv_map(c, "tensor_parallel.autotp_size", "layout.tp", "%lld",
              (long long)GW_MAX(tp, (int64_t)1));
    gw_cv_map(c, "tensor_parallel.tp.tp_size", "layout.tp", "%lld",
              (long long)GW_MAX(tp, (int64_t)1));
    gw_cv_map(c, "sequence_parallel_size", "layout.cp", "%lld", (long long)cp);
    if (cp > 1)
        gw_cv_put(c, "layout.cp_mode", "deepspeed's sequence parallelism is Ulysses", "ulysses");
    gw_cv_key *stages = gw_cv_get(c, "pipeline.stages");
    if (stages && stages->type == GW_CV_INT) {
        int64_t pp = gw_cv_int(c, "pipeline.stages", 1);
        gw_cv_map(c, "pipeline.stages", "layout.pp", "%lld", (long long)pp);
    }
    if (stages)
        gw_cv_refuse(c, "pipeline.stages", "--set layout.pp=N", "the file does not say how many");
}

static void settle_experts(gw_cv *c) {
    bool on = gw_cv_bool(c, "expert_parallel.enabled", false);
    int64_t ep = gw_cv_int(c, "expert_parallel.autoep_size", 1);
    if (on && ep >= 1)
        gw_cv_map(c, "expert_parallel.autoep_size", "layout.ep", "%lld", (long long)ep);
    gw_cv_imply(c, "expert_parallel.autoep_size", "expert_parallel.enabled is off");
    gw_cv_imply(c, "expert_parallel.enabled", on ? "layout.ep says it" : "off");
}

static void settle_batch(gw_cv *c) {
    static const char *const keys[] = {"train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps", "train_batch_size"};
    static const char *const ours[] = {"train.micro_batch", "train.accumulate",
                                       "train.global_batch"};
    bool has[3], told[3];
    for (int i = 0; i < 3; i++)
        told[i] = gw_cv_value_of(c, ours[i])->set ||
                  (gw_cv_get(c, keys[i]) && !gw_cv_is_auto(c, keys[i]));
    for (int i = 0; i < 3; i++) /* two of them give the third */
        if (gw_cv_is_auto(c, keys[i]) && told[(i + 1) % 3] && told[(i + 2) % 3])
            gw_cv_imply(c, keys[i], "batch = micro-batch x accumulate x dp gives it");
    for (int i = 0; i < 3; i++) has[i] = gw_cv_get(c, keys[i]) != NULL;
    int64_t m = gw_cv_int(c, keys[0], 0), k = gw_cv_int(c, keys[1], 0),
            g = gw_cv_int(c, keys[2], 0);
    for (int i = 0; i < 3; i++)
        if (has[i] && gw_cv_get(c, keys[i]) && (i == 0 ? m : i == 1 ? k : g) < 1) {
            gw_cv_conflict(c, keys[i], "it is at least 1");
            return;
        }
    int64_t dp = gw_cv_dp_of(c, c->request->world, NULL);
    if (c->errors) return;
    if (!k && !(m && g)) k = 1; /* its default */
    gw_cv_batch b = {{m, m ? keys[0] : NULL, NULL},
                     {k, has[1] && k ? keys[1] : NULL, "deepspeed's default"},
                     {g, g ? keys[2] : NULL, NULL},
                     {dp, NULL, "--world / (pp x tp x cp)"}};
    gw_cv_settle_batch(c, b);
}

static void settle(gw_cv *c) {
    settle_precision(c);
    int64_t zero = settle_zero(c);
    settle_layout(c);
    settle_experts(c);
    settle_batch(c);
    settle_replicas(c, zero, gw_cv_ours_int(c, "layout.dp", 0));
    settle_optimizer(c);
    settle_schedule(c);
}

const gw_cv_format gw_cv_deepspeed = {
    .name = "deepspeed",
    .doc = "DeepSpeed's configuration (JSON)",
    .rules = rules,
    .nrules = (int)GW_COUNT(rules),
    .renames = renames,
    .says = says,
    .read = gw_cv_read_json,
    .settle = settle,
};

// SPDX-License-Identifier: Apache-2.0
// accelerate: the YAML that `accelerate config` writes.
//
// It says how many processes there are and by which library they share the work (distributed_type):
// FSDP, DeepSpeed, Megatron-LM, or plain data parallelism. The section of that library is read, and
// the sections of the others are implied: accelerate does not read them either. Nothing in it says
// the model, the batch or the length: --model and --set do. fp8_config is read where the precision
// is fp8. Every process is a rank: num_processes / (pp x tp x cp) are data-parallel.
//
// Source: accelerate's commands/config/config_args.py and utils/dataclasses.py.
#include "train/convert_impl.h" /* gw_cv */

#define LAUNCH    "the launcher's affair: docs/running-on-clusters.md"
#define WRAP      "shards are of layers, whatever modules they stand in"
#define NOT_BUILT "it is not built"
#define OTHER     "TPUs and SageMaker are not run on"

#define FSDP(leaf) "fsdp_config.fsdp_" leaf
#define DS(leaf)   "deepspeed_config." leaf
#define MG(leaf)   "megatron_lm_config.megatron_lm_" leaf
#define PAR(leaf)  "parallelism_config.parallelism_config_" leaf

// clang-format off
static const gw_cv_rule rules[] = {
    DO("distributed_type mixed_precision num_processes fp16"),
    IS("compute_environment debug machine_rank num_machines gpu_ids main_process_ip main_process_port rdzv_backend same_network "
       "main_training_function enable_cpu_affinity use_cpu command_file commands deepspeed_hostfile mpirun_config.*", LAUNCH),
    NO("tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_vm tpu_env", "[]|false", OTHER, NULL),
    NO("downcast_bf16", "no|false", OTHER, NULL),
    NO("ec2_instance_type iam_role_name image_uri profile region base_job_name pytorch_version transformers_version py_version "
       "sagemaker_inputs_file sagemaker_metrics_file additional_args*", NULL, OTHER, NULL),
    IS("dynamo_backend dynamo_config.*", "every step is compiled before it runs"),
    NO("ipex_config.ipex ipex_config.use_xpu", "false", "kernels are chosen by size and machine", NULL),

    DO(FSDP("sharding_strategy") " " FSDP("reshard_after_forward") " " FSDP("offload_params") " " FSDP("activation_checkpointing") " " FSDP("forward_prefetch")),
    IS(FSDP("auto_wrap_policy") " " FSDP("transformer_layer_cls_to_wrap") " " FSDP("min_num_params") " " FSDP("use_orig_params") " " FSDP("version"), WRAP),
    IS(FSDP("backward_prefetch") " " FSDP("backward_prefetch_policy"), "gathers of backward run ahead as layout.prefetch says"),
    IS(FSDP("state_dict_type"), "checkpoints have one format, free of the layout"),
    IS(FSDP("cpu_ram_efficient_loading") " " FSDP("sync_module_states"), "each rank reads its own part"),
    NO(FSDP("ignored_modules"), NULL, "all parameters are sharded", NULL),

    DO(DS("zero_stage") " " DS("gradient_accumulation_steps") " " DS("gradient_clipping") " " DS("offload_optimizer_device") " " DS("offload_param_device") " "
       DS("offload_optimizer_nvme_path") " " DS("offload_param_nvme_path") " " DS("zero3_init_flag") " " DS("zero3_save_16bit_model")),
    NO(DS("deepspeed_config_file"), NULL, "another file says it all", "gradwright convert deepspeed THAT_FILE --world N"),
    IS(DS("deepspeed_multinode_launcher") " " DS("deepspeed_hostfile") " " DS("deepspeed_exclusion_filter") " " DS("deepspeed_inclusion_filter"), LAUNCH),
    IS(DS("deepspeed_moe_layer_cls_names"), WRAP),

    DO(MG("tp_degree") " " MG("pp_degree") " " MG("num_micro_batches") " " MG("sequence_parallelism") " " MG("recompute_activations") " "
       MG("use_distributed_optimizer") " " MG("gradient_clipping") " " MG("expert_model_parallel_size") " " MG("context_parallel_size") " "
       MG("recompute_granularity") " " MG("recompute_method") " " MG("recompute_num_layers") " " MG("attention_backend")),
    DO("tp_config.tp_size"),
    DO(PAR("dp_replicate_size") " " PAR("dp_shard_size") " " PAR("tp_size") " " PAR("cp_size") " " PAR("sp_size") " " PAR("cp_comm_strategy") " " PAR("cp_backend") " " PAR("sp_backend")),
    IS(PAR("sp_seq_length") " " PAR("sp_seq_length_is_variable") " " PAR("sp_attn_implementation"), "train.seq_len is the length"),
    DO("gradient_accumulation_steps gradient_clipping"),

    DO("fp8_config.backend fp8_config.fp8_format"),
    IS("fp8_config.amax_history_length fp8_config.amax_history_len fp8_config.amax_compute_algo fp8_config.amax_compute_algorithm fp8_config.interval fp8_config.margin fp8_config.opt_level "
       "fp8_config.use_autocast_during_eval fp8_config.enable_fsdp_float8_all_gather fp8_config.pad_inner_dim", "scales are made of the values at hand, by blocks"),
    NO("fp8_config.override_linear_precision", "(false, false, false)|[false, false, false]", "eight-bit products are all three or none", NULL),
};
// clang-format on

static const gw_cv_rename renames[] = {
    {"megatron_lm_config.megatron_lm_recompute_activation", MG("recompute_activations")},
    {"fsdp_config.sharding_strategy", FSDP("sharding_strategy")},
    {"fsdp_config.offload_params", FSDP("offload_params")},
    {"fsdp_config.min_num_params", FSDP("min_num_params")},
    {"fsdp_config.backward_prefetch_policy", FSDP("backward_prefetch_policy")},
    {"fsdp_config.transformer_layer_cls_to_wrap", FSDP("transformer_layer_cls_to_wrap")},
    {"fsdp_config.fsdp_backward_prefetch_policy", FSDP("backward_prefetch")},
    {"parallelism_config.dp_replicate_size", PAR("dp_replicate_size")},
    {"parallelism_config.dp_shard_size", PAR("dp_shard_size")},
    {"parallelism_config.tp_size", PAR("tp_size")},
    {"parallelism_config.cp_size", PAR("cp_size")},
    {"parallelism_config.sp_size", PAR("sp_size")},
    {"parallelism_config.cp_comm_strategy", PAR("cp_comm_strategy")},
    {NULL, NULL},
};

static const gw_cv_rename says[] = {
    {"mixed_precision", "precision.compute"},
    {"num_processes", "layout.dp"},
    {"(batch size)", "train.micro_batch"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {DS("gradient_accumulation_steps"), "train.accumulate"},
    {MG("num_micro_batches"), "train.accumulate"},
    {"gradient_clipping", "optimizer.clip_norm"},
    {DS("gradient_clipping"), "optimizer.clip_norm"},
    {MG("gradient_clipping"), "optimizer.clip_norm"},
    {DS("zero_stage"), "layout.zero"},
    {FSDP("sharding_strategy"), "layout.zero"},
    {DS("offload_optimizer_device"), "offload.optimizer"},
    {DS("offload_param_device"), "offload.parameters"},
    {MG("recompute_granularity"), "recompute.policy"},
    {MG("recompute_method"), "recompute.policy"},
    {MG("tp_degree"), "layout.tp"},
    {MG("pp_degree"), "layout.pp"},
    {PAR("dp_replicate_size"), "layout.dp_replicate"},
    {PAR("cp_comm_strategy"), "layout.cp_mode"},
    {NULL, NULL},
};

// ------------------------------------------------------------------ libraries

static void settle_fsdp(gw_cv *c) {
    static const struct {
        const char *name, *old;
        int zero;
    } kinds[] = {{"FULL_SHARD", "1", 3},
                 {"SHARD_GRAD_OP", "2", 2},
                 {"NO_SHARD", "3", 0},
                 {"HYBRID_SHARD", "4", 3},
                 {"HYBRID_SHARD_ZERO2", "5", 2}};
    const char *ks = FSDP("sharding_strategy"), *kr = FSDP("reshard_after_forward");
    gw_cv_key *k = gw_cv_get(c, ks), *r = gw_cv_get(c, kr);
    int zero = 3;
    for (size_t i = 0; k && i < GW_COUNT(kinds); i++) {
        if (!gw_str_eq(k->text, kinds[i].name) && !gw_str_eq(k->text, kinds[i].old)) continue;
        zero = kinds[i].zero;
        gw_cv_map(c, ks, "layout.zero", "%d", zero);
        if (i > 2) gw_cv_remark(c, ks, "replicas by host: --set layout.dp_replicate=HOSTS");
    }
    if (gw_cv_get(c, ks))
        gw_cv_conflict(
            c, ks, "it is FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2");
    for (size_t i = 0; r && r->type == GW_CV_TEXT && i < GW_COUNT(kinds); i++)
        if (gw_str_eq(r->text, kinds[i].name)) {
            zero = kinds[i].zero;
            gw_cv_map(c, kr, "layout.zero", "%d", zero);
        }
    gw_cv_put(c, "layout.zero", "FSDP's default: parameters are sharded", "3");
    if (gw_cv_get(c, kr)) {
        bool again = gw_cv_bool(c, kr, true);
        gw_cv_map(c, kr, "layout.reshard_after_forward", "%s", again ? "true" : "false");
    }
    if (gw_cv_bool(c, FSDP("offload_params"), false)) {
        if (zero == 3) gw_cv_map(c, FSDP("offload_params"), "offload.parameters", "host");
        gw_cv_map(c, FSDP("offload_params"), "offload.optimizer", "host");
        if (gw_str_eq(gw_cv_ours(c, "precision.compute"), "bf16") ||
            gw_str_eq(gw_cv_ours(c, "precision.compute"), "fp16"))
            gw_cv_map(c, FSDP("offload_params"), "offload.master", "host");
    }
    gw_cv_imply(c, FSDP("offload_params"), "off");
    bool full = gw_cv_bool(c, FSDP("activation_checkpointing"), false);
    gw_cv_map(c, FSDP("activation_checkpointing"), "recompute.policy", "%s",
              full ? "full" : "none");
    bool ahead = gw_cv_bool(c, FSDP("forward_prefetch"), false);
    if (ahead && zero == 3) gw_cv_map(c, FSDP("forward_prefetch"), "layout.prefetch", "1");
    gw_cv_imply(c, FSDP("forward_prefetch"),
                ahead ? "parameters are not gathered for forward" : "off");
}

static void settle_deepspeed(gw_cv *c) {
    int64_t zero = gw_cv_int(c, DS("zero_stage"), 2);
    gw_cv_map(c, DS("zero_stage"), "layout.zero", "%lld", (long long)zero);
    if (!gw_cv_known(c, DS("deepspeed_config_file")))
        gw_cv_put(c, "layout.zero", "accelerate's default with DeepSpeed", "2");
    gw_cv_offload(c, DS("offload_optimizer_device"), DS("offload_optimizer_nvme_path"), true, zero,
                  "zero_stage: 3");
    gw_cv_offload(c, DS("offload_param_device"), DS("offload_param_nvme_path"), false, zero,
                  "zero_stage: 3");
    gw_cv_map_real(c, DS("gradient_clipping"), "optimizer.clip_norm");
    gw_cv_imply(c, DS("zero3_init_flag"), "each rank makes its own part");
    gw_cv_imply(c, DS("zero3_save_16bit_model"), "`gradwright export` writes the whole model");
}

static void settle_megatron(gw_cv *c) {
    gw_cv_map_int(c, MG("tp_degree"), "layout.tp");
    gw_cv_map_int(c, MG("pp_degree"), "layout.pp");
    gw_cv_map_int(c, MG("context_parallel_size"), "layout.cp");
    gw_cv_map_int(c, MG("expert_model_parallel_size"), "layout.ep");
    gw_cv_map_real(c, MG("gradient_clipping"), "optimizer.clip_norm");
    bool sp = gw_cv_bool(c, MG("sequence_parallelism"), false),
         tp = gw_cv_ours_int(c, "layout.tp", 1) > 1;
    if (tp)
        gw_cv_map(c, MG("sequence_parallelism"), "layout.sequence_parallel", "%s",
                  sp ? "true" : "false");
    gw_cv_imply(c, MG("sequence_parallelism"), "no tensor parallelism");
    bool dist = gw_cv_bool(c, MG("use_distributed_optimizer"), false);
    gw_cv_map(c, MG("use_distributed_optimizer"), "layout.zero", "%d", dist ? 1 : 0);
    bool selective = gw_cv_bool(c, MG("recompute_activations"), false);
    const char *how = gw_cv_text(c, MG("recompute_granularity"), selective ? "selective" : "none");
    if (!gw_str_eq(how, "none") && !gw_str_eq(how, "selective") && !gw_str_eq(how, "full")) {
        gw_cv_conflict(c, MG("recompute_granularity"), "it is selective or full");
        return;
    }
    gw_cv_map(c, MG("recompute_granularity"), "recompute.policy", "%s", how);
    gw_cv_map(c, MG("recompute_activations"), "recompute.policy", "%s", how);
    const char *method = gw_cv_text(c, MG("recompute_method"), "uniform");
    if (gw_str_eq(method, "uniform"))
        gw_cv_imply(c, MG("recompute_method"), "all layers are alike");
    gw_cv_refuse(c, MG("recompute_method"), "--set recompute.policy=budget",
                 "all layers are alike");
    if (gw_cv_int(c, MG("recompute_num_layers"), 1) == 1)
        gw_cv_imply(c, MG("recompute_num_layers"), "each layer by itself");
    gw_cv_refuse(c, MG("recompute_num_layers"), NULL, "each layer is computed again by itself");
    gw_cv_imply(c, MG("attention_backend"), "a choice of kernel: the same values");
}

// ------------------------------------------------------------------ axes and batch

static void settle_axes(gw_cv *c) {
    gw_cv_map_int(c, PAR("tp_size"), "layout.tp");
    gw_cv_map_int(c, "tp_config.tp_size", "layout.tp");
    int64_t cp = gw_cv_int(c, PAR("cp_size"), 1), sp = gw_cv_int(c, PAR("sp_size"), 1);
    if (cp > 1 && sp > 1) {
        gw_cv_conflict(c, PAR("sp_size"),
                       "cp_size is %lld beside it: a sequence is cut one way or the other",
                       (long long)cp);
        return;
    }
    if (sp > 1) {
        gw_cv_map(c, PAR("sp_size"), "layout.cp", "%lld", (long long)sp);
        gw_cv_map(c, PAR("sp_size"), "layout.cp_mode", "ulysses");
        gw_cv_imply(c, PAR("cp_size"), "sp_size cuts sequences");
    }
    gw_cv_map(c, PAR("cp_size"), "layout.cp", "%lld", (long long)cp);
    gw_cv_imply(c, PAR("sp_size"), "1");
    const char *how = gw_cv_text(c, PAR("cp_comm_strategy"), "allgather");
    if (cp > 1 && (gw_str_eq(how, "allgather") || gw_str_eq(how, "alltoall")))
        gw_cv_map(c, PAR("cp_comm_strategy"), "layout.cp_mode", "%s",
                  gw_str_eq(how, "alltoall") ? "ring" : "allgather");
    if (cp > 1)
        gw_cv_refuse(c, PAR("cp_comm_strategy"), "--set layout.cp_mode=ring",
                     "it is allgather or alltoall");
    gw_cv_imply(c, PAR("cp_comm_strategy"), "no context parallelism");
    if (cp > 1) gw_cv_put(c, "layout.cp_mode", "accelerate's default", "allgather");
    gw_cv_imply(c, PAR("cp_backend"), "a choice of library");
    gw_cv_imply(c, PAR("sp_backend"), "a choice of library");
}

static void settle_ranks(gw_cv *c) {
    int64_t ranks = c->request->world, said = gw_cv_int(c, "num_processes", 0);
    if (ranks && said > 0 && said != ranks)
        gw_cv_imply(c, "num_processes", "--world says how many there are");
    if (!ranks && said > 0) ranks = said;
    int64_t dp = gw_cv_dp_of(c, ranks, "num_processes");
    int64_t rep = gw_cv_int(c, PAR("dp_replicate_size"), 0),
            shard = gw_cv_int(c, PAR("dp_shard_size"), 0);
    if (rep > 0 && shard > 0 && dp && gw_cv_times(rep, shard) != dp) {
        gw_cv_conflict(c, PAR("dp_shard_size"),
                       "%lld replicas x %lld shards are not the %lld data-parallel ranks",
                       (long long)rep, (long long)shard, (long long)dp);
        return;
    }
    bool copies = shard == 1 && gw_cv_ours_int(c, "layout.cp", 1) == 1; /* cp shards as well */
    if (copies) gw_cv_map(c, PAR("dp_shard_size"), "layout.zero", "0");
    gw_cv_imply(c, PAR("dp_shard_size"), "sharding is over layout.dp / layout.dp_replicate ranks");
    if (rep > 1 && dp && !copies)
        gw_cv_map(c, PAR("dp_replicate_size"), "layout.dp_replicate", "%lld", (long long)rep);
    if (rep <= 1 || copies)
        gw_cv_imply(c, PAR("dp_replicate_size"), "copies without sharding, or one");
    gw_cv_refuse(c, PAR("dp_replicate_size"), "--world N",
                 "the number of data-parallel ranks is not known");
    static const char *const counts[] = {
        "gradient_accumulation_steps", DS("gradient_accumulation_steps"), MG("num_micro_batches")};
    gw_cv_batch b = {.micro = {gw_cv_ours_int(c, "train.micro_batch", 0), NULL, NULL},
                     .global = {gw_cv_ours_int(c, "train.global_batch", 0), NULL, NULL},
                     .dp = {dp, gw_cv_get(c, "num_processes") ? "num_processes" : NULL,
                            "--world / (pp x tp x cp)"}};
    for (size_t i = 0; i < GW_COUNT(counts) && !b.accumulate.n; i++) {
        int64_t n = gw_cv_int(c, counts[i], 0);
        if (n > 0) b.accumulate = (gw_cv_portion){n, counts[i], NULL};
    }
    gw_cv_settle_batch(c, b);
    gw_cv_remark(c, "num_processes", "%lld / (pp x tp x cp)", (long long)ranks);
    if (!gw_cv_ours(c, "train.micro_batch") && !c->errors)
        gw_cv_refuse_missing(c, "(batch size)", "of the script", "--set train.micro_batch=N",
                             "the file does not say it; 1 is assumed");
}

static void settle_precision(gw_cv *c) {
    const char *p = gw_cv_text(c, "mixed_precision", "no");
    gw_cv_key *k = gw_cv_get(c, "mixed_precision");
    if (k && k->type == GW_CV_BOOL && gw_str_eq(k->text, "false")) p = "no";
    bool half = gw_str_eq(p, "bf16") || gw_str_eq(p, "fp16"), fp8 = gw_str_eq(p, "fp8");
    if (half || gw_str_eq(p, "no"))
        gw_cv_map(c, "mixed_precision", "precision.compute", "%s", half ? p : "fp32");
    if (fp8) {
        gw_cv_map(c, "mixed_precision", "precision.compute", "bf16");
        gw_cv_map(c, "mixed_precision", "precision.products", "fp8");
        gw_cv_remark(c, "mixed_precision",
                     "scales are by blocks: 1 x 128 of activations, 128 x 128 of weights");
    }
    if (gw_cv_get(c, "mixed_precision"))
        gw_cv_conflict(c, "mixed_precision", "it is no, fp16, bf16 or fp8");
    if (gw_cv_bool(c, "fp16", false) && !gw_cv_ours(c, "precision.compute"))
        gw_cv_map(c, "fp16", "precision.compute", "fp16");
    gw_cv_imply(c, "fp16", "mixed_precision says it");
    gw_cv_put(c, "precision.compute", "accelerate's default", "fp32");
    gw_cv_imply(c, "fp8_config.backend",
                fp8 ? "eight-bit products are our own kernels" : "the precision is not fp8");
    gw_cv_imply(c, "fp8_config.fp8_format", fp8 ? "e4m3 in blocks" : "the precision is not fp8");
}

static void settle(gw_cv *c) {
    const char *type = gw_cv_text(c, "distributed_type", "NO");
    bool fsdp = gw_str_eq(type, "FSDP"), ds = gw_str_eq(type, "DEEPSPEED"),
         mg = gw_str_eq(type, "MEGATRON_LM");
    static const char *const plain[] = {"NO",        "False",      "false",      "MULTI_GPU",
                                        "MULTI_CPU", "MULTI_XPU",  "MULTI_NPU",  "MULTI_HPU",
                                        "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_NEURON",
                                        "TP"};
    bool ddp = false;
    for (size_t i = 0; i < GW_COUNT(plain); i++) ddp |= gw_str_eq(type, plain[i]);
    settle_precision(c);
    if (fsdp) settle_fsdp(c);
    if (ds) settle_deepspeed(c);
    if (mg) settle_megatron(c);
    if (fsdp || ds || mg) gw_cv_imply(c, "distributed_type", "its section says how");
    if (ddp) gw_cv_map(c, "distributed_type", "layout.zero", "0");
    gw_cv_refuse(c, "distributed_type", NULL, "%s is not run on", type);
    gw_cv_put(c, "layout.zero", "gradients alone are shared", "0");
    settle_axes(c);
    if (!c->errors) settle_ranks(c);
    gw_cv_map_real(c, "gradient_clipping", "optimizer.clip_norm");
    gw_cv_imply_all(c, "fsdp_config.*",
                    "distributed_type is not FSDP: accelerate does not read it");
    gw_cv_imply_all(c, "deepspeed_config.*",
                    "distributed_type is not DEEPSPEED: accelerate does not read it");
    gw_cv_imply_all(c, "megatron_lm_config.*",
                    "distributed_type is not MEGATRON_LM: accelerate does not read it");
}

const gw_cv_format gw_cv_accelerate = {
    .name = "accelerate",
    .doc = "what `accelerate config` writes (YAML)",
    .rules = rules,
    .nrules = (int)GW_COUNT(rules),
    .renames = renames,
    .says = says,
    .read = gw_cv_read_yaml,
    .settle = settle,
};

// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's arguments, each with what becomes of it here. Included by convert_megatron.c alone.
//
// Names are those of flags, without dashes in front; configurations in YAML spell them with
// underscores, or by what the flag sets (`add_bias_linear: false` is --disable-bias-linear). Names
// with one reason stand in one row. Source: megatron/training/arguments.py.
#ifndef GW_TRAIN_CONVERT_MEGATRON_RULES_H
#define GW_TRAIN_CONVERT_MEGATRON_RULES_H

#include "train/convert_impl.h" /* gw_cv_rule */

#define OFF(keys, why, instead) NO(keys, "false", why, instead)
#define NOT_TEXT                "of a model that is no language model of one stack"
#define NOT_BUILT               "it is not built"
#define PREFIX1                 "--set data.train=PREFIX"
#define BUDGET                  "--set recompute.policy=budget --set recompute.budget=BYTES"

// clang-format off
static const gw_cv_rule rules[] = {
    /* several of these make one value: settled together */
    DO("num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels group-query-attention num-query-groups "
       "window-size max-position-embeddings position-embedding-type use-rotary-position-embeddings no-position-embedding "
       "rotary-base use-rope-scaling rope-scaling-factor rope-type normalization swiglu "
       "untie-embeddings-and-output-weights multi-latent-attention qk-layernorm disable-bias-linear add-qkv-bias "
       "q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim rotary-scaling-factor mscale mscale-all-dim "
       "attention-dropout hidden-dropout init-method-std add-bias-linear gated-linear-unit activation-func"),
    DO("num-experts moe-layer-freq moe-ffn-hidden-size moe-shared-expert-intermediate-size "
       "moe-router-load-balancing-type moe-router-score-function moe-router-topk moe-router-pre-softmax "
       "moe-router-num-groups moe-router-group-topk moe-router-topk-scaling-factor moe-router-enable-expert-bias "
       "moe-router-bias-update-rate moe-aux-loss-coeff moe-z-loss-coeff moe-expert-capacity-factor moe-token-drop-policy"),
    DO("micro-batch-size global-batch-size train-iters train-samples lr lr-decay-style lr-wsd-decay-style lr-decay-iters "
       "lr-decay-samples lr-wsd-decay-iters lr-wsd-decay-samples lr-warmup-fraction lr-warmup-iters lr-warmup-samples "
       "min-lr optimizer adam-beta1 adam-beta2"),
    DO("fp16 bf16 grad-reduce-in-bf16 loss-scale initial-loss-scale loss-scale-window hysteresis min-loss-scale fp8-format main-grads-dtype "
       "exp-avg-dtype exp-avg-sq-dtype"),
    DO("tensor-model-parallel-size pipeline-model-parallel-size sequence-parallel context-parallel-size cp-comm-type "
       "hierarchical-context-parallel-sizes expert-model-parallel-size expert-tensor-parallel-size "
       "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers num-layers-per-virtual-pipeline-stage "
       "num-virtual-stages-per-pipeline-rank virtual-pipeline-model-parallel-size pipeline-model-parallel-layout "
       "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split distributed-timeout-minutes "
       "ddp-bucket-size use-distributed-optimizer use-megatron-fsdp data-parallel-sharding-strategy "
       "num-distributed-optimizer-instances use-torch-fsdp2 torch-fsdp2-no-reshard-after-forward nproc-per-node nnodes"),
    DO("recompute-activations recompute-granularity recompute-method recompute-num-layers recompute-modules "
       "checkpoint-activations moe-layer-recompute optimizer-cpu-offload offload-optimizer-states"),
    DO("most-recent-k original-max-position-embeddings"),
    DO("save load finetune no-load-optim no-load-rng data-path train-data-path valid-data-path split vocab-size "
       "padded-vocab-size tokenizer-type tokenizer-model vocab-file merge-file eval-iters eval-interval full-validation "
       "reset-position-ids reset-attention-mask eod-mask-loss"),

    /* one value is one value */
    TO("seq-length", "train.seq_len", NULL),
    TO("norm-epsilon", "model.norm_eps", "1e-5"),
    TO("log-interval", "train.log_every", "100"),
    TO("seed", "train.seed", "1234"),
    TO("weight-decay", "optimizer.weight_decay", "0.01"),
    TO("clip-grad", "optimizer.clip_norm", "1"),
    TO("adam-eps", "optimizer.eps", NULL),
    TO("sgd-momentum", "optimizer.momentum", NULL),
    TO("muon-momentum", "optimizer.muon_momentum", "0.9"),
    TO("muon-num-ns-steps", "optimizer.muon_ns_steps", NULL),
    TO("save-interval", "checkpoint.every", "0"),

    /* the model */
    NO("rotary-percent", "1", "heads are rotated whole", NULL),
    OFF("rotary-interleaved", "the pairs that turn are the two halves of a head", NULL),
    NO("rotary-seq-len-interpolation-factor", "1", "written as model.rope_scaling", "--set model.rope_scaling.type=linear --set model.rope_scaling.factor=X"),
    NO("no-rope-freq", "0", "every layer rotates", NULL),
    OFF("apply-layernorm-1p layernorm-zero-centered-gamma", "gains are stored as they are, not less one: the same function, other weights", NULL),
    OFF("apply-residual-connection-post-layernorm", "norms stand before the layers", NULL),
    OFF("openai-gelu", "gelu is that of the family", NULL),
    OFF("squared-relu quick-geglu", NOT_BUILT, "swiglu and gelu are"),
    NO("activation-func-clamp-value", NULL, NOT_BUILT, NULL),
    NO("glu-linear-offset", "0", NOT_BUILT, NULL),
    NO("experimental-attention-variant linear-attention-freq csa-* dsa-* o-groups o-lora-rank attention-output-gate", "false|1", "attention is full, sliding or latent", NULL),
    OFF("enable-hyper-connections use-fused-mhc", "there is one residual stream", NULL),
    NO("num-residual-streams mhc-*", "1", "there is one residual stream", NULL),
    NO("moe-n-hash-layers moe-latent-size moe-shared-expert-gate", "0|false", NOT_BUILT, NULL),
    OFF("qk-clip", NOT_BUILT, NULL),
    NO("qk-clip-*", NULL, "it belongs to qk-clip", NULL),
    NO("mtp-num-layers", "0", "prediction of several tokens is not built", NULL),
    NO("mtp-loss-scaling-factor", NULL, "it belongs to mtp-num-layers", NULL),
    NO("encoder-num-layers decoder-num-layers encoder-seq-length decoder-seq-length mrope-section pipeline-model-parallel-split-rank", NULL, NOT_TEXT, NULL),
    NO("softmax-type", "vanilla", NOT_BUILT, NULL),
    NO("window-attn-skip-freq", NULL, "all layers have the window", NULL),
    OFF("qk-l2-norm", NOT_BUILT, NULL),
    NO("embedding-init-method-std", NULL, "one deviation for all weights", "--set model.init_std=X"),
    OFF("init-method-xavier-uniform", "initial weights are normal", NULL),
    OFF("data-parallel-random-init", "weights are the same on all ranks", NULL),
    IS("init-method output-layer-init-method use-cpu-initialization init-model-with-meta-device perform-initialization no-initialization", "initial weights are normal, and the same in every layout"),
    IS("make-vocab-size-divisible-by", "the vocabulary is not padded; tp cuts it unevenly where it must"),
    IS("add-position-embedding", "position-embedding-type says it"),
    IS("relative-attention-num-buckets relative-attention-max-distance", "positions are not relative"),
    IS("bert-no-binary-head bert-binary-head mask-prob short-seq-prob vocab-extra-ids retriever-seq-length", "of BERT, T5 or retrieval"),
    NO("spec", NULL, "code of one's own", "--model of a family that is built"),
    OFF("moe-use-upcycling moe-router-force-load-balancing moe-token-dropping moe-apply-probs-on-input", NOT_BUILT, "`gradwright plan` assumes an even load of experts"),
    NO("moe-upcycling-granularity", "1", NOT_BUILT, NULL),
    NO("moe-input-jitter-eps", "0", NOT_BUILT, NULL),
    IS("moe-router-dtype", "routing is in float32"),
    NO("moe-expert-rank-capacity-factor", NULL, "tokens of a rank that exceed its buffer go in further rounds, none is dropped", "--set layout.moe_buffer=X"),

    /* batch, schedule, optimizer */
    NO("batch-size warmup model-parallel-size", NULL, "not read there any more either", "micro-batch-size, lr-warmup-iters, tensor-model-parallel-size say it"),
    NO("rampup-batch-size", "[]", "a batch has one size from the first step on", NULL),
    OFF("decrease-batch-size-if-needed variable-seq-lengths", "batches and sequences have one size", NULL),
    NO("exit-interval exit-duration-in-mins", NULL, "a run goes on to train.steps", "a signal saves and stops it; --resume goes on"),
    IS("exit-signal-handler exit-signal exit-signal-handler-for-dataloader", "a signal saves and stops every run"),
    NO("iterations-to-skip", "[]", NOT_BUILT, NULL),
    IS("calculate-per-token-loss", "losses are means over all labels of a step"),
    OFF("skip-train test-mode", "this is a run file for training", NULL),
    NO("lr-warmup-init", "0", "warm-up begins at 0", NULL),
    NO("decoupled-lr decoupled-min-lr", NULL, "one rate for all matrices", NULL),
    IS("override-opt-param-scheduler override-opt_param-scheduler use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler use-checkpoint-args use-mp-args-from-checkpoint-args", "--resume says what may change"),
    NO("no-weight-decay-cond-type", NULL, "norms and biases have no decay, everything else has", NULL),
    OFF("apply-wd-to-qk-layernorm", "norms and biases have no decay", NULL),
    OFF("no-decoupled-weight-decay", "adamw's decay is not added to the gradient", "--set optimizer.weight_decay=0 makes the two the same"),
    NO("decoupled-weight-decay apply-decoupled-weight-decay", "true", "adamw's decay is not added to the gradient", "--set optimizer.weight_decay=0 makes the two the same"),
    OFF("use-mup", "rates and initial weights do not change with the width", NULL),
    NO("mup-*", NULL, "it belongs to use-mup", NULL),
    NO("step-batch-size-schedule phase-transition-iterations", NULL, "a batch has one size from the first step on", NULL),
    NO("eval-global-batch-size eval-micro-batch-size", NULL, "validation takes micro-batches as training does", "--set train.valid_batches=N"),
    NO("start-weight-decay end-weight-decay", NULL, "decay is constant", "--set optimizer.weight_decay=X"),
    NO("weight-decay-incr-style", "constant", "decay is constant", NULL),
    NO("muon-scalar-optimizer", "adam|adamw", "what is no matrix is left to adamw", NULL),
    NO("muon-coefficient-type", "quintic", "the iteration has the coefficients of docs/training.md", NULL),
    NO("soap-* adaptive-muon-* lion-*", NULL, "of an optimizer that is not built", NULL),
    IS("muon-no-split-qkv muon-split-qkv", "q, k and v are matrices of their own"),
    IS("muon-use-nesterov muon-nesterov", "Muon here looks ahead"),
    NO("muon-scale-mode", NULL, "updates have one scale: docs/training.md", NULL),
    NO("muon-tp-mode", "distributed|duplicated", "whole matrices are made orthogonal", NULL),
    NO("muon-extra-scale-factor", "1", NOT_BUILT, NULL),

    /* precision */
    OFF("fp32-residual-connection", "the residual stream is in precision.compute", "--set precision.compute=fp32"),
    OFF("apply-query-key-layer-scaling fp16-lm-cross-entropy enable-autocast first-last-layers-bf16", NOT_BUILT, NULL),
    IS("attention-softmax-in-fp32", "softmax is in float32"),
    IS("accumulate-allreduce-grads-in-fp32", "gradients are float32 unless precision.gradients says otherwise"),
    IS("disable-bf16-reduced-precision-matmul ddp-reduce-scatter-with-fp32-accumulation", "sums are in float32"),
    IS("params-dtype pipeline-dtype autocast-dtype use-precision-aware-optimizer", "the dtypes themselves say it"),
    NO("main-params-dtype", "fp32", "a master copy is float32, or there is none", "--set precision.master=none"),
    NO("fp8-recipe", "blockwise", "scales are by blocks of 1 x 128 and 128 x 128", "docs/fp8.md"),
    IS("fp8-margin fp8-interval fp8-amax-history-len fp8-amax-compute-algo", "scales are made of the values at hand, not of a history"),
    NO("fp8-param-gather fp8-param", "false", "gathers of weights carry their own dtype, bf16 or int8", "--set layout.weight_wire=int8"),
    OFF("no-fp8-wgrad", "eight-bit products are all three or none", NULL),
    NO("fp8-wgrad", "true", "eight-bit products are all three or none", NULL),
    NO("fp8", "false", "written as precision.products", "--set precision.products=fp8"),
    NO("fp8-* fp4-* kitchen-*", NULL, NOT_BUILT, "docs/fp8.md"),

    /* layout */
    NO("microbatch-group-size-per-virtual-pipeline-stage", NULL, "interleaved takes as many as there are ranks", "--set layout.schedule=file:PATH"),
    IS("standalone-embedding-stage", "stages are balanced by cost, embedding and head included"),
    OFF("defer-embedding-wgrad-compute", NOT_BUILT, "--set layout.schedule=zb-h1"),
    NO("wgrad-deferral-limit", "0", NOT_BUILT, NULL),
    NO("outer-dp-sharding-strategy", "no_shard", "replicas hold whole copies", "--set layout.dp_replicate=1 shards over all ranks"),
    NO("cp-partition-mode", "zigzag", "sequences are cut in zigzags", NULL),
    NO("ddp-num-buckets", NULL, "buckets are sized in bytes", "--set layout.bucket=25MiB"),
    NO("suggested-communication-unit-size", NULL, "gathers are by layer", "--set layout.prefetch=N, in layers"),
    OFF("enable-full-sharding-in-hsdp replication", NOT_BUILT, NULL),
    NO("replication-jump", NULL, NOT_BUILT, NULL),
    NO("replication-factor", "2", NOT_BUILT, NULL),
    OFF("use-tp-pp-dp-mapping", "ranks are numbered with tp innermost and pp outermost", NULL),
    IS("tp-comm-overlap", "layout.tp_chunks cuts what is gathered in pieces"),
    IS("overlap-grad-reduce overlap-param-gather overlap-param-gather-with-optimizer-step delay-grad-reduce delay-param-gather "
       "no-align-grad-reduce no-align-param-gather align-grad-reduce align-param-gather no-overlap-p2p-communication overlap-p2p-comm "
       "overlap-p2p-communication-warmup-flush batch-p2p-comm batch-p2p-sync no-scatter-gather-tensors-in-pipeline "
       "scatter-gather-tensors-in-pipeline tp-comm-overlap-cfg disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs "
       "tp-comm-overlap-rs-dgrad disable-tp-comm-bulk-dgrad disable-tp-comm-bulk-wgrad disable-tp-comm-split-ag disable-tp-comm-split-rs "
       "tp-comm-split-ag tp-comm-atomic-ag tp-comm-split-rs tp-comm-atomic-rs tp-comm-bulk-wgrad tp-comm-bulk-dgrad "
       "moe-shared-expert-overlap overlap-moe-expert-parallel-comm overlap-cpu-optimizer-d2h-h2d delay-wgrad-compute",
       "when transfers run is planned: layout.bucket, layout.prefetch, layout.tp_chunks, layout.schedule"),
    IS("node-rank master-addr master-port rdzv-backend rdzv-endpoint rdzv-id max-restarts local-ranks-filter tee redirects log-dir standalone "
       "nodes ntasks-per-node gres container-image container-mounts container-workdir no-container-mount-home mpi local-rank lazy-mpu-init distributed-backend "
       "distributed-timeout-seconds-after-init pipeline-model-parallel-comm-backend disable-gloo-process-groups enable-gloo-process-groups use-gloo-process-groups", "the launcher's affair: docs/running-on-clusters.md"),

    /* memory */
    IS("distribute-saved-activations", "with sequence parallelism saved activations are cut over tp"),
    NO("cpu-offloading-num-layers", "0", "activations stay where they are computed", BUDGET),
    OFF("cpu-offloading fine-grained-activation-offloading", "activations stay where they are computed", BUDGET),
    NO("offload-modules", NULL, "activations stay where they are computed", BUDGET),
    IS("-cpu-offloading-context cpu-offloading-weights cpu-offloading-activations", "of cpu_offloading"),
    NO("min-offloaded-tensor-size", NULL, "activations stay where they are computed", BUDGET),
    NO("optimizer-offload-fraction", "1", "states are offloaded whole", "--set offload.optimizer=host"),
    NO("num-microbatches-with-partial-activation-checkpoints", NULL, NOT_BUILT, BUDGET),
    IS("empty-unused-memory-level no-clone-scatter-output-in-embedding clone-scatter-output-in-embedding deallocate-pipeline-outputs "
       "record-memory-history memory-snapshot-path", "memory is planned: `gradwright plan` prints it"),

    /* the same values by other kernels, and how the process runs */
    IS("megatron-fsdp-version preserve-fp32-weights nccl-ub store-param-remainders no-store-param-remainders optimizer-cuda-graph "
       "moe-paged-stash moe-paged-stash-* use-transformer-engine-op-fuser moe-mlp-glu-interleave-size cuda-graph-modules "
       "delay-offload-until-cuda-graph keep-fp8-weight-transpose-cache use-layer-wise-distributed-optimizer "
       "use-contiguous-parameters-in-local-ddp DDP-impl ddp-impl tp-comm-bootstrap-backend create-all-gather-group num-zero-blocks "
       "overlap-dispatch-backward-with-experts-wgrad", "a choice of kernel or of transfers: the same values"),
    IS("attention-backend transformer-impl moe-grouped-gemm moe-use-legacy-grouped-gemm moe-router-fusion moe-router-padding-for-fp8 "
       "moe-router-padding-for-quantization moe-token-dispatcher-type moe-enable-deepep moe-deepep-num-sms moe-flex-dispatcher-backend "
       "moe-hybridep-num-sms moe-permute-fusion moe-pad-expert-input-to-capacity muon-fp32-matmul-prec reuse-grad-buf-for-mxfp8-param-ag "
       "te-rng-tracker ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective use-ring-exchange-p2p use-nccl-ub "
       "disable-symmetric-registration use-sharp sharp-enabled-group no-gradient-reduce-div-fusion fsdp-double-buffer keep-fp8-transpose-cache "
       "nccl-communicator-config-path use-torch-optimizer-for-cpu-offload enable-cuda-graph external-cuda-graph cuda-graph-impl cuda-graph-scope "
       "cuda-graph-warmup-steps no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion use-fused-weighted-squared-relu "
       "no-bias-dropout-fusion no-rope-fusion cross-entropy-loss-fusion cross-entropy-fusion-impl use-flash-attn no-persist-layer-norm "
       "no-gradient-accumulation-fusion use-legacy-models use-te-activation-func bias-activation-fusion bias-swiglu-fusion masked-softmax-fusion "
       "persist-layer-norm memory-efficient-layer-norm bias-dropout-fusion apply-rope-fusion gradient-accumulation-fusion mla-down-proj-fusion "
       "no-create-attention-mask-in-dataloader", "a choice of kernel: the same values"),
    IS("manual-gc manual-gc-interval no-manual-gc-eval manual-gc-eval no-pin-cpu-grads no-pin-cpu-params high-priority-stream-groups "
       "enable-experimental train-sync-interval no-mmap-bin-files num-dataset-builder-threads object-storage-cache-path data-cache-path "
       "mid-level-dataset-surplus num-workers legacy-tokenizer tokenizer-hf-use-fast disable-msc finalize-model-grads-func grad-scale-func "
       "no-sync-func grad-sync-func param-sync-func environment.* built.*", "how the process runs, not what it computes"),
    IS("use-mcore-models onnx-safe moe-extended-tp no-async-tensor-model-parallel-allreduce async-tensor-model-parallel-allreduce", "old, and without effect there too"),
    IS("deterministic-mode batch-invariant-mode", "a layout gives the same bits every time"),
    IS("test-type metrics launcher", "of Megatron's own tests"),
    IS("yaml-cfg config-file", "convert that file"),
    IS("check-weight-hash-across-dp-replicas-interval", "`gradwright verify` compares replicas"),
    IS("cache-mla-latents inference-rng-tracker moe-pad-experts-for-cuda-graph-inference", "of inference"),

    /* checkpoints */
    NO("save-wgrads-interval save-dgrads-interval", NULL, "gradients are not saved", NULL),
    IS("save-tokenizer-assets no-save-tokenizer-assets", "a run's folder holds its tokenizer"),
    IS("ckpt-fully-parallel-load-* ckpt-fully-parallel-save-* strict-fsdp-dtensor-load dist-ckpt-workers use-dist-ckpt-deprecated", "checkpoints have one format, whole and free of the layout"),
    NO("save-retain-interval", NULL, "the last ones are kept", "--set checkpoint.keep_last=N"),
    OFF("no-save-optim no-save-rng", "checkpoints are whole", "`gradwright export` writes the model alone"),
    NO("pretrained-checkpoint", NULL, "weights come from model.path", "--model DIR of a Hugging Face model"),
    NO("ckpt-step", NULL, "--resume goes on from the latest", NULL),
    NO("ckpt-convert-format ckpt-convert-save", NULL, "checkpoints have one format", "`gradwright export`"),
    NO("non-persistent-*", NULL, "there is one kind of checkpoint", "--set checkpoint.every=N"),
    IS("exit-on-missing-checkpoint", "--resume without a checkpoint is refused"),
    IS("load-main-params-from-ckpt no-strict-fsdp-dtensor-load no-use-tokenizer-model-from-checkpoint-args use-dist-ckpt use-persistent-ckpt-worker "
       "auto-detect-ckpt-format dist-ckpt-format ckpt-format ckpt-convert-update-legacy-dist-opt-format ckpt-fully-parallel-save "
       "no-ckpt-fully-parallel-save async-save ckpt-fully-parallel-load ckpt-assume-constant-structure dist-ckpt-strictness "
       "dist-ckpt-save-pre-mcore-014 dist-ckpt-optim-fully-reshardable distrib-optim-fully-reshardable-mem-efficient", "checkpoints have one format, whole and free of the layout"),

    /* data */
    NO("test-data-path", NULL, "a run has training and held-out data", NULL),
    NO("data-args-path per-split-data-args-path", NULL, "one prefix of token files is read", PREFIX1),
    OFF("fim-data", NOT_BUILT, NULL),
    NO("fim-*", NULL, "it belongs to fim-data", NULL),
    OFF("use-varlen-dataset hf-dataset", "data are token files", PREFIX1),
    NO("varlen-* sequence-packing-scheduler pad-packed-seq-alignment max-seqlen-per-dp-cp-rank thd-max-packed-sequences packing-buffer-size", NULL,
       "sequences have one length: documents are packed into them (data.pack)", NULL),
    NO("per-dataset-sequences-path", NULL, "one prefix of token files is read", PREFIX1),
    IS("dataloader-fast-cache-load dataloader-defer-npy-index-mmap", "how data are read, not which"),
    IS("tokenizer-library tokenizer-special-tokens", "the tokenizer's own files say it"),
    OFF("mock-data", "data are token files", "`gradwright plan` needs none"),
    NO("sample-rate", "1", NOT_BUILT, NULL),
    OFF("allow-ambiguous-pad-tokens multiple-validation-sets", NOT_BUILT, NULL),
    NO("dataloader-type", "single|cyclic", "the loader is this one", NULL),
    IS("tokenizer-metadata tiktoken-pattern tiktoken-num-special-tokens tiktoken-special-tokens", "the tokenizer's own files say it"),
    IS("trust-remote-code", "no code of others is run"),

    /* logs and care */
    IS("tensorboard-dir config-logger-dir", "--out names the run's folder"),
    IS("logging-level", "--quiet and --verbose"),
    IS("log-throughput-to-tensorboard throughput-window-size memory-keys log-memory-interval log-l2-norm-grad-to-tensorboard "
       "log-max-attention-logit log-runtime-to-tensorboard runtime-time-unit filter-warnings modules-to-filter set-level-for-all-loggers "
       "save-config-filepath", "metrics.jsonl and tb/ hold every figure of a step, config.yaml the run file"),
    IS("log-params-norm log-num-zeros-in-grad log-throughput log-progress timing-log-level log-energy no-barrier-with-level-1-timing "
       "barrier-with-l1-time timing-log-option tensorboard-log-interval tensorboard-queue-size log-timers-to-tensorboard "
       "log-batch-size-to-tensorboard no-log-learnig-rate-to-tensorboard no-log-learning-rate-to-tensorboard no-log-loss-scale-to-tensorboard "
       "log-loss-scale-to-tensorboard log-validation-ppl-to-tensorboard log-memory-to-tensorboard log-world-size-to-tensorboard "
       "log-device-memory-used log-straggler disable-straggler-on-startup straggler-ctrlr-port straggler-minmax-count moe-per-layer-logging "
       "dump-param-to-param-group-map check-for-spiky-loss check-for-large-grads result-rejected-tracker-filename timers",
       "metrics.jsonl and tb/ hold every figure of a step"),
    IS("profile profile-step-start profile-step-end profile-ranks use-pytorch-profiler nvtx-ranges", "every run leaves a trace"),
    IS("wandb-project wandb-entity wandb-exp-name wandb-save-dir no-one-logger enable-one-logger one-logger-project one-logger-run-name "
       "one-logger-async app-tag-run-name app-tag-run-version", "no service is reported to"),
    IS("no-check-for-nan-in-loss-and-grad check-for-nan-in-loss-and-grad rerun-mode", "a step that is not finite is never taken, and replayed"),
    NO("error-injection-rate", "0", NOT_BUILT, NULL),
    IS("error-injection-type adlr-autoresume-interval", "it belongs to a key that is off or refused"),
    OFF("adlr-autoresume enable-ft-package calc-ft-timeouts run-workload-inspector-server inprocess-restart", NOT_BUILT, "--resume goes on from the latest checkpoint"),
    NO("inprocess-*", NULL, "it belongs to inprocess-restart", NULL),

    /* other models, other work */
    NO("retro-* ict-* biencoder-* bert-load titles-data-path query-in-block-prob use-one-sent-docs evidence-data-path retriever-* "
       "block-data-path embedding-path indexer-* num-classes img-h img-w num-channels patch-dim classes-fraction data-per-class-fraction "
       "no-data-sharding head-lr-mult vision-* swin-* mask-type mask-factor iter-per-epoch dino-* output-bert-embeddings bert-embedder-type",
       NULL, NOT_TEXT, NULL),
    NO("mamba-* hybrid-* heterogeneous-*", "0", "layers are all alike, attention and a feed-forward layer", NULL),
    OFF("is-hybrid-model disable-mamba-mem-eff-path sft perform-rl-step", NOT_BUILT, NULL),
    NO("sft-* rl-* grpo-* langrl-*", NULL, NOT_BUILT, NULL),
    NO("inference-* max-tokens-to-oom flash-decode decode-only-cuda-graphs symmetric-ar-type nccl-all-reduce-for-prefill mlp-chunks-for-prefill "
       "disable-chunked-prefill", NULL, "of inference", NULL),
};
// clang-format on
#endif

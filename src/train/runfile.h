// SPDX-License-Identifier: Apache-2.0
// The run file: everything a run is, as a plain struct, with the place in the file of each value.
//
// One table (runfile.def) gives each key its C field, type, default, unit, range and meaning; the
// parser, `gradwright config`, the JSON Schema, docs/keys.md and the shell completions are readers
// of that table. A key's path is its C field: "train.micro_batch" is rf->train.micro_batch.
//
// After gw_runfile_load every field holds its given, default or derived value, and every fault that
// the file alone shows has been reported. What needs the tokenizer is settled by
// gw_runfile_resolve.
#ifndef GW_TRAIN_RUNFILE_H
#define GW_TRAIN_RUNFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"  /* gw_arena */
#include "base/diag.h"   /* gw_status, gw_diags, gw_where */
#include "base/str.h"    /* gw_str */
#include "comm/comm.h"   /* gw_wire */
#include "ir/graph.h"    /* gw_mem */
#include "model/model.h" /* gw_model */

typedef enum gw_rf_source { GW_RF_FAMILY, GW_RF_PRESET, GW_RF_PATH } gw_rf_source;
typedef enum gw_rf_family {
    GW_RF_GPT2,
    GW_RF_LLAMA,
    GW_RF_QWEN2,
    GW_RF_QWEN3,
    GW_RF_MISTRAL,
    GW_RF_MIXTRAL,
    GW_RF_QWEN3_MOE,
    GW_RF_DEEPSEEK,
    GW_RF_RESNET18, /* from here on: nets for images, in the order of gw_model_net_name */
    GW_RF_RESNET34,
    GW_RF_RESNET50,
    GW_RF_RESNET101,
    GW_RF_RESNET152,
} gw_rf_family;
typedef enum gw_rf_rope {
    GW_RF_ROPE_NONE,
    GW_RF_ROPE_LINEAR,
    GW_RF_ROPE_LLAMA3,
    GW_RF_ROPE_YARN
} gw_rf_rope;
/* Numbered like gw_moe_score and gw_moe_balance. */
typedef enum gw_rf_score { GW_RF_SOFTMAX, GW_RF_SIGMOID } gw_rf_score;
typedef enum gw_rf_balance {
    GW_RF_BALANCE_NONE,
    GW_RF_BALANCE_SEQUENCE,
    GW_RF_BALANCE_BATCH,
    GW_RF_BALANCE_BIAS
} gw_rf_balance;
typedef enum gw_rf_drop { GW_RF_DROP_POSITION, GW_RF_DROP_SCORE } gw_rf_drop;
typedef enum gw_rf_batchnorm { GW_RF_BATCHNORM_LOCAL, GW_RF_BATCHNORM_SYNC } gw_rf_batchnorm;
typedef enum gw_rf_optimizer { GW_RF_ADAMW, GW_RF_SGD, GW_RF_MUON } gw_rf_optimizer;
typedef enum gw_rf_schedule {
    GW_RF_CONSTANT,
    GW_RF_LINEAR,
    GW_RF_COSINE,
    GW_RF_WSD,
} gw_rf_schedule;
typedef enum gw_rf_compute { GW_RF_FP32, GW_RF_BF16, GW_RF_FP16 } gw_rf_compute;
/* How a value is kept: in float32, in precision.compute, or not at all. */
typedef enum gw_rf_store { GW_RF_STORE_FLOAT32, GW_RF_STORE_COMPUTE, GW_RF_STORE_NONE } gw_rf_store;
/* In what linear layers multiply. */
typedef enum gw_rf_products {
    GW_RF_PRODUCTS_COMPUTE, /* in precision.compute */
    GW_RF_PRODUCTS_FP8,
    GW_RF_PRODUCTS_FP8_POW2, /* with scales that are powers of two */
} gw_rf_products;
typedef enum gw_rf_reshard {
    GW_RF_RESHARD_AUTO,
    GW_RF_RESHARD_TRUE,
    GW_RF_RESHARD_FALSE
} gw_rf_reshard;
typedef enum gw_rf_norm { GW_RF_NORM_EXACT, GW_RF_NORM_DEFERRED } gw_rf_norm;
typedef enum gw_rf_reduce { GW_RF_REDUCE_AUTO, GW_RF_REDUCE_LAST, GW_RF_REDUCE_EACH } gw_rf_reduce;
typedef enum gw_rf_recompute {
    GW_RF_RECOMPUTE_NONE,
    GW_RF_RECOMPUTE_SELECTIVE,
    GW_RF_RECOMPUTE_FULL,
    GW_RF_RECOMPUTE_OPS,
    GW_RF_RECOMPUTE_BUDGET,
} gw_rf_recompute;

/* Numbered as gw_cp_mode (pass/pass.h). */
typedef enum gw_rf_cp_mode {
    GW_RF_CP_RING,
    GW_RF_CP_ULYSSES,
    GW_RF_CP_HYBRID,
    GW_RF_CP_ALLGATHER
} gw_rf_cp_mode;

typedef struct gw_rf_strings {
    const char *const *items;
    int64_t count;
} gw_rf_strings;
typedef struct gw_rf_counts {
    const int64_t *items;
    int64_t count; /* 0: auto */
} gw_rf_counts;
typedef struct gw_rf_entry {
    const char *name, *value;
} gw_rf_entry;
typedef struct gw_rf_map {
    const gw_rf_entry *items; /* in the order given */
    int64_t count;
} gw_rf_map;
typedef struct gw_rf_pair {
    double a, b;
} gw_rf_pair;

/* The sources of training data, and stages that change their weights (runfile_mixture.c). */
typedef struct gw_rf_mixture_item {
    const char *path;
    double weight;
    int64_t epochs; /* 0: as many as it takes */
} gw_rf_mixture_item;
typedef struct gw_rf_mixture {
    const gw_rf_mixture_item *items;
    int64_t count; /* 0: not given */
} gw_rf_mixture;
typedef struct gw_rf_stage {
    int64_t tokens; /* 0: the last one, to the end */
    const double *weights;
    int64_t nweights;
} gw_rf_stage;
typedef struct gw_rf_stages {
    const gw_rf_stage *items;
    int64_t count; /* 0: not given */
} gw_rf_stages;
typedef enum gw_rf_mix { GW_RF_MIX_EXACT, GW_RF_MIX_MEGATRON } gw_rf_mix;
typedef enum gw_rf_packing { GW_RF_PACKING_CONTIGUOUS, GW_RF_PACKING_BEST_FIT } gw_rf_packing;
typedef enum gw_rf_shuffle {
    GW_RF_SHUFFLE_AUTO,
    GW_RF_SHUFFLE_DOCUMENTS,
    GW_RF_SHUFFLE_BLOCKS,
    GW_RF_SHUFFLE_NONE
} gw_rf_shuffle;

/* model: exactly one of family, preset, path (`source` says which). With a family or a preset the
 * fields below hold the whole model: a preset's dimensions fill what was not given. With a path
 * none of the dimensions may be set, and their fields mean nothing. */
typedef struct gw_rf_model {
    gw_rf_source source; /* not a key: which of the next three was given */
    gw_rf_family family; /* given, or the preset's; language models are numbered like gw_family */
    const char *preset;  /* or NULL */
    const char *path;    /* Hugging Face directory or .gguf file, or NULL */
    bool load_weights;   /* with path: start from its weights, not only its shape */
    int64_t layers, hidden, heads;
    int64_t kv_heads; /* = heads unless given */
    int64_t head_dim; /* = hidden / heads unless given */
    int64_t ffn;
    int64_t vocab; /* 0 = auto: the tokenizer's size, set by gw_runfile_resolve */
    int64_t max_positions;
    double norm_eps;
    double rope_theta;
    struct {
        gw_rf_rope type;
        double factor, low_freq_factor, high_freq_factor;
        int64_t original_max_positions;
        double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn */
    } rope_scaling;
    bool tie_embeddings;
    int64_t sliding_window; /* tokens; 0 = none */
    bool attention_bias, mlp_bias;
    double dropout;
    double init_std;
    /* Experts: of a family that has them. With a path the last six are read where they are given.
     */
    struct {
        int64_t experts, top, ffn, shared, dense_layers;
        gw_rf_score score;
        bool normalize;
        double scale;
        int64_t groups, group_limit;
        gw_rf_balance balance;
        double balance_weight, z_weight, bias_rate, capacity;
        gw_rf_drop drop;
    } moe;
    struct {
        int64_t q_rank, kv_rank, nope, rope, v;
    } mla; /* of deepseek */
    /* Nets for images read norm_eps and what follows, and none of the above. */
    int64_t classes;
    int64_t image; /* height and width */
    int64_t channels, width;
    gw_rf_batchnorm batchnorm;
    bool broadcast_buffers;
} gw_rf_model;

typedef struct gw_rf_data {
    gw_rf_mixture train;   /* a set or several (train/dataset.h); of images one prefix
                              (train/feed.h) */
    const char *valid;     /* one, or NULL */
    const char *tokenizer; /* a path, or "bytes"; NULL = model.path's own */
    bool pack;
    bool mask_first_label;
    int64_t prefetch_steps;
    gw_rf_stages stages;
    gw_rf_mix mix;
    gw_rf_packing packing;
    gw_rf_shuffle shuffle;
    int64_t window;     /* blocks */
    int64_t block;      /* tokens */
    const char *column; /* or NULL */
    bool verify;
    const char *cache;   /* a folder, or NULL */
    int64_t cache_bytes; /* 0: no limit */
} gw_rf_data;

typedef struct gw_rf_train {
    int64_t steps;
    int64_t micro_batch;  /* sequences, or images, per forward pass of a rank */
    int64_t accumulate;   /* micro-batches per step of a rank */
    int64_t global_batch; /* = micro_batch x accumulate x dp, always consistent after load */
    int64_t seq_len;      /* 1 for images */
    int64_t seed;
    int64_t threads;       /* 0 = auto: the cores this process may use */
    int64_t log_every;     /* steps */
    int64_t valid_every;   /* steps; 0 = only at the end */
    int64_t valid_batches; /* micro-batches per validation; 0 = the whole set */
} gw_rf_train;

typedef struct gw_rf_optim {
    gw_rf_optimizer name;
    double lr;
    gw_rf_pair betas;
    double eps, weight_decay, momentum;
    bool nesterov;
    double clip_norm; /* 0 = off */
    gw_rf_schedule schedule;
    int64_t warmup_steps, decay_steps;
    double min_lr_ratio;
    double muon_lr, muon_momentum;
    int64_t muon_ns_steps;
    gw_rf_norm norm;
} gw_rf_optim;

typedef struct gw_rf_precision {
    gw_rf_compute compute;
    gw_rf_products products;
    gw_rf_store gradients; /* FLOAT32 or COMPUTE */
    gw_rf_store master;    /* FLOAT32 or NONE; with fp32 compute the weights are their own master */
    gw_rf_store moments;   /* FLOAT32 or COMPUTE */
    bool stochastic_rounding;
    double loss_scale; /* 0 = dynamic; only fp16 */
    double loss_scale_init;
    int64_t loss_scale_window; /* good steps before a dynamic scale doubles */
} gw_rf_precision;

/* Ranks are pp x dp x cp x tp. */
typedef struct gw_rf_layout {
    int64_t pp;
    int64_t virtual_stages; /* of a rank; 1 with pp 1 */
    const char *schedule;   /* a name of sched/schedules.def, or "file:PATH"; NULL with pp 1 */
    gw_rf_counts stages;    /* layers of each; none: balanced by cost */
    int64_t message_places;
    double schedule_memory; /* micro-batches; 0 = auto */
    int64_t dp;             /* at least 1 after load */
    int64_t tp, cp;
    bool sequence_parallel; /* with tp > 1 */
    int64_t tp_chunks;      /* with sequence_parallel */
    gw_rf_cp_mode cp_mode;
    int64_t cp_ulysses;   /* with cp_mode hybrid; otherwise 0 */
    int64_t ep;           /* a divisor of the ranks */
    double moe_buffer;    /* mean loads */
    gw_rf_map shard;      /* patterns of parameter names -> dimensions, or "none" */
    int64_t zero;         /* 0 .. 3 */
    int64_t dp_replicate; /* divides dp */
    gw_rf_reshard reshard_after_forward;
    gw_rf_reduce reduce;
    int64_t bucket, first_bucket; /* bytes; 0 = one by one */
    int64_t prefetch;             /* layers */
    int64_t secondary_shard;      /* ranks; 0 = none */
    gw_wire weight_wire, gradient_wire;
    const char *collectives; /* "auto", or the name of an algorithm */
    const char *calibration; /* a file, or NULL */
    double timeout;          /* seconds; 0 = auto */
} gw_rf_layout;

/* Where values lie between their uses. */
typedef struct gw_rf_offload {
    gw_mem optimizer, master, parameters;
    const char *dir; /* for the file of what is on disk */
} gw_rf_offload;

typedef struct gw_rf_recompute_section {
    gw_rf_recompute policy;
    gw_rf_strings ops; /* op names, with policy `ops` */
    int64_t budget;    /* bytes of the arena, with policy `budget` */
} gw_rf_recompute_section;

typedef enum gw_rf_busy { GW_RF_BUSY_WAIT, GW_RF_BUSY_SKIP } gw_rf_busy;
typedef enum gw_rf_replicas { GW_RF_TRUST, GW_RF_CHECK, GW_RF_CHECK_ALL } gw_rf_replicas;

typedef struct gw_rf_checkpoint {
    int64_t every;      /* steps; 0 = only at the end */
    int64_t keep_last;  /* 0 = keep all */
    int64_t keep_every; /* steps; 0 = none of the older ones */
    bool async;
    gw_rf_busy when_busy;
    int64_t buffer;     /* bytes of a rank; 0 = all that it writes */
    int64_t write_rate; /* bytes/s of a rank; 0 = no limit */
    bool references, probe;
    gw_rf_replicas replicas;
    const char *dir; /* or NULL: the run directory */
} gw_rf_checkpoint;

typedef struct gw_runfile {
    gw_rf_model model;
    gw_rf_data data;
    gw_rf_train train;
    gw_rf_optim optimizer;
    gw_rf_precision precision;
    gw_rf_layout layout;
    gw_rf_offload offload;
    gw_rf_recompute_section recompute;
    gw_rf_checkpoint checkpoint;

    gw_arena arena;           /* owns every string above */
    const char *file;         /* as named in diagnostics */
    bool dp_auto;             /* layout.dp was not given, or given as auto */
    int64_t ranks;            /* as told by gw_runfile_set_ranks; 0 = not yet */
    struct gw_rf_mark *marks; /* one per key: was it set, and where */
} gw_runfile;

/* Reads a run file ("-": standard input) and `--set` overrides ("train.steps=10": the value is
 * YAML). Reports all faults, each with its place, then fails with GW_ERR_CONFIG (GW_ERR_IO when the
 * file cannot be read). rf need not be initialised; release it also after a failure. */
GW_WARN_UNUSED gw_status gw_runfile_load(gw_runfile *rf, const char *path, const char *const *sets,
                                         int nsets, gw_diags *dg);
/* The same from text in memory; `name` stands for the file in diagnostics. */
GW_WARN_UNUSED gw_status gw_runfile_parse(gw_runfile *rf, const char *name, const char *text,
                                          int64_t len, const char *const *sets, int nsets,
                                          gw_diags *dg);
/* The same two for `ranks` ranks, if that is above 0: as with gw_runfile_set_ranks called before
 * anything that hangs on their number is derived and checked. */
GW_WARN_UNUSED gw_status gw_runfile_load_for(gw_runfile *rf, const char *path,
                                             const char *const *sets, int nsets, int64_t ranks,
                                             gw_diags *dg);
GW_WARN_UNUSED gw_status gw_runfile_parse_for(gw_runfile *rf, const char *name, const char *text,
                                              int64_t len, const char *const *sets, int nsets,
                                              int64_t ranks, gw_diags *dg);
void gw_runfile_release(gw_runfile *rf);

/* Tells a loaded run file how many ranks there are: layout.dp auto becomes that / (pp x tp x cp), a
 * given one must make it up with these, and what hangs on it (batch, replicas) is derived and
 * checked anew. Until this is called auto is what makes the batch add up, or 1. */
GW_WARN_UNUSED gw_status gw_runfile_set_ranks(gw_runfile *rf, int64_t ranks, gw_diags *dg);

/* On one rank: appends the layout keys that were given and change nothing there ("layout.zero,
 * layout.bucket"), so that a run file made for several can say so. Nothing on several. */
void gw_runfile_idle_keys(const gw_runfile *rf, gw_str *out);
/* The same as one line of the log, when there are such keys. */
void gw_runfile_note_idle(const gw_runfile *rf);

/* Appends what of the layout is beside data parallelism, a comma before each: ", pp 2 (1f1b), tp 2,
 * cp 4 (ring)". */
void gw_runfile_describe_cuts(const gw_runfile *rf, gw_str *out);
/* The ranks that the layout takes: pp x dp x cp x tp. */
int64_t gw_runfile_ranks(const gw_runfile *rf);
/* Ranks with one coordinate on pp: dp x cp x tp. */
int64_t gw_runfile_stage_ranks(const gw_runfile *rf);
/* The path of a schedule given as a file; NULL where it has a name. */
const char *gw_runfile_schedule_file(const gw_runfile *rf);
/* Length of sequences in programs: train.seq_len, rounded up to where its cuts are even. */
int64_t gw_runfile_padded_seq(const gw_runfile *rf);
/* What of the layout hangs on the model: refuses every contradiction, each with a fix. Called by
 * the parser where the run file alone gives the model, and by gw_setup_ranks. */
GW_WARN_UNUSED gw_status gw_runfile_check_placement(const gw_runfile *rf, const gw_model *m,
                                                    gw_diags *dg);

/* Is the model a net for images? */
bool gw_runfile_has_images(const gw_runfile *rf);

/* Settles what needs the tokenizer: model.vocab `auto` becomes `tokenizer_vocab`; a model.vocab
 * smaller than it is refused at its line. tokenizer_vocab 0 = unknown (auto stays 0). */
GW_WARN_UNUSED gw_status gw_runfile_resolve(gw_runfile *rf, int64_t tokenizer_vocab, gw_diags *dg);
/* Only the refusal: a given model.vocab must hold the tokenizer's ids. */
GW_WARN_UNUSED gw_status gw_runfile_check_vocab(const gw_runfile *rf, int64_t tokenizer_vocab,
                                                gw_diags *dg);

/* Was the key ("train.accumulate") given in the file or by --set? Unknown names panic. */
bool gw_runfile_is_set(const gw_runfile *rf, const char *key);
/* Where the key's value stands: file, line, column; for an override the file is
 * "--set train.accumulate=4"; for a key not given, its section's place or just the file. */
gw_where gw_runfile_where(const gw_runfile *rf, const char *key);
/* Adds a GW_ERR_CONFIG error at the key's place and returns it (for detail and hint). */
gw_diag *gw_runfile_error(const gw_runfile *rf, gw_diags *dg, const char *key, const char *id,
                          const char *fmt, ...) GW_PRINTF(5, 6);
/* Fails with "data.train is needed by `gradwright train`" when the key was not given. */
GW_WARN_UNUSED gw_status gw_runfile_require(const gw_runfile *rf, const char *key,
                                            const char *command, gw_diags *dg);

/* A path that is neither a URL, nor a directory with an index.json, nor the prefix of PREFIX.bin
 * and PREFIX.idx is a fault of the key: GW_ERR_CONFIG at its place. A prefix may end in ".bin" or
 * ".idx". */
GW_WARN_UNUSED gw_status gw_runfile_check_prefix(const gw_runfile *rf, const char *key,
                                                 const char *prefix, gw_diags *dg);

/* The name of an enumerated key's present value: gw_runfile_word(rf, "optimizer.schedule") is
 * "cosine". Panics for a key that is not enumerated. */
const char *gw_runfile_word(const gw_runfile *rf, const char *key);

/* Appends the run file as it stands, every key in the table's order, re-readable by
 * gw_runfile_load. With `comments` each key has its unit and meaning, and keys without effect in
 * this configuration appear as comments; otherwise they are left out. While the ranks are not
 * known, a layout.dp that is auto stays that, and what is derived from it is left out. */
void gw_runfile_yaml(const gw_runfile *rf, bool comments, gw_str *out);
/* The same as one JSON object of sections; keys without effect are left out. */
void gw_runfile_json(const gw_runfile *rf, gw_str *out);

/* References generated from the table. */
void gw_runfile_schema(gw_str *out);  /* JSON Schema, draft 2020-12 */
void gw_runfile_keys_md(gw_str *out); /* docs/keys.md */

/* The table for shells and tests: key names in order; count in *n. Borrowed for ever. */
const char *const *gw_runfile_keys(int *n);
/* Appends the values that completion can offer for a key, space-separated: those of an enumerated
 * or boolean key, the word of one like "auto"; nothing for others. */
void gw_runfile_key_words(const char *key, gw_str *out);
/* Names that other trainers use: *name and the key here (*key), i from 0; false past the end. */
bool gw_runfile_alias(int i, const char **name, const char **key);

#endif

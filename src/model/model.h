// SPDX-License-Identifier: Apache-2.0
// Model families built from ops, their presets and their parameters.
//
// A model is dimensions and switches; gw_model_build turns it into a forward graph of one
// micro-batch in global shapes. Nothing here knows a rank, a precision policy or an optimizer.
#ifndef GW_MODEL_MODEL_H
#define GW_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "ir/opdef.h"   /* gw_graph, gw_type */

enum { GW_MODEL_MAX_LAYERS = 1024 };

typedef enum gw_family {
    GW_FAMILY_GPT2,      /* LayerNorm, learned positions, biases, GELU, tied head */
    GW_FAMILY_LLAMA,     /* RMSNorm, rope, grouped heads, SwiGLU */
    GW_FAMILY_QWEN2,     /* llama with biases on q, k, v */
    GW_FAMILY_QWEN3,     /* llama with norms on q and k, explicit head size */
    GW_FAMILY_MISTRAL,   /* llama with a sliding window */
    GW_FAMILY_MIXTRAL,   /* mistral with experts */
    GW_FAMILY_QWEN3_MOE, /* qwen3 with experts */
    GW_FAMILY_DEEPSEEK,  /* latent attention, first layers dense, shared experts (V2, V3) */
    GW_FAMILY_COUNT,     /* of the families of language models, whose builder is model/build.c */
    GW_FAMILY_RESNET = GW_FAMILY_COUNT, /* images, classes: He et al. 2015, model/resnet.c */
} gw_family;

/* What a residual net is, beside norm_eps. torchvision's resnet18 is blocks 2 2 2 2, its resnet50 3
 * 4 6 3 with bottlenecks, both of width 64. */
typedef struct gw_resnet {
    int64_t blocks[4]; /* residual blocks of each stage; a stage halves the image, doubles width */
    bool bottleneck;   /* blocks of 1x1, 3x3, 1x1 filters, four times as wide outside as inside */
    int64_t width;     /* channels of the stem and inside the first stage's blocks */
    int64_t image;     /* height and width of an image */
    int64_t channels;  /* of an image */
    int64_t classes;
    double momentum; /* of running statistics */
    int64_t groups;  /* parts of a micro-batch with batch statistics of their own: 1 is one for all
                        (SyncBatchNorm), the degree of data parallelism is one a rank */
    bool broadcast_buffers; /* with groups: running statistics are the first group's, as DDP keeps
                               them; false: each group keeps its own */
} gw_resnet;

typedef enum gw_moe_score { GW_MOE_SOFTMAX, GW_MOE_SIGMOID } gw_moe_score;

/* What keeps the load of experts even. */
typedef enum gw_moe_balance {
    GW_MOE_BALANCE_NONE,
    GW_MOE_BALANCE_SEQUENCE, /* an auxiliary loss of each sequence */
    GW_MOE_BALANCE_BATCH,    /* an auxiliary loss of each global micro-batch */
    GW_MOE_BALANCE_BIAS,     /* a bias on scores, for the choice alone, moves against the load; a
                                balance_weight above 0 adds the loss of each sequence */
} gw_moe_balance;

/* Feed-forward layers of experts. experts == 0: the model has none. */
typedef struct gw_moe {
    int64_t experts, top; /* of these, how many a token goes to */
    int64_t ffn;          /* of one expert */
    int64_t shared;       /* experts that every token goes to, as one of shared * ffn; 0: none */
    int64_t dense_layers; /* first layers with a dense feed-forward of size ffn of the model */
    gw_moe_score score;
    bool normalize; /* gates of the chosen ones sum to 1 */
    double scale;   /* what gates are multiplied by at last */
    int64_t groups,
        group_limit;  /* experts in so many groups, chosen from the best group_limit; 1, 1. A group
                         is  judged by its best expert (softmax) or its best two (sigmoid) */
    bool choice_bias; /* a score bias for the choice (a buffer, no parameter of the optimizer) */
    gw_moe_balance balance;
    double balance_weight; /* of the auxiliary loss */
    double z_weight;       /* of the mean squared log-sum-exp of router logits */
    double bias_rate;      /* of GW_MOE_BALANCE_BIAS: what a step adds or takes */
    double capacity;       /* room of an expert in mean loads of a sequence's tokens; 0: dropless */
    bool drop_by_score; /* capacity: the least scores are dropped; false: the last in token order */
    /* For comparing runs, of training programs. `records`: micro-batches whose logits are filed in
     * the states "moe.logits.L" f32[m b s n] of layer L (0: none), and whose choices in "moe.ids.L"
     * i32[m b s t]; the input at mb rate `micro` i64[] says which it is. `replay`: choices are not
     * made but given, in the inputs "moe.choices.L" i32[b s t], and so not filed. Where drops go by
     * score, likewise the gates that order them: "moe.gates.L" f32[m b s t], "moe.order.L". */
    int64_t records;
    bool replay;
} gw_moe;

/* Multi-head latent attention (DeepSeek-V2). kv_rank == 0: the model has none. A head's q and k are
 * `nope` components without and `rope` with rotation (k's rotated part is one for all heads), its v
 * has `v`. */
typedef struct gw_mla {
    int64_t q_rank, kv_rank; /* q_rank 0: q is projected at once */
    int64_t nope, rope, v;
} gw_mla;

typedef enum gw_rope_scaling {
    GW_ROPE_NONE,
    GW_ROPE_LINEAR,
    GW_ROPE_LLAMA3,
    GW_ROPE_YARN
} gw_rope_scaling;

typedef struct gw_model {
    gw_family family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int64_t
        max_positions; /* gpt2: rows of the position table; others: what the model was made for */
    double norm_eps;
    double rope_theta;
    gw_rope_scaling rope_scaling;
    double rope_factor, rope_low,
        rope_high; /* Llama 3.1: factor, low_freq_factor, high_freq_factor; yarn: factor, beta_slow,
                      beta_fast */
    int64_t rope_original;               /* original_max_position_embeddings */
    double rope_mscale, rope_mscale_all; /* yarn: mscale, mscale_all_dim; 0: not given */
    bool tie;                            /* the head is the embedding */
    bool qkv_bias, out_bias, mlp_bias, qk_norm;
    bool gelu_tanh; /* gpt2: tanh form (gelu_new) or exact */
    int64_t window; /* 0 = none: tokens a windowed layer sees, itself included */
    bool windowed[GW_MODEL_MAX_LAYERS];
    double dropout;  /* gpt2: after the embeddings and on both residual branches */
    double init_std; /* of matrices; output projections get init_std / sqrt(2 layers) */
    gw_moe moe;
    gw_mla mla;
    gw_resnet resnet; /* of GW_FAMILY_RESNET, which reads norm_eps and this alone */
} gw_model;

const char *gw_family_name(gw_family f);
bool gw_family_parse(const char *name, gw_family *out);
/* The family's switches and usual constants, sizes 0. */
gw_model gw_model_defaults(gw_family f);
/* Sets all sizes; false if no preset has this name. Preset i's name, NULL past the end: of language
 * models, and of nets for images. */
bool gw_model_preset(const char *name, gw_model *out);
const char *gw_model_preset_name(int i);
const char *gw_model_net_name(int i);
/* Every contradiction in the dimensions, with the key names of a run file. What passes has
 * parameters that can be listed and counted: the functions below take nothing else. */
GW_WARN_UNUSED gw_status gw_model_check(const gw_model *m, gw_diags *dg);

/* ---- parameters ---- */
typedef enum gw_init {
    GW_INIT_NORMAL, /* of standard deviation std */
    GW_INIT_ONES,
    GW_INIT_ZEROS,
    GW_INIT_UNIFORM, /* in [-std, std) */
} gw_init;

/* Rows of a public tensor that are a logical tensor's: block t of `block` rows stands from row t *
 * stride + first on. The last `pairs` rows of a block, turned by rope, are interleaved in the file:
 * ours is the half-split order. */
typedef struct gw_hf_rows {
    int64_t whole; /* rows of the public tensor */
    int64_t block, stride, first, pairs;
} gw_hf_rows;

/* One logical tensor and where it stands in a public checkpoint. */
typedef struct gw_param {
    const char *name; /* "layers.0.attn.q.weight": stable, the key of checkpoints and of the RNG */
    gw_type type;     /* f32; weights are [out dims.., in dims..] */
    gw_init init;
    double std;
    bool decay, hidden;
    int rows;           /* leading dims that are the output side of a matrix */
    const char *hf;     /* name in a Hugging Face file */
    bool hf_transposed; /* stored there as [in, out] (GPT-2's Conv1D) */
    int hf_part,
        hf_parts; /* a slice of a fused tensor: part i of n along the output side; 0 of 1 = whole */
    gw_hf_rows hf_rows; /* a slice that hf_parts cannot say; .whole 0: not one */
    bool hf_each;   /* [e ..]: the file has a tensor for each e, its number where `hf` has a star */
    bool rope_rows; /* q or k of a family whose GGUF form interleaves the rows of a head */
    const char *gguf; /* name in a GGUF file */
} gw_param;

/* All parameters in canonical order (the order of the graph's leaves). */
void gw_model_params(const gw_model *m, gw_arena *a, gw_param **out, int *n);
int64_t gw_model_count(const gw_model *m); /* parameters */
/* Of these, what one token goes through: of the experts of a layer its `top`. */
int64_t gw_model_count_active(const gw_model *m);
/* Elements of routers' choice biases, which published counts hold besides. */
int64_t gw_model_count_biases(const gw_model *m);

/* How a Hugging Face file has parameter p: as gw_param_hf_tensors(p) tensors, each with so many
 * rows (its output side; hf_transposed files have them as columns). */
int64_t gw_param_hf_tensors(const gw_param *p);
int64_t gw_param_hf_rows(const gw_param *p);
/* Rows of p in one of them, and row r of these in the file. */
int64_t gw_param_rows(const gw_param *p);
int64_t gw_param_hf_row(const gw_param *p, int64_t r);
/* Name of tensor i, in buf where it is one of several. */
enum { GW_HF_NAME = 160 };
const char *gw_param_hf_name(const gw_param *p, int64_t i, char buf[GW_HF_NAME]);

/* State that is no parameter and that an optimizer does not make: running statistics and counters
 * of batch norms. */
typedef struct gw_buffer {
    const char *name; /* torchvision's: "bn1.running_mean"; also the leaf's */
    gw_type type;     /* f32 [c] or [group c], or i64 of a counter */
    double init;      /* every element's first value */
    const char *hf;   /* of a language model: its name in a Hugging Face file, as float32; NULL: it
                         has no   place there */
} gw_buffer;
/* In the order of torchvision's state_dict; of a language model the routers' choice biases. A
 * training program carries all of them as states, a forward program has the statistics and biases
 * as leaves of role state. */
void gw_model_buffers(const gw_model *m, gw_arena *a, gw_buffer **out, int *n);
int64_t gw_model_count_embedding(
    const gw_model *m); /* of these, lookup tables that do no matrix work */
/* FLOPs of a training step per token (of a residual net, per image) by the usual formulas: 6N (+
 * attention: 6*L*h*s causal, 12*L*h*s full), N the active parameters without lookup tables, with
 * the head. */
double gw_model_flops_per_token(const gw_model *m, int64_t seq, bool full_attention);
/* Has layer l experts? */
bool gw_model_has_experts(const gw_model *m, int64_t l);
/* Does training add auxiliary losses of routers, so that a step's program has the input `aux_seed`?
 */
bool gw_model_has_aux_loss(const gw_model *m);
/* What attention scores are multiplied by; 0: 1/sqrt(k) of the head size. */
double gw_model_softmax_scale(const gw_model *m);
/* yarn: what cosines and sines are multiplied by; else 1. */
double gw_model_rope_gain(const gw_model *m);

/* ---- building ---- */
typedef enum gw_build_mode {
    GW_BUILD_LOSS,   /* tokens, labels -> "loss" (sum over valid labels) */
    GW_BUILD_LOGITS, /* tokens -> "logits" f32[b s v] */
    GW_BUILD_CACHED, /* tokens, positions, at, caches -> "logits" f32[b v] of row at[b]; caches
                        advance */
} gw_build_mode;

typedef struct gw_build_opts {
    gw_build_mode mode;
    int64_t batch, seq;
    int64_t cache; /* GW_BUILD_CACHED: rows of the KV cache */
    gw_dtype compute;
    uint64_t seed; /* of dropout */
    bool training; /* dropout is on */
    bool packed;   /* rows hold several documents: docs is an input of attention */
} gw_build_opts;

/* A residual net instead has the inputs `images` f32[b y x c] (channels last) and `labels` i32[b]
 * at mb rate and `seed` f32[], seq is not used, `training` chooses statistics of the batch (which
 * advance the running ones) over the running ones, logits are f32[b v], and there is no
 * GW_BUILD_CACHED.
 *
 * Refuses a model that gw_model_check refuses, and sizes of which a program's bytes could not be
 * counted in 64 bits, however it is compiled. Leaves made (absent ones are not in the graph), by
 * name: inputs at mb rate `tokens labels positions docs` i32[b s], `samples` i64[b], `at` i32[b];
 * at step rate `seed` f32[], `batch` i64[], and of a training step with auxiliary losses
 * `aux_seed` f32[]: loss scale / units, the units that such a loss is a mean of (the step's
 * sequences, or its global micro-batches). Parameters in canonical order with role param, dtype
 * compute. `g` must be initialised and empty. */
GW_WARN_UNUSED gw_status gw_model_build(gw_graph *g, const gw_model *m, const gw_build_opts *o,
                                        gw_diags *dg);

#endif

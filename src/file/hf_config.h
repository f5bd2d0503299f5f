// SPDX-License-Identifier: Apache-2.0
// A model's configuration as Hugging Face's config.json or a GGUF file tells it, as one plain
// struct.
#ifndef GW_FILE_HF_CONFIG_H
#define GW_FILE_HF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "file/gguf.h" /* gw_gguf */
#include "file/json.h" /* json_t */

enum { GW_HF_MAX_LAYERS = 1024, GW_HF_MAX_EOS = 16 };

typedef enum gw_hf_family {
    GW_HF_GPT2,
    GW_HF_LLAMA,
    GW_HF_QWEN2,
    GW_HF_QWEN3,
    GW_HF_MISTRAL,
    GW_HF_MIXTRAL,
    GW_HF_QWEN3_MOE,
    GW_HF_DEEPSEEK_V2,
    GW_HF_DEEPSEEK_V3
} gw_hf_family;

typedef enum gw_hf_act {
    GW_HF_SILU,
    GW_HF_GELU,      /* exact, by erf: "gelu" */
    GW_HF_GELU_TANH, /* "gelu_new", "gelu_pytorch_tanh", "gelu_fast" */
    GW_HF_RELU
} gw_hf_act;

typedef enum gw_hf_rope {
    GW_HF_ROPE_NONE,    /* gpt2: learned positions */
    GW_HF_ROPE_DEFAULT, /* theta alone */
    GW_HF_ROPE_LINEAR,  /* positions divided by rope_factor */
    GW_HF_ROPE_LLAMA3,  /* Llama 3.1: rope_factor, rope_low, rope_high, rope_original_max */
    GW_HF_ROPE_YARN /* the same four, low beta_slow and high beta_fast; mscale, mscale_all_dim */
} gw_hf_rope;

/* Experts; experts 0: none. */
typedef struct gw_hf_moe {
    int64_t experts, top, ffn; /* of these, how many a token goes to; size of one */
    int64_t shared;            /* experts that all tokens go to */
    int64_t dense_layers;      /* first layers without experts, of intermediate_size */
    int64_t groups, group_limit;
    bool sigmoid;      /* scores; false: softmax */
    bool normalize;    /* gates sum to 1 */
    double scale;      /* of gates */
    double aux_weight; /* of the auxiliary loss of balance */
} gw_hf_moe;

/* Latent attention; kv_rank 0: none, q_rank 0: q is projected at once. */
typedef struct gw_hf_latent {
    int64_t q_rank, kv_rank, nope, rope, v;
} gw_hf_latent;

typedef struct gw_hf_config {
    gw_hf_family family;
    char model_type[16]; /* "gpt2" "llama" "qwen2" "qwen3" "mistral" "mixtral" "qwen3_moe"
                            "deepseek_v2" "deepseek_v3" */

    int64_t vocab_size, hidden_size, intermediate_size;
    int64_t layers, heads, kv_heads, head_dim; /* head_dim resolved, never 0 */
    int64_t max_positions;

    gw_hf_act act;
    double norm_eps; /* LayerNorm for gpt2, RMSNorm for the rest */
    bool tie_word_embeddings;
    bool qkv_bias;           /* biases on q, k and v */
    bool attention_out_bias; /* a bias on the attention's output projection */
    bool mlp_bias;
    bool qk_norm; /* RMSNorm of each head of q and k (qwen3) */

    gw_hf_rope rope;
    double rope_theta;
    double rope_factor, rope_low, rope_high; /* 1 where the kind has no such number */
    int64_t rope_original_max;               /* 0 likewise */
    double rope_mscale, rope_mscale_all;     /* yarn; 0: not given */

    gw_hf_moe moe;
    gw_hf_latent latent; /* then head_dim is nope + rope */

    int64_t sliding_window;          /* tokens a windowed layer sees, itself included; -1 none */
    bool windowed[GW_HF_MAX_LAYERS]; /* which layers use it; all false when -1 */

    double embd_dropout, resid_dropout, attention_dropout;
    double initializer_range;
    int64_t bos_token_id, pad_token_id; /* -1 none */
    int64_t eos_token_id[GW_HF_MAX_EOS];
    int neos;
    char dtype[16]; /* "bfloat16", "float32", "float16" or "" when not said */
} gw_hf_config;

/* The defaults transformers has for a family (its smallest facts: eps, theta, tie, window ...),
 * with sizes 0. */
void gw_hf_config_defaults(gw_hf_config *c, gw_hf_family family);
bool gw_hf_family_parse(const char *model_type, gw_hf_family *out);
const char *gw_hf_family_name(gw_hf_family f);

/* Reads config.json at `path` (the file, or a directory holding it). Both spellings of rope
 * (rope_theta + rope_scaling; rope_parameters) and of dtype. Settings that would change what the
 * model computes and are not supported are refused by name, all of them at once; unknown keys that
 * remain give one note in dg. Sizes are checked for consistency. */
GW_WARN_UNUSED gw_status gw_hf_config_read(const char *path, gw_hf_config *out, gw_diags *dg);
/* The same from parsed JSON; `file` names it in errors. */
GW_WARN_UNUSED gw_status gw_hf_config_parse(const json_t *obj, const char *file, gw_hf_config *out,
                                            gw_diags *dg);
/* Checks a struct made by hand the way a read one is checked (sizes > 0, heads % kv_heads, even
 * head_dim with rope, and so on). `file` names the source. */
GW_WARN_UNUSED gw_status gw_hf_config_check(const gw_hf_config *c, const char *file, gw_diags *dg);

/* config.json that transformers 4 and 5 load (rope_theta + rope_scaling, torch_dtype,
 * architectures): a new reference. What the family cannot say is refused (an output bias in qwen2,
 * mixed windows in llama ...). */
GW_WARN_UNUSED gw_status gw_hf_config_to_json(const gw_hf_config *c, json_t **out, gw_diags *dg);
/* Writes config.json into directory `dir`, atomically. */
GW_WARN_UNUSED gw_status gw_hf_config_write(const gw_hf_config *c, const char *dir, gw_diags *dg);

/* From a GGUF file's metadata and tensor names (general.architecture llama, qwen2, qwen3, gpt2).
 * Mistral models carry the name llama there. Llama 3.1 scaling is recognised from
 * rope_freqs.weight. Beware: files of architecture llama hold the rows of q and k in interleaved
 * (pair) order, the others in half-split order; the reader of weights undoes that. */
GW_WARN_UNUSED gw_status gw_hf_config_from_gguf(const gw_gguf *g, gw_hf_config *out, gw_diags *dg);

/* The window of a layer, or -1. */
int64_t gw_hf_config_window(const gw_hf_config *c, int64_t layer);

#endif

// SPDX-License-Identifier: Apache-2.0
// Writing config.json from gw_hf_config.
//
// The spelling is that of transformers 4 (rope_theta and rope_scaling, torch_dtype), which version
// 5 also reads. Every field that the family's class has is written, defaults included, since
// defaults differ between versions. A struct that asks for what the family has no key for is
// refused: a file that leaves it out would load as another model.
#include <math.h>
#include <string.h>

#include "base/io.h"             /* gw_path_join, gw_dir_make */
#include "file/hf_config.h"      /* this module's contract */
#include "file/hf_config_impl.h" /* gw_hf_moe_put */

static const char *const architectures[] = {
    [GW_HF_GPT2] = "GPT2LMHeadModel",
    [GW_HF_LLAMA] = "LlamaForCausalLM",
    [GW_HF_QWEN2] = "Qwen2ForCausalLM",
    [GW_HF_QWEN3] = "Qwen3ForCausalLM",
    [GW_HF_MISTRAL] = "MistralForCausalLM",
    [GW_HF_MIXTRAL] = "MixtralForCausalLM",
    [GW_HF_QWEN3_MOE] = "Qwen3MoeForCausalLM",
    [GW_HF_DEEPSEEK_V2] = "DeepseekV2ForCausalLM",
    [GW_HF_DEEPSEEK_V3] = "DeepseekV3ForCausalLM",
};

static void set_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer(x));
}
static void set_real(json_t *o, const char *key, double x) {
    json_object_set_new(o, key, json_real(x));
}
static void set_bool(json_t *o, const char *key, bool x) {
    json_object_set_new(o, key, json_boolean(x));
}
static void set_str(json_t *o, const char *key, const char *x) {
    json_object_set_new(o, key, json_string(x));
}
static void set_id(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, x < 0 ? json_null() : json_integer(x));
}

static const char *act_name(const gw_hf_config *c) {
    switch (c->act) {
    case GW_HF_SILU: return "silu";
    case GW_HF_GELU: return "gelu";
    case GW_HF_GELU_TANH: return c->family == GW_HF_GPT2 ? "gelu_new" : "gelu_pytorch_tanh";
    case GW_HF_RELU: return "relu";
    }
    return "silu";
}

static int64_t count_windowed(const gw_hf_config *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < c->layers; i++) n += c->windowed[i];
    return n;
}

/* What the family's class cannot say, or NULL. */
static const char *inexpressible(const gw_hf_config *c) {
    bool rope = c->rope != GW_HF_ROPE_NONE;
    int64_t windowed = count_windowed(c);
    bool normed = c->family == GW_HF_QWEN3 || c->family == GW_HF_QWEN3_MOE;
    if (c->qk_norm != normed) return "norms on q and k";
    if (rope != (c->family != GW_HF_GPT2)) return "the kind of positions";
    if (c->family != GW_HF_GPT2 && (c->embd_dropout != 0 || c->resid_dropout != 0))
        return "dropout outside attention";
    switch (c->family) {
    case GW_HF_GPT2:
        if (!c->qkv_bias || !c->attention_out_bias || !c->mlp_bias) return "a layer without biases";
        return windowed > 0 ? "a sliding window" : NULL;
    case GW_HF_LLAMA:
        if (c->qkv_bias != c->attention_out_bias) return "biases on only some of q, k, v and o";
        return windowed > 0 ? "a sliding window" : NULL;
    case GW_HF_QWEN2:
        return !c->qkv_bias || c->attention_out_bias || c->mlp_bias ? "its set of biases" : NULL;
    case GW_HF_QWEN3:
        return c->qkv_bias != c->attention_out_bias || c->mlp_bias ? "its set of biases" : NULL;
    case GW_HF_MISTRAL:
        if (c->qkv_bias || c->attention_out_bias || c->mlp_bias) return "biases";
        return windowed > 0 && windowed < c->layers ? "windows on only some layers" : NULL;
    case GW_HF_MIXTRAL:
        if (windowed > 0 && windowed < c->layers) return "windows on only some layers";
        return gw_hf_moe_inexpressible(c);
    case GW_HF_QWEN3_MOE: return gw_hf_moe_inexpressible(c);
    case GW_HF_DEEPSEEK_V2:
    case GW_HF_DEEPSEEK_V3: return windowed > 0 ? "a sliding window" : gw_hf_moe_inexpressible(c);
    }
    return NULL;
}

static void put_common(json_t *o, const gw_hf_config *c) {
    set_int(o, "vocab_size", c->vocab_size);
    set_bool(o, "tie_word_embeddings", c->tie_word_embeddings);
    set_real(o, "initializer_range", c->initializer_range);
    set_id(o, "bos_token_id", c->bos_token_id);
    if (c->neos > 1) {
        json_t *list = json_array();
        for (int i = 0; i < c->neos; i++)
            json_array_append_new(list, json_integer(c->eos_token_id[i]));
        json_object_set_new(o, "eos_token_id", list);
    } else {
        set_id(o, "eos_token_id", c->neos == 1 ? c->eos_token_id[0] : -1);
    }
    if (c->pad_token_id >= 0) set_int(o, "pad_token_id", c->pad_token_id);
    if (c->dtype[0]) set_str(o, "torch_dtype", c->dtype);
    set_bool(o, "use_cache", true);
}

static void put_gpt2(json_t *o, const gw_hf_config *c) {
    set_int(o, "n_embd", c->hidden_size);
    set_int(o, "n_layer", c->layers);
    set_int(o, "n_head", c->heads);
    set_int(o, "n_positions", c->max_positions);
    set_int(o, "n_ctx", c->max_positions);
    set_id(o, "n_inner", c->intermediate_size == 4 * c->hidden_size ? -1 : c->intermediate_size);
    set_str(o, "activation_function", act_name(c));
    set_real(o, "layer_norm_epsilon", c->norm_eps);
    set_real(o, "resid_pdrop", c->resid_dropout);
    set_real(o, "embd_pdrop", c->embd_dropout);
    set_real(o, "attn_pdrop", c->attention_dropout);
}

static void put_rope(json_t *o, const gw_hf_config *c) {
    set_real(o, "rope_theta", c->rope_theta);
    json_t *s = NULL;
    if (c->rope == GW_HF_ROPE_LINEAR || c->rope == GW_HF_ROPE_LLAMA3) {
        s = json_object();
        set_str(s, "rope_type", c->rope == GW_HF_ROPE_LINEAR ? "linear" : "llama3");
        set_real(s, "factor", c->rope_factor);
    }
    if (c->rope == GW_HF_ROPE_LLAMA3) {
        set_real(s, "low_freq_factor", c->rope_low);
        set_real(s, "high_freq_factor", c->rope_high);
        set_int(s, "original_max_position_embeddings", c->rope_original_max);
    }
    if (c->rope == GW_HF_ROPE_YARN) {
        s = json_object();
        set_str(s, "rope_type", "yarn");
        set_real(s, "factor", c->rope_factor);
        set_real(s, "beta_slow", c->rope_low);
        set_real(s, "beta_fast", c->rope_high);
        set_int(s, "original_max_position_embeddings", c->rope_original_max);
        if (c->rope_mscale != 0) set_real(s, "mscale", c->rope_mscale);
        if (c->rope_mscale_all != 0) set_real(s, "mscale_all_dim", c->rope_mscale_all);
    }
    json_object_set_new(o, "rope_scaling", s ? s : json_null());
}

static void put_windows(json_t *o, const gw_hf_config *c) {
    bool any = count_windowed(c) > 0;
    set_id(o, "sliding_window", any ? c->sliding_window : -1);
    if (c->family == GW_HF_MISTRAL || c->family == GW_HF_MIXTRAL) return;
    int64_t first = 0;
    while (first < c->layers && !c->windowed[first]) first++;
    set_bool(o, "use_sliding_window", any);
    set_int(o, "max_window_layers", first);
    if (!any) return;
    json_t *types = json_array();
    for (int64_t i = 0; i < c->layers; i++)
        json_array_append_new(types,
                              json_string(c->windowed[i] ? "sliding_attention" : "full_attention"));
    json_object_set_new(o, "layer_types", types);
}

static void put_llama_like(json_t *o, const gw_hf_config *c) {
    set_int(o, "hidden_size", c->hidden_size);
    set_int(o, "intermediate_size", c->intermediate_size);
    set_int(o, "num_hidden_layers", c->layers);
    set_int(o, "num_attention_heads", c->heads);
    set_int(o, "num_key_value_heads", c->kv_heads);
    /* Class qwen2 reads the key only in later versions; it is harmless in the others. */
    bool said = c->family == GW_HF_QWEN2 && c->heads * c->head_dim == c->hidden_size;
    if (!said && !gw_hf_latent_family(c->family)) set_int(o, "head_dim", c->head_dim);
    set_str(o, "hidden_act", act_name(c));
    set_int(o, "max_position_embeddings", c->max_positions);
    set_real(o, "rms_norm_eps", c->norm_eps);
    set_real(o, "attention_dropout", c->attention_dropout);
    put_rope(o, c);
    if (c->family != GW_HF_QWEN2 && c->family != GW_HF_MISTRAL && c->family != GW_HF_MIXTRAL)
        set_bool(o, "attention_bias", c->qkv_bias);
    if (c->family == GW_HF_LLAMA) set_bool(o, "mlp_bias", c->mlp_bias);
    if (c->family != GW_HF_LLAMA && !gw_hf_latent_family(c->family)) put_windows(o, c);
    gw_hf_moe_put(o, c);
}

gw_status gw_hf_config_to_json(const gw_hf_config *c, json_t **out, gw_diags *dg) {
    *out = NULL;
    GW_TRY(gw_hf_config_check(c, "config.json", dg));
    const char *lacking = inexpressible(c);
    if (lacking)
        return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "model-config",
                       "a config.json of model_type '%s' cannot express %s",
                       gw_hf_family_name(c->family), lacking);
    json_t *o = json_object();
    json_object_set_new(o, "architectures", json_pack("[s]", architectures[c->family]));
    set_str(o, "model_type", gw_hf_family_name(c->family));
    if (c->family == GW_HF_GPT2) {
        put_gpt2(o, c);
    } else {
        put_llama_like(o, c);
    }
    put_common(o, c);
    *out = o;
    return GW_OK;
}

gw_status gw_hf_config_write(const gw_hf_config *c, const char *dir, gw_diags *dg) {
    json_t *o = NULL;
    GW_TRY(gw_hf_config_to_json(c, &o, dg));
    gw_arena a = {0};
    gw_status s = gw_dir_make(dir, dg);
    if (s == GW_OK) s = gw_json_write_file(gw_path_join(&a, dir, "config.json"), o, 2, dg);
    gw_arena_release(&a);
    json_decref(o);
    return s;
}

// SPDX-License-Identifier: Apache-2.0
// Reading config.json into gw_hf_config.
//
// The file says what a model computes, in one of several dialects: GPT-2 has its own key names,
// rope moved from rope_theta + rope_scaling to rope_parameters, dtype from torch_dtype to dtype,
// and a key that is absent means the default of that family's class in transformers. The danger is
// silence: a key that changes the computation and is not read gives a model that runs and is wrong.
// So keys fall in four classes, by tables below: read; neutral (nothing a training or forward pass
// depends on); guarded (accepted only at the value that changes nothing, refused by name
// otherwise); and unknown, which are listed in one note.
//
// All faults of a file are reported at once: the reader keeps the first status and goes on.
//
// A sliding window is kept per layer, because three spellings of it exist: all layers (mistral),
// those from max_window_layers on (qwen2), a list of layer_types (newer files).
#include "file/hf_config.h" /* this module's contract */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"             /* gw_path_is_dir, gw_path_join */
#include "base/str.h"            /* gw_str, gw_str_eq */
#include "file/hf_config_impl.h" /* gw_hf_reader, experts and latents */

typedef gw_hf_reader reader;

void gw_hf_reader_note(gw_hf_reader *r, gw_status s) {
    if (r->status == GW_OK) r->status = s;
}

/* --- families ----------------------------------------------------------------------------------
 */

static const char *const family_names[] = {
    [GW_HF_GPT2] = "gpt2",
    [GW_HF_LLAMA] = "llama",
    [GW_HF_QWEN2] = "qwen2",
    [GW_HF_QWEN3] = "qwen3",
    [GW_HF_MISTRAL] = "mistral",
    [GW_HF_MIXTRAL] = "mixtral",
    [GW_HF_QWEN3_MOE] = "qwen3_moe",
    [GW_HF_DEEPSEEK_V2] = "deepseek_v2",
    [GW_HF_DEEPSEEK_V3] = "deepseek_v3",
};

const char *gw_hf_family_name(gw_hf_family f) { return family_names[f]; }

bool gw_hf_family_parse(const char *model_type, gw_hf_family *out) {
    for (size_t i = 0; i < GW_COUNT(family_names); i++) {
        if (!gw_str_eq(model_type, family_names[i])) continue;
        *out = (gw_hf_family)i;
        return true;
    }
    return false;
}

/* What differs from the common start below. kv_heads, head_dim: 0 = derived from the others. */
static const struct {
    int64_t vocab_size, kv_heads, head_dim, max_positions, bos, eos;
    double norm_eps, dropout;
} class_defaults[] = {
    [GW_HF_GPT2] = {50257, 0, 0, 1024, 50256, 50256, 1e-5, 0.1},
    [GW_HF_LLAMA] = {32000, 0, 0, 2048, 1, 2, 1e-6, 0},
    [GW_HF_QWEN2] = {151936, 32, 0, 32768, -1, -1, 1e-6, 0},
    [GW_HF_QWEN3] = {151936, 32, 128, 32768, -1, -1, 1e-6, 0},
    [GW_HF_MISTRAL] = {32000, 8, 0, 131072, 1, 2, 1e-6, 0},
    [GW_HF_MIXTRAL] = {32000, 8, 0, 131072, 1, 2, 1e-5, 0},
    [GW_HF_QWEN3_MOE] = {151936, 4, 0, 32768, -1, -1, 1e-6, 0},
    [GW_HF_DEEPSEEK_V2] = {102400, 0, 0, 2048, 1, 2, 1e-6, 0},
    [GW_HF_DEEPSEEK_V3] = {129280, 0, 0, 4096, 0, 1, 1e-6, 0},
};

void gw_hf_config_defaults(gw_hf_config *c, gw_hf_family family) {
    bool gpt2 = family == GW_HF_GPT2;
    memset(c, 0, sizeof *c); /* padding too: structs may be compared as bytes */
    c->family = family;
    snprintf(c->model_type, sizeof c->model_type, "%s", family_names[family]);
    c->max_positions = class_defaults[family].max_positions;
    c->norm_eps = class_defaults[family].norm_eps;
    c->act = gpt2 ? GW_HF_GELU_TANH : GW_HF_SILU;
    c->tie_word_embeddings = gpt2;
    c->qkv_bias = gpt2 || family == GW_HF_QWEN2;
    c->attention_out_bias = c->mlp_bias = gpt2;
    c->qk_norm = family == GW_HF_QWEN3 || family == GW_HF_QWEN3_MOE;
    c->rope = gpt2 ? GW_HF_ROPE_NONE : GW_HF_ROPE_DEFAULT;
    c->rope_theta = gpt2 ? 0 : family == GW_HF_MIXTRAL ? 1e6 : 10000;
    c->rope_factor = c->rope_low = c->rope_high = 1;
    c->sliding_window = -1;
    c->embd_dropout = c->resid_dropout = c->attention_dropout = class_defaults[family].dropout;
    c->initializer_range = 0.02;
    c->bos_token_id = class_defaults[family].bos;
    c->pad_token_id = -1;
    if (class_defaults[family].eos >= 0) c->eos_token_id[c->neos++] = class_defaults[family].eos;
    gw_hf_moe_defaults(c);
}

/* --- getters that go on after a fault ------------------------------------------------------------
 */

int64_t gw_hf_read_i64(gw_hf_reader *r, const char *key, int64_t def) {
    int64_t x;
    gw_hf_reader_note(r, gw_json_get_i64(r->obj, key, def, &x, r->file, r->dg));
    return x;
}

double gw_hf_read_f64(gw_hf_reader *r, const char *key, double def) {
    double x;
    gw_hf_reader_note(r, gw_json_get_f64(r->obj, key, def, &x, r->file, r->dg));
    return x;
}

bool gw_hf_read_bool(gw_hf_reader *r, const char *key, bool def) {
    bool x;
    gw_hf_reader_note(r, gw_json_get_bool(r->obj, key, def, &x, r->file, r->dg));
    return x;
}

const char *gw_hf_read_str(gw_hf_reader *r, const char *key) {
    const char *x;
    gw_hf_reader_note(r, gw_json_get_str(r->obj, key, NULL, &x, r->file, r->dg));
    return x;
}

/* True when the key is there and not null. */
bool gw_hf_reader_has(const gw_hf_reader *r, const char *key) {
    const json_t *v = json_object_get(r->obj, key);
    return v && !json_is_null(v);
}

/* A size that must be given, under its own name or the one GPT-2 used for it. */
int64_t gw_hf_read_size(gw_hf_reader *r, const char *key, const char *other) {
    const char *used =
        other && !gw_hf_reader_has(r, key) && gw_hf_reader_has(r, other) ? other : key;
    int64_t x;
    gw_hf_reader_note(r, gw_json_need_i64(r->obj, used, &x, r->file, r->dg));
    return x;
}

/* --- guarded, neutral and unknown keys
 * ------------------------------------------------------------- */

#define ABSENT ((double)NAN) /* equal to no value */

/* Settings that change what the model computes: accepted when absent, null, or equal to `value` (a
 * number; booleans count as 0 and 1). ABSENT: only absent or null. */
static const struct {
    const char *key;
    double value;
} guarded[] = {
    {"scale_attn_weights", 1},
    {"scale_attn_by_inverse_layer_idx", 0},
    {"add_cross_attention", 0},
    {"is_encoder_decoder", 0},
    {"partial_rotary_factor", 1},
    {"rope_interleaved", 0},
    {"num_local_experts", 0},
    {"num_experts", 0},
    {"attn_logit_softcapping", ABSENT},
    {"final_logit_softcapping", ABSENT},
    {"quantization_config", ABSENT},
    {"embedding_multiplier", 1},
    {"residual_multiplier", 1},
    {"attention_multiplier", ABSENT},
    {"query_pre_attn_scalar", ABSENT},
    {"logits_scaling", 1},
    {"logit_scale", 1},
    {"no_rope_layers", ABSENT},
    {"no_rope_layer_interval", ABSENT},
    {"use_bidirectional_attention", 0},
    {"parallel_attn", 0},
    {"use_parallel_residual", 0},
    {"alibi", 0},
    {"use_qk_norm", 0},
    {"clip_qkv", ABSENT},
    {"attention_chunk_size", ABSENT},
    {"dual_chunk_attention_config", ABSENT},
};

static const char *const neutral[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "auto_map",
    "chunk_size_feed_forward",
    "finetuning_task",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "model_type",
    "n_ctx",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "pretraining_tp",
    "problem_type",
    "reorder_and_upcast_attn",
    "return_dict",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tie_encoder_decoder",
    "tokenizer_class",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
};

static const char *const read_common[] = {
    "vocab_size",   "tie_word_embeddings", "bos_token_id", "eos_token_id",
    "pad_token_id", "torch_dtype",         "dtype",        "initializer_range",
};

static const char *const read_gpt2[] = {
    "n_embd",
    "n_layer",
    "n_head",
    "n_positions",
    "n_inner",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "activation_function",
    "layer_norm_epsilon",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
};

static const char *const read_llama_like[] = {
    "hidden_size",         "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",          "hidden_act",        "max_position_embeddings",
    "rms_norm_eps",        "rope_theta",        "rope_scaling",      "rope_parameters",
    "attention_dropout",
};

static bool listed(const char *const *list, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], key) == 0) return true;
    return false;
}

#define LISTED(list, key) listed((list), GW_COUNT(list), (key))

static bool reads_family_key(gw_hf_family f, const char *key) {
    static const char *const biases[] = {"attention_bias", "mlp_bias"};
    static const char *const windows[] = {"use_sliding_window", "sliding_window",
                                          "max_window_layers", "layer_types"};
    switch (f) {
    case GW_HF_GPT2: return LISTED(read_gpt2, key);
    case GW_HF_LLAMA: return LISTED(read_llama_like, key) || LISTED(biases, key);
    case GW_HF_QWEN2: return LISTED(read_llama_like, key) || LISTED(windows, key);
    case GW_HF_QWEN3:
    case GW_HF_QWEN3_MOE:
        return LISTED(read_llama_like, key) || LISTED(windows, key) ||
               strcmp(key, "attention_bias") == 0 || gw_hf_moe_reads(f, key);
    case GW_HF_MIXTRAL:
    case GW_HF_DEEPSEEK_V2:
    case GW_HF_DEEPSEEK_V3: return LISTED(read_llama_like, key) || gw_hf_moe_reads(f, key);
    case GW_HF_MISTRAL:
        return LISTED(read_llama_like, key) || strcmp(key, "sliding_window") == 0 ||
               strcmp(key, "layer_types") == 0;
    }
    return false;
}

/* True when the key is guarded; a value that is not the harmless one is refused. */
static bool guard(reader *r, const char *key, const json_t *v) {
    for (size_t i = 0; i < GW_COUNT(guarded); i++) {
        if (strcmp(guarded[i].key, key) != 0) continue;
        double x = json_is_boolean(v) ? (double)json_is_true(v) : json_number_value(v);
        bool simple = json_is_boolean(v) || json_is_number(v);
        if (json_is_null(v) || (simple && x == guarded[i].value)) return true;
        char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                     "'%s' = %.60s changes what the model computes and is not "
                     "supported",
                     key, text ? text : "?");
        free(text);
        return true;
    }
    return false;
}

static void sort_keys(reader *r, gw_hf_family family) {
    json_t *o = (json_t *)(uintptr_t)r->obj;
    gw_str unknown = {0};
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (reads_family_key(family, key) || guard(r, key, json_object_iter_value(it)) ||
            LISTED(neutral, key) || LISTED(read_common, key))
            continue;
        gw_str_printf(&unknown, "%s%.80s", unknown.len ? ", " : "", key);
    }
    if (unknown.len)
        gw_diag_add(r->dg, GW_NOTE, GW_OK, "model-config-unknown", (gw_where){.file = r->file},
                    "keys that are not known and have no effect: %s", gw_str_c(&unknown));
    gw_str_release(&unknown);
}

/* --- parts ---------------------------------------------------------------------------------------
 */

static void read_act(reader *r, const char *key, gw_hf_config *c) {
    static const struct {
        const char *name;
        gw_hf_act act;
    } acts[] = {{"silu", GW_HF_SILU},           {"swish", GW_HF_SILU},
                {"gelu", GW_HF_GELU},           {"gelu_python", GW_HF_GELU},
                {"gelu_new", GW_HF_GELU_TANH},  {"gelu_pytorch_tanh", GW_HF_GELU_TANH},
                {"gelu_fast", GW_HF_GELU_TANH}, {"relu", GW_HF_RELU}};
    const char *name = gw_hf_read_str(r, key);
    if (!name) return;
    for (size_t i = 0; i < GW_COUNT(acts); i++) {
        if (strcmp(acts[i].name, name) != 0) continue;
        c->act = acts[i].act;
        return;
    }
    GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED, "activation '%.60s' of '%s' is not supported", name, key);
}

/* An id, or -1 for null; a negative id means none as well. */
static int64_t read_id(reader *r, const char *key, int64_t def) {
    if (!json_object_get(r->obj, key)) return def;
    int64_t x = gw_hf_read_i64(r, key, -1);
    return x < 0 ? -1 : x;
}

static void read_eos(reader *r, gw_hf_config *c) {
    const json_t *v = json_object_get(r->obj, "eos_token_id");
    if (!v) return;
    c->neos = 0;
    if (!json_is_array(v)) {
        int64_t x = read_id(r, "eos_token_id", -1);
        if (x >= 0) c->eos_token_id[c->neos++] = x;
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        int64_t x;
        if (!gw_json_as_i64(json_array_get(v, i), &x) || x < 0 || c->neos == GW_HF_MAX_EOS) {
            GW_HF_REFUSE(r, GW_ERR_FORMAT, "'eos_token_id' must be a list of at most %d ids",
                         GW_HF_MAX_EOS);
            return;
        }
        c->eos_token_id[c->neos++] = x;
    }
}

static void read_dtype(reader *r, gw_hf_config *c) {
    const char *name = gw_hf_reader_has(r, "dtype") ? gw_hf_read_str(r, "dtype")
                                                    : gw_hf_read_str(r, "torch_dtype");
    if (!name) return;
    if (gw_str_starts(name, "torch.")) name += 6;
    if (strlen(name) >= sizeof c->dtype) {
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED, "dtype '%.60s' is not known", name);
        return;
    }
    snprintf(c->dtype, sizeof c->dtype, "%s", name);
}

/* The object that holds rope's settings, or NULL. As in transformers of either dialect, a
 * rope_scaling with anything in it takes the place of rope_parameters as a whole. */
static const json_t *rope_object(reader *r, const char **key) {
    const json_t *v = json_object_get(r->obj, "rope_scaling");
    bool empty = !v || json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0);
    *key = empty ? "rope_parameters" : "rope_scaling";
    gw_hf_reader_note(r, gw_json_get_object(r->obj, *key, &v, r->file, r->dg));
    json_t *o = (json_t *)(uintptr_t)v;
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        if (!json_is_object(json_object_iter_value(it))) continue;
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                     "'%s' differs from layer to layer, which is not supported", *key);
        return NULL;
    }
    return v;
}

static void read_llama3(reader *in, gw_hf_config *c) {
    gw_hf_reader_note(in, gw_json_need_f64(in->obj, "factor", &c->rope_factor, in->file, in->dg));
    gw_hf_reader_note(in,
                      gw_json_need_f64(in->obj, "low_freq_factor", &c->rope_low, in->file, in->dg));
    gw_hf_reader_note(
        in, gw_json_need_f64(in->obj, "high_freq_factor", &c->rope_high, in->file, in->dg));
    gw_hf_reader_note(in, gw_json_need_i64(in->obj, "original_max_position_embeddings",
                                           &c->rope_original_max, in->file, in->dg));
}

/* Keys of yarn. What attention is multiplied by follows from the factor and mscale. */
static void read_yarn(reader *in, gw_hf_config *c) {
    gw_hf_reader_note(in, gw_json_need_f64(in->obj, "factor", &c->rope_factor, in->file, in->dg));
    c->rope_low = gw_hf_read_f64(in, "beta_slow", 1);
    c->rope_high = gw_hf_read_f64(in, "beta_fast", 32);
    c->rope_mscale = gw_hf_read_f64(in, "mscale", 0);
    c->rope_mscale_all = gw_hf_read_f64(in, "mscale_all_dim", 0);
    gw_hf_reader_note(in, gw_json_need_i64(in->obj, "original_max_position_embeddings",
                                           &c->rope_original_max, in->file, in->dg));
    if (gw_hf_reader_has(in, "attention_factor"))
        GW_HF_REFUSE(in, GW_ERR_UNSUPPORTED,
                     "'attention_factor' of rope type yarn is not supported (mscale and "
                     "mscale_all_dim are)");
    if (!gw_hf_read_bool(in, "truncate", true))
        GW_HF_REFUSE(in, GW_ERR_UNSUPPORTED, "'truncate' of rope type yarn must be true");
}

/* A base that stands only in a replaced rope_parameters would be lost without a word. */
static void check_replaced_rope(reader *r, const gw_hf_config *c, const char *key) {
    const json_t *other = json_object_get(r->obj, "rope_parameters");
    const json_t *theta = json_object_get(other, "rope_theta");
    if (strcmp(key, "rope_scaling") != 0 || !theta || json_is_null(theta)) return;
    if (!json_is_number(theta) || json_number_value(theta) != c->rope_theta)
        GW_HF_REFUSE(
            r, GW_ERR_FORMAT,
            "'rope_scaling' takes the place of 'rope_parameters', but the two disagree: rope's "
            "theta is %g by the one and another by the other; keep one of them",
            c->rope_theta);
}

static void read_rope(reader *r, gw_hf_config *c) {
    const char *key;
    c->rope_theta = gw_hf_read_f64(r, "rope_theta", c->rope_theta);
    reader in = *r;
    in.obj = rope_object(r, &key);
    in.status = GW_OK;
    if (!in.obj) return;
    c->rope_theta = gw_hf_read_f64(&in, "rope_theta", c->rope_theta);
    check_replaced_rope(r, c, key);
    if (gw_hf_read_f64(&in, "partial_rotary_factor", 1) != 1)
        GW_HF_REFUSE(&in, GW_ERR_UNSUPPORTED, "'partial_rotary_factor' of '%s' is not 1", key);
    const char *type = gw_hf_read_str(&in, "rope_type");
    if (!type) type = gw_hf_read_str(&in, "type");
    if (!type || strcmp(type, "default") == 0) {
        c->rope = GW_HF_ROPE_DEFAULT;
    } else if (strcmp(type, "linear") == 0) {
        c->rope = GW_HF_ROPE_LINEAR;
        gw_hf_reader_note(&in, gw_json_need_f64(in.obj, "factor", &c->rope_factor, in.file, in.dg));
    } else if (strcmp(type, "llama3") == 0) {
        c->rope = GW_HF_ROPE_LLAMA3;
        read_llama3(&in, c);
    } else if (strcmp(type, "yarn") == 0) {
        c->rope = GW_HF_ROPE_YARN;
        read_yarn(&in, c);
    } else {
        GW_HF_REFUSE(&in, GW_ERR_UNSUPPORTED,
                     "rope type '%.60s' of '%s' is not supported (default, linear, "
                     "llama3 and yarn are)",
                     type, key);
    }
    gw_hf_reader_note(r, in.status);
}

/* layer_types, when given, overrules max_window_layers. */
static void read_layer_types(reader *r, gw_hf_config *c) {
    const json_t *v;
    gw_hf_reader_note(r, gw_json_get_array(r->obj, "layer_types", &v, r->file, r->dg));
    if (!v) return;
    if ((int64_t)json_array_size(v) != c->layers) {
        GW_HF_REFUSE(r, GW_ERR_FORMAT, "'layer_types' lists %lld layers, the model has %lld",
                     (long long)json_array_size(v), (long long)c->layers);
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *type = json_string_value(json_array_get(v, i));
        bool windowed = gw_str_eq(type, "sliding_attention");
        if (!windowed && !gw_str_eq(type, "full_attention")) {
            GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED, "layer type '%.60s' is not supported",
                         type ? type : "?");
            return;
        }
        if (windowed && c->sliding_window < 0) {
            GW_HF_REFUSE(r, GW_ERR_FORMAT,
                         "'layer_types' asks for sliding_attention, but no "
                         "sliding_window is in force");
            return;
        }
        if (c->family == GW_HF_MISTRAL && windowed != (c->sliding_window >= 0)) {
            GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                         "mistral with mixed 'layer_types' is not supported");
            return;
        }
        c->windowed[i] = windowed;
    }
}

static void read_windows(reader *r, gw_hf_config *c) {
    int64_t first = 0;
    if (c->family == GW_HF_LLAMA || gw_hf_latent_family(c->family) || c->layers < 0 ||
        c->layers > GW_HF_MAX_LAYERS)
        return;
    if (c->family == GW_HF_MISTRAL || c->family == GW_HF_MIXTRAL) {
        bool given = json_object_get(r->obj, "sliding_window") != NULL;
        bool none = given || c->family == GW_HF_MIXTRAL;
        c->sliding_window = gw_hf_read_i64(r, "sliding_window", none ? -1 : 4096);
    } else {
        int64_t window = json_object_get(r->obj, "sliding_window") ? -1 : 4096;
        window = gw_hf_read_i64(r, "sliding_window", window);
        c->sliding_window = gw_hf_read_bool(r, "use_sliding_window", false) ? window : -1;
        first = gw_hf_read_i64(r, "max_window_layers", 28);
    }
    if (c->sliding_window < 0) c->sliding_window = -1;
    for (int64_t i = first < 0 ? 0 : first; i < c->layers; i++)
        c->windowed[i] = c->sliding_window >= 0;
    read_layer_types(r, c);
    bool any = false;
    for (int64_t i = 0; i < c->layers; i++) any |= c->windowed[i];
    if (!any) c->sliding_window = -1;
}

static void read_gpt2_sizes(reader *r, gw_hf_config *c) {
    c->hidden_size = gw_hf_read_size(r, "n_embd", "hidden_size");
    c->layers = gw_hf_read_size(r, "n_layer", "num_hidden_layers");
    c->heads = gw_hf_read_size(r, "n_head", "num_attention_heads");
    const char *positions =
        gw_hf_reader_has(r, "n_positions") ? "n_positions" : "max_position_embeddings";
    if (!gw_hf_reader_has(r, positions)) positions = "n_ctx";
    c->max_positions = gw_hf_read_i64(r, positions, c->max_positions);
    int64_t four = c->hidden_size > 0 && c->hidden_size < INT32_MAX ? 4 * c->hidden_size : 0;
    c->intermediate_size = gw_hf_read_i64(r, "n_inner", four);
    c->kv_heads = c->heads;
    c->norm_eps = gw_hf_read_f64(r, "layer_norm_epsilon", c->norm_eps);
    c->resid_dropout = gw_hf_read_f64(r, "resid_pdrop", c->resid_dropout);
    c->embd_dropout = gw_hf_read_f64(r, "embd_pdrop", c->embd_dropout);
    c->attention_dropout = gw_hf_read_f64(r, "attn_pdrop", c->attention_dropout);
    read_act(r, "activation_function", c);
}

static void read_llama_sizes(reader *r, gw_hf_config *c) {
    c->hidden_size = gw_hf_read_size(r, "hidden_size", NULL);
    c->layers = gw_hf_read_size(r, "num_hidden_layers", NULL);
    c->heads = gw_hf_read_size(r, "num_attention_heads", NULL);
    c->intermediate_size = gw_hf_read_size(r, "intermediate_size", NULL);
    c->max_positions = gw_hf_read_i64(r, "max_position_embeddings", c->max_positions);
    /* An explicit null means "as many as heads"; an absent key, the class's own default. */
    int64_t kv =
        json_object_get(r->obj, "num_key_value_heads") ? 0 : class_defaults[c->family].kv_heads;
    c->kv_heads = gw_hf_read_i64(r, "num_key_value_heads", kv > 0 ? kv : c->heads);
    c->head_dim = gw_hf_read_i64(
        r, "head_dim",
        json_object_get(r->obj, "head_dim") ? 0 : class_defaults[c->family].head_dim);
    c->norm_eps = gw_hf_read_f64(r, "rms_norm_eps", c->norm_eps);
    c->attention_dropout = gw_hf_read_f64(r, "attention_dropout", c->attention_dropout);
    read_act(r, "hidden_act", c);
    read_rope(r, c);
    if (c->family == GW_HF_LLAMA || c->family == GW_HF_QWEN3 || c->family == GW_HF_QWEN3_MOE)
        c->qkv_bias = c->attention_out_bias = gw_hf_read_bool(r, "attention_bias", false);
    if (c->family == GW_HF_LLAMA) c->mlp_bias = gw_hf_read_bool(r, "mlp_bias", false);
    read_windows(r, c);
    gw_hf_moe_read(r, c);
}

static void read_all(reader *r, gw_hf_config *c) {
    sort_keys(r, c->family);
    c->vocab_size = gw_hf_read_i64(r, "vocab_size", class_defaults[c->family].vocab_size);
    c->tie_word_embeddings = gw_hf_read_bool(r, "tie_word_embeddings", c->tie_word_embeddings);
    c->initializer_range = gw_hf_read_f64(r, "initializer_range", c->initializer_range);
    c->bos_token_id = read_id(r, "bos_token_id", c->bos_token_id);
    c->pad_token_id = read_id(r, "pad_token_id", c->pad_token_id);
    read_eos(r, c);
    read_dtype(r, c);
    if (c->family == GW_HF_GPT2) {
        read_gpt2_sizes(r, c);
    } else {
        read_llama_sizes(r, c);
    }
    if (c->head_dim != 0 || c->heads <= 0 || c->hidden_size <= 0) return;
    if (c->hidden_size % c->heads != 0)
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "hidden size %lld is not a multiple of %lld heads, and no head_dim is "
                     "given",
                     (long long)c->hidden_size, (long long)c->heads);
    c->head_dim = c->hidden_size / c->heads;
}

gw_status gw_hf_config_parse(const json_t *obj, const char *file, gw_hf_config *out, gw_diags *dg) {
    reader r = {obj, file, dg, GW_OK};
    gw_hf_family family;
    const char *type;
    *out = (gw_hf_config){0};
    if (!json_is_object(obj))
        return gw_fail_at(dg, GW_ERR_FORMAT, "model-config", (gw_where){.file = file},
                          "a model's configuration must be a JSON object");
    GW_TRY(gw_json_need_str(obj, "model_type", &type, file, dg));
    if (!gw_hf_family_parse(type, &family))
        return gw_fail_at(
            dg, GW_ERR_UNSUPPORTED, "model-family", (gw_where){.file = file},
            "model_type '%.60s' is not supported (gpt2, llama, qwen2, qwen3, mistral, mixtral, "
            "qwen3_moe, deepseek_v2 and deepseek_v3 are)",
            type);
    gw_hf_config_defaults(out, family);
    read_all(&r, out);
    return r.status != GW_OK ? r.status : gw_hf_config_check(out, file, dg);
}

gw_status gw_hf_config_read(const char *path, gw_hf_config *out, gw_diags *dg) {
    *out = (gw_hf_config){0};
    gw_arena a = {0};
    json_t *obj = NULL;
    const char *file = gw_path_is_dir(path) ? gw_path_join(&a, path, "config.json") : path;
    gw_status s = gw_json_read_file(file, 16 << 20, &obj, dg);
    if (s == GW_OK) s = gw_hf_config_parse(obj, file, out, dg);
    json_decref(obj);
    gw_arena_release(&a);
    return s;
}

/* --- consistency ------------------------------------------------------------------------------ */

static void check_sizes(reader *r, const gw_hf_config *c) {
    const struct {
        const char *name;
        int64_t x;
    } sizes[] = {{"vocabulary size", c->vocab_size},
                 {"hidden size", c->hidden_size},
                 {"intermediate size", c->intermediate_size},
                 {"number of layers", c->layers},
                 {"number of heads", c->heads},
                 {"number of key-value heads", c->kv_heads},
                 {"head size", c->head_dim},
                 {"number of positions", c->max_positions}};
    for (size_t i = 0; i < GW_COUNT(sizes); i++)
        if (sizes[i].x < 1 || sizes[i].x > INT32_MAX)
            GW_HF_REFUSE(r, GW_ERR_CONFIG, "the %s is %lld; it must be from 1 to 2^31 - 1",
                         sizes[i].name, (long long)sizes[i].x);
    if (c->layers > GW_HF_MAX_LAYERS)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "%lld layers are more than the %d supported",
                     (long long)c->layers, GW_HF_MAX_LAYERS);
}

static void check_attention(reader *r, const gw_hf_config *c) {
    if (c->heads % c->kv_heads != 0)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "%lld heads cannot share %lld key-value heads evenly",
                     (long long)c->heads, (long long)c->kv_heads);
    if (c->rope != GW_HF_ROPE_NONE && !gw_hf_latent_family(c->family) && c->head_dim % 2 != 0)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "rope turns pairs, so the head size %lld must be even",
                     (long long)c->head_dim);
    if (c->rope != GW_HF_ROPE_NONE && !(c->rope_theta > 0 && isfinite(c->rope_theta)))
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "rope's theta %g must be above 0", c->rope_theta);
    if (c->family == GW_HF_GPT2 &&
        (c->kv_heads != c->heads || c->heads * c->head_dim != c->hidden_size))
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "gpt2 needs as many key-value heads as heads, and heads times head size "
                     "equal to the hidden size");
    if (c->rope == GW_HF_ROPE_LINEAR && !(c->rope_factor >= 1 && isfinite(c->rope_factor)))
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "rope's factor %g must be at least 1", c->rope_factor);
    if (c->rope == GW_HF_ROPE_YARN &&
        !(c->rope_factor >= 1 && isfinite(c->rope_factor) && c->rope_low > 0 &&
          c->rope_high > c->rope_low && isfinite(c->rope_high) && c->rope_original_max > 0 &&
          c->rope_mscale >= 0 && c->rope_mscale_all >= 0 && c->rope_theta != 1))
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "rope type yarn needs factor >= 1, 0 < beta_slow < beta_fast, no negative "
                     "mscale and a positive original_max_position_embeddings");
    if (c->rope == GW_HF_ROPE_LLAMA3 &&
        !(c->rope_factor >= 1 && isfinite(c->rope_factor) && c->rope_low > 0 &&
          c->rope_high > c->rope_low && isfinite(c->rope_high) && c->rope_original_max > 0))
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "rope type llama3 needs factor >= 1, 0 < low_freq_factor < "
                     "high_freq_factor and a positive original_max_position_embeddings");
}

static void check_numbers(reader *r, const gw_hf_config *c) {
    const double drops[] = {c->embd_dropout, c->resid_dropout, c->attention_dropout};
    for (size_t i = 0; i < GW_COUNT(drops); i++)
        if (!(drops[i] >= 0 && drops[i] < 1))
            GW_HF_REFUSE(r, GW_ERR_CONFIG, "a dropout of %g is not from 0 to below 1", drops[i]);
    if (!(c->norm_eps > 0 && isfinite(c->norm_eps)))
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "the norm's epsilon %g must be above 0", c->norm_eps);
    if (!(c->initializer_range >= 0 && isfinite(c->initializer_range)))
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "the initializer range %g must not be negative",
                     c->initializer_range);
    if (c->sliding_window == 0 || c->sliding_window < -1)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "a sliding window of %lld tokens is impossible",
                     (long long)c->sliding_window);
    for (int64_t i = 0; i < GW_HF_MAX_LAYERS; i++) {
        if (!c->windowed[i] || (c->sliding_window > 0 && i < c->layers)) continue;
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "layer %lld is windowed, but there is no such layer or no window",
                     (long long)i);
        break;
    }
    if (c->neos < 0 || c->neos > GW_HF_MAX_EOS)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "%d end tokens are more than the %d supported", c->neos,
                     GW_HF_MAX_EOS);
}

gw_status gw_hf_config_check(const gw_hf_config *c, const char *file, gw_diags *dg) {
    reader r = {NULL, file, dg, GW_OK};
    check_sizes(&r, c);
    if (r.status == GW_OK) check_attention(&r, c);
    check_numbers(&r, c);
    gw_hf_moe_check(&r, c);
    return r.status;
}

int64_t gw_hf_config_window(const gw_hf_config *c, int64_t layer) {
    bool inside = layer >= 0 && layer < GW_HF_MAX_LAYERS;
    return inside && c->windowed[layer] ? c->sliding_window : -1;
}

// SPDX-License-Identifier: Apache-2.0
// gw_hf_config from a GGUF file.
//
// GGUF keeps sizes under "<architecture>.<key>" and leaves the rest to be seen from the tensors: a
// model whose output.weight is missing ties its embeddings, one with attn_q.bias has biases, one
// with attn_q_norm.weight normalises heads. Models of the mistral family carry the architecture
// name llama; without a window the two compute the same.
//
// Llama 3.1's rope scaling is not metadata but a tensor of factors, rope_freqs.weight, computed
// when the file was made. Its largest entry is the scaling factor; the other three parameters have
// been the same in every release (1, 4, 8192), so the factors are recomputed from them and
// compared. A tensor that does not match is refused rather than approximated.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"       /* gw_str_eq */
#include "file/hf_config.h" /* this module's contract */

typedef struct reader {
    const gw_gguf *g;
    const char *arch;
    gw_diags *dg;
    gw_status status;
} reader;

#define REFUSE(r, code, ...)                                                                       \
    do {                                                                                           \
        gw_status refused_ = gw_fail_at((r)->dg, (code), "model-config",                           \
                                        (gw_where){.file = gw_gguf_path((r)->g)}, __VA_ARGS__);    \
        if ((r)->status == GW_OK) (r)->status = refused_;                                          \
    } while (0)

enum { KEY_BYTES = 128 };

static const char *full_key(const reader *r, const char *key, char buf[KEY_BYTES]) {
    snprintf(buf, KEY_BYTES, "%s.%s", r->arch, key);
    return buf;
}

/* An integer; an array (one number a layer) counts when all its entries are equal. */
static bool find_i64(reader *r, const char *key, int64_t *out) {
    char buf[KEY_BYTES];
    const gw_gguf_value *v = gw_gguf_find_value(r->g, full_key(r, key, buf));
    if (!v || v->count < 1) return false;
    int64_t first, x;
    for (int64_t i = 0; i < v->count; i++) {
        if (!gw_gguf_elem_i64(v, i, &x)) {
            REFUSE(r, GW_ERR_FORMAT, "'%s' is not a whole number", buf);
            return false;
        }
        if (i == 0) first = x;
        if (x != first) {
            REFUSE(r, GW_ERR_UNSUPPORTED,
                   "'%s' differs from layer to layer, which is not supported", buf);
            return false;
        }
        *out = x;
    }
    return true;
}

static int64_t need_i64(reader *r, const char *key) {
    int64_t x = 0;
    gw_status before = r->status;
    if (!find_i64(r, key, &x) && r->status == before)
        REFUSE(r, GW_ERR_FORMAT, "'%s.%s' is missing", r->arch, key);
    return x;
}

/* GGUF keeps these numbers as float32. The shortest decimal that is the same float32 is what the
 * maker wrote: 1e-05, not 9.99999975e-06. */
static double as_written(double x) {
    char text[40];
    double back = x;
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        back = strtod(text, NULL);
        if ((float)back == (float)x) return back;
    }
    return x;
}

static double get_f64(reader *r, const char *key, double def) {
    char buf[KEY_BYTES];
    double x = def;
    const gw_gguf_value *v = gw_gguf_find_value(r->g, full_key(r, key, buf));
    (void)gw_gguf_get_f64(r->g, buf, &x);
    return v && v->kind == GW_GGUF_F32 ? as_written(x) : x;
}

static bool has_tensor(const reader *r, const char *name) {
    return gw_gguf_find_tensor(r->g, name) != NULL;
}

/* --- rope ----------------------------------------------------------------------------------------
 */

/* Llama 3.1's factor for frequency i of n pairs: 1 for short waves, c->rope_factor for long ones,
 * and a blend between. */
static double llama3_factor(const gw_hf_config *c, int64_t i, int64_t n) {
    double freq = pow(c->rope_theta, -(double)i / (double)n);
    double turns = (double)c->rope_original_max * freq / (2 * 3.14159265358979323846);
    if (turns > c->rope_high) return 1;
    if (turns < c->rope_low) return c->rope_factor;
    double smooth = (turns - c->rope_low) / (c->rope_high - c->rope_low);
    return 1 / ((1 - smooth) / c->rope_factor + smooth);
}

static void read_rope_freqs(reader *r, gw_hf_config *c) {
    const gw_gguf_tensor *t = gw_gguf_find_tensor(r->g, "rope_freqs.weight");
    if (!t) return;
    int64_t n = c->head_dim / 2;
    if (t->type != GW_GGML_F32 || t->elems != n || n < 1) {
        REFUSE(r, GW_ERR_UNSUPPORTED,
               "rope_freqs.weight is not one float32 a pair of head elements");
        return;
    }
    const uint8_t *p = t->data;
    float last;
    memcpy(&last, p + 4 * (n - 1), sizeof last);
    c->rope = GW_HF_ROPE_LLAMA3;
    c->rope_factor = (double)last;
    c->rope_low = 1;
    c->rope_high = 4;
    c->rope_original_max = 8192;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, p + 4 * i, sizeof x);
        double want = llama3_factor(c, i, n);
        if (fabs((double)x - want) <= 1e-4 * want) continue;
        REFUSE(r, GW_ERR_UNSUPPORTED,
               "rope_freqs.weight is not the scaling of Llama 3.1 (entry %lld is "
               "%g, not %g)",
               (long long)i, (double)x, want);
        return;
    }
}

static void read_rope(reader *r, gw_hf_config *c) {
    char buf[KEY_BYTES];
    const char *type = "none";
    int64_t rotated = c->head_dim;
    c->rope_theta = get_f64(r, "rope.freq_base", c->rope_theta);
    if (find_i64(r, "rope.dimension_count", &rotated) && rotated != c->head_dim)
        REFUSE(r, GW_ERR_UNSUPPORTED,
               "rope turns only %lld of %lld head elements, which is not supported",
               (long long)rotated, (long long)c->head_dim);
    (void)gw_gguf_get_str(r->g, full_key(r, "rope.scaling.type", buf), &type);
    double factor = get_f64(r, "rope.scaling.factor", get_f64(r, "rope.scale_linear", 1));
    if (strcmp(type, "linear") == 0 || (strcmp(type, "none") == 0 && factor > 1)) {
        c->rope = GW_HF_ROPE_LINEAR;
        c->rope_factor = factor;
    } else if (strcmp(type, "none") != 0) {
        REFUSE(r, GW_ERR_UNSUPPORTED, "rope scaling '%.60s' is not supported", type);
    }
    read_rope_freqs(r, c);
}

/* --- the rest ------------------------------------------------------------------------------------
 */

static void read_sizes(reader *r, gw_hf_config *c) {
    const gw_gguf_tensor *embd = gw_gguf_find_tensor(r->g, "token_embd.weight");
    const gw_gguf_value *tokens = gw_gguf_find_value(r->g, "tokenizer.ggml.tokens");
    c->hidden_size = need_i64(r, "embedding_length");
    c->layers = need_i64(r, "block_count");
    c->heads = need_i64(r, "attention.head_count");
    c->intermediate_size = need_i64(r, "feed_forward_length");
    c->max_positions = need_i64(r, "context_length");
    c->kv_heads = c->heads;
    (void)find_i64(r, "attention.head_count_kv", &c->kv_heads);
    if (!find_i64(r, "vocab_size", &c->vocab_size)) c->vocab_size = tokens ? tokens->count : 0;
    if (embd && embd->ndim == 2) c->vocab_size = embd->dims[0];
    if (!find_i64(r, "attention.key_length", &c->head_dim) && c->heads > 0)
        c->head_dim = c->hidden_size % c->heads == 0 ? c->hidden_size / c->heads : 0;
    int64_t value_length = c->head_dim, experts = 0;
    (void)find_i64(r, "attention.value_length", &value_length);
    if (value_length != c->head_dim)
        REFUSE(r, GW_ERR_UNSUPPORTED, "keys and values of different sizes are not supported");
    if (find_i64(r, "expert_count", &experts) && experts > 0)
        REFUSE(r, GW_ERR_UNSUPPORTED, "a mixture of %lld experts is not supported",
               (long long)experts);
}

static void read_window(reader *r, gw_hf_config *c) {
    int64_t window = 0;
    if (!find_i64(r, "attention.sliding_window", &window) || window <= 0) return;
    if (c->family == GW_HF_GPT2) {
        REFUSE(r, GW_ERR_UNSUPPORTED, "gpt2 with a sliding window is not supported");
        return;
    }
    if (c->family == GW_HF_LLAMA) {
        c->family = GW_HF_MISTRAL;
        snprintf(c->model_type, sizeof c->model_type, "%s", gw_hf_family_name(c->family));
    }
    c->sliding_window = window;
    for (int64_t i = 0; i < c->layers && i < GW_HF_MAX_LAYERS; i++) c->windowed[i] = true;
}

static void read_tokens(reader *r, gw_hf_config *c) {
    int64_t x;
    c->neos = 0;
    c->bos_token_id = c->pad_token_id = -1;
    if (gw_gguf_get_i64(r->g, "tokenizer.ggml.bos_token_id", &x) && x >= 0) c->bos_token_id = x;
    if (gw_gguf_get_i64(r->g, "tokenizer.ggml.padding_token_id", &x) && x >= 0) c->pad_token_id = x;
    if (gw_gguf_get_i64(r->g, "tokenizer.ggml.eos_token_id", &x) && x >= 0)
        c->eos_token_id[c->neos++] = x;
}

static void read_from_tensors(reader *r, gw_hf_config *c) {
    c->tie_word_embeddings = !has_tensor(r, "output.weight");
    if (c->family == GW_HF_GPT2) return; /* its biases are part of the family */
    c->qkv_bias = has_tensor(r, "blk.0.attn_q.bias");
    c->attention_out_bias = has_tensor(r, "blk.0.attn_output.bias");
    c->mlp_bias = has_tensor(r, "blk.0.ffn_down.bias");
    c->qk_norm = has_tensor(r, "blk.0.attn_q_norm.weight");
    if (c->qk_norm != (c->family == GW_HF_QWEN3))
        REFUSE(r, GW_ERR_UNSUPPORTED, "norms on q and k belong to qwen3 alone (architecture '%s')",
               r->arch);
}

gw_status gw_hf_config_from_gguf(const gw_gguf *g, gw_hf_config *out, gw_diags *dg) {
    *out = (gw_hf_config){0};
    gw_hf_family family;
    reader r = {g, NULL, dg, GW_OK};
    gw_where where = {.file = gw_gguf_path(g)};
    if (!gw_gguf_get_str(g, "general.architecture", &r.arch))
        return gw_fail_at(dg, GW_ERR_FORMAT, "model-config", where,
                          "'general.architecture' is missing or not a string");
    if (!gw_hf_family_parse(r.arch, &family))
        return gw_fail_at(
            dg, GW_ERR_UNSUPPORTED, "model-family", where,
            "architecture '%.60s' is not supported (gpt2, llama, qwen2 and qwen3 are)", r.arch);
    gw_hf_config_defaults(out, family);
    read_sizes(&r, out);
    bool gpt2 = family == GW_HF_GPT2;
    out->norm_eps =
        get_f64(&r, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                out->norm_eps);
    if (!gpt2) read_rope(&r, out);
    read_window(&r, out);
    read_tokens(&r, out);
    read_from_tensors(&r, out);
    return r.status != GW_OK ? r.status : gw_hf_config_check(out, where.file, dg);
}

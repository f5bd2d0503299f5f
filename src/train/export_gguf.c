// SPDX-License-Identifier: Apache-2.0
// Writing a GGUF file from an executor's parameters.
//
// The families that have an architecture of their own there: gpt2, llama (mistral without a window
// too), qwen2, qwen3. Names are the parameter table's; matrices lie [out, in]; GPT-2's q, k and v
// stand one behind the other; rows of q and k of a llama are interleaved within a head. Vectors are
// float32 always, as readers want them; a row that no block of Q8_0 divides is kept as F16. Llama
// 3.1's rope scaling is the tensor rope_freqs.weight. What the format cannot say is refused.
// Sources: the GGUF specification; ggml-org/llama.cpp, gguf-py/gguf/constants.py, for the keys.
#include <math.h>
#include <string.h>

#include "file/gguf.h"            /* gw_gguf_writer */
#include "train/gguf_tokenizer.h" /* gw_gguf_put_tokenizer */
#include "train/weights.h"

static const char *architecture(const gw_model *m) {
    switch (m->family) {
    case GW_FAMILY_GPT2: return "gpt2";
    case GW_FAMILY_LLAMA: return "llama";
    case GW_FAMILY_MISTRAL: return m->window > 0 ? NULL : "llama";
    case GW_FAMILY_QWEN2: return m->window > 0 ? NULL : "qwen2";
    case GW_FAMILY_QWEN3: return m->window > 0 ? NULL : "qwen3";
    case GW_FAMILY_MIXTRAL:
    case GW_FAMILY_QWEN3_MOE:
    case GW_FAMILY_DEEPSEEK:
    case GW_FAMILY_RESNET: break;
    }
    return NULL;
}

static gw_status check(const gw_model *m, gw_diags *dg) {
    const char *why = NULL;
    bool llama = m->family == GW_FAMILY_LLAMA || m->family == GW_FAMILY_MISTRAL;
    if (!architecture(m))
        why = m->window > 0 ? "a sliding window" : "this family of models";
    else if (m->rope_scaling == GW_ROPE_YARN || (m->rope_scaling == GW_ROPE_LLAMA3 && !llama))
        why = "its scaling of rope";
    else if (m->rope_scaling == GW_ROPE_LLAMA3 &&
             (m->rope_low < 1 || m->rope_low > 1 || m->rope_high < 4 || m->rope_high > 4 ||
              m->rope_original != 8192))
        why = "parameters of rope scaling other than Llama 3.1's 1, 4 and 8192";
    else if (m->mlp_bias && m->family != GW_FAMILY_GPT2)
        why = "biases in the feed-forward";
    if (!why) return GW_OK;
    gw_status st =
        GW_FAIL(dg, GW_ERR_UNSUPPORTED, "export-gguf", "GGUF files are not written for %s (%s)",
                why, gw_family_name(m->family));
    gw_diag_hint(dg, dg ? dg->last : NULL, "--to hf writes any of them");
    return st;
}

/* ---- metadata ---- */

typedef struct maker {
    gw_gguf_writer *w;
    const gw_model *m;
    const char *arch;
    gw_arena a;
} maker;

static const char *key(maker *k, const char *name) {
    return gw_arena_printf(&k->a, "%s.%s", k->arch, name);
}

static int file_type(gw_ggml_type t) {
    return t == GW_GGML_F16 ? 1 : t == GW_GGML_Q8_0 ? 7 : t == GW_GGML_BF16 ? 32 : 0;
}

static void put_sizes(maker *k, gw_ggml_type type) {
    const gw_model *m = k->m;
    gw_gguf_writer *w = k->w;
    bool gpt2 = m->family == GW_FAMILY_GPT2;
    gw_gguf_writer_str(w, "general.architecture", k->arch);
    gw_gguf_writer_str(w, "general.type", "model");
    gw_gguf_writer_u32(w, "general.file_type", file_type(type));
    gw_gguf_writer_u32(w, "general.quantization_version", 2);
    gw_gguf_writer_u32(w, key(k, "context_length"), m->max_positions);
    gw_gguf_writer_u32(w, key(k, "embedding_length"), m->hidden);
    gw_gguf_writer_u32(w, key(k, "block_count"), m->layers);
    gw_gguf_writer_u32(w, key(k, "feed_forward_length"), m->ffn);
    gw_gguf_writer_u32(w, key(k, "vocab_size"), m->vocab);
    gw_gguf_writer_u32(w, key(k, "attention.head_count"), m->heads);
    gw_gguf_writer_u32(w, key(k, "attention.head_count_kv"), m->kv_heads);
    gw_gguf_writer_f32(
        w, key(k, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
        m->norm_eps);
    if (gpt2) return;
    gw_gguf_writer_u32(w, key(k, "attention.key_length"), m->head_dim);
    gw_gguf_writer_u32(w, key(k, "attention.value_length"), m->head_dim);
    gw_gguf_writer_u32(w, key(k, "rope.dimension_count"), m->head_dim);
    gw_gguf_writer_f32(w, key(k, "rope.freq_base"), m->rope_theta);
    if (m->rope_scaling != GW_ROPE_LINEAR) return;
    gw_gguf_writer_str(w, key(k, "rope.scaling.type"), "linear");
    gw_gguf_writer_f32(w, key(k, "rope.scaling.factor"), m->rope_factor);
}

static void put_ids(maker *k, const gw_token_ids *ids) {
    if (ids->bos >= 0) gw_gguf_writer_u32(k->w, "tokenizer.ggml.bos_token_id", ids->bos);
    if (ids->neos > 0) gw_gguf_writer_u32(k->w, "tokenizer.ggml.eos_token_id", ids->eos[0]);
    if (ids->pad >= 0) gw_gguf_writer_u32(k->w, "tokenizer.ggml.padding_token_id", ids->pad);
}

/* ---- tensors ---- */

static void sides(const gw_param *p, int64_t *out, int64_t *in) {
    *out = *in = 1;
    for (int i = 0; i < p->type.ndim; i++)
        *(p->rows > 0 && i >= p->rows ? in : out) *= p->type.dims[i].size;
}

static gw_ggml_type type_of(const gw_param *p, gw_ggml_type asked) {
    int64_t out, in;
    sides(p, &out, &in);
    if (p->rows == 0) return GW_GGML_F32;
    return in % gw_ggml_block_elems(asked) == 0 ? asked : GW_GGML_F16;
}

static bool is_first(const gw_param *params, int i) {
    for (int j = 0; j < i; j++)
        if (strcmp(params[j].gguf, params[i].gguf) == 0) return false;
    return true;
}

static void declare(maker *k, const gw_param *p, gw_ggml_type asked) {
    int64_t dims[2];
    sides(p, &dims[0], &dims[1]);
    dims[0] *= p->hf_parts;
    gw_gguf_writer_declare(k->w, p->gguf, type_of(p, asked), p->rows == 0 ? 1 : 2, dims);
}

/* The row of a parameter that stands at row r of its tensor in the file. */
static int64_t row_at(const gw_param *p, int64_t r, int64_t head_dim) {
    if (!p->rope_rows) return r;
    int64_t h = r / head_dim, i = r % head_dim;
    return h * head_dim + (i % 2 ? head_dim / 2 : 0) + i / 2;
}

static gw_status put_param(maker *k, const gw_exec *x, const gw_param *p, gw_ggml_type asked,
                           gw_diags *dg) {
    gw_tensor t = gw_exec_tensor(x, gw_exec_find(x, p->name));
    gw_ggml_type type = type_of(p, asked);
    int64_t out, in, width = gw_dtype_bits(t.dtype) / 8;
    sides(p, &out, &in);
    if (p->rows == 0) {
        in = out;
        out = 1;
    }
    int64_t bytes = in / gw_ggml_block_elems(type) * gw_ggml_block_bytes(type);
    float *row = gw_mem_alloc(sizeof *row * (size_t)in);
    void *stored = gw_mem_alloc((size_t)bytes);
    gw_status st = GW_OK;
    for (int64_t r = 0; r < out && st == GW_OK; r++) {
        int64_t from = p->rows == 0 ? 0 : row_at(p, r, k->m->head_dim);
        gw_floats_from(t.dtype, (const char *)t.data + from * in * width, in, row);
        gw_ggml_quantise(type, row, in, stored);
        st = gw_gguf_writer_put(k->w, stored, bytes, dg);
    }
    gw_mem_free(row);
    gw_mem_free(stored);
    return st;
}

/* All parts of a tensor, in their order. */
static gw_status put(maker *k, const gw_exec *x, const gw_param *params, int n, int first,
                     gw_ggml_type asked, gw_diags *dg) {
    for (int part = 0; part < params[first].hf_parts; part++)
        for (int i = first; i < n; i++)
            if (params[i].hf_part == part && strcmp(params[i].gguf, params[first].gguf) == 0)
                GW_TRY(put_param(k, x, &params[i], asked, dg));
    return GW_OK;
}

/* The factors that Llama 3.1 divides frequencies by. */
static void rope_factors(const gw_model *m, float *out) {
    int64_t n = m->head_dim / 2;
    for (int64_t i = 0; i < n; i++) {
        double freq = pow(m->rope_theta, -(double)i / (double)n);
        double turns = (double)m->rope_original * freq / (2 * 3.14159265358979323846);
        double smooth = (turns - m->rope_low) / (m->rope_high - m->rope_low);
        out[i] = turns > m->rope_high  ? 1
                 : turns < m->rope_low ? (float)m->rope_factor
                                       : (float)(1 / ((1 - smooth) / m->rope_factor + smooth));
    }
}

static gw_status write_all(maker *k, const gw_exec *x, const gw_param *params, int n,
                           gw_ggml_type type, gw_diags *dg) {
    int64_t pairs = k->m->head_dim / 2;
    bool factors = k->m->rope_scaling == GW_ROPE_LLAMA3;
    if (factors) gw_gguf_writer_declare(k->w, "rope_freqs.weight", GW_GGML_F32, 1, &pairs);
    for (int i = 0; i < n; i++)
        if (is_first(params, i)) declare(k, &params[i], type);
    GW_TRY(gw_gguf_writer_begin(k->w, dg));
    if (factors) {
        float *f = gw_arena_new(&k->a, float, pairs);
        rope_factors(k->m, f);
        GW_TRY(gw_gguf_writer_put(k->w, f, pairs * (int64_t)sizeof *f, dg));
    }
    for (int i = 0; i < n; i++)
        if (is_first(params, i)) GW_TRY(put(k, x, params, n, i, type, dg));
    return gw_gguf_writer_finish(k->w, dg);
}

gw_status gw_weights_export_gguf(const gw_exec *x, const gw_model *m, const gw_param *params, int n,
                                 const char *path, gw_ggml_type type, const char *tokenizer,
                                 const gw_token_ids *ids, gw_diags *dg) {
    GW_TRY(check(m, dg));
    maker k = {.w = gw_gguf_writer_new(path), .m = m, .arch = architecture(m)};
    put_sizes(&k, type);
    put_ids(&k, ids);
    gw_status st = gw_gguf_put_tokenizer(k.w, tokenizer, m->vocab, dg);
    if (st == GW_OK) st = write_all(&k, x, params, n, type, dg);
    gw_gguf_writer_free(k.w);
    gw_arena_release(&k.a);
    return st;
}

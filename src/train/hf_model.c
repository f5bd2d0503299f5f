// SPDX-License-Identifier: Apache-2.0
// The public form of a configuration and ours hold the same facts under other names; this is the
// dictionary.
#include "train/hf_model.h"

#include <stdio.h>
#include <string.h>

static gw_family family_of(gw_hf_family f) {
    switch (f) {
    case GW_HF_GPT2: return GW_FAMILY_GPT2;
    case GW_HF_LLAMA: return GW_FAMILY_LLAMA;
    case GW_HF_QWEN2: return GW_FAMILY_QWEN2;
    case GW_HF_QWEN3: return GW_FAMILY_QWEN3;
    case GW_HF_MISTRAL: return GW_FAMILY_MISTRAL;
    case GW_HF_MIXTRAL: return GW_FAMILY_MIXTRAL;
    case GW_HF_QWEN3_MOE: return GW_FAMILY_QWEN3_MOE;
    case GW_HF_DEEPSEEK_V2:
    case GW_HF_DEEPSEEK_V3: return GW_FAMILY_DEEPSEEK;
    }
    return GW_FAMILY_LLAMA;
}

static gw_status check_activation(const gw_hf_config *c, const char *file, gw_diags *dg) {
    bool ok = c->family == GW_HF_GPT2 ? c->act == GW_HF_GELU_TANH || c->act == GW_HF_GELU
                                      : c->act == GW_HF_SILU;
    if (ok) return GW_OK;
    return gw_fail_at(dg, GW_ERR_UNSUPPORTED, "hf-activation", (gw_where){.file = file},
                      "the %s family is built with %s; this configuration asks for another "
                      "activation",
                      c->model_type, c->family == GW_HF_GPT2 ? "GELU" : "SiLU");
}

/* How load is kept even is training's business; config.json has the weight of a loss alone. */
static void experts_from_hf(const gw_hf_config *c, gw_model *m) {
    const gw_hf_moe *from = &c->moe;
    gw_moe *e = &m->moe;
    e->experts = from->experts;
    e->top = from->top;
    e->ffn = from->ffn;
    e->shared = from->shared;
    e->dense_layers = from->dense_layers;
    e->groups = from->groups;
    e->group_limit = from->group_limit;
    e->score = from->sigmoid ? GW_MOE_SIGMOID : GW_MOE_SOFTMAX;
    e->normalize = from->normalize;
    e->scale = from->scale;
    e->balance_weight = from->aux_weight;
    if (c->family == GW_HF_DEEPSEEK_V2) {
        e->choice_bias = false;
        e->balance = GW_MOE_BALANCE_SEQUENCE;
        e->bias_rate = 0;
    }
    const gw_hf_latent *l = &c->latent;
    m->mla = (gw_mla){
        .q_rank = l->q_rank, .kv_rank = l->kv_rank, .nope = l->nope, .rope = l->rope, .v = l->v};
}

gw_status gw_model_from_hf(const gw_hf_config *c, const char *file, gw_model *m, gw_diags *dg) {
    GW_TRY(check_activation(c, file, dg));
    *m = gw_model_defaults(family_of(c->family));
    m->layers = c->layers;
    m->hidden = c->hidden_size;
    m->heads = c->heads;
    m->kv_heads = c->kv_heads;
    m->head_dim = c->head_dim;
    m->ffn = c->intermediate_size;
    m->vocab = c->vocab_size;
    m->max_positions = c->max_positions;
    m->norm_eps = c->norm_eps;
    m->tie = c->tie_word_embeddings;
    m->qkv_bias = c->qkv_bias;
    m->out_bias = c->attention_out_bias;
    m->mlp_bias = c->mlp_bias;
    m->qk_norm = c->qk_norm;
    m->gelu_tanh = c->act == GW_HF_GELU_TANH;
    m->init_std = c->initializer_range > 0 ? c->initializer_range : m->init_std;
    m->rope_theta = c->rope_theta > 0 ? c->rope_theta : m->rope_theta;
    if (c->rope == GW_HF_ROPE_LINEAR) m->rope_scaling = GW_ROPE_LINEAR;
    if (c->rope == GW_HF_ROPE_LLAMA3) m->rope_scaling = GW_ROPE_LLAMA3;
    if (c->rope == GW_HF_ROPE_YARN) m->rope_scaling = GW_ROPE_YARN;
    m->rope_factor = c->rope_factor;
    m->rope_low = c->rope_low;
    m->rope_high = c->rope_high;
    m->rope_original = c->rope_original_max;
    m->rope_mscale = c->rope_mscale;
    m->rope_mscale_all = c->rope_mscale_all;
    if (c->moe.experts > 0) experts_from_hf(c, m);
    for (int64_t l = 0; l < c->layers && l < GW_MODEL_MAX_LAYERS; l++) {
        m->windowed[l] = c->sliding_window > 0 && c->windowed[l];
        if (m->windowed[l]) m->window = c->sliding_window;
    }
    return gw_model_check(m, dg);
}

static gw_hf_family hf_family_of(const gw_model *m) {
    switch (m->family) {
    case GW_FAMILY_GPT2: return GW_HF_GPT2;
    case GW_FAMILY_LLAMA: return GW_HF_LLAMA;
    case GW_FAMILY_QWEN2: return GW_HF_QWEN2;
    case GW_FAMILY_QWEN3: return GW_HF_QWEN3;
    case GW_FAMILY_MISTRAL: return GW_HF_MISTRAL;
    case GW_FAMILY_MIXTRAL: return GW_HF_MIXTRAL;
    case GW_FAMILY_QWEN3_MOE: return GW_HF_QWEN3_MOE;
    case GW_FAMILY_DEEPSEEK:
        return m->moe.score == GW_MOE_SIGMOID ? GW_HF_DEEPSEEK_V3 : GW_HF_DEEPSEEK_V2;
    case GW_FAMILY_COUNT: break;
    }
    return GW_HF_LLAMA;
}

static void experts_to_hf(const gw_model *m, gw_hf_config *c) {
    const gw_moe *e = &m->moe;
    c->moe = (gw_hf_moe){.experts = e->experts,
                         .top = e->top,
                         .ffn = e->ffn,
                         .shared = e->shared,
                         .dense_layers = e->dense_layers,
                         .groups = e->groups,
                         .group_limit = e->group_limit,
                         .sigmoid = e->score == GW_MOE_SIGMOID,
                         .normalize = e->normalize,
                         .scale = e->scale,
                         .aux_weight = e->balance_weight};
    const gw_mla *l = &m->mla;
    c->latent = (gw_hf_latent){
        .q_rank = l->q_rank, .kv_rank = l->kv_rank, .nope = l->nope, .rope = l->rope, .v = l->v};
}

void gw_model_to_hf(const gw_model *m, int64_t bos, int64_t eos, const char *dtype,
                    gw_hf_config *c) {
    gw_hf_config_defaults(c, hf_family_of(m));
    if (m->moe.experts > 0) experts_to_hf(m, c);
    c->vocab_size = m->vocab;
    c->hidden_size = m->hidden;
    c->intermediate_size = m->ffn;
    c->layers = m->layers;
    c->heads = m->heads;
    c->kv_heads = m->kv_heads;
    c->head_dim = m->head_dim;
    c->max_positions = m->max_positions;
    c->act = m->family != GW_FAMILY_GPT2 ? GW_HF_SILU : m->gelu_tanh ? GW_HF_GELU_TANH : GW_HF_GELU;
    c->norm_eps = m->norm_eps;
    c->tie_word_embeddings = m->tie;
    c->qkv_bias = m->qkv_bias;
    c->attention_out_bias = m->out_bias;
    c->mlp_bias = m->mlp_bias;
    c->qk_norm = m->qk_norm;
    c->initializer_range = m->init_std;
    c->embd_dropout = c->resid_dropout = m->dropout;
    c->attention_dropout = 0;
    if (m->family != GW_FAMILY_GPT2) {
        c->rope = m->rope_scaling == GW_ROPE_LLAMA3   ? GW_HF_ROPE_LLAMA3
                  : m->rope_scaling == GW_ROPE_YARN   ? GW_HF_ROPE_YARN
                  : m->rope_scaling == GW_ROPE_LINEAR ? GW_HF_ROPE_LINEAR
                                                      : GW_HF_ROPE_DEFAULT;
        c->rope_theta = m->rope_theta;
        if (m->rope_scaling != GW_ROPE_NONE) c->rope_factor = m->rope_factor;
        c->rope_mscale = m->rope_mscale;
        c->rope_mscale_all = m->rope_mscale_all;
        if (m->rope_scaling == GW_ROPE_LLAMA3 || m->rope_scaling == GW_ROPE_YARN) {
            c->rope_low = m->rope_low;
            c->rope_high = m->rope_high;
            c->rope_original_max = m->rope_original;
        }
    }
    c->sliding_window = -1;
    memset(c->windowed, 0, sizeof c->windowed);
    for (int64_t l = 0; l < m->layers; l++)
        if (m->windowed[l]) {
            c->windowed[l] = true;
            c->sliding_window = m->window;
        }
    c->bos_token_id = bos;
    c->neos = 0;
    if (eos >= 0) c->eos_token_id[c->neos++] = eos;
    snprintf(c->dtype, sizeof c->dtype, "%s", dtype);
}

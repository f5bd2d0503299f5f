// SPDX-License-Identifier: Apache-2.0
// Named presets: the public sizes of each family.
//
// Sources: GPT-2 (Radford et al. 2019 and the released configurations), "The Llama 3 Herd of
// Models" table 3 and the released configurations (vocabulary 128,256; rope scaling of 3.1), the
// Qwen2.5 and Qwen3 technical reports and released configurations, SmolLM2's released
// configurations. Mistral 7B v0.1, Mixtral 8x7B v0.1 and 8x22B v0.1 and the DeepSeek-V2 and -V3
// models as released (V3 without its extra prediction layer). Residual nets: He et al. 2015,
// table 1.
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "model/model.h"
#include "model/resnet.h" /* gw_resnet_of_depth */

typedef struct preset {
    const char *name;
    gw_family family;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    double theta, eps;
    bool tie;
    bool llama31; /* rope scaling of Llama 3.1: 8, 1, 4, 8192 */
    int64_t window;
} preset;

#define GPT2(name, l, d, h)                                                                        \
    {                                                                                              \
        name, GW_FAMILY_GPT2, l, d, h, h, (d) / (h), 4 * (d), 50257, 1024, 10000, 1e-5, true,      \
            false, 0                                                                               \
    }
#define LLAMA(name, l, d, h, g, f, p, l31)                                                         \
    { name, GW_FAMILY_LLAMA, l, d, h, g, 128, f, 128256, p, 500000, 1e-5, false, l31, 0 }
#define SMOL(name, l, d, h, g, f, p, theta)                                                        \
    { name, GW_FAMILY_LLAMA, l, d, h, g, 64, f, 49152, p, theta, 1e-5, true, false, 0 }
#define QWEN2(name, l, d, h, g, k, f, v, tie)                                                      \
    { name, GW_FAMILY_QWEN2, l, d, h, g, k, f, v, 32768, 1000000, 1e-6, tie, false, 0 }
#define QWEN3(name, l, d, h, g, f, tie)                                                            \
    { name, GW_FAMILY_QWEN3, l, d, h, g, 128, f, 151936, 40960, 1000000, 1e-6, tie, false, 0 }

static const preset presets[] = {
    GPT2("gpt2", 12, 768, 12),
    GPT2("gpt2-medium", 24, 1024, 16),
    GPT2("gpt2-large", 36, 1280, 20),
    GPT2("gpt2-xl", 48, 1600, 25),
    LLAMA("llama3-8b", 32, 4096, 32, 8, 14336, 8192, false),
    LLAMA("llama3-70b", 80, 8192, 64, 8, 28672, 8192, false),
    LLAMA("llama3.1-8b", 32, 4096, 32, 8, 14336, 131072, true),
    LLAMA("llama3.1-70b", 80, 8192, 64, 8, 28672, 131072, true),
    LLAMA("llama3-405b", 126, 16384, 128, 8, 53248, 131072, true),
    {"llama2-7b", GW_FAMILY_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, 10000, 1e-5, false,
     false, 0},
    {"llama2-70b", GW_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 32000, 4096, 10000, 1e-5, false,
     false, 0},
    SMOL("smollm2-135m", 30, 576, 9, 3, 1536, 8192, 100000),
    SMOL("smollm2-360m", 32, 960, 15, 5, 2560, 8192, 100000),
    SMOL("smollm2-1.7b", 24, 2048, 32, 32, 8192, 8192, 130000),
    QWEN2("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936, true),
    QWEN2("qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, 151936, true),
    QWEN2("qwen2.5-3b", 36, 2048, 16, 2, 128, 11008, 151936, true),
    QWEN2("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, false),
    QWEN2("qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064, false),
    QWEN2("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, false),
    QWEN2("qwen2.5-72b", 80, 8192, 64, 8, 128, 29568, 152064, false),
    QWEN3("qwen3-0.6b", 28, 1024, 16, 8, 3072, true),
    QWEN3("qwen3-1.7b", 28, 2048, 16, 8, 6144, true),
    QWEN3("qwen3-4b", 36, 2560, 32, 8, 9728, true),
    QWEN3("qwen3-8b", 36, 4096, 32, 8, 12288, false),
    QWEN3("qwen3-14b", 40, 5120, 40, 8, 17408, false),
    QWEN3("qwen3-32b", 64, 5120, 64, 8, 25600, false),
    {"mistral-7b", GW_FAMILY_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 10000, 1e-5, false,
     false, 4096},
    {"mixtral-8x7b", GW_FAMILY_MIXTRAL, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1000000, 1e-5,
     false, false, 0},
    {"mixtral-8x22b", GW_FAMILY_MIXTRAL, 56, 6144, 48, 8, 128, 16384, 32768, 65536, 1000000, 1e-5,
     false, false, 0},
    {"qwen3-30b-a3b", GW_FAMILY_QWEN3_MOE, 48, 2048, 32, 4, 128, 6144, 151936, 40960, 1000000, 1e-6,
     false, false, 0},
    {"qwen3-235b-a22b", GW_FAMILY_QWEN3_MOE, 94, 4096, 64, 4, 128, 12288, 151936, 40960, 1000000,
     1e-6, false, false, 0},
    {"deepseek-v2-lite", GW_FAMILY_DEEPSEEK, 27, 2048, 16, 16, 192, 10944, 102400, 163840, 10000,
     1e-6, false, false, 0},
    {"deepseek-v2", GW_FAMILY_DEEPSEEK, 60, 5120, 128, 128, 192, 12288, 102400, 163840, 10000, 1e-6,
     false, false, 0},
    {"deepseek-v3", GW_FAMILY_DEEPSEEK, 61, 7168, 128, 128, 192, 18432, 129280, 163840, 10000, 1e-6,
     false, false, 0},
};

/* What a preset above has beside it. V2 judges a group by its best expert, V3 by its best two. */
static const struct {
    const char *name;
    int64_t experts, top, ffn, shared, dense_layers;
    int64_t groups, group_limit;
    gw_moe_score score;
    bool normalize;
    double scale, balance_weight;
    gw_mla mla;
} moes[] = {
    {"mixtral-8x7b", 8, 2, 14336, 0, 0, 1, 1, GW_MOE_SOFTMAX, true, 1, 0.02, {0}},
    {"mixtral-8x22b", 8, 2, 16384, 0, 0, 1, 1, GW_MOE_SOFTMAX, true, 1, 0.001, {0}},
    {"qwen3-30b-a3b", 128, 8, 768, 0, 0, 1, 1, GW_MOE_SOFTMAX, true, 1, 0.001, {0}},
    {"qwen3-235b-a22b", 128, 8, 1536, 0, 0, 1, 1, GW_MOE_SOFTMAX, true, 1, 0.001, {0}},
    {"deepseek-v2-lite",
     64,
     6,
     1408,
     2,
     1,
     1,
     1,
     GW_MOE_SOFTMAX,
     false,
     1,
     0.001,
     {0, 512, 128, 64, 128}},
    {"deepseek-v2",
     160,
     6,
     1536,
     2,
     1,
     8,
     3,
     GW_MOE_SOFTMAX,
     false,
     16,
     0.001,
     {1536, 512, 128, 64, 128}},
    {"deepseek-v3",
     256,
     8,
     2048,
     1,
     3,
     8,
     4,
     GW_MOE_SIGMOID,
     true,
     2.5,
     1e-4,
     {1536, 512, 128, 64, 128}},
};

static void set_experts(gw_model *m, const char *name) {
    size_t i = 0;
    while (i < GW_COUNT(moes) && strcmp(moes[i].name, name) != 0) i++;
    if (i == GW_COUNT(moes)) return;
    gw_moe *e = &m->moe;
    e->experts = moes[i].experts;
    e->top = moes[i].top;
    e->ffn = moes[i].ffn;
    e->shared = moes[i].shared;
    e->dense_layers = moes[i].dense_layers;
    e->groups = moes[i].groups;
    e->group_limit = moes[i].group_limit;
    e->score = moes[i].score;
    e->normalize = moes[i].normalize;
    e->scale = moes[i].scale;
    e->balance_weight = moes[i].balance_weight;
    m->mla = moes[i].mla;
    if (m->family != GW_FAMILY_DEEPSEEK) return;
    if (e->score == GW_MOE_SOFTMAX) {
        e->choice_bias = false;
        e->balance = GW_MOE_BALANCE_SEQUENCE;
        e->bias_rate = 0;
    }
    m->rope_scaling = GW_ROPE_YARN;
    m->rope_factor = 40;
    m->rope_low = 1;
    m->rope_high = 32;
    m->rope_original = 4096;
    m->rope_mscale = m->rope_mscale_all = m->mla.q_rank == 0 ? 0.707 : 1;
}

/* Residual nets, by depth. */
static const struct {
    const char *name;
    int depth;
} nets[] = {
    {"resnet18", 18}, {"resnet34", 34}, {"resnet50", 50}, {"resnet101", 101}, {"resnet152", 152}};

const char *gw_model_preset_name(int i) {
    return i >= 0 && i < (int)GW_COUNT(presets) ? presets[i].name : NULL;
}

const char *gw_model_net_name(int i) {
    return i >= 0 && i < (int)GW_COUNT(nets) ? nets[i].name : NULL;
}

bool gw_model_preset(const char *name, gw_model *out) {
    for (size_t i = 0; i < GW_COUNT(presets); i++) {
        const preset *p = &presets[i];
        bool alias = strcmp(name, "gpt2-124m") == 0 && i == 0;
        if (strcmp(p->name, name) != 0 && !alias) continue;
        gw_model m = gw_model_defaults(p->family);
        m.layers = p->layers;
        m.hidden = p->hidden;
        m.heads = p->heads;
        m.kv_heads = p->kv_heads;
        m.head_dim = p->head_dim;
        m.ffn = p->ffn;
        m.vocab = p->vocab;
        m.max_positions = p->max_positions;
        m.rope_theta = p->theta;
        m.norm_eps = p->eps;
        m.tie = p->tie;
        m.window = p->window;
        for (int64_t l = 0; l < p->layers; l++) m.windowed[l] = p->window > 0;
        if (p->llama31) {
            m.rope_scaling = GW_ROPE_LLAMA3;
            m.rope_factor = 8;
            m.rope_low = 1;
            m.rope_high = 4;
            m.rope_original = 8192;
        }
        set_experts(&m, p->name);
        *out = m;
        return true;
    }
    for (size_t i = 0; i < GW_COUNT(nets); i++)
        if (strcmp(nets[i].name, name) == 0) return gw_resnet_of_depth(nets[i].depth, out);
    return false;
}

// SPDX-License-Identifier: Apache-2.0
// What the families are: switches, sanity of dimensions, and the list of parameters with their
// public names.
//
// The parameter list is the one place that knows how a logical tensor is called and stored
// elsewhere. Logical tensors are unfused and [out.., in..]; GPT-2's public form is fused and
// transposed (Conv1D), which the table says per tensor (hf_transposed, hf_part of hf_parts). GGUF
// files of the llama architecture hold the rows of q and k in interleaved order (rope_rows); ours
// is the half-split order of Hugging Face.
//
// Experts of a layer are one logical tensor [e ..] here and a tensor each there (hf_each). Of
// DeepSeek's fused projections each logical tensor has some rows of every head (hf_rows), and the
// rows that rope turns are interleaved pairs there.
//
// Counting. N counts every parameter once (a tied head once). FLOPs a token are 6 per parameter
// that takes part in a matrix product of the token: all but lookup tables and experts that are not
// chosen; a tied table counts as the head. Attention adds 12*L*(h*k)*s with full attention and half
// of it with causal attention (a window lowers it further); k is the mean size of a key and a
// value.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "model/model.h"
#include "model/resnet.h" /* gw_resnet_check, gw_resnet_params */

static const char *const family_names[] = {"gpt2",    "llama",   "qwen2",     "qwen3",
                                           "mistral", "mixtral", "qwen3_moe", "deepseek"};

const char *gw_family_name(gw_family f) {
    if (f == GW_FAMILY_RESNET) return "resnet";
    GW_ASSERT(f < GW_FAMILY_COUNT);
    return family_names[f];
}

bool gw_family_parse(const char *name, gw_family *out) {
    for (int i = 0; i < GW_FAMILY_COUNT; i++)
        if (strcmp(name, family_names[i]) == 0) {
            *out = (gw_family)i;
            return true;
        }
    if (strcmp(name, "resnet") != 0) return false;
    *out = GW_FAMILY_RESNET;
    return true;
}

/* One group, dropless, gates of the chosen ones that sum to 1. */
static const gw_moe plain_moe = {
    .experts = 8,
    .top = 2,
    .normalize = true,
    .scale = 1,
    .groups = 1,
    .group_limit = 1,
    .balance = GW_MOE_BALANCE_BATCH,
    .balance_weight = 0.001,
};

/* DeepSeek-V3's scores and its ways of keeping load even: sections 2.1.2 and 4.2 of its report. */
static void deepseek_defaults(gw_model *m) {
    m->norm_eps = 1e-6;
    m->mla = (gw_mla){.kv_rank = 512, .nope = 128, .rope = 64, .v = 128};
    m->moe = plain_moe;
    m->moe.shared = m->moe.dense_layers = 1;
    m->moe.score = GW_MOE_SIGMOID;
    m->moe.scale = 2.5;
    m->moe.choice_bias = true;
    m->moe.balance = GW_MOE_BALANCE_BIAS;
    m->moe.balance_weight = 1e-4;
    m->moe.bias_rate = 1e-3;
}

gw_model gw_model_defaults(gw_family f) {
    gw_model m = {.family = f,
                  .max_positions = 2048,
                  .norm_eps = 1e-5,
                  .rope_theta = 10000,
                  .rope_factor = 1,
                  .gelu_tanh = true,
                  .init_std = 0.02};
    switch (f) {
    case GW_FAMILY_GPT2:
        m.tie = m.qkv_bias = m.out_bias = m.mlp_bias = true;
        m.max_positions = 1024;
        break;
    case GW_FAMILY_LLAMA: break;
    case GW_FAMILY_QWEN2:
        m.qkv_bias = true;
        m.norm_eps = 1e-6;
        m.rope_theta = 1e6;
        break;
    case GW_FAMILY_QWEN3:
        m.qk_norm = true;
        m.norm_eps = 1e-6;
        m.rope_theta = 1e6;
        break;
    case GW_FAMILY_MISTRAL: break;
    case GW_FAMILY_MIXTRAL:
        m.rope_theta = 1e6;
        m.moe = plain_moe;
        break;
    case GW_FAMILY_QWEN3_MOE:
        m.qk_norm = true;
        m.norm_eps = 1e-6;
        m.rope_theta = 1e6;
        m.moe = plain_moe;
        break;
    case GW_FAMILY_DEEPSEEK: deepseek_defaults(&m); break;
    case GW_FAMILY_RESNET:
        m.resnet = (gw_resnet){.width = 64,
                               .image = 224,
                               .channels = 3,
                               .classes = 1000,
                               .momentum = 0.1,
                               .groups = 1,
                               .broadcast_buffers = true};
        break;
    }
    return m;
}

static void need(gw_status *st, gw_diags *dg, bool ok, const char *fmt, ...) GW_PRINTF(4, 5);
static void need(gw_status *st, gw_diags *dg, bool ok, const char *fmt, ...) {
    if (ok) return;
    char text[240];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    *st = GW_FAIL(dg, GW_ERR_CONFIG, "model-size", "%s", text);
}

/* Parameters as a real number, whatever the sizes: rounded, and never past the range. */
static double rough_count(const gw_model *m) {
    double d = (double)m->hidden, k = (double)m->head_dim, h = (double)m->heads;
    double attention = 2 * d * k * (h + (double)m->kv_heads);
    const gw_mla *a = &m->mla;
    if (a->kv_rank > 0) {
        double q = (double)a->q_rank, kv = (double)a->kv_rank;
        attention = d * h * (k + (double)a->v) + q * (d + h * k) +
                    kv * (d + h * (double)(a->nope + a->v)) + d * (double)a->rope;
    }
    double layer = attention + 3 * d * (double)m->ffn + 8 * d + (double)m->ffn;
    layer += (double)m->moe.experts * d +
             3 * d * (double)m->moe.ffn * ((double)m->moe.experts + (double)m->moe.shared);
    double tables = 2 * (double)m->vocab;
    if (m->family == GW_FAMILY_GPT2) tables += (double)m->max_positions;
    return d * tables + (double)m->layers * layer;
}

/* Far above what any machine holds, and far enough below 2^63 that the bits of weights, gradients
 * and optimizer states can be counted together. */
#define MAX_PARAMETERS 0x1p48

static bool has_moe(gw_family f) {
    return f == GW_FAMILY_MIXTRAL || f == GW_FAMILY_QWEN3_MOE || f == GW_FAMILY_DEEPSEEK;
}

static bool size_ok(int64_t x, int64_t least) { return x >= least && x < INT64_C(1) << 31; }

static void check_groups(const gw_moe *e, gw_status *st, gw_diags *dg) {
    bool divides = e->groups > 0 && e->experts % e->groups == 0;
    need(st, dg, divides, "model.moe.groups (%lld) must divide model.moe.experts (%lld)",
         (long long)e->groups, (long long)e->experts);
    need(st, dg, !divides || (e->group_limit > 0 && e->group_limit <= e->groups),
         "model.moe.group_limit is %lld; it must be 1 to model.moe.groups (%lld)",
         (long long)e->group_limit, (long long)e->groups);
    need(st, dg, !divides || e->top <= e->group_limit * (e->experts / e->groups),
         "model.moe.top (%lld) is more than the %lld experts of %lld groups", (long long)e->top,
         (long long)(e->group_limit * (e->experts / GW_MAX(e->groups, 1))),
         (long long)e->group_limit);
}

static void check_moe(const gw_model *m, gw_status *st, gw_diags *dg) {
    const gw_moe *e = &m->moe;
    if (!has_moe(m->family)) {
        need(st, dg, e->experts == 0, "the %s family has no experts (model.moe.experts is %lld)",
             gw_family_name(m->family), (long long)e->experts);
        return;
    }
    need(st, dg, e->experts > 0 && e->experts <= 65536,
         "model.moe.experts is %lld; it must be 1 to 65536", (long long)e->experts);
    need(st, dg, e->top > 0 && e->top <= GW_MAX(e->experts, 1),
         "model.moe.top is %lld; it must be 1 to model.moe.experts (%lld)", (long long)e->top,
         (long long)e->experts);
    need(st, dg, size_ok(e->ffn, 1), "model.moe.ffn is %lld; it must be 1 to 2^31 - 1",
         (long long)e->ffn);
    need(st, dg,
         e->shared >= 0 && e->shared <= 65536 && (double)e->shared * (double)e->ffn < 2147483648.0,
         "model.moe.shared is %lld; with model.moe.ffn it must make 0 to 2^31 - 1",
         (long long)e->shared);
    need(st, dg, e->dense_layers >= 0 && e->dense_layers <= GW_MAX(m->layers, 0),
         "model.moe.dense_layers is %lld; it must be 0 to model.layers (%lld)",
         (long long)e->dense_layers, (long long)m->layers);
    bool deepseek = m->family == GW_FAMILY_DEEPSEEK;
    need(st, dg, deepseek || (e->shared == 0 && e->dense_layers == 0),
         "model.moe.shared and model.moe.dense_layers are for the deepseek family");
    if (e->experts > 0) check_groups(e, st, dg);
    need(st, dg, e->balance != GW_MOE_BALANCE_BIAS || e->choice_bias,
         "model.moe.balance is bias, which needs model.moe.choice_bias");
    const double reals[] = {e->scale, e->balance_weight, e->z_weight, e->bias_rate, e->capacity};
    static const char *const names[] = {"scale", "balance_weight", "z_weight", "bias_rate",
                                        "capacity"};
    for (int i = 0; i < (int)GW_COUNT(reals); i++)
        need(st, dg, reals[i] >= (i == 0 ? 1e-30 : 0) && reals[i] < 1e30,
             "model.moe.%s is %g; it must be %s, and finite", names[i], reals[i],
             i == 0 ? "above 0" : "0 or more");
}

static void check_mla(const gw_model *m, gw_status *st, gw_diags *dg) {
    const gw_mla *a = &m->mla;
    if (m->family != GW_FAMILY_DEEPSEEK) {
        need(st, dg, a->kv_rank == 0,
             "latent attention (model.mla.kv_rank) is for the deepseek "
             "family");
        return;
    }
    need(st, dg, size_ok(a->kv_rank, 1), "model.mla.kv_rank is %lld; it must be 1 to 2^31 - 1",
         (long long)a->kv_rank);
    need(st, dg, size_ok(a->q_rank, 0), "model.mla.q_rank is %lld; it must be 0 to 2^31 - 1",
         (long long)a->q_rank);
    need(st, dg, a->nope > 0 && a->nope <= 1024 && a->v > 0 && a->v <= 1024,
         "model.mla.nope is %lld and model.mla.v %lld; each must be 1 to 1024", (long long)a->nope,
         (long long)a->v);
    need(st, dg, a->rope > 0 && a->rope <= 1024 && a->rope % 2 == 0,
         "model.mla.rope is %lld; it must be even, 2 to 1024", (long long)a->rope);
    need(st, dg, m->head_dim == a->nope + a->rope && m->kv_heads == m->heads,
         "deepseek has heads of model.mla.nope + model.mla.rope components and as many key and "
         "value heads as heads");
}

gw_status gw_model_check(const gw_model *m, gw_diags *dg) {
    if (m->family == GW_FAMILY_RESNET) return gw_resnet_check(m, dg);
    gw_status st = GW_OK;
    const int64_t top = INT64_C(1) << 31;
    need(&st, dg, m->layers > 0 && m->layers <= GW_MODEL_MAX_LAYERS,
         "model.layers is %lld; it must be 1 to %d", (long long)m->layers, GW_MODEL_MAX_LAYERS);
    need(&st, dg, m->hidden > 0 && m->hidden < top,
         "model.hidden is %lld; it must be 1 to 2^31 - 1", (long long)m->hidden);
    need(&st, dg, m->heads > 0 && m->heads < top, "model.heads is %lld; it must be 1 to 2^31 - 1",
         (long long)m->heads);
    need(&st, dg, m->ffn > 0 && m->ffn < top, "model.ffn is %lld; it must be 1 to 2^31 - 1",
         (long long)m->ffn);
    need(&st, dg, m->vocab > 0 && m->vocab < top, "model.vocab is %lld; it must be 1 to 2^31 - 1",
         (long long)m->vocab);
    need(&st, dg, m->max_positions > 0 && m->max_positions < top,
         "model.max_positions is %lld; it must be 1 to 2^31 - 1", (long long)m->max_positions);
    need(&st, dg, m->kv_heads > 0 && (m->heads <= 0 || m->heads % GW_MAX(m->kv_heads, 1) == 0),
         "model.kv_heads (%lld) must divide model.heads (%lld)", (long long)m->kv_heads,
         (long long)m->heads);
    need(&st, dg, m->head_dim > 0 && m->head_dim <= 1024,
         "model.head_dim is %lld; it must be 1 to 1024 (give it when model.heads does not divide "
         "model.hidden)",
         (long long)m->head_dim);
    bool rope = m->family != GW_FAMILY_GPT2;
    bool whole = m->family != GW_FAMILY_DEEPSEEK; /* which turns a part of a head */
    need(&st, dg, !rope || !whole || m->head_dim % 2 == 0,
         "model.head_dim (%lld) must be even for rope", (long long)m->head_dim);
    need(&st, dg,
         rope || (m->kv_heads == m->heads &&
                  (double)m->head_dim * (double)m->heads == (double)m->hidden),
         "gpt2 has heads x head_dim = hidden and as many kv heads as heads");
    need(&st, dg, m->window >= 0, "model.sliding_window is %lld; it must not be negative",
         (long long)m->window);
    need(&st, dg, m->dropout >= 0 && m->dropout < 1, "model.dropout is %g; it must be in [0, 1)",
         m->dropout);
    need(&st, dg, m->dropout == 0 || m->family == GW_FAMILY_GPT2,
         "model.dropout is only for the gpt2 family");
    need(&st, dg, m->norm_eps > 0 && isfinite(m->norm_eps),
         "model.norm_eps is %g; it must be positive and finite", m->norm_eps);
    need(&st, dg, m->init_std >= 0 && isfinite(m->init_std),
         "model.init_std is %g; it must not be negative, and finite", m->init_std);
    need(&st, dg, !rope || (m->rope_theta > 0 && isfinite(m->rope_theta)),
         "model.rope_theta is %g; it must be positive and finite", m->rope_theta);
    need(&st, dg,
         m->rope_scaling == GW_ROPE_NONE || (m->rope_factor >= 1 && isfinite(m->rope_factor)),
         "model.rope_scaling.factor is %g; it must be at least 1, and finite", m->rope_factor);
    need(&st, dg,
         m->rope_scaling != GW_ROPE_YARN ||
             (m->rope_low > 0 && m->rope_high > m->rope_low && isfinite(m->rope_high) &&
              m->rope_original > 0 && m->rope_theta != 1),
         "yarn rope scaling needs beta_fast above beta_slow above 0, original_max_positions, and a "
         "rope_theta other than 1");
    need(&st, dg,
         m->rope_mscale >= 0 && m->rope_mscale < 1e6 && m->rope_mscale_all >= 0 &&
             m->rope_mscale_all < 1e6,
         "yarn's mscale %g and mscale_all_dim %g must not be negative", m->rope_mscale,
         m->rope_mscale_all);
    check_moe(m, &st, dg);
    check_mla(m, &st, dg);
    need(&st, dg,
         m->rope_scaling != GW_ROPE_LLAMA3 || (m->rope_high > m->rope_low && m->rope_original > 0),
         "llama3 rope scaling needs high_freq_factor above low_freq_factor and "
         "original_max_positions");
    if (st == GW_OK)
        need(&st, dg, rough_count(m) <= MAX_PARAMETERS,
             "the model is too large: model.layers, hidden, ffn, heads, head_dim and vocab make "
             "some %.2g parameters, and at most 2^48 can be planned",
             rough_count(m));
    return st;
}

/* ---- parameters ---- */

typedef struct lister {
    const gw_model *m;
    gw_arena *a;
    gw_param *list;
    int n, cap;
    int layer; /* -1 outside */
} lister;

static gw_param *push(lister *s, const char *name, const char *dims, gw_init init) {
    GW_ASSERT(s->n < s->cap);
    gw_param *p = &s->list[s->n++];
    *p = (gw_param){.init = init, .hf_parts = 1};
    p->name = s->layer < 0 ? gw_arena_strdup(s->a, name)
                           : gw_arena_printf(s->a, "layers.%d.%s", s->layer, name);
    p->type = gw_type_make(GW_F32, dims);
    return p;
}

static void public_names(lister *s, gw_param *p, const char *hf, const char *gguf) {
    bool gpt2 = s->m->family == GW_FAMILY_GPT2;
    if (s->layer < 0) {
        p->hf = gw_arena_strdup(s->a, hf);
        p->gguf = gw_arena_strdup(s->a, gguf);
        return;
    }
    p->hf =
        gw_arena_printf(s->a, "%s.%d.%s", gpt2 ? "transformer.h" : "model.layers", s->layer, hf);
    p->gguf = gw_arena_printf(s->a, "blk.%d.%s", s->layer, gguf);
}

/* A matrix [rows.., cols..] of a block. */
static gw_param *matrix(lister *s, const char *name, const char *dims, int rows, const char *hf,
                        const char *gguf) {
    gw_param *p = push(s, name, dims, GW_INIT_NORMAL);
    p->std = s->m->init_std;
    p->decay = p->hidden = true;
    p->rows = rows;
    p->hf_transposed = s->m->family == GW_FAMILY_GPT2;
    public_names(s, p, hf, gguf);
    return p;
}

static gw_param *vector(lister *s, const char *name, const char *dims, gw_init init, const char *hf,
                        const char *gguf) {
    gw_param *p = push(s, name, dims, init);
    public_names(s, p, hf, gguf);
    return p;
}

static char *dims_of(lister *s, const char *fmt, ...) GW_PRINTF(2, 3);
static char *dims_of(lister *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *t = gw_arena_vprintf(s->a, fmt, ap);
    va_end(ap);
    return t;
}

#define LL(x) ((long long)(x))

static void norm(lister *s, const char *name, const char *hf, const char *gguf) {
    bool gpt2 = s->m->family == GW_FAMILY_GPT2;
    char *d = dims_of(s, "d%lld", LL(s->m->hidden));
    char *w = dims_of(s, "%s.weight", name), *hw = dims_of(s, "%s.weight", hf);
    vector(s, w, d, GW_INIT_ONES, hw, dims_of(s, "%s.weight", gguf));
    if (gpt2)
        vector(s, dims_of(s, "%s.bias", name), d, GW_INIT_ZEROS, dims_of(s, "%s.bias", hf),
               dims_of(s, "%s.bias", gguf));
}

/* One of q, k, v: c is 'q', 'k' or 'v', heads its head dimension ("h12" or "g4"). */
static void projection(lister *s, char c, const char *heads) {
    const gw_model *m = s->m;
    bool gpt2 = m->family == GW_FAMILY_GPT2;
    char *hf = gpt2 ? dims_of(s, "attn.c_attn") : dims_of(s, "self_attn.%c_proj", c);
    char *gguf = gpt2 ? dims_of(s, "attn_qkv") : dims_of(s, "attn_%c", c);
    int part = c == 'q' ? 0 : c == 'k' ? 1 : 2;
    gw_param *w = matrix(s, dims_of(s, "attn.%c.weight", c),
                         dims_of(s, "%s k%lld d%lld", heads, LL(m->head_dim), LL(m->hidden)), 2,
                         dims_of(s, "%s.weight", hf), dims_of(s, "%s.weight", gguf));
    w->rope_rows = c != 'v' && (m->family == GW_FAMILY_LLAMA || m->family == GW_FAMILY_MISTRAL);
    if (gpt2) {
        w->hf_part = part;
        w->hf_parts = 3;
    }
    if (!m->qkv_bias) return;
    gw_param *b =
        vector(s, dims_of(s, "attn.%c.bias", c), dims_of(s, "%s k%lld", heads, LL(m->head_dim)),
               GW_INIT_ZEROS, dims_of(s, "%s.bias", hf), dims_of(s, "%s.bias", gguf));
    b->rope_rows = w->rope_rows;
    b->hf_part = w->hf_part;
    b->hf_parts = w->hf_parts;
}

static void attention_params(lister *s) {
    const gw_model *m = s->m;
    bool gpt2 = m->family == GW_FAMILY_GPT2;
    char *h = dims_of(s, "h%lld", LL(m->heads)), *g = dims_of(s, "g%lld", LL(m->kv_heads));
    projection(s, 'q', h);
    projection(s, 'k', g);
    projection(s, 'v', g);
    if (m->qk_norm) {
        char *k = dims_of(s, "k%lld", LL(m->head_dim));
        vector(s, "attn.q_norm.weight", k, GW_INIT_ONES, "self_attn.q_norm.weight",
               "attn_q_norm.weight");
        vector(s, "attn.k_norm.weight", k, GW_INIT_ONES, "self_attn.k_norm.weight",
               "attn_k_norm.weight");
    }
    const char *hf = gpt2 ? "attn.c_proj" : "self_attn.o_proj";
    gw_param *o =
        matrix(s, "attn.o.weight", dims_of(s, "d%lld %s k%lld", LL(m->hidden), h, LL(m->head_dim)),
               1, dims_of(s, "%s.weight", hf), "attn_output.weight");
    o->std = m->init_std / __builtin_sqrt(2.0 * (double)m->layers);
    if (m->out_bias)
        vector(s, "attn.o.bias", dims_of(s, "d%lld", LL(m->hidden)), GW_INIT_ZEROS,
               dims_of(s, "%s.bias", hf), "attn_output.bias");
}

static double down_std(const lister *s) {
    return s->m->init_std / __builtin_sqrt(2.0 * (double)s->m->layers);
}

/* A latent's norm. */
static void latent_norm(lister *s, const char *name, int64_t rank, const char *hf,
                        const char *gguf) {
    vector(s, name, dims_of(s, "r%lld", LL(rank)), GW_INIT_ONES, hf, gguf);
}

/* Some rows of each head of a fused projection, whose last `pairs` rope turns. */
static void rows_of(gw_param *p, int64_t whole, int64_t block, int64_t stride, int64_t first,
                    int64_t pairs) {
    p->hf_rows = (gw_hf_rows){whole, block, stride, first, pairs};
}

/* Multi-head latent attention. kv_a_proj_with_mqa is the latent, then the rotated part of all keys;
 * kv_b_proj has for each head the rows of its key, then of its value. */
static void latent_params(lister *s) {
    const gw_model *m = s->m;
    const gw_mla *a = &m->mla;
    int64_t h = m->heads, k = m->head_dim, kv = a->nope + a->v;
    char *q = dims_of(s, "h%lld k%lld", LL(h), LL(k));
    gw_param *p;
    if (a->q_rank > 0) {
        matrix(s, "attn.q_a.weight", dims_of(s, "r%lld d%lld", LL(a->q_rank), LL(m->hidden)), 1,
               "self_attn.q_a_proj.weight", "attn_q_a.weight");
        latent_norm(s, "attn.q_a_norm.weight", a->q_rank, "self_attn.q_a_layernorm.weight",
                    "attn_q_a_norm.weight");
        p = matrix(s, "attn.q_b.weight", dims_of(s, "%s r%lld", q, LL(a->q_rank)), 2,
                   "self_attn.q_b_proj.weight", "attn_q_b.weight");
    } else {
        p = matrix(s, "attn.q.weight", dims_of(s, "%s d%lld", q, LL(m->hidden)), 2,
                   "self_attn.q_proj.weight", "attn_q.weight");
    }
    rows_of(p, h * k, k, k, 0, a->rope);
    p = matrix(s, "attn.kv_a.weight", dims_of(s, "r%lld d%lld", LL(a->kv_rank), LL(m->hidden)), 1,
               "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight");
    rows_of(p, a->kv_rank + a->rope, a->kv_rank, a->kv_rank, 0, 0);
    p = matrix(s, "attn.kv_rope.weight", dims_of(s, "c1 k%lld d%lld", LL(a->rope), LL(m->hidden)),
               2, "self_attn.kv_a_proj_with_mqa.weight", "attn_kv_a_mqa.weight");
    rows_of(p, a->kv_rank + a->rope, a->rope, a->rope, a->kv_rank, a->rope);
    latent_norm(s, "attn.kv_a_norm.weight", a->kv_rank, "self_attn.kv_a_layernorm.weight",
                "attn_kv_a_norm.weight");
    p = matrix(s, "attn.k_b.weight",
               dims_of(s, "h%lld k%lld r%lld", LL(h), LL(a->nope), LL(a->kv_rank)), 2,
               "self_attn.kv_b_proj.weight", "attn_kv_b.weight");
    rows_of(p, h * kv, a->nope, kv, 0, 0);
    p = matrix(s, "attn.v_b.weight",
               dims_of(s, "h%lld u%lld r%lld", LL(h), LL(a->v), LL(a->kv_rank)), 2,
               "self_attn.kv_b_proj.weight", "attn_kv_b.weight");
    rows_of(p, h * kv, a->v, kv, a->nope, 0);
    p = matrix(s, "attn.o.weight", dims_of(s, "d%lld h%lld u%lld", LL(m->hidden), LL(h), LL(a->v)),
               1, "self_attn.o_proj.weight", "attn_output.weight");
    p->std = down_std(s);
}

/* ---- experts ---- */

/* Mixtral's files have names of their own. */
static const char *expert_name(const lister *s, const char *name) {
    if (s->m->family != GW_FAMILY_MIXTRAL)
        return name[0] == 'g'   ? "mlp.experts.*.gate_proj.weight"
               : name[0] == 'u' ? "mlp.experts.*.up_proj.weight"
                                : "mlp.experts.*.down_proj.weight";
    return name[0] == 'g'   ? "block_sparse_moe.experts.*.w1.weight"
           : name[0] == 'u' ? "block_sparse_moe.experts.*.w3.weight"
                            : "block_sparse_moe.experts.*.w2.weight";
}

/* `hidden` is off: to Muon a stack of matrices is not one. */
static void expert_matrix(lister *s, const char *name) {
    const gw_model *m = s->m;
    bool down = name[0] == 'd';
    int64_t d = m->hidden, f = m->moe.ffn;
    gw_param *p = matrix(s, dims_of(s, "moe.%s.weight", name),
                         dims_of(s, down ? "e%lld d%lld f%lld" : "e%lld f%lld d%lld",
                                 LL(m->moe.experts), LL(down ? d : f), LL(down ? f : d)),
                         2, expert_name(s, name), dims_of(s, "ffn_%s_exps.weight", name));
    p->hf_each = true;
    p->hidden = false;
    if (down) p->std = down_std(s);
}

static void shared_matrix(lister *s, const char *name) {
    const gw_model *m = s->m;
    bool down = name[0] == 'd';
    int64_t d = m->hidden, f = m->moe.ffn * m->moe.shared;
    gw_param *p =
        matrix(s, dims_of(s, "moe.shared.%s.weight", name),
               dims_of(s, down ? "d%lld f%lld" : "f%lld d%lld", LL(down ? d : f), LL(down ? f : d)),
               1, dims_of(s, "mlp.shared_experts.%s_proj.weight", name),
               dims_of(s, "ffn_%s_shexp.weight", name));
    if (down) p->std = down_std(s);
}

static void expert_params(lister *s) {
    const gw_model *m = s->m;
    static const char *const three[] = {"gate", "up", "down"};
    bool mixtral = m->family == GW_FAMILY_MIXTRAL;
    matrix(s, "moe.router.weight", dims_of(s, "n%lld d%lld", LL(m->moe.experts), LL(m->hidden)), 1,
           mixtral ? "block_sparse_moe.gate.weight" : "mlp.gate.weight", "ffn_gate_inp.weight")
        ->hidden = false;
    for (int i = 0; i < 3 && m->moe.shared > 0; i++) shared_matrix(s, three[i]);
    for (int i = 0; i < 3; i++) expert_matrix(s, three[i]);
}

static void mlp_matrix(lister *s, const char *name, bool down, const char *hf, const char *gguf) {
    const gw_model *m = s->m;
    char *dims = down ? dims_of(s, "d%lld f%lld", LL(m->hidden), LL(m->ffn))
                      : dims_of(s, "f%lld d%lld", LL(m->ffn), LL(m->hidden));
    gw_param *w = matrix(s, dims_of(s, "mlp.%s.weight", name), dims, 1, dims_of(s, "%s.weight", hf),
                         dims_of(s, "%s.weight", gguf));
    if (down) w->std = down_std(s);
    if (m->mlp_bias)
        vector(s, dims_of(s, "mlp.%s.bias", name),
               down ? dims_of(s, "d%lld", LL(m->hidden)) : dims_of(s, "f%lld", LL(m->ffn)),
               GW_INIT_ZEROS, dims_of(s, "%s.bias", hf), dims_of(s, "%s.bias", gguf));
}

static void layer_params(lister *s) {
    bool gpt2 = s->m->family == GW_FAMILY_GPT2;
    norm(s, "attn.norm", gpt2 ? "ln_1" : "input_layernorm", "attn_norm");
    if (s->m->mla.kv_rank > 0)
        latent_params(s);
    else
        attention_params(s);
    norm(s, "mlp.norm", gpt2 ? "ln_2" : "post_attention_layernorm", "ffn_norm");
    if (gw_model_has_experts(s->m, s->layer)) {
        expert_params(s);
        return;
    }
    if (gpt2) {
        mlp_matrix(s, "up", false, "mlp.c_fc", "ffn_up");
    } else {
        mlp_matrix(s, "gate", false, "mlp.gate_proj", "ffn_gate");
        mlp_matrix(s, "up", false, "mlp.up_proj", "ffn_up");
    }
    mlp_matrix(s, "down", true, gpt2 ? "mlp.c_proj" : "mlp.down_proj", "ffn_down");
}

static void table(lister *s, const char *name, const char *dims, const char *hf, const char *gguf) {
    gw_param *p = push(s, name, dims, GW_INIT_NORMAL);
    p->std = s->m->init_std;
    p->decay = true;
    p->rows = 1;
    public_names(s, p, hf, gguf);
}

void gw_model_buffers(const gw_model *m, gw_arena *a, gw_buffer **out, int *n) {
    *out = NULL;
    *n = 0;
    if (m->family == GW_FAMILY_RESNET) {
        gw_resnet_buffers(m, a, out, n);
        return;
    }
    if (!m->moe.choice_bias || m->moe.experts == 0) return;
    *out = gw_arena_new(a, gw_buffer, GW_MAX(m->layers - m->moe.dense_layers, 1));
    for (int64_t l = m->moe.dense_layers; l < m->layers; l++) {
        gw_type t = gw_type_scalar(GW_F32);
        gw_type_add(&t, "n", m->moe.experts);
        bool v3 = m->family == GW_FAMILY_DEEPSEEK && m->moe.score == GW_MOE_SIGMOID;
        const char *hf =
            gw_arena_printf(a, "model.layers.%lld.mlp.gate.e_score_correction_bias", LL(l));
        (*out)[(*n)++] =
            (gw_buffer){gw_arena_printf(a, "layers.%lld.moe.bias", LL(l)), t, 0, v3 ? hf : NULL};
    }
}

void gw_model_params(const gw_model *m, gw_arena *a, gw_param **out, int *n) {
    if (m->family == GW_FAMILY_RESNET) {
        gw_resnet_params(m, a, out, n);
        return;
    }
    lister s = {.m = m, .a = a, .layer = -1, .cap = (int)m->layers * 20 + 8};
    s.list = gw_arena_new(a, gw_param, s.cap);
    bool gpt2 = m->family == GW_FAMILY_GPT2;
    char *vd = dims_of(&s, "v%lld d%lld", LL(m->vocab), LL(m->hidden));
    table(&s, "embed.weight", vd, gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight",
          "token_embd.weight");
    if (gpt2)
        table(&s, "positions.weight",
              dims_of(&s, "p%lld d%lld", LL(m->max_positions), LL(m->hidden)),
              "transformer.wpe.weight", "position_embd.weight");
    for (int64_t l = 0; l < m->layers; l++) {
        s.layer = (int)l;
        layer_params(&s);
    }
    s.layer = -1;
    norm(&s, "norm", gpt2 ? "transformer.ln_f" : "model.norm", "output_norm");
    if (!m->tie) table(&s, "head.weight", vd, "lm_head.weight", "output.weight");
    *out = s.list;
    *n = s.n;
}

int64_t gw_model_count(const gw_model *m) {
    gw_arena a = {0};
    gw_param *p;
    int n;
    int64_t total = 0;
    gw_model_params(m, &a, &p, &n);
    for (int i = 0; i < n; i++) total += gw_type_elems(&p[i].type);
    gw_arena_release(&a);
    return total;
}

int64_t gw_model_count_active(const gw_model *m) {
    int64_t n = gw_model_count(m);
    if (m->family == GW_FAMILY_RESNET || m->moe.experts == 0) return n;
    int64_t idle = (m->moe.experts - m->moe.top) * 3 * m->hidden * m->moe.ffn;
    return n - (m->layers - m->moe.dense_layers) * idle;
}

int64_t gw_model_count_biases(const gw_model *m) {
    if (m->family == GW_FAMILY_RESNET || !m->moe.choice_bias) return 0;
    return (m->layers - m->moe.dense_layers) * m->moe.experts;
}

bool gw_model_has_experts(const gw_model *m, int64_t l) {
    return m->family != GW_FAMILY_RESNET && m->moe.experts > 0 && l >= m->moe.dense_layers;
}

bool gw_model_has_aux_loss(const gw_model *m) {
    bool loss = m->moe.balance == GW_MOE_BALANCE_SEQUENCE || m->moe.balance == GW_MOE_BALANCE_BATCH;
    loss |= m->moe.balance == GW_MOE_BALANCE_BIAS && m->moe.balance_weight > 0;
    return gw_model_has_experts(m, m->layers - 1) && (loss || m->moe.z_weight > 0);
}

/* What yarn says of how sharp attention must be in a context `factor` times as long. */
static double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

double gw_model_rope_gain(const gw_model *m) {
    if (m->rope_scaling != GW_ROPE_YARN) return 1;
    if (m->rope_mscale == 0 || m->rope_mscale_all == 0) return yarn_mscale(m->rope_factor, 1);
    return yarn_mscale(m->rope_factor, m->rope_mscale) /
           yarn_mscale(m->rope_factor, m->rope_mscale_all);
}

double gw_model_softmax_scale(const gw_model *m) {
    if (m->mla.kv_rank == 0 || m->rope_scaling != GW_ROPE_YARN || m->rope_mscale_all == 0) return 0;
    double sharp = yarn_mscale(m->rope_factor, m->rope_mscale_all);
    return sharp * sharp / sqrt((double)m->head_dim);
}

int64_t gw_model_count_embedding(const gw_model *m) {
    if (m->family == GW_FAMILY_RESNET) return 0;
    int64_t n = m->tie ? 0 : m->vocab * m->hidden;
    if (m->family == GW_FAMILY_GPT2) n += m->max_positions * m->hidden;
    return n;
}

double gw_model_flops_per_token(const gw_model *m, int64_t seq, bool full_attention) {
    if (m->family == GW_FAMILY_RESNET) return gw_resnet_flops(m);
    double n = (double)(gw_model_count_active(m) - gw_model_count_embedding(m));
    int64_t value = m->mla.kv_rank > 0 ? m->mla.v : m->head_dim;
    double per_key = 6.0 * (double)m->heads * (double)(m->head_dim + value);
    double attention = 0;
    for (int64_t l = 0; l < m->layers; l++) {
        double keys = (double)seq;
        if (!full_attention) {
            double s = (double)seq, w = m->windowed[l] ? (double)GW_MIN(m->window, seq) : s;
            keys = (w * (w + 1) / 2 + (s - w) * w) / s; /* mean number of visible keys */
        }
        attention += per_key * keys;
    }
    return 6 * n + attention;
}

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
// Counting. N counts every parameter once (a tied head once). FLOPs a token are 6 per parameter
// that takes part in a matrix product: all but lookup tables; a tied table counts as the head.
// Attention adds 12*L*(h*k)*s with full attention and half of it with causal attention (a window
// lowers it further).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/panic.h" /* GW_ASSERT */
#include "model/model.h"
#include "model/resnet.h" /* gw_resnet_check, gw_resnet_params */

static const char *const family_names[] = {"gpt2", "llama", "qwen2", "qwen3", "mistral"};

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
    double d = (double)m->hidden, k = (double)m->head_dim;
    double attention = 2 * d * k * (double)(m->heads + m->kv_heads);
    double layer = attention + 3 * d * (double)m->ffn + 8 * d + (double)m->ffn;
    double tables = 2 * (double)m->vocab;
    if (m->family == GW_FAMILY_GPT2) tables += (double)m->max_positions;
    return d * tables + (double)m->layers * layer;
}

/* Far above what any machine holds, and far enough below 2^63 that the bits of weights, gradients
 * and optimizer states can be counted together. */
#define MAX_PARAMETERS 0x1p48

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
    need(&st, dg, !rope || m->head_dim % 2 == 0, "model.head_dim (%lld) must be even for rope",
         (long long)m->head_dim);
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

static void mlp_matrix(lister *s, const char *name, bool down, const char *hf, const char *gguf) {
    const gw_model *m = s->m;
    char *dims = down ? dims_of(s, "d%lld f%lld", LL(m->hidden), LL(m->ffn))
                      : dims_of(s, "f%lld d%lld", LL(m->ffn), LL(m->hidden));
    gw_param *w = matrix(s, dims_of(s, "mlp.%s.weight", name), dims, 1, dims_of(s, "%s.weight", hf),
                         dims_of(s, "%s.weight", gguf));
    if (down) w->std = m->init_std / __builtin_sqrt(2.0 * (double)m->layers);
    if (m->mlp_bias)
        vector(s, dims_of(s, "mlp.%s.bias", name),
               down ? dims_of(s, "d%lld", LL(m->hidden)) : dims_of(s, "f%lld", LL(m->ffn)),
               GW_INIT_ZEROS, dims_of(s, "%s.bias", hf), dims_of(s, "%s.bias", gguf));
}

static void layer_params(lister *s) {
    bool gpt2 = s->m->family == GW_FAMILY_GPT2;
    norm(s, "attn.norm", gpt2 ? "ln_1" : "input_layernorm", "attn_norm");
    attention_params(s);
    norm(s, "mlp.norm", gpt2 ? "ln_2" : "post_attention_layernorm", "ffn_norm");
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
    if (m->family == GW_FAMILY_RESNET) gw_resnet_buffers(m, a, out, n);
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

int64_t gw_model_count_embedding(const gw_model *m) {
    if (m->family == GW_FAMILY_RESNET) return 0;
    int64_t n = m->tie ? 0 : m->vocab * m->hidden;
    if (m->family == GW_FAMILY_GPT2) n += m->max_positions * m->hidden;
    return n;
}

double gw_model_flops_per_token(const gw_model *m, int64_t seq, bool full_attention) {
    if (m->family == GW_FAMILY_RESNET) return gw_resnet_flops(m);
    double n = (double)(gw_model_count(m) - gw_model_count_embedding(m));
    double per_key = 12.0 * (double)(m->heads * m->head_dim);
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

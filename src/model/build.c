// SPDX-License-Identifier: Apache-2.0
// From a model's dimensions to the forward graph of one micro-batch, in global shapes.
//
// The builder reads as the model does: embed, then per layer attention and feed-forward around
// residual adds, then the final norm and the head. q, k and v are separate matrices with dims `h k
// d`; fusing them is a kernel's matter. What depends on data comes in as data: token ids,
// positions, document ids, sample ids, labels.
//
// A layer's parts differ by family: attention has heads of q, k and v, or (DeepSeek) latents that
// they are made of; what follows is a feed-forward, or a router and experts (model/moe.h), with
// shared experts beside them. In training, keys and values are made of the latent in full; a cache
// holds them likewise.
//
// Two shapes of attention exist: over the sequence itself (training, scoring) and over a KV cache
// (generation), where this call's keys and values are first put into the cache at their positions.
#include <stdio.h>
#include <string.h>

#include "base/map.h"   /* gw_smap */
#include "base/panic.h" /* GW_ASSERT */
#include "model/model.h"
#include "model/moe.h"    /* gw_moe_build */
#include "model/resnet.h" /* gw_resnet_build */

typedef struct net {
    const gw_model *m;
    const gw_build_opts *o;
    gw_builder b;
    gw_smap params; /* and buffers: name -> value */
    gw_vid tokens, labels, positions, docs, samples, at, seed, aux_seed, batch, micro;
    gw_vid cos, sin;
    int layer;
} net;

static gw_attr ai(int64_t i) { return (gw_attr){.i = i}; }
static gw_attr af(double f) { return (gw_attr){.f = f}; }

#define SET(attrs, op, name, value) gw_attrs_set(n->b.g->table, op, attrs, name, value)

/* A parameter of the current layer (or outside, layer < 0); GW_NONE if the model has none of that
 * name. */
static gw_vid find_param(const net *n, const char *name) {
    char full[96];
    if (n->layer >= 0)
        snprintf(full, sizeof full, "layers.%d.%s", n->layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    uint32_t v = GW_NONE;
    return gw_smap_find_c(&n->params, full, &v) ? v : GW_NONE;
}

static gw_vid param(const net *n, const char *name) {
    gw_vid v = find_param(n, name);
    if (v == GW_NONE) gw_panic("the model has no parameter '%s'", name);
    return v;
}

static gw_vid input(net *n, gw_dtype t, gw_rate rate, const char *dims, const char *name) {
    return gw_graph_leaf(n->b.g, GW_ROLE_INPUT, GW_CAUSE_DATA, rate, gw_type_make(t, dims), name);
}

static void make_inputs(net *n) {
    char bs[64], b[32];
    snprintf(bs, sizeof bs, "b%lld s%lld", (long long)n->o->batch, (long long)n->o->seq);
    snprintf(b, sizeof b, "b%lld", (long long)n->o->batch);
    n->tokens = input(n, GW_I32, GW_RATE_MB, bs, "tokens");
    n->positions = input(n, GW_I32, GW_RATE_MB, bs, "positions");
    n->docs = n->labels = n->seed = n->aux_seed = n->samples = n->batch = n->at = GW_NONE;
    n->micro = GW_NONE;
    if (n->o->packed && n->o->mode != GW_BUILD_CACHED)
        n->docs = input(n, GW_I32, GW_RATE_MB, bs, "docs");
    if (n->o->mode == GW_BUILD_LOSS) {
        n->labels = input(n, GW_I32, GW_RATE_MB, bs, "labels");
        n->seed = input(n, GW_F32, GW_RATE_STEP, "", "seed");
        if (n->o->training && gw_model_has_aux_loss(n->m))
            n->aux_seed = input(n, GW_F32, GW_RATE_STEP, "", "aux_seed");
        if (n->o->training && n->m->moe.records > 0)
            n->micro = input(n, GW_I64, GW_RATE_MB, "", "micro");
    }
    if (n->o->mode == GW_BUILD_CACHED) n->at = input(n, GW_I32, GW_RATE_MB, b, "at");
    if (n->o->training && n->m->dropout > 0) {
        n->samples = input(n, GW_I64, GW_RATE_MB, b, "samples");
        n->batch = input(n, GW_I64, GW_RATE_STEP, "", "batch");
    }
}

static void make_params(net *n, gw_arena *a) {
    gw_param *p;
    int count;
    gw_model_params(n->m, a, &p, &count);
    for (int i = 0; i < count; i++) {
        gw_type t = p[i].type;
        t.dtype = (uint8_t)n->o->compute;
        gw_vid v =
            gw_graph_leaf(n->b.g, GW_ROLE_PARAM, GW_CAUSE_WEIGHTS, GW_RATE_STEP, t, p[i].name);
        gw_smap_put_c(&n->params, p[i].name, v);
    }
    gw_buffer *b;
    gw_model_buffers(n->m, a, &b, &count);
    for (int i = 0; i < count; i++) {
        gw_type t = b[i].type;
        if (n->o->compute == GW_F64) t.dtype = GW_F64;
        gw_smap_put_c(
            &n->params, b[i].name,
            gw_graph_leaf(n->b.g, GW_ROLE_STATE, GW_CAUSE_WEIGHTS, GW_RATE_STEP, t, b[i].name));
    }
}

/* ---- pieces ---- */

static gw_vid norm_with(net *n, gw_vid x, const char *name, double eps) {
    char w[64], bias[64];
    snprintf(w, sizeof w, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    gw_attr a[GW_MAX_ATTRS];
    bool layernorm = n->m->family == GW_FAMILY_GPT2;
    const char *op = layernorm ? "layernorm" : "rmsnorm";
    gw_attrs_default(n->b.g->table, op, a);
    SET(a, op, "eps", af(eps));
    gw_vid in[3] = {x, param(n, w), layernorm ? param(n, bias) : GW_NONE};
    return gw_build(&n->b, op, in, layernorm ? 3 : 2, a, NULL);
}

static gw_vid norm(net *n, gw_vid x, const char *name) {
    return norm_with(n, x, name, n->m->norm_eps);
}

/* x times a weight, with its bias if the model has one. */
static gw_vid linear(net *n, gw_vid x, const char *name) {
    char w[64], bias[64];
    snprintf(w, sizeof w, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    gw_vid in[3] = {x, param(n, w), find_param(n, bias)};
    const char *dot = strrchr(name, '.');
    gw_builder_enter(&n->b, "%s", dot ? dot + 1 : name);
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "matmul", a);
    SET(a, "matmul", "dtype", ai(n->o->compute));
    gw_vid y = gw_build(&n->b, "matmul", in, in[2] == GW_NONE ? 2 : 3, a, NULL);
    gw_builder_leave(&n->b);
    return y;
}

static gw_vid dropout(net *n, gw_vid x, const char *site) {
    if (!n->o->training || n->m->dropout <= 0) return x;
    char key[64];
    if (n->layer >= 0)
        snprintf(key, sizeof key, "layers.%d.%s", n->layer, site);
    else
        snprintf(key, sizeof key, "%s", site);
    gw_attr a[GW_MAX_ATTRS], k = {0};
    gw_attrs_default(n->b.g->table, "dropout", a);
    SET(a, "dropout", "p", af(n->m->dropout));
    k.s = gw_graph_intern(n->b.g, key);
    SET(a, "dropout", "key", k);
    SET(a, "dropout", "seed", ai((int64_t)n->o->seed));
    gw_vid in[3] = {x, n->samples, n->batch};
    return gw_build(&n->b, "dropout", in, 3, a, NULL);
}

static void make_rope(net *n) {
    const gw_model *m = n->m;
    if (m->family == GW_FAMILY_GPT2) return;
    gw_builder_enter(&n->b, "rope");
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "rope_table", a);
    SET(a, "rope_table", "head", ai(m->mla.kv_rank > 0 ? m->mla.rope : m->head_dim));
    SET(a, "rope_table", "theta", af(m->rope_theta));
    SET(a, "rope_table", "scaling", ai(m->rope_scaling));
    if (m->rope_scaling != GW_ROPE_NONE) SET(a, "rope_table", "factor", af(m->rope_factor));
    SET(a, "rope_table", "gain", af(gw_model_rope_gain(m)));
    if (m->rope_scaling == GW_ROPE_LLAMA3 || m->rope_scaling == GW_ROPE_YARN) {
        SET(a, "rope_table", "low", af(m->rope_low));
        SET(a, "rope_table", "high", af(m->rope_high));
        SET(a, "rope_table", "original", af((double)m->rope_original));
    }
    gw_vid more[1] = {GW_NONE};
    n->cos = gw_build(&n->b, "rope_table", &n->positions, 1, a, more);
    n->sin = more[0];
    gw_builder_leave(&n->b);
}

static gw_vid head_norm_and_rope(net *n, gw_vid x, char c) {
    if (n->m->qk_norm) x = norm(n, x, c == 'q' ? "attn.q_norm" : "attn.k_norm");
    if (n->m->family != GW_FAMILY_GPT2) x = gw_build1(&n->b, "rope", x, n->cos, n->sin);
    return x;
}

static int64_t window_of(const net *n) { return n->m->windowed[n->layer] ? n->m->window : 0; }

static gw_vid attend(net *n, gw_vid q, gw_vid k, gw_vid v) {
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "attention", a);
    SET(a, "attention", "causal", ai(1));
    SET(a, "attention", "window", ai(window_of(n)));
    SET(a, "attention", "scale", af(gw_model_softmax_scale(n->m)));
    gw_vid in[4] = {q, k, v, n->docs};
    return gw_build(&n->b, "attention", in, n->docs == GW_NONE ? 3 : 4, a, NULL);
}

/* A cache leaf, this call's rows put into it, and the state that carries it on. */
static gw_vid cached(net *n, gw_vid x, char c) {
    char name[48];
    snprintf(name, sizeof name, "cache.%d.%c", n->layer, c);
    gw_type t = gw_type_scalar(n->o->compute);
    gw_type_add(&t, "b", n->o->batch);
    gw_type_add(&t, "t", n->o->cache);
    for (int d = 2; d < 4 && n->b.status == GW_OK; d++) { /* heads, and what a head has */
        const gw_dim *of = &gw_type_of(n->b.g, x)->dims[d];
        gw_type_add(&t, of->name, of->size);
    }
    gw_vid leaf = gw_graph_leaf(n->b.g, GW_ROLE_STATE, GW_CAUSE_ACTIVATIONS, GW_RATE_STEP, t, name);
    gw_vid out = gw_build1(&n->b, "cache_put", leaf, x, n->positions);
    if (n->b.status == GW_OK) gw_graph_add_state(n->b.g, leaf, out);
    return out;
}

static gw_vid attend_cached(net *n, gw_vid q, gw_vid k, gw_vid v) {
    gw_vid kc = cached(n, k, 'k'), vc = cached(n, v, 'v');
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "attention_cache", a);
    SET(a, "attention_cache", "window", ai(window_of(n)));
    SET(a, "attention_cache", "scale", af(gw_model_softmax_scale(n->m)));
    gw_vid in[4] = {q, kc, vc, n->positions};
    return gw_build(&n->b, "attention_cache", in, 4, a, NULL);
}

/* The norms of latents have an epsilon of their own, whatever the model's is. */
#define LATENT_EPS 1e-6

/* q, k, v by way of latents (DeepSeek-V2, section 2.1): rope turns the last components of each
 * head, which k has once for all heads. */
static void latent_heads(net *n, gw_vid y, gw_vid *q, gw_vid *k, gw_vid *v) {
    gw_vid c = y;
    if (n->m->mla.q_rank > 0)
        c = norm_with(n, linear(n, y, "attn.q_a"), "attn.q_a_norm", LATENT_EPS);
    gw_attr a[GW_MAX_ATTRS];
    gw_attrs_default(n->b.g->table, "rope", a);
    SET(a, "rope", "skip", ai(n->m->mla.nope));
    gw_vid in[3] = {linear(n, c, n->m->mla.q_rank > 0 ? "attn.q_b" : "attn.q"), n->cos, n->sin};
    *q = gw_build(&n->b, "rope", in, 3, a, NULL);
    gw_vid turned = gw_build1(&n->b, "rope", linear(n, y, "attn.kv_rope"), n->cos, n->sin);
    c = norm_with(n, linear(n, y, "attn.kv_a"), "attn.kv_a_norm", LATENT_EPS);
    *k = gw_build1(&n->b, "concat", linear(n, c, "attn.k_b"), turned);
    *v = linear(n, c, "attn.v_b");
}

static void heads(net *n, gw_vid y, gw_vid *q, gw_vid *k, gw_vid *v) {
    *q = head_norm_and_rope(n, linear(n, y, "attn.q"), 'q');
    *k = head_norm_and_rope(n, linear(n, y, "attn.k"), 'k');
    *v = linear(n, y, "attn.v");
}

static gw_vid attention_block(net *n, gw_vid x) {
    gw_builder_enter(&n->b, "attn");
    gw_vid y = norm(n, x, "attn.norm"), q, k, v;
    if (n->m->mla.kv_rank > 0)
        latent_heads(n, y, &q, &k, &v);
    else
        heads(n, y, &q, &k, &v);
    gw_vid o = n->o->mode == GW_BUILD_CACHED ? attend_cached(n, q, k, v) : attend(n, q, k, v);
    gw_vid z = dropout(n, linear(n, o, "attn.o"), "attn");
    z = gw_build1(&n->b, "add", x, z);
    gw_builder_leave(&n->b);
    return z;
}

/* down(silu(gate(y)) * up(y)) with the weights PREFIX.gate, .up and .down. */
static gw_vid gated(net *n, gw_vid y, const char *prefix) {
    char name[3][32];
    static const char *const parts[] = {"gate", "up", "down"};
    for (int i = 0; i < 3; i++) snprintf(name[i], sizeof name[i], "%s.%s", prefix, parts[i]);
    gw_vid g = linear(n, y, name[0]), u = linear(n, y, name[1]);
    return linear(n, gw_build1(&n->b, "swiglu", g, u), name[2]);
}

static gw_vid expert_block(net *n, gw_vid x) {
    gw_builder_enter(&n->b, "mlp");
    gw_vid y = norm(n, x, "mlp.norm");
    gw_moe_in in = {.x = y,
                    .tokens = n->tokens,
                    .router = param(n, "moe.router.weight"),
                    .bias = n->m->moe.choice_bias ? param(n, "moe.bias") : GW_NONE,
                    .gate = param(n, "moe.gate.weight"),
                    .up = param(n, "moe.up.weight"),
                    .down = param(n, "moe.down.weight"),
                    .seed = n->aux_seed,
                    .micro = n->micro,
                    .training = n->o->training && n->o->mode == GW_BUILD_LOSS};
    gw_vid z = gw_moe_build(&n->b, &n->m->moe, &in, n->layer);
    if (n->m->moe.shared > 0) {
        gw_builder_enter(&n->b, "shared");
        gw_vid all = gated(n, y, "moe.shared");
        gw_builder_leave(&n->b);
        z = gw_build1(&n->b, "add", z, all);
    }
    z = gw_build1(&n->b, "add", x, z);
    gw_builder_leave(&n->b);
    return z;
}

static gw_vid mlp_block(net *n, gw_vid x) {
    if (gw_model_has_experts(n->m, n->layer)) return expert_block(n, x);
    gw_builder_enter(&n->b, "mlp");
    gw_vid y = norm(n, x, "mlp.norm"), z;
    if (n->m->family == GW_FAMILY_GPT2) {
        gw_attr a[GW_MAX_ATTRS];
        gw_attrs_default(n->b.g->table, "gelu", a);
        SET(a, "gelu", "tanh", ai(n->m->gelu_tanh));
        gw_vid u = linear(n, y, "mlp.up");
        z = linear(n, gw_build(&n->b, "gelu", &u, 1, a, NULL), "mlp.down");
    } else {
        z = gated(n, y, "mlp");
    }
    z = dropout(n, z, "mlp");
    z = gw_build1(&n->b, "add", x, z);
    gw_builder_leave(&n->b);
    return z;
}

static gw_vid embed(net *n) {
    gw_builder_enter(&n->b, "embed");
    gw_vid x = gw_build1(&n->b, "embed", n->tokens, param(n, "embed.weight"));
    if (n->m->family == GW_FAMILY_GPT2) {
        gw_vid p = gw_build1(&n->b, "embed", n->positions, param(n, "positions.weight"));
        x = dropout(n, gw_build1(&n->b, "add", x, p), "embed");
    }
    gw_builder_leave(&n->b);
    return x;
}

static void head(net *n, gw_vid x) {
    gw_vid w = find_param(n, "head.weight");
    if (w == GW_NONE) w = param(n, "embed.weight");
    gw_builder_enter(&n->b, "head");
    if (n->o->mode == GW_BUILD_CACHED) x = gw_build1(&n->b, "pick", x, n->at);
    x = norm(n, x, "norm");
    gw_vid result;
    const char *name = "logits";
    if (n->o->mode == GW_BUILD_LOSS) {
        gw_vid in[4] = {x, w, n->labels, n->seed};
        result = gw_build(&n->b, "head", in, 4, NULL, NULL);
        name = "loss";
    } else {
        gw_attr a[GW_MAX_ATTRS];
        gw_attrs_default(n->b.g->table, "matmul", a);
        SET(a, "matmul", "dtype", ai(n->o->compute == GW_F64 ? GW_F64 : GW_F32));
        gw_vid in[2] = {x, w};
        result = gw_build(&n->b, "matmul", in, 2, a, NULL);
    }
    gw_builder_leave(&n->b);
    if (n->b.status == GW_OK) n->b.g->values.items[result].name = gw_graph_intern(n->b.g, name);
}

/* ---- sizes ---- */

/* An upper bound of the elements that a program of this model holds at once, whatever the passes
 * add: a few values for each that a layer makes, forward and backward, and the parameters' own
 * gradients, states and copies. A real number, so that it cannot overflow. */
static double most_elements(const gw_model *m, const gw_build_opts *o) {
    double tokens = (double)o->batch * (double)o->seq, d = (double)m->hidden;
    double q = (double)m->heads * (double)m->head_dim,
           kv = (double)m->kv_heads * (double)m->head_dim;
    double layer = 24 * d + 12 * q + 8 * kv + 8 * (double)m->ffn + 4 * (double)m->heads;
    layer += 4 * (double)(m->mla.q_rank + m->mla.kv_rank + m->mla.rope);
    layer += 16 * (double)m->moe.experts + (double)m->moe.top * (8 * d + 8 * (double)m->moe.ffn) +
             8 * (double)m->moe.ffn * (double)m->moe.shared;
    double ends = 8 * d + 6 * (double)m->vocab;
    double cache = o->mode == GW_BUILD_CACHED
                       ? 4 * (double)m->layers * (double)o->batch * (double)o->cache * kv
                       : 0;
    return 8 * (double)gw_model_count(m) + tokens * ((double)m->layers * layer + ends) + cache;
}

/* Elements whose bytes, offsets and workspaces stay within 64 bits with room to spare. */
#define MAX_ELEMENTS 0x1p54

static gw_status check_sizes(const gw_model *m, const gw_build_opts *o, gw_diags *dg) {
    const int64_t top = INT64_C(1) << 31;
    bool cached = o->mode == GW_BUILD_CACHED;
    bool ok = o->batch > 0 && o->batch < top && o->seq > 0 && o->seq < top &&
              (!cached || (o->cache > 0 && o->cache < top));
    if (ok && most_elements(m, o) <= MAX_ELEMENTS) return GW_OK;
    if (cached)
        return GW_FAIL(
            dg, GW_ERR_CONFIG, "model-size",
            "a batch of %lld with a cache of %lld tokens is too large to count its bytes, "
            "or empty",
            (long long)o->batch, (long long)o->cache);
    if (!ok)
        return GW_FAIL(
            dg, GW_ERR_CONFIG, "model-size",
            "train.micro_batch x ranks is %lld and train.seq_len %lld; each must be 1 to 2^31 - 1",
            (long long)o->batch, (long long)o->seq);
    gw_status st =
        GW_FAIL(dg, GW_ERR_CONFIG, "model-size",
                "train.micro_batch x ranks %lld x train.seq_len %lld is too large for this model: "
                "the bytes of a step cannot be counted in 64 bits",
                (long long)o->batch, (long long)o->seq);
    if (dg)
        gw_diag_hint(
            dg, dg->last,
            "fewer ranks, a lower train.micro_batch (train.accumulate keeps the batch) or a "
            "lower train.seq_len");
    return st;
}

gw_status gw_model_build(gw_graph *g, const gw_model *m, const gw_build_opts *o, gw_diags *dg) {
    GW_TRY(gw_model_check(m, dg));
    if (m->family == GW_FAMILY_RESNET) return gw_resnet_build(g, m, o, dg);
    GW_TRY(check_sizes(m, o, dg));
    if (m->family == GW_FAMILY_GPT2 && o->mode != GW_BUILD_CACHED && o->seq > m->max_positions)
        return GW_FAIL(dg, GW_ERR_CONFIG, "model-positions",
                       "sequences of %lld tokens need %lld rows of learned positions; "
                       "model.max_positions is %lld",
                       (long long)o->seq, (long long)o->seq, (long long)m->max_positions);
    gw_arena mem = {0};
    net n = {.m = m, .o = o, .layer = -1};
    gw_builder_init(&n.b, g, dg);
    make_params(&n, &mem);
    make_inputs(&n);
    gw_vid x = embed(&n);
    make_rope(&n);
    for (int64_t l = 0; l < m->layers; l++) {
        n.layer = (int)l;
        gw_builder_enter(&n.b, "layer %d", (int)l);
        x = mlp_block(&n, attention_block(&n, x));
        gw_builder_leave(&n.b);
    }
    n.layer = -1;
    head(&n, x);
    gw_smap_release(&n.params);
    gw_arena_release(&mem);
    return n.b.status;
}

// SPDX-License-Identifier: Apache-2.0
// Experts and latent attention in config.json: mixtral, qwen3_moe, deepseek_v2, deepseek_v3.
//
// Each class names the same facts differently (num_local_experts, num_experts, n_routed_experts)
// and fixes others in code: Mixtral always normalises its gates, DeepSeek-V2 never, whatever its
// file says, and V2 judges a group of experts by its best one where V3 takes its best two. What a
// class fixes is checked on the way in and on the way out, so that no file is read or written that
// another program would take for another model. DeepSeek's head_dim in a file is that of the
// rotated part; the struct's is a whole head's.
#include <math.h>
#include <string.h>

#include "base/str.h"            /* gw_str_eq */
#include "file/hf_config_impl.h" /* this module's contract */

bool gw_hf_latent_family(gw_hf_family f) {
    return f == GW_HF_DEEPSEEK_V2 || f == GW_HF_DEEPSEEK_V3;
}

bool gw_hf_moe_family(gw_hf_family f) {
    return f == GW_HF_MIXTRAL || f == GW_HF_QWEN3_MOE || gw_hf_latent_family(f);
}

void gw_hf_moe_defaults(gw_hf_config *c) {
    if (!gw_hf_moe_family(c->family)) return;
    bool v2 = c->family == GW_HF_DEEPSEEK_V2, v3 = c->family == GW_HF_DEEPSEEK_V3;
    gw_hf_moe *e = &c->moe;
    *e = (gw_hf_moe){.scale = 1, .groups = 1, .group_limit = 1};
    e->normalize = c->family == GW_HF_MIXTRAL || v3;
    e->sigmoid = v3;
    e->aux_weight = v2 ? 0.001 : v3 ? 0.0001 : 0.001;
    if (v3) e->scale = 2.5;
}

static bool one_of(const char *const *list, const char *key) {
    while (*list && strcmp(*list, key) != 0) list++;
    return *list != NULL;
}

bool gw_hf_moe_reads(gw_hf_family f, const char *key) {
    static const char *const mixtral[] = {"num_local_experts",   "num_experts",
                                          "num_experts_per_tok", "router_aux_loss_coef",
                                          "router_jitter_noise", "output_router_logits",
                                          "sliding_window",      NULL};
    static const char *const qwen[] = {"num_experts",          "num_local_experts",
                                       "num_experts_per_tok",  "moe_intermediate_size",
                                       "norm_topk_prob",       "router_aux_loss_coef",
                                       "output_router_logits", "decoder_sparse_step",
                                       "mlp_only_layers",      NULL};
    static const char *const deepseek[] = {"n_routed_experts",
                                           "num_experts",
                                           "num_local_experts",
                                           "n_shared_experts",
                                           "num_experts_per_tok",
                                           "moe_intermediate_size",
                                           "first_k_dense_replace",
                                           "moe_layer_freq",
                                           "n_group",
                                           "topk_group",
                                           "topk_method",
                                           "scoring_func",
                                           "norm_topk_prob",
                                           "routed_scaling_factor",
                                           "aux_loss_alpha",
                                           "seq_aux",
                                           "router_aux_loss_coef",
                                           "output_router_logits",
                                           "q_lora_rank",
                                           "kv_lora_rank",
                                           "qk_nope_head_dim",
                                           "qk_rope_head_dim",
                                           "qk_head_dim",
                                           "v_head_dim",
                                           "rope_interleave",
                                           "attention_bias",
                                           "mlp_bias",
                                           "ep_size",
                                           "num_nextn_predict_layers",
                                           "num_mtp_layers",
                                           NULL};
    switch (f) {
    case GW_HF_MIXTRAL: return one_of(mixtral, key);
    case GW_HF_QWEN3_MOE: return one_of(qwen, key);
    case GW_HF_DEEPSEEK_V2:
    case GW_HF_DEEPSEEK_V3: return one_of(deepseek, key);
    case GW_HF_GPT2:
    case GW_HF_LLAMA:
    case GW_HF_QWEN2:
    case GW_HF_QWEN3:
    case GW_HF_MISTRAL: break;
    }
    return false;
}

/* ---- reading ---- */

static void only_number(gw_hf_reader *r, const char *key, double value) {
    const json_t *v = json_object_get(r->obj, key);
    double x = json_is_boolean(v) ? (double)json_is_true(v) : json_number_value(v);
    if (!v || json_is_null(v) || ((json_is_boolean(v) || json_is_number(v)) && x == value)) return;
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                 "'%s' = %.60s changes what the model computes and is not supported (%g is)", key,
                 text ? text : "?", value);
    free(text);
}

/* A word that must be `want` where it is given. */
static void only_word(gw_hf_reader *r, const char *key, const char *want) {
    const char *is = gw_hf_read_str(r, key);
    if (is && !gw_str_eq(is, want))
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED, "'%s' is '%.60s', which is not supported (%s is)", key,
                     is, want);
}

static int64_t experts_of(gw_hf_reader *r, const char *key, const char *const *others) {
    for (; !gw_hf_reader_has(r, key) && *others; others++)
        if (gw_hf_reader_has(r, *others)) return gw_hf_read_size(r, *others, NULL);
    return gw_hf_read_size(r, key, NULL);
}

static void read_qwen(gw_hf_reader *r, gw_hf_config *c) {
    static const char *const others[] = {"num_local_experts", NULL};
    c->moe.experts = experts_of(r, "num_experts", others);
    c->moe.top = gw_hf_read_i64(r, "num_experts_per_tok", 8);
    c->moe.ffn = gw_hf_read_i64(r, "moe_intermediate_size", 768);
    c->moe.normalize = gw_hf_read_bool(r, "norm_topk_prob", false);
    c->moe.aux_weight = gw_hf_read_f64(r, "router_aux_loss_coef", 0.001);
    only_number(r, "decoder_sparse_step", 1);
    if (json_array_size(json_object_get(r->obj, "mlp_only_layers")) > 0)
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                     "'mlp_only_layers' names layers without experts, which is not supported");
}

static void read_groups(gw_hf_reader *r, gw_hf_config *c) {
    bool v3 = c->family == GW_HF_DEEPSEEK_V3;
    const char *method = gw_hf_read_str(r, "topk_method");
    if (!method) method = v3 ? "noaux_tc" : "greedy";
    bool greedy = gw_str_eq(method, "greedy");
    if (v3 ? !gw_str_eq(method, "noaux_tc") : !greedy && !gw_str_eq(method, "group_limited_greedy"))
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED, "'topk_method' is '%.60s', which is not supported (%s)",
                     method, v3 ? "noaux_tc is" : "greedy and group_limited_greedy are");
    c->moe.groups = c->moe.group_limit = 1;
    if (!v3 && greedy) return;
    c->moe.groups = gw_hf_read_i64(r, "n_group", v3 ? 8 : 1);
    c->moe.group_limit = gw_hf_read_i64(r, "topk_group", v3 ? 4 : 1);
}

static void read_latent(gw_hf_reader *r, gw_hf_config *c) {
    bool v3 = c->family == GW_HF_DEEPSEEK_V3;
    gw_hf_latent *l = &c->latent;
    l->q_rank = gw_hf_read_i64(r, "q_lora_rank", json_object_get(r->obj, "q_lora_rank") ? 0 : 1536);
    l->kv_rank = gw_hf_read_i64(r, "kv_lora_rank", 512);
    l->nope = gw_hf_read_i64(r, "qk_nope_head_dim", 128);
    l->rope = gw_hf_read_i64(r, "qk_rope_head_dim", 64);
    l->v = gw_hf_read_i64(r, "v_head_dim", 128);
    if (l->nope > 0 && l->rope > 0 && l->nope < INT32_MAX && l->rope < INT32_MAX)
        c->head_dim = l->nope + l->rope;
    c->kv_heads = gw_hf_read_i64(r, "num_key_value_heads", c->heads);
    if (c->kv_heads != c->heads)
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                     "'num_key_value_heads' is %lld; latent attention has as many as "
                     "'num_attention_heads', %lld",
                     (long long)c->kv_heads, (long long)c->heads);
    only_number(r, "attention_bias", 0);
    only_number(r, "mlp_bias", 0);
    if (v3) only_number(r, "rope_interleave", 1);
}

static void read_deepseek(gw_hf_reader *r, gw_hf_config *c) {
    static const char *const others[] = {"num_local_experts", "num_experts", NULL};
    bool v3 = c->family == GW_HF_DEEPSEEK_V3;
    gw_hf_moe *e = &c->moe;
    read_latent(r, c);
    e->experts = experts_of(r, "n_routed_experts", others);
    e->shared = gw_hf_read_i64(r, "n_shared_experts", v3 ? 1 : 2);
    e->top = gw_hf_read_size(r, "num_experts_per_tok", NULL);
    e->ffn = gw_hf_read_size(r, "moe_intermediate_size", NULL);
    e->dense_layers = gw_hf_read_i64(r, "first_k_dense_replace", v3 ? 3 : 0);
    e->scale = gw_hf_read_f64(r, "routed_scaling_factor", v3 ? 2.5 : 1);
    e->aux_weight = gw_hf_read_f64(r, "aux_loss_alpha", e->aux_weight);
    e->normalize = gw_hf_read_bool(r, "norm_topk_prob", v3);
    if (!v3 && e->normalize)
        GW_HF_REFUSE(r, GW_ERR_UNSUPPORTED,
                     "'norm_topk_prob' is true, which deepseek_v2 is not supported with");
    read_groups(r, c);
    only_word(r, "scoring_func", v3 ? "sigmoid" : "softmax");
    only_number(r, "moe_layer_freq", 1);
    only_number(r, "seq_aux", 1);
}

void gw_hf_moe_read(gw_hf_reader *r, gw_hf_config *c) {
    static const char *const others[] = {"num_experts", NULL};
    if (c->family == GW_HF_MIXTRAL) {
        c->moe.experts = experts_of(r, "num_local_experts", others);
        c->moe.top = gw_hf_read_i64(r, "num_experts_per_tok", 2);
        c->moe.ffn = c->intermediate_size;
        c->moe.aux_weight = gw_hf_read_f64(r, "router_aux_loss_coef", 0.001);
        only_number(r, "router_jitter_noise", 0);
    } else if (c->family == GW_HF_QWEN3_MOE) {
        read_qwen(r, c);
    } else if (gw_hf_latent_family(c->family)) {
        read_deepseek(r, c);
    }
}

/* ---- consistency ---- */

static bool size(int64_t x, int64_t least) { return x >= least && x <= INT32_MAX; }

static void check_experts(gw_hf_reader *r, const gw_hf_moe *e, int64_t layers) {
    if (!size(e->experts, 1) || !size(e->top, 1) || e->top > e->experts)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "a token cannot go to %lld of %lld experts",
                     (long long)e->top, (long long)e->experts);
    if (!size(e->ffn, 1) || !size(e->shared, 0))
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "experts have the size %lld and there are %lld shared ones; the first must be "
                     "from 1, the second from 0 to 2^31 - 1",
                     (long long)e->ffn, (long long)e->shared);
    if (e->dense_layers < 0 || e->dense_layers > layers)
        GW_HF_REFUSE(r, GW_ERR_CONFIG, "'first_k_dense_replace' is %lld in a model of %lld layers",
                     (long long)e->dense_layers, (long long)layers);
    bool divides = e->groups > 0 && e->experts > 0 && e->experts % e->groups == 0;
    if (!divides || e->group_limit < 1 || e->group_limit > e->groups ||
        e->top > e->group_limit * (e->experts / e->groups))
        GW_HF_REFUSE(
            r, GW_ERR_CONFIG,
            "'n_group' %lld and 'topk_group' %lld do not fit %lld experts of which a token "
            "goes to %lld",
            (long long)e->groups, (long long)e->group_limit, (long long)e->experts,
            (long long)e->top);
    if (!(e->scale > 0 && isfinite(e->scale) && e->aux_weight >= 0 && isfinite(e->aux_weight)))
        GW_HF_REFUSE(r, GW_ERR_CONFIG,
                     "the scale of experts, %g, must be above 0 and the weight of their auxiliary "
                     "loss, %g, not negative",
                     e->scale, e->aux_weight);
}

void gw_hf_moe_check(gw_hf_reader *r, const gw_hf_config *c) {
    if (!gw_hf_moe_family(c->family)) {
        if (c->moe.experts != 0 || c->latent.kv_rank != 0)
            GW_HF_REFUSE(r, GW_ERR_CONFIG, "a %s has neither experts nor latent attention",
                         gw_hf_family_name(c->family));
        return;
    }
    check_experts(r, &c->moe, c->layers);
    const gw_hf_latent *l = &c->latent;
    if (!gw_hf_latent_family(c->family)) return;
    if (!size(l->kv_rank, 1) || !size(l->q_rank, 0) || !size(l->nope, 1) || !size(l->rope, 2) ||
        !size(l->v, 1) || l->rope % 2 != 0 || l->nope + l->rope != c->head_dim)
        GW_HF_REFUSE(
            r, GW_ERR_CONFIG,
            "latent attention has the ranks %lld (q_lora_rank) and %lld (kv_lora_rank) and "
            "heads of %lld + %lld (rope, even) and %lld (v), which is impossible",
            (long long)l->q_rank, (long long)l->kv_rank, (long long)l->nope, (long long)l->rope,
            (long long)l->v);
}

/* ---- writing ---- */

const char *gw_hf_moe_inexpressible(const gw_hf_config *c) {
    const gw_hf_moe *e = &c->moe;
    if (c->qkv_bias != c->attention_out_bias || c->mlp_bias) return "its set of biases";
    bool latent = gw_hf_latent_family(c->family), v3 = c->family == GW_HF_DEEPSEEK_V3;
    if (c->qkv_bias && c->family != GW_HF_QWEN3_MOE) return "biases";
    if (!latent && (e->shared > 0 || e->dense_layers > 0)) return "shared experts and dense layers";
    if (!latent && e->scale != 1) return "a scale of experts";
    if (!latent && e->groups != 1) return "groups of experts";
    if (e->sigmoid != v3) return "the scores of its router";
    if (c->family == GW_HF_MIXTRAL && !e->normalize) return "gates that are not normalised";
    if (c->family == GW_HF_MIXTRAL && e->ffn != c->intermediate_size)
        return "experts of another size than 'intermediate_size'";
    if (c->family == GW_HF_DEEPSEEK_V2 && e->normalize) return "gates that are normalised";
    if (latent && e->shared == 0) return "a model without shared experts";
    return NULL;
}

static void set_int(json_t *o, const char *key, int64_t x) {
    json_object_set_new(o, key, json_integer(x));
}

static void put_deepseek(json_t *o, const gw_hf_config *c) {
    const gw_hf_moe *e = &c->moe;
    const gw_hf_latent *l = &c->latent;
    bool v3 = c->family == GW_HF_DEEPSEEK_V3;
    set_int(o, "n_routed_experts", e->experts);
    set_int(o, "n_shared_experts", e->shared);
    set_int(o, "first_k_dense_replace", e->dense_layers);
    set_int(o, "moe_layer_freq", 1);
    set_int(o, "n_group", e->groups);
    set_int(o, "topk_group", e->group_limit);
    const char *v2 = e->groups > 1 ? "group_limited_greedy" : "greedy";
    json_object_set_new(o, "topk_method", json_string(v3 ? "noaux_tc" : v2));
    json_object_set_new(o, "scoring_func", json_string(v3 ? "sigmoid" : "softmax"));
    json_object_set_new(o, "routed_scaling_factor", json_real(e->scale));
    json_object_set_new(o, "aux_loss_alpha", json_real(e->aux_weight));
    json_object_set_new(o, "seq_aux", json_true());
    json_object_set_new(o, "q_lora_rank", l->q_rank > 0 ? json_integer(l->q_rank) : json_null());
    set_int(o, "kv_lora_rank", l->kv_rank);
    set_int(o, "qk_nope_head_dim", l->nope);
    set_int(o, "qk_rope_head_dim", l->rope);
    set_int(o, "v_head_dim", l->v);
    if (v3) set_int(o, "num_nextn_predict_layers", 0);
}

void gw_hf_moe_put(json_t *o, const gw_hf_config *c) {
    const gw_hf_moe *e = &c->moe;
    if (!gw_hf_moe_family(c->family)) return;
    set_int(o, "num_experts_per_tok", e->top);
    if (c->family != GW_HF_MIXTRAL) {
        set_int(o, "moe_intermediate_size", e->ffn);
        json_object_set_new(o, "norm_topk_prob", json_boolean(e->normalize));
    }
    if (gw_hf_latent_family(c->family)) {
        put_deepseek(o, c);
        return;
    }
    set_int(o, c->family == GW_HF_MIXTRAL ? "num_local_experts" : "num_experts", e->experts);
    json_object_set_new(o, "router_aux_loss_coef", json_real(e->aux_weight));
    json_object_set_new(o, "output_router_logits", json_false());
    if (c->family == GW_HF_MIXTRAL) return;
    set_int(o, "decoder_sparse_step", 1);
    json_object_set_new(o, "mlp_only_layers", json_array());
}

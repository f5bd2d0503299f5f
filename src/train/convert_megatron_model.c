// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's flags for the model.
//
// The model is spelled out there by some forty flags, so its family here follows from what they
// have in common: latent attention is deepseek; experts with norms on q and k qwen3_moe, other
// experts mixtral; rotary positions, swiglu or RMSNorm one of the llama kind; else gpt2. What a
// family has differently from what the flags (or their defaults) say is refused one by one, so that
// the list says exactly where the two models part.
//
// Source: megatron/training/arguments.py.
#include <string.h> /* strspn */

#include "base/io.h"            /* gw_path_exists */
#include "train/convert_impl.h" /* gw_cv */

// ------------------------------------------------------------------ the model

#define MODEL_KEYS                                                                                 \
    "num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels "                      \
    "group-query-attention num-query-groups window-size max-position-embeddings "                  \
    "position-embedding-type use-rotary-position-embeddings no-position-embedding rotary-base "    \
    "use-rope-scaling rope-scaling-factor rope-type normalization swiglu "                         \
    "untie-embeddings-and-output-weights multi-latent-attention qk-layernorm "                     \
    "disable-bias-linear add-qkv-bias q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim "   \
    "v-head-dim rotary-scaling-factor mscale mscale-all-dim original-max-position-embeddings "     \
    "attention-dropout hidden-dropout "                                                            \
    "init-method-std add-bias-linear gated-linear-unit activation-func num-experts "               \
    "moe-layer-freq moe-ffn-hidden-size moe-shared-expert-intermediate-size "                      \
    "moe-router-load-balancing-type moe-router-score-function moe-router-topk "                    \
    "moe-router-pre-softmax moe-router-num-groups moe-router-group-topk "                          \
    "moe-router-topk-scaling-factor moe-router-enable-expert-bias moe-router-bias-update-rate "    \
    "moe-aux-loss-coeff moe-z-loss-coeff moe-expert-capacity-factor moe-token-drop-policy "        \
    "vocab-size padded-vocab-size"

typedef enum kind { GPT2, LLAMA, QWEN2, QWEN3, MISTRAL, MIXTRAL, QWEN3_MOE, DEEPSEEK } kind;

/* What the flags say of the model. */
typedef struct shape {
    kind kind;
    int64_t layers, hidden, heads;
    bool mla, experts, swiglu, rms, rope, bias, qkv_bias, qk_norm, untied;
    const char *sign; /* the flag that tells the family */
} shape;

static shape read_shape(gw_cv *c) {
    const char *pos = gw_cv_text(c, "position-embedding-type", "learned_absolute");
    const char *act = gw_cv_text(c, "activation-func", "");
    shape s = {.layers = gw_cv_int(c, "num-layers", 0),
               .hidden = gw_cv_int(c, "hidden-size", 0),
               .heads = gw_cv_int(c, "num-attention-heads", 0),
               .mla = gw_cv_bool(c, "multi-latent-attention", false),
               .experts = gw_cv_int(c, "num-experts", 0) > 0,
               .swiglu = gw_cv_bool(c, "swiglu", false) || gw_str_eq(act, "swiglu") ||
                         gw_str_eq(act, "silu"),
               .rms = gw_str_eq(gw_cv_text(c, "normalization", "LayerNorm"), "RMSNorm"),
               .rope =
                   gw_str_eq(pos, "rope") || gw_cv_bool(c, "use-rotary-position-embeddings", false),
               .bias = !gw_cv_bool(c, "disable-bias-linear", false) &&
                       gw_cv_bool(c, "add-bias-linear", true),
               .qkv_bias = gw_cv_bool(c, "add-qkv-bias", false),
               .qk_norm = gw_cv_bool(c, "qk-layernorm", false),
               .untied = gw_cv_bool(c, "untie-embeddings-and-output-weights", false)};
    bool llama = s.rope || s.swiglu || s.rms;
    s.sign = s.mla ? "multi-latent-attention" : s.experts ? "num-experts" : "num-layers";
    s.kind = s.mla                         ? DEEPSEEK
             : s.experts                   ? (s.qk_norm ? QWEN3_MOE : MIXTRAL)
             : !llama                      ? GPT2
             : s.qk_norm                   ? QWEN3
             : s.qkv_bias && !s.bias       ? QWEN2
             : gw_cv_get(c, "window-size") ? MISTRAL
                                           : LLAMA;
    return s;
}

/* Where the flags, or their defaults, say something else than the family has. */
static void refuse_differences(gw_cv *c, const shape *s) {
    bool gpt2 = s->kind == GPT2;
    gw_cv_flag(c, "swiglu", !gpt2, "the family's activation");
    gw_cv_flag(c, "gated-linear-unit", !gpt2, "the family's activation");
    gw_cv_imply(c, "activation-func", "the family's activation");
    const char *norm = gw_cv_text(c, "normalization", "LayerNorm");
    if (gw_str_eq(norm, gpt2 ? "LayerNorm" : "RMSNorm"))
        gw_cv_imply(c, "normalization", "the family's norm");
    gw_cv_refuse(c, "normalization", NULL, "with rotary positions or swiglu norms are RMSNorm");
    const char *pos = gw_cv_text(c, "position-embedding-type", "learned_absolute");
    if (gw_str_eq(pos, gpt2 ? "learned_absolute" : "rope"))
        gw_cv_imply(c, "position-embedding-type", "the family's positions");
    gw_cv_refuse(c, "position-embedding-type", NULL, "the family's positions are %s",
                 gpt2 ? "learned" : "rotary");
    gw_cv_flag(c, "use-rotary-position-embeddings", !gpt2, "the family's positions");
    gw_cv_flag(c, "no-position-embedding", !gpt2, "positions are rotary alone");
    if (!gpt2 && !s->swiglu)
        gw_cv_refuse_default(c, "swiglu", "false", NULL, "gelu is only in gpt2; swiglu is trained");
    if (!gpt2 && !s->rms && !gw_cv_known(c, "normalization"))
        gw_cv_refuse_default(c, "normalization", "LayerNorm", NULL,
                             "LayerNorm is only in gpt2; RMSNorm is trained");
    if (!gpt2 && !s->rope)
        gw_cv_refuse_default(c, "position-embedding-type", "learned_absolute", NULL,
                             "learned positions are only in gpt2; rotary ones are trained");
}

/* Biases of linear layers, by family. */
static void settle_biases(gw_cv *c, const shape *s) {
    static const char *const keys[] = {"disable-bias-linear", "add-bias-linear", "add-qkv-bias"};
    bool can = s->kind == LLAMA;
    if (can && s->bias) {
        gw_cv_put(c, "model.attention_bias", "Megatron's linear layers have biases", "true");
        gw_cv_put(c, "model.mlp_bias", "Megatron's linear layers have biases", "true");
    } else if (can && s->qkv_bias) {
        gw_cv_map(c, "add-qkv-bias", "model.attention_bias", "true");
        gw_cv_remark(c, "add-qkv-bias", "here the output projection has one, too");
    }
    if (s->kind == GPT2 && !s->bias)
        for (size_t i = 0; i < 2; i++)
            gw_cv_refuse(c, keys[i], NULL, "gpt2's linear layers have biases");
    bool off = s->kind != GPT2 && s->kind != LLAMA;
    if (off && s->bias)
        gw_cv_refuse_default(c, "disable-bias-linear", "false", NULL,
                             "this family's linear layers have no biases");
    if (s->qkv_bias && s->kind != QWEN2 && s->kind != GPT2)
        gw_cv_refuse(c, "add-qkv-bias", NULL, "this family's q, k and v have no biases");
    for (size_t i = 0; i < GW_COUNT(keys); i++) gw_cv_imply(c, keys[i], "as the family has it");
}

static void settle_attention(gw_cv *c, const shape *s) {
    bool grouped = gw_cv_bool(c, "group-query-attention", false);
    int64_t groups = gw_cv_int(c, "num-query-groups", 1);
    bool free_kv = s->kind != GPT2 && s->kind != DEEPSEEK;
    gw_cv_imply(c, "group-query-attention", grouped ? "num-query-groups says how many" : "off");
    if (grouped && free_kv)
        gw_cv_map(c, "num-query-groups", "model.kv_heads", "%lld", (long long)groups);
    if (!grouped || groups == s->heads) gw_cv_imply(c, "num-query-groups", "each head has its own");
    gw_cv_refuse(c, "num-query-groups", NULL, "this family's heads have keys of their own");
    int64_t width = gw_cv_int(c, "kv-channels", 0), even = s->heads ? s->hidden / s->heads : 0;
    bool free_width = s->kind != GPT2 && s->kind != QWEN2 && s->kind != DEEPSEEK;
    if (free_width) gw_cv_map(c, "kv-channels", "model.head_dim", "%lld", (long long)width);
    if (width == even || s->kind == DEEPSEEK)
        gw_cv_imply(c, "kv-channels",
                    s->kind == DEEPSEEK ? "qk-head-dim says it" : "hidden / heads");
    gw_cv_refuse(c, "kv-channels", NULL, "heads are hidden / heads = %lld wide", (long long)even);
    gw_cv_key *window = gw_cv_get(c, "window-size");
    if (window) { /* (left, right), or the left alone */
        int64_t left;
        const char *p = window->text + strspn(window->text, "([ ");
        const char *digits = gw_arena_strndup(c->a, p, strspn(p, "0123456789"));
        bool can = (s->kind == MISTRAL || s->kind == MIXTRAL) && gw_parse_i64(digits, &left);
        if (can) gw_cv_map(c, "window-size", "model.sliding_window", "%lld", (long long)left + 1);
        if (can) gw_cv_remark(c, "window-size", "here the position itself is counted");
        gw_cv_refuse(c, "window-size", NULL, "no such window in this family");
    }
    gw_cv_flag(c, "qk-layernorm", s->kind == QWEN3 || s->kind == QWEN3_MOE || s->kind == DEEPSEEK,
               "the family has its norms");
}

static void settle_rope(gw_cv *c, const shape *s) {
    bool gpt2 = s->kind == GPT2, yarn = s->kind == DEEPSEEK;
    if (!gpt2) gw_cv_map_real(c, "rotary-base", "model.rope_theta");
    gw_cv_imply(c, "rotary-base", "positions are learned");
    if (!gpt2) gw_cv_put(c, "model.rope_theta", "megatron's default", "10000");
    bool scaled = gw_cv_bool(c, "use-rope-scaling", false) && !gpt2;
    if (scaled) gw_cv_map(c, "use-rope-scaling", "model.rope_scaling.type", "llama3");
    gw_cv_imply(c, "use-rope-scaling", "off");
    if (scaled) gw_cv_map_real(c, "rope-scaling-factor", "model.rope_scaling.factor");
    gw_cv_imply(c, "rope-scaling-factor", "use-rope-scaling is off");
    double stretch = gw_cv_real(c, "rotary-scaling-factor", 1);
    if (yarn && stretch > 1) {
        gw_cv_map_real(c, "rotary-scaling-factor", "model.rope_scaling.factor");
        gw_cv_map(c, "rotary-scaling-factor", "model.rope_scaling.type", "yarn");
        gw_cv_map_int(c, "original-max-position-embeddings",
                      "model.rope_scaling.original_max_positions");
        gw_cv_put(c, "model.rope_scaling.original_max_positions", "megatron's default", "4096");
        gw_cv_map_real(c, "mscale", "model.rope_scaling.mscale");
        gw_cv_map_real(c, "mscale-all-dim", "model.rope_scaling.mscale_all_dim");
        gw_cv_put(c, "model.rope_scaling.mscale", "megatron's default", "1");
    }
    const char *type = gw_cv_text(c, "rope-type", yarn ? "yarn" : "rope");
    if (gw_str_eq(type, yarn && stretch > 1 ? "yarn" : "rope") || (yarn && !(stretch > 1)))
        gw_cv_imply(c, "rope-type", "as the family has it");
    gw_cv_refuse(c, "rope-type", "--set model.rope_scaling.type=yarn",
                 "no stretching is said with it");
    gw_cv_imply_list(c,
                     "rotary-scaling-factor mscale mscale-all-dim original-max-position-embeddings",
                     "only with latent attention that is stretched");
}

static void settle_latent(gw_cv *c, const shape *s) {
    static const struct {
        const char *theirs, *ours, *fallback;
    } rows[] = {{"q-lora-rank", "model.mla.q_rank", "0"},
                {"kv-lora-rank", "model.mla.kv_rank", "32"},
                {"qk-head-dim", "model.mla.nope", "128"},
                {"qk-pos-emb-head-dim", "model.mla.rope", "64"},
                {"v-head-dim", "model.mla.v", "128"}};
    for (size_t i = 0; i < GW_COUNT(rows); i++) {
        if (s->kind == DEEPSEEK) {
            gw_cv_map_int(c, rows[i].theirs, rows[i].ours);
            gw_cv_put(c, rows[i].ours, "megatron's default", "%s", rows[i].fallback);
        }
        gw_cv_imply(c, rows[i].theirs, "only with latent attention");
    }
    gw_cv_imply(c, "multi-latent-attention", s->mla ? "the family deepseek" : "off");
}

/* "([0]*3+[1]*58)": how many dense layers come first, or -1. */
static int64_t dense_first(const char *text, int64_t layers) {
    int64_t every = 0, dense = 0, sparse = 0;
    if (gw_parse_i64(text, &every)) return every == 1 ? 0 : -1;
    const char *p = text + strspn(text, "( ");
    for (int part = 0; part < 2; part++) {
        int64_t n = 1;
        if ((p[0] != '[') || (p[1] != '0' && p[1] != '1') || p[2] != ']') return -1;
        bool one = p[1] == '1';
        p += 3;
        if (*p == '*') {
            for (n = 0, p++; *p >= '0' && *p <= '9' && n < 100000; p++) n = n * 10 + (*p - '0');
        }
        *(one ? &sparse : &dense) += n;
        p += strspn(p, " )");
        if (*p == 0) break;
        if (*p++ != '+' || one) return -1;
        p += strspn(p, " ");
    }
    return *p == 0 && dense + sparse == layers && sparse > 0 ? dense : -1;
}

static void settle_balance(gw_cv *c, bool bias) {
    const char *k = "moe-router-load-balancing-type";
    const char *how = gw_cv_text(c, k, "aux_loss");
    const char *ours = bias                             ? "bias"
                       : gw_str_eq(how, "none")         ? "none"
                       : gw_str_eq(how, "seq_aux_loss") ? "sequence"
                       : gw_str_eq(how, "aux_loss") || gw_str_eq(how, "global_aux_loss") ? "batch"
                                                                                         : NULL;
    double weight = gw_cv_real(c, "moe-aux-loss-coeff", 0);
    if (!bias && !(weight > 0)) ours = ours ? "none" : NULL;
    if (bias) gw_cv_map(c, "moe-router-enable-expert-bias", "model.moe.balance", "bias");
    if (bias) gw_cv_imply(c, k, "beside the bias a loss of each sequence");
    if (ours && !bias) gw_cv_map(c, k, "model.moe.balance", "%s", ours);
    gw_cv_refuse(c, k, "--set model.moe.balance=batch", "that way of balance is not built");
    gw_cv_put(c, "model.moe.balance", "megatron's default", "%s", ours ? ours : "none");
    if (ours && !gw_str_eq(ours, "none") && (bias || weight > 0))
        gw_cv_map_real(c, "moe-aux-loss-coeff", "model.moe.balance_weight");
    gw_cv_imply(c, "moe-aux-loss-coeff", "0: no loss");
    gw_cv_imply(c, "moe-router-enable-expert-bias", "off");
    if (bias) gw_cv_map_real(c, "moe-router-bias-update-rate", "model.moe.bias_rate");
    gw_cv_imply(c, "moe-router-bias-update-rate", "there is no bias");
}

static void settle_experts(gw_cv *c, const shape *s) {
    if (!s->experts) {
        gw_cv_imply_list(
            c,
            "num-experts moe-layer-freq moe-ffn-hidden-size "
            "moe-shared-expert-intermediate-size moe-router-load-balancing-type "
            "moe-router-score-function moe-router-topk moe-router-pre-softmax "
            "moe-router-num-groups moe-router-group-topk moe-router-topk-scaling-factor "
            "moe-router-enable-expert-bias moe-router-bias-update-rate "
            "moe-aux-loss-coeff moe-z-loss-coeff moe-expert-capacity-factor "
            "moe-token-drop-policy",
            "there are no experts");
        return;
    }
    bool deep = s->kind == DEEPSEEK;
    gw_cv_map_int(c, "num-experts", "model.moe.experts");
    gw_cv_map_int(c, "moe-router-topk", "model.moe.top");
    gw_cv_put(c, "model.moe.top", "megatron's default", "2");
    int64_t ffn = gw_cv_int(c, "ffn-hidden-size", 4 * s->hidden);
    int64_t each = gw_cv_int(c, "moe-ffn-hidden-size", ffn);
    gw_cv_map_int(c, "moe-ffn-hidden-size", "model.moe.ffn");
    gw_cv_put(c, "model.moe.ffn", "megatron's default: ffn-hidden-size", "%lld", (long long)each);
    int64_t shared = gw_cv_int(c, "moe-shared-expert-intermediate-size", 0);
    if (deep && each > 0 && shared % each == 0)
        gw_cv_map(c, "moe-shared-expert-intermediate-size", "model.moe.shared", "%lld",
                  (long long)(shared / each));
    if (deep) gw_cv_put(c, "model.moe.shared", "megatron's default", "0");
    gw_cv_refuse(c, "moe-shared-expert-intermediate-size", NULL,
                 "shared experts are so many times the width of one, and only in deepseek");
    gw_cv_key *freq = gw_cv_get(c, "moe-layer-freq");
    int64_t dense = freq ? dense_first(freq->text, s->layers) : 0;
    if (deep && dense >= 0 && freq)
        gw_cv_map(c, "moe-layer-freq", "model.moe.dense_layers", "%lld", (long long)dense);
    if (deep) gw_cv_put(c, "model.moe.dense_layers", "megatron's default", "0");
    if (dense == 0) gw_cv_imply(c, "moe-layer-freq", "every layer has experts");
    gw_cv_refuse(c, "moe-layer-freq", NULL, "dense layers come first, and only in deepseek");
    const char *score = gw_cv_text(c, "moe-router-score-function", "softmax");
    bool bias = gw_cv_bool(c, "moe-router-enable-expert-bias", false) && deep;
    if (!gw_str_eq(score, "softmax") && !gw_str_eq(score, "sigmoid")) {
        gw_cv_refuse(c, "moe-router-score-function", "--set model.moe.score=sigmoid",
                     "softmax and sigmoid are built");
        score = "softmax";
    }
    if (deep) gw_cv_map(c, "moe-router-score-function", "model.moe.score", "%s", score);
    if (deep) gw_cv_put(c, "model.moe.score", "megatron's default", "softmax");
    if (gw_str_eq(score, "softmax"))
        gw_cv_imply(c, "moe-router-score-function", "as the family has it");
    gw_cv_refuse(c, "moe-router-score-function", NULL, "only deepseek's routers have it");
    bool pre = gw_cv_bool(c, "moe-router-pre-softmax", false) && gw_str_eq(score, "softmax");
    if (pre && s->kind != MIXTRAL)
        gw_cv_map(c, "moe-router-pre-softmax", "model.moe.normalize", "false");
    if (pre)
        gw_cv_refuse(c, "moe-router-pre-softmax", NULL,
                     "gates of mixtral are a softmax over the chosen");
    gw_cv_imply(c, "moe-router-pre-softmax", "gates of the chosen experts sum to 1");
    if (s->kind != MIXTRAL) gw_cv_put(c, "model.moe.normalize", "megatron's default", "true");
    if (deep) {
        gw_cv_map_int(c, "moe-router-num-groups", "model.moe.groups");
        gw_cv_map_int(c, "moe-router-group-topk", "model.moe.group_limit");
        gw_cv_map_real(c, "moe-router-topk-scaling-factor", "model.moe.scale");
        gw_cv_put(c, "model.moe.scale", "megatron's default", "1");
    }
    gw_cv_refuse(c, "moe-router-num-groups", NULL, "groups of experts are only in deepseek");
    gw_cv_refuse(c, "moe-router-group-topk", NULL, "groups of experts are only in deepseek");
    gw_cv_refuse(c, "moe-router-topk-scaling-factor", NULL, "gates are scaled only in deepseek");
    if (gw_cv_bool(c, "moe-router-enable-expert-bias", false) && !bias)
        gw_cv_refuse(c, "moe-router-enable-expert-bias", "--set model.moe.balance=batch",
                     "a bias on the choice is only in deepseek");
    settle_balance(c, bias);
    gw_cv_map_real(c, "moe-z-loss-coeff", "model.moe.z_weight");
    gw_cv_map_real(c, "moe-expert-capacity-factor", "model.moe.capacity");
    const char *drop = gw_cv_text(c, "moe-token-drop-policy", "probs");
    gw_cv_map(c, "moe-token-drop-policy", "model.moe.drop", "%s",
              gw_str_eq(drop, "position") ? "position" : "score");
    if (gw_cv_ours(c, "model.moe.capacity"))
        gw_cv_put(c, "model.moe.drop", "megatron's default", "score");
}

static void settle_vocabulary(gw_cv *c) {
    const char *type = gw_cv_text(c, "tokenizer-type", ""),
               *path = gw_cv_text(c, "tokenizer-model", NULL);
    static const struct {
        const char *type;
        int vocab;
    } known[] = {{"GPT2BPETokenizer", 50257}, {"Llama2Tokenizer", 32000}};
    if (gw_cv_get(c, "padded-vocab-size")) {
        gw_cv_map_int(c, "padded-vocab-size", "model.vocab");
        gw_cv_imply(c, "vocab-size", "padded-vocab-size says the model's");
    }
    gw_cv_map_int(c, "vocab-size", "model.vocab");
    for (size_t i = 0; i < GW_COUNT(known); i++)
        if (gw_str_eq(type, known[i].type))
            gw_cv_put(c, "model.vocab", "of the tokenizer that is named", "%d", known[i].vocab);
    if (!*type && gw_cv_get(c, "vocab-file"))
        gw_cv_put(c, "model.vocab", "of GPT-2's tokenizer", "50257");
    bool here = path && gw_path_exists(path);
    if (here) gw_cv_map(c, "tokenizer-model", "data.tokenizer", "%s", gw_cv_quote(c, path));
    gw_cv_refuse(c, "tokenizer-model", "--set data.tokenizer=PATH",
                 "there is no such tokenizer on this machine");
    gw_cv_imply(c, "tokenizer-type", "the tokenizer's own files say it");
    gw_cv_imply(c, "vocab-file", "--set data.tokenizer=PATH names a tokenizer.json");
    gw_cv_imply(c, "merge-file", "--set data.tokenizer=PATH names a tokenizer.json");
    if (!c->model_given && !here && !gw_cv_ours(c, "model.vocab"))
        gw_cv_conflict(c, NULL, "the vocabulary is not known: give --set model.vocab=N");
}

static void settle_dropout(gw_cv *c, const shape *s) {
    double hidden = gw_cv_real(c, "hidden-dropout", 0.1),
           attention = gw_cv_real(c, "attention-dropout", 0.1);
    bool gpt2 = s->kind == GPT2;
    if (gpt2) gw_cv_map_real(c, "hidden-dropout", "model.dropout");
    if (gpt2) gw_cv_put(c, "model.dropout", "megatron's default", "0.1");
    if (!(hidden > 0)) gw_cv_imply(c, "hidden-dropout", "off");
    gw_cv_refuse(c, "hidden-dropout", NULL, "only gpt2 has dropout");
    if (!(attention > 0)) gw_cv_imply(c, "attention-dropout", "off");
    gw_cv_refuse(c, "attention-dropout", NULL, "attention itself drops nothing");
    if (!gpt2 && !gw_cv_known(c, "hidden-dropout"))
        gw_cv_refuse_default(c, "hidden-dropout", "0.1", NULL, "only gpt2 has dropout");
    if (!gw_cv_known(c, "attention-dropout"))
        gw_cv_refuse_default(c, "attention-dropout", "0.1", NULL, "attention itself drops nothing");
}

void gw_cv_megatron_model(gw_cv *c) {
    static const char *const names[] = {"gpt2",    "llama",   "qwen2",     "qwen3",
                                        "mistral", "mixtral", "qwen3_moe", "deepseek"};
    if (c->model_given) gw_cv_imply_list(c, MODEL_KEYS, "--model says it");
    shape s = read_shape(c);
    settle_vocabulary(c);
    if (c->model_given || !gw_cv_known(c, "num-layers")) return;
    refuse_differences(c, &s);
    settle_biases(c, &s);
    settle_attention(c, &s);
    settle_rope(c, &s);
    settle_latent(c, &s);
    settle_experts(c, &s);
    settle_dropout(c, &s);
    gw_cv_put(c, "model.family", "what the flags have in common", "%s", names[s.kind]);
    gw_cv_map_int(c, "num-layers", "model.layers");
    gw_cv_map_int(c, "hidden-size", "model.hidden");
    gw_cv_map_int(c, "num-attention-heads", "model.heads");
    bool ffn = gw_cv_known(c, "ffn-hidden-size");
    gw_cv_map_int(c, "ffn-hidden-size", "model.ffn");
    int64_t width = s.swiglu && !ffn ? ((s.hidden * 4 * 2 / 3) / 64) * 64 : 4 * s.hidden;
    gw_cv_put(c, "model.ffn",
              s.swiglu ? "megatron's default: 2/3 of 4 x hidden, in 64s"
                       : "megatron's default: 4 x hidden",
              "%lld", (long long)width);
    if (s.kind == GPT2 && s.untied)
        gw_cv_map(c, "untie-embeddings-and-output-weights", "model.tie_embeddings", "false");
    gw_cv_imply(c, "untie-embeddings-and-output-weights", s.untied ? "two matrices" : "one matrix");
    gw_cv_put(c, "model.tie_embeddings", s.untied ? "untied" : "megatron's default: one matrix",
              "%s", s.untied ? "false" : "true");
    gw_cv_map_int(c, "max-position-embeddings", "model.max_positions");
    gw_cv_map_real(c, "init-method-std", "model.init_std");
}

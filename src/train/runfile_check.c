// SPDX-License-Identifier: Apache-2.0
// What one key of a run file implies for another: derived values, contradictions, keys without
// effect.
//
// Three steps, in this order. First the source of the model is settled, because half of the keys
// hang on it. Then each key that was given is asked whether anything reads it in this configuration
// (the `when` column of runfile.def): if nothing does, it is refused, since a key that is silently
// ignored is a run other than the one meant. Then values that were not given are derived from those
// that were, and the sums that must agree are checked.
//
// A check is left out when a key it hangs on is already marked bad, so that one mistake gives one
// message. A preset is opened up here: its dimensions become the values of the keys that were not
// given. What needs other files (the tokenizer, a model directory) is left to those who read them.
#include <stdarg.h> /* va_list */
#include <stdio.h>  /* vsnprintf */
#include <string.h> /* strchr */

#include "base/log.h"          /* gw_log_info */
#include "base/panic.h"        /* GW_ASSERT */
#include "model/model.h"       /* gw_model_preset, gw_model_defaults */
#include "sched/sched.h"       /* gw_sched_kind_find */
#include "train/runfile_key.h" /* gw_rf_keys */

// ------------------------------------------------------------------ conditions of the table

/* Is the family known? settle_source sets it from model.family or from the preset. */
static bool family_known(const gw_runfile *rf) {
    static const char *const keys[] = {"model.family", "model.preset", "model.path"};
    const gw_rf_mark *m = &rf->marks[gw_rf_key_find(keys[rf->model.source])];
    return rf->model.source != GW_RF_PATH && m->set && !m->bad;
}

/* May the model be of this family? True also when nobody knows. */
static bool may_be(const gw_runfile *rf, gw_rf_family f) {
    return !family_known(rf) || rf->model.family == f;
}

/* May it be another? True also when nobody knows. */
static bool may_be_other_than(const gw_runfile *rf, gw_rf_family f) {
    return !family_known(rf) || rf->model.family != f;
}

/* A net for images? False also when nobody knows. */
static bool is_of_images(const gw_runfile *rf) {
    return family_known(rf) && gw_runfile_has_images(rf);
}

/* Is the order of the pipeline looked for, within a memory? */
static bool is_searched(const gw_runfile *rf) {
    const gw_sched_kind *k = rf->layout.schedule ? gw_sched_kind_find(rf->layout.schedule) : NULL;
    return k && k->searches;
}

#define ALWAYS    true
#define OF_TEXT   (!is_of_images(rf))
#define TEXT_DIMS (HAS_DIMS && OF_TEXT)
#define IMAGES    (HAS_DIMS && (is_of_images(rf) || !family_known(rf)))
#define FROM_PATH (rf->model.source == GW_RF_PATH)
#define HAS_DIMS  (rf->model.source != GW_RF_PATH)
#define MAY_BE(f) may_be(rf, f)
#define NOT(f)    may_be_other_than(rf, f)
#define ROPE_LLAMA3                                                                                \
    (TEXT_DIMS && NOT(GW_RF_GPT2) && rf->model.rope_scaling.type == GW_RF_ROPE_LLAMA3)
#define ROPE_YARN (TEXT_DIMS && NOT(GW_RF_GPT2) && rf->model.rope_scaling.type == GW_RF_ROPE_YARN)
#define EXPERTS                                                                                    \
    (HAS_DIMS && (MAY_BE(GW_RF_MIXTRAL) || MAY_BE(GW_RF_QWEN3_MOE) || MAY_BE(GW_RF_DEEPSEEK)))
#define DEEPSEEK (HAS_DIMS && MAY_BE(GW_RF_DEEPSEEK))
#define BALANCED (FROM_PATH || EXPERTS)
#define BALANCE_OPEN                                                                               \
    (!rf->marks[gw_rf_key_find("model.moe.balance")].set &&                                        \
     rf->model.moe.balance == GW_RF_BALANCE_NONE)
#define WEIGHTED (BALANCED && (rf->model.moe.balance != GW_RF_BALANCE_NONE || BALANCE_OPEN))
#define BIASED                                                                                     \
    (BALANCED && (rf->model.moe.balance == GW_RF_BALANCE_BIAS ||                                   \
                  (BALANCE_OPEN && (FROM_PATH || MAY_BE(GW_RF_DEEPSEEK)))))
#define CAPPED      (BALANCED && rf->model.moe.capacity > 0)
#define PURE_BF16   (rf->precision.compute == GW_RF_BF16 && rf->precision.master == GW_RF_STORE_NONE)
#define MIXED       (rf->precision.compute != GW_RF_FP32)
#define KEPT(field) (MIXED || rf->precision.field == GW_RF_STORE_FLOAT32)
#define SHARDS      (rf->layout.zero > 0)
#define RESHARDS    (rf->layout.zero == 3 && rf->layout.reshard_after_forward != GW_RF_RESHARD_FALSE)
#define CUTS_TOKENS                                                                                \
    (rf->layout.tp > 1 &&                                                                          \
     (rf->layout.sequence_parallel || !rf->marks[gw_rf_key_find("layout.sequence_parallel")].set))
#define SEVERAL_SOURCES (rf->data.train.count > 1)
#define PIPELINE        (rf->layout.pp > 1)
#define SEARCHED        (rf->layout.pp > 1 && is_searched(rf))
#define HYBRID          (rf->layout.cp > 1 && rf->layout.cp_mode == GW_RF_CP_HYBRID)
#define HAS_STATES      (rf->optimizer.name != GW_RF_SGD || rf->optimizer.momentum > 0)
#define HAS_MASTER      (MIXED && rf->precision.master == GW_RF_STORE_FLOAT32)
#define TO_DISK                                                                                    \
    (rf->offload.optimizer == GW_MEM_DISK || rf->offload.master == GW_MEM_DISK ||                  \
     rf->offload.parameters == GW_MEM_DISK)
#define DYNAMIC_SCALE (rf->precision.compute == GW_RF_FP16 && rf->precision.loss_scale == 0.0)

bool gw_rf_effective(const gw_runfile *rf, int key) {
    int i = 0;
#define GW_GROUP(path, meaning)
#define GW_KEY(field, TYPE, fallback, check, unit, when, only, meaning)                            \
    if (i++ == key) return (when);
#include "train/runfile.def"
#undef GW_GROUP
#undef GW_KEY
    return true;
}

// ------------------------------------------------------------------ small questions

static const gw_rf_mark *mark(const gw_runfile *rf, const char *key) {
    return &rf->marks[gw_rf_key_find(key)];
}

static bool is_set(const gw_runfile *rf, const char *key) { return mark(rf, key)->set; }

static bool is_bad(const gw_runfile *rf, const char *key) { return mark(rf, key)->bad; }

static bool given_well(const gw_runfile *rf, const char *key) {
    return mark(rf, key)->set && !mark(rf, key)->bad;
}

// ------------------------------------------------------------------ the model's source

_Static_assert((int)GW_RF_GPT2 == (int)GW_FAMILY_GPT2 && (int)GW_RF_LLAMA == (int)GW_FAMILY_LLAMA &&
                   (int)GW_RF_QWEN2 == (int)GW_FAMILY_QWEN2 &&
                   (int)GW_RF_QWEN3 == (int)GW_FAMILY_QWEN3 &&
                   (int)GW_RF_MISTRAL == (int)GW_FAMILY_MISTRAL &&
                   (int)GW_RF_MIXTRAL == (int)GW_FAMILY_MIXTRAL &&
                   (int)GW_RF_QWEN3_MOE == (int)GW_FAMILY_QWEN3_MOE &&
                   (int)GW_RF_DEEPSEEK == (int)GW_FAMILY_DEEPSEEK,
               "families are numbered as the model builder numbers them");
_Static_assert((int)GW_RF_SIGMOID == (int)GW_MOE_SIGMOID &&
                   (int)GW_RF_BALANCE_SEQUENCE == (int)GW_MOE_BALANCE_SEQUENCE &&
                   (int)GW_RF_BALANCE_BATCH == (int)GW_MOE_BALANCE_BATCH &&
                   (int)GW_RF_BALANCE_BIAS == (int)GW_MOE_BALANCE_BIAS,
               "routers' words are numbered as the model builder numbers them");

static void unknown_preset(gw_runfile *rf, gw_diags *dg) {
    gw_diag *g = gw_runfile_error(rf, dg, "model.preset", "config-value",
                                  "there is no preset '%.60s'", rf->model.preset);
    const char *best = NULL, *name;
    int limit = 6;
    gw_str all = {0};
    for (int i = 0; (name = gw_model_preset_name(i)) != NULL; i++) {
        gw_str_printf(&all, "%s%s", i ? ", " : "presets: ", name);
        int d = gw_str_distance(name, rf->model.preset);
        if (d >= limit) continue;
        limit = d;
        best = name;
    }
    for (int i = 0; (name = gw_model_net_name(i)) != NULL; i++) {
        gw_str_printf(&all, ", %s", name);
        int d = gw_str_distance(name, rf->model.preset);
        if (d >= limit) continue;
        limit = d;
        best = name;
    }
    gw_diag_detail(dg, g, "%s", gw_str_c(&all));
    if (best) gw_diag_hint(dg, g, "did you mean %s?", best);
    gw_str_release(&all);
    rf->marks[gw_rf_key_find("model.preset")].bad = true;
}

/* The net for images of this name. */
static gw_rf_family net_family(const char *name) {
    int i = 0;
    while (gw_model_net_name(i) && !gw_str_eq(gw_model_net_name(i), name)) i++;
    GW_ASSERT(gw_model_net_name(i));
    return (gw_rf_family)((int)GW_RF_RESNET18 + i);
}

static void settle_preset(gw_runfile *rf, gw_diags *dg) {
    gw_model m;
    if (!given_well(rf, "model.preset")) return;
    if (!gw_model_preset(rf->model.preset, &m)) {
        unknown_preset(rf, dg);
        return;
    }
    rf->model.family =
        m.family == GW_FAMILY_RESNET ? net_family(rf->model.preset) : (gw_rf_family)m.family;
    if (!is_set(rf, "model.rope_scaling.type")) /* conditions of the table hang on it */
        rf->model.rope_scaling.type = m.rope_scaling == GW_ROPE_LINEAR   ? GW_RF_ROPE_LINEAR
                                      : m.rope_scaling == GW_ROPE_YARN   ? GW_RF_ROPE_YARN
                                      : m.rope_scaling == GW_ROPE_LLAMA3 ? GW_RF_ROPE_LLAMA3
                                                                         : GW_RF_ROPE_NONE;
}

static void settle_source(gw_runfile *rf, gw_diags *dg) {
    static const char *const sources[] = {"model.family", "model.preset", "model.path"};
    static const gw_rf_source values[] = {GW_RF_FAMILY, GW_RF_PRESET, GW_RF_PATH};
    int count = 0, last = 0;
    for (int i = 0; i < 3; i++) {
        if (!is_set(rf, sources[i])) continue;
        if (count++ == 0) rf->model.source = values[i];
        last = i;
    }
    bool section_is_bad = rf->marks[gw_rf_nkeys + gw_rf_group_find("model")].bad;
    if (count == 0 && !section_is_bad) {
        gw_diag *g = gw_runfile_error(rf, dg, sources[0], "config-missing",
                                      "the run file does not say which model to train");
        gw_diag_hint(dg, g,
                     "give model.family with dimensions, model.preset, or model.path; "
                     "`gradwright init` prints a run file that works");
    } else if (count == 1 && rf->model.source == GW_RF_PRESET) {
        settle_preset(rf, dg);
    } else if (count > 1) {
        gw_diag *g = gw_runfile_error(rf, dg, sources[last], "config-conflict",
                                      "more than one of model.family, model.preset and model.path "
                                      "is given");
        gw_diag_hint(dg, g, "keep one; dimensions beside model.preset override it");
    }
}

/* Does the key that `only` begins with stand, well-formed or by default? */
static bool condition_is_sound(const gw_runfile *rf, const char *only) {
    for (const char *s = only; s && *s; s = strchr(s + 1, ' ')) {
        char word[64];
        size_t n = strcspn(s + (*s == ' '), " ");
        if (n >= sizeof word) continue;
        memcpy(word, s + (*s == ' '), n);
        word[n] = 0;
        int key = gw_rf_key_find(word);
        if (key >= 0 && rf->marks[key].bad) return false;
    }
    return true;
}

static void refuse_ineffective(const gw_runfile *rf, gw_diags *dg) {
    bool source_known =
        is_set(rf, "model.family") + is_set(rf, "model.preset") + is_set(rf, "model.path") == 1 &&
        (FROM_PATH || family_known(rf));
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const gw_rf_key *k = &gw_rf_keys[i];
        if (!rf->marks[i].set || rf->marks[i].bad || rf->marks[i].left_to_us) continue;
        if (gw_rf_effective(rf, i)) continue;
        if (!condition_is_sound(rf, k->only)) continue;
        if (gw_str_starts(k->path, "model.") && !source_known) continue;
        gw_diag *g =
            gw_runfile_error(rf, dg, k->path, "config-no-effect",
                             "%s has no effect here: it is read only if %s", k->path, k->only);
        gw_diag_hint(dg, g, "remove it, or change the run so that %s", k->only);
    }
}

// ------------------------------------------------------------------ model dimensions

static void need_dimension(const gw_runfile *rf, const char *key, gw_diags *dg) {
    if (is_set(rf, key)) return;
    gw_diag *g =
        gw_runfile_error(rf, dg, "model.family", "config-missing", "model.family needs %s", key);
    gw_diag_hint(dg, g, "give the model's dimensions (layers, hidden, heads), or a model.preset");
}

/* Of two keys that do not fit, the one that was given. */
static const char *blame(const gw_runfile *rf, const char *a, const char *b) {
    return is_set(rf, a) || !is_set(rf, b) ? a : b;
}

static void derive_heads(gw_runfile *rf, gw_diags *dg) {
    gw_rf_model *m = &rf->model;
    if (m->family == GW_RF_DEEPSEEK) { /* whose heads have sizes of their own */
        m->kv_heads = m->heads;
        m->head_dim = m->mla.nope + m->mla.rope;
        return;
    }
    if (!is_set(rf, "model.kv_heads")) m->kv_heads = m->heads;
    if (m->heads <= 0 || m->hidden <= 0) return; /* complained about */
    bool own_width = m->source == GW_RF_PRESET && !is_set(rf, "model.hidden") &&
                     !is_set(rf, "model.heads"); /* the preset's, divisible or not */
    if (!is_set(rf, "model.head_dim") && !own_width) {
        m->head_dim = m->hidden / m->heads;
        if (m->hidden % m->heads != 0) {
            gw_diag *g =
                gw_runfile_error(rf, dg, blame(rf, "model.heads", "model.hidden"), "config-value",
                                 "model.hidden %lld does not divide by model.heads %lld",
                                 (long long)m->hidden, (long long)m->heads);
            gw_diag_hint(dg, g, "change one of them%s",
                         gw_rf_effective(rf, gw_rf_key_find("model.head_dim"))
                             ? ", or give model.head_dim"
                             : "");
            return;
        }
    }
    if (m->kv_heads > 0 && m->heads % m->kv_heads != 0) {
        gw_diag *g =
            gw_runfile_error(rf, dg, blame(rf, "model.kv_heads", "model.heads"), "config-value",
                             "model.heads %lld does not divide by model.kv_heads %lld",
                             (long long)m->heads, (long long)m->kv_heads);
        gw_diag_hint(dg, g, "each key and value head serves an equal group of query heads");
    }
    if (m->family != GW_RF_GPT2 && !own_width && m->head_dim % 2 != 0) {
        const char *key = is_set(rf, "model.head_dim") ? "model.head_dim"
                                                       : blame(rf, "model.heads", "model.hidden");
        gw_diag *g = gw_runfile_error(rf, dg, key, "config-value",
                                      "heads are %lld wide; rotary positions need an even width",
                                      (long long)m->head_dim);
        gw_diag_hint(dg, g, "change model.hidden, model.heads or model.head_dim");
    }
}

/* What was not given, from the family's usual constants or from the preset. */
static void fill_switches(gw_runfile *rf, const gw_model *from) {
    gw_rf_model *m = &rf->model;
    if (!is_set(rf, "model.norm_eps")) m->norm_eps = from->norm_eps;
    if (!is_set(rf, "model.rope_theta")) m->rope_theta = from->rope_theta;
    if (!is_set(rf, "model.tie_embeddings")) m->tie_embeddings = from->tie;
    if (!is_set(rf, "model.attention_bias")) m->attention_bias = from->qkv_bias;
    if (!is_set(rf, "model.mlp_bias")) m->mlp_bias = from->mlp_bias;
}

/* Experts and latents, likewise. */
static void fill_experts(gw_runfile *rf, const gw_model *from) {
    gw_rf_model *m = &rf->model;
    const gw_moe *e = &from->moe;
    if (!is_set(rf, "model.moe.experts")) m->moe.experts = e->experts;
    if (!is_set(rf, "model.moe.top")) m->moe.top = e->top;
    bool own = e->ffn > 0 && !(m->family == GW_RF_MIXTRAL && is_set(rf, "model.ffn"));
    if (!is_set(rf, "model.moe.ffn")) m->moe.ffn = own ? e->ffn : m->ffn;
    if (!is_set(rf, "model.moe.shared")) m->moe.shared = e->shared;
    if (!is_set(rf, "model.moe.dense_layers"))
        m->moe.dense_layers = GW_MIN(e->dense_layers, m->layers);
    if (!is_set(rf, "model.moe.score")) m->moe.score = (gw_rf_score)e->score;
    if (!is_set(rf, "model.moe.normalize")) m->moe.normalize = e->normalize;
    if (!is_set(rf, "model.moe.scale")) m->moe.scale = e->scale;
    if (!is_set(rf, "model.moe.groups")) m->moe.groups = e->groups;
    if (!is_set(rf, "model.moe.group_limit")) m->moe.group_limit = e->group_limit;
    if (!is_set(rf, "model.moe.balance")) m->moe.balance = (gw_rf_balance)e->balance;
    if (!is_set(rf, "model.moe.balance_weight")) m->moe.balance_weight = e->balance_weight;
    if (!is_set(rf, "model.moe.z_weight")) m->moe.z_weight = e->z_weight;
    if (!is_set(rf, "model.moe.bias_rate"))
        m->moe.bias_rate =
            m->moe.balance == GW_RF_BALANCE_BIAS && e->bias_rate == 0 ? 1e-3 : e->bias_rate;
    if (!is_set(rf, "model.moe.capacity")) m->moe.capacity = e->capacity;
    if (!is_set(rf, "model.moe.drop"))
        m->moe.drop = e->drop_by_score ? GW_RF_DROP_SCORE : GW_RF_DROP_POSITION;
    if (!is_set(rf, "model.mla.q_rank")) m->mla.q_rank = from->mla.q_rank;
    if (!is_set(rf, "model.mla.kv_rank")) m->mla.kv_rank = from->mla.kv_rank;
    if (!is_set(rf, "model.mla.nope")) m->mla.nope = from->mla.nope;
    if (!is_set(rf, "model.mla.rope")) m->mla.rope = from->mla.rope;
    if (!is_set(rf, "model.mla.v")) m->mla.v = from->mla.v;
}

/* What the tables of language models would say of a net for images. */
static void derive_images(gw_runfile *rf) {
    if (!is_set(rf, "model.norm_eps"))
        rf->model.norm_eps = gw_model_defaults(GW_FAMILY_RESNET).norm_eps;
    rf->train.seq_len = 1;
}

static void derive_family(gw_runfile *rf, gw_diags *dg) {
    gw_rf_model *m = &rf->model;
    const gw_model defaults = gw_model_defaults((gw_family)m->family);
    need_dimension(rf, "model.layers", dg);
    need_dimension(rf, "model.hidden", dg);
    need_dimension(rf, "model.heads", dg);
    if (!is_set(rf, "model.ffn"))
        m->ffn = m->family == GW_RF_GPT2 ? 4 * m->hidden : (8 * m->hidden / 3 + 63) / 64 * 64;
    fill_switches(rf, &defaults);
    fill_experts(rf, &defaults);
    derive_heads(rf, dg);
}

/* A preset's dimensions, but for those given. Overriding hidden or heads takes the derived head
 * width and, where only heads is given, as many key and value heads. */
static void derive_preset(gw_runfile *rf, gw_diags *dg) {
    gw_rf_model *m = &rf->model;
    gw_model p;
    if (!gw_model_preset(m->preset, &p)) return;
    bool reshaped = is_set(rf, "model.hidden") || is_set(rf, "model.heads");
    if (!is_set(rf, "model.layers")) m->layers = p.layers;
    if (!is_set(rf, "model.hidden")) m->hidden = p.hidden;
    if (!is_set(rf, "model.heads")) m->heads = p.heads;
    if (!is_set(rf, "model.ffn")) m->ffn = p.ffn;
    if (!is_set(rf, "model.vocab")) m->vocab = p.vocab;
    if (!is_set(rf, "model.sliding_window")) m->sliding_window = p.window;
    if (!is_set(rf, "model.dropout")) m->dropout = p.dropout;
    if (!is_set(rf, "model.init_std")) m->init_std = p.init_std;
    if (!is_set(rf, "model.rope_scaling.type") && p.rope_scaling != GW_ROPE_NONE) {
        if (!is_set(rf, "model.rope_scaling.factor")) m->rope_scaling.factor = p.rope_factor;
        if (!is_set(rf, "model.rope_scaling.low_freq_factor"))
            m->rope_scaling.low_freq_factor = p.rope_low;
        if (!is_set(rf, "model.rope_scaling.high_freq_factor"))
            m->rope_scaling.high_freq_factor = p.rope_high;
        if (!is_set(rf, "model.rope_scaling.original_max_positions"))
            m->rope_scaling.original_max_positions = p.rope_original;
        if (!is_set(rf, "model.rope_scaling.beta_slow")) m->rope_scaling.beta_slow = p.rope_low;
        if (!is_set(rf, "model.rope_scaling.beta_fast")) m->rope_scaling.beta_fast = p.rope_high;
        if (!is_set(rf, "model.rope_scaling.mscale")) m->rope_scaling.mscale = p.rope_mscale;
        if (!is_set(rf, "model.rope_scaling.mscale_all_dim"))
            m->rope_scaling.mscale_all_dim = p.rope_mscale_all;
    }
    fill_switches(rf, &p);
    fill_experts(rf, &p);
    derive_heads(rf, dg);
    if (m->family == GW_RF_DEEPSEEK) return;
    if (!reshaped && !is_set(rf, "model.head_dim")) m->head_dim = p.head_dim;
    if (!is_set(rf, "model.heads") && !is_set(rf, "model.kv_heads")) m->kv_heads = p.kv_heads;
}

static void check_yarn(const gw_runfile *rf, gw_diags *dg) {
    double slow = rf->model.rope_scaling.beta_slow, fast = rf->model.rope_scaling.beta_fast;
    if (!ROPE_YARN || is_bad(rf, "model.rope_scaling.beta_fast") ||
        is_bad(rf, "model.rope_scaling.beta_slow") || slow < fast)
        return;
    gw_diag *g = gw_runfile_error(rf, dg, "model.rope_scaling.beta_fast", "config-value",
                                  "beta_fast %g is not above beta_slow %g", fast, slow);
    gw_diag_hint(dg, g, "yarn's usual values are beta_slow: 1 and beta_fast: 32");
}

static void check_rope(const gw_runfile *rf, gw_diags *dg) {
    check_yarn(rf, dg);
    if (!ROPE_LLAMA3 || is_bad(rf, "model.rope_scaling.high_freq_factor") ||
        is_bad(rf, "model.rope_scaling.low_freq_factor"))
        return;
    double lo = rf->model.rope_scaling.low_freq_factor;
    double hi = rf->model.rope_scaling.high_freq_factor;
    if (lo < hi) return;
    gw_diag *g = gw_runfile_error(rf, dg, "model.rope_scaling.high_freq_factor", "config-value",
                                  "high_freq_factor %g is not above low_freq_factor %g", hi, lo);
    gw_diag_hint(dg, g, "Llama 3.1 has low_freq_factor: 1 and high_freq_factor: 4");
}

static void derive_lengths(gw_runfile *rf, gw_diags *dg) {
    gw_rf_model *m = &rf->model;
    bool limited = HAS_DIMS && given_well(rf, "model.max_positions");
    gw_model p;
    if (m->source == GW_RF_PRESET && family_known(rf) && !is_set(rf, "model.max_positions") &&
        gw_model_preset(m->preset, &p)) {
        m->max_positions = p.max_positions;
        limited = true;
    }
    if (!is_set(rf, "train.seq_len"))
        rf->train.seq_len = limited ? GW_MIN(INT64_C(1024), m->max_positions) : 1024;
    if (m->source == GW_RF_FAMILY && family_known(rf) && !is_set(rf, "model.max_positions"))
        m->max_positions =
            GW_MAX(gw_model_defaults((gw_family)m->family).max_positions, rf->train.seq_len);
    if (!limited || rf->train.seq_len <= m->max_positions || is_bad(rf, "train.seq_len")) return;
    gw_diag *g = gw_runfile_error(rf, dg, "train.seq_len", "config-value",
                                  "train.seq_len %lld is longer than model.max_positions %lld",
                                  (long long)rf->train.seq_len, (long long)m->max_positions);
    gw_diag_hint(dg, g, "shorten the sequences, or raise model.max_positions");
}

// ------------------------------------------------------------------ batch

/* A global batch that cannot be: the nearest that can. Only keys that were
 * given are spoken of. */
static void refuse_batch(const gw_runfile *rf, bool has_micro, bool has_acc, gw_diags *dg) {
    const gw_rf_train *t = &rf->train;
    long long all = t->global_batch, dp = rf->layout.dp;
    long long micro = t->micro_batch, acc = t->accumulate;
    bool both = has_micro && has_acc;
    long long unit = both ? micro * acc * dp : has_acc ? acc * dp : micro * dp;
    long long less = all / unit * unit, more = less + unit;
    char factors[96], nearest[64];
    if (both)
        snprintf(factors, sizeof factors, "micro_batch %lld x accumulate %lld", micro, acc);
    else if (has_acc)
        snprintf(factors, sizeof factors, "accumulate %lld", acc);
    else
        snprintf(factors, sizeof factors, "micro_batch %lld", micro);
    gw_diag *g = gw_runfile_error(rf, dg, "train.global_batch", "config-conflict",
                                  "train.global_batch is %lld, %s %s x dp %lld = %lld", all,
                                  both ? "but" : "no multiple of", factors, dp, unit);
    if (both && all % (micro * dp) == 0) {
        gw_diag_hint(dg, g, "write train.global_batch: %lld, or train.accumulate: %lld", unit,
                     all / (micro * dp));
        return;
    }
    if (both) {
        gw_diag_hint(dg, g, "write train.global_batch: %lld; no accumulate makes it %lld", unit,
                     all);
        return;
    }
    if (less > 0)
        snprintf(nearest, sizeof nearest, "%lld or %lld", less, more);
    else
        snprintf(nearest, sizeof nearest, "%lld", more);
    gw_diag_hint(dg, g, "write train.global_batch: %s", nearest);
}

/* global_batch = micro_batch x accumulate x dp. */
static void derive_batch(gw_runfile *rf, gw_diags *dg) {
    gw_rf_train *t = &rf->train;
    if (is_bad(rf, "train.micro_batch") || is_bad(rf, "train.accumulate") ||
        is_bad(rf, "train.global_batch") || is_bad(rf, "layout.dp"))
        return;
    bool has_micro = is_set(rf, "train.micro_batch"), has_acc = is_set(rf, "train.accumulate");
    int64_t dp = rf->layout.dp;
    if (!is_set(rf, "train.global_batch")) {
        if (!has_micro) t->micro_batch = 1;
        if (!has_acc) t->accumulate = 1;
    } else if (has_acc && !has_micro) {
        t->micro_batch = GW_MAX(INT64_C(1), t->global_batch / t->accumulate / dp);
    } else if (!has_acc) {
        if (!has_micro) t->micro_batch = 1;
        t->accumulate = GW_MAX(INT64_C(1), t->global_batch / t->micro_batch / dp);
    }
    int64_t product = 0;
    bool fits = !__builtin_mul_overflow(t->micro_batch, t->accumulate, &product) &&
                !__builtin_mul_overflow(product, dp, &product) && product <= 1000000000;
    if (!fits) {
        gw_runfile_error(rf, dg, has_acc ? "train.accumulate" : "train.micro_batch", "config-range",
                         "a step of %lld x %lld x %lld sequences is too large: at most 1000000000",
                         (long long)t->micro_batch, (long long)t->accumulate, (long long)dp);
        return;
    }
    if (!is_set(rf, "train.global_batch")) t->global_batch = product;
    if (t->global_batch == product) return;
    refuse_batch(rf, has_micro, has_acc, dg);
}

// ------------------------------------------------------------------ the rest

static void check_schedule(gw_runfile *rf, gw_diags *dg) {
    gw_rf_optim *o = &rf->optimizer;
    if (!is_set(rf, "optimizer.warmup_steps")) o->warmup_steps = rf->train.steps / 20;
    if (!is_set(rf, "optimizer.decay_steps"))
        o->decay_steps = GW_MAX(INT64_C(1), rf->train.steps / 10);
    if (is_bad(rf, "train.steps") || is_bad(rf, "optimizer.warmup_steps") ||
        is_bad(rf, "optimizer.decay_steps") || is_bad(rf, "optimizer.schedule"))
        return;
    if (o->schedule == GW_RF_WSD && o->warmup_steps + o->decay_steps > rf->train.steps) {
        const char *key = is_set(rf, "optimizer.decay_steps") ? "optimizer.decay_steps"
                                                              : "optimizer.warmup_steps";
        gw_diag *g = gw_runfile_error(
            rf, dg, key, "config-conflict",
            "warm-up of %lld and decay of %lld steps exceed the run of %lld steps",
            (long long)o->warmup_steps, (long long)o->decay_steps, (long long)rf->train.steps);
        gw_diag_hint(dg, g, "optimizer.warmup_steps + optimizer.decay_steps <= train.steps");
    } else if (o->warmup_steps >= rf->train.steps && is_set(rf, "optimizer.warmup_steps")) {
        gw_where w = gw_runfile_where(rf, "optimizer.warmup_steps");
        gw_diag *g = gw_diag_add(dg, GW_WARNING, GW_ERR_CONFIG, "config-warmup", w,
                                 "warm-up of %lld steps fills the whole run of %lld",
                                 (long long)o->warmup_steps, (long long)rf->train.steps);
        gw_diag_hint(dg, g, "the learning rate does not reach optimizer.lr before the end");
    }
}

static void check_buckets(gw_runfile *rf, gw_diags *dg) {
    gw_rf_layout *l = &rf->layout;
    if (!is_set(rf, "layout.first_bucket")) l->first_bucket = GW_MIN(INT64_C(1) << 20, l->bucket);
    if (l->first_bucket <= l->bucket || is_bad(rf, "layout.bucket") ||
        is_bad(rf, "layout.first_bucket"))
        return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.first_bucket", "config-layout",
                                  "layout.first_bucket is larger than layout.bucket");
    gw_diag_hint(dg, g, "it is there to begin communication early: make it the smaller one");
}

/* Whole weights that are their own master are gathered into their home: a lossy wire would round
 * the weights themselves, every step. */
static void check_weight_wire(gw_runfile *rf, gw_diags *dg) {
    int zero = (int)rf->layout.zero;
    bool master =
        rf->precision.compute != GW_RF_FP32 && rf->precision.master == GW_RF_STORE_FLOAT32;
    if (zero < 1 || zero > 2 || master || rf->layout.weight_wire == GW_WIRE_SAME ||
        is_bad(rf, "layout.weight_wire"))
        return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.weight_wire", "config-layout",
                                  "layout.weight_wire would round the weights themselves: with "
                                  "layout.zero %d and no master copy they have no other home",
                                  zero);
    gw_diag_hint(dg, g,
                 "write layout.zero: 3, or a precision with a float32 master, or "
                 "layout.weight_wire: same");
}

/* Two formats of 16 bits: a wire of bf16 saves nothing of fp16 and drops three of its bits. */
static void check_half_wires(const gw_runfile *rf, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    bool weights = l->zero > 0 && l->weight_wire == GW_WIRE_BF16;
    bool gradients =
        l->gradient_wire == GW_WIRE_BF16 && rf->precision.gradients == GW_RF_STORE_COMPUTE;
    const char *const keys[] = {"layout.weight_wire", "layout.gradient_wire"};
    if (rf->precision.compute != GW_RF_FP16 || is_bad(rf, "precision.compute")) return;
    for (int i = 0; i < 2; i++) {
        if (!(i ? gradients : weights) || is_bad(rf, keys[i])) continue;
        gw_diag *g =
            gw_runfile_error(rf, dg, keys[i], "config-layout", "%s bf16 is no wire for %s in fp16",
                             keys[i], i ? "gradients" : "weights");
        gw_diag_detail(dg, g, "it is as wide as fp16 is, and has three bits less of each value");
        gw_diag_hint(dg, g, "write %s: same%s, or precision.compute: bf16", keys[i],
                     i && l->zero == 0 ? "" : ", or int8");
    }
}

static void check_zero(gw_runfile *rf, gw_diags *dg) {
    if (is_bad(rf, "layout.zero") || is_bad(rf, "optimizer.name")) return;
    if (rf->layout.zero > 0 && rf->optimizer.name == GW_RF_MUON) {
        gw_diag *g = gw_runfile_error(rf, dg, "layout.zero", "config-layout",
                                      "layout.zero %lld cuts matrices into flat parts, and muon "
                                      "needs them whole",
                                      (long long)rf->layout.zero);
        gw_diag_hint(dg, g, "write layout.zero: 0, or optimizer.name: adamw");
        rf->marks[gw_rf_key_find("layout.zero")].bad = true;
    }
    check_weight_wire(rf, dg);
    check_half_wires(rf, dg);
    gw_wire w = rf->layout.gradient_wire;
    if (rf->layout.zero > 0 || (w != GW_WIRE_INT8 && w != GW_WIRE_INT4) ||
        is_bad(rf, "layout.gradient_wire"))
        return;
    gw_diag *g = gw_runfile_error(rf, dg, "layout.gradient_wire", "config-layout",
                                  "layout.gradient_wire %s needs gradients that are scattered",
                                  w == GW_WIRE_INT8 ? "int8" : "int4");
    gw_diag_detail(dg, g, "an all-reduce would round the sums a second time on their way back");
    gw_diag_hint(dg, g, "write layout.zero: 1, 2 or 3, or layout.gradient_wire: bf16");
}

static void check_recompute(const gw_runfile *rf, gw_diags *dg) {
    if (is_bad(rf, "recompute.policy")) return;
    bool ops = rf->recompute.policy == GW_RF_RECOMPUTE_OPS;
    bool budget = rf->recompute.policy == GW_RF_RECOMPUTE_BUDGET;
    if (ops && !is_bad(rf, "recompute.ops") && rf->recompute.ops.count == 0) {
        gw_diag *g = gw_runfile_error(rf, dg, "recompute.policy", "config-missing",
                                      "recompute.policy ops needs recompute.ops");
        gw_diag_hint(dg, g, "name ops, for example recompute.ops: [rmsnorm, swiglu]");
    }
    if (budget && !is_set(rf, "recompute.budget")) {
        gw_diag *g = gw_runfile_error(rf, dg, "recompute.policy", "config-missing",
                                      "recompute.policy budget needs recompute.budget");
        gw_diag_hint(dg, g, "give the bytes of the step's arena, for example budget: 2GiB");
    }
}

static void check_precision(gw_runfile *rf, gw_diags *dg) {
    if (!is_set(rf, "precision.stochastic_rounding")) rf->precision.stochastic_rounding = PURE_BF16;
    if (rf->precision.compute != GW_RF_FP16 || rf->precision.master != GW_RF_STORE_NONE) return;
    if (is_bad(rf, "precision.compute") || is_bad(rf, "precision.master")) return;
    gw_diag *g = gw_runfile_error(rf, dg, "precision.master", "config-value",
                                  "fp16 weights need a float32 master copy");
    gw_diag_detail(dg, g,
                   "fp16 has no room for small updates, and stochastic rounding is for bf16");
    gw_diag_hint(dg, g, "write precision.master: float32, or precision.compute: bf16");
}

static void refuse_size(gw_runfile *rf, const char *key, const char *hint, gw_diags *dg,
                        const char *fmt, ...) GW_PRINTF(5, 6);
static void refuse_size(gw_runfile *rf, const char *key, const char *hint, gw_diags *dg,
                        const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-value", "%s", text);
    gw_diag_hint(dg, g, "%s", hint);
    rf->marks[gw_rf_key_find(key)].bad = true;
}

/* Groups of experts, of which a token sees some. */
static void check_groups(gw_runfile *rf, gw_diags *dg) {
    int64_t n = rf->model.moe.experts, groups = rf->model.moe.groups;
    int64_t limit = rf->model.moe.group_limit, top = rf->model.moe.top;
    if (groups < 1 || n % groups != 0) {
        refuse_size(rf, blame(rf, "model.moe.groups", "model.moe.experts"),
                    "groups are of equal size: change one of them", dg,
                    "model.moe.groups %lld does not divide model.moe.experts %lld",
                    (long long)groups, (long long)n);
    } else if (limit > groups) {
        refuse_size(rf, blame(rf, "model.moe.group_limit", "model.moe.groups"),
                    "it is how many of them a token may go to", dg,
                    "model.moe.group_limit %lld is more than model.moe.groups %lld",
                    (long long)limit, (long long)groups);
    } else if (top > limit * (n / groups)) {
        refuse_size(rf, blame(rf, "model.moe.group_limit", "model.moe.top"),
                    "raise group_limit, or lower top", dg,
                    "model.moe.group_limit %lld leaves a token %lld experts, and model.moe.top is "
                    "%lld",
                    (long long)limit, (long long)(limit * (n / groups)), (long long)top);
    }
}

/* A preset's or a family's layers of experts; a model directory's are checked when it is read. */
static void check_experts(gw_runfile *rf, gw_diags *dg) {
    const gw_rf_model *m = &rf->model;
    if (!family_known(rf) ||
        (m->family != GW_RF_MIXTRAL && m->family != GW_RF_QWEN3_MOE && m->family != GW_RF_DEEPSEEK))
        return;
    bool bad = is_bad(rf, "model.moe.experts") || is_bad(rf, "model.moe.top");
    if (!bad && m->moe.top > m->moe.experts)
        refuse_size(rf, blame(rf, "model.moe.top", "model.moe.experts"),
                    "a token goes to top different experts: lower it, or raise experts", dg,
                    "model.moe.top %lld is more than model.moe.experts %lld", (long long)m->moe.top,
                    (long long)m->moe.experts);
    else if (!bad && !is_bad(rf, "model.moe.groups") && !is_bad(rf, "model.moe.group_limit"))
        check_groups(rf, dg);
    if (m->family != GW_RF_DEEPSEEK) return;
    if (m->moe.dense_layers > m->layers && is_set(rf, "model.layers") &&
        !is_bad(rf, "model.layers") && !is_bad(rf, "model.moe.dense_layers"))
        refuse_size(rf, "model.moe.dense_layers", "it is how many of them have no experts", dg,
                    "model.moe.dense_layers %lld is more than model.layers %lld",
                    (long long)m->moe.dense_layers, (long long)m->layers);
    if (m->mla.rope % 2 != 0 && !is_bad(rf, "model.mla.rope"))
        refuse_size(rf, "model.mla.rope", "rotary positions turn pairs of components", dg,
                    "model.mla.rope is %lld, and it must be even", (long long)m->mla.rope);
}

/* A store that can be written to. */
static void check_checkpoint(const gw_runfile *rf, gw_diags *dg) {
    const char *dir = rf->checkpoint.dir;
    if (!dir || !strstr(dir, "://") || gw_str_starts(dir, "s3://")) return;
    gw_diag *g = gw_runfile_error(rf, dg, "checkpoint.dir", "config-value",
                                  "checkpoints are not written to '%s'", dir);
    gw_diag_hint(dg, g, "name a directory, or s3://BUCKET/PREFIX");
}

static void check_images(const gw_runfile *rf, gw_diags *dg) {
    if (!is_of_images(rf)) return;
    if (rf->optimizer.name == GW_RF_MUON && !is_bad(rf, "optimizer.name")) {
        gw_diag *g = gw_runfile_error(rf, dg, "optimizer.name", "config-value",
                                      "muon is for the hidden matrices of language models, and a "
                                      "net of convolutions has none");
        gw_diag_hint(dg, g, "write optimizer.name: sgd, as residual nets are trained, or adamw");
    }
    if (rf->recompute.policy == GW_RF_RECOMPUTE_SELECTIVE && !is_bad(rf, "recompute.policy")) {
        gw_diag *g = gw_runfile_error(rf, dg, "recompute.policy", "config-value",
                                      "recompute.policy selective is attention, and a net of "
                                      "convolutions has none");
        gw_diag_hint(dg, g, "write recompute.policy: full, or name ops, such as [relu, batchnorm]");
    }
}

void gw_rf_derive_and_check(gw_runfile *rf, gw_diags *dg) {
    settle_source(rf, dg);
    refuse_ineffective(rf, dg);
    gw_rf_check_ranks(rf, rf->ranks, dg);
    check_buckets(rf, dg);
    check_zero(rf, dg);
    bool images = is_of_images(rf);
    if (images)
        derive_images(rf);
    else
        derive_lengths(rf, dg);
    if (rf->model.source == GW_RF_FAMILY && family_known(rf) && !images) derive_family(rf, dg);
    if (rf->model.source == GW_RF_PRESET && family_known(rf) && !images) derive_preset(rf, dg);
    check_images(rf, dg);
    check_rope(rf, dg);
    check_experts(rf, dg);
    check_checkpoint(rf, dg);
    if (!is_set(rf, "data.tokenizer"))
        rf->data.tokenizer = rf->model.source == GW_RF_PATH || images ? NULL : "bytes";
    derive_batch(rf, dg);
    check_schedule(rf, dg);
    check_recompute(rf, dg);
    check_precision(rf, dg);
    gw_rf_check_data(rf, dg);
    gw_rf_check_layout(rf, dg);
}

/* Keys of a layout that one rank obeys as well as many. */
static bool works_alone(const gw_runfile *rf, const char *key) {
    if (gw_str_eq(key, "layout.dp") || gw_str_eq(key, "layout.timeout")) return true;
    bool offloads = rf->offload.parameters != GW_MEM_DEVICE; /* which zero 3 is asked for */
    return offloads && gw_str_eq(key, "layout.zero");
}

/* Does the value say anything else than leaving the key out does? */
static bool says_something(const gw_runfile *rf, int key) {
    const gw_rf_mark *m = &rf->marks[key];
    if (!m->set || m->bad || m->left_to_us) return false;
    gw_str value = {0};
    gw_rf_value_yaml(rf, &gw_rf_keys[key], &value);
    bool other = !gw_str_eq(gw_str_c(&value), gw_rf_keys[key].fallback);
    gw_str_release(&value);
    return other;
}

void gw_runfile_idle_keys(const gw_runfile *rf, gw_str *out) {
    if (gw_runfile_ranks(rf) != 1) return;
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const char *path = gw_rf_keys[i].path;
        if (!gw_str_starts(path, "layout.") || works_alone(rf, path) || !says_something(rf, i))
            continue;
        gw_str_printf(out, "%s%s", out->len ? ", " : "", path);
    }
}

void gw_runfile_note_idle(const gw_runfile *rf) {
    gw_str keys = {0};
    gw_runfile_idle_keys(rf, &keys);
    if (keys.len)
        gw_log_info("one rank: nothing to share or to send, so %s %s without effect",
                    gw_str_c(&keys), strchr(gw_str_c(&keys), ',') ? "are" : "is");
    gw_str_release(&keys);
}

gw_status gw_runfile_set_ranks(gw_runfile *rf, int64_t ranks, gw_diags *dg) {
    int before = dg ? dg->nerrors : 0;
    GW_ASSERT(ranks >= 1 && dg);
    rf->ranks = ranks;
    gw_rf_check_ranks(rf, ranks, dg);
    derive_batch(rf, dg);
    gw_rf_check_layout(rf, dg);
    return dg->nerrors > before ? GW_ERR_CONFIG : GW_OK;
}

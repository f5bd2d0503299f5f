// SPDX-License-Identifier: Apache-2.0
// The run file's words turned into the compiler's options, once, for every command that needs a
// program.
//
// Train, plan, program, generate and export all come through here, so that what is planned is what
// is run. Data sizes reach the graph as they are: micro_batch rows of seq_len tokens on each of dp
// ranks, but that a sequence which is cut is padded to where its cuts are even; the step has
// `accumulate` micro-batches. The layout is a mesh on the graph, the dimension that is cut of each
// parameter, and a few options of the compiler: the model is built without knowing of any. In the
// order of the sub-axes, stages are the most major, then replicas, and tensor-parallel ranks the
// most minor, so that the ranks that talk most are neighbours, on one host where they fit.
#include "train/setup.h"

#include <stdio.h> /* snprintf */
#include <string.h>

#include "base/io.h"              /* gw_path_exists */
#include "base/panic.h"           /* gw_panic */
#include "base/str.h"             /* gw_str_ends */
#include "comm/algorithm.h"       /* gw_algorithm_find */
#include "comm/calibration.h"     /* gw_calibration */
#include "file/hf_config.h"       /* gw_hf_config_read */
#include "model/fp8.h"            /* gw_fp8_rewrite */
#include "ops/ops.h"              /* gw_ops_table */
#include "run/exec.h"             /* gw_exec_workspace */
#include "train/gguf_tokenizer.h" /* gw_gguf_tokenizer_open */
#include "train/hf_model.h"       /* gw_model_from_hf */
#include "train/runfile_key.h"    /* gw_rf_key_find */

gw_dtype gw_setup_compute(const gw_runfile *rf) {
    switch (rf->precision.compute) {
    case GW_RF_FP32: return GW_F32;
    case GW_RF_BF16: return GW_BF16;
    case GW_RF_FP16: return GW_F16;
    }
    return GW_F32;
}

gw_status gw_setup_read_config(const char *path, gw_hf_config *c, gw_diags *dg) {
    if (!gw_str_ends(path, ".gguf")) return gw_hf_config_read(path, c, dg);
    gw_gguf *g = NULL;
    gw_status st = gw_gguf_open(path, &g, dg);
    if (st == GW_OK) st = gw_hf_config_from_gguf(g, c, dg);
    gw_gguf_free(g);
    return st;
}

gw_status gw_setup_read_model(const char *path, gw_model *m, gw_diags *dg) {
    gw_hf_config *c = gw_mem_zalloc(sizeof *c);
    gw_status st = gw_setup_read_config(path, c, dg);
    if (st == GW_OK) st = gw_model_from_hf(c, path, m, dg);
    gw_mem_free(c);
    return st;
}

/* ---- the model ---- */

static void copy_rope(const gw_rf_model *r, gw_model *m) {
    switch (r->rope_scaling.type) {
    case GW_RF_ROPE_NONE: m->rope_scaling = GW_ROPE_NONE; return;
    case GW_RF_ROPE_LINEAR: m->rope_scaling = GW_ROPE_LINEAR; break;
    case GW_RF_ROPE_LLAMA3: m->rope_scaling = GW_ROPE_LLAMA3; break;
    case GW_RF_ROPE_YARN: m->rope_scaling = GW_ROPE_YARN; break;
    }
    m->rope_factor = r->rope_scaling.factor;
    m->rope_low = r->rope_scaling.low_freq_factor;
    m->rope_high = r->rope_scaling.high_freq_factor;
    m->rope_original = r->rope_scaling.original_max_positions;
    if (m->rope_scaling != GW_ROPE_YARN) return;
    m->rope_low = r->rope_scaling.beta_slow;
    m->rope_high = r->rope_scaling.beta_fast;
    m->rope_mscale = r->rope_scaling.mscale;
    m->rope_mscale_all = r->rope_scaling.mscale_all_dim;
}

/* Experts and latents. DeepSeek's sigmoid scores have a bias for the choice. */
static void copy_experts(const gw_rf_model *r, gw_model *m) {
    bool deepseek = m->family == GW_FAMILY_DEEPSEEK;
    if (m->family != GW_FAMILY_MIXTRAL && m->family != GW_FAMILY_QWEN3_MOE && !deepseek) return;
    gw_moe *e = &m->moe;
    e->experts = r->moe.experts;
    e->top = r->moe.top;
    e->ffn = r->moe.ffn;
    e->shared = r->moe.shared;
    e->dense_layers = r->moe.dense_layers;
    e->score = (gw_moe_score)r->moe.score;
    e->normalize = r->moe.normalize;
    e->scale = r->moe.scale;
    e->groups = r->moe.groups;
    e->group_limit = r->moe.group_limit;
    e->balance = (gw_moe_balance)r->moe.balance;
    e->balance_weight = r->moe.balance_weight;
    e->z_weight = r->moe.z_weight;
    e->bias_rate = r->moe.bias_rate;
    e->capacity = r->moe.capacity;
    e->drop_by_score = r->moe.drop == GW_RF_DROP_SCORE;
    if (m->family == GW_FAMILY_MIXTRAL) m->ffn = e->ffn; /* all its layers have experts */
    e->choice_bias = e->balance == GW_MOE_BALANCE_BIAS || (deepseek && e->score == GW_MOE_SIGMOID);
    if (!deepseek) return;
    m->mla = (gw_mla){.q_rank = r->mla.q_rank,
                      .kv_rank = r->mla.kv_rank,
                      .nope = r->mla.nope,
                      .rope = r->mla.rope,
                      .v = r->mla.v};
}

/* What a step adds to a bias where neither the file nor the family says: model.moe.bias_rate. */
#define BIAS_RATE 0.001

/* A model that was read: how its training keeps load even is the run file's to say. */
static gw_status balance_of_path(const gw_runfile *rf, gw_model *m, gw_diags *dg) {
    static const char *const keys[] = {"model.moe.balance",  "model.moe.balance_weight",
                                       "model.moe.z_weight", "model.moe.bias_rate",
                                       "model.moe.capacity", "model.moe.drop"};
    gw_moe *e = &m->moe;
    for (size_t i = 0; i < GW_COUNT(keys); i++) {
        if (!rf->marks[gw_rf_key_find(keys[i])].set) continue;
        if (e->experts == 0) {
            (void)gw_runfile_error(rf, dg, keys[i], "config-no-effect",
                                   "%s has no effect here: the model at model.path has no experts",
                                   keys[i]);
            return GW_ERR_CONFIG;
        }
        if (i == 0) e->balance = (gw_moe_balance)rf->model.moe.balance;
        if (i == 1) e->balance_weight = rf->model.moe.balance_weight;
        if (i == 2) e->z_weight = rf->model.moe.z_weight;
        if (i == 3) e->bias_rate = rf->model.moe.bias_rate;
        if (i == 4) e->capacity = rf->model.moe.capacity;
        if (i == 5) e->drop_by_score = rf->model.moe.drop == GW_RF_DROP_SCORE;
    }
    if (e->experts > 0 && e->balance == GW_MOE_BALANCE_BIAS) {
        bool given = rf->marks[gw_rf_key_find("model.moe.bias_rate")].set;
        e->choice_bias = true;
        if (!given && e->bias_rate == 0) e->bias_rate = BIAS_RATE;
    }
    return gw_model_check(m, dg);
}

/* A family's or a preset's model: the run file holds every dimension, given or derived. */
static void copy_sizes(const gw_rf_model *r, gw_model *m) {
    m->layers = r->layers;
    m->hidden = r->hidden;
    m->heads = r->heads;
    m->kv_heads = r->kv_heads;
    m->head_dim = r->head_dim;
    m->ffn = r->ffn;
    m->vocab = r->vocab;
    m->max_positions = r->max_positions;
    m->norm_eps = r->norm_eps;
    m->tie = r->tie_embeddings;
    m->dropout = r->dropout;
    m->init_std = r->init_std;
    if (m->family == GW_FAMILY_GPT2) return;
    m->rope_theta = r->rope_theta;
    copy_rope(r, m);
    m->window = r->sliding_window;
    for (int64_t l = 0; l < m->layers && l < GW_MODEL_MAX_LAYERS; l++)
        m->windowed[l] = m->window > 0;
    copy_experts(r, m);
    if (m->family == GW_FAMILY_QWEN3_MOE) m->qkv_bias = m->out_bias = r->attention_bias;
    if (m->family == GW_FAMILY_LLAMA || m->family == GW_FAMILY_QWEN3) {
        m->qkv_bias = m->out_bias = r->attention_bias;
        m->mlp_bias = r->mlp_bias;
    }
}

/* Each rank's samples have batch statistics of their own, or all have one. */
static void settle_groups(gw_setup *s) {
    bool local = s->rf->model.batchnorm == GW_RF_BATCHNORM_LOCAL;
    if (s->model.family == GW_FAMILY_RESNET) s->model.resnet.groups = local ? s->rf->layout.dp : 1;
}

static gw_status make_net(gw_setup *s, gw_diags *dg) {
    const gw_rf_model *r = &s->rf->model;
    const char *name = gw_model_net_name((int)r->family - (int)GW_RF_RESNET18);
    GW_ASSERT(name);
    if (!gw_model_preset(name, &s->model)) gw_panic("there is no net '%s'", name);
    s->model.norm_eps = r->norm_eps;
    s->model.resnet.classes = r->classes;
    s->model.resnet.image = r->image;
    s->model.resnet.channels = r->channels;
    s->model.resnet.width = r->width;
    s->model.resnet.broadcast_buffers = r->broadcast_buffers;
    settle_groups(s);
    return gw_model_check(&s->model, dg);
}

static gw_status make_model(gw_setup *s, gw_diags *dg) {
    static const gw_family families[] = {GW_FAMILY_GPT2,      GW_FAMILY_LLAMA,   GW_FAMILY_QWEN2,
                                         GW_FAMILY_QWEN3,     GW_FAMILY_MISTRAL, GW_FAMILY_MIXTRAL,
                                         GW_FAMILY_QWEN3_MOE, GW_FAMILY_DEEPSEEK};
    const gw_runfile *rf = s->rf;
    if (rf->model.source == GW_RF_PATH) {
        GW_TRY(gw_setup_read_model(rf->model.path, &s->model, dg));
        return balance_of_path(rf, &s->model, dg);
    }
    if (gw_runfile_has_images(rf)) return make_net(s, dg);
    s->model = gw_model_defaults(families[rf->model.family]);
    copy_sizes(&rf->model, &s->model);
    if (s->model.vocab <= 0) {
        gw_diag *d = gw_runfile_error(rf, dg, "model.vocab", "model-vocab",
                                      "model.vocab is auto and no tokenizer gives its size");
        gw_diag_hint(dg, d, "set data.tokenizer, or give model.vocab a number");
        return GW_ERR_CONFIG;
    }
    return gw_model_check(&s->model, dg);
}

bool gw_setup_model(const gw_runfile *rf, gw_model *m) {
    gw_runfile copy = *rf;
    gw_setup *s = gw_mem_zalloc(sizeof *s);
    gw_diags quiet;
    gw_diags_init(&quiet);
    if (copy.model.vocab <= 0) copy.model.vocab = 1;
    s->rf = &copy;
    bool ok = rf->model.source != GW_RF_PATH && make_model(s, &quiet) == GW_OK;
    *m = s->model;
    gw_diags_release(&quiet);
    gw_mem_free(s);
    return ok;
}

double gw_setup_aux_units(const gw_setup *s) {
    const gw_rf_train *t = &s->rf->train;
    bool whole = s->model.moe.balance == GW_MOE_BALANCE_BATCH;
    return (double)(whole ? t->accumulate : t->global_batch);
}

/* ---- options ---- */

_Static_assert((int)GW_RF_CP_RING == (int)GW_CP_RING &&
                   (int)GW_RF_CP_ULYSSES == (int)GW_CP_ULYSSES &&
                   (int)GW_RF_CP_HYBRID == (int)GW_CP_HYBRID &&
                   (int)GW_RF_CP_ALLGATHER == (int)GW_CP_ALLGATHER,
               "modes are numbered as the compiler numbers them");

static gw_dtype store(gw_rf_store k, gw_dtype compute) {
    return k == GW_RF_STORE_FLOAT32 ? GW_F32 : compute;
}

static void optimizer_options(const gw_runfile *rf, gw_optim_opts *o) {
    const gw_rf_optim *r = &rf->optimizer;
    static const gw_optim_kind kinds[] = {GW_OPTIM_ADAMW, GW_OPTIM_SGD, GW_OPTIM_MUON};
    *o = (gw_optim_opts){.kind = kinds[r->name],
                         .beta1 = r->betas.a,
                         .beta2 = r->betas.b,
                         .eps = r->eps,
                         .decay = r->weight_decay,
                         .momentum = r->momentum,
                         .nesterov = r->nesterov,
                         .muon_momentum = r->muon_momentum,
                         .muon_lr_ratio = r->lr > 0 ? r->muon_lr / r->lr : 1,
                         .muon_ns_steps = (int)r->muon_ns_steps,
                         .clip_norm = r->clip_norm,
                         .deferred_norm = r->norm == GW_RF_NORM_DEFERRED};
}

enum { MAX_ALGORITHMS = 32 };

/* The algorithm of one bucket: layout.collectives where that can do it, the fastest otherwise. */
static const char *choose_algorithm(const gw_graph *g, const gw_oid *ops, int n, const void *user) {
    const gw_setup *s = user;
    gw_arena mem = {0};
    gw_coll_candidate all[MAX_ALGORITHMS];
    gw_coll c = gw_exec_coll(g, ops, n, 0, &mem);
    c.algorithm = NULL;
    gw_coll_machine m = gw_exec_group_machine(&s->facts.comm, &g->mesh, c.axes);
    int count = 0;
    const char *name = gw_coll_choose(&c, &m, all, MAX_ALGORITHMS, &count);
    for (int i = 0; i < count; i++)
        if (all[i].possible && gw_str_eq(all[i].name, s->rf->layout.collectives))
            name = all[i].name;
    gw_arena_release(&mem);
    return name;
}

/* Counts of layout.stages as the compiler takes them; NULL: balanced by cost. */
static const int *stage_layers(gw_setup *s) {
    const gw_rf_counts *l = &s->rf->layout.stages;
    if (l->count == 0) return NULL;
    int *layers = gw_arena_new(&s->mem, int, l->count);
    for (int64_t i = 0; i < l->count; i++) layers[i] = (int)l->items[i];
    return layers;
}

static void layout_options(gw_setup *s, gw_layout_opts *o) {
    const gw_rf_layout *r = &s->rf->layout;
    bool reshards = r->zero == 3 && r->reshard_after_forward != GW_RF_RESHARD_FALSE;
    bool by_stage = r->reduce == GW_RF_REDUCE_AUTO && r->zero >= 2;
    *o = (gw_layout_opts){.sequence_parallel = r->tp > 1 && r->sequence_parallel,
                          .tp_chunks = (int)r->tp_chunks,
                          .cp_mode = (gw_cp_mode)r->cp_mode,
                          .cp_ulysses = r->cp > 1 ? (int)r->cp_ulysses : 0,
                          .ep = (int)r->ep,
                          .moe_buffer = r->moe_buffer,
                          .zero = (int)r->zero,
                          .keep_gathered = r->reshard_after_forward == GW_RF_RESHARD_FALSE,
                          .reduce_each = r->reduce == GW_RF_REDUCE_EACH || by_stage,
                          .bucket_bytes = r->bucket,
                          .first_bucket_bytes = r->first_bucket,
                          .prefetch = (int)r->prefetch,
                          .secondary = reshards ? (int)r->secondary_shard : 0,
                          .weight_wire = (int)r->weight_wire,
                          .gradient_wire = (int)r->gradient_wire,
                          .algorithm = choose_algorithm,
                          .algorithm_user = s};
    if (!s->schedule) return;
    o->schedule = s->schedule;
    o->stage_layers = stage_layers(s);
    o->message_places = (int)r->message_places;
}

/* Where homes lie. What a run derived from the file lacks (verify's float32 has no master copy, its
 * reference no shards) is left out; in the file itself such a key is refused. */
static void offload_options(const gw_runfile *rf, gw_compile_opts *o) {
    bool states = o->optim.kind != GW_OPTIM_SGD || o->optim.momentum > 0;
    if (states) o->layout.optimizer_mem = rf->offload.optimizer;
    if (o->master != o->compute) o->layout.master_mem = rf->offload.master;
    if (o->layout.zero == 3) o->layout.parameter_mem = rf->offload.parameters;
}

static gw_status check_algorithm(const gw_setup *s, gw_diags *dg) {
    const char *name = s->rf->layout.collectives;
    if (gw_str_eq(name, "auto") || gw_algorithm_find(name)) return GW_OK;
    gw_str all = {0};
    for (int i = 0; gw_algorithm_at(i); i++)
        gw_str_printf(&all, "%s%s", i ? ", " : "", gw_algorithm_at(i)->name);
    gw_diag *g = gw_runfile_error(s->rf, dg, "layout.collectives", "config-value",
                                  "there is no algorithm '%.60s'", name);
    gw_diag_hint(dg, g, "write auto, or one of %s", gw_str_c(&all));
    gw_str_release(&all);
    return GW_ERR_CONFIG;
}

static void compile_options(gw_setup *s) {
    const gw_runfile *rf = s->rf;
    gw_compile_opts *o = &s->train;
    *o = (gw_compile_opts){.train = true, .micro_batches = (int)rf->train.accumulate};
    o->compute = gw_setup_compute(rf);
    o->gradients = store(rf->precision.gradients, o->compute);
    o->master = rf->precision.master == GW_RF_STORE_FLOAT32 ? GW_F32 : o->compute;
    o->moments = store(rf->precision.moments, o->compute);
    o->stochastic = rf->precision.stochastic_rounding;
    o->seed = (uint64_t)rf->train.seed;
    optimizer_options(rf, &o->optim);
    static const gw_recompute_kind kinds[] = {GW_RECOMPUTE_NONE, GW_RECOMPUTE_SELECTIVE,
                                              GW_RECOMPUTE_FULL, GW_RECOMPUTE_OPS,
                                              GW_RECOMPUTE_BUDGET};
    o->recompute = (gw_recompute_opts){.kind = kinds[rf->recompute.policy],
                                       .ops = rf->recompute.ops.items,
                                       .nops = (int)rf->recompute.ops.count,
                                       .budget_bytes = rf->recompute.budget};
    o->reproducer_dir = "."; /* where a pass that breaks its contract leaves its input */
    o->params = s->infos;
    o->nparams = s->nparams;
    o->workspace = gw_exec_workspace;
    o->workspace_user = &s->facts;
    o->report_mem = &s->mem;
    layout_options(s, &o->layout);
    offload_options(rf, o);
    s->forward = *o;
    s->forward.train = false;
    s->forward.micro_batches = 1;
    s->forward.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_NONE};
}

static void list_params(gw_setup *s) {
    gw_model_params(&s->model, &s->mem, &s->params, &s->nparams);
    s->infos = gw_arena_new(&s->mem, gw_param_info, s->nparams + 1);
    for (int i = 0; i < s->nparams; i++) {
        s->infos[i] = (gw_param_info){.name = s->params[i].name,
                                      .decay = s->params[i].decay,
                                      .hidden = s->params[i].hidden,
                                      .rows = s->params[i].rows};
    }
}

gw_placement_rule *gw_runfile_rules(const gw_runfile *rf, gw_arena *a, int *n) {
    const gw_rf_map *map = &rf->layout.shard;
    bool cut = rf->layout.tp > 1;
    gw_placement_rule *rules = gw_arena_new(a, gw_placement_rule, map->count + 1);
    *n = cut ? (int)map->count : 0;
    for (int i = 0; i < *n; i++)
        rules[i] = (gw_placement_rule){.pattern = map->items[i].name, .dim = map->items[i].value};
    return rules;
}

/* Where each is cut, once the layout has been found to fit. */
static void place_params(gw_setup *s) {
    int n;
    const gw_placement_rule *rules = gw_runfile_rules(s->rf, &s->mem, &n);
    for (int i = 0; i < s->nparams && s->model.family != GW_FAMILY_RESNET; i++)
        snprintf(s->infos[i].cut, sizeof s->infos[i].cut, "%s",
                 gw_placement_of(&s->params[i], rules, n));
}

static gw_status no_tokenizer(const gw_runfile *rf, gw_diags *dg) {
    gw_diag *g = gw_runfile_error(rf, dg, "data.tokenizer", "config-missing",
                                  "there is no tokenizer: the model comes without one, and "
                                  "data.tokenizer is not given");
    gw_diag_hint(dg, g,
                 "set data.tokenizer: a tokenizer.json, a directory that holds one, a .tiktoken "
                 "file, or bytes");
    return GW_ERR_CONFIG;
}

static gw_status no_text(const gw_runfile *rf, gw_diags *dg) {
    const char *key = rf->model.source == GW_RF_PRESET ? "model.preset" : "model.family";
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-value",
                                  "the model is a net for images: it reads and writes no text");
    gw_diag_hint(dg, g, "`gradwright export` writes its weights, by torchvision's names");
    return GW_ERR_CONFIG;
}

static gw_status open_tokenizer(gw_setup *s, bool need, gw_diags *dg) {
    const char *spec = s->rf->data.tokenizer;
    if (!spec && s->rf->model.source == GW_RF_PATH && gw_path_is_dir(s->rf->model.path)) {
        char *inside = gw_path_join(&s->mem, s->rf->model.path, "tokenizer.json");
        if (gw_path_exists(inside)) spec = inside;
    }
    if (!spec && s->rf->model.source == GW_RF_PATH && gw_str_ends(s->rf->model.path, ".gguf"))
        return gw_gguf_tokenizer_open(s->rf->model.path, &s->tokenizer, dg);
    if (!spec) return need ? no_tokenizer(s->rf, dg) : GW_OK;
    return gw_tokenizer_open(spec, NULL, &s->tokenizer, dg);
}

/* A shape may be looked at without a tokenizer; one that is named and there is held to. */
static bool tokenizer_is_there(const gw_runfile *rf) {
    const char *t = rf->data.tokenizer;
    return t && gw_runfile_is_set(rf, "data.tokenizer") &&
           (gw_str_eq(t, "bytes") || gw_path_exists(t));
}

gw_status gw_setup_check_vocab(const gw_runfile *rf, gw_diags *dg) {
    if (rf->model.source == GW_RF_PATH || rf->model.vocab == 0 || gw_runfile_has_images(rf) ||
        !tokenizer_is_there(rf))
        return GW_OK;
    gw_tokenizer *t = NULL;
    GW_TRY(gw_tokenizer_open(rf->data.tokenizer, NULL, &t, dg));
    int64_t vocab = gw_tokenizer_vocab_size(t);
    gw_tokenizer_free(t);
    return gw_runfile_check_vocab(rf, vocab, dg);
}

gw_status gw_setup_init(gw_setup *s, gw_runfile *rf, bool need_tokenizer, gw_diags *dg) {
    memset(s, 0, sizeof *s);
    s->rf = rf;
    bool images = gw_runfile_has_images(rf);
    bool wants_vocab = rf->model.source != GW_RF_PATH && rf->model.vocab == 0 && !images;
    gw_status st = images && need_tokenizer ? no_text(rf, dg) : GW_OK;
    if ((need_tokenizer || wants_vocab) && !images) st = open_tokenizer(s, need_tokenizer, dg);
    if (!s->tokenizer && st == GW_OK) st = gw_setup_check_vocab(rf, dg);
    if (st == GW_OK)
        st = gw_runfile_resolve(rf, s->tokenizer ? gw_tokenizer_vocab_size(s->tokenizer) : 0, dg);
    if (st == GW_OK) st = make_model(s, dg);
    if (st != GW_OK) {
        gw_setup_release(s);
        return st;
    }
    list_params(s);
    s->machine = gw_machine_this((int)rf->train.threads);
    s->facts =
        (gw_exec_facts){.machine = s->machine, .comm = gw_coll_machine_local(s->machine.threads)};
    compile_options(s);
    return GW_OK;
}

/* The least of all ranks: programs that differ in threads or instruction set differ in bits. */
static gw_status settle_machine(gw_setup *s, gw_comm *comm, gw_diags *dg) {
    int64_t least[2] = {-(int64_t)s->machine.threads, -(int64_t)s->machine.isa};
    GW_TRY(gw_comm_max_i64(comm, least, 2, "settling on a machine", dg));
    s->machine.threads = (int)-least[0];
    s->machine.isa = (gw_isa)-least[1];
    s->facts.comm = *gw_comm_machine(comm);
    s->facts.comm.threads = s->machine.threads;
    return GW_OK;
}

static gw_status read_calibration(gw_setup *s, gw_diags *dg) {
    if (!s->rf->layout.calibration) return GW_OK;
    const char *path = s->rf->layout.calibration;
    gw_calibration *c = gw_arena_new(&s->mem, gw_calibration, 1);
    if (!gw_path_exists(path)) {
        gw_diag *g = gw_runfile_error(s->rf, dg, "layout.calibration", "file-open",
                                      "layout.calibration: there is no '%s'", path);
        gw_diag_hint(dg, g,
                     "`gradwright calibrate` writes such a file; without it the choice is "
                     "by rule");
        return GW_ERR_CONFIG;
    }
    gw_status st = gw_calibration_read(path, c, &s->mem, dg);
    if (st != GW_OK)
        gw_diag_frame(dg, "reading layout.calibration");
    else
        gw_calibration_apply(c, &s->facts.comm);
    return st;
}

/* ---- the schedule ---- */

gw_status gw_setup_schedule(const gw_runfile *rf, const gw_sched_costs *costs, gw_arena *a,
                            gw_schedule *out, gw_diags *dg) {
    const gw_rf_layout *l = &rf->layout;
    const char *file = gw_runfile_schedule_file(rf);
    if (file) return gw_schedule_read(file, a, out, dg);
    const gw_sched_kind *k = gw_sched_kind_find(l->schedule);
    gw_sched_request r = {.ranks = (int)l->pp,
                          .virtual_stages = (int)l->virtual_stages,
                          .micro_batches = (int32_t)GW_MIN(rf->train.accumulate, INT32_MAX),
                          .costs = costs,
                          .places = (int)l->message_places,
                          .memory = k && k->searches ? l->schedule_memory : 0};
    return gw_schedule_make(l->schedule, &r, a, out, dg);
}

gw_sched_costs gw_setup_costs(const gw_stage_report *stages, int n, double flops, gw_arena *a) {
    double *x = gw_arena_new(a, double, 3 * (int64_t)n);
    for (int i = 0; i < n; i++) {
        x[i] = stages[i].forward / flops;
        x[n + i] = stages[i].input / flops;
        x[2 * n + i] = stages[i].weight / flops;
    }
    return (gw_sched_costs){.forward = x, .input = x + n, .weight = x + 2 * n, .barrier = true};
}

/* Does the order hang on what stages cost or hold? */
static bool is_weighed(const gw_runfile *rf) {
    const gw_sched_kind *k =
        gw_runfile_schedule_file(rf) ? NULL : gw_sched_kind_find(rf->layout.schedule);
    return k && k->weighs;
}

/* What the stages hold, by their programs: each rank reads its own and tells the others; without
 * others all are read. */
static gw_status read_held(const gw_setup *s, gw_comm *comm, gw_stage_held *held, int stages,
                           gw_compile_report *report, gw_diags *dg) {
    enum { STEP = 48 }; /* numbers that travel together */
    gw_setup one = *s;
    gw_graph whole;
    GW_TRY(gw_setup_shared(s, true, &whole, dg));
    gw_status st = GW_OK;
    for (int r = 0; st == GW_OK && r < s->schedule->ranks; r++) {
        gw_graph g;
        if (comm && r != s->stage_rank) continue;
        one.stage_rank = r;
        st = gw_setup_rank(&one, true, &whole, "schedule", &g, report, dg);
        if (st != GW_OK) break;
        gw_stage_held_of(&g, held, stages);
        gw_graph_release(&g);
    }
    gw_graph_release(&whole);
    GW_TRY(st);
    _Static_assert(sizeof *held == 3 * sizeof(int64_t), "three numbers, one behind the other");
    int64_t *x = (int64_t *)held;
    for (int i = 0; comm && i < 3 * stages; i += STEP)
        GW_TRY(gw_comm_max_i64(comm, x + i, GW_MIN(STEP, 3 * stages - i),
                               "telling what stages hold", dg));
    return GW_OK;
}

/* The same schedule again, for what its stages were found to cost and to hold. */
static gw_status weigh_schedule(gw_setup *s, gw_comm *comm, gw_schedule *made, gw_diags *dg) {
    gw_compile_report report = {0};
    int n = made->stages;
    gw_stage_held *held = gw_arena_new(&s->mem, gw_stage_held, n);
    GW_TRY(read_held(s, comm, held, n, &report, dg));
    GW_ASSERT(report.stages && report.nstages == n);
    gw_sched_costs c = gw_setup_costs(report.stages, n, 1, &s->mem);
    double *x = gw_arena_new(&s->mem, double, 4 * (int64_t)n);
    for (int i = 0; i < n; i++) {
        x[i] = (double)(held[i].to_input + held[i].to_weight);
        x[n + i] = (double)(held[i].to_weight + held[i].made);
        x[2 * n + i] = (double)held[i].made;
        x[3 * n + i] = (double)GW_MAX(i ? report.stages[i - 1].sent_forward : 0,
                                      i + 1 < n ? report.stages[i + 1].sent_backward : 0);
    }
    c.held = x;
    c.held_weight = x + n;
    c.made = x + 2 * n;
    c.message = x + 3 * n;
    c.barrier = s->rf->optimizer.norm == GW_RF_NORM_EXACT;
    return gw_setup_schedule(s->rf, &c, &s->mem, made, dg);
}

static gw_status make_schedule(gw_setup *s, gw_comm *comm, gw_diags *dg) {
    s->schedule = NULL;
    s->stage_rank = 0;
    if (s->rf->layout.pp == 1) return GW_OK;
    gw_schedule *made = gw_arena_new(&s->mem, gw_schedule, 1);
    gw_status st = gw_setup_schedule(s->rf, NULL, &s->mem, made, dg);
    if (st != GW_OK) {
        gw_diag_frame(dg, "making the schedule of layout.schedule");
        return st;
    }
    s->schedule = made;
    s->stage_layers = gw_arena_new(&s->mem, int, made->stages);
    s->stage_layers[0] = -1;
    if (comm) s->stage_rank = (int)(gw_comm_rank(comm) / gw_runfile_stage_ranks(s->rf));
    compile_options(s);
    return is_weighed(s->rf) ? weigh_schedule(s, comm, made, dg) : GW_OK;
}

gw_status gw_setup_ranks(gw_setup *s, gw_comm *comm, gw_diags *dg) {
    int64_t ranks = gw_runfile_ranks(s->rf);
    bool shares = s->rf->train.threads == 0 && ranks > 1;
    GW_TRY(gw_runfile_check_placement(s->rf, &s->model, dg));
    GW_TRY(check_algorithm(s, dg));
    place_params(s);
    if (comm)
        GW_TRY(settle_machine(s, comm, dg));
    else if (shares)
        s->machine.threads = GW_MAX(1, (int)(s->machine.threads / ranks));
    if (!comm) s->facts.comm = gw_coll_machine_local(s->machine.threads);
    s->facts.machine = s->machine;
    settle_groups(s);
    GW_TRY(make_schedule(s, comm, dg));
    compile_options(s);
    return read_calibration(s, dg);
}

void gw_setup_release(gw_setup *s) {
    gw_tokenizer_free(s->tokenizer);
    gw_arena_release(&s->mem);
    memset(s, 0, sizeof *s);
}

static gw_status finish(gw_graph *g, gw_status st, const gw_compile_opts *o, const char *last,
                        gw_compile_report *report, gw_diags *dg) {
    if (st == GW_OK) st = gw_compile(g, o, last, report, dg);
    if (st != GW_OK) gw_graph_release(g);
    return st;
}

void gw_runfile_mesh(const gw_runfile *rf, gw_mesh *m) {
    const gw_rf_layout *l = &rf->layout;
    int64_t replicas = l->zero > 0 ? l->dp_replicate : 1;
    (void)gw_mesh_add(m, "pp", (int32_t)l->pp);
    (void)gw_mesh_add(m, "dp_replicate", (int32_t)replicas);
    (void)gw_mesh_add(m, "dp", (int32_t)(l->dp / replicas));
    (void)gw_mesh_add(m, "cp", (int32_t)l->cp);
    (void)gw_mesh_add(m, "tp", (int32_t)l->tp);
}

/* The last pass that makes the same of all ranks of a pipeline. */
#define SHARED "chunk"

/* The global graph of one micro-batch. */
static gw_status build(const gw_setup *s, bool train, int64_t seq, gw_graph *g, gw_diags *dg) {
    bool judges = !train && s->model.family == GW_FAMILY_RESNET;
    gw_build_opts b = {.mode = judges ? GW_BUILD_LOGITS : GW_BUILD_LOSS,
                       .batch = s->rf->train.micro_batch * s->rf->layout.dp,
                       .seq = seq,
                       .compute = s->train.compute,
                       .seed = (uint64_t)s->rf->train.seed,
                       .training = train,
                       .packed = true};
    gw_graph_init(g, gw_ops_table());
    GW_TRY(gw_model_build(g, &s->model, &b, dg));
    gw_rf_products products = s->rf->precision.products;
    if (products == GW_RF_PRODUCTS_COMPUTE) return GW_OK;
    gw_fp8_opts fp8 = {.pow2 = products == GW_RF_PRODUCTS_FP8_POW2};
    return gw_fp8_rewrite(g, &fp8, NULL, dg);
}

gw_status gw_setup_shared(const gw_setup *s, bool train, gw_graph *whole, gw_diags *dg) {
    return gw_setup_program(s, train, SHARED, whole, NULL, dg);
}

/* What a training step was cut into holds for every other program of the run. */
static void note_stages(const gw_setup *s, const gw_compile_report *report) {
    if (!s->schedule || !report->stages || report->nstages != s->schedule->stages) return;
    for (int i = 0; i < report->nstages; i++) s->stage_layers[i] = report->stages[i].layers;
}

/* The options of a training step, or of a forward program with the stages of one, up to `last`. */
static gw_status options_of(const gw_setup *s, bool train, const char *last, gw_compile_opts *o,
                            gw_diags *dg) {
    *o = train ? s->train : s->forward;
    o->layout.stage_rank = s->stage_rank;
    if (train || !s->schedule || o->layout.stage_layers) return GW_OK;
    if (gw_str_eq(last, SHARED)) return GW_OK; /* nothing is cut by then */
    if (s->stage_layers[0] < 0) {
        gw_graph g;
        GW_TRY(gw_setup_program(s, true, "split", &g, NULL, dg));
        gw_graph_release(&g);
    }
    GW_ASSERT(s->stage_layers[0] >= 0);
    o->layout.stage_layers = s->stage_layers;
    return GW_OK;
}

gw_status gw_setup_rank(const gw_setup *s, bool train, const gw_graph *whole, const char *last,
                        gw_graph *g, gw_compile_report *report, gw_diags *dg) {
    gw_compile_opts o;
    gw_compile_report own = {0};
    if (!report) report = &own;
    GW_TRY(options_of(s, train, last, &o, dg));
    GW_TRY(gw_compile_after(SHARED, whole, g, &o, last, report, dg));
    if (train) note_stages(s, report);
    return GW_OK;
}

gw_status gw_setup_program(const gw_setup *s, bool train, const char *last, gw_graph *g,
                           gw_compile_report *report, gw_diags *dg) {
    gw_compile_opts o;
    gw_compile_report own = {0};
    if (!report) report = &own;
    GW_TRY(options_of(s, train, last, &o, dg));
    gw_status st = build(s, train, gw_runfile_padded_seq(s->rf), g, dg);
    gw_runfile_mesh(s->rf, &g->mesh);
    GW_TRY(finish(g, st, &o, last, report, dg));
    if (train) note_stages(s, report);
    return GW_OK;
}

gw_status gw_setup_reference(const gw_setup *s, gw_graph *g, gw_diags *dg) {
    gw_compile_opts o = s->train;
    o.layout = (gw_layout_opts){0};
    o.report_mem = NULL;
    o.recompute = (gw_recompute_opts){.kind = GW_RECOMPUTE_NONE}; /* it changes no bit, and a budget
                                                                     is the layout's */
    gw_status st = build(s, true, s->rf->train.seq_len, g, dg);
    return finish(g, st, &o, NULL, NULL, dg);
}

gw_status gw_setup_logits_program(const gw_setup *s, int64_t batch, int64_t seq, int64_t cache,
                                  gw_graph *g, gw_compile_report *report, gw_diags *dg) {
    gw_build_opts b = {.mode = cache > 0 ? GW_BUILD_CACHED : GW_BUILD_LOGITS,
                       .batch = batch,
                       .seq = seq,
                       .cache = cache,
                       .compute = s->forward.compute,
                       .packed = cache == 0};
    gw_compile_opts o = s->forward; /* one rank, weights on the device, however they were trained */
    o.layout = (gw_layout_opts){0};
    gw_graph_init(g, gw_ops_table());
    gw_status st = gw_model_build(g, &s->model, &b, dg);
    return finish(g, st, &o, NULL, report, dg);
}

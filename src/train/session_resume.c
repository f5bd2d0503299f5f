// SPDX-License-Identifier: Apache-2.0
// Continuing a run: which checkpoint, and whether the run file still means the same run.
//
// A checkpoint holds the run file as it was resolved. Each key that changed since falls into one of
// five kinds. Some make another function of the same bytes (dimensions, seed, sequence length):
// refused, each named with its old and new value. Some act from here on (learning rate,
// number of steps): taken, and said. The global batch is of the first kind where it only follows
// from what else is given, and of the second where it is set anew. Some leave the function as it is
// but not the order of its sums (threads, micro-batch for the same global batch): taken, and
// announced as "not bitwise". Some say in what numbers it is computed (precision): taken, and
// said, with what was converted (session_load.c). The rest concerns only what is written or how
// memory is used.
//
// The model is compared by what it is, not by how the run file names it, so that a preset may
// become dimensions and a directory may move. Data and tokenizer are compared by their hashes.
//
// Checkpoints are tried from the newest commit. A torn or damaged one is reported and passed over;
// one that is whole but does not fit the run file ends the search, since an older one would not fit
// either. So does one of another format version: going on from an older one would throw away what
// another version of the program has trained. A folder that goes away while it is read was pruned
// by a run that is going on: the list is then taken again.
//
// Several ranks try the same folders in the same order, those that rank 0 sees, and take one only
// when each of them has read it whole.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"       /* gw_path_join */
#include "base/log.h"      /* gw_log_warn */
#include "base/str.h"      /* gw_str */
#include "ckpt/place.h"    /* gw_place_look */
#include "file/json.h"     /* json_t */
#include "train/ranks.h"   /* gw_ranks_me */
#include "train/session.h" /* this module's contract */

typedef enum change { ANOTHER_RUN, FROM_HERE_ON, OTHER_BITS, OTHER_NUMBERS } change;

static const struct {
    const char *key;
    change kind;
} rules[] = {
    {"model.batchnorm", ANOTHER_RUN},
    {"model.broadcast_buffers", ANOTHER_RUN},
    {"data.pack", ANOTHER_RUN},
    {"data.mask_first_label", ANOTHER_RUN},
    {"data.packing", ANOTHER_RUN},
    {"data.shuffle", ANOTHER_RUN},
    {"data.window", ANOTHER_RUN},
    {"data.block", ANOTHER_RUN},
    {"data.mix", ANOTHER_RUN},
    {"data.stages", ANOTHER_RUN},
    {"train.global_batch", ANOTHER_RUN},
    {"train.seq_len", ANOTHER_RUN},
    {"train.seed", ANOTHER_RUN},
    {"optimizer.name", ANOTHER_RUN},
    {"precision.compute", OTHER_NUMBERS},
    {"precision.products", OTHER_NUMBERS},
    {"precision.gradients", OTHER_NUMBERS},
    {"precision.master", OTHER_NUMBERS},
    {"precision.moments", OTHER_NUMBERS},
    {"precision.stochastic_rounding", OTHER_NUMBERS},
    {"train.steps", FROM_HERE_ON},
    {"optimizer.lr", FROM_HERE_ON},
    {"optimizer.betas", FROM_HERE_ON},
    {"optimizer.eps", FROM_HERE_ON},
    {"optimizer.weight_decay", FROM_HERE_ON},
    {"optimizer.momentum", FROM_HERE_ON},
    {"optimizer.nesterov", FROM_HERE_ON},
    {"optimizer.clip_norm", FROM_HERE_ON},
    {"optimizer.schedule", FROM_HERE_ON},
    {"optimizer.warmup_steps", FROM_HERE_ON},
    {"optimizer.decay_steps", FROM_HERE_ON},
    {"optimizer.min_lr_ratio", FROM_HERE_ON},
    {"optimizer.muon_lr", FROM_HERE_ON},
    {"optimizer.muon_momentum", FROM_HERE_ON},
    {"optimizer.muon_ns_steps", FROM_HERE_ON},
    {"precision.loss_scale", FROM_HERE_ON},
    {"precision.loss_scale_window", FROM_HERE_ON},
    {"train.micro_batch", OTHER_BITS},
    {"train.accumulate", OTHER_BITS},
    {"layout.dp", OTHER_BITS},
    {"layout.pp", OTHER_BITS},
    {"layout.virtual_stages", OTHER_BITS},
    {"layout.schedule", OTHER_BITS},
    {"layout.stages", OTHER_BITS},
    {"layout.schedule_memory", OTHER_BITS},
    {"layout.tp", OTHER_BITS},
    {"layout.sequence_parallel", OTHER_BITS},
    {"layout.tp_chunks", OTHER_BITS},
    {"layout.cp", OTHER_BITS},
    {"layout.cp_mode", OTHER_BITS},
    {"layout.cp_ulysses", OTHER_BITS},
    {"layout.ep", OTHER_BITS},
    {"layout.moe_buffer", OTHER_BITS},
    {"layout.shard", OTHER_BITS},
    {"layout.zero", OTHER_BITS},
    {"layout.dp_replicate", OTHER_BITS},
    {"layout.reduce", OTHER_BITS},
    {"layout.bucket", OTHER_BITS},
    {"layout.first_bucket", OTHER_BITS},
    {"layout.weight_wire", OTHER_BITS},
    {"layout.gradient_wire", OTHER_BITS},
    {"layout.collectives", OTHER_BITS},
    {"layout.calibration", OTHER_BITS},
};

/* ---- the run file ---- */

static const char not_set[] = "(not set)";

static json_t *as_json(const gw_runfile *rf) {
    gw_str text = {0};
    gw_runfile_json(rf, &text);
    json_t *o = json_loadb(gw_str_c(&text), text.len, 0, NULL);
    gw_str_release(&text);
    return o;
}

static const char *value_text(const json_t *o, const char *key, gw_arena *a) {
    const char *dot = strchr(key, '.');
    const char *section = gw_arena_strndup(a, key, (size_t)(dot - key));
    const json_t *v = json_object_get(json_object_get(o, section), dot + 1);
    if (!v) return not_set;
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12) | JSON_COMPACT);
    char *copy = gw_arena_strdup(a, text ? text : "?");
    free(text);
    return copy;
}

/* A global batch that is given is meant; one that follows from other keys is a slip. */
static change kind_of(const gw_session *s, size_t i) {
    bool batch = gw_str_eq(rules[i].key, "train.global_batch");
    return batch && gw_runfile_is_set(s->rf, rules[i].key) ? FROM_HERE_ON : rules[i].kind;
}

static void refuse(const gw_session *s, const char *key, const char *was, const char *is,
                   gw_diags *dg) {
    gw_diag *g = gw_runfile_error(s->rf, dg, key, "resume-changed",
                                  "%s is %s; the checkpoint's run has %s", key, is, was);
    gw_diag_hint(dg, g, "%sset it back to go on with this run, or begin another with a new --out",
                 gw_str_eq(key, "train.global_batch") ? "give the new one by name if it is meant, "
                                                      : "");
}

/* Refuses changed keys that make another run. A key without effect on one side follows from another
 * that changed (precision.master from precision.compute): it is named only when `followers`. */
static bool refuse_keys(const gw_session *s, const json_t *was, const json_t *is, bool followers,
                        gw_arena *a, gw_diags *dg) {
    bool fits = true;
    for (size_t i = 0; i < GW_COUNT(rules); i++) {
        const char *key = rules[i].key;
        const char *old = value_text(was, key, a), *new = value_text(is, key, a);
        if (kind_of(s, i) != ANOTHER_RUN || strcmp(old, new) == 0) continue;
        if (followers != (strcmp(old, not_set) == 0 || strcmp(new, not_set) == 0)) continue;
        refuse(s, key, old, new, dg);
        fits = false;
    }
    return fits;
}

/* Do batch norms see what they saw? If not, it is said. */
static bool same_norms(const json_t *was, const json_t *is, gw_arena *a) {
    static const char *const sizes[] = {"train.micro_batch", "train.accumulate", "layout.dp"};
    const char *of = value_text(is, "model.batchnorm", a);
    bool same = true;
    for (size_t i = 0; i < GW_COUNT(sizes); i++)
        same = same && gw_str_eq(value_text(was, sizes[i], a), value_text(is, sizes[i], a));
    if (same || gw_str_eq(of, not_set)) return true;
    double size[2];
    for (int k = 0; k < 2; k++) {
        const json_t *o = k ? is : was;
        size[k] = strtod(value_text(o, "train.micro_batch", a), NULL);
        if (strstr(of, "sync")) size[k] *= strtod(value_text(o, "layout.dp", a), NULL);
    }
    if (size[0] == size[1]) return true;
    gw_log_warn("batch norms take their statistics of %g images at a time from here on, before of "
                "%g: the run goes on as another function",
                size[1], size[0]);
    return false;
}

/* Is the load of experts evened out over as many sequences as before? If not, it is said. */
static bool same_balance(const json_t *was, const json_t *is, gw_arena *a) {
    double size[2];
    const json_t *model = json_object_get(is, "model");
    const char *how = json_string_value(json_object_get(json_object_get(model, "moe"), "balance"));
    if (!how || !gw_str_eq(how, "batch")) return true;
    for (int k = 0; k < 2; k++) {
        const json_t *o = k ? is : was;
        size[k] = strtod(value_text(o, "train.micro_batch", a), NULL) *
                  strtod(value_text(o, "layout.dp", a), NULL);
    }
    if (size[0] == size[1]) return true;
    gw_log_warn("the loss that keeps the load of experts even is of %g sequences at a time from "
                "here on, before of %g (model.moe.balance is batch): the run goes on as another "
                "function",
                size[1], size[0]);
    return false;
}

/* Weights that are only read (to generate, to export) do not make a run go on. */
static bool trains(const gw_session *s) { return *s->data_hash != 0; }

/* Says what changed in a run that goes on. What has no meaning on one side follows from another key
 * of the same kind. */
static void tell_changes(const gw_session *s, const json_t *was, const json_t *is, gw_arena *a) {
    bool same_bits = true, same_numbers = true;
    for (size_t i = 0; i < GW_COUNT(rules); i++) {
        const char *key = rules[i].key;
        const char *old = value_text(was, key, a), *new = value_text(is, key, a);
        change kind = kind_of(s, i);
        if (kind == ANOTHER_RUN || strcmp(old, new) == 0) continue;
        if (kind == OTHER_NUMBERS && (strcmp(old, not_set) == 0 || strcmp(new, not_set) == 0))
            continue;
        gw_log_info("%s: %s -> %s%s", key, old, new, kind != OTHER_BITS ? ", from here on" : "");
        same_bits = same_bits && kind != OTHER_BITS;
        same_numbers = same_numbers && kind != OTHER_NUMBERS;
    }
    if (!same_bits && same_norms(was, is, a) && same_balance(was, is, a) && same_numbers)
        gw_log_warn("the run goes on, but not bitwise: sums are taken in another order");
    if (!same_numbers && gw_ranks_me(s->comm) == 0)
        gw_log_warn("the run goes on, but not bitwise: it computes in other numbers");
}

/* `taken`: it fits, and what changed is told. */
static gw_status check_config(const gw_session *s, const gw_ckpt_manifest *m, bool taken,
                              bool *fits, gw_diags *dg) {
    gw_runfile old;
    gw_arena mem = {0};
    const char *name = gw_arena_printf(&mem, "%s/manifest.json (config)", m->path);
    gw_status st =
        gw_runfile_parse(&old, name, m->meta.config, (int64_t)strlen(m->meta.config), NULL, 0, dg);
    if (st == GW_OK) {
        json_t *was = as_json(&old), *is = as_json(s->rf);
        if (taken)
            tell_changes(s, was, is, &mem);
        else
            *fits = refuse_keys(s, was, is, false, &mem, dg) &&
                    refuse_keys(s, was, is, true, &mem, dg) && *fits;
        json_decref(was);
        json_decref(is);
    }
    gw_runfile_release(&old);
    gw_arena_release(&mem);
    return st;
}

/* ---- the model ---- */

static void word_int(gw_str *t, const char *key, int64_t x) {
    gw_str_printf(t, "%s%s=%" PRId64, t->len ? " " : "", key, x);
}

static void word_real(gw_str *t, const char *key, double x) {
    gw_str_printf(t, " %s=%.17g", key, x);
}

/* batchnorm is a key of its own; its groups follow the ranks. */
static void net_words(const gw_model *m, gw_str *t) {
    const gw_resnet *r = &m->resnet;
    gw_str_printf(t, " blocks=%lld,%lld,%lld,%lld", (long long)r->blocks[0],
                  (long long)r->blocks[1], (long long)r->blocks[2], (long long)r->blocks[3]);
    word_int(t, "bottleneck", r->bottleneck);
    word_int(t, "width", r->width);
    word_int(t, "image", r->image);
    word_int(t, "channels", r->channels);
    word_int(t, "classes", r->classes);
    word_real(t, "norm_eps", m->norm_eps);
    word_real(t, "momentum", r->momentum);
}

/* Experts and latents; how their load is kept even is what training does, as much as the model. */
static void expert_words(const gw_model *m, gw_str *t) {
    const gw_moe *e = &m->moe;
    if (e->experts == 0) return;
    word_int(t, "experts", e->experts);
    word_int(t, "top", e->top);
    word_int(t, "expert_ffn", e->ffn);
    word_int(t, "shared", e->shared);
    word_int(t, "dense_layers", e->dense_layers);
    word_int(t, "score", (int64_t)e->score);
    word_int(t, "normalize", e->normalize);
    word_real(t, "scale", e->scale);
    word_int(t, "groups", e->groups);
    word_int(t, "group_limit", e->group_limit);
    word_int(t, "choice_bias", e->choice_bias);
    word_int(t, "balance", (int64_t)e->balance);
    word_real(t, "balance_weight", e->balance_weight);
    word_real(t, "z_weight", e->z_weight);
    word_real(t, "bias_rate", e->bias_rate);
    word_real(t, "capacity", e->capacity);
    word_int(t, "drop_by_score", e->drop_by_score);
    word_int(t, "q_rank", m->mla.q_rank);
    word_int(t, "kv_rank", m->mla.kv_rank);
    word_int(t, "nope", m->mla.nope);
    word_int(t, "rope", m->mla.rope);
    word_int(t, "v", m->mla.v);
}

const char *gw_session_model_words(const gw_session *s, gw_arena *a) {
    const gw_model *m = &s->setup.model;
    gw_str t = {0};
    gw_str_printf(&t, "family=%s", gw_family_name(m->family));
    if (m->family == GW_FAMILY_RESNET) {
        net_words(m, &t);
        const char *net = gw_arena_strdup(a, gw_str_c(&t));
        gw_str_release(&t);
        return net;
    }
    word_int(&t, "layers", m->layers);
    word_int(&t, "hidden", m->hidden);
    word_int(&t, "heads", m->heads);
    word_int(&t, "kv_heads", m->kv_heads);
    word_int(&t, "head_dim", m->head_dim);
    word_int(&t, "ffn", m->ffn);
    word_int(&t, "vocab", m->vocab);
    if (m->family == GW_FAMILY_GPT2) word_int(&t, "max_positions", m->max_positions);
    word_real(&t, "norm_eps", m->norm_eps);
    word_real(&t, "rope_theta", m->rope_theta);
    word_int(&t, "rope_scaling", (int64_t)m->rope_scaling);
    if (m->rope_scaling != GW_ROPE_NONE) {
        word_real(&t, "rope_factor", m->rope_factor);
        word_real(&t, "rope_low", m->rope_low);
        word_real(&t, "rope_high", m->rope_high);
        word_int(&t, "rope_original", m->rope_original);
    }
    if (m->rope_scaling == GW_ROPE_YARN) {
        word_real(&t, "rope_mscale", m->rope_mscale);
        word_real(&t, "rope_mscale_all", m->rope_mscale_all);
    }
    expert_words(m, &t);
    word_int(&t, "tie_embeddings", m->tie);
    word_int(&t, "qkv_bias", m->qkv_bias);
    word_int(&t, "out_bias", m->out_bias);
    word_int(&t, "mlp_bias", m->mlp_bias);
    word_int(&t, "qk_norm", m->qk_norm);
    word_int(&t, "gelu_tanh", m->gelu_tanh);
    int64_t windowed = 0;
    for (int64_t i = 0; i < m->layers; i++) windowed += m->windowed[i];
    word_int(&t, "sliding_window", windowed > 0 ? m->window : 0);
    word_int(&t, "windowed_layers", windowed);
    word_real(&t, "dropout", m->dropout);
    const char *words = gw_arena_strdup(a, gw_str_c(&t));
    gw_str_release(&t);
    return words;
}

/* The next word of *at, NUL-terminated in the arena; NULL at the end. */
static const char *next_word(const char **at, gw_arena *a) {
    while (**at == ' ') (*at)++;
    if (!**at) return NULL;
    size_t n = strcspn(*at, " ");
    const char *w = gw_arena_strndup(a, *at, n);
    *at += n;
    return w;
}

/* The word of `words` with the key of `like` ("layers=2"); NULL: there is none. */
static const char *word_like(const char *words, const char *like, gw_arena *a) {
    size_t key = strcspn(like, "=");
    for (const char *w; (w = next_word(&words, a)) != NULL;)
        if (strcspn(w, "=") == key && memcmp(w, like, key) == 0) return w;
    return NULL;
}

static void refuse_word(const gw_session *s, const char *is, const char *was, gw_diags *dg) {
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "resume-changed", (gw_where){.file = s->rf->file},
                    "the model has %s; the checkpoint's has %s", is, was);
    gw_diag_hint(dg, g, "set it back, or begin another run with a new --out");
}

/* What only one of the two has follows from a word that they have with two values. */
static bool same_values(const gw_session *s, const char *is, const char *was, gw_arena *a,
                        gw_diags *dg) {
    bool same = true;
    for (const char *x; (x = next_word(&is, a)) != NULL;) {
        const char *y = word_like(was, x, a);
        if (!y || strcmp(x, y) == 0) continue;
        refuse_word(s, x, y, dg);
        same = false;
        if (gw_str_starts(x, "family=")) break; /* nothing else is to be compared */
    }
    return same;
}

/* `turned`: `is` are the words of the checkpoint. */
static bool same_keys(const gw_session *s, const char *is, const char *was, bool turned,
                      gw_arena *a, gw_diags *dg) {
    bool same = true;
    for (const char *x; (x = next_word(&is, a)) != NULL;) {
        if (word_like(was, x, a)) continue;
        const char *none = gw_arena_printf(a, "no %.*s", (int)strcspn(x, "="), x);
        refuse_word(s, turned ? none : x, turned ? x : none, dg);
        same = false;
    }
    return same;
}

static bool check_model(const gw_session *s, const gw_ckpt_manifest *m, gw_diags *dg) {
    gw_arena mem = {0};
    const char *is = gw_session_model_words(s, &mem), *was = m->meta.model;
    bool same = strcmp(is, was) == 0;
    if (!same && same_values(s, is, was, &mem, dg)) {
        same = same_keys(s, is, was, false, &mem, dg);
        same = same_keys(s, was, is, true, &mem, dg) && same;
    }
    gw_arena_release(&mem);
    return same;
}

/* ---- everything else ---- */

static bool check_hash(const gw_session *s, const char *what, const char *key, const char *is,
                       const char *was, gw_diags *dg) {
    if (!*is || !*was || strcmp(is, was) == 0) return true;
    gw_diag *g = gw_runfile_error(s->rf, dg, key, "resume-changed",
                                  "the %s is another than that of the checkpoint's run", what);
    gw_diag_detail(dg, g, "its hash is %s, it was %s", is, was);
    gw_diag_hint(dg, g, "bring back the old one, or begin another run with a new --out");
    return false;
}

static void tell_bits(const gw_session *s, const gw_ckpt_meta *m) {
    const char *isa = gw_isa_name(s->setup.machine.isa);
    if (m->threads == s->setup.machine.threads && strcmp(m->isa, isa) == 0) return;
    gw_log_warn("the run goes on, but not bitwise: %d threads on %s, before %" PRId64
                " threads on %s",
                s->setup.machine.threads, isa, m->threads, m->isa);
}

static gw_status check_fits(const gw_session *s, const gw_ckpt_manifest *m, gw_diags *dg) {
    bool fits = true;
    char hex[33] = "";
    if (m->meta.batch > 0) /* a run that has not begun may still become another */
        GW_TRY(check_config(s, m, false, &fits, dg));
    fits = check_model(s, m, dg) && fits;
    if (*s->data_hash)
        fits = check_hash(s, "training data", "data.train", s->data_hash, m->meta.data, dg) && fits;
    if (s->setup.tokenizer)
        fits = check_hash(s, "tokenizer", "data.tokenizer",
                          gw_hash128_hex(hex, gw_tokenizer_hash(s->setup.tokenizer)),
                          m->meta.tokenizer, dg) &&
               fits;
    return fits ? GW_OK : GW_ERR_CONFIG;
}

/* Says of the one that is taken what is another than it was. */
static void tell_fit(const gw_session *s, const gw_ckpt_manifest *m) {
    bool fits = true;
    gw_diags quiet; /* it was read before */
    if (gw_log_get_level() == GW_LOG_QUIET) return;
    gw_diags_init(&quiet);
    if (m->meta.batch > 0 && trains(s)) (void)!check_config(s, m, true, &fits, &quiet);
    gw_diags_release(&quiet);
    if (*s->valid_hash && *m->meta.valid && strcmp(s->valid_hash, m->meta.valid) != 0)
        gw_log_warn("data.valid is another set than before: losses of validation from here on do "
                    "not compare with the earlier ones");
    if (trains(s)) tell_bits(s, &m->meta);
}

static void take_counters(gw_session *s, const gw_ckpt_meta *m) {
    s->step = s->resumed = s->saved = m->step;
    s->batch = m->batch;
    s->next_sample = m->next_sample;
    s->tokens = m->tokens;
    gw_session_take_scale(s, m);
    s->resumed_probe = m->probe;
    s->resumed_probe.bits = gw_arena_strdup(&s->mem, m->probe.bits);
    s->resumed_probe.taken = m->probe.taken && !s->spread_statistics;
}

/* The first error with the file it is about. */
static const char *fault_text(const gw_diags *faults, gw_arena *mem) {
    const gw_diag *g = faults->first;
    while (g && g->severity != GW_ERROR) g = g->next;
    if (!g) return "?";
    return g->where.file ? gw_arena_printf(mem, "%s: %s", g->where.file, g->message) : g->message;
}

static gw_status refuse_version(const gw_ckpt_found *f, const gw_diags *faults, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_UNSUPPORTED, "checkpoint-version",
                             (gw_where){.file = f->path}, "%s", gw_diags_first_error(faults));
    gw_diag_hint(dg, g,
                 "continue with the version of the program that wrote it, or move the folder away "
                 "to go on from an earlier checkpoint");
    return GW_ERR_UNSUPPORTED;
}

/* ---- candidates ---- */

/* One candidate. A fault of its bytes leaves *taken false and is told in *fault (NULL: it was said
 * already). */
static gw_status try_one(gw_session *s, const gw_ckpt_found *f, bool *taken, const char **fault,
                         gw_arena *keep, gw_diags *dg) {
    gw_arena mem = {0};
    gw_diags faults;
    gw_diags_init(&faults);
    gw_ckpt_manifest *m = NULL;
    gw_status st = GW_OK;
    gw_status read = gw_checkpoint_read(f->path, &mem, &m, &faults);
    if (read == GW_OK) st = check_fits(s, m, dg);
    if (read == GW_OK && st == GW_OK) read = gw_session_load_tensors(s, m, &faults);
    if (read == GW_OK && st == GW_OK) st = gw_session_judge_conversion(s, f->path, dg);
    int64_t unread = read != GW_OK;
    *fault = NULL;
    st = gw_exec_agree(s->comm, st, &unread, "reading a checkpoint", dg);
    if (st == GW_OK && read == GW_OK && unread) {
        gw_log_warn("%s is whole here, but not where another rank reads it; looking for an earlier "
                    "checkpoint",
                    f->path);
    } else if (st == GW_OK && read == GW_OK) {
        tell_fit(s, m);
        st = gw_session_tell_conversion(s, m, dg);
        take_counters(s, &m->meta);
        s->resumed_path = gw_arena_strdup(&s->mem, f->path);
        *taken = true;
    } else if (st == GW_OK && read == GW_ERR_UNSUPPORTED && !m) {
        st = refuse_version(f, &faults, dg);
    } else if (st == GW_OK) {
        *fault = gw_arena_strdup(keep, fault_text(&faults, &mem));
    }
    gw_diags_release(&faults);
    gw_arena_release(&mem);
    return st;
}

/* Is one that was not taken still there? If so it is passed over, and that is said. */
static gw_status pass_over(const gw_place *p, const gw_ckpt_found *f, const char *fault,
                           bool *there, gw_str *told, gw_arena *mem, gw_diags *dg) {
    gw_place_entry e = {0};
    bool torn = f->state == GW_CKPT_TORN;
    const char *path = torn ? f->path : gw_path_join(mem, f->path, "manifest.json");
    *there = true;
    GW_TRY(gw_place_look(p, path, &e, dg));
    *there = e.kind != GW_PLACE_ABSENT;
    if (!*there) return GW_OK;
    if (torn)
        gw_log_warn("%s has no manifest: its save goes on or did not finish; passed over", f->path);
    else if (fault)
        gw_log_warn("%s; looking for an earlier checkpoint", fault);
    if (torn || fault)
        gw_str_printf(told, "%s%s%s", told->len ? "\n" : "", torn ? f->path : fault,
                      torn ? " has no manifest" : "");
    return GW_OK;
}

/* Tries the listed ones. *gone: the folder of one was removed meanwhile. */
static gw_status try_list(gw_session *s, const gw_place *p, const gw_ckpt_list *list, bool *found,
                          bool *gone, int *damaged, gw_str *told, gw_arena *mem, gw_diags *dg) {
    gw_status st = GW_OK;
    *gone = false;
    *damaged = 0;
    gw_str_clear(told);
    for (int i = 0; st == GW_OK && !*found && !*gone && i < list->n; i++) {
        const gw_ckpt_found *f = &list->items[i];
        const char *fault = NULL;
        bool there, torn = f->state == GW_CKPT_TORN;
        if (f->state == GW_CKPT_HELD) continue;
        if (!torn) st = try_one(s, f, found, &fault, mem, dg);
        if (st != GW_OK || *found) break;
        st = pass_over(p, f, fault, &there, told, mem, dg);
        int64_t missed = !there;
        st = gw_exec_agree(s->comm, st, &missed, "reading a checkpoint", dg);
        *gone = missed != 0;
        *damaged += there && !torn;
    }
    return st;
}

/* What rank 0 sees, as paths of this rank. */
static gw_status share_list(const gw_session *s, const char *run_dir, gw_ckpt_list *list,
                            gw_arena *mem, gw_diags *dg) {
    struct entry {
        int64_t step, state;
    };
    int64_t n = list->n;
    if (!s->comm) return GW_OK;
    GW_TRY(gw_comm_broadcast(s->comm, &n, sizeof n, "the checkpoints", dg));
    struct entry *e = gw_arena_new(mem, struct entry, n + 1);
    for (int64_t i = 0; i < n && i < list->n; i++)
        e[i] = (struct entry){list->items[i].step, (int64_t)list->items[i].state};
    GW_TRY(gw_comm_broadcast(s->comm, e, (n + 1) * (int64_t)sizeof *e, "the checkpoints", dg));
    if (gw_ranks_me(s->comm) == 0) return GW_OK;
    list->n = (int)n;
    list->items = gw_arena_new(mem, gw_ckpt_found, n + 1);
    for (int64_t i = 0; i < n; i++)
        list->items[i] = (gw_ckpt_found){
            .step = e[i].step,
            .path = gw_arena_printf(mem, "%s/checkpoints/step-%08" PRId64, run_dir, e[i].step),
            .state = (gw_ckpt_state)e[i].state};
    return GW_OK;
}

/* Does anything stand there that somebody may want back: a commit, or one but for its manifest? */
static bool holds_any(const gw_ckpt_list *list) {
    for (int i = 0; i < list->n; i++)
        if (list->items[i].state != GW_CKPT_TORN || list->items[i].bare) return true;
    return false;
}

/* No checkpoint was taken. */
static gw_status begin_anew(gw_session *s, const char *dir, const gw_ckpt_list *list, int damaged,
                            bool gone, const gw_str *told, gw_diags *dg) {
    bool any = damaged > 0 || gone;
    s->fresh = s->fresh && (any || holds_any(list));
    if (s->fresh) {
        gw_log_warn("'%s' has no checkpoint that is whole: the run begins anew, as asked, and "
                    "removes none of what stands there",
                    dir);
        return GW_OK;
    }
    if (!any) return GW_OK;
    gw_status st = GW_FAIL(dg, GW_ERR_FORMAT, "checkpoint-none",
                           "'%s' has no checkpoint that is whole (%d damaged)", dir, damaged);
    if (told->len > 0) gw_diag_detail(dg, dg ? dg->last : NULL, "%s", told->data);
    gw_diag_hint(dg, dg ? dg->last : NULL,
                 "restore one from a copy, or begin anew with --fresh, which leaves them as they "
                 "are");
    return st;
}

/* "RUN/checkpoints/step-00000040" is one checkpoint of RUN: *run_dir becomes RUN. -1: any path. */
static int64_t one_checkpoint(const char **run_dir, gw_arena *mem) {
    static const char FOLDER[] = "/checkpoints";
    const char *slash = strrchr(*run_dir, '/');
    int64_t step = slash ? gw_checkpoint_step_of_name(slash + 1) : -1;
    if (step < 0) return -1;
    char *parent = gw_arena_strndup(mem, *run_dir, (size_t)(slash - *run_dir));
    if (!gw_str_ends(parent, FOLDER)) return -1;
    parent[strlen(parent) - strlen(FOLDER)] = 0;
    *run_dir = parent;
    return step;
}

static void keep_only(gw_ckpt_list *list, int64_t step) {
    int n = 0;
    for (int i = 0; i < list->n; i++)
        if (list->items[i].step == step) list->items[n++] = list->items[i];
    list->n = n;
}

gw_status gw_session_resume(gw_session *s, const char *run_dir, bool *found, gw_diags *dg) {
    enum {
        ROUNDS = 40
    }; /* a run that saves without pause prunes faster than a busy machine reads */
    gw_arena mem = {0};
    gw_ckpt_list list = {0};
    gw_place place = {0};
    gw_str told = {0};
    *found = false;
    int damaged = 0;
    bool gone = true;
    int64_t only = one_checkpoint(&run_dir, &mem);
    run_dir = gw_session_checkpoints(s->rf, run_dir);
    gw_status st = gw_place_open(&place, gw_checkpoint_home(run_dir, &mem), dg);
    st = gw_exec_agree(s->comm, st, NULL, "looking for checkpoints", dg);
    for (int round = 0; round < ROUNDS && st == GW_OK && gone; round++) {
        if (gw_ranks_me(s->comm) == 0) st = gw_checkpoint_list(run_dir, &mem, &list, dg);
        if (st == GW_OK && only >= 0) keep_only(&list, only);
        st = gw_exec_agree(s->comm, st, NULL, "listing checkpoints", dg);
        if (st == GW_OK) st = share_list(s, run_dir, &list, &mem, dg);
        if (st == GW_OK) st = try_list(s, &place, &list, found, &gone, &damaged, &told, &mem, dg);
    }
    if (st == GW_OK && *found) s->fresh = false;
    if (st == GW_OK && !*found) st = begin_anew(s, run_dir, &list, damaged, gone, &told, dg);
    gw_str_release(&told);
    gw_place_close(&place);
    gw_arena_release(&mem);
    return st;
}

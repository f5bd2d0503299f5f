// SPDX-License-Identifier: Apache-2.0
// The verbs by which formats ask for keys and decide them.
//
// A key is asked for by its canonical name and in the type that is wanted; what cannot be had (a
// wrong type, "auto", a variable of a script that nobody set) is refused on the spot, so that a
// format's code need not care. Deciding is once and for all: a decided key is no longer found, but
// for mapping it onto a second key of ours. Two keys that ask for different values of one of ours
// contradict each other; what --set says wins over both.
//
// The arithmetic of a batch stands here, too, since each format has it: any three of micro-batch,
// accumulate, global batch and dp give the fourth, and all four must multiply.
#include <math.h>   /* fabs, floor */
#include <string.h> /* strlen */

#include "base/panic.h"         /* GW_ASSERT */
#include "train/convert_impl.h" /* gw_cv */

// ------------------------------------------------------------------ asking

gw_cv_key *gw_cv_get(const gw_cv *c, const char *canon) {
    for (int64_t i = 0; i < c->keys.count; i++) {
        gw_cv_key *k = c->keys.items[i];
        if (k->fate == GW_CV_OPEN && gw_str_eq(k->canon, canon))
            return k->type != GW_CV_NULL ? k : NULL;
    }
    return NULL;
}

bool gw_cv_known(const gw_cv *c, const char *canon) {
    for (int64_t i = 0; i < c->keys.count; i++)
        if (c->keys.items[i]->type != GW_CV_NULL && c->keys.items[i]->line > 0 &&
            gw_str_eq(c->keys.items[i]->canon, canon))
            return true;
    return false;
}

static const char *type_name(gw_cv_type t) {
    static const char *const names[] = {"null",     "true or false", "a whole number",
                                        "a number", "text",          "a list"};
    return names[t];
}

void gw_cv_refuse_key(gw_cv_key *k, const char *why, const char *instead) {
    k->fate = GW_CV_REFUSED;
    k->why = why;
    k->instead = instead;
}

gw_diag *gw_cv_error_at(gw_cv *c, const gw_cv_key *k, const char *id, const char *what) {
    gw_where w = {c->request->name, k ? k->line : 0, k ? k->column : 0};
    c->errors++;
    return gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, id, w, "%s%s%s", k ? k->name : "",
                       k ? ": " : "", what);
}

static void wrong_type(gw_cv *c, gw_cv_key *k, const char *wanted) {
    const char *is =
        k->type == GW_CV_TEXT || k->type == GW_CV_LIST || k->type == GW_CV_BOOL
            ? gw_arena_printf(c->a, "%.60s is %s", k->text,
                              k->type == GW_CV_TEXT && c->format->words ? "no such value"
                                                                        : type_name(k->type))
            : gw_arena_printf(c->a, "%.60s is %s", k->text, type_name(k->type));
    const char *why = gw_arena_printf(c->a, "%s; it takes %s", is, wanted);
    gw_cv_error_at(c, k, "convert-type", why);
    gw_cv_refuse_key(k, why, NULL);
}

bool gw_cv_is_set(gw_cv *c, gw_cv_key *k) {
    const char *ours = gw_cv_says(c, k->canon);
    if (!ours || !gw_cv_value_of(c, ours)->set) return false;
    k->fate = GW_CV_IMPLIED;
    k->why = gw_arena_printf(c->a, "--set %s=%s says it", ours, gw_cv_ours(c, ours));
    return true;
}

void gw_cv_refuse_open(gw_cv *c, gw_cv_key *k, const char *why, const char *instead) {
    const char *ours = gw_cv_says(c, k->canon);
    if (gw_cv_is_set(c, k)) return;
    if (!instead) instead = "give the value here";
    gw_cv_refuse_key(k, why,
                     ours ? gw_arena_printf(c->a, "%s by --set %s=VALUE", instead, ours)
                          : gw_arena_printf(c->a, "%s by --set KEY=VALUE", instead));
}

/* A value that the file does not hold: decided, and the key is done with. */
static bool is_unknown(gw_cv *c, gw_cv_key *k) {
    bool filled = k->type == GW_CV_TEXT && gw_str_eq(k->text, "auto");
    if (!filled && !k->open) return false;
    gw_cv_refuse_open(c, k,
                      filled ? "auto: the program that reads this file fills it in, the file does "
                               "not say it"
                             : gw_arena_printf(c->a, "its value %s", k->open),
                      NULL);
    return true;
}

static bool number_of(const gw_cv *c, const gw_cv_key *k, double *x) {
    if (k->type == GW_CV_INT || k->type == GW_CV_REAL ||
        (c->format->words && k->type == GW_CV_TEXT))
        return gw_parse_f64(k->text, x);
    return false;
}

double gw_cv_real(gw_cv *c, const char *canon, double fallback) {
    gw_cv_key *k = gw_cv_get(c, canon);
    double x;
    if (!k || is_unknown(c, k)) return fallback;
    if (number_of(c, k, &x)) return x;
    wrong_type(c, k, "a number");
    return fallback;
}

int64_t gw_cv_int(gw_cv *c, const char *canon, int64_t fallback) {
    gw_cv_key *k = gw_cv_get(c, canon);
    double x;
    int64_t i;
    if (!k || is_unknown(c, k)) return fallback;
    bool number = number_of(c, k, &x) && fabs(x) <= (double)GW_CV_MOST;
    if (number && gw_parse_i64(k->text, &i)) return i;
    if (number && floor(x) == x) return (int64_t)x; /* 5e8 */
    wrong_type(c, k, "a whole number");
    return fallback;
}

bool gw_cv_bool(gw_cv *c, const char *canon, bool fallback) {
    gw_cv_key *k = gw_cv_get(c, canon);
    static const char *const yes[] = {"true", "yes", "on", "True"};
    static const char *const no[] = {"false", "no", "off", "False"};
    if (!k || is_unknown(c, k)) return fallback;
    for (size_t i = 0; i < GW_COUNT(yes) && (k->type == GW_CV_BOOL || k->type == GW_CV_TEXT); i++) {
        if (gw_str_eq(k->text, yes[i])) return true;
        if (gw_str_eq(k->text, no[i])) return false;
    }
    wrong_type(c, k, "true or false");
    return fallback;
}

const char *gw_cv_text(gw_cv *c, const char *canon, const char *fallback) {
    gw_cv_key *k = gw_cv_get(c, canon);
    if (!k || is_unknown(c, k)) return fallback;
    if (k->type == GW_CV_TEXT) return k->text;
    if (c->format->words && k->type == GW_CV_LIST) return k->text;
    wrong_type(c, k, "text");
    return fallback;
}

gw_cv_value *gw_cv_value_of(const gw_cv *c, const char *ours) {
    int i = gw_rf_key_find(ours);
    GW_ASSERT(i >= 0);
    return &c->values[i];
}

const char *gw_cv_ours(const gw_cv *c, const char *ours) { return gw_cv_value_of(c, ours)->text; }

int64_t gw_cv_ours_int(const gw_cv *c, const char *ours, int64_t fallback) {
    int64_t n;
    const char *text = gw_cv_ours(c, ours);
    return text && gw_parse_i64(text, &n) && n >= 0 && n <= GW_CV_MOST ? n : fallback;
}

/* The shape that model.preset names. */
static bool preset_of(const gw_cv *c, gw_model *m) {
    const char *preset = gw_cv_ours(c, "model.preset");
    gw_arena scratch = {0};
    size_t len = preset ? strlen(preset) : 0;
    bool quoted = len > 1 && preset[0] == '"';
    const char *bare = quoted ? gw_arena_strndup(&scratch, preset + 1, len - 2) : preset;
    bool known = bare && gw_model_preset(bare, m);
    gw_arena_release(&scratch);
    return known;
}

int64_t gw_cv_layers(const gw_cv *c) {
    gw_model m;
    int64_t n = gw_cv_ours_int(c, "model.layers", 0);
    return n > 0 || !preset_of(c, &m) ? n : m.layers;
}

const char *gw_cv_cheap_ops(const gw_cv *c, bool norms, bool activations) {
    gw_model m = {.family = GW_FAMILY_LLAMA};
    const char *family = gw_cv_ours(c, "model.family");
    bool named = !family && preset_of(c, &m);
    bool gpt2 = family ? gw_str_eq(family, "gpt2") : m.family == GW_FAMILY_GPT2;
    bool experts = family ? gw_str_eq(family, "mixtral") || gw_str_eq(family, "qwen3_moe")
                          : named && m.moe.experts > 0 && m.family != GW_FAMILY_DEEPSEEK;
    activations = activations && !experts;
    if (!norms && !activations) return NULL;
    if (!activations) return gpt2 ? "[layernorm]" : "[rmsnorm]";
    if (!norms) return gpt2 ? "[gelu]" : "[swiglu]";
    return gpt2 ? "[layernorm, gelu]" : "[rmsnorm, swiglu]";
}

// ------------------------------------------------------------------ deciding

const char *gw_cv_quote(gw_cv *c, const char *text) {
    gw_str s = {0};
    gw_rf_add_json_string(&s, text);
    const char *out = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    return out;
}

void gw_cv_conflict(gw_cv *c, const char *canon, const char *fmt, ...) {
    gw_cv_key *k = NULL;
    for (int64_t i = 0; canon && i < c->keys.count && !k; i++)
        if (gw_str_eq(c->keys.items[i]->canon, canon)) k = c->keys.items[i];
    va_list ap;
    va_start(ap, fmt);
    const char *why = gw_arena_vprintf(c->a, fmt, ap);
    va_end(ap);
    gw_cv_error_at(c, k, "convert-conflict", why);
    if (k) gw_cv_refuse_key(k, why, NULL);
}

static const char *joined(gw_cv *c, const char *a, const char *b) {
    return a ? gw_arena_printf(c->a, "%s, %s", a, b) : b;
}

void gw_cv_map_key(gw_cv *c, gw_cv_key *k, const char *ours, const char *text) {
    gw_cv_value *v = gw_cv_value_of(c, ours);
    if (v->set) {
        k->fate = k->fate == GW_CV_MAPPED ? k->fate : GW_CV_IMPLIED;
        k->why = gw_arena_printf(c->a, "--set %s=%s says it", ours, v->text);
        return;
    }
    if (v->text && v->of && v->of != k && !gw_str_eq(v->text, text)) {
        gw_cv_conflict(c, k->canon, "it asks for %s: %s, line %d (%s) for %s", ours, text,
                       v->of->line, v->of->name, v->text);
        return;
    }
    if (!v->text || !v->of) *v = (gw_cv_value){.text = text, .of = k};
    k->fate = GW_CV_MAPPED;
    k->ours = joined(c, k->ours, ours);
    k->wrote = joined(c, k->wrote, text);
}

/* The key by its canonical name, also where it is mapped already: one key may say several values.
 */
static gw_cv_key *open_or_mapped(const gw_cv *c, const char *canon) {
    gw_cv_key *k = gw_cv_get(c, canon);
    for (int64_t i = 0; i < c->keys.count && !k; i++)
        if (c->keys.items[i]->fate == GW_CV_MAPPED && gw_str_eq(c->keys.items[i]->canon, canon))
            k = c->keys.items[i];
    return k;
}

void gw_cv_map(gw_cv *c, const char *canon, const char *ours, const char *fmt, ...) {
    gw_cv_key *k = open_or_mapped(c, canon);
    if (!k) return;
    va_list ap;
    va_start(ap, fmt);
    const char *text = gw_arena_vprintf(c->a, fmt, ap);
    va_end(ap);
    gw_cv_map_key(c, k, ours, text);
}

void gw_cv_remark(gw_cv *c, const char *canon, const char *fmt, ...) {
    gw_cv_key *k = open_or_mapped(c, canon);
    if (!k || k->fate != GW_CV_MAPPED) return;
    va_list ap;
    va_start(ap, fmt);
    k->why = gw_arena_vprintf(c->a, fmt, ap);
    va_end(ap);
}

void gw_cv_imply(gw_cv *c, const char *canon, const char *fmt, ...) {
    gw_cv_key *k = gw_cv_get(c, canon);
    if (!k) return;
    va_list ap;
    va_start(ap, fmt);
    k->why = gw_arena_vprintf(c->a, fmt, ap);
    va_end(ap);
    k->fate = GW_CV_IMPLIED;
}

void gw_cv_refuse(gw_cv *c, const char *canon, const char *instead, const char *fmt, ...) {
    gw_cv_key *k = gw_cv_get(c, canon);
    if (!k || gw_cv_is_set(c, k)) return;
    va_list ap;
    va_start(ap, fmt);
    gw_cv_refuse_key(k, gw_arena_vprintf(c->a, fmt, ap), instead);
    va_end(ap);
}

void gw_cv_put(gw_cv *c, const char *ours, const char *why, const char *fmt, ...) {
    gw_cv_value *v = gw_cv_value_of(c, ours);
    if (v->text) return;
    va_list ap;
    va_start(ap, fmt);
    *v = (gw_cv_value){.text = gw_arena_vprintf(c->a, fmt, ap), .why = why};
    va_end(ap);
}

void gw_cv_refuse_missing(gw_cv *c, const char *name, const char *text, const char *instead,
                          const char *why) {
    gw_cv_key *k = gw_arena_new(c->a, gw_cv_key, 1);
    *k = (gw_cv_key){.name = name, .canon = name, .type = GW_CV_TEXT, .text = text};
    gw_cv_refuse_key(k, why, instead);
    gw_vec_push(&c->keys, k);
}

void gw_cv_refuse_default(gw_cv *c, const char *name, const char *text, const char *instead,
                          const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *why = gw_arena_vprintf(c->a, fmt, ap);
    va_end(ap);
    gw_cv_refuse_missing(c, name, text, instead,
                         gw_arena_printf(c->a, "%s's default, as the file does not say it: %s",
                                         c->format->name, why));
}

void gw_cv_imply_all(gw_cv *c, const char *pattern, const char *why) {
    for (int64_t i = 0; i < c->keys.count; i++) {
        gw_cv_key *k = c->keys.items[i];
        if (k->fate != GW_CV_OPEN || !gw_str_glob(pattern, k->canon)) continue;
        k->fate = GW_CV_IMPLIED;
        k->why = why;
    }
}

// ------------------------------------------------------------------ in one go

void gw_cv_map_int(gw_cv *c, const char *canon, const char *ours) {
    int64_t n = gw_cv_int(c, canon, 0);
    gw_cv_map(c, canon, ours, "%lld", (long long)n);
}

void gw_cv_map_real(gw_cv *c, const char *canon, const char *ours) {
    gw_str s = {0};
    gw_rf_add_real(&s, gw_cv_real(c, canon, 0));
    gw_cv_map(c, canon, ours, "%s", gw_str_c(&s));
    gw_str_release(&s);
}

void gw_cv_flag(gw_cv *c, const char *canon, bool is_so, const char *why) {
    bool on = gw_cv_bool(c, canon, false);
    if (on && !is_so) gw_cv_refuse(c, canon, NULL, "%s", why);
    gw_cv_imply(c, canon, "%s", on ? why : "off");
}

void gw_cv_imply_list(gw_cv *c, const char *names, const char *why) {
    while (*names) {
        size_t n = strcspn(names, " ");
        gw_cv_imply(c, gw_arena_strndup(c->a, names, n), "%s", why);
        names += n + (names[n] == ' ');
    }
}

// ------------------------------------------------------------------ what several formats do

int64_t gw_cv_times(int64_t a, int64_t b) {
    int64_t r;
    return __builtin_mul_overflow(a, b, &r) ? INT64_MAX : r;
}

int64_t gw_cv_degree(gw_cv *c, const char *canon, const char *ours) {
    int64_t n = gw_cv_int(c, canon, 1);
    if (n < 1) {
        gw_cv_conflict(c, canon, "%lld is no number of ranks", (long long)n);
        n = 1;
    }
    gw_cv_map(c, canon, ours, "%lld", (long long)n);
    return gw_cv_ours_int(c, ours, n);
}

int64_t gw_cv_dp_of(gw_cv *c, int64_t ranks, const char *canon) {
    int64_t pp = gw_cv_ours_int(c, "layout.pp", 1), tp = gw_cv_ours_int(c, "layout.tp", 1);
    int64_t cp = gw_cv_ours_int(c, "layout.cp", 1);
    if (ranks <= 0 || pp <= 0 || tp <= 0 || cp <= 0) return 0;
    int64_t each = gw_cv_times(pp, gw_cv_times(tp, cp));
    if (ranks % each == 0) return ranks / each;
    gw_cv_conflict(
        c, canon,
        "%lld ranks are no multiple of pp %lld x tp %lld x cp %lld; --world says how many "
        "there are",
        (long long)ranks, (long long)pp, (long long)tp, (long long)cp);
    return 0;
}

static void write_portion(gw_cv *c, gw_cv_portion p, const char *ours) {
    if (p.n <= 0) return;
    if (p.key)
        gw_cv_map(c, p.key, ours, "%lld", (long long)p.n);
    else
        gw_cv_put(c, ours, p.from ? p.from : "", "%lld", (long long)p.n);
}

/* Fills the unknown portion p = total / (a x b), or complains. */
static void divide(gw_cv *c, gw_cv_portion *p, const char *what, gw_cv_portion total,
                   const char *total_name, int64_t a, int64_t b, const char *parts) {
    if (total.n % gw_cv_times(a, b) == 0) {
        p->n = total.n / gw_cv_times(a, b);
        p->from = gw_arena_printf(c->a, "%s %lld / (%s: %lld x %lld)", total_name,
                                  (long long)total.n, parts, (long long)a, (long long)b);
        return;
    }
    gw_cv_conflict(
        c, total.key,
        "a batch of %lld is no multiple of %s: %lld x %lld, so that %s is no whole number",
        (long long)total.n, parts, (long long)a, (long long)b, what);
}

void gw_cv_settle_batch(gw_cv *c, gw_cv_batch b) {
    gw_cv_portion *parts[] = {&b.micro, &b.accumulate, &b.global, &b.dp};
    static const char *const ours[] = {"train.micro_batch", "train.accumulate",
                                       "train.global_batch", "layout.dp"};
    for (int i = 0; i < 4; i++) { /* --set wins */
        const gw_cv_value *v = gw_cv_value_of(c, ours[i]);
        int64_t n;
        if (v->set && gw_parse_i64(v->text, &n) && n <= GW_CV_MOST)
            *parts[i] = (gw_cv_portion){n, parts[i]->key, NULL};
        if (parts[i]->n < 0) {
            gw_cv_conflict(c, parts[i]->key, "%lld is no size", (long long)parts[i]->n);
            return;
        }
    }
    int64_t m = b.micro.n, k = b.accumulate.n, g = b.global.n, d = b.dp.n;
    int64_t all = gw_cv_times(m, gw_cv_times(k, d));
    if (m && k && d && g && all != g)
        gw_cv_conflict(
            c, b.global.key ? b.global.key : b.micro.key,
            "the batch is %lld, but micro-batch %lld x accumulate %lld x dp %lld is %lld",
            (long long)g, (long long)m, (long long)k, (long long)d, (long long)all);
    else if (g && m && d && !k)
        divide(c, &b.accumulate, "accumulate", b.global, "batch", m, d, "micro-batch x dp");
    else if (g && k && d && !m)
        divide(c, &b.micro, "the micro-batch", b.global, "batch", k, d, "accumulate x dp");
    else if (g && m && k && !d)
        divide(c, &b.dp, "dp", b.global, "batch", m, k, "micro-batch x accumulate");
    else if (m && k && d && !g)
        b.global = (gw_cv_portion){all, NULL, "micro-batch x accumulate x dp"};
    if (c->errors) return;
    for (int i = 0; i < 4; i++) write_portion(c, *parts[i], ours[i]);
}

void gw_cv_offload(gw_cv *c, const char *canon, const char *path, bool states, int64_t zero,
                   const char *instead) {
    const char *device = gw_cv_text(c, canon, "none");
    const char *ours = gw_str_eq(device, "cpu")    ? "host"
                       : gw_str_eq(device, "nvme") ? "disk"
                                                   : NULL;
    if (ours && states) {
        gw_cv_map(c, canon, "offload.optimizer", "%s", ours);
        if (!gw_str_eq(gw_cv_ours(c, "precision.compute"), "fp32"))
            gw_cv_map(c, canon, "offload.master", "%s", ours);
    } else if (ours && zero == 3) {
        gw_cv_map(c, canon, "offload.parameters", "%s", ours);
    } else if (ours) {
        gw_cv_refuse(c, canon, instead, "parameters are offloaded where they are sharded");
    }
    if (gw_str_eq(device, "none")) gw_cv_imply(c, canon, "everything stays on the device");
    if (gw_cv_get(c, canon)) gw_cv_conflict(c, canon, "it is none, cpu or nvme");
    const char *dir = gw_cv_text(c, path, NULL);
    if (dir && gw_str_eq(ours, "disk"))
        gw_cv_map(c, path, "offload.dir", "%s", gw_cv_quote(c, dir));
    gw_cv_imply(c, path, "nothing goes to disk");
}

void gw_cv_min_lr(gw_cv *c, const char *canon, double value, double lr) {
    if (!gw_cv_get(c, canon)) return;
    if (!(lr > 0)) {
        gw_cv_refuse(c, canon, "optimizer.min_lr_ratio is this / optimizer.lr",
                     "it is written as a share of the peak rate, which the file does not say");
    } else if (value > lr) {
        gw_cv_conflict(c, canon, "the least rate %g is above the peak rate %g", value, lr);
    } else {
        gw_cv_map(c, canon, "optimizer.min_lr_ratio", "%.10g", value / lr);
        gw_cv_remark(c, canon, "%g / %g", value, lr);
    }
}

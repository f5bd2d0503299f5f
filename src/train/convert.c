// SPDX-License-Identifier: Apache-2.0
// The converter's frame: from a request to a decided list of keys and a run file that loads.
//
// The reader of the format gives a flat list of keys. Each is renamed to its present spelling and
// looked up in the format's table; the rules that stand alone (TO, IS, NO) decide theirs, then the
// format's function decides the rest, where several keys make one value. What is not in the file
// but is a default of the other trainer that differs from ours is written as well, and said.
//
// Nothing may stay silent, so there are three nets at the end. A key that nobody decided is refused
// by name. A value that the run file would not read in this configuration (eps beside SGD) is taken
// out and its key becomes implied, with the condition. And the text that was made is parsed as any
// run file is: what its checks refuse is an error here, so that whatever is written loads.
#include "train/convert.h"

#include <math.h>   /* fabs */
#include <stdlib.h> /* qsort */
#include <string.h> /* strchr */

#include "base/io.h"            /* gw_path_is_dir */
#include "base/panic.h"         /* GW_ASSERT */
#include "train/convert_impl.h" /* gw_cv */

static const gw_cv_format *const formats[] = {&gw_cv_torchtitan, &gw_cv_megatron, &gw_cv_deepspeed,
                                              &gw_cv_accelerate};

const char *gw_convert_format(int i, const char **doc) {
    if (i < 0 || i >= (int)GW_COUNT(formats)) return NULL;
    if (doc) *doc = formats[i]->doc;
    return formats[i]->name;
}

static const gw_cv_format *format_find(const char *name) {
    for (size_t i = 0; i < GW_COUNT(formats); i++)
        if (gw_str_eq(formats[i]->name, name)) return formats[i];
    return NULL;
}

const char *gw_cv_fate_name(gw_cv_fate fate) {
    static const char *const names[] = {"open", "mapped", "implied", "refused"};
    return names[fate];
}

// ------------------------------------------------------------------ the table

/* The next name of a row; rows may hold many, with blanks between them. */
static bool next_name(const char **p, char *name, size_t size) {
    *p += strspn(*p, " ");
    size_t n = strcspn(*p, " ");
    if (n == 0) return false;
    GW_ASSERT(n < size);
    memcpy(name, *p, n);
    name[n] = 0;
    *p += n;
    return true;
}

static const gw_cv_rule *rule_find(const gw_cv_format *f, const char *canon) {
    char name[96];
    const gw_cv_rule *fits = NULL;
    for (int i = 0; i < f->nrules; i++)
        for (const char *p = f->rules[i].key; next_name(&p, name, sizeof name);) {
            if (gw_str_eq(name, canon)) return &f->rules[i];
            if (!fits && strchr(name, '*') && gw_str_glob(name, canon)) fits = &f->rules[i];
        }
    return fits;
}

bool gw_convert_knows(const char *format, const char *canon) {
    const gw_cv_format *f = format_find(format);
    return f && rule_find(f, canon) != NULL;
}

const char *gw_cv_says(const gw_cv *c, const char *canon) {
    for (const gw_cv_rename *r = c->format->says; r->old; r++)
        if (gw_str_eq(r->old, canon)) return r->now;
    const gw_cv_rule *r = rule_find(c->format, canon);
    return r && r->does == GW_CV_TO ? r->ours : NULL;
}

/* Has the format keys of a section? */
static bool knows_section(const gw_cv *c, const char *name) {
    size_t n = strlen(name);
    char key[96];
    for (int i = 0; i < c->format->nrules; i++)
        for (const char *p = c->format->rules[i].key; next_name(&p, key, sizeof key);)
            if (strncmp(key, name, n) == 0 && key[n] == '.') return true;
    return false;
}

static const char *renamed(gw_cv *c, const char *name) {
    for (const gw_cv_rename *r = c->format->renames; r->old; r++) {
        size_t n = strlen(r->old);
        if (gw_str_eq(r->old, name)) return r->now;
        if (r->old[n - 1] == '*' && strncmp(r->old, name, n - 1) == 0)
            return gw_arena_printf(c->a, "%s%s", r->now, name + n - 1);
    }
    return name;
}

// ------------------------------------------------------------------ rules that stand alone

/* The value of a key as one of ours takes it, or NULL after a complaint. */
static const char *translated(gw_cv *c, const char *canon, gw_cv_key *k, const char *ours) {
    gw_str s = {0};
    int errors = c->errors;
    switch (gw_rf_keys[gw_rf_key_find(ours)].type) {
    case GW_RF_T_INT:
    case GW_RF_T_BYTES: gw_str_printf(&s, "%lld", (long long)gw_cv_int(c, canon, 0)); break;
    case GW_RF_T_REAL: gw_rf_add_real(&s, gw_cv_real(c, canon, 0)); break;
    case GW_RF_T_BOOL: gw_str_add(&s, gw_cv_bool(c, canon, false) ? "true" : "false"); break;
    case GW_RF_T_TEXT: gw_str_add(&s, gw_cv_quote(c, gw_cv_text(c, canon, ""))); break;
    case GW_RF_T_ENUM:
    case GW_RF_T_LIST:
    case GW_RF_T_PAIR:
    case GW_RF_T_MAP:
    case GW_RF_T_MIXTURE:
    case GW_RF_T_STAGES:
    case GW_RF_T_COUNTS: gw_str_add(&s, gw_cv_text(c, canon, "")); break;
    }
    const char *out = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    return c->errors == errors && k->fate == GW_CV_OPEN ? out : NULL;
}

/* Is the key's text one of the values that ask for nothing? Numbers compare as numbers. */
static bool asks_nothing(const gw_cv_key *k, const char *values) {
    for (const char *p = values; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL) {
        char word[64];
        size_t n = strcspn(p, "|");
        double a, b;
        if (n >= sizeof word) continue;
        memcpy(word, p, n);
        word[n] = 0;
        if (gw_str_eq(word, k->text)) return true;
        if (gw_str_eq(word, "false") && (gw_str_eq(k->text, "no") || gw_str_eq(k->text, "False")))
            return true;
        if (gw_str_eq(word, "true") && gw_str_eq(k->text, "True")) return true;
        if (gw_parse_f64(word, &a) && gw_parse_f64(k->text, &b) && fabs(a - b) == 0) return true;
    }
    return false;
}

static void apply_rule(gw_cv *c, gw_cv_key *k, const gw_cv_rule *r) {
    const char *text;
    switch (r->does) {
    case GW_CV_TO:
        text = translated(c, k->canon, k, r->ours);
        if (text) gw_cv_map_key(c, k, r->ours, text);
        break;
    case GW_CV_IS:
        k->fate = GW_CV_IMPLIED;
        k->why = r->text;
        break;
    case GW_CV_NO:
        if (r->text && asks_nothing(k, r->text)) {
            k->fate = GW_CV_IMPLIED;
            k->why = "asks for nothing that is not so here";
        } else if (!gw_cv_is_set(c, k)) {
            gw_cv_refuse_key(k, r->why, r->instead);
        }
        break;
    case GW_CV_DO: break;
    }
}

static void refuse_unknown(gw_cv *c, gw_cv_key *k) {
    char name[96];
    const char *best = NULL;
    int limit = 4;
    for (int i = 0; i < c->format->nrules; i++)
        for (const char *p = c->format->rules[i].key; next_name(&p, name, sizeof name);) {
            int d = gw_str_distance(name, k->canon);
            if (d >= limit) continue;
            limit = d;
            best = gw_arena_strdup(c->a, name);
        }
    gw_cv_refuse_key(k, gw_arena_printf(c->a, "no key of %s that is known here", c->format->name),
                     best ? gw_arena_printf(c->a, "did you mean %s?", best)
                          : "say what it means with the keys of docs/keys.md");
}

/* Keys given twice: in argument lists the last counts, elsewhere they contradict each other. */
static void settle_twice(gw_cv *c) {
    for (int64_t i = 0; i < c->keys.count; i++) {
        gw_cv_key *k = c->keys.items[i];
        for (int64_t j = i + 1; j < c->keys.count && k->fate == GW_CV_OPEN; j++) {
            gw_cv_key *later = c->keys.items[j];
            if (later->fate != GW_CV_OPEN || !gw_str_eq(k->canon, later->canon)) continue;
            if (k->type == GW_CV_NULL) continue;
            if (c->format->words) {
                k->fate = GW_CV_IMPLIED;
                k->why = gw_arena_printf(c->a, "given again at line %d, which counts", later->line);
            } else if (later->type != GW_CV_NULL) {
                const char *why = gw_arena_printf(c->a, "line %d says it as %s", k->line, k->name);
                gw_cv_error_at(c, later, "convert-conflict", why);
                gw_cv_refuse_key(later, why, NULL);
            }
        }
    }
}

static void apply_rules(gw_cv *c) {
    for (int64_t i = 0; i < c->keys.count; i++)
        c->keys.items[i]->canon = renamed(c, c->keys.items[i]->canon);
    settle_twice(c);
    for (int64_t i = 0; i < c->keys.count; i++) {
        gw_cv_key *k = c->keys.items[i];
        const gw_cv_rule *r = rule_find(c->format, k->canon);
        if (k->fate != GW_CV_OPEN) continue;
        if (k->type == GW_CV_NULL && (!r || r->does == GW_CV_DO) && gw_str_eq(k->text, "{}") &&
            knows_section(c, k->canon)) {
            k->fate = GW_CV_IMPLIED;
            k->why = "nothing stands in it";
        } else if (!r) {
            refuse_unknown(c, k);
        } else if (k->type == GW_CV_NULL) {
            k->fate = GW_CV_IMPLIED;
            k->why = "null: as if it were not given";
        } else if (k->under && r->does != GW_CV_IS) {
            gw_cv_refuse_open(c, k,
                              "stands under a condition that the script does not decide by itself",
                              "convert the arguments that the script prints, or say it");
        } else {
            apply_rule(c, k, r);
        }
    }
}

bool gw_cv_is_auto(const gw_cv *c, const char *canon) {
    for (int64_t i = 0; i < c->keys.count; i++)
        if (gw_str_eq(c->keys.items[i]->canon, canon) && gw_str_eq(c->keys.items[i]->text, "auto"))
            return true;
    return false;
}

/* Defaults of the other trainer that differ from ours. */
static void apply_defaults(gw_cv *c) {
    const char *why = gw_arena_printf(c->a, "%s's default", c->format->name);
    for (int i = 0; i < c->format->nrules; i++) {
        const gw_cv_rule *r = &c->format->rules[i];
        if (r->does == GW_CV_TO && r->text && !gw_cv_is_auto(c, r->key))
            gw_cv_put(c, r->ours, why, "%s", r->text);
    }
}

// ------------------------------------------------------------------ the whole

static gw_status refuse_set(gw_cv *c, const char *set, const char *key) {
    gw_status st = GW_FAIL(c->dg, GW_ERR_CONFIG, "config-override",
                           "--set %.80s is not KEY=VALUE with a key of the run file", set);
    int best = -1, limit = 4;
    for (int i = 0; i < gw_rf_nkeys; i++) {
        int d = gw_str_distance(gw_rf_keys[i].path, key);
        if (d < limit) limit = d, best = i;
    }
    if (best >= 0)
        gw_diag_hint(c->dg, c->dg->last, "did you mean %s=VALUE?", gw_rf_keys[best].path);
    return st;
}

static gw_status take_sets(gw_cv *c) {
    for (int i = 0; i < c->request->nsets; i++) {
        const char *set = c->request->sets[i], *eq = strchr(set, '=');
        const char *key = eq ? gw_arena_strndup(c->a, set, (size_t)(eq - set)) : set;
        int at = eq ? gw_rf_key_find(key) : -1;
        if (at < 0 || !eq[1]) return refuse_set(c, set, key);
        c->values[at] = (gw_cv_value){.text = gw_arena_strdup(c->a, eq + 1), .set = true};
        if (gw_str_starts(key, "model.") && memchr("fp", key[6], 2)) c->model_given = true;
    }
    const char *model = c->request->model;
    if (!model) return GW_OK;
    c->model_given = true;
    bool path = gw_path_is_dir(model) || gw_str_ends(model, ".gguf");
    *gw_cv_value_of(c, path ? "model.path" : "model.preset") =
        (gw_cv_value){.text = gw_cv_quote(c, model), .why = "--model"};
    return GW_OK;
}

static int by_place(const void *x, const void *y) {
    const gw_cv_key *a = x, *b = y;
    int al = a->line ? a->line : INT32_MAX, bl = b->line ? b->line : INT32_MAX;
    if (al != bl) return al < bl ? -1 : 1;
    if (a->column != b->column) return a->column < b->column ? -1 : 1;
    return strcmp(a->name, b->name);
}

static void hand_out(const gw_cv *c, gw_conversion *out) {
    out->format = c->format->name;
    out->name = c->request->name;
    out->nkeys = (int)c->keys.count;
    out->keys = gw_arena_new(c->a, gw_cv_key, c->keys.count);
    for (int i = 0; i < out->nkeys; i++) {
        out->keys[i] = *c->keys.items[i];
        out->mapped += out->keys[i].fate == GW_CV_MAPPED;
        out->implied += out->keys[i].fate == GW_CV_IMPLIED;
        out->refused += out->keys[i].fate == GW_CV_REFUSED;
    }
    qsort(out->keys, (size_t)out->nkeys, sizeof *out->keys, by_place);
    out->extras = gw_arena_new(c->a, gw_cv_extra, gw_rf_nkeys);
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const gw_cv_value *v = &c->values[i];
        if (!v->text || v->of) continue;
        out->extras[out->nextras++] =
            (gw_cv_extra){gw_rf_keys[i].path, v->text, v->set ? "--set" : v->why};
    }
}

// ------------------------------------------------------------------ the text

/* Names and values go into a run file, a table and JSON: they must be text. */
static gw_status check_text(gw_cv *c) {
    const gw_cv_request *r = c->request;
    json_t *text = json_stringn(r->text, (size_t)r->len);
    bool good = text != NULL && (r->len == 0 || !memchr(r->text, 0, (size_t)r->len));
    json_decref(text);
    if (!good) {
        bool wide = r->len > 1 &&
                    (memcmp(r->text, "\xff\xfe", 2) == 0 || memcmp(r->text, "\xfe\xff", 2) == 0);
        gw_status st =
            GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax", "%s is no text in UTF-8", r->name);
        gw_diag_hint(c->dg, c->dg->last,
                     wide ? "it is UTF-16: save it as UTF-8"
                          : "name the file of the configuration itself, no archive or checkpoint");
        return st;
    }
    for (int64_t i = 0; i < r->len; i++)
        if (!strchr(" \t\n", r->text[i])) return GW_OK;
    return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax", "%s is empty", r->name);
}

/* Without a mark of the byte order, and lines that end in LF, as editors of all systems have it. */
static void normalize(gw_cv *c, gw_cv_request *r) {
    if (r->len >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0) {
        r->text += 3;
        r->len -= 3;
    }
    if (r->len < 2 || !memchr(r->text, '\r', (size_t)r->len)) return;
    char *out = gw_arena_dup(c->a, r->text, r->len + 1);
    int64_t n = 0;
    for (int64_t i = 0; i < r->len; i++)
        if (r->text[i] != '\r' || i + 1 >= r->len || r->text[i + 1] != '\n') out[n++] = r->text[i];
    out[n] = 0;
    r->text = out;
    r->len = n;
}

/* The format that a text looks like, or NULL. */
static const char *looks_like(const char *text) {
    const char *p = text + strspn(text, " \t\r\n");
    if (*p == '{') return "deepspeed";
    if (strstr(text, "distributed_type:") || strstr(text, "fsdp_config:")) return "accelerate";
    if (strstr(text, "--micro-batch-size") || strstr(text, "--num-layers") ||
        strstr(text, "num_layers:"))
        return "megatron";
    return strstr(text, "[training]") || strstr(text, "[parallelism]") ? "torchtitan" : NULL;
}

/* Where nothing could be read: is it of another format? */
static void hint_format(gw_cv *c) {
    const char *like = looks_like(c->request->text);
    if (!like || gw_str_eq(like, c->format->name) || !c->dg->last) return;
    gw_diag_hint(c->dg, c->dg->last, "it looks like: gradwright convert %s %s", like,
                 c->request->name);
}

/* A file none of whose keys is known is of something else. */
static gw_status check_keys(gw_cv *c) {
    for (int64_t i = 0; i < c->keys.count; i++)
        if (rule_find(c->format, renamed(c, c->keys.items[i]->canon)) ||
            knows_section(c, c->keys.items[i]->canon))
            return GW_OK;
    return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax",
                   c->keys.count ? "%s: none of its %lld keys is one of %s"
                                 : "%s: it has %lld keys; a configuration of %s is expected",
                   c->request->name, (long long)c->keys.count, c->format->name);
}

static gw_status run(gw_cv *c, gw_conversion *out) {
    GW_TRY(take_sets(c));
    GW_TRY(check_text(c));
    gw_status read = c->format->read(c);
    if (read == GW_OK) read = check_keys(c);
    if (read != GW_OK) hint_format(c);
    GW_TRY(read);
    apply_rules(c);
    if (c->model_given && !gw_cv_ours(c, "model.family"))
        gw_cv_imply_all(c, "model.*", "--model says it");
    c->format->settle(c);
    apply_defaults(c);
    for (int64_t i = 0; i < c->keys.count; i++)
        if (c->keys.items[i]->fate == GW_CV_OPEN)
            gw_cv_refuse_key(c->keys.items[i], "nothing here reads it in this configuration", NULL);
    gw_status st = gw_cv_check_model(c);
    if (c->errors) st = GW_ERR_CONFIG;
    if (st == GW_OK) st = gw_cv_check_file(c, out);
    if (c->errors) st = GW_ERR_CONFIG;
    hand_out(c, out);
    return st;
}

gw_status gw_convert_config(const gw_cv_request *r, gw_arena *a, gw_conversion *out, gw_diags *dg) {
    gw_cv_request own = *r;
    gw_cv c = {.format = format_find(r->format), .request = &own, .a = a, .dg = dg};
    *out = (gw_conversion){0};
    if (!c.format)
        return GW_FAIL(dg, GW_ERR_USAGE, "usage",
                       "'%.40s' is no format: torchtitan, megatron, deepspeed and accelerate are",
                       r->format);
    c.values = gw_arena_new(a, gw_cv_value, gw_rf_nkeys);
    char *text = gw_arena_new(a, char, r->len + 1);
    if (r->len > 0) memcpy(text, r->text, (size_t)r->len);
    text[r->len] = 0;
    own.text = text;
    normalize(&c, &own);
    gw_status st = run(&c, out);
    gw_vec_release(&c.keys);
    return st;
}

// SPDX-License-Identifier: Apache-2.0
// Reading a run file: YAML and --set overrides into gw_runfile, by the key table.
//
// The order: defaults of the table, then the file section by section, then overrides in the order
// of the command line, then derivation and checks (runfile_check.c). Each stage reports every fault
// it sees and goes on, so that one run of the program shows them all; a key that has been
// complained about is marked bad, and later checks leave out whatever hangs on a bad key.
//
// An override is put through the same code as the file: its value is parsed as YAML and stored with
// the override's own text as its place. Texts and names are the exception: there the value is taken
// as it stands, so that paths with ':' or '#' need no second quoting inside the shell's.
//
// What a value must look like is runfile_value.c's matter; names of other trainers,
// runfile_key.c's.
#include "train/runfile.h" /* gw_runfile */

#include <stdarg.h> /* va_list */
#include <stdio.h>  /* fread */
#include <string.h> /* strchr */

#include "base/io.h"           /* gw_file_read */
#include "base/panic.h"        /* gw_panic */
#include "file/store.h"        /* gw_store_is_url */
#include "model/model.h"       /* gw_family_parse, gw_model_preset */
#include "train/runfile_key.h" /* gw_rf_keys */

// ------------------------------------------------------------------ places

static gw_rf_mark *key_mark(const gw_runfile *rf, int key) { return &rf->marks[key]; }

static gw_rf_mark *group_mark(const gw_runfile *rf, int group) {
    return &rf->marks[gw_rf_nkeys + group];
}

static int key_index(const char *key) {
    int k = gw_rf_key_find(key);
    if (k < 0) gw_panic("no run file key is named '%s'", key);
    return k;
}

bool gw_runfile_is_set(const gw_runfile *rf, const char *key) {
    return key_mark(rf, key_index(key))->set;
}

gw_where gw_runfile_where(const gw_runfile *rf, const char *key) {
    const gw_rf_mark *m = key_mark(rf, key_index(key));
    char group[64];
    size_t n = gw_rf_group_length(key);
    /* A dimension that was not given comes from the preset or the family: that is its place. */
    static const char *const sources[] = {"model.preset", "model.family", "model.path"};
    for (size_t i = 0; !m->set && gw_str_starts(key, "model.") && i < GW_COUNT(sources); i++)
        m = key_mark(rf, key_index(sources[i]));
    while (!m->set && n > 0) {
        snprintf(group, sizeof group, "%.*s", (int)n, key);
        m = group_mark(rf, gw_rf_group_find(group));
        n = gw_rf_group_length(group);
    }
    if (!m->set) return (gw_where){rf->file, 0, 0};
    return (gw_where){m->file, m->line, m->column};
}

gw_diag *gw_runfile_error(const gw_runfile *rf, gw_diags *dg, const char *key, const char *id,
                          const char *fmt, ...) {
    gw_str text = {0};
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(&text, fmt, ap);
    va_end(ap);
    gw_where w = gw_runfile_where(rf, key);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, id, w, "%s", gw_str_c(&text));
    gw_str_release(&text);
    return g;
}

gw_status gw_runfile_require(const gw_runfile *rf, const char *key, const char *command,
                             gw_diags *dg) {
    if (gw_runfile_is_set(rf, key)) return GW_OK;
    gw_diag *g = gw_runfile_error(rf, dg, key, "config-missing",
                                  "%s is needed by `gradwright %s` and is not given", key, command);
    gw_diag_hint(dg, g, "%s: %s", key, gw_rf_keys[key_index(key)].meaning);
    return GW_ERR_CONFIG;
}

gw_status gw_runfile_check_prefix(const gw_runfile *rf, const char *key, const char *prefix,
                                  gw_diags *dg) {
    static const char *const endings[] = {".bin", ".idx"};
    if (gw_store_is_url(prefix) || gw_str_ends(prefix, "/index.json")) return GW_OK;
    gw_arena mem = {0};
    bool mds = gw_path_is_dir(prefix) && gw_path_exists(gw_path_join(&mem, prefix, "index.json"));
    gw_arena_release(&mem);
    if (mds) return GW_OK;
    bool whole = gw_str_ends(prefix, endings[0]) || gw_str_ends(prefix, endings[1]);
    int n = (int)strlen(prefix) - (whole ? 4 : 0);
    gw_status st = GW_OK;
    for (int i = 0; i < 2 && st == GW_OK; i++) {
        gw_str path = {0};
        gw_str_printf(&path, "%.*s%s", n, prefix, endings[i]);
        if (!gw_path_exists(gw_str_c(&path))) {
            gw_diag *g = gw_runfile_error(rf, dg, key, "file-open", "%s: there is no '%s'", key,
                                          gw_str_c(&path));
            gw_diag_hint(dg, g,
                         "%s is the prefix of two files, PREFIX.bin and PREFIX.idx, or a directory "
                         "of MDS shards with an index.json",
                         key);
            st = GW_ERR_CONFIG;
        }
        gw_str_release(&path);
    }
    return st;
}

// ------------------------------------------------------------------ from the tree to the struct

typedef struct reader {
    gw_runfile *rf;
    gw_diags *dg;
    const char *file; /* the file, or "--set ..." */
    bool positions;
    bool overriding; /* a key already set is replaced */
} reader;

static gw_where place(const reader *r, int line, int column) {
    return r->positions ? (gw_where){r->file, line, column} : (gw_where){r->file, 0, 0};
}

static void mark_set(const reader *r, gw_rf_mark *m, gw_where w) {
    *m = (gw_rf_mark){.set = true, .file = r->file, .line = w.line, .column = w.column};
}

static void unknown_key(const reader *r, const char *section, const char *name, gw_where w) {
    gw_diag *g = *section ? gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "config-unknown-key", w,
                                        "section '%s' has no key '%s'", section, name)
                          : gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "config-unknown-key", w,
                                        "a run file has no section '%s'", name);
    gw_str hint = {0};
    if (gw_rf_hint(section, name, &hint)) gw_diag_hint(r->dg, g, "%s", gw_str_c(&hint));
    gw_str_release(&hint);
}

static void read_key(const reader *r, int key, const gw_yaml_node *value, gw_where w) {
    gw_rf_mark *m = key_mark(r->rf, key);
    const char *fallback = gw_rf_keys[key].fallback;
    mark_set(r, m, w);
    m->bad = !gw_rf_store_value(r->rf, &gw_rf_keys[key], value, w, r->dg);
    m->left_to_us = gw_str_eq(fallback, "auto") && value->kind == GW_YAML_SCALAR &&
                    gw_str_eq(value->text, fallback);
}

static void read_group(const reader *r, int group, const gw_yaml_node *value, gw_where w);

/* One key of a map that stands at `section` ("" is the top). */
static void read_child(const reader *r, const char *section, const gw_yaml_child *c) {
    gw_str path = {0};
    gw_str_printf(&path, "%s%s%s", section, *section ? "." : "", c->key);
    gw_where at_key = place(r, c->line, c->column);
    gw_where at_value = place(r, c->value->line, c->value->column);
    /* An empty value has no place of its own. */
    if (c->value->kind == GW_YAML_SCALAR && !c->value->quoted && !*c->value->text)
        at_value = at_key;
    int key = strchr(c->key, '.') ? -1 : gw_rf_key_find(gw_str_c(&path));
    int group = strchr(c->key, '.') ? -1 : gw_rf_group_find(gw_str_c(&path));
    if (key >= 0)
        read_key(r, key, c->value, at_value);
    else if (group >= 0)
        read_group(r, group, c->value, at_key);
    else
        unknown_key(r, section, c->key, at_key);
    gw_str_release(&path);
}

/* A text where a section belongs: which key was probably meant. */
static void hint_section(const reader *r, gw_diag *g, const char *path, const gw_yaml_node *value) {
    const char *text = value->kind == GW_YAML_SCALAR ? value->text : "";
    size_t n = strcspn(text, " \t:=");
    char *key = gw_arena_printf(&r->rf->arena, "%s.%.*s", path, (int)GW_MIN(n, (size_t)64), text);
    const char *rest = text + n + strspn(text + n, " \t:=");
    gw_family family;
    gw_model shape;
    if (*rest && gw_rf_key_find(key) >= 0)
        gw_diag_hint(r->dg, g, "write %s: {%s: %.80s}", path, gw_rf_leaf(key), rest);
    else if (!gw_str_eq(path, "model") || strpbrk(text, " \t\r\n") || !*text)
        gw_diag_hint(r->dg, g, "`gradwright init` prints a run file that works");
    else if (gw_family_parse(text, &family) && !gw_model_preset(text, &shape))
        gw_diag_hint(r->dg, g, "write model: {family: %s, layers: .., hidden: .., heads: ..}",
                     text);
    else
        gw_diag_hint(r->dg, g, "write model: {preset: %.80s} or model: {path: %.80s}", text, text);
}

static void read_group(const reader *r, int group, const gw_yaml_node *value, gw_where w) {
    const char *path = gw_rf_groups[group].path;
    if (!group_mark(r->rf, group)->set || !r->overriding) mark_set(r, group_mark(r->rf, group), w);
    if (value->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(value) == GW_YAML_NULL) return;
    if (value->kind != GW_YAML_MAP) {
        group_mark(r->rf, group)->bad = true;
        gw_diag *g = gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "config-type", w,
                                 "'%s' must be a section with keys below it", path);
        gw_diag_detail(r->dg, g, "%s", gw_rf_groups[group].meaning);
        hint_section(r, g, path, value);
        return;
    }
    for (const gw_yaml_child *c = value->first; c; c = c->next) read_child(r, path, c);
}

/* False when the file is no run file at all. */
static bool read_root(const reader *r, const gw_yaml_node *root) {
    if (!root) return true;
    if (root->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(root) == GW_YAML_NULL) return true;
    if (root->kind != GW_YAML_MAP) {
        gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "config-type",
                    place(r, root->line, root->column),
                    "a run file is a map of sections: model, data, train ...");
        return false;
    }
    for (const gw_yaml_child *c = root->first; c; c = c->next) read_child(r, "", c);
    return true;
}

// ------------------------------------------------------------------ overrides

static void bad_override(const reader *r, const char *why) {
    gw_diag *g = gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, "config-override",
                             (gw_where){r->file, 0, 0}, "%s", why);
    gw_diag_hint(r->dg, g, "write --set SECTION.KEY=VALUE, for example --set train.steps=100");
}

/* The value of an override as a node; NULL after a complaint. */
static gw_yaml_node *override_value(const reader *r, int key, const char *text) {
    gw_yaml_node *n = NULL;
    bool verbatim = key >= 0 && (gw_rf_keys[key].type == GW_RF_T_TEXT) && *text && *text != '"' &&
                    *text != '\'';
    if (verbatim) {
        n = gw_arena_new(&r->rf->arena, gw_yaml_node, 1);
        *n = (gw_yaml_node){.kind = GW_YAML_SCALAR, .quoted = true};
        n->text = gw_arena_strdup(&r->rf->arena, text);
        return n;
    }
    gw_status s =
        gw_yaml_parse(&r->rf->arena, r->file, text, (int64_t)strlen(text), false, &n, r->dg);
    if (s == GW_OK && !n) {
        n = gw_arena_new(&r->rf->arena, gw_yaml_node, 1);
        *n = (gw_yaml_node){.kind = GW_YAML_SCALAR, .text = ""};
    }
    return n;
}

static void read_override(gw_runfile *rf, const char *set, gw_diags *dg) {
    reader r = {.rf = rf, .dg = dg, .overriding = true};
    r.file = gw_arena_printf(&rf->arena, "--set %s", set);
    const char *eq = strchr(set, '=');
    if (!eq || eq == set) {
        bad_override(&r, "an override needs a key, '=' and a value");
        return;
    }
    char *path = gw_arena_strndup(&rf->arena, set, (size_t)(eq - set));
    int key = gw_rf_key_find(path), group = gw_rf_group_find(path);
    gw_where w = {r.file, 0, 0};
    if (key < 0 && group < 0) {
        char *dot = strrchr(path, '.');
        const char *name = dot ? dot + 1 : path;
        if (dot) *dot = 0;
        const char *section = !dot ? "" : gw_rf_group_find(path) >= 0 ? path : "";
        unknown_key(&r, section, dot && !*section ? path : name, w);
        return;
    }
    const gw_yaml_node *value = override_value(&r, key, eq + 1);
    if (!value) {
        if (key >= 0) rf->marks[key].bad = rf->marks[key].set = true;
        return;
    }
    if (key >= 0)
        read_key(&r, key, value, w);
    else if (value->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(value) == GW_YAML_NULL)
        bad_override(
            &r, gw_arena_printf(&rf->arena, "'%s' is a section; this sets none of its keys", path));
    else
        read_group(&r, group, value, w);
}

// ------------------------------------------------------------------ the whole

/* The table's default column, read as one document: a parser for each would cost more than all of
 * what people write. */
static void set_defaults(gw_runfile *rf) {
    gw_diags dg;
    gw_str text = {0};
    gw_yaml_node *all = NULL;
    gw_diags_init(&dg);
    for (int i = 0; i < gw_rf_nkeys; i++)
        if (*gw_rf_keys[i].fallback && !gw_rf_is_derived(&gw_rf_keys[i]))
            gw_str_printf(&text, "%s: %s\n", gw_rf_keys[i].path, gw_rf_keys[i].fallback);
    gw_status s = gw_yaml_parse(&rf->arena, "the table of keys", gw_str_c(&text), (int64_t)text.len,
                                true, &all, &dg);
    const gw_yaml_child *c = s == GW_OK && all ? all->first : NULL;
    for (int i = 0; i < gw_rf_nkeys; i++) {
        const gw_rf_key *k = &gw_rf_keys[i];
        if (!*k->fallback || gw_rf_is_derived(k)) continue;
        const gw_yaml_node *n = c && gw_str_eq(c->key, k->path) ? c->value : NULL;
        bool ok = n && ((n->kind == GW_YAML_LIST || n->kind == GW_YAML_MAP) && n->count == 0
                            ? true
                            : gw_rf_store_value(rf, k, n, (gw_where){k->path, 0, 0}, &dg));
        if (!ok) gw_panic("default of %s: %s", k->path, gw_diags_first_error(&dg));
        c = c->next;
    }
    gw_str_release(&text);
    gw_diags_release(&dg);
}

gw_status gw_runfile_parse_for(gw_runfile *rf, const char *name, const char *text, int64_t len,
                               const char *const *sets, int nsets, int64_t ranks, gw_diags *dg) {
    memset(rf, 0, sizeof *rf);
    gw_arena_init(&rf->arena);
    rf->ranks = ranks;
    rf->file = gw_arena_strdup(&rf->arena, name);
    rf->marks = gw_arena_new(&rf->arena, gw_rf_mark, gw_rf_nkeys + gw_rf_ngroups);
    set_defaults(rf);

    int errors_before = dg->nerrors;
    gw_yaml_node *root = NULL;
    gw_status s = gw_yaml_parse(&rf->arena, rf->file, text, len, true, &root, dg);
    if (s != GW_OK && !root) return s;
    reader r = {.rf = rf, .dg = dg, .file = rf->file, .positions = true};
    if (!read_root(&r, root)) return GW_ERR_CONFIG;
    for (int i = 0; i < nsets; i++) read_override(rf, sets[i], dg);
    gw_rf_derive_and_check(rf, dg);
    return dg->nerrors > errors_before ? GW_ERR_CONFIG : GW_OK;
}

gw_status gw_runfile_parse(gw_runfile *rf, const char *name, const char *text, int64_t len,
                           const char *const *sets, int nsets, gw_diags *dg) {
    return gw_runfile_parse_for(rf, name, text, len, sets, nsets, 0, dg);
}

static gw_status read_stream(FILE *f, gw_str *out, gw_diags *dg) {
    char buf[4096];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0) {
        gw_str_add_n(out, buf, n);
        if (out->len > GW_YAML_MAX_BYTES) break; /* the parser says so, with the bound */
    }
    if (ferror(f)) return GW_FAIL(dg, GW_ERR_IO, "file-read", "cannot read standard input");
    return GW_OK;
}

gw_status gw_runfile_load_for(gw_runfile *rf, const char *path, const char *const *sets, int nsets,
                              int64_t ranks, gw_diags *dg) {
    memset(rf, 0, sizeof *rf);
    gw_arena_init(&rf->arena);
    gw_str text = {0};
    bool is_stdin = gw_str_eq(path, "-");
    gw_status s =
        is_stdin ? read_stream(stdin, &text, dg) : gw_file_read(path, GW_YAML_MAX_BYTES, &text, dg);
    if (s == GW_OK)
        s = gw_runfile_parse_for(rf, is_stdin ? "standard input" : path, gw_str_c(&text),
                                 (int64_t)text.len, sets, nsets, ranks, dg);
    gw_str_release(&text);
    return s;
}

gw_status gw_runfile_load(gw_runfile *rf, const char *path, const char *const *sets, int nsets,
                          gw_diags *dg) {
    return gw_runfile_load_for(rf, path, sets, nsets, 0, dg);
}

void gw_runfile_release(gw_runfile *rf) {
    gw_arena_release(&rf->arena);
    memset(rf, 0, sizeof *rf);
}

bool gw_runfile_has_images(const gw_runfile *rf) {
    return rf->model.source != GW_RF_PATH && rf->model.family >= GW_RF_RESNET18;
}

gw_status gw_runfile_check_vocab(const gw_runfile *rf, int64_t tokenizer_vocab, gw_diags *dg) {
    if (rf->model.vocab >= tokenizer_vocab) return GW_OK;
    const char *tokenizer = rf->data.tokenizer ? rf->data.tokenizer : "bytes";
    gw_diag *g =
        gw_runfile_error(rf, dg, "model.vocab", "config-value",
                         "model.vocab is %lld, and the tokenizer (%.80s) has %lld tokens",
                         (long long)rf->model.vocab, tokenizer, (long long)tokenizer_vocab);
    gw_diag_hint(dg, g, "write model.vocab: auto, or at least %lld", (long long)tokenizer_vocab);
    return GW_ERR_CONFIG;
}

gw_status gw_runfile_resolve(gw_runfile *rf, int64_t tokenizer_vocab, gw_diags *dg) {
    if (rf->model.source == GW_RF_PATH || tokenizer_vocab == 0 || gw_runfile_has_images(rf))
        return GW_OK;
    if (rf->model.vocab != 0) return gw_runfile_check_vocab(rf, tokenizer_vocab, dg);
    rf->model.vocab = tokenizer_vocab;
    return GW_OK;
}

const char *gw_runfile_word(const gw_runfile *rf, const char *key) {
    const gw_rf_key *k = &gw_rf_keys[key_index(key)];
    if (k->type != GW_RF_T_ENUM) gw_panic("run file key '%s' is not enumerated", key);
    int value;
    memcpy(&value, gw_rf_field_const(rf, k), sizeof value);
    for (const gw_rf_name *n = k->check.names; n->name; n++)
        if (n->value == value) return n->name;
    gw_panic("%s holds no value of its enumeration", key);
}

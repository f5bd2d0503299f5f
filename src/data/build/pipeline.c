// SPDX-License-Identifier: Apache-2.0
// Pipeline files.
//
// pipeline.def is expanded into rows, as run files do it: a row knows the field's place in the C
// struct, its type, default and bounds, so reading, printing and the reference are loops over
// rows. Reading goes on after a fault, since a person wants all of them at once. A key that is in
// no row is refused with the nearest that is. Filters have parameters of their own, which their
// descriptors check; here they stay a part of the tree.
//
// A value's text form is what is hashed to see whether a phase of an earlier run still holds, so
// numbers are printed by one rule.
#include "data/build/pipeline.h" /* this module's contract */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"            /* gw_file_read */
#include "base/map.h"           /* GW_VEC */
#include "data/dedup/minhash.h" /* gw_minhash_recipe_find */
#include "data/dedup/spans.h"   /* gw_span_kind */
#include "data/source.h"        /* gw_source_kind */
#include "data/text/extract.h"  /* gw_favour */
#include "data/text/pii.h"      /* gw_pii_how */

typedef enum pl_type { TEXT, INT, REAL, BOOL, BYTES, ENUM, LIST, NODE } pl_type;

typedef struct pl_name {
    const char *name;
    int value;
} pl_name;

typedef struct pl_key {
    const char *path;
    size_t offset;
    pl_type type;
    const char *fallback;
    double lo, hi;
    const pl_name *names;
    const char *meaning;
} pl_key;

typedef struct pl_group {
    const char *path, *meaning;
} pl_group;

static const pl_name gw_pl_kinds[] = {{"auto", GW_SOURCE_AUTO},
                                      {"warc", GW_SOURCE_WARC},
                                      {"jsonl", GW_SOURCE_JSONL},
                                      {"files", GW_SOURCE_FILES},
                                      {NULL, 0}};
static const pl_name gw_pl_favours[] = {{"balanced", GW_FAVOUR_BALANCED},
                                        {"precision", GW_FAVOUR_PRECISION},
                                        {"recall", GW_FAVOUR_RECALL},
                                        {NULL, 0}};
static const pl_name gw_pl_hows[] = {
    {"off", GW_PII_OFF}, {"replace", GW_PII_REPLACE}, {"mark", GW_PII_MARK}, {NULL, 0}};
static const pl_name gw_pl_spans[] = {{"none", -1},
                                      {"lines", GW_SPAN_LINES},
                                      {"paragraphs", GW_SPAN_PARAGRAPHS},
                                      {"sentences", GW_SPAN_SENTENCES},
                                      {NULL, 0}};
static const pl_name gw_pl_formats[] = {{"mds", GW_FORMAT_MDS},
                                        {"megatron", GW_FORMAT_MEGATRON},
                                        {"both", GW_FORMAT_BOTH},
                                        {"none", GW_FORMAT_NONE},
                                        {NULL, 0}};

#define GW_PL_GROUP(path, meaning)
#define GW_PL_KEY(field, type, fallback, lo, hi, names, meaning)                                   \
    {#field, offsetof(gw_pipeline, field), type, fallback, (double)(lo), (double)(hi), names,      \
     meaning},
static const pl_key KEYS[] = {
#include "data/build/pipeline.def"
};
#undef GW_PL_GROUP
#undef GW_PL_KEY
enum { NKEYS = (int)GW_COUNT(KEYS) };

#define GW_PL_GROUP(path, meaning)                               {path, meaning},
#define GW_PL_KEY(field, type, fallback, lo, hi, names, meaning) {NULL, NULL},
/* Groups and marks of keys, as they follow one another. */
static const pl_group ROWS[] = {
#include "data/build/pipeline.def"
};
#undef GW_PL_GROUP
#undef GW_PL_KEY

typedef struct reader {
    gw_pipeline *p;
    const char *file;
    bool positions;
    gw_status status;
    gw_diags *dg;
} reader;

static void *field(gw_pipeline *p, const pl_key *k) { return (char *)p + k->offset; }
static const void *field_const(const gw_pipeline *p, const pl_key *k) {
    return (const char *)p + k->offset;
}

static int find_key(const char *path) {
    for (int i = 0; i < NKEYS; i++)
        if (gw_str_eq(KEYS[i].path, path)) return i;
    return -1;
}

static bool is_group(const char *path) {
    size_t n = strlen(path);
    for (int i = 0; i < NKEYS; i++)
        if (strncmp(KEYS[i].path, path, n) == 0 && KEYS[i].path[n] == '.') return true;
    return false;
}

// ------------------------------------------------------------------ complaints

static gw_diag *complain(reader *r, const char *id, int line, int column, const char *text) {
    gw_where w = {r->file, r->positions ? line : 0, r->positions ? column : 0};
    r->status = GW_ERR_CONFIG;
    return gw_diag_add(r->dg, GW_ERROR, GW_ERR_CONFIG, id, w, "%s", text);
}

/* The key of the table that is nearest to what was written, by whole path or by its last part. */
static const char *nearest(const char *path) {
    const char *dot = strrchr(path, '.'), *leaf = dot ? dot + 1 : path, *best = NULL;
    int least = 4;
    for (int i = 0; i < NKEYS; i++) {
        const char *d = strrchr(KEYS[i].path, '.');
        int whole = gw_str_distance(path, KEYS[i].path);
        int part = gw_str_distance(leaf, d ? d + 1 : KEYS[i].path);
        int n = GW_MIN(whole, part + 1);
        if (n < least) {
            least = n;
            best = KEYS[i].path;
        }
    }
    return best;
}

static void unknown(reader *r, const char *path, int line, int column) {
    gw_str text = {0};
    gw_str_printf(&text, "there is no key '%s'", path);
    gw_diag *g = complain(r, "config-unknown-key", line, column, gw_str_c(&text));
    const char *near = nearest(path);
    if (near)
        gw_diag_hint(r->dg, g, "did you mean %s?", near);
    else
        gw_diag_hint(r->dg, g, "`gradwright data keys` lists all");
    gw_str_release(&text);
}

static const char *wanted(const pl_key *k, gw_str *s) {
    static const char *const nouns[] = {
        "text",   "an integer", "a number", "true or false", "a size such as 64MB",
        "one of", "a list",     "a list"};
    gw_str_add(s, nouns[k->type]);
    for (const pl_name *n = k->names; n && n->name; n++)
        gw_str_printf(s, "%s %s", n == k->names ? "" : ",", n->name);
    return gw_str_c(s);
}

static void wrong_type(reader *r, const pl_key *k, const gw_yaml_node *n) {
    gw_str want = {0}, text = {0};
    gw_str_printf(&text, "'%s' takes %s%s%s", k->path, wanted(k, &want),
                  n->kind == GW_YAML_SCALAR ? ", not " : "",
                  n->kind == GW_YAML_SCALAR ? n->text : "");
    complain(r, "config-type", n->line, n->column, gw_str_c(&text));
    gw_str_release(&want);
    gw_str_release(&text);
}

static void out_of_range(reader *r, const pl_key *k, const gw_yaml_node *n) {
    gw_str text = {0};
    gw_str_printf(&text, "'%s' is %s; it must be from %g to %g", k->path, n->text, k->lo, k->hi);
    complain(r, "config-range", n->line, n->column, gw_str_c(&text));
    gw_str_release(&text);
}

// ------------------------------------------------------------------ values

/* False: of another type. */
static bool store_number(reader *r, const pl_key *k, const gw_yaml_node *n) {
    gw_yaml_type t = gw_yaml_scalar_type(n);
    double x = 0;
    int64_t i = 0;
    if (k->type == BYTES) {
        if (!gw_parse_bytes(n->text, &i)) return false;
        x = (double)i;
    } else if (k->type == INT) {
        if (t != GW_YAML_INT || !gw_yaml_int(n->text, &i)) return false;
        x = (double)i;
    } else {
        if (t != GW_YAML_INT && t != GW_YAML_REAL) return false;
        x = gw_yaml_real(n->text);
    }
    if (!(x >= k->lo && x <= k->hi)) {
        out_of_range(r, k, n);
        return true;
    }
    if (k->type == REAL)
        *(double *)field(r->p, k) = x;
    else
        *(int64_t *)field(r->p, k) = i;
    return true;
}

static bool store_list(reader *r, const pl_key *k, const gw_yaml_node *n) {
    gw_pl_list *out = field(r->p, k);
    int64_t count = n->kind == GW_YAML_SCALAR ? 1 : n->count, i = 0;
    if (n->kind == GW_YAML_MAP) return false;
    const char **items = gw_arena_new(&r->p->arena, const char *, count ? count : 1);
    if (n->kind == GW_YAML_SCALAR)
        items[i++] = n->text;
    else
        for (const gw_yaml_child *c = n->first; c; c = c->next) {
            if (c->value->kind != GW_YAML_SCALAR) return false;
            items[i++] = c->value->text;
        }
    *out = (gw_pl_list){items, count};
    return true;
}

static bool store_scalar(reader *r, const pl_key *k, const gw_yaml_node *n) {
    if (n->kind != GW_YAML_SCALAR) return false;
    gw_yaml_type t = gw_yaml_scalar_type(n);
    if (k->type == BOOL) {
        if (t == GW_YAML_BOOL) *(bool *)field(r->p, k) = gw_yaml_bool(n->text);
        return t == GW_YAML_BOOL;
    }
    if (k->type == ENUM) {
        for (const pl_name *m = k->names; m->name; m++)
            if (gw_str_eq(m->name, n->text)) {
                *(int *)field(r->p, k) = m->value;
                return true;
            }
        return false;
    }
    if (k->type != TEXT) return store_number(r, k, n);
    if (t == GW_YAML_NULL) return false;
    *(const char **)field(r->p, k) = n->text;
    return true;
}

static void store(reader *r, int key, const gw_yaml_node *n) {
    const pl_key *k = &KEYS[key];
    bool ok;
    r->p->marks[key] =
        (gw_where){r->file, r->positions ? n->line : 0, r->positions ? n->column : 0};
    if (k->type == NODE) {
        ok = n->kind == GW_YAML_LIST;
        if (ok) *(const gw_yaml_node **)field(r->p, k) = n;
    } else if (k->type == LIST) {
        ok = store_list(r, k, n);
    } else {
        ok = store_scalar(r, k, n);
    }
    if (!ok) wrong_type(r, k, n);
}

// ------------------------------------------------------------------ the tree

static void read_group(reader *r, const char *path, const gw_yaml_node *n) {
    gw_str key = {0};
    for (const gw_yaml_child *c = n->first; c; c = c->next) {
        gw_str_clear(&key);
        gw_str_printf(&key, "%s.%s", path, c->key);
        int i = find_key(gw_str_c(&key));
        if (i >= 0)
            store(r, i, c->value);
        else
            unknown(r, gw_str_c(&key), c->line, c->column);
    }
    gw_str_release(&key);
}

static bool is_nothing(const gw_yaml_node *n) {
    return n->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(n) == GW_YAML_NULL;
}

static void read_root(reader *r, const gw_yaml_node *root) {
    for (const gw_yaml_child *c = root->first; c; c = c->next) {
        int i = find_key(c->key);
        bool shorthand = gw_str_eq(c->key, "input") && c->value->kind != GW_YAML_MAP;
        if (is_nothing(c->value) && (i >= 0 || is_group(c->key))) continue;
        if (shorthand)
            store(r, find_key("input.paths"), c->value);
        else if (i >= 0)
            store(r, i, c->value);
        else if (!is_group(c->key))
            unknown(r, c->key, c->line, c->column);
        else if (c->value->kind == GW_YAML_MAP)
            read_group(r, c->key, c->value);
        else
            complain(r, "config-type", c->value->line, c->value->column,
                     gw_arena_printf(&r->p->arena, "'%s' takes keys and values", c->key));
    }
}

static void defaults(gw_pipeline *p, gw_diags *dg) {
    reader r = {.p = p, .file = "defaults", .dg = dg};
    for (int i = 0; i < NKEYS; i++) {
        gw_yaml_node n = {.kind = GW_YAML_SCALAR, .text = KEYS[i].fallback};
        if (*KEYS[i].fallback) store(&r, i, &n);
        p->marks[i] = (gw_where){.file = p->file};
    }
}

static void override(reader *r, const char *text) {
    const char *eq = strchr(text, '=');
    gw_yaml_node *n = NULL;
    char *key = gw_arena_strndup(&r->p->arena, text, eq ? (size_t)(eq - text) : 0);
    if (!eq || eq == text) {
        complain(r, "config-override", 0, 0,
                 gw_arena_printf(&r->p->arena, "--set takes KEY=VALUE, not '%s'", text));
        return;
    }
    int i = find_key(key);
    gw_status st =
        gw_yaml_parse(&r->p->arena, "--set", eq + 1, (int64_t)strlen(eq + 1), false, &n, r->dg);
    if (st != GW_OK)
        r->status = st;
    else if (i < 0)
        unknown(r, key, 0, 0);
    else if (n)
        store(r, i, n);
}

// ------------------------------------------------------------------ checks

gw_where gw_pipeline_where(const gw_pipeline *p, const char *key) {
    int i = find_key(key);
    return i < 0 ? (gw_where){.file = p->file} : p->marks[i];
}

static void missing(reader *r, const char *key, const char *why) {
    gw_diag *g =
        complain(r, "config-missing", 0, 0, gw_arena_printf(&r->p->arena, "'%s' is missing", key));
    gw_diag_hint(r->dg, g, "%s", why);
}

static void conflict(reader *r, const char *key, const char *text) {
    gw_where w = gw_pipeline_where(r->p, key);
    r->status = GW_ERR_CONFIG;
    (void)!gw_fail_at(r->dg, GW_ERR_CONFIG, "config-value", w, "%s", text);
}

static bool good_compression(const char *c) {
    int64_t level;
    if (gw_str_eq(c, "none")) return true;
    return gw_str_starts(c, "zstd:") && gw_parse_i64(c + 5, &level) && level >= 1 && level <= 22;
}

static void check(reader *r) {
    const gw_pipeline *p = r->p;
    if (p->input.paths.count == 0) missing(r, "input.paths", "name files, folders or globs");
    if (!p->output.dir || !*p->output.dir) missing(r, "output.dir", "name a folder for the shards");
    if (p->output.format != GW_FORMAT_NONE && (!p->tokenizer.path || !*p->tokenizer.path))
        missing(r, "tokenizer.path", "name a tokenizer.json, or set output.format: none");
    if (!good_compression(p->output.compression))
        conflict(r, "output.compression", "output.compression is none or zstd:1 to zstd:22");
    bool mds = p->output.format & GW_FORMAT_MDS;
    if ((p->output.text || p->output.url) && !mds)
        conflict(r, p->output.text ? "output.text" : "output.url",
                 "only MDS shards have columns beside the tokens: set output.format: mds");
    if (!gw_str_eq(p->dedup.near, "none") && !gw_minhash_recipe_find(p->dedup.near))
        conflict(r, "dedup.near",
                 "dedup.near is none, or the name of a recipe: fineweb, "
                 "redpajama-v2, nemo, refinedweb, text-dedup (docs/dedup.md)");
}

gw_status gw_pipeline_parse(gw_pipeline *p, const char *name, const char *text, int64_t n,
                            const char *const *sets, int nsets, gw_diags *dg) {
    *p = (gw_pipeline){0};
    gw_arena_init(&p->arena);
    p->file = gw_arena_strdup(&p->arena, name);
    p->marks = gw_arena_new(&p->arena, gw_where, NKEYS);
    defaults(p, dg);
    gw_yaml_node *root = NULL;
    reader r = {.p = p, .file = p->file, .positions = true, .dg = dg};
    r.status = gw_yaml_parse(&p->arena, p->file, text, n, true, &root, dg);
    if (r.status != GW_OK && !root) return r.status;
    if (root && root->kind == GW_YAML_MAP)
        read_root(&r, root);
    else
        complain(&r, "config-syntax", 1, 1, "a pipeline file is a map of keys and values");
    r.positions = false;
    r.file = "--set";
    for (int i = 0; i < nsets; i++) override(&r, sets[i]);
    r.file = p->file;
    check(&r);
    return r.status;
}

gw_status gw_pipeline_load(gw_pipeline *p, const char *path, const char *const *sets, int nsets,
                           gw_diags *dg) {
    gw_str text = {0};
    *p = (gw_pipeline){0};
    gw_status st = gw_file_read(path, GW_YAML_MAX_BYTES, &text, dg);
    if (st == GW_OK)
        st = gw_pipeline_parse(p, path, gw_str_c(&text), (int64_t)text.len, sets, nsets, dg);
    gw_str_release(&text);
    return st;
}

void gw_pipeline_release(gw_pipeline *p) { gw_arena_release(&p->arena); }

// ------------------------------------------------------------------ text

static void add_node(const gw_yaml_node *n, gw_str *out) {
    const char *sep = "";
    if (n->kind == GW_YAML_SCALAR) {
        gw_str_add(out, n->text);
        return;
    }
    gw_str_add_char(out, n->kind == GW_YAML_LIST ? '[' : '{');
    for (const gw_yaml_child *c = n->first; c; c = c->next) {
        gw_str_add(out, sep);
        if (c->key) gw_str_printf(out, "%s: ", c->key);
        add_node(c->value, out);
        sep = ", ";
    }
    gw_str_add_char(out, n->kind == GW_YAML_LIST ? ']' : '}');
}

static void add_value(const gw_pipeline *p, const pl_key *k, gw_str *out) {
    const void *f = field_const(p, k);
    switch (k->type) {
    case TEXT: gw_str_add(out, *(const char *const *)f ? *(const char *const *)f : ""); return;
    case BYTES:
    case INT: gw_str_printf(out, "%lld", (long long)*(const int64_t *)f); return;
    case REAL: gw_str_printf(out, "%.17g", *(const double *)f); return;
    case BOOL: gw_str_add(out, *(const bool *)f ? "true" : "false"); return;
    case ENUM:
        for (const pl_name *n = k->names; n->name; n++)
            if (n->value == *(const int *)f) gw_str_add(out, n->name);
        return;
    case LIST: {
        const gw_pl_list *l = f;
        for (int64_t i = 0; i < l->count; i++)
            gw_str_printf(out, "%s%s", i ? ", " : "[", l->items[i]);
        gw_str_add(out, l->count ? "]" : "[]");
        return;
    }
    case NODE:
        if (*(const gw_yaml_node *const *)f) add_node(*(const gw_yaml_node *const *)f, out);
        return;
    }
}

static bool begins_with_one(const char *path, const char *prefixes) {
    if (!*prefixes) return true;
    for (const char *at = prefixes; *at;) {
        size_t n = strcspn(at, " ");
        if (strncmp(path, at, n) == 0) return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

void gw_pipeline_text(const gw_pipeline *p, const char *prefixes, gw_str *out) {
    for (int i = 0; i < NKEYS; i++) {
        if (!begins_with_one(KEYS[i].path, prefixes)) continue;
        gw_str_printf(out, "%s: ", KEYS[i].path);
        add_value(p, &KEYS[i], out);
        gw_str_add_char(out, '\n');
    }
}

void gw_pipeline_keys(gw_str *out) {
    int key = 0;
    const char *indent = "";
    for (size_t i = 0; i < GW_COUNT(ROWS); i++) {
        if (ROWS[i].path) {
            bool top = !*ROWS[i].path || find_key(ROWS[i].path) >= 0;
            gw_str_printf(out, "%s# %s\n", i ? "\n" : "", ROWS[i].meaning);
            if (!top) gw_str_printf(out, "%s:\n", ROWS[i].path);
            indent = top ? "" : "  ";
            continue;
        }
        const pl_key *k = &KEYS[key++];
        const char *dot = strrchr(k->path, '.');
        gw_str line = {0}, want = {0};
        const char *value = *k->fallback ? k->fallback : k->type == TEXT ? "\"\"" : "[]";
        gw_str_printf(&line, "%s%s: %s", indent, dot ? dot + 1 : k->path, value);
        gw_str_printf(out, "%-36s # %s", gw_str_c(&line), k->meaning);
        if (k->type == ENUM) gw_str_printf(out, " (%s)", wanted(k, &want));
        gw_str_add_char(out, '\n');
        gw_str_release(&line);
        gw_str_release(&want);
    }
}

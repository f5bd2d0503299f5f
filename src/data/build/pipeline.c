// SPDX-License-Identifier: Apache-2.0
// Pipeline files.
//
// pipeline.def is expanded into rows (pipeline_table.c), as run files do it: a row knows the
// field's place in the C struct, its type, default and bounds, so reading, printing and the
// reference are loops over rows. Reading goes on after a fault, since a person wants all of them at
// once. A key that is in no row is refused with the nearest that is, or with what a name of another
// project is called here. Filters have parameters of their own, which their descriptors check; here
// they stay a part of the tree. Contradictions between keys are found afterwards
// (pipeline_check.c).
#include "data/build/pipeline.h" /* this module's contract */

#include <stdio.h>
#include <string.h>

#include "base/io.h"                  /* gw_file_read */
#include "data/build/pipeline_impl.h" /* gw_pl_keys */

typedef struct reader {
    gw_pipeline *p;
    const char *file;
    bool positions;
    gw_status status;
    gw_diags *dg;
} reader;

static void *field(gw_pipeline *p, const gw_pl_key *k) { return (char *)p + k->offset; }

static bool is_group(const char *path) {
    size_t n = strlen(path);
    for (int i = 0; i < gw_pl_nkeys; i++)
        if (strncmp(gw_pl_keys[i].path, path, n) == 0 && gw_pl_keys[i].path[n] == '.') return true;
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
    for (int i = 0; i < gw_pl_nkeys; i++) {
        const char *d = strrchr(gw_pl_keys[i].path, '.');
        int whole = gw_str_distance(path, gw_pl_keys[i].path);
        int part = gw_str_distance(leaf, d ? d + 1 : gw_pl_keys[i].path);
        int n = GW_MIN(whole, part + 1);
        if (n < least) {
            least = n;
            best = gw_pl_keys[i].path;
        }
    }
    return best;
}

static void unknown(reader *r, const char *path, int line, int column) {
    gw_str text = {0};
    gw_str_printf(&text, "there is no key '%s'", path);
    gw_diag *g = complain(r, "config-unknown-key", line, column, gw_str_c(&text));
    const char *dot = strrchr(path, '.'), *other = gw_pl_other_name(dot ? dot + 1 : path);
    const char *near = nearest(path);
    if (other)
        gw_diag_hint(r->dg, g, "here it is %s", other);
    else if (near)
        gw_diag_hint(r->dg, g, "did you mean %s?", near);
    else
        gw_diag_hint(r->dg, g, "`gradwright data keys` lists all");
    gw_str_release(&text);
}

static void wrong_type(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
    gw_str want = {0}, text = {0};
    gw_str_printf(&text, "'%s' takes %s%s%s", k->path, gw_pl_wanted(k, &want),
                  n->kind == GW_YAML_SCALAR ? ", not " : "",
                  n->kind == GW_YAML_SCALAR ? n->text : "");
    complain(r, "config-type", n->line, n->column, gw_str_c(&text));
    gw_str_release(&want);
    gw_str_release(&text);
}

static void out_of_range(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
    gw_str text = {0};
    gw_str_printf(&text, "'%s' is %s; it must be from %g to %g", k->path, n->text, k->lo, k->hi);
    complain(r, "config-range", n->line, n->column, gw_str_c(&text));
    gw_str_release(&text);
}

// ------------------------------------------------------------------ values

/* False: of another type. */
static bool store_number(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
    gw_yaml_type t = gw_yaml_scalar_type(n);
    double x = 0;
    int64_t i = 0;
    if (k->type == GW_PL_BYTES) {
        if (!gw_parse_bytes(n->text, &i)) return false;
        x = (double)i;
    } else if (k->type == GW_PL_INT) {
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
    if (k->type == GW_PL_REAL)
        *(double *)field(r->p, k) = x;
    else
        *(int64_t *)field(r->p, k) = i;
    return true;
}

static bool store_list(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
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

static const gw_pl_name *name_of(const gw_pl_key *k, const gw_yaml_node *n) {
    if (n->kind != GW_YAML_SCALAR) return NULL;
    for (const gw_pl_name *m = k->names; m->name; m++)
        if (gw_str_eq(m->name, n->text)) return m;
    return NULL;
}

/* One name, or a list of them. */
static bool store_flags(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
    int set = 0;
    const gw_pl_name *m = name_of(k, n);
    if (n->kind != GW_YAML_LIST) {
        if (m) *(int *)field(r->p, k) = m->value < 0 ? 0 : 1 << m->value;
        return m != NULL;
    }
    for (const gw_yaml_child *c = n->first; c; c = c->next) {
        if (!(m = name_of(k, c->value)) || m->value < 0) return false;
        set |= 1 << m->value;
    }
    *(int *)field(r->p, k) = set;
    return true;
}

static bool store_scalar(reader *r, const gw_pl_key *k, const gw_yaml_node *n) {
    if (n->kind != GW_YAML_SCALAR) return false;
    gw_yaml_type t = gw_yaml_scalar_type(n);
    if (k->type == GW_PL_BOOL) {
        if (t == GW_YAML_BOOL) *(bool *)field(r->p, k) = gw_yaml_bool(n->text);
        return t == GW_YAML_BOOL;
    }
    if (k->type == GW_PL_ENUM) {
        const gw_pl_name *m = name_of(k, n);
        if (m) *(int *)field(r->p, k) = m->value;
        return m != NULL;
    }
    if (k->type != GW_PL_TEXT) return store_number(r, k, n);
    if (t == GW_YAML_NULL) return false;
    *(const char **)field(r->p, k) = *n->text || *k->fallback ? n->text : NULL;
    return true;
}

static void store(reader *r, int key, const gw_yaml_node *n) {
    const gw_pl_key *k = &gw_pl_keys[key];
    bool ok;
    r->p->marks[key] =
        (gw_where){r->file, r->positions ? n->line : 0, r->positions ? n->column : 0};
    if (k->type == GW_PL_NODE) {
        ok = n->kind == GW_YAML_LIST;
        if (ok) *(const gw_yaml_node **)field(r->p, k) = n;
    } else if (k->type == GW_PL_FLAGS) {
        ok = store_flags(r, k, n);
    } else if (k->type == GW_PL_LIST) {
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
        int i = gw_pl_find(gw_str_c(&key));
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
        int i = gw_pl_find(c->key);
        bool shorthand = gw_str_eq(c->key, "input") && c->value->kind != GW_YAML_MAP;
        if (is_nothing(c->value) && (i >= 0 || is_group(c->key))) continue;
        if (shorthand)
            store(r, gw_pl_find("input.paths"), c->value);
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
    for (int i = 0; i < gw_pl_nkeys; i++) {
        gw_yaml_node n = {.kind = GW_YAML_SCALAR, .text = gw_pl_keys[i].fallback};
        if (*gw_pl_keys[i].fallback) store(&r, i, &n);
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
    int i = gw_pl_find(key);
    gw_status st =
        gw_yaml_parse(&r->p->arena, "--set", eq + 1, (int64_t)strlen(eq + 1), false, &n, r->dg);
    if (st != GW_OK)
        r->status = st;
    else if (i < 0)
        unknown(r, key, 0, 0);
    else if (n)
        store(r, i, n);
    else
        complain(
            r, "config-override", 0, 0,
            gw_arena_printf(&r->p->arena, "--set %s gives no value; %s\"\" is none", text, text));
}

// ------------------------------------------------------------------ a file

gw_where gw_pipeline_where(const gw_pipeline *p, const char *key) {
    int i = gw_pl_find(key);
    return i < 0 ? (gw_where){.file = p->file} : p->marks[i];
}

gw_status gw_pipeline_parse(gw_pipeline *p, const char *name, const char *text, int64_t n,
                            const char *const *sets, int nsets, gw_diags *dg) {
    *p = (gw_pipeline){0};
    gw_arena_init(&p->arena);
    p->file = gw_arena_strdup(&p->arena, name);
    p->marks = gw_arena_new(&p->arena, gw_where, gw_pl_nkeys);
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
    gw_pipeline plain = {.file = p->file};
    gw_arena_init(&plain.arena);
    plain.marks = gw_arena_new(&plain.arena, gw_where, gw_pl_nkeys);
    defaults(&plain, dg);
    gw_status st = gw_pl_check(p, &plain, dg);
    gw_arena_release(&plain.arena);
    return r.status != GW_OK ? r.status : st;
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

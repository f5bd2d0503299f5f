// SPDX-License-Identifier: Apache-2.0
// TOML, JSON and YAML as a flat list of keys, each with its line and column.
//
// Maps become dots in the name: {"zero_optimization": {"stage": 2}} is the key
// zero_optimization.stage. An empty map is a key of its own, so that it is not passed over. A list
// is a value; one that holds maps is kept as its text, for a message.
//
// jansson judges JSON and gives no positions, so text that it has accepted is walked once more, by
// a cursor that can rely on it being well-formed, and each scalar is decoded by jansson again.
#include <string.h> /* strchr, memchr */

#include "file/json.h"          /* gw_json_parse */
#include "file/toml.h"          /* gw_toml_parse */
#include "train/convert_impl.h" /* gw_cv_add */

enum { MAX_KEYS = 20000, MAX_DEPTH = 64 };

gw_cv_key *gw_cv_add(gw_cv *c, const char *name, gw_cv_type type, const char *text, int line,
                     int column) {
    gw_cv_key *k = gw_arena_new(c->a, gw_cv_key, 1);
    *k = (gw_cv_key){
        .name = name, .canon = name, .type = type, .text = text, .line = line, .column = column};
    gw_vec_push(&c->keys, k);
    return k;
}

static const char *below(gw_cv *c, const char *prefix, const char *key) {
    return *prefix ? gw_arena_printf(c->a, "%s.%s", prefix, key) : gw_arena_strdup(c->a, key);
}

typedef GW_VEC(const char *) words;

/* Makes a list's value of its items. */
static void set_items(gw_cv *c, gw_cv_key *k, const words *items) {
    gw_str s = {0};
    gw_str_add(&s, "[");
    for (int64_t i = 0; i < items->count; i++)
        gw_str_printf(&s, "%s%s", i ? ", " : "", items->items[i]);
    gw_str_add(&s, "]");
    k->text = gw_arena_strdup(c->a, gw_str_c(&s));
    k->nitems = (int)items->count;
    k->items = gw_arena_dup(c->a, items->items, items->count * (int64_t)sizeof *items->items);
    gw_str_release(&s);
}

// ------------------------------------------------------------------ TOML

static gw_cv_type toml_type(gw_toml_type t) {
    static const gw_cv_type types[] = {GW_CV_BOOL, GW_CV_INT, GW_CV_REAL, GW_CV_TEXT, GW_CV_LIST};
    return types[t];
}

gw_status gw_cv_read_toml(gw_cv *c) {
    gw_toml t;
    GW_TRY(gw_toml_parse(c->a, c->request->name, c->request->text, c->request->len, &t, c->dg));
    for (int64_t i = 0; i < t.count; i++) {
        const gw_toml_value *v = &t.values[i];
        gw_cv_key *k = gw_cv_add(c, v->path, toml_type(v->type), v->text, v->line, v->column);
        if (v->type != GW_TOML_LIST) continue;
        words items = {0};
        for (int64_t j = 0; j < v->nitems; j++) gw_vec_push(&items, v->items[j].text);
        set_items(c, k, &items);
        gw_vec_release(&items);
    }
    return GW_OK;
}

// ------------------------------------------------------------------ JSON

typedef struct walk {
    gw_cv *c;
    const char *p, *end, *line_start;
    int line, depth;
} walk;

static void skip(walk *w) {
    for (; w->p < w->end && strchr(" \t\r\n", *w->p); w->p++) {
        if (*w->p != '\n') continue;
        w->line++;
        w->line_start = w->p + 1;
    }
}

/* Past a string; the cursor stands on its first quote. */
static void skip_string(walk *w) {
    for (w->p++; w->p < w->end && *w->p != '"'; w->p++)
        if (*w->p == '\\') w->p++;
    if (w->p < w->end) w->p++;
}

/* Past a value of any kind. */
static void skip_value(walk *w) {
    int depth = 0;
    do {
        skip(w);
        if (w->p >= w->end) return;
        if (*w->p == '"') {
            skip_string(w);
        } else if (strchr("[{", *w->p)) {
            depth++;
            w->p++;
        } else if (strchr("]}", *w->p)) {
            depth--;
            w->p++;
        } else if (strchr(",:", *w->p)) {
            w->p++;
        } else {
            while (w->p < w->end && !strchr(" \t\r\n,:[]{}\"", *w->p)) w->p++;
        }
    } while (depth > 0);
}

static const char *decoded(walk *w, const char *from, gw_cv_type *type) {
    json_t *j = json_loadb(from, (size_t)(w->p - from), JSON_DECODE_ANY, NULL);
    const char *raw = gw_arena_strndup(w->c->a, from, (size_t)(w->p - from));
    *type = !j || json_is_null(j) ? GW_CV_NULL
            : json_is_boolean(j)  ? GW_CV_BOOL
            : json_is_integer(j)  ? GW_CV_INT
            : json_is_real(j)     ? GW_CV_REAL
            : json_is_string(j)   ? GW_CV_TEXT
                                  : GW_CV_LIST;
    if (*type == GW_CV_TEXT) raw = gw_arena_strdup(w->c->a, json_string_value(j));
    if (!j && strchr("-0123456789", *from)) *type = GW_CV_REAL; /* beyond 64 bits */
    json_decref(j);
    return raw;
}

static void walk_list(walk *w, gw_cv_key *k) {
    words items = {0};
    w->p++;
    for (skip(w); w->p < w->end && *w->p != ']'; skip(w)) {
        const char *from = w->p;
        gw_cv_type type;
        skip_value(w);
        gw_vec_push(&items, decoded(w, from, &type));
        skip(w);
        if (w->p < w->end && *w->p == ',') w->p++;
    }
    w->p++;
    set_items(w->c, k, &items);
    gw_vec_release(&items);
}

static void walk_value(walk *w, const char *name, int line, int column);

static void walk_object(walk *w, const char *prefix, int line, int column) {
    int64_t before = w->c->keys.count;
    w->p++;
    for (skip(w); w->p < w->end && *w->p != '}'; skip(w)) {
        const char *from = w->p;
        int l = w->line, col = (int)(w->p - w->line_start) + 1;
        gw_cv_type type;
        skip_string(w);
        const char *key = decoded(w, from, &type);
        skip(w);
        w->p++; /* the colon */
        skip(w);
        walk_value(w, below(w->c, prefix, key), l, col);
        skip(w);
        if (w->p < w->end && *w->p == ',') w->p++;
    }
    w->p++;
    if (w->c->keys.count == before && *prefix)
        gw_cv_add(w->c, prefix, GW_CV_NULL, "{}", line, column);
}

static void walk_value(walk *w, const char *name, int line, int column) {
    const char *from = w->p;
    gw_cv_type type;
    if (w->p >= w->end || w->c->keys.count >= MAX_KEYS) return;
    if (*w->p == '{' && w->depth < MAX_DEPTH) {
        w->depth++;
        walk_object(w, name, line, column);
        w->depth--;
    } else if (*w->p == '[') {
        walk_list(w, gw_cv_add(w->c, name, GW_CV_LIST, "[]", line, column));
    } else {
        skip_value(w);
        const char *text = decoded(w, from, &type);
        gw_cv_add(w->c, name, type, text, line, column);
    }
}

/* Blanks in place of what a person may add to JSON and DeepSpeed's reader passes over: comments
 * (from # or two slashes to the line's end, or between slashes with stars) and a comma before a
 * bracket that closes. Positions stay as they are. */
static void blank_extras(char *text, int64_t len) {
    char *comma = NULL;
    for (char *p = text, *end = text + len; p < end; p++) {
        bool line = *p == '#' || (*p == '/' && p + 1 < end && p[1] == '/');
        if (*p == '"') {
            for (p++; p < end && *p != '"' && *p != '\n'; p++) p += *p == '\\';
            comma = NULL;
        } else if (line) {
            while (p < end && *p != '\n') *p++ = ' ';
        } else if (*p == '/' && p + 1 < end && p[1] == '*') {
            for (; p < end && !(*p == '*' && p + 1 < end && p[1] == '/'); p++)
                if (*p != '\n') *p = ' ';
            for (int i = 0; i < 2 && p + i < end; i++) p[i] = ' ';
        } else if (*p == ',') {
            comma = p;
        } else if (strchr("]}", *p)) {
            if (comma) *comma = ' ';
            comma = NULL;
        } else if (!strchr(" \t\r\n", *p)) {
            comma = NULL;
        }
    }
}

gw_status gw_cv_read_json(gw_cv *c) {
    gw_cv_request own = *c->request;
    const gw_cv_request *r = &own;
    char *text = gw_arena_new(c->a, char, own.len + 1);
    memcpy(text, own.text, (size_t)own.len);
    blank_extras(text, own.len);
    own.text = text;
    json_t *j = NULL;
    GW_TRY(gw_json_parse(r->text, (size_t)r->len, r->name, &j, c->dg));
    bool object = json_is_object(j);
    json_decref(j);
    if (!object)
        return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax",
                       "%s: an object is expected at the top", r->name);
    walk w = {.c = c, .p = r->text, .end = r->text + r->len, .line_start = r->text, .line = 1};
    skip(&w);
    walk_object(&w, "", 1, 1);
    return GW_OK;
}

// ------------------------------------------------------------------ YAML

static gw_cv_type yaml_type(const gw_yaml_node *n) {
    switch (gw_yaml_scalar_type(n)) {
    case GW_YAML_NULL: return GW_CV_NULL;
    case GW_YAML_BOOL: return GW_CV_BOOL;
    case GW_YAML_INT: return GW_CV_INT;
    case GW_YAML_REAL: return GW_CV_REAL;
    case GW_YAML_TEXT: return GW_CV_TEXT;
    }
    return GW_CV_TEXT;
}

static void yaml_list(gw_cv *c, gw_cv_key *k, const gw_yaml_node *n) {
    words items = {0};
    for (const gw_yaml_child *child = n->first; child; child = child->next)
        gw_vec_push(&items, child->value->kind == GW_YAML_SCALAR ? child->value->text : "{...}");
    set_items(c, k, &items);
    gw_vec_release(&items);
}

static void yaml_map(gw_cv *c, const char *prefix, const gw_yaml_node *n, int depth) {
    for (const gw_yaml_child *child = n->first; child && c->keys.count < MAX_KEYS;
         child = child->next) {
        const gw_yaml_node *v = child->value;
        const char *name = below(c, prefix, child->key);
        if (v->kind == GW_YAML_MAP && v->first && depth < MAX_DEPTH)
            yaml_map(c, name, v, depth + 1);
        else if (v->kind == GW_YAML_MAP)
            gw_cv_add(c, name, GW_CV_NULL, "{}", child->line, child->column);
        else if (v->kind == GW_YAML_LIST)
            yaml_list(c, gw_cv_add(c, name, GW_CV_LIST, "[]", child->line, child->column), v);
        else
            gw_cv_add(c, name, yaml_type(v), v->text, child->line, child->column);
    }
}

gw_status gw_cv_read_yaml(gw_cv *c) {
    const gw_cv_request *r = c->request;
    gw_yaml_node *root = NULL;
    GW_TRY(gw_yaml_parse(c->a, r->name, r->text, r->len, true, &root, c->dg));
    if (root && root->kind != GW_YAML_MAP)
        return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax", "%s: a map is expected at the top",
                       r->name);
    if (root) yaml_map(c, "", root, 0);
    return GW_OK;
}

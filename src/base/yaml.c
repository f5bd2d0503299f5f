// SPDX-License-Identifier: Apache-2.0
// YAML 1.2 as a small tree in an arena, each node with its line and column.
//
// libfyaml turns bytes into events (map begins, scalar, alias, map ends ...), each with a mark.
// This file builds the tree from the events, with a stack of open nodes instead of recursion, and
// refuses early what a run file has no use for: tags, merge keys, more than one document, keys that
// are not scalars, keys given twice. Duplicates are looked for by comparing with every earlier key
// of the same map; the bound on nodes keeps that cheap.
//
// Hostile input: size, nodes and depth are bounded here. An alias is a pointer to the anchored
// node, so "a billion laughs" stays as small as its text, and an anchor can be named only after its
// node is complete, so the tree has no cycles. Bytes are checked to be UTF-8 without NULs before
// libfyaml sees them, because its own complaint about them has no position.
//
// libfyaml prints diagnostics by itself unless they are collected; they are, and the first becomes
// ours.
#include "base/yaml.h" /* gw_yaml_node */

#include <errno.h>    /* ERANGE */
#include <libfyaml.h> /* fy_parser */
#include <stdlib.h>   /* strtod */
#include <string.h>   /* strlen */

#include "base/str.h" /* gw_str_eq */

typedef struct anchor {
    const char *name;
    gw_yaml_node *node;
    struct anchor *next;
} anchor;

typedef struct frame {
    gw_yaml_node *node;
    const char *key; /* pending key of a map, or NULL */
    int key_line, key_column;
} frame;

typedef struct builder {
    gw_arena *arena;
    const char *name;
    bool positions;
    gw_diags *dg;
    gw_yaml_node *root;
    anchor *anchors;
    frame stack[GW_YAML_MAX_DEPTH];
    int depth, nodes, documents;
} builder;

static gw_where where_of(const builder *b, int line, int column) {
    if (!b->positions) return (gw_where){b->name, 0, 0};
    return (gw_where){b->name, line, column};
}

// ------------------------------------------------------------------ bytes

/* Length of the valid UTF-8 sequence at s, or 0. */
static int utf8_length(const unsigned char *s, int64_t left) {
    if (s[0] < 0x80) return s[0] == 0 ? 0 : 1;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || left < n) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
    if (s[0] == 0xed && s[1] > 0x9f) return 0;
    if (s[0] == 0xf0 && s[1] < 0x90) return 0;
    if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
    return n;
}

static gw_status check_bytes(const builder *b, const char *text, int64_t len) {
    if (len > GW_YAML_MAX_BYTES)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", where_of(b, 0, 0),
                          "the file has %lld bytes; a run file has at most %d", (long long)len,
                          (int)GW_YAML_MAX_BYTES);
    int line = 1, column = 1;
    for (int64_t i = 0; i < len;) {
        int n = utf8_length((const unsigned char *)text + i, len - i);
        if (n == 0)
            return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", where_of(b, line, column),
                              "byte 0x%02x is not UTF-8 text", (unsigned char)text[i]);
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else {
            column++;
        }
        i += n;
    }
    return GW_OK;
}

// ------------------------------------------------------------------ the tree

static const char *token_text(gw_arena *a, struct fy_token *token) {
    size_t n = 0;
    const char *s = token ? fy_token_get_text(token, &n) : NULL;
    return s ? gw_arena_strndup(a, s, n) : "";
}

/* Attaches a finished or opening node to the innermost open one. */
static gw_status attach(builder *b, gw_yaml_node *n, int line, int column) {
    if (b->depth == 0) {
        b->root = n;
        return GW_OK;
    }
    frame *f = &b->stack[b->depth - 1];
    gw_yaml_child *c = gw_arena_new(b->arena, gw_yaml_child, 1);
    *c = (gw_yaml_child){.key = f->key, .line = line, .column = column, .value = n};
    if (f->node->kind == GW_YAML_MAP) {
        c->line = f->key_line;
        c->column = f->key_column;
        f->key = NULL;
    }
    if (f->node->last)
        f->node->last->next = c;
    else
        f->node->first = c;
    f->node->last = c;
    f->node->count++;
    return GW_OK;
}

static bool expects_key(const builder *b) {
    if (b->depth == 0) return false;
    const frame *f = &b->stack[b->depth - 1];
    return f->node->kind == GW_YAML_MAP && f->key == NULL;
}

static gw_status take_key(builder *b, const char *text, int line, int column) {
    frame *f = &b->stack[b->depth - 1];
    gw_where w = where_of(b, line, column);
    if (gw_str_eq(text, "<<")) {
        gw_diag *g = gw_diag_add(b->dg, GW_ERROR, GW_ERR_CONFIG, "config-syntax", w,
                                 "merge keys (<<) are not part of YAML 1.2");
        gw_diag_hint(b->dg, g, "write the keys out, or name a whole section by an alias (*name)");
        return GW_ERR_CONFIG;
    }
    for (const gw_yaml_child *c = f->node->first; c; c = c->next) {
        if (!gw_str_eq(c->key, text)) continue;
        gw_diag *g = gw_diag_add(b->dg, GW_ERROR, GW_ERR_CONFIG, "config-duplicate", w,
                                 "'%s' is given twice", text);
        if (b->positions)
            gw_diag_detail(b->dg, g, "first at line %d, column %d", c->line, c->column);
        gw_diag_hint(b->dg, g, "keep one of the two");
        break; /* goes on, so that all faults are seen; the status is set at the end */
    }
    f->key = text;
    f->key_line = line;
    f->key_column = column;
    return GW_OK;
}

static gw_status new_node(builder *b, gw_yaml_kind kind, struct fy_token *tag,
                          struct fy_token *anchor_token, int line, int column, gw_yaml_node **out) {
    gw_where w = where_of(b, line, column);
    if (tag)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                          "tags such as !!str have no use in a run file; remove it");
    if (++b->nodes > GW_YAML_MAX_NODES)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                          "more than %d values; this is not a run file", (int)GW_YAML_MAX_NODES);
    gw_yaml_node *n = gw_arena_new(b->arena, gw_yaml_node, 1);
    *n = (gw_yaml_node){.kind = kind, .line = line, .column = column, .text = ""};
    if (anchor_token) {
        anchor *a = gw_arena_new(b->arena, anchor, 1);
        *a = (anchor){token_text(b->arena, anchor_token), n, b->anchors};
        b->anchors = a;
    }
    *out = n;
    return GW_OK;
}

static gw_status open_node(builder *b, gw_yaml_kind kind, struct fy_token *tag,
                           struct fy_token *anchor_token, int line, int column) {
    gw_where w = where_of(b, line, column);
    if (expects_key(b))
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                          "a key must be a name, not a list or a map");
    if (b->depth == GW_YAML_MAX_DEPTH)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w, "nested deeper than %d levels",
                          (int)GW_YAML_MAX_DEPTH);
    gw_yaml_node *n = NULL;
    GW_TRY(new_node(b, kind, tag, anchor_token, line, column, &n));
    GW_TRY(attach(b, n, line, column));
    b->stack[b->depth++] = (frame){.node = n};
    return GW_OK;
}

static void close_node(builder *b) { b->stack[--b->depth].node->reads = true; }

static gw_status take_scalar(builder *b, const struct fy_event_scalar_data *d, int line,
                             int column) {
    size_t n = 0;
    const char *s = d->value ? fy_token_get_text(d->value, &n) : NULL;
    if (s && memchr(s, 0, n))
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", where_of(b, line, column),
                          "a value holds a NUL character");
    const char *text = s ? gw_arena_strndup(b->arena, s, n) : "";
    enum fy_scalar_style style = d->value ? fy_token_scalar_style(d->value) : FYSS_PLAIN;
    /* The mark of a quoted scalar stands behind the quote; people look for the quote. */
    if ((style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED) && column > 1) column--;
    if (expects_key(b)) return take_key(b, text, line, column);
    gw_yaml_node *node = NULL;
    GW_TRY(new_node(b, GW_YAML_SCALAR, d->tag, d->anchor, line, column, &node));
    node->quoted = style != FYSS_PLAIN && style != FYSS_ANY;
    node->text = text;
    node->reads = true;
    return attach(b, node, line, column);
}

static gw_status take_alias(builder *b, struct fy_token *token, int line, int column) {
    const char *name = token_text(b->arena, token);
    gw_where w = where_of(b, line, column);
    const anchor *a = b->anchors;
    while (a && !gw_str_eq(a->name, name)) a = a->next;
    if (!a)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                          "alias *%s names no anchor &%s above it", name, name);
    if (!a->node->reads)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                          "alias *%s stands inside its own anchor", name);
    if (expects_key(b)) {
        if (a->node->kind != GW_YAML_SCALAR)
            return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", w,
                              "a key must be a name, not a list or a map");
        return take_key(b, a->node->text, line, column);
    }
    return attach(b, a->node, line, column);
}

static gw_status take_event(builder *b, struct fy_event *e) {
    const struct fy_mark *m = fy_event_start_mark(e);
    int line = m ? m->line + 1 : 0, column = m ? m->column + 1 : 0;
    switch (e->type) {
    case FYET_SCALAR: return take_scalar(b, &e->scalar, line, column);
    case FYET_ALIAS: /* the mark stands behind the '*' */
        return take_alias(b, e->alias.anchor, line, column > 1 ? column - 1 : column);
    case FYET_MAPPING_START:
        return open_node(b, GW_YAML_MAP, e->mapping_start.tag, e->mapping_start.anchor, line,
                         column);
    case FYET_SEQUENCE_START:
        return open_node(b, GW_YAML_LIST, e->sequence_start.tag, e->sequence_start.anchor, line,
                         column);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END: close_node(b); return GW_OK;
    case FYET_DOCUMENT_START:
        if (++b->documents > 1)
            return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", where_of(b, line, column),
                              "a second document begins here; a run file is one document");
        return GW_OK;
    case FYET_NONE:
    case FYET_STREAM_START:
    case FYET_STREAM_END:
    case FYET_DOCUMENT_END: return GW_OK;
    }
    return GW_OK;
}

/* The parser's first own error as ours. */
static gw_status syntax_error(const builder *b, struct fy_diag *diag) {
    void *iter = NULL;
    const struct fy_diag_error *e = diag ? fy_diag_errors_iterate(diag, &iter) : NULL;
    if (!e)
        return gw_fail_at(b->dg, GW_ERR_CONFIG, "config-syntax", where_of(b, 0, 0),
                          "not valid YAML");
    gw_diag *g = gw_diag_add(b->dg, GW_ERROR, GW_ERR_CONFIG, "config-syntax",
                             where_of(b, e->line > 0 ? e->line : 1, e->column > 0 ? e->column : 1),
                             "not valid YAML: %s", e->msg ? e->msg : "syntax error");
    if (e->msg && strstr(e->msg, "tab")) gw_diag_hint(b->dg, g, "indent with spaces");
    return GW_ERR_CONFIG;
}

static gw_status run_parser(builder *b, struct fy_parser *p, struct fy_diag *diag) {
    for (;;) {
        struct fy_event *e = fy_parser_parse(p);
        if (!e) return fy_parser_get_stream_error(p) ? syntax_error(b, diag) : GW_OK;
        bool end = e->type == FYET_STREAM_END;
        gw_status s = take_event(b, e);
        fy_parser_event_free(p, e);
        if (s != GW_OK) return s;
        if (end) return GW_OK;
    }
}

gw_status gw_yaml_parse(gw_arena *a, const char *name, const char *text, int64_t len,
                        bool positions, gw_yaml_node **out, gw_diags *dg) {
    *out = NULL;
    builder b = {.arena = a, .name = name, .positions = positions, .dg = dg};
    GW_TRY(check_bytes(&b, text, len));
    int errors_before = dg ? dg->nerrors : 0;

    struct fy_diag_cfg dcfg;
    fy_diag_cfg_default(&dcfg);
    dcfg.fp = NULL;
    dcfg.level = FYET_ERROR;
    struct fy_diag *diag = fy_diag_create(&dcfg);
    struct fy_parse_cfg cfg = {
        .search_path = "",
        .flags = FYPCF_QUIET | FYPCF_COLLECT_DIAG | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE |
                 FYPCF_ALLOW_DUPLICATE_KEYS,
        .diag = diag,
    };
    if (diag) fy_diag_set_collect_errors(diag, true);
    struct fy_parser *p = diag ? fy_parser_create(&cfg) : NULL;
    gw_status s = GW_ERR_MEMORY;
    if (p && fy_parser_set_string(p, text, (size_t)len) == 0)
        s = run_parser(&b, p, diag);
    else
        s = GW_FAIL(dg, GW_ERR_MEMORY, "host-memory", "no memory to parse '%s'", name);
    if (p) fy_parser_destroy(p);
    if (diag) fy_diag_destroy(diag);
    if (s != GW_OK) return s;
    if (dg && dg->nerrors > errors_before) s = GW_ERR_CONFIG; /* duplicates; the tree is usable */
    *out = b.root;
    return s;
}

// ------------------------------------------------------------------ scalars

static bool digits(const char *s, const char *set) { return *s && s[strspn(s, set)] == 0; }

static bool is_int(const char *s) {
    if (s[0] == '0' && s[1] == 'o') return digits(s + 2, "01234567");
    if (s[0] == '0' && s[1] == 'x') return digits(s + 2, "0123456789abcdefABCDEF");
    return digits(s + (*s == '-' || *s == '+'), "0123456789");
}

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?  or .inf, .nan */
static bool is_real(const char *s) {
    const char *t = s + (*s == '-' || *s == '+');
    if (gw_str_eq(t, ".inf") || gw_str_eq(t, ".Inf") || gw_str_eq(t, ".INF")) return true;
    if (gw_str_eq(s, ".nan") || gw_str_eq(s, ".NaN") || gw_str_eq(s, ".NAN")) return true;
    size_t whole = strspn(t, "0123456789"), part = 0;
    t += whole;
    if (*t == '.') {
        part = strspn(t + 1, "0123456789");
        t += 1 + part;
    }
    if (whole + part == 0) return false;
    if (*t == 'e' || *t == 'E') {
        t++;
        t += *t == '-' || *t == '+';
        return digits(t, "0123456789");
    }
    return *t == 0;
}

static bool is_one_of(const char *s, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (gw_str_eq(s, words[i])) return true;
    return false;
}

gw_yaml_type gw_yaml_scalar_type(const gw_yaml_node *n) {
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    if (n->quoted) return GW_YAML_TEXT;
    if (is_one_of(n->text, nulls, GW_COUNT(nulls))) return GW_YAML_NULL;
    if (is_one_of(n->text, bools, GW_COUNT(bools))) return GW_YAML_BOOL;
    if (is_int(n->text)) return GW_YAML_INT;
    return is_real(n->text) ? GW_YAML_REAL : GW_YAML_TEXT;
}

bool gw_yaml_int(const char *text, int64_t *out) {
    int base = 10;
    if (text[0] == '0' && (text[1] == 'o' || text[1] == 'x')) {
        base = text[1] == 'o' ? 8 : 16;
        text += 2;
    }
    errno = 0;
    long long v = strtoll(text, NULL, base);
    *out = v;
    return errno == 0;
}

double gw_yaml_real(const char *text) {
    const char *t = text + (*text == '-' || *text == '+');
    double sign = *text == '-' ? -1.0 : 1.0;
    if (*t == '.' && (t[1] == 'i' || t[1] == 'I')) return sign * (double)__builtin_inff();
    if (*t == '.' && (t[1] == 'n' || t[1] == 'N')) return (double)__builtin_nanf("");
    if (t[0] == '0' && (t[1] == 'o' || t[1] == 'x')) {
        int64_t i = 0;
        return gw_yaml_int(t, &i) ? sign * (double)i : (double)__builtin_inff();
    }
    return strtod(text, NULL);
}

bool gw_yaml_bool(const char *text) { return *text == 't' || *text == 'T'; }

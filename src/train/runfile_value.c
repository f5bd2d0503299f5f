// SPDX-License-Identifier: Apache-2.0
// One value of a run file: from YAML into its C field with type and range checked, and back to
// text.
//
// Types are strict. A number in quotes, a boolean spelt yes, a fraction where a count belongs are
// refused with what to write instead, because each of them is a mistake that a lenient reader turns
// into another run than the one meant. Numbers are written in the shortest form that reads back to
// the same bits, so that a printed run file is the same run file.
#include <math.h>   /* isfinite */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* strtod */
#include <string.h> /* memcpy */

#include "train/runfile_key.h" /* gw_rf_key */

// ------------------------------------------------------------------ what a key wants, in words

static void add_number(gw_str *out, double x) { gw_rf_add_real(out, x); }

static void add_names(const gw_rf_name *names, const char *sep, gw_str *out) {
    const char *s = "";
    for (const gw_rf_name *n = names; n->name; n++) {
        gw_str_printf(out, "%s%s", s, n->name);
        s = sep;
    }
}

static const char *type_noun(gw_rf_type t) {
    switch (t) {
    case GW_RF_T_BOOL: return "true or false";
    case GW_RF_T_INT: return "an integer";
    case GW_RF_T_REAL: return "a number";
    case GW_RF_T_TEXT: return "text";
    case GW_RF_T_ENUM: return "one of ";
    case GW_RF_T_BYTES: return "a size such as 512MB or 2GiB";
    case GW_RF_T_LIST: return "a list of names such as [a, b]";
    case GW_RF_T_PAIR: return "two numbers such as [0.9, 0.95]";
    case GW_RF_T_MAP: return "a map of names to texts such as {a: b}";
    case GW_RF_T_COUNTS: return "a list of integers such as [3, 4, 4, 3]";
    case GW_RF_T_MIXTURE:
        return "text, or a list such as [{path: a, weight: 0.7}, {path: b, weight: 0.3}]";
    case GW_RF_T_STAGES:
        return "a list such as [{tokens: 2e9, weights: [0.7, 0.3]}, {weights: [0.5, 0.5]}]";
    }
    return "";
}

void gw_rf_describe(const gw_rf_key *k, gw_str *out) {
    if (k->check.word) gw_str_printf(out, "%s or ", k->check.word);
    gw_str_add(out, type_noun(k->type));
    if (k->type == GW_RF_T_ENUM) add_names(k->check.names, ", ", out);
    if (!k->check.bounded || k->type == GW_RF_T_BYTES || k->type == GW_RF_T_COUNTS) return;
    if (k->check.hi >= 1e12) { /* a bound that only keeps arithmetic safe is not worth a word */
        gw_str_add(out, k->check.lo_open ? " above " : " of at least ");
        add_number(out, k->check.lo);
        return;
    }
    gw_str_add(out, k->check.lo_open ? " above " : " from ");
    add_number(out, k->check.lo);
    gw_str_add(out, k->check.lo_open ? ", at most " : " to ");
    add_number(out, k->check.hi);
}

// ------------------------------------------------------------------ complaints

typedef struct ctx {
    gw_runfile *rf;
    const gw_rf_key *k;
    const gw_yaml_node *n;
    gw_where w;
    gw_diags *dg;
} ctx;

static const char *node_noun(const gw_yaml_node *n) {
    if (n->kind == GW_YAML_LIST) return "a list";
    if (n->kind == GW_YAML_MAP) return "a map";
    switch (gw_yaml_scalar_type(n)) {
    case GW_YAML_NULL: return "nothing";
    case GW_YAML_BOOL: return "a boolean";
    case GW_YAML_INT: return "an integer";
    case GW_YAML_REAL: return "a number";
    case GW_YAML_TEXT: return "text";
    }
    return "";
}

static bool all_in(const char *s, const char *set) { return *s && s[strspn(s, set)] == 0; }

static void hint_type(const ctx *c, gw_diag *g) {
    const gw_yaml_node *n = c->n;
    gw_rf_type t = c->k->type;
    bool number = t == GW_RF_T_INT || t == GW_RF_T_REAL;
    if (n->kind != GW_YAML_SCALAR) return;
    gw_yaml_node bare = *n;
    bare.quoted = false;
    gw_yaml_type as_bare = gw_yaml_scalar_type(&bare);
    gw_yaml_type as_is = gw_yaml_scalar_type(n);
    if (as_is == GW_YAML_NULL)
        gw_diag_hint(c->dg, g, "remove the line to have the default");
    else if (n->quoted && number && (as_bare == GW_YAML_INT || as_bare == GW_YAML_REAL))
        gw_diag_hint(c->dg, g, "write %s without quotes", n->text);
    else if (n->quoted && t == GW_RF_T_BOOL && as_bare == GW_YAML_BOOL)
        gw_diag_hint(c->dg, g, "write %s without quotes", n->text);
    else if (t == GW_RF_T_BOOL)
        gw_diag_hint(c->dg, g, "YAML 1.2 knows only true and false");
    else if (number && all_in(n->text, "+-0123456789_,"))
        gw_diag_hint(c->dg, g, "write the number without separators");
    else if (number && as_is == GW_YAML_TEXT && strlen(n->text) > 1 &&
             all_in(n->text, "0123456789.kKmMgGtT"))
        gw_diag_hint(c->dg, g, "write the number in full; only sizes in bytes have suffixes");
    else if (t == GW_RF_T_TEXT)
        gw_diag_hint(c->dg, g, "if the text is meant, quote it: '%s'", n->text);
}

static bool wrong_type(const ctx *c) {
    gw_str want = {0};
    gw_rf_describe(c->k, &want);
    bool scalar = c->n->kind == GW_YAML_SCALAR && gw_yaml_scalar_type(c->n) != GW_YAML_NULL;
    gw_diag *g =
        gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "config-type", c->w,
                    "%s must be %s, not %s%s%.60s%s", c->k->path, gw_str_c(&want), node_noun(c->n),
                    scalar ? " '" : "", scalar ? c->n->text : "", scalar ? "'" : "");
    hint_type(c, g);
    gw_str_release(&want);
    return false;
}

/* Bounds that gw_rf_describe leaves out, when it is they that are broken. */
static void add_broken_bound(const ctx *c, const char *text, gw_str *want) {
    const gw_rf_check *k = &c->k->check;
    int64_t bytes;
    bool is_bytes = c->k->type == GW_RF_T_BYTES;
    double x = is_bytes && gw_parse_bytes(text, &bytes) ? (double)bytes : gw_yaml_real(text);
    bool low = x < k->lo || text[0] == '-';
    if (!k->bounded)
        gw_str_add(want, " that is finite");
    else if (is_bytes && low)
        gw_str_printf(want, " of at least %.0f B", k->lo);
    else if (is_bytes)
        gw_str_printf(want, ", at most %.0f B", k->hi);
    else if (k->hi >= 1e12 && !low)
        gw_str_printf(want, ", at most %.0f", k->hi);
}

static bool out_of_range(const ctx *c, const char *text) {
    gw_str want = {0};
    gw_rf_describe(c->k, &want);
    add_broken_bound(c, text, &want);
    gw_diag *g = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "config-range", c->w,
                             "%s is %.60s; it must be %s", c->k->path, text, gw_str_c(&want));
    gw_diag_detail(c->dg, g, "%s", c->k->meaning);
    gw_str_release(&want);
    return false;
}

static bool in_range(const gw_rf_check *check, double x) {
    if (!check->bounded) return isfinite(x) != 0;
    return (check->lo_open ? x > check->lo : x >= check->lo) && x <= check->hi;
}

// ------------------------------------------------------------------ storing, by type

static bool is_word(const ctx *c) {
    return c->k->check.word && c->n->kind == GW_YAML_SCALAR &&
           gw_str_eq(c->n->text, c->k->check.word);
}

static bool store_int(const ctx *c, int64_t *field) {
    if (is_word(c)) {
        *field = 0;
        return true;
    }
    if (c->n->kind != GW_YAML_SCALAR) return wrong_type(c);
    if (gw_yaml_scalar_type(c->n) == GW_YAML_REAL) {
        double x = gw_yaml_real(c->n->text);
        wrong_type(c);
        if (isfinite(x) && x >= -1e15 && x <= 1e15 && x == floor(x) && c->dg && c->dg->last)
            gw_diag_hint(c->dg, c->dg->last, "write it as an integer: %.0f", x);
        return false;
    }
    if (gw_yaml_scalar_type(c->n) != GW_YAML_INT) return wrong_type(c);
    int64_t v = 0;
    if (!gw_yaml_int(c->n->text, &v) || !in_range(&c->k->check, (double)v))
        return out_of_range(c, c->n->text);
    *field = v;
    return true;
}

static bool store_real(const ctx *c, double *field) {
    if (is_word(c)) {
        *field = 0.0;
        return true;
    }
    gw_yaml_type t = c->n->kind == GW_YAML_SCALAR ? gw_yaml_scalar_type(c->n) : GW_YAML_NULL;
    if (t != GW_YAML_INT && t != GW_YAML_REAL) return wrong_type(c);
    double x = gw_yaml_real(c->n->text);
    if (!isfinite(x) || !in_range(&c->k->check, x)) return out_of_range(c, c->n->text);
    *field = x;
    return true;
}

static bool store_bytes(const ctx *c, int64_t *field) {
    gw_yaml_type t = c->n->kind == GW_YAML_SCALAR ? gw_yaml_scalar_type(c->n) : GW_YAML_NULL;
    if (t != GW_YAML_INT && t != GW_YAML_TEXT) return wrong_type(c);
    int64_t v = 0;
    bool ok = t == GW_YAML_INT ? gw_yaml_int(c->n->text, &v) : gw_parse_bytes(c->n->text, &v);
    if (!ok && t == GW_YAML_TEXT) return wrong_type(c);
    if (!ok || !in_range(&c->k->check, (double)v)) return out_of_range(c, c->n->text);
    *field = v;
    return true;
}

static bool store_text(const ctx *c, const char **field) {
    if (c->n->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(c->n) != GW_YAML_TEXT)
        return wrong_type(c);
    if (!*c->n->text) {
        gw_diag *g = gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "config-value", c->w,
                                 "%s is an empty text", c->k->path);
        gw_diag_hint(c->dg, g, "remove the line, or give a value");
        return false;
    }
    *field = c->n->text;
    return true;
}

static const gw_rf_name *nearest_name(const gw_rf_name *names, const char *text) {
    const gw_rf_name *best = NULL;
    int limit = (int)strlen(text) / 3 + 2;
    for (const gw_rf_name *n = names; n->name; n++) {
        int d = gw_str_distance(n->name, text);
        if (d < limit) {
            limit = d;
            best = n;
        }
    }
    return best;
}

static bool store_enum(const ctx *c, void *field) {
    if (c->n->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(c->n) == GW_YAML_NULL)
        return wrong_type(c);
    for (const gw_rf_name *n = c->k->check.names; n->name; n++) {
        if (!gw_str_eq(n->name, c->n->text)) continue;
        memcpy(field, &n->value, sizeof n->value);
        return true;
    }
    gw_str want = {0};
    gw_rf_describe(c->k, &want);
    gw_diag *g =
        gw_diag_add(c->dg, GW_ERROR, GW_ERR_CONFIG, "config-value", c->w,
                    "%s is '%.60s'; it must be %s", c->k->path, c->n->text, gw_str_c(&want));
    const gw_rf_name *near = nearest_name(c->k->check.names, c->n->text);
    if (near) gw_diag_hint(c->dg, g, "did you mean %s?", near->name);
    gw_str_release(&want);
    return false;
}

static bool store_bool(const ctx *c, bool *field) {
    if (c->n->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(c->n) != GW_YAML_BOOL)
        return wrong_type(c);
    *field = gw_yaml_bool(c->n->text);
    return true;
}

/* The context of item `child`, with the item's own place where the value has one. */
static ctx item_ctx(const ctx *c, const gw_yaml_child *child) {
    ctx item = *c;
    item.n = child->value;
    if (c->w.line > 0) {
        item.w.line = child->value->line;
        item.w.column = child->value->column;
    }
    return item;
}

static bool store_list(const ctx *c, gw_rf_strings *field) {
    if (c->n->kind != GW_YAML_LIST) return wrong_type(c);
    const char **items = gw_arena_new(&c->rf->arena, const char *, c->n->count + 1);
    int64_t count = 0;
    bool ok = true;
    for (const gw_yaml_child *i = c->n->first; i; i = i->next) {
        ctx item = item_ctx(c, i);
        if (i->value->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(i->value) != GW_YAML_TEXT)
            ok = wrong_type(&item);
        items[count++] = i->value->text;
    }
    *field = (gw_rf_strings){items, count};
    return ok;
}

static bool store_counts(const ctx *c, gw_rf_counts *field) {
    *field = (gw_rf_counts){NULL, 0};
    if (is_word(c)) return true;
    if (c->n->kind != GW_YAML_LIST || c->n->count == 0) return wrong_type(c);
    int64_t *items = gw_arena_new(&c->rf->arena, int64_t, c->n->count);
    int64_t count = 0;
    bool ok = true;
    for (const gw_yaml_child *i = c->n->first; i; i = i->next) {
        ctx item = item_ctx(c, i);
        int64_t v = 0;
        if (i->value->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(i->value) != GW_YAML_INT)
            ok = wrong_type(&item);
        else if (!gw_yaml_int(i->value->text, &v) || !in_range(&c->k->check, (double)v))
            ok = out_of_range(&item, i->value->text);
        items[count++] = v;
    }
    if (ok) *field = (gw_rf_counts){items, count};
    return ok;
}

static bool store_pair(const ctx *c, gw_rf_pair *field) {
    if (c->n->kind != GW_YAML_LIST || c->n->count != 2) return wrong_type(c);
    ctx a = item_ctx(c, c->n->first), b = item_ctx(c, c->n->first->next);
    gw_rf_pair v = {0, 0};
    bool ok_a = store_real(&a, &v.a), ok_b = store_real(&b, &v.b);
    if (ok_a && ok_b) *field = v;
    return ok_a && ok_b;
}

/* Adds the entries of one map; a list of maps is their entries one after another. */
static bool add_entries(const ctx *c, const gw_yaml_node *map, gw_rf_entry *items, int64_t *n) {
    bool ok = true;
    for (const gw_yaml_child *i = map->first; i; i = i->next) {
        ctx item = item_ctx(c, i);
        if (i->value->kind != GW_YAML_SCALAR || gw_yaml_scalar_type(i->value) != GW_YAML_TEXT)
            ok = wrong_type(&item);
        else
            items[(*n)++] = (gw_rf_entry){i->key, i->value->text};
    }
    return ok;
}

static bool store_map(const ctx *c, gw_rf_map *field) {
    bool list = c->n->kind == GW_YAML_LIST, ok = true;
    int64_t room = 0, n = 0;
    if (!list && c->n->kind != GW_YAML_MAP) return wrong_type(c);
    if (!list) room = c->n->count;
    for (const gw_yaml_child *i = c->n->first; list && i; i = i->next) {
        ctx item = item_ctx(c, i);
        if (i->value->kind != GW_YAML_MAP) return wrong_type(&item);
        room += i->value->count;
    }
    gw_rf_entry *items = gw_arena_new(&c->rf->arena, gw_rf_entry, room + 1);
    if (!list) ok = add_entries(c, c->n, items, &n);
    for (const gw_yaml_child *i = c->n->first; list && i; i = i->next)
        ok = add_entries(c, i->value, items, &n) && ok;
    *field = (gw_rf_map){items, n};
    return ok;
}

bool gw_rf_store_value(gw_runfile *rf, const gw_rf_key *k, const gw_yaml_node *n, gw_where w,
                       gw_diags *dg) {
    ctx c = {rf, k, n, w, dg};
    void *field = gw_rf_field(rf, k);
    switch (k->type) {
    case GW_RF_T_BOOL: return store_bool(&c, field);
    case GW_RF_T_INT: return store_int(&c, field);
    case GW_RF_T_REAL: return store_real(&c, field);
    case GW_RF_T_TEXT: return store_text(&c, field);
    case GW_RF_T_ENUM: return store_enum(&c, field);
    case GW_RF_T_BYTES: return store_bytes(&c, field);
    case GW_RF_T_LIST: return store_list(&c, field);
    case GW_RF_T_PAIR: return store_pair(&c, field);
    case GW_RF_T_MAP: return store_map(&c, field);
    case GW_RF_T_COUNTS: return store_counts(&c, field);
    case GW_RF_T_MIXTURE: return gw_rf_store_mixture(rf, k, n, w, field, dg);
    case GW_RF_T_STAGES: return gw_rf_store_stages(rf, k, n, w, field, dg);
    }
    return false;
}

// ------------------------------------------------------------------ and back

void gw_rf_add_real(gw_str *out, double x) {
    char buf[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, x);
        if (strtod(buf, NULL) == x) break;
    }
    /* Counts read better in full than as 1e+06. */
    if (x == floor(x) && fabs(x) < 1e16 && fabs(x) >= 1) snprintf(buf, sizeof buf, "%.0f", x);
    /* 1e-05 is 1e-5. */
    char *e = strstr(buf, "e-0");
    if (e) memmove(e + 2, e + 3, strlen(e + 3) + 1);
    gw_str_add(out, buf);
}

void gw_rf_add_json_string(gw_str *out, const char *s) {
    gw_str_add_char(out, '"');
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\')
            gw_str_printf(out, "\\%c", ch);
        else if (ch < 0x20 || ch == 0x7f)
            gw_str_printf(out, "\\u%04x", ch);
        else
            gw_str_add_char(out, *s);
    }
    gw_str_add_char(out, '"');
}

static bool plain_is_safe(const char *s) {
    gw_yaml_node n = {.kind = GW_YAML_SCALAR, .text = s};
    if (gw_yaml_scalar_type(&n) != GW_YAML_TEXT || *s == '-') return false;
    return all_in(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-");
}

void gw_rf_add_text(gw_str *out, const char *s, bool json) {
    if (!json && plain_is_safe(s))
        gw_str_add(out, s);
    else
        gw_rf_add_json_string(out, s);
}

static void add_pair(gw_str *out, gw_rf_pair p) {
    gw_str_add_char(out, '[');
    gw_rf_add_real(out, p.a);
    gw_str_add(out, ", ");
    gw_rf_add_real(out, p.b);
    gw_str_add_char(out, ']');
}

static void add_list(gw_str *out, const gw_rf_strings *l, bool json) {
    gw_str_add_char(out, '[');
    for (int64_t i = 0; i < l->count; i++) {
        if (i) gw_str_add(out, ", ");
        gw_rf_add_text(out, l->items[i], json);
    }
    gw_str_add_char(out, ']');
}

static void add_counts(gw_str *out, const gw_rf_key *k, const gw_rf_counts *l, bool json) {
    if (l->count == 0) {
        gw_str_printf(out, json ? "\"%s\"" : "%s", k->check.word);
        return;
    }
    for (int64_t i = 0; i < l->count; i++)
        gw_str_printf(out, "%s%lld", i ? ", " : "[", (long long)l->items[i]);
    gw_str_add_char(out, ']');
}

static void add_map(gw_str *out, const gw_rf_map *m, bool json) {
    gw_str_add_char(out, '{');
    for (int64_t i = 0; i < m->count; i++) {
        if (i) gw_str_add(out, ", ");
        gw_rf_add_json_string(out, m->items[i].name);
        gw_str_add(out, ": ");
        gw_rf_add_text(out, m->items[i].value, json);
    }
    gw_str_add_char(out, '}');
}

static void add_count(gw_str *out, const gw_rf_key *k, int64_t v, bool json) {
    if (v == 0 && k->check.word)
        gw_str_printf(out, json ? "\"%s\"" : "%s", k->check.word);
    else
        gw_str_printf(out, "%lld", (long long)v);
}

static void add_value(const gw_runfile *rf, const gw_rf_key *k, bool json, gw_str *out) {
    const void *f = gw_rf_field_const(rf, k);
    const char *text = NULL;
    double x = 0;
    int64_t v = 0;
    switch (k->type) {
    case GW_RF_T_BOOL: gw_str_add(out, *(const bool *)f ? "true" : "false"); return;
    case GW_RF_T_INT:
    case GW_RF_T_BYTES:
        memcpy(&v, f, sizeof v);
        add_count(out, k, v, json);
        return;
    case GW_RF_T_REAL:
        memcpy(&x, f, sizeof x);
        if (x == 0.0 && k->check.word)
            add_count(out, k, 0, json);
        else
            gw_rf_add_real(out, x);
        return;
    case GW_RF_T_TEXT:
        memcpy(&text, f, sizeof text);
        if (text)
            gw_rf_add_text(out, text, json);
        else
            gw_str_add(out, json ? "null" : "");
        return;
    case GW_RF_T_ENUM: gw_rf_add_text(out, gw_runfile_word(rf, k->path), json); return;
    case GW_RF_T_LIST: add_list(out, f, json); return;
    case GW_RF_T_PAIR: add_pair(out, *(const gw_rf_pair *)f); return;
    case GW_RF_T_MAP: add_map(out, f, json); return;
    case GW_RF_T_COUNTS: add_counts(out, k, f, json); return;
    case GW_RF_T_MIXTURE: gw_rf_add_mixture(out, f, json); return;
    case GW_RF_T_STAGES: gw_rf_add_stages(out, f); return;
    }
}

void gw_rf_value_yaml(const gw_runfile *rf, const gw_rf_key *k, gw_str *out) {
    add_value(rf, k, false, out);
}

void gw_rf_value_json(const gw_runfile *rf, const gw_rf_key *k, gw_str *out) {
    add_value(rf, k, true, out);
}

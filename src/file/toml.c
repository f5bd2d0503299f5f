// SPDX-License-Identifier: Apache-2.0
// A strict reader of the part of TOML 1.0 that trainers' configurations use.
//
// The document is read once, from left to right, by a cursor that knows its line and column. A
// table's header sets the prefix of the keys that follow; each `key = value` becomes one entry of a
// flat list, named by its whole path, so that readers need no tree. Lists hold scalars and lists.
//
// Strict: what TOML has and these files do not (dates, inline tables, lists of tables, strings over
// several lines, hexadecimal, inf) is refused where it stands, never guessed at; so is a key or a
// table that is given twice, a control character, and bytes that are not UTF-8 as far as TOML
// forbids them (the text is copied, not interpreted). Sizes, depth and counts are bounded.
#include "file/toml.h"

#include <stdbool.h>
#include <string.h> /* memchr */

#include "base/map.h" /* gw_smap, GW_VEC */
#include "base/str.h" /* gw_str */

enum { MAX_LISTS = 4 }; /* in one another */

typedef struct cursor {
    gw_arena *a;
    const char *name, *p, *end, *line_start;
    int line;
    gw_diags *dg;
    const char *prefix; /* of the present table, with its dot; "" at the top */
    int depth;          /* of the present table */
    gw_smap seen; /* paths of values: 1, of table headers: 2, of tables implied by either: 3 */
    GW_VEC(gw_toml_value) values;
} cursor;

static int column(const cursor *c) { return (int)(c->p - c->line_start) + 1; }

#define REFUSE(c, ...) refuse((c), (c)->line, column(c), __VA_ARGS__)

static gw_status GW_PRINTF(4, 5)
refuse(const cursor *c, int line, int col, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    gw_str s = {0};
    gw_str_vprintf(&s, fmt, ap);
    va_end(ap);
    gw_where w = {c->name, line, col};
    gw_status st = gw_fail_at(c->dg, GW_ERR_FORMAT, "toml-syntax", w, "%s", gw_str_c(&s));
    gw_str_release(&s);
    return st;
}

// ------------------------------------------------------------------ characters

static bool at_end(const cursor *c) { return c->p >= c->end; }
static char peek(const cursor *c) { return at_end(c) ? '\n' : *c->p; }
static bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }

static bool is_bare(char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || is_digit(ch) || ch == '_' ||
           ch == '-';
}

static bool starts(const cursor *c, const char *word) {
    size_t n = strlen(word);
    return (size_t)(c->end - c->p) >= n && memcmp(c->p, word, n) == 0;
}

static void skip_blanks(cursor *c) {
    while (!at_end(c) && (*c->p == ' ' || *c->p == '\t')) c->p++;
}

static void newline(cursor *c) {
    c->p++;
    c->line++;
    c->line_start = c->p;
}

static bool at_newline(const cursor *c) {
    return at_end(c) || *c->p == '\n' || (*c->p == '\r' && starts(c, "\r\n"));
}

/* A comment up to the end of its line. */
static gw_status skip_comment(cursor *c) {
    if (at_end(c) || *c->p != '#') return GW_OK;
    for (; !at_newline(c); c->p++)
        if ((unsigned char)*c->p < 0x20 && *c->p != '\t')
            return REFUSE(c, "a control character in a comment");
    return GW_OK;
}

/* Blanks, comments and line ends. */
static gw_status skip_space(cursor *c) {
    for (;;) {
        skip_blanks(c);
        GW_TRY(skip_comment(c));
        if (at_end(c)) return GW_OK;
        if (*c->p == '\r' && starts(c, "\r\n")) c->p++;
        if (*c->p != '\n') return GW_OK;
        newline(c);
    }
}

/* Nothing but a comment may follow on the line. */
static gw_status end_of_line(cursor *c) {
    skip_blanks(c);
    GW_TRY(skip_comment(c));
    if (!at_newline(c)) return REFUSE(c, "a line end is missing before '%c'", *c->p);
    return GW_OK;
}

// ------------------------------------------------------------------ strings

static void add_utf8(gw_str *s, uint32_t u) {
    if (u < 0x80) {
        gw_str_add_char(s, (char)u);
        return;
    }
    int more = u < 0x800 ? 1 : u < 0x10000 ? 2 : 3;
    static const uint32_t lead[] = {0, 0xc0, 0xe0, 0xf0};
    gw_str_add_char(s, (char)(lead[more] | (u >> (6 * more))));
    while (more-- > 0) gw_str_add_char(s, (char)(0x80 | ((u >> (6 * more)) & 0x3f)));
}

static int hex_of(char ch) {
    if (is_digit(ch)) return ch - '0';
    if (ch >= 'a' && ch <= 'f') return ch - 'a' + 10;
    return ch >= 'A' && ch <= 'F' ? ch - 'A' + 10 : -1;
}

static gw_status unicode_escape(cursor *c, int digits, gw_str *s) {
    uint32_t u = 0;
    for (int i = 0; i < digits; i++, c->p++) {
        int h = at_end(c) ? -1 : hex_of(*c->p);
        if (h < 0) return REFUSE(c, "an escape needs %d hexadecimal digits", digits);
        u = (u << 4) | (uint32_t)h;
    }
    if (u == 0 || u > 0x10ffff || (u >= 0xd800 && u < 0xe000))
        return REFUSE(c, "an escape of no character");
    add_utf8(s, u);
    return GW_OK;
}

static gw_status escape(cursor *c, gw_str *s) {
    static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
    char ch = peek(c);
    const char *at = strchr(from, ch);
    c->p++;
    if (at && ch) {
        gw_str_add_char(s, to[at - from]);
        return GW_OK;
    }
    if (ch == 'u' || ch == 'U') return unicode_escape(c, ch == 'u' ? 4 : 8, s);
    c->p--;
    return REFUSE(c, "'\\%c' is no escape", ch >= 0x20 ? ch : '?');
}

/* A string on one line, in either quotes; the cursor stands on the first. */
static gw_status read_string(cursor *c, const char **out) {
    char quote = *c->p;
    if (starts(c, quote == '"' ? "\"\"\"" : "'''"))
        return REFUSE(c, "strings over several lines are not read here; write it on one");
    gw_str s = {0};
    gw_status st = GW_OK;
    for (c->p++; st == GW_OK && !at_newline(c) && *c->p != quote;) {
        if ((unsigned char)*c->p < 0x20 && *c->p != '\t')
            st = REFUSE(c, "a control character in a string");
        else if (*c->p == '\\' && quote == '"')
            c->p++, st = escape(c, &s);
        else
            gw_str_add_char(&s, *c->p++);
    }
    if (st == GW_OK && at_newline(c)) st = REFUSE(c, "a string that does not end on its line");
    if (st == GW_OK) c->p++;
    *out = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    return st;
}

// ------------------------------------------------------------------ scalars

/* One or more digits with single '_' between them. */
static bool take_digits(cursor *c, gw_str *s) {
    bool any = false;
    while (!at_end(c) && (is_digit(*c->p) || (any && *c->p == '_'))) {
        if (*c->p == '_') {
            c->p++;
            if (at_end(c) || !is_digit(*c->p)) return false;
        }
        any = true;
        gw_str_add_char(s, *c->p++);
    }
    return any;
}

static bool take_sign(cursor *c, gw_str *s) {
    if (at_end(c) || (*c->p != '-' && *c->p != '+')) return false;
    if (*c->p == '-') gw_str_add_char(s, '-');
    c->p++;
    return true;
}

static bool take_number(cursor *c, gw_str *s, gw_toml_type *type) {
    *type = GW_TOML_INT;
    take_sign(c, s);
    size_t from = s->len;
    if (!take_digits(c, s)) return false;
    if (s->len - from > 1 && s->data[from] == '0') return false; /* no leading zeros */
    if (!at_end(c) && *c->p == '.') {
        gw_str_add_char(s, *c->p++);
        *type = GW_TOML_REAL;
        if (!take_digits(c, s)) return false;
    }
    if (at_end(c) || (*c->p != 'e' && *c->p != 'E')) return true;
    gw_str_add_char(s, 'e');
    c->p++;
    *type = GW_TOML_REAL;
    take_sign(c, s);
    return take_digits(c, s);
}

static gw_status read_number(cursor *c, gw_toml_value *v) {
    gw_str s = {0};
    int col = column(c);
    bool good = take_number(c, &s, &v->type) && (at_end(c) || !(is_bare(*c->p) || *c->p == ':'));
    int64_t i;
    bool fits = v->type != GW_TOML_INT || gw_parse_i64(gw_str_c(&s), &i);
    v->text = gw_arena_strdup(c->a, gw_str_c(&s));
    gw_str_release(&s);
    if (!good)
        return refuse(c, c->line, col,
                      "not a decimal number as it is read here (nor a date, another base, inf or "
                      "nan)");
    return fits ? GW_OK : refuse(c, c->line, col, "an integer of more than 64 bits");
}

static gw_status read_scalar(cursor *c, gw_toml_value *v) {
    char ch = peek(c);
    if (ch == '"' || ch == '\'') {
        v->type = GW_TOML_TEXT;
        return read_string(c, &v->text);
    }
    for (int i = 0; i < 2; i++) {
        const char *word = i ? "true" : "false";
        if (!starts(c, word)) continue;
        c->p += strlen(word);
        if (!at_end(c) && is_bare(*c->p))
            return REFUSE(c, "a value that is neither true nor false");
        v->type = GW_TOML_BOOL;
        v->text = word;
        return GW_OK;
    }
    if (is_digit(ch) || ch == '-' || ch == '+') return read_number(c, v);
    if (ch == '{') return REFUSE(c, "inline tables are not read here; write a [table]");
    return REFUSE(c, at_newline(c) ? "a value is missing" : "no value begins with this");
}

/* "[a, [b, c]]" */
static const char *text_of_list(gw_arena *a, const gw_toml_value *items, int64_t n) {
    gw_str s = {0};
    gw_str_add_char(&s, '[');
    for (int64_t i = 0; i < n; i++) gw_str_printf(&s, "%s%s", i ? ", " : "", items[i].text);
    gw_str_add_char(&s, ']');
    const char *text = gw_arena_strdup(a, gw_str_c(&s));
    gw_str_release(&s);
    return text;
}

static gw_status read_list(cursor *c, gw_toml_value *v, int depth) {
    GW_VEC(gw_toml_value) items = {0};
    gw_status st = GW_OK;
    v->type = GW_TOML_LIST;
    c->p++;
    for (;;) {
        if ((st = skip_space(c)) != GW_OK) break;
        if (!at_end(c) && *c->p == ']') break;
        gw_toml_value item = {.line = c->line, .column = column(c)};
        if (!at_end(c) && *c->p == '[')
            st = depth < MAX_LISTS ? read_list(c, &item, depth + 1)
                                   : REFUSE(c, "lists in more than %d lists", MAX_LISTS);
        else if (items.count >= GW_TOML_MAX_VALUES)
            st = REFUSE(c, "a list of more than %d values", GW_TOML_MAX_VALUES);
        else
            st = read_scalar(c, &item);
        if (st != GW_OK) break;
        gw_vec_push(&items, item);
        if ((st = skip_space(c)) != GW_OK) break;
        if (!at_end(c) && *c->p == ',')
            c->p++;
        else if (at_end(c) || *c->p != ']') {
            st = REFUSE(c, "a list needs ',' or ']' here");
            break;
        }
    }
    if (st == GW_OK) c->p++;
    v->nitems = items.count;
    v->items = gw_arena_dup(c->a, items.items, items.count * (int64_t)sizeof *items.items);
    if (st == GW_OK) v->text = text_of_list(c->a, items.items, items.count);
    gw_vec_release(&items);
    return st;
}

// ------------------------------------------------------------------ keys and tables

/* A dotted key onto `path`; *parts is how many it has. */
static gw_status read_key(cursor *c, gw_str *path, int *parts) {
    for (*parts = 0;; c->p++) {
        skip_blanks(c);
        const char *part = c->p;
        if (at_end(c)) return REFUSE(c, "a key is missing");
        if (*c->p == '"' || *c->p == '\'') {
            GW_TRY(read_string(c, &part));
            if (!*part) return REFUSE(c, "a key without a name");
            gw_str_printf(path, "%s%s", *parts ? "." : "", part);
        } else {
            while (!at_end(c) && is_bare(*c->p)) c->p++;
            if (c->p == part) return REFUSE(c, "a key is missing");
            if (*parts) gw_str_add_char(path, '.');
            gw_str_add_n(path, part, (size_t)(c->p - part));
        }
        if (++*parts + c->depth > GW_TOML_MAX_DEPTH)
            return REFUSE(c, "more than %d levels", GW_TOML_MAX_DEPTH);
        skip_blanks(c);
        if (at_end(c) || *c->p != '.') return GW_OK;
    }
}

/* Notes that `path` is a value (1) or a table's header (2); what stands above it is a table. */
static gw_status claim(cursor *c, const char *path, uint32_t as, int line, int col) {
    uint32_t was = 0;
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t n = (size_t)(dot - path);
        if (!gw_smap_find(&c->seen, path, n, &was))
            gw_smap_put(&c->seen, path, n, 3);
        else if (was == 1)
            return refuse(c, line, col, "'%.*s' is a value already, and cannot hold keys", (int)n,
                          path);
    }
    bool known = gw_smap_find_c(&c->seen, path, &was);
    if (known && !(as == 2 && was == 3)) return refuse(c, line, col, "'%s' is given twice", path);
    gw_smap_put_c(&c->seen, path, as);
    return GW_OK;
}

static gw_status read_table(cursor *c) {
    int line = c->line, col = column(c), parts;
    if (starts(c, "[[")) return REFUSE(c, "lists of tables are not read here");
    c->p++;
    c->depth = 0;
    gw_str path = {0};
    gw_status st = read_key(c, &path, &parts);
    if (st == GW_OK && peek(c) != ']') st = REFUSE(c, "a table's name ends in ']'");
    const char *name = gw_arena_strdup(c->a, gw_str_c(&path));
    gw_str_release(&path);
    if (st != GW_OK) return st;
    c->p++;
    c->depth = parts;
    c->prefix = gw_arena_printf(c->a, "%s.", name);
    GW_TRY(claim(c, name, 2, line, col));
    return end_of_line(c);
}

static gw_status read_pair(cursor *c) {
    gw_toml_value v = {.line = c->line, .column = column(c)};
    int parts;
    gw_str path = {0};
    gw_str_add(&path, c->prefix);
    gw_status st = read_key(c, &path, &parts);
    v.path = gw_arena_strdup(c->a, gw_str_c(&path));
    gw_str_release(&path);
    if (st == GW_OK && peek(c) != '=') st = REFUSE(c, "'=' is missing after a key");
    if (st == GW_OK) st = claim(c, v.path, 1, v.line, v.column);
    if (st != GW_OK) return st;
    c->p++;
    skip_blanks(c);
    GW_TRY(peek(c) == '[' ? read_list(c, &v, 0) : read_scalar(c, &v));
    if (c->values.count >= GW_TOML_MAX_VALUES)
        return REFUSE(c, "more than %d values", GW_TOML_MAX_VALUES);
    gw_vec_push(&c->values, v);
    return end_of_line(c);
}

gw_status gw_toml_parse(gw_arena *a, const char *name, const char *text, int64_t len, gw_toml *out,
                        gw_diags *dg) {
    cursor c = {.a = a,
                .name = name,
                .p = text,
                .end = text + len,
                .line_start = text,
                .line = 1,
                .dg = dg,
                .prefix = ""};
    *out = (gw_toml){0};
    if (len > GW_TOML_MAX_BYTES) return REFUSE(&c, "more than %d bytes", GW_TOML_MAX_BYTES);
    if (len > 0 && memchr(text, 0, (size_t)len)) return REFUSE(&c, "a NUL: this is no text");
    gw_status st = GW_OK;
    while ((st = skip_space(&c)) == GW_OK && !at_end(&c))
        if ((st = *c.p == '[' ? read_table(&c) : read_pair(&c)) != GW_OK) break;
    if (st == GW_OK) {
        out->count = c.values.count;
        out->values =
            gw_arena_dup(a, c.values.items, c.values.count * (int64_t)sizeof(gw_toml_value));
    }
    gw_vec_release(&c.values);
    gw_smap_release(&c.seen);
    return st;
}

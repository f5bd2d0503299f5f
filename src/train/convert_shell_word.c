// SPDX-License-Identifier: Apache-2.0
// One word of a script: quotes, variables, arithmetic.
//
// What is understood: quotes, $NAME, ${NAME}, ${NAME:-default}, ${NAME+word}, ${NAME[@]},
// $((arithmetic)). What is not known stays open and says why: positional parameters, output of
// commands, variables of the environment.
//
// A word is made of spans, and each remembers the line it was written on and whether it stood under
// a condition, through every variable: a script that adds to a string of flags in a branch puts
// those flags under its condition, and not the ones that were in the string before.
#include <string.h> /* strchr */

#include "train/convert_shell.h"

enum { MAX_EXPR = 64 };

bool gw_sh_is_name(char ch) {
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') ||
           ch == '_';
}

void gw_sh_step(gw_shell *s) {
    if (*s->p == '\n') {
        s->line++;
        s->line_start = s->p + 1;
    }
    s->p++;
}

bool gw_sh_at(const gw_shell *s, const char *text) {
    size_t n = strlen(text);
    return (size_t)(s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

const gw_sh_variable *gw_sh_find(const gw_shell *s, const char *name, size_t n) {
    for (int64_t i = s->variables.count; i-- > 0;)
        if (strlen(s->variables.items[i].name) == n &&
            memcmp(s->variables.items[i].name, name, n) == 0)
            return &s->variables.items[i];
    return NULL;
}

// ------------------------------------------------------------------ arithmetic

typedef struct sum {
    const gw_shell *s;
    const char *p;
    int depth;
    bool bad, under; /* under: a variable's value stands under a condition */
} sum;

static int64_t expression(sum *e);

static void blanks(sum *e) {
    while (*e->p == ' ' || *e->p == '\t' || *e->p == '\n') e->p++;
}

static int64_t named_or_number(sum *e) {
    bool braced = false;
    if (*e->p == '$') braced = *++e->p == '{';
    if (braced) e->p++;
    const char *from = e->p;
    while (gw_sh_is_name(*e->p)) e->p++;
    size_t n = (size_t)(e->p - from);
    if (braced && *e->p++ != '}') e->bad = true;
    int64_t v = 0;
    char text[32];
    const gw_sh_variable *var = n ? gw_sh_find(e->s, from, n) : NULL;
    if (var && var->count == 1 && !var->items[0].open) {
        e->bad |= !gw_parse_i64(var->items[0].text, &v);
        e->under |= var->items[0].under;
    } else if (n == 0 || n >= sizeof text) {
        e->bad = true;
    } else {
        memcpy(text, from, n);
        text[n] = 0;
        e->bad |= !gw_parse_i64(text, &v);
    }
    return v;
}

static int64_t atom(sum *e) {
    blanks(e);
    if (*e->p != '(' || e->depth >= MAX_EXPR) return named_or_number(e);
    e->p++;
    e->depth++;
    int64_t v = expression(e);
    blanks(e);
    e->bad |= *e->p != ')';
    if (*e->p) e->p++;
    return v;
}

static int64_t product(sum *e) {
    int64_t v = atom(e), r;
    for (blanks(e); !e->bad && *e->p && strchr("*/%", *e->p); blanks(e)) {
        char op = *e->p++;
        int64_t by = atom(e);
        if (op == '*')
            e->bad |= __builtin_mul_overflow(v, by, &r), v = e->bad ? 0 : r;
        else if (by == 0 || (by == -1 && v == INT64_MIN))
            e->bad = true;
        else
            v = op == '/' ? v / by : v % by;
    }
    return v;
}

static int64_t expression(sum *e) {
    int64_t v = product(e), r;
    for (blanks(e); !e->bad && (*e->p == '+' || *e->p == '-'); blanks(e)) {
        char op = *e->p++;
        int64_t by = product(e);
        e->bad |= op == '+' ? __builtin_add_overflow(v, by, &r) : __builtin_sub_overflow(v, by, &r);
        v = e->bad ? 0 : r;
    }
    return v;
}

// ------------------------------------------------------------------ making a word

/* What is being put together. */
typedef struct making {
    gw_str text;
    GW_VEC(gw_sh_span) spans;
    bool any, quoted;
    bool own; /* the last span is the script's own text and goes on */
    int line, column;
} making;

void gw_sh_push(gw_sh_words *to, gw_sh_word w) {
    if (to->count < GW_SH_MAX_WORDS) gw_vec_push(to, w);
}

static void release(making *m) {
    gw_str_release(&m->text);
    gw_vec_release(&m->spans);
}

/* A span from here on; the last one is widened where nothing has been added to it. */
static void begin_span(making *m, int line, bool under, const char *open) {
    int64_t at = (int64_t)m->text.len;
    gw_sh_span *last = m->spans.count ? &m->spans.items[m->spans.count - 1] : NULL;
    m->own = false;
    if (last && last->at == at) {
        if (line) last->line = line;
        last->under |= under;
        if (open) last->open = open;
    } else if (m->spans.count < GW_SH_MAX_WORDS) {
        gw_vec_push(&m->spans, ((gw_sh_span){at, line, under, open}));
    }
}

/* Text of the script itself. */
static void add_own(gw_shell *s, making *m, const char *text, size_t n, const char *open) {
    if (!m->own || open) begin_span(m, s->line, gw_sh_marks(s), open);
    m->own = !open;
    if (m->text.len + n < GW_SH_MAX_TEXT) gw_str_add_n(&m->text, text, n);
}

/* Variables that hold variables grow fast: a word's length is bounded. */
static void add_word(making *m, const gw_sh_word *w, bool under) {
    size_t base = m->text.len, n = strlen(w->text);
    if (base + n >= GW_SH_MAX_TEXT) n = 0;
    for (int i = 0; i < w->nspans; i++) {
        int64_t from = w->spans[i].at, to = i + 1 < w->nspans ? w->spans[i + 1].at : (int64_t)n;
        begin_span(m, w->spans[i].line, w->spans[i].under || under, w->spans[i].open);
        if (to > from && to <= (int64_t)n)
            gw_str_add_n(&m->text, w->text + from, (size_t)(to - from));
    }
    m->any = true;
}

static gw_sh_word finished(gw_shell *s, const making *m) {
    static const gw_sh_span none = {0, 0, false, NULL};
    gw_sh_word w = {.text = gw_arena_strdup(s->c->a, gw_str_c(&m->text)),
                    .line = m->line,
                    .column = m->column,
                    .quoted = m->quoted};
    w.nspans = (int)GW_MAX(m->spans.count, (int64_t)1);
    w.spans = m->spans.count ? gw_arena_dup(s->c->a, m->spans.items,
                                            m->spans.count * (int64_t)sizeof *m->spans.items)
                             : &none;
    for (int i = 0; i < w.nspans; i++) {
        w.under |= w.spans[i].under;
        if (w.spans[i].open) w.open = w.spans[i].open;
    }
    w.under |= gw_sh_marks(s);
    return w;
}

/* The part of a word from `at` on, n bytes. */
static gw_sh_word part_of(gw_shell *s, const gw_sh_word *w, size_t at, size_t n) {
    gw_sh_word out = {.text = gw_arena_strndup(s->c->a, w->text + at, n),
                      .line = w->line,
                      .column = w->column,
                      .quoted = w->quoted};
    gw_sh_span *one = gw_arena_new(s->c->a, gw_sh_span, 1);
    for (int i = 0; i < w->nspans; i++) {
        const gw_sh_span *sp = &w->spans[i];
        int64_t next = i + 1 < w->nspans ? w->spans[i + 1].at : INT64_MAX;
        if (sp->at >= (int64_t)(at + n) || next <= (int64_t)at) continue;
        if (!one->line) {
            one->line = sp->line;
            for (const char *p = w->text + sp->at; p < w->text + at; p++) one->line += *p == '\n';
        }
        one->under |= sp->under;
        if (sp->open) one->open = sp->open;
    }
    if (one->line && one->line != w->line) {
        out.line = one->line;
        out.column = 1;
    }
    out.spans = one;
    out.nspans = 1;
    out.under = one->under;
    out.open = one->open;
    return out;
}

void gw_sh_push_split(gw_shell *s, gw_sh_words *to, const gw_sh_word *w) {
    for (size_t at = 0; w->text[at];) {
        at += strspn(w->text + at, " \t\r\n");
        size_t n = strcspn(w->text + at, " \t\r\n");
        if (n) gw_sh_push(to, part_of(s, w, at, n));
        at += n;
    }
}

/* A word as it is when it is put in here. */
static gw_sh_word marked(gw_shell *s, gw_sh_word w, bool under) {
    if (!under || w.under) return w;
    gw_sh_span *spans = gw_arena_dup(s->c->a, w.spans, w.nspans * (int64_t)sizeof *w.spans);
    for (int i = 0; i < w.nspans; i++) spans[i].under = true;
    w.spans = spans;
    w.under = true;
    return w;
}

// ------------------------------------------------------------------ expansion

static void unknown(gw_shell *s, making *m, const char *spelling, const char *what) {
    add_own(s, m, spelling, strlen(spelling),
            gw_arena_printf(s->c->a, "depends on %s, %s", spelling, what));
    begin_span(m, s->line, gw_sh_marks(s), NULL); /* what follows is known */
    m->any = true;
}

/* Text up to the closing pair of a bracket that has been opened. */
static const char *take_balanced(gw_shell *s, char open, char close) {
    const char *from = s->p;
    for (int depth = 1; s->p < s->end; gw_sh_step(s)) {
        depth += (*s->p == open) - (*s->p == close);
        if (depth == 0) break;
    }
    const char *text = gw_arena_strndup(s->c->a, from, (size_t)(s->p - from));
    if (s->p < s->end) gw_sh_step(s);
    return text;
}

static void put_variable(gw_shell *s, making *m, gw_sh_words *to, const gw_sh_variable *v,
                         bool quoted) {
    bool alone = !m->any && (s->p >= s->end || strchr(" \t\n;)\"", *s->p));
    /* what is added to a variable under a condition leaves what it held as it was */
    bool under = gw_sh_marks(s) && !gw_str_eq(s->assigning, v->name);
    for (int64_t i = 0; i < v->count; i++) {
        gw_sh_word w = marked(s, v->items[i], under);
        bool many = strpbrk(w.text, " \t\n") && (!quoted || v->array);
        if (alone && (v->array || (many && !quoted))) {
            if (many)
                gw_sh_push_split(s, to, &w);
            else
                gw_sh_push(to, w);
            continue;
        }
        if (i) add_own(s, m, " ", 1, NULL);
        add_word(m, &w, under);
    }
}

static void expand(gw_shell *s, making *m, gw_sh_words *to, bool quoted, int nested);

/* The word of ${NAME:-word}, without its quotes. */
static void put_default(gw_shell *s, making *m, gw_sh_words *to, const char *text, int nested) {
    gw_shell inner = *s;
    inner.p = text;
    inner.end = text + strlen(text);
    while (inner.p < inner.end) {
        if (*inner.p == '"' || *inner.p == '\'') {
            inner.p++;
        } else if (*inner.p == '$') {
            expand(&inner, m, to, true, nested + 1);
        } else {
            add_own(s, m, inner.p++, 1, NULL);
        }
    }
    m->any = true;
}

/* ${...}: the cursor stands behind the brace. */
static void braced(gw_shell *s, making *m, gw_sh_words *to, bool quoted, int nested) {
    const char *inside = take_balanced(s, '{', '}');
    size_t n = 0;
    while (gw_sh_is_name(inside[n])) n++;
    const gw_sh_variable *v = gw_sh_find(s, inside, n);
    const char *rest = inside + n;
    if (gw_str_starts(rest, "[@]") || gw_str_starts(rest, "[*]")) rest += 3;
    bool colon = *rest == ':' && rest[1] && strchr("-=+", rest[1]);
    char op = colon ? rest[1] : *rest;
    const char *word = rest + (colon ? 2 : 1);
    bool empty = v && colon && v->count == 1 && !*v->items[0].text;
    if (v && (*rest == 0 || (op && strchr("-=", op) && !empty))) {
        put_variable(s, m, to, v, quoted);
    } else if (nested < GW_SH_MAX_NESTED && n > 0 &&
               ((op && strchr("-=", op) && (!v || empty)) || (op == '+' && v && !empty))) {
        put_default(s, m, to, word, nested);
    } else if (op == '+' && empty) {
        m->any = true;
    } else {
        unknown(s, m, gw_arena_printf(s->c->a, "${%s}", inside),
                n && inside[0] >= '0' && inside[0] <= '9' ? "an argument of the script"
                : v                                       ? "a way to write it that is not read"
                                                          : "which the script does not set");
    }
}

static void put_sum(gw_shell *s, making *m) {
    const char *text = take_balanced(s, '(', ')');
    if (s->p < s->end && *s->p == ')') gw_sh_step(s);
    sum e = {.s = s, .p = text};
    int64_t v = expression(&e);
    blanks(&e);
    if (e.bad || *e.p) {
        unknown(s, m, gw_arena_printf(s->c->a, "$((%s))", text), "which is not known here");
        return;
    }
    const char *digits = gw_arena_printf(s->c->a, "%lld", (long long)v);
    begin_span(m, s->line, e.under || gw_sh_marks(s), NULL);
    gw_str_add(&m->text, digits);
    m->any = true;
}

static void expand(gw_shell *s, making *m, gw_sh_words *to, bool quoted, int nested) {
    s->p++; /* the dollar */
    if (gw_sh_at(s, "((")) {
        s->p += 2;
        put_sum(s, m);
    } else if (gw_sh_at(s, "(")) {
        s->p++;
        unknown(s, m, gw_arena_printf(s->c->a, "$(%s)", take_balanced(s, '(', ')')),
                "what a command prints");
    } else if (gw_sh_at(s, "{")) {
        s->p++;
        braced(s, m, to, quoted, nested);
    } else {
        const char *from = s->p;
        while (s->p < s->end && gw_sh_is_name(*s->p)) s->p++;
        if (s->p == from && s->p < s->end && strchr("@*#?!$", *s->p)) s->p++;
        size_t n = (size_t)(s->p - from);
        const gw_sh_variable *v = gw_sh_find(s, from, n);
        const char *spelling = gw_arena_printf(s->c->a, "$%.*s", (int)n, from);
        if (v)
            put_variable(s, m, to, v, quoted);
        else if (n == 1 && strchr("@*", *from)) /* no further arguments are given */
            m->any |= quoted && m->any;
        else
            unknown(s, m, spelling,
                    n == 1 && *from >= '0' && *from <= '9' ? "an argument of the script"
                                                           : "which the script does not set");
    }
}

// ------------------------------------------------------------------ quotes

static void take_own(gw_shell *s, making *m) {
    add_own(s, m, s->p, 1, NULL);
    gw_sh_step(s);
}

static void double_quoted(gw_shell *s, making *m, gw_sh_words *to) {
    m->any = m->quoted = true;
    for (gw_sh_step(s); s->p < s->end && *s->p != '"';) {
        if (*s->p == '\\' && s->p + 1 < s->end) {
            gw_sh_step(s);
            if (!strchr("\"\\$`\n", *s->p)) add_own(s, m, "\\", 1, NULL);
            take_own(s, m); /* a continued line still ends here, for the counting */
        } else if (*s->p == '$') {
            making inner = {.any = m->text.len > 0};
            bool before = inner.any;
            expand(s, &inner, to, true, 0);
            gw_sh_word w = finished(s, &inner);
            w.under = false;
            if (inner.any) add_word(m, &w, false);
            if (!inner.any && !before) m->any = false; /* "${ARRAY[@]}" alone: its words stand */
            release(&inner);
        } else {
            take_own(s, m);
        }
    }
    if (m->text.len > 0) m->any = true;
    if (s->p < s->end) gw_sh_step(s);
}

static void finish_word(gw_shell *s, making *m, gw_sh_words *to) {
    if (m->any) gw_sh_push(to, finished(s, m));
    release(m);
}

void gw_sh_read_word(gw_shell *s, gw_sh_words *to) {
    making m = {.line = s->line, .column = (int)(s->p - s->line_start) + 1};
    while (s->p < s->end && !strchr(" \t\r\n;|&()<>", *s->p)) {
        if (*s->p == '\\' && s->p + 1 < s->end) {
            gw_sh_step(s);
            if (*s->p == '\n') break;
            take_own(s, &m);
            m.any = true;
        } else if (*s->p == '\'') {
            for (gw_sh_step(s); s->p < s->end && *s->p != '\'';) take_own(s, &m);
            if (s->p < s->end) gw_sh_step(s);
            m.any = m.quoted = true;
        } else if (*s->p == '"') {
            double_quoted(s, &m, to);
        } else if (*s->p == '`') {
            gw_sh_step(s);
            const char *text = take_balanced(s, 0x01, '`');
            unknown(s, &m, gw_arena_printf(s->c->a, "`%s`", text), "what a command prints");
        } else if (*s->p == '$') {
            expand(s, &m, to, false, 0);
        } else {
            take_own(s, &m);
            m.any = true;
        }
    }
    finish_word(s, &m, to);
}

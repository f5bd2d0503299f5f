// SPDX-License-Identifier: Apache-2.0
// Argument lists as they stand in shell scripts: the flags that a script gives its trainer.
//
// No shell is run. The script is read as a list of statements of words: assignments, `NAME=(...)`
// and `NAME+=(...)` fill variables, branches are followed as far as the script decides them
// (convert_shell_if.c), and the command that runs a .py file with the most flags is the trainer's.
// Its words, with variables put in (convert_shell_word.c), are the argument list; what stands
// before the .py (torchrun's flags) comes first. A command may stand in a string, for `bash -c` or
// `eval`, or in a here-document. A file without such a command is an argument list itself.
//
// Every word remembers the line it was written on, through every variable.
#include <string.h> /* strchr */

#include "train/convert_shell.h"

// ------------------------------------------------------------------ statements

/* Blanks, continued lines and comments, but no line end. */
static void skip_blanks(gw_shell *s) {
    for (; s->p < s->end; gw_sh_step(s)) {
        if (*s->p == '\\' && s->p + 1 < s->end && s->p[1] == '\n') {
            gw_sh_step(s);
            continue;
        }
        if (*s->p == '#') {
            while (s->p < s->end && *s->p != '\n') s->p++;
            return;
        }
        if (!strchr(" \t\r", *s->p)) return;
    }
}

static void assign(gw_shell *s, const char *name, gw_sh_words *value, bool array, bool append) {
    const gw_sh_variable *was = append ? gw_sh_find(s, name, strlen(name)) : NULL;
    int64_t before = was ? was->count : 0;
    gw_sh_variable v = {.name = name, .count = before + value->count, .array = array};
    if (v.count > GW_SH_MAX_WORDS || gw_sh_runs(s) == GW_SH_NO) return;
    v.items = gw_arena_new(s->c->a, gw_sh_word, v.count);
    for (int64_t i = 0; i < v.count; i++)
        v.items[i] = i < before ? was->items[i] : value->items[i - before];
    if (s->variables.count < GW_SH_MAX_WORDS) gw_vec_push(&s->variables, v);
}

/* NAME= or NAME+= at the cursor? Then the cursor moves behind it. */
static const char *take_name(gw_shell *s, bool *append) {
    const char *p = s->p;
    while (p < s->end && gw_sh_is_name(*p)) p++;
    size_t n = (size_t)(p - s->p);
    *append = p + 1 < s->end && p[0] == '+' && p[1] == '=';
    if (*append) p++;
    if (n == 0 || p >= s->end || *p != '=' || (*s->p >= '0' && *s->p <= '9')) return NULL;
    const char *name = gw_arena_strndup(s->c->a, s->p, n);
    s->p = p + 1;
    return name;
}

static void read_array(gw_shell *s, gw_sh_words *to) {
    for (s->p++; s->p < s->end && *s->p != ')';) {
        const char *from = s->p;
        skip_blanks(s);
        if (s->p >= s->end || *s->p == ')') break;
        if (*s->p == '\n')
            gw_sh_step(s);
        else
            gw_sh_read_word(s, to);
        if (s->p == from) gw_sh_step(s);
    }
    if (s->p < s->end) s->p++;
}

/* += to a string: one word, made of both. */
static void join(gw_shell *s, const char *name, gw_sh_words *value) {
    const gw_sh_variable *was = gw_sh_find(s, name, strlen(name));
    if (!was || was->array || was->count != 1 || value->count != 1) return;
    const gw_sh_word *a = &was->items[0], *b = &value->items[0];
    size_t n = strlen(a->text);
    if (n + strlen(b->text) > GW_SH_MAX_TEXT) return;
    gw_sh_span *spans = gw_arena_new(s->c->a, gw_sh_span, a->nspans + b->nspans);
    for (int i = 0; i < a->nspans + b->nspans; i++) {
        spans[i] = i < a->nspans ? a->spans[i] : b->spans[i - a->nspans];
        if (i >= a->nspans) spans[i].at += (int64_t)n;
    }
    gw_sh_word w = *b;
    w.text = gw_arena_printf(s->c->a, "%s%s", a->text, b->text);
    w.spans = spans;
    w.nspans = a->nspans + b->nspans;
    w.under |= a->under;
    if (!w.open) w.open = a->open;
    value->items[0] = w;
}

static bool read_assignment(gw_shell *s) {
    bool append = false;
    const char *name = take_name(s, &append);
    if (!name) return false;
    gw_sh_words value = {0};
    bool array = s->p < s->end && *s->p == '(';
    s->assigning = name;
    if (array)
        read_array(s, &value);
    else if (s->p < s->end && !strchr(" \t\r\n;", *s->p))
        gw_sh_read_word(s, &value);
    s->assigning = NULL;
    static const gw_sh_span none = {0, 0, false, NULL};
    if (!array && value.count == 0)
        gw_sh_push(
            &value,
            (gw_sh_word){
                .text = "", .spans = &none, .nspans = 1, .line = s->line, .under = gw_sh_marks(s)});
    if (append && !array) join(s, name, &value);
    const gw_sh_variable *was = gw_sh_find(s, name, strlen(name));
    assign(s, name, &value, array, append && (array || (was && was->array)));
    gw_vec_release(&value);
    return true;
}

// ------------------------------------------------------------------ commands

static bool ends_command(const char *word) {
    static const char *const marks[] = {"|", "|&", "&", "&&", "||", ";", ">", ">>", ">&", "2>&1"};
    for (size_t i = 0; i < GW_COUNT(marks); i++)
        if (gw_str_eq(word, marks[i])) return true;
    return false;
}

/* A string that holds a command: the words of the part that runs a .py. */
static void push_command(gw_shell *s, gw_sh_words *to, const gw_sh_word *w) {
    gw_sh_words parts = {0};
    int64_t start = to->count;
    bool seen = false;
    gw_sh_push_split(s, &parts, w);
    for (int64_t i = 0; i < parts.count; i++) {
        const char *text = parts.items[i].text;
        if (ends_command(text) || (gw_str_ends(text, ";") && !seen)) {
            if (seen) break;
            to->count = start;
            continue;
        }
        seen |= gw_str_ends(text, ".py");
        gw_sh_push(to, parts.items[i]);
    }
    gw_vec_release(&parts);
}

static bool holds_command(const gw_sh_word *w) {
    return strpbrk(w->text, " \n") && (strstr(w->text, ".py ") || strstr(w->text, ".py\n"));
}

/* Takes the words as the trainer's command if they run a .py with more flags than any before. */
static void consider(gw_shell *s, const gw_sh_words *w) {
    int64_t script = -1, flags = 0, n = w->count;
    for (int64_t i = 0; i < n && script < 0; i++) {
        bool module = i > 0 && gw_str_eq(w->items[i - 1].text, "-m");
        if (!module && gw_str_ends(w->items[i].text, ".py")) script = i;
    }
    for (int64_t i = GW_MAX(script, (int64_t)0); i < n; i++) {
        if (script >= 0 && ends_command(w->items[i].text)) n = i; /* of a string that is eval'd */
        flags += i < n && gw_str_starts(w->items[i].text, "--");
    }
    if (script >= 0 && flags > s->flags) {
        s->flags = flags;
        s->command.count = 0;
        for (int64_t i = 0; i < n; i++) gw_sh_push(&s->command, w->items[i]);
    }
    for (int64_t i = 0; script < 0 && flags && i < n; i++) gw_sh_push(&s->loose, w->items[i]);
}

/* The statement is complete. */
static void flush(gw_shell *s) {
    gw_sh_words flat = {0};
    for (int64_t i = 0; i < s->statement.count; i++) {
        const gw_sh_word *w = &s->statement.items[i];
        if (holds_command(w))
            push_command(s, &flat, w);
        else
            gw_sh_push(&flat, *w);
    }
    if (gw_sh_runs(s) != GW_SH_NO) consider(s, &flat);
    gw_vec_release(&flat);
}

static void end_statement(gw_shell *s, char op) {
    flush(s);
    gw_sh_end_member(s, op);
    s->statement.count = 0;
    s->exporting = false;
}

// ------------------------------------------------------------------ here-documents, redirections

static void read_statements(gw_shell *s);

/* The text of a here-document is read as statements, too: scripts hand themselves on that way. */
static void read_here(gw_shell *s, const char *from, int line, const char *to) {
    gw_shell outer = *s;
    s->statement = (gw_sh_words){0};
    s->p = s->line_start = from;
    s->end = to;
    s->line = line;
    s->op = 0;
    s->nested++;
    read_statements(s);
    gw_vec_release(&s->statement);
    s->statement = outer.statement;
    s->p = outer.p;
    s->end = outer.end;
    s->line_start = outer.line_start;
    s->line = outer.line;
    s->nested = outer.nested;
    s->op = outer.op;
    s->list = outer.list;
    s->chain = outer.chain;
    s->exporting = outer.exporting;
}

static void take_here(gw_shell *s) {
    gw_sh_words mark = {0};
    s->p += 2;
    if (s->p < s->end && *s->p == '-') s->p++;
    skip_blanks(s);
    if (s->p < s->end) gw_sh_read_word(s, &mark);
    const char *word = mark.count ? mark.items[0].text : "";
    size_t n = strlen(word);
    const char *from = NULL, *to = NULL;
    int line = 0;
    while (s->p < s->end && n) {
        while (s->p < s->end && *s->p != '\n') s->p++;
        if (s->p < s->end) gw_sh_step(s);
        if (!from) from = s->p, line = s->line;
        to = s->p;
        const char *p = s->p;
        while (p < s->end && *p == '\t') p++;
        if ((size_t)(s->end - p) >= n && memcmp(p, word, n) == 0 &&
            (p + n == s->end || p[n] == '\n'))
            break;
    }
    while (s->p < s->end && *s->p != '\n') s->p++;
    if (from && to > from && s->nested < GW_SH_MAX_NESTED) read_here(s, from, line, to);
    gw_vec_release(&mark);
}

/* `> FILE`, `2>&1`, `<<< WORD`: no words of the command. The cursor stands on the first < or >. */
static void skip_redirection(gw_shell *s) {
    gw_sh_words to = {0};
    gw_sh_word *last = s->statement.count ? &s->statement.items[s->statement.count - 1] : NULL;
    bool number = last && last->line == s->line && !last->quoted && *last->text && !last->text[1] &&
                  *last->text >= '0' && *last->text <= '9' && s->p > s->line_start &&
                  s->p[-1] == *last->text;
    if (number) s->statement.count--;
    while (s->p < s->end && strchr("<>&", *s->p)) s->p++;
    skip_blanks(s);
    if (s->p < s->end) gw_sh_read_word(s, &to);
    gw_vec_release(&to);
}

/* What stands between words; returns whether something did. */
static bool take_separator(gw_shell *s) {
    if (*s->p == '\n' || *s->p == ';') {
        bool part = gw_sh_at(s, ";;");
        end_statement(s, 0);
        if (part) gw_sh_end_case(s);
        gw_sh_step(s);
        if (part) gw_sh_step(s);
    } else if (strchr("|)", *s->p) && !gw_sh_at(s, "||") && gw_sh_end_pattern(s, *s->p)) {
        gw_sh_step(s);
    } else if (strchr("|&()<>", *s->p) && gw_sh_in_brackets(s)) {
        size_t n = gw_sh_at(s, "||") || gw_sh_at(s, "&&") ? 2 : 1;
        static const gw_sh_span here = {0, 0, false, NULL};
        gw_sh_push(&s->statement, (gw_sh_word){.text = gw_arena_strndup(s->c->a, s->p, n),
                                               .spans = &here,
                                               .nspans = 1,
                                               .line = s->line});
        s->p += n;
    } else if (gw_sh_at(s, "&&") || gw_sh_at(s, "||")) {
        end_statement(s, *s->p);
        s->p += 2;
    } else if (gw_sh_at(s, "<<") && !gw_sh_at(s, "<<<")) {
        take_here(s);
    } else if (strchr("<>", *s->p)) {
        skip_redirection(s);
    } else if (strchr("|&()", *s->p)) {
        flush(s);
        s->statement.count = 0;
        gw_sh_step(s);
    } else {
        return false;
    }
    return true;
}

static void read_statements(gw_shell *s) {
    while (s->p < s->end) {
        const char *from = s->p;
        skip_blanks(s);
        if (s->p >= s->end) break;
        if (!take_separator(s) && !(s->statement.count == 0 && read_assignment(s))) {
            gw_sh_read_word(s, &s->statement);
            gw_sh_take_keyword(s);
        }
        if (s->p == from) gw_sh_step(s);
    }
    end_statement(s, 0);
}

// ------------------------------------------------------------------ flags

static void set_values(gw_cv *c, gw_cv_key *k, const gw_sh_word *items, int64_t n) {
    gw_str s = {0};
    k->items = NULL;
    const char **texts = gw_arena_new(c->a, const char *, n + 1);
    for (int64_t i = 0; i < n; i++) {
        gw_str_printf(&s, "%s%s", i ? " " : "", items[i].text);
        texts[i] = items[i].text;
        if (items[i].open) k->open = items[i].open;
        k->under |= items[i].under;
    }
    k->type = n == 0 ? GW_CV_BOOL : n == 1 ? GW_CV_TEXT : GW_CV_LIST;
    k->text = n == 0 ? "true" : gw_arena_strdup(c->a, gw_str_c(&s));
    k->items = texts;
    k->nitems = (int)n;
    gw_str_release(&s);
}

/* Flags of a list of words; words before the first are passed over. */
static void add_flags(gw_cv *c, const gw_sh_words *w) {
    for (int64_t i = 0; i < w->count;) {
        const gw_sh_word *flag = &w->items[i++];
        if (!gw_str_starts(flag->text, "--") || !flag->text[2]) continue;
        const char *eq = strchr(flag->text, '=');
        size_t n = eq ? (size_t)(eq - flag->text) : strlen(flag->text);
        gw_cv_key *k = gw_cv_add(c, gw_arena_strndup(c->a, flag->text, n), GW_CV_BOOL, "true",
                                 flag->line, flag->column);
        k->under = flag->under;
        k->open = flag->open;
        int64_t from = i;
        gw_sh_word joined = *flag;
        while (!eq && i < w->count && !gw_str_starts(w->items[i].text, "--") &&
               !gw_str_ends(w->items[i].text, ".py"))
            i++;
        if (eq) joined.text = eq + 1;
        set_values(c, k, eq ? &joined : &w->items[from], eq ? 1 : i - from);
    }
}

/* No command was seen: the variables as they were set last, the one that holds a command alone. */
static void take_variables(gw_shell *s) {
    gw_sh_words flat = {0};
    for (int64_t i = 0; i < s->variables.count; i++) {
        const gw_sh_variable *v = &s->variables.items[i];
        if (gw_sh_find(s, v->name, strlen(v->name)) != v) continue;
        for (int64_t j = 0; j < v->count; j++) {
            if (holds_command(&v->items[j])) {
                flat.count = 0;
                push_command(s, &flat, &v->items[j]);
                consider(s, &flat);
            }
            gw_sh_push_split(s, &s->loose, &v->items[j]);
        }
    }
    gw_vec_release(&flat);
}

gw_status gw_cv_read_shell(gw_cv *c) {
    const gw_cv_request *r = c->request;
    if (r->len > 0 && memchr(r->text, 0, (size_t)r->len))
        return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax", "%s: a NUL: this is no script",
                       r->name);
    gw_shell s = {.c = c,
                  .p = r->text,
                  .end = r->text + r->len,
                  .line_start = r->text,
                  .line = 1,
                  .now = GW_SH_YES,
                  .chain = GW_SH_YES,
                  .list = GW_SH_YES};
    read_statements(&s);
    if (s.command.count == 0 && s.loose.count == 0) take_variables(&s);
    add_flags(c, s.command.count ? &s.command : &s.loose);
    gw_vec_release(&s.variables);
    gw_vec_release(&s.branches);
    gw_vec_release(&s.statement);
    gw_vec_release(&s.command);
    gw_vec_release(&s.loose);
    if (c->keys.count > 0) return GW_OK;
    return GW_FAIL(c->dg, GW_ERR_FORMAT, "convert-syntax", "%s: no --flags are given in it",
                   r->name);
}

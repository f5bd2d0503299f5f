// SPDX-License-Identifier: Apache-2.0
// Which branch of a script is taken, as far as the script itself says it.
//
// `if`, `elif`, `else`, `case`, and lists with && and || are followed by a logic of three values: a
// condition holds, does not hold, or is not known, because it asks for a file, for what a command
// prints, or for a variable that the script does not set. What stands in a branch that is not taken
// is passed over; what stands in one that may be is marked, word for word, as under a condition.
// A default (${1:-mock}) is what the script itself says, so it counts as known.
//
// Decided are [ ], [[ ]] and test with strings (=, !=, patterns in [[ ]], -z, -n) and numbers (-eq
// and the others), joined by && and || or -a and -o; everything else is not known. Of a branch that
// is not known nothing after it follows: if one of two branches may have been taken, the other may
// have been, too.
#include <string.h> /* strpbrk */

#include "train/convert_shell.h"

enum { MAX_BRANCHES = 256 };

static gw_sh_truth both(gw_sh_truth a, gw_sh_truth b) { return a < b ? a : b; }
static gw_sh_truth either(gw_sh_truth a, gw_sh_truth b) { return a > b ? a : b; }
static gw_sh_truth not_(gw_sh_truth a) {
    return a == GW_SH_YES ? GW_SH_NO : a == GW_SH_NO ? GW_SH_YES : GW_SH_MAYBE;
}
static gw_sh_truth truth(bool b) { return b ? GW_SH_YES : GW_SH_NO; }

gw_sh_truth gw_sh_runs(const gw_shell *s) { return both(s->now, s->chain); }

bool gw_sh_marks(const gw_shell *s) {
    const gw_sh_branch *b = s->branches.count ? &s->branches.items[s->branches.count - 1] : NULL;
    return !(b && b->reading) && gw_sh_runs(s) == GW_SH_MAYBE;
}

// ------------------------------------------------------------------ tests

static bool is(const gw_sh_word *w, const char *text) {
    return !w->quoted && gw_str_eq(w->text, text);
}

static gw_sh_truth compare(const gw_sh_word *a, const char *op, const gw_sh_word *b,
                           bool patterns) {
    static const char *const names[] = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"};
    int64_t x, y;
    bool differ = gw_str_eq(op, "!=");
    if (differ || gw_str_eq(op, "=") || gw_str_eq(op, "==")) {
        if (b->quoted || !strpbrk(b->text, "*?[") || !patterns)
            return truth(gw_str_eq(a->text, b->text) != differ);
        if (strpbrk(b->text, "[\\")) return GW_SH_MAYBE;
        return truth(gw_str_glob(b->text, a->text) != differ);
    }
    if (!gw_parse_i64(a->text, &x) || !gw_parse_i64(b->text, &y)) return GW_SH_MAYBE;
    const bool results[] = {x == y, x != y, x<y, x <= y, x> y, x >= y};
    for (size_t i = 0; i < GW_COUNT(names); i++)
        if (gw_str_eq(op, names[i])) return truth(results[i]);
    return GW_SH_MAYBE;
}

/* One test without operators that join. */
static gw_sh_truth test_one(const gw_sh_word *w, int64_t n, bool patterns) {
    if (n > 1 && is(w, "!")) return not_(test_one(w + 1, n - 1, patterns));
    for (int64_t i = 0; i < n; i++)
        if (w[i].open || w[i].under || is(&w[i], "(") || is(&w[i], ")")) return GW_SH_MAYBE;
    if (n == 1) return truth(*w->text != 0);
    if (n == 2 && is(w, "-n")) return truth(*w[1].text != 0);
    if (n == 2 && is(w, "-z")) return truth(*w[1].text == 0);
    if (n == 3) return compare(&w[0], w[1].text, &w[2], patterns);
    return GW_SH_MAYBE;
}

/* Tests joined by && and, weaker, by ||. */
static gw_sh_truth test_all(const gw_sh_word *w, int64_t n, bool patterns) {
    gw_sh_truth any = GW_SH_NO, all = GW_SH_YES;
    int64_t from = 0;
    for (int64_t i = 0; i <= n; i++) {
        bool or_ = i < n && (is(&w[i], "||") || is(&w[i], "-o"));
        bool and_ = i < n && (is(&w[i], "&&") || is(&w[i], "-a"));
        if (i < n && !or_ && !and_) continue;
        all = both(all, i > from ? test_one(w + from, i - from, patterns) : GW_SH_MAYBE);
        from = i + 1;
        if (and_) continue;
        any = either(any, all);
        all = GW_SH_YES;
    }
    return any;
}

/* The value of a command. */
static gw_sh_truth value_of(const gw_sh_word *w, int64_t n) {
    if (n == 0) return GW_SH_YES; /* an assignment */
    if (is(w, "!")) return n > 1 ? not_(value_of(w + 1, n - 1)) : GW_SH_MAYBE;
    bool two = is(w, "[["), one = is(w, "[");
    if ((two && is(&w[n - 1], "]]")) || (one && is(&w[n - 1], "]")))
        return n > 2 ? test_all(w + 1, n - 2, two) : GW_SH_NO;
    if (is(w, "test")) return test_all(w + 1, n - 1, false);
    if (is(w, "true") || is(w, ":")) return GW_SH_YES;
    return is(w, "false") ? GW_SH_NO : GW_SH_MAYBE;
}

bool gw_sh_in_brackets(const gw_shell *s) {
    for (int64_t i = s->statement.count; i-- > 0;) {
        if (is(&s->statement.items[i], "]]")) return false;
        if (is(&s->statement.items[i], "[[")) return true;
    }
    return false;
}

// ------------------------------------------------------------------ lists and branches

static gw_sh_branch *top(gw_shell *s) {
    return s->branches.count ? &s->branches.items[s->branches.count - 1] : NULL;
}

void gw_sh_end_member(gw_shell *s, char op) {
    gw_sh_branch *b = top(s);
    gw_sh_truth v = value_of(s->statement.items, s->statement.count);
    bool empty = s->statement.count == 0 && !s->op;
    s->list = s->op == '&' ? both(s->list, v) : s->op == '|' ? either(s->list, v) : v;
    if (b && b->kind == 'i' && b->reading && !empty) b->cond = s->list;
    s->op = op;
    s->chain = op == '&' ? s->list : op == '|' ? not_(s->list) : GW_SH_YES;
}

static void open_branch(gw_shell *s, char kind) {
    gw_sh_branch b = {.kind = kind,
                      .outside = s->now,
                      .taken = GW_SH_NO,
                      .cond = kind == 'c' ? GW_SH_NO : GW_SH_MAYBE,
                      .reading = kind != 'l'};
    if (s->branches.count < MAX_BRANCHES) gw_vec_push(&s->branches, b);
    if (kind == 'l') s->now = both(s->now, GW_SH_MAYBE);
}

static void close_branch(gw_shell *s) {
    gw_sh_branch *b = top(s);
    if (!b) return;
    s->now = b->outside;
    s->branches.count--;
}

/* What follows is run if `cond` holds and nothing before was. */
static void enter(gw_shell *s, gw_sh_truth cond) {
    gw_sh_branch *b = top(s);
    gw_sh_truth here = both(cond, not_(b->taken));
    b->taken = either(b->taken, cond);
    b->reading = false;
    s->now = both(b->outside, here);
}

/* The condition of an elif, or the patterns of the next case. */
static void read_next(gw_shell *s) {
    gw_sh_branch *b = top(s);
    b->reading = true;
    b->cond = b->kind == 'c' ? GW_SH_NO : GW_SH_MAYBE;
    s->now = b->outside;
}

/* Keywords that open, part and close branches; returns whether it is one. */
static bool branch_word(gw_shell *s, const char *w) {
    gw_sh_branch *b = top(s);
    bool in_if = b && b->kind == 'i';
    if (gw_str_eq(w, "if"))
        open_branch(s, 'i');
    else if (gw_str_eq(w, "case"))
        open_branch(s, 'c');
    else if (gw_str_eq(w, "for") || gw_str_eq(w, "while") || gw_str_eq(w, "until") ||
             gw_str_eq(w, "select"))
        open_branch(s, 'l');
    else if (gw_str_eq(w, "fi") || gw_str_eq(w, "done") || gw_str_eq(w, "esac"))
        close_branch(s);
    else if (gw_str_eq(w, "then") && in_if)
        enter(s, b->cond);
    else if (gw_str_eq(w, "elif") && in_if)
        read_next(s);
    else if (gw_str_eq(w, "else") && in_if)
        enter(s, GW_SH_YES);
    else
        return gw_str_eq(w, "do") || gw_str_eq(w, "then") || gw_str_eq(w, "else");
    return true;
}

static bool is_one_of(const char *text, const char *const *list) {
    for (; *list; list++)
        if (gw_str_eq(*list, text)) return true;
    return false;
}

void gw_sh_take_keyword(gw_shell *s) {
    static const char *const exports[] = {"export",   "declare", "local",
                                          "readonly", "typeset", NULL};
    static const char *const passed[] = {"eval", "exec", "srun", "time", "nohup", "{", "}", NULL};
    gw_sh_branch *b = top(s);
    if (s->statement.count != 1) return;
    const gw_sh_word *w = &s->statement.items[0];
    bool pattern = b && b->kind == 'c' && b->reading;
    if (pattern && !b->has_subject) {
        b->subject = *w;
        b->has_subject = true;
    } else if (pattern) {
        if (!is(w, "in") && !is(w, "esac")) return;
        if (is(w, "esac")) close_branch(s);
    } else if (!w->quoted && is_one_of(w->text, exports)) {
        s->exporting = true;
    } else if (!(s->exporting && *w->text == '-') &&
               (w->quoted || !(is_one_of(w->text, passed) || branch_word(s, w->text)))) {
        return;
    }
    s->statement.count = 0;
}

bool gw_sh_end_pattern(gw_shell *s, char by) {
    gw_sh_branch *b = top(s);
    if (!b || b->kind != 'c' || !b->reading || !b->has_subject) return false;
    if (s->statement.count > 0) {
        const gw_sh_word *w = &s->statement.items[s->statement.count - 1];
        bool known = !w->open && !b->subject.open && !b->subject.under &&
                     (w->quoted || !strpbrk(w->text, "[\\"));
        gw_sh_truth fits = is(w, "*") ? GW_SH_YES
                           : !known   ? GW_SH_MAYBE
                                      : truth(w->quoted ? gw_str_eq(w->text, b->subject.text)
                                                        : gw_str_glob(w->text, b->subject.text));
        b->cond = either(b->cond, fits);
    }
    s->statement.count = 0;
    if (by == ')') enter(s, b->cond);
    return true;
}

void gw_sh_end_case(gw_shell *s) {
    gw_sh_branch *b = top(s);
    if (b && b->kind == 'c') read_next(s);
}

// SPDX-License-Identifier: Apache-2.0
// A thin layer over PCRE2 (UTF, UCP, JIT where the machine has it).
//
// Tokenizer files carry patterns for Oniguruma with Ruby's syntax. The constructs they use mean the
// same in PCRE2, apart from a few escapes: \s in PCRE2 includes U+180E, \w leaves out combining
// marks, \h is horizontal space there and a hex digit here. Those are rewritten into explicit
// classes; constructs whose meaning differs without an equivalent are refused with a name rather
// than run with another meaning.
//
// Compiled code is shared between threads; match blocks and the JIT stack belong to a scratch. Text
// is not checked for validity again at each match (that would make a text quadratic): the callers
// hand over valid runs. Limits turn a pattern that backtracks without end into an error.
#include "data/regex.h" /* gw_regex */

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_alloc */
#include "base/str.h"   /* gw_str */

enum { MATCH_LIMIT = 20000000, JIT_STACK_MIN = 64 << 10, JIT_STACK_MAX = 8 << 20 };

struct gw_regex {
    pcre2_code *code;
    bool jit;
};

struct gw_regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

#define SPACE_SET                                                                                  \
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"                     \
    "\\x{202f}\\x{205f}\\x{3000}"
#define WORD_SET "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/* The replacement of an escape outside and inside a class; NULL: stays as it is. "" : cannot be
 * said. */
static const char *escape_text(char c, bool in_class) {
    switch (c) {
    case 's': return in_class ? SPACE_SET : "[" SPACE_SET "]";
    case 'S': return in_class ? "" : "[^" SPACE_SET "]";
    case 'w': return in_class ? WORD_SET : "[" WORD_SET "]";
    case 'W': return in_class ? "" : "[^" WORD_SET "]";
    case 'h': return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
    case 'H': return in_class ? "" : "[^0-9a-fA-F]";
    case 'R':
    case 'X':
    case 'K':
    case 'G':
    case 'y':
    case 'Y':
    case 'C':
    case 'N':
    case 'O': return "";
    }
    return NULL;
}

/* True if "{...}" before position i is an interval whose '+' at i reads differently in the two. */
static bool interval_before(const char *p, size_t i) {
    if (i == 0 || p[i - 1] != '}') return false;
    size_t k = i - 1;
    while (k > 0 && ((p[k - 1] >= '0' && p[k - 1] <= '9') || p[k - 1] == ',')) k--;
    return k > 0 && p[k - 1] == '{' && k != i - 1;
}

static gw_status translate(const char *p, size_t n, const char *where, gw_str *out, gw_diags *dg) {
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '\\' && i + 1 < n) {
            const char *t = escape_text(p[i + 1], depth > 0);
            if (t && !*t)
                return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-regex",
                               "%s: the regex escape \\%c%s is not supported", where, p[i + 1],
                               depth ? " inside a class" : "");
            if (t)
                gw_str_add(out, t);
            else
                gw_str_add_n(out, p + i, 2);
            i++;
            continue;
        }
        if (depth > 0 &&
            ((c == '&' && i + 1 < n && p[i + 1] == '&') || (c == '[' && p[i + 1] != ':')))
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-regex",
                           "%s: class intersections and nested classes are not supported", where);
        if (depth == 0 && c == '+' && interval_before(p, i))
            return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-regex",
                           "%s: '+' after an interval means two things in two regex engines",
                           where);
        gw_str_add_char(out, c);
        if (c == '[' && depth == 0) {
            depth = 1;
            if (i + 1 < n && p[i + 1] == '^') gw_str_add_char(out, p[++i]);
            if (i + 1 < n && p[i + 1] == ']') gw_str_add(out, (i++, "\\]"));
        } else if (c == '[') {
            while (i + 1 < n && !(p[i] == ':' && p[i + 1] == ']')) gw_str_add_char(out, p[++i]);
        } else if (c == ']' && depth) {
            depth = 0;
        }
    }
    return GW_OK;
}

gw_status gw_regex_new(const char *pattern, size_t n, const char *where, gw_regex **out,
                       gw_diags *dg) {
    *out = NULL;
    if (n > 100000)
        return GW_FAIL(dg, GW_ERR_FORMAT, "tokenizer-regex", "%s: regex of %zu bytes", where, n);
    gw_str text = {0};
    gw_status st = translate(pattern, n, where, &text, dg);
    if (st != GW_OK) {
        gw_str_release(&text);
        return st;
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)gw_str_c(&text), text.len, PCRE2_UTF | PCRE2_UCP,
                                   &code, &at, NULL);
    gw_str_release(&text);
    if (!re) {
        PCRE2_UCHAR message[256];
        pcre2_get_error_message(code, message, sizeof message);
        gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "tokenizer-regex", (gw_where){0},
                                 "%s: not a regex: %s", where, (const char *)message);
        gw_diag_detail(dg, g, "pattern: %.*s", (int)(n > 500 ? 500 : n), pattern);
        return GW_ERR_FORMAT;
    }
    gw_regex *r = gw_mem_zalloc(sizeof *r);
    r->code = re;
    r->jit = pcre2_jit_compile(re, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    return GW_OK;
}

void gw_regex_free(gw_regex *re) {
    if (!re) return;
    pcre2_code_free(re->code);
    gw_mem_free(re);
}

gw_regex_scratch *gw_regex_scratch_new(void) {
    gw_regex_scratch *s = gw_mem_zalloc(sizeof *s);
    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->context) {
        pcre2_set_match_limit(s->context, MATCH_LIMIT);
        pcre2_set_heap_limit(s->context, 65536);
        if (s->stack) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    }
    return s;
}

void gw_regex_scratch_free(gw_regex_scratch *s) {
    if (!s) return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    gw_mem_free(s);
}

int gw_regex_find(const gw_regex *re, gw_regex_scratch *s, const uint8_t *text, size_t n,
                  size_t from, size_t *start, size_t *end) {
    if (!s->data || !s->context) return -1;
    int rc = re->jit
                 ? pcre2_jit_match(re->code, text, n, from, 0, s->data, s->context)
                 : pcre2_match(re->code, text, n, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) return -1;
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
    *start = v[0];
    *end = v[1];
    return 1;
}

gw_status gw_regex_limit_error(gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_UNSUPPORTED, "tokenizer-regex-limit",
                   "a regular expression of the tokenizer exceeds its matching limit on this text");
}

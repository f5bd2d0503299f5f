// SPDX-License-Identifier: Apache-2.0
// Splitting text into words as GPT-2, Llama 3, Qwen 2, cl100k and o200k do.
//
// The patterns are alternations tried in order at each position, with a look-ahead that leaves the
// last space of a run to the word that follows. Each alternative here is a function from a position
// to the end of its match (0 = no match), in the order of the pattern; the classes of an
// alternative are disjoint from what may follow it, so greedy runs need no backtracking, except
// where said. Every alternative consumes at least as much as it looked at, up to one run, so a text
// costs O(length).
//
// Patterns, in the words of their alternatives:
//   gpt2    contraction (lower case) | space? letters | space? numbers | space? others | spaces
//   llama3  contraction (any case) | (not CR LF letter number)? letters | 1-3 numbers
//           | space? others newlines* | spaces newline | spaces
//   qwen2   the same with single numbers
//   cl100k  the same as llama3, where spaces that reach the end of the text are one piece
//   o200k   two word rules (upper* lower+, upper+ lower*) with optional contraction | 1-3 numbers
//           | space? others (newline or slash)* | spaces newline | spaces
// "spaces" is \s+(?!\S)|\s+. Case-insensitive s matches U+017F too, as in every Unicode regex
// engine.
#include "data/scan.h" /* gw_scan_next */

#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "data/unicode.h"  /* gw_uni_class, gw_utf8_decode */

typedef struct reader {
    const uint8_t *text;
    size_t n;
    int version;
    const gw_uni_table *classes; /* NULL: ask gw_uni_class */
} reader;

/* Class and length of the character at i; the class at the end of the text is END. */
#define END 0x100u
static unsigned class_at(const reader *r, size_t i, size_t *len) {
    if (i >= r->n) {
        *len = 0;
        return END;
    }
    if (r->text[i] < 0x80) {
        *len = 1;
        return gw_uni_ascii[r->text[i]];
    }
    int l;
    uint32_t cp = gw_utf8_decode(r->text + i, r->text + r->n, &l);
    *len = (size_t)l;
    return r->classes ? gw_uni_table_class(r->classes, cp) : gw_uni_class(cp, r->version);
}

/* The end of the run of characters from i that have one of the class bits. */
static size_t run_of(const reader *r, size_t i, unsigned bits) {
    size_t len;
    while (class_at(r, i, &len) & bits) i += len;
    return i;
}

/* The run of characters that are neither space, letter nor number. */
static size_t run_of_others(const reader *r, size_t i) {
    size_t len;
    while (!(class_at(r, i, &len) & (GW_CLASS_LETTER | GW_CLASS_NUMBER | GW_CLASS_SPACE | END)))
        i += len;
    return i;
}

static size_t contraction(const reader *r, size_t i, bool any_case) {
    size_t left = r->n - i;
    const uint8_t *p = r->text + i;
    if (left < 2 || p[0] != '\'') return 0;
    if (any_case && left >= 3 && p[1] == 0xc5 && p[2] == 0xbf) return i + 3; /* U+017F */
    uint8_t fold = any_case ? 0x20 : 0;
    uint8_t a = p[1] | fold;
    if (p[1] >= 0x80) return 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return i + 2;
    if (left < 3 || p[2] >= 0x80) return 0;
    uint8_t b = p[2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return i + 3;
    return 0;
}

static size_t numbers(const reader *r, size_t i, int most) {
    size_t len;
    for (int k = 0; k < most && (class_at(r, i, &len) & GW_CLASS_NUMBER); k++) i += len;
    return i;
}

/* White space from i: \s*[\r\n]+ first if `newlines`, then \s+(?!\S), then \s+. */
static size_t spaces(const reader *r, size_t i, bool newlines, bool end_first) {
    size_t e = i, last = i, after_newline = 0, len;
    while (class_at(r, e, &len) & GW_CLASS_SPACE) {
        last = e;
        if (r->text[e] == '\r' || r->text[e] == '\n') after_newline = e + 1;
        e += len;
    }
    if (end_first && e == r->n) return e;
    if (newlines && after_newline) return after_newline;
    if (e == r->n || last == i) return e;
    return last;
}

static size_t next_gpt2(const reader *r, size_t i) {
    size_t e = contraction(r, i, false), len;
    if (e) return e;
    size_t q = r->text[i] == ' ' ? i + 1 : i;
    unsigned c = class_at(r, q, &len);
    if (c == END || (c & GW_CLASS_SPACE)) return spaces(r, i, false, false);
    if (c & GW_CLASS_LETTER) return run_of(r, q, GW_CLASS_LETTER);
    if (c & GW_CLASS_NUMBER) return run_of(r, q, GW_CLASS_NUMBER);
    return run_of_others(r, q);
}

/* " ?[^\s\p{L}\p{N}]+" and the tail of newlines (and slashes); 0 = no match. */
static size_t others(const reader *r, size_t i, bool slash) {
    size_t q = r->text[i] == ' ' ? i + 1 : i;
    size_t e = run_of_others(r, q);
    if (e == q) return 0;
    while (e < r->n && (r->text[e] == '\r' || r->text[e] == '\n' || (slash && r->text[e] == '/')))
        e++;
    return e;
}

static size_t next_llama3(const reader *r, size_t i, int digits, bool end_first) {
    size_t e = contraction(r, i, true), len, len2;
    if (e) return e;
    unsigned c = class_at(r, i, &len);
    if (c & GW_CLASS_LETTER) return run_of(r, i, GW_CLASS_LETTER);
    if (c & GW_CLASS_NUMBER) return numbers(r, i, digits);
    if (!(c & GW_CLASS_CRLF) && (class_at(r, i + len, &len2) & GW_CLASS_LETTER))
        return run_of(r, i + len, GW_CLASS_LETTER);
    e = others(r, i, false);
    return e ? e : spaces(r, i, true, end_first);
}

/* upper* lower+ from i, with the backtracking that it needs: if the run of upper has no lower after
 * it, it gives back to its last character that counts as both. */
static size_t word_lower(const reader *r, size_t i) {
    size_t e = i, after_both = 0, len;
    unsigned c;
    while ((c = class_at(r, e, &len)) & GW_CLASS_UPPER) {
        e += len;
        if (c & GW_CLASS_LOWER) after_both = e;
    }
    size_t w = run_of(r, e, GW_CLASS_LOWER);
    return w > e ? w : after_both;
}

/* upper+ lower* */
static size_t word_upper(const reader *r, size_t i) {
    size_t e = run_of(r, i, GW_CLASS_UPPER);
    return e == i ? 0 : run_of(r, e, GW_CLASS_LOWER);
}

static size_t next_o200k(const reader *r, size_t i) {
    size_t len, e = 0;
    unsigned c = class_at(r, i, &len);
    bool prefix = !(c & (GW_CLASS_CRLF | GW_CLASS_LETTER | GW_CLASS_NUMBER));
    if (prefix) e = word_lower(r, i + len);
    if (!e) e = word_lower(r, i);
    if (!e && prefix) e = word_upper(r, i + len);
    if (!e) e = word_upper(r, i);
    if (e) {
        size_t t = e < r->n ? contraction(r, e, true) : 0;
        return t ? t : e;
    }
    if (c & GW_CLASS_NUMBER) return numbers(r, i, 3);
    e = others(r, i, true);
    return e ? e : spaces(r, i, true, false);
}

static size_t next_piece(gw_scan kind, const reader *r, size_t pos) {
    switch (kind) {
    case GW_SCAN_GPT2: return next_gpt2(r, pos);
    case GW_SCAN_LLAMA3: return next_llama3(r, pos, 3, false);
    case GW_SCAN_QWEN2: return next_llama3(r, pos, 1, false);
    case GW_SCAN_CL100K: return next_llama3(r, pos, 3, true);
    case GW_SCAN_O200K: return next_o200k(r, pos);
    }
    return r->n;
}

size_t gw_scan_next(gw_scan kind, int unicode_version, const uint8_t *text, size_t n, size_t pos) {
    reader r = {text, n, unicode_version, NULL};
    return next_piece(kind, &r, pos);
}

size_t gw_scan_next_by(gw_scan kind, const gw_uni_table *classes, const uint8_t *text, size_t n,
                       size_t pos) {
    reader r = {text, n, classes->version, classes};
    return next_piece(kind, &r, pos);
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD_TAIL    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_U      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_L      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_PRE    "[^\\r\\n\\p{L}\\p{N}]?"

static const struct {
    gw_scan kind;
    const char *name, *regex;
} PATTERNS[] = {
    {GW_SCAN_GPT2, "gpt2",
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {GW_SCAN_LLAMA3, "llama3", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" WORD_TAIL},
    {GW_SCAN_QWEN2, "qwen2", CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" WORD_TAIL},
    {GW_SCAN_CL100K, "cl100k", NULL},
    {GW_SCAN_O200K, "o200k",
     O200K_PRE O200K_U
     "*" O200K_L "+" CONTRACTIONS "?|" O200K_PRE O200K_U "+" O200K_L "*" CONTRACTIONS
     "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

bool gw_scan_from_pattern(const char *regex, gw_scan *out) {
    for (size_t i = 0; i < GW_COUNT(PATTERNS); i++)
        if (PATTERNS[i].regex && !strcmp(PATTERNS[i].regex, regex)) {
            *out = PATTERNS[i].kind;
            return true;
        }
    return false;
}

bool gw_scan_from_name(const char *name, gw_scan *out) {
    for (size_t i = 0; i < GW_COUNT(PATTERNS); i++)
        if (!strcmp(PATTERNS[i].name, name)) {
            *out = PATTERNS[i].kind;
            return true;
        }
    return false;
}

const char *gw_scan_name(gw_scan kind) { return PATTERNS[kind].name; }
const char *gw_scan_pattern(gw_scan kind) { return PATTERNS[kind].regex; }

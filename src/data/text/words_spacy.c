// SPDX-License-Identifier: Apache-2.0
// spaCy's rule tokenizer: prefixes, suffixes, special cases, addresses and infixes of one span.
//
// A span is what stands between white space. From a span that is no special case, one prefix and
// one suffix at a time are taken off until neither is left or the rest is a special case; a rest
// that is an address stays whole; any other is cut at its infixes. The patterns of the library are
// regular expressions; here each is a bit of a character's class, or one of a few lines below,
// which try what the pattern tries in the same order (a suffix is the leftmost match that reaches
// the end, so the longest).
//
// Most spans are plain words, perhaps with one mark behind: those never reach the general code.
//
// Other languages apply patterns of their own in the same way (words_lang.c): where a rule set has
// some, they stand in for the few lines.
#include <string.h>

#include "base/arena.h"           /* gw_mem_realloc */
#include "base/map.h"             /* gw_vec_push */
#include "data/text/words_impl.h" /* gw_words_inner, words_rules */

typedef struct span {
    gw_words_inner *w;
    const words_rules *r;
    const char *text;
    const uint32_t *cls, *at;
    const uint8_t *symbols, *whole; /* where the rules are a language's */
    bool specials;
} span;

static bool is(const span *s, int64_t i, char c) { return s->text[s->at[i]] == c; }
static bool is_ascii_digit(const span *s, int64_t i) {
    char c = s->text[s->at[i]];
    return c >= '0' && c <= '9';
}
static bool is_bytes(const span *s, int64_t i, const char *utf8) {
    size_t n = s->at[i + 1] - s->at[i];
    return n == strlen(utf8) && !memcmp(s->text + s->at[i], utf8, n);
}

static const words_entry *lookup(const span *s, int64_t lo, int64_t hi) {
    if (!s->specials || lo >= hi) return NULL;
    return words_rules_find(s->r, s->text + s->at[lo], (int64_t)s->at[hi] - s->at[lo]);
}
static const words_special *special_of(const span *s, int64_t lo, int64_t hi) {
    const words_entry *e = lookup(s, lo, hi);
    return e ? e->special : NULL;
}

/* Appends a token, and notes it if it may begin a pattern. */
static void emit_bytes(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                       int64_t to, bool specials) {
    if (from >= to) return;
    if (specials) {
        const words_entry *e = words_rules_find(r, text + from, to - from);
        if (e && e->patterns >= 0) gw_vec_push(&w->starts, w->count);
    }
    words_push(w, from, to);
}
static void emit(const span *s, int64_t lo, int64_t hi) {
    if (lo < hi) emit_bytes(s->w, s->r, s->text, s->at[lo], s->at[hi], s->specials);
}
static void emit_special(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                         const words_special *sp) {
    for (int i = 0; i < sp->nparts; i++) {
        emit_bytes(w, r, text, from, from + sp->part[i], true);
        from += sp->part[i];
    }
}

/* Characters of the prefix of [lo, hi), or 0. */
static int64_t prefix(const span *s, int64_t lo, int64_t hi) {
    if (lo >= hi) return 0;
    if (s->r->lang) return words_lang_prefix(s->r->lang, s->symbols + lo, hi - lo);
    if (s->cls[lo] & GW_CH_PREFIX) return 1;
    if (is(s, lo, '+')) return lo + 1 < hi && is_ascii_digit(s, lo + 1) ? 0 : 1;
    if (is(s, lo, '.')) {
        int64_t end = lo + 1;
        while (end < hi && is(s, end, '.')) end++;
        return end - lo >= 2 ? end - lo : 0;
    }
    if ((is(s, lo, 'C') || is(s, lo, 'A')) && hi - lo >= 2 && is(s, lo + 1, '$')) return 2;
    if (is(s, lo, 'U') && hi - lo >= 3 && is(s, lo + 1, 'S') && is(s, lo + 2, '$')) return 3;
    return 0;
}

/* Characters of the longest unit or currency that ends [lo, hi) behind a digit, or 0. */
static int64_t unit(const span *s, int64_t lo, int64_t hi) {
    const char *end = s->text + s->at[hi];
    if (!s->r->unit_end[(uint8_t)end[-1]]) return 0;
    int64_t longest = 0;
    for (int64_t k = 1; k <= 8 && hi - k > lo; k++) {
        int64_t bytes = (int64_t)s->at[hi] - s->at[hi - k];
        if (bytes > s->r->longest_unit_bytes) break;
        if (!is_ascii_digit(s, hi - k - 1)) continue;
        for (int which = 0; which < 2; which++)
            for (int u = 0; u < s->r->nunits[which]; u++) {
                const char *text = s->r->units[which][u];
                if (text[0] == end[-bytes] && (int64_t)strlen(text) == bytes &&
                    !memcmp(text, end - bytes, (size_t)bytes))
                    longest = k;
            }
    }
    return longest;
}

/* A full stop that ends [lo, hi) as a suffix of its own. */
static bool dot_suffix(const span *s, int64_t lo, int64_t hi) {
    if (hi - lo < 2) return false;
    if (s->cls[hi - 2] & GW_CH_DOTBEHIND) return true;
    if (hi - lo < 3) return false;
    if (s->cls[hi - 2] & s->cls[hi - 3] & GW_CH_UPPER) return true;
    return is_bytes(s, hi - 3, "°") &&
           (is(s, hi - 2, 'F') || is(s, hi - 2, 'C') || is(s, hi - 2, 'K'));
}

/* Characters of the suffix of [lo, hi), or 0. */
static int64_t suffix(const span *s, int64_t lo, int64_t hi) {
    if (lo >= hi) return 0;
    if (s->r->lang) return words_lang_suffix(s->r->lang, s->symbols + lo, hi - lo);
    int64_t best = s->cls[hi - 1] & GW_CH_SUFFIX ? 1 : 0;
    if (is(s, hi - 1, '.')) {
        int64_t from = hi - 1;
        while (from > lo && is(s, from - 1, '.')) from--;
        if (hi - from >= 2) return hi - from;
        return dot_suffix(s, lo, hi) ? 1 : best;
    }
    if (is(s, hi - 1, '+') && hi - lo >= 2 && is_ascii_digit(s, hi - 2)) return 1;
    if ((is(s, hi - 1, 's') || is(s, hi - 1, 'S')) && hi - lo >= 2 &&
        (is(s, hi - 2, '\'') || is_bytes(s, hi - 2, "’")))
        return 2;
    if (hi - lo >= 2 && is_bytes(s, hi - 1, "…") && is_bytes(s, hi - 2, "…")) best = 2;
    int64_t u = unit(s, lo, hi);
    return u > best ? u : best;
}

/* Characters of a hyphen at i that stands between letters (behind a digit too in English). */
static int64_t hyphen(const span *s, int64_t lo, int64_t i, int64_t hi) {
    char c = s->text[s->at[i]];
    if (c != '-' && c != '~' && (uint8_t)c != 0xe2) return 0;
    bool behind = i > lo && (s->cls[i - 1] & GW_CH_ALPHA ||
                             (s->r->hyphen_after_digit && is_ascii_digit(s, i - 1)));
    if (!behind) return 0;
    if (c == '~' || is_bytes(s, i, "–")) return i + 1 < hi && s->cls[i + 1] & GW_CH_ALPHA ? 1 : 0;
    bool ascii = c == '-';
    if (!ascii && !is_bytes(s, i, "—")) return 0;
    for (int64_t k = 1; k <= (ascii ? 3 : 2) && i + k < hi; k++) {
        if (s->cls[i + k] & GW_CH_ALPHA) return k;
        if (!(ascii ? is(s, i + k, '-') : is_bytes(s, i + k, "—"))) return 0;
    }
    return 0;
}

/* Characters of the infix at i of [lo, hi), or 0. */
static int64_t infix(const span *s, int64_t lo, int64_t i, int64_t hi) {
    if (s->cls[i] & GW_CH_INFIX) return 1;
    char c = s->text[s->at[i]];
    bool inner = i > lo && i + 1 < hi;
    uint32_t before = inner ? s->cls[i - 1] : 0, after = inner ? s->cls[i + 1] : 0;
    switch (c) {
    case '.': {
        int64_t end = i + 1;
        while (end < hi && is(s, end, '.')) end++;
        if (end - i >= 2) return end - i;
        return before & (GW_CH_LOWER | GW_CH_QUOTE) && after & (GW_CH_UPPER | GW_CH_QUOTE) ? 1 : 0;
    }
    case ',': return before & after & GW_CH_ALPHA ? 1 : 0;
    case '+':
    case '*':
    case '^':
        return inner && is_ascii_digit(s, i - 1) && (is_ascii_digit(s, i + 1) || is(s, i + 1, '-'))
                   ? 1
                   : 0;
    case ':':
    case '<':
    case '>':
    case '=':
    case '/':
        return inner && (before & GW_CH_ALPHA || is_ascii_digit(s, i - 1)) && after & GW_CH_ALPHA
                   ? 1
                   : 0;
    case '-':
        if (inner && is_ascii_digit(s, i - 1) && (is_ascii_digit(s, i + 1) || is(s, i + 1, '-')))
            return 1;
        return hyphen(s, lo, i, hi);
    case '~': return hyphen(s, lo, i, hi);
    default: return (uint8_t)c == 0xe2 ? hyphen(s, lo, i, hi) : 0;
    }
}

/* A language's infixes: some are empty, and only cut. */
static void cut_lang_infixes(const span *s, int64_t lo, int64_t hi) {
    int64_t from = lo, at = 0, begin, end;
    bool empty = false;
    while (words_lang_infix(s->r->lang, s->symbols + lo, hi - lo, at, empty, &begin, &end)) {
        at = end;
        empty = begin == end;
        if (begin == 0) continue;
        emit(s, from, lo + begin);
        emit(s, lo + begin, lo + end);
        from = lo + end;
    }
    emit(s, from, hi);
}

static void cut_infixes(const span *s, int64_t lo, int64_t hi) {
    int64_t from = lo;
    for (int64_t i = lo; i < hi;) {
        int64_t n = infix(s, lo, i, hi);
        if (n && i != lo) { /* one at the very beginning is passed over, as there */
            emit(s, from, i);
            emit(s, i, i + n);
            from = i + n;
        }
        i += n ? n : 1;
    }
    emit(s, from, hi);
}

static void push_suffix(gw_words_inner *w, int64_t lo, int64_t hi) {
    if (w->nsuffixes == w->suffix_cap) {
        w->suffix_cap = w->suffix_cap ? 2 * w->suffix_cap : 256;
        w->suffixes = gw_mem_realloc(w->suffixes, (size_t)w->suffix_cap * sizeof *w->suffixes);
    }
    w->suffixes[w->nsuffixes++] = (gw_word){(uint32_t)lo, (uint32_t)hi};
}

/* What a language's rules leave whole. */
static bool is_whole(const span *s, int64_t lo, int64_t hi) {
    return s->r->lang && words_lang_whole(s->r->lang, s->whole + lo, hi - lo);
}

/* Takes prefixes and suffixes off [*lo, *hi); prefixes are emitted. */
static void take_affixes(const span *s, int64_t *lo, int64_t *hi) {
    int64_t last = -1;
    while (*lo < *hi && *hi - *lo != last) {
        if (is_whole(s, *lo, *hi) || special_of(s, *lo, *hi)) return;
        last = *hi - *lo;
        int64_t pre = prefix(s, *lo, *hi);
        if (pre && special_of(s, *lo + pre, *hi)) {
            emit(s, *lo, *lo + pre);
            *lo += pre;
            return;
        }
        int64_t suf = suffix(s, *lo + pre, *hi);
        if (suf) push_suffix(s->w, *hi - suf, *hi);
        if (suf && special_of(s, *lo, *hi - suf)) {
            *hi -= suf;
            return;
        }
        if (pre) emit(s, *lo, *lo + pre);
        *lo += pre;
        *hi -= suf;
    }
}

static void cut_span(const span *s, int64_t n) {
    gw_words_inner *w = s->w;
    int64_t lo = 0, hi = n;
    w->nsuffixes = 0;
    take_affixes(s, &lo, &hi);
    if (lo < hi) {
        const words_special *sp = special_of(s, lo, hi);
        if (sp)
            emit_special(w, s->r, s->text, s->at[lo], sp);
        else if (is_whole(s, lo, hi) || words_is_url(s->cls, s->at, s->text, lo, hi))
            emit(s, lo, hi);
        else if (s->r->lang)
            cut_lang_infixes(s, lo, hi);
        else
            cut_infixes(s, lo, hi);
    }
    while (w->nsuffixes) {
        gw_word f = w->suffixes[--w->nsuffixes];
        emit(s, f.offset, f.bytes);
    }
}

/* Classifies the characters of text[from..to) into w's scratch. Returns their number. */
static int64_t classify(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                        int64_t to) {
    if (to - from + 1 > w->char_cap) {
        w->char_cap = 2 * (to - from + 1);
        w->cls = gw_mem_realloc(w->cls, (size_t)w->char_cap * sizeof *w->cls);
        w->at = gw_mem_realloc(w->at, (size_t)w->char_cap * sizeof *w->at);
        w->symbols = gw_mem_realloc(w->symbols, 2 * (size_t)w->char_cap);
    }
    int64_t n = 0;
    int len;
    for (int64_t i = from; i < to; i += len) {
        w->cls[n] = words_class_at(text + i, text + to, &len);
        w->at[n++] = (uint32_t)i;
    }
    w->at[n] = (uint32_t)to;
    if (r->lang) words_lang_symbols(r->lang, text, w->at, n, w->symbols, w->symbols + w->char_cap);
    return n;
}

/* Cuts text[from..to) by all that there is. */
static void general(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                    int64_t to, bool specials) {
    int64_t n = classify(w, r, text, from, to);
    const uint8_t *whole = w->symbols + w->char_cap;
    cut_span(&(span){w, r, text, w->cls, w->at, w->symbols, whole, specials}, n);
}

bool words_has_affix(gw_words_inner *w, const words_rules *r, const char *text, int64_t n) {
    int64_t chars = classify(w, r, text, 0, n), begin, end;
    return words_lang_prefix(r->lang, w->symbols, chars) > 0 ||
           words_lang_suffix(r->lang, w->symbols, chars) > 0 ||
           words_lang_infix(r->lang, w->symbols, chars, 0, false, &begin, &end);
}

/* Kinds of bytes within a span. WIDE: of a longer character, which may be white space. */
enum { LETTER = 1, DIGIT = 2, MARK = 4, OTHER = 8, SPACE = 16, WIDE = 32 };

static inline unsigned kind_of(uint8_t c) {
    static const uint8_t kinds[128] = {
#define K4(a, b, c, d) (a), (b), (c), (d)
#define O4             K4(OTHER, OTHER, OTHER, OTHER)
#define L4             K4(LETTER, LETTER, LETTER, LETTER)
#define D4             K4(DIGIT, DIGIT, DIGIT, DIGIT)
        O4,
        O4,
        K4(OTHER, SPACE, SPACE, SPACE),
        K4(SPACE, SPACE, OTHER, OTHER),
        O4,
        O4,
        O4,
        K4(SPACE, SPACE, SPACE, SPACE),
        K4(SPACE, MARK, OTHER, OTHER),
        O4,
        K4(OTHER, MARK, OTHER, OTHER),
        K4(MARK, OTHER, OTHER, OTHER),
        D4,
        D4,
        K4(DIGIT, DIGIT, MARK, MARK),
        K4(OTHER, OTHER, OTHER, MARK),
        K4(OTHER, LETTER, LETTER, LETTER),
        L4,
        L4,
        L4,
        L4,
        L4,
        K4(LETTER, LETTER, LETTER, OTHER),
        O4,
        K4(OTHER, LETTER, LETTER, LETTER),
        L4,
        L4,
        L4,
        L4,
        L4,
        K4(LETTER, LETTER, LETTER, OTHER),
        O4,
    };
    return c < 128 ? kinds[c] : WIDE;
}

/* ASCII letters and digits only, text[from..to): no rule but special cases and units applies. */
static void plain(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                  int64_t to, unsigned kinds) {
    const words_entry *e = words_rules_find(r, text + from, to - from);
    if (e && e->special) {
        emit_special(w, r, text, from, e->special);
        return;
    }
    if (kinds & DIGIT && kinds & LETTER && r->unit_end[(uint8_t)text[to - 1]]) {
        general(w, r, text, from, to, true);
        return;
    }
    if (e && e->patterns >= 0) gw_vec_push(&w->starts, w->count);
    words_push(w, from, to);
}

/* The end of the span that begins at i, and the kinds of its bytes; all but the last in *inner. */
static int64_t span_end(const char *text, int64_t i, int64_t n, unsigned *inner, unsigned *last) {
    const char *end = text + n;
    unsigned before = 0, kind = 0;
    for (;;) {
        unsigned k = 0;
        while (i < n && !((k = kind_of((uint8_t)text[i])) & (SPACE | WIDE))) {
            before |= kind;
            kind = k;
            i++;
        }
        int len;
        if (i >= n || k & SPACE || words_class_at(text + i, end, &len) & GW_CH_SPACE) break;
        before |= kind;
        kind = OTHER;
        i += len;
    }
    *inner = before;
    *last = kind;
    return i;
}

static bool all_letters(const char *p, const char *end) {
    int len;
    for (; p < end; p += len)
        if (!(words_class_at(p, end, &len) & GW_CH_LETTER)) return false;
    return true;
}

/* A span of a language's text, of bytes of these kinds. */
static void language_span(gw_words_inner *w, const words_rules *r, const char *text, int64_t from,
                          int64_t to, unsigned kinds) {
    bool plain_span = r->plain && kinds == LETTER;
    if (!plain_span && r->plain == WORDS_PLAIN_LETTERS && !(kinds & (DIGIT | MARK)))
        plain_span = all_letters(text + from, text + to);
    if (plain_span)
        plain(w, r, text, from, to, LETTER);
    else
        general(w, r, text, from, to, true);
}

void words_spacy(gw_words_inner *w, const words_rules *r, const char *text, int64_t n,
                 bool specials) {
    const char *end = text + n;
    for (int64_t i = 0; i < n;) {
        if (text[i] == ' ') {
            i++;
            continue;
        }
        int len;
        unsigned inner, last;
        if (words_class_at(text + i, end, &len) & GW_CH_SPACE) {
            i += len;
            continue;
        }
        int64_t to = span_end(text, i, n, &inner, &last);
        if (specials && r->lang) {
            language_span(w, r, text, i, to, inner | last);
        } else if (specials && !((inner | last) & (MARK | OTHER))) {
            plain(w, r, text, i, to, inner | last);
        } else if (specials && inner && !(inner & (DIGIT | MARK | OTHER)) && last == MARK &&
                   !words_rules_find(r, text + i, to - i)) {
            plain(w, r, text, i, to - 1, inner);
            emit_bytes(w, r, text, to - 1, to, true);
        } else {
            general(w, r, text, i, to, specials);
        }
        i = to;
    }
}

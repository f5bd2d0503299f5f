// SPDX-License-Identifier: Apache-2.0
// Languages whose words datatrove cuts by rules of spaCy that are not English's: German, French,
// Malay and 37 more.
//
// A language differs in its patterns (what is taken off the front and the end of a span, where its
// inside is cut, what stays whole) and in its special cases; how they are applied is the same
// (words_spacy.c). The patterns are regular expressions over long lists of character ranges. The
// generated tables hold them over symbols instead: characters that no set of the language tells
// apart are one symbol, and there are fewer than 256, so that a span becomes a row of bytes once
// and PCRE2 matches bytes with plain bit maps. A character's symbol is the usual one of its class
// (words_tables.c) unless it stands in the list of odd ranges.
//
// Matching is bounded, whatever the text: the front and the end of a span are looked at through a
// window of WINDOW characters (of MARKS, where the end is no full stop: only those form long
// suffixes), and its inside in pieces of PIECE characters. Where no single match is longer, which
// prose has no cause for, the cut is the library's token for token.
//
// Beside them stands `trove_xx`, datatrove's answer for languages that nobody has rules for: words
// of spaCy's "xx", and sentences by one expression of its own, which is matched by hand here.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/arena.h"             /* gw_mem_zalloc */
#include "base/compiler.h"          /* GW_COUNT */
#include "base/diag.h"              /* GW_FAIL */
#include "base/str.h"               /* gw_str */
#include "data/text/words.h"        /* gw_splitter_for_language */
#include "data/text/words_impl.h"   /* words_lang_rules */
#include "data/text/words_lang.inc" /* languages, cut_by, not_cut */
#include "data/unicode.h"           /* gw_utf8_decode */

enum { WINDOW = 512, MARKS = 64, PIECE = 2048, LOW_POINTS = 0x3000 };

struct words_lang {
    const words_lang_rules *rules;
    pcre2_code *code[WORDS_PATTERNS];
    pcre2_match_data *match;
    uint8_t low[2][LOW_POINTS]; /* symbols of the first characters, by either map */
};

_Static_assert(GW_SPLIT_LANGUAGE + GW_COUNT(languages) <= GW_SPLITTER_KINDS,
               "more languages than words.h has room for");

int gw_splitter_count(void) { return GW_SPLIT_LANGUAGE + (int)GW_COUNT(languages); }

const words_lang_rules *words_lang_at(int i) {
    return i >= 0 && i < (int)GW_COUNT(languages) ? &languages[i] : NULL;
}

static uint8_t symbol_of(const words_lang_map *l, uint32_t cp) {
    int lo = 0, hi = l->nodd;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (l->odd[mid].last < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < l->nodd && l->odd[lo].first <= cp) return l->odd[lo].symbol;
    return l->usual[words_class_index(cp)];
}

static pcre2_code *compile(const char *const *pieces) {
    gw_str all = {0};
    for (; *pieces; pieces++) gw_str_add(&all, *pieces);
    int error;
    PCRE2_SIZE at;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)gw_str_c(&all), all.len, PCRE2_NEVER_UTF, &error, &at, NULL);
    if (code) pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    gw_str_release(&all);
    return code;
}

words_lang *words_lang_open(const words_lang_rules *rules) {
    words_lang *l = gw_mem_zalloc(sizeof *l);
    l->rules = rules;
    for (int k = 0; k < WORDS_PATTERNS; k++)
        if (rules->pattern[k]) l->code[k] = compile(rules->pattern[k]);
    l->match = pcre2_match_data_create(1, NULL);
    for (uint32_t cp = 0; cp < LOW_POINTS; cp++) {
        l->low[0][cp] = symbol_of(rules->map, cp);
        l->low[1][cp] = rules->whole_map ? symbol_of(rules->whole_map, cp) : 0;
    }
    return l;
}

bool words_lang_is_sound(const words_lang *l) {
    for (int k = 0; k < WORDS_PATTERNS; k++)
        if (l->rules->pattern[k] && !l->code[k]) return false;
    return l->match != NULL;
}

void words_lang_close(words_lang *l) {
    if (!l) return;
    for (int k = 0; k < WORDS_PATTERNS; k++) pcre2_code_free(l->code[k]);
    pcre2_match_data_free(l->match);
    gw_mem_free(l);
}

void words_lang_symbols(const words_lang *l, const char *text, const uint32_t *at, int64_t n,
                        uint8_t *out, uint8_t *whole) {
    const words_lang_map *second = l->rules->whole_map;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *p = (const uint8_t *)text + at[i];
        int len;
        uint32_t cp = *p < 128 ? *p : gw_utf8_decode(p, (const uint8_t *)text + at[i + 1], &len);
        out[i] = cp < LOW_POINTS ? l->low[0][cp] : symbol_of(l->rules->map, cp);
        if (second) whole[i] = cp < LOW_POINTS ? l->low[1][cp] : symbol_of(second, cp);
    }
}

/* One search of s[0..n) from `from`; sets where the match lies. */
static bool search(const words_lang *l, int which, const uint8_t *s, int64_t n, int64_t from,
                   uint32_t options, int64_t *start, int64_t *end) {
    if (!l->code[which]) return false;
    int rc =
        pcre2_match(l->code[which], s, (PCRE2_SIZE)n, (PCRE2_SIZE)from, options, l->match, NULL);
    if (rc < 0) return false; /* no match; a limit of PCRE2 counts as none */
    const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(l->match);
    *start = (int64_t)ov[0];
    *end = (int64_t)ov[1];
    return true;
}

int64_t words_lang_prefix(const words_lang *l, const uint8_t *s, int64_t n) {
    int64_t from, to;
    return search(l, WORDS_PREFIX, s, n < WINDOW ? n : WINDOW, 0, 0, &from, &to) ? to - from : 0;
}

int64_t words_lang_suffix(const words_lang *l, const uint8_t *s, int64_t n) {
    int64_t window = n > 0 && s[n - 1] == l->low[0]['.'] ? WINDOW : MARKS;
    int64_t from, to, at = n < window ? 0 : n - window;
    return search(l, WORDS_SUFFIX, s, n, at, 0, &from, &to) ? to - from : 0;
}

bool words_lang_whole(const words_lang *l, const uint8_t *s, int64_t n) {
    int64_t from, to;
    return n <= WINDOW && search(l, WORDS_WHOLE, s, n, 0, PCRE2_ANCHORED, &from, &to);
}

bool words_lang_infix(const words_lang *l, const uint8_t *s, int64_t n, int64_t from, bool empty,
                      int64_t *start, int64_t *end) {
    while (from <= n) {
        int64_t piece_end = from - from % PIECE + PIECE;
        if (piece_end > n) piece_end = n;
        if (search(l, WORDS_INFIX, s, piece_end, from, empty ? PCRE2_NOTEMPTY_ATSTART : 0, start,
                   end))
            return true;
        if (piece_end >= n) return false;
        from = piece_end;
        empty = false;
    }
    return false;
}

// ------------------------------------------------------------------------------ sentences

static bool is_quote_at(const char *p, const char *end, int *len) {
    *len = *p == '"' || *p == '\'' ? 1 : 3;
    return *len == 1 || (end - p >= 3 && !memcmp(p, "”", 3));
}
static bool ends_sentence(const char *p, const char *end, int *len) {
    return words_class_at(p, end, len) & GW_CH_TERMINAL || *p == '\n';
}
/* Behind a run of marks and line breaks at p, and one quotation mark. */
static const char *behind_marks(const char *p, const char *end) {
    int len;
    while (p < end && ends_sentence(p, end, &len)) p += len;
    if (p < end && is_quote_at(p, end, &len)) p += len;
    return p;
}

/* Matches what datatrove's expression matches: units (a capital and its full stop, or any character
 * of the line), as few as reach a mark. Where none is reached, the last capital's own full stop is
 * one. NULL: nothing. */
static const char *sentence_end(const char *p, const char *end) {
    const char *fallback = NULL;
    for (const char *at = p; at < end;) {
        int len;
        uint32_t c = words_class_at(at, end, &len);
        if (at > p && ends_sentence(at, end, &len)) return behind_marks(at, end);
        bool capital = c & GW_CH_UPPERCASE && c & GW_CH_LETTER;
        at += len;
        if (capital && at < end && *at == '.') {
            fallback = at;
            at++;
        }
    }
    return fallback ? behind_marks(fallback, end) : NULL;
}

int64_t words_trove_sentences(const char *text, int64_t n) {
    const char *p = text, *end = text + n;
    int64_t count = 0;
    while (p < end) {
        if (*p == '\n') {
            p++;
            continue;
        }
        const char *to = sentence_end(p, end);
        if (!to) break;
        bool any = false;
        for (int len; p < to; p += len) any |= !(words_class_at(p, end, &len) & GW_CH_SPACE);
        count += any;
    }
    return count;
}

// ------------------------------------------------------------------------------ names

/* Whether a list of codes, each followed by a space, holds a code. */
static bool has_code(const char *codes, const char *code) {
    size_t n = strlen(code);
    if (!n || strchr(code, ' ')) return false;
    for (const char *p = codes; (p = strstr(p, code)); p += n)
        if ((p == codes || p[-1] == ' ') && p[n] == ' ') return true;
    return false;
}

gw_status gw_splitter_for_language(const char *language, gw_splitter *out, gw_diags *dg) {
    if (gw_splitter_find(language, out)) return GW_OK;
    /* A script that is cut as the language is without it: deu_Latn. */
    char bare[16] = "";
    const char *script = strchr(language, '_');
    if (script && script - language < (int)sizeof bare)
        memcpy(bare, language, (size_t)(script - language));
    for (int bared = 0; bared < 2; bared++) {
        const char *code = bared ? bare : language;
        for (size_t i = 0; i < GW_COUNT(cut_by); i++)
            if (has_code(cut_by[i].codes, code) && gw_splitter_find(cut_by[i].name, out))
                return GW_OK;
        for (size_t i = 0; i < GW_COUNT(not_cut); i++) {
            if (!has_code(not_cut[i].codes, code)) continue;
            gw_status s = GW_FAIL(dg, GW_ERR_UNSUPPORTED, "data-words-language",
                                  "words of the language '%s' are not cut here: datatrove asks %s",
                                  language, not_cut[i].name);
            if (dg && dg->last)
                gw_diag_hint(dg, dg->last,
                             "name how to cut instead: unicode, whitespace, spacy_xx; figures "
                             "are then not datatrove's");
            return s;
        }
    }
    gw_status s = GW_FAIL(dg, GW_ERR_UNSUPPORTED, "data-words-language",
                          "no language has the code '%s' (ISO 639-1 or 639-3)", language);
    if (dg && dg->last)
        gw_diag_hint(dg, dg->last,
                     "name a splitter instead: spacy_en, spacy_xx, whitespace or unicode");
    return s;
}

// SPDX-License-Identifier: Apache-2.0
// The cascade of heuristics for English that NeMo Curator ships (heuristic_filter_en).
//
// Its words are those of str.split(), its sentences are lines that hold more than white space, its
// paragraphs what stands between two line breaks. Ratios are of characters of the whole text.
// Repeats are what removing them would take away: of lines and paragraphs the share that is left,
// of the most frequent n-gram the characters that text.replace() would delete, of other n-grams all
// occurrences but the first, each word once. A text of fewer than n words fails the rule for n.
//
// Two things are left out: of its cookie notices those of whole sentences that hold none of the
// short phrases, and which of several equally frequent n-grams is taken, which depends on Python's
// hash seed there and is the first here. Letters are those of str.isalpha().
#include <string.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/text/words_impl.h"    /* words_class_at */

enum {
    P_NON_ALNUM,
    P_SYMBOLS,
    P_NUMBERS,
    P_URLS,
    P_SPACE,
    P_PARENS,
    P_BOILERPLATE,
    P_LINES,
    P_PARAS,
    P_LINE_CHARS,
    P_PARA_CHARS,
    P_MIN_WORDS,
    P_MAX_WORDS,
    P_NO_ENDMARK,
    P_ALPHA,
    P_COMMON,
    P_MIN_MEAN,
    P_MAX_MEAN,
    P_LONG,
    P_ELLIPSIS,
    P_TOP,
    P_DUP,
    P_BULLETS
};
static const gw_filter_param params[] = {
    FILTER_LIMIT("max_non_alpha_numeric_to_text_ratio", 0.25,
                 "most characters but a-z, 0-9 and . , ! ?"),
    FILTER_LIMIT("max_symbol_to_word_ratio", 0.1, "most words that are ellipses or hashes"),
    FILTER_LIMIT("max_number_to_text_ratio", 0.15, "most digits"),
    FILTER_LIMIT("max_url_to_text_ratio", 0.2, "most characters in addresses"),
    FILTER_LIMIT("max_white_space_ratio", 0.25, "most white space"),
    FILTER_LIMIT("max_parentheses_ratio", 0.1, "most brackets"),
    FILTER_LIMIT("max_boilerplate_string_ratio", 0.4,
                 "most paragraphs that speak of cookies or terms"),
    FILTER_LIMIT("max_repeated_line_fraction", 0.7, "least different lines"),
    FILTER_LIMIT("max_repeated_paragraphs_ratio", 0.7, "least different paragraphs"),
    FILTER_LIMIT("max_repeated_lines_char_ratio", 0.8, "least characters in different lines"),
    FILTER_LIMIT("max_repeated_paragraphs_char_ratio", 0.8,
                 "least characters in different paragraphs"),
    FILTER_LIMIT("min_words", 50, "fewest words"),
    FILTER_LIMIT("max_words", 100000, "most words"),
    FILTER_LIMIT("max_num_sentences_without_endmark_ratio", 0.85,
                 "most lines without a mark at their end"),
    FILTER_LIMIT("min_words_with_alphabets", 0.8, "least words with a letter"),
    FILTER_LIMIT("min_num_common_words", 2, "fewest common English words, each time counted"),
    FILTER_LIMIT("min_mean_word_length", 3, "least mean length of a word"),
    FILTER_LIMIT("max_mean_word_length", 10, "largest mean length"),
    FILTER_LIMIT("max_word_length", 1000, "longest word"),
    FILTER_LIMIT("max_num_lines_ending_with_ellipsis_ratio", 0.3,
                 "most lines that end with an ellipsis"),
    FILTER_LIMIT("top_ngrams", 1,
                 "scales the limits 0.2, 0.18, 0.16 of the most frequent 2, 3, 4 words"),
    FILTER_LIMIT("duplicate_ngrams", 1,
                 "scales the limits 0.15 to 0.10 of repeats of 5 to 10 words"),
    FILTER_LIMIT("max_bullet_lines_ratio", 0.9, "most lines that begin with a bullet"),
};
enum {
    C_NON_ALNUM,
    C_SYMBOLS,
    C_NUMBERS,
    C_URLS,
    C_SPACE,
    C_PARENS,
    C_BOILERPLATE,
    C_LINES,
    C_PARAS,
    C_LINE_CHARS,
    C_PARA_CHARS,
    C_WORDS,
    C_NO_ENDMARK,
    C_ALPHA,
    C_COMMON,
    C_MEAN,
    C_LONG,
    C_ELLIPSIS,
    C_TOP2,
    C_DUP5 = C_TOP2 + 3,
    C_BULLETS = C_DUP5 + 6
};
static const char *const columns[] = {
    "alpha_numeric",
    "symbol_to_word",
    "numbers_ratio",
    "urls_ratio",
    "white_space",
    "parentheses_ratio",
    "boilerplate_string_ratio",
    "repeated_lines",
    "repeated_paragraphs",
    "repeated_lines_char",
    "repeated_paragraphs_char",
    "word_count",
    "punctuation",
    "words_without_alphabets",
    "common_english_words",
    "mean_word_length",
    "max_word_length",
    "ellipsis",
    "repeating_top_2grams",
    "repeating_top_3grams",
    "repeating_top_4grams",
    "repeating_dup_5gram",
    "repeating_dup_6gram",
    "repeating_dup_7gram",
    "repeating_dup_8gram",
    "repeating_dup_9gram",
    "repeating_dup_10gram",
    "bullet_ratio",
};

static bool is_url_byte(char c) {
    return (c >= '$' && c <= '_') || (c >= 'a' && c <= 'z') || c == '!';
}

static int64_t url_chars(const char *p, int64_t n) {
    int64_t chars = 0;
    const char *end = p + n;
    while (end - p > 7 && (p = memmem(p, (size_t)(end - p), "http", 4))) {
        const char *q = p + 4;
        if (q < end && *q == 's') q++;
        if (end - q < 4 || memcmp(q, "://", 3) != 0 || !is_url_byte(q[3])) {
            p += 4;
            continue;
        }
        for (q += 3; q < end && is_url_byte(*q);) q++;
        chars += q - p;
        p = q;
    }
    return chars;
}

/* Shares of characters. */
static void count_characters(const char *text, int64_t n, int64_t chars, double *c) {
    int64_t plain = 0, digits = 0, space = 0, parens = 0;
    const char *end = text + n;
    int len;
    for (const char *p = text; p < end; p += len) {
        uint32_t cls = words_class_at(p, end, &len);
        char b = *p;
        plain += (cls & GW_CH_LETTER && len == 1) || (b >= '0' && b <= '9') || b == '\n' ||
                 b == '?' || b == '!' || b == ',' || b == '.';
        digits += (cls & GW_CH_DIGIT) != 0;
        space += b == ' ' || b == '\n' || b == '\t' || b == '\r' || b == '\b';
        parens += b == '(' || b == ')' || b == '[' || b == ']' || b == '{' || b == '}';
        parens += len == 3 && (!memcmp(p, "⟨", 3) || !memcmp(p, "⟩", 3));
    }
    double all = (double)chars;
    c[C_NON_ALNUM] = chars ? (all - (double)plain) / all : 1;
    c[C_NUMBERS] = chars ? (double)digits / all : 1;
    c[C_URLS] = chars ? (double)url_chars(text, n) / all : 1;
    c[C_SPACE] = chars ? (double)space / all : 1;
    c[C_PARENS] = chars ? (double)parens / all : 1;
}

static const char *const ellipses[] = {"...", "[...]", "…",           "(...)",
                                       "[…]", "-»",    "read more..", "read more"};

static bool ends_nocase(gw_line l, const char *what) {
    int64_t n = (int64_t)strlen(what);
    return l.bytes >= n && !strncasecmp(l.text + l.bytes - n, what, (size_t)n);
}
static bool ends_with_ellipsis(gw_line l) {
    for (int k = 0; k < FILTER_COUNT(ellipses); k++)
        if (ends_nocase(l, ellipses[k])) return true;
    return false;
}

/* "#" runs make up more than half of its characters, or it is an ellipsis. */
static bool is_symbol(gw_line w, int64_t chars) {
    for (int k = 0; k < FILTER_COUNT(ellipses); k++)
        if (w.bytes == (int64_t)strlen(ellipses[k]) &&
            !memcmp(w.text, ellipses[k], (size_t)w.bytes))
            return true;
    int64_t runs = 0;
    for (int64_t i = 0; i < w.bytes; i++) runs += w.text[i] == '#' && (!i || w.text[i - 1] != '#');
    return 2 * runs > chars;
}

static void count_words(const char *text, const gw_words *w, const gw_word_facts *f, double *c) {
    int64_t symbols = 0, alpha = 0, common = 0, chars = 0, longest = 0;
    for (int64_t i = 0; i < w->count; i++) {
        gw_line word = {text + w->items[i].offset, w->items[i].bytes};
        symbols += is_symbol(word, f[i].chars);
        alpha += (f[i].flags & GW_WORD_LETTER) != 0;
        common += filter_is_stop_word(false, word.text, word.bytes);
        chars += f[i].chars;
        if (f[i].chars > longest) longest = f[i].chars;
    }
    double words = (double)w->count;
    c[C_WORDS] = words;
    c[C_SYMBOLS] = filter_ratio((double)symbols, words);
    c[C_ALPHA] = filter_ratio((double)alpha, words);
    c[C_COMMON] = (double)common;
    c[C_MEAN] = filter_ratio((double)chars, words);
    c[C_LONG] = (double)longest;
}

static bool is_bullet(gw_line l) {
    static const char *const bullets[] = {"•", "‣", "⁃", "⁌", "⁍", "∙",
                                          "○", "●", "◘", "◦", "⦾", "⦿"};
    for (int k = 0; k < FILTER_COUNT(bullets); k++)
        if (gw_line_begins(l, bullets[k])) return true;
    return false;
}

static void count_lines(gw_measure *m, const char *text, int64_t n, double *c) {
    gw_pieces p;
    int64_t open = 0, ends = 0, bullets = 0;
    gw_line l;
    gw_pieces_begin(m, &p, gw_text_count(text, n, "\n") + 1);
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &l);) {
        gw_line s = gw_line_strip(l);
        if (!s.bytes) continue;
        gw_pieces_add(&p, l);
        open += !strchr(".?!\"'", s.text[s.bytes - 1]) || !s.text[s.bytes - 1];
        ends += ends_with_ellipsis(s);
        bullets += is_bullet(s);
    }
    double lines = (double)p.s.pieces;
    c[C_LINES] = filter_ratio(lines - (double)p.s.later, lines);
    c[C_LINE_CHARS] = filter_ratio((double)(p.s.chars - p.s.later_chars), (double)p.s.chars);
    c[C_NO_ENDMARK] = filter_ratio((double)open, lines);
    c[C_ELLIPSIS] = filter_ratio((double)ends, lines);
    c[C_BULLETS] = filter_ratio((double)bullets, lines);
}

static void count_paragraphs(gw_measure *m, const char *text, int64_t n, double *c) {
    static const char *const phrases[] = {
        "terms of use", "privacy policy",           "cookie policy",
        "uses cookies", "privacy overview",         "use of cookies",
        "use cookies",  "privacy & cookies policy", "privacy and cookies policy"};
    gw_pieces p;
    gw_pieces_begin(m, &p, gw_text_count(text, n, "\n\n") + 1);
    int64_t boilerplate = 0;
    bool lorem = false;
    const char *at = text, *end = text + n;
    for (;;) { /* text.split("\n\n") */
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        gw_line l = {at, (stop ? stop : end) - at};
        gw_pieces_add(&p, l);
        lorem |= gw_text_has_nocase(l.text, l.bytes, "lorem ipsum");
        bool any = false;
        for (int k = 0; k < FILTER_COUNT(phrases) && !any; k++)
            any = gw_text_has_nocase(l.text, l.bytes, phrases[k]);
        boilerplate += any;
        if (!stop) break;
        at = stop + 2;
    }
    double paras = (double)p.s.pieces;
    c[C_BOILERPLATE] = lorem ? 1 : (double)boilerplate / paras;
    c[C_PARAS] = (paras - (double)p.s.later) / paras;
    c[C_PARA_CHARS] = filter_ratio((double)(p.s.chars - p.s.later_chars), (double)p.s.chars);
}

/* Characters that text.replace("w1 w2 ...", "") would delete. */
static int64_t replaced_chars(gw_measure *m, const gw_words *w, int64_t at, int n) {
    const char *text = gw_str_c(m->text);
    gw_str *key = &m->spare;
    gw_str_clear(key);
    for (int k = 0; k < n; k++) {
        if (k) gw_str_add_char(key, ' ');
        gw_str_add_n(key, text + w->items[at + k].offset, w->items[at + k].bytes);
    }
    if (memchr(gw_str_c(key), 0, key->len)) return 0; /* a NUL: cannot be searched for */
    return gw_text_count(text, (int64_t)m->text->len, gw_str_c(key)) *
           gw_text_chars(gw_str_c(key), (int64_t)key->len);
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len, chars = gw_text_chars(text, n);
    const gw_word_facts *f;
    const gw_words *w = gw_measure_words(m, GW_SPLIT_WHITESPACE, &f);
    count_characters(text, n, chars, c);
    count_words(text, w, f, c);
    count_lines(m, text, n, c);
    count_paragraphs(m, text, n, c);
    const gw_gram_stats *g = gw_measure_grams(m, GW_SPLIT_WHITESPACE, GW_GRAMS_ALL);
    for (int k = 2; k <= 4; k++)
        c[C_TOP2 + k - 2] =
            g[k].grams ? (double)replaced_chars(m, w, g[k].top_at, k) / (double)chars : 1;
    for (int k = 5; k <= 10; k++)
        c[C_DUP5 + k - 5] = g[k].grams ? (double)g[k].later_chars / (double)chars : 1;
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    static const double gram_limits[] = {0.2, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.10};
    const double *p = a->number;
    for (int k = P_NON_ALNUM; k <= P_BOILERPLATE; k++)
        if (filter_over(c[k], p[k])) return k;
    for (int k = P_LINES; k <= P_PARA_CHARS; k++)
        if (filter_under(c[k], p[k])) return k;
    if (filter_under(c[C_WORDS], p[P_MIN_WORDS]) || filter_over(c[C_WORDS], p[P_MAX_WORDS]))
        return C_WORDS;
    if (filter_over(c[C_NO_ENDMARK], p[P_NO_ENDMARK])) return C_NO_ENDMARK;
    if (filter_under(c[C_ALPHA], p[P_ALPHA])) return C_ALPHA;
    if (filter_under(c[C_COMMON], p[P_COMMON])) return C_COMMON;
    if (filter_under(c[C_MEAN], p[P_MIN_MEAN]) || filter_over(c[C_MEAN], p[P_MAX_MEAN]))
        return C_MEAN;
    if (filter_over(c[C_LONG], p[P_LONG])) return C_LONG;
    if (filter_over(c[C_ELLIPSIS], p[P_ELLIPSIS])) return C_ELLIPSIS;
    for (int k = 0; k < 9; k++)
        if (filter_over(c[C_TOP2 + k], gram_limits[k] * p[k < 3 ? P_TOP : P_DUP]))
            return C_TOP2 + k;
    return filter_over(c[C_BULLETS], p[P_BULLETS]) ? C_BULLETS : -1;
}

const gw_filter_desc gw_filter_heuristics_nemo = {
    .name = "heuristics/nemo",
    .about = "NeMo Curator's heuristics for English text",
    .params = params,
    .nparams = FILTER_COUNT(params),
    .columns = columns,
    .ncolumns = FILTER_COUNT(columns),
    .reasons = columns,
    .nreasons = FILTER_COUNT(columns),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure,
    .decide = decide,
};

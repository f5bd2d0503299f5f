// SPDX-License-Identifier: Apache-2.0
// Gopher's rules as DCLM's mappers have them, which its reproduction of RefinedWeb uses.
//
// Li et al. 2024 (DataComp-LM), baselines/mappers/filters. Words are of three sorts there: those of
// str.split() for most rules; for the length of the page those of fastText's tokenizer that begin
// with a letter or number; and for n-grams the segments of Unicode's annex 29 that do. Lines and
// paragraphs are stripped and empty ones do not count; all occurrences of a repeated one do. A page
// of a single line passes the rule of lines, one without any does not.
#include <string.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/text/words_impl.h"    /* words_class_at */

enum {
    Q_MIN_WORDS,
    Q_MAX_WORDS,
    Q_MIN_MEAN,
    Q_MAX_MEAN,
    Q_SYMBOLS,
    Q_BULLETS,
    Q_ELLIPSIS,
    Q_ALPHA,
    Q_STOPS
};
static const gw_filter_param quality_params[] = {
    FILTER_LIMIT("min_length", 50, "fewest words"),
    FILTER_LIMIT("max_length", 100000, "most words"),
    FILTER_LIMIT("min_word_length", 3, "least mean length of a word, characters"),
    FILTER_LIMIT("max_word_length", 10, "largest mean length"),
    FILTER_LIMIT("max_symbol_to_word_ratio", 0.1, "most '#' and ellipses per word"),
    FILTER_LIMIT("max_bullet_start_ratio", 0.9, "most lines that begin with a bullet"),
    FILTER_LIMIT("max_ellipsis_end_ratio", 0.3, "most lines that end with an ellipsis"),
    FILTER_LIMIT("max_non_alphabetic_ratio", 0.2, "most words without a letter"),
    FILTER_LIMIT("min_stop_word", 2, "fewest stop words, each time counted"),
};
enum { C_PAGE_WORDS, C_WORDS, C_MEAN, C_SYMBOLS, C_LINES, C_BULLETS, C_ENDS, C_NO_ALPHA, C_STOPS };
static const char *const quality_columns[] = {
    "page_words",   "words",          "mean_word_length",     "symbols",    "lines",
    "bullet_lines", "ellipsis_lines", "non_alphabetic_words", "stop_words",
};
static const char *const quality_reasons[] = {
    "page_length",    "word_length",           "symbol_ratio", "bullet_count",
    "ellipsis_count", "alphabetic_word_ratio", "stop_word",
};

/* Words as fastText cuts them (white space of ASCII, and NUL) that begin with a letter or number.
 */
int64_t gw_dclm_page_words(const char *p, int64_t n) {
    int64_t words = 0;
    const char *end = p + n;
    while (p < end) {
        while (p < end && (*p == ' ' || (*p >= '\t' && *p <= '\r') || *p == 0)) p++;
        if (p == end) break;
        const char *from = p;
        while (p < end && !(*p == ' ' || (*p >= '\t' && *p <= '\r') || *p == 0)) p++;
        int len;
        words += words_class_at(from, p, &len) & GW_CH_WORD && *from != '_';
    }
    return words;
}

static void measure_quality(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    const gw_word_facts *f;
    const gw_words *w = gw_measure_words(m, GW_SPLIT_WHITESPACE, &f);
    int64_t chars = 0, no_alpha = 0, stops = 0;
    for (int64_t i = 0; i < w->count; i++) {
        chars += f[i].chars;
        no_alpha += !(f[i].flags & GW_WORD_LETTER);
        stops += w->items[i].bytes <= 4 &&
                 filter_is_stop_word(true, text + w->items[i].offset, w->items[i].bytes);
    }
    int64_t lines = 0, bullets = 0, ends = 0;
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &line);) {
        line = gw_line_strip(line);
        if (!line.bytes) continue;
        lines++;
        bullets += gw_line_begins(line, "●") || gw_line_begins(line, "•") ||
                   gw_line_begins(line, "*") || gw_line_begins(line, "-");
        ends += gw_line_ends(line, "...") || gw_line_ends(line, ". . .") || gw_line_ends(line, "…");
    }
    c[C_PAGE_WORDS] = (double)gw_dclm_page_words(text, n);
    c[C_WORDS] = (double)w->count;
    c[C_MEAN] = filter_ratio((double)chars, (double)w->count);
    c[C_SYMBOLS] = (double)(gw_text_count(text, n, "#") + gw_text_count(text, n, "...") +
                            gw_text_count(text, n, ". . .") + gw_text_count(text, n, "…"));
    c[C_LINES] = (double)lines;
    c[C_BULLETS] = (double)bullets;
    c[C_ENDS] = (double)ends;
    c[C_NO_ALPHA] = (double)no_alpha;
    c[C_STOPS] = (double)stops;
}

static int decide_quality(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    double words = c[C_WORDS];
    if (filter_under(c[C_PAGE_WORDS], p[Q_MIN_WORDS]) ||
        filter_over(c[C_PAGE_WORDS], p[Q_MAX_WORDS]))
        return 0;
    if (words == 0 || filter_under(c[C_MEAN], p[Q_MIN_MEAN]) ||
        filter_over(c[C_MEAN], p[Q_MAX_MEAN]))
        return 1;
    if (filter_over(c[C_SYMBOLS] / words, p[Q_SYMBOLS])) return 2;
    if (filter_over(c[C_BULLETS], p[Q_BULLETS] * c[C_LINES])) return 3;
    if (filter_over(c[C_ENDS], p[Q_ELLIPSIS] * c[C_LINES])) return 4;
    if (filter_over(c[C_NO_ALPHA] / words, p[Q_ALPHA])) return 5;
    return filter_under(c[C_STOPS], p[Q_STOPS]) ? 6 : -1;
}

const gw_filter_desc gw_filter_gopher_quality_dclm = {
    .name = "gopher_quality/dclm",
    .about = "Gopher's rules of quality as DCLM's mappers have them",
    .params = quality_params,
    .nparams = FILTER_COUNT(quality_params),
    .columns = quality_columns,
    .ncolumns = FILTER_COUNT(quality_columns),
    .reasons = quality_reasons,
    .nreasons = FILTER_COUNT(quality_reasons),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure_quality,
    .decide = decide_quality,
};

enum { R_LINES, R_PARAS, R_LINE_CHARS, R_PARA_CHARS, R_GRAM2, R_SKIP_PARAS = R_GRAM2 + 9 };
static const gw_filter_param repetition_params[] = {
    FILTER_LIMIT("line", 0.3, "most lines that stand more than once"),
    FILTER_LIMIT("paragraph", 0.3, "the same for paragraphs"),
    FILTER_LIMIT("line_characters", 0.2, "most characters in such lines"),
    FILTER_LIMIT("paragraph_characters", 0.2, "the same for paragraphs"),
    FILTER_LIMIT("top_2_gram", 0.2, "most characters in the most frequent pair of words"),
    FILTER_LIMIT("top_3_gram", 0.18, "the same for three words"),
    FILTER_LIMIT("top_4_gram", 0.16, "the same for four"),
    FILTER_LIMIT("dup_5_gram", 0.15, "most characters of words in repeated runs of five"),
    FILTER_LIMIT("dup_6_gram", 0.14, "the same for six"),
    FILTER_LIMIT("dup_7_gram", 0.13, "the same for seven"),
    FILTER_LIMIT("dup_8_gram", 0.12, "the same for eight"),
    FILTER_LIMIT("dup_9_gram", 0.11, "the same for nine"),
    FILTER_LIMIT("dup_10_gram", 0.10, "the same for ten"),
    FILTER_FLAG("skip_paragraph", 0, "leave out the rules of paragraphs"),
};
enum { D_LINES, D_LINE_DUPS, D_LINE_CHARS, D_PARAS, D_PARA_DUPS, D_PARA_CHARS, D_GRAM2 };
static const char *const repetition_columns[] = {
    "lines",          "dup_lines",           "dup_line_chars", "paragraphs",
    "dup_paragraphs", "dup_paragraph_chars", "top_2_gram",     "top_3_gram",
    "top_4_gram",     "dup_5_gram",          "dup_6_gram",     "dup_7_gram",
    "dup_8_gram",     "dup_9_gram",          "dup_10_gram",
};
static const char *const repetition_reasons[] = {
    "line",       "paragraph",  "line_characters", "paragraph_characters", "top_2_gram",
    "top_3_gram", "top_4_gram", "dup_5_gram",      "dup_6_gram",           "dup_7_gram",
    "dup_8_gram", "dup_9_gram", "dup_10_gram",
};

/* Shares, with the rule for single pieces in them: 0 passes any limit. */
static void piece_shares(gw_measure *m, gw_line_end kind, double *c) {
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    gw_pieces p;
    gw_pieces_begin(m, &p, gw_text_count(text, n, "\n") + 1);
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, kind); gw_lines_next(&it, &line);) {
        line = gw_line_strip(line);
        if (line.bytes) gw_pieces_add(&p, line);
    }
    c[0] = (double)p.s.pieces;
    c[1] = p.s.pieces > 1 ? (double)p.s.repeat / (double)p.s.pieces : 0;
    c[2] = p.s.pieces > 1 ? (double)p.s.repeat_chars / (double)p.s.chars : 0;
}

static void measure_repetition(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    piece_shares(m, GW_LINES_NEWLINE, c + D_LINES);
    piece_shares(m, GW_LINES_BLANK, c + D_PARAS);
    const gw_word_facts *f;
    const gw_words *w = gw_measure_words(m, GW_SPLIT_UNICODE, &f);
    int64_t chars = 0;
    for (int64_t i = 0; i < w->count; i++) chars += f[i].chars;
    const gw_gram_stats *g = gw_measure_grams(m, GW_SPLIT_UNICODE, GW_GRAMS_ALL);
    for (int n = 2; n <= 10; n++) {
        int64_t part = n <= 4 ? g[n].top_longest * g[n].top_count : g[n].covered_chars;
        c[D_GRAM2 + n - 2] = g[n].top_count > 1 ? (double)part / (double)chars : 0;
    }
}

static int decide_repetition(const double *c, const gw_filter_facts *facts,
                             const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    bool paras = !filter_is_on(a, R_SKIP_PARAS);
    if (c[D_LINES] == 0 || filter_over(c[D_LINE_DUPS], p[R_LINES])) return 0;
    if (paras && filter_over(c[D_PARA_DUPS], p[R_PARAS])) return 1;
    if (filter_over(c[D_LINE_CHARS], p[R_LINE_CHARS])) return 2;
    if (paras && filter_over(c[D_PARA_CHARS], p[R_PARA_CHARS])) return 3;
    for (int k = 0; k < 9; k++)
        if (filter_over(c[D_GRAM2 + k], p[R_GRAM2 + k])) return 4 + k;
    return -1;
}

const gw_filter_desc gw_filter_gopher_repetition_dclm = {
    .name = "gopher_repetition/dclm",
    .about = "Gopher's rules of repetition as DCLM's massive_web_repetition_filters",
    .params = repetition_params,
    .nparams = FILTER_COUNT(repetition_params),
    .columns = repetition_columns,
    .ncolumns = FILTER_COUNT(repetition_columns),
    .reasons = repetition_reasons,
    .nreasons = FILTER_COUNT(repetition_reasons),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure_repetition,
    .decide = decide_repetition,
};

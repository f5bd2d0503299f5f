// SPDX-License-Identifier: Apache-2.0
// Gopher's rules as Dolma's tagger gopher_v1 measures them.
//
// Dolma (Soldaini et al. 2024) tags a document with attributes and removes it by thresholds in a
// mixer; the thresholds here are those of Gopher's table A1 that its configurations use. Words are
// those of str.split(); word length is a median; a symbol counts once per word that holds one; stop
// words count each time; lines are those of text.split("\n"). A repeated n-gram counts all its
// occurrences, among all n-grams, so overlapping ones count several times on both sides.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"              /* gw_mem_alloc */
#include "data/filter/filter_impl.h" /* gw_filter_desc */

enum {
    Q_MIN_WORDS,
    Q_MAX_WORDS,
    Q_MIN_MEDIAN,
    Q_MAX_MEDIAN,
    Q_SYMBOLS,
    Q_ALPHA,
    Q_STOPS,
    Q_BULLETS,
    Q_ELLIPSIS
};
static const gw_filter_param quality_params[] = {
    FILTER_LIMIT("min_word_count", 50, "fewest words"),
    FILTER_LIMIT("max_word_count", 100000, "most words"),
    FILTER_LIMIT("min_median_word_length", 3, "least median length of a word, characters"),
    FILTER_LIMIT("max_median_word_length", 10, "largest median length"),
    FILTER_LIMIT("max_symbol_to_word_ratio", 0.1, "most words with '#' or an ellipsis"),
    FILTER_LIMIT("min_fraction_of_words_with_alpha_character", 0.8, "least words with a letter"),
    FILTER_LIMIT("min_required_word_count", 2, "fewest stop words, each time counted"),
    FILTER_LIMIT("max_fraction_of_lines_starting_with_bullet_point", 0.9, "most such lines"),
    FILTER_LIMIT("max_fraction_of_lines_ending_with_ellipsis", 0.3, "most such lines"),
};
static const char *const quality_columns[] = {
    "word_count",
    "median_word_length",
    "symbol_to_word_ratio",
    "fraction_of_words_with_alpha_character",
    "required_word_count",
    "fraction_of_lines_starting_with_bullet_point",
    "fraction_of_lines_ending_with_ellipsis",
};
static const char *const quality_reasons[] = {
    "few_words",  "many_words",         "short_words", "long_words", "symbols",
    "no_letters", "few_required_words", "bullets",     "ellipses",
};

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double median(const gw_word_facts *f, int64_t n) {
    if (!n) return 0;
    /* Nearly all words are short: count lengths, and sort only if the middle lies among others. */
    int64_t count[64] = {0};
    for (int64_t i = 0; i < n; i++) count[f[i].chars < 63 ? f[i].chars : 63]++;
    int64_t lo = (n - 1) / 2, hi = n / 2, seen = 0;
    double a = -1, b = -1;
    for (int k = 0; k < 63; k++) {
        seen += count[k];
        if (a < 0 && seen > lo) a = k;
        if (b < 0 && seen > hi) b = k;
    }
    if (a >= 0 && b >= 0) return (a + b) / 2;
    uint32_t *len = gw_mem_alloc((size_t)n * sizeof *len);
    for (int64_t i = 0; i < n; i++) len[i] = f[i].chars;
    qsort(len, (size_t)n, sizeof *len, by_size);
    double mid = ((double)len[lo] + (double)len[hi]) / 2;
    gw_mem_free(len);
    return mid;
}

static void measure_quality(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    for (int i = 0; i < FILTER_COUNT(quality_columns); i++) c[i] = 0;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    if (!n) return;
    const gw_word_facts *f;
    const gw_words *w = gw_measure_words(m, GW_SPLIT_WHITESPACE, &f);
    int64_t symbols = 0, alpha = 0, required = 0;
    for (int64_t i = 0; i < w->count; i++) {
        const char *p = text + w->items[i].offset;
        int64_t size = w->items[i].bytes;
        alpha += (f[i].flags & GW_WORD_LETTER) != 0;
        symbols += memchr(p, '#', (size_t)size) || gw_text_count(p, size, "…");
        required += size <= 4 && filter_is_stop_word(false, p, size);
    }
    double words = w->count ? (double)w->count : 1;
    int64_t lines = 0, bullets = 0, ends = 0;
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &line); lines++) {
        bullets += gw_line_begins(line, "*") || gw_line_begins(line, "-");
        ends += gw_line_ends(line, "…");
    }
    c[0] = (double)w->count;
    c[1] = median(f, w->count);
    c[2] = (double)symbols / words;
    c[3] = (double)alpha / words;
    c[4] = (double)required;
    c[5] = (double)bullets / (double)lines;
    c[6] = (double)ends / (double)lines;
}

static int decide_quality(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    if (filter_under(c[0], p[Q_MIN_WORDS])) return 0;
    if (filter_over(c[0], p[Q_MAX_WORDS])) return 1;
    if (filter_under(c[1], p[Q_MIN_MEDIAN])) return 2;
    if (filter_over(c[1], p[Q_MAX_MEDIAN])) return 3;
    if (filter_over(c[2], p[Q_SYMBOLS])) return 4;
    if (filter_under(c[3], p[Q_ALPHA])) return 5;
    if (filter_under(c[4], p[Q_STOPS])) return 6;
    if (filter_over(c[5], p[Q_BULLETS])) return 7;
    return filter_over(c[6], p[Q_ELLIPSIS]) ? 8 : -1;
}

const gw_filter_desc gw_filter_gopher_quality_dolma = {
    .name = "gopher_quality/dolma",
    .about = "Gopher's rules of quality by the attributes of Dolma's gopher_v1",
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

static const gw_filter_param repetition_params[] = {
    FILTER_LIMIT("fraction_of_duplicate_lines", 0.3, "most lines that stand more than once"),
    FILTER_LIMIT("fraction_of_characters_in_duplicate_lines", 0.3, "most characters in them"),
    FILTER_LIMIT("most_common_2grams", 0.2, "most characters in the most frequent pair of words"),
    FILTER_LIMIT("most_common_3grams", 0.18, "the same for three words"),
    FILTER_LIMIT("most_common_4grams", 0.16, "the same for four"),
    FILTER_LIMIT("duplicate_5grams", 0.15, "most characters in repeated runs of five words"),
    FILTER_LIMIT("duplicate_6grams", 0.14, "the same for six"),
    FILTER_LIMIT("duplicate_7grams", 0.13, "the same for seven"),
    FILTER_LIMIT("duplicate_8grams", 0.12, "the same for eight"),
    FILTER_LIMIT("duplicate_9grams", 0.11, "the same for nine"),
    FILTER_LIMIT("duplicate_10grams", 0.10, "the same for ten"),
};
static const char *const repetition_names[] = {
    "duplicate_lines",    "duplicate_line_characters", "most_common_2grams", "most_common_3grams",
    "most_common_4grams", "duplicate_5grams",          "duplicate_6grams",   "duplicate_7grams",
    "duplicate_8grams",   "duplicate_9grams",          "duplicate_10grams",
};

static void measure_repetition(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    for (int i = 0; i < FILTER_COUNT(repetition_names); i++) c[i] = 0;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len, chars = 0;
    if (!n) return;
    const gw_word_facts *f;
    const gw_words *w = gw_measure_words(m, GW_SPLIT_WHITESPACE, &f);
    for (int64_t i = 0; i < w->count; i++) chars += f[i].chars;
    double total = chars ? (double)chars : 1;
    gw_pieces p;
    gw_pieces_begin(m, &p, gw_text_count(text, n, "\n") + 1);
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &line);)
        gw_pieces_add(&p, line);
    c[0] = (double)p.s.repeat / (double)p.s.pieces;
    c[1] = (double)p.s.repeat_chars / total;
    const gw_gram_stats *g = gw_measure_grams(m, GW_SPLIT_WHITESPACE, GW_GRAMS_ALL);
    for (int k = 2; k <= 4; k++)
        if (g[k].grams) c[k] = (double)(g[k].top_count * g[k].top_chars) / total;
    for (int k = 5; k <= 10; k++)
        if (g[k].all_chars) c[k] = (double)g[k].repeated_chars / (double)g[k].all_chars;
}

static int decide_repetition(const double *c, const gw_filter_facts *facts,
                             const gw_filter_args *a) {
    (void)facts;
    for (int i = 0; i < FILTER_COUNT(repetition_names); i++)
        if (filter_over(c[i], a->number[i])) return i;
    return -1;
}

const gw_filter_desc gw_filter_gopher_repetition_dolma = {
    .name = "gopher_repetition/dolma",
    .about = "Gopher's rules of repetition by the attributes of Dolma's gopher_v1",
    .params = repetition_params,
    .nparams = FILTER_COUNT(repetition_params),
    .columns = repetition_names,
    .ncolumns = FILTER_COUNT(repetition_names),
    .reasons = repetition_names,
    .nreasons = FILTER_COUNT(repetition_names),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure_repetition,
    .decide = decide_repetition,
};

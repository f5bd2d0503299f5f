// SPDX-License-Identifier: Apache-2.0
// Gopher's rules of quality and repetition as datatrove applies them.
//
// Rae et al. 2021 (arXiv 2112.11446), appendix A1, give the rules in words; the numbers depend on
// what a word, a line and a repeat are. datatrove (GopherQualityFilter, GopherRepetitionFilter)
// takes spaCy's tokens for words, so punctuation counts among them; leaves tokens that are all
// punctuation out of the length rules only; takes str.splitlines() for lines of bullets; and counts
// a repeated n-gram greedily, stepping over each repeat, its characters without spaces against
// those of the text with them. The order of the checks, which decides the reason, is kept too.
#include <string.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */

enum {
    Q_MIN_WORDS,
    Q_MAX_WORDS,
    Q_MIN_MEAN,
    Q_MAX_MEAN,
    Q_SYMBOLS,
    Q_BULLETS,
    Q_ELLIPSIS,
    Q_ALPHA,
    Q_MIN_STOPS,
    Q_STOPS,
    Q_LANGUAGE
};
static const gw_filter_param quality_params[] = {
    FILTER_LIMIT("min_doc_words", 50, "fewest words that are not punctuation"),
    FILTER_LIMIT("max_doc_words", 100000, "most words that are not punctuation"),
    FILTER_LIMIT("min_avg_word_length", 3, "least mean length of those words, characters"),
    FILTER_LIMIT("max_avg_word_length", 10, "largest mean length"),
    FILTER_LIMIT("max_symbol_word_ratio", 0.1, "most '#', and most ellipses, per word"),
    FILTER_LIMIT("max_bullet_lines_ratio", 0.9, "most lines that begin with a bullet"),
    FILTER_LIMIT("max_ellipsis_lines_ratio", 0.3, "most lines that end with an ellipsis"),
    FILTER_LIMIT("max_non_alpha_words_ratio", 0.8, "least words with a letter (named so there)"),
    FILTER_LIMIT("min_stop_words", 2, "fewest different stop words"),
    FILTER_TEXT("stop_words", "the,be,to,of,and,that,have,with", "the stop words"),
    FILTER_TEXT("language", "en", "whose words they are: a code, or the name of a splitter"),
};

enum {
    QC_WORDS,
    QC_COUNTED,
    QC_MEAN,
    QC_HASHES,
    QC_ELLIPSES,
    QC_LINES,
    QC_BULLETS,
    QC_ENDS,
    QC_ALPHA,
    QC_STOPS
};
static const char *const quality_columns[] = {
    "words", "counted_words", "mean_word_length", "hashes",      "ellipses",
    "lines", "bullet_lines",  "ellipsis_lines",   "alpha_words", "stop_words",
};
static const char *const quality_reasons[] = {
    "gopher_short_doc",
    "gopher_long_doc",
    "gopher_below_avg_threshold",
    "gopher_above_avg_threshold",
    "gopher_too_many_hashes",
    "gopher_too_many_ellipsis",
    "gopher_too_many_bullets",
    "gopher_too_many_end_ellipsis",
    "gopher_below_alpha_threshold",
    "gopher_enough_stop_words",
};

enum { MAX_STOPS = 256 };
/* Stop words by hash, with a filter by the hash's low bits. */
typedef struct stops {
    uint64_t hash[MAX_STOPS];
    uint64_t low[4]; /* 256 bits */
    int n;
    gw_splitter kind; /* of words */
} stops;

static gw_status open_stops(const gw_filter_args *a, void **state, gw_diags *dg) {
    stops *s = gw_mem_zalloc(sizeof *s);
    *state = s;
    GW_TRY(gw_splitter_for_language(a->text[Q_LANGUAGE], &s->kind, dg));
    for (const char *p = a->text[Q_STOPS]; *p;) {
        const char *comma = strchr(p, ',');
        size_t n = comma ? (size_t)(comma - p) : strlen(p);
        if (s->n == MAX_STOPS)
            return GW_FAIL(dg, GW_ERR_CONFIG, "data-filter-value", "more than %d stop words",
                           MAX_STOPS);
        uint64_t h = gw_word_look(p, (int64_t)n).hash;
        bool known = n == 0;
        for (int i = 0; i < s->n; i++) known |= s->hash[i] == h;
        if (!known) {
            s->hash[s->n++] = h;
            s->low[h >> 6 & 3] |= (uint64_t)1 << (h & 63);
        }
        p += n + (comma != NULL);
    }
    return GW_OK;
}
static void close_stops(void *state) { gw_mem_free(state); }

/* Notes a word if it is a stop word that was not seen before. */
static inline void note_stop(const stops *s, uint64_t hash, bool *seen, int64_t *different) {
    if (!(s->low[hash >> 6 & 3] >> (hash & 63) & 1)) return;
    for (int k = 0; k < s->n; k++)
        if (s->hash[k] == hash && !seen[k]) {
            seen[k] = true;
            ++*different;
        }
}

/* What the words of a text come to. */
static void count_words(const stops *s, const gw_word_facts *f, int64_t n, double *c) {
    bool seen[MAX_STOPS] = {false};
    int64_t counted = 0, chars = 0, alpha = 0, different = 0;
    for (int64_t i = 0; i < n; i++) {
        alpha += f[i].flags & GW_WORD_LETTER;
        int64_t word = !(f[i].flags & GW_WORD_TROVEPUNCT);
        counted += word;
        chars += word * f[i].chars;
        note_stop(s, f[i].hash, seen, &different);
    }
    c[QC_WORDS] = (double)n;
    c[QC_COUNTED] = (double)counted;
    c[QC_MEAN] = filter_ratio((double)chars, (double)counted);
    c[QC_ALPHA] = (double)alpha;
    c[QC_STOPS] = (double)different;
}

static void measure_quality(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    const gw_word_facts *f;
    const stops *s = state;
    const gw_words *w = gw_measure_words(m, s->kind, &f);
    count_words(s, f, w->count, c);
    int64_t lines = 0, bullets = 0, ends = 0;
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_PYTHON); gw_lines_next(&it, &line);) {
        lines++;
        gw_line l = gw_line_lstrip(line);
        bullets += gw_line_begins(l, "•") || gw_line_begins(l, "-");
        l = gw_line_rstrip(line);
        ends += gw_line_ends(l, "...") || gw_line_ends(l, "…");
    }
    c[QC_HASHES] = (double)gw_text_count(text, n, "#");
    c[QC_ELLIPSES] = (double)(gw_text_count(text, n, "...") + gw_text_count(text, n, "…"));
    c[QC_LINES] = (double)lines;
    c[QC_BULLETS] = (double)bullets;
    c[QC_ENDS] = (double)ends;
}

static int decide_quality(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    double words = c[QC_WORDS], lines = c[QC_LINES];
    if (filter_under(c[QC_COUNTED], p[Q_MIN_WORDS])) return 0;
    if (filter_over(c[QC_COUNTED], p[Q_MAX_WORDS]) && filter_is_on(a, Q_MAX_WORDS)) return 1;
    if (filter_under(c[QC_MEAN], p[Q_MIN_MEAN])) return 2;
    if (filter_over(c[QC_MEAN], p[Q_MAX_MEAN]) && filter_is_on(a, Q_MAX_MEAN)) return 3;
    if (filter_is_on(a, Q_SYMBOLS)) {
        if (filter_over(filter_ratio(c[QC_HASHES], words), p[Q_SYMBOLS])) return 4;
        if (filter_over(filter_ratio(c[QC_ELLIPSES], words), p[Q_SYMBOLS])) return 5;
    }
    if (filter_is_on(a, Q_BULLETS) && filter_over(filter_ratio(c[QC_BULLETS], lines), p[Q_BULLETS]))
        return 6;
    if (filter_is_on(a, Q_ELLIPSIS) && filter_over(filter_ratio(c[QC_ENDS], lines), p[Q_ELLIPSIS]))
        return 7;
    if (filter_under(filter_ratio(c[QC_ALPHA], words), p[Q_ALPHA])) return 8;
    return filter_under(c[QC_STOPS], p[Q_MIN_STOPS]) ? 9 : -1;
}

const gw_filter_desc gw_filter_gopher_quality_datatrove = {
    .name = "gopher_quality/datatrove",
    .about =
        "Gopher's rules of quality (lengths, symbols, bullets, stop words) as datatrove has them",
    .params = quality_params,
    .nparams = FILTER_COUNT(quality_params),
    .columns = quality_columns,
    .ncolumns = FILTER_COUNT(quality_columns),
    .reasons = quality_reasons,
    .nreasons = FILTER_COUNT(quality_reasons),
    .open = open_stops,
    .close = close_stops,
    .measure = measure_quality,
    .decide = decide_quality,
};

enum { R_LINES, R_PARAS, R_LINE_CHARS, R_PARA_CHARS, R_TOP2, R_TOP3, R_TOP4, R_DUP5 };
static const gw_filter_param repetition_params[] = {
    FILTER_LIMIT("dup_line_frac", 0.3, "most lines that stood before"),
    FILTER_LIMIT("dup_para_frac", 0.3, "most paragraphs that stood before"),
    FILTER_LIMIT("dup_line_char_frac", 0.2, "most characters in such lines"),
    FILTER_LIMIT("dup_para_char_frac", 0.2, "most characters in such paragraphs"),
    FILTER_LIMIT("top_2_gram", 0.2, "most characters in the most frequent pair of words"),
    FILTER_LIMIT("top_3_gram", 0.18, "the same for three words"),
    FILTER_LIMIT("top_4_gram", 0.16, "the same for four"),
    FILTER_LIMIT("dup_5_gram", 0.15, "most characters in repeated runs of five words"),
    FILTER_LIMIT("dup_6_gram", 0.14, "the same for six"),
    FILTER_LIMIT("dup_7_gram", 0.13, "the same for seven"),
    FILTER_LIMIT("dup_8_gram", 0.12, "the same for eight"),
    FILTER_LIMIT("dup_9_gram", 0.11, "the same for nine"),
    FILTER_LIMIT("dup_10_gram", 0.10, "the same for ten"),
    FILTER_TEXT("language", "en", "whose words they are: a code, or the name of a splitter"),
};
enum { R_LANGUAGE = 13 };
static gw_status open_repetition(const gw_filter_args *a, void **state, gw_diags *dg) {
    return filter_open_splitter(a->text[R_LANGUAGE], state, dg);
}
enum {
    RC_CHARS,
    RC_LINES,
    RC_LINE_DUPS,
    RC_LINE_CHARS,
    RC_PARAS,
    RC_PARA_DUPS,
    RC_PARA_CHARS,
    RC_TOP2,
    RC_DUP5 = RC_TOP2 + 3
};
static const char *const repetition_columns[] = {
    "chars",
    "lines",
    "dup_lines",
    "dup_line_chars",
    "paragraphs",
    "dup_paragraphs",
    "dup_paragraph_chars",
    "top_2_gram_chars",
    "top_3_gram_chars",
    "top_4_gram_chars",
    "dup_5_gram_chars",
    "dup_6_gram_chars",
    "dup_7_gram_chars",
    "dup_8_gram_chars",
    "dup_9_gram_chars",
    "dup_10_gram_chars",
};
static const char *const repetition_reasons[] = {
    "empty",
    "dup_para_frac",
    "dup_para_char_frac",
    "dup_line_frac",
    "dup_line_char_frac",
    "top_2_gram",
    "top_3_gram",
    "top_4_gram",
    "duplicated_5_n_grams",
    "duplicated_6_n_grams",
    "duplicated_7_n_grams",
    "duplicated_8_n_grams",
    "duplicated_9_n_grams",
    "duplicated_10_n_grams",
};

static gw_piece_stats count_pieces(gw_measure *m, gw_line text, gw_line_end kind) {
    gw_pieces p;
    gw_pieces_begin(m, &p, gw_text_count(text.text, text.bytes, "\n") + 1);
    gw_line piece;
    for (gw_lines it = gw_lines_of(text.text, text.bytes, kind); gw_lines_next(&it, &piece);)
        gw_pieces_add(&p, piece);
    return p.s;
}

static void measure_repetition(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    const gw_splitter *kind = state;
    gw_line all = {gw_str_c(m->text), (int64_t)m->text->len};
    gw_piece_stats paras = count_pieces(m, gw_line_strip(all), GW_LINES_BLANK);
    gw_piece_stats lines = count_pieces(m, all, GW_LINES_NEWLINES);
    c[RC_CHARS] = (double)gw_text_chars(all.text, all.bytes);
    c[RC_LINES] = (double)lines.pieces;
    c[RC_LINE_DUPS] = (double)lines.later;
    c[RC_LINE_CHARS] = (double)lines.later_chars;
    c[RC_PARAS] = (double)paras.pieces;
    c[RC_PARA_DUPS] = (double)paras.later;
    c[RC_PARA_CHARS] = (double)paras.later_chars;
    const gw_gram_stats *g = gw_measure_grams(m, *kind, GW_GRAMS_GREEDY);
    for (int n = 2; n <= 4; n++) /* with the spaces between its words */
        c[RC_TOP2 + n - 2] = g[n].grams ? (double)((g[n].top_chars + n - 1) * g[n].top_count) : 0;
    for (int n = 5; n <= 10; n++) c[RC_DUP5 + n - 5] = (double)g[n].greedy_chars;
}

static int decide_repetition(const double *c, const gw_filter_facts *facts,
                             const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    double chars = c[RC_CHARS];
    if (chars == 0) return 0;
    if (filter_is_on(a, R_PARAS) && filter_over(c[RC_PARA_DUPS] / c[RC_PARAS], p[R_PARAS]))
        return 1;
    if (filter_is_on(a, R_PARA_CHARS) && filter_over(c[RC_PARA_CHARS] / chars, p[R_PARA_CHARS]))
        return 2;
    if (filter_is_on(a, R_LINES) && filter_over(c[RC_LINE_DUPS] / c[RC_LINES], p[R_LINES]))
        return 3;
    if (filter_is_on(a, R_LINE_CHARS) && filter_over(c[RC_LINE_CHARS] / chars, p[R_LINE_CHARS]))
        return 4;
    for (int k = 0; k < 9; k++)
        if (filter_over(c[RC_TOP2 + k] / chars, p[R_TOP2 + k])) return 5 + k;
    return -1;
}

const gw_filter_desc gw_filter_gopher_repetition_datatrove = {
    .name = "gopher_repetition/datatrove",
    .about = "Gopher's rules of repetition (lines, paragraphs, n-grams) as datatrove has them",
    .params = repetition_params,
    .nparams = FILTER_COUNT(repetition_params),
    .columns = repetition_columns,
    .ncolumns = FILTER_COUNT(repetition_columns),
    .reasons = repetition_reasons,
    .nreasons = FILTER_COUNT(repetition_reasons),
    .open = open_repetition,
    .close = filter_close_memory,
    .measure = measure_repetition,
    .decide = decide_repetition,
};

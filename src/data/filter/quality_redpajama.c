// SPDX-License-Identifier: Apache-2.0
// Gopher's rules of quality by the quality signals of RedPajama-V2.
//
// RedPajama-V2 publishes signals of each document and leaves rules to its readers; its notes show
// Gopher's as an example, and these are they. Signals count two sorts of words. "Normalized" ones
// are those of the plain text (text/plain.h): word counts, mean length, the share of different
// words and their entropy. "Raw" ones are what NLTK's WordPunctTokenizer cuts, runs of letters,
// digits and "_" and runs of anything else but white space: they are what symbols, words without a
// Latin letter and words in capitals are shares of. Lines are what a line break ends, so a text
// that ends in one has no empty line behind it. Scores are rounded to eight places.
//
// The last four rules are off unless they are given limits: the notes name their signals but no
// limits of Gopher's.
#include <string.h>
#include <utf8proc.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/text/words_impl.h"    /* words_class_at */
#include "data/unicode.h"            /* gw_utf8_decode */

static const gw_filter_param params[] = {
    FILTER_LIMIT("min_word_count", 50, "fewest words"),
    FILTER_LIMIT("max_word_count", 100000, "most words"),
    FILTER_LIMIT("min_mean_word_length", 3, "least mean length of a word, characters"),
    FILTER_LIMIT("max_mean_word_length", 10, "largest mean length"),
    FILTER_LIMIT("max_symbol_to_word_ratio", 0.1, "most '#' and ellipses per word"),
    FILTER_LIMIT("max_lines_start_with_bulletpoint", 0.9, "most lines that begin with a bullet"),
    FILTER_LIMIT("max_frac_lines_end_with_ellipsis", 0.3, "most lines that end with an ellipsis"),
    FILTER_LIMIT("max_frac_no_alph_words", 0.2, "most words without a Latin letter"),
    FILTER_LIMIT("min_frac_unique_words", (double)NAN, "least different words per word"),
    FILTER_LIMIT("min_unigram_entropy", (double)NAN, "least entropy of the words, nats"),
    FILTER_LIMIT("max_frac_all_caps_words", (double)NAN, "most words in capitals"),
    FILTER_LIMIT("min_num_sentences", (double)NAN, "fewest sentences"),
};
enum { COUNT, MEAN, SYMBOLS, BULLETS, ELLIPSES, NO_ALPH, UNIQUE, ENTROPY, CAPS, SENTENCES };
static const char *const columns[] = {
    "rps_doc_word_count",
    "rps_doc_mean_word_length",
    "rps_doc_symbol_to_word_ratio",
    "rps_lines_start_with_bulletpoint",
    "rps_doc_frac_lines_end_with_ellipsis",
    "rps_doc_frac_no_alph_words",
    "rps_doc_frac_unique_words",
    "rps_doc_unigram_entropy",
    "rps_doc_frac_all_caps_words",
    "rps_doc_num_sentences",
};
static const char *const reasons[] = {
    "few_words", "many_words", "short_words",  "long_words", "symbols",  "bullets",
    "ellipses",  "no_letters", "unique_words", "entropy",    "capitals", "few_sentences",
};

static double share(int64_t part, int64_t whole) {
    return whole ? filter_round8((double)part / (double)whole) : (double)NAN;
}

static void count_words(gw_measure *m, double *c) {
    const gw_words *w = gw_measure_plain_words(m);
    int64_t n = w->count, chars = 0, unique = 0;
    gw_tally_reset(&m->tally, n);
    for (int64_t i = 0; i < n; i++) {
        chars += w->facts[i].chars;
        unique += gw_tally_add(&m->tally, w->facts[i].hash, i)->count == 1;
    }
    double entropy = 0;
    for (uint64_t i = 0; n && i <= m->tally.mask; i++) {
        double p = (double)m->tally.slots[i].count / (double)n;
        if (p > 0) entropy -= p * log(p);
    }
    c[COUNT] = (double)n;
    c[MEAN] = share(chars, n);
    c[UNIQUE] = share(unique, n);
    c[ENTROPY] = n ? filter_round8(entropy) : (double)NAN;
}

/* Cased but no capital: lower and title case, and the letters above the line that count as lower
 * case. */
static bool is_small(uint32_t cp) {
    if (cp < 128) return cp - 'a' < 26u;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)cp);
    return k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT || cp == 0xaa || cp == 0xba ||
           (cp >= 0x2b0 && cp <= 0x2b8) || (cp >= 0x1d2c && cp <= 0x1d6a) || cp == 0x2071 ||
           cp == 0x207f || (cp >= 0x2170 && cp <= 0x217f) || (cp >= 0x24d0 && cp <= 0x24e9);
}

/* Runs of word characters and runs of marks. */
static void count_raw(const char *text, int64_t n, double *c) {
    int64_t words = 0, latin = 0, capitals = 0;
    const char *p = text, *end = text + n;
    while (p < end) {
        int len;
        uint32_t k = words_class_at(p, end, &len);
        if (k & GW_CH_SPACE) {
            p += len;
            continue;
        }
        uint32_t kind = k & GW_CH_WORD;
        bool any_latin = false, any_capital = false, any_small = false;
        do {
            uint8_t b = (uint8_t)*p;
            any_latin |= (uint8_t)((b | 32) - 'a') < 26;
            any_capital |= (k & GW_CH_UPPERCASE) != 0;
            any_small |= is_small(
                b < 128 ? b : gw_utf8_decode((const uint8_t *)p, (const uint8_t *)end, &len));
            p += len;
        } while (p < end && !((k = words_class_at(p, end, &len)) & GW_CH_SPACE) &&
                 (k & GW_CH_WORD) == kind);
        words++;
        latin += any_latin;
        capitals += any_capital && !any_small;
    }
    int64_t symbols =
        gw_text_count(text, n, "#") + gw_text_count(text, n, "...") + gw_text_count(text, n, "…");
    c[SYMBOLS] = share(symbols, words);
    c[NO_ALPH] = words ? filter_round8(1 - (double)latin / (double)words) : (double)NAN;
    c[CAPS] = share(capitals, words);
}

static void count_lines(const char *text, int64_t n, double *c) {
    static const char *const bullets[] = {"•", "‣", "▶", "◀", "◦", "■", "□", "▪", "▫", "–"};
    int64_t lines = 0, begun = 0, ended = 0;
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &line);) {
        if (line.text + line.bytes == text + n && !line.bytes) break; /* behind the last break */
        lines++;
        gw_line l = gw_line_strip(line);
        bool bullet = false;
        for (int k = 0; k < FILTER_COUNT(bullets) && !bullet; k++)
            bullet = gw_line_begins(l, bullets[k]);
        begun += bullet;
        ended += gw_line_ends(l, "...") || gw_line_ends(l, "…");
    }
    c[BULLETS] = share(begun, lines);
    c[ELLIPSES] = share(ended, lines);
}

static bool is_end_mark(char b) { return b == '.' || b == '!' || b == '?'; }

/* Matches of \b[^.!?]+[.!?]*. */
static int64_t count_sentences(const char *text, int64_t n) {
    const char *p = text, *end = text + n;
    int64_t count = 0;
    for (uint32_t before = 0; p < end;) {
        int len;
        uint32_t k = words_class_at(p, end, &len) & GW_CH_WORD;
        if (k == before || is_end_mark(*p)) {
            before = k;
            p += len;
            continue;
        }
        count++;
        while (p < end && !is_end_mark(*p)) {
            before = words_class_at(p, end, &len) & GW_CH_WORD;
            p += len;
        }
        for (; p < end && is_end_mark(*p); p++) before = 0;
    }
    return count;
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    count_words(m, c);
    count_raw(text, n, c);
    count_lines(text, n, c);
    c[SENTENCES] = (double)count_sentences(text, n);
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    if (filter_under(c[COUNT], p[0])) return 0;
    if (filter_over(c[COUNT], p[1])) return 1;
    if (filter_under(c[MEAN], p[2])) return 2;
    if (filter_over(c[MEAN], p[3])) return 3;
    if (filter_over(c[SYMBOLS], p[4])) return 4;
    if (filter_over(c[BULLETS], p[5])) return 5;
    if (filter_over(c[ELLIPSES], p[6])) return 6;
    if (filter_over(c[NO_ALPH], p[7])) return 7;
    if (filter_under(c[UNIQUE], p[8])) return 8;
    if (filter_under(c[ENTROPY], p[9])) return 9;
    if (filter_over(c[CAPS], p[10])) return 10;
    return filter_under(c[SENTENCES], p[11]) ? 11 : -1;
}

const gw_filter_desc gw_filter_gopher_quality_redpajama = {
    .name = "gopher_quality/redpajama-v2",
    .about = "Gopher's rules of quality by RedPajama-V2's signals",
    .params = params,
    .nparams = FILTER_COUNT(params),
    .columns = columns,
    .ncolumns = FILTER_COUNT(columns),
    .reasons = reasons,
    .nreasons = FILTER_COUNT(reasons),
    .open = filter_open_none,
    .close = filter_close_none,
    .measure = measure,
    .decide = decide,
};

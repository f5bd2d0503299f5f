// SPDX-License-Identifier: Apache-2.0
// FineWeb's own rules (Penedo et al. 2024, section 3.6) as datatrove's FineWebQualityFilter has
// them.
//
// They catch pages that C4's and Gopher's rules leave: lists of links and of short lines, and pages
// whose lines do not end. Lines are those of text.split("\n") that hold more than white space; a
// line ends well if its last character is one of datatrove's TERMINAL_PUNCTUATION, white space
// behind it not forgiven; the share of line breaks is per spaCy token.
#include <string.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/text/words_impl.h"    /* words_class_at */

enum { P_PUNCT, P_EXCLUDE_ZERO, P_SHORT, P_SHORT_LENGTH, P_DUPLICATES, P_NEWLINES, P_LANGUAGE };
static const gw_filter_param params[] = {
    FILTER_LIMIT("line_punct_thr", 0.12, "fewest lines that end in a terminal mark"),
    FILTER_FLAG("line_punct_exclude_zero", 0, "keep pages where no line does"),
    FILTER_LIMIT("short_line_thr", 0.67, "most lines that are short"),
    FILTER_MEASURE("short_line_length", 30, "characters of a short line, at most"),
    FILTER_LIMIT("char_duplicates_ratio", 0.01, "most characters in lines that stood before"),
    FILTER_LIMIT("new_line_ratio", 0.3, "most line breaks per word"),
    FILTER_TEXT("language", "en", "whose words they are: a code, or the name of a splitter"),
};
enum { C_LINES, C_ENDED, C_SHORT, C_DUP_CHARS, C_CHARS, C_NEWLINES, C_WORDS };
static const char *const columns[] = {
    "lines", "ended_lines", "short_lines", "dup_line_chars", "chars_in_lines", "newlines", "words"};
static const char *const reasons[] = {"empty", "line_punct_ratio", "short_line_ratio",
                                      "char_dup_ratio", "list_ratio"};

static bool ends_well(gw_line l) {
    int64_t from = l.bytes - 1;
    while (from > 0 && ((uint8_t)l.text[from] & 0xc0) == 0x80 && l.bytes - from < 4) from--;
    int len;
    return words_class_at(l.text + from, l.text + l.bytes, &len) & GW_CH_TERMINAL &&
           from + len == l.bytes;
}

static gw_status open(const gw_filter_args *a, void **state, gw_diags *dg) {
    return filter_open_splitter(a->text[P_LANGUAGE], state, dg);
}

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    const gw_splitter *kind = state;
    const char *text = gw_str_c(m->text);
    int64_t n = (int64_t)m->text->len;
    int64_t newlines = gw_text_count(text, n, "\n"), ended = 0, shorts = 0;
    gw_pieces pieces;
    gw_pieces_begin(m, &pieces, newlines + 1);
    gw_line line;
    for (gw_lines it = gw_lines_of(text, n, GW_LINES_NEWLINE); gw_lines_next(&it, &line);) {
        if (!gw_line_lstrip(line).bytes) continue;
        int64_t chars = gw_pieces_add(&pieces, line);
        ended += ends_well(line);
        shorts += (double)chars <= a->number[P_SHORT_LENGTH];
    }
    c[C_LINES] = (double)pieces.s.pieces;
    c[C_ENDED] = (double)ended;
    c[C_SHORT] = (double)shorts;
    c[C_DUP_CHARS] = (double)pieces.s.later_chars;
    c[C_CHARS] = (double)(gw_text_chars(text, n) - newlines);
    c[C_NEWLINES] = (double)newlines;
    c[C_WORDS] = (double)gw_measure_words(m, *kind, NULL)->count;
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    const double *p = a->number;
    if (c[C_LINES] == 0) return 0;
    double ratio = c[C_ENDED] / c[C_LINES];
    if (filter_under(ratio, p[P_PUNCT]) && !(ratio == 0 && filter_is_on(a, P_EXCLUDE_ZERO)))
        return 1;
    if (filter_over(c[C_SHORT] / c[C_LINES], p[P_SHORT])) return 2;
    if (filter_over(filter_ratio(c[C_DUP_CHARS], c[C_CHARS]), p[P_DUPLICATES])) return 3;
    return filter_over(filter_ratio(c[C_NEWLINES], c[C_WORDS]), p[P_NEWLINES]) ? 4 : -1;
}

const gw_filter_desc gw_filter_fineweb_quality_datatrove = {
    .name = "fineweb_quality/datatrove",
    .about = "FineWeb's own rules: ends of lines, short lines, repeated lines, lists",
    .params = params,
    .nparams = FILTER_COUNT(params),
    .columns = columns,
    .ncolumns = FILTER_COUNT(columns),
    .reasons = reasons,
    .nreasons = FILTER_COUNT(reasons),
    .open = open,
    .close = filter_close_memory,
    .measure = measure,
    .decide = decide,
};

// SPDX-License-Identifier: Apache-2.0
// Gopher's rules of repetition by the quality signals of RedPajama-V2.
//
// RedPajama-V2 publishes signals and leaves thresholds to the reader; the ones here are Gopher's.
// Its words are those of a text without ASCII punctuation, in lower case, in normal form D, cut at
// white space; a repeated n-gram counts each word in it once, however many n-grams share it, and
// the most frequent n-gram counts only if it stands twice. Scores are rounded to eight places, as
// there.
#include "data/filter/filter_impl.h" /* gw_filter_desc */

static const gw_filter_param params[] = {
    FILTER_LIMIT("rps_doc_frac_chars_top_2gram", 0.2, "most characters in the top pair of words"),
    FILTER_LIMIT("rps_doc_frac_chars_top_3gram", 0.18, "the same for three words"),
    FILTER_LIMIT("rps_doc_frac_chars_top_4gram", 0.16, "the same for four"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_5grams", 0.15,
                 "most characters in repeats of five words"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_6grams", 0.14, "the same for six"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_7grams", 0.13, "the same for seven"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_8grams", 0.12, "the same for eight"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_9grams", 0.11, "the same for nine"),
    FILTER_LIMIT("rps_doc_frac_chars_dupe_10grams", 0.10, "the same for ten"),
};
static const char *const columns[] = {
    "rps_doc_frac_chars_top_2gram",    "rps_doc_frac_chars_top_3gram",
    "rps_doc_frac_chars_top_4gram",    "rps_doc_frac_chars_dupe_5grams",
    "rps_doc_frac_chars_dupe_6grams",  "rps_doc_frac_chars_dupe_7grams",
    "rps_doc_frac_chars_dupe_8grams",  "rps_doc_frac_chars_dupe_9grams",
    "rps_doc_frac_chars_dupe_10grams",
};

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    (void)state;
    for (int i = 0; i < FILTER_COUNT(columns); i++) c[i] = 0;
    const gw_words *w = gw_measure_plain_words(m);
    int64_t chars = 0;
    for (int64_t i = 0; i < w->count; i++) chars += w->facts[i].chars;
    gw_gram_stats g[GW_GRAM_MAX + 1];
    gw_gram_count(m, w->facts, w->count, GW_GRAMS_ALL, g);
    for (int k = 2; k <= 10; k++) {
        int64_t part = k <= 4 ? g[k].top_count * g[k].top_chars : g[k].covered_chars;
        if (g[k].top_count > 1) c[k - 2] = filter_round8((double)part / (double)chars);
    }
}

static int decide(const double *c, const gw_filter_facts *facts, const gw_filter_args *a) {
    (void)facts;
    for (int i = 0; i < FILTER_COUNT(columns); i++)
        if (filter_over(c[i], a->number[i])) return i;
    return -1;
}

const gw_filter_desc gw_filter_gopher_repetition_redpajama = {
    .name = "gopher_repetition/redpajama-v2",
    .about = "Gopher's rules of repetition by RedPajama-V2's signals",
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

// SPDX-License-Identifier: Apache-2.0
// Gopher's rules of repetition by the quality signals of RedPajama-V2.
//
// RedPajama-V2 publishes signals and leaves thresholds to the reader; the ones here are Gopher's.
// Its words are those of a text without ASCII punctuation, in lower case, in normal form D, cut at
// white space; a repeated n-gram counts each word in it once, however many n-grams share it, and
// the most frequent n-gram counts only if it stands twice. Scores are rounded to eight places, as
// there.
#include <string.h>
#include <utf8proc.h>

#include "data/filter/filter_impl.h" /* gw_filter_desc */
#include "data/unicode.h"            /* gw_utf8_decode */

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

typedef struct scratch {
    gw_str lower, text;
    utf8proc_int32_t *cps;
    int64_t cps_cap;
    gw_words *words;
} scratch;

static gw_status open(const gw_filter_args *a, void **state, gw_diags *dg) {
    (void)a;
    (void)dg;
    scratch *s = gw_mem_zalloc(sizeof *s);
    s->words = gw_words_new();
    *state = s;
    return GW_OK;
}

static void close(void *state) {
    scratch *s = state;
    if (!s) return;
    gw_str_release(&s->lower);
    gw_str_release(&s->text);
    gw_mem_free(s->cps);
    gw_words_free(s->words);
    gw_mem_free(s);
}

static bool is_ascii_mark(uint8_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Without ASCII punctuation, lower case, normal form D: s->text. */
static void normalize(scratch *s, const char *p, int64_t n) {
    gw_str_clear(&s->lower);
    gw_str_reserve(&s->lower, (size_t)n);
    bool ascii = true;
    for (int64_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        ascii &= c < 128;
        if (!is_ascii_mark(c)) gw_str_add_char(&s->lower, p[i]);
    }
    gw_str_clear(&s->text);
    filter_lower(gw_str_c(&s->lower), (int64_t)s->lower.len, &s->text);
    if (ascii || !s->text.len) return;
    const uint8_t *bytes = (const uint8_t *)s->text.data;
    utf8proc_ssize_t need = utf8proc_decompose(bytes, (utf8proc_ssize_t)s->text.len, NULL, 0,
                                               UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    if (need < 0) return;
    if (need > s->cps_cap) {
        s->cps_cap = 2 * need;
        s->cps = gw_mem_realloc(s->cps, (size_t)s->cps_cap * sizeof *s->cps);
    }
    utf8proc_decompose(bytes, (utf8proc_ssize_t)s->text.len, s->cps, need,
                       UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    gw_str_clear(&s->text);
    for (int64_t i = 0; i < need; i++) {
        uint8_t utf8[4];
        int len = gw_utf8_encode((uint32_t)s->cps[i], utf8);
        gw_str_add_n(&s->text, utf8, (size_t)len);
    }
}

static double round8(double x) { return nearbyint(x * 1e8) / 1e8; }

static void measure(gw_measure *m, const gw_filter_args *a, void *state, double *c) {
    (void)a;
    scratch *s = state;
    for (int i = 0; i < FILTER_COUNT(columns); i++) c[i] = 0;
    normalize(s, gw_str_c(m->text), (int64_t)m->text->len);
    gw_words_measure(s->words, GW_SPLIT_WHITESPACE, gw_str_c(&s->text), (int64_t)s->text.len);
    int64_t n = s->words->count, chars = 0;
    for (int64_t i = 0; i < n; i++) chars += s->words->facts[i].chars;
    gw_gram_stats g[GW_GRAM_MAX + 1];
    gw_gram_count(m, s->words->facts, n, GW_GRAMS_ALL, g);
    for (int k = 2; k <= 10; k++) {
        int64_t part = k <= 4 ? g[k].top_count * g[k].top_chars : g[k].covered_chars;
        if (g[k].top_count > 1) c[k - 2] = round8((double)part / (double)chars);
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
    .open = open,
    .close = close,
    .measure = measure,
    .decide = decide,
};

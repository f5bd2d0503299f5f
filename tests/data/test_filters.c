// SPDX-License-Identifier: Apache-2.0
// Filters against the projects that define them, and laws of measuring and deciding.
//
// ../golden/filters.txt holds what datatrove's filters decide on generated documents, what they
// leave of the text, and the attributes of Dolma's gopher_v1 (make_filters.py writes it). For DCLM
// and RedPajama the expected values are worked by hand from their published code.
#include "data/filter/filter.h" /* gw_filters */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"              /* gw_mem_count */
#include "base/io.h"                 /* gw_file_write_atomic */
#include "base/rng.h"                /* gw_rng_u32 */
#include "data/filter/filter_impl.h" /* filter_automaton */
#include "data/filter/measure.h"     /* gw_gram_count */
#include "escaped.h"                 /* read_golden, unescape */
#include "harness.h"                 /* TEST, CHECK */

static gw_filters *open_list(const char *yaml) {
    static gw_arena arena; /* of one test: each runs in a process of its own */
    gw_diags dg;
    gw_diags_init(&dg);
    gw_yaml_node *root;
    gw_filters *f = NULL;
    CHECK_OK(gw_yaml_parse(&arena, "p.yaml", yaml, (int64_t)strlen(yaml), true, &root, &dg), &dg);
    CHECK_OK(gw_filters_new(root, "p.yaml", &f, &dg), &dg);
    gw_diags_release(&dg);
    return f;
}

static const gw_filter_facts no_facts = {"", "", 0};

/* The verdict on a text; *text becomes what is left. */
static const char *verdict(gw_filters *f, gw_str *text, double *columns) {
    static char buf[200];
    gw_verdict v = gw_filters_run(f, &no_facts, text, columns);
    return gw_filters_verdict_text(f, v, buf, sizeof buf);
}

static void check_verdict(const char *yaml, const char *text, const char *want, const char *left) {
    gw_filters *f = open_list(yaml);
    double columns[64];
    gw_str s = {0};
    gw_str_add(&s, text);
    CHECK_STR(verdict(f, &s, columns), want);
    if (left) CHECK_STR(gw_str_c(&s), left);
    gw_str_release(&s);
    gw_filters_free(f);
}

TEST(filters_decide_as_datatrove) {
    gw_str all = read_golden("filters.txt"), text = {0}, left = {0}, now = {0};
    char *p = all.data;
    take_line(&p);
    int cases = 0, removed = 0;
    double columns[64];
    while (*p) {
        char *line = take_line(&p);
        unescape(line, (int64_t)strlen(line), &text);
        for (line = take_line(&p); *line; line = take_line(&p)) {
            char *want = strchr(line, '\t');
            CHECK(want);
            *want++ = 0;
            if (gw_str_eq(line, "gopher_v1")) continue;
            char *rest = strchr(want, '\t');
            CHECK(rest);
            *rest++ = 0;
            char yaml[100];
            snprintf(yaml, sizeof yaml, "- %s\n", line);
            gw_filters *f = open_list(yaml);
            gw_str_clear(&now);
            gw_str_add_n(&now, text.data, text.len);
            CHECK_STR(verdict(f, &now, columns), want);
            cases++;
            removed += !gw_str_eq(want, "kept");
            if (gw_str_eq(want, "kept")) {
                if (gw_str_eq(rest, "="))
                    CHECK_STR(gw_str_c(&now), gw_str_c(&text));
                else {
                    unescape(rest, (int64_t)strlen(rest), &left);
                    CHECK_STR(gw_str_c(&now), gw_str_c(&left));
                }
            }
            gw_filters_free(f);
        }
    }
    CHECK_MSG(cases > 300 && removed > 80, "%d cases, %d removed", cases, removed);
    gw_str_release(&all);
    gw_str_release(&text);
    gw_str_release(&left);
    gw_str_release(&now);
}

/* Dolma's name of each column of ours, "FILTER.COLUMN". */
static const char *dolma_name(const char *column, char *buf) {
    const char *name = strchr(column, '.') + 1;
    if (gw_str_eq(name, "duplicate_lines")) return "fraction_of_duplicate_lines";
    if (gw_str_eq(name, "duplicate_line_characters"))
        return "fraction_of_characters_in_duplicate_lines";
    bool grams = gw_str_starts(name, "most_common_") ||
                 (gw_str_starts(name, "duplicate_") && gw_str_ends(name, "grams"));
    if (!grams) return name;
    snprintf(buf, 100, "fraction_of_characters_in_%s", name);
    return buf;
}

TEST(filters_measure_as_dolma) {
    gw_str all = read_golden("filters.txt"), text = {0};
    char *p = all.data;
    take_line(&p);
    int compared = 0;
    double columns[64];
    gw_filters *f = open_list("- gopher_quality/dolma\n- gopher_repetition/dolma\n");
    while (*p) {
        char *line = take_line(&p);
        unescape(line, (int64_t)strlen(line), &text);
        for (line = take_line(&p); *line; line = take_line(&p)) {
            if (!gw_str_starts(line, "gopher_v1\t")) continue;
            verdict(f, &text, columns);
            for (int c = 0; c < gw_filters_columns(f); c++) {
                char buf[100], key[140];
                snprintf(key, sizeof key, "\t%s=", dolma_name(gw_filters_column_name(f, c), buf));
                const char *at = strstr(line, key);
                if (!at) { /* there are no n-grams of this length */
                    CHECK_NEAR(columns[c], 0, 0);
                    continue;
                }
                double want = strtod(at + strlen(key), NULL);
                CHECK_MSG(fabs(columns[c] - want) <= 1e-12, "%s%.17g, ours %.17g", key, want,
                          columns[c]);
                compared++;
            }
        }
    }
    CHECK(compared > 1000);
    gw_filters_free(f);
    gw_str_release(&all);
    gw_str_release(&text);
}

static const char *const strict =
    "- gopher_quality/datatrove: {min_doc_words: 10, max_non_alpha_words_ratio: 0.6}\n"
    "- gopher_repetition/datatrove: {dup_line_frac: 0.1, top_2_gram: null}\n"
    "- c4/datatrove: {min_num_sentences: 2, filter_curly_bracket: false}\n"
    "- fineweb_quality/datatrove: {line_punct_thr: 0.5}\n"
    "- gopher_repetition/dclm\n- gopher_quality/dclm\n- gopher_repetition/redpajama-v2\n";

/* Columns of one run, decided with other thresholds, give what a run with those would. */
TEST(filters_decide_again_from_columns) {
    gw_filters *a = open_list("- gopher_quality/datatrove\n- gopher_repetition/datatrove\n"
                              "- c4/datatrove\n- fineweb_quality/datatrove\n"
                              "- gopher_repetition/dclm\n- gopher_quality/dclm\n"
                              "- gopher_repetition/redpajama-v2\n");
    gw_filters *b = open_list(strict);
    CHECK_STR(gw_filters_measured_text(a), gw_filters_measured_text(b));
    CHECK(!gw_str_eq(gw_filters_text(a), gw_filters_text(b)));
    CHECK_EQ(gw_filters_columns(a), gw_filters_columns(b));
    gw_str all = read_golden("filters.txt"), text = {0}, left_a = {0}, left_b = {0};
    double ca[128], cb[128];
    CHECK(gw_filters_columns(a) <= 128);
    char *p = all.data;
    take_line(&p);
    int differ = 0;
    while (*p) {
        char *line = take_line(&p);
        unescape(line, (int64_t)strlen(line), &text);
        while (*take_line(&p)) continue;
        gw_str_clear(&left_a);
        gw_str_add_n(&left_a, text.data, text.len);
        gw_str_clear(&left_b);
        gw_str_add_n(&left_b, text.data, text.len);
        gw_verdict va = gw_filters_run(a, &no_facts, &left_a, ca);
        gw_verdict vb = gw_filters_run(b, &no_facts, &left_b, cb);
        gw_verdict again = gw_filters_decide(b, &no_facts, ca);
        CHECK_EQ(again.filter, vb.filter);
        CHECK_EQ(again.reason, vb.reason);
        CHECK_STR(gw_str_c(&left_a), gw_str_c(&left_b));
        differ += va.filter != vb.filter;
    }
    CHECK(differ > 5);
    gw_filters_free(a);
    gw_filters_free(b);
    gw_str_release(&all);
    gw_str_release(&text);
    gw_str_release(&left_a);
    gw_str_release(&left_b);
}

TEST(filters_refuse_with_places) {
    static const char yaml[] = "- gopher_quality/datatrov\n"
                               "- c4/datatrove: {min_sentences: 3}\n"
                               "- c4/datatrove: {min_num_sentences: many, filter_policy: 1}\n"
                               "- [a]\n";
    gw_arena arena = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_yaml_node *root;
    gw_filters *f;
    CHECK_OK(gw_yaml_parse(&arena, "p.yaml", yaml, sizeof yaml - 1, true, &root, &dg), &dg);
    CHECK_FAILS(gw_filters_new(root, "p.yaml", &f, &dg), &dg, "data-filter-unknown");
    CHECK(f == NULL);
    CHECK_EQ(dg.nerrors, 5);
    CHECK_EQ(dg.first->where.line, 1);
    CHECK(strstr(dg.first->hint, "gopher_quality/datatrove"));
    CHECK_EQ(dg.last->where.line, 4);
    gw_diags_clear(&dg);
    static const char missing[] = "- c4_badwords/datatrove: {list: /nowhere/words}\n";
    CHECK_OK(gw_yaml_parse(&arena, "p.yaml", missing, sizeof missing - 1, true, &root, &dg), &dg);
    CHECK_FAILS(gw_filters_new(root, "p.yaml", &f, &dg), &dg, "/nowhere/words");
    gw_diags_release(&dg);
    gw_arena_release(&arena);
}

/* Stopping at the filter that removes gives the same verdicts and the same columns up to it. */
TEST(measuring_until_removed_changes_no_verdict) {
    static const char list[] = "- gopher_repetition/datatrove\n- gopher_quality/datatrove\n"
                               "- c4/datatrove: {filter_no_terminal_punct: false}\n"
                               "- fineweb_quality/datatrove\n";
    gw_filters *all = open_list(list), *some = open_list(list);
    char *before = strdup(gw_filters_measured_text(some));
    gw_filters_until_removed(some);
    CHECK(strcmp(before, gw_filters_measured_text(some)) != 0);
    gw_str golden = read_golden("filters.txt"), text = {0}, a = {0}, b = {0};
    double x[64], y[64];
    int removed = 0, undefined = 0;
    char *p = golden.data;
    take_line(&p);
    while (*p) {
        char *line = take_line(&p);
        unescape(line, (int64_t)strlen(line), &text);
        while (*take_line(&p)) continue;
        gw_str_clear(&a);
        gw_str_clear(&b);
        gw_str_add_n(&a, gw_str_c(&text), text.len);
        gw_str_add_n(&b, gw_str_c(&text), text.len);
        gw_verdict v = gw_filters_run(all, &no_facts, &a, x);
        gw_verdict w = gw_filters_run(some, &no_facts, &b, y);
        CHECK(v.filter == w.filter && v.reason == w.reason);
        removed += v.filter >= 0;
        int measured = 0;
        for (int f = 0; f <= (v.filter < 0 ? gw_filters_count(all) - 1 : v.filter); f++)
            measured += gw_filters_desc(all, f)->ncolumns;
        for (int c = 0; c < gw_filters_columns(all); c++) {
            if (c < measured) CHECK(x[c] == y[c] || (isnan(x[c]) && isnan(y[c])));
            if (c >= measured) CHECK(isnan(y[c]));
            undefined += c >= measured;
        }
        if (v.filter < 0) CHECK_STR(gw_str_c(&a), gw_str_c(&b));
        gw_verdict again = gw_filters_decide(some, &no_facts, y);
        CHECK(again.filter == v.filter && again.reason == v.reason);
    }
    CHECK(removed > 50 && undefined > 100);
    gw_str_release(&golden);
    gw_str_release(&text);
    gw_str_release(&a);
    gw_str_release(&b);
    free(before);
    gw_filters_free(all);
    gw_filters_free(some);
}

/* n-gram counts by their definitions, on words of a small alphabet. */
static void brute(const gw_word_facts *w, int n, int k, gw_gram_stats *s) {
    memset(s, 0, sizeof *s);
    s->grams = n - k + 1 > 0 ? n - k + 1 : 0;
    bool covered[64] = {false}, greedy_set[64] = {false};
    int free_from = 0, later_to = 0;
    for (int i = 0; i < s->grams; i++) {
        int64_t count = 0, chars = 0;
        int first = -1;
        bool seen = false;
        for (int j = 0; j < s->grams; j++) {
            bool same = true;
            for (int x = 0; x < k; x++) same &= w[i + x].hash == w[j + x].hash;
            if (!same) continue;
            count++;
            if (first < 0) first = j;
            seen |= greedy_set[j];
        }
        for (int x = 0; x < k; x++) chars += w[i + x].chars;
        s->all_chars += chars;
        if (first == i && (count > s->top_count)) {
            s->top_count = count;
            s->top_at = i;
            s->top_chars = s->top_longest = chars;
        } else if (first == i && count == s->top_count && count > 1 && chars > s->top_longest) {
            s->top_longest = chars;
        }
        if (count > 1) s->repeated_chars += chars;
        if (first != i) { /* words of this repeat that no earlier one had, and spaces */
            int fresh = 0;
            for (int x = 0; x < k; x++)
                if (i + x >= later_to) {
                    s->later_chars += w[i + x].chars;
                    fresh++;
                }
            s->later_chars += fresh < k ? fresh : k - 1;
            later_to = i + k;
        }
        for (int x = 0; x < k && count > 1; x++) covered[i + x] = true;
        if (i < free_from) continue;
        if (seen) {
            s->greedy_chars += chars;
            free_from = i + k;
        } else {
            greedy_set[i] = true;
        }
    }
    for (int i = 0; i < n; i++) s->covered_chars += covered[i] ? w[i].chars : 0;
}

TEST(grams_are_counted_by_their_definitions) {
    gw_measure m = {0};
    gw_rng_key key = gw_rng_key_named(2, "grams");
    uint64_t draw = 0;
    for (int round = 0; round < 3000; round++) {
        gw_word_facts w[64];
        int n = (int)(gw_rng_u32(key, draw++) % 40),
            letters = 1 + (int)(gw_rng_u32(key, draw++) % 5);
        for (int i = 0; i < n; i++) {
            uint32_t c = gw_rng_u32(key, draw++) % (uint32_t)letters;
            w[i] = (gw_word_facts){.hash = 0x9e3779b97f4a7c15u * (c + 1), .chars = c + 1};
        }
        gw_gram_stats got[GW_GRAM_MAX + 1], want;
        gw_gram_count(&m, w, n, GW_GRAMS_ALL, got);
        gw_gram_stats some[GW_GRAM_MAX + 1];
        gw_gram_count(&m, w, n, GW_GRAMS_GREEDY, some);
        for (int k = 2; k <= GW_GRAM_MAX; k++) {
            brute(w, n, k, &want);
            CHECK_MSG(!memcmp(&got[k], &want, sizeof want),
                      "n %d k %d: greedy %d/%d covered %d/%d repeated %d/%d top %dx%d/%dx%d", n, k,
                      (int)got[k].greedy_chars, (int)want.greedy_chars, (int)got[k].covered_chars,
                      (int)want.covered_chars, (int)got[k].repeated_chars, (int)want.repeated_chars,
                      (int)got[k].top_count, (int)got[k].top_chars, (int)want.top_count,
                      (int)want.top_chars);
            CHECK_EQ(some[k].grams, want.grams);
            if (k < GW_GRAM_GREEDY)
                CHECK(some[k].top_count == want.top_count && some[k].top_chars == want.top_chars);
            else
                CHECK_EQ(some[k].greedy_chars, want.greedy_chars);
        }
    }
    gw_measure_release(&m);
}

static bool accept_all(const char *text, int64_t n, int64_t from, int64_t to) {
    (void)text;
    return from >= 0 && from < to && to <= n;
}
static bool accept_second(const char *text, int64_t n, int64_t from, int64_t to) {
    (void)n;
    return from > 0 && text[from - 1] == '.' && text[to - 1] != 0;
}

TEST(automaton_finds_what_searching_finds) {
    gw_rng_key key = gw_rng_key_named(3, "automaton");
    uint64_t draw = 0;
    int found = 0;
    for (int round = 0; round < 2000; round++) {
        filter_set set = {0};
        char words[6][8] = {{0}}, text[60] = {0};
        int n = 1 + (int)(gw_rng_u32(key, draw++) % 6);
        for (int i = 0; i < n; i++) {
            int len = 1 + (int)(gw_rng_u32(key, draw++) % 5);
            for (int k = 0; k < len; k++) words[i][k] = "ab."[gw_rng_u32(key, draw++) % 3];
            filter_set_add(&set, words[i], len);
        }
        for (int k = 0; k < 40; k++) text[k] = "abc."[gw_rng_u32(key, draw++) % 4];
        bool any = false, second = false;
        for (int i = 0; i < n; i++)
            for (const char *at = text; (at = strstr(at, words[i])); at++) {
                any = true;
                second |= at > text && at[-1] == '.';
            }
        filter_automaton *a = filter_automaton_new(&set);
        CHECK_EQ(filter_automaton_finds(a, text, 40), any);
        CHECK_EQ(filter_automaton_any(a, text, 40, accept_all), any);
        CHECK_EQ(filter_automaton_any(a, text, 40, accept_second), second);
        found += any;
        filter_automaton_free(a);
        filter_set_release(&set);
    }
    CHECK(found > 200 && found < 2000);
}

static const char *write_list(const char *name, const char *text) {
    gw_diags dg;
    gw_diags_init(&dg);
    const char *path = test_tmp_path(name);
    CHECK_OK(gw_file_write_atomic(path, text, (int64_t)strlen(text), &dg), &dg);
    gw_diags_release(&dg);
    return path;
}

static void check_url(gw_filters *f, const char *url, const char *want) {
    gw_str s = {0};
    gw_str_add(&s, "text");
    double columns[16];
    char buf[200];
    gw_filter_facts facts = {url, "", 0};
    gw_verdict v = gw_filters_run(f, &facts, &s, columns);
    CHECK_MSG(gw_str_eq(gw_filters_verdict_text(f, v, buf, sizeof buf), want), "%s: %s", url, buf);
    gw_str_release(&s);
}

TEST(url_lists) {
    gw_str yaml = {0};
    gw_str_printf(&yaml, "- url/datatrove:\n    domains: %s\n",
                  write_list("domains", "# c\nbad.com\nsub.good.org\n"));
    gw_str_printf(&yaml, "    urls: %s\n", write_list("urls", "http://x.net/a?b\n"));
    gw_str_printf(&yaml, "    banned_words: %s\n", write_list("hard", "Casi-no\n"));
    gw_str_printf(&yaml, "    soft_banned_words: %s\n", write_list("soft", "win\nfree\nbest\n"));
    gw_str_printf(&yaml, "    banned_subwords: %s\n", write_list("sub", "xyzzy\n"));
    gw_filters *f = open_list(gw_str_c(&yaml));
    check_url(f, "http://bad.com/a", "url/datatrove: domain");
    check_url(f, "https://user@www.BAD.com:80/a", "url/datatrove: domain");
    check_url(f, "http://sub.good.org", "url/datatrove: subdomain");
    check_url(f, "http://good.org/bad.com", "kept");
    check_url(f, "http://notbad.com/", "kept");
    check_url(f, "http://x.net/a?b", "url/datatrove: url");
    check_url(f, "http://x.net/casino-royale", "url/datatrove: hard_blacklisted");
    check_url(f, "http://x.net/casinos", "kept");
    check_url(f, "http://x.net/win/win", "kept");
    check_url(f, "http://x.net/win/for-free", "url/datatrove: soft_blacklisted");
    check_url(f, "http://x.net/a-xy-zz-y", "url/datatrove: blacklisted_subword");
    check_url(f, "", "kept");
    gw_filters_free(f);
    gw_str_release(&yaml);
}

TEST(bad_words_stand_free) {
    gw_str yaml = {0};
    gw_str_printf(&yaml, "- c4_badwords/datatrove: {list: %s}\n",
                  write_list("bad", "Foo\nfoo\ntwo words\nfo\n"));
    const char *y = gw_str_c(&yaml);
    check_verdict(y, "a FOO.", "c4_badwords/datatrove: document_removed_with_badwords", NULL);
    check_verdict(y, "a food, éfoo, foo_", "kept", NULL);
    check_verdict(y, "two words", "c4_badwords/datatrove: document_removed_with_badwords", NULL);
    check_verdict(y, "fo-o", "c4_badwords/datatrove: document_removed_with_badwords", NULL);
    gw_str_release(&yaml);
    const char *w = "- words/dclm: {words: [Lorem Ipsum, \"{\"]}\n";
    check_verdict(w, "some lorem ipsums", "words/dclm: substring", NULL);
    check_verdict(w, "nothing", "kept", NULL);
    w = "- words/dclm: {words: [cat], exact_word: true, case_sensitive: true}\n";
    check_verdict(w, "category Cat", "kept", NULL);
    check_verdict(w, "a cat.", "words/dclm: substring", NULL);
}

TEST(language_is_decided_from_facts) {
    gw_filters *f = open_list("- language/datatrove: {languages: [en, fr]}\n");
    gw_str s = {0};
    double c[4];
    char buf[100];
    struct {
        const char *language;
        float score;
        const char *want;
    } cases[] = {{"en", 0.7f, "kept"},
                 {"fr", 0.66f, "kept"},
                 {"fr", 0.64f, "language/datatrove: language_score"},
                 {"de", 1, "language/datatrove: language"},
                 {"", 0, "language/datatrove: language"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_filter_facts facts = {"", cases[i].language, cases[i].score};
        gw_verdict v = gw_filters_run(f, &facts, &s, c);
        CHECK_STR(gw_filters_verdict_text(f, v, buf, sizeof buf), cases[i].want);
    }
    gw_filters_free(f);
    gw_str_release(&s);
}

TEST(refinedweb_lines_are_corrected) {
    const char *y = "- refinedweb_lines/dclm: {max_removed_ratio: 1}\n";
    check_verdict(
        y, "This is a line of text.\nSHOUTED LINE\n12345\n1,204K Views!\nalone\n\nThe last one.",
        "kept", "This is a line of text.\n\nThe last one.");
    check_verdict(y, "two items in cart now\nitems in cart\nSign-in here\nA story. Read more...",
                  "kept", "two now\nhere\nA story.");
    check_verdict(y, "ABC", "refinedweb_lines/dclm: empty", "");
    /* One of 19 words is more than a twentieth, one of 21 is less. */
    y = "- refinedweb_lines/dclm\n";
    check_verdict(y, "a b c d e f g h i j k l m n o p q r\nalone",
                  "refinedweb_lines/dclm: word_removal_ratio", NULL);
    check_verdict(y, "a b c d e f g h i j k l m n o p q r s t\nalone", "kept",
                  "a b c d e f g h i j k l m n o p q r s t");
}

TEST(dclm_and_redpajama_by_hand) {
    double c[64];
    gw_filters *f = open_list("- gopher_repetition/dclm\n");
    gw_str s = {0};
    /* 3 of 4 lines stand more than once: 6 of 10 characters; paragraphs differ. */
    gw_str_add(&s, "ab\nab \n\nabcd\nab");
    CHECK_STR(verdict(f, &s, c), "gopher_repetition/dclm: line");
    CHECK_NEAR(c[1], 0.75, 0);
    CHECK_NEAR(c[2], 0.6, 1e-15);
    /* "x y" twice: 4 of the 7 letters of words. The comma is no word. */
    gw_str_clear(&s);
    gw_str_add(&s, "x, y aaa x y");
    verdict(f, &s, c);
    CHECK_NEAR(c[6], 4.0 / 7, 1e-15);
    CHECK_NEAR(c[7], 0, 0);
    gw_filters_free(f);
    /* Punctuation goes, capitals become small, é becomes two characters. */
    f = open_list("- gopher_repetition/redpajama-v2\n");
    gw_str_clear(&s);
    gw_str_add(&s, "Caf\xc3\xa9 a. bb CAF\xc3\x89 a!");
    verdict(f, &s, c);
    CHECK_NEAR(c[0], 0.85714286, 1e-12); /* 2 * 6 of 14, at eight places */
    gw_filters_free(f);
    /* 3 of 12 words have no letter: above a fifth. */
    check_verdict("- gopher_quality/dclm: {min_length: 1}\n",
                  "the words of this and 1 2 3 more words that follow",
                  "gopher_quality/dclm: alphabetic_word_ratio", NULL);
    gw_str_release(&s);
}

TEST(nemo_by_hand) {
    double c[64];
    gw_filters *f = open_list("- heuristics/nemo\n");
    gw_str s = {0};
    gw_str_add(&s, "a b c d e\na b c d e\n\n[x] ## http://y.z/! Read more");
    CHECK_STR(verdict(f, &s, c), "heuristics/nemo: alpha_numeric");
    double chars = 50;
    CHECK_EQ(s.len, 50);
    /* 30 of the 50 characters are letters, line breaks and marks of its list. */
    CHECK_NEAR(c[0], (chars - 30) / chars, 1e-12);
    CHECK_NEAR(c[1], 0, 0);                  /* "##" is one run of two characters: not over half */
    CHECK_NEAR(c[3], 12 / chars, 1e-12);     /* http://y.z/! */
    CHECK_NEAR(c[4], 15 / chars, 1e-12);     /* spaces and line breaks */
    CHECK_NEAR(c[5], 2 / chars, 1e-12);      /* brackets */
    CHECK_NEAR(c[7], 2.0 / 3, 1e-12);        /* two of three lines differ */
    CHECK_NEAR(c[8], 1, 0);                  /* both paragraphs do */
    CHECK_NEAR(c[9], 38.0 / 47, 1e-12);      /* 9 + 29 of 9 + 9 + 29 characters */
    CHECK_NEAR(c[17], 1.0 / 3, 1e-12);       /* one line ends with an ellipsis */
    CHECK_NEAR(c[18], 2 * 3 / chars, 1e-12); /* "a b" twice */
    CHECK_NEAR(c[21], 9 / chars, 1e-12);     /* "a b c d e" a second time, with its spaces */
    gw_str_clear(&s);
    gw_str_add(&s, "x y z");
    verdict(f, &s, c);
    CHECK_NEAR(c[20], 1, 0); /* too few words for four */
    gw_str_release(&s);
    gw_filters_free(f);
}

TEST(filters_allocate_nothing_per_document) {
    gw_filters *f = open_list(strict);
    gw_str all = read_golden("filters.txt"), text = {0};
    double c[128];
    int64_t before = 0;
    for (int round = 0; round < 3; round++) {
        gw_str_clear(&text);
        gw_str_add_n(&text, all.data, 20000);
        gw_str_reserve(&text, 20000);
        if (round == 2) before = gw_mem_count();
        gw_filters_run(f, &no_facts, &text, c);
    }
    CHECK_EQ(gw_mem_count(), before);
    gw_filters_free(f);
    gw_str_release(&all);
    gw_str_release(&text);
}

// SPDX-License-Identifier: Apache-2.0
// A model of fastText and a list of filters, damaged; and any bytes as a document through all that
// cuts, measures, edits and marks text. What is accepted must work on a document.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"            /* gw_file_write_atomic */
#include "base/yaml.h"          /* gw_yaml_parse */
#include "data/filter/filter.h" /* gw_filters */
#include "data/text/langid.h"   /* gw_langid */
#include "data/text/pii.h"      /* gw_pii */
#include "data/text/words.h"    /* gw_words */
#include "data/unicode.h"       /* gw_utf8_repair */
#include "fuzz.h"
#include "harness.h"

static gw_status read_model(const void *bytes, size_t n, gw_diags *dg) {
    const char *path = test_tmp_path("model");
    gw_langid *l = NULL;
    CHECK_OK(gw_file_write_atomic(path, bytes, (int64_t)n, dg), dg);
    gw_status st = gw_langid_open(path, &l, dg);
    if (st == GW_OK) {
        static const char text[] = "kato mine \xd0\xb4\xd0\xbe\xd1\x80\xd0\xb8 ber </s>";
        char lang[8];
        float score;
        gw_langid_detect(l, text, sizeof text - 1, lang, &score);
        CHECK(score >= 0 && score <= 1);
    }
    gw_langid_free(l);
    return st;
}

static void run_model(int64_t rounds) {
    fuzz f = {.name = "fasttext", .target = read_model, .hot = 1200};
    fuzz_seed_file(&f, "golden/fasttext/softmax.bin");
    fuzz_seed_file(&f, "golden/fasttext/hs.bin");
    fuzz_seed_file(&f, "golden/fasttext/small.ftz");
    fuzz_run(&f, rounds);
}

TEST(fuzz_fasttext) { run_model(1500); }
TEST_LONG(fuzz_fasttext_long) { run_model(60000); }

static const char document[] =
    "The first line of a page, with the words that are of use to have.\nIs it? It's 3.14 km!\n\n"
    "- a list {of} things... [1] a@b.co 8.8.8.8 http://x.org/y :-) \xe4\xba\xba\xe2\x80\xa6\n";

static gw_status read_list(const void *bytes, size_t n, gw_diags *dg) {
    gw_arena a = {0};
    gw_yaml_node *root = NULL;
    gw_filters *f = NULL;
    gw_status st = gw_yaml_parse(&a, "filters.yaml", bytes, (int64_t)n, true, &root, dg);
    if (st == GW_OK) st = gw_filters_new(root, "filters.yaml", &f, dg);
    if (st == GW_OK) {
        gw_str text = {0};
        gw_str_add(&text, document);
        double *columns = gw_arena_new(&a, double, gw_filters_columns(f) + 1);
        gw_filter_facts facts = {"http://x.org/", "en", 0.9f};
        gw_verdict v = gw_filters_run(f, &facts, &text, columns);
        gw_verdict again = gw_filters_decide(f, &facts, columns);
        CHECK_EQ(v.filter, again.filter);
        CHECK_EQ(v.reason, again.reason);
        gw_str_release(&text);
    }
    gw_filters_free(f);
    gw_arena_release(&a);
    return st;
}

static void run_list(int64_t rounds) {
    static const char *const words[] = {"gopher_quality/datatrove",
                                        "c4/datatrove",
                                        "refinedweb_lines/dclm",
                                        "words/dclm",
                                        "min_num_sentences",
                                        "stop_words",
                                        "null",
                                        "-1",
                                        "1e308",
                                        "true",
                                        "[the, be]",
                                        ": {",
                                        "}",
                                        "\n- ",
                                        "short_line_length",
                                        ".nan",
                                        NULL};
    static const char *const seeds[] = {
        "- gopher_quality/datatrove\n- c4/datatrove: {filter_policy: false}\n",
        "- gopher_quality/datatrove: {stop_words: [a, b], max_symbol_word_ratio: null}\n",
        "- words/dclm: {words: [lorem, casino], exact_word: true}\n- refinedweb_lines/dclm\n",
        "- language/datatrove: {languages: [en, fr], language_threshold: 0.5}\n- url/datatrove\n",
        "- fineweb_quality/datatrove: {short_line_length: 10}\n- gopher_repetition/redpajama-v2\n",
    };
    fuzz f = {.name = "filters", .target = read_list, .words = words};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_filters) { run_list(1000); }
TEST_LONG(fuzz_filters_long) { run_list(50000); }

/* A document: words do not overlap, filters leave valid UTF-8, marks keep the rest. "Refused" are
 * documents that the filters remove. */
static gw_status use_document(const void *bytes, size_t n, gw_diags *dg) {
    static const char list[] =
        "- gopher_repetition/datatrove\n- gopher_quality/datatrove\n"
        "- c4/datatrove: {min_num_sentences: 1}\n"
        "- fineweb_quality/datatrove: {short_line_length: 8}\n"
        "- gopher_quality/dolma\n- gopher_repetition/dolma\n"
        "- gopher_quality/dclm\n- gopher_repetition/dclm\n"
        "- gopher_repetition/redpajama-v2\n- heuristics/nemo\n- refinedweb_lines/dclm\n";
    gw_str text = {0};
    gw_str_reserve(&text, 3 * n + 1);
    text.len = gw_utf8_repair(bytes, n, (uint8_t *)text.data);
    text.data[text.len] = 0;
    gw_words *w = gw_words_new();
    for (int kind = 0; kind < GW_SPLITTERS; kind++) {
        gw_words_split(w, (gw_splitter)kind, text.data, (int64_t)text.len);
        uint32_t at = 0;
        for (int64_t i = 0; i < w->count; i++) {
            CHECK(w->items[i].offset >= at && w->items[i].bytes > 0);
            at = w->items[i].offset + w->items[i].bytes;
            CHECK(at <= text.len);
        }
    }
    CHECK(gw_words_sentences(w, GW_SPLIT_SPACY_EN, text.data, (int64_t)text.len) >= 1);
    gw_words_free(w);
    gw_arena a = {0};
    gw_yaml_node *root;
    gw_filters *f = NULL;
    CHECK_OK(gw_yaml_parse(&a, "l", list, sizeof list - 1, true, &root, dg), dg);
    CHECK_OK(gw_filters_new(root, "l", &f, dg), dg);
    double *columns = gw_arena_new(&a, double, gw_filters_columns(f));
    gw_filter_facts facts = {"", "", 0};
    gw_verdict v = gw_filters_run(f, &facts, &text, columns);
    CHECK_EQ(gw_utf8_valid_prefix((const uint8_t *)gw_str_c(&text), text.len), text.len);
    gw_pii *p = gw_pii_new();
    gw_pii_options o = gw_pii_defaults();
    for (int k = 0; k < GW_PII_KINDS; k++) o.how[k] = GW_PII_MARK;
    gw_pii_counts counts = {0};
    gw_pii_mark(p, &o, &text, &counts);
    CHECK_EQ(gw_utf8_valid_prefix((const uint8_t *)gw_str_c(&text), text.len), text.len);
    gw_pii_free(p);
    gw_filters_free(f);
    gw_arena_release(&a);
    gw_str_release(&text);
    if (v.filter < 0) return GW_OK;
    return GW_FAIL(dg, GW_ERR_FORMAT, "data-filter-value", "removed");
}

static void run_document(int64_t rounds) {
    static const char *const words[] = {"the",
                                        "Mr.",
                                        "e.g.",
                                        ":-)",
                                        "...",
                                        "\n\n",
                                        "\xe2\x80\xa6",
                                        "a@b.co",
                                        "1.2.3.4",
                                        "http://",
                                        "don't",
                                        "10km",
                                        "[1]",
                                        "{",
                                        "lorem ipsum",
                                        "- ",
                                        "\xc2\xa0",
                                        "\xe3\x80\x82",
                                        "4242424242424242",
                                        NULL};
    static const char page[] =
        "A river that rises in the hills has to find its own way down to the sea.\n"
        "Most of it is quiet, and people who live beside it seldom look at the water.\n"
        "When snow melts in spring, though, every house with a cellar is at risk; boats are tied "
        "up, and children stay home.\n"
        "Old stones on the bank show how high it stood before, which nobody can have forgotten.\n"
        "Would you build there? Some would be glad of the view, others of cheap land.\n"
        "In autumn fishermen come back with lamps, nets and stories that grow longer each year.\n";
    static const char tail[] = "By winter all this is gone, and ice covers what remains of their "
                               "small wooden pier.\n";
    fuzz f = {.name = "document", .target = use_document, .words = words};
    fuzz_seed(&f, page, sizeof page - 1);
    gw_str longer = {0};
    gw_str_add(&longer, page);
    gw_str_add(&longer, tail);
    fuzz_seed(&f, longer.data, longer.len);
    gw_str_release(&longer);
    fuzz_run(&f, rounds);
}

TEST(fuzz_document) { run_document(400); }
TEST_LONG(fuzz_document_long) { run_document(20000); }

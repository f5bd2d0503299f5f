// SPDX-License-Identifier: Apache-2.0
// Words and sentences of every splitter: whatever the text, words do not overlap and lie within it.
#include <string.h>

#include "base/compiler.h"   /* GW_COUNT */
#include "base/str.h"        /* gw_str */
#include "data/text/words.h" /* gw_words_split */
#include "data/unicode.h"    /* gw_utf8_repair */
#include "fuzz.h"            /* fuzz_run */
#include "harness.h"         /* TEST, CHECK */

/* "Refused" are texts that are not UTF-8 as they stand; they are cut mended. */
static gw_status cut_text(const void *bytes, size_t n, gw_diags *dg) {
    static gw_words *w; /* one for all texts: the rules of a language are made once */
    static int next;
    gw_str text = {0};
    if (!w) w = gw_words_new();
    gw_str_reserve(&text, 3 * n + 1);
    text.len = gw_utf8_repair(bytes, n, (uint8_t *)text.data);
    text.data[text.len] = 0;
    for (int k = 0; k < 6; k++) { /* a few splitters a text, in turn */
        gw_splitter kind = (gw_splitter)(next++ % gw_splitter_count());
        gw_words_split(w, kind, text.data, (int64_t)text.len);
        uint32_t at = 0;
        for (int64_t i = 0; i < w->count; i++) {
            CHECK(w->items[i].offset >= at && w->items[i].bytes > 0);
            at = w->items[i].offset + w->items[i].bytes;
        }
        CHECK(at <= text.len);
        CHECK(gw_words_sentences(w, kind, text.data, (int64_t)text.len) >= 0);
    }
    bool repaired = text.len != n || memcmp(text.data, bytes, n) != 0;
    gw_str_release(&text);
    if (!repaired) return GW_OK;
    return GW_FAIL(dg, GW_ERR_FORMAT, "data-filter-value", "not UTF-8");
}

static void run(int64_t rounds) {
    static const char *const words[] = {
        "l'", "-la",      "z.B.", "10%",           "Rp",    "км", "°C.", "…", "--",
        "'s", "\xc2\xa0", "\n",   "http://a.de/x", "т. е.", "«",  "’",   NULL};
    static const char *const seeds[] = {
        "Das ist z.B. ein Test, d.h. am 3. Mai geht's los!",
        "L'été dernier, j'ai vu qu'elle n'était pas là: est-ce grave?",
        "Buku-bukunya berharga Rp50.000 di RMIT; kata-kata dan -nya.",
        "А.С. Пушкин родился 6 июня 1799 г., т. е. давно.",
        "ο άνθρωπος είπε: «καλημέρα» στις 10.30' της 15/2/17.",
    };
    fuzz f = {.name = "words", .target = cut_text, .words = words};
    for (size_t i = 0; i < GW_COUNT(seeds); i++) fuzz_seed(&f, seeds[i], strlen(seeds[i]));
    fuzz_run(&f, rounds);
}

TEST(fuzz_words) { run(1000); }
TEST_LONG(fuzz_words_long) { run(100000); }

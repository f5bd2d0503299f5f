// SPDX-License-Identifier: Apache-2.0
// Words and their facts with a memory of spans, against the rules asked about every span; and the
// searches that look at sixteen bytes at a time, against loops over bytes.
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"              /* gw_rng_u32 */
#include "base/str.h"              /* gw_str */
#include "data/filter/measure.h"   /* gw_text_chars, gw_text_count */
#include "data/filter/scan_text.h" /* text_find_break */
#include "data/text/words_impl.h"  /* words_spacy, words_rejoin */
#include "harness.h"               /* TEST, CHECK */

static gw_rng_key key;
static uint64_t draw;
static int below(int n) { return (int)(gw_rng_u32(key, draw++) % (uint32_t)n); }

static const char *const pieces[] = {
    "the",
    "cat",
    "e.g.",
    "(e.g.",
    "Mr.",
    "can't",
    "cannot,",
    "a.m.",
    "10a.m.",
    ":-)",
    "...",
    "don't",
    "well-known",
    "http://a.example/b?c=d",
    "x",
    "I",
    "a",
    "'s",
    "Dr.",
    "internationalization",
    "\xc2\xa0",
    "\xe2\x80\xa8",
    "\xe3\x80\x80",
    "na\xc3\xafve",
    "\xd0\xbf\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82",
    "\xe2\x80\x9cso\xe2\x80\x9d",
    "\xe2\x80\xa6",
    "1,000.5kg",
    "gtk_widget_show_all(&window);",
    "\x01odd\x02",
    "\x1c",
    "\x85",
    "sixteen-letters!",
    "seventeen-letters",
    "a,b;c:d/e=f+g",
    "\xf0\x9f\x98\x80",
    "p.m",
    ".",
    "(",
    ")",
    "\"",
    "We've",
    "U.S.",
    "C++",
};
static const char *const gaps[] = {" ", " ", " ", " ", "", "\n", "  ", "\t", "\r\n", "\xc2\xa0"};

/* A text of exactly its bytes, so that a read beyond them is seen. */
static char *make_text(int64_t *n) {
    gw_str s = {0};
    int count = below(below(4) ? 40 : 200); /* spans wait in a queue of some dozens */
    for (int i = 0; i < count; i++) {
        gw_str_add(&s, pieces[below((int)GW_COUNT(pieces))]);
        gw_str_add(&s, gaps[below((int)GW_COUNT(gaps))]);
    }
    *n = (int64_t)s.len;
    char *text = malloc(s.len ? s.len : 1);
    CHECK(text);
    if (s.len) memcpy(text, s.data, s.len);
    gw_str_release(&s);
    return text;
}

static void cut_without_memory(gw_words_inner *w, gw_splitter kind, const char *text, int64_t n) {
    w->count = 0;
    w->starts.count = 0;
    if (kind == GW_SPLIT_WHITESPACE) {
        int64_t from = -1;
        int len;
        for (int64_t i = 0; i < n; i += len) {
            bool space = words_class_at(text + i, text + n, &len) & GW_CH_SPACE;
            if (space && from >= 0) words_push(w, from, i);
            from = space ? -1 : from < 0 ? i : from;
        }
        if (from >= 0) words_push(w, from, n);
        return;
    }
    words_spacy(w, &w->rules[kind], text, n, true);
    if (w->starts.count) words_rejoin(w, &w->rules[kind], text);
}

static void compare(const gw_words *w, const gw_words_inner *plain, const char *text) {
    CHECK_EQ(w->count, plain->count);
    for (int64_t i = 0; i < w->count; i++) {
        gw_word a = w->items[i], b = plain->items[i];
        CHECK_MSG(a.offset == b.offset && a.bytes == b.bytes, "word %d is at %u+%u, not %u+%u",
                  (int)i, a.offset, a.bytes, b.offset, b.bytes);
        gw_word_facts f = gw_word_look(text + a.offset, a.bytes);
        bool first = i == 0 || plain->items[i - 1].offset + plain->items[i - 1].bytes != b.offset;
        CHECK_EQ(w->facts[i].hash, f.hash);
        CHECK_EQ(w->facts[i].chars, f.chars);
        CHECK_EQ(w->facts[i].flags, f.flags | (first ? GW_WORD_FIRST : 0u));
    }
}

TEST(words_are_the_same_with_a_memory_of_spans) {
    static const gw_splitter kinds[] = {GW_SPLIT_SPACY_EN, GW_SPLIT_WHITESPACE, GW_SPLIT_SPACY_XX};
    gw_words *w = gw_words_new(), *plain = gw_words_new();
    key = gw_rng_key_named(7, "spans");
    for (int round = 0; round < 6000; round++) {
        gw_splitter kind = kinds[round / 50 % 3]; /* the memory holds for several texts */
        int64_t n;
        char *text = make_text(&n);
        gw_words_measure(w, kind, text, n);
        cut_without_memory(plain->inner, kind, text, n);
        compare(w, plain->inner, text);
        if (kind == GW_SPLIT_SPACY_EN)
            CHECK_EQ(gw_words_range_sentences(w->items, w->facts, w->count, text, 0, n),
                     gw_words_sentences(plain, kind, text, n));
        free(text);
    }
    gw_words_free(w);
    gw_words_free(plain);
}

/* ------------------------------------------------------------------------------ searches */

static int64_t count_slowly(const char *p, int64_t n, const char *what) {
    int64_t size = (int64_t)strlen(what), count = 0;
    for (int64_t i = 0; i + size <= n;) {
        bool same = !memcmp(p + i, what, (size_t)size);
        count += same;
        i += same ? size : 1;
    }
    return count;
}

static bool stands_slowly(const char *p, int64_t n, const char *what) {
    for (int64_t i = 0; i + (int64_t)strlen(what) <= n; i++) {
        size_t k = 0;
        while (what[k]) {
            char c = p[i + (int64_t)k];
            if ((c >= 'A' && c <= 'Z' ? c + 32 : c) != what[k]) break;
            k++;
        }
        if (!what[k]) return true;
    }
    return false;
}

TEST(searches_find_what_loops_find) {
    static const text_phrase phrases[] = {
        {"abba", 4, 1}, {"b a ", 4, 0}, {"aab ba", 6, 3}, {"ab baab", 7, 5}, {"bbbb", 4, 2}};
    static const char *const letters[] = {
        "a",  "b",        "B", "A", " ", ".", "#", "\n", "\xc3\xa9", "\xe2\x80\xa6", "\xe2\x80\xa8",
        "\r", "\xc2\x85", "@"};
    key = gw_rng_key_named(8, "searches");
    int found = 0;
    for (int round = 0; round < 20000; round++) {
        gw_str s = {0};
        int size = below(60), kinds = 2 + below((int)GW_COUNT(letters) - 1);
        for (int i = 0; i < size; i++) gw_str_add(&s, letters[below(kinds)]);
        int64_t n = (int64_t)s.len, chars = 0;
        char *p = malloc(s.len ? s.len : 1);
        CHECK(p);
        if (n) memcpy(p, s.data, s.len);
        for (int64_t i = 0; i < n; i++) chars += ((uint8_t)p[i] & 0xc0) != 0x80;
        CHECK_EQ(gw_text_chars(p, n), chars);
        static const char *const whats[] = {"#", "\n", "...", "\xe2\x80\xa6", "ab", "aa"};
        for (size_t k = 0; k < GW_COUNT(whats); k++)
            CHECK_EQ(gw_text_count(p, n, whats[k]), count_slowly(p, n, whats[k]));
        unsigned got = text_find_phrases(phrases, (int)GW_COUNT(phrases), p, n);
        for (size_t k = 0; k < GW_COUNT(phrases); k++) {
            bool want = stands_slowly(p, n, phrases[k].text);
            CHECK_MSG((got >> k & 1) == want, "'%s' in '%.*s'", phrases[k].text, (int)n, p);
            CHECK_EQ(gw_text_has_nocase(p, n, phrases[k].text), want);
            found += want;
        }
        const char *stop = text_find_break(p, p + n), *slow = p;
        while (slow < p + n && !strchr("\n\v\f\r\x1c\x1d\x1e\xc2\xe2", *slow)) slow++;
        CHECK_EQ(stop - p, slow - p);
        free(p);
        gw_str_release(&s);
    }
    CHECK(found > 500);
}

/* Long texts: sums of bytes do not run over. */
TEST(searches_count_in_long_texts) {
    enum { N = 300001 };
    char *p = malloc(N);
    CHECK(p);
    memset(p, '\n', N);
    CHECK_EQ(gw_text_count(p, N, "\n"), N);
    CHECK_EQ(gw_text_chars(p, N), N);
    memset(p, '.', N);
    CHECK_EQ(gw_text_count(p, N, "..."), N / 3);
    memset(p, (char)0xa6, N);
    CHECK_EQ(gw_text_chars(p, N), 0);
    free(p);
}

// SPDX-License-Identifier: Apache-2.0
// The pieces found 64 characters at a time are those of the plain rules, by every kind of vector
// instructions that this machine has, for every pattern, on text made of what the rules tell apart.
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"   /* gw_mem_alloc */
#include "base/rng.h"     /* gw_rng_u32 */
#include "base/str.h"     /* gw_str */
#include "data/scanner.h" /* gw_scanner */
#include "harness.h"      /* TEST, CHECK */

static const char *const PARTS[] = {
    "a",
    "The",
    "B",
    "z",
    "'s",
    "'S",
    "'ll",
    "'LL",
    "'Ve",
    "'",
    "\xe2\x80\x99s",
    "7",
    "42",
    "123",
    "45678",
    "1234567890",
    " ",
    "  ",
    "   ",
    "                  ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    "\n  ",
    "  \n",
    "\xc2\xa0",
    "\xe3\x80\x80",
    "\xe2\x80\x8b",
    ".",
    "...",
    "!?",
    "-",
    "--",
    "_",
    "/",
    "//",
    "/\n",
    "\n/",
    "(",
    ")",
    "((",
    "\xc3\xa9",
    "e\xcc\x81",
    "\xc3\x9f",
    "\xd0\x95\xd0\xa9",
    "\xe6\xbc\xa2\xe5\xad\x97",
    "\xd9\xa1\xd9\xa2",
    "\xc2\xbd",
    "\xe2\x85\xa7",
    "\xc7\x85",
    "\xf0\x9f\x99\x82",
    "\xcc\x81",
    "\xff",
    "\xe2\x82",
    "\xc5\xbf",
    "'\xc5\xbf",
    "camelCase",
    "HTMLParser",
    "don't",
    "I'm",
    "^",
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "\xe1\xbd\xa0",
    "\xf0\x9f\xab\xa8",
    "\xed\xa0\x80",
    "\xd8\x9d"};

/* Text of a pure function of the round: short or long, of all parts, of a few, or with stray bytes.
 */
static void make_text(uint64_t round, gw_str *out) {
    gw_rng_key key = gw_rng_key_fold(gw_rng_key_named(3, "scanner"), round);
    uint64_t i = 0;
    uint32_t shape = gw_rng_u32(key, i++) % 4;
    size_t n = round % 40 == 0 ? 20000 + gw_rng_u32(key, i++) % 20000 : gw_rng_u32(key, i++) % 400;
    uint32_t few[6];
    for (int k = 0; k < 6; k++) few[k] = gw_rng_u32(key, i++) % GW_COUNT(PARTS);
    gw_str_clear(out);
    while (out->len < n) {
        uint32_t r = gw_rng_u32(key, i++);
        if (shape == 3 && r % 8 == 0)
            gw_str_add_char(out, (char)(r >> 8));
        else
            gw_str_add(out, PARTS[shape ? r % GW_COUNT(PARTS) : few[r % 6]]);
    }
}

static void check_pieces(gw_scanner *s, gw_scan kind, const gw_uni_table *classes,
                         const uint8_t *text, size_t n, uint64_t round) {
    const uint8_t *base;
    const uint32_t *bounds;
    size_t pos = 0;
    gw_scanner_begin(s, kind, classes->version, text, n);
    for (int64_t count; (count = gw_scanner_next(s, &base, &bounds)) > 0;)
        for (int64_t k = 0; k < count; k++) {
            size_t e = gw_scan_next_by(kind, classes, text, n, pos),
                   len = bounds[k + 1] - bounds[k];
            CHECK_MSG(len == e - pos && !memcmp(base + bounds[k], text + pos, len),
                      "round %d, %s: the piece at %zu has %zu bytes, not %zu", (int)round,
                      gw_scan_name(kind), pos, len, e - pos);
            pos = e;
        }
    CHECK_EQ(pos, n);
}

static void check_with(gw_scan_with with, uint64_t rounds) {
    if (!gw_scan_has(with)) SKIP("this machine has no %s", gw_scan_with_name(with));
    gw_scanner *s = gw_scanner_new();
    gw_uni_table *classes = gw_uni_table_new(16);
    gw_str text = {0};
    gw_scanner_use(s, with);
    for (uint64_t r = 0; r < rounds; r++) {
        make_text(r, &text);
        /* Exactly as long as it is, so that the sanitizer sees what reads past it. */
        uint8_t *copy = gw_mem_alloc(text.len + 1);
        memcpy(copy, gw_str_c(&text), text.len);
        copy = gw_mem_realloc(copy, text.len ? text.len : 1);
        for (int kind = GW_SCAN_GPT2; kind <= GW_SCAN_O200K; kind++)
            check_pieces(s, (gw_scan)kind, classes, copy, text.len, r);
        gw_mem_free(copy);
    }
    gw_str_release(&text);
    gw_uni_table_free(classes);
    gw_scanner_free(s);
}

TEST(blocks_in_plain_c_cut_as_the_rules) { check_with(GW_SCAN_PLAIN, 800); }
TEST(blocks_with_avx2_cut_as_the_rules) { check_with(GW_SCAN_AVX2, 800); }
TEST(blocks_with_avx512_cut_as_the_rules) { check_with(GW_SCAN_AVX512, 800); }
TEST_LONG(blocks_cut_as_the_rules_for_long) { check_with(gw_scan_best(), 40000); }

/* Every text of one to three of the parts: what meets at an edge. */
TEST(all_short_texts_cut_as_the_rules) {
    gw_scanner *s = gw_scanner_new();
    gw_uni_table *classes = gw_uni_table_new(13);
    char text[400];
    for (size_t a = 0; a < GW_COUNT(PARTS); a++)
        for (size_t b = 0; b < GW_COUNT(PARTS); b++)
            for (size_t c = 0; c < GW_COUNT(PARTS); c += 3) {
                int n = snprintf(text, sizeof text, "%s%s%s", PARTS[a], PARTS[b], PARTS[c]);
                for (int kind = GW_SCAN_GPT2; kind <= GW_SCAN_O200K; kind++)
                    check_pieces(s, (gw_scan)kind, classes, (const uint8_t *)text, (size_t)n,
                                 a * 10000 + b * 100 + c);
            }
    gw_uni_table_free(classes);
    gw_scanner_free(s);
}

TEST(tables_hold_the_classes) {
    static const int VERSIONS[] = {13, 17};
    for (size_t k = 0; k < GW_COUNT(VERSIONS); k++) {
        gw_uni_table *t = gw_uni_table_new(VERSIONS[k]);
        for (uint32_t cp = 0; cp < 0x110000; cp++)
            if (gw_uni_table_class(t, cp) != gw_uni_class(cp, VERSIONS[k]))
                test_fail(__FILE__, __LINE__, "U+%04X in Unicode %d", (unsigned)cp, VERSIONS[k]);
        CHECK_EQ(gw_uni_table_class(t, GW_CP_INVALID), 0);
        gw_uni_table_free(t);
    }
}

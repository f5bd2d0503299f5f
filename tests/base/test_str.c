// SPDX-License-Identifier: Apache-2.0
// Strings, distances, globs, and figures to and from text.
#include <float.h>
#include <string.h>

#include "base/str.h"
#include "harness.h"

TEST(str_grows_and_stays_terminated) {
    gw_str s = {0};
    CHECK_STR(gw_str_c(&s), "");
    for (int i = 0; i < 1000; i++) {
        gw_str_printf(&s, "%d,", i);
        CHECK_EQ(strlen(s.data), s.len);
    }
    CHECK(gw_str_starts(s.data, "0,1,2,") && gw_str_ends(s.data, "998,999,"));
    gw_str_clear(&s);
    CHECK_STR(gw_str_c(&s), "");
    gw_str_add_n(&s, "a\0b", 3);
    gw_str_add_char(&s, 'c');
    gw_str_add(&s, "");
    CHECK_EQ(s.len, 4);
    CHECK(memcmp(s.data, "a\0bc", 5) == 0);
    gw_str_printf(&s, "%*d", 5000, 1);
    CHECK_EQ(s.len, 5004);
    gw_str_release(&s);
    CHECK_STR(gw_str_c(&s), "");
}

TEST(str_equality_knows_null) {
    CHECK(gw_str_eq(NULL, NULL) && gw_str_eq("a", "a"));
    CHECK(!gw_str_eq("a", NULL) && !gw_str_eq(NULL, "") && !gw_str_eq("a", "b"));
    CHECK(gw_str_starts("abc", "") && !gw_str_starts("ab", "abc"));
    CHECK(gw_str_ends("abc", "bc") && gw_str_ends("abc", "") && !gw_str_ends("c", "bc"));
}

TEST(str_distance_counts_edits) {
    static const struct {
        const char *a, *b;
        int d;
    } cases[] = {
        {"", "", 0},
        {"abc", "ABC", 0},
        {"", "abc", 3},
        {"kitten", "sitting", 3}, /* the textbook pair */
        {"steps", "setps", 1},    /* neighbours swapped */
        {"ca", "abc", 3},         /* optimal string alignment, not unrestricted Damerau (2) */
        {"micro_batch", "microbatch", 1},
        {"seq_len", "seq_length", 3},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        CHECK_EQ(gw_str_distance(cases[i].a, cases[i].b), cases[i].d);
        CHECK_EQ(gw_str_distance(cases[i].b, cases[i].a), cases[i].d);
    }
    char full[65], over[66];
    memset(full, 'a', 64);
    memset(over, 'a', 65);
    full[64] = over[65] = 0;
    CHECK_EQ(gw_str_distance(full, full), 0);
    CHECK_EQ(gw_str_distance(over, "a"), INT32_MAX);
}

TEST(str_glob_matches_the_whole_string) {
    static const struct {
        const char *pattern, *s;
        bool match;
    } cases[] = {
        {"", "", true},
        {"*", "", true},
        {"?", "", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"a*c", "abbbc", true},
        {"a*c", "abbbd", false},
        {"*.bias", "h.0.bias", true},
        {"a*b*c", "axxbyybzc", true},
        {"**a**", "a", true},
        {"?b?", "abc", true},
        {"?b?", "ab", false},
        {"*a?", "aaab", true},
    };
    for (size_t i = 0; i < GW_COUNT(cases); i++)
        CHECK_MSG(gw_str_glob(cases[i].pattern, cases[i].s) == cases[i].match, "'%s' on '%s'",
                  cases[i].pattern, cases[i].s);
    /* Many stars on a near miss must not take exponential time. */
    char s[2001], p[201];
    memset(s, 'a', 2000);
    s[2000] = 0;
    for (int i = 0; i < 200; i += 2) p[i] = '*', p[i + 1] = 'a';
    p[199] = 'b';
    p[200] = 0;
    CHECK(!gw_str_glob(p, s));
}

TEST(parse_integers_whole_or_not_at_all) {
    int64_t v;
    CHECK(gw_parse_i64("0", &v) && v == 0);
    CHECK(gw_parse_i64("-9223372036854775808", &v) && v == INT64_MIN);
    CHECK(gw_parse_i64("+9223372036854775807", &v) && v == INT64_MAX);
    v = 7;
    static const char *const bad[] = {
        "",    " 1",  "1 ", "1x", "0x10", "9223372036854775808", "-9223372036854775809",
        "1.0", "--1", "+",  "1e3"};
    for (size_t i = 0; i < GW_COUNT(bad); i++) CHECK_MSG(!gw_parse_i64(bad[i], &v), "%s", bad[i]);
    CHECK_EQ(v, 7);
}

TEST(parse_decimals_whole_or_not_at_all) {
    double v;
    CHECK(gw_parse_f64("3e-4", &v) && v == 3e-4);
    CHECK(gw_parse_f64("-.5", &v) && v == -0.5);
    CHECK(gw_parse_f64("5.", &v) && v == 5);
    CHECK(gw_parse_f64("1.7976931348623157e308", &v) && v == DBL_MAX);
    static const char *const bad[] = {"",    " 1",   "1 ",    "1e", "0x1p3", "nan",
                                      "inf", "-inf", "1e999", ".",  "1,5",   "1d3"};
    for (size_t i = 0; i < GW_COUNT(bad); i++) CHECK_MSG(!gw_parse_f64(bad[i], &v), "%s", bad[i]);
}

TEST(parse_bytes_with_units) {
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"64", 64},
        {"10k", 10000},
        {"10K", 10000},
        {"1.5MB", 1500000},
        {"2GiB", INT64_C(2) << 30},
        {"2 GiB", INT64_C(2) << 30},
        {"3Ti", INT64_C(3) << 40},
        {"0", 0},
        {"512B", 512},
        {"0.5Ki", 512},
        {"1.25kb", 1250},
        {"9223372036854775807", INT64_MAX},
        {"1PB", INT64_C(1000000000000000)},
        {"80GB", INT64_C(80000000000)},
    };
    int64_t v;
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        CHECK_MSG(gw_parse_bytes(cases[i].text, &v), "%s", cases[i].text);
        CHECK_EQ(v, cases[i].bytes);
    }
    static const char *const bad[] = {"",
                                      "B",
                                      "-1",
                                      "1XB",
                                      "k",
                                      "1kk",
                                      "1 k B",
                                      "1e3",
                                      "1iB",
                                      " 1",
                                      "9223372036854775808",
                                      "99999999PB",
                                      "9007200PiB"};
    for (size_t i = 0; i < GW_COUNT(bad); i++) CHECK_MSG(!gw_parse_bytes(bad[i], &v), "%s", bad[i]);
}

TEST(format_bytes_for_people) {
    char b[24];
    CHECK_STR(gw_fmt_bytes(b, 0), "0 B");
    CHECK_STR(gw_fmt_bytes(b, 999), "999 B");
    CHECK_STR(gw_fmt_bytes(b, 1000), "1.0 kB");
    CHECK_STR(gw_fmt_bytes(b, 1572864), "1.6 MB");
    CHECK_STR(gw_fmt_bytes(b, 999949), "999.9 kB");
    CHECK_STR(gw_fmt_bytes(b, 999951), "1.0 MB");
    CHECK_STR(gw_fmt_bytes(b, -2500000), "-2.5 MB");
    CHECK_STR(gw_fmt_bytes(b, INT64_MAX), "9.2 EB");
    CHECK_STR(gw_fmt_bytes(b, INT64_MIN), "-9.2 EB");
}

TEST(format_counts_with_commas) {
    char b[32];
    CHECK_STR(gw_fmt_count(b, 0), "0");
    CHECK_STR(gw_fmt_count(b, 999), "999");
    CHECK_STR(gw_fmt_count(b, 1234567), "1,234,567");
    CHECK_STR(gw_fmt_count(b, -1000), "-1,000");
    CHECK_STR(gw_fmt_count(b, INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(format_si_has_three_figures) {
    char b[24];
    CHECK_STR(gw_fmt_si(b, 0), "0 ");
    CHECK_STR(gw_fmt_si(b, 2.41e9), "2.41 G");
    CHECK_STR(gw_fmt_si(b, 806e3), "806 k");
    CHECK_STR(gw_fmt_si(b, 12.34), "12.3 ");
    CHECK_STR(gw_fmt_si(b, 999.6), "1.00 k");
    CHECK_STR(gw_fmt_si(b, 9.996), "10.0 ");
    CHECK_STR(gw_fmt_si(b, -1.5e-3), "-1.50 m");
    CHECK_STR(gw_fmt_si(b, 6.25e15), "6.25 P");
    CHECK_STR(gw_fmt_si(b, 3.2e-8), "32.0 n");
    CHECK_STR(gw_fmt_si(b, (double)INFINITY), "inf ");
    CHECK(strlen(gw_fmt_si(b, -DBL_MAX)) < 24);
}

TEST(format_seconds_for_people) {
    char b[24];
    CHECK_STR(gw_fmt_seconds(b, 0), "0 s");
    CHECK_STR(gw_fmt_seconds(b, 350e-6), "350 us");
    CHECK_STR(gw_fmt_seconds(b, 1.25), "1.25 s");
    CHECK_STR(gw_fmt_seconds(b, 59.96), "1m00s");
    CHECK_STR(gw_fmt_seconds(b, 192), "3m12s");
    CHECK_STR(gw_fmt_seconds(b, 3599.6), "1h00m");
    CHECK_STR(gw_fmt_seconds(b, 7500), "2h05m");
    CHECK_STR(gw_fmt_seconds(b, 100 * 3600), "4d04h");
    CHECK(strlen(gw_fmt_seconds(b, -DBL_MAX)) < 24);
}

// SPDX-License-Identifier: Apache-2.0
// Encodings: labels and prescan by the Encoding and HTML Standards, conversion against iconv, the
// guess on real sentences in the encodings that the web has.
#include <iconv.h>
#include <string.h>

#include "data/text/encoding.h"
#include "data/unicode.h"
#include "harness.h"

/* The next of a fixed sequence. */
static uint64_t next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 20;
}

static gw_encoding label(const char *s) { return gw_encoding_of_label(s, strlen(s)); }

TEST(encoding_labels) {
    CHECK_EQ(label("utf8"), GW_ENC_UTF8);
    CHECK_EQ(label(" UTF-8\n"), GW_ENC_UTF8);
    CHECK_EQ(label("ISO-8859-1"), GW_ENC_WINDOWS_1252);
    CHECK_EQ(label("us-ascii"), GW_ENC_WINDOWS_1252);
    CHECK_EQ(label("latin5"), GW_ENC_WINDOWS_1254);
    CHECK_EQ(label("gb2312"), GW_ENC_GB18030);
    CHECK_EQ(label("SJIS"), GW_ENC_SHIFT_JIS);
    CHECK_EQ(label("ks_c_5601-1987"), GW_ENC_EUC_KR);
    CHECK_EQ(label("tis-620"), GW_ENC_WINDOWS_874);
    CHECK_EQ(label("hz-gb-2312"), GW_ENC_REPLACEMENT);
    CHECK_EQ(label("utf"), GW_ENC_UNKNOWN);
    CHECK_EQ(label(""), GW_ENC_UNKNOWN);
    for (int e = 1; e < GW_ENC_COUNT; e++) CHECK_EQ(label(gw_encoding_name((gw_encoding)e)), e);
}

static gw_encoding prescan(const char *s) {
    return gw_encoding_prescan((const uint8_t *)s, strlen(s));
}

TEST(encoding_prescan) {
    CHECK_EQ(prescan("<meta charset=koi8-r>"), GW_ENC_KOI8_R);
    CHECK_EQ(prescan("<!-- <meta charset=koi8-r> --><META a=1 CharSet='big5'/>"), GW_ENC_BIG5);
    CHECK_EQ(
        prescan("<meta http-equiv=\"Content-Type\" content=\"text/html; charset=windows-1251\">"),
        GW_ENC_WINDOWS_1251);
    CHECK_EQ(prescan("<meta content=\"text/html; charset=euc-jp\" http-equiv=content-type>"),
             GW_ENC_EUC_JP);
    CHECK_EQ(prescan("<meta content='charset=euc-jp'>"), GW_ENC_UNKNOWN);
    CHECK_EQ(prescan("<meta charset=utf-16>"), GW_ENC_UTF8);
    CHECK_EQ(prescan("<metadata charset=koi8-r>"), GW_ENC_UNKNOWN);
    CHECK_EQ(prescan("<meta charset"), GW_ENC_UNKNOWN);
}

/* Any bytes, one at a time changed: valid exactly where the plain decoder says so. */
TEST(encoding_utf8_valid_is_exact) {
    uint64_t r = 1;
    uint8_t buf[200];
    int good = 0;
    for (uint64_t round = 0; round < 60000; round++) {
        size_t n = 0, want = next(&r) % 100;
        while (n < want) {
            uint32_t cp = (uint32_t)(next(&r) >> (23 + next(&r) % 16));
            if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) cp = 'a';
            n += (size_t)gw_utf8_encode(cp, buf + n);
        }
        if (round & 1 && n) buf[next(&r) % n] = (uint8_t)next(&r);
        if (round & 2 && n) n -= next(&r) % GW_MIN(n, (size_t)4);
        bool valid = gw_utf8_valid_prefix(buf, n) == n;
        good += valid;
        CHECK_EQ(gw_utf8_is_valid(buf, n), valid);
    }
    CHECK(good > 10000 && good < 55000);
    static const char *const bad[] = {
        "\xc0\x80",         "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80",
        "\xf0\x80\x80\x80", "\x80",         "\xf5\x80\x80\x80", "\xc3"};
    for (size_t i = 0; i < GW_COUNT(bad); i++)
        for (size_t pad = 0; pad < 70; pad++) {
            memset(buf, 'x', pad);
            memcpy(buf + pad, bad[i], strlen(bad[i]));
            CHECK(!gw_utf8_is_valid(buf, pad + strlen(bad[i])));
        }
}

/* Text that is written in UTF-8 here, in encoding `name` by iconv. */
static void in_encoding(const char *name, const char *text, gw_str *out) {
    iconv_t c = iconv_open(name, "UTF-8");
    CHECK(c != (iconv_t)-1);
    char buf[8192], *in = (char *)(uintptr_t)text, *to = buf;
    size_t left = strlen(text), room = sizeof buf;
    CHECK_MSG(iconv(c, &in, &left, &to, &room) != (size_t)-1, "%s: cannot hold '%s'", name, in);
    iconv(c, NULL, NULL, &to, &room);
    gw_str_clear(out);
    gw_str_add_n(out, buf, sizeof buf - room);
    iconv_close(c);
}

static const struct {
    gw_encoding encoding;
    const char *iconv, *text;
} samples[] = {
    {GW_ENC_WINDOWS_1252, "CP1252",
     "L’été dernier, nous avons mangé des crêpes à Évreux, où l’hôtel était fermé."},
    {GW_ENC_WINDOWS_1252, "CP1252",
     "Die Straße führt über den Fluß nach Köln; dort hört man schöne Lieder. Ärger gibt es "
     "keinen."},
    {GW_ENC_WINDOWS_1252, "CP1252",
     "El niño comió una manzana y después durmió la siesta. ¿Qué más podría querer?"},
    {GW_ENC_WINDOWS_1251, "CP1251",
     "Русский язык является одним из самых распространённых языков мира. Привет всем!"},
    {GW_ENC_KOI8_R, "KOI8-R",
     "Русский язык является одним из самых распространённых языков мира. Привет всем!"},
    {GW_ENC_IBM866, "CP866",
     "Русский язык является одним из самых распространённых языков мира. Привет всем!"},
    {GW_ENC_WINDOWS_1250, "CP1250",
     "Příliš žluťoučký kůň úpěl ďábelské ódy, šťastný člověk žije v míru. Škoda."},
    {GW_ENC_WINDOWS_1253, "CP1253",
     "Η ελληνική γλώσσα είναι μία από τις αρχαιότερες γλώσσες του κόσμου."},
    {GW_ENC_WINDOWS_1255, "CP1255", "השפה העברית היא שפה שמית המדוברת בישראל על ידי מיליוני אנשים"},
    {GW_ENC_WINDOWS_1256, "CP1256",
     "اللغة العربية هي أكثر اللغات السامية تحدثا وإحدى أكثر اللغات انتشارا"},
    {GW_ENC_WINDOWS_874, "CP874", "ภาษาไทยเป็นภาษาราชการของประเทศไทยและเป็นภาษาแม่ของชาวไทย"},
    {GW_ENC_GB18030, "GBK", "中文是世界上使用人数最多的语言之一，很多人在学习它，因为它很有用。"},
    {GW_ENC_BIG5, "BIG5", "中文是世界上使用人數最多的語言之一，很多人在學習它，因為它很有用。"},
    {GW_ENC_SHIFT_JIS, "CP932",
     "日本語は日本で使われている言語です。とてもおもしろい言葉だと思います。"},
    {GW_ENC_EUC_JP, "EUC-JP",
     "日本語は日本で使われている言語です。とてもおもしろい言葉だと思います。"},
    {GW_ENC_EUC_KR, "CP949",
     "한국어는 한국에서 사용하는 언어입니다. 많은 사람들이 배우고 있습니다."},
    {GW_ENC_UTF8, "UTF-8", "Any text, даже такой, 也可以."},
    {GW_ENC_UTF16LE, "UTF-16LE", "Plain words, as some editors save them without a mark."},
};

TEST(encoding_guess) {
    gw_str bytes = {0}, page = {0};
    for (size_t i = 0; i < GW_COUNT(samples); i++) {
        in_encoding(samples[i].iconv, samples[i].text, &bytes);
        gw_encoding e = gw_encoding_guess((uint8_t *)bytes.data, bytes.len);
        CHECK_MSG(e == samples[i].encoding, "%s (%zu) guessed as %s", samples[i].iconv, i,
                  gw_encoding_name(e));
        if (e == GW_ENC_UTF16LE) continue;
        gw_str_clear(&page);
        gw_str_add(&page, "<html><head><title>A page</title></head><body class=\"plain\"><p>");
        gw_str_add_n(&page, bytes.data, bytes.len);
        gw_str_add(&page, "</p><a href=\"/next\">next</a></body></html>");
        e = gw_encoding_choose((uint8_t *)page.data, page.len, "", true);
        CHECK_MSG(e == samples[i].encoding, "%s (%zu) in a page as %s", samples[i].iconv, i,
                  gw_encoding_name(e));
    }
    gw_str_release(&bytes);
    gw_str_release(&page);
}

static gw_encoding undeclared(const char *bytes, size_t n, bool html) {
    return gw_encoding_choose((const uint8_t *)bytes, n, "", html);
}

/* Nothing is declared and little is there: windows-1252, as browsers have it (HTML Standard,
 * "determining the character encoding"). Each letter of Latin-1 alone, in a word, at its ends. */
TEST(encoding_of_little_is_windows_1252) {
    static const char *const around[][2] = {{"", ""},   {"a ", " b"},  {"caf", ""},
                                            {"", "bc"}, {"abc", "de"}, {"<p>", "</p>"}};
    for (size_t i = 0; i < GW_COUNT(around); i++)
        for (int c = 0xa0; c < 0x100; c++) {
            char text[32];
            int n = snprintf(text, sizeof text, "%s%c%s", around[i][0], c, around[i][1]);
            gw_encoding e = undeclared(text, (size_t)n, i & 1);
            /* A sign, or a capital behind small letters, is a letter of another encoding. */
            bool odd = i == 4 && (c < 0xdf || c == 0xf7) &&
                       (e == GW_ENC_WINDOWS_1250 || e == GW_ENC_ISO8859_2);
            CHECK_MSG(e == GW_ENC_WINDOWS_1252 || odd, "%02x in '%s%s' as %s", c, around[i][0],
                      around[i][1], gw_encoding_name(e));
        }
    static const char *const latin[] = {"L’été",          "È così", "Ò o ì", "Ý ÿ", "À la carte",
                                        "10 m³ and 5 °C", "cœur",   "Ü",     "þú",  "ÀÉ"};
    static const char *const others[][2] = {{"CP1251", "Москва"},
                                            {"CP1251", "Мир и труд"},
                                            {"KOI8-R", "Большой привет"},
                                            {"CP1253", "καλημέρα"},
                                            {"CP1250", "Łódź, się, mała"}};
    gw_str bytes = {0};
    for (size_t i = 0; i < GW_COUNT(latin); i++) {
        in_encoding("CP1252", latin[i], &bytes);
        gw_encoding e = undeclared(bytes.data, bytes.len, false);
        CHECK_MSG(e == GW_ENC_WINDOWS_1252, "'%s' as %s", latin[i], gw_encoding_name(e));
    }
    for (size_t i = 0; i < GW_COUNT(others); i++) {
        in_encoding(others[i][0], others[i][1], &bytes);
        gw_encoding e = undeclared(bytes.data, bytes.len, false);
        CHECK_MSG(e == gw_encoding_of_label(others[i][0], strlen(others[i][0])), "'%s' as %s",
                  others[i][1], gw_encoding_name(e));
    }
    gw_str_release(&bytes);
    /* Bytes that are no UTF-8 and no word; text of UTF-8 that was cut stays what it is. */
    CHECK_EQ(undeclared("abc \xc3( def", 10, false), GW_ENC_WINDOWS_1252);
    CHECK_EQ(undeclared("abc \xff\xfe def", 10, false), GW_ENC_WINDOWS_1252);
    CHECK_EQ(undeclared("caf\xc3\xa9 caf\xc3", 10, false), GW_ENC_UTF8);
}

TEST(encoding_converts_back) {
    gw_str bytes = {0}, out = {0};
    gw_decoder d = {{0}};
    for (size_t i = 0; i < GW_COUNT(samples); i++) {
        in_encoding(samples[i].iconv, samples[i].text, &bytes);
        gw_str_clear(&out);
        CHECK_EQ(gw_decoder_add(&d, samples[i].encoding, (uint8_t *)bytes.data, bytes.len, &out),
                 0);
        CHECK_STR(out.data, samples[i].text);
    }
    gw_decoder_release(&d);
    gw_str_release(&bytes);
    gw_str_release(&out);
}

/* Any bytes in any encoding give valid UTF-8, and text without faults counts none. */
TEST(encoding_output_is_valid) {
    uint64_t r = 3;
    gw_decoder d = {{0}};
    gw_str out = {0};
    uint8_t buf[300];
    for (int round = 0; round < 4000; round++) {
        size_t n = next(&r) % sizeof buf;
        for (size_t i = 0; i < n; i++) buf[i] = (uint8_t)(next(&r) >> 7);
        gw_encoding e = (gw_encoding)(1 + next(&r) % (GW_ENC_COUNT - 1));
        gw_str_clear(&out);
        int64_t bad = gw_decoder_add(&d, e, buf, n, &out);
        CHECK(bad >= 0 && bad <= (int64_t)n);
        CHECK(gw_utf8_is_valid((uint8_t *)out.data, out.len));
        (void)gw_encoding_choose(buf, n, gw_encoding_name(e), round & 1);
    }
    gw_decoder_release(&d);
    gw_str_release(&out);
}

TEST(encoding_replaces_bad_sequences) {
    gw_decoder d = {{0}};
    gw_str out = {0};
    /* Unicode chapter 3, table 3-8: one U+FFFD for each maximal subpart. */
    static const char bad[] = "\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64";
    CHECK_EQ(gw_decoder_add(&d, GW_ENC_UTF8, (const uint8_t *)bad, sizeof bad - 1, &out), 6);
    CHECK_STR(out.data, "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
    gw_str_clear(&out);
    /* A lead byte of Shift_JIS before a tag does not swallow it. */
    gw_decoder_add(&d, GW_ENC_SHIFT_JIS, (const uint8_t *)"\x82<p>", 4, &out);
    CHECK(gw_str_ends(out.data, "<p>"));
    gw_decoder_release(&d);
    gw_str_release(&out);
}

TEST(encoding_belief) {
    static const char utf8[] = "<meta charset=windows-1251>\xd0\x9f\xd1\x80\xd0\xb8";
    CHECK_EQ(gw_encoding_choose((const uint8_t *)utf8, sizeof utf8 - 1, "iso-8859-1", true),
             GW_ENC_UTF8);
    static const char koi[] = "<p>\xf0\xd2\xc9";
    CHECK_EQ(gw_encoding_choose((const uint8_t *)koi, sizeof koi - 1, "koi8-r", true),
             GW_ENC_KOI8_R);
    static const char mark[] = "\xff\xfe"
                               "a\0b";
    CHECK_EQ(gw_encoding_choose((const uint8_t *)mark, 6, "utf-8", true), GW_ENC_UTF16LE);
    CHECK_EQ(gw_encoding_choose((const uint8_t *)"plain", 5, "", true), GW_ENC_UTF8);
}

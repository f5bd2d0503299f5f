// SPDX-License-Identifier: Apache-2.0
// Conversion of pages to UTF-8.
//
// Single-byte encodings are tables of the Encoding Standard (encoding_tables.def, written by
// scripts/make_text_tables.py); the East Asian ones go through iconv, whose converters the C
// library brings. Whatever is no character becomes U+FFFD: for UTF-8 one for each maximal subpart,
// as browsers do; elsewhere one for each byte that begins nothing, and a byte of ASCII behind a bad
// lead byte stays itself, so that no tag is swallowed. Which encoding a page has is decided in
// encoding_guess.c.
#include "data/text/encoding.h" /* this module's contract */

#include <errno.h>
#include <iconv.h>
#include <string.h>
#include <strings.h>

#include "data/text/encoding_impl.h" /* gw_encoding_high */
#include "data/unicode.h"            /* gw_utf8_* */

/* --- names ------------------------------------------------------------------------------------ */

static const char *const names[GW_ENC_COUNT] = {"",
                                                "utf-8",
                                                "utf-16le",
                                                "utf-16be",
                                                "gb18030",
                                                "big5",
                                                "euc-jp",
                                                "iso-2022-jp",
                                                "shift_jis",
                                                "euc-kr",
                                                "replacement",
                                                "ibm866",
                                                "iso-8859-2",
                                                "iso-8859-3",
                                                "iso-8859-4",
                                                "iso-8859-5",
                                                "iso-8859-6",
                                                "iso-8859-7",
                                                "iso-8859-8",
                                                "iso-8859-10",
                                                "iso-8859-13",
                                                "iso-8859-14",
                                                "iso-8859-15",
                                                "iso-8859-16",
                                                "koi8-r",
                                                "koi8-u",
                                                "macintosh",
                                                "windows-874",
                                                "windows-1250",
                                                "windows-1251",
                                                "windows-1252",
                                                "windows-1253",
                                                "windows-1254",
                                                "windows-1255",
                                                "windows-1256",
                                                "windows-1257",
                                                "windows-1258",
                                                "x-mac-cyrillic"};

/* The other labels of each encoding, by the Encoding Standard, section 4.2. */
static const char *const labels[GW_ENC_COUNT] = {
    [GW_ENC_UTF8] = "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8",
    [GW_ENC_UTF16LE] = "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16",
    [GW_ENC_UTF16BE] = "unicodefffe",
    [GW_ENC_GB18030] = "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 "
                       "x-gbk",
    [GW_ENC_BIG5] = "big5-hkscs cn-big5 csbig5 x-x-big5",
    [GW_ENC_EUC_JP] = "cseucpkdfmtjapanese x-euc-jp",
    [GW_ENC_ISO2022_JP] = "csiso2022jp",
    [GW_ENC_SHIFT_JIS] = "csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis",
    [GW_ENC_EUC_KR] = "cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 "
                      "ksc5601 ksc_5601 windows-949",
    [GW_ENC_REPLACEMENT] = "csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr",
    [GW_ENC_IBM866] = "866 cp866 csibm866",
    [GW_ENC_ISO8859_2] = "csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 "
                         "latin2",
    [GW_ENC_ISO8859_3] = "csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 "
                         "latin3",
    [GW_ENC_ISO8859_4] = "csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 "
                         "latin4",
    [GW_ENC_ISO8859_5] = "csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 "
                         "iso_8859-5:1988",
    [GW_ENC_ISO8859_6] = "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 "
                         "iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 "
                         "iso_8859-6:1987",
    [GW_ENC_ISO8859_7] = "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 "
                         "iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    [GW_ENC_ISO8859_8] = "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 "
                         "iso88598 iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i "
                         "logical",
    [GW_ENC_ISO8859_10] = "csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    [GW_ENC_ISO8859_13] = "iso8859-13 iso885913",
    [GW_ENC_ISO8859_14] = "iso8859-14 iso885914",
    [GW_ENC_ISO8859_15] = "csisolatin9 iso8859-15 iso885915 iso_8859-15 l9",
    [GW_ENC_KOI8_R] = "cskoi8r koi koi8 koi8_r",
    [GW_ENC_KOI8_U] = "koi8-ru",
    [GW_ENC_MACINTOSH] = "csmacintosh mac x-mac-roman",
    [GW_ENC_WINDOWS_874] = "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    [GW_ENC_WINDOWS_1250] = "cp1250 x-cp1250",
    [GW_ENC_WINDOWS_1251] = "cp1251 x-cp1251",
    [GW_ENC_WINDOWS_1252] = "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 "
                            "iso-ir-100 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 "
                            "us-ascii x-cp1252",
    [GW_ENC_WINDOWS_1253] = "cp1253 x-cp1253",
    [GW_ENC_WINDOWS_1254] = "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 "
                            "iso_8859-9 iso_8859-9:1989 l5 latin5 x-cp1254",
    [GW_ENC_WINDOWS_1255] = "cp1255 x-cp1255",
    [GW_ENC_WINDOWS_1256] = "cp1256 x-cp1256",
    [GW_ENC_WINDOWS_1257] = "cp1257 x-cp1257",
    [GW_ENC_WINDOWS_1258] = "cp1258 x-cp1258",
    [GW_ENC_X_MAC_CYRILLIC] = "x-mac-ukrainian",
};

const char *gw_encoding_name(gw_encoding e) { return names[e]; }

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
}

/* True if one of the words of the list is label[0, n). */
static bool has_label(const char *list, const char *label, size_t n) {
    while (list && *list) {
        size_t len = strcspn(list, " ");
        if (len == n && !strncasecmp(list, label, n)) return true;
        list += len + (list[len] == ' ');
    }
    return false;
}

gw_encoding gw_encoding_of_label(const char *label, size_t n) {
    while (n && is_space(*label)) label++, n--;
    while (n && is_space(label[n - 1])) n--;
    if (n == 0) return GW_ENC_UNKNOWN;
    for (int e = GW_ENC_UNKNOWN + 1; e < GW_ENC_COUNT; e++)
        if (has_label(names[e], label, n) || has_label(labels[e], label, n)) return (gw_encoding)e;
    return GW_ENC_UNKNOWN;
}

/* --- single-byte tables ----------------------------------------------------------------------- */

#define ROW(encoding, ...) [encoding - GW_ENC_IBM866] = {__VA_ARGS__},
static const uint16_t high[GW_ENC_COUNT - GW_ENC_IBM866][128] = {
#include "data/text/encoding_tables.def"
};
#undef ROW

const uint16_t *gw_encoding_high(gw_encoding e) { return high[e - GW_ENC_IBM866]; }

/* --- decoding --------------------------------------------------------------------------------- */

static void add_cp(gw_str *s, uint32_t cp) {
    s->len += (size_t)gw_utf8_encode(cp, (uint8_t *)s->data + s->len);
}

/* Bytes below 80 at p. */
static size_t ascii_run(const uint8_t *p, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t x;
        memcpy(&x, p + i, 8);
        if (x & 0x8080808080808080u) break;
    }
    while (i < n && p[i] < 0x80) i++;
    return i;
}

/* All of these have room for 3 bytes for each of the input. */
static int64_t add_single(const uint16_t *table, const uint8_t *p, size_t n, gw_str *out) {
    int64_t bad = 0;
    for (size_t i = 0; i < n;) {
        size_t run = ascii_run(p + i, n - i);
        memcpy(out->data + out->len, p + i, run);
        out->len += run;
        for (i += run; i < n && p[i] >= 0x80; i++) {
            uint32_t cp = table[p[i] - 0x80];
            bad += cp == 0;
            add_cp(out, cp ? cp : 0xfffd);
        }
    }
    return bad;
}

static int64_t add_utf8(const uint8_t *p, size_t n, gw_str *out) {
    int64_t bad = 0;
    for (size_t i = 0; i < n;) {
        size_t good = gw_utf8_valid_prefix(p + i, n - i);
        memcpy(out->data + out->len, p + i, good);
        out->len += good;
        i += good;
        if (i == n) break;
        add_cp(out, 0xfffd);
        i += gw_utf8_bad_part(p + i, n - i);
        bad++;
    }
    return bad;
}

static int64_t add_utf16(bool big, const uint8_t *p, size_t n, gw_str *out) {
    int64_t bad = 0;
    for (size_t i = 0; i + 2 <= n; i += 2) {
        uint32_t c = big ? (uint32_t)(p[i] << 8 | p[i + 1]) : (uint32_t)(p[i + 1] << 8 | p[i]);
        if (c >= 0xd800 && c < 0xe000) {
            uint32_t low = 0;
            if (c < 0xdc00 && i + 4 <= n)
                low = big ? (uint32_t)(p[i + 2] << 8 | p[i + 3])
                          : (uint32_t)(p[i + 3] << 8 | p[i + 2]);
            if (low >= 0xdc00 && low < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
                i += 2;
            } else {
                c = 0xfffd;
                bad++;
            }
        }
        add_cp(out, c);
    }
    if (n & 1) add_cp(out, 0xfffd);
    return bad + (int64_t)(n & 1);
}

static const char *iconv_name(gw_encoding e) {
    return e == GW_ENC_GB18030      ? "GB18030"
           : e == GW_ENC_BIG5       ? "BIG5-HKSCS"
           : e == GW_ENC_EUC_JP     ? "EUC-JP"
           : e == GW_ENC_ISO2022_JP ? "ISO-2022-JP"
           : e == GW_ENC_SHIFT_JIS  ? "CP932"
           : e == GW_ENC_EUC_KR     ? "CP949"
                                    : NULL;
}

/* NULL if the C library lacks the converter. */
static iconv_t converter(gw_decoder *d, gw_encoding e) {
    if (!d->iconv[e]) {
        iconv_t c = iconv_open("UTF-8", iconv_name(e));
        d->iconv[e] = c == (iconv_t)-1 ? NULL : (void *)c;
    }
    return d->iconv[e];
}

/* Up to 4 bytes of UTF-8 come from 1 of some of these (a letter with a combining mark of Big5), so
 * room is looked after here. */
static int64_t add_iconv(gw_decoder *d, gw_encoding e, const uint8_t *p, size_t n, gw_str *out) {
    iconv_t c = converter(d, e);
    char *in = (char *)(uintptr_t)p;
    size_t left = n;
    int64_t bad = 0;
    if (c) iconv(c, NULL, NULL, NULL, NULL);
    while (left > 0) {
        gw_str_reserve(out, left * 3 + 64);
        char *to = out->data + out->len;
        size_t room = out->cap - out->len - 1, before = left;
        size_t done = c ? iconv(c, &in, &left, &to, &room) : (size_t)-1;
        out->len = (size_t)(to - out->data);
        if (done != (size_t)-1 || left == 0) break;
        if (c && errno == E2BIG) {
            if (left == before) gw_str_reserve(out, out->cap + 1024);
            continue;
        }
        bool ascii = (uint8_t)*in < 0x80 && *in != 27;
        gw_str_reserve(out, 4);
        if (ascii && !c)
            gw_str_add_char(out, *in);
        else
            add_cp(out, 0xfffd), bad++;
        in++;
        left--;
    }
    return bad;
}

void gw_decoder_release(gw_decoder *d) {
    for (int e = 0; e < GW_ENC_COUNT; e++)
        if (d->iconv[e]) iconv_close(d->iconv[e]);
    *d = (gw_decoder){0};
}

/* Bytes of the byte order mark that belongs to the encoding. */
static size_t mark_bytes(gw_encoding e, const uint8_t *p, size_t n) {
    if (e == GW_ENC_UTF8) return n >= 3 && !memcmp(p, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (e == GW_ENC_UTF16LE) return n >= 2 && !memcmp(p, "\xff\xfe", 2) ? 2 : 0;
    if (e == GW_ENC_UTF16BE) return n >= 2 && !memcmp(p, "\xfe\xff", 2) ? 2 : 0;
    return 0;
}

int64_t gw_decoder_add(gw_decoder *d, gw_encoding e, const uint8_t *raw, size_t n, gw_str *out) {
    size_t mark = mark_bytes(e, raw, n);
    int64_t bad;
    raw += mark;
    n -= mark;
    gw_str_reserve(out, n * 3 + 8);
    if (e == GW_ENC_UTF8 || e == GW_ENC_UNKNOWN) {
        bad = add_utf8(raw, n, out);
    } else if (e == GW_ENC_UTF16LE || e == GW_ENC_UTF16BE) {
        bad = add_utf16(e == GW_ENC_UTF16BE, raw, n, out);
    } else if (e == GW_ENC_REPLACEMENT) {
        if (n) add_cp(out, 0xfffd);
        bad = n > 0;
    } else if (e >= GW_ENC_IBM866) {
        bad = add_single(gw_encoding_high(e), raw, n, out);
    } else {
        bad = add_iconv(d, e, raw, n, out);
    }
    gw_str_reserve(out, 1);
    out->data[out->len] = 0;
    return bad;
}

// SPDX-License-Identifier: Apache-2.0
// Decoding of UTF-8 and classes of characters.
//
// Categories come from utf8proc (Unicode 15.0 in version 2.8, which Debian 12 has), which is asked
// only about characters up to Unicode 13; unicode_new.c stands for the rest, so that the version of
// the tables is a choice and not a property of the machine. A pre-tokeniser must split as the
// library that its model was trained with. ASCII goes through a small table, since nearly all calls
// are for it.
//
// Invalid bytes are characters of their own without a class: every scanner treats them like
// symbols, and nothing here ever drops or replaces one, except gw_utf8_repair, whose purpose that
// is.
#include "data/unicode.h" /* gw_utf8_decode, gw_uni_class */

#include <string.h>
#include <utf8proc.h>

#include "data/unicode_new.h" /* gw_uni_stand_in */

uint32_t gw_utf8_decode(const uint8_t *p, const uint8_t *end, int *len) {
    uint32_t c = p[0];
    *len = 1;
    if (c < 0x80) return c;
    if (c < 0xc2 || c > 0xf4) return GW_CP_INVALID;
    int n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (end - p < n) return GW_CP_INVALID;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return GW_CP_INVALID;
    uint32_t cp =
        n == 2   ? (c & 0x1fu) << 6 | (p[1] & 0x3fu)
        : n == 3 ? (c & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu)
                 : (c & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    if (n == 3 && (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))) return GW_CP_INVALID;
    if (n == 4 && (cp < 0x10000 || cp > 0x10ffff)) return GW_CP_INVALID;
    *len = n;
    return cp;
}

int gw_utf8_encode(uint32_t cp, uint8_t out[4]) {
    if (cp < 0x80) {
        out[0] = (uint8_t)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (uint8_t)(0xc0 | cp >> 6);
        out[1] = (uint8_t)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (uint8_t)(0xe0 | cp >> 12);
        out[1] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | cp >> 18);
    out[1] = (uint8_t)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (cp & 0x3f));
    return 4;
}

size_t gw_utf8_valid_prefix(const uint8_t *p, size_t n) {
    const uint8_t *q = p, *end = p + n;
    while (q < end) {
        int len;
        if (*q >= 0x80 && gw_utf8_decode(q, end, &len) == GW_CP_INVALID) break;
        q += *q < 0x80 ? 1 : len;
    }
    return (size_t)(q - p);
}

/* The length that a lead byte announces; 0 if it is none. */
static size_t announced(uint8_t b) {
    return b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 0;
}

int gw_utf8_may_complete(const uint8_t *p, size_t n) {
    size_t want = announced(p[0]);
    if (want <= n) return 0;
    uint8_t trial[4];
    memcpy(trial, p, n);
    /* The ends of the range of what may follow: one of them is valid if anything is. */
    for (int low = 0; low < 2; low++) {
        memset(trial + n, low ? 0x80 : 0xbf, want - n);
        if (gw_utf8_valid_prefix(trial, want) == want) return 1;
    }
    return 0;
}

size_t gw_utf8_bad_part(const uint8_t *p, size_t n) {
    size_t k = n < 3 ? n : 3;
    while (k > 1 && !gw_utf8_may_complete(p, k)) k--;
    return k;
}

size_t gw_utf8_repair(const uint8_t *p, size_t n, uint8_t *out) {
    size_t done = 0, w = 0;
    while (done < n) {
        size_t ok = gw_utf8_valid_prefix(p + done, n - done);
        memcpy(out + w, p + done, ok);
        done += ok;
        w += ok;
        if (done < n) {
            w += (size_t)gw_utf8_encode(0xfffd, out + w);
            done += gw_utf8_bad_part(p + done, n - done);
        }
    }
    return w;
}

/* Classes of 00..7F. */
#define U (GW_CLASS_LETTER | GW_CLASS_UPPER)
#define L (GW_CLASS_LETTER | GW_CLASS_LOWER)
#define N GW_CLASS_NUMBER
#define S GW_CLASS_SPACE
#define E (GW_CLASS_SPACE | GW_CLASS_CRLF)
const uint8_t gw_uni_ascii[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, S, E, S, S, E, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    S, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, N, N, N, N, N, N, N, N, N, N, 0, 0, 0, 0, 0, 0,
    0, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, U, 0, 0, 0, 0, 0,
    0, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, 0, 0, 0, 0, 0};
#undef U
#undef L
#undef N
#undef S
#undef E

int gw_uni_is_space(uint32_t cp) {
    if (cp < 0x80) return (gw_uni_ascii[cp] & GW_CLASS_SPACE) != 0;
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

unsigned gw_uni_class(uint32_t cp, int version) {
    if (cp < 0x80) return gw_uni_ascii[cp];
    if (cp == GW_CP_INVALID) return 0;
    if (gw_uni_is_space(cp)) return GW_CLASS_SPACE;
    /* Categories are compared as numbers: the ones without a class need no case. */
    int c = (int)utf8proc_category((utf8proc_int32_t)gw_uni_stand_in(cp, version));
    if (c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT)
        return GW_CLASS_LETTER | GW_CLASS_UPPER;
    if (c == UTF8PROC_CATEGORY_LL) return GW_CLASS_LETTER | GW_CLASS_LOWER;
    if (c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO)
        return GW_CLASS_LETTER | GW_CLASS_UPPER | GW_CLASS_LOWER;
    if (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME)
        return GW_CLASS_UPPER | GW_CLASS_LOWER;
    if (c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO)
        return GW_CLASS_NUMBER;
    return 0;
}

const char *gw_uni_tables_version(void) { return utf8proc_unicode_version(); }

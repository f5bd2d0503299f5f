// SPDX-License-Identifier: Apache-2.0
// Character references of HTML (the HTML Standard, 13.2.5.72 to 13.2.5.80).
//
// The 2231 names lie sorted; the first letter gives the range, halving the rest. A name without its
// semicolon counts if it is one of the old ones, at the longest that matches; in an attribute not
// if a letter, a digit or '=' follows. Numbers outside Unicode become U+FFFD, and 80 to 9F what
// windows-1252 has there.
#include <string.h>

#include "data/text/html.h" /* this module's contract */
#include "data/unicode.h"   /* gw_utf8_encode */

typedef struct entity {
    const char *name;
    uint32_t a, b;
} entity;

#define E(name, a, b) {name, a, b},
static const entity entities[] = {
#include "data/text/html_entities.def"
};
#undef E

static const uint16_t c1_of_1252[32] = {
    0x20ac, 0x81,   0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0x8d,   0x17d,  0x8f,   0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0x9d,   0x17e,  0x178};

static bool is_alnum(uint8_t c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* The entity of exactly this name; NULL if there is none. */
static const entity *find(const uint8_t *name, size_t n) {
    size_t low = 0, high = GW_COUNT(entities);
    while (low < high) {
        size_t mid = (low + high) / 2;
        int order = strncmp(entities[mid].name, (const char *)name, n);
        if (order == 0 && entities[mid].name[n] != 0) order = 1;
        if (order == 0) return &entities[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static int digit_of(uint8_t c, int base) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 32;
    return base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "&#...". */
static int numeric(const uint8_t *p, const uint8_t *end, uint32_t *cp) {
    const uint8_t *q = p + 2;
    int base = 10;
    if (q < end && (*q == 'x' || *q == 'X')) base = 16, q++;
    uint32_t v = 0;
    const uint8_t *digits = q;
    for (int d; q < end && (d = digit_of(*q, base)) >= 0; q++)
        v = v > 0x110000 ? v : v * (uint32_t)base + (uint32_t)d;
    if (q == digits) return 0;
    if (q < end && *q == ';') q++;
    if (v == 0 || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) v = 0xfffd;
    if (v >= 0x80 && v < 0xa0) v = c1_of_1252[v - 0x80];
    *cp = v;
    return (int)(q - p);
}

int gw_html_reference(const uint8_t *p, const uint8_t *end, bool attribute, uint32_t out[2],
                      int *ncp) {
    enum { NAME_MAX_ = 32 };
    *ncp = 1;
    if (end - p >= 3 && p[1] == '#') return numeric(p, end, out);
    const uint8_t *name = p + 1, *q = name;
    while (q < end && q - name < NAME_MAX_ && is_alnum(*q)) q++;
    size_t n = (size_t)(q - name);
    if (n < 2) return 0;
    const entity *e = q < end && *q == ';' ? find(name, n + 1) : NULL;
    if (e) n++;
    /* The old names have at most 6 letters. */
    for (size_t len = GW_MIN(n, (size_t)6); !e && len >= 2; len--)
        if ((e = find(name, len)) != NULL) n = len;
    if (!e) return 0;
    const uint8_t *after = name + n;
    if (attribute && after[-1] != ';' && after < end && (*after == '=' || is_alnum(*after)))
        return 0;
    out[0] = e->a;
    out[1] = e->b;
    *ncp = e->b ? 2 : 1;
    return (int)(1 + n);
}

void gw_html_decode(const uint8_t *p, size_t n, bool attribute, gw_str *out) {
    const uint8_t *end = p + n;
    gw_str_reserve(out, n * 3 + 8);
    while (p < end) {
        const uint8_t *amp = memchr(p, '&', (size_t)(end - p)), *stop = amp ? amp : end;
        const uint8_t *nul = memchr(p, 0, (size_t)(stop - p));
        if (nul) stop = nul;
        gw_str_add_n(out, p, (size_t)(stop - p));
        p = stop;
        if (p == end) break;
        uint32_t cps[2] = {0xfffd, 0};
        int ncp = 1, taken = nul ? 1 : gw_html_reference(p, end, attribute, cps, &ncp);
        if (taken == 0) {
            gw_str_add_char(out, '&');
            p++;
            continue;
        }
        for (int i = 0; i < ncp; i++) {
            uint8_t bytes[4];
            gw_str_add_n(out, bytes, (size_t)gw_utf8_encode(cps[i], bytes));
        }
        p += taken;
    }
}

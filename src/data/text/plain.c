// SPDX-License-Identifier: Apache-2.0
// Plain text by RedPajama-V2's recipe, and the words of Python's regex module.
//
// Three steps in the order that matters: ASCII punctuation goes first (so "e.g." is "eg"), then
// case, then the canonical decomposition, so that an accent is a character of its own and counts
// as one. A text of ASCII needs the first two only, in one pass.
//
// utf8proc says which characters decompose and what category they have; its version of Unicode may
// be newer than that of a Python, which matters for characters that are younger than that.
#include "data/text/plain.h" /* gw_plain */

#include <utf8proc.h>

#include "base/arena.h"          /* gw_mem_zalloc */
#include "data/dedup/simplify.h" /* gw_simplify_lower */
#include "data/unicode.h"        /* gw_utf8_encode */

struct gw_plain {
    gw_str bare;
    utf8proc_int32_t *points;
    int64_t cap;
};

gw_plain *gw_plain_new(void) { return gw_mem_zalloc(sizeof(gw_plain)); }

void gw_plain_free(gw_plain *s) {
    if (!s) return;
    gw_str_release(&s->bare);
    gw_mem_free(s->points);
    gw_mem_free(s);
}

static bool is_ascii_mark(uint8_t c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Canonical decomposition in place. What utf8proc cannot read stays as it is. */
static void decompose(gw_plain *s, gw_str *text) {
    const utf8proc_option_t how = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    const uint8_t *bytes = (const uint8_t *)text->data;
    utf8proc_ssize_t n =
        utf8proc_decompose(bytes, (utf8proc_ssize_t)text->len, s->points, s->cap, how);
    if (n > s->cap) {
        s->cap = 2 * n;
        s->points = gw_mem_realloc(s->points, (size_t)s->cap * sizeof *s->points);
        n = utf8proc_decompose(bytes, (utf8proc_ssize_t)text->len, s->points, s->cap, how);
    }
    if (n < 0) return;
    gw_str_clear(text);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        uint8_t utf8[4];
        gw_str_add_n(text, utf8, (size_t)gw_utf8_encode((uint32_t)s->points[i], utf8));
    }
}

void gw_plain_text(gw_plain *s, const char *text, int64_t n, gw_str *out) {
    gw_str_clear(&s->bare);
    gw_str_reserve(&s->bare, (size_t)n + 1);
    bool ascii = true;
    char *to = s->bare.data;
    for (int64_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        ascii &= c < 128;
        *to = text[i];
        to += !is_ascii_mark(c);
    }
    s->bare.len = (size_t)(to - s->bare.data);
    *to = 0;
    gw_simplify_lower(gw_str_c(&s->bare), (int64_t)s->bare.len, out);
    if (!ascii && out->len) decompose(s, out);
}

bool gw_plain_is_word(uint32_t cp) {
    if (cp < 128) return (cp | 32) - 'a' < 26u || cp - '0' < 10u || cp == '_';
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    case UTF8PROC_CATEGORY_SO: /* circled and squared letters are alphabetic */
        return (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
               (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189);
    case UTF8PROC_CATEGORY_CF: return cp == 0x200c || cp == 0x200d;
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return false;
    }
    return false;
}

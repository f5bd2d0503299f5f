// SPDX-License-Identifier: Apache-2.0
// Word segments of Unicode Standard Annex 29, section 4.1.
//
// A single pass keeps the class of the last character that counts (rule WB4 makes Extend, Format
// and ZWJ part of what precedes them) and of the one before it; rules that look ahead (WB6, WB7b,
// WB12) look to the next character that counts. Segments that do not begin with a letter or number
// are passed over, which is how DCLM counts words.
#include "data/text/words_impl.h" /* words_push, words_class_at */

enum wb {
    WB_OTHER,
    WB_CR,
    WB_LF,
    WB_NEWLINE,
    WB_EXTEND,
    WB_ZWJ,
    WB_FORMAT,
    WB_KATAKANA,
    WB_HEBREW,
    WB_ALETTER,
    WB_SINGLE,
    WB_DOUBLE,
    WB_MIDNUMLET,
    WB_MIDLETTER,
    WB_MIDNUM,
    WB_NUMERIC,
    WB_EXTENDNUM,
    WB_SPACE,
    WB_REGIONAL,
    WB_START /* of the text */
};

static bool is_letter(uint32_t c) { return c == WB_ALETTER || c == WB_HEBREW; }
static bool is_ignored(uint32_t c) { return c == WB_EXTEND || c == WB_FORMAT || c == WB_ZWJ; }
static bool is_line(uint32_t c) { return c == WB_CR || c == WB_LF || c == WB_NEWLINE; }
static bool is_mid_letter(uint32_t c) {
    return c == WB_MIDLETTER || c == WB_MIDNUMLET || c == WB_SINGLE;
}
static bool is_mid_number(uint32_t c) {
    return c == WB_MIDNUM || c == WB_MIDNUMLET || c == WB_SINGLE;
}

/* Class of the next character at or after p that counts. */
static uint32_t next_class(const char *p, const char *end) {
    while (p < end) {
        int len;
        uint32_t c = words_break_class(words_class_at(p, end, &len));
        if (!is_ignored(c)) return c;
        p += len;
    }
    return WB_START;
}

/* WB5 to WB16: no break between a (before it aa) and b, after which the text goes on at `rest`. */
static bool joined(uint32_t aa, uint32_t a, uint32_t b, int regionals, const char *rest,
                   const char *end) {
    if (is_letter(a) && is_letter(b)) return true;
    if (is_letter(a) && is_mid_letter(b) && is_letter(next_class(rest, end))) return true;
    if (is_letter(aa) && is_mid_letter(a) && is_letter(b)) return true;
    if (a == WB_HEBREW && b == WB_SINGLE) return true;
    if (a == WB_HEBREW && b == WB_DOUBLE && next_class(rest, end) == WB_HEBREW) return true;
    if (aa == WB_HEBREW && a == WB_DOUBLE && b == WB_HEBREW) return true;
    if ((a == WB_NUMERIC || is_letter(a)) && b == WB_NUMERIC) return true;
    if (a == WB_NUMERIC && is_letter(b)) return true;
    if (aa == WB_NUMERIC && is_mid_number(a) && b == WB_NUMERIC) return true;
    if (a == WB_NUMERIC && is_mid_number(b) && next_class(rest, end) == WB_NUMERIC) return true;
    if (a == WB_KATAKANA && b == WB_KATAKANA) return true;
    bool a_word = is_letter(a) || a == WB_NUMERIC || a == WB_KATAKANA;
    bool b_word = is_letter(b) || b == WB_NUMERIC || b == WB_KATAKANA;
    if ((a_word || a == WB_EXTENDNUM) && b == WB_EXTENDNUM) return true;
    if (a == WB_EXTENDNUM && b_word) return true;
    return a == WB_REGIONAL && b == WB_REGIONAL && regionals % 2 == 1;
}

static void finish(gw_words_inner *w, const char *text, const char *from, const char *to,
                   uint32_t first) {
    if (to > from && first & GW_CH_WORD && *from != '_') words_push(w, from - text, to - text);
}

void words_unicode(gw_words_inner *w, const char *text, int64_t n) {
    const char *p = text, *end = text + n, *from = text;
    uint32_t aa = WB_START, a = WB_START, raw = WB_START, first = 0;
    int regionals = 0;
    while (p < end) {
        int len;
        uint32_t cls = words_class_at(p, end, &len), b = words_break_class(cls);
        bool keep;
        if (raw == WB_START)
            keep = false;
        else if (raw == WB_CR && b == WB_LF)
            keep = true;
        else if (is_line(raw) || is_line(b))
            keep = false;
        else if (raw == WB_ZWJ && cls & WORDS_PICTOGRAPHIC)
            keep = true;
        else if (raw == WB_SPACE && b == WB_SPACE)
            keep = true;
        else if (is_ignored(b))
            keep = true;
        else
            keep = joined(aa, a, b, regionals, p + len, end);
        if (!keep) {
            finish(w, text, from, p, first);
            from = p;
            first = cls;
        }
        /* After a line break an ignored character counts as itself. */
        if (!is_ignored(b) || raw == WB_START || is_line(raw)) {
            aa = keep ? a : WB_START;
            a = b;
            regionals = b == WB_REGIONAL ? (keep ? regionals + 1 : 1) : 0;
        }
        raw = b;
        p += len;
    }
    finish(w, text, from, end, first);
}

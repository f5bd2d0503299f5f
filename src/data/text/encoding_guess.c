// SPDX-License-Identifier: Apache-2.0
// Which encoding a page has.
//
// Order of belief: a byte order mark; the bytes themselves, if they are valid UTF-8 with characters
// beyond ASCII (text of another encoding is that by accident about never); what HTTP says; what
// <meta> says; a guess. A page labelled UTF-8 that is not valid keeps its label if most of its
// characters are (one broken byte in a long page), and is guessed otherwise.
//
// The guess looks at a sample. East Asian encodings show in their structure: bytes come in pairs,
// and the pairs of the frequent characters have known lead bytes. Among single-byte ones each is
// tried: the right one gives letters of one script, lower case inside words, and the letters that
// its languages use; a wrong one gives symbols inside words and capitals after small letters.
// Little evidence is none: a page that declares nothing is windows-1252 to browsers (HTML Standard,
// "determining the character encoding", the last step), and so it is here unless another one for
// Latin letters fits better by the worth of more than two of them, or one for another script gives
// three letters in a row: accented letters of Latin text stand alone.
// Sources: the structure is that of the encodings' definitions; the method is the one of Li and
// Momoi, "A composite approach to language/encoding detection" (2001), with the tables left small.
#include <string.h>
#include <strings.h>

#include "data/text/encoding.h"      /* this module's contract */
#include "data/text/encoding_impl.h" /* gw_encoding_high */
#include "data/unicode.h"            /* gw_uni_class */

enum { SAMPLE = 1 << 16, HIGH_BYTES = 4096, PRESCAN = 1024 };
enum { EVIDENCE = 12, WORD = 3 }; /* of another single-byte encoding than windows-1252 */

/* --- <meta> ----------------------------------------------------------------------------------- */

static bool is_space(uint8_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r';
}

typedef struct attribute {
    const uint8_t *name, *value;
    size_t name_n, value_n;
} attribute;

/* "Get an attribute" of the prescan. Returns where it ends; NULL if there is none. */
static const uint8_t *get_attribute(const uint8_t *p, const uint8_t *end, attribute *a) {
    while (p < end && (is_space(*p) || *p == '/')) p++;
    if (p >= end || *p == '>') return NULL;
    *a = (attribute){.name = p};
    while (p < end && !is_space(*p) && *p != '/' && *p != '>' && !(*p == '=' && p > a->name)) p++;
    a->name_n = (size_t)(p - a->name);
    while (p < end && is_space(*p)) p++;
    if (p >= end || *p != '=') return p;
    for (p++; p < end && is_space(*p);) p++;
    if (p >= end) return NULL;
    uint8_t quote = *p == '"' || *p == '\'' ? *p++ : 0;
    a->value = p;
    while (p < end && (quote ? *p != quote : !is_space(*p) && *p != '>')) p++;
    a->value_n = (size_t)(p - a->value);
    return p + (quote && p < end);
}

static bool is_name(const attribute *a, const char *name) {
    return a->name_n == strlen(name) && !strncasecmp((const char *)a->name, name, a->name_n);
}

/* The charset in a content attribute: "text/html; charset=x". */
static gw_encoding charset_in(const uint8_t *p, size_t n) {
    const uint8_t *end = p + n;
    for (; end - p >= 8; p++) {
        if (strncasecmp((const char *)p, "charset", 7) != 0) continue;
        const uint8_t *v = p + 7;
        while (v < end && is_space(*v)) v++;
        if (v >= end || *v != '=') continue;
        for (v++; v < end && (is_space(*v) || *v == '"' || *v == '\'');) v++;
        const uint8_t *stop = v;
        while (stop < end && !is_space(*stop) && *stop != ';' && *stop != '"' && *stop != '\'')
            stop++;
        return gw_encoding_of_label((const char *)v, (size_t)(stop - v));
    }
    return GW_ENC_UNKNOWN;
}

static gw_encoding meta_encoding(const uint8_t *p, const uint8_t *end) {
    attribute a;
    gw_encoding found = GW_ENC_UNKNOWN;
    bool pragma = false, need_pragma = false;
    while ((p = get_attribute(p, end, &a)) != NULL) {
        if (is_name(&a, "http-equiv")) {
            pragma |= a.value_n == 12 && !strncasecmp((const char *)a.value, "content-type", 12);
        } else if (is_name(&a, "charset") && a.value) {
            found = gw_encoding_of_label((const char *)a.value, a.value_n);
            need_pragma = false;
        } else if (is_name(&a, "content") && a.value && found == GW_ENC_UNKNOWN) {
            found = charset_in(a.value, a.value_n);
            need_pragma = true;
        }
    }
    if (need_pragma && !pragma) return GW_ENC_UNKNOWN;
    /* A page whose <meta> could be read as ASCII is no UTF-16. */
    return found == GW_ENC_UTF16LE || found == GW_ENC_UTF16BE ? GW_ENC_UTF8 : found;
}

gw_encoding gw_encoding_prescan(const uint8_t *raw, size_t n) {
    const uint8_t *p = raw, *end = raw + GW_MIN(n, (size_t)PRESCAN);
    while ((p = memchr(p, '<', (size_t)(end - p))) != NULL) {
        if (end - p >= 4 && !memcmp(p, "<!--", 4)) {
            const uint8_t *close = memmem(p + 2, (size_t)(end - p - 2), "-->", 3);
            if (!close) break;
            p = close + 3;
        } else if (end - p > 6 && !strncasecmp((const char *)p, "<meta", 5) &&
                   (is_space(p[5]) || p[5] == '/')) {
            gw_encoding e = meta_encoding(p + 5, end);
            if (e != GW_ENC_UNKNOWN) return e;
            p += 5;
        } else {
            p++;
        }
    }
    return GW_ENC_UNKNOWN;
}

/* --- East Asian structure --------------------------------------------------------------------- */

typedef struct pairs {
    int64_t total, bad;     /* characters of two bytes; bytes that begin none */
    int64_t low_trail;      /* second byte below A1 */
    int64_t kana, frequent; /* kana; characters of the encoding's first level */
    int64_t half;           /* half-width katakana of Shift_JIS */
} pairs;

static bool between(int c, int from, int to) { return c >= from && c <= to; }

static pairs walk_euc(const uint8_t *p, size_t n, bool gbk) {
    pairs s = {0};
    for (size_t i = 0; i < n;) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        int lead = p[i], trail = i + 1 < n ? p[i + 1] : 0xa1;
        bool four = gbk && between(trail, '0', '9') && i + 3 < n && p[i + 2] >= 0x81 &&
                    between(p[i + 3], '0', '9');
        bool ok =
            gbk ? lead != 0x80 && lead != 0xff && (trail >= 0x40 && trail != 0x7f && trail != 0xff)
                : between(lead, 0xa1, 0xfe) && between(trail, 0xa1, 0xfe);
        if (!gbk && lead == 0x8e && between(trail, 0xa1, 0xdf)) ok = true;
        if (four || !ok) {
            s.bad += !four;
            i += four ? 4 : 1;
            continue;
        }
        s.total++;
        s.low_trail += trail < 0xa1;
        s.kana += (lead == 0xa4 || lead == 0xa5) && trail >= 0xa1;
        s.frequent += between(lead, 0xb0, 0xd7) && trail >= 0xa1;
        i += 2;
    }
    return s;
}

static int64_t count_hangul(const uint8_t *p, size_t n) {
    int64_t count = 0;
    for (size_t i = 0; i + 1 < n; i++)
        if (p[i] >= 0x80) {
            count += between(p[i], 0xb0, 0xc8) && p[i + 1] >= 0xa1;
            i++;
        }
    return count;
}

static pairs walk_big5(const uint8_t *p, size_t n) {
    pairs s = {0};
    for (size_t i = 0; i < n;) {
        if (p[i] < 0x80) {
            i++;
            continue;
        }
        int lead = p[i], trail = i + 1 < n ? p[i + 1] : 0xa1;
        bool ok =
            between(lead, 0xa1, 0xf9) && (between(trail, 0x40, 0x7e) || between(trail, 0xa1, 0xfe));
        s.bad += !ok;
        s.total += ok;
        s.low_trail += ok && trail < 0xa1;
        s.frequent += ok && between(lead, 0xa4, 0xc6);
        i += ok ? 2 : 1;
    }
    return s;
}

static pairs walk_sjis(const uint8_t *p, size_t n) {
    pairs s = {0};
    for (size_t i = 0; i < n;) {
        int c = p[i], trail = i + 1 < n ? p[i + 1] : 0x40;
        if (c < 0x80 || between(c, 0xa1, 0xdf)) {
            s.half += c >= 0x80;
            i++;
            continue;
        }
        bool ok = (between(c, 0x81, 0x9f) || between(c, 0xe0, 0xfc)) &&
                  between(trail, 0x40, 0xfc) && trail != 0x7f;
        s.bad += !ok;
        s.total += ok;
        s.kana += ok && ((c == 0x82 && trail >= 0x9f) || (c == 0x83 && trail <= 0x96));
        s.frequent += ok && between(c, 0x88, 0x97);
        i += ok ? 2 : 1;
    }
    return s;
}

/* Few enough errors to be one broken place. */
static bool fits(const pairs *s) { return s->total >= 2 && s->bad * 50 <= s->total; }

/* Thai has one byte a letter too, without spaces, so that its bytes pair up like a code of two. But
 * its vowel signs and tones stand behind a consonant or another sign, always; and its runs between
 * spaces have any length. */
static bool is_thai(const uint8_t *p, size_t n) {
    int64_t high = 0, signs = 0, misplaced = 0, runs = 0, run = 0;
    bool odd = false;
    for (size_t i = 0; i < n; i++) {
        int c = p[i], before = i ? p[i - 1] : ' ';
        if (c < 0x80) {
            runs += run > 0;
            odd |= run & 1;
            run = 0;
            continue;
        }
        run++;
        if (c < 0xa1 || between(c, 0xdb, 0xde) || c > 0xfb) return false;
        high++;
        if (c != 0xd1 && !between(c, 0xd4, 0xda) && !between(c, 0xe7, 0xee)) continue;
        signs++;
        misplaced += !between(before, 0xa1, 0xce) && !between(before, 0xd1, 0xda) &&
                     !between(before, 0xe7, 0xee);
    }
    if (runs >= 3 && !odd) return false;
    return signs >= 2 && signs * 25 >= high && misplaced * 25 <= signs;
}

static gw_encoding guess_asian(const uint8_t *p, size_t n) {
    if (is_thai(p, n)) return GW_ENC_WINDOWS_874;
    pairs euc = walk_euc(p, n, false), gbk = walk_euc(p, n, true);
    pairs big5 = walk_big5(p, n), sjis = walk_sjis(p, n);
    if (fits(&sjis) && sjis.kana * 6 >= sjis.total && sjis.half * 8 < sjis.total)
        return GW_ENC_SHIFT_JIS;
    if (fits(&euc)) {
        if (euc.kana * 6 >= euc.total) return GW_ENC_EUC_JP;
        if (count_hangul(p, n) * 20 >= euc.total * 17) return GW_ENC_EUC_KR;
        if (euc.frequent * 2 >= euc.total) return GW_ENC_GB18030;
    }
    /* Latin text under Big5 or GBK is letters behind lone high bytes: each pair has a low trail. */
    bool is_big5 = fits(&big5) && big5.frequent * 10 >= big5.total * 7 &&
                   big5.low_trail * 10 <= big5.total * 8;
    bool is_gbk =
        fits(&gbk) && gbk.frequent * 10 >= gbk.total * 5 && gbk.low_trail * 4 <= gbk.total;
    if (is_big5 && (!is_gbk || big5.frequent * gbk.total >= gbk.frequent * big5.total))
        return GW_ENC_BIG5;
    return is_gbk ? GW_ENC_GB18030 : GW_ENC_UNKNOWN;
}

/* --- single-byte encodings -------------------------------------------------------------------- */

typedef struct candidate {
    gw_encoding encoding;
    const char *letters; /* that its languages use much, beyond ASCII */
} candidate;

static const candidate candidates[] = {
    /* first: what a page without evidence has */
    {GW_ENC_WINDOWS_1252, "éèàçêâîôûùëïöäüßñóíáúãõåæøÉÄÖÜ"},
    {GW_ENC_WINDOWS_1251, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфіїєґ"},
    {GW_ENC_KOI8_R, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэф"},
    {GW_ENC_WINDOWS_1250, "ąćęłńóśźżáčďéěíňřšťúůýžöőüűăâîľĺŕđĐŁŚŽŠČ"},
    {GW_ENC_ISO8859_2, "ąćęłńóśźżáčďéěíňřšťúůýžöőüűăâîľĺŕđŁŚŽŠČ"},
    {GW_ENC_WINDOWS_1253, "αειονστρκπμλυηςωδγχθφβξζψάέήίόύώ"},
    {GW_ENC_WINDOWS_1254, "ğışçöüİâîû"},
    {GW_ENC_WINDOWS_1255, "יוהלאבתשרמןםנכדפצקגחטעסזףך"},
    {GW_ENC_WINDOWS_1256, "اليمنتروبهدعسفكحقةجشطصخىءئأإثذزضظغپچگیک"},
    {GW_ENC_WINDOWS_1257, "āčēģīķļņšūžąęėįųõäöü"},
    {GW_ENC_WINDOWS_874, "านรกอเงมยลวดทสตปบคหแจพชขใไโผถซธณศะาิีึืุู่้็์ั"},
    {GW_ENC_IBM866, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэф"},
    {GW_ENC_ISO8859_5, "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэф"},
};

/* The script of a letter, roughly: the blocks that single-byte encodings reach. */
static int script_of(uint32_t cp) {
    return cp < 0x370 ? 1 : cp < 0x400 ? 2 : cp < 0x530 ? 3 : cp < 0x600 ? 4 : cp < 0x700 ? 5 : 6;
}

/* What each byte of the encoding means to the score. */
typedef struct meaning {
    uint32_t cp[256];
    uint8_t class_[256];
    uint8_t often[256];
} meaning;

static void mean(const candidate *c, meaning *m) {
    const uint16_t *high = gw_encoding_high(c->encoding);
    for (int b = 0; b < 256; b++) {
        m->cp[b] = b < 128 ? (uint32_t)b : high[b - 128];
        m->class_[b] = (uint8_t)gw_uni_class(m->cp[b], 15);
        m->often[b] = 0;
    }
    const uint8_t *p = (const uint8_t *)c->letters, *end = p + strlen(c->letters);
    for (int len; p < end; p += len) {
        uint32_t cp = gw_utf8_decode(p, end, &len);
        for (int b = 128; b < 256; b++) m->often[b] |= m->cp[b] == cp;
    }
}

/* The worth of byte b between its neighbours. */
static int worth(const meaning *m, uint8_t before, uint8_t b, uint8_t after) {
    uint32_t cp = m->cp[b];
    bool letter_before = m->class_[before] & GW_CLASS_LETTER,
         letter_after = m->class_[after] & GW_CLASS_LETTER;
    if (cp == 0 || (cp >= 0x80 && cp < 0xa0)) return -12;
    bool mark = cp >= 0xe31 && cp <= 0xe4e; /* Thai vowels and tones */
    if (!(m->class_[b] & GW_CLASS_LETTER) && !mark) {
        if ((cp == 0xbf || cp == 0xa1) && letter_after && !letter_before) return 4; /* Spanish */
        if (cp == 0xa0 || (cp >= 0x2010 && cp <= 0x203a) || cp == 0xab || cp == 0xbb)
            return letter_before && letter_after && cp != 0x2019 && cp != 0xa0 ? -2 : 2;
        return letter_before && letter_after ? -6 : letter_before || letter_after ? -2 : 0;
    }
    int score = m->often[b] ? 4 : mark ? 1 : -1;
    bool upper = (m->class_[b] & GW_CLASS_UPPER) && !(m->class_[b] & GW_CLASS_LOWER);
    bool lower_before =
        (m->class_[before] & GW_CLASS_LOWER) && !(m->class_[before] & GW_CLASS_UPPER);
    if (upper && lower_before) score -= 8;
    if (letter_before && script_of(m->cp[before]) != script_of(cp)) score -= 5;
    if (letter_after && script_of(m->cp[after]) != script_of(cp)) score -= 5;
    if (letter_before && before >= 0x80 && script_of(cp) > 1) score += 2;
    return score;
}

/* Is the character a letter of another script than Latin, or a sign that stands on one? */
static bool is_foreign(const meaning *m, uint8_t b) {
    return script_of(m->cp[b]) > 1 &&
           (m->class_[b] & (GW_CLASS_LETTER | GW_CLASS_LOWER)); /* marks are LOWER too */
}

/* The worth of the sample in an encoding, and the longest run of letters that are not Latin. */
static int64_t score_of(const candidate *c, const uint8_t *p, size_t n, int *longest) {
    meaning m;
    int64_t score = 0, seen = 0;
    int run = 0;
    mean(c, &m);
    *longest = 0;
    for (size_t i = 0; i < n && seen < HIGH_BYTES; i++) {
        run = p[i] >= 0x80 && is_foreign(&m, p[i]) ? run + 1 : 0;
        *longest = GW_MAX(*longest, run);
        if (p[i] < 0x80) continue;
        seen++;
        score += worth(&m, i ? p[i - 1] : ' ', p[i], i + 1 < n ? p[i + 1] : ' ');
    }
    return score;
}

static bool is_latin(const candidate *c) {
    const uint8_t *letters = (const uint8_t *)c->letters;
    int len;
    return script_of(gw_utf8_decode(letters, letters + strlen(c->letters), &len)) == 1;
}

static gw_encoding guess_single(const uint8_t *p, size_t n) {
    gw_encoding best = GW_ENC_WINDOWS_1252;
    int word;
    int64_t fallback = score_of(&candidates[0], p, n, &word), best_score = fallback;
    for (size_t c = 1; c < GW_COUNT(candidates); c++) {
        int64_t score = score_of(&candidates[c], p, n, &word);
        bool enough = is_latin(&candidates[c]) ? score >= fallback + EVIDENCE : word >= WORD;
        if (enough && score > best_score) best = candidates[c].encoding, best_score = score;
    }
    return best;
}

/* UTF-16 without a mark: every other byte of Latin text is 0. */
static gw_encoding guess_utf16(const uint8_t *p, size_t n) {
    size_t even = 0, odd = 0;
    if (n < 4) return GW_ENC_UNKNOWN;
    for (size_t i = 0; i + 1 < n; i += 2) {
        even += p[i] == 0;
        odd += p[i + 1] == 0;
    }
    if (odd * 10 >= n * 3 && even * 20 < n) return GW_ENC_UTF16LE;
    if (even * 10 >= n * 3 && odd * 20 < n) return GW_ENC_UTF16BE;
    return GW_ENC_UNKNOWN;
}

/* A part of the bytes that has what is beyond ASCII in it. */
static void sample_of(const uint8_t **p, size_t *n) {
    size_t at = 0;
    while (at < *n && (*p)[at] < 0x80) at++;
    at = at > 64 ? at - 64 : 0;
    *p += at;
    *n = GW_MIN(*n - at, (size_t)SAMPLE);
}

static gw_encoding guess_legacy(const uint8_t *raw, size_t n) {
    gw_encoding e = guess_utf16(raw, GW_MIN(n, (size_t)SAMPLE));
    if (e != GW_ENC_UNKNOWN) return e;
    sample_of(&raw, &n);
    e = guess_asian(raw, n);
    return e != GW_ENC_UNKNOWN ? e : guess_single(raw, n);
}

gw_encoding gw_encoding_guess(const uint8_t *raw, size_t n) {
    if (gw_utf8_is_valid(raw, n)) {
        gw_encoding e = guess_utf16(raw, GW_MIN(n, (size_t)SAMPLE));
        return e != GW_ENC_UNKNOWN ? e : GW_ENC_UTF8;
    }
    return guess_legacy(raw, n);
}

/* --- the decision ----------------------------------------------------------------------------- */

/* True if most characters beyond ASCII are right though some are not; without a label one must be.
 * What the end cuts is neither: with a label whatever the last three bytes are, without one the
 * beginning of a character. */
static bool mostly_utf8(const uint8_t *p, size_t n, bool declared) {
    int64_t good = 0, bad = 0;
    sample_of(&p, &n);
    for (size_t i = 0; i < n;) {
        int len = 1;
        if (p[i] >= 0x80) {
            bool ok = gw_utf8_decode(p + i, p + n, &len) != GW_CP_INVALID;
            good += ok;
            bool cut = n - i < 4 && (declared || gw_utf8_may_complete(p + i, n - i));
            bad += !ok && !cut;
        }
        i += (size_t)len;
    }
    return good >= bad * 3 && (declared || good > 0);
}

gw_encoding gw_encoding_choose_knowing(const uint8_t *raw, size_t n, const char *charset, bool html,
                                       bool valid) {
    if (n >= 3 && !memcmp(raw, "\xef\xbb\xbf", 3)) return GW_ENC_UTF8;
    if (n >= 2 && !memcmp(raw, "\xff\xfe", 2)) return GW_ENC_UTF16LE;
    if (n >= 2 && !memcmp(raw, "\xfe\xff", 2)) return GW_ENC_UTF16BE;
    gw_encoding said = charset ? gw_encoding_of_label(charset, strlen(charset)) : GW_ENC_UNKNOWN;
    if (said == GW_ENC_UNKNOWN && html) said = gw_encoding_prescan(raw, n);
    bool utf16 = said == GW_ENC_UTF16LE || said == GW_ENC_UTF16BE;
    if (valid) {
        bool nuls = n && memchr(raw, 0, GW_MIN(n, (size_t)SAMPLE)) != NULL;
        if (said == GW_ENC_ISO2022_JP && memchr(raw, 27, n)) return said;
        if (utf16 && nuls) return said;
        return nuls ? gw_encoding_guess(raw, n) : GW_ENC_UTF8;
    }
    if (said == GW_ENC_UTF8) return mostly_utf8(raw, n, true) ? said : guess_legacy(raw, n);
    if (said != GW_ENC_UNKNOWN) return said;
    return mostly_utf8(raw, n, false) ? GW_ENC_UTF8 : guess_legacy(raw, n);
}

gw_encoding gw_encoding_choose(const uint8_t *raw, size_t n, const char *charset, bool html) {
    return gw_encoding_choose_knowing(raw, n, charset, html, gw_utf8_is_valid(raw, n));
}

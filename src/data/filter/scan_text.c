// SPDX-License-Identifier: Apache-2.0
// Looking for bytes and phrases in a text, 16 bytes at a time.
//
// Rules ask the same of every byte of every text: where lines end, how many characters there are,
// whether a phrase stands somewhere. Answers are nearly always "no", so what is compared first is
// what is rare: of a phrase its rarest pair of neighbours, both bytes at once, capitals made small
// by one bit (which also takes a few marks for letters; the whole phrase is compared then). Phrases
// are looked for together, so that the text is loaded once.
//
// SSE2 is part of every x86-64; other machines take the plain loops at the end of each function,
// which the last bytes of a text take too.
#include "data/filter/scan_text.h" /* this module's contract */

#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "data/filter/measure.h" /* gw_text_chars, gw_text_count, gw_text_has_nocase */

#if defined(__SSE2__)
static __m128i load(const char *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static __m128i all_of(char c) { return _mm_set1_epi8(c); }
static unsigned mask_of(__m128i x) { return (unsigned)_mm_movemask_epi8(x); }
/* Bytes of x that are from..from+span. */
static __m128i in_range(__m128i x, char from, char span) {
    __m128i y = _mm_sub_epi8(x, all_of(from));
    return _mm_cmpeq_epi8(_mm_min_epu8(y, all_of(span)), y);
}
#endif

/* ------------------------------------------------------------------------------ bytes */

static const uint8_t may_break[256] = {
    ['\n'] = 1, ['\v'] = 1, ['\f'] = 1, ['\r'] = 1, [0x1c] = 1,
    [0x1d] = 1, [0x1e] = 1, [0xc2] = 1, [0xe2] = 1,
};

const char *text_find_break(const char *p, const char *end) {
#if defined(__SSE2__)
    for (; end - p >= 16; p += 16) {
        __m128i x = load(p);
        __m128i y = _mm_or_si128(in_range(x, '\n', 3), in_range(x, 0x1c, 2));
        y = _mm_or_si128(y, _mm_cmpeq_epi8(x, all_of((char)0xc2)));
        y = _mm_or_si128(y, _mm_cmpeq_epi8(x, all_of((char)0xe2)));
        unsigned hits = mask_of(y);
        if (hits) return p + __builtin_ctz(hits);
    }
#endif
    while (p < end && !may_break[(uint8_t)*p]) p++;
    return p;
}

int64_t gw_text_chars(const char *p, int64_t n) {
    int64_t chars = 0, i = 0;
#if defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), inner = all_of((char)0xbf);
    while (i + 16 <= n) { /* bytes above 0xbf as signed numbers begin characters */
        __m128i sum = zero;
        int64_t stop = n - i > 255 * 16 ? i + 255 * 16 : n;
        for (; i + 16 <= stop; i += 16) sum = _mm_sub_epi8(sum, _mm_cmpgt_epi8(load(p + i), inner));
        sum = _mm_sad_epu8(sum, zero);
        chars += _mm_cvtsi128_si64(sum) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum));
    }
#endif
    for (; i < n; i++) chars += ((uint8_t)p[i] & 0xc0) != 0x80;
    return chars;
}

static int64_t count_byte(const char *p, int64_t n, char c) {
    int64_t count = 0, i = 0;
#if defined(__SSE2__)
    const __m128i zero = _mm_setzero_si128(), what = all_of(c);
    while (i + 16 <= n) {
        __m128i sum = zero;
        int64_t stop = n - i > 255 * 16 ? i + 255 * 16 : n;
        for (; i + 16 <= stop; i += 16) sum = _mm_sub_epi8(sum, _mm_cmpeq_epi8(load(p + i), what));
        sum = _mm_sad_epu8(sum, zero);
        count += _mm_cvtsi128_si64(sum) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum));
    }
#endif
    for (; i < n; i++) count += p[i] == c;
    return count;
}

/* The first place in p[0, end) where `a` stands before `b`; at or behind end - 1 where there is
 * none. */
static const char *find_pair(const char *p, const char *end, char a, char b) {
#if defined(__SSE2__)
    const __m128i va = all_of(a), vb = all_of(b);
    for (; end - p >= 17; p += 16) {
        unsigned hits =
            mask_of(_mm_and_si128(_mm_cmpeq_epi8(load(p), va), _mm_cmpeq_epi8(load(p + 1), vb)));
        if (hits) return p + __builtin_ctz(hits);
    }
#endif
    while (end - p >= 2 && !(p[0] == a && p[1] == b)) p++;
    return p;
}

int64_t gw_text_count(const char *p, int64_t n, const char *what) {
    int64_t count = 0, size = (int64_t)strlen(what);
    const char *end = p + n;
    if (size == 1) return count_byte(p, n, what[0]);
    while (end - p >= size && end - (p = find_pair(p, end, what[0], what[1])) >= size) {
        bool same = !memcmp(p, what, (size_t)size);
        count += same;
        p += same ? size : 1;
    }
    return count;
}

/* ------------------------------------------------------------------------------ phrases */

static bool same_nocase(const char *p, const char *what, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        char c = p[k];
        if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
        if (c != what[k]) return false;
    }
    return true;
}

/* Whether the phrase's pair at text[at] is part of the phrase. */
static bool stands_at(const text_phrase *f, const char *text, int64_t n, int64_t at) {
    int64_t from = at - f->pair;
    return from >= 0 && from + f->bytes <= n && same_nocase(text + from, f->text, f->bytes);
}

static bool pair_at(const text_phrase *f, const char *p) {
    return (p[0] | 0x20) == f->text[f->pair] && (p[1] | 0x20) == f->text[f->pair + 1];
}

#if defined(__SSE2__)
/* Phrases whose pair stands in text[at, at + 16); 17 bytes can be read. */
static unsigned look_at(const text_phrase *phrases, int nphrases, unsigned found, const char *text,
                        int64_t n, int64_t at) {
    const __m128i small = all_of(0x20);
    __m128i x = _mm_or_si128(load(text + at), small), y = _mm_or_si128(load(text + at + 1), small);
    for (int k = 0; k < nphrases; k++) {
        const text_phrase *f = &phrases[k];
        unsigned hits = mask_of(_mm_and_si128(_mm_cmpeq_epi8(x, all_of(f->text[f->pair])),
                                              _mm_cmpeq_epi8(y, all_of(f->text[f->pair + 1]))));
        for (; hits && !(found >> k & 1); hits &= hits - 1)
            if (stands_at(f, text, n, at + __builtin_ctz(hits))) found |= 1u << k;
    }
    return found;
}
#endif

unsigned text_find_phrases(const text_phrase *phrases, int nphrases, const char *text, int64_t n) {
    unsigned found = 0;
    int64_t at = 0;
#if defined(__SSE2__)
    for (; at + 17 <= n; at += 16) found = look_at(phrases, nphrases, found, text, n, at);
#endif
    for (; at + 2 <= n; at++)
        for (int k = 0; k < nphrases; k++)
            if (!(found >> k & 1) && pair_at(&phrases[k], text + at) &&
                stands_at(&phrases[k], text, n, at))
                found |= 1u << k;
    return found;
}

/* Looks for the rarest letter of `what`, in either case, and compares around it. */
bool gw_text_has_nocase(const char *p, int64_t n, const char *what) {
    /* By how rare a letter is in English text; others count as common. */
    static const uint8_t rank[128] = {
        ['e'] = 1,  ['t'] = 2,  ['a'] = 3,  ['o'] = 4,  ['i'] = 5,  ['n'] = 6,  ['s'] = 7,
        ['r'] = 8,  ['h'] = 9,  ['l'] = 10, ['d'] = 11, ['c'] = 12, ['u'] = 13, ['m'] = 14,
        ['f'] = 15, ['p'] = 16, ['g'] = 17, ['w'] = 18, ['y'] = 19, ['b'] = 20, ['v'] = 21,
        ['k'] = 22, ['x'] = 23, ['j'] = 24, ['q'] = 25, ['z'] = 26,
    };
    int64_t size = (int64_t)strlen(what), rare = 0;
    for (int64_t k = 1; k < size; k++)
        if (rank[what[k] & 127] > rank[what[rare] & 127]) rare = k;
    for (int upper = 0; upper < 2; upper++) {
        char c = (char)(what[rare] - (upper ? 32 : 0));
        const char *at = p + rare, *end = p + n - (size - 1 - rare);
        while (at < end && (at = memchr(at, c, (size_t)(end - at)))) {
            if (same_nocase(at - rare, what, size)) return true;
            at++;
        }
    }
    return false;
}

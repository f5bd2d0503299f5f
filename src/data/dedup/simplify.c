// SPDX-License-Identifier: Apache-2.0
// datatrove's simplify_text in one pass.
//
// There it is six passes over a Python string: lower(), numbers by a regular expression,
// punctuation by a translation table, strip and white space by a regular expression, NFD, removal
// of category Mn, strip. The result of each character depends on little: a number on what follows
// it, a space on whether the character before it (seen before decomposition) became a space too, a
// capital sigma on its neighbours, a combining mark that stays on the marks beside it. So one pass
// gives the same bytes: a table holds for each character below U+2100 the bytes that it becomes;
// what needs to look around, and all others, go through a slower function.
//
// Two spaces in a row can come out: a lone non-spacing mark between spaces goes only after the
// spaces were squeezed. Canonical order is kept among the marks that stay (some spacing marks have
// a combining class); a mark that goes separates them only where its class is 0.
//
// utf8proc knows Unicode 15, the Python whose results are matched 14: characters that are newer
// pass unchanged, as unassigned ones do there.
#include "data/dedup/simplify.h"

#include <stdbool.h>
#include <string.h>
#include <utf8proc.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/arena.h"       /* gw_mem_zalloc */
#include "data/text/words.h"  /* gw_ch_class */
#include "data/unicode.h"     /* gw_utf8_decode */
#include "data/unicode_new.h" /* gw_uni_version_of */

enum { TABLE_END = 0x2100, PENDING_MAX = 32, PYTHON_UNICODE = 14 };

typedef enum kind { KIND_BYTES, KIND_SPACE, KIND_DIGIT, KIND_SLOW } kind;

typedef struct entry {
    uint8_t kind, n, bytes[6];
} entry;

struct gw_simplify {
    entry table[TABLE_END];
    uint8_t ascii[256]; /* the byte it becomes; 0: look at the table; 1: a space */
    bool vectors;
    uint64_t pack[256]; /* for pshufb: the places of the set bits, in order */
};

// ------------------------------------------------------------------------------ characters

/* datatrove's PUNCTUATION above ASCII. */
static bool is_punctuation(uint32_t c) {
    static const uint16_t above[] = {
        0xab,   0xb4,   0xbb,   0x2013, 0x2014, 0x2019, 0x201c, 0x201d, 0x201e,
        0x2026, 0x2236, 0x2501, 0x25ba, 0x3001, 0x3002, 0x3008, 0x3009, 0x300a,
        0x300b, 0x300c, 0x300d, 0x3010, 0x3011, 0xff01, 0xff05, 0xff08, 0xff09,
        0xff0c, 0xff0e, 0xff11, 0xff1a, 0xff1b, 0xff1f, 0xff5e,
    };
    if (c < 0x80)
        return c == 0x7f || (c < 32 && c != '\t' && c != '\n') ||
               (c > 32 && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
                !(c >= 'A' && c <= 'Z'));
    if (c < 0xa0) return true;
    for (size_t i = 0; i < GW_COUNT(above); i++)
        if (above[i] == c) return true;
    return false;
}

static bool is_separator(uint32_t c) { /* between the digits of one number */
    return c == '.' || c == ',' || c == 0x60c || c == 0x66b || (c >= 0x2396 && c <= 0x2398);
}

static bool is_digit(uint32_t c) {
    return c < 0x80 ? c - '0' < 10 : c != GW_CP_INVALID && (gw_ch_class(c) & GW_CH_DIGIT);
}

static bool is_new(uint32_t c) { return gw_uni_version_of(c) > PYTHON_UNICODE; }

static utf8proc_category_t category(uint32_t c) {
    return is_new(c) ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)c);
}

/* Unicode's Cased, for what may stand beside a capital sigma. */
static bool is_cased(uint32_t c) {
    static const uint16_t other[][2] = {
        {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},   {0x2c0, 0x2c1},   {0x2e0, 0x2e4},
        {0x345, 0x345},   {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf},
        {0x2071, 0x2071}, {0x207f, 0x207f}, {0x2090, 0x209c}, {0x2160, 0x217f}, {0x24b6, 0x24e9},
        {0x2c7c, 0x2c7d}, {0xa69c, 0xa69d}, {0xa770, 0xa770}, {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f},
    };
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT)
        return true;
    for (size_t i = 0; i < GW_COUNT(other); i++)
        if (c >= other[i][0] && c <= other[i][1]) return true;
    return (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189);
}

static bool is_case_ignorable(uint32_t c) {
    static const uint16_t middle[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,
                                      0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                      0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    utf8proc_category_t k = category(c);
    if (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
        k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK)
        return true;
    for (size_t i = 0; i < GW_COUNT(middle); i++)
        if (c == middle[i]) return true;
    return false;
}

static uint32_t char_before(const uint8_t *start, const uint8_t **p) {
    int len;
    const uint8_t *q = *p - 1;
    while (q > start && (*q & 0xc0) == 0x80 && *p - q < 4) q--;
    uint32_t c = gw_utf8_decode(q, *p, &len);
    if (q + len != *p) {
        q = *p - 1;
        c = GW_CP_INVALID;
    }
    *p = q;
    return c;
}

/* Is the sigma at [p, after) the last letter of its word? */
static bool is_final_sigma(const uint8_t *start, const uint8_t *p, const uint8_t *after,
                           const uint8_t *end) {
    uint32_t c = GW_CP_INVALID;
    int len;
    while (p > start && is_case_ignorable(c = char_before(start, &p))) c = GW_CP_INVALID;
    if (c == GW_CP_INVALID || !is_cased(c)) return false;
    c = GW_CP_INVALID;
    for (; after < end; after += len) {
        c = gw_utf8_decode(after, end, &len);
        if (!is_case_ignorable(c)) break;
        c = GW_CP_INVALID;
    }
    return c == GW_CP_INVALID || !is_cased(c);
}

/* Python's lower() of one character, which may be two. */
static int lower(uint32_t c, const uint8_t *start, const uint8_t *p, const uint8_t *after,
                 const uint8_t *end, uint32_t out[2]) {
    out[1] = 0x307;
    if (c == 0x130) { /* capital I with dot above */
        out[0] = 'i';
        return 2;
    }
    if (c == 0x3a3)
        out[0] = is_final_sigma(start, p, after, end) ? 0x3c2 : 0x3c3;
    else
        out[0] = is_new(c) ? c : (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

// ------------------------------------------------------------------------------ the slow way

typedef struct pass {
    const gw_simplify *tables;
    const uint8_t *start, *end;
    uint8_t *out, *out_start;
    bool spaced; /* the character before became a space (or there is none) */
    int npending;
    uint32_t pending[PENDING_MAX]; /* marks that stay, to be put in canonical order */
    uint8_t class[PENDING_MAX];
} pass;

static void flush_pending(pass *x) {
    for (int i = 0; i < x->npending; i++) x->out += gw_utf8_encode(x->pending[i], x->out);
    x->npending = 0;
}

/* One character of the decomposition. */
static void put(pass *x, uint32_t c) {
    const utf8proc_property_t *q = utf8proc_get_property((utf8proc_int32_t)c);
    int class = is_new(c) ? 0 : q->combining_class;
    bool goes = category(c) == UTF8PROC_CATEGORY_MN;
    if (class == 0 || x->npending == PENDING_MAX) flush_pending(x);
    if (goes) return;
    if (class == 0) {
        x->out += gw_utf8_encode(c, x->out);
        return;
    }
    int i = x->npending++;
    for (; i > 0 && x->class[i - 1] > class; i--) {
        x->class[i] = x->class[i - 1];
        x->pending[i] = x->pending[i - 1];
    }
    x->class[i] = (uint8_t) class;
    x->pending[i] = c;
}

static void put_decomposed(pass *x, uint32_t c) {
    utf8proc_int32_t parts[16];
    int boundary = 0;
    if (is_new(c) || (c >= 0xd800 && c < 0xe000)) {
        put(x, c);
        return;
    }
    utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)c, parts, 16, UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 16; i++) put(x, (uint32_t)parts[i]);
}

static void put_space(pass *x) {
    if (x->npending) flush_pending(x);
    if (!x->spaced) *x->out++ = ' ';
    x->spaced = true;
}

/* A character of which the table says too little, at p. Returns the place after it. */
static const uint8_t *slow(pass *x, const uint8_t *p) {
    int len;
    uint32_t c = gw_utf8_decode(p, x->end, &len), low[2];
    if (c == GW_CP_INVALID) {
        if (x->npending) flush_pending(x);
        *x->out++ = *p;
        x->spaced = false;
        return p + 1;
    }
    if (is_punctuation(c) || (gw_ch_class(c) & GW_CH_SPACE)) {
        put_space(x);
        return p + len;
    }
    int n = lower(c, x->start, p, p + len, x->end, low);
    for (int i = 0; i < n; i++) put_decomposed(x, low[i]);
    x->spaced = false;
    return p + len;
}

/* The number that begins at p, a digit: digits, and one fraction. Writes "0". */
static const uint8_t *number(pass *x, const uint8_t *p) {
    if (x->npending) flush_pending(x);
    *x->out++ = '0';
    x->spaced = false;
    for (int fraction = 0; fraction < 2; fraction++) {
        int len = 0, next;
        while (p < x->end && is_digit(gw_utf8_decode(p, x->end, &len))) p += len;
        if (fraction || p == x->end || !is_separator(gw_utf8_decode(p, x->end, &len))) break;
        if (p + len == x->end || !is_digit(gw_utf8_decode(p + len, x->end, &next))) break;
        p += len;
    }
    return p;
}

// ------------------------------------------------------------------------------ the tables

/* What one character below TABLE_END becomes, by the slow way. */
static entry entry_of(gw_simplify *s, uint32_t c) {
    uint8_t in[4], out[64];
    if (c >= 0x80 && is_digit(c)) return (entry){.kind = KIND_DIGIT};
    if (c < 0x80 && c - '0' < 10) return (entry){.kind = KIND_DIGIT};
    if (is_punctuation(c) || (gw_ch_class(c) & GW_CH_SPACE)) return (entry){.kind = KIND_SPACE};
    if (c == 0x3a3) return (entry){.kind = KIND_SLOW};
    pass x = {.tables = s, .start = in, .end = in + gw_utf8_encode(c, in), .out = out};
    slow(&x, in);
    bool starter = utf8proc_get_property((utf8proc_int32_t)c)->combining_class == 0;
    int n = (int)(x.out - out);
    /* A mark that stays waits for its neighbours; one that goes ends their waiting if its class is
     * 0. */
    if (x.npending || n > 6 || (n == 0 && starter)) return (entry){.kind = KIND_SLOW};
    entry e = {.kind = KIND_BYTES, .n = (uint8_t)n};
    memcpy(e.bytes, out, (size_t)n);
    return e;
}

static void make_pack(gw_simplify *s) {
    for (unsigned mask = 0; mask < 256; mask++) {
        int n = 0;
        for (unsigned i = 0; i < 8; i++)
            if (mask >> i & 1) s->pack[mask] |= (uint64_t)i << 8 * n++;
    }
#if defined(__x86_64__)
    s->vectors = __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("popcnt");
#endif
}

gw_simplify *gw_simplify_new(void) {
    gw_simplify *s = gw_mem_zalloc(sizeof *s);
    for (uint32_t c = 0; c < TABLE_END; c++) s->table[c] = entry_of(s, c);
    for (uint32_t c = 0; c < 0x80; c++) {
        const entry *e = &s->table[c];
        s->ascii[c] = e->kind == KIND_SPACE                ? 1
                      : e->kind == KIND_BYTES && e->n == 1 ? e->bytes[0]
                                                           : 0;
    }
    make_pack(s);
    return s;
}

void gw_simplify_free(gw_simplify *s) { gw_mem_free(s); }

// ------------------------------------------------------------------------------ the pass

#if defined(__x86_64__)

/* Sixteen bytes at a time: letters to lower case, all other ASCII but digits to spaces, of which
 * only the first of a run is kept. Stops before a digit, a byte beyond ASCII, or the last 15 bytes;
 * returns that place. The output has room for 16 bytes more than are kept. */
__attribute__((target("ssse3,sse4.1,popcnt"))) static const uint8_t *vectors(pass *x,
                                                                             const uint8_t *p) {
    const __m128i space = _mm_set1_epi8(' ');
    uint8_t *o = x->out;
    unsigned before = x->spaced;
    while (x->end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i low = _mm_or_si128(v, space);
        __m128i from_a = _mm_sub_epi8(low, _mm_set1_epi8('a'));
        __m128i from_0 = _mm_sub_epi8(v, _mm_set1_epi8('0'));
        __m128i letter = _mm_cmpeq_epi8(_mm_min_epu8(from_a, _mm_set1_epi8(25)), from_a);
        __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(from_0, _mm_set1_epi8(9)), from_0);
        unsigned stop = (unsigned)_mm_movemask_epi8(_mm_or_si128(v, digit));
        unsigned n = stop ? (unsigned)__builtin_ctz(stop) : 16;
        unsigned spaces = ~(unsigned)_mm_movemask_epi8(letter) & ((1u << n) - 1);
        unsigned keep = ~(spaces & (spaces << 1 | before)) & ((1u << n) - 1);
        if (n) before = spaces >> (n - 1) & 1;
        v = _mm_blendv_epi8(space, low, letter);
        uint64_t pack[2] = {x->tables->pack[keep & 255], x->tables->pack[keep >> 8]};
        __m128i places = _mm_loadl_epi64((const __m128i *)(const void *)&pack[0]);
        _mm_storel_epi64((__m128i *)(void *)o, _mm_shuffle_epi8(v, places));
        o += __builtin_popcount(keep & 255);
        places = _mm_loadl_epi64((const __m128i *)(const void *)&pack[1]);
        _mm_storel_epi64((__m128i *)(void *)o, _mm_shuffle_epi8(_mm_srli_si128(v, 8), places));
        o += __builtin_popcount(keep >> 8);
        p += n;
        if (stop) break;
    }
    x->out = o;
    x->spaced = before;
    return p;
}

#else
static const uint8_t *vectors(pass *x, const uint8_t *p) {
    (void)x;
    return p;
}
#endif

/* One character that is not plain ASCII. */
static const uint8_t *step(pass *x, const uint8_t *p) {
    int len;
    uint32_t c = *p < 0x80 ? *p : gw_utf8_decode(p, x->end, &len);
    if (c < 0x80) len = 1;
    if (c >= TABLE_END) return c != GW_CP_INVALID && is_digit(c) ? number(x, p) : slow(x, p);
    const entry *e = &x->tables->table[c];
    switch ((kind)e->kind) {
    case KIND_BYTES:
        if (x->npending && e->n) flush_pending(x);
        memcpy(x->out, e->bytes, 6);
        x->out += e->n;
        x->spaced = false;
        return p + len;
    case KIND_SPACE: put_space(x); return p + len;
    case KIND_DIGIT: return number(x, p);
    case KIND_SLOW: break;
    }
    return slow(x, p);
}

static bool is_edge(uint8_t c) { return c == ' ' || c == '\t' || c == '\n'; }

void gw_simplify_text(const gw_simplify *s, const char *text, int64_t n, gw_str *out) {
    gw_str_clear(out);
    gw_str_reserve(out, (size_t)n * 3 + 64);
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    pass x = {.tables = s, .start = p, .end = end, .spaced = true};
    x.out = x.out_start = (uint8_t *)out->data;
    while (p < end) {
        uint8_t *o, t = 0;
        if (x.npending) { /* marks wait for what follows: not ASCII, as a rule */
            p = step(&x, p);
            continue;
        }
        if (s->vectors) p = vectors(&x, p);
        const uint8_t *q = p;
        o = x.out;
        while (q < end && (t = s->ascii[*q]) > 1) *o++ = t, q++;
        if (q > p) x.spaced = false;
        x.out = o;
        p = q;
        if (p == end) break;
        if (t == 1) {
            put_space(&x);
            p++;
        } else {
            p = step(&x, p);
        }
    }
    flush_pending(&x);
    const uint8_t *first = x.out_start, *last = x.out;
    while (last > first && is_edge(last[-1])) last--;
    while (first < last && is_edge(*first)) first++;
    memmove(out->data, first, (size_t)(last - first));
    out->len = (size_t)(last - first);
    out->data[out->len] = 0;
}

void gw_simplify_lower(const char *text, int64_t n, gw_str *out) {
    gw_str_clear(out);
    gw_str_reserve(out, (size_t)n * 3 + 64);
    const uint8_t *start = (const uint8_t *)text, *p = start, *end = p + n;
    uint8_t *o = (uint8_t *)out->data;
    while (p < end) {
        int len;
        uint32_t low[2];
        if (*p < 0x80) {
            *o++ = (uint8_t)(*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
            p++;
            continue;
        }
        uint32_t c = gw_utf8_decode(p, end, &len);
        if (c == GW_CP_INVALID) {
            *o++ = *p++;
            continue;
        }
        int k = lower(c, start, p, p + len, end, low);
        for (int i = 0; i < k; i++) o += gw_utf8_encode(low[i], o);
        p += len;
    }
    out->len = (size_t)(o - (uint8_t *)out->data);
    out->data[out->len] = 0;
}

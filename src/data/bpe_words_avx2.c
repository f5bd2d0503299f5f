// SPDX-License-Identifier: Apache-2.0
// Finding words with vectors of 16 bytes.
//
// What bpe_words.c does in C, with fewer instructions: a word is one vector, loaded, masked and
// marked with its length by two rows of a table; both words of a line are compared at once, and a
// bit of the comparisons says which ids to take. Words too long for a line get a key that no line
// holds. So the only branch is "not found".
#include "data/bpe_words.h" /* gw_bpe_pieces */
#include "data/target.h"    /* GW_TARGET_BEGIN */

#if GW_HAS_TARGETS
GW_TARGET_BEGIN(GW_TARGET_AVX2)

/* By a word's length, or one more than the most: the bytes to keep, and the length. */
static const struct {
    uint64_t keep[2], length[2];
} ROWS[GW_WORD_BYTES + 2] = {
#define M(n) ((UINT64_C(1) << (n)*8) - 1)
#define ALL  (~UINT64_C(0))
#define LEN(n)                                                                                     \
    { 0, UINT64_C(n) << 56 }
    {{0, 0}, LEN(0)},
    {{M(1), 0}, LEN(1)},
    {{M(2), 0}, LEN(2)},
    {{M(3), 0}, LEN(3)},
    {{M(4), 0}, LEN(4)},
    {{M(5), 0}, LEN(5)},
    {{M(6), 0}, LEN(6)},
    {{M(7), 0}, LEN(7)},
    {{ALL, 0}, LEN(8)},
    {{ALL, M(1)}, LEN(9)},
    {{ALL, M(2)}, LEN(10)},
    {{ALL, M(3)}, LEN(11)},
    {{ALL, M(4)}, LEN(12)},
    {{ALL, M(5)}, LEN(13)},
    {{ALL, M(6)}, LEN(14)},
    {{ALL, M(7)}, LEN(15)},
    {{0, 0}, {0, GW_WORD_LONG << 56}},
#undef M
#undef ALL
#undef LEN
};

static inline __m128i load(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

typedef struct wanted {
    __m128i key[GW_WORDS_AHEAD];
    const gw_word_line *line[GW_WORDS_AHEAD];
} wanted;

/* Asks memory for the lines of n pieces. True if some are too long for a line. */
static inline bool want(const gw_word_line *lines, int shift, const uint8_t *base,
                        const uint32_t *bounds, int64_t n, wanted *w) {
    uint64_t start = bounds[0], all = 0;
    for (int64_t k = 0; k < n; k++) {
        uint64_t end = bounds[k + 1], len = end - start;
        len = len <= GW_WORD_BYTES ? len : GW_WORD_BYTES + 1;
        all |= len;
        __m128i key = _mm_or_si128(_mm_and_si128(load(base + start), load(ROWS[len].keep)),
                                   load(ROWS[len].length));
        uint64_t hash =
            gw_word_hash((uint64_t)_mm_cvtsi128_si64(key), (uint64_t)_mm_extract_epi64(key, 1));
        const gw_word_line *l = lines + (hash >> shift);
        GW_PREFETCH(l);
        w->key[k] = key;
        w->line[k] = l;
        start = end;
    }
    return all > GW_WORD_BYTES;
}

/* Stores a word's ids at `o`, which has room for four. Returns how many, 0 if it is not there. */
static inline uint32_t find(const gw_word_line *l, __m128i key, int32_t *o) {
    const __m128i low24 = _mm_set_epi32(-1, -1, -1, 0xffffff);
    unsigned a = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(key, load(l->key[0]))) + 1;
    unsigned b = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(key, load(l->key[1]))) + 1;
    if (GW_UNLIKELY(!((a | b) >> 16))) return 0;
    __m128i ids = load((const char *)l->ids + (b >> 12 & 16));
    _mm_storeu_si128((__m128i *)(void *)o, _mm_and_si128(ids, low24));
    return (uint32_t)_mm_cvtsi128_si32(ids) >> 24;
}

void gw_bpe_pieces_avx2(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                        const uint32_t *bounds, int64_t count, gw_ids *out) {
    wanted w;
    int32_t *o = out->items + out->count;
    for (int64_t from = 0; from < count; from += GW_WORDS_AHEAD) {
        int64_t n = GW_MIN((int64_t)GW_WORDS_AHEAD, count - from);
        if (want(s->lines, 64 - s->bits, base, bounds + from, n, &w))
            gw_bpe_want_long(s, base, bounds + from, n);
        for (int64_t k = 0; k < n; k++) {
            uint32_t found = find(w.line[k], w.key[k], o);
            o += found;
            if (GW_LIKELY(found)) continue;
            uint32_t start = bounds[from + k], len = bounds[from + k + 1] - start;
            out->count = o - out->items;
            gw_bpe_encode_new(m, s, base + start, len, (uint64_t)_mm_cvtsi128_si64(w.key[k]),
                              (uint64_t)_mm_extract_epi64(w.key[k], 1), out);
            gw_ids_reserve(out, 4 * (count - from - k) + 4);
            o = out->items + out->count;
        }
    }
    out->count = o - out->items;
}

GW_TARGET_END
#else
void gw_bpe_pieces_avx2(const gw_bpe *m, gw_bpe_scratch *s, const uint8_t *base,
                        const uint32_t *bounds, int64_t count, gw_ids *out) {
    gw_bpe_pieces_plain(m, s, base, bounds, count, out);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Hashes of shingles: XXH64 and XXH32 of libxxhash, and the first bytes of SHA-1.
//
// A shingle is some 30 bytes, so a hash is one block of work, and what counts is the cost of a
// call. XXH is inlined from its header. SHA-1 uses the processor's SHA instructions where it has
// them: a block is a chain of 20 dependent steps, so two shingles go side by side; a plain version
// does the rest. A digest's first two words are all that is taken, which saves the last additions.
#include "data/dedup/shingle.h"

#include <stdbool.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/compiler.h" /* GW_ALWAYS_INLINE */

static const uint32_t SHA1_START[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};

// ------------------------------------------------------------------------------ SHA-1, plain

static uint32_t rotate(uint32_t x, int k) { return x << k | x >> (32 - k); }

static void sha1_block(uint32_t h[5], const uint8_t *p) {
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int t = 0; t < 16; t++) {
        uint32_t x;
        memcpy(&x, p + 4 * t, 4);
        w[t] = __builtin_bswap32(x);
    }
    for (int t = 16; t < 80; t++) w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    for (int t = 0; t < 80; t++) {
        uint32_t f = t < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                     : t < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                     : t < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                              : (b ^ c ^ d) + 0xca62c1d6;
        uint32_t next = rotate(a, 5) + f + e + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

/* The blocks of a text of n <= 119 bytes: it, a one bit, zeros, its length in bits. Returns how
 * many, 1 or 2. */
static GW_ALWAYS_INLINE int lay_blocks(uint8_t blocks[128], const uint8_t *text, uint32_t n) {
    int count = n > 55 ? 2 : 1;
    memset(blocks, 0, 64);
    if (count == 2) memset(blocks + 64, 0, 64);
    memcpy(blocks, text, n);
    blocks[n] = 0x80;
    uint64_t bits = __builtin_bswap64((uint64_t)n * 8);
    memcpy(blocks + 64 * count - 8, &bits, 8);
    return count;
}

static uint64_t first_words(const uint32_t h[2]) {
    return __builtin_bswap32(h[0]) | (uint64_t)__builtin_bswap32(h[1]) << 32;
}

static uint64_t sha1_plain(const uint8_t *text, uint32_t n) {
    uint32_t h[5];
    uint8_t block[64];
    memcpy(h, SHA1_START, sizeof h);
    uint32_t at = 0;
    for (; n - at >= 64; at += 64) sha1_block(h, text + at);
    uint32_t rest = n - at;
    memset(block, 0, sizeof block);
    memcpy(block, text + at, rest);
    block[rest] = 0x80;
    if (rest >= 56) {
        sha1_block(h, block);
        memset(block, 0, sizeof block);
    }
    uint64_t bits = __builtin_bswap64((uint64_t)n * 8);
    memcpy(block + 56, &bits, 8);
    sha1_block(h, block);
    return first_words(h);
}

// ------------------------------------------------------------------------------ SHA-1, by SHA-NI

#if defined(__x86_64__)

static bool has_sha(void) {
    unsigned a, b, c, d;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
           (b >> 29 & 1);
}

/* Four rounds of stream x with message words w, and the next four message words in place of w0. */
#define ROUNDS(x, w, f)                                                                            \
    do {                                                                                           \
        __m128i e_ = _mm_sha1nexte_epu32(x##p, x##w);                                              \
        x##p = x##s;                                                                               \
        x##s = _mm_sha1rnds4_epu32(x##s, e_, f);                                                   \
    } while (0)
#define SCHEDULE(x, w0, w1, w2, w3)                                                                \
    x##w0 = _mm_sha1msg2_epu32(_mm_xor_si128(_mm_sha1msg1_epu32(x##w0, x##w1), x##w2), x##w3)
#define BOTH_ROUNDS(w, f)                                                                          \
    ROUNDS(x, w, f);                                                                               \
    ROUNDS(y, w, f)
#define BOTH(w0, w1, w2, w3, f)                                                                    \
    SCHEDULE(x, w0, w1, w2, w3);                                                                   \
    SCHEDULE(y, w0, w1, w2, w3);                                                                   \
    BOTH_ROUNDS(w0, f)
#define LOAD(x, block)                                                                             \
    x##w0 = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(block)), order),                    \
    x##w1 = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)((block) + 16)), order),             \
    x##w2 = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)((block) + 32)), order),             \
    x##w3 = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)((block) + 48)), order)

/* The first words of two digests, of as many blocks each. */
__attribute__((target("sha,sse4.1,ssse3"))) static void sha1_two(const uint8_t *first,
                                                                 const uint8_t *second, int count,
                                                                 uint64_t out[2]) {
    const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    const __m128i start = _mm_set_epi32((int)SHA1_START[0], (int)SHA1_START[1], (int)SHA1_START[2],
                                        (int)SHA1_START[3]);
    __m128i xs = start, ys = start, xp, yp, xs0, ys0;
    __m128i xe = _mm_set_epi32((int)SHA1_START[4], 0, 0, 0), ye = xe;
    __m128i xw0, xw1, xw2, xw3, yw0, yw1, yw2, yw3;
    for (int i = 0; i < count; i++) {
        LOAD(x, first + 64 * i);
        LOAD(y, second + 64 * i);
        xs0 = xp = xs;
        ys0 = yp = ys;
        xs = _mm_sha1rnds4_epu32(xs, _mm_add_epi32(xe, xw0), 0);
        ys = _mm_sha1rnds4_epu32(ys, _mm_add_epi32(ye, yw0), 0);
        BOTH_ROUNDS(w1, 0);
        BOTH_ROUNDS(w2, 0);
        BOTH_ROUNDS(w3, 0);
        BOTH(w0, w1, w2, w3, 0);
        BOTH(w1, w2, w3, w0, 1);
        BOTH(w2, w3, w0, w1, 1);
        BOTH(w3, w0, w1, w2, 1);
        BOTH(w0, w1, w2, w3, 1);
        BOTH(w1, w2, w3, w0, 1);
        BOTH(w2, w3, w0, w1, 2);
        BOTH(w3, w0, w1, w2, 2);
        BOTH(w0, w1, w2, w3, 2);
        BOTH(w1, w2, w3, w0, 2);
        BOTH(w2, w3, w0, w1, 2);
        BOTH(w3, w0, w1, w2, 3);
        BOTH(w0, w1, w2, w3, 3);
        BOTH(w1, w2, w3, w0, 3);
        BOTH(w2, w3, w0, w1, 3);
        BOTH(w3, w0, w1, w2, 3);
        xe = _mm_sha1nexte_epu32(xp, xe);
        ye = _mm_sha1nexte_epu32(yp, ye);
        xs = _mm_add_epi32(xs, xs0);
        ys = _mm_add_epi32(ys, ys0);
    }
    uint32_t h[2] = {(uint32_t)_mm_extract_epi32(xs, 3), (uint32_t)_mm_extract_epi32(xs, 2)};
    out[0] = first_words(h);
    h[0] = (uint32_t)_mm_extract_epi32(ys, 3);
    h[1] = (uint32_t)_mm_extract_epi32(ys, 2);
    out[1] = first_words(h);
}

/* Pairs shingles of one block, and shingles of two, as they come. */
static void sha1_pairs(const uint8_t *text, const uint32_t *begin, const uint32_t *end, int64_t n,
                       uint64_t *out) {
    int64_t waiting[3] = {-1, -1, -1}; /* by the number of blocks */
    uint8_t blocks[3][128], other[128];
    uint64_t two[2];
    for (int64_t i = 0; i < n; i++) {
        uint32_t len = end[i] - begin[i];
        if (len > 119) {
            out[i] = sha1_plain(text + begin[i], len);
            continue;
        }
        int count = len > 55 ? 2 : 1;
        lay_blocks(waiting[count] < 0 ? blocks[count] : other, text + begin[i], len);
        if (waiting[count] < 0) {
            waiting[count] = i;
            continue;
        }
        sha1_two(blocks[count], other, count, two);
        out[waiting[count]] = two[0];
        out[i] = two[1];
        waiting[count] = -1;
    }
    for (int count = 1; count <= 2; count++) {
        if (waiting[count] < 0) continue;
        sha1_two(blocks[count], blocks[count], count, two);
        out[waiting[count]] = two[0];
    }
}

#endif

static void sha1_all(const uint8_t *text, const uint32_t *begin, const uint32_t *end, int64_t n,
                     uint64_t *out) {
#if defined(__x86_64__)
    if (has_sha()) {
        sha1_pairs(text, begin, end, n, out);
        return;
    }
#endif
    for (int64_t i = 0; i < n; i++) out[i] = sha1_plain(text + begin[i], end[i] - begin[i]);
}

void gw_shingle_hashes(gw_shingle_hash kind, int bits, const uint8_t *text, const uint32_t *begin,
                       const uint32_t *end, int64_t n, uint64_t *out) {
    switch (kind) {
    case GW_SHINGLE_SHA1:
        sha1_all(text, begin, end, n, out);
        for (int64_t i = 0; bits == 32 && i < n; i++) out[i] &= UINT32_MAX;
        break;
    case GW_SHINGLE_XXH:
        for (int64_t i = 0; i < n; i++)
            out[i] = bits == 32 ? XXH32(text + begin[i], end[i] - begin[i], 0)
                                : XXH64(text + begin[i], end[i] - begin[i], 0);
        break;
    }
}

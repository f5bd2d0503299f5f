// SPDX-License-Identifier: Apache-2.0
// The inner loop of MinHash: for each permutation (a, b) the least (h a + b mod 2^64) mod M over a
// document's shingles h, M = 2^61 - 1.
//
// Modulo M needs no division: x = (x & M) + (x >> 61) (mod M), which is at most M + 7. To save the
// last, conditional, subtraction the 64-bit loops compute with b + 1: y = (x & M) + (x >> 61) is
// congruent to value + 1, which lies in 1..M. So y is that very number unless y > M (then bit 61 is
// set) or y = 0; both need x within 8 of a multiple of 2^61, once in 10^17 shingles. The loops or
// all y together, and where bit 61 came up or a minimum is 0 that block of permutations is done
// again by the plain loop. Values of 32 bits have their minimum taken after the cut, where this
// does not work, and are reduced whole, by AVX2 at best.
//
// AVX2 has no 64-bit product: low x low, and the two cross products shifted, are three 32-bit ones.
// Blocks of permutations stay in registers while the shingles, which fit in the first cache for
// most documents, stream past them.
#include "data/dedup/shingle.h"

#include "base/compiler.h" /* GW_COUNT, GW_MIN */

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static GW_ALWAYS_INLINE uint64_t modulo(uint64_t x) {
    uint64_t y = (x & GW_MERSENNE) + (x >> 61);
    return y >= GW_MERSENNE ? y - GW_MERSENNE : y;
}

static void plain_range(const gw_permutations *p, const uint64_t *h, int64_t n, int64_t first,
                        int64_t end, uint64_t *least) {
    uint64_t mask = p->bits == 32 ? UINT32_MAX : UINT64_MAX;
    for (int64_t j = first; j < end; j++) {
        uint64_t a = p->a[j], b = p->b[j], m = UINT64_MAX;
        for (int64_t i = 0; i < n; i++) {
            uint64_t v = modulo(h[i] * a + b) & mask;
            m = GW_MIN(m, v);
        }
        least[j] = m;
    }
}

static void plain(const gw_permutations *p, const uint64_t *h, int64_t n, uint64_t *least) {
    plain_range(p, h, n, 0, p->n, least);
}

#if defined(__x86_64__)

enum { AVX2_VECTORS = 4, AVX512_VECTORS = 2 };
_Static_assert(AVX2_VECTORS * 4 == GW_FOLD_BLOCK && AVX512_VECTORS * 8 == GW_FOLD_BLOCK,
               "a block of permutations is what the registers hold");

/* Minima of y over a block, at `least`, to values; false where one of them must be done again. */
static bool block_values(uint64_t *least, uint64_t all) {
    bool good = all >> 61 == 0;
    for (int j = 0; j < GW_FOLD_BLOCK; j++) {
        good = good && least[j] != 0;
        least[j]--;
    }
    return good;
}

#define AVX2 __attribute__((target("avx2")))

AVX2 static uint64_t avx2_block(const gw_permutations *p, const uint64_t *h, int64_t n,
                                int64_t first, uint64_t *least) {
    const __m256i m = _mm256_set1_epi64x((long long)GW_MERSENNE);
    __m256i acc[AVX2_VECTORS], all = _mm256_setzero_si256();
    for (int v = 0; v < AVX2_VECTORS; v++) acc[v] = _mm256_set1_epi64x(INT64_MAX);
    for (int64_t i = 0; i < n; i++) {
        const __m256i low = _mm256_set1_epi64x((long long)h[i]);
        const __m256i high = _mm256_set1_epi32((int)(h[i] >> 32));
#define STEP(v)                                                                                    \
    do {                                                                                           \
        const __m256i a = _mm256_load_si256((const __m256i *)(p->a + first + 4 * (v)));            \
        const __m256i ah = _mm256_load_si256((const __m256i *)(p->a_high + first + 4 * (v)));      \
        const __m256i b = _mm256_load_si256((const __m256i *)(p->b1 + first + 4 * (v)));           \
        __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(ah, low), _mm256_mul_epu32(a, high));    \
        __m256i x = _mm256_add_epi64(_mm256_mul_epu32(a, low), b);                                 \
        x = _mm256_add_epi64(x, _mm256_slli_epi64(cross, 32));                                     \
        x = _mm256_add_epi64(_mm256_and_si256(x, m), _mm256_srli_epi64(x, 61));                    \
        all = _mm256_or_si256(all, x);                                                             \
        acc[v] = _mm256_blendv_epi8(acc[v], x, _mm256_cmpgt_epi64(acc[v], x));                     \
    } while (0)
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
#undef STEP
    }
    for (int v = 0; v < AVX2_VECTORS; v++)
        _mm256_storeu_si256((__m256i *)(void *)(least + first + 4 * v), acc[v]);
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, all);
    return lanes[0] | lanes[1] | lanes[2] | lanes[3];
}

/* The same with values of 32 bits: the whole modulo, the cut, and then the minimum, of lanes whose
 * high halves are 0. */
AVX2 static void avx2_block32(const gw_permutations *p, const uint64_t *h, int64_t n, int64_t first,
                              uint64_t *least) {
    const __m256i m = _mm256_set1_epi64x((long long)GW_MERSENNE);
    const __m256i cut = _mm256_set1_epi64x(UINT32_MAX);
    __m256i acc[AVX2_VECTORS];
    for (int v = 0; v < AVX2_VECTORS; v++) acc[v] = cut;
    for (int64_t i = 0; i < n; i++) {
        const __m256i low = _mm256_set1_epi64x((long long)h[i]);
        const __m256i high = _mm256_set1_epi32((int)(h[i] >> 32));
#define STEP(v)                                                                                    \
    do {                                                                                           \
        const __m256i a = _mm256_load_si256((const __m256i *)(p->a + first + 4 * (v)));            \
        const __m256i ah = _mm256_load_si256((const __m256i *)(p->a_high + first + 4 * (v)));      \
        const __m256i b = _mm256_load_si256((const __m256i *)(p->b + first + 4 * (v)));            \
        __m256i cross = _mm256_add_epi64(_mm256_mul_epu32(ah, low), _mm256_mul_epu32(a, high));    \
        __m256i x = _mm256_add_epi64(_mm256_mul_epu32(a, low), b);                                 \
        x = _mm256_add_epi64(x, _mm256_slli_epi64(cross, 32));                                     \
        x = _mm256_add_epi64(_mm256_and_si256(x, m), _mm256_srli_epi64(x, 61));                    \
        const __m256d less = _mm256_castsi256_pd(_mm256_sub_epi64(x, m));                          \
        x = _mm256_castpd_si256(_mm256_blendv_pd(less, _mm256_castsi256_pd(x), less));             \
        acc[v] = _mm256_min_epu32(acc[v], _mm256_and_si256(x, cut));                               \
    } while (0)
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
#undef STEP
    }
    for (int v = 0; v < AVX2_VECTORS; v++)
        _mm256_storeu_si256((__m256i *)(void *)(least + first + 4 * v), acc[v]);
}

static void avx2(const gw_permutations *p, const uint64_t *h, int64_t n, uint64_t *least) {
    if (p->bits == 32) {
        for (int64_t j = 0; j < p->n; j += GW_FOLD_BLOCK) avx2_block32(p, h, n, j, least);
        return;
    }
    for (int64_t j = 0; j < p->n; j += GW_FOLD_BLOCK) {
        uint64_t all = avx2_block(p, h, n, j, least);
        if (!block_values(least + j, all)) plain_range(p, h, n, j, j + GW_FOLD_BLOCK, least);
    }
}

#define AVX512 __attribute__((target("avx512f,avx512dq")))

/* Products of 64 bits are one instruction here. */
AVX512 static uint64_t avx512_vectors(const gw_permutations *p, const uint64_t *h, int64_t n,
                                      int64_t first, uint64_t *least) {
    const __m512i m = _mm512_set1_epi64((long long)GW_MERSENNE);
    __m512i acc0 = _mm512_set1_epi64(-1), acc1 = acc0, all = _mm512_setzero_si512();
    const __m512i a0 = _mm512_loadu_si512(p->a + first), a1 = _mm512_loadu_si512(p->a + first + 8);
    const __m512i b0 = _mm512_loadu_si512(p->b1 + first),
                  b1 = _mm512_loadu_si512(p->b1 + first + 8);
    for (int64_t i = 0; i < n; i++) {
        const __m512i s = _mm512_set1_epi64((long long)h[i]);
        __m512i x = _mm512_add_epi64(_mm512_mullo_epi64(a0, s), b0);
        __m512i y = _mm512_add_epi64(_mm512_mullo_epi64(a1, s), b1);
        x = _mm512_add_epi64(_mm512_and_si512(x, m), _mm512_srli_epi64(x, 61));
        y = _mm512_add_epi64(_mm512_and_si512(y, m), _mm512_srli_epi64(y, 61));
        all = _mm512_ternarylogic_epi64(all, x, y, 0xfe);
        acc0 = _mm512_min_epu64(acc0, x);
        acc1 = _mm512_min_epu64(acc1, y);
    }
    _mm512_storeu_si512(least + first, acc0);
    _mm512_storeu_si512(least + first + 8, acc1);
    return (uint64_t)_mm512_reduce_or_epi64(all);
}

static void avx512(const gw_permutations *p, const uint64_t *h, int64_t n, uint64_t *least) {
    if (p->bits == 32) {
        for (int64_t j = 0; j < p->n; j += GW_FOLD_BLOCK) avx2_block32(p, h, n, j, least);
        return;
    }
    for (int64_t j = 0; j < p->n; j += GW_FOLD_BLOCK) {
        uint64_t all = avx512_vectors(p, h, n, j, least);
        if (!block_values(least + j, all)) plain_range(p, h, n, j, j + GW_FOLD_BLOCK, least);
    }
}

#endif

const gw_fold *gw_fold_at(int i) {
    static const gw_fold all[] = {
#if defined(__x86_64__)
        {"avx512", avx512},
        {"avx2", avx2},
#endif
        {"plain", plain},
    };
    int first = 0;
#if defined(__x86_64__)
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")))
        first = __builtin_cpu_supports("avx2") ? 1 : 2;
#endif
    return i >= 0 && first + i < (int)GW_COUNT(all) ? &all[first + i] : NULL;
}

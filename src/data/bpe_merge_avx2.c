// SPDX-License-Identifier: Apache-2.0
// Searching the ranks of a window with AVX2, eight at a time.
//
// The lowest rank is the minimum of up to eight vectors, then of the lanes of one; its places are
// the equal lanes, gathered to one bit each.
#include "data/bpe_impl.h" /* gw_bpe_window */
#include "data/target.h"   /* GW_TARGET_BEGIN */

#if GW_HAS_TARGETS
GW_TARGET_BEGIN(GW_TARGET_AVX2)

static inline __m256i eight(const uint32_t *rank, int k) {
    return _mm256_load_si256((const __m256i *)(const void *)(rank + 8 * k));
}

static inline __m256i least(const uint32_t *rank, int k) {
    return _mm256_min_epu32(eight(rank, k), eight(rank, k + 1));
}

static inline uint32_t lowest(const uint32_t *rank, int eights) {
    __m256i v = eight(rank, 0);
    if (eights == 8)
        v = _mm256_min_epu32(_mm256_min_epu32(least(rank, 0), least(rank, 2)),
                             _mm256_min_epu32(least(rank, 4), least(rank, 6)));
    for (int k = 1; k < eights && eights < 8; k++) v = _mm256_min_epu32(v, eight(rank, k));
    __m128i x = _mm_min_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    x = _mm_min_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_min_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

static inline __m256i same(const uint32_t *rank, int k, __m256i want) {
    return _mm256_cmpeq_epi32(eight(rank, k), want);
}

/* The equal ones of 32 ranks. Packing keeps to halves of a vector; fours are put in order after. */
static inline uint32_t equal_of_32(const uint32_t *rank, __m256i want) {
    __m256i a = _mm256_packs_epi32(same(rank, 0, want), same(rank, 1, want));
    __m256i b = _mm256_packs_epi32(same(rank, 2, want), same(rank, 3, want));
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i all = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
    return (uint32_t)_mm256_movemask_epi8(all);
}

static inline uint64_t equal_to(const uint32_t *rank, int eights, uint32_t low) {
    __m256i want = _mm256_set1_epi32((int)low);
    uint64_t mask = 0;
    if (eights == 8) return equal_of_32(rank, want) | (uint64_t)equal_of_32(rank + 32, want) << 32;
    for (int k = 0; k < eights; k++) {
        __m256 eq = _mm256_castsi256_ps(same(rank, k, want));
        mask |= (uint64_t)(unsigned)_mm256_movemask_ps(eq) << 8 * k;
    }
    return mask;
}

#include "data/bpe_merge.h" /* merge_window */

int64_t gw_bpe_merge_window_avx2(const gw_bpe *m, gw_bpe_window *w) { return merge_window(m, w); }

GW_TARGET_END
#else
int64_t gw_bpe_merge_window_avx2(const gw_bpe *m, gw_bpe_window *w) {
    return gw_bpe_merge_window_plain(m, w);
}
#endif

// SPDX-License-Identifier: Apache-2.0
// Telling 64 characters apart with AVX2, and moving masks between bytes and characters with BMI2.
//
// A class of ASCII is a range or a few values: compared for 32 bytes at once, and gathered to one
// bit a byte. Characters past ASCII are looked up one by one; then the bits of bytes that begin no
// character are squeezed out of every mask (pext), so that the rules see a bit a character.
#include "data/scan_blocks.h" /* gw_block */
#include "data/target.h"      /* GW_TARGET_BEGIN */

#if GW_HAS_TARGETS
#include <string.h>

GW_TARGET_BEGIN(GW_TARGET_AVX2)

#include "data/scan_bmi2.h" /* widen */

static inline uint64_t bits_of(__m256i low, __m256i high) {
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(low) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}

/* The bytes in [first, first + count), count < 128. */
static inline __m256i within(__m256i v, int first, int count) {
    __m256i moved = _mm256_sub_epi8(v, _mm256_set1_epi8((char)(first - 128)));
    return _mm256_cmpgt_epi8(_mm256_set1_epi8((char)(count - 128)), moved);
}

static inline __m256i equal(__m256i v, char c) { return _mm256_cmpeq_epi8(v, _mm256_set1_epi8(c)); }

static GW_ALWAYS_INLINE void classify(gw_scan_job *j, gw_block *b, gw_scan kind) {
    bool cased = kind == GW_SCAN_O200K;
    const uint8_t *p = j->text + j->at;
    __m256i v0 = _mm256_loadu_si256((const __m256i *)(const void *)p);
    __m256i v1 = _mm256_loadu_si256((const __m256i *)(const void *)(p + 32));
    __m256i fold = _mm256_set1_epi8(0x20);
    __m256i blank0 = equal(v0, ' '), blank1 = equal(v1, ' ');
    b->letter = bits_of(within(_mm256_or_si256(v0, fold), 'a', 26),
                        within(_mm256_or_si256(v1, fold), 'a', 26));
    b->number = bits_of(within(v0, '0', 10), within(v1, '0', 10));
    b->blank = bits_of(blank0, blank1);
    b->space = bits_of(_mm256_or_si256(blank0, within(v0, 9, 5)),
                       _mm256_or_si256(blank1, within(v1, 9, 5)));
    b->newline = kind == GW_SCAN_GPT2 ? 0 /* not asked for */
                                      : bits_of(_mm256_or_si256(equal(v0, '\n'), equal(v0, '\r')),
                                                _mm256_or_si256(equal(v1, '\n'), equal(v1, '\r')));
    b->quote = bits_of(equal(v0, '\''), equal(v1, '\''));
    b->upper = cased ? bits_of(within(v0, 'A', 26), within(v1, 'A', 26)) : 0;
    b->both = b->mark = 0;
    b->heads = ~(uint64_t)0;
    b->chars = b->bytes = 64;
    uint64_t past = bits_of(v0, v1);
    if (past) widen(j, b, past, cased);
}

void gw_scan_blocks_avx2(gw_scan_job *j, size_t stop) { run_kind(j, stop); }

GW_TARGET_END
#else
void gw_scan_blocks_avx2(gw_scan_job *j, size_t stop) { gw_scan_blocks_plain(j, stop); }
#endif

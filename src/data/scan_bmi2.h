// SPDX-License-Identifier: Apache-2.0
// What the scanners share that move bits with BMI2 (scan_avx2.c, scan_avx512.c).
//
// Included once by each, behind the lines that choose its instructions; the includer defines
// classify, which fills the masks of 64 bytes and leaves characters past ASCII to widen.
#ifndef GW_DATA_SCAN_BMI2_H
#define GW_DATA_SCAN_BMI2_H

#include "base/compiler.h" /* GW_ALWAYS_INLINE */

static inline uint64_t scatter(uint64_t m, uint64_t to) { return _pdep_u64(m, to); }

/* Writes up to 64 positions: those of eight bytes of text at a time, which a table has, so that
 * there is no branch. Eight more places are overwritten. Returns the end of the positions. */
static inline uint32_t *emit(const uint64_t *places, uint32_t *to, uint32_t base, uint64_t starts) {
    __m256i at = _mm256_set1_epi32((int)base);
    for (int k = 0; k < 64; k += 8) {
        uint64_t bits = starts >> k & 255;
        __m256i eight = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)places[bits]));
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_add_epi32(eight, at));
        to += __builtin_popcountll(bits);
        at = _mm256_add_epi32(at, _mm256_set1_epi32(8));
    }
    return to;
}

static GW_ALWAYS_INLINE void classify(gw_scan_job *j, gw_block *b, gw_scan kind);

#include "data/scan_rules.h" /* run_kind */

/* Makes a bit a character of masks with a bit a byte. `past`: bytes past ASCII. */
static void widen(gw_scan_job *j, gw_block *b, uint64_t past, bool cased) {
    const uint8_t *p = j->text + j->at;
    uint64_t heads = ~(uint64_t)0;
    int bytes = 64;
    while (past) {
        int i = lowest(past), len;
        unsigned c = gw_uni_table_class(classes_of(j), decode(p + i, &len));
        if (i + len > 64) {
            bytes = i;
            break;
        }
        uint64_t body = low_bits(len) << i;
        heads &= ~body | (uint64_t)1 << i;
        past &= ~body;
        add_class(b, c, i, cased);
    }
    heads &= low_bits(bytes);
    b->heads = heads;
    b->bytes = bytes;
    b->chars = __builtin_popcountll(heads);
    b->letter = _pext_u64(b->letter, heads);
    b->number = _pext_u64(b->number, heads);
    b->space = _pext_u64(b->space, heads);
    b->blank = _pext_u64(b->blank, heads);
    b->newline = _pext_u64(b->newline, heads);
    b->quote = _pext_u64(b->quote, heads);
    if (cased) {
        b->upper = _pext_u64(b->upper, heads);
        b->both = _pext_u64(b->both, heads);
        b->mark = _pext_u64(b->mark, heads);
    }
}

#endif

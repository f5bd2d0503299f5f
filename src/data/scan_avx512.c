// SPDX-License-Identifier: Apache-2.0
// Telling 64 characters apart with AVX-512 BW, and moving masks with BMI2.
//
// As scan_avx2.c, with one comparison for 64 bytes, which gives the mask at once.
#include "data/scan_blocks.h" /* gw_block */
#include "data/target.h"      /* GW_TARGET_BEGIN */

#if GW_HAS_TARGETS
#include <string.h>

GW_TARGET_BEGIN("avx512f,avx512bw,bmi,bmi2,lzcnt,popcnt")

#include "data/scan_bmi2.h" /* widen */

/* The bytes in [first, first + count). */
static inline uint64_t within(__m512i v, int first, int count) {
    __m512i moved = _mm512_sub_epi8(v, _mm512_set1_epi8((char)first));
    return _mm512_cmplt_epu8_mask(moved, _mm512_set1_epi8((char)count));
}

static inline uint64_t equal(__m512i v, char c) {
    return _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(c));
}

static GW_ALWAYS_INLINE void classify(gw_scan_job *j, gw_block *b, gw_scan kind) {
    bool cased = kind == GW_SCAN_O200K;
    const uint8_t *p = j->text + j->at;
    __m512i v = _mm512_loadu_si512((const void *)p);
    b->letter = within(_mm512_or_si512(v, _mm512_set1_epi8(0x20)), 'a', 26);
    b->number = within(v, '0', 10);
    b->blank = equal(v, ' ');
    b->space = b->blank | within(v, 9, 5);
    b->newline = equal(v, '\n') | equal(v, '\r');
    b->quote = equal(v, '\'');
    b->upper = cased ? within(v, 'A', 26) : 0;
    b->both = b->mark = 0;
    b->heads = ~(uint64_t)0;
    b->chars = b->bytes = 64;
    uint64_t past = _mm512_movepi8_mask(v);
    if (past) widen(j, b, past, cased);
}

void gw_scan_blocks_avx512(gw_scan_job *j, size_t stop) { run_kind(j, stop); }

GW_TARGET_END
#else
void gw_scan_blocks_avx512(gw_scan_job *j, size_t stop) { gw_scan_blocks_plain(j, stop); }
#endif

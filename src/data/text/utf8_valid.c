// SPDX-License-Identifier: Apache-2.0
// Is it valid UTF-8, at the speed of memory.
//
// With AVX2, 32 bytes at a time by the lookup method of Keiser and Lemire, "Validating UTF-8 in
// less than one instruction per byte" (2021): the high and low half of each byte and the high half
// of the next one index three tables of sixteen error sets; a set bit in all three is an error of
// that kind. Bytes that must be the third or fourth of a character are found by comparison. Blocks
// of ASCII need only that nothing is pending. Elsewhere the plain decoder does it.
#include <string.h>

#include "data/text/encoding.h" /* this module's contract */
#include "data/unicode.h"       /* gw_utf8_valid_prefix */

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_AVX2 1
#define AVX2      __attribute__((target("avx2")))
#else
#define HAVE_AVX2 0
#endif

#if HAVE_AVX2
enum {
    TOO_SHORT = 1 << 0,
    TOO_LONG = 1 << 1,
    OVERLONG_3 = 1 << 2,
    TOO_LARGE = 1 << 3,
    SURROGATE = 1 << 4,
    OVERLONG_2 = 1 << 5,
    TOO_LARGE_1000 = 1 << 6,
    OVERLONG_4 = 1 << 6,
    TWO_CONTS = 1 << 7,
    CARRY = TOO_SHORT | TOO_LONG | TWO_CONTS
};

static const uint8_t first_high[16] = {TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TOO_LONG,
                                       TWO_CONTS,
                                       TWO_CONTS,
                                       TWO_CONTS,
                                       TWO_CONTS,
                                       TOO_SHORT | OVERLONG_2,
                                       TOO_SHORT,
                                       TOO_SHORT | OVERLONG_3 | SURROGATE,
                                       TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4};
#define LARGE (CARRY | TOO_LARGE | TOO_LARGE_1000)
static const uint8_t first_low[16] = {CARRY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4,
                                      CARRY | OVERLONG_2,
                                      CARRY,
                                      CARRY,
                                      CARRY | TOO_LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE,
                                      LARGE | SURROGATE,
                                      LARGE,
                                      LARGE};
#define CONT (TOO_LONG | OVERLONG_2 | TWO_CONTS)
static const uint8_t second_high[16] = {TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        CONT | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4,
                                        CONT | OVERLONG_3 | TOO_LARGE,
                                        CONT | SURROGATE | TOO_LARGE,
                                        CONT | SURROGATE | TOO_LARGE,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT,
                                        TOO_SHORT};

AVX2 static __m256i table(const uint8_t t[16]) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)t));
}

/* The block shifted by n bytes, with the end of the block before it in front. */
#define SHIFTED(block, before, n)                                                                  \
    _mm256_alignr_epi8(block, _mm256_permute2x128_si256(before, block, 0x21), 16 - (n))

/* Errors of a block that follows `before`. */
AVX2 static __m256i errors_of(__m256i block, __m256i before) {
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i one = SHIFTED(block, before, 1);
    __m256i two = SHIFTED(block, before, 2), three = SHIFTED(block, before, 3);
    __m256i a =
        _mm256_shuffle_epi8(table(first_high), _mm256_and_si256(_mm256_srli_epi16(one, 4), nibble));
    __m256i b = _mm256_shuffle_epi8(table(first_low), _mm256_and_si256(one, nibble));
    __m256i c = _mm256_shuffle_epi8(table(second_high),
                                    _mm256_and_si256(_mm256_srli_epi16(block, 4), nibble));
    __m256i special = _mm256_and_si256(_mm256_and_si256(a, b), c);
    __m256i third = _mm256_subs_epu8(two, _mm256_set1_epi8(0xe0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(three, _mm256_set1_epi8(0xf0 - 0x80));
    __m256i must = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8((char)0x80));
    return _mm256_xor_si256(must, special);
}

/* Not zero where a character begins in the last three bytes and does not end there. */
AVX2 static __m256i pending_of(__m256i block) {
    const __m256i most = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                          -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                          -1, (char)(0xf0 - 1), (char)(0xe0 - 1), (char)(0xc0 - 1));
    return _mm256_subs_epu8(block, most);
}

AVX2 static bool valid_avx2(const uint8_t *p, size_t n) {
    __m256i before = _mm256_setzero_si256(), error = before, pending = before;
    size_t i = 0;
    for (; i < n; i += 32) {
        __m256i block;
        if (n - i >= 32) {
            block = _mm256_loadu_si256((const __m256i *)(const void *)(p + i));
        } else {
            uint8_t tail[32] = {0};
            memcpy(tail, p + i, n - i);
            block = _mm256_loadu_si256((const __m256i *)(const void *)tail);
        }
        if (_mm256_movemask_epi8(block) == 0) {
            error = _mm256_or_si256(error, pending);
            pending = _mm256_setzero_si256();
        } else {
            error = _mm256_or_si256(error, errors_of(block, before));
            pending = pending_of(block);
        }
        before = block;
        /* Most of what is not UTF-8 shows early. */
        if ((i & 0xfff) == 0 && !_mm256_testz_si256(error, error)) return false;
    }
    error = _mm256_or_si256(error, pending);
    return _mm256_testz_si256(error, error);
}
#endif

bool gw_utf8_is_valid(const uint8_t *p, size_t n) {
#if HAVE_AVX2
    if (__builtin_cpu_supports("avx2")) return valid_avx2(p, n);
#endif
    return gw_utf8_valid_prefix(p, n) == n;
}

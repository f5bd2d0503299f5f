// SPDX-License-Identifier: Apache-2.0
// IEEE binary16 in integer arithmetic.
//
// The compiler's _Float16 is not everywhere and may call a runtime library whose rounding is not
// ours to choose, so both directions are done on bits. binary16 has 5 exponent bits (bias 15) and
// 10 fraction bits; its largest finite value is 65504, so 65520, the tie between that and 65536,
// rounds to infinity; below 2^-14 values are multiples of 2^-24.
//
// Narrowing rounds to nearest, ties to even. It works on the float's 24-bit significand, shifted
// right by 13 (normal results) or by more (subnormal results); a carry out of the fraction runs
// into the exponent field, which is exactly the right answer, infinity included.
#include "base/num.h"

float gw_fp16_to_f32(gw_fp16 h) {
    uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16;
    uint32_t exponent = (h.bits >> 10) & 31u, fraction = h.bits & 0x3ffu;
    if (exponent == 31) return gw_f32_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return gw_f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* exact */
    return sign ? -magnitude : magnitude;
}

/* x >> shift, rounded to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t shift_round(uint32_t x, uint32_t shift) {
    uint32_t kept = x >> shift, rest = x & ((1u << shift) - 1), half = 1u << (shift - 1);
    return kept + (rest > half || (rest == half && (kept & 1u)));
}

gw_fp16 gw_fp16_from_f32(float x) {
    uint32_t u = gw_f32_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    uint32_t bits;
    if (magnitude > 0x7f800000u) /* NaN: quiet, the top of its payload kept */
        bits = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    else if (magnitude >= 0x477ff000u) /* 65520 and up */
        bits = 0x7c00u;
    else if (magnitude >= 0x38800000u) /* 2^-14 and up: rebias by 15 - 127 */
        bits = shift_round(magnitude, 13) - (112u << 10);
    else if (magnitude > 0x33000000u) /* above 2^-25, half the smallest subnormal */
        bits = shift_round((magnitude & 0x7fffffu) | 0x800000u, 126 - (magnitude >> 23));
    else
        bits = 0;
    return (gw_fp16){(uint16_t)(sign | bits)};
}

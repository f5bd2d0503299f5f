// SPDX-License-Identifier: Apache-2.0
// Eight-bit floats: OCP 8-bit Floating Point Specification (OFP8), revision 1.0, tables 1 and 2;
// Micikevicius et al. 2022, "FP8 Formats for Deep Learning" (arXiv 2209.05433).
//
//            bits s e m  bias  largest  smallest normal  subnormal step  infinity   NaN
//   E4M3     1 4 3       7     448      2^-6             2^-9            none       s.1111.111
//   E5M2     1 5 2       15    57344    2^-14            2^-16           s.11111.00
//   s.11111.{01,10,11}
//
// From float32: to nearest, ties to even, subnormals kept, and saturating, as that specification
// calls it: what is too large, infinity included, becomes the largest finite value of its sign. NaN
// becomes s.1..1. Without branches, so that a plain loop over these functions vectorises.
#ifndef GW_BASE_FP8_H
#define GW_BASE_FP8_H

#include <stdint.h>

#include "base/num.h" /* gw_f32_bits, gw_f32_from_bits */

typedef struct gw_f8e4m3 {
    uint8_t bits;
} gw_f8e4m3;
typedef struct gw_f8e5m2 {
    uint8_t bits;
} gw_f8e5m2;

#define GW_F8E4M3_MAX 448.0f
#define GW_F8E5M2_MAX 57344.0f

/* The fraction moves to the top of a float32's; a product with a power of two corrects the bias and
 * makes subnormals what they are. */
static inline float gw_f8e4m3_to_f32(gw_f8e4m3 h) {
    uint32_t sign = (uint32_t)(h.bits & 0x80u) << 24, mag = h.bits & 0x7fu;
    uint32_t u = gw_f32_bits(gw_f32_from_bits(mag << 20) * 0x1p120f);
    return gw_f32_from_bits(sign | (mag == 0x7fu ? 0x7fc00000u : u));
}
static inline float gw_f8e5m2_to_f32(gw_f8e5m2 h) {
    uint32_t sign = (uint32_t)(h.bits & 0x80u) << 24, mag = h.bits & 0x7fu;
    uint32_t u = gw_f32_bits(gw_f32_from_bits(mag << 21) * 0x1p112f);
    uint32_t special = mag == 0x7cu ? 0x7f800000u : 0x7fc00000u;
    return gw_f32_from_bits(sign | (mag >= 0x7cu ? special : u));
}

/* Normal results: rounding on the bits, a carry running into the exponent. Subnormal ones: the
 * addition of a power of two whose unit in the last place is their step does the rounding. */
static inline gw_f8e4m3 gw_f8e4m3_from_f32(float x) {
    uint32_t u = gw_f32_bits(x), sign = (u >> 24) & 0x80u, mag = u & 0x7fffffffu;
    uint32_t top = mag > 0x43e00000u ? 0x43e00000u : mag; /* 448 */
    uint32_t normal = ((top + 0x7ffffu + ((top >> 20) & 1u)) >> 20) - (120u << 3);
    uint32_t tiny = gw_f32_bits(gw_f32_from_bits(top) + 16384.0f) - 0x46800000u;
    uint32_t r = top < 0x3c800000u ? tiny : normal; /* 2^-6 */
    return (gw_f8e4m3){(uint8_t)(sign | (mag > 0x7f800000u ? 0x7fu : r))};
}
static inline gw_f8e5m2 gw_f8e5m2_from_f32(float x) {
    uint32_t u = gw_f32_bits(x), sign = (u >> 24) & 0x80u, mag = u & 0x7fffffffu;
    uint32_t top = mag > 0x47600000u ? 0x47600000u : mag; /* 57344 */
    uint32_t normal = ((top + 0xfffffu + ((top >> 21) & 1u)) >> 21) - (112u << 2);
    uint32_t tiny = gw_f32_bits(gw_f32_from_bits(top) + 128.0f) - 0x43000000u;
    uint32_t r = top < 0x38800000u ? tiny : normal; /* 2^-14 */
    return (gw_f8e5m2){(uint8_t)(sign | (mag > 0x7f800000u ? 0x7fu : r))};
}

#endif

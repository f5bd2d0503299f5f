// SPDX-License-Identifier: Apache-2.0
// Elementwise mathematics and small floats for the CPU loops.
//
// The functions of one number are written without branches, so that a plain loop over them
// vectorises in a function marked GW_CLONES. Two rules make that work:
//   - `#pragma omp parallel for` stands in an unmarked function that calls a marked one for a row
//   or a range; gcc
//     compiles the body of a parallel region before it makes clones, so a region inside a clone is
//     plain code;
//   - a marked function takes restrict pointers and 64-bit counts, and converts bf16/f16 a block at
//   a time
//     through gw_vec_load / gw_vec_store with a buffer on the stack (GW_VEC_BLOCK floats).
#ifndef GW_KERNEL_CPU_VEC_H
#define GW_KERNEL_CPU_VEC_H

#include <stdint.h>

#include "base/num.h" /* gw_f32_bits, gw_f32_from_bits */
#include "ir/dtype.h" /* gw_dtype */

/* Floats in a conversion buffer: 4 KiB, a corner of the first-level cache. */
#define GW_VEC_BLOCK 1024

/* 2^x, relative error below 2e-7. Below -126 zero, above 128 infinity; NaN stays NaN. */
static inline float gw_vec_exp2(float x) {
    float lo = x < -126.0f ? -126.0f : x;
    float c = lo > 128.0f ? 128.0f : lo;
    float shifted = c + 12582912.0f; /* 1.5 * 2^23: the nearest whole number sits in the low bits */
    float n = shifted - 12582912.0f;
    float f = c - n;
    float p = 1.535336188319500e-4f;
    p = p * f + 1.339887440266574e-3f;
    p = p * f + 9.618437357674640e-3f;
    p = p * f + 5.550332471162809e-2f;
    p = p * f + 2.402264791363012e-1f;
    p = p * f + 6.931472028550421e-1f;
    p = p * f + 1.0f;
    /* 2^n in two factors, so that n = 128 and n = -126 are both in range of a float's exponent. */
    uint32_t i = gw_f32_bits(shifted) - 0x4b400000u;
    uint32_t half = (uint32_t)((int32_t)i >> 1);
    float a = gw_f32_from_bits((half + 127u) << 23);
    float b = gw_f32_from_bits((i - half + 127u) << 23);
    float y = p * a * b;
    return x < -126.0f ? 0.0f : y;
}

/* e^x, relative error below 4e-7 for |x| < 87; range and NaN as gw_vec_exp2. The product with
 * log2(e) is carried in two parts, which keeps the error from growing with |x|. */
static inline float gw_vec_exp(float x) {
    float lo = x < -87.3f ? -87.3f : x;
    float c = lo > 88.8f ? 88.8f : lo;
    float shifted = c * 1.44269504088896341f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float f = (c - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;
    float p = 1.9875691500e-4f;
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * f * f + f + 1.0f;
    uint32_t i = gw_f32_bits(shifted) - 0x4b400000u;
    uint32_t half = (uint32_t)((int32_t)i >> 1);
    float a = gw_f32_from_bits((half + 127u) << 23);
    float b = gw_f32_from_bits((i - half + 127u) << 23);
    float y = p * a * b;
    return x < -87.3f ? 0.0f : y;
}

/* 1 / (1 + e^-x), without overflow on either side. */
static inline float gw_vec_sigmoid(float x) { return 1.0f / (1.0f + gw_vec_exp(-x)); }

/* tanh x, absolute error below 3e-7, relative below 1e-6: an odd polynomial near zero, where 1 -
 * e^-2x cancels. */
static inline float gw_vec_tanh(float x) {
    float ax = x < 0.0f ? -x : x;
    float x2 = x * x;
    float s = -5.70498872745e-3f;
    s = s * x2 + 2.06390887954e-2f;
    s = s * x2 - 5.37397155531e-2f;
    s = s * x2 + 1.33314422036e-1f;
    s = s * x2 - 3.33332819422e-1f;
    s = s * x2 * x + x;
    float e = gw_vec_exp(-2.0f * ax);
    float t = (1.0f - e) / (1.0f + e);
    t = x < 0.0f ? -t : t;
    return ax < 0.625f ? s : t;
}

/* Binary16 from and to float32, as base/num.h does it, without branches. */
static inline float gw_vec_f16_to_f32(uint16_t h) {
    uint32_t mag = (uint32_t)(h & 0x7fffu) << 13;
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t scaled = gw_f32_bits(gw_f32_from_bits(mag) * 0x1p112f);
    uint32_t special = mag | 0x7f800000u;
    return gw_f32_from_bits(sign | (mag >= 0x0f800000u ? special : scaled));
}
static inline uint16_t gw_vec_f16_from_f32(float x) {
    uint32_t u = gw_f32_bits(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t mag = u & 0x7fffffffu;
    uint32_t normal = (mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13;
    uint32_t tiny = gw_f32_bits(gw_f32_from_bits(mag) + 0.5f) - 0x3f000000u;
    uint32_t r = mag < 0x38800000u ? tiny : normal;
    r = mag >= 0x477ff000u ? 0x7c00u : r;
    r = mag > 0x7f800000u ? 0x7e00u | ((mag >> 13) & 0x3ffu) : r;
    return (uint16_t)(sign | r);
}
static inline uint16_t gw_vec_bf16_from_f32(float x) {
    uint32_t u = gw_f32_bits(x);
    uint32_t r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t nan = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : r);
}

/* dst[0..n) = elements first.. of src, an array of `t` (f32, bf16, f16), as float. No overlap. */
void gw_vec_load(float *dst, const void *src, gw_dtype t, int64_t first, int64_t n);
/* The reverse: rounds to nearest even into elements first.. of dst. No overlap. */
void gw_vec_store(void *dst, gw_dtype t, int64_t first, const float *src, int64_t n);

#endif

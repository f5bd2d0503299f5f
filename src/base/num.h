// SPDX-License-Identifier: Apache-2.0
// Small floats as one-member structs with conversions, so that no arithmetic happens by accident.
#ifndef GW_BASE_NUM_H
#define GW_BASE_NUM_H

#include <stdint.h>
#include <string.h>

typedef struct gw_bf16 {
    uint16_t bits;
} gw_bf16;
typedef struct gw_fp16 {
    uint16_t bits;
} gw_fp16;

static inline uint32_t gw_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float gw_f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float gw_bf16_to_f32(gw_bf16 h) { return gw_f32_from_bits((uint32_t)h.bits << 16); }
/* Round to nearest even; NaN stays a (quiet) NaN. */
static inline gw_bf16 gw_bf16_from_f32(float x) {
    uint32_t u = gw_f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (gw_bf16){(uint16_t)((u >> 16) | 0x40u)};
    u += 0x7fffu + ((u >> 16) & 1u);
    return (gw_bf16){(uint16_t)(u >> 16)};
}
/* Stochastic rounding: `random` supplies 16 bits. Finite input never becomes NaN; overflow goes to
 * inf only where nearest rounding could also. */
static inline gw_bf16 gw_bf16_from_f32_stochastic(float x, uint32_t random) {
    uint32_t u = gw_f32_bits(x);
    if ((u & 0x7f800000u) == 0x7f800000u) return gw_bf16_from_f32(x);
    u += random & 0xffffu;
    return (gw_bf16){(uint16_t)(u >> 16)};
}

/* IEEE binary16: round to nearest even, subnormals kept, overflow to infinity at 65520. */
float gw_fp16_to_f32(gw_fp16 h);
gw_fp16 gw_fp16_from_f32(float x);

#endif

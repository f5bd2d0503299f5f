// SPDX-License-Identifier: Apache-2.0
// Elements of one float taken for another.
//
// A checkpoint has one copy of each parameter, the one that the optimizer updates: the float32
// master of a run that computes in sixteen bits, the weights themselves of any other. What a step
// multiplies with besides is made of it at the step's beginning. So all that changes between two
// precisions is the dtype of that copy and of the optimizer's moments:
//
//   the checkpoint has          the run wants                 it takes
//   f32 weights or a master     f32 weights or a master       the bits
//   f32 weights or a master     bf16 weights alone            their rounding, nearest, ties to even
//   bf16 weights alone          f32 weights or a master       the same values, wider
//   moments of one dtype        moments of another            likewise
//
// Widening is exact, so bf16 to float32 and back gives the bits again. Narrowing a float32 beyond
// the largest bf16 or f16 would make an infinity of a number: it is counted, and the caller refuses
// it. A number too small for the narrower type becomes 0 (float16 has nothing below 6e-8): counted
// too, since the square of a gradient may well be so small.
//
// Values go through float32, block by block, by the conversions of the kernels.
#include "ckpt/precision.h"

#include "base/compiler.h"  /* GW_VECTORIZE */
#include "base/num.h"       /* gw_f32_bits */
#include "base/panic.h"     /* gw_panic */
#include "kernel/cpu/vec.h" /* gw_vec_load, gw_vec_store */

GW_VECTORIZE

static bool is_one(gw_dtype t) { return t == GW_F32 || t == GW_BF16 || t == GW_F16; }

bool gw_ckpt_converts(gw_dtype from, gw_dtype to) {
    return from != to && is_one(from) && is_one(to);
}

bool gw_ckpt_widens(gw_dtype from, gw_dtype to) {
    return from == to || (is_one(from) && to == GW_F32);
}

/* What became of values in sixteen bits. */
static void count(const float *x, const uint16_t *out, gw_dtype to, int64_t n,
                  gw_ckpt_rounding *r) {
    uint32_t overflowed = 0, vanished = 0, infinity = to == GW_BF16 ? 0x7f80u : 0x7c00u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t was = gw_f32_bits(x[i]) & 0x7fffffffu, is = out[i] & 0x7fffu;
        overflowed += (uint32_t)((was < 0x7f800000u) & (is == infinity));
        vanished += (uint32_t)((was != 0) & (is == 0));
    }
    r->overflowed += overflowed;
    r->vanished += vanished;
}

void gw_ckpt_convert(gw_dtype from, const void *src, gw_dtype to, void *dst, int64_t n,
                     gw_ckpt_rounding *r) {
    float x[GW_VEC_BLOCK];
    if (!gw_ckpt_converts(from, to))
        gw_panic("%s is not converted to %s", gw_dtype_name(from), gw_dtype_name(to));
    for (int64_t at = 0; at < n; at += GW_VEC_BLOCK) {
        int64_t part = GW_MIN(n - at, (int64_t)GW_VEC_BLOCK);
        gw_vec_load(x, src, from, at, part);
        gw_vec_store(dst, to, at, x, part);
        if (to != GW_F32) count(x, (const uint16_t *)dst + at, to, part, r);
    }
}

// SPDX-License-Identifier: Apache-2.0
// Encoding and decoding of wire formats (wire.h).
//
// Blockwise quantisation after ZeRO++ (Wang et al. 2023, sections 3.1 and 3.3): small blocks keep
// an outlier from spoiling more than its 255 neighbours, and symmetric codes need no offset. The
// scale is the block's largest magnitude over the largest code, so that nothing saturates. A block
// is encoded in two passes over 1 KiB of floats: the largest magnitude (as an integer, since the
// bits of non-negative floats are ordered, and NaN and infinity are above all), then the codes.
//
// Rounding adds and takes away 1.5 * 2^23, which rounds to nearest even in the current mode and
// vectorises everywhere. The product with the reciprocal of the scale may be off by an ulp, which
// moves a code only for values that lie on the border of two; the bound allows for it.
#include "base/compiler.h" /* GW_VECTORIZE */
GW_VECTORIZE

#include "comm/wire.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/num.h"       /* gw_f32_bits */
#include "base/panic.h"     /* gw_panic */
#include "kernel/cpu/vec.h" /* gw_vec_load, gw_vec_store */

int64_t gw_wire_bytes(gw_wire w, gw_dtype t, int64_t n) {
    int64_t blocks = (n + GW_WIRE_BLOCK - 1) / GW_WIRE_BLOCK;
    switch (w) {
    case GW_WIRE_SAME: return n * (gw_dtype_bits(t) / 8);
    case GW_WIRE_F32: return n * 4;
    case GW_WIRE_BF16: return n * 2;
    case GW_WIRE_INT8: return blocks * 4 + n;
    case GW_WIRE_INT4: return blocks * 4 + (n + 1) / 2; /* only the last block may be odd */
    case GW_WIRE_COUNT: break;
    }
    gw_panic("wire: no format %d", (int)w);
}

/* Bits of the largest magnitude; above 0x7f7fffff when something is not finite. */
GW_CLONES static uint32_t largest(const float *x, int64_t n) {
    uint32_t top = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = gw_f32_bits(x[i]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    return top;
}

/* The scale of a block: NaN where a value is not finite, 0 where all codes shall be 0. */
static float scale_of(const float *x, int64_t n, float codes) {
    uint32_t top = largest(x, n);
    if (top > 0x7f7fffffu) return NAN;
    float scale = gw_f32_from_bits(top) / codes;
    if (scale < FLT_MIN) return 0.0f;
    /* The largest code must not decode to infinity. */
    return scale * codes > FLT_MAX ? nextafterf(scale, 0.0f) : scale;
}

static float reciprocal(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

#define ROUND 12582912.0f /* 1.5 * 2^23 */

GW_CLONES static void codes8(int8_t *GW_RESTRICT out, const float *GW_RESTRICT x, float inverse,
                             int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        y = y < 127.0f ? y : 127.0f; /* NaN too: its scale says what it is */
        y = y > -127.0f ? y : -127.0f;
        out[i] = (int8_t)(int32_t)((y + ROUND) - ROUND);
    }
}

GW_CLONES static void codes4(uint8_t *GW_RESTRICT out, const float *GW_RESTRICT x, float inverse,
                             int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) {
        float a = x[2 * i] * inverse, b = x[2 * i + 1] * inverse;
        a = a < 7.0f ? a : 7.0f, b = b < 7.0f ? b : 7.0f;
        a = a > -7.0f ? a : -7.0f, b = b > -7.0f ? b : -7.0f;
        int32_t lo = (int32_t)((a + ROUND) - ROUND) + 8, hi = (int32_t)((b + ROUND) - ROUND) + 8;
        out[i] = (uint8_t)(lo | hi << 4);
    }
}

GW_CLONES static void values8(float *GW_RESTRICT out, const int8_t *GW_RESTRICT q, float scale,
                              int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)q[i] * scale;
}

GW_CLONES static void values4(float *GW_RESTRICT out, const uint8_t *GW_RESTRICT q, float scale,
                              int64_t pairs) {
    for (int64_t i = 0; i < pairs; i++) {
        out[2 * i] = (float)((int)(q[i] & 15u) - 8) * scale;
        out[2 * i + 1] = (float)((int)(q[i] >> 4) - 8) * scale;
    }
}

static void encode8(char *out, const float *x, int64_t n) {
    float scale = scale_of(x, n, 127.0f);
    memcpy(out, &scale, sizeof scale);
    codes8((int8_t *)(out + 4), x, reciprocal(scale), n);
}

static void encode4(char *out, const float *x, int64_t n) {
    float scale = scale_of(x, n, 7.0f);
    memcpy(out, &scale, sizeof scale);
    codes4((uint8_t *)(out + 4), x, reciprocal(scale), n / 2);
    if (n % 2) {
        float last[2] = {x[n - 1], 0.0f};
        codes4((uint8_t *)(out + 4 + n / 2), last, reciprocal(scale), 1);
    }
}

static void decode8(float *out, const char *in, int64_t n) {
    float scale;
    memcpy(&scale, in, sizeof scale);
    values8(out, (const int8_t *)(in + 4), scale, n);
}

static void decode4(float *out, const char *in, int64_t n) {
    float scale;
    memcpy(&scale, in, sizeof scale);
    values4(out, (const uint8_t *)(in + 4), scale, n / 2);
    if (n % 2) {
        float last[2];
        values4(last, (const uint8_t *)(in + 4 + n / 2), scale, 1);
        out[n - 1] = last[0];
    }
}

void gw_wire_encode(gw_wire w, void *out, const float *in, int64_t n) {
    if (w == GW_WIRE_F32 || w == GW_WIRE_BF16) {
        gw_vec_store(out, w == GW_WIRE_F32 ? GW_F32 : GW_BF16, 0, in, n);
        return;
    }
    char *at = out;
    for (int64_t i = 0; i < n; i += GW_WIRE_BLOCK) {
        int64_t m = GW_MIN(n - i, GW_WIRE_BLOCK);
        if (w == GW_WIRE_INT8)
            encode8(at, in + i, m);
        else
            encode4(at, in + i, m);
        at += gw_wire_bytes(w, GW_F32, m);
    }
}

void gw_wire_decode(gw_wire w, float *out, const void *in, int64_t n) {
    if (w == GW_WIRE_F32 || w == GW_WIRE_BF16) {
        gw_vec_load(out, in, w == GW_WIRE_F32 ? GW_F32 : GW_BF16, 0, n);
        return;
    }
    const char *at = in;
    for (int64_t i = 0; i < n; i += GW_WIRE_BLOCK) {
        int64_t m = GW_MIN(n - i, GW_WIRE_BLOCK);
        if (w == GW_WIRE_INT8)
            decode8(out + i, at, m);
        else
            decode4(out + i, at, m);
        at += gw_wire_bytes(w, GW_F32, m);
    }
}

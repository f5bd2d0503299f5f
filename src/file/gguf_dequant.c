// SPDX-License-Identifier: Apache-2.0
// GGUF: block formats, and turning them into float32.
//
// A quantised row is a sequence of blocks, each a scale (and perhaps an offset) in half precision
// and small codes. In the 32-element kinds the low nibbles hold elements 0..15 and the high nibbles
// elements 16..31; the 5-bit kinds keep each element's top bit in one 32-bit word, bit i for
// element i:
//
//   Q4_0  d            x = d (code - 8)          Q5_0  d, high bits      x = d (code - 16)
//   Q4_1  d, m         x = d code + m            Q5_1  d, m, high bits   x = d code + m
//   Q8_0  d, 32 signed bytes                     x = d code
//
// The K kinds have blocks of 256. Q4_K: eight sub-blocks of 32 with a 6-bit scale and a 6-bit
// offset each, packed in 12 bytes, under two half-precision factors: x = d scale code - dmin
// offset. Q6_K: sixteen sub-blocks of 16 with a signed 8-bit scale: x = d scale (code - 32), codes
// split into four low bits and two high bits.
//
// Blocks stand in the file at any alignment, so scales are copied out byte by byte. Products are
// formed in float32 in the order written here, as the format's own code does.
#include <string.h>

#include "base/num.h"  /* gw_fp16_to_f32, gw_bf16_to_f32 */
#include "file/gguf.h" /* this module's contract */

static const struct {
    gw_ggml_type type;
    const char *name;
    int elems, bytes; /* of a block */
} types[] = {
    {GW_GGML_F32, "F32", 1, 4},       {GW_GGML_F16, "F16", 1, 2},
    {GW_GGML_BF16, "BF16", 1, 2},     {GW_GGML_F64, "F64", 1, 8},
    {GW_GGML_I8, "I8", 1, 1},         {GW_GGML_I16, "I16", 1, 2},
    {GW_GGML_I32, "I32", 1, 4},       {GW_GGML_I64, "I64", 1, 8},
    {GW_GGML_Q4_0, "Q4_0", 32, 18},   {GW_GGML_Q4_1, "Q4_1", 32, 20},
    {GW_GGML_Q5_0, "Q5_0", 32, 22},   {GW_GGML_Q5_1, "Q5_1", 32, 24},
    {GW_GGML_Q8_0, "Q8_0", 32, 34},   {GW_GGML_Q4_K, "Q4_K", 256, 144},
    {GW_GGML_Q6_K, "Q6_K", 256, 210},
};

static int find(gw_ggml_type t) {
    for (size_t i = 0; i < GW_COUNT(types); i++)
        if (types[i].type == t) return (int)i;
    return -1;
}

const char *gw_ggml_type_name(gw_ggml_type t) {
    int i = find(t);
    return i < 0 ? "unknown" : types[i].name;
}

int64_t gw_ggml_block_elems(gw_ggml_type t) {
    int i = find(t);
    return i < 0 ? 0 : types[i].elems;
}

int64_t gw_ggml_block_bytes(gw_ggml_type t) {
    int i = find(t);
    return i < 0 ? 0 : types[i].bytes;
}

static float half_at(const uint8_t *p) {
    gw_fp16 h;
    memcpy(&h.bits, p, 2);
    return gw_fp16_to_f32(h);
}

static void q4_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)((b[2 + i] & 15) - 8) * d;
        x[i + 16] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

static void q4_1(const uint8_t *b, float *x) {
    float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        x[i] = (float)(b[4 + i] & 15) * d + m;
        x[i + 16] = (float)(b[4 + i] >> 4) * d + m;
    }
}

/* Code i of a 5-bit block: nibble from `low`, bit i of `high` above it. */
static int code5(const uint8_t *low, uint32_t high, int i) {
    int nibble = i < 16 ? low[i] & 15 : low[i - 16] >> 4;
    return nibble | (int)((high >> i) & 1u) << 4;
}

static void q5_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    uint32_t high;
    memcpy(&high, b + 2, 4);
    for (int i = 0; i < 32; i++) x[i] = (float)(code5(b + 6, high, i) - 16) * d;
}

static void q5_1(const uint8_t *b, float *x) {
    float d = half_at(b), m = half_at(b + 2);
    uint32_t high;
    memcpy(&high, b + 4, 4);
    for (int i = 0; i < 32; i++) x[i] = (float)code5(b + 8, high, i) * d + m;
}

static void q8_0(const uint8_t *b, float *x) {
    float d = half_at(b);
    for (int i = 0; i < 32; i++) x[i] = (float)(int8_t)b[2 + i] * d;
}

/* The 6-bit scale and offset of sub-block j: the first four lie whole in bytes 0..7, the others
 * have four bits in bytes 8..11 and two in the tops of the first eight. */
static void scale_offset(const uint8_t *s, int j, int *scale, int *offset) {
    if (j < 4) {
        *scale = s[j] & 63;
        *offset = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *offset = (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    }
}

static void q4_k(const uint8_t *b, float *x) {
    float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, offset;
        scale_offset(b + 4, j, &scale, &offset);
        const uint8_t *q = b + 16 + 32 * (j / 2);
        float ds = d * (float)scale, mo = dmin * (float)offset;
        for (int i = 0; i < 32; i++)
            x[32 * j + i] = ds * (float)(j % 2 == 0 ? q[i] & 15 : q[i] >> 4) - mo;
    }
}

static void q6_k(const uint8_t *b, float *x) {
    const uint8_t *low = b, *high = b + 128, *scales = b + 192;
    float d = half_at(b + 208);
    for (int e = 0; e < 256; e++) {
        int half = e / 128, quarter = e % 128 / 32, i = e % 32;
        uint8_t nibbles = low[64 * half + 32 * (quarter % 2) + i];
        int code = (quarter < 2 ? nibbles & 15 : nibbles >> 4) |
                   (high[32 * half + i] >> (2 * quarter) & 3) << 4;
        x[e] = d * (float)(int8_t)scales[e / 16] * (float)(code - 32);
    }
}

static void plain(gw_ggml_type t, const uint8_t *src, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        double wide;
        gw_bf16 b;
        if (t == GW_GGML_F16) {
            out[i] = half_at(src + 2 * i);
        } else if (t == GW_GGML_BF16) {
            memcpy(&b.bits, src + 2 * i, 2);
            out[i] = gw_bf16_to_f32(b);
        } else {
            memcpy(&wide, src + 8 * i, 8);
            out[i] = (float)wide;
        }
    }
}

bool gw_ggml_dequantise(gw_ggml_type t, const void *src, int64_t n, float *out) {
    void (*block)(const uint8_t *, float *) = NULL;
    switch (t) {
    case GW_GGML_F32: memcpy(out, src, (size_t)n * sizeof *out); return true;
    case GW_GGML_F16:
    case GW_GGML_BF16:
    case GW_GGML_F64: plain(t, src, n, out); return true;
    case GW_GGML_Q4_0: block = q4_0; break;
    case GW_GGML_Q4_1: block = q4_1; break;
    case GW_GGML_Q5_0: block = q5_0; break;
    case GW_GGML_Q5_1: block = q5_1; break;
    case GW_GGML_Q8_0: block = q8_0; break;
    case GW_GGML_Q4_K: block = q4_k; break;
    case GW_GGML_Q6_K: block = q6_k; break;
    case GW_GGML_I8:
    case GW_GGML_I16:
    case GW_GGML_I32:
    case GW_GGML_I64: return false;
    }
    int64_t elems = gw_ggml_block_elems(t), bytes = gw_ggml_block_bytes(t);
    if (!block || n % elems != 0) return false;
    for (int64_t i = 0; i < n / elems; i++)
        block((const uint8_t *)src + i * bytes, out + i * elems);
    return true;
}

bool gw_gguf_row_f32(const gw_gguf_tensor *t, int64_t row, float *out) {
    int64_t n = t->dims[t->ndim - 1];
    int64_t row_bytes = n / gw_ggml_block_elems(t->type) * gw_ggml_block_bytes(t->type);
    if (n <= 0 || row < 0 || row >= t->elems / n) return false;
    return gw_ggml_dequantise(t->type, (const uint8_t *)t->data + row * row_bytes, n, out);
}

// SPDX-License-Identifier: Apache-2.0
// Sums, conversions and copies at the speed of memory (sum.h).
//
// A reduction in shared memory reads n arrays and writes up to n. It goes by blocks that stay in
// the first-level cache: widen the first array into a float32 block, add the others in order, round
// into the element type, and write the block to every destination. The block costs loads and stores
// of first-level cache, which hide behind those of memory. float32 sums of two, three and four
// arrays, the common ones, are formed in registers and written at once.
//
// Destinations larger than the caches are written with non-temporal stores: a plain store first
// reads the line that it is going to overwrite, a third of all traffic of a copy. Such stores are
// weakly ordered, so each function ends in a fence before anyone can be told that the data is
// there.
//
// The loops are plain C, compiled for several instruction sets and chosen when the program loads
// (GW_CLONES). Additions are never contracted or reordered: bits depend on the order of sources
// only.
#include "base/compiler.h" /* GW_VECTORIZE */
GW_VECTORIZE

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/panic.h" /* gw_panic */
#include "comm/sum.h"
#include "kernel/cpu/vec.h" /* gw_vec_load, gw_vec_store: bf16 and f16 in bulk */

/* Elements of a block: 8 KiB of float32, so that accumulator and result fit beside each other. */
#define BLOCK 2048

static int64_t size_of(gw_dtype t) { return gw_dtype_bits(t) / 8; }

gw_dtype gw_sum_dtype(gw_dtype t) { return t == GW_F64 ? GW_F64 : GW_F32; }

void gw_sum_convert(void *dst, gw_dtype to, const void *src, gw_dtype from, int64_t n) {
    if (to == from) {
        if (dst != src && n > 0) memcpy(dst, src, (size_t)(n * size_of(to)));
        return;
    }
    if (to == GW_F32) {
        gw_vec_load(dst, src, from, 0, n);
        return;
    }
    float block[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = GW_MIN(n - i, BLOCK);
        gw_vec_load(block, src, from, i, m);
        gw_vec_store(dst, to, i, block, m);
    }
}

/* ---- adding into an accumulator ---- */

GW_CLONES static void add_f32(float *GW_RESTRICT acc, const float *GW_RESTRICT x, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] += x[i];
}

GW_CLONES static void add_f64(double *GW_RESTRICT acc, const double *GW_RESTRICT x, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] += x[i];
}

/* NaN wins: neither comparison holds for it. */
GW_CLONES static void max_f32(float *GW_RESTRICT acc, const float *GW_RESTRICT x, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] = x[i] <= acc[i] || acc[i] != acc[i] ? acc[i] : x[i];
}

GW_CLONES static void max_f64(double *GW_RESTRICT acc, const double *GW_RESTRICT x, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] = x[i] <= acc[i] || acc[i] != acc[i] ? acc[i] : x[i];
}

GW_CLONES static void add_bf16(float *GW_RESTRICT acc, const uint16_t *GW_RESTRICT x, int64_t n) {
    for (int64_t i = 0; i < n; i++) acc[i] += gw_f32_from_bits((uint32_t)x[i] << 16);
}

static void add_f32_any(float *acc, const float *x, int64_t n, bool max) {
    if (max)
        max_f32(acc, x, n);
    else
        add_f32(acc, x, n);
}

void gw_sum_add(void *acc, const void *src, gw_dtype t, int64_t n, bool max) {
    if (t == GW_F64) {
        if (max)
            max_f64(acc, src, n);
        else
            add_f64(acc, src, n);
    } else if (t == GW_F32) {
        add_f32_any(acc, src, n, max);
    } else if (t == GW_BF16 && !max) {
        add_bf16(acc, src, n);
    } else {
        float block[BLOCK], *at = acc;
        for (int64_t i = 0; i < n; i += BLOCK) {
            int64_t m = GW_MIN(n - i, BLOCK);
            gw_vec_load(block, src, t, i, m);
            add_f32_any(at + i, block, m, max);
        }
    }
}

/* ---- copies ---- */

#if defined(__SSE2__)
/* Copies with non-temporal stores: plain bytes up to a 16-byte boundary of dst, then whole lines.
 */
static void stream_copy(char *dst, const char *src, int64_t bytes) {
    int64_t head = (int64_t)(-(uintptr_t)dst & 63u);
    head = GW_MIN(head, bytes);
    memcpy(dst, src, (size_t)head);
    dst += head, src += head, bytes -= head;
    int64_t i = 0;
    for (; i + 64 <= bytes; i += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 32));
        __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + i + 48));
        _mm_stream_si128((__m128i *)(void *)(dst + i), a);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 16), b);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 32), c);
        _mm_stream_si128((__m128i *)(void *)(dst + i + 48), d);
    }
    memcpy(dst + i, src + i, (size_t)(bytes - i));
}
static void stream_end(void) { _mm_sfence(); }
#else
static void stream_copy(char *dst, const char *src, int64_t bytes) {
    memcpy(dst, src, (size_t)bytes);
}
static void stream_end(void) {}
#endif

static void copy_block(char *dst, const char *src, int64_t bytes, bool stream) {
    if (dst == src || bytes == 0) return;
    if (stream)
        stream_copy(dst, src, bytes);
    else
        memcpy(dst, src, (size_t)bytes);
}

void gw_sum_copy(void *dst, const void *src, int64_t bytes, bool stream) {
    copy_block(dst, src, bytes, stream);
    if (stream) stream_end();
}

void gw_sum_fan(char *const *dst, int ndst, int64_t at, const void *src, int64_t bytes,
                bool stream) {
    int64_t step = 4 * BLOCK;
    const char *from = src;
    for (int64_t i = 0; i < bytes; i += step)
        for (int k = 0; k < ndst; k++)
            copy_block(dst[k] + at + i, from + i, GW_MIN(step, bytes - i), stream);
    if (stream) stream_end();
}

/* ---- sums of two, three and four arrays in registers ---- */

/* Up to four arrays read and up to four written, each from its own first element. */
typedef void sum_fn(void *const *dst, const void *const *src, int64_t n);

static GW_ALWAYS_INLINE float get_f32(float x) { return x; }
static GW_ALWAYS_INLINE float put_f32(float x) { return x; }
static GW_ALWAYS_INLINE float get_bf16(uint16_t x) { return gw_f32_from_bits((uint32_t)x << 16); }
static GW_ALWAYS_INLINE uint16_t put_bf16(float x) { return gw_vec_bf16_from_f32(x); }

/* NS sources, ND destinations; what is beyond is not touched. */
#define SUM_LOOP(name, type, suffix, NS, ND)                                                       \
    GW_CLONES static void name(void *const *dst, const void *const *src, int64_t n) {              \
        const type *a = src[0], *b = src[1], *c = src[NS > 2 ? 2 : 0], *d = src[NS > 3 ? 3 : 0];   \
        type *w = dst[0], *x = dst[ND > 1], *y = dst[ND > 2 ? 2 : 0], *z = dst[ND > 3 ? 3 : 0];    \
        GW_INDEPENDENT                                                                             \
        for (int64_t i = 0; i < n; i++) {                                                          \
            float sum = get_##suffix(a[i]) + get_##suffix(b[i]);                                   \
            if (NS > 2) sum += get_##suffix(c[i]);                                                 \
            if (NS > 3) sum += get_##suffix(d[i]);                                                 \
            type r = put_##suffix(sum);                                                            \
            w[i] = r;                                                                              \
            if (ND > 1) x[i] = r;                                                                  \
            if (ND > 2) y[i] = r;                                                                  \
            if (ND > 3) z[i] = r;                                                                  \
        }                                                                                          \
    }
SUM_LOOP(f32_2_1, float, f32, 2, 1)
SUM_LOOP(f32_2_2, float, f32, 2, 2)
SUM_LOOP(f32_3_1, float, f32, 3, 1)
SUM_LOOP(f32_3_3, float, f32, 3, 3)
SUM_LOOP(f32_4_1, float, f32, 4, 1)
SUM_LOOP(f32_4_4, float, f32, 4, 4)
SUM_LOOP(bf16_2_1, uint16_t, bf16, 2, 1)
SUM_LOOP(bf16_2_2, uint16_t, bf16, 2, 2)
SUM_LOOP(bf16_3_1, uint16_t, bf16, 3, 1)
SUM_LOOP(bf16_3_3, uint16_t, bf16, 3, 3)
SUM_LOOP(bf16_4_1, uint16_t, bf16, 4, 1)
SUM_LOOP(bf16_4_4, uint16_t, bf16, 4, 4)
#undef SUM_LOOP

#if defined(__SSE2__)
/* The same for float32, written past the caches, from an element where all dst are at a multiple of
 * 16 bytes. Whole lines; returns the elements done. */
static GW_ALWAYS_INLINE int64_t stream_lines(void *const *dst, int ndst, const void *const *src,
                                             int nsrc, int64_t from, int64_t n) {
    int64_t i = from;
    for (; i + 16 <= n; i += 16) {
        __m128 v[4];
        for (int q = 0; q < 4; q++) v[q] = _mm_loadu_ps((const float *)src[0] + i + 4 * q);
        for (int k = 1; k < nsrc; k++)
            for (int q = 0; q < 4; q++)
                v[q] = _mm_add_ps(v[q], _mm_loadu_ps((const float *)src[k] + i + 4 * q));
        for (int k = 0; k < ndst; k++)
            for (int q = 0; q < 4; q++) _mm_stream_ps((float *)dst[k] + i + 4 * q, v[q]);
    }
    return i;
}

#define STREAM_LOOP(name, plain, NS, ND)                                                           \
    static void name(void *const *dst, const void *const *src, int64_t n) {                        \
        int64_t head = (int64_t)(-(uintptr_t)dst[0] & 63u) / 4;                                    \
        for (int k = 1; k < ND; k++)                                                               \
            if (((uintptr_t)dst[0] ^ (uintptr_t)dst[k]) & 15u) head = n;                           \
        head = head < n ? head : n;                                                                \
        plain(dst, src, head);                                                                     \
        int64_t done = stream_lines(dst, ND, src, NS, head, n);                                    \
        void *d[4];                                                                                \
        const void *s[4];                                                                          \
        for (int k = 0; k < ND; k++) d[k] = (float *)dst[k] + done;                                \
        for (int k = 0; k < NS; k++) s[k] = (const float *)src[k] + done;                          \
        plain(d, s, n - done);                                                                     \
    }
STREAM_LOOP(stream_2_1, f32_2_1, 2, 1)
STREAM_LOOP(stream_2_2, f32_2_2, 2, 2)
STREAM_LOOP(stream_3_1, f32_3_1, 3, 1)
STREAM_LOOP(stream_3_3, f32_3_3, 3, 3)
STREAM_LOOP(stream_4_1, f32_4_1, 4, 1)
STREAM_LOOP(stream_4_4, f32_4_4, 4, 4)
#undef STREAM_LOOP
#else
#define stream_2_1 f32_2_1
#define stream_2_2 f32_2_2
#define stream_3_1 f32_3_1
#define stream_3_3 f32_3_3
#define stream_4_1 f32_4_1
#define stream_4_4 f32_4_4
#endif

/* A loop for this many sources and destinations, or NULL. */
static sum_fn *loop_for(gw_dtype t, int nsrc, int ndst, bool stream) {
    static sum_fn *const table[3][3][2] = {
        {{f32_2_1, f32_2_2}, {f32_3_1, f32_3_3}, {f32_4_1, f32_4_4}},
        {{stream_2_1, stream_2_2}, {stream_3_1, stream_3_3}, {stream_4_1, stream_4_4}},
        {{bf16_2_1, bf16_2_2}, {bf16_3_1, bf16_3_3}, {bf16_4_1, bf16_4_4}},
    };
    if (nsrc < 2 || nsrc > 4 || (ndst != 1 && ndst != nsrc)) return NULL;
    if (t == GW_F32) return table[stream][nsrc - 2][ndst > 1];
    return t == GW_BF16 && !stream ? table[2][nsrc - 2][ndst > 1] : NULL;
}

/* ---- sums of any number ---- */

/* Widens, adds, rounds. Returns where the result stands. */
static const char *sum_block(void *acc, void *out, char *const *src, int nsrc, int64_t at,
                             gw_dtype t, int64_t n, bool max) {
    int64_t size = size_of(t);
    gw_sum_convert(acc, gw_sum_dtype(t), src[0] + at * size, t, n);
    for (int k = 1; k < nsrc; k++) gw_sum_add(acc, src[k] + at * size, t, n, max);
    if (gw_sum_dtype(t) == t) return acc;
    gw_sum_convert(out, t, acc, gw_sum_dtype(t), n);
    return out;
}

static void sum_by_blocks(char *const *dst, int ndst, int64_t dst_at, char *const *src, int nsrc,
                          int64_t src_at, gw_dtype t, int64_t n, bool max, bool stream) {
    _Alignas(64) double acc[BLOCK / 2];
    _Alignas(64) uint16_t out[BLOCK];
    int64_t size = size_of(t), block = t == GW_F64 ? BLOCK / 2 : BLOCK;
    for (int64_t i = 0; i < n; i += block) {
        int64_t m = GW_MIN(block, n - i);
        const char *result = sum_block(acc, out, src, nsrc, src_at + i, t, m, max);
        for (int k = 0; k < ndst; k++)
            copy_block(dst[k] + (dst_at + i) * size, result, m * size, stream);
    }
}

void gw_sum_many(char *const *dst, int ndst, int64_t dst_at, char *const *src, int nsrc,
                 int64_t src_at, gw_dtype t, int64_t n, bool max, bool stream) {
    sum_fn *loop = max ? NULL : loop_for(t, nsrc, ndst, stream);
    if (!loop) {
        sum_by_blocks(dst, ndst, dst_at, src, nsrc, src_at, t, n, max, stream);
    } else {
        void *d[4];
        const void *s[4];
        for (int k = 0; k < ndst; k++) d[k] = dst[k] + dst_at * size_of(t);
        for (int k = 0; k < nsrc; k++) s[k] = src[k] + src_at * size_of(t);
        loop(d, s, n);
    }
    if (stream) stream_end();
}

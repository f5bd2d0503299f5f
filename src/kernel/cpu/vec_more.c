// SPDX-License-Identifier: Apache-2.0
// The shared parts of the memory-bound kernels: shapes without data, sums over rows, random words,
// empty hooks.
//
// A gradient of a gain or a bias is a sum over thousands of rows. One partial sum a thread would
// make its bits depend on how many threads there are, so rows are cut into at most GW_VEC_PARTS
// blocks by shape, each block is summed in float32 into a row of planned workspace, and the rows
// are added here in float64, in order. A block has at least PART_ROWS rows, so the second pass is a
// small part of the first.
#include "kernel/cpu/vec_more.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h> /* _mm256_mul_epu32 */
#endif

#define PART_ROWS 16
#define COLUMNS   256

static void *no_data(void *user, gw_vid v) {
    (void)user, (void)v;
    return NULL;
}

void gw_vec_shape_of(gw_vec_shape *s, const gw_graph *g, const gw_op *o) {
    *s = (gw_vec_shape){0};
    gw_kargs_bind(&s->k, g, o, s->in, s->out, no_data, NULL, 0);
}

bool gw_vec_given(const gw_graph *g, const gw_op *o, int i) {
    return i < o->nin && gw_op_in(g, o, i) != GW_NONE;
}

bool gw_vec_floats(const gw_graph *g, const gw_op *o, uint32_t inputs) {
    for (int i = 0; i < o->nin && i < 32; i++)
        if ((inputs >> i & 1u) && gw_vec_given(g, o, i) &&
            !gw_vec_is_float(gw_vec_in_type(g, o, i)))
            return false;
    for (int i = 0; i < o->nout; i++)
        if (!gw_vec_is_float(gw_vec_out_type(g, o, i))) return false;
    return true;
}

gw_vec_blocks gw_vec_blocks_of(int64_t rows) {
    int64_t length = GW_MAX(PART_ROWS, (rows + GW_VEC_PARTS - 1) / GW_VEC_PARTS);
    return (gw_vec_blocks){.count = (rows + length - 1) / length, .length = length};
}

static void sum_columns(const gw_tensor *out, const gw_tensor *acc, const float *parts,
                        int64_t count, int64_t stride, int64_t j0, int64_t n) {
    double sum[COLUMNS] = {0};
    float y[COLUMNS];
    for (int64_t p = 0; p < count; p++)
        for (int64_t j = 0; j < n; j++) sum[j] += (double)parts[p * stride + j0 + j];
    if (acc) gw_vec_load(y, acc->data, acc->dtype, j0, n);
    for (int64_t j = 0; j < n; j++) y[j] = (float)(acc ? (double)y[j] + sum[j] : sum[j]);
    gw_vec_store(out->data, out->dtype, j0, y, n);
}

void gw_vec_sum_parts(const gw_tensor *out, const gw_tensor *acc, const float *parts, int64_t count,
                      int64_t stride, int64_t n, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static) if (n * count > GW_VEC_TASK)
    for (int64_t j = 0; j < n; j += COLUMNS)
        sum_columns(out, acc, parts, count, stride, j, GW_MIN(COLUMNS, n - j));
}

/* Philox4x32-10 as in base/rng.c, a counter in each lane; the upper half of the counter is zero. */
#define ROUND                                                                                      \
    do {                                                                                           \
        uint64_t p0_ = UINT64_C(0xd2511f53) * x0, p1_ = UINT64_C(0xcd9e8d57) * x2;                 \
        x0 = (uint32_t)(p1_ >> 32) ^ x1 ^ k0;                                                      \
        x1 = (uint32_t)p1_;                                                                        \
        x2 = (uint32_t)(p0_ >> 32) ^ x3 ^ k1;                                                      \
        x3 = (uint32_t)p0_;                                                                        \
        k0 += 0x9e3779b9u;                                                                         \
        k1 += 0xbb67ae85u;                                                                         \
    } while (0)

GW_CLONES static void philox_blocks(uint32_t *GW_RESTRICT out, uint32_t key0, uint32_t key1,
                                    uint32_t lo, uint32_t hi, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t x0 = lo + (uint32_t)i, x1 = hi, x2 = 0, x3 = 0, k0 = key0, k1 = key1;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        ROUND;
        out[4 * i] = x0;
        out[4 * i + 1] = x1;
        out[4 * i + 2] = x2;
        out[4 * i + 3] = x3;
    }
}

#if defined(__x86_64__)
/* Four counters in the 64-bit lanes of each word; only low halves count, which is all that the
 * widening product looks at. A compiler makes three times as many instructions of the loop above.
 */
#define ROUND4(x0, x1, x2, x3)                                                                     \
    do {                                                                                           \
        __m256i p0_ = _mm256_mul_epu32(x0, m0), p1_ = _mm256_mul_epu32(x2, m1);                    \
        x0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1_, 32), x1), k0);               \
        x2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0_, 32), x3), k1);               \
        x1 = p1_;                                                                                  \
        x3 = p0_;                                                                                  \
    } while (0)

/* Words of four counters, in order. */
#define STORE4(out, x0, x1, x2, x3)                                                                \
    do {                                                                                           \
        __m256i a_ = _mm256_blend_epi32(x0, _mm256_slli_epi64(x1, 32), 0xaa);                      \
        __m256i b_ = _mm256_blend_epi32(x2, _mm256_slli_epi64(x3, 32), 0xaa);                      \
        __m256i l_ = _mm256_unpacklo_epi64(a_, b_), h_ = _mm256_unpackhi_epi64(a_, b_);            \
        _mm256_storeu_si256((__m256i_u *)(out), _mm256_permute2x128_si256(l_, h_, 0x20));          \
        _mm256_storeu_si256((__m256i_u *)(out) + 1, _mm256_permute2x128_si256(l_, h_, 0x31));      \
    } while (0)

/* As philox_blocks, n a multiple of 8. */
__attribute__((target("avx2"))) static void philox_avx2(uint32_t *out, uint32_t key0, uint32_t key1,
                                                        uint32_t lo, uint32_t hi, int64_t n) {
    const __m256i m0 = _mm256_set1_epi64x(0xd2511f53), m1 = _mm256_set1_epi64x(0xcd9e8d57);
    const __m256i w0 = _mm256_set1_epi32((int)0x9e3779b9u),
                  w1 = _mm256_set1_epi32((int)0xbb67ae85u);
    for (int64_t i = 0; i < n; i += 8) {
        __m256i k0 = _mm256_set1_epi32((int)key0), k1 = _mm256_set1_epi32((int)key1);
        __m256i a0 = _mm256_add_epi64(_mm256_set1_epi64x(lo + i), _mm256_set_epi64x(3, 2, 1, 0));
        __m256i b0 = _mm256_add_epi64(a0, _mm256_set1_epi64x(4));
        __m256i a1 = _mm256_set1_epi64x(hi), b1 = a1;
        __m256i a2 = _mm256_setzero_si256(), b2 = a2, a3 = a2, b3 = a2;
        for (int r = 0; r < 10; r++) {
            ROUND4(a0, a1, a2, a3);
            ROUND4(b0, b1, b2, b3);
            k0 = _mm256_add_epi32(k0, w0);
            k1 = _mm256_add_epi32(k1, w1);
        }
        STORE4(out + 4 * i, a0, a1, a2, a3);
        STORE4(out + 4 * i + 16, b0, b1, b2, b3);
    }
}

static bool has_avx2(void) { return __builtin_cpu_supports("avx2") != 0; }
#else
static bool has_avx2(void) { return false; }
static void philox_avx2(uint32_t *out, uint32_t key0, uint32_t key1, uint32_t lo, uint32_t hi,
                        int64_t n) {
    philox_blocks(out, key0, key1, lo, hi, n);
}
#endif

void gw_vec_random(uint32_t *out, gw_rng_key key, uint64_t first, int64_t n) {
    uint64_t counter = first / 4;
    int64_t blocks = (n + 3) / 4;
    while (blocks > 0) { /* the low word of a counter wraps once in 2^34 elements */
        uint64_t room = (UINT64_C(1) << 32) - (counter & UINT32_MAX);
        int64_t m = (uint64_t)blocks < room ? blocks : (int64_t)room;
        int64_t eights = has_avx2() ? m / 8 * 8 : 0;
        uint32_t lo = (uint32_t)counter, hi = (uint32_t)(counter >> 32);
        philox_avx2(out, key.k[0], key.k[1], lo, hi, eights);
        philox_blocks(out + 4 * eights, key.k[0], key.k[1], lo + (uint32_t)eights, hi, m - eights);
        out += 4 * m;
        counter += (uint64_t)m;
        blocks -= m;
    }
}

/* As gw_vec_random from any index; n <= GW_VEC_BLOCK. */
static void random_from(uint32_t *out, gw_rng_key key, int64_t first, int64_t n) {
    int64_t skip = first % 4;
    if (skip == 0) {
        gw_vec_random(out, key, (uint64_t)first, n);
        return;
    }
    uint32_t words[GW_VEC_BLOCK + 8];
    gw_vec_random(words, key, (uint64_t)(first - skip), n + skip);
    memcpy(out, words + skip, (size_t)n * sizeof *out);
}

void gw_vec_random_held(uint32_t *out, gw_rng_key key, const gw_held *held, int64_t i, int64_t n) {
    gw_held w = *held;
    w.at = w.lo + i;
    int64_t done = 0, global, local, count;
    while (done < n && gw_held_next(&w, &global, &local, &count))
        for (int64_t end = GW_MIN(n, done + count); done < end;) {
            int64_t m = GW_MIN(GW_VEC_BLOCK, end - done);
            random_from(out + done, key, global, m);
            done += m;
            global += m;
        }
}

int64_t gw_vec_no_workspace(const gw_graph *g, const gw_op *o, const gw_machine *m) {
    (void)g, (void)o, (void)m;
    return 0;
}

gw_status gw_vec_no_state(const gw_kargs *k, gw_arena *a, void **state, gw_diags *dg) {
    (void)k, (void)a, (void)dg;
    *state = NULL;
    return GW_OK;
}

void gw_vec_no_release(void *state) { (void)state; }

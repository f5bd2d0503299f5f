// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers.
//
// Every layout must compute the same function, so a random number cannot come from a state that
// advances: which numbers a rank draws would depend on what it owns. Here element i of the stream
// `key` is Philox4x32-10 of (key, i): a keyed bijection of 128-bit counters, ten rounds of two 32 x
// 32 -> 64 bit products (Salmon, Moraes, Dror, Shaw, SC 2011; constants and test vectors from
// there).
//
// The words of a key form one stream: element i of u32 is word i % 4 of block i / 4, element i of
// u64 is words 2i and 2i + 1, and normals 2j and 2j + 1 use all of block j. A caller that wants
// both words and normals of one thing folds two keys. Folding uses the counter's upper half, which
// no stream reaches, so a folded key never equals words that a stream hands out.
//
// Normals must have the same bits everywhere, and a maths library's log and sine do not. Box and
// Muller's method is fed by log, sine and cosine made of +, -, * and / alone, each rounded once
// because the build forbids contraction (-ffp-contract=off), plus sqrt, which IEEE 754 defines to
// the last bit. Errors are a few units in the last place, far below what a float weight can show.
//
// gw_rng_permute shuffles without a table: a Feistel network is a bijection whatever its round
// function is, and walking its cycle until the value falls below n restricts it to [0, n). The
// domain is the next power of four, so a walk takes fewer than four steps on average.
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h" /* GW_COUNT */
#include "base/hash.h"     /* gw_hash64 */
#include "base/panic.h"    /* GW_ASSERT */

/* ------------------------------------------------------------------------------ Philox */

#define PHILOX_M0      UINT64_C(0xd2511f53)
#define PHILOX_M1      UINT64_C(0xcd9e8d57)
#define PHILOX_W0      UINT32_C(0x9e3779b9) /* golden ratio */
#define PHILOX_W1      UINT32_C(0xbb67ae85) /* sqrt(3) - 1 */
#define FOLD_DOMAIN    UINT64_C(0x8000000000000001)
#define PERMUTE_DOMAIN UINT64_C(0x8000000000000002)

gw_rng_block gw_philox(gw_rng_key key, uint64_t counter_lo, uint64_t counter_hi) {
    uint32_t x0 = (uint32_t)counter_lo, x1 = (uint32_t)(counter_lo >> 32);
    uint32_t x2 = (uint32_t)counter_hi, x3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = key.k[0], k1 = key.k[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = PHILOX_M0 * x0, p1 = PHILOX_M1 * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    return (gw_rng_block){{x0, x1, x2, x3}};
}

static uint64_t word64(uint32_t lo, uint32_t hi) { return (uint64_t)hi << 32 | lo; }

gw_rng_key gw_rng_key_named(uint64_t seed, const char *name) {
    uint64_t h = gw_hash64(name, strlen(name), seed);
    return (gw_rng_key){{(uint32_t)h, (uint32_t)(h >> 32)}};
}

gw_rng_key gw_rng_key_fold(gw_rng_key key, uint64_t number) {
    gw_rng_block b = gw_philox(key, number, FOLD_DOMAIN);
    return (gw_rng_key){{b.x[0], b.x[1]}};
}

uint32_t gw_rng_u32(gw_rng_key key, uint64_t i) { return gw_philox(key, i >> 2, 0).x[i & 3]; }

uint64_t gw_rng_u64(gw_rng_key key, uint64_t i) {
    gw_rng_block b = gw_philox(key, i >> 1, 0);
    return i & 1 ? word64(b.x[2], b.x[3]) : word64(b.x[0], b.x[1]);
}

float gw_rng_uniform(gw_rng_key key, uint64_t i) {
    return (float)(gw_rng_u32(key, i) >> 8) * 0x1p-24f;
}

/* ------------------------------------------------------------------------------ functions */

#define SQRT2 1.4142135623730951
/* ln 2 in two parts: the first has 32 significant bits, so e * LN2_HI is exact for any exponent. */
#define LN2_HI 0x1.62e42feep-1
#define LN2_LO 0x1.a39ef35793c76p-33
#define TWO_PI 6.283185307179586

/* x = 2^e m, m in [sqrt(1/2), sqrt 2); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716, by
 * its series: s^24 / 25 is below 2^-65. */
double gw_portable_log(double x) {
    static const double odd_inverse[] = {1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                         1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    if (!(x > 0)) return x == 0 ? -(double)INFINITY : (double)NAN;
    if (x > 0x1.fffffffffffffp1023) return x;
    int64_t e = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        e = -54;
    }
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    e += (int64_t)(u >> 52) - 1023;
    u = (u & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &u, sizeof m);
    if (m > SQRT2) {
        m *= 0.5;
        e++;
    }
    double f = m - 1, s = f / (2 + f), z = s * s;
    double series = odd_inverse[0];
    for (size_t k = 1; k < GW_COUNT(odd_inverse); k++) series = series * z + odd_inverse[k];
    double tail = 2 * s * (z * series); /* log m - 2 s */
    double n = (double)e;
    return n * LN2_HI + (2 * s + (tail + n * LN2_LO));
}

/* Series on |t| <= pi/4, ended where a term is below 2^-54 of the sum. */
static double sine(double t) {
    double z = t * t, sum = 1.0 / 355687428096000.0; /* 17! */
    sum = sum * z - 1.0 / 1307674368000.0;
    sum = sum * z + 1.0 / 6227020800.0;
    sum = sum * z - 1.0 / 39916800.0;
    sum = sum * z + 1.0 / 362880.0;
    sum = sum * z - 1.0 / 5040.0;
    sum = sum * z + 1.0 / 120.0;
    sum = sum * z - 1.0 / 6.0;
    return t + t * (z * sum);
}

static double cosine(double t) {
    double z = t * t, sum = 1.0 / 20922789888000.0; /* 16! */
    sum = sum * z - 1.0 / 87178291200.0;
    sum = sum * z + 1.0 / 479001600.0;
    sum = sum * z - 1.0 / 3628800.0;
    sum = sum * z + 1.0 / 40320.0;
    sum = sum * z - 1.0 / 720.0;
    sum = sum * z + 1.0 / 24.0;
    return 1 + (z * (z * sum) - 0.5 * z);
}

/* Reduction in turns is exact: x - q/4 with q the integer nearest to 4x. */
void gw_portable_sincos_2pi(double x, double *s, double *c) {
    if (!(x > -0x1p53 && x < 0x1p53)) { /* whole turns, or not a number */
        double d = x - x;
        *s = d;
        *c = 1 + d;
        return;
    }
    int64_t q = (int64_t)(4 * x + (x < 0 ? -0.5 : 0.5));
    double t = TWO_PI * (x - 0.25 * (double)q);
    double st = sine(t), ct = cosine(t);
    switch ((uint64_t)q & 3) {
    case 0: *s = st, *c = ct; break;
    case 1: *s = ct, *c = -st; break;
    case 2: *s = -st, *c = -ct; break;
    case 3: *s = -ct, *c = st; break;
    }
}

/* ------------------------------------------------------------------------------ normals */

/* Normals 2j and 2j + 1. The radius' uniform lies in (0, 1], so its log is finite. */
static void normal_pair(gw_rng_key key, uint64_t j, double out[2]) {
    gw_rng_block b = gw_philox(key, j, 0);
    double u = (double)((word64(b.x[0], b.x[1]) >> 11) + 1) * 0x1p-53;
    double v = (double)(word64(b.x[2], b.x[3]) >> 11) * 0x1p-53;
    double r = sqrt(-2 * gw_portable_log(u)), s, c;
    gw_portable_sincos_2pi(v, &s, &c);
    out[0] = r * c;
    out[1] = r * s;
}

double gw_rng_normal(gw_rng_key key, uint64_t i) {
    double pair[2];
    normal_pair(key, i >> 1, pair);
    return pair[i & 1];
}

void gw_rng_fill_normal(gw_rng_key key, uint64_t first, int64_t n, float std, float *out) {
    double pair[2];
    for (int64_t k = 0; k < n; k++) {
        uint64_t i = first + (uint64_t)k;
        if (k == 0 || !(i & 1)) normal_pair(key, i >> 1, pair);
        out[k] = (float)(pair[i & 1] * (double)std);
    }
}

/* ------------------------------------------------------------------------------ permutation */

enum { FEISTEL_ROUNDS = 8 };

static uint64_t feistel(gw_rng_key key, uint32_t half_bits, uint64_t x) {
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        uint64_t f = gw_philox(key, right << 8 | round, PERMUTE_DOMAIN).x[0];
        uint64_t swap = left ^ (f & mask);
        left = right;
        right = swap;
    }
    return left << half_bits | right;
}

uint64_t gw_rng_permute(gw_rng_key key, uint64_t n, uint64_t i) {
    GW_ASSERT(i < n);
    uint32_t half_bits = 1;
    while (half_bits < 32 && UINT64_C(1) << (2 * half_bits) < n) half_bits++;
    do i = feistel(key, half_bits, i);
    while (i >= n);
    return i;
}

// SPDX-License-Identifier: Apache-2.0
// Random numbers: published vectors, the functions against libm, the laws of the distributions, and
// permutations that permute.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"

static void check_block(gw_rng_block b, uint32_t x0, uint32_t x1, uint32_t x2, uint32_t x3) {
    CHECK_MSG(b.x[0] == x0 && b.x[1] == x1 && b.x[2] == x2 && b.x[3] == x3, "%08x %08x %08x %08x",
              b.x[0], b.x[1], b.x[2], b.x[3]);
}

/* Random123's known-answer file, philox4x32 with 10 rounds. */
TEST(philox_known_answers) {
    check_block(gw_philox((gw_rng_key){{0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c,
                0x9b00dbd8);
    check_block(gw_philox((gw_rng_key){{UINT32_MAX, UINT32_MAX}}, UINT64_MAX, UINT64_MAX),
                0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
    check_block(gw_philox((gw_rng_key){{0xa4093822, 0x299f31d0}}, UINT64_C(0x85a308d3243f6a88),
                          UINT64_C(0x0370734413198a2e)),
                0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(streams_are_views_of_the_same_words) {
    gw_rng_key k = gw_rng_key_named(1, "w");
    for (uint64_t i = 0; i < 64; i++) {
        CHECK(gw_rng_u32(k, i) == gw_philox(k, i / 4, 0).x[i % 4]);
        CHECK(gw_rng_u64(k, i) ==
              (gw_rng_u32(k, 2 * i) | (uint64_t)gw_rng_u32(k, 2 * i + 1) << 32));
    }
}

TEST(keys_differ_by_seed_name_and_number) {
    gw_rng_key a = gw_rng_key_named(1, "a"), same = gw_rng_key_named(1, "a");
    CHECK(memcmp(&a, &same, sizeof a) == 0);
    gw_rng_key keys[] = {a,
                         gw_rng_key_named(2, "a"),
                         gw_rng_key_named(1, "b"),
                         gw_rng_key_fold(a, 0),
                         gw_rng_key_fold(a, 1),
                         gw_rng_key_fold(gw_rng_key_fold(a, 0), 1)};
    for (size_t i = 0; i < GW_COUNT(keys); i++)
        for (size_t j = 0; j < i; j++) CHECK(memcmp(&keys[i], &keys[j], sizeof keys[i]) != 0);
}

/* Mean 1/2 and variance 1/12 within five standard errors; the extremes are in [0, 1). */
TEST(uniform_moments) {
    enum { N = 400000 };
    gw_rng_key k = gw_rng_key_named(3, "uniform");
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < N; i++) {
        double u = (double)gw_rng_uniform(k, i);
        CHECK(u >= 0 && u < 1);
        sum += u;
        squares += (u - 0.5) * (u - 0.5);
    }
    CHECK_NEAR(sum / N, 0.5, 5 * sqrt(1.0 / 12 / N));
    CHECK_NEAR(squares / N, 1.0 / 12, 5 * sqrt(1.0 / 180 / N));
}

/* ------------------------------------------------------------------------------ functions */

TEST(portable_log_is_near_libm) {
    gw_rng_key k = gw_rng_key_named(4, "log");
    for (uint64_t i = 0; i < 300000; i++) {
        double u = (double)(gw_rng_u64(k, i) >> 11) * 0x1p-53;
        double x = i % 3 == 0   ? u
                   : i % 3 == 1 ? exp(1400 * (u - 0.5))
                                : 1 + (u - 0.5) * 1e-3; /* near the zero of log */
        if (!(x > 0)) continue;
        double want = log(x), got = gw_portable_log(x);
        CHECK_MSG(fabs(got - want) <= 1e-15 * fabs(want), "log %a: %.17g, libm %.17g", x, got,
                  want);
    }
}

TEST(portable_log_edges) {
    CHECK(gw_portable_log(1) == 0);
    CHECK(gw_portable_log(0) == -(double)INFINITY);
    CHECK(gw_portable_log((double)INFINITY) == (double)INFINITY);
    CHECK(isnan(gw_portable_log(-1)) && isnan(gw_portable_log((double)NAN)));
    CHECK_NEAR(gw_portable_log(0x1p-1074), -1074 * log(2), 1e-12);
    CHECK_NEAR(gw_portable_log(0x1.fffffffffffffp1023), log(0x1.fffffffffffffp1023), 1e-12);
    CHECK_NEAR(gw_portable_log(2), 0.693147180559945309, 1.2e-16);
}

/* The reference reduces the argument in turns first, in long double, as libm would round 2 pi x. */
TEST(portable_sincos_is_near_libm) {
    gw_rng_key k = gw_rng_key_named(5, "sincos");
    const long double tau = 6.283185307179586476925286766559L;
    for (uint64_t i = 0; i < 300000; i++) {
        double x = (double)(gw_rng_u64(k, i) >> 11) * 0x1p-53;
        if (i % 3 == 1) x = (x - 0.5) * 1e4;
        if (i % 3 == 2) x *= 1e-6;
        double s, c;
        gw_portable_sincos_2pi(x, &s, &c);
        long double t = tau * ((long double)x - roundl((long double)x));
        CHECK_MSG(fabs(s - (double)sinl(t)) <= 3e-16, "sin at %a: %.17g", x, s);
        CHECK_MSG(fabs(c - (double)cosl(t)) <= 3e-16, "cos at %a: %.17g", x, c);
        if (i % 3 == 2) CHECK(fabs(s - (double)sinl(t)) <= 1e-15 * fabs(s)); /* relative at 0 */
    }
}

TEST(portable_sincos_exact_points) {
    static const double want[4][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
    for (int q = -9; q < 9; q++) {
        double s, c;
        gw_portable_sincos_2pi(q * 0.25, &s, &c);
        CHECK(s == want[q & 3][0] && c == want[q & 3][1]);
    }
    double s, c;
    gw_portable_sincos_2pi(0x1p60, &s, &c);
    CHECK(s == 0 && c == 1);
    gw_portable_sincos_2pi((double)INFINITY, &s, &c);
    CHECK(isnan(s) && isnan(c));
}

/* ------------------------------------------------------------------------------ normals */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Moments 0, 1, 0, 3 within five standard errors (variances 1, 2, 15 - 9 = 6 .. 96 of the terms),
 * and the Kolmogorov-Smirnov distance below its 1e-4 quantile, 2.23 / sqrt(n). */
TEST(normal_law) {
    enum { N = 200000 };
    double *x = malloc(N * sizeof *x), m[4] = {0}, ks = 0;
    CHECK(x != NULL);
    gw_rng_key k = gw_rng_key_named(6, "normal");
    for (int i = 0; i < N; i++) {
        x[i] = gw_rng_normal(k, (uint64_t)i);
        double p = 1;
        for (int j = 0; j < 4; j++) m[j] += (p *= x[i]) / N;
    }
    double e = 5 / sqrt((double)N);
    CHECK_NEAR(m[0], 0, e);
    CHECK_NEAR(m[1], 1, e * sqrt(2));
    CHECK_NEAR(m[2], 0, e * sqrt(15));
    CHECK_NEAR(m[3], 3, e * sqrt(96));
    qsort(x, N, sizeof *x, ascending);
    for (int i = 0; i < N; i++) {
        double cdf = 0.5 * erfc(-x[i] / sqrt(2));
        ks = fmax(ks, fmax(cdf - (double)i / N, (double)(i + 1) / N - cdf));
    }
    CHECK_MSG(ks < 2.23 / sqrt((double)N), "distance %g", ks);
    free(x);
}

TEST(normal_neighbours_are_uncorrelated) {
    enum { N = 200000 };
    gw_rng_key k = gw_rng_key_named(7, "pairs");
    double within = 0, across = 0;
    for (uint64_t i = 0; i < N; i += 2) {
        double a = gw_rng_normal(k, i), b = gw_rng_normal(k, i + 1), c = gw_rng_normal(k, i + 2);
        within += a * b;
        across += b * c;
    }
    CHECK_NEAR(within / (N / 2.0), 0, 5 / sqrt(N / 2.0));
    CHECK_NEAR(across / (N / 2.0), 0, 5 / sqrt(N / 2.0));
}

/* Any rank fills any piece: every cut of the stream gives the same elements. */
TEST(fill_normal_equals_its_elements) {
    gw_rng_key k = gw_rng_key_named(8, "fill");
    float whole[101], piece[101];
    gw_rng_fill_normal(k, 1000, 101, 0.02f, whole);
    for (uint64_t i = 0; i < 101; i++)
        CHECK(whole[i] == (float)(gw_rng_normal(k, 1000 + i) * (double)0.02f));
    for (int64_t cut = 0; cut <= 101; cut++) {
        gw_rng_fill_normal(k, 1000, cut, 0.02f, piece);
        gw_rng_fill_normal(k, 1000 + (uint64_t)cut, 101 - cut, 0.02f, piece + cut);
        CHECK(memcmp(whole, piece, sizeof whole) == 0);
    }
}

/* ------------------------------------------------------------------------------ permutation */

static void check_bijection(gw_rng_key k, uint64_t n) {
    uint8_t *seen = calloc(1, n);
    CHECK(seen != NULL);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t j = gw_rng_permute(k, n, i);
        CHECK_MSG(j < n && !seen[j], "n %llu: %llu goes to %llu", (unsigned long long)n,
                  (unsigned long long)i, (unsigned long long)j);
        seen[j] = 1;
    }
    free(seen);
}

TEST(permute_is_a_bijection) {
    gw_rng_key k = gw_rng_key_named(9, "shuffle");
    for (uint64_t n = 1; n <= 300; n++) check_bijection(k, n);
    static const uint64_t large[] = {4095, 4096, 4097, 65537, 100003};
    for (size_t i = 0; i < GW_COUNT(large); i++) check_bijection(gw_rng_key_fold(k, i), large[i]);
}

/* Sizes too large to enumerate: in range, and no two of a sample meet. */
TEST(permute_of_huge_sizes) {
    static const uint64_t sizes[] = {UINT64_C(1) << 40, UINT64_C(3000000000001),
                                     (UINT64_C(1) << 62) + 1, UINT64_MAX};
    enum { N = 2000 };
    double image[N];
    gw_rng_key k = gw_rng_key_named(10, "huge");
    for (size_t s = 0; s < GW_COUNT(sizes); s++) {
        for (uint64_t i = 0; i < N; i++) {
            uint64_t j = gw_rng_permute(k, sizes[s], sizes[s] - 1 - i);
            CHECK(j < sizes[s]);
            image[i] = (double)j;
        }
        qsort(image, N, sizeof *image, ascending);
        for (int i = 1; i < N; i++) CHECK(image[i] != image[i - 1]);
    }
}

/* Over many keys, element 0 lands in each place equally often: chi-squared with 9 degrees of
 * freedom exceeds 33.7 once in 10,000. */
TEST(permute_spreads_evenly) {
    enum { N = 10, KEYS = 20000 };
    int hits[N] = {0};
    gw_rng_key k = gw_rng_key_named(11, "spread");
    for (uint64_t i = 0; i < KEYS; i++) hits[gw_rng_permute(gw_rng_key_fold(k, i), N, 0)]++;
    double chi2 = 0;
    for (int i = 0; i < N; i++) chi2 += pow(hits[i] - KEYS / (double)N, 2) / (KEYS / (double)N);
    CHECK_MSG(chi2 < 33.7, "chi-squared %g", chi2);
}

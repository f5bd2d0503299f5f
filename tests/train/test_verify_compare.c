// SPDX-License-Identifier: Apache-2.0
// Differences and explanations over arrays whose answers are arithmetic.
#include <math.h>
#include <string.h>

#include "base/rng.h"  /* gw_rng_fill_normal */
#include "comm/wire.h" /* gw_wire_encode */
#include "harness.h"
#include "train/verify_compare.h"

enum { N = 1000 };

static void draw(float *x, const char *name) {
    gw_rng_fill_normal(gw_rng_key_named(1, name), 0, N, 1.0f, x);
}

TEST(difference_is_relative_with_a_floor) {
    const float a[] = {3, 4.5f}, b[] = {3, 4}, zero[] = {0, 0}, small[] = {0, 1e-9f};
    CHECK_NEAR(gw_verify_difference(a, b, 2, 0), 0.1, 1e-12); /* 0.5 / 5 */
    CHECK_NEAR(gw_verify_difference(a, b, 2, 50), 0.01, 1e-12);
    CHECK(gw_verify_difference(b, b, 2, 0) == 0);
    CHECK(gw_verify_difference(zero, zero, 2, 0) == 0);
    CHECK(isinf(gw_verify_difference(small, zero, 2, 0)));
    CHECK_NEAR(gw_verify_difference(small, zero, 2, 1e-3), 1e-6, 1e-12);
}

TEST(what_is_not_finite_in_one_is_infinitely_far) {
    const float a[] = {1, NAN}, b[] = {1, 2}, c[] = {1, INFINITY}, d[] = {1, -INFINITY};
    CHECK(isinf(gw_verify_difference(a, b, 2, 1)));
    CHECK(isinf(gw_verify_difference(b, c, 2, 1)));
    CHECK(isinf(gw_verify_difference(c, d, 2, 1)));
    CHECK(gw_verify_difference(a, a, 2, 1) == 0 && gw_verify_difference(c, c, 2, 1) == 0);
}

static void factor_is(double f, const gw_verify_degrees *d, const char *text) {
    float x[N], y[N];
    char why[GW_VERIFY_TEXT];
    double a = 0;
    draw(y, "y");
    for (int i = 0; i < N; i++) x[i] = (float)f * y[i];
    CHECK(gw_verify_factor(x, y, N, d, 1e-3, &a, why));
    CHECK_STR(why, text);
    CHECK_NEAR(a, f, 1e-6 * fabs(f) + 1e-12);
}

TEST(factors_have_names) {
    const gw_verify_degrees d = {.dp = 4, .dp_replicate = 2, .micro_batches = 3};
    const gw_verify_degrees staged = {
        .dp = 1, .dp_replicate = 1, .pp = 3, .virtual_stages = 2, .micro_batches = 5};
    const gw_verify_degrees plain = {.dp = 4, .dp_replicate = 1, .micro_batches = 4};
    factor_is(4, &d, "x dp (4)");
    factor_is(0.25, &d, "/ dp (4)");
    factor_is(3, &d, "x micro-batches (3)");
    factor_is(1.0 / 3, &d, "/ micro-batches (3)");
    factor_is(2, &d, "x dp_replicate (2) or x dp / dp_replicate (2)");
    factor_is(12, &d, "x dp x micro-batches (12)");
    factor_is(-1, &d, "x -1");
    factor_is(65536, &d, "x 6.554e+04");
    factor_is(0, &d, "zero");
    factor_is(3, &staged, "x pp (3)");
    factor_is(2, &staged, "x virtual stages (2)");
    factor_is(1.0 / 6, &staged, "/ stages (6)");
    factor_is(15, &staged, "x pp x micro-batches (15)");
    factor_is(4, &plain, "x dp (4) or x micro-batches (4)");
}

TEST(what_is_no_factor_has_none) {
    float x[N], y[N];
    double a = 0;
    char why[GW_VERIFY_TEXT];
    const gw_verify_degrees d = {.dp = 2, .dp_replicate = 1, .micro_batches = 1};
    draw(x, "x");
    draw(y, "y");
    CHECK(!gw_verify_factor(x, y, N, &d, 1e-3, &a, why)); /* unrelated */
    CHECK(!gw_verify_factor(y, y, N, &d, 1e-3, &a, why)); /* the factor 1 explains nothing */
    memset(y, 0, sizeof y);
    CHECK(!gw_verify_factor(x, y, N, &d, 1e-3, &a, why));
}

static void mix(const double *w, int np, const char *of, const char *text) {
    static float parts[4][N];
    const float *p[4];
    float x[N] = {0};
    double found[GW_VERIFY_MOST_PARTS];
    char why[GW_VERIFY_TEXT];
    for (int k = 0; k < np; k++) {
        draw(parts[k], k == 0 ? "a" : k == 1 ? "b" : k == 2 ? "c" : "d");
        for (int i = 0; i < N; i++) x[i] += (float)w[k] * parts[k][i];
        p[k] = parts[k];
    }
    CHECK(gw_verify_mix(x, p, np, N, found) < 1e-6);
    for (int k = 0; k < np; k++) CHECK_NEAR(found[k], w[k], 1e-5);
    if (!text) {
        CHECK(!gw_verify_mix_text(found, np, of, 1e-2, why));
        return;
    }
    CHECK(gw_verify_mix_text(found, np, of, 1e-2, why));
    CHECK_STR(why, text);
}

TEST(mixtures_have_names) {
    mix((const double[]){1, 1, 1}, 3, "rank", NULL);
    mix((const double[]){0, 0, 1, 0}, 4, "rank", "missing reduction: only rank 2's contribution");
    mix((const double[]){1, 0, 1}, 3, "rank", "rank 1's contribution is missing");
    mix((const double[]){0, 1, 1}, 3, "micro-batch", "micro-batch 1's contribution is missing");
    mix((const double[]){0, 1}, 2, "rank",
        "missing reduction: equals rank 1's own contribution, rank 0's is missing");
    mix((const double[]){2, 2.0 / 3}, 2, "rank", "contributions by rank: x 2, x 0.667");
}

/* A rank without a label adds nothing: its weight is not known, and no fault of it. */
TEST(parts_that_are_zero_are_left_out) {
    float a[N], zero[N] = {0};
    const float *p[] = {a, zero};
    double w[GW_VERIFY_MOST_PARTS];
    char why[GW_VERIFY_TEXT];
    draw(a, "a");
    CHECK(gw_verify_mix(a, p, 2, N, w) < 1e-12);
    CHECK(isnan(w[1]));
    CHECK(!gw_verify_mix_text(w, 2, "rank", 1e-2, why));
}

TEST(own_pieces_are_told_from_sums) {
    float a[N], b[N], x[N], sum[N];
    const float *p[] = {a, b};
    const int64_t first[] = {0, N / 2}, count[] = {N / 2, N - N / 2};
    draw(a, "a");
    draw(b, "b");
    for (int i = 0; i < N; i++) {
        x[i] = i < N / 2 ? a[i] : b[i];
        sum[i] = a[i] + b[i];
    }
    CHECK(gw_verify_own_pieces(x, p, 2, first, count, 1e-3));
    CHECK(!gw_verify_own_pieces(sum, p, 2, first, count, 1e-3));
}

/* What a wire does to a vector stays within the bound, and fills a good part of it. */
TEST(a_hop_stays_within_its_bound) {
    static const gw_wire wires[] = {GW_WIRE_BF16, GW_WIRE_INT8, GW_WIRE_INT4};
    for (int w = 0; w < 3; w++) {
        float x[N], y[N];
        char code[8 * N];
        draw(x, "x");
        CHECK(gw_wire_bytes(wires[w], GW_F32, N) <= (int64_t)sizeof code);
        gw_wire_encode(wires[w], code, x, N);
        gw_wire_decode(wires[w], y, code, N);
        double bound = gw_verify_hop(wires[w], x, N, 1), off = gw_verify_difference(y, x, N, 0);
        CHECK_MSG(off <= bound && off > 0.2 * bound, "%g of %g", off, bound);
    }
    const float zero[4] = {0};
    CHECK(gw_verify_hop(GW_WIRE_SAME, zero, 4, 2) == 0);
    CHECK(gw_verify_hop(GW_WIRE_INT8, zero, 4, 2) == 0);
}

// SPDX-License-Identifier: Apache-2.0
// The laws of wire formats (comm/wire.h): sizes by hand, the bound of one hop, zeros, what is not
// finite.
#include <float.h>
#include <string.h>

#include "comm/wire.h" /* gw_wire_encode */
#include "harness.h"   /* TEST, CHECK */

enum { N = 1000 };

/* A value between -1 and 1 from an index. */
static float value_of(int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    return (float)(int32_t)h / 2147483648.0f;
}

static double block_top(const float *x, int64_t i, int64_t n) {
    double top = 0.0;
    int64_t first = i / GW_WIRE_BLOCK * GW_WIRE_BLOCK;
    for (int64_t k = first; k < n && k < first + GW_WIRE_BLOCK; k++)
        top = fmax(top, fabs((double)x[k]));
    return top;
}

static void there_and_back(gw_wire w, const float *x, float *y, int64_t n) {
    char wire[8 * N];
    int64_t bytes = gw_wire_bytes(w, GW_F32, n);
    memset(wire, 0x5a, sizeof wire);
    gw_wire_encode(w, wire, x, n);
    for (int64_t i = bytes; i < (int64_t)sizeof wire; i++) CHECK(wire[i] == 0x5a);
    gw_wire_decode(w, y, wire, n);
}

TEST(wire_sizes_by_hand) {
    CHECK_EQ(gw_wire_bytes(GW_WIRE_SAME, GW_BF16, 1000), 2000);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_SAME, GW_F64, 3), 24);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_F32, GW_BF16, 1000), 4000);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_BF16, GW_F32, 1000), 2000);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT8, GW_F32, 0), 0);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT8, GW_F32, 1), 5);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT8, GW_F32, 256), 260);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT8, GW_F32, 257), 265); /* 260 + 5 */
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT4, GW_F32, 256), 132);
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT4, GW_F32, 257), 137); /* 132 + 4 + 1 */
    CHECK_EQ(gw_wire_bytes(GW_WIRE_INT4, GW_F32, 259), 138); /* 132 + 4 + 2 */
}

/* Half a step of the block, and 4 ulp of its largest magnitude for the arithmetic. */
TEST(one_hop_moves_a_value_by_at_most_half_a_step) {
    static const float scales[] = {1.0f, 1e-30f, 3e37f, 7.0f, 2e-35f};
    for (int s = 0; s < (int)GW_COUNT(scales); s++)
        for (int64_t n = 0; n <= N; n = n < 4 ? n + 1 : n * 3 / 2 + 1) {
            float x[N + 1], y[N + 1];
            for (int64_t i = 0; i < n; i++)
                x[i] = value_of(i) * scales[s] * (i % 300 == 7 ? 8.0f : 1.0f);
            for (int w = GW_WIRE_INT8; w <= GW_WIRE_INT4; w++) {
                double steps = w == GW_WIRE_INT8 ? 254.0 : 14.0;
                there_and_back((gw_wire)w, x, y, n);
                for (int64_t i = 0; i < n; i++) {
                    double top = block_top(x, i, n);
                    CHECK_NEAR(y[i], x[i], top / steps + 4.0 * top * (double)FLT_EPSILON);
                }
            }
            there_and_back(GW_WIRE_BF16, x, y, n);
            for (int64_t i = 0; i < n; i++)
                CHECK_NEAR(y[i], x[i], fabs((double)x[i]) / 256.0 + 5e-41);
            there_and_back(GW_WIRE_F32, x, y, n);
            CHECK(n == 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
        }
}

/* The largest magnitude of a block comes through, whatever stands beside it. */
TEST(an_outlier_spoils_only_its_block) {
    float x[N], y[N];
    for (int64_t i = 0; i < N; i++) x[i] = value_of(i);
    x[300] = 1e6f; /* second block */
    there_and_back(GW_WIRE_INT8, x, y, N);
    CHECK_NEAR(y[300], 1e6, 1e6 * 1e-6);
    for (int64_t i = 0; i < N; i++)
        if (i < 256 || i >= 512) CHECK_NEAR(y[i], x[i], 1.0 / 254.0 + 1e-6);
}

TEST(zeros_stay_zeros) {
    float x[N] = {0}, y[N];
    for (int w = GW_WIRE_F32; w < GW_WIRE_COUNT; w++) {
        memset(y, 0xff, sizeof y);
        there_and_back((gw_wire)w, x, y, N);
        for (int64_t i = 0; i < N; i++) CHECK(y[i] == 0.0f);
    }
}

TEST(what_is_not_finite_stays_so_in_its_block_only) {
    static const float poison[] = {NAN, INFINITY, -INFINITY, -NAN};
    for (int w = GW_WIRE_F32; w < GW_WIRE_COUNT; w++)
        for (int p = 0; p < 4; p++) {
            float x[N], y[N];
            for (int64_t i = 0; i < N; i++) x[i] = value_of(i);
            x[520] = poison[p]; /* third block */
            there_and_back((gw_wire)w, x, y, N);
            CHECK(!isfinite(y[520]));
            for (int64_t i = 0; i < N; i++)
                if (i < 512 || i >= 768) CHECK(isfinite(y[i]));
        }
}

/* What is finite stays finite: the largest float too. */
TEST(the_largest_float_survives) {
    float x[3] = {FLT_MAX, -FLT_MAX, 1.0f}, y[3];
    for (int w = GW_WIRE_INT8; w <= GW_WIRE_INT4; w++) {
        there_and_back((gw_wire)w, x, y, 3);
        CHECK_NEAR(y[0] / FLT_MAX, 1.0, 1e-6);
        CHECK_NEAR(y[1] / FLT_MAX, -1.0, 1e-6);
    }
}

/* Codes by hand: scale 1 in a block whose largest magnitude is the largest code. */
TEST(codes_by_hand) {
    float x[5] = {7.0f, -7.0f, 0.4f, -2.6f, 3.0f}, scale;
    uint8_t wire[16];
    gw_wire_encode(GW_WIRE_INT4, wire, x, 5);
    memcpy(&scale, wire, 4);
    CHECK(scale == 1.0f);
    CHECK_EQ(wire[4], 15 | 1 << 4); /* 7 + 8, -7 + 8 */
    CHECK_EQ(wire[5], 8 | 5 << 4);  /* 0 + 8, -3 + 8 */
    CHECK_EQ(wire[6] & 15, 11);     /* 3 + 8 */
    float z[3] = {127.0f, -1.5f, 2.5f};
    gw_wire_encode(GW_WIRE_INT8, wire, z, 3);
    CHECK_EQ((int8_t)wire[4], 127);
    CHECK_EQ((int8_t)wire[5], -2); /* to even */
    CHECK_EQ((int8_t)wire[6], 2);  /* to even */
}

// SPDX-License-Identifier: Apache-2.0
// The elementwise mathematics against the C library in double, and the conversions against
// base/num.h.
#include <string.h>

#include "base/num.h" /* gw_bf16_from_f32, gw_fp16_from_f32 */
#include "base/rng.h" /* gw_rng_u32 */
#include "harness.h"
#include "kernel/cpu/vec.h"

typedef float function(float);
typedef double function_d(double);

static double worst(function *f, function_d *exact, double from, double to, double floor) {
    double w = 0;
    for (int i = 0; i <= 200000; i++) {
        float x = (float)(from + (to - from) * i / 200000.0);
        double y = exact((double)x), e = fabs((double)f(x) - y) / fmax(fabs(y), floor);
        w = fmax(w, e);
    }
    return w;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

TEST(exponentials_are_accurate_and_saturate) {
    CHECK(worst(gw_vec_exp2, exp2, -125.9, 127.9, 0) < 2e-7);
    CHECK(worst(gw_vec_exp, exp, -87, 88.7, 0) < 4e-7);
    CHECK(gw_vec_exp(0.0f) == 1.0f && gw_vec_exp2(0.0f) == 1.0f && gw_vec_exp2(10.0f) == 1024.0f);
    CHECK(gw_vec_exp(-INFINITY) == 0.0f && gw_vec_exp2(-INFINITY) == 0.0f);
    CHECK(isinf(gw_vec_exp(INFINITY)) && isinf(gw_vec_exp(100.0f)) && isinf(gw_vec_exp2(129.0f)));
    CHECK(isnan(gw_vec_exp(NAN)) && isnan(gw_vec_exp2(NAN)));
}

TEST(tanh_and_sigmoid_are_accurate) {
    CHECK(worst(gw_vec_tanh, tanh, -12, 12, 1e-6) < 1e-6);
    CHECK(worst(gw_vec_tanh, tanh, -1e-3, 1e-3, 1e-12) < 1e-6);
    CHECK(worst(gw_vec_sigmoid, sigmoid, -80, 80, 1e-30) < 1e-6);
    CHECK(gw_vec_tanh(INFINITY) == 1.0f && gw_vec_tanh(-200.0f) == -1.0f &&
          isnan(gw_vec_tanh(NAN)));
    CHECK(gw_vec_sigmoid(-INFINITY) == 0.0f && gw_vec_sigmoid(200.0f) == 1.0f);
}

/* Small floats widen exactly, for every bit pattern. */
TEST(every_half_widens_as_in_base) {
    uint16_t bits[65536];
    static float f16[65536], bf16[65536];
    for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
    gw_vec_load(f16, bits, GW_F16, 0, 65536);
    gw_vec_load(bf16, bits, GW_BF16, 0, 65536);
    for (int i = 0; i < 65536; i++) {
        float a = gw_fp16_to_f32((gw_fp16){(uint16_t)i}),
              b = gw_bf16_to_f32((gw_bf16){(uint16_t)i});
        CHECK_MSG(f16[i] == a || (isnan(a) && isnan(f16[i])), "f16 %04x", (unsigned)i);
        CHECK_MSG(bf16[i] == b || (isnan(b) && isnan(bf16[i])), "bf16 %04x", (unsigned)i);
    }
}

TEST(narrowing_is_bitwise_that_of_base) {
    gw_rng_key key = gw_rng_key_named(1, "narrowing");
    enum { N = 4096 };
    static float x[N];
    static uint16_t h[N + 1], b[N + 1];
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < N; i++) {
            uint32_t u = gw_rng_u32(key, (uint64_t)(round * N + i));
            /* Every other round stays where f16 has values, ties and subnormals. */
            if (round % 2)
                u = (u & 0x80001fffu) | ((u >> 3 & 0x3ffu) << 13) | ((100 + u % 46) << 23);
            x[i] = gw_f32_from_bits(u);
        }
        gw_vec_store(h, GW_F16, 1, x, N);
        gw_vec_store(b, GW_BF16, 1, x, N);
        for (int i = 0; i < N; i++) {
            if (isnan(x[i])) {
                CHECK(isnan(gw_fp16_to_f32((gw_fp16){h[i + 1]})));
                CHECK(isnan(gw_bf16_to_f32((gw_bf16){b[i + 1]})));
                continue;
            }
            CHECK_MSG(h[i + 1] == gw_fp16_from_f32(x[i]).bits, "%a", (double)x[i]);
            CHECK_MSG(b[i + 1] == gw_bf16_from_f32(x[i]).bits, "%a", (double)x[i]);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
// bf16 and fp16: every bit pattern, ties, edges.
#include "base/num.h"
#include "harness.h"

TEST(fp16_every_value_round_trips) {
    for (uint32_t b = 0; b < 65536; b++) {
        gw_fp16 h = {(uint16_t)b};
        float x = gw_fp16_to_f32(h);
        bool nan = (b & 0x7c00) == 0x7c00 && (b & 0x3ff);
        CHECK(nan == (x != x));
        uint32_t back = gw_fp16_from_f32(x).bits;
        CHECK_MSG(back == (nan ? b | 0x200 : b), "%04x became %04x", b, back);
    }
}

/* The value of a pattern by its definition: 2^(e-15) (1 + f/1024), or 2^-14 f/1024. */
TEST(fp16_values_by_definition) {
    for (uint32_t b = 0; b < 0x7c00; b++) {
        int e = (int)(b >> 10), f = (int)(b & 0x3ff);
        double want = e ? ldexp(1 + f / 1024.0, e - 15) : ldexp(f / 1024.0, -14);
        CHECK(gw_fp16_to_f32((gw_fp16){(uint16_t)b}) == (float)want);
        CHECK(gw_fp16_to_f32((gw_fp16){(uint16_t)(b | 0x8000)}) == (float)-want);
    }
}

/* Between neighbours: the midpoint goes to the even one, a hair to either side to the nearer. */
TEST(fp16_rounds_to_nearest_even) {
    for (uint32_t b = 0; b < 0x7bff; b++) {
        float lo = gw_fp16_to_f32((gw_fp16){(uint16_t)b});
        float hi = gw_fp16_to_f32((gw_fp16){(uint16_t)(b + 1)});
        float mid = lo + (hi - lo) / 2; /* exact: float has 13 more bits */
        CHECK_EQ(gw_fp16_from_f32(mid).bits, b & 1 ? b + 1 : b);
        CHECK_EQ(gw_fp16_from_f32(nextafterf(mid, 0)).bits, b);
        CHECK_EQ(gw_fp16_from_f32(nextafterf(mid, hi)).bits, b + 1);
        CHECK_EQ(gw_fp16_from_f32(-mid).bits, 0x8000 | (b & 1 ? b + 1 : b));
    }
}

TEST(fp16_edges) {
    CHECK_EQ(gw_fp16_from_f32(65504.0f).bits, 0x7bff);
    CHECK_EQ(gw_fp16_from_f32(65519.0f).bits, 0x7bff);
    CHECK_EQ(gw_fp16_from_f32(65520.0f).bits, 0x7c00);
    CHECK_EQ(gw_fp16_from_f32(3e38f).bits, 0x7c00);
    CHECK_EQ(gw_fp16_from_f32(-(float)INFINITY).bits, 0xfc00);
    CHECK_EQ(gw_fp16_from_f32(-0.0f).bits, 0x8000);
    CHECK_EQ(gw_fp16_from_f32(0x1p-24f).bits, 1);
    CHECK_EQ(gw_fp16_from_f32(0x1p-25f).bits, 0); /* tie to even */
    CHECK_EQ(gw_fp16_from_f32(0x1.000002p-25f).bits, 1);
    CHECK_EQ(gw_fp16_from_f32(0x1p-149f).bits, 0);
    CHECK_EQ(gw_fp16_from_f32(0x1.ffcp-15f).bits, 0x3ff + 1); /* tie between subnormal and 2^-14 */
    float nan = gw_f32_from_bits(0x7f800001u); /* its payload is below the bits kept */
    float back = gw_fp16_to_f32(gw_fp16_from_f32(nan));
    CHECK(back != back);
}

TEST(bf16_every_value_round_trips) {
    for (uint32_t b = 0; b < 65536; b++) {
        float x = gw_bf16_to_f32((gw_bf16){(uint16_t)b});
        uint32_t back = gw_bf16_from_f32(x).bits;
        CHECK_EQ(back, x != x ? b | 0x40 : b);
    }
}

TEST(bf16_rounds_to_nearest_even) {
    CHECK_EQ(gw_bf16_from_f32(gw_f32_from_bits(0x3f808000u)).bits, 0x3f80);
    CHECK_EQ(gw_bf16_from_f32(gw_f32_from_bits(0x3f818000u)).bits, 0x3f82);
    CHECK_EQ(gw_bf16_from_f32(gw_f32_from_bits(0x3f808001u)).bits, 0x3f81);
    CHECK_EQ(gw_bf16_from_f32(gw_f32_from_bits(0x7f7fffffu)).bits, 0x7f80); /* overflows */
    float nan = gw_bf16_to_f32(gw_bf16_from_f32(gw_f32_from_bits(0xff800001u)));
    CHECK(nan != nan);
}

/* Over all 65,536 random values the mean is the value itself, to the last bit of the dropped part.
 */
TEST(bf16_stochastic_rounding_is_unbiased) {
    static const uint32_t cases[] = {0x3f800001u, 0x3f804000u, 0x3f80ffffu, 0xc1234567u,
                                     0x00000123u};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        uint32_t low = cases[i] & 0xffff, base = cases[i] >> 16, ups = 0;
        for (uint32_t r = 0; r < 65536; r++) {
            uint32_t got = gw_bf16_from_f32_stochastic(gw_f32_from_bits(cases[i]), r).bits;
            CHECK(got == base || got == base + 1);
            ups += got == base + 1;
        }
        CHECK_EQ(ups, low);
    }
    CHECK_EQ(gw_bf16_from_f32_stochastic((float)INFINITY, 0xffff).bits, 0x7f80);
    float nan = gw_bf16_to_f32(gw_bf16_from_f32_stochastic((float)NAN, 0xffff));
    CHECK(nan != nan);
}

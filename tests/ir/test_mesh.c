// SPDX-License-Identifier: Apache-2.0
// The mesh: facts of mixed-radix arithmetic, and element types.
#include <string.h>

#include "harness.h"
#include "ir/dtype.h" /* gw_dtype_* */
#include "ir/mesh.h"  /* gw_mesh_* */

TEST(mesh_groups_are_prime_factors_largest_first) {
    gw_mesh m = {0};
    uint32_t dp = gw_mesh_add(&m, "dp", 12);
    CHECK_EQ(dp, 7);
    CHECK_EQ(m.naxes, 3);
    CHECK_STR(m.axes[0].name, "dp.0");
    CHECK_EQ(m.axes[0].size, 3);
    CHECK_EQ(m.axes[1].size, 2);
    CHECK_EQ(m.axes[2].size, 2);
    CHECK_EQ(gw_mesh_add(&m, "pp", 1), 0);
    CHECK_EQ(gw_mesh_add(&m, "tp", 7), 8);
    CHECK_EQ(gw_mesh_ranks(&m), 84);
}

TEST(mesh_without_axes_is_one_rank) {
    gw_mesh m = {0};
    CHECK_EQ(gw_mesh_ranks(&m), 1);
    CHECK_EQ(gw_mesh_group(&m, "dp"), 0);
    CHECK_EQ(gw_mesh_size(&m, 0), 1);
    CHECK_EQ(gw_mesh_find(&m, "dp.0"), -1);
}

TEST(mesh_group_names_are_whole_words) {
    gw_mesh m = {0};
    uint32_t d = gw_mesh_add(&m, "d", 2), dp = gw_mesh_add(&m, "dp", 4);
    CHECK_EQ(gw_mesh_group(&m, "d"), d);
    CHECK_EQ(gw_mesh_group(&m, "dp"), dp);
    CHECK_EQ(gw_mesh_group(&m, "dp.1"), 4);
    CHECK_EQ(gw_mesh_group(&m, "p"), 0);
    CHECK_EQ(gw_mesh_size(&m, dp), 4);
    CHECK_EQ(gw_mesh_find(&m, "dp.1"), 2);
}

TEST(mesh_a_group_can_grow) {
    gw_mesh m = {0};
    gw_mesh_add(&m, "dp", 2);
    gw_mesh_add(&m, "tp", 2);
    CHECK_EQ(gw_mesh_add(&m, "dp", 3), 4);
    CHECK_STR(m.axes[2].name, "dp.1");
    CHECK_EQ(gw_mesh_size(&m, gw_mesh_group(&m, "dp")), 6);
}

/* A rank is the number whose digits are its coordinates, first axis the most major. */
TEST(mesh_coordinates_are_the_digits_of_the_rank) {
    gw_mesh m = {0};
    gw_mesh_add(&m, "dp", 6);
    gw_mesh_add(&m, "tp", 5);
    for (int64_t r = 0; r < gw_mesh_ranks(&m); r++) {
        int64_t back = 0;
        for (int a = 0; a < m.naxes; a++) {
            int32_t c = gw_mesh_coord(&m, r, a);
            CHECK(c >= 0 && c < m.axes[a].size);
            back = back * m.axes[a].size + c;
        }
        CHECK_EQ(back, r);
    }
    CHECK_EQ(gw_mesh_coord(&m, 1, m.naxes - 1), 1); /* neighbours differ in the last */
}

TEST(dtype_names_parse_back) {
    for (int i = 0; i < GW_DTYPE_COUNT; i++) {
        gw_dtype t = GW_DTYPE_COUNT;
        CHECK(gw_dtype_parse(gw_dtype_name((gw_dtype)i), &t));
        CHECK_EQ(t, i);
        CHECK_EQ(gw_dtype_bits(t) % 8, 0);
        const char *n = gw_dtype_name(t);
        bool storage = strncmp(n, "f8", 2) == 0; /* floats, but never operands */
        CHECK_EQ(gw_dtype_is_float(t), strchr(n, 'f') != NULL && !storage);
    }
    gw_dtype t;
    CHECK(!gw_dtype_parse("f31", &t) && !gw_dtype_parse("", &t));
    CHECK_EQ(gw_dtype_bits(GW_BF16), 16);
    CHECK_EQ(gw_dtype_bits(GW_I64), 64);
}

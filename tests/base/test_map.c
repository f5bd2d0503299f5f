// SPDX-License-Identifier: Apache-2.0
// Maps under many keys, and the growing array.
#include <string.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/map.h"
#include "harness.h"

enum { KEYS = 100000 };

TEST(smap_finds_every_key_and_no_other) {
    gw_arena a = {0};
    gw_smap m = {0};
    uint32_t v = 77;
    CHECK(!gw_smap_find_c(&m, "x", &v) && v == 77);
    for (uint32_t i = 0; i < KEYS; i++)
        CHECK(gw_smap_put_c(&m, gw_arena_printf(&a, "layers.%u.weight", i), i));
    CHECK_EQ(m.count, KEYS);
    char key[64];
    for (uint32_t i = 0; i < KEYS; i++) {
        int n = snprintf(key, sizeof key, "layers.%u.weight", i);
        CHECK(gw_smap_find(&m, key, (size_t)n, &v) && v == i);
        CHECK(!gw_smap_find(&m, key, (size_t)n - 1, NULL));
    }
    CHECK(!gw_smap_put_c(&m, "layers.5.weight", 999));
    CHECK(gw_smap_find_c(&m, "layers.5.weight", &v) && v == 999);
    CHECK_EQ(m.count, KEYS);
    gw_smap_release(&m);
    CHECK(!gw_smap_find_c(&m, "layers.5.weight", &v));
    gw_arena_release(&a);
}

TEST(smap_keys_are_bytes) {
    gw_smap m = {0};
    CHECK(gw_smap_put(&m, "a\0b", 3, 1));
    CHECK(gw_smap_put(&m, "a\0c", 3, 2));
    CHECK(gw_smap_put(&m, "", 0, 3));
    CHECK(gw_smap_put(&m, "a", 1, 4));
    uint32_t v;
    CHECK(gw_smap_find(&m, "a\0c", 3, &v) && v == 2);
    CHECK(gw_smap_find(&m, "", 0, &v) && v == 3);
    CHECK(gw_smap_find(&m, "a", 1, &v) && v == 4);
    gw_smap_release(&m);
}

/* Dense, sparse, and equal in their low or high halves: the shapes that break weak hashes. */
TEST(imap_finds_every_key_and_no_other) {
    static const int shift[] = {0, 12, 32, 44};
    for (size_t s = 0; s < GW_COUNT(shift); s++) {
        gw_imap m = {0};
        uint32_t v;
        for (uint64_t i = 0; i < KEYS; i++) CHECK(gw_imap_put(&m, i << shift[s], (uint32_t)i));
        for (uint64_t i = 0; i < KEYS; i++)
            CHECK(gw_imap_find(&m, i << shift[s], &v) && v == (uint32_t)i);
        CHECK(!gw_imap_find(&m, (uint64_t)KEYS << shift[s], &v));
        CHECK(!gw_imap_find(&m, UINT64_MAX, NULL));
        CHECK(!gw_imap_put(&m, 0, 5));
        CHECK(gw_imap_find(&m, 0, &v) && v == 5);
        CHECK_EQ(m.count, KEYS);
        gw_imap_release(&m);
    }
}

TEST(vec_grows) {
    typedef struct pair {
        int a;
        double b;
    } pair;
    GW_VEC(pair) v = {0};
    for (int i = 0; i < 10000; i++) gw_vec_push(&v, ((pair){i, i / 2.0}));
    CHECK_EQ(v.count, 10000);
    for (int i = 0; i < 10000; i++) CHECK(v.items[i].a == i && v.items[i].b == i / 2.0);
    gw_vec_release(&v);
    CHECK(!v.items && !v.count);
}

/* The empty input's XXH3 values are published with the algorithm (xxHash's own sanity checks). */
TEST(hash_known_values) {
    char hex[33];
    CHECK(gw_hash64("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    CHECK_STR(gw_hash128_hex(hex, gw_hash128_of("", 0)), "99aa06d3014798d86001c324468d497f");
    CHECK(gw_hash64("abc", 3, 0) != gw_hash64("abc", 3, 1));
}

TEST(hash_in_pieces_equals_hash_at_once) {
    static uint8_t bytes[10000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 131 >> 3);
    gw_hash128 whole = gw_hash128_of(bytes, sizeof bytes);
    gw_hasher *h = gw_hasher_new();
    for (int round = 0; round < 2; round++) {
        size_t at = 0;
        for (size_t step = 1; at < sizeof bytes; at += step, step = step * 3 % 1009)
            gw_hasher_add(h, bytes + at, GW_MIN(step, sizeof bytes - at));
        gw_hash128 pieces = gw_hasher_get(h);
        CHECK(pieces.lo == whole.lo && pieces.hi == whole.hi);
        gw_hasher_reset(h);
    }
    gw_hasher_free(h);
}

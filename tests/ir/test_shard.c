// SPDX-License-Identifier: Apache-2.0
// Shards: the laws that every kind obeys, for sizes 0..40 in 1..8 parts.
#include <string.h>

#include "harness.h"
#include "ir/shard.h" /* gw_shard_* */

#define MAX_SIZE  40
#define MAX_PARTS 8

/* Uneven counts with empty parts among them. */
static void ragged_counts(int64_t size, int64_t parts, int64_t *counts) {
    int64_t left = size;
    for (int64_t p = 0; p < parts; p++) {
        int64_t c = p == parts - 1 ? left : (p * 7 + size) % 5 - 1;
        if (c < 0) c = 0;
        if (c > left) c = left;
        counts[p] = c;
        left -= c;
    }
}

typedef void law(gw_shard s);

static void for_all(law *check) {
    for (int k = 0; k < GW_SHARD_KIND_COUNT; k++)
        for (int64_t size = 0; size <= MAX_SIZE; size++)
            for (int64_t parts = 1; parts <= MAX_PARTS; parts++) {
                int64_t counts[MAX_PARTS];
                ragged_counts(size, parts, counts);
                check((gw_shard){(gw_shard_kind)k, size, parts, 0, counts});
            }
}

#define WHERE                                                                                      \
    "%s size %lld parts %lld part %lld", gw_shard_kind_name(s.kind), (long long)s.size,            \
        (long long)s.parts, (long long)s.part

static void is_a_bijection(gw_shard s) {
    int seen[MAX_SIZE] = {0};
    int64_t total = 0;
    for (s.part = 0; s.part < s.parts; s.part++) {
        int64_t n = gw_shard_length(&s);
        CHECK_MSG(n >= 0, WHERE);
        total += n;
        for (int64_t i = 0; i < n; i++) {
            int64_t g = gw_shard_global(&s, i);
            CHECK_MSG(g >= 0 && g < s.size, WHERE);
            CHECK_MSG(seen[g]++ == 0, WHERE);
        }
    }
    CHECK_MSG(total == s.size, WHERE);
}

TEST(shard_local_to_global_is_a_bijection) { for_all(is_a_bijection); }

static void owner_inverts(gw_shard s) {
    for (s.part = 0; s.part < s.parts; s.part++)
        for (int64_t i = 0; i < gw_shard_length(&s); i++) {
            int64_t local = -1, part = gw_shard_owner(&s, gw_shard_global(&s, i), &local);
            CHECK_MSG(part == s.part && local == i, WHERE);
            CHECK_MSG(gw_shard_owner(&s, gw_shard_global(&s, i), NULL) == part, WHERE);
        }
}

TEST(shard_owner_inverts_global) { for_all(owner_inverts); }

static void runs_cover(gw_shard s) {
    for (s.part = 0; s.part < s.parts; s.part++) {
        int64_t i = 0, end = -1;
        for (int64_t r = 0; r < gw_shard_runs(&s); r++) {
            int64_t first = -1, count = -1;
            gw_shard_run(&s, r, &first, &count);
            CHECK_MSG(count > 0, WHERE);
            CHECK_MSG(first != end, WHERE); /* or the two would be one run */
            for (int64_t j = 0; j < count; j++, i++)
                CHECK_MSG(gw_shard_global(&s, i) == first + j, WHERE);
            end = first + count;
        }
        CHECK_MSG(i == gw_shard_length(&s), WHERE);
    }
}

TEST(shard_runs_are_maximal_and_cover_exactly) { for_all(runs_cover); }

/* torch.chunk of 10 in 4: 3 3 3 1; of 5 in 4: 2 2 1 and an empty one. */
TEST(shard_chunk_cuts_as_torch_chunk) {
    const int64_t ten[] = {3, 3, 3, 1}, five[] = {2, 2, 1, 0};
    for (int p = 0; p < 4; p++) {
        CHECK_EQ(gw_shard_length(&(gw_shard){GW_SHARD_CHUNK, 10, 4, p, NULL}), ten[p]);
        CHECK_EQ(gw_shard_length(&(gw_shard){GW_SHARD_CHUNK, 5, 4, p, NULL}), five[p]);
    }
}

TEST(shard_flat_is_balanced_and_in_order) {
    for (int64_t size = 0; size <= MAX_SIZE; size++)
        for (int64_t parts = 1; parts <= MAX_PARTS; parts++) {
            int64_t next = 0;
            for (int64_t p = 0; p < parts; p++) {
                gw_shard s = {GW_SHARD_FLAT, size, parts, p, NULL};
                int64_t n = gw_shard_length(&s);
                CHECK(n == size / parts || n == size / parts + 1);
                if (n) CHECK_EQ(gw_shard_global(&s, 0), next);
                next += n;
            }
        }
}

/* Causal work of a part: query i sees i + 1 keys. Equal for all parts when 2 * parts divides size.
 */
TEST(shard_zigzag_balances_causal_work) {
    for (int64_t parts = 1; parts <= MAX_PARTS; parts++)
        for (int64_t size = 2 * parts; size <= 96; size += 2 * parts)
            for (int64_t p = 0; p < parts; p++) {
                gw_shard s = {GW_SHARD_ZIGZAG, size, parts, p, NULL};
                int64_t work = 0;
                for (int64_t i = 0; i < gw_shard_length(&s); i++)
                    work += gw_shard_global(&s, i) + 1;
                CHECK_EQ(work * parts, size * (size + 1) / 2);
            }
}

TEST(shard_layer_deals_matrices_out) {
    gw_shard s = {GW_SHARD_LAYER, 7, 3, 1, NULL};
    CHECK_EQ(gw_shard_length(&s), 2);
    CHECK_EQ(gw_shard_global(&s, 0), 1);
    CHECK_EQ(gw_shard_global(&s, 1), 4);
}

// SPDX-License-Identifier: Apache-2.0
// Laws of the order of blocks: each row once an epoch, blocks of one window at a time, shuffled as
// widely as a uniform permutation.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"   /* gw_rng_u32 */
#include "data/order.h" /* gw_order */
#include "harness.h"    /* TEST, CHECK */

enum { MOST = 4096 };

static void check_epochs(const int64_t *rows, int64_t blocks, int64_t window, bool shuffle) {
    gw_order *o = gw_order_new(rows, blocks, 7, window, shuffle);
    int64_t total = 0, begin[MOST];
    for (int64_t b = 0; b < blocks; b++) begin[b] = total, total += rows[b];
    CHECK_EQ(gw_order_rows(o), total);
    unsigned char *seen = calloc((size_t)total + 1, 1);
    for (int64_t e = 0; e < 3; e++) {
        int64_t in[MOST], n = 0, at = -1;
        memset(seen, 0, (size_t)total);
        for (int64_t j = 0; j < total; j++) {
            gw_order_place p = gw_order_at(o, e * total + j);
            CHECK(p.epoch == e && p.row >= 0 && p.row < rows[p.block]);
            CHECK(p.done >= 0 && p.done < 1);
            if (p.window != at) n = gw_order_blocks(o, e, at = p.window, in);
            bool held = false;
            for (int64_t k = 0; k < n; k++) held = held || in[k] == p.block;
            CHECK(held && n <= window);
            CHECK_EQ(seen[begin[p.block] + p.row]++, 0);
            if (!shuffle) CHECK_EQ(begin[p.block] + p.row, j);
        }
    }
    free(seen);
    gw_order_free(o);
}

/* mosaicml/streaming#460, #380: tiny sets, odd sizes, blocks without rows, more room than blocks.
 */
TEST(each_row_once_an_epoch) {
    gw_rng_key key = gw_rng_key_named(1, "order");
    int64_t rows[40];
    for (uint64_t t = 0; t < 60; t++) {
        int64_t blocks = 1 + gw_rng_u32(key, 100 * t) % 40, sum = 0;
        for (int64_t b = 0; b < blocks; b++)
            sum += rows[b] = gw_rng_u32(key, 100 * t + 1 + (uint64_t)b) % (t % 3 ? 20 : 3);
        if (sum == 0) rows[0] = 1;
        check_epochs(rows, blocks, 1 + (int64_t)(t % 9), t % 4 != 3);
    }
    int64_t one = 1;
    check_epochs(&one, 1, 64, true);
}

/* Epochs and positions come in any order; the window after the last is the first of the next. */
TEST(a_position_does_not_depend_on_history) {
    int64_t rows[30], a[4], b[4];
    for (int i = 0; i < 30; i++) rows[i] = 1 + i % 7;
    gw_order *x = gw_order_new(rows, 30, 3, 4, true), *y = gw_order_new(rows, 30, 3, 4, true);
    gw_rng_key key = gw_rng_key_named(2, "positions");
    for (uint64_t t = 0; t < 500; t++) {
        int64_t n = gw_rng_u32(key, t) % 2000;
        gw_order_place p = gw_order_at(x, n), q;
        if (t % 20 == 0) {
            gw_order_free(y);
            y = gw_order_new(rows, 30, 3, 4, true);
        }
        q = gw_order_at(y, n);
        CHECK(p.block == q.block && p.row == q.row && p.window == q.window);
    }
    CHECK_EQ(gw_order_windows(x), 8);
    CHECK_EQ(gw_order_blocks(x, 4, 8, a), gw_order_blocks(y, 5, 0, b));
    CHECK(!memcmp(a, b, sizeof a));
    gw_order_free(x);
    gw_order_free(y);
}

/* webdataset#71, #62: 100 shards of 100 samples. A buffer shuffle of 1,000 leaves a displacement of
 * some hundredths; blocks in windows come to that of a uniform shuffle, and few neighbours of a
 * batch stood near each other. */
TEST(the_shuffle_is_wide) {
    enum { SHARDS = 100, EACH = 100, N = SHARDS * EACH };
    static int64_t order[N], rows[SHARDS];
    for (int i = 0; i < SHARDS; i++) rows[i] = EACH;
    for (int64_t window = 4; window <= SHARDS; window *= 5) {
        gw_order *o = gw_order_new(rows, SHARDS, 11, window, true);
        double displacement = 0, mixing = 0;
        int same = 0;
        for (int64_t e = 0; e < 4; e++) {
            for (int64_t j = 0; j < N; j++) {
                gw_order_place p = gw_order_at(o, e * N + j);
                int64_t at = p.block * EACH + p.row;
                same += e > 0 && order[j] == at;
                order[j] = at;
            }
            gw_order_score s = gw_order_judge(order, N, EACH);
            displacement += s.displacement / 4;
            mixing += s.mixing / 4;
        }
        printf("# shuffle score, window of %lld of %d shards: displacement %.3f, mixing %.3f of a "
               "uniform shuffle\n",
               (long long)window, SHARDS, displacement, mixing);
        /* The displacement of 100 shards by chance: its standard deviation over 4 epochs is 0.03.
         */
        CHECK_NEAR(displacement, 1.0, 0.12);
        CHECK(mixing > 1 - 1.6 / (double)window);
        CHECK(same < 30);
        gw_order_free(o);
    }
    for (int64_t j = 0; j < N; j++) order[j] = j;
    gw_order_score none = gw_order_judge(order, N, EACH);
    CHECK(none.displacement == 0 && none.mixing == 0);
}

/* Megatron-LM#1056, gpt-neox#493: numbers of rows past 2^31. */
TEST(rows_are_64_bits) {
    int64_t rows[3] = {INT64_C(5000000000), INT64_C(3), INT64_C(7000000000)};
    gw_order *o = gw_order_new(rows, 3, 1, 2, true);
    int64_t total = gw_order_rows(o);
    CHECK_EQ(total, INT64_C(12000000003));
    for (int64_t i = 0; i < 300; i++) {
        gw_order_place p = gw_order_at(o, total * 3 + i * (total / 301));
        CHECK(p.epoch == 3 && p.row >= 0 && p.row < rows[p.block]);
    }
    gw_order_free(o);
}

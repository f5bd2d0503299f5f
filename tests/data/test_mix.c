// SPDX-License-Identifier: Apache-2.0
// Laws of mixtures: every source within one row of its share at every prefix, any position at any
// time, Megatron's rule element by element.
#include <math.h>

#include "base/rng.h" /* gw_rng_u32 */
#include "data/mix.h" /* gw_mix */
#include "harness.h"  /* TEST, CHECK */

enum { MOST = 9 };

static gw_mix *make(const double *weights, int n, gw_mix_rule rule) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_mix *m;
    gw_mix_stage one = {0, weights};
    CHECK_OK(gw_mix_new(n, &one, 1, rule, &m, &dg), &dg);
    gw_diags_release(&dg);
    return m;
}

/* Tijdeman's bound: |x - n w / W| <= 1 - 1 / (2 s - 2) for s sources. */
static void check_shares(const double *w, int n, int64_t rows) {
    gw_mix *m = make(w, n, GW_MIX_EXACT);
    int64_t counts[MOST] = {0};
    double sum = 0, bound = n > 1 ? 1 - 1.0 / (2 * n - 2) : 0;
    for (int k = 0; k < n; k++) sum += w[k];
    for (int64_t i = 0; i < rows; i++) {
        gw_mix_place p = gw_mix_at(m, i);
        CHECK_EQ(p.index, counts[p.source]);
        counts[p.source]++;
        for (int k = 0; k < n; k++)
            CHECK(fabs((double)counts[k] - (double)(i + 1) * w[k] / sum) <= bound + 1e-6);
    }
    gw_mix_free(m);
}

TEST(every_prefix_is_within_one_of_its_share) {
    static const double FIXED[][MOST] = {{1},
                                         {1, 1},
                                         {0.7, 0.3},
                                         {3, 1, 1},
                                         {0.7, 0.2, 0.1},
                                         {1, 0, 2},
                                         {99, 1},
                                         {0.5, 0.25, 0.25},
                                         {12.5, 87.5},
                                         {1e-6, 1},
                                         {1, 2, 3, 4, 5, 6, 7, 8, 9}};
    static const int N[] = {1, 2, 2, 3, 3, 3, 2, 3, 2, 2, 9};
    for (int i = 0; i < 11; i++) check_shares(FIXED[i], N[i], 3000);
    gw_rng_key key = gw_rng_key_named(3, "mixtures");
    for (uint64_t t = 0; t < 60; t++) {
        double w[MOST];
        int n = 2 + (int)(gw_rng_u32(key, 100 * t) % (MOST - 1));
        for (int k = 0; k < n; k++)
            w[k] = 1 + gw_rng_u32(key, 100 * t + 1 + (uint64_t)k) % (t % 2 ? 10000 : 7);
        check_shares(w, n, 1500);
    }
}

/* Where the walk is asked for in any order, far ahead and back, it gives the same. */
TEST(any_position_at_any_time) {
    static const double W[] = {0.31, 0.2, 0.4, 0.09};
    enum { ROWS = 20000 };
    static int source[ROWS];
    static int64_t index[ROWS];
    for (int rule = 0; rule < 2; rule++) {
        gw_mix *m = make(W, 4, rule ? GW_MIX_MEGATRON : GW_MIX_EXACT);
        for (int64_t i = 0; i < ROWS; i++) {
            gw_mix_place p = gw_mix_at(m, i);
            source[i] = p.source;
            index[i] = p.index;
        }
        gw_mix *other = make(W, 4, rule ? GW_MIX_MEGATRON : GW_MIX_EXACT);
        gw_rng_key key = gw_rng_key_named(5, "positions");
        for (uint64_t t = 0; t < 400; t++) {
            int64_t i = gw_rng_u32(key, t) % ROWS;
            gw_mix_place p = gw_mix_at(other, i);
            CHECK_EQ(p.source, source[i]);
            CHECK_EQ(p.index, index[i]);
            int64_t counts[4];
            gw_mix_counts(other, i, counts);
            CHECK_EQ(counts[0] + counts[1] + counts[2] + counts[3], i);
            CHECK_EQ(counts[p.source], p.index);
        }
        gw_mix_free(m);
        gw_mix_free(other);
    }
}

/* Positions past 2^40 (int32 sample counts, Megatron-LM#1672): whole periods are multiplied out. */
TEST(positions_are_64_bits) {
    static const double W[] = {0.7, 0.2, 0.1};
    gw_mix *m = make(W, 3, GW_MIX_EXACT);
    int64_t far = (INT64_C(1) << 40) / 10 * 10, counts[3];
    gw_mix_counts(m, far, counts);
    CHECK_EQ(counts[0], far / 10 * 7);
    CHECK_EQ(counts[1], far / 10 * 2);
    CHECK_EQ(counts[2], far / 10);
    for (int64_t i = 0; i < 50; i++) {
        gw_mix_place near = gw_mix_at(m, i), p = gw_mix_at(m, far + i);
        CHECK_EQ(p.source, near.source);
        CHECK_EQ(p.index, near.index + counts[p.source]);
    }
    gw_mix_free(m);
}

/* build_blending_indices of Megatron-LM (megatron/core/datasets/helpers.cpp), its loop written out:
 * argmax of w_k max(i, 1) - count_k, the lowest index of equals. For [0.25, 0.75] it begins 1 0 1 1
 * (by hand: the errors are .25 .75; .25 -.25; ...). */
TEST(megatron_rule) {
    static const double W[][4] = {
        {0.25, 0.75}, {0.3, 0.5, 0.2}, {0.1, 0.2, 0.3, 0.4}, {1.0 / 3, 2.0 / 3}};
    static const int N[] = {2, 3, 4, 2};
    static const int BEGIN[] = {1, 0, 1, 1};
    for (int t = 0; t < 4; t++) {
        gw_mix *m = make(W[t], N[t], GW_MIX_MEGATRON);
        double sum = 0;
        for (int k = 0; k < N[t]; k++) sum += W[t][k];
        int64_t counts[4] = {0};
        for (int64_t i = 0; i < 5000; i++) {
            double at = i > 1 ? (double)i : 1.0, most = 0;
            int best = -1;
            for (int k = 0; k < N[t]; k++) {
                double lag = W[t][k] / sum * at - (double)counts[k];
                if (best < 0 || lag > most) best = k, most = lag;
            }
            gw_mix_place p = gw_mix_at(m, i);
            CHECK_EQ(p.source, best);
            CHECK_EQ(p.index, counts[best]++);
            if (t == 0 && i < 4) CHECK_EQ(p.source, BEGIN[i]);
        }
        gw_mix_free(m);
    }
}

/* A curriculum: each stage has its own proportions, and sources go on where they stood. */
TEST(stages_change_weights_and_nothing_else) {
    gw_diags dg;
    gw_diags_init(&dg);
    static const double A[] = {1, 0}, B[] = {1, 3}, C[] = {0, 1};
    gw_mix_stage stages[] = {{10, A}, {40, B}, {0, C}};
    gw_mix *m;
    CHECK_OK(gw_mix_new(2, stages, 3, GW_MIX_EXACT, &m, &dg), &dg);
    int64_t counts[2] = {0};
    for (int64_t i = 0; i < 200; i++) {
        gw_mix_place p = gw_mix_at(m, i);
        CHECK_EQ(p.index, counts[p.source]++);
        CHECK_EQ(gw_mix_stage_at(m, i), i < 10 ? 0 : i < 50 ? 1 : 2);
        if (i == 9) CHECK(counts[0] == 10 && counts[1] == 0);
        if (i == 49) CHECK(counts[0] == 20 && counts[1] == 30);
    }
    CHECK(counts[0] == 20 && counts[1] == 180);
    gw_mix_free(m);
    static const double ZERO[] = {0, 0}, BAD[] = {1, -1};
    CHECK_FAILS(gw_mix_new(2, &(gw_mix_stage){0, ZERO}, 1, GW_MIX_EXACT, &m, &dg), &dg, "weights");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_mix_new(2, &(gw_mix_stage){0, BAD}, 1, GW_MIX_EXACT, &m, &dg), &dg, "weights");
    gw_diags_release(&dg);
}

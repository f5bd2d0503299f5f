// SPDX-License-Identifier: Apache-2.0
// What the built-in schedules promise: their orders, what they hold, which requests they take.
#include <stdio.h>
#include <string.h>

#include "base/clock.h" /* gw_clock_ns */
#include "harness.h"
#include "sched/sched.h"

/* The computing actions of a rank, as text. */
static void computing(const gw_schedule *s, int rank, gw_str *out) {
    char buf[GW_ACTION_TEXT];
    gw_str_clear(out);
    for (int64_t i = 0; i < s->lists[rank].n; i++) {
        gw_action x = s->lists[rank].items[i];
        if (x.act > GW_ACT_W) continue;
        gw_str_printf(out, "%s%s", out->len ? " " : "", gw_action_print(x, buf));
    }
}

static void check_orders(const char *name, gw_sched_request r, const char *const *orders) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    CHECK_OK(gw_schedule_make(name, &r, &a, &s, &dg), &dg);
    gw_str out = {0};
    for (int rank = 0; rank < r.ranks; rank++) {
        computing(&s, rank, &out);
        CHECK_STR(gw_str_c(&out), orders[rank]);
    }
    gw_str_release(&out);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* Figure 3 of the GPipe paper and figure 4 of Megatron-LM's (SC 2021), for 3 ranks. */
TEST(gpipe_and_1f1b_in_their_order) {
    gw_sched_request r = {.ranks = 3, .virtual_stages = 1, .micro_batches = 4};
    check_orders("gpipe", r,
                 (const char *const[]){"F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3",
                                       "F1.0 F1.1 F1.2 F1.3 B1.0 B1.1 B1.2 B1.3",
                                       "F2.0 F2.1 F2.2 F2.3 B2.0 B2.1 B2.2 B2.3"});
    check_orders("1f1b", r,
                 (const char *const[]){"F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3",
                                       "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3",
                                       "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3"});
}

/* Megatron's forward_backward_pipelining_with_interleaving, followed by hand: warm-up of
 * (p - rank - 1) * 2 + (v - 1) * p = 4 and 2. */
TEST(interleaved_in_megatrons_order) {
    gw_sched_request r = {.ranks = 2, .virtual_stages = 2, .micro_batches = 4};
    check_orders("interleaved", r,
                 (const char *const[]){"F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 "
                                       "B0.1 B2.2 B2.3 B0.2 B0.3",
                                       "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 F1.3 B1.1 F3.2 "
                                       "B3.2 F3.3 B3.3 B1.2 B1.3"});
}

/* Most pairs of stage and micro-batch that a rank holds between F and B. */
static int64_t most_held(const gw_schedule *s, int rank) {
    int64_t held = 0, most = 0;
    for (int64_t i = 0; i < s->lists[rank].n; i++) {
        held += s->lists[rank].items[i].act == GW_ACT_F;
        held -= s->lists[rank].items[i].act == GW_ACT_B;
        most = GW_MAX(most, held);
    }
    return most;
}

/* What the formulas say: GPipe m, 1F1B min(m, p - i), interleaved one more than its warm-up. */
static int64_t should_hold(const char *name, const gw_sched_request *r, int rank) {
    int64_t p = r->ranks, v = r->virtual_stages, m = r->micro_batches;
    if (gw_str_eq(name, "gpipe")) return m;
    if (gw_str_eq(name, "1f1b")) return GW_MIN(m, p - rank);
    int64_t group = m / GW_MAX(1, m / p);
    return GW_MIN(m * v, 2 * (p - 1 - rank) + (v - 1) * group + 1);
}

TEST(ranks_hold_what_the_formulas_say) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved"};
    gw_diags dg;
    gw_diags_init(&dg);
    for (size_t k = 0; k < GW_COUNT(names); k++) {
        for (int p = 1; p <= 8; p++) {
            for (int32_t m = 1; m <= 24; m++) {
                for (int v = k < 2 ? 1 : 2; v <= (k < 2 ? 1 : 4); v++) {
                    gw_arena a = {0};
                    gw_sched_request r = {.ranks = p, .virtual_stages = v, .micro_batches = m},
                                     near;
                    const char *why;
                    gw_schedule s;
                    if (gw_sched_admits(gw_sched_kind_find(names[k]), &r, &a, &why, &near)) {
                        CHECK_OK(gw_schedule_make(names[k], &r, &a, &s, &dg), &dg);
                        for (int rank = 0; rank < p; rank++)
                            CHECK_EQ(most_held(&s, rank), should_hold(names[k], &r, rank));
                    }
                    gw_arena_release(&a);
                }
            }
        }
    }
    gw_diags_release(&dg);
}

/* Korthikanti et al. (2022), section 4.2.3: interleaving multiplies what the first rank holds by
 * 1 + (p - 1) / (p v). */
TEST(interleaving_holds_more_by_the_known_factor) {
    for (int64_t p = 2; p <= 16; p *= 2) {
        for (int64_t v = 2; v <= 8; v *= 2) {
            gw_sched_request r = {
                .ranks = (int)p, .virtual_stages = (int)v, .micro_batches = (int32_t)(4 * p)};
            double units = (double)should_hold("interleaved", &r, 0) / (double)v;
            CHECK_NEAR(units / (double)p, 1 + (double)(p - 1) / (double)(p * v), 1e-12);
        }
    }
}

/* ---- every kind, every small request ---- */

typedef struct tally {
    int made, refused;
} tally;

static void try_request(const gw_sched_kind *k, const gw_sched_request *r, tally *t) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    const char *why = NULL;
    gw_sched_request near, again;
    gw_schedule s;
    if (gw_sched_admits(k, r, &a, &why, &near)) {
        CHECK_OK(gw_schedule_make(k->name, r, &a, &s, &dg), &dg);
        CHECK_STR(s.name, k->name);
        CHECK_EQ(s.ranks, r->ranks);
        CHECK_EQ(s.stages, r->ranks * gw_sched_filled(k, r).virtual_stages);
        CHECK_EQ(s.micro_batches, r->micro_batches);
        for (int places = 1; places <= 2; places++)
            CHECK_OK(gw_schedule_check(&s, &(gw_sched_checks){.places = places}, &dg), &dg);
        t->made++;
    } else {
        CHECK(why && why[0]);
        CHECK_FAILS(gw_schedule_make(k->name, r, &a, &s, &dg), &dg, why);
        CHECK_MSG(gw_sched_admits(k, &near, &a, &why, &again),
                  "%s: %d ranks, %d stages a rank, %d micro-batches: not even the nearest, %d, %d, "
                  "%d: %s",
                  k->name, r->ranks, r->virtual_stages, r->micro_batches, near.ranks,
                  near.virtual_stages, near.micro_batches, why);
        t->refused++;
    }
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

TEST_WITHIN(every_request_is_made_or_has_a_near_one, 120) {
    const gw_sched_kind *k;
    for (int i = 0; (k = gw_sched_kind_at(i)); i++) {
        tally t = {0};
        CHECK(k->name && k->doc && k->made_for >= 1 && gw_sched_kind_find(k->name) == k);
        for (int p = 1; p <= 6; p++)
            for (int v = 0; v <= 12; v++)
                for (int32_t m = 1; m <= 12; m++)
                    try_request(
                        k, &(gw_sched_request){.ranks = p, .virtual_stages = v, .micro_batches = m},
                        &t);
        test_note("%s: %d made, %d refused", k->name, t.made, t.refused);
        CHECK(t.made > 0 && t.refused > 0);
    }
}

TEST(requests_beyond_all_limits_have_a_near_one) {
    static const gw_sched_request requests[] = {
        {.ranks = 0, .virtual_stages = 1, .micro_batches = 1},
        {.ranks = -3, .virtual_stages = -1, .micro_batches = -1},
        {.ranks = 2, .virtual_stages = 1, .micro_batches = 0},
        {.ranks = 2, .virtual_stages = 1, .micro_batches = INT32_MAX},
        {.ranks = 2000, .virtual_stages = 2000, .micro_batches = 1},
    };
    static const char *const names[] = {"gpipe", "1f1b", "interleaved"};
    for (size_t i = 0; i < GW_COUNT(requests); i++) {
        for (size_t k = 0; k < GW_COUNT(names); k++) {
            gw_arena a = {0};
            const char *why = NULL;
            gw_sched_request near, again;
            const gw_sched_kind *kind = gw_sched_kind_find(names[k]);
            CHECK(!gw_sched_admits(kind, &requests[i], &a, &why, &near));
            CHECK_MSG(gw_sched_admits(kind, &near, &a, &why, &again), "%s: %s", names[k], why);
            gw_arena_release(&a);
        }
    }
}

/* PyTorch's rule by hand for 4 ranks: max(1, m / 4) rounds, of equal size. */
TEST(interleaved_takes_what_pytorch_takes) {
    static const int32_t taken[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 16, 20};
    size_t next = 0;
    gw_arena a = {0};
    for (int32_t m = 1; m <= 20; m++) {
        gw_sched_request r = {.ranks = 4, .virtual_stages = 2, .micro_batches = m}, near;
        const char *why;
        bool fits = gw_sched_admits(gw_sched_kind_find("interleaved"), &r, &a, &why, &near);
        CHECK_MSG(fits == (taken[next] == m), "m = %d", m);
        next += fits;
        if (m == 11) CHECK_EQ(near.micro_batches, 10);
        if (m == 14) CHECK_EQ(near.micro_batches, 15);
    }
    CHECK_EQ(next, GW_COUNT(taken));
    gw_arena_release(&a);
}

TEST(refusals_say_what_would_do) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    gw_sched_request r = {.ranks = 4, .virtual_stages = 1, .micro_batches = 9};
    CHECK_FAILS(gw_schedule_make("1f1", &r, &a, &s, &dg), &dg, "did you mean '1f1b'");
    CHECK_FAILS(gw_schedule_make("fast", &r, &a, &s, &dg), &dg, "gpipe, 1f1b, interleaved");
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_schedule_make("interleaved", &r, &a, &s, &dg), &dg,
                "4 ranks, 2 stages a rank, 8 micro-batches");
    r.virtual_stages = 3;
    CHECK_FAILS(gw_schedule_make("1f1b", &r, &a, &s, &dg), &dg, "one stage a rank, not 3");
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* ---- size ---- */

/* 262,144 computing actions on 16 ranks; the times are for reading, not for passing. */
TEST(a_large_schedule_is_made_and_checked) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_schedule s;
    gw_sched_request r = {.ranks = 16, .virtual_stages = 8, .micro_batches = 1024};
    int64_t start = gw_clock_ns();
    CHECK_OK(gw_schedule_make("interleaved", &r, &a, &s, &dg), &dg);
    int64_t made = gw_clock_ns();
    CHECK_OK(gw_schedule_check(&s, &(gw_sched_checks){.places = 2}, &dg), &dg);
    int64_t checked = gw_clock_ns();
    int64_t n = 0;
    for (int rank = 0; rank < s.ranks; rank++) n += s.lists[rank].n;
    test_note("%lld actions: made and checked in %.0f ms, checked again in %.0f ms", (long long)n,
              (double)(made - start) / 1e6, (double)(checked - made) / 1e6);
    /* 2 computing actions a pair, 4 ends of messages for all but the ends of the pipeline. */
    CHECK_EQ(n, 1024 * (2 * 128 + 4 * 127) + 128 + 16);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

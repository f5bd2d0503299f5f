// SPDX-License-Identifier: Apache-2.0
// Schedules with a backward in halves: the hand-made ones against their formulas, the searched ones
// against the hand-made, their memory and published bubbles.
#include <string.h>

#include "harness.h"
#include "sched/search.h"

enum { MAX = 256, PLENTY = 1 << 16 };

typedef struct alike {
    double forward[MAX], input[MAX], weight[MAX], send[MAX], held[MAX], held_weight[MAX], made[MAX];
} alike;

static gw_sched_costs costs_of(alike *x) {
    bool any = false;
    for (int s = 0; s < MAX; s++) any |= x->made[s] > 0;
    return (gw_sched_costs){.forward = x->forward,
                            .input = x->input,
                            .weight = x->weight,
                            .send = x->send,
                            .held = x->held,
                            .held_weight = x->held_weight,
                            .made = any ? x->made : NULL};
}

static gw_sched_costs costs_alike(alike *x, double f, double i, double w, double send,
                                  double kept) {
    for (int s = 0; s < MAX; s++) {
        x->forward[s] = f;
        x->input[s] = i;
        x->weight[s] = w;
        x->send[s] = send;
        x->held[s] = 1;
        x->made[s] = 0;
        x->held_weight[s] = kept;
    }
    return costs_of(x);
}

static double next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24);
}

/* Every third without anything that input gradients make, every third with a lot. */
static gw_sched_costs costs_uneven(alike *x, uint64_t seed) {
    double made = (double)(seed % 3);
    for (int s = 0; s < MAX; s++) {
        x->forward[s] = 0.5 + next(&seed);
        x->input[s] = 0.5 + next(&seed);
        x->weight[s] = 0.2 + next(&seed);
        x->send[s] = 0.3 * next(&seed);
        x->held[s] = 1 + next(&seed);
        x->made[s] = made * x->held[s] * next(&seed);
        x->held_weight[s] = x->held[s] * next(&seed) + x->made[s];
    }
    return costs_of(x);
}

static void make(const char *name, int p, int32_t m, double memory, const gw_sched_costs *c,
                 gw_arena *a, gw_schedule *s) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_sched_request r = {.ranks = p, .micro_batches = m, .costs = c, .memory = memory};
    CHECK_OK(gw_schedule_make(name, &r, a, s, &dg), &dg);
    gw_diags_release(&dg);
}

static gw_sched_times time_of(const char *name, int p, int32_t m, double memory,
                              const gw_sched_costs *c, gw_arena *a) {
    gw_schedule s;
    gw_sched_times t;
    make(name, p, m, memory, c, a, &s);
    gw_sched_time(&s, c, PLENTY, a, &t);
    return t;
}

static gw_zb_problem problem(int p, int32_t m, const gw_sched_costs *c, gw_arena *a) {
    gw_sched_request r = {.ranks = p, .virtual_stages = 1, .micro_batches = m, .costs = c};
    gw_zb_problem z;
    gw_zb_problem_of(&r, 2 * p, a, &z);
    return z;
}

/* The hand-made order as a schedule. */
static gw_sched_times time_by_hand(int lag, int p, int32_t m, const gw_sched_costs *c, gw_arena *a,
                                   gw_zb_score *score) {
    gw_zb_problem z = problem(p, m, c, a);
    gw_zb_order o = gw_zb_order_by_hand(&z, lag, a);
    gw_schedule s;
    gw_sched_times t;
    gw_zb_order_emit(&z, &o, "by hand", a, &s);
    gw_schedule_complete(&s, a);
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_schedule_check(&s, &(gw_sched_checks){.places = 1}, &dg), &dg);
    gw_diags_release(&dg);
    gw_sched_time(&s, c, PLENTY, a, &t);
    if (score) *score = gw_zb_order_clock(&z, &o, a);
    return t;
}

static double idle(const gw_sched_times *t) { return t->longest_span * t->idle_longest; }

static double most_held(const gw_sched_times *t, const gw_schedule *s, const double *held,
                        bool places) {
    double most = 0;
    for (int r = 0; r < s->ranks; r++) {
        double whole = 0;
        for (int i = 0; i < s->stages; i++)
            if (s->rank_of[i] == r) whole += held[i];
        most = fmax(most, (places ? t->placed : t->held)[r] / whole);
    }
    return most;
}

/* ---- by hand ---- */

/* F, I, W and message, such that W <= F: table 2 of arXiv 2401.10241, with messages as its public
 * program has them. Before its first gradient rank 0 waits for I and two messages of each hop; at
 * the end weight gradients are missing where they are shorter than F, and once more the messages.
 */
static const double times[][4] = {{1, 1, 1, 0},      {2, 3, 1, 0},     {3, 2, 2, 0},
                                  {2, 2, 1, 0.25},   {3, 3, 2, 0.125}, {1, 1.5, 0.5, 0.0625},
                                  {1, 1.25, 1, 0.5}, {4, 4, 3, 0.5}};

TEST(zero_bubble_h1_is_its_formula) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(times); k++)
        for (int p = 1; p <= 8; p++)
            for (int32_t m = 2 * p; m <= 2 * p + 3; m++) {
                gw_arena a = {0};
                double f = times[k][0], i = times[k][1], w = times[k][2], c = times[k][3];
                gw_sched_costs costs = costs_alike(&x, f, i, w, c, 0.5);
                gw_sched_times t = time_of("zb-h1", p, m, 0, &costs, &a);
                CHECK_NEAR(idle(&t), (p - 1) * (f + i - w + 4 * c), 1e-9);
                for (int r = 0; r < p; r++) CHECK(t.held[r] <= p + 1e-9); /* as 1F1B */
                gw_sched_request r = {.ranks = p, .micro_batches = m};
                if (c == 0)
                    CHECK_NEAR(idle(&t) / t.busy[0], gw_sched_formula("zb-h1", &r, f, i, w), 1e-9);
                gw_arena_release(&a);
            }
}

/* A long W hides what follows the first gradient, not the wait before it. */
TEST(zero_bubble_h1_with_long_weight_gradients) {
    alike x;
    gw_arena a = {0};
    gw_sched_costs c = costs_alike(&x, 1, 2, 2.5, 0, 0.5);
    gw_sched_times t = time_of("zb-h1", 4, 8, 0, &c, &a);
    CHECK_NEAR(idle(&t), 3 * 2, 1e-9);
    gw_sched_request r = {.ranks = 4, .micro_batches = 8};
    CHECK_NEAR(idle(&t) / t.busy[0], gw_sched_formula("zb-h1", &r, 1, 2, 2.5), 1e-9);
    gw_arena_release(&a);
}

TEST(zero_bubble_h2_is_its_formula) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(times); k++)
        for (int p = 1; p <= 8; p++) {
            gw_arena a = {0};
            double f = times[k][0], i = times[k][1], w = times[k][2], c = times[k][3];
            gw_sched_costs costs = costs_alike(&x, f, i, w, c, 0.5);
            gw_sched_times t = time_by_hand(2, p, 3 * p, &costs, &a, NULL);
            CHECK_NEAR(idle(&t), (p - 1) * (f + i + 2 * c - 2 * w), 1e-9);
            for (int r = 0; r < p; r++) CHECK(t.held[r] <= 2 * p - 1 + 1e-9);
            gw_arena_release(&a);
        }
}

TEST(zero_bubble_scores_are_the_clocks) {
    alike x;
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int lag = 1; lag <= 2; lag++) {
            gw_arena a = {0};
            gw_sched_costs c = costs_uneven(&x, seed);
            gw_zb_score score;
            gw_sched_times t = time_by_hand(lag, 5, 1 + (int32_t)seed, &c, &a, &score);
            CHECK_NEAR(score.first, t.longest_span, 1e-9);
            CHECK_NEAR(score.second, t.step, 1e-9);
            double most = 0;
            for (int r = 0; r < 5; r++)
                most = fmax(most, (c.made ? t.placed : t.held)[r] / x.held[r]);
            CHECK_NEAR(score.memory, most, 1e-9);
            gw_arena_release(&a);
        }
}

TEST(zero_bubble_none_where_all_passes_are_equal) {
    alike x;
    gw_sched_costs c = costs_alike(&x, 1, 1, 1, 0, 0.5);
    for (int p = 1; p <= 9; p++)
        for (int32_t m = 2 * p; m <= 2 * p + 5; m++) {
            gw_arena a = {0};
            gw_sched_times t = time_of("zb-2p", p, m, 0, &c, &a);
            CHECK_NEAR(idle(&t), 0, 1e-9);
            for (int r = 0; r < p; r++) CHECK(t.held[r] <= 2 * p + 1e-9);
            t = time_of("zbv", p, m, 0, &c, &a);
            CHECK_NEAR(idle(&t), 0, 1e-9);
            for (int r = 0; r < p; r++) CHECK(t.held[r] <= 2 * p + 1e-9); /* two stages: 1F1B's */
            CHECK_EQ(t.messages, 2 * (2 * p - 2) * m); /* twice as many as with one stage */
            gw_sched_request q = {.ranks = p, .micro_batches = m};
            CHECK(gw_sched_formula("zb-2p", &q, 1, 1, 1) == 0);
            CHECK(gw_sched_formula("zbv", &q, 1, 1, 1) == 0);
            gw_arena_release(&a);
        }
}

/* DeepSeek's table for DualPipeV: activations of p + 1/2 micro-batches, bubble at most that of
 * phases in lock-step, (p - 1)(F + 2I - W). */
TEST(zero_bubble_dualpipev_is_within_its_published_figures) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(times); k++)
        for (int p = 1; p <= 8; p++)
            for (int32_t m = 2 * p; m <= 2 * p + 3; m++) {
                gw_arena a = {0};
                double f = times[k][0], i = times[k][1], w = times[k][2];
                gw_sched_costs c = costs_alike(&x, f, i, w, 0, 0.5);
                gw_sched_times t = time_of("dualpipev", p, m, 0, &c, &a);
                CHECK(idle(&t) <= (p - 1) * (f + 2 * i - w) + 1e-9);
                double most = 0;
                for (int r = 0; r < p; r++) most = fmax(most, t.held[r]);
                CHECK_NEAR(most, 2 * p + 1, 1e-9); /* of two stages */
                gw_arena_release(&a);
            }
}

/* ---- by search ---- */

TEST(zero_bubble_search_keeps_to_its_memory) {
    static const double memories[] = {1, 1.5, 2, 3, 4.25, 6, 9};
    alike x;
    for (uint64_t seed = 0; seed < 8; seed++)
        for (size_t k = 0; k < GW_COUNT(memories); k++)
            for (int v = 1; v <= 2; v++) {
                gw_arena a = {0};
                gw_schedule s;
                gw_sched_times t;
                gw_sched_costs c = costs_uneven(&x, seed);
                int p = 1 + (int)(seed % 5);
                make(v == 1 ? "zb-2p" : "zbv", p, 9, memories[k], &c, &a, &s);
                gw_sched_time(&s, &c, 1, &a, &t);
                CHECK(most_held(&t, &s, x.held, c.made != NULL) <= memories[k] * (1 + 1e-9));
                gw_arena_release(&a);
            }
}

/* What is being made small: the longest span, or with a barrier the step. */
static double made_small(const gw_sched_times *t, const gw_sched_costs *c) {
    return c->barrier ? t->step : t->longest_span;
}

TEST(zero_bubble_search_is_no_worse_than_by_hand) {
    alike x;
    for (uint64_t seed = 0; seed < 24; seed++)
        for (int lag = 1; lag <= 2; lag++) {
            gw_arena a = {0};
            int p = 2 + (int)(seed % 5), m = 2 + (int)seed;
            gw_sched_costs c = seed % 3 ? costs_uneven(&x, seed)
                                        : costs_alike(&x, times[seed / 3][0], times[seed / 3][1],
                                                      times[seed / 3][2], times[seed / 3][3], 0.5);
            c.barrier = seed % 2;
            gw_zb_score score;
            gw_sched_times hand = time_by_hand(lag, p, m, &c, &a, &score);
            double memory = c.made && seed % 3 ? 2 * p : fmax(1, score.memory); /* lags are cut */
            gw_sched_times found = time_of("zb-2p", p, m, memory, &c, &a);
            CHECK(made_small(&found, &c) <= made_small(&hand, &c) * (1 + 1e-9));
            gw_arena_release(&a);
        }
}

TEST(zero_bubble_search_is_better_where_the_fixed_order_does_not_suit) {
    alike x;
    gw_arena a = {0};
    gw_sched_costs c = costs_alike(&x, 2, 2, 1, 0.1, 0.4);
    gw_sched_times hand = time_by_hand(2, 4, 16, &c, &a, NULL);
    gw_sched_times found = time_of("zb-2p", 4, 16, 8, &c, &a);
    CHECK(idle(&hand) > 6); /* 3 * (2 + 2 + 0.2 - 2) */
    CHECK(idle(&found) < 0.5);
    gw_arena_release(&a);
}

TEST_WITHIN(zero_bubble_more_memory_is_never_slower, 300) {
    alike x;
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int v = 1; v <= 2; v++) {
            gw_arena a = {0};
            gw_sched_costs c = costs_uneven(&x, seed);
            c.barrier = seed % 2;
            int p = 2 + (int)(seed % 4);
            double before = HUGE_VAL;
            for (double memory = 1; memory <= 3 * p; memory += 1.25) {
                gw_sched_times t = time_of(v == 1 ? "zb-2p" : "zbv", p, 9, memory, &c, &a);
                CHECK_MSG(made_small(&t, &c) <= before * (1 + 1e-9),
                          "seed %d, memory %g: %.9g, before %.9g", (int)seed, memory,
                          made_small(&t, &c), before);
                before = made_small(&t, &c);
            }
            gw_arena_release(&a);
        }
}

TEST_WITHIN(zero_bubble_any_number_of_micro_batches, 300) {
    static const char *const names[] = {"zb-h1", "zb-2p", "zbv", "dualpipev"};
    alike x;
    for (size_t k = 0; k < GW_COUNT(names); k++)
        for (int p = 1; p <= 5; p++)
            for (int32_t m = 1; m <= 11; m++) {
                gw_arena a = {0};
                gw_sched_costs c = costs_uneven(&x, (uint64_t)(p * m));
                gw_schedule s, again;
                gw_sched_times t;
                make(names[k], p, m, 0, &c, &a, &s); /* checks it */
                gw_sched_time(&s, &c, 1, &a, &t);
                make(names[k], p, m, 0, &c, &a, &again);
                for (int r = 0; r < p; r++) /* the same each time */
                    CHECK(s.lists[r].n == again.lists[r].n &&
                          !memcmp(s.lists[r].items, again.lists[r].items,
                                  (size_t)s.lists[r].n * sizeof *s.lists[r].items));
                gw_arena_release(&a);
            }
}

TEST(zero_bubble_costs_that_are_nothing) {
    alike x;
    for (int k = 0; k < 8; k++) {
        gw_arena a = {0};
        gw_sched_costs c = costs_alike(&x, k & 1, (k >> 1) & 1, (k >> 2) & 1, 0, 1.25);
        gw_schedule s;
        make("zb-2p", 3, 5, 0, &c, &a, &s);
        make("zbv", 3, 5, 0, &c, &a, &s);
        make("zb-2p", 3, 5, 1, &c, &a, &s);
        gw_arena_release(&a);
    }
}

TEST(zero_bubble_refuses_with_the_nearest) {
    static const struct {
        const char *name;
        int v, near_v;
        double memory, near_memory;
        const char *why;
    } bad[] = {{"zb-h1", 2, 1, 0, 0, "one stage a rank"},
               {"zb-2p", 3, 1, 0, 0, "one stage a rank"},
               {"zb-2p", 1, 1, 0.5, 1, "one micro-batch at least"},
               {"zbv", 1, 2, 0, 0, "two stages a rank"},
               {"zbv", 2, 2, -1, 1, "one micro-batch at least"},
               {"dualpipev", 4, 2, 0, 0, "two stages a rank"}};
    for (size_t i = 0; i < GW_COUNT(bad); i++) {
        gw_arena a = {0};
        gw_sched_request r = {.ranks = 4,
                              .virtual_stages = bad[i].v,
                              .micro_batches = 8,
                              .memory = bad[i].memory},
                         near;
        const char *why = NULL, *again = NULL;
        const gw_sched_kind *k = gw_sched_kind_find(bad[i].name);
        CHECK(k && !gw_sched_admits(k, &r, &a, &why, &near));
        CHECK_MSG(strstr(why, bad[i].why), "%s", why);
        CHECK_EQ(near.virtual_stages, bad[i].near_v);
        CHECK_NEAR(near.memory, bad[i].near_memory, 0);
        CHECK(gw_sched_admits(k, &near, &a, &again, &r));
        gw_arena_release(&a);
    }
}

/* ---- published bubbles ---- */

/* Zero Bubble Pipeline Parallelism (arXiv 2401.10241), table 5: (cost - m(F + I + W)) / cost, where
 * cost is the longest span of a rank. F, I and W are the shares of a micro-batch that its appendix
 * gives from a profile, in milliseconds; held_weight follows from its account of activations, 32h
 * of 34h + 5as bytes a token. Layers, and so the stages a rank of the interleaved column, are those
 * of the profile. What a message takes is not read from there: it is fitted on the column of 1F1B.
 */
typedef struct row {
    int p;
    int32_t m;
    double forward, input, weight, hidden, heads;
    int layers;
    double one_f_one_b, interleaved, h1, h2, zb_1p, zb_2p;
} row;
static const row published[] = {
    {8, 24, 18.522, 18.086, 9.337, 2304, 24, 24, .2431, .1055, .1585, .1083, .1585, .0433},
    {8, 32, 18.513, 18.086, 9.331, 2304, 24, 24, .1985, .0818, .1242, .0837, .1242, .0039},
    {8, 64, 18.546, 18.097, 9.321, 2304, 24, 24, .1240, .0443, .0674, .0444, .0674, .0026},
    {32, 96, 10.419, 10.207, 7.715, 6144, 48, 64, .2646, .1493, .1421, .0641, .1421, .0038},
    {32, 128, 10.408, 10.204, 7.703, 6144, 48, 64, .2168, .1164, .1106, .0490, .1106, .0029},
    {32, 256, 10.402, 10.248, 7.698, 6144, 48, 64, .1352, .0624, .0594, .0257, .0594, .0018},
};

static gw_sched_costs costs_of_row(alike *x, const row *r, int v, double send) {
    double kept = 32 * r->hidden / (34 * r->hidden + 5 * r->heads * 1024);
    return costs_alike(x, r->forward / v, r->input / v, r->weight / v, send, kept);
}

/* The message time with which 1F1B has its published bubble. */
static double fitted(const row *r, alike *x) {
    double low = 0, high = r->forward;
    gw_arena a = {0};
    gw_schedule s;
    gw_sched_costs c = costs_of_row(x, r, 1, 0);
    make("1f1b", r->p, r->m, 0, &c, &a, &s);
    for (int i = 0; i < 40; i++) {
        gw_arena b = {0};
        double middle = (low + high) / 2;
        gw_sched_times t;
        c = costs_of_row(x, r, 1, middle);
        gw_sched_time(&s, &c, PLENTY, &b, &t);
        *(t.idle_longest < r->one_f_one_b ? &low : &high) = middle;
        gw_arena_release(&b);
    }
    gw_arena_release(&a);
    return (low + high) / 2;
}

static void compare(const row *r, const char *what, double got, double want) {
    test_note("p %d m %d %-11s %.4f published %.4f", r->p, (int)r->m, what, got, want);
    CHECK_NEAR(got, want, 0.02);
}

TEST_WITHIN(zero_bubble_published_bubbles, 240) {
    static alike x;
    for (size_t k = 0; k < GW_COUNT(published); k++) {
        const row *r = &published[k];
        gw_arena a = {0};
        double send = fitted(r, &x);
        test_note("p %d m %d: a message takes %.3f ms", r->p, (int)r->m, send);
        gw_sched_costs c = costs_of_row(&x, r, 1, send);
        gw_sched_times t = time_of("1f1b", r->p, r->m, 0, &c, &a);
        CHECK_NEAR(t.idle_longest, r->one_f_one_b, 1e-4); /* the fit */
        t = time_of("zb-h1", r->p, r->m, 0, &c, &a);
        compare(r, "zb-h1", t.idle_longest, r->h1);
        t = time_by_hand(2, r->p, r->m, &c, &a, NULL);
        compare(r, "zb-h2", t.idle_longest, r->h2);
        t = time_of("zb-2p", r->p, r->m, r->p, &c, &a);
        compare(r, "zb-1p", t.idle_longest, r->zb_1p);
        t = time_of("zb-2p", r->p, r->m, 0, &c, &a);
        compare(r, "zb-2p", t.idle_longest, r->zb_2p);
        int v = r->layers / r->p;
        gw_sched_request q = {.ranks = r->p, .virtual_stages = v, .micro_batches = r->m};
        gw_schedule s;
        gw_diags dg;
        gw_diags_init(&dg);
        c = costs_of_row(&x, r, v, send);
        CHECK_OK(gw_schedule_make("interleaved", &q, &a, &s, &dg), &dg);
        gw_diags_release(&dg);
        gw_sched_time(&s, &c, PLENTY, &a, &t);
        compare(r, "interleaved", t.idle_longest, r->interleaved);
        gw_arena_release(&a);
    }
}

// SPDX-License-Identifier: Apache-2.0
// The clock against a second one that knows nothing but its rules, against the formulas that are
// known for bubbles and activations, and against what must not change anything.
#include <string.h>

#include "harness.h"
#include "sched/sched.h"

enum { MAX = 256 };

static void make(const char *name, int p, int v, int32_t m, const gw_sched_costs *c, gw_arena *a,
                 gw_schedule *s) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_sched_request r = {.ranks = p, .virtual_stages = v, .micro_batches = m, .costs = c};
    CHECK_OK(gw_schedule_make(name, &r, a, s, &dg), &dg);
    gw_diags_release(&dg);
}

/* All stages alike. */
typedef struct alike {
    double forward[MAX], input[MAX], weight[MAX], send[MAX];
} alike;

static gw_sched_costs costs_alike(alike *x, double f, double i, double w, double send) {
    for (int s = 0; s < MAX; s++) {
        x->forward[s] = f;
        x->input[s] = i;
        x->weight[s] = w;
        x->send[s] = send;
    }
    return (gw_sched_costs){
        .forward = x->forward, .input = x->input, .weight = x->weight, .send = x->send};
}

/* A generator of its own, so that a failure can be repeated. */
static double next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24);
}

static gw_sched_costs costs_uneven(alike *x, uint64_t seed) {
    for (int s = 0; s < MAX; s++) {
        x->forward[s] = 0.5 + next(&seed);
        x->input[s] = 0.5 + next(&seed);
        x->weight[s] = 0.2 + next(&seed);
        x->send[s] = 0.5 * next(&seed);
    }
    return (gw_sched_costs){
        .forward = x->forward, .input = x->input, .weight = x->weight, .send = x->send};
}

/* ---- the same rules again, by brute force ---- */

/* The nth action of a kind and stage in all lists: its rank, and where it stands. */
static gw_action *nth(const gw_schedule *s, int act, int stage, int64_t n, int *rank, int64_t *at) {
    for (int r = 0; r < s->ranks; r++)
        for (int64_t i = 0; i < s->lists[r].n; i++) {
            gw_action *x = &s->lists[r].items[i];
            if (x->act != act || x->stage != stage || n-- > 0) continue;
            *rank = r;
            *at = i;
            return x;
        }
    return NULL;
}

static int64_t place_of(const gw_schedule *s, int r, int64_t i) {
    int64_t n = 0;
    const gw_action *l = s->lists[r].items;
    for (int64_t j = 0; j < i; j++) n += l[j].act == l[i].act && l[j].stage == l[i].stage;
    return n;
}

/* End of each action: raised until nothing rises any more. */
static void relax(const gw_schedule *s, const gw_sched_costs *c, int places, double **end) {
    for (bool rose = true; rose;) {
        rose = false;
        for (int r = 0; r < s->ranks; r++)
            for (int64_t i = 0; i < s->lists[r].n; i++) {
                gw_action x = s->lists[r].items[i];
                double t = i ? end[r][i - 1] : 0, more = 0;
                int pr = 0;
                int64_t pi = 0, n = place_of(s, r, i);
                bool sends = x.act == GW_ACT_SEND_F || x.act == GW_ACT_SEND_B;
                bool receives = x.act == GW_ACT_RECV_F || x.act == GW_ACT_RECV_B;
                int towards = x.act == GW_ACT_SEND_F || x.act == GW_ACT_RECV_B ? 1 : -1;
                int peer = x.act == GW_ACT_SEND_F   ? GW_ACT_RECV_F
                           : x.act == GW_ACT_SEND_B ? GW_ACT_RECV_B
                           : x.act == GW_ACT_RECV_F ? GW_ACT_SEND_F
                                                    : GW_ACT_SEND_B;
                if (sends && n >= places) {
                    CHECK(nth(s, peer, x.stage + towards, n - places, &pr, &pi));
                    t = fmax(t, end[pr][pi]);
                }
                if (receives) {
                    CHECK(nth(s, peer, x.stage + towards, n, &pr, &pi));
                    t = fmax(t, end[pr][pi] + c->send[x.stage + towards]);
                }
                if (x.act == GW_ACT_F) more = c->forward[x.stage];
                if (x.act == GW_ACT_I || x.act == GW_ACT_B) more = c->input[x.stage];
                if (x.act == GW_ACT_W || x.act == GW_ACT_B) more += c->weight[x.stage];
                if (t + more <= end[r][i] + 1e-9) continue;
                end[r][i] = t + more;
                rose = true;
            }
    }
}

static const struct {
    const char *name;
    int v;
} all[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"zb-h1", 1},
           {"zb-2p", 1}, {"zbv", 2},  {"dualpipev", 2}};

TEST(clock_is_what_its_rules_say) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(all); k++)
        for (int places = 1; places <= 3; places++) {
            gw_arena a = {0};
            gw_sched_costs c = costs_uneven(&x, 10 * k + (uint64_t)places);
            gw_schedule s;
            make(all[k].name, 3, all[k].v, 6, &c, &a, &s);
            gw_sched_times t;
            gw_sched_time(&s, &c, places, &a, &t);
            double *end[3], step = 0;
            for (int r = 0; r < 3; r++) end[r] = gw_arena_new(&a, double, s.lists[r].n);
            relax(&s, &c, places, end);
            for (int r = 0; r < 3; r++)
                for (int64_t i = 0; i < s.lists[r].n; i++) {
                    step = fmax(step, end[r][i]);
                    if (s.lists[r].items[i].act <= GW_ACT_RECV_B)
                        CHECK_NEAR(t.spans[r][i].end, end[r][i], 1e-6);
                }
            CHECK_NEAR(t.step, step, 1e-6);
            gw_arena_release(&a);
        }
}

/* ---- formulas ---- */

/* Table K20: 16 ranks. Percent of computing and of the step, without and with 8 stages a rank. */
TEST(clock_bubble_by_both_conventions) {
    static const struct {
        int32_t m;
        double compute, step, compute8, step8;
    } rows[] = {{16, 93.8, 48.4, 11.7, 10.5},
                {32, 46.9, 31.9, 5.9, 5.5},
                {64, 23.4, 19.0, 2.9, 2.8},
                {128, 11.7, 10.5, 1.5, 1.4}};
    static alike x;
    gw_sched_costs c = costs_alike(&x, 1, 1.2, 0.8, 0);
    for (size_t k = 0; k < GW_COUNT(rows); k++) {
        static const char *const names[] = {"gpipe", "1f1b", "interleaved"};
        for (int i = 0; i < 3; i++) {
            gw_arena a = {0};
            int v = i == 2 ? 8 : 1;
            double m = rows[k].m;
            gw_schedule s;
            gw_sched_times t;
            make(names[i], 16, v, rows[k].m, &c, &a, &s);
            gw_sched_time(&s, &c, rows[k].m, &a, &t);
            CHECK_NEAR(100 * t.bubble_compute, i == 2 ? rows[k].compute8 : rows[k].compute, 0.1);
            CHECK_NEAR(100 * t.bubble_step, i == 2 ? rows[k].step8 : rows[k].step, 0.1);
            CHECK_NEAR(t.bubble_compute, 15 / (v * m), 1e-9);
            CHECK_NEAR(t.bubble_step, 15 / (v * m + 15), 1e-9);
            gw_sched_request r = {.ranks = 16, .virtual_stages = v, .micro_batches = rows[k].m};
            CHECK_NEAR(gw_sched_formula(names[i], &r, 1, 1.2, 0.8), t.bubble_compute, 1e-9);
            CHECK_NEAR(t.idle_step, t.bubble_step, 1e-9);    /* all ranks compute as much */
            CHECK_NEAR(t.idle_longest, t.bubble_step, 1e-9); /* rank 0 begins and ends the step */
            gw_arena_release(&a);
        }
    }
    gw_sched_request odd = {.ranks = 4, .virtual_stages = 2, .micro_batches = 6};
    CHECK(isnan(gw_sched_formula("interleaved", &odd, 1, 1, 1)));
    CHECK(isnan(gw_sched_formula("nonsense", &odd, 1, 1, 1)));
}

/* Table K21. */
TEST(clock_counts_activations) {
    alike x;
    gw_sched_costs c = costs_alike(&x, 1, 1, 1, 0);
    for (int p = 1; p <= 16; p *= 2)
        for (int32_t m = 1; m <= 128; m = 2 * m + 1) {
            gw_arena a = {0};
            gw_schedule s;
            gw_sched_times t;
            make("1f1b", p, 1, m, &c, &a, &s);
            gw_sched_time(&s, &c, 1, &a, &t);
            for (int i = 0; i < p; i++) {
                CHECK_EQ(t.micro_held[i], GW_MIN(m, p - i));
                CHECK_NEAR(t.held[i], GW_MIN(m, p - i), 1e-9);
            }
            make("gpipe", p, 1, m, &c, &a, &s);
            gw_sched_time(&s, &c, 1, &a, &t);
            for (int i = 0; i < p; i++) CHECK_EQ(t.micro_held[i], m);
            CHECK_EQ(t.messages, 2 * (p - 1) * m);
            CHECK_EQ(t.most_messages, p == 1 ? 0 : p == 2 ? m : 2 * m);
            gw_arena_release(&a);
        }
}

/* In the middle of a step p micro-batches take 1F1B one round trip of the pipeline, whose 2(p - 1)
 * messages nothing hides. */
TEST(clock_messages_slow_1f1b_by_its_round_trips) {
    alike x;
    for (int p = 2; p <= 8; p++) {
        gw_sched_costs c = costs_alike(&x, 2, 1.5, 1, 0.25);
        double step[2];
        for (int i = 0; i < 2; i++) {
            gw_arena a = {0};
            gw_schedule s;
            gw_sched_times t;
            make("1f1b", p, 1, (2 + i) * p, &c, &a, &s);
            gw_sched_time(&s, &c, p, &a, &t);
            step[i] = t.step;
            gw_arena_release(&a);
        }
        CHECK_NEAR(step[1] - step[0], p * 4.5 + 2 * (p - 1) * 0.25, 1e-9);
    }
}

/* ---- the end of the step ---- */

TEST(clock_reductions_run_beside_and_the_step_waits) {
    /* Two ranks, one micro-batch: F0 1, F1 1, B1 2, B0 2. R1 begins at 4, R0 at 6. */
    double one[2] = {1, 1}, reduce[2] = {0.5, 10};
    gw_sched_costs c = {.forward = one, .input = one, .weight = one, .reduce = reduce, .step = 3};
    gw_arena a = {0};
    gw_schedule s;
    gw_sched_times t;
    make("1f1b", 2, 1, 1, &c, &a, &s);
    for (int barrier = 0; barrier < 2; barrier++) {
        c.barrier = barrier == 1;
        gw_sched_time(&s, &c, 1, &a, &t);
        CHECK_NEAR(t.step, 4 + 10 + 3, 1e-9);
        gw_sched_span first = t.spans[0][s.lists[0].n - 1];
        CHECK_NEAR(first.start, barrier ? 14 : 6.5, 1e-9);
        CHECK_NEAR(first.end, barrier ? 17 : 9.5, 1e-9);
        CHECK_NEAR(t.longest_span, 6, 1e-9);
        CHECK_NEAR(t.idle_longest, 0.5, 1e-9);
    }
    gw_arena_release(&a);
}

TEST(clock_reductions_of_a_rank_follow_each_other) {
    /* One rank, two stages, one micro-batch: backward of stage 1 ends at 4, of stage 0 at 6. */
    double one[2] = {1, 1}, reduce[2] = {1, 5};
    gw_sched_costs c = {.forward = one, .input = one, .weight = one, .reduce = reduce};
    gw_arena a = {0};
    gw_schedule s;
    gw_sched_times t;
    make("interleaved", 1, 2, 1, &c, &a, &s);
    gw_sched_time(&s, &c, 1, &a, &t);
    CHECK_NEAR(t.step, 10, 1e-9); /* R1 4 to 9, R0 9 to 10 */
    CHECK_NEAR(t.longest_span, 6, 1e-9);
    gw_arena_release(&a);
}

/* ---- laws ---- */

TEST(clock_more_places_are_never_slower) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(all); k++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            gw_arena a = {0};
            gw_sched_costs c = costs_uneven(&x, seed);
            gw_schedule s;
            gw_sched_times t;
            make(all[k].name, 4, all[k].v, 12, &c, &a, &s);
            double before = HUGE_VAL;
            for (int places = 1; places <= 12; places++) {
                gw_sched_time(&s, &c, places, &a, &t);
                CHECK(t.step <= before + 1e-9);
                before = t.step;
            }
            gw_arena_release(&a);
        }
}

TEST(clock_labels_of_ranks_mean_nothing) {
    alike x;
    for (size_t k = 0; k < GW_COUNT(all); k++) {
        gw_arena a = {0};
        gw_sched_costs c = costs_uneven(&x, k);
        c.step = 0.5;
        gw_schedule s;
        gw_sched_times t, u;
        make(all[k].name, 5, all[k].v, 10, &c, &a, &s);
        gw_schedule other = s;
        int16_t *rank_of = gw_arena_new(&a, int16_t, s.stages);
        gw_actions *lists = gw_arena_new(&a, gw_actions, s.ranks);
        for (int i = 0; i < s.stages; i++) rank_of[i] = (int16_t)((2 * s.rank_of[i] + 1) % 5);
        for (int r = 0; r < 5; r++) lists[(2 * r + 1) % 5] = s.lists[r];
        other.rank_of = rank_of;
        other.lists = lists;
        gw_sched_time(&s, &c, 2, &a, &t);
        gw_sched_time(&other, &c, 2, &a, &u);
        CHECK(t.step == u.step && t.longest_span == u.longest_span && t.messages == u.messages);
        CHECK_NEAR(t.bubble_step, u.bubble_step, 1e-12);
        for (int r = 0; r < 5; r++) {
            int to = (2 * r + 1) % 5;
            CHECK(t.held[r] == u.held[to] && t.busy[r] == u.busy[to]);
            CHECK(!memcmp(t.spans[r], u.spans[to], (size_t)s.lists[r].n * sizeof **t.spans));
        }
        gw_arena_release(&a);
    }
}

TEST(clock_units_of_time_mean_nothing) {
    alike x, y;
    for (size_t k = 0; k < GW_COUNT(all); k++) {
        gw_arena a = {0};
        gw_sched_costs c = costs_uneven(&x, k), d = costs_uneven(&y, k);
        for (int s = 0; s < MAX; s++) {
            y.forward[s] *= 1024;
            y.input[s] *= 1024;
            y.weight[s] *= 1024;
            y.send[s] *= 1024;
        }
        gw_schedule s, z;
        gw_sched_times t, u;
        make(all[k].name, 4, all[k].v, 8, &c, &a, &s);
        make(all[k].name, 4, all[k].v, 8, &d, &a, &z);
        gw_sched_time(&s, &c, 2, &a, &t);
        gw_sched_time(&z, &d, 2, &a, &u);
        CHECK_NEAR(u.step, 1024 * t.step, 1e-6);
        CHECK_NEAR(u.bubble_step, t.bubble_step, 1e-12);
        for (int r = 0; r < 4; r++) /* searched orders, too */
            CHECK(s.lists[r].n == z.lists[r].n &&
                  !memcmp(s.lists[r].items, z.lists[r].items,
                          (size_t)s.lists[r].n * sizeof *s.lists[r].items));
        gw_arena_release(&a);
    }
}

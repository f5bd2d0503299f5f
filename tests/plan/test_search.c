// SPDX-License-Identifier: Apache-2.0
// The search against brute force, on a host whose steps are arithmetic: random machines, a cost
// that is never below the bounds, all objectives. And its space, its bounds by hand, its workers.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h" /* gw_hash64 */
#include "base/str.h"  /* gw_str */
#include "fake_machine.h"
#include "harness.h"
#include "plan/search.h"
#include "sched/sched.h"

/* ---- a host of arithmetic ---- */

typedef struct arithmetic {
    gw_arena mem; /* of the machine */
    uint64_t seed;
    gw_search_input *in;
    int32_t breaks_at; /* tp over which the "compiler" aborts; 0: never */
} arithmetic;

/* In [0, 1), by seed and what is hashed. */
static double chance(uint64_t seed, const void *bytes, size_t n) {
    return (double)(gw_hash64(bytes, n, seed) >> 11) / 9007199254740992.0;
}

static void probe(void *user, const gw_search_layout *l, gw_search_block *out) {
    const arithmetic *x = user;
    memset(out, 0, sizeof *out);
    uint64_t key = gw_search_block_key(l);
    double cuts = (double)l->at[GW_SEARCH_TP] * l->at[GW_SEARCH_CP], m = l->at[GW_SEARCH_MICRO];
    out->layer_certain_s = 1e-3 * m / cuts * (1 + chance(x->seed, &key, sizeof key));
    out->certain_s = out->layer_certain_s * (double)x->in->space.layers;
    out->products_s = out->certain_s;
    out->attention_s = out->certain_s / 10;
    out->forward = 1.0 / 3;
    out->exposed_s = out->certain_s * chance(x->seed + 1, &key, sizeof key);
    out->layer_bytes = 40e6 * m / cuts;
    out->outside_bytes = 1e6;
}

/* One that takes longer than is waited for. */
static void slow_probe(void *user, const gw_search_layout *l, gw_search_block *out) {
    struct timespec t = {.tv_sec = 1, .tv_nsec = 400000000};
    nanosleep(&t, NULL);
    probe(user, l, out);
}

/* Never below the bounds, rising with what is recomputed and offloaded, and otherwise by chance. */
static void evaluate(void *user, const gw_search_layout *l, gw_search_outcome *out) {
    const arithmetic *x = user;
    memset(out, 0, sizeof *out);
    if (x->breaks_at && l->at[GW_SEARCH_TP] == x->breaks_at) abort();
    gw_search_layout base = *l;
    base.at[GW_SEARCH_RECOMPUTE] = base.at[GW_SEARCH_OFFLOAD] = 0;
    double luck = chance(x->seed + 2, &base, sizeof base);
    if (luck < 0.1) {
        out->verdict = GW_SEARCH_REFUSED;
        snprintf(out->why, sizeof out->why, "by chance");
        return;
    }
    gw_search_block b;
    gw_search_candidate c = {.layout = base}, own = {.layout = *l};
    probe(user, l, &b);
    gw_search_wires w = {0};
    gw_search_bound(x->in, &b, &w, &c);
    gw_search_bound(x->in, &b, &w, &own);
    static const double slower[GW_SEARCH_POLICIES] = {1, 1.05, 1.3, 1.2};
    out->step_s = fmax(c.bound_s, own.bound_s) * (1 + luck) * slower[l->at[GW_SEARCH_RECOMPUTE]] +
                  0.01 * l->at[GW_SEARCH_OFFLOAD];
    out->effort = out->step_s;
    out->total_bytes =
        own.bound_bytes + (int64_t)(chance(x->seed + 3, l, sizeof *l) * 1e9) + 1000000;
    out->nparts = 1;
    snprintf(out->part[0].name, sizeof out->part[0].name, "products");
    out->part[0].seconds = out->step_s;
}

static gw_search_input question(arithmetic *x, const gw_machine_spec *m, uint64_t seed) {
    gw_search_input in = {
        .machine = m, .host = {.user = x, .probe = probe, .evaluate = evaluate}, .explains = true};
    in.space = (gw_search_space){.worlds = {8},
                                 .nworlds = 1,
                                 .global_batch = 32,
                                 .seq = 2048,
                                 .layers = 8,
                                 .has_master = true,
                                 .has_states = true,
                                 .may_offload = true};
    int64_t most[GW_SEARCH_LEVERS] = {
        [GW_SEARCH_TP] = 4,      [GW_SEARCH_CP] = 2, [GW_SEARCH_PP] = 4,
        [GW_SEARCH_VIRTUAL] = 2, [GW_SEARCH_EP] = 1, [GW_SEARCH_MICRO] = 2};
    memcpy(in.space.most, most, sizeof most);
    double size = 1 + 3 * chance(seed, "size", 4);
    in.facts = (gw_search_facts){.dense_params = 1e9 * size,
                                 .outside_params = 1e8,
                                 .weight = 2,
                                 .master = 4,
                                 .moments = 8,
                                 .gradient = 4,
                                 .hidden_bytes = 4096,
                                 .memory_bytes = (int64_t)(4e9 + 30e9 * chance(seed, "room", 4))};
    x->seed = seed;
    x->in = NULL;
    return in;
}

/* ---- the space ---- */

typedef struct seen {
    const gw_search_space *s;
    int64_t n;
    gw_imap all;
} seen;

static bool look(void *user, const gw_search_layout *l) {
    seen *x = user;
    const int32_t *at = l->at;
    CHECK_EQ((int64_t)l->dp * at[GW_SEARCH_TP] * at[GW_SEARCH_CP] * at[GW_SEARCH_PP], l->world);
    CHECK_EQ((int64_t)l->dp * at[GW_SEARCH_MICRO] * l->accumulate, x->s->global_batch);
    if (at[GW_SEARCH_PP] == 1) CHECK_EQ(at[GW_SEARCH_VIRTUAL], 1);
    if (at[GW_SEARCH_OFFLOAD] == GW_SEARCH_ALL) CHECK_EQ(at[GW_SEARCH_ZERO], 3);
    CHECK_MSG(gw_imap_put(&x->all, gw_hash64(l, sizeof *l, 0), 1), "a point comes twice");
    x->n++;
    return true;
}

TEST(search_space_keeps_ranks_and_batch) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 1);
    seen s = {.s = &in.space};
    gw_search_enumerate(&in.space, look, &s);
    CHECK(s.n > 500);
    int64_t all = s.n;
    gw_imap_release(&s.all);
    in.space.is_fixed[GW_SEARCH_TP] = true;
    in.space.fixed[GW_SEARCH_TP] = 2;
    s = (seen){.s = &in.space};
    gw_search_enumerate(&in.space, look, &s);
    CHECK(s.n > 0 && s.n < all);
    gw_imap_release(&s.all);
    gw_arena_release(&x.mem);
}

/* 8 ranks, one gpipe stage each: points are those with one sample a micro-batch and no choice. */
TEST(search_space_counted_by_hand) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 1);
    in.space.worlds[0] = 2;
    in.space.global_batch = 2;
    in.space.may_offload = false;
    in.space.is_fixed[GW_SEARCH_RECOMPUTE] = in.space.is_fixed[GW_SEARCH_SCHEDULE] = true;
    in.space.is_fixed[GW_SEARCH_PP] = true;
    in.space.fixed[GW_SEARCH_PP] = 1;
    while (strcmp(gw_sched_kind_at(in.space.fixed[GW_SEARCH_SCHEDULE])->name, "1f1b") != 0)
        in.space.fixed[GW_SEARCH_SCHEDULE]++;
    seen s = {.s = &in.space};
    gw_search_enumerate(&in.space, look, &s);
    /* dp 2: micro-batch 1, zero 0 to 3. cp 2: micro-batch 1 and 2, zero 0 to 3. tp 2: micro-batch 1
     * and 2, and one rank has nobody to shard with. */
    CHECK_EQ(s.n, 4 + 8 + 2);
    gw_imap_release(&s.all);
    gw_arena_release(&x.mem);
}

/* ---- bounds by hand ---- */

static gw_search_layout layout_of(int32_t world, int32_t dp, int32_t tp, int32_t pp, int32_t zero,
                                  int32_t accumulate) {
    gw_search_layout l = {.world = world, .dp = dp, .accumulate = accumulate};
    for (int i = 0; i < GW_SEARCH_LEVERS; i++) l.at[i] = 1;
    l.at[GW_SEARCH_TP] = tp;
    l.at[GW_SEARCH_PP] = pp;
    l.at[GW_SEARCH_ZERO] = zero;
    l.at[GW_SEARCH_RECOMPUTE] = l.at[GW_SEARCH_OFFLOAD] = 0;
    return l;
}

/* 1e9 parameters: a master of 4 bytes and moments of 8, weights of 2, gradients of 4. */
TEST(search_bound_bytes_by_hand) {
    gw_search_facts f = {
        .dense_params = 1e9, .weight = 2, .master = 4, .moments = 8, .gradient = 4};
    static const struct {
        int32_t dp, tp, pp, zero, accumulate, offload;
        double bytes;
    } rows[] = {
        {1, 1, 1, 0, 1, 0, 12e9},  {1, 1, 1, 0, 2, 0, 18e9},          {8, 1, 1, 0, 2, 0, 18e9},
        {8, 1, 1, 1, 2, 0, 7.5e9}, {8, 1, 1, 2, 2, 0, 1.5e9 + 2.5e9}, {8, 1, 1, 3, 2, 0, 2e9},
        {2, 4, 1, 0, 2, 0, 4.5e9}, {2, 2, 2, 1, 2, 0, 3e9},           {1, 1, 1, 0, 2, 1, 10e9},
        {1, 1, 1, 0, 2, 2, 6e9},
    };
    for (size_t i = 0; i < GW_COUNT(rows); i++) {
        gw_search_layout l = layout_of(rows[i].dp * rows[i].tp * rows[i].pp, rows[i].dp, rows[i].tp,
                                       rows[i].pp, rows[i].zero, rows[i].accumulate);
        l.at[GW_SEARCH_OFFLOAD] = rows[i].offload;
        CHECK_NEAR((double)gw_search_bound_bytes(&f, &l) / rows[i].bytes, 1, 2e-6);
    }
}

/* ---- against brute force ---- */

/* The best score of all points, each evaluated; INFINITY: none fits. */
static double brute_force(const gw_search_input *in, int64_t *points) {
    gw_search s;
    gw_search_input all = *in;
    all.all = true;
    all.most_evaluations = 0;
    ((arithmetic *)all.host.user)->in = &all;
    gw_search_run(&s, &all);
    CHECK_EQ(s.counts.by_memory + s.counts.by_time + s.counts.unseen, 0);
    *points = s.counts.enumerated;
    double best = (double)INFINITY;
    for (int64_t i = 0; i < s.candidates.count; i++) {
        const gw_search_candidate *c = &s.candidates.items[i];
        CHECK(c->outcome >= 0);
        const gw_search_outcome *o = &s.outcomes.items[c->outcome];
        bool counts = all.objective == GW_SEARCH_MEMORY || gw_search_fits(&all, o);
        if (o->verdict == GW_SEARCH_RUNS && counts)
            best = fmin(best, gw_search_score(&all, &c->layout, o));
    }
    gw_search_release(&s);
    return best;
}

static double score_of_best(const gw_search *s) {
    if (s->best < 0) return (double)INFINITY;
    const gw_search_candidate *c = &s->candidates.items[s->best];
    return gw_search_score(&s->in, &c->layout, &s->outcomes.items[c->outcome]);
}

TEST_WITHIN(search_finds_what_brute_force_finds, 300) {
    int64_t evaluated = 0, all = 0;
    int found = 0;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        arithmetic x = {0};
        gw_machine_spec m = fake_machine(&x.mem, 1);
        m.tiers[0].bytes_per_s *= 0.1 + 2 * chance(seed, "near", 4);
        m.tiers[1].bytes_per_s *= 0.1 + 2 * chance(seed, "far", 3);
        gw_search_input in = question(&x, &m, seed);
        in.objective = (gw_search_objective)(seed % 3);
        if (in.objective == GW_SEARCH_COST) in.space.worlds[in.space.nworlds++] = 4;
        int64_t points = 0;
        double want = brute_force(&in, &points);
        gw_search s;
        x.in = &in;
        gw_search_run(&s, &in);
        CHECK(s.exact);
        double got = score_of_best(&s);
        CHECK_MSG((isinf(want) && isinf(got)) || got <= want, "seed %d: %.9g, and there is %.9g",
                  (int)seed, got, want);
        CHECK_EQ(s.counts.enumerated, points);
        evaluated += s.counts.evaluated;
        all += points;
        found += !isinf(want);
        gw_search_release(&s);
        gw_arena_release(&x.mem);
    }
    CHECK(found >= 12);
    test_note("%lld of %lld points evaluated", (long long)evaluated, (long long)all);
    CHECK(evaluated < all / 2);
}

TEST(search_says_what_it_left) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 3);
    x.in = &in;
    in.facts.memory_bytes = INT64_C(60000000000);
    in.most_evaluations = 5;
    gw_search s;
    gw_search_run(&s, &in);
    CHECK(s.counts.evaluated <= 5 && s.counts.unseen > 0 && !s.exact && s.best >= 0);
    CHECK_EQ(s.counts.enumerated, s.counts.by_memory + s.counts.by_time + s.counts.refused +
                                      s.counts.evaluated + s.counts.unseen);
    double floor_s = s.floor_score, found = score_of_best(&s);
    CHECK(floor_s <= found);
    /* All blocks were read: one bound for all. What is promising is expected to be better. */
    CHECK_EQ(s.counts.unread, 0);
    CHECK(s.floor_read == floor_s && s.counts.promising <= s.counts.unseen);
    CHECK((s.counts.promising > 0) == (s.promising >= 0));
    if (s.promising >= 0) {
        CHECK(s.expected < found && s.candidates.items[s.promising].outcome < 0);
        CHECK(s.candidates.items[s.promising].bound_s < found);
    }
    gw_search_release(&s);
    int64_t points;
    double best = brute_force(&in, &points);
    CHECK(best >= fmin(floor_s, found));
    gw_arena_release(&x.mem);
}

/* Without time for a single block nothing is read, nothing expected, and all of it said. */
TEST(search_without_time_says_so) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 3);
    x.in = &in;
    in.budget_s = 1e-9;
    gw_search s;
    gw_search_run(&s, &in);
    CHECK(s.best < 0 && s.promising < 0 && !s.exact && isinf(s.floor_read));
    CHECK(s.counts.unseen > 0 && s.counts.unread == s.counts.unseen);
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    gw_search_print(&s, f);
    fclose(f);
    CHECK(strstr(text, "not even the block was read") && strstr(text, "a larger --budget"));
    CHECK(!strstr(text, "by their guesses") && !strstr(text, "nothing unseen"));
    free(text);
    gw_search_release(&s);
    gw_arena_release(&x.mem);
}

/* ---- workers ---- */

TEST(search_workers_find_the_same) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 7);
    x.in = &in;
    gw_search here, there;
    gw_search_run(&here, &in);
    in.workers = 2;
    gw_search_run(&there, &in);
    CHECK(here.exact && there.exact && here.best >= 0);
    CHECK_NEAR(score_of_best(&there), score_of_best(&here), 0);
    gw_search_release(&here);
    gw_search_release(&there);
    gw_arena_release(&x.mem);
}

/* A layout that takes its worker along is one layout that was not evaluated. */
TEST(search_survives_a_compiler_that_stops) {
    arithmetic x = {.breaks_at = 4};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 7);
    x.in = &in;
    in.workers = 2;
    in.space.may_offload = false;
    in.space.is_fixed[GW_SEARCH_ZERO] = true;
    in.space.fixed[GW_SEARCH_ZERO] = 1;
    in.facts.memory_bytes = 0;
    in.all = true;
    gw_search s;
    gw_search_run(&s, &in);
    CHECK(s.counts.broke > 0 && s.best >= 0 && !s.exact);
    CHECK(s.candidates.items[s.best].layout.at[GW_SEARCH_TP] != 4);
    CHECK_EQ(s.counts.enumerated, s.counts.broke + s.counts.refused + s.counts.evaluated);
    gw_search_release(&s);
    gw_arena_release(&x.mem);
}

/* A block that comes when nobody waits for it any more is no evaluated layout. */
TEST(search_takes_no_late_block_for_a_layout) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 7);
    x.in = &in;
    in.host.probe = slow_probe;
    in.workers = 2;
    in.budget_s = 4;
    in.facts.memory_bytes = 0;
    gw_search s;
    gw_search_run(&s, &in);
    CHECK(s.outcomes.count > 0);
    for (int64_t i = 0; i < s.outcomes.count; i++) {
        const gw_search_outcome *o = &s.outcomes.items[i];
        if (o->verdict != GW_SEARCH_RUNS) continue;
        CHECK_MSG(o->nparts == 1 && o->total_bytes < INT64_C(1) << 50, "%lld bytes",
                  (long long)o->total_bytes);
    }
    gw_search_release(&s);
    gw_arena_release(&x.mem);
}

/* ---- what is said of the best ---- */

TEST(search_explains_every_neighbour) {
    arithmetic x = {0};
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_search_input in = question(&x, &m, 7);
    x.in = &in;
    gw_search s;
    gw_search_run(&s, &in);
    gw_search_near near[GW_SEARCH_NEAR];
    int n = gw_search_neighbours(&s, near);
    CHECK(n >= 8);
    for (int i = 0; i < n; i++) {
        gw_search_explain(&s, &near[i]);
        CHECK(near[i].candidate != s.best && near[i].why[0] && near[i].change[0]);
    }
    int64_t at[64];
    int k = gw_search_frontier(&s, 64, at);
    CHECK(k > 0);
    for (int i = 1; i < k; i++) {
        const gw_search_outcome *a = &s.outcomes.items[s.candidates.items[at[i - 1]].outcome];
        const gw_search_outcome *b = &s.outcomes.items[s.candidates.items[at[i]].outcome];
        CHECK(a->step_s <= b->step_s && a->total_bytes > b->total_bytes);
    }
    gw_search_release(&s);
    gw_arena_release(&x.mem);
}

TEST(search_layouts_read_as_people_write_them) {
    gw_search_layout l = layout_of(64, 2, 8, 4, 1, 64);
    gw_str s = {0};
    while (strcmp(gw_sched_kind_at(l.at[GW_SEARCH_SCHEDULE])->name, "interleaved") != 0)
        l.at[GW_SEARCH_SCHEDULE]++;
    l.at[GW_SEARCH_VIRTUAL] = 5;
    l.at[GW_SEARCH_RECOMPUTE] = GW_SEARCH_SELECTIVE;
    gw_search_describe(&l, &s);
    CHECK_STR(gw_str_c(&s),
              "tp 8, pp 4 (interleaved, 5 stages a rank), dp 2, zero 1, micro-batch 1 "
              "x 64, recompute selective");
    gw_str_release(&s);
}

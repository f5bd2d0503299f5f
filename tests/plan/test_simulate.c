// SPDX-License-Identifier: Apache-2.0
// The simulator against the schedule's clock and against arithmetic by hand; a straggler never
// speeds a step, parts sum to it. On a machine of round numbers (fake_machine.c). Laws over run
// files at random are those of test_laws.c.
#include <math.h>
#include <string.h>

#include "base/io.h" /* gw_file_read */
#include "fake_machine.h"
#include "harness.h"
#include "plan/simplan.h"
#include "stepped.h"

enum { MOST = 8 };

static const char *const layouts[] = {
    "layout: {zero: 0}",
    "layout: {zero: 3, prefetch: 1}",
    "layout: {tp: 2, zero: 1}",
    "layout: {cp: 2}",
    "layout: {pp: 4}",
    "layout: {pp: 2, tp: 2, schedule: interleaved, virtual_stages: 2}",
    "layout: {pp: 4, schedule: zb-h1}",
};

TEST(one_rank_takes_the_sum_of_its_ops) {
    step x;
    step_init(&x, stepped_small, 1, 3, "");
    gw_machine_spec m = fake_machine(&x.mem, 1);
    gw_sim_result r = simulate(&x, &m, NULL);
    double sum = 0;
    for (int64_t i = 0; i < x.program[0].ops.count; i++) {
        const gw_op *o = &x.program[0].ops.items[i];
        sum += gw_machine_op_seconds(&m, &x.program[0], o, 0) * (o->rate == GW_RATE_MB ? 3 : 1);
    }
    CHECK_NEAR(r.step_s / sum, 1, 1e-12);
    CHECK(r.exposed_s == 0 && r.bubble_s == 0 && r.bubble == 0);
    CHECK(r.optimizer_s > 0 && r.attention_s > 0 && r.products_s > 0);
    step_release(&x);
}

/* The clock is told what actions cost; everything else must come out the same. */
static void against_the_clock(const char *layout, int accumulate) {
    step x;
    gw_timeline t;
    gw_sim_result r;
    step_init(&x, stepped_small, 4, accumulate, layout);
    gw_machine_spec m = fake_machine(&x.mem, 1);
    const gw_schedule *s = x.setup.schedule;
    gw_timeline_begin(&t, s->name, x.n, "s", &x.mem);
    gw_simulate(x.programs, x.n, &m, NULL, &x.mem, &r, &t);
    double *cost[4], first = (double)INFINITY;
    for (int k = 0; k < 4; k++) cost[k] = gw_arena_new(&x.mem, double, s->stages);
    for (int64_t i = 0; i < t.n; i++) {
        const gw_timeline_box *b = &t.boxes[i];
        double d = b->end - b->start;
        if (b->action.act == GW_ACT_F) cost[0][b->action.stage] = d;
        if (b->action.act == GW_ACT_I) cost[1][b->action.stage] = d;
        if (b->action.act == GW_ACT_W) cost[2][b->action.stage] = d;
        if (b->action.act == GW_ACT_B) cost[1][b->action.stage] = d;
        if (gw_timeline_computes(b->action)) first = fmin(first, b->start);
    }
    for (int i = 0; i < s->stages; i++)
        cost[3][i] = gw_machine_send_seconds(&m, &x.program[0].mesh, 4 * 64 * 128 * 2);
    gw_sched_costs c = {.forward = cost[0], .input = cost[1], .weight = cost[2], .send = cost[3]};
    gw_sched_times times;
    gw_sched_time(s, &c, (int)x.rf.layout.message_places, &x.mem, &times);
    int64_t at[MOST] = {0}, compared = 0;
    for (int64_t i = 0; i < t.n; i++) {
        const gw_timeline_box *b = &t.boxes[i];
        if (b->action.act == GW_ACT_STEP) continue;
        const gw_sched_span *span = &times.spans[b->rank][at[b->rank]];
        CHECK_EQ(s->lists[b->rank].items[at[b->rank]].act, b->action.act);
        at[b->rank]++;
        if (!gw_timeline_computes(b->action)) continue;
        CHECK_NEAR((b->start - first) / r.step_s, span->start / r.step_s, 1e-9);
        CHECK_NEAR((b->end - first) / r.step_s, span->end / r.step_s, 1e-9);
        compared++;
    }
    CHECK(compared >= 2 * accumulate * s->stages);
    step_release(&x);
}

TEST(a_simulated_pipeline_keeps_the_schedules_time) {
    against_the_clock("layout: {pp: 4, schedule: gpipe}", 4);
    against_the_clock("layout: {pp: 4, schedule: 1f1b}", 8);
    against_the_clock("layout: {pp: 4, schedule: interleaved, virtual_stages: 2}", 8);
    against_the_clock("layout: {pp: 4, schedule: zb-h1}", 8);
}

TEST(a_straggler_never_speeds_a_step) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        step x;
        step_init(&x, stepped_small, 4, 4, layouts[i]);
        gw_machine_spec m = fake_machine(&x.mem, 1);
        for (int r = 0; r < x.n; r++) {
            double before = simulate(&x, &m, NULL).step_s;
            for (double f = 1; f < 4; f *= 1.3) {
                double now =
                    simulate(&x, &m, &(gw_sim_faults){.straggler = f, .straggler_rank = r}).step_s;
                CHECK(now >= before * (1 - 1e-12));
                before = now;
            }
        }
        step_release(&x);
    }
}

TEST(faults_do_what_they_say) {
    step x;
    step_init(&x, stepped_small, 4, 4, "layout: {tp: 2, zero: 1}");
    gw_machine_spec m = fake_machine(&x.mem, 1);
    m.tiers[0].ranks = 2;
    gw_sim_result r = simulate(&x, &m, NULL);
    gw_sim_result stall = simulate(&x, &m, &(gw_sim_faults){.data_stall_s = 0.5});
    gw_sim_result slow = simulate(&x, &m, &(gw_sim_faults){.slow_link = 0.25});
    gw_sim_result jitter = simulate(&x, &m, &(gw_sim_faults){.jitter = 0.2, .seed = 7});
    gw_sim_result again = simulate(&x, &m, &(gw_sim_faults){.jitter = 0.2, .seed = 7});
    gw_sim_result other = simulate(&x, &m, &(gw_sim_faults){.jitter = 0.2, .seed = 8});
    CHECK_NEAR(stall.step_s - r.step_s, 0.5, 1e-9);
    CHECK_NEAR(stall.stall_s, 0.5, 1e-12);
    CHECK(slow.axis[GW_STREAM_DP].seconds > 2 * r.axis[GW_STREAM_DP].seconds);
    CHECK_NEAR(slow.axis[GW_STREAM_TP].seconds, r.axis[GW_STREAM_TP].seconds, 1e-15);
    CHECK(jitter.step_s == again.step_s && jitter.step_s != other.step_s);
    CHECK(jitter.step_s > r.step_s); /* groups wait for their slowest */
    step_release(&x);
}

/* Of a ring all-gather of a layer's weights a layer ahead nothing is exposed if compute is longer;
 * without prefetch all of it is. */
TEST(prefetched_gathers_hide_behind_compute) {
    double exposed[2];
    for (int ahead = 0; ahead < 2; ahead++) {
        step x;
        char layout[64];
        snprintf(layout, sizeof layout, "layout: {zero: 3, prefetch: %d}", ahead);
        step_init(&x, stepped_small, 4, 1, layout);
        gw_machine_spec m = fake_machine(&x.mem, 1);
        m.memory_bytes_per_s = 1e10; /* compute is slow */
        m.tiers[0].latency_s = 0;
        gw_sim_result r = simulate(&x, &m, NULL);
        exposed[ahead] = r.axis[GW_STREAM_DP].exposed / r.axis[GW_STREAM_DP].seconds;
        step_release(&x);
    }
    CHECK_MSG(exposed[1] < 0.5 * exposed[0], "%g of the time with prefetch, %g without", exposed[1],
              exposed[0]);
}

TEST(where_collectives_run_on_compute_nothing_overlaps) {
    step x;
    step_init(&x, stepped_small, 4, 2, "layout: {zero: 3, prefetch: 1}");
    gw_machine_spec m = fake_machine(&x.mem, 10);
    gw_sim_result r = simulate(&x, &m, NULL);
    CHECK_NEAR(r.axis[GW_STREAM_DP].exposed / r.axis[GW_STREAM_DP].seconds, 1, 1e-2);
    step_release(&x);
}

TEST(shares_of_a_step_sum_to_a_hundred) {
    for (size_t i = 0; i < GW_COUNT(layouts); i++) {
        step x;
        gw_simplan s;
        gw_ledger ledgers[MOST];
        step_init(&x, stepped_small, 4, 4, layouts[i]);
        gw_machine_spec m = fake_machine(&x.mem, 1);
        for (int r = 0; r < x.n; r++)
            gw_ledger_init(&ledgers[r], &(gw_ledger_input){.program = &x.program[r],
                                                           .report = &x.report[r],
                                                           .model = &x.setup.model,
                                                           .machine = &x.setup.machine,
                                                           .first = r ? &ledgers[0] : NULL});
        gw_simplan_init(&s, &(gw_simplan_input){
                                .ranks = ledgers, .programs = x.programs, .n = x.n, .machine = &m});
        double seconds = 0;
        int tenths = 0;
        for (int k = 0; k < s.nparts; k++) {
            seconds += s.part[k].seconds;
            tenths += (int)lround(s.part[k].percent * 10);
        }
        CHECK_EQ(tenths, 1000);
        CHECK_NEAR(seconds / s.sim.step_s, 1, 1e-12);
        CHECK(s.mfu[0].mfu > 0 && s.mfu[0].mfu <= s.mfu[1].mfu);
        gw_simplan_release(&s);
        for (int r = 0; r < x.n; r++) gw_ledger_release(&ledgers[r]);
        step_release(&x);
    }
}

TEST(k36_the_best_checkpoint_interval) {
    /* 419 unexpected interruptions in 54 days: 3.09 h between them; a checkpoint costs 60 s. */
    gw_sim_fleet f = {
        .chips = 16384, .failures_per_hour = 419.0 / (54 * 24 * 16384.0), .write_s = 60};
    gw_sim_goodput g = gw_sim_goodput_of(&f);
    CHECK_NEAR(g.between_failures_s / 3600, 3.09, 0.01);
    CHECK_NEAR(g.best_interval_s, 1156, 12);
    CHECK_NEAR(g.goodput + g.lost_to_checkpoints + g.lost_to_rework + g.lost_to_restarts, 1, 1e-12);
    double best = g.goodput;
    for (double x = 0.25; x < 4.1; x *= 1.2) {
        f.interval_s = x * g.best_interval_s;
        CHECK(gw_sim_goodput_of(&f).goodput <= best + 1e-12);
    }
    f.interval_s = 0;
    f.failures_per_hour = 0;
    CHECK(gw_sim_goodput_of(&f).goodput == 1);
}

/* Ranks that do the same are played once, so the largest published step is some hundred thousand
 * items, and no more of them on twice as many data-parallel ranks. */
TEST_WITHIN(sixteen_thousand_ranks_are_few_events, 300) {
    gw_str text = {0};
    gw_diags dg;
    int64_t before = 0;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(GW_TESTS_DIR "/../examples/llama3-405b.yaml", 1 << 20, &text, &dg), &dg);
    for (int world = 8192; world <= 16384; world *= 2) {
        step *x = gw_mem_zalloc(sizeof *x);
        CHECK(step_try(x, gw_str_c(&text), world));
        gw_machine_spec m = fake_machine(&x->mem, 1.1);
        gw_sim_result r = simulate(x, &m, NULL);
        test_note("%d ranks: %lld events", world, (long long)r.events);
        CHECK_EQ(x->ranks, world);
        CHECK_EQ(r.ranks, 16);
        CHECK(r.events < 1000000 && (before == 0 || r.events < before));
        before = r.events;
        step_release(x);
        gw_mem_free(x);
    }
    gw_str_release(&text);
    gw_diags_release(&dg);
}

// SPDX-License-Identifier: Apache-2.0
// Times that were measured and what is read from them: what was measured is given back, between two
// shapes it changes smoothly, work that nobody measured takes the nearest rate; the file survives
// the way to the disk and back, and is refused where it is broken or of another machine.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h" /* gw_file_read */
#include "base/str.h"
#include "harness.h"
#include "plan/calibrate.h"
#include "plan/simulate.h" /* gw_simulate */
#include "planned.h"       /* PLAN */

/* Products [64 4^i][512] x [512][512]: of f32 at 100 GFLOP/s alone and 60 two side by side, of bf16
 * from 400 to 800, more with more rows. */
enum { SIZES = 5 };

static gw_timing product(const char *types, double rows, double rate, int ranks) {
    double flops = 2 * rows * 512 * 512;
    gw_timing t = {.op = "matmul",
                   .kernel = "onednn-matmul",
                   .shape = {.x = {rows, 512, 512, 1}, .work = flops},
                   .ranks = ranks,
                   .runs = 3,
                   .seconds = flops / rate};
    snprintf(t.shape.types, sizeof t.shape.types, "%s", types);
    return t;
}

static gw_timings made(gw_arena *a) {
    static char host[128], cpu[128];
    gw_timings_host(host, cpu);
    gw_timings t = {.path = "made.json",
                    .host = host,
                    .cpu = cpu,
                    .isa = "AVX-512",
                    .date = "2026-01-01T00:00:00Z",
                    .version = "0",
                    .cores = 2,
                    .memory_bytes = 16e9,
                    .memory_bytes_per_s = 10e9,
                    .storage_read = 1e9,
                    .storage_write = 5e8,
                    .sides = {{1, 2, 1e-4, 1e-6}, {2, 1, 3e-4, 2e-6}},
                    .nsides = 2,
                    .comm = {.cpu = cpu,
                             .cores = 2,
                             .threads = 1,
                             .latency_s = 1e-6,
                             .bytes_per_s = 4e9,
                             .copy_bytes_per_s = 8e9,
                             .sum_bytes_per_s = 6e9}};
    t.timings = gw_arena_new(a, gw_timing, 64);
    for (int i = 0; i < SIZES; i++) {
        double rows = 64 << (2 * i);
        t.timings[t.n++] = product("f32,f32,->f32", rows, 100e9, 1);
        t.timings[t.n++] = product("f32,f32,->f32", rows, 60e9, 2);
        t.timings[t.n++] = product("bf16,bf16,->bf16", rows, 400e9 * (1 + 0.25 * i), 1);
    }
    gw_timings_sort(&t);
    return t;
}

static double ask(const gw_timings *t, const char *types, double rows, int ranks) {
    gw_timing like = product(types, rows, 1, ranks);
    return gw_timings_shape_seconds(t, "matmul", &like.shape, ranks);
}

TEST(measured_shapes_are_given_back) {
    gw_arena a = {0};
    gw_timings t = made(&a);
    for (int i = 0; i < t.n; i++) {
        const gw_timing *x = &t.timings[i];
        double s = gw_timings_shape_seconds(&t, x->op, &x->shape, x->ranks);
        CHECK_NEAR(s / x->seconds, 1, 1e-3);
    }
    CHECK(gw_timings_shape_seconds(&t, "nothing", &t.timings[0].shape, 1) < 0);
    gw_arena_release(&a);
}

TEST(between_two_shapes_the_rate_is_between_theirs) {
    gw_arena a = {0};
    gw_timings t = made(&a);
    double last = 0;
    for (double rows = 64; rows <= 16384; rows *= 1.3) {
        double s = ask(&t, "bf16,bf16,->bf16", rows, 1), rate = 2 * rows * 512 * 512 / s;
        CHECK_MSG(rate >= 400e9 * 0.999 && rate <= 800e9 * 1.001, "%g rows: %g", rows, rate);
        CHECK_MSG(s > last, "%g rows take %g, fewer took %g", rows, s, last);
        last = s;
    }
    /* Outside of what was measured the outermost rate holds, nearly: others are far away. */
    CHECK_NEAR(2 * 1e6 * 512 * 512 / ask(&t, "bf16,bf16,->bf16", 1e6, 1) / 800e9, 1, 0.2);
    gw_arena_release(&a);
}

TEST(dtypes_and_ranks_are_kept_apart) {
    gw_arena a = {0};
    gw_timings t = made(&a);
    double flops = 2.0 * 300 * 512 * 512;
    CHECK_NEAR(flops / ask(&t, "f32,f32,->f32", 300, 1) / 100e9, 1, 0.1);
    CHECK_NEAR(flops / ask(&t, "f32,f32,->f32", 300, 2) / 60e9, 1, 0.1);
    /* Four ranks were not measured: half the share of two. */
    CHECK_NEAR(flops / ask(&t, "f32,f32,->f32", 300, 4) / 30e9, 1, 0.1);
    CHECK_NEAR(gw_timings_peak(&t, GW_F32) / 100e9, 1, 1e-9);
    CHECK_NEAR(gw_timings_peak(&t, GW_BF16) / 800e9, 1, 1e-9);
    CHECK_NEAR(gw_timings_peak(&t, GW_F16), 0, 0);
    CHECK_NEAR(gw_timings_step_seconds(&t, 2), 3e-4, 0);
    gw_arena_release(&a);
}

static bool same(const gw_timings *x, const gw_timings *y) {
    bool same = x->n == y->n && x->nsides == y->nsides && x->cores == y->cores &&
                strcmp(x->host, y->host) == 0 && strcmp(x->date, y->date) == 0;
    for (int i = 0; same && i < x->n; i++) {
        const gw_timing *p = &x->timings[i], *q = &y->timings[i];
        same = strcmp(p->op, q->op) == 0 && strcmp(p->shape.types, q->shape.types) == 0 &&
               p->ranks == q->ranks && p->runs == q->runs &&
               fabs(p->seconds / q->seconds - 1) < 1e-5 &&
               fabs(p->shape.work / q->shape.work - 1) < 1e-5;
    }
    return same;
}

TEST(the_file_reads_as_it_was_written) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_timings t = made(&a), back;
    const char *path = test_tmp_path("calibration.json");
    CHECK_OK(gw_timings_write(path, NULL, &t, &dg), &dg);
    CHECK_OK(gw_timings_read(path, &a, &back, &dg), &dg);
    CHECK(same(&t, &back));
    CHECK_NEAR(back.comm.bytes_per_s, 4e9, 1);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* Writes the file with `from` replaced by `to` and reads it. */
static void refused(const char *from, const char *to, const char *text) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_timings t = made(&a), back;
    gw_str file = {0}, other = {0};
    const char *path = test_tmp_path("broken.json");
    CHECK_OK(gw_timings_write(path, NULL, &t, &dg), &dg);
    CHECK_OK(gw_file_read(path, 0, &file, &dg), &dg);
    const char *at = strstr(gw_str_c(&file), from);
    CHECK_MSG(at, "the file has no %s", from);
    gw_str_printf(&other, "%.*s%s%s", (int)(at - file.data), file.data, to, at + strlen(from));
    CHECK_OK(gw_file_write_atomic(path, other.data, (int64_t)other.len, &dg), &dg);
    CHECK_FAILS(gw_timings_read(path, &a, &back, &dg), &dg, text);
    gw_str_release(&file);
    gw_str_release(&other);
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

TEST(broken_files_are_refused) {
    refused("\"local\":{", "\"local\":{\"local\":", "JSON");
    refused("\"host\":", "\"hast\":", "host");
    refused("\"sides\":[", "\"sides\":3,\"x\":[", "sides");
    refused("\"op\":\"matmul\"", "\"op\":7", "op");
    refused("\"times\":[[", "\"times\":[[-", "times");
    refused("\"shapes\":[", "\"shapes\":[],\"y\":[", "shapes");
    refused("{", "{{", "JSON");
}

TEST(a_file_of_collectives_alone_has_no_times_of_ops) {
    gw_arena a = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_timings t = made(&a), back;
    const char *path = test_tmp_path("collectives.json");
    CHECK_OK(gw_calibration_write(path, NULL, &t.comm, &dg), &dg);
    CHECK_FAILS(gw_timings_read(path, &a, &back, &dg), &dg, "collectives alone");
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

TEST(another_machines_file_is_named_and_not_taken_for_this) {
    gw_arena a = {0};
    gw_diags dg;
    char why[160];
    gw_machine_spec m;
    gw_diags_init(&dg);
    gw_timings t = made(&a);
    const char *path = test_tmp_path("other.json");
    t.host = "no-such-host.example";
    CHECK(!gw_timings_fit_here(&t, why));
    CHECK(strstr(why, "no-such-host.example"));
    CHECK_OK(gw_timings_write(path, NULL, &t, &dg), &dg);
    CHECK_FAILS(gw_machine_measured(path, true, &a, &m, &dg), &dg, "no-such-host.example");
    CHECK_OK(gw_machine_read(path, &a, &m, &dg), &dg);
    CHECK_STR(m.name, "calibrated no-such-host.example");
    CHECK_FAILS(gw_machine_measured(test_tmp_path("absent.json"), true, &a, &m, &dg), &dg,
                "calibrat");
    gw_diags_release(&dg);
    gw_arena_release(&a);
}

/* A convolution's extents are its product's and its filter's; of Muon the matrix, tall or wide. */
TEST(extents_say_what_loops_see) {
    planned p;
    PLAN(&p,
         "model: {family: resnet18, width: 8, image: 16, channels: 1, classes: 10}\n"
         "train: {micro_batch: %d}\noptimizer: {name: sgd}\n",
         4);
    int seen = 0;
    for (int64_t i = 0; i < p.step.ops.count; i++) {
        const gw_op *o = &p.step.ops.items[i];
        gw_timing_shape s;
        gw_cost c = {0};
        if (!gw_str_starts(gw_op_def(&p.step, o)->name, "conv2d")) continue;
        gw_timing_shape_of(&p.step, o, 0, &s);
        gw_op_def(&p.step, o)->cost(&p.step, o, &c);
        CHECK_NEAR(2 * s.x[0] * s.x[1] * s.x[2] * s.x[3] / c.flops, 1, 0.02);
        seen++;
    }
    CHECK(seen > 40); /* 20 layers, each forward and twice back, but for the first */
    planned_release(&p);
    PLAN(&p,
         "model: {family: llama, layers: 1, hidden: 64, heads: 4, ffn: 160, vocab: 320}\n"
         "train: {seq_len: 64, micro_batch: %d}\noptimizer: {name: muon}\n",
         1);
    int wide = 0, tall = 0, square = 0;
    for (int64_t i = 0; i < p.step.ops.count; i++) {
        gw_timing_shape s;
        if (!gw_op_is(&p.step, &p.step.ops.items[i], "muon")) continue;
        gw_timing_shape_of(&p.step, &p.step.ops.items[i], 0, &s);
        double rows = s.x[0], columns = s.x[1];
        wide += rows < columns;
        tall += rows > columns;
        square += rows <= 64 && columns <= 64;
    }
    CHECK_EQ(wide, 1); /* down */
    CHECK_EQ(tall, 2); /* gate, up */
    CHECK_EQ(square, 4);
    planned_release(&p);
}

/* Convolutions of `width` channels, f32 on one rank: what the calibration says of all that are
 * 3 x 3, in FLOPs a second at least and at most. */
static void convolution_rates(int width, double *least, double *most) {
    planned p;
    *least = HUGE_VAL, *most = 0;
    PLAN(&p,
         "model: {family: resnet18, width: %d, image: 32, channels: 1, classes: 10}\n"
         "train: {micro_batch: %d}\noptimizer: {name: sgd}\n",
         width, 4);
    gw_timings t = made(&p.setup.mem);
    t.sides[0].op_s = 0;
    /* Of 20 channels the plain kernel was measured, at 0.4 GFLOP/s; of 16 and 32 the library's. */
    for (int k = 0; k < 3; k++)
        for (int pixels = 16; pixels <= 4096; pixels *= 4) {
            double c[] = {16, 20, 32}, flops = 2 * pixels * c[k] * c[k] * 9;
            t.timings[t.n++] = (gw_timing){
                .op = "conv2d",
                .kernel = k == 1 ? "reference" : "onednn-conv2d",
                .shape = {.types = "f32,f32>f32", .x = {pixels, c[k], c[k], 9}, .work = flops},
                .ranks = 1,
                .runs = 3,
                .seconds = flops / (k == 1 ? 0.4e9 : 100e9)};
        }
    gw_timings_sort(&t);
    for (int64_t i = 0; i < p.step.ops.count; i++) {
        const gw_op *o = &p.step.ops.items[i];
        gw_timing_shape s;
        if (!gw_op_is(&p.step, o, "conv2d")) continue;
        gw_timing_shape_of(&p.step, o, 0, &s);
        double rate = s.work / gw_timings_op_seconds(&t, &p.step, o, 0, 1);
        if (s.x[1] > width || s.x[3] < 9 || s.x[3] > 9) continue;
        *least = fmin(*least, rate);
        *most = fmax(*most, rate);
    }
    planned_release(&p);
}

/* The library convolves channels by eights (kernel/kernels.def); what the plain kernel took beside
 * them says nothing of it, nor the other way round. */
TEST(a_kernel_is_timed_by_its_own_times) {
    double least, most;
    convolution_rates(24, &least, &most);
    CHECK_NEAR(least / 100e9, 1, 1e-6);
    CHECK_NEAR(most / 100e9, 1, 1e-6);
    convolution_rates(20, &least, &most);
    CHECK_NEAR(least / 0.4e9, 1, 1e-6);
    CHECK_NEAR(most / 0.4e9, 1, 1e-6);
}

/* On a measured machine a step of one rank is its ops one after another, and the step's own time.
 */
TEST(a_simulated_step_is_the_sum_of_its_measured_ops) {
    planned p;
    gw_sim_result r;
    gw_machine_spec m;
    PLAN(&p,
         "model: {family: gpt2, layers: 2, hidden: 64, heads: 4, vocab: 320}\n"
         "train: {seq_len: 64, micro_batch: %d}\n",
         2);
    gw_arena *a = &p.setup.mem;
    gw_timings t = made(a);
    const char *path = test_tmp_path("this.json");
    CHECK_OK(gw_timings_write(path, NULL, &t, &p.dg), &p.dg);
    CHECK_OK(gw_machine_read(path, a, &m, &p.dg), &p.dg);
    const gw_graph *g = &p.step;
    double sum = 0;
    for (int64_t i = 0; i < g->ops.count; i++) {
        double s = gw_machine_op_seconds(&m, g, &g->ops.items[i], 0);
        CHECK(s > 0);
        sum += s;
    }
    gw_simulate(&g, 1, &m, &(gw_sim_faults){0}, a, &r, NULL);
    CHECK_NEAR(r.step_s / (sum + 1e-4), 1, 1e-9);
    planned_release(&p);
}

/* Of twice as many rows no op takes less, and all together take longer. */
TEST(more_of_a_program_never_takes_less) {
    planned p[2];
    gw_machine_spec m;
    enum { MOST_OPS = 1024 };
    double took[MOST_OPS], sum[2] = {0, 0};
    for (int k = 0; k < 2; k++) {
        PLAN(&p[k],
             "model: {family: llama, layers: 2, hidden: 64, heads: 4, ffn: 128, vocab: 320}\n"
             "train: {seq_len: 64, micro_batch: %d}\n",
             4 << k);
        gw_timings t = made(&p[k].setup.mem);
        const char *path = test_tmp_path("this.json");
        CHECK_OK(gw_timings_write(path, NULL, &t, &p[k].dg), &p[k].dg);
        CHECK_OK(gw_machine_read(path, &p[k].setup.mem, &m, &p[k].dg), &p[k].dg);
        const gw_graph *g = &p[k].step;
        CHECK(g->ops.count <= MOST_OPS && g->ops.count == p[0].step.ops.count);
        for (int64_t i = 0; i < g->ops.count; i++) {
            double s = gw_machine_op_seconds(&m, g, &g->ops.items[i], 0);
            CHECK_MSG(k == 0 || s >= took[i], "%s: %g s after %g s",
                      gw_op_def(g, &g->ops.items[i])->name, s, took[i]);
            took[i] = s;
            sum[k] += s;
        }
    }
    CHECK_MSG(sum[1] > sum[0], "%g and %g", sum[0], sum[1]);
    planned_release(&p[0]);
    planned_release(&p[1]);
}

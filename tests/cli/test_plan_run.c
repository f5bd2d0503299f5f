// SPDX-License-Identifier: Apache-2.0
// `gradwright plan RUN_DIR`, `plan` on a calibrated machine, and `gradwright calibrate` itself.
#include <sched.h>  /* sched_getaffinity */
#include <string.h> /* strstr */

#include "base/str.h"          /* gw_str */
#include "file/megatron_idx.h" /* gw_midx_writer */
#include "command.h"           /* command_run */
#include "harness.h"           /* TEST, CHECK */
#include "plan/calibrate.h"    /* gw_timings */

static void write_run(const char *more) {
    uint32_t ids[4096];
    gw_midx_writer *w = NULL;
    gw_str text = {0};
    for (uint32_t i = 0; i < GW_COUNT(ids); i++) ids[i] = i * 7919 % 256;
    CHECK_EQ(gw_midx_writer_new(test_tmp_path("tokens"), 256, &w, NULL), GW_OK);
    CHECK_EQ(gw_midx_writer_doc(w, ids, GW_COUNT(ids), NULL), GW_OK);
    CHECK_EQ(gw_midx_writer_finish(w, NULL), GW_OK);
    gw_midx_writer_free(w);
    gw_str_printf(&text,
                  "model: {family: llama, layers: 2, hidden: 32, heads: 2, ffn: 64, vocab: 300}\n"
                  "data: {train: tokens, tokenizer: bytes}\n"
                  "train: {steps: 4, seq_len: 32, micro_batch: 2}\n"
                  "checkpoint: {every: 0}\n%s\n",
                  more);
    command_file("run.yaml", gw_str_c(&text));
    gw_str_release(&text);
}

/* A calibration of this machine in which every op takes what its bytes take at 1 GB/s. */
static void write_calibration(const char *host) {
    char own[128], cpu[128];
    cpu_set_t set;
    CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    gw_timings_host(own, cpu);
    gw_timing one = {.op = "matmul",
                     .kernel = "onednn-matmul",
                     .shape = {.types = "f32,f32,->f32", .x = {64, 64, 64, 1}, .work = 524288},
                     .ranks = 1,
                     .runs = 1,
                     .seconds = 1e-5};
    gw_timings t = {.path = "",
                    .host = host ? host : own,
                    .cpu = cpu,
                    .isa = "plain",
                    .date = "2026-01-01T00:00:00Z",
                    .version = "0",
                    .cores = CPU_COUNT(&set),
                    .memory_bytes_per_s = 1e9,
                    .storage_read = 3e9,
                    .data = {8e7, 2e7, 5e7, NULL},
                    .sides = {{1, CPU_COUNT(&set), 1e-4, 1e-6}},
                    .nsides = 1,
                    .timings = &one,
                    .n = 1,
                    .comm = {.cpu = cpu,
                             .cores = 1,
                             .threads = 1,
                             .latency_s = 1e-6,
                             .bytes_per_s = 4e9,
                             .copy_bytes_per_s = 8e9,
                             .sum_bytes_per_s = 6e9}};
    CHECK_EQ(gw_timings_write(test_tmp_path("calibration.json"), NULL, &t, NULL), GW_OK);
}

/* The row of this name. */
static const json_t *row_of(const json_t *j, const char *name) {
    const json_t *rows = json_object_get(j, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0) return row;
    }
    test_fail(__FILE__, __LINE__, "no row %s", name);
}

static double of(const json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

TEST(a_run_stands_beside_its_plan) {
    gw_str out = {0};
    write_run("");
    write_calibration(NULL);
    CHECK_EQ(command_run_both(&out, "train run.yaml --out one --quiet"), 0);
    json_t *j = command_json("plan one --json"), *summary;
    CHECK_STR(json_string_value(json_object_get(j, "hardware")), "this");
    const json_t *arena = row_of(j, "arena"), *step = row_of(j, "time of a step");
    CHECK(of(arena, "planned") > 0);
    CHECK_NEAR(of(arena, "planned"), of(arena, "measured"), 0);
    summary = json_load_file(test_tmp_path("one/summary.json"), 0, NULL);
    CHECK_NEAR(of(step, "measured"), of(json_object_get(summary, "measured"), "step_s"), 1e-12);
    /* The planned time is that of `plan`, and the ops explain it. */
    json_t *plan = command_json("plan run.yaml --json");
    CHECK_NEAR(of(plan, "step_time_s") / of(step, "planned"), 1, 1e-9);
    double sum = 0;
    const json_t *ops = json_object_get(j, "ops");
    for (size_t i = 0; i < json_array_size(ops); i++)
        sum += of(json_array_get(ops, i), "planned_s");
    CHECK_MSG(sum > 0.5 * of(step, "planned") && sum <= of(step, "planned") * 1.001, "%g", sum);
    CHECK_EQ(command_run_both(&out, "plan one"), 0);
    CHECK(strstr(gw_str_c(&out), "what explains the difference"));
    json_decref(j);
    json_decref(plan);
    json_decref(summary);
    gw_str_release(&out);
}

TEST(bytes_of_ranks_stand_beside_their_plan) {
    gw_str out = {0};
    write_run("layout: {zero: 1}");
    CHECK_EQ(command_run_both(&out, "train run.yaml --ranks 2 --out two --quiet"), 0);
    json_t *j = command_json("plan two --json");
    CHECK(json_is_null(json_object_get(j, "hardware")));
    const json_t *rows = json_object_get(j, "rows");
    int sent = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strncmp(json_string_value(json_object_get(row, "name")), "sent by", 7) != 0) continue;
        CHECK(of(row, "planned") > 0);
        CHECK_NEAR(of(row, "planned"), of(row, "measured"), 0);
        sent++;
    }
    CHECK_MSG(sent >= 2, "%d kinds of collectives", sent);
    CHECK(json_is_null(json_object_get(row_of(j, "time of a step"), "planned")));
    json_decref(j);
    gw_str_release(&out);
}

TEST(a_calibration_of_another_machine_is_not_used) {
    gw_str out = {0};
    write_run("");
    write_calibration("elsewhere.example");
    CHECK_EQ(command_run(&out, "plan run.yaml --json 2>&1 >plan.json"), 0);
    CHECK(strstr(gw_str_c(&out), "elsewhere.example"));
    json_t *j = json_load_file(test_tmp_path("plan.json"), 0, NULL);
    CHECK(j != NULL);
    CHECK(json_object_get(j, "hardware") == NULL);
    json_decref(j);
    CHECK_EQ(command_run_both(&out, "plan run.yaml --hardware this"), 2);
    CHECK(strstr(gw_str_c(&out), "elsewhere.example"));
    j = command_json("plan run.yaml --hardware ./calibration.json --json");
    CHECK_STR(json_string_value(json_object_get(j, "hardware")), "calibrated elsewhere.example");
    json_decref(j);
    gw_str_release(&out);
}

/* Rates of data that were measured here stand in plans for this machine and in explanations; other
 * machines have the stated ones. */
TEST(measured_rates_of_data_are_used) {
    gw_str out = {0};
    write_run("");
    write_calibration(NULL);
    json_t *j = command_json("plan run.yaml --hardware this --json");
    const json_t *data = json_object_get(j, "data"), *rates = json_object_get(data, "rates");
    CHECK_NEAR(of(rates, "tokenize_bytes_per_s"), 8e7, 0);
    CHECK_NEAR(of(rates, "loader_tokens_per_s"), 5e7, 0);
    CHECK(strstr(json_string_value(json_object_get(rates, "source")), "2026-01-01"));
    CHECK_NEAR(of(data, "pipeline_core_days"), of(data, "raw_bytes") / 2e7 / 86400, 1e-12);
    CHECK_NEAR(of(data, "loader_tokens_per_s") * of(j, "step_time_s"), of(j, "tokens_per_step"),
               1e-6);
    CHECK_NEAR(of(data, "tokens"), of(j, "tokens_per_step") * 4, 0); /* train.steps */
    json_decref(j);
    j = command_json("plan run.yaml --hardware h100 --json");
    rates = json_object_get(json_object_get(j, "data"), "rates");
    CHECK_NEAR(of(rates, "loader_tokens_per_s"), GW_DATA_LOADER_RATE, 0);
    CHECK_STR(json_string_value(json_object_get(rates, "source")), GW_DATA_RATES_SOURCE);
    json_decref(j);
    CHECK_EQ(command_run(&out, "explain loader --json"), 0);
    CHECK(strstr(gw_str_c(&out), "50000000") && strstr(gw_str_c(&out), "2026-01-01"));
    gw_str_release(&out);
}

/* The whole of it, with as little time as it takes. */
TEST_LONG(calibrate_writes_what_plan_reads) {
    gw_str out = {0};
    gw_arena a = {0};
    gw_diags dg;
    gw_timings t;
    char why[160];
    gw_diags_init(&dg);
    write_run("");
    CHECK_EQ(command_run_both(
                 &out, "calibrate --ranks 2 --seconds 0.001 --max-size 64KiB --ops-seconds 1"),
             0);
    CHECK_OK(gw_timings_read(test_tmp_path("calibration.json"), &a, &t, &dg), &dg);
    CHECK_MSG(gw_timings_fit_here(&t, why), "%s", why);
    CHECK(t.n > 500);
    CHECK(gw_timings_peak(&t, GW_F32) > 1e8);
    json_t *j = command_json("plan run.yaml --hardware this --json");
    CHECK(of(j, "step_time_s") > 0);
    json_decref(j);
    gw_diags_release(&dg);
    gw_arena_release(&a);
    gw_str_release(&out);
}

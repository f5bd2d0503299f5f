// SPDX-License-Identifier: Apache-2.0
// `gradwright schedule`, and `plan` of a pipeline, as a user and a script meet them.
#include <string.h> /* strstr */

#include "base/io.h"       /* gw_file_read */
#include "base/str.h"      /* gw_str */
#include "command.h"       /* command_run */
#include "harness.h"       /* TEST, CHECK */
#include "plan/timeline.h" /* GW_TIMELINE_FILE */

static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                    "zb-2p", "zbv",  "dualpipev"};

TEST(without_a_name_all_are_listed) {
    gw_str out = {0};
    CHECK_EQ(command_run_both(&out, "schedule"), 0);
    for (size_t i = 0; i < GW_COUNT(names); i++) CHECK(command_says(&out, names[i]));
    gw_str_release(&out);
}

/* What is printed can be loaded, and is the same schedule. */
TEST(the_text_is_a_file_that_loads) {
    gw_str text = {0}, again = {0};
    for (size_t i = 0; i < GW_COUNT(names); i++) {
        CHECK_EQ(command_run_both(&text, "schedule %s -n 4 -m 8 --text", names[i]), 0);
        const char *path = command_file("mine.txt", gw_str_c(&text));
        CHECK_EQ(command_run_both(&again, "schedule '%s' --text", path), 0);
        CHECK_STR(gw_str_c(&again), gw_str_c(&text));
        json_t *a = command_json("schedule %s -n 4 -m 8 --json", names[i]);
        json_t *b = command_json("schedule 'file:%s' --json", path);
        CHECK_NEAR(command_figure(a, "bubble_compute.derived"),
                   command_figure(b, "bubble_compute.derived"), 0);
        CHECK_NEAR(command_figure(a, "idle_longest_span.derived"),
                   command_figure(b, "idle_longest_span.derived"), 0);
        /* a formula is a kind's, and a file has none */
        CHECK(json_is_null(command_at(b, "bubble_compute.formula")));
        json_decref(a);
        json_decref(b);
    }
    gw_str_release(&text);
    gw_str_release(&again);
}

/* (p - 1) / m of computing and (p - 1) / (m + p - 1) of the step; with v stages a rank m is v m. */
TEST(figures_have_both_conventions_beside_the_formula) {
    gw_str out = {0};
    for (int v = 1; v <= 8; v += 7) {
        json_t *j = command_json("schedule %s --ranks 16 --micro-batches 32 --virtual %d --json",
                                 v > 1 ? "interleaved" : "1f1b", v);
        double compute = 15.0 / (32 * v), step = 15.0 / (32 * v + 15);
        CHECK_NEAR(command_figure(j, "bubble_compute.derived"), compute, 1e-9);
        CHECK_NEAR(command_figure(j, "bubble_compute.formula"), compute, 1e-12);
        CHECK_NEAR(command_figure(j, "bubble_step.derived"), step, 1e-9);
        CHECK_NEAR(command_figure(j, "bubble_step.formula"), step, 1e-12);
        json_decref(j);
    }
    CHECK_EQ(command_run_both(&out, "schedule 1f1b -n 16 -m 32"), 0);
    CHECK(command_says(&out, "bubble/compute") && command_says(&out, "46.9 %"));
    CHECK(command_says(&out, "bubble/step") && command_says(&out, "31.9 %"));
    gw_str_release(&out);
}

/* Zero bubble: (p - 1)(F + I - W) of idle time in the longest span, for costs of one's own. */
TEST(costs_are_those_that_are_given) {
    json_t *j = command_json("schedule zb-h1 -n 4 -m 12 --costs 2,1.5,1 --json");
    double idle = 3 * (2 + 1.5 - 1), work = 12 * 4.5;
    CHECK_NEAR(command_figure(j, "idle_longest_span.derived"), idle / (idle + work), 1e-9);
    CHECK_NEAR(command_figure(j, "idle_longest_span.formula"), idle / (idle + work), 1e-9);
    json_decref(j);
    /* messages that take time make every step longer */
    j = command_json("schedule 1f1b -n 4 -m 12 --costs 1,1,1,0.5 --json");
    CHECK(command_figure(j, "step") > 45.0 + 1);
    CHECK(json_is_null(command_at(j, "bubble_step.formula")));
    json_decref(j);
}

TEST(more_memory_is_no_worse) {
    double before = 2;
    for (int memory = 1; memory <= 8; memory *= 2) {
        json_t *j = command_json("schedule zb-2p -n 4 -m 8 --memory %d --json", memory);
        double idle = command_figure(j, "idle_longest_span.derived");
        CHECK(idle <= before + 1e-12);
        before = idle;
        const json_t *ranks = json_object_get(j, "by_rank");
        for (size_t r = 0; r < json_array_size(ranks); r++)
            CHECK(command_figure(json_array_get(ranks, r), "activations_held") <= memory + 1e-9);
        json_decref(j);
    }
    CHECK_NEAR(before, 0, 1e-12);
}

TEST(what_does_not_fit_is_refused_with_the_nearest) {
    static const struct {
        const char *args, *text;
    } cases[] = {{"1f1b -n 4 -m 8 --virtual 3", "the nearest that fits: 4 ranks, 1 stage a rank"},
                 {"interleaved -n 4 -m 9 --virtual 2", "the nearest that fits"},
                 {"interleaved -n 4 -m 8 --virtual 1", "the nearest that fits"},
                 {"zbz -n 4 -m 8", "did you mean 'zbv'"},
                 {"1f1b -n 4", "--micro-batches 8"},
                 {"1f1b -n 0 -m 4", "from 1 to 1024"},
                 {"1f1b -n 4 -m 4 --costs 1,1", "--costs"},
                 {"1f1b -n 4 -m 4 --costs 1,1,1,0,1", "--costs"},
                 {"1f1b -n 4 -m 4 --costs 1,-1,1", "--costs"},
                 {"1f1b -n 4 -m 4 --costs 0,0,0,0", "must take time"},
                 {"1f1b -n 4 -m 4 --memory 2", "one fixed order"},
                 {"zb-2p -n 4 -m 4 --memory 0.5", "memory of 1"},
                 {"zb-2p -n 4 -m 4 --memory -1", "from 1, or 0"},
                 {"zb-2p -n 4 -m 4 --places 0", "from 1 to"},
                 {"1f1b -n 4 -m 4 --text --json", "exclude each other"},
                 {"./no/such.txt", "no/such.txt"}};
    gw_str out = {0};
    for (size_t i = 0; i < GW_COUNT(cases); i++) {
        int rc = command_run_both(&out, "schedule %s", cases[i].args);
        CHECK(rc == 2 || (rc == 1 && cases[i].args[0] == '.'));
        CHECK_MSG(command_says(&out, cases[i].text), "%s: '%s'", cases[i].args, cases[i].text);
    }
    gw_str_release(&out);
}

TEST(a_written_schedule_is_checked) {
    static const char text[] = "schedule mine\nranks 2\nstages 0 1\nmicro-batches 2\n"
                               "rank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 B1.0 F1.1\n";
    gw_str out = {0};
    CHECK_EQ(command_run_both(&out, "schedule '%s'", command_file("mine.txt", text)), 2);
    CHECK(command_says(&out, "mine.txt:") && command_says(&out, "[schedule-invalid]"));
    gw_str_release(&out);
}

static const char *const pipelined =
    "model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320}\n"
    "train: {seq_len: 32, micro_batch: 2, accumulate: 4}\n"
    "layout: {pp: 2, schedule: zb-h1}\n";

/* The simulator's, and a measured one in a run's directory: drawn by the same code. */
TEST(plan_draws_runs_to_be_and_runs_that_were) {
    gw_str out = {0}, svg = {0};
    const char *yaml = command_file("run.yaml", pipelined), *picture = test_tmp_path("run.svg");
    CHECK_EQ(command_run_both(&out, "plan '%s' --timeline --svg '%s'", yaml, picture), 0);
    CHECK(command_says(&out, "zb-h1: 2 ranks, 2 stages, 4 micro-batches"));
    CHECK(command_says(&out, "rank 1") && command_says(&out, "backward, to weights"));
    CHECK_OK(gw_file_read(picture, 0, &svg, NULL), NULL);
    CHECK(command_says(&svg, "<svg") &&
          command_says(&svg, "W1.3: backward to weights, stage 1, micro-batch 3"));

    gw_arena mem = {0};
    gw_timeline t;
    gw_timeline_begin(&t, "zb-h1", 2, "s", &mem);
    for (int m = 0; m < 4; m++)
        for (int r = 0; r < 2; r++)
            gw_timeline_add(&t, r, (gw_action){.act = GW_ACT_F, .stage = (int16_t)r, .micro = m},
                            5 + m + r, 5.5 + m + r);
    gw_str_clear(&out);
    CHECK_OK(gw_timeline_write(&t, test_tmp_path(GW_TIMELINE_FILE), NULL), NULL);
    CHECK_EQ(command_run_both(&out, "plan '%s' --timeline", test_tmpdir()), 0);
    CHECK(command_says(&out, "zb-h1: 2 ranks, 2 stages, 4 micro-batches; a step takes 4.50 s"));
    gw_arena_release(&mem);

    CHECK_EQ(command_run_both(
                 &out, "plan '%s' --timeline --set layout.pp=1 --set layout.schedule=", yaml),
             2);
    CHECK_EQ(command_run_both(&out, "plan gpt2 --timeline"), 2);
    CHECK(command_says(&out, "layout.pp is 1"));
    gw_str_release(&out);
    gw_str_release(&svg);
}

TEST(plan_of_a_pipeline_has_all_ranks_and_judges_by_the_largest) {
    gw_str out = {0};
    const char *yaml = command_file("run.yaml", pipelined);
    json_t *j = command_json("plan '%s' --json", yaml);
    const json_t *p = json_object_get(j, "pipeline"), *ranks = json_object_get(p, "ranks");
    CHECK_EQ(json_array_size(ranks), 2);
    int64_t most = 0;
    for (size_t r = 0; r < 2; r++) {
        const json_t *x = json_array_get(ranks, r);
        most = GW_MAX(most, json_integer_value(json_object_get(x, "total_bytes")));
    }
    int64_t total = json_integer_value(command_at(j, "memory.total_bytes"));
    CHECK_EQ(total, most);
    CHECK_EQ(json_integer_value(json_object_get(j, "pp")), 2);
    json_decref(j);
    CHECK_EQ(command_run_both(&out, "plan '%s' --memory %lld", yaml, (long long)total), 0);
    CHECK(command_says(&out, "fits:"));
    CHECK_EQ(command_run_both(&out, "plan '%s' --memory %lld", yaml, (long long)total - 1), 0);
    CHECK(command_says(&out, "does not fit"));
    gw_str_release(&out);
}

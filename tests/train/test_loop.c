// SPDX-License-Identifier: Apache-2.0
// A whole run: what it leaves in its directory, how it stops and continues.
#include <jansson.h>
#include <string.h>

#include "base/io.h"          /* gw_file_read */
#include "base/log.h"         /* gw_log_set_level */
#include "base/str.h"         /* gw_str */
#include "file/json.h"        /* gw_json_read_file */
#include "file/safetensors.h" /* gw_st_open */
#include "harness.h"
#include "tiny.h"
#include "train/loop.h"
#include "train/metrics.h"
#include "train/session.h"

static gw_status train(const char *dir, bool resume, const char *const *sets,
                       const volatile sig_atomic_t *stop, json_t **summary, gw_diags *dg) {
    gw_runfile rf;
    gw_log_set_level(GW_LOG_QUIET);
    tiny_runfile(&rf, false, sets);
    gw_train_opts o = {.out_dir = dir, .resume = resume, .stop = stop};
    json_t *sum = NULL;
    gw_status st = gw_train_run(&rf, &o, &sum, dg);
    if (summary)
        *summary = sum;
    else
        json_decref(sum);
    gw_runfile_release(&rf);
    return st;
}

static const char *in(const char *name) {
    static char path[16][512];
    static int next;
    char *p = path[next++ % 16];
    snprintf(p, sizeof path[0], "%s/%s", test_tmp_path("run"), name);
    return p;
}

static gw_hash128 file_hash(const char *path) {
    gw_str t = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(path, 0, &t, &dg), &dg);
    gw_hash128 h = gw_hash128_of(t.data, t.len);
    gw_str_release(&t);
    gw_diags_release(&dg);
    return h;
}

TEST(a_run_leaves_what_it_should) {
    gw_diags dg;
    gw_diags_init(&dg);
    json_t *sum = NULL;
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, &sum, &dg), &dg);
    static const char *const files[] = {
        "config.yaml", "plan.json", "metrics.jsonl", "summary.json", "trace.json",
        "report.html", "tb"};
    for (size_t i = 0; i < GW_COUNT(files); i++)
        CHECK_MSG(gw_path_exists(in(files[i])), "%s is missing", files[i]);
    const json_t *planned = json_object_get(sum, "planned");
    const json_t *measured = json_object_get(sum, "measured");
    CHECK(json_integer_value(json_object_get(planned, "arena_bytes")) > 0);
    CHECK_EQ(json_integer_value(json_object_get(planned, "arena_bytes")),
             json_integer_value(json_object_get(measured, "arena_bytes")));
    CHECK(json_integer_value(json_object_get(measured, "process_bytes")) > 0);
    CHECK_NEAR(json_number_value(json_object_get(planned, "flops")),
               json_number_value(json_object_get(measured, "flops")), 0.5);
    CHECK_STR(json_string_value(json_object_get(sum, "status")), "complete");
    /* keep_last 2 of steps 3, 6 and the last */
    CHECK(!gw_path_exists(in("checkpoints/step-00000003")));
    CHECK(gw_path_exists(in("checkpoints/step-00000006/manifest.json")));
    CHECK(gw_path_exists(in("checkpoints/step-00000008/manifest.json")));
    gw_st_set *set = NULL; /* any reader of the format opens it */
    CHECK_OK(gw_st_open(in("checkpoints/step-00000008/rank-00000.safetensors"), &set, &dg), &dg);
    CHECK(gw_st_find(set, "layers.0.attn.q.weight") && gw_st_find(set, "layers.0.attn.q.weight.m"));
    gw_st_free(set);
    json_t *trace = NULL;
    CHECK_OK(gw_json_read_file(in("trace.json"), 0, &trace, &dg), &dg);
    json_decref(trace);
    json_decref(sum);
    gw_diags_release(&dg);
}

TEST(the_report_needs_no_network) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg);
    gw_str html = {0};
    CHECK_OK(gw_file_read(in("report.html"), 0, &html, &dg), &dg);
    const char *text = gw_str_c(&html);
    static const char *const fetches[] = {" src=", "<link", "@import", "url(", "fetch(", "https:"};
    for (size_t i = 0; i < GW_COUNT(fetches); i++)
        CHECK_MSG(!strstr(text, fetches[i]), "the page has '%s'", fetches[i]);
    static const char *const parts[] = {"prefers-color-scheme:dark",
                                        "Loss",
                                        "Learning rate",
                                        "Tokens a second",
                                        "Planned against measured",
                                        "Memory over the ops",
                                        "Where the time goes",
                                        "</html>"};
    for (size_t i = 0; i < GW_COUNT(parts); i++)
        CHECK_MSG(strstr(text, parts[i]), "the page lacks '%s'", parts[i]);
    CHECK(!strstr(text, "nan") && !strstr(text, "inf,"));
    gw_str_release(&html);
    gw_diags_release(&dg);
}

TEST(a_second_run_into_a_directory_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg);
    gw_hash128 before = file_hash(in("metrics.jsonl"));
    CHECK_FAILS(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg, "--resume");
    gw_hash128 after = file_hash(in("metrics.jsonl"));
    CHECK(before.lo == after.lo);
    gw_diags_release(&dg);
}

TEST(resume_in_an_empty_directory_begins_anew) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(train(test_tmp_path("run"), true, NULL, NULL, NULL, &dg), &dg);
    CHECK(gw_path_exists(in("checkpoints/step-00000008/manifest.json")));
    gw_diags_release(&dg);
}

TEST(a_stopped_run_continues_to_the_same_bits) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_arena mem = {0};
    json_t *sum = NULL;
    CHECK_OK(train(test_tmp_path("whole"), false, NULL, NULL, NULL, &dg), &dg);
    volatile sig_atomic_t stop = 1;
    gw_status st = train(test_tmp_path("run"), false, NULL, &stop, &sum, &dg);
    CHECK_EQ(st, GW_ERR_INTERRUPTED);
    CHECK_EQ(gw_status_exit_code(st), 3);
    CHECK(strstr(dg.last->hint, "--resume"));
    CHECK_STR(json_string_value(json_object_get(sum, "status")), "interrupted");
    json_decref(sum);
    CHECK_OK(train(test_tmp_path("run"), true, NULL, NULL, NULL, &dg), &dg);
    const char *data = "checkpoints/step-00000008/rank-00000.safetensors";
    gw_hash128 a = file_hash(in(data));
    char other[600];
    snprintf(other, sizeof other, "%s/%s", test_tmp_path("whole"), data);
    gw_hash128 b = file_hash(other);
    CHECK(a.lo == b.lo && a.hi == b.hi);
    gw_history h;
    CHECK_OK(gw_metrics_read(in("metrics.jsonl"), &mem, &h, &dg), &dg);
    CHECK_EQ(h.nsteps, 8);
    for (int64_t i = 0; i < h.nsteps; i++) CHECK_EQ(h.steps[i].step, i + 1);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST(a_diverging_run_is_an_error_and_its_checkpoint_intact) {
    gw_diags dg;
    gw_diags_init(&dg);
    const char *sets[] = {"optimizer.name=sgd",
                          "optimizer.lr=1000",
                          "optimizer.clip_norm=0",
                          "optimizer.warmup_steps=0",
                          "optimizer.schedule=constant",
                          "checkpoint.every=1",
                          "train.steps=200",
                          NULL};
    gw_status st = train(test_tmp_path("run"), false, sets, NULL, NULL, &dg);
    CHECK_FAILS(st, &dg, "is not finite");
    CHECK_EQ(st, GW_ERR_NUMERIC);
    CHECK_EQ(gw_status_exit_code(st), 1);
    gw_runfile rf;
    gw_session s;
    tiny_runfile(&rf, false, sets);
    gw_diags_clear(&dg);
    CHECK_OK(gw_session_open_params(&s, &rf, test_tmp_path("run"), false, &dg), &dg);
    CHECK(s.resumed >= 1);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

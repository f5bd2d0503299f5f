// SPDX-License-Identifier: Apache-2.0
// A whole run: what it leaves in its directory, how it stops and continues.
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"          /* gw_file_read */
#include "base/log.h"         /* gw_log_set_level */
#include "base/str.h"         /* gw_str */
#include "data/bpe_train.h"   /* gw_bpe_train */
#include "file/json.h"        /* gw_json_read_file */
#include "file/safetensors.h" /* gw_st_open */
#include "harness.h"
#include "tiny.h"
#include "train/loop.h"
#include "train/metrics.h"
#include "train/session.h"
#include "train/weights.h" /* gw_weights_export */

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
    char command[1400];
    snprintf(command, sizeof command, "`gradwright train %s --out %s --resume`", in("config.yaml"),
             test_tmp_path("run"));
    CHECK_MSG(strstr(dg.last->hint, command), "%s", dg.last->hint);
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
    CHECK(strstr(dg.last->hint, "is intact"));
    CHECK(strstr(dg.last->hint, "set optimizer.clip_norm (it is off)"));
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

/* ---- the directory ---- */

TEST(a_directory_in_use_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    int lock = -1;
    char owner[64];
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg);
    CHECK(!gw_path_exists(in(".lock")));
    CHECK_OK(gw_run_lock(test_tmp_path("run"), &lock, &dg), &dg);
    gw_hash128 before = file_hash(in("metrics.jsonl"));
    snprintf(owner, sizeof owner, "in use by process %ld", (long)getpid());
    for (int resume = 0; resume < 2; resume++) {
        gw_status st = train(test_tmp_path("run"), resume, NULL, NULL, NULL, &dg);
        CHECK_FAILS(st, &dg, owner);
        CHECK_EQ(st, GW_ERR_USAGE);
        gw_diags_clear(&dg);
    }
    gw_hash128 after = file_hash(in("metrics.jsonl"));
    CHECK(before.lo == after.lo);
    gw_run_unlock(test_tmp_path("run"), lock);
    CHECK_OK(train(test_tmp_path("run"), true, NULL, NULL, NULL, &dg), &dg);
    gw_diags_release(&dg);
}

TEST(a_file_or_nothing_is_no_run_directory) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path("file"), "x", 1, &dg), &dg);
    gw_status st = train(test_tmp_path("file"), false, NULL, NULL, NULL, &dg);
    CHECK_FAILS(st, &dg, "this is a file");
    CHECK_EQ(st, GW_ERR_USAGE);
    gw_diags_clear(&dg);
    CHECK_FAILS(train("", true, NULL, NULL, NULL, &dg), &dg, "empty name");
    gw_diags_release(&dg);
}

TEST(resuming_a_finished_run_leaves_what_it_told) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg);
    static const char *const kept[] = {"metrics.jsonl", "summary.json", "trace.json"};
    gw_hash128 before[GW_COUNT(kept)];
    for (size_t k = 0; k < GW_COUNT(kept); k++) before[k] = file_hash(in(kept[k]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(train(test_tmp_path("run"), true, NULL, NULL, NULL, &dg), &dg);
    for (size_t k = 0; k < GW_COUNT(kept); k++) {
        gw_hash128 after = file_hash(in(kept[k]));
        CHECK_MSG(before[k].lo == after.lo && before[k].hi == after.hi, "%s", kept[k]);
    }
    gw_diags_release(&dg);
}

TEST(leftovers_of_a_killed_write_go_and_others_stay) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(train(test_tmp_path("run"), false, NULL, NULL, NULL, &dg), &dg);
    CHECK_OK(gw_file_write_atomic(in("summary.json.tmp-77-ab-0"), "x", 1, &dg), &dg);
    CHECK_OK(gw_file_write_atomic(in("mine.json.tmp-77-ab-0"), "x", 1, &dg), &dg);
    CHECK_OK(train(test_tmp_path("run"), true, NULL, NULL, NULL, &dg), &dg);
    CHECK(!gw_path_exists(in("summary.json.tmp-77-ab-0")));
    CHECK(gw_path_exists(in("mine.json.tmp-77-ab-0")));
    gw_diags_release(&dg);
}

/* A run file over the public model in BASE, with paths as they are given. */
static void parse_from(gw_runfile *rf, const char *base, gw_diags *dg) {
    gw_str text = {0};
    gw_str_printf(&text,
                  "model: {path: %s}\ndata: {train: train, valid: valid, tokenizer: tok.json}\n"
                  "train: {steps: 2, seq_len: 24, micro_batch: 2, threads: 1, valid_batches: 1}\n",
                  base);
    CHECK_OK(gw_runfile_parse(rf, "from.yaml", gw_str_c(&text), (int64_t)text.len, NULL, 0, dg),
             dg);
    gw_str_release(&text);
}

static void write_base(gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    gw_token_ids ids = {.bos = -1, .pad = -1};
    tiny_runfile(&rf, false, NULL);
    CHECK_OK(gw_session_open_params(&s, &rf, NULL, false, dg), dg);
    CHECK_OK(gw_dir_make(test_tmp_path("base"), dg), dg);
    CHECK_OK(gw_weights_export(s.x, &s.setup.model, s.setup.params, s.setup.nparams,
                               test_tmp_path("base"), GW_F32, 0, &ids, dg),
             dg);
    gw_session_close(&s);
    gw_runfile_release(&rf);
}

/* A tokenizer of single bytes, and one token that ends a text. */
static void write_tokenizer(gw_diags *dg) {
    static const char text[] = "a small wright makes every step plain";
    gw_str json = {0};
    gw_bpe_train_options o = {.vocab_size = 257};
    CHECK_OK(gw_bpe_train_text(text, sizeof text - 1, &o, &json, NULL, dg), dg);
    CHECK_OK(
        gw_file_write_atomic(test_tmp_path("tok.json"), gw_str_c(&json), (int64_t)json.len, dg),
        dg);
    gw_str_release(&json);
}

TEST(a_run_is_read_when_what_it_began_from_is_gone) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_runfile rf;
    gw_session s;
    json_t *sum = NULL;
    gw_log_set_level(GW_LOG_QUIET);
    write_base(&dg);
    write_tokenizer(&dg);
    CHECK(chdir(test_tmpdir()) == 0); /* relative paths, as people give them */
    parse_from(&rf, "base", &dg);
    gw_train_opts o = {.out_dir = "run"};
    CHECK_OK(gw_train_run(&rf, &o, &sum, &dg), &dg);
    json_decref(sum);
    gw_runfile_release(&rf);
    CHECK(gw_path_exists("run/tokenizer/tokenizer.json") &&
          gw_path_exists("run/model/config.json"));
    CHECK(rename("base", "base.gone") == 0 && rename("tok.json", "tok.gone") == 0);
    CHECK(rename("run", "moved") == 0 && chdir("/") == 0);
    CHECK_OK(gw_runfile_load(&rf, test_tmp_path("moved/config.yaml"), NULL, 0, &dg), &dg);
    CHECK_STR(rf.data.train.items[0].path, test_tmp_path("train")); /* holds from any directory */
    CHECK_OK(gw_session_open_params(&s, &rf, test_tmp_path("moved"), true, &dg), &dg);
    CHECK_EQ(s.resumed, 2);
    CHECK(s.setup.tokenizer);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    const char *sets[] = {"train.steps=3"};
    CHECK_OK(gw_runfile_load(&rf, test_tmp_path("moved/config.yaml"), sets, 1, &dg), &dg);
    gw_train_opts again = {.out_dir = test_tmp_path("moved"), .resume = true};
    CHECK_OK(gw_train_run(&rf, &again, &sum, &dg), &dg);
    CHECK_EQ(json_integer_value(json_object_get(sum, "steps")), 3);
    json_decref(sum);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

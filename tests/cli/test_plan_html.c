// SPDX-License-Identifier: Apache-2.0
// `gradwright plan --html` as it is typed: the page has --json's figures, goes where it is told,
// and names from outside do no harm.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h> /* mkdir, mkfifo */

#include "base/io.h" /* gw_file_read */
#include "base/str.h"
#include "command.h" /* command_run */
#include "harness.h"

static const char *const tiny =
    "model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320}\n"
    "train: {seq_len: 64, micro_batch: 2, accumulate: 4}\n";

/* How many figures the page has; each is the object's to the last bit. Keys that begin with "run."
 * are looked up in `measured`. */
static int compare(const char *page, const json_t *plan, const json_t *measured) {
    int n = 0;
    for (const char *at = page; (at = strstr(at, "<data value=\"")) != NULL; n++) {
        char key[160], *end = NULL;
        double value = strtod(at + 13, &end);
        CHECK(strncmp(end, "\" data-key=\"", 12) == 0);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(end + 12, "\""), end + 12);
        bool ran = strncmp(key, "run.", 4) == 0;
        const json_t *v = ran ? command_at(measured, key + 4) : command_at(plan, key);
        CHECK_MSG(json_is_number(v) && json_number_value(v) == value, "%s: %.17g on the page", key,
                  value);
        at = end;
    }
    return n;
}

TEST(html_has_the_figures_of_json) {
    const char *path = command_file("run.yaml", tiny);
    static const char *const args[] = {
        "--memory 4GB",
        "--memory 2MB",
        "--hardware h100 --memory 4GB",
        "--hardware a100-80g --world 8 --set layout.pp=2 --set layout.tp=2 --memory 4GB",
        "--ranks 2 --set layout.pp=2 --memory 4GB",
    };
    gw_str page = {0};
    for (size_t i = 0; i < GW_COUNT(args); i++) {
        CHECK_EQ(command_run(&page, "plan '%s' %s --html -", path, args[i]), 0);
        CHECK(strncmp(gw_str_c(&page), "<!doctype html>", 15) == 0);
        json_t *j = command_json("plan '%s' %s --json", path, args[i]);
        int n = compare(gw_str_c(&page), j, NULL);
        CHECK_MSG(n > 40, "%d figures", n);
        json_decref(j);
    }
    gw_str_release(&page);
}

TEST(html_goes_where_it_is_told) {
    const char *path = command_file("run.yaml", tiny), *file = test_tmp_path("page.html");
    gw_str out = {0}, page = {0};
    CHECK_EQ(command_run(&out, "plan '%s' --html '%s'", path, file), 0);
    CHECK(gw_str_starts(gw_str_c(&out), file)); /* it says where, and prints no plan */
    CHECK_EQ(gw_file_read(file, 0, &page, NULL), GW_OK);
    CHECK(gw_str_ends(gw_str_c(&page), "</html>\n"));
    CHECK_EQ(command_run(&out, "plan '%s' --html '%s' 2>&1", path, test_tmpdir()), 1);
    CHECK(strstr(gw_str_c(&out), "directory"));
    CHECK_EQ(command_run(&out, "plan '%s' --html '%s/no/such/page.html' 2>&1", path, test_tmpdir()),
             1);
    CHECK_EQ(command_run(&out, "plan '%s' --json --html - 2>&1", path), 2);
    json_decref(command_json("plan '%s' --json --html '%s'", path, file));
    /* A pipe is written, and is a pipe after that. */
    const char *pipe_ = test_tmp_path("pipe");
    CHECK_EQ(mkfifo(pipe_, 0600), 0);
    CHECK_EQ(
        command_run(&out, "plan '%s' --quiet --html '%s' & cat '%s'; wait", path, pipe_, pipe_), 0);
    struct stat st;
    CHECK(lstat(pipe_, &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(strncmp(gw_str_c(&out), "<!doctype html>", 15) == 0);
    CHECK(gw_str_ends(gw_str_c(&out), "</html>\n"));
    gw_str_release(&out);
    gw_str_release(&page);
}

TEST(html_escapes_the_name_of_a_file) {
    const char *path = command_file("<script>alert(1)<&\".yaml", tiny);
    gw_str page = {0};
    CHECK_EQ(command_run(&page, "plan '%s' --html -", path), 0);
    CHECK(!strstr(gw_str_c(&page), "<script>alert"));
    CHECK(strstr(gw_str_c(&page), "&lt;script&gt;alert(1)&lt;&amp;&quot;.yaml"));
    gw_str_release(&page);
}

/* A run's directory: its summary stands beside its plan, its steps are drawn. */
TEST(html_of_a_run_has_what_was_measured) {
    static const char *const summary =
        "{\"name\": \"r\", \"planned\": {\"arena_bytes\": 1000000, \"least_step_s\": 0.5, "
        "\"wire\": "
        "{\"all-reduce\": {\"payload_bytes\": 128, \"moved_bytes\": 256}}},\n"
        " \"measured\": {\"arena_bytes\": 1000000, \"step_s\": 0.75, \"mfu\": 0.25, \"wire\": "
        "{\"all-reduce\": {\"payload_bytes\": 128, \"moved_bytes\": 256}}}}\n";
    static const char *const metrics =
        "{\"step\": 1, \"loss\": 5, \"tokens\": 8, \"step_s\": 9.5}\n"
        "{\"step\": 2, \"loss\": 5, \"tokens\": 16, \"step_s\": 0.75}\n"
        "{\"step\": 3, \"loss\": 5, \"tokens\": 24, \"step_s\": 0.8}\n";
    CHECK_EQ(mkdir(test_tmp_path("r"), 0700), 0);
    command_file("r/config.yaml", tiny);
    command_file("r/plan.json", "{}\n");
    command_file("r/summary.json", summary);
    command_file("r/metrics.jsonl", metrics);
    gw_str page = {0}, text = {0};
    CHECK_EQ(command_run(&page, "plan '%s' --memory 4GB --html -", test_tmp_path("r")), 0);
    json_t *j = command_json("plan '%s' --memory 4GB --json", test_tmp_path("r/config.yaml"));
    json_t *measured = json_loads(summary, 0, NULL);
    CHECK(compare(gw_str_c(&page), j, measured) > 40);
    CHECK(strstr(gw_str_c(&page), "data-key=\"run.measured.step_s\">750 ms<"));
    CHECK(strstr(gw_str_c(&page), "data-key=\"run.measured.wire.all-reduce.moved_bytes\">256 B<"));
    CHECK(strstr(gw_str_c(&page), "step 1: 9.50 s"));
    json_decref(j);
    json_decref(measured);
    command_file("r/summary.json", "{");
    CHECK_EQ(command_run(&text, "plan '%s' --html - 2>&1", test_tmp_path("r")), 1);
    CHECK(strstr(gw_str_c(&text), "summary.json"));
    gw_str_release(&page);
    gw_str_release(&text);
}

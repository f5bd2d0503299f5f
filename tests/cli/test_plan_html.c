// SPDX-License-Identifier: Apache-2.0
// `gradwright plan --html` as it is typed: the page has --json's figures, goes where it is told,
// and names from outside do no harm.
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h> /* mkdir, mkfifo */
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h" /* gw_file_read, gw_path_exists */
#include "base/str.h"
#include "harness.h"

static int run(gw_str *out, const char *fmt, ...) GW_PRINTF(2, 3);
static int run(gw_str *out, const char *fmt, ...) {
    const char *bin = getenv("GW_BIN");
    if (!bin || !gw_path_exists(bin)) SKIP("GW_BIN names no program");
    gw_str cmd = {0};
    va_list ap;
    gw_str_printf(&cmd, "'%s' ", bin);
    va_start(ap, fmt);
    gw_str_vprintf(&cmd, fmt, ap);
    va_end(ap);
    gw_str_clear(out);
    FILE *p = popen(gw_str_c(&cmd), "r");
    CHECK(p != NULL);
    char buf[4096];
    size_t n;
    while ((n = fread(buf, 1, sizeof buf, p)) > 0) gw_str_add_n(out, buf, n);
    int rc = pclose(p);
    test_note("%s -> %d\n%.600s", gw_str_c(&cmd), WEXITSTATUS(rc), gw_str_c(out));
    gw_str_release(&cmd);
    CHECK(WIFEXITED(rc));
    return WEXITSTATUS(rc);
}

static const char *write_file(const char *name, const char *text) {
    const char *path = test_tmp_path(name);
    CHECK_EQ(gw_file_write_atomic(path, text, (int64_t)strlen(text), NULL), GW_OK);
    return path;
}

static const char *const tiny =
    "model: {family: llama, layers: 4, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 320}\n"
    "train: {seq_len: 64, micro_batch: 2, accumulate: 4}\n";

static const json_t *walk(const json_t *j, const char *path) {
    char key[160];
    while (j && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, strtoul(key, NULL, 10)) : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return j;
}

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
        const json_t *v = ran ? walk(measured, key + 4) : walk(plan, key);
        CHECK_MSG(json_is_number(v) && json_number_value(v) == value, "%s: %.17g on the page", key,
                  value);
        at = end;
    }
    return n;
}

static json_t *parse(const gw_str *text) {
    json_error_t e;
    json_t *j = json_loadb(gw_str_c(text), text->len, 0, &e);
    CHECK_MSG(j, "%s", e.text);
    return j;
}

TEST(html_has_the_figures_of_json) {
    const char *path = write_file("run.yaml", tiny);
    static const char *const args[] = {
        "--memory 4GB",
        "--memory 2MB",
        "--hardware h100 --memory 4GB",
        "--hardware a100-80g --world 8 --set layout.pp=2 --set layout.tp=2 --memory 4GB",
        "--ranks 2 --set layout.pp=2 --memory 4GB",
    };
    gw_str page = {0}, text = {0};
    for (size_t i = 0; i < GW_COUNT(args); i++) {
        CHECK_EQ(run(&page, "plan '%s' %s --html -", path, args[i]), 0);
        CHECK(strncmp(gw_str_c(&page), "<!doctype html>", 15) == 0);
        CHECK_EQ(run(&text, "plan '%s' %s --json", path, args[i]), 0);
        json_t *j = parse(&text);
        int n = compare(gw_str_c(&page), j, NULL);
        CHECK_MSG(n > 40, "%d figures", n);
        json_decref(j);
    }
    gw_str_release(&page);
    gw_str_release(&text);
}

TEST(html_goes_where_it_is_told) {
    const char *path = write_file("run.yaml", tiny), *file = test_tmp_path("page.html");
    gw_str out = {0}, page = {0};
    CHECK_EQ(run(&out, "plan '%s' --html '%s'", path, file), 0);
    CHECK(gw_str_starts(gw_str_c(&out), file)); /* it says where, and prints no plan */
    CHECK_EQ(gw_file_read(file, 0, &page, NULL), GW_OK);
    CHECK(gw_str_ends(gw_str_c(&page), "</html>\n"));
    CHECK_EQ(run(&out, "plan '%s' --html '%s' 2>&1", path, test_tmpdir()), 1);
    CHECK(strstr(gw_str_c(&out), "directory"));
    CHECK_EQ(run(&out, "plan '%s' --html '%s/no/such/page.html' 2>&1", path, test_tmpdir()), 1);
    CHECK_EQ(run(&out, "plan '%s' --json --html - 2>&1", path), 2);
    CHECK_EQ(run(&out, "plan '%s' --json --html '%s'", path, file), 0);
    json_decref(parse(&out)); /* nothing but the object */
    /* A pipe is written, and is a pipe after that. */
    const char *pipe_ = test_tmp_path("pipe");
    CHECK_EQ(mkfifo(pipe_, 0600), 0);
    CHECK_EQ(run(&out, "plan '%s' --quiet --html '%s' & cat '%s'; wait", path, pipe_, pipe_), 0);
    struct stat st;
    CHECK(lstat(pipe_, &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(strncmp(gw_str_c(&out), "<!doctype html>", 15) == 0);
    CHECK(gw_str_ends(gw_str_c(&out), "</html>\n"));
    gw_str_release(&out);
    gw_str_release(&page);
}

TEST(html_escapes_the_name_of_a_file) {
    const char *path = write_file("<script>alert(1)<&\".yaml", tiny);
    gw_str page = {0};
    CHECK_EQ(run(&page, "plan '%s' --html -", path), 0);
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
    write_file("r/config.yaml", tiny);
    write_file("r/plan.json", "{}\n");
    write_file("r/summary.json", summary);
    write_file("r/metrics.jsonl", metrics);
    gw_str page = {0}, text = {0}, s = {0};
    gw_str_add(&s, summary);
    CHECK_EQ(run(&page, "plan '%s' --memory 4GB --html -", test_tmp_path("r")), 0);
    CHECK_EQ(run(&text, "plan '%s' --memory 4GB --json", test_tmp_path("r/config.yaml")), 0);
    json_t *j = parse(&text), *measured = parse(&s);
    CHECK(compare(gw_str_c(&page), j, measured) > 40);
    CHECK(strstr(gw_str_c(&page), "data-key=\"run.measured.step_s\">750 ms<"));
    CHECK(strstr(gw_str_c(&page), "data-key=\"run.measured.wire.all-reduce.moved_bytes\">256 B<"));
    CHECK(strstr(gw_str_c(&page), "step 1: 9.50 s"));
    json_decref(j);
    json_decref(measured);
    write_file("r/summary.json", "{");
    CHECK_EQ(run(&text, "plan '%s' --html - 2>&1", test_tmp_path("r")), 1);
    CHECK(strstr(gw_str_c(&text), "summary.json"));
    gw_str_release(&page);
    gw_str_release(&text);
    gw_str_release(&s);
}

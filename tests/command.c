// SPDX-License-Identifier: Apache-2.0
// Command lines run by popen, for the tests of commands. See command.h.
#include "command.h"

#include <stdarg.h>
#include <stdio.h>    /* popen */
#include <stdlib.h>   /* getenv, realpath */
#include <string.h>   /* strstr */
#include <sys/wait.h> /* WEXITSTATUS */

#include "base/io.h" /* gw_file_write_atomic */
#include "harness.h" /* CHECK, SKIP, test_tmpdir */

int command_shell(gw_str *out, const char *line) {
    char buf[4096];
    size_t n;
    gw_str_clear(out);
    FILE *p = popen(line, "r");
    CHECK(p != NULL);
    while ((n = fread(buf, 1, sizeof buf, p)) > 0) gw_str_add_n(out, buf, n);
    int rc = pclose(p);
    test_note("%s -> %d\n%.3000s", line, WEXITSTATUS(rc), gw_str_c(out));
    CHECK_MSG(WIFEXITED(rc), "ended by a signal: %s", line);
    return WEXITSTATUS(rc);
}

static int run(gw_str *out, const char *fmt, va_list ap, const char *end) GW_PRINTF(2, 0);
static int run(gw_str *out, const char *fmt, va_list ap, const char *end) {
    const char *name = getenv("GW_BIN");
    char *bin = name ? realpath(name, NULL) : NULL;
    gw_str line = {0};
    if (!bin) SKIP("GW_BIN names no program");
    gw_str_printf(&line, "cd '%s' && '%s' ", test_tmpdir(), bin);
    gw_str_vprintf(&line, fmt, ap);
    gw_str_add(&line, end);
    int code = command_shell(out, gw_str_c(&line));
    gw_str_release(&line);
    free(bin);
    return code;
}

int command_run(gw_str *out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int code = run(out, fmt, ap, "");
    va_end(ap);
    return code;
}

int command_run_both(gw_str *out, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int code = run(out, fmt, ap, " 2>&1");
    va_end(ap);
    return code;
}

json_t *command_json(const char *fmt, ...) {
    gw_str out = {0};
    json_error_t e;
    va_list ap;
    va_start(ap, fmt);
    CHECK_EQ(run(&out, fmt, ap, ""), 0);
    va_end(ap);
    json_t *j = json_loadb(gw_str_c(&out), out.len, JSON_REJECT_DUPLICATES, &e);
    CHECK_MSG(j, "%s", e.text);
    gw_str_release(&out);
    return j;
}

bool command_says(const gw_str *out, const char *text) {
    return strstr(gw_str_c(out), text) != NULL;
}

json_t *command_at(const json_t *j, const char *path) {
    char key[160];
    json_t *x = NULL;
    while (j && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        x = json_is_array(j) ? json_array_get(j, strtoul(key, NULL, 10)) : json_object_get(j, key);
        j = x;
        path += n + (path[n] == '.');
    }
    return x;
}

double command_figure(const json_t *j, const char *path) {
    const json_t *x = command_at(j, path);
    CHECK_MSG(json_is_number(x), "%s is no number", path);
    return json_number_value(x);
}

const char *command_file(const char *name, const char *text) {
    const char *path = test_tmp_path(name);
    CHECK_EQ(gw_file_write_atomic(path, text, (int64_t)strlen(text), NULL), GW_OK);
    return path;
}

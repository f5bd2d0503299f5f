// SPDX-License-Identifier: Apache-2.0
// The program as a user and a script meet it: a command line is run, and what it says is read.
#ifndef GW_TESTS_COMMAND_H
#define GW_TESTS_COMMAND_H

#include <jansson.h> /* json_t */
#include <stdbool.h>

#include "base/compiler.h" /* GW_PRINTF */
#include "base/str.h"      /* gw_str */

/* Runs `gradwright ARGS` by a shell in the test's temporary folder; returns the exit code, and in
 * `out` what goes to stdout: with "2>&1" among the arguments stderr too. Skips the test where
 * GW_BIN names no program; a signal fails it. */
int command_run(gw_str *out, const char *fmt, ...) GW_PRINTF(2, 3);
/* The same, with stderr among the output. */
int command_run_both(gw_str *out, const char *fmt, ...) GW_PRINTF(2, 3);
/* The same, of a command that must end with 0 and have one JSON value and nothing else on stdout.
 * The caller's, to json_decref. */
json_t *command_json(const char *fmt, ...) GW_PRINTF(1, 2);
/* Any other line of a shell, in the folder where the test runs. */
int command_shell(gw_str *out, const char *line);

bool command_says(const gw_str *out, const char *text);
/* What stands at a path of keys and indices, "parts.0.seconds"; NULL where nothing does. */
json_t *command_at(const json_t *j, const char *path);
/* A number stands there. */
double command_figure(const json_t *j, const char *path);
/* Writes a file into the test's temporary folder; its path, as of test_tmp_path. */
const char *command_file(const char *name, const char *text);

#endif

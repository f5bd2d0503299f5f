// SPDX-License-Identifier: Apache-2.0
// No silent option: every key of the run file is read by the code that trains.
//
// The law is looked for in the sources: the C field of each key is read somewhere outside the files
// that parse and print run files. "train.seed" counts as read where a source of src/train or
// src/cli says train.seed (rf->train.seed), or, in a source that includes train/runfile.h, ->seed.
#include <ftw.h>    /* nftw */
#include <string.h> /* strstr */

#include "base/io.h"           /* gw_file_read */
#include "base/str.h"          /* gw_str */
#include "harness.h"           /* TEST, CHECK */
#include "train/runfile_key.h" /* gw_rf_keys */

enum { MAX_KEYS = 256 };
static bool seen[MAX_KEYS];

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* `before` + `name`, not part of a longer name, not inside a string literal's path. */
static bool reads(const char *text, const char *before, const char *name) {
    size_t n = strlen(before), m = strlen(name);
    for (const char *s = text; (s = strstr(s, before)) != NULL; s += n)
        if (strncmp(s + n, name, m) == 0 && !is_name(s[n + m]) && s[n + m] != '"') return true;
    return false;
}

static void look(const char *text) {
    bool knows = strstr(text, "gw_runfile") != NULL;
    for (int i = 0; i < gw_rf_nkeys && i < MAX_KEYS; i++) {
        const char *path = gw_rf_keys[i].path, *in_section = strchr(path, '.') + 1;
        seen[i] = seen[i] || reads(text, "->", path) || reads(text, ".", path) ||
                  (knows && reads(text, "->", in_section));
    }
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *ftw) {
    (void)st;
    const char *base = path + ftw->base;
    bool parses = gw_str_starts(base, "runfile") || gw_str_starts(base, "yaml") ||
                  gw_str_eq(base, "cmd_config.c") || gw_str_starts(base, "docs_") ||
                  gw_str_starts(base, "cmd_docs") || gw_str_starts(base, "runarg");
    if (kind != FTW_F || parses || !gw_str_ends(path, ".c")) return 0;
    if (!strstr(path, "/train/") && !strstr(path, "/cli/")) return 0;
    gw_diags dg;
    gw_str text = {0};
    gw_diags_init(&dg);
    CHECK_OK(gw_file_read(path, 0, &text, &dg), &dg);
    look(gw_str_c(&text));
    gw_str_release(&text);
    gw_diags_release(&dg);
    return 0;
}

TEST(every_key_is_consumed) {
    CHECK(gw_rf_nkeys <= MAX_KEYS);
    CHECK(nftw(test_source_path("../src"), visit, 16, FTW_PHYS) == 0);
    if (!gw_path_exists(test_source_path("../src/cli/cmd_train.c"))) SKIP("no command trains");
    int unread = 0;
    for (int i = 0; i < gw_rf_nkeys; i++) {
        /* The number of ranks enters through train.global_batch, in the parser itself. */
        if (seen[i] || gw_str_eq(gw_rf_keys[i].path, "layout.dp")) continue;
        test_note("no source of src/train or src/cli reads %s", gw_rf_keys[i].path);
        unread++;
    }
    CHECK_MSG(unread == 0, "%d keys are read by nothing", unread);
}

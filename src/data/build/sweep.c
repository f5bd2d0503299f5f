// SPDX-License-Identifier: Apache-2.0
// What a killed build leaves behind.
//
// A file is written under a temporary name and renamed when it is whole, so a process that is
// killed leaves temporary names. They are in nobody's way, but a build that is killed often would
// fill the disk. Only names that builds give are touched, and only in the folders that they make.
#include "data/build/sweep.h" /* this module's contract */

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h" /* GW_COUNT */
#include "base/str.h"      /* gw_str_starts */

static bool is_ours(const char *name) {
    static const char *const begins[] = {"unit-",     "band-",      "removed.",   "shard.",
                                         "tokens-",   "mds-",       "seen.",      "part-",
                                         "megatron-", "times.json", "shards.",    "manifest.",
                                         "report.",   "index.json", "substrings."};
    if (!strstr(name, ".tmp-") && !strstr(name, ".tmp.")) return false;
    for (size_t i = 0; i < GW_COUNT(begins); i++)
        if (gw_str_starts(name, begins[i])) return true;
    return false;
}

/* Removes entries of a folder: temporary names, or all of them. */
static void sweep(const char *path, bool all) {
    DIR *d = opendir(path);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (all ? e->d_name[0] != '.' : is_ours(e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

static void sweep_fetched(const char *work) {
    DIR *d = opendir(work);
    const struct dirent *e;
    gw_str path = {0};
    while (d && (e = readdir(d))) {
        if (!gw_str_starts(e->d_name, "fetch-")) continue;
        gw_str_clear(&path);
        gw_str_printf(&path, "%s/%s", work, e->d_name);
        sweep(gw_str_c(&path), true);
        rmdir(gw_str_c(&path));
    }
    if (d) closedir(d);
    gw_str_release(&path);
}

void gw_build_sweep(const char *out) {
    static const char *const folders[] = {"",
                                          "/work",
                                          "/work/dedup",
                                          "/work/spans/lines",
                                          "/work/spans/paragraphs",
                                          "/work/spans/sentences",
                                          "/work/bloom",
                                          "/work/substring",
                                          "/mds",
                                          "/megatron"};
    gw_str path = {0};
    for (size_t i = 0; i < GW_COUNT(folders); i++) {
        gw_str_clear(&path);
        gw_str_printf(&path, "%s%s", out, folders[i]);
        sweep(gw_str_c(&path), false);
    }
    gw_str_clear(&path);
    gw_str_printf(&path, "%s/work", out);
    sweep_fetched(gw_str_c(&path));
    gw_str_release(&path);
}

// SPDX-License-Identifier: Apache-2.0
// What a killed build leaves behind.
//
// A file is written under a temporary name and renamed when it is whole, so a process that is
// killed leaves temporary names. They are in nobody's way, but a build that is killed often would
// fill the disk. Only names that builds give are touched, and only in the folders that they make,
// or beside the files that the pipeline names (an index sweeps its own folder: dedup_index.c).
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

/* Of datatrove's signature files. */
static bool is_signature(const char *name) {
    const char *end = name + strspn(name, "0123456789");
    return end > name &&
           (gw_str_starts(end, ".minhash.sig.tmp-") || gw_str_starts(end, ".remove.tmp-"));
}

static bool is_any(const char *name) { return name[0] != '.'; }

static void sweep(const char *path, bool (*goes)(const char *name)) {
    DIR *d = opendir(path);
    const struct dirent *e;
    while (d && (e = readdir(d)))
        if (goes(e->d_name)) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

/* Sweeps the folders in `path` whose names begin so; with is_any the folders go too. */
static void sweep_folders(const char *path, const char *begin, bool (*goes)(const char *name)) {
    DIR *d = opendir(path);
    const struct dirent *e;
    gw_str folder = {0};
    while (d && (e = readdir(d))) {
        if (!gw_str_starts(e->d_name, begin)) continue;
        gw_str_clear(&folder);
        gw_str_printf(&folder, "%s/%s", path, e->d_name);
        sweep(gw_str_c(&folder), goes);
        if (goes == is_any) rmdir(gw_str_c(&folder));
    }
    if (d) closedir(d);
    gw_str_release(&folder);
}

/* FILE.tmp-... and FILE.xxh128.tmp-..., beside FILE. */
static void sweep_beside(const char *file) {
    const char *slash = strrchr(file, '/'), *base = slash ? slash + 1 : file;
    gw_str folder = {0};
    if (slash)
        gw_str_add_n(&folder, file, (size_t)(slash - file) + 1);
    else
        gw_str_add(&folder, ".");
    DIR *d = opendir(gw_str_c(&folder));
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (!gw_str_starts(e->d_name, base)) continue;
        const char *end = e->d_name + strlen(base);
        if (gw_str_starts(end, ".tmp-") || gw_str_starts(end, ".xxh128.tmp-"))
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
    gw_str_release(&folder);
}

void gw_build_sweep(const gw_pipeline *p) {
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
        gw_str_printf(&path, "%s%s", p->output.dir, folders[i]);
        sweep(gw_str_c(&path), is_ours);
    }
    gw_str_clear(&path);
    gw_str_printf(&path, "%s/work", p->output.dir);
    sweep_folders(gw_str_c(&path), "fetch-", is_any);
    gw_str_release(&path);
    if (p->dedup.signatures) {
        sweep_folders(p->dedup.signatures, "bucket_", is_signature);
        sweep_folders(p->dedup.signatures, "removed", is_signature);
    }
    if (p->dedup.bloom_out) sweep_beside(p->dedup.bloom_out);
}

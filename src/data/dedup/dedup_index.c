// SPDX-License-Identifier: Apache-2.0
// The files of an index: which there are, and whether they belong together.
//
// An index is a folder with a file for each task of the run that wrote it (band-BBB-PP.index):
// sorted keys, under the tag of the recipe that made them. Nothing else says how many bands and
// parts it has, so that is read off the names, and a file that is missing among them is an error: a
// run against half an index would keep documents that the other half knows.
//
// The tag of the run that wrote a file stands in its meta, because the recipe's tag alone cannot
// tell a file of this run from one of an earlier build into the same folder.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"            /* gw_arena */
#include "base/io.h"               /* gw_path_exists */
#include "data/dedup/dedup_impl.h" /* gw_dedup_index_path */

bool gw_dedup_index_written(const gw_dedup_options *o, int64_t t) {
    gw_arena a = {0};
    gw_recs f;
    if (!o->index_out) return true;
    const char *path = gw_dedup_index_path(o->index_out, t, o->parts, &a);
    bool is = gw_path_exists(path) && gw_recs_open(path, 2, &f, NULL) == GW_OK;
    if (is) {
        is = f.tag == o->recipe && f.meta[GW_META_RUN] == o->tag;
        gw_recs_close(&f);
    }
    gw_arena_release(&a);
    return is;
}

void gw_dedup_index_sweep(const gw_dedup_options *o) {
    DIR *d = o->index_out ? opendir(o->index_out) : NULL;
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        int band, part, end = 0;
        bool is = sscanf(e->d_name, "band-%5d-%3d.index%n", &band, &part, &end) == 2 && end > 0;
        bool temporary = is && strncmp(e->d_name + end, ".tmp-", 5) == 0;
        bool other = is && !e->d_name[end] && (band >= o->bands || part >= o->parts);
        if (temporary || other) unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d) closedir(d);
}

/* Parts of band 0, then bands; both end at the first name that is not there. */
static void count_files(const char *folder, gw_dedup_index_info *x, gw_arena *a) {
    while (x->parts < 256 && gw_path_exists(gw_dedup_index_path(folder, x->parts, 256, a)))
        x->parts++;
    while (x->parts && x->bands < 65535 &&
           gw_path_exists(gw_dedup_index_path(folder, (int64_t)x->bands * x->parts, x->parts, a)))
        x->bands++;
}

static gw_status lacks(const char *folder, int64_t task, int parts, gw_diags *dg) {
    gw_arena a = {0};
    gw_diag *g =
        gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "dedup-index", (gw_where){.file = folder},
                    "this index lacks its file '%s'", gw_dedup_index_path(folder, task, parts, &a));
    gw_diag_hint(dg, g, "run the build that wrote the index again, which makes the file anew");
    gw_arena_release(&a);
    return GW_ERR_FORMAT;
}

/* A name beyond those that were counted tells of one that is missing before it. */
static gw_status check_names(const char *folder, const gw_dedup_index_info *x, gw_diags *dg) {
    DIR *d = opendir(folder);
    const struct dirent *e;
    int band, part, end, beyond = 0, later = 0;
    while (d && (e = readdir(d))) {
        end = 0;
        if (sscanf(e->d_name, "band-%5d-%3d.index%n", &band, &part, &end) != 2 || end == 0)
            continue;
        if (e->d_name[end]) continue;
        beyond |= part >= x->parts;
        later |= band >= x->bands;
    }
    if (d) closedir(d);
    if (beyond) return lacks(folder, x->parts, 256, dg);
    return later ? lacks(folder, (int64_t)x->bands * x->parts, x->parts, dg) : GW_OK;
}

gw_status gw_dedup_index_bands(const char *folder, const gw_dedup_index_info *x, int bands,
                               gw_diags *dg) {
    if (x->bands >= bands) return GW_OK;
    return lacks(folder, (int64_t)x->bands * x->parts, x->parts, dg);
}

static gw_status add_file(const char *path, bool first, gw_dedup_index_info *x, gw_hasher *h,
                          gw_diags *dg) {
    gw_recs f;
    GW_TRY(gw_recs_open(path, 2, &f, dg));
    gw_status st = GW_OK;
    if (f.nsections != 1 || (!first && f.tag != x->recipe)) {
        gw_diag *g =
            gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "dedup-index", (gw_where){.file = path},
                        "this file belongs to another index than those beside it");
        gw_diag_hint(dg, g, "%s", GW_RECS_ANEW);
        st = GW_ERR_FORMAT;
    } else {
        x->recipe = f.tag;
        x->keys += f.records;
        gw_hasher_add(h, &f.sections[0].hash, sizeof f.sections[0].hash);
        gw_hasher_add(h, &f.records, sizeof f.records);
    }
    gw_recs_close(&f);
    return st;
}

static gw_status add_files(const char *folder, gw_dedup_index_info *x, gw_arena *a, gw_diags *dg) {
    if (x->parts == 0)
        return gw_fail_at(dg, GW_ERR_IO, "dedup-index", (gw_where){.file = folder},
                          "there is no index in this folder (band-000-00.index)");
    gw_hasher *h = gw_hasher_new();
    gw_status st = GW_OK;
    for (int64_t t = 0; t < (int64_t)x->bands * x->parts && st == GW_OK; t++)
        st = add_file(gw_dedup_index_path(folder, t, x->parts, a), t == 0, x, h, dg);
    x->content = gw_hasher_get(h);
    gw_hasher_free(h);
    return st;
}

gw_status gw_dedup_index_look(const char *folder, gw_dedup_index_info *out, gw_diags *dg) {
    gw_arena a = {0};
    *out = (gw_dedup_index_info){0};
    count_files(folder, out, &a);
    gw_status st = check_names(folder, out, dg);
    if (st == GW_OK) st = add_files(folder, out, &a, dg);
    gw_arena_release(&a);
    return st;
}

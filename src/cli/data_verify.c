// SPDX-License-Identifier: Apache-2.0
// `gradwright data verify`: is every byte the one that was written?
//
// Each kind of path has its own proof: shards have checksums per MiB beside them and hashes in
// their index, tables a checksum for each column of each block, dedup's records a hash for each
// section, archives their members' checks and digests. What is wrong is named by file and offset,
// everything is looked at before the verdict, and the exit code says which it is.
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"            /* gw_path_join */
#include "base/str.h"           /* gw_fmt_bytes */
#include "cli/data_tools.h"     /* this module's contract */
#include "data/build/columns.h" /* gw_columns_verify */
#include "data/build/sums.h"    /* gw_sums_verify */
#include "data/dedup/records.h" /* gw_recs_verify */
#include "data/source.h"        /* gw_source */
#include "file/json.h"          /* gw_json_read_file */
#include "file/mds.h"           /* gw_mds_file_check */
#include "file/megatron_idx.h"  /* gw_midx_open */

typedef struct tally {
    int64_t files, bytes, bad;
} tally;

static gw_status worse(gw_status a, gw_status b) { return a != GW_OK ? a : b; }

static gw_status count(tally *t, const char *path, gw_status st) {
    gw_mapping m;
    t->files++;
    t->bad += st != GW_OK;
    if (gw_map_open(&m, path, NULL) == GW_OK) {
        t->bytes += m.bytes;
        gw_map_release(&m);
    }
    return st;
}

static bool has_sums(gw_cli *cli, const char *path) {
    return gw_path_exists(gw_arena_printf(cli->arena, "%s" GW_SUMS_END, path));
}

static gw_status verify_table(gw_cli *cli, const char *path, tally *t) {
    gw_columns *c = NULL;
    gw_status st = gw_columns_open(path, &c, cli->diags);
    if (st == GW_OK) st = gw_columns_verify(c, NULL, cli->diags);
    gw_columns_close(c);
    return count(t, path, st);
}

static gw_status verify_mds_file(gw_cli *cli, const char *dir, const gw_mds_file *f, tally *t) {
    const char *path = gw_path_join(cli->arena, dir, f->name);
    gw_mapping m;
    gw_status st = gw_map_open(&m, path, cli->diags);
    if (st != GW_OK) return count(t, path, st);
    if (has_sums(cli, path)) st = gw_sums_verify(path, NULL, cli->diags);
    if (st == GW_OK) st = gw_mds_file_check(f, m.data, m.bytes, path, cli->diags);
    gw_map_release(&m);
    return count(t, path, st);
}

static gw_status verify_mds(gw_cli *cli, const char *dir, tally *t) {
    gw_mds_index x;
    gw_status all = GW_OK;
    GW_TRY(gw_mds_index_read(cli->arena, dir, &x, cli->diags));
    for (int64_t i = 0; i < x.nshards; i++) {
        const gw_mds_shard *s = &x.shards[i];
        all = worse(all, verify_mds_file(cli, dir, s->zip.name ? &s->zip : &s->raw, t));
    }
    return all;
}

static gw_status verify_megatron(gw_cli *cli, const char *path, tally *t) {
    static const char *const ends[] = {".bin", ".idx"};
    const char *prefix = gw_data_prefix(cli, path);
    gw_midx *m = NULL;
    gw_status all = GW_OK;
    for (int i = 0; i < 2; i++) {
        const char *file = gw_arena_printf(cli->arena, "%s%s", prefix, ends[i]);
        gw_status st = has_sums(cli, file) ? gw_sums_verify(file, NULL, cli->diags) : GW_OK;
        all = worse(all, count(t, file, st));
    }
    all = worse(all, gw_midx_open(prefix, &m, cli->diags));
    gw_midx_free(m);
    return all;
}

static gw_status verify_source(gw_cli *cli, const char *path, tally *t) {
    gw_source *s = NULL;
    gw_doc doc = {0};
    bool more = true;
    gw_status st = gw_source_open(NULL, path, &s, cli->diags);
    while (st == GW_OK && more) st = gw_source_next(s, &doc, &more, cli->diags);
    if (st == GW_OK && gw_source_get_report(s).digests_bad)
        st = gw_fail_at(cli->diags, GW_ERR_FORMAT, "data-checksum", (gw_where){.file = path},
                        "%lld records are not what their digests say",
                        (long long)gw_source_get_report(s).digests_bad);
    gw_source_free(s);
    gw_str_release(&doc.text);
    return count(t, path, st);
}

static gw_status verify_shard_files(gw_cli *cli, const char *dir, const json_t *shards, tally *t) {
    gw_status all = GW_OK;
    for (size_t i = 0; i < json_array_size(shards); i++) {
        const json_t *files = json_object_get(json_array_get(shards, i), "files");
        for (size_t k = 0; k < json_array_size(files); k++) {
            const char *name = json_string_value(json_object_get(json_array_get(files, k), "file"));
            if (!name) continue;
            const char *path = gw_path_join(cli->arena, dir, name);
            all = worse(all, count(t, path, gw_sums_verify(path, NULL, cli->diags)));
        }
    }
    return all;
}

/* What dedup has written below work/, the folder itself included. */
static gw_status verify_records(gw_cli *cli, const char *dir, tally *t) {
    static const char *const ends[] = {".keys", ".recs", ".seen", ".sets", ".shingles", ".index"};
    gw_status all = GW_OK;
    DIR *d = opendir(dir);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        const char *path = gw_path_join(cli->arena, dir, e->d_name);
        bool is = false;
        for (size_t i = 0; i < GW_COUNT(ends); i++) is = is || gw_str_ends(e->d_name, ends[i]);
        if (gw_path_is_dir(path))
            all = worse(all, verify_records(cli, path, t));
        else if (gw_str_ends(e->d_name, ".cut"))
            all = worse(all, verify_table(cli, path, t));
        else if (is)
            all = worse(all, count(t, path, gw_recs_verify(path, cli->diags)));
    }
    if (d) closedir(d);
    return all;
}

static gw_status verify_built(gw_cli *cli, const char *dir, tally *t) {
    static const char *const ends[] = {".docs", ".keep", ".toks"};
    const char *file = gw_path_join(cli->arena, dir, "manifest.json");
    const char *mds = gw_path_join(cli->arena, dir, "mds");
    json_t *m = NULL;
    int64_t n;
    gw_status all = GW_OK;
    if (!gw_path_exists(file))
        all = GW_FAIL(cli->diags, GW_ERR_IO, "data-unfinished",
                      "'%s' has no manifest.json: its build has not ended", dir);
    else
        all = gw_json_read_file(file, 0, &m, cli->diags);
    all = worse(all, verify_shard_files(cli, dir, json_object_get(m, "shards"), t));
    tally seen = {0}; /* the same files once more, by the hashes of their index */
    if (gw_path_exists(gw_path_join(cli->arena, mds, "index.json")))
        all = worse(all, verify_mds(cli, mds, &seen));
    for (size_t e = 0; e < GW_COUNT(ends); e++) {
        const char **tables = gw_data_tables(cli, dir, ends[e], &n);
        for (int64_t i = 0; i < n; i++) all = worse(all, verify_table(cli, tables[i], t));
    }
    all = worse(all, verify_records(cli, gw_path_join(cli->arena, dir, "work"), t));
    json_decref(m);
    return all;
}

static gw_status verify_one(gw_cli *cli, const char *path, tally *t) {
    switch (gw_data_kind_of(cli, path)) {
    case GW_DATA_BUILT: return verify_built(cli, path, t);
    case GW_DATA_TABLE: return verify_table(cli, path, t);
    case GW_DATA_MDS: return verify_mds(cli, path, t);
    case GW_DATA_MEGATRON: return verify_megatron(cli, path, t);
    case GW_DATA_SOURCE: return verify_source(cli, path, t);
    }
    return GW_OK;
}

gw_status gw_data_verify(gw_cli *cli, int n, const char *const *paths) {
    gw_status all = GW_OK;
    tally t = {0};
    char bytes[24];
    for (int i = 0; i < n; i++) all = worse(all, gw_data_need(cli, paths[i]));
    GW_TRY(all);
    for (int i = 0; i < n; i++) all = worse(all, verify_one(cli, paths[i], &t));
    if (gw_cli_flag(cli, "json"))
        fprintf(cli->out, "{\"files\": %lld, \"bytes\": %lld, \"bad\": %lld, \"ok\": %s}\n",
                (long long)t.files, (long long)t.bytes, (long long)t.bad,
                all == GW_OK ? "true" : "false");
    else if (!cli->quiet)
        fprintf(cli->out, "%lld files, %s: %s\n", (long long)t.files, gw_fmt_bytes(bytes, t.bytes),
                all == GW_OK ? "whole" : "damaged");
    return all;
}

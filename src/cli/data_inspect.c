// SPDX-License-Identifier: Apache-2.0
// `gradwright data inspect`: what a path holds, whatever of ours or of the public formats it is.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dirent.h>

#include "base/io.h"            /* gw_path_join */
#include "base/map.h"           /* GW_VEC */
#include "base/str.h"           /* gw_fmt_bytes */
#include "base/term.h"          /* gw_table */
#include "cli/data_tools.h"     /* this module's contract */
#include "cli/runarg.h"         /* gw_cli_need_path */
#include "data/build/columns.h" /* gw_columns */
#include "data/source.h"        /* gw_source */
#include "file/json.h"          /* gw_json_read_file */
#include "file/mds.h"           /* gw_mds_index_read */
#include "file/megatron_idx.h"  /* gw_midx_open */

// ------------------------------------------------------------------ what it is

const char *gw_data_prefix(gw_cli *cli, const char *path) {
    size_t n = strlen(path);
    if (n > 4 && (gw_str_ends(path, ".bin") || gw_str_ends(path, ".idx"))) n -= 4;
    return gw_arena_strndup(cli->arena, path, n);
}

static bool is_megatron(gw_cli *cli, const char *path) {
    const char *prefix = gw_data_prefix(cli, path);
    return gw_path_exists(gw_arena_printf(cli->arena, "%s.idx", prefix)) &&
           gw_path_exists(gw_arena_printf(cli->arena, "%s.bin", prefix));
}

gw_data_kind gw_data_kind_of(gw_cli *cli, const char *path) {
    if (gw_path_is_dir(path)) {
        if (gw_path_exists(gw_path_join(cli->arena, path, "manifest.json")) ||
            gw_path_is_dir(gw_path_join(cli->arena, path, "work")))
            return GW_DATA_BUILT;
        if (gw_path_exists(gw_path_join(cli->arena, path, "index.json"))) return GW_DATA_MDS;
        return is_megatron(cli, path) ? GW_DATA_MEGATRON : GW_DATA_SOURCE;
    }
    if (gw_path_exists(path) && gw_columns_is_file(path)) return GW_DATA_TABLE;
    return is_megatron(cli, path) ? GW_DATA_MEGATRON : GW_DATA_SOURCE;
}

gw_status gw_data_need(gw_cli *cli, const char *path) {
    return is_megatron(cli, path) ? GW_OK : gw_cli_need_path(cli, path);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char **gw_data_tables(gw_cli *cli, const char *path, const char *ending, int64_t *n) {
    GW_VEC(const char *) found = {0};
    const char *dir = gw_path_join(cli->arena, path, "work");
    DIR *d = opendir(gw_path_is_dir(dir) ? dir : path);
    const struct dirent *e;
    if (!gw_path_is_dir(dir)) dir = path;
    if (!gw_path_is_dir(path)) gw_vec_push(&found, path);
    while (d && (e = readdir(d)))
        if (gw_str_starts(e->d_name, "unit-") && gw_str_ends(e->d_name, ending))
            gw_vec_push(&found, gw_path_join(cli->arena, dir, e->d_name));
    if (d) closedir(d);
    if (found.count > 1) qsort(found.items, (size_t)found.count, sizeof *found.items, by_text);
    *n = found.count;
    const char **list =
        gw_arena_dup(cli->arena, found.items, found.count * (int64_t)sizeof *found.items);
    gw_vec_release(&found);
    return list;
}

// ------------------------------------------------------------------ each kind

static int64_t number(const json_t *o, const char *key) {
    return json_integer_value(json_object_get(o, key));
}

static gw_status of_build(gw_cli *cli, const char *path, json_t *out) {
    json_t *m = NULL;
    const char *file = gw_path_join(cli->arena, path, "manifest.json");
    json_object_set_new(out, "kind", json_string("build"));
    if (!gw_path_exists(file))
        return GW_FAIL(cli->diags, GW_ERR_IO, "data-unfinished",
                       "'%s' has no manifest.json: its build has not ended", path);
    GW_TRY(gw_json_read_file(file, 0, &m, cli->diags));
    json_object_set(out, "boundaries", json_object_get(m, "boundaries"));
    json_object_set(out, "tokenizer", json_object_get(m, "tokenizer"));
    json_object_set(out, "filters", json_object_get(m, "filters"));
    json_object_set(out, "shards", json_object_get(m, "shards"));
    json_decref(m);
    return GW_OK;
}

static gw_status of_table(gw_cli *cli, const char *path, json_t *out) {
    gw_columns *c = NULL;
    char hash[33];
    json_t *columns = json_array();
    json_object_set_new(out, "kind", json_string("table"));
    json_object_set_new(out, "columns", columns);
    GW_TRY(gw_columns_open(path, &c, cli->diags));
    json_object_set_new(out, "rows", json_integer(gw_columns_rows(c)));
    json_object_set_new(out, "blocks", json_integer(gw_columns_blocks(c)));
    json_object_set_new(out, "content", json_string(gw_hash128_hex(hash, gw_columns_content(c))));
    for (int i = 0; i < gw_columns_count(c); i++) {
        const gw_column *col = gw_columns_column(c, i);
        json_array_append_new(columns,
                              json_pack("{s:s, s:s, s:i, s:I}", "name", col->name, "type",
                                        gw_column_type_name(col->type), "width", col->width,
                                        "bytes", (json_int_t)gw_columns_stored_bytes(c, i)));
    }
    json_object_set_new(out, "meta", json_deep_copy(gw_columns_meta(c)));
    gw_columns_close(c);
    return GW_OK;
}

static gw_status of_mds(gw_cli *cli, const char *path, json_t *out) {
    gw_mds_index x;
    json_t *shards = json_array();
    json_object_set_new(out, "kind", json_string("mds"));
    json_object_set_new(out, "shards", shards);
    GW_TRY(gw_mds_index_read(cli->arena, path, &x, cli->diags));
    json_object_set_new(out, "samples", json_integer(x.samples));
    if (x.tokens >= 0) json_object_set_new(out, "tokens", json_integer(x.tokens));
    for (int64_t i = 0; i < x.nshards; i++) {
        const gw_mds_shard *s = &x.shards[i];
        const gw_mds_file *f = s->zip.name ? &s->zip : &s->raw;
        json_t *o = json_pack("{s:s, s:I, s:I}", "file", f->name, "bytes", (json_int_t)f->bytes,
                              "samples", (json_int_t)s->samples);
        json_t *columns = json_object();
        for (int c = 0; c < s->ncolumns; c++)
            json_object_set_new(columns, s->columns[c].name, json_string(s->columns[c].encoding));
        json_object_set_new(o, "columns", columns);
        json_array_append_new(shards, o);
    }
    return GW_OK;
}

static gw_status of_megatron(gw_cli *cli, const char *path, json_t *out) {
    gw_midx *m = NULL;
    json_object_set_new(out, "kind", json_string("megatron"));
    GW_TRY(gw_midx_open(gw_data_prefix(cli, path), &m, cli->diags));
    json_object_set_new(out, "documents", json_integer(gw_midx_ndocs(m)));
    json_object_set_new(out, "sequences", json_integer(gw_midx_nseqs(m)));
    json_object_set_new(out, "tokens", json_integer(gw_midx_ntokens(m)));
    json_object_set_new(out, "token_bytes", json_integer(gw_midx_elem_bytes(m)));
    gw_midx_free(m);
    return GW_OK;
}

static void add_damage(const gw_source_report *r, json_t *out) {
    json_t *list = json_array();
    for (int i = 0; i < r->ndamaged; i++)
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:s}", "offset", (json_int_t)r->damaged[i].offset, "line",
                            (json_int_t)r->damaged[i].line, "why", r->damaged[i].why));
    json_object_set_new(out, "damages", json_integer(r->damages));
    json_object_set_new(out, "damaged", list);
}

/* Reads it to its end. Damage is a result here, and an exit code of 1. */
static gw_status of_source(gw_cli *cli, const char *path, json_t *out) {
    gw_source *s = NULL;
    gw_doc doc = {0};
    bool more = true;
    int64_t media[3] = {0};
    json_object_set_new(out, "kind", json_string("source"));
    GW_TRY(gw_source_open(NULL, path, &s, cli->diags));
    gw_status st = GW_OK;
    while (st == GW_OK && more) {
        st = gw_source_next(s, &doc, &more, cli->diags);
        if (st == GW_OK && more) media[doc.media]++;
    }
    gw_source_report r = gw_source_get_report(s);
    json_object_set_new(out, "records", json_integer(r.records));
    json_object_set_new(out, "documents", json_integer(r.documents));
    json_object_set_new(out, "html", json_integer(media[GW_MEDIA_HTML]));
    json_object_set_new(out, "text", json_integer(media[GW_MEDIA_TEXT]));
    json_object_set_new(out, "not_page", json_integer(r.not_page));
    json_object_set_new(out, "other_type", json_integer(r.other_type));
    json_object_set_new(out, "too_long", json_integer(r.too_long));
    json_object_set_new(out, "digests_good", json_integer(r.digests_good));
    json_object_set_new(out, "digests_bad", json_integer(r.digests_bad));
    json_object_set_new(out, "bytes_in", json_integer(r.bytes_in));
    json_object_set_new(out, "bytes_out", json_integer(r.bytes_out));
    json_object_set_new(out, "raw_bytes", json_integer(r.raw_bytes));
    add_damage(&r, out);
    gw_str_release(&doc.text);
    gw_source_free(s);
    return st;
}

// ------------------------------------------------------------------ printing

static void print_scalars(const gw_cli *cli, const json_t *o) {
    const char *key;
    json_t *v, *all = json_deep_copy(o);
    gw_table *t = gw_table_new("ll");
    json_object_foreach(all, key, v) {
        char text[32];
        if (json_is_integer(v)) gw_table_row(t, key, gw_fmt_count(text, json_integer_value(v)));
        if (json_is_string(v)) gw_table_row(t, key, json_string_value(v));
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
    json_decref(all);
}

/* A list of objects as a table of their scalar members. */
static void print_list(const gw_cli *cli, const char *name, const json_t *list) {
    size_t n = json_array_size(list), most = 40;
    if (n == 0) return;
    fprintf(cli->out, "\n%s\n", name);
    for (size_t i = 0; i < GW_MIN(n, most); i++) {
        char *text = json_dumps(json_array_get(list, i), JSON_ENCODE_ANY);
        fprintf(cli->out, "  %s\n", text ? text : "");
        free(text);
    }
    if (n > most) fprintf(cli->out, "  ... %zu more (--json has all)\n", n - most);
}

static void print_columns(const gw_cli *cli, const json_t *list) {
    gw_table *t = gw_table_new("llr");
    gw_table_row(t, "column", "type", "stored");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *c = json_array_get(list, i);
        char type[32], bytes[24];
        snprintf(type, sizeof type, "%s x %" PRId64, json_string_value(json_object_get(c, "type")),
                 number(c, "width"));
        gw_table_row(t, json_string_value(json_object_get(c, "name")), type,
                     gw_fmt_bytes(bytes, number(c, "bytes")));
    }
    gw_table_print(t, cli->out, "");
    gw_table_free(t);
}

static void print_one(const gw_cli *cli, const json_t *o) {
    static const char *const lists[] = {"boundaries", "shards", "damaged"};
    print_scalars(cli, o);
    if (json_object_get(o, "columns")) print_columns(cli, json_object_get(o, "columns"));
    for (size_t i = 0; i < GW_COUNT(lists); i++)
        print_list(cli, lists[i], json_object_get(o, lists[i]));
}

gw_status gw_data_inspect(gw_cli *cli, int n, const char *const *paths) {
    gw_status all = GW_OK;
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_t *o = json_object();
        json_t *path = json_string(paths[i]);
        gw_status st = gw_data_need(cli, paths[i]);
        if (path) json_object_set_new(o, "path", path);
        if (st == GW_OK) switch (gw_data_kind_of(cli, paths[i])) {
            case GW_DATA_BUILT: st = of_build(cli, paths[i], o); break;
            case GW_DATA_TABLE: st = of_table(cli, paths[i], o); break;
            case GW_DATA_MDS: st = of_mds(cli, paths[i], o); break;
            case GW_DATA_MEGATRON: st = of_megatron(cli, paths[i], o); break;
            case GW_DATA_SOURCE: st = of_source(cli, paths[i], o); break;
            }
        if (st != GW_OK) all = all == GW_OK ? st : all;
        bool something = json_object_size(o) > 2;
        if (something && !gw_cli_flag(cli, "json")) print_one(cli, o);
        json_array_append_new(list, o);
    }
    if (gw_cli_flag(cli, "json")) {
        json_dumpf(list, cli->out, JSON_INDENT(1));
        fputc('\n', cli->out);
    }
    json_decref(list);
    return all;
}

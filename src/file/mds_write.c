// SPDX-License-Identifier: Apache-2.0
// Writing MDS.
//
// Samples wait in memory, encoded one after another, until one more would make the shard's file
// larger than its limit; then the file is laid out, compressed if that was asked for, hashed and
// written under a temporary name that becomes its own when all of it is on disk. Where shards end,
// their bytes and their names are those of the library's own writer for the same samples and
// settings, so a set can be written by one and checked against the other.
//
// The index comes last: a directory that has one is whole. What it says of our own (the tokens of
// each shard) stands in a member of the top object, which the library's reader passes over; in a
// shard's own object it would refuse what it does not know.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/map.h"  /* GW_VEC */
#include "file/json.h" /* gw_json_parse */
#include "file/mds.h"  /* gw_mds_writer */

enum { DEFAULT_LIMIT = 1 << 26, DEFAULT_LEVEL = 3 };

struct gw_mds_writer {
    gw_arena mem;
    const char *dir, *compression;
    int level;
    int ncolumns;
    gw_mds_column *columns; /* sorted by name */
    int *given;             /* [ncolumns] which of the caller's a sorted one is */
    int *sorted;            /* the other way round */
    const char **hashes;    /* sorted */
    int nhashes;
    int64_t limit, first, nshards;
    gw_str config; /* the JSON inside every shard */
    gw_str samples;
    GW_VEC(uint32_t) ends; /* of samples, from the first's beginning */
    int64_t tokens;
    gw_str entries;
};

/* ---- settings ---- */

static int by_name(const void *a, const void *b, void *names) {
    const char *const *n = names;
    return strcmp(n[*(const int *)a], n[*(const int *)b]);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static gw_status take_columns(gw_mds_writer *w, const gw_mds_writer_options *o, gw_diags *dg) {
    int n = w->ncolumns = o->ncolumns;
    if (n < 1) return GW_FAIL(dg, GW_ERR_CONFIG, "mds-columns", "a sample needs a column");
    const char **names = gw_arena_dup(&w->mem, o->names, n * (int64_t)sizeof *names);
    w->columns = gw_arena_new(&w->mem, gw_mds_column, n);
    w->given = gw_arena_new(&w->mem, int, n);
    w->sorted = gw_arena_new(&w->mem, int, n);
    for (int i = 0; i < n; i++) w->given[i] = i;
    qsort_r(w->given, (size_t)n, sizeof *w->given, by_name, names);
    for (int i = 0; i < n; i++) {
        int g = w->given[i];
        w->sorted[g] = i;
        GW_TRY(
            gw_mds_column_parse(&w->mem, o->names[g], o->encodings[g], w->dir, &w->columns[i], dg));
        if (i > 0 && strcmp(w->columns[i - 1].name, w->columns[i].name) == 0)
            return GW_FAIL(dg, GW_ERR_CONFIG, "mds-columns", "two columns are named '%s'",
                           w->columns[i].name);
    }
    return GW_OK;
}

static gw_status take_compression(gw_mds_writer *w, const char *compression, gw_diags *dg) {
    int64_t level = DEFAULT_LEVEL;
    if (!compression) return GW_OK;
    bool known = strncmp(compression, "zstd", 4) == 0;
    if (known && compression[4])
        known = compression[4] == ':' && gw_parse_i64(compression + 5, &level) && level >= 1 &&
                level <= 22;
    if (!known)
        return GW_FAIL(dg, GW_ERR_CONFIG, "mds-compression",
                       "compression '%s' is not zstd:1 to zstd:22", compression);
    w->compression = gw_arena_strdup(&w->mem, compression);
    w->level = (int)level;
    return GW_OK;
}

static gw_status take_hashes(gw_mds_writer *w, const gw_mds_writer_options *o, gw_diags *dg) {
    gw_str hex = {0};
    gw_status st = GW_OK;
    w->nhashes = o->nhashes;
    w->hashes = gw_arena_new(&w->mem, const char *, o->nhashes + 1);
    for (int i = 0; i < o->nhashes && st == GW_OK; i++) {
        w->hashes[i] = gw_arena_strdup(&w->mem, o->hashes[i]);
        if (!gw_mds_hash_hex(o->hashes[i], "", 0, &hex))
            st =
                GW_FAIL(dg, GW_ERR_CONFIG, "mds-hash", "there is no hash named '%s'", o->hashes[i]);
    }
    gw_str_release(&hex);
    qsort(w->hashes, (size_t)w->nhashes, sizeof *w->hashes, by_text);
    return st;
}

/* Members that a shard's JSON and its entry in the index share. */
static json_t *settings(const gw_mds_writer *w) {
    json_t *names = json_array(), *encodings = json_array(), *sizes = json_array(),
           *hashes = json_array();
    for (int i = 0; i < w->ncolumns; i++) {
        const gw_mds_column *c = &w->columns[i];
        json_array_append_new(names, json_string(c->name));
        json_array_append_new(encodings, json_string(c->encoding));
        json_array_append_new(sizes, c->bytes ? json_integer(c->bytes) : json_null());
    }
    for (int i = 0; i < w->nhashes; i++) json_array_append_new(hashes, json_string(w->hashes[i]));
    return json_pack("{s:i, s:s, s:s?, s:o, s:I, s:o, s:o, s:o}", "version", 2, "format", "mds",
                     "compression", w->compression, "hashes", hashes, "size_limit",
                     (json_int_t)w->limit, "column_names", names, "column_encodings", encodings,
                     "column_sizes", sizes);
}

static void add_json(gw_str *out, json_t *o) {
    char *text = json_dumps(o, JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    if (text) gw_str_add(out, text);
    free(text);
    json_decref(o);
}

static gw_status take_options(gw_mds_writer *w, const gw_mds_writer_options *o, gw_diags *dg) {
    w->dir = gw_arena_strdup(&w->mem, o->dir);
    w->limit = o->size_limit ? o->size_limit : DEFAULT_LIMIT;
    w->first = o->first_shard;
    if (w->limit < 1 || w->limit > UINT32_MAX)
        return GW_FAIL(dg, GW_ERR_CONFIG, "mds-limit",
                       "a shard of %lld bytes: the format's offsets have 32 bits",
                       (long long)w->limit);
    GW_TRY(take_columns(w, o, dg));
    GW_TRY(take_compression(w, o->compression, dg));
    GW_TRY(take_hashes(w, o, dg));
    add_json(&w->config, settings(w));
    return gw_dir_make(w->dir, dg);
}

gw_status gw_mds_writer_new(const gw_mds_writer_options *o, gw_mds_writer **out, gw_diags *dg) {
    gw_mds_writer *w = gw_mem_zalloc(sizeof *w);
    gw_status st = take_options(w, o, dg);
    *out = st == GW_OK ? w : NULL;
    if (st != GW_OK) gw_mds_writer_free(w);
    return st;
}

void gw_mds_writer_free(gw_mds_writer *w) {
    if (!w) return;
    gw_str_release(&w->config);
    gw_str_release(&w->samples);
    gw_str_release(&w->entries);
    gw_vec_release(&w->ends);
    gw_arena_release(&w->mem);
    gw_mem_free(w);
}

const gw_mds_column *gw_mds_writer_column(const gw_mds_writer *w, int given) {
    return &w->columns[w->sorted[given]];
}

/* ---- samples ---- */

static void add_u32(gw_str *out, int64_t v) {
    for (int i = 0; i < 4; i++) gw_str_add_char(out, (char)((uint64_t)v >> (8 * i)));
}

/* Bytes of a file with n samples of `bytes` in all. */
static int64_t file_bytes(const gw_mds_writer *w, int64_t n, int64_t bytes) {
    return 4 + 4 * (n + 1) + (int64_t)w->config.len + bytes;
}

static gw_status measure(const gw_mds_writer *w, const gw_mds_value *values, int64_t *bytes,
                         gw_diags *dg) {
    *bytes = 0;
    for (int i = 0; i < w->ncolumns; i++) {
        const gw_mds_column *c = &w->columns[i];
        int64_t n = values[w->given[i]].n;
        if (c->bytes && n != c->bytes)
            return gw_fail_at(dg, GW_ERR_FORMAT, "mds-value", (gw_where){.file = w->dir},
                              "a value of column '%s' has %lld bytes; %s has %lld", c->name,
                              (long long)n, c->encoding, (long long)c->bytes);
        *bytes += n + (c->bytes ? 0 : 4);
    }
    if (file_bytes(w, 1, *bytes) <= UINT32_MAX) return GW_OK;
    return gw_fail_at(dg, GW_ERR_FORMAT, "mds-value", (gw_where){.file = w->dir},
                      "a sample of %lld bytes: no shard can hold it", (long long)*bytes);
}

gw_status gw_mds_writer_add(gw_mds_writer *w, const gw_mds_value *values, int64_t tokens,
                            gw_diags *dg) {
    int64_t bytes, n = w->ends.count;
    GW_TRY(measure(w, values, &bytes, dg));
    /* The library's sum: its 4 bytes of header, its last offset, and 4 a sample. */
    int64_t size = 4 + 4 + (int64_t)w->config.len + (int64_t)w->samples.len + 4 * n + bytes + 4;
    if (n > 0 && (size > w->limit ||
                  file_bytes(w, n + 1, (int64_t)w->samples.len + bytes) > (int64_t)UINT32_MAX))
        GW_TRY(gw_mds_writer_flush(w, dg));
    for (int i = 0; i < w->ncolumns; i++)
        if (!w->columns[i].bytes) add_u32(&w->samples, values[w->given[i]].n);
    for (int i = 0; i < w->ncolumns; i++) {
        const gw_mds_value *v = &values[w->given[i]];
        if (v->n > 0) gw_str_add_n(&w->samples, v->bytes, (size_t)v->n);
    }
    gw_vec_push(&w->ends, (uint32_t)w->samples.len);
    w->tokens += tokens;
    return GW_OK;
}

/* ---- shards ---- */

static void lay_out(const gw_mds_writer *w, gw_str *file) {
    int64_t n = w->ends.count, begin = file_bytes(w, n, 0);
    gw_str_reserve(file, (size_t)begin + w->samples.len);
    add_u32(file, n);
    add_u32(file, begin);
    for (int64_t i = 0; i < n; i++) add_u32(file, begin + w->ends.items[i]);
    gw_str_add_n(file, w->config.data, w->config.len);
    gw_str_add_n(file, w->samples.data, w->samples.len);
}

static json_t *file_info(const gw_mds_writer *w, const char *name, const gw_str *bytes) {
    gw_str hex = {0};
    json_t *hashes = json_object();
    for (int i = 0; i < w->nhashes; i++) {
        (void)gw_mds_hash_hex(w->hashes[i], bytes->data, (int64_t)bytes->len, &hex);
        json_object_set_new(hashes, w->hashes[i], json_string(gw_str_c(&hex)));
    }
    gw_str_release(&hex);
    return json_pack("{s:s, s:I, s:o}", "basename", name, "bytes", (json_int_t)bytes->len, "hashes",
                     hashes);
}

static gw_status zip(const gw_mds_writer *w, const gw_str *raw, gw_str *out, gw_diags *dg) {
    gw_str_reserve(out, ZSTD_compressBound(raw->len));
    size_t n = ZSTD_compress(out->data, out->cap, raw->data, raw->len, w->level);
    if (ZSTD_isError(n))
        return gw_fail_at(dg, GW_ERR_MEMORY, "mds-compression", (gw_where){.file = w->dir},
                          "a shard cannot be compressed: %s", ZSTD_getErrorName(n));
    out->len = n;
    return GW_OK;
}

static gw_status write_shard(gw_mds_writer *w, const gw_str *raw, gw_str *zipped, gw_diags *dg) {
    char name[40], zip_name[48];
    gw_arena mem = {0};
    snprintf(name, sizeof name, "shard.%05lld.mds", (long long)(w->first + w->nshards));
    snprintf(zip_name, sizeof zip_name, "%s.zstd", name);
    gw_status st = w->compression ? zip(w, raw, zipped, dg) : GW_OK;
    const gw_str *file = w->compression ? zipped : raw;
    const char *path = gw_path_join(&mem, w->dir, w->compression ? zip_name : name);
    if (st == GW_OK) st = gw_file_write_atomic(path, file->data, (int64_t)file->len, dg);
    if (st == GW_OK) {
        json_t *o = settings(w);
        json_object_set_new(o, "samples", json_integer(w->ends.count));
        json_object_set_new(o, "tokens", json_integer(w->tokens));
        json_object_set_new(o, "raw_data", file_info(w, name, raw));
        json_object_set_new(o, "zip_data",
                            w->compression ? file_info(w, zip_name, zipped) : json_null());
        if (w->nshards > 0) gw_str_add(&w->entries, ", ");
        add_json(&w->entries, o);
        w->nshards++;
    }
    gw_arena_release(&mem);
    return st;
}

gw_status gw_mds_writer_flush(gw_mds_writer *w, gw_diags *dg) {
    if (w->ends.count == 0) return GW_OK;
    gw_str raw = {0}, zipped = {0};
    lay_out(w, &raw);
    gw_status st = write_shard(w, &raw, &zipped, dg);
    gw_str_release(&raw);
    gw_str_release(&zipped);
    gw_str_clear(&w->samples);
    w->ends.count = w->tokens = 0;
    return st;
}

int64_t gw_mds_writer_shards(const gw_mds_writer *w) { return w->nshards; }
const char *gw_mds_writer_entries(const gw_mds_writer *w) { return gw_str_c(&w->entries); }

/* ---- the index ---- */

/* Takes "tokens" out of every shard into one list. */
static void move_tokens(json_t *shards, json_t *tokens) {
    for (size_t i = 0; i < json_array_size(shards); i++) {
        json_t *o = json_array_get(shards, i), *t = json_object_get(o, "tokens");
        json_array_append(tokens, t);
        json_object_del(o, "tokens");
    }
}

gw_status gw_mds_index_write(const char *dir, const char *const *entries, int n, gw_diags *dg) {
    gw_str text = {0};
    gw_arena mem = {0};
    json_t *shards = NULL;
    const char *joint = "", *path = gw_path_join(&mem, dir, "index.json");
    gw_str_add_char(&text, '[');
    for (int i = 0; i < n; i++) {
        if (!*entries[i]) continue;
        gw_str_printf(&text, "%s%s", joint, entries[i]);
        joint = ", ";
    }
    gw_str_add_char(&text, ']');
    gw_status st = gw_json_parse(gw_str_c(&text), text.len, path, &shards, dg);
    if (st == GW_OK) {
        json_t *tokens = json_array();
        move_tokens(shards, tokens);
        gw_str_clear(&text);
        add_json(&text, json_pack("{s:i, s:o, s:{s:o}}", "version", 2, "shards", shards,
                                  "gradwright", "tokens", tokens));
        st = gw_file_write_atomic(path, gw_str_c(&text), (int64_t)text.len, dg);
    }
    gw_str_release(&text);
    gw_arena_release(&mem);
    return st;
}

gw_status gw_mds_writer_finish(gw_mds_writer *w, gw_diags *dg) {
    GW_TRY(gw_mds_writer_flush(w, dg));
    const char *entries = gw_str_c(&w->entries);
    return gw_mds_index_write(w->dir, &entries, 1, dg);
}

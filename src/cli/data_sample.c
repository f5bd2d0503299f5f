// SPDX-License-Identifier: Apache-2.0
// `gradwright data sample`: some documents of anything, the same ones for the same seed.
//
// Which ones is decided by a hash of seed and number, so the choice does not depend on how a file
// is read. Rows of tables are read by block. An archive is read through once, with the chosen ones
// so far kept, since its documents cannot be counted without reading it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"            /* gw_path_join */
#include "base/map.h"           /* GW_VEC */
#include "base/rng.h"           /* gw_rng_permute */
#include "cli/data_tools.h"     /* this module's contract */
#include "data/build/columns.h" /* gw_columns */
#include "data/source.h"        /* gw_source */
#include "data/text/extract.h"  /* gw_extract_doc */
#include "data/tokenizer.h"     /* gw_tokenizer */
#include "file/json.h"          /* gw_json_text_n */
#include "file/mds.h"           /* gw_mds */
#include "file/megatron_idx.h"  /* gw_midx */

typedef struct sampler {
    gw_cli *cli;
    int64_t count;
    gw_rng_key key;
    gw_tokenizer *t;
    json_t *out;
    const char *path;
    gw_str text;
} sampler;

static void show(sampler *s, int64_t number, const char *url, int64_t nurl, const char *text,
                 int64_t n, const char *note) {
    json_array_append_new(s->out,
                          json_pack("{s:s, s:I, s:o, s:s, s:o}", "path", s->path, "number",
                                    (json_int_t)number, "url", gw_json_text_n(url, (size_t)nurl),
                                    "note", note, "text", gw_json_text_n(text, (size_t)n)));
}

/* The chosen numbers below n, ascending. */
static int64_t choose(const sampler *s, int64_t n, int64_t *out) {
    int64_t k = GW_MIN(s->count, n);
    for (int64_t i = 0; i < k; i++) {
        int64_t x = (int64_t)gw_rng_permute(s->key, (uint64_t)n, (uint64_t)i), at = i;
        while (at > 0 && out[at - 1] > x) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = x;
    }
    return k;
}

// ------------------------------------------------------------------ tokens

static gw_status show_tokens(sampler *s, int64_t number, const int32_t *ids, int64_t n) {
    gw_str_clear(&s->text);
    if (s->t) {
        GW_TRY(gw_tokenizer_decode(s->t, ids, n, false, &s->text, s->cli->diags));
    } else {
        for (int64_t i = 0; i < GW_MIN(n, 32); i++)
            gw_str_printf(&s->text, "%s%d", i ? " " : "", (int)ids[i]);
        if (n > 32) gw_str_add(&s->text, " ...");
    }
    char note[48];
    snprintf(note, sizeof note, "%" PRId64 " tokens", n);
    show(s, number, "", 0, gw_str_c(&s->text), (int64_t)s->text.len, note);
    return GW_OK;
}

static gw_status of_megatron(sampler *s, const char *path) {
    gw_midx *m = NULL;
    GW_TRY(gw_midx_open(gw_data_prefix(s->cli, path), &m, s->cli->diags));
    int64_t *rows = gw_arena_new(s->cli->arena, int64_t, s->count);
    int64_t n = choose(s, gw_midx_ndocs(m), rows);
    GW_VEC(int32_t) ids = {0};
    gw_status st = GW_OK;
    for (int64_t i = 0; i < n && st == GW_OK; i++) {
        int64_t first, seqs;
        ids.count = 0;
        gw_midx_doc(m, rows[i], &first, &seqs);
        for (int64_t q = first; q < first + seqs && st == GW_OK; q++) {
            int64_t k = gw_midx_seq_tokens(m, q), had = ids.count;
            for (int64_t z = 0; z < k; z++) gw_vec_push(&ids, 0);
            if (k) st = gw_midx_read(m, q, 0, k, (uint32_t *)ids.items + had, s->cli->diags);
        }
        if (st == GW_OK) st = show_tokens(s, rows[i], ids.items, ids.count);
    }
    gw_vec_release(&ids);
    gw_midx_free(m);
    return st;
}

/* Ids of an integer array; false for another kind. */
static bool array_ids(const gw_mds_array *a, int32_t *out) {
    int width = gw_mds_element_bytes(a->element);
    if (a->element == GW_MDS_F16 || a->element == GW_MDS_F32 || a->element == GW_MDS_F64)
        return false;
    for (int64_t i = 0; i < a->count; i++) {
        uint64_t x = 0;
        for (int b = 0; b < width; b++) x |= (uint64_t)a->data[i * width + b] << (8 * b);
        out[i] = (int32_t)x;
    }
    return true;
}

static gw_status mds_one(sampler *s, const gw_mds_view *v, int64_t in_shard, int64_t number) {
    int text = gw_mds_column_find(v->shard, "text"),
        tokens = gw_mds_column_find(v->shard, "tokens");
    const uint8_t *value;
    int64_t n;
    gw_mds_array a;
    if (text >= 0) {
        GW_TRY(gw_mds_view_value(v, in_shard, text, &value, &n, s->cli->diags));
        show(s, number, "", 0, (const char *)value, n, "");
        return GW_OK;
    }
    if (tokens < 0) tokens = 0;
    GW_TRY(gw_mds_view_value(v, in_shard, tokens, &value, &n, s->cli->diags));
    if (v->shard->columns[tokens].kind == GW_MDS_NDARRAY &&
        gw_mds_array_read(&v->shard->columns[tokens], value, n, &a)) {
        int32_t *ids = gw_mem_alloc((size_t)(a.count + 1) * sizeof *ids);
        gw_status st = array_ids(&a, ids) ? show_tokens(s, number, ids, a.count) : GW_OK;
        gw_mem_free(ids);
        return st;
    }
    show(s, number, "", 0, (const char *)value, GW_MIN(n, 4096), "bytes");
    return GW_OK;
}

static gw_status of_mds(sampler *s, const char *path) {
    gw_mds *m = NULL;
    GW_TRY(gw_mds_open(path, false, &m, s->cli->diags));
    int64_t *rows = gw_arena_new(s->cli->arena, int64_t, s->count);
    int64_t n = choose(s, gw_mds_get_index(m)->samples, rows);
    gw_status st = GW_OK;
    for (int64_t i = 0; i < n && st == GW_OK; i++) {
        const gw_mds_view *v;
        int64_t in_shard;
        st = gw_mds_get(m, rows[i], &v, &in_shard, s->cli->diags);
        if (st == GW_OK) st = mds_one(s, v, in_shard, rows[i]);
    }
    gw_mds_close(m);
    return st;
}

// ------------------------------------------------------------------ tables

static gw_status table_row(sampler *s, const gw_columns *c, int64_t row, int64_t number) {
    gw_column_data text = {0}, url = {0};
    int tc = gw_columns_find(c, "text"), uc = gw_columns_find(c, "url");
    int64_t block = 0, first = 0, n = 0, nurl = 0;
    const char *u = "";
    if (tc < 0) return gw_cli_usage_error(s->cli, "'%s' has no column 'text'", gw_columns_path(c));
    while (row >= first + gw_columns_block_rows(c, block))
        first += gw_columns_block_rows(c, block++);
    gw_status st = gw_columns_read(c, tc, block, &text, s->cli->diags);
    if (st == GW_OK && uc >= 0) st = gw_columns_read(c, uc, block, &url, s->cli->diags);
    if (st == GW_OK) {
        const char *t = gw_column_bytes(&text, row - first, &n);
        if (uc >= 0) u = gw_column_bytes(&url, row - first, &nurl);
        show(s, number, u, nurl, t, n, "");
    }
    gw_column_data_release(&text);
    gw_column_data_release(&url);
    return st;
}

static gw_status of_tables(sampler *s, const char *path) {
    int64_t ntables, total = 0, at = 0, next = 0;
    const char **tables = gw_data_tables(s->cli, path, ".docs", &ntables);
    for (int64_t i = 0; i < ntables; i++) {
        gw_columns *c;
        GW_TRY(gw_columns_open(tables[i], &c, s->cli->diags));
        total += gw_columns_rows(c);
        gw_columns_close(c);
    }
    int64_t *rows = gw_arena_new(s->cli->arena, int64_t, s->count);
    int64_t n = choose(s, total, rows);
    for (int64_t i = 0; i < ntables && next < n; i++) {
        gw_columns *c;
        gw_status st = gw_columns_open(tables[i], &c, s->cli->diags);
        int64_t end = st == GW_OK ? at + gw_columns_rows(c) : at;
        s->path = tables[i];
        for (; st == GW_OK && next < n && rows[next] < end; next++)
            st = table_row(s, c, rows[next] - at, rows[next]);
        gw_columns_close(c);
        GW_TRY(st);
        at = end;
    }
    return GW_OK;
}

// ------------------------------------------------------------------ archives

typedef struct kept {
    uint64_t rank;
    int64_t number;
    char *url, *text;
    int64_t n;
} kept;

static void keep(sampler *s, kept *list, int64_t *n, int64_t number, const gw_doc *d) {
    uint64_t rank = gw_rng_u64(s->key, (uint64_t)number);
    int64_t at = *n;
    if (*n == s->count) {
        int64_t worst = 0;
        for (int64_t i = 1; i < *n; i++)
            if (list[i].rank > list[worst].rank) worst = i;
        if (rank >= list[worst].rank) return;
        at = worst;
        gw_mem_free(list[at].url);
        gw_mem_free(list[at].text);
    } else {
        (*n)++;
    }
    list[at] = (kept){rank, number, gw_mem_alloc(strlen(d->url) + 1), gw_mem_alloc(d->text.len + 1),
                      (int64_t)d->text.len};
    memcpy(list[at].url, d->url, strlen(d->url) + 1);
    memcpy(list[at].text, gw_str_c(&d->text), d->text.len + 1);
}

static int by_number(const void *a, const void *b) {
    int64_t x = ((const kept *)a)->number, y = ((const kept *)b)->number;
    return x < y ? -1 : x > y;
}

static gw_status of_source(sampler *s, const char *path) {
    gw_source *src = NULL;
    gw_doc doc = {0};
    bool more = true;
    int64_t n = 0, number = 0;
    GW_TRY(gw_source_open(NULL, path, &src, s->cli->diags));
    gw_extract *e = gw_extract_new();
    kept *list = gw_arena_new(s->cli->arena, kept, s->count);
    gw_status st = GW_OK;
    while (st == GW_OK && more) {
        st = gw_source_next(src, &doc, &more, s->cli->diags);
        if (st != GW_OK || !more) break;
        uint64_t rank = gw_rng_u64(s->key, (uint64_t)number);
        bool wanted = n < s->count;
        for (int64_t i = 0; i < n && !wanted; i++) wanted = rank < list[i].rank;
        if (wanted) gw_extract_doc(e, NULL, &doc, NULL);
        if (wanted) keep(s, list, &n, number, &doc);
        number++;
    }
    if (n > 1) qsort(list, (size_t)n, sizeof *list, by_number);
    for (int64_t i = 0; i < n; i++) {
        show(s, list[i].number, list[i].url, (int64_t)strlen(list[i].url), list[i].text, list[i].n,
             "");
        gw_mem_free(list[i].url);
        gw_mem_free(list[i].text);
    }
    gw_extract_free(e);
    gw_str_release(&doc.text);
    gw_source_free(src);
    return st;
}

// ------------------------------------------------------------------ the verb

static void print(const gw_cli *cli, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        fprintf(cli->out, "---- %s number %lld %s %s\n",
                json_string_value(json_object_get(o, "path")),
                (long long)json_integer_value(json_object_get(o, "number")),
                json_string_value(json_object_get(o, "url")),
                json_string_value(json_object_get(o, "note")));
        const json_t *text = json_object_get(o, "text");
        fwrite(json_string_value(text), 1, json_string_length(text), cli->out);
        fputc('\n', cli->out);
    }
}

static gw_status sample_one(sampler *s, const char *path) {
    s->path = path;
    switch (gw_data_kind_of(s->cli, path)) {
    case GW_DATA_BUILT:
    case GW_DATA_TABLE: return of_tables(s, path);
    case GW_DATA_MDS: return of_mds(s, path);
    case GW_DATA_MEGATRON: return of_megatron(s, path);
    case GW_DATA_SOURCE: return of_source(s, path);
    }
    return GW_OK;
}

gw_status gw_data_sample(gw_cli *cli, int n, const char *const *paths) {
    int64_t count = gw_cli_int(cli, "count", 3);
    const char *tokenizer = gw_cli_string(cli, "tokenizer", NULL);
    if (count < 1 || count > 100000)
        return gw_cli_usage_error(cli, "--count takes a number from 1 to 100000");
    sampler s = {.cli = cli,
                 .count = count,
                 .key = gw_rng_key_named((uint64_t)gw_cli_int(cli, "seed", 1), "sample"),
                 .out = json_array()};
    gw_status st = GW_OK;
    if (tokenizer) st = gw_tokenizer_open(tokenizer, NULL, &s.t, cli->diags);
    for (int i = 0; i < n && st == GW_OK; i++) {
        st = gw_data_need(cli, paths[i]);
        if (st == GW_OK) st = sample_one(&s, paths[i]);
    }
    if (gw_cli_flag(cli, "json")) {
        json_dumpf(s.out, cli->out, JSON_INDENT(1));
        fputc('\n', cli->out);
    } else {
        print(cli, s.out);
    }
    json_decref(s.out);
    gw_str_release(&s.text);
    gw_tokenizer_free(s.t);
    return st;
}

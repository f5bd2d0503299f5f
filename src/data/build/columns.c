// SPDX-License-Identifier: Apache-2.0
// Tables on disk: the reader.
//
// The file is mapped. Opening reads the trailer and the footer and holds every number in them to
// the size of the file: a chunk lies between head and footer, a column of fixed width has as many
// bytes as its rows ask for, lengths have four bytes a row. So what is read later can be wrong only
// in its bytes, and those have a checksum. A chunk that claims to grow beyond what its rows can
// hold, or a column beyond 2 GiB a block, is refused before memory is taken for it.
#include "data/build/columns.h" /* this module's contract */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "base/io.h"                 /* gw_map_open */
#include "base/str.h"                /* gw_str_eq */
#include "data/build/columns_impl.h" /* GW_TABLE_HEAD */
#include "file/json.h"               /* gw_json_parse */

static const int64_t MOST_CHUNK = INT64_C(1) << 31;

typedef struct chunk {
    int64_t offset, stored, raw;
    uint64_t hash;
} chunk;

typedef struct block {
    int64_t rows;
    chunk *chunks; /* in the order of columns; BYTES: lengths, then values */
} block;

struct gw_columns {
    gw_arena arena;
    gw_mapping map;
    const char *path;
    json_t *footer;
    gw_column *columns;
    int *first_chunk; /* of a column */
    int ncolumns, nchunks;
    block *blocks;
    int64_t nblocks, rows;
    gw_hash128 content;
};

static const struct {
    const char *name;
    int bytes;
} TYPES[GW_COLUMN_TYPES] = {
    [GW_COLUMN_BYTES] = {"bytes", 1}, [GW_COLUMN_U8] = {"u8", 1},   [GW_COLUMN_U16] = {"u16", 2},
    [GW_COLUMN_U32] = {"u32", 4},     [GW_COLUMN_U64] = {"u64", 8}, [GW_COLUMN_F32] = {"f32", 4},
    [GW_COLUMN_F64] = {"f64", 8}};

const char *gw_column_type_name(gw_column_type t) { return TYPES[t].name; }
int gw_column_elem_bytes(gw_column_type t) { return TYPES[t].bytes; }

static gw_status bad(const gw_columns *c, gw_diags *dg, const char *what) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-table", (gw_where){.file = c->path},
                             "%s", what);
    gw_diag_hint(dg, g, "remove the file: `gradwright data build` makes it again");
    return GW_ERR_FORMAT;
}

// ------------------------------------------------------------------ the footer

static bool take_columns(gw_columns *c, const json_t *list) {
    size_t n = json_array_size(list);
    if (n < 1 || n > GW_COLUMNS_MAX) return false;
    c->columns = gw_arena_new(&c->arena, gw_column, n);
    c->first_chunk = gw_arena_new(&c->arena, int, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(o, "name"));
        const char *type = json_string_value(json_object_get(o, "type"));
        json_int_t width = json_integer_value(json_object_get(o, "width"));
        int t = 0;
        while (t < GW_COLUMN_TYPES && !gw_str_eq(type, TYPES[t].name)) t++;
        if (!name || t == GW_COLUMN_TYPES || width < 1 || width > 65535) return false;
        if (t == GW_COLUMN_BYTES && width != 1) return false;
        c->columns[i] = (gw_column){name, (gw_column_type)t, (int)width};
        c->first_chunk[i] = c->nchunks;
        c->nchunks += t == GW_COLUMN_BYTES ? 2 : 1;
    }
    c->ncolumns = (int)n;
    return true;
}

static bool take_hash(const char *text, uint64_t *hash) {
    if (!text || strlen(text) != 16 || text[strspn(text, "0123456789abcdef")]) return false;
    return sscanf(text, "%16" SCNx64, hash) == 1;
}

static bool take_chunk(const json_t *o, int64_t end, chunk *out) {
    const json_t *n[3];
    if (json_array_size(o) != 4) return false;
    for (size_t i = 0; i < 3; i++) {
        n[i] = json_array_get(o, i);
        if (!json_is_integer(n[i])) return false;
    }
    out->offset = json_integer_value(n[0]);
    out->stored = json_integer_value(n[1]);
    out->raw = json_integer_value(n[2]);
    if (out->offset < 8 || out->stored < 0 || out->stored > end || out->offset > end - out->stored)
        return false;
    return out->raw >= out->stored && out->raw <= MOST_CHUNK &&
           take_hash(json_string_value(json_array_get(o, 3)), &out->hash);
}

/* A chunk of a column of fixed size has the bytes that its rows need. */
static bool fits(const gw_columns *c, const block *b) {
    for (int i = 0; i < c->ncolumns; i++) {
        const gw_column *col = &c->columns[i];
        const chunk *k = &b->chunks[c->first_chunk[i]];
        int64_t want = col->type == GW_COLUMN_BYTES
                           ? 4 * b->rows
                           : b->rows * col->width * (int64_t)TYPES[col->type].bytes;
        if (k->raw != want) return false;
    }
    return true;
}

static bool take_blocks(gw_columns *c, const json_t *list, int64_t end) {
    size_t n = json_array_size(list);
    c->blocks = gw_arena_new(&c->arena, block, n ? n : 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i), *chunks = json_object_get(o, "chunks");
        block *b = &c->blocks[i];
        b->rows = json_integer_value(json_object_get(o, "rows"));
        if (b->rows < 1 || b->rows > (INT64_C(1) << 24)) return false;
        if (json_array_size(chunks) != (size_t)c->nchunks) return false;
        b->chunks = gw_arena_new(&c->arena, chunk, c->nchunks);
        for (int k = 0; k < c->nchunks; k++)
            if (!take_chunk(json_array_get(chunks, (size_t)k), end, &b->chunks[k])) return false;
        if (!fits(c, b)) return false;
        c->rows += b->rows;
    }
    c->nblocks = (int64_t)n;
    return true;
}

static bool take_content(const char *text, gw_hash128 *out) {
    if (!text || strlen(text) != 32 || text[strspn(text, "0123456789abcdef")]) return false;
    return sscanf(text, "%16" SCNx64 "%16" SCNx64, &out->hi, &out->lo) == 2;
}

static gw_status take_footer(gw_columns *c, int64_t end, gw_diags *dg) {
    const json_t *f = c->footer;
    if (json_integer_value(json_object_get(f, "version")) != 1)
        return bad(c, dg, "a table of a version that is not read");
    if (!take_columns(c, json_object_get(f, "columns")))
        return bad(c, dg, "the footer does not say what the columns are");
    if (!take_blocks(c, json_object_get(f, "blocks"), end) ||
        c->rows != json_integer_value(json_object_get(f, "rows")) ||
        !take_content(json_string_value(json_object_get(f, "content")), &c->content) ||
        !json_is_object(json_object_get(f, "meta")))
        return bad(c, dg, "the footer does not fit the file");
    return GW_OK;
}

static gw_status read_footer(gw_columns *c, gw_diags *dg) {
    const uint8_t *p = c->map.data;
    int64_t n = c->map.bytes, end = n - GW_TABLE_TRAILER;
    uint64_t trailer[3];
    if (n < 8 + GW_TABLE_TRAILER || memcmp(p, GW_TABLE_HEAD, 8) != 0)
        return bad(c, dg, "this is no table of the pipeline");
    memcpy(trailer, p + end, sizeof trailer);
    if (memcmp(p + n - 8, GW_TABLE_END, 8) != 0 || trailer[0] < 8 || trailer[0] > (uint64_t)end ||
        trailer[1] != (uint64_t)end - trailer[0])
        return bad(c, dg, "the table has no valid end: it was cut, or is damaged");
    const char *text = (const char *)p + trailer[0];
    if (gw_hash64(text, trailer[1], 0) != trailer[2])
        return bad(c, dg, "the checksum of the table's footer is wrong");
    GW_TRY(gw_json_parse(text, trailer[1], c->path, &c->footer, dg));
    return take_footer(c, (int64_t)trailer[0], dg);
}

gw_status gw_columns_open(const char *path, gw_columns **out, gw_diags *dg) {
    *out = NULL;
    gw_columns *c = gw_mem_zalloc(sizeof *c);
    gw_arena_init(&c->arena);
    c->path = gw_arena_strdup(&c->arena, path);
    gw_status st = gw_map_open(&c->map, path, dg);
    if (st == GW_OK) st = read_footer(c, dg);
    if (st == GW_OK)
        *out = c;
    else
        gw_columns_close(c);
    return st;
}

void gw_columns_close(gw_columns *c) {
    if (!c) return;
    gw_map_release(&c->map);
    json_decref(c->footer);
    gw_arena_release(&c->arena);
    gw_mem_free(c);
}

bool gw_columns_is_file(const char *path) {
    char head[8] = {0};
    FILE *f = fopen(path, "rbe");
    if (!f) return false;
    bool is = fread(head, 1, 8, f) == 8 && memcmp(head, GW_TABLE_HEAD, 8) == 0;
    fclose(f);
    return is;
}

const char *gw_columns_path(const gw_columns *c) { return c->path; }
int64_t gw_columns_rows(const gw_columns *c) { return c->rows; }
int64_t gw_columns_blocks(const gw_columns *c) { return c->nblocks; }
int64_t gw_columns_block_rows(const gw_columns *c, int64_t b) { return c->blocks[b].rows; }
int gw_columns_count(const gw_columns *c) { return c->ncolumns; }
const gw_column *gw_columns_column(const gw_columns *c, int i) { return &c->columns[i]; }
const json_t *gw_columns_meta(const gw_columns *c) { return json_object_get(c->footer, "meta"); }
gw_hash128 gw_columns_content(const gw_columns *c) { return c->content; }

int gw_columns_find(const gw_columns *c, const char *name) {
    for (int i = 0; i < c->ncolumns; i++)
        if (gw_str_eq(c->columns[i].name, name)) return i;
    return -1;
}

int64_t gw_columns_stored_bytes(const gw_columns *c, int column) {
    int64_t sum = 0;
    int chunks = c->columns[column].type == GW_COLUMN_BYTES ? 2 : 1;
    for (int64_t b = 0; b < c->nblocks; b++)
        for (int k = 0; k < chunks; k++)
            sum += c->blocks[b].chunks[c->first_chunk[column] + k].stored;
    return sum;
}

// ------------------------------------------------------------------ blocks

static gw_status bad_chunk(const gw_columns *c, int column, int64_t b, const chunk *k,
                           const char *what, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "data-table", (gw_where){.file = c->path},
                             "column '%s' of block %lld, %lld bytes at offset %lld: %s",
                             c->columns[column].name, (long long)b, (long long)k->stored,
                             (long long)k->offset, what);
    gw_diag_hint(dg, g, "remove the file: `gradwright data build` makes it again");
    return GW_ERR_FORMAT;
}

/* Checks a chunk before memory is taken for what it says it holds. */
static gw_status check_chunk(const gw_columns *c, int column, int64_t b, const chunk *k,
                             gw_diags *dg) {
    const uint8_t *from = c->map.data + k->offset;
    if (gw_hash64(from, (size_t)k->stored, 0) != k->hash)
        return bad_chunk(c, column, b, k, "the checksum is wrong", dg);
    if (k->stored != k->raw &&
        ZSTD_getFrameContentSize(from, (size_t)k->stored) != (unsigned long long)k->raw)
        return bad_chunk(c, column, b, k, "the compressed bytes are of another size", dg);
    return GW_OK;
}

static gw_status unpack(const gw_columns *c, int column, int64_t b, const chunk *k, uint8_t *to,
                        gw_diags *dg) {
    const uint8_t *from = c->map.data + k->offset;
    if (k->stored == k->raw) {
        if (k->raw) memcpy(to, from, (size_t)k->raw);
        return GW_OK;
    }
    size_t n = ZSTD_decompress(to, (size_t)k->raw, from, (size_t)k->stored);
    if (ZSTD_isError(n) || (int64_t)n != k->raw)
        return bad_chunk(c, column, b, k, "the compressed bytes are damaged", dg);
    return GW_OK;
}

static void reserve(gw_column_data *d, int64_t raw, int64_t rows) {
    if (d->raw_cap < raw + 8) {
        d->raw_cap = raw + raw / 4 + 64;
        d->raw = gw_mem_realloc(d->raw, (size_t)d->raw_cap);
    }
    if (d->ends_cap < rows) {
        d->ends_cap = rows + rows / 4 + 16;
        d->ends_raw = gw_mem_realloc(d->ends_raw, (size_t)d->ends_cap * sizeof(int64_t));
    }
}

/* Lengths become ends; their sum is the size of the values. */
static bool sum_lengths(gw_column_data *d, const uint8_t *lengths, int64_t rows, int64_t total) {
    int64_t sum = 0;
    for (int64_t i = 0; i < rows; i++) {
        uint32_t n;
        memcpy(&n, lengths + 4 * i, sizeof n);
        sum += n;
        d->ends_raw[i] = sum;
    }
    d->ends = d->ends_raw;
    return sum == total;
}

gw_status gw_columns_read(const gw_columns *c, int column, int64_t b, gw_column_data *out,
                          gw_diags *dg) {
    const block *bl = &c->blocks[b];
    const chunk *k = &bl->chunks[c->first_chunk[column]];
    bool bytes = c->columns[column].type == GW_COLUMN_BYTES;
    int64_t most = bytes ? GW_MAX(k[0].raw, k[1].raw) : k->raw;
    GW_TRY(check_chunk(c, column, b, k, dg));
    if (bytes) GW_TRY(check_chunk(c, column, b, k + 1, dg));
    reserve(out, most, bytes ? bl->rows : 0);
    out->rows = bl->rows;
    out->ends = NULL;
    out->values = out->raw;
    GW_TRY(unpack(c, column, b, k, out->raw, dg));
    if (!bytes) return GW_OK;
    if (!sum_lengths(out, out->raw, bl->rows, k[1].raw))
        return bad_chunk(c, column, b, k, "the lengths do not fit the values", dg);
    return unpack(c, column, b, k + 1, out->raw, dg);
}

void gw_column_data_release(gw_column_data *d) {
    gw_mem_free(d->raw);
    gw_mem_free(d->ends_raw);
    *d = (gw_column_data){0};
}

gw_status gw_columns_verify(const gw_columns *c, int64_t *faults, gw_diags *dg) {
    gw_column_data d = {0};
    gw_status st = GW_OK;
    int64_t n = 0;
    for (int64_t b = 0; b < c->nblocks; b++)
        for (int i = 0; i < c->ncolumns; i++) {
            gw_status one = gw_columns_read(c, i, b, &d, n < 8 ? dg : NULL);
            if (one == GW_OK) continue;
            st = one;
            n++;
        }
    if (faults) *faults = n;
    gw_column_data_release(&d);
    return st;
}

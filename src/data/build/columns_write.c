// SPDX-License-Identifier: Apache-2.0
// Tables on disk: the writer.
//
// Values gather in one buffer a column; when the block is full each buffer is compressed (zstd at
// its fastest useful level; what does not shrink is stored as it is), hashed as it goes to disk,
// and noted in the footer. The footer is JSON, written last, and a trailer of fixed size says where
// it is and what its hash is, so that a file that was cut anywhere has no valid trailer. The file
// gets its name only when all of it is synced.
//
//     "GWTABLE1"  chunk chunk ...  footer  trailer: u64 offset, u64 bytes, u64 XXH3, "GWTABLE."
//
// The content hash covers schema and chunk hashes but not the meta object, in which the pipeline
// keeps timings: two runs that find the same rows have files of the same content.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/io.h"                 /* gw_fd_write_all */
#include "base/map.h"                /* GW_VEC */
#include "base/panic.h"              /* GW_ASSERT */
#include "base/str.h"                /* gw_str */
#include "data/build/columns.h"      /* this module's contract */
#include "data/build/columns_impl.h" /* GW_TABLE_HEAD */

enum { LEVEL = 1, DEFAULT_BLOCK = 8 << 20, MOST_ROWS = 65536 };

typedef struct buffer {
    gw_str values;
    gw_str lengths; /* BYTES: u32 each */
    bool given;
} buffer;

struct gw_columns_writer {
    gw_arena arena;
    const char *path;
    char *tmp;
    int fd;
    gw_column *columns;
    buffer *buffers;
    int ncolumns;
    int64_t block_bytes, filled, rows, total_rows, at;
    json_t *blocks;
    gw_hasher *content;
    ZSTD_CCtx *zstd;
    gw_str packed;
    bool finished;
};

gw_status gw_columns_writer_new(const char *path, const gw_column *columns, int ncolumns,
                                int64_t block_bytes, gw_columns_writer **out, gw_diags *dg) {
    GW_ASSERT(ncolumns >= 1 && ncolumns <= GW_COLUMNS_MAX);
    *out = NULL;
    gw_columns_writer *w = gw_mem_zalloc(sizeof *w);
    gw_arena_init(&w->arena);
    w->path = gw_arena_strdup(&w->arena, path);
    w->block_bytes = block_bytes > 0 ? block_bytes : DEFAULT_BLOCK;
    w->ncolumns = ncolumns;
    w->columns = gw_arena_new(&w->arena, gw_column, ncolumns);
    w->buffers = gw_arena_new(&w->arena, buffer, ncolumns);
    w->content = gw_hasher_new();
    w->blocks = json_array();
    w->zstd = ZSTD_createCCtx();
    for (int i = 0; i < ncolumns; i++) {
        w->columns[i] = columns[i];
        w->columns[i].name = gw_arena_strdup(&w->arena, columns[i].name);
        gw_hasher_add(w->content, columns[i].name, strlen(columns[i].name) + 1);
        int32_t kind[2] = {(int32_t)columns[i].type, columns[i].width};
        gw_hasher_add(w->content, kind, sizeof kind);
    }
    w->fd = gw_io_create_beside(&w->arena, path, &w->tmp);
    if (w->fd < 0) {
        gw_status st = gw_io_fail(dg, "file-create", "create", path, errno);
        w->tmp = NULL;
        gw_columns_writer_free(w);
        return st;
    }
    gw_status st = gw_fd_write_all(w->fd, GW_TABLE_HEAD, 8, path, dg);
    w->at = 8;
    if (st == GW_OK)
        *out = w;
    else
        gw_columns_writer_free(w);
    return st;
}

void gw_columns_writer_free(gw_columns_writer *w) {
    if (!w) return;
    if (w->fd >= 0) close(w->fd);
    if (!w->finished && w->tmp) unlink(w->tmp);
    for (int i = 0; i < w->ncolumns; i++) {
        gw_str_release(&w->buffers[i].values);
        gw_str_release(&w->buffers[i].lengths);
    }
    gw_str_release(&w->packed);
    ZSTD_freeCCtx(w->zstd);
    json_decref(w->blocks);
    gw_hasher_free(w->content);
    gw_arena_release(&w->arena);
    gw_mem_free(w);
}

void gw_columns_put(gw_columns_writer *w, int column, const void *value, int64_t n) {
    GW_ASSERT(column >= 0 && column < w->ncolumns && !w->buffers[column].given);
    const gw_column *c = &w->columns[column];
    buffer *b = &w->buffers[column];
    if (c->type == GW_COLUMN_BYTES) {
        GW_ASSERT(n >= 0 && n <= INT32_MAX);
        uint32_t length = (uint32_t)n;
        gw_str_add_n(&b->lengths, &length, sizeof length);
        w->filled += 4;
    } else {
        n = (int64_t)gw_column_elem_bytes(c->type) * c->width;
    }
    gw_str_add_n(&b->values, value, (size_t)n);
    w->filled += n;
    b->given = true;
}

/* Writes bytes, compressed if that helps, and returns their row of the footer. */
static gw_status put_chunk(gw_columns_writer *w, const gw_str *raw, json_t *chunks, gw_diags *dg) {
    const char *bytes = gw_str_c(raw);
    size_t n = raw->len, bound = ZSTD_compressBound(n);
    gw_str_clear(&w->packed);
    gw_str_reserve(&w->packed, bound);
    size_t packed = ZSTD_compressCCtx(w->zstd, w->packed.data, bound, bytes, n, LEVEL);
    bool use = !ZSTD_isError(packed) && packed < n - n / 16;
    const char *stored = use ? w->packed.data : bytes;
    size_t size = use ? packed : n;
    uint64_t hash = gw_hash64(stored, size, 0);
    char text[20];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    gw_hasher_add(w->content, &hash, sizeof hash);
    json_array_append_new(chunks, json_pack("[I, I, I, s]", (json_int_t)w->at, (json_int_t)size,
                                            (json_int_t)n, text));
    w->at += (int64_t)size;
    return gw_fd_write_all(w->fd, stored, (int64_t)size, w->path, dg);
}

static gw_status flush(gw_columns_writer *w, gw_diags *dg) {
    if (w->rows == 0) return GW_OK;
    json_t *chunks = json_array();
    gw_status st = GW_OK;
    for (int i = 0; i < w->ncolumns && st == GW_OK; i++) {
        buffer *b = &w->buffers[i];
        if (w->columns[i].type == GW_COLUMN_BYTES) st = put_chunk(w, &b->lengths, chunks, dg);
        if (st == GW_OK) st = put_chunk(w, &b->values, chunks, dg);
        gw_str_clear(&b->values);
        gw_str_clear(&b->lengths);
    }
    json_array_append_new(w->blocks,
                          json_pack("{s:I, s:o}", "rows", (json_int_t)w->rows, "chunks", chunks));
    w->total_rows += w->rows;
    w->rows = w->filled = 0;
    return st;
}

gw_status gw_columns_end_row(gw_columns_writer *w, gw_diags *dg) {
    for (int i = 0; i < w->ncolumns; i++) {
        GW_ASSERT(w->buffers[i].given);
        w->buffers[i].given = false;
    }
    w->rows++;
    return w->filled >= w->block_bytes || w->rows >= MOST_ROWS ? flush(w, dg) : GW_OK;
}

gw_status gw_columns_writer_content(gw_columns_writer *w, gw_hash128 *out, gw_diags *dg) {
    GW_TRY(flush(w, dg));
    *out = gw_hasher_get(w->content);
    return GW_OK;
}

static json_t *make_footer(const gw_columns_writer *w, const json_t *meta) {
    json_t *columns = json_array();
    for (int i = 0; i < w->ncolumns; i++)
        json_array_append_new(columns, json_pack("{s:s, s:s, s:i}", "name", w->columns[i].name,
                                                 "type", gw_column_type_name(w->columns[i].type),
                                                 "width", w->columns[i].width));
    char content[33];
    gw_hash128_hex(content, gw_hasher_get(w->content));
    json_t *own = meta ? json_deep_copy(meta) : json_object();
    return json_pack("{s:i, s:I, s:s, s:o, s:O, s:o}", "version", 1, "rows",
                     (json_int_t)w->total_rows, "content", content, "columns", columns, "blocks",
                     w->blocks, "meta", own);
}

static gw_status put_footer(gw_columns_writer *w, const json_t *meta, gw_diags *dg) {
    json_t *footer = make_footer(w, meta);
    char *text = json_dumps(footer, JSON_COMPACT);
    json_decref(footer);
    if (!text)
        return GW_FAIL(dg, GW_ERR_FORMAT, "json-write", "cannot express the footer of '%s' as JSON",
                       w->path);
    uint64_t trailer[3] = {(uint64_t)w->at, strlen(text), gw_hash64(text, strlen(text), 0)};
    gw_status st = gw_fd_write_all(w->fd, text, (int64_t)trailer[1], w->path, dg);
    if (st == GW_OK) st = gw_fd_write_all(w->fd, trailer, sizeof trailer, w->path, dg);
    if (st == GW_OK) st = gw_fd_write_all(w->fd, GW_TABLE_END, 8, w->path, dg);
    free(text);
    return st;
}

gw_status gw_columns_finish(gw_columns_writer *w, const json_t *meta, gw_diags *dg) {
    GW_TRY(flush(w, dg));
    GW_TRY(put_footer(w, meta, dg));
    if (fdatasync(w->fd) != 0) return gw_io_fail(dg, "file-write", "write", w->path, errno);
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return gw_io_fail(dg, "file-write", "write", w->path, errno);
    if (rename(w->tmp, w->path) != 0)
        return gw_io_fail(dg, "file-rename", "rename a file to", w->path, errno);
    w->finished = true;
    return GW_OK;
}

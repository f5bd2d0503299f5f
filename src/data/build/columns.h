// SPDX-License-Identifier: Apache-2.0
// A table on disk: rows of named columns, in blocks, each column of a block compressed and
// checksummed by itself.
//
// What the pipeline keeps of a unit is such a file. A reader that wants one column reads that
// column; a damaged byte names its file, block, column and offset. The layout is described in
// docs/data-formats.md.
#ifndef GW_DATA_BUILD_COLUMNS_H
#define GW_DATA_BUILD_COLUMNS_H

#include <jansson.h> /* json_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */

typedef enum gw_column_type {
    GW_COLUMN_BYTES, /* any number of bytes a row */
    GW_COLUMN_U8,
    GW_COLUMN_U16,
    GW_COLUMN_U32,
    GW_COLUMN_U64,
    GW_COLUMN_F32,
    GW_COLUMN_F64,
    GW_COLUMN_TYPES
} gw_column_type;

const char *gw_column_type_name(gw_column_type t); /* "u32", "bytes" */
int gw_column_elem_bytes(gw_column_type t);        /* 1 for BYTES */

typedef struct gw_column {
    const char *name;
    gw_column_type type;
    int width; /* values a row, 1..65535; BYTES: 1 */
} gw_column;

enum { GW_COLUMNS_MAX = 1024 };

// ------------------------------------------------------------------ writing

typedef struct gw_columns_writer gw_columns_writer;

/* Begins `path` under a temporary name beside it. `columns` are copied. A block is closed when its
 * values fill block_bytes (0: 8 MiB) or it has 65,536 rows. */
GW_WARN_UNUSED gw_status gw_columns_writer_new(const char *path, const gw_column *columns,
                                               int ncolumns, int64_t block_bytes,
                                               gw_columns_writer **out, gw_diags *dg);
/* Unless finished, removes what was written. NULL is nothing. */
void gw_columns_writer_free(gw_columns_writer *w);
/* The value of `column` in the current row: `width` values, or n bytes for BYTES (n is ignored
 * otherwise). Each column once a row, in any order. */
void gw_columns_put(gw_columns_writer *w, int column, const void *value, int64_t n);
GW_WARN_UNUSED gw_status gw_columns_end_row(gw_columns_writer *w, gw_diags *dg);
/* After all rows: ends the last block and gives what gw_columns_content will say. */
GW_WARN_UNUSED gw_status gw_columns_writer_content(gw_columns_writer *w, gw_hash128 *out,
                                                   gw_diags *dg);
/* Writes the footer with `meta` (an object; borrowed; may be NULL), syncs and renames. */
GW_WARN_UNUSED gw_status gw_columns_finish(gw_columns_writer *w, const json_t *meta, gw_diags *dg);

// ------------------------------------------------------------------ reading

typedef struct gw_columns gw_columns;

/* Maps the file and checks its footer; blocks are checked as they are read. */
GW_WARN_UNUSED gw_status gw_columns_open(const char *path, gw_columns **out, gw_diags *dg);
void gw_columns_close(gw_columns *c);
/* Is it such a file, by its first bytes? */
bool gw_columns_is_file(const char *path);

const char *gw_columns_path(const gw_columns *c);
int64_t gw_columns_rows(const gw_columns *c);
int64_t gw_columns_blocks(const gw_columns *c);
int64_t gw_columns_block_rows(const gw_columns *c, int64_t block);
int gw_columns_count(const gw_columns *c);
const gw_column *gw_columns_column(const gw_columns *c, int i);
int gw_columns_find(const gw_columns *c, const char *name); /* -1: none */
const json_t *gw_columns_meta(const gw_columns *c);         /* an object, perhaps empty; borrowed */
/* Identifies the rows, whatever the meta says: schema and the checksums of all blocks. */
gw_hash128 gw_columns_content(const gw_columns *c);
/* Bytes that a column takes in the file. */
int64_t gw_columns_stored_bytes(const gw_columns *c, int column);

/* A column of one block, decompressed. Zero-initialise; the buffers are reused from one read to the
 * next. */
typedef struct gw_column_data {
    int64_t rows;
    const uint8_t *values; /* rows * width values, aligned to 8; BYTES: all rows, end to end */
    const int64_t *ends;   /* BYTES: row i is values[ends[i-1] .. ends[i]); else NULL */
    uint8_t *raw;
    int64_t *ends_raw;
    int64_t raw_cap, ends_cap;
} gw_column_data;
/* GW_ERR_FORMAT with file, column and byte offset when checksum or size is not as the footer says.
 */
GW_WARN_UNUSED gw_status gw_columns_read(const gw_columns *c, int column, int64_t block,
                                         gw_column_data *out, gw_diags *dg);
void gw_column_data_release(gw_column_data *d);
/* Bytes of row i of a BYTES column. */
static inline const char *gw_column_bytes(const gw_column_data *d, int64_t i, int64_t *n) {
    int64_t from = i ? d->ends[i - 1] : 0;
    *n = d->ends[i] - from;
    return (const char *)d->values + from;
}
/* Reads every chunk and checks it; *faults (may be NULL) gets the number of bad ones, each an error
 * in dg (the first eight). */
GW_WARN_UNUSED gw_status gw_columns_verify(const gw_columns *c, int64_t *faults, gw_diags *dg);

#endif

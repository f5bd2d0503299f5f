// SPDX-License-Identifier: Apache-2.0
// One rank's file of a checkpoint: rank-00000.safetensors.
//
// A safetensors file as any reader of the format takes it. An entry is a piece of a tensor; it is
// called as the tensor when it is the whole of it, otherwise also by where it stands:
//
//     layers.0.attn.q.weight                       all of it
//     layers.0.attn.q.weight[0:2,0:4,0:8]          a box: its shape is the box's
//     layers.0.attn.q.weight[0:2,0:4,0:8]#16+16    16 elements of that box, from its 16th on
//
// One more entry, gradwright.xxh128, has the hashes of all data by blocks of GW_CKPT_BLOCK bytes:
// of each entry, in the order of the file, its blocks (the last may be short). So a reader checks
// what it reads without reading more. The table stands last, so that a file is written from its
// beginning to its end. Header and table have a hash that the manifest holds: the index.
#ifndef GW_CKPT_DATAFILE_H
#define GW_CKPT_DATAFILE_H

#include "base/diag.h"       /* gw_status, gw_diags */
#include "base/hash.h"       /* gw_hash128 */
#include "base/str.h"        /* gw_str */
#include "ckpt/checkpoint.h" /* gw_ckpt_file */
#include "ckpt/place.h"      /* gw_place */

enum { GW_CKPT_BLOCK = 4 << 20 };

/* A block's hash, most significant byte first, as in hex. */
typedef struct gw_ckpt_row {
    uint8_t hash[16];
} gw_ckpt_row;
gw_ckpt_row gw_ckpt_row_of(const void *bytes, int64_t n);
/* Blocks of an entry of so many bytes. */
int64_t gw_ckpt_blocks(int64_t bytes);

/* "rank-00012.safetensors" */
const char *gw_ckpt_file_name(int64_t rank, gw_arena *a);
/* What an entry is called. */
void gw_ckpt_entry_name(const char *tensor, int ndim, const int64_t *dims, const gw_piece *p,
                        gw_str *out);

/* ---- writing: new, add each entry, begin, write each block in order, finish ---- */
typedef struct gw_ckpt_writer gw_ckpt_writer;
typedef struct gw_ckpt_block {
    int entry;             /* as numbered by _add */
    int64_t offset, bytes; /* of the entry's data */
} gw_ckpt_block;

/* The place is borrowed. */
gw_ckpt_writer *gw_ckpt_writer_new(const gw_place *place, const char *path, int64_t step);
/* Removes what is not finished. */
void gw_ckpt_writer_free(gw_ckpt_writer *w);
/* Declares an entry of at least one element; they are numbered from 0. */
GW_WARN_UNUSED gw_status gw_ckpt_writer_add(gw_ckpt_writer *w, const char *tensor, gw_dtype dtype,
                                            int ndim, const int64_t *dims, const gw_piece *p,
                                            gw_diags *dg);
/* Creates the file at its full size (a full disk shows here). *blocks: in file order, valid until
 * the writer is freed. */
GW_WARN_UNUSED gw_status gw_ckpt_writer_begin(gw_ckpt_writer *w, const gw_ckpt_block **blocks,
                                              int64_t *n, gw_diags *dg);
/* The next block: hashed and written. */
GW_WARN_UNUSED gw_status gw_ckpt_writer_put(gw_ckpt_writer *w, const void *bytes, gw_diags *dg);
/* Writes the table, syncs, renames; *out gets size and index (its name is not set). */
GW_WARN_UNUSED gw_status gw_ckpt_writer_finish(gw_ckpt_writer *w, gw_ckpt_file *out, gw_diags *dg);
/* After finish: the hashes of an entry's blocks. */
const gw_ckpt_row *gw_ckpt_writer_rows(const gw_ckpt_writer *w, int entry);

/* ---- reading ---- */
typedef struct gw_ckpt_reader gw_ckpt_reader;
/* Opens the file `f`, which stands at `path`, and proves its index. GW_ERR_IO: it is not there;
 * GW_ERR_FORMAT: its size, header, table or step is another. The place is borrowed. */
GW_WARN_UNUSED gw_status gw_ckpt_reader_open(gw_ckpt_reader **out, const gw_place *place,
                                             const char *path, const gw_ckpt_file *f, gw_diags *dg);
void gw_ckpt_reader_free(gw_ckpt_reader *r);
const char *gw_ckpt_reader_path(const gw_ckpt_reader *r);
/* Entry by name: a number, or -1. *bytes: of its data. */
int64_t gw_ckpt_reader_find(const gw_ckpt_reader *r, const char *name, gw_dtype *dtype,
                            int64_t *bytes);
int64_t gw_ckpt_reader_count(const gw_ckpt_reader *r);
const char *gw_ckpt_reader_name(const gw_ckpt_reader *r, int64_t entry);
int64_t gw_ckpt_reader_blocks(const gw_ckpt_reader *r, int64_t entry);
/* In a place that is far: that the file `f` will be opened, in this order with others; that block k
 * of an entry will be read. */
void gw_ckpt_reader_expect_open(const gw_place *place, const char *path, const gw_ckpt_file *f);
void gw_ckpt_reader_expect(const gw_ckpt_reader *r, int64_t entry, int64_t k);
/* Reads block k of an entry to `dst` and compares its hash. */
GW_WARN_UNUSED gw_status gw_ckpt_reader_block(gw_ckpt_reader *r, int64_t entry, int64_t k,
                                              void *dst, gw_diags *dg);

#endif

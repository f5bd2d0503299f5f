// SPDX-License-Identifier: Apache-2.0
// safetensors: reading one file or a sharded directory as one set of tensors, and writing both.
#ifndef GW_FILE_SAFETENSORS_H
#define GW_FILE_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */

/* In increasing order of alignment, as the format's own writer sorts them. */
typedef enum gw_st_dtype {
    GW_ST_BOOL,
    GW_ST_F4,
    GW_ST_F6_E2M3,
    GW_ST_F6_E3M2,
    GW_ST_U8,
    GW_ST_I8,
    GW_ST_F8_E5M2,
    GW_ST_F8_E4M3,
    GW_ST_F8_E8M0,
    GW_ST_F8_E4M3FNUZ,
    GW_ST_F8_E5M2FNUZ,
    GW_ST_I16,
    GW_ST_U16,
    GW_ST_F16,
    GW_ST_BF16,
    GW_ST_I32,
    GW_ST_U32,
    GW_ST_F32,
    GW_ST_C64,
    GW_ST_F64,
    GW_ST_I64,
    GW_ST_U64,
    GW_ST_NDTYPES
} gw_st_dtype;

const char *gw_st_dtype_name(gw_st_dtype t);                /* "BF16": the spelling in files */
int gw_st_dtype_bits(gw_st_dtype t);                        /* bits an element */
bool gw_st_dtype_parse(const char *name, gw_st_dtype *out); /* false when unknown */

typedef struct gw_st_tensor {
    const char *name;
    gw_st_dtype dtype;
    int ndim;            /* 0 for a scalar */
    const int64_t *dims; /* outermost first; a dimension may be 0 */
    int64_t elems;
    int64_t bytes;
    int file;         /* index for gw_st_file_path */
    int64_t offset;   /* of the first byte, from the start of the file */
    const void *data; /* in the read-only mapping; aligned only as the file has it; or NULL */
} gw_st_tensor;

typedef struct gw_st_set gw_st_set;

/* Opens `path`: a .safetensors file, a Hugging Face directory (model.safetensors, else
 * model.safetensors.index.json and its shards), or an index file by its own name. Everything is
 * validated before it returns: header at most 100,000,000 bytes, no duplicate names, no overlap or
 * hole, the last tensor ends with the file, shape x dtype = bytes, no overflow; of an index, that
 * each listed tensor is in the named shard, which must be a plain file name. A directory with both
 * forms gives model.safetensors and a warning. Data stays in the page cache until touched. A file
 * must not be shortened while it is open. */
GW_WARN_UNUSED gw_status gw_st_open(const char *path, gw_st_set **out, gw_diags *dg);
/* The same of a file whose header alone is at hand: head[0..n) are its first bytes, the header
 * whole among them (not looked at afterwards), file_bytes is its size. Tensors have no data then.
 */
GW_WARN_UNUSED gw_status gw_st_open_header(const char *path, const void *head, int64_t n,
                                           int64_t file_bytes, gw_st_set **out, gw_diags *dg);
void gw_st_free(gw_st_set *s);

int64_t gw_st_count(const gw_st_set *s);
/* Tensor i in file order (files in name order, then by offset). Borrowed from the set. */
const gw_st_tensor *gw_st_get(const gw_st_set *s, int64_t i);
const gw_st_tensor *gw_st_find(const gw_st_set *s, const char *name); /* NULL when absent; O(1) */
int64_t gw_st_total_bytes(const gw_st_set *s);                        /* of tensor data */
int gw_st_nfiles(const gw_st_set *s);
const char *gw_st_file_path(const gw_st_set *s, int file);
/* __metadata__ of the first file that has `key`, or NULL. Borrowed. */
const char *gw_st_metadata(const gw_st_set *s, const char *key);
/* Entry i of all metadata, false past the end: for listings. */
bool gw_st_metadata_at(const gw_st_set *s, int64_t i, const char **key, const char **value);

/* --- writing one file -------------------------------------------------------------------------
 * new -> metadata, declare ... -> begin -> put ... -> finish -> free. Bytes go to a temporary name
 * beside `path`; finish syncs and renames, so `path` holds the old file or the whole new one. */
typedef struct gw_st_writer gw_st_writer;

gw_st_writer *gw_st_writer_new(const char *path);
/* Unless finished, removes the temporary file. */
void gw_st_writer_free(gw_st_writer *w);
/* Before begin. Key and value are copied and must be UTF-8. */
void gw_st_writer_metadata(gw_st_writer *w, const char *key, const char *value);
/* Before begin. A name twice, "__metadata__", a negative dimension or a size past 2^62 is refused.
 */
GW_WARN_UNUSED gw_status gw_st_writer_declare(gw_st_writer *w, const char *name, gw_st_dtype dtype,
                                              int ndim, const int64_t *dims, gw_diags *dg);
/* Fixes the layout (widest dtype first, then name), creates the file at its full size and writes
 * the header. */
GW_WARN_UNUSED gw_status gw_st_writer_begin(gw_st_writer *w, gw_diags *dg);
/* Writes the next n bytes of tensor `name`; tensors may take turns in any order, the pieces of one
 * tensor come in order. More bytes than declared are refused. */
GW_WARN_UNUSED gw_status gw_st_writer_put(gw_st_writer *w, const char *name, const void *bytes,
                                          int64_t n, gw_diags *dg);
/* XXH3-128 of a tensor's bytes as they were handed over; valid once all of them were. */
gw_hash128 gw_st_writer_hash(const gw_st_writer *w, const char *name);
/* Offset of a tensor's first byte from the start of the file; valid after begin. */
int64_t gw_st_writer_offset(const gw_st_writer *w, const char *name);
int64_t gw_st_writer_file_bytes(const gw_st_writer *w); /* valid after begin */
/* Refuses if any tensor is incomplete. On an error `path` is untouched. */
GW_WARN_UNUSED gw_status gw_st_writer_finish(gw_st_writer *w, gw_diags *dg);

/* --- writing a Hugging Face directory ----------------------------------------------------------
 * The same order of calls. Tensors fill shards in the order of declaration, a shard holding at most
 * max_shard_bytes of data (a larger tensor gets its own; <= 0: no limit). One shard is called
 * model.safetensors; several, model-00001-of-0000N.safetensors and model.safetensors.index.json,
 * which is written last and commits the set. The directory is made if needed. begin refuses a
 * directory that already holds the other form, since readers would find the stale one. */
typedef struct gw_st_dir_writer gw_st_dir_writer;

gw_st_dir_writer *gw_st_dir_writer_new(const char *dir, int64_t max_shard_bytes);
void gw_st_dir_writer_free(gw_st_dir_writer *w);
/* Repeated in every shard ("format" = "pt" is what Hugging Face readers ask for). */
void gw_st_dir_writer_metadata(gw_st_dir_writer *w, const char *key, const char *value);
GW_WARN_UNUSED gw_status gw_st_dir_writer_declare(gw_st_dir_writer *w, const char *name,
                                                  gw_st_dtype dtype, int ndim, const int64_t *dims,
                                                  gw_diags *dg);
GW_WARN_UNUSED gw_status gw_st_dir_writer_begin(gw_st_dir_writer *w, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_st_dir_writer_put(gw_st_dir_writer *w, const char *name,
                                              const void *bytes, int64_t n, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_st_dir_writer_finish(gw_st_dir_writer *w, gw_diags *dg);

#endif

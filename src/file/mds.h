// SPDX-License-Identifier: Apache-2.0
// MDS, the shards of MosaicML's streaming library: a directory with index.json and shard files.
//
// An index lists shards; a shard holds samples, each with the same columns. A column has an
// encoding (its name in the format, such as "str" or "ndarray:uint16") and bytes; what the bytes
// mean is decoded here for numbers and arrays. Pickles (pkl) are refused: reading one runs code.
#ifndef GW_FILE_MDS_H
#define GW_FILE_MDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/io.h"    /* gw_mapping */
#include "base/str.h"   /* gw_str */

/* ---- encodings ---- */

typedef enum gw_mds_kind {
    GW_MDS_BYTES,   /* as they are */
    GW_MDS_STR,     /* UTF-8; also str_int, str_float, str_decimal: digits as text */
    GW_MDS_JSON,    /* JSON text */
    GW_MDS_INT,     /* int64 */
    GW_MDS_SCALAR,  /* (u)int8..64, float16/32/64: `element` */
    GW_MDS_NDARRAY, /* an array: element and shape here or in each value */
    GW_MDS_IMAGE,   /* pil, jpeg, png: bytes that are passed on */
    GW_MDS_LIST,    /* list[...]: bytes that are passed on */
} gw_mds_kind;

/* Element types, numbered as the format numbers them. 0: none, or said in each value. */
typedef enum gw_mds_element {
    GW_MDS_ANY = 0,
    GW_MDS_U8 = 8,
    GW_MDS_I8 = 9,
    GW_MDS_U16 = 16,
    GW_MDS_I16 = 17,
    GW_MDS_F16 = 18,
    GW_MDS_U32 = 32,
    GW_MDS_I32 = 33,
    GW_MDS_F32 = 34,
    GW_MDS_U64 = 64,
    GW_MDS_I64 = 65,
    GW_MDS_F64 = 66
} gw_mds_element;

/* Bytes of an element; 0 of what is none of the above. */
int gw_mds_element_bytes(gw_mds_element e);
const char *gw_mds_element_name(gw_mds_element e); /* "uint16"; "?" of none */

enum { GW_MDS_MAX_DIMS = 63 };

typedef struct gw_mds_column {
    const char *name, *encoding; /* as in the index */
    gw_mds_kind kind;
    gw_mds_element element; /* of SCALAR and NDARRAY */
    int ndim;               /* of NDARRAY: 0 = said in each value */
    int64_t dims[8];
    int64_t bytes; /* of every value; 0: each says its own */
} gw_mds_column;

/* Reads an encoding's name into *c (name and encoding are set to copies in `a`). GW_ERR_UNSUPPORTED
 * for pkl and names that the format does not have; `file` is named in the error. */
GW_WARN_UNUSED gw_status gw_mds_column_parse(gw_arena *a, const char *name, const char *encoding,
                                             const char *file, gw_mds_column *c, gw_diags *dg);

/* An array as a value holds it; `data` points into the value and has no alignment. */
typedef struct gw_mds_array {
    gw_mds_element element;
    int ndim;
    int64_t dims[GW_MDS_MAX_DIMS];
    int64_t count; /* elements */
    const uint8_t *data;
} gw_mds_array;

/* Decodes a value of an NDARRAY column (n bytes); false when its bytes do not make one. */
bool gw_mds_array_read(const gw_mds_column *c, const uint8_t *value, int64_t n, gw_mds_array *out);
/* Appends the value of a one-dimensional array of `count` >= 1 elements for column c, whose element
 * must be `e` or ANY and whose shape must be open or exactly [count]. */
void gw_mds_array_write(const gw_mds_column *c, gw_mds_element e, const void *elements,
                        int64_t count, gw_str *out);

/* ---- an index ---- */

typedef struct gw_mds_hash {
    const char *algorithm, *hex; /* lower case */
} gw_mds_hash;

typedef struct gw_mds_file {
    const char *name; /* relative to the directory; may have folders, never leads out of it */
    int64_t bytes;
    const gw_mds_hash *hashes;
    int nhashes;
} gw_mds_file;

typedef struct gw_mds_shard {
    gw_mds_file raw;         /* not compressed */
    gw_mds_file zip;         /* compressed; name NULL: there is none */
    const char *compression; /* "zstd:7", or NULL */
    int64_t samples;
    int64_t tokens;               /* of all its samples, where the writer has said; -1: not known */
    const gw_mds_column *columns; /* in the order of the file */
    int ncolumns;
} gw_mds_shard;

typedef struct gw_mds_index {
    const gw_mds_shard *shards;
    int64_t nshards, samples;
    int64_t tokens; /* -1: not known of every shard */
} gw_mds_index;

/* Parses index.json. Everything is in `a`. Refused: other versions and formats, pkl, names that
 * lead out of the directory, sizes that cannot be. `name` stands for the file in errors. */
GW_WARN_UNUSED gw_status gw_mds_index_parse(gw_arena *a, const char *text, int64_t len,
                                            const char *name, gw_mds_index *out, gw_diags *dg);
/* DIR/index.json. */
GW_WARN_UNUSED gw_status gw_mds_index_read(gw_arena *a, const char *dir, gw_mds_index *out,
                                           gw_diags *dg);
/* The index of a column by name, or -1. */
int gw_mds_column_find(const gw_mds_shard *s, const char *name);

/* ---- the bytes of a shard ---- */

/* Checks n bytes against what the index says of a file: length, and every hash whose algorithm is
 * known (sha1, sha256, md5 ... of OpenSSL, xxh32, xxh64, xxh3_64, xxh128). GW_ERR_FORMAT with both
 * hashes where one differs; an unknown algorithm is passed over. `path` for errors. */
GW_WARN_UNUSED gw_status gw_mds_file_check(const gw_mds_file *f, const void *bytes, int64_t n,
                                           const char *path, gw_diags *dg);
/* Lower-case hex of a hash by name into *out (cleared first); false when there is no such
 * algorithm. */
bool gw_mds_hash_hex(const char *algorithm, const void *bytes, int64_t n, gw_str *out);
/* Decompresses a shard's file into `raw`, which has room for shard->raw.bytes. */
GW_WARN_UNUSED gw_status gw_mds_unzip(const gw_mds_shard *s, const void *zip, int64_t n, void *raw,
                                      const char *path, gw_diags *dg);

/* A shard's uncompressed bytes, borrowed. */
typedef struct gw_mds_view {
    const gw_mds_shard *shard;
    const uint8_t *bytes;
    int64_t n;
    const char *path; /* for errors */
} gw_mds_view;

/* Checks the header: number of samples as in the index, offsets that rise and stay inside. */
GW_WARN_UNUSED gw_status gw_mds_view_open(gw_mds_view *v, const gw_mds_shard *s,
                                          const uint8_t *bytes, int64_t n, const char *path,
                                          gw_diags *dg);
/* The bytes of one value of sample i (0 <= i < samples), column c. */
GW_WARN_UNUSED gw_status gw_mds_view_value(const gw_mds_view *v, int64_t i, int c,
                                           const uint8_t **value, int64_t *bytes, gw_diags *dg);

/* ---- a local directory ---- */

typedef struct gw_mds gw_mds;

/* Opens DIR; shards are mapped (or decompressed) one at a time as samples are asked for, and
 * checked against their hashes when `verify`. One thread at a time. */
GW_WARN_UNUSED gw_status gw_mds_open(const char *dir, bool verify, gw_mds **out, gw_diags *dg);
void gw_mds_close(gw_mds *m);
const gw_mds_index *gw_mds_get_index(const gw_mds *m);
/* The shard of sample i (of all shards, in their order), valid until another shard is asked for. */
GW_WARN_UNUSED gw_status gw_mds_get(gw_mds *m, int64_t i, const gw_mds_view **shard,
                                    int64_t *in_shard, gw_diags *dg);

/* ---- writing ---- */

typedef struct gw_mds_writer gw_mds_writer;

typedef struct gw_mds_writer_options {
    const char *dir;                             /* made if needed */
    const char *const *names, *const *encodings; /* [ncolumns], in any order */
    int ncolumns;
    const char *compression;   /* "zstd:1" .. "zstd:22", or NULL */
    const char *const *hashes; /* algorithms; NULL: none */
    int nhashes;
    int64_t size_limit;  /* bytes of a shard, 1 .. 2^32 - 1; 0: 64 MiB */
    int64_t first_shard; /* number of the first: several writers may fill one directory */
} gw_mds_writer_options;

GW_WARN_UNUSED gw_status gw_mds_writer_new(const gw_mds_writer_options *o, gw_mds_writer **out,
                                           gw_diags *dg);
/* Drops what is not flushed; files that are complete stay. */
void gw_mds_writer_free(gw_mds_writer *w);
/* The column as it was parsed: for gw_mds_array_write. */
const gw_mds_column *gw_mds_writer_column(const gw_mds_writer *w, int given);
typedef struct gw_mds_value {
    const void *bytes;
    int64_t n;
} gw_mds_value;
/* One sample: values[i] belongs to names[i] as given. `tokens`: how many the sample holds, for the
 * index (0 where it has none). Begins a new shard when the limit would be passed, as the library's
 * writer does. Refused: a value of the wrong fixed size, a sample that no shard can hold. */
GW_WARN_UNUSED gw_status gw_mds_writer_add(gw_mds_writer *w, const gw_mds_value *values,
                                           int64_t tokens, gw_diags *dg);
/* Ends the shard that is being filled; nothing if it is empty. */
GW_WARN_UNUSED gw_status gw_mds_writer_flush(gw_mds_writer *w, gw_diags *dg);
int64_t gw_mds_writer_shards(const gw_mds_writer *w); /* flushed so far */
/* The flushed shards as JSON: objects of index.json, joined by ", " (with "tokens", which
 * gw_mds_index_write takes out into a member that the library does not read). */
const char *gw_mds_writer_entries(const gw_mds_writer *w);
/* Flushes and writes index.json, last and whole. */
GW_WARN_UNUSED gw_status gw_mds_writer_finish(gw_mds_writer *w, gw_diags *dg);
/* index.json of a directory from the entries of one or several writers, in that order. */
GW_WARN_UNUSED gw_status gw_mds_index_write(const char *dir, const char *const *entries, int n,
                                            gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// GGUF (version 2 and 3, little-endian): metadata, tensors, dequantised rows.
#ifndef GW_FILE_GGUF_H
#define GW_FILE_GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* Types of metadata values, with the numbers of the format. */
typedef enum gw_gguf_kind {
    GW_GGUF_U8 = 0,
    GW_GGUF_I8 = 1,
    GW_GGUF_U16 = 2,
    GW_GGUF_I16 = 3,
    GW_GGUF_U32 = 4,
    GW_GGUF_I32 = 5,
    GW_GGUF_F32 = 6,
    GW_GGUF_BOOL = 7,
    GW_GGUF_STRING = 8,
    GW_GGUF_ARRAY = 9,
    GW_GGUF_U64 = 10,
    GW_GGUF_I64 = 11,
    GW_GGUF_F64 = 12
} gw_gguf_kind;

/* Bytes, not NUL-terminated in the file; here a NUL follows, though NULs may also stand inside. */
typedef struct gw_gguf_str {
    const char *data;
    int64_t len;
} gw_gguf_str;

typedef struct gw_gguf_value {
    const char *key;
    gw_gguf_kind kind; /* GW_GGUF_ARRAY: elements are of kind `elem` */
    gw_gguf_kind elem;
    int64_t count;           /* of an array; 1 otherwise */
    const void *raw;         /* the number or array of numbers in the file, unaligned */
    const gw_gguf_str *strs; /* `count` strings when the (element) kind is STRING */
} gw_gguf_value;

/* Storage types of tensors, with the numbers of the format. */
typedef enum gw_ggml_type {
    GW_GGML_F32 = 0,
    GW_GGML_F16 = 1,
    GW_GGML_Q4_0 = 2,
    GW_GGML_Q4_1 = 3,
    GW_GGML_Q5_0 = 6,
    GW_GGML_Q5_1 = 7,
    GW_GGML_Q8_0 = 8,
    GW_GGML_Q4_K = 12,
    GW_GGML_Q6_K = 14,
    GW_GGML_I8 = 24,
    GW_GGML_I16 = 25,
    GW_GGML_I32 = 26,
    GW_GGML_I64 = 27,
    GW_GGML_F64 = 28,
    GW_GGML_BF16 = 30
} gw_ggml_type;

typedef struct gw_gguf_tensor {
    const char *name;
    gw_ggml_type type;
    int ndim;        /* 1..4 */
    int64_t dims[4]; /* OUTERMOST first (the reverse of the file's order): like every shape here */
    int64_t elems;
    int64_t bytes;
    int64_t offset; /* from the start of the file */
    const void *data;
} gw_gguf_tensor;

typedef struct gw_gguf gw_gguf;

/* Maps and validates the whole file: counts, lengths, types, ranks, alignment and offsets all lie
 * within the file, names are unique, tensors do not overlap. A tensor type that is not listed above
 * is refused by name and number. */
GW_WARN_UNUSED gw_status gw_gguf_open(const char *path, gw_gguf **out, gw_diags *dg);
void gw_gguf_free(gw_gguf *g);

const char *gw_gguf_path(const gw_gguf *g);
int64_t gw_gguf_nvalues(const gw_gguf *g);
const gw_gguf_value *gw_gguf_value_at(const gw_gguf *g, int64_t i);
const gw_gguf_value *gw_gguf_find_value(const gw_gguf *g, const char *key); /* NULL when absent */
int64_t gw_gguf_ntensors(const gw_gguf *g);
const gw_gguf_tensor *gw_gguf_tensor_at(const gw_gguf *g, int64_t i);
const gw_gguf_tensor *gw_gguf_find_tensor(const gw_gguf *g,
                                          const char *name); /* NULL when absent */

/* Look-ups: true and *out set if the key is there and fits the type asked for (any integer kind for
 * i64, any number for f64; bool counts as an integer), otherwise false and *out untouched. */
bool gw_gguf_get_i64(const gw_gguf *g, const char *key, int64_t *out);
bool gw_gguf_get_f64(const gw_gguf *g, const char *key, double *out);
bool gw_gguf_get_bool(const gw_gguf *g, const char *key, bool *out);
bool gw_gguf_get_str(const gw_gguf *g, const char *key, const char **out);
/* Element i of a value (array or scalar, i < count); the same conversions. */
bool gw_gguf_elem_i64(const gw_gguf_value *v, int64_t i, int64_t *out);
bool gw_gguf_elem_f64(const gw_gguf_value *v, int64_t i, double *out);

const char *gw_ggml_type_name(gw_ggml_type t); /* "Q4_0" */
/* Elements and bytes of one block (1 element for unquantised types). */
int64_t gw_ggml_block_elems(gw_ggml_type t);
int64_t gw_ggml_block_bytes(gw_ggml_type t);
/* n elements, a multiple of the block, to float32. Integer types other than the Q kinds are refused
 * with false. */
bool gw_ggml_dequantise(gw_ggml_type t, const void *src, int64_t n, float *out);
/* Row i (of elems / dims[ndim-1] rows) of a tensor: dims[ndim-1] floats. False as above. */
bool gw_gguf_row_f32(const gw_gguf_tensor *t, int64_t row, float *out);

/* --- writing -----------------------------------------------------------------------------------
 * new -> values, declare ... -> begin -> put ... -> finish -> free. Tensors are put in the order of
 * their declaration. Bytes go to a temporary name beside `path`; finish syncs and renames. */
typedef struct gw_gguf_writer gw_gguf_writer;

gw_gguf_writer *gw_gguf_writer_new(const char *path);
/* Unless finished, removes the temporary file. */
void gw_gguf_writer_free(gw_gguf_writer *w);
/* Before begin; a key once. */
void gw_gguf_writer_str(gw_gguf_writer *w, const char *key, const char *value);
void gw_gguf_writer_u32(gw_gguf_writer *w, const char *key, int64_t value);
void gw_gguf_writer_f32(gw_gguf_writer *w, const char *key, double value);
void gw_gguf_writer_bool(gw_gguf_writer *w, const char *key, bool value);
void gw_gguf_writer_strs(gw_gguf_writer *w, const char *key, const gw_gguf_str *values, int64_t n);
void gw_gguf_writer_i32s(gw_gguf_writer *w, const char *key, const int32_t *values, int64_t n);
/* dims outermost first; the last is a multiple of the type's block. */
void gw_gguf_writer_declare(gw_gguf_writer *w, const char *name, gw_ggml_type type, int ndim,
                            const int64_t *dims);
GW_WARN_UNUSED gw_status gw_gguf_writer_begin(gw_gguf_writer *w, gw_diags *dg);
/* The next n bytes of the tensors, of one tensor at a time. */
GW_WARN_UNUSED gw_status gw_gguf_writer_put(gw_gguf_writer *w, const void *bytes, int64_t n,
                                            gw_diags *dg);
GW_WARN_UNUSED gw_status gw_gguf_writer_finish(gw_gguf_writer *w, gw_diags *dg);

/* n float32, a multiple of the block, to a storage type: F32, F16, BF16 or Q8_0. */
void gw_ggml_quantise(gw_ggml_type t, const float *src, int64_t n, void *dst);

#endif

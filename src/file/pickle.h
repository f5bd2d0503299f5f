// SPDX-License-Identifier: Apache-2.0
// Pickles that hold tensors, read without executing them.
//
// A pickle is a program for a small stack machine; what makes it dangerous is that it may name any
// callable and have it called. This machine knows the callables that a saved state_dict is made of
// and nothing else, and calls none: it notes that a tensor was described. Any other name ends the
// reading with an error that says which one it was.
#ifndef GW_FILE_PICKLE_H
#define GW_FILE_PICKLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"       /* gw_arena */
#include "base/diag.h"        /* gw_status, gw_diags */
#include "file/safetensors.h" /* gw_st_dtype */

enum { GW_PICKLE_DIMS = 8 };

typedef enum gw_pickle_kind {
    GW_PICKLE_NONE,
    GW_PICKLE_BOOL,
    GW_PICKLE_INT,
    GW_PICKLE_FLOAT,
    GW_PICKLE_STR, /* or bytes */
    GW_PICKLE_TUPLE,
    GW_PICKLE_LIST,
    GW_PICKLE_DICT, /* plain or ordered: items are key, value, key, value */
    GW_PICKLE_GLOBAL,
    GW_PICKLE_STORAGE,
    GW_PICKLE_TENSOR
} gw_pickle_kind;

typedef struct gw_pickle_value gw_pickle_value;

/* Elements of a storage; the bytes lie in a file apart that `key` names. */
typedef struct gw_pickle_storage {
    gw_st_dtype dtype;
    const char *key;
    int64_t elems;
} gw_pickle_storage;

/* Element i0, i1 .. stands at first + i0 * strides[0] + ... of its storage. */
typedef struct gw_pickle_tensor {
    const gw_pickle_storage *storage;
    int64_t first;
    int ndim;
    int64_t dims[GW_PICKLE_DIMS], strides[GW_PICKLE_DIMS];
} gw_pickle_tensor;

struct gw_pickle_value {
    gw_pickle_kind kind;
    union {
        int64_t number; /* INT, BOOL */
        double real;
        struct {
            const char *text; /* NUL-terminated; may hold NULs */
            int64_t length;
        } str; /* STR; GLOBAL: "module name" */
        struct {
            gw_pickle_value **items;
            int64_t count, cap;
        } list; /* TUPLE, LIST, DICT */
        gw_pickle_storage storage;
        gw_pickle_tensor tensor;
    } as;
};

/* Reads one pickle (protocols 2 to 5, as torch.save writes them). `name` stands in messages, which
 * carry the offset. Everything is in `a`, whose size is at most in proportion to n. Cost: linear.
 * GW_ERR_UNSUPPORTED: it would call, or is made of, what no state_dict is made of. */
GW_WARN_UNUSED gw_status gw_pickle_read(const char *name, const void *bytes, int64_t n, gw_arena *a,
                                        const gw_pickle_value **out, gw_diags *dg);
/* The value of a text key of a DICT; NULL where it has none. */
const gw_pickle_value *gw_pickle_get(const gw_pickle_value *dict, const char *key);

#endif

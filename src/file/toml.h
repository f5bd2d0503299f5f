// SPDX-License-Identifier: Apache-2.0
// The part of TOML 1.0 that configurations of trainers are written in, as a flat list of values.
#ifndef GW_FILE_TOML_H
#define GW_FILE_TOML_H

#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */

/* Bounds: a configuration is written by a person. */
enum { GW_TOML_MAX_BYTES = 1 << 20, GW_TOML_MAX_VALUES = 4096, GW_TOML_MAX_DEPTH = 16 };

typedef enum gw_toml_type {
    GW_TOML_BOOL,
    GW_TOML_INT,
    GW_TOML_REAL,
    GW_TOML_TEXT,
    GW_TOML_LIST, /* of scalars and of lists */
} gw_toml_type;

typedef struct gw_toml_value {
    const char *path; /* "section.sub.key"; a dot inside a quoted key is kept, too */
    gw_toml_type type;
    const char *text; /* numbers without '_', true, false, strings without quotes; "[1, [2, 3]]" */
    const struct gw_toml_value *items; /* of a list; their paths are NULL */
    int64_t nitems;
    int line, column; /* from 1: of the key; of an item of a list */
} gw_toml_value;

typedef struct gw_toml {
    gw_toml_value *values; /* in the order of the file */
    int64_t count;
} gw_toml;

/* Reads a document: comments, [tables] with dotted names, bare, quoted and dotted keys, strings on
 * one line, decimal integers and reals, booleans, lists over any number of lines. A key
 * or table given twice, and whatever else TOML has (dates, inline tables, [[lists of tables]],
 * strings over several lines, other bases, inf, nan) is refused with line and column:
 * GW_ERR_FORMAT, "toml-syntax". `name` stands for the file in errors. Text need not end in NUL;
 * what is handed out lives in `a`. */
GW_WARN_UNUSED gw_status gw_toml_parse(gw_arena *a, const char *name, const char *text, int64_t len,
                                       gw_toml *out, gw_diags *dg);

#endif

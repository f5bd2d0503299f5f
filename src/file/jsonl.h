// SPDX-License-Identifier: Apache-2.0
// JSON lines: chosen string values of one object a line, plain, gzip or zstd.
#ifndef GW_FILE_JSONL_H
#define GW_FILE_JSONL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"    /* gw_status, gw_diags */
#include "base/str.h"     /* gw_str */
#include "file/inflate.h" /* gw_inflate */

enum { GW_JSONL_KEYS_MAX = 8 };

/* A value of the line: a string decoded to UTF-8, or a number, true or false as written. A lone
 * surrogate becomes U+FFFD. */
typedef struct gw_jsonl_value {
    bool found;
    const char *text; /* NUL-terminated; may hold NULs */
    int64_t bytes;
} gw_jsonl_value;

/* Reads one line. `keys` are names or dotted paths into objects ("metadata.url"); the last one of a
 * doubled name counts. The whole line is checked: it must be one object and nothing else. Returns
 * NULL, or what is wrong with it, and *at the byte where. Values point into `scratch`. */
const char *gw_jsonl_parse(const char *line, int64_t n, const char *const *keys, int nkeys,
                           gw_str *scratch, gw_jsonl_value *values, int64_t *at);

typedef struct gw_jsonl gw_jsonl;
typedef enum gw_jsonl_step { GW_JSONL_LINE, GW_JSONL_BAD, GW_JSONL_END } gw_jsonl_step;
typedef struct gw_jsonl_line {
    int64_t number; /* from 1, empty lines counted */
    int64_t offset; /* in the file: of the line if plain, of its member otherwise */
    const char *why;
    bool too_long;
    gw_jsonl_value values[GW_JSONL_KEYS_MAX];
} gw_jsonl_line;

/* keys: [nkeys], nkeys <= GW_JSONL_KEYS_MAX, borrowed for the reader's life. */
GW_WARN_UNUSED gw_status gw_jsonl_open(const char *path, const char *const *keys, int nkeys,
                                       int64_t max_line_bytes, int64_t max_ratio, gw_jsonl **out,
                                       gw_diags *dg);
gw_jsonl *gw_jsonl_open_bytes(const uint8_t *bytes, int64_t n, const char *const *keys, int nkeys,
                              int64_t max_line_bytes, int64_t max_ratio);
void gw_jsonl_free(gw_jsonl *r);
/* The next line that is not empty: its values, or why it cannot be read (then the next call goes on
 * with the line after it, or after the damage). Values live until the next call. */
gw_jsonl_step gw_jsonl_next(gw_jsonl *r, gw_jsonl_line *line);
const gw_inflate *gw_jsonl_stream(const gw_jsonl *r);

#endif

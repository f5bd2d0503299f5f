// SPDX-License-Identifier: Apache-2.0
// JSON by jansson, with positions in errors, typed getters and atomic writing.
#ifndef GW_FILE_JSON_H
#define GW_FILE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* Parses one JSON value (an object or array at the top; nothing but white space may follow). *out
 * is a new reference: json_decref it. Duplicate keys in an object are refused. `name` stands for
 * the file in errors, which carry line and column. Objects iterate in file order. An integer beyond
 * 64 bits does not fail the parse: then every number of that file is a real, and the integer
 * getters accept reals that are exact integers below 2^53. Strings may hold NULs
 * (json_string_length). */
GW_WARN_UNUSED gw_status gw_json_parse(const char *text, size_t n, const char *name, json_t **out,
                                       gw_diags *dg);
/* The same for a whole file of at most max_bytes (0 = 1 GiB). */
GW_WARN_UNUSED gw_status gw_json_read_file(const char *path, int64_t max_bytes, json_t **out,
                                           gw_diags *dg);
/* Writes `value` to path by a temporary name, sync and rename. indent 0 = one compact line,
 * otherwise that many spaces (at most 31); a final newline is added. Key order is that of
 * insertion. Reals are written with 17 significant digits at most, so that reading gives the same
 * double back. */
GW_WARN_UNUSED gw_status gw_json_write_file(const char *path, const json_t *value, int indent,
                                            gw_diags *dg);

/* Getters: the value of `key` in `obj`. An absent key and an explicit null give `def`; a value of
 * another type is an error that names file and key. gw_json_get_str gives borrowed text that lives
 * as long as obj (def is returned as it is, may be NULL); text with NULs inside is refused. */
GW_WARN_UNUSED gw_status gw_json_get_i64(const json_t *obj, const char *key, int64_t def,
                                         int64_t *out, const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_get_f64(const json_t *obj, const char *key, double def,
                                         double *out, const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_get_bool(const json_t *obj, const char *key, bool def, bool *out,
                                          const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_get_str(const json_t *obj, const char *key, const char *def,
                                         const char **out, const char *file, gw_diags *dg);
/* The same for keys that must be there and not null. */
GW_WARN_UNUSED gw_status gw_json_need_i64(const json_t *obj, const char *key, int64_t *out,
                                          const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_need_f64(const json_t *obj, const char *key, double *out,
                                          const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_need_str(const json_t *obj, const char *key, const char **out,
                                          const char *file, gw_diags *dg);
/* Borrowed object or array under key; *out = NULL when absent or null. */
GW_WARN_UNUSED gw_status gw_json_get_object(const json_t *obj, const char *key, const json_t **out,
                                            const char *file, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_json_get_array(const json_t *obj, const char *key, const json_t **out,
                                           const char *file, gw_diags *dg);
/* True if v is an integer, or a real that is exactly one below 2^53. */
bool gw_json_as_i64(const json_t *v, int64_t *out);
/* Text of any origin, such as a file's name, as a JSON string: bytes that are no UTF-8 become
 * U+FFFD. A new reference. */
json_t *gw_json_text(const char *text);
json_t *gw_json_text_n(const char *text, size_t n); /* may hold NULs */
/* "integer", "string", "null" ...: the type of v for messages ("absent" for NULL). */
const char *gw_json_type_name(const json_t *v);

#endif

// SPDX-License-Identifier: Apache-2.0
// A growing byte string (always NUL-terminated, may hold NULs), and small string helpers.
#ifndef GW_BASE_STR_H
#define GW_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h" /* GW_PRINTF */

/* Zero-initialised is the empty string. `data` is never NULL after the first append or gw_str_c. */
typedef struct gw_str {
    char *data;
    size_t len, cap;
} gw_str;

void gw_str_release(gw_str *s);
void gw_str_clear(gw_str *s); /* keeps the capacity */
void gw_str_reserve(gw_str *s, size_t extra);
void gw_str_add(gw_str *s, const char *text);
void gw_str_add_n(gw_str *s, const void *bytes, size_t n);
void gw_str_add_char(gw_str *s, char c);
void gw_str_printf(gw_str *s, const char *fmt, ...) GW_PRINTF(2, 3);
void gw_str_vprintf(gw_str *s, const char *fmt, va_list ap) GW_PRINTF(2, 0);
const char *gw_str_c(const gw_str *s); /* "" when empty */

bool gw_str_eq(const char *a, const char *b); /* NULL-safe */
bool gw_str_starts(const char *s, const char *prefix);
bool gw_str_ends(const char *s, const char *suffix);
/* Edit distance (insert, delete, replace, swap of neighbours = 1), case-insensitive; for "did you
 * mean". Strings over 64 characters give INT32_MAX. */
int gw_str_distance(const char *a, const char *b);
/* Shell-style match with * and ? (whole string). */
bool gw_str_glob(const char *pattern, const char *s);

/* Whole-string decimal parses with overflow checks; false when not exactly a number. White space,
 * hexadecimal, infinities and NaN are refused. */
bool gw_parse_i64(const char *s, int64_t *out);
bool gw_parse_f64(const char *s, double *out);
/* "64", "10k", "1.5MB", "2GiB": k M G T = powers of 1000, Ki Mi Gi Ti = powers of 1024; B optional.
 */
bool gw_parse_bytes(const char *s, int64_t *out);
/* Writes a size for people: "1.6 MB" (powers of 1000). Returns buf (>= 24 bytes). */
char *gw_fmt_bytes(char *buf, int64_t bytes);
/* "1,234,567". Returns buf (>= 32 bytes). */
char *gw_fmt_count(char *buf, int64_t n);
/* "2.41 G", "806 k" with three figures, and "806 " where no prefix is needed: the caller appends
 * the unit. Prefixes n u m k M G T P E. Returns buf (>= 24 bytes). */
char *gw_fmt_si(char *buf, double x);
/* Seconds for people: "350 us", "1.25 s", "3m12s", "2h05m". Returns buf (>= 24 bytes). */
char *gw_fmt_seconds(char *buf, double s);

#endif

// SPDX-License-Identifier: Apache-2.0
// Reading golden files: lines, text as Python's unicode_escape writes it, bytes in hexadecimal.
#ifndef GW_TESTS_DATA_ESCAPED_H
#define GW_TESTS_DATA_ESCAPED_H

#include <stdint.h>

#include "base/str.h" /* gw_str */

/* All of tests/golden/NAME. */
gw_str read_golden(const char *name);
/* The line at *p, which must end, without its end; *p is behind it then. */
char *take_line(char **p);
/* s[0..n) undone, as UTF-8, in place of what `out` held. */
void unescape(const char *s, int64_t n, gw_str *out);
/* Decodes in place; returns the number of bytes, behind which a 0 stands. */
size_t unhex(char *s);

#endif

// SPDX-License-Identifier: Apache-2.0
// Text of golden files, one a line, as Python's unicode_escape writes it.
#ifndef GW_TESTS_DATA_ESCAPED_H
#define GW_TESTS_DATA_ESCAPED_H

#include <stdint.h>

#include "base/str.h" /* gw_str */

/* s[0..n) undone, as UTF-8, in place of what `out` held. */
void unescape(const char *s, int64_t n, gw_str *out);

#endif

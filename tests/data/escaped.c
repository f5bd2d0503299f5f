// SPDX-License-Identifier: Apache-2.0
// Text of golden files, as Python's unicode_escape writes it.
#include "escaped.h"

#include <stdlib.h> /* strtoul */
#include <string.h>

#include "data/unicode.h" /* gw_utf8_encode */

void unescape(const char *s, int64_t n, gw_str *out) {
    gw_str_clear(out);
    for (int64_t i = 0; i < n; i++) {
        if (s[i] != '\\') {
            gw_str_add_char(out, s[i]);
            continue;
        }
        char c = s[++i];
        int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (!digits) {
            gw_str_add_char(out, c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c);
            continue;
        }
        char hex[9] = {0};
        memcpy(hex, s + i + 1, (size_t)digits);
        i += digits;
        uint8_t utf8[4];
        int len = gw_utf8_encode((uint32_t)strtoul(hex, NULL, 16), utf8);
        gw_str_add_n(out, utf8, (size_t)len);
    }
}

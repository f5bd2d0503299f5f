// SPDX-License-Identifier: Apache-2.0
// Reading golden files. What is not as it should be fails the test that asked.
#include "escaped.h"

#include <stdio.h>
#include <stdlib.h> /* strtoul */
#include <string.h>

#include "base/diag.h"    /* gw_diags */
#include "base/io.h"      /* gw_file_read */
#include "data/unicode.h" /* gw_utf8_encode */
#include "harness.h"      /* CHECK, test_source_path */

gw_str read_golden(const char *name) {
    gw_str all = {0};
    gw_diags dg;
    char below[200];
    gw_diags_init(&dg);
    snprintf(below, sizeof below, "golden/%s", name);
    CHECK_OK(gw_file_read(test_source_path(below), 0, &all, &dg), &dg);
    gw_diags_release(&dg);
    return all;
}

char *take_line(char **p) {
    char *line = *p, *end = strchr(line, '\n');
    CHECK(end);
    *end = 0;
    *p = end + 1;
    return line;
}

static int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

size_t unhex(char *s) {
    size_t n = strlen(s) / 2;
    CHECK(strlen(s) % 2 == 0 && strspn(s, "0123456789abcdef") == 2 * n);
    for (size_t i = 0; i < n; i++)
        s[i] = (char)(hex_digit(s[2 * i]) << 4 | hex_digit(s[2 * i + 1]));
    s[n] = 0;
    return n;
}

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

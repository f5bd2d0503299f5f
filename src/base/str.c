// SPDX-License-Identifier: Apache-2.0
// The growing string.
//
// A length and a capacity beside the bytes, one extra byte for the NUL that C functions want,
// growth by doubling. Text that is built piece by piece (the program's text, JSON, reports) goes
// through it; what is built once and kept goes into an arena. Parsing and printing of figures is in
// strnum.c.
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_realloc, gw_mem_free */
#include "base/panic.h" /* GW_ASSERT */

void gw_str_release(gw_str *s) {
    gw_mem_free(s->data);
    *s = (gw_str){0};
}

void gw_str_clear(gw_str *s) {
    s->len = 0;
    if (s->data) s->data[0] = 0;
}

void gw_str_reserve(gw_str *s, size_t extra) {
    GW_ASSERT(extra < SIZE_MAX / 4 && s->len < SIZE_MAX / 4);
    size_t need = s->len + extra + 1;
    if (need <= s->cap) return;
    size_t cap = GW_MAX(GW_MAX(need, s->cap * 2), (size_t)32);
    s->data = gw_mem_realloc(s->data, cap);
    s->cap = cap;
    s->data[s->len] = 0;
}

void gw_str_add_n(gw_str *s, const void *bytes, size_t n) {
    gw_str_reserve(s, n);
    if (n) memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = 0;
}

void gw_str_add(gw_str *s, const char *text) { gw_str_add_n(s, text, strlen(text)); }

void gw_str_add_char(gw_str *s, char c) { gw_str_add_n(s, &c, 1); }

void gw_str_vprintf(gw_str *s, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    gw_str_reserve(s, 0);
    size_t room = s->cap - s->len;
    int n = vsnprintf(s->data + s->len, room, fmt, ap);
    GW_ASSERT(n >= 0);
    if ((size_t)n >= room) {
        gw_str_reserve(s, (size_t)n);
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
    }
    s->len += (size_t)n;
    va_end(again);
}

void gw_str_printf(gw_str *s, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(s, fmt, ap);
    va_end(ap);
}

const char *gw_str_c(const gw_str *s) { return s->data ? s->data : ""; }

/* ------------------------------------------------------------------------------ comparing */

bool gw_str_eq(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

bool gw_str_starts(const char *s, const char *prefix) {
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool gw_str_ends(const char *s, const char *suffix) {
    size_t n = strlen(s), k = strlen(suffix);
    return k <= n && memcmp(s + n - k, suffix, k) == 0;
}

enum { DISTANCE_MAX = 64 };

static int lower(const char *s, size_t i) { return tolower((unsigned char)s[i]); }

/* Optimal string alignment: three rows of the table suffice, since a swap looks two rows back. */
int gw_str_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > DISTANCE_MAX || m > DISTANCE_MAX) return INT32_MAX;
    int rows[3][DISTANCE_MAX + 1];
    for (size_t j = 0; j <= m; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *row = rows[i % 3];
        const int *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            bool same = lower(a, i - 1) == lower(b, j - 1);
            int best = GW_MIN(up[j], row[j - 1]) + 1;
            best = GW_MIN(best, up[j - 1] + !same);
            if (i > 1 && j > 1 && lower(a, i - 1) == lower(b, j - 2) &&
                lower(a, i - 2) == lower(b, j - 1))
                best = GW_MIN(best, up2[j - 2] + 1);
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

/* A '*' is tried shortest first; on a mismatch only the latest one need grow, so this is O(n m). */
bool gw_str_glob(const char *pattern, const char *s) {
    const char *star = NULL, *retry = NULL;
    while (*s) {
        if (*pattern == '*') {
            star = pattern++;
            retry = s;
        } else if (*pattern == '?' || *pattern == *s) {
            pattern++;
            s++;
        } else if (star) {
            pattern = star + 1;
            s = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == 0;
}

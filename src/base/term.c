// SPDX-License-Identifier: Apache-2.0
// What people read: tables and the live line.
//
// Columns line up by display width, not bytes: a CJK character takes two cells, a combining accent
// none; utf8proc knows. Bytes that are not UTF-8 count one cell each and are printed as they are.
// The first row of a table is its header and is underlined; a last column that is left-aligned is
// not padded, so that lines carry no trailing blanks.
//
// A live line belongs on a terminal, where it is redrawn in place, cut to the terminal's width, at
// most ten times a second. In a file or a CI log the same call prints whole lines, seldom. Nothing
// is ever coloured or redrawn unless the stream is a terminal that can.
#include "base/term.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/map.h"   /* GW_VEC */
#include "base/str.h"   /* gw_str, gw_parse_i64 */

enum { REDRAW_NS = 100 * 1000 * 1000 };

bool gw_term_is_tty(FILE *f) { return isatty(fileno(f)); }

bool gw_term_colour(FILE *f) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return gw_term_is_tty(f) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

int gw_term_width(FILE *f) {
    struct winsize w;
    if (ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col > 0) return w.ws_col;
    int64_t columns;
    const char *env = getenv("COLUMNS");
    if (env && gw_parse_i64(env, &columns) && columns >= 20 && columns <= 10000)
        return (int)columns;
    return 80;
}

/* Bytes of the character at s (n > 0 bytes left) and its width in cells. */
static size_t char_at(const char *s, size_t n, int *width) {
    utf8proc_int32_t cp;
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &cp);
    if (k <= 0) {
        *width = 1;
        return 1;
    }
    *width = utf8proc_charwidth(cp);
    return (size_t)k;
}

/* Bytes of the longest start of s that fits into `limit` cells; *cells gets its width. */
static size_t fit(const char *s, int limit, int *cells) {
    size_t at = 0, n = strlen(s);
    *cells = 0;
    while (at < n) {
        int w;
        size_t k = char_at(s + at, n - at, &w);
        if (*cells + w > limit) break;
        *cells += w;
        at += k;
    }
    return at;
}

static int display_width(const char *s) {
    int cells;
    fit(s, INT32_MAX / 2, &cells);
    return cells;
}

/* ------------------------------------------------------------------------------ tables */

struct gw_table {
    gw_arena arena;
    const char *spec;
    int columns;
    GW_VEC(const char **) rows; /* columns cells each; NULL = a rule */
};

gw_table *gw_table_new(const char *spec) {
    gw_table *t = gw_mem_zalloc(sizeof *t);
    t->spec = gw_arena_strdup(&t->arena, spec);
    t->columns = (int)strlen(spec);
    return t;
}

void gw_table_free(gw_table *t) {
    if (!t) return;
    gw_vec_release(&t->rows);
    gw_arena_release(&t->arena);
    gw_mem_free(t);
}

void gw_table_row(gw_table *t, ...) {
    const char **cells = gw_arena_new(&t->arena, const char *, t->columns);
    va_list ap;
    va_start(ap, t);
    for (int c = 0; c < t->columns; c++) {
        const char *text = va_arg(ap, const char *);
        cells[c] = gw_arena_strdup(&t->arena, text ? text : "");
    }
    va_end(ap);
    gw_vec_push(&t->rows, cells);
}

void gw_table_rule(gw_table *t) { gw_vec_push(&t->rows, NULL); }

static void repeat(FILE *out, char c, int n) {
    while (n-- > 0) fputc(c, out);
}

static void print_rule(FILE *out, const int *widths, int columns, const char *indent) {
    fputs(indent, out);
    for (int c = 0; c < columns; c++) {
        if (c) fputs("  ", out);
        repeat(out, '-', widths[c]);
    }
    fputc('\n', out);
}

static void print_row(const gw_table *t, const char *const *cells, FILE *out, const int *widths,
                      const char *indent) {
    int last = t->columns - 1;
    while (last > 0 && !*cells[last]) last--;
    fputs(indent, out);
    for (int c = 0; c <= last; c++) {
        int pad = widths[c] - display_width(cells[c]);
        if (c) fputs("  ", out);
        if (t->spec[c] == 'r') repeat(out, ' ', pad);
        fputs(cells[c], out);
        if (t->spec[c] != 'r' && c < last) repeat(out, ' ', pad);
    }
    fputc('\n', out);
}

void gw_table_print(const gw_table *t, FILE *out, const char *indent) {
    int *widths = gw_mem_zalloc((size_t)t->columns * sizeof *widths);
    for (int64_t r = 0; r < t->rows.count; r++)
        for (int c = 0; t->rows.items[r] && c < t->columns; c++)
            widths[c] = GW_MAX(widths[c], display_width(t->rows.items[r][c]));
    for (int64_t r = 0; r < t->rows.count; r++) {
        const char *const *cells = t->rows.items[r];
        if (cells) print_row(t, cells, out, widths, indent ? indent : "");
        if (!cells || r == 0) print_rule(out, widths, t->columns, indent ? indent : "");
    }
    gw_mem_free(widths);
}

/* ------------------------------------------------------------------------------ progress */

void gw_progress_init(gw_progress *p, FILE *out, double plain_seconds) {
    const char *term = getenv("TERM");
    bool dumb = term && strcmp(term, "dumb") == 0;
    *p = (gw_progress){.out = out,
                       .tty = gw_term_is_tty(out) && !dumb,
                       .plain_seconds = plain_seconds,
                       .last_ns = INT64_MIN};
}

static bool due(const gw_progress *p, int64_t now) {
    if (p->last_ns == INT64_MIN) return true;
    double waited = (double)(now - p->last_ns);
    return waited >= (p->tty ? (double)REDRAW_NS : p->plain_seconds * 1e9);
}

void gw_progress_show(gw_progress *p, bool force, const char *fmt, ...) {
    int64_t now = gw_clock_ns();
    if (!force && !due(p, now)) return;
    p->last_ns = now;
    char line[1024]; /* on the stack: the step loop allocates nothing */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (p->tty) {
        int cells;
        size_t n = fit(line, gw_term_width(p->out) - 1, &cells);
        fprintf(p->out, "\r%.*s\x1b[K", (int)n, line);
    } else {
        fprintf(p->out, "%s\n", line);
    }
    p->shown = p->tty;
    fflush(p->out);
}

void gw_progress_end(gw_progress *p) {
    if (p->shown) fputc('\n', p->out);
    p->shown = false;
    fflush(p->out);
}

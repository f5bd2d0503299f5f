// SPDX-License-Identifier: Apache-2.0
// What people read on a terminal: tables, a progress line, colour only where wanted.
#ifndef GW_BASE_TERM_H
#define GW_BASE_TERM_H

#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"    /* gw_arena */
#include "base/compiler.h" /* GW_PRINTF */

/* True if `f` is a terminal, NO_COLOR is unset or empty, and TERM is not "dumb". */
bool gw_term_colour(FILE *f);
bool gw_term_is_tty(FILE *f);
int gw_term_width(FILE *f); /* columns, 80 when unknown */

/* A table: columns aligned by display width (UTF-8 aware), header underlined. */
typedef struct gw_table gw_table;
/* spec: one char a column, 'l' left or 'r' right. */
gw_table *gw_table_new(const char *spec);
void gw_table_row(gw_table *t, ...); /* one const char * per column */
void gw_table_rule(gw_table *t);     /* a horizontal line */
void gw_table_print(const gw_table *t, FILE *out, const char *indent);
void gw_table_free(gw_table *t);

/* A live line: on a terminal it is redrawn in place at most 10 times a second; elsewhere a plain
 * line is printed at most once every `plain_seconds`. */
typedef struct gw_progress {
    FILE *out;
    bool tty;
    double plain_seconds;
    long long last_ns;
    bool shown;
} gw_progress;
void gw_progress_init(gw_progress *p, FILE *out, double plain_seconds);
/* `force` shows it whatever the time (last step, validation). */
void gw_progress_show(gw_progress *p, bool force, const char *fmt, ...) GW_PRINTF(3, 4);
/* Ends the live line so that other text can be printed. */
void gw_progress_end(gw_progress *p);

#endif

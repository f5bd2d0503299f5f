// SPDX-License-Identifier: Apache-2.0
// What the parts of the page share: text, figures from the plan's JSON, tables, drawings.
#ifndef GW_PLAN_HTML_IMPL_H
#define GW_PLAN_HTML_IMPL_H

#include "plan/html.h"

typedef struct gw_page {
    const gw_html_input *in;
    const json_t *j; /* in->plan */
    gw_str *out;
    int nids; /* drawings so far: their parts have ids */
    gw_arena mem;
} gw_page;

extern const char *const gw_page_style[]; /* pieces; NULL ends */
extern const char gw_page_script[];

/* ---- text (html_part.c) ---- */

/* Appends markup as it stands. */
void gw_page_add(gw_page *p, const char *fmt, ...) GW_PRINTF(2, 3);
/* Appends text from anywhere, escaped for elements and quoted attributes. */
void gw_page_text(gw_page *p, const char *text);
/* The same with its line breaks and spaces kept. */
void gw_page_lines(gw_page *p, const char *text);
/* The same, at most `most` characters, the last of them an ellipsis where it is cut. */
void gw_page_short(gw_page *p, const char *text, int most);

/* ---- figures: a path such as "parts.0.seconds" into the plan ---- */

typedef enum gw_page_unit {
    GW_PAGE_BYTES,    /* 1.6 MB */
    GW_PAGE_COUNT,    /* 1,234 */
    GW_PAGE_PARAMS,   /* 70.6 B */
    GW_PAGE_SECONDS,  /* 1.25 s */
    GW_PAGE_FRACTION, /* 0.451 is 45.1 % */
    GW_PAGE_PERCENT,  /* 45.1 is 45.1 % */
    GW_PAGE_FLOP,     /* 2.41 PFLOP */
    GW_PAGE_FLOPS,    /* 2.41 TFLOP/s */
    GW_PAGE_TFLOPS,   /* of 10^12 FLOP/s */
    GW_PAGE_BYTES_S,  /* 3.35 TB/s */
    GW_PAGE_RATE,     /* 1.23 k */
    GW_PAGE_DOLLARS,  /* $4.92 */
    GW_PAGE_NUMBER,   /* 1.234 */
} gw_page_unit;

const json_t *gw_page_at(const gw_page *p, const char *fmt, ...) GW_PRINTF(2, 3); /* or NULL */
/* NAN, "" and 0 where there is no such thing. */
double gw_page_real(const gw_page *p, const char *fmt, ...) GW_PRINTF(2, 3);
const char *gw_page_string(const gw_page *p, const char *fmt, ...) GW_PRINTF(2, 3);
int gw_page_size(const gw_page *p, const char *fmt, ...) GW_PRINTF(2, 3);
/* A number for people; buf holds at least 48 bytes. */
const char *gw_page_format(gw_page_unit u, double x, char *buf);
/* <data ...>1.6 MB</data>, or a dash. */
void gw_page_figure(gw_page *p, gw_page_unit u, const char *fmt, ...) GW_PRINTF(3, 4);

/* ---- sections and tables ---- */

/* A card with a heading; `note` below it may be NULL. Closed by gw_page_close. */
void gw_page_open(gw_page *p, const char *id, const char *title, const char *note);
void gw_page_close(gw_page *p);
/* Begins a table that scrolls inside its card: columns of head by '|', those that begin with '>' to
 * the right. `caption` is for readers of screens. */
void gw_page_table(gw_page *p, const char *caption, const char *head);
void gw_page_table_end(gw_page *p);
/* Cells: a figure, text. */
void gw_page_cell(gw_page *p, gw_page_unit u, const char *fmt, ...) GW_PRINTF(3, 4);
void gw_page_cell_text(gw_page *p, const char *text);
/* A first cell, with a square of colour class `css` (NULL: none). */
void gw_page_row(gw_page *p, const char *css, const char *text);

/* A bar of parts side by side. Shares need not sum to 1. */
typedef struct gw_page_slice {
    const char *css, *label;
    double share;
} gw_page_slice;
void gw_page_bar(gw_page *p, const char *label, const gw_page_slice *slices, int n);
/* Colour class of a cause, and its name without underscores. */
const char *gw_page_cause_css(const char *cause);
const char *gw_page_cause_text(gw_page *p, const char *cause);

/* Phases of a program, by gw_phase; NULL ends. */
typedef struct gw_page_phase {
    const char *name, *css, *text; /* "F", a colour class, "forward" */
} gw_page_phase;
extern const gw_page_phase gw_page_phases[GW_PHASE_COUNT + 1];

/* ---- drawings ---- */

enum { GW_PAGE_WIDE = 1000, GW_PAGE_NARROW = 336 };
/* <svg>, shown on wide screens or on narrow ones. `label` says what it shows. */
void gw_page_svg(gw_page *p, bool wide, int height, const char *label);
enum { GW_PAGE_TICKS = 16 };
/* Round values within [lo, hi], at most about `want`; how many. */
int gw_page_ticks(double lo, double hi, int want, double out[GW_PAGE_TICKS]);
/* An estimate of a text's width in pixels at 11 px. */
double gw_page_width(const char *text);

/* ---- sections, one file each where they draw ---- */
void gw_page_verdict(gw_page *p);
void gw_page_tiles(gw_page *p);
void gw_page_measured(gw_page *p); /* html_run.c */
void gw_page_step(gw_page *p);     /* html_step.c: parts, axes, conventions, cost, days */
void gw_page_axes(gw_page *p);
void gw_page_flops(gw_page *p);
void gw_page_costs(gw_page *p);
void gw_page_data(gw_page *p);      /* html_data.c */
void gw_page_timelines(gw_page *p); /* html_timeline.c */
void gw_page_memory(gw_page *p);    /* html_memory.c */
void gw_page_ranks(gw_page *p);
void gw_page_roofline(gw_page *p); /* html_roofline.c */
void gw_page_search(gw_page *p);   /* html_search.c */
void gw_page_details(gw_page *p);  /* html_detail.c: what was tried, wire, activations, kernels */

#endif

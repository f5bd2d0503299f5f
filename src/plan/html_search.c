// SPDX-License-Identifier: Apache-2.0
// A search's frontier: every layout that was looked at by the memory and the time it takes.
//
// Those that nothing beats in both stand on the frontier and are joined by a line; the one that is
// proposed is the largest dot. What does not fit is pale. The table lists the frontier.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/html_impl.h"

enum { HEIGHT = 320, TOP = 16, BOTTOM = 44, RIGHT = 16, ROWS = 24 };

typedef struct plot {
    gw_page *p;
    const gw_html_search *s;
    double x0, x1, y0, y1;
    int left, width;
} plot;

static double px(const plot *c, double bytes) {
    return c->left + (bytes - c->x0) / (c->x1 - c->x0) * (c->width - c->left - RIGHT);
}

static double py(const plot *c, double seconds) {
    return HEIGHT - BOTTOM - (log(seconds) - c->y0) / (c->y1 - c->y0) * (HEIGHT - BOTTOM - TOP);
}

static bool is_drawn(const gw_html_point *x) {
    return x->seconds > 0 && isfinite(x->seconds) && x->bytes >= 0 && isfinite(x->bytes);
}

/* Times on a logarithmic axis; memory from 0 to a little past the chip's, or past the largest. */
static bool find_range(plot *c) {
    double lo = (double)INFINITY, hi = 0, most = 0, memory = c->s->memory_bytes;
    for (int i = 0; i < c->s->n; i++) {
        const gw_html_point *x = &c->s->points[i];
        if (!is_drawn(x)) continue;
        lo = fmin(lo, x->seconds);
        hi = fmax(hi, x->seconds);
        most = fmax(most, x->bytes);
    }
    if (!(hi > 0)) return false;
    c->x0 = 0;
    c->x1 = memory > 0 ? fmin(fmax(most, memory) * 1.06, memory * 1.6) : most * 1.06;
    c->y0 = log(lo) - 0.08;
    c->y1 = log(hi) + 0.08;
    return c->x1 > 0;
}

/* Round times: evenly apart over a short range, 1, 2, 5, 10 .. over a long one. */
static int time_ticks(const plot *c, double ticks[GW_PAGE_TICKS]) {
    static const double parts[] = {1, 2, 5};
    int n = 0;
    if (c->y1 - c->y0 < log(5)) return gw_page_ticks(exp(c->y0), exp(c->y1), 5, ticks);
    for (double k = floor(c->y0 / log(10)); k <= c->y1 / log(10); k++)
        for (size_t i = 0; i < GW_COUNT(parts) && n < GW_PAGE_TICKS; i++) {
            double v = parts[i] * pow(10, k);
            if (log(v) >= c->y0 && log(v) <= c->y1) ticks[n++] = v;
        }
    return n;
}

static void draw_frame(const plot *c) {
    double ticks[GW_PAGE_TICKS];
    char text[48];
    gw_page *p = c->p;
    int n = gw_page_ticks(c->x0, c->x1, c->width > 600 ? 8 : 4, ticks);
    for (int i = 0; i < n; i++)
        gw_page_add(p,
                    "<path class=\"gl\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                    "text-anchor=\"%s\">%s</text>\n",
                    px(c, ticks[i]), TOP, HEIGHT - BOTTOM, px(c, ticks[i]), HEIGHT - BOTTOM + 16,
                    i == 0 ? "start" : "middle", gw_page_format(GW_PAGE_BYTES, ticks[i], text));
    n = time_ticks(c, ticks);
    for (int i = 0; i < n; i++)
        gw_page_add(p,
                    "<path class=\"gl\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%s</text>\n",
                    c->left, py(c, ticks[i]), c->width - RIGHT, c->left - 7, py(c, ticks[i]) + 3.8,
                    gw_fmt_seconds((char[32]){0}, ticks[i]));
    gw_page_add(p, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">bytes of the fullest rank</text>\n",
                c->width - RIGHT, HEIGHT - 8);
    if (c->s->memory_bytes > 0 && c->s->memory_bytes < c->x1)
        gw_page_add(p, "<path class=\"da\" d=\"M%.1f %dV%d\"/>\n", px(c, c->s->memory_bytes), TOP,
                    HEIGHT - BOTTOM);
}

static int by_bytes(const void *a, const void *b) {
    const gw_html_point *x = *(const gw_html_point *const *)a,
                        *y = *(const gw_html_point *const *)b;
    if (x->bytes < y->bytes) return -1;
    return x->bytes > y->bytes;
}

static int frontier_of(const gw_html_search *s, const gw_html_point **out) {
    int n = 0;
    for (int i = 0; i < s->n; i++)
        if (s->points[i].frontier && is_drawn(&s->points[i])) out[n++] = &s->points[i];
    if (n > 0) qsort(out, (size_t)n, sizeof(const gw_html_point *), by_bytes);
    return n;
}

static void draw_points(const plot *c) {
    gw_page *p = c->p;
    char a[48], b[48];
    const gw_html_point **front = gw_arena_new(&p->mem, const gw_html_point *, c->s->n + 1);
    int n = frontier_of(c->s, front);
    if (n > 1) gw_page_add(p, "<path class=\"cu\" d=\"");
    for (int i = 0; n > 1 && i < n; i++)
        gw_page_add(p, "%s%.1f %.1f", i ? "L" : "M", px(c, front[i]->bytes),
                    py(c, front[i]->seconds));
    if (n > 1) gw_page_add(p, "\"/>\n");
    for (int k = 0; k < 2 * c->s->n; k++) { /* the proposed one above the others */
        const gw_html_point *x = &c->s->points[k % c->s->n];
        if (!is_drawn(x) || x->bytes > c->x1 || x->best != (k >= c->s->n)) continue;
        gw_page_add(p, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                    x->best       ? "t6"
                    : !x->fits    ? "m0"
                    : x->frontier ? "t1"
                                  : "m9",
                    px(c, x->bytes), py(c, x->seconds),
                    x->best       ? "7"
                    : x->frontier ? "5"
                                  : "3.2");
        gw_page_text(p, x->label);
        gw_page_add(p, "\n%s a step, %s%s</title></circle>\n",
                    gw_page_format(GW_PAGE_SECONDS, x->seconds, a),
                    gw_page_format(GW_PAGE_BYTES, x->bytes, b), x->fits ? "" : ", does not fit");
    }
}

static void draw(gw_page *p, bool wide) {
    plot c = {.p = p, .s = p->in->search, .left = wide ? 66 : 58};
    c.width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    if (!find_range(&c)) return;
    gw_page_svg(p, wide, HEIGHT, "layouts by memory and time of a step");
    draw_frame(&c);
    draw_points(&c);
    gw_page_add(p, "</svg>\n");
}

static void value(gw_page *p, gw_page_unit u, double x) {
    char text[48];
    gw_page_add(p, "<td class=\"num\"><data value=\"%.17g\">%s</data></td>", x,
                gw_page_format(u, x, text));
}

static void add_rows(gw_page *p) {
    const gw_html_search *s = p->in->search;
    const gw_html_point **front = gw_arena_new(&p->mem, const gw_html_point *, s->n + 1);
    int n = GW_MIN(frontier_of(s, front), (int)ROWS);
    bool priced = false;
    for (int i = 0; i < n; i++) priced |= front[i]->dollars > 0;
    gw_page_add(p, "<h3>The frontier</h3>\n");
    gw_page_table(p, "layouts that no other beats in both",
                  !priced     ? "layout|>a step|>bytes"
                  : s->images ? "layout|>a step|>bytes|>a billion images"
                              : "layout|>a step|>bytes|>a billion tokens");
    for (int i = 0; i < n; i++) {
        gw_page_row(p, front[i]->best ? "t6" : "t1", front[i]->label);
        value(p, GW_PAGE_SECONDS, front[i]->seconds);
        value(p, GW_PAGE_BYTES, front[i]->bytes);
        if (priced) value(p, GW_PAGE_DOLLARS, front[i]->dollars);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
}

void gw_page_search(gw_page *p) {
    const gw_html_search *s = p->in->search;
    if (!s || s->n == 0) return;
    gw_page_open(p, "search", "Layouts that were looked at", s->summary);
    draw(p, true);
    draw(p, false);
    gw_page_add(p, "<ul class=\"keys\"><li><i class=\"sq t6\"></i>proposed, least ");
    gw_page_text(p, s->objective ? s->objective : "time");
    gw_page_add(p, "</li><li><i class=\"sq t1\"></i>nothing beats it in both</li><li><i class=\"sq "
                   "m9\"></i>beaten</li><li><i class=\"sq m0\"></i>does not fit</li>");
    if (s->memory_bytes > 0)
        gw_page_add(p, "<li><i class=\"ln dash\"></i>memory %s</li>",
                    gw_fmt_bytes((char[32]){0}, (int64_t)s->memory_bytes));
    gw_page_add(p, "</ul>\n");
    add_rows(p);
    if (s->found) {
        gw_page_add(p, "<h3>The proposed layout, as a run file</h3><p class=\"op\"><code>");
        gw_page_lines(p, s->found);
        gw_page_add(p, "</code></p>\n");
    }
    gw_page_close(p);
}

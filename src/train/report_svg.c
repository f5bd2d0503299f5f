// SPDX-License-Identifier: Apache-2.0
// Line charts as inline SVG.
//
// A chart is drawn into a fixed viewBox and scales with the page; colours and type come from the
// page's style sheet by class, so that one drawing serves light and dark. Axes have few, round
// ticks and faint rules. A curve with more points than the plot has columns is thinned to the least
// and the greatest value of each column, so that no spike is lost. The points of the last curve are
// repeated in an attribute, from which a few lines of script on the page show the value under the
// pointer.
#include <math.h>
#include <stdio.h>

#include "base/str.h" /* gw_str */
#include "train/report.h"

enum { LEFT = 58, RIGHT = 14, TOP = 10, BOTTOM = 26 };

void gw_html_text(gw_str *out, const char *text) {
    for (; *text; text++) switch (*text) {
        case '<': gw_str_add(out, "&lt;"); break;
        case '>': gw_str_add(out, "&gt;"); break;
        case '&': gw_str_add(out, "&amp;"); break;
        case '"': gw_str_add(out, "&quot;"); break;
        case '\'': gw_str_add(out, "&#39;"); break;
        default: gw_str_add_char(out, *text); break;
        }
}

int gw_axis_ticks(double lo, double hi, int want, double *out) {
    double span = hi - lo;
    if (!(span > 0) || !isfinite(span) || want < 1) return 0;
    double unit = pow(10, floor(log10(span / want)));
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double step = 10 * unit;
    for (int i = 0; i < 5; i++)
        if (span / (steps[i] * unit) <= want + 0.5) {
            step = steps[i] * unit;
            break;
        }
    int n = 0;
    double first = ceil(lo / step - 1e-9);
    for (int k = 0; k < 16; k++) {
        double t = (first + k) * step;
        if (t > hi + step * 1e-9) break;
        out[n++] = fabs(t) < step * 1e-9 ? 0 : t;
    }
    return n;
}

typedef struct plot {
    gw_str *out;
    double x0, x1, y0, y1; /* of the data */
    int width, height;
    gw_axis_format format;
} plot;

static double px(const plot *p, double x) {
    return LEFT + (x - p->x0) / (p->x1 - p->x0) * (p->width - LEFT - RIGHT);
}

static double py(const plot *p, double y) {
    return p->height - BOTTOM - (y - p->y0) / (p->y1 - p->y0) * (p->height - TOP - BOTTOM);
}

static void format_value(char *buf, size_t n, gw_axis_format format, double v) {
    switch (format) {
    case GW_AXIS_PLAIN: snprintf(buf, n, "%.4g", v); return;
    case GW_AXIS_SI: {
        snprintf(buf, n, "%.5g", v);
        if (fabs(v) < 1e4) return;
        snprintf(buf, n, "%.4g%s",
                 v / (fabs(v) < 1e6   ? 1e3
                      : fabs(v) < 1e9 ? 1e6
                                      : 1e9),
                 fabs(v) < 1e6   ? "k"
                 : fabs(v) < 1e9 ? "M"
                                 : "G");
        return;
    }
    case GW_AXIS_BYTES: {
        char part[32];
        snprintf(buf, n, "%s", gw_fmt_bytes(part, (int64_t)v));
        return;
    }
    }
}

/* ---- range ---- */

static void widen(double v, double *lo, double *hi) {
    if (!isfinite(v)) return;
    *lo = fmin(*lo, v);
    *hi = fmax(*hi, v);
}

static bool find_range(plot *p, const gw_curve *curves, int n, bool zero) {
    p->x0 = p->y0 = (double)INFINITY;
    p->x1 = p->y1 = -(double)INFINITY;
    for (int c = 0; c < n; c++)
        for (int64_t i = 0; i < curves[c].n; i++) {
            if (!isfinite(curves[c].y[i])) continue;
            widen(curves[c].x[i], &p->x0, &p->x1);
            widen(curves[c].y[i], &p->y0, &p->y1);
        }
    if (!isfinite(p->x0) || !isfinite(p->y0)) return false;
    if (zero) p->y0 = fmin(p->y0, 0);
    if (p->x1 <= p->x0) p->x1 = p->x0 + 1;
    double pad = (p->y1 - p->y0) * 0.06;
    if (!(pad > 0)) pad = p->y1 != 0 ? fabs(p->y1) * 0.1 : 1;
    p->y1 += pad;
    if (!zero) p->y0 -= pad;
    return true;
}

/* ---- axes ---- */

static void draw_axes(const plot *p) {
    double ticks[16];
    char text[48];
    int n = gw_axis_ticks(p->y0, p->y1, 5, ticks);
    for (int i = 0; i < n; i++) {
        double y = py(p, ticks[i]);
        format_value(text, sizeof text, p->format, ticks[i]);
        gw_str_printf(p->out,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                      LEFT, p->width - RIGHT, y, y, LEFT - 8, y + 3.5, text);
    }
    n = gw_axis_ticks(p->x0, p->x1, 8, ticks);
    for (int i = 0; i < n; i++) {
        format_value(text, sizeof text, GW_AXIS_SI, ticks[i]);
        gw_str_printf(p->out,
                      "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                      px(p, ticks[i]), p->height - 8, text);
    }
    gw_str_printf(p->out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", LEFT,
                  p->width - RIGHT, p->height - BOTTOM, p->height - BOTTOM);
}

/* ---- curves ---- */

static void draw_dots(const plot *p, const gw_curve *c) {
    for (int64_t i = 0; i < c->n; i++)
        if (isfinite(c->y[i]))
            gw_str_printf(p->out,
                          "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\">"
                          "<title>step %.0f: %.5g</title></circle>",
                          c->css, px(p, c->x[i]), py(p, c->y[i]), c->x[i], c->y[i]);
}

static void point(const plot *p, double x, double y, bool *open) {
    gw_str_printf(p->out, "%s%.1f %.1f", *open ? "L" : "M", px(p, x), py(p, y));
    *open = true;
}

static void draw_line(const plot *p, const gw_curve *c) {
    int64_t columns = p->width - LEFT - RIGHT;
    int64_t each = GW_MAX((int64_t)1, (c->n + columns - 1) / columns);
    bool open = false;
    gw_str_printf(p->out, "<path class=\"line %s\" d=\"", c->css);
    for (int64_t i = 0; i < c->n; i += each) {
        int64_t end = GW_MIN(i + each, c->n), lo = -1, hi = -1;
        for (int64_t k = i; k < end; k++) {
            if (!isfinite(c->y[k])) continue;
            if (lo < 0 || c->y[k] < c->y[lo]) lo = k;
            if (hi < 0 || c->y[k] > c->y[hi]) hi = k;
        }
        if (lo < 0) {
            open = false;
            continue;
        }
        point(p, c->x[GW_MIN(lo, hi)], c->y[GW_MIN(lo, hi)], &open);
        if (lo != hi) point(p, c->x[GW_MAX(lo, hi)], c->y[GW_MAX(lo, hi)], &open);
    }
    gw_str_add(p->out, "\"/>");
}

/* At most 240 points for the pointer: x in the drawing, y in the drawing, step, value. */
static void points_attribute(const plot *p, const gw_curve *c) {
    int64_t each = GW_MAX((int64_t)1, (c->n + 239) / 240);
    char text[48];
    bool any = false;
    gw_str_add(p->out, " data-points='[");
    for (int64_t i = 0; i < c->n; i += each) {
        if (!isfinite(c->y[i])) continue;
        format_value(text, sizeof text, p->format, c->y[i]);
        gw_str_printf(p->out, "%s[%.1f,%.1f,%.0f,\"%s\"]", any ? "," : "", px(p, c->x[i]),
                      py(p, c->y[i]), c->x[i], text);
        any = true;
    }
    gw_str_add(p->out, "]'");
}

static const gw_curve *last_line(const gw_curve *curves, int n) {
    const gw_curve *last = NULL;
    for (int i = 0; i < n; i++)
        if (!curves[i].dots) last = &curves[i];
    return last;
}

void gw_svg_lines(gw_str *out, const char *title, const gw_curve *curves, int ncurves,
                  gw_axis_format format, bool zero, int width, int height) {
    plot p = {.out = out, .width = width, .height = height, .format = format};
    if (!find_range(&p, curves, ncurves, zero)) {
        gw_str_add(out, "<p class=\"none\">nothing was recorded</p>");
        return;
    }
    gw_str_printf(out, "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                  width, height);
    gw_html_text(out, title);
    gw_str_add(out, "\"");
    const gw_curve *last = last_line(curves, ncurves);
    if (last) points_attribute(&p, last);
    gw_str_add(out, ">");
    draw_axes(&p);
    for (int i = 0; i < ncurves; i++)
        if (curves[i].dots)
            draw_dots(&p, &curves[i]);
        else
            draw_line(&p, &curves[i]);
    gw_str_add(out, "</svg>");
}

// SPDX-License-Identifier: Apache-2.0
// The roofline as a drawing: a dot for each kind of op, its area the time it takes, beneath the
// chip's limits.
//
// Both axes are logarithmic. The slope is the memory's bandwidth, the flat lines are the peaks of
// the dtypes; equal peaks share a line. The largest dots are named where their names have room,
// tried right, left, above and below; the rest say their names when pointed at, and the table has
// them.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/html_impl.h"

enum { HEIGHT = 380, TOP = 14, BOTTOM = 42, RIGHT = 62, NAMED = 9, BOXES = 256, ROWS = 14 };

static const double DUST = 0.004;

typedef struct box {
    double x0, y0, x1, y1;
} box;

typedef struct roof {
    gw_page *p;
    int n, left, width;
    double x0, x1, y0, y1; /* decades */
    double bandwidth, peak;
    box taken[BOXES];
    int ntaken;
} roof;

static double px(const roof *r, double intensity) {
    return r->left + (log10(intensity) - r->x0) / (r->x1 - r->x0) * (r->width - r->left - RIGHT);
}

static double py(const roof *r, double rate) {
    return HEIGHT - BOTTOM - (log10(rate) - r->y0) / (r->y1 - r->y0) * (HEIGHT - BOTTOM - TOP);
}

static double intensity_of(const roof *r, int i) {
    return gw_page_real(r->p, "roofline.points.%d.intensity", i);
}
static double rate_of(const roof *r, int i) {
    return gw_page_real(r->p, "roofline.points.%d.flops_per_s", i);
}
static double share_of(const roof *r, int i) {
    return gw_page_real(r->p, "roofline.points.%d.share", i);
}
static double radius_of(const roof *r, int i) {
    double most = r->width > 600 ? 22 : 15;
    return fmax(2.2, most * sqrt(share_of(r, i) / fmax(share_of(r, 0), 1e-12)));
}

static const char *css_of(const roof *r, int i) {
    const char *c = gw_page_string(r->p, "roofline.points.%d.class", i);
    if (strcmp(c, "products") == 0) return "t1";
    if (strcmp(c, "attention") == 0) return "t2";
    return strcmp(c, "optimizer") == 0 ? "t4" : "t3";
}

/* ---- range ---- */

static void find_range(roof *r) {
    r->bandwidth = gw_page_real(r->p, "roofline.memory_bytes_per_s");
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)gw_page_at(r->p, "roofline.peak_flops"), key, v)
        r->peak = fmax(r->peak, json_number_value(v));
    double ridge = r->peak > 0 && r->bandwidth > 0 ? r->peak / r->bandwidth : 1;
    double lo = ridge, hi = ridge, low = (double)INFINITY, high = r->peak;
    for (int i = 0; i < r->n; i++) {
        if (share_of(r, i) < DUST) continue; /* it may lie outside */
        lo = fmin(lo, intensity_of(r, i));
        hi = fmax(hi, intensity_of(r, i));
        low = fmin(low, rate_of(r, i));
        high = fmax(high, rate_of(r, i));
    }
    r->x0 = floor(2 * log10(lo) - 0.2) / 2;
    r->x1 = fmax(ceil(2 * log10(hi) + 0.3), ceil(2 * log10(ridge) + 0.6)) / 2;
    r->y0 = floor(2 * log10(fmin(low, high)) - 0.2) / 2;
    r->y1 = ceil(4 * log10(high) + 0.2) / 4;
}

/* ---- frame ---- */

static const char *decade(double k, char *buf) {
    static const char *const prefix[] = {"", " k", " M", " G", " T", " P", " E"};
    int e = (int)k, group = e >= 0 ? e / 3 : 0;
    if (e < 0 || group > 6)
        snprintf(buf, 48, "%.3g", pow(10, k));
    else
        snprintf(buf, 48, "%.0f%s", pow(10, e - 3 * group), prefix[group]);
    return buf;
}

static void draw_frame(roof *r) {
    char text[48];
    gw_page *p = r->p;
    for (double k = ceil(r->y0); k <= r->y1; k++) {
        double y = py(r, pow(10, k));
        gw_page_add(p,
                    "<path class=\"gl\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%s</text>\n",
                    r->left, y, r->width - RIGHT, r->left - 7, y + 3.8, decade(k, text));
    }
    for (double k = ceil(r->x0); k <= r->x1; k++) {
        double x = px(r, pow(10, k));
        gw_page_add(p,
                    "<path class=\"gl\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" y=\"%d\" "
                    "text-anchor=\"middle\">%s</text>\n",
                    x, TOP, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 15, decade(k, text));
    }
    gw_page_add(p, "<path class=\"ax\" d=\"M%d %dH%d\"/>\n", r->left, HEIGHT - BOTTOM,
                r->width - RIGHT);
    gw_page_add(p,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">FLOP a byte of memory "
                "traffic</text>\n",
                r->width - RIGHT, HEIGHT - 6);
}

static bool is_free(const roof *r, box b) {
    if (b.x0 < r->left + 2 || b.x1 > r->width - RIGHT || b.y0 < TOP || b.y1 > HEIGHT - BOTTOM - 2)
        return false;
    for (int i = 0; i < r->ntaken; i++) {
        const box *t = &r->taken[i];
        if (b.x0 < t->x1 && t->x0 < b.x1 && b.y0 < t->y1 && t->y0 < b.y1) return false;
    }
    return true;
}

static void take(roof *r, box b) {
    if (r->ntaken < BOXES) r->taken[r->ntaken++] = b;
}

static const char *short_dtype(const char *t) { return strncmp(t, "f8", 2) == 0 ? "f8" : t; }

/* The dtypes with this peak, eight-bit ones as one: "bf16, f16". False: an earlier one has it. */
static bool dtypes_of(json_t *peaks, const char *key, double peak, gw_str *out) {
    const char *other, *last = "";
    json_t *v;
    json_object_foreach(peaks, other, v) {
        double x = json_number_value(v);
        if (x < peak || x > peak) continue;
        if (out->len == 0 && strcmp(other, key) != 0) return false;
        if (strcmp(last, short_dtype(other)) != 0)
            gw_str_printf(out, "%s%s", out->len ? ", " : "", short_dtype(other));
        last = short_dtype(other);
    }
    return true;
}

/* One flat line for each peak, with its dtypes in the margin. */
static void draw_peaks(roof *r) {
    gw_page *p = r->p;
    json_t *peaks = (json_t *)(uintptr_t)gw_page_at(p, "roofline.peak_flops");
    const char *key;
    json_t *v;
    json_object_foreach(peaks, key, v) {
        double peak = json_number_value(v), y = py(r, peak);
        double ridge = r->bandwidth > 0 ? peak / r->bandwidth : pow(10, r->x0);
        gw_str text = {0};
        if (dtypes_of(peaks, key, peak, &text)) {
            gw_page_add(p, "<path class=\"roof\" d=\"M%.1f %.1fH%d\"/>",
                        fmax(r->left, px(r, ridge)), y, r->width - RIGHT);
            take(r, (box){px(r, ridge), y - 3, r->width - RIGHT, y + 3});
            gw_page_add(p, "<text class=\"halo\" x=\"%d\" y=\"%.1f\">", r->width - RIGHT + 5,
                        y + 4);
            gw_page_text(p, gw_str_c(&text));
            gw_page_add(p, "</text>\n");
        }
        gw_str_release(&text);
    }
}

static void draw_slope(roof *r) {
    if (!(r->bandwidth > 0) || !(r->peak > 0)) return;
    double from = fmax(r->x0, r->y0 - log10(r->bandwidth)), to = log10(r->peak / r->bandwidth);
    double x = px(r, pow(10, from)), y = py(r, pow(10, from) * r->bandwidth);
    gw_page_add(r->p, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x, y,
                px(r, pow(10, to)), py(r, r->peak));
    for (double k = from; k < to; k += 0.04) { /* names keep off the line */
        double sx = px(r, pow(10, k)), sy = py(r, pow(10, k) * r->bandwidth);
        take(r, (box){sx - 4, sy - 3, sx + 4, sy + 3});
    }
    char rate[48];
    double mid = from + (to - from) * 0.42, mx = px(r, pow(10, mid));
    double my = py(r, pow(10, mid) * r->bandwidth);
    const char *text = gw_page_format(GW_PAGE_BYTES_S, r->bandwidth, rate);
    double wide = gw_page_width("memory ") + gw_page_width(text);
    box b = {mx - 10 - wide, my - 16, mx - 8, my};
    if (b.x0 < r->left + 2) return;
    gw_page_add(r->p,
                "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">memory %s</text>\n",
                mx - 8, my - 4, text);
    take(r, b);
}

/* ---- dots ---- */

static void name_of(const roof *r, int i, gw_str *out) {
    gw_str_printf(out, "%s %s, %s", gw_page_string(r->p, "roofline.points.%d.op", i),
                  gw_page_string(r->p, "roofline.points.%d.phase", i),
                  gw_page_string(r->p, "roofline.points.%d.scope", i));
}

static void draw_dots(roof *r) {
    gw_page *p = r->p;
    for (int i = 0; i < r->n; i++) {
        double x = px(r, intensity_of(r, i)), y = py(r, rate_of(r, i));
        if (x < r->left || y > HEIGHT - BOTTOM || x > r->width - RIGHT || y < TOP) continue;
        double d = radius_of(r, i);
        if (d > 5) take(r, (box){x - d, y - d, x + d, y + d});
        char a[48], b[48], c[48];
        gw_str name = {0};
        name_of(r, i, &name);
        gw_page_add(p, "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"><title>",
                    css_of(r, i), x, y, d);
        gw_page_text(p, gw_str_c(&name));
        gw_page_add(
            p, "\n%s a step, %.1f %% of the ops' time\n%s at %s FLOP a byte</title></circle>\n",
            gw_page_format(GW_PAGE_SECONDS, gw_page_real(p, "roofline.points.%d.seconds", i), a),
            100 * share_of(r, i), gw_page_format(GW_PAGE_FLOPS, rate_of(r, i), b),
            gw_page_format(GW_PAGE_NUMBER, intensity_of(r, i), c));
        gw_str_release(&name);
    }
}

/* The names of the largest dots, where there is room. */
static void draw_names(roof *r) {
    gw_page *p = r->p;
    for (int i = 0; i < GW_MIN(r->n, (int)NAMED); i++) {
        double x = px(r, intensity_of(r, i)), y = py(r, rate_of(r, i)), d = radius_of(r, i) + 4;
        gw_str name = {0};
        const char *scope = gw_page_string(p, "roofline.points.%d.scope", i);
        gw_str_printf(&name, "%s %s",
                      *scope ? scope : gw_page_string(p, "roofline.points.%d.op", i),
                      gw_page_string(p, "roofline.points.%d.phase", i));
        double w = gw_page_width(gw_str_c(&name)) * 1.06;
        const struct {
            double x, y;
            const char *anchor;
        } at[] = {{x + d, y + 4, "start"},
                  {x - d, y + 4, "end"},
                  {x, y - d - 1, "middle"},
                  {x, y + d + 9, "middle"}};
        for (size_t k = 0; k < GW_COUNT(at); k++) {
            double x0 = k == 0 ? at[k].x : k == 1 ? at[k].x - w : at[k].x - w / 2;
            box b = {x0 - 1, at[k].y - 10, x0 + w + 1, at[k].y + 4};
            if (!is_free(r, b)) continue;
            take(r, b);
            gw_page_add(p, "<text class=\"halo\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
                        at[k].x, at[k].y, at[k].anchor);
            gw_page_text(p, gw_str_c(&name));
            gw_page_add(p, "</text>\n");
            break;
        }
        gw_str_release(&name);
    }
}

static void draw(gw_page *p, bool wide) {
    roof r = {.p = p, .n = gw_page_size(p, "roofline.points"), .left = wide ? 52 : 46};
    r.width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    find_range(&r);
    gw_page_svg(p, wide, HEIGHT, "roofline: FLOP/s of a chip against FLOPs a byte, by kind of op");
    draw_frame(&r);
    draw_dots(&r);
    draw_peaks(&r);
    draw_slope(&r);
    if (wide) draw_names(&r);
    gw_page_add(p, "</svg>\n");
}

static void add_keys(gw_page *p) {
    json_t *peaks = (json_t *)(uintptr_t)gw_page_at(p, "roofline.peak_flops");
    const char *key;
    json_t *v;
    gw_page_add(p, "<ul class=\"keys\"><li><i class=\"sq t1\"></i>products</li><li><i class=\"sq "
                   "t2\"></i>attention</li><li><i class=\"sq t3\"></i>memory-bound ops</li><li><i "
                   "class=\"sq t4\"></i>optimizer</li>");
    json_object_foreach(peaks, key, v) {
        gw_str text = {0};
        if (dtypes_of(peaks, key, json_number_value(v), &text)) {
            gw_page_add(p, "<li><i class=\"ln\"></i>%s ", gw_str_c(&text));
            gw_page_figure(p, GW_PAGE_FLOPS, "roofline.peak_flops.%s", key);
            gw_page_add(p, "</li>");
        }
        gw_str_release(&text);
    }
    gw_page_add(p, "<li><i class=\"ln\"></i>memory ");
    gw_page_figure(p, GW_PAGE_BYTES_S, "roofline.memory_bytes_per_s");
    gw_page_add(p, "</li></ul>\n");
}

/* ---- table ---- */

static void add_rows(gw_page *p) {
    int n = GW_MIN(gw_page_size(p, "roofline.points"), (int)ROWS);
    roof r = {.p = p, .n = n};
    gw_page_table(p, "kinds of ops by time", "op|in|>runs|>time|>share|>FLOP/byte|>rate|>of peak");
    for (int i = 0; i < n; i++) {
        gw_str name = {0};
        gw_str_printf(&name, "%s %s", gw_page_string(p, "roofline.points.%d.op", i),
                      gw_page_string(p, "roofline.points.%d.phase", i));
        gw_page_row(p, css_of(&r, i), gw_str_c(&name));
        gw_str_release(&name);
        gw_page_cell_text(p, gw_page_string(p, "roofline.points.%d.scope", i));
        gw_page_cell(p, GW_PAGE_COUNT, "roofline.points.%d.runs", i);
        gw_page_cell(p, GW_PAGE_SECONDS, "roofline.points.%d.seconds", i);
        gw_page_cell(p, GW_PAGE_FRACTION, "roofline.points.%d.share", i);
        gw_page_cell(p, GW_PAGE_NUMBER, "roofline.points.%d.intensity", i);
        gw_page_cell(p, GW_PAGE_FLOPS, "roofline.points.%d.flops_per_s", i);
        double peak = gw_page_real(p, "roofline.peak_flops.%s",
                                   gw_page_string(p, "roofline.points.%d.dtype", i));
        if (peak > 0)
            gw_page_add(p, "<td class=\"num\">%.1f %%</td></tr>\n", 100 * rate_of(&r, i) / peak);
        else
            gw_page_add(p, "<td class=\"num\">\xe2\x80\x93</td></tr>\n");
    }
    gw_page_table_end(p);
    gw_page_add(p, "<p class=\"line about\">Ops that only move bytes take ");
    gw_page_figure(p, GW_PAGE_SECONDS, "roofline.copies_s");
    gw_page_add(p, " and have no intensity");
    if (gw_page_real(p, "roofline.rest_s") > 0) {
        gw_page_add(p, "; kinds too small to be drawn ");
        gw_page_figure(p, GW_PAGE_SECONDS, "roofline.rest_s");
    }
    gw_page_add(p, "; all ops together ");
    gw_page_figure(p, GW_PAGE_SECONDS, "roofline.seconds");
    gw_page_add(p, ".</p>\n");
}

void gw_page_roofline(gw_page *p) {
    if (gw_page_size(p, "roofline.points") == 0) return;
    gw_page_open(
        p, "roofline", "Roofline",
        "Each kind of op in each place of a layer: FLOP/s of a chip against FLOPs for a byte "
        "of memory traffic. A dot's area is the time of its ops; under the slope memory "
        "bounds it, under the flat line the units.");
    draw(p, true);
    draw(p, false);
    add_keys(p);
    gw_page_add(p, "<h3>Kinds of ops by time</h3>\n");
    add_rows(p);
    gw_page_close(p);
}

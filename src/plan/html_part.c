// SPDX-License-Identifier: Apache-2.0
// The smallest parts of the page: escaped text, figures, tables, bars, frames of drawings.
//
// A figure is named by its path in the plan's JSON and printed by the functions that print it on a
// terminal; the JSON's own number stands beside it in the markup. So a figure on the page cannot
// differ from the one that --json prints, and a test compares them all. What has no <data> element
// around it (shares, ticks of axes, lengths of bars) is derived from these for the eye.
//
// Drawings are made twice, once for wide screens and once for a phone, since text in a drawing that
// is scaled down to a third cannot be read; the style sheet shows one of them.
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/html_impl.h"

/* ---- text ---- */

void gw_page_add(gw_page *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(p->out, fmt, ap);
    va_end(ap);
}

static void add_char(gw_page *p, char c) {
    switch (c) {
    case '<': gw_str_add(p->out, "&lt;"); break;
    case '>': gw_str_add(p->out, "&gt;"); break;
    case '&': gw_str_add(p->out, "&amp;"); break;
    case '"': gw_str_add(p->out, "&quot;"); break;
    case '\'': gw_str_add(p->out, "&#39;"); break;
    default: gw_str_add_char(p->out, (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c); break;
    }
}

void gw_page_text(gw_page *p, const char *text) {
    for (; *text; text++) add_char(p, *text);
}

void gw_page_lines(gw_page *p, const char *text) {
    for (; *text; text++)
        if (*text == '\n')
            gw_str_add(p->out, "<br>");
        else if (*text == ' ')
            gw_str_add(p->out, "&nbsp;");
        else
            add_char(p, *text);
}

void gw_page_short(gw_page *p, const char *text, int most) {
    int n = 0, chars = 0;
    for (const char *t = text; *t; t++) chars += ((unsigned char)*t & 0xc0) != 0x80;
    if (chars <= most) {
        gw_page_text(p, text);
        return;
    }
    for (; *text; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
        if (n >= most) break;
        add_char(p, *text);
    }
    gw_str_add(p->out, "\xe2\x80\xa6");
}

/* ---- figures ---- */

enum { PATH = 160 };

static const json_t *walk(const json_t *j, const char *path) {
    char key[PATH];
    while (j && *path) {
        size_t n = strcspn(path, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, path);
        if (json_is_array(j))
            j = isdigit((unsigned char)key[0]) ? json_array_get(j, strtoul(key, NULL, 10)) : NULL;
        else
            j = json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return json_is_null(j) ? NULL : j;
}

#define MAKE_PATH(path, fmt)                                                                       \
    char path[PATH];                                                                               \
    do {                                                                                           \
        va_list ap_;                                                                               \
        va_start(ap_, fmt);                                                                        \
        (void)vsnprintf(path, sizeof path, fmt, ap_);                                              \
        va_end(ap_);                                                                               \
    } while (0)

const json_t *gw_page_at(const gw_page *p, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    return walk(p->j, path);
}

double gw_page_real(const gw_page *p, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    const json_t *v = walk(p->j, path);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

const char *gw_page_string(const gw_page *p, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    const char *s = json_string_value(walk(p->j, path));
    return s ? s : "";
}

int gw_page_size(const gw_page *p, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    return (int)json_array_size(walk(p->j, path));
}

static const char *si(double x, const char *unit, char *buf) {
    char part[32];
    snprintf(buf, 48, "%s%s", gw_fmt_si(part, x), unit);
    return buf;
}

/* Parameters have billions, not gigas. */
static const char *params(double x, char *buf) {
    char part[32];
    gw_fmt_si(part, x);
    size_t n = strlen(part);
    if (n > 0 && part[n - 1] == 'G') part[n - 1] = 'B';
    while (n > 0 && part[n - 1] == ' ') part[--n] = 0;
    snprintf(buf, 48, "%s", part);
    return buf;
}

static const char *dollars(double x, char *buf) {
    char part[40];
    if (x >= 1000)
        snprintf(buf, 48, "$%s", gw_fmt_count(part, (int64_t)(x + 0.5)));
    else if (x >= 1)
        snprintf(buf, 48, "$%.2f", x);
    else
        snprintf(buf, 48, "$%.3g", x);
    return buf;
}

static const double most_whole = 9e18; /* that an int64_t holds */

const char *gw_page_format(gw_page_unit u, double x, char *buf) {
    switch (u) {
    case GW_PAGE_BYTES: return x < most_whole ? gw_fmt_bytes(buf, (int64_t)x) : si(x, "B", buf);
    case GW_PAGE_COUNT: return x < most_whole ? gw_fmt_count(buf, (int64_t)x) : si(x, "", buf);
    case GW_PAGE_PARAMS: return params(x, buf);
    case GW_PAGE_SECONDS: return gw_fmt_seconds(buf, x);
    case GW_PAGE_FRACTION: snprintf(buf, 48, "%.1f %%", 100 * x); return buf;
    case GW_PAGE_PERCENT: snprintf(buf, 48, "%.1f %%", x); return buf;
    case GW_PAGE_FLOP: return si(x, "FLOP", buf);
    case GW_PAGE_FLOPS: return si(x, "FLOP/s", buf);
    case GW_PAGE_TFLOPS: return si(x * 1e12, "FLOP/s", buf);
    case GW_PAGE_BYTES_S: return si(x, "B/s", buf);
    case GW_PAGE_RATE: return params(x, buf);
    case GW_PAGE_DOLLARS: return dollars(x, buf);
    case GW_PAGE_NUMBER: snprintf(buf, 48, "%.4g", x); return buf;
    }
    return "";
}

static void figure(gw_page *p, gw_page_unit u, const char *path) {
    const json_t *v = walk(p->j, path);
    char text[48];
    if (!json_is_number(v)) {
        gw_str_add(p->out, "\xe2\x80\x93");
        return;
    }
    if (json_is_integer(v))
        gw_page_add(p, "<data value=\"%" JSON_INTEGER_FORMAT "\" data-key=\"",
                    json_integer_value(v));
    else
        gw_page_add(p, "<data value=\"%.17g\" data-key=\"", json_real_value(v));
    gw_page_text(p, path);
    gw_page_add(p, "\">%s</data>", gw_page_format(u, json_number_value(v), text));
}

void gw_page_figure(gw_page *p, gw_page_unit u, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    figure(p, u, path);
}

/* ---- sections and tables ---- */

void gw_page_open(gw_page *p, const char *id, const char *title, const char *note) {
    gw_page_add(p, "<section class=\"card\" id=\"%s\" aria-labelledby=\"%s-h\"><h2 id=\"%s-h\">",
                id, id, id);
    gw_page_text(p, title);
    gw_page_add(p, "</h2>\n");
    if (!note) return;
    gw_page_add(p, "<p class=\"about\">");
    gw_page_text(p, note);
    gw_page_add(p, "</p>\n");
}

void gw_page_close(gw_page *p) { gw_page_add(p, "</section>\n"); }

void gw_page_table(gw_page *p, const char *caption, const char *head) {
    gw_page_add(p, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    gw_page_text(p, caption);
    gw_page_add(p, "\"><table><caption>");
    gw_page_text(p, caption);
    gw_page_add(p, "</caption><thead><tr>");
    for (const char *at = head;; at++) {
        size_t n = strcspn(at, "|");
        bool right = *at == '>';
        gw_page_add(p, "<th scope=\"col\"%s>%.*s</th>", right ? " class=\"num\"" : "",
                    (int)n - right, at + right);
        at += n;
        if (!*at) break;
    }
    gw_page_add(p, "</tr></thead><tbody>\n");
}

void gw_page_table_end(gw_page *p) { gw_page_add(p, "</tbody></table></div>\n"); }

void gw_page_cell(gw_page *p, gw_page_unit u, const char *fmt, ...) {
    MAKE_PATH(path, fmt);
    gw_page_add(p, "<td class=\"num\">");
    figure(p, u, path);
    gw_page_add(p, "</td>");
}

void gw_page_cell_text(gw_page *p, const char *text) {
    gw_page_add(p, "<td class=\"txt%s\">", strlen(text) > 28 ? " long" : "");
    gw_page_text(p, text);
    gw_page_add(p, "</td>");
}

void gw_page_row(gw_page *p, const char *css, const char *text) {
    gw_page_add(p, "<tr><th scope=\"row\">");
    if (css) gw_page_add(p, "<i class=\"sq %s\"></i>", css);
    gw_page_text(p, text);
    gw_page_add(p, "</th>");
}

void gw_page_bar(gw_page *p, const char *label, const gw_page_slice *slices, int n) {
    gw_page_add(p, "<div class=\"bar\" role=\"img\" aria-label=\"");
    gw_page_text(p, label);
    for (int i = 0; i < n; i++)
        if (slices[i].share >= 0.0005) {
            gw_page_add(p, "%s", i ? ", " : ": ");
            gw_page_text(p, slices[i].label);
            gw_page_add(p, " %.1f %%", 100 * slices[i].share);
        }
    gw_page_add(p, "\">");
    for (int i = 0; i < n; i++) {
        if (slices[i].share < 0.0005) continue;
        gw_page_add(p, "<i class=\"%s\" style=\"width:%.3f%%\" data-t=\"", slices[i].css,
                    100 * slices[i].share);
        gw_page_text(p, slices[i].label);
        gw_page_add(p, ", %.1f %%\" title=\"", 100 * slices[i].share);
        gw_page_text(p, slices[i].label);
        gw_page_add(p, ", %.1f %%\"></i>", 100 * slices[i].share);
    }
    gw_page_add(p, "</div>\n");
}

static const struct {
    const char *cause, *css;
} causes[] = {
    {"weights", "m1"},   {"optimizer_states", "m2"}, {"gradients", "m3"}, {"activations", "m4"},
    {"workspace", "m5"}, {"communication", "m6"},    {"staging", "m7"},   {"data", "m8"},
    {"runtime", "m9"}};

const gw_page_phase gw_page_phases[GW_PHASE_COUNT + 1] = {
    [GW_PHASE_F] = {"F", "f1", "forward"},
    [GW_PHASE_B] = {"B", "f2", "backward, to activations"},
    [GW_PHASE_W] = {"W", "f3", "backward, to weights"},
    [GW_PHASE_BW] = {"BW", "f4", "head and norms, both ways"},
    [GW_PHASE_O] = {"O", "f5", "optimizer and frame"},
};

const char *gw_page_cause_css(const char *cause) {
    for (size_t i = 0; i < GW_COUNT(causes); i++)
        if (strcmp(causes[i].cause, cause) == 0) return causes[i].css;
    return "m0";
}

const char *gw_page_cause_text(gw_page *p, const char *cause) {
    char *text = gw_arena_strdup(&p->mem, cause);
    for (char *t = text; *t; t++)
        if (*t == '_') *t = ' ';
    return text;
}

/* ---- drawings ---- */

void gw_page_svg(gw_page *p, bool wide, int height, const char *label) {
    int width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    gw_page_add(p, "<svg class=\"draw %s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"",
                wide ? "wide" : "narrow", width, height);
    gw_page_text(p, label);
    gw_page_add(p, "\">\n");
}

int gw_page_ticks(double lo, double hi, int want, double out[GW_PAGE_TICKS]) {
    static const double steps[] = {1, 2, 5, 10, 20, 50};
    double span = hi - lo;
    if (!(span > 0) || !isfinite(span)) return 0;
    double unit = pow(10, floor(log10(span / want))), step = 100 * unit;
    for (size_t i = 0; i < GW_COUNT(steps); i++)
        if (span / (steps[i] * unit) <= want) {
            step = steps[i] * unit;
            break;
        }
    int n = 0;
    for (double k = ceil(lo / step - 1e-9); n < GW_PAGE_TICKS && k * step <= hi * (1 + 1e-9); k++)
        out[n++] = k * step;
    return n;
}

double gw_page_width(const char *text) {
    double w = 0;
    for (; *text; text++) {
        if (((unsigned char)*text & 0xc0) == 0x80) continue;
        w += strchr("iljft.,:;'|![]() ", *text) ? 3.6 : strchr("mwMW%@", *text) ? 10 : 6.6;
    }
    return w;
}

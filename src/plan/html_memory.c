// SPDX-License-Identifier: Apache-2.0
// Memory on the page: bytes alive over the step by cause, the peak by cause, ranks of a pipeline.
//
// The waterfall is the plan's own (memory.waterfall): the step is cut into equal stretches of its
// ops, and of each the op is shown at which most is alive, so the peak is always among them. Bands
// stand on each other in a fixed order, the lasting ones below. A strip under them shows the phase
// of each op. Every stretch can be pointed at, and says its op and what is alive there.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/html_impl.h"

enum { HEIGHT = 300, TOP = 30, BOTTOM = 44, RIGHT = 12, STRIP = 7 };

/* From below. */
static const char *const order[] = {"weights",   "optimizer_states", "gradients", "activations",
                                    "workspace", "communication",    "staging",   "data",
                                    "runtime",   "fragmentation"};
enum { CAUSES = (int)GW_COUNT(order) };

typedef struct chart {
    gw_page *p;
    bool wide;
    int n;         /* points */
    double *bytes; /* [n][CAUSES] */
    double top;    /* bytes at the upper edge */
    double arena, limit;
    int peak;
    int left, width;
} chart;

static double x_of(const chart *c, double point) {
    return c->left + point / c->n * (c->width - c->left - RIGHT);
}

static double y_of(const chart *c, double bytes) {
    return HEIGHT - BOTTOM - bytes / c->top * (HEIGHT - BOTTOM - TOP);
}

static double at(const chart *c, int point, int cause) { return c->bytes[point * CAUSES + cause]; }

static double below(const chart *c, int point, int cause) {
    double sum = 0;
    for (int k = 0; k < cause; k++) sum += at(c, point, k);
    return sum;
}

/* What the arena may take of the memory there is: the rest is planned beside it. */
static double limit_of(const gw_page *p) {
    double beside = gw_page_real(p, "memory.total_bytes") - gw_page_real(p, "memory.arena_bytes");
    return gw_page_real(p, "verdict.available_bytes") - beside;
}

static void read_points(chart *c) {
    gw_page *p = c->p;
    double peak = gw_page_real(p, "memory.peak.op");
    c->n = gw_page_size(p, "memory.waterfall");
    c->bytes = gw_arena_new(&p->mem, double, c->n *CAUSES + 1);
    c->peak = -1;
    for (int i = 0; i < c->n; i++) {
        const json_t *by = gw_page_at(p, "memory.waterfall.%d.by_cause", i);
        for (int k = 0; k < CAUSES; k++)
            c->bytes[i * CAUSES + k] = json_number_value(json_object_get(by, order[k]));
        if (gw_page_real(p, "memory.waterfall.%d.op", i) == peak) c->peak = i;
    }
    c->arena = gw_page_real(p, "memory.arena_bytes");
    c->limit = limit_of(p);
    bool near = c->limit > 0 && c->limit < 1.6 * c->arena;
    if (!near) c->limit = (double)NAN;
    c->top = fmax(c->arena, near ? c->limit : 0) * 1.03;
}

/* ---- drawing ---- */

static void draw_axis(const chart *c) {
    double ticks[GW_PAGE_TICKS];
    char text[48];
    int n = gw_page_ticks(0, c->top, 5, ticks);
    for (int i = 0; i < n; i++) {
        double y = y_of(c, ticks[i]);
        gw_page_add(c->p,
                    "<path class=\"gl\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%s</text>\n",
                    c->left, y, c->width - RIGHT, c->left - 7, y + 3.8,
                    gw_page_format(GW_PAGE_BYTES, ticks[i], text));
    }
}

/* Along one edge of a band; equal neighbours are one stretch. */
static void edge(const chart *c, int cause, bool forward) {
    for (int k = 0; k < c->n;) {
        int i = forward ? k : c->n - 1 - k, run = k + 1;
        double y = below(c, i, cause);
        while (run < c->n && fabs(below(c, forward ? run : c->n - 1 - run, cause) - y) < 1) run++;
        gw_page_add(c->p, "%s%.1f %.1fH%.1f", k == 0 && forward ? "M" : "L",
                    x_of(c, forward ? k : c->n - k), y_of(c, y),
                    x_of(c, forward ? run : c->n - run));
        k = run;
    }
}

static void draw_band(const chart *c, int cause) {
    double most = 0;
    for (int i = 0; i < c->n; i++) most = fmax(most, at(c, i, cause));
    if (most <= 0) return;
    gw_page_add(c->p, "<path class=\"%s\" d=\"", gw_page_cause_css(order[cause]));
    edge(c, cause + 1, true);
    edge(c, cause, false);
    gw_page_add(c->p, "Z\"/>\n");
}

static const char *phase_css(const char *phase) {
    for (const gw_page_phase *x = gw_page_phases; x->name; x++)
        if (strcmp(x->name, phase) == 0) return x->css;
    return "f5";
}

static void draw_phases(const chart *c) {
    int y = HEIGHT - BOTTOM + 5;
    for (int i = 0, end; i < c->n; i = end) {
        const char *phase = gw_page_string(c->p, "memory.waterfall.%d.phase", i);
        for (end = i + 1; end < c->n; end++)
            if (strcmp(phase, gw_page_string(c->p, "memory.waterfall.%d.phase", end)) != 0) break;
        gw_page_add(c->p, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                    phase_css(phase), x_of(c, i), y, x_of(c, end) - x_of(c, i), (int)STRIP);
    }
    gw_page_add(c->p, "\n<text x=\"%d\" y=\"%d\">first op</text>", c->left, y + STRIP + 16);
    gw_page_add(c->p, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">op ", c->width - RIGHT,
                y + STRIP + 16);
    gw_page_add(c->p, "%s</text>\n",
                gw_fmt_count((char[40]){0}, (int64_t)gw_page_real(c->p, "program.ops")));
}

static void draw_peak(const chart *c) {
    char bytes[48];
    if (c->peak < 0) return;
    gw_page *p = c->p;
    double live = below(c, c->peak, CAUSES), x = x_of(c, c->peak + 0.5);
    bool right = x > c->left + (c->width - c->left) * 0.5;
    gw_str text = {0};
    gw_str_printf(&text, "peak %s: %s %s, %s", gw_page_format(GW_PAGE_BYTES, live, bytes),
                  gw_page_string(p, "memory.peak.name"), gw_page_string(p, "memory.peak.phase"),
                  gw_page_string(p, "memory.peak.scope"));
    double room = right ? x - 4 : c->width - RIGHT - x;
    gw_page_add(p, "<path class=\"mk\" d=\"M%.1f %dV%.1f\"/>", x, TOP - 10, y_of(c, live));
    gw_page_add(p, "<text class=\"big\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
                right ? x + 3 : x - 3, TOP - 15, right ? "end" : "start");
    gw_page_short(p, gw_str_c(&text), (int)(room / 6.7));
    gw_page_add(p, "</text>\n");
    gw_str_release(&text);
}

static void draw_lines(const chart *c) {
    gw_page_add(c->p, "<path class=\"da\" d=\"M%d %.1fH%d\"/>\n", c->left, y_of(c, c->arena),
                c->width - RIGHT);
    if (isfinite(c->limit))
        gw_page_add(c->p, "<path class=\"mk\" d=\"M%d %.1fH%d\"/>\n", c->left, y_of(c, c->limit),
                    c->width - RIGHT);
}

/* What a stretch says when it is pointed at. */
static void draw_hits(const chart *c) {
    gw_page *p = c->p;
    char text[48];
    for (int i = 0; i < c->n; i++) {
        gw_page_add(p,
                    "<rect class=\"hit\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>",
                    x_of(c, i), TOP, x_of(c, i + 1) - x_of(c, i), HEIGHT - BOTTOM - TOP);
        gw_page_add(p, "op %.0f, ", gw_page_real(p, "memory.waterfall.%d.op", i));
        gw_page_text(p, gw_page_string(p, "memory.waterfall.%d.name", i));
        gw_page_add(p, " %s, ", gw_page_string(p, "memory.waterfall.%d.phase", i));
        gw_page_text(p, gw_page_string(p, "memory.waterfall.%d.scope", i));
        gw_page_add(p, ": %s", gw_page_format(GW_PAGE_BYTES, below(c, i, CAUSES), text));
        for (int k = CAUSES - 1; k >= 0; k--)
            if (at(c, i, k) > 0.005 * below(c, i, CAUSES))
                gw_page_add(p, "\n%s %s", gw_page_cause_text(p, order[k]),
                            gw_page_format(GW_PAGE_BYTES, at(c, i, k), text));
        gw_page_add(p, "</title></rect>\n");
    }
}

static void draw(gw_page *p, bool wide) {
    chart c = {.p = p, .wide = wide};
    c.width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    c.left = wide ? 70 : 62;
    read_points(&c);
    if (c.n == 0 || !(c.top > 0)) return;
    gw_page_svg(p, wide, HEIGHT, "bytes alive by cause, from the first op of the step to the last");
    draw_axis(&c);
    for (int k = 0; k < CAUSES; k++) draw_band(&c, k);
    draw_lines(&c);
    draw_phases(&c);
    draw_hits(&c);
    draw_peak(&c);
    gw_page_add(p, "</svg>\n");
}

static bool has_phase(const gw_page *p, const char *phase) {
    for (int i = 0; i < gw_page_size(p, "memory.waterfall"); i++)
        if (strcmp(gw_page_string(p, "memory.waterfall.%d.phase", i), phase) == 0) return true;
    return false;
}

static void add_keys(gw_page *p) {
    double limit = limit_of(p), arena = gw_page_real(p, "memory.arena_bytes");
    gw_page_add(p, "<ul class=\"keys\"><li><i class=\"ln dash\"></i>arena ");
    gw_page_figure(p, GW_PAGE_BYTES, "memory.arena_bytes");
    gw_page_add(p, "</li>");
    if (limit > 0 && limit < 1.6 * arena) {
        gw_page_add(p, "<li><i class=\"ln\"></i>what the memory leaves for it</li>");
    }
    for (const gw_page_phase *x = gw_page_phases; x->name; x++)
        if (has_phase(p, x->name))
            gw_page_add(p, "<li><i class=\"sq %s\"></i>%s</li>", x->css, x->text);
    gw_page_add(p, "</ul>\n");
}

/* ---- the peak by cause ---- */

static void add_causes(gw_page *p) {
    double total = gw_page_real(p, "memory.total_bytes");
    gw_page_slice slices[CAUSES];
    for (int k = 0; k < CAUSES; k++)
        slices[k] =
            (gw_page_slice){gw_page_cause_css(order[k]), gw_page_cause_text(p, order[k]),
                            gw_page_real(p, "memory.by_cause.%s", order[k]) / fmax(1, total)};
    gw_page_add(p, "<h3>At the peak, by cause</h3>\n");
    gw_page_bar(p, "bytes at the peak", slices, CAUSES);
    gw_page_table(p, "bytes at the peak by cause", "cause|>bytes|>share");
    for (int k = 0; k < CAUSES; k++) {
        if (!(gw_page_real(p, "memory.by_cause.%s", order[k]) > 0)) continue;
        gw_page_row(p, slices[k].css, slices[k].label);
        gw_page_cell(p, GW_PAGE_BYTES, "memory.by_cause.%s", order[k]);
        gw_page_add(p, "<td class=\"num\">%.1f %%</td></tr>\n", 100 * slices[k].share);
    }
    gw_page_add(p, "<tr class=\"sum\"><th scope=\"row\">total</th>");
    gw_page_cell(p, GW_PAGE_BYTES, "memory.total_bytes");
    gw_page_add(p, "<td class=\"num\">100.0 %%</td></tr>\n");
    gw_page_table_end(p);
}

static void add_per_param(gw_page *p) {
    gw_page_add(p, "<h3>Bytes a parameter</h3>\n<p class=\"about\">weights + gradients + "
                   "optimizer states</p><ul class=\"eq\">");
    for (int i = 0; i < gw_page_size(p, "memory.bytes_per_param.kinds"); i++) {
        gw_page_add(p, "<li>");
        gw_page_text(p, gw_page_string(p, "memory.bytes_per_param.kinds.%d.text", i));
        gw_page_add(p, " B for ");
        gw_page_figure(p, GW_PAGE_COUNT, "memory.bytes_per_param.kinds.%d.params", i);
        gw_page_add(p, " params</li>");
    }
    gw_page_add(p, "<li>= ");
    gw_page_figure(p, GW_PAGE_BYTES, "memory.static.total");
    gw_page_add(p, ", if all are alive at once</li></ul>\n");
}

static void add_peak(gw_page *p) {
    gw_page_add(p, "<h3>The op at the peak</h3><p class=\"op\"><code>");
    gw_page_text(p, gw_page_string(p, "memory.peak.text"));
    gw_page_add(p, "</code></p>\n");
}

void gw_page_memory(gw_page *p) {
    if (!gw_page_at(p, "memory")) return;
    gw_page_open(p, "memory", "Memory over the step",
                 gw_page_real(p, "ranks") > 1
                     ? "Bytes alive by cause as the ops of the program run, on the fullest rank. "
                       "Point at the chart for the op and its bytes."
                     : "Bytes alive by cause as the ops of the program run. Point at the chart for "
                       "the op and its bytes.");
    draw(p, true);
    draw(p, false);
    add_keys(p);
    gw_page_add(p, "<div class=\"two\"><div>");
    add_causes(p);
    gw_page_add(p, "</div><div>");
    add_per_param(p);
    add_peak(p);
    gw_page_add(p, "</div></div>\n");
    gw_page_close(p);
}

/* ---- ranks of a pipeline ---- */

static void add_stages(gw_page *p, int rank) {
    gw_str text = {0};
    int n = gw_page_size(p, "pipeline.ranks.%d.stages", rank);
    for (int i = 0; i < n; i++)
        gw_str_printf(&text, "%s%.0f", i ? ", " : "",
                      gw_page_real(p, "pipeline.ranks.%d.stages.%d", rank, i));
    gw_page_cell_text(p, gw_str_c(&text));
    gw_str_release(&text);
}

void gw_page_ranks(gw_page *p) {
    int n = gw_page_size(p, "pipeline.ranks");
    double most = 1;
    if (n == 0) return;
    gw_page_open(p, "ranks", "Ranks of the pipeline", "What each holds at its peak, by cause.");
    for (int r = 0; r < n; r++)
        most = fmax(most, gw_page_real(p, "pipeline.ranks.%d.total_bytes", r));
    gw_page_table(p, "ranks of the pipeline", ">rank|stages|>parameters|>bytes||>sent a step");
    for (int r = 0; r < n; r++) {
        gw_page_add(p, "<tr>");
        gw_page_cell(p, GW_PAGE_COUNT, "pipeline.ranks.%d.rank", r);
        add_stages(p, r);
        gw_page_cell(p, GW_PAGE_PARAMS, "pipeline.ranks.%d.params", r);
        gw_page_cell(p, GW_PAGE_BYTES, "pipeline.ranks.%d.total_bytes", r);
        gw_page_slice slices[CAUSES];
        for (int k = 0; k < CAUSES; k++)
            slices[k] = (gw_page_slice){
                gw_page_cause_css(order[k]), gw_page_cause_text(p, order[k]),
                gw_page_real(p, "pipeline.ranks.%d.by_cause.%s", r, order[k]) / most};
        gw_page_add(p, "<td>");
        gw_page_bar(p, "of the fullest rank", slices, CAUSES);
        gw_page_add(p, "</td>");
        gw_page_cell(p, GW_PAGE_BYTES, "pipeline.ranks.%d.wire_payload_bytes", r);
        gw_page_add(p, "</tr>\n");
    }
    gw_page_table_end(p);
    gw_page_close(p);
}

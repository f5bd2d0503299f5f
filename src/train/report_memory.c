// SPDX-License-Identifier: Apache-2.0
// The memory waterfall: what the arena holds at each op of the step, by cause.
//
// Live bytes are those of the plan's ledger (plan/ledger.h), so the highest column is the peak that
// the plan names, and what lies between it and the arena's end is what packing lost. Ops stand in
// program order: before the loop, one micro-batch, after it. A step has more ops than a page has
// columns: each column shows the op of its range where the most is alive, so that the peak is
// always drawn.
#include <stdio.h>
#include <string.h>

#include "base/str.h" /* gw_str */
#include "train/report.h"

enum { WIDTH = 1000, HEIGHT = 300, LEFT = 66, RIGHT = 14, TOP = 24, BOTTOM = 40, COLUMNS = 460 };

/* From the bottom up, with the page's colour class. */
static const struct {
    gw_cause cause;
    const char *css, *label;
} bands[] = {
    {GW_CAUSE_WEIGHTS, "m1", "weights"},     {GW_CAUSE_OPTIMIZER, "m2", "optimizer states"},
    {GW_CAUSE_GRADIENTS, "m3", "gradients"}, {GW_CAUSE_ACTIVATIONS, "m4", "activations"},
    {GW_CAUSE_WORKSPACE, "m5", "workspace"}, {GW_CAUSE_COMMUNICATION, "m6", "communication"},
    {GW_CAUSE_STAGING, "m7", "staging"},     {GW_CAUSE_DATA, "m8", "data"},
};
enum { BANDS = (int)GW_COUNT(bands) };

typedef struct waterfall {
    int64_t nops, ncolumns, arena;
    int64_t *live;  /* [BANDS][nops] */
    int64_t *shown; /* [ncolumns]: op drawn in the column */
    int64_t peak;   /* op */
} waterfall;

static int band_of(gw_cause c) {
    for (int i = 0; i < BANDS; i++)
        if (bands[i].cause == c) return i;
    return BANDS - 1;
}

static int64_t total_at(const waterfall *w, int64_t op) {
    int64_t sum = 0;
    for (int b = 0; b < BANDS; b++) sum += w->live[b * w->nops + op];
    return sum;
}

static void take_live(waterfall *w, const gw_ledger *l, gw_arena *a) {
    w->live = gw_arena_new(a, int64_t, BANDS * w->nops + 1);
    for (int64_t i = 0; i < w->nops; i++)
        for (int c = 0; c < GW_CAUSE_COUNT; c++)
            w->live[band_of((gw_cause)c) * w->nops + i] += l->live[i * GW_CAUSE_COUNT + c];
    w->peak = l->peak_op;
}

static void choose_columns(waterfall *w, gw_arena *a) {
    w->ncolumns = GW_MIN(w->nops, (int64_t)COLUMNS);
    w->shown = gw_arena_new(a, int64_t, w->ncolumns + 1);
    for (int64_t c = 0; c < w->ncolumns; c++) {
        int64_t from = c * w->nops / w->ncolumns, end = (c + 1) * w->nops / w->ncolumns;
        w->shown[c] = from;
        for (int64_t i = from; i < end; i++)
            if (total_at(w, i) > total_at(w, w->shown[c])) w->shown[c] = i;
    }
}

/* ---- drawing ---- */

static double x_of(const waterfall *w, double column) {
    return LEFT + column / (double)w->ncolumns * (WIDTH - LEFT - RIGHT);
}

static double y_of(const waterfall *w, double bytes) {
    return HEIGHT - BOTTOM - bytes / ((double)w->arena * 1.04) * (HEIGHT - TOP - BOTTOM);
}

static int64_t below(const waterfall *w, int band, int64_t op) {
    int64_t sum = 0;
    for (int b = 0; b < band; b++) sum += w->live[b * w->nops + op];
    return sum;
}

static void draw_band(gw_str *out, const waterfall *w, int band) {
    int64_t most = 0;
    for (int64_t c = 0; c < w->ncolumns; c++)
        most = GW_MAX(most, w->live[band * w->nops + w->shown[c]]);
    if (most == 0) return;
    gw_str_printf(out, "<path class=\"band %s\" d=\"", bands[band].css);
    for (int64_t c = 0; c < w->ncolumns; c++) {
        double y = y_of(w, (double)below(w, band + 1, w->shown[c]));
        gw_str_printf(out, "%s%.1f %.1fH%.1f", c ? "L" : "M", x_of(w, (double)c), y,
                      x_of(w, (double)c + 1));
    }
    for (int64_t c = w->ncolumns - 1; c >= 0; c--) {
        double y = y_of(w, (double)below(w, band, w->shown[c]));
        gw_str_printf(out, "L%.1f %.1fH%.1f", x_of(w, (double)c + 1), y, x_of(w, (double)c));
    }
    char most_text[32];
    gw_str_printf(out, "Z\"><title>%s, at most %s</title></path>", bands[band].label,
                  gw_fmt_bytes(most_text, most));
}

static void draw_axis(gw_str *out, const waterfall *w) {
    double ticks[16];
    char text[32];
    int n = gw_axis_ticks(0, (double)w->arena * 1.04, 5, ticks);
    for (int i = 0; i < n; i++) {
        double y = y_of(w, ticks[i]);
        gw_str_printf(out,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                      LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 3.5,
                      gw_fmt_bytes(text, (int64_t)ticks[i]));
    }
}

/* A labelled span below the axis: where forward, backward and the optimizer stand. */
static void draw_span(gw_str *out, const waterfall *w, int64_t first, int64_t end,
                      const char *label) {
    if (end <= first) return;
    double scale = (double)w->ncolumns / (double)w->nops;
    double x0 = x_of(w, (double)first * scale), x1 = x_of(w, (double)end * scale);
    gw_str_printf(out, "<path class=\"span\" d=\"M%.1f %dv5H%.1fv-5\"/>", x0 + 1,
                  HEIGHT - BOTTOM + 5, x1 - 1);
    if (x1 - x0 > 46)
        gw_str_printf(out,
                      "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                      (x0 + x1) / 2, HEIGHT - BOTTOM + 25, label);
}

static void draw_spans(gw_str *out, const waterfall *w, const gw_graph *g) {
    gw_oid first = 0, end = 0;
    gw_graph_loop(g, &first, &end);
    int64_t backward = first;
    while (backward < (int64_t)end && (g->ops.items[backward].phase == GW_PHASE_F ||
                                       g->ops.items[backward].phase == GW_PHASE_BW))
        backward++;
    draw_span(out, w, 0, first, "before");
    draw_span(out, w, first, backward, "forward");
    draw_span(out, w, backward, end, "backward");
    draw_span(out, w, end, w->nops, "optimizer");
}

static void draw_marks(gw_str *out, const waterfall *w, const gw_graph *g) {
    char text[32];
    double y = y_of(w, (double)w->arena);
    gw_str_printf(out,
                  "<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                  "<text class=\"note\" x=\"%d\" y=\"%.1f\">arena %s</text>",
                  LEFT, WIDTH - RIGHT, y, y, LEFT + 4, y - 6, gw_fmt_bytes(text, w->arena));
    const gw_op *o = &g->ops.items[w->peak];
    double x = x_of(w, ((double)w->peak + 0.5) * (double)w->ncolumns / (double)w->nops);
    bool right = x > WIDTH * 0.6;
    gw_str_printf(out, "<line class=\"peak\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%d\"/>", x, x,
                  y_of(w, (double)total_at(w, w->peak)), HEIGHT - BOTTOM);
    gw_str_printf(
        out, "<text class=\"note strong\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">peak %s at %s, ",
        right ? x - 6 : x + 6, y - 6, right ? "end" : "start",
        gw_fmt_bytes(text, total_at(w, w->peak)), gw_op_def(g, o)->name);
    gw_html_text(out, gw_graph_str(g, o->scope));
    gw_str_add(out, "</text>");
}

static void peak_table(gw_str *out, const waterfall *w) {
    char a[32], b[32];
    int64_t total = total_at(w, w->peak);
    gw_str_add(out, "<table class=\"legend\"><thead><tr><th></th><th>cause</th><th>at the peak</th>"
                    "<th>share</th><th>most at any op</th></tr></thead><tbody>");
    for (int i = BANDS - 1; i >= 0; i--) {
        int64_t here = w->live[i * w->nops + w->peak], most = 0;
        for (int64_t op = 0; op < w->nops; op++) most = GW_MAX(most, w->live[i * w->nops + op]);
        if (most == 0) continue;
        gw_str_printf(out,
                      "<tr><td><span class=\"key %s\"></span></td><td>%s</td><td>%s</td>"
                      "<td>%.1f %%</td><td>%s</td></tr>",
                      bands[i].css, bands[i].label, gw_fmt_bytes(a, here),
                      100 * (double)here / (double)total, gw_fmt_bytes(b, most));
    }
    gw_str_printf(out,
                  "<tr class=\"sum\"><td></td><td>live at the peak</td><td>%s</td><td>100 %%</td>"
                  "<td></td></tr>",
                  gw_fmt_bytes(a, total));
    gw_str_printf(out,
                  "<tr><td></td><td>lost in packing</td><td>%s</td><td>%.1f %%</td><td></td></tr>"
                  "</tbody></table>",
                  gw_fmt_bytes(a, w->arena - total),
                  100 * (double)(w->arena - total) / (double)total);
}

void gw_svg_memory(gw_str *out, const gw_session *s) {
    const gw_graph *g = gw_exec_graph(s->x);
    gw_arena mem = {0};
    waterfall w = {.nops = g->ops.count, .arena = g->arena_bytes[GW_MEM_DEVICE]};
    if (w.nops == 0 || w.arena == 0) return;
    gw_ledger l;
    gw_report_ledger(s, &l);
    take_live(&w, &l, &mem);
    gw_ledger_release(&l);
    choose_columns(&w, &mem);
    gw_str_printf(
        out,
        "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"live bytes by cause at each "
        "op of the step\">",
        WIDTH, HEIGHT);
    draw_axis(out, &w);
    for (int b = 0; b < BANDS; b++) draw_band(out, &w, b);
    draw_spans(out, &w, g);
    draw_marks(out, &w, g);
    gw_str_add(out, "</svg>");
    peak_table(out, &w);
    gw_arena_release(&mem);
}

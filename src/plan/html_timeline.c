// SPDX-License-Identifier: Apache-2.0
// When things happen: the actions of a pipeline's ranks, and what the streams of one rank do over
// the simulated step.
//
// The first is the drawing of `plan --svg`, in this page's colours; of very long steps only the
// beginning is drawn, and the page says so. The second condenses the simulator's trace: the step is
// cut into columns, and each stream's height in a column is the part of it in which the stream is
// busy. So gaps in compute that coincide with a collective are waits for it, at any number of ops.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/html_impl.h"

enum { BOXES = 12000, ROW = 34, BAND = 26, TOP = 8, AXIS = 26, RIGHT = 12 };

/* ---- actions ---- */

static int by_start(const void *a, const void *b) {
    const gw_timeline_box *x = a, *y = b;
    if (x->start < y->start) return -1;
    if (x->start > y->start) return 1;
    return x->rank - y->rank;
}

/* What the drawing shows of a long timeline: waits for messages are left out first, and then all
 * but its beginning. */
static const gw_timeline *drawn_part(gw_page *p, const gw_timeline *t, gw_timeline *part) {
    if (t->n <= BOXES) return t;
    *part = *t;
    part->boxes = gw_arena_new(&p->mem, gw_timeline_box, t->n);
    part->n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        gw_action a = t->boxes[i].action;
        bool shown = gw_timeline_computes(a) || a.act == GW_ACT_STEP || a.act == GW_ACT_REDUCE;
        if (shown) part->boxes[part->n++] = t->boxes[i];
    }
    if (part->n <= BOXES) return part;
    if (part->n > 0) qsort(part->boxes, (size_t)part->n, sizeof *t->boxes, by_start);
    part->n = BOXES;
    return part;
}

static void add_actions(gw_page *p, const char *id, const char *title, const gw_timeline *t,
                        const char *note) {
    gw_timeline part;
    if (!t || t->n == 0) return;
    const gw_timeline *shown = drawn_part(p, t, &part);
    gw_page_open(p, id, title, note);
    gw_page_add(p, "<div class=\"lane\" tabindex=\"0\" role=\"region\" aria-label=\"");
    gw_page_text(p, title);
    gw_page_add(p, "\">\n");
    gw_timeline_svg(shown, p->out);
    gw_page_add(p, "</div>\n");
    if (shown->n == BOXES)
        gw_page_add(
            p,
            "<p class=\"line about\">Drawn are the first %d of %s actions; the figures in the "
            "drawing are of these. <code>--trace</code> writes them all.</p>\n",
            (int)BOXES, gw_fmt_count((char[40]){0}, t->n));
    gw_page_close(p);
}

/* ---- streams ---- */

typedef struct streams {
    gw_page *p;
    const gw_simplan *sim;
    int rank, left, width, columns;
    int row[GW_STREAM_COUNT]; /* from above; -1: not used */
    int rows;
    double *busy; /* [streams][phases][columns]: share of the column */
} streams;

static double *cells(const streams *s, int stream, int phase) {
    return s->busy + ((int64_t)stream * GW_PHASE_COUNT + phase) * s->columns;
}

static void add_event(streams *s, const gw_sim_event *e) {
    double step = s->sim->sim.step_s;
    int phase = e->op == GW_NONE ? GW_PHASE_O : s->sim->programs[e->rank]->ops.items[e->op].phase;
    double *row = cells(s, e->stream, phase);
    double from = e->start / step * s->columns, to = e->end / step * s->columns;
    int first = GW_MAX(0, (int)from), last = GW_MIN(s->columns - 1, (int)to);
    for (int c = first; c <= last; c++) row[c] += fmax(0, fmin(to, c + 1) - fmax(from, c));
}

static void read_trace(streams *s) {
    const gw_sim_result *r = &s->sim->sim;
    static const gw_stream order[] = {GW_STREAM_COMPUTE, GW_STREAM_TP, GW_STREAM_CP,  GW_STREAM_EP,
                                      GW_STREAM_DP,      GW_STREAM_PP, GW_STREAM_COPY};
    double busy[GW_STREAM_COUNT] = {[GW_STREAM_COMPUTE] = (double)INFINITY};
    int64_t n = (int64_t)GW_STREAM_COUNT * GW_PHASE_COUNT * s->columns;
    s->busy = gw_arena_new(&s->p->mem, double, n);
    for (int64_t i = 0; i < r->ntrace; i++) {
        const gw_sim_event *e = &r->trace[i];
        if (e->rank != s->rank || e->op == GW_NONE) continue;
        busy[e->stream] += e->end - e->start;
        add_event(s, e);
    }
    for (int k = 0; k < GW_STREAM_COUNT; k++) s->row[k] = -1;
    for (size_t i = 0; i < GW_COUNT(order); i++)
        if (busy[order[i]] > 2e-4 * r->step_s) s->row[order[i]] = s->rows++;
}

static double x_of(const streams *s, double column) {
    return s->left + column / s->columns * (s->width - s->left - RIGHT);
}

/* One phase of a stream, on top of those before it. */
static void draw_phase(const streams *s, int stream, int phase, double *below) {
    const double *row = cells(s, stream, phase);
    double base = TOP + s->row[stream] * ROW + BAND;
    bool any = false;
    for (int c = 0, end; c < s->columns; c = end) {
        double lo = fmin(1, below[c]), hi = fmin(1, below[c] + row[c]);
        for (end = c + 1; end < s->columns; end++)
            if (fabs(row[end] - row[c]) > 0.02 || fabs(below[end] - below[c]) > 0.02) break;
        if (hi - lo < 0.01) continue;
        if (!any)
            gw_page_add(s->p, "<path class=\"%s\" d=\"",
                        stream == GW_STREAM_COMPUTE ? gw_page_phases[phase].css : "t6");
        any = true;
        gw_page_add(s->p, "M%.1f %.1fH%.1fV%.1fH%.1fZ", x_of(s, c), base - lo * BAND, x_of(s, end),
                    base - hi * BAND, x_of(s, c));
    }
    if (any) gw_page_add(s->p, "\"/>\n");
    for (int c = 0; c < s->columns; c++) below[c] += row[c];
}

static void draw_stream(const streams *s, int stream) {
    int y = TOP + s->row[stream] * ROW;
    double *below = gw_arena_new(&s->p->mem, double, s->columns);
    gw_page_add(s->p,
                "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text><rect class=\"rail\" "
                "x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                s->left - 8, y + BAND / 2 + 4, gw_stream_name((gw_stream)stream), s->left, y,
                s->width - s->left - RIGHT, (int)BAND);
    for (int k = 0; k < GW_PHASE_COUNT; k++) draw_phase(s, stream, k, below);
}

static void draw_time(const streams *s) {
    double ticks[GW_PAGE_TICKS], step = s->sim->sim.step_s;
    int n = gw_page_ticks(0, step, s->width > 600 ? 8 : 3, ticks), y = TOP + s->rows * ROW - 2;
    for (int i = 0; i < n; i++) {
        double x = s->left + ticks[i] / step * (s->width - s->left - RIGHT);
        bool first = i == 0, last = x > s->width - RIGHT - 24;
        gw_page_add(s->p,
                    "<path class=\"ax\" d=\"M%.1f %dv5\"/><text x=\"%.1f\" y=\"%d\" "
                    "text-anchor=\"%s\">%s</text>\n",
                    x, y, x, y + 18,
                    first  ? "start"
                    : last ? "end"
                           : "middle",
                    gw_fmt_seconds((char[32]){0}, ticks[i]));
    }
}

static void draw_streams(gw_page *p, int rank, bool wide) {
    streams s = {.p = p, .sim = p->in->sim, .rank = rank, .left = wide ? 66 : 58};
    s.width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    s.columns = s.width - s.left - RIGHT;
    read_trace(&s);
    gw_page_svg(p, wide, TOP + s.rows * ROW + AXIS, "what each stream does over the step");
    for (int k = 0; k < GW_STREAM_COUNT; k++)
        if (s.row[k] >= 0) draw_stream(&s, k);
    draw_time(&s);
    gw_page_add(p, "</svg>\n");
}

static void add_streams(gw_page *p) {
    const gw_simplan *sim = p->in->sim;
    if (!sim || sim->sim.ntrace == 0 || !(sim->sim.step_s > 0)) return;
    gw_page_open(
        p, "streams", "What runs beside what",
        sim->n > 1
            ? "The streams of the first rank of the pipeline over the simulated step. "
              "Height is the part of a moment in which a stream is busy."
            : "The streams of a rank over the simulated step. Height is the part of a moment "
              "in which a stream is busy.");
    draw_streams(p, 0, true);
    draw_streams(p, 0, false);
    gw_page_add(p, "<ul class=\"keys\"><li><i class=\"sq f1\"></i>forward</li><li><i class=\"sq "
                   "f2\"></i>backward to inputs</li><li><i class=\"sq f3\"></i>backward to "
                   "weights</li><li><i class=\"sq f4\"></i>head and norms, both ways</li><li><i "
                   "class=\"sq f5\"></i>optimizer and frame</li>");
    if (gw_page_size(p, "axes") > 0)
        gw_page_add(p, "<li><i class=\"sq t6\"></i>collectives, messages, copies</li>");
    gw_page_add(p, "</ul>\n");
    gw_page_close(p);
}

void gw_page_timelines(gw_page *p) {
    const gw_html_run *run = p->in->run;
    const gw_timeline *t = p->in->timeline;
    const char *note = p->in->sim ? "Forward and backward of each micro-batch on each rank of the "
                                    "pipeline, as simulated. The drawing's own figures count from "
                                    "the first action."
                                  : "Forward and backward of each micro-batch on each rank, by the "
                                    "schedule's clock.";
    if (t && t->ranks > 1) add_actions(p, "timeline", "Timeline", t, note);
    if (run)
        add_actions(p, "measured-timeline", "Timeline, measured", run->timeline,
                    "The same of the run's latest step, by its clocks.");
    add_streams(p);
}

// SPDX-License-Identifier: Apache-2.0
// A run beside its plan: what was planned, what was measured, how far they are apart; and the time
// of each step.
//
// Figures are those of the run's summary.json, which stands in the plan's object under "run". Where
// a machine is stated the simulated step time is what the measured one is held against; without one
// there is only the least time that the peak of this machine allows.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/html_impl.h"

enum { HEIGHT = 230, TOP = 14, BOTTOM = 30, RIGHT = 14 };

/* ---- table ---- */

static void off_cell(gw_page *p, const char *planned, const char *measured) {
    double x = gw_page_real(p, "%s", planned), y = gw_page_real(p, "%s", measured);
    if (x == y)
        gw_page_add(p, "<td class=\"num\">equal</td></tr>\n");
    else if (x > 0 && isfinite(y))
        gw_page_add(p, "<td class=\"num\">%+.1f %%</td></tr>\n", 100 * (y / x - 1));
    else
        gw_page_add(p, "<td></td></tr>\n");
}

static void row(gw_page *p, gw_page_unit u, const char *text, const char *planned,
                const char *measured) {
    if (!gw_page_at(p, "%s", measured)) return;
    gw_page_row(p, NULL, text);
    gw_page_cell(p, u, "%s", planned);
    gw_page_cell(p, u, "%s", measured);
    off_cell(p, planned, measured);
}

static void add_wires(gw_page *p) {
    const char *name;
    json_t *w;
    json_object_foreach((json_t *)(uintptr_t)gw_page_at(p, "run.planned.wire"), name, w) {
        const char *keys[] = {"payload_bytes", "moved_bytes"};
        for (size_t i = 0; i < GW_COUNT(keys); i++)
            row(p, GW_PAGE_BYTES,
                gw_arena_printf(&p->mem, "%s sent a step, %s", name, i ? "moved" : "payload"),
                gw_arena_printf(&p->mem, "run.planned.wire.%s.%s", name, keys[i]),
                gw_arena_printf(&p->mem, "run.measured.wire.%s.%s", name, keys[i]));
    }
}

/* Messages of a pipeline, rank by rank. */
static void add_messages(gw_page *p) {
    for (int r = 0; r < gw_page_size(p, "run.by_rank"); r++) {
        if (!gw_page_at(p, "run.by_rank.%d.stage_messages_bytes", r)) continue;
        row(p, GW_PAGE_BYTES, gw_arena_printf(&p->mem, "rank %d to other stages, all steps", r),
            gw_arena_printf(&p->mem, "run.by_rank.%d.planned_stage_messages_bytes", r),
            gw_arena_printf(&p->mem, "run.by_rank.%d.stage_messages_bytes", r));
    }
}

/* No step can be shorter than its work at the peak: a bound, no forecast to be judged. */
static void add_least(gw_page *p) {
    if (!gw_page_at(p, "run.measured.step_s")) return;
    gw_page_row(p, NULL, "a step, at least");
    gw_page_cell(p, GW_PAGE_SECONDS, "run.planned.least_step_s");
    gw_page_cell(p, GW_PAGE_SECONDS, "run.measured.step_s");
    gw_page_add(p, "<td></td></tr>\n");
}

static void add_table(gw_page *p) {
    bool simulated = gw_page_at(p, "step_time_s") != NULL,
         images = gw_page_at(p, "run.images") != NULL;
    gw_page_table(p, "planned against measured", "|>planned|>measured|>");
    row(p, GW_PAGE_BYTES, "arena", "run.planned.arena_bytes", "run.measured.arena_bytes");
    row(p, GW_PAGE_BYTES, "process memory (Pss)", "run.planned.process_bytes",
        "run.measured.process_bytes");
    row(p, GW_PAGE_FLOP, "work of a step", "run.planned.flops", "run.measured.flops");
    if (simulated)
        row(p, GW_PAGE_SECONDS, "a step, simulated", "step_time_s", "run.measured.step_s");
    else
        add_least(p);
    row(p, GW_PAGE_SECONDS, "a step of the pipeline", "run.pipeline.planned.step_s",
        "run.pipeline.measured.step_s");
    row(p, GW_PAGE_FRACTION, "bubble, of the step", "run.pipeline.planned.bubble_step",
        "run.pipeline.measured.bubble_step");
    add_wires(p);
    add_messages(p);
    row(p, GW_PAGE_FRACTION, "MFU, causal", "mfu.causal", "run.measured.mfu");
    row(p, GW_PAGE_RATE, images ? "images a second" : "tokens a second", "run.planned.tokens_per_s",
        images ? "run.measured.images_per_s" : "run.measured.tokens_per_s");
    row(p, GW_PAGE_SECONDS, "waiting for data, a step", "run.planned.data_wait_s",
        "run.measured.data_wait_s");
    gw_page_table_end(p);
}

/* ---- time of each step ---- */

typedef struct plot {
    gw_page *p;
    const gw_html_run *r;
    double planned; /* NAN: not simulated */
    double x0, x1, top;
    int left, width;
} plot;

static double px(const plot *c, double step) {
    return c->left + (step - c->x0) / (c->x1 - c->x0) * (c->width - c->left - RIGHT);
}

static double py(const plot *c, double s) {
    return HEIGHT - BOTTOM - s / c->top * (HEIGHT - BOTTOM - TOP);
}

static int rising(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* A first step that loads libraries takes many times as long as the rest: the axis follows the
 * rest, and what is above it is drawn at the edge. */
static bool find_range(plot *c) {
    double *sorted = gw_arena_new(&c->p->mem, double, c->r->n + 1);
    int64_t n = 0;
    for (int64_t i = 0; i < c->r->n; i++)
        if (isfinite(c->r->seconds[i]) && c->r->seconds[i] > 0) sorted[n++] = c->r->seconds[i];
    if (n < 2) return false;
    if (n > 0) qsort(sorted, (size_t)n, sizeof *sorted, rising);
    c->planned = gw_page_real(c->p, "step_time_s");
    c->x0 = c->r->step[0];
    c->x1 = fmax(c->r->step[c->r->n - 1], c->x0 + 1);
    c->top = fmin(sorted[n - 1], 2.5 * sorted[n / 2]);
    if (isfinite(c->planned)) c->top = fmax(c->top, c->planned);
    c->top *= 1.08;
    return true;
}

static void draw_frame(const plot *c) {
    double ticks[GW_PAGE_TICKS];
    int n = gw_page_ticks(0, c->top, 4, ticks);
    for (int i = 0; i < n; i++)
        gw_page_add(c->p,
                    "<path class=\"gl\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                    "text-anchor=\"end\">%s</text>\n",
                    c->left, py(c, ticks[i]), c->width - RIGHT, c->left - 7, py(c, ticks[i]) + 3.8,
                    gw_fmt_seconds((char[32]){0}, ticks[i]));
    n = gw_page_ticks(c->x0, c->x1, c->width > 600 ? 10 : 5, ticks);
    for (int i = 0; i < n; i++) {
        if (ticks[i] < floor(ticks[i]) || ticks[i] > floor(ticks[i])) continue;
        gw_page_add(c->p, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                    px(c, ticks[i]), HEIGHT - BOTTOM + 17, ticks[i]);
    }
}

static void draw_steps(const plot *c) {
    const gw_html_run *r = c->r;
    int64_t each = GW_MAX((int64_t)1, r->n / 2000);
    bool open = false;
    gw_page_add(c->p, "<path class=\"cu\" d=\"");
    for (int64_t i = 0; i < r->n; i += each) {
        if (!isfinite(r->seconds[i])) continue;
        gw_page_add(c->p, "%s%.1f %.1f", open ? "L" : "M", px(c, r->step[i]),
                    py(c, fmin(r->seconds[i], c->top)));
        open = true;
    }
    gw_page_add(c->p, "\"/>\n");
    if (isfinite(c->planned))
        gw_page_add(c->p, "<path class=\"da\" d=\"M%d %.1fH%d\"/>\n", c->left, py(c, c->planned),
                    c->width - RIGHT);
    int64_t few = GW_MAX((int64_t)1, r->n / 240);
    for (int64_t i = 0; i < r->n; i += few) {
        if (!isfinite(r->seconds[i])) continue;
        double half = (px(c, c->x0 + (double)few) - px(c, c->x0)) / 2, x = px(c, r->step[i]);
        double from = fmax(c->left, x - half), to = fmin(c->width - RIGHT, x + half);
        gw_page_add(c->p,
                    "<rect class=\"hit\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\">"
                    "<title>step %.0f: %s</title></rect>\n",
                    from, TOP, fmax(1, to - from), HEIGHT - BOTTOM - TOP, r->step[i],
                    gw_fmt_seconds((char[32]){0}, r->seconds[i]));
    }
}

static void draw(gw_page *p, bool wide) {
    plot c = {.p = p, .r = p->in->run, .left = wide ? 66 : 58};
    c.width = wide ? GW_PAGE_WIDE : GW_PAGE_NARROW;
    if (!find_range(&c)) return;
    gw_page_svg(p, wide, HEIGHT, "seconds of each step of the run");
    draw_frame(&c);
    draw_steps(&c);
    gw_page_add(p, "</svg>\n");
}

void gw_page_measured(gw_page *p) {
    if (!gw_page_at(p, "run")) return;
    gw_page_open(
        p, "measured", "Planned against measured",
        "Arena, bytes and work are read from the program that ran, and are exact. Times are "
        "medians of the run's steps.");
    add_table(p);
    if (p->in->run && p->in->run->n > 1) {
        gw_page_add(p, "<h3>Time of each step</h3>\n");
        draw(p, true);
        draw(p, false);
        if (gw_page_at(p, "step_time_s"))
            gw_page_add(p, "<ul class=\"keys\"><li><i class=\"ln dash\"></i>simulated</li></ul>\n");
    }
    gw_page_close(p);
}

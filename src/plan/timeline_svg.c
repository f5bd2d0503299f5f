// SPDX-License-Identifier: Apache-2.0
// A timeline as a picture for pages and papers.
//
// One SVG that needs nothing else: its style sheet follows the reader's light or dark theme, the
// colours of boxes are the same in both and told apart by the common kinds of colour blindness
// (blue, green, teal, amber), and hovering names a box. A rank is a track; what lies bare of it is
// idle, and its share stands at the end. A rank's stages are shaded, the first the darkest. Waits
// for messages are a little darker than the track. Reductions run beside the computing and are a
// thin bar below it.
//
// Boxes that are too narrow for their number have none; pictures are as wide as their shortest box
// asks for, within bounds, and grow without loss.
#include <math.h>
#include <string.h>

#include "plan/timeline.h"

enum {
    LEFT = 66,
    RIGHT = 64,
    TOP = 58,
    ROW = 34,
    BOX = 24,
    AXIS = 30,
    LEGEND = 34,
    LEAST_WIDTH = 560,
    MOST_WIDTH = 1800,
    UNIT = 24, /* pixels of the shortest box, where there is room */
    SHADES = 4
};

typedef struct page {
    const gw_timeline *t;
    gw_timeline_figures f;
    const int *chunk;
    int chunks;
    int width, height;      /* of the plot */
    int64_t *order, *first; /* boxes by rank; where each rank's begin, [ranks + 1] */
    gw_arena mem;
    gw_str *out;
} page;

typedef struct colour {
    int r, g, b;
} colour;

static const struct {
    gw_act act;
    const char *text;
    colour c;
} kinds[] = {{GW_ACT_F, "forward", {0x3a, 0x6f, 0xc4}},
             {GW_ACT_B, "backward", {0x2b, 0x8f, 0x62}},
             {GW_ACT_I, "backward to inputs", {0x1f, 0x8a, 0x9c}},
             {GW_ACT_W, "backward to weights", {0xe0, 0x9a, 0x2d}},
             {GW_ACT_STEP, "optimizer step", {0x80, 0x5c, 0xb8}},
             {GW_ACT_REDUCE, "reduction of gradients", {0xb0, 0x55, 0x94}}};

static void add_text(gw_str *out, const char *text) {
    for (; *text; text++) switch (*text) {
        case '<': gw_str_add(out, "&lt;"); break;
        case '>': gw_str_add(out, "&gt;"); break;
        case '&': gw_str_add(out, "&amp;"); break;
        case '"': gw_str_add(out, "&quot;"); break;
        default: gw_str_add_char(out, (unsigned char)*text < 0x20 ? ' ' : *text); break;
        }
}

/* ---- style ---- */

static int shade_of(const page *p, int stage) {
    if (stage < 0 || p->chunks < 2) return 0;
    return p->chunk[stage] * GW_MIN(p->chunks, (int)SHADES) / p->chunks;
}

static colour pale(colour c, int shade, int shades) {
    double t = shades > 1 ? 0.62 * shade / (shades - 1) : 0;
    return (colour){(int)(c.r + (255 - c.r) * t), (int)(c.g + (255 - c.g) * t),
                    (int)(c.b + (255 - c.b) * t)};
}

static void add_style(page *p) {
    gw_str_add(p->out,
               "<style>\n"
               "svg{--ink:#1c2430;--soft:#67717f;--page:#fff;--track:#eceff3;--wait:#dde2e9;"
               "--rule:#d5dae1}\n"
               "@media(prefers-color-scheme:dark){svg{--ink:#e6eaf0;--soft:#98a2b1;--page:#14181f;"
               "--track:#232933;--wait:#2f3743;--rule:#39414d}}\n"
               "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;"
               "fill:var(--ink);font-variant-numeric:tabular-nums}\n"
               ".page{fill:var(--page)}.track{fill:var(--track)}.wait{fill:var(--wait)}"
               ".rule{stroke:var(--rule);stroke-width:1}.soft{fill:var(--soft)}"
               ".name{font-size:15px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}"
               "\n.n{font-size:11px;text-anchor:middle;pointer-events:none}"
               ".w{fill:#fff}.k{fill:#10151c}rect:hover{filter:brightness(1.12)}\n");
    int shades = GW_MIN(p->chunks, (int)SHADES);
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        for (int s = 0; s < shades; s++) {
            colour c = pale(kinds[i].c, s, shades);
            gw_str_printf(p->out, ".%s%d{fill:#%02x%02x%02x}", gw_act_name(kinds[i].act), s, c.r,
                          c.g, c.b);
        }
    gw_str_add(p->out, "\n</style>\n");
}

/* Is white legible on it? */
static bool is_dark(gw_action a, int shade, int shades) {
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        if (kinds[i].act != (gw_act)a.act) continue;
        colour c = pale(kinds[i].c, shade, shades);
        return 0.299 * c.r + 0.587 * c.g + 0.114 * c.b < 145;
    }
    return true;
}

/* ---- boxes ---- */

static double px(const page *p, double time) { return (time - p->f.first) / p->f.step * p->width; }

static const char *says(gw_act a) {
    for (size_t i = 0; i < GW_COUNT(kinds); i++)
        if (kinds[i].act == a) return kinds[i].text;
    return a == GW_ACT_RECV_F || a == GW_ACT_RECV_B ? "waits for it" : "sends it";
}

static void add_title(page *p, const gw_timeline_box *b) {
    char name[GW_ACTION_TEXT], from[32], to[32], took[32];
    gw_str_printf(p->out, "<title>%s: %s", gw_action_print(b->action, name),
                  says((gw_act)b->action.act));
    if (b->action.stage >= 0) gw_str_printf(p->out, ", stage %d", b->action.stage);
    if (b->action.micro >= 0) gw_str_printf(p->out, ", micro-batch %d", b->action.micro);
    gw_str text = {0};
    gw_str_printf(&text, "; %s to %s, %s", gw_timeline_time(p->t, b->start - p->f.first, from),
                  gw_timeline_time(p->t, b->end - p->f.first, to),
                  gw_timeline_time(p->t, b->end - b->start, took));
    add_text(p->out, gw_str_c(&text));
    gw_str_release(&text);
    gw_str_add(p->out, "</title>");
}

static void add_number(page *p, const gw_timeline_box *b, double x, double width, int shade) {
    char text[16];
    if (b->action.micro < 0)
        snprintf(text, sizeof text, "%s", gw_act_name((gw_act)b->action.act));
    else
        snprintf(text, sizeof text, "%d", b->action.micro);
    if (width < 6.6 * (double)strlen(text) + 3) return;
    bool dark = is_dark(b->action, shade, GW_MIN(p->chunks, (int)SHADES));
    gw_str_printf(p->out, "<text class=\"n %s\" x=\"%.1f\" y=\"%d\">%s</text>", dark ? "w" : "k",
                  x + width / 2, BOX / 2 + 4, text);
}

static void add_box(page *p, const gw_timeline_box *b) {
    gw_act act = (gw_act)b->action.act;
    double x = px(p, b->start), width = px(p, b->end) - x;
    bool box = gw_timeline_computes(b->action) || act == GW_ACT_STEP;
    bool wait = act == GW_ACT_RECV_F || act == GW_ACT_RECV_B;
    if (width < 0.02 || (!box && !wait && act != GW_ACT_REDUCE)) return;
    double gap = box && width > 4 ? 0.8 : 0;
    int shade = box ? shade_of(p, b->action.stage) : 0;
    gw_str_printf(p->out, "<rect x=\"%.2f\" width=\"%.2f\"", x + gap / 2, width - gap);
    if (act == GW_ACT_REDUCE)
        gw_str_printf(p->out, " y=\"%d\" height=\"3\"", BOX + 1);
    else
        gw_str_printf(p->out, " height=\"%d\"%s", BOX, gap > 0 ? " rx=\"2\"" : "");
    if (wait)
        gw_str_add(p->out, " class=\"wait\">");
    else
        gw_str_printf(p->out, " class=\"%s%d\">", gw_act_name(act), shade);
    add_title(p, b);
    gw_str_add(p->out, "</rect>");
    if (box) add_number(p, b, x, width, shade);
    gw_str_add_char(p->out, '\n');
}

static void sort_by_rank(page *p) {
    const gw_timeline *t = p->t;
    p->first = gw_arena_new(&p->mem, int64_t, t->ranks + 2);
    p->order = gw_arena_new(&p->mem, int64_t, t->n + 1);
    for (int64_t i = 0; i < t->n; i++) p->first[t->boxes[i].rank + 2]++;
    for (int r = 0; r < t->ranks; r++) p->first[r + 2] += p->first[r + 1];
    for (int64_t i = 0; i < t->n; i++) p->order[p->first[t->boxes[i].rank + 1]++] = i;
}

static void add_rows(page *p) {
    sort_by_rank(p);
    for (int r = 0; r < p->t->ranks; r++) {
        int y = TOP + r * ROW;
        gw_str_printf(p->out, "<text class=\"end\" x=\"%d\" y=\"%d\">rank %d</text>\n", LEFT - 10,
                      y + BOX / 2 + 4, r);
        gw_str_printf(p->out, "<g transform=\"translate(%d,%d)\">\n", LEFT, y);
        gw_str_printf(p->out, "<rect class=\"track\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n",
                      p->width, BOX);
        for (int layer = 0; layer < 2; layer++) /* waits below the rest */
            for (int64_t i = p->first[r]; i < p->first[r + 1]; i++) {
                const gw_timeline_box *b = &p->t->boxes[p->order[i]];
                bool wait = b->action.act == GW_ACT_RECV_F || b->action.act == GW_ACT_RECV_B;
                if (wait == (layer == 0)) add_box(p, b);
            }
        gw_str_printf(p->out, "</g>\n<text class=\"soft\" x=\"%d\" y=\"%d\">%.1f %%</text>\n",
                      LEFT + p->width + 10, y + BOX / 2 + 4, 100 * p->f.idle[r]);
    }
}

/* ---- around them ---- */

static void add_head(page *p) {
    char step[32];
    gw_str_printf(p->out, "<text class=\"name\" x=\"%d\" y=\"26\">", LEFT);
    add_text(p->out, p->t->name);
    gw_str_printf(p->out,
                  "</text>\n<text class=\"soft\" x=\"%d\" y=\"45\">%d rank%s, %d stage%s, %d "
                  "micro-batch%s; a step of ",
                  LEFT, p->t->ranks, p->t->ranks == 1 ? "" : "s", p->f.stages,
                  p->f.stages == 1 ? "" : "s", p->f.micro_batches,
                  p->f.micro_batches == 1 ? "" : "es");
    add_text(p->out, gw_timeline_time(p->t, p->f.step, step));
    gw_str_printf(p->out, "; bubble/compute %.1f %%, bubble/step %.1f %%</text>\n",
                  100 * p->f.bubble_compute, 100 * p->f.bubble_step);
    gw_str_printf(p->out, "<text class=\"soft\" x=\"%d\" y=\"45\">idle</text>\n",
                  LEFT + p->width + 10);
}

static void add_axis(page *p) {
    double ticks[GW_TIMELINE_TICKS];
    int n = gw_timeline_ticks(p->f.step, p->width / 90, ticks);
    int bottom = TOP + p->t->ranks * ROW - (ROW - BOX) + 6;
    gw_str_printf(p->out, "<line class=\"rule\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT,
                  LEFT + p->width, bottom, bottom);
    for (int i = 0; i < n; i++) {
        char time[32];
        double x = LEFT + ticks[i] / p->f.step * p->width;
        gw_str_printf(p->out,
                      "<line class=\"rule\" x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\"/>"
                      "<text class=\"mid soft\" x=\"%.2f\" y=\"%d\">",
                      x, x, bottom, bottom + 5, x, bottom + 19);
        add_text(p->out, gw_timeline_time(p->t, ticks[i], time));
        gw_str_add(p->out, "</text>\n");
    }
}

static bool has(const page *p, gw_act act) {
    for (int64_t i = 0; i < p->t->n; i++)
        if (p->t->boxes[i].action.act == act && p->t->boxes[i].end > p->t->boxes[i].start)
            return true;
    return false;
}

static void add_legend(page *p) {
    int y = p->height - 18, shades = GW_MIN(p->chunks, (int)SHADES);
    double x = LEFT;
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        if (!has(p, kinds[i].act)) continue;
        bool staged = kinds[i].act != GW_ACT_STEP && kinds[i].act != GW_ACT_REDUCE;
        for (int s = 0; s < (staged ? shades : 1); s++, x += 12)
            gw_str_printf(p->out,
                          "<rect class=\"%s%d\" x=\"%.1f\" y=\"%d\" width=\"12\" height=\"12\"/>",
                          gw_act_name(kinds[i].act), s, x, y - 10);
        gw_str_printf(p->out, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", x + 5, y, kinds[i].text);
        x += 5 + 6.4 * (double)strlen(kinds[i].text) + 18;
    }
    if (shades > 1)
        gw_str_printf(
            p->out,
            "<text class=\"soft\" x=\"%.1f\" y=\"%d\">paler: a rank's later stages</text>\n", x, y);
}

/* As wide as the shortest box asks for; the legend needs some width too. */
static int width_of(const page *p) {
    double shortest = p->f.step;
    for (int64_t i = 0; i < p->t->n; i++) {
        const gw_timeline_box *b = &p->t->boxes[i];
        if (gw_timeline_computes(b->action) && b->end > b->start)
            shortest = fmin(shortest, b->end - b->start);
    }
    double wide = p->f.step / shortest * UNIT;
    return (int)fmax(LEAST_WIDTH, fmin(wide, MOST_WIDTH));
}

void gw_timeline_svg(const gw_timeline *t, gw_str *out) {
    page p = {.t = t, .out = out};
    gw_timeline_measure(t, &p.mem, &p.f);
    p.chunk = gw_timeline_chunks(t, p.f.stages, &p.mem, &p.chunks);
    if (!(p.f.step > 0)) p.f.step = 1; /* nothing takes any time: empty tracks */
    p.width = width_of(&p);
    p.height = TOP + t->ranks * ROW + AXIS + LEGEND;
    int whole = LEFT + p.width + RIGHT;
    gw_str_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
                  whole, p.height, whole, p.height);
    add_text(out, t->name);
    gw_str_add(out, "</title>\n");
    add_style(&p);
    gw_str_printf(out, "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n", whole, p.height);
    add_head(&p);
    add_rows(&p);
    add_axis(&p);
    add_legend(&p);
    gw_str_add(out, "</svg>\n");
    gw_arena_release(&p.mem);
}

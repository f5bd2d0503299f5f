// SPDX-License-Identifier: Apache-2.0
// A timeline on a terminal.
//
// A rank is a row, a column a slice of time. With colour a row is one line: the kind of a box is
// its colour, the number in it is the micro-batch, and neighbours differ in shade, so that they
// stay apart without a gap. Without colour a row is two lines: letters above (F---, B---), numbers
// below. Dots are idle time.
//
//     rank 0  F-F-F-F-............B---B---
//             0 1 2 3             0   1
//
// Where all boxes are multiples of the shortest one, as in the simulator's usual units, a multiple
// is a whole number of columns and the picture is exact. Otherwise (clocks) time is spread over the
// width, and a box takes at least the column it begins in. Sends, reductions and waits are not
// drawn: nothing computes in them.
#include <math.h>
#include <string.h>

#include "plan/timeline.h"

enum { MOST_UNIT = 6, MARGIN = 9, EMPTY = -1 };

typedef struct canvas {
    const gw_timeline *t;
    gw_timeline_figures f;
    const int *chunk;
    int most_chunks;
    int label, columns; /* of the row's name; of time */
    double scale;       /* columns a unit of time */
    int64_t *cells;     /* [ranks * columns]: box, or EMPTY */
    bool colour, cut;   /* cut: a number is shortened */
    gw_arena mem;
    FILE *out;
} canvas;

static bool drawn(gw_action a) { return gw_timeline_computes(a) || a.act == GW_ACT_STEP; }

/* Columns of the shortest box, where all boxes begin and end on multiples of it; 0 elsewhere. */
static int unit_columns(const canvas *k, double *shortest) {
    *shortest = HUGE_VAL;
    for (int64_t i = 0; i < k->t->n; i++) {
        const gw_timeline_box *b = &k->t->boxes[i];
        if (drawn(b->action) && b->end > b->start) *shortest = fmin(*shortest, b->end - b->start);
    }
    if (!isfinite(*shortest)) return 0;
    for (int64_t i = 0; i < k->t->n; i++) {
        const gw_timeline_box *b = &k->t->boxes[i];
        double from = (b->start - k->f.first) / *shortest, to = (b->end - k->f.first) / *shortest;
        if (!drawn(b->action)) continue;
        if (fabs(from - round(from)) > 1e-3 || fabs(to - round(to)) > 1e-3) return 0;
    }
    double room = floor(k->columns * *shortest / k->f.step + 1e-9);
    return (int)fmin(room, MOST_UNIT);
}

static int column(const canvas *k, double time) {
    double c = floor((time - k->f.first) * k->scale + 0.5);
    return (int)fmax(0, fmin(c, k->columns));
}

static void fill(canvas *k) {
    int64_t n = (int64_t)k->t->ranks * k->columns;
    k->cells = gw_arena_new(&k->mem, int64_t, n);
    for (int64_t i = 0; i < n; i++) k->cells[i] = EMPTY;
    for (int64_t i = 0; i < k->t->n; i++) {
        const gw_timeline_box *b = &k->t->boxes[i];
        if (!drawn(b->action) || b->end <= b->start) continue;
        int from = GW_MIN(column(k, b->start), k->columns - 1);
        int to = GW_MAX(column(k, b->end), from + 1);
        for (int c = from; c < to; c++) k->cells[(int64_t)b->rank * k->columns + c] = i;
    }
}

static char letter(const canvas *k, const gw_timeline_box *b) {
    char c = gw_act_name((gw_act)b->action.act)[0];
    bool odd = b->action.stage >= 0 && k->chunk[b->action.stage] % 2;
    return odd ? (char)(c - 'A' + 'a') : c;
}

/* What stands at `at` of a box of `width` columns: its number, in the last digit if it has to. */
static char number(canvas *k, const gw_timeline_box *b, int at, int width) {
    if (b->action.micro < 0) return ' ';
    char text[16];
    int n = snprintf(text, sizeof text, "%d", b->action.micro);
    if (n <= width) return at < n ? text[at] : ' ';
    k->cut = true;
    return at == 0 ? text[n - 1] : ' ';
}

/* ---- colour ---- */

/* Of the 256 colours: background by kind, by a rank's stage even or odd, by micro-batch even or
 * odd; and what is legible on it. */
static void paint(const canvas *k, const gw_timeline_box *b) {
    static const uint8_t shades[5][2][2] = {{{25, 26}, {74, 75}},
                                            {{28, 29}, {71, 72}},
                                            {{30, 36}, {79, 80}},
                                            {{172, 208}, {179, 215}},
                                            {{96, 97}, {96, 97}}};
    int kind = b->action.act == GW_ACT_STEP ? 4 : (int)b->action.act;
    bool odd = b->action.stage >= 0 && k->chunk[b->action.stage] % 2;
    bool dark = kind == 4 || (!odd && kind < 3);
    fprintf(k->out, "\x1b[48;5;%d;38;5;%dm", shades[kind][odd][b->action.micro & 1 ? 1 : 0],
            dark ? 231 : 16);
}

static void print_coloured(canvas *k, const int64_t *row) {
    int64_t before = EMPTY;
    for (int c = 0; c < k->columns; c++) {
        int64_t i = row[c];
        if (i != before && i == EMPTY) fputs("\x1b[0;38;5;243m", k->out);
        if (c == 0 && i == EMPTY) fputs("\x1b[38;5;243m", k->out);
        if (i != before && i != EMPTY) paint(k, &k->t->boxes[i]);
        before = i;
        if (i == EMPTY) {
            fputc('.', k->out);
            continue;
        }
        int first = c, end = c + 1;
        while (first > 0 && row[first - 1] == i) first--;
        while (end < k->columns && row[end] == i) end++;
        fputc(number(k, &k->t->boxes[i], c - first, end - first), k->out);
    }
    fputs("\x1b[0m", k->out);
}

/* ---- letters ---- */

static void print_plain(canvas *k, const int64_t *row, bool letters) {
    char *line = gw_arena_new(&k->mem, char, k->columns + 1);
    int last = 0; /* what is blank behind it is not printed */
    for (int c = 0; c < k->columns; c++) {
        int64_t i = row[c];
        line[c] = letters ? '.' : ' ';
        if (i != EMPTY) {
            int first = c, end = c + 1;
            while (first > 0 && row[first - 1] == i) first--;
            while (end < k->columns && row[end] == i) end++;
            const gw_timeline_box *b = &k->t->boxes[i];
            char mark = c == first ? letter(k, b) : '-';
            line[c] = letters ? mark : number(k, b, c - first, end - first);
        }
        if (line[c] != ' ') last = c + 1;
    }
    fprintf(k->out, "%.*s", last, line);
}

static void print_rows(canvas *k) {
    fprintf(k->out, "%*s\n", k->label + k->columns + 8, "idle");
    for (int r = 0; r < k->t->ranks; r++) {
        const int64_t *row = &k->cells[(int64_t)r * k->columns];
        char name[32];
        snprintf(name, sizeof name, "rank %d", r);
        fprintf(k->out, "%-*s", k->label, name);
        if (k->colour)
            print_coloured(k, row);
        else
            print_plain(k, row, true);
        fprintf(k->out, " %5.1f %%\n", 100 * k->f.idle[r]);
        if (k->colour) continue;
        fprintf(k->out, "%*s", k->label, "");
        print_plain(k, row, false);
        fputc('\n', k->out);
    }
}

/* ---- around it ---- */

static void print_axis(const canvas *k) {
    double ticks[GW_TIMELINE_TICKS];
    int n = gw_timeline_ticks(k->f.step, k->columns / 12, ticks), at = 0;
    fprintf(k->out, "%*s", k->label, "");
    for (int i = 0; i < n; i++) {
        char time[32];
        int c = column(k, ticks[i] + k->f.first);
        gw_timeline_time(k->t, ticks[i], time);
        if (c < at || c + 1 + (int)strlen(time) > k->columns + MARGIN) continue;
        at += fprintf(k->out, "%*s|%s", c - at, "", time);
    }
    fputc('\n', k->out);
}

static void print_legend(canvas *k) {
    static const struct {
        gw_act act;
        const char *text;
    } kinds[] = {{GW_ACT_F, "forward"},
                 {GW_ACT_B, "backward"},
                 {GW_ACT_I, "backward, to inputs"},
                 {GW_ACT_W, "backward, to weights"},
                 {GW_ACT_STEP, "step"}};
    fprintf(k->out, "%*s", k->label, "");
    for (size_t i = 0; i < GW_COUNT(kinds); i++) {
        const gw_timeline_box *found = NULL;
        for (int64_t b = 0; b < k->t->n && !found; b++)
            if (k->t->boxes[b].action.act == kinds[i].act &&
                k->t->boxes[b].end > k->t->boxes[b].start)
                found = &k->t->boxes[b];
        if (!found) continue;
        gw_timeline_box sample = *found;
        sample.action.stage = -1;
        sample.action.micro = 0;
        if (k->colour) paint(k, &sample);
        fprintf(k->out, "%s%s%s %s  ", k->colour ? " " : "", gw_act_name(kinds[i].act),
                k->colour ? " \x1b[0m" : "", kinds[i].text);
    }
    fprintf(k->out, ". idle\n");
    if (k->most_chunks > 1)
        fprintf(k->out, "%*s%s: the second, fourth ... stage of a rank\n", k->label, "",
                k->colour ? "paler" : "small letters");
    if (k->cut)
        fprintf(k->out, "%*sof numbers too long for their box the last digit\n", k->label, "");
}

void gw_timeline_print(const gw_timeline *t, int width, bool colour, FILE *out) {
    canvas k = {.t = t, .colour = colour, .out = out};
    gw_timeline_measure(t, &k.mem, &k.f);
    k.chunk = gw_timeline_chunks(t, k.f.stages, &k.mem, &k.most_chunks);
    char time[32];
    fprintf(out, "%s: %d rank%s, %d stage%s, %d micro-batch%s; a step takes %s\n", t->name,
            t->ranks, t->ranks == 1 ? "" : "s", k.f.stages, k.f.stages == 1 ? "" : "s",
            k.f.micro_batches, k.f.micro_batches == 1 ? "" : "es",
            gw_timeline_time(t, k.f.step, time));
    if (!(k.f.step > 0)) { /* nothing takes any time */
        gw_arena_release(&k.mem);
        return;
    }
    k.label = snprintf(NULL, 0, "rank %d", t->ranks - 1) + 2;
    k.columns = GW_MAX(width, 40) - k.label - MARGIN;
    double shortest = 0;
    int unit = unit_columns(&k, &shortest);
    k.scale = unit > 0 ? unit / shortest : k.columns / k.f.step;
    if (unit > 0) k.columns = (int)fmin(k.columns, ceil(k.f.step * k.scale - 1e-6));
    fill(&k);
    print_rows(&k);
    print_axis(&k);
    fputc('\n', out);
    print_legend(&k);
    gw_arena_release(&k.mem);
}

// SPDX-License-Identifier: Apache-2.0
// One description of a step for the simulator and for clocks, so that what was promised and what
// happened are drawn and measured by the same code.
//
// The simulator's spans and a run's measured actions are the same thing: a rank, an action, a start
// and an end. Figures are taken from the boxes alone and have the definitions of the schedules'
// clock (sched/clock.c): of the simulator's timeline they are the clock's own, and a test holds
// them to it. Of a measured one they say what the run has lost.
//
// A run's file is read as any file from outside: sizes are bounded, each entry is checked, and an
// error names the entry. Times may have any origin (clocks count from when they like); they are
// shifted when they are used.
//
// Drawing is apart: timeline_text.c for a terminal, timeline_svg.c for a page.
#include "plan/timeline.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"    /* gw_file_read, gw_file_write_atomic */
#include "base/panic.h" /* GW_ASSERT, gw_panic */

enum { MOST_ACTIONS = 1 << 24, MOST_BYTES = 1 << 30 };
static const double MOST_TIME = 1e15; /* of a file's; sums and differences stay far from overflow */

void gw_timeline_begin(gw_timeline *t, const char *name, int ranks, const char *unit, gw_arena *a) {
    GW_ASSERT(ranks >= 1);
    *t = (gw_timeline){.name = gw_arena_strdup(a, name),
                       .unit = gw_arena_strdup(a, unit),
                       .ranks = ranks,
                       .mem = a};
}

void gw_timeline_add(gw_timeline *t, int rank, gw_action action, double start, double end) {
    GW_ASSERT(rank >= 0 && rank < t->ranks && start <= end);
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 256;
        gw_timeline_box *boxes = gw_arena_new(t->mem, gw_timeline_box, t->room);
        if (t->n) memcpy(boxes, t->boxes, (size_t)t->n * sizeof *boxes);
        t->boxes = boxes;
    }
    t->boxes[t->n++] =
        (gw_timeline_box){.rank = rank, .action = action, .start = start, .end = end};
}

void gw_timeline_of_schedule(gw_timeline *t, const gw_schedule *s, const gw_sched_times *times,
                             const char *unit, gw_arena *a) {
    gw_timeline_begin(t, s->name, s->ranks, unit, a);
    for (int r = 0; r < s->ranks; r++)
        for (int64_t i = 0; i < s->lists[r].n; i++)
            gw_timeline_add(t, r, s->lists[r].items[i], times->spans[r][i].start,
                            times->spans[r][i].end);
}

/* ---- the file ---- */

static void put(json_t *o, const char *key, json_t *v) {
    if (!v || json_object_set_new(o, key, v) != 0) gw_panic("timeline: '%s' cannot be set", key);
}

static json_t *box_json(const gw_timeline_box *b) {
    char text[GW_ACTION_TEXT];
    json_t *row =
        json_pack("[i, s, f, f]", b->rank, gw_action_print(b->action, text), b->start, b->end);
    if (!row) gw_panic("timeline: an action cannot be written");
    return row;
}

/* One action a line: a file that people can search. */
static void add_rows(const gw_timeline *t, gw_str *out) {
    for (int64_t i = 0; i < t->n; i++) {
        json_t *row = box_json(&t->boxes[i]);
        char *text = json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(12));
        if (!text) gw_panic("timeline: an action cannot be written");
        gw_str_printf(out, "%s\n  %s", i ? "," : "", text);
        free(text);
        json_decref(row);
    }
}

gw_status gw_timeline_write(const gw_timeline *t, const char *path, gw_diags *dg) {
    gw_str text = {0};
    json_t *head = json_object();
    put(head, "schedule", json_string(t->name));
    put(head, "ranks", json_integer(t->ranks));
    put(head, "unit", json_string(t->unit));
    char *start = json_dumps(head, 0);
    json_decref(head);
    if (!start) gw_panic("timeline: its head cannot be written");
    gw_str_add_n(&text, start, strlen(start) - 1); /* without the brace that ends it */
    free(start);
    gw_str_add(&text, ",\n \"actions\": [");
    add_rows(t, &text);
    gw_str_add(&text, "]}\n");
    gw_status st = gw_file_write_atomic(path, text.data, (int64_t)text.len, dg);
    gw_str_release(&text);
    return st;
}

static gw_status wrong(const char *path, const char *what, gw_diags *dg) {
    return GW_FAIL(dg, GW_ERR_FORMAT, "timeline", "%s: %s", path, what);
}

static gw_status read_row(gw_timeline *t, const json_t *row, int64_t i, const char *path,
                          gw_diags *dg) {
    const json_t *rank = json_array_get(row, 0), *act = json_array_get(row, 1);
    const json_t *start = json_array_get(row, 2), *end = json_array_get(row, 3);
    if (json_array_size(row) != 4 || !json_is_integer(rank) || !json_is_string(act) ||
        !json_is_number(start) || !json_is_number(end))
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline",
                       "%s: entry %lld of 'actions' is not [rank, action, start, end]", path,
                       (long long)i);
    gw_action a;
    int64_t r = json_integer_value(rank);
    double from = json_number_value(start), to = json_number_value(end);
    if (!gw_action_parse(json_string_value(act), (int64_t)json_string_length(act), &a))
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline",
                       "%s: entry %lld of 'actions': '%.40s' is no action", path, (long long)i,
                       json_string_value(act));
    if (a.stage >= GW_SCHED_MAX_STAGES || a.micro >= GW_SCHED_MAX_MICRO)
        return GW_FAIL(
            dg, GW_ERR_FORMAT, "timeline",
            "%s: entry %lld of 'actions': %.40s is beyond %d stages and %d micro-batches", path,
            (long long)i, json_string_value(act), GW_SCHED_MAX_STAGES, GW_SCHED_MAX_MICRO);
    if (r < 0 || r >= t->ranks)
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline",
                       "%s: entry %lld of 'actions' is of rank %lld; there are %d", path,
                       (long long)i, (long long)r, t->ranks);
    if (!(fabs(from) <= MOST_TIME) || !(fabs(to) <= MOST_TIME))
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline",
                       "%s: entry %lld of 'actions' has a time beyond %g", path, (long long)i,
                       MOST_TIME);
    if (to < from)
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline",
                       "%s: entry %lld of 'actions' ends before it starts", path, (long long)i);
    gw_timeline_add(t, (int)r, a, from, to);
    return GW_OK;
}

static gw_status read_json(gw_timeline *t, const json_t *j, const char *path, gw_arena *a,
                           gw_diags *dg) {
    const json_t *ranks = json_object_get(j, "ranks"), *actions = json_object_get(j, "actions");
    const char *name = json_string_value(json_object_get(j, "schedule"));
    const char *unit = json_string_value(json_object_get(j, "unit"));
    int64_t n = json_integer_value(ranks);
    if (!json_is_object(j)) return wrong(path, "it is no JSON object", dg);
    if (!json_is_integer(ranks) || n < 1 || n > GW_SCHED_MAX_RANKS)
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline", "%s: 'ranks' is not a number from 1 to %d",
                       path, GW_SCHED_MAX_RANKS);
    if (!json_is_array(actions)) return wrong(path, "'actions' is not a list", dg);
    if (json_array_size(actions) > MOST_ACTIONS)
        return GW_FAIL(dg, GW_ERR_FORMAT, "timeline", "%s: more than %d actions", path,
                       (int)MOST_ACTIONS);
    gw_timeline_begin(t, name ? name : "pipeline", (int)n, unit ? unit : "s", a);
    for (size_t i = 0; i < json_array_size(actions); i++)
        GW_TRY(read_row(t, json_array_get(actions, i), (int64_t)i, path, dg));
    return t->n ? GW_OK : wrong(path, "it has no actions", dg);
}

gw_status gw_timeline_read(gw_timeline *t, const char *path, gw_arena *a, gw_diags *dg) {
    gw_str text = {0};
    gw_status st = gw_file_read(path, MOST_BYTES, &text, dg);
    if (st != GW_OK) {
        gw_str_release(&text);
        return st;
    }
    json_error_t e;
    json_t *j = json_loadb(gw_str_c(&text), text.len, JSON_REJECT_DUPLICATES, &e);
    st = j ? read_json(t, j, path, a, dg)
           : GW_FAIL(dg, GW_ERR_FORMAT, "timeline", "%s:%d:%d: %s", path, e.line, e.column, e.text);
    json_decref(j);
    gw_str_release(&text);
    return st;
}

/* ---- figures ---- */

bool gw_timeline_computes(gw_action a) {
    return a.act == GW_ACT_F || a.act == GW_ACT_B || a.act == GW_ACT_I || a.act == GW_ACT_W;
}

void gw_timeline_measure(const gw_timeline *t, gw_arena *a, gw_timeline_figures *out) {
    *out = (gw_timeline_figures){.busy = gw_arena_new(a, double, t->ranks),
                                 .idle = gw_arena_new(a, double, t->ranks)};
    double *first = gw_arena_new(a, double, t->ranks), *last = gw_arena_new(a, double, t->ranks);
    for (int r = 0; r < t->ranks; r++) first[r] = HUGE_VAL, last[r] = -HUGE_VAL;
    double begin = HUGE_VAL, end = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < t->n; i++) {
        const gw_timeline_box *b = &t->boxes[i];
        begin = fmin(begin, b->start);
        end = fmax(end, b->end);
        out->micro_batches = GW_MAX(out->micro_batches, b->action.micro + 1);
        out->stages = GW_MAX(out->stages, b->action.stage + 1);
        if (!gw_timeline_computes(b->action)) continue;
        out->busy[b->rank] += b->end - b->start;
        first[b->rank] = fmin(first[b->rank], b->start);
        last[b->rank] = fmax(last[b->rank], b->end);
    }
    if (t->n == 0) return;
    out->first = begin;
    out->step = end - begin;
    for (int r = 0; r < t->ranks; r++) {
        sum += out->busy[r];
        if (out->step > 0) out->idle[r] = 1 - out->busy[r] / out->step;
        out->idle_step = fmax(out->idle_step, out->idle[r]);
        double span = last[r] - first[r];
        if (!(span > out->longest_span)) continue;
        out->longest_span = span;
        out->idle_longest = 1 - out->busy[r] / span;
    }
    double mean = sum / t->ranks;
    if (out->step > 0) out->bubble_step = 1 - mean / out->step;
    if (mean > 0) out->bubble_compute = out->step / mean - 1;
}

/* ---- shared by the drawings ---- */

int *gw_timeline_chunks(const gw_timeline *t, int stages, gw_arena *a, int *most) {
    int *rank_of = gw_arena_new(a, int, stages + 1), *chunk = gw_arena_new(a, int, stages + 1);
    int *count = gw_arena_new(a, int, t->ranks);
    for (int s = 0; s < stages; s++) rank_of[s] = -1;
    for (int64_t i = 0; i < t->n; i++) {
        int s = t->boxes[i].action.stage;
        if (s >= 0 && s < stages && gw_timeline_computes(t->boxes[i].action))
            rank_of[s] = t->boxes[i].rank;
    }
    *most = 1;
    for (int s = 0; s < stages; s++) {
        if (rank_of[s] < 0) continue;
        chunk[s] = count[rank_of[s]]++;
        *most = GW_MAX(*most, count[rank_of[s]]);
    }
    return chunk;
}

int gw_timeline_ticks(double end, int want, double ticks[GW_TIMELINE_TICKS]) {
    GW_ASSERT(end > 0 && isfinite(end));
    want = GW_MIN(GW_MAX(want, 2), (int)GW_TIMELINE_TICKS - 2);
    static const double steps[] = {1, 2, 5, 10, 20, 50};
    double unit = pow(10, floor(log10(end / want))), step = 100 * unit;
    for (size_t i = 0; i < GW_COUNT(steps); i++)
        if (end / (steps[i] * unit) <= want) {
            step = steps[i] * unit;
            break;
        }
    int n = 0;
    for (double x = 0; n < GW_TIMELINE_TICKS && x <= end * (1 + 1e-9); x = ++n * step) ticks[n] = x;
    return n;
}

const char *gw_timeline_time(const gw_timeline *t, double x, char *buf) {
    if (strcmp(t->unit, "s") == 0)
        gw_fmt_seconds(buf, x);
    else
        snprintf(buf, 32, "%.4g%s%s", x, t->unit[0] ? " " : "", t->unit);
    return buf;
}

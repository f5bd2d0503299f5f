// SPDX-License-Identifier: Apache-2.0
// What each rank of a pipeline did when: one description of a step, from the simulator or from
// clocks, with its figures, two drawings and a file.
//
//     gw_timeline t;
//     gw_timeline_begin(&t, "1f1b", schedule->ranks, "s", a);
//     gw_timeline_add(&t, rank, action, start, end); ...    or   gw_timeline_of_schedule(...)
//     gw_timeline_write(&t, "runs/first/timeline.json", dg);
//
// The file is JSON, for other tools too:
//
//     {"schedule": "1f1b", "ranks": 2, "unit": "s",
//      "actions": [[0, "F0.0", 0.0, 0.0012], [0, "sF0.0", 0.0012, 0.0013], ...]}
//
// rank, action (ir/action.h), start, end, by rank and then in the order in which they happened.
#ifndef GW_PLAN_TIMELINE_H
#define GW_PLAN_TIMELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"  /* gw_arena */
#include "base/diag.h"   /* gw_status, gw_diags */
#include "base/str.h"    /* gw_str */
#include "sched/sched.h" /* gw_schedule, gw_sched_times, gw_action */

#define GW_TIMELINE_FILE "timeline.json" /* its name in a run's directory */

typedef struct gw_timeline_box {
    int rank; /* of the pipeline */
    gw_action action;
    double start, end;
} gw_timeline_box;

typedef struct gw_timeline {
    const char *name; /* of the schedule */
    const char *unit; /* of times: "s", or "" for units of nothing in particular */
    int ranks;
    int64_t n;
    gw_timeline_box *boxes; /* of a rank in the order in which they were added */
    gw_arena *mem;
    int64_t room;
} gw_timeline;

/* An empty one; everything it will hold is in `a`, name and unit too. */
void gw_timeline_begin(gw_timeline *t, const char *name, int ranks, const char *unit, gw_arena *a);
/* 0 <= rank < ranks, start <= end. Any origin of time: drawings and figures begin with the earliest
 * action. */
void gw_timeline_add(gw_timeline *t, int rank, gw_action action, double start, double end);
/* The simulator's. */
void gw_timeline_of_schedule(gw_timeline *t, const gw_schedule *s, const gw_sched_times *times,
                             const char *unit, gw_arena *a);

/* Writes the file, complete or not at all. */
GW_WARN_UNUSED gw_status gw_timeline_write(const gw_timeline *t, const char *path, gw_diags *dg);
/* Reads one, from any hands. GW_ERR_FORMAT (id "timeline") says what is wrong and where. */
GW_WARN_UNUSED gw_status gw_timeline_read(gw_timeline *t, const char *path, gw_arena *a,
                                          gw_diags *dg);

/* The figures of gw_sched_times, under the same names, from the boxes alone. Computing is F, B, I
 * and W. */
typedef struct gw_timeline_figures {
    double first;                       /* when the earliest action begins */
    double step;                        /* from then to the end of the last */
    double *busy, *idle;                /* [ranks]: computing; 1 - busy / step */
    double idle_step;                   /* largest share of the step that a rank does not compute */
    double bubble_step, bubble_compute; /* 1 - mean busy / step; step / mean busy - 1 */
    double longest_span, idle_longest;  /* of a rank, first to last computing action */
    int micro_batches, stages;
} gw_timeline_figures;
void gw_timeline_measure(const gw_timeline *t, gw_arena *a, gw_timeline_figures *out);

/* ---- drawings ---- */

/* A row a rank (two without colour), time from left to right, with an axis and a legend. `width`
 * columns, at least 40. Micro-batches are in their last digit where there is no room for more. */
void gw_timeline_print(const gw_timeline *t, int width, bool colour, FILE *out);
/* A picture of its own: no script, no outside files, legible on light and dark. */
void gw_timeline_svg(const gw_timeline *t, gw_str *out);

/* ---- shared by the drawings ---- */
bool gw_timeline_computes(gw_action a); /* F, B, I, W */
/* Of a rank's stages, the how manieth each is, from 0, by stage; *most of a rank's stages. Stages
 * that no action names have 0. */
int *gw_timeline_chunks(const gw_timeline *t, int stages, gw_arena *a, int *most);
/* At most `want` round times within [0, end], 0 the first; how many. end > 0. */
enum { GW_TIMELINE_TICKS = 24 };
int gw_timeline_ticks(double end, int want, double ticks[GW_TIMELINE_TICKS]);
/* A time for people: "12.5 ms", or, without a unit, "12.5"; in buf, at least 32 bytes. */
const char *gw_timeline_time(const gw_timeline *t, double x, char *buf);

#endif

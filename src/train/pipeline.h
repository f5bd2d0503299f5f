// SPDX-License-Identifier: Apache-2.0
// What the ranks of a pipeline were planned to do, and did: for reports.
#ifndef GW_TRAIN_PIPELINE_H
#define GW_TRAIN_PIPELINE_H

#include <jansson.h>
#include <stdio.h>

#include "plan/timeline.h" /* gw_timeline */
#include "sched/sched.h"   /* gw_schedule, gw_sched_times */
#include "train/session.h" /* gw_session */

/* Of the ranks with one coordinate on pp. Times are of a step, means of all of them. */
typedef struct gw_pipeline_rank {
    int stages, layers;
    int64_t held; /* most pairs of stage and micro-batch whose activations it holds */
    int64_t planned_arena_bytes, arena_bytes; /* of the first of them */
    double busy_s, wait_s, send_s, window_s;  /* NaN before a step was taken */
} gw_pipeline_rank;

typedef struct gw_pipeline {
    const gw_schedule *schedule;
    const gw_stage_report *stages; /* [schedule->stages] */
    int places;
    bool barrier;            /* no rank steps before the norm of all is known */
    gw_pipeline_rank *ranks; /* [schedule->ranks] */
    /* By the clock of sched/, for what stages cost by their FLOPs (step_s is 0: no time is known),
     * or, once steps were measured, for what they took. */
    double planned_step_s, planned_bubble_step, planned_bubble_compute;
    double formula; /* bubble / compute of stages that are alike, backward whole; NaN otherwise */

    bool measured;
    int64_t steps;                    /* that the means are of */
    double *forward, *input, *weight; /* [stages]: seconds; input is a whole backward's where weight
                                         is 0 */
    double step_s, bubble_step, bubble_compute;
    gw_timeline timeline; /* of the latest step; on rank 0 */
} gw_pipeline;

/* The planned part, for a session that was opened; false without a pipeline. Everything is in `a`.
 */
bool gw_pipeline_plan(gw_pipeline *p, const gw_session *s, gw_arena *a);
/* Adds what was measured; all ranks call it, after gw_session_meet. */
GW_WARN_UNUSED gw_status gw_pipeline_measure(gw_pipeline *p, const gw_session *s, gw_arena *a,
                                             gw_diags *dg);

/* A new reference: for summary.json. */
json_t *gw_pipeline_json(const gw_pipeline *p);
/* A table by rank, and the bubble by both conventions. */
void gw_pipeline_print(const gw_pipeline *p, FILE *out);

/* GW_PACE, for studies of schedules: "F,I,W", the least seconds of a stage's forward, input and
 * weight gradients of a micro-batch, of several stages separated by ';' (the last stands for the
 * rest). Fills out[0..2] with arrays of `stages` in `a`; NULL where it is not set. */
GW_WARN_UNUSED gw_status gw_pipeline_pace(int stages, const double *out[3], gw_arena *a,
                                          gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: a factor on the peak rate as a function of the updates done.
#ifndef GW_TRAIN_SCHEDULE_H
#define GW_TRAIN_SCHEDULE_H

#include <stdint.h>

#include "train/runfile.h" /* gw_runfile */

typedef enum gw_schedule_kind {
    GW_SCHEDULE_CONSTANT,
    GW_SCHEDULE_LINEAR,
    GW_SCHEDULE_COSINE,
    GW_SCHEDULE_WSD,
} gw_schedule_kind;

/* The falling part of warm-up, stable, decay. */
typedef enum gw_decay_shape { GW_DECAY_COSINE, GW_DECAY_LINEAR, GW_DECAY_SQRT } gw_decay_shape;

typedef struct gw_schedule {
    gw_schedule_kind kind;
    int64_t warmup;       /* updates of linear rise */
    int64_t total;        /* updates of the whole run */
    int64_t decay;        /* wsd: updates of the fall at the end */
    gw_decay_shape shape; /* wsd */
    double min_ratio;     /* last rate / peak rate; constant ignores it */
} gw_schedule;

gw_schedule gw_schedule_of(const gw_runfile *rf);

/* The factor after `done` updates, done >= 0: update n (from 1) uses lr x gw_schedule_factor(s, n -
 * 1). */
double gw_schedule_factor(const gw_schedule *s, int64_t done);

#endif

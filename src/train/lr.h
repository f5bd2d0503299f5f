// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: a factor on the peak rate as a function of the updates done.
#ifndef GW_TRAIN_LR_H
#define GW_TRAIN_LR_H

#include <stdint.h>

#include "train/runfile.h" /* gw_runfile */

typedef enum gw_lr_kind {
    GW_LR_CONSTANT,
    GW_LR_LINEAR,
    GW_LR_COSINE,
    GW_LR_WSD,
} gw_lr_kind;

/* The falling part of warm-up, stable, decay. */
typedef enum gw_lr_decay { GW_LR_DECAY_COSINE, GW_LR_DECAY_LINEAR, GW_LR_DECAY_SQRT } gw_lr_decay;

typedef struct gw_lr {
    gw_lr_kind kind;
    int64_t warmup;    /* updates of linear rise */
    int64_t total;     /* updates of the whole run */
    int64_t decay;     /* wsd: updates of the fall at the end */
    gw_lr_decay shape; /* wsd */
    double min_ratio;  /* last rate / peak rate; constant ignores it */
} gw_lr;

gw_lr gw_lr_of(const gw_runfile *rf);

/* The factor after `done` updates, done >= 0: update n (from 1) uses lr x gw_lr_factor(s, n -
 * 1). */
double gw_lr_factor(const gw_lr *s, int64_t done);

#endif

// SPDX-License-Identifier: Apache-2.0
// Loss scaling for float16: a factor on the loss that keeps small gradients above zero.
#ifndef GW_TRAIN_SCALER_H
#define GW_TRAIN_SCALER_H

#include <stdbool.h>
#include <stdint.h>

#include "train/runfile.h" /* gw_runfile */

/* A dynamic scale lies between these; a step that overflows at the least one is an error. */
#define GW_SCALE_MIN 1.0
#define GW_SCALE_MAX 4294967296.0
/* A fixed scale cannot give way: so many steps in a row that overflow are an error. */
enum { GW_SCALE_FIXED_PATIENCE = 20 };

typedef struct gw_scaler {
    bool active; /* float16; otherwise the scale is 1 and every step that is not finite is an error
                  */
    bool dynamic;
    double scale;
    int64_t window;     /* good steps in a row before the scale doubles */
    int64_t good_steps; /* in a row, since the last change; part of the state of a run */
    int64_t bad_steps;  /* in a row; part of the state of a run */
} gw_scaler;

gw_scaler gw_scaler_of(const gw_runfile *rf);

/* What a step's outcome does to the scale. `finite`: the norm of the step's gradient was. False
 * when the run cannot go on: not finite without loss scaling, at the least scale, or too often in a
 * row. */
bool gw_scaler_update(gw_scaler *s, bool finite);

#endif

// SPDX-License-Identifier: Apache-2.0
// Running statistics and counters of an executor: their first values.
#ifndef GW_TRAIN_BUFFERS_H
#define GW_TRAIN_BUFFERS_H

#include "model/model.h" /* gw_model, gw_buffer */
#include "run/exec.h"    /* gw_exec */

/* Gives every buffer of the model that the program has its first value. */
void gw_buffers_init(gw_exec *x, const gw_model *m);

#endif

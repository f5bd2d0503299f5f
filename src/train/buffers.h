// SPDX-License-Identifier: Apache-2.0
// Running statistics and counters of an executor: their first values, and reading them from files.
#ifndef GW_TRAIN_BUFFERS_H
#define GW_TRAIN_BUFFERS_H

#include "base/diag.h"   /* gw_status, gw_diags */
#include "model/model.h" /* gw_model, gw_buffer */
#include "run/exec.h"    /* gw_exec */

/* Gives every buffer of the model that the program has its first value. */
void gw_buffers_init(gw_exec *x, const gw_model *m);

/* Reads the buffers from a directory of safetensors files or one such file, by torchvision's names;
 * where each group of samples keeps its own statistics, all get the file's. A counter that the file
 * lacks is 0 (files older than it); another missing or misshapen buffer is an error. A model
 * without buffers reads nothing. */
GW_WARN_UNUSED gw_status gw_buffers_load(gw_exec *x, const gw_model *m, const char *path,
                                         gw_diags *dg);

#endif

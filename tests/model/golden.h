// SPDX-License-Identifier: Apache-2.0
// One golden case made ready: model, parameters, inputs, and comparisons with what the reference
// library gave.
#ifndef GW_TESTS_MODEL_GOLDEN_H
#define GW_TESTS_MODEL_GOLDEN_H

#include "file/safetensors.h" /* gw_st_set */
#include "pass/pass.h"        /* gw_compile_opts */
#include "run/exec.h"         /* gw_exec */
#include "train/weights.h"    /* gw_weights_load */

typedef struct golden {
    gw_diags dg;
    gw_arena mem;
    char dir[512];
    gw_model model;
    gw_param *params;
    int nparams;
    gw_param_info *infos;
    gw_st_set *want;
    gw_machine machine;
    gw_compile_opts opts;
    int64_t batch, seq;
    double rms_grad; /* of the golden gradients; 0 when there are none */
} golden;

/* Opens case `name`; `weights` names the folder of the weights when it is another. */
void golden_open(golden *g, const char *name, const char *weights, bool reference_kernels);
void golden_close(golden *g);
/* An executor of a program (mode; train: with step frame), weights loaded. accumulate micro-batches
 * of batch / accumulate rows. */
gw_exec *golden_exec(golden *g, gw_build_mode mode, bool train, int accumulate);
/* Writes rows [row, row + rows) of the case's inputs into the program; returns valid labels. */
int64_t golden_inputs(golden *g, gw_exec *x, int64_t row, int64_t rows);
int64_t golden_valid(golden *g);
/* A golden tensor as floats (arena memory), with its element count; NULL when absent. */
float *golden_floats(golden *g, const char *name, int64_t *n);
/* The golden value PREFIX.NAME of a parameter in our layout (fused and transposed forms undone). */
float *golden_param(golden *g, const char *prefix, const gw_param *p);
/* The measure of agreement: |a-b| / max(|b|, floor). */
double relative(const float *a, const float *b, int64_t n, double floor_per_elem);
float *exec_floats(golden *g, const gw_exec *x, gw_vid v);
/* The value that holds the gradient of parameter i after the loop: what the i-th sum of squares
 * reads. */
gw_vid gradient_value(const gw_exec *x, int i);

#endif

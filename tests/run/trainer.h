// SPDX-License-Identifier: Apache-2.0
// A training step run by hand: an executor with weights, and batches that depend on the step alone.
#ifndef GW_TESTS_RUN_TRAINER_H
#define GW_TESTS_RUN_TRAINER_H

#include "../pass/programs.h" /* program */
#include "base/hash.h"        /* gw_hash128 */
#include "run/exec.h"         /* gw_exec */

/* tiny_model(f, 2) in batches of 2 x 12 on this machine's kernels; options can be changed before
 * trainer_exec. */
void trainer_init(program *p, gw_family f);
/* Compiles p and makes an executor; eo->machine is filled in. */
gw_exec *trainer_exec(program *p, gw_exec_opts eo);
/* Weights by name and seed, states zero. */
void trainer_weights(program *p, gw_exec *x, uint64_t seed);
/* Writes what the program asks for in micro-batch `mb` of step `step`. */
void trainer_inputs(program *p, gw_exec *x, int step, int mb);

typedef struct trace {
    float loss, norm;
    gw_hash128 gradients; /* after the loop */
    gw_hash128 state;     /* parameters and states after the step */
} trace;
/* One step; seed_scale multiplies the seed of backward (1 in earnest). */
trace trainer_step(program *p, gw_exec *x, int step, float seed_scale);
gw_hash128 trainer_state(const gw_exec *x);

#endif

// SPDX-License-Identifier: Apache-2.0
// The programs of all ranks of a pipeline, compiled from a run file's text, and their simulation.
#ifndef GW_TESTS_STEPPED_H
#define GW_TESTS_STEPPED_H

#include "plan/simulate.h" /* gw_sim_result */
#include "planned.h"       /* gw_setup */

enum { STEPPED_MOST = 32 };

typedef struct step {
    gw_diags dg;
    gw_runfile rf;
    gw_setup setup;
    gw_graph program[STEPPED_MOST];
    gw_compile_report report[STEPPED_MOST];
    const gw_graph *programs[STEPPED_MOST];
    int n;         /* ranks of the pipeline */
    int64_t ranks; /* of the layout */
    gw_arena mem;
} step;

/* llama, 8 layers, hidden 128, in bf16: the text in front of others. */
extern const char *const stepped_small;

/* Compiles them; false: the run file is refused, and nothing is to be released. */
bool step_try(step *x, const char *text, int64_t ranks);
/* `model`, then train {seq_len: 64, micro_batch: 4, accumulate}, then `more`; must be accepted. */
void step_init(step *x, const char *model, int64_t ranks, int accumulate, const char *more);
void step_release(step *x);

/* The simulated step. Checks that its parts sum to it. */
gw_sim_result simulate(step *x, const gw_machine_spec *m, const gw_sim_faults *f);

/* A run file at random: dense or with experts, any axes, schedule, zero, recomputation. Many are
 * refused. `ranks`: of its layout, at most 8. */
void step_random(uint64_t seed, gw_str *text, int64_t *ranks);
/* A number below n, from *state. */
int step_draw(uint64_t *state, int n);

#endif

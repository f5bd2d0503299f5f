// SPDX-License-Identifier: Apache-2.0
// One training run in many layouts: the same weights and batches, and a trace of every step.
#ifndef GW_TESTS_RUN_VARIANTS_H
#define GW_TESTS_RUN_VARIANTS_H

#include "base/hash.h"     /* gw_hash128 */
#include "pass/pass.h"     /* gw_compile_opts */
#include "run/exec_copy.h" /* gw_copy_bytes */

enum { VARIANT_STEPS = 4, VARIANT_BAD_STEP = 2, VARIANT_RANKS = 4 };

typedef struct variant {
    int ranks, zero, secondary, micro_batches, prefetch;
    gw_dtype compute, master, moments; /* GW_F32 is 0 */
    gw_optim_kind optim;
    bool plain_sgd, deferred, reduce_each, reference, stochastic, bad_step;
    double clip;
    gw_recompute_kind recompute;
    gw_mem optimizer_mem, master_mem, parameter_mem;
    const char *dir;
} variant;

typedef struct variant_trace {
    float loss[VARIANT_STEPS], norm[VARIANT_STEPS];
    gw_hash128 state[VARIANT_STEPS]; /* of this rank's parameters and states */
    int64_t arena[GW_MEM_COUNT];
    gw_copy_bytes planned, moved; /* of one step, of all steps */
    bool direct;
} variant_trace;

/* Runs VARIANT_STEPS steps on v->ranks threads; out[rank]. With bad_step the gradients of step
 * VARIANT_BAD_STEP are not finite. Fails the test on an error. */
void variant_run(const variant *v, variant_trace out[VARIANT_RANKS]);
/* The same losses and norms, and the same bits of state after every step. */
void variant_check_same(const variant *v, const variant_trace *a, const variant_trace *b,
                        const char *what);

#endif

// SPDX-License-Identifier: Apache-2.0
// Runs an op of a small graph through a kernel and compares it with the op's reference.
#ifndef GW_TESTS_KERNEL_RUN_H
#define GW_TESTS_KERNEL_RUN_H

#include "kernel/kernel.h" /* gw_kernel, gw_machine */
#include "ops/cases.h"     /* gw_case, gw_cases */

/* The bytes of every value of a case; leaves are filled, the rest is what the reference computes.
 */
typedef struct values {
    const gw_case *c;
    void **data; /* by value id */
} values;

/* Fills the leaves. */
void values_init(values *v, const gw_case *c);
void values_release(values *v);
int64_t value_bytes(const gw_graph *g, gw_vid v);
/* Runs op o by the reference and keeps its outputs. */
void values_reference(values *v, gw_oid o);

typedef enum run_mode {
    RUN_APART,   /* outputs in fresh memory, but for ties */
    RUN_IN_PLACE /* output 0 in the bytes of the first input of its type */
} run_mode;

/* Runs op o by kernel k on `threads` threads into fresh outputs (by output number; free with
 * outputs_free). Checks on the way: workspace is not overrun, nothing of ours is allocated, no
 * input is written but a tied one, and a second launch on the same data gives the same bytes. */
void run_kernel(const values *v, gw_oid o, const gw_kernel *k, int threads, run_mode mode,
                void *out[]);
void outputs_free(const values *v, gw_oid o, void *out[]);
/* Prepares op o once and launches it twice: where its tensors lie, and with all of them elsewhere,
 * what was there before overwritten with NaN. Workspace stays. The bytes of both runs are equal. */
void check_moved(const values *v, gw_oid o, const gw_kernel *k, int threads);
/* Compares with the reference's outputs, which values_reference made. */
void check_outputs(const values *v, gw_oid o, const gw_kernel *k, void *const out[]);
/* All of the above for one op, both modes where the op allows them. */
void check_kernel(values *v, gw_oid o, const gw_kernel *k, int threads);

/* Empty cases of a dtype for cases built by a test: gw_case_begin on it, gw_cases_release at the
 * end. */
void own_cases(gw_cases *cs, const char *op, gw_dtype dtype, gw_diags *dg);
/* The kernel that is called `name`. */
const gw_kernel *kernel_named(const char *name);
/* Code of an op. */
const gw_opdef *op_named(const char *name);

#endif

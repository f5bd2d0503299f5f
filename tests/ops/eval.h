// SPDX-License-Identifier: Apache-2.0
// A tiny interpreter for tests: every value in its own memory, ops run in order by their reference
// kernels.
#ifndef GW_TESTS_OPS_EVAL_H
#define GW_TESTS_OPS_EVAL_H

#include "base/arena.h" /* gw_arena */
#include "ops/cases.h"  /* gw_case */

typedef struct eval {
    const gw_graph *g;
    gw_arena arena;
    void **data;      /* by value id */
    int64_t capacity; /* entries of data */
} eval;

void eval_init(eval *e, const gw_graph *g);
void eval_release(eval *e);
/* Memory of a value, zeroed when new. */
void *eval_data(eval *e, gw_vid v);
gw_tensor eval_tensor(eval *e, gw_vid v);
/* Element i as a double, of any dtype. */
double eval_get(eval *e, gw_vid v, int64_t i);
void eval_set(eval *e, gw_vid v, int64_t i, double x);
/* Sets elements 0..n of a value. */
void eval_fill(eval *e, gw_vid v, const double *x, int64_t n);
/* Numbers for all leaves of a case. */
void eval_leaves(eval *e, const gw_case *c);
/* Runs ops first..last. An output that takes over an input's bytes starts as a copy of them. */
void eval_run(eval *e, int64_t first, int64_t last);
/* Runs one op with accumulated outputs in the accumulators' own memory. */
void eval_in_place(eval *e, gw_oid op);

#endif

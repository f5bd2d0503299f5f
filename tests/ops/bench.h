// SPDX-License-Identifier: Apache-2.0
// A graph of one or a few ops, typed in, and the numbers in it.
#ifndef GW_TESTS_OPS_BENCH_H
#define GW_TESTS_OPS_BENCH_H

#include "eval.h"     /* eval */
#include "ir/opdef.h" /* gw_builder */

typedef struct bench {
    gw_graph g;
    gw_builder b;
    gw_diags dg;
    eval e;
} bench;

void bench_init(bench *t);
void bench_release(bench *t);
gw_vid bench_leaf(bench *t, gw_dtype dtype, const char *dims);
int64_t bench_elems(bench *t, gw_vid v);
/* A leaf with normal numbers, which `key` chooses. */
gw_vid bench_normal(bench *t, gw_dtype dtype, const char *dims, const char *key);
/* All ops, once. */
void bench_run(bench *t);

#endif

// SPDX-License-Identifier: Apache-2.0
// Set-up and end of what many tests of ops do (bench.h).
#include "bench.h"

#include <string.h>

#include "base/rng.h" /* gw_rng_normal */
#include "harness.h"  /* CHECK_OK */
#include "ops/ops.h"  /* gw_ops_table */

void bench_init(bench *t) {
    memset(t, 0, sizeof *t);
    gw_graph_init(&t->g, gw_ops_table());
    t->g.micro_batches = 1;
    gw_diags_init(&t->dg);
    gw_builder_init(&t->b, &t->g, &t->dg);
    eval_init(&t->e, &t->g);
}

void bench_release(bench *t) {
    eval_release(&t->e);
    gw_graph_release(&t->g);
    gw_diags_release(&t->dg);
}

gw_vid bench_leaf(bench *t, gw_dtype dtype, const char *dims) {
    return gw_graph_leaf(&t->g, GW_ROLE_INPUT, GW_CAUSE_DATA, GW_RATE_MB, gw_type_make(dtype, dims),
                         "x");
}

int64_t bench_elems(bench *t, gw_vid v) { return gw_type_elems(gw_type_of(&t->g, v)); }

gw_vid bench_normal(bench *t, gw_dtype dtype, const char *dims, const char *key) {
    gw_vid v = bench_leaf(t, dtype, dims);
    for (int64_t i = 0; i < bench_elems(t, v); i++)
        eval_set(&t->e, v, i, gw_rng_normal(gw_rng_key_named(3, key), (uint64_t)i));
    return v;
}

void bench_run(bench *t) {
    CHECK_OK(t->b.status, &t->dg);
    eval_run(&t->e, 0, t->g.ops.count);
}

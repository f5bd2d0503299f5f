// SPDX-License-Identifier: Apache-2.0
// 1F1B: backward as early as it can be (Narayanan et al., "PipeDream: generalized pipeline
// parallelism for DNN training", SOSP 2019; with a flush each step, "Memory-efficient
// pipeline-parallel DNN training", ICML 2021).
//
//   rank 0   F0 F1 F2          B0 F3 B1    B2    B3
//   rank 1      F0 F1       B0 F2 B1 F3 B2    B3
//   rank 2         F0 B0 F1    B1 F2 B2 F3 B3
//
// Rank i first runs min(p - 1 - i, m) forwards, so that the first micro-batch can come back to it,
// then one forward and one backward in turn, then what is left. Each rank waits as long as under
// GPipe, bubble / compute = (p - 1) / m, but holds at most min(m, p - i) micro-batches.
//
// Admits any number of micro-batches, with one stage a rank. With fewer micro-batches than ranks
// it is GPipe on the first of them.
#include "sched/impl.h"

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    return gw_sched_one_stage(r, a, why, near);
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_sched_builder b;
    gw_sched_begin(&b, a, out, gw_sched_kind_one_f_one_b.name, r->ranks, 1, false,
                   r->micro_batches);
    for (int rank = 0; rank < r->ranks; rank++) {
        int32_t warm = GW_MIN(r->ranks - 1 - rank, r->micro_batches);
        for (int32_t m = 0; m < r->micro_batches + warm; m++) {
            if (m < r->micro_batches) gw_sched_add(&b, rank, GW_ACT_F, rank, m);
            if (m >= warm) gw_sched_add(&b, rank, GW_ACT_B, rank, m - warm);
        }
    }
}

const gw_sched_kind gw_sched_kind_one_f_one_b = {
    .name = "1f1b",
    .doc = "one forward, one backward in turn: GPipe's time, fewer activations",
    .searches = false,
    .halves = false,
    .made_for = 1,
    .admits = admits,
    .make = make,
};

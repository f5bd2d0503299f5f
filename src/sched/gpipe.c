// SPDX-License-Identifier: Apache-2.0
// GPipe: all micro-batches forward, then all backward (Huang et al., "GPipe: Efficient training of
// giant neural networks using pipeline parallelism", NeurIPS 2019).
//
//   rank 0   F0 F1 F2 F3             B0 B1 B2 B3
//   rank 1      F0 F1 F2 F3       B0 B1 B2 B3
//   rank 2         F0 F1 F2 F3 B0 B1 B2 B3
//
// Each rank waits p - 1 times for a forward and p - 1 times for a backward while it computes m of
// each: bubble / compute = (p - 1) / m. Every rank holds the activations of all m micro-batches at
// once. Micro-batches go back in the order in which they came, so that gradients are summed in one
// order in all schedules.
//
// Admits any number of micro-batches, with one stage a rank.
#include "sched/impl.h"

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    return gw_sched_one_stage(r, a, why, near);
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_sched_builder b;
    gw_sched_begin(&b, a, out, gw_sched_kind_gpipe.name, r->ranks, 1, false, r->micro_batches);
    for (int rank = 0; rank < r->ranks; rank++) {
        for (int32_t m = 0; m < r->micro_batches; m++) gw_sched_add(&b, rank, GW_ACT_F, rank, m);
        for (int32_t m = 0; m < r->micro_batches; m++) gw_sched_add(&b, rank, GW_ACT_B, rank, m);
    }
}

const gw_sched_kind gw_sched_kind_gpipe = {
    .name = "gpipe",
    .doc = "all micro-batches forward, then all backward",
    .searches = false,
    .halves = false,
    .made_for = 1,
    .admits = admits,
    .make = make,
};

// SPDX-License-Identifier: Apache-2.0
// Interleaved 1F1B: v stages a rank, in loops, so that a micro-batch is on its way around the ranks
// v times and a rank waits for a v-th part of what it would (Narayanan et al., "Efficient
// large-scale language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2).
//
// Micro-batches go in groups of g. A rank takes a group through its first stage, then the same
// group through its second, ..., then the next group; backward the same, from its last stage to its
// first. Counting one forward of one stage as a unit, rank i begins with
//
//   warm-up = min(m v, 2 (p - 1 - i) + (v - 1) g)
//
// forwards, then one forward and one backward in turn. The first backward needs the first
// micro-batch to have gone through the rank's v - 1 earlier stages with its whole group, and the
// way to the last rank and back takes 2 (p - 1 - i). So a rank holds at most warm-up + 1 (never
// more than m v) pairs of stage and micro-batch; on rank 0, in units of all v stages of one
// micro-batch, p (1 + (p - 1) / (p v)) when g = p.
//
// When p divides m the groups are p micro-batches, Megatron's order, and bubble / compute is
// (p - 1) / (v m). Otherwise there are max(1, m / p) equal groups, as PyTorch has it: fewer
// micro-batches than ranks make one small group, and m must divide into its groups.
//
// Admits v >= 2 and m that divides into max(1, floor(m / p)) groups.
#include "sched/impl.h"

static bool divides(int ranks, int32_t m) {
    int32_t groups = GW_MAX(1, m / ranks);
    return m % groups == 0;
}

/* The nearest number of micro-batches that divides, the smaller of two: multiples of p do. */
static int32_t nearest(int ranks, int32_t m) {
    for (int32_t d = 1;; d++) {
        if (m - d >= 1 && divides(ranks, m - d)) return m - d;
        if (m + d <= GW_SCHED_MAX_MICRO && divides(ranks, m + d)) return m + d;
    }
}

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    int32_t m = r->micro_batches, groups = GW_MAX(1, m / r->ranks);
    bool fits = divides(r->ranks, m);
    *near = *r;
    near->virtual_stages = GW_MAX(2, r->virtual_stages);
    if (!fits) near->micro_batches = nearest(r->ranks, m);
    if (r->virtual_stages < 2) {
        *why = "it has at least 2 stages a rank, not 1 (1f1b has one)";
        return false;
    }
    if (!fits)
        *why = gw_arena_printf(a,
                               "%d micro-batches on %d ranks go in max(1, %d / %d) = %d groups, "
                               "and %d does not divide %d",
                               m, r->ranks, m, r->ranks, groups, groups, m);
    return fits;
}

/* Forward number k of rank `rank`, or backward if `back`. */
static void add(gw_sched_builder *b, const gw_sched_request *r, int rank, int64_t k, bool back) {
    int v = r->virtual_stages;
    int32_t group = r->micro_batches / GW_MAX(1, r->micro_batches / r->ranks);
    int64_t round = k / ((int64_t)group * v), within = k % ((int64_t)group * v);
    int lap = (int)(within / group);
    int32_t micro = (int32_t)(round * group + within % group);
    gw_sched_add(b, rank, back ? GW_ACT_B : GW_ACT_F, (back ? v - 1 - lap : lap) * r->ranks + rank,
                 micro);
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_sched_builder b;
    int v = r->virtual_stages;
    gw_sched_begin(&b, a, out, gw_sched_kind_interleaved.name, r->ranks, v, false,
                   r->micro_batches);
    int64_t group = r->micro_batches / GW_MAX(1, r->micro_batches / r->ranks);
    int64_t total = (int64_t)r->micro_batches * v;
    for (int rank = 0; rank < r->ranks; rank++) {
        int64_t warm = GW_MIN(total, 2 * (r->ranks - 1 - rank) + (v - 1) * group);
        for (int64_t k = 0; k < total + warm; k++) {
            if (k < total) add(&b, r, rank, k, false);
            if (k >= warm) add(&b, r, rank, k - warm, true);
        }
    }
}

const gw_sched_kind gw_sched_kind_interleaved = {
    .name = "interleaved",
    .doc = "1f1b with several stages a rank, in loops: the bubble divided by their number",
    .searches = false,
    .halves = false,
    .made_for = 2,
    .admits = admits,
    .make = make,
};

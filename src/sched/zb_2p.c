// SPDX-License-Identifier: Apache-2.0
// ZB-2p: no bubble, for twice the memory; found for given costs.
//
// With room for 2p micro-batches rank 0 can go on forwarding until its first gradient comes back,
// and every rank can keep enough weight gradients to be busy until its last. How many ahead and how
// far behind depends on what the passes and the messages take, so the order is looked for
// (search.c) with the costs of the request, within its memory: `memory` micro-batches of a stage,
// 2p if it has none, p for what the paper calls ZB-1p, any number from 1. It is never worse than
// the hand-made ZB-H2 where that is within the memory, or ZB-H1 where that is.
//
// Where all ranks are as busy, "no bubble" is between a rank's first action and its last; rank r
// begins r forward passes later than rank 0 and ends so much later. Whether that costs a step
// anything depends on what follows: steps without a barrier (optimizer.norm: deferred) lie one
// behind the other, and a barrier makes all wait for the last. Source: Qi, Wan, Huang and Lin 2023
// (arXiv 2401.10241), sections 3 and 4.
#include "sched/search.h"

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    if (r->virtual_stages != 1) {
        near->virtual_stages = 1;
        *why = gw_arena_printf(a, "it has one stage a rank, not %d", r->virtual_stages);
    }
    if (r->memory != 0 && !(r->memory >= 1)) {
        near->memory = 1;
        *why = gw_arena_printf(a, "a rank holds one micro-batch at least, not %g", r->memory);
    }
    return r->virtual_stages == 1 && (r->memory == 0 || r->memory >= 1);
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_zb_problem p;
    gw_zb_problem_of(r, 2.0 * r->ranks, a, &p);
    gw_zb_order best;
    gw_zb_search(&p, NULL, 0, a, &best);
    gw_zb_order_emit(&p, &best, "zb-2p", a, out);
}

const gw_sched_kind gw_sched_kind_zb_2p = {
    .name = "zb-2p",
    .doc = "backward in halves, the order found for given costs and memory; twice that of 1f1b",
    .searches = true,
    .weighs = true,
    .halves = true,
    .made_for = 1,
    .admits = admits,
    .make = make,
};

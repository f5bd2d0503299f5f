// SPDX-License-Identifier: Apache-2.0
// ZB-H1: a backward in halves, within the memory of 1F1B.
//
// What the stage before waits for is only the gradient of the stage's input. So the gradient of its
// weights can wait, and fill the time in which 1F1B has nothing to do at the end of the step. Three
// ranks and six micro-batches, all three passes equally long:
//
//   rank 0    F F F . . I W F I W F I W F I W I W I W
//   rank 1      F F . I F I W F I W F I W F I W I W W
//   rank 2        F I F I F I W F I W F I W F I W W W
//
// Rank r forwards p - 1 - r micro-batches ahead, and is r weight gradients behind, so it holds at
// most p micro-batches, as rank 0 does with 1F1B. Of the bubble (p - 1)(F + I - W) is left, a third
// of 1F1B's where the three are equal. Source: Qi, Wan, Huang and Lin 2023 (arXiv 2401.10241),
// section 2.1. The order is fixed, but that a rank with less room than r weight gradients need lags
// by fewer (zb_order.c); zb-2p looks for one that suits given costs.
#include "sched/search.h" /* gw_zb_order_by_hand */

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    if (r->virtual_stages == 1) return true;
    near->virtual_stages = 1;
    *why = gw_arena_printf(a, "it has one stage a rank, not %d", r->virtual_stages);
    return false;
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_zb_problem p;
    gw_zb_problem_of(r, r->ranks, a, &p);
    p.memory = r->ranks;
    gw_zb_order o = gw_zb_order_by_hand(&p, 1, a);
    gw_zb_order_emit(&p, &o, "zb-h1", a, out);
}

const gw_sched_kind gw_sched_kind_zb_h1 = {
    .name = "zb-h1",
    .doc = "backward in halves, weight gradients fill the end of the step; the memory of 1f1b",
    .weighs = true,
    .halves = true,
    .made_for = 1,
    .admits = admits,
    .make = make,
};

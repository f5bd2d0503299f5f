// SPDX-License-Identifier: Apache-2.0
// DualPipeV: DeepSeek's DualPipe, cut in half.
//
// DualPipe runs a pipeline from both ends at once, with two copies of the weights. Where one rank
// meets itself in the middle the second copy is not needed, and what is left is a V: rank r has
// stages r and 2p - 1 - r. In its middle phase a rank pairs the forward of one stage with the
// backward of the other, and they belong to different micro-batches; that is what lets a machine
// with several streams hide the exchange of experts in one behind the products of the other. In a
// list, whose actions follow each other, the forward of a pair comes first.
//
// Eight phases, with 0 and 1 for the first and second stage of rank r, B whole, I and W in halves:
//
//   1  2(p - 1 - r) times      F0
//   2  r + 1                   F0 F1
//   3  p - 1 - r               I1 W F1
//   4  m - 2p + r + 1          F0 B1  F1 B0
//   5  p - 1 - r               B1     F1 B0
//   6  r + 1                   B1 B0, in halves from the middle on: of B1 first on odd ranks, of B0
//                              first on even ones
//   7  p - 1 - r               W I0
//   8  until none is left      W
//
// where W is the oldest that waits. The phases assume 2p micro-batches or more; with fewer, the
// order of 2p holds with those left out that there are not. Sources: the order as DeepSeek
// published it with DualPipe, and as PyTorch's pipelining has it. Its bubble is at most (p - 1)(F +
// 2I - W), for F, I and W of a stage: that is where the two of a pair begin together on all ranks,
// and lists do not wait for that. A rank holds up to p + 1/2 micro-batches of both its stages.
#include "base/panic.h" /* GW_ASSERT */
#include "sched/sched.h"

typedef struct writer {
    gw_sched_builder *b;
    int rank, stage[2];
    int32_t forward[2], backward[2], m;
    gw_action *late; /* weight gradients that wait */
    int64_t late_first, late_n;
} writer;

static void put(writer *w, gw_act act, int stage, int32_t micro) {
    if (micro < w->m) gw_sched_add(w->b, w->rank, act, stage, micro);
}

static void forward(writer *w, int chunk) {
    put(w, GW_ACT_F, w->stage[chunk], w->forward[chunk]++);
}

static void backward(writer *w, int chunk, bool halves) {
    int32_t micro = w->backward[chunk]++;
    put(w, halves ? GW_ACT_I : GW_ACT_B, w->stage[chunk], micro);
    if (halves) w->late[w->late_n++] = (gw_action){GW_ACT_W, (int16_t)w->stage[chunk], micro};
}

static void late(writer *w) {
    if (w->late_first == w->late_n) return;
    gw_action a = w->late[w->late_first++];
    put(w, GW_ACT_W, a.stage, a.micro);
}

static void make_rank(writer *w, int p, int32_t m) {
    int r = w->rank, to_end = p - 1 - r;
    for (int i = 0; i < 2 * to_end; i++) forward(w, 0);
    for (int i = 0; i < r + 1; i++) {
        forward(w, 0);
        forward(w, 1);
    }
    for (int i = 0; i < to_end; i++) {
        backward(w, 1, true);
        late(w);
        forward(w, 1);
    }
    for (int32_t i = 0; i < m - 2 * p + r + 1; i++) {
        forward(w, 0);
        backward(w, 1, false);
        forward(w, 1);
        backward(w, 0, false);
    }
    for (int i = 0; i < to_end; i++) {
        backward(w, 1, false);
        forward(w, 1);
        backward(w, 0, false);
    }
    for (int i = 0, middle = (r + 1) / 2; i < r + 1; i++) {
        backward(w, 1, i > middle || (i == middle && r % 2 == 1));
        backward(w, 0, i >= middle);
    }
    for (int i = 0; i < to_end; i++) {
        late(w);
        backward(w, 0, true);
    }
    while (w->late_first < w->late_n) late(w);
    for (int c = 0; c < 2; c++) GW_ASSERT(w->forward[c] == m && w->backward[c] == m);
}

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    if (r->virtual_stages == 2) return true;
    near->virtual_stages = 2;
    *why = gw_arena_printf(a, "it has two stages a rank, not %d", r->virtual_stages);
    return false;
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_sched_builder b;
    int p = r->ranks;
    gw_sched_begin(&b, a, out, "dualpipev", p, 2, true, r->micro_batches);
    for (int i = 0; i < p; i++) {
        writer w = {.b = &b,
                    .rank = i,
                    .stage = {i, 2 * p - 1 - i},
                    .m = r->micro_batches,
                    .late = gw_arena_new(a, gw_action, 4 * p)};
        make_rank(&w, p, GW_MAX(r->micro_batches, 2 * p));
    }
}

const gw_sched_kind gw_sched_kind_dualpipev = {
    .name = "dualpipev",
    .doc = "two stages a rank as a V, the forward of one beside the backward of the other",
    .halves = true,
    .made_for = 2,
    .admits = admits,
    .make = make,
};

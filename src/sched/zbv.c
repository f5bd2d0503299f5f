// SPDX-License-Identifier: Apache-2.0
// ZB-V: no bubble within the memory of 1F1B, for twice the messages.
//
// Two stages a rank, laid out as a V: rank r has stages r and 2p - 1 - r, so a micro-batch goes
// down the ranks and up again, and its backward the same way. It comes back to a rank soon after it
// has left it; so what a rank holds is let go sooner, and all ranks hold about as much. Three
// ranks, seven micro-batches, F I W of the first stage and f i w of the second, all equally long:
//
//   rank 0    F F F F F f i w f i w f i w F I W f i w F I W f i w I W f i w I W f i w I W I ...
//   rank 1      F F F f F f i w f i w F I W f i w F I W f i w F I W f i w I W f i w I i I W ...
//   rank 2        F f F f F f i w F I W f i w F I W f i w F I W f i w F I W f i w I i I i I ...
//
// That order, by hand, leaves no bubble where the three passes are equal (Qi, Wan, Huang and Lin
// 2023, arXiv 2401.10241, and Qi et al. 2024, arXiv 2405.15362). For costs that differ the order is
// looked for (search.c), from the one by hand, within the memory of the request: p micro-batches of
// both stages if it has none, any number from 1. With fewer micro-batches than 2p - 1 the order by
// hand is that of 2p - 1 with those left out that there are not.
#include "base/panic.h" /* GW_ASSERT */
#include "sched/search.h"

typedef struct writer {
    gw_zb_order *o;
    int rank;
    int64_t n;
    int32_t count[8], m; /* of each code; micro-batches */
} writer;

/* A code's next micro-batch, unless there is none of that number. */
static void put(writer *w, gw_act act, int chunk) {
    int code = (int)act + 4 * chunk;
    if (w->count[code]++ < w->m) w->o->codes[w->rank][w->n++] = (uint8_t)code;
}

static void put_back(writer *w, int chunk) {
    put(w, GW_ACT_I, chunk);
    put(w, GW_ACT_W, chunk);
}

static void by_hand(const gw_zb_problem *p, int r, gw_zb_order *o) {
    enum { F0 = GW_ACT_F, F1 = 4 + GW_ACT_F, I0 = GW_ACT_I, I1 = 4 + GW_ACT_I };
    int ranks = p->ranks;
    int32_t all = GW_MAX(p->micro_batches, 2 * ranks - 1);
    writer w = {.o = o, .rank = r, .m = p->micro_batches};
    for (int i = 0; i < 2 * (ranks - r) - 1; i++) put(&w, GW_ACT_F, 0);
    for (int i = 0; i < r; i++) {
        put(&w, GW_ACT_F, 1);
        put(&w, GW_ACT_F, 0);
    }
    for (int i = 0; i < ranks - r; i++) {
        put(&w, GW_ACT_F, 1);
        put_back(&w, 1);
    }
    while (w.count[F1] < all) { /* one each way, of both stages */
        if (w.count[F0] < all) put(&w, GW_ACT_F, 0);
        put_back(&w, 0);
        put(&w, GW_ACT_F, 1);
        put_back(&w, 1);
    }
    for (int i = 0; i < r; i++) { /* gradients go on at once, weights wait */
        put(&w, GW_ACT_I, 0);
        put(&w, GW_ACT_I, 1);
    }
    while (w.count[I0] < all) put_back(&w, 0);
    while (w.count[4 + GW_ACT_W] < all) put(&w, GW_ACT_W, 1);
    while (w.count[GW_ACT_W] < all) put(&w, GW_ACT_W, 0);
    GW_ASSERT(w.n == o->n);
}

static bool admits(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near) {
    if (r->virtual_stages != 2) {
        near->virtual_stages = 2;
        *why = gw_arena_printf(a, "it has two stages a rank, not %d", r->virtual_stages);
    }
    if (r->memory != 0 && !(r->memory >= 1)) {
        near->memory = 1;
        *why = gw_arena_printf(a, "a rank holds one micro-batch at least, not %g", r->memory);
    }
    return r->virtual_stages == 2 && (r->memory == 0 || r->memory >= 1);
}

static void make(const gw_sched_request *r, gw_arena *a, gw_schedule *out) {
    gw_zb_problem p;
    gw_zb_problem_of(r, r->ranks, a, &p);
    gw_zb_order hand = gw_zb_order_new(&p, a), best;
    for (int i = 0; i < p.ranks; i++) by_hand(&p, i, &hand);
    gw_zb_search(&p, &hand, 1, a, &best);
    gw_zb_order_emit(&p, &best, "zbv", a, out);
}

const gw_sched_kind gw_sched_kind_zbv = {
    .name = "zbv",
    .doc = "backward in halves, two stages a rank as a V: no bubble, the memory of 1f1b",
    .searches = true,
    .weighs = true,
    .halves = true,
    .made_for = 2,
    .admits = admits,
    .make = make,
};

// SPDX-License-Identifier: Apache-2.0
// The optimiser of zero-bubble schedules: orders of forward, input gradients and weight gradients
// that keep every rank busy, given what each costs and how much a rank may hold. Used by zb_2p.c
// and zbv.c; the hand-made orders of zb_h1.c and zbv.c are where it starts from and what it must
// not be worse than.
#ifndef GW_SCHED_SEARCH_H
#define GW_SCHED_SEARCH_H

#include "sched/sched.h" /* gw_sched_request, gw_schedule */

enum { GW_ZB_MAX_CHUNKS = 2 }; /* stages a rank */

typedef struct gw_zb_problem {
    int ranks, chunks; /* one stage a rank, or two as a V: rank r has r and 2 * ranks - 1 - r */
    int32_t micro_batches;
    /* [stages], filled in */
    double *forward, *input, *weight, *send, *reduce, *held, *held_weight, *made, *message;
    bool apart; /* memory counts places of each kind; otherwise what is there at once */
    bool barrier;
    double step;   /* the optimizer's time */
    double memory; /* in units of a micro-batch of all stages of a rank */
    int places;    /* of a channel of messages; 0: no limit */
} gw_zb_problem;

/* For each rank, what it computes: 3 * chunks * micro_batches codes, act + 4 * chunk with act
 * GW_ACT_F, GW_ACT_I or GW_ACT_W. Of each stage and act micro-batches stand in their order, so they
 * are not written. In a stage with a whole backward each I is followed by its W. */
typedef struct gw_zb_order {
    uint8_t **codes; /* [ranks] */
    int64_t n;       /* of a rank */
    bool *whole;     /* [stages] */
} gw_zb_order;

/* Where stages are. */
static inline int gw_zb_stage(const gw_zb_problem *p, int rank, int chunk) {
    return chunk ? 2 * p->ranks - 1 - rank : rank;
}
static inline int gw_zb_rank(const gw_zb_problem *p, int stage) {
    return stage < p->ranks ? stage : 2 * p->ranks - 1 - stage;
}

/* What is being made small: `first`, and among equals `second`. Without a barrier at the end of the
 * step first is the longest time from a rank's first action to its last (reductions included), and
 * second the whole step; with one the other way round. */
typedef struct gw_zb_score {
    double first, second;
    double memory; /* most that a rank holds, in units of a micro-batch of all its stages */
} gw_zb_score;

/* The problem of a request (filled in); `memory` where the request has none. */
void gw_zb_problem_of(const gw_sched_request *r, double memory, gw_arena *a, gw_zb_problem *out);
/* Which stages have a whole backward with so much memory: those of ranks where the places of one
 * gradient that waits for W would take the room of micro-batches under way. */
void gw_zb_wholes(const gw_zb_problem *p, double memory, bool *whole);
/* Of a rank: what a micro-batch leaves in all its stages. */
double gw_zb_unit(const gw_zb_problem *p, int rank);
gw_zb_order gw_zb_order_new(const gw_zb_problem *p, gw_arena *a);
/* What an order comes to by the clock (clock.c), where messages wait for places. The order can run.
 */
gw_zb_score gw_zb_order_clock(const gw_zb_problem *p, const gw_zb_order *o, gw_arena *a);

/* The hand-made orders of one stage a rank: ZB-H1 (lag 1), which holds as much as 1F1B, and ZB-H2
 * (lag 2), which holds twice that. Rank r forwards lag * (ranks - 1 - r) micro-batches ahead, then
 * one for each that comes back, and is lag * r behind with weight gradients, or as many of that as
 * its memory has places for. Any micro-batches. */
gw_zb_order gw_zb_order_by_hand(const gw_zb_problem *p, int lag, gw_arena *a);

/* Writes the best order found into *best: one within p->memory (if only doing one micro-batch after
 * another is, then that), no worse than any of the `n` given ones that are within it, nor, with one
 * stage a rank, than those made by hand. More memory never makes it worse. Deterministic. */
void gw_zb_search(const gw_zb_problem *p, const gw_zb_order *given, int n, gw_arena *a,
                  gw_zb_order *best);

/* The schedule of an order. */
void gw_zb_order_emit(const gw_zb_problem *p, const gw_zb_order *o, const char *name, gw_arena *a,
                      gw_schedule *out);

#endif

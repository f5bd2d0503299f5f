// SPDX-License-Identifier: Apache-2.0
// One play of a pipeline forward in time, each rank taking what it prefers (play.c); the optimiser
// (search.c) makes many.
#ifndef GW_SCHED_PLAY_H
#define GW_SCHED_PLAY_H

#include "sched/impl.h"   /* gw_sched_places */
#include "sched/search.h" /* gw_zb_problem, gw_zb_order */

enum { GW_ZB_NONE = 1 << 30, GW_ZB_SLOTS = 5, GW_ZB_NO = 255 };

/* What ranks prefer. Caps and lags: GW_ZB_NONE is none. */
typedef struct gw_zb_settings {
    double memory;
    const int32_t *cap, *lag;  /* [ranks] */
    const uint8_t *priority;   /* [GW_ZB_SLOTS]: act + 4 * chunk, first what goes first; W: one of
                                  those beyond the lag; GW_ZB_NO: no more */
    const gw_zb_order *follow; /* F and I in the order of this one instead; NULL: not */
    double patience;
    const bool *whole; /* [stages] */
    int family;        /* of cap and lag, or of the order that is followed */
} gw_zb_settings;

/* One play. */
typedef struct gw_zb_play {
    const gw_zb_problem *p;
    const gw_zb_settings *set;
    int leaves;     /* of the tournament: a power of two >= ranks */
    double *ready;  /* [2 * stages * micro_batches]: when the input of F, then of I, is there */
    int32_t *count; /* [stages][3]: F, I, W done */
    uint8_t *late;  /* [ranks][chunks * micro_batches]: chunks whose W wait, oldest first */
    int64_t *late_first, *late_n;
    double *idle_from, *start, *reduced, *limit;
    gw_sched_places *places; /* [stages] */
    double *rest;            /* [ranks]: time of what is left to do */
    double give_up;          /* once score.first cannot be less than this */
    int64_t played;          /* actions */
    double *wake;            /* [leaves]: when a rank looks again */
    int *winner;             /* [2 * leaves]: of the tournament for the earliest */
    double least;            /* that score.first can still be */
    double soon;             /* times this close are the same */
    gw_zb_order order;
    int64_t *n;     /* [ranks]: length of the order so far */
    int64_t *ahead; /* [ranks]: where the followed order is */
    gw_zb_score score;
} gw_zb_play;

void gw_zb_play_new(gw_zb_play *k, const gw_zb_problem *p, gw_arena *a);
/* Plays one step: k->order and k->score. False: it came to a halt, or is no better than
 * k->give_up. Adds to k->played. */
bool gw_zb_play_out(gw_zb_play *k, const gw_zb_settings *set);
/* What a rank computes in a step. */
double gw_zb_work(const gw_zb_problem *p, int rank);

#endif

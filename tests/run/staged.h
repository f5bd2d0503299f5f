// SPDX-License-Identifier: Apache-2.0
// Programs of a pipeline written by hand: a chain of matrix products in whole numbers, cut into
// stages that lie on ranks as one likes, with any list of actions, and what they compute.
#ifndef GW_TESTS_RUN_STAGED_H
#define GW_TESTS_RUN_STAGED_H

#include "base/str.h" /* gw_str */
#include "run/exec.h" /* gw_exec */

enum { STAGED_MAX = 8, STAGED_ROWS = 4, STAGED_MICRO = 16 };

/* Stage s makes y = x w of each micro-batch, x[b d], w[d e]; the last one's gradient is given. */
typedef struct staged {
    int ranks, stages, micro, dp; /* ranks along pp; rows are cut over dp */
    int rank_of[STAGED_MAX];
    int places; /* of channels */
    bool sum;   /* gradients are summed over dp by R */
    gw_action lists[STAGED_MAX][STAGED_MICRO * STAGED_MAX * 8];
    int n[STAGED_MAX];
} staged;

/* Lists: all forward before all backward; 1F1B (one stage a rank); an order at random that respects
 * what depends on what, backward in halves or whole. They end with R of each stage and S. */
void staged_gpipe(staged *p);
void staged_1f1b(staged *p);
void staged_random(staged *p, uint64_t seed, bool halves);

/* Dimensions of stage s's input and output. */
int staged_in(int s);
int staged_out(int s);
/* The program of the rank at place `at` of pp, as text. Named: w<s>, x, seed, y, dw<s>,
 * norm. */
void staged_text(const staged *p, int at, gw_str *out);

/* Numbers of the whole micro-batch of a step, row-major. */
float staged_x(int step, int micro, int64_t i);
float staged_seed(int step, int micro, int64_t i);
float staged_w(int s, int64_t i);

/* What one rank would compute: outputs of the last stage, gradients of each weight, their squared
 * norm. */
typedef struct staged_want {
    double y[STAGED_MICRO][STAGED_ROWS * 32];
    double dw[STAGED_MAX][32 * 32];
    double norm;
} staged_want;
void staged_compute(const staged *p, int step, staged_want *out);

/* The program of the rank at place `at` of pp, verified and placed. */
void staged_make(const staged *p, int at, const gw_exec_facts *f, gw_graph *out, gw_diags *dg);
/* Place of an executor's rank on pp. */
int staged_place_of(const gw_exec *x);
void staged_write_weights(const staged *p, gw_exec *x);
/* What a rank is fed in a step: its rows of x and seed. */
typedef struct staged_feeding {
    const staged *p;
    int step, row, rows;
    int calls; /* of staged_feed so far */
} staged_feeding;
staged_feeding staged_feeding_of(const staged *p, const gw_exec *x, int step);
/* gw_exec_loop.feed; user is a staged_feeding. */
gw_status staged_feed(void *user, gw_exec *x, int64_t micro, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// How far two tensors are apart, and which mistake would explain it. Pure functions over arrays.
#ifndef GW_TRAIN_VERIFY_COMPARE_H
#define GW_TRAIN_VERIFY_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h" /* gw_wire */

enum { GW_VERIFY_MOST_PARTS = 16, GW_VERIFY_TEXT = 120 };

/* Euclidean norm, in double. */
double gw_verify_norm(const float *x, int64_t n);
/* ||a - b|| / max(||b||, floor); infinite when a value of either is not finite in one and is in the
 * other, or differs from it. 0 when both norms and floor are 0. */
double gw_verify_difference(const float *a, const float *b, int64_t n, double floor);

/* The numbers that a factor may be. */
typedef struct gw_verify_degrees {
    int64_t dp, dp_replicate, micro_batches;
    int64_t tp, cp, ep;         /* 0 is 1 */
    int64_t pp, virtual_stages; /* likewise; stages are their product */
} gw_verify_degrees;

/* Is x = a y for one number a, up to `tolerance` of ||x||? Then *factor is a and text says what it
 * may come from: "x dp (2)", "/ micro-batches (3)", "zero", "x -1", or plainly "x 1.37". False when
 * no factor explains x, or when it is 1. */
bool gw_verify_factor(const float *x, const float *y, int64_t n, const gw_verify_degrees *d,
                      double tolerance, double *factor, char text[GW_VERIFY_TEXT]);

/* The weights w with which parts[0..np) (np <= GW_VERIFY_MOST_PARTS) add up to x, by least squares;
 * NaN for a part that is zero. Returns ||x - sum of w p|| / ||x||, infinite for an x of zeros. */
double gw_verify_mix(const float *x, const float *const *parts, int np, int64_t n, double *w);
/* What weights that are not all 1 mean, `of` being "rank", "data-parallel rank" (numbered from 0)
 * or "micro-batch" (from 1): "missing reduction: only rank 1's contribution", "rank 1's
 * contribution is missing", "contributions by rank: x 2, x 0.667". False when all are 1 within the
 * tolerance. */
bool gw_verify_mix_text(const double *w, int np, const char *of, double tolerance,
                        char text[GW_VERIFY_TEXT]);
/* Is x put together from own contributions, elements [first[r], first[r] + count[r]) those of
 * parts[r]? */
bool gw_verify_own_pieces(const float *x, const float *const *parts, int np, const int64_t *first,
                          const int64_t *count, double tolerance);

/* A bound on ||x' - x|| / ||x|| where x' is x after one hop over wire w (comm/wire.h): by the
 * largest value of each block of x; 2^-8 for bf16; 0 for wires without loss and for an x of zeros.
 * Each of `shares` ranks encodes its own part of x (a balanced flat cut) by itself, so that is
 * where blocks begin. */
double gw_verify_hop(gw_wire w, const float *x, int64_t n, int64_t shares);

#endif

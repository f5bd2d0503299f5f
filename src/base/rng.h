// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: every number is a pure function of (key, counter), so any rank can
// compute any element, in any order, and two layouts draw the same bits.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#ifndef GW_BASE_RNG_H
#define GW_BASE_RNG_H

#include <stdint.h>

typedef struct gw_rng_key {
    uint32_t k[2];
} gw_rng_key;

typedef struct gw_rng_block {
    uint32_t x[4];
} gw_rng_block;

/* A key from a run seed and a name (a tensor, an op, "shuffle"): XXH3-64 of the name, seeded. */
gw_rng_key gw_rng_key_named(uint64_t seed, const char *name);
/* A key derived from another and a number (sample id, batch counter). */
gw_rng_key gw_rng_key_fold(gw_rng_key key, uint64_t number);

gw_rng_block gw_philox(gw_rng_key key, uint64_t counter_lo, uint64_t counter_hi);

/* Element i of the stream `key`. uniform: [0, 1) with 24 bits; u64: all bits. */
uint32_t gw_rng_u32(gw_rng_key key, uint64_t i);
uint64_t gw_rng_u64(gw_rng_key key, uint64_t i);
float gw_rng_uniform(gw_rng_key key, uint64_t i);
/* Standard normal by Box-Muller with our own log, sine and cosine, so that bits do not depend on a
 * maths library. Elements 2j and 2j+1 come from one pair. */
double gw_rng_normal(gw_rng_key key, uint64_t i);
/* Fills out[0..n) with elements first .. first+n of the normal stream times std. */
void gw_rng_fill_normal(gw_rng_key key, uint64_t first, int64_t n, float std, float *out);

/* Our own log and sin/cos of 2*pi*x, accurate to about 1e-15 relative, pure arithmetic. */
double gw_portable_log(double x);
void gw_portable_sincos_2pi(double x, double *s, double *c);

/* A bijection of [0, n) for every n >= 1, keyed: a balanced Feistel network over the next even
 * power of two with cycle walking. i must be < n. */
uint64_t gw_rng_permute(gw_rng_key key, uint64_t n, uint64_t i);

#endif

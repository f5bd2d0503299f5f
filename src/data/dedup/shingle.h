// SPDX-License-Identifier: Apache-2.0
// Hashes of shingles, and the least value of each permutation over them: the loops of MinHash.
#ifndef GW_DATA_DEDUP_SHINGLE_H
#define GW_DATA_DEDUP_SHINGLE_H

#include <stdint.h>

#include "data/dedup/minhash.h" /* gw_shingle_hash */

/* 2^61 - 1 */
#define GW_MERSENNE ((UINT64_C(1) << 61) - 1)

/* out[i] = hash of text[begin[i] .. end[i]), i < n. bits: 64 or 32. */
void gw_shingle_hashes(gw_shingle_hash kind, int bits, const uint8_t *text, const uint32_t *begin,
                       const uint32_t *end, int64_t n, uint64_t *out);

enum { GW_FOLD_BLOCK = 16 }; /* permutations come in multiples of this */

/* Permutations as the loops read them, each [n], n a multiple of GW_FOLD_BLOCK, aligned to 64. */
typedef struct gw_permutations {
    int64_t n;
    uint64_t *a, *a_high, *b, *b1; /* a >> 32; b + 1 */
    int bits;                      /* of a value */
} gw_permutations;

/* least[j] = min over i < n of ((h[i] * a[j] + b[j] mod 2^64) mod M), cut to 32 bits before the
 * minimum where bits is 32. n >= 1. */
typedef struct gw_fold {
    const char *name;
    void (*run)(const gw_permutations *p, const uint64_t *h, int64_t n, uint64_t *least);
} gw_fold;
/* The i-th loop that this machine runs, fastest first; NULL after the last. All give the same. */
const gw_fold *gw_fold_at(int i);

#endif

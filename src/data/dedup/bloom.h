// SPDX-License-Identifier: Apache-2.0
// A Bloom filter: what was seen, in bounded memory, at a stated rate of false alarms.
#ifndef GW_DATA_DEDUP_BLOOM_H
#define GW_DATA_DEDUP_BLOOM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */

typedef struct gw_bloom gw_bloom;

/* Bits and hashes for `expected` keys at false-positive rate fp: m = -n ln fp / ln 2 squared,
 * rounded up to whole 32-bit words; k = ceil(m / n ln 2). At most max_bytes (0: no limit), which
 * raises the rate: gw_bloom_rate says to what. expected >= 1, 0 < fp < 1. */
GW_WARN_UNUSED gw_status gw_bloom_new(int64_t expected, double fp, int64_t max_bytes,
                                      gw_bloom **out, gw_diags *dg);
void gw_bloom_free(gw_bloom *b);
/* Adds a key; true if it was there already (or looks so). Order of adding matters to no later
 * answer but to those of equal keys. */
bool gw_bloom_add(gw_bloom *b, gw_hash128 key);
bool gw_bloom_has(const gw_bloom *b, gw_hash128 key);
/* The expected rate of false alarms with n keys in it: (1 - e^(-kn/m))^k. */
double gw_bloom_rate(const gw_bloom *b, int64_t n);
double gw_bloom_rate_of(int64_t bits, int hashes, int64_t n);
/* The most keys that a filter of this size can have been made for. */
int64_t gw_bloom_room(int64_t bits, int hashes);
int64_t gw_bloom_bits(const gw_bloom *b);
int gw_bloom_hashes(const gw_bloom *b);
int64_t gw_bloom_count(const gw_bloom *b); /* keys added that were new */

/* The file layout of dolma and BFF: u32 magic 0x81F0F117, u32 version 1, u32 k, k times four u64
 * seeds, u64 words, that many u32 words, all little-endian. The layout is shared, the bits are not:
 * theirs come from a hash that changes between machines and versions. Written through rename, with
 * a file NAME.xxh128 beside it: the hash of its bytes, and in a second line what its keys are of.
 * Load checks both where they are there. A kill while one filter replaces another leaves the old
 * one or the new one, either with what belongs to it beside it. `what`: up to 100 bytes of one
 * line, or NULL: not said, not asked. */
GW_WARN_UNUSED gw_status gw_bloom_save(const gw_bloom *b, const char *path, const char *what,
                                       gw_diags *dg);
GW_WARN_UNUSED gw_status gw_bloom_load(const char *path, int64_t max_bytes, const char *what,
                                       gw_bloom **out, gw_diags *dg);

#endif

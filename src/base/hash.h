// SPDX-License-Identifier: Apache-2.0
// Hashes: XXH3 for bytes at memory speed, by libxxhash.
#ifndef GW_BASE_HASH_H
#define GW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct gw_hash128 {
    uint64_t lo, hi;
} gw_hash128;

uint64_t gw_hash64(const void *bytes, size_t n, uint64_t seed);
gw_hash128 gw_hash128_of(const void *bytes, size_t n);
/* Lower-case hex, 32 characters and NUL. Returns buf. */
char *gw_hash128_hex(char buf[33], gw_hash128 h);

/* Streaming form. */
typedef struct gw_hasher gw_hasher;
gw_hasher *gw_hasher_new(void);
void gw_hasher_reset(gw_hasher *h);
void gw_hasher_add(gw_hasher *h, const void *bytes, size_t n);
gw_hash128 gw_hasher_get(const gw_hasher *h);
void gw_hasher_free(gw_hasher *h);

#endif

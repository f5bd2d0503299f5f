// SPDX-License-Identifier: Apache-2.0
// Hashes over libxxhash.
//
// XXH3 is fast enough to check every byte that a checkpoint stages or reads (tens of GB/s against a
// few for a disk) and its 128-bit form is wide enough that two tensors do not collide by chance. It
// is no defence against someone who chooses the bytes: signatures and content addresses that cross
// a trust boundary use a cryptographic hash elsewhere.
//
// XXH3's results are fixed across versions and byte orders, so a hash may be stored in a file.
#include "base/hash.h"

#include <stdio.h>
#include <xxhash.h>

#include "base/panic.h" /* gw_panic, GW_ASSERT */

uint64_t gw_hash64(const void *bytes, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(n ? bytes : "", n, seed);
}

static gw_hash128 from_xxh(XXH128_hash_t h) { return (gw_hash128){h.low64, h.high64}; }

gw_hash128 gw_hash128_of(const void *bytes, size_t n) {
    return from_xxh(XXH3_128bits(n ? bytes : "", n));
}

char *gw_hash128_hex(char buf[33], gw_hash128 h) {
    snprintf(buf, 33, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
    return buf;
}

/* gw_hasher is never defined: a handle is an XXH3_state_t, which only this file knows. */
static XXH3_state_t *state_of(gw_hasher *h) { return (XXH3_state_t *)(void *)h; }

gw_hasher *gw_hasher_new(void) {
    XXH3_state_t *s = XXH3_createState();
    if (!s) gw_panic("out of memory for a hash state");
    XXH3_128bits_reset(s);
    return (gw_hasher *)(void *)s;
}

void gw_hasher_reset(gw_hasher *h) { XXH3_128bits_reset(state_of(h)); }

void gw_hasher_add(gw_hasher *h, const void *bytes, size_t n) {
    if (n) GW_ASSERT(XXH3_128bits_update(state_of(h), bytes, n) == XXH_OK);
}

gw_hash128 gw_hasher_get(const gw_hasher *h) {
    return from_xxh(XXH3_128bits_digest((const XXH3_state_t *)(const void *)h));
}

void gw_hasher_free(gw_hasher *h) { XXH3_freeState(state_of(h)); }

// SPDX-License-Identifier: Apache-2.0
// Hash maps and the growing array.
//
// Names to ids is what a compiler looks up most, so the maps give 32-bit numbers for strings or
// 64-bit integers and nothing else: no removal, no iteration order to depend on, values that index
// an array their owner keeps. Open addressing with linear probes over a power-of-two table, kept at
// most 3/4 full; a string slot remembers 32 bits of the hash, so most mismatches cost no
// comparison.
//
// String keys are borrowed. They come from arenas that outlive the map, and copying them here would
// double every symbol table.
#include "base/map.h"

#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc, gw_mem_realloc, gw_mem_free */
#include "base/hash.h"  /* gw_hash64 */
#include "base/panic.h" /* GW_ASSERT */

enum { FIRST_CAP = 16 };

struct gw_smap_slot {
    const char *key; /* NULL = empty */
    size_t len;
    uint32_t hash, value;
};

struct gw_imap_slot {
    uint64_t key;
    uint32_t value, used;
};

/* The capacity to grow to before one more entry goes in, or 0 where there is room. */
static uint32_t cap_needed(uint32_t cap, uint32_t count) {
    if (count + 1 <= cap - cap / 4 && cap) return 0;
    GW_ASSERT(cap < UINT32_C(1) << 31);
    return cap ? cap * 2 : FIRST_CAP;
}

/* ------------------------------------------------------------------------------ strings */

/* The slot that holds the key, or the empty one where it belongs. cap > 0, and not full. */
static gw_smap_slot *smap_slot(gw_smap_slot *slots, uint32_t cap, const char *key, size_t len,
                               uint32_t hash) {
    for (uint32_t i = hash & (cap - 1);; i = (i + 1) & (cap - 1)) {
        gw_smap_slot *s = &slots[i];
        if (!s->key) return s;
        if (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0) return s;
    }
}

static void smap_grow(gw_smap *m, uint32_t cap) {
    gw_smap_slot *slots = gw_mem_zalloc(cap * sizeof *slots);
    for (uint32_t i = 0; i < m->cap; i++) {
        const gw_smap_slot *s = &m->slots[i];
        if (s->key) *smap_slot(slots, cap, s->key, s->len, s->hash) = *s;
    }
    gw_mem_free(m->slots);
    m->slots = slots;
    m->cap = cap;
}

void gw_smap_release(gw_smap *m) {
    gw_mem_free(m->slots);
    *m = (gw_smap){0};
}

bool gw_smap_put(gw_smap *m, const char *key, size_t len, uint32_t value) {
    uint32_t cap = cap_needed(m->cap, m->count), hash = (uint32_t)gw_hash64(key, len, 0);
    if (cap) smap_grow(m, cap);
    gw_smap_slot *s = smap_slot(m->slots, m->cap, key, len, hash);
    if (s->key) {
        s->value = value;
        return false;
    }
    *s = (gw_smap_slot){key ? key : "", len, hash, value};
    m->count++;
    return true;
}

bool gw_smap_find(const gw_smap *m, const char *key, size_t len, uint32_t *value) {
    if (!m->count) return false;
    const gw_smap_slot *s = smap_slot(m->slots, m->cap, key, len, (uint32_t)gw_hash64(key, len, 0));
    if (!s->key) return false;
    if (value) *value = s->value;
    return true;
}

bool gw_smap_put_c(gw_smap *m, const char *key, uint32_t value) {
    return gw_smap_put(m, key, strlen(key), value);
}

bool gw_smap_find_c(const gw_smap *m, const char *key, uint32_t *value) {
    return gw_smap_find(m, key, strlen(key), value);
}

/* ------------------------------------------------------------------------------ integers */

/* Keys are often dense or multiples of a power of two: spread all bits before masking. */
static uint32_t imap_hash(uint64_t x) {
    x ^= x >> 32;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(x >> 32);
}

static gw_imap_slot *imap_slot(gw_imap_slot *slots, uint32_t cap, uint64_t key) {
    for (uint32_t i = imap_hash(key) & (cap - 1);; i = (i + 1) & (cap - 1))
        if (!slots[i].used || slots[i].key == key) return &slots[i];
}

static void imap_grow(gw_imap *m, uint32_t cap) {
    gw_imap_slot *slots = gw_mem_zalloc(cap * sizeof *slots);
    for (uint32_t i = 0; i < m->cap; i++)
        if (m->slots[i].used) *imap_slot(slots, cap, m->slots[i].key) = m->slots[i];
    gw_mem_free(m->slots);
    m->slots = slots;
    m->cap = cap;
}

void gw_imap_release(gw_imap *m) {
    gw_mem_free(m->slots);
    *m = (gw_imap){0};
}

bool gw_imap_put(gw_imap *m, uint64_t key, uint32_t value) {
    uint32_t cap = cap_needed(m->cap, m->count);
    if (cap) imap_grow(m, cap);
    gw_imap_slot *s = imap_slot(m->slots, m->cap, key);
    bool fresh = !s->used;
    *s = (gw_imap_slot){key, value, 1};
    m->count += fresh;
    return fresh;
}

bool gw_imap_find(const gw_imap *m, uint64_t key, uint32_t *value) {
    if (!m->count) return false;
    const gw_imap_slot *s = imap_slot(m->slots, m->cap, key);
    if (!s->used) return false;
    if (value) *value = s->value;
    return true;
}

/* ------------------------------------------------------------------------------ arrays */

void *gw_vec_grow_(void *items, int64_t *cap, size_t item_bytes) {
    int64_t wanted = *cap ? *cap * 2 : 8;
    GW_ASSERT(wanted > *cap && (uint64_t)wanted <= (SIZE_MAX / 2) / item_bytes);
    *cap = wanted;
    return gw_mem_realloc(items, (size_t)wanted * item_bytes);
}

void gw_vec_free_(void *items) { gw_mem_free(items); }

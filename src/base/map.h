// SPDX-License-Identifier: Apache-2.0
// Hash maps from strings or integers to 32-bit numbers; open addressing, grows, no removal.
#ifndef GW_BASE_MAP_H
#define GW_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_smap_slot gw_smap_slot;
/* Keys are byte strings, borrowed: they must outlive the map. Zero-initialised is empty. */
typedef struct gw_smap {
    gw_smap_slot *slots;
    uint32_t cap, count;
} gw_smap;

void gw_smap_release(gw_smap *m);
/* Stores or replaces. Returns true if the key was new. */
bool gw_smap_put(gw_smap *m, const char *key, size_t len, uint32_t value);
bool gw_smap_find(const gw_smap *m, const char *key, size_t len, uint32_t *value);
bool gw_smap_put_c(gw_smap *m, const char *key, uint32_t value);
bool gw_smap_find_c(const gw_smap *m, const char *key, uint32_t *value);

typedef struct gw_imap_slot gw_imap_slot;
typedef struct gw_imap {
    gw_imap_slot *slots;
    uint32_t cap, count;
} gw_imap;

void gw_imap_release(gw_imap *m);
bool gw_imap_put(gw_imap *m, uint64_t key, uint32_t value);
bool gw_imap_find(const gw_imap *m, uint64_t key, uint32_t *value);

/* A growing array in malloc memory: GW_VEC(type) v = {0}; gw_vec_push(&v, x); gw_vec_release(&v).
 */
#define GW_VEC(type)                                                                               \
    struct {                                                                                       \
        type *items;                                                                               \
        int64_t count, cap;                                                                        \
    }
#define gw_vec_push(v, x)                                                                          \
    do {                                                                                           \
        if ((v)->count == (v)->cap)                                                                \
            (v)->items = gw_vec_grow_((v)->items, &(v)->cap, sizeof *(v)->items);                  \
        (v)->items[(v)->count++] = (x);                                                            \
    } while (0)
#define gw_vec_release(v)                                                                          \
    do {                                                                                           \
        gw_vec_free_((v)->items);                                                                  \
        (v)->items = NULL;                                                                         \
        (v)->count = (v)->cap = 0;                                                                 \
    } while (0)
void *gw_vec_grow_(void *items, int64_t *cap, size_t item_bytes);
void gw_vec_free_(void *items);

#endif

// SPDX-License-Identifier: Apache-2.0
// Memory by lifetime: an arena hands out blocks that all die together.
#ifndef GW_BASE_ARENA_H
#define GW_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h" /* GW_PRINTF */

typedef struct gw_arena_chunk gw_arena_chunk;

/* A growing list of chunks. Zero-initialised is a valid empty arena. Not thread-safe. */
typedef struct gw_arena {
    gw_arena_chunk *head;
    int64_t total_bytes; /* handed out since init or reset, padding included */
} gw_arena;

void gw_arena_init(gw_arena *a);
/* Frees every block at once. The arena is empty and usable afterwards. */
void gw_arena_release(gw_arena *a);

/* Zeroed memory, aligned to 16 bytes (or `align`, a power of two). Never NULL: metadata that does
 * not fit in host memory is a panic, not an error a caller could handle. bytes >= 0. */
void *gw_arena_alloc(gw_arena *a, int64_t bytes);
void *gw_arena_alloc_aligned(gw_arena *a, int64_t bytes, int64_t align);
void *gw_arena_dup(gw_arena *a, const void *src, int64_t bytes);
char *gw_arena_strdup(gw_arena *a, const char *s);
char *gw_arena_strndup(gw_arena *a, const char *s, size_t n);
char *gw_arena_printf(gw_arena *a, const char *fmt, ...) GW_PRINTF(2, 3);
char *gw_arena_vprintf(gw_arena *a, const char *fmt, va_list ap) GW_PRINTF(2, 0);

/* gw_arena_new(a, type, n): n zeroed objects of a type. */
#define gw_arena_new(a, type, n)                                                                   \
    ((type *)gw_arena_alloc_aligned((a), (int64_t)sizeof(type) * (int64_t)(n),                     \
                                    (int64_t) _Alignof(type) > 16 ? (int64_t) _Alignof(type)       \
                                                                  : 16))

/* malloc/realloc that panic instead of returning NULL; free() pairs with them. For long-lived
 * handles with new/free pairs. The Nth call can be made to fail by tests (gw_mem_fail_after). */
void *gw_mem_alloc(size_t bytes);
void *gw_mem_zalloc(size_t bytes);
/* The same for a table that is asked at random: it begins at a huge page, and is made of such where
 * the system lends them. *memory is what gw_mem_free takes, GW_HUGE_PAGE bytes more. */
#define GW_HUGE_PAGE ((size_t)2 << 20)
void *gw_mem_zalloc_table(size_t bytes, void **memory);
void *gw_mem_realloc(void *p, size_t bytes);
void gw_mem_free(void *p);
/* How many gw_mem_* and arena chunk allocations this process has made: a test asserts that the step
 * loop makes none. */
int64_t gw_mem_count(void);
/* The nth allocation from now (n = 1: the next) fails as if memory had run out; 0 takes it back. */
void gw_mem_fail_after(int64_t n);

#endif

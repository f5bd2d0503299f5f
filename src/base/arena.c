// SPDX-License-Identifier: Apache-2.0
// Arenas and the counted heap.
//
// A compiler makes many small objects that die together: values, names, attribute lists, messages.
// An arena gives them one lifetime and one call to end it, and leaves nothing to forget.
//
// An arena is a list of chunks. The newest chunk serves allocations from its front until one does
// not fit; chunks start at 4 KiB and double up to 1 MiB, so an arena of n bytes costs O(log n) + n
// / 1 MiB calls of malloc. A block larger than a quarter of the next chunk gets a chunk of its own,
// put behind the head, so that the head's free space is not lost. Chunks come from calloc: blocks
// are zero, which makes a zero-initialised struct the natural empty value everywhere.
//
// What must hold: a block never moves, and never outlives the arena. Sizes are checked before they
// are added. Running out of host memory for metadata is a panic: there is
// nothing sensible that forty call sites could do about it, and the step's memory is not taken from
// here.
//
// The gw_mem_* functions are malloc with the same rule. They count calls, together with the chunks,
// so that a test can assert that a step allocates nothing, and they can be told to fail at the Nth
// call. With GW_HOSTILE (MODE=hostile, MODE=asan) fresh and freed memory is filled with rubbish,
// realloc always moves, and every arena block is a chunk of its own, so that a sanitizer sees its
// edges.
#include "base/arena.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h> /* madvise */

#include "base/panic.h" /* gw_panic_memory, GW_ASSERT */

#define CHUNK_MIN_BYTES ((int64_t)4096)
#define CHUNK_MAX_BYTES ((int64_t)1 << 20)

struct gw_arena_chunk {
    gw_arena_chunk *next;
    int64_t bytes, used; /* of data[] */
    _Alignas(16) uint8_t data[];
};

static _Atomic int64_t mem_count;
static _Atomic int64_t mem_fail_at; /* value of mem_count at which a call fails; 0 = never */

/* Every allocation of this file passes here first. */
static void count_call(size_t bytes) {
    int64_t n = atomic_fetch_add(&mem_count, 1) + 1;
    if (n == atomic_load(&mem_fail_at)) gw_panic_memory(bytes);
}

int64_t gw_mem_count(void) { return atomic_load(&mem_count); }

void gw_mem_fail_after(int64_t n) {
    atomic_store(&mem_fail_at, n > 0 ? atomic_load(&mem_count) + n : 0);
}

/* ------------------------------------------------------------------------------ the heap */

#ifdef GW_HOSTILE
enum { FILL_FRESH = 0xa5, FILL_FREED = 0xdd };
static const bool hostile = true;
#else
enum { FILL_FRESH = 0, FILL_FREED = 0 };
static const bool hostile = false;
#endif

void *gw_mem_alloc(size_t bytes) {
    count_call(bytes);
    void *p = malloc(bytes ? bytes : 1);
    if (!p) gw_panic_memory(bytes);
    if (hostile) memset(p, FILL_FRESH, bytes);
    return p;
}

void *gw_mem_zalloc(size_t bytes) {
    count_call(bytes);
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) gw_panic_memory(bytes);
    return p;
}

void *gw_mem_zalloc_table(size_t bytes, void **memory) {
    *memory = gw_mem_zalloc(bytes + GW_HUGE_PAGE);
    void *t = (void *)(((uintptr_t)*memory + GW_HUGE_PAGE - 1) & ~(uintptr_t)(GW_HUGE_PAGE - 1));
    (void)madvise(t, bytes, MADV_HUGEPAGE); /* a wish */
    return t;
}

static void *realloc_moving(void *p, size_t bytes) {
    size_t old = p ? malloc_usable_size(p) : 0;
    void *fresh = gw_mem_alloc(bytes);
    if (p) memcpy(fresh, p, GW_MIN(old, bytes));
    gw_mem_free(p);
    return fresh;
}

void *gw_mem_realloc(void *p, size_t bytes) {
    if (hostile) return realloc_moving(p, bytes);
    count_call(bytes);
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q) gw_panic_memory(bytes);
    return q;
}

void gw_mem_free(void *p) {
    if (hostile && p) memset(p, FILL_FREED, malloc_usable_size(p));
    free(p);
}

/* ------------------------------------------------------------------------------ arenas */

void gw_arena_init(gw_arena *a) { *a = (gw_arena){0}; }

void gw_arena_release(gw_arena *a) {
    for (gw_arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (gw_arena){0};
}

static gw_arena_chunk *chunk_new(int64_t bytes) {
    size_t total = sizeof(gw_arena_chunk) + (size_t)bytes;
    count_call(total);
    gw_arena_chunk *c = calloc(1, total);
    if (!c) gw_panic_memory(total);
    c->bytes = bytes;
    return c;
}

/* A chunk that can hold `bytes` more, with room for any alignment: the head, or a new one. */
static gw_arena_chunk *chunk_for(gw_arena *a, int64_t bytes) {
    gw_arena_chunk *head = a->head;
    int64_t next = head ? GW_MIN(GW_MAX(head->bytes, CHUNK_MIN_BYTES / 2) * 2, CHUNK_MAX_BYTES)
                        : CHUNK_MIN_BYTES;
    if (!hostile && bytes <= next / 4) {
        gw_arena_chunk *c = chunk_new(next);
        c->next = head;
        return a->head = c;
    }
    gw_arena_chunk *own = chunk_new(bytes);
    if (head) {
        own->next = head->next;
        head->next = own;
    } else {
        a->head = own;
    }
    return own;
}

/* Offset in c of a block of that alignment, or -1 where it does not fit. */
static int64_t place(const gw_arena_chunk *c, int64_t bytes, int64_t align) {
    uint64_t mask = (uint64_t)align - 1;
    uint64_t base = (uint64_t)(uintptr_t)c->data;
    int64_t at = (int64_t)(((base + (uint64_t)c->used + mask) & ~mask) - base);
    return at <= c->bytes - bytes ? at : -1;
}

void *gw_arena_alloc_aligned(gw_arena *a, int64_t bytes, int64_t align) {
    GW_ASSERT(bytes >= 0 && bytes <= INT64_MAX / 4);
    GW_ASSERT(align > 0 && align <= (int64_t)1 << 30 && (align & (align - 1)) == 0);
    gw_arena_chunk *c = a->head;
    int64_t at = c && !hostile ? place(c, bytes, align) : -1;
    if (at < 0) {
        c = chunk_for(a, bytes + (align > 16 ? align : 0));
        at = place(c, bytes, align);
        GW_ASSERT(at >= 0);
    }
    a->total_bytes += at - c->used + bytes;
    c->used = at + bytes;
    return c->data + at;
}

void *gw_arena_alloc(gw_arena *a, int64_t bytes) { return gw_arena_alloc_aligned(a, bytes, 16); }

void *gw_arena_dup(gw_arena *a, const void *src, int64_t bytes) {
    void *p = gw_arena_alloc(a, bytes);
    if (bytes) memcpy(p, src, (size_t)bytes);
    return p;
}

char *gw_arena_strndup(gw_arena *a, const char *s, size_t n) {
    size_t len = strnlen(s, n);
    char *p = gw_arena_alloc_aligned(a, (int64_t)len + 1, 1);
    memcpy(p, s, len);
    return p;
}

char *gw_arena_strdup(gw_arena *a, const char *s) { return gw_arena_strndup(a, s, SIZE_MAX); }

char *gw_arena_vprintf(gw_arena *a, const char *fmt, va_list ap) {
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    GW_ASSERT(n >= 0);
    char *p = gw_arena_alloc_aligned(a, (int64_t)n + 1, 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *gw_arena_printf(gw_arena *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *p = gw_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

// SPDX-License-Identifier: Apache-2.0
// Reading a checkpoint from a store with many ranges under way.
//
// A load knows which blocks it needs before it reads the first: headers tell where they stand. Each
// is an answer of its own, some tens of milliseconds away, so blocks asked for one after another
// come at one block a round trip, whatever the link could carry. Here they are told first, as a
// list; from its head as many are handed to the event loop of file/fetch.c as fit under the cap,
// and that loop chooses how many of these are under way. What is taken makes room for the next.
//
// The list is in the order of taking. Whoever takes one further on has left out those before it
// (a fault, a file that was passed over): they are given up, so that nothing that nobody will take
// can fill the buffers and stop those that somebody waits for.
//
// Bytes are not judged here. The caller compares each block with its hash as it takes it.
#include "ckpt/place_ahead.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h" /* gw_arena, gw_mem_zalloc */
#include "base/map.h"   /* GW_VEC, gw_smap */
#include "file/fetch.h" /* gw_fetch */

enum { LOOK_ON = 4096 }; /* entries of the list that a take searches */

typedef struct span {
    const char *key;
    int64_t offset, n;
    gw_fetch_ticket ticket; /* 0: not handed over */
} span;

struct gw_ahead {
    gw_store *store;
    gw_fetch *fetch; /* NULL: none yet, or it cannot be had */
    bool failed;     /* it cannot */
    gw_arena mem;
    gw_smap names; /* of keys, in `keys` */
    GW_VEC(const char *) keys;
    GW_VEC(span) spans;
    int64_t next, handed; /* the first not taken; the first not handed over */
    int64_t under_way;    /* bytes of those between */
};

gw_ahead *gw_ahead_new(gw_store *store) {
    gw_ahead *a = gw_mem_zalloc(sizeof *a);
    a->store = store;
    return a;
}

void gw_ahead_free(gw_ahead *a) {
    if (!a) return;
    gw_fetch_close(a->fetch);
    gw_smap_release(&a->names);
    gw_vec_release(&a->keys);
    gw_vec_release(&a->spans);
    gw_arena_release(&a->mem);
    gw_mem_free(a);
}

/* One copy of each key. */
static const char *key_of(gw_ahead *a, const char *key) {
    uint32_t at;
    if (gw_smap_find_c(&a->names, key, &at)) return a->keys.items[at];
    const char *copy = gw_arena_strdup(&a->mem, key);
    gw_smap_put_c(&a->names, copy, (uint32_t)a->keys.count);
    gw_vec_push(&a->keys, copy);
    return copy;
}

static void open_fetch(gw_ahead *a) {
    gw_fetch_options o = {.buffer_bytes = GW_AHEAD_BYTES};
    if (a->fetch || a->failed) return;
    a->failed = gw_fetch_open(a->store, &o, &a->fetch, NULL) != GW_OK;
}

/* Hands over what there is room for, and one in any case. */
static void hand_over(gw_ahead *a) {
    while (a->fetch && a->handed < a->spans.count) {
        span *s = &a->spans.items[a->handed];
        bool first = a->handed == a->next;
        if (!first && a->under_way + s->n > GW_AHEAD_BYTES) return;
        gw_fetch_item want = {.key = s->key, .offset = s->offset, .bytes = s->n};
        if (gw_fetch_submit(a->fetch, &want, &s->ticket, NULL) != GW_OK) s->ticket = 0;
        a->under_way += s->n;
        a->handed++;
    }
}

void gw_ahead_tell(gw_ahead *a, const char *key, int64_t offset, int64_t n) {
    if (n < 1 || n > GW_AHEAD_BYTES) return;
    open_fetch(a);
    if (!a->fetch) return;
    span s = {.key = key_of(a, key), .offset = offset, .n = n};
    gw_vec_push(&a->spans, s);
    hand_over(a);
}

static void give_up(gw_ahead *a, int64_t i) {
    span *s = &a->spans.items[i];
    if (i < a->handed) a->under_way -= s->n;
    if (s->ticket) gw_fetch_cancel(a->fetch, s->ticket);
    s->ticket = 0;
}

/* Where the range stands in the list; -1: nowhere near. */
static int64_t find(const gw_ahead *a, const char *key, int64_t offset, int64_t n) {
    int64_t end = GW_MIN(a->spans.count, a->next + LOOK_ON);
    for (int64_t i = a->next; i < end; i++) {
        const span *s = &a->spans.items[i];
        if (s->offset == offset && s->n == n && strcmp(s->key, key) == 0) return i;
    }
    return -1;
}

/* Lets go of the part of the list that was taken. */
static void forget_taken(gw_ahead *a) {
    if (a->next < 4096 || a->next < a->spans.count / 2) return;
    a->spans.count -= a->next;
    memmove(a->spans.items, a->spans.items + a->next,
            sizeof *a->spans.items * (size_t)a->spans.count);
    a->handed -= a->next;
    a->next = 0;
}

gw_status gw_ahead_take(gw_ahead *a, const char *key, int64_t offset, int64_t n, void *dst,
                        gw_ahead_object *object, bool *told, gw_diags *dg) {
    gw_fetch_block b;
    *told = false;
    int64_t at = a->fetch ? find(a, key, offset, n) : -1;
    if (at < 0) return GW_OK;
    for (int64_t i = a->next; i < at; i++) give_up(a, i);
    a->next = at;
    a->handed = GW_MAX(a->handed, at);
    hand_over(a);
    gw_fetch_ticket ticket = a->spans.items[at].ticket;
    gw_status st = GW_OK;
    *told = ticket != 0;
    if (ticket) st = gw_fetch_wait(a->fetch, ticket, &b, dg);
    if (ticket && st == GW_OK) {
        memcpy(dst, b.data, (size_t)n);
        if (object) {
            object->bytes = b.object_bytes;
            snprintf(object->etag, sizeof object->etag, "%s", b.etag);
        }
        gw_fetch_release(a->fetch, &b);
    }
    a->under_way -= n;
    a->next = at + 1;
    forget_taken(a);
    hand_over(a);
    return st;
}

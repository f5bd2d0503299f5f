// SPDX-License-Identifier: Apache-2.0
// Reading ahead from a store: what callers see.
//
// An item goes from the queue to the loop's thread (fetch_loop.c), which fetches its bytes, and
// comes back ARRIVED. Whoever waits for it then checks its hash and keeps a copy in the cache: that
// work is on the caller's thread, so that it does not hold up other transfers, and it is done once,
// for bytes that somebody wants. Bytes that are wrong send the item back to the head of the queue,
// past the cache; wrong bytes from the network twice are the caller's to know.
//
//     QUEUED ─▶ (SIZING ─▶ QUEUED) ─▶ ACTIVE ─▶ ARRIVED ─▶ TAKEN ─▶ freed
//        ▲                               │          │ hash wrong: once more
//        └───────────────────────────────┼──────────┘
//                                        └─▶ FAILED
//
// One lock guards lists, states and statistics. An item that is ACTIVE belongs to the loop's thread
// but for `cancelled` and `waited_for`.
#include "file/fetch.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/clock.h"      /* gw_clock_ns */
#include "file/fetch_impl.h" /* gw_fetch */

/* --- items ------------------------------------------------------------------------------------ */

void gw_fetch_list_add(item_list *l, fetch_item *item, bool first) {
    item->next = first ? l->first : NULL;
    item->prev = first ? NULL : l->last;
    if (item->next) item->next->prev = item;
    if (item->prev) item->prev->next = item;
    if (!item->prev) l->first = item;
    if (!item->next) l->last = item;
}

void gw_fetch_list_remove(item_list *l, fetch_item *item) {
    if (item->prev)
        item->prev->next = item->next;
    else
        l->first = item->next;
    if (item->next)
        item->next->prev = item->prev;
    else
        l->last = item->prev;
    item->next = item->prev = NULL;
}

static fetch_item **bucket_of(gw_fetch *f, gw_fetch_ticket ticket) {
    return &f->buckets[ticket % FETCH_BUCKETS];
}

static fetch_item *find_item(gw_fetch *f, gw_fetch_ticket ticket) {
    for (fetch_item *i = *bucket_of(f, ticket); i; i = i->chain)
        if (i->ticket == ticket) return i;
    return NULL;
}

static void forget_ticket(gw_fetch *f, fetch_item *item) {
    fetch_item **at = bucket_of(f, item->ticket);
    while (*at && *at != item) at = &(*at)->chain;
    if (*at) *at = item->chain;
}

static void drop_spare(gw_fetch *f, int i) {
    gw_mem_free(f->spare[i].data);
    f->spare_bytes -= f->spare[i].capacity;
    f->spare[i] = f->spare[--f->nspare];
}

/* A spare block that is large enough and not twice as large; else a new one. */
static uint8_t *take_memory(gw_fetch *f, int64_t n, int64_t *capacity) {
    for (int i = 0; i < f->nspare; i++) {
        spare_block b = f->spare[i];
        if (b.capacity < n || b.capacity / 2 > n ||
            f->stats.buffered_bytes + b.capacity > f->options.buffer_bytes)
            continue;
        f->spare_bytes -= b.capacity;
        f->spare[i] = f->spare[--f->nspare];
        *capacity = b.capacity;
        return b.data;
    }
    *capacity = GW_MAX(n, 1);
    return gw_mem_alloc((size_t)*capacity);
}

static void give_memory(gw_fetch *f, uint8_t *data, int64_t capacity) {
    bool fits = f->stats.buffered_bytes + f->spare_bytes + capacity <= f->options.buffer_bytes;
    if (!data || capacity < 65536 || f->nspare == FETCH_SPARE || !fits) {
        gw_mem_free(data);
        return;
    }
    f->spare[f->nspare++] = (spare_block){data, capacity};
    f->spare_bytes += capacity;
}

void gw_fetch_item_fill(gw_fetch *f, fetch_item *item, int64_t n) {
    item->data = take_memory(f, n, &item->capacity);
    item->charged = item->capacity;
    f->stats.buffered_bytes += item->charged;
    while (f->nspare > 0 && f->stats.buffered_bytes + f->spare_bytes > f->options.buffer_bytes)
        drop_spare(f, f->nspare - 1);
    f->stats.buffered_peak_bytes = GW_MAX(f->stats.buffered_peak_bytes, f->stats.buffered_bytes);
}

void gw_fetch_item_empty(gw_fetch *f, fetch_item *item) {
    if (item->mapping.bytes > 0) gw_map_release(&item->mapping);
    f->stats.buffered_bytes -= item->charged;
    item->charged = 0;
    give_memory(f, item->data, item->capacity);
    gw_mem_free(item->pieces);
    item->data = NULL;
    item->pieces = NULL;
    item->npieces = item->begun = item->ndone = 0;
    f->arrivals++;
}

void gw_fetch_item_free(gw_fetch *f, fetch_item *item) {
    union {
        const char *in;
        void *out;
    } key = {item->want.key}; /* owned, though the caller's type is const */
    gw_fetch_item_empty(f, item);
    gw_diags_release(&item->diags);
    gw_mem_free(key.out);
    gw_mem_free(item);
}

void gw_fetch_item_fail(gw_fetch *f, fetch_item *item, gw_status st) {
    gw_fetch_list_remove(&f->active, item);
    if (item->cancelled) {
        f->ncancelled--;
        gw_fetch_item_free(f, item);
        return;
    }
    gw_fetch_item_empty(f, item);
    item->state = ITEM_FAILED;
    item->status = st;
    pthread_cond_broadcast(&f->changed);
}

void gw_fetch_item_arrived(gw_fetch *f, fetch_item *item) {
    gw_fetch_list_remove(&f->active, item);
    if (item->cancelled) {
        f->ncancelled--;
        gw_fetch_item_free(f, item);
        return;
    }
    gw_mem_free(item->pieces);
    item->pieces = NULL;
    item->npieces = item->begun = item->ndone = 0;
    item->state = ITEM_ARRIVED;
    f->arrivals++;
    pthread_cond_broadcast(&f->changed);
}

/* --- opening and closing ---------------------------------------------------------------------- */

static void fill_options(gw_fetch *f, const gw_fetch_options *given) {
    gw_fetch_options o = given ? *given : (gw_fetch_options){0};
    const gw_store_options *s = &f->store->options;
    if (o.buffer_bytes <= 0) o.buffer_bytes = INT64_C(256) << 20;
    if (o.piece_bytes <= 0) o.piece_bytes = INT64_C(8) << 20;
    o.piece_bytes = GW_MIN(o.piece_bytes, o.buffer_bytes);
    if (o.max_in_flight <= 0) o.max_in_flight = 128;
    if (o.stall_s <= 0) o.stall_s = s->stall_s;
    if (o.stall_bytes <= 0) o.stall_bytes = s->stall_bytes;
    if (o.tries <= 0) o.tries = s->tries;
    if (o.hedge_min_s <= 0) o.hedge_min_s = 0.02;
    if (o.cache_dir) o.cache_dir = gw_arena_strdup(&f->arena, o.cache_dir);
    f->options = o;
    gw_rate_init(&f->rate, o.piece_bytes);
}

gw_status gw_fetch_open(gw_store *store, const gw_fetch_options *options, gw_fetch **out,
                        gw_diags *dg) {
    *out = NULL;
    gw_store_global();
    gw_fetch *f = gw_mem_zalloc(sizeof *f);
    f->store = store;
    fill_options(f, options);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    gw_status st = GW_OK;
    if (f->options.cache_dir && gw_store_get_kind(store) != GW_STORE_DIRECTORY)
        st = gw_fetch_cache_open(f->options.cache_dir, f->options.cache_bytes, &f->cache, dg);
    if (st == GW_OK) {
        f->multi = curl_multi_init();
        if (!f->multi) st = GW_FAIL(dg, GW_ERR_IO, "store-network", "cannot start libcurl");
    }
    if (st == GW_OK) {
        curl_multi_setopt(f->multi, CURLMOPT_MAXCONNECTS, (long)f->options.max_in_flight + 16);
        f->started = pthread_create(&f->thread, NULL, gw_fetch_loop, f) == 0;
        if (!f->started)
            st = GW_FAIL(dg, GW_ERR_IO, "store-network", "cannot start a thread to fetch with");
    }
    if (st != GW_OK) {
        gw_fetch_close(f);
        return st;
    }
    *out = f;
    return GW_OK;
}

static void free_list(gw_fetch *f, item_list *l) {
    while (l->first) {
        fetch_item *item = l->first;
        gw_fetch_list_remove(l, item);
        forget_ticket(f, item);
        gw_fetch_item_free(f, item);
    }
}

static void wake(gw_fetch *f) { curl_multi_wakeup(f->multi); }

void gw_fetch_close(gw_fetch *f) {
    if (!f) return;
    if (f->started) {
        pthread_mutex_lock(&f->lock);
        f->closing = true;
        pthread_mutex_unlock(&f->lock);
        wake(f);
        pthread_join(f->thread, NULL);
    }
    free_list(f, &f->queued);
    free_list(f, &f->active);
    free_list(f, &f->taken);
    for (int i = 0; i < FETCH_BUCKETS; i++) /* arrived or failed, and never waited for */
        while (f->buckets[i]) {
            fetch_item *item = f->buckets[i];
            forget_ticket(f, item);
            gw_fetch_item_free(f, item);
        }
    while (f->nspare > 0) drop_spare(f, 0);
    if (f->multi) curl_multi_cleanup(f->multi);
    gw_fetch_cache_close(f->cache);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    gw_arena_release(&f->arena);
    gw_mem_free(f);
}

/* --- submitting ------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = gw_mem_alloc(n);
    memcpy(copy, text, n);
    return copy;
}

gw_status gw_fetch_submit(gw_fetch *f, const gw_fetch_item *want, gw_fetch_ticket *ticket,
                          gw_diags *dg) {
    *ticket = 0;
    if (want->offset < 0 || want->bytes < -1 || want->offset > INT64_MAX - GW_MAX(want->bytes, 0))
        return GW_FAIL(dg, GW_ERR_USAGE, "fetch-usage", "%lld bytes at %lld of '%s' are no range",
                       (long long)want->bytes, (long long)want->offset, want->key);
    if (want->bytes > f->options.buffer_bytes)
        return GW_FAIL(dg, GW_ERR_USAGE, "fetch-too-large",
                       "%lld bytes of '%s' are wanted at once, and the buffers hold %lld",
                       (long long)want->bytes, want->key, (long long)f->options.buffer_bytes);
    fetch_item *item = gw_mem_zalloc(sizeof *item);
    item->want = *want;
    item->want.key = copy_text(want->key);
    item->bytes = want->bytes;
    item->total = -1;
    gw_diags_init(&item->diags);
    pthread_mutex_lock(&f->lock);
    item->ticket = *ticket = ++f->last_ticket;
    item->chain = *bucket_of(f, item->ticket);
    *bucket_of(f, item->ticket) = item;
    gw_fetch_list_add(&f->queued, item, false);
    f->stats.items++;
    pthread_mutex_unlock(&f->lock);
    wake(f);
    return GW_OK;
}

bool gw_fetch_ready(gw_fetch *f, gw_fetch_ticket ticket) {
    pthread_mutex_lock(&f->lock);
    fetch_item *item = find_item(f, ticket);
    bool ready = !item || item->state == ITEM_ARRIVED || item->state == ITEM_FAILED;
    pthread_mutex_unlock(&f->lock);
    return ready;
}

void gw_fetch_cancel(gw_fetch *f, gw_fetch_ticket ticket) {
    pthread_mutex_lock(&f->lock);
    fetch_item *item = find_item(f, ticket);
    if (item) {
        forget_ticket(f, item);
        switch (item->state) {
        case ITEM_QUEUED:
            gw_fetch_list_remove(&f->queued, item);
            gw_fetch_item_free(f, item);
            break;
        case ITEM_SIZING:
        case ITEM_ACTIVE:
            item->cancelled = true;
            f->ncancelled++;
            break;
        case ITEM_ARRIVED:
        case ITEM_FAILED: gw_fetch_item_free(f, item); break;
        case ITEM_TAKEN: break; /* has no ticket */
        }
    }
    pthread_mutex_unlock(&f->lock);
    wake(f);
}

/* --- checking --------------------------------------------------------------------------------- */

static bool is_evp(const EVP_MD *md, const void *bytes, int64_t n, const uint8_t *digest) {
    uint8_t got[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    return EVP_Digest(bytes, (size_t)n, got, &len, md, NULL) == 1 && memcmp(got, digest, len) == 0;
}

static bool is_right(const gw_fetch_item *w, const uint8_t *bytes, int64_t n) {
    uint64_t h;
    gw_hash128 h2;
    switch (w->check) {
    case GW_FETCH_CHECK_NONE: return true;
    case GW_FETCH_CHECK_XXH3_128:
        h2 = gw_hash128_of(bytes, (size_t)n);
        return memcmp(&h2, w->digest, 16) == 0;
    case GW_FETCH_CHECK_XXH64: h = XXH64(bytes, (size_t)n, 0); return memcmp(&h, w->digest, 8) == 0;
    case GW_FETCH_CHECK_XXH3_64:
        h = XXH3_64bits(bytes, (size_t)n);
        return memcmp(&h, w->digest, 8) == 0;
    case GW_FETCH_CHECK_MD5: return is_evp(EVP_md5(), bytes, n, w->digest);
    case GW_FETCH_CHECK_SHA1: return is_evp(EVP_sha1(), bytes, n, w->digest);
    case GW_FETCH_CHECK_SHA256: return is_evp(EVP_sha256(), bytes, n, w->digest);
    }
    return false;
}

static const uint8_t *bytes_of(const fetch_item *item) {
    return item->mapping.bytes > 0 ? item->mapping.data : item->data;
}

/* An item that arrived and is waited for is the waiter's alone: no lock is held. */
static bool check_item(const fetch_item *item) {
    if (item->mapping.bytes > 0) {
        gw_hash128 h = gw_hash128_of(item->mapping.data, (size_t)item->bytes);
        if (h.lo != item->cached_hash.lo || h.hi != item->cached_hash.hi) return false;
    }
    return is_right(&item->want, bytes_of(item), item->bytes);
}

static gw_status say_damaged(gw_fetch *f, const fetch_item *item, gw_diags *dg) {
    gw_arena a = {0};
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_FORMAT, "fetch-damaged", (gw_where){0},
                             "'%s' is damaged: its bytes do not have the hash that is recorded",
                             gw_store_name(f->store, item->want.key, &a));
    gw_diag_detail(dg, g, "bytes %lld to %lld, fetched twice", (long long)item->want.offset,
                   (long long)(item->want.offset + item->bytes));
    gw_diag_hint(dg, g, "write the object again from its source");
    gw_arena_release(&a);
    return GW_ERR_FORMAT;
}

/* Back to the head of the queue. With the lock. */
static void fetch_again(gw_fetch *f, fetch_item *item) {
    gw_fetch_item_empty(f, item);
    item->bytes = item->want.bytes;
    item->past_cache = true;
    item->etag[0] = 0;
    item->total = -1;
    item->state = ITEM_QUEUED;
    gw_fetch_list_add(&f->queued, item, true);
}

/* --- waiting ---------------------------------------------------------------------------------- */

static void note_wait(gw_fetch *f, const fetch_item *item, double seconds) {
    item_cause c = item->state == ITEM_QUEUED ? CAUSE_QUEUE : item->cause;
    double *sums[] = {[CAUSE_QUEUE] = &f->stats.wait_queue_s,
                      [CAUSE_FIRST_BYTE] = &f->stats.wait_first_byte_s,
                      [CAUSE_BODY] = &f->stats.wait_body_s,
                      [CAUSE_BACKOFF] = &f->stats.wait_backoff_s};
    *sums[c] += seconds;
}

/* Nothing is under way, and what fills the buffers is with callers: only they can make room. */
static bool is_stuck(const gw_fetch *f, const fetch_item *item) {
    return item->state == ITEM_QUEUED && !f->active.first && f->stats.buffered_bytes > 0 &&
           f->stats.buffered_bytes + GW_MAX(item->bytes, 0) > f->options.buffer_bytes;
}

static gw_status say_stuck(const gw_fetch *f, gw_diags *dg) {
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "fetch-usage", (gw_where){0},
                             "blocks that were not released fill the buffers of %lld bytes",
                             (long long)f->options.buffer_bytes);
    gw_diag_hint(dg, g, "release blocks, or wait for items in the order of submission");
    return GW_ERR_USAGE;
}

/* Until the item arrived or failed. With the lock. */
static gw_status wait_for(gw_fetch *f, fetch_item *item, gw_diags *dg) {
    int64_t stuck_ns = 0, arrivals = -1;
    while (item->state != ITEM_ARRIVED && item->state != ITEM_FAILED) {
        struct timespec until;
        int64_t before = gw_clock_ns();
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 20000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&f->changed, &f->lock, &until);
        int64_t now = gw_clock_ns();
        note_wait(f, item, (double)(now - before) * 1e-9);
        bool stuck = is_stuck(f, item) && arrivals == f->arrivals;
        stuck_ns = stuck ? stuck_ns + now - before : 0;
        arrivals = f->arrivals;
        if ((double)stuck_ns * 1e-9 > GW_MIN(f->options.stall_s, 5)) return say_stuck(f, dg);
    }
    return GW_OK;
}

static void give_block(gw_fetch *f, fetch_item *item, gw_fetch_block *block) {
    item->state = ITEM_TAKEN;
    forget_ticket(f, item);
    gw_fetch_list_add(&f->taken, item, false);
    f->stats.bytes += item->bytes;
    *block = (gw_fetch_block){.data = bytes_of(item),
                              .bytes = item->bytes,
                              .tag = item->want.tag,
                              .from_cache = item->mapping.bytes > 0,
                              .ticket = item->ticket,
                              .object_bytes = item->total,
                              .etag = item->etag,
                              .impl = item};
    if (block->from_cache) {
        f->stats.cache_hits++;
        f->stats.cache_hit_bytes += item->bytes;
    }
}

static void give_up(gw_fetch *f, fetch_item *item) {
    f->stats.items_failed++;
    forget_ticket(f, item);
    gw_fetch_item_free(f, item);
}

gw_status gw_fetch_wait(gw_fetch *f, gw_fetch_ticket ticket, gw_fetch_block *block, gw_diags *dg) {
    *block = (gw_fetch_block){0};
    pthread_mutex_lock(&f->lock);
    fetch_item *item = find_item(f, ticket);
    gw_status st = GW_OK;
    if (!item || item->waited_for)
        st =
            GW_FAIL(dg, GW_ERR_USAGE, "fetch-usage",
                    "no item has the ticket %llu, or it is waited for", (unsigned long long)ticket);
    else
        item->waited_for = true;
    while (st == GW_OK) {
        st = wait_for(f, item, dg);
        if (st != GW_OK) {
            item->waited_for = false;
            break;
        }
        if (item->state == ITEM_FAILED) {
            st = item->status;
            if (dg) gw_diags_take(dg, &item->diags);
            give_up(f, item);
            break;
        }
        pthread_mutex_unlock(&f->lock);
        bool cached = item->mapping.bytes > 0, right = check_item(item);
        int64_t evicted = 0;
        if (f->cache && cached && !right) gw_fetch_cache_drop(f->cache, f->store, &item->want);
        if (f->cache && !cached && right)
            evicted = gw_fetch_cache_keep(f->cache, f->store, &item->want, item->data, item->bytes);
        pthread_mutex_lock(&f->lock);
        f->stats.cache_evicted += evicted;
        if (right) {
            give_block(f, item, block);
            break;
        }
        f->stats.cache_damaged += cached;
        f->stats.damaged += !cached;
        if (!cached && ++item->mismatches == 2) {
            st = say_damaged(f, item, dg);
            give_up(f, item);
            break;
        }
        fetch_again(f, item);
        wake(f);
    }
    pthread_mutex_unlock(&f->lock);
    return st;
}

void gw_fetch_release(gw_fetch *f, gw_fetch_block *block) {
    fetch_item *item = block->impl;
    if (item) {
        pthread_mutex_lock(&f->lock);
        gw_fetch_list_remove(&f->taken, item);
        gw_fetch_item_free(f, item);
        pthread_mutex_unlock(&f->lock);
        wake(f);
    }
    *block = (gw_fetch_block){0};
}

void gw_fetch_get_stats(gw_fetch *f, gw_fetch_stats *out) {
    pthread_mutex_lock(&f->lock);
    *out = f->stats;
    pthread_mutex_unlock(&f->lock);
}

void gw_fetch_forget(gw_fetch *f, const gw_fetch_item *item) {
    if (f->cache) gw_fetch_cache_drop(f->cache, f->store, item);
}

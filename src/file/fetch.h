// SPDX-License-Identifier: Apache-2.0
// Reading ahead from a store: many ranges in flight, in one event loop.
//
// A caller submits what it will need, in the order in which it will need it, and takes results in
// whatever order it likes. One thread of the fetch's own moves the bytes (curl multi), so transfers
// go on while the caller computes. What is bounded stays bounded: bytes in memory (`buffer_bytes`,
// from the moment a request is begun until its block is freed; beside them up to 128 KiB for each
// request under way), connections, bytes in the cache.
//
//     gw_fetch_submit(f, &(gw_fetch_item){.key = "shard.0.mds", .bytes = n, .tag = 7}, &ticket);
//     GW_TRY(gw_fetch_wait(f, ticket, &block, dg));     block.data[0 .. block.bytes)
//     gw_fetch_release(f, &block);
//
// How many requests are in flight follows bandwidth × latency as measured while running. A request
// whose first byte is later than 95 % of the others gets a second one beside it; the first answer
// wins. A body that breaks off or stalls is resumed from where it stopped, with If-Match: an object
// that changed under way is an error, never a mix of both.
#ifndef GW_FILE_FETCH_H
#define GW_FILE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/hash.h"  /* gw_hash128 */
#include "file/store.h" /* gw_store */

typedef struct gw_fetch gw_fetch;

/* Zero in any field means the default; NULL stands for all defaults. Text is copied. */
typedef struct gw_fetch_options {
    int64_t buffer_bytes; /* hard cap on what is in memory; 256 MiB. It holds one item at least:
                             an item larger than it is refused */
    int64_t piece_bytes;  /* larger items are fetched in pieces of this size; 8 MiB */
    int max_in_flight;    /* requests at the same time, hedges included; 128 */
    int fixed_in_flight;  /* this many always, nothing measured (tests, benchmarks) */
    double stall_s;       /* a window in which fewer than stall_bytes arrive ends a try; the */
    int64_t stall_bytes;  /* store's values */
    int tries;            /* of one piece; the store's. A try that brought bytes counts as none */
    bool no_hedging;
    double hedge_min_s;    /* never hedge earlier than this after sending; 0.02 */
    const char *cache_dir; /* local copies; NULL: none. Not used for a directory */
    int64_t cache_bytes;   /* limit of that directory; 0: no limit */
} gw_fetch_options;

typedef enum gw_fetch_check {
    GW_FETCH_CHECK_NONE,
    GW_FETCH_CHECK_XXH3_128, /* digest: gw_hash128 as 16 bytes, lo then hi, little-endian */
    GW_FETCH_CHECK_XXH64,    /* 8 bytes little-endian; seed 0. XXH3_64 the same */
    GW_FETCH_CHECK_XXH3_64,
    GW_FETCH_CHECK_MD5,   /* 16 bytes */
    GW_FETCH_CHECK_SHA1,  /* 20 bytes */
    GW_FETCH_CHECK_SHA256 /* 32 bytes */
} gw_fetch_check;

/* What is wanted. */
typedef struct gw_fetch_item {
    const char *key; /* copied */
    int64_t offset;
    int64_t bytes;        /* -1: to the end of the object, whatever its size */
    gw_fetch_check check; /* of these bytes; a mismatch is fetched once more past the cache, then */
    uint8_t digest[32];   /* reported as "fetch-damaged" */
    uint64_t tag;         /* the caller's; comes back in the block */
} gw_fetch_item;

typedef uint64_t gw_fetch_ticket; /* never 0; unique within a fetch */

/* What came. The bytes are the caller's to read (not to write) until gw_fetch_release. */
typedef struct gw_fetch_block {
    const uint8_t *data;
    int64_t bytes;
    uint64_t tag;
    bool from_cache;
    gw_fetch_ticket ticket;
    int64_t object_bytes; /* of the whole object, as its answer said; -1: not said */
    const char *etag;     /* its version, or "" */
    void *impl;
} gw_fetch_block;

typedef struct gw_fetch_stats {
    int64_t items, items_failed;
    int64_t bytes;         /* of items that were delivered */
    int64_t network_bytes; /* received, what was thrown away included */
    int64_t requests, retries, hedges, hedges_won;
    int64_t resumed;   /* tries that went on within a body */
    int64_t stalls;    /* tries ended by the stall window */
    int64_t throttled; /* answers 429 and 503 */
    int64_t damaged;   /* items whose hash did not match, counted at each mismatch */
    int64_t cache_hits, cache_hit_bytes, cache_evicted, cache_damaged;
    int64_t buffered_bytes, buffered_peak_bytes;
    int in_flight, in_flight_target;
    double bandwidth_bytes_per_s; /* the best window of the last ones */
    double first_byte_p50_s, first_byte_p95_s;
    /* Seconds that callers spent in gw_fetch_wait, by what the item was waiting for at that time.
     */
    double wait_queue_s;      /* not begun yet: concurrency or buffers full */
    double wait_first_byte_s; /* sent, no byte yet */
    double wait_body_s;       /* bytes arriving */
    double wait_backoff_s;    /* between tries */
} gw_fetch_stats;

/* Starts the loop's thread. The store must outlive the fetch. With a cache directory, it is made
 * where it is not there. */
GW_WARN_UNUSED gw_status gw_fetch_open(gw_store *store, const gw_fetch_options *options,
                                       gw_fetch **out, gw_diags *dg);
/* Cancels what is under way and frees all, at any time; blocks that were not released are void.
 * NULL is nothing. No other thread may be within a call. */
void gw_fetch_close(gw_fetch *f);

/* Queues an item; never waits. Items are begun in the order of submission as far as buffers allow.
 * GW_ERR_USAGE for a size over buffer_bytes or a negative offset. Any thread. */
GW_WARN_UNUSED gw_status gw_fetch_submit(gw_fetch *f, const gw_fetch_item *item,
                                         gw_fetch_ticket *ticket, gw_diags *dg);
/* Waits until the item is there or has failed; the ticket is used up in both cases. Errors: those
 * of store.h, "fetch-damaged" (twice the wrong bytes: the caller decides whether to go on without),
 * "fetch-short" (the object ends before the range does). Bounded by tries and stall windows. A
 * caller that holds blocks which fill buffer_bytes, and waits for an item that is not begun,
 * would wait for ever: that is GW_ERR_USAGE instead, and the ticket stays. Any thread; one waiter
 * per ticket. */
GW_WARN_UNUSED gw_status gw_fetch_wait(gw_fetch *f, gw_fetch_ticket ticket, gw_fetch_block *block,
                                       gw_diags *dg);
/* Would gw_fetch_wait return at once? */
bool gw_fetch_ready(gw_fetch *f, gw_fetch_ticket ticket);
/* Gives up an item in any state but waited for; its ticket is used up. */
void gw_fetch_cancel(gw_fetch *f, gw_fetch_ticket ticket);
/* Gives the block's memory back to the buffers. A zeroed block is nothing. */
void gw_fetch_release(gw_fetch *f, gw_fetch_block *block);

void gw_fetch_get_stats(gw_fetch *f, gw_fetch_stats *out);

/* Drops what the cache holds of an item, if anything (a reader found that its bytes mean nothing).
 */
void gw_fetch_forget(gw_fetch *f, const gw_fetch_item *item);

#endif

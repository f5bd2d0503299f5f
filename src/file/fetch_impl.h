// SPDX-License-Identifier: Apache-2.0
// What the files of fetch share. Not for others.
#ifndef GW_FILE_FETCH_IMPL_H
#define GW_FILE_FETCH_IMPL_H

#include <curl/curl.h>
#include <pthread.h>

#include "base/io.h"         /* gw_mapping */
#include "file/fetch.h"      /* the contract */
#include "file/fetch_rate.h" /* gw_rate */
#include "file/store_impl.h" /* gw_store_reply, gw_store_body */

typedef struct fetch_item fetch_item;
typedef struct fetch_piece fetch_piece;

/* One request under way. Only the loop's thread touches it. */
typedef struct fetch_transfer {
    gw_fetch *fetch;
    fetch_piece *piece;
    CURL *handle;
    struct curl_slist *headers;
    gw_store_reply reply;
    gw_store_body body;
    gw_store_watch watch;
    char range[64];
    int64_t sent_ns, first_ns; /* first_ns 0: no byte yet */
    bool is_hedge, abandoned;
    struct fetch_transfer *next, *prev; /* of those under way */
} fetch_transfer;

/* A part of an item that one request fetches. Only the loop's thread touches it. */
struct fetch_piece {
    fetch_item *item;
    int64_t offset, bytes, got; /* offset within the item */
    int tries;
    int64_t retry_ns;           /* not before */
    bool done, moved;           /* moved: sent to another region once */
    fetch_transfer *running[2]; /* the request, and its hedge */
    fetch_transfer *claimed;    /* whichever was first to bring bytes */
};

typedef enum item_state {
    ITEM_QUEUED,
    ITEM_SIZING, /* its size is being asked for */
    ITEM_ACTIVE,
    ITEM_ARRIVED, /* bytes are here; whoever waits checks them */
    ITEM_FAILED,
    ITEM_TAKEN /* a block of the caller's */
} item_state;

typedef enum item_cause { CAUSE_QUEUE, CAUSE_FIRST_BYTE, CAUSE_BODY, CAUSE_BACKOFF } item_cause;

struct fetch_item {
    gw_fetch_ticket ticket;
    gw_fetch_item want; /* want.key is owned */
    item_state state;
    item_cause cause;
    bool cancelled, waited_for;
    bool past_cache; /* fetched anew because what came before was wrong */
    int mismatches;

    int64_t bytes; /* -1: not known yet */
    uint8_t *data; /* [capacity] */
    int64_t capacity;
    gw_mapping mapping;
    gw_hash128 cached_hash; /* what the mapping's bytes must have */
    int64_t charged;        /* of buffer_bytes */

    fetch_piece *pieces;
    int64_t npieces, begun, ndone;
    char etag[160];
    int64_t total; /* of the whole object, as the first answer said; -1 */

    gw_status status;
    gw_diags diags;
    fetch_item *next, *prev; /* of its list: queued or active */
    fetch_item *chain;       /* of its bucket */
};

typedef struct item_list {
    fetch_item *first, *last;
} item_list;

#define FETCH_BUCKETS 1024
#define FETCH_SPARE   32

/* Memory of items that are done, for the next ones: pages that are there already cost nothing. */
typedef struct spare_block {
    uint8_t *data;
    int64_t capacity;
} spare_block;

typedef struct fetch_cache fetch_cache;

struct gw_fetch {
    gw_store *store;
    gw_fetch_options options;
    gw_arena arena;
    fetch_cache *cache; /* NULL: none */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool started, closing;
    gw_fetch_ticket last_ticket;
    fetch_item *buckets[FETCH_BUCKETS];
    item_list queued, active, taken; /* active: sizing too */
    spare_block spare[FETCH_SPARE];
    int nspare;
    int64_t spare_bytes;  /* with what is charged never more than buffer_bytes */
    int ncancelled;       /* in active */
    int64_t arrivals;     /* items that arrived, failed or were released, ever */
    gw_fetch_stats stats; /* what callers count, and the thread's as of its last pass */

    /* of the loop's thread alone */
    CURLM *multi;
    fetch_transfer *transfers; /* under way */
    int ntransfers;
    int nwaiting; /* pieces that wait for another try */
    gw_fetch_stats io;
    int64_t last_pass_ns;
    int64_t paused_ns; /* the server said to slow down: no new request before */
    gw_rate rate;
    bool no_ranges; /* the server answers ranges with the whole */
};

/* fetch_loop.c: the thread. */
void *gw_fetch_loop(void *fetch);
/* fetch_transfer.c, all called from the loop's thread. */
void gw_fetch_start(gw_fetch *f, fetch_piece *p, bool hedge);
/* A request ended (or stalled): what that means for its piece and item. */
void gw_fetch_ended(gw_fetch *f, fetch_transfer *t, CURLcode result, bool stalled);
void gw_fetch_drop_all(gw_fetch *f, fetch_item *item);

/* fetch.c, with the lock held. */
void gw_fetch_item_fail(gw_fetch *f, fetch_item *item, gw_status st);
void gw_fetch_item_arrived(gw_fetch *f, fetch_item *item);
/* Memory for n bytes, charged to the buffers. */
void gw_fetch_item_fill(gw_fetch *f, fetch_item *item, int64_t n);
/* Gives memory and charge back; the item stays. */
void gw_fetch_item_empty(gw_fetch *f, fetch_item *item);
void gw_fetch_item_free(gw_fetch *f, fetch_item *item); /* in no list any more */
void gw_fetch_list_add(item_list *l, fetch_item *item, bool first);
void gw_fetch_list_remove(item_list *l, fetch_item *item);

/* fetch_cache.c. Any thread. */
GW_WARN_UNUSED gw_status gw_fetch_cache_open(const char *dir, int64_t limit, fetch_cache **out,
                                             gw_diags *dg);
void gw_fetch_cache_close(fetch_cache *c);
/* Maps the bytes of an item, if they are there and whole; *hash is what they must have. */
bool gw_fetch_cache_find(fetch_cache *c, const gw_store *s, const gw_fetch_item *want,
                         gw_mapping *m, int64_t *bytes, gw_hash128 *hash);
/* Keeps a copy. Failing is no error: the cache only saves time. Returns how many entries went. */
int64_t gw_fetch_cache_keep(fetch_cache *c, const gw_store *s, const gw_fetch_item *want,
                            const void *bytes, int64_t n);
void gw_fetch_cache_drop(fetch_cache *c, const gw_store *s, const gw_fetch_item *want);

#endif

// SPDX-License-Identifier: Apache-2.0
// Ranges of a store's objects that will be read, fetched before they are asked for.
//
// Ranges are told in the order in which they will be taken. A few are under way at any time: as
// many as bandwidth × latency, measured while running, calls for (file/fetch.h), and never more
// than GW_AHEAD_BYTES in memory.
#ifndef GW_CKPT_PLACE_AHEAD_H
#define GW_CKPT_PLACE_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "file/store.h" /* gw_store */

/* Asked for and not taken yet, at most; of each process that loads. */
enum { GW_AHEAD_BYTES = 128 << 20 };

typedef struct gw_ahead gw_ahead;

/* What came with a range: of the whole object. */
typedef struct gw_ahead_object {
    int64_t bytes; /* -1: not said */
    char etag[GW_STORE_ETAG];
} gw_ahead_object;

/* The store is borrowed. Nothing is sent before the first range is told. One thread. */
gw_ahead *gw_ahead_new(gw_store *store);
void gw_ahead_free(gw_ahead *a); /* cancels what is under way; NULL is nothing */
/* At least one byte, at most GW_AHEAD_BYTES: any other range is not fetched ahead. */
void gw_ahead_tell(gw_ahead *a, const char *key, int64_t offset, int64_t n);
/* Waits for a range that was told, and copies it to dst. Those told before it and not taken are
 * given up. *told false: it was not told (or was given up), and nothing is done. `object` may be
 * NULL. Errors as of gw_fetch_wait. */
GW_WARN_UNUSED gw_status gw_ahead_take(gw_ahead *a, const char *key, int64_t offset, int64_t n,
                                       void *dst, gw_ahead_object *object, bool *told,
                                       gw_diags *dg);

#endif

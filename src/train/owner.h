// SPDX-License-Identifier: Apache-2.0
// Who holds a place of checkpoints in an object store: s3://BUCKET/PREFIX/owner.json.
//
// What a lock is in a directory: one process at a time saves there, or removes. The object is put
// on the condition that there is none, says who holds the place and since when, and is put anew
// every GW_OWNER_RENEW_S seconds. One that was not for the time that it states itself
// (GW_OWNER_LEASE_S) has run out, and may be taken over; at once where its process ran on this
// machine and has ended. What counts is the store's clock.
#ifndef GW_TRAIN_OWNER_H
#define GW_TRAIN_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */

enum { GW_OWNER_LEASE_S = 120, GW_OWNER_RENEW_S = 30, GW_OWNER_MOST_BYTES = 4096 };

/* What the object says. */
typedef struct gw_owner_note {
    int64_t pid;
    const char *host, *since; /* ISO 8601 */
    const char *machine;      /* of the boot and the process numbers' namespace: tells whether pid
                               * means something here; or "" */
    int64_t begun;    /* of the process, in ticks since that boot; tells it from a later one */
    const char *mark; /* of this holder alone */
    int64_t lease_s;
} gw_owner_note;

/* Reads one; any bytes are safe. Texts are in `a`. */
GW_WARN_UNUSED gw_status gw_owner_parse(const char *text, size_t n, gw_arena *a, gw_owner_note *out,
                                        gw_diags *dg);

typedef struct gw_owner gw_owner;

typedef struct gw_owner_options {
    double lease_s, renew_s; /* 0: the above */
} gw_owner_options;

/* Takes the place `url` ("s3://..."), and keeps it until the release, from a thread of its own.
 * GW_ERR_USAGE "run-in-use": another holds it, who is named. What was taken over is said in the
 * log. options NULL: none. */
GW_WARN_UNUSED gw_status gw_owner_take(gw_owner **out, const char *url,
                                       const gw_owner_options *options, gw_diags *dg);
/* GW_ERR_IO "checkpoint-taken" once the place was found to be another's. Costs a load; any thread.
 */
GW_WARN_UNUSED gw_status gw_owner_check(const gw_owner *o, gw_diags *dg);
/* Removes the object where it is still ours. NULL is nothing. */
void gw_owner_release(gw_owner *o);

#endif

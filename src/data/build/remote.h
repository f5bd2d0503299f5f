// SPDX-License-Identifier: Apache-2.0
// Inputs behind s3:// and http(s)://: listed once, fetched by the worker that needs one.
#ifndef GW_DATA_BUILD_REMOTE_H
#define GW_DATA_BUILD_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */

typedef struct gw_remote_object {
    const char *url;
    int64_t bytes;
    uint64_t version; /* a hash of the ETag */
} gw_remote_object;

typedef struct gw_remote_objects {
    const gw_remote_object *items;
    int64_t count;
} gw_remote_objects;

/* What a URL stands for: one object; on S3 also every object below a prefix that ends in '/', and
 * those that match a pattern with '*' or '?'. Objects below a prefix are taken if their name is one
 * that inputs have. */
GW_WARN_UNUSED gw_status gw_remote_find(const char *url, gw_arena *a, gw_remote_objects *out,
                                        gw_diags *dg);
/* Copies an object to a file, in pieces of 8 MiB. The file is removed on failure. */
GW_WARN_UNUSED gw_status gw_remote_fetch(const char *url, int64_t bytes, const char *path,
                                         gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// The units of a build: input files, small ones together.
#ifndef GW_DATA_BUILD_UNITS_H
#define GW_DATA_BUILD_UNITS_H

#include <stdint.h>

#include "base/diag.h"           /* gw_status, gw_diags */
#include "base/hash.h"           /* gw_hash128 */
#include "data/build/pipeline.h" /* gw_pipeline */

typedef struct gw_unit_file {
    const char *path; /* or a URL */
    int64_t bytes;
    int64_t mtime_ns;       /* of a URL: a hash of its ETag */
    uint64_t device, inode; /* which file it is, by whatever name; 0 of a URL */
} gw_unit_file;

typedef struct gw_unit {
    const gw_unit_file *files; /* consecutive ones of the list */
    int64_t nfiles, bytes;
} gw_unit;

typedef struct gw_units {
    const gw_unit *items;
    int64_t count, nfiles, bytes;
} gw_units;

/* Expands input.paths: a folder gives the files below it (names that begin with '.' and other
 * kinds of files left out), a glob what it matches, a URL what gw_remote_find says. All files are
 * sorted by the bytes of their path and taken once, also where a file comes by several names
 * (links, other spellings of its path: the first counts, and the log says so); what lies below
 * output.dir is left out, and naming output.dir itself is refused; consecutive ones share a unit
 * while their sum stays within input.unit_bytes. So units depend on names and sizes alone. Every
 * path that does not exist, cannot be read, or matches nothing is an error at its place in the
 * pipeline file. Memory in `a`. */
GW_WARN_UNUSED gw_status gw_units_find(const gw_pipeline *p, gw_arena *a, gw_units *out,
                                       gw_diags *dg);
/* Changes when a file of the unit does, by path, size or time. */
gw_hash128 gw_unit_hash(const gw_unit *u);

#endif

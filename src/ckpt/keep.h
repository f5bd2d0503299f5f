// SPDX-License-Identifier: Apache-2.0
// What a rank keeps from one save to the next: its buffer, and what the newest commit has of it.
#ifndef GW_CKPT_KEEP_H
#define GW_CKPT_KEEP_H

#include "base/hash.h"     /* gw_hash128 */
#include "ckpt/datafile.h" /* gw_ckpt_row */
#include "ckpt/save.h"     /* gw_ckpt_keep */

enum {
    GW_CKPT_ORIGINS = 8,               /* files that a rank's entries may be spread over */
    GW_CKPT_REFERENCE_LEAST = 64 << 10 /* bytes of an entry that may be referred to */
};

/* A file that holds entries. */
typedef struct gw_ckpt_origin {
    int64_t step, bytes;
    gw_hash128 index;
} gw_ckpt_origin;

/* An entry that this rank answers for in a save. */
typedef struct gw_ckpt_own {
    const gw_ckpt_tensor *tensor;
    const gw_piece *piece;
    const char *data;
    int64_t bytes;
    uint64_t sample;         /* hash of the beginning of each block; 0 of a small entry */
    int origin;              /* of the keep's: it is unchanged there; -1: it is written */
    int entry;               /* -1, or the writer's number */
    const gw_ckpt_row *rows; /* of one that is referred to: its blocks' hashes */
} gw_ckpt_own;

/* ---- the buffer ---- */

/* At least `bytes` of memory, of which the pages that an earlier save touched are at hand still;
 * good until the next call. NULL when there is none to be had. */
void *gw_ckpt_keep_buffer(gw_ckpt_keep *k, int64_t bytes);
/* It is not used until the next save: the system may have its pages when it needs them. */
void gw_ckpt_keep_rest(gw_ckpt_keep *k);

/* ---- what is unchanged ---- */

/* Sets sample and origin of each entry: an origin where the newest commit of this keep, by the same
 * plan and in the same `home`, has it bit for bit in a file that is still there. A file is referred
 * to only while at least half of its bytes are: less would keep a large file for a small rest.
 * rank: whose files. references false: nothing is. */
void gw_ckpt_keep_find(const gw_ckpt_keep *k, const gw_place *place, const char *home, int64_t rank,
                       gw_hash128 plan, bool references, gw_ckpt_own *own, int64_t n);
const gw_ckpt_origin *gw_ckpt_keep_origin(const gw_ckpt_keep *k, int origin);
/* After a commit: remembers it. `file`: this rank's own (bytes 0: it wrote none), by `w`. */
void gw_ckpt_keep_take(gw_ckpt_keep *k, const char *home, gw_hash128 plan, const gw_ckpt_own *own,
                       int64_t n, const gw_ckpt_file *file, const gw_ckpt_writer *w);
/* Nothing is remembered: the commit did not come about, or is not known to have. */
void gw_ckpt_keep_forget(gw_ckpt_keep *k);

#endif

// SPDX-License-Identifier: Apache-2.0
// Counting the distinct words of texts, in bounded memory and over threads.
#ifndef GW_DATA_WORD_COUNTS_H
#define GW_DATA_WORD_COUNTS_H

#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "data/scan.h"  /* gw_scan */

typedef struct gw_word_count {
    const uint8_t *bytes;
    uint32_t len;
    int64_t count;
} gw_word_count;

typedef struct gw_word_counts {
    gw_word_count *items; /* by bytes, ascending, distinct */
    int64_t count;
    int64_t text_bytes, words; /* all that were counted */
    int64_t distinct;          /* with those left out */
    int64_t rarest;            /* words with fewer occurrences are left out; 1: none is */
    int64_t spilled_bytes;     /* written to temporary files on the way */
} gw_word_counts;

/* Counts the words of `text` (n bytes), or of the files `paths` if it is NULL, as `scan` cuts them.
 * memory: bytes that counting may take (at least 1 MB), beyond which counts are written to
 * temporary files and merged; words take at most an eighth of it in the end, and if there are more,
 * the rarest are left out. The result depends on text and memory, not on `threads` (0: one a core).
 * Items are arena memory. */
GW_WARN_UNUSED gw_status gw_word_counts_of(const char *const *paths, int npaths, const void *text,
                                           size_t n, gw_scan scan, int64_t memory, int threads,
                                           gw_arena *arena, gw_word_counts *out, gw_diags *dg);

#endif

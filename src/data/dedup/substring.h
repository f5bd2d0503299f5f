// SPDX-License-Identifier: Apache-2.0
// Repeated substrings: every run of at least L bytes, or L tokens, that stands elsewhere too.
#ifndef GW_DATA_DEDUP_SUBSTRING_H
#define GW_DATA_DEDUP_SUBSTRING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"        /* gw_status, gw_diags */
#include "data/dedup/dedup.h" /* gw_dedup_range */

typedef struct gw_substring_options {
    const char *dir; /* for the result and for sorting */
    int length;      /* L >= 8: bytes, or tokens */
    bool keep_first; /* the first place of a substring stays; false: all go, as Lee et al. do */
    bool word_edges; /* ranges shrink to whole words (and always to whole characters) */
    int64_t memory_bytes; /* at least GW_DEDUP_MEMORY_MIN */
    int64_t units;
    uint64_t tag;
    /* Windows are divided by their hash, so that several processes can look for repeats, each in
     * its part of them and over all documents; gw_substring_join makes one result of theirs.
     * parts 0 or 1: one process. */
    int part, parts;
} gw_substring_options;

/* Usage: open; then twice over all documents in the order of their ids, from the first pass to
 * the second by `again`; then `finish`, which writes DIR/substrings.recs, to be read by
 * gw_substring_result. One process; each pass streams. */
typedef struct gw_substring gw_substring;
GW_WARN_UNUSED gw_status gw_substring_open(const gw_substring_options *o, gw_substring **out,
                                           gw_diags *dg);
/* Bytes of a document. */
GW_WARN_UNUSED gw_status gw_substring_text(gw_substring *s, gw_doc_id id, const char *text,
                                           int64_t n, gw_diags *dg);
/* Tokens of a document; starts[i] is the byte at which token i begins, starts[n] the length of the
 * text. */
GW_WARN_UNUSED gw_status gw_substring_tokens(gw_substring *s, gw_doc_id id, const uint32_t *tokens,
                                             const uint32_t *starts, int64_t n, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_substring_again(gw_substring *s, gw_diags *dg);
/* Frees s in every case. */
GW_WARN_UNUSED gw_status gw_substring_finish(gw_substring *s, gw_diags *dg);
void gw_substring_abandon(gw_substring *s);

/* Is the result there: of o->part, or, with o->parts up to 1, the whole one? */
bool gw_substring_done(const gw_substring_options *o);
/* From the results of all parts to the whole one, the same however many there were; o->parts says
 * how many, o->part is not looked at. */
GW_WARN_UNUSED gw_status gw_substring_join(const gw_substring_options *o, gw_diags *dg);

/* Ranges come out of here as for spans (dedup.h), not yet snapped. */
GW_WARN_UNUSED gw_status gw_substring_result(const gw_substring_options *o, gw_dedup_result **out,
                                             gw_diags *dg);
/* Shrinks each range to whole characters and, where asked, whole words of a text, so that cutting
 * it out neither splits a word nor makes one of two; ranges that vanish are dropped. Returns how
 * many are left. Text without spaces (Han, Kana, Thai ...) has an edge at every character. */
int64_t gw_substring_snap(const char *text, int64_t n, bool word_edges, gw_dedup_range *ranges,
                          int64_t count);

#endif

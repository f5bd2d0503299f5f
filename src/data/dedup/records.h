// SPDX-License-Identifier: Apache-2.0
// Records of a few 64-bit words: files of them, merging of sorted ones, sorting within a memory
// cap.
//
// A record is 2 to 4 words; the order is that of the words, first word first, as unsigned numbers.
#ifndef GW_DATA_DEDUP_RECORDS_H
#define GW_DATA_DEDUP_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */

enum { GW_RECS_ANY = 0, GW_RECS_WORDS_MAX = 4, GW_RECS_META = 8 };

/* Sorts n records in place; n log n for every input. */
void gw_recs_sort(uint64_t *records, int64_t n, int words);

/* ---- files ---- */
/* Little-endian: a header of 128 bytes (magic, words, sections, records, tag, meta, hash of header
 * and table), a table of (first record, records, XXH3-128 of their bytes) per section, the records.
 */

typedef struct gw_recs_writer gw_recs_writer;
/* Writes beside `path`, which appears when it is finished. */
GW_WARN_UNUSED gw_status gw_recs_create(const char *path, int words, int64_t sections, uint64_t tag,
                                        gw_recs_writer **out, gw_diags *dg);
/* Appends n records to `section`, which never decreases. */
GW_WARN_UNUSED gw_status gw_recs_add(gw_recs_writer *w, int64_t section, const uint64_t *records,
                                     int64_t n, gw_diags *dg);
/* Syncs, renames, frees w in every case. meta[GW_RECS_META]: numbers for the reader, or NULL. */
GW_WARN_UNUSED gw_status gw_recs_finish(gw_recs_writer *w, const uint64_t *meta, gw_diags *dg);
void gw_recs_abandon(gw_recs_writer *w);

typedef struct gw_recs_section {
    int64_t first, count;
    gw_hash128 hash;
} gw_recs_section;

typedef struct gw_recs {
    char *path;
    int fd, words;
    int64_t nsections, records;
    uint64_t tag, meta[GW_RECS_META];
    gw_recs_section *sections; /* [nsections] */
} gw_recs;

/* Opens and checks header, table and size. words: what it must be, or GW_RECS_ANY. GW_ERR_FORMAT
 * where anything is not as it was written. */
GW_WARN_UNUSED gw_status gw_recs_open(const char *path, int words, gw_recs *out, gw_diags *dg);
void gw_recs_close(gw_recs *r);
/* Reads a section's records into *buffer (gw_mem memory of *cap records, which grows), checked. */
GW_WARN_UNUSED gw_status gw_recs_read(const gw_recs *r, int64_t section, uint64_t **buffer,
                                      int64_t *cap, gw_diags *dg);
/* What to do about a damaged one, be it of this build or, in an index, of an earlier one. */
#define GW_RECS_ANEW "remove the file and run the build that wrote it again, which makes it anew"
/* Reads all of a file, of whatever records: is every byte the one that was written? */
GW_WARN_UNUSED gw_status gw_recs_verify(const char *path, gw_diags *dg);
/* Is there a whole file with this tag, number of words and of sections? Says nothing if not. */
bool gw_recs_done(const char *path, int words, int64_t sections, uint64_t tag);

/* ---- runs, and merging them ---- */

/* Sorted records in a file: named, or an open descriptor that stays its owner's. */
typedef struct gw_run {
    const char *path; /* borrowed; NULL: fd */
    int fd;
    int64_t offset, count; /* bytes; records */
    bool hashed; /* `hash` is that of the run's bytes, and is checked when it has been read */
    gw_hash128 hash;
} gw_run;

/* Byte offset and hash of a section, as a run of the open file (r->path is borrowed). */
gw_run gw_recs_run(const gw_recs *r, int64_t section);

typedef struct gw_merge gw_merge;
/* Merges any number of runs. More than memory_bytes can hold at 64 KiB a run are first merged into
 * fewer, in an unnamed file in `dir`. */
GW_WARN_UNUSED gw_status gw_merge_open(const gw_run *runs, int64_t n, int words,
                                       int64_t memory_bytes, const char *dir, gw_merge **out,
                                       gw_diags *dg);
/* *record is valid until the next call; NULL after the last. */
GW_WARN_UNUSED gw_status gw_merge_next(gw_merge *m, const uint64_t **record, gw_diags *dg);
void gw_merge_free(gw_merge *m);

/* ---- sorting ---- */

typedef struct gw_sorter gw_sorter;
/* Nothing is allocated before the first record; then up to memory_bytes. Spilled runs lie in an
 * unnamed file in `dir` (copied), so that a killed process leaves nothing. */
gw_sorter *gw_sorter_new(const char *dir, int words, int64_t memory_bytes);
GW_WARN_UNUSED gw_status gw_sorter_add(gw_sorter *s, const uint64_t *record, gw_diags *dg);
/* Ends the adding. */
GW_WARN_UNUSED gw_status gw_sorter_sort(gw_sorter *s, gw_diags *dg);
/* In order, repeats included; *record is valid until the next call; NULL after the last. */
GW_WARN_UNUSED gw_status gw_sorter_next(gw_sorter *s, const uint64_t **record, gw_diags *dg);
void gw_sorter_free(gw_sorter *s);

/* An open file in `dir` that has no name. */
GW_WARN_UNUSED gw_status gw_recs_unnamed(const char *dir, int *fd, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// Which documents, and which parts of documents, are repeats: the same answer whatever the number
// of workers, their order, or how often they were killed.
//
// Two kinds of run, one after the other:
//   documents   each document brings one 128-bit key for each band of its MinHash signature and,
//               where wanted, one of its whole text. Documents that share a key in some band are
//               one cluster, transitively; its smallest id stays, the others are removed.
//   spans       each document that stayed brings keys of its lines, paragraphs or spans of three
//               sentences; of equal ones the first stays, the others are cut out.
//
// Steps, each a function of its inputs alone:
//   1  a writer per unit: DIR/unit-NNNNN.keys           any process, any order
//   2  a task per band and part: DIR/band-BBB-PP.recs   any process, any order, after all of 1
//   3  one process: DIR/removed.recs                    after all of 2
// With `jaccard`, a document that shares a band is compared with those of its group that stand for
// the others (at most GW_DEDUP_STANDS, smallest ids first), by their whole sets of shingles, and
// linked to the first that is similar enough. Equal texts and matches with an index are taken as
// they are.
//
// Every file arrives by rename, carries checksums and the tag of the options that made it, and is
// left alone where it stands already with the same tag: a killed run continues, and step 3 sweeps
// away what killed processes left half written. Memory stays within memory_bytes; what does not fit
// is sorted on disk, in unnamed files in DIR.
#ifndef GW_DATA_DEDUP_DEDUP_H
#define GW_DATA_DEDUP_DEDUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/hash.h" /* gw_hash128 */
#include "base/str.h"  /* gw_str */
#include "comm/comm.h" /* gw_comm */
#include "data/doc.h"  /* gw_doc_id */

typedef struct gw_dedup_options {
    const char *dir; /* of this run's files; made where it is missing */
    bool spans;      /* a run over spans; `bands` is then 1 */
    int bands;       /* keys of a document. 1 to 65535 */
    int exact_bands; /* how many of these, the last ones, say that texts are equal */
    int parts;       /* tasks per band, a power of two up to 256: 1, more for 10^10 documents */
    int64_t units;   /* input units; all of them have a .keys file before step 2 */
    int64_t memory_bytes; /* of this process, at least GW_DEDUP_MEMORY_MIN */
    uint64_t tag; /* of what made the keys (recipe, filters, inputs): files of another are redone */
    uint64_t
        recipe; /* gw_minhash_recipe_tag, or of the kind of spans: what an index must agree in */
    double
        jaccard; /* 0: sharing a band is enough; else the least true similarity of shingle sets, for
                    which every document brings its shingles. Part of what `tag` stands for */
    const char *index;     /* NULL, or the folder of an earlier run's index: what it holds goes */
    bool index_only;       /* compare with the index only, not with each other */
    const char *index_out; /* NULL, or where to write an index of all keys seen, `index` included */
} gw_dedup_options;

enum { GW_DEDUP_MEMORY_MIN = 16 << 20, GW_DEDUP_STANDS = 32 };

GW_WARN_UNUSED gw_status gw_dedup_check(const gw_dedup_options *o, gw_diags *dg);

/* ---- step 1: the keys of a unit ---- */

typedef struct gw_dedup_unit gw_dedup_unit;
/* Is the unit's file there, whole, and of this tag? */
bool gw_dedup_unit_done(const gw_dedup_options *o, uint32_t unit);
/* Holds the unit's keys in memory: 24 bytes a key, 32 a span. */
GW_WARN_UNUSED gw_status gw_dedup_unit_open(const gw_dedup_options *o, uint32_t unit,
                                            gw_dedup_unit **out, gw_diags *dg);
/* keys[bands]; one of {0, 0} stands for "has none" (no shingle). Any order of documents. */
void gw_dedup_unit_add(gw_dedup_unit *u, uint32_t index, const gw_hash128 *keys);
/* The shingles of a document (gw_minhash_shingles), for options with `jaccard`; documents
 * ascending. Written to DIR/unit-NNNNN.sets and .shingles as they come. */
GW_WARN_UNUSED gw_status gw_dedup_unit_shingles(gw_dedup_unit *u, uint32_t index,
                                                const uint64_t *shingles, int64_t count,
                                                gw_diags *dg);
/* Bytes [begin, end) of document `index`. */
void gw_dedup_unit_span(gw_dedup_unit *u, uint32_t index, uint32_t begin, uint32_t end,
                        gw_hash128 key);
/* Writes the file; frees u in every case. */
GW_WARN_UNUSED gw_status gw_dedup_unit_close(gw_dedup_unit *u, gw_diags *dg);
void gw_dedup_unit_abandon(gw_dedup_unit *u);

/* ---- steps 2 and 3 ---- */

int64_t gw_dedup_tasks(const gw_dedup_options *o);
/* Task 0 <= t < gw_dedup_tasks; returns at once where its file is there. */
GW_WARN_UNUSED gw_status gw_dedup_task(const gw_dedup_options *o, int64_t t, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_dedup_cluster(const gw_dedup_options *o, gw_diags *dg);

/* All of steps 2 and 3. comm NULL: this process alone. Otherwise all ranks call it, each with its
 * own DIR; where that is one shared folder (found out by looking) the tasks are divided, otherwise
 * each rank's DIR holds the .keys of some of the units, their keys go by band to the ranks that own
 * them, and every rank's DIR ends with the same removed.recs. (An index is then read and written by
 * the owners of its bands, task modulo ranks.) */
GW_WARN_UNUSED gw_status gw_dedup_run(const gw_dedup_options *o, gw_comm *comm, gw_diags *dg);

/* ---- what was found ---- */

typedef enum gw_dedup_why {
    GW_DEDUP_NEAR,  /* shares a band with another of its cluster */
    GW_DEDUP_EXACT, /* its text is that of a document with a smaller id */
    GW_DEDUP_INDEX, /* its cluster touches the index; no survivor */
    GW_DEDUP_SEEN   /* a Bloom filter has seen its text (bloom_pass.h); no survivor */
} gw_dedup_why;

typedef struct gw_dedup_removed {
    uint32_t index; /* of the document in its unit */
    gw_dedup_why why;
    gw_doc_id survivor; /* not of INDEX and SEEN */
} gw_dedup_removed;

/* A range of bytes of a document's text; end > begin. */
typedef struct gw_dedup_range {
    uint32_t index, begin, end;
} gw_dedup_range;

typedef struct gw_dedup_totals {
    int64_t keys;    /* compared, over all bands; spans: spans */
    int64_t removed; /* documents; spans: ranges after merging */
    int64_t exact, near, in_index;
    int64_t clusters; /* of two or more, the index's too */
    int64_t pairs;    /* links between documents before clustering, over all bands */
    int64_t bytes;    /* spans: of the ranges */
} gw_dedup_totals;

typedef struct gw_dedup_result gw_dedup_result;
/* Reads DIR/removed.recs; GW_ERR_FORMAT where it is damaged or of another tag. */
GW_WARN_UNUSED gw_status gw_dedup_result_open(const gw_dedup_options *o, gw_dedup_result **out,
                                              gw_diags *dg);
void gw_dedup_result_free(gw_dedup_result *r);
gw_dedup_totals gw_dedup_result_totals(const gw_dedup_result *r);
/* Is step 3 done, with this tag, and does the index that index_out asks for stand? */
bool gw_dedup_done(const gw_dedup_options *o);
/* The removed documents of a unit by index; borrowed until the next call. */
GW_WARN_UNUSED gw_status gw_dedup_result_unit(gw_dedup_result *r, uint32_t unit,
                                              const gw_dedup_removed **out, int64_t *count,
                                              gw_diags *dg);
/* The ranges of a unit (spans) by index and begin, disjoint; borrowed until the next call. */
GW_WARN_UNUSED gw_status gw_dedup_result_ranges(gw_dedup_result *r, uint32_t unit,
                                                const gw_dedup_range **out, int64_t *count,
                                                gw_diags *dg);

/* ---- an index ---- */

typedef struct gw_dedup_index_info {
    int bands, parts;
    uint64_t recipe;
    int64_t keys;
    gw_hash128 content; /* changes when a key does */
} gw_dedup_index_info;
/* Looks at the folder of an index: its files must be all there and belong together. GW_ERR_FORMAT
 * (dedup-index) where they do not, GW_ERR_IO where there are none. */
GW_WARN_UNUSED gw_status gw_dedup_index_look(const char *folder, gw_dedup_index_info *out,
                                             gw_diags *dg);
/* An index of the wanted recipe that has fewer than `bands` lacks its last files: GW_ERR_FORMAT. */
GW_WARN_UNUSED gw_status gw_dedup_index_bands(const char *folder, const gw_dedup_index_info *x,
                                              int bands, gw_diags *dg);

/* ---- texts ---- */

/* A key of a whole text: XXH3-128 of its bytes. Never {0, 0}. */
gw_hash128 gw_dedup_text_key(const char *text, int64_t n);

/* Cuts ranges (ascending, disjoint, all of this document) out of a text. */
void gw_dedup_cut(gw_str *text, const gw_dedup_range *ranges, int64_t count);

#endif

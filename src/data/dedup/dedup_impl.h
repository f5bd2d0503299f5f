// SPDX-License-Identifier: Apache-2.0
// What the steps of deduplication share: names of files, and nodes.
#ifndef GW_DATA_DEDUP_DEDUP_IMPL_H
#define GW_DATA_DEDUP_DEDUP_IMPL_H

#include "data/dedup/dedup.h"   /* gw_dedup_options */
#include "data/dedup/records.h" /* gw_run */

/* A document as a number: its id plus one, so that 0 is "in the index", smaller than all. */
#define GW_NODE_INDEX UINT64_C(0)
static inline uint64_t gw_node_of(uint32_t unit, uint32_t index) {
    return ((uint64_t)unit << 32 | index) + 1;
}
static inline gw_doc_id gw_node_id(uint64_t node) {
    return (gw_doc_id){(uint32_t)((node - 1) >> 32), (uint32_t)(node - 1)};
}

/* Records of a .keys file: high and low half of the key, then the node; of spans also the range.
 * Sections: band * parts + part, the part by the key's first bits. */
enum { GW_KEYS_WORDS = 3, GW_SPANS_WORDS = 4, GW_PAIR_WORDS = 2, GW_REMOVED_WORDS = 3 };
/* Records of a band file: (smaller node, larger node) of documents; (node, range) of spans that go.
 * Of removed.recs: (node, survivor, why), or (node, range, 0). A range is begin << 32 | end. */

static inline int gw_dedup_words(const gw_dedup_options *o) {
    return o->spans ? GW_SPANS_WORDS : GW_KEYS_WORDS;
}
static inline int64_t gw_dedup_sections(const gw_dedup_options *o) {
    return (int64_t)o->bands * o->parts;
}

char *gw_dedup_unit_path(const gw_dedup_options *o, gw_arena *a, int64_t unit);
char *gw_dedup_task_path(const gw_dedup_options *o, gw_arena *a, int64_t task);
char *gw_dedup_removed_path(const gw_dedup_options *o, gw_arena *a);
/* A task's file in an index folder. */
char *gw_dedup_index_path(const char *folder, int64_t task, int parts, gw_arena *a);

/* Meta of a band file and of removed.recs. */
enum {
    GW_META_KEYS,
    GW_META_PAIRS,
    GW_META_REMOVED,
    GW_META_EXACT,
    GW_META_INDEX,
    GW_META_CLUSTERS,
    GW_META_BYTES,
    GW_META_RUN /* of a file of an index: the tag of the run that made it */
};

/* Does task t's file of index_out stand, made by this run? True where none is asked for. */
bool gw_dedup_index_written(const gw_dedup_options *o, int64_t t);
/* Removes from index_out what killed processes left, and files of an earlier index with more bands
 * or parts, which would not belong to this one. */
void gw_dedup_index_sweep(const gw_dedup_options *o);

/* Step 2 over the runs of one task, wherever they lie. */
GW_WARN_UNUSED gw_status gw_dedup_task_runs(const gw_dedup_options *o, int64_t t,
                                            const gw_run *runs, int64_t n, gw_diags *dg);
/* The runs of task t in this DIR's .keys files; a unit without a file is an error, or is passed
 * over where `partial`. Runs borrow paths from `a`. */
GW_WARN_UNUSED gw_status gw_dedup_task_find(const gw_dedup_options *o, int64_t t, bool partial,
                                            gw_arena *a, gw_run **runs, int64_t *n, gw_diags *dg);

/* ---- sets of shingles (sets.c) ---- */

typedef struct gw_sets_writer gw_sets_writer;
GW_WARN_UNUSED gw_status gw_sets_create(const gw_dedup_options *o, int64_t unit,
                                        gw_sets_writer **out, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_sets_add(gw_sets_writer *w, uint32_t index, const uint64_t *shingles,
                                     int64_t count, gw_diags *dg);
/* Both free w in every case. */
GW_WARN_UNUSED gw_status gw_sets_finish(gw_sets_writer *w, gw_diags *dg);
void gw_sets_abandon(gw_sets_writer *w);

/* Sorted, without repeats. */
typedef struct gw_set {
    uint64_t node, *items;
    int64_t count, cap;
} gw_set;
typedef struct gw_sets gw_sets; /* those of all units; some stay open */
gw_sets *gw_sets_new(const gw_dedup_options *o);
void gw_sets_free(gw_sets *s);
/* The set of a document, checked, into *set, whose items are gw_mem memory. */
GW_WARN_UNUSED gw_status gw_sets_read(gw_sets *s, uint64_t node, gw_set *set, gw_diags *dg);
double gw_set_jaccard(const gw_set *a, const gw_set *b);

/* Its numbers by GW_META. */
const uint64_t *gw_dedup_result_meta(const gw_dedup_result *r);
/* Reads a file of what goes. */
GW_WARN_UNUSED gw_status gw_dedup_result_read(const char *path, int64_t units, uint64_t tag,
                                              gw_dedup_result **out, gw_diags *dg);
/* Writes ranges, given as (node, begin << 32 | end) in order, to a file of what goes: those that
 * overlap or touch become one. meta[GW_RECS_META] gets REMOVED and BYTES. Sorts `ranges` first. */
GW_WARN_UNUSED gw_status gw_dedup_write_ranges(gw_sorter *ranges, gw_recs_writer *out,
                                               uint64_t *meta, gw_diags *dg);

/* ---- clusters (cluster.c) ---- */

typedef struct gw_clusters gw_clusters;
/* Collects pairs (a < b) within memory_bytes. on_disk: by sorting alone, as if memory were short.
 */
gw_clusters *gw_clusters_new(const char *dir, int64_t memory_bytes, bool on_disk);
GW_WARN_UNUSED gw_status gw_clusters_join(gw_clusters *c, uint64_t a, uint64_t b, gw_diags *dg);
/* Ends the joining. */
GW_WARN_UNUSED gw_status gw_clusters_solve(gw_clusters *c, gw_diags *dg);
/* Nodes that are not the smallest of their cluster, ascending, with that one; false at the end. */
GW_WARN_UNUSED gw_status gw_clusters_next(gw_clusters *c, uint64_t *node, uint64_t *root,
                                          bool *more, gw_diags *dg);
void gw_clusters_free(gw_clusters *c);

/* ---- between ranks (exchange.c) ---- */

/* Bytes for each rank (files with `bytes` bytes, read from 0) become bytes from each rank: unnamed
 * files in dir, in[i] and in_bytes[i], that the caller closes. Both arrays [size]. Checked by a
 * hash that travels with them. */
GW_WARN_UNUSED gw_status gw_dedup_exchange(gw_comm *comm, const int *out, const int64_t *out_bytes,
                                           int *in, int64_t *in_bytes, const char *dir,
                                           gw_diags *dg);

#endif

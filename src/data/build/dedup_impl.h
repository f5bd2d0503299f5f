// SPDX-License-Identifier: Apache-2.0
// The parts of the dedup phase, for dedup_*.c alone.
#ifndef GW_DATA_BUILD_DEDUP_IMPL_H
#define GW_DATA_BUILD_DEDUP_IMPL_H

#include "data/build/build_impl.h" /* gw_databuild */
#include "data/build/pool.h"       /* gw_pool_task */

// ------------------------------------------------------------------ documents that are left

/* One that filters keep and that is in none of the lists so far. */
typedef struct gw_build_row {
    uint32_t row;
    const gw_hash128 *keys; /* [nkeys]; NULL where not wanted */
    const char *text;       /* NULL where not wanted */
    int64_t n;
} gw_build_row;
typedef gw_status gw_build_visit(void *user, const gw_build_row *r, gw_diags *dg);

enum { GW_WALK_KEYS = 1u, GW_WALK_TEXT = 2u };
/* Visits those of a unit in order. `lists`: how many of b->removed count. What a row points to is
 * borrowed during the visit. */
GW_WARN_UNUSED gw_status gw_build_walk(gw_databuild *b, int64_t unit, unsigned what, int lists,
                                       gw_build_visit *visit, void *user, gw_diags *dg);

// ------------------------------------------------------------------ running over units

/* Every unit by all workers, each with the first `lists` lists open. */
GW_WARN_UNUSED gw_status gw_build_each_unit(gw_databuild *b, gw_pool_task *work, int lists,
                                            gw_diags *dg);
/* What one process does for all ranks: the leader's status is everybody's. `what` names it. */
typedef gw_status gw_build_alone(gw_databuild *b, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_build_by_leader(gw_databuild *b, gw_build_alone *work, const char *what,
                                            gw_diags *dg);
/* For gw_pool: both lists of documents that go. */
gw_status gw_build_open_removed(void *build, void **state, gw_diags *dg);
/* Steps 2 and 3 of a run of dedup.h. */
GW_WARN_UNUSED gw_status gw_build_run_dedup(gw_databuild *b, gw_dedup_options *o, gw_diags *dg);

// ------------------------------------------------------------------ the parts

/* dedup_docs.c: keys, shingles and signatures of documents. */
GW_WARN_UNUSED gw_status gw_build_dedup_docs(gw_databuild *b, gw_diags *dg);
/* dedup_spans.c: lines, paragraphs, sentences, kind by kind. */
GW_WARN_UNUSED gw_status gw_build_dedup_spans(gw_databuild *b, gw_diags *dg);
/* dedup_bloom.c: documents, or parts of them, that a Bloom filter has seen. */
GW_WARN_UNUSED gw_status gw_build_dedup_bloom(gw_databuild *b, gw_diags *dg);
/* dedup_substring.c */
GW_WARN_UNUSED gw_status gw_build_dedup_substrings(gw_databuild *b, gw_diags *dg);

#endif

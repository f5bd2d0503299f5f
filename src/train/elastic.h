// SPDX-License-Identifier: Apache-2.0
// More or fewer ranks: a run file loaded so that a run goes on with the batch that it had.
#ifndef GW_TRAIN_ELASTIC_H
#define GW_TRAIN_ELASTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"    /* gw_arena */
#include "base/diag.h"     /* gw_status, gw_diags */
#include "train/runfile.h" /* gw_runfile */

/* A run file as it was given. */
typedef struct gw_elastic_source {
    const char *name; /* in diagnostics */
    const char *text;
    int64_t len;
    const char *const *sets; /* --set, in order */
    int nsets;
    bool any_dp; /* layout.dp follows the ranks, whatever is given */
} gw_elastic_source;

/* What a step of a run takes, in sequences or images. global 0: nothing is known. */
typedef struct gw_elastic_batch {
    int64_t global;
    int64_t micro;
    int64_t dp;
} gw_elastic_batch;

gw_elastic_batch gw_elastic_of(const gw_runfile *rf);
/* The batch of the newest checkpoint in run_dir whose manifest reads; {0} where there is none. What
 * is wrong with others is left to gw_session_resume to say. *step, where not NULL: its step, or -1.
 */
gw_elastic_batch gw_elastic_look(const char *run_dir, int64_t *step);

/* Loads a run file for `ranks` ranks (0: not known) so that a step takes as many samples as `was`
 * says, or as a train.global_batch that is given says: train.accumulate is then what that leaves
 * for these ranks, whatever is given. Left alone is a train.accumulate that is given anew (another
 * one, with dp and micro-batch as they were): gw_session_resume judges it, and says what a new
 * global batch means. Where no accumulation makes the batch up: GW_ERR_CONFIG, with the numbers of
 * ranks nearest that do. *note, in rf's arena: what was changed, as one line for people; NULL:
 * nothing. rf is to be released, also after a failure. */
GW_WARN_UNUSED gw_status gw_elastic_load(const gw_elastic_source *src, int64_t ranks,
                                         gw_elastic_batch was, gw_runfile *rf, const char **note,
                                         gw_diags *dg);

/* The largest number of ranks below `ranks` with which the run file loads and keeps its batch; 0:
 * there is none. */
int64_t gw_elastic_fewer(const gw_elastic_source *src, int64_t ranks, gw_elastic_batch was);

#endif

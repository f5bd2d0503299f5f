// SPDX-License-Identifier: Apache-2.0
// What a step's experts did, as a field of metrics.jsonl.
#ifndef GW_TRAIN_MOE_METRICS_H
#define GW_TRAIN_MOE_METRICS_H

#include "base/diag.h"   /* gw_status, gw_diags */
#include "comm/comm.h"   /* gw_comm */
#include "run/exec.h"    /* gw_exec */
#include "train/ranks.h" /* gw_ranks_table */

typedef struct gw_moe_metrics gw_moe_metrics;

/* Looks for layers of experts in a training program, of a pipeline in those of all ranks, which
 * `all` lists; NULL when there are none. `all` is borrowed; NULL: x has everything. `comm` as the
 * executor's. `units`: what auxiliary losses are means over, of a step (its sequences, or its
 * global micro-batches). */
gw_moe_metrics *gw_moe_metrics_new(const gw_exec *x, gw_comm *comm, const gw_ranks_table *all,
                                   double units);
void gw_moe_metrics_free(gw_moe_metrics *m);

/* After a step (POST has run, its results are still there): on every rank. *more becomes the text
 * for gw_metrics_step.more, valid until the next call; "" where m is NULL. Allocates nothing once
 * the text has had its length.
 *
 *   "moe": {"layers": [{"layer": 0, "share": [..], "max_over_mean": 1.2, "dropped": 0,
 *                       "aux": 1.01, "z": 0.3}, ..],
 *           "rank_rows": [..], "rank_rounds": [..], "hottest_rank_s": 0.004}
 * share: of the choices by expert; max_over_mean: the largest load over the mean one. The last
 * three stand only where experts are cut over ranks: rows that reached each rank, rounds that they
 * took, and an estimate of the time that all lost by waiting for the ranks with most rows: their
 * rows above the mean, times what a row takes. */
GW_WARN_UNUSED gw_status gw_moe_metrics_take(gw_moe_metrics *m, const char **more, gw_diags *dg);

#endif

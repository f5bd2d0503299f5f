// SPDX-License-Identifier: Apache-2.0
// The token data that a run file names: one place that turns its data keys into a data set.
#ifndef GW_TRAIN_DATASET_H
#define GW_TRAIN_DATASET_H

#include "base/diag.h"     /* gw_status, gw_diags */
#include "data/tokens.h"   /* gw_tokens */
#include "train/runfile.h" /* gw_runfile */

/* The options that the data keys, train.seq_len and train.seed give. `vocab`: of the model. */
gw_tokens_options gw_dataset_options(const gw_runfile *rf, int64_t vocab);
/* data.train, with mixture and stages. Faults of paths and of the mixture are errors at their key
 * (GW_ERR_CONFIG). A run of train.steps that would read a source more often than its epochs allow
 * is refused. */
GW_WARN_UNUSED gw_status gw_dataset_open_train(const gw_runfile *rf, int64_t vocab, gw_tokens **out,
                                               gw_diags *dg);
/* data.valid, in the order stored. */
GW_WARN_UNUSED gw_status gw_dataset_open_valid(const gw_runfile *rf, int64_t vocab, gw_tokens **out,
                                               gw_diags *dg);
/* Says, as lines of the log, what the run takes of each source: rows, epochs. Nothing of a single
 * source that is read less than once. */
void gw_dataset_announce(gw_tokens *ds, const gw_runfile *rf);

#endif

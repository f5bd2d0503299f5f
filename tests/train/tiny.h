// SPDX-License-Identifier: Apache-2.0
// A run small enough for tests: a model of a few thousand parameters, and text it can learn.
#ifndef GW_TESTS_TRAIN_TINY_H
#define GW_TESTS_TRAIN_TINY_H

#include "base/hash.h"     /* gw_hash128 */
#include "comm/comm.h"     /* gw_comm */
#include "train/runfile.h" /* gw_runfile */

/* Writes tokenized text (bytes) as train and valid prefixes into the test's temporary folder, once.
 */
void tiny_data(void);
/* A run file over that data: llama, or gpt2 with dropout when `gpt2`. `sets` as --set, NULL-ended.
 */
void tiny_runfile(gw_runfile *rf, bool gpt2, const char *const *sets);

/* Calls `body` on so many ranks, which are threads; on one without a comm. It must succeed. */
void tiny_ranks(int ranks, gw_status (*body)(gw_comm *c, void *user, gw_diags *dg), void *user);
bool tiny_equal(gw_hash128 a, gw_hash128 b);

#endif

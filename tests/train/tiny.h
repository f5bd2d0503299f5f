// SPDX-License-Identifier: Apache-2.0
// A run small enough for tests: a model of a few thousand parameters, and text it can learn.
#ifndef GW_TESTS_TRAIN_TINY_H
#define GW_TESTS_TRAIN_TINY_H

#include "base/hash.h"     /* gw_hash128 */
#include "comm/comm.h"     /* gw_comm */
#include "train/runfile.h" /* gw_runfile */
#include "train/session.h" /* gw_session */

/* Writes tokenized text (bytes) as train and valid prefixes into the test's temporary folder, once.
 */
void tiny_data(void);
/* A run file over that data: llama, or gpt2 with dropout when `gpt2`. `sets` as --set, NULL-ended.
 */
void tiny_runfile(gw_runfile *rf, bool gpt2, const char *const *sets);

/* Calls `body` on so many ranks, which are threads; on one without a comm. It must succeed. */
void tiny_ranks(int ranks, gw_status (*body)(gw_comm *c, void *user, gw_diags *dg), void *user);
/* Four steps, then ten; `grown`: blocks of memory that the ten of all ranks took and kept. */
gw_status tiny_ten_steps(gw_session *s, int64_t *grown, gw_diags *dg);
bool tiny_equal(gw_hash128 a, gw_hash128 b);

#endif

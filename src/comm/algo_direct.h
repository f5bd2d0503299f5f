// SPDX-License-Identifier: Apache-2.0
// The two halves of `direct`: in shared memory, and by messages for buffers that are not shared.
#ifndef GW_COMM_ALGO_DIRECT_H
#define GW_COMM_ALGO_DIRECT_H

#include "comm/algorithm.h" /* gw_algorithm_call */
#include "comm/parts.h"     /* gw_seq */

#define GW_DIRECT_RANKS 256

/* The elements [from, from + count) of a sequence. */
typedef struct gw_seq_range {
    gw_seq s;
    int64_t from, count;
} gw_seq_range;
/* What group rank i reduces or gathers: its share, or of an all-reduce its cut of the whole. */
gw_seq_range gw_direct_range(const gw_coll *c, int64_t i);

/* The same result and the same bytes by messages. */
GW_WARN_UNUSED gw_status gw_direct_exchange(const gw_algorithm_call *k, int64_t *sent,
                                            gw_diags *dg);

#endif

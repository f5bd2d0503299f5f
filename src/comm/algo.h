// SPDX-License-Identifier: Apache-2.0
// What the algorithm files share: messages that are counted, chunks, and the dtypes that travel.
#ifndef GW_COMM_ALGO_H
#define GW_COMM_ALGO_H

#include "base/compiler.h"  /* GW_MIN */
#include "comm/algorithm.h" /* gw_algorithm, gw_algorithm_call */
#include "comm/parts.h"     /* gw_seq, gw_share_elems */
#include "comm/sum.h"       /* gw_sum_dtype */

/* Elements of a message of the pipelined algorithms: 256 KiB of float32, long against a message's
 * latency and short against a cache. */
#define GW_CHUNK_ELEMS 65536

#define GW_KIND(k) (1u << GW_COLL_##k)

/* Sends and receives at once and adds to *sent. A side of no bytes is left out on both ranks. */
GW_WARN_UNUSED gw_status gw_swap(const gw_algorithm_call *k, int to, const void *send,
                                 int64_t nsend, int from, void *recv, int64_t nrecv, int64_t *sent,
                                 gw_diags *dg);

/* Does it add (all-reduce, reduce-scatter)? */
bool gw_coll_adds(const gw_coll *c);
/* The wire keeps every bit of the data (SAME, or float32 for 16 and 32 bits). */
bool gw_wire_lossless(const gw_coll *c);
/* Dtype of partial sums and of finished values on the wire; wire is SAME, F32 or BF16. */
gw_dtype gw_partial_dtype(const gw_coll *c);
gw_dtype gw_value_dtype(const gw_coll *c);
/* What every algorithm refuses: sums of integers, maxima outside an all-reduce, wires that do not
 * fit the dtype. `int_wires`: INT8 and INT4 are done here. */
bool gw_algo_can(const gw_coll *c, bool int_wires, const char **why);

/* Chunks of GW_CHUNK_ELEMS in n elements, and the elements of chunk k. */
int64_t gw_chunks(int64_t n);
int64_t gw_chunk_elems(int64_t n, int64_t k);
/* n rounded up to 64. */
int64_t gw_align64(int64_t n);
/* ceil(log2(n)). */
int gw_log2_ceil(int64_t n);

/* Seconds to move bytes in `messages` messages one after another, and to add `added` bytes. */
double gw_algo_seconds(const gw_coll_machine *m, double messages, double bytes, double added);

#define GW_ALGORITHM(name) extern const gw_algorithm gw_algo_##name;
#include "comm/algorithms.def" /* the list */
#undef GW_ALGORITHM

#endif

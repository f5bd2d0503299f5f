// SPDX-License-Identifier: Apache-2.0
// All-to-alls whose sizes are known at run time only: rows of experts, by counts.
#ifndef GW_COMM_EXCHANGE_H
#define GW_COMM_EXCHANGE_H

#include "comm/comm.h" /* gw_comm */

/* One array of rows that travels with the others. */
typedef struct gw_exchange_part {
    const char *send;
    char *recv;
    int64_t row_bytes;
} gw_exchange_part;

/* rows[i * size + j] rows go from group rank i to j, the same matrix on every rank (compared at
 * first contact). Those for rank j begin at row send_at[j] of `send`, those from rank i arrive at
 * row recv_at[i] of `recv`; own rows are copied. send and recv do not overlap. */
typedef struct gw_exchange {
    uint32_t axes; /* the group */
    int64_t size;
    const int64_t *rows;
    const int64_t *send_at, *recv_at;
    int nparts;
    const gw_exchange_part *parts;
    const char *scope;
} gw_exchange;

/* Runs it; blocks until everything has arrived and may be overwritten. Where the group spans hosts
 * and a host has several of its ranks, rows go to the rank of the own host that stands as the
 * receiver stands on its host, then once across (each pair of hosts exchanges messages per_host
 * times as large); otherwise pairwise. `scratch`: gw_exchange_scratch_bytes, aligned to 64. Counted
 * as GW_COLL_ALL_TO_ALL: payload what leaves this rank for others, moved with what it passes on.
 * Errors, flight record and timeout as for a collective. Allocates nothing. */
GW_WARN_UNUSED gw_status gw_comm_exchange(gw_comm *c, const gw_exchange *x, void *scratch,
                                          gw_diags *dg);
/* Scratch for exchanges of which no rank sends or receives more than `rows` rows of `row_bytes`, in
 * a group of `size` with per_host ranks on a host (0: all). */
int64_t gw_exchange_scratch_bytes(int64_t size, int64_t per_host, int64_t rows, int64_t row_bytes);
/* Bytes that group rank `rank` sends, exactly. */
gw_coll_traffic gw_exchange_traffic(const gw_exchange *x, int64_t per_host, int64_t rank);

/* n numbers of every rank of a group, in group order: all[size * n]. Counted as an all-to-all too.
 */
GW_WARN_UNUSED gw_status gw_comm_exchange_counts(gw_comm *c, uint32_t axes, int64_t size,
                                                 const int64_t *mine, int64_t n, int64_t *all,
                                                 const char *scope, gw_diags *dg);

/* What exchanges of rows and of their counts have sent: the part of gw_comm_counted's all-to-alls
 * that no type tells. */
gw_comm_counts gw_comm_exchanged(const gw_comm *c);

#endif

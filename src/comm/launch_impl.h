// SPDX-License-Identifier: Apache-2.0
// Cores and limits, as the launcher of local ranks sees them.
#ifndef GW_COMM_LAUNCH_IMPL_H
#define GW_COMM_LAUNCH_IMPL_H

#include <sched.h> /* cpu_set_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* Cores of this process's affinity mask, hardware threads of one core side by side. */
typedef struct gw_cores {
    int n; /* 0: unknown, ranks are not bound */
    size_t cpu[CPU_SETSIZE];
} gw_cores;
void gw_cores_get(gw_cores *c);
/* The share of a rank: contiguous and balanced; with more ranks than cores one each, in turn. */
void gw_cores_share(const gw_cores *c, int ranks, int rank, cpu_set_t *out);

/* Address space (ulimit -v) for one of the ranks, with that many threads. */
GW_WARN_UNUSED gw_status gw_launch_check_space(int ranks, int threads, gw_diags *dg);

/* Refuses what cannot start; warns of what will be slow. */
GW_WARN_UNUSED gw_status gw_launch_check(int ranks, const gw_cores *c, gw_diags *dg);

#endif

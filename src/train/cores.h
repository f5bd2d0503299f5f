// SPDX-License-Identifier: Apache-2.0
// How many cores' worth of time the ranks of a run have, all together: the denominator of MFU.
#ifndef GW_TRAIN_CORES_H
#define GW_TRAIN_CORES_H

#include <sched.h> /* cpu_set_t */

#include "base/diag.h" /* gw_status, gw_diags */
#include "comm/comm.h" /* gw_comm */

/* What one rank may use. */
typedef struct gw_core_share {
    cpu_set_t cores; /* physical ones: of each the hardware thread with the least number */
    int threads;     /* that compute */
    double quota;    /* cores' worth of time that its cgroup allows; 0: no limit */
} gw_core_share;

/* What all ranks have. */
typedef struct gw_core_count {
    int cores;     /* distinct physical cores, at most as many as threads compute */
    double usable; /* the same, or less where a cgroup allows less time; > 0 */
    double quota;  /* of this process's cgroup, 0: no limit; cgroup: its name */
    char cgroup[256];
} gw_core_count;

/* The ranks of one host stand side by side, `per_host` of them (<= 0: all). Cores that several
 * ranks may use count once, a limit once a host. Pure. */
void gw_cores_add_up(const gw_core_share *ranks, int n, int64_t per_host, gw_core_count *out);
/* Asks the system, and the other ranks: all call it. */
GW_WARN_UNUSED gw_status gw_cores_count(gw_comm *comm, int threads, gw_core_count *out,
                                        gw_diags *dg);
/* One line of the log where a cgroup allows less time than the run has cores. */
void gw_cores_note(const gw_core_count *c);

#endif

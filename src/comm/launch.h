// SPDX-License-Identifier: Apache-2.0
// Local ranks: one process becomes N over shared memory; and joining ranks that mpirun or srun
// started.
#ifndef GW_COMM_LAUNCH_H
#define GW_COMM_LAUNCH_H

#include <signal.h> /* siginfo_t */
#include <stdbool.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "comm/comm.h" /* gw_comm */

typedef struct gw_launch_opts {
    int ranks;        /* 0: as the environment says (mpirun, srun), otherwise 1 */
    double timeout_s; /* 0: 5 s between local ranks, 60 s between hosts */
    bool listens;     /* the caller calls gw_launch_listen next: signals are blocked from here on */
} gw_launch_opts;

/* How this process takes part. */
typedef enum gw_launch_role {
    GW_LAUNCH_ALONE,  /* one rank: *comm is NULL */
    GW_LAUNCH_RANK,   /* a rank of several: *comm is set; run, then gw_launch_leave */
    GW_LAUNCH_PARENT, /* the ranks have run and ended; *exit_code is what to return */
} gw_launch_role;

/* With ranks > 1 forks that many children, each of which returns as a RANK with its share of the
 * cores (affinity set), while the parent waits and returns as PARENT: when one rank ends badly the
 * others are told, then terminated after 2 s, killed after 4; SIGINT, SIGTERM, SIGUSR1 and SIGHUP
 * are passed on to the ranks, which get SIGKILL at the second request (*exit_code is then 128 +
 * signal, and nobody reports a fault); when the parent dies the ranks get SIGKILL. To be called
 * before any thread exists. Under mpirun or srun (environment of PMIx, PMI or Slurm with more than
 * one task) loads the MPI plugin and joins. Limits are checked first: cores, shared memory, the
 * number of processes, threads, open files, and address space. */
GW_WARN_UNUSED gw_status gw_launch(const gw_launch_opts *o, gw_launch_role *role, gw_comm **comm,
                                   int *exit_code, gw_diags *dg);
/* The end of a rank: `ok` false aborts the others with the text of its first error;
 * without one ("") another rank says what was wrong. Frees comm. */
void gw_launch_leave(gw_comm *comm, bool ok, const char *why);

/* Where gw_launch has returned as ALONE or RANK with `listens` set, and before any other thread
 * exists: starts the thread that takes SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless ignored, as
 * nohup has it) as requests to stop. The first sets *stop to the signal; one process of all says so
 * on stderr. The second ends the process at once with 128 + signal; SIGHUP is never a second one.
 * *stop must live as long as the process. */
GW_WARN_UNUSED gw_status gw_launch_listen(gw_comm *comm, volatile sig_atomic_t *stop, gw_diags *dg);

/* For signal handlers of a rank: a signal that somebody sent to the parent alone is passed on to
 * each rank, and this is the number of the request (1 for the first). A signal that came directly
 * (from a terminal, or sent to the whole process group) gives 0. One request may come both ways, so
 * a handler that stops at once on the second request counts max(direct signals, this) and not their
 * sum. Async-signal-safe. */
int gw_launch_forwarded(const siginfo_t *info);

/* Ranks as threads of this process, for tests and thread sanitizers: runs body(comm, user) on
 * `ranks` threads; GW_OK when all returned GW_OK. Regions are shared trivially. */
GW_WARN_UNUSED gw_status gw_launch_threads(int ranks, double timeout_s,
                                           gw_status (*body)(gw_comm *c, void *user, gw_diags *dg),
                                           void *user, gw_diags *dg);

#endif

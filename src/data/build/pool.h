// SPDX-License-Identifier: Apache-2.0
// Tasks over processes: one process a core, tasks handed out as workers become free, a worker that
// dies replaced.
#ifndef GW_DATA_BUILD_POOL_H
#define GW_DATA_BUILD_POOL_H

#include <signal.h> /* sig_atomic_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

struct gw_comm;

/* Does task `task` in a process that lives for many of them; `state` is what begin gave. */
typedef gw_status gw_pool_task(void *user, void *state, int64_t task, gw_diags *dg);

typedef struct gw_pool {
    int workers;                                                /* >= 1; 1 works in this process */
    int64_t tasks;                                              /* 0 .. tasks-1 */
    const char *(*name)(void *user, int64_t task);              /* of a task, in errors */
    gw_status (*begin)(void *user, void **state, gw_diags *dg); /* once a process; may be NULL */
    void (*end)(void *user, void *state);                       /* may be NULL */
    gw_pool_task *work;
    void (*done)(void *user, int64_t task, int64_t finished); /* in the caller; may be NULL */
    void *user;
    const volatile sig_atomic_t *stop; /* set by a signal: no new task begins; may be NULL */
    struct gw_comm *comm; /* ranks of mpirun: rank r does tasks i mod n == r, in its process */
} gw_pool;

/* Runs all tasks. A task that returns an error does not stop the others: all errors are in `dg` at
 * the end, in the order of tasks, and the first one's status is returned. A worker that dies (a
 * crash, the kernel out of memory) has its task done again once by another; the second time it is
 * an error that names task and signal (data-worker). Errors of `begin` end everything.
 * GW_ERR_INTERRUPTED when `stop` was set. Must be called before any thread exists. Workers are
 * children of this process and die with it. With `comm` all ranks call it, and return when all have
 * done their part: an error on one is an error on all. */
GW_WARN_UNUSED gw_status gw_pool_run(const gw_pool *p, gw_diags *dg);

#endif

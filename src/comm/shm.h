// SPDX-License-Identifier: Apache-2.0
// The shared-memory transport: ranks of one host, as forked processes or as threads of one.
//
// The launcher makes a world, forks (or starts threads), and each rank joins it as a transport. All
// that the ranks share lies in one segment; the address of nothing is the same in two of them.
#ifndef GW_COMM_SHM_H
#define GW_COMM_SHM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h> /* pid_t */

#include "base/diag.h"      /* gw_status, gw_diags */
#include "comm/requests.h"  /* gw_requests */
#include "comm/transport.h" /* gw_transport */

typedef struct gw_shm_world gw_shm_world;

typedef struct gw_shm_opts {
    int ranks;
    double timeout_s;
    bool threads; /* ranks are threads of this process */
    bool spin;    /* every rank has a core of its own: a short wait need not sleep */
} gw_shm_opts;

/* The segment and, for processes, the sockets over which regions are handed round. Errors:
 * GW_ERR_MEMORY with the limit that stands in the way. */
GW_WARN_UNUSED gw_status gw_shm_world_new(const gw_shm_opts *o, gw_shm_world **out, gw_diags *dg);
/* After the ranks have ended, or in a process that is none of them. */
void gw_shm_world_free(gw_shm_world *w);

/* The transport of rank `rank`, in its process or thread. In a process it takes the world. */
gw_transport *gw_shm_join(gw_shm_world *w, int rank);

/* The requests to stop of this transport's world, NULL for another kind of transport. The mapping
 * is the caller's from here on: it outlives the transport. */
gw_requests *gw_shm_take_requests(gw_transport *t);

/* ---- for the launcher ---- */

gw_requests *gw_shm_world_requests(gw_shm_world *w);

void gw_shm_world_set_pid(gw_shm_world *w, int rank, pid_t pid);
/* Ranks wait for this before they begin: all have been started. False when the parent is gone. */
void gw_shm_world_open(gw_shm_world *w);
bool gw_shm_world_enter(gw_shm_world *w, pid_t parent);
/* A rank has ended, by a signal (> 0) or with an exit code: those who wait for it are told. */
void gw_shm_world_ended(gw_shm_world *w, int rank, int signal, int exit_code);
/* The first rank that found a fault and its text, or -1. */
int gw_shm_world_reporter(const gw_shm_world *w, const char **why);
/* What a rank has last said to be doing, "" if nothing. */
const char *gw_shm_world_doing(const gw_shm_world *w, int rank, char buf[96]);
/* A process's state letter in /proc ('R', 'S', 'T' stopped, 'Z' dead, ...); 0 when there is none.
 */
char gw_process_state(pid_t pid);

#endif

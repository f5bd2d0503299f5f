// SPDX-License-Identifier: Apache-2.0
// The thread of a rank that waits for requests to stop.
//
// A signal handler would run wherever the signal lands. Code that a library has made while running
// may at that moment keep its stack pointer in a heap block of just the size it needs, and the
// handler's frame would then overwrite what lies beside it. So there is no handler: the signals are
// blocked before any thread exists, every thread inherits that, and this one takes them with
// sigwaitinfo, on a stack of its own.
//
// The first request sets the command's flag, the second ends the process with 128 + signal. The
// parent of local ranks passes signals on to them; what it passes on it has counted, so it only
// makes a rank look at the count. After a fault nothing is finished, and nothing is said: then the
// signal is that of the parent, which ends who has not noticed. The thread lives as long as its
// process, and what it reads is never freed.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"    /* gw_mem_zalloc */
#include "base/clock.h"    /* gw_clock_ns */
#include "comm/comm_new.h" /* gw_comm_transport */
#include "comm/launch.h"   /* gw_launch_listen */
#include "comm/requests.h" /* gw_requests_hear */
#include "comm/shm.h"      /* gw_shm_take_requests */

enum { STACK_BYTES = 256 << 10 };

typedef struct listener {
    gw_requests *requests;
    gw_requests own; /* of a process without such peers */
    gw_hearing me;
    sigset_t set;
    volatile sig_atomic_t *stop;
    bool local, speaks;
} listener;

static void hear(listener *l, const siginfo_t *info) {
    int count = gw_requests_count(l->requests);
    bool passed_on = l->local && gw_launch_forwarded(info) > 0;
    bool first = false;
    if (!passed_on) {
        bool fresh = gw_requests_hear(l->requests, &l->me, info, gw_clock_ns(), &count);
        first = fresh && count == 1;
        if (fresh && count > 1) gw_requests_end(l->requests, info->si_signo);
    }
    __atomic_store_n(l->stop, info->si_signo, __ATOMIC_RELAXED);
    if (first && l->speaks) gw_requests_say(l->requests);
    int ending = gw_requests_ending(l->requests);
    if (ending) _exit(128 + ending);
}

static void *listen(void *arg) {
    listener *l = arg;
    for (;;) {
        siginfo_t info;
        if (sigwaitinfo(&l->set, &info) > 0) hear(l, &info);
    }
    return NULL;
}

static int start(listener *l) {
    pthread_t thread;
    pthread_attr_t a;
    int e = pthread_attr_init(&a);
    if (e) return e;
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&a, STACK_BYTES); /* a refusal leaves the default */
    e = pthread_create(&thread, &a, listen, l);
    pthread_attr_destroy(&a);
    return e;
}

gw_status gw_launch_listen(gw_comm *comm, volatile sig_atomic_t *stop, gw_diags *dg) {
    listener *l = gw_mem_zalloc(sizeof *l);
    l->stop = stop;
    l->requests = comm ? gw_shm_take_requests(gw_comm_transport(comm)) : NULL;
    l->local = l->requests != NULL;
    l->speaks = l->local || !comm || gw_comm_rank(comm) == 0;
    if (!l->local) l->requests = &l->own;
    gw_requests_block();
    gw_requests_signals(&l->set);
    int e = start(l);
    if (e == 0) return GW_OK;
    gw_mem_free(l);
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-listen", (gw_where){0},
                             "cannot start the thread that waits for signals: %s", strerror(e));
    gw_diag_hint(dg, d, "look at ulimit -u, ulimit -v and the cgroup's pids.max");
    return GW_ERR_MEMORY;
}

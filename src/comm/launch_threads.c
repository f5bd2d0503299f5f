// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process.
//
// The same transport runs between threads: the segment is the same, regions need no mapping. So a
// thread sanitizer sees every access of two ranks to one byte, and a test can look at all ranks
// from inside. Each thread has diagnostics of its own (their arenas are not for several threads);
// what the first that found a fault has written is passed on, then what is left of the others.
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "comm/comm_new.h"
#include "comm/launch.h"
#include "comm/shm.h"

typedef struct thread_rank {
    pthread_t thread;
    gw_shm_world *world;
    int rank;
    gw_status (*body)(gw_comm *c, void *user, gw_diags *dg);
    void *user;
    gw_diags diags;
    gw_status status;
} thread_rank;

static void *run_rank(void *arg) {
    thread_rank *r = arg;
    gw_coll_machine m = gw_coll_machine_local(1);
    gw_transport *t = gw_shm_join(r->world, r->rank);
    m.per_host = t->size;
    gw_comm *c = gw_comm_new(t, m);
    r->status = r->body(c, r->user, &r->diags);
    gw_launch_leave(c, r->status == GW_OK, gw_diags_first_error(&r->diags));
    return NULL;
}

static void pass_on(const gw_diags *from, gw_diags *to) {
    for (const gw_diag *d = from->first; d; d = d->next) {
        gw_diag *n = gw_diag_add(to, d->severity, d->code, d->id, d->where, "%s", d->message);
        if (d->detail) gw_diag_detail(to, n, "%s", d->detail);
        if (d->hint) gw_diag_hint(to, n, "%s", d->hint);
    }
}

static bool a_core_each(int ranks) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) >= ranks;
}

static gw_status collect(thread_rank *all, int ranks, const gw_shm_world *w, gw_diags *dg) {
    const char *why = "";
    int first = gw_shm_world_reporter(w, &why);
    gw_status st = GW_OK;
    if (first >= 0) st = all[first].status;
    for (int i = -1; i < ranks; i++) {
        int r = i < 0 ? first : i;
        if (r < 0 || (i >= 0 && i == first)) continue;
        pass_on(&all[r].diags, dg);
        if (st == GW_OK) st = all[r].status;
    }
    return st;
}

gw_status gw_launch_threads(int ranks, double timeout_s,
                            gw_status (*body)(gw_comm *c, void *user, gw_diags *dg), void *user,
                            gw_diags *dg) {
    gw_shm_opts o = {.ranks = ranks,
                     .timeout_s = timeout_s > 0 ? timeout_s : 5.0,
                     .threads = true,
                     .spin = a_core_each(ranks)};
    gw_shm_world *w = NULL;
    GW_TRY(gw_shm_world_new(&o, &w, dg));
    thread_rank *all = gw_mem_zalloc((size_t)ranks * sizeof *all);
    gw_status st = GW_OK;
    int started = 0;
    for (; started < ranks; started++) {
        thread_rank *r = &all[started];
        *r = (thread_rank){.world = w, .rank = started, .body = body, .user = user};
        gw_diags_init(&r->diags);
        int e = pthread_create(&r->thread, NULL, run_rank, r);
        if (e == 0) continue;
        st = GW_FAIL(dg, GW_ERR_MEMORY, "launch-start", "cannot start rank %d as a thread: %s",
                     started, strerror(e));
        gw_shm_world_ended(w, started, 0, 1);
        break;
    }
    for (int i = started + 1; i < ranks; i++) gw_shm_world_ended(w, i, 0, 1);
    for (int i = 0; i < started; i++) pthread_join(all[i].thread, NULL);
    gw_status ran = collect(all, started, w, dg);
    if (st == GW_OK) st = ran;
    for (int i = 0; i < started; i++) gw_diags_release(&all[i].diags);
    gw_mem_free(all);
    gw_shm_world_free(w);
    return st;
}

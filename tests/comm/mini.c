// SPDX-License-Identifier: Apache-2.0
// The test transport (mini.h): one mailbox for each pair of ranks, one lock for all.
#include "mini.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/arena.h" /* gw_mem_zalloc */

typedef struct mailbox {
    const void *bytes;
    int64_t n;
    bool full;
} mailbox;

typedef struct mini {
    gw_transport base; /* first */
    mini_world *w;
    int64_t sent;
} mini;

struct mini_world {
    int ranks;
    bool one_sided;
    char *const *regions;
    int64_t region_bytes;
    pthread_mutex_t lock;
    pthread_cond_t *changed; /* [ranks] something for this rank happened */
    int64_t waiting, round;  /* of sync */
    mailbox *boxes;          /* [ranks, ranks]: from, to */
    mini *each;
};

/* Waits for a change, with the lock held; false after 20 s. */
static bool wait_change(mini_world *w, int rank) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    return pthread_cond_timedwait(&w->changed[rank], &w->lock, &until) == 0;
}

static gw_status late(gw_diags *dg, const char *what) {
    return GW_FAIL(dg, GW_ERR_PEER, "mini-late", "%s waited for 20 s", what);
}

static gw_status mini_exchange(gw_transport *t, const gw_group *g, int to, const void *send,
                               int64_t nsend, int from, void *recv, int64_t nrecv, gw_diags *dg) {
    mini *m = (mini *)t;
    mini_world *w = m->w;
    gw_status s = GW_OK;
    mailbox *out = to < 0 ? NULL : &w->boxes[t->rank * w->ranks + g->ranks[to]];
    mailbox *in = from < 0 ? NULL : &w->boxes[g->ranks[from] * w->ranks + t->rank];
    pthread_mutex_lock(&w->lock);
    if (out) {
        m->sent += nsend;
        *out = (mailbox){send, nsend, true};
        pthread_cond_signal(&w->changed[g->ranks[to]]);
    }
    while (in && !in->full && s == GW_OK)
        if (!wait_change(w, t->rank)) s = late(dg, "a receive");
    if (in && s == GW_OK) {
        if (in->n != nrecv)
            s = GW_FAIL(dg, GW_ERR_PEER, "mini-size", "%lld bytes where %lld were expected",
                        (long long)in->n, (long long)nrecv);
        else if (nrecv)
            memcpy(recv, in->bytes, (size_t)nrecv);
        in->full = false;
        pthread_cond_signal(&w->changed[g->ranks[from]]);
    }
    while (out && out->full && s == GW_OK)
        if (!wait_change(w, t->rank)) s = late(dg, "a send");
    pthread_mutex_unlock(&w->lock);
    return s;
}

static void *mini_peer(gw_transport *t, const gw_group *g, int who, const void *mine) {
    mini_world *w = ((mini *)t)->w;
    int64_t at = (int64_t)((uintptr_t)mine - (uintptr_t)w->regions[t->rank]);
    if (!w->one_sided || at < 0 || at >= w->region_bytes) return NULL;
    return w->regions[g->ranks[who]] + at;
}

static gw_status mini_sync(gw_transport *t, const gw_group *g, gw_diags *dg) {
    mini_world *w = ((mini *)t)->w;
    gw_status s = GW_OK;
    pthread_mutex_lock(&w->lock);
    int64_t round = w->round;
    if (++w->waiting == g->size) {
        w->waiting = 0;
        w->round++;
        for (int i = 0; i < w->ranks; i++) pthread_cond_signal(&w->changed[i]);
    }
    while (w->round == round && s == GW_OK)
        if (!wait_change(w, t->rank)) s = late(dg, "a sync");
    pthread_mutex_unlock(&w->lock);
    return s;
}

static const gw_transport_ops ops = {
    .name = "mini", .exchange = mini_exchange, .peer = mini_peer, .sync = mini_sync};

mini_world *mini_new(int ranks, bool one_sided, char *const *regions, int64_t region_bytes) {
    mini_world *w = gw_mem_zalloc(sizeof *w);
    w->ranks = ranks;
    w->one_sided = one_sided;
    w->regions = regions;
    w->region_bytes = region_bytes;
    pthread_mutex_init(&w->lock, NULL);
    w->changed = gw_mem_zalloc(sizeof(pthread_cond_t) * (size_t)ranks);
    for (int i = 0; i < ranks; i++) pthread_cond_init(&w->changed[i], NULL);
    w->boxes = gw_mem_zalloc(sizeof(mailbox) * (size_t)(ranks * ranks));
    w->each = gw_mem_zalloc(sizeof(mini) * (size_t)ranks);
    for (int i = 0; i < ranks; i++) w->each[i] = (mini){{&ops, i, ranks, one_sided}, w, 0};
    return w;
}

void mini_free(mini_world *w) {
    pthread_mutex_destroy(&w->lock);
    for (int i = 0; i < w->ranks; i++) pthread_cond_destroy(&w->changed[i]);
    gw_mem_free(w->changed);
    gw_mem_free(w->boxes);
    gw_mem_free(w->each);
    gw_mem_free(w);
}

gw_transport *mini_transport(mini_world *w, int rank) { return &w->each[rank].base; }
int64_t mini_sent(const gw_transport *t) { return ((const mini *)t)->sent; }

typedef struct job {
    gw_transport *t;
    void (*body)(gw_transport *t, int rank, void *user);
    void *user;
    pthread_t thread;
} job;

static void *start(void *arg) {
    job *j = arg;
    j->body(j->t, j->t->rank, j->user);
    return NULL;
}

void mini_run(mini_world *w, void (*body)(gw_transport *t, int rank, void *user), void *user) {
    job *jobs = gw_mem_zalloc(sizeof(job) * (size_t)w->ranks);
    for (int i = 0; i < w->ranks; i++) {
        jobs[i] = (job){mini_transport(w, i), body, user, 0};
        pthread_create(&jobs[i].thread, NULL, start, &jobs[i]);
    }
    for (int i = 0; i < w->ranks; i++) pthread_join(jobs[i].thread, NULL);
    gw_mem_free(jobs);
}

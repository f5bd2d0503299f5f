// SPDX-License-Identifier: Apache-2.0
// Candidates are compiled by processes beside this one.
//
// A worker is a fork that reads layouts from one pipe and writes answers of fixed size to another.
// So the compiler needs no locks, a layout that breaks it takes a worker along and not the search,
// and one that is still compiling when time is up is simply ended. A worker inherits what the host
// had read before; it leaves nothing behind. Without workers a job runs here, when its answer is
// waited for.
#include "plan/search.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */
#include "base/panic.h" /* GW_ASSERT */

enum { MOST_WORKERS = 16 };

typedef struct job {
    int64_t id;
    bool probe;
    gw_search_layout layout;
} job;

typedef struct worker {
    pid_t pid; /* 0: none */
    int to, from;
    bool busy;
    job job;
} worker;

struct gw_search_pool {
    gw_search_host host;
    worker worker[MOST_WORKERS];
    int n;
    bool here; /* no processes: one job at a time, in this one */
};

static void run_job(const gw_search_host *h, const job *j, gw_search_answer *out) {
    memset(out, 0, sizeof *out);
    out->id = j->id;
    out->probe = j->probe;
    if (j->probe)
        h->probe(h->user, &j->layout, &out->block);
    else
        h->evaluate(h->user, &j->layout, &out->outcome);
}

static bool read_whole(int fd, void *to, size_t n) {
    char *p = to;
    while (n > 0) {
        ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_whole(int fd, const void *from, size_t n) {
    const char *p = from;
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

GW_NORETURN static void work(const gw_search_host *h, int from, int to, pid_t parent) {
    job j;
    gw_search_answer a;
    (void)signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    while (read_whole(from, &j, sizeof j)) {
        run_job(h, &j, &a);
        if (!write_whole(to, &a, sizeof a)) break;
    }
    _exit(0);
}

/* False: the system gives no more processes or pipes. */
static bool start(gw_search_pool *p, worker *w) {
    int down[2], up[2];
    *w = (worker){0};
    if (pipe(down) != 0) return false;
    if (pipe(up) != 0) {
        close(down[0]), close(down[1]);
        return false;
    }
    (void)fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        for (int i = 0; i < p->n; i++)
            if (p->worker[i].pid > 0) close(p->worker[i].to), close(p->worker[i].from);
        close(down[1]), close(up[0]);
        work(&p->host, down[0], up[1], parent);
    }
    close(down[0]), close(up[1]);
    if (pid < 0) {
        close(down[1]), close(up[0]);
        return false;
    }
    *w = (worker){.pid = pid, .to = down[1], .from = up[0]};
    return true;
}

static void end(worker *w) {
    if (w->pid <= 0) return;
    kill(w->pid, SIGKILL);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {}
    close(w->to);
    close(w->from);
    w->pid = 0;
    w->busy = false;
}

gw_search_pool *gw_search_pool_new(const gw_search_host *h, int workers) {
    gw_search_pool *p = gw_mem_zalloc(sizeof *p);
    p->host = *h;
    workers = GW_MIN(workers, (int)MOST_WORKERS);
    while (p->n < workers && start(p, &p->worker[p->n])) p->n++;
    p->here = p->n == 0;
    if (p->here) p->n = 1;
    return p;
}

void gw_search_pool_free(gw_search_pool *p) {
    for (int i = 0; i < p->n; i++) end(&p->worker[i]);
    gw_mem_free(p);
}

int gw_search_pool_busy(const gw_search_pool *p) {
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->worker[i].busy;
    return n;
}

int gw_search_pool_idle(const gw_search_pool *p) { return p->n - gw_search_pool_busy(p); }

void gw_search_pool_send(gw_search_pool *p, int64_t id, bool probe, const gw_search_layout *l) {
    worker *w = p->worker;
    while (w < p->worker + p->n && w->busy) w++;
    GW_ASSERT(w < p->worker + p->n);
    w->job = (job){.id = id, .probe = probe, .layout = *l};
    w->busy = true;
    if (p->here) return;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    (void)sigaction(SIGPIPE, &ignore, &before);
    (void)write_whole(w->to, &w->job, sizeof w->job); /* a dead worker is found by its silence */
    (void)sigaction(SIGPIPE, &before, NULL);
}

/* The worker died over its job. */
static void broke(gw_search_pool *p, worker *w, gw_search_answer *out) {
    memset(out, 0, sizeof *out);
    out->id = w->job.id;
    out->probe = w->job.probe;
    char *why = out->probe ? out->block.why : out->outcome.why;
    snprintf(why, GW_SEARCH_WHY, "the compiler stopped over it");
    out->block.refused = out->probe;
    if (!out->probe) out->outcome.verdict = GW_SEARCH_BROKE;
    end(w);
    if (start(p, w)) return;
    *w = p->worker[--p->n]; /* the system gives no other */
    p->here = p->n == 0;
    if (p->here) p->worker[0] = (worker){0}, p->n = 1;
}

static void take(gw_search_pool *p, worker *w, gw_search_answer *out) {
    if (!read_whole(w->from, out, sizeof *out))
        broke(p, w, out);
    else
        w->busy = false;
}

void gw_search_pool_wait(gw_search_pool *p, int64_t deadline, gw_search_answer *out) {
    out->id = -1;
    if (p->here) {
        if (!p->worker[0].busy) return;
        p->worker[0].busy = false;
        run_job(&p->host, &p->worker[0].job, out);
        return;
    }
    while (gw_search_pool_busy(p) > 0) {
        struct pollfd fds[MOST_WORKERS];
        for (int i = 0; i < p->n; i++)
            fds[i] =
                (struct pollfd){.fd = p->worker[i].busy ? p->worker[i].from : -1, .events = POLLIN};
        int64_t left = (deadline - gw_clock_ns()) / 1000000;
        if (left <= 0) return;
        int n = poll(fds, (nfds_t)p->n, (int)GW_MIN(left + 1, INT64_C(1000)));
        for (int i = 0; n > 0 && i < p->n; i++)
            if (fds[i].fd >= 0 && fds[i].revents) {
                take(p, &p->worker[i], out);
                return;
            }
    }
}

// SPDX-License-Identifier: Apache-2.0
// Tasks over processes.
//
// Processes, not threads: a page that crashes a parser, or a file that eats all memory, takes one
// worker with it and not the build. Each worker hangs on a socket. The parent writes a task's
// number; the worker answers with the status and, where that is an error, its diagnostics. A socket
// that closes without an answer is a worker that died: waitpid says how, the task goes to the next
// worker once more, and if that dies too the task is given up and named. What a task makes is
// renamed into place by itself, so a task done twice does no harm.
//
// Tasks are handed out in order to whoever is free; results hang on the task alone, so which worker
// did it cannot be seen in them. With one worker everything happens in this process, which is what
// debuggers, sanitizers and ranks of mpirun want.
//
// Errors come back in the order of tasks, whatever finished first.
#include "data/build/pool.h" /* this module's contract */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"    /* gw_mem_zalloc */
#include "base/log.h"      /* gw_log_warn */
#include "base/str.h"      /* gw_str */
#include "comm/comm.h"     /* gw_comm_rank */
#include "run/exec_comm.h" /* gw_exec_agree */

enum { IDLE = -1, BEGIN = -2, MOST_TEXT = 1 << 20 };

typedef struct message {
    int64_t task; /* BEGIN: the worker could not begin */
    int32_t status;
    int32_t text_bytes; /* of the diagnostics that follow */
} message;

typedef struct worker {
    pid_t pid; /* 0: none */
    int fd;
    int64_t task; /* IDLE: free */
} worker;

typedef struct run {
    const gw_pool *p;
    worker *workers;
    int64_t *again; /* tasks whose worker died, to be done once more */
    int64_t nagain, next, finished, failures;
    uint8_t *died;   /* per task: how often its worker died */
    gw_diags *diags; /* per task */
    gw_status *status;
    gw_status begin;
    gw_diags *dg;
} run;

// ------------------------------------------------------------------ diagnostics as bytes

static void add_part(gw_str *s, const char *text) {
    uint8_t there = text != NULL;
    gw_str_add_n(s, &there, 1);
    if (text) gw_str_add_n(s, text, strlen(text) + 1);
}

static void pack_diags(const gw_diags *d, gw_str *s) {
    for (const gw_diag *g = d->first; g; g = g->next) {
        int32_t n[4] = {(int32_t)g->severity, (int32_t)g->code, g->where.line, g->where.column};
        gw_str_add_n(s, n, sizeof n);
        add_part(s, g->id);
        add_part(s, g->where.file);
        add_part(s, g->message);
        add_part(s, g->detail);
        add_part(s, g->hint);
        add_part(s, g->frames);
        if (s->len > MOST_TEXT) return;
    }
}

static const char *take_part(const char **at, const char *end) {
    if (*at >= end) return NULL;
    if (!*(*at)++) return NULL;
    const char *text = *at, *nul = memchr(text, 0, (size_t)(end - text));
    *at = nul ? nul + 1 : end;
    return nul ? text : NULL;
}

/* The bytes come from our own child: sizes hold unless it was cut off. */
static void unpack_diags(const char *at, const char *end, gw_diags *out) {
    while (end - at > (ptrdiff_t)(4 * sizeof(int32_t))) {
        int32_t n[4];
        memcpy(n, at, sizeof n);
        at += sizeof n;
        const char *id = take_part(&at, end), *file = take_part(&at, end);
        const char *text = take_part(&at, end), *detail = take_part(&at, end);
        const char *hint = take_part(&at, end), *frames = take_part(&at, end);
        gw_diag *g = gw_diag_add(out, (gw_severity)n[0], (gw_code)n[1], id ? id : "data-worker",
                                 (gw_where){file, n[2], n[3]}, "%s", text ? text : "");
        if (detail) gw_diag_detail(out, g, "%s", detail);
        if (hint) gw_diag_hint(out, g, "%s", hint);
        if (frames) g->frames = gw_arena_strdup(&out->arena, frames);
    }
}

// ------------------------------------------------------------------ the worker

static bool send_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n > 0) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool receive_all(int fd, void *bytes, size_t n) {
    char *p = bytes;
    while (n > 0) {
        ssize_t k = recv(fd, p, n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool answer(int fd, int64_t task, gw_status st, gw_diags *dg) {
    gw_str text = {0};
    pack_diags(dg, &text);
    message m = {task, (int32_t)st, (int32_t)text.len};
    bool ok = send_all(fd, &m, sizeof m) && send_all(fd, gw_str_c(&text), text.len);
    gw_str_release(&text);
    gw_diags_clear(dg);
    return ok;
}

static void serve(const gw_pool *p, int fd) {
    gw_diags dg;
    void *state = NULL;
    int64_t task;
    gw_diags_init(&dg);
    gw_status st = p->begin ? p->begin(p->user, &state, &dg) : GW_OK;
    if (st != GW_OK) {
        answer(fd, BEGIN, st, &dg);
    } else {
        while (receive_all(fd, &task, sizeof task) && task >= 0) {
            st = p->work(p->user, state, task, &dg);
            if (!answer(fd, task, st, &dg)) break;
        }
        if (p->end) p->end(p->user, state);
    }
    gw_diags_release(&dg);
}

// ------------------------------------------------------------------ the parent

static gw_status start(run *r, worker *w) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return GW_FAIL(r->dg, GW_ERR_IO, "data-worker", "cannot start a worker: %s",
                       strerror(errno));
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        int err = errno;
        close(pair[0]);
        close(pair[1]);
        return GW_FAIL(r->dg, GW_ERR_IO, "data-worker", "cannot start a worker: %s", strerror(err));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        signal(SIGINT, SIG_IGN);  /* a terminal's ^C is the parent's to handle */
        signal(SIGXFSZ, SIG_IGN); /* a file past its limit is an error of write */
        close(pair[0]);
        for (int i = 0; i < r->p->workers; i++)
            if (r->workers[i].pid) close(r->workers[i].fd);
        serve(r->p, pair[1]);
        fflush(NULL);
        _exit(0);
    }
    close(pair[1]);
    *w = (worker){pid, pair[0], IDLE};
    return GW_OK;
}

static void stop_worker(worker *w, bool kill_it) {
    if (!w->pid) return;
    close(w->fd);
    if (kill_it) kill(w->pid, SIGKILL);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) {}
    w->pid = 0;
}

static const char *how_it_died(char *buf, size_t size, int status) {
    if (WIFSIGNALED(status))
        snprintf(buf, size, "signal %d%s", WTERMSIG(status),
                 WTERMSIG(status) == SIGKILL ? " (perhaps out of memory)" : "");
    else
        snprintf(buf, size, "exit code %d", WEXITSTATUS(status));
    return buf;
}

static void finish(run *r, int64_t task, gw_status st) {
    r->status[task] = st;
    r->finished++;
    r->failures += st != GW_OK;
    if (r->p->done && st == GW_OK) r->p->done(r->p->user, task, r->finished);
}

/* The worker's socket has closed without an answer. */
static void lost(run *r, worker *w) {
    int status = 0;
    char how[64];
    close(w->fd);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) {}
    w->pid = 0;
    how_it_died(how, sizeof how, status);
    int64_t task = w->task;
    if (task < 0) { /* it died between tasks, or while it began */
        if (r->begin == GW_OK)
            r->begin = GW_FAIL(r->dg, GW_ERR_DEVICE, "data-worker",
                               "a worker died before its first task: %s", how);
        return;
    }
    const char *name = r->p->name(r->p->user, task);
    if (r->died[task]++ == 0) {
        gw_log_warn("the worker that did '%s' died (%s); it is tried once more", name, how);
        r->again[r->nagain++] = task;
        return;
    }
    gw_diag *g =
        gw_diag_add(&r->diags[task], GW_ERROR, GW_ERR_DEVICE, "data-worker",
                    (gw_where){.file = name}, "two workers died while they did this: %s", how);
    gw_diag_hint(&r->diags[task], g, "leave it out of the inputs, or give the build more memory");
    finish(r, task, GW_ERR_DEVICE);
}

static void hear(run *r, worker *w) {
    message m;
    gw_str text = {0};
    bool ok = receive_all(w->fd, &m, sizeof m) && m.text_bytes >= 0;
    if (ok && m.text_bytes > 0) {
        gw_str_reserve(&text, (size_t)m.text_bytes);
        ok = receive_all(w->fd, text.data, (size_t)m.text_bytes);
        text.len = ok ? (size_t)m.text_bytes : 0;
    }
    const char *at = gw_str_c(&text), *end = at + text.len;
    if (!ok) {
        lost(r, w);
    } else if (m.task == BEGIN) {
        if (r->begin == GW_OK) unpack_diags(at, end, r->dg);
        r->begin = (gw_status)m.status;
    } else {
        unpack_diags(at, end, &r->diags[m.task]);
        w->task = IDLE;
        finish(r, m.task, (gw_status)m.status);
    }
    gw_str_release(&text);
}

static bool stopped(const run *r) { return r->p->stop && *r->p->stop; }

static int64_t take_task(run *r) {
    if (stopped(r)) return IDLE;
    if (r->nagain) return r->again[--r->nagain];
    return r->next < r->p->tasks ? r->next++ : IDLE;
}

/* Gives each free worker a task, starting those that are not there. False: nothing is under way. */
static bool hand_out(run *r) {
    bool busy = false;
    for (int i = 0; i < r->p->workers && r->begin == GW_OK; i++) {
        worker *w = &r->workers[i];
        if (!w->pid || w->task == IDLE) {
            int64_t task = take_task(r);
            if (task == IDLE) continue;
            if (!w->pid) r->begin = start(r, w);
            if (r->begin != GW_OK) return busy;
            w->task = task;
            (void)send_all(w->fd, &task, sizeof task); /* a dead worker shows when we listen */
        }
        busy = true;
    }
    return busy;
}

static void listen_once(run *r) {
    struct pollfd fds[256];
    worker *of[256];
    nfds_t n = 0;
    for (int i = 0; i < r->p->workers && n < GW_COUNT(fds); i++)
        if (r->workers[i].pid && r->workers[i].task != IDLE) {
            of[n] = &r->workers[i];
            fds[n++] = (struct pollfd){.fd = r->workers[i].fd, .events = POLLIN};
        }
    if (poll(fds, n, 1000) <= 0) return;
    for (nfds_t i = 0; i < n; i++)
        if (fds[i].revents) hear(r, of[i]);
}

static void with_workers(run *r) {
    r->workers = gw_mem_zalloc((size_t)r->p->workers * sizeof *r->workers);
    while (!stopped(r) && hand_out(r)) listen_once(r);
    bool at_once = r->begin != GW_OK || stopped(r); /* what is half done is in nobody's way */
    for (int i = 0; i < r->p->workers; i++) stop_worker(&r->workers[i], at_once);
    gw_mem_free(r->workers);
}

static void in_this_process(run *r) {
    int ranks = r->p->comm ? gw_comm_size(r->p->comm) : 1;
    int rank = r->p->comm ? gw_comm_rank(r->p->comm) : 0;
    void *state = NULL;
    if (r->p->begin) r->begin = r->p->begin(r->p->user, &state, r->dg);
    if (r->begin != GW_OK) return;
    for (int64_t i = 0; i < r->p->tasks && !stopped(r); i++)
        if (i % ranks == rank) finish(r, i, r->p->work(r->p->user, state, i, &r->diags[i]));
    if (r->p->end) r->p->end(r->p->user, state);
}

static gw_status outcome(run *r) {
    gw_status st = r->begin;
    for (int64_t i = 0; i < r->p->tasks; i++) {
        if (st == GW_OK) st = r->status[i];
        gw_diags_take(r->dg, &r->diags[i]);
    }
    if (st == GW_OK && stopped(r))
        st = GW_FAIL(r->dg, GW_ERR_INTERRUPTED, "interrupted",
                     "stopped by a signal; the same command continues where it stood");
    return st;
}

gw_status gw_pool_run(const gw_pool *p, gw_diags *dg) {
    size_t n = (size_t)p->tasks + 1;
    run r = {.p = p, .dg = dg};
    r.again = gw_mem_alloc(n * sizeof *r.again);
    r.died = gw_mem_zalloc(n);
    r.status = gw_mem_zalloc(n * sizeof *r.status);
    r.diags = gw_mem_alloc(n * sizeof *r.diags);
    for (size_t i = 0; i < n; i++) gw_diags_init(&r.diags[i]);
    if (p->comm || p->workers <= 1)
        in_this_process(&r);
    else
        with_workers(&r);
    gw_status st = outcome(&r);
    for (size_t i = 0; i < n; i++) gw_diags_release(&r.diags[i]);
    gw_mem_free(r.diags);
    gw_mem_free(r.status);
    gw_mem_free(r.died);
    gw_mem_free(r.again);
    return p->comm ? gw_exec_agree(p->comm, st, NULL, "building data", dg) : st;
}

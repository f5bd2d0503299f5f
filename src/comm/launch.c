// SPDX-License-Identifier: Apache-2.0
// Starting local ranks, and seeing to it that all end together.
//
// The process that is told to run N ranks makes the segment (shm_world.c), forks N times, and does
// nothing more but watch. It starts no thread and takes no part in the work, so it can always act:
// it alone learns for sure that a rank has died, tells the others through the segment, and ends
// those that do not end by themselves: after 2 s with SIGTERM, after 4 s with SIGKILL, and with
// SIGKILL at once when all that remain are stopped. If it is killed itself, the kernel kills the
// ranks (PR_SET_PDEATHSIG). A rank begins only when all have been started.
//
// Signals. The ranks stay in the process group, so that a terminal's Ctrl-C, Ctrl-Z and hang-up
// reach them like any other program; the kernel sends those to everyone, and they are not passed
// on. A signal that somebody sent to the parent (kill, a supervisor) is passed on to each rank, and
// a stopped one is continued, so that it can obey. It goes as a queued signal whose value counts
// the requests: a handler can tell by gw_launch_forwarded that a signal it gets is only the
// parent's copy of one that the group got as well, and count each request once (requests.c;
// launch_listen.c is such a listener). The second request, whoever hears it, is marked in shared
// memory, which silences all reports of ranks that miss one another, and the parent ends the ranks
// with SIGKILL. Ranks that just die of a signal that was asked for have stopped as asked, too.
//
// The parent's exit code: 128 + signal when the ranks were ended on request; 1 when a rank was
// killed by a signal, else the first code other than 0 and 3, else 3 when a rank ended with it
// (interrupted, resumable), else 0.
#include "comm/launch.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h" /* gw_mem_zalloc */
#include "base/clock.h" /* gw_clock_ns */
#include "base/log.h"   /* gw_log_set_rank */
#include "comm/comm_new.h"
#include "comm/launch_impl.h"
#include "comm/mpi.h"      /* gw_mpi_launched, gw_mpi_join */
#include "comm/requests.h" /* gw_requests_hear */
#include "comm/shm.h"

enum { MAX_RANKS = 1024 };
static const int64_t SECOND = 1000 * 1000 * 1000;

typedef struct child {
    pid_t pid;
    bool ended, by_us; /* by_us: we sent it what killed it */
    int signal, code;
} child;

typedef struct watch {
    gw_shm_world *world;
    child *ranks;
    int n, left;
    sigset_t set, before;
    int first_bad;  /* rank, or -1 */
    int64_t bad_ns; /* when it ended */
    int stage;      /* 0 nothing sent, 1 SIGTERM, 2 SIGKILL */
    gw_requests *requests;
    gw_hearing hearing;
    int asked;   /* signal of the latest request from outside; 0: none */
    bool speaks; /* the ranks stop in order, so the parent may say that they do */
} watch;

int gw_launch_forwarded(const siginfo_t *info) {
    return info->si_code == SI_QUEUE && info->si_pid == getppid() ? info->si_value.sival_int : 0;
}

/* ------------------------------------------------------------------------------ a rank */

static int bind_cores(const gw_cores *c, int ranks, int rank) {
    cpu_set_t set;
    gw_cores_share(c, ranks, rank, &set);
    int n = CPU_COUNT(&set);
    if (n > 0) (void)sched_setaffinity(0, sizeof set, &set); /* a refusal only costs time */
    return n > 0 ? n : 1;
}

/* In the child: bound to the parent's life and its cores, waiting until all are there. */
static gw_comm *become_rank(watch *w, const gw_cores *cores, int rank, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sigprocmask(SIG_SETMASK, &w->before, NULL);
    int n = w->n, threads = bind_cores(cores, n, rank);
    gw_log_set_rank(rank);
    if (!gw_shm_world_enter(w->world, parent)) _exit(1);
    gw_transport *t = gw_shm_join(w->world, rank);
    gw_coll_machine m = gw_coll_machine_local(threads);
    m.per_host = n;
    gw_mem_free(w->ranks);
    return gw_comm_new(t, m);
}

void gw_launch_leave(gw_comm *comm, bool ok, const char *why) {
    if (!comm) return;
    if (!ok) gw_comm_abort(comm, why);
    gw_comm_free(comm);
}

/* ------------------------------------------------------------------------------ watching */

static void send_to_all(watch *w, int sig) {
    for (int i = 0; i < w->n; i++)
        if (!w->ranks[i].ended) {
            w->ranks[i].by_us = true;
            kill(w->ranks[i].pid, sig);
        }
}

static void note_end(watch *w, int rank, int status) {
    child *c = &w->ranks[rank];
    c->ended = true;
    w->left--;
    c->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (w->asked && c->signal == w->asked && !c->by_us) gw_requests_end(w->requests, w->asked);
    gw_shm_world_ended(w->world, rank, c->signal, c->code);
    if (w->first_bad < 0 && (c->signal || (c->code != 0 && c->code != 3))) {
        w->first_bad = rank;
        w->bad_ns = gw_clock_ns();
        gw_requests_fail(w->requests);
    }
}

static void reap(watch *w) {
    for (int i = 0; i < w->n; i++) {
        int status = 0;
        if (w->ranks[i].ended || w->ranks[i].pid <= 0) continue;
        pid_t got = waitpid(w->ranks[i].pid, &status, WNOHANG);
        if (got == w->ranks[i].pid) note_end(w, i, status);
        if (got < 0 && errno == ECHILD) note_end(w, i, 1 << 8);
    }
}

static bool all_stopped(const watch *w) {
    for (int i = 0; i < w->n; i++) {
        char s = w->ranks[i].ended ? 'T' : gw_process_state(w->ranks[i].pid);
        if (s != 'T' && s != 't') return false;
    }
    return true;
}

/* After the first bad end: the others get time, then they are ended; on request at once. */
static void escalate(watch *w) {
    if (w->left == 0 || w->stage == 2) return;
    if (gw_requests_ending(w->requests)) {
        w->stage = 2;
        send_to_all(w, SIGKILL);
        return;
    }
    if (w->first_bad < 0) return;
    int64_t since = gw_clock_ns() - w->bad_ns;
    if (since > 4 * SECOND || (since > SECOND / 2 && all_stopped(w))) {
        w->stage = 2;
        send_to_all(w, SIGKILL);
    } else if (since > 2 * SECOND && w->stage == 0) {
        w->stage = 1;
        send_to_all(w, SIGTERM);
    }
}

/* One request may come several times, and to the ranks as well. */
static void forward(watch *w, const siginfo_t *info) {
    int count = gw_requests_count(w->requests);
    bool fresh = gw_requests_hear(w->requests, &w->hearing, info, gw_clock_ns(), &count);
    w->asked = info->si_signo;
    if (fresh && count > 1) {
        gw_requests_end(w->requests, info->si_signo);
        return;
    }
    if (fresh && w->speaks) gw_requests_say(w->requests);
    if (info->si_code == SI_KERNEL) return; /* a terminal's: the ranks have it too */
    union sigval value = {.sival_int = count};
    for (int i = 0; i < w->n; i++) {
        if (w->ranks[i].ended) continue;
        sigqueue(w->ranks[i].pid, info->si_signo, value);
        kill(w->ranks[i].pid, SIGCONT); /* who is stopped could not obey */
    }
}

static void watch_all(watch *w) {
    while (reap(w), w->left > 0) {
        escalate(w);
        struct timespec t = {.tv_nsec = (w->first_bad >= 0 ? 50 : 500) * 1000 * 1000};
        siginfo_t info;
        int sig = sigtimedwait(&w->set, &info, &t);
        if (sig > 0 && sig != SIGCHLD) forward(w, &info);
    }
}

/* ------------------------------------------------------------------------------ the end */

/* The signal for which ranks were cut short on request; 0: none was. */
static int ended_for(const watch *w) {
    int ending = gw_requests_ending(w->requests);
    for (int i = 0; ending && i < w->n; i++) {
        const child *c = &w->ranks[i];
        if (c->signal == ending || (c->signal && c->by_us) || c->code == 128 + ending)
            return ending;
    }
    return 0;
}

static int exit_code(const watch *w) {
    int code = 0;
    if (ended_for(w)) return 128 + ended_for(w);
    bool interrupted = false, killed = false;
    for (int i = 0; i < w->n; i++) {
        killed = killed || (w->ranks[i].signal && !w->ranks[i].by_us);
        interrupted = interrupted || w->ranks[i].code == 3;
    }
    const char *why = "";
    int first = gw_shm_world_reporter(w->world, &why); /* the others only followed it */
    if (w->first_bad >= 0) code = w->ranks[w->first_bad].code;
    if (first >= 0 && w->ranks[first].code && w->ranks[first].code != 3)
        code = w->ranks[first].code;
    if (killed || (w->first_bad >= 0 && code == 0)) return 1;
    return code ? code : interrupted ? 3 : 0;
}

/* Does the line of the rank that found the fault say that this one was killed? */
static bool is_told(const char *why, int rank) {
    char text[48];
    snprintf(text, sizeof text, "rank %d was killed by signal", rank);
    return strstr(why, text) != NULL;
}

static void report_killed(const watch *w, gw_diags *dg) {
    if (ended_for(w)) return;
    const char *why = "";
    int first = gw_shm_world_reporter(w->world, &why);
    for (int i = 0; i < w->n; i++) {
        const child *c = &w->ranks[i];
        if (!c->signal || c->by_us || is_told(why, i)) continue;
        const char *name = sigabbrev_np(c->signal);
        char doing[96];
        bool said = gw_shm_world_doing(w->world, i, doing)[0] != 0;
        gw_diag_add(dg, GW_ERROR, GW_ERR_PEER, "rank-killed", (gw_where){0},
                    "rank %d was killed by signal %d (SIG%s%s)%s%s", i, c->signal,
                    name ? name : "?", c->signal == SIGKILL ? "; out of memory?" : "",
                    said ? " in " : "", doing);
    }
    if (first >= 0 && w->ranks[first].signal && why[0]) /* it could not print it */
        gw_diag_add(dg, GW_ERROR, GW_ERR_PEER, "peer-report", (gw_where){0}, "rank %d: %s", first,
                    why);
}

/* ------------------------------------------------------------------------------ starting */

static void block_signals(watch *w) {
    signal(SIGCHLD, SIG_DFL); /* a parent that ignored it would have the ranks' ends lost */
    gw_requests_signals(&w->set);
    sigaddset(&w->set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &w->set, &w->before);
}

static gw_status could_not_start(watch *w, int rank, gw_diags *dg) {
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-start", (gw_where){0},
                             "cannot start rank %d of %d: %s", rank, w->n, strerror(errno));
    gw_diag_hint(dg, d, "look at ulimit -u, the cgroup's pids.max and free memory");
    w->left = rank;
    for (int i = rank; i < w->n; i++) w->ranks[i].ended = true;
    send_to_all(w, SIGKILL);
    watch_all(w);
    return GW_ERR_MEMORY;
}

static gw_status fork_ranks(watch *w, const gw_cores *cores, gw_comm **comm, gw_diags *dg) {
    pid_t parent = getpid();
    fflush(NULL); /* what is buffered is printed once */
    for (int i = 0; i < w->n; i++) {
        pid_t pid = fork();
        if (pid < 0) return could_not_start(w, i, dg);
        if (pid == 0) {
            *comm = become_rank(w, cores, i, parent);
            return GW_OK;
        }
        w->ranks[i].pid = pid;
        gw_shm_world_set_pid(w->world, i, pid);
    }
    gw_shm_world_open(w->world);
    return GW_OK;
}

static gw_status launch_local(const gw_launch_opts *o, gw_launch_role *role, gw_comm **comm,
                              int *code, gw_diags *dg) {
    gw_cores cores;
    gw_cores_get(&cores);
    GW_TRY(gw_launch_check(o->ranks, &cores, dg));
    gw_shm_opts so = {.ranks = o->ranks,
                      .timeout_s = o->timeout_s > 0 ? o->timeout_s : 5.0,
                      .spin = cores.n >= o->ranks};
    watch w = {.n = o->ranks, .left = o->ranks, .first_bad = -1, .speaks = o->listens};
    GW_TRY(gw_shm_world_new(&so, &w.world, dg));
    w.requests = gw_shm_world_requests(w.world);
    w.ranks = gw_mem_zalloc((size_t)w.n * sizeof *w.ranks);
    block_signals(&w);
    gw_status st = fork_ranks(&w, &cores, comm, dg);
    if (*comm) {
        *role = GW_LAUNCH_RANK;
        return GW_OK;
    }
    *role = GW_LAUNCH_PARENT;
    if (st == GW_OK) {
        watch_all(&w);
        report_killed(&w, dg);
        *code = exit_code(&w);
    }
    sigprocmask(SIG_SETMASK, &w.before, NULL);
    gw_mem_free(w.ranks);
    gw_shm_world_free(w.world);
    return st;
}

static gw_status launch_joined(const gw_launch_opts *o, int world, gw_launch_role *role,
                               gw_comm **comm, gw_diags *dg) {
    if (o->ranks > 0 && o->ranks != world) {
        gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "launch-ranks", (gw_where){0},
                                 "--ranks %d, but mpirun or srun has started %d", o->ranks, world);
        gw_diag_hint(dg, d, "leave --ranks out, or give mpirun -n (srun -n) the same number");
        return GW_ERR_USAGE;
    }
    GW_TRY(gw_mpi_join(o->timeout_s, comm, dg));
    if (*comm) gw_log_set_rank(gw_comm_rank(*comm));
    *role = *comm ? GW_LAUNCH_RANK : GW_LAUNCH_ALONE;
    return GW_OK;
}

gw_status gw_launch(const gw_launch_opts *o, gw_launch_role *role, gw_comm **comm, int *code,
                    gw_diags *dg) {
    *role = GW_LAUNCH_ALONE;
    *comm = NULL;
    *code = 0;
    if (o->ranks < 0 || o->ranks > MAX_RANKS)
        return GW_FAIL(dg, GW_ERR_USAGE, "launch-ranks", "%d local ranks: from 1 to %d can run",
                       o->ranks, (int)MAX_RANKS);
    if (o->listens) gw_requests_block();
    int world = gw_mpi_launched();
    if (world > 1) return launch_joined(o, world, role, comm, dg);
    return o->ranks > 1 ? launch_local(o, role, comm, code, dg) : gw_launch_check_space(1, 1, dg);
}

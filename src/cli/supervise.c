// SPDX-License-Identifier: Apache-2.0
// Watching a run, and starting it again from its newest checkpoint when it fails.
//
// Each start is a forked process that goes through the whole command, ranks and all, as if nobody
// watched; this one opens nothing, starts no thread, and reads the run file only to see whether it
// would do for fewer ranks. So whatever the run does to its own memory, the next start begins from
// none of it. Processes of the run that outlive its main one become children of this one
// (PR_SET_CHILD_SUBREAPER) and are waited for: two starts never write into one run directory.
//
// What another try can mend and what it cannot is told by statuses: each process of the run writes
// its own, with its first error, into a pipe. A command line, a run file, a number that is not
// finite come out the same each time; they end it, as a request to stop does (exit 3). A rank that
// is killed, a crash, a full disk, a rank that cannot be started may be otherwise the next time.
// What fails each time is found by its fruit: after two failures in a row without a checkpoint in
// between it is given up.
//
// A run that goes on with fewer ranks is a run that waits for a machine to have room again, and
// nothing else tells when it has. So after a stated time all ranks are tried once more: with the
// next start, if one is due anyway, or else the run is asked to stop at its next checkpoint and is
// started anew. What that costs (a save, a start, a load) is in the goodput. Where they still
// cannot be started it goes on with fewer, and the time doubles; such a try is no failure of the
// run, so --retries does not count it.
//
// The run has a process group of its own, so that a terminal's Ctrl-C reaches this process alone
// and is one request, passed on once. A second request is passed on too, and ends the run at once.
//
// Goodput is the share of wall time, from the beginning of the first start to the end of the last,
// that went into steps whose result is in a checkpoint. With each save the loop tells, in memory
// that both processes map, the time up to it; which save was committed the run directory tells.
// Steps that are taken a second time, starting, loading, saving and validating do not count.
#include "cli/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/io.h"       /* gw_path_join */
#include "base/log.h"      /* gw_log_warn */
#include "base/str.h"      /* gw_fmt_seconds */
#include "comm/requests.h" /* gw_requests_signals */
#include "file/json.h"     /* gw_json_write_file */

enum { PAUSE_S = 1, LEFT_OVER_S = 30, BARREN = 2 };
static const int64_t SECOND = 1000 * 1000 * 1000;

/* One write, below what a pipe takes whole. */
typedef struct report {
    int32_t status, watched; /* watched: by the process that watched the ranks */
    char id[48];
    char text[400];
} report;

typedef struct watch {
    gw_cli *cli;
    const gw_supervise_opts *o;
    gw_supervise_attempt now;
    pid_t self, pid;
    int pipe; /* the end that is read */
    sigset_t set, before;
    int asked; /* a signal; 0: nobody asked to stop */
    int64_t begun_ns, kept_ns, step;
    int64_t restarts, excused;   /* excused: not counted by --retries */
    int64_t fewer_ns, regrow_ns; /* since when it has fewer ranks; after how long all are tried */
    bool growing;                /* it was asked to stop for that */
    bool regrown;                /* the latest start is such a try */
    int barren;                  /* failures in a row without a commit */
    bool finished;               /* the latest attempt has written summary.json */
    json_t *list;
} watch;

/* ---- in an attempt ---- */

void gw_supervise_report(const gw_supervise_attempt *a, gw_status st, const gw_diags *dg) {
    report r = {.status = (int32_t)st};
    const gw_diag *g = dg->first;
    while (g && g->severity != GW_ERROR) g = g->next;
    if (g) snprintf(r.id, sizeof r.id, "%s", g->id);
    if (g) snprintf(r.text, sizeof r.text, "%s", g->message);
    (void)!write(a->report, &r, sizeof r);
}

/* ---- one attempt, watched ---- */

static void enter_attempt(watch *w, int report_end) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != w->self) _exit(1);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    close(w->pipe);
    w->now.report = report_end;
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGCHLD);
    sigaddset(&own, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &own, NULL); /* requests wait for who listens to them */
}

/* *child: this is the attempt's process. */
static gw_status begin_attempt(watch *w, bool *child) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return GW_FAIL(w->cli->diags, GW_ERR_IO, "supervise-start", "cannot make a pipe: %s",
                       strerror(errno));
    w->pipe = ends[0];
    for (int i = 0; i < 2; i++) atomic_store(&w->now.saves->of[i].step, -1);
    fflush(NULL);
    w->pid = fork();
    if (w->pid < 0) {
        close(ends[0]);
        close(ends[1]);
        return GW_FAIL(w->cli->diags, GW_ERR_MEMORY, "supervise-start", "cannot start the run: %s",
                       strerror(errno));
    }
    *child = w->pid == 0;
    if (*child) {
        enter_attempt(w, ends[1]);
        return GW_OK;
    }
    setpgid(w->pid, w->pid);
    close(ends[1]);
    return GW_OK;
}

/* Ctrl-Z stops the run as well. */
static void stop_both(const watch *w) {
    if (w->pid > 0) kill(-w->pid, SIGSTOP);
    raise(SIGSTOP);
    if (w->pid > 0) kill(-w->pid, SIGCONT);
}

static void take_signal(watch *w, int signo) {
    if (signo == SIGTSTP) {
        stop_both(w);
        return;
    }
    w->asked = signo;
    if (w->pid > 0) kill(w->pid, signo);
    if (w->pid > 0) kill(-w->pid, SIGCONT); /* who is stopped could not obey */
}

/* Until something happens, at most `ns`. */
static void rest(watch *w, int64_t ns) {
    struct timespec t = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
    siginfo_t info;
    int signo = sigtimedwait(&w->set, &info, &t);
    if (signo > 0 && signo != SIGCHLD) take_signal(w, signo);
}

/* Has it gone on with fewer ranks for long enough? */
static bool should_grow(const watch *w) {
    return w->now.ranks < w->o->ranks && w->regrow_ns > 0 && !w->asked &&
           gw_clock_ns() - w->fewer_ns >= w->regrow_ns;
}

/* Has this start begun to save? So it got further than the one before. */
static bool has_saved(const watch *w) { return atomic_load(&w->now.saves->of[0].step) >= 0; }

/* The wait status of the attempt's main process. */
static int await_end(watch *w) {
    int status = 0;
    w->growing = false;
    while (waitpid(w->pid, &status, WNOHANG) != w->pid) {
        rest(w, SECOND / 2);
        if (w->growing || !should_grow(w) || !has_saved(w)) continue;
        gw_log_info("the run is asked to stop and save: %d ranks are tried again", w->o->ranks);
        w->growing = true;
        kill(w->pid, SIGTERM);
    }
    return status;
}

/* Ranks that outlived it. */
static void await_others(watch *w) {
    int64_t until = gw_clock_ns() + LEFT_OVER_S * SECOND;
    pid_t group = w->pid;
    w->pid = 0;
    kill(-group, SIGKILL);
    for (;;) {
        pid_t got = waitpid(-1, NULL, WNOHANG);
        if (got < 0 && errno == ECHILD) return;
        if (got > 0) continue;
        if (gw_clock_ns() > until) {
            gw_log_warn("processes of the run do not end; going on without waiting for them");
            return;
        }
        rest(w, SECOND / 50);
    }
}

/* ---- what it means ---- */

typedef struct verdict {
    bool again, fewer; /* fewer: ranks could not be started */
    char why[480];
} verdict;

static bool is_final(gw_status st) {
    switch (st) {
    case GW_ERR_USAGE:
    case GW_ERR_CONFIG:
    case GW_ERR_UNSUPPORTED:
    case GW_ERR_NUMERIC:
    case GW_ERR_INTERRUPTED: return true;
    case GW_OK:
    case GW_ERR_IO:
    case GW_ERR_FORMAT:
    case GW_ERR_MEMORY:
    case GW_ERR_PEER:
    case GW_ERR_DEVICE: break;
    }
    return false;
}

static bool no_room(const char *id) {
    return gw_str_eq(id, "launch-start") || gw_str_eq(id, "launch-processes") ||
           gw_str_eq(id, "launch-files");
}

/* Reads what the processes of the attempt said. True: one of them says that it is of no use. */
static bool read_reports(watch *w, verdict *v) {
    report r;
    bool final = false, by_watcher = false;
    while (read(w->pipe, &r, sizeof r) == (ssize_t)sizeof r) {
        r.id[sizeof r.id - 1] = r.text[sizeof r.text - 1] = 0;
        final = final || is_final((gw_status)r.status);
        v->fewer = v->fewer || no_room(r.id);
        if (!r.text[0] || (v->why[0] && (by_watcher || !r.watched))) continue;
        snprintf(v->why, sizeof v->why, "%s", r.text);
        by_watcher = r.watched;
    }
    close(w->pipe);
    return final;
}

static int code_of(int status) {
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static verdict judge(watch *w, int status) {
    verdict v = {0};
    bool final = read_reports(w, &v);
    if (WIFSIGNALED(status) && !v.why[0]) {
        const char *name = sigabbrev_np(WTERMSIG(status));
        snprintf(v.why, sizeof v.why, "it was killed by signal %d (SIG%s)", WTERMSIG(status),
                 name ? name : "?");
    }
    int code = code_of(status);
    if (!v.why[0]) snprintf(v.why, sizeof v.why, "it ended with status %d", code);
    v.again = !w->asked && !final && code != 0 && code != 2 && code != 3;
    v.again = v.again || (w->growing && !w->asked && code == 3);
    return v;
}

/* Adds up what the attempt has left. */
static void take_kept(watch *w) {
    const gw_train_saves *k = w->now.saves;
    int64_t newest = -1;
    (void)gw_elastic_look(w->o->out_dir, &newest);
    w->barren++;
    for (int i = 0; i < 2 && newest > w->step; i++) {
        if (atomic_load(&k->of[i].step) != newest) continue;
        w->kept_ns += atomic_load(&k->of[i].ns);
        w->step = newest;
        w->barren = 0;
    }
}

/* ---- again ---- */

static gw_status give_up(const watch *w, const verdict *v, const char *why_not) {
    gw_diag *g = gw_diag_add(w->cli->diags, GW_ERROR, GW_ERR_PEER, "supervise-gave-up",
                             (gw_where){0}, "%s", why_not);
    gw_diag_detail(w->cli->diags, g, "the last failure: %s", v->why);
    if (w->step >= 0)
        gw_diag_hint(w->cli->diags, g,
                     "the checkpoint of step %" PRId64 " is intact; --resume goes on from it",
                     w->step);
    return GW_ERR_PEER;
}

/* Fewer ranks, where the layout allows. */
static bool take_fewer(watch *w) {
    gw_elastic_batch was = gw_elastic_look(w->o->out_dir, NULL);
    if (was.global == 0) was = w->now.batch;
    int64_t n = w->now.ranks > 1 ? gw_elastic_fewer(w->o->source, w->now.ranks, was) : 0;
    if (n < 1) return false;
    w->now.ranks = (int)n;
    w->now.any_dp = true;
    int64_t first = w->o->regrow_s * SECOND;
    w->regrow_ns = w->regrow_ns == 0 ? first : GW_MIN(2 * w->regrow_ns, 16 * first);
    w->fewer_ns = gw_clock_ns();
    return true;
}

/* All ranks again; `why` says it. */
static void take_all(watch *w, verdict *v) {
    char text[32];
    int fewer = w->now.ranks;
    gw_fmt_seconds(text, (double)(gw_clock_ns() - w->fewer_ns) * 1e-9);
    w->now.ranks = w->o->ranks;
    w->now.any_dp = false;
    w->regrown = true;
    if (w->growing)
        snprintf(v->why, sizeof v->why, "all ranks are tried again, after %s with %d", text, fewer);
}

static void note_restart(watch *w, const verdict *v) {
    char from[64] = "from the beginning", ranks[32] = "";
    if (w->step >= 0) snprintf(from, sizeof from, "from the checkpoint of step %" PRId64, w->step);
    if (w->now.ranks > 0)
        snprintf(ranks, sizeof ranks, ", %d rank%s", w->now.ranks, w->now.ranks == 1 ? "" : "s");
    gw_log_warn("restart %" PRId64 ", %s%s: %s", w->restarts, from, ranks, v->why);
    json_t *o =
        json_pack("{s:f, s:s, s:I, s:i}", "at_s", (double)(gw_clock_ns() - w->begun_ns) * 1e-9,
                  "reason", v->why, "from_step", (json_int_t)GW_MAX(w->step, INT64_C(0)), "ranks",
                  GW_MAX(w->now.ranks, 1));
    if (o) json_array_append_new(w->list, o); /* a reason that is not UTF-8 is left out */
}

/* GW_OK: the next attempt is due. */
static gw_status prepare(watch *w, verdict *v) {
    char text[96];
    bool excused = w->growing || (v->fewer && w->regrown);
    if (excused) w->excused++;
    w->regrown = false;
    if (w->growing) {
        w->barren = 0;
    } else if (v->fewer) {
        if (!take_fewer(w))
            return give_up(w, v, "a rank cannot be started, and the layout allows no fewer");
        w->barren = 0; /* the next start is another one */
    } else if (w->barren >= BARREN) {
        return give_up(w, v, "two failures in a row without a new checkpoint: given up");
    }
    int64_t counted = w->restarts + 1 - w->excused;
    if (!excused && w->o->retries >= 0 && counted > w->o->retries) {
        snprintf(text, sizeof text, "%" PRId64 " restart%s, as --retries allows: given up",
                 counted - 1, counted == 2 ? "" : "s");
        return give_up(w, v, text);
    }
    if (should_grow(w)) take_all(w, v);
    w->restarts++;
    w->now.resume = w->now.again = true;
    note_restart(w, v);
    rest(w, PAUSE_S * SECOND);
    return GW_OK;
}

/* ---- the whole ---- */

static void print_summary(gw_cli *cli, const json_t *o) {
    json_dumpf(o, cli->out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    fputc('\n', cli->out);
}

static void conclude(const watch *w) {
    gw_cli *cli = w->cli;
    double wall = (double)(gw_clock_ns() - w->begun_ns) * 1e-9, kept = (double)w->kept_ns * 1e-9;
    double goodput = wall > 0 ? kept / wall : 0;
    char of[32], all[32];
    if (!w->finished && w->kept_ns == 0 && w->restarts == 0) return; /* it never began */
    gw_log_info("goodput %.1f %%: %s of %s in steps that are kept, %" PRId64 " restart%s",
                100 * goodput, gw_fmt_seconds(of, kept), gw_fmt_seconds(all, wall), w->restarts,
                w->restarts == 1 ? "" : "s");
    const char *path = gw_path_join(cli->arena, w->o->out_dir, "summary.json");
    json_t *o = w->finished ? json_load_file(path, 0, NULL) : NULL;
    if (!json_is_object(o)) {
        json_decref(o);
        return;
    }
    if (w->kept_ns > 0 || w->restarts > 0) /* else it is the report of an earlier run */
        json_object_set_new(o, "supervise",
                            json_pack("{s:f, s:f, s:f, s:O}", "wall_s", wall, "kept_step_s", kept,
                                      "goodput", goodput, "restarts", w->list));
    gw_diags faults;
    gw_diags_init(&faults);
    if (gw_json_write_file(path, o, 2, &faults) != GW_OK)
        gw_log_warn("%s", gw_diags_first_error(&faults));
    gw_diags_release(&faults);
    if (gw_cli_flag(cli, "json")) print_summary(cli, o);
    json_decref(o);
}

static gw_status status_of(watch *w, int code) {
    w->cli->exit_code = code;
    w->finished = code == 0 || code == 3;
    return code == 0 ? GW_OK : code == 3 ? GW_ERR_INTERRUPTED : GW_ERR_PEER;
}

/* Between two attempts: nothing runs, and what was committed stands. */
static gw_status asked_meanwhile(watch *w) {
    return GW_FAIL(w->cli->diags, GW_ERR_INTERRUPTED, "interrupted",
                   "stopped between two starts of the run, as asked; --resume goes on");
}

static gw_status go_on(watch *w, bool *in_attempt) {
    for (;;) {
        if (w->asked) return asked_meanwhile(w);
        GW_TRY(begin_attempt(w, in_attempt));
        if (*in_attempt) return GW_OK;
        int status = await_end(w);
        await_others(w);
        take_kept(w);
        verdict v = judge(w, status);
        w->growing = w->growing && code_of(status) == 3;
        if (!v.again) return status_of(w, code_of(status));
        GW_TRY(prepare(w, &v));
    }
}

static void prepare_signals(watch *w) {
    gw_requests_signals(&w->set);
    sigaddset(&w->set, SIGCHLD);
    sigaddset(&w->set, SIGTSTP);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &w->set, &w->before);
    gw_requests_block();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* The batch that the run file says, where it loads. */
static gw_elastic_batch batch_given(const gw_supervise_opts *o) {
    gw_runfile rf;
    gw_diags faults;
    const char *note = NULL;
    gw_elastic_batch none = {0}, b = none;
    gw_diags_init(&faults);
    if (gw_elastic_load(o->source, GW_MAX(o->ranks, 1), none, &rf, &note, &faults) == GW_OK)
        b = gw_elastic_of(&rf);
    gw_runfile_release(&rf);
    gw_diags_release(&faults);
    return b;
}

gw_status gw_supervise(gw_cli *cli, const gw_supervise_opts *o, bool *in_attempt,
                       gw_status (*body)(gw_cli *cli, const gw_supervise_attempt *a, void *user),
                       void *user) {
    watch w = {.cli = cli, .o = o, .self = getpid(), .begun_ns = gw_clock_ns(), .step = -1};
    *in_attempt = false;
    gw_train_saves *saves =
        mmap(NULL, sizeof *saves, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (saves == MAP_FAILED)
        return GW_FAIL(cli->diags, GW_ERR_MEMORY, "supervise-start", "cannot map memory: %s",
                       strerror(errno));
    w.now = (gw_supervise_attempt){
        .ranks = o->ranks, .resume = o->resume, .saves = saves, .batch = batch_given(o)};
    if (o->resume) (void)gw_elastic_look(o->out_dir, &w.step);
    w.list = json_array();
    prepare_signals(&w);
    gw_status st = go_on(&w, in_attempt);
    if (*in_attempt) {
        st = body(cli, &w.now, user);
        json_decref(w.list);
        return st;
    }
    conclude(&w);
    sigprocmask(SIG_SETMASK, &w.before, NULL);
    json_decref(w.list);
    munmap(saves, sizeof *saves);
    return st;
}

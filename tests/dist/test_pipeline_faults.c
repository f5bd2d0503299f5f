// SPDX-License-Identifier: Apache-2.0
// A rank of a pipeline is killed, stopped or falls asleep at any action of its list: the run ends
// with one line that names rank, stage, micro-batch and action, with status 1, and nothing is left
// alive.
//
// Each case trains as `gradwright train --ranks 3` does, from a process of its own, with ranks that
// are processes. The transport of the rank that is to misbehave has its `doing` replaced: the
// executor says there what it is about to do, so the fault happens in exactly that action, and what
// was said last is what the line must say. That a rank lived on is found by the test's being the
// one that orphans are handed to.
//
// A rank that is only slow shows signs of life, however long its actions last, and is no fault.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/io.h"       /* gw_file_write_atomic */
#include "base/log.h"      /* gw_log_set_level */
#include "base/str.h"      /* gw_str */
#include "cli/ranks.h"     /* gw_cli_on_ranks_until */
#include "comm/comm_new.h" /* gw_comm_transport */
#include "data/tokens.h"   /* gw_tokens_build */
#include "harness.h"
#include "sched/sched.h" /* gw_schedule_make */
#include "train/loop.h"  /* gw_train_run */

enum { RANKS = 3, MICRO = 4, AT_ONCE = 3 };

typedef enum fault { KILLED, STOPPED, ASLEEP } fault;
static const char *const fault_names[] = {"killed", "stopped", "asleep"};

/* What the processes of a case tell the test. */
typedef struct told {
    char said[128]; /* by the rank at fault, last */
} told;

typedef struct job {
    const char *schedule;
    int rank, action; /* of which rank, from 1; 0: none */
    fault fault;
    double timeout_s, asleep_s;
    const char *pace; /* GW_PACE, or NULL */
    int micro;
    bool survives; /* the run ends as if nothing were */
    char dir[300];
    told *told; /* shared */
    pid_t pid;  /* the process that waits for the ranks */
    int64_t begun_ns;
} job;

/* ------------------------------------------------------------------ in the processes of a run */

static const job *mine;
static void (*say)(gw_transport *t, const char *what);
static gw_transport_ops striking;

static void sleep_s(double s) {
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)(1e9 * (s - (double)(time_t)s))};
    nanosleep(&t, NULL);
}

/* The first step finds memory and libraries; the fault is in the second. */
static void strike(gw_transport *t, const char *what) {
    static int steps = 0;
    int number = 0;
    const char *at = strstr(what, "action ");
    say(t, what);
    if (!at || sscanf(at, "action %d of", &number) != 1) return;
    if (number != mine->action || ++steps != 2) return;
    snprintf(mine->told->said, sizeof mine->told->said, "%s", what);
    switch (mine->fault) {
    case KILLED: raise(SIGKILL); break;
    case STOPPED: raise(SIGSTOP); break;
    case ASLEEP: sleep_s(mine->asleep_s); break;
    }
}

static void arm(gw_comm *c) {
    gw_transport *t = gw_comm_transport(c);
    if (gw_comm_rank(c) != mine->rank || mine->action == 0) return;
    striking = *t->ops;
    say = striking.doing;
    striking.doing = strike;
    t->ops = &striking;
}

static void runfile_of(const job *j, gw_runfile *rf, gw_diags *dg) {
    gw_str text = {0};
    char schedule[64], micro[64];
    snprintf(schedule, sizeof schedule, "layout.schedule=%s", j->schedule);
    snprintf(micro, sizeof micro, "train.accumulate=%d", j->micro);
    const char *sets[] = {schedule, micro};
    gw_str_printf(&text,
                  "model: {family: llama, layers: 6, hidden: 16, heads: 2, ffn: 32}\n"
                  "data: {train: %s, tokenizer: bytes}\n"
                  "train: {steps: 2, seq_len: 16, micro_batch: 1, threads: 1}\n"
                  "checkpoint: {every: 0}\nlayout: {pp: %d, timeout: %g}\n",
                  test_tmp_path("tokens"), RANKS, j->timeout_s);
    CHECK_OK(gw_runfile_parse(rf, "run.yaml", gw_str_c(&text), (int64_t)text.len, sets, 2, dg), dg);
    CHECK_OK(gw_runfile_set_ranks(rf, RANKS, dg), dg);
    gw_str_release(&text);
}

static gw_status train(gw_cli *cli, gw_comm *comm, void *user) {
    gw_runfile *rf = user;
    json_t *summary = NULL;
    arm(comm);
    gw_train_opts o = {.out_dir = mine->dir, .comm = comm};
    gw_status st = gw_train_run(rf, &o, &summary, cli->diags);
    json_decref(summary);
    return st;
}

/* What src/cli does with `train --ranks 3`, down to the status. */
static int run(const job *j) {
    static volatile sig_atomic_t stop;
    gw_runfile rf;
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    mine = j;
    if (j->pace) CHECK(setenv("GW_PACE", j->pace, 1) == 0);
    runfile_of(j, &rf, &dg);
    gw_cli cli = {.diags = &dg, .quiet = true};
    gw_status st = gw_cli_on_ranks_until(&cli, RANKS, rf.layout.timeout, GW_OK, train, &rf, &stop);
    gw_diags_print(&dg, stderr, false);
    return cli.exit_code ? cli.exit_code : st == GW_OK ? 0 : 1;
}

/* ------------------------------------------------------------------ watching it */

static void begin(job *j, int number) {
    char name[32];
    snprintf(name, sizeof name, "run-%d", number);
    snprintf(j->dir, sizeof j->dir, "%s", test_tmp_path(name));
    j->told =
        mmap(NULL, sizeof *j->told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(j->told != MAP_FAILED);
    j->begun_ns = gw_clock_ns();
    fflush(NULL);
    j->pid = fork();
    CHECK(j->pid >= 0);
    if (j->pid > 0) return;
    char log[340];
    snprintf(log, sizeof log, "%s.log", j->dir);
    int fd = open(log, O_CREAT | O_WRONLY | O_TRUNC | O_APPEND, 0600);
    CHECK(fd >= 0 && dup2(fd, 2) == 2 && dup2(fd, 1) == 1);
    int code = run(j);
    fflush(NULL);
    _exit(code);
}

static void read_log(const job *j, gw_str *text) {
    char path[340];
    gw_diags dg;
    gw_diags_init(&dg);
    snprintf(path, sizeof path, "%s.log", j->dir);
    CHECK_OK(gw_file_read(path, 1 << 20, text, &dg), &dg);
    gw_diags_release(&dg);
}

/* The end of the line that begins at `at`, cut there; NULL when there is no further one. */
static char *cut_line(char *at) {
    char *end = strchr(at, '\n');
    if (end) *end = 0;
    return end ? end + 1 : NULL;
}

/* What is printed as an error is one line that names it all; beside it stand hints and frames. A
 * rank finds it and says so; the parent of the ranks says that one was killed where none does. */
static void check_lines(const job *j, const char *text) {
    static const char *const how[] = {"was killed by signal 9", "its process is stopped",
                                      "no sign of life"};
    char rank[24], *all = strdup(text);
    int lines = 0;
    snprintf(rank, sizeof rank, "rank %d", j->rank);
    for (char *line = all, *next; line; line = next) {
        next = cut_line(line);
        if (!strstr(line, "error")) continue;
        lines++;
        CHECK_MSG(strstr(line, rank), "%s is not named: %s", rank, line);
        CHECK_MSG(strstr(line, j->told->said), "it was in %s: %s", j->told->said, line);
        CHECK_MSG(strstr(line, how[j->fault]), "not '%s': %s", how[j->fault], line);
    }
    CHECK_EQ(lines, 1);
    free(all);
}

static void check_end(const job *j, int status) {
    gw_str log = {0};
    read_log(j, &log);
    double took = 1e-9 * (double)(gw_clock_ns() - j->begun_ns);
    test_note("%s, rank %d %s in action %d, %s: %.1f s\n%s", j->schedule, j->rank,
              fault_names[j->fault], j->action, j->told->said, took, gw_str_c(&log));
    CHECK_MSG(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
    CHECK(j->told->said[0] || j->action == 0);
    CHECK_EQ(WEXITSTATUS(status), j->survives ? 0 : 1);
    if (!j->survives) check_lines(j, gw_str_c(&log));
    CHECK(!j->survives || log.len == 0);
    gw_str_release(&log);
}

static void forget(job *j) {
    munmap(j->told, sizeof *j->told);
    *j = (job){0};
}

/* Nobody whom a run has left behind. */
static void check_alone(void) {
    int status;
    pid_t left = waitpid(-1, &status, WNOHANG);
    CHECK_MSG(left < 0, "a process is left");
}

/* All jobs, some at a time. */
static void run_jobs(job *all, int n) {
    int begun = 0, running = 0;
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    while (running > 0 || begun < n) {
        for (; begun < n && running < AT_ONCE; running++, begun++) begin(&all[begun], begun);
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        int i = 0;
        while (i < begun && all[i].pid != pid) i++;
        CHECK_MSG(i < begun, "a rank has outlived its run");
        check_end(&all[i], status);
        forget(&all[i]);
        running--;
    }
    check_alone();
}

static void write_tokens(void) {
    gw_str text = {0};
    gw_diags dg;
    gw_tokenizer *t = NULL;
    gw_diags_init(&dg);
    for (int i = 0; i < 200; i++)
        gw_str_printf(&text, "the wright makes step %d and another.\n", i);
    const char *path = test_tmp_path("text");
    CHECK_OK(gw_file_write_atomic(path, gw_str_c(&text), (int64_t)text.len, &dg), &dg);
    CHECK_OK(gw_tokenizer_open("bytes", NULL, &t, &dg), &dg);
    gw_tokens_build_options o = {.rule = GW_DOC_BLANK, .append_eos = true};
    CHECK_OK(gw_tokens_build(&path, 1, t, &o, test_tmp_path("tokens"), NULL, &dg), &dg);
    gw_tokenizer_free(t);
    gw_str_release(&text);
    gw_diags_release(&dg);
}

static job at(const char *schedule, int rank, int action, fault f) {
    return (job){.schedule = schedule,
                 .rank = rank,
                 .action = action,
                 .fault = f,
                 .timeout_s = 1,
                 .asleep_s = 8,
                 .micro = MICRO};
}

/* ------------------------------------------------------------------ the tests */

TEST_WITHIN(a_rank_lost_in_an_action_is_named_with_it, 120) {
    job all[] = {
        at("zb-h1", 0, 1, KILLED),        at("zb-h1", 2, 9, KILLED),
        at("interleaved", 1, 20, KILLED), at("zb-h1", 1, 4, STOPPED),
        at("interleaved", 0, 2, STOPPED), at("interleaved", 2, 30, ASLEEP),
        at("zb-h1", 1, 11, ASLEEP),
    };
    write_tokens();
    run_jobs(all, (int)GW_COUNT(all));
}

TEST_WITHIN(a_rank_that_shows_signs_of_life_may_be_slow, 120) {
    job nap = at("interleaved", 1, 20, ASLEEP);
    nap.asleep_s = 0.6; /* of a timeout of 1 */
    job slow = at("zb-h1", 0, 0, KILLED);
    slow.pace = "0,0,0;1,0,0;0,0,1"; /* of a timeout of 0.4 */
    slow.timeout_s = 0.4;
    slow.micro = 1;
    nap.survives = slow.survives = true;
    job all[] = {nap, slow};
    write_tokens();
    run_jobs(all, 2);
}

/* Every action of every rank, each way to be lost. */
static void everywhere(const char *schedule) {
    gw_arena mem = {0};
    gw_diags dg;
    gw_schedule s;
    gw_sched_request r = {.ranks = RANKS, .micro_batches = MICRO};
    gw_diags_init(&dg);
    CHECK_OK(gw_schedule_make(schedule, &r, &mem, &s, &dg), &dg);
    int n = 0, most = 0;
    for (int i = 0; i < RANKS; i++) most += 3 * (int)s.lists[i].n;
    job *all = gw_arena_new(&mem, job, most);
    for (int f = KILLED; f <= ASLEEP; f++)
        for (int i = 0; i < RANKS; i++)
            for (int k = 1; k <= s.lists[i].n; k++) all[n++] = at(schedule, i, k, (fault)f);
    write_tokens();
    run_jobs(all, n);
    gw_arena_release(&mem);
    gw_diags_release(&dg);
}

TEST_LONG(a_rank_lost_anywhere_in_zb_h1_is_named) { everywhere("zb-h1"); }

TEST_LONG(a_rank_lost_anywhere_in_interleaved_is_named) { everywhere("interleaved"); }

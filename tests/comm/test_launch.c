// SPDX-License-Identifier: Apache-2.0
// Starting and ending local ranks: cores, exit codes, signals, limits, and nothing left behind.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h" /* gw_clock_ns */
#include "comm/launch.h"
#include "comm/launch_impl.h"
#include "comm/requests.h" /* gw_requests_hear */
#include "comm/shm.h"      /* gw_process_state */
#include "harness.h"
#include "rig.h"

static void wait_ms(int ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {}
}

/* Memory that the test and all ranks see. */
typedef struct board {
    int pids[8];
    int signals[8], codes[8]; /* signals seen; requests counted as launch.h says */
    int ready;
} board;
static board *new_board(void) {
    board *b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(b != MAP_FAILED);
    return b;
}

/* ------------------------------------------------------------------------------ cores */

TEST(launch_cores_are_shared_out) {
    static gw_cores c;
    for (int n = 1; n <= 9; n++)
        for (int ranks = 1; ranks <= 12; ranks++) {
            int used[9] = {0};
            c.n = n;
            for (int i = 0; i < n; i++) c.cpu[i] = (size_t)i;
            for (int r = 0; r < ranks; r++) {
                cpu_set_t set;
                gw_cores_share(&c, ranks, r, &set);
                int size = CPU_COUNT(&set);
                CHECK(ranks > n ? size == 1 : size == n / ranks || size == (n + ranks - 1) / ranks);
                for (size_t i = 0; i < 9; i++) used[i] += CPU_ISSET(i, &set) != 0;
            }
            for (int i = 0; i < n; i++) /* each core has a rank, and no more than it must */
                CHECK(ranks <= n ? used[i] == 1
                                 : used[i] >= ranks / n && used[i] <= (ranks + n - 1) / n);
        }
}

static gw_status note_cores(gw_comm *c, void *user, gw_diags *dg) {
    board *b = user;
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    b->codes[gw_comm_rank(c)] = CPU_COUNT(&set);
    RANK_CHECK(dg, gw_comm_machine(c)->threads == CPU_COUNT(&set), "threads");
    RANK_CHECK(dg, gw_comm_machine(c)->shared, "not shared");
    return gw_comm_barrier(c, "cores", dg);
}
TEST(launch_binds_ranks) {
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    int cores = CPU_COUNT(&set);
    if (cores < 2) SKIP("one core");
    board *b = new_board();
    rig_processes(2, note_cores, b);
    CHECK_EQ(b->codes[0] + b->codes[1], cores);
}

/* ------------------------------------------------------------------------------ exit codes */

typedef struct codes {
    int of[4];
} codes;
static gw_status end_with(gw_comm *c, void *user, gw_diags *dg) {
    const codes *k = user;
    int code = k->of[gw_comm_rank(c)];
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (code < 0) raise(-code);
    return code == 0   ? GW_OK
           : code == 2 ? GW_ERR_CONFIG
           : code == 3 ? GW_ERR_INTERRUPTED
                       : GW_ERR_IO;
}
TEST(launch_exit_codes) {
    static const struct {
        codes c;
        int want;
    } cases[] = {{{{0, 0, 0}}, 0}, {{{0, 3, 3}}, 3},        {{{3, 3, 3}}, 3},
                 {{{2, 2, 2}}, 2}, {{{0, -SIGABRT, 0}}, 1}, {{{3, -SIGKILL, 3}}, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static rig_result r;
        codes c = cases[i].c;
        rig_forked(3, 5.0, end_with, &c, &r);
        CHECK_MSG(r.exit_code == cases[i].want, "case %zu: %d\n%s", i, r.exit_code, r.text);
        if (c.of[1] == -SIGABRT)
            CHECK_MSG(strstr(r.text, "rank 1 was killed by signal 6 (SIGABRT)"), "%s", r.text);
    }
}

/* A rank that ends badly and others that do not notice, as they call nothing: they are ended. */
static gw_status deaf(gw_comm *c, void *user, gw_diags *dg) {
    board *b = user;
    b->pids[gw_comm_rank(c)] = getpid();
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (gw_comm_rank(c) == 0) return GW_FAIL(dg, GW_ERR_IO, "test", "no space");
    if (gw_comm_rank(c) == 2) signal(SIGTERM, SIG_IGN);
    wait_ms(30000);
    return GW_OK;
}
TEST(launch_ends_the_deaf) {
    static rig_result r;
    board *b = new_board();
    rig_forked(3, 5.0, deaf, b, &r);
    CHECK_MSG(r.exit_code == 1 && r.seconds > 1.5 && r.seconds < 25.0, "%d, %.2f s", r.exit_code,
              r.seconds);
    for (int i = 0; i < 3; i++) CHECK(kill(b->pids[i], 0) < 0 && errno == ESRCH);
}

/* ------------------------------------------------------------------------------ signals */

static board *handler_board;
static int handler_rank, direct;
static void on_signal(int sig, siginfo_t *info, void *context) {
    (void)sig;
    (void)context;
    int forwarded = gw_launch_forwarded(info);
    direct += forwarded == 0;
    int requests = forwarded > direct ? forwarded : direct;
    handler_board->signals[handler_rank]++;
    handler_board->codes[handler_rank] = requests;
}

static gw_status until_signal(gw_comm *c, void *user, gw_diags *dg) {
    handler_board = user;
    handler_rank = gw_comm_rank(c);
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    handler_board->pids[handler_rank] = getpid();
    GW_TRY(gw_comm_barrier(c, "handlers", dg));
    if (handler_rank == 0) handler_board->ready = 1;
    for (int64_t stop = 0; !stop;) {
        wait_ms(5);
        stop = handler_board->signals[handler_rank];
        GW_TRY(gw_comm_max_i64(c, &stop, 1, "stop", dg));
    }
    wait_ms(400); /* a second copy would come within this */
    GW_TRY(gw_comm_barrier(c, "end", dg));
    return GW_ERR_INTERRUPTED;
}

/* In a group of its own; returns the launcher's pid, which is the group's. */
static pid_t start_group(int ranks, board *b) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        gw_launch_opts o = {.ranks = ranks, .timeout_s = 5.0};
        gw_launch_role role;
        gw_comm *c = NULL;
        gw_diags dg;
        gw_diags_init(&dg);
        int code = 1;
        gw_status st = gw_launch(&o, &role, &c, &code, &dg);
        if (st == GW_OK && role == GW_LAUNCH_RANK) {
            st = until_signal(c, b, &dg);
            gw_launch_leave(c, st == GW_OK || st == GW_ERR_INTERRUPTED, "");
            code = gw_status_exit_code(st);
        }
        gw_diags_print(&dg, stdout, false);
        fflush(NULL);
        _exit(code);
    }
    for (int i = 0; i < 2000 && !b->ready; i++) wait_ms(5);
    CHECK(b->ready);
    wait_ms(50);
    return pid;
}

static int end_of(pid_t pid) {
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* To the parent alone: each rank hears of it once. */
TEST(launch_passes_signals_on) {
    board *b = new_board();
    pid_t pid = start_group(3, b);
    kill(pid, SIGTERM);
    CHECK_EQ(end_of(pid), 3);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(b->signals[r], 1);
        CHECK_EQ(b->codes[r], 1);
    }
}

/* To the whole group, as `timeout` and shells do it: one request, though it comes both ways. */
TEST(launch_counts_a_group_signal_once) {
    board *b = new_board();
    pid_t pid = start_group(3, b);
    kill(-pid, SIGINT);
    CHECK_EQ(end_of(pid), 3);
    for (int r = 0; r < 3; r++) CHECK_EQ(b->codes[r], 1);
}

/* From a terminal: Ctrl-C reaches every rank once, since the parent does not add a copy. */
TEST(launch_ctrl_c_comes_once) {
    board *b = new_board();
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) SKIP("no pseudo terminals");
    char name[64];
    CHECK(ptsname_r(master, name, sizeof name) == 0);
    fflush(NULL);
    pid_t session = fork();
    if (session == 0) {
        setsid();
        int tty = open(name, O_RDWR); /* becomes the controlling terminal */
        if (tty < 0) _exit(99);
        pid_t pid = fork();
        if (pid == 0) {
            setpgid(0, 0);
            signal(SIGTTOU, SIG_IGN);
            tcsetpgrp(tty, getpid());
            signal(SIGTTOU, SIG_DFL);
            pid_t group = getpid();
            gw_launch_opts o = {.ranks = 2, .timeout_s = 5.0};
            gw_launch_role role;
            gw_comm *c = NULL;
            gw_diags dg;
            gw_diags_init(&dg);
            int code = 1;
            (void)group;
            gw_status st = gw_launch(&o, &role, &c, &code, &dg);
            if (st == GW_OK && role == GW_LAUNCH_RANK) {
                st = until_signal(c, b, &dg);
                gw_launch_leave(c, true, "");
                code = gw_status_exit_code(st);
            }
            _exit(code);
        }
        int status = 0;
        signal(SIGHUP, SIG_IGN);
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
    }
    for (int i = 0; i < 2000 && !b->ready; i++) wait_ms(5);
    CHECK(b->ready);
    wait_ms(100);
    CHECK_EQ(write(master, "\x03", 1), 1);
    CHECK_EQ(end_of(session), 3);
    for (int r = 0; r < 2; r++) CHECK_EQ(b->signals[r], 1);
    close(master);
}

/* ------------------------------------------------------------------------------ requests */

static siginfo_t sent(int signo, int pid) {
    siginfo_t i;
    memset(&i, 0, sizeof i);
    i.si_signo = signo;
    i.si_code = SI_USER;
    i.si_pid = pid;
    return i;
}

/* Three processes, one ledger; times in milliseconds from 10 s on. The number that a signal counts
 * as, 0 for a copy. */
typedef struct ledger {
    gw_requests r;
    gw_hearing of[3];
} ledger;
static int heard(ledger *l, int who, int signo, int pid, int ms) {
    siginfo_t i = sent(signo, pid);
    int count = 0;
    int64_t now = (INT64_C(10000) + ms) * 1000000;
    return gw_requests_hear(&l->r, &l->of[who], &i, now, &count) ? count : 0;
}

TEST(requests_of_a_terminal_count_once_each) {
    ledger l = {0};
    CHECK_EQ(heard(&l, 1, SIGINT, 0, 0), 1);
    CHECK_EQ(heard(&l, 0, SIGINT, 0, 0), 0);
    CHECK_EQ(heard(&l, 2, SIGINT, 0, 3), 0);
    CHECK_EQ(gw_requests_count(&l.r), 1);
    CHECK_EQ(heard(&l, 2, SIGINT, 0, 24), 2); /* 21 ms after its first: asked again */
    CHECK_EQ(heard(&l, 1, SIGINT, 0, 24), 0);
    CHECK_EQ(heard(&l, 0, SIGINT, 0, 25), 0);
    CHECK_EQ(gw_requests_count(&l.r), 2);
}

TEST(requests_to_one_process_count_each) {
    ledger l = {0};
    CHECK_EQ(heard(&l, 0, SIGTERM, 77, 0), 1);
    CHECK_EQ(heard(&l, 0, SIGTERM, 77, 20), 2);
    memset(&l, 0, sizeof l); /* to the parent, and a second later to a rank */
    CHECK_EQ(heard(&l, 0, SIGINT, 77, 0), 1);
    CHECK_EQ(heard(&l, 1, SIGINT, 77, 1000), 2);
    memset(&l, 0, sizeof l); /* `timeout`: to the process, then to its group */
    CHECK_EQ(heard(&l, 0, SIGTERM, 77, 0), 1);
    CHECK_EQ(heard(&l, 0, SIGTERM, 77, 1), 0);
    CHECK_EQ(heard(&l, 2, SIGTERM, 77, 1), 0);
    memset(&l, 0, sizeof l); /* another sender right after is another request */
    CHECK_EQ(heard(&l, 0, SIGTERM, 77, 0), 1);
    CHECK_EQ(heard(&l, 0, SIGTERM, 78, 1), 2);
}

TEST(requests_hang_up_is_never_a_second) {
    ledger l = {0};
    CHECK_EQ(heard(&l, 0, SIGHUP, 0, 0), 1);
    CHECK_EQ(heard(&l, 0, SIGHUP, 0, 300), 0);
    CHECK_EQ(heard(&l, 0, SIGHUP, 0, 3000), 0);
    CHECK_EQ(heard(&l, 1, SIGHUP, 0, 3000), 0);
    CHECK_EQ(heard(&l, 1, SIGTERM, 5, 3100), 2);
}

TEST(requests_end_for_the_first_signal) {
    gw_requests r = {0};
    CHECK_EQ(gw_requests_ending(&r), 0);
    gw_requests_end(&r, SIGTERM);
    gw_requests_end(&r, SIGINT);
    CHECK_EQ(gw_requests_ending(&r), SIGTERM);
}

/* Ranks that listen: they meet in a barrier between looks at the flag, or are deaf to it. */
typedef struct listening {
    board *b;
    bool deaf;
} listening;
static volatile sig_atomic_t asked;
static gw_status until_asked(gw_comm *c, const listening *l, gw_diags *dg) {
    int rank = gw_comm_rank(c);
    l->b->pids[rank] = getpid();
    GW_TRY(gw_launch_listen(c, &asked, dg));
    GW_TRY(gw_comm_barrier(c, "listening", dg));
    if (rank == 0) l->b->ready = 1;
    for (int64_t stop = 0; !stop;) {
        wait_ms(2);
        stop = l->deaf ? 0 : asked;
        GW_TRY(gw_comm_max_i64(c, &stop, 1, "stop", dg));
    }
    return GW_ERR_INTERRUPTED;
}

/* What was printed comes back through a pipe whose reading end is *out. */
static pid_t start_listening(int ranks, const listening *l, int *out) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        gw_launch_opts o = {.ranks = ranks, .timeout_s = 5.0, .listens = true};
        gw_launch_role role;
        gw_comm *c = NULL;
        gw_diags dg;
        gw_diags_init(&dg);
        int code = 1;
        gw_status st = gw_launch(&o, &role, &c, &code, &dg);
        if (st == GW_OK && role == GW_LAUNCH_RANK) {
            st = until_asked(c, l, &dg);
            gw_launch_leave(c, st == GW_ERR_INTERRUPTED, gw_diags_first_error(&dg));
            code = gw_status_exit_code(st);
        }
        gw_diags_print(&dg, stdout, false);
        fflush(NULL);
        _exit(code);
    }
    close(ends[1]);
    *out = ends[0];
    for (int i = 0; i < 2000 && !l->b->ready; i++) wait_ms(5);
    CHECK(l->b->ready);
    return pid;
}

/* Exit code, and the line that announces the end exactly once and nothing else. */
static void expect_listening(pid_t pid, int out, int code) {
    static char text[8192];
    size_t n = 0;
    for (ssize_t k; n + 1 < sizeof text && (k = read(out, text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    text[n] = 0;
    close(out);
    int got = end_of(pid);
    const char *line = strstr(text, "finishing this step");
    CHECK_MSG(got == code, "%d, not %d: %s", got, code, text);
    CHECK_MSG(line && !strstr(line + 1, "finishing this step"), "said: %s", text);
    CHECK_MSG(!strstr(text, "error"), "said: %s", text);
}

typedef struct shot {
    int signo, whom, after_ms; /* whom: 0 the parent, -1 its group, r > 0: rank r */
} shot;
static void shoot(pid_t pid, const board *b, const shot *s, int n) {
    for (int i = 0; i < n; i++) {
        wait_ms(s[i].after_ms);
        kill(s[i].whom > 0 ? b->pids[s[i].whom] : s[i].whom < 0 ? -pid : pid, s[i].signo);
    }
}

TEST(launch_listens_to_requests) {
    static const struct {
        const char *what;
        shot s[3];
        int n, code;
        bool deaf;
    } cases[] = {
        {"one to the parent", {{SIGTERM, 0, 0}}, 1, 3, false},
        {"one to the group", {{SIGINT, -1, 0}}, 1, 3, false},
        {"one to a rank", {{SIGTERM, 2, 0}}, 1, 3, false},
        {"hang-up", {{SIGHUP, 0, 0}}, 1, 3, false},
        {"two to the parent", {{SIGTERM, 0, 0}, {SIGTERM, 0, 100}}, 2, 128 + SIGTERM, true},
        {"two to the group", {{SIGINT, -1, 0}, {SIGINT, -1, 100}}, 2, 128 + SIGINT, true},
        {"two to a rank", {{SIGTERM, 1, 0}, {SIGTERM, 1, 100}}, 2, 128 + SIGTERM, true},
        {"parent, then a rank", {{SIGINT, 0, 0}, {SIGINT, 1, 800}}, 2, 128 + SIGINT, true},
        {"a rank, then another", {{SIGINT, 1, 0}, {SIGINT, 2, 800}}, 2, 128 + SIGINT, true},
        {"hang-ups, then TERM",
         {{SIGHUP, 0, 0}, {SIGHUP, 0, 100}, {SIGTERM, 0, 100}},
         3,
         128 + SIGTERM,
         true},
    };
    signal(SIGHUP, SIG_DFL); /* where the tests run under nohup it is ignored, and stays so */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        board *b = new_board();
        listening l = {b, cases[i].deaf};
        int out = -1;
        int64_t begun = gw_clock_ns();
        pid_t pid = start_listening(3, &l, &out);
        shoot(pid, b, cases[i].s, cases[i].n);
        expect_listening(pid, out, cases[i].code);
        CHECK_MSG(gw_clock_ns() - begun < INT64_C(30000000000), "%s took too long", cases[i].what);
        munmap(b, sizeof *b);
    }
}

/* nohup has SIGHUP ignored: it stays so, in the parent and in the ranks. */
TEST(launch_leaves_an_ignored_hang_up_alone) {
    board *b = new_board();
    listening l = {b, false};
    int out = -1;
    signal(SIGHUP, SIG_IGN);
    pid_t pid = start_listening(2, &l, &out);
    signal(SIGHUP, SIG_DFL);
    kill(-pid, SIGHUP);
    wait_ms(200);
    CHECK_EQ(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGTERM);
    expect_listening(pid, out, 3);
}

/* Ranks of a command that does not listen end by the signal that was asked for, without a fault. */
static gw_status sleep_long(gw_comm *c, void *user, gw_diags *dg) {
    board *b = user;
    b->pids[gw_comm_rank(c)] = getpid();
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (gw_comm_rank(c) == 0) kill(getppid(), SIGTERM);
    wait_ms(20000);
    return GW_OK;
}
TEST(launch_ends_on_request_without_a_listener) {
    static rig_result r;
    board *b = new_board();
    rig_forked(3, 5.0, sleep_long, b, &r);
    CHECK_MSG(r.exit_code == 128 + SIGTERM, "%d: %s", r.exit_code, r.text);
    CHECK_MSG(!strstr(r.text, "killed"), "%s", r.text);
}

/* ------------------------------------------------------------------------------ the parent dies */

TEST(launch_parent_killed) {
    board *b = new_board();
    pid_t pid = start_group(3, b);
    kill(pid, SIGKILL);
    CHECK_EQ(end_of(pid), 128 + SIGKILL);
    for (int tries = 0; tries < 400; tries++) {
        int left = 0;
        for (int r = 0; r < 3; r++) {
            char s = gw_process_state(b->pids[r]);
            left += s != 0 && s != 'Z' && s != 'X';
        }
        if (left == 0) return;
        wait_ms(5);
    }
    test_fail(__FILE__, __LINE__, "ranks outlive their parent");
}

/* ------------------------------------------------------------------------------ nothing is left */

static int open_files(void) {
    int n = 0;
    for (int fd = 0; fd < 256; fd++) n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
static gw_status nothing(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    return gw_comm_barrier(c, "nothing", dg);
}

/* Descriptors of the launcher are closed again; in a rank only its sockets are open. */
TEST(launch_leaves_no_descriptor) {
    int before = open_files();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        gw_launch_opts o = {.ranks = 3, .timeout_s = 5.0};
        gw_launch_role role;
        gw_comm *c = NULL;
        gw_diags dg;
        gw_diags_init(&dg);
        int code = 1;
        gw_status st = gw_launch(&o, &role, &c, &code, &dg);
        if (st == GW_OK && role == GW_LAUNCH_RANK) {
            st = nothing(c, NULL, &dg);
            gw_launch_leave(c, st == GW_OK, "");
            _exit(st == GW_OK && open_files() == before ? 0 : 7);
        }
        _exit(code ? code : open_files() == before ? 0 : 8);
    }
    CHECK_EQ(end_of(pid), 0);
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    while (fgets(line, sizeof line, f)) CHECK(!strstr(line, "gradwright-ranks"));
    fclose(f);
}

TEST(launch_refuses) {
    gw_diags dg;
    gw_launch_role role;
    gw_comm *c = NULL;
    int code;
    gw_diags_init(&dg);
    gw_launch_opts many = {.ranks = 1025};
    CHECK_FAILS(gw_launch(&many, &role, &c, &code, &dg), &dg, "1024");
    gw_diags_release(&dg);
    gw_diags_init(&dg);
    gw_launch_opts one = {.ranks = 1};
    CHECK_OK(gw_launch(&one, &role, &c, &code, &dg), &dg);
    CHECK(role == GW_LAUNCH_ALONE && c == NULL);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "0", 1);
    gw_launch_opts two = {.ranks = 2};
    CHECK_FAILS(gw_launch(&two, &role, &c, &code, &dg), &dg, "has started 4");
    gw_diags_release(&dg);
}

/* ------------------------------------------------------------------------------ limits */

/* Limits are named before anything starts. Each runs in a child, as a limit cannot be raised again.
 */
static void refused_under(__rlimit_resource_t resource, rlim_t limit, const char *text) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit l = {limit, limit};
        gw_launch_opts o = {.ranks = 2, .timeout_s = 5.0};
        gw_launch_role role = GW_LAUNCH_ALONE;
        gw_comm *c = NULL;
        gw_diags dg;
        gw_diags_init(&dg);
        int code = 1;
        if (setrlimit(resource, &l) != 0) _exit(70);
        gw_status st = gw_launch(&o, &role, &c, &code, &dg);
        if (role != GW_LAUNCH_ALONE) _exit(71);
        bool named = dg.last && dg.last->hint && strstr(dg.last->hint, text);
        _exit(st == GW_ERR_MEMORY && named ? 0 : 72);
    }
    CHECK_EQ(end_of(pid), 0);
}
TEST(launch_names_limits) {
    refused_under(RLIMIT_NOFILE, 14, "ulimit -n");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    refused_under(RLIMIT_AS, 48 << 20, "ulimit -v");
#endif
}

// SPDX-License-Identifier: Apache-2.0
// Faults: a rank that is killed, stopped, late, or that calls something else, at each collective.
//
// Whatever happens to one rank, all of them end within the timeout and some seconds, the program's
// exit code is 1, one line names the rank, the collective and its scope, and nothing is left
// running.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "base/compiler.h" /* GW_COUNT */
#include "comm/comm_new.h" /* gw_coll_run_with */
#include "comm/launch.h"
#include "harness.h"
#include "rig.h"

typedef enum fault { KILLED, STOPPED, DELAYED, OTHER_SIZE, OTHER_OP, FAULTS } fault;
static const char *const fault_names[] = {"killed", "stopped", "delayed", "other size", "other op"};

/* The collectives, and after them the calls of the host side. */
enum { HOST_BARRIER = GW_COLL_KIND_COUNT, HOST_SUM, HOST_BROADCAST, HOST_GATHER, CALLS };

typedef struct scene {
    int call, victim;
    fault fault;
    int pids[3]; /* in memory of the test's own when it looks */
} scene;

static gw_status call_collective(gw_comm *c, int kind, int64_t elems, gw_diags *dg) {
    static float src[600], dst[600];
    static char scratch[16384];
    gw_coll_part part = {.elems = elems, .src = src, .dst = dst};
    gw_coll k = {.kind = (gw_coll_kind)kind,
                 .dtype = GW_F32,
                 .size = gw_comm_size(c),
                 .nparts = 1,
                 .parts = &part,
                 .scope = "layer 3/attn/q"};
    return gw_coll_run_with(c, &k, &rig_algorithm, scratch, 1, dg);
}

static gw_status call_host(gw_comm *c, int call, bool odd, gw_diags *dg) {
    static char bytes[8192], all[3 * 8192];
    double x[2] = {1, 2};
    switch (call) {
    case HOST_BARRIER: return gw_comm_barrier(c, odd ? "another place" : "layer 3/attn/q", dg);
    case HOST_SUM: return gw_comm_sum_f64(c, x, odd ? 2 : 1, "layer 3/attn/q", dg);
    case HOST_BROADCAST:
        return gw_comm_broadcast(c, bytes, odd ? 8000 : 4000, "layer 3/attn/q", dg);
    default: return gw_comm_all_gather(c, bytes, odd ? 8000 : 4000, all, "layer 3/attn/q", dg);
    }
}

static gw_status call_it(gw_comm *c, int call, bool odd, gw_diags *dg) {
    if (call >= GW_COLL_KIND_COUNT) return call_host(c, call, odd, dg);
    return call_collective(c, call, odd ? 303 : 300, dg);
}

static void wait_s(double s) {
    struct timespec t = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

static gw_status suffer(gw_comm *c, void *user, gw_diags *dg) {
    const scene *s = user;
    for (int i = 0; i < 3; i++) { /* all goes well at first */
        gw_comm_alive(c, (uint64_t)i);
        GW_TRY(call_it(c, s->call, false, dg));
    }
    if (gw_comm_rank(c) != s->victim) {
        gw_status st = call_it(c, s->call, false, dg);
        if (st == GW_OK && (s->call == GW_COLL_BROADCAST || s->call == HOST_BROADCAST))
            st = gw_comm_barrier(c, "after layer 3/attn/q",
                                 dg); /* a root need not hear of a child's fault */
        return st;
    }
    switch (s->fault) {
    case KILLED: raise(SIGKILL); break;
    case STOPPED: raise(SIGSTOP); break;
    case DELAYED: wait_s(1.5); break;
    case OTHER_SIZE: return call_it(c, s->call, true, dg);
    case OTHER_OP:
        return s->call == HOST_BARRIER ? call_it(c, HOST_SUM, false, dg)
                                       : gw_comm_barrier(c, "the end", dg);
    case FAULTS: break;
    }
    return call_it(c, s->call, false, dg);
}

/* Processes of this session that still run below the test. */
static bool any_child_left(void) { return waitpid(-1, NULL, WNOHANG) >= 0; }

static const char *const call_texts[] = {
    "all-reduce f32 300",  "reduce-scatter f32 300", "all-gather f32 300",     "broadcast f32 300",
    "all-to-all f32 300",  "shift f32 300",          "barrier layer 3/attn/q", "host sum 1",
    "host broadcast 4000", "host all-gather 4000"};

static int count_of(const char *text, const char *word) {
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p++) n++;
    return n;
}

static void check_line(const scene *s, const rig_result *r) {
    char who[16];
    snprintf(who, sizeof who, "rank %d", s->victim);
    int lines = count_of(r->text, "[peer-");
    CHECK_MSG(lines == 1, "%d lines, not one:\n%s", lines, r->text);
    const char *line = strstr(r->text, "[peer-");
    while (line > r->text && line[-1] != '\n') line--;
    CHECK_MSG(strstr(line, who), "no %s in:\n%s", who, r->text);
    CHECK_MSG(strstr(line, "layer 3/attn/q"), "no scope in:\n%s", r->text);
    CHECK_MSG(strstr(line, call_texts[s->call]) || strstr(line, "barrier after"),
              "no collective '%s' in:\n%s", call_texts[s->call], r->text);
    static const char *const ids[] = {"[peer-dead]", "[peer-late]", "[peer-late]",
                                      "[peer-mismatch]", "[peer-mismatch]"};
    CHECK_MSG(strstr(line, ids[s->fault]), "not %s:\n%s", ids[s->fault], r->text);
    CHECK_MSG(s->fault >= OTHER_SIZE || !strstr(line, "error: ranks "),
              "more than one is missing:\n%s", r->text);
    if (s->fault == KILLED) CHECK_MSG(strstr(r->text, "SIGKILL; out of memory?"), "%s", r->text);
    if (s->fault == STOPPED) CHECK_MSG(strstr(line, "stopped by a signal"), "%s", r->text);
}

static void play(int call, int victim, fault f) {
    scene s = {.call = call, .victim = victim, .fault = f};
    static rig_result r;
    rig_forked(3, 0.5, suffer, &s, &r);
    test_note("%s, rank %d %s: exit %d after %.2f s", call_texts[call], victim, fault_names[f],
              r.exit_code, r.seconds);
    test_note("%s", r.text);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 0.5 + 15.0, "%.2f s", r.seconds);
    check_line(&s, &r);
    CHECK(!any_child_left());
}

/* Each fault and each call at least once, each rank several times. */
static void some_of(fault f) {
    for (int call = 0; call < CALLS; call++)
        if ((call + (int)f) % 3 == 0 || f == KILLED) play(call, (call + (int)f) % 3, f);
}
TEST(faults_killed) { some_of(KILLED); }
TEST(faults_stopped) { some_of(STOPPED); }
TEST(faults_delayed) { some_of(DELAYED); }
TEST(faults_other_size) { some_of(OTHER_SIZE); }
TEST(faults_other_op) { some_of(OTHER_OP); }

TEST_LONG(faults_every_rank_at_every_collective) {
    for (int f = 0; f < FAULTS; f++)
        for (int call = 0; call < CALLS; call++)
            for (int victim = 0; victim < 3; victim++) play(call, victim, (fault)f);
}

/* ------------------------------------------------------------------------------ what is no fault
 */

/* Longer than the timeout: an op as long as one before, and what was declared. */
static gw_status slow_but_well(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    bool slow = gw_comm_rank(c) == 1;
    for (int i = 0; i < 2;
         i++) { /* every rank has had an op of 0.2 s, so 0.5 + 0.8 s are allowed */
        gw_comm_alive(c, (uint64_t)i);
        wait_s(0.2);
        gw_comm_alive(c, (uint64_t)i);
    }
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (slow) wait_s(0.8);
    GW_TRY(gw_comm_barrier(c, "after a long op", dg));
    if (slow) {
        gw_comm_busy(c, "saving a checkpoint", 10.0);
        wait_s(2.0);
        gw_comm_busy(c, NULL, 0);
    }
    return gw_comm_barrier(c, "after a long pause", dg);
}
TEST(faults_slow_is_not_late) {
    static rig_result r;
    rig_forked(3, 0.5, slow_but_well, NULL, &r);
    CHECK_MSG(r.exit_code == 0, "%s", r.text);
}

/* Busy for longer than it said. */
static gw_status too_busy(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (gw_comm_rank(c) == 1) {
        gw_comm_busy(c, "saving a checkpoint", 0.3);
        wait_s(3.0);
    }
    return gw_comm_barrier(c, "layer 3", dg);
}
TEST(faults_busy_for_too_long) {
    static rig_result r;
    rig_forked(3, 0.5, too_busy, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(strstr(r.text, "rank 1 did not reach") && strstr(r.text, "saving a checkpoint"), "%s",
              r.text);
}

/* Ctrl-Z: everything is stopped for longer than the timeout, and goes on. */
static gw_status many_barriers(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    for (int i = 0; i < 60; i++) {
        if (gw_comm_rank(c) == 0) wait_s(0.02);
        GW_TRY(gw_comm_barrier(c, "turn", dg));
    }
    return GW_OK;
}
TEST(faults_all_stopped_and_continued) {
    fflush(NULL);
    pid_t leader = fork();
    if (leader == 0) {
        setpgid(0, 0);
        static rig_result r;
        rig_forked(3, 0.5, many_barriers, NULL, &r);
        fputs(r.text, stdout);
        fflush(NULL);
        _exit(r.exit_code);
    }
    wait_s(0.5);
    kill(-leader, SIGSTOP);
    wait_s(1.5);
    kill(-leader, SIGCONT);
    int status = 0;
    CHECK_EQ(waitpid(leader, &status, 0), leader);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ------------------------------------------------------------------------------ other ways to end
 */

static gw_status give_up(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    GW_TRY(gw_comm_barrier(c, "start", dg));
    if (gw_comm_rank(c) == 2)
        return GW_FAIL(dg, GW_ERR_IO, "test-disk", "the disk of rank 2 is full");
    return gw_comm_barrier(c, "layer 3", dg);
}
TEST(faults_aborted) {
    static rig_result r;
    rig_forked(3, 30.0, give_up, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 10.0, "%.2f s", r.seconds);
    CHECK_MSG(count_of(r.text, "the disk of rank 2 is full") == 1, "%s", r.text);
    CHECK_MSG(count_of(r.text, "error:") == 1, "%s", r.text); /* the others are quiet */
}

static gw_status leave_early(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    GW_TRY(gw_comm_barrier(c, "start", dg));
    return gw_comm_rank(c) == 1 ? GW_OK : gw_comm_barrier(c, "layer 3", dg);
}
TEST(faults_left) {
    static rig_result r;
    rig_forked(3, 30.0, leave_early, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 10.0, "%.2f s", r.seconds);
    CHECK_MSG(strstr(r.text, "rank 1 has left and is missing") && strstr(r.text, "barrier layer 3"),
              "%s", r.text);
}

/* Each waits for the other: no rank is late, and still it ends. */
static gw_status cross(gw_comm *c, void *user, gw_diags *dg) {
    (void)user;
    gw_transport *t = gw_comm_transport(c);
    int ranks[2] = {0, 1};
    gw_group g = {2, gw_comm_rank(c), ranks};
    char byte = 0;
    GW_TRY(gw_comm_barrier(c, "start", dg));
    return t->ops->exchange(t, &g, -1, NULL, 0, 1 - g.me, &byte, 1, dg);
}
TEST(faults_waiting_in_a_circle) {
    static rig_result r;
    rig_forked(2, 0.5, cross, NULL, &r);
    CHECK_EQ(r.exit_code, 1);
    CHECK_MSG(r.seconds < 15.0, "%.2f s", r.seconds);
    CHECK_MSG(strstr(r.text, "wait for one another"), "%s", r.text);
}

/* As threads too: the others come out, and the first error is the one that is passed on. */
TEST(faults_aborted_threads) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_FAILS(gw_launch_threads(3, 5.0, give_up, NULL, &dg), &dg, "the disk of rank 2 is full");
    CHECK_EQ(dg.nerrors, 1);
    gw_diags_release(&dg);
}

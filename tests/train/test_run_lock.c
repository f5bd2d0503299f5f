// SPDX-License-Identifier: Apache-2.0
// One process holds a run directory, and the place of its checkpoints; a second is told who, and
// what a dead one left is taken over.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h" /* gw_log_set_level */
#include "harness.h"
#include "train/session.h"

static void write_lock(const char *text, int64_t age_s) {
    FILE *f = fopen(test_tmp_path(".lock"), "w");
    struct timespec now, at[2];
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
    CHECK(clock_gettime(CLOCK_REALTIME, &now) == 0);
    at[0] = at[1] = (struct timespec){.tv_sec = now.tv_sec - age_s};
    CHECK(utimensat(AT_FDCWD, test_tmp_path(".lock"), at, 0) == 0);
}

/* A child takes the lock, says so, and goes on or ends without a word. */
static pid_t hold(bool stays) {
    int ready[2];
    char c;
    CHECK(pipe(ready) == 0);
    (void)test_tmpdir(); /* before there are two of us */
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        int lock;
        if (gw_run_lock(test_tmpdir(), &lock, NULL) != GW_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        if (stays) sleep(60);
        _exit(0);
    }
    CHECK(read(ready[0], &c, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return p;
}

TEST(a_second_process_is_told_who_holds_the_run) {
    gw_diags dg;
    char want[64], host[96] = "";
    int lock;
    gw_diags_init(&dg);
    pid_t p = hold(true);
    snprintf(want, sizeof want, "in use by process %ld on ", (long)p);
    gw_status st = gw_run_lock(test_tmpdir(), &lock, &dg);
    kill(p, SIGKILL);
    CHECK(waitpid(p, NULL, 0) == p);
    CHECK_FAILS(st, &dg, want);
    CHECK(gethostname(host, sizeof host - 1) == 0);
    CHECK(strstr(gw_diags_first_error(&dg), host));
    CHECK(lock < 0);
    gw_diags_release(&dg);
}

TEST(a_lock_that_nobody_holds_is_taken_over) {
    gw_diags dg;
    char text[100] = "";
    int lock;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    pid_t p = hold(false);
    CHECK(waitpid(p, NULL, 0) == p);
    CHECK(access(test_tmp_path(".lock"), F_OK) == 0); /* it released nothing */
    CHECK_OK(gw_run_lock(test_tmpdir(), &lock, &dg), &dg);
    CHECK(pread(lock, text, sizeof text - 1, 0) > 0);
    CHECK_EQ(strtol(text, NULL, 10), (long)getpid());
    gw_run_unlock(test_tmpdir(), lock);
    CHECK(access(test_tmp_path(".lock"), F_OK) != 0);
    gw_diags_release(&dg);
}

/* Locks need not reach other hosts: there the signs of life count. */
TEST(a_run_of_another_host_is_known_by_its_beat) {
    gw_diags dg;
    int64_t last = 0;
    int lock;
    struct stat was, is;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    write_lock("4711 elsewhere.example 2031-01-01T00:00:00Z\n", 20);
    CHECK_FAILS(gw_run_lock(test_tmpdir(), &lock, &dg), &dg,
                "process 4711 on elsewhere.example since 2031-01-01T00:00:00Z, seen 2");
    write_lock("4711 elsewhere.example 2031-01-01T00:00:00Z\n", 3600);
    gw_diags_clear(&dg);
    CHECK_OK(gw_run_lock(test_tmpdir(), &lock, &dg), &dg);
    struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    CHECK(futimens(lock, old) == 0 && fstat(lock, &was) == 0);
    gw_run_beat(lock, &last);
    CHECK(fstat(lock, &is) == 0 && is.st_mtime > was.st_mtime);
    CHECK(futimens(lock, old) == 0);
    gw_run_beat(lock, &last); /* not every step */
    CHECK(fstat(lock, &is) == 0 && is.st_mtime == 1);
    gw_run_unlock(test_tmpdir(), lock);
    gw_diags_release(&dg);
}

/* A child holds run directory `run` and, besides, `place`. */
static pid_t hold_place(const char *run, const char *place) {
    int ready[2];
    char c;
    CHECK(pipe(ready) == 0);
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        int lock;
        gw_run_hold h = {0};
        if (gw_run_lock(run, &lock, NULL) != GW_OK ||
            gw_run_hold_checkpoints(&h, run, place, NULL) != GW_OK || write(ready[1], "x", 1) != 1)
            _exit(1);
        sleep(60);
        _exit(0);
    }
    CHECK(read(ready[0], &c, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return p;
}

/* Runs with directories of their own and one place for checkpoints, by any name. */
TEST(the_place_of_checkpoints_is_held_too) {
    static const char *const dirs[] = {"a", "b", "c", "d", "place", "place/checkpoints"};
    gw_diags dg;
    gw_run_hold h = {0};
    int lock;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    for (size_t i = 0; i < GW_COUNT(dirs); i++) CHECK(mkdir(test_tmp_path(dirs[i]), 0777) == 0);
    CHECK(symlink(test_tmp_path("place"), test_tmp_path("other")) == 0);
    CHECK(symlink("../place/checkpoints", test_tmp_path("c/checkpoints")) == 0);
    CHECK(symlink("../place/checkpoints", test_tmp_path("d/checkpoints")) == 0);
    pid_t p = hold_place(test_tmp_path("a"), test_tmp_path("place"));
    gw_status by_name =
        gw_run_hold_checkpoints(&h, test_tmp_path("b"), test_tmp_path("other"), &dg);
    gw_status as_run = gw_run_lock(test_tmp_path("place"), &lock, NULL);
    kill(p, SIGKILL);
    CHECK(waitpid(p, NULL, 0) == p);
    CHECK_FAILS(by_name, &dg, "in use by process");
    CHECK(as_run != GW_OK && h.n == 0);
    gw_diags_clear(&dg);
    p = hold_place(test_tmp_path("c"), test_tmp_path("c"));
    gw_status by_link = gw_run_hold_checkpoints(&h, test_tmp_path("d"), test_tmp_path("d"), &dg);
    kill(p, SIGKILL);
    CHECK(waitpid(p, NULL, 0) == p);
    CHECK_FAILS(by_link, &dg, "in use by process");
    gw_diags_clear(&dg);
    /* Nobody is left: it is taken, once for all names, and given back. */
    CHECK_OK(gw_run_hold_checkpoints(&h, test_tmp_path("d"), test_tmp_path("d"), &dg), &dg);
    CHECK_OK(gw_run_hold_checkpoints(&h, test_tmp_path("d"), test_tmp_path("d"), &dg), &dg);
    CHECK_EQ(h.n, 1);
    gw_run_release(&h);
    CHECK(access(test_tmp_path("place/checkpoints/.lock"), F_OK) != 0);
    CHECK_OK(gw_run_hold_checkpoints(&h, test_tmp_path("a"), test_tmp_path("a"), &dg), &dg);
    CHECK_EQ(h.n, 0); /* its own directory is held already */
    gw_diags_release(&dg);
}

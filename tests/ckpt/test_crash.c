// SPDX-License-Identifier: Apache-2.0
// A save that is cut anywhere: the process killed before or after every call that changes the disk,
// and the power gone after every such call, with what was not synced dropped or reordered.
//
// What runs is a save of step 2 beside a commit of step 1, a prune that keeps one, and a save of
// step 2 once more (which moves the first aside), by two ranks. A part of the state does not
// change: step 2 refers to step 1's files for it, which the prune must leave. Whatever is cut: the
// newest checkpoint that is complete loads and has the bits of its step; until the save of step 2
// is committed, step 1 is there; once it has returned, step 2 is.
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h" /* gw_log_set_level */
#include "base/rng.h" /* gw_rng_uniform */
#include "ckpt/save.h"
#include "comm/launch.h" /* gw_launch_threads */
#include "disk.h"
#include "harness.h"
#include "ir/mesh.h" /* gw_mesh_add */

enum { ROWS = 32, COLS = 24, ELEMS = ROWS * COLS, FIXED = 2 * 20 * 1024 };

typedef struct job {
    char dir[300];
    gw_ckpt_keep *keep[2];            /* of each rank */
    int64_t committed, pruned, again; /* calls when each step of the course had returned */
} job;

static void fill(float *w, int64_t step, int64_t first, int64_t n) {
    gw_rng_key key = gw_rng_key_named((uint64_t)step, "w");
    for (int64_t i = 0; i < n; i++) w[i] = gw_rng_uniform(key, (uint64_t)(first + i));
}

static gw_ckpt_meta meta_of(int64_t step) {
    return (gw_ckpt_meta){.step = step, .batch = step, .loss_scale = 1};
}

/* Rows of a matrix over two ranks, a vector that both have, and a cut one that stays as it is. */
static gw_status save(gw_comm *c, job *j, int64_t step, gw_diags *dg) {
    gw_mesh m = {0};
    (void)gw_mesh_add(&m, "tp", 2);
    gw_comm_set_mesh(c, &m);
    gw_type w = gw_type_make(GW_F32, "f32 d24"), v = gw_type_make(GW_F32, "d24");
    gw_type x = gw_type_make(GW_F32, "f40960");
    w.dims[0].naxes = x.dims[0].naxes = 1;
    float rows[ELEMS / 2], vector[COLS];
    float *fixed = malloc(sizeof *fixed * FIXED / 2);
    int64_t rank = gw_comm_rank(c);
    CHECK(fixed);
    fill(fixed, 0, rank * FIXED / 2, FIXED / 2);
    fill(rows, step, rank * ELEMS / 2, ELEMS / 2);
    fill(vector, step, ELEMS, COLS);
    gw_ckpt_tensor t[3] = {
        {.name = "w", .dtype = GW_F32, .ndim = 2, .dims = {ROWS, COLS}, .data = rows, .type = &w},
        {.name = "v", .dtype = GW_F32, .ndim = 1, .dims = {COLS}, .data = vector, .type = &v},
        {.name = "x", .dtype = GW_F32, .ndim = 1, .dims = {FIXED}, .data = fixed, .type = &x}};
    for (int i = 0; i < 3; i++) {
        t[i].mesh = &m;
        t[i].rank = rank;
    }
    gw_ckpt_meta meta = meta_of(step);
    gw_ckpt_options o = {
        .run_dir = j->dir, .comm = c, .keep = j->keep[rank], .references = j->keep[rank] != NULL};
    gw_ckpt_save *s;
    gw_ckpt_stats stats = {0};
    gw_status st = gw_checkpoint_begin(&s, &o, &meta, t, 3, dg);
    free(fixed); /* it was copied */
    if (st == GW_OK) st = gw_checkpoint_end(s, &stats, dg);
    if (st == GW_OK && o.keep && step > 1) CHECK_EQ(stats.referred_bytes, FIXED / 2 * 4);
    return st;
}

static gw_status save_first(gw_comm *c, void *user, gw_diags *dg) { return save(c, user, 1, dg); }

/* The course. */
static gw_status go_on(gw_comm *c, void *user, gw_diags *dg) {
    job *j = user;
    bool leads = gw_comm_rank(c) == 0;
    GW_TRY(save(c, j, 2, dg));
    GW_TRY(gw_comm_barrier(c, "saved", dg));
    if (leads) {
        j->committed = disk_calls();
        GW_TRY(gw_checkpoint_prune(j->dir, 1, 0, -1, dg));
        j->pruned = disk_calls();
    }
    GW_TRY(gw_comm_barrier(c, "pruned", dg));
    GW_TRY(save(c, j, 2, dg));
    GW_TRY(gw_comm_barrier(c, "saved again", dg));
    if (leads) j->again = disk_calls();
    return GW_OK;
}

static void on_two(gw_status (*body)(gw_comm *, void *, gw_diags *), job *j) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_launch_threads(2, 20, body, j, &dg), &dg);
    gw_diags_release(&dg);
}

static void look_at_fixed(const gw_ckpt_manifest *m, const char *when) {
    gw_diags dg;
    gw_diags_init(&dg);
    float *got = malloc(sizeof *got * FIXED), *want = malloc(sizeof *want * FIXED);
    CHECK(got && want);
    gw_ckpt_tensor t = {.name = "x", .dtype = GW_F32, .ndim = 1, .dims = {FIXED}, .data = got};
    t.box = gw_box_whole(1, t.dims);
    gw_status st = gw_checkpoint_load(m, &t, 1, NULL, &dg);
    CHECK_MSG(st == GW_OK, "%s: %s", when, gw_diags_first_error(&dg));
    fill(want, 0, 0, FIXED);
    CHECK_MSG(memcmp(got, want, sizeof *got * FIXED) == 0, "%s: other bits of x", when);
    free(got);
    free(want);
    gw_diags_release(&dg);
}

/* Every complete one loads with its bits. Returns the step of the newest; 0: there is none. */
static int64_t look(const char *dir, const char *when) {
    gw_arena mem = {0};
    gw_ckpt_list l;
    gw_diags dg;
    int64_t newest = 0, number = 0;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_list(dir, &mem, &l, &dg), &dg);
    for (int i = 0; i < l.n; i++) {
        float got[ELEMS], want[ELEMS];
        gw_ckpt_manifest *m = NULL;
        CHECK_MSG(l.items[i].state != GW_CKPT_DAMAGED, "%s: %s", when, l.items[i].why);
        if (l.items[i].state != GW_CKPT_COMPLETE) continue;
        gw_ckpt_tensor t = {
            .name = "w", .dtype = GW_F32, .ndim = 2, .dims = {ROWS, COLS}, .data = got};
        t.box = gw_box_whole(2, t.dims);
        CHECK_OK(gw_checkpoint_read(l.items[i].path, &mem, &m, &dg), &dg);
        gw_status st = gw_checkpoint_load(m, &t, 1, NULL, &dg);
        CHECK_MSG(st == GW_OK, "%s: step %" PRId64 ": %s", when, l.items[i].step,
                  gw_diags_first_error(&dg));
        fill(want, l.items[i].step, 0, ELEMS);
        CHECK_MSG(memcmp(got, want, sizeof got) == 0, "%s: other bits", when);
        look_at_fixed(m, when);
        if (l.items[i].number > number) {
            number = l.items[i].number;
            newest = l.items[i].step;
        }
    }
    gw_arena_release(&mem);
    gw_diags_release(&dg);
    return newest;
}

static void begin(job *j, const char *name) {
    gw_log_set_level(GW_LOG_QUIET);
    *j = (job){0};
    snprintf(j->dir, sizeof j->dir, "%s", test_tmp_path(name));
    for (int r = 0; r < 2; r++) j->keep[r] = gw_ckpt_keep_new();
    on_two(save_first, j);
}

static void end(job *j) {
    for (int r = 0; r < 2; r++) gw_ckpt_keep_free(j->keep[r]);
}

/* The step that must be newest after `calls` calls; 0: either. */
static int64_t due(const job *j, int64_t calls) {
    /* While step 2 is saved again its first commit has been moved aside, and step 1 is gone: by
     * the order of things a person asked for twice. */
    if (calls >= j->committed) return 2;
    return 0;
}

static void fail_power(int seeds) {
    job j;
    begin(&j, "run");
    disk_begin(j.dir);
    on_two(go_on, &j);
    int64_t calls = disk_unwatch(), states = 0;
    char to[300];
    snprintf(to, sizeof to, "%s", test_tmp_path("left"));
    CHECK(j.committed > 15 && j.pruned > j.committed && calls >= j.again);
    for (int64_t k = 0; k <= calls; k++)
        for (int s = 0; s < seeds; s++) {
            char when[100];
            snprintf(when, sizeof when, "after call %" PRId64 " of %" PRId64 ", seed %d", k, calls,
                     s);
            disk_after_failure(to, k, (uint64_t)(k * 1000 + s));
            int64_t newest = look(to, when), want = due(&j, k);
            bool moved = k > j.pruned && k < j.again;
            CHECK_MSG(newest > 0 || moved, "%s: no checkpoint is left", when);
            CHECK_MSG(!want || moved || newest == want, "%s: the newest is of step %" PRId64, when,
                      newest);
            states++;
        }
    test_note("%" PRId64 " calls, %" PRId64 " states of the disk", calls, states);
    disk_end();
    end(&j);
}

TEST_WITHIN(no_power_failure_loses_a_commit, 120) { fail_power(6); }
TEST_LONG(no_power_failure_loses_a_commit_long) { fail_power(200); }

/* Kills the course before or after one of its calls; false when it has fewer. */
static bool kill_at(int64_t call, bool after) {
    char line[700];
    job j = {0};
    snprintf(j.dir, sizeof j.dir, "%s", test_tmp_path("cut"));
    snprintf(line, sizeof line, "rm -rf '%s'", j.dir);
    CHECK(system(line) == 0);
    pid_t p = fork();
    CHECK(p >= 0);
    if (p == 0) {
        begin(&j, "cut");
        disk_watch(j.dir, call, after);
        on_two(go_on, &j);
        _exit(0);
    }
    int status;
    CHECK(waitpid(p, &status, 0) == p);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    CHECK_MSG(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "status %d", status);
    char when[100];
    snprintf(when, sizeof when, "killed %s call %" PRId64, after ? "after" : "before", call);
    (void)look(j.dir, when);
    /* And the run goes on from there, with nothing remembered. */
    on_two(go_on, &j);
    CHECK_EQ(look(j.dir, when), 2);
    return killed;
}

static void kill_everywhere(int stride) {
    int64_t kills = 0;
    gw_log_set_level(GW_LOG_QUIET);
    for (int after = 0; after < 2; after++)
        for (int64_t call = after; kill_at(call, after == 1); call += stride) kills++;
    test_note("%" PRId64 " kills", kills);
    CHECK(kills > 40 / stride);
}

TEST_WITHIN(a_kill_at_any_call_leaves_a_checkpoint, 120) { kill_everywhere(3); }
TEST_LONG(a_kill_at_any_call_leaves_a_checkpoint_long) {
    for (int round = 0; round < 12; round++) kill_everywhere(1);
}

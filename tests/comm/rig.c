// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: as threads that share the test's memory, or as processes below one that
// launches.
//
// A launch forks and waits, and its ranks return from it, so it needs a process of its own: that
// process writes all that ranks print into a file which the test reads afterwards, and a limit of
// time makes a hang a failure.
#include "rig.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"    /* gw_clock_ns */
#include "comm/comm_new.h" /* gw_comm_transport */
#include "comm/launch.h"   /* gw_launch */
#include "harness.h"

/* ------------------------------------------------------------------------------ algorithm */

static bool rig_supports(const gw_coll *c, const gw_coll_machine *m, const char **why) {
    (void)m;
    *why = "float32 only";
    return c->dtype == GW_F32;
}
static int64_t rig_moved(const gw_coll *c, int64_t rank) {
    (void)rank;
    return (c->size - 1) * gw_coll_bytes(c);
}
static int64_t rig_scratch(const gw_coll *c, const gw_coll_machine *m) {
    (void)m;
    return gw_coll_bytes(c) * c->size;
}
static double rig_seconds(const gw_coll *c, const gw_coll_machine *m) {
    (void)c;
    (void)m;
    return 1.0;
}

static int64_t first_of(int64_t elems, int64_t n, int64_t i) {
    int64_t small = elems / n, more = elems % n;
    return i * small + (i < more ? i : more);
}

/* Whole src of every rank into scratch, rank by rank. */
static gw_status gather_all(const gw_algorithm_call *k, const gw_coll_part *p, int64_t n,
                            int64_t *sent, gw_diags *dg) {
    int64_t bytes = n * 4;
    const gw_group *g = &k->group;
    if (bytes) memcpy(k->scratch + g->me * bytes, p->src, (size_t)bytes);
    for (int d = 1; d < g->size; d++) {
        int to = (g->me + d) % g->size, from = (g->me + g->size - d) % g->size;
        GW_TRY(k->t->ops->exchange(k->t, g, to, p->src, bytes, from, k->scratch + from * bytes,
                                   bytes, dg));
        *sent += bytes;
    }
    return GW_OK;
}

static void sum_range(const gw_algorithm_call *k, int64_t n, int64_t from, int64_t count,
                      float *dst) {
    const float *all = (const float *)(const void *)k->scratch;
    for (int64_t i = 0; i < count; i++) {
        float sum = 0.0f;
        for (int r = 0; r < k->group.size; r++) sum += all[r * n + from + i];
        dst[i] = sum;
    }
}

static gw_status rig_part(const gw_algorithm_call *k, const gw_coll_part *p, int64_t *sent,
                          gw_diags *dg) {
    const gw_group *g = &k->group;
    const float *all = (const float *)(const void *)k->scratch;
    int64_t n = p->elems, first = first_of(n, g->size, g->me);
    int64_t len = first_of(n, g->size, g->me + 1) - first;
    float *dst = p->dst;
    switch (k->coll->kind) {
    case GW_COLL_ALL_REDUCE:
        GW_TRY(gather_all(k, p, n, sent, dg));
        sum_range(k, n, 0, n, dst);
        return GW_OK;
    case GW_COLL_REDUCE_SCATTER:
        GW_TRY(gather_all(k, p, n, sent, dg));
        sum_range(k, n, first, len, dst);
        return GW_OK;
    case GW_COLL_BROADCAST:
        GW_TRY(gather_all(k, p, n, sent, dg));
        if (n) memcpy(dst, all, (size_t)n * 4);
        return GW_OK;
    case GW_COLL_ALL_TO_ALL: /* here: equal parts only */
        GW_TRY(gather_all(k, p, n, sent, dg));
        for (int r = 0; r < g->size && len; r++)
            memcpy(dst + first_of(n, g->size, r), all + r * n + first, (size_t)len * 4);
        return GW_OK;
    case GW_COLL_ALL_GATHER:
        if (len) memmove(dst + first, p->src, (size_t)len * 4);
        for (int d = 1; d < g->size; d++) {
            int to = (g->me + d) % g->size, from = (g->me + g->size - d) % g->size;
            int64_t at = first_of(n, g->size, from), count = first_of(n, g->size, from + 1) - at;
            GW_TRY(k->t->ops->exchange(k->t, g, to, dst + first, len * 4, from, dst + at, count * 4,
                                       dg));
            *sent += len * 4;
        }
        return GW_OK;
    case GW_COLL_SHIFT:
        GW_TRY(gather_all(k, p, n, sent, dg));
        if (n) memcpy(dst, all + (g->me + g->size - 1) % g->size * n, (size_t)n * 4);
        return GW_OK;
    case GW_COLL_KIND_COUNT: break;
    }
    return GW_ERR_UNSUPPORTED;
}

static gw_status rig_run(const gw_algorithm_call *k, int64_t *sent, gw_diags *dg) {
    GW_TRY(k->t->ops->sync(k->t, &k->group, dg));
    for (int i = 0; i < k->coll->nparts; i++) GW_TRY(rig_part(k, &k->coll->parts[i], sent, dg));
    return GW_OK;
}

const gw_algorithm rig_algorithm = {
    .name = "rig",
    .doc = "everyone exchanges with everyone",
    .kinds = (1u << GW_COLL_KIND_COUNT) - 1u,
    .supports = rig_supports,
    .moved = rig_moved,
    .scratch = rig_scratch,
    .seconds = rig_seconds,
    .run = rig_run,
};

/* ------------------------------------------------------------------------------ ranks */

void rig_threads(int ranks, rig_body *body, void *user) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_status st = gw_launch_threads(ranks, 20.0, body, user, &dg);
    if (st != GW_OK) {
        gw_diags_print(&dg, stdout, false);
        test_fail(__FILE__, __LINE__, "%d ranks as threads: status %d", ranks, (int)st);
    }
    gw_diags_release(&dg);
}

static void no_launcher(void) {
    const char *names[] = {"OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_RANK",
                           "PMIX_RANK",
                           "PMI_SIZE",
                           "PMI_RANK",
                           "SLURM_PROCID",
                           "SLURM_NTASKS",
                           "SLURM_STEP_ID",
                           "SLURM_STEP_NUM_TASKS"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

/* The process that launches, and each of its ranks. */
static int program(int ranks, double timeout_s, rig_body *body, void *user) {
    gw_launch_opts o = {.ranks = ranks, .timeout_s = timeout_s};
    gw_launch_role role;
    gw_comm *c = NULL;
    gw_diags dg;
    gw_diags_init(&dg);
    int code = 0;
    gw_status st = gw_launch(&o, &role, &c, &code, &dg);
    if (st == GW_OK && role == GW_LAUNCH_RANK) {
        st = body(c, user, &dg);
        gw_launch_leave(c, st == GW_OK || st == GW_ERR_INTERRUPTED, gw_diags_first_error(&dg));
        code = gw_status_exit_code(st);
    } else if (st != GW_OK) {
        code = gw_status_exit_code(st);
    }
    gw_diags_print(&dg, stderr, false);
    gw_diags_release(&dg);
    return code;
}

static void wait_for(pid_t pid, rig_result *out) {
    int status = 0, waited = 0;
    int64_t start = gw_clock_ns();
    while (waitpid(pid, &status, WNOHANG) == 0) {
        struct timespec t = {.tv_nsec = 2 * 1000 * 1000};
        nanosleep(&t, NULL);
        if (++waited > 40 * 500 || gw_clock_ns() - start > 40ll * 1000 * 1000 * 1000) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
    }
    out->seconds = 1e-9 * (double)(gw_clock_ns() - start);
    out->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void rig_forked(int ranks, double timeout_s, rig_body *body, void *user, rig_result *out) {
    *out = (rig_result){0};
    FILE *f = tmpfile();
    CHECK(f);
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        dup2(fileno(f), 1);
        dup2(fileno(f), 2);
        no_launcher();
        int code = program(ranks, timeout_s, body, user);
        fflush(NULL);
        _exit(code);
    }
    wait_for(pid, out);
    rewind(f);
    size_t n = fread(out->text, 1, sizeof out->text - 1, f);
    out->text[n] = 0;
    fclose(f);
}

void rig_processes(int ranks, rig_body *body, void *user) {
    static rig_result r;
    rig_forked(ranks, 20.0, body, user, &r);
    if (r.exit_code != 0)
        test_fail(__FILE__, __LINE__, "%d ranks as processes: exit code %d\n%s", ranks, r.exit_code,
                  r.text);
}

/* ------------------------------------------------------------------------------ memory */

gw_status rig_memory_share(gw_comm *c, int64_t bytes, rig_memory *m, gw_diags *dg) {
    *m = (rig_memory){.bytes = bytes, .fd = memfd_create("rig", MFD_CLOEXEC), .handle = -1};
    if (m->fd < 0 || ftruncate(m->fd, bytes) != 0)
        return GW_FAIL(dg, GW_ERR_MEMORY, "test", "no memfd");
    m->base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (m->base == MAP_FAILED) return GW_FAIL(dg, GW_ERR_MEMORY, "test", "no mapping");
    return gw_comm_share(c, m->base, bytes, m->fd, &m->handle, dg);
}

void rig_memory_release(gw_comm *c, rig_memory *m) {
    gw_comm_unshare(c, m->handle);
    munmap(m->base, (size_t)m->bytes);
    close(m->fd);
}

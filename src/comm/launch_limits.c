// SPDX-License-Identifier: Apache-2.0
// Sharing out cores, and the limits that several ranks on one host run into.
//
// Ranks get disjoint cores, contiguous in an order in which the hardware threads of one core, and
// the cores of one package, stand side by side: the kernel numbers hardware threads so that 0 and
// n / 2 are often the same core, and two ranks on one core would halve each other.
//
// A container's limits are found before anything starts: a cgroup that allows fewer processes than
// there are ranks, or the user's limit of processes, is an error in words; less processor time than
// ranks only makes them slow, so it is a warning. Limits on open files and on address space are
// errors too: they would otherwise show as whatever call fails first. What
// cgroups say is read by base/cgroup.h.
#include "comm/launch_impl.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"   /* gw_cgroup_cpus */
#include "base/compiler.h" /* GW_MIN */
#include "base/log.h"      /* gw_log_warn */

/* ------------------------------------------------------------------------------ cores */

/* First line of a small file; false when there is none. */
static bool read_line(const char *path, char *buf, int n) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(buf, n, f) != NULL;
    fclose(f);
    return ok;
}

static int64_t topology(size_t cpu, const char *what) {
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/%s", cpu, what);
    return read_line(path, text, sizeof text) ? strtoll(text, NULL, 10) : (int64_t)cpu;
}

typedef struct place {
    int64_t package, core;
    size_t cpu;
} place;

static int by_place(const void *x, const void *y) {
    const place *a = x, *b = y;
    if (a->package != b->package) return a->package < b->package ? -1 : 1;
    if (a->core != b->core) return a->core < b->core ? -1 : 1;
    return a->cpu < b->cpu ? -1 : a->cpu > b->cpu;
}

void gw_cores_get(gw_cores *c) {
    place places[CPU_SETSIZE];
    cpu_set_t set;
    c->n = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            places[c->n++] = (place){.package = topology(cpu, "physical_package_id"),
                                     .core = topology(cpu, "core_id"),
                                     .cpu = cpu};
    qsort(places, (size_t)c->n, sizeof *places, by_place);
    for (int i = 0; i < c->n; i++) c->cpu[i] = places[i].cpu;
}

void gw_cores_share(const gw_cores *c, int ranks, int rank, cpu_set_t *out) {
    CPU_ZERO(out);
    if (c->n == 0) return;
    if (ranks > c->n) {
        CPU_SET(c->cpu[rank % c->n], out);
        return;
    }
    int first = (int)((int64_t)rank * c->n / ranks),
        last = (int)((int64_t)(rank + 1) * c->n / ranks);
    for (int i = first; i < last; i++) CPU_SET(c->cpu[i], out);
}

/* ------------------------------------------------------------------------------ checking */

enum {
    EXTRA_THREADS = 2, /* of a rank: the loader, and the one that waits for signals */
    RUN_FILES = 8,     /* that a training run has open at once, besides the sockets of ranks */
};

/* Threads of this user's processes: what RLIMIT_NPROC counts. */
static int64_t threads_of_user(void) {
    DIR *d = opendir("/proc");
    int64_t n = 0;
    uid_t me = getuid();
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] < '0' || e->d_name[0] > '9') continue;
        char path[300];
        struct stat st;
        snprintf(path, sizeof path, "/proc/%s/task", e->d_name);
        if (stat(path, &st) == 0 && st.st_uid == me)
            n += st.st_nlink > 2 ? (int64_t)st.st_nlink - 2 : 1;
    }
    if (d) closedir(d);
    return n;
}

static gw_status check_processes(int ranks, int threads, gw_diags *dg) {
    char name[256];
    int64_t need = (int64_t)ranks * (threads + EXTRA_THREADS);
    int64_t left = gw_cgroup_processes_left(GW_PROC, GW_CGROUPS, name, sizeof name);
    if (left >= 0 && left < need) {
        gw_diag *d =
            gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-processes", (gw_where){0},
                        "cgroup %s allows %" PRId64 " more threads, and %d ranks need %" PRId64,
                        name, left, ranks, need);
        gw_diag_hint(dg, d, "raise its pids.max, or run fewer ranks");
        return GW_ERR_MEMORY;
    }
    struct rlimit l;
    if (getuid() == 0 || getrlimit(RLIMIT_NPROC, &l) != 0 || l.rlim_cur == RLIM_INFINITY)
        return GW_OK; /* root is not held to it */
    int64_t used = threads_of_user();
    if ((int64_t)l.rlim_cur - used >= need) return GW_OK;
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-processes", (gw_where){0},
                             "this user may have %lld threads and has %" PRId64
                             "; %d ranks need %" PRId64 " more",
                             (long long)l.rlim_cur, used, ranks, need);
    gw_diag_hint(dg, d, "raise ulimit -u, or run fewer ranks");
    return GW_ERR_MEMORY;
}

/* Bytes that this process has mapped; 0 when /proc does not tell. */
static int64_t mapped_bytes(void) {
    char line[128];
    if (!read_line("/proc/self/statm", line, sizeof line)) return 0;
    return strtoll(line, NULL, 10) * sysconf(_SC_PAGESIZE);
}

/* A training process maps this much besides its arenas and the stacks of its threads: tables, what
 * oneDNN compiles, buffers of files (measured on the smallest models); and this of each peer. */
static const int64_t PROCESS_SPACE = (int64_t)40 << 20, PEER_SPACE = (int64_t)4 << 20;

gw_status gw_launch_check_space(int ranks, int threads, gw_diags *dg) {
    struct rlimit l, stack;
    if (getrlimit(RLIMIT_AS, &l) != 0 || l.rlim_cur > INT64_MAX) return GW_OK;
    int64_t each = 8 << 20, mb = 1000 * 1000;
    if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur != RLIM_INFINITY)
        each = (int64_t)GW_MIN(stack.rlim_cur, (rlim_t)1 << 40);
    /* the main thread has its stack, the loader needs one */
    int64_t need = PROCESS_SPACE + (ranks - 1) * PEER_SPACE + threads * each, has = mapped_bytes();
    if ((int64_t)l.rlim_cur - has >= need) return GW_OK;
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-space", (gw_where){0},
                             "ulimit -v allows %" PRId64 " MB of address space and %" PRId64
                             " MB are in use; %s needs about %" PRId64 " MB more before any model",
                             (int64_t)l.rlim_cur / mb, has / mb,
                             ranks > 1 ? "each rank" : "the run", need / mb + 1);
    gw_diag_hint(dg, d,
                 "raise ulimit -v, or lift it: what a plan is held to is memory, not addresses");
    return GW_ERR_MEMORY;
}

static int open_files(void) {
    DIR *d = opendir("/proc/self/fd");
    int n = -3; /* ".", "..", and the descriptor that reads */
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n > 0 ? n : 3;
}

/* Two sockets a rank, in every rank, and what a training run opens (measured). The soft
 * limit is raised as far as the hard one allows. */
static gw_status check_open_files(int ranks, gw_diags *dg) {
    struct rlimit l;
    int64_t need = 2 * (int64_t)ranks + open_files() + RUN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0 || l.rlim_max == RLIM_INFINITY ||
        l.rlim_max >= (rlim_t)need)
        return GW_OK;
    gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "launch-files", (gw_where){0},
                             "a process may have %lld open files (ulimit -n), and each of %d ranks "
                             "needs about %" PRId64,
                             (long long)l.rlim_max, ranks, need);
    gw_diag_hint(dg, d, "raise ulimit -n, or run fewer ranks");
    return GW_ERR_MEMORY;
}

gw_status gw_launch_check(int ranks, const gw_cores *c, gw_diags *dg) {
    char name[256];
    int threads = c->n > ranks ? c->n / ranks : 1;
    GW_TRY(check_open_files(ranks, dg));
    GW_TRY(gw_launch_check_space(ranks, threads, dg));
    GW_TRY(check_processes(ranks, threads, dg));
    if (c->n > 0 && ranks > c->n)
        gw_log_warn("%d ranks share %d cores: they take turns", ranks, c->n);
    double cpus = gw_cgroup_cpus(GW_PROC, GW_CGROUPS, name, sizeof name);
    if (cpus > 0 && (double)ranks > cpus + 1e-9)
        gw_log_warn("cgroup %s allows the time of %.4g cores: %d ranks will wait for one another",
                    name, cpus, ranks);
    return GW_OK;
}

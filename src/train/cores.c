// SPDX-License-Identifier: Apache-2.0
// Cores that exist, and the time on them that is allowed.
//
// Model FLOPs utilisation divides by what the hardware could do. Ranks x threads is not that: ranks
// may take turns on one core, two hardware threads share one core's multipliers, and a container's
// quota (cpu.max, cpu.cfs_quota_us) may allow a fifth of a core, on which no program reaches more
// than a fifth. So each rank tells which physical cores it may run on, how many threads of it
// compute, and its quota; cores that several ranks name are counted once.
//
// A quota is taken to be one for all ranks of a host, which it is where they were started together.
#include "train/cores.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"    /* gw_mem_alloc */
#include "base/cgroup.h"   /* gw_cgroup_cpus */
#include "base/compiler.h" /* GW_MIN */
#include "base/log.h"      /* gw_log_warn */
#include "train/ranks.h"   /* gw_ranks_count */

/* The first hardware thread of the core that `cpu` is one of: "0,4" or "0-1" begin with it. */
static size_t first_of_core(size_t cpu) {
    char path[96], line[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list",
             cpu);
    FILE *f = fopen(path, "re");
    char *end = line;
    long first = f && fgets(line, sizeof line, f) ? strtol(line, &end, 10) : -1;
    if (f) fclose(f);
    return end != line && first >= 0 && first < CPU_SETSIZE ? (size_t)first : cpu;
}

static gw_core_share share_of_this(int threads, gw_core_count *out) {
    gw_core_share s = {.threads = threads};
    cpu_set_t set;
    CPU_ZERO(&s.cores);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set)) CPU_SET(first_of_core(cpu), &s.cores);
    s.quota = gw_cgroup_cpus(GW_PROC, GW_CGROUPS, out->cgroup, (int)sizeof out->cgroup);
    out->quota = s.quota;
    return s;
}

/* Of the ranks of one host. */
static void add_host(const gw_core_share *ranks, int n, gw_core_count *out) {
    cpu_set_t all;
    int threads = 0;
    double quota = 0;
    CPU_ZERO(&all);
    for (int r = 0; r < n; r++) {
        CPU_OR(&all, &all, &ranks[r].cores);
        threads += ranks[r].threads;
        if (ranks[r].quota > 0 && (quota <= 0 || ranks[r].quota < quota)) quota = ranks[r].quota;
    }
    int cores = CPU_COUNT(&all);
    cores = cores > 0 ? GW_MIN(cores, threads) : threads;
    out->cores += cores;
    out->usable += quota > 0 ? GW_MIN((double)cores, quota) : (double)cores;
}

void gw_cores_add_up(const gw_core_share *ranks, int n, int64_t per_host, gw_core_count *out) {
    int step = per_host > 0 && per_host < n ? (int)per_host : n;
    out->cores = 0;
    out->usable = 0;
    for (int first = 0; first < n; first += step)
        add_host(ranks + first, GW_MIN(step, n - first), out);
}

gw_status gw_cores_count(gw_comm *comm, int threads, gw_core_count *out, gw_diags *dg) {
    *out = (gw_core_count){0};
    gw_core_share mine = share_of_this(threads, out);
    int n = gw_ranks_count(comm);
    int64_t per_host = comm ? gw_comm_machine(comm)->per_host : 0;
    gw_core_share *all = gw_mem_zalloc(sizeof *all * (size_t)n);
    gw_status st = GW_OK;
    all[0] = mine;
    if (comm) st = gw_comm_all_gather(comm, &mine, sizeof mine, all, "cores", dg);
    if (st == GW_OK) gw_cores_add_up(all, n, per_host, out);
    gw_mem_free(all);
    return st;
}

void gw_cores_note(const gw_core_count *c) {
    if (c->usable >= (double)c->cores - 1e-9) return;
    gw_log_warn("cgroup %s allows the time of %.4g cores, and the run has %d: peak and MFU count "
                "%.4g",
                c->cgroup, c->quota, c->cores, c->usable);
}

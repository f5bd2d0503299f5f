// SPDX-License-Identifier: Apache-2.0
// Limits of control groups, in the formats of the kernel's documents.
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "../harness.h"
#include "base/cgroup.h" /* gw_cgroup_cpus */

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", test_tmpdir(), path);
    for (char *p = full + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    CHECK(f);
    fputs(text, f);
    fclose(f);
}

/* The formats are those of the kernel's cgroup-v1/cgroups and cgroup-v2 documents. */
TEST(cgroup_limits_bind_from_every_level) {
    char proc[256], groups[256], name[256];
    snprintf(proc, sizeof proc, "%s", test_tmp_path("proc"));
    snprintf(groups, sizeof groups, "%s", test_tmp_path("groups"));
    put("proc/self/cgroup", "0::/a/b\n");
    put("groups/a/b/cpu.max", "max 100000\n");
    CHECK_NEAR(gw_cgroup_cpus(proc, groups, name, sizeof name), 0, 0);
    CHECK_EQ(gw_cgroup_processes_left(proc, groups, name, sizeof name), -1);
    put("groups/a/cpu.max", "150000 100000\n");
    CHECK_NEAR(gw_cgroup_cpus(proc, groups, name, sizeof name), 1.5, 1e-12);
    CHECK_STR(name, "/a");
    put("groups/a/b/pids.max", "max\n");
    put("groups/a/pids.max", "20\n");
    put("groups/a/pids.current", "17\n");
    CHECK_EQ(gw_cgroup_processes_left(proc, groups, name, sizeof name), 3);
    put("proc/self/cgroup", "4:cpu,cpuacct:/x\n3:pids:/y\n0::/none\n");
    put("groups/cpu/x/cpu.cfs_quota_us", "50000\n");
    put("groups/cpu/x/cpu.cfs_period_us", "100000\n");
    put("groups/cpu/cpu.cfs_quota_us", "-1\n");
    put("groups/pids/y/pids.max", "5\n");
    put("groups/pids/y/pids.current", "9\n");
    CHECK_NEAR(gw_cgroup_cpus(proc, groups, name, sizeof name), 0.5, 1e-12);
    CHECK_EQ(gw_cgroup_processes_left(proc, groups, name, sizeof name), 0);
    CHECK_EQ(gw_cgroup_version(proc, groups), 1);
    put("groups/cgroup.controllers", "cpu memory pids\n");
    CHECK_EQ(gw_cgroup_version(proc, groups), 2);
    put("groups/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("proc/self/cgroup", "9:memory:/z\n");
    CHECK_EQ(gw_cgroup_memory(proc, groups, NULL, 0), -1);
    put("groups/memory/z/memory.limit_in_bytes", "1000000\n");
    put("groups/memory/z/memory.usage_in_bytes", "700000\n");
    put("groups/memory/z/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n");
    CHECK_EQ(gw_cgroup_memory(proc, groups, name, sizeof name), 1000000);
    CHECK_EQ(gw_cgroup_memory_left(proc, groups, name, sizeof name), 500000);
    CHECK_STR(name, "/z");
}

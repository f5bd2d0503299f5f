// SPDX-License-Identifier: Apache-2.0
// Limits on memory, read from made-up trees of /proc and cgroup files, and regions of real memory.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../harness.h"
#include "base/io.h"    /* gw_file_write_atomic, gw_dir_make */
#include "run/memory.h" /* gw_memory_available_in, gw_region */

#define GIB (INT64_C(1) << 30)

static void put(const char *path, const char *text) {
    gw_diags dg;
    gw_diags_init(&dg);
    char full[700];
    snprintf(full, sizeof full, "%s", test_tmp_path(path));
    *strrchr(full, '/') = 0;
    CHECK_OK(gw_dir_make(full, &dg), &dg);
    CHECK_OK(gw_file_write_atomic(test_tmp_path(path), text, (int64_t)strlen(text), &dg), &dg);
    gw_diags_release(&dg);
}

static void put_number(const char *path, int64_t n) {
    char text[40];
    snprintf(text, sizeof text, "%lld\n", (long long)n);
    put(path, text);
}

static void meminfo(int64_t available) {
    char text[200];
    snprintf(text, sizeof text,
             "MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable: %lld kB\nBuffers: 7 kB\n",
             (long long)(available / 1024));
    put("proc/meminfo", text);
}

static void expect(int64_t bytes, const char *name) {
    char limit[600] = "";
    CHECK_EQ(
        gw_memory_available_in(test_tmp_path("proc"), test_tmp_path("cg"), limit, sizeof limit),
        bytes);
    CHECK_STR(limit, name);
}

TEST(available_memory_without_cgroups) {
    meminfo(8 * GIB);
    expect(8 * GIB, "memory");
    put("proc/self/cgroup", "0::/nowhere/at/all\n"); /* a path that is not mounted here */
    expect(8 * GIB, "memory");
    put("proc/self/cgroup", "nonsense\n\n:\n");
    expect(8 * GIB, "memory");
}

TEST(cgroup_v2_takes_the_tightest_level) {
    meminfo(8 * GIB);
    put("proc/self/cgroup", "0::/a/b\n");
    put("cg/a/b/memory.max", "max\n");
    put_number("cg/a/b/memory.current", GIB);
    expect(8 * GIB, "memory");
    put_number("cg/a/memory.max", 4 * GIB);
    put_number("cg/a/memory.current", 3 * GIB);
    expect(1 * GIB, "cgroup /a");
    put("cg/a/memory.stat",
        "anon 5\ninactive_file 1073741824\nactive_file 77\n"); /* cache that can go */
    expect(2 * GIB, "cgroup /a");
    put_number("cg/a/b/memory.max", GIB + 100);
    expect(100, "cgroup /a/b");
    put_number("cg/memory.max", GIB); /* the root of a container's own view */
    put_number("cg/memory.current", 2 * GIB);
    expect(0, "cgroup /");
}

TEST(cgroup_v1_counts_the_subtree) {
    meminfo(8 * GIB);
    put("proc/self/cgroup", "12:cpu,cpuacct:/x\n11:memory:/x\n1:name=systemd:/x\n");
    put_number("cg/memory/x/memory.limit_in_bytes", INT64_C(9223372036854771712)); /* none */
    put_number("cg/memory/x/memory.usage_in_bytes", GIB);
    expect(8 * GIB, "memory");
    put_number("cg/memory/x/memory.limit_in_bytes", 3 * GIB);
    put("cg/memory/x/memory.stat", "inactive_file 0\ntotal_inactive_file 536870912\n");
    expect(2 * GIB + GIB / 2, "cgroup /x");
    put("proc/self/cgroup", "11:hugetlb,memory:/x\n"); /* controllers mounted together */
    expect(2 * GIB + GIB / 2, "cgroup /x");
    put("proc/self/cgroup", "11:memory2:/x\n");
    expect(8 * GIB, "memory");
}

TEST(limits_of_this_process_are_read) {
    char limit[600] = "";
    int64_t n = gw_memory_available(limit, sizeof limit);
    CHECK(n > 0 && n < INT64_C(1) << 50);
    CHECK(limit[0] != 0);
    CHECK_EQ(gw_memory_available(NULL, 0) > 0, 1);
}

TEST(a_region_is_real_memory) {
    gw_diags dg;
    gw_diags_init(&dg);
    enum { BYTES = 32 << 20 };
    gw_region r;
    int64_t before = gw_memory_pss();
    CHECK(before > 0);
    CHECK_OK(gw_region_reserve(&r, BYTES, "a test", &dg), &dg);
    int64_t grown = gw_memory_pss() - before; /* all of it is there before the first write */
    /* Pages of shared libraries count by how many processes map them, which changes meanwhile. */
    CHECK_MSG(llabs(grown - BYTES) < (8 << 20), "%lld", (long long)grown);
    CHECK(fcntl(r.fd, F_GETFD) & FD_CLOEXEC);
    memset(r.data, 1, BYTES);
    int fd = r.fd;
    gw_region_release(&r);
    CHECK(r.data == NULL && r.fd == -1);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
    gw_region_release(&r); /* twice is once */
    CHECK_OK(gw_region_reserve(&r, 0, "nothing", &dg), &dg);
    CHECK(r.data != NULL);
    gw_region_release(&r);
    gw_diags_release(&dg);
}

TEST(a_region_that_cannot_be_is_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    gw_region r;
    CHECK_EQ(gw_region_reserve(&r, INT64_C(1) << 60, "the weights", &dg), GW_ERR_MEMORY);
    CHECK_FAILS(GW_ERR_MEMORY, &dg, "no room for the weights");
    CHECK(r.data == NULL && r.fd == -1);
    gw_diags_release(&dg);
}

/* A process that may map little more than it has is told which limit it is. In a child, as the
 * limit stays. */
TEST(address_space_is_checked) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("sanitizers map terabytes");
#else
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rlimit l = {64 << 20, 64 << 20};
        gw_diags dg;
        gw_diags_init(&dg);
        if (setrlimit(RLIMIT_AS, &l) != 0) _exit(70);
        gw_status st = gw_memory_check(65 << 20, 1, "the weights", &dg);
        _exit(st == GW_ERR_MEMORY && strstr(gw_diags_first_error(&dg), "ulimit -v") ? 0 : 71);
    }
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
#endif
}

TEST(processes_of_too_many_ranks_are_refused) {
    gw_diags dg;
    gw_diags_init(&dg);
    int64_t left = gw_memory_available(NULL, 0);
    int many = (int)(left / (1 << 20)); /* no process takes less than a megabyte */
    CHECK_OK(gw_memory_check_processes(1, false, &dg), &dg);
    CHECK_EQ(gw_memory_check_processes(many, false, &dg), GW_ERR_MEMORY);
    CHECK_FAILS(GW_ERR_MEMORY, &dg, "no room for the processes");
    gw_diags_release(&dg);
}

// SPDX-License-Identifier: Apache-2.0
// Memory of the process: what is free, what a cgroup forbids, and reserving an arena so that it
// cannot fail later.
//
// A memfd is not charged until touched, so an arena that does not fit would end the process by a
// signal in the middle of a step. Here the limits are read first and refused in words; then the
// pages are allocated with fallocate, which reports failure as an error; then they are mapped and
// touched.
#include "run/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h" /* gw_cgroup_memory_left */
#include "base/str.h"    /* gw_fmt_bytes, gw_str */

/* First integer of a small file; -1 when it cannot be read or says "max". */
static int64_t read_number(const char *path) {
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    char text[64] = "";
    char *got = fgets(text, sizeof text, f);
    fclose(f);
    if (!got) return -1;
    char *end = NULL;
    long long n = strtoll(text, &end, 10);
    return end == text ? -1 : (int64_t)n;
}

static int64_t meminfo(const char *proc, const char *key) {
    char path[600];
    snprintf(path, sizeof path, "%s/meminfo", proc);
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    char line[160];
    int64_t bytes = -1;
    size_t n = strlen(key);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            bytes = (int64_t)strtoll(line + n + 1, NULL, 10) * 1024;
    fclose(f);
    return bytes;
}

int64_t gw_memory_available_in(const char *proc, const char *cgroups, char *limit_name, int n) {
    char group[560];
    int64_t free = meminfo(proc, "MemAvailable");
    int64_t allowed = gw_cgroup_memory_left(proc, cgroups, group, (int)sizeof group);
    if (allowed >= 0 && (free < 0 || allowed < free)) {
        if (limit_name) snprintf(limit_name, (size_t)n, "cgroup %s", group);
        return allowed;
    }
    if (limit_name && free >= 0) snprintf(limit_name, (size_t)n, "memory");
    return free >= 0 ? free : INT64_MAX;
}

int64_t gw_memory_available(char *limit_name, int n) {
    return gw_memory_available_in(GW_PROC, GW_CGROUPS, limit_name, n);
}

int64_t gw_memory_pss(void) {
    FILE *f = fopen("/proc/self/smaps_rollup", "re");
    if (!f) return 0;
    char line[160];
    int64_t bytes = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "Pss:", 4) == 0) bytes = (int64_t)strtoll(line + 4, NULL, 10) * 1024;
    fclose(f);
    return bytes;
}

/* What a rank that trains takes besides its arenas: code, tables, what oneDNN compiles and OpenMP's
 * stacks. Measured as the peak of a cgroup, and as the sum of gw_memory_pss after warm-up, less the
 * arenas: 14 to 16 MB a rank on 2 and 4 ranks. */
static const int64_t PROCESS_BYTES = (int64_t)16 << 20;
static const int64_t BARE_PROCESS_BYTES = (int64_t)4 << 20; /* one that only runs collectives */

static void hint_room(int ranks, gw_diag *g, gw_diags *dg) {
    gw_diag_hint(dg, g,
                 "lower train.micro_batch or train.seq_len, or set recompute.policy%s; "
                 "`gradwright plan` shows what takes the bytes",
                 ranks > 1 ? ", layout.zero, or fewer ranks" : "");
}

/* Addresses that this process may still map. */
static int64_t address_space_left(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_AS, &l) != 0 || l.rlim_cur > INT64_MAX) return INT64_MAX;
    int64_t pages = read_number("/proc/self/statm");
    int64_t left = (int64_t)l.rlim_cur - (pages > 0 ? pages : 0) * sysconf(_SC_PAGESIZE);
    return left > 0 ? left : 0;
}

static gw_status check_addresses(int64_t bytes, const char *what, gw_diags *dg) {
    char need[32], have[32];
    int64_t left = address_space_left();
    if (bytes <= left) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "memory-short", (gw_where){0},
                             "no room for %s: %s needed, ulimit -v leaves %s of address space",
                             what, gw_fmt_bytes(need, bytes), gw_fmt_bytes(have, left));
    gw_diag_hint(dg, g, "raise ulimit -v, or lower train.micro_batch or train.seq_len");
    return GW_ERR_MEMORY;
}

/* What `ranks` processes take together; INT64_MAX where that overflows. */
static int64_t all_of(int64_t bytes, int64_t growth, int ranks) {
    int64_t all;
    bool over = __builtin_add_overflow(bytes, growth, &all) ||
                __builtin_mul_overflow(all, (int64_t)ranks, &all);
    return over ? INT64_MAX : all;
}

gw_status gw_memory_check(int64_t bytes, int ranks, const char *what, gw_diags *dg) {
    if (bytes <= 0) return GW_OK;
    char limit[600] = "memory", need[32], have[32], grows[32], each[128] = "";
    int64_t left = gw_memory_available(limit, (int)sizeof limit);
    /* How much this process has is asked only where it decides: the kernel walks all its pages. */
    if (all_of(bytes, PROCESS_BYTES, ranks) <= left) return check_addresses(bytes, what, dg);
    int64_t pss = gw_memory_pss(),
            growth = pss > 0 && pss < PROCESS_BYTES ? PROCESS_BYTES - pss : 0;
    int64_t all = all_of(bytes, growth, ranks);
    if (all <= left) return check_addresses(bytes, what, dg);
    gw_fmt_bytes(grows, growth);
    if (ranks > 1)
        snprintf(each, sizeof each, " (%d ranks of %s, and %s that each process grows by)", ranks,
                 gw_fmt_bytes(have, bytes), grows);
    else if (growth > 0)
        snprintf(each, sizeof each, " (%s that the process grows by included)", grows);
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "memory-short", (gw_where){0},
                             "no room for %s: %s needed%s, %s leaves %s (short by %lld bytes)",
                             what, gw_fmt_bytes(need, all), each, limit, gw_fmt_bytes(have, left),
                             (long long)(all - left));
    hint_room(ranks, g, dg);
    return GW_ERR_MEMORY;
}

gw_status gw_memory_check_processes(int ranks, bool trains, gw_diags *dg) {
    char limit[600] = "memory", each[32], need[32], have[32];
    int64_t bytes = trains ? PROCESS_BYTES : BARE_PROCESS_BYTES, all = bytes * ranks;
    int64_t left = gw_memory_available(limit, (int)sizeof limit);
    if (all <= left) return GW_OK;
    gw_diag *g = gw_diag_add(dg, GW_ERROR, GW_ERR_MEMORY, "memory-short", (gw_where){0},
                             "no room for the processes of %d ranks: %s needed (about %s each, "
                             "before any model), %s leaves %s",
                             ranks, gw_fmt_bytes(need, all), gw_fmt_bytes(each, bytes), limit,
                             gw_fmt_bytes(have, left));
    gw_diag_hint(dg, g, "run fewer ranks, or raise the limit");
    return GW_ERR_MEMORY;
}

gw_status gw_region_reserve(gw_region *r, int64_t bytes, const char *what, gw_diags *dg) {
    *r = (gw_region){.fd = -1};
    GW_TRY(gw_memory_check(bytes, 1, what, dg));
    int64_t size = bytes > 0 ? bytes : 1;
    r->fd = memfd_create("gradwright", MFD_CLOEXEC);
    if (r->fd < 0)
        return GW_FAIL(dg, GW_ERR_MEMORY, "memfd", "cannot create shared memory for %s: %s", what,
                       strerror(errno));
    int err = ftruncate(r->fd, size) != 0 ? errno : posix_fallocate(r->fd, 0, size);
    if (err == 0) {
        r->data =
            mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, 0);
        if (r->data == MAP_FAILED) err = errno;
    }
    if (err != 0) {
        close(r->fd);
        *r = (gw_region){.fd = -1};
        return GW_FAIL(dg, GW_ERR_MEMORY, "memory-reserve", "cannot reserve %lld bytes for %s: %s",
                       (long long)bytes, what, strerror(err));
    }
    r->bytes = bytes;
    return GW_OK;
}

void gw_region_release(gw_region *r) {
    if (r->data) munmap(r->data, (size_t)(r->bytes > 0 ? r->bytes : 1));
    if (r->fd >= 0) close(r->fd);
    *r = (gw_region){.fd = -1};
}

// SPDX-License-Identifier: Apache-2.0
// Limits that control groups (versions 1 and 2) put on this process. Every level from its own group
// to the root counts, since the tightest one binds. `proc` and `cgroups` are GW_PROC and
// GW_CGROUPS, or a test's own folders; `name` (n bytes, may be NULL) receives the group that binds,
// "" when none does.
#ifndef GW_BASE_CGROUP_H
#define GW_BASE_CGROUP_H

#include <stdint.h>

#define GW_PROC    "/proc"
#define GW_CGROUPS "/sys/fs/cgroup"

/* Which version governs this process: 1 or 2; 0 when there are no groups. */
int gw_cgroup_version(const char *proc, const char *cgroups);
/* Cores' worth of time; 0: no limit. */
double gw_cgroup_cpus(const char *proc, const char *cgroups, char *name, int n);
/* Processes that may still be started; -1: no limit. */
int64_t gw_cgroup_processes_left(const char *proc, const char *cgroups, char *name, int n);
/* Bytes allowed, and bytes that may still be taken (cache that can be dropped counts as free); -1:
 * no limit. */
int64_t gw_cgroup_memory(const char *proc, const char *cgroups, char *name, int n);
int64_t gw_cgroup_memory_left(const char *proc, const char *cgroups, char *name, int n);

#endif

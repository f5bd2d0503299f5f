// SPDX-License-Identifier: Apache-2.0
// What memory this process may use and does use.
#ifndef GW_RUN_MEMORY_H
#define GW_RUN_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

/* Bytes that can still be reserved: the least of available memory and what cgroup limits leave (v1
 * and v2, all levels). `limit_name`, if not NULL, receives which one ("memory", "cgroup /..."), a
 * static or `buf` string. */
int64_t gw_memory_available(char *limit_name, int n);
/* The same with /proc and the mount of cgroups elsewhere. */
int64_t gw_memory_available_in(const char *proc, const char *cgroups, char *limit_name, int n);
/* Proportional set size of this process, in bytes (0 when /proc does not tell). */
int64_t gw_memory_pss(void);

/* Is there room for `ranks` processes of this host to reserve `bytes` each, and to grow to what a
 * process takes besides? GW_ERR_MEMORY says what
 * is short, and what to do. */
GW_WARN_UNUSED gw_status gw_memory_check(int64_t bytes, int ranks, const char *what, gw_diags *dg);

/* Is there room for the processes of `ranks` ranks, before they are started? `trains`: what one
 * that trains takes besides its arenas, otherwise what one takes that only runs collectives. */
GW_WARN_UNUSED gw_status gw_memory_check_processes(int ranks, bool trains, gw_diags *dg);

/* Shared anonymous memory of `bytes` (a memfd, reserved and touched). */
typedef struct gw_region {
    void *data;
    int64_t bytes;
    int fd;
} gw_region;
GW_WARN_UNUSED gw_status gw_region_reserve(gw_region *r, int64_t bytes, const char *what,
                                           gw_diags *dg);
void gw_region_release(gw_region *r);

#endif

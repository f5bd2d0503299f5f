// SPDX-License-Identifier: Apache-2.0
// Timing collectives on the ranks of a run: what `bench collectives` and `calibrate` share.
#ifndef GW_CLI_COLLBENCH_H
#define GW_CLI_COLLBENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"  /* gw_status, gw_diags */
#include "comm/comm.h"  /* gw_comm, gw_coll */
#include "run/memory.h" /* gw_region */

enum { GW_COLLBENCH_SAMPLES = 40 }; /* at most */

/* Buffers of all ranks, shared, for data of up to max_bytes. */
typedef struct gw_collbench {
    gw_comm *comm;
    gw_region region;
    int handle;
    bool shared;
    int64_t max_bytes, scratch_bytes;
    int threads;
} gw_collbench;

typedef struct gw_collbench_time {
    int samples;
    double seconds; /* median of the samples; a sample is the slowest rank's mean of some runs */
    double least, spread; /* the least; (75th - 25th percentile) / median */
} gw_collbench_time;

/* What is timed: one tensor of `bytes`, an algorithm or NULL, in place or not. */
typedef struct gw_collbench_case {
    gw_coll_kind kind;
    gw_dtype dtype;
    gw_wire wire;
    const char *algorithm;
    int64_t bytes, per_host;
    bool in_place;
    int samples;      /* 1 .. GW_COLLBENCH_SAMPLES */
    double seconds_s; /* time to spend, about */
} gw_collbench_case;

/* Reserves and shares: source, destination and scratch. */
GW_WARN_UNUSED gw_status gw_collbench_open(gw_collbench *b, gw_comm *comm, int64_t max_bytes,
                                           int64_t scratch_bytes, gw_diags *dg);
/* The largest scratch that any algorithm wants for so much float32 data over the wire SAME. */
int64_t gw_collbench_scratch(const gw_comm *comm, int64_t bytes);
void gw_collbench_close(gw_collbench *b);

/* Can a collective of this kind be done in place (gw_coll_part)? */
bool gw_collbench_in_place(gw_coll_kind kind);
/* The collective of a case; `part` must outlive it. Sizes are rounded down to whole elements, and
 * for an all-to-all to a multiple of the ranks. */
gw_coll gw_collbench_coll(const gw_collbench *b, const gw_collbench_case *k, gw_coll_part *part);
/* Times it; all ranks call it together and get the same figures. */
GW_WARN_UNUSED gw_status gw_collbench_run(gw_collbench *b, const gw_collbench_case *k,
                                          gw_collbench_time *out, gw_diags *dg);
/* Runs it once on whole numbers: *wrong elements of all ranks differ from arithmetic; -1 when the
 * wire is lossy. */
GW_WARN_UNUSED gw_status gw_collbench_check(gw_collbench *b, const gw_collbench_case *k,
                                            int64_t *wrong, gw_diags *dg);
/* Every rank copies `bytes` of its own memory at the same time. */
GW_WARN_UNUSED gw_status gw_collbench_copies(gw_collbench *b, int64_t bytes, int samples,
                                             double seconds, gw_collbench_time *out, gw_diags *dg);
/* What a time is multiplied by to get bus bandwidth: 2(n-1)/n for an all-reduce, (n-1)/n for
 * gather, scatter and all-to-all, 1 for a broadcast. */
double gw_collbench_bus_factor(gw_coll_kind kind, int64_t ranks);

#endif

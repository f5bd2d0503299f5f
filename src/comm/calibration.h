// SPDX-License-Identifier: Apache-2.0
// The calibration file: what collectives took on a machine, written by `gradwright calibrate`.
//
// JSON, one object:
//   "version"   1
//   "machine"   {"cpu": text, "cores": n, "threads": n}   for people; a plan does not look at it
//   "rates"     {"latency_s", "bytes_per_s", "copy_bytes_per_s", "sum_bytes_per_s"}   all > 0
//   "times"     [{"kind": "all-reduce", "algorithm": "ring", "wire": "same", "dtype": "f32",
//                 "ranks": 2, "bytes": [1024, ...], "seconds": [1.2e-6, ...]}, ...]
//   "local"     what plan/calibrate.h keeps here; nothing of it matters to a collective
// bytes is the data of the whole collective, strictly rising; seconds are medians. Keys that are
// not known are refused. No two entries of `times` have the same kind, algorithm, wire, dtype and
// ranks.
#ifndef GW_COMM_CALIBRATION_H
#define GW_COMM_CALIBRATION_H

#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "comm/comm.h"  /* gw_coll */

typedef struct gw_calibration_curve {
    gw_coll_kind kind;
    const char *algorithm;
    gw_wire wire;
    gw_dtype dtype;
    int64_t ranks;
    int npoints;
    const int64_t *bytes;  /* [npoints], strictly rising, > 0 */
    const double *seconds; /* [npoints], > 0 */
} gw_calibration_curve;

typedef struct gw_calibration {
    const char *cpu;
    int cores, threads;
    double latency_s, bytes_per_s, copy_bytes_per_s, sum_bytes_per_s;
    int ncurves;
    const gw_calibration_curve *curves;
    const char *local; /* to be written as the member "local": JSON text, or NULL; never read */
} gw_calibration;

/* Reads and validates; everything lives in `a`. */
GW_WARN_UNUSED gw_status gw_calibration_read(const char *path, gw_calibration *out, gw_arena *a,
                                             gw_diags *dg);
/* To an output that a person names (base/output.h): "-" is `standard`. */
GW_WARN_UNUSED gw_status gw_calibration_write(const char *path, FILE *standard,
                                              const gw_calibration *c, gw_diags *dg);
/* The machine's facts with the file's rates and times: `c` must live as long as *m is used. */
void gw_calibration_apply(const gw_calibration *c, gw_coll_machine *m);
/* Seconds of a collective by an algorithm, or a negative number when nothing like it was measured.
 * Between two sizes the time is interpolated on logarithmic axes; below the smallest it is that of
 * the smallest, above the largest it grows with the bytes. */
double gw_calibration_seconds(const gw_calibration *c, const gw_coll *coll, const char *algorithm);

#endif

// SPDX-License-Identifier: Apache-2.0
// What was measured of a machine: how long each kernel took at so many shapes, in steps that ran
// there.
//
// `gradwright calibrate` trains small models of all families for a few steps and keeps, for each
// op and shape, the median of its times, alone on the machine and with several ranks side by side.
// The time of an op of another program is that of the nearest shapes that were measured, in the
// logarithm of their extents, in proportion to its work. So what the simulator knows of this
// machine was measured through the executor and the kernels that a run uses.
//
// The file is that of comm/calibration.h; everything here is its member "local":
//   "host", "cpu", "isa", "date", "version"   of the machine, and when by what
//   "cores", "memory_bytes", "memory_bytes_per_s", "storage_read", "storage_write"
//   "data"    {"tokenize_bytes_per_s", "pipeline_bytes_per_s", "loader_tokens_per_s"}, of a core;
//             files of earlier versions have it not
//   "sides"   [{"ranks", "threads", "step_s", "op_s"}]: with so many ranks side by side, what a
//             step takes beside its ops, and an op beside its kernel
//   "shapes"  [{"op", "kernel", "types", "ranks", "times": [[x.., work, seconds, runs], ...]}]
#ifndef GW_PLAN_CALIBRATE_H
#define GW_PLAN_CALIBRATE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h> /* FILE */

#include "base/arena.h"       /* gw_arena */
#include "base/diag.h"        /* gw_status, gw_diags */
#include "comm/calibration.h" /* gw_calibration */
#include "ir/opdef.h"         /* gw_graph, gw_op */
#include "plan/dataplan.h"    /* gw_data_rates */
#include "plan/machine.h"     /* gw_machine_spec */

enum { GW_TIMING_DIMS = 4, GW_TIMING_TYPES = 112, GW_TIMING_SIDES = 16 };

/* An op as far as its time depends on it. */
typedef struct gw_timing_shape {
    char
        types[GW_TIMING_TYPES]; /* "bf16,bf16>bf16": dtypes of inputs and outputs, - where absent */
    /* Extents, at least 1. Of a product rows, columns, the summed length; of attention heads of
     * all sequences, length, head size, FLOPs of a head; of a net of experts their number, width,
     * model width, FLOPs; of convolutions pixels of the result, channels out and in, pixels of a
     * filter; of Muon's directions rows and columns; of everything else
     * bytes, row length, elements of output, bytes of the program's arena. */
    double x[GW_TIMING_DIMS];
    double work; /* FLOPs, or bytes: what the time is in proportion to */
} gw_timing_shape;
void gw_timing_shape_of(const gw_graph *g, const gw_op *o, int64_t rank, gw_timing_shape *s);
/* Of a collective: types "f32 direct", bytes. */
void gw_timing_coll_shape(const gw_coll *c, gw_timing_shape *s);

/* One op at one shape. Collectives are ops too, called "all-reduce" and so on; what they wait for
 * the slower rank is in their time. */
typedef struct gw_timing {
    const char *op, *kernel;
    gw_timing_shape shape;
    int ranks; /* side by side on the machine */
    int runs;  /* that `seconds` is the median of */
    double seconds;
} gw_timing;

/* With so many ranks side by side. */
typedef struct gw_timing_side {
    int ranks, threads; /* threads: of each */
    double step_s;      /* a step's own, beside its ops: batch, counters, agreement of ranks */
    double op_s;        /* an op's, beside its kernel */
} gw_timing_side;

typedef struct gw_timings {
    const char *path; /* of the file */
    const char *host, *cpu, *isa, *date, *version;
    int cores;
    double memory_bytes, memory_bytes_per_s; /* with all cores; 0: not measured */
    double storage_read, storage_write;      /* bytes/s; 0: not measured */
    gw_data_rates data;                      /* of a core; 0: not measured */
    gw_timing_side sides[GW_TIMING_SIDES];
    int nsides;
    gw_timing *timings; /* [n]; those of one op, types and ranks are neighbours */
    int n;
    gw_calibration comm;
} gw_timings;

/* Sorts the rates as they have to be. */
void gw_timings_sort(gw_timings *r);

/* ---- the file (calibrate_file.c) ---- */
/* Reads and validates; everything lives in `a`. A file without "local", as older ones are, is
 * GW_ERR_FORMAT. */
GW_WARN_UNUSED gw_status gw_timings_read(const char *path, gw_arena *a, gw_timings *out,
                                         gw_diags *dg);
/* Writes the whole file, r->comm included, to an output that a person names (base/output.h). */
GW_WARN_UNUSED gw_status gw_timings_write(const char *path, FILE *standard, const gw_timings *r,
                                          gw_diags *dg);
/* Is it a calibration of the machine that this process runs on? Otherwise `why` says what differs.
 */
bool gw_timings_fit_here(const gw_timings *r, char why[160]);
/* The name of this host, the model of its processor ("unknown" where it is not told). */
void gw_timings_host(char host[128], char cpu[128]);

/* ---- asking it ---- */
/* Seconds of one run of op o of g, as gw_machine_op_seconds; `ranks` run side by side. An op that
 * was never measured takes what its FLOPs and bytes take at the best rates that were. */
double gw_timings_op_seconds(const gw_timings *r, const gw_graph *g, const gw_op *o, int64_t rank,
                             int ranks);
/* The same by name and shape; below 0: nothing of this name was measured. */
double gw_timings_shape_seconds(const gw_timings *r, const char *op, const gw_timing_shape *s,
                                int ranks);
double gw_timings_coll_seconds(const gw_timings *r, const gw_coll *c, int ranks);
double gw_timings_send_seconds(const gw_timings *r, int64_t bytes, int ranks);
/* What a step takes beside its ops. */
double gw_timings_step_seconds(const gw_timings *r, int ranks);
/* FLOP/s of the fastest product of this dtype, of a rank alone on the machine; 0: none. */
double gw_timings_peak(const gw_timings *r, gw_dtype t);

/* ---- as a machine (machine_this.c) ---- */
#define GW_CALIBRATION_FILE "calibration.json"
/* The machine of a calibration file. `here`: it must be of the machine that this process runs on
 * (GW_ERR_CONFIG otherwise, with whose it is); without it another machine's is named as such. */
GW_WARN_UNUSED gw_status gw_machine_measured(const char *path, bool here, gw_arena *a,
                                             gw_machine_spec *out, gw_diags *dg);
/* A rank's share of a measured machine of which `ranks` run side by side: peaks and bandwidth.
 * Leaves other machines as they are. */
void gw_machine_share(gw_machine_spec *m, int64_t ranks);

#endif

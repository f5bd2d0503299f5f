// SPDX-License-Identifier: Apache-2.0
// What `calibrate` measures of ops: small models, trained for a few steps.
#ifndef GW_CLI_CALIBRATE_OPS_H
#define GW_CLI_CALIBRATE_OPS_H

#include "cli/command.h"    /* gw_cli */
#include "comm/comm.h"      /* gw_comm */
#include "plan/calibrate.h" /* gw_timing_shape, gw_timings */

enum { GW_CALIB_FOUND = 24576, GW_CALIB_STEPS = 256 };

/* An op at a shape, as it was found; like gw_timing, but with its texts inside. */
typedef struct gw_calib_found {
    char op[32], kernel[40];
    gw_timing_shape shape;
    int ranks, program, runs; /* program: a number of its own for each program of so many ranks */
    double seconds;
} gw_calib_found;

/* A step of one program: what it took beside its ops, and how many of these it ran. */
typedef struct gw_calib_step {
    int ranks, program, threads;
    double rest_s, ops;
} gw_calib_step;

/* In memory that parent and ranks share; only rank 0 writes. */
typedef struct gw_calib_ops {
    int n, nsteps, programs;
    gw_calib_found found[GW_CALIB_FOUND];
    gw_calib_step steps[GW_CALIB_STEPS];
} gw_calib_ops;

/* Writes the data that the models are trained on below `dir`, which exists. */
GW_WARN_UNUSED gw_status gw_calib_data(const char *dir, gw_diags *dg);
/* Trains each model that this number of ranks has, in two rounds of about `seconds` in all, and
 * adds what was found. `comm` NULL: alone. All ranks call it. A model that cannot be laid over so
 * many ranks is left out. */
GW_WARN_UNUSED gw_status gw_calib_run(gw_cli *cli, gw_comm *comm, const char *dir, double seconds,
                                      gw_calib_ops *out);
/* Everything that was found, as timings; host, date and what is measured otherwise are the
 * caller's. Texts are those of `f`. */
void gw_calib_timings(const gw_calib_ops *f, gw_arena *a, gw_timings *out);

#endif

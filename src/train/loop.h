// SPDX-License-Identifier: Apache-2.0
// A whole training run: steps, validations, checkpoints, and everything in the run directory.
#ifndef GW_TRAIN_LOOP_H
#define GW_TRAIN_LOOP_H

#include <jansson.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/diag.h"     /* gw_status, gw_diags */
#include "comm/comm.h"     /* gw_comm */
#include "train/runfile.h" /* gw_runfile */

/* The two latest saves that were begun, in memory shared with a process that watches the run: which
 * of them is committed the run directory tells. */
typedef struct gw_train_saves {
    struct {
        _Atomic int64_t step; /* that was saved; -1: none */
        _Atomic int64_t ns;   /* that this call spent in the steps up to it */
    } of[2];
} gw_train_saves;

typedef struct gw_train_opts {
    const char *out_dir; /* the run directory; made if needed */
    bool resume;         /* continue from its newest whole checkpoint; begins anew if it has none */
    bool fresh;          /* resuming: begins anew also where there are some and none is whole */
    bool restarted;      /* a run that is being watched: what stands there is its own */
    int64_t until;       /* stop after this step, validated and saved; 0 = the run file's steps */
    FILE *progress;      /* the live line and what people read; NULL: silent */
    /* Read between steps: not 0 means finish this step, save, stop. NULL: never. */
    const volatile sig_atomic_t *stop;
    /* Several ranks: each calls gw_train_run with the same run file and options. Rank 0 writes the
     * run directory, each its own trace. NULL: one rank. */
    gw_comm *comm;
    gw_train_saves *saves; /* written by rank 0; NULL: nobody watches */
} gw_train_opts;

/* Trains as the run file says. Refused (GW_ERR_USAGE) when out_dir already holds a run and `resume`
 * is false, and while another process trains into it. *summary receives what summary.json holds,
 * also when the run was stopped: a new reference, or NULL on errors and on ranks other than 0.
 * GW_ERR_INTERRUPTED: stopped by `stop` of any rank, saved, resumable. On GW_ERR_NUMERIC and
 * failures to write, earlier checkpoints are intact. */
GW_WARN_UNUSED gw_status gw_train_run(gw_runfile *rf, const gw_train_opts *opts, json_t **summary,
                                      gw_diags *dg);

#endif

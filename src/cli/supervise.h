// SPDX-License-Identifier: Apache-2.0
// A run of local ranks that is started again when it fails.
#ifndef GW_CLI_SUPERVISE_H
#define GW_CLI_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "cli/command.h"   /* gw_cli */
#include "train/elastic.h" /* gw_elastic_source */
#include "train/loop.h"    /* gw_train_saves */

/* One start of the run. */
typedef struct gw_supervise_attempt {
    int ranks; /* as given at first, fewer later; 0: one */
    bool resume;
    bool again;             /* not the first */
    bool any_dp;            /* fewer ranks than at first: layout.dp follows them */
    gw_elastic_batch batch; /* of the first start, for one that finds no checkpoint */
    gw_train_saves *saves;
    int report; /* a pipe's end for gw_supervise_report */
} gw_supervise_attempt;

typedef struct gw_supervise_opts {
    const gw_elastic_source *source;
    const char *out_dir;
    int ranks;        /* --ranks; 0: not given */
    bool resume;      /* the first start continues what is there */
    int64_t retries;  /* restarts at most; -1: as long as each second one gets further */
    int64_t regrow_s; /* with fewer ranks than --ranks: after so long all are tried again; 0: never.
                       * Each time that they cannot be started doubles it, to 16 times. */
} gw_supervise_opts;

/* Forks a process for each start and calls body(cli, attempt, user) in it, alone, with the signals
 * of gw_launch_opts.listens blocked; its status is then that process's, in which *in_attempt is set
 * and which is to return to main. The process that watches starts the run again, resumed, when it
 * failed in a way that another try may mend, with fewer ranks where some could not be started, and
 * with all of them again later. It passes requests to stop on, ends with the run's status
 * (cli->exit_code), prints how much of the time was of use, and adds "supervise" to summary.json
 * (printed with --json). GW_ERR_PEER: given up. Call it before any thread exists. */
GW_WARN_UNUSED gw_status gw_supervise(gw_cli *cli, const gw_supervise_opts *o, bool *in_attempt,
                                      gw_status (*body)(gw_cli *cli, const gw_supervise_attempt *a,
                                                        void *user),
                                      void *user);

/* How this process of an attempt ended, and its first error: each rank and the one that watched
 * them says so, before it returns to main. */
void gw_supervise_report(const gw_supervise_attempt *a, gw_status st, const gw_diags *dg);

#endif

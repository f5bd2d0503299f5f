// SPDX-License-Identifier: Apache-2.0
// Running a command's work on several ranks.
#ifndef GW_CLI_RANKS_H
#define GW_CLI_RANKS_H

#include <signal.h> /* sig_atomic_t */

#include "cli/command.h" /* gw_cli */
#include "comm/comm.h"   /* gw_comm */

/* For the tables of commands that do. */
#define GW_OPTION_RANKS                                                                            \
    {                                                                                              \
        "ranks", 'n', "N", "run on N local ranks (mpirun and srun start their own)", GW_OPT_INT,   \
            NULL                                                                                   \
    }

enum { GW_CLI_MOST_RANKS = 1048576 };

/* "world" where the command has --world and it is given, otherwise "ranks". */
const char *gw_cli_ranks_option(const gw_cli *cli);
/* --ranks N or --world N, 0 when neither is given; GW_ERR_USAGE for less than 1. */
GW_WARN_UNUSED gw_status gw_cli_ranks(gw_cli *cli, int *ranks);

/* Calls body(cli, comm, user) once, with comm NULL, or on each of the ranks that --ranks, mpirun or
 * srun asks for. `before` is how far the command has come without ranks: where it has failed and
 * the ranks are others' (mpirun), they agree on who says so, and body is not called. Returns the
 * status of this process's part; in the process that only watches local ranks, what their exit
 * code means, with cli->exit_code set to it. Of what goes wrong on all ranks
 * one keeps its diagnostics. Ranks above 0 are quiet. Call it before any thread exists. */
GW_WARN_UNUSED gw_status gw_cli_on_ranks(gw_cli *cli, int ranks, double timeout_s, gw_status before,
                                         gw_status (*body)(gw_cli *cli, gw_comm *comm, void *user),
                                         void *user);

/* The same for a command that stops in order: the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP sets
 * *stop, the second ends it at once (gw_launch_listen). */
GW_WARN_UNUSED gw_status gw_cli_on_ranks_until(gw_cli *cli, int ranks, double timeout_s,
                                               gw_status before,
                                               gw_status (*body)(gw_cli *cli, gw_comm *comm,
                                                                 void *user),
                                               void *user, volatile sig_atomic_t *stop);

#endif

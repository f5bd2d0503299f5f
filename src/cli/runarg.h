// SPDX-License-Identifier: Apache-2.0
// A run file named on the command line, with the command's --set overrides applied.
#ifndef GW_CLI_RUNARG_H
#define GW_CLI_RUNARG_H

#include "cli/command.h"   /* gw_cli */
#include "train/runfile.h" /* gw_runfile */

/* Loads `path` ("-" is standard input) with every --set of the command line (the command's option
 * table must hold GW_OPTION_SET), for the ranks that are known. The caller releases rf with
 * gw_runfile_release, also on failure.
 */
GW_WARN_UNUSED gw_status gw_cli_runfile(gw_cli *cli, const char *path, gw_runfile *rf);

/* How many ranks the command line or the launcher says there are; 0: neither does, or the command
 * has no --ranks. A run file's batch is judged by it. */
int64_t gw_cli_known_ranks(const gw_cli *cli);

/* A path that stands on the command line must name something: a slip of the fingers is a usage
 * error, whatever would have been read there. */
GW_WARN_UNUSED gw_status gw_cli_need_path(gw_cli *cli, const char *path);

#endif

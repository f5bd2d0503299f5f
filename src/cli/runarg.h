// SPDX-License-Identifier: Apache-2.0
// A run file named on the command line, with the command's --set overrides applied.
#ifndef GW_CLI_RUNARG_H
#define GW_CLI_RUNARG_H

#include "cli/command.h"   /* gw_cli */
#include "train/elastic.h" /* gw_elastic_source */
#include "train/runfile.h" /* gw_runfile */

/* Loads `path` ("-" is standard input) with every --set of the command line (the command's option
 * table must hold GW_OPTION_SET), for the ranks that are known. The caller releases rf with
 * gw_runfile_release, also on failure.
 */
GW_WARN_UNUSED gw_status gw_cli_runfile(gw_cli *cli, const char *path, gw_runfile *rf);

/* The run file at `path` as text, with every --set: to be loaded by gw_elastic_load, as often as
 * need be. In the command's arena. */
GW_WARN_UNUSED gw_status gw_cli_source(gw_cli *cli, const char *path, gw_elastic_source *out);

/* How many ranks the command line or the launcher says there are; 0: neither does, or the command
 * has no --ranks. A run file's batch is judged by it. */
int64_t gw_cli_known_ranks(const gw_cli *cli);

/* What --set says, in order. --world stands before it as "layout.dp=auto": how many ranks share the
 * batch then follows from the world. Returns the count; in the command's arena. */
int gw_cli_sets(const gw_cli *cli, const char *const **sets);

/* "a=1 b=2" as it is typed: "--set a=1 --set b=2". */
void gw_cli_print_sets(const char *words, FILE *out);

/* A path that stands on the command line must name something: a slip of the fingers is a usage
 * error, whatever would have been read there. */
GW_WARN_UNUSED gw_status gw_cli_need_path(gw_cli *cli, const char *path);
/* The error of that, where it is known that there is nothing. */
gw_status gw_cli_nothing_at(gw_cli *cli, const char *path);

#endif

// SPDX-License-Identifier: Apache-2.0
// A run file named on the command line, with the command's --set overrides applied.
#ifndef GW_CLI_RUNARG_H
#define GW_CLI_RUNARG_H

#include "cli/command.h"   /* gw_cli */
#include "train/runfile.h" /* gw_runfile */

/* Loads `path` ("-" is standard input) with every --set of the command line (the command's option
 * table must hold GW_OPTION_SET). The caller releases rf with gw_runfile_release, also on failure.
 */
GW_WARN_UNUSED gw_status gw_cli_runfile(gw_cli *cli, const char *path, gw_runfile *rf);

/* The same, but `what` may also be a model: a directory or a .gguf file is taken as model.path, a
 * name of a preset as model.preset, with defaults for the rest and --set applied. A file is a run
 * file. */
GW_WARN_UNUSED gw_status gw_cli_runfile_or_model(gw_cli *cli, const char *what, gw_runfile *rf);

#endif

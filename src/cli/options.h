// SPDX-License-Identifier: Apache-2.0
// Options that every command takes, and the walk over a command's whole option table.
#ifndef GW_CLI_OPTIONS_H
#define GW_CLI_OPTIONS_H

#include "cli/command.h" /* gw_option */

/* --help, --quiet, --verbose, --no-color, in this order. */
enum { GW_GLOBAL_HELP, GW_GLOBAL_QUIET, GW_GLOBAL_VERBOSE, GW_GLOBAL_NO_COLOR, GW_GLOBAL_COUNT };
extern const gw_option gw_global_options[GW_GLOBAL_COUNT];

/* The program's own: only before a command's name. */
extern const gw_option gw_version_option;

/* "  -o, --out DIR" without the help text, into buf. Returns the length. */
int gw_option_spell(const gw_option *o, char *buf, size_t size);

#endif

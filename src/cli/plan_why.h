// SPDX-License-Identifier: Apache-2.0
// `plan --why tp|cp`: the explanations of a layout, for the run that a plan is of.
#ifndef GW_CLI_PLAN_WHY_H
#define GW_CLI_PLAN_WHY_H

#include <jansson.h>

#include "cli/planarg.h" /* gw_target, gw_cli */

/* Prints the explanation `topic` ("tp" or "cp") on the machine of --hardware. With --memory, of cp:
 * and the smallest cp whose plan fits in it, which compiles the whole step for each degree. */
GW_WARN_UNUSED gw_status gw_cli_print_why(gw_cli *cli, const gw_target *t, const char *topic);
/* Adds "tp": [...], or "cp": [...] and with --memory "fits": [...], to the object *out; NULL: to a
 * new one, a new reference also on an error. */
GW_WARN_UNUSED gw_status gw_cli_why_json(gw_cli *cli, const gw_target *t, const char *topic,
                                         json_t **out);

#endif

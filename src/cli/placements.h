// SPDX-License-Identifier: Apache-2.0
// The table of what tensor parallelism cuts, for commands that show a layout.
#ifndef GW_CLI_PLACEMENTS_H
#define GW_CLI_PLACEMENTS_H

#include <jansson.h>
#include <stdio.h>

#include "model/model.h"   /* gw_model */
#include "train/runfile.h" /* gw_runfile */

/* A line for each kind of parameter: which dimension is cut over layout.tp and how much of it a
 * rank has; each line begins with `margin`. Nothing on one tensor-parallel rank. */
void gw_cli_print_placements(const gw_runfile *rf, const gw_model *m, const char *margin,
                             FILE *out);
/* The same as a list; a new reference. */
json_t *gw_cli_placements_json(const gw_runfile *rf, const gw_model *m);

#endif

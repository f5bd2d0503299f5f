// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a planned step takes: who writes what, computed without running.
#ifndef GW_CLI_PLAN_CHECKPOINT_H
#define GW_CLI_PLAN_CHECKPOINT_H

#include <jansson.h>
#include <stdio.h>

#include "ckpt/plan.h"   /* gw_ckpt_size */
#include "cli/planarg.h" /* gw_planned */

/* Of the programs of all ranks; tables in `a`. */
gw_ckpt_size gw_cli_plan_checkpoint(const gw_planned *p, gw_arena *a);
void gw_cli_plan_checkpoint_print(const gw_ckpt_size *z, FILE *out);
/* {"bytes", "files", "chunks", "largest_bytes", "largest_rank", ..} */
json_t *gw_cli_plan_checkpoint_json(const gw_ckpt_size *z);

#endif

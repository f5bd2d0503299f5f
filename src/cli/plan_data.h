// SPDX-License-Identifier: Apache-2.0
// The data of a planned run: what `plan` says of tokenizing, loading and storage.
#ifndef GW_CLI_PLAN_DATA_H
#define GW_CLI_PLAN_DATA_H

#include "cli/plan_view.h" /* gw_plan_view */
#include "plan/dataplan.h" /* gw_dataplan */

/* False: the run reads images, and nothing is said. `checkpoint_bytes` of one checkpoint. */
bool gw_cli_plan_data(const gw_plan_view *v, int64_t checkpoint_bytes, gw_dataplan *out);

#endif

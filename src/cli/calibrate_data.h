// SPDX-License-Identifier: Apache-2.0
// What `calibrate` measures of data: tokenizing, the pipeline, the loader.
#ifndef GW_CLI_CALIBRATE_DATA_H
#define GW_CLI_CALIBRATE_DATA_H

#include "base/diag.h"     /* gw_status, gw_diags */
#include "plan/dataplan.h" /* gw_data_rates */

/* Rates of one core, in CPU time, from some seconds of work below `dir`, which exists and is left
 * as it was. Call it from the only thread that works. */
GW_WARN_UNUSED gw_status gw_calib_data_rates(const char *dir, gw_data_rates *out, gw_diags *dg);

#endif

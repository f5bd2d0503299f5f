// SPDX-License-Identifier: Apache-2.0
// `gradwright data prove RUN1 RUN2`: did two runs consume the same data?
#ifndef GW_CLI_DATA_PROVE_H
#define GW_CLI_DATA_PROVE_H

#include "base/diag.h"   /* gw_status */
#include "cli/command.h" /* gw_cli */

/* cli->args[0] is "prove"; the runs are args[1] and args[2] (their number is not checked yet). */
GW_WARN_UNUSED gw_status gw_data_prove_run(gw_cli *cli);

#endif

// SPDX-License-Identifier: Apache-2.0
// `plan RUN_DIR`: what was planned of a run beside what it measured, and what explains the
// difference.
#ifndef GW_CLI_PLAN_RUN_H
#define GW_CLI_PLAN_RUN_H

#include "cli/planarg.h"  /* gw_cli, gw_target */
#include "plan/machine.h" /* gw_machine_spec */

/* Does the directory hold a run (config.yaml and summary.json)? */
bool gw_cli_is_run(const char *dir);
/* Compiles the run's step again, simulates it on the machine of --hardware, or on this one where it
 * is calibrated, and prints it (--json: as an object) beside the run's own figures. */
GW_WARN_UNUSED gw_status gw_cli_plan_run(gw_cli *cli, const char *dir);

/* The machine that this process runs on, where it is calibrated: by layout.calibration, or by the
 * file that `calibrate` writes into the working directory. *stated false: there is none, or it is
 * of another machine (the log says so), or the run has more ranks than there are cores. */
GW_WARN_UNUSED gw_status gw_cli_machine_here(gw_cli *cli, const gw_target *t, gw_machine_spec *m,
                                             bool *stated);

#endif

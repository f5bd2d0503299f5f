// SPDX-License-Identifier: Apache-2.0
// `plan --hardware`: the step of a plan, simulated on the machine that the command line names.
#ifndef GW_CLI_PLAN_SIM_H
#define GW_CLI_PLAN_SIM_H

#include "cli/planarg.h"  /* gw_planned, gw_target, gw_cli */
#include "plan/simplan.h" /* gw_simplan */

/* For the command's table. */
#define GW_OPTION_FAULTS                                                                           \
    {                                                                                              \
        "faults", 0, "KEY=X[,..]",                                                                 \
            "with --hardware: straggler=1.2, jitter=0.05, slow-link=0.5, hot-expert=2, stall=0.1", \
            GW_OPT_STRING, NULL                                                                    \
    }

/* The machine of --hardware, in the command's arena. *stated false: none is given. */
GW_WARN_UNUSED gw_status gw_cli_machine(gw_cli *cli, gw_machine_spec *m, bool *stated);
/* Simulates the step of `p` with the faults of --faults; `p` and `m` outlive it. */
GW_WARN_UNUSED gw_status gw_cli_simulate(gw_cli *cli, const gw_target *t, const gw_planned *p,
                                         const gw_machine_spec *m, bool timeline, gw_simplan *out);
/* Writes the simulated step for Perfetto, of the form of a run's trace.json; path "-" is
 * `standard`. `p` was made with timeline. */
GW_WARN_UNUSED gw_status gw_cli_trace(const gw_simplan *p, const char *path, FILE *standard,
                                      gw_diags *dg);

#endif

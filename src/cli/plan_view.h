// SPDX-License-Identifier: Apache-2.0
// What `plan` has found out, for those who print, draw or write it.
#ifndef GW_CLI_PLAN_VIEW_H
#define GW_CLI_PLAN_VIEW_H

#include "cli/plan_fit.h" /* gw_fit */
#include "cli/planarg.h"  /* gw_target, gw_planned */
#include "plan/simplan.h" /* gw_simplan */

typedef struct gw_plan_view {
    const gw_target *t;
    const gw_planned *p;
    const gw_ledger *l;       /* of the rank with most bytes */
    const gw_machine_spec *m; /* as stated; NULL: none */
    const gw_simplan *sim;    /* the step on it, with timeline and trace where an output asks for
                                 them; NULL: no machine is stated */
    const gw_simplan *axes;   /* what moves over each axis: sim, or without a machine the same with
                                 no times; NULL on one rank */
    const gw_fit *fit;        /* the verdict; available_bytes 0: no memory is stated */
    const char *limit;        /* whose memory that is, for people */
} gw_plan_view;

#endif

// SPDX-License-Identifier: Apache-2.0
// A run file's text to its ledger, for tests: the same way as the command goes.
#ifndef GW_TESTS_PLANNED_H
#define GW_TESTS_PLANNED_H

#include "plan/ledger.h" /* gw_ledger */
#include "plan/memo.h"   /* gw_memo */
#include "train/setup.h" /* gw_setup */

typedef struct planned {
    gw_diags dg;
    gw_runfile rf;
    gw_setup setup;
    gw_memo memo;
    gw_graph step, valid;
    gw_compile_report report;
    gw_ledger ledger;
} planned;

/* Compiles the step (and with `valid` the validation program) of a run file given as text with
 * printf arguments. Fails the test on any error. */
void planned_init(planned *p, bool valid, gw_ledger_fixed fixed, const char *fmt, ...)
    GW_PRINTF(4, 5);
void planned_release(planned *p);

#define PLAN(p, ...) planned_init((p), false, (gw_ledger_fixed){0}, __VA_ARGS__)

/* FLOPs of a step that ops of this name do. */
double planned_flops(const planned *p, const char *op);

#endif

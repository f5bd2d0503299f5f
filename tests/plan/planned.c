// SPDX-License-Identifier: Apache-2.0
// Compiling for tests of the plan.
#include "planned.h"

#include <stdarg.h>
#include <string.h>

#include "harness.h"

void planned_init(planned *p, bool valid, gw_ledger_fixed fixed, const char *fmt, ...) {
    memset(p, 0, sizeof *p);
    gw_diags_init(&p->dg);
    gw_str text = {0};
    va_list ap;
    va_start(ap, fmt);
    gw_str_vprintf(&text, fmt, ap);
    va_end(ap);
    CHECK_OK(
        gw_runfile_parse(&p->rf, "test.yaml", gw_str_c(&text), (int64_t)text.len, NULL, 0, &p->dg),
        &p->dg);
    CHECK_OK(gw_setup_init(&p->setup, &p->rf, false, &p->dg), &p->dg);
    CHECK_OK(gw_setup_ranks(&p->setup, NULL, &p->dg), &p->dg);
    gw_memo_init(&p->memo, &p->setup.machine);
    p->setup.train.workspace = p->setup.forward.workspace = gw_memo_workspace;
    p->setup.train.workspace_user = p->setup.forward.workspace_user = &p->memo;
    CHECK_OK(gw_setup_program(&p->setup, true, NULL, &p->step, &p->report, &p->dg), &p->dg);
    if (valid) CHECK_OK(gw_setup_program(&p->setup, false, NULL, &p->valid, NULL, &p->dg), &p->dg);
    gw_ledger_init(&p->ledger, &(gw_ledger_input){.program = &p->step,
                                                  .report = &p->report,
                                                  .valid = valid ? &p->valid : NULL,
                                                  .model = &p->setup.model,
                                                  .machine = &p->setup.machine,
                                                  .comm = &p->setup.facts.comm,
                                                  .fixed = fixed});
    gw_str_release(&text);
}

void planned_release(planned *p) {
    gw_ledger_release(&p->ledger);
    gw_graph_release(&p->step);
    if (p->valid.table) gw_graph_release(&p->valid);
    gw_memo_release(&p->memo);
    gw_setup_release(&p->setup);
    gw_runfile_release(&p->rf);
    gw_diags_release(&p->dg);
}

double planned_flops(const planned *p, const char *op) {
    double sum = 0;
    for (int i = 0; i < p->ledger.nkernels; i++)
        if (strcmp(p->ledger.kernels[i].op, op) == 0) sum += p->ledger.kernels[i].flops;
    return sum;
}

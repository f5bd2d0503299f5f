// SPDX-License-Identifier: Apache-2.0
// The plan of the programs that run: the ledger of src/plan, read off the executors' own graphs, so
// that what a run directory calls planned is what `gradwright plan` prints for the same run file.
#include "file/json.h" /* gw_json_write_file */
#include "train/report.h"

void gw_report_ledger(const gw_session *s, gw_ledger *l) {
    gw_ledger_input in = {.program = gw_exec_graph(s->x),
                          .report = &s->report,
                          .valid = s->valid.x ? gw_exec_graph(s->valid.x) : NULL,
                          .model = &s->setup.model,
                          .machine = &s->setup.machine,
                          .comm = &s->setup.facts.comm};
    in.fixed.data_bytes = s->loader ? gw_loader_bytes(s->loader)
                                    : gw_feed_bytes(&s->setup.model, s->rf->train.micro_batch,
                                                    s->rf->data.valid != NULL);
    gw_ledger_init(l, &in);
}

gw_status gw_report_plan(const gw_session *s, const char *path, gw_diags *dg) {
    gw_ledger l;
    gw_report_ledger(s, &l);
    json_t *o = gw_plan_json(&l);
    gw_status st = gw_json_write_file(path, o, 2, dg);
    json_decref(o);
    gw_ledger_release(&l);
    return st;
}

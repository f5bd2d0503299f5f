// SPDX-License-Identifier: Apache-2.0
// The plan of the programs that run: the ledger of src/plan, read off the executors' own graphs, so
// that what a run directory calls planned is what `gradwright plan` prints for the same run file.
// Of a pipeline rank 0 compiles the programs of the other ranks once more, to have all ledgers side
// by side.
#include "file/json.h"     /* gw_json_write_file */
#include "plan/pipeplan.h" /* gw_pipeplan */
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

gw_status gw_report_shared_init(gw_report_shared *w, const gw_setup *s, gw_diags *dg) {
    w->validates = s->rf->data.valid != NULL;
    GW_TRY(gw_setup_shared(s, true, &w->step, dg));
    if (!w->validates) return GW_OK;
    gw_status st = gw_setup_shared(s, false, &w->valid, dg);
    if (st != GW_OK) gw_graph_release(&w->step);
    return st;
}

void gw_report_shared_release(gw_report_shared *w) {
    gw_graph_release(&w->step);
    if (w->validates) gw_graph_release(&w->valid);
}

gw_status gw_report_rank_ledger(const gw_setup *s, const gw_report_shared *w, int64_t data_bytes,
                                const gw_ledger *first, gw_ledger *l, gw_graph *out,
                                gw_compile_report *report, gw_diags *dg) {
    gw_graph step, valid;
    bool validates = w->validates;
    GW_TRY(gw_setup_rank(s, true, &w->step, NULL, &step, report, dg));
    if (validates) {
        gw_status st = gw_setup_rank(s, false, &w->valid, NULL, &valid, NULL, dg);
        if (st != GW_OK) {
            gw_graph_release(&step);
            return st;
        }
    }
    gw_ledger_input in = {.program = &step,
                          .report = report,
                          .valid = validates ? &valid : NULL,
                          .model = &s->model,
                          .machine = &s->machine,
                          .comm = &s->facts.comm,
                          .first = first,
                          .fixed = {.data_bytes = data_bytes}};
    gw_ledger_init(l, &in);
    if (validates) gw_graph_release(&valid);
    if (out)
        *out = step;
    else
        gw_graph_release(&step);
    return GW_OK;
}

/* The ledger of another rank of the pipeline, by compiling what it compiles. */
static gw_status other_ledger(const gw_session *s, const gw_report_shared *w, int rank,
                              const gw_ledger *first, gw_ledger *l, gw_diags *dg) {
    gw_setup one = s->setup;
    gw_compile_report report = {0};
    one.stage_rank = rank;
    return gw_report_rank_ledger(&one, w, first->fixed.data_bytes, first, l, NULL, &report, dg);
}

static gw_status write_json(const gw_ledger *l, const char *path, gw_diags *dg) {
    json_t *o = gw_plan_json(l);
    gw_status st = gw_json_write_file(path, o, 2, dg);
    json_decref(o);
    return st;
}

/* Of a pipeline: that of the rank with most bytes, with a section about all of them. */
static gw_status write_pipeline(const gw_session *s, gw_ledger *ranks, const char *path,
                                gw_diags *dg) {
    int n = s->setup.schedule->ranks, done = 1;
    gw_report_shared w;
    gw_status st = gw_report_shared_init(&w, &s->setup, dg);
    if (st != GW_OK) return st;
    for (; st == GW_OK && done < n; done += st == GW_OK)
        st = other_ledger(s, &w, done, &ranks[0], &ranks[done], dg);
    gw_report_shared_release(&w);
    if (st == GW_OK) {
        gw_pipeplan p;
        gw_pipeplan_init(&p,
                         &(gw_pipeplan_input){.ranks = ranks,
                                              .n = n,
                                              .schedule = s->setup.schedule,
                                              .stages = s->report.stages,
                                              .places = (int)s->rf->layout.message_places,
                                              .deferred_norm = s->setup.train.optim.deferred_norm});
        st = write_json(&ranks[p.largest], path, dg);
        gw_pipeplan_release(&p);
    }
    for (int r = 1; r < done; r++) gw_ledger_release(&ranks[r]);
    return st;
}

gw_status gw_report_plan(const gw_session *s, const char *path, gw_diags *dg) {
    int n = s->setup.schedule ? s->setup.schedule->ranks : 1;
    gw_ledger *ranks = gw_mem_zalloc(sizeof *ranks * (size_t)n);
    gw_report_ledger(s, &ranks[0]);
    gw_status st = n > 1 ? write_pipeline(s, ranks, path, dg) : write_json(&ranks[0], path, dg);
    gw_ledger_release(&ranks[0]);
    gw_mem_free(ranks);
    return st;
}

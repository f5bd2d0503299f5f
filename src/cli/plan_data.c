// SPDX-License-Identifier: Apache-2.0
// From a planned run to the arithmetic of its data (plan/dataplan.c).
//
// Steps, cadence of checkpoints and vocabulary are the run file's, the batch is the program's, the
// time of a step is the simulated one where a machine is stated. Rates are those of the machine's
// calibration; one that measured none, and machines of hardware files, have the stated ones.
#include "cli/plan_data.h" /* this module's contract */

#include "plan/calibrate.h" /* gw_timings */

static gw_data_rates rates_of(const gw_machine_spec *m) {
    gw_data_rates r = gw_data_rates_default();
    if (m && m->timings && m->timings->data.tokenize_bytes_per_s > 0) r = m->timings->data;
    return r;
}

bool gw_cli_plan_data(const gw_plan_view *v, int64_t checkpoint_bytes, gw_dataplan *out) {
    const gw_runfile *rf = &v->t->rf;
    const gw_model *m = &v->t->setup.model;
    if (m->family == GW_FAMILY_RESNET) return false;
    gw_dataplan_input in = {.tokens_per_step = (double)v->l->tokens_per_step,
                            .steps = (double)rf->train.steps,
                            .vocab = (double)m->vocab,
                            .step_s = v->sim ? v->sim->sim.step_s : 0,
                            .checkpoint_bytes = (double)checkpoint_bytes,
                            .checkpoint_every = (double)rf->checkpoint.every,
                            .checkpoint_kept = (double)rf->checkpoint.keep_last,
                            .storage_read = v->m ? v->m->storage_read : 0,
                            .rates = rates_of(v->m)};
    *out = gw_dataplan_of(&in);
    return true;
}

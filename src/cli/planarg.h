// SPDX-License-Identifier: Apache-2.0
// What `plan` and `program` are asked about: a run file, or a model alone with stated defaults for
// the run.
#ifndef GW_CLI_PLANARG_H
#define GW_CLI_PLANARG_H

#include "cli/command.h"   /* gw_cli */
#include "plan/ledger.h"   /* gw_ledger */
#include "plan/memo.h"     /* gw_memo */
#include "plan/pipeplan.h" /* gw_pipeplan */
#include "train/setup.h"   /* gw_runfile, gw_setup */

/* A run and its model, ready to be compiled; kernel questions are remembered. Stays where it was
 * initialised. */
typedef struct gw_target {
    gw_runfile rf;
    gw_setup setup;
    gw_memo memo;
    const char *name; /* for headings */
    bool assumed;     /* no run file: the run's keys are defaults */
} gw_target;

/* `spec` is RUN.yaml, "-", a preset, a Hugging Face directory or a .gguf file; --set is applied in
 * every case. Not to be released after a failure. An unknown word is GW_ERR_CONFIG with the nearest
 * preset. */
GW_WARN_UNUSED gw_status gw_target_init(gw_target *t, gw_cli *cli, const char *spec);
/* The same of a run file that was read into t->rf; `layers` above 0: of its model with so many
 * layers. After a failure only t->rf is to be released. */
GW_WARN_UNUSED gw_status gw_target_set_up(gw_target *t, int64_t layers, gw_diags *dg);
void gw_target_release(gw_target *t);

/* "train.seq_len 4096, train.micro_batch 1, ...": the values that shape the plan, as they stand. */
void gw_target_describe(const gw_target *t, gw_str *out);

/* The plan of a step: of each rank of a pipeline a ledger, otherwise one. Stays where it is. */
typedef struct gw_planned {
    gw_ledger *ranks;     /* [n] */
    gw_graph *programs;   /* [n] */
    int n;                /* 1 without a pipeline */
    int largest;          /* of the ranks, by total bytes */
    gw_pipeplan pipeline; /* n > 1 */
    gw_arena mem;
} gw_planned;

/* Compiles the step of `s` (and its validation, if the run has one) for each rank of the pipeline
 * and reads the ledgers. `hw` as in gw_pipeplan_input. */
GW_WARN_UNUSED gw_status gw_planned_init(gw_planned *p, const gw_setup *s,
                                         const gw_machine_spec *hw, gw_diags *dg);
void gw_planned_release(gw_planned *p);

/* The same for one ledger alone: that of the rank with most bytes, without the others. */
GW_WARN_UNUSED gw_status gw_target_ledger(const gw_setup *s, gw_ledger *l, gw_diags *dg);

#endif

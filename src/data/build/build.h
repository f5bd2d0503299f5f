// SPDX-License-Identifier: Apache-2.0
// `data build`: from raw inputs to shards of tokens, in phases that can be killed and continued.
#ifndef GW_DATA_BUILD_BUILD_H
#define GW_DATA_BUILD_BUILD_H

#include <jansson.h> /* json_t */
#include <signal.h>  /* sig_atomic_t */
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"           /* gw_status, gw_diags */
#include "data/build/pipeline.h" /* gw_pipeline */

struct gw_comm;

typedef struct gw_build_options {
    int workers;                       /* 0: run.workers of the pipeline */
    bool from_columns;                 /* refilter: nothing may be extracted again */
    bool progress;                     /* lines about how far it is, on stderr */
    struct gw_comm *comm;              /* ranks of mpirun or srun, or NULL */
    const volatile sig_atomic_t *stop; /* or NULL */
} gw_build_options;

/* Builds what the pipeline says under output.dir: mds/, megatron/, manifest.json, report.json,
 * report.md; work/ holds what was found of each unit. What an earlier run has made and what still
 * fits (same options, same inputs) is kept: a killed build goes on where it stood and ends with the
 * same bytes, for any number of workers, ranks and kills. Shards and manifest depend on inputs and
 * options alone. *report (may be NULL) gets the report as JSON; json_decref it. Call it before any
 * thread exists.
 *
 * Units whose inputs cannot be read are errors (all named, after the other units are done, whose
 * work is kept); damage inside a file is in the report, and an error only with input.strict.
 * GW_ERR_INTERRUPTED when stopped. One build at a time works in a folder (data-busy). */
GW_WARN_UNUSED gw_status gw_data_build(const gw_pipeline *p, const gw_build_options *o,
                                       json_t **report, gw_diags *dg);

/* What would be done, as JSON: units, files, bytes, and how many units are already there. */
GW_WARN_UNUSED gw_status gw_data_build_dry(const gw_pipeline *p, json_t **out, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// Does the configured layout compute what one rank computes?
//
// The layout and a one-rank reference train on the same global batches for a few steps. Loss,
// gradient norm, every gradient (reduced, before clipping), moments and updated parameters are
// compared by name. First in float32 with lossless wires, then in the run's own precision and over
// its own wires.
#ifndef GW_TRAIN_VERIFY_H
#define GW_TRAIN_VERIFY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"            /* gw_status, gw_diags */
#include "comm/comm.h"            /* gw_comm */
#include "ir/graph.h"             /* gw_graph */
#include "run/exec.h"             /* gw_exec */
#include "train/runfile.h"        /* gw_runfile */
#include "train/verify_compare.h" /* GW_VERIFY_TEXT */

/* Documents in memory instead of data.train: document d is tokens [ends[d-1], ends[d]). */
typedef struct gw_verify_data {
    const int32_t *tokens;
    const int64_t *ends;
    int64_t documents;
    bool shuffle;
} gw_verify_data;

/* For tests of verify itself: faults put into the layout's side. NULL members do nothing. */
typedef struct gw_verify_hooks {
    void (*mutate)(gw_graph *program, int64_t rank, void *user);
    /* The seed of backward instead of `seed` (1 / valid labels of the step, times the loss scale).
     */
    double (*seed)(double seed, const void *batch, int64_t rank, void *user); /* gw_step_batch */
    /* As gw_exec_loop.ran: ops [first, end) have run for a micro-batch. */
    void (*ran)(gw_exec *x, int64_t micro, gw_oid first, gw_oid end, int64_t rank, void *user);
    void *user;
} gw_verify_hooks;

typedef struct gw_verify_opts {
    int64_t steps;                /* >= 1 */
    bool run_optimizer;           /* the run file's optimizer; otherwise SGD with its momentum */
    const gw_verify_data *data;   /* NULL: data.train, or made-up documents where it is not given */
    const gw_verify_hooks *hooks; /* NULL in the product */
} gw_verify_opts;

typedef enum gw_verify_kind {
    GW_VERIFY_LOSS,
    GW_VERIFY_NORM,
    GW_VERIFY_GRADIENT,
    GW_VERIFY_MOMENT,
    GW_VERIFY_STATE, /* running statistics */
    GW_VERIFY_PARAMETER,
    GW_VERIFY_KIND_COUNT
} gw_verify_kind;
const char *gw_verify_kind_name(gw_verify_kind k);

/* One thing compared; of several steps the first that disagrees, or the one furthest apart. */
typedef struct gw_verify_tensor {
    const char *name;
    gw_verify_kind kind;
    int64_t step; /* from 1 */
    double difference, bound;
    double factor;            /* NaN: none fits */
    char why[GW_VERIFY_TEXT]; /* "" or what explains the difference */
    bool agrees;
    bool coarse; /* agrees, but under a bound that a wrong tensor might keep to: not judged */
} gw_verify_tensor;

typedef struct gw_verify_pass {
    char precision[64]; /* "fp32", "bf16, gradients as int8" */
    bool own;           /* the run's precision and wires */
    gw_verify_tensor *tensors;
    int64_t ntensors;
    double max_difference;
    /* "" or, of a pipeline, on which of its ranks alone gradients disagree in the first step. */
    char where[GW_VERIFY_TEXT];
    int64_t coarse; /* tensors that are not judged */
    bool ok;
} gw_verify_pass;

/* An oracle. */
typedef struct gw_verify_check {
    char name[96];
    char text[200];
    bool ok;
} gw_verify_check;

typedef struct gw_verify_result {
    gw_arena mem;
    bool ok;
    int64_t ranks, steps; /* one rank: only two runs of the same program are compared */
    bool made_up_data;
    const char *optimizer; /* "sgd, momentum 0.9, lr 0.1" */
    const char *layout;    /* "dp 4, zero 2, dp_replicate 2, micro-batches 3" */
    gw_verify_pass pass[2];
    int npasses;
    gw_verify_check checks[16];
    int nchecks;
    /* Ops whose result for one sample depends on the others: scope and why. */
    const char *expected[64][2];
    int nexpected;
    /* Of the first step, where there are such ops: this layout's, and what one rank with statistics
     * over the step's whole batch has. NaN otherwise. */
    double batch_loss[2], batch_norm[2];
} gw_verify_result;

/* All ranks call it, each with its own rf on which gw_runfile_set_ranks was called; without a comm
 * the layout is one rank's. *out is filled on rank 0 (elsewhere only `ok`); release it everywhere.
 * GW_OK also when something disagrees. rf's precision, optimizer and wires are changed meanwhile
 * and put back. */
GW_WARN_UNUSED gw_status gw_verify_run(gw_runfile *rf, const gw_verify_opts *o, gw_comm *comm,
                                       gw_verify_result *out, gw_diags *dg);
void gw_verify_result_release(gw_verify_result *r);

/* What people read: at most `most` lines of tensors a pass, the worst first (0: all that
 * disagree). */
void gw_verify_print(const gw_verify_result *r, int64_t most, FILE *out);
/* pass, max_relative_difference, tensors, checks, expected. A new reference. */
json_t *gw_verify_json(const gw_verify_result *r);

#endif

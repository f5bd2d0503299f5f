// SPDX-License-Identifier: Apache-2.0
// The plan of a pipeline: the ledgers of its ranks side by side, its stages, and what its schedule
// leaves idle.
//
//     gw_ledger ranks[4];            of the programs of pp ranks 0 .. 3, in this order
//     gw_pipeplan p;
//     gw_pipeplan_init(&p, &(gw_pipeplan_input){.ranks = ranks, .n = 4, .schedule = s, ...});
//     gw_plan_print(&ranks[p.largest], ...);   json_t *j = gw_plan_json(&ranks[p.largest]);
//     gw_pipeplan_release(&p);       and each ledger
#ifndef GW_PLAN_PIPEPLAN_H
#define GW_PLAN_PIPEPLAN_H

#include "plan/machine.h"  /* gw_machine_spec */
#include "plan/ledger.h"   /* gw_ledger */
#include "plan/timeline.h" /* gw_timeline */
#include "sched/sched.h"   /* gw_schedule, gw_sched_times */

typedef struct gw_pipeplan_input {
    gw_ledger *ranks; /* one for each pp rank; those of `n` get a pointer to the pipeline */
    int n;
    const gw_schedule *schedule;
    const gw_stage_report *stages;   /* of any rank's report: all have the same */
    int places;                      /* messages under way between two stages */
    bool deferred_norm;              /* the run's optimizer.norm */
    const gw_machine_spec *hardware; /* as somebody states it, or NULL: no time is in seconds */
} gw_pipeplan_input;

typedef struct gw_pipeplan_stage {
    int rank;
    int first_layer, layers;             /* first_layer -1: none */
    double forward, input, weight;       /* FLOP equivalents of a micro-batch, on one rank */
    int64_t sent_forward, sent_backward; /* bytes a micro-batch, by one rank */
} gw_pipeplan_stage;

/* A schedule on this model's stages. Times are seconds where a machine is stated, otherwise shares:
 * forward, backward of a micro-batch through all stages of an average rank are 1. */
typedef struct gw_pipeplan {
    gw_ledger *ranks;
    int n, stages, virtual_stages;
    int32_t micro_batches;
    const char *name; /* of the schedule */
    bool halves;      /* some backward is in halves */
    gw_pipeplan_stage *stage;
    double *work;  /* [n]: of a micro-batch, FLOP equivalents of all stages of a rank */
    double uneven; /* largest / mean of them - 1 */
    int largest;   /* the rank with most bytes in all */
    bool in_seconds;
    bool links_stated; /* messages take time */
    bool deferred_norm;
    gw_schedule schedule;
    gw_sched_costs costs;
    gw_sched_times times;
    gw_sched_times alike; /* the same lists, all stages alike and messages free */
    /* By the simulator (simulate.h), which plays memory traffic, reductions and the optimizer too;
     * whoever has its result sets it. 0: none has. */
    double simulated_step, simulated_bubble;
    double formula;       /* idle time / computing time, all stages alike; NAN: there is none */
    bool formula_of_span; /* it is of the longest span, not of the step */
    int64_t parameters;   /* of the model, each once */
    int64_t sent_bytes;   /* by one rank of each stage together, a step */
    gw_arena mem;
} gw_pipeplan;

/* Nothing large is allocated. `ranks` outlive it; of schedule and stages it has copies. */
void gw_pipeplan_init(gw_pipeplan *p, const gw_pipeplan_input *in);
void gw_pipeplan_release(gw_pipeplan *p);

/* How long a step takes when many follow each other: with a norm of all gradients no rank steps
 * before all are done; deferred, each begins the next step when it is done with this one, and the
 * longest span decides, or the end of both ranks that hold a tied embedding. */
double gw_pipeplan_period(const gw_pipeplan *p, bool deferred);
/* What ranks do when; `a` as in gw_timeline_begin. */
void gw_pipeplan_timeline(const gw_pipeplan *p, gw_timeline *t, gw_arena *a);

/* Called by gw_plan_print and gw_plan_json. */
void gw_pipeplan_print(const gw_pipeplan *p, FILE *out);
json_t *gw_pipeplan_json(const gw_pipeplan *p); /* a new reference */

#endif

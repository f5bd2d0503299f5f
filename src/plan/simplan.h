// SPDX-License-Identifier: Apache-2.0
// What the simulated step says of a plan: time, MFU by convention, the axes and what of each is
// exposed, where the step goes, what it costs in dollars and in failures.
//
//     gw_simplan p;
//     gw_simplan_init(&p, &(gw_simplan_input){.ranks = ledgers, .n = pp, .programs = graphs, ...});
//     gw_simplan_print(&p, stdout);   gw_simplan_json(&p, j);
//     gw_simplan_release(&p);
#ifndef GW_PLAN_SIMPLAN_H
#define GW_PLAN_SIMPLAN_H

#include <jansson.h>
#include <stdio.h>

#include "plan/ledger.h"   /* gw_ledger */
#include "plan/simulate.h" /* gw_sim_result */

typedef struct gw_simplan_input {
    const gw_ledger *ranks;          /* of pp ranks, in order */
    const gw_graph *const *programs; /* of the same */
    int n;
    int largest; /* of the ledgers, by bytes */
    const gw_machine_spec *machine;
    const gw_sim_faults *faults; /* or NULL */
    const char *faults_text;     /* as they were asked for; NULL: none, of the step */
    const char *schedule;        /* its name, or NULL */
    double memory_bytes;         /* of a chip, instead of the machine's; 0: the machine's */
    double restart_s;  /* from a failure to the first step; below 0: GW_SIMPLAN_RESTART, assumed */
    double interval_s; /* between checkpoints; 0: the best */
    double checkpoint_bytes; /* what a save writes; 0: parameters and states by their sizes alone */
    bool timeline;           /* timeline and trace are wanted */
} gw_simplan_input;

/* Where a step goes: parts sum to the step. Text is constant. */
typedef struct gw_simplan_part {
    const char *name, *cause, *remedy;
    double seconds;
    double percent; /* with one decimal; the sum over parts is 100.0 */
} gw_simplan_part;

/* A row of the axis table. */
typedef struct gw_simplan_axis {
    const char *name;  /* "tp" */
    int64_t size;      /* ranks of its groups */
    const char *moves; /* "504 all-gathers, 504 reduce-scatters" */
    const char *link;  /* "nvlink, 450 GB/s" */
    const char *why;   /* why it sits there */
    const gw_sim_axis *figures;
} gw_simplan_axis;

enum { GW_SIMPLAN_PARTS = 16, GW_SIMPLAN_CONVENTIONS = 6 };
enum { GW_SIMPLAN_RESTART = 600 }; /* seconds */

/* All ops of one name: what they take of a step, a mean over the ranks of the pipeline. */
typedef struct gw_simplan_op {
    const char *name;
    double count; /* runs */
    double flops, bytes, seconds;
} gw_simplan_op;

typedef struct gw_simplan_mfu {
    const char *name, *counts;
    double flops; /* of a step, of a chip */
    double mfu;   /* 0 where the peak is not stated */
} gw_simplan_mfu;

typedef struct gw_simplan {
    const gw_machine_spec *machine;
    const gw_ledger *ledger; /* the largest */
    int64_t ranks, tokens;
    gw_sim_result sim;
    const char *faults_text; /* NULL: none */
    double unharmed_s;       /* the step without them */
    gw_timeline timeline;
    const gw_graph *const *programs;
    int n;
    const char *layout; /* "pp 8 × dp 2 × tp 4"; "" on one rank */
    gw_simplan_op *op;  /* most seconds first; those that take none are left out */
    int nops;
    gw_dtype product; /* what most products multiply */
    gw_dtype peak_of; /* the same, or where the chip has no such products the next that it has */
    double peak;      /* of it, FLOP/s; 0: not stated */
    gw_simplan_mfu mfu[GW_SIMPLAN_CONVENTIONS];
    int nmfu;
    gw_simplan_part part[GW_SIMPLAN_PARTS];
    int nparts;
    gw_simplan_axis axis[GW_STREAM_COUNT];
    int naxes;
    int64_t memory_bytes; /* of a chip; 0: not stated */
    bool fits;            /* true where no memory is stated */
    double tokens_per_s, tokens_per_s_chip;
    double dollars_per_step, dollars_per_billion_tokens; /* 0: no price */
    double checkpoint_bytes; /* the input's, or parameters and optimizer states, each once */
    bool fails;              /* failures and storage are stated */
    gw_sim_fleet fleet;      /* what is known of it, whether or not all is */
    bool restart_assumed;
    gw_sim_goodput goodput;
    gw_arena mem;
} gw_simplan;

void gw_simplan_init(gw_simplan *p, const gw_simplan_input *in);
void gw_simplan_release(gw_simplan *p);
/* The sections for people. */
void gw_simplan_print(const gw_simplan *p, FILE *out);
/* The table of axes alone: all that can be said where no machine is stated (`machine` has no tiers,
 * no rates). Prints nothing on one rank. */
void gw_simplan_print_axes(const gw_simplan *p, FILE *out);
/* Adds its keys (docs/plan.md) to the plan's object. */
void gw_simplan_json(const gw_simplan *p, json_t *j);
/* Only `axes` and `wire.by_axis`, times null: without a machine. */
void gw_simplan_json_axes(const gw_simplan *p, json_t *j);

#endif

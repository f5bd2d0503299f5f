// SPDX-License-Identifier: Apache-2.0
// The ledger: what a placed program takes, in bytes by cause and in FLOPs, read off the program
// itself.
//
//     gw_ledger l;
//     gw_ledger_init(&l, &(gw_ledger_input){.program = &g, .report = &report, .model = &m, .machine
//     = &machine}); json_t *j = gw_plan_json(&l);   or   gw_plan_print(&l, stdout);
//     gw_ledger_release(&l);
//
// Nothing here knows an option of the run: dtypes, recompute and accumulation are seen in the
// program.
#ifndef GW_PLAN_LEDGER_H
#define GW_PLAN_LEDGER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"    /* gw_arena */
#include "base/str.h"      /* gw_str */
#include "comm/comm.h"     /* gw_coll_machine, gw_coll_candidate */
#include "ir/opdef.h"      /* gw_graph, GW_CAUSE_COUNT, GW_PHASE_COUNT */
#include "kernel/kernel.h" /* gw_machine */
#include "model/model.h"   /* gw_model */
#include "pass/pass.h"     /* gw_compile_report */
#include "run/exec_copy.h" /* gw_copy_bytes */

/* Buffers outside the arena that the caller knows of. The program's own metadata is added to
 * runtime here. */
typedef struct gw_ledger_fixed {
    int64_t data_bytes;    /* the loader's ring of prepared batches */
    int64_t staging_bytes; /* copies made to be written or sent */
    int64_t runtime_bytes;
} gw_ledger_fixed;

typedef struct gw_ledger_input {
    const gw_graph *program; /* a training step, through all passes */
    const gw_compile_report *report;
    const gw_graph
        *valid; /* the forward program of validation, or NULL: works in the step's temporaries */
    const gw_model *model;
    const gw_machine *machine;   /* the one it was placed for */
    const gw_coll_machine *comm; /* of the ranks; NULL: all on this host */
    /* Of a rank of a pipeline: the ledger of the first one, whose program shows the sizes of a
     * micro-batch; NULL for that one, and without a pipeline. */
    const struct gw_ledger *first;
    gw_ledger_fixed fixed;
} gw_ledger_input;

enum { GW_LEDGER_STATES = 4 };

/* Parameters that are kept in the same dtypes: bytes of one element. */
typedef struct gw_ledger_kind {
    int64_t tensors, params;
    int weights, gradients;
    int master;                   /* 0 when the weights are their own master */
    int nstates;                  /* moments */
    int states[GW_LEDGER_STATES]; /* "m", "v" in the optimizer's order */
    int optimizer;                /* master and moments */
    int total;
    /* Ranks that share one copy: 1, or the ranks over which such bytes are sharded. */
    int64_t weights_over, gradients_over, optimizer_over;
    /* Sub-axes over which the tensors themselves are cut (tp, ep), how many ranks these are, and
     * their text: "tp 4"; 1 and "" of whole ones. */
    uint32_t axes;
    int64_t cut;
    char cut_text[48];
    int64_t weights_bytes, gradients_bytes, optimizer_bytes; /* of rank 0 */
    char text[96]; /* "2 + 2 + 12 = 16"; without a master the moments stand alone: "4 + 4 + 4 + 4 =
                      16"; sharded "2 + 2 + 12/8 = 5.5" */
} gw_ledger_kind;

/* Activations alive at the peak: all values that one op makes in the same place of every layer. */
typedef struct gw_ledger_activation {
    const char *scope; /* without the layer: "attn/q" */
    const char *op, *type;
    bool in_layer;
    int64_t values, bytes; /* bytes: of all places */
    int64_t places;        /* micro-batches that each has room for; above 1 in a pipeline alone */
} gw_ledger_activation;

typedef struct gw_ledger_layer {
    const char *name; /* "layer 3", or the scope outside layers: "embed", "head" */
    int64_t values, bytes;
} gw_ledger_layer;

/* One kind of op on one kernel. */
typedef struct gw_ledger_kernel {
    const char *op;
    const gw_kernel *kernel;
    int64_t count;           /* ops of the program */
    double flops;            /* of a step */
    int64_t workspace_bytes; /* of the op that asks for most */
} gw_ledger_kernel;

enum { GW_LEDGER_CANDIDATES = 16 };

/* What stages of a pipeline send each other stands in rows of these names, over "pp". */
#define GW_WIRE_SEND_FORWARD "send forward" /* activations */
#define GW_WIRE_SEND_BACK    "send back"    /* their gradients */
#define GW_WIRE_SEND_ONCE    "send once"    /* a step: the norm, tied gradients */

/* Collectives of one kind over one group of axes by one algorithm; a bucket is one. None on one
 * rank. Bytes are those that rank 0 sends in a step. */
typedef struct gw_ledger_wire {
    const char *collective; /* "all-reduce" */
    const char *axis;       /* "dp", "dp_replicate" */
    const char *wire;       /* dtype on the wire: "same", "bf16" */
    const char *algorithm;
    int64_t ranks, count, payload_bytes, moved_bytes;
    double seconds; /* predicted, one after another */
    /* Rows of experts: the data decides how many, and all figures are those of an even load. Their
     * algorithm is "exchange" (comm/exchange.h), which has no candidates. */
    bool at_even_load;
    /* How the algorithm of the largest of them was chosen. */
    int64_t largest_bytes; /* of its data */
    gw_coll_candidate candidates[GW_LEDGER_CANDIDATES];
    int ncandidates;
} gw_ledger_wire;

typedef struct gw_ledger_flops {
    /* of a step, rank 0's share */
    double model;                /* 6 N + attention over the keys a causal mask shows */
    double model_full_attention; /* the same with all keys */
    double hardware;             /* what the program computes, recomputation included */
    double hardware_full_attention;
    double recompute; /* the part of hardware that forward has done before */
    double by_phase[GW_PHASE_COUNT];
    double experts_by_phase[GW_PHASE_COUNT]; /* the part of it in products of routed experts */
    /* Published conventions, N with lookup tables, h = heads x head size: 6 N; + 6 L h s; + 12 L h
     * s. */
    double n6, n6_causal, n6_full;
} gw_ledger_flops;

typedef struct gw_ledger {
    /* sizes */
    gw_model model;
    int64_t params;        /* of the model, each once */
    int64_t rank_params;   /* elements of the program's parameters: of a rank of a pipeline some */
    int64_t active_params; /* of the model's, what one token goes through: not all experts */
    int64_t matrix_params; /* active ones, without lookup tables */
    int64_t ranks;
    int64_t pp;               /* of these, ranks of the pipeline; 1 without one */
    int64_t dp;               /* of these, how many take samples of their own */
    int64_t micro_batch, seq; /* sequences of a rank, tokens; images, and 1 */
    int64_t micro_batches;    /* in a step */
    int64_t tokens_per_step;  /* of all ranks; images of a net for them */
    int64_t nops, nvalues, recomputed_ops;
    /* Ops of forward whose result for one sample depends on the others beside it. */
    int64_t batch_ops;

    /* bytes at the peak instant; by_cause sums to total_bytes */
    int64_t total_bytes, arena_bytes;
    int64_t by_cause[GW_CAUSE_COUNT];
    int64_t lower_bound_bytes; /* of the arena: largest sum of live bytes */
    int64_t persistent_bytes;  /* parameters and states */
    int64_t valid_arena_bytes; /* what validation needs; 0 without it */
    int64_t
        valid_extra_bytes; /* the part that the step's temporaries cannot hold: outside the arena */
    gw_ledger_fixed fixed; /* runtime_bytes with the programs' metadata */

    /* outside the device: bytes of each arena, and what a step copies from and to it */
    int64_t other_bytes[GW_MEM_COUNT];
    gw_copy_bytes copies;

    /* every parameter's bytes on rank 0, whether or not all are alive at once */
    gw_ledger_kind *kinds;
    int nkinds;
    int64_t static_bytes, static_weights, static_gradients, static_optimizer;

    /* the peak */
    gw_oid peak_op;
    const char *peak_text;             /* its line of the program */
    gw_ledger_activation *activations; /* largest first */
    int nactivations;
    gw_ledger_layer *layers; /* in program order */
    int nlayers;

    /* live bytes by cause while op i runs: live[i * GW_CAUSE_COUNT + cause] */
    int64_t *live;
    const char **op_scope, **op_name;
    uint8_t *op_phase;

    gw_ledger_flops flops;
    gw_ledger_kernel *kernels;
    int nkernels;
    gw_ledger_wire *wire;
    int nwire;
    int64_t wire_bytes, wire_moved_bytes;
    double wire_seconds;

    int64_t
        carried_bytes;   /* of a pipeline's rank: what lives from forward to backward, all places */
    int64_t most_places; /* of what is carried; 1 without a pipeline */
    bool stages_share;   /* values of several stages stand in one block: the first one's counts */
    int64_t box_bytes;   /* of messages on their way to other stages */

    /* The plan is of a machine that is only stated: what this one would take (algorithms of
     * collectives, their times, kernels) is left out of the page. Whoever prints it sets this. */
    bool elsewhere;

    /* Of a rank of a pipeline, all of it (plan/pipeplan.h sets and unsets it); NULL without one. */
    const struct gw_pipeplan *pipeline;

    gw_arena mem; /* owns all of the above but the pipeline */
} gw_ledger;

/* Reads everything off the program. Nothing large is allocated: a few hundred bytes an op. */
void gw_ledger_init(gw_ledger *l, const gw_ledger_input *in);
void gw_ledger_release(gw_ledger *l);

/* over lower bound, in percent of it */
double gw_ledger_over_percent(const gw_ledger *l);
int64_t gw_ledger_live_total(const gw_ledger *l, int64_t op);
/* The waterfall in at most n points: the highest op of each of n equal stretches. Returns how many.
 */
int gw_ledger_sample(const gw_ledger *l, int n, int64_t *ops);

/* What the plan holds, for scripts and plan.json; a new reference. Keys: docs/plan.md. */
json_t *gw_plan_json(const gw_ledger *l);
/* For people. `name` heads it. With `all`, every table in full length; with `verbose`, why each
 * collective goes by its algorithm. */
void gw_plan_print(const gw_ledger *l, const char *name, bool all, bool verbose, FILE *out);

/* ---- steps of gw_ledger_init, one file each ---- */
void gw_ledger_read_live(gw_ledger *l,
                         const gw_ledger_input *in); /* live.c: bytes by cause, peak, waterfall */
void gw_ledger_read_params(gw_ledger *l,
                           const gw_ledger_input *in); /* params.c: bytes a parameter */
void gw_ledger_read_work(gw_ledger *l,
                         const gw_ledger_input *in); /* work.c: FLOPs, kernels, wire */

#endif

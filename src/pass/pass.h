// SPDX-License-Identifier: Apache-2.0
// The compiler's driver and options: forward graph in, placed program of one rank out.
#ifndef GW_PASS_PASS_H
#define GW_PASS_PASS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"   /* gw_status, gw_diags */
#include "ir/flow.h"     /* gw_flow */
#include "ir/opdef.h"    /* gw_graph */
#include "sched/sched.h" /* gw_schedule */

/* What the step pass must know of a parameter; the model lists them (model/model.h). */
typedef struct gw_param_info {
    const char *name;
    bool decay;  /* weight decay applies: matrices, not gains or biases */
    bool hidden; /* a 2-D matrix of a block: what Muon takes */
    int rows;    /* leading dims that form the rows of that matrix */
    char cut[8]; /* the dimension cut over tensor-parallel ranks, or "" (whole on each). A dimension
                    `e` is cut over expert-parallel ranks besides */
} gw_param_info;

typedef enum gw_optim_kind { GW_OPTIM_ADAMW, GW_OPTIM_SGD, GW_OPTIM_MUON } gw_optim_kind;

typedef struct gw_optim_opts {
    gw_optim_kind kind;
    double beta1, beta2, eps, decay;
    double momentum; /* sgd; 0 = none, no state */
    bool nesterov;
    double muon_momentum, muon_lr_ratio; /* lr of Muon matrices / lr of the rest */
    int muon_ns_steps;
    double clip_norm;   /* 0 = norm is measured, nothing clipped */
    bool deferred_norm; /* step before the norm is known, undo or repeat if it clips; a pipeline's
                         * program is that of the exact norm (gw_compile_keeps) */
} gw_optim_opts;

typedef enum gw_recompute_kind {
    GW_RECOMPUTE_NONE,
    GW_RECOMPUTE_SELECTIVE, /* attention */
    GW_RECOMPUTE_FULL,      /* everything inside a layer */
    GW_RECOMPUTE_OPS,       /* named ops */
    GW_RECOMPUTE_BUDGET     /* the cheapest set that keeps the arena within budget_bytes */
} gw_recompute_kind;

typedef struct gw_recompute_opts {
    gw_recompute_kind kind;
    const char *const *ops;
    int nops;
    int64_t budget_bytes;
} gw_recompute_opts;

/* How K and V reach the queries where s is cut over context-parallel ranks. */
typedef enum gw_cp_mode { GW_CP_RING, GW_CP_ULYSSES, GW_CP_HYBRID, GW_CP_ALLGATHER } gw_cp_mode;

/* How a training step is laid over the groups of the mesh: dp_replicate and dp (replicas, and what
 * is sharded over), cp, tp, in this order. Zeroes mean plain data parallelism. */
typedef struct gw_layout_opts {
    bool sequence_parallel; /* s is cut over tp too between the products */
    int tp_chunks; /* with it: pieces of a sequence that travel beside products; 0, 1: whole */
    gw_cp_mode cp_mode;
    int cp_ulysses; /* hybrid: ranks over which heads are exchanged; the rest of cp is a ring */
    int ep; /* ranks that experts are cut over, folded over sub-axes of dp, cp, tp; 0, 1: none */
    double moe_buffer; /* rows an expert-parallel rank has room for, in mean loads */
    int zero; /* 0 nothing is sharded, 1 optimizer state, 2 also gradients, 3 also parameters */
    bool keep_gathered; /* zero 3: backward uses what forward gathered */
    bool reduce_each;   /* gradients are reduced in each micro-batch, not in the last alone */
    int64_t bucket_bytes, first_bucket_bytes; /* of gradients reduced together; 0: one by one */
    int prefetch;      /* layers ahead of use that sharded parameters are gathered */
    int secondary;     /* zero 3: ranks over which forward leaves a second part of what it gathered,
                          from which backward gathers (the ranks of a node); 0: none */
    int weight_wire;   /* gw_wire of parameter gathers */
    int gradient_wire; /* gw_wire of gradient reductions */
    /* A pipeline: what the ranks of mesh group `pp` do, and whose program is compiled. NULL: no
     * stages. The schedule outlives the compilation. */
    const gw_schedule *schedule;
    int stage_rank;
    const int *stage_layers; /* [stages]: layers of each; NULL: balanced by cost */
    int message_places;      /* messages under way between two stages, one way; 0: 2 */
    /* The algorithm of a bucket (ops[0..n) are its collectives), a constant text; NULL: left open,
     * for whoever runs it. comm/ stands below this folder. */
    const char *(*algorithm)(const gw_graph *g, const gw_oid *ops, int n, const void *user);
    const void *algorithm_user;
    /* Where homes lie: optimizer states; the master copy (master != compute); the parameters as
     * products read them (zero 3). */
    gw_mem optimizer_mem, master_mem, parameter_mem;
} gw_layout_opts;

typedef struct gw_compile_opts {
    bool
        train; /* false: forward only; parameters belong to another program and get no bytes here */
    int micro_batches;
    gw_dtype compute;   /* of weights in products and of activations */
    gw_dtype gradients; /* of weight gradients */
    gw_dtype master;    /* of the parameters the optimizer updates; == compute: no master copy */
    gw_dtype moments;
    bool stochastic; /* stochastic rounding of updates to bf16 parameters */
    uint64_t seed;
    gw_optim_opts optim;
    gw_recompute_opts recompute;
    gw_layout_opts layout;
    const gw_param_info *params;
    int nparams;
    /* Workspace bytes of an op on the machine the plan is for (kernel/ stands below this folder).
     */
    int64_t (*workspace)(const gw_graph *g, const gw_op *o, const void *user);
    const void *workspace_user;
    gw_arena *report_mem; /* for what reports list; NULL: left out */
    bool keep_gradients;  /* the gradients that the optimizer reads, reduced and before clipping,
                            live to the end of the step as results named "grad:PARAMETER" */
    bool verify; /* after each pass: verify, print, parse, compare (always on in debug builds) */
    const char *reproducer_dir; /* where a failing pass leaves its input, or NULL */
} gw_compile_opts;

/* What place found. */
typedef struct gw_place_report {
    int64_t arena_bytes[GW_MEM_COUNT];
    int64_t lower_bound_bytes; /* largest sum of live bytes, device */
    gw_oid peak_op;            /* where it is reached */
    int64_t persistent_bytes;  /* parameters and states at the bottom of the device's arena */
    int64_t kept_bytes;        /* a copy of them at its top; 0 where none is kept */
} gw_place_report;

/* What split found of one stage, by the costs of its ops. */
typedef struct gw_stage_report {
    int first_layer, layers;             /* of the model; first_layer -1 where it has none */
    double forward, input, weight;       /* FLOP equivalents of a micro-batch, on one rank */
    int64_t sent_forward, sent_backward; /* bytes to the next, to the one before, a micro-batch */
} gw_stage_report;

typedef struct gw_compile_report {
    gw_place_report place;
    int nstages;             /* 0 without a pipeline */
    gw_stage_report *stages; /* in memory of opts.report_mem, or NULL without that */
    int recomputed_ops;
    double recomputed_flops;
    int recompute_candidates, recompute_chosen; /* budget policy */
} gw_compile_report;

/* The sub-axes of a mesh by what they do under a layout. Refuses (GW_ERR_CONFIG) an ep or a
 * cp_ulysses that no product of sub-axes makes. */
GW_WARN_UNUSED gw_status gw_layout_axes(gw_axes *a, const gw_mesh *m, const gw_layout_opts *l,
                                        gw_diags *dg);
/* Over how many of `tp` ranks `groups` kv heads are cut, so that each of them finds those of its
 * part of the query heads: a divisor of tp. The other ranks hold copies. */
int64_t gw_layout_kv_ranks(int64_t tp, int64_t heads, int64_t groups);

/* Pass names in order; NULL past the end. */
const char *gw_pass_name(int i);
const char *gw_pass_doc(int i);

/* Runs the pipeline on *g (replaced by the result), up to and including pass `last` (NULL = all;
 * "build" = none). Errors: GW_ERR_CONFIG for sizes or options that cannot be met; a verifier
 * failure panics with the pass named and, with reproducer_dir, its input written as
 * <dir>/before-<pass>.gw. */
GW_WARN_UNUSED gw_status gw_compile(gw_graph *g, const gw_compile_opts *opts, const char *last,
                                    gw_compile_report *report, gw_diags *dg);

/* The passes behind `pass`, on a graph that gw_compile made up to there; `before` stays as it is
 * and may be compiled again. Passes up to chunk do not look at opts->layout.stage_rank: what they
 * make serves all ranks of a pipeline. *g is uninitialised, and after an error nothing. */
GW_WARN_UNUSED gw_status gw_compile_after(const char *pass, const gw_graph *before, gw_graph *g,
                                          const gw_compile_opts *opts, const char *last,
                                          gw_compile_report *report, gw_diags *dg);

/* One pass: src is left as it was, dst is uninitialised. Declared here, one file each. */
#define X(name, doc)                                                                               \
    GW_WARN_UNUSED gw_status gw_pass_##name(gw_graph *dst, const gw_graph *src,                    \
                                            const gw_compile_opts *opts,                           \
                                            gw_compile_report *report, gw_diags *dg);
#include "pass/passes.def"
#undef X

/* The final programs of all ranks of a pipeline, by pp coordinate: do sends and receives match, one
 * to one, in bytes and number, and does a step end with as many places as their channels have,
 * whatever is late? GW_ERR_FORMAT otherwise: what has no other end, or who waits for whom at which
 * action. Linear in the messages of a step. */
GW_WARN_UNUSED gw_status gw_check_pipeline(const gw_graph *const *programs, int n, gw_diags *dg);

/* Bytes that one micro-batch leaves in a stage, by who reads them last. With a whole backward
 * to_input is all. */
typedef struct gw_stage_held {
    int64_t to_input;  /* from F to I */
    int64_t to_weight; /* from F to W */
    int64_t made;      /* from I to W */
} gw_stage_held;
/* Adds those of the stages that a rank's program has (of pass `schedule` or later) to
 * held[stages]. */
void gw_stage_held_of(const gw_graph *g, gw_stage_held *held, int stages);

/* Does a rank of a pipeline step before it knows the norm? It then has room for a copy of its
 * parameters and states as they were, and whoever runs the program sees to the rest: no op of it
 * waits for the next step (run/exec_ahead.c). */
static inline bool gw_compile_keeps(const gw_compile_opts *o) {
    return o->train && o->optim.deferred_norm && o->layout.schedule;
}

/* ---- tools that passes share (pass/tools.c) ---- */
/* Copies src without the ops that are not `keep` (NULL = keep the live ones: a named result, a
 * gradient, a state or an input of a kept op). map[vid], if not NULL, must hold src->values.count
 * entries and receives new ids. Leaves are all kept. */
void gw_graph_prune(gw_graph *dst, const gw_graph *src, const bool *keep, gw_vid *map);
/* "layer 3/attn/q" -> "layer 3" length; 0 when the scope is not inside a layer. */
int gw_scope_layer(const char *scope);
/* Re-ties the outputs of an accumulating op after its accumulator input was set. */
void gw_op_set_accumulator(gw_graph *g, gw_oid o, int out, gw_vid acc);

/* The largest number of live bytes and where, for a graph in program order; lives as place computes
 * them. Fills first[vid], last[vid] (op indices) for roots when not NULL. */
typedef struct gw_lives {
    int64_t *bytes;        /* per root value: local bytes rounded up to 64, times its places; 0 for
                              non-roots */
    int32_t *first, *last; /* per root: op indices, inclusive */
    gw_flow flow;
    bool *persistent;
    int64_t peak_bytes; /* of device memory, and where */
    gw_oid peak_op;
} gw_lives;
void gw_lives_of(gw_lives *l, const gw_graph *g, gw_arena *a);

#endif

// SPDX-License-Identifier: Apache-2.0
// The simulator: when every op of a step runs on a machine that is only described.
//
// Input are the final programs (one for each pp rank; ranks that differ on other axes are alike)
// and a machine. Ops go to streams: compute, one for each mesh group's collectives, one for
// messages, one for copies. An op begins when its stream is free and what it reads is there; sends
// and receives join the ranks of pp as the channels do. So the same list that the executor walks
// gives the step time, and what of the communication is exposed.
#ifndef GW_PLAN_SIMULATE_H
#define GW_PLAN_SIMULATE_H

#include "plan/machine.h"  /* gw_machine_spec */
#include "plan/timeline.h" /* gw_timeline */

/* What an op's time goes to. */
typedef enum gw_sim_class {
    GW_SIM_PRODUCTS,
    GW_SIM_ATTENTION,
    GW_SIM_MEMORY,
    GW_SIM_OPTIMIZER,
    GW_SIM_CLASSES
} gw_sim_class;
gw_sim_class gw_sim_class_of(const gw_graph *g, const gw_op *o);

/* What goes wrong, for studies; zeroes: nothing. */
typedef struct gw_sim_faults {
    double straggler;    /* one pp rank computes so much slower (1.2) */
    int straggler_rank;  /* which */
    double jitter;       /* standard deviation of an op's time, as a part of it */
    double slow_link;    /* the tier that dp crosses has this part of its bandwidth; 0: all */
    double hot_expert;   /* the most loaded expert rank has so many mean loads; 0: even */
    double data_stall_s; /* at the beginning of each step */
    uint64_t seed;
} gw_sim_faults;

/* What a stream carries: one of the gw_streams that communicate. Bytes are those of the pp rank
 * that sends most, times are means over pp ranks. */
typedef struct gw_sim_axis {
    int64_t bytes;                     /* sent by a rank in a step (payload) */
    double seconds;                    /* of its collectives or messages, one after another */
    double exposed;                    /* of these, while compute waits */
    uint32_t axes;                     /* sub-axes that its groups use, of all programs; 0: none */
    int64_t count[GW_COLL_KIND_COUNT]; /* collectives of a step by kind */
    int64_t messages;                  /* sent to other stages; copies */
    int tier;                          /* of the machine that the groups cross; -1: of copies, or
                                          no link is stated */
} gw_sim_axis;

/* Something that ran, for traces. */
typedef struct gw_sim_event {
    int rank;       /* of pp */
    uint8_t stream; /* gw_stream */
    gw_oid op;      /* of a bucket the launching op; GW_NONE: the wait for data */
    double start, end;
} gw_sim_event;

typedef struct gw_sim_result {
    int ranks;        /* of pp */
    double step_s;    /* the slowest rank's */
    double compute_s; /* mean over ranks, of the compute stream without waits */
    double bubble;    /* share of the step that a mean rank waits for other stages */
    gw_sim_axis axis[GW_STREAM_COUNT];
    double *rank_step_s; /* [pp ranks] */
    int64_t events;      /* simulated: stretches of compute, collectives, messages, copies */
    /* Where the step of a mean rank goes; the parts sum to step_s. */
    double products_s, attention_s, memory_s, optimizer_s;
    double overlap_s; /* what compute takes longer beside collectives */
    double exposed_s; /* waits for collectives, copies, messages under way: sum over axes */
    double bubble_s;  /* waits for other stages, and for the slowest at the end */
    double stall_s;   /* for data */
    /* With a timeline: everything that ran, rank after rank, in the order in which it was started.
     */
    gw_sim_event *trace;
    int64_t ntrace;
    /* [ranks][ops]: of one run of an op; 0 of what does not compute. */
    const double **op_seconds;
} gw_sim_result;

/* `programs[0..n)`: by pp coordinate, placed. Timeline: NULL, or filled with the actions; without
 * a pipeline with the forward and backward of each micro-batch, and the step. Everything is in `a`.
 * Deterministic. Ranks' numbers do not matter, only groups do. */
void gw_simulate(const gw_graph *const *programs, int n, const gw_machine_spec *m,
                 const gw_sim_faults *faults, gw_arena *a, gw_sim_result *out,
                 gw_timeline *timeline);

/* ---- over days ---- */
typedef struct gw_sim_fleet {
    int64_t chips;
    double failures_per_hour; /* of a chip */
    double checkpoint_bytes;  /* of the whole job */
    double storage_bytes_per_s;
    double restart_s;  /* from a failure to the first step: noticed, started, read */
    double interval_s; /* between checkpoints; 0: the best */
    double write_s;    /* instead of bytes and storage; 0: bytes / storage */
} gw_sim_fleet;

typedef struct gw_sim_goodput {
    double between_failures_s; /* mean time; INFINITY without failures */
    double write_s;            /* of a checkpoint, which training waits for */
    double best_interval_s;    /* Young's: sqrt(2 write_s between_failures_s), but no less than
                                  write_s */
    double interval_s;
    double goodput; /* share of time in steps that count, 0..1 */
    double lost_to_checkpoints, lost_to_rework, lost_to_restarts; /* shares; sum with goodput: 1 */
} gw_sim_goodput;
/* First order in interval / time between failures, as Young (1974); what is lost never exceeds the
 * whole. */
gw_sim_goodput gw_sim_goodput_of(const gw_sim_fleet *f);

#endif

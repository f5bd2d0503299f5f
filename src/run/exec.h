// SPDX-License-Identifier: Apache-2.0
// The executor: a placed program, its arena, its kernels bound once, then run without allocating.
//
// Inputs are consumed: write each before every step (step rate) or run of the loop (micro-batch
// rate), since their bytes serve other values once their life has ended. A training step is: write
// step inputs; run PRE; run all micro-batches, each of which asks for its inputs; run POST; read
// named results. What lives beyond one micro-batch stays where it is for the life of an executor.
//
// A step-rate op may stand inside the loop: it runs in the last micro-batch of the step only (the
// reduction of a gradient beside the rest of the last backward pass).
//
// With several ranks each holds an executor of the same program; values stand at the same offsets
// everywhere, so a collective finds the peers' buffers where its own are. Every rank runs the same
// segments in the same order.
//
// In a pipeline that holds of the ranks that differ on other axes than pp alone. Along pp each rank
// has the program of its stages, with offsets of its own and a list of actions (ir/action.h), and
// its peers there are reached by send and recv ops. A value of the loop that is carried from piece
// to piece (ir/flow.h) has a place for each micro-batch under way: outside an action and the
// callbacks of gw_exec_loop its address here is that of the first.
#ifndef GW_RUN_EXEC_H
#define GW_RUN_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"        /* gw_status, gw_diags */
#include "comm/comm.h"        /* gw_comm */
#include "ir/graph.h"         /* gw_graph, gw_vid */
#include "kernel/kernel.h"    /* gw_machine, gw_kernel, gw_tensor */
#include "run/exec_channel.h" /* gw_ports, gw_exec_sends_traffic */
#include "run/exec_comm.h"    /* gw_exec_workspace, gw_buckets */
#include "run/exec_copy.h"    /* gw_copier */

typedef struct gw_exec gw_exec;

typedef enum gw_segment { GW_SEG_PRE, GW_SEG_LOOP, GW_SEG_POST } gw_segment;

typedef struct gw_exec_opts {
    gw_machine machine;
    gw_exec *params_from; /* parameters, and state that is only read, are those of this executor, by
                             name */
    bool own_params; /* a forward program alone: its parameters get memory of their own beside the
                      * arena. A training program always owns its parameters. */
    /* Bytes to use as the arena when they suffice (the temporaries of another executor that is not
     * running meanwhile); otherwise an arena of our own is reserved. */
    void *overlay;
    int64_t overlay_bytes;
    /* Several ranks: the program's mesh is that of the comm, and each rank makes the executor at
     * the same point (the arenas become readable to one another, which synchronises). NULL: one
     * rank. */
    gw_comm *comm;
    int64_t rank;            /* in the mesh; 0 on one rank */
    const char *offload_dir; /* folder for values that the program keeps on disk */
    bool poison; /* fill values with NaN when their life ends (always on in debug builds) */
    bool keeps;  /* the program has room for a copy of parameters and states (gw_compile_keeps) */
    /* For studies and tests of schedules: each F, I and W of stage s lasts at least
     * stage_seconds[0][s], [1][s], [2][s] seconds, a whole B as long as its I and W together. The
     * rank sleeps after the ops until that time is over. NULL: as long as they take. Indexed by all
     * stages that the rank's actions name; copied. */
    const double *stage_seconds[3];
} gw_exec_opts;

/* Reserves the arena (a memfd, touched), chooses and prepares kernels. `program` must be placed and
 * is copied. GW_ERR_MEMORY when the machine or a cgroup limit cannot hold it: said before anything
 * is reserved. */
GW_WARN_UNUSED gw_status gw_exec_new(gw_exec **out, const gw_graph *program,
                                     const gw_exec_opts *opts, gw_diags *dg);
/* After the last step; not before the peers have taken what this rank sent them. */
void gw_exec_free(gw_exec *x);

const gw_graph *gw_exec_graph(const gw_exec *x);
/* The leaf (parameter, state, input) or named result of this name; GW_NONE if the program has none.
 */
gw_vid gw_exec_find(const gw_exec *x, const char *name);
/* Where a value's bytes stand; NULL for a leaf that no op uses. A flat value tied to a whole one is
 * this rank's part inside the whole. */
void *gw_exec_ptr(const gw_exec *x, gw_vid v);
gw_tensor gw_exec_tensor(const gw_exec *x, gw_vid v);
int64_t gw_exec_rank(const gw_exec *x);
/* Copies into / out of a value by name; sizes must agree (a bug otherwise). Absent or unused: no
 * effect, false. */
bool gw_exec_write(gw_exec *x, const char *name, const void *bytes, int64_t n);
bool gw_exec_read(const gw_exec *x, const char *name, void *bytes, int64_t n);

/* Someone reads parameters and states meanwhile: fn is called once, before the next op that gives
 * one of them another value. NULL: nobody does any more. */
void gw_exec_guard(gw_exec *x, void (*fn)(void *user), void *user);

GW_WARN_UNUSED gw_status gw_exec_run(gw_exec *x, gw_segment seg, gw_diags *dg);
/* All micro-batches of a step: of a program without stages the loop once for each of `count`, the
 * last as the step's last. Of a pipeline's rank its actions: once, where the program has
 * micro-batches (`count` is their number), and `count` times where it is a forward program, whose
 * list is of one. */
typedef struct gw_exec_loop {
    /* Writes the loop's inputs of micro-batch `micro`, before the first op that may read one.
     * gw_exec_ptr, _tensor and _write mean that micro-batch meanwhile. On a rank with several
     * stages it may be called more than once for a micro-batch, each time for other inputs (tokens
     * of the first stage, labels of the last): those whose turn it is not, and those that no stage
     * of the rank reads, have no address then (NULL; gw_exec_write has no effect). NULL: what was
     * written beforehand is there, which serves where there is one micro-batch. */
    gw_status (*feed)(void *user, gw_exec *x, int64_t micro, gw_diags *dg);
    /* Ops [first, end) have run for micro-batch `micro`, whose places gw_exec_ptr and _tensor mean
     * meanwhile. Step-rate ones are among them where it is the last of a program without stages;
     * with R they alone have run, and micro is -1. May be NULL. */
    void (*ran)(void *user, gw_exec *x, int64_t micro, gw_oid first, gw_oid end);
    void *user;
} gw_exec_loop;
/* l may be NULL. */
GW_WARN_UNUSED gw_status gw_exec_run_all(gw_exec *x, int64_t count, const gw_exec_loop *l,
                                         gw_diags *dg);
/* The same with a look at every float, as gw_exec_run_checked: the first op that is bad here and
 * the micro-batch it ran for (-1: it is at step rate). What comes from another stage is looked at
 * too: where the op is a recv, the number was bad when it came, and the rank it came from has an op
 * to name. */
GW_WARN_UNUSED gw_status gw_exec_run_all_checked(gw_exec *x, int64_t count, const gw_exec_loop *l,
                                                 gw_oid *bad, int64_t *micro, gw_diags *dg);
/* When action i of the latest run of a pipeline's list began and ended: nanoseconds since the epoch
 * of the latest PRE, without the feed. A receive ends when it has copied its message: it lasts as
 * long as it waits, and a little. */
void gw_exec_action_ns(const gw_exec *x, int64_t i, int64_t *begin, int64_t *end);
/* The loop once; `last`: it is the step's last micro-batch. gw_exec_run(x, GW_SEG_LOOP) counts the
 * runs since PRE against the program's micro-batches (a program for any number of them: each is the
 * last). Of a pipeline's rank: its list, which must be of one micro-batch. */
GW_WARN_UNUSED gw_status gw_exec_run_loop(gw_exec *x, bool last, gw_diags *dg);
/* The same with a look at every float output after each op: stops at the first that is not finite
 * and gives the op and output value (*bad = GW_NONE when there is none). Inputs of the op are
 * checked first, so the op named is the one that produced it. Slow. With several ranks it goes on
 * to the segment's end, since the others wait in its collectives. */
GW_WARN_UNUSED gw_status gw_exec_run_checked(gw_exec *x, gw_segment seg, gw_oid *bad, gw_diags *dg);

/* ---- a pipeline's step that does not wait for the norm (exec_ahead.c) ---- */
/* POST as if nothing were clipped, after a copy was made of parameters and states. Nothing of the
 * norm is exchanged: *sum is this rank's part of the sum of squares, as the program has it. */
GW_WARN_UNUSED gw_status gw_exec_run_ahead(gw_exec *x, double *sum, gw_diags *dg);
/* Parameters and states are as they were before the latest gw_exec_run_ahead. */
void gw_exec_restore(gw_exec *x);
/* What the program makes of the parts of the ranks of a pipeline, sums[stage ranks], to the bit of
 * a step that waits. On a rank of the first stage, between segments. */
typedef struct gw_exec_verdict {
    double norm;
    bool right; /* it is finite, and clips nothing: the step was right */
} gw_exec_verdict;
GW_WARN_UNUSED gw_status gw_exec_judge(gw_exec *x, const double *sums, int n, double inv_scale,
                                       gw_exec_verdict *out, gw_diags *dg);
/* Bytes of messages that gw_exec_run_ahead leaves out. */
int64_t gw_exec_unsent_bytes(const gw_exec *x);

/* Bytes of our own arena as reserved and bound (0 when an overlay is used): what the plan must
 * equal. */
int64_t gw_exec_arena_bytes(const gw_exec *x);
/* The arena in use, whole. */
void *gw_exec_arena(const gw_exec *x, int64_t *bytes);
/* The part of the arena behind parameters and states, for an overlay. */
void *gw_exec_temporaries(const gw_exec *x, int64_t *bytes);

/* Nanoseconds of the latest execution of op o, and its start relative to the first op of the latest
 * PRE. */
int64_t gw_exec_op_ns(const gw_exec *x, gw_oid o);
int64_t gw_exec_op_start_ns(const gw_exec *x, gw_oid o);
const gw_kernel *gw_exec_kernel(const gw_exec *x, gw_oid o);
/* What its prepare made: of experts_ep, for gw_experts_ep_seen. */
const void *gw_exec_op_state(const gw_exec *x, gw_oid o);
/* The fused collectives of the program. */
const gw_buckets *gw_exec_buckets(const gw_exec *x);
/* Its channels to other stages. */
const gw_ports *gw_exec_ports(const gw_exec *x);
/* What copies between memory kinds; NULL where the program has no such copies. A value on disk is
 * to be touched (gw_exec_ptr, read, write) between steps only, or read until a guard is called. */
const gw_copier *gw_exec_copier(const gw_exec *x);
/* gw_clock_ns at the first op of the latest PRE. */
int64_t gw_exec_epoch_ns(const gw_exec *x);

#endif

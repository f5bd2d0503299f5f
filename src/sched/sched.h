// SPDX-License-Identifier: Apache-2.0
// Schedules of pipelines as data: for each rank a list of actions (ir/action.h), nothing else.
//
// One file makes one kind of schedule (schedules.def lists them), or a user writes one as text. All
// go through the same checker, the same clock and the same executor: what a schedule promises is
// derived from its lists, never from its name.
//
// Stages are numbered in the order of the model's layers, and `rank_of` says who holds which: with
// p ranks and v stages a rank, loops (stage s on rank s mod p) or a V (0 1 2 3 3 2 1 0).
#ifndef GW_SCHED_SCHED_H
#define GW_SCHED_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */
#include "ir/action.h"  /* gw_action */

enum {
    GW_SCHED_MAX_RANKS = 1024,
    GW_SCHED_MAX_STAGES = 4096,
    GW_SCHED_MAX_MICRO = 1 << 16,
    GW_SCHED_MAX_PAIRS = 1 << 22 /* stages x micro-batches */
};

typedef struct gw_actions {
    gw_action *items;
    int64_t n;
} gw_actions;

typedef struct gw_schedule {
    const char *name;
    int ranks, stages;
    int32_t micro_batches;
    const int16_t *rank_of;  /* [stages] */
    const gw_actions *lists; /* [ranks] */
} gw_schedule;

/* What makers and the clock are told of a machine and a model; seconds, or any unit of time. */
typedef struct gw_sched_costs {
    const double *forward, *input, *weight; /* [stages], of one micro-batch */
    const double *send;   /* [stages]: what leaves stage s, forward or back, arrives so much later;
                             NULL: at once */
    const double *reduce; /* [stages]: of a stage's gradients over replicas, beside what follows on
                             the rank; NULL: 0 */
    double step;          /* the optimizer's, after a rank's last action and its reductions */
    bool barrier; /* no rank steps before all are done (a norm of all gradients); otherwise each
                     steps when it is */
    /* What a micro-batch leaves in stage s from F to B or I, and, of a backward in halves, what is
     * there from I to W; `made` of that comes from I itself (gradients of outputs), the rest stays
     * from F. Any unit, bytes for instance; NULL: 1, half of held, and nothing (but
     * what held_weight is more than held). */
    const double *held, *held_weight, *made;
    const double *message; /* [stages]: what a message takes there once it is received; NULL: 0 */
} gw_sched_costs;

typedef struct gw_sched_request {
    int ranks;
    int virtual_stages; /* stages a rank; 0: what the schedule is made for */
    int32_t micro_batches;
    const gw_sched_costs *costs; /* for those that search; NULL: F = I = W = 1, nothing else */
    double memory; /* for those that search: most activations held by a rank, in units of what one
                      micro-batch leaves in all its stages (costs.held); 0: what the schedule is
                      named for. Where costs.made is given it is a promise of places
                      (gw_sched_times.placed), otherwise of what is held at once */
    int places;    /* messages under way in a channel, which searches reckon with; 0: no limit */
} gw_sched_request;

typedef struct gw_sched_kind {
    const char *name; /* "1f1b" */
    const char *doc;  /* one line */
    bool searches;    /* looks for an order, given costs and memory */
    bool weighs;      /* its order hangs on costs.held and made, if on nothing else */
    bool halves;      /* backward in halves: I and W */
    int made_for;     /* stages a rank, where a request has 0 */
    /* Fits the request? If not: *why in a, one line with the numbers, and in *near the nearest
     * request that fits (virtual_stages and micro_batches). The request is filled in and within the
     * limits above: gw_sched_admits sees to both. */
    bool (*admits)(const gw_sched_request *r, gw_arena *a, const char **why,
                   gw_sched_request *near);
    /* Makes it, for a request that fits: computing actions only; gw_schedule_make adds the rest. */
    void (*make)(const gw_sched_request *r, gw_arena *a, gw_schedule *out);
} gw_sched_kind;

/* NULL past the end; NULL for an unknown name. */
const gw_sched_kind *gw_sched_kind_at(int i);
const gw_sched_kind *gw_sched_kind_find(const char *name);

/* The request with virtual_stages filled in where it is 0. */
gw_sched_request gw_sched_filled(const gw_sched_kind *k, const gw_sched_request *r);
/* What admits says, for any request: filled in, and refused beyond the limits above. */
bool gw_sched_admits(const gw_sched_kind *k, const gw_sched_request *r, gw_arena *a,
                     const char **why, gw_sched_request *near);

/* Makes and checks one, by the bounds of gw_sched_checks with one place. Everything is in `a`.
 * GW_ERR_CONFIG (id "schedule"): an unknown name (with those there are), or a request that does not
 * fit (with the nearest that does). */
GW_WARN_UNUSED gw_status gw_schedule_make(const char *name, const gw_sched_request *r, gw_arena *a,
                                          gw_schedule *out, gw_diags *dg);

/* ---- tools for makers (sched.c) ---- */
typedef struct gw_sched_builder {
    gw_arena *a;
    gw_schedule *s;
    gw_actions *lists; /* s->lists */
    int64_t *room;     /* [ranks] */
} gw_sched_builder;
/* Starts empty lists; rank_of in loops or as a V. `name` is kept, not copied. */
void gw_sched_begin(gw_sched_builder *b, gw_arena *a, gw_schedule *s, const char *name, int ranks,
                    int virtual_stages, bool v_shape, int32_t micro_batches);
void gw_sched_add(gw_sched_builder *b, int rank, gw_act act, int stage, int32_t micro);
/* Adds what a list leaves out, where it has none of that kind (sF, rF, sB, rB, R, S) at all: each
 * message sent right after the action that makes it and received right before the one that needs
 * it, in the order of sending; R after a stage's last B or W; S at the end. A message is received
 * earlier only where its sender would otherwise be stuck with one place a channel: if the computing
 * actions stand in an order that can run at all, the completed lists run with one place. Lists may
 * hold anything; what is wrong stays wrong, for the checker to name. Near linear. */
void gw_schedule_complete(gw_schedule *s, gw_arena *a);

/* ---- text (text.c) ----
 *
 *   schedule 1f1b                   a name
 *   ranks 2
 *   stages 0 1                      which rank holds each stage
 *   micro-batches 3
 *   rank 0: F0.0 sF0.0 F0.1 ...     over as many lines as one likes; # begins a comment
 *   rank 1: ...
 */
void gw_schedule_print(const gw_schedule *s, gw_str *out);
/* Parses, completes and checks. Errors (GW_ERR_CONFIG) give file, line and column. Any bytes are
 * safe. */
GW_WARN_UNUSED gw_status gw_schedule_parse(const char *text, int64_t n, const char *file,
                                           gw_arena *a, gw_schedule *out, gw_diags *dg);
/* The same from a file. */
GW_WARN_UNUSED gw_status gw_schedule_read(const char *path, gw_arena *a, gw_schedule *out,
                                          gw_diags *dg);

/* ---- checker (check.c) ---- */
typedef struct gw_sched_checks {
    int places; /* messages under way in a channel (one of each kind for each stage), >= 1 */
} gw_sched_checks;
/* Is it complete (each stage and micro-batch forward and backward once, backward whole or in both
 * halves), does it respect what depends on what, is each message sent and received once, by
 * neighbours, in the same order on both sides, does each stage reduce once after its last backward
 * and each rank step once at the end, and can it finish with so many places a channel, whatever the
 * delays? Near linear in the number of actions. GW_ERR_CONFIG (id "schedule-invalid") with all
 * problems found (at most 20), each naming rank, action and its place in the list; of a deadlock
 * the circle of actions that wait for each other. */
GW_WARN_UNUSED gw_status gw_schedule_check(const gw_schedule *s, const gw_sched_checks *c,
                                           gw_diags *dg);

/* ---- clock (clock.c) ---- */
typedef struct gw_sched_span {
    double start, end; /* of an action; receives: the wait for the message */
} gw_sched_span;

typedef struct gw_sched_times {
    gw_sched_span **spans; /* [ranks][actions] */
    double step;           /* from the first action to the end of the last step */
    double *busy;          /* [ranks]: computing */
    double *held;          /* [ranks]: most activations held at once */
    double *placed; /* [ranks]: places for them, as a program has them (ir/flow.h): what lives from
                       F to I, from F to W and from I to W lies apart, each with as many places as
                       there are micro-batches between the two at once */
    int64_t *micro_held;   /* [ranks]: most (stage, micro-batch) pairs held at once, F to B or W */
    double idle_step;      /* largest share of the step that a rank does not compute */
    double bubble_step;    /* 1 - mean busy / step */
    double bubble_compute; /* step / mean busy - 1 */
    double longest_span;   /* of a rank from its first to its last computing action */
    double idle_longest;   /* share of that span in which this rank waits */
    int64_t messages, most_messages; /* sent by all, by one rank */
} gw_sched_times;

/* What `micro_held` is, wherever it is printed. */
#define GW_SCHED_HELD                                                                              \
    "held: pairs of a stage and a micro-batch, from forward to the last of their backward"

/* When everything happens if nothing is late: each action begins when its rank has done the one
 * before and what it needs is there. `places` as in the checks. The schedule has been checked. */
void gw_sched_time(const gw_schedule *s, const gw_sched_costs *c, int places, gw_arena *a,
                   gw_sched_times *out);

/* The bubble as it is known for the kinds that have a formula, all stages alike and messages free:
 * idle time / computing time of a rank. NAN where there is none. */
double gw_sched_formula(const char *name, const gw_sched_request *r, double forward, double input,
                        double weight);

#endif

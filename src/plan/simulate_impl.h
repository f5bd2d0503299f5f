// SPDX-License-Identifier: Apache-2.0
// Between simulate_read.c, which turns programs into lists of items with their times, and
// simulate.c, which plays them.
#ifndef GW_PLAN_SIMULATE_IMPL_H
#define GW_PLAN_SIMULATE_IMPL_H

#include "ir/flow.h"       /* gw_flow */
#include "plan/simulate.h" /* gw_sim_result */
#include "run/exec_comm.h" /* gw_buckets */

/* An overlap factor from which on compute stands still beside a collective: the most that a
 * hardware file can say. */
enum { GW_SIM_BLOCKS = 10 };

typedef enum gw_sim_kind {
    GW_SIM_RUN,   /* compute ops, one after another */
    GW_SIM_ASYNC, /* a collective or a copy: begins and is waited for by its readers */
    GW_SIM_BLOCK, /* a collective inside a compute op: the stream of compute waits */
    GW_SIM_SEND,
    GW_SIM_RECV
} gw_sim_kind;

/* What happens at one place of a program. Before it begins it waits for results of asyncs. */
typedef struct gw_sim_item {
    uint8_t kind, stream;
    bool aside; /* ASYNC: an op that works on the result of a collective, on its stream */
    int32_t nwaits, first_wait; /* in gw_sim_program.waits */
    int32_t id;                 /* ASYNC: which; SEND, RECV: channel */
    int32_t peers;              /* RUN: ranks that the next collective waits for; else its group */
    gw_oid first, end;          /* ops; RUN: those of them that compute, at the rate of the list */
    double seconds;
    double ready;                /* ASYNC: of seconds, after which those that wait for it go on */
    double part[GW_SIM_CLASSES]; /* RUN: of seconds */
    double squares;              /* RUN: sum of the squares of the ops' seconds */
    int64_t bytes;               /* sent by the rank; SEND: of the message */
} gw_sim_item;

typedef struct gw_sim_list {
    int32_t first, end; /* items */
    bool steps;         /* ops at step rate are in it */
    bool micro;         /* ops at micro-batch rate are in it */
    int32_t half;       /* first item of backward */
} gw_sim_list;

/* One list played once: what a rank does is a list of these. */
typedef struct gw_sim_turn {
    int32_t list;
    int32_t action; /* of the program; -1: none */
    int32_t micro;
} gw_sim_turn;

typedef struct gw_sim_program {
    const gw_graph *g;
    int64_t rank; /* one rank of this pp coordinate */
    GW_VEC(gw_sim_item) items;
    GW_VEC(int32_t) waits;
    GW_VEC(gw_sim_list) lists;
    GW_VEC(gw_sim_turn) turns;
    int32_t *async_of;  /* [ops]: which async brings its outputs, or -1 */
    double *op_seconds; /* [ops]; 0 of what does not compute */
    int32_t nasync;
    uint8_t *async_stream; /* [nasync] */
} gw_sim_program;

typedef struct gw_sim_channel {
    int32_t from, to, tag; /* pp coordinates */
    int32_t places;
    int64_t sent, taken;
    double free;                    /* when the link can take the next */
    double *arrives, *freed, *took; /* [places] */
} gw_sim_channel;

typedef struct gw_sim_channels {
    GW_VEC(gw_sim_channel) items;
    gw_imap index; /* hash of from, to, tag */
} gw_sim_channels;

/* Reads the programs; what they hold is in malloc memory and `a`. */
void gw_sim_read(gw_sim_program *p, const gw_graph *g, int coordinate, const gw_machine_spec *m,
                 const gw_sim_faults *f, gw_sim_channels *c, gw_arena *a);
void gw_sim_program_release(gw_sim_program *p);
void gw_sim_channels_release(gw_sim_channels *c);
/* Is op i a part of RUN items? */
bool gw_sim_computes(const gw_sim_program *p, gw_oid i);

#endif

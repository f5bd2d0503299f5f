// SPDX-License-Identifier: Apache-2.0
// When each op ran: totals over a run, and the last few steps in full for a timeline.
#ifndef GW_TRAIN_OPTIMES_H
#define GW_TRAIN_OPTIMES_H

#include <stdint.h>

#include "run/exec.h" /* gw_exec, gw_segment */

enum {
    GW_OPTIMES_STEPS = 3, /* steps kept in full */
    GW_OPTIMES_MICRO = 8, /* micro-batches kept of each */
};

typedef struct gw_optimes gw_optimes;

/* For executor x, borrowed, whose step has `micro_batches`. Everything is allocated here. */
gw_optimes *gw_optimes_new(const gw_exec *x, int64_t micro_batches);
void gw_optimes_free(gw_optimes *t);

/* After PRE or POST ran: takes its ops' times. */
void gw_optimes_take(gw_optimes *t, gw_segment seg);
/* After ops [first, end) of the loop ran for a micro-batch: gw_exec_loop.ran. */
void gw_optimes_ran(gw_optimes *t, int64_t micro, gw_oid first, gw_oid end);
/* After all micro-batches of a step of a pipeline's rank, and POST: takes its actions' times. */
void gw_optimes_acted(gw_optimes *t);

/* Before a step's PRE: the host waited for data and peers from begin_ns to end_ns (gw_clock_ns). */
void gw_optimes_host(gw_optimes *t, int64_t begin_ns, int64_t end_ns);

typedef struct gw_optimes_total {
    int64_t ns, runs;
} gw_optimes_total;
gw_optimes_total gw_optimes_of(const gw_optimes *t, gw_oid o);

/* Events kept, oldest first: op, start by gw_clock_ns, duration; false past the end. `step` counts
 * from 0 for the oldest kept. A step begins with what the host waited for, whose op is GW_NONE. */
typedef struct gw_optimes_event {
    gw_oid op;
    int step;
    int64_t start_ns, ns;
} gw_optimes_event;
bool gw_optimes_event_at(const gw_optimes *t, int64_t i, gw_optimes_event *out);

/* ---- a pipeline's rank ---- */

/* Of one action of a stage, over the steps but the first (where there are more). */
gw_optimes_total gw_optimes_act(const gw_optimes *t, int stage, gw_act act);
/* What became of a step: from its first action's begin to its last one's end; of that computing (F,
 * B, I, W); waiting for messages, and sending. POST is the last action's. */
typedef struct gw_optimes_span {
    int64_t steps, window_ns, busy_ns, wait_ns, send_ns;
    int64_t step_ns; /* its last action, the optimizer's, with POST */
} gw_optimes_span;
gw_optimes_span gw_optimes_latest(const gw_optimes *t); /* the latest step */
gw_optimes_span gw_optimes_all(const gw_optimes *t);    /* sums over steps but the first */
/* Actions kept, oldest first, as events above; `action` is an index into the program's list. */
typedef struct gw_optimes_action {
    int64_t action;
    int step;
    int64_t start_ns, ns;
} gw_optimes_action;
bool gw_optimes_action_at(const gw_optimes *t, int64_t i, gw_optimes_action *out);

/* FLOPs by the descriptors of all ops launched so far, and the number of steps begun. */
double gw_optimes_flops(const gw_optimes *t);
int64_t gw_optimes_steps(const gw_optimes *t);

#endif

// SPDX-License-Identifier: Apache-2.0
// What the files of the executor share: exec.c makes one, exec_run.c walks ops, exec_stages.c walks
// the actions of a pipeline's rank.
#ifndef GW_RUN_EXEC_IMPL_H
#define GW_RUN_EXEC_IMPL_H

#include "base/map.h"         /* gw_smap */
#include "ir/flow.h"          /* gw_flow */
#include "pass/pass.h"        /* gw_lives */
#include "run/exec.h"         /* gw_exec */
#include "run/exec_channel.h" /* gw_ports */
#include "run/memory.h"       /* gw_region */

/* What an op is to the loop over ops. */
typedef enum gw_bound_kind {
    GW_BOUND_KERNEL,
    GW_BOUND_COLLECTIVE, /* launches its bucket */
    GW_BOUND_COPY,       /* is handed to the copy thread */
    GW_BOUND_SEND,
    GW_BOUND_RECV,
    GW_BOUND_NOTHING, /* a collective whose bucket a later op launches; a slice that is a view */
} gw_bound_kind;

typedef struct gw_bound_op {
    gw_bound_kind what;
    const gw_kernel *kernel;
    void *state;
    gw_kargs args;
    gw_tensor *in, *out; /* of args */
    int64_t ns, start_ns;
} gw_bound_op;

struct gw_stages; /* exec_stages.c */

struct gw_exec {
    gw_graph g;
    gw_arena mem;
    gw_region own;
    gw_region weights;   /* parameters of a forward program that owns them */
    char *base;          /* the arena in use */
    int64_t bound_bytes; /* one past the last byte any value was bound to */
    int64_t persistent;  /* bytes of parameters and states at the bottom */
    void **param;        /* [values]: foreign bytes of parameters, or NULL */
    gw_bound_op *ops;
    gw_oid loop_first, loop_end;
    gw_comm *comm;
    bool pipelined; /* ranks have programs of their own */
    int64_t rank;
    int threads;
    gw_buckets buckets;
    gw_ports ports;
    gw_copier *copier;        /* NULL: nothing lies on host or disk */
    int share, share_weights; /* handles of what the peers can read; -1: none */
    int64_t micro;            /* runs of the loop since PRE */
    uint64_t alive;           /* ops begun */
    gw_smap names;
    bool poison;
    bool failed; /* a run has ended early: what was sent may never be taken */
    gw_lives lives;
    int64_t epoch_ns;         /* start of the latest PRE */
    gw_flow flow;             /* its pieces and places */
    struct gw_stages *stages; /* NULL: the program has none */
    int64_t now;              /* carried values mean this micro-batch; -1: their place 0 */
    int64_t kept;             /* bytes at the top of the arena for gw_exec_run_ahead; 0: none */
    double *cells;            /* [stage ranks and a few], with tensors of them */
    gw_tensor *scalars;
    bool ahead;      /* POST does not wait for the norm */
    double own_sum;  /* of squares, of the latest such POST */
    const bool *fed; /* [classes]: inputs that a feed under way may write; NULL: all */
    bool *changes;   /* [ops]: one of its outputs is the next value of a parameter or state */
    void (*guard)(void *user); /* gw_exec_guard; NULL: none */
    void *guard_user;
};

/* ---- exec.c ---- */
void *gw_exec_bind_ptr(void *user, gw_vid v); /* gw_exec_ptr, for those who take a function */
int64_t gw_exec_local_bytes(const gw_exec *x, gw_vid v);
/* Tells the copy thread where op i's two ends lie. */
void gw_exec_bind_copy(gw_exec *x, gw_oid i);

/* ---- exec_run.c ---- */
/* Calls the guard, if there is one, for the last time. */
void gw_exec_unguard(gw_exec *x);
/* A look at what ops read and make: the first that meets a number that is not finite. */
typedef struct gw_watch {
    gw_oid bad;    /* GW_NONE so far */
    int64_t micro; /* whose run it was */
} gw_watch;
/* Runs op i, with a look at it where w is not NULL (micro: whose run it is). */
GW_WARN_UNUSED gw_status gw_exec_step_op(gw_exec *x, gw_oid i, gw_watch *w, int64_t micro,
                                         gw_diags *dg);
/* What this rank does from here on, for those who wait for it. */
void gw_exec_say(gw_exec *x, const char *fmt, ...) GW_PRINTF(2, 3);

/* ---- exec_ahead.c ---- */
/* Room for the copy and for scalars; the bounds are measured. */
void gw_ahead_init(gw_exec *x);
/* With x->ahead, before op i is launched; true: it is left out. */
bool gw_ahead_skips(gw_exec *x, gw_oid i);

/* ---- exec_stages.c ---- */
/* For a program with actions, its ops bound: x->stages, in x->mem. */
void gw_stages_init(gw_exec *x, const gw_exec_opts *opts);
/* The list of actions once. `first`: added to their micro-batches for l, which may be NULL. */
GW_WARN_UNUSED gw_status gw_stages_run(gw_exec *x, int64_t first, const gw_exec_loop *l,
                                       gw_watch *w, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// What the files of the split pass share: which op belongs to which stage, and who holds what.
#ifndef GW_PASS_SPLIT_H
#define GW_PASS_SPLIT_H

#include "base/map.h"  /* gw_imap, GW_VEC */
#include "pass/pass.h" /* gw_compile_opts */

/* Of an op, instead of a stage. */
enum {
    GW_STAGE_NONE = -1,   /* where what it reads is; in the loop, with the piece that makes that: at
                             step rate, or what passes a gradient of several stages on */
    GW_STAGE_COPIED = -2, /* of the loop, and hangs on no stage: each has its own */
};

/* A value that goes from stage `from` to the next (to == from + 1) or to the one before. */
typedef struct gw_message {
    gw_vid v;
    int from, to;
    int32_t tag;
} gw_message;

/* A parameter that stages on several ranks use, and what they exchange: the gradient as the
 * optimizer reads it. */
typedef struct gw_tied {
    gw_vid param, gradient; /* of src */
    int nholders;
    int *holders; /* pp ranks, the owner first */
    int32_t tag;  /* holder i to holder j: tag + i * nholders + j */
} gw_tied;

typedef struct gw_splitter {
    const gw_graph *src;
    const gw_compile_opts *opts;
    const gw_schedule *s;
    gw_arena *mem;
    gw_oid loop_first, loop_end;
    int layers;
    int *first_layer; /* [stages + 1] */
    int32_t *stage;   /* [ops] */
    uint8_t *part;    /* [ops]: F or I; of those of the loop that are not copied */
    GW_VEC(gw_message) messages;
    gw_imap sent; /* (v, to) -> index of messages */
    GW_VEC(gw_tied) tied;
    gw_oid norm; /* the addn over all parameters' squares; GW_NONE without one */
    int32_t norm_tag;
    double *cost[3]; /* [stages]: forward, input, weight */
} gw_splitter;

/* split_stages.c: layers to stages, ops to stages; costs. GW_ERR_CONFIG where the layers do not
 * suffice or a list of them does not fit. */
GW_WARN_UNUSED gw_status gw_split_assign(gw_splitter *k, gw_diags *dg);
/* The most even cut of `n` costs, in this order, into `parts` runs: first[parts] of each. Only the
 * first and the last may be empty; `before` and `after` are added to them. */
void gw_split_balance(const double *cost, int n, double before, double after, int parts, int *first,
                      gw_arena *a);

/* What one pp rank has of the whole model's graph (split_hold.c). */
typedef struct gw_held_ops {
    bool *op;    /* [ops]: kept; copied ones of the loop are not marked */
    bool *value; /* [values]: there is one here (leaves: it is used) */
} gw_held_ops;
void gw_split_hold(const gw_splitter *k, int rank, gw_held_ops *h);
/* On `rank`: what stands for v, which an accumulator's chain may have made elsewhere; GW_NONE: an
 * absent accumulator. */
gw_vid gw_split_accumulated(const gw_splitter *k, const gw_held_ops *h, gw_vid v);
/* Of an op of the loop that is here and has GW_STAGE_NONE: the stage whose piece makes what it
 * reads. */
int gw_split_stage_here(const gw_splitter *k, const gw_held_ops *h, gw_oid i);
/* Fills tied and norm, and their tags after those of messages. */
GW_WARN_UNUSED gw_status gw_split_exchanges(gw_splitter *k, gw_diags *dg);
/* Is v the gradient of a tied parameter? Its index, or -1. */
int gw_split_tied(const gw_splitter *k, gw_vid v);

#endif

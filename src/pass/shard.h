// SPDX-License-Identifier: Apache-2.0
// What the files of the shard pass share: the state of one run of it.
#ifndef GW_PASS_SHARD_H
#define GW_PASS_SHARD_H

#include "base/map.h"  /* gw_imap, GW_VEC */
#include "pass/pass.h" /* gw_compile_opts, gw_axes */

typedef enum gw_zero_kind { GW_ZERO_PLAIN, GW_ZERO_PARTIAL, GW_ZERO_HOME } gw_zero_kind;

/* Conversions are shared among ops of one of these, never across. */
typedef enum gw_shard_time {
    GW_SHARD_FORWARD,
    GW_SHARD_BACKWARD,
    GW_SHARD_FRAME, /* ops at step rate */
} gw_shard_time;

/* A conversion that was made. */
typedef struct gw_converted {
    gw_vid from, to;
    int time;
    uint32_t next; /* of the same key, GW_NONE at the end */
} gw_converted;

typedef struct gw_sharder {
    gw_sharding op; /* of the op whose turn it is; the first member, so that a rule's is this */
    const gw_graph *src;
    gw_graph *dst;
    const gw_compile_opts *opts;
    gw_builder b;
    gw_diags *dg;
    gw_axes axes;
    gw_dim tp; /* the sub-axes of tp in the order in which dimensions are cut */
    int kv;    /* how many of them cut kv heads */
    uint32_t all, shard,
        replicate;        /* sub-axes: of samples and tokens; of what is sharded; the rest */
    uint32_t inner;       /* the part of `shard` that a secondary part is cut over */
    gw_vid *map;          /* [src values]: in dst */
    gw_vid *leaf;         /* [src values]: in dst, of leaves */
    gw_vid *whole[2];     /* [src values]: gathered, for forward and for backward */
    gw_vid *second;       /* [src values]: this rank's secondary part */
    bool *finished;       /* [src values]: converted where they are made */
    bool *updated;        /* [src values]: leaves that an optimizer op steps */
    bool *ends;           /* [src values]: what a state ends with */
    bool *weight;         /* [src values]: parameters and casts of them */
    bool *gradient;       /* [src values]: what an optimizer op reads as one */
    uint8_t *zero;        /* [src values]: gw_zero_kind of accumulators */
    gw_vid *state_of;     /* [src values]: of optimizer states, the parameter; or GW_NONE */
    gw_vid *home;         /* [src values]: of gradients, the parameter; or GW_NONE */
    GW_VEC(bool) settled; /* [dst values]: zeros that have a placement */
    gw_imap index;        /* of `converted`, by hash */
    GW_VEC(gw_converted) converted;
} gw_sharder;

/* shard_axes.c: group masks, the order of tp for heads, and what the mesh must divide. */
GW_WARN_UNUSED gw_status gw_shard_find_axes(gw_sharder *s, gw_diags *dg);
/* Cuts a parameter's or a parameter-shaped state's dimensions: `info` of the parameter, or NULL. */
void gw_shard_cut_param(const gw_sharder *s, gw_type *t, const gw_param_info *info);
/* Cuts an input's samples and tokens. */
void gw_shard_cut_input(const gw_sharder *s, gw_type *t);

/* shard_rule.c: the rule that goes by an op's signature, and the conversions of all rules. */
gw_status gw_shard_by_signature(gw_sharding *op, gw_diags *dg);
gw_vid gw_shard_convert(gw_sharding *op, gw_vid v, const gw_type *to);
/* GW_ERR_UNSUPPORTED with the op and its scope. */
gw_status gw_shard_refuse(const gw_sharder *s, const char *what, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// One block of a model as its compiled training step has it on rank 0, under a layout: what is
// sent, computed and kept.
#ifndef GW_PLAN_BLOCK_H
#define GW_PLAN_BLOCK_H

#include "base/diag.h"       /* gw_status, gw_diags */
#include "comm/comm.h"       /* gw_coll_machine, gw_coll_kind */
#include "model/model.h"     /* gw_model */
#include "model/placement.h" /* gw_placement_rule */
#include "pass/pass.h"       /* gw_compile_opts, gw_cp_mode */
#include "plan/machine.h"    /* gw_machine_spec */

/* A run as far as a block depends on it. All is borrowed. */
typedef struct gw_block_input {
    const gw_model *model; /* of language: not a net for images */
    const gw_compile_opts *opts;
    const gw_placement_rule *rules;
    int nrules;
    int64_t micro_batch, seq;
    const gw_coll_machine *comm; /* of the ranks */
} gw_block_input;

typedef struct gw_block_layout {
    int64_t tp, cp; /* at least 1 */
    bool sequence_parallel;
    gw_cp_mode cp_mode;
    int cp_ulysses; /* hybrid */
} gw_block_layout;

enum { GW_BLOCK_PRODUCTS = 24, GW_BLOCK_FORWARD = 0, GW_BLOCK_BACKWARD = 1 };

/* Collectives of one kind over tp or cp, of a micro-batch. */
typedef struct gw_block_wire {
    int64_t count, payload_bytes;
    double seconds; /* by the machine of the input, one after another */
} gw_block_wire;

/* A forward product [m][k] x [k][n] of rank 0. Of experts, whose rows are known at run time alone,
 * m n k are 0. */
typedef struct gw_block_product {
    char name[32]; /* "attn/q" */
    int64_t m, n, k;
    double flops, bytes;
} gw_block_product;

typedef struct gw_block {
    gw_block_layout layout;
    int64_t tokens; /* of a micro-batch, on rank 0, between blocks without sequence parallelism */
    gw_block_wire tp[2][GW_COLL_KIND_COUNT], cp[2][GW_COLL_KIND_COUNT];
    gw_block_product products[GW_BLOCK_PRODUCTS];
    int nproducts;
    double flops[2], attention_flops[2];
    double seconds[2], attention_seconds[2]; /* op by op; 0: no machine stated */
    int64_t saved_bytes;                     /* made in forward, read in backward */
    int64_t heads, kv_heads;                 /* of rank 0 in attention */
    int64_t kv_made; /* kv heads that rank 0 projects: more where k and v are whole on it; 0: none
                        (latents) */
} gw_block;

/* Compiles a model of as few layers as have an inner one, of the last kind, and reads it. The mesh
 * is cp x tp; s is padded to where its cuts are even, as the loader does. `hw` may be NULL. */
GW_WARN_UNUSED gw_status gw_block_read(gw_block *b, const gw_block_input *in,
                                       const gw_block_layout *l, const gw_machine_spec *hw,
                                       gw_diags *dg);
/* Both directions and all kinds together. */
gw_block_wire gw_block_over_tp(const gw_block *b);
gw_block_wire gw_block_over_cp(const gw_block *b);

#endif

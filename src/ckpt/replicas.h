// SPDX-License-Identifier: Apache-2.0
// Replicas: is what one rank writes what the others have who hold the same?
//
// Of the ranks that hold the same elements one writes each share (plan.h). The others' copies leave
// no trace in a checkpoint, so a rank that went astray would be seen only after a resume, or never.
// Here copies are hashed where they lie when a save begins, and compared before it is committed.
#ifndef GW_CKPT_REPLICAS_H
#define GW_CKPT_REPLICAS_H

#include "ckpt/keep.h" /* gw_ckpt_own */
#include "ckpt/plan.h" /* gw_ckpt_plan */
#include "ckpt/save.h" /* gw_ckpt_replicas */

/* Of one share: what this rank has of it. */
typedef struct gw_ckpt_copy {
    int32_t tensor, share; /* as the plan counts */
    uint64_t hash;         /* of the hashes of its blocks */
} gw_ckpt_copy;
typedef struct gw_ckpt_copies {
    gw_ckpt_copy *items;
    int64_t n;
    int64_t bytes; /* that were hashed */
} gw_ckpt_copies;

/* Hashes the copies that this rank is to compare in the save of `step`, where they lie: bytes of
 * the state are read, nothing is kept. `mesh` NULL: one rank has no replicas. In `a`. */
void gw_ckpt_copies_take(gw_ckpt_plan *p, const gw_ckpt_tensor *tensors, int n, const gw_mesh *mesh,
                         int64_t rank, int64_t step, gw_ckpt_replicas how, gw_arena *a,
                         gw_ckpt_copies *out);
/* A sum over shares that this rank compares, or (own) over those that it writes, each as often as
 * it is compared. Over all ranks the two are equal where all copies are, modulo 2^64. */
uint64_t gw_ckpt_copies_sum(const gw_ckpt_copies *c);
uint64_t gw_ckpt_copies_sum_own(const gw_ckpt_copies *own, const gw_ckpt_tensor *tensors,
                                const gw_mesh *mesh, gw_ckpt_replicas how);
/* The hash of a share whose blocks have these. */
uint64_t gw_ckpt_rows_hash(const gw_ckpt_row *rows, int64_t n);
/* They are not: says which. All ranks call it, with what they compared and what they wrote;
 * GW_ERR_PEER on all, rank 0 names tensor, box and ranks. */
GW_WARN_UNUSED gw_status gw_ckpt_copies_name(gw_comm *comm, const gw_ckpt_copies *compared,
                                             const gw_ckpt_copies *own, gw_ckpt_plan *p,
                                             const gw_ckpt_tensor *tensors, gw_diags *dg);

#endif

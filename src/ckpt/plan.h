// SPDX-License-Identifier: Apache-2.0
// Who writes what of a checkpoint: a pure function of the tensors' types and the mesh.
//
// Every rank computes the same answer without a word to the others. Of the ranks that hold the same
// elements (replicas) each writes a share, so that a tensor that all of dp hold is written by all
// of it; shares are at least GW_CKPT_SHARE bytes, and small tensors go round by bytes. Where
// several stages of a pipeline hold a tensor, the first of them writes it.
//
//     gw_ckpt_plan *p = gw_ckpt_plan_new(tensors, n, mesh);
//     const gw_ckpt_shares *s = gw_ckpt_plan_of(p, i);
#ifndef GW_CKPT_PLAN_H
#define GW_CKPT_PLAN_H

#include "base/arena.h" /* gw_arena */
#include "base/hash.h"  /* gw_hash128 */
#include "ckpt/box.h"   /* gw_piece */

enum { GW_CKPT_SHARE = 1 << 20 };

/* What the plan reads of a tensor. `type`: its placement, of the whole tensor's dimensions; home:
 * the coordinate on pp whose ranks write it. */
typedef struct gw_ckpt_item {
    const gw_type *type;
    int home;
    const char *name; /* for sizes alone; may be NULL */
} gw_ckpt_item;

/* A piece that one rank writes; `local`: the element of that rank's buffer at which it begins. */
typedef struct gw_ckpt_share {
    gw_piece piece;
    int64_t rank, local;
} gw_ckpt_share;
typedef struct gw_ckpt_shares {
    gw_ckpt_share *items;
    int n;
    int id; /* two tensors with one id have the same list */
} gw_ckpt_shares;

/* What `rank` holds of a tensor, as pieces in the order of its buffer; the sum of their counts is
 * its number of elements. *out is in `a`. Returns how many. */
int gw_ckpt_held(const gw_type *t, const gw_mesh *mesh, int64_t rank, gw_arena *a, gw_piece **out);

typedef struct gw_ckpt_plan gw_ckpt_plan;
/* `mesh` NULL: one rank. Items are copied, types and mesh borrowed. */
gw_ckpt_plan *gw_ckpt_plan_new(const gw_ckpt_item *items, int n, const gw_mesh *mesh);
void gw_ckpt_plan_free(gw_ckpt_plan *p);
/* The shares of tensor i: disjoint, and together the whole. */
const gw_ckpt_shares *gw_ckpt_plan_of(gw_ckpt_plan *p, int i);
/* Lists that differ so far: ids are below. */
int gw_ckpt_plan_lists(const gw_ckpt_plan *p);
/* Of all shares of all tensors; equal on all ranks. */
gw_hash128 gw_ckpt_plan_hash(gw_ckpt_plan *p);

/* Totals without a run. */
typedef struct gw_ckpt_size {
    int64_t bytes, chunks, files;
    int64_t largest, smallest; /* bytes of a rank */
    int64_t largest_rank, smallest_rank;
    int64_t manifest_bytes; /* lists of chunks, names of files and tensors; without the run file */
} gw_ckpt_size;
gw_ckpt_size gw_ckpt_plan_size(gw_ckpt_plan *p, gw_arena *a);

#endif

// SPDX-License-Identifier: Apache-2.0
// Several ranks in one process: a graph with placements, each rank's tensors in memory of their
// own, ops run on every rank by the kernels of this machine or by their references, and conversions
// of placements done by their meaning. What a layout computes is compared with what one rank
// computes.
#ifndef GW_TESTS_KERNEL_WORLD_H
#define GW_TESTS_KERNEL_WORLD_H

#include "base/arena.h"    /* gw_arena */
#include "kernel/kernel.h" /* gw_graph, gw_builder */

typedef struct world {
    gw_graph g;
    gw_builder b;
    gw_diags dg;
    gw_arena a;
    bool reference;
    int64_t ranks, capacity;
    void **data; /* [value * ranks + rank] */
} world;

/* A mesh of the groups dp, cp and tp, in this order. */
void world_init(world *w, int dp, int cp, int tp, bool reference);
void world_release(world *w);
uint32_t world_axes(const world *w, const char *group);
/* gw_type_make, with dimension `dim` (NULL: none) cut on the sub-axes of a group. */
gw_type world_type(const world *w, gw_dtype t, const char *dims, const char *dim,
                   const char *group);

/* A leaf that holds x (all elements of the whole tensor) under t's placement. A partial sum has x
 * on the first of its ranks and zeros on the others. */
gw_vid world_leaf(world *w, gw_type t, const double *x);
/* Normal numbers named `key` into x. */
void world_normal(double *x, int64_t n, const char *key, double size);
/* Appends op `name` to every rank by its shard rule; out[] holds its outputs. `want` as in
 * gw_sharding, or NULL. */
void world_op(world *w, const char *name, const gw_vid *in, int nin, const gw_attr *attrs,
              const gw_type *const *want, gw_vid *out);
/* v in another placement. */
gw_vid world_convert(world *w, gw_vid v, const gw_type *to);
void world_run(world *w);
/* The whole of v: parts put together, partial sums added up. Ranks that hold the same hold the same
 * bytes. */
void world_get(world *w, gw_vid v, double *x);
/* How many ops called `name` there are. */
int world_count(const world *w, const char *name);

/* |x - y| <= tol (|y| + rms of y), for each element. */
void world_near(const double *x, const double *y, int64_t n, double tol, const char *what);

#endif

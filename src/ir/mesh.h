// SPDX-License-Identifier: Apache-2.0
// The mesh: the ranks of a run as a product of prime-grained sub-axes.
//
// `dp: 8, tp: 4` is five sub-axes of size 2: dp.0 dp.1 dp.2 tp.0 tp.1. A group name (dp, tp, ...)
// means the product of its sub-axes. Rank = mixed-radix number over the sub-axes, the first the
// most major. Placements name sub-axes by index, so a dimension can be sharded on part of an axis
// (dp_replicate, hpZ, expert groups) without a new idea. One rank is the mesh with no sub-axes.
#ifndef GW_IR_MESH_H
#define GW_IR_MESH_H

#include <stdint.h>

#define GW_MAX_AXES 32

typedef struct gw_axis {
    char name[20]; /* "dp.0" */
    int32_t size;  /* a prime */
} gw_axis;

typedef struct gw_mesh {
    int32_t naxes;
    gw_axis axes[GW_MAX_AXES];
} gw_mesh;

/* Appends the prime factors of `size` (largest first) as sub-axes `group.0`, `group.1`, ... Returns
 * the bit mask of the sub-axes added (0 for size 1). Panics past GW_MAX_AXES. */
uint32_t gw_mesh_add(gw_mesh *m, const char *group, int32_t size);
/* Mask of the sub-axes whose name is `group` or begins with `group.`. */
uint32_t gw_mesh_group(const gw_mesh *m, const char *group);
/* Product of the sizes in a mask. */
int64_t gw_mesh_size(const gw_mesh *m, uint32_t mask);
int64_t gw_mesh_ranks(const gw_mesh *m);
/* Coordinate of `rank` on one sub-axis. */
int32_t gw_mesh_coord(const gw_mesh *m, int64_t rank, int axis);
/* Index by name, or -1. */
int gw_mesh_find(const gw_mesh *m, const char *name);

#endif

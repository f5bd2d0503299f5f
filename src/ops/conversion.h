// SPDX-License-Identifier: Apache-2.0
// What a conversion op does, read from its two types: for the ops' own checks, for the pass that
// builds chains of them and for the executor that runs them.
#ifndef GW_OPS_CONVERSION_H
#define GW_OPS_CONVERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "ir/opdef.h"  /* gw_graph, gw_type, gw_op */

/* How the parts of a finer cut of a dimension lie in a coarser one, whose sub-axes are the first of
 * its own. The group: the ranks that differ in the sub-axes that the finer cut has more. */
typedef enum gw_nesting {
    GW_NEST_NONE,  /* a part reaches beyond the coarse part of its rank */
    GW_NEST_HELD,  /* each part lies in the coarse part of its rank, somehow */
    GW_NEST_ROWS,  /* equal parts, one behind the other in the order of the group */
    GW_NEST_HALVES /* so of the first half, and from the last rank to the first of the second (the
                      outer cut is a zigzag) */
} gw_nesting;
gw_nesting gw_dim_nesting(const gw_dim *fine, const gw_dim *coarse, const gw_mesh *m);
/* Does every rank hold the same elements in the same order under both? Not only where the cuts are
 * written alike: an outer cut in chunks of equal length is one cut. */
bool gw_dim_same_part(const gw_dim *a, const gw_dim *b, const gw_mesh *m);
/* The first n sub-axes of a cut, and no others. */
gw_dim gw_dim_first_axes(const gw_dim *d, int n);

/* `from`: the dimension that loses sub-axes, `to`: the one that gains some, -1 for none. */
typedef struct gw_conversion {
    uint32_t axes; /* the sub-axes that come or go: the group of a collective */
    bool max;      /* all_reduce: of maxima */
    bool flat;     /* it is the flat cut that comes or goes */
    int from, to;  /* (slice, place: the first of perhaps several) */
    gw_nesting nesting;
} gw_conversion;
/* Reads conversion op o. GW_ERR_FORMAT, with a diagnostic that names sub-axis and dimension, where
 * its types differ in any way but the one that the op stands for. */
GW_WARN_UNUSED gw_status gw_conversion_of(const gw_graph *g, const gw_op *o, gw_conversion *c,
                                          gw_diags *dg);

/* What the finer of two placements has of the coarser one on a rank, as runs that are consecutive
 * in both local tensors, in the order of the finer. Neither is flat; each dimension nests. */
typedef struct gw_parts {
    struct {
        int n;
        int64_t fine[4], coarse[4], count[4];
    } cuts[GW_MAX_DIMS];
    int64_t fine[GW_MAX_DIMS], coarse[GW_MAX_DIMS]; /* local lengths */
    int last;                                       /* innermost dimension whose cuts differ */
    int64_t inner, rows, row;
    int piece;
} gw_parts;
void gw_parts_begin(gw_parts *p, const gw_type *fine, const gw_type *coarse, const gw_mesh *m,
                    int64_t rank);
bool gw_parts_next(gw_parts *p, int64_t *fine, int64_t *coarse, int64_t *count);

/* Does `rank` keep its copy in a keep_one that adds these sub-axes? */
bool gw_rank_keeps(const gw_mesh *m, uint32_t axes, int64_t rank);

#endif

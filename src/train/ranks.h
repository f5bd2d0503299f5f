// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run settle among themselves on the host side: one program, one tensor made of
// its parts. (One error: gw_exec_agree of run/exec_comm.h.)
#ifndef GW_TRAIN_RANKS_H
#define GW_TRAIN_RANKS_H

#include "base/diag.h" /* gw_status, gw_diags */
#include "comm/comm.h" /* gw_comm */
#include "ir/graph.h"  /* gw_type, gw_mesh */

/* 0 and 1 where there is no comm. */
int gw_ranks_me(const gw_comm *c);
int gw_ranks_count(const gw_comm *c);

/* Is `text` the same on all ranks? If not, all fail with GW_ERR_CONFIG; rank 0's diagnostic names
 * the ranks and shows the first line that differs. `what`: "program". */
GW_WARN_UNUSED gw_status gw_ranks_same_text(gw_comm *c, const char *what, const char *text,
                                            gw_diags *dg);

/* Does each rank hold a run of elements of a tensor of type t, not all of it? Flat ones, and those
 * whose first dimension is cut over all ranks (statistics that each rank keeps of its own samples).
 */
bool gw_ranks_have_parts(const gw_type *t);
/* The index, in the flattened tensor, of the first element that the rank holds. */
int64_t gw_ranks_first(const gw_type *t, const gw_mesh *mesh, int64_t rank);

/* Puts a tensor of which the ranks have parts together from the parts of all ranks (`mine`: this
 * rank's), in pieces. `whole`, on each rank where it is not NULL, receives all elements. */
GW_WARN_UNUSED gw_status gw_ranks_gather(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                         const void *mine, void *whole, const char *what,
                                         gw_diags *dg);

#endif

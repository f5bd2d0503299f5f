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

/* Does a rank hold a part of a tensor of type t, not all of it? */
bool gw_ranks_have_parts(const gw_type *t);
/* A number that two ranks share when they hold the same elements of it. */
int64_t gw_ranks_part(const gw_type *t, const gw_mesh *mesh, int64_t rank);
/* Of the ranks that hold the same elements, is this the one that is believed? */
bool gw_ranks_owns(const gw_type *t, const gw_mesh *mesh, int64_t rank);

/* Puts a tensor of which the ranks have parts together from the parts of all ranks (`mine`: this
 * rank's), in pieces. `whole`, on each rank where it is not NULL, receives all elements, each from
 * its owner. All ranks call it. */
GW_WARN_UNUSED gw_status gw_ranks_gather(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                         const void *mine, void *whole, const char *what,
                                         gw_diags *dg);
/* The same as float32, what ranks hold that differ only on the sub-axes `over` added up: what a sum
 * would be that was to be taken over these and was not. */
GW_WARN_UNUSED gw_status gw_ranks_add_up(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                         uint32_t over, const void *mine, float *sum,
                                         const char *what, gw_diags *dg);

/* Does a rank count in a sum over the sub-axes `over`? Those that differ only on others have the
 * same term, and one of them brings it. */
bool gw_ranks_counts(const gw_mesh *mesh, uint32_t over, int64_t rank);
/* A scalar of type t, as a program left it: where that is partial, the whole sum instead. All ranks
 * call it; comm may be NULL. */
GW_WARN_UNUSED gw_status gw_ranks_sum_partial(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                              double *value, const char *what, gw_diags *dg);

#endif

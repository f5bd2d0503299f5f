// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run settle among themselves on the host side: one program, what of it lies on
// which ranks of a pipeline, one tensor made of its parts. (One error: gw_exec_agree of
// run/exec_comm.h.)
#ifndef GW_TRAIN_RANKS_H
#define GW_TRAIN_RANKS_H

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "comm/comm.h"  /* gw_comm */
#include "ir/graph.h"   /* gw_type, gw_mesh */

/* 0 and 1 where there is no comm. */
int gw_ranks_me(const gw_comm *c);
int gw_ranks_count(const gw_comm *c);

/* Is `text` the same on all ranks? If not, all fail with GW_ERR_CONFIG; rank 0's diagnostic names
 * the ranks and shows the first line that differs. `what`: "program". */
GW_WARN_UNUSED gw_status gw_ranks_same_text(gw_comm *c, const char *what, const char *text,
                                            gw_diags *dg);

/* The same among the ranks that give the same number `group` >= 0: rank 0's diagnostic names the
 * lowest that differs from the first of its group. */
GW_WARN_UNUSED gw_status gw_ranks_same_text_of(gw_comm *c, int64_t group, const char *what,
                                               const char *text, gw_diags *dg);

/* Bytes of any length from every rank (some may give none), in pieces: this one keeps those of rank
 * `from`, in *out with a zero behind them, to be freed with gw_mem_free; nobody's where from is
 * below 0. All ranks call it. */
GW_WARN_UNUSED gw_status gw_ranks_hear(gw_comm *c, const void *mine, int64_t n, int from,
                                       char **out, int64_t *length, const char *what, gw_diags *dg);
/* x[0..n) become the sums of all ranks; without a comm they are. */
GW_WARN_UNUSED gw_status gw_ranks_add_f64(gw_comm *c, double *x, int64_t n, const char *what,
                                          gw_diags *dg);

/* ---- what lies on which ranks of a pipeline ---- */

/* A parameter, a state, or a named result, of any rank's program. */
typedef struct gw_ranks_entry {
    const char *name;
    gw_type type;
    gw_vid value; /* in this rank's program; GW_NONE where that has none */
    int home;     /* the lowest coordinate on pp whose ranks have it: they are believed */
    bool leaf;    /* a parameter or a state; otherwise a result */
} gw_ranks_entry;
typedef struct gw_ranks_table {
    gw_ranks_entry *items;
    int n;
    const gw_mesh *mesh;
    int stages; /* ranks on pp; 1: every rank has everything */
} gw_ranks_table;
/* Lists them, in one order on all ranks; everything but the mesh, which is g's, is in `a`. Where
 * the mesh has pp all ranks call it; otherwise, or without a comm, it is g's own list. */
GW_WARN_UNUSED gw_status gw_ranks_list(gw_comm *c, const gw_graph *g, gw_arena *a,
                                       gw_ranks_table *out, gw_diags *dg);
/* NULL where no rank has it. */
const gw_ranks_entry *gw_ranks_find(const gw_ranks_table *t, const char *name);

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
/* The same of what ranks with the coordinate `home` on pp hold; elsewhere `mine` is not looked at.
 */
GW_WARN_UNUSED gw_status gw_ranks_gather_from(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                              int home, const void *mine, void *whole,
                                              const char *what, gw_diags *dg);
/* Several tensors at once, in one exchange where they are small: what is waited for is then waited
 * for once. */
typedef struct gw_ranks_want {
    const gw_type *type;
    int home;
    const void *mine; /* this rank's part, or all of it where the ranks have no parts */
    void *whole;      /* or NULL */
} gw_ranks_want;
GW_WARN_UNUSED gw_status gw_ranks_gather_some(gw_comm *c, const gw_mesh *mesh,
                                              const gw_ranks_want *w, int n, const char *what,
                                              gw_diags *dg);
/* The same as gw_ranks_gather in float32, what ranks hold that differ only on the sub-axes `over`
 * added up: what a sum would be that was to be taken over these and was not. */
GW_WARN_UNUSED gw_status gw_ranks_add_up(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                         uint32_t over, const void *mine, float *sum,
                                         const char *what, gw_diags *dg);

/* The same of what ranks with the coordinate `home` on pp hold. */
GW_WARN_UNUSED gw_status gw_ranks_add_up_from(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                              uint32_t over, int home, const void *mine, float *sum,
                                              const char *what, gw_diags *dg);

/* Does a rank count in a sum over the sub-axes `over`? Those that differ only on others have the
 * same term, and one of them brings it. */
bool gw_ranks_counts(const gw_mesh *mesh, uint32_t over, int64_t rank);
/* The same where ranks with the coordinate `home` on pp have the term. */
bool gw_ranks_counts_from(const gw_mesh *mesh, uint32_t over, int home, int64_t rank);
/* A scalar of type t, as a program left it: where that is partial, the whole sum instead. All ranks
 * call it; comm may be NULL. */
GW_WARN_UNUSED gw_status gw_ranks_sum_partial(gw_comm *c, const gw_type *t, const gw_mesh *mesh,
                                              double *value, const char *what, gw_diags *dg);

/* n results, e[i] (NULL: no rank has it, values[i] stays): each its whole sum on every rank, those
 * of other ranks of a pipeline too. values[i] is this rank's, whatever where it has none. n <= 64.
 */
GW_WARN_UNUSED gw_status gw_ranks_sum_results(gw_comm *c, const gw_ranks_table *t,
                                              const gw_ranks_entry *const *e, int n, double *values,
                                              const char *what, gw_diags *dg);

#endif

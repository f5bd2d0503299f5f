// SPDX-License-Identifier: Apache-2.0
// The collectives of a program as src/comm takes them: buckets fused, groups named, sizes local.
//
// Pure: for the executor, which binds them, and for the plan, which counts them.
#ifndef GW_RUN_EXEC_COMM_H
#define GW_RUN_EXEC_COMM_H

#include "base/arena.h"    /* gw_arena */
#include "comm/comm.h"     /* gw_coll, gw_coll_machine */
#include "ir/opdef.h"      /* gw_graph, gw_oid */
#include "kernel/kernel.h" /* gw_machine, gw_kernel */

/* What workspace depends on: for gw_compile_opts.workspace_user. */
typedef struct gw_exec_facts {
    gw_machine machine;   /* first: a program without collectives is content with this alone */
    gw_coll_machine comm; /* of all ranks; per_host <= 0: all on one host */
} gw_exec_facts;

/* Collectives that run as one, at the last of them. */
typedef struct gw_bucket {
    gw_coll coll; /* algorithm: never empty; parts without addresses until an executor binds them */
    gw_coll_part *parts; /* coll.parts, to be written */
    gw_oid *ops;         /* [coll.nparts], in program order */
    gw_oid launch;       /* the last of ops */
} gw_bucket;

typedef struct gw_buckets {
    gw_bucket *items; /* in the order of launch */
    int n;
    int32_t *of; /* [ops of the program]: which bucket, -1 for an op that is no collective */
} gw_buckets;

/* The collectives of a program as `rank` sees them; everything in `a`. Neighbours of one bucket
 * (gw_graph_bucket) are one. An algorithm that the program leaves open is chosen for machine m. */
void gw_buckets_of(gw_buckets *b, const gw_graph *g, int64_t rank, const gw_coll_machine *m,
                   gw_arena *a);

bool gw_op_is_collective(const gw_graph *g, const gw_op *o);
/* The collective that ops[0..n) are together; parts has n entries. algorithm is NULL where the
 * program leaves it open; scope is that of the first op. */
gw_coll gw_exec_coll(const gw_graph *g, const gw_oid *ops, int n, int64_t rank,
                     gw_coll_part *parts);
/* The machine as a group on these axes sees it. */
gw_coll_machine gw_exec_group_machine(const gw_coll_machine *m, const gw_mesh *mesh, uint32_t axes);
/* Place of `rank` in its group on these axes. */
int64_t gw_exec_group_rank(const gw_mesh *mesh, uint32_t axes, int64_t rank);

/* Bytes that `rank` sends in one step of a program (or one run of the loop of a forward program),
 * by kind. */
void gw_exec_traffic(const gw_graph *g, int64_t rank, const gw_coll_machine *m,
                     gw_coll_traffic out[GW_COLL_KIND_COUNT]);

/* Workspace of op o: of a collective, its bucket's scratch for the one that launches and 0 for the
 * others; of another op, its kernel's. For gw_compile_opts.workspace; user is a const gw_exec_facts
 * *. */
int64_t gw_exec_workspace(const gw_graph *g, const gw_op *o, const void *facts);
/* The part of it that concerns collectives. */
int64_t gw_exec_scratch(const gw_graph *g, const gw_op *o, const gw_exec_facts *f);

/* Every rank calls it with its own status at the same point: GW_OK when all are. Otherwise all
 * return the status of the lowest rank that failed, and that rank alone keeps its diagnostics: what
 * all have found out is said once. `also`, if not NULL, becomes its maximum over the ranks. Without
 * a comm: st. */
GW_WARN_UNUSED gw_status gw_exec_agree(gw_comm *c, gw_status st, int64_t *also, const char *what,
                                       gw_diags *dg);

/* Stands for the kernel of a collective where a name is asked for. */
extern const gw_kernel gw_kernel_comm;

#endif

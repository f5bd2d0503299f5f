// SPDX-License-Identifier: Apache-2.0
// The collectives of a program as src/comm takes them: buckets fused, groups named, sizes local.
//
// Reading them is pure: for the executor, which binds and runs them, and for the plan, which counts
// them.
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

/* Where a part of a collective lies: elements behind the first of an op's input and output. */
typedef struct gw_coll_place {
    int op; /* index into gw_bucket.ops */
    int64_t src, dst;
} gw_coll_place;

/* An all-to-all takes and gives the blocks of each rank together. Where they lie in rows, row after
 * row and in each row block after block, they are copied through workspace: before it (from the
 * input) or after it (to the output). Elements; n == 0: nothing is copied. */
typedef struct gw_coll_pack {
    int64_t outer, n, rows, block; /* [outer][rows][n][block] <-> [outer][n][rows][block] */
    bool before;
} gw_coll_pack;

/* Collectives that run as one, at the last of them. */
typedef struct gw_bucket {
    gw_coll coll; /* algorithm: never empty; parts without addresses until an executor binds them */
    gw_coll_part *parts;   /* coll.parts, to be written */
    gw_coll_place *places; /* [coll.nparts] */
    gw_coll_pack pack;
    gw_oid *ops; /* [nops], in program order */
    int nops;
    gw_oid launch; /* the last of ops */
    const void *pack_src;
    void *pack_dst; /* bound: what is copied from or to */
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
/* The collective that ops[0..n) are together, its parts in `a`: one for each op, or one (of a
 * zigzag two) for each row of the dimensions before the one that is gathered, scattered or
 * exchanged. algorithm is NULL where the program leaves it open; scope is that of the first op. */
gw_coll gw_exec_coll(const gw_graph *g, const gw_oid *ops, int n, int64_t rank, gw_arena *a);
/* Gives the bucket its addresses; ptr(user, v) is where value v lies, work its workspace. */
void gw_bucket_bind(gw_bucket *b, const gw_graph *g, void *(*ptr)(void *user, gw_vid v), void *user,
                    void *work);
/* Bytes of workspace it needs: for copies, and for the algorithm on machine m (of all ranks). */
int64_t gw_bucket_work_bytes(const gw_bucket *b, const gw_mesh *mesh, const gw_coll_machine *m);
/* Runs a bound bucket; blocks. Allocates nothing. */
GW_WARN_UNUSED gw_status gw_bucket_run(gw_comm *c, const gw_bucket *b, void *work, int threads,
                                       gw_diags *dg);
/* The machine as a group on these axes sees it. */
gw_coll_machine gw_exec_group_machine(const gw_coll_machine *m, const gw_mesh *mesh, uint32_t axes);
/* Place of `rank` in its group on these axes. */
int64_t gw_exec_group_rank(const gw_mesh *mesh, uint32_t axes, int64_t rank);

/* Bytes that `rank` sends in one step of a program (or one run of the loop of a forward program),
 * by kind. Exact, but for rows of experts (all-to-all), which are counted as if their load were
 * even. */
void gw_exec_traffic(const gw_graph *g, int64_t rank, const gw_coll_machine *m,
                     gw_coll_traffic out[GW_COLL_KIND_COUNT]);

/* The part of it that is rows of experts (comm/exchange.h), at even load. */
gw_coll_traffic gw_exec_rows_traffic(const gw_graph *g, const gw_coll_machine *m);

/* Workspace of op o: of a collective, its bucket's scratch for the one that launches and 0 for the
 * others; of a send, its box; of another op, its kernel's. For gw_compile_opts.workspace; user is a
 * const gw_exec_facts
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

/* Stands for the kernel of a collective, a send or a recv where a name is asked for. */
extern const gw_kernel gw_kernel_comm;

#endif

// SPDX-License-Identifier: Apache-2.0
// Collectives between ranks: what a collective is, what it costs, and running it.
//
// A rank holds one gw_comm. A group is a set of ranks that differ only in some sub-axes of the mesh
// (a bit mask), ordered by their coordinates on them, first sub-axis major. A collective is fused:
// it carries any number of tensors ("parts") of one dtype that are reduced or gathered together, as
// one; buckets are nothing else. Tensors are cut flat and balanced (ir/shard.h, GW_SHARD_FLAT):
// group rank i of n holds elements [first_i, first_i + length_i) of each part.
//
// Bits: the result depends on data, group size and algorithm alone, never on timing; after an
// all-reduce or an all-gather every rank holds the same bits. bf16 and f16 data are summed in
// float32 and rounded once at the end (rings and trees keep float32 partial sums on the wire unless
// `wire` says otherwise).
//
// All calls of one rank come from one thread. Every rank of a group calls its collectives in one
// order. A rank that is late, dead or that calls something else makes every other member return
// GW_ERR_PEER within the timeout, with one diagnostic that names the rank, the collective and its
// scope.
#ifndef GW_COMM_COMM_H
#define GW_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "ir/dtype.h"   /* gw_dtype */
#include "ir/mesh.h"    /* gw_mesh */

typedef struct gw_comm gw_comm;

typedef enum gw_coll_kind {
    GW_COLL_ALL_REDUCE,
    GW_COLL_REDUCE_SCATTER,
    GW_COLL_ALL_GATHER,
    GW_COLL_BROADCAST, /* from group rank 0 */
    /* Part j of src (flat cut in n) goes to group rank j; what comes from rank i lies at i times
     * the length of the own part, so dst holds size * length elements (elems, where n divides). */
    GW_COLL_ALL_TO_ALL,
    /* src of group rank i becomes dst of rank i + 1, the last's that of rank 0: a step around a
     * ring. All hold as many elements. */
    GW_COLL_SHIFT,
    GW_COLL_KIND_COUNT
} gw_coll_kind;

/* What travels. SAME: the dtype of the data. INT8, INT4: blocks of GW_WIRE_BLOCK values with one
 * float32 scale each (comm/wire.h). */
#define GW_WIRES(X)                                                                                \
    X(SAME, "same") X(F32, "float32") X(BF16, "bf16") X(INT8, "int8") X(INT4, "int4")
typedef enum gw_wire {
#define X(id, text) GW_WIRE_##id,
    GW_WIRES(X)
#undef X
        GW_WIRE_COUNT
} gw_wire;

/* One tensor of a fused collective. In place is allowed where it makes sense: dst == src for an
 * all-reduce and a broadcast; the own part inside the whole for the other two (dst == src + first_i
 * for a reduce-scatter, src == dst + first_i for an all-gather). Any other overlap is a bug.
 * `reversed` (reduce-scatter and all-gather, size divides elems): group rank i holds cut n-1-i, as
 * of the second half of a zigzag. */
typedef struct gw_coll_part {
    int64_t elems; /* of the whole tensor (shift: of what a rank holds); >= 0 */
    const void
        *src;  /* whole: all-reduce, reduce-scatter, broadcast, all-to-all; own part: all-gather */
    void *dst; /* whole: all-reduce, all-gather, broadcast, all-to-all; own part: reduce-scatter */
    bool reversed;
} gw_coll_part;

typedef struct gw_coll {
    gw_coll_kind kind;
    gw_dtype dtype; /* F32 BF16 F16 F64; what does not add takes I32 I64 U8 too */
    gw_wire wire;
    bool max;         /* all-reduce: maximum instead of sum */
    uint32_t axes;    /* mask of the mesh: the group */
    int64_t size;     /* ranks in the group, >= 1 */
    int64_t per_host; /* group ranks i with one i / per_host share a host; 0: all do. Part of the
                         collective since algorithms in two levels move by it */
    int nparts;
    const gw_coll_part *parts;
    const char *scope;     /* for people: "layer 3/attn/q and 11 more" */
    const char *algorithm; /* a name of comm/algorithms.def, or NULL/"": chosen by gw_coll_choose */
} gw_coll;

const char *gw_coll_kind_name(gw_coll_kind k); /* "all-reduce" */
const char *gw_wire_name(gw_wire w);
/* Sum of elems over parts; the same times the size of dtype. */
int64_t gw_coll_elems(const gw_coll *c);
int64_t gw_coll_bytes(const gw_coll *c);

/* ---- what it costs: pure, for the plan (src and dst are not looked at) ---- */

/* Facts of the machine that a choice may depend on, from a calibration file or by default. */
typedef struct gw_coll_machine {
    bool shared;      /* the group's ranks can read each other's memory (one host, local ranks) */
    int64_t per_host; /* ranks of the group on one host; = size on one host */
    int threads;      /* compute threads a rank lends to a collective */
    double latency_s, bytes_per_s;            /* one message between two ranks */
    double copy_bytes_per_s, sum_bytes_per_s; /* of one thread, from and to memory */
    const struct gw_calibration
        *calibration; /* measured times by algorithm, ranks, size; or NULL */
} gw_coll_machine;
gw_coll_machine gw_coll_machine_local(int threads);

/* Bytes that group rank `rank` sends, exact for the algorithm, every header and scale included, and
 * the theory's figure: (n-1)/n of the data for a gather or scatter, twice that for an all-reduce.
 * For shared memory "sent" is what others read of this rank's memory plus what it writes into
 * theirs. */
typedef struct gw_coll_traffic {
    int64_t payload, moved;
} gw_coll_traffic;
gw_coll_traffic gw_coll_traffic_of(const gw_coll *c, int64_t rank);
/* Bytes of scratch that gw_coll_run needs. */
int64_t gw_coll_scratch_bytes(const gw_coll *c, const gw_coll_machine *m);
double gw_coll_seconds(const gw_coll *c, const gw_coll_machine *m);

/* One candidate of a choice. */
typedef struct gw_coll_candidate {
    const char *name;
    bool possible;
    const char *why; /* why not, or what decides */
    double seconds;
    int64_t moved;
} gw_coll_candidate;
/* The name of the fastest possible algorithm; deterministic. `all`, if not NULL, receives up to n
 * candidates in the order of algorithms.def; *count how many. */
const char *gw_coll_choose(const gw_coll *c, const gw_coll_machine *m, gw_coll_candidate *all,
                           int n, int *count);

/* ---- running ---- */

int gw_comm_rank(const gw_comm *c);
int gw_comm_size(const gw_comm *c);
const gw_coll_machine *gw_comm_machine(const gw_comm *c);
/* Gives the ranks their coordinates: axis masks of later calls mean this mesh. gw_mesh_ranks(m) ==
 * gw_comm_size(c). */
void gw_comm_set_mesh(gw_comm *c, const gw_mesh *m);

/* Makes [base, base + bytes), backed by `fd`, readable by the other ranks of this host, which all
 * call it at the same point (it synchronises), each with a region of its own size; one that has
 * nothing to share joins with 0 bytes (base NULL, fd -1). A collective whose buffers lie at the
 * same places of shared regions needs no copy; others go through bounce buffers. Returns a handle
 * for gw_comm_unshare, to be given back by all ranks in one order. No effect (GW_OK) on transports
 * that cannot. */
GW_WARN_UNUSED gw_status gw_comm_share(gw_comm *c, void *base, int64_t bytes, int fd, int *handle,
                                       gw_diags *dg);
void gw_comm_unshare(gw_comm *c, int handle);

/* Runs a collective; blocks until this rank's dst is final and its src may be overwritten.
 * `scratch`: gw_coll_scratch_bytes, aligned to 64, in a shared region. `threads`: OpenMP threads
 * that may be used. Allocates nothing. */
GW_WARN_UNUSED gw_status gw_coll_run(gw_comm *c, const gw_coll *coll, void *scratch, int threads,
                                     gw_diags *dg);

/* Small things between all ranks, for the host side; each synchronises. */
GW_WARN_UNUSED gw_status gw_comm_barrier(gw_comm *c, const char *what, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_comm_sum_f64(gw_comm *c, double *x, int n, const char *what,
                                         gw_diags *dg); /* n <= 64 */
GW_WARN_UNUSED gw_status gw_comm_max_i64(gw_comm *c, int64_t *x, int n, const char *what,
                                         gw_diags *dg); /* n <= 64 */
/* Rank 0's bytes to all, any size. */
GW_WARN_UNUSED gw_status gw_comm_broadcast(gw_comm *c, void *bytes, int64_t n, const char *what,
                                           gw_diags *dg);
/* n bytes of every rank, in rank order, to all: out has size * n bytes. */
GW_WARN_UNUSED gw_status gw_comm_all_gather(gw_comm *c, const void *mine, int64_t n, void *out,
                                            const char *what, gw_diags *dg);
/* Tells the others that this rank is busy with something that takes long (a checkpoint, opening
 * data), so that waiting for it is not an error until limit_s is over; NULL ends it. */
void gw_comm_busy(gw_comm *c, const char *what, double limit_s);
/* Called before each op of a program: a sign of life for those who wait. A store, no more. */
void gw_comm_alive(gw_comm *c, uint64_t op);
/* What this rank does from here on, as a part of a sentence: "forward of micro-batch 3 of stage 2
 * (action 17 of 40)". Whoever finds this rank late, dead or different adds "in ..." to its line.
 * Up to 95 bytes are kept; NULL or "" when there is nothing to say. Some stores, no more. Between
 * local ranks it is seen even of a rank that was killed; over MPI it is told to the ranks that
 * share a channel, not more often than some times a second, and travels with answers: of a rank
 * that does not answer the latest that came is shown. */
void gw_comm_doing(gw_comm *c, const char *what);
/* Tells the others that this rank gives up, and why: they return GW_ERR_PEER at once. NULL or "":
 * another rank has the reason and says it, for which this one leaves it some seconds over MPI. */
void gw_comm_abort(gw_comm *c, const char *why);

/* ---- what was counted ---- */
typedef struct gw_comm_counts {
    int64_t calls, payload, moved; /* payload, moved: bytes sent by this rank */
    int64_t ns, wait_ns;           /* in collectives; of these, waiting for others */
} gw_comm_counts;
gw_comm_counts gw_comm_counted(const gw_comm *c, gw_coll_kind k);
void gw_comm_counts_reset(gw_comm *c);

/* The flight recorder: the last collectives and messages of every rank that can be seen from here,
 * as a table for people, and what each is doing. */
void gw_comm_print_flight(const gw_comm *c, FILE *out);

#endif

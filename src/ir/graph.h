// SPDX-License-Identifier: Apache-2.0
// The graph: values and ops in flat arrays with 32-bit ids, and everything that is known of them.
//
// One type serves all stages: the forward graph a model builds, the training step after autodiff,
// and the placed program of one rank. Ops stand in program order (a definition before its uses).
// Passes map a graph to a new graph. There are no pointers inside, so a graph can be copied, hashed
// and compared; what an op means stands in its descriptor (ir/opdef.h), reached through
// gw_graph.table.
//
// Rates. A `step` op runs once a step, an `mb` op once per micro-batch. Program order is: step ops
// before the loop, mb ops, step ops after the loop. A step op that stands between mb ops runs in
// the last iteration only (a reduction of finished gradients); no mb op reads what it makes. An mb
// op that ties its output to a step-rate
// input is an accumulation carried around the loop: the bytes are those of the step-rate value, and
// step ops after the loop read the final sum through the mb op's output.
//
// Stages. The program of one rank of a pipeline has `actions`: what the rank does in a step, in
// order. Its loop consists of pieces (op.stage and op.part; those of one piece stand together,
// pieces in the order in which they run last), and an action runs one or two of them for one
// micro-batch. What lives from piece to piece has a place for each micro-batch under way
// (ir/flow.h). A step op in the loop runs with its stage's R.
//
// Ties. `value.tie` names the value whose bytes an output takes over. The old value is dead
// afterwards.
#ifndef GW_IR_GRAPH_H
#define GW_IR_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/hash.h"  /* gw_hash128 */
#include "base/map.h"   /* gw_smap, GW_VEC */
#include "ir/action.h"  /* gw_action, gw_part */
#include "ir/dtype.h"   /* gw_dtype */
#include "ir/mesh.h"    /* gw_mesh */

#define GW_NONE         UINT32_MAX
#define GW_MAX_DIMS     6
#define GW_MAX_DIM_AXES 20

typedef uint32_t gw_vid; /* value id */
typedef uint32_t gw_oid; /* op id */
typedef uint32_t gw_sid; /* interned string id; 0 is "" */

/* A dimension is cut once, by the product of its sub-axes, in parts of kind `shard`; or, `outer` >
 * 0, twice: over the first `outer` sub-axes in parts of that kind, and each of these, as the list
 * of elements it is, over the rest in chunks. `turn`: the outer parts have travelled that many
 * ranks around the ring of the outer sub-axes, so rank p of n holds part (p - turn) mod n. */
typedef struct gw_dim {
    char name[8];  /* a factor: b s d h k f v ...; letters only, NUL-padded */
    int64_t size;  /* global */
    uint8_t naxes; /* sub-axes this dimension is sharded on, major first */
    uint8_t shard; /* gw_shard_kind */
    uint8_t outer; /* 0, or how many of them make the outer cut */
    uint8_t turn;  /* of the outer parts; 0 unless outer > 0 */
    uint8_t axes[GW_MAX_DIM_AXES];
} gw_dim;

/* dtype, named global dimensions, placement. An axis in no dim and in no mask is R. flat: the local
 * part, as the dimensions' cuts leave it, is flattened and cut again, balanced, over flat_axes. */
typedef struct gw_type {
    uint8_t dtype; /* gw_dtype */
    uint8_t ndim;
    uint8_t flat; /* 1: an optimizer home */
    uint32_t flat_axes;
    uint32_t psum; /* sub-axes on which this is a partial sum */
    uint32_t pmax; /* sub-axes on which this is a partial maximum */
    gw_dim dims[GW_MAX_DIMS];
} gw_type;

/* X(enum, text) */
#define GW_ROLES(X)                                                                                \
    X(TEMP, "temp")                                                                                \
    X(PARAM, "param")                                                                              \
    X(STATE, "state")                                                                              \
    X(INPUT, "input")                                                                              \
    X(GRAD, "grad")                                                                                \
    X(SAVED, "saved")                                                                              \
    X(WORK, "work")
typedef enum gw_role {
#define X(id, text) GW_ROLE_##id,
    GW_ROLES(X)
#undef X
        GW_ROLE_COUNT
} gw_role;

/* What a byte is for: the rows of the plan's ledger. X(enum, text) */
#define GW_CAUSES(X)                                                                               \
    X(WEIGHTS, "weights")                                                                          \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER, "optimizer_states")                                                               \
    X(ACTIVATIONS, "activations")                                                                  \
    X(WORKSPACE, "workspace")                                                                      \
    X(COMMUNICATION, "communication")                                                              \
    X(STAGING, "staging")                                                                          \
    X(DATA, "data")                                                                                \
    X(RUNTIME, "runtime")                                                                          \
    X(FRAGMENTATION, "fragmentation")
typedef enum gw_cause {
#define X(id, text) GW_CAUSE_##id,
    GW_CAUSES(X)
#undef X
        GW_CAUSE_COUNT
} gw_cause;

#define GW_MEMS(X) X(DEVICE, "device") X(HOST, "host") X(DISK, "disk")
typedef enum gw_mem {
#define X(id, text) GW_MEM_##id,
    GW_MEMS(X)
#undef X
        GW_MEM_COUNT
} gw_mem;

/* F forward, B input gradient, W weight gradient, BW both, O optimizer and frame. */
#define GW_PHASES(X) X(F, "F") X(B, "B") X(W, "W") X(BW, "BW") X(O, "O")
typedef enum gw_phase {
#define X(id, text) GW_PHASE_##id,
    GW_PHASES(X)
#undef X
        GW_PHASE_COUNT
} gw_phase;

typedef enum gw_rate { GW_RATE_STEP, GW_RATE_MB } gw_rate;

/* Streams: compute, copies between memory kinds, and one for each mesh axis group that
 * communicates. */
#define GW_STREAMS(X)                                                                              \
    X(COMPUTE, "compute")                                                                          \
    X(COPY, "copy") X(DP, "dp") X(TP, "tp") X(CP, "cp") X(EP, "ep") X(PP, "pp")
typedef enum gw_stream {
#define X(id, text) GW_STREAM_##id,
    GW_STREAMS(X)
#undef X
        GW_STREAM_COUNT
} gw_stream;

typedef struct gw_value {
    gw_type type;
    uint8_t role;   /* gw_role */
    uint8_t cause;  /* gw_cause */
    uint8_t mem;    /* gw_mem */
    uint8_t rate;   /* gw_rate: of the definition, or of the input */
    uint16_t out;   /* which output of `def` */
    gw_oid def;     /* GW_NONE for leaves (params, states, inputs) */
    gw_vid tie;     /* shares the bytes of this value, or GW_NONE */
    gw_sid name;    /* parameters, states, inputs and named results; 0 otherwise */
    int64_t offset; /* in the arena of `mem`, set by place; -1 before */
} gw_value;

typedef union gw_attr {
    int64_t i; /* int, bool, enum (dtype) */
    double f;
    gw_sid s;
} gw_attr;

#define GW_OP_RECOMPUTED 1u /* a forward op run again in phase B; keeps its name */

typedef struct gw_op {
    uint16_t code;  /* index into the op table */
    uint8_t phase;  /* gw_phase */
    uint8_t rate;   /* gw_rate */
    uint8_t stream; /* gw_stream */
    uint8_t flags;
    uint8_t part; /* gw_part; ALL outside the loop and in programs without stages */
    uint16_t nin, nout, nafter;
    uint32_t in;    /* first input in gw_graph.edges; an optional input that is absent is GW_NONE */
    uint32_t out;   /* first output in gw_graph.edges */
    uint32_t after; /* ops this one waits for besides its inputs, in gw_graph.edges */
    uint32_t attr;  /* first attribute in gw_graph.attrs; as many as the descriptor has */
    gw_sid scope;   /* "layer 0/attn/q" */
    gw_vid work;    /* workspace value (u8), or GW_NONE; lives during this op only */
    int32_t stage;  /* of its piece; 0 without stages */
} gw_op;

/* State carried from step to step: value at start, value at end, same bytes. */
typedef struct gw_state {
    gw_vid start, end;
} gw_state;

struct gw_optable; /* ir/opdef.h */

typedef struct gw_graph {
    const struct gw_optable *table;
    gw_mesh mesh;
    int32_t
        micro_batches; /* iterations of the mb loop in a step; 0 = any number (forward programs) */
    GW_VEC(gw_value) values;
    GW_VEC(gw_op) ops;
    GW_VEC(uint32_t) edges;
    GW_VEC(gw_attr) attrs;
    GW_VEC(gw_state) states;
    GW_VEC(gw_action) actions; /* none: no stages */
    GW_VEC(char) chars;        /* string pool; strings are NUL-terminated */
    GW_VEC(uint32_t) strings;  /* string id -> first char */
    gw_imap string_ids;        /* hash of text -> string id (collisions resolved by a chain) */
    int64_t arena_bytes[GW_MEM_COUNT]; /* set by place; 0 before */
} gw_graph;

void gw_graph_init(gw_graph *g, const struct gw_optable *table);
void gw_graph_release(gw_graph *g);
/* Initialises dst with the frame of src: table, mesh, micro-batches, actions; no values or ops. */
void gw_graph_begin(gw_graph *dst, const gw_graph *src);
/* Deep copy into an uninitialised graph. */
void gw_graph_dup(gw_graph *dst, const gw_graph *src);
/* Same values, ops, attributes, ties, states, mesh, in the same order (strings by content). On a
 * difference writes one line about the first into why[0..n). */
bool gw_graph_equal(const gw_graph *a, const gw_graph *b, char *why, int n);
gw_hash128 gw_graph_hash(const gw_graph *g);

gw_sid gw_graph_intern(gw_graph *g, const char *text);
const char *gw_graph_str(const gw_graph *g, gw_sid id);

/* ---- types ---- */
/* gw_type_make(GW_F32, "b4 s512 d768"): panics on a bad text (a constant of ours). */
gw_type gw_type_make(gw_dtype t, const char *dims);
gw_type gw_type_scalar(gw_dtype t);
/* Appends a dimension. */
void gw_type_add(gw_type *t, const char *name, int64_t size);
/* Index of a dimension by name, or -1. */
int gw_type_find(const gw_type *t, const char *name);
bool gw_type_same_dims(const gw_type *a, const gw_type *b);
int64_t gw_type_elems(const gw_type *t); /* global; 1 for a scalar */
/* Elements and bytes that `rank` holds under the placement. */
int64_t gw_type_local_elems(const gw_type *t, const gw_mesh *m, int64_t rank);
int64_t gw_type_local_bytes(const gw_type *t, const gw_mesh *m, int64_t rank);
/* Where a flat part begins: an index into the flattened local tensor that it is a part of (the
 * whole one where no dimension is cut); 0 of types that are not flat. */
int64_t gw_type_flat_first(const gw_type *t, const gw_mesh *m, int64_t rank);
/* Local length of dimension i. */
int64_t gw_type_local_dim(const gw_type *t, int i, const gw_mesh *m, int64_t rank);
/* Do all ranks hold the same length of dimension i? */
bool gw_type_even(const gw_type *t, int i, const gw_mesh *m);
/* The sub-axes that dimensions are cut on. */
uint32_t gw_type_cut_axes(const gw_type *t);
/* Those and what a flat home is cut on: ranks that are alike on them hold the same elements. */
uint32_t gw_type_part_axes(const gw_type *t);
uint32_t gw_dim_axes(const gw_dim *d);
/* Sub-axes that make the outer cut; all of them where there is only one. */
int gw_dim_outer(const gw_dim *d);
/* Cut alike: by the same sub-axes in the same order, parts of one kind. An outer cut over all of
 * them is the one cut. */
bool gw_dim_same_cut(const gw_dim *a, const gw_dim *b);
bool gw_type_same_cuts(const gw_type *a, const gw_type *b); /* of all dimensions, in order */
/* Gives d the cut of another dimension, whatever it is called and however long it is. */
void gw_dim_set_cut(gw_dim *d, const gw_dim *cut);

/* What `rank` holds of dimension i: runs of consecutive global indices, in local order; at most two
 * (chunks, zigzags). */
typedef struct gw_runs {
    int n;
    int64_t first[2], count[2];
} gw_runs;
gw_runs gw_type_runs(const gw_type *t, int i, const gw_mesh *m, int64_t rank);
/* Global index along a cut of local index `at`, 0 <= at < the sum of its counts. */
int64_t gw_runs_global(const gw_runs *c, int64_t at);

/* All elements that a rank holds, in local order, as runs that are consecutive in the whole tensor,
 * row-major: what initial weights, random rounding, checkpoints and comparisons go by. */
typedef struct gw_held {
    gw_runs cuts[GW_MAX_DIMS];
    int64_t length[GW_MAX_DIMS], stride[GW_MAX_DIMS]; /* local; of the whole tensor */
    int last; /* the innermost dimension that is cut, or 0 */
    int ndim;
    int64_t inner;  /* elements below it */
    int64_t lo;     /* of the flattened local tensor, where the flat part begins */
    int64_t at, hi; /* next of it, end */
} gw_held;
void gw_held_begin(gw_held *w, const gw_type *t, const gw_mesh *m, int64_t rank);
/* The next run: from `global` of the whole tensor, from `local` of this rank's buffer. */
bool gw_held_next(gw_held *w, int64_t *global, int64_t *local, int64_t *count);

/* ---- values and ops ---- */
/* A leaf: parameter, state or input. */
gw_vid gw_graph_leaf(gw_graph *g, gw_role role, gw_cause cause, gw_rate rate, gw_type type,
                     const char *name);
/* Appends an op with nout fresh outputs of the given types; attrs: as many as the descriptor has
 * (NULL = all defaults). Outputs get role temp, cause activations, and the op's rate. Ties that the
 * descriptor demands are set. Returns the op id. */
gw_oid gw_graph_op(gw_graph *g, uint16_t code, const gw_vid *in, int nin, const gw_attr *attrs,
                   const gw_type *out_types, int nout, gw_phase phase, gw_rate rate, gw_sid scope);
/* Copies op `o` of `src` into `dst` (another graph with the same table), its inputs translated
 * through map[vid] and fresh outputs entered into map. An accumulator whose entry is GW_NONE
 * becomes absent. All facts of the outputs are kept (offset too). */
gw_oid gw_graph_copy_op(gw_graph *dst, const gw_graph *src, gw_oid o, gw_vid *map);
gw_vid gw_graph_copy_leaf(gw_graph *dst, const gw_graph *src, gw_vid v);
void gw_graph_add_state(gw_graph *g, gw_vid start, gw_vid end);

static inline gw_vid gw_op_in(const gw_graph *g, const gw_op *o, int i) {
    return g->edges.items[o->in + (uint32_t)i];
}
static inline gw_vid gw_op_out(const gw_graph *g, const gw_op *o, int i) {
    return g->edges.items[o->out + (uint32_t)i];
}
static inline gw_attr gw_op_attr(const gw_graph *g, const gw_op *o, int i) {
    return g->attrs.items[o->attr + (uint32_t)i];
}
static inline const gw_type *gw_type_of(const gw_graph *g, gw_vid v) {
    return &g->values.items[v].type;
}
/* The first value of a chain of ties: the owner of the bytes. */
gw_vid gw_value_root(const gw_graph *g, gw_vid v);
/* Bytes between the root's first byte and v's on `rank`: not 0 only where v is a flat part that
 * lies inside its whole root (a view). */
int64_t gw_value_view_bytes(const gw_graph *g, gw_vid v, int64_t rank);
/* The ops fused with op o into one collective: neighbours with its opcode and its `bucket`
 * attribute, which is not 0. Alone: *first == *last == o. Cost: the size of the bucket. */
void gw_graph_bucket(const gw_graph *g, gw_oid o, int64_t *first, int64_t *last);
/* Up to where what copy op o (stream `copy`) reads must stay as it is: the first op of the next run
 * of neighbouring copy ops, where the executor waits for this run; no further than the last op
 * before the rate changes; the number of ops if neither comes. */
int64_t gw_graph_copy_end(const gw_graph *g, gw_oid o);
/* The micro-batch loop: from the first op at micro-batch rate to behind the last one, or behind the
 * last op of a piece of a stage (a reduction that runs with R). None: both are the number of ops.
 */
void gw_graph_loop(const gw_graph *g, gw_oid *first, gw_oid *end);
/* Finds a leaf by role and name, or GW_NONE. Linear: for builders and tests. */
gw_vid gw_graph_find(const gw_graph *g, gw_role role, const char *name);

const char *gw_role_name(gw_role r);
const char *gw_cause_name(gw_cause c);
const char *gw_mem_name(gw_mem m);
const char *gw_phase_name(gw_phase p);
const char *gw_stream_name(gw_stream s);

#endif

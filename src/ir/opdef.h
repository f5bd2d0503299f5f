// SPDX-License-Identifier: Apache-2.0
// What an op is: one constant descriptor, at the end of its one file in src/ops.
//
// From the factor signature follow the output's shape, mismatch errors, FLOPs and bytes, which
// factors pass a sharding through and which turn it into a partial sum. Ops whose shapes are not
// multilinear facts set hooks. No slot is NULL: gw_*_default and gw_*_none are the named defaults.
#ifndef GW_IR_OPDEF_H
#define GW_IR_OPDEF_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "ir/graph.h"  /* gw_graph, gw_type, gw_vid */

#define GW_MAX_IN      12 /* fixed inputs of an op; variadic ops (addn) may have more */
#define GW_MAX_OUT     6
#define GW_MAX_ATTRS   10
#define GW_MAX_FACTORS 16

/* ---- attributes ---- */
typedef enum gw_attr_kind {
    GW_ATTR_INT,
    GW_ATTR_BOOL,
    GW_ATTR_FLOAT,
    GW_ATTR_STR,
    GW_ATTR_DTYPE
} gw_attr_kind;
typedef struct gw_attr_def {
    const char *name;
    gw_attr_kind kind;
    int64_t def_i; /* default for int, bool, dtype */
    double def_f;  /* default for float */
} gw_attr_def;     /* default of a string is "" */

/* ---- factor signatures ---- */
/* Text: operands "in,in->out,out"; each operand is words of factor letters. `*` stands for the
 * leading dims that are the same everywhere it appears. `!x` marks a factor that must be whole on a
 * rank (a norm's d). `?` after an operand makes it optional. "" = the op has no multilinear
 * signature (hooks instead). Examples: "*!d,!d->*!d" (rmsnorm), "*,*->*" (add). Dim names, not
 * positions, bind: each letter is bound to the name of the dimension that stands there. */
typedef enum gw_factor_kind {
    GW_FACTOR_PASS,     /* in an output: a sharding passes through */
    GW_FACTOR_CONTRACT, /* in inputs only: a sharding turns the output into P(sum) */
    GW_FACTOR_WHOLE,    /* must be whole on a rank */
} gw_factor_kind;

typedef struct gw_factor {
    char name[8];
    int64_t size;
    gw_factor_kind kind;
    int8_t in_dim[GW_MAX_IN]; /* dimension index in each input, -1 = absent */
    int8_t out_dim[GW_MAX_OUT];
    char with[8];  /* "" or the factor this one groups (kv heads: query heads): cut together */
    int64_t block; /* 0, or: an operand may hold it in blocks of so many, one number for each (the
                      scales of eight-bit floats); cuts never go through one */
} gw_factor;

typedef struct gw_signature {
    int nfactors;
    gw_factor factors[GW_MAX_FACTORS];
} gw_signature;

/* ---- hooks ---- */
/* infer: given inputs and attributes, fills out[0..nout) (dtype, dims; placements are the shard
 * pass's). Errors (GW_ERR_CONFIG) name the op, both shapes and the dimension. */
typedef struct gw_infer {
    const gw_graph *g;
    const struct gw_opdef *def;
    const gw_vid *in;
    int nin;
    const gw_attr *attrs;
    gw_type *out;
    int *nout; /* preset to def->nout */
    gw_diags *dg;
} gw_infer;

/* Work of one execution on one rank. */
typedef struct gw_cost {
    double flops;      /* multiply-adds count 2; causal attention counts what is computed */
    double flops_full; /* the same with full (non-causal) attention */
    double bytes_read, bytes_written;
} gw_cost;

/* vjp: given gradients of the outputs (GW_NONE where none flows), appends ops that compute
 * gradients of the inputs to `b` and stores their values in din (GW_NONE = no gradient). Uses the
 * builder below. */
struct gw_builder;
typedef struct gw_vjp {
    struct gw_builder *b;   /* appends with the right phase and scope */
    const gw_graph *g;      /* == b->g */
    gw_oid op;              /* the forward op (its inputs, outputs, attributes are in g) */
    const gw_vid *in, *out; /* of the forward op */
    int nin, nout;
    const gw_attr *attrs;
    const gw_vid *dout;
    const bool *want; /* which inputs need a gradient */
    gw_vid *din;
    gw_vid *replace; /* [nout], preset to GW_NONE: a value that stands for the output from now on
                        (the loss of a fused head; the forward op is then dead) */
    gw_dtype grad_dtype; /* dtype of weight gradients (f32, or the compute dtype) */
} gw_vjp;

/* One tensor as a kernel sees it: local, dense, row-major. */
typedef struct gw_tensor {
    void *data;
    gw_dtype dtype;
    int ndim;
    int64_t dims[GW_MAX_DIMS];
    int64_t elems;
    int64_t first; /* index in the whole tensor of element 0; those that follow it here follow it
                      there only where no dimension but the first is cut (gw_held knows) */
} gw_tensor;

/* The arguments of a kernel. An absent optional input has data NULL and elems 0. */
typedef struct gw_kargs {
    const gw_graph *g;
    const gw_op *op;
    int nin, nout;
    const gw_tensor *in;
    const gw_tensor *out;
    void *work; /* aligned to 64 bytes */
    int64_t work_bytes;
    int threads;
    int64_t rank; /* whose tensors these are: with the types of g, where each element stands */
} gw_kargs;

/* ---- shard rules ---- */
/* The sub-axes of the mesh by what they do to a layer; masks, 0 where there are none. */
typedef struct gw_axes {
    uint32_t samples; /* dimension b is cut on these */
    uint32_t tp;      /* weights are cut on these; s too, where sequence_parallel */
    uint32_t cp;   /* s is cut on these: ring | ulysses | gather, three masks without common bits */
    uint32_t ring; /* K and V travel around these */
    uint32_t ulysses; /* s becomes heads on these around attention */
    uint32_t gather;  /* K and V are gathered over these */
    uint32_t ep;      /* experts are cut on these, a part of samples, cp and tp */
    bool sequence_parallel;
    double moe_buffer; /* rows an expert-parallel rank has room for, in mean loads */
} gw_axes;

/* What a shard rule sees of an op whose turn it is, and what it may do. It leaves in out[] values
 * of b->g, with placements, that are the op's outputs. By default the pass decides by the
 * signature; a rule of its own converts inputs with gw_sharding_convert, appends ops to b (in the
 * op's phase, rate and scope) and gives each of their outputs its placement with gw_sharding_place.
 */
struct gw_builder;
typedef struct gw_sharding {
    struct gw_builder *b;
    const gw_graph *src; /* without placements */
    const gw_op *op;     /* of src */
    int nin, nout;
    gw_vid *in;  /* of b->g; GW_NONE where absent. Not flat, on the device, but perhaps partial */
    gw_vid *out; /* to be filled */
    const gw_attr *attrs; /* of op, for b->g */
    const gw_axes *axes;
    const gw_type *const *want; /* [nout]: where out[k] is a gradient, the placement of its home; or
                                   NULL */
    gw_status (*by_signature)(struct gw_sharding *, gw_diags *);
    gw_vid (*convert)(struct gw_sharding *, gw_vid v, const gw_type *to);
} gw_sharding;

gw_status gw_shard_default(gw_sharding *s, gw_diags *dg); /* by the signature */
/* v in placement `to` (dims cut, psum, pmax; other facts are ignored), by collectives if need be.
 * The same conversion of an input, asked for again in forward or again in backward, is not made
 * twice. Errors stay in b->status. */
static inline gw_vid gw_sharding_convert(gw_sharding *s, gw_vid v, const gw_type *to) {
    return s->convert(s, v, to);
}
/* Gives value v of b->g the cuts and partial axes of `t`, whose dimensions it has, matched by name.
 */
void gw_sharding_place(gw_sharding *s, gw_vid v, const gw_type *t);
/* Changes of a placement: dimension d without, or with, sub-axes (appended as the most minor, in
 * mesh order). */
void gw_dim_uncut(gw_dim *d, uint32_t axes);
void gw_dim_cut(gw_dim *d, uint32_t axes, const gw_mesh *m);

/* cases: adds small graphs that exercise the op; each is run on reference and backend kernels, and
 * through finite differences in float64. See ops/cases.h. */
struct gw_cases;

#define GW_OP_LINEAR 0x01u /* linear bookkeeping: P travels through (add, scale, cast, reshape) */
#define GW_OP_INPLACE                                                                              \
    0x04u /* output 0 may take the bytes of an input of the same size that dies here */
#define GW_OP_RANDOM     0x08u /* draws counter-based random numbers */
#define GW_OP_CHEAP      0x10u /* recompute rather than send or save (rope tables, masks) */
#define GW_OP_OPTIMIZER  0x20u
#define GW_OP_VARIADIC   0x40u /* nin is the least number of inputs */
#define GW_OP_LOSS       0x80u /* output 0 is a loss sum; vjp fuses forward and backward (BW) */
#define GW_OP_COLLECTIVE 0x100u
#define GW_OP_NODIFF     0x200u /* never on a gradient path (ids, tables, optimizer) */
#define GW_OP_VIEW                                                                                 \
    0x400u /* output 0 may be tied to input 0 though their local bytes differ: one is a flat part, \
              where it lies in the whole */
#define GW_OP_FLAT                                                                                 \
    0x800u /* indifferent to shape (elementwise, or a sum over everything): works on flat parts */

#define GW_OP_BATCH_DEPENDENT                                                                      \
    0x2000u /* its result for one sample depends on the others: cutting a batch changes it */
#define GW_OP_OWN_PLACEMENT                                                                        \
    0x4000u /* the placements of its operands and results are not what its signature says: its     \
               verify hook checks them */

typedef struct gw_opdef {
    const char *name;
    const char *doc; /* one line for the generated op reference */
    const char *signature;
    uint32_t traits;
    uint16_t linear_in; /* bit mask of inputs: a partial sum there, and in no other input, makes the
                           outputs partial sums (a product, a rotation); GW_OP_LINEAR says it of all
                           inputs together */
    uint16_t joins_in; /* inputs that are added to what is summed (a bias): where a cut factor makes
                          that a partial sum, they stand on one rank */
    int nin, nout;     /* nin counts optional inputs */
    int noptional;     /* trailing inputs that may be absent, accumulators included */
    int nacc;          /* the last nacc inputs are optional accumulators (same type as, and tied to,
                          the last nacc outputs, in order): out = acc + result */
    int8_t ties[GW_MAX_OUT];      /* output i takes over input ties[i]; -1 = fresh */
    uint16_t reads_in, reads_out; /* bit masks: what backward reads of inputs and outputs */
    int nattrs;
    const gw_attr_def *attrs;
    gw_status (*infer)(gw_infer *);
    gw_status (*verify)(const gw_graph *, const gw_op *, gw_diags *);
    void (*sign)(const gw_graph *, const gw_op *, gw_signature *);
    gw_status (*shard)(gw_sharding *, gw_diags *);
    void (*cost)(const gw_graph *, const gw_op *, gw_cost *);
    void (*vjp)(gw_vjp *);
    void (*reference)(const gw_kargs *);
    void (*cases)(struct gw_cases *);
} gw_opdef;

typedef struct gw_optable {
    int count;
    const gw_opdef *const *ops;
} gw_optable;

static inline const gw_opdef *gw_op_def(const gw_graph *g, const gw_op *o) {
    return g->table->ops[o->code];
}
/* Is the op called `name`? For the few ops that a pass or the executor inserts itself and has to
 * know again; what an op means is asked of its descriptor. */
bool gw_op_is(const gw_graph *g, const gw_op *o, const char *name);
/* Code by name, or -1. */
int gw_optable_find(const gw_optable *t, const char *name);
/* The input that output `out` accumulates into (index), or -1 when the op has none there. The input
 * may still be absent (GW_NONE). */
int gw_op_accumulator(const gw_graph *g, const gw_op *o, int out);
/* Is input `in` one that an output adds into? */
bool gw_op_accumulates(const gw_graph *g, const gw_op *o, int in);
/* Does one factor group the other (kv heads and query heads)? They are cut together. */
bool gw_factor_partners(const gw_factor *a, const gw_factor *b);

/* Defaults. */
gw_status gw_infer_default(gw_infer *); /* outputs from the signature; dtype of input 0 */
gw_status gw_verify_default(const gw_graph *, const gw_op *,
                            gw_diags *); /* infer agrees with what stands */
void gw_sign_default(const gw_graph *, const gw_op *, gw_signature *); /* binds def->signature */
void gw_cost_default(const gw_graph *, const gw_op *,
                     gw_cost *);       /* 2 x product of factors if contracting,
                                        else 1 flop an output; bytes of operands */
void gw_vjp_none(gw_vjp *);            /* panics: GW_OP_NODIFF ops */
void gw_cases_none(struct gw_cases *); /* frame ops tested elsewhere; says where in doc */

/* Attributes by name, so that only an op's own file knows their order. attrs has GW_MAX_ATTRS
 * entries. Unknown names panic: they are constants of ours. */
void gw_attrs_default(const gw_optable *t, const char *op, gw_attr *attrs);
void gw_attrs_set(const gw_optable *t, const char *op, gw_attr *attrs, const char *name,
                  gw_attr value);
/* The value of an attribute of an op by name. */
gw_attr gw_op_attr_named(const gw_graph *g, const gw_op *o, const char *name);

/* ---- builder: appends ops with inference ---- */
/* Builders never fail one by one: the first error is kept (with the scope as a frame), later calls
 * return GW_NONE-safe dummies, and gw_builder_status tells. */
typedef struct gw_builder {
    gw_graph *g;
    gw_diags *dg;
    gw_status status;
    gw_phase phase;
    gw_rate rate;
    char scope[160];
} gw_builder;

void gw_builder_init(gw_builder *b, gw_graph *g, gw_diags *dg);
/* Pushes "/name" (or "name" at the top); pops the last part. */
void gw_builder_enter(gw_builder *b, const char *fmt, ...) GW_PRINTF(2, 3);
void gw_builder_leave(gw_builder *b);
/* Appends op `name` (checked constant) with inputs and attributes; returns its first output, the
 * others in more[0..nout-1) if more is not NULL. attrs NULL = defaults. */
gw_vid gw_build(gw_builder *b, const char *name, const gw_vid *in, int nin, const gw_attr *attrs,
                gw_vid *more);
/* gw_build1(b, "add", (gw_vid[]){x, y}) counts the inputs. */
#define gw_build1(b, name, ...)                                                                    \
    gw_build((b), (name), (const gw_vid[]){__VA_ARGS__},                                           \
             (int)(sizeof((const gw_vid[]){__VA_ARGS__}) / sizeof(gw_vid)), NULL, NULL)

#endif

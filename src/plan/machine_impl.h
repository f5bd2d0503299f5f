// SPDX-License-Identifier: Apache-2.0
// The cost model's parameters, and what the files of a machine share.
#ifndef GW_PLAN_MACHINE_IMPL_H
#define GW_PLAN_MACHINE_IMPL_H

#include "plan/machine.h" /* gw_machine_spec */

/* X(name, least, most, what it is): keys of `model:` in a hardware file, and the table of
 * docs/hardware.md. */
#define GW_MACHINE_PARAMS(X)                                                                       \
    X(tile_m, 1, 65536, "rows of the tile of a product that one unit works on")                    \
    X(tile_n, 1, 65536, "columns of it")                                                           \
    X(k_ramp, 0, 65536, "filling and emptying a tile's pipeline, as elements of k")                \
    X(product_efficiency, 0.01, 1, "part of the peak that a large product reaches")                \
    X(f8_efficiency, 0.01, 1, "the same of eight-bit floats")                                      \
    X(attention_forward, 0.01, 1, "part of the peak that attention's products reach, forward")     \
    X(attention_backward, 0.01, 1, "the same, backward")                                           \
    X(attention_ramp, 0, 65536, "keys that a row of attention takes longer, for its edges")        \
    X(attention_softmax, 0, 1024, "the softmax of a pair, as elements of a head")                  \
    X(memory_efficiency, 0.01, 1, "part of the memory's bandwidth that a pass reaches")            \
    X(launch_s, 0, 1, "beginning and end of a kernel, seconds")                                    \
    X(spread, 0, 1, "by how much ranks differ in speed: standard deviation, as a part of it")      \
    X(near_efficiency, 0.01, 1, "part of the first tier's bandwidth that a collective reaches")    \
    X(far_efficiency, 0.01, 1, "the same of the tiers behind it")                                  \
    X(near_hop_s, 0, 1, "latency of a hop of the first tier, where its file states none")          \
    X(far_hop_s, 0, 1, "the same of the tiers behind it")                                          \
    X(collective_s, 0, 1, "what a collective takes however small it is, seconds")                  \
    X(gather_levels, 0, 1,                                                                         \
      "1: gathers go tier by tier, as along the axes of a torus; 0: one ring")                     \
    X(in_network_efficiency, 0.01, 1, "of near_efficiency, what is left when switches reduce")     \
    X(overlap, 1, 10, "by how much compute runs longer beside a collective")                       \
    X(tp_beside, 0, 0.99, "part of a tensor-parallel gather or scatter that is beside products")   \
    X(quantise_bytes, 0, 1024, "bytes through memory for an operand of experts to be in 8 bits")   \
    X(logit_bytes, 0, 1024, "bytes that pass through memory for a logit, both directions")

struct gw_chip_model {
#define X(name, least, most, doc) double name;
    GW_MACHINE_PARAMS(X)
#undef X
};

typedef struct gw_machine_param {
    const char *name, *doc;
    double least, most;
    size_t at; /* in gw_chip_model */
} gw_machine_param;
extern const gw_machine_param gw_machine_params[];
int gw_machine_nparams(void);

/* The ranks of a collective as they stand on the tiers. */
typedef struct gw_machine_group {
    double n;                      /* ranks */
    double held[GW_MACHINE_TIERS]; /* in one group of tier t; grows */
    double rate[GW_MACHINE_TIERS]; /* bytes/s of a rank there */
    double hop[GW_MACHINE_TIERS];  /* seconds */
    int tiers;                     /* that it crosses */
    double base;                   /* seconds however small */
    bool gather_levels;            /* gathers and scatters may go tier by tier */
    bool in_network;               /* on the first tier */
    double in_network_rate;
} gw_machine_group;
/* False: some link that it needs is not stated. */
bool gw_machine_group_of(const gw_machine_spec *m, const gw_mesh *mesh, uint32_t axes, int64_t size,
                         gw_machine_group *out);

/* A product of a program, as `rank` has it: local extents. */
typedef struct gw_machine_product {
    double rows, cols, k;
    gw_dtype t;
} gw_machine_product;
gw_machine_product gw_machine_product_of(const gw_graph *g, const gw_op *o, int64_t rank);

/* Expected largest of n standard normals (Cramer's first terms, good to a tenth from 8 on). */
double gw_machine_largest(double n);

/* Of op o (experts, experts_ep or a gradient): how many tokens come to ranks, each counted once a
 * rank, as a part of the rows that their experts see. */
double gw_machine_rows_part(const gw_graph *g, const gw_op *o);

/* A hardware file that is built into the program. */
typedef struct gw_machine_file {
    const char *name;
    const unsigned char *text; /* ends in a NUL */
    int64_t len;
} gw_machine_file;
/* By its name; NULL if there is none. */
const gw_machine_file *gw_machine_builtin(const char *name);
/* File i; NULL past the end. */
const gw_machine_file *gw_machine_builtin_at(int i);
/* Does the file list `alias`? (Reads the text; the built-in files are well formed.) */
bool gw_machine_has_alias(const gw_machine_file *f, const char *alias, gw_arena *a);

#endif

// SPDX-License-Identifier: Apache-2.0
// A machine as its hardware file describes it, and what one op, one collective, one message takes
// on it.
//
// Hardware files (hardware/NAME.yaml, built into the program) state facts with their sources
// (peaks, memory, links by tier, price) and, apart from these, the few parameters of the cost
// model, which are the chip's: none belongs to a model or to a row of published figures. What a
// file does not state is 0, and a figure that needs it is not given. docs/hardware.md describes
// both.
#ifndef GW_PLAN_MACHINE_H
#define GW_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "base/str.h"   /* gw_str */
#include "comm/comm.h"  /* gw_coll */
#include "ir/opdef.h"   /* gw_graph, gw_op, gw_mesh */

enum { GW_MACHINE_TIERS = 6 };

/* Links among groups of `ranks` neighbours (8: the chips of a node); a tier holds the ones before.
 */
typedef struct gw_tier {
    const char *name;        /* "nvlink" */
    int64_t ranks;           /* in one group of it; 0 in the last: any number */
    double bytes_per_s;      /* of a rank, one direction, as stated; 0: not stated */
    double pair_bytes_per_s; /* of it, what goes to one other rank; 0: all of it may */
    double latency_s;        /* of one hop; 0: the cost model's */
    double oversubscription; /* 1: full bisection; 0: not stated */
    bool in_network;         /* reduces in switches */
} gw_tier;

typedef struct gw_chip_model gw_chip_model; /* the cost model's parameters (machine_impl.h) */

typedef struct gw_machine_spec {
    const char *name;            /* "h100-sxm"; "" where keys alone describe it */
    const char *asked;           /* "h100", as it was asked for, keys included */
    double peak[GW_DTYPE_COUNT]; /* FLOP/s of dense products by dtype of their operands; 0: none */
    double units;                /* that multiply side by side (SMs, cores); 0: not stated */
    double memory_bytes, memory_bytes_per_s;
    gw_tier tiers[GW_MACHINE_TIERS];
    int ntiers;
    double mfu;                         /* the part of the roofline that somebody says is reached,
                                           instead of the cost model of products; 0: not said */
    double host_bytes_per_s;            /* between chip and host memory */
    double storage_read, storage_write; /* bytes/s of a node; 0: not stated */
    double dollars_per_hour;            /* of a chip; 0: not stated */
    double failures_per_hour;           /* of a chip; 0: not stated */
    double watts;                       /* that a chip may draw; 0: not stated */
    const gw_chip_model *model;         /* NULL: keys alone describe it; ops follow the roofline */
    const struct gw_timings *timings;   /* measured times that ops and collectives take instead
                                       (plan/calibrate.h); NULL: none */
    const char *sources;                /* lines "peak.bf16 989 T: source" */
} gw_machine_spec;

/* "h100", "h100-sxm", "this" (what `gradwright calibrate` measured of this machine) or a path of a
 * calibration file (it ends in .json), a path of a YAML file (it has a '/' or ends in .yaml), or
 * keys, or any of these followed by keys: "h100,mfu=0.4,beyond=25GB/s". Keys: flops, memory, link
 * (bytes/s of a rank on the nearest tier), reach (ranks of that tier), beyond (bytes/s past it),
 * mfu, power (watts a chip is held to, where its own limit is stated: the clock, and with it all
 * peaks, falls with the cube root). Values are numbers with an optional k M G T P and an optional
 * unit (B/s, FLOP/s, W). Everything is in `a`. What is wrong with the text is GW_ERR_USAGE, with
 * what is known in the hint; with a file GW_ERR_CONFIG, with line and column. */
GW_WARN_UNUSED gw_status gw_machine_read(const char *text, gw_arena *a, gw_machine_spec *out,
                                         gw_diags *dg);
/* Name of built-in machine i; NULL past the end. */
const char *gw_machine_name(int i);
/* A machine from the text of a hardware file; `name` is for messages. Files that it inherits
 * parameters from are built-in. */
GW_WARN_UNUSED gw_status gw_machine_parse(const char *name, const char *text, int64_t len,
                                          gw_arena *a, gw_machine_spec *out, gw_diags *dg);

/* The dtype as which products of `t` run: without a peak of its own the next that has one (bf16 as
 * f16, eight bits as bf16). */
gw_dtype gw_machine_runs_as(const gw_machine_spec *m, gw_dtype t);
/* FLOP/s at which products of `t` run at best: that one's peak, times mfu where it is said. 0: not
 * stated. */
double gw_machine_flops(const gw_machine_spec *m, gw_dtype t);
/* Bytes/s of a rank between the ranks of a group of n neighbours; 0: not stated. */
double gw_machine_link(const gw_machine_spec *m, int64_t n);
/* The most ranks that stated links connect; 0: any number. */
int64_t gw_machine_reach(const gw_machine_spec *m);
/* "h100-sxm (h100): peak 989 TFLOP/s, memory 3.35 TB/s, nvlink 450 GB/s to 8 ranks,
 * infiniband 50.0 GB/s". */
void gw_machine_describe(const gw_machine_spec *m, gw_str *out);

/* Seconds of one run of op o (in g->ops) of program g on `rank` (compute ops, copies; not
 * collectives, sends). A roofline with efficiency by shape: tiles and waves of a product, bytes of
 * what passes through memory, a launch. Products that engines run as one (q, k and v; gate and up)
 * take their share of the one. 0 of what takes nothing, and where no speed is stated. */
double gw_machine_op_seconds(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                             int64_t rank);
/* Of one product [m][k] x [k][n] of `t`, `batch` of them in one launch. */
double gw_machine_product_seconds(const gw_machine_spec *m, gw_dtype t, double rows, double cols,
                                  double k, double batch);
/* Of one collective among ranks that differ on c->axes of `mesh`, laid out rank after rank over the
 * tiers: algorithm, topology, hierarchy, and the share of a link that other groups of the same axes
 * use at the same time. 0: one rank, or no link is stated. */
double gw_machine_coll_seconds(const gw_machine_spec *m, const gw_coll *c, const gw_mesh *mesh);
/* Of bringing the tokens of op o (experts_ep or its gradient) to the ranks of their experts, or
 * back: `axes` and `size` are of the ranks that hold the experts. A token travels once to each node
 * and rank that it has an expert on. 0: one rank, or no link is stated. */
double gw_machine_rows_seconds(const gw_machine_spec *m, const gw_graph *g, const gw_op *o,
                               uint32_t axes, int64_t size);
/* Which tier does a group on these axes cross (index)? The last that is stated, if none holds it.
 */
int gw_machine_tier(const gw_machine_spec *m, const gw_mesh *mesh, uint32_t axes);
/* Of one message of `bytes` between neighbours on `pp`. */
double gw_machine_send_seconds(const gw_machine_spec *m, const gw_mesh *mesh, int64_t bytes);
/* The part of a collective on `stream` after which compute that reads it goes on: tensor-parallel
 * gathers and scatters run in pieces beside the products next to them. 1: all of it. */
double gw_machine_ready(const gw_machine_spec *m, gw_coll_kind kind, gw_stream stream);
/* By how much compute runs longer while a collective runs beside it (>= 1). */
double gw_machine_overlap(const gw_machine_spec *m);

#endif

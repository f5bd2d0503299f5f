// SPDX-License-Identifier: Apache-2.0
// Ops by arithmetic intensity: how far each kind of op of a simulated step is from the chip's
// limits, the rate of its products and the bandwidth of its memory.
//
//     gw_roofline r;
//     gw_roofline_init(&r, &sim);     of a gw_simplan, which outlives it
//     json_object_set_new(plan, "roofline", gw_roofline_json(&r));
//     gw_roofline_release(&r);
#ifndef GW_PLAN_ROOFLINE_H
#define GW_PLAN_ROOFLINE_H

#include <jansson.h>

#include "plan/simplan.h" /* gw_simplan */

/* All runs in a step of the ops of one kind in one place of a layer, of a mean rank of the
 * pipeline. */
typedef struct gw_roof_point {
    const char *op;    /* "matmul" */
    const char *scope; /* without the layer: "attn/q" */
    gw_phase phase;
    gw_sim_class of;
    gw_dtype dtype; /* of the first operand */
    double runs, flops, bytes, seconds;
} gw_roof_point;

typedef struct gw_roofline {
    gw_roof_point *points; /* most seconds first; each takes time and computes */
    int n;
    double seconds;  /* of all ops */
    double copies_s; /* of these, in ops that only move bytes: they have no intensity */
    double rest_s;   /* of these, in kinds beyond the points */
    double peak[GW_DTYPE_COUNT];
    double memory_bytes_per_s;
    gw_arena mem;
} gw_roofline;

/* FLOPs and bytes are those of the ops' descriptors, seconds the machine's for an op without
 * faults. At most 64 points. */
void gw_roofline_init(gw_roofline *r, const gw_simplan *p);
void gw_roofline_release(gw_roofline *r);
/* A new reference; keys: docs/reports.md. */
json_t *gw_roofline_json(const gw_roofline *r);

#endif

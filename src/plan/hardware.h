// SPDX-License-Identifier: Apache-2.0
// A machine in five numbers, as somebody states it: what the plan's explanations divide by.
#ifndef GW_PLAN_HARDWARE_H
#define GW_PLAN_HARDWARE_H

#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */
#include "base/str.h"  /* gw_str */

/* 0: not stated. A figure that needs what is not stated is not given. */
typedef struct gw_hardware {
    char name[24];       /* of a preset, or "" */
    double flops;        /* FLOP/s of one rank in matrix products, the peak */
    double mfu;          /* the part of the roofline that is reached; 1 unless stated */
    double memory_bytes; /* bytes/s of one rank's memory */
    double link_bytes;   /* bytes/s that a rank sends, one direction, within `reach` ranks */
    int64_t reach;       /* ranks behind the fast link; 0: all */
    double beyond_bytes; /* bytes/s of a rank where a group has more of them */
} gw_hardware;

/* "h100", "flops=312e12,link=300GB/s", "h100,mfu=0.4,beyond=25GB/s": a preset first, or none, then
 * keys flops memory link reach beyond mfu. Values are numbers with an optional k M G T P and an
 * optional unit (B/s, FLOP/s). What is wrong is GW_ERR_USAGE, with what is known in the hint. */
GW_WARN_UNUSED gw_status gw_hardware_parse(const char *text, gw_hardware *out, gw_diags *dg);
/* Bytes/s between the ranks of a group of n; 0 if that is not stated. */
double gw_hardware_link(const gw_hardware *h, int64_t n);
/* Seconds of work: the longer of its products and its memory traffic, by what is stated. */
double gw_hardware_seconds(const gw_hardware *h, double flops, double bytes);
/* "989 TFLOP/s, memory 3.35 TB/s, links 450 GB/s to 8 ranks, then 50.0 GB/s". */
void gw_hardware_describe(const gw_hardware *h, gw_str *out);

#endif

// SPDX-License-Identifier: Apache-2.0
// Why a layout stops paying: what tensor and context parallelism cost a block, degree by degree.
#ifndef GW_PLAN_WHY_H
#define GW_PLAN_WHY_H

#include <jansson.h>
#include <stdio.h>

#include "plan/block.h" /* gw_block, gw_block_input, gw_machine_spec */

enum { GW_WHY_DEGREES = 16, GW_WHY_MODES = 4 };

/* ---- tensor parallelism ---- */
typedef struct gw_why_tp_row {
    int64_t t;
    gw_block plain, sequence; /* sequence: with sequence parallelism; the same as plain at t = 1 */
    gw_block_product head;    /* of rank 0, which has the most of the vocabulary */
    int64_t heads_empty;      /* ranks without a query head */
} gw_why_tp_row;

typedef struct gw_why_tp {
    gw_block_input in;
    gw_machine_spec hw;
    bool stated; /* a machine */
    gw_why_tp_row rows[GW_WHY_DEGREES];
    int n;
} gw_why_tp;

/* Degrees 1, 2, 4 .. 64; where one of them does not divide the query heads also the largest divisor
 * of these below it; and `also`. hw NULL: no machine is stated. */
GW_WARN_UNUSED gw_status gw_why_tp_init(gw_why_tp *w, const gw_block_input *in,
                                        const gw_machine_spec *hw, int64_t also, gw_diags *dg);
/* Seconds of what a block sends over tp: on the stated links, otherwise by the machine of the
 * input. Negative: a link of that reach is not stated. */
double gw_why_tp_exposed(const gw_why_tp *w, const gw_block *b);
/* What all layers send over what they compute, 6 N FLOPs a token over t ranks at the stated peak
 * and mfu, N the parameters a token goes through: the usual figure. Negative: not known. */
double gw_why_tp_to_6n(const gw_why_tp *w, const gw_why_tp_row *r);
/* The part of the peak that a product reaches by its roofline; 0: no peak or bandwidth is stated.
 * A product that a rank has nothing of has 0 FLOPs. */
double gw_why_efficiency(const gw_machine_spec *hw, const gw_block_product *p);
/* Kv heads of all ranks together over kv heads: 1 where none is a copy. */
double gw_why_tp_copies(const gw_why_tp *w, const gw_why_tp_row *r);
void gw_why_tp_print(const gw_why_tp *w, FILE *out);
json_t *gw_why_tp_json(const gw_why_tp *w); /* a new reference */

/* ---- context parallelism ---- */
typedef struct gw_why_cp_row {
    int64_t c;
    gw_block modes[GW_WHY_MODES]; /* by gw_cp_mode; layout.cp 0: heads do not go around */
    int ulysses; /* ranks over which hybrid exchanges heads; 0: there is no hybrid */
} gw_why_cp_row;

typedef struct gw_why_cp {
    gw_block_input in;
    gw_machine_spec hw;
    bool stated;
    int64_t tp;
    gw_block whole; /* on one context-parallel rank */
    gw_why_cp_row rows[GW_WHY_DEGREES];
    int n;
} gw_why_cp;

/* Degrees 2, 4 .. 64, and `also`; every block is cut over `tp` ranks besides. */
GW_WARN_UNUSED gw_status gw_why_cp_init(gw_why_cp *w, const gw_block_input *in,
                                        const gw_machine_spec *hw, const gw_block_layout *run,
                                        gw_diags *dg);
/* Seconds of what a block sends over cp, and the part of it that no attention hides: a ring sends a
 * block while it works on another, the other modes hide nothing. Negative: not known. */
double gw_why_cp_sending(const gw_why_cp *w, const gw_block *b, int way);
double gw_why_cp_exposed(const gw_why_cp *w, const gw_block *b);
/* Tokens a rank from which a forward hop of k and v takes no longer than the work on a block:
 * s/C >= 2 (kv heads / heads) F / B for bf16, causal. 0: no peak or no link is stated. */
double gw_why_cp_hides_from(const gw_why_cp *w, const gw_why_cp_row *r);
void gw_why_cp_print(const gw_why_cp *w, FILE *out);
json_t *gw_why_cp_json(const gw_why_cp *w); /* a new reference */

/* ---- shared ---- */
json_t *gw_why_block_json(const gw_block *b);
/* Is any link of it? */
bool gw_why_links_stated(const gw_machine_spec *hw);
void gw_why_print_machine(const gw_block_input *in, const gw_machine_spec *hw, bool stated,
                          FILE *out);

#endif

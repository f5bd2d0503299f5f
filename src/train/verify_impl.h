// SPDX-License-Identifier: Apache-2.0
// What the files of verify share: one pass over the layout and its references.
#ifndef GW_TRAIN_VERIFY_IMPL_H
#define GW_TRAIN_VERIFY_IMPL_H

#include "train/ranks.h"         /* gw_ranks_entry */
#include "train/verify.h"        /* gw_verify_result */
#include "train/verify_replay.h" /* gw_verify_choices */
#include "train/verify_side.h"   /* gw_verify_side */

enum { GW_VERIFY_PERTURBED = 3 };

/* A named value of the programs. */
typedef struct gw_verify_item {
    const char *name; /* without "grad:" */
    gw_verify_kind kind;
    const gw_ranks_entry *in_layout; /* NULL: loss and norm */
    const gw_ranks_entry *in_reference, *in_perturbed[GW_VERIFY_PERTURBED];
    const gw_ranks_entry *v; /* AdamW's second moment of it, in the reference; or NULL */
    uint64_t holders;        /* bits: coordinates on pp whose ranks have it; of the first 64 */
    int64_t elems;
    float *initial;   /* of parameters: the weights at the start; rank 0 */
    bool *noisy;      /* AdamW: elements of which some step's gradient was noise, or NULL */
    float *kept;      /* a gradient of step 1 that disagrees: the layout's; rank 0, else NULL */
    double noise;     /* of the latest step: how far a reference is from itself, perturbed */
    double worst;     /* the largest noise of all steps so far */
    double spread;    /* sum of the norms of the ranks' contributions over that of the sum; >= 1 */
    int64_t gradient; /* of a moment or a parameter: the item that is its gradient; else -1 */
    double wire;      /* gradients: what the wires may do to it, in the latest step */
} gw_verify_item;

typedef struct gw_verifier {
    gw_arena mem;
    gw_runfile *rf;
    const gw_verify_opts *o;
    gw_comm *comm;
    gw_verify_result *out;
    gw_diags *dg;

    /* One pass. */
    bool own;
    gw_setup setup, split; /* split: micro-batches of one rank, dp times as many */
    gw_runfile split_rf;
    gw_verify_side layout, reference, perturbed[GW_VERIFY_PERTURBED]; /* but for layout: rank 0 */
    int nperturbed;
    gw_verify_choices choices; /* of the reference; the other sides have them given */
    gw_verify_item *items;
    gw_verify_tensor *entries; /* [nitems] */
    int64_t nitems, most_elems;
    float *x, *y, *z;                                                  /* [most_elems]; rank 0 */
    double floor[GW_VERIFY_KIND_COUNT], typical[GW_VERIFY_KIND_COUNT]; /* divisor; median noise */
    double weight_hop;                       /* of the initial weights: the largest */
    double most_wire, wire_squares, squares; /* over gradients: the largest; for a mean by norm */
    double weight_squares;                   /* of the initial weights, over all parameters */
    int64_t kept_elems;
    int64_t replica_faults, weights_apart;
    char replica_text[120], weights_text[120];
    bool finite;
} gw_verifier;

/* Relative difference that float32 sums in another order may make (DESIGN, "Layouts agree"). */
#define GW_VERIFY_BOUND 1e-5
/* A tensor of zeros differs by 1, one of the wrong sign by 2. A bound from here on says too little
 * to call a tensor right; it still calls one wrong. */
#define GW_VERIFY_COARSE 0.5

bool gw_verify_is_root(const gw_verifier *r);
void gw_verify_add_check(gw_verifier *r, bool ok, const char *name, const char *fmt, ...)
    GW_PRINTF(4, 5);

/* verify_items.c */
GW_WARN_UNUSED gw_status gw_verify_list_items(gw_verifier *r);
GW_WARN_UNUSED gw_status gw_verify_compare_start(gw_verifier *r);    /* initial weights */
GW_WARN_UNUSED gw_status gw_verify_compare_replicas(gw_verifier *r); /* bit for bit */
GW_WARN_UNUSED gw_status gw_verify_compare_step(gw_verifier *r);
/* How far lossy wires may move what the layout computes in the step to come, relative to its norm;
 * 0 without. Rank 0. */
double gw_verify_wires_of_step(gw_verifier *r);

/* verify_replay.c: a step of the reference and of its perturbed copies, which take its choices
 * (rank 0); those given to all ranks; after the layout's step, whether it would have made them. */
GW_WARN_UNUSED gw_status gw_verify_step_references(gw_verifier *r);
GW_WARN_UNUSED gw_status gw_verify_share_choices(gw_verifier *r);
GW_WARN_UNUSED gw_status gw_verify_judge_choices(gw_verifier *r);
void gw_verify_check_choices(gw_verifier *r, const char *precision);

/* verify_explain.c, verify_axes.c; on rank 0, with the reference at any step: it is reset. */
GW_WARN_UNUSED gw_status gw_verify_explain(gw_verifier *r);
/* After the first step, on all ranks: of gradients that disagree and are not explained, which sum
 * over sub-axes of the mesh was not taken. */
GW_WARN_UNUSED gw_status gw_verify_explain_axes(gw_verifier *r);
/* verify_pipeline.c, on all ranks. Which ranks of a pipeline have an item; `holders` of each. */
GW_WARN_UNUSED gw_status gw_verify_find_holders(gw_verifier *r);
/* After the first step: of what disagrees, whether parts of a tied weight's gradient or of the norm
 * were left apart, or a stage took another micro-batch than it should. */
GW_WARN_UNUSED gw_status gw_verify_explain_stages(gw_verifier *r);
/* Where gradients disagree on some ranks of a pipeline only: which. "" otherwise. Rank 0. */
void gw_verify_locate(const gw_verifier *r, char text[GW_VERIFY_TEXT]);
/* Fills `spread` of every gradient. */
GW_WARN_UNUSED gw_status gw_verify_measure_spread(gw_verifier *r);

#endif

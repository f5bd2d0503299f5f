// SPDX-License-Identifier: Apache-2.0
// Expert choices of the reference, made again by every other side of verify.
#ifndef GW_TRAIN_VERIFY_REPLAY_H
#define GW_TRAIN_VERIFY_REPLAY_H

#include "run/exec.h"    /* gw_exec */
#include "train/setup.h" /* gw_setup */

/* A rank's verdict on its own tokens, of all steps so far. */
typedef struct gw_verify_replayed {
    int64_t total, differ; /* choices that it owns; those that its own scores would not have made */
    int64_t faults;        /* tokens of which they are no near-tie */
    double largest, largest_allowed; /* margin of a near-tie */
    /* Of the first fault. */
    int64_t layer, row, token, step; /* row: sample of the step */
    double margin, allowed;
} gw_verify_replayed;

typedef struct gw_verify_choices {
    int64_t layers;            /* that have experts; 0: nothing is replayed */
    int *number;               /* [layers]: in the model */
    int64_t rows, seq, top, n; /* samples of a step, their tokens, choices of a token, experts */
    int32_t *ids;              /* [layers rows seq top]: of the latest step; negative: padding */
    float *order;              /* likewise, gates that drops go by; NULL where they do not */
    double *bias;              /* [layers n]: of the choice, as the step begins */
    double *allowed;           /* [layers]: margin that rounding explains, in the latest step */
    gw_verify_replayed all;    /* over all ranks */
} gw_verify_choices;

/* Makes programs of `s` file their logits and choices, or, `replay`, take the latter. No effect on
 * a model without experts. Before a side is opened; what was opened stays as it is. */
void gw_verify_choices_ask(gw_setup *s, bool replay);
void gw_verify_choices_init(gw_verify_choices *c, const gw_setup *s, gw_arena *a);
/* Writes what a program's micro-batch k needs of c: its number, and where it asks for them the
 * choices of its tokens. The micro-batch has `rows` samples over all ranks, in the opposite order
 * where `reversed`. *scratch, of *room elements, grows in `a`. */
void gw_verify_choices_write(const gw_verify_choices *c, gw_exec *x, int64_t k, int64_t rows,
                             bool reversed, gw_arena *a, int32_t **scratch, int64_t *room);

#endif

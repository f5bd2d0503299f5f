// SPDX-License-Identifier: Apache-2.0
// Two checkpoints compared as what they mean, whatever layouts wrote them.
#ifndef GW_CKPT_DIFF_H
#define GW_CKPT_DIFF_H

#include "ckpt/checkpoint.h" /* gw_ckpt_manifest */

typedef enum gw_ckpt_differs {
    GW_CKPT_SAME,    /* every bit */
    GW_CKPT_VALUES,  /* some elements */
    GW_CKPT_KIND,    /* dtype or shape: values are not compared */
    GW_CKPT_ROUNDED, /* two floats: each element of the narrower one is the other's, rounded to
                        nearest even (or the same) */
    GW_CKPT_ONLY_A,  /* b has none of this name */
    GW_CKPT_ONLY_B,
} gw_ckpt_differs;

typedef struct gw_ckpt_difference {
    const char *name;
    const gw_ckpt_entry_tensor *a, *b; /* NULL where absent */
    gw_ckpt_differs how;
    /* Elements whose bits differ; of two floats those that are not each other's rounding. */
    int64_t elems, differing;
    double largest; /* |a - b|; NAN where one of a pair is not a number */
    int64_t at;     /* flattened index of it (the first) */
    double scale;   /* largest |a| */
} gw_ckpt_difference;

/* Every tensor of either, in the order of a, then what only b has. Holds two slices of at most
 * 64 MiB. Everything is in `mem`. */
GW_WARN_UNUSED gw_status gw_checkpoint_diff(const gw_ckpt_manifest *a, const gw_ckpt_manifest *b,
                                            gw_arena *mem, gw_ckpt_difference **out, int *n,
                                            gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// A step's inputs as one rank's program takes them: of micro-batches of tokens the rows and columns
// that it holds.
#ifndef GW_TRAIN_SLICES_H
#define GW_TRAIN_SLICES_H

#include "base/arena.h"  /* gw_arena */
#include "data/loader.h" /* gw_micro_batch */
#include "run/exec.h"    /* gw_exec */

typedef struct gw_slices {
    int64_t rows, seq; /* of a micro-batch as the loader has it: those of this rank's samples */
    int64_t first;     /* row of the global micro-batch at which they begin */
    int32_t *ints;     /* scratch for one input */
} gw_slices;

/* Which part of the samples a rank has, of the product of the data-parallel groups: what the loader
 * is asked for. Ranks that differ in other coordinates have the same. */
int64_t gw_slices_part(const gw_mesh *mesh, int64_t rank);

/* For micro-batches [rows seq] of programs with x's inputs. */
void gw_slices_init(gw_slices *s, const gw_exec *x, int64_t rows, int64_t seq, gw_arena *a);
/* Writes the inputs `tokens labels positions docs samples` of x that its program has, each by its
 * own type. A program whose sequences are longer than `seq` (so that cuts of s are even) gets
 * padding: token -1, label GW_LABEL_MASKED, position 0, in a document of its own. Allocates
 * nothing. */
void gw_slices_write(const gw_slices *s, gw_exec *x, const gw_micro_batch *m);

/* The scalars that a step's program reads before its micro-batches. */
typedef struct gw_step_inputs {
    float lr, muon_lr, inv_scale, seed, aux_seed;
    int64_t step, batch;
} gw_step_inputs;
/* A program has only the inputs it uses: one that it lacks takes nothing. */
void gw_step_inputs_write(gw_exec *x, const gw_step_inputs *in);

#endif

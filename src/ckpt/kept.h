// SPDX-License-Identifier: Apache-2.0
// Commits that stay whatever is saved after them: RUN_DIR/checkpoints/kept.json.
//
// A run that begins anew beside checkpoints (train --fresh) writes down what stands there before
// its first save. No retention removes that, in this run, when it is resumed, or by `checkpoint
// prune`, until somebody removes the file.
#ifndef GW_CKPT_KEPT_H
#define GW_CKPT_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */
#include "ckpt/place.h" /* gw_place */

#define GW_CKPT_KEPT_FILE "kept.json"
enum { GW_CKPT_KEPT_BYTES = 1 << 24 };

typedef struct gw_ckpt_kept {
    int64_t commits;      /* those of a number up to this; 0: none */
    const char **folders; /* those that had no number, by name */
    int nfolders;
} gw_ckpt_kept;

/* Any bytes are safe. GW_ERR_FORMAT: it is no such file. Texts are in `a`. */
GW_WARN_UNUSED gw_status gw_ckpt_kept_parse(const char *text, size_t n, const char *name,
                                            gw_arena *a, gw_ckpt_kept *out, gw_diags *dg);
/* HOME/kept.json, which is there; home is RUN_DIR/checkpoints. */
GW_WARN_UNUSED gw_status gw_ckpt_kept_read(const gw_place *p, const char *home, gw_arena *a,
                                           gw_ckpt_kept *out, gw_diags *dg);
/* Does a folder stay? `number`: of its commit, 0 without one. A name that it was moved aside to
 * (NAME.replaced-N) counts as its own. */
bool gw_ckpt_is_kept(const gw_ckpt_kept *k, int64_t number, const char *folder);

/* Adds to it all that stands in RUN_DIR/checkpoints now: every commit, and every folder of a
 * checkpoint without one. Nothing there: nothing is written. The caller holds the run. */
GW_WARN_UNUSED gw_status gw_checkpoint_keep_all(const char *run_dir, gw_diags *dg);

#endif

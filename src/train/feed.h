// SPDX-License-Identifier: Apache-2.0
// Labelled images as a net's inputs: a set of IDX files by the prefix that a run file gives, read a
// micro-batch at a time.
#ifndef GW_TRAIN_FEED_H
#define GW_TRAIN_FEED_H

#include "base/arena.h"    /* gw_arena */
#include "base/diag.h"     /* gw_status, gw_diags */
#include "base/hash.h"     /* gw_hash128 */
#include "data/images.h"   /* gw_images, gw_image_scale */
#include "model/model.h"   /* gw_model */
#include "run/exec.h"      /* gw_exec */
#include "train/runfile.h" /* gw_runfile */

typedef struct gw_feed {
    gw_arena mem;
    gw_images *images; /* NULL: made up */
    gw_image_view view;
    int64_t count; /* images of the set */
    int64_t classes, rows, row_elems;
    float *pixels;   /* [rows y x c] of the latest read */
    int32_t *labels; /* [rows]; GW_LABEL_MASKED past the end of a set that is read once */
} gw_feed;

/* Opens the set that run file key `key` ("data.train", "data.valid") names:
 * PREFIX-images-idx3-ubyte (or -idx4-ubyte, or with a dot before idx, as archives unpack) and
 * PREFIX-labels-idx1-ubyte. The training set is shuffled by train.seed; the other is read in the
 * file's order. `scale`: figures that pixels are normalised by; NULL: the set's own. `rows`: of a
 * read. Refused (GW_ERR_CONFIG) by name: labels that model.classes does not hold, channels that
 * model.channels does not fit. */
GW_WARN_UNUSED gw_status gw_feed_open(gw_feed *f, const gw_runfile *rf, const char *key,
                                      const gw_model *m, const gw_image_scale *scale, int64_t rows,
                                      gw_diags *dg);
/* Images of noise with labels by chance, the same for the same seed: for looking at sums. */
void gw_feed_make_up(gw_feed *f, const gw_model *m, uint64_t seed, int64_t rows);
/* Safe on one that is zero. */
void gw_feed_close(gw_feed *f);

/* Bytes held by the feeds of a run whose model is m: training, and validation where it has one. 0
 * of a language model. */
int64_t gw_feed_bytes(const gw_model *m, int64_t rows, bool validates);

/* Identifies the data: all labels, and the images at 4,096 places spread evenly (all of a small
 * set). */
GW_WARN_UNUSED gw_status gw_feed_hash(const gw_runfile *rf, const char *key, gw_hash128 *out,
                                      gw_diags *dg);

/* Samples first .. first + rows, of all epochs one after another; a set that is not shuffled is
 * read once: rows past its end are zero and masked. Allocates nothing. */
GW_WARN_UNUSED gw_status gw_feed_read(gw_feed *f, int64_t first, gw_diags *dg);
/* What was read becomes the inputs `images` and `labels`. */
void gw_feed_write(const gw_feed *f, gw_exec *x);

#endif

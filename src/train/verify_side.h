// SPDX-License-Identifier: Apache-2.0
// One side of a comparison: a program of the run, its executor and its data, stepped by hand.
#ifndef GW_TRAIN_VERIFY_SIDE_H
#define GW_TRAIN_VERIFY_SIDE_H

#include "data/loader.h"         /* gw_loader, gw_step_batch */
#include "run/exec.h"            /* gw_exec, gw_comm */
#include "train/feed.h"          /* gw_feed */
#include "train/ranks.h"         /* gw_ranks_table */
#include "train/setup.h"         /* gw_setup */
#include "train/slices.h"        /* gw_slices */
#include "train/verify.h"        /* gw_verify_hooks */
#include "train/verify_replay.h" /* gw_verify_choices */

/* Rows of a side's micro-batch whose labels count, and the micro-batches that do; the rest is
 * masked, while the divisor stays that of the whole step. All zero: everything counts. */
typedef struct gw_verify_only {
    int64_t first_row, rows; /* rows 0: all */
    int64_t micro, micros;   /* micros 0: all */
} gw_verify_only;

/* Other tokens in some micro-batches, to see what reads them. */
typedef enum gw_verify_altered_how {
    GW_VERIFY_ALTER_NONE,
    GW_VERIFY_ALTER_ONE, /* micro-batch `micro` */
    GW_VERIFY_ALTER_REST /* all but that */
} gw_verify_altered_how;
typedef struct gw_verify_altered {
    gw_verify_altered_how how;
    int64_t micro;
} gw_verify_altered;

/* Of SGD: large enough that an update is seen beside the rounding of the weight it changes. */
#define GW_VERIFY_LR 0.1f
/* Of nets for images, whose norms see one another's samples: at 0.1 some steps of such a net make
 * of a difference in the last bit one in the third digit, on one rank as on many. */
#define GW_VERIFY_IMAGE_LR 0.001f

typedef struct gw_verify_side {
    gw_arena mem;
    const gw_setup *setup; /* borrowed: the run as this side sees it */
    gw_comm *comm;         /* NULL: alone */
    gw_exec *x;
    gw_ranks_table table;                          /* what the side's ranks have, by name */
    const gw_ranks_entry *loss_entry, *norm_entry; /* of it */
    gw_tokens *data;
    gw_loader *loader;
    gw_feed feed;             /* of a net for images, instead of data and loader */
    gw_step_batch image_step; /* the latest, likewise */
    int64_t rows, seq;        /* of a micro-batch as the loader has it */
    int64_t parts, part;      /* of the samples of the run, which this executor has */
    gw_slices slices;
    bool reversed; /* rows of each micro-batch in the opposite order */
    bool nudged;   /* a few weights rounded the other way, see verify_side.c */
    bool shaken;   /* many of them, from the first step on */
    int64_t draw;  /* of nudged and shaken: which of several such sides */
    void **saved;  /* [setup->nparams]: their bytes, while nudged */
    gw_verify_only only;
    const gw_verify_hooks *hooks;                /* or NULL */
    float lr, scale;                             /* scale: of the loss; float16 only, otherwise 1 */
    int64_t step;                                /* steps done */
    int32_t *tokens, *labels, *positions, *docs; /* [b s] scratch */
    int64_t *ids;                                /* [b] */
    const gw_verify_choices *choices; /* borrowed: given to a program that asks; or NULL */
    int32_t *given;                   /* [given_room] scratch for them */
    int64_t given_room;

    gw_verify_altered altered;
    const gw_step_batch *latest; /* batch of the latest step, until the next */

    double loss_sum, norm; /* of the latest step, over all ranks */
    double own_norm;       /* as this rank has it, if it does */
    bool has_norm;
    int64_t labels_seen; /* of its whole batch */
} gw_verify_side;

/* Opens the data of a run: its data.train, or made-up documents when it has none (*made). The same
 * tokens for every caller with the same run file. */
GW_WARN_UNUSED gw_status gw_verify_data_open(const gw_setup *s, const gw_verify_data *given,
                                             gw_arena *a, gw_tokens **out, gw_diags *dg);

/* The layout's own side (comm: one of its ranks, or NULL on one rank): setup has been given to
 * gw_setup_ranks. Reserves memory and makes the initial weights. */
GW_WARN_UNUSED gw_status gw_verify_side_layout(gw_verify_side *v, const gw_setup *s, gw_comm *comm,
                                               const gw_verify_opts *o, gw_diags *dg);
/* One rank with the whole global micro-batches: the same global graph, no mesh. */
GW_WARN_UNUSED gw_status gw_verify_side_reference(gw_verify_side *v, const gw_setup *s,
                                                  const gw_verify_opts *o, gw_diags *dg);
void gw_verify_side_close(gw_verify_side *v);
/* Back to the initial weights, zero states and the first batch. */
GW_WARN_UNUSED gw_status gw_verify_side_reset(gw_verify_side *v, const gw_verify_opts *o,
                                              gw_diags *dg);

/* One step. */
GW_WARN_UNUSED gw_status gw_verify_side_step(gw_verify_side *v, gw_diags *dg);

/* Forward and backward of the latest step's batch once more, with the weights as they are now and
 * without losses of experts; v->only and v->altered say of what. Nothing is updated. All ranks of
 * the side call it. */
GW_WARN_UNUSED gw_status gw_verify_side_probe(gw_verify_side *v, gw_diags *dg);

/* The whole of a float value as float32 into `out` where that is not NULL; parts are gathered, so
 * all ranks of the side call it. `e`: of its table. */
GW_WARN_UNUSED gw_status gw_verify_side_read(const gw_verify_side *v, const gw_ranks_entry *e,
                                             float *out, gw_diags *dg);

/* The same of n values, in one exchange where they are small; out[i] NULL: not wanted here. */
GW_WARN_UNUSED gw_status gw_verify_side_read_some(const gw_verify_side *v,
                                                  const gw_ranks_entry *const *e, int n,
                                                  float *const *out, gw_diags *dg);

/* All-ones gradients through the layout's own norm: the program's end alone, with gradients as
 * inputs. Gives the norm (without the loss scale), of all ranks' the one that is furthest off, and
 * the number of parameters of the model. */
GW_WARN_UNUSED gw_status gw_verify_ones(const gw_setup *s, gw_comm *comm, float value, double *norm,
                                        int64_t *params, gw_diags *dg);

#endif

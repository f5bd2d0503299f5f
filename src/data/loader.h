// SPDX-License-Identifier: Apache-2.0
// Batches for a training step, prepared ahead by one thread.
//
// Global batch g of a run that starts at sample n0 holds samples [n0 + g*B, n0 + (g+1)*B). Global
// micro-batch k of it holds rows [k*b*dp, (k+1)*b*dp) of these, and rank r the b rows from (k*dp +
// r)*b: a micro-batch is one contiguous range of samples, cut over dp in chunks. So any dp, b and K
// with b * K * dp == B see the same samples in the same steps.
#ifndef GW_DATA_LOADER_H
#define GW_DATA_LOADER_H

#include <stdint.h>

#include "base/diag.h"   /* gw_status, gw_diags */
#include "data/tokens.h" /* gw_tokens */

typedef struct gw_loader gw_loader;

typedef struct gw_loader_options {
    int64_t micro_batch;  /* b: rows a rank in a micro-batch, >= 1 */
    int64_t accumulate;   /* K: micro-batches a step, >= 1 */
    int64_t dp_size;      /* >= 1 */
    int64_t dp_rank;      /* 0 .. dp_size-1 */
    int64_t first_sample; /* n0 >= 0: the state a checkpoint keeps */
    int64_t
        prefetch; /* steps prepared ahead; 0: no thread, prepared in gw_loader_next; default 2 */
} gw_loader_options;

/* One micro-batch of this rank; all arrays are [b, s], row-major; sample_ids is [b]. */
typedef struct gw_micro_batch {
    const int32_t *tokens, *labels, *positions, *docs;
    const int64_t *sample_ids;
    int64_t valid; /* labels of this rank's micro-batch that are not masked */
} gw_micro_batch;

typedef struct gw_step_batch {
    int64_t first_sample; /* of the global batch */
    int64_t next_sample;  /* first_sample + B: the state to save after this step */
    int64_t step_labels;  /* valid labels of the whole global batch, all ranks: the loss divisor */
    int64_t step_tokens;  /* inputs that are not padding, all ranks */
    int64_t count;        /* K */
    const gw_micro_batch *micro; /* [K] */
} gw_step_batch;

/* `ds` is borrowed and must not be used by others until the loader is closed. Everything is
 * allocated here. */
GW_WARN_UNUSED gw_status gw_loader_open(gw_tokens *ds, const gw_loader_options *options,
                                        gw_loader **out, gw_diags *dg);
/* Stops the thread at once, whatever it is doing. */
void gw_loader_close(gw_loader *l);

/* The next step's batch, valid until the following call (or close). Blocks until it is prepared. An
 * error of the data appears here, at the step it belongs to, and again on each later call. */
GW_WARN_UNUSED gw_status gw_loader_next(gw_loader *l, const gw_step_batch **out, gw_diags *dg);

/* Nanoseconds that the latest gw_loader_next waited, by what the loader was doing meanwhile
 * (GW_LOAD_QUEUE: nothing of these; handing over). Their sum is the wait. */
void gw_loader_waits(const gw_loader *l, int64_t ns[GW_LOAD_CAUSES]);
/* Nanoseconds that the loader has spent on each since it was opened; QUEUE is idle time. */
void gw_loader_times(gw_loader *l, int64_t ns[GW_LOAD_CAUSES]);

/* The state: the sample number at which the next batch begins (what is prefetched does not count).
 */
int64_t gw_loader_position(const gw_loader *l);
/* Continues at `sample`; batches prepared ahead are discarded. */
void gw_loader_seek(gw_loader *l, int64_t sample);

int64_t gw_loader_global_batch(const gw_loader *l); /* B = b * K * dp */
/* Bytes held by a loader of these sizes: the plan's "data" row. */
int64_t gw_loader_bytes(const gw_loader *l);
int64_t gw_loader_bytes_for(int64_t seq_len, const gw_loader_options *options);

#endif

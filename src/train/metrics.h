// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl and tb/: what a run measured, a line a step, for scripts and for TensorBoard.
#ifndef GW_TRAIN_METRICS_H
#define GW_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h" /* gw_arena */
#include "base/diag.h"  /* gw_status, gw_diags */

/* One step. Numbers that are not finite become null. */
typedef struct gw_metrics_step {
    int64_t step;
    double loss; /* nats a token; NaN when no label of the step was valid */
    double lr, grad_norm;
    int64_t tokens; /* since the beginning of the run */
    double tokens_per_s, step_s, mfu, data_wait_s;
    /* Parts of data_wait_s: bytes on their way, zstd, filling rows, handing over; data_parts false:
     * left out. */
    bool data_parts;
    double data_source_s, data_decompress_s, data_decode_s, data_queue_s;
    int64_t quarantined; /* damaged shards met so far; 0: left out */
    double loss_scale;   /* 0: left out */
    /* Rank 0's time in collectives, the part of it during which nothing was computed, and the part
     * in which it waited for others; comm_s below 0: left out, and the others with it. */
    double comm_s, comm_exposed_s, comm_wait_s;
    bool stages; /* of a pipeline: the next two are there */
    /* Share of the step in which a rank did not compute, mean of all; rank 0's time waiting for
     * messages of other stages. */
    double bubble, pp_wait_s;
    bool images;      /* tokens counts images, and is called so */
    int64_t skipped;  /* batches skipped since the step before; 0: left out */
    const char *more; /* further fields as JSON text, ", \"moe\": {...}", or NULL */
} gw_metrics_step;

typedef struct gw_metrics gw_metrics;

/* Opens DIR/metrics.jsonl for appending and a new event file in DIR/tb. With resumed >= 0, lines of
 * later steps are removed first, so that no step is there twice. */
GW_WARN_UNUSED gw_status gw_metrics_open(const char *dir, int64_t resumed, gw_metrics **out,
                                         gw_diags *dg);
/* Allocates nothing, but for a buffer that grows with the longest `more`. */
GW_WARN_UNUSED gw_status gw_metrics_add(gw_metrics *m, const gw_metrics_step *s, gw_diags *dg);
/* loss NaN: no label was valid. valid_bpb NaN: left out (no tokenizer). accuracy NaN: left out (not
 * images). */
GW_WARN_UNUSED gw_status gw_metrics_valid(gw_metrics *m, int64_t step, double loss, double bpb,
                                          double accuracy, gw_diags *dg);
GW_WARN_UNUSED gw_status gw_metrics_close(gw_metrics *m, gw_diags *dg);

/* Removes what stands after step `last`, and a last line that a crash cut short. Writes a new file
 * and renames it; does nothing when nothing is to be removed or there is no file. */
GW_WARN_UNUSED gw_status gw_metrics_truncate(const char *path, int64_t last, gw_diags *dg);

/* A whole run read back, for the report. Arrays are in the arena. */
typedef struct gw_history {
    gw_metrics_step *steps;
    int64_t nsteps;
    struct gw_history_valid {
        int64_t step;
        double loss, bpb, accuracy; /* NaN where absent */
    } * valid;
    int64_t nvalid;
} gw_history;
GW_WARN_UNUSED gw_status gw_metrics_read(const char *path, gw_arena *a, gw_history *out,
                                         gw_diags *dg);

#endif

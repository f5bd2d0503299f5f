// SPDX-License-Identifier: Apache-2.0
// Saving: what the state is at one instant, taken aside; written while training goes on.
//
//     gw_checkpoint_begin(&s, &opts, &meta, tensors, n, dg);   starts the writer, copies
//     ... gw_checkpoint_take(s);                               (late) copies what is left
//     ... steps; between them gw_checkpoint_poll(s)            is this rank's file complete?
//     gw_checkpoint_end(s, &stats, dg);                        waits, commits, frees
//
// begin and end are called by all ranks at the same points. Tensors and meta are as they were at
// begin. Where the buffer is smaller than what this rank writes, take waits for the writer with
// the rest: so a small buffer costs time, never truth. A rank that does nothing else meanwhile
// needs no buffer at all (direct).
#ifndef GW_CKPT_SAVE_H
#define GW_CKPT_SAVE_H

#include "ckpt/checkpoint.h" /* gw_ckpt_tensor, gw_ckpt_meta */
#include "comm/comm.h"       /* gw_comm */

/* What a rank keeps from one save of a run to the next: its buffer, and what the newest commit
 * holds. One thread, one save at a time. */
typedef struct gw_ckpt_keep gw_ckpt_keep;
gw_ckpt_keep *gw_ckpt_keep_new(void);
void gw_ckpt_keep_free(gw_ckpt_keep *k); /* not while a save goes on */

/* How many of the ranks that hold the same elements as a writer are held against it (ckpt/
 * replicas.c): none; one, another at every save; all. */
typedef enum gw_ckpt_replicas {
    GW_CKPT_REPLICAS_TRUST,
    GW_CKPT_REPLICAS_CHECK,
    GW_CKPT_REPLICAS_ALL,
} gw_ckpt_replicas;

typedef struct gw_ckpt_options {
    const char *run_dir;
    /* One and the number of the newest commit that the run knows of there: a newer one is another
     * run's, and this save fails (checkpoint-taken). 0: that is not looked at. On rank 0. */
    int64_t commits;
    gw_comm *comm;        /* NULL: one rank */
    int64_t buffer_bytes; /* of this rank; 0: as much as it writes; at least two blocks */
    int64_t bytes_per_s;  /* that the writer takes of the disk; 0: all */
    gw_ckpt_keep *keep;   /* NULL: nothing is kept, everything is written */
    bool direct;          /* the tensors do not change before end: nothing is copied */
    bool late;            /* they do not change before take, which is the caller's to call, and the
                             writer's thread copies meanwhile: for a rank with a core to spare.
                             Without it begin takes */
    gw_ckpt_replicas replicas;
    bool references; /* what is unchanged since the keep's newest commit is referred to */
} gw_ckpt_options;

typedef struct gw_ckpt_stats {
    int64_t bytes;          /* of this rank's file */
    int64_t total_bytes;    /* of all files */
    int64_t referred_bytes; /* of this rank's entries: unchanged, and not written */
    int64_t buffer_bytes;   /* reserved on this rank */
    int64_t compared_bytes; /* that this rank hashed of what others write */
    double begin_s;         /* what begin took, take apart */
    double take_s;          /* what take took: what the thread had not copied or compared yet */
    double waited_s;        /* of copying, waits for room in the buffer */
    double copy_s;          /* copying, by the rank or its thread */
    double compare_s;       /* hashing what others write, by either */
    double write_s;         /* from the writer's first block to its file's name */
    double cpu_s;           /* processor time of the writer: hashing and writing */
    double commit_s;        /* what end took */
    int64_t number;         /* of the commit, on rank 0 */
} gw_ckpt_stats;

typedef struct gw_ckpt_save gw_ckpt_save;

/* On an error nothing is left to end. The folder is RUN_DIR/checkpoints/step-N; one of the same
 * step that is complete is moved aside to NAME.replaced-K, never overwritten; one that another run
 * has committed meanwhile is not touched, and is an error. */
GW_WARN_UNUSED gw_status gw_checkpoint_begin(gw_ckpt_save **out, const gw_ckpt_options *o,
                                             const gw_ckpt_meta *meta,
                                             const gw_ckpt_tensor *tensors, int n, gw_diags *dg);
/* The state is about to change: returns when everything is copied. On this rank alone; again, or
 * where begin was not late, it does nothing. */
void gw_checkpoint_take(gw_ckpt_save *s);
/* Has this rank's writer finished, or failed? Costs a load. */
bool gw_checkpoint_poll(const gw_ckpt_save *s);
int64_t gw_checkpoint_step(const gw_ckpt_save *s);
/* GW_ERR_PEER (checkpoint-replicas): ranks that hold the same elements hold different ones.
 * On an error this save has committed nothing, or its commit is whole but may not last; what it
 * wrote is removed where the folder has no manifest. Others are as they were. All ranks return an
 * error then, and one has the reason. */
GW_WARN_UNUSED gw_status gw_checkpoint_end(gw_ckpt_save *s, gw_ckpt_stats *stats, gw_diags *dg);
/* Ends a save without a commit, on this rank alone: when a run gives up. */
void gw_checkpoint_drop(gw_ckpt_save *s);

/* begin and end at once, one rank, nothing kept. */
GW_WARN_UNUSED gw_status gw_checkpoint_save(const char *run_dir, const gw_ckpt_meta *meta,
                                            const gw_ckpt_tensor *tensors, int n, gw_diags *dg);

#endif

// SPDX-License-Identifier: Apache-2.0
// A bounded buffer between a rank that trains and the thread that writes its file.
#ifndef GW_CKPT_STAGE_H
#define GW_CKPT_STAGE_H

#include "base/diag.h"     /* gw_status, gw_diags */
#include "ckpt/datafile.h" /* gw_ckpt_writer */
#include "ckpt/keep.h"     /* gw_ckpt_keep */

typedef struct gw_ckpt_stage gw_ckpt_stage;

typedef struct gw_ckpt_stage_how {
    gw_ckpt_keep *keep;      /* whose buffer it is */
    const char *const *from; /* [n]: where each block's bytes are */
    int64_t capacity;    /* bytes; less than two blocks count as two, more than needed as needed */
    int64_t bytes_per_s; /* that the thread takes of the disk at most; 0: all it can */
    bool direct;         /* nothing is copied: bytes stay as they are until join */
    bool helps; /* the thread copies too; otherwise take alone does, and it writes at once */
    void (*also)(void *user); /* what else needs the bytes as they are: runs once, in take or in a
                                 thread that helps, before that returns; not where a save has
                                 failed. NULL: nothing; direct: never */
    void *user;
} gw_ckpt_stage_how;

/* Starts a thread that takes `n` blocks in their order, writes them by `w` and finishes the file.
 * It is niced, unless the rank only waits for it (direct). Blocks stay as they are until take has
 * returned. w, blocks, keep and how.from outlive it. */
GW_WARN_UNUSED gw_status gw_ckpt_stage_start(gw_ckpt_stage **out, gw_ckpt_writer *w,
                                             const gw_ckpt_block *blocks, int64_t n,
                                             const gw_ckpt_stage_how *how, gw_diags *dg);
/* Copies what the thread has not, waiting for room; then the blocks may change. After the writer
 * failed it copies nothing. */
void gw_ckpt_stage_take(gw_ckpt_stage *s);
/* The rank only waits from here on: no rate holds any more. */
void gw_ckpt_stage_hurry(gw_ckpt_stage *s);
double gw_ckpt_stage_waited(const gw_ckpt_stage *s); /* seconds that copying has waited for room */
int64_t gw_ckpt_stage_capacity(const gw_ckpt_stage *s); /* bytes reserved */
/* Finished or failed? */
bool gw_ckpt_stage_done(const gw_ckpt_stage *s);

typedef struct gw_ckpt_stage_times {
    double write_s; /* from the first block to the file's name */
    double cpu_s;   /* processor time of the thread, copying and `also` apart */
    double copy_s;  /* of copying, whoever did it */
} gw_ckpt_stage_times;
/* Waits for the thread, which hurries: *file is what finish said. Diagnostics of the thread are
 * moved to dg. */
GW_WARN_UNUSED gw_status gw_ckpt_stage_join(gw_ckpt_stage *s, gw_ckpt_file *file,
                                            gw_ckpt_stage_times *times, gw_diags *dg);
/* Stops the thread where it is and waits for it (also after join); frees. */
void gw_ckpt_stage_free(gw_ckpt_stage *s);

#endif

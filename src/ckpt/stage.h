// SPDX-License-Identifier: Apache-2.0
// A bounded buffer between a rank that trains and the thread that writes its file.
#ifndef GW_CKPT_STAGE_H
#define GW_CKPT_STAGE_H

#include "base/diag.h"     /* gw_status, gw_diags */
#include "ckpt/datafile.h" /* gw_ckpt_writer */

typedef struct gw_ckpt_stage gw_ckpt_stage;

/* Starts a thread that takes `n` blocks in their order, writes them by `w` and finishes the file.
 * It is niced, and takes at most bytes_per_s (0: all it can) of the disk. capacity: bytes; less
 * than two blocks count as two, more than needed as what is needed. w and blocks outlive it. */
GW_WARN_UNUSED gw_status gw_ckpt_stage_start(gw_ckpt_stage **out, gw_ckpt_writer *w,
                                             const gw_ckpt_block *blocks, int64_t n,
                                             int64_t capacity, int64_t bytes_per_s, gw_diags *dg);
/* Copies the next block's bytes in; waits for room. After the writer failed it does nothing. */
void gw_ckpt_stage_put(gw_ckpt_stage *s, const void *bytes);
double gw_ckpt_stage_waited(const gw_ckpt_stage *s);    /* seconds that put has waited */
int64_t gw_ckpt_stage_capacity(const gw_ckpt_stage *s); /* bytes reserved */
/* Finished or failed? */
bool gw_ckpt_stage_done(const gw_ckpt_stage *s);
/* Waits for the thread: *file is what finish said, *write_s the time it took. Diagnostics of the
 * thread are moved to dg. */
GW_WARN_UNUSED gw_status gw_ckpt_stage_join(gw_ckpt_stage *s, gw_ckpt_file *file, double *write_s,
                                            gw_diags *dg);
/* Stops the thread where it is and waits for it (also after join); frees. */
void gw_ckpt_stage_free(gw_ckpt_stage *s);

#endif

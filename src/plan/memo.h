// SPDX-License-Identifier: Apache-2.0
// Kernel choices remembered by what they depend on, so that equal ops of a program are asked about
// once.
#ifndef GW_PLAN_MEMO_H
#define GW_PLAN_MEMO_H

#include <stdint.h>

#include "base/map.h"      /* gw_imap, GW_VEC */
#include "comm/comm.h"     /* gw_coll_machine */
#include "kernel/kernel.h" /* gw_machine, gw_kernel */

typedef struct gw_choice {
    const gw_kernel *kernel;
    int64_t workspace_bytes;
} gw_choice;

/* One machine's answers. Not thread-safe. */
typedef struct gw_memo {
    gw_machine machine;
    gw_coll_machine comm; /* of the ranks; at first those of one host */
    gw_imap index;        /* hash of the question -> choice */
    GW_VEC(gw_choice) choices;
} gw_memo;

void gw_memo_init(gw_memo *m, const gw_machine *machine);
void gw_memo_release(gw_memo *m);

/* What gw_kernel_choose and its workspace answer for this op. `m` grows. */
gw_choice gw_memo_choose(gw_memo *m, const gw_graph *g, const gw_op *o);

/* For gw_compile_opts.workspace, collectives included (they are not remembered): user is a gw_memo
 * * (the pointer's const is the hook's, the memo grows). */
int64_t gw_memo_workspace(const gw_graph *g, const gw_op *o, const void *memo);

#endif

// SPDX-License-Identifier: Apache-2.0
// experts_ep and experts_ep_grad: the two ops that are a collective and compute in one.
#ifndef GW_RUN_EXEC_EXPERTS_H
#define GW_RUN_EXEC_EXPERTS_H

#include "comm/comm.h"     /* gw_comm, gw_coll_machine */
#include "ir/opdef.h"      /* gw_graph, gw_op */
#include "kernel/kernel.h" /* gw_kernel, gw_machine */

/* Is it one of the two? The executor prepares and launches them as it does kernels, with
 * gw_experts_ep_kernel(machine) as the kernel, gw_experts_ep_workspace as its workspace, and
 * gw_experts_ep_join between prepare and the first launch. */
bool gw_op_is_experts_ep(const gw_graph *g, const gw_op *o);
const gw_kernel *gw_experts_ep_kernel(const gw_machine *m);
/* Bytes of workspace of either op; `all` is the machine of all ranks (comm of gw_exec_facts). */
int64_t gw_experts_ep_workspace(const gw_graph *g, const gw_op *o, const gw_coll_machine *all);
/* Gives the state that the kernel's prepare made the ranks to speak to. */
void gw_experts_ep_join(void *state, gw_comm *c);

/* Since it was joined; of this rank unless said otherwise. */
typedef struct gw_experts_seen {
    int64_t runs, rounds; /* rounds: of all runs together; one each unless the buffer is short */
    int64_t rows;         /* that arrived here */
    int64_t rows_most, rows_all; /* summed over runs: of the rank with most, of all ranks */
    int64_t compute_ns;          /* in products */
    int64_t ns;                  /* in all */
} gw_experts_seen;
gw_experts_seen gw_experts_ep_seen(const void *state);

/* One run of either op if the load is even; what runs count depends on the data. */
enum { GW_EXPERTS_ARRAYS = 6 };
typedef struct gw_experts_even {
    uint32_t axes; /* the group, and its ranks */
    int64_t size;
    /* Bytes that a rank sends: (size - 1) / size of its choices, there and back, and the counts. */
    gw_coll_traffic sent;
    int64_t exchanges; /* of counts, there, back; more where the buffer is below a mean load */
    /* The arrays that travel, as a rank holds them: the counts for all, then rows and notes. */
    int narrays;
    int64_t bytes[GW_EXPERTS_ARRAYS];
} gw_experts_even;
/* `all` is the machine of all ranks: where the group spans hosts, rows move twice. */
gw_experts_even gw_experts_ep_even(const gw_graph *g, const gw_op *o, const gw_coll_machine *all);

#endif

// SPDX-License-Identifier: Apache-2.0
// The ops send and recv of a program as comm/channel.h takes them.
//
// Reading them is pure: for the executor, which opens and runs them, and for the plan, which counts
// them.
#ifndef GW_RUN_EXEC_CHANNEL_H
#define GW_RUN_EXEC_CHANNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"   /* gw_arena */
#include "comm/channel.h" /* gw_channels, gw_coll_traffic */
#include "ir/graph.h"     /* gw_graph, gw_op */

/* send or recv. */
bool gw_op_is_channel(const gw_graph *g, const gw_op *o);
/* The other rank of a send or recv of `rank`: where `rank` stands on all axes but those of group
 * pp. */
int64_t gw_exec_peer(const gw_graph *g, const gw_op *o, int64_t rank);
/* Bytes of a message of `rank`. */
int64_t gw_exec_message_bytes(const gw_graph *g, const gw_op *o, int64_t rank);
/* Workspace: a send's box, by rank 0's message, which is the largest; a recv needs none. */
int64_t gw_exec_box_bytes(const gw_graph *g, const gw_op *o);
/* Bytes that `rank` sends to other stages in one step of a program (or one run of the loop of a
 * forward program). Exact, on any machine; nothing travels besides, so payload == moved. */
gw_coll_traffic gw_exec_sends_traffic(const gw_graph *g, int64_t rank);

/* The channels of one program, open. */
typedef struct gw_ports {
    gw_channels *open; /* NULL: the mesh has no group pp, or there is one rank */
    int32_t *of;       /* [ops]: channel of a send or recv, -1 of another op */
    int n;
} gw_ports;
/* Opens them; all ranks, whenever the mesh has a group pp. ptr(user, v) is where value v lies.
 * Everything is in `a`. `c` NULL: GW_ERR_UNSUPPORTED if there are any. */
GW_WARN_UNUSED gw_status gw_ports_open(gw_ports *p, const gw_graph *g, int64_t rank, gw_comm *c,
                                       void *(*ptr)(void *user, gw_vid v), void *user, gw_arena *a,
                                       gw_diags *dg);
/* `wait`: not before the peers have taken what was sent to them, unless they are gone: a receiver
 * copies from this rank's arena. */
void gw_ports_close(gw_ports *p, bool wait);

#endif

// SPDX-License-Identifier: Apache-2.0
// What is inside a gw_comm.
#ifndef GW_COMM_COMM_IMPL_H
#define GW_COMM_COMM_IMPL_H

#include "comm/comm.h"
#include "comm/transport.h" /* gw_transport, gw_group */

enum {
    GW_COMM_GROUPS = 64,      /* masks in use on one rank */
    GW_COMM_TEXTS = 256,      /* lines for people, by what they say */
    GW_COMM_HOST_VALUES = 64, /* numbers of one gw_comm_sum_f64 */
};

typedef struct gw_comm_group {
    uint32_t axes;
    gw_group g;
    uint64_t seq; /* collectives so far */
    int64_t per_host;
    bool shared;
} gw_comm_group;

typedef struct gw_comm_text {
    uint64_t key;
    char text[104];
} gw_comm_text;

struct gw_comm {
    gw_transport *t;
    gw_coll_machine machine;
    gw_mesh mesh;
    uint32_t all_axes;
    gw_comm_group groups[GW_COMM_GROUPS]; /* the first is all ranks */
    int ngroups;
    int *members;   /* [GW_COMM_GROUPS][ranks] */
    uint64_t *host; /* [ranks][GW_COMM_HOST_VALUES] */
    gw_comm_text texts[GW_COMM_TEXTS];
    gw_comm_counts counts[GW_COLL_KIND_COUNT];
    gw_comm_counts exchanged; /* of the all-to-alls, those of comm/exchange.h */
    gw_comm_counts messages;  /* of channels */
    uint64_t channels_opened; /* sets of channels so far: the same on all ranks */
};

/* The group of a mask; size is only looked at when there is no mesh. */
gw_comm_group *gw_comm_group_of(gw_comm *c, uint32_t axes, int64_t size);

#endif

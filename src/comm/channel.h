// SPDX-License-Identifier: Apache-2.0
// Channels: tensors from one rank to another, in order, without waiting for the receiver.
//
// A channel goes one way between two ranks and has a few places in the sender's box. A send copies
// into the next place, once that is free, and goes on; a receive waits for the next message, copies
// it out and frees the place. So a sender runs ahead of its receiver by as many messages as there
// are places, and then waits. Messages of one channel arrive in the order in which they were sent;
// channels do not wait for each other, whatever the order in which two ranks use them.
//
// A rank that is late, dead or leaves makes the other side return GW_ERR_PEER within the timeout,
// with one line that names it, the message, and what it was last said to be doing
// (gw_comm_doing), as for a collective.
#ifndef GW_COMM_CHANNEL_H
#define GW_COMM_CHANNEL_H

#include "comm/comm.h" /* gw_comm */

typedef struct gw_channel_spec {
    int32_t tag;   /* of all channels between these two ranks this way, a number of its own, >= 0 */
    int peer;      /* the other rank, of all; not this one */
    bool sends;    /* this rank is the sender */
    int64_t bytes; /* of a message, >= 0; the same on both sides */
    int places;    /* >= 1; the same on both sides */
    void *box;     /* sender: gw_channel_box_bytes, aligned to 64, in a shared region; else NULL */
    const char *what; /* for people: "activations of stage 1"; copied */
} gw_channel_spec;

/* Bytes of a sender's box: the places, each a multiple of 64. The counters of a channel lie outside
 * it, so a box that is drained may hold anything until the next send. Messages of no bytes need no
 * box. */
int64_t gw_channel_box_bytes(int64_t bytes, int places);

/* From the start of a send to the end of a receive that waits for it; pure, for the plan. */
double gw_channel_seconds(const gw_coll_machine *m, int64_t bytes);

typedef struct gw_channels gw_channels;

/* Opens this rank's channels. Every rank of the comm calls it at the same point (n may be 0), after
 * the regions that hold boxes were shared. Both sides of each channel are compared on every rank:
 * what does not match is GW_ERR_PEER everywhere, and the lower of the two ranks names it. Several
 * sets may be open at once; their tags are apart. */
GW_WARN_UNUSED gw_status gw_channels_open(gw_channels **out, gw_comm *c,
                                          const gw_channel_spec *specs, int n, gw_diags *dg);
/* All ranks, when nothing is under way; before the regions of the boxes are unshared. */
void gw_channels_close(gw_channels *ch);

/* Channel i of the specs. `src`, outside the box, may be overwritten on return. `scope`: for
 * people, "micro-batch 3 of layer 5". Neither allocates. */
GW_WARN_UNUSED gw_status gw_channel_send(gw_channels *ch, int i, const void *src, const char *scope,
                                         gw_diags *dg);
GW_WARN_UNUSED gw_status gw_channel_recv(gw_channels *ch, int i, void *dst, const char *scope,
                                         gw_diags *dg);
/* Would gw_channel_recv return at once? Never blocks. */
bool gw_channel_ready(gw_channels *ch, int i);
/* Waits until all that this rank has sent was taken by its receivers: from then on the boxes may be
 * used for something else, until the next send, but for the last place of a channel of two places
 * or more, where a transport may take a message of the same size from the same rank ahead of its
 * receive. Not collective. */
GW_WARN_UNUSED gw_status gw_channels_drain(gw_channels *ch, gw_diags *dg);

/* Since the last gw_comm_counts_reset: messages that this rank has sent (calls), their bytes
 * (payload == moved), time in sends and receives, and how much of it was waiting. */
gw_comm_counts gw_channels_counted(const gw_comm *c);

#endif

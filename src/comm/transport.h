// SPDX-License-Identifier: Apache-2.0
// A transport carries bytes between ranks. Collective algorithms stand above it.
//
// Two ways, of which a transport offers the first always and the second if it can:
//   exchange   send to one rank and receive from another at the same time (either may be absent)
//   peer       the address at which this process sees the same place of another rank's shared
//              region, for direct reads and writes between two `sync` points
// Every wait in here ends: by success, by a peer's failure, or by the timeout; what is wrong is
// said in a diagnostic by the transport (GW_ERR_PEER), so algorithms only pass statuses on.
#ifndef GW_COMM_TRANSPORT_H
#define GW_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h" /* gw_status, gw_diags */

typedef struct gw_transport gw_transport;

typedef struct gw_group {
    int size, me;     /* this rank's place in it */
    const int *ranks; /* [size] global ranks in group order */
} gw_group;

/* Entry of the flight recorder: what this rank is about to do. Compared among the group. */
typedef struct gw_coll_mark {
    uint64_t seq;       /* of this group at this rank */
    uint64_t signature; /* hash of kind, dtype, wire, sizes, algorithm */
    char text[104];     /* "all-reduce f32 12582912 of layer 3/attn/q, ring, over dp.0" */
} gw_coll_mark;

/* One side of a channel (comm/channel.h). */
typedef struct gw_channel_end {
    uint64_t key; /* hash of set, sender, receiver and tag: the same on both sides */
    int peer;     /* of all ranks */
    bool sends;
    int32_t tag;
    int places;
    int64_t bytes, stride; /* of a message; from one place to the next */
    char *box;             /* sender */
    uint64_t count;        /* messages that this side has sent or received; the transport's */
    int64_t mine[3];       /* what the transport tells the other side */
    int64_t theirs[3];     /* what that one told */
} gw_channel_end;

/* A set of channels; each transport has its own. */
typedef struct gw_transport_channels gw_transport_channels;

typedef struct gw_transport_ops {
    const char *name; /* "shm", "mpi" */
    /* Sends nsend bytes to group rank `to` and receives nrecv from group rank `from`; a side with
     * -1 is absent. Sizes of a matching pair agree. Zero bytes are allowed. */
    gw_status (*exchange)(gw_transport *t, const gw_group *g, int to, const void *send,
                          int64_t nsend, int from, void *recv, int64_t nrecv, gw_diags *dg);
    /* NULL when `mine` lies in no shared region or the transport is not one-sided. */
    void *(*peer)(gw_transport *t, const gw_group *g, int who, const void *mine);
    /* Waits until all of the group have called it. */
    gw_status (*sync)(gw_transport *t, const gw_group *g, gw_diags *dg);
    /* Called by gw_coll_run before and after an algorithm: registers the mark, and compares it with
     * the others' (at the first contact, which may be the first exchange or sync). */
    gw_status (*begin)(gw_transport *t, const gw_group *g, const gw_coll_mark *m, gw_diags *dg);
    void (*end)(gw_transport *t, const gw_group *g);
    gw_status (*share)(gw_transport *t, void *base, int64_t bytes, int fd, int *handle,
                       gw_diags *dg);
    void (*unshare)(gw_transport *t, int handle);
    void (*busy)(gw_transport *t, const char *what, double limit_s);
    void (*alive)(gw_transport *t, uint64_t op);
    void (*doing)(gw_transport *t, const char *what);
    void (*abort)(gw_transport *t, const char *why);
    /* Channels: all ranks open a set together, which fills `mine`; tell each other; then bind, with
     * `theirs` filled. max_tag: the largest of any rank. `ends` outlive the set. Marks of a message
     * have the channel's key as group. */
    gw_status (*channels_open)(gw_transport *t, gw_channel_end *ends, int n,
                               gw_transport_channels **out, gw_diags *dg);
    void (*channels_bind)(gw_transport *t, gw_transport_channels *s, int32_t max_tag);
    void (*channels_close)(gw_transport *t, gw_transport_channels *s);
    gw_status (*channel_send)(gw_transport *t, gw_transport_channels *s, int i, const void *src,
                              const gw_coll_mark *m, gw_diags *dg);
    gw_status (*channel_recv)(gw_transport *t, gw_transport_channels *s, int i, void *dst,
                              const gw_coll_mark *m, gw_diags *dg);
    /* Waits until all places are free. */
    gw_status (*channel_drain)(gw_transport *t, gw_transport_channels *s, int i,
                               const gw_coll_mark *m, gw_diags *dg);
    bool (*channel_ready)(gw_transport *t, gw_transport_channels *s, int i);
    int64_t (*waited_ns)(const gw_transport *t); /* in all waits so far */
    void (*print_flight)(const gw_transport *t, FILE *out);
    void (*close)(gw_transport *t);
} gw_transport_ops;

/* First member of every transport. */
struct gw_transport {
    const gw_transport_ops *ops;
    int rank, size;
    bool one_sided;
};

#endif

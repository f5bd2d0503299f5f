// SPDX-License-Identifier: Apache-2.0
// What the files of the shared-memory transport share: the segment, and waiting.
#ifndef GW_COMM_SHM_IMPL_H
#define GW_COMM_SHM_IMPL_H

#include <stdalign.h>
#include <stdatomic.h>

#include "base/compiler.h" /* GW_PRINTF */
#include "comm/flight.h"   /* gw_flight */
#include "comm/shm.h"

enum {
    GW_SHM_DESCS = 4,             /* messages under way between two ranks, one way */
    GW_SHM_SLOTS = 8,             /* bounce buffers of a rank */
    GW_SHM_SLOT_BYTES = 64 << 10, /* of one of them */
    GW_SHM_EAGER_BYTES = 8 << 10, /* up to here bytes are copied rather than waited for */
    GW_SHM_REGIONS = 64,          /* shared regions alive at once */
    GW_SHM_FLAT_SYNC = 8,         /* groups up to this size signal everyone to everyone */
    GW_SHM_TEXT_WORDS = 8,
    GW_SHM_DOING_WORDS = 12,
    GW_SHM_OUTBOX = -1, /* gw_shm_desc.region: bytes lie in the sender's slots */
};

typedef enum gw_shm_state {
    GW_SHM_RUNNING,
    GW_SHM_LEFT,    /* closed its transport */
    GW_SHM_ABORTED, /* gave up; the reason stands in gw_shm_rank.reason */
    GW_SHM_ENDED,   /* its process is gone; signal or exit code stand beside */
} gw_shm_state;

/* Where the bytes of a message, or of a piece of one, lie. */
typedef struct gw_shm_desc {
    uint64_t total, bytes, offset;
    uint64_t check;  /* of the collective it belongs to */
    uint64_t number; /* of that collective in the sender's flight recorder */
    int64_t region;  /* handle, or GW_SHM_OUTBOX */
} gw_shm_desc;

/* What one rank tells another. Counters are written by one side only. */
typedef struct gw_shm_pair {
    alignas(64) _Atomic uint64_t signals; /* syncs, by `from` */
    uint64_t check[2], number[2];         /* of the sync, by its parity */
    alignas(64) _Atomic uint64_t posted;  /* messages, by `from` */
    gw_shm_desc desc[GW_SHM_DESCS];
    alignas(64) _Atomic uint64_t taken; /* messages, by `to` */
} gw_shm_pair;

typedef struct gw_shm_rank {
    alignas(64) _Atomic uint32_t bell;    /* futex: rung when something for this rank happened */
    _Atomic uint32_t sleeping;            /* rings are heard only when this is 1 */
    alignas(64) _Atomic int64_t alive_ns; /* last sign of life */
    _Atomic uint64_t alive_op;
    _Atomic uint64_t waits;     /* that went to sleep so far */
    _Atomic int32_t waiting_on; /* rank, or -1 */
    alignas(64) _Atomic int32_t state;
    _Atomic int32_t pid, signal, exit_code;
    _Atomic int64_t busy_until_ns;
    _Atomic uint64_t busy[GW_SHM_TEXT_WORDS];
    _Atomic uint64_t doing[GW_SHM_DOING_WORDS];
    _Atomic int64_t longest_gap_ns; /* between two ops, so far */
    char reason[768];               /* written before state becomes ABORTED */
    gw_flight flight, messages;     /* collectives; sends and receives of channels */
} gw_shm_rank;

typedef struct gw_shm_segment {
    int32_t ranks;
    bool threads, spin;
    int64_t timeout_ns;
    _Atomic uint32_t open;    /* futex: all ranks have been started */
    _Atomic int32_t reporter; /* 1 + the first rank that found a fault */
    _Atomic uint32_t stopped; /* everyone stops */
} gw_shm_segment;

struct gw_shm_world {
    gw_shm_segment *seg;
    gw_shm_rank *ranks;    /* [ranks] */
    gw_shm_pair *pairs;    /* [to][from] */
    char *slots;           /* [ranks][GW_SHM_SLOTS][GW_SHM_SLOT_BYTES] */
    gw_requests *requests; /* a page of its own, as it may outlive the segment */
    bool requests_taken;
    int64_t bytes;
    int *inbox, *outbox; /* [ranks] sockets: regions for rank r; -1 when closed; NULL for threads */
};

typedef struct gw_shm_region {
    bool used;
    char *base;
    int64_t bytes;
    char **peers;        /* [ranks] where this process sees the others'; NULL: of no bytes */
    int64_t *peer_bytes; /* [ranks] each rank has its own size */
} gw_shm_region;

/* One rank's end. */
typedef struct gw_shm {
    gw_transport t;
    gw_shm_world *w;
    gw_shm_segment *seg;
    gw_shm_rank *mine;
    int rank, ranks;
    uint64_t *heard; /* [ranks] signals taken from each */
    struct {
        int to; /* -1: never used */
        uint64_t count;
    } slots[GW_SHM_SLOTS]; /* whose taking frees it */
    uint64_t next_slot;
    gw_shm_region regions[GW_SHM_REGIONS];
    int region_end; /* none from here on */
    /* The collective under way. */
    uint64_t check, number, group, seq;
    char text[104];
    bool message, full; /* it is a message of a channel; its sender waits for a place */
    int64_t last_alive_ns, longest_gap_ns, waited_ns;
    bool failed; /* this rank has given up */
} gw_shm;

static inline gw_shm_pair *gw_shm_pair_at(const gw_shm *s, int from, int to) {
    return &s->w->pairs[(int64_t)to * s->ranks + from];
}

/* A wait: `while (!done) GW_TRY(gw_shm_wait(...)); gw_shm_wait_end(...)`. Each call waits a little
 * or arms the bell and returns, so the condition is looked at between any two steps. */
typedef struct gw_shm_waiting {
    const gw_group *g;
    bool sync; /* for everyone's signal; otherwise for one rank's message or its taking */
    bool started, armed, doomed, doomed_all;
    uint32_t heard; /* sync of a small group: places in it whose signal has come */
    int who;
    uint32_t bell;
    int spins;
    int64_t start_ns, last_ns, total_ns; /* total without what this process itself slept */
    int64_t patience_ns, seen_alive_ns;  /* since `who` last moved */
    int64_t stopped_ns;                  /* since when its process is seen stopped */
    uint64_t cycle;                      /* state of a circle of waiting ranks, and since when */
    int64_t cycle_ns;
} gw_shm_waiting;

/* who: the rank (of the world) that has not done its part. */
gw_status gw_shm_wait(gw_shm *s, gw_shm_waiting *w, int who, gw_diags *dg);
void gw_shm_wait_end(gw_shm *s, gw_shm_waiting *w);
/* Wakes a rank after something was stored for it (with sequential consistency). */
void gw_shm_ring(gw_shm_rank *r);
/* Longest sleep between two looks at the others. */
int64_t gw_shm_slice_ns(const gw_shm_segment *seg);
/* Compares a signal's or a message's collective with ours. */
gw_status gw_shm_compare(gw_shm *s, int who, uint64_t check, uint64_t number, gw_diags *dg);
/* Stops everyone. The first rank to call it writes the diagnostic, the others only return. */
gw_status gw_shm_fail(gw_shm *s, gw_diags *dg, const char *id, const char *fmt, ...)
    GW_PRINTF(4, 5);
/* GW_ERR_PEER, without a word, once anyone has stopped everyone. */
gw_status gw_shm_stopped(gw_shm *s, gw_diags *dg);
void gw_shm_give_up(gw_shm_world *w, int rank, const char *why);

/* shm_share.c */
gw_status gw_shm_share(gw_transport *t, void *base, int64_t bytes, int fd, int *handle,
                       gw_diags *dg);
void gw_shm_unshare(gw_transport *t, int handle);
void *gw_shm_peer(gw_transport *t, const gw_group *g, int who, const void *mine);
/* Place `offset` of a rank's region; NULL where [offset, offset + bytes) is not inside it. */
char *gw_shm_place(const gw_shm *s, int handle, int rank, int64_t offset, int64_t bytes);
/* Handle of the region that holds [p, p + bytes), or -1; bytes > 0. */
int gw_shm_region_of(const gw_shm *s, const void *p, int64_t bytes);

/* shm_channel.c: as in gw_transport_ops */
gw_status gw_shm_channels_open(gw_transport *t, gw_channel_end *ends, int n,
                               gw_transport_channels **out, gw_diags *dg);
void gw_shm_channels_bind(gw_transport *t, gw_transport_channels *set, int32_t max_tag);
void gw_shm_channels_close(gw_transport *t, gw_transport_channels *set);
gw_status gw_shm_channel_send(gw_transport *t, gw_transport_channels *set, int i, const void *src,
                              const gw_coll_mark *m, gw_diags *dg);
gw_status gw_shm_channel_recv(gw_transport *t, gw_transport_channels *set, int i, void *dst,
                              const gw_coll_mark *m, gw_diags *dg);
gw_status gw_shm_channel_drain(gw_transport *t, gw_transport_channels *set, int i,
                               const gw_coll_mark *m, gw_diags *dg);
bool gw_shm_channel_ready(gw_transport *t, gw_transport_channels *set, int i);

/* shm.c */
/* A sign of life at the end of a collective or a message; clears what is under way. */
void gw_shm_end_call(gw_shm *s, int64_t now);
gw_status gw_shm_exchange(gw_transport *t, const gw_group *g, int to, const void *send,
                          int64_t nsend, int from, void *recv, int64_t nrecv, gw_diags *dg);

#endif

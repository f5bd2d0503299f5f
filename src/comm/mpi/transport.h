// SPDX-License-Identifier: Apache-2.0
// The MPI transport above the plugin's table: what it knows of itself and of the other ranks.
#ifndef GW_COMM_MPI_TRANSPORT_H
#define GW_COMM_MPI_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"       /* gw_status, gw_diags */
#include "comm/flight.h"     /* gw_flight, gw_flight_mark */
#include "comm/mpi/plugin.h" /* gw_mpi_api, gw_mpi_request, gw_mpi_world */
#include "comm/transport.h"  /* gw_transport, gw_coll_mark */

enum { GW_MPI_SLOTS = 64, GW_MPI_TEXT = 600, GW_MPI_DOING = 96 };

/* A control message. */
typedef enum gw_mpi_note_kind {
    GW_MPI_ASK,    /* have you reached this collective, and what do you do? */
    GW_MPI_ANSWER, /* to an ASK */
    GW_MPI_BUSY,   /* do not wait for me before busy_s have passed */
    GW_MPI_FAIL,   /* I give up, because of text */
    GW_MPI_TELL,   /* what I do from here on, to those who share a channel with me */
} gw_mpi_note_kind;

typedef enum gw_mpi_reached { GW_MPI_NOT_YET, GW_MPI_THERE, GW_MPI_LONG_PAST } gw_mpi_reached;

typedef struct gw_mpi_note {
    int32_t kind, from;
    uint32_t ticket;                /* ASK, and its ANSWER */
    int32_t waits_for;              /* ANSWER: the rank it waits for, or -1 */
    int32_t reached;                /* ANSWER: gw_mpi_reached */
    int32_t in_message;             /* ANSWER: it waits in a channel, not in a collective */
    uint64_t group, seq, signature; /* ASK: the asker's collective; ANSWER: what it called there */
    uint64_t progress;              /* ANSWER: changes as the rank gets on */
    double busy_s, gap_s;           /* ANSWER, BUSY; ANSWER: its longest silence between two ops */
    char text[GW_MPI_TEXT];         /* the collective at (group, seq); what one is busy with; why */
    char now[104];                  /* ANSWER: the latest collective or message */
    char doing[GW_MPI_DOING];       /* ANSWER, TELL: gw_comm_doing */
    char awaited[GW_MPI_DOING];     /* ANSWER: what waits_for was last heard to do */
} gw_mpi_note;

typedef struct gw_mpi_peer {
    uint64_t progress;
    int64_t busy_until_ns, gap_ns;
    char what[64]; /* what it is busy with, or its latest collective as far as is known */
    uint64_t told; /* the round of TELL in which it was told last */
    char doing[GW_MPI_DOING];
} gw_mpi_peer;

/* A wait that takes long: whom it is for, and what asking around has shown. */
typedef struct gw_mpi_watch {
    bool on;
    int peer;  /* whom this rank waits for */
    int asked; /* the last rank asked: peer, or whom peer waits for, and so on */
    int hops;
    uint32_t ticket;
    bool answered;           /* by `asked`, in this round */
    int64_t verdict_ns;      /* patience is over: when to say so; 0: it is not */
    int64_t life_ns, ask_ns; /* latest sign of life; time of the next question */
    gw_mpi_note answer;
} gw_mpi_watch;

typedef struct gw_mpi_transport {
    gw_transport base;
    const gw_mpi_api *api;
    int64_t timeout_ns;
    bool spin; /* ranks do not outnumber the cores of this host */
    int max_tag;
    int *all;           /* [size] 0, 1, 2 ... */
    gw_mpi_peer *peers; /* [size] */

    bool failed, told; /* `why` holds; the others know it */
    bool silent;       /* it was another rank that failed, and says so itself */
    bool late;         /* the failure is one of time */
    const char *fail_id;
    char why[GW_MPI_TEXT];

    uint64_t op, begun; /* progress: ops and collectives so far */
    int tag;            /* of the collective that runs; 0 outside */
    int64_t waited_ns, serviced_ns;
    int64_t alive_ns, longest_gap_ns; /* latest sign of its own life; the longest between two */
    int64_t busy_until_ns;
    char busy_with[64];
    bool busy_sent;
    char doing[GW_MPI_DOING];
    bool doing_told; /* the others have it; as often as tells_left allows, which grows with time */
    int tells_left;
    int64_t tells_ns;
    uint64_t tells;
    gw_flight flight, messages;
    /* The collective or message that it is in, or was in last; text "" before the first. */
    gw_flight_mark latest;
    bool in_message;
    struct gw_mpi_channels *channels; /* open sets, the latest first */
    int next_tag;                     /* of GW_MPI_MESSAGES */
    gw_mpi_watch watch;

    gw_mpi_note in; /* being received */
    gw_mpi_request in_request;
    struct {
        gw_mpi_note note;
        gw_mpi_request request;
    } out[GW_MPI_SLOTS];
} gw_mpi_transport;

/* A transport over ranks that have been initialised. `close` finalizes MPI if all ranks come to it
 * within the timeout, and frees; otherwise MPI is left as it is and the process is to end with an
 * error. */
gw_transport *gw_mpi_transport_new(const gw_mpi_api *api, const gw_mpi_world *w, double timeout_s,
                                   bool spin);

/* Another rank failed, and is about to say why. */
bool gw_mpi_transport_silent(const gw_transport *t);

/* ---- waiting (transport.c) ---- */

/* `while (!done) if (!gw_mpi_pause(...)) failed; gw_mpi_pause_end(t);` */
typedef struct gw_mpi_waiting {
    int looks;
    int64_t start_ns;
} gw_mpi_waiting;
/* Between two looks at what rank `peer` is to do; false when it is over because something failed.
 * `bytes`: of the transfer, which MPI moves only inside its calls. */
bool gw_mpi_pause(gw_mpi_transport *t, gw_mpi_waiting *w, int peer, int64_t bytes);
void gw_mpi_pause_end(gw_mpi_transport *t);
/* GW_ERR_PEER; with a diagnostic where this rank is the one that found the fault. */
gw_status gw_mpi_say_failed(const gw_mpi_transport *t, gw_diags *dg);
/* What a rank said to be doing: "; rank 2 was last in forward of ...", or "". */
const char *gw_mpi_doing_of(int rank, const char *doing, char buf[144]);

/* ---- channels (channel.c), as in gw_transport_ops ---- */

gw_status gw_mpi_channels_open(gw_transport *t, gw_channel_end *ends, int n,
                               gw_transport_channels **out, gw_diags *dg);
void gw_mpi_channels_bind(gw_transport *t, gw_transport_channels *set, int32_t max_tag);
void gw_mpi_channels_close(gw_transport *t, gw_transport_channels *set);
gw_status gw_mpi_channel_send(gw_transport *t, gw_transport_channels *set, int i, const void *src,
                              const gw_coll_mark *m, gw_diags *dg);
gw_status gw_mpi_channel_recv(gw_transport *t, gw_transport_channels *set, int i, void *dst,
                              const gw_coll_mark *m, gw_diags *dg);
gw_status gw_mpi_channel_drain(gw_transport *t, gw_transport_channels *set, int i,
                               const gw_coll_mark *m, gw_diags *dg);
bool gw_mpi_channel_ready(gw_transport *t, gw_transport_channels *set, int i);
/* To each rank that shares a channel with this one. */
void gw_mpi_channels_tell(gw_mpi_transport *t, const gw_mpi_note *n);
/* Lets MPI move what is under way. */
void gw_mpi_channels_progress(gw_mpi_transport *t);
/* Is `key` a channel of this rank's, and has it come to message `seq`? */
bool gw_mpi_channels_find(const gw_mpi_transport *t, uint64_t key, uint64_t seq,
                          gw_mpi_reached *reached);

/* ---- control messages (control.c) ---- */

void gw_mpi_control_open(gw_mpi_transport *t);
void gw_mpi_control_close(gw_mpi_transport *t);
/* Reads and answers what has come. After it t->failed may hold. */
void gw_mpi_control_serve(gw_mpi_transport *t);
/* Sends; false when too many are under way. */
bool gw_mpi_control_send(gw_mpi_transport *t, int to, const gw_mpi_note *n);
/* To all others; waits up to limit_ns until they have left. */
void gw_mpi_control_send_all(gw_mpi_transport *t, const gw_mpi_note *n, int64_t limit_ns);
/* Tells what this rank does to those who may wait for its messages, unless it has told much
 * lately. */
void gw_mpi_control_tell(gw_mpi_transport *t);
/* Begins a round of asking about the collective that runs: first the rank that is waited for, then,
 * as answers come, the one that it waits for. */
void gw_mpi_control_ask(gw_mpi_transport *t);
/* Remembers the first failure, and tells the others. */
void gw_mpi_failed(gw_mpi_transport *t, const char *id, const char *fmt, ...) GW_PRINTF(3, 4);
/* Checks an MPI code. */
bool gw_mpi_ok(gw_mpi_transport *t, int code, const char *what);

#endif

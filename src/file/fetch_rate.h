// SPDX-License-Identifier: Apache-2.0
// How much to have in flight, and when a first byte is late. Pure state: it is told what happened
// and when, and reads no clock.
#ifndef GW_FILE_FETCH_RATE_H
#define GW_FILE_FETCH_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define GW_RATE_SAMPLES 128
#define GW_RATE_WINDOWS 10

typedef struct gw_rate {
    /* what is allowed now: bytes that are asked for and not here yet */
    int64_t outstanding_limit;

    bool starting; /* doubling while the rate still grows */
    int flat;      /* windows without growth in a row */
    int since_probe;
    int64_t begun_ns, bytes;       /* of this window; 0: none is open */
    bool short_of_work;            /* this window says nothing about the link */
    double rates[GW_RATE_WINDOWS]; /* bytes a second of the last windows */
    int nrates;
    double best;       /* the rate before the last doubling */
    double piece_mean; /* bytes */
    double body_best;  /* least seconds a byte within one body */
    double first[GW_RATE_SAMPLES];
    int64_t nfirst;
    double p50, p95;     /* of first[], as of the last look */
    double least;        /* seconds to a first byte, without a queue */
    double window_least; /* of this window; 0: none yet */
    int windows;         /* in steady state, since the last drain */
    bool draining;       /* this window is one */
    int64_t looked;
} gw_rate;

void gw_rate_init(gw_rate *r, int64_t piece_bytes);
/* A request of `bytes` was sent. */
void gw_rate_sent(gw_rate *r, int64_t bytes);
/* Its first byte came after `seconds`. */
void gw_rate_first_byte(gw_rate *r, double seconds);
/* Its body took `seconds` from first to last byte. */
void gw_rate_body(gw_rate *r, int64_t bytes, double seconds);
/* Bytes came in. Closes the window when it is time, and sets outstanding_limit anew. */
void gw_rate_received(gw_rate *r, int64_t now_ns, int64_t bytes);
/* There was room, but nothing to send or nowhere to put it. */
void gw_rate_idle(gw_rate *r);
/* The server said: slow down. */
void gw_rate_throttled(gw_rate *r);
/* The best rate of the last windows, bytes a second; 0 before the first. */
double gw_rate_bandwidth(const gw_rate *r);
/* Seconds after which a request without a first byte is late; 0: not known yet. */
double gw_rate_late(gw_rate *r);

#endif

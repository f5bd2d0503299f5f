// SPDX-License-Identifier: Apache-2.0
// Requests to stop: signals, collected by a thread instead of a handler, each request counted once.
#ifndef GW_COMM_REQUESTS_H
#define GW_COMM_REQUESTS_H

#include <signal.h> /* sigset_t, siginfo_t */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What all processes of a launch know of requests, in memory that they share. Zero: none yet. */
typedef struct gw_requests {
    _Atomic uint64_t state; /* requests so far, and when the latest was first heard */
    _Atomic int32_t ending; /* the signal of the request that ends everything at once; 0: none */
    _Atomic int32_t failed; /* a fault ends the launch: no step is finished any more */
} gw_requests;

/* What one process has heard. Zero: nothing. */
typedef struct gw_hearing {
    int number; /* of the latest request heard here */
    int signo, pid;
    int64_t at_ns;
} gw_hearing;

/* SIGINT, SIGTERM, SIGUSR1 and SIGHUP; not SIGHUP when it is ignored, as nohup has it. */
void gw_requests_signals(sigset_t *set);
/* Blocks them, so that threads started later inherit it. */
void gw_requests_block(void);

/* A signal that came at `now`. True for a new request, *count is then its number. False for a copy:
 * another process of the launch has heard the same request within half a second before, or this one
 * has got the same signal from the same sender within 8 ms (`timeout` sends to a process and then
 * to its group). SIGHUP is never more than the first request: a closing terminal sends several. */
bool gw_requests_hear(gw_requests *r, gw_hearing *me, const siginfo_t *info, int64_t now,
                      int *count);
int gw_requests_count(const gw_requests *r);
/* Everything ends at once, for `signo`: nobody reports a rank that ends from here on. The first
 * call holds. */
void gw_requests_end(gw_requests *r, int signo);
int gw_requests_ending(const gw_requests *r);

/* A rank has failed, or is missing: who is asked to end from here on finishes nothing. */
void gw_requests_fail(gw_requests *r);
/* Says on stderr that the run ends after this step, unless it has failed. */
void gw_requests_say(const gw_requests *r);

#endif

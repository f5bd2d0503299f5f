// SPDX-License-Identifier: Apache-2.0
// Counting requests to stop.
//
// A person asks once, and up to N + 1 processes hear of it: a terminal and `kill -- -GROUP` reach
// every process, `kill PID` one. The second request ends everything at once, so a copy must not be
// taken for one, and a real second one, 20 ms later, must not be taken for a copy. Time alone
// cannot tell them apart. What can: one process hears each request once. So the processes share the
// number of requests and the time of the latest, in one word, and each remembers the number that it
// has heard itself. A signal that reaches a process that is behind is the copy of what others have
// heard, for half a second; any other is a new request, which a compare-and-swap counts.
//
//   Ctrl-C               the first process counts 1, the others are behind and catch up
//   kill PARENT, twice   the parent has heard 1, so its next signal is 2
//   kill PARENT, then a second later kill RANK
//                        the rank is behind, but too late for a copy: 2
//
// Standard signals coalesce while one is pending, which loses nothing here: the thread that waits
// for them takes each within microseconds.
#include "comm/requests.h"

#include <string.h>
#include <unistd.h>

enum { COPY_MS = 500, NUMBER_SHIFT = 48 };
static const int64_t SENT_TWICE_NS = 8 * 1000 * 1000;
static const uint64_t TIME_MASK = ((uint64_t)1 << NUMBER_SHIFT) - 1;

void gw_requests_signals(sigset_t *set) {
    struct sigaction hangup;
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGUSR1); /* what batch systems send ahead of a time limit */
    if (sigaction(SIGHUP, NULL, &hangup) != 0 || hangup.sa_handler != SIG_IGN)
        sigaddset(set, SIGHUP);
}

/* A shell's background jobs ignore SIGINT; here it is asked for by name all the same. */
void gw_requests_block(void) {
    sigset_t set;
    gw_requests_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* The same sender's second signal of a pair is part of its first. */
static bool sent_twice(gw_hearing *me, const siginfo_t *info, int64_t now) {
    bool same = me->at_ns != 0 && now - me->at_ns < SENT_TWICE_NS && me->signo == info->si_signo &&
                me->pid == info->si_pid;
    me->signo = info->si_signo;
    me->pid = info->si_pid;
    me->at_ns = now;
    return same;
}

bool gw_requests_hear(gw_requests *r, gw_hearing *me, const siginfo_t *info, int64_t now,
                      int *count) {
    if (sent_twice(me, info, now)) return false;
    uint64_t at_ms = (uint64_t)(now / 1000000) & TIME_MASK;
    uint64_t old = atomic_load(&r->state), fresh = 0;
    do {
        int number = (int)(old >> NUMBER_SHIFT);
        bool recent = (int64_t)at_ms - (int64_t)(old & TIME_MASK) <= COPY_MS;
        bool behind = me->number < number;
        if (behind && recent) {
            me->number++;
            return false;
        }
        if (number > 0 && info->si_signo == SIGHUP) return false;
        if (number >= INT16_MAX) return false;
        *count = number + 1;
        fresh = (uint64_t)(number + 1) << NUMBER_SHIFT | at_ms;
    } while (!atomic_compare_exchange_weak(&r->state, &old, fresh));
    me->number = *count;
    return true;
}

int gw_requests_count(const gw_requests *r) {
    return (int)(atomic_load(&r->state) >> NUMBER_SHIFT);
}

void gw_requests_end(gw_requests *r, int signo) {
    int32_t none = 0;
    atomic_compare_exchange_strong(&r->ending, &none, signo);
}

int gw_requests_ending(const gw_requests *r) { return atomic_load(&r->ending); }

void gw_requests_fail(gw_requests *r) { atomic_store(&r->failed, 1); }

void gw_requests_say(const gw_requests *r) {
    static const char text[] =
        "\nfinishing this step, then saving; once more stops at once, without saving\n";
    if (atomic_load(&r->failed)) return;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
}

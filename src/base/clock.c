// SPDX-License-Identifier: Apache-2.0
// Clocks.
//
// Two times that must not be mixed: the monotonic clock, which never jumps and measures spans, and
// the wall clock, which a person may set and which stamps records. CLOCK_MONOTONIC counts from boot
// and is the same on all local ranks, so their traces share one axis.
#include "base/clock.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

int64_t gw_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

double gw_clock_wall(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

char *gw_clock_iso(char buf[32], double wall) {
    struct tm tm = {0};
    /* Years 0001 to 9999, where the form has four digits. */
    bool sane = wall >= -62135596800.0 && wall < 253402300800.0;
    time_t t = sane ? (time_t)floor(wall) : 0;
    if (!sane || !gmtime_r(&t, &tm) || !strftime(buf, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(buf, 32, "unknown-time");
    return buf;
}

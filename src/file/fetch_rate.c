// SPDX-License-Identifier: Apache-2.0
// How much to have in flight.
//
// A link of B bytes a second whose requests are answered after L seconds is full when B × L bytes
// are on their way. Counting requests instead of bytes does not fill it: requests that began
// together share the link, end together, and leave it empty together for L. So the limit is on
// outstanding bytes (asked for and not here yet), and the next request goes out when enough has
// arrived, wherever the other requests stand. They spread out by themselves.
//
// Neither B nor L is known. As TCP's BBR does (Cardwell et al., "BBR: congestion-based congestion
// control", 2016), B is the best rate of the last windows and L the least time to a first byte,
// both measured:
//   start    the limit doubles each window, until the rate has not grown by a quarter three times
//   steady   limit = gain × B × (L + half the time of a body at its best) + two pieces; the second
//   term
//            because a server may bound each connection
//   probe    each eighth window the limit is a quarter larger; should the rate follow, start again
//   drain    each 64th window the limit is a third, so that queues run empty and L shows itself;
//   with
//            requests waiting in queues, every first byte is late, and a limit made from that would
//            grow without end
// A window in which there was nothing to send, or no room for it, may raise B but proves nothing.
// An answer "slow down" halves the limit and forgets B.
//
// The time to a first byte of the last requests also tells when one is late: at the 95th
// percentile, and not before one and a half times the median, since without a tail a second request
// gains nothing.
#include "file/fetch_rate.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h" /* GW_MIN, GW_MAX */

#define STEADY_GAIN     1.5
#define PROBE_EVERY     8
#define PROBE_GAIN      1.25
#define DRAIN_EVERY     64
#define GROWTH          1.25
#define LEAST_WINDOW_NS (50 * INT64_C(1000000))
#define LEAST_SAMPLES   16

void gw_rate_init(gw_rate *r, int64_t piece_bytes) {
    *r = (gw_rate){.starting = true, .piece_mean = (double)piece_bytes};
    r->outstanding_limit = 2 * piece_bytes;
}

void gw_rate_sent(gw_rate *r, int64_t bytes) {
    r->piece_mean += ((double)bytes - r->piece_mean) / 16;
}

static int by_value(const void *pa, const void *pb) {
    double a = *(const double *)pa, b = *(const double *)pb;
    return a < b ? -1 : a > b;
}

static void look(gw_rate *r) {
    double sorted[GW_RATE_SAMPLES];
    int n = (int)GW_MIN(r->nfirst, (int64_t)GW_RATE_SAMPLES);
    if (n == 0) return;
    memcpy(sorted, r->first, sizeof *sorted * (size_t)n);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    r->p50 = sorted[n / 2];
    r->p95 = sorted[GW_MIN(n * 95 / 100, n - 1)];
    r->looked = r->nfirst;
}

void gw_rate_first_byte(gw_rate *r, double seconds) {
    r->first[r->nfirst++ % GW_RATE_SAMPLES] = seconds;
    if (r->least == 0 || seconds < r->least) r->least = seconds;
    if (r->window_least == 0 || seconds < r->window_least) r->window_least = seconds;
    if (r->nfirst <= LEAST_SAMPLES || r->nfirst - r->looked >= 8) look(r);
}

void gw_rate_body(gw_rate *r, int64_t bytes, double seconds) {
    if (bytes < 65536 || seconds <= 0) return;
    double each = seconds / (double)bytes;
    if (r->body_best == 0 || each < r->body_best) r->body_best = each;
}

double gw_rate_bandwidth(const gw_rate *r) {
    double best = 0;
    int n = GW_MIN(r->nrates, GW_RATE_WINDOWS);
    for (int i = 0; i < n; i++) best = GW_MAX(best, r->rates[i]);
    return best;
}

static int64_t steady_limit(const gw_rate *r, double gain) {
    double body = r->piece_mean * r->body_best / 2;
    return (int64_t)(gain * gw_rate_bandwidth(r) * (r->least + body) + 2 * r->piece_mean);
}

static void start_again(gw_rate *r) {
    r->starting = true;
    r->flat = 0;
    r->best = 0;
}

static void close_start(gw_rate *r, double rate) {
    bool grew = rate > r->best * GROWTH;
    r->best = GW_MAX(r->best, rate);
    if (grew) {
        r->flat = 0;
        r->outstanding_limit = GW_MIN(r->outstanding_limit * 2, INT64_C(1) << 40);
    } else if (!r->short_of_work && ++r->flat >= 3) {
        r->starting = false;
        r->since_probe = 0;
    }
}

static void close_steady(gw_rate *r, double rate, double before) {
    bool probed = r->since_probe == PROBE_EVERY;
    if (r->draining && r->window_least > 0) r->least = r->window_least;
    r->draining = false;
    if (probed && rate > before * 1.1) {
        start_again(r);
        r->best = before;
        return;
    }
    if (probed) r->since_probe = 0;
    if (!r->short_of_work) {
        r->since_probe++;
        r->windows++;
    }
    double gain = r->since_probe == PROBE_EVERY ? STEADY_GAIN * PROBE_GAIN : STEADY_GAIN;
    r->outstanding_limit = steady_limit(r, gain);
    if (r->windows >= DRAIN_EVERY) {
        r->windows = 0;
        r->draining = true;
        r->outstanding_limit /= 3;
    }
}

static void close_window(gw_rate *r, double seconds) {
    double rate = (double)r->bytes / seconds, before = gw_rate_bandwidth(r);
    if (!(r->short_of_work || r->draining) || rate > before)
        r->rates[r->nrates++ % GW_RATE_WINDOWS] = rate;
    if (r->starting) close_start(r, rate);
    if (!r->starting) close_steady(r, rate, before);
    r->bytes = 0;
    r->short_of_work = false;
    r->window_least = 0;
}

void gw_rate_received(gw_rate *r, int64_t now_ns, int64_t bytes) {
    if (r->begun_ns == 0) r->begun_ns = now_ns;
    r->bytes += bytes;
    int64_t passed = now_ns - r->begun_ns;
    int64_t least = GW_MAX(LEAST_WINDOW_NS, (int64_t)(2e9 * r->least));
    bool enough = (double)r->bytes >= 2 * r->piece_mean || passed > 4 * least;
    if (passed < least || !enough || r->bytes == 0) return;
    close_window(r, (double)passed * 1e-9);
    r->begun_ns = now_ns;
}

void gw_rate_idle(gw_rate *r) { r->short_of_work = true; }

void gw_rate_throttled(gw_rate *r) {
    double half = gw_rate_bandwidth(r) / 2;
    r->starting = false;
    r->since_probe = 0;
    r->rates[0] = r->best = half;
    r->nrates = 1;
    r->outstanding_limit = GW_MAX(r->outstanding_limit / 2, (int64_t)(2 * r->piece_mean));
}

double gw_rate_late(gw_rate *r) {
    if (r->nfirst < LEAST_SAMPLES) return 0;
    return GW_MAX(r->p95, 1.5 * r->p50);
}

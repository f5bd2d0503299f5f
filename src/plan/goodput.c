// SPDX-License-Identifier: Apache-2.0
// What is left of a fleet's time when chips fail and checkpoints are written.
//
// A job of n chips fails every 1 / (n x rate) hours. A failure costs the restart and the steps
// since the last checkpoint, on average half an interval; a checkpoint costs the time of its write,
// which training waits for. With C that time, M the time between failures and t the interval, the
// share that is lost is
//     C / t + (t / 2 + R) / M
// to first order, and least where t = sqrt(2 C M) (Young, A first order approximation to the
// optimum checkpoint interval, CACM 17, 1974). An interval below the time of a write is none.
#include <math.h>

#include "plan/simulate.h"

static void read_times(const gw_sim_fleet *f, gw_sim_goodput *g) {
    double rate = f->failures_per_hour * (double)f->chips / 3600;
    g->between_failures_s = rate > 0 ? 1 / rate : (double)INFINITY;
    g->write_s = f->write_s;
    if (g->write_s <= 0 && f->storage_bytes_per_s > 0)
        g->write_s = f->checkpoint_bytes / f->storage_bytes_per_s;
}

gw_sim_goodput gw_sim_goodput_of(const gw_sim_fleet *f) {
    gw_sim_goodput g = {0};
    read_times(f, &g);
    g.best_interval_s = fmax(sqrt(2 * g.write_s * g.between_failures_s), g.write_s);
    g.interval_s = f->interval_s > 0 ? f->interval_s : g.best_interval_s;
    if (isinf(g.between_failures_s)) {
        g.best_interval_s = (double)INFINITY;
        if (f->interval_s <= 0) g.interval_s = (double)INFINITY;
    }
    g.lost_to_checkpoints = g.interval_s > 0 ? fmin(1, g.write_s / g.interval_s) : 0;
    if (isfinite(g.between_failures_s)) {
        g.lost_to_rework = g.interval_s / 2 / g.between_failures_s;
        g.lost_to_restarts = f->restart_s / g.between_failures_s;
    }
    double lost = g.lost_to_checkpoints + g.lost_to_rework + g.lost_to_restarts;
    if (lost > 1) { /* beyond first order: nothing is left */
        g.lost_to_checkpoints /= lost;
        g.lost_to_rework /= lost;
        g.lost_to_restarts /= lost;
        lost = 1;
    }
    g.goodput = 1 - lost;
    return g;
}

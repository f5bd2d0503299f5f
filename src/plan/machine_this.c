// SPDX-License-Identifier: Apache-2.0
// The machine that a calibration file describes: `--hardware this`, or a file by its path.
//
// A hardware file states peaks and the cost model predicts what of them is reached. Here the times
// themselves were measured (calibrate.h), so there is no efficiency to predict: the peak is the
// rate of the fastest product, the links are one tier, the memory that the ranks share, and a
// collective stands still with compute, as the executor on CPUs runs it. What nobody measured (a
// price, a failure rate) is not stated.
//
// `this` is the file of the working directory and must be of the machine that asks. A file by path
// may be of another: it is then called by its host's name, so that a page never says "this" of a
// machine that it is not.
#include <string.h>

#include "base/io.h" /* gw_path_exists */
#include "plan/calibrate.h"
#include "plan/machine_impl.h"
#include "plan/simulate_impl.h" /* GW_SIM_BLOCKS */

/* Measured times leave nothing to the model but that compute waits. */
static const gw_chip_model model = {.tile_m = 64,
                                    .tile_n = 64,
                                    .product_efficiency = 1,
                                    .f8_efficiency = 1,
                                    .attention_forward = 1,
                                    .attention_backward = 1,
                                    .memory_efficiency = 1,
                                    .near_efficiency = 1,
                                    .far_efficiency = 1,
                                    .in_network_efficiency = 1,
                                    .overlap = GW_SIM_BLOCKS};

static void fill(gw_machine_spec *m, const gw_timings *r, const char *name, gw_arena *a) {
    *m = (gw_machine_spec){.name = name,
                           .asked = name,
                           .units = r->cores,
                           .memory_bytes_per_s = r->memory_bytes_per_s,
                           .ntiers = 1,
                           .storage_read = r->storage_read,
                           .storage_write = r->storage_write,
                           .host_bytes_per_s = r->comm.copy_bytes_per_s,
                           .model = &model,
                           .timings = r};
    for (int t = 0; t < GW_DTYPE_COUNT; t++) m->peak[t] = gw_timings_peak(r, (gw_dtype)t);
    m->tiers[0] = (gw_tier){.name = "shared memory",
                            .bytes_per_s = r->comm.bytes_per_s,
                            .latency_s = r->comm.latency_s};
    m->sources = gw_arena_printf(a, "all: measured on %s on %s by gradwright %s (%s)", r->host,
                                 r->date, r->version, r->path);
}

gw_status gw_machine_measured(const char *path, bool here, gw_arena *a, gw_machine_spec *out,
                              gw_diags *dg) {
    gw_timings *r = gw_arena_new(a, gw_timings, 1);
    char why[160];
    if (!gw_path_exists(path)) {
        gw_diag *d = gw_diag_add(dg, GW_ERROR, GW_ERR_USAGE, "calibration-missing",
                                 (gw_where){.file = path}, "there is no calibration file");
        gw_diag_hint(dg, d, "`gradwright calibrate` measures this machine and writes it");
        return GW_ERR_USAGE;
    }
    GW_TRY(gw_timings_read(path, a, r, dg));
    bool own = gw_timings_fit_here(r, why);
    if (here && !own) {
        gw_diag *d =
            gw_diag_add(dg, GW_ERROR, GW_ERR_CONFIG, "calibration-other", (gw_where){.file = path},
                        "this calibration is not of this machine: %s", why);
        gw_diag_hint(dg, d,
                     "run `gradwright calibrate` here, or plan for that machine by its file: "
                     "--hardware ./%s",
                     path);
        return GW_ERR_CONFIG;
    }
    fill(out, r, own ? "this" : gw_arena_printf(a, "calibrated %s", r->host), a);
    return GW_OK;
}

void gw_machine_share(gw_machine_spec *m, int64_t ranks) {
    if (!m->timings || ranks < 2) return;
    for (int t = 0; t < GW_DTYPE_COUNT; t++) m->peak[t] /= (double)ranks;
    m->memory_bytes_per_s /= (double)ranks;
    m->units /= (double)ranks;
}

// SPDX-License-Identifier: Apache-2.0
// One rank of tests/dist/test_dedup_mpi.sh: deduplication under mpirun.
//
//   GW_DEDUP_RANKS=FOLDER mpirun -n 3 build/release/tests/data dedup_rank
//
// Each rank writes the keys of its units into FOLDER/RANK (into FOLDER/0 with GW_DEDUP_SHARED=1),
// all deduplicate together, and leave removed.recs there. It is a test of the executable only while
// GW_DEDUP_RANKS is set.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"         /* gw_rng_u64 */
#include "comm/launch.h"      /* gw_launch */
#include "data/dedup/dedup.h" /* gw_dedup_run */
#include "harness.h"

enum { UNITS = 9, DOCUMENTS = 2000, BANDS = 6 };

static gw_status write_unit(const gw_dedup_options *o, uint32_t unit, gw_diags *dg) {
    gw_rng_key k = gw_rng_key_named(unit, "units");
    gw_dedup_unit *u;
    gw_hash128 keys[BANDS];
    GW_TRY(gw_dedup_unit_open(o, unit, &u, dg));
    for (uint32_t d = 0; d < DOCUMENTS; d++) {
        for (uint64_t b = 0; b < BANDS; b++) {
            uint64_t x = gw_rng_u64(k, d * BANDS + b), shared = x / 16 % 3000;
            keys[b] = gw_hash128_of(x % 16 ? &x : &shared, 8);
        }
        gw_dedup_unit_add(u, d, keys);
    }
    return gw_dedup_unit_close(u, dg);
}

static gw_status run_rank(gw_comm *c, gw_diags *dg) {
    char dir[1024];
    int rank = c ? gw_comm_rank(c) : 0, size = c ? gw_comm_size(c) : 1;
    bool shared = getenv("GW_DEDUP_SHARED") != NULL;
    snprintf(dir, sizeof dir, "%s/%d", getenv("GW_DEDUP_RANKS"), shared ? 0 : rank);
    gw_dedup_options o = {.dir = dir,
                          .bands = BANDS,
                          .exact_bands = 1,
                          .parts = 2,
                          .units = UNITS,
                          .memory_bytes = GW_DEDUP_MEMORY_MIN,
                          .tag = 1};
    for (int u = rank; u < UNITS; u += size) GW_TRY(write_unit(&o, (uint32_t)u, dg));
    if (c) GW_TRY(gw_comm_barrier(c, "the units", dg));
    GW_TRY(gw_dedup_run(&o, c, dg));
    gw_dedup_result *r;
    GW_TRY(gw_dedup_result_open(&o, &r, dg));
    printf("rank %d of %d: removed %lld\n", rank, size,
           (long long)gw_dedup_result_totals(r).removed);
    gw_dedup_result_free(r);
    return GW_OK;
}

static void dedup_rank(void) {
    gw_launch_opts o = {.timeout_s = 20};
    gw_launch_role role;
    gw_comm *c = NULL;
    gw_diags dg = {0};
    int code = 0;
    gw_status s = gw_launch(&o, &role, &c, &code, &dg);
    if (s == GW_OK) s = run_rank(c, &dg);
    if (s != GW_OK) gw_diags_print(&dg, stderr, false);
    if (c) gw_launch_leave(c, s == GW_OK, gw_diags_first_error(&dg));
    if (s != GW_OK) exit(gw_status_exit_code(s));
    gw_diags_release(&dg);
}

__attribute__((constructor)) static void register_rank(void) {
    static test_case rank = {"dedup_rank", dedup_rank, 600, false, NULL};
    if (getenv("GW_DEDUP_RANKS")) test_register(&rank);
}

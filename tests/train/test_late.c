// SPDX-License-Identifier: Apache-2.0
// What is left to copy when a step changes the state may take long: the buffer is small, the disk
// slow. The other ranks, which wait in the middle of the step, know what for.
#include "base/log.h"    /* gw_log_set_level */
#include "comm/launch.h" /* gw_launch_threads */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h" /* gw_ranks_me */
#include "train/session.h"

/* Rank 0 writes 19 MB, at 6 MB/s through a buffer of 8 MiB: two seconds. Rank 1 writes little. */
static const char *const sets[] = {"layout.pp=2",
                                   "train.accumulate=2",
                                   "train.micro_batch=1",
                                   "model.vocab=100000",
                                   "checkpoint.write_rate=6000000",
                                   "checkpoint.buffer=8MiB",
                                   "checkpoint.probe=false",
                                   NULL};
static const double timeout_s = 0.4;

typedef struct figures {
    double longest_s; /* of a step after the save began */
    gw_hash128 saved, loaded;
} figures;

static gw_status open_on(gw_session *s, gw_runfile *rf, const char *run, gw_comm *c, gw_diags *dg) {
    tiny_runfile(rf, false, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, gw_ranks_count(c), dg), dg);
    return gw_session_open(s, rf, run, c, dg);
}

static gw_status save_beside_steps(gw_comm *c, void *user, gw_diags *dg) {
    figures *f = user, mine = {0};
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r;
    GW_TRY(open_on(&s, &rf, NULL, c, dg));
    GW_TRY(gw_session_step(&s, &r, dg));
    mine.saved = gw_session_hash(&s);
    GW_TRY(gw_session_save_begin(&s, test_tmpdir(), dg));
    for (int i = 0; i < 2; i++) {
        GW_TRY(gw_session_step(&s, &r, dg));
        mine.longest_s = GW_MAX(mine.longest_s, r.step_s);
    }
    GW_TRY(gw_session_save_poll(&s, true, dg));
    gw_session_close(&s);
    gw_runfile_release(&rf);
    GW_TRY(open_on(&s, &rf, test_tmpdir(), c, dg));
    CHECK_EQ(s.resumed, 1);
    mine.loaded = gw_session_hash(&s);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    if (gw_ranks_me(c) == 0) *f = mine;
    return GW_OK;
}

TEST(a_rank_that_copies_in_a_step_is_waited_for) {
    figures f = {0};
    gw_diags dg;
    gw_diags_init(&dg);
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK_OK(gw_launch_threads(2, timeout_s, save_beside_steps, &f, &dg), &dg);
    test_note("a step took %.2f s at most", f.longest_s);
    CHECK(tiny_equal(f.saved, f.loaded));
    gw_diags_release(&dg);
}

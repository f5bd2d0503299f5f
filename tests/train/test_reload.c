// SPDX-License-Identifier: Apache-2.0
// A checkpoint loaded into a session that is open leaves what opening on it would: the same state,
// the same steps from there, the same saves. One that does not fit changes nothing.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"         /* gw_file_write_atomic */
#include "base/log.h"        /* gw_log_set_level */
#include "ckpt/checkpoint.h" /* gw_checkpoint_verify */
#include "harness.h"
#include "tiny.h"
#include "train/ranks.h"
#include "train/session.h"

static const char at_three[] = "run/checkpoints/step-00000003";

static void begin(void) {
    gw_log_set_level(GW_LOG_QUIET);
    tiny_data();
    CHECK(chdir(test_tmp_path("")) == 0);
}

static gw_status steps(gw_session *s, int n, gw_diags *dg) {
    gw_session_step_result r;
    for (int i = 0; i < n; i++) GW_TRY(gw_session_step(s, &r, dg));
    return gw_session_settle(s, &r, dg);
}

static gw_status open_with(gw_session *s, gw_runfile *rf, const char *const *sets, gw_comm *c,
                           gw_diags *dg) {
    tiny_runfile(rf, true, sets);
    CHECK_OK(gw_runfile_set_ranks(rf, gw_ranks_count(c), dg), dg);
    return gw_session_open(s, rf, NULL, c, dg);
}

static void is_whole(const char *path) {
    gw_arena mem = {0};
    gw_diags dg;
    gw_ckpt_manifest *m = NULL;
    int64_t faults = 0;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_read(path, &mem, &m, &dg), &dg);
    CHECK_OK(gw_checkpoint_verify(m, &faults, &dg), &dg);
    CHECK_EQ(faults, 0);
    gw_diags_release(&dg);
    gw_arena_release(&mem);
}

/* Three steps, a save; three more, hashed; back, and the same three; a save of the second time. */
static gw_status there_and_back(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    GW_TRY(open_with(&s, &rf, user, c, dg));
    GW_TRY(gw_session_go_ahead(&s, dg));
    GW_TRY(steps(&s, 3, dg));
    gw_hash128 at3 = gw_session_hash(&s);
    GW_TRY(gw_session_save(&s, "run", dg));
    GW_TRY(steps(&s, 3, dg));
    gw_hash128 at6 = gw_session_hash(&s);
    GW_TRY(gw_session_save(&s, "run", dg));
    CHECK(!tiny_equal(at3, at6));
    for (int again = 0; again < 2; again++) {
        GW_TRY(gw_session_reload(&s, at_three, dg));
        CHECK_EQ(s.step, 3);
        CHECK_EQ(s.saved, 3);
        CHECK(tiny_equal(gw_session_hash(&s), at3));
        GW_TRY(steps(&s, 3, dg));
        CHECK(tiny_equal(gw_session_hash(&s), at6));
    }
    GW_TRY(gw_session_save(&s, "other", dg));
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

static void go_there_and_back(int ranks, const char *const *sets) {
    union {
        const char *const *sets;
        void *user;
    } u = {.sets = sets};
    begin();
    tiny_ranks(ranks, there_and_back, u.user);
    is_whole(at_three);
    is_whole("other/checkpoints/step-00000006");
}

TEST(a_run_goes_back_to_a_checkpoint) {
    static const char *const sets[] = {"checkpoint.keep_last=4", NULL};
    go_there_and_back(1, sets);
}

TEST(ranks_go_back_together) {
    static const char *const sets[] = {"layout.zero=3", NULL};
    go_there_and_back(2, sets);
}

TEST(a_loss_scale_goes_back_too) {
    static const char *const sets[] = {"precision.compute=fp16", "precision.loss_scale_window=2",
                                       NULL};
    go_there_and_back(1, sets);
}

/* Its steps wait for nobody, and the latest's results are not known when it is taken back. */
TEST(a_pipeline_that_runs_ahead_goes_back) {
    static const char *const sets[] = {"layout.pp=2", "train.accumulate=2",
                                       "optimizer.norm=deferred", "model.tie_embeddings=false",
                                       NULL};
    go_there_and_back(2, sets);
}

/* Begun steps end before the state goes: the first call of a step leaves one under way. */
static gw_status back_from_under_way(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    gw_session_step_result r;
    GW_TRY(open_with(&s, &rf, user, c, dg));
    GW_TRY(gw_session_go_ahead(&s, dg));
    GW_TRY(steps(&s, 3, dg));
    gw_hash128 at3 = gw_session_hash(&s);
    GW_TRY(gw_session_save(&s, "run", dg));
    GW_TRY(gw_session_step(&s, &r, dg));
    GW_TRY(gw_session_save_begin(&s, "run", dg)); /* is being written */
    GW_TRY(gw_session_step(&s, &r, dg));
    GW_TRY(gw_session_reload(&s, at_three, dg));
    CHECK(tiny_equal(gw_session_hash(&s), at3));
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

TEST(what_is_under_way_ends_first) {
    static const char *const sets[] = {"layout.pp=2",
                                       "train.accumulate=2",
                                       "optimizer.norm=deferred",
                                       "checkpoint.keep_last=4",
                                       "model.tie_embeddings=false",
                                       NULL};
    union {
        const char *const *sets;
        void *user;
    } u = {.sets = sets};
    begin();
    tiny_ranks(2, back_from_under_way, u.user);
    is_whole("run/checkpoints/step-00000004");
}

static gw_status save_three(gw_comm *c, void *user, gw_diags *dg) {
    gw_runfile rf;
    gw_session s;
    GW_TRY(open_with(&s, &rf, user, c, dg));
    GW_TRY(steps(&s, 3, dg));
    GW_TRY(gw_session_save(&s, "run", dg));
    gw_session_close(&s);
    gw_runfile_release(&rf);
    return GW_OK;
}

TEST(one_that_does_not_fit_changes_nothing) {
    static const char *const other[] = {"train.seed=7", NULL};
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_diags_init(&dg);
    begin();
    union {
        const char *const *sets;
        void *user;
    } u = {.sets = other};
    tiny_ranks(1, save_three, u.user);
    CHECK_OK(open_with(&s, &rf, NULL, NULL, &dg), &dg);
    CHECK_OK(steps(&s, 2, &dg), &dg);
    gw_hash128 at2 = gw_session_hash(&s);
    CHECK_FAILS(gw_session_reload(&s, at_three, &dg), &dg, "train.seed");
    CHECK(tiny_equal(gw_session_hash(&s), at2));
    CHECK_EQ(s.step, 2);
    gw_diags_clear(&dg);
    CHECK_FAILS(gw_session_reload(&s, "nowhere", &dg), &dg, "has no checkpoint");
    CHECK(tiny_equal(gw_session_hash(&s), at2));
    gw_diags_clear(&dg);
    CHECK_OK(steps(&s, 1, &dg), &dg);
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_diags_release(&dg);
}

TEST(a_damaged_one_is_an_error) {
    static const char file[] = "run/checkpoints/step-00000003/rank-00000.safetensors";
    gw_diags dg;
    gw_runfile rf;
    gw_session s;
    gw_str bytes = {0};
    gw_diags_init(&dg);
    begin();
    tiny_ranks(1, save_three, NULL);
    CHECK_OK(gw_file_read(file, 1 << 24, &bytes, &dg), &dg);
    bytes.data[bytes.len / 2] ^= 1;
    CHECK_OK(gw_file_write_atomic(file, gw_str_c(&bytes), (int64_t)bytes.len, &dg), &dg);
    CHECK_OK(open_with(&s, &rf, NULL, NULL, &dg), &dg);
    CHECK_FAILS(gw_session_reload(&s, "run", &dg), &dg, "no checkpoint that is whole");
    gw_session_close(&s);
    gw_runfile_release(&rf);
    gw_str_release(&bytes);
    gw_diags_release(&dg);
}

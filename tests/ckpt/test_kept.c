// SPDX-License-Identifier: Apache-2.0
// Commits that stay: what stood there before a run began anew is removed by nobody, however often
// is saved and by whomever, until kept.json goes.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"   /* gw_path_exists */
#include "base/log.h"  /* gw_log_set_level */
#include "ckpt/save.h" /* gw_checkpoint_save */
#include "harness.h"

static void save_step(int64_t step) {
    gw_diags dg;
    float w[8] = {(float)step};
    int64_t dims[1] = {8};
    gw_ckpt_tensor t = {.name = "w",
                        .dtype = GW_F32,
                        .ndim = 1,
                        .dims = {8},
                        .box = gw_box_whole(1, dims),
                        .data = w};
    gw_ckpt_meta m = {.step = step, .batch = step, .loss_scale = 1};
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_save(test_tmpdir(), &m, &t, 1, &dg), &dg);
    gw_diags_release(&dg);
}

static const char *at(const char *below) {
    char path[200];
    snprintf(path, sizeof path, "checkpoints/%s", below);
    return test_tmp_path(path);
}

static int complete(void) {
    gw_arena mem = {0};
    gw_ckpt_list l;
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_list(test_tmpdir(), &mem, &l, &dg), &dg);
    int n = 0;
    for (int i = 0; i < l.n; i++) n += l.items[i].state == GW_CKPT_COMPLETE;
    gw_arena_release(&mem);
    gw_diags_release(&dg);
    return n;
}

static void prune(int64_t last) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_prune(test_tmpdir(), last, 0, -1, &dg), &dg);
    gw_diags_release(&dg);
}

static void keep_all(void) {
    gw_diags dg;
    gw_diags_init(&dg);
    CHECK_OK(gw_checkpoint_keep_all(test_tmpdir(), &dg), &dg);
    gw_diags_release(&dg);
}

TEST(what_stood_there_is_removed_by_nobody) {
    gw_log_set_level(GW_LOG_QUIET);
    keep_all(); /* nothing there: nothing is written */
    CHECK(!gw_path_exists(at(GW_CKPT_KEPT_FILE)));
    save_step(30);
    save_step(40);
    save_step(50);
    CHECK(unlink(at("step-00000050/manifest.json")) == 0); /* its data may still be wanted */
    keep_all();
    for (int64_t s = 10; s <= 80; s += 10) {
        save_step(s); /* 30 and 40 are moved aside, and so is 50, though it is no commit */
        prune(2);
    }
    CHECK(gw_path_exists(at("step-00000030.replaced-1/manifest.json")));
    CHECK(gw_path_exists(at("step-00000040.replaced-1/manifest.json")));
    CHECK(gw_path_exists(at("step-00000050.replaced-1/rank-00000.safetensors")));
    CHECK(!gw_path_exists(at("step-00000060")));
    CHECK_EQ(complete(), 2);                     /* the run's own */
    CHECK(!gw_path_exists(at("step-00000050"))); /* a later commit of that step */
    CHECK(gw_path_exists(at("step-00000080/manifest.json")));
    prune(1);
    CHECK(gw_path_exists(at("step-00000030.replaced-1/manifest.json")));
    CHECK(!gw_path_exists(at("step-00000070")));
    /* A second time adds. */
    keep_all();
    save_step(90);
    prune(1);
    CHECK(gw_path_exists(at("step-00000080/manifest.json")));
    /* Without the file they go like any other. */
    CHECK(unlink(at(GW_CKPT_KEPT_FILE)) == 0);
    prune(1);
    CHECK_EQ(complete(), 1);
    CHECK(!gw_path_exists(at("step-00000030.replaced-1")));
    CHECK(!gw_path_exists(at("step-00000050.replaced-1")));
}

TEST(a_file_that_does_not_read_keeps_everything) {
    gw_log_set_level(GW_LOG_QUIET);
    for (int64_t s = 1; s <= 4; s++) save_step(s);
    FILE *f = fopen(at(GW_CKPT_KEPT_FILE), "w");
    CHECK(f && fputs("{\"commits_up_to\": \"two\"}", f) >= 0 && fclose(f) == 0);
    prune(1);
    CHECK_EQ(complete(), 4);
    f = fopen(at(GW_CKPT_KEPT_FILE), "w");
    CHECK(f && fputs("{\"commits_up_to\": 2}", f) >= 0 && fclose(f) == 0);
    prune(1);
    CHECK_EQ(complete(), 3);
    CHECK(!gw_path_exists(at("step-00000003")));
}
